//! One writer at a time, among all processes: a file that is locked while it is there.
//!
//! The system drops a lock when its process ends, however it ends, so a lock file that was left behind keeps nobody
//! out. The data file itself cannot be locked: another takes its place.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contract::source::SourceError;

use super::WaitDeadline;
use super::error;
use super::target::TargetFile;

/// Held until it is dropped.
pub(super) struct FileLock {
    path: PathBuf,
    file: File,
    was_abandoned: bool,
}

const BACKOFF_MIN: Duration = Duration::from_millis(1);
const BACKOFF_MAX: Duration = Duration::from_millis(4);
/// How long somebody who was waited for does not come back. Longer than a pause, or others would never find the
/// lock free between two of its writes.
const YIELD_AFTER_RELEASE: Duration = Duration::from_millis(8);

impl FileLock {
    pub(super) fn acquire(target: &TargetFile, patience: WaitDeadline<'_>) -> Result<Self, SourceError> {
        let path = target.sidecar_path("lock");
        let failed = |error: io::Error| error::write_error(target, "locking it", &error);
        loop {
            if let Some((file, is_new)) = open_lock_file(&path).map_err(failed)? {
                wait_for_lock(&file, patience, failed)?;
                // Whoever held it before has removed it, and somebody may have made another.
                if is_still_linked(&path, &file) {
                    return Ok(Self { path, file, was_abandoned: !is_new });
                }
            }
            patience.check_cancelled()?;
            if patience.is_expired() {
                return Err(error::busy_error(target.path(), "others write it"));
            }
        }
    }

    /// Until when to leave it to others, if others are waiting.
    pub(super) fn release(self) -> Option<Instant> {
        let is_waited_for = self.file.metadata().is_ok_and(|what| what.len() > 0);
        is_waited_for.then(|| Instant::now() + YIELD_AFTER_RELEASE)
    }

    /// Whoever held it last did not come to its end.
    pub(super) fn was_abandoned(&self) -> bool {
        self.was_abandoned
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // While it is still locked: who waits for it sees that it is gone, and makes another.
        if cfg!(unix) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The file and whether it is new; nothing if somebody removed it in between.
fn open_lock_file(path: &Path) -> io::Result<Option<(File, bool)>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    super::target::no_follow(&mut options);
    match options.clone().create_new(true).open(path) {
        Ok(file) => return Ok(Some((file, true))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let opened = match options.open(path) {
        // Left by another user. Locking takes no right to write, where the disk is our own.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => options.write(false).open(path),
        opened => opened,
    };
    match opened {
        Ok(file) => Ok(Some((file, false))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn wait_for_lock(
    mut file: &File,
    patience: WaitDeadline<'_>,
    failed: impl Fn(io::Error) -> SourceError,
) -> Result<(), SourceError> {
    let mut pause = BACKOFF_MIN;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if patience.is_expired() => {
                return Err(failed(ErrorKind::WouldBlock.into()));
            }
            Err(TryLockError::WouldBlock) => patience.check_cancelled()?,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        if pause == BACKOFF_MIN {
            // Whoever holds it sees by this that somebody waits. Where that cannot be written it takes some luck.
            let _ = file.write(b".");
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(BACKOFF_MAX);
    }
}

fn is_still_linked(path: &Path, file: &File) -> bool {
    match (std::fs::symlink_metadata(path), file.metadata()) {
        (Ok(there), Ok(ours)) => is_same(&there, &ours),
        _ => false,
    }
}

#[cfg(unix)]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Where nobody removes it, it is the same.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}
