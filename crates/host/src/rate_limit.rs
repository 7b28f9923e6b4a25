//! Rate limits: a number of calls per period, for each caller and for all callers together.
//!
//! The generic cell rate algorithm (GCRA) keeps one timestamp, the theoretical arrival time. A call moves it forward by
//! one interval; it may not get further ahead of now than the burst. A caller who has not called for a while may spend
//! the whole burst at once, and then gets one call per interval.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use spile_core::RateLimit;

use crate::caller_key::CallerKey;
use crate::server::CallerIdentity;

/// Beyond this number new callers share one limit, so that a flood of callers cannot fill the memory.
const TRACKED_CALLERS_MAX: usize = 10_000;
/// Callers with a full burst are forgotten, at most this often.
const SWEEP_INTERVAL_MS: u64 = 1000;

/// The rate limits of one tool.
pub(crate) struct RateLimiter {
    per_caller: Option<Arc<PerCallerLimit>>,
    /// Shared by all callers and all tools of the provider.
    shared: Option<Arc<SharedLimit>>,
}

/// A refused call, and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimited {
    pub(crate) retry_after_ms: u64,
}

impl RateLimiter {
    /// Continues to count where `previous` left off if the rate is the same: a reload does not reset the limit.
    pub(crate) fn new(
        per_caller: Option<RateLimit>,
        shared: Option<&Arc<SharedLimit>>,
        previous: Option<&Self>,
    ) -> Option<Box<Self>> {
        if per_caller.is_none() && shared.is_none() {
            return None;
        }
        let per_caller = per_caller.map(|rate| {
            let reused = previous
                .and_then(|limiter| limiter.per_caller.as_ref())
                .filter(|per_caller| per_caller.params == GcraParams::new(rate));
            reused.cloned().unwrap_or_else(|| Arc::new(PerCallerLimit::new(rate)))
        });
        Some(Box::new(Self { per_caller, shared: shared.cloned() }))
    }

    /// Counts one call of this caller, or refuses it. A refused call does not count against the shared limit.
    pub(crate) fn try_acquire(&self, identity: &CallerIdentity, now_ms: u64) -> Result<(), RateLimited> {
        let shared = || self.shared.as_ref().map_or(Ok(()), |shared| shared.try_acquire(now_ms));
        match &self.per_caller {
            Some(per_caller) => per_caller.try_acquire(CallerKey::new(identity), now_ms, shared),
            None => shared(),
        }
    }
}

/// A rate in nanoseconds: the interval between calls, and the burst allowed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GcraParams {
    interval_ns: u64,
    burst_ns: u64,
}

impl GcraParams {
    /// Rounds up, so that the rate is never exceeded.
    fn new(rate: RateLimit) -> Self {
        let calls = u64::from(rate.calls.max(1));
        let interval_ns = rate.per_ms.saturating_mul(1_000_000).div_ceil(calls).max(1);
        Self { interval_ns, burst_ns: interval_ns.saturating_mul(calls) }
    }

    /// The theoretical arrival time after one more call.
    fn advance(self, used_until_ns: u64, now_ms: u64) -> Result<u64, RateLimited> {
        let now_ns = now_ms.saturating_mul(1_000_000);
        let limit_ns = now_ns.saturating_add(self.burst_ns);
        // Further ahead than possible: the clock was set back. Start again from now, so that no caller waits for it.
        let used_until_ns = if used_until_ns > limit_ns { now_ns } else { used_until_ns.max(now_ns) };
        let next = used_until_ns.saturating_add(self.interval_ns);
        if next > limit_ns {
            return Err(RateLimited { retry_after_ms: (next - limit_ns).div_ceil(1_000_000) });
        }
        Ok(next)
    }
}

/// One limit for all callers.
pub(crate) struct SharedLimit {
    params: GcraParams,
    theoretical_arrival_ns: Mutex<u64>,
}

impl SharedLimit {
    pub(crate) fn new(rate: RateLimit) -> Self {
        Self { params: GcraParams::new(rate), theoretical_arrival_ns: Mutex::new(0) }
    }

    /// Reuses `previous` if the rate is the same.
    pub(crate) fn new_or_reuse(rate: RateLimit, previous: Option<&Arc<Self>>) -> Arc<Self> {
        let reused = previous.filter(|shared| shared.params == GcraParams::new(rate));
        reused.cloned().unwrap_or_else(|| Arc::new(Self::new(rate)))
    }

    fn try_acquire(&self, now_ms: u64) -> Result<(), RateLimited> {
        let mut arrival_ns = lock(&self.theoretical_arrival_ns);
        *arrival_ns = self.params.advance(*arrival_ns, now_ms)?;
        Ok(())
    }
}

/// A limit for each caller.
struct PerCallerLimit {
    params: GcraParams,
    arrivals: Mutex<CallerArrivals>,
}

