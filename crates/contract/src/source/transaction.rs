//! One write as one transaction, and the order of its steps.
//!
//! ```text
//! begin → find the stored response → row → apply → read back → store the response → commit, or roll back
//! ```
//!
//! A source implements the single steps. Only [`run_transaction`] decides how a transaction ends, for rows and for
//! statements. What a write must satisfy is decided between the steps, by the host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CancelFlag, CaptureMode, ChangeSummary, RowFlow, SourceError, SourceIdentity};
use crate::value::{Value, ValueRef};

/// Writes one table, one row per transaction. Called only on threads that may block.
pub trait Writer: Send + Sync {
    /// Begins a transaction. It waits for others that write the same data, but not for longer than a few seconds.
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn RowTransaction + '_>, WriteError>;
}

/// What holds for one transaction.
#[derive(Debug, Clone, Default)]
pub struct TransactionOptions {
    /// A repeated request with the same key gets the stored response of the first.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The transaction will be rolled back, so a source need not lock out others.
    pub dry_run: bool,
    pub now_ms: u64,
    /// Set when the caller has gone away. A write that is not yet committed is abandoned with
    /// [`SourceError::Cancelled`].
    pub cancelled: Option<CancelFlag>,
    /// Who the caller is, for a source that decides by itself which rows exist.
    pub identity: Option<Arc<SourceIdentity>>,
}

impl TransactionOptions {
    /// Fails if the caller has gone away.
    pub fn check_cancelled(&self) -> Result<(), SourceError> {
        match &self.cancelled {
            Some(cancelled) if cancelled.load(Ordering::Relaxed) => Err(SourceError::Cancelled),
            Some(_) | None => Ok(()),
        }
    }
}

/// A transaction that was begun. Dropping it rolls it back.
pub trait Transaction {
    /// The response stored with an earlier write under this key. Called first.
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError>;

    /// Stores the response under this key when the transaction is committed, together with the change.
    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError>;

    /// Keeps the change: durably when this returns, and for concurrent readers all of it or none of it. A transaction
    /// whose caller has gone away before that is rolled back.
    fn commit(self: Box<Self>) -> Result<(), WriteError>;

    /// Leaves everything as it was.
    fn roll_back(self: Box<Self>);
}

