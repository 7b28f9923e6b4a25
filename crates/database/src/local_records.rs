//! Idempotency records outside of the database, where the role may not create a table for them.
//!
//! A record cannot be committed together with the change. So it is written twice: before the change, as one whose outcome is unknown,
//! and with the response after the commit. A call that finds an unknown outcome is not repeated: the change may have been made.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::source::{IdempotencyKey, SourceError, WriteError};

/// Keeps records durably. Calls block.
pub trait RecordStore: Send + Sync {
    /// Adds a record without a response, unless there is one with the key; then returns that.
    fn begin(&self, key: &IdempotencyKey, now_ms: u64) -> Result<StoredRecord, String>;

    /// Adds the response.
    fn finish(&self, key: &IdempotencyKey, response: &[u8]) -> Result<(), String>;

    /// Removes a record without a response: nothing was changed.
    fn abandon(&self, key: &IdempotencyKey) -> Result<(), String>;
}

/// What is known about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredRecord {
    /// It was not used before, and is from now on.
    New,
    /// It was used for another request.
    OtherRequest,
    /// A call began, and did not say how it ended.
    Unknown,
    Done(Vec<u8>),
}

/// The records of one database.
pub(crate) struct LocalRecords {
    store: Arc<dyn RecordStore>,
    /// Keys of calls that run now, in this process.
    active: Mutex<HashSet<[u8; 32]>>,
}

impl LocalRecords {
    pub(crate) fn new(store: Arc<dyn RecordStore>) -> Self {
        Self { store, active: Mutex::default() }
    }

    /// The response of an earlier call with this key, or the claim of this one.
    pub(crate) fn find(&self, key: &IdempotencyKey, now_ms: u64) -> Result<Found<'_>, WriteError> {
        if !self.active().insert(key.key_digest) {
            let detail = "a call with the same idempotency key is running".into();
            return Err(SourceError::Busy { detail }.into());
        }
        let mut claim =
            LocalClaim { records: self, key: *key, response: Vec::new(), state: ClaimState::NoRecord };
        match self.store.begin(key, now_ms) {
            Ok(StoredRecord::New) => {
                claim.state = ClaimState::NothingChanged;
                Ok(Found::New(claim))
            }
            Ok(StoredRecord::Done(response)) => Ok(Found::Done(response)),
            Ok(StoredRecord::OtherRequest) => Err(WriteError::IdempotencyKeyReused),
            Ok(StoredRecord::Unknown) => Err(WriteError::OutcomeUnknown),
            Err(detail) => {
                let message = "the idempotency key cannot be recorded now; nothing was written".into();
                Err(SourceError::Unavailable { message, detail }.into())
            }
        }
    }

    fn active(&self) -> MutexGuard<'_, HashSet<[u8; 32]>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) enum Found<'r> {
    New(LocalClaim<'r>),
    Done(Vec<u8>),
}

/// The record of a call that runs. Dropping it before the commit removes the record.
pub(crate) struct LocalClaim<'r> {
    records: &'r LocalRecords,
    key: IdempotencyKey,
    response: Vec<u8>,
    state: ClaimState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    /// There is no record of this call.
    NoRecord,
    NothingChanged,
    /// The commit was sent. Only its answer says more.
    Committing,
}

impl LocalClaim<'_> {
    pub(crate) fn set_response(&mut self, response: &[u8]) {
        self.response = response.to_vec();
    }

    /// From here on the change may have been made, even if this process ends now.
    pub(crate) fn begin_commit(&mut self) {
        self.state = ClaimState::Committing;
    }

    /// The database says how the commit ended.
    pub(crate) fn end_commit(mut self, committed: &Result<(), WriteError>) {
        match committed {
            Ok(()) => {
                // Without the response a repeated call learns that the outcome is unknown, and changes nothing.
                if let Err(detail) = self.records.store.finish(&self.key, &self.response) {
                    tracing::warn!(detail, "the response of an idempotency key was not recorded");
                }
            }
            Err(WriteError::OutcomeUnknown) => {}
            Err(_) => self.state = ClaimState::NothingChanged,
        }
    }
}

impl Drop for LocalClaim<'_> {
    fn drop(&mut self) {
        if self.state == ClaimState::NothingChanged
            && let Err(detail) = self.records.store.abandon(&self.key)
        {
            tracing::warn!(detail, "the record of an idempotency key was not removed");
        }
        self.records.active().remove(&self.key.key_digest);
    }
}
