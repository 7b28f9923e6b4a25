//! A bounded queue of outgoing bytes. Senders never block; the connection's own task writes the queue.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;

use crate::conversation::{AtomicFraming, MessageSink};

pub(crate) struct SendQueue {
    pub(crate) framing: AtomicFraming,
    /// How much may wait for a client that does not read. Above it the pipe stops reading from the client, calls
    /// wait with their responses, and notifications are dropped.
    bytes_max: usize,
    state: Mutex<QueueState>,
}

/// `queue[written..]` is still to be written.
#[derive(Default)]
struct QueueState {
    queue: Vec<u8>,
    written: usize,
    /// Whether the queue accepts no more messages: the last one is queued, or the client is gone.
    closed: bool,
    /// Wakes the task that writes.
    writer: Option<Waker>,
    /// Senders that wait for room. Each is a running call, so their number is bounded.
    waiting_senders: Vec<Waker>,
}

/// An empty queue keeps at most this much capacity.
const RETAINED_BYTES_MAX: usize = 16 << 10;

impl SendQueue {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { framing: AtomicFraming::default(), bytes_max, state: Mutex::default() })
    }

    /// Bytes that wait to be written.
    pub(crate) fn len(&self) -> usize {
        self.lock().pending_bytes()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().pending_bytes() > self.bytes_max
    }

    /// Writes as much as possible; ready when the queue is empty. Wakes again for messages sent later.
    pub(crate) fn poll_flush(
        &self,
        cx: &mut Context<'_>,
        mut io: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        let QueueState { queue, written: start, .. } = &mut *state;
        while *start < queue.len() {
            let written = match io.as_mut().poll_write(cx, &queue[*start..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(written) => written?,
                Poll::Pending => {
                    self.after_write(state, cx);
                    return Poll::Pending;
                }
            };
            *start += written;
        }
        queue.clear();
        *start = 0;
        queue.shrink_to(RETAINED_BYTES_MAX);
        self.after_write(state, cx);
        // A buffering stream must write now.
        let flushed = ready!(io.poll_flush(cx));
        Poll::Ready(flushed)
    }

    fn after_write(&self, mut state: MutexGuard<'_, QueueState>, cx: &Context<'_>) {
        if state.written > state.queue.len() / 2 {
            let start = std::mem::take(&mut state.written);
            state.queue.drain(..start);
        }
        match &state.writer {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => state.writer = Some(cx.waker().clone()),
        }
        if state.pending_bytes() <= self.bytes_max {
            let senders = std::mem::take(&mut state.waiting_senders);
            drop(state);
            senders.into_iter().for_each(Waker::wake);
        }
    }

    /// Queues the last bytes. Responses that come later are dropped.
    pub(crate) fn finish(&self, last: &mut Vec<u8>) {
        let mut state = self.lock();
        state.queue.append(last);
        Self::mark_closed(state);
    }

    /// Drops the queue, because the client is gone.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        (state.queue, state.written) = (Vec::new(), 0);
        Self::mark_closed(state);
    }

    fn mark_closed(mut state: MutexGuard<'_, QueueState>) {
        state.closed = true;
        let senders = std::mem::take(&mut state.waiting_senders);
        drop(state);
        senders.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn pending_bytes(&self) -> usize {
        self.queue.len() - self.written
    }
}

impl MessageSink for SendQueue {
    #[inline]
    fn append(&self, batch: &mut Vec<u8>, message: Vec<u8>) {
        self.framing.get().write(batch, &message);
    }

    /// Only the connection's own task calls this, and it flushes before it waits: no wake-up is needed.
    fn write_batch(self: &Arc<Self>, batch: &mut Vec<u8>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.queue.is_empty() {
            std::mem::swap(&mut state.queue, batch);
        } else {
            state.queue.extend_from_slice(batch);
        }
        batch.clear();
    }

    fn send(self: &Arc<Self>, message: Vec<u8>) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        self.append(&mut state.queue, message);
        if let Some(writer) = &state.writer {
            writer.wake_by_ref();
        }
    }

    fn send_lossy(self: &Arc<Self>, message: Vec<u8>) {
        if !self.is_full() {
            self.send(message);
        }
    }

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.closed || state.pending_bytes() <= self.bytes_max {
            return Poll::Ready(());
        }
        state.waiting_senders.push(cx.waker().clone());
        Poll::Pending
    }
}
