//! How quickly the calls of a program end, and so where its next one runs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::EngineLimits;

/// A quick call may hold the thread of its connection for this long. The wall clock says so first, then the thread's
/// processor time: a busy machine is not the program's fault.
pub(super) const HELD_MAX: Duration = Duration::from_millis(10);
/// How many calls are measured after one that seemed long.
const SUSPECTED_CALLS: u32 = 1000;
/// Every call that was not quick after all makes the next trial longer by this factor.
const TRIAL_FACTOR: u32 = 4;

/// What is known of a program's calls. Shared by all threads, and not exact.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Calls in a row that ended at once.
    quick_calls: AtomicU32,
    /// How many of them it takes.
    quick_calls_min: AtomicU32,
    /// Whether a context for it is loaded in a moment, and has nothing that cannot be interrupted.
    may_load: AtomicBool,
    suspected_calls: AtomicU32,
}

impl Pace {
    /// A program that may do what cannot be interrupted is never quick.
    pub(crate) fn new(may_be_quick: bool) -> Self {
        Self {
            quick_calls: AtomicU32::new(0),
            quick_calls_min: AtomicU32::new(if may_be_quick { 1 } else { u32::MAX }),
            may_load: AtomicBool::new(false),
            suspected_calls: AtomicU32::new(0),
        }
    }

    /// Whether its next call is likely to end at once. `quick_calls_min` multiplies the length of a trial.
    pub(crate) fn is_quick(&self, quick_calls_min: u32) -> bool {
        let min = self.quick_calls_min.load(Relaxed).saturating_mul(quick_calls_min);
        min != u32::MAX && self.quick_calls.load(Relaxed) >= min && self.may_load.load(Relaxed)
    }

    /// A context was loaded, in this processor time. Big integers of its modules cannot be kept from its calls.
    pub(super) fn loaded(&self, took: Duration, has_big_integers: bool, limits: &EngineLimits) {
        let is_short = took <= Duration::from_millis(limits.quick_load_ms_max);
        self.may_load.store(is_short && !has_big_integers, Relaxed);
    }

    /// A call ran on a script thread, for this processor time.
    pub(super) fn ran(&self, took: Duration, has_ended: bool, limits: &EngineLimits) {
        if has_ended && took <= Duration::from_millis(limits.quick_call_ms_max) {
            let more = |calls: u32| Some(calls.saturating_add(1));
            let _ = self.quick_calls.fetch_update(Relaxed, Relaxed, more);
        } else {
            self.quick_calls.store(0, Relaxed);
        }
    }

    /// A quick call was not: it started over on a script thread, or held its thread for too long.
    pub(super) fn was_slow(&self) {
        self.quick_calls.store(0, Relaxed);
        let longer = |min: u32| Some(min.saturating_mul(TRIAL_FACTOR));
        let _ = self.quick_calls_min.fetch_update(Relaxed, Relaxed, longer);
    }

    /// Whether the processor time of the next quick call is to be measured.
    pub(super) fn is_suspected(&self) -> bool {
        self.suspected_calls.load(Relaxed) > 0
    }

    /// A quick call ended. `cpu` is its processor time, if it was measured.
    pub(super) fn ran_quickly(&self, wall: Duration, cpu: Option<Duration>) {
        match cpu {
            Some(cpu) if cpu > HELD_MAX => self.was_slow(),
            Some(_) => {
                let fewer = |calls: u32| Some(calls.saturating_sub(1));
                let _ = self.suspected_calls.fetch_update(Relaxed, Relaxed, fewer);
            }
            None if wall > HELD_MAX => self.suspected_calls.store(SUSPECTED_CALLS, Relaxed),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u32 = 16;
    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_millis(30);

    fn after_trial(calls: u32) -> Pace {
        let pace = Pace::new(true);
        pace.loaded(SHORT, false, &EngineLimits::default());
        try_calls(&pace, calls);
        pace
    }

    fn try_calls(pace: &Pace, calls: u32) {
        let limits = EngineLimits::default();
        (0..calls).for_each(|_| pace.ran(SHORT, true, &limits));
    }

    #[test]
    fn a_program_is_quick_once_enough_calls_in_a_row_were() {
        assert!(!after_trial(MIN - 1).is_quick(MIN));
        assert!(after_trial(MIN).is_quick(MIN));
        for (took, has_ended) in [(LONG, true), (SHORT, false)] {
            let pace = after_trial(MIN - 1);
            pace.ran(took, has_ended, &EngineLimits::default());
            try_calls(&pace, 1);
            assert!(!pace.is_quick(MIN), "{took:?} {has_ended}");
        }
    }

    #[test]
    fn a_program_that_cannot_be_interrupted_or_loads_slowly_is_never_quick() {
        let pace = Pace::new(false);
        pace.loaded(SHORT, false, &EngineLimits::default());
        try_calls(&pace, 1000);
        assert!(!pace.is_quick(MIN) && !pace.is_quick(1));
        let pace = after_trial(1000);
        pace.loaded(LONG, false, &EngineLimits::default());
        assert!(!pace.is_quick(MIN));
        pace.loaded(SHORT, true, &EngineLimits::default());
        assert!(!pace.is_quick(MIN));
        assert!(!after_trial(1000).is_quick(u32::MAX), "switched off");
    }

    #[test]
    fn each_slow_call_makes_the_next_trial_longer() {
        let pace = after_trial(MIN);
        pace.was_slow();
        try_calls(&pace, MIN * TRIAL_FACTOR - 1);
        assert!(!pace.is_quick(MIN));
        try_calls(&pace, 1);
        assert!(pace.is_quick(MIN));
        (0..100).for_each(|_| pace.was_slow());
        try_calls(&pace, 100_000);
        assert!(!pace.is_quick(MIN));
    }

    #[test]
    fn the_processor_time_decides_whether_a_call_that_seemed_long_was() {
        let pace = after_trial(MIN);
        pace.ran_quickly(LONG, None);
        assert!(pace.is_suspected() && pace.is_quick(MIN));
        pace.ran_quickly(LONG, Some(SHORT));
        assert!(pace.is_suspected() && pace.is_quick(MIN), "the machine was busy");
        pace.ran_quickly(LONG, Some(LONG));
        assert!(!pace.is_quick(MIN));
        (0..SUSPECTED_CALLS).for_each(|_| pace.ran_quickly(SHORT, Some(SHORT)));
        assert!(!pace.is_suspected());
    }
}
