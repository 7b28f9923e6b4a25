//! The store of one process, in memory: the default, and gone with the process.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap};
use spile_core::Platform;

use super::limits::{SWEEP_RECORDS, SWEEP_RECORDS_PER_WRITE, Usage};
use super::{
    LeaseOutcome, Namespace, PutOutcome, Reply, Sequence, Store, StoreError, StoreKey, StoreLimits,
    StreamPage, Ttl,
};

/// Holds no more than its limits. One lock: every verb takes it once, and none waits while it holds it.
pub struct MemoryStore {
    limits: StoreLimits,
    run_id: Option<[u8; 16]>,
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    by_key: HashMap<Arc<RecordKey>, Record, RandomState>,
    by_end: BTreeSet<(u64, Arc<RecordKey>)>,
    usage_by_owner: HashMap<Box<[u8]>, Usage, RandomState>,
    total: Usage,
    last_sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Family {
    Entry,
    Stream,
    Lease,
}

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RecordKey {
    family: Family,
    namespace: Namespace,
    owner: Box<[u8]>,
    name: Box<[u8]>,
}

/// Hashes as the [`RecordKey`] with the same content.
#[derive(Clone, Copy, Hash)]
struct RecordKeyRef<'a> {
    family: Family,
    namespace: Namespace,
    owner: &'a [u8],
    name: &'a [u8],
}

impl Equivalent<Arc<RecordKey>> for RecordKeyRef<'_> {
    fn equivalent(&self, key: &Arc<RecordKey>) -> bool {
        (self.family, self.namespace, self.owner, self.name)
            == (key.family, key.namespace, &*key.owner, &*key.name)
    }
}

impl<'a> RecordKeyRef<'a> {
    fn new(family: Family, key: StoreKey<'a>) -> Self {
        let StoreKey { namespace, owner, name } = key;
        Self { family, namespace, owner, name }
    }

    fn to_owned(self) -> Arc<RecordKey> {
        let Self { family, namespace, owner, name } = self;
        Arc::new(RecordKey { family, namespace, owner: owner.into(), name: name.into() })
    }
}

struct Record {
    end_ms: u64,
    usage: Usage,
    content: Content,
}

enum Content {
    Entry(Vec<u8>),
    Stream { entries: VecDeque<(Sequence, Vec<u8>)>, dropped_through: Sequence },
    Lease { holder: Vec<u8> },
}

impl MemoryStore {
    pub fn new(limits: StoreLimits) -> Self {
        Self { limits, run_id: None, records: Mutex::default() }
    }

