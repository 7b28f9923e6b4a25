//! A call under way, and a subscription under way: what a door polls.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use spile_core::{CallError, CallEvent, EventSink};
use wire::encode::{self, ReplyTo};
use wire::{Feature, RequestId, Version};

use crate::connection_state::{ConnectionState, InFlightGuard};
use crate::observer::CallObservation;
use crate::pipeline::{CallResponse, log_internal_error};
use crate::registry::Registry;
use crate::server::Server;
use crate::session_streams::SessionStreams;
use crate::subscriptions::{Subscription, SubscriptionEvent};

/// A call under way. Dropping it is the cancellation.
pub struct InFlight {
    server: Arc<Server>,
    /// What the call started with.
    registry: Arc<Registry>,
    reply_to: ReplyTo,
    events: EventSink,
    future: ResponseFuture,
    /// The end, held back until everything said before it is out.
    response: Option<CallResponse>,
    observation: Option<Box<CallObservation>>,
}

/// A call, wherever it is on the path.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<CallResponse, CallError>> + Send>>;

/// What a call has to say next. After [`Out::Final`] there is nothing.
pub enum OutgoingMessage {
    Notification(Vec<u8>),
    /// A question to the client, which must not be lost.
    Request(Vec<u8>),
    Pause {
        retry_ms: u64,
    },
    Response {
        status: u16,
        body: Vec<u8>,
    },
}

impl InFlight {
    pub(crate) fn new(
        server: Arc<Server>,
        registry: Arc<Registry>,
        reply_to: ReplyTo,
        events: EventSink,
        future: ResponseFuture,
        observation: Option<Box<CallObservation>>,
    ) -> Self {
        server.counters.calls_active.fetch_add(1, Ordering::Relaxed);
        server.counters.calls_total.fetch_add(1, Ordering::Relaxed);
        Self { server, registry, reply_to, events, future, response: None, observation }
    }

    pub fn reply_to(&self) -> &ReplyTo {
        &self.reply_to
    }

    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<OutgoingMessage> {
        if self.response.is_none()
            && let Poll::Ready(ended) = self.future.as_mut().poll(cx)
        {
            self.response = Some(ended.unwrap_or_else(|fault| {
                log_internal_error(&fault);
                CallResponse::Error(fault)
            }));
        }
        while let Some(event) = self.events.pop() {
            if let Some(out) = self.encode_event(&event) {
                return Poll::Ready(out);
            }
        }
        match self.response.take() {
            Some(ended) => Poll::Ready(self.encode_response(&ended)),
            None => {
                self.events.register_waker(cx.waker());
                // Something may have been said between the two.
                match self.events.has_events() {
                    true => self.poll_next(cx),
                    false => Poll::Pending,
                }
            }
        }
    }

    fn encode_event(&self, event: &CallEvent) -> Option<OutgoingMessage> {
        match event {
            // Where a stream is not primed, the client might have no id yet to come back with.
            CallEvent::PauseStream { retry_ms } => self
                .reply_to
                .version
                .has(Feature::Priming)
                .then_some(OutgoingMessage::Pause { retry_ms: *retry_ms }),
            CallEvent::InputRequest { .. } => {
                encode::call_event(event, &self.reply_to).map(OutgoingMessage::Request)
            }
            CallEvent::Progress { .. } | CallEvent::Log { .. } | CallEvent::CancelInputRequest { .. } => {
                encode::call_event(event, &self.reply_to).map(OutgoingMessage::Notification)
            }
        }
    }

    fn encode_response(&mut self, ended: &CallResponse) -> OutgoingMessage {
        let said = match ended {
            CallResponse::Result(reply) => encode::CallResponseRef::Result(reply),
            CallResponse::InputRequired { requests: asks, state } => {
                encode::CallResponseRef::InputRequired { requests: asks, request_state: state }
            }
            CallResponse::Task(task) => encode::CallResponseRef::TaskCreated(task),
            CallResponse::Error(fault) => encode::CallResponseRef::Error(fault),
        };
        let mut body = Vec::with_capacity(768);
        let status = encode::call_response(&mut body, &self.reply_to, &self.registry.server_info, &said);
        if let Some(observed) = self.observation.take() {
            observed.report(&self.server, Some(ended), body.len());
        }
        OutgoingMessage::Response { status, body }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.server.counters.calls_active.fetch_sub(1, Ordering::Relaxed);
        if let Some(observed) = self.observation.take() {
            observed.report(&self.server, None, 0);
        }
    }
}

/// Several calls that came in one message and are answered in one.
pub struct BatchInFlight {
    version: Version,
    pending: Vec<(usize, InFlight)>,
    responses: Vec<Vec<u8>>,
}

impl BatchInFlight {
    pub(crate) fn new(version: Version) -> Self {
        Self { version, pending: Vec::new(), responses: Vec::new() }
    }

    pub(crate) fn push_response(&mut self, body: Vec<u8>) {
        self.responses.push(body);
    }

    pub(crate) fn push_pending(&mut self, serving: InFlight) {
        self.pending.push((self.responses.len(), serving));
        self.responses.push(Vec::new());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.responses.is_empty()
    }

