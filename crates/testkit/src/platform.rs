//! A platform whose clock moves only when a test moves it, and whose random bytes depend on a seed.

use std::sync::atomic::{AtomicU64, Ordering};

use spile_core::Platform;

/// The platform of a test. Two platforms with the same seed return the same bytes in the same order.
#[derive(Debug)]
pub struct FakePlatform {
    now_ms: AtomicU64,
    rng_state: AtomicU64,
}

impl FakePlatform {
    /// 2026-07-28T00:00:00Z, the day of the newest protocol version.
    pub const START_MS: u64 = 1_785_196_800_000;

    pub fn new(seed: u64) -> Self {
        Self { now_ms: AtomicU64::new(Self::START_MS), rng_state: AtomicU64::new(seed) }
    }

    pub fn set_ms(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    pub fn advance_ms(&self, by_ms: u64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Platform for FakePlatform {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            let word = splitmix64(self.rng_state.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP));
            eight.copy_from_slice(&word.to_le_bytes()[..eight.len()]);
        }
    }
}

// SplitMix64 (Steele, Lea, Flood 2014): looks random and is predictable, as a test needs it.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn splitmix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(platform: &FakePlatform) -> [u8; 20] {
        let mut bytes = [0; 20];
        platform.fill_random(&mut bytes);
        bytes
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_never_the_same_twice() {
        let (a, b, c) = (FakePlatform::new(1), FakePlatform::new(1), FakePlatform::new(2));
        let first = bytes(&a);
        assert_eq!(first, bytes(&b));
        assert_ne!(first, bytes(&a));
        assert_ne!(first, bytes(&c));
        // The first output of SplitMix64 for seed 0.
        assert_eq!(bytes(&FakePlatform::new(0))[..8], 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
    }

    #[test]
    fn the_clock_moves_only_when_a_test_moves_it() {
        let platform = FakePlatform::new(0);
        assert_eq!(platform.now_ms(), FakePlatform::START_MS);
        platform.advance_ms(5);
        assert_eq!(platform.now_ms(), FakePlatform::START_MS + 5);
        platform.set_ms(7);
        assert_eq!(platform.now_ms(), 7);
    }
}
