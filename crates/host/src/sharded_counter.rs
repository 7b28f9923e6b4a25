//! A counter that many threads increment and few read.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More threads than this share shards.
const SHARDS: usize = 16;

/// Each thread increments its own shard, so that threads do not wait for each other's caches.
#[derive(Default)]
pub(crate) struct ShardedCounter([Shard; SHARDS]);

/// Two cache lines: processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

impl ShardedCounter {
    #[inline]
    pub(crate) fn increment(&self) {
        self.0[shard_of_thread()].0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}

#[inline]
fn shard_of_thread() -> usize {
    thread_local!(static SHARD: Cell<usize> = const { Cell::new(usize::MAX) });
    SHARD.with(|shard| match shard.get() {
        usize::MAX => {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
            shard.set(next);
            next
        }
        known => known,
    })
}

#[cfg(test)]
mod tests {
    use super::{SHARDS, ShardedCounter};

    #[test]
    fn increments_of_all_threads_are_counted() {
        let counter = ShardedCounter::default();
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 3 {
                scope.spawn(|| (0..1000).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.sum(), 1000 * (SHARDS as u64 + 3));
    }
}
