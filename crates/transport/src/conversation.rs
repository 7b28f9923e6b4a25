//! What a message means on a pipe, whatever carries it: answered at once, or gone on with elsewhere.
//!
//! A pipe is one client and one [`Live`] for as long as it lasts; the era is chosen for each message. Knows
//! nothing of threads, sockets and framing: those are its [`Outlet`]'s.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use host::{
    CallerIdentity, ConnectionState, Dispatched, OutgoingMessage, PendingResponse, ReplyChannel, Server,
    SubscriptionEvent, SubscriptionStream,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use wire::error::{ErrorCode, RpcError};
use wire::frame::{Frame, Framing};
use wire::{Decoded, Defaults, Notification, RequestId, Version, encode};

/// The way out of a pipe. Bounded: beyond its bound notices are dropped, and whoever can wait must.
pub(crate) trait MessageSink: Send + Sync + 'static {
    /// Adds a message that must arrive to what is gathered, in the framing that the client speaks.
    fn append(&self, batch: &mut Vec<u8>, message: Vec<u8>);

    /// Adds one that may be lost. What is gathered has room for it; whoever does not gather may not.
    fn append_lossy(&self, batch: &mut Vec<u8>, message: Vec<u8>) {
        self.append(batch, message);
    }

    /// Writes what whoever reads has gathered. Nothing that is sent later overtakes it.
    fn write_batch(self: &Arc<Self>, batch: &mut Vec<u8>);

    /// A message that must arrive.
    fn send(self: &Arc<Self>, message: Vec<u8>);

    /// A message that may be lost on a client that does not read.
    fn send_lossy(self: &Arc<Self>, message: Vec<u8>);

    /// Ready when there is room for what must arrive, or nobody left for whom to keep it.
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The framing that a client speaks and is answered in. Until it has spoken: lines.
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

/// How it comes to its end: subscriptions end too, and new requests are refused.
enum ShutdownSource {
    /// By itself, when somebody says so.
    Own(watch::Sender<bool>),
    /// With the server, which sees to all of it.
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

    /// For messages that come one by one, where what is open outlasts each of them. Within a runtime only.
    pub(crate) fn with_state(
        server: Arc<Server>,
        identity: CallerIdentity,
        state: Arc<ConnectionState>,
        sink: Arc<O>,
    ) -> Self {
        Self { server, state, sink, identity, runtime: Handle::current(), shutdown: ShutdownSource::Server }
    }

    /// Acts on one frame; what is answered at once is appended to `batch`.
    pub(crate) fn handle_frame(&self, frame: Frame, batch: &mut Vec<u8>) -> AfterFrame {
        let bytes = match frame {
            Frame::Message(bytes) => bytes,
            Frame::TooLong => {
                let why = format!("the message is longer than {} bytes", self.server.limits.frame_bytes_max);
                self.append_error(ErrorCode::InvalidRequest, &why, batch);
                return AfterFrame::Continue;
            }
            Frame::Desynchronized => {
                self.append_error(
                    ErrorCode::ParseError,
                    "no Content-Length to be found; where a message starts is unknown",
                    batch,
                );
                return AfterFrame::Close;
            }
        };
        self.handle_message(self.decode(bytes), batch);
        AfterFrame::Continue
    }

    #[inline]
    pub(crate) fn decode(&self, bytes: Vec<u8>) -> Decoded {
        self.server.decode(bytes, Defaults::Pipe(self.state.peer()))
    }

    /// Acts on what a message was read as; what is answered at once is appended to `batch`.
    #[inline]
    pub(crate) fn handle_message(&self, opened: Decoded, batch: &mut Vec<u8>) {
        let line = ReplyChannel::Pipe(self.state.clone());
        match opened {
            Decoded::Request(request) if self.is_shutting_down() => {
                self.sink.append(batch, shutting_down_response(&request.id, request.peer.version));
            }
            Decoded::Request(request) => match self.server.dispatch(request, &self.identity, line) {
                Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => {
                    self.sink.append(batch, body)
                }
                Dispatched::Call(serving) => self.poll_or_spawn(PendingResponse::Single(serving), batch),
                Dispatched::Subscription(listening) => self.run_subscription(listening, batch),
            },
            Decoded::Notification(Notification::Cancelled(id)) => self.state.cancel(&id),
            Decoded::Notification(Notification::Initialized | Notification::Other) => {}
            Decoded::Response { id, result: answer } => self.state.deliver_response(id, answer),
            Decoded::Batch(several) => {
                if let Some(flow) = self.server.dispatch_batch(several, &self.identity, &line) {
                    self.poll_or_spawn(flow, batch);
                }
            }
            Decoded::Rejected(refusal) => self.sink.append(batch, refusal.body),
        }
    }

    /// Says what is wrong where no request is known.
    pub(crate) fn append_error(&self, code: ErrorCode, why: &str, batch: &mut Vec<u8>) {
        let version = self.state.peer().map_or(Version::UNSPECIFIED, |peer| peer.version);
        self.sink.append(batch, RpcError::new(code, 400, why).to_response(None, version));
    }

