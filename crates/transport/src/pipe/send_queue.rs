//! The way out of a pipe that never blocks: a bounded queue that the connection's own task empties.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;

use crate::conversation::{AtomicFraming, MessageSink};

pub(crate) struct SendQueue {
    pub(crate) framing: AtomicFraming,
    /// What may wait for a client that does not read. Beyond it nothing more is read from that client, calls
    /// wait with their answers, and notices are dropped.
    bytes_max: usize,
    state: Mutex<QueueState>,
}

/// `at..` of `queue` is what is still to be written.
#[derive(Default)]
struct QueueState {
    queue: Vec<u8>,
    written: usize,
    /// Whether the last words are in it, or nobody is there: nothing is taken any more.
    closed: bool,
    /// Who writes.
    writer: Option<Waker>,
    /// Who has something to send and waits for room: calls under way, so no more than there may be.
    waiting_senders: Vec<Waker>,
}

/// A queue that was longer gives back its room once it is empty.
const RETAINED_BYTES_MAX: usize = 16 << 10;

impl SendQueue {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { framing: AtomicFraming::default(), bytes_max, state: Mutex::default() })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().pending_bytes() > self.bytes_max
    }

    /// Writes as much as can be written; ready when nothing is left. Wakes for whatever is sent later.
    pub(crate) fn poll_flush(
        &self,
        cx: &mut Context<'_>,
        mut io: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        let QueueState { queue, written: at, .. } = &mut *state;
        while *at < queue.len() {
            let written = match io.as_mut().poll_write(cx, &queue[*at..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(written) => written?,
                Poll::Pending => {
                    self.after_write(state, cx);
                    return Poll::Pending;
                }
            };
            *at += written;
        }
        queue.clear();
        *at = 0;
        queue.shrink_to(RETAINED_BYTES_MAX);
        self.after_write(state, cx);
        // A stream that gathers what it writes is told that this is all.
        let flushed = ready!(io.poll_flush(cx));
        Poll::Ready(flushed)
    }

    fn after_write(&self, mut state: MutexGuard<'_, QueueState>, cx: &Context<'_>) {
        if state.written > state.queue.len() / 2 {
            let at = std::mem::take(&mut state.written);
            state.queue.drain(..at);
        }
        match &state.writer {
            Some(old) if old.will_wake(cx.waker()) => {}
            _ => state.writer = Some(cx.waker().clone()),
        }
        if state.pending_bytes() <= self.bytes_max {
            let waiting = std::mem::take(&mut state.waiting_senders);
            drop(state);
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Writes these as the last: a call that has its answer only now comes too late.
    pub(crate) fn finish(&self, last: &mut Vec<u8>) {
        let mut state = self.lock();
        state.queue.append(last);
        Self::mark_closed(state);
    }

    /// The client is gone: nothing is kept for it any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        (state.queue, state.written) = (Vec::new(), 0);
        Self::mark_closed(state);
    }

    fn mark_closed(mut state: MutexGuard<'_, QueueState>) {
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting_senders);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
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

    /// Only the connection's own task calls this, and it flushes before it waits: nobody has to be woken.
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
