//! Entry points for fuzzers, to code that a client otherwise reaches only through a socket and a handshake.

use std::sync::Arc;
use std::time::Duration;

use host::{CallerIdentity, Server};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::WebSocket;
use crate::pipe;
pub use crate::shutdown_signal::ShutdownSignal;

/// Serves a WebSocket after its handshake. After `shutdown`, running calls have `drain` to finish.
pub async fn serve_websocket(
    server: Arc<Server>,
    io: impl AsyncRead + AsyncWrite + Unpin,
    shutdown: &ShutdownSignal,
    drain: Duration,
) {
    let websocket = WebSocket::new(io, &server.limits);
    pipe::run(websocket, server, CallerIdentity::default(), shutdown, drain).await;
}
