//! Randomness that follows from a seed: the same again in every round of a call.

use std::cell::Cell;
use std::sync::Arc;

use ring::hmac;
use ring::rand::SecureRandom;
use spile_core::Platform;

/// The randomness of one call, made when it is first asked for.
pub(super) enum CallRandom {
    Seed([u8; 32]),
    /// The call has no journal yet, so that any seed will do.
    Platform(Arc<dyn Platform>),
    Ready(SeededRandom),
}

impl CallRandom {
    pub(super) fn get(&mut self) -> &SeededRandom {
        let seed = match self {
            Self::Ready(random) => return random,
            Self::Seed(seed) => *seed,
            Self::Platform(platform) => {
                let mut seed = [0; 32];
                platform.fill_random(&mut seed);
                seed
            }
        };
        *self = Self::Ready(SeededRandom::new(&seed));
        self.get()
    }
}

/// Cryptographic bytes (HMAC in counter mode), and cheap numbers for `Math.random` (xoroshiro128+).
pub(super) struct SeededRandom {
    key: hmac::Key,
    counter: Cell<u64>,
    state: Cell<[u64; 2]>,
}

impl SeededRandom {
    pub(super) fn new(seed: &[u8; 32]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, seed);
        let block = hmac::sign(&key, b"Math.random");
        let word = |at: usize| {
            let bytes = &block.as_ref()[at..at + 8];
            u64::from_be_bytes(bytes.try_into().unwrap_or_default())
        };
        // The generator needs one bit that is set.
        let state = Cell::new([word(0) | 1, word(8)]);
        Self { key, counter: Cell::new(0), state }
    }

    /// For the top level of modules, which is not replayed.
    pub(super) fn unpredictable() -> Self {
        let mut seed = [0; 32];
        // Without the system's randomness the process could not have made its keys either.
        ring::rand::SystemRandom::new().fill(&mut seed).expect("the system has randomness");
        Self::new(&seed)
    }

    /// In `0.0..1.0`.
    pub(super) fn number(&self) -> f64 {
        let [a, mut b] = self.state.get();
        let sum = a.wrapping_add(b);
        b ^= a;
        self.state.set([a.rotate_left(24) ^ b ^ (b << 16), b.rotate_left(37)]);
        (sum >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn bytes(&self, count: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(count + 31);
        while out.len() < count {
            let counter = self.counter.get();
            self.counter.set(counter + 1);
            out.extend_from_slice(hmac::sign(&self.key, &counter.to_be_bytes()).as_ref());
        }
        out.truncate(count);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::SeededRandom;

    #[test]
    fn the_same_seed_gives_the_same_values_and_another_seed_others() {
        let (one, again, other) =
            (SeededRandom::new(&[1; 32]), SeededRandom::new(&[1; 32]), SeededRandom::new(&[2; 32]));
        let numbers = |random: &SeededRandom| (0..100).map(|_| random.number()).collect::<Vec<_>>();
        let first = numbers(&one);
        assert_eq!(first, numbers(&again));
        assert_ne!(first, numbers(&other));
        assert!(first.iter().all(|number| (0.0..1.0).contains(number)));
        assert_eq!(one.bytes(40), again.bytes(40));
        assert_ne!(one.bytes(40), one.bytes(40), "never the same bytes again");
    }
}
