//! Ends the snapshots of idle connections when no read uses them any more.
//!
//! One thread for each pool, started with the first snapshot. It checks every few milliseconds while there
//! are snapshots or reads, waits without a timeout when there are none, and ends with its pool. Readers wake
//! it only when it is idle, so only the first read of many makes a system call for it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::sqlite::connection::pool::{PoolShared, PoolState};

/// A snapshot ends at most this long after it expired. Under load that is a few hundred checks per second,
/// most of which find nothing to do.
const REAP_INTERVAL: Duration = Duration::from_millis(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SnapshotReaper {
    /// No snapshot was ever kept.
    NotStarted,
    /// The system refused to start a thread, so no snapshot may be kept.
    Unavailable,
    /// There are no snapshots. Returning a connection with one wakes the thread.
    Idle,
    Active,
}

impl SnapshotReaper {
    /// Starts the thread if needed. `false` if there is none.
    pub(crate) fn ensure_started(&mut self, shared: &Arc<PoolShared>) -> bool {
        if *self == Self::NotStarted {
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new().name("sqlite".to_owned());
            let spawned = thread.spawn(move || run(&shared));
            *self = if spawned.is_ok() { Self::Active } else { Self::Unavailable };
        }
        *self != Self::Unavailable
    }
}

fn run(shared: &PoolShared) {
    let mut state = shared.lock();
    while !state.is_closed {
        state = match state.reaper {
            SnapshotReaper::Active => {
                let result = shared.reaper_wakeup.wait_timeout(state, REAP_INTERVAL);
                result.unwrap_or_else(PoisonError::into_inner).0
            }
            SnapshotReaper::Idle | SnapshotReaper::NotStarted | SnapshotReaper::Unavailable => {
                shared.reaper_wakeup.wait(state).unwrap_or_else(PoisonError::into_inner)
            }
        };
        release_expired(&mut state, Instant::now());
        // A lent connection may come back with a snapshot.
        let is_any_lent = state.open_count > state.idle.len();
        if !is_any_lent && state.idle.iter().all(|connection| connection.snapshot_until().is_none()) {
            state.reaper = SnapshotReaper::Idle;
        }
    }
}

fn release_expired(state: &mut PoolState, now: Instant) {
    let before = state.idle.len();
    state.idle.retain_mut(|connection| match connection.snapshot_until() {
        Some(until) if until <= now => connection.end_snapshot().is_ok(),
        Some(_) | None => true,
    });
    state.open_count -= before - state.idle.len();
}
