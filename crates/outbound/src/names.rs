//! Where names lead: the operating system's resolver, and what is judged about its answers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::failure::NameResolutionError;
use crate::{NetworkZone, Reach};

/// Looks names up.
pub trait Names: Send + Sync {
    fn look_up(&self, name: String) -> Lookup;
}

/// The addresses of a name. Their ports mean nothing.
pub type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Who looks names up; the operating system by default.
#[derive(Clone)]
pub struct NameSource(Arc<dyn Names>);

impl NameSource {
    pub fn new(names: impl Names + 'static) -> Self {
        Self(Arc::new(names))
    }

    pub(crate) async fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.0.look_up(name.to_owned()).await
    }
}

impl Default for NameSource {
    fn default() -> Self {
        Self::new(SystemNames)
    }
}

impl fmt::Debug for NameSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameSource")
    }
}

struct SystemNames;

impl Names for SystemNames {
    fn look_up(&self, name: String) -> Lookup {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    }
}

/// Resolves the names of one client, and refuses those that lead out of its reach.
pub(crate) struct ReachResolver {
    pub(crate) names: NameSource,
    pub(crate) reach: Reach,
    /// The only name that is judged, where there may be a proxy, which has the other one. `None`: every name is judged.
    pub(crate) host: Option<String>,
    pub(crate) zone: Arc<OnceLock<NetworkZone>>,
}

impl Resolve for ReachResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, reach, zone) = (self.names.clone(), self.reach, self.zone.clone());
        let is_same = |host: &String| {
            name.as_str().trim_end_matches('.').eq_ignore_ascii_case(host.trim_end_matches('.'))
        };
        let is_judged = self.host.as_ref().is_none_or(is_same);
        Box::pin(async move {
            let found = names.look_up(name.as_str()).await.map_err(NameResolutionError)?;
            if is_judged {
                // One forbidden address among others is a trick, not a coincidence.
                found.iter().try_for_each(|address| reach.check(address.ip()))?;
                if let Some(widest) = found.iter().map(|address| NetworkZone::of(address.ip())).min() {
                    let _ = zone.set(widest);
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
