//! Feeds the response state machine from what the host runs: a call, a stream of a session, a subscription.
//!
//! The transport polls with the time since the request, and polls again at [`WaitingReply::wake_at_ms`] or
//! [`ReplyStream::wake_at_ms`]. It has no other part in the response.

use std::task::{Context, Poll, ready};

use spile_core::Limits;
use wire::frame::sse;
use wire::{Feature, Version};

use super::HttpReply;
use super::machine::{
    AcceptedTypes, CompleteReply, Input, MessageBody, ResponseStart, Resumption, Step, StreamState,
    WaitingState,
};
use crate::in_flight::{OutgoingMessage, PendingResponse, SubscriptionStream};
use crate::server::SseConnection;
use crate::session_streams::{SessionStreamReader, StreamItem};

/// A response that was not ready at the first poll. Dropping it cancels a call of the stateless era.
pub struct WaitingReply {
    state: WaitingState,
    /// `None` once the reply is ready.
    source: Option<Box<EventSource>>,
}

/// A response that is an event stream. Dropping it cancels a call of the stateless era.
pub struct ReplyStream {
    state: StreamState,
    source: Box<EventSource>,
    /// Bytes to send before anything else.
    unsent: Vec<u8>,
}

/// Where the events of a response come from.
enum EventSource {
    Call(ResponseCall),
    SessionStream(SessionStreamReader),
    Subscription(SubscriptionStream),
    /// Everything that the server sends on an HTTP+SSE connection.
    SseConnection(SseConnection),
}

impl WaitingReply {
    /// A call that belongs to its response. `first` is what the first poll returned.
    pub(crate) fn call(
        pending: PendingResponse,
        first: Option<OutgoingMessage>,
        accepted: AcceptedTypes,
        limits: &Limits,
    ) -> Self {
        let call = ResponseCall::new(pending, first);
        Self::new(EventSource::Call(call), Resumption::No, accepted, limits)
    }

    /// A call that belongs to a session.
    pub(crate) fn session_stream(
        reader: SessionStreamReader,
        version: Version,
        accepted: AcceptedTypes,
        limits: &Limits,
    ) -> Self {
        let resumption = resumption(&reader, version);
        Self::new(EventSource::SessionStream(reader), resumption, accepted, limits)
    }

    fn new(source: EventSource, resumption: Resumption, accepted: AcceptedTypes, limits: &Limits) -> Self {
        let state = WaitingState {
            accepted,
            resumption,
            stream_after_silence_ms: limits.stream_after_silence_ms,
            keep_alive_ms: limits.keep_alive_ms,
        };
        Self { state, source: Some(Box::new(source)) }
    }

    /// The reply, once it is known how it begins. `elapsed_ms` is the time since the request.
    ///
    /// # Panics
    ///
    /// If it is polled again after that, as any future.
    pub fn poll(&mut self, cx: &mut Context<'_>, elapsed_ms: u64) -> Poll<HttpReply> {
        let mut source = self.source.take().expect("not polled again once it is ready");
        let Poll::Ready(beginning) =
            poll_source(&mut source, cx, |input| self.state.advance(input, elapsed_ms))
        else {
            self.source = Some(source);
            return Poll::Pending;
        };
        Poll::Ready(match beginning {
            ResponseStart::Json { status, body } => {
                source.remove_stream();
                HttpReply::Complete(CompleteReply::Json { status, body, retry_after_ms: None })
            }
            ResponseStart::Events(bytes) => HttpReply::Complete(CompleteReply::Events(bytes)),
            ResponseStart::Stream(unsent, state) => HttpReply::Stream(ReplyStream { state, source, unsent }),
            ResponseStart::Accepted => HttpReply::Accepted,
        })
    }

    /// When to poll again even if nothing happens; `None` if only an event matters.
    pub fn wake_at_ms(&self) -> Option<u64> {
        self.state.wake_at_ms()
    }
}

impl ReplyStream {
    /// The session's own stream, or one that is resumed.
    pub(crate) fn session_stream(reader: SessionStreamReader, version: Version, keep_alive_ms: u64) -> Self {
        let resumption = resumption(&reader, version);
        let unsent = resumption.opening_of_silent_stream();
        Self::new(EventSource::SessionStream(reader), resumption, unsent, keep_alive_ms)
    }

    pub(crate) fn subscription(subscription: SubscriptionStream, keep_alive_ms: u64) -> Self {
        Self::new(EventSource::Subscription(subscription), Resumption::No, Vec::new(), keep_alive_ms)
    }

    /// An HTTP+SSE connection. Its first event tells the client where to POST: `<base_path>/messages`.
    pub fn sse_connection(connection: SseConnection, base_path: &str, keep_alive_ms: u64) -> Self {
        let mut unsent = Vec::with_capacity(128);
        let uri = format!("{base_path}/messages?session_id={}", connection.connection_id());
        sse::write_endpoint(&mut unsent, &uri);
        Self::new(EventSource::SseConnection(connection), Resumption::No, unsent, keep_alive_ms)
    }

