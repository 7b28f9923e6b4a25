//! A pipe over a connection: what the stdio door does with threads, done by the connection's own task.
//!
//! The task reads, opens, looks once at each call and answers what is ready itself; it writes when no whole
//! message is left to read. Only what has to wait gets a task of its own. A client that does not read is not
//! read from either once its queue is full, and the watcher closes it when nothing has moved for too long.

mod byte_stream;
mod send_queue;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use host::{CallerIdentity, Server};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::timeout;
use wire::Version;
use wire::error::RpcError;
use wire::frame::{Frame, Framing};

use crate::conversation::{AfterFrame, Conversation, MessageSink as _};
use crate::http::IdlePolicy;
use crate::shutdown_signal::ShutdownSignal;
pub(crate) use byte_stream::ByteStream;
pub(crate) use send_queue::SendQueue;

/// What carries messages.
pub(crate) trait FramedTransport {
    type Io: AsyncRead + AsyncWrite;
    /// How long it may be quiet between two messages.
    const IDLE_POLICY: IdlePolicy;

    fn io(&mut self) -> Pin<&mut Self::Io>;

    fn framing(&self) -> Framing;

    /// Whether a message has begun to arrive and is not complete.
    fn is_mid_message(&self) -> bool;

    /// What comes next. What the transport itself has to say is appended to `own`.
    fn poll_next(&mut self, cx: &mut Context<'_>, own: &mut Vec<u8>) -> Poll<TransportEvent>;

    /// Appends the last words of a server that goes.
    fn append_close_frame(&mut self, own: &mut Vec<u8>);
}

/// Who minds how long a client takes, and says when it is time to go.
pub(crate) trait ConnectionMonitor {
    /// From now on it is a pipe.
    fn on_pipe_start(&self, rests: IdlePolicy);

    /// Whether it is time to go. The first to ask is woken when it is.
    fn is_shutting_down(&self, cx: &Context<'_>) -> bool;

    /// It is between two messages.
    fn on_idle(&self, rests: IdlePolicy);

    /// A message has begun to arrive.
    fn on_message_start(&self);

    /// It is read from again; that nothing was heard meanwhile was not its client's doing.
    fn on_read_resumed(&self);
}

/// A client may take its time.
impl ConnectionMonitor for ShutdownSignal {
    fn on_pipe_start(&self, _: IdlePolicy) {}

    fn is_shutting_down(&self, cx: &Context<'_>) -> bool {
        self.is_triggered(cx)
    }

    fn on_idle(&self, _: IdlePolicy) {}

    fn on_message_start(&self) {}

    fn on_read_resumed(&self) {}
}

/// What came down a pipe.
pub(crate) enum TransportEvent {
    Frame(Frame),
    /// Something that only the transport minds.
    Control,
    /// Nothing more will come, but what was asked may be answered.
    EndOfInput,
    /// It is over: nothing is answered any more, but what was said must still arrive.
    Closed,
    /// Nobody is there.
    Disconnected,
}

/// When nothing more comes, what was asked already may be answered for so long; and so long a client has to
/// take its last answers, and to close.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Serves one client at the other end of `io`, in lines or with headers, until it leaves.
///
/// Nobody minds how long it takes over anything, so it must not be a stranger: somebody in this process.
pub async fn serve(server: Arc<Server>, io: impl AsyncRead + AsyncWrite + Unpin) {
    let lines = ByteStream::new(io, server.limits.frame_bytes_max);
    run(lines, server, CallerIdentity::default(), &ShutdownSignal::default(), Duration::ZERO).await;
}

/// Serves one client until it leaves, or until we go. `drain` is how long calls may then still take.
pub(crate) async fn run<T: FramedTransport>(
    transport: T,
    server: Arc<Server>,
    who: CallerIdentity,
    minder: &impl ConnectionMonitor,
    drain: Duration,
) {
    let output = SendQueue::new(server.limits.stream_bytes_max);
    output.framing.set(transport.framing());
    let talk = Conversation::new(server, who, output, Handle::current());
    let mut pipe =
        Pipe { transport, conversation: talk, monitor: minder, mid_message: false, batch: Vec::new() };
    minder.on_pipe_start(T::IDLE_POLICY);
    let last = poll_fn(|cx| match minder.is_shutting_down(cx) {
        true => Poll::Ready(CloseReason::Shutdown),
        false => pipe.poll(cx),
    });
    let mut last = last.await;
    if last == CloseReason::Shutdown {
        pipe.conversation.begin_shutdown();
        let live = pipe.conversation.state.clone();
        let mut calm = pin!(live.wait_until_idle());
        let settled = poll_fn(|cx| match calm.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(CloseReason::Shutdown),
            Poll::Pending => pipe.poll(cx),
        });
        last = timeout(drain, settled).await.unwrap_or(CloseReason::Shutdown);
    }
    match last {
        CloseReason::Disconnected => return,
        CloseReason::Closed => {}
        CloseReason::EndOfInput => pipe.drain().await,
        CloseReason::Shutdown => {
            pipe.transport.append_close_frame(&mut pipe.batch);
            pipe.conversation.sink.finish(&mut pipe.batch);
        }
    }
    pipe.conversation.state.close();
    flush_and_close(&mut pipe.transport, &pipe.conversation.sink, last).await;
}

/// Answers whatever comes first with this, and closes.
pub(crate) async fn reject(mut transport: impl FramedTransport, told: &RpcError) {
    let output = SendQueue::new(0);
    let mut said = Vec::new();
    // Only then it is clear in which framing to answer.
    if let TransportEvent::Disconnected = poll_fn(|cx| transport.poll_next(cx, &mut said)).await {
        return;
    }
    transport.framing().write(&mut said, &told.to_response(None, Version::UNSPECIFIED));
    output.write_batch(&mut said);
    flush_and_close(&mut transport, &output, CloseReason::Closed).await;
}

/// Why nothing more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseReason {
    /// We go.
    Shutdown,
    EndOfInput,
    Closed,
    Disconnected,
}

