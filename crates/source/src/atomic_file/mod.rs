//! Replaces a file atomically: under a lock, completely or not at all, once per idempotency key.
//!
//! All of this happens in the file's own folder. Next to the file, under names that begin with a dot, are the lock
//! during a write, the new file until it replaces the old one, and the idempotency log, which stays.
//! [`AtomicFile::replace`] tells the whole story. The next writer cleans up after a process that was killed.
//!
//! Deliberately absent: knowing what the bytes mean, and keeping them in memory.

mod editor_lock;
mod error;
mod idempotency;
mod lock;
mod target;
mod temp_file;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::{IdempotencyKey, SourceError, WriteError, WriteOutcome, WriteRequest};

use idempotency::{IdempotencyIndex, IdempotencyLog, IdempotencyLookup};
use lock::FileLock;
use target::TargetFile;
use temp_file::TempFile;

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

/// The new contents of a file, and the response to the caller.
pub(crate) struct EditResult {
    pub(crate) bytes: Vec<u8>,
    pub(crate) response: Vec<u8>,
}

/// The conditions of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplaceOptions<'a> {
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    pub(crate) dry_run: bool,
    pub(crate) now_ms: u64,
    /// Set when the caller has gone away; the write should stop.
    pub(crate) cancelled: Option<&'a AtomicBool>,
}

impl<'a> ReplaceOptions<'a> {
    pub(crate) fn of(write: &WriteRequest<'a>) -> Self {
        let WriteRequest { change: _, idempotency_key, dry_run, now_ms, cancelled } = *write;
        Self { idempotency_key, dry_run, now_ms, cancelled: cancelled.map(|flag| &**flag) }
    }
}

/// When to stop waiting for other writers.
#[derive(Debug, Clone, Copy)]
struct WaitDeadline<'a> {
    deadline: Instant,
    cancelled: Option<&'a AtomicBool>,
}

impl<'a> WaitDeadline<'a> {
    fn of(options: &ReplaceOptions<'a>) -> Self {
        Self { deadline: Instant::now() + LOCK_WAIT_MAX, cancelled: options.cancelled }
    }

