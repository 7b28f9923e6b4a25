//! Ways in for fuzzers: what a stranger reaches only through sockets and a handshake. Nobody else needs these.

use std::sync::Arc;
use std::time::Duration;

use host::{Server, Who};
use tokio::io::{AsyncRead, AsyncWrite};

pub use crate::ending::Ending;
use crate::http::WebSocket;
use crate::pipe;

/// Serves a WebSocket whose handshake is over. Once it is told to go, calls may take another `drain`.
pub async fn websocket(
    server: Arc<Server>,
    io: impl AsyncRead + AsyncWrite + Unpin,
    ending: &Ending,
    drain: Duration,
) {
    let websocket = WebSocket::new(io, &server.limits);
    pipe::run(websocket, server, Who::default(), ending, drain).await;
}