/// Changes one row.
pub trait RowTransaction: Transaction {
    /// The row with this key as it is now. No one else changes it before the transaction ends.
    fn row(&mut self, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, WriteError>;

    /// Makes the change, for this transaction only. Called once.
    fn apply(&mut self, change: &RowChange<'_>) -> Result<(), WriteError>;

    /// The created or updated row as the source stores it. A value that the source altered is a
    /// [`WriteError::Rejected`] if the source can name the reason. `None` if there is no such row: after a delete.
    fn read_back(&mut self) -> Result<Option<Vec<Value>>, WriteError>;

    /// What the caller should know about other effects of the change, as sentences.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Runs one of the author's statements.
pub trait StatementTransaction: Transaction {
    /// Runs the statement to its end and passes the rows that it returns to `row`. Arguments come in the order of the
    /// parameters. In a [`WriteError::Rejected`], `column` is the index of a parameter. Called once.
    fn execute(
        &mut self,
        arguments: &[ValueRef<'_>],
        capture: CaptureMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<ChangeSummary, WriteError>;
}

/// What to do with a change that was applied and read back.
#[derive(Debug)]
pub enum Verdict<K, D> {
    /// Commit it. `response` is stored under the idempotency key.
    Keep { response: Vec<u8>, result: K },
    /// Roll it back: the user must be asked first, or the change is not allowed.
    Discard(D),
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome<K, D> {
    /// The change was committed; in a dry run, it would have been.
    Done(K),
    /// An earlier request with the same idempotency key made the change: its stored response.
    Replayed(Vec<u8>),
    /// The change was rolled back.
    Discarded(D),
}

/// Drives a transaction from its beginning to its end.
///
/// `change` applies the change, reads it back and decides. It does not run for a request that was applied before, so a
/// repeated call neither checks nor asks again. After an error nothing is kept. A caller who has gone away before the
/// commit gets [`SourceError::Cancelled`], whatever else went wrong.
pub fn run_transaction<T: Transaction + ?Sized, K, D>(
    mut transaction: Box<T>,
    options: &TransactionOptions,
    change: impl FnOnce(&mut T) -> Result<Verdict<K, D>, WriteError>,
) -> Result<WriteOutcome<K, D>, WriteError> {
    let decided = decide(&mut *transaction, options, change);
    let decided = options.check_cancelled().map_err(WriteError::from).and(decided);
    let outcome = match decided {
        Ok(Step::Commit(result)) => return transaction.commit().map(|()| WriteOutcome::Done(result)),
        Ok(Step::RollBack(outcome)) => Ok(outcome),
        Err(error) => Err(error),
    };
    transaction.roll_back();
    outcome
}

/// The last step of a transaction.
enum Step<K, D> {
    Commit(K),
    RollBack(WriteOutcome<K, D>),
}

/// Everything before the last step.
fn decide<T: Transaction + ?Sized, K, D>(
    transaction: &mut T,
    options: &TransactionOptions,
    change: impl FnOnce(&mut T) -> Result<Verdict<K, D>, WriteError>,
) -> Result<Step<K, D>, WriteError> {
    if let Some(key) = &options.idempotency_key
        && let Some(response) = transaction.find_response(key)?
    {
        return Ok(Step::RollBack(WriteOutcome::Replayed(response)));
    }
    let (response, result) = match change(transaction)? {
        Verdict::Discard(reason) => return Ok(Step::RollBack(WriteOutcome::Discarded(reason))),
        Verdict::Keep { result, .. } if options.dry_run => {
            return Ok(Step::RollBack(WriteOutcome::Done(result)));
        }
        Verdict::Keep { response, result } => (response, result),
    };
    if let Some(key) = &options.idempotency_key {
        transaction.store_response(key, &response)?;
    }
    Ok(Step::Commit(result))
}

/// Values come with their indexes in the shape's columns, each at most once. A column without a value keeps the one it
/// has, or gets its default.
///
/// A value has the form that its column's type requires: an integer for `Integer` and `Int64`, 0 or 1 for `Boolean`,
/// a real for `Number`, bytes for `Blob`, and a text for all others, which for `Json` is JSON on one line. A mixed
/// column also takes any text. A value that the source cannot store exactly is a [`WriteError::Rejected`].
#[derive(Debug)]
pub enum RowChange<'a> {
    /// An existing key is a [`WriteError::AlreadyExists`].
    Create {
        values: &'a [(usize, ValueRef<'a>)],
    },
    /// An unknown key is a [`WriteError::NotFound`].
    Update {
        key: &'a [ValueRef<'a>],
        values: &'a [(usize, ValueRef<'a>)],
    },
    Delete {
        key: &'a [ValueRef<'a>],
    },
}

/// Digests of one caller's idempotency key for one tool, and of the request made with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key_digest: [u8; 32],
    pub request_digest: [u8; 32],
}

/// The minimum retention of an idempotency record, unless there are too many.
pub const IDEMPOTENCY_RETENTION_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Beyond this, the oldest records are removed.
pub const IDEMPOTENCY_RECORDS_MAX: usize = 10_000;

/// Why nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    #[error("no row has this key")]
    NotFound,
    #[error("a row with this key already exists")]
    AlreadyExists,
    #[error("the row has changed since it was read")]
    VersionConflict,
    #[error("this idempotency key was already used for a different request")]
    IdempotencyKeyReused,
    /// Another program changed the file right after the first attempt.
    #[error("cannot determine whether this write was applied; read the row before trying again")]
    OutcomeUnknown,
    /// The source cannot store the value exactly, or does not accept it. `reason` is a clause.
    #[error("{reason}")]
    Rejected { column: Option<usize>, reason: String },
    #[error("this would change {rows} rows, which exceeds the limit of {max}; nothing was changed")]
    TooManyRows { rows: u64, max: u64 },
    #[error("the new row would not match the schema of this collection")]
    ContractViolation,
    /// The change was written, but may not survive a power failure. Must not be repeated without an idempotency key.
    #[error("{message}")]
    DurabilityUnknown { message: String, detail: String },
    /// The source accepted the change, but what it returned about it cannot be read. `message` says what is known. Must not be
    /// repeated without looking.
    #[error("{message}; check what it did before you try again")]
    ResultUnreadable { message: String, detail: String },
    #[error(transparent)]
    Source(#[from] SourceError),
}

#[cfg(test)]
mod tests;
