//! The replacement of a file as a transaction: read, edit in memory, replace.

use contract::source::{IdempotencyKey, TransactionOptions, WriteError};

use super::idempotency::{EntryOutcome, IdempotencyIndex, IdempotencyLog, IdempotencyLookup};
use super::target::{FileState, TargetFile};
use super::temp_file::TempFile;
use super::{AtomicFile, RESPONSE_BYTES_MAX, WRITABLE_BYTES_MAX, WriteTurn, error};

/// A transaction on one file. Dropping it leaves the file as it was.
pub(crate) struct FileTransaction<'f> {
    file: &'f AtomicFile,
    target: TargetFile,
    before: FileState,
    options: TransactionOptions,
    /// The new contents, if they differ.
    after: Option<Vec<u8>>,
    record: Option<IdempotencyRecord>,
    /// `None` in a dry run. Dropped last, because it holds the lock.
    turn: Option<WriteTurn<'f>>,
}

/// The response that is stored with the change.
pub(super) struct IdempotencyRecord {
    pub(super) key: IdempotencyKey,
    pub(super) response: Vec<u8>,
}

impl<'f> FileTransaction<'f> {
    pub(super) fn new(
        file: &'f AtomicFile,
        target: TargetFile,
        before: FileState,
        options: &TransactionOptions,
        turn: Option<WriteTurn<'f>>,
    ) -> Self {
        Self { file, target, before, options: options.clone(), after: None, record: None, turn }
    }

    /// The contents of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.before.bytes
    }

    /// Replaces the contents when the transaction is committed.
    pub(crate) fn set_bytes(&mut self, bytes: Vec<u8>) -> Result<(), WriteError> {
        if bytes.len() as u64 > WRITABLE_BYTES_MAX {
            let max_mb = WRITABLE_BYTES_MAX >> 20;
            let reason = format!("`{}` would exceed the limit of {max_mb} MB", self.target.file_name());
            return Err(WriteError::Rejected { column: None, reason });
        }
        self.after = Some(bytes).filter(|bytes| *bytes != self.before.bytes);
        Ok(())
    }

    pub(crate) fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        let now_ms = self.options.now_ms;
        let found = match &mut self.turn {
            Some(turn) => {
                let mut log = turn.open_log(&self.target);
                let found = log.lookup(*key, now_ms);
                turn.log_file = log.into_file();
                found?
            }
            None => {
                let mut index = IdempotencyIndex::default();
                IdempotencyLog::open_read_only(&self.target, &mut index, &self.before.bytes)?
                    .lookup(*key, now_ms)?
            }
        };
        match found {
            IdempotencyLookup::NotFound => Ok(None),
            IdempotencyLookup::Applied(response) => Ok(Some(response)),
            IdempotencyLookup::KeyReused => Err(WriteError::IdempotencyKeyReused),
            IdempotencyLookup::Unknown => Err(WriteError::OutcomeUnknown),
        }
    }

    pub(crate) fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        if response.len() > RESPONSE_BYTES_MAX {
            let reason = "the row is too large for a write with an idempotency key".into();
            return Err(WriteError::Rejected { column: None, reason });
        }
        self.record = Some(IdempotencyRecord { key: *key, response: response.to_vec() });
        Ok(())
    }

    /// Replaces the file: durably before this returns, and never in part.
    pub(crate) fn commit(mut self) -> Result<(), WriteError> {
        let Some(turn) = &mut self.turn else { return Ok(()) };
        let mut log = turn.open_log(&self.target);
        let (options, record) = (&self.options, self.record.as_ref());
        options.check_cancelled()?;
        let Some(after) = &self.after else {
            if let Some(record) = record {
                log.record_unchanged(record, &self.before, options.now_ms)?;
            }
            return Ok(());
        };
        let temp_file = TempFile::write(&self.target, &self.before, after)?;
        options.check_cancelled()?;
        if let Some(record) = record {
            log.begin(record, &self.before, after, options.now_ms)?;
        }
        // From here on the entry is in the log. If it stays pending, the next writer compares the file.
        let same = self.target.check_unchanged(&self.file.path, &self.before);
        let committed =
            same.and_then(|()| options.check_cancelled()).and_then(|()| temp_file.commit(&self.target));
        if let Err(error) = committed {
            if record.is_some() {
                log.finish(EntryOutcome::NotApplied);
            }
            return Err(error.into());
        }
        self.target.sync_folder().map_err(|error| error::unconfirmed_error(&self.target, &error))?;
        if record.is_some() {
            log.finish(EntryOutcome::Applied);
        }
        Ok(())
    }
}

impl WriteTurn<'_> {
    /// The log as it was read when the transaction began.
    fn open_log<'l>(&'l mut self, target: &'l TargetFile) -> IdempotencyLog<'l> {
        IdempotencyLog::resume(target, &mut self.idempotency_index, self.log_file.take())
    }
}
