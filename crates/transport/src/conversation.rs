//! Handles the messages of one pipe, whatever transport carries them: answers at once, or spawns a task.
//!
//! A pipe has one client and one [`ConnectionState`] for its lifetime; the protocol era is chosen per message.
//! Threads, sockets and framing belong to the [`MessageSink`].

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use host::{
    CallerIdentity, ConnectionState, Dispatched, OutgoingMessage, PendingResponse, RegistrySnapshot,
    ReplyChannel, Server, SubscriptionEvent, SubscriptionStream,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use wire::error::{ErrorCode, RpcError};
use wire::frame::{Frame, Framing};
use wire::{Decoded, MessageContext, Notification, RequestId, Version, encode};

/// Where a pipe's outgoing messages go. Bounded: when it is full it drops notifications and makes senders wait.
pub(crate) trait MessageSink: Send + Sync + 'static {
    /// Appends a message that must arrive to the batch, in the client's framing.
    fn append(&self, batch: &mut Vec<u8>, message: Vec<u8>);

    /// Appends a message that may be dropped. A batch always has room; a sink without a batch may be full.
    fn append_lossy(&self, batch: &mut Vec<u8>, message: Vec<u8>) {
        self.append(batch, message);
    }

    /// Writes the batch. Messages sent later do not overtake it.
    fn write_batch(self: &Arc<Self>, batch: &mut Vec<u8>);

    /// Sends a message that must arrive.
    fn send(self: &Arc<Self>, message: Vec<u8>);

    /// Sends a message that may be dropped if the client does not read.
    fn send_lossy(self: &Arc<Self>, message: Vec<u8>);

    /// Ready when there is room for a message that must arrive, or when the client is gone.
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The framing that the client uses, and that responses use. Lines until the first message.
#[derive(Default)]
pub(crate) struct AtomicFraming(AtomicU8);

impl AtomicFraming {
    const ALL: [Framing; 3] = [Framing::Lines, Framing::ContentLength, Framing::WebSocket];

    #[inline]
    pub(crate) fn set(&self, framing: Framing) {
        self.0.store(framing as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> Framing {
        Self::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }
}

#[derive(PartialEq, Eq)]
pub(crate) enum AfterFrame {
    Continue,
    Close,
}

pub(crate) struct Conversation<O> {
    pub(crate) server: Arc<Server>,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) sink: Arc<O>,
    identity: CallerIdentity,
    runtime: Handle,
    shutdown: ShutdownSource,
}

/// What shuts the conversation down: subscriptions end and new requests are refused.
enum ShutdownSource {
    /// `begin_shutdown`.
    Own(watch::Sender<bool>),
    /// The server, which ends its subscriptions itself.
    Server,
}

impl<O: MessageSink> Conversation<O> {
    pub(crate) fn new(server: Arc<Server>, identity: CallerIdentity, sink: Arc<O>, runtime: Handle) -> Self {
        let state = server.open_pipe();
        Self {
            server,
            state,
            sink,
            identity,
            runtime,
            shutdown: ShutdownSource::Own(watch::Sender::new(false)),
        }
    }

    /// For HTTP+SSE, where each message is a request of its own and the state outlives it. Panics outside a runtime.
    pub(crate) fn with_state(
        server: Arc<Server>,
        identity: CallerIdentity,
        state: Arc<ConnectionState>,
        sink: Arc<O>,
    ) -> Self {
        Self { server, state, sink, identity, runtime: Handle::current(), shutdown: ShutdownSource::Server }
    }

    /// Handles one frame and appends immediate responses to `batch`.
    pub(crate) fn handle_frame(&self, frame: Frame, batch: &mut Vec<u8>) -> AfterFrame {
        let bytes = match frame {
            Frame::Message(bytes) => bytes,
            Frame::TooLong => {
                let reason = format!(
                    "the message exceeds the limit of {} bytes",
                    self.server.limits.message_bytes_max
                );
                self.append_error(ErrorCode::InvalidRequest, &reason, batch);
                return AfterFrame::Continue;
            }
            Frame::Desynchronized => {
                self.append_error(
                    ErrorCode::ParseError,
                    "no Content-Length header found; cannot tell where the next message starts",
                    batch,
                );
                return AfterFrame::Close;
            }
        };
        let (decoded, registry) = self.decode(bytes);
        self.handle_message(decoded, registry, batch);
        AfterFrame::Continue
    }

    #[inline]
    pub(crate) fn decode(&self, bytes: Vec<u8>) -> (Decoded, RegistrySnapshot) {
        let registry = self.server.snapshot();
        (self.server.decode(bytes, MessageContext::Pipe(self.state.peer()), &registry), registry)
    }

    /// Handles one decoded message and appends immediate responses to `batch`.
    #[inline]
    pub(crate) fn handle_message(&self, decoded: Decoded, registry: RegistrySnapshot, batch: &mut Vec<u8>) {
        let channel = ReplyChannel::Pipe(self.state.clone());
        match decoded {
            Decoded::Request(request) if self.is_shutting_down() => {
                self.sink.append(batch, shutting_down_response(&request.id, request.peer.version));
            }
            Decoded::Request(request) => {
                match self.server.dispatch(request, &self.identity, channel, registry) {
                    Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => {
                        self.sink.append(batch, body)
                    }
                    Dispatched::Call(call) => self.poll_or_spawn(PendingResponse::Single(call), batch),
                    Dispatched::Subscription(subscription) => self.run_subscription(subscription, batch),
                }
            }
            Decoded::Notification(Notification::Cancelled(id)) => self.state.cancel(&id),
            Decoded::Notification(Notification::RootsListChanged) => {
                self.server.client_roots_changed(&self.identity, &channel);
            }
            Decoded::Notification(Notification::Initialized | Notification::Other) => {}
            Decoded::Response { id, result } => self.state.deliver_response(id, result),
            Decoded::Batch(messages) => {
                if let Some(pending_response) =
                    self.server.dispatch_batch(messages, &self.identity, &channel, &registry)
                {
                    self.poll_or_spawn(pending_response, batch);
                }
            }
            Decoded::Rejected(error) => self.sink.append(batch, error.body),
        }
    }

    /// Appends an error response that belongs to no request.
    pub(crate) fn append_error(&self, code: ErrorCode, reason: &str, batch: &mut Vec<u8>) {
        let version = self.state.peer().map_or(Version::UNSPECIFIED, |peer| peer.version);
        self.sink.append(batch, RpcError::new(code, 400, reason).to_response(None, version));
    }

    /// Sends a change notification to a client of the handshake era. Before the handshake there is none to notify.
    pub(crate) fn notify(&self, event: &SubscriptionEvent) {
        if let (SubscriptionEvent::Change(change), Some(_)) = (event, self.state.peer()) {
            self.sink.send_lossy(encode::change_notification(change, None));
        }
    }

    /// Running calls may finish, subscriptions end, new requests are refused.
    pub(crate) fn begin_shutdown(&self) {
        match &self.shutdown {
            ShutdownSource::Own(shutdown) => _ = shutdown.send_replace(true),
            ShutdownSource::Server => {}
        }
    }

    fn is_shutting_down(&self) -> bool {
        match &self.shutdown {
            ShutdownSource::Own(shutdown) => *shutdown.borrow(),
            ShutdownSource::Server => false,
        }
    }

    /// Polls a call once. If it is not complete, a task continues it.
    fn poll_or_spawn(&self, mut pending_response: PendingResponse, batch: &mut Vec<u8>) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut sent_message = false;
        loop {
            match pending_response.poll_next(&mut cx) {
                Poll::Ready(OutgoingMessage::Response { body, .. }) => return self.sink.append(batch, body),
                Poll::Ready(OutgoingMessage::Notification(body)) => {
                    sent_message = true;
                    self.sink.append_lossy(batch, body);
                }
                Poll::Ready(OutgoingMessage::Request(body)) => {
                    sent_message = true;
                    self.sink.append(batch, body);
                }
                Poll::Ready(OutgoingMessage::Pause { .. }) => {}
                Poll::Pending => break,
            }
        }
        if sent_message {
            // The task sends the next messages directly; they must not overtake the batch.
            self.sink.write_batch(batch);
        }
        let sink = self.sink.clone();
        let mut guard = pending_response.register(&self.state);
        self.spawn_tracked(guard.entry(), async move {
            loop {
                match poll_fn(|cx| pending_response.poll_next(cx)).await {
                    OutgoingMessage::Notification(body) => sink.send_lossy(body),
                    OutgoingMessage::Request(body) => send_when_ready(&sink, body).await,
                    OutgoingMessage::Pause { .. } => {}
                    OutgoingMessage::Response { body, .. } => {
                        poll_fn(|cx| sink.poll_ready(cx)).await;
                        // A client may reuse the id as soon as it reads the response.
                        drop(pending_response);
                        guard.release();
                        sink.send(body);
                        return;
                    }
                }
            }
        });
    }

    fn run_subscription(&self, mut subscription: SubscriptionStream, batch: &mut Vec<u8>) {
        let id = subscription.reply_to().id.clone();
        let mut cx = Context::from_waker(Waker::noop());
        // 2026-07-28: the acknowledgment MUST be the first message of the subscription.
        if let Poll::Ready(Some(first)) = subscription.poll_next(&mut cx) {
            self.sink.append(batch, first);
            self.sink.write_batch(batch);
        }
        let sink = self.sink.clone();
        let mut shutdown = match &self.shutdown {
            ShutdownSource::Own(shutdown) => Some(shutdown.subscribe()),
            ShutdownSource::Server => None,
        };
        let mut guard = self.state.register(id.clone());
        self.spawn_tracked(guard.entry(), async move {
            loop {
                // Without room, changes stay in the subscription, which keeps each of them once.
                poll_fn(|cx| sink.poll_ready(cx)).await;
                let next = tokio::select! {
                    next = poll_fn(|cx| subscription.poll_next(cx)) => next,
                    () = wait_for_shutdown(&mut shutdown), if !subscription.is_ending() => {
                        subscription.end();
                        continue;
                    }
                };
                match next {
                    Some(message) => {
                        if subscription.is_finished() {
                            guard.release();
                        }
                        sink.send(message);
                    }
                    None => break,
                }
            }
            // 2026-07-28, Cancellation: a server MUST send this when it tears a subscription down. The page on
            // subscriptions asks for the result, which was just sent; a client may wait for either.
            send_when_ready(&sink, encode::subscription_cancelled(&id)).await;
        });
    }

    /// Runs the rest of a call on the runtime.
    fn spawn_tracked(&self, entry: u64, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(work);
        self.state.set_abort_handle(entry, task.abort_handle());
    }
}

/// Sends as soon as there is room. The call counts as running until then, so waiting messages are bounded too.
async fn send_when_ready<O: MessageSink>(sink: &Arc<O>, message: Vec<u8>) {
    poll_fn(|cx| sink.poll_ready(cx)).await;
    sink.send(message);
}

/// Waits for the shutdown of this conversation; forever if it has no shutdown of its own.
async fn wait_for_shutdown(shutdown: &mut Option<watch::Receiver<bool>>) {
    if let Some(shutdown) = shutdown
        && shutdown.wait_for(|shutdown| *shutdown).await.is_ok()
    {
        return;
    }
    pending().await
}

#[cold]
fn shutting_down_response(id: &RequestId, version: Version) -> Vec<u8> {
    RpcError::busy(503, 1000, "the server is shutting down; connect again later")
        .to_response(Some(id), version)
}

#[cfg(test)]
mod tests;
