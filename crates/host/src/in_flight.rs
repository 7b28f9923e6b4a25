//! Calls and subscriptions in flight: what a transport polls.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use spile_core::{CallError, CallEvent, EventSink, WatchFuture};
use wire::encode::{self, ReplyTo};
use wire::{RequestId, Version};

use crate::connection_state::{ConnectionState, InFlightGuard};
use crate::observer::CallObservation;
use crate::pipeline::{CallResponse, log_internal_error};
use crate::registry::Registry;
use crate::server::Server;
use crate::session_streams::{SessionStreamReader, SessionStreams};
use crate::subscriptions::{Subscription, SubscriptionEvent};

/// A call in flight. Dropping it cancels the call.
pub struct InFlight {
    server: Arc<Server>,
    /// The registry at the start of the call; a swap does not affect it.
    registry: Arc<Registry>,
    reply_to: ReplyTo,
    events: EventSink,
    future: ResponseFuture,
    /// The response, held back until all events before it are sent.
    response: Option<CallResponse>,
    observation: Option<Arc<CallObservation>>,
    /// Whether the call counts as active. One that is ready at its first poll never does: counting it would make all
    /// threads write to the same memory for each call.
    is_counted: bool,
}

/// The pipeline's future of one call.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<CallResponse, CallError>> + Send>>;

/// The next message of a call. [`OutgoingMessage::Response`] is the last.
pub enum OutgoingMessage {
    Notification(Vec<u8>),
    /// A request to the client. Unlike a notification it must not be dropped.
    Request(Vec<u8>),
    /// Close the connection if the client can resume; it does so after `retry_ms`.
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
        observation: Option<Arc<CallObservation>>,
    ) -> Self {
        server.counters.calls_total.increment();
        let (response, is_counted) = (None, false);
        Self { server, registry, reply_to, events, future, response, observation, is_counted }
    }

    /// Counts the call as active from now on.
    fn count_as_active(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.server.counters.calls_active.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn reply_to(&self) -> &ReplyTo {
        &self.reply_to
    }

    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<OutgoingMessage> {
        if self.response.is_none()
            && let Poll::Ready(response) = self.future.as_mut().poll(cx)
        {
            self.response = Some(response.unwrap_or_else(|error| {
                log_internal_error(&error);
                CallResponse::Error(error)
            }));
        }
        while let Some(event) = self.events.pop() {
            if let Some(message) = self.encode_event(&event) {
                self.count_as_active();
                return Poll::Ready(message);
            }
        }
        match self.response.take() {
            Some(response) => Poll::Ready(self.encode_response(&response)),
            None => {
                self.count_as_active();
                self.events.register_waker(cx.waker());
                // An event may have arrived before the waker was registered.
                match self.events.has_events() {
                    true => self.poll_next(cx),
                    false => Poll::Pending,
                }
            }
        }
    }

    fn encode_event(&self, event: &CallEvent) -> Option<OutgoingMessage> {
        match event {
            CallEvent::PauseStream { retry_ms } => Some(OutgoingMessage::Pause { retry_ms: *retry_ms }),
            CallEvent::InputRequest { .. } => {
                encode::call_event(event, &self.reply_to).map(OutgoingMessage::Request)
            }
            CallEvent::Progress { .. }
            | CallEvent::Log { .. }
            | CallEvent::CancelInputRequest { .. }
            | CallEvent::ElicitationComplete { .. } => {
                encode::call_event(event, &self.reply_to).map(OutgoingMessage::Notification)
            }
        }
    }

    fn encode_response(&mut self, response: &CallResponse) -> OutgoingMessage {
        let response_ref = match response {
            CallResponse::Result(reply) => encode::CallResponseRef::Result(reply),
            CallResponse::InputRequired { requests, state } => {
                encode::CallResponseRef::InputRequired { requests, request_state: state }
            }
            CallResponse::Task(task) => encode::CallResponseRef::TaskCreated(task),
            CallResponse::TaskAnswer(answer) => encode::CallResponseRef::TaskAnswer(answer),
            CallResponse::Error(error) => encode::CallResponseRef::Error(error),
        };
        let mut body = Vec::with_capacity(768);
        let status =
            encode::call_response(&mut body, &self.reply_to, &self.registry.server_info, &response_ref);
        if let Some(observation) = self.observation.take() {
            observation.report(&self.server, Some(response), body.len());
        }
        OutgoingMessage::Response { status, body }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.is_counted {
            self.server.counters.calls_active.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(observation) = self.observation.take() {
            observation.report(&self.server, None, 0);
        }
    }
}

/// The calls of one batch. They share one response.
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

    pub(crate) fn push_pending(&mut self, mut in_flight: InFlight) {
        // The calls of a batch are started together.
        in_flight.count_as_active();
        self.pending.push((self.responses.len(), in_flight));
        self.responses.push(Vec::new());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.responses.is_empty()
    }

    /// Whether a pending call of this batch has this id.
    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.pending.iter().any(|(_, in_flight)| in_flight.reply_to.id == *id)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<OutgoingMessage> {
        let mut i = 0;
        while let Some((index, in_flight)) = self.pending.get_mut(i) {
            match in_flight.poll_next(cx) {
                Poll::Pending => i += 1,
                Poll::Ready(OutgoingMessage::Response { body, .. }) => {
                    self.responses[*index] = body;
                    self.pending.swap_remove(i);
                }
                Poll::Ready(message) => return Poll::Ready(message),
            }
        }
        if !self.pending.is_empty() {
            return Poll::Pending;
        }
        let mut body = Vec::new();
        json::write::array(&mut body, &self.responses, |message, one| message.extend_from_slice(one));
        Poll::Ready(OutgoingMessage::Response { status: 200, body })
    }
}

