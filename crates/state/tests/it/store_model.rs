//! Random operations against every store and a simple model: both must answer the same, at every time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::select;
use spile_core::Platform;
use state::keyring::Keyring;
use state::store::{
    EncryptedStore, LeaseOutcome, LimitName, MemoryStore, Namespace, PutOutcome, RECORD_OVERHEAD_BYTES,
    Reply, Sequence, SqliteStore, Store, StoreError, StoreKey, StoreLimits, StreamPage, Ttl,
};

use crate::platform::TestPlatform;

pub type OwnedKey = (Namespace, &'static [u8], &'static [u8]);

pub fn key((namespace, owner, name): OwnedKey) -> StoreKey<'static> {
    StoreKey { namespace, owner, name }
}

pub fn wait<T: Unpin>(reply: Reply<T>) -> Result<T, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(reply)
}

#[derive(Debug, Clone)]
enum Op {
    PutOnce {
        key: OwnedKey,
        value: Vec<u8>,
        ttl: Ttl,
    },
    Get(OwnedKey),
    Take(OwnedKey),
    Delete(OwnedKey),
    Append {
        key: OwnedKey,
        value: Vec<u8>,
        entries_max: usize,
        ttl: Ttl,
    },
    /// After the sequence of an earlier `append`, counted from the last.
    ReadAfter {
        key: OwnedKey,
        back: usize,
        entries_max: usize,
    },
    Lease {
        key: OwnedKey,
        holder: &'static [u8],
        ttl: Ttl,
    },
    Renew {
        key: OwnedKey,
        holder: &'static [u8],
        ttl: Ttl,
    },
    Release {
        key: OwnedKey,
        holder: &'static [u8],
    },
    Expire(usize),
    Wait {
        ms: u64,
    },
    Reopen,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || {
        (
            select(vec![Namespace::Tasks, Namespace::Approvals]),
            select(vec![&b"a"[..], b"bob"]),
            select(vec![&b"x"[..], b""]),
        )
    };
    let value = || vec(any::<u8>(), 0..45);
    let ttl = || (0_u64..110).prop_map(|ms| Ttl { ms });
    let holder = || select(vec![&b"one"[..], b"two"]);
    let op = prop_oneof![
        6 => (key(), value(), ttl()).prop_map(|(key, value, ttl)| Op::PutOnce { key, value, ttl }),
        3 => key().prop_map(Op::Get),
        2 => key().prop_map(Op::Take),
        1 => key().prop_map(Op::Delete),
        6 => (key(), value(), 0_usize..4, ttl())
            .prop_map(|(key, value, entries_max, ttl)| Op::Append { key, value, entries_max, ttl }),
        4 => (key(), 0_usize..6, 0_usize..4)
            .prop_map(|(key, back, entries_max)| Op::ReadAfter { key, back, entries_max }),
        3 => (key(), holder(), ttl()).prop_map(|(key, holder, ttl)| Op::Lease { key, holder, ttl }),
        2 => (key(), holder(), ttl()).prop_map(|(key, holder, ttl)| Op::Renew { key, holder, ttl }),
        1 => (key(), holder()).prop_map(|(key, holder)| Op::Release { key, holder }),
        1 => (0_usize..4).prop_map(Op::Expire),
        4 => (0_u64..60).prop_map(|ms| Op::Wait { ms }),
        1 => Just(Op::Reopen),
    ];
    vec(op, 1..80)
}

/// Small enough that every limit is met.
const TIGHT: StoreLimits = StoreLimits {
    entry_bytes_max: 40,
    records_max: 12,
    bytes_max: 1700,
    owner_records_max: 8,
    owner_bytes_max: 1150,
    ttl_ms_max: 100,
    read_bytes_max: 50,
};

/// For stores that need more bytes than the model for the same value.
const ROOMY: StoreLimits = StoreLimits {
    entry_bytes_max: 4096,
    records_max: 10_000,
    bytes_max: 1 << 20,
    owner_records_max: 10_000,
    owner_bytes_max: 1 << 20,
    ttl_ms_max: 100,
    read_bytes_max: 1 << 20,
};

struct ModelStream {
    entries: Vec<(Sequence, Vec<u8>)>,
    dropped_through: Sequence,
    end_ms: u64,
}

