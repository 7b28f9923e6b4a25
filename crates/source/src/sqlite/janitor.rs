//! Lets go of the states that idle connections keep, when nobody comes to read them any more.
//!
//! One thread for a pool, begun when a state is kept for the first time. It looks every few milliseconds while
//! something is kept or read, waits without a clock when nothing is, and ends with its pool. Who reads tells it
//! only when it waits, so that no read but the first of many makes a system call for it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::pool::{Shared, State};

/// A state is let go at most this long after its time. Under load that is some hundred looks in a second, each
/// of which finds that the readers themselves have seen to it.
const LOOK_EVERY: Duration = Duration::from_millis(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Janitor {
    /// Nothing was ever kept.
    Unborn,
    /// The system gives us no thread, so nothing may be kept.
    Refused,
    /// Nothing is kept. Whoever brings a connection that keeps something wakes it.
    Asleep,
    Awake,
}

impl Janitor {
    /// Whether there is one, or can be.
    pub(super) fn is_there(&mut self, shared: &Arc<Shared>) -> bool {
        if *self == Self::Unborn {
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new().name("sqlite".to_owned());
            let begun = thread.spawn(move || run(&shared));
            *self = if begun.is_ok() { Self::Awake } else { Self::Refused };
        }
        *self != Self::Refused
    }
}

fn run(shared: &Shared) {
    let mut state = shared.lock();
    while !state.is_closed {
        state = match state.janitor {
            Janitor::Awake => {
                let waited = shared.kept.wait_timeout(state, LOOK_EVERY);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            Janitor::Asleep | Janitor::Unborn | Janitor::Refused => {
                shared.kept.wait(state).unwrap_or_else(PoisonError::into_inner)
            }
        };
        let_go(&mut state, Instant::now());
        // One that is lent may come back with a state.
        let is_any_lent = state.open > state.idle.len();
        if !is_any_lent && state.idle.iter().all(|session| session.kept_until().is_none()) {
            state.janitor = Janitor::Asleep;
        }
    }
}

fn let_go(state: &mut State, now: Instant) {
    let before = state.idle.len();
    state.idle.retain_mut(|session| match session.kept_until() {
        Some(until) if until <= now => session.let_go().is_ok(),
        Some(_) | None => true,
    });
    state.open -= before - state.idle.len();
}
