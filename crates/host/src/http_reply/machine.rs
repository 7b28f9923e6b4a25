//! The response state machine: how one HTTP response begins, continues and ends.
//!
//! [`WaitingState`] until the head is sent, [`StreamState`] while events are. Both take the next [`Input`] with the
//! time and return what to send. They poll nothing, read no clock and send nothing. Times are milliseconds since the
//! request.

use std::sync::Arc;

use wire::frame::sse::{self, EventId};

/// The response types that a client accepts. At least one is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedTypes {
    pub json: bool,
    pub stream: bool,
}

impl AcceptedTypes {
    pub const BOTH: Self = Self { json: true, stream: true };
    pub const JSON: Self = Self { json: true, stream: false };
    pub const STREAM: Self = Self { json: false, stream: true };
}

/// A complete response to a request: plain JSON, or an event stream with all its events.
#[derive(Debug, PartialEq, Eq)]
pub enum CompleteReply {
    Json { status: u16, body: Vec<u8>, retry_after_ms: Option<u64> },
    Events(Vec<u8>),
}

impl CompleteReply {
    /// The reply to a request that is answered at once. Errors are JSON for every client: the status of an event
    /// stream is always 200.
    #[inline]
    pub(crate) fn new(
        status: u16,
        body: Vec<u8>,
        retry_after_ms: Option<u64>,
        accepted: AcceptedTypes,
    ) -> Self {
        if accepted.json || status >= 400 {
            return Self::Json { status, body, retry_after_ms };
        }
        Self::Events(event(None, &body))
    }
}

/// Whether a client can resume the event stream with `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resumption {
    No,
    /// The first event is a priming event with this id, if the version has one.
    Yes {
        priming: Option<EventId>,
    },
}

impl Resumption {
    /// The bytes before the first event.
    fn opening(self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Self::Yes { priming: Some(id) } = self {
            sse::write_priming(&mut out, id);
        }
        out
    }

    /// The first bytes of a stream that has no event yet. Without them the head would wait for the first event.
    pub(crate) fn opening_of_silent_stream(self) -> Vec<u8> {
        let out = self.opening();
        if out.is_empty() { sse::KEEP_ALIVE.to_vec() } else { out }
    }

    /// Without a priming event the client may have no event id yet to resume from.
    fn allows_pause(self) -> bool {
        matches!(self, Self::Yes { priming: Some(_) })
    }
}

/// The next input of the machine.
#[derive(Debug)]
pub(crate) enum Input {
    /// A notification, or a request to the client.
    Message {
        id: Option<EventId>,
        body: MessageBody,
    },
    Response {
        id: Option<EventId>,
        status: u16,
        body: MessageBody,
    },
    /// The call asks for the connection back; the client resumes after `retry_ms`.
    Pause {
        retry_ms: u64,
    },
    /// There will be no further input, and no response.
    End,
    /// There is no input now.
    Silence,
}

/// A message, owned by the response or shared with the session's stream.
#[derive(Debug)]
pub(crate) enum MessageBody {
    Owned(Vec<u8>),
    Shared(Arc<[u8]>),
}

impl MessageBody {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(body) => body,
            Self::Shared(body) => body,
        }
    }

    fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Owned(body) => body,
            Self::Shared(body) => body.to_vec(),
        }
    }
}

/// How a response begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResponseStart {
    /// A complete JSON response.
    Json { status: u16, body: Vec<u8> },
    /// A complete event stream.
    Events(Vec<u8>),
    /// The first bytes of an event stream, and its state after them.
    Stream(Vec<u8>, StreamState),
    /// 202 without a body.
    Accepted,
}

/// How an event stream continues.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// The stream ends.
    Finish,
}

/// A response of which nothing is sent yet, not even the status. It becomes an event stream with its first event, or
/// after a silence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingState {
    pub(crate) accepted: AcceptedTypes,
    pub(crate) resumption: Resumption,
    pub(crate) stream_after_silence_ms: u64,
    pub(crate) keep_alive_ms: u64,
}

impl WaitingState {
    /// When to pass [`Input::Silence`] at the latest.
    pub(crate) fn wake_at_ms(&self) -> Option<u64> {
        self.accepted.stream.then_some(self.stream_after_silence_ms)
    }

