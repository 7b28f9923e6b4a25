//! Response bodies: bytes at hand, or a stream that is made as it is read.
//!
//! A stream owns what it shows. hyper drops the body when the client goes, and for a call of the newest era
//! that is the cancellation.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use host::{
    GET_STREAM, OutgoingMessage, PendingResponse, SseConnection, StreamItem, StreamReader, SubscriptionEvent,
    SubscriptionStream,
};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use wire::encode;
use wire::frame::sse::{self, EventId};

use super::connection_timeouts::TrackedConnection;

pub(crate) struct Body {
    kind: BodyKind,
    /// The connection is told when the answer is complete.
    connection: Option<Arc<TrackedConnection>>,
}

/// The client has left, and with it the reason for an answer.
#[derive(Debug)]
pub(crate) struct ClientDisconnected;

impl std::fmt::Display for ClientDisconnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client left before it was answered")
    }
}

impl std::error::Error for ClientDisconnected {}

/// Bytes on their way out. Written once and read once, so nothing has to be counted or shared.
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    consumed: usize,
}

impl Chunk {
    fn len(&self) -> usize {
        self.bytes.len() - self.consumed
    }
}

impl From<Vec<u8>> for Chunk {
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, consumed: 0 }
    }
}

impl Buf for Chunk {
    #[inline]
    fn remaining(&self) -> usize {
        self.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        &self.bytes[self.consumed..]
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "more is taken than there is");
        self.consumed += bytes;
    }
}

enum BodyKind {
    Full(Option<Chunk>),
    Stream(Box<EventStream>),
}

struct EventStream {
    source: StreamSource,
    /// What goes out before anything else.
    first: Option<Chunk>,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
    ended: bool,
}

/// Where the events of a stream come from.
pub(crate) enum StreamSource {
    /// A call that lives and dies with this response.
    Call(ResponseCall),
    /// A stream of a session.
    SessionStream(StreamReader),
    Subscription(SubscriptionStream),
    /// All that is said on a line of HTTP+SSE.
    SseConnection(SseConnection),
}

/// A call in a response. One that its client cannot cancel by leaving goes on without it.
pub(crate) struct ResponseCall {
    pending: Option<PendingResponse>,
    survives_disconnect: bool,
}

impl ResponseCall {
    pub(crate) fn new(flow: PendingResponse, survives_disconnect: bool) -> Self {
        Self { pending: Some(flow), survives_disconnect }
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<OutgoingMessage>> {
        let Some(flow) = &mut self.pending else { return Poll::Ready(None) };
        let out = std::task::ready!(flow.poll_next(cx));
        if matches!(out, OutgoingMessage::Response { .. }) {
            self.pending = None;
        }
        Poll::Ready(Some(out))
    }
}

impl Drop for ResponseCall {
    fn drop(&mut self) {
        if let (true, Some(mut flow)) = (self.survives_disconnect, self.pending.take()) {
            // 2025-11-25: "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
            tokio::spawn(async move {
                while !matches!(
                    std::future::poll_fn(|cx| flow.poll_next(cx)).await,
                    OutgoingMessage::Response { .. }
                ) {}
            });
        }
    }
}

impl Body {
    #[inline]
    pub(crate) fn full(bytes: Vec<u8>) -> Self {
        Self { kind: BodyKind::Full(Some(bytes.into())), connection: None }
    }

    pub(crate) fn empty() -> Self {
        Self { kind: BodyKind::Full(None), connection: None }
    }

    pub(crate) fn stream(source: StreamSource, first: Vec<u8>, keep_alive_ms: u64) -> Self {
        let keep_alive = Duration::from_millis(keep_alive_ms);
        let first = (!first.is_empty()).then(|| Chunk::from(first));
        let timer = Box::pin(tokio::time::sleep(keep_alive));
        Self {
            kind: BodyKind::Stream(Box::new(EventStream { source, first, keep_alive, timer, ended: false })),
            connection: None,
        }
    }

