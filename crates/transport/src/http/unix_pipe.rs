//! Pipes on a unix socket, which also accepts HTTP: the first bytes of a connection decide.

use std::sync::Arc;

use host::CallerIdentity;
use tokio::io::{AsyncRead, AsyncWrite};
use wire::error::{ErrorCode, RpcError};

use super::{HttpService, TrackedConnection};
use crate::pipe::{self, ByteStream};

/// Whether a connection that starts with these bytes is a pipe. HTTP starts with a method in capitals and a target;
/// everything else is a pipe. `None` while it is not clear yet.
pub(super) fn is_pipe(bytes: &[u8]) -> Option<bool> {
    const HEADER: &[u8] = b"content-";
    let trimmed = bytes.trim_ascii_start();
    let is_method = |c: &u8| c.is_ascii_uppercase() || *c == b'-';
    let method = trimmed.iter().take_while(|c| is_method(c)).count();
    let compared = trimmed.len().min(HEADER.len());
    if trimmed[..compared].eq_ignore_ascii_case(&HEADER[..compared]) {
        return (compared == HEADER.len() || !trimmed.first()?.is_ascii_uppercase()).then_some(true);
    }
    match &trimmed[method..] {
        _ if method == 0 || method > METHOD_BYTES_MAX => Some(true),
        [] | [b' '] => None,
        [b' ', ..] if &trimmed[..method] == b"CONNECT" => Some(false),
        [b' ', b'/' | b'*' | b'h' | b'H', ..] => Some(false),
        _ => Some(true),
    }
}

/// The longest registered method is `UPDATEREDIRECTREF`.
const METHOD_BYTES_MAX: usize = 17;

/// Serves a pipe, if the service has a server at `/mcp` and requires no token.
pub(super) async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin,
    connection: &Arc<TrackedConnection>,
    service: &HttpService,
) {
    let (code, reason) = match (&service.guard.tokens, service.main_server()) {
        (Some(_), _) => (
            ErrorCode::Unauthorized,
            "a bearer token is required, which a pipe cannot carry; use HTTP on this socket",
        ),
        (None, Some(server)) => {
            let lines = ByteStream::new(io, server.limits.message_bytes_max);
            let drain = service.connection_limits.call_drain_timeout();
            return pipe::run(lines, server.clone(), CallerIdentity::default(), &**connection, drain).await;
        }
        (None, None) => (
            ErrorCode::InvalidRequest,
            "this socket has several servers; use HTTP and name one in the path: `/mcp/NAME`",
        ),
    };
    tracing::info!(reason, "refused pipe connection");
    pipe::reject(ByteStream::new(io, REJECTED_MESSAGE_BYTES_MAX), &RpcError::new(code, 400, reason)).await;
}

/// A rejected message is read only to learn its framing.
const REJECTED_MESSAGE_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::is_pipe;

    #[test]
    fn first_bytes_distinguish_a_pipe_from_http() {
        for (bytes, expected) in [
            ("", None),
            ("\r\n", None),
            ("{", Some(true)),
            ("[", Some(true)),
            (" \n{", Some(true)),
            ("hello", Some(true)),
            ("\u{feff}{", Some(true)),
            ("c", Some(true)),
            ("C", None),
            ("Conten", None),
            ("CONTENT", None),
            ("Content-Length: 5", Some(true)),
            ("CONTENT-LENGTH: 5", Some(true)),
            ("CONNECT x", Some(false)),
            ("CON", None),
            ("CONN", None),
            ("COPY /", Some(false)),
            ("G", None),
            ("GET", None),
            ("GET ", None),
            ("GET /", Some(false)),
            ("GET / HTTP/1.1", Some(false)),
            ("M-SEARCH * HTTP/1.1", Some(false)),
            ("OPTIONS * HTTP/1.1", Some(false)),
            ("GET http://a/ HTTP/1.1", Some(false)),
            ("HELLO\n", Some(true)),
            ("Hello", Some(true)),
            ("NOT JSON", Some(true)),
            ("NaN", Some(true)),
            ("AAAAAAAAAAAAAAAAAAAAAAAA", Some(true)),
            ("\r\nPOST /mcp", Some(false)),
            ("get / HTTP/1.1", Some(true)),
        ] {
            assert_eq!(is_pipe(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }
}
