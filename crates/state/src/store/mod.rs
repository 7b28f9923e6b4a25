//! State that outlives a request, and with SQLite a process: single-use marks, task records, approvals, journals.
//!
//! A [`Store`] has few operations, which any engine can offer atomically. A call that needs none of them never touches the
//! store. Every record belongs to an owner, ends after its time to live, and counts against [`StoreLimits`]. Time is an
//! argument. It notifies nobody: replicas read a stream of it from time to time (ADR 0290). ADR 0042 has the reasons.

mod encrypted;
mod limits;
mod memory;
mod on_demand;
mod reply;
mod sqlite;

pub use encrypted::EncryptedStore;
pub use limits::{
    HOLDER_BYTES_MAX, LimitName, NAME_BYTES_MAX, OWNER_BYTES_MAX, RECORD_OVERHEAD_BYTES, StoreLimits,
};
pub use memory::MemoryStore;
pub use on_demand::OnDemandStore;
pub use reply::Reply;
pub use sqlite::{OpenStoreError, SqliteStore};

/// What a record is for. Each namespace has names of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Namespace {
    /// Marks of `requestState` that was used: a state is valid once.
    UsedRequestStates,
    Tasks,
    Approvals,
    /// Journals that are too large for a client to carry.
    Journals,
    /// What processes with the same store tell each other: sessions that a client ended, and notices of messages.
    EndedSessions,
    /// What a client sent to one process, for another one that waits for it.
    Messages,
}

impl Namespace {
    pub const ALL: [Self; 6] = [
        Self::UsedRequestStates,
        Self::Tasks,
        Self::Approvals,
        Self::Journals,
        Self::EndedSessions,
        Self::Messages,
    ];

    /// Part of what is stored: must not change.
    fn code(self) -> u8 {
        match self {
            Self::UsedRequestStates => 1,
            Self::Tasks => 2,
            Self::Approvals => 3,
            Self::Journals => 4,
            Self::EndedSessions => 5,
            Self::Messages => 6,
        }
    }
}

/// Names one record. An entry, a stream and a lease may have the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreKey<'a> {
    pub namespace: Namespace,
    /// The digest of the principal's identity. Another owner's records have other names.
    pub owner: &'a [u8],
    pub name: &'a [u8],
}

/// How long a record exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl {
    pub ms: u64,
}

/// The place of an entry in its stream. Later entries have greater ones; the numbers have gaps, and none is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Before the first entry of any stream.
    pub const START: Self = Self(0);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Stored,
    AlreadyThere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// The caller holds the lease until its time to live ends.
    Held,
    HeldByOther {
        until_ms: u64,
    },
}

/// A part of a stream. The next part starts after the last sequence; a page without entries is the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPage {
    pub entries: Vec<(Sequence, Vec<u8>)>,
    /// Entries after the requested sequence were dropped, because the stream was full, or because their key has ended.
    pub has_gap: bool,
}

/// Why an operation failed. [`StoreError::Full`] and [`StoreError::TooLarge`] changed nothing. After
/// [`StoreError::Unavailable`] it is unknown. What is damaged or has lost its key is gone once it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the server's store is not available; try again later")]
    Unavailable,
    #[error(
        "the server's store is full (`{limit}`); try again when older entries have ended, or ask for a higher limit"
    )]
    Full { limit: LimitName },
    #[error("{actual} exceeds the limit of {max} (`{limit}`); send less")]
    TooLarge { limit: LimitName, max: u64, actual: u64 },
    #[error("the stored entry is damaged; start again without it")]
    Corrupt,
    #[error(
        "the stored entry cannot be read any more, because the server's keys have changed; start again without it"
    )]
    KeyGone,
}

/// Every operation is atomic and, once it has returned, as durable as the engine.
pub trait Store: Send + Sync {
    /// Identifies a store that replaces one that cannot be used, and that ends with this process. What relies on the marks
    /// in it must end with it, or it could be used twice.
    fn run_id(&self) -> Option<[u8; 16]> {
        None
    }

    /// Stores an entry unless there is one. Of several callers at once, one stores.
    fn put_once(&self, key: StoreKey<'_>, value: &[u8], ttl: Ttl, now_ms: u64) -> Reply<PutOutcome>;

    fn get(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>>;

    /// Reads and deletes an entry. Of several callers at once, one gets it.
    fn take(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>>;

    /// Deletes the entry and the stream with this key. Returns whether there was one.
    fn delete(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<bool>;

    /// Adds an entry to the end of a stream, and drops the oldest beyond `entries_max`. The stream ends when nothing was
    /// added for `ttl`.
    fn append(
        &self,
        stream: StoreKey<'_>,
        value: &[u8],
        entries_max: usize,
        ttl: Ttl,
        now_ms: u64,
    ) -> Reply<Sequence>;

    /// The entries of a stream after a sequence: at most `entries_max`, and no more than fit into `read_bytes_max`.
    /// `None` if there is no such stream.
    fn read_after(
        &self,
        stream: StoreKey<'_>,
        after: Sequence,
        entries_max: usize,
        now_ms: u64,
    ) -> Reply<Option<StreamPage>>;

    /// Acquires a lease that is free or has ended. A holder that has it already renews it.
    fn lease(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<LeaseOutcome>;

    /// Extends a lease. Returns whether the holder still has it.
    fn renew(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<bool>;

    /// Ends a lease. Returns whether the holder still had it.
    fn release(&self, key: StoreKey<'_>, holder: &[u8], now_ms: u64) -> Reply<bool>;

    /// Removes up to `records_max` records that have ended, and returns their number. They are invisible before; this
    /// frees their memory.
    fn expire(&self, records_max: usize, now_ms: u64) -> Reply<usize>;
}
