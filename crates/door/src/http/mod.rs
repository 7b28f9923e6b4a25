//! Streamable HTTP, both eras on one endpoint, over HTTP/1.1 and HTTP/2; beside it HTTP+SSE of 2024-11-05; and what a
//! connection may be besides.
//!
//! ```text
//! accept → connection (TLS; phases, watched) → route (guards) → post | get | delete | sse → host → response
//!                                                             → upgrade → websocket → pipe
//!          a unix socket, no HTTP → local                                           → pipe
//! ```

mod body;
mod connection;
mod cors;
mod get;
#[cfg(unix)]
mod local;
mod post;
mod reply;
mod route;
mod sse;
mod stream;
mod strict;
mod tls;
mod upgrade;
mod watcher;
mod websocket;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use host::Server;
use tokio::sync::watch;

use crate::guard::Guard;
use stream::Arrival;
pub use stream::Listener;
pub use tls::{BadPair, Files, Tls};
use watcher::Watcher;
pub(crate) use watcher::{Link, Rests};
pub(crate) use websocket::WebSocket;

/// How long a connection may dwell in each phase, and how many there may be.
#[derive(Debug, Clone)]
pub struct Timing {
    pub header_timeout_ms: u64,
    /// Between two pieces of a body.
    pub body_idle_ms: u64,
    /// For a body from its first byte to its last.
    pub body_whole_ms: u64,
    pub write_stall_ms: u64,
    pub keep_alive_idle_ms: u64,
    pub drain_ms: u64,
    pub connections_max: usize,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            header_timeout_ms: 10_000,
            body_idle_ms: 30_000,
            body_whole_ms: 300_000,
            write_stall_ms: 30_000,
            keep_alive_idle_ms: 120_000,
            drain_ms: 10_000,
            connections_max: 20_000,
        }
    }
}

impl Timing {
    /// How long calls on a pipe may still take when we go: what is left is for saying so.
    pub(crate) fn calls_drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms - self.drain_ms / 4)
    }
}

/// Everything that is served at one address.
pub struct Site {
    pub servers: Vec<Arc<Server>>,
    pub guard: Guard,
    pub timing: Timing,
    /// What is spoken before HTTP; nothing if it is plain.
    pub tls: Option<Arc<Tls>>,
}

/// Serves until `stop` says so, then lets calls under way finish.
pub async fn serve(listener: impl Into<Listener>, site: Arc<Site>, stop: watch::Receiver<bool>) {
    serve_all(vec![listener.into()], site, stop).await;
}

/// Serves the same at several places.
pub async fn serve_all(listeners: Vec<Listener>, site: Arc<Site>, mut stop: watch::Receiver<bool>) {
    let watcher = Arc::new(Watcher::new(site.timing.clone()));
    let watching = tokio::spawn(watcher.clone().watch());
    let mut turn = 0;
    loop {
        turn += 1;
        let accepted = tokio::select! {
            accepted = accept(&listeners, turn) => accepted,
            () = told_to_stop(&mut stop) => break,
        };
        match accepted {
            Ok(arrival) => take_in(arrival, &site, &watcher),
            // Out of file descriptors, or a client that left at once: neither may stop us or spin.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listeners);
    for server in &site.servers {
        server.close();
    }
    watcher.drain(Duration::from_millis(site.timing.drain_ms)).await;
    watching.abort();
}

/// Takes in whoever knocks. Each listener is the first to be looked at in its turn.
async fn accept(listeners: &[Listener], turn: usize) -> std::io::Result<Arrival> {
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

fn take_in(arrival: Arrival, site: &Arc<Site>, watcher: &Arc<Watcher>) {
    if watcher.count() >= site.timing.connections_max {
        tracing::warn!("too many connections; one is turned away");
        return;
    }
    connection::spawn(arrival, site.clone(), watcher);
}

async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    // An error means that whoever could tell us is gone, which comes to the same.
    drop(stop.wait_for(|stop| *stop).await);
}
