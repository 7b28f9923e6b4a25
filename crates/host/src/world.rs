//! The real clock and the system's own randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use call::World;
use ring::rand::{SecureRandom, SystemRandom};

#[derive(Debug)]
pub struct RealWorld(SystemRandom);

impl Default for RealWorld {
    fn default() -> Self {
        Self(SystemRandom::new())
    }
}

impl World for RealWorld {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn fill(&self, bytes: &mut [u8]) {
        // Without randomness every seal and session would be guessable: better no service than that.
        self.0.fill(bytes).expect("the operating system gives random bytes");
    }
}
