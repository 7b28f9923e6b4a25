//! Streamable HTTP, both eras on one endpoint, over HTTP/1.1 and HTTP/2; HTTP+SSE of 2024-11-05; and the pipes
//! that a connection can turn into.
//!
//! ```text
//! accept → connection (TLS; phases, timeouts) → fast_path                                  → host → response
//!                                             → hyper → route (guards) → post | get | delete | sse → host → response
//!                                                              → upgrade → websocket → pipe
//!                                                              → page
//!          a unix socket without HTTP → unix_pipe                                    → pipe
//! ```

mod admin;
mod body;
mod connection;
mod connection_tracker;
mod cors;
mod directory;
mod fast_path;
mod get;
mod page;
mod post;
mod request_budget;
mod response;
mod response_backlog;
mod route;
mod socket;
mod sse;
mod strict;
mod tls;
#[cfg(unix)]
mod unix_pipe;
mod upgrade;
mod websocket;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use host::{Server, UnavailableSource};
use tokio::sync::watch;

use crate::access_tokens::AccessTokens;
use crate::guard::Guard;
pub use admin::{AdminEndpoint, AdminHandler, AdminMethod, AdminRequest, AdminResponse};
#[cfg(unix)]
pub(crate) use connection::serve_http1_stream;
use connection_tracker::ConnectionTracker;
pub(crate) use connection_tracker::{IdlePolicy, TrackedConnection};
pub use directory::ServerDirectory;
#[doc(hidden)]
pub use fast_path::PlainRequests;
pub use page::{ConnectSnippets, Page, SnippetRequest, Upstreams};
pub(crate) use request_budget::{RequestReservation, UNCOUNTED_BYTES_MAX};
pub(crate) use response::TOO_MANY_REQUEST_BYTES;
pub use route::server_path;
use socket::AcceptedConnection;
pub use socket::Listener;
pub use tls::{CertificateFileError, CertificateFiles, Tls};
pub(crate) use websocket::WebSocket;

/// How long a connection may stay in each phase, and how many connections there may be.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    pub header_timeout_ms: u64,
    /// Between two reads of a body.
    pub body_idle_timeout_ms: u64,
    /// For a body from its first byte to its last.
    pub body_total_timeout_ms: u64,
    pub write_stall_timeout_ms: u64,
    pub keep_alive_timeout_ms: u64,
    pub drain_timeout_ms: u64,
    pub connections_max: usize,
    /// Response bytes that the client of one connection has not taken. Above it, requests on that connection are
    /// refused.
    pub connection_response_bytes_max: usize,
    /// Response bytes that all clients together have not taken. Above it, connections are closed, those first that
    /// have taken nothing for longest.
    pub response_bytes_max: usize,
    /// Bytes of all request messages that are not complete. Above it, messages are dropped, those first that hold
    /// most for longest.
    pub request_bytes_max: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            header_timeout_ms: 10_000,
            body_idle_timeout_ms: 30_000,
            body_total_timeout_ms: 300_000,
            write_stall_timeout_ms: 30_000,
            keep_alive_timeout_ms: 120_000,
            drain_timeout_ms: 10_000,
            connections_max: 20_000,
            connection_response_bytes_max: 16 << 20,
            response_bytes_max: 256 << 20,
            request_bytes_max: 128 << 20,
        }
    }
}

impl ConnectionLimits {
    /// How long calls on a pipe may take after shutdown starts. The rest of the drain timeout is for closing.
    pub(crate) fn call_drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms - self.drain_timeout_ms / 4)
    }
}

/// The servers, guard, limits and TLS behind one set of listeners.
pub struct HttpService {
    pub servers: Vec<Arc<Server>>,
    pub guard: Guard,
    pub connection_limits: ConnectionLimits,
    /// `None` for plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// Whether clients may use HTTP+SSE, the transport of 2024-11-05.
    pub http_sse: bool,
    /// Servers that should be here and could not be started: they are named in `/status` and count in `/health`.
    pub failed_servers: Vec<UnavailableSource>,
    /// The page for people at `/`; `None` for none.
    pub page: Option<Page>,
    /// Whether the first server is at `/mcp`. The others are at `/mcp/<name>` in any case.
    pub has_main_server: bool,
    /// Servers that come and go; `None` if there are none.
    pub directory: Option<Arc<ServerDirectory>>,
    /// What operators may do; `None` for nothing.
    pub admin: Option<AdminEndpoint>,
}