#[derive(Default)]
struct CallerArrivals {
    /// Under `None`: all callers beyond [`TRACKED_CALLERS_MAX`].
    theoretical_arrival_ns: HashMap<Option<CallerKey>, u64, foldhash::quality::RandomState>,
    last_sweep_ms: u64,
}

impl PerCallerLimit {
    fn new(rate: RateLimit) -> Self {
        Self { params: GcraParams::new(rate), arrivals: Mutex::default() }
    }

    /// Counts one call if `shared_check` allows it too.
    fn try_acquire(
        &self,
        caller: CallerKey,
        now_ms: u64,
        shared_check: impl FnOnce() -> Result<(), RateLimited>,
    ) -> Result<(), RateLimited> {
        let mut caller = Some(caller);
        let mut callers = lock(&self.arrivals);
        let mut arrival_ns = callers.theoretical_arrival_ns.get(&caller).copied();
        if arrival_ns.is_none() && callers.theoretical_arrival_ns.len() >= TRACKED_CALLERS_MAX {
            callers.sweep(now_ms);
            if callers.theoretical_arrival_ns.len() >= TRACKED_CALLERS_MAX {
                caller = None;
                arrival_ns = callers.theoretical_arrival_ns.get(&caller).copied();
            }
        }
        let next = self.params.advance(arrival_ns.unwrap_or(0), now_ms)?;
        shared_check()?;
        callers.theoretical_arrival_ns.insert(caller, next);
        Ok(())
    }
}