    /// How the response begins; `None` if this is not known yet.
    pub(crate) fn advance(&self, input: Input, now_ms: u64) -> Option<ResponseStart> {
        let accepted = self.accepted;
        Some(match input {
            Input::Response { status, body, .. } if accepted.json || status >= 400 => {
                ResponseStart::Json { status, body: body.into_vec() }
            }
            Input::Response { id, body, .. } => {
                let mut out = self.resumption.opening();
                sse::write_message(&mut out, id, body.as_slice());
                ResponseStart::Events(out)
            }
            Input::Message { id, body } if accepted.stream => {
                let mut out = self.resumption.opening();
                sse::write_message(&mut out, id, body.as_slice());
                self.start_stream(out, now_ms)
            }
            Input::Pause { retry_ms } if accepted.stream && self.resumption.allows_pause() => {
                let mut out = self.resumption.opening();
                sse::write_retry(&mut out, retry_ms);
                ResponseStart::Events(out)
            }
            // A client that accepts only JSON gets only the response.
            Input::Message { .. } | Input::Pause { .. } => return None,
            // Cancelled: the client expects no response.
            Input::End => ResponseStart::Accepted,
            Input::Silence if accepted.stream && now_ms >= self.stream_after_silence_ms => {
                self.start_stream(self.resumption.opening_of_silent_stream(), now_ms)
            }
            Input::Silence => return None,
        })
    }

    fn start_stream(&self, out: Vec<u8>, now_ms: u64) -> ResponseStart {
        ResponseStart::Stream(out, StreamState::new(self.resumption, self.keep_alive_ms, now_ms))
    }
}

/// A response that is an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamState {
    resumption: Resumption,
    keep_alive_ms: u64,
    phase: StreamPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamPhase {
    Open {
        keep_alive_at_ms: u64,
    },
    /// The last event is sent; nothing follows.
    Ended,
}

impl StreamState {
    pub(crate) fn new(resumption: Resumption, keep_alive_ms: u64, now_ms: u64) -> Self {
        let phase = StreamPhase::Open { keep_alive_at_ms: now_ms.saturating_add(keep_alive_ms) };
        Self { resumption, keep_alive_ms, phase }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.phase == StreamPhase::Ended
    }

    /// When to pass [`Input::Silence`] at the latest.
    pub(crate) fn wake_at_ms(&self) -> Option<u64> {
        match self.phase {
            StreamPhase::Open { keep_alive_at_ms } => Some(keep_alive_at_ms),
            StreamPhase::Ended => None,
        }
    }

    /// What to send next; `None` if nothing.
    pub(crate) fn advance(&mut self, input: Input, now_ms: u64) -> Option<Step> {
        let StreamPhase::Open { keep_alive_at_ms } = self.phase else { return Some(Step::Finish) };
        let (out, next) = match input {
            Input::Message { id, body } => (event(id, body.as_slice()), self.open_until(now_ms)),
            Input::Response { id, body, .. } => (event(id, body.as_slice()), StreamPhase::Ended),
            Input::Pause { retry_ms } if self.resumption.allows_pause() => {
                let mut out = Vec::with_capacity(24);
                sse::write_retry(&mut out, retry_ms);
                (out, StreamPhase::Ended)
            }
            Input::Pause { .. } => return None,
            Input::End => {
                self.phase = StreamPhase::Ended;
                return Some(Step::Finish);
            }
            Input::Silence if now_ms >= keep_alive_at_ms => {
                (sse::KEEP_ALIVE.to_vec(), self.open_until(now_ms))
            }
            Input::Silence => return None,
        };
        self.phase = next;
        Some(Step::Send(out))
    }

    fn open_until(&self, now_ms: u64) -> StreamPhase {
        StreamPhase::Open { keep_alive_at_ms: now_ms.saturating_add(self.keep_alive_ms) }
    }
}

/// The bytes of one event.
pub(crate) fn event(id: Option<EventId>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 48);
    sse::write_message(&mut out, id, body);
    out
}

#[cfg(test)]
mod tests;
