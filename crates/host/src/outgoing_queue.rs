//! The bounded queue of messages for an HTTP+SSE stream.
//!
//! An HTTP+SSE stream cannot be resumed: when it ends, the connection ends. A client that does not read loses
//! notifications first, then its next POST is refused ([`OutgoingQueue::is_full`]), and at twice the limit the
//! connection is closed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub struct OutgoingQueue {
    state: Mutex<QueueState>,
    events_max: usize,
    bytes_max: usize,
}

#[derive(Default)]
struct QueueState {
    queue: VecDeque<Vec<u8>>,
    bytes: usize,
    closed: bool,
    waker: Option<Waker>,
}

impl OutgoingQueue {
    pub(crate) fn new(events_max: usize, bytes_max: usize) -> Self {
        Self { state: Mutex::default(), events_max, bytes_max }
    }

    /// For connections without an HTTP+SSE stream: nothing is ever put into it.
    pub(crate) fn disabled() -> Self {
        Self::new(0, 0)
    }

    /// A message that must arrive.
    pub fn send(&self, body: Vec<u8>) {
        let mut state = self.lock();
        if self.is_at_capacity(&state, 2) {
            state.closed = true;
            (state.queue, state.bytes) = (VecDeque::new(), 0);
            tracing::debug!("client does not read its HTTP+SSE stream; closing the connection");
        } else if !state.closed {
            state.bytes += body.len();
            state.queue.push_back(body);
        }
        wake(state);
    }

    /// A message that is dropped when the queue is full.
    pub fn send_notification(&self, body: Vec<u8>) {
        if !self.is_full() {
            self.send(body);
        }
    }

    /// Whether the queue has reached its limit.
    pub fn is_full(&self) -> bool {
        self.is_at_capacity(&self.lock(), 1)
    }

    /// Whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether the queue holds `times` its limit.
    fn is_at_capacity(&self, state: &QueueState, times: usize) -> bool {
        state.queue.len() >= self.events_max * times || state.bytes >= self.bytes_max * times
    }

    /// The next message; `None` once the connection is closed.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(None);
        }
        match state.queue.pop_front() {
            Some(body) => {
                state.bytes -= body.len();
                Poll::Ready(Some(body))
            }
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Wakes the reader: the connection may have become idle while shutting down.
    pub(crate) fn wake_reader(&self) {
        wake(self.lock());
    }

    /// Closes the queue and drops its messages.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        (state.queue, state.bytes) = (VecDeque::new(), 0);
        wake(state);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes outside the lock: a waker may call back into the queue.
fn wake(mut state: MutexGuard<'_, QueueState>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::OutgoingQueue;

    /// `s` sends, `n` sends a notification, `r` reads, each one byte; then the messages left, whether the queue is
    /// full, and whether it is closed.
    fn check(script: &str, left: usize, full: bool, closed: bool) {
        let queue = OutgoingQueue::new(2, 1 << 20);
        let mut cx = Context::from_waker(Waker::noop());
        for step in script.chars() {
            match step {
                's' => queue.send(vec![0]),
                'n' => queue.send_notification(vec![0]),
                _ => _ = queue.poll_next(&mut cx),
            }
        }
        assert_eq!(queue.is_full(), full, "{script}");
        let mut read = 0;
        let end = loop {
            match queue.poll_next(&mut cx) {
                Poll::Ready(Some(_)) => read += 1,
                end => break end,
            }
        };
        assert_eq!((read, end), (left, if closed { Poll::Ready(None) } else { Poll::Pending }), "{script}");
    }

    #[test]
    fn notifications_are_dropped_at_the_limit_and_the_queue_closes_at_twice_the_limit() {
        check("", 0, false, false);
        check("s", 1, false, false);
        check("ss", 2, true, false);
        check("ssn", 2, true, false);
        check("ssrn", 2, true, false);
        check("ssss", 4, true, false);
        check("sssss", 0, false, true);
        check("sssssssr", 0, false, true);
        check("ssssrs", 4, true, false);
        check("nnnnnnnn", 2, true, false);
    }

    #[test]
    fn one_message_may_exceed_the_byte_limit() {
        let queue = OutgoingQueue::new(8, 10);
        queue.send(vec![0; 1000]);
        assert!(queue.is_full());
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(queue.poll_next(&mut cx), Poll::Ready(Some(vec![0; 1000])));
        assert!(!queue.is_full());
        queue.send(vec![0; 15]);
        queue.send(vec![0; 15]);
        assert!(matches!(queue.poll_next(&mut cx), Poll::Ready(Some(_))), "below twice the limit");
        queue.close();
        assert_eq!(queue.poll_next(&mut cx), Poll::Ready(None));
        queue.send(vec![0]);
        assert_eq!(queue.poll_next(&mut cx), Poll::Ready(None), "a closed queue has no messages");
    }
}
