//! A pipe over a connection: what stdio does with threads, the connection's own task does here.
//!
//! The task reads and decodes messages, polls each call once and answers what is ready; it writes when no
//! complete message is left to read. Only calls that must wait get a task of their own. When the send queue of
//! a client that does not read is full, the task stops reading from it. The connection tracker closes it after
//! the write stall timeout.

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
use wire::error::{ErrorCode, RpcError};
use wire::frame::{Frame, Framing};

use crate::conversation::{AfterFrame, Conversation, MessageSink as _};
use crate::http::{IdlePolicy, RequestReservation, TOO_MANY_REQUEST_BYTES, UNCOUNTED_BYTES_MAX};
use crate::shutdown_signal::ShutdownSignal;
pub(crate) use byte_stream::ByteStream;
pub(crate) use send_queue::SendQueue;

/// A stream of frames and control events over one connection.
pub(crate) trait FramedTransport {
    type Io: AsyncRead + AsyncWrite;
    /// How long the client may be silent between two messages.
    const IDLE_POLICY: IdlePolicy;

    fn io(&mut self) -> Pin<&mut Self::Io>;

    fn framing(&self) -> Framing;

    /// Whether a message has begun to arrive and is not complete.
    fn is_mid_message(&self) -> bool;

    /// How many bytes of an incomplete message have arrived.
    fn buffered_bytes(&self) -> usize;

    /// The next event. Appends the transport's own control frames to `outgoing`.
    fn poll_next(&mut self, cx: &mut Context<'_>, outgoing: &mut Vec<u8>) -> Poll<TransportEvent>;

    /// Appends the frame that tells the client that the server is shutting down.
    fn append_close_frame(&mut self, outgoing: &mut Vec<u8>);
}

/// Watches the timeouts of a pipe and tells it when to shut down.
pub(crate) trait ConnectionMonitor {
    /// The connection is a pipe from now on.
    fn on_pipe_start(&self, policy: IdlePolicy);

    /// Whether the pipe must shut down. Wakes the first caller when that changes.
    fn is_shutting_down(&self, cx: &Context<'_>) -> bool;

    /// The pipe is between two messages.
    fn on_idle(&self, policy: IdlePolicy);

    /// The first bytes of a message have arrived.
    fn on_message_start(&self);

    /// Reading continues after a full send queue; the silence meanwhile was not the client's fault.
    fn on_read_resumed(&self);

    /// How many bytes wait in the send queue.
    fn on_queued_bytes(&self, bytes: usize);

    /// Counts an incomplete message in the budget of the process, if there is one.
    fn reserve_incomplete_message(&self, bytes: usize) -> Option<RequestReservation>;
}

/// A pipe without timeouts.
impl ConnectionMonitor for ShutdownSignal {
    fn on_pipe_start(&self, _: IdlePolicy) {}

    fn is_shutting_down(&self, cx: &Context<'_>) -> bool {
        self.is_triggered(cx)
    }

    fn on_idle(&self, _: IdlePolicy) {}

    fn on_message_start(&self) {}

    fn on_read_resumed(&self) {}

    fn on_queued_bytes(&self, _: usize) {}

