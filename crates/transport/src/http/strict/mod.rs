//! Rejects ambiguous HTTP/1 that hyper accepts: lines that end without a CR, `Content-Length` twice or together with
//! `Transfer-Encoding`, a request line that is not ASCII, malformed chunk extensions.
//!
//! A proxy in front may parse such a request differently, which is how requests are smuggled. RFC 9112 lets a server
//! refuse all of it (2.2, 6.1, 6.3, 7.1), and no honest client sends it. The parser overwrites the offending byte, so
//! that hyper answers 400 and closes.
//!
//! The parser follows a request from its head to the end of its body. There the stream stops: hyper gets one request at a
//! time, and the [`Handover`] says when the connection is free for the fast path again. It checks nothing after a
//! request for an upgrade: either HTTP ends there, or the connection closes with the response.

mod chunked;
mod error_response;
mod handover;
mod head;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use chunked::ChunkedBody;
use error_response::ReplacedResponse;
pub(super) use handover::Handover;
use handover::Replay;
pub(super) use head::{BodyFraming, HeadScan, RequestHead, length_digits_max};

/// A connection whose incoming requests are checked.
pub(super) struct StrictHttp1Stream<S> {
    inner: S,
    state: ParserState,
    handover: Arc<Handover>,
    /// Whether the last write took only a part, so that the next one continues it.
    mid_write: bool,
    replaced: Option<Box<ReplacedResponse>>,
}

/// What the next byte is part of.
enum ParserState {
    Head(RequestHead),
    /// Remaining bytes of a body.
    Body(u64),
    Chunks(ChunkedBody),
    /// After a violation, or after a request for an upgrade.
    PassThrough,
}

/// The result of parsing a slice.
enum ParseStep {
    /// All bytes belong to the current state.
    ConsumedAll,
    /// The state after this many bytes.
    Transition(usize, ParserState),
    /// The offending byte was overwritten.
    Violation,
}

impl ParserState {
    const START: Self = Self::Head(RequestHead::START);

    /// Checks the next bytes, up to the end of the request. Returns how many of them belong to it, if they end it.
    fn inspect(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let mut index = 0;
        while index < bytes.len() {
            let rest = &mut bytes[index..];
            let step = match self {
                Self::Head(head) => head.inspect(rest),
                Self::Body(left) if *left > rest.len() as u64 => {
                    *left -= rest.len() as u64;
                    ParseStep::ConsumedAll
                }
                Self::Body(left) => ParseStep::Transition(*left as usize, Self::START),
                Self::Chunks(chunks) => chunks.inspect(rest),
                Self::PassThrough => ParseStep::ConsumedAll,
            };
            match step {
                ParseStep::ConsumedAll => return None,
                ParseStep::Transition(end, next) => {
                    let is_end = matches!(next, Self::Head(_));
                    *self = next;
                    index += end;
                    if is_end {
                        return Some(index);
                    }
                }
                ParseStep::Violation => {
                    *self = Self::PassThrough;
                    return None;
                }
            }
        }
        None
    }
}

impl<S> StrictHttp1Stream<S> {
    pub(super) fn new(inner: S, handover: Arc<Handover>) -> Self {
        Self { inner, state: ParserState::START, handover, mid_write: false, replaced: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StrictHttp1Stream<S> {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inner, state, handover, .. } = &mut *self;
        let before = buf.filled().len();
        match handover.replay(buf) {
            Replay::Nothing => {}
            Replay::NotInRequest => return Poll::Pending,
            Replay::Bytes(copied) => {
                let end = state.inspect(&mut buf.filled_mut()[before..]);
                buf.set_filled(before + end.unwrap_or(copied));
                handover.on_replayed(end.unwrap_or(copied), end.is_some());
                return Poll::Ready(Ok(()));
            }
        }
        ready!(Pin::new(inner).poll_read(cx, buf))?;
        if let Some(end) = state.inspect(&mut buf.filled_mut()[before..]) {
            handover.on_request_end(&buf.filled()[before + end..]);
            buf.set_filled(before + end);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> StrictHttp1Stream<S> {
    /// Writes the replacement of a response. hyper writes the same response again until it is taken.
    #[cold]
    fn poll_write_replaced(&mut self, cx: &mut Context<'_>, taken: usize) -> Poll<io::Result<usize>> {
        while let Some(replaced) = &mut self.replaced {
            let rest = &replaced.bytes[replaced.written..];
            if rest.is_empty() {
                self.replaced = None;
                break;
            }
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => replaced.written += written,
            }
        }
        Poll::Ready(Ok(taken))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StrictHttp1Stream<S> {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.handover.on_write();
        let offered = slices.iter().map(|slice| slice.len()).sum();
        if !self.mid_write && self.replaced.is_none() {
            self.replaced = error_response::replace(slices).map(Box::new);
        }
        if self.replaced.is_some() {
            return self.poll_write_replaced(cx, offered);
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, slices))?;
        self.mid_write = written < offered;
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        if flushed.is_ready() {
            self.handover.on_flush();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::ParserState;

    /// Feeds the request whole, cut at every byte and byte by byte, alone and after another request, and checks that
    /// it passes unchanged or is rejected. A rejected request may be unchanged if hyper rejects it too.
    fn check(sent: &str, passes: bool) {
        for before in ["", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na\nb", CHUNKED] {
            let sent = format!("{before}{sent}");
            let inspect_in = |pieces: &[usize]| {
                let mut bytes = sent.as_bytes().to_vec();
                let (mut state, mut rest) = (ParserState::START, &mut bytes[..]);
                let mut inspect_all = |mut bytes: &mut [u8]| {
                    while let Some(end) = state.inspect(bytes) {
                        bytes = &mut bytes[end..];
                    }
                };
                for piece in pieces {
                    let (now, later) = rest.split_at_mut(*piece);
                    inspect_all(now);
                    rest = later;
                }
                inspect_all(rest);
                let (is_same, is_beyond) =
                    (bytes == sent.as_bytes(), matches!(state, ParserState::PassThrough));
                assert!(if passes { is_same } else { is_beyond }, "{sent:?} in {pieces:?}");
            };
            (0..=sent.len()).for_each(|cut| inspect_in(&[cut]));
            inspect_in(&vec![1; sent.len()]);
        }
    }

    const CHUNKED: &str =
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\nX: y\r\n\r\n";

    #[test]
    fn valid_requests_pass_unchanged() {
        check("POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\na\nb\n\n", true);
        check("POST /mcp HTTP/1.1\r\nContent-Length:\t005 \r\n\r\na\nb\n\nGET / HTTP/1.1\r\n\r\n", true);
        check("POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true);
        check("\r\nGET / HTTP/1.1\r\nX-Content-Length: 1\r\nX-Transfer-Encoding: a\r\n\r\n", true);
        check("GET / HTTP/1.1\r\nContent-Type: a\r\nTE: trailers\r\nX: \u{e9}\r\n\r\n", true);
        check("GET / HTTP", true);
    }

    #[test]
    fn ambiguous_requests_are_rejected() {
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
    fn content_length_must_be_a_decimal_number() {
        for length in ["", "+3", "-1", "3, 3", "3 3", "0x3", "18446744073709551616", &"0".repeat(64)] {
            check(&format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"), false);
        }
    }

    #[test]
    fn bytes_after_an_upgrade_are_not_checked() {
        check("GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\n\n", true);
    }

    #[test]
    fn chunked_bodies_are_checked_strictly() {
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
