//! Servers that come and go while the process runs: those behind a gateway.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use host::Server;

use super::route::matches_server_name;

/// By name. They are served at `/mcp/<name>`, besides the fixed servers of the process, which are looked up first.
#[derive(Default)]
pub struct ServerDirectory(RwLock<Vec<Arc<Server>>>);

impl ServerDirectory {
    /// Serves a server from now on. Returns the one that had its name.
    pub fn insert(&self, server: Arc<Server>) -> Option<Arc<Server>> {
        let mut servers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match servers.binary_search_by(|other| other.name.cmp(&server.name)) {
            Ok(position) => Some(std::mem::replace(&mut servers[position], server)),
            Err(position) => {
                servers.insert(position, server);
                None
            }
        }
    }

    /// Returns the server that is no longer served. Its sessions and streams are the caller's to end.
    pub fn remove(&self, name: &str) -> Option<Arc<Server>> {
        let mut servers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let position = servers.iter().position(|server| server.name == name)?;
        Some(servers.remove(position))
    }

    pub fn servers(&self) -> Vec<Arc<Server>> {
        self.read().clone()
    }

    /// `part` is a segment of a path.
    pub(super) fn find(&self, part: &str) -> Option<Arc<Server>> {
        self.read().iter().find(|server| matches_server_name(part, &server.name)).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Server>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server of a request. Only one that may go away is counted.
#[derive(Clone)]
pub(crate) enum ServerRef<'a> {
    Fixed(&'a Arc<Server>),
    Listed(Arc<Server>),
}

impl Deref for ServerRef<'_> {
    type Target = Arc<Server>;

    #[inline]
    fn deref(&self) -> &Arc<Server> {
        match self {
            Self::Fixed(server) => server,
            Self::Listed(server) => server,
        }
    }
}
