//! How often: so many calls in so long a time, for each caller and for all together.
//!
//! The generic cell rate algorithm: one moment is kept, at which all that was taken so far would be used up.
//! A call moves it on by the time that one call is worth; it may not get further ahead of now than the whole
//! allowance. Whoever has not called for a while may spend everything at once, and then gets one at a time.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use spile_core::{Principal, RateLimit};

use crate::server::CallerIdentity;

/// More callers than this are not told apart: those who come too late share one allowance.
const TRACKED_CALLERS_MAX: usize = 10_000;
/// Those who have their whole allowance back are forgotten, no more often than this.
const SWEEP_INTERVAL_MS: u64 = 1000;

/// What stands before a tool, if anything does.
pub(crate) struct RateLimiter {
    /// For each caller.
    per_caller: Option<Arc<PerCallerLimit>>,
    /// For all callers, over all tools of the provider.
    shared: Option<Arc<SharedLimit>>,
}

/// So long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimited {
    pub(crate) retry_after_ms: u64,
}

impl RateLimiter {
    /// What was counted by the gate `before` goes on where the rate is the same: a new contract is no new
    /// allowance.
    pub(crate) fn new(
        each: Option<RateLimit>,
        all: Option<&Arc<SharedLimit>>,
        before: Option<&Self>,
    ) -> Option<Box<Self>> {
        if each.is_none() && all.is_none() {
            return None;
        }
        let each = each.map(|rate| {
            let kept = before
                .and_then(|gate| gate.per_caller.as_ref())
                .filter(|each| each.params == GcraParams::new(rate));
            kept.cloned().unwrap_or_else(|| Arc::new(PerCallerLimit::new(rate)))
        });
        Some(Box::new(Self { per_caller: each, shared: all.cloned() }))
    }

    /// Takes one call of this caller's, if there is one to take. A caller who is refused takes nothing from the
    /// others.
    pub(crate) fn try_acquire(&self, who: &CallerIdentity, now_ms: u64) -> Result<(), RateLimited> {
        let all = || self.shared.as_ref().map_or(Ok(()), |all| all.try_acquire(now_ms));
        match &self.per_caller {
            Some(each) => each.try_acquire(CallerKey::from_identity(who), now_ms, all),
            None => all(),
        }
    }
}

/// A rate in nanoseconds: what one call is worth, and how much may be taken at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GcraParams {
    interval_ns: u64,
    burst_ns: u64,
}

impl GcraParams {
    /// Rounded so that there is never more than was said.
    fn new(rate: RateLimit) -> Self {
        let calls = u64::from(rate.calls.max(1));
        let interval_ns = rate.per_ms.saturating_mul(1_000_000).div_ceil(calls).max(1);
        Self { interval_ns, burst_ns: interval_ns.saturating_mul(calls) }
    }

    /// The moment after one more call.
    fn advance(self, used_until_ns: u64, now_ms: u64) -> Result<u64, RateLimited> {
        let now_ns = now_ms.saturating_mul(1_000_000);
        let most_ns = now_ns.saturating_add(self.burst_ns);
        // Further ahead than it can get means that the clock was set back; nobody waits for that.
        let used_until_ns = if used_until_ns > most_ns { now_ns } else { used_until_ns.max(now_ns) };
        let next = used_until_ns.saturating_add(self.interval_ns);
        if next > most_ns {
            return Err(RateLimited { retry_after_ms: (next - most_ns).div_ceil(1_000_000) });
        }
        Ok(next)
    }
}

/// One allowance for everybody.
pub(crate) struct SharedLimit {
    params: GcraParams,
    theoretical_arrival_ns: Mutex<u64>,
}

impl SharedLimit {
    pub(crate) fn new(rate: RateLimit) -> Self {
        Self { params: GcraParams::new(rate), theoretical_arrival_ns: Mutex::new(0) }
    }

    /// Goes on with what was counted `before`, if the rate is the same.
    pub(crate) fn new_or_reuse(rate: RateLimit, before: Option<&Arc<Self>>) -> Arc<Self> {
        let kept = before.filter(|all| all.params == GcraParams::new(rate));
        kept.cloned().unwrap_or_else(|| Arc::new(Self::new(rate)))
    }

    fn try_acquire(&self, now_ms: u64) -> Result<(), RateLimited> {
        let mut used = lock(&self.theoretical_arrival_ns);
        *used = self.params.advance(*used, now_ms)?;
        Ok(())
    }
}

/// An allowance for each caller.
struct PerCallerLimit {
    params: GcraParams,
    arrivals: Mutex<CallerArrivals>,
}