    fn is_expired(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Fails if the caller has gone away.
    fn check_cancelled(&self) -> Result<(), SourceError> {
        match self.cancelled {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(SourceError::Cancelled),
            Some(_) | None => Ok(()),
        }
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
        Self { path: path.to_owned(), state: Mutex::new(state), turn_ended: Condvar::new() }
    }

    /// Why the file cannot be written, if it cannot. Does not try to write.
    pub(crate) fn read_only_reason(&self) -> Option<String> {
        match TargetFile::resolve(&self.path) {
            Ok(target) => target.read_only_reason(),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Passes the file's bytes to `edit`, and replaces them by what it returns: durably before this returns, and
    /// never in part.
    ///
    /// Calls `edit` at most once, and not at all if the idempotency key was used before.
    pub(crate) fn replace(
        &self,
        options: ReplaceOptions<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<EditResult, WriteError>,
    ) -> Result<WriteOutcome, WriteError> {
        if options.dry_run {
            return self.dry_run_edit(options, edit);
        }
        let deadline = WaitDeadline::of(&options);
        let mut state = self.acquire_turn(deadline)?;
        let target = TargetFile::resolve(&self.path)?;
        target.check_writable()?;
        editor_lock::check_not_open(&target, &self.path)?;
        let lock = FileLock::acquire(&target, deadline)?;
        if lock.was_abandoned() || !state.is_cleaned_up {
            temp_file::remove_stale(&target);
            state.is_cleaned_up = true;
        }
        let written = self.replace_locked(&target, &mut state.idempotency_index, options, deadline, edit);
        state.yield_until = lock.release();
        written
    }

    fn replace_locked(
        &self,
        target: &TargetFile,
        index: &mut IdempotencyIndex,
        options: ReplaceOptions<'_>,
        deadline: WaitDeadline<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<EditResult, WriteError>,
    ) -> Result<WriteOutcome, WriteError> {
        let before = target.read()?;
        let mut log = IdempotencyLog::open(target, index)?;
        log.resolve_pending(&before.bytes)?;
        if let Some(key) = options.idempotency_key {
            match log.lookup(key, options.now_ms)? {
                IdempotencyLookup::NotFound => {}
                IdempotencyLookup::Applied(response) => return Ok(WriteOutcome::Replayed(response)),
                IdempotencyLookup::KeyReused => return Err(WriteError::IdempotencyKeyReused),
                IdempotencyLookup::Unknown => return Err(WriteError::OutcomeUnknown),
            }
        }
        let edited = edit(&before.bytes)?;
        check_limits(target, &edited, options)?;
        deadline.check_cancelled()?;
        if edited.bytes == before.bytes {
            if let Some(key) = options.idempotency_key {
                log.record_unchanged(key, &before, &edited, options.now_ms)?;
            }
            return Ok(WriteOutcome::Done);
        }
        let temp_file = TempFile::write(target, &before, &edited.bytes)?;
        deadline.check_cancelled()?;
        if let Some(key) = options.idempotency_key {
            log.begin(key, &before, &edited, options.now_ms)?;
        }
        // From here on the entry is in the log. If it stays pending, the next writer compares the file.
        let same = target.check_unchanged(&self.path, &before);
        let committed =
            same.and_then(|()| deadline.check_cancelled()).and_then(|()| temp_file.commit(target));
        if let Err(error) = committed {
            if options.idempotency_key.is_some() {
                log.finish(idempotency::EntryOutcome::NotApplied);
            }
            return Err(error.into());
        }
        target.sync_folder().map_err(|error| error::unconfirmed_error(target, &error))?;
        if options.idempotency_key.is_some() {
            log.finish(idempotency::EntryOutcome::Applied);
        }
        Ok(WriteOutcome::Done)
    }

    /// Does the same without changing anything. Needs no lock: the file is always one whole version.
    fn dry_run_edit(
        &self,
        options: ReplaceOptions<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<EditResult, WriteError>,
    ) -> Result<WriteOutcome, WriteError> {
        let target = TargetFile::resolve(&self.path)?;
        target.check_writable()?;
        editor_lock::check_not_open(&target, &self.path)?;
        let before = target.read()?;
        if let Some(key) = options.idempotency_key {
            let mut index = IdempotencyIndex::default();
            match IdempotencyLog::open_read_only(&target, &mut index, &before.bytes)?
                .lookup(key, options.now_ms)?
            {
                IdempotencyLookup::NotFound => {}
                IdempotencyLookup::Applied(response) => return Ok(WriteOutcome::Replayed(response)),
                IdempotencyLookup::KeyReused => return Err(WriteError::IdempotencyKeyReused),
                IdempotencyLookup::Unknown => return Err(WriteError::OutcomeUnknown),
            }
        }
        let edited = edit(&before.bytes)?;
        check_limits(&target, &edited, options)?;
        Ok(WriteOutcome::Done)
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
        Ok(WriteTurn { file: self, idempotency_index: index, is_cleaned_up, yield_until: None })
    }
}

/// This writer's turn, which ends when this is dropped.
struct WriteTurn<'a> {
    file: &'a AtomicFile,
    idempotency_index: IdempotencyIndex,
    is_cleaned_up: bool,
    yield_until: Option<Instant>,
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        let mut state: MutexGuard<'_, WriterState> =
            self.file.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, is_cleaned_up) = (std::mem::take(&mut self.idempotency_index), self.is_cleaned_up);
        *state = WriterState {
            is_writing: false,
            idempotency_index: index,
            is_cleaned_up,
            yield_until: self.yield_until,
        };
        drop(state);
        self.file.turn_ended.notify_one();
    }
}

fn check_limits(
    target: &TargetFile,
    edited: &EditResult,
    options: ReplaceOptions<'_>,
) -> Result<(), WriteError> {
    let refused = |reason: String| Err(WriteError::Rejected { column: None, reason });
    if edited.bytes.len() as u64 > WRITABLE_BYTES_MAX {
        let max_mb = WRITABLE_BYTES_MAX >> 20;
        return refused(format!("`{}` would exceed the limit of {max_mb} MB", target.file_name()));
    }
    if options.idempotency_key.is_some() && edited.response.len() > RESPONSE_BYTES_MAX {
        return refused("the row is too large for a write with an idempotency key".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
