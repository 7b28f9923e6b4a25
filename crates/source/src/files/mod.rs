//! Writing a file as a whole: under a lock, all of it or nothing, once for each claim.
//!
//! Everything happens in the folder of the file itself, beside which lie, under names that begin with a dot: the lock
//! while somebody writes, the new file until it takes the old one's place, and the [`claims`], which stay.
//! [`Keeper::replace`] is the whole story; what a process leaves behind that is killed in the middle of it, the
//! next one to write clears up.
//!
//! Deliberately absent: knowing what the bytes mean, and holding on to them.

mod beside;
mod claims;
mod fault;
mod lock;
mod target;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::{Claim, SourceFault, Write, WriteFault, Written};

use beside::Beside;
use claims::{Claims, Found, Known};
use lock::Lock;
use target::Target;

/// A file that is written is held in memory several times over.
pub(crate) const WRITTEN_BYTES_MAX: u64 = 256 << 20;
/// What is told of a change is kept with its claim.
const TOLD_BYTES_MAX: usize = 4 << 20;
/// How long to wait for others who write the same file.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How soon a caller who left is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Writes one file, one change at a time, whoever else does the same.
pub(crate) struct Keeper {
    path: PathBuf,
    /// Those of this process wait for each other here, and not by trying again and again.
    turn: Mutex<Turn>,
    ended: Condvar,
}

struct Turn {
    is_taken: bool,
    /// What was read of the claims, so that only what is new is read again.
    known: Known,
    /// Whether somebody else's remains were looked for.
    is_swept: bool,
    /// Other processes wait.
    back_at: Option<Instant>,
}

/// What a file will hold, and what is told of the change.
pub(crate) struct Edited {
    pub(crate) bytes: Vec<u8>,
    pub(crate) told: Vec<u8>,
}

/// What comes with a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) claim: Option<Claim>,
    pub(crate) dry_run: bool,
    pub(crate) now_ms: u64,
    /// Rings when nobody waits any more.
    pub(crate) stop: Option<&'a AtomicBool>,
}

impl<'a> Terms<'a> {
    pub(crate) fn of(write: &Write<'a>) -> Self {
        let Write { change: _, claim, dry_run, now_ms, stop } = *write;
        Self { claim, dry_run, now_ms, stop }
    }
}

/// How long others are waited for.
#[derive(Debug, Clone, Copy)]
struct Patience<'a> {
    until: Instant,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Patience<'a> {
    fn of(terms: &Terms<'a>) -> Self {
        Self { until: Instant::now() + WAIT_MAX, stop: terms.stop }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Whether anybody still wants it.
    fn go_on(&self) -> Result<(), SourceFault> {
        match self.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(SourceFault::Stopped),
            Some(_) | None => Ok(()),
        }
    }
}

impl Keeper {
    pub(crate) fn new(path: &Path) -> Self {
        let turn = Turn { is_taken: false, known: Known::default(), is_swept: false, back_at: None };
        Self { path: path.to_owned(), turn: Mutex::new(turn), ended: Condvar::new() }
    }

    /// Why the file cannot be written as it stands, if it cannot: half a sentence for whoever owns it. Nothing is
    /// tried.
    pub(crate) fn read_only(&self) -> Option<String> {
        match Target::find(&self.path) {
            Ok(target) => target.read_only(),
            Err(fault) => Some(fault.to_string()),
        }
    }

    /// Hands the bytes there are to `edit`, and puts what it makes of them in their place: durably before this
    /// returns, and never half of it.
    ///
    /// `edit` is called at most once. A claim that was made good before never gets as far as that.
    pub(crate) fn replace(
        &self,
        terms: Terms<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<Edited, WriteFault>,
    ) -> Result<Written, WriteFault> {
        if terms.dry_run {
            return self.rehearse(terms, edit);
        }
        let patience = Patience::of(&terms);
        let mut turn = self.take_turn(patience)?;
        let target = Target::find(&self.path)?;
        target.check()?;
        let lock = Lock::take(&target, patience)?;
        if lock.was_left_behind() || !turn.is_swept {
            beside::sweep(&target);
            turn.is_swept = true;
        }
        let written = self.replace_locked(&target, &mut turn.known, terms, patience, edit);
        turn.back_at = lock.release();
        written
    }