/// One client. When it is dropped, wherever that is, its calls end.
struct Pipe<'m, T: FramedTransport, M> {
    transport: T,
    conversation: Conversation<SendQueue>,
    monitor: &'m M,
    mid_message: bool,
    /// Answers that go out together.
    batch: Vec<u8>,
}

/// Answers are gathered up to this before they are written, as long as there is more to read.
const BATCH_BYTES: usize = 64 << 10;

/// So many messages are taken at one look: a client that sends without a pause is not the only one.
const MESSAGES_PER_POLL: usize = 64;

impl<T: FramedTransport, M: ConnectionMonitor> Pipe<'_, T, M> {
    /// Takes in and writes out what can be.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let mut left = MESSAGES_PER_POLL;
        loop {
            let full = self.conversation.sink.is_full();
            let got = if full { Poll::Pending } else { self.transport.poll_next(cx, &mut self.batch) };
            let idle = got.is_pending();
            let last = match got {
                Poll::Pending | Poll::Ready(TransportEvent::Control) => None,
                Poll::Ready(TransportEvent::Frame(frame)) => {
                    self.conversation.sink.framing.set(self.transport.framing());
                    let then = self.conversation.handle_frame(frame, &mut self.batch);
                    (then == AfterFrame::Close).then_some(CloseReason::Closed)
                }
                Poll::Ready(TransportEvent::EndOfInput) => Some(CloseReason::EndOfInput),
                Poll::Ready(TransportEvent::Closed) => Some(CloseReason::Closed),
                Poll::Ready(TransportEvent::Disconnected) => return Poll::Ready(CloseReason::Disconnected),
            };
            left = left.saturating_sub(1);
            if !idle && last.is_none() && left > 0 && self.batch.len() < BATCH_BYTES {
                continue;
            }
            if last == Some(CloseReason::Closed) {
                self.conversation.sink.finish(&mut self.batch);
            } else {
                self.conversation.sink.write_batch(&mut self.batch);
            }
            self.report_phase();
            self.send_notifications(cx);
            match self.conversation.sink.poll_flush(cx, self.transport.io()) {
                Poll::Ready(Err(_)) => return Poll::Ready(CloseReason::Disconnected),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            if let Some(last) = last {
                return Poll::Ready(last);
            }
            // Whoever was not read from because its queue was full may have made room.
            if idle && (!full || self.conversation.sink.is_full()) {
                return Poll::Pending;
            }
            if full {
                self.monitor.on_read_resumed();
            }
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Tells what changed. News that nobody has room for stay with the watch, which keeps each once.
    fn send_notifications(&self, cx: &mut Context<'_>) {
        while !self.conversation.sink.is_full()
            && let Poll::Ready(Some(news)) = self.conversation.state.subscription.poll_next(cx)
        {
            self.conversation.notify(&news);
        }
    }

    /// A message that has begun must come to its end in time.
    fn report_phase(&mut self) {
        let within = self.transport.is_mid_message();
        if within != self.mid_message {
            self.mid_message = within;
            if within { self.monitor.on_message_start() } else { self.monitor.on_idle(T::IDLE_POLICY) }
        }
    }

    /// Writes what is still answered after the last message.
    async fn drain(&mut self) {
        self.conversation.begin_shutdown();
        let Self { conversation: talk, transport, .. } = self;
        let mut calm = pin!(talk.state.wait_until_idle());
        let settled = poll_fn(|cx| {
            let flushed = talk.sink.poll_flush(cx, transport.io());
            if let Poll::Ready(Err(_)) = flushed { Poll::Ready(()) } else { calm.as_mut().poll(cx) }
        });
        if timeout(SHUTDOWN_GRACE, settled).await.is_err() {
            tracing::debug!("calls were cancelled because the client stopped sending");
        }
    }
}

/// Writes what is left and closes. What still arrives is thrown away: a socket that is closed over unread
/// bytes is reset, and the other side may lose what it was told last.
async fn flush_and_close<T: FramedTransport>(transport: &mut T, output: &SendQueue, last: CloseReason) {
    let closed = async {
        poll_fn(|cx| output.poll_flush(cx, transport.io())).await?;
        poll_fn(|cx| transport.io().poll_shutdown(cx)).await
    };
    if !matches!(timeout(SHUTDOWN_GRACE, closed).await, Ok(Ok(()))) || last == CloseReason::EndOfInput {
        return;
    }
    let mut waste = [0; 4096];
    let left = poll_fn(|cx| {
        for _ in 0..MESSAGES_PER_POLL {
            let mut waste = ReadBuf::new(&mut waste);
            match transport.io().poll_read(cx, &mut waste) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !waste.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    // Whoever neither closes nor stops sending is closed on.
    let _ = timeout(SHUTDOWN_GRACE, left).await;
}

impl<T: FramedTransport, M> Drop for Pipe<'_, T, M> {
    fn drop(&mut self) {
        self.conversation.state.close();
        self.conversation.sink.close();
    }
}
