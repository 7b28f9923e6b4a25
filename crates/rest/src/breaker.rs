//! A circuit breaker and a rate limit: what keeps a source from being asked too often.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::manifest::RateLimit;

/// After so many failures in a row nothing is sent for a while.
const FAILURES_MAX: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Stops requests to a host that does not answer, and to an endpoint that fails. After a pause, one request finds out whether it
/// works again.
///
/// An endpoint that fails says nothing about the others: a response is a sign of life of the host, whatever its status is.
#[derive(Default)]
pub(crate) struct Breaker {
    state: Mutex<BreakerState>,
    /// Whether something began to fail or works again, since somebody last asked.
    has_changed: AtomicBool,
}

#[derive(Default)]
struct BreakerState {
    host: Circuit,
    /// Those whose last response was a failure. There are no more of them than templates in the manifest.
    endpoints: BTreeMap<String, Circuit>,
}

#[derive(Default)]
struct Circuit {
    failures: u32,
    pause: Duration,
    retry_at: Option<Instant>,
    /// The last failure, for the operator.
    detail: String,
}

/// Nothing is sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Open {
    /// Whether nothing is sent to the whole host.
    pub(crate) is_host: bool,
    /// The last failure.
    pub(crate) detail: String,
}

impl Circuit {
    fn is_open(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|retry_at| now < retry_at)
    }

    /// The request that is sent now finds out; others wait for its result.
    fn begin_probe(&mut self, now: Instant) {
        if self.retry_at.is_some() {
            self.retry_at = Some(now + self.pause);
        }
    }

    fn failed(&mut self, now: Instant, detail: &str) {
        self.failures = self.failures.saturating_add(1);
        self.detail = detail.to_owned();
        if self.failures >= FAILURES_MAX {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.retry_at = Some(now + with_jitter(self.pause));
        }
    }
}

impl BreakerState {
    /// What fails: the host, or an endpoint again and again.
    fn failure(&self) -> Option<String> {
        if self.host.failures > 0 {
            return Some(format!("the API does not answer: {}", self.host.detail));
        }
        let failing = self.endpoints.values().find(|circuit| circuit.failures >= FAILURES_MAX)?;
        Some(format!("an endpoint of the API fails: {}", failing.detail))
    }
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, update: impl FnOnce(&mut BreakerState)) {
        let mut state = self.state();
        let did_fail = state.failure().is_some();
        update(&mut state);
        if did_fail != state.failure().is_some() {
            self.has_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something began to fail or works again, since the last time this was asked.
    pub(crate) fn take_change(&self) -> bool {
        self.has_changed.swap(false, Ordering::Relaxed)
    }

    /// Whether a request may be sent now.
    pub(crate) fn check(&self, endpoint: &str, now: Instant) -> Result<(), Open> {
        let mut state = self.state();
        let BreakerState { host, endpoints } = &mut *state;
        let mut endpoint = endpoints.get_mut(endpoint);
        // First both: a probe of the one must not be used up where the other refuses.
        if host.is_open(now) {
            return Err(Open { is_host: true, detail: host.detail.clone() });
        }
        if let Some(open) = endpoint.as_ref().filter(|circuit| circuit.is_open(now)) {
            return Err(Open { is_host: false, detail: open.detail.clone() });
        }
        host.begin_probe(now);
        if let Some(circuit) = &mut endpoint {
            circuit.begin_probe(now);
        }
        Ok(())
    }

    /// The endpoint has answered, and not with a failure of its own.
    pub(crate) fn succeeded(&self, endpoint: &str) {
        self.update(|state| {
            state.host = Circuit::default();
            state.endpoints.remove(endpoint);
        });
    }

    /// There was no answer.
    pub(crate) fn unreachable(&self, now: Instant, detail: &str) {
        self.update(|state| state.host.failed(now, detail));
    }

    /// The endpoint has answered with a failure.
    pub(crate) fn endpoint_failed(&self, endpoint: &str, now: Instant, status: u16) {
        self.update(|state| {
            state.host = Circuit::default();
            let circuit = state.endpoints.entry(endpoint.to_owned()).or_default();
            circuit.failed(now, &format!("`{endpoint}` answers with status {status}"));
        });
    }

    /// The last failure, if nothing succeeded since: of the host, or of an endpoint that fails again and again.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state().failure()
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

    fn refused() -> Result<(), Open> {
        Err(Open { is_host: true, detail: "refused".to_owned() })
    }

    const ORDERS: &str = "GET /orders";
    const USERS: &str = "GET /users/{id}";

    #[test]
    fn a_host_that_does_not_answer_is_left_alone_for_a_while() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..FAILURES_MAX {
            assert_eq!(breaker.check(ORDERS, start), Ok(()));
            breaker.unreachable(start, "refused");
        }
        assert_eq!(breaker.check(ORDERS, start), refused());
        assert_eq!(breaker.check(USERS, start), refused(), "it is the same host");
        let later = start + PAUSE_MAX;
        assert_eq!(breaker.check(USERS, later), Ok(()), "one request finds out");
        assert_eq!(breaker.check(ORDERS, later), refused(), "and no other");
        assert!(breaker.take_change() && !breaker.take_change(), "it is told once");
        breaker.succeeded(USERS);
        assert_eq!((breaker.check(ORDERS, later), breaker.failure()), (Ok(()), None));
        assert!(breaker.take_change());
        breaker.succeeded(USERS);
        assert!(!breaker.take_change(), "nothing is new");
    }

    #[test]
    fn an_endpoint_that_fails_is_left_alone_and_the_others_are_not() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        for failures in 1..=FAILURES_MAX {
            assert_eq!(breaker.check(ORDERS, start), Ok(()));
            breaker.endpoint_failed(ORDERS, start, 500);
            breaker.succeeded(USERS);
            assert_eq!(breaker.failure().is_some(), failures == FAILURES_MAX, "one failure says little");
        }
        let detail = "`GET /orders` answers with status 500".to_owned();
        assert_eq!(breaker.failure(), Some(format!("an endpoint of the API fails: {detail}")));
        let open = Open { is_host: false, detail };
        assert_eq!((breaker.check(ORDERS, start), breaker.check(USERS, start)), (Err(open.clone()), Ok(())));
        let later = start + PAUSE_MAX;
        assert_eq!(breaker.check(ORDERS, later), Ok(()), "one request finds out");
        assert_eq!(breaker.check(ORDERS, later), Err(open), "and no other");
        breaker.succeeded(ORDERS);
        assert_eq!((breaker.check(ORDERS, later), breaker.failure()), (Ok(()), None));
    }

    #[test]
    fn a_host_that_is_down_does_not_use_up_the_probe_of_an_endpoint() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..FAILURES_MAX {
            breaker.endpoint_failed(ORDERS, start, 503);
        }
        let later = start + PAUSE_MAX;
        for _ in 0..FAILURES_MAX {
            breaker.unreachable(later, "refused");
        }
        assert_eq!(breaker.check(ORDERS, later), refused());
        // Any answer is one of the host.
        breaker.endpoint_failed(USERS, later, 500);
        assert_eq!(breaker.check(ORDERS, later), Ok(()));
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
