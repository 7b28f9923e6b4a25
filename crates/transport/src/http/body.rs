//! Response bodies: complete bytes, or an event stream that the host produces as hyper reads it.
//!
//! hyper drops the body when the client disconnects; the host decides what that means for the call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use host::ReplyStream;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::connection_tracker::TrackedConnection;

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
    stream: ReplyStream,
    timer: ResponseTimer,
}

/// The clock and the timer of one response.
pub(crate) struct ResponseTimer {
    started: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl ResponseTimer {
    pub(crate) fn start() -> Self {
        let started = Instant::now();
        Self { started, sleep: Box::pin(tokio::time::sleep_until(started)) }
    }

    fn elapsed_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Waits until `at_ms` after the start, and returns the time since then. Waits for ever without a time.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, at_ms: Option<u64>) -> Poll<u64> {
        let Some(at_ms) = at_ms else { return Poll::Pending };
        let Some(deadline) = self.started.checked_add(Duration::from_millis(at_ms)) else {
            return Poll::Pending;
        };
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        ready!(self.sleep.as_mut().poll(cx));
        Poll::Ready(self.elapsed_ms().max(at_ms))
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

    pub(crate) fn stream(stream: ReplyStream, timer: ResponseTimer) -> Self {
        Self { kind: BodyKind::Stream(Box::new(EventStream { stream, timer })), connection: None }
    }

    /// The bytes of a complete body; `None` for a stream.
    pub(crate) fn take_complete(&mut self) -> Option<Vec<u8>> {
        match &mut self.kind {
            BodyKind::Full(chunk) => {
                Some(chunk.take().map_or_else(Vec::new, |mut chunk| std::mem::take(&mut chunk.bytes)))
            }
            BodyKind::Stream(_) => None,
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
        let mut elapsed_ms = self.timer.elapsed_ms();
        loop {
            if let Poll::Ready(bytes) = self.stream.poll_next(cx, elapsed_ms) {
                return Poll::Ready(bytes.map(Chunk::from));
            }
            elapsed_ms = ready!(self.timer.poll_until(cx, self.stream.wake_at_ms()));
        }
    }
}