    pub(crate) fn track_connection(&mut self, link: Arc<TrackedConnection>) {
        self.connection = Some(link);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(link) = &self.connection {
            link.on_response_complete();
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Chunk;
    type Error = ClientDisconnected;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, ClientDisconnected>>> {
        let Self { kind, connection: link } = &mut *self;
        match kind {
            BodyKind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            BodyKind::Stream(stream) => match stream.poll_chunk(cx) {
                Poll::Ready(bytes) => Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes)))),
                Poll::Pending if link.as_ref().is_some_and(|link| link.has_disconnected(cx)) => {
                    Poll::Ready(Some(Err(ClientDisconnected)))
                }
                Poll::Pending => Poll::Pending,
            },
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        matches!(self.kind, BodyKind::Full(None))
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            BodyKind::Stream(_) => SizeHint::default(),
        }
    }
}

impl EventStream {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(bytes) = self.source.poll_chunk(cx) {
            self.timer.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(match bytes {
                Some((bytes, StreamStatus::Open)) => Some(bytes),
                Some((bytes, StreamStatus::Ended)) => {
                    self.ended = true;
                    Some(bytes)
                }
                None => None,
            });
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            self.timer.as_mut().reset(Instant::now() + self.keep_alive);
            // Polled again at once, so that the timer knows whom to wake.
            cx.waker().wake_by_ref();
            return Poll::Ready(Some(sse::KEEP_ALIVE.to_vec().into()));
        }
        Poll::Pending
    }
}

enum StreamStatus {
    Open,
    Ended,
}

impl StreamSource {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Chunk, StreamStatus)>> {
        match self {
            Self::Call(kept) => loop {
                return Poll::Ready(match std::task::ready!(kept.poll_next(cx)) {
                    None => None,
                    Some(OutgoingMessage::Notification(body) | OutgoingMessage::Request(body)) => {
                        Some((sse_event(None, &body).into(), StreamStatus::Open))
                    }
                    // Nobody could come back for the rest of this one.
                    Some(OutgoingMessage::Pause { .. }) => continue,
                    Some(OutgoingMessage::Response { body, .. }) => {
                        Some((sse_event(None, &body).into(), StreamStatus::Ended))
                    }
                });
            },
            Self::SessionStream(attached) => {
                if attached.stream_id() == GET_STREAM {
                    queue_change_notifications(attached, cx);
                }
                Poll::Ready(match std::task::ready!(attached.poll_next(cx)) {
                    None => None,
                    Some(StreamItem::Message { id, body }) => {
                        Some((sse_event(Some(id), &body).into(), StreamStatus::Open))
                    }
                    Some(StreamItem::Response { id, body, .. }) => {
                        Some((sse_event(Some(id), &body).into(), StreamStatus::Ended))
                    }
                    Some(StreamItem::Pause { retry_ms }) => {
                        let mut out = Vec::with_capacity(24);
                        sse::write_retry(&mut out, retry_ms);
                        Some((out.into(), StreamStatus::Ended))
                    }
                })
            }
            Self::Subscription(listening) => {
                let message = std::task::ready!(listening.poll_next(cx));
                Poll::Ready(message.map(|message| (sse_event(None, &message).into(), StreamStatus::Open)))
            }
            Self::SseConnection(posted) => {
                let message = std::task::ready!(posted.poll_next(cx));
                Poll::Ready(message.map(|message| (sse_event(None, &message).into(), StreamStatus::Open)))
            }
        }
    }
}

/// Moves what a session has not been told yet into its GET stream, where it can be read again.
fn queue_change_notifications(attached: &StreamReader, cx: &mut Context<'_>) {
    let live = attached.connection();
    while let Poll::Ready(Some(SubscriptionEvent::Change(change))) = live.subscription.poll_next(cx) {
        live.streams.push_notification(GET_STREAM, encode::change_notification(&change, None));
    }
}

pub(crate) fn sse_event(id: Option<EventId>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 48);
    sse::write_message(&mut out, id, body);
    out
}