    fn reserve_incomplete_message(&self, _: usize) -> Option<RequestReservation> {
        None
    }
}

/// What a framed transport received.
pub(crate) enum TransportEvent {
    Frame(Frame),
    /// A control frame, handled by the transport.
    Control,
    /// The client sends nothing more, but still reads responses.
    EndOfInput,
    /// The connection is closing: no more responses, but the queued ones must still arrive.
    Closed,
    /// The client is gone.
    Disconnected,
}

/// After the last message, running calls have this long to finish. The client has as long again to read the
/// last responses, and to close.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Serves one client at the other end of `io`, framed as lines or with headers, until it disconnects.
///
/// There are no timeouts, so the client must be trusted: code in this process.
pub async fn serve(server: Arc<Server>, io: impl AsyncRead + AsyncWrite + Unpin) {
    let lines = ByteStream::new(io, server.limits.message_bytes_max);
    run(lines, server, CallerIdentity::default(), &ShutdownSignal::default(), Duration::ZERO).await;
}

/// Serves one client until it disconnects or we shut down. Running calls then have `drain` to finish.
pub(crate) async fn run<T: FramedTransport>(
    transport: T,
    server: Arc<Server>,
    identity: CallerIdentity,
    monitor: &impl ConnectionMonitor,
    drain: Duration,
) {
    let output = SendQueue::new(server.limits.stream_bytes_max);
    output.framing.set(transport.framing());
    let conversation = Conversation::new(server, identity, output, Handle::current());
    let mut pipe =
        Pipe { transport, conversation, monitor, mid_message: false, reservation: None, batch: Vec::new() };
    monitor.on_pipe_start(T::IDLE_POLICY);
    let last = poll_fn(|cx| match monitor.is_shutting_down(cx) {
        true => Poll::Ready(CloseReason::Shutdown),
        false => pipe.poll(cx),
    });
    let mut last = last.await;
    if last == CloseReason::Shutdown {
        pipe.conversation.begin_shutdown();
        let state = pipe.conversation.state.clone();
        let mut until_idle = pin!(state.wait_until_idle());
        let settled = poll_fn(|cx| match until_idle.as_mut().poll(cx) {
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

/// Answers the first message with an error and closes.
pub(crate) async fn reject(mut transport: impl FramedTransport, error: &RpcError) {
    let output = SendQueue::new(0);
    let mut outgoing = Vec::new();
    // The first message shows which framing to answer in.
    if let TransportEvent::Disconnected = poll_fn(|cx| transport.poll_next(cx, &mut outgoing)).await {
        return;
    }
    transport.framing().write(&mut outgoing, &error.to_response(None, Version::UNSPECIFIED));
    output.write_batch(&mut outgoing);
    flush_and_close(&mut transport, &output, CloseReason::Closed).await;
}

/// Why the pipe stopped reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseReason {
    /// The server is shutting down.
    Shutdown,
    EndOfInput,
    Closed,
    Disconnected,
}

/// One client. Dropping it cancels its calls.
struct Pipe<'m, T: FramedTransport, M: ConnectionMonitor> {
    transport: T,
    conversation: Conversation<SendQueue>,
    monitor: &'m M,
    mid_message: bool,
    reservation: Option<RequestReservation>,
    /// Responses that are written together.
    batch: Vec<u8>,
}

/// Responses are batched up to this size while there is more to read.
const BATCH_BYTES: usize = 64 << 10;

/// Messages handled per poll, so that one busy client does not starve the others.
const MESSAGES_PER_POLL: usize = 64;

impl<T: FramedTransport, M: ConnectionMonitor> Pipe<'_, T, M> {
    /// Reads, handles and writes as much as possible without waiting.
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
            if self.is_message_dropped(cx) {
                self.conversation.append_error(ErrorCode::Busy, TOO_MANY_REQUEST_BYTES, &mut self.batch);
                self.conversation.sink.finish(&mut self.batch);
                return Poll::Ready(CloseReason::Closed);
            }
            self.send_notifications(cx);
            match self.conversation.sink.poll_flush(cx, self.transport.io()) {
                Poll::Ready(Err(_)) => return Poll::Ready(CloseReason::Disconnected),
                Poll::Ready(Ok(())) => self.monitor.on_queued_bytes(0),
                Poll::Pending => self.monitor.on_queued_bytes(self.conversation.sink.len()),
            }
            if let Some(last) = last {
                return Poll::Ready(last);
            }
            // The queue was full and may have room now.
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

    /// Sends change notifications. Without room, changes stay in the subscription, which keeps each of them once.
    fn send_notifications(&self, cx: &mut Context<'_>) {
        while !self.conversation.sink.is_full()
            && let Poll::Ready(Some(event)) = self.conversation.state.subscription.poll_next(cx)
        {
            self.conversation.notify(&event);
        }
    }

    /// Tells the monitor when a message starts and ends: a started message must be complete in time.
    fn report_phase(&mut self) {
        let mid_message = self.transport.is_mid_message();
        if mid_message != self.mid_message {
            self.mid_message = mid_message;
            if mid_message { self.monitor.on_message_start() } else { self.monitor.on_idle(T::IDLE_POLICY) }
        }
    }

    /// Whether the incomplete message must be dropped because the process is over its budget.
    fn is_message_dropped(&mut self, cx: &Context<'_>) -> bool {
        let bytes = if self.mid_message { self.transport.buffered_bytes() } else { 0 };
        match &self.reservation {
            _ if bytes <= UNCOUNTED_BYTES_MAX => self.reservation = None,
            Some(reservation) => reservation.set(bytes, tokio::time::Instant::now()),
            None => self.reservation = self.monitor.reserve_incomplete_message(bytes),
        }
        self.reservation.as_ref().is_some_and(|reservation| reservation.is_dropped(cx))
    }

    /// Writes the responses of calls that finish after the last message.
    async fn drain(&mut self) {
        self.conversation.begin_shutdown();
        let Self { conversation, transport, .. } = self;
        let mut until_idle = pin!(conversation.state.wait_until_idle());
        let settled = poll_fn(|cx| {
            let flushed = conversation.sink.poll_flush(cx, transport.io());
            if let Poll::Ready(Err(_)) = flushed { Poll::Ready(()) } else { until_idle.as_mut().poll(cx) }
        });
        if timeout(SHUTDOWN_GRACE, settled).await.is_err() {
            tracing::debug!("calls were cancelled because the client stopped sending");
        }
    }
}

/// Writes the rest of the queue and closes. Reads and discards what still arrives: closing a socket with unread
/// bytes resets it, and the client may lose the last responses.
async fn flush_and_close<T: FramedTransport>(transport: &mut T, output: &SendQueue, last: CloseReason) {
    let closed = async {
        poll_fn(|cx| output.poll_flush(cx, transport.io())).await?;
        poll_fn(|cx| transport.io().poll_shutdown(cx)).await
    };
    if !matches!(timeout(SHUTDOWN_GRACE, closed).await, Ok(Ok(()))) || last == CloseReason::EndOfInput {
        return;
    }
    let mut discarded = [0; 4096];
    let left = poll_fn(|cx| {
        for _ in 0..MESSAGES_PER_POLL {
            let mut discarded = ReadBuf::new(&mut discarded);
            match transport.io().poll_read(cx, &mut discarded) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !discarded.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    // A client that neither closes nor stops sending is cut off.
    let _ = timeout(SHUTDOWN_GRACE, left).await;
}

impl<T: FramedTransport, M: ConnectionMonitor> Drop for Pipe<'_, T, M> {
    fn drop(&mut self) {
        self.conversation.state.close();
        self.conversation.sink.close();
        self.monitor.on_queued_bytes(0);
    }
}
