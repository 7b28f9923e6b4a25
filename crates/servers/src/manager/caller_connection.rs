//! Calls that are made for other clients: on the connection that all of them share, or on one of their own.
//!
//! The manager's own connection declares nothing about its client. Where a server learns only at the start what its client
//! can do, each client needs a connection of its own.

use std::sync::Arc;

use spile_core::{CatalogChange, ClientCapabilities, LogLevel};
use tokio::sync::mpsc;
use upstream::{
    ClientHandler, ConnectionEvent, ConnectionOptions, ProgressCallback, RunningCall, Subscription,
};
use wire::client::{ClientCall, ClientError, ClientOptions, ServerInfo};
use wire::{NotificationFilter, Version};

use super::attempt::{AttemptError, connect};
use super::server::{Command, OpenConnection, View};
use super::state::{Failure, Status};
use super::tokens::access_token;
use super::{
    CallTimeouts, Manager, ManagerHost, ServerCallError, ServerHandle, call_error, connection_report,
};
use crate::config::ConfiguredServer;
use crate::oauth::LoginError;
use crate::registry::ServerLists;

/// A connection to a server, for the calls of other clients.
pub struct CallerConnection {
    server: Arc<ConfiguredServer>,
    connection: Arc<OpenConnection>,
    host: Arc<dyn ManagerHost>,
    timeouts: CallTimeouts,
    ping_timeout_ms: u64,
    /// Where the task of the server learns what calls say about the shared connection.
    commands: mpsc::Sender<Command>,
    is_shared: bool,
}

/// What a failed call means.
#[derive(Debug)]
pub enum CallFailure {
    /// The server refused the call before it ran, and the connection has another token now: send it again.
    TokenRefused(ServerCallError),
    /// The connection was closed before the call was sent: send it on another one.
    NotSent(ServerCallError),
    Final(ServerCallError),
}

impl Manager {
    /// The connection that all callers share, as soon as the server is connected. `broken` is one that does not work.
    pub async fn shared_connection(
        &self,
        server: &str,
        broken: Option<&CallerConnection>,
    ) -> Result<CallerConnection, ServerCallError> {
        let handle = self.handle(server)?;
        let broken = broken.map(|broken| &broken.connection);
        let connection = handle.connection(&self.options, broken).await?;
        Ok(self.caller_connection(&handle, connection, true))
    }

    /// Opens one more connection, on which the client declares these capabilities. Waits until the server is connected:
    /// a server that is down is not started once for each caller.
    pub async fn open_connection(
        &self,
        server: &str,
        capabilities: ClientCapabilities,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<CallerConnection, ServerCallError> {
        let handle = self.handle(server)?;
        let own = handle.connection(&self.options, None).await?;
        let options = &self.options.connection;
        let options = ConnectionOptions {
            client_options: ClientOptions { capabilities, ..options.client_options.clone() },
            ..options.clone()
        };
        let open = || connect(&handle.server, &self.options, &options, &*self.host, &handler);
        let mut connection = open().await;
        if let Err(AttemptError { failure: Failure::Transient, message }) = &connection
            && own.hangs(self.options.ping_timeout_ms).await
        {
            // The server itself is down: the call waits until it is back, as any other.
            let _ = handle.commands.send(Command::Lost(own.clone(), message.clone())).await;
            handle.connection(&self.options, Some(&own)).await?;
            connection = open().await;
        }
        let connection = connection.map_err(|error| match error.failure {
            Failure::Unauthorized => ServerCallError::NeedsAuth { server: server.to_owned() },
            Failure::Transient | Failure::Permanent | Failure::Busy { .. } => {
                ServerCallError::Unavailable { server: server.to_owned(), reason: error.message }
            }
        })?;
        Ok(self.caller_connection(&handle, Arc::new(connection), false))
    }

    fn caller_connection(
        &self,
        handle: &ServerHandle,
        connection: Arc<OpenConnection>,
        is_shared: bool,
    ) -> CallerConnection {
        CallerConnection {
            server: handle.server.clone(),
            connection,
            host: self.host.clone(),
            timeouts: handle.call_timeouts(&self.options),
            ping_timeout_ms: self.options.ping_timeout_ms,
            commands: handle.commands.clone(),
            is_shared,
        }
    }

    /// The entry that a server was started with.
    pub fn configured(&self, server: &str) -> Option<Arc<ConfiguredServer>> {
        Some(self.find(server)?.server.clone())
    }

    /// What a server offers now, and what it declared when it was connected last.
    pub fn offer(&self, server: &str) -> Option<(Arc<ServerLists>, Option<Arc<ServerInfo>>)> {
        let handle = self.find(server)?;
        let view = handle.view.borrow();
        Some((view.lists.clone(), view.info.clone()))
    }

    /// Whether the settings of the server offer this tool, and the user has approved what it is.
    pub fn offers_tool(&self, server: &str, tool: &str) -> bool {
        let Some(handle) = self.find(server) else { return false };
        let lists = handle.view.borrow().lists.clone();
        let is_suspended = lists.unapproved.iter().any(|one| one.is_suspended && one.tool == tool);
        !is_suspended && matches!(&handle.server.entry, Ok(entry) if entry.tools.offers(tool))
    }

    /// Reports changes of a resource to the manager's host, until it is unwatched as often as it was watched.
    pub fn watch_resource(&self, server: &str, uri: &str) {
        if let Some(handle) = self.find(server) {
            handle.watched.watch(uri);
        }
    }

    /// Waits until the server has answered whether it reports changes of a resource that is watched, and not for a server that
    /// was given up.
    pub async fn wait_watching(&self, server: &str, uri: &str) {
        let Some(handle) = self.find(server) else { return };
        let mut view = handle.view.clone();
        let is_absent =
            |view: &View| matches!(view.status, Status::Error | Status::Disabled | Status::NeedsAuth);
        tokio::select! {
            () = handle.watched.wait_answered(uri) => {}
            _ = view.wait_for(is_absent) => {}
        }
    }

    pub fn unwatch_resource(&self, server: &str, uri: &str) {
        if let Some(handle) = self.find(server) {
            handle.watched.unwatch(uri);
        }
    }

    /// Another connection than the manager's own says that something has changed.
    pub fn catalog_changed(&self, server: &str, event: &ConnectionEvent) {
        self.host.on_event(server, event);
        let is_list = !matches!(event, ConnectionEvent::CatalogChanged(CatalogChange::Resource(_)));
        if let Some(handle) = self.find(server).filter(|_| is_list) {
            handle.watched.lists_changed.notify_one();
        }
    }

    pub fn call_timeouts(&self, server: &str) -> Option<CallTimeouts> {
        Some(self.find(server)?.call_timeouts(&self.options))
    }
}

impl CallerConnection {
    pub fn timeouts(&self) -> CallTimeouts {
        self.timeouts
    }