    fn new(source: EventSource, resumption: Resumption, unsent: Vec<u8>, keep_alive_ms: u64) -> Self {
        Self { state: StreamState::new(resumption, keep_alive_ms, 0), source: Box::new(source), unsent }
    }

    /// The next bytes; `None` at the end. `elapsed_ms` is the time since the request.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, elapsed_ms: u64) -> Poll<Option<Vec<u8>>> {
        if !self.unsent.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.unsent)));
        }
        // A source has nothing more to say after its last event, and may not be polled.
        if self.state.has_ended() {
            return Poll::Ready(None);
        }
        poll_source(&mut self.source, cx, |input| self.state.advance(input, elapsed_ms)).map(
            |step| match step {
                Step::Send(bytes) => Some(bytes),
                Step::Finish => None,
            },
        )
    }

    /// When to poll again even if nothing happens; `None` at the end.
    pub fn wake_at_ms(&self) -> Option<u64> {
        self.state.wake_at_ms()
    }
}

/// Polls the source until the machine has something to send.
fn poll_source<T>(
    source: &mut EventSource,
    cx: &mut Context<'_>,
    mut advance: impl FnMut(Input) -> Option<T>,
) -> Poll<T> {
    loop {
        let Poll::Ready(input) = source.poll_next(cx) else {
            return advance(Input::Silence).map_or(Poll::Pending, Poll::Ready);
        };
        if let Some(output) = advance(input) {
            return Poll::Ready(output);
        }
    }
}

/// How a client resumes a stream of its session.
fn resumption(reader: &SessionStreamReader, version: Version) -> Resumption {
    Resumption::Yes { priming: version.has(Feature::Priming).then(|| reader.start_event_id()) }
}

impl EventSource {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        let message = match self {
            Self::Call(call) => return call.poll_next(cx),
            Self::SessionStream(reader) => {
                return Poll::Ready(match ready!(reader.poll_next(cx)) {
                    None => Input::End,
                    Some(StreamItem::Message { id, body }) => {
                        Input::Message { id: Some(id), body: MessageBody::Shared(body) }
                    }
                    Some(StreamItem::Response { id, status, body }) => {
                        Input::Response { id: Some(id), status, body: MessageBody::Shared(body) }
                    }
                    Some(StreamItem::Pause { retry_ms }) => Input::Pause { retry_ms },
                });
            }
            Self::Subscription(subscription) => ready!(subscription.poll_next(cx)),
            Self::SseConnection(connection) => ready!(connection.poll_next(cx)),
        };
        Poll::Ready(match message {
            None => Input::End,
            Some(body) => Input::Message { id: None, body: MessageBody::Owned(body) },
        })
    }

    /// The response was sent complete: no client will resume its stream.
    fn remove_stream(&self) {
        if let Self::SessionStream(reader) = self {
            reader.connection().streams.remove(reader.stream_id());
        }
    }
}

/// A call that belongs to its response.
struct ResponseCall {
    pending: Option<PendingResponse>,
    first: Option<OutgoingMessage>,
    on_disconnect: OnDisconnect,
}

/// What happens to a call when its client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDisconnect {
    Cancel,
    /// It continues without the client.
    Continue,
}

impl ResponseCall {
    fn new(pending: PendingResponse, first: Option<OutgoingMessage>) -> Self {
        // 2025-11-25: "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
        let on_disconnect = match pending.version().has(Feature::Handshake) {
            true => OnDisconnect::Continue,
            false => OnDisconnect::Cancel,
        };
        Self { pending: Some(pending), first, on_disconnect }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(Input::End) };
        let message = match self.first.take() {
            Some(message) => message,
            None => ready!(pending.poll_next(cx)),
        };
        Poll::Ready(match message {
            OutgoingMessage::Notification(body) | OutgoingMessage::Request(body) => {
                Input::Message { id: None, body: MessageBody::Owned(body) }
            }
            OutgoingMessage::Pause { retry_ms } => Input::Pause { retry_ms },
            OutgoingMessage::Response { status, body } => {
                self.pending = None;
                Input::Response { id: None, status, body: MessageBody::Owned(body) }
            }
        })
    }
}

impl Drop for ResponseCall {
    fn drop(&mut self) {
        if let (OnDisconnect::Continue, Some(mut pending)) = (self.on_disconnect, self.pending.take()) {
            tokio::spawn(async move {
                while !matches!(
                    std::future::poll_fn(|cx| pending.poll_next(cx)).await,
                    OutgoingMessage::Response { .. }
                ) {}
            });
        }
    }
}
