//! What a head must not hold, where hyper looks away: lines that end without a CR, and a length beside a coding.
//!
//! Whoever stands before us may read such a request otherwise than we do, and one that is read as two is how
//! requests are smuggled. RFC 9112 lets a server refuse both (2.2, 6.1), and there is no honest client that sends
//! them. What offends is made unreadable, so that hyper answers 400 and closes.
//!
//! Looked at is a head that comes when nothing else is under way, which is every head of a client that waits for its
//! answers. What was sent behind another request is judged by hyper alone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::watcher::Link;

/// A connection whose heads are looked at on their way in.
pub(super) struct Strict<S> {
    inner: S,
    link: Arc<Link>,
    head: Head,
}

/// How far a head has come.
#[derive(Default)]
struct Head {
    /// The beginning of the line under way, as far as it matters.
    line: [u8; LINE],
    line_bytes: usize,
    last: u8,
    lines: usize,
    has_length: bool,
    has_coding: bool,
    is_over: bool,
}

const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
const LINE: usize = CODING.len();

impl<S> Strict<S> {
    pub(super) fn new(inner: S, link: Arc<Link>) -> Self {
        Self { inner, link, head: Head::default() }
    }
}

impl Head {
    /// Looks at what came; the byte that offends is overwritten with one that no head can have.
    fn look(&mut self, bytes: &mut [u8]) {
        let mut start = 0;
        while !self.is_over
            && let Some(at) = memchr::memchr(b'\n', &bytes[start..])
        {
            let end = start + at;
            let before = if end == 0 { self.last } else { bytes[end - 1] };
            self.begins(&bytes[start..end]);
            if before != b'\r' || !self.may_end() {
                bytes[end] = 0;
                self.is_over = true;
            }
            start = end + 1;
        }
        if let (false, Some(last)) = (self.is_over, bytes.last()) {
            self.last = *last;
            self.begins(&bytes[start..]);
        }
    }

    /// More of the line under way.
    #[inline]
    fn begins(&mut self, bytes: &[u8]) {
        let room = &mut self.line[self.line_bytes..];
        let kept = room.len().min(bytes.len());
        room[..kept].copy_from_slice(&bytes[..kept]);
        self.line_bytes += kept;
    }

    /// A line is complete: whether the head may go on after it.
    #[inline]
    fn may_end(&mut self) -> bool {
        let line = &self.line[..std::mem::take(&mut self.line_bytes)];
        if line == b"\r" {
            // Empty lines before a request are passed over; the one behind it ends it.
            self.is_over = self.lines > 0;
            return true;
        }
        self.lines += 1;
        match line.first() {
            Some(b'c' | b'C') => self.has_length |= starts(line, LENGTH),
            Some(b't' | b'T') => self.has_coding |= starts(line, CODING),
            _ => {}
        }
        !(self.has_length && self.has_coding)
    }
}

fn starts(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, is_between) = (buf.filled().len(), self.link.is_between());
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if is_between {
            self.head = Head::default();
        }
        if !self.head.is_over {
            self.head.look(&mut buf.filled_mut()[before..]);
        }
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
    use super::Head;

    /// Whole, and cut at every byte: whether it is left as it is.
    fn check(head: &str, passes: bool) {
        for cut in 0..=head.len() {
            let mut bytes = head.as_bytes().to_vec();
            let mut seen = Head::default();
            let (first, second) = bytes.split_at_mut(cut);
            seen.look(first);
            seen.look(second);
            assert_eq!(bytes == head.as_bytes(), passes, "{head:?} cut at {cut}");
        }
    }

    #[test]
    fn honest_heads_pass() {
        check("POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na\nb\n\n", true);
        check("POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true);
        check("\r\nGET / HTTP/1.1\r\nX-Content-Length: 1\r\nX-Transfer-Encoding: a\r\n\r\n", true);
        check("GET / HTTP/1.1\r\nContent-Type: a\r\nTE: trailers\r\n\r\n", true);
        check("GET / HTTP", true);
    }

    #[test]
    fn what_two_readers_read_differently_does_not() {
        check("GET / HTTP/1.1\nHost: a\n\n", false);
        check("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", false);
        check("GET / HTTP/1.1\r\nHost: a\r\n\nGET", false);
        check("\nGET / HTTP/1.1\r\n\r\n", false);
        check("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", false);
        check("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nX: y\r\nCONTENT-LENGTH: 3\r\n\r\n", false);
    }
}