impl HttpService {
    /// The server at `/mcp`: the only one, or the one that was chosen.
    #[inline]
    pub(crate) fn main_server(&self) -> Option<&Arc<Server>> {
        match &*self.servers {
            [only] => Some(only),
            [main, ..] if self.has_main_server => Some(main),
            _ => None,
        }
    }

    /// Whether the server at this place in the list has the short path.
    pub(crate) fn is_main(&self, index: usize) -> bool {
        index == 0 && self.main_server().is_some()
    }

    /// The fixed servers, and those that are there now.
    pub(crate) fn all_servers(&self) -> Vec<Arc<Server>> {
        let listed = self.directory.iter().flat_map(|directory| directory.servers());
        self.servers.iter().cloned().chain(listed).collect()
    }
}

/// Serves until `stop` is true, then lets running calls finish.
pub async fn serve(listener: impl Into<Listener>, service: Arc<HttpService>, stop: watch::Receiver<bool>) {
    serve_all(vec![listener.into()], service, stop).await;
}

/// Serves one service on several listeners.
pub async fn serve_all(listeners: Vec<Listener>, service: Arc<HttpService>, mut stop: watch::Receiver<bool>) {
    let tracker = Arc::new(ConnectionTracker::new(service.connection_limits.clone()));
    let tracker_task = tokio::spawn(tracker.clone().run());
    let token_task = service
        .guard
        .tokens
        .clone()
        .map(|tokens| tokio::spawn(close_revoked_connections(tokens, tracker.clone(), service.clone())));
    let admin_task = service.admin.as_ref().map(|admin| {
        tokio::spawn(close_revoked_connections(admin.tokens.clone(), tracker.clone(), service.clone()))
    });
    let mut turn = 0;
    loop {
        turn += 1;
        let accepted = tokio::select! {
            accepted = accept(&listeners, turn) => accepted,
            () = wait_for_stop(&mut stop) => break,
        };
        match accepted {
            Ok(connection) => admit_connection(connection, &service, &tracker),
            // Out of file descriptors, or a client that disconnected at once. Do not stop, and do not spin.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listeners);
    for server in service.all_servers() {
        // The next process continues them.
        server.release_tasks().await;
        server.close();
    }
    // Graceful shutdown: running requests are answered, for at most the drain timeout.
    tracker.drain(Duration::from_millis(service.connection_limits.drain_timeout_ms)).await;
    for server in service.all_servers() {
        // Calls that became tasks meanwhile.
        server.release_tasks().await;
    }
    tracker_task.abort();
    for task in [token_task, admin_task].into_iter().flatten() {
        task.abort();
    }
}

/// Closes the connections of a token when it is removed, expires, or grants something else, and ends the tasks that it
/// started.
async fn close_revoked_connections(
    tokens: AccessTokens,
    tracker: Arc<ConnectionTracker>,
    service: Arc<HttpService>,
) {
    loop {
        let valid_grants = tokens.revoked().await;
        tracing::info!("closing the connections of tokens that are no longer valid");
        // Twice: a request whose token was checked just before may not have marked its connection yet.
        for _ in 0..2 {
            tracker.close_revoked(&valid_grants);
            for server in service.all_servers() {
                server.end_tasks_without_access().await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Accepts the next connection. The listeners take turns at being polled first.
async fn accept(listeners: &[Listener], turn: usize) -> std::io::Result<AcceptedConnection> {
    let (after, before) = listeners.split_at(turn % listeners.len().max(1));
    poll_fn(|cx| {
        for listener in before.iter().chain(after) {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}

fn admit_connection(
    connection: AcceptedConnection,
    service: &Arc<HttpService>,
    tracker: &Arc<ConnectionTracker>,
) {
    if tracker.count() >= service.connection_limits.connections_max {
        tracing::warn!("refused a connection: the limit of open connections is reached");
        return;
    }
    connection::spawn(connection, service.clone(), tracker);
}

async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone: stop too.
    drop(stop.wait_for(|stop| *stop).await);
}
