//! A circuit breaker and a rate limit: what keeps a source from being asked too often.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::manifest::RateLimit;

/// After so many failures in a row nothing is sent for a while.
const FAILURES_MAX: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Stops requests to a host that does not answer. After a pause, one request finds out whether it does again.
#[derive(Default)]
pub(crate) struct Breaker(Mutex<BreakerState>);

#[derive(Default)]
struct BreakerState {
    failures: u32,
    pause: Duration,
    retry_at: Option<Instant>,
    /// The last failure, for the operator.
    detail: String,
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request may be sent now; otherwise the last failure.
    pub(crate) fn check(&self, now: Instant) -> Result<(), String> {
        let mut state = self.state();
        match state.retry_at {
            Some(retry_at) if now < retry_at => Err(state.detail.clone()),
            // This request finds out; others wait for its result.
            Some(_) => {
                state.retry_at = Some(now + state.pause);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn succeeded(&self) {
        *self.state() = BreakerState::default();
    }

    pub(crate) fn failed(&self, now: Instant, detail: &str) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        state.detail = detail.to_owned();
        if state.failures >= FAILURES_MAX {
            state.pause = (state.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            state.retry_at = Some(now + with_jitter(state.pause));
        }
    }

    /// The last failure, if nothing succeeded since.
    pub(crate) fn failure(&self) -> Option<String> {
        let state = self.state();
        (state.failures > 0).then(|| state.detail.clone())
    }
}

/// Between half of it and all of it, so that many servers do not come back at the same moment.
pub(crate) fn with_jitter(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1000;
    pause.mul_f64(0.5 + random as f64 / 2000.0)
}

/// Spaces requests evenly.
pub(crate) struct Pacer {
    interval: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pacer {
    pub(crate) fn new(limit: Option<RateLimit>) -> Self {
        let interval =
            limit.map_or(Duration::ZERO, |limit| Duration::from_millis(limit.per_ms) / limit.calls.max(1));
        Self { interval, next: Mutex::default() }
    }

    /// Takes the next slot if it is no later than `wait_max` from now; otherwise says how far away it is.
    pub(crate) fn take_slot(&self, now: Instant, wait_max: Duration) -> Result<Duration, Duration> {
        if self.interval.is_zero() {
            return Ok(Duration::ZERO);
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = next.map_or(now, |next| next.max(now));
        let wait = slot - now;
        if wait > wait_max {
            return Err(wait);
        }
        *next = Some(slot + self.interval);
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_fails_is_left_alone_for_a_while() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..FAILURES_MAX {
            assert_eq!(breaker.check(start), Ok(()));
            breaker.failed(start, "refused");
        }
        assert_eq!(breaker.check(start), Err("refused".to_owned()));
        let later = start + PAUSE_MAX;
        assert_eq!(breaker.check(later), Ok(()), "one request finds out");
        assert_eq!(breaker.check(later), Err("refused".to_owned()), "and no other");
        breaker.succeeded();
        assert_eq!((breaker.check(later), breaker.failure()), (Ok(()), None));
    }

    #[test]
    fn requests_are_spaced_by_the_rate_limit() {
        let (pacer, now) = (Pacer::new(Some(RateLimit { calls: 10, per_ms: 1000 })), Instant::now());
        let slot =
            |wait_ms| pacer.take_slot(now, Duration::from_millis(wait_ms)).map_err(|wait| wait.as_millis());
        assert_eq!(slot(0), Ok(Duration::ZERO));
        assert_eq!(slot(1000), Ok(Duration::from_millis(100)));
        assert_eq!(slot(150), Err(200));
        assert_eq!(Pacer::new(None).take_slot(now, Duration::ZERO), Ok(Duration::ZERO));
    }
}
