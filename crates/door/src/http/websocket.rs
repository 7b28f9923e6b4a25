//! A WebSocket is a pipe whose messages are text messages: RFC 6455.
//!
//! The library reads frames and knows their rules; here is what a message means, how one that breaks the
//! rules is closed, and what bounds a client. Nothing is compressed.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use call::Limits;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message, Utf8Bytes};
use wire::frame::{Frame, Framing};

use super::upgrade::Upgrade;
use super::{Link, Rests, Site};
use crate::pipe::{self, Got, Transport};

/// Serves a connection that has just become a WebSocket.
pub(super) async fn serve(upgrade: Upgrade, link: &Arc<Link>, site: &Site) {
    let Upgrade { on, server, who } = upgrade;
    let io = match on.await {
        Ok(upgraded) => TokioIo::new(upgraded),
        Err(error) => return tracing::debug!(%error, "a connection did not become a WebSocket"),
    };
    let websocket = WebSocket::new(io, &server.limits);
    pipe::run(websocket, server, who, &**link, site.timing.calls_drain()).await;
}

pub(crate) struct WebSocket<I> {
    io: I,
    config: WebSocketConfig,
    context: WebSocketContext,
    /// Whether a long message has made the buffer large.
    grown: bool,
    passed: Passed,
    /// A client that is not heard from for so long is asked whether it is there.
    patience: Duration,
    timer: Pin<Box<Sleep>>,
    heard: bool,
}

/// What is read at once, and what a WebSocket at rest keeps.
const READ_BYTES: usize = 4 << 10;

/// What may be read at one look: a client that sends without a pause is not the only one.
const TURN_BYTES: usize = 64 << 10;

/// Only what the library itself has to say is written through it, and taken from it at once.
const OWN_BYTES_MAX: usize = 1 << 10;

impl<I> WebSocket<I> {
    pub(crate) fn new(io: I, limits: &Limits) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(OWN_BYTES_MAX)
            .max_message_size(Some(limits.frame_bytes_max))
            .max_frame_size(Some(limits.frame_bytes_max));
        let patience = Duration::from_millis(limits.keep_alive_ms.max(1));
        Self {
            io,
            config,
            context: WebSocketContext::new(Role::Server, Some(config)),
            grown: false,
            passed: Passed::default(),
            patience,
            timer: Box::pin(tokio::time::sleep(patience)),
            heard: true,
        }
    }

    /// Asks a client that has been silent whether it is there. That nobody answers, the watcher notices.
    fn poll_silence(&mut self, cx: &mut Context<'_>, own: &mut Vec<u8>) {
        const LAST_AND_PING: [u8; 2] = [0x89, 0];
        while self.timer.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.heard) {
                own.extend_from_slice(&LAST_AND_PING);
            }
            self.timer.as_mut().reset(Instant::now() + self.patience);
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> WebSocket<I> {
    fn on_wire<R>(
        &mut self,
        cx: &mut Context<'_>,
        own: &mut Vec<u8>,
        act: impl FnOnce(&mut WebSocketContext, &mut Wire<'_, '_, I>) -> R,
    ) -> R {
        let Self { io, context, passed, heard, .. } = self;
        act(context, &mut Wire { io, cx, own, passed, heard, left: TURN_BYTES })
    }

    /// Breaks off. RFC 6455, 7.1.7: an endpoint SHOULD say why.
    fn fail(&mut self, cx: &mut Context<'_>, own: &mut Vec<u8>, code: CloseCode, why: &'static str) -> Got {
        tracing::debug!(%code, why, "a WebSocket is closed");
        let last = CloseFrame { code, reason: Utf8Bytes::from_static(why) };
        match self.on_wire(cx, own, |context, wire| context.close(wire, Some(last))) {
            // It was closed before, so all has been said; or it is out.
            Ok(()) | Err(_) => Got::Over,
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> Transport for WebSocket<I> {
    type Io = I;
    const RESTS: Rests = Rests::WhileHeard;

    fn io(&mut self) -> Pin<&mut I> {
        Pin::new(&mut self.io)
    }

    fn framing(&self) -> Framing {
        Framing::WebSocket
    }

    fn is_within(&self) -> bool {
        self.passed.is_within()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, own: &mut Vec<u8>) -> Poll<Got> {
        self.poll_silence(cx, own);
        let error = match self.on_wire(cx, own, |context, wire| context.read(wire)) {
            Ok(Message::Text(text)) => {
                self.grown |= text.len() > READ_BYTES;
                return Poll::Ready(Got::Frame(Frame::Message(Vec::from(tungstenite::Bytes::from(text)))));
            }
            Ok(Message::Binary(_)) => {
                return Poll::Ready(self.fail(cx, own, CloseCode::Unsupported, "messages are text"));
            }
            // What there is to say to these has been put down; here it goes out.
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {
                let _ = self.on_wire(cx, own, |context, wire| context.flush(wire));
                return Poll::Ready(Got::Own);
            }
            Ok(Message::Close(_)) => {
                let _ = self.on_wire(cx, own, |context, wire| context.flush(wire));
                return Poll::Ready(Got::Over);
            }
            Err(error) => error,
        };
        let (code, why) = match error {
            Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.passed.pieces <= PIECES_MAX {
                    self.give_back();
                    return Poll::Pending;
                }
                (CloseCode::Size, "the message comes in too many pieces")
            }
            Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)
            | Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Io(_) => return Poll::Ready(Got::Gone),
            Error::Capacity(_) => (CloseCode::Size, "the message is too long"),
            Error::Utf8(_) => (CloseCode::Invalid, "the message is not UTF-8"),
            _ => (CloseCode::Protocol, "the frame breaks the rules of RFC 6455"),
        };
        Poll::Ready(self.fail(cx, own, code, why))
    }

    /// RFC 6455, 7.4.1: 1001 says that a server is going down.
    fn bye(&mut self, own: &mut Vec<u8>) {
        let last =
            CloseFrame { code: CloseCode::Away, reason: Utf8Bytes::from_static("the server is going down") };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        // If the client has said goodbye before, it has been answered.
        let _ = self.on_wire(&mut cx, own, |context, wire| context.close(wire, Some(last)));
    }
}

impl<I> WebSocket<I> {
    /// One long message must not cost its size for ever: between two messages the library holds nothing but
    /// the buffer that it read them with.
    fn give_back(&mut self) {
        if self.grown && !self.passed.is_within() {
            self.grown = false;
            self.context = WebSocketContext::new(Role::Server, Some(self.config));
        }
    }
}

/// The socket as the library sees it: what it reads is watched, what it writes is gathered.
struct Wire<'a, 'c, I> {
    io: &'a mut I,
    cx: &'a mut Context<'c>,
    own: &'a mut Vec<u8>,
    passed: &'a mut Passed,
    heard: &'a mut bool,
    left: usize,
}

impl<I: AsyncRead + Unpin> Read for Wire<'_, '_, I> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || self.passed.pieces > PIECES_MAX {
            self.cx.waker().wake_by_ref();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let most = bytes.len().min(self.left);
        let mut buf = ReadBuf::new(&mut bytes[..most]);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut buf) {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(read) => {
                read?;
                self.passed.see(buf.filled());
                self.left -= buf.filled().len();
                *self.heard = true;
                Ok(buf.filled().len())
            }
        }
    }
}

