//! A clock that moves only when a test moves it, and real random bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use ring::rand::{SecureRandom, SystemRandom};
use spile_core::Platform;

pub struct TestPlatform {
    now_ms: AtomicU64,
    random: SystemRandom,
}

impl TestPlatform {
    pub const START_MS: u64 = 1_785_196_800_000;

    pub fn new() -> Self {
        Self { now_ms: AtomicU64::new(Self::START_MS), random: SystemRandom::new() }
    }

    pub fn advance_ms(&self, by_ms: u64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Platform for TestPlatform {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.random.fill(bytes).expect("the system has random bytes");
    }
}