    /// What a client of the handshake era is told of a change. Without a handshake there is nobody to tell.
    pub(crate) fn notify(&self, news: &SubscriptionEvent) {
        if let (SubscriptionEvent::Change(change), Some(_)) = (news, self.state.peer()) {
            self.sink.send_lossy(encode::change_notification(change, None));
        }
    }

    /// It comes to its end: what is under way may finish, subscriptions end, nothing new begins.
    pub(crate) fn begin_shutdown(&self) {
        match &self.shutdown {
            ShutdownSource::Own(ending) => _ = ending.send_replace(true),
            ShutdownSource::Server => {}
        }
    }

    fn is_shutting_down(&self) -> bool {
        match &self.shutdown {
            ShutdownSource::Own(ending) => *ending.borrow(),
            ShutdownSource::Server => false,
        }
    }

    /// Looks once; what is not over then goes on elsewhere.
    fn poll_or_spawn(&self, mut flow: PendingResponse, batch: &mut Vec<u8>) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut spoke = false;
        loop {
            match flow.poll_next(&mut cx) {
                Poll::Ready(OutgoingMessage::Response { body, .. }) => return self.sink.append(batch, body),
                Poll::Ready(OutgoingMessage::Notification(body)) => {
                    spoke = true;
                    self.sink.append_lossy(batch, body);
                }
                Poll::Ready(OutgoingMessage::Request(body)) => {
                    spoke = true;
                    self.sink.append(batch, body);
                }
                Poll::Ready(OutgoingMessage::Pause { .. }) => {}
                Poll::Pending => break,
            }
        }
        if spoke {
            // What it says next, it says from elsewhere: that must not overtake this.
            self.sink.write_batch(batch);
        }
        let output = self.sink.clone();
        let mut guard = flow.register(&self.state);
        self.spawn_tracked(guard.entry(), async move {
            loop {
                match poll_fn(|cx| flow.poll_next(cx)).await {
                    OutgoingMessage::Notification(body) => output.send_lossy(body),
                    OutgoingMessage::Request(body) => send_when_ready(&output, body).await,
                    OutgoingMessage::Pause { .. } => {}
                    OutgoingMessage::Response { body, .. } => {
                        poll_fn(|cx| output.poll_ready(cx)).await;
                        // A client may reuse the id as soon as it reads the response.
                        drop(flow);
                        guard.release();
                        output.send(body);
                        return;
                    }
                }
            }
        });
    }

    fn run_subscription(&self, mut listening: SubscriptionStream, batch: &mut Vec<u8>) {
        let id = listening.reply_to().id.clone();
        let mut cx = Context::from_waker(Waker::noop());
        // 2026-07-28: the acknowledgment MUST be the first message of the subscription.
        if let Poll::Ready(Some(first)) = listening.poll_next(&mut cx) {
            self.sink.append(batch, first);
            self.sink.write_batch(batch);
        }
        let output = self.sink.clone();
        let mut ending = match &self.shutdown {
            ShutdownSource::Own(ending) => Some(ending.subscribe()),
            ShutdownSource::Server => None,
        };
        let mut guard = self.state.register(id.clone());
        self.spawn_tracked(guard.entry(), async move {
            loop {
                // News that nobody has room for stay with the watch, which keeps each once.
                poll_fn(|cx| output.poll_ready(cx)).await;
                let next = tokio::select! {
                    next = poll_fn(|cx| listening.poll_next(cx)) => next,
                    () = wait_for_shutdown(&mut ending), if !listening.is_ending() => {
                        listening.end();
                        continue;
                    }
                };
                match next {
                    Some(message) => {
                        if listening.is_finished() {
                            guard.release();
                        }
                        output.send(message);
                    }
                    None => break,
                }
            }
            // 2026-07-28, Cancellation: a server MUST send this when it tears a subscription down. The page on
            // subscriptions wants the result, which has just gone out; a client may read either.
            send_when_ready(&output, encode::subscription_cancelled(&id)).await;
        });
    }

    /// Runs on the runtime what has to wait.
    fn spawn_tracked(&self, entry: u64, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(work);
        self.state.set_abort_handle(entry, task.abort_handle());
    }
}

/// Sends as soon as there is room. Meanwhile the call counts as one under way, so these are bounded too.
async fn send_when_ready<O: MessageSink>(output: &Arc<O>, message: Vec<u8>) {
    poll_fn(|cx| output.poll_ready(cx)).await;
    output.send(message);
}

/// Waits until it comes to its end; for ever if nobody is there to say so.
async fn wait_for_shutdown(ending: &mut Option<watch::Receiver<bool>>) {
    if let Some(ending) = ending
        && ending.wait_for(|ending| *ending).await.is_ok()
    {
        return;
    }
    pending().await
}

#[cold]
fn shutting_down_response(id: &RequestId, version: Version) -> Vec<u8> {
    RpcError::busy(503, 1000, "the server is going away; connect again").to_response(Some(id), version)
}

#[cfg(test)]
mod tests;