impl<I> Write for Wire<'_, '_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.own.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message may come in so many pieces. Empty ones are allowed, so its length alone does not bound them.
const PIECES_MAX: u32 = 1 << 17;

/// Follows frames as they pass: whether one has begun, and of how many a message is made so far. Judges
/// nothing; that is the library's.
#[derive(Debug, Default)]
struct Passed {
    head: [u8; 14],
    head_bytes: usize,
    payload_left: u64,
    /// Of a message that is not complete.
    pieces: u32,
}

impl Passed {
    fn is_within(&self) -> bool {
        self.head_bytes > 0 || self.payload_left > 0 || self.pieces > 0
    }

    fn see(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.payload_left > 0 {
                let now = self.payload_left.min(bytes.len() as u64);
                self.payload_left -= now;
                bytes = &bytes[now as usize..];
                continue;
            }
            self.head[self.head_bytes] = *first;
            self.head_bytes += 1;
            bytes = rest;
            if self.head_bytes >= 2 && self.head_bytes == self.head_len() {
                self.head_seen();
            }
        }
    }

    /// RFC 6455, 5.2.
    fn head_len(&self) -> usize {
        let mask = if self.head[1] & 0x80 == 0 { 0 } else { 4 };
        match self.head[1] & 0x7f {
            126 => 4 + mask,
            127 => 10 + mask,
            _ => 2 + mask,
        }
    }

    fn head_seen(&mut self) {
        let [first, second, length @ ..] = self.head;
        self.head_bytes = 0;
        self.payload_left = match second & 0x7f {
            126 => u64::from(u16::from_be_bytes([length[0], length[1]])),
            127 => length[..8].iter().fold(0, |all, byte| all << 8 | u64::from(*byte)),
            short => u64::from(short),
        };
        let (is_last, is_control) = (first & 0x80 != 0, first & 0x08 != 0);
        match (is_control, is_last) {
            (true, _) => {}
            (false, true) => self.pieces = 0,
            (false, false) => self.pieces = self.pieces.saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Passed;

    /// Frames in pieces of every size: the head says how many bytes are left of what has begun.
    #[test]
    fn what_has_begun_is_known_however_it_is_cut() {
        let long = [&[0x82, 0xfe, 0x01, 0x00, 1, 2, 3, 4][..], &[0; 256]].concat();
        let longer = [&[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4][..], &[0; 65536]].concat();
        for (what, frames, within, pieces) in [
            ("nothing", &[][..], false, 0),
            ("one byte", &[0x81], true, 0),
            ("an empty text", &[0x81, 0x80, 1, 2, 3, 4], false, 0),
            ("without a mask", &[0x81, 0x01, b'x'], false, 0),
            ("half a mask", &[0x81, 0x80, 1, 2], true, 0),
            ("a payload that lacks a byte", &[0x81, 0x82, 1, 2, 3, 4, 5], true, 0),
            ("a ping", &[0x89, 0x80, 1, 2, 3, 4], false, 0),
            ("a first piece", &[0x01, 0x80, 1, 2, 3, 4], true, 1),
            ("and a ping", &[0x01, 0x80, 1, 2, 3, 4, 0x89, 0x80, 1, 2, 3, 4], true, 1),
            ("and another", &[0x01, 0x80, 1, 2, 3, 4, 0x00, 0x80, 1, 2, 3, 4], true, 2),
            ("and the last", &[0x01, 0x80, 1, 2, 3, 4, 0x80, 0x80, 1, 2, 3, 4], false, 0),
            ("256 bytes", &long, false, 0),
            ("all but one", &long[..long.len() - 1], true, 0),
            ("65,536 bytes", &longer, false, 0),
            ("all but one of them", &longer[..longer.len() - 1], true, 0),
        ] {
            for size in [1, 2, 3, 5, 1000, 1 << 20] {
                let mut passed = Passed::default();
                frames.chunks(size).for_each(|bytes| passed.see(bytes));
                assert_eq!((passed.is_within(), passed.pieces), (within, pieces), "{what} by {size}");
            }
        }
    }
}
