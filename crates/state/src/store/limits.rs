//! What a store may hold, and how records count. The same for every engine.

use std::fmt;

use super::{StoreError, StoreKey, Ttl};

/// An owner is a digest.
pub const OWNER_BYTES_MAX: usize = 64;
pub const NAME_BYTES_MAX: usize = 256;
pub const HOLDER_BYTES_MAX: usize = 64;
/// What a record counts in addition to its bytes: keys, times and indexes take memory too.
pub const RECORD_OVERHEAD_BYTES: u64 = 128;

/// Records that have ended are removed in groups of this size when room is needed.
pub(super) const SWEEP_RECORDS: usize = 256;
/// What is stored removes this many that have ended: more than it adds, so that they do not stay until the store is full.
pub(super) const SWEEP_RECORDS_PER_WRITE: usize = 4;

/// The bounds of a store. Bytes include [`RECORD_OVERHEAD_BYTES`] per record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// One value.
    pub entry_bytes_max: usize,
    /// All records: entries, streams and their entries, leases.
    pub records_max: u64,
    pub bytes_max: u64,
    /// So that one owner cannot fill the store for all others.
    pub owner_records_max: u64,
    pub owner_bytes_max: u64,
    pub ttl_ms_max: u64,
    /// One page of a stream. A single entry is returned even if it is longer.
    pub read_bytes_max: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            entry_bytes_max: 1 << 20,
            records_max: 200_000,
            bytes_max: 256 << 20,
            owner_records_max: 20_000,
            owner_bytes_max: 32 << 20,
            ttl_ms_max: 30 * 24 * 60 * 60 * 1000,
            read_bytes_max: 4 << 20,
        }
    }
}

/// The limit that a verb would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitName {
    EntryBytes,
    Records,
    Bytes,
    OwnerRecords,
    OwnerBytes,
    Ttl,
    OwnerLength,
    NameLength,
    HolderLength,
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EntryBytes => "entry_bytes_max",
            Self::Records => "records_max",
            Self::Bytes => "bytes_max",
            Self::OwnerRecords => "owner_records_max",
            Self::OwnerBytes => "owner_bytes_max",
            Self::Ttl => "ttl_ms_max",
            Self::OwnerLength => "OWNER_BYTES_MAX",
            Self::NameLength => "NAME_BYTES_MAX",
            Self::HolderLength => "HOLDER_BYTES_MAX",
        })
    }
}

/// What an owner, or all of them, hold; or what a verb adds and removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    pub(super) records: i64,
    pub(super) bytes: i64,
}

impl Usage {
    /// A record with these parts.
    pub(super) fn of_record(parts: &[&[u8]]) -> Self {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        Self { records: 1, bytes: bytes as i64 + RECORD_OVERHEAD_BYTES as i64 }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { records: self.records + other.records, bytes: self.bytes + other.bytes }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self { records: self.records - other.records, bytes: self.bytes - other.bytes }
    }
}

impl StoreLimits {
    pub(super) fn check_key(&self, key: StoreKey<'_>) -> Result<(), StoreError> {
        check(LimitName::OwnerLength, OWNER_BYTES_MAX as u64, key.owner.len() as u64)?;
        check(LimitName::NameLength, NAME_BYTES_MAX as u64, key.name.len() as u64)
    }

    pub(super) fn check_value(&self, value: &[u8]) -> Result<(), StoreError> {
        check(LimitName::EntryBytes, self.entry_bytes_max as u64, value.len() as u64)
    }

    pub(super) fn check_holder(&self, holder: &[u8]) -> Result<(), StoreError> {
        check(LimitName::HolderLength, HOLDER_BYTES_MAX as u64, holder.len() as u64)
    }

    /// When a record that is stored now ends.
    pub(super) fn end_ms(&self, ttl: Ttl, now_ms: u64) -> Result<u64, StoreError> {
        check(LimitName::Ttl, self.ttl_ms_max, ttl.ms)?;
        Ok(now_ms.saturating_add(ttl.ms))
    }

    /// The limit that `added` would exceed. What shrinks is always allowed, also in a store that is over its limits
    /// because they were lowered.
    pub(super) fn exceeded(&self, owner: Usage, total: Usage, added: Usage) -> Option<LimitName> {
        let is_over = |used: i64, added: i64, max: u64| added > 0 && (used + added).cast_unsigned() > max;
        [
            (LimitName::OwnerRecords, is_over(owner.records, added.records, self.owner_records_max)),
            (LimitName::OwnerBytes, is_over(owner.bytes, added.bytes, self.owner_bytes_max)),
            (LimitName::Records, is_over(total.records, added.records, self.records_max)),
            (LimitName::Bytes, is_over(total.bytes, added.bytes, self.bytes_max)),
        ]
        .into_iter()
        .find_map(|(name, is_over)| is_over.then_some(name))
    }
}

fn check(limit: LimitName, max: u64, actual: u64) -> Result<(), StoreError> {
    if actual > max { Err(StoreError::TooLarge { limit, max, actual }) } else { Ok(()) }
}