impl CallerArrivals {
    /// Forgets callers with a full burst: they equal callers who never called.
    fn sweep(&mut self, now_ms: u64) {
        if now_ms.abs_diff(self.last_sweep_ms) < SWEEP_INTERVAL_MS {
            return;
        }
        self.last_sweep_ms = now_ms;
        let now_ns = now_ms.saturating_mul(1_000_000);
        self.theoretical_arrival_ns.retain(|_, used_until_ns| *used_until_ns > now_ns);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use spile_core::Principal;

    use super::*;

    const NOON_MS: u64 = 1_785_196_800_000;

    fn limiter(per_caller: Option<(u32, u64)>, shared: Option<(u32, u64)>) -> Box<RateLimiter> {
        let rate = |(calls, per_ms)| RateLimit { calls, per_ms };
        let shared = shared.map(|shared| Arc::new(SharedLimit::new(rate(shared))));
        RateLimiter::new(per_caller.map(rate), shared.as_ref(), None).expect("a limit is declared")
    }

    fn named(name: &str) -> CallerIdentity {
        CallerIdentity {
            principal: Principal::local(name).expect("a short name"),
            address: None,
            request_head: None,
        }
    }

    fn anonymous(address: impl Into<IpAddr>) -> CallerIdentity {
        CallerIdentity { principal: Principal::Anonymous, address: Some(address.into()), request_head: None }
    }

    /// Calls as (caller, milliseconds after noon, expected `retry_after_ms`); 0 means allowed.
    #[track_caller]
    fn check(limiter: &RateLimiter, calls: &[(&CallerIdentity, u64, u64)]) {
        for (index, (identity, after_ms, wait_ms)) in calls.iter().enumerate() {
            let retry_after_ms = limiter
                .try_acquire(identity, NOON_MS + after_ms)
                .map_or_else(|limited| limited.retry_after_ms, |()| 0);
            assert_eq!(retry_after_ms, *wait_ms, "call {index}, {after_ms} ms after noon");
        }
    }

    #[test]
    fn a_caller_may_spend_the_burst_at_once_and_then_one_call_per_interval() {
        let ada = named("ada");
        check(
            &limiter(Some((3, 3000)), None),
            &[
                (&ada, 0, 0),
                (&ada, 0, 0),
                (&ada, 0, 0),
                (&ada, 0, 1000),
                (&ada, 400, 600),
                (&ada, 999, 1),
                (&ada, 1000, 0),
                (&ada, 1000, 1000),
                // The burst is full again, and not more than full.
                (&ada, 99_000, 0),
                (&ada, 99_000, 0),
                (&ada, 99_000, 0),
                (&ada, 99_000, 1000),
            ],
        );
    }

    #[test]
    fn an_interval_that_does_not_divide_is_rounded_up() {
        let ada = named("ada");
        let one = limiter(Some((7, 1000)), None);
        let passed = (0..10_000).filter(|ms| one.try_acquire(&ada, NOON_MS + ms).is_ok()).count();
        // Seven at once, then seven per second for ten seconds, minus the one whose interval is not over.
        assert_eq!(passed, 7 + 69);
    }

    #[test]
    fn each_caller_has_a_limit_of_its_own() {
        let (ada, bea) = (named("ada"), named("bea"));
        let (here, there) = (anonymous(Ipv4Addr::LOCALHOST), anonymous(Ipv4Addr::new(10, 0, 0, 1)));
        let unknown = CallerIdentity::default();
        let callers = [&ada, &bea, &here, &there, &unknown];
        let first = callers.map(|identity| (identity, 0, 0));
        let second = callers.map(|identity| (identity, 0, 60_000));
        let one = limiter(Some((1, 60_000)), None);
        check(&one, &first);
        check(&one, &second);
    }

    #[test]
    fn an_ipv6_network_is_one_caller_and_a_mapped_ipv4_address_counts_as_ipv4() {
        let v6 = |last| anonymous(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        let other = anonymous(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1));
        let mapped = anonymous(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        let plain = anonymous(Ipv4Addr::new(10, 0, 0, 1));
        let one = limiter(Some((1, 1000)), None);
        check(&one, &[(&v6(1), 0, 0), (&v6(2), 0, 1000), (&other, 0, 0), (&mapped, 0, 0), (&plain, 0, 1000)]);
    }

    #[test]
    fn the_shared_limit_holds_for_all_and_a_refused_call_does_not_count() {
        let (ada, bea) = (named("ada"), named("bea"));
        check(
            &limiter(Some((1, 1000)), Some((2, 10_000))),
            &[
                (&ada, 0, 0),
                // Refused by her own limit: the shared limit still has one call left.
                (&ada, 0, 1000),
                (&bea, 0, 0),
                // Refused by the shared limit, which does not count against her own.
                (&ada, 1000, 4000),
                (&ada, 5000, 0),
            ],
        );
        check(&limiter(None, Some((1, 1000))), &[(&ada, 0, 0), (&bea, 0, 1000), (&bea, 1000, 0)]);
    }

    #[test]
    fn a_clock_set_back_does_not_block_callers() {
        let ada = named("ada");
        let one = limiter(Some((2, 2000)), None);
        check(
            &one,
            &[(&ada, 3_600_000, 0), (&ada, 3_600_000, 0), (&ada, 0, 0), (&ada, 0, 0), (&ada, 0, 1000)],
        );
    }

    #[test]
    fn the_number_of_tracked_callers_is_bounded() {
        let one = limiter(Some((1, 10_000)), None);
        for n in 0..TRACKED_CALLERS_MAX as u32 {
            check(&one, &[(&anonymous(Ipv4Addr::from(n)), 0, 0)]);
        }
        let late = |n: u32| anonymous(Ipv4Addr::from(0x0a00_0000 + n));
        // New callers share one limit; tracked callers keep their own.
        check(&one, &[(&late(1), 1, 0), (&late(2), 1, 10_000), (&anonymous(Ipv4Addr::from(5)), 1, 9_999)]);
        let per_caller = one.per_caller.as_ref().expect("declared");
        assert_eq!(lock(&per_caller.arrivals).theoretical_arrival_ns.len(), TRACKED_CALLERS_MAX + 1);
        // Callers whose burst is full again are forgotten, so new callers are tracked again.
        check(&one, &[(&late(3), 10_000, 0), (&late(4), 10_000, 0)]);
        assert_eq!(lock(&per_caller.arrivals).theoretical_arrival_ns.len(), 3);
    }

    #[test]
    fn a_reload_with_the_same_rate_does_not_reset_the_limit() {
        let ada = named("ada");
        let rate = |calls| Some(RateLimit { calls, per_ms: 60_000 });
        let old = RateLimiter::new(rate(1), None, None).expect("declared");
        check(&old, &[(&ada, 0, 0)]);
        let same = RateLimiter::new(rate(1), None, Some(&old)).expect("declared");
        check(&same, &[(&ada, 0, 60_000)]);
        let other = RateLimiter::new(rate(2), None, Some(&old)).expect("declared");
        check(&other, &[(&ada, 0, 0)]);
        let shared = SharedLimit::new_or_reuse(RateLimit { calls: 1, per_ms: 1000 }, None);
        assert!(Arc::ptr_eq(
            &shared,
            &SharedLimit::new_or_reuse(RateLimit { calls: 1, per_ms: 1000 }, Some(&shared))
        ));
        assert!(!Arc::ptr_eq(
            &shared,
            &SharedLimit::new_or_reuse(RateLimit { calls: 1, per_ms: 1001 }, Some(&shared))
        ));
        assert!(RateLimiter::new(None, None, Some(&old)).is_none());
    }

    #[test]
    fn a_rate_of_zero_counts_as_one() {
        let ada = named("ada");
        check(&limiter(Some((0, 1000)), None), &[(&ada, 0, 0), (&ada, 0, 1000)]);
        check(&limiter(Some((1, 0)), None), &[(&ada, 0, 0), (&ada, 0, 1), (&ada, 1, 0)]);
        check(&limiter(Some((u32::MAX, u64::MAX)), None), &[(&ada, 0, 0)]);
    }
}