    pub fn protocol_version(&self) -> Version {
        self.connection.connection.server_info().protocol_version
    }

    pub fn start_call(&self, call: ClientCall, on_progress: Option<ProgressCallback>) -> RunningCall {
        self.connection.connection.start_call(call, on_progress)
    }

    /// Reports changes of a resource to the handler of this connection; `None` if the server refuses.
    pub async fn subscribe_to_resource(&self, uri: &str) -> Option<Subscription> {
        let filter =
            NotificationFilter { resource_uris: vec![uri.to_owned()], ..NotificationFilter::default() };
        self.connection.connection.subscribe(&filter).await.ok()
    }

    /// Whether the server does not answer any more. To be asked after a call that timed out; what hangs on the connection of
    /// all callers, the manager finds out by itself.
    pub async fn hangs(&self) -> bool {
        !self.is_shared && self.connection.hangs(self.ping_timeout_ms).await
    }

    /// Waits until what the server sent before now has arrived.
    pub async fn catch_up(&self) {
        self.connection.connection.catch_up().await;
    }

    /// Tells the server that the roots have changed.
    pub fn roots_changed(&self) {
        self.connection.connection.roots_changed();
    }

    /// For all calls of this connection.
    pub fn set_log_level(&self, level: LogLevel) {
        self.connection.connection.set_log_level(level);
    }

    /// Decides what a failed call means for the caller, and reports what it means for the connection.
    pub async fn call_failed(&self, error: ClientError) -> CallFailure {
        let error = call_error(&self.server.name, self.timeouts, error);
        match &error {
            ServerCallError::NeedsAuth { server } => match self.replace_refused_token().await {
                Ok(true) => return CallFailure::TokenRefused(error),
                Ok(false) => self.report(Command::Unauthorized).await,
                Err(no_token) => return CallFailure::Final(super::no_token(server, &no_token)),
            },
            // The user may have signed in again, with more scopes. An error is logged, and the call ends as it was refused.
            ServerCallError::NeedsScope { .. } if self.use_newest_token().await.unwrap_or(false) => {
                return CallFailure::TokenRefused(error);
            }
            error if self.is_shared => {
                if let Some(command) = connection_report(&self.connection, error) {
                    self.report(command).await;
                }
            }
            _ => {}
        }
        match error {
            ServerCallError::NotSent { .. } => CallFailure::NotSent(error),
            error => CallFailure::Final(error),
        }
    }

    /// The task has ended only if the manager was closed.
    async fn report(&self, command: Command) {
        let _ = self.commands.send(command).await;
    }

    /// Returns whether there is another token than the one that the server refused.
    async fn replace_refused_token(&self) -> Result<bool, LoginError> {
        self.replace_token(self.connection.token.text()).await
    }

    /// Returns whether there is another token than the one that is valid but not enough.
    async fn use_newest_token(&self) -> Result<bool, LoginError> {
        self.replace_token(None).await
    }

    async fn replace_token(&self, rejected: Option<String>) -> Result<bool, LoginError> {
        let OpenConnection { url: Some(url), reach, token: slot, .. } = &*self.connection else {
            return Ok(false);
        };
        let current = slot.text();
        let token = access_token(&self.server, url, *reach, rejected, &*self.host).await?;
        let is_new = token.as_ref().is_some_and(|token| Some(token.text()) != current.as_deref());
        if is_new {
            slot.set(token);
        }
        Ok(is_new)
    }
}