#[derive(Default)]
struct CallerArrivals {
    theoretical_arrival_ns: HashMap<CallerKey, u64, foldhash::quality::RandomState>,
    last_sweep_ms: u64,
}

/// Who counts as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CallerKey {
    Named(Principal),
    /// Somebody who proved nothing. An address of IPv6 stands for its network: one machine has many of them.
    Anonymous(Option<IpAddr>),
    /// All who came when there were too many already.
    Overflow,
}

impl CallerKey {
    fn from_identity(who: &CallerIdentity) -> Self {
        match (&who.principal, who.address) {
            (Principal::Named(_), _) => Self::Named(who.principal.clone()),
            (Principal::Anonymous, Some(IpAddr::V6(address))) => match address.to_ipv4_mapped() {
                Some(address) => Self::Anonymous(Some(address.into())),
                None => {
                    let network = u128::from(address) & !u128::from(u64::MAX);
                    Self::Anonymous(Some(IpAddr::V6(network.into())))
                }
            },
            (Principal::Anonymous, address) => Self::Anonymous(address),
        }
    }
}

impl PerCallerLimit {
    fn new(rate: RateLimit) -> Self {
        Self { params: GcraParams::new(rate), arrivals: Mutex::default() }
    }

    /// If `also` agrees.
    fn try_acquire(
        &self,
        mut caller: CallerKey,
        now_ms: u64,
        also: impl FnOnce() -> Result<(), RateLimited>,
    ) -> Result<(), RateLimited> {
        let mut callers = lock(&self.arrivals);
        let mut used = callers.theoretical_arrival_ns.get(&caller).copied();
        if used.is_none() && callers.theoretical_arrival_ns.len() >= TRACKED_CALLERS_MAX {
            callers.sweep(now_ms);
            if callers.theoretical_arrival_ns.len() >= TRACKED_CALLERS_MAX {
                caller = CallerKey::Overflow;
                used = callers.theoretical_arrival_ns.get(&caller).copied();
            }
        }
        let next = self.params.advance(used.unwrap_or(0), now_ms)?;
        also()?;
        callers.theoretical_arrival_ns.insert(caller, next);
        Ok(())
    }
}

impl CallerArrivals {
    /// Forgets whoever has everything back: they are as if they had never called.
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
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const NOON_MS: u64 = 1_785_196_800_000;

    fn limiter(each: Option<(u32, u64)>, all: Option<(u32, u64)>) -> Box<RateLimiter> {
        let rate = |(calls, per_ms)| RateLimit { calls, per_ms };
        let all = all.map(|all| Arc::new(SharedLimit::new(rate(all))));
        RateLimiter::new(each.map(rate), all.as_ref(), None).expect("something is declared")
    }

    fn named(name: &str) -> CallerIdentity {
        CallerIdentity { principal: Principal::Named(name.into()), address: None }
    }

    fn anonymous(address: impl Into<IpAddr>) -> CallerIdentity {
        CallerIdentity { principal: Principal::Anonymous, address: Some(address.into()) }
    }

    /// Calls, each so long after noon, and what each is told: 0, or how long to wait.
    #[track_caller]
    fn check(gate: &RateLimiter, calls: &[(&CallerIdentity, u64, u64)]) {
        for (at, (who, after_ms, wait_ms)) in calls.iter().enumerate() {
            let told =
                gate.try_acquire(who, NOON_MS + after_ms).map_or_else(|wait| wait.retry_after_ms, |()| 0);
            assert_eq!(told, *wait_ms, "call {at}, {after_ms} ms after noon");
        }
    }

