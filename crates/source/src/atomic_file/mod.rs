//! Writing a file as a whole: under a lock, all of it or nothing, once for each claim.
//!
//! Everything happens in the folder of the file itself, beside which lie, under names that begin with a dot: the lock
//! while somebody writes, the new file until it takes the old one's place, and the [`claims`], which stay.
//! [`Keeper::replace`] is the whole story; what a process leaves behind that is killed in the middle of it, the
//! next one to write clears up.
//!
//! Deliberately absent: knowing what the bytes mean, and holding on to them.

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

/// A file that is written is held in memory several times over.
pub(crate) const WRITABLE_BYTES_MAX: u64 = 256 << 20;
/// What is told of a change is kept with its claim.
const RESPONSE_BYTES_MAX: usize = 4 << 20;
/// How long to wait for others who write the same file.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// How soon a caller who left is noticed.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Writes one file, one change at a time, whoever else does the same.
pub(crate) struct AtomicFile {
    path: PathBuf,
    /// Those of this process wait for each other here, and not by trying again and again.
    state: Mutex<WriterState>,
    turn_ended: Condvar,
}

struct WriterState {
    is_writing: bool,
    /// What was read of the claims, so that only what is new is read again.
    idempotency_index: IdempotencyIndex,
    /// Whether somebody else's remains were looked for.
    is_cleaned_up: bool,
    /// Other processes wait.
    yield_until: Option<Instant>,
}

/// What a file will hold, and what is told of the change.
pub(crate) struct EditResult {
    pub(crate) bytes: Vec<u8>,
    pub(crate) response: Vec<u8>,
}

/// What comes with a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplaceOptions<'a> {
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    pub(crate) dry_run: bool,
    pub(crate) now_ms: u64,
    /// Rings when nobody waits any more.
    pub(crate) cancelled: Option<&'a AtomicBool>,
}

impl<'a> ReplaceOptions<'a> {
    pub(crate) fn of(write: &WriteRequest<'a>) -> Self {
        let WriteRequest { change: _, idempotency_key, dry_run, now_ms, cancelled } = *write;
        Self { idempotency_key, dry_run, now_ms, cancelled: cancelled.map(|flag| &**flag) }
    }
}

/// How long others are waited for.
#[derive(Debug, Clone, Copy)]
struct WaitDeadline<'a> {
    deadline: Instant,
    cancelled: Option<&'a AtomicBool>,
}

impl<'a> WaitDeadline<'a> {
    fn of(terms: &ReplaceOptions<'a>) -> Self {
        Self { deadline: Instant::now() + LOCK_WAIT_MAX, cancelled: terms.cancelled }
    }

    fn is_expired(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Whether anybody still wants it.
    fn check_cancelled(&self) -> Result<(), SourceError> {
        match self.cancelled {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(SourceError::Cancelled),
            Some(_) | None => Ok(()),
        }
    }
}

impl AtomicFile {
    pub(crate) fn new(path: &Path) -> Self {
        let turn = WriterState {
            is_writing: false,
            idempotency_index: IdempotencyIndex::default(),
            is_cleaned_up: false,
            yield_until: None,
        };
        Self { path: path.to_owned(), state: Mutex::new(turn), turn_ended: Condvar::new() }
    }

    /// Why the file cannot be written as it stands, if it cannot: half a sentence for whoever owns it. Nothing is
    /// tried.
    pub(crate) fn read_only_reason(&self) -> Option<String> {
        match TargetFile::resolve(&self.path) {
            Ok(target) => target.read_only_reason(),
            Err(fault) => Some(fault.to_string()),
        }
    }

    /// Hands the bytes there are to `edit`, and puts what it makes of them in their place: durably before this
    /// returns, and never half of it.
    ///
    /// `edit` is called at most once. A claim that was made good before never gets as far as that.
    pub(crate) fn replace(
        &self,
        terms: ReplaceOptions<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<EditResult, WriteError>,
    ) -> Result<WriteOutcome, WriteError> {
        if terms.dry_run {
            return self.dry_run_edit(terms, edit);
        }
        let patience = WaitDeadline::of(&terms);
        let mut turn = self.acquire_turn(patience)?;
        let target = TargetFile::resolve(&self.path)?;
        target.check_writable()?;
        let lock = FileLock::acquire(&target, patience)?;
        if lock.was_abandoned() || !turn.is_cleaned_up {
            temp_file::remove_stale(&target);
            turn.is_cleaned_up = true;
        }
        let written = self.replace_locked(&target, &mut turn.idempotency_index, terms, patience, edit);
        turn.yield_until = lock.release();
        written
    }

