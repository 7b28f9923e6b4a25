//! A unix socket speaks HTTP, or is a pipe: the first bytes tell.

use std::sync::Arc;

use host::Who;
use tokio::io::{AsyncRead, AsyncWrite};
use wire::code::{Code, Told};

use super::{Link, Site};
use crate::pipe::{self, Lines};

/// Whether these are the first bytes of a pipe: a message, or the headers before one. A method of HTTP is in
/// capitals. `None` as long as it is not clear.
pub(super) fn is_pipe(bytes: &[u8]) -> Option<bool> {
    const HEADER: &[u8] = b"content-";
    let said = bytes.trim_ascii_start();
    if !said.first()?.is_ascii_uppercase() {
        return Some(true);
    }
    let known = said.len().min(HEADER.len());
    match said[..known].eq_ignore_ascii_case(&HEADER[..known]) {
        true if known < HEADER.len() => None,
        is_header => Some(is_header),
    }
}

/// Serves a pipe, if there is somebody to serve it and nobody has to prove who they are.
pub(super) async fn serve(io: impl AsyncRead + AsyncWrite + Unpin, link: &Arc<Link>, site: &Site) {
    let (code, why) = match (&site.guard.token, &*site.servers) {
        (Some(_), _) => (
            Code::Unauthorized,
            "a bearer token is required, and a pipe has no place for it; speak HTTP here",
        ),
        (None, [server]) => {
            let lines = Lines::new(io, server.limits.frame_bytes_max);
            let drain = site.timing.calls_drain();
            return pipe::run(lines, server.clone(), Who::default(), &**link, drain).await;
        }
        (None, _) => {
            (Code::InvalidRequest, "several servers are here; speak HTTP and name one in the path: /mcp/NAME")
        }
    };
    pipe::refuse(Lines::new(io, REFUSED_BYTES_MAX), &Told::new(code, 400, why)).await;
}

/// Of a message that is refused whatever it says, no more is read than shows its framing.
const REFUSED_BYTES_MAX: usize = 16 << 10;

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
            ("CONN", Some(false)),
            ("COPY /", Some(false)),
            ("G", Some(false)),
            ("GET / HTTP/1.1", Some(false)),
            ("\r\nPOST /mcp", Some(false)),
            ("get / HTTP/1.1", Some(true)),
        ] {
            assert_eq!(is_pipe(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }
}
