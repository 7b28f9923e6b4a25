//! What HTTP/1 must not hold, where hyper looks away: lines that end without a CR, a length beside a coding or twice,
//! a request line that is not ASCII, chunks with something odd behind their size.
//!
//! Whoever stands before us may read such a request otherwise than we do, and one that is read as two is how
//! requests are smuggled. RFC 9112 lets a server refuse all of it (2.2, 6.1, 6.3, 7.1), and there is no honest client
//! that sends it. What offends is made unreadable, so that hyper answers 400 and closes.
//!
//! Requests are followed from head to body to head, so those that are sent behind others are looked at too. What
//! comes behind a request for an upgrade is not: either it is HTTP no more, or the connection ends with the answer.

mod chunked;
mod head;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use chunked::ChunkedBody;
use head::RequestHead;

/// A connection whose requests are looked at on their way in.
pub(super) struct Strict<S> {
    inner: S,
    state: ParserState,
}

/// Where the next byte belongs.
enum ParserState {
    Head(RequestHead),
    /// So many bytes of a body are left.
    Body(u64),
    Chunks(ChunkedBody),
    /// Behind what offends, or behind a request for an upgrade.
    PassThrough,
}

/// How far a look came.
enum ParseStep {
    /// All of it, and there is more to come.
    ConsumedAll,
    /// So many bytes, and what follows is this.
    Transition(usize, ParserState),
    /// What offends has been made unreadable.
    Violation,
}

impl ParserState {
    const START: Self = Self::Head(RequestHead::START);

    fn inspect(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let seen = match self {
                Self::Head(head) => head.inspect(bytes),
                Self::Body(left) if *left > bytes.len() as u64 => {
                    *left -= bytes.len() as u64;
                    ParseStep::ConsumedAll
                }
                Self::Body(left) => ParseStep::Transition(*left as usize, Self::START),
                Self::Chunks(chunks) => chunks.inspect(bytes),
                Self::PassThrough => ParseStep::ConsumedAll,
            };
            bytes = match seen {
                ParseStep::ConsumedAll => return,
                ParseStep::Transition(end, next) => {
                    *self = next;
                    &mut bytes[end..]
                }
                ParseStep::Violation => {
                    *self = Self::PassThrough;
                    return;
                }
            };
        }
    }
}

impl<S> Strict<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, state: ParserState::START }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.state.inspect(&mut buf.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::ParserState;

    /// Whole, cut at every byte, and byte by byte, also behind another request: whether it is left as it is. What
    /// offends need not be changed, if it is something that hyper does not take either.
    fn check(sent: &str, passes: bool) {
        for before in ["", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na\nb", CHUNKED] {
            let sent = format!("{before}{sent}");
            let look = |pieces: &[usize]| {
                let mut bytes = sent.as_bytes().to_vec();
                let (mut at, mut rest) = (ParserState::START, &mut bytes[..]);
                for piece in pieces {
                    let (now, later) = rest.split_at_mut(*piece);
                    at.inspect(now);
                    rest = later;
                }
                at.inspect(rest);
                let (is_same, is_beyond) = (bytes == sent.as_bytes(), matches!(at, ParserState::PassThrough));
                assert!(if passes { is_same } else { is_beyond }, "{sent:?} in {pieces:?}");
            };
            (0..=sent.len()).for_each(|cut| look(&[cut]));
            look(&vec![1; sent.len()]);
        }
    }

    const CHUNKED: &str =
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\nX: y\r\n\r\n";

    #[test]
    fn honest_requests_pass() {
        check("POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\na\nb\n\n", true);
        check("POST /mcp HTTP/1.1\r\nContent-Length:\t005 \r\n\r\na\nb\n\nGET / HTTP/1.1\r\n\r\n", true);
        check("POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true);
        check("\r\nGET / HTTP/1.1\r\nX-Content-Length: 1\r\nX-Transfer-Encoding: a\r\n\r\n", true);
        check("GET / HTTP/1.1\r\nContent-Type: a\r\nTE: trailers\r\nX: \u{e9}\r\n\r\n", true);
        check("GET / HTTP", true);
    }

    #[test]
    fn what_two_readers_read_differently_does_not() {
        check("GET / HTTP/1.1\nHost: a\n\n", false);
        check("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", false);
        check("GET / HTTP/1.1\r\nHost: a\r\n\nGET", false);
        check("\nGET / HTTP/1.1\r\n\r\n", false);
        check("GET /\u{e9} HTTP/1.1\r\n\r\n", false);
        check("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", false);
        check("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nX: y\r\nCONTENT-LENGTH: 3\r\n\r\n", false);
        check("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", false);
    }

    #[test]
    fn a_length_is_a_number() {
        for length in ["", "+3", "-1", "3, 3", "3 3", "0x3", "18446744073709551616", &"0".repeat(64)] {
            check(&format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"), false);
        }
    }

    #[test]
    fn nothing_is_looked_at_behind_an_upgrade() {
        check("GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\n\n", true);
    }

    #[test]
    fn chunks_are_what_they_should_be() {
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (chunks, passes) in [
            ("3\r\nabc\r\n0\r\n\r\n", true),
            ("003\r\n\n\n\n\r\n000\r\n\r\n", true),
            ("A;a\r\n0123456789\r\n0;b=c\r\n\r\n", true),
            ("1 ; a = b ;c=\"d;\\\"\u{e9}\"; e\r\nx\r\n0\r\n\r\n", true),
            ("0\r\nX: y\r\nZ:\r\n\r\nGET / HTTP/1.1\r\n\r\n", true),
            ("0\r\n\r\nGET / HTTP/1.1\n\n", false),
            ("3 \r\nabc\r\n", false),
            (" 3\r\nabc\r\n", false),
            ("\r\n", false),
            ("+3\r\nabc\r\n", false),
            ("0x3\r\nabc\r\n", false),
            ("10000000000000000\r\n", false),
            ("3\nabc\r\n", false),
            ("3\r\rabc\r\n", false),
            ("3;\r\nabc\r\n", false),
            ("3;=a\r\nabc\r\n", false),
            ("3;a=\r\nabc\r\n", false),
            ("3;a b\r\nabc\r\n", false),
            ("3;a=b \r\nabc\r\n", false),
            ("3;a\nb\r\nabc\r\n", false),
            ("3;a=\"b\r\nabc\r\n", false),
            ("3;a=\"b\"c\r\nabc\r\n", false),
            ("3 a\r\nabc\r\n", false),
            ("3\r\nabcd\r\n", false),
            ("3\r\nabc\n0\r\n\r\n", false),
            ("3\r\nabc\r0\r\n\r\n", false),
            ("0\r\nX: y\n\n", false),
            ("0\r\nX: y\r\n\n", false),
            ("0\r\nX: \ry\r\n\r\n", false),
            ("0\r\n\rX", false),
        ] {
            check(&format!("{chunked}{chunks}"), passes);
        }
    }
}