/// Forgets what has ended before every operation, and counts everything anew.
struct Model {
    limits: StoreLimits,
    entries: BTreeMap<OwnedKey, (Vec<u8>, u64)>,
    streams: BTreeMap<OwnedKey, ModelStream>,
    leases: BTreeMap<OwnedKey, (&'static [u8], u64)>,
}

impl Model {
    fn new(limits: StoreLimits) -> Self {
        Self { limits, entries: BTreeMap::new(), streams: BTreeMap::new(), leases: BTreeMap::new() }
    }

    fn forget(&mut self, now_ms: u64) {
        self.entries.retain(|_, (_, end_ms)| now_ms < *end_ms);
        self.streams.retain(|_, stream| now_ms < stream.end_ms);
        self.leases.retain(|_, (_, end_ms)| now_ms < *end_ms);
    }

    /// Records and bytes of one owner, or of all.
    fn usage(&self, owner: Option<&[u8]>) -> (u64, u64) {
        let is_counted = |key: &OwnedKey| owner.is_none_or(|owner| owner == key.1);
        let named = |key: &OwnedKey| key.1.len() + key.2.len();
        let mut lengths: Vec<usize> = Vec::new();
        for (key, (value, _)) in self.entries.iter().filter(|(key, _)| is_counted(key)) {
            lengths.push(named(key) + value.len());
        }
        for (key, stream) in self.streams.iter().filter(|(key, _)| is_counted(key)) {
            lengths.push(named(key));
            lengths.extend(stream.entries.iter().map(|(_, value)| value.len()));
        }
        for (key, (holder, _)) in self.leases.iter().filter(|(key, _)| is_counted(key)) {
            lengths.push(named(key) + holder.len());
        }
        let records = lengths.len() as u64;
        (records, lengths.iter().sum::<usize>() as u64 + records * RECORD_OVERHEAD_BYTES)
    }

    /// The limit that is exceeded now, if the change from `before` made it grow.
    fn exceeded(&self, owner: &[u8], before: ((u64, u64), (u64, u64))) -> Option<LimitName> {
        let (owner, total) = (self.usage(Some(owner)), self.usage(None));
        let is_over = |now: u64, before: u64, max: u64| now > before && now > max;
        [
            (LimitName::OwnerRecords, is_over(owner.0, before.0.0, self.limits.owner_records_max)),
            (LimitName::OwnerBytes, is_over(owner.1, before.0.1, self.limits.owner_bytes_max)),
            (LimitName::Records, is_over(total.0, before.1.0, self.limits.records_max)),
            (LimitName::Bytes, is_over(total.1, before.1.1, self.limits.bytes_max)),
        ]
        .into_iter()
        .find_map(|(name, is_over)| is_over.then_some(name))
    }

    fn check_sizes(&self, value: &[u8], ttl: Ttl) -> Result<(), StoreError> {
        let check = |limit, max: u64, actual: u64| match actual > max {
            true => Err(StoreError::TooLarge { limit, max, actual }),
            false => Ok(()),
        };
        check(LimitName::EntryBytes, self.limits.entry_bytes_max as u64, value.len() as u64)?;
        check(LimitName::Ttl, self.limits.ttl_ms_max, ttl.ms)
    }

