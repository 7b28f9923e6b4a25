//! Entry points for fuzzers, to code that a client otherwise reaches only through a socket and a handshake.

use std::sync::Arc;
use std::time::Duration;

use host::{CallerIdentity, Server};
use tokio::io::{AsyncRead, AsyncWrite};

pub use crate::http::PlainRequests;
use crate::http::{HttpService, WebSocket};
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

/// Serves HTTP/1 over any stream until it ends. Both handles of the stream read and write the same bytes.
#[cfg(unix)]
pub async fn serve_http1(
    service: Arc<HttpService>,
    io: impl AsyncRead + AsyncWrite + Clone + Send + Unpin + 'static,
    plain_requests: PlainRequests,
) -> std::io::Result<()> {
    crate::http::serve_http1_stream(service, io, plain_requests).await
}
