//! Replaces a file atomically: under a lock, completely or not at all, once per idempotency key.
//!
//! All of this happens in the file's own folder. Next to the file, under names that begin with a dot, are the lock
//! during a write, the new file until it replaces the old one, the idempotency log, which stays, and the folder of
//! [`crate::backups`].
//! [`AtomicFile::begin`] and [`FileTransaction`] tell the whole story. The next writer cleans up after a process that was killed.
//!
//! Deliberately absent: knowing what the bytes mean, and keeping them in memory.

mod editor_lock;
mod error;
mod idempotency;
mod lock;
mod target;
mod temp_file;
mod transaction;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::{SourceError, TransactionOptions, WriteError};

use crate::backups::BackupPolicy;
pub(crate) use error::backup_error;
use idempotency::{IdempotencyIndex, IdempotencyLog};
use lock::FileLock;
use target::TargetFile;
pub(crate) use temp_file::create;
pub(crate) use transaction::FileTransaction;

/// A write holds the file in memory several times.
pub(crate) const WRITABLE_BYTES_MAX: u64 = 256 << 20;
/// Responses are kept in the idempotency log.
const RESPONSE_BYTES_MAX: usize = 4 << 20;
/// How long to wait for other writers of the same file.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// How soon a writer that waits notices that its caller has gone away.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Writes one file, one change at a time, together with other threads and processes.
pub(crate) struct AtomicFile {
    path: PathBuf,
    backups: BackupPolicy,
    /// The writers of this process queue here instead of competing for the file lock.
    state: Mutex<WriterState>,
    turn_ended: Condvar,
}

struct WriterState {
    is_writing: bool,
    /// What was read of the idempotency log, so that only new lines are read.
    idempotency_index: IdempotencyIndex,
    /// Whether this process has cleaned up after killed writers.
    is_cleaned_up: bool,
    /// Leave the lock to other processes until then.
    yield_until: Option<Instant>,
}

/// When to stop waiting for other writers.
#[derive(Debug, Clone, Copy)]
struct WaitDeadline<'a> {
    deadline: Instant,
    options: &'a TransactionOptions,
}

impl<'a> WaitDeadline<'a> {
    fn of(options: &'a TransactionOptions) -> Self {
        Self { deadline: Instant::now() + LOCK_WAIT_MAX, options }
    }

    fn is_expired(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Fails if the caller has gone away.
    fn check_cancelled(&self) -> Result<(), SourceError> {
        self.options.check_cancelled()
    }
}

impl AtomicFile {
    pub(crate) fn new(path: &Path) -> Self {
        let state = WriterState {
            is_writing: false,
            idempotency_index: IdempotencyIndex::default(),
            is_cleaned_up: false,
            yield_until: None,
        };
        let (path, backups) = (path.to_owned(), BackupPolicy::Off);
        Self { path, backups, state: Mutex::new(state), turn_ended: Condvar::new() }
    }

    pub(crate) fn with_backups(self, backups: BackupPolicy) -> Self {
        Self { backups, ..self }
    }

    /// Why the file cannot be written, if it cannot. Does not try to write.
    pub(crate) fn read_only_reason(&self) -> Option<String> {
        match TargetFile::resolve(&self.path) {
            Ok(target) => target.read_only_reason(),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Begins a transaction: waits for other writers, and reads the file. A dry run needs no lock, because the file is
    /// always one whole version.
    pub(crate) fn begin(&self, options: &TransactionOptions) -> Result<FileTransaction<'_>, WriteError> {
        if options.dry_run {
            let target = TargetFile::resolve(&self.path)?;
            target.check_writable()?;
            editor_lock::check_not_open(&target, &self.path)?;
            let before = target.read()?;
            return Ok(FileTransaction::new(self, target, before, options, None));
        }
        let deadline = WaitDeadline::of(options);
        let mut turn = self.acquire_turn(deadline)?;
        let target = TargetFile::resolve(&self.path)?;
        target.check_writable()?;
        editor_lock::check_not_open(&target, &self.path)?;
        turn.lock(&target, deadline)?;
        let before = target.read()?;
        let mut log = IdempotencyLog::open(&target, &mut turn.idempotency_index)?;
        log.resolve_pending(&before.bytes)?;
        turn.log_file = log.into_file();
        Ok(FileTransaction::new(self, target, before, options, Some(turn)))
    }

    fn acquire_turn(&self, deadline: WaitDeadline<'_>) -> Result<WriteTurn<'_>, SourceError> {
        deadline.check_cancelled()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.is_writing {
            if deadline.is_expired() {
                return Err(error::busy_error(&self.path, "other threads are writing it"));
            }
            (state, _) = self
                .turn_ended
                .wait_timeout(state, CANCEL_CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            if let Err(stopped) = deadline.check_cancelled() {
                // If it was this writer's turn, pass it on.
                self.turn_ended.notify_one();
                return Err(stopped);
            }
        }
        state.is_writing = true;
        let (index, is_cleaned_up) = (std::mem::take(&mut state.idempotency_index), state.is_cleaned_up);
        let resume_at = state.yield_until.take();
        drop(state);
        if let Some(resume_at) = resume_at {
            std::thread::sleep(resume_at.saturating_duration_since(Instant::now()));
        }
        Ok(WriteTurn { file: self, idempotency_index: index, is_cleaned_up, lock: None, log_file: None })
    }
}

/// This writer's turn, which ends when this is dropped.
struct WriteTurn<'a> {
    file: &'a AtomicFile,
    idempotency_index: IdempotencyIndex,
    is_cleaned_up: bool,
    lock: Option<FileLock>,
    /// The idempotency log, if there is one.
    log_file: Option<File>,
}

impl WriteTurn<'_> {
    /// Locks out other processes, and cleans up after killed ones.
    fn lock(&mut self, target: &TargetFile, deadline: WaitDeadline<'_>) -> Result<(), SourceError> {
        let lock = self.lock.insert(FileLock::acquire(target, deadline)?);
        if lock.was_abandoned() || !self.is_cleaned_up {
            temp_file::remove_stale(target);
            self.is_cleaned_up = true;
        }
        Ok(())
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        self.log_file = None;
        let yield_until = self.lock.take().and_then(FileLock::release);
        let mut state: MutexGuard<'_, WriterState> =
            self.file.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, is_cleaned_up) = (std::mem::take(&mut self.idempotency_index), self.is_cleaned_up);
        *state = WriterState { is_writing: false, idempotency_index: index, is_cleaned_up, yield_until };
        drop(state);
        self.file.turn_ended.notify_one();
    }
}

#[cfg(test)]
mod tests;
