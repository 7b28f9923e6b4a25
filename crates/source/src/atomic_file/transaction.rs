//! The replacement of a file as a transaction: read, edit in memory, replace.

use std::io::Write;
use std::path::Path;

use contract::source::{IdempotencyKey, SourceError, TransactionOptions, WriteError};

use super::idempotency::{EntryOutcome, IdempotencyIndex, IdempotencyLog, IdempotencyLookup};
use super::target::{FileState, TargetFile};
use super::temp_file::TempFile;
use super::{AtomicFile, RESPONSE_BYTES_MAX, WRITABLE_BYTES_MAX, WriteTurn, error};
use crate::backups::{BackupFolder, BackupPolicy, PublishedBackup};

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
    pub(crate) fn commit(self) -> Result<(), WriteError> {
        let when = match self.file.backups {
            BackupPolicy::Off => BackupTime::Never,
            BackupPolicy::Daily => BackupTime::FirstOfDay,
        };
        self.replace(when).map(drop)
    }

    /// The same, and keeps a copy of the old contents whatever the policy is. Returns its version, if the contents
    /// differ.
    pub(crate) fn commit_with_backup(self) -> Result<Option<String>, WriteError> {
        self.replace(BackupTime::Now)
    }

    fn replace(mut self, backup: BackupTime) -> Result<Option<String>, WriteError> {
        let Some(turn) = &mut self.turn else { return Ok(None) };
        let mut log = turn.open_log(&self.target);
        let (options, record) = (&self.options, self.record.as_ref());
        options.check_cancelled()?;
        let Some(after) = &self.after else {
            if let Some(record) = record {
                log.record_unchanged(record, &self.before, options.now_ms)?;
            }
            return Ok(None);
        };
        let temp_file = TempFile::write(&self.target, &self.before, after)?;
        options.check_cancelled()?;
        let version = keep_version(&self.target, &self.before, backup, options.now_ms)?;
        if let Some(record) = record {
            let begun = log.begin(record, &self.before, after, options.now_ms);
            if let Err(error) = begun {
                if let Some(_version) = version {
                    PublishedBackup::discard(_version)
                }
                return Err(error.into());
            }
        }
        // From here on the entry is in the log. If it stays pending, the next writer compares the file.
        let same = self.target.check_unchanged(&self.file.path, &self.before);
        let committed =
            same.and_then(|()| options.check_cancelled()).and_then(|()| temp_file.commit(&self.target));
        if let Err(error) = committed {
            if record.is_some() {
                log.finish(EntryOutcome::NotApplied);
            }
            if let Some(version) = version {
                version.discard();
            }
            return Err(error.into());
        }
        self.target.sync_folder().map_err(|error| error::unconfirmed_error(&self.target, &error))?;
        if record.is_some() {
            log.finish(EntryOutcome::Applied);
        }
        Ok(version.map(PublishedBackup::keep))
    }
}

/// Whether a copy of the old contents is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BackupTime {
    Never,
    FirstOfDay,
    Now,
}

fn keep_version(
    target: &TargetFile,
    before: &FileState,
    when: BackupTime,
    now_ms: u64,
) -> Result<Option<PublishedBackup>, SourceError> {
    let folder = BackupFolder::next_to(target.path());
    let is_due = match when {
        BackupTime::Never => Ok(false),
        BackupTime::FirstOfDay => folder.is_due(now_ms),
        BackupTime::Now => Ok(true),
    };
    let write = |path: &Path| TempFile::create(path.to_owned(), before, |file| file.write_all(&before.bytes));
    let keep = |is_due| match is_due {
        false => Ok(None),
        true => folder.copy(now_ms, |path| write(path).map(TempFile::leave))?.publish().map(Some),
    };
    is_due.and_then(keep).map_err(|error| error::backup_error(target.file_name(), target.path(), &error))
}

impl WriteTurn<'_> {
    /// The log as it was read when the transaction began.
    fn open_log<'l>(&'l mut self, target: &'l TargetFile) -> IdempotencyLog<'l> {
        IdempotencyLog::resume(target, &mut self.idempotency_index, self.log_file.take())
    }
}