    #[test]
    fn everything_at_once_and_then_one_at_a_time() {
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
                // Back to everything, and to no more than that.
                (&ada, 99_000, 0),
                (&ada, 99_000, 0),
                (&ada, 99_000, 0),
                (&ada, 99_000, 1000),
            ],
        );
    }

    #[test]
    fn what_does_not_divide_is_rounded_to_less() {
        let ada = named("ada");
        let one = limiter(Some((7, 1000)), None);
        let passed = (0..10_000).filter(|ms| one.try_acquire(&ada, NOON_MS + ms).is_ok()).count();
        // Seven at once, and then seven in each of ten seconds but for the one that is not over.
        assert_eq!(passed, 7 + 69);
    }

    #[test]
    fn callers_do_not_spend_for_each_other() {
        let (ada, bea) = (named("ada"), named("bea"));
        let (here, there) = (anonymous(Ipv4Addr::LOCALHOST), anonymous(Ipv4Addr::new(10, 0, 0, 1)));
        let nobody = CallerIdentity::default();
        let all = [&ada, &bea, &here, &there, &nobody];
        let first = all.map(|who| (who, 0, 0));
        let second = all.map(|who| (who, 0, 60_000));
        let one = limiter(Some((1, 60_000)), None);
        check(&one, &first);
        check(&one, &second);
    }

    #[test]
    fn a_network_of_ipv6_is_one_caller_and_a_mapped_address_is_its_own() {
        let v6 = |last| anonymous(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        let other = anonymous(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1));
        let mapped = anonymous(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        let plain = anonymous(Ipv4Addr::new(10, 0, 0, 1));
        let one = limiter(Some((1, 1000)), None);
        check(&one, &[(&v6(1), 0, 0), (&v6(2), 0, 1000), (&other, 0, 0), (&mapped, 0, 0), (&plain, 0, 1000)]);
    }

    #[test]
    fn all_together_are_bounded_and_who_is_refused_takes_nothing() {
        let (ada, bea) = (named("ada"), named("bea"));
        check(
            &limiter(Some((1, 1000)), Some((2, 10_000))),
            &[
                (&ada, 0, 0),
                // Refused by her own limit: the second of the two is left for others.
                (&ada, 0, 1000),
                (&bea, 0, 0),
                // Refused by the limit of all, which costs her none of her own.
                (&ada, 1000, 4000),
                (&ada, 5000, 0),
            ],
        );
        check(&limiter(None, Some((1, 1000))), &[(&ada, 0, 0), (&bea, 0, 1000), (&bea, 1000, 0)]);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_nobody_waiting() {
        let ada = named("ada");
        let one = limiter(Some((2, 2000)), None);
        check(
            &one,
            &[(&ada, 3_600_000, 0), (&ada, 3_600_000, 0), (&ada, 0, 0), (&ada, 0, 0), (&ada, 0, 1000)],
        );
    }

    #[test]
    fn a_flood_of_callers_costs_no_more_than_so_much() {
        let one = limiter(Some((1, 10_000)), None);
        for n in 0..TRACKED_CALLERS_MAX as u32 {
            check(&one, &[(&anonymous(Ipv4Addr::from(n)), 0, 0)]);
        }
        let late = |n: u32| anonymous(Ipv4Addr::from(0x0a00_0000 + n));
        // Those who come now share one allowance; those who were there keep theirs.
        check(&one, &[(&late(1), 1, 0), (&late(2), 1, 10_000), (&anonymous(Ipv4Addr::from(5)), 1, 9_999)]);
        let each = one.per_caller.as_ref().expect("declared");
        assert_eq!(lock(&each.arrivals).theoretical_arrival_ns.len(), TRACKED_CALLERS_MAX + 1);
        // When the first have everything back, there is room again.
        check(&one, &[(&late(3), 10_000, 0), (&late(4), 10_000, 0)]);
        assert_eq!(lock(&each.arrivals).theoretical_arrival_ns.len(), 3);
    }

    #[test]
    fn a_new_contract_is_no_new_allowance() {
        let ada = named("ada");
        let rate = |calls| Some(RateLimit { calls, per_ms: 60_000 });
        let old = RateLimiter::new(rate(1), None, None).expect("declared");
        check(&old, &[(&ada, 0, 0)]);
        let same = RateLimiter::new(rate(1), None, Some(&old)).expect("declared");
        check(&same, &[(&ada, 0, 60_000)]);
        let other = RateLimiter::new(rate(2), None, Some(&old)).expect("declared");
        check(&other, &[(&ada, 0, 0)]);
        let all = SharedLimit::new_or_reuse(RateLimit { calls: 1, per_ms: 1000 }, None);
        assert!(Arc::ptr_eq(
            &all,
            &SharedLimit::new_or_reuse(RateLimit { calls: 1, per_ms: 1000 }, Some(&all))
        ));
        assert!(!Arc::ptr_eq(
            &all,
            &SharedLimit::new_or_reuse(RateLimit { calls: 1, per_ms: 1001 }, Some(&all))
        ));
        assert!(RateLimiter::new(None, None, Some(&old)).is_none());
    }

    #[test]
    fn a_rate_of_nothing_is_one() {
        let ada = named("ada");
        check(&limiter(Some((0, 1000)), None), &[(&ada, 0, 0), (&ada, 0, 1000)]);
        check(&limiter(Some((1, 0)), None), &[(&ada, 0, 0), (&ada, 0, 1), (&ada, 1, 0)]);
        check(&limiter(Some((u32::MAX, u64::MAX)), None), &[(&ada, 0, 0)]);
    }
}
