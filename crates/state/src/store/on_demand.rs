//! A store that is opened by the first verb. Most servers never need one, and should not leave a file behind.

use std::sync::{Arc, OnceLock};

use super::{LeaseOutcome, PutOutcome, Reply, Sequence, Store, StoreKey, StreamPage, Ttl};

type OpenStore = Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>;

pub struct OnDemandStore {
    open: OpenStore,
    opened: OnceLock<Arc<dyn Store>>,
}

impl OnDemandStore {
    /// `open` may wait for the disk: the first verb does.
    pub fn new(open: impl Fn() -> Arc<dyn Store> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), opened: OnceLock::new() }
    }

    fn store(&self) -> &dyn Store {
        &**self.opened.get_or_init(|| (self.open)())
    }
}

impl Store for OnDemandStore {
    fn run_id(&self) -> Option<[u8; 16]> {
        self.store().run_id()
    }

    fn put_once(&self, key: StoreKey<'_>, value: &[u8], ttl: Ttl, now_ms: u64) -> Reply<PutOutcome> {
        self.store().put_once(key, value, ttl, now_ms)
    }

    fn get(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        self.store().get(key, now_ms)
    }

    fn take(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        self.store().take(key, now_ms)
    }

    fn delete(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<bool> {
        self.store().delete(key, now_ms)
    }

    fn append(
        &self,
        stream: StoreKey<'_>,
        value: &[u8],
        entries_max: usize,
        ttl: Ttl,
        now_ms: u64,
    ) -> Reply<Sequence> {
        self.store().append(stream, value, entries_max, ttl, now_ms)
    }

    fn read_after(
        &self,
        stream: StoreKey<'_>,
        after: Sequence,
        entries_max: usize,
        now_ms: u64,
    ) -> Reply<Option<StreamPage>> {
        self.store().read_after(stream, after, entries_max, now_ms)
    }

    fn lease(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<LeaseOutcome> {
        self.store().lease(key, holder, ttl, now_ms)
    }

    fn renew(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<bool> {
        self.store().renew(key, holder, ttl, now_ms)
    }

    fn release(&self, key: StoreKey<'_>, holder: &[u8], now_ms: u64) -> Reply<bool> {
        self.store().release(key, holder, now_ms)
    }

    fn expire(&self, records_max: usize, now_ms: u64) -> Reply<usize> {
        self.store().expire(records_max, now_ms)
    }
}
