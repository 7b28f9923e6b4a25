//! A WebSocket (RFC 6455) as a pipe: each text message is one MCP message.
//!
//! tungstenite parses the frames. This module maps messages to pipe events, closes on violations and enforces
//! limits. There is no compression.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use spile_core::Limits;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message, Utf8Bytes};
use wire::frame::{Frame, Framing};

use super::upgrade::PendingUpgrade;
use super::{HttpService, IdlePolicy, TrackedConnection};
use crate::pipe::{self, FramedTransport, TransportEvent};

/// Serves a connection after its upgrade.
pub(super) async fn serve(
    upgrade: PendingUpgrade,
    connection: &Arc<TrackedConnection>,
    service: &HttpService,
) {
    let PendingUpgrade { on_upgrade, server, identity } = upgrade;
    let io = match on_upgrade.await {
        Ok(upgraded) => TokioIo::new(upgraded),
        Err(error) => return tracing::debug!(%error, "WebSocket upgrade failed"),
    };
    let websocket = WebSocket::new(io, &server.limits);
    pipe::run(websocket, server, identity, &**connection, service.connection_limits.call_drain_timeout())
        .await;
}

pub(crate) struct WebSocket<I> {
    io: I,
    config: WebSocketConfig,
    context: WebSocketContext,
    /// Whether a long message has grown the read buffer.
    buffer_grown: bool,
    frame_tracker: FrameTracker,
    /// After this much silence the server sends a ping.
    ping_interval: Duration,
    ping_timer: Pin<Box<Sleep>>,
    received_since_ping: bool,
}

/// Size of one read, and of the buffer of an idle WebSocket.
const READ_BYTES: usize = 4 << 10;

/// Bytes read per poll, so that one busy client does not starve the others.
const READ_BYTES_PER_POLL: usize = 64 << 10;

/// Only control frames are written through tungstenite, and taken from it at once.
const CONTROL_BYTES_MAX: usize = 1 << 10;

impl<I> WebSocket<I> {
    pub(crate) fn new(io: I, limits: &Limits) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(CONTROL_BYTES_MAX)
            .max_message_size(Some(limits.message_bytes_max))
            .max_frame_size(Some(limits.message_bytes_max));
        let ping_interval = Duration::from_millis(limits.keep_alive_ms.max(1));
        Self {
            io,
            config,
            context: WebSocketContext::new(Role::Server, Some(config)),
            buffer_grown: false,
            frame_tracker: FrameTracker::default(),
            ping_interval,
            ping_timer: Box::pin(tokio::time::sleep(ping_interval)),
            received_since_ping: true,
        }
    }

    /// Sends a ping to a silent client. The connection tracker closes it if it does not answer.
    fn poll_keep_alive(&mut self, cx: &mut Context<'_>, outgoing: &mut Vec<u8>) {
        const PING_FRAME: [u8; 2] = [0x89, 0];
        while self.ping_timer.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.received_since_ping) {
                outgoing.extend_from_slice(&PING_FRAME);
            }
            self.ping_timer.as_mut().reset(Instant::now() + self.ping_interval);
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> WebSocket<I> {
    fn with_context<R>(
        &mut self,
        cx: &mut Context<'_>,
        outgoing: &mut Vec<u8>,
        act: impl FnOnce(&mut WebSocketContext, &mut TungsteniteIo<'_, '_, I>) -> R,
    ) -> R {
        let Self { io, context, frame_tracker, received_since_ping, .. } = self;
        act(
            context,
            &mut TungsteniteIo {
                io,
                cx,
                outgoing,
                frame_tracker,
                received_since_ping,
                read_budget: READ_BYTES_PER_POLL,
            },
        )
    }

    /// Fails the connection. RFC 6455, 7.1.7: an endpoint SHOULD send a close frame.
    fn close_with_error(
        &mut self,
        cx: &mut Context<'_>,
        outgoing: &mut Vec<u8>,
        code: CloseCode,
        reason: &'static str,
    ) -> TransportEvent {
        tracing::debug!(%code, reason, "closing a WebSocket after a protocol violation");
        let close_frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        match self.with_context(cx, outgoing, |context, wire| context.close(wire, Some(close_frame))) {
            // An error means that the close frame was sent before.
            Ok(()) | Err(_) => TransportEvent::Closed,
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> FramedTransport for WebSocket<I> {
    type Io = I;
    const IDLE_POLICY: IdlePolicy = IdlePolicy::KeepAlive;

    fn io(&mut self) -> Pin<&mut I> {
        Pin::new(&mut self.io)
    }

    fn framing(&self) -> Framing {
        Framing::WebSocket
    }

    fn is_mid_message(&self) -> bool {
        self.frame_tracker.is_mid_message()
    }

    fn buffered_bytes(&self) -> usize {
        self.frame_tracker.message_bytes
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, outgoing: &mut Vec<u8>) -> Poll<TransportEvent> {
        self.poll_keep_alive(cx, outgoing);
        let error = match self.with_context(cx, outgoing, |context, wire| context.read(wire)) {
            Ok(Message::Text(text)) => {
                self.buffer_grown |= text.len() > READ_BYTES;
                return Poll::Ready(TransportEvent::Frame(Frame::Message(Vec::from(
                    tungstenite::Bytes::from(text),
                ))));
            }
            Ok(Message::Binary(_)) => {
                return Poll::Ready(self.close_with_error(
                    cx,
                    outgoing,
                    CloseCode::Unsupported,
                    "messages must be text",
                ));
            }
            // tungstenite has queued the answer to a ping; flush it.
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {
                let _ = self.with_context(cx, outgoing, |context, wire| context.flush(wire));
                return Poll::Ready(TransportEvent::Control);
            }
            Ok(Message::Close(_)) => {
                let _ = self.with_context(cx, outgoing, |context, wire| context.flush(wire));
                return Poll::Ready(TransportEvent::Closed);
            }
            Err(error) => error,
        };
        let (code, reason) = match error {
            Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.frame_tracker.fragments <= FRAGMENTS_MAX {
                    self.shrink_buffer();
                    return Poll::Pending;
                }
                (CloseCode::Size, "the message has too many fragments")
            }
            Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)
            | Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Io(_) => return Poll::Ready(TransportEvent::Disconnected),
            Error::Capacity(_) => (CloseCode::Size, "the message is too long"),
            Error::Utf8(_) => (CloseCode::Invalid, "the message is not UTF-8"),
            _ => (CloseCode::Protocol, "the frame violates RFC 6455"),
        };
        Poll::Ready(self.close_with_error(cx, outgoing, code, reason))
    }

    /// RFC 6455, 7.4.1: 1001 means that a server is going down.
    fn append_close_frame(&mut self, outgoing: &mut Vec<u8>) {
        let close_frame =
            CloseFrame { code: CloseCode::Away, reason: Utf8Bytes::from_static("the server is going down") };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        // An error means that the close handshake is already complete.
        let _ = self.with_context(&mut cx, outgoing, |context, wire| context.close(wire, Some(close_frame)));
    }
}

impl<I> WebSocket<I> {
    /// Frees the buffer of a long message. Between two messages a context holds nothing but its read buffer.
    fn shrink_buffer(&mut self) {
        if self.buffer_grown && !self.frame_tracker.is_mid_message() {
            self.buffer_grown = false;
            self.context = WebSocketContext::new(Role::Server, Some(self.config));
        }
    }
}

/// The socket as tungstenite sees it: reads are tracked, writes are collected in `outgoing`.
struct TungsteniteIo<'a, 'c, I> {
    io: &'a mut I,
    cx: &'a mut Context<'c>,
    outgoing: &'a mut Vec<u8>,
    frame_tracker: &'a mut FrameTracker,
    received_since_ping: &'a mut bool,
    read_budget: usize,
}

impl<I: AsyncRead + Unpin> Read for TungsteniteIo<'_, '_, I> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.read_budget == 0 || self.frame_tracker.fragments > FRAGMENTS_MAX {
            self.cx.waker().wake_by_ref();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let limit = bytes.len().min(self.read_budget);
        let mut buf = ReadBuf::new(&mut bytes[..limit]);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut buf) {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(read) => {
                read?;
                self.frame_tracker.observe(buf.filled());
                self.read_budget -= buf.filled().len();
                *self.received_since_ping = true;
                Ok(buf.filled().len())
            }
        }
    }
}