    /// Replaces a store that cannot be used, for this process: see [`Store::run_id`].
    pub fn for_this_run(limits: StoreLimits, platform: &dyn Platform) -> Self {
        let mut run_id = [0; 16];
        platform.fill_random(&mut run_id);
        Self { run_id: Some(run_id), ..Self::new(limits) }
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_once_now(
        &self,
        key: StoreKey<'_>,
        value: &[u8],
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<PutOutcome, StoreError> {
        self.limits.check_key(key)?;
        self.limits.check_value(value)?;
        let end_ms = self.limits.end_ms(ttl, now_ms)?;
        let mut records = self.lock();
        let record_key = RecordKeyRef::new(Family::Entry, key);
        if records.live(record_key, now_ms).is_some() {
            return Ok(PutOutcome::AlreadyThere);
        }
        let usage = Usage::of_record(&[key.owner, key.name, value]);
        records.evict(&self.limits, key.owner, usage, now_ms)?;
        records.insert(record_key, Record { end_ms, usage, content: Content::Entry(value.to_vec()) });
        Ok(PutOutcome::Stored)
    }

    fn append_now(
        &self,
        stream: StoreKey<'_>,
        value: &[u8],
        entries_max: usize,
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<Sequence, StoreError> {
        self.limits.check_key(stream)?;
        self.limits.check_value(value)?;
        let end_ms = self.limits.end_ms(ttl, now_ms)?;
        let mut records = self.lock();
        let record_key = RecordKeyRef::new(Family::Stream, stream);
        let kept_max = entries_max.max(1) - 1;
        let mut added = Usage::of_record(&[value]);
        let mut dropped = 0;
        match records.live(record_key, now_ms).map(|record| &record.content) {
            Some(Content::Stream { entries, .. }) => {
                dropped = entries.len().saturating_sub(kept_max);
                let oldest = entries.iter().take(dropped);
                added = oldest.fold(added, |added, (_, value)| added.minus(Usage::of_record(&[value])));
            }
            Some(Content::Entry(_) | Content::Lease { .. }) | None => {
                added = added.plus(Usage::of_record(&[stream.owner, stream.name]));
            }
        }
        records.evict(&self.limits, stream.owner, added, now_ms)?;
        records.last_sequence += 1;
        let sequence = Sequence(records.last_sequence);
        let mut record = records.remove(record_key).unwrap_or_else(|| Record {
            end_ms,
            usage: Usage::default(),
            content: Content::Stream { entries: VecDeque::new(), dropped_through: Sequence::START },
        });
        if let Content::Stream { entries, dropped_through } = &mut record.content {
            *dropped_through =
                entries.drain(..dropped).next_back().map_or(*dropped_through, |(last, _)| last);
            entries.push_back((sequence, value.to_vec()));
        }
        record.usage = record.usage.plus(added);
        record.end_ms = end_ms;
        records.insert(record_key, record);
        Ok(sequence)
    }

    fn read_after_now(
        &self,
        stream: StoreKey<'_>,
        after: Sequence,
        entries_max: usize,
        now_ms: u64,
    ) -> Result<Option<StreamPage>, StoreError> {
        self.limits.check_key(stream)?;
        let mut records = self.lock();
        let record = records.live(RecordKeyRef::new(Family::Stream, stream), now_ms);
        let Some(Record { content: Content::Stream { entries, dropped_through }, .. }) = record else {
            return Ok(None);
        };
        let from = entries.partition_point(|(sequence, _)| *sequence <= after);
        let mut bytes = 0;
        let fits = |(index, (_, value)): &(usize, &(Sequence, Vec<u8>))| {
            bytes += value.len();
            *index == 0 || bytes <= self.limits.read_bytes_max
        };
        let page = entries.range(from..).take(entries_max).enumerate().take_while(fits);
        let page = page.map(|(_, entry)| entry.clone()).collect();
        Ok(Some(StreamPage { entries: page, has_gap: after < *dropped_through }))
    }

    fn lease_now(
        &self,
        key: StoreKey<'_>,
        holder: &[u8],
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<LeaseOutcome, StoreError> {
        self.limits.check_key(key)?;
        self.limits.check_holder(holder)?;
        let end_ms = self.limits.end_ms(ttl, now_ms)?;
        let mut records = self.lock();
        let record_key = RecordKeyRef::new(Family::Lease, key);
        match records.live(record_key, now_ms) {
            Some(record) if record.is_held_by(holder) => {}
            Some(record) => return Ok(LeaseOutcome::HeldByOther { until_ms: record.end_ms }),
            None => {
                let usage = Usage::of_record(&[key.owner, key.name, holder]);
                records.evict(&self.limits, key.owner, usage, now_ms)?;
                let content = Content::Lease { holder: holder.to_vec() };
                records.insert(record_key, Record { end_ms, usage, content });
                return Ok(LeaseOutcome::Held);
            }
        }
        records.set_end(record_key, end_ms);
        Ok(LeaseOutcome::Held)
    }

    /// Changes a lease that `holder` has. Returns whether it has it.
    fn with_lease(
        &self,
        key: StoreKey<'_>,
        holder: &[u8],
        now_ms: u64,
        change: impl FnOnce(&mut Records, RecordKeyRef<'_>),
    ) -> Result<bool, StoreError> {
        self.limits.check_key(key)?;
        let mut records = self.lock();
        let record_key = RecordKeyRef::new(Family::Lease, key);
        let is_held = records.live(record_key, now_ms).is_some_and(|record| record.is_held_by(holder));
        if is_held {
            change(&mut records, record_key);
        }
        Ok(is_held)
    }
}

impl Store for MemoryStore {
    fn run_id(&self) -> Option<[u8; 16]> {
        self.run_id
    }

    fn put_once(&self, key: StoreKey<'_>, value: &[u8], ttl: Ttl, now_ms: u64) -> Reply<PutOutcome> {
        Reply::now(self.put_once_now(key, value, ttl, now_ms))
    }

    fn get(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        let get = || {
            self.limits.check_key(key)?;
            let mut records = self.lock();
            Ok(
                match records
                    .live(RecordKeyRef::new(Family::Entry, key), now_ms)
                    .map(|record| &record.content)
                {
                    Some(Content::Entry(value)) => Some(value.clone()),
                    Some(Content::Stream { .. } | Content::Lease { .. }) | None => None,
                },
            )
        };
        Reply::now(get())
    }

    fn take(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        let take = || {
            self.limits.check_key(key)?;
            let record = self.lock().remove(RecordKeyRef::new(Family::Entry, key));
            Ok(match record.filter(|record| now_ms < record.end_ms).map(|record| record.content) {
                Some(Content::Entry(value)) => Some(value),
                Some(Content::Stream { .. } | Content::Lease { .. }) | None => None,
            })
        };
        Reply::now(take())
    }

    fn delete(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<bool> {
        let delete = || {
            self.limits.check_key(key)?;
            let mut records = self.lock();
            let removed =
                [Family::Entry, Family::Stream].map(|family| records.remove(RecordKeyRef::new(family, key)));
            Ok(removed.iter().flatten().any(|record| now_ms < record.end_ms))
        };
        Reply::now(delete())
    }

    fn append(
        &self,
        stream: StoreKey<'_>,
        value: &[u8],
        entries_max: usize,
        ttl: Ttl,
        now_ms: u64,
    ) -> Reply<Sequence> {
        Reply::now(self.append_now(stream, value, entries_max, ttl, now_ms))
    }

    fn read_after(
        &self,
        stream: StoreKey<'_>,
        after: Sequence,
        entries_max: usize,
        now_ms: u64,
    ) -> Reply<Option<StreamPage>> {
        Reply::now(self.read_after_now(stream, after, entries_max, now_ms))
    }

    fn lease(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<LeaseOutcome> {
        Reply::now(self.lease_now(key, holder, ttl, now_ms))
    }

    fn renew(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<bool> {
        Reply::now(self.limits.end_ms(ttl, now_ms).and_then(|end_ms| {
            self.with_lease(key, holder, now_ms, |records, key| records.set_end(key, end_ms))
        }))
    }

    fn release(&self, key: StoreKey<'_>, holder: &[u8], now_ms: u64) -> Reply<bool> {
        Reply::now(self.with_lease(key, holder, now_ms, |records, key| {
            records.remove(key);
        }))
    }

    fn expire(&self, records_max: usize, now_ms: u64) -> Reply<usize> {
        Reply::now(Ok(self.lock().sweep(records_max, now_ms)))
    }
}

impl Record {
    fn is_held_by(&self, caller: &[u8]) -> bool {
        matches!(&self.content, Content::Lease { holder } if holder == caller)
    }
}

impl Records {
    /// The record, unless it has ended.
    fn live(&mut self, key: RecordKeyRef<'_>, now_ms: u64) -> Option<&Record> {
        if self.by_key.get(&key).is_some_and(|record| record.end_ms <= now_ms) {
            self.remove(key);
        }
        self.by_key.get(&key)
    }

    fn insert(&mut self, key: RecordKeyRef<'_>, record: Record) {
        let key = key.to_owned();
        self.count(&key.owner, record.usage);
        self.by_end.insert((record.end_ms, key.clone()));
        self.by_key.insert(key, record);
    }

    fn remove(&mut self, key: RecordKeyRef<'_>) -> Option<Record> {
        let (key, record) = self.by_key.remove_entry(&key)?;
        self.count(&key.owner, Usage::default().minus(record.usage));
        self.by_end.remove(&(record.end_ms, key));
        Some(record)
    }

    fn set_end(&mut self, key: RecordKeyRef<'_>, end_ms: u64) {
        if let Some(record) = self.remove(key) {
            self.insert(key, Record { end_ms, ..record });
        }
    }

    /// Makes room. Fails if `added` exceeds a limit even without the records that have ended.
    fn evict(
        &mut self,
        limits: &StoreLimits,
        owner: &[u8],
        added: Usage,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        self.sweep(SWEEP_RECORDS_PER_WRITE, now_ms);
        loop {
            let used = self.usage_by_owner.get(owner).copied().unwrap_or_default();
            let Some(limit) = limits.exceeded(used, self.total, added) else { return Ok(()) };
            if self.sweep(SWEEP_RECORDS, now_ms) == 0 {
                return Err(StoreError::Full { limit });
            }
        }
    }

    fn sweep(&mut self, records_max: usize, now_ms: u64) -> usize {
        let mut removed = 0;
        while removed < records_max
            && let Some((end_ms, key)) = self.by_end.first()
            && *end_ms <= now_ms
        {
            let key = key.clone();
            let RecordKey { family, namespace, owner, name } = &*key;
            self.remove(RecordKeyRef { family: *family, namespace: *namespace, owner, name });
            removed += 1;
        }
        removed
    }

    fn count(&mut self, owner: &[u8], added: Usage) {
        self.total = self.total.plus(added);
        match self.usage_by_owner.get_mut(owner) {
            Some(usage) => *usage = usage.plus(added),
            None => {
                self.usage_by_owner.insert(owner.into(), added);
            }
        }
        if self.usage_by_owner.get(owner).is_some_and(|usage| usage.records == 0) {
            self.usage_by_owner.remove(owner);
        }
    }
}