/// The pending response to one message: a call or a batch.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost every call an allocation, and a batch is rare"
)]
pub enum PendingResponse {
    Single(InFlight),
    Batch(BatchInFlight),
}

impl PendingResponse {
    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<OutgoingMessage> {
        match self {
            Self::Single(in_flight) => in_flight.poll_next(cx),
            Self::Batch(batch) => batch.poll_next(cx),
        }
    }

    pub fn version(&self) -> Version {
        match self {
            Self::Single(in_flight) => in_flight.reply_to.version,
            Self::Batch(batch) => batch.version,
        }
    }

    /// Registers the pending calls with their connection, where they can be cancelled.
    pub fn register(&self, connection: &Arc<ConnectionState>) -> InFlightGuard {
        match self {
            Self::Single(in_flight) => connection.register(in_flight.reply_to.id.clone()),
            Self::Batch(batch) => connection.register_batch(
                batch.pending.iter().map(|(_, in_flight)| in_flight.reply_to.id.clone()).collect(),
            ),
        }
    }

    /// Spawns a task that writes the messages into a new stream of the session, starting with `first`. Returns the
    /// stream's first reader.
    pub fn spawn_into_stream(
        mut self,
        connection: &Arc<ConnectionState>,
        first: Option<OutgoingMessage>,
    ) -> SessionStreamReader {
        let reader = SessionStreams::open(connection);
        let stream = reader.stream_id();
        let mut guard = StreamGuard { in_flight: self.register(connection), stream_id: stream };
        let entry = guard.in_flight.entry();
        let mut next = first;
        let task = tokio::spawn(async move {
            loop {
                let message = match next.take() {
                    Some(message) => message,
                    None => std::future::poll_fn(|cx| self.poll_next(cx)).await,
                };
                match message {
                    OutgoingMessage::Notification(body) => guard.streams().push_notification(stream, body),
                    OutgoingMessage::Request(body) => guard.streams().push_request(stream, body),
                    OutgoingMessage::Pause { retry_ms } => guard.streams().push_pause(stream, retry_ms),
                    OutgoingMessage::Response { status, body } => {
                        // A client may reuse the id as soon as it reads the response.
                        drop(self);
                        guard.in_flight.release();
                        guard.streams().push_response(stream, status, body);
                        break;
                    }
                }
            }
        });
        connection.set_abort_handle(entry, task.abort_handle());
        reader
    }
}

/// Ends the stream and frees the request ids when the call ends in any way, panics and aborts included.
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

/// A `subscriptions/listen` request in flight. Dropping it ends the subscription.
pub struct SubscriptionStream {
    server: Arc<Server>,
    reply_to: ReplyTo,
    subscription: Arc<Subscription>,
    acknowledgement: Option<Vec<u8>>,
    /// What the acknowledgement waits for.
    watching: Option<WatchFuture>,
    is_ending: bool,
    is_finished: bool,
}

impl SubscriptionStream {
    pub(crate) fn new(
        server: Arc<Server>,
        reply_to: ReplyTo,
        subscription: Arc<Subscription>,
        acknowledgement: Vec<u8>,
        watching: Option<WatchFuture>,
    ) -> Self {
        server.counters.subscriptions.fetch_add(1, Ordering::Relaxed);
        Self {
            server,
            reply_to,
            subscription,
            acknowledgement: Some(acknowledgement),
            watching,
            is_ending: false,
            is_finished: false,
        }
    }

    pub fn reply_to(&self) -> &ReplyTo {
        &self.reply_to
    }

    /// Ends the subscription. Pending events are still sent, then the response.
    pub fn end(&mut self) {
        self.is_ending = true;
        self.subscription.close();
    }

    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Whether [`SubscriptionStream::poll_next`] has returned the response.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The next message. The last one is the response itself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        if let Some(watching) = &mut self.watching {
            ready!(watching.as_mut().poll(cx));
            self.watching = None;
        }
        if let Some(first) = self.acknowledgement.take() {
            return Poll::Ready(Some(first));
        }
        if self.is_finished {
            return Poll::Ready(None);
        }
        loop {
            let event = match self.subscription.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.is_finished = true;
                    return Poll::Ready(Some(encode::subscription_ended(
                        &self.reply_to.id,
                        &self.server.registry().server_info,
                    )));
                }
                Poll::Ready(Some(event)) => event,
            };
            if let Some(message) = self.server.encode_subscription_event(&event, &self.reply_to) {
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
    /// Encodes an event; `None` if its task no longer exists.
    fn encode_subscription_event(&self, event: &SubscriptionEvent, to: &ReplyTo) -> Option<Vec<u8>> {
        match event {
            SubscriptionEvent::Change(change) => Some(encode::change_notification(change, Some(&to.id))),
            SubscriptionEvent::Task(id) => {
                let task = self.tasks.snapshot(id)?;
                Some(encode::task_notification(&to.id, &task, &self.registry().server_info, to.version))
            }
        }
    }
}