    /// Whether a call under this id is among them.
    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.pending.iter().any(|(_, serving)| serving.reply_to.id == *id)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<OutgoingMessage> {
        let mut i = 0;
        while let Some((place, serving)) = self.pending.get_mut(i) {
            match serving.poll_next(cx) {
                Poll::Pending => i += 1,
                Poll::Ready(OutgoingMessage::Response { body, .. }) => {
                    self.responses[*place] = body;
                    self.pending.swap_remove(i);
                }
                Poll::Ready(out) => return Poll::Ready(out),
            }
        }
        if !self.pending.is_empty() {
            return Poll::Pending;
        }
        let mut body = Vec::new();
        json::write::array(&mut body, &self.responses, |out, one| out.extend_from_slice(one));
        Poll::Ready(OutgoingMessage::Response { status: 200, body })
    }
}

/// What one message set going.
pub enum PendingResponse {
    Single(InFlight),
    Batch(BatchInFlight),
}

impl PendingResponse {
    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<OutgoingMessage> {
        match self {
            Self::Single(serving) => serving.poll_next(cx),
            Self::Batch(several) => several.poll_next(cx),
        }
    }

    pub fn version(&self) -> Version {
        match self {
            Self::Single(serving) => serving.reply_to.version,
            Self::Batch(several) => several.version,
        }
    }

    /// Enters what waits into the books of whoever asked.
    pub fn register(&self, live: &Arc<ConnectionState>) -> InFlightGuard {
        match self {
            Self::Single(serving) => live.register(serving.reply_to.id.clone()),
            Self::Batch(several) => live.register_batch(
                several.pending.iter().map(|(_, serving)| serving.reply_to.id.clone()).collect(),
            ),
        }
    }

    /// Goes on by itself and writes into a stream of the session, `first` at first; says which stream.
    pub fn spawn_into_stream(mut self, live: &Arc<ConnectionState>, first: Option<OutgoingMessage>) -> u32 {
        let stream = live.streams.open();
        let held = StreamGuard { in_flight: self.register(live), stream_id: stream };
        let number = held.in_flight.entry();
        let mut next = first;
        let task = tokio::spawn(async move {
            loop {
                let out = match next.take() {
                    Some(out) => out,
                    None => std::future::poll_fn(|cx| self.poll_next(cx)).await,
                };
                match out {
                    OutgoingMessage::Notification(body) => held.streams().push_notification(stream, body),
                    OutgoingMessage::Request(body) => held.streams().push_request(stream, body),
                    OutgoingMessage::Pause { retry_ms } => held.streams().push_pause(stream, retry_ms),
                    OutgoingMessage::Response { status, body } => {
                        held.streams().push_response(stream, status, body);
                        break;
                    }
                }
            }
        });
        live.set_abort_handle(number, task.abort_handle());
        stream
    }
}

/// Whatever happens to a call that writes into a stream, the stream ends and the id is free again.
struct StreamGuard {
    in_flight: InFlightGuard,
    stream_id: u32,
}

impl StreamGuard {
    fn streams(&self) -> &SessionStreams {
        &self.in_flight.connection().streams
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.streams().end(self.stream_id);
    }
}

/// A subscription of the newest era under way. Dropping it ends it.
pub struct SubscriptionStream {
    server: Arc<Server>,
    reply_to: ReplyTo,
    subscription: Arc<Subscription>,
    acknowledgement: Option<Vec<u8>>,
    is_ending: bool,
    is_finished: bool,
}

impl SubscriptionStream {
    pub(crate) fn new(
        server: Arc<Server>,
        reply_to: ReplyTo,
        subscription: Arc<Subscription>,
        acknowledged: Vec<u8>,
    ) -> Self {
        server.counters.subscriptions.fetch_add(1, Ordering::Relaxed);
        Self {
            server,
            reply_to,
            subscription,
            acknowledgement: Some(acknowledged),
            is_ending: false,
            is_finished: false,
        }
    }

    pub fn reply_to(&self) -> &ReplyTo {
        &self.reply_to
    }

    /// Ends it; what is news already is still told, and then the answer.
    pub fn end(&mut self) {
        self.is_ending = true;
        self.subscription.close();
    }

    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// The next message; the answer itself is the last.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        if let Some(first) = self.acknowledgement.take() {
            return Poll::Ready(Some(first));
        }
        if self.is_finished {
            return Poll::Ready(None);
        }
        loop {
            let news = match self.subscription.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.is_finished = true;
                    return Poll::Ready(Some(encode::subscription_ended(
                        &self.reply_to.id,
                        &self.server.registry().server_info,
                    )));
                }
                Poll::Ready(Some(news)) => news,
            };
            if let Some(message) = self.server.encode_subscription_event(&news, &self.reply_to) {
                return Poll::Ready(Some(message));
            }
        }
    }
}

impl Drop for SubscriptionStream {
    fn drop(&mut self) {
        self.server.counters.subscriptions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// A piece of news for a subscription; `None` if there is nothing to tell any more.
    fn encode_subscription_event(&self, news: &SubscriptionEvent, to: &ReplyTo) -> Option<Vec<u8>> {
        match news {
            SubscriptionEvent::Change(change) => Some(encode::change_notification(change, Some(&to.id))),
            SubscriptionEvent::Task(id) => {
                let task = self.tasks.view(id)?;
                Some(encode::task_notification(&to.id, &task, &self.registry().server_info, to.version))
            }
        }
    }
}
