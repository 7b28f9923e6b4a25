//! The roots that the entry of a server declares. They may change while it runs.

use std::sync::{Arc, Mutex, PoisonError};

use wire::client::InputReply;

use super::{Manager, ManagerHost};
use crate::config::{ConfiguredServer, Template, roots_result};

/// `None`: the entry says nothing about roots.
pub(super) struct LiveRoots {
    server: Arc<ConfiguredServer>,
    host: Arc<dyn ManagerHost>,
    roots: Mutex<Option<Vec<Template>>>,
}

impl LiveRoots {
    pub(super) fn new(server: Arc<ConfiguredServer>, host: Arc<dyn ManagerHost>) -> Self {
        let roots = server.entry.as_ref().ok().and_then(|entry| entry.roots.clone());
        Self { server, host, roots: Mutex::new(roots) }
    }

    pub(super) fn get(&self) -> Option<Vec<Template>> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, roots: Option<Vec<Template>>) {
        *self.roots.lock().unwrap_or_else(PoisonError::into_inner) = roots;
    }

    /// The answer to `roots/list`; `None` if the entry says nothing about roots.
    pub(super) fn reply(&self) -> Option<InputReply> {
        let roots = self.get()?;
        let env = |name: &str| self.host.env(name);
        Some(match self.server.resolve_roots(&roots, &env, self.host.home().as_deref()) {
            Ok(roots) => InputReply::Result(roots_result(&roots)),
            Err(error) => {
                tracing::warn!(server = self.server.name, %error, "cannot answer `roots/list`");
                InputReply::Declined("the roots of this client are not available".to_owned())
            }
        })
    }
}

impl Manager {
    /// The answer to `roots/list` of a server whose entry declares roots; `None` for all others.
    pub fn roots_reply(&self, server: &str) -> Option<InputReply> {
        self.find(server)?.roots.reply()
    }

    /// Whether the entry of a server declares roots.
    pub fn declares_roots(&self, server: &str) -> bool {
        self.find(server).is_some_and(|handle| handle.roots.get().is_some())
    }
}
