//! Slows down clients that guess bearer tokens: after a few wrong tokens, an address must wait, and longer each time.
//!
//! While an address waits, its tokens are not even compared, the right one neither: otherwise waiting would not slow
//! down a guesser. Callers behind one proxy share an address; a proxy should throttle guesses itself.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use host::network_of;

/// Counts wrong tokens by address. Clones share the counts.
#[derive(Debug, Clone)]
pub struct AuthThrottle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    free_guesses: u32,
    hasher: RandomState,
    /// The number of addresses, so that a request without wrong tokens anywhere takes no lock.
    len: AtomicUsize,
    /// Changes with each wrong token: an address may have to wait from then on.
    generation: AtomicU64,
    addresses: Mutex<HashMap<IpAddr, Guesses>>,
}

#[derive(Debug)]
struct Guesses {
    wrong: u32,
    /// Identifies the last wrong token: a client that repeats it, such as one with a wrong setting, does not guess.
    last_token: u64,
    last_at: Instant,
    blocked_until: Instant,
}

/// Wrong tokens of one address without a delay: a person who mistypes, or a client with an old token.
const FREE_GUESSES: u32 = 10;

const FIRST_DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);

/// After this long without a wrong token, an address starts again.
const FORGET_AFTER: Duration = Duration::from_secs(900);

/// The table never grows beyond this; the address that was wrong least recently makes room.
const ADDRESSES_MAX: usize = 4096;

impl Default for AuthThrottle {
    fn default() -> Self {
        Self::new(FREE_GUESSES)
    }
}

impl AuthThrottle {
    pub fn new(free_guesses: u32) -> Self {
        Self(Arc::new(Shared {
            free_guesses,
            hasher: RandomState::new(),
            len: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            addresses: Mutex::default(),
        }))
    }

    /// How long the address must still wait, if it must.
    #[inline]
    pub(crate) fn delay(&self, address: IpAddr) -> Option<Duration> {
        if self.0.len.load(Ordering::Relaxed) == 0 { None } else { self.delay_at(address, Instant::now()) }
    }

    /// The same value as before means that no further address has to wait.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn delay_at(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let addresses = self.0.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let left = addresses.get(&network_of(address))?.blocked_until.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Counts a wrong token, unless it is the same as the last one of this address.
    pub(crate) fn record_wrong(&self, address: IpAddr, token: &[u8]) {
        self.record_wrong_at(address, self.0.hasher.hash_one(token), Instant::now());
    }

    fn record_wrong_at(&self, address: IpAddr, token: u64, now: Instant) {
        let key = network_of(address);
        let mut addresses = self.0.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&key) {
            addresses.retain(|_, guesses| now.saturating_duration_since(guesses.last_at) < FORGET_AFTER);
            if addresses.len() >= ADDRESSES_MAX
                && let Some(oldest) = addresses.iter().min_by_key(|(_, guesses)| guesses.last_at)
            {
                let oldest = *oldest.0;
                addresses.remove(&oldest);
            }
        }
        let guesses = addresses.entry(key).or_insert(Guesses {
            wrong: 0,
            last_token: !token,
            last_at: now,
            blocked_until: now,
        });
        if now.saturating_duration_since(guesses.last_at) >= FORGET_AFTER {
            guesses.wrong = 0;
        }
        guesses.last_at = now;
        if std::mem::replace(&mut guesses.last_token, token) == token {
            return;
        }
        guesses.wrong = guesses.wrong.saturating_add(1);
        if let Some(doublings) = guesses.wrong.checked_sub(self.0.free_guesses).and_then(|n| n.checked_sub(1))
        {
            let delay = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(doublings)).min(DELAY_MAX);
            guesses.blocked_until = now + delay;
        }
        self.0.len.store(addresses.len(), Ordering::Relaxed);
        // Last: whoever sees the old value may not have had to wait.
        self.0.generation.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::{Duration, Instant};

    use super::{ADDRESSES_MAX, AuthThrottle, DELAY_MAX, FORGET_AFTER, FREE_GUESSES};

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn delays_double_up_to_a_maximum_and_are_forgotten() {
        let throttle = AuthThrottle::default();
        let mut now = Instant::now();
        let mut tokens = 0..;
        let mut guess = |now| {
            throttle.record_wrong_at(ip("10.0.0.1"), tokens.next().expect("endless"), now);
        };
        for _ in 0..FREE_GUESSES {
            guess(now);
            assert_eq!(throttle.delay_at(ip("10.0.0.1"), now), None);
        }
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            guess(now);
            let delay = throttle.delay_at(ip("10.0.0.1"), now);
            assert_eq!(delay, Some(Duration::from_secs(expected)));
            assert_eq!(throttle.delay_at(ip("10.0.0.2"), now), None, "another address does not wait");
            now += Duration::from_secs(expected);
            assert_eq!(throttle.delay_at(ip("10.0.0.1"), now), None);
        }
        now += FORGET_AFTER;
        guess(now);
        assert_eq!(throttle.delay_at(ip("10.0.0.1"), now), None, "forgotten");
    }

    #[test]
    fn a_client_that_repeats_one_wrong_token_does_not_guess() {
        let throttle = AuthThrottle::new(1);
        let now = Instant::now();
        for _ in 0..100 {
            throttle.record_wrong_at(ip("10.0.0.1"), 7, now);
        }
        assert_eq!(throttle.delay_at(ip("10.0.0.1"), now), None);
        throttle.record_wrong_at(ip("10.0.0.1"), 8, now);
        assert!(throttle.delay_at(ip("10.0.0.1"), now).is_some());
    }

    #[test]
    fn one_network_counts_as_one_address() {
        let throttle = AuthThrottle::new(0);
        let now = Instant::now();
        throttle.record_wrong_at(ip("2001:db8:1:2::1"), 0, now);
        assert!(throttle.delay_at(ip("2001:db8:1:2:ffff::9"), now).is_some());
        assert!(throttle.delay_at(ip("2001:db8:1:3::1"), now).is_none());
        throttle.record_wrong_at(ip("::ffff:10.0.0.1"), 0, now);
        assert!(throttle.delay_at(ip("10.0.0.1"), now).is_some());
    }

    #[test]
    fn the_table_is_bounded_and_drops_the_oldest() {
        let throttle = AuthThrottle::new(0);
        let start = Instant::now();
        let nth = |n: u32| IpAddr::V4(Ipv4Addr::from(n));
        for n in 0..=ADDRESSES_MAX as u32 {
            throttle.record_wrong_at(nth(n), 0, start + Duration::from_micros(n.into()));
        }
        let now = start + Duration::from_millis(10);
        assert!(throttle.delay_at(nth(0), now).is_none(), "made room");
        assert!(throttle.delay_at(nth(1), now).is_some());
        assert!(throttle.0.addresses.lock().expect("no panic").len() == ADDRESSES_MAX);
        assert!(DELAY_MAX < FORGET_AFTER, "an address is not forgotten while it waits");
    }
}
