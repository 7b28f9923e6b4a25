//! The states of sessions, in shards: threads that serve different sessions seldom need the same lock or line.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connection_state::ConnectionState;

const SHARD_COUNT: usize = 32;

pub(super) struct Shards(Box<[Shard]>);

/// Alone on its cache lines, of which processors fetch two at a time.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    states: Mutex<HashMap<[u8; 16], Arc<ConnectionState>>>,
    /// The number of states, so that sessions without any need no lock.
    count: AtomicUsize,
    /// How often a session of this shard got a state, lost it, or ended.
    changes: AtomicU64,
}

impl Default for Shards {
    fn default() -> Self {
        Self((0..SHARD_COUNT).map(|_| Shard::default()).collect())
    }
}

impl Shards {
    /// Keys are random.
    #[inline]
    fn shard(&self, key: &[u8; 16]) -> &Shard {
        &self.0[usize::from(key[0]) % SHARD_COUNT]
    }

    /// How often anything has changed for sessions like this one.
    #[inline]
    pub(super) fn changes(&self, key: &[u8; 16]) -> u64 {
        self.shard(key).changes.load(Ordering::Acquire)
    }

    pub(super) fn count_change(&self, key: &[u8; 16]) {
        self.shard(key).count_change();
    }

    pub(super) fn count_change_of_all(&self) {
        self.0.iter().for_each(Shard::count_change);
    }

    #[inline]
    pub(super) fn get(&self, key: &[u8; 16]) -> Option<Arc<ConnectionState>> {
        let shard = self.shard(key);
        if shard.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        shard.lock().get(key).cloned()
    }

    pub(super) fn insert(&self, key: [u8; 16], state: Arc<ConnectionState>) {
        self.shard(&key).change(|states| states.insert(key, state));
    }

    pub(super) fn remove(&self, key: &[u8; 16]) -> Option<Arc<ConnectionState>> {
        self.shard(key).change(|states| states.remove(key))
    }

    /// Removes a state that passes `test`, unless a request is about to use it. Returns whether it did.
    pub(super) fn remove_unreferenced(
        &self,
        key: &[u8; 16],
        test: impl Fn(&ConnectionState) -> bool,
    ) -> bool {
        let removed = self.shard(key).change(|states| {
            // Others get a reference with this lock.
            let is_removed =
                states.get(key).is_some_and(|state| Arc::strong_count(state) == 1 && test(state));
            if is_removed { states.remove(key) } else { None }
        });
        removed.is_some()
    }

    pub(super) fn all(&self) -> Vec<Arc<ConnectionState>> {
        self.0.iter().flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>()).collect()
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 16], Arc<ConnectionState>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `change` returns is dropped by its caller, without the lock.
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<[u8; 16], Arc<ConnectionState>>) -> T) -> T {
        let mut states = self.lock();
        let before = states.len();
        let outcome = change(&mut states);
        if states.len() != before {
            self.count.store(states.len(), Ordering::Release);
            self.count_change();
        }
        outcome
    }

    fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}
