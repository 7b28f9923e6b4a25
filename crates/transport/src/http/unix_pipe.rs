//! A unix socket speaks HTTP, or is a pipe: the first bytes tell.

use std::sync::Arc;

use host::CallerIdentity;
use tokio::io::{AsyncRead, AsyncWrite};
use wire::error::{ErrorCode, RpcError};

use super::{Site, TrackedConnection};
use crate::pipe::{self, ByteStream};

/// Whether these are the first bytes of a pipe: a message, the headers before one, or what is neither but no request
/// of HTTP. That is a method, in capitals, and where to. `None` as long as it is not clear.
pub(super) fn is_pipe(bytes: &[u8]) -> Option<bool> {
    const HEADER: &[u8] = b"content-";
    let said = bytes.trim_ascii_start();
    let is_method = |c: &u8| c.is_ascii_uppercase() || *c == b'-';
    let method = said.iter().take_while(|c| is_method(c)).count();
    let known = said.len().min(HEADER.len());
    if said[..known].eq_ignore_ascii_case(&HEADER[..known]) {
        return (known == HEADER.len() || !said.first()?.is_ascii_uppercase()).then_some(true);
    }
    match &said[method..] {
        _ if method == 0 || method > METHOD_BYTES_MAX => Some(true),
        [] | [b' '] => None,
        [b' ', ..] if &said[..method] == b"CONNECT" => Some(false),
        [b' ', b'/' | b'*' | b'h' | b'H', ..] => Some(false),
        _ => Some(true),
    }
}

/// The longest of the registered ones, `UPDATEREDIRECTREF`.
const METHOD_BYTES_MAX: usize = 17;

/// Serves a pipe, if there is somebody to serve it and nobody has to prove who they are.
pub(super) async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin,
    link: &Arc<TrackedConnection>,
    site: &Site,
) {
    let (code, why) = match (&site.guard.token, &*site.servers) {
        (Some(_), _) => (
            ErrorCode::Unauthorized,
            "a bearer token is required, and a pipe has no place for it; speak HTTP here",
        ),
        (None, [server]) => {
            let lines = ByteStream::new(io, server.limits.frame_bytes_max);
            let drain = site.connection_limits.call_drain_timeout();
            return pipe::run(lines, server.clone(), CallerIdentity::default(), &**link, drain).await;
        }
        (None, _) => (
            ErrorCode::InvalidRequest,
            "several servers are here; speak HTTP and name one in the path: /mcp/NAME",
        ),
    };
    pipe::reject(ByteStream::new(io, REJECTED_MESSAGE_BYTES_MAX), &RpcError::new(code, 400, why)).await;
}

/// Of a message that is refused whatever it says, no more is read than shows its framing.
const REJECTED_MESSAGE_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::is_pipe;

    #[test]
    fn the_first_bytes_tell() {
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