impl<I> Write for TungsteniteIo<'_, '_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limit of fragments in one message. Fragments may be empty, so the size limit alone does not bound them.
const FRAGMENTS_MAX: u32 = 1 << 17;

/// Follows frame headers: whether a message is incomplete, and how many fragments it has so far. Validation is
/// tungstenite's.
#[derive(Debug, Default)]
struct FrameTracker {
    header: [u8; 14],
    header_read: usize,
    payload_remaining: u64,
    /// Fragments of an incomplete message.
    fragments: u32,
    /// Payload bytes of an incomplete message.
    message_bytes: usize,
}

impl FrameTracker {
    fn is_mid_message(&self) -> bool {
        self.header_read > 0 || self.payload_remaining > 0 || self.fragments > 0
    }

    fn observe(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.payload_remaining > 0 {
                let now = self.payload_remaining.min(bytes.len() as u64);
                self.payload_remaining -= now;
                self.message_bytes += now as usize;
                bytes = &bytes[now as usize..];
                if !self.is_mid_message() {
                    self.message_bytes = 0;
                }
                continue;
            }
            self.header[self.header_read] = *first;
            self.header_read += 1;
            bytes = rest;
            if self.header_read >= 2 && self.header_read == self.header_len() {
                self.on_header_complete();
            }
        }
    }

    /// RFC 6455, 5.2.
    fn header_len(&self) -> usize {
        let mask = if self.header[1] & 0x80 == 0 { 0 } else { 4 };
        match self.header[1] & 0x7f {
            126 => 4 + mask,
            127 => 10 + mask,
            _ => 2 + mask,
        }
    }

    fn on_header_complete(&mut self) {
        let [first, second, length @ ..] = self.header;
        self.header_read = 0;
        self.payload_remaining = match second & 0x7f {
            126 => u64::from(u16::from_be_bytes([length[0], length[1]])),
            127 => length[..8].iter().fold(0, |all, byte| all << 8 | u64::from(*byte)),
            short => u64::from(short),
        };
        let (is_last, is_control) = (first & 0x80 != 0, first & 0x08 != 0);
        match (is_control, is_last) {
            (true, _) => {}
            (false, true) => self.fragments = 0,
            (false, false) => self.fragments = self.fragments.saturating_add(1),
        }
        if !self.is_mid_message() {
            self.message_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FrameTracker;

    /// Feeds the frames in chunks of several sizes; the result must be the same.
    #[test]
    fn incomplete_messages_are_detected_whatever_the_chunk_size() {
        let long = [&[0x82, 0xfe, 0x01, 0x00, 1, 2, 3, 4][..], &[0; 256]].concat();
        let longer = [&[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4][..], &[0; 65536]].concat();
        for (name, frames, mid_message, fragments) in [
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
                let mut frame_tracker = FrameTracker::default();
                frames.chunks(size).for_each(|bytes| frame_tracker.observe(bytes));
                assert_eq!(
                    (frame_tracker.is_mid_message(), frame_tracker.fragments),
                    (mid_message, fragments),
                    "{name} by {size}"
                );
            }
        }
    }
}
