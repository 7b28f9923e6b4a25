//! The servers behind a running gateway: added, replaced and removed when the settings change or somebody registers one.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gateway::{Gateway, Naming, RemoteProvider};
use host::{CallObserver, Server};
use servers::config::{Configuration, RegisteredServers};
use servers::manager::{ConfigFollower, ServerChange};
use tokio::sync::Notify;
use transport::http::ServerDirectory;

use super::decisions::{Decider, GatewayTable};
use super::tools::GatewayTools;
use crate::mcp::ServerContext;
use crate::serve::Service;
use crate::server_state::ServerState;

/// How soon a changed file is noticed.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct LiveServers {
    pub(super) gateway: Arc<Gateway>,
    pub(super) registered: Arc<RegisteredServers>,
    pub(super) table: Arc<GatewayTable>,
    pub(super) decider: Arc<Decider>,
    pub(super) tools: Arc<GatewayTools>,
    /// `None` on stdin and stdout, where only the server with everything is reached.
    pub(super) directory: Option<Arc<ServerDirectory>>,
    pub(super) state: ServerState,
    /// Of the gateway; each server has a part of it.
    pub(super) store_scope: String,
    pub(super) on_call: Option<Arc<dyn CallObserver>>,
    pub(super) main: OnceLock<Arc<Server>>,
    /// Something changed that nobody needs to wait for: apply it now.
    pub(super) wake: Arc<Notify>,
}

impl LiveServers {
    /// Offers all servers at the main server, and each at its own address.
    pub(super) fn start(self: &Arc<Self>, main: &Arc<Server>) -> anyhow::Result<()> {
        // Set once, here.
        let _ = self.main.set(main.clone());
        for name in self.gateway.server_names() {
            self.add(&name)?;
        }
        self.tools.set_main(main);
        Ok(())
    }

    fn add(&self, name: &str) -> anyhow::Result<()> {
        let (Some(own), Some(public), Some(main)) = (
            self.gateway.provider(name, Naming::Own),
            self.gateway.provider(name, Naming::Public),
            self.main.get(),
        ) else {
            return Ok(());
        };
        let configured = self.gateway.manager().configured(name);
        let entry = configured.as_ref().and_then(|server| server.entry.as_ref().ok());
        self.table.set_remote(name, public.clone(), entry.map_or("unknown", |entry| entry.kind()));
        if let Some(directory) = &self.directory {
            let server = self.own_server(name, own)?;
            if let Some(old) = directory.insert(server) {
                old.close();
            }
        }
        // Last: whoever finds its tools here finds its own address, too.
        main.set_provider_by_name(name, Some(public));
        Ok(())
    }

    /// The server at the address of its own.
    fn own_server(&self, name: &str, own: Arc<RemoteProvider>) -> anyhow::Result<Arc<Server>> {
        let info = self.gateway.manager().offer(name).and_then(|(_, info)| info);
        let version =
            info.map_or_else(|| env!("CARGO_PKG_VERSION").to_owned(), |info| info.server_version.clone());
        let timeouts = self.gateway.manager().call_timeouts(name);
        let service = Service::new(name, &version, own)
            .with_state(self.state.clone(), format!("{}/{name}", self.store_scope))
            .with_call_timeout(timeouts.map(|timeouts| timeouts.total_ms));
        let server = service.into_remote_server()?;
        server.set_policy(self.decider.policy(&server, false));
        let observers = self.on_call.iter().cloned().chain(self.decider.observer(&server, false));
        crate::serve::observe(&server, observers);
        tokio::spawn({
            let server = server.clone();
            async move { server.resume_tasks().await }
        });
        if self.state.is_store_shared {
            tokio::spawn(server.clone().follow_replicas());
        }
        Ok(server)
    }

    /// Whoever started the gateway named the servers of this process; a settings file changes at any time.
    fn leave_out_those_with_hosted_names(&self, configuration: &mut Configuration) {
        configuration.servers.retain(|server| {
            let hosted = self.table.hosted_with_names_of(&server.name);
            if let Some(hosted) = hosted {
                tracing::warn!(
                    server = server.name,
                    hosted,
                    "left out: its tools would have the same names as those of a server that the gateway itself serves; \
                     rename one of them"
                );
            }
            hosted.is_none()
        });
    }

    fn remove(&self, name: &str) {
        self.table.remove_remote(name);
        if let Some(main) = self.main.get() {
            main.set_provider_by_name(name, None);
        }
        if let Some(old) = self.directory.as_ref().and_then(|directory| directory.remove(name)) {
            old.close();
        }
    }

    /// Applies every change of the settings files and of the registered servers, for as long as the gateway runs.
    pub(super) async fn follow(self: Arc<Self>, mut follower: ConfigFollower) {
        loop {
            let polled = tokio::task::spawn_blocking(move || {
                let found = follower.poll();
                (follower, found)
            });
            // A panic in it is a bug; the servers go on as they are.
            let Ok((returned, found)) = polled.await else { return };
            follower = returned;
            if let Some((mut configuration, decisions)) = found {
                self.leave_out_those_with_hosted_names(&mut configuration);
                for change in self.gateway.apply(&configuration, &decisions) {
                    tracing::info!(?change, "the configured servers have changed");
                    match &change {
                        ServerChange::Removed(name) => self.remove(name),
                        ServerChange::RootsChanged(_) => {}
                        ServerChange::Added(name) | ServerChange::Changed(name) => {
                            if let Err(error) = self.add(name) {
                                tracing::warn!(server = name, "cannot serve it: {error:#}");
                            }
                        }
                    }
                }
                self.tools.refresh();
            }
            let _ = tokio::time::timeout(FOLLOW_INTERVAL, self.wake.notified()).await;
        }
    }
}

/// Follows everything that decides which servers there are.
pub(super) fn follower(
    context: &ServerContext,
    run_files: &[PathBuf],
    registered: &Arc<RegisteredServers>,
) -> ConfigFollower {
    let follower =
        ConfigFollower::new(context.places.clone(), run_files.to_vec(), crate::mcp::decision_path());
    follower.with_registered(registered.clone())
}
