//! Waits until a file that is being written has settled, so that it is read once and whole.

use std::time::{Duration, Instant};

use crate::stamp::TIME_STEP;

/// A change must stay as it is for this long before it is read. As long as the longest step of file times, so that two
/// changes do not share a stamp.
pub const SETTLE_TIME: Duration = TIME_STEP;
/// What keeps changing is read after this time.
pub const SETTLE_TIME_MAX: Duration = Duration::from_secs(2);

/// The state of a change that may not be complete. `S` is a stamp, or all stamps of a project.
#[derive(Debug)]
pub struct Debounce<S> {
    pending: Option<PendingChange<S>>,
}

#[derive(Debug)]
struct PendingChange<S> {
    state: S,
    same_since: Instant,
    changing_since: Instant,
}

impl<S> Default for Debounce<S> {
    fn default() -> Self {
        Self { pending: None }
    }
}

impl<S: PartialEq + Clone> Debounce<S> {
    /// Call at every poll that finds a state other than the one that was read. Returns whether to read it now.
    ///
    /// `is_recent`: another change could still leave the state as it is ([`FileStamp::is_recent`]), which takes long
    /// where times are coarse.
    ///
    /// [`FileStamp::is_recent`]: crate::FileStamp::is_recent
    pub fn is_settled(&mut self, state: &S, is_recent: bool, now: Instant) -> bool {
        let pending = self.pending.get_or_insert_with(|| PendingChange {
            state: state.clone(),
            same_since: now,
            changing_since: now,
        });
        if pending.state != *state {
            pending.state = state.clone();
            pending.same_since = now;
        }
        let is_stable = now.saturating_duration_since(pending.same_since) >= SETTLE_TIME && !is_recent;
        is_stable || now.saturating_duration_since(pending.changing_since) >= SETTLE_TIME_MAX
    }

    /// Call when the state was read, and when it is again the one that was read.
    pub fn reset(&mut self) {
        self.pending = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Debounce, SETTLE_TIME, SETTLE_TIME_MAX};

    /// Each step: milliseconds after the start, the state, and whether it is settled.
    fn check(steps: &[(u64, &str, bool)]) {
        let (mut debounce, start) = (Debounce::default(), Instant::now());
        for (ms, state, expected) in steps {
            let is_settled = debounce.is_settled(state, false, start + Duration::from_millis(*ms));
            assert_eq!(is_settled, *expected, "after {ms} ms: {state}");
        }
    }

    #[test]
    fn a_change_settles_when_it_stays_as_it_is() {
        check(&[(0, "a", false), (20, "a", false), (49, "a", false), (50, "a", true), (900, "a", true)]);
    }

    #[test]
    fn every_further_change_starts_again() {
        check(&[
            (0, "a", false),
            (40, "b", false),
            (80, "a", false),
            (129, "a", false),
            (130, "a", true),
            (140, "c", false),
        ]);
    }

    #[test]
    fn what_never_settles_is_read_after_the_maximum() {
        let max_ms = u64::try_from(SETTLE_TIME_MAX.as_millis()).expect("small");
        let (mut debounce, start) = (Debounce::default(), Instant::now());
        for ms in (0..max_ms).step_by(20) {
            assert!(!debounce.is_settled(&ms, false, start + Duration::from_millis(ms)), "after {ms} ms");
        }
        assert!(debounce.is_settled(&max_ms, false, start + SETTLE_TIME_MAX));
        // The next change waits again.
        debounce.reset();
        assert!(!debounce.is_settled(&1, false, start + SETTLE_TIME_MAX));
        assert!(debounce.is_settled(&1, false, start + SETTLE_TIME_MAX + SETTLE_TIME));
    }

    #[test]
    fn a_recent_state_does_not_settle_before_the_maximum() {
        let (mut debounce, start) = (Debounce::default(), Instant::now());
        assert!(!debounce.is_settled(&"a", true, start));
        assert!(!debounce.is_settled(&"a", true, start + SETTLE_TIME));
        assert!(debounce.is_settled(&"a", false, start + SETTLE_TIME));
        assert!(debounce.is_settled(&"a", true, start + SETTLE_TIME_MAX));
    }

    #[test]
    fn a_debounce_does_not_settle_while_the_clock_stands_still() {
        let (mut debounce, now) = (Debounce::default(), Instant::now());
        assert!((0..100).all(|_| !debounce.is_settled(&"a", false, now)));
    }
}
