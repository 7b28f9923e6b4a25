//! Ways in for fuzzers: what a stranger reaches only through sockets and a handshake. Nobody else needs these.

use std::sync::Arc;
use std::time::Duration;

use host::{CallerIdentity, Server};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::WebSocket;
use crate::pipe;
pub use crate::shutdown_signal::ShutdownSignal;

/// Serves a WebSocket whose handshake is over. Once it is told to go, calls may take another `drain`.
pub async fn serve_websocket(
    server: Arc<Server>,
    io: impl AsyncRead + AsyncWrite + Unpin,
    ending: &ShutdownSignal,
    drain: Duration,
) {
    let websocket = WebSocket::new(io, &server.limits);
    pipe::run(websocket, server, CallerIdentity::default(), ending, drain).await;
}
