//! Lets go of the states that idle connections keep, when nobody comes to read them any more.
//!
//! One thread for a pool, begun when a state is kept for the first time. It looks every few milliseconds while
//! something is kept or read, waits without a clock when nothing is, and ends with its pool. Who reads tells it
//! only when it waits, so that no read but the first of many makes a system call for it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::pool::{PoolShared, PoolState};

/// A state is let go at most this long after its time. Under load that is some hundred looks in a second, each
/// of which finds that the readers themselves have seen to it.
const REAP_INTERVAL: Duration = Duration::from_millis(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotReaper {
    /// Nothing was ever kept.
    NotStarted,
    /// The system gives us no thread, so nothing may be kept.
    Unavailable,
    /// Nothing is kept. Whoever brings a connection that keeps something wakes it.
    Idle,
    Active,
}

impl SnapshotReaper {
    /// Whether there is one, or can be.
    pub(super) fn ensure_started(&mut self, shared: &Arc<PoolShared>) -> bool {
        if *self == Self::NotStarted {
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new().name("sqlite".to_owned());
            let begun = thread.spawn(move || run(&shared));
            *self = if begun.is_ok() { Self::Active } else { Self::Unavailable };
        }
        *self != Self::Unavailable
    }
}

fn run(shared: &PoolShared) {
    let mut state = shared.lock();
    while !state.is_closed {
        state = match state.reaper {
            SnapshotReaper::Active => {
                let waited = shared.reaper_wakeup.wait_timeout(state, REAP_INTERVAL);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            SnapshotReaper::Idle | SnapshotReaper::NotStarted | SnapshotReaper::Unavailable => {
                shared.reaper_wakeup.wait(state).unwrap_or_else(PoisonError::into_inner)
            }
        };
        release_expired(&mut state, Instant::now());
        // One that is lent may come back with a state.
        let is_any_lent = state.open_count > state.idle.len();
        if !is_any_lent && state.idle.iter().all(|session| session.snapshot_until().is_none()) {
            state.reaper = SnapshotReaper::Idle;
        }
    }
}

fn release_expired(state: &mut PoolState, now: Instant) {
    let before = state.idle.len();
    state.idle.retain_mut(|session| match session.snapshot_until() {
        Some(until) if until <= now => session.end_snapshot().is_ok(),
        Some(_) | None => true,
    });
    state.open_count -= before - state.idle.len();
}
