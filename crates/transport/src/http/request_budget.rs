//! Bytes of incomplete request messages, counted for the whole process.
//!
//! A message has a size limit and a time limit, but many clients that each send a large message slowly would
//! together hold any amount of memory. When all incomplete messages exceed the budget, the ones that hold most for
//! longest are dropped: an honest client is done before it gets there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// Smaller messages are not counted: as much as a connection needs anyway.
pub(crate) const UNCOUNTED_BYTES_MAX: usize = 16 << 10;

pub(crate) struct RequestBudget {
    bytes_max: usize,
    state: Mutex<BudgetState>,
}

#[derive(Default)]
struct BudgetState {
    bytes: usize,
    /// By slot; free slots are reused.
    messages: Vec<Option<IncompleteMessage>>,
    free_slots: Vec<usize>,
}

struct IncompleteMessage {
    bytes: usize,
    started_at: Instant,
    dropped: bool,
    /// Wakes the task that receives the message.
    receiver: Option<Waker>,
}

impl IncompleteMessage {
    /// How much memory it has held for how long.
    fn cost(&self, now: Instant) -> u128 {
        let held = now.saturating_duration_since(self.started_at) + Duration::from_millis(1);
        self.bytes as u128 * held.as_nanos()
    }
}

/// The share of one incomplete message. Dropping it returns the bytes.
pub(crate) struct RequestReservation {
    budget: Arc<RequestBudget>,
    slot: usize,
}

impl RequestBudget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Starts to count a message of which `bytes` have arrived.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize, now: Instant) -> RequestReservation {
        let message = Some(IncompleteMessage { bytes: 0, started_at: now, dropped: false, receiver: None });
        let mut state = self.lock();
        let slot = match state.free_slots.pop() {
            Some(slot) => {
                state.messages[slot] = message;
                slot
            }
            None => {
                state.messages.push(message);
                state.messages.len() - 1
            }
        };
        drop(state);
        let reservation = RequestReservation { budget: self.clone(), slot };
        reservation.set(bytes, now);
        reservation
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetState {
    /// Drops messages until the rest fits, and a little more, so that the next byte does not start this again.
    fn shrink(&mut self, bytes_max: usize, now: Instant) {
        let mut costs: Vec<(u128, usize)> = Vec::new();
        for (slot, message) in self.messages.iter().enumerate() {
            if let Some(message) = message
                && !message.dropped
                && message.bytes > 0
            {
                costs.push((message.cost(now), slot));
            }
        }
        costs.sort_unstable_by(|a, b| b.cmp(a));
        for (_, slot) in costs {
            if self.bytes <= bytes_max - bytes_max / 8 {
                return;
            }
            if let Some(message) = &mut self.messages[slot] {
                message.dropped = true;
                // Its task frees the memory as soon as it runs.
                self.bytes -= std::mem::take(&mut message.bytes);
                if let Some(receiver) = message.receiver.take() {
                    receiver.wake();
                }
            }
        }
    }
}

impl RequestReservation {
    /// Sets how many bytes of the message have arrived.
    pub(crate) fn set(&self, bytes: usize, now: Instant) {
        let mut state = self.budget.lock();
        let state = &mut *state;
        if let Some(message) = &mut state.messages[self.slot]
            && !message.dropped
        {
            state.bytes = state.bytes - message.bytes + bytes;
            message.bytes = bytes;
        }
        if state.bytes > self.budget.bytes_max {
            state.shrink(self.budget.bytes_max, now);
        }
    }

    /// Whether the message must be dropped. Wakes the task when that changes.
    pub(crate) fn is_dropped(&self, cx: &Context<'_>) -> bool {
        match &mut self.budget.lock().messages[self.slot] {
            Some(message) => {
                message.receiver = Some(cx.waker().clone());
                message.dropped
            }
            None => false,
        }
    }
}

impl Drop for RequestReservation {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        if let Some(message) = state.messages[self.slot].take() {
            state.bytes -= message.bytes;
        }
        state.free_slots.push(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::RequestBudget;

    #[test]
    fn messages_that_hold_most_for_longest_are_dropped_first() {
        let cx = Context::from_waker(Waker::noop());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let budget = Arc::new(RequestBudget::new(1000));
        let slow = budget.reserve(300, at(0));
        let large = budget.reserve(500, at(5));
        let small = budget.reserve(10, at(0));
        assert!(!slow.is_dropped(&cx) && !large.is_dropped(&cx) && !small.is_dropped(&cx));
        let fast = budget.reserve(300, at(10));
        assert!(slow.is_dropped(&cx), "300 bytes for 10 s");
        assert!(!large.is_dropped(&cx) && !small.is_dropped(&cx) && !fast.is_dropped(&cx));
        assert_eq!(budget.bytes(), 810);
        slow.set(900, at(10));
        assert_eq!(budget.bytes(), 810, "a dropped message no longer counts");
        drop((slow, large, fast));
        assert_eq!(budget.bytes(), 10);
        let again = budget.reserve(900, at(20));
        assert!(!again.is_dropped(&cx), "slots are reused as new");
        drop((small, again));
        assert_eq!(budget.bytes(), 0);
    }
}
