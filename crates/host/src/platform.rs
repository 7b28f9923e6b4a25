//! The system clock and the operating system's random numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use spile_core::Platform;

#[derive(Debug)]
pub struct SystemPlatform(SystemRandom);

impl Default for SystemPlatform {
    fn default() -> Self {
        Self(SystemRandom::new())
    }
}

impl Platform for SystemPlatform {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        // Without randomness every seal and session id would be guessable, so the process must not go on.
        self.0.fill(bytes).expect("the operating system provides random bytes");
    }
}
