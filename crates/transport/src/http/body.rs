//! Response bodies: complete bytes, or an event stream that is produced as hyper reads it.
//!
//! A stream owns its source. hyper drops the body when the client disconnects, which cancels a call of the
//! newest era.

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
    /// Notified when the response is complete.
    connection: Option<Arc<TrackedConnection>>,
}

/// The client disconnected before its response was complete.
#[derive(Debug)]
pub(crate) struct ClientDisconnected;

impl std::fmt::Display for ClientDisconnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client disconnected before the response was complete")
    }
}

impl std::error::Error for ClientDisconnected {}

/// Response bytes. Each is written once and read once, so there is no need for reference-counted `Bytes`.
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    consumed: usize,
    /// The connection whose backlog has the rest of the bytes.
    connection: Option<Arc<TrackedConnection>>,
}

impl Chunk {
    #[inline]
    fn len(&self) -> usize {
        self.bytes.len() - self.consumed
    }

    /// Counts the bytes as backlog of the connection until they are written or dropped.
    #[inline]
    fn track(&mut self, connection: &Arc<TrackedConnection>) {
        if self.len() > 0 {
            connection.on_response_bytes(self.len());
            self.connection = Some(connection.clone());
        }
    }
}

impl Drop for Chunk {
    #[inline]
    fn drop(&mut self) {
        if let Some(connection) = &self.connection
            && self.len() > 0
        {
            connection.on_response_bytes_taken(self.len());
        }
    }
}

impl From<Vec<u8>> for Chunk {
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, consumed: 0, connection: None }
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
        assert!(bytes <= self.len(), "advanced past the end of the chunk");
        self.consumed += bytes;
        if let Some(connection) = &self.connection {
            connection.on_response_bytes_taken(bytes);
        }
    }
}

enum BodyKind {
    Full(Option<Chunk>),
    Stream(Box<EventStream>),
}

struct EventStream {
    source: StreamSource,
    /// Sent before the first event.
    first: Option<Chunk>,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
    ended: bool,
}

/// Where the events of a stream come from.
pub(crate) enum StreamSource {
    /// A call that belongs to this response.
    Call(ResponseCall),
    /// A stream of a session.
    SessionStream(StreamReader),
    Subscription(SubscriptionStream),
    /// Everything that the server sends on an HTTP+SSE connection.
    SseConnection(SseConnection),
}

/// A call that belongs to a response. If a disconnect does not cancel it, it continues without the client.
pub(crate) struct ResponseCall {
    pending: Option<PendingResponse>,
    survives_disconnect: bool,
}

impl ResponseCall {
    pub(crate) fn new(pending_response: PendingResponse, survives_disconnect: bool) -> Self {
        Self { pending: Some(pending_response), survives_disconnect }
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<OutgoingMessage>> {
        let Some(pending_response) = &mut self.pending else { return Poll::Ready(None) };
        let message = std::task::ready!(pending_response.poll_next(cx));
        if matches!(message, OutgoingMessage::Response { .. }) {
            self.pending = None;
        }
        Poll::Ready(Some(message))
    }
}

impl Drop for ResponseCall {
    fn drop(&mut self) {
        if let (true, Some(mut pending_response)) = (self.survives_disconnect, self.pending.take()) {
            // 2025-11-25: "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
            tokio::spawn(async move {
                while !matches!(
                    std::future::poll_fn(|cx| pending_response.poll_next(cx)).await,
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

    pub(crate) fn track_connection(&mut self, connection: Arc<TrackedConnection>) {
        if let BodyKind::Full(Some(chunk)) = &mut self.kind {
            chunk.track(&connection);
        }
        self.connection = Some(connection);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.on_response_complete();
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
        let Self { kind, connection } = &mut *self;
        match kind {
            BodyKind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            BodyKind::Stream(stream) => match stream.poll_chunk(cx) {
                Poll::Ready(Some(mut chunk)) => {
                    if let Some(connection) = connection {
                        chunk.track(connection);
                    }
                    Poll::Ready(Some(Ok(Frame::data(chunk))))
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending
                    if connection.as_ref().is_some_and(|connection| connection.has_disconnected(cx)) =>
                {
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
            // Poll again at once, to register the timer's waker.
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
            Self::Call(call) => loop {
                return Poll::Ready(match std::task::ready!(call.poll_next(cx)) {
                    None => None,
                    Some(OutgoingMessage::Notification(body) | OutgoingMessage::Request(body)) => {
                        Some((sse_event(None, &body).into(), StreamStatus::Open))
                    }
                    // A client cannot resume this stream.
                    Some(OutgoingMessage::Pause { .. }) => continue,
                    Some(OutgoingMessage::Response { body, .. }) => {
                        Some((sse_event(None, &body).into(), StreamStatus::Ended))
                    }
                });
            },
            Self::SessionStream(reader) => {
                if reader.stream_id() == GET_STREAM {
                    queue_change_notifications(reader, cx);
                }
                Poll::Ready(match std::task::ready!(reader.poll_next(cx)) {
                    None => None,
                    Some(StreamItem::Message { id, body }) => {
                        Some((sse_event(Some(id), &body).into(), StreamStatus::Open))
                    }
                    Some(StreamItem::Response { id, body, .. }) => {
                        Some((sse_event(Some(id), &body).into(), StreamStatus::Ended))
                    }
                    Some(StreamItem::Pause { retry_ms }) => {
                        let mut message = Vec::with_capacity(24);
                        sse::write_retry(&mut message, retry_ms);
                        Some((message.into(), StreamStatus::Ended))
                    }
                })
            }
            Self::Subscription(subscription) => {
                let message = std::task::ready!(subscription.poll_next(cx));
                Poll::Ready(message.map(|message| (sse_event(None, &message).into(), StreamStatus::Open)))
            }
            Self::SseConnection(sse_connection) => {
                let message = std::task::ready!(sse_connection.poll_next(cx));
                Poll::Ready(message.map(|message| (sse_event(None, &message).into(), StreamStatus::Open)))
            }
        }
    }
}

/// Moves a session's pending change notifications into its GET stream, from which a client can resume.
fn queue_change_notifications(reader: &StreamReader, cx: &mut Context<'_>) {
    let state = reader.connection();
    while let Poll::Ready(Some(SubscriptionEvent::Change(change))) = state.subscription.poll_next(cx) {
        state.streams.push_notification(GET_STREAM, encode::change_notification(&change, None));
    }
}

pub(crate) fn sse_event(id: Option<EventId>, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(body.len() + 48);
    sse::write_message(&mut message, id, body);
    message
}