    fn replace_locked(
        &self,
        target: &TargetFile,
        known: &mut IdempotencyIndex,
        terms: ReplaceOptions<'_>,
        patience: WaitDeadline<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<EditResult, WriteError>,
    ) -> Result<WriteOutcome, WriteError> {
        let before = target.read()?;
        let mut claims = IdempotencyLog::open(target, known)?;
        claims.resolve_pending(&before.bytes)?;
        if let Some(claim) = terms.idempotency_key {
            match claims.lookup(claim, terms.now_ms)? {
                IdempotencyLookup::NotFound => {}
                IdempotencyLookup::Applied(told) => return Ok(WriteOutcome::Replayed(told)),
                IdempotencyLookup::KeyReused => return Err(WriteError::IdempotencyKeyReused),
                IdempotencyLookup::Unknown => return Err(WriteError::OutcomeUnknown),
            }
        }
        let edited = edit(&before.bytes)?;
        check_limits(target, &edited, terms)?;
        patience.check_cancelled()?;
        if edited.bytes == before.bytes {
            if let Some(claim) = terms.idempotency_key {
                claims.record_unchanged(claim, &before, &edited, terms.now_ms)?;
            }
            return Ok(WriteOutcome::Done);
        }
        let fresh = TempFile::write(target, &before, &edited.bytes)?;
        patience.check_cancelled()?;
        if let Some(claim) = terms.idempotency_key {
            claims.begin(claim, &before, &edited, terms.now_ms)?;
        }
        // From here on a claim is there, and who finds it without its end looks at the file to know.
        let same = target.check_unchanged(&self.path, &before);
        let put = same.and_then(|()| patience.check_cancelled()).and_then(|()| fresh.commit(target));
        if let Err(fault) = put {
            if terms.idempotency_key.is_some() {
                claims.finish(idempotency::EntryOutcome::NotApplied);
            }
            return Err(fault.into());
        }
        target.sync_folder().map_err(|error| error::unconfirmed_error(target, &error))?;
        if terms.idempotency_key.is_some() {
            claims.finish(idempotency::EntryOutcome::Applied);
        }
        Ok(WriteOutcome::Done)
    }

    /// The same without leaving a trace. Needs no lock: a file is there as a whole, or another as a whole.
    fn dry_run_edit(
        &self,
        terms: ReplaceOptions<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<EditResult, WriteError>,
    ) -> Result<WriteOutcome, WriteError> {
        let target = TargetFile::resolve(&self.path)?;
        target.check_writable()?;
        let before = target.read()?;
        if let Some(claim) = terms.idempotency_key {
            let mut known = IdempotencyIndex::default();
            match IdempotencyLog::open_read_only(&target, &mut known, &before.bytes)?
                .lookup(claim, terms.now_ms)?
            {
                IdempotencyLookup::NotFound => {}
                IdempotencyLookup::Applied(told) => return Ok(WriteOutcome::Replayed(told)),
                IdempotencyLookup::KeyReused => return Err(WriteError::IdempotencyKeyReused),
                IdempotencyLookup::Unknown => return Err(WriteError::OutcomeUnknown),
            }
        }
        let edited = edit(&before.bytes)?;
        check_limits(&target, &edited, terms)?;
        Ok(WriteOutcome::Done)
    }

    fn acquire_turn(&self, patience: WaitDeadline<'_>) -> Result<WriteTurn<'_>, SourceError> {
        patience.check_cancelled()?;
        let mut turn = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while turn.is_writing {
            if patience.is_expired() {
                return Err(error::busy_error(&self.path, "others of this process write it"));
            }
            (turn, _) = self
                .turn_ended
                .wait_timeout(turn, CANCEL_CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            if let Err(stopped) = patience.check_cancelled() {
                // If it was this one's turn, it is another's now.
                self.turn_ended.notify_one();
                return Err(stopped);
            }
        }
        turn.is_writing = true;
        let (known, is_swept) = (std::mem::take(&mut turn.idempotency_index), turn.is_cleaned_up);
        let back_at = turn.yield_until.take();
        drop(turn);
        if let Some(back_at) = back_at {
            std::thread::sleep(back_at.saturating_duration_since(Instant::now()));
        }
        Ok(WriteTurn { file: self, idempotency_index: known, is_cleaned_up: is_swept, yield_until: None })
    }
}

/// A turn; it ends when this is dropped.
struct WriteTurn<'a> {
    file: &'a AtomicFile,
    idempotency_index: IdempotencyIndex,
    is_cleaned_up: bool,
    yield_until: Option<Instant>,
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        let mut turn: MutexGuard<'_, WriterState> =
            self.file.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, is_swept) = (std::mem::take(&mut self.idempotency_index), self.is_cleaned_up);
        *turn = WriterState {
            is_writing: false,
            idempotency_index: known,
            is_cleaned_up: is_swept,
            yield_until: self.yield_until,
        };
        drop(turn);
        self.file.turn_ended.notify_one();
    }
}

fn check_limits(
    target: &TargetFile,
    edited: &EditResult,
    terms: ReplaceOptions<'_>,
) -> Result<(), WriteError> {
    let refused = |why: String| Err(WriteError::Rejected { column: None, reason: why });
    if edited.bytes.len() as u64 > WRITABLE_BYTES_MAX {
        let most_mb = WRITABLE_BYTES_MAX >> 20;
        return refused(format!(
            "`{}` would be larger than {most_mb} MB, which is the most",
            target.file_name()
        ));
    }
    if terms.idempotency_key.is_some() && edited.response.len() > RESPONSE_BYTES_MAX {
        return refused("the record is too large to be kept with an idempotency key".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