    fn replace_locked(
        &self,
        target: &Target,
        known: &mut Known,
        terms: Terms<'_>,
        patience: Patience<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<Edited, WriteFault>,
    ) -> Result<Written, WriteFault> {
        let before = target.read()?;
        let mut claims = Claims::open(target, known)?;
        claims.settle(&before.bytes)?;
        if let Some(claim) = terms.claim {
            match claims.find(claim, terms.now_ms)? {
                Found::Nothing => {}
                Found::Done(told) => return Ok(Written::Replayed(told)),
                Found::Otherwise => return Err(WriteFault::ClaimedOtherwise),
                Found::Unknowable => return Err(WriteFault::Unknowable),
            }
        }
        let edited = edit(&before.bytes)?;
        bounded(target, &edited, terms)?;
        patience.go_on()?;
        if edited.bytes == before.bytes {
            if let Some(claim) = terms.claim {
                claims.record(claim, &before, &edited, terms.now_ms)?;
            }
            return Ok(Written::Done);
        }
        let fresh = Beside::write(target, &before, &edited.bytes)?;
        patience.go_on()?;
        if let Some(claim) = terms.claim {
            claims.begin(claim, &before, &edited, terms.now_ms)?;
        }
        // From here on a claim is there, and who finds it without its end looks at the file to know.
        let same = target.check_same(&self.path, &before);
        let put = same.and_then(|()| patience.go_on()).and_then(|()| fresh.put(target));
        if let Err(fault) = put {
            if terms.claim.is_some() {
                claims.end(claims::End::Undone);
            }
            return Err(fault.into());
        }
        target.sync_folder().map_err(|error| fault::unconfirmed(target, &error))?;
        if terms.claim.is_some() {
            claims.end(claims::End::Done);
        }
        Ok(Written::Done)
    }

    /// The same without leaving a trace. Needs no lock: a file is there as a whole, or another as a whole.
    fn rehearse(
        &self,
        terms: Terms<'_>,
        edit: &mut dyn FnMut(&[u8]) -> Result<Edited, WriteFault>,
    ) -> Result<Written, WriteFault> {
        let target = Target::find(&self.path)?;
        target.check()?;
        let before = target.read()?;
        if let Some(claim) = terms.claim {
            let mut known = Known::default();
            match Claims::look(&target, &mut known, &before.bytes)?.find(claim, terms.now_ms)? {
                Found::Nothing => {}
                Found::Done(told) => return Ok(Written::Replayed(told)),
                Found::Otherwise => return Err(WriteFault::ClaimedOtherwise),
                Found::Unknowable => return Err(WriteFault::Unknowable),
            }
        }
        let edited = edit(&before.bytes)?;
        bounded(&target, &edited, terms)?;
        Ok(Written::Done)
    }

    fn take_turn(&self, patience: Patience<'_>) -> Result<Taken<'_>, SourceFault> {
        patience.go_on()?;
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while turn.is_taken {
            if patience.is_over() {
                return Err(fault::busy(&self.path, "others of this process write it"));
            }
            (turn, _) = self.ended.wait_timeout(turn, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
            if let Err(stopped) = patience.go_on() {
                // If it was this one's turn, it is another's now.
                self.ended.notify_one();
                return Err(stopped);
            }
        }
        turn.is_taken = true;
        let (known, is_swept) = (std::mem::take(&mut turn.known), turn.is_swept);
        let back_at = turn.back_at.take();
        drop(turn);
        if let Some(back_at) = back_at {
            std::thread::sleep(back_at.saturating_duration_since(Instant::now()));
        }
        Ok(Taken { keeper: self, known, is_swept, back_at: None })
    }
}

/// A turn; it ends when this is dropped.
struct Taken<'a> {
    keeper: &'a Keeper,
    known: Known,
    is_swept: bool,
    back_at: Option<Instant>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut turn: MutexGuard<'_, Turn> = self.keeper.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, is_swept) = (std::mem::take(&mut self.known), self.is_swept);
        *turn = Turn { is_taken: false, known, is_swept, back_at: self.back_at };
        drop(turn);
        self.keeper.ended.notify_one();
    }
}

fn bounded(target: &Target, edited: &Edited, terms: Terms<'_>) -> Result<(), WriteFault> {
    let refused = |why: String| Err(WriteFault::Refused { column: None, why });
    if edited.bytes.len() as u64 > WRITTEN_BYTES_MAX {
        let most_mb = WRITTEN_BYTES_MAX >> 20;
        return refused(format!("`{}` would be larger than {most_mb} MB, which is the most", target.file()));
    }
    if terms.claim.is_some() && edited.told.len() > TOLD_BYTES_MAX {
        return refused("the record is too large to be kept with an idempotency key".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
