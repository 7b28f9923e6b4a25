//! What waits to be said on the one stream that a client reads, where its messages come by other ways: HTTP+SSE.
//!
//! Nothing here is kept for a client that comes back: the stream is the line, and its end is the end. A client that
//! does not read loses notices first, then is asked to wait with its next message ([`Mail::is_full`]), and when
//! what is under way has as much again to say, the line is cut.

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

    /// For whoever has no such stream: nothing is ever put into it.
    pub(crate) fn disabled() -> Self {
        Self::new(0, 0)
    }

    /// A message that must arrive.
    pub fn send(&self, body: Vec<u8>) {
        let mut inner = self.lock();
        if self.is_at_capacity(&inner, 2) {
            inner.closed = true;
            (inner.queue, inner.bytes) = (VecDeque::new(), 0);
            tracing::debug!("a client does not read its stream; it is cut");
        } else if !inner.closed {
            inner.bytes += body.len();
            inner.queue.push_back(body);
        }
        wake(inner);
    }

    /// A message that may be lost on a client that does not read.
    pub fn send_notification(&self, body: Vec<u8>) {
        if !self.is_full() {
            self.send(body);
        }
    }

    /// Whether so much waits to be read that there should not be more.
    pub fn is_full(&self) -> bool {
        self.is_at_capacity(&self.lock(), 1)
    }

    /// Whether the line was cut.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// So many times what it may hold.
    fn is_at_capacity(&self, inner: &QueueState, times: usize) -> bool {
        inner.queue.len() >= self.events_max * times || inner.bytes >= self.bytes_max * times
    }

    /// The next message; `None` once the line is cut.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let mut inner = self.lock();
        if inner.closed {
            return Poll::Ready(None);
        }
        match inner.queue.pop_front() {
            Some(body) => {
                inner.bytes -= body.len();
                Poll::Ready(Some(body))
            }
            None => {
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whoever reads looks again: it may be the end.
    pub(crate) fn wake_reader(&self) {
        wake(self.lock());
    }

    /// Ends it; what waits is gone.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        (inner.queue, inner.bytes) = (VecDeque::new(), 0);
        wake(inner);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Outside the lock: a waker may come back to us.
fn wake(mut inner: MutexGuard<'_, QueueState>) {
    let waker = inner.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::OutgoingQueue;

    /// `s` sends, `n` is a notice, `r` reads, each of one byte; then what is left, whether it is full, and
    /// whether it was cut.
    fn check(script: &str, left: usize, full: bool, cut: bool) {
        let mail = OutgoingQueue::new(2, 1 << 20);
        let mut cx = Context::from_waker(Waker::noop());
        for act in script.chars() {
            match act {
                's' => mail.send(vec![0]),
                'n' => mail.send_notification(vec![0]),
                _ => _ = mail.poll_next(&mut cx),
            }
        }
        assert_eq!(mail.is_full(), full, "{script}");
        let mut read = 0;
        let end = loop {
            match mail.poll_next(&mut cx) {
                Poll::Ready(Some(_)) => read += 1,
                end => break end,
            }
        };
        assert_eq!((read, end), (left, if cut { Poll::Ready(None) } else { Poll::Pending }), "{script}");
    }

    #[test]
    fn notices_make_way_and_what_must_arrive_does_up_to_twice_as_much() {
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
    fn one_message_may_be_longer_than_all_may_be_together() {
        let mail = OutgoingQueue::new(8, 10);
        mail.send(vec![0; 1000]);
        assert!(mail.is_full());
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(mail.poll_next(&mut cx), Poll::Ready(Some(vec![0; 1000])));
        assert!(!mail.is_full());
        mail.send(vec![0; 15]);
        mail.send(vec![0; 15]);
        assert!(matches!(mail.poll_next(&mut cx), Poll::Ready(Some(_))), "below twice the bound");
        mail.close();
        assert_eq!(mail.poll_next(&mut cx), Poll::Ready(None));
        mail.send(vec![0]);
        assert_eq!(mail.poll_next(&mut cx), Poll::Ready(None), "nothing comes after the end");
    }
}