    fn put_once(
        &mut self,
        key: OwnedKey,
        value: &[u8],
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<PutOutcome, StoreError> {
        self.check_sizes(value, ttl)?;
        if self.entries.contains_key(&key) {
            return Ok(PutOutcome::AlreadyThere);
        }
        let before = (self.usage(Some(key.1)), self.usage(None));
        self.entries.insert(key, (value.to_vec(), now_ms + ttl.ms));
        if let Some(limit) = self.exceeded(key.1, before) {
            self.entries.remove(&key);
            return Err(StoreError::Full { limit });
        }
        Ok(PutOutcome::Stored)
    }

    /// `sequence` is what the store returned, if it did.
    fn append(
        &mut self,
        key: OwnedKey,
        value: &[u8],
        entries_max: usize,
        ttl: Ttl,
        now_ms: u64,
        sequence: Sequence,
    ) -> Result<Sequence, StoreError> {
        self.check_sizes(value, ttl)?;
        let before = (self.usage(Some(key.1)), self.usage(None));
        let old = self.streams.remove(&key);
        let mut entries = old.as_ref().map_or_else(Vec::new, |stream| stream.entries.clone());
        let mut dropped_through = old.as_ref().map_or(Sequence::START, |stream| stream.dropped_through);
        entries.push((sequence, value.to_vec()));
        while entries.len() > entries_max.max(1) {
            dropped_through = entries.remove(0).0;
        }
        self.streams.insert(key, ModelStream { entries, dropped_through, end_ms: now_ms + ttl.ms });
        if let Some(limit) = self.exceeded(key.1, before) {
            self.streams.remove(&key);
            if let Some(old) = old {
                self.streams.insert(key, old);
            }
            return Err(StoreError::Full { limit });
        }
        Ok(sequence)
    }

    fn read_after(&self, key: OwnedKey, after: Sequence, entries_max: usize) -> Option<StreamPage> {
        let stream = self.streams.get(&key)?;
        let mut entries: Vec<(Sequence, Vec<u8>)> = Vec::new();
        for entry in stream.entries.iter().filter(|(sequence, _)| *sequence > after).take(entries_max) {
            let bytes: usize = entries.iter().chain([entry]).map(|(_, value)| value.len()).sum();
            if !entries.is_empty() && bytes > self.limits.read_bytes_max {
                break;
            }
            entries.push(entry.clone());
        }
        Some(StreamPage { entries, has_gap: after < stream.dropped_through })
    }

    fn lease(
        &mut self,
        key: OwnedKey,
        holder: &'static [u8],
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<LeaseOutcome, StoreError> {
        self.check_sizes(b"", ttl)?;
        match self.leases.get_mut(&key) {
            Some((old, end_ms)) if *old != holder => {
                return Ok(LeaseOutcome::HeldByOther { until_ms: *end_ms });
            }
            Some((_, end_ms)) => *end_ms = now_ms + ttl.ms,
            None => {
                let before = (self.usage(Some(key.1)), self.usage(None));
                self.leases.insert(key, (holder, now_ms + ttl.ms));
                if let Some(limit) = self.exceeded(key.1, before) {
                    self.leases.remove(&key);
                    return Err(StoreError::Full { limit });
                }
            }
        }
        Ok(LeaseOutcome::Held)
    }

    fn is_held(&self, key: OwnedKey, holder: &[u8]) -> bool {
        self.leases.get(&key).is_some_and(|(old, _)| *old == holder)
    }
}

fn check(ops: Vec<Op>, limits: StoreLimits, open: impl Fn() -> Option<Box<dyn Store>>) {
    let mut store = open().expect("a store");
    let mut model = Model::new(limits);
    let mut now_ms = TestPlatform::START_MS;
    let mut sequences = vec![Sequence::START];
    for op in ops {
        model.forget(now_ms);
        match op.clone() {
            Op::PutOnce { key: at, value, ttl } => {
                let found = wait(store.put_once(key(at), &value, ttl, now_ms));
                assert_eq!(found, model.put_once(at, &value, ttl, now_ms), "{op:?}");
            }
            Op::Get(at) => {
                let expected = model.entries.get(&at).map(|(value, _)| value.clone());
                assert_eq!(wait(store.get(key(at), now_ms)), Ok(expected), "{op:?}");
            }
            Op::Take(at) => {
                let expected = model.entries.remove(&at).map(|(value, _)| value);
                assert_eq!(wait(store.take(key(at), now_ms)), Ok(expected), "{op:?}");
            }
            Op::Delete(at) => {
                let (entry, stream) = (model.entries.remove(&at), model.streams.remove(&at));
                let expected = entry.is_some() || stream.is_some();
                assert_eq!(wait(store.delete(key(at), now_ms)), Ok(expected), "{op:?}");
            }
            Op::Append { key: at, value, entries_max, ttl } => {
                let found = wait(store.append(key(at), &value, entries_max, ttl, now_ms));
                let sequence = found.unwrap_or(Sequence::START);
                assert_eq!(found, model.append(at, &value, entries_max, ttl, now_ms, sequence), "{op:?}");
                if found.is_ok() {
                    assert!(sequences.iter().all(|old| *old < sequence), "sequences grow");
                    sequences.push(sequence);
                }
            }
            Op::ReadAfter { key: at, back, entries_max } => {
                let after = sequences[sequences.len().saturating_sub(back + 1)];
                let found = wait(store.read_after(key(at), after, entries_max, now_ms));
                assert_eq!(found, Ok(model.read_after(at, after, entries_max)), "{op:?}");
            }
            Op::Lease { key: at, holder, ttl } => {
                let found = wait(store.lease(key(at), holder, ttl, now_ms));
                assert_eq!(found, model.lease(at, holder, ttl, now_ms), "{op:?}");
            }
            Op::Renew { key: at, holder, ttl } => {
                let found = wait(store.renew(key(at), holder, ttl, now_ms));
                let expected = model.check_sizes(b"", ttl).map(|()| model.is_held(at, holder));
                assert_eq!(found, expected, "{op:?}");
                if expected == Ok(true) {
                    model.leases.insert(at, (holder, now_ms + ttl.ms));
                }
            }
            Op::Release { key: at, holder } => {
                let expected = model.is_held(at, holder);
                assert_eq!(wait(store.release(key(at), holder, now_ms)), Ok(expected), "{op:?}");
                if expected {
                    model.leases.remove(&at);
                }
            }
            Op::Expire(records_max) => {
                let removed = wait(store.expire(records_max, now_ms)).expect("never refused");
                assert!(removed <= records_max, "{op:?}");
            }
            Op::Wait { ms } => now_ms += ms,
            Op::Reopen => {
                drop(store);
                store = match open() {
                    Some(store) => store,
                    // Nothing outlives it.
                    None => return,
                };
            }
        }
    }
    // Long after, everything has ended, and nothing is left to remove after it was removed.
    now_ms += 1000;
    let _ = wait(store.expire(usize::MAX, now_ms)).expect("never refused");
    assert_eq!(wait(store.expire(usize::MAX, now_ms)), Ok(0));
    let value = [7; 40];
    let key = key((Namespace::Journals, b"carol", b"new"));
    assert_eq!(wait(store.put_once(key, &value, Ttl { ms: 1 }, now_ms)), Ok(PutOutcome::Stored));
}

/// Opens once: a store in memory does not outlive itself.
fn once(store: impl Store + 'static) -> impl Fn() -> Option<Box<dyn Store>> {
    let store = std::cell::Cell::new(Some(Box::new(store) as Box<dyn Store>));
    move || store.take()
}

fn sqlite(path: &Path, limits: StoreLimits) -> SqliteStore {
    SqliteStore::open(path, limits, &TestPlatform::new()).expect("usable")
}

proptest! {
    #[test]
    fn memory_answers_as_the_model(ops in ops()) {
        check(ops, TIGHT, once(MemoryStore::new(TIGHT)));
    }

    #[test]
    fn encrypted_memory_answers_as_the_model(ops in ops()) {
        let platform: Arc<dyn Platform> = Arc::new(TestPlatform::new());
        let keyring = Arc::new(Keyring::for_this_run(&*platform));
        check(ops, ROOMY, once(EncryptedStore::new(Arc::new(MemoryStore::new(ROOMY)), keyring, platform)));
    }
}

proptest! {
    // Every write waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn sqlite_answers_as_the_model_also_when_reopened(ops in ops()) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        check(ops, TIGHT, || Some(Box::new(sqlite(&path, TIGHT))));
    }

    #[test]
    fn encrypted_sqlite_answers_as_the_model_also_when_reopened(ops in ops()) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let platform: Arc<dyn Platform> = Arc::new(TestPlatform::new());
        let keys = folder.path().join("keys");
        check(ops, ROOMY, || {
            // The keys are rotated while entries are in the store.
            let keyring = Keyring::open_file(&keys, &*platform).expect("usable");
            let _ = keyring.rotate(1_000_000, &*platform);
            let engine = Arc::new(sqlite(&path, ROOMY));
            Some(Box::new(EncryptedStore::new(engine, Arc::new(keyring), platform.clone())))
        });
    }
}
