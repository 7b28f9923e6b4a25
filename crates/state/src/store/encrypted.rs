//! A store whose content only this server's keys can read.
//!
//! Values are sealed with the keyring and bound to their place: what is moved to another name, owner or namespace does not
//! open. Names, owners and holders are replaced by keyed digests, which do not change when keys rotate: a mark set before
//! a rotation is found after it. The entries of a stream live longer than keys do, where something is always added: those
//! whose key has ended are gone, and the others can still be read. Who can write the engine can still delete records, or repeat old entries of a stream.

use std::sync::Arc;

use spile_core::Platform;

use super::{LeaseOutcome, PutOutcome, Reply, Sequence, Store, StoreError, StoreKey, StreamPage, Ttl};
use crate::keyring::{Keyring, OpenError, Purpose, digest_parts};

pub struct EncryptedStore {
    engine: Arc<dyn Store>,
    keyring: Arc<Keyring>,
    /// For nonces.
    platform: Arc<dyn Platform>,
}

/// The key that the engine sees.
struct HiddenKey {
    owner: [u8; 32],
    name: [u8; 32],
}

impl HiddenKey {
    fn in_namespace_of(&self, key: StoreKey<'_>) -> StoreKey<'_> {
        StoreKey { namespace: key.namespace, owner: &self.owner, name: &self.name }
    }
}

/// What a sealed value is bound to in addition to its key.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Entry,
    StreamEntry,
}

impl EncryptedStore {
    pub fn new(engine: Arc<dyn Store>, keyring: Arc<Keyring>, platform: Arc<dyn Platform>) -> Self {
        Self { engine, keyring, platform }
    }

    fn hide(&self, key: StoreKey<'_>) -> HiddenKey {
        HiddenKey {
            owner: self.keyring.hide_name(&[b"owner", key.owner]),
            name: self.keyring.hide_name(&[b"name", &[key.namespace.code()], key.owner, key.name]),
        }
    }

    fn hide_holder(&self, holder: &[u8]) -> [u8; 32] {
        self.keyring.hide_name(&[b"holder", holder])
    }

    fn seal(&self, kind: Kind, key: StoreKey<'_>, value: &[u8]) -> Vec<u8> {
        self.keyring.seal_bytes(Purpose::Store, &binding(kind, key), value, &*self.platform)
    }

    /// Opens what the engine returns for this key.
    fn opener(
        &self,
        kind: Kind,
        key: StoreKey<'_>,
        now_ms: u64,
    ) -> impl Fn(Vec<u8>) -> Result<Vec<u8>, StoreError> + Send + 'static {
        let (keyring, binding) = (self.keyring.clone(), binding(kind, key));
        move |sealed| keyring.open_bytes(Purpose::Store, &binding, sealed, now_ms).map_err(unreadable)
    }
}

fn unreadable(error: OpenError) -> StoreError {
    tracing::error!(%error, "cannot decrypt a stored value");
    match error {
        OpenError::UnknownKey(_) | OpenError::KeyExpired(_) => StoreError::KeyGone,
        OpenError::Malformed | OpenError::Mismatch => StoreError::Corrupt,
    }
}

fn binding(kind: Kind, key: StoreKey<'_>) -> [u8; 32] {
    let kind: &[u8] = match kind {
        Kind::Entry => b"entry",
        Kind::StreamEntry => b"stream entry",
    };
    digest_parts(&[kind, &[key.namespace.code()], key.owner, key.name])
}

impl Store for EncryptedStore {
    fn run_id(&self) -> Option<[u8; 16]> {
        self.engine.run_id()
    }

    fn put_once(&self, key: StoreKey<'_>, value: &[u8], ttl: Ttl, now_ms: u64) -> Reply<PutOutcome> {
        let sealed = self.seal(Kind::Entry, key, value);
        self.engine.put_once(self.hide(key).in_namespace_of(key), &sealed, ttl, now_ms)
    }

    fn get(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        let open = self.opener(Kind::Entry, key, now_ms);
        let found = self.engine.get(self.hide(key).in_namespace_of(key), now_ms);
        found.map(move |value| value?.map(open).transpose())
    }

    fn take(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        let open = self.opener(Kind::Entry, key, now_ms);
        let taken = self.engine.take(self.hide(key).in_namespace_of(key), now_ms);
        taken.map(move |value| value?.map(open).transpose())
    }

    fn delete(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<bool> {
        self.engine.delete(self.hide(key).in_namespace_of(key), now_ms)
    }

    fn append(
        &self,
        stream: StoreKey<'_>,
        value: &[u8],
        entries_max: usize,
        ttl: Ttl,
        now_ms: u64,
    ) -> Reply<Sequence> {
        let sealed = self.seal(Kind::StreamEntry, stream, value);
        self.engine.append(self.hide(stream).in_namespace_of(stream), &sealed, entries_max, ttl, now_ms)
    }

    fn read_after(
        &self,
        stream: StoreKey<'_>,
        after: Sequence,
        entries_max: usize,
        now_ms: u64,
    ) -> Reply<Option<StreamPage>> {
        let (engine, hidden, namespace) = (self.engine.clone(), self.hide(stream), stream.namespace);
        let (keyring, binding) = (self.keyring.clone(), binding(Kind::StreamEntry, stream));
        Reply::later(async move {
            let (mut after, mut has_lost) = (after, false);
            loop {
                let key = StoreKey { namespace, owner: &hidden.owner, name: &hidden.name };
                let page = engine.read_after(key, after, entries_max, now_ms).await?;
                let Some(StreamPage { entries: sealed, has_gap }) = page else { return Ok(None) };
                let last = sealed.last().map(|(sequence, _)| *sequence);
                let mut entries = Vec::with_capacity(sealed.len());
                for (sequence, sealed) in sealed {
                    match keyring.open_bytes(Purpose::Store, &binding, sealed, now_ms) {
                        Ok(value) => entries.push((sequence, value)),
                        Err(OpenError::UnknownKey(_) | OpenError::KeyExpired(_)) => has_lost = true,
                        Err(error) => return Err(unreadable(error)),
                    }
                }
                match last {
                    // A page without entries would be the end of the stream.
                    Some(last) if entries.is_empty() => after = last,
                    _ => return Ok(Some(StreamPage { entries, has_gap: has_gap || has_lost })),
                }
            }
        })
    }

    fn lease(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<LeaseOutcome> {
        self.engine.lease(self.hide(key).in_namespace_of(key), &self.hide_holder(holder), ttl, now_ms)
    }

    fn renew(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<bool> {
        self.engine.renew(self.hide(key).in_namespace_of(key), &self.hide_holder(holder), ttl, now_ms)
    }

    fn release(&self, key: StoreKey<'_>, holder: &[u8], now_ms: u64) -> Reply<bool> {
        self.engine.release(self.hide(key).in_namespace_of(key), &self.hide_holder(holder), now_ms)
    }

    fn expire(&self, records_max: usize, now_ms: u64) -> Reply<usize> {
        self.engine.expire(records_max, now_ms)
    }
}
