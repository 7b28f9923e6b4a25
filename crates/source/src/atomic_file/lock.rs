//! The writer lock: one writer at a time among all processes, by a lock on a file next to the data file.
//!
//! The operating system releases the lock when its process ends, however it ends, so an abandoned lock file blocks no
//! one. The data file itself cannot carry the lock, because a write replaces it.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contract::source::SourceError;

use super::WaitDeadline;
use super::error;
use super::target::TargetFile;

/// Held until dropped.
pub(super) struct FileLock {
    path: PathBuf,
    file: File,
    was_abandoned: bool,
}

const BACKOFF_MIN: Duration = Duration::from_millis(1);
const BACKOFF_MAX: Duration = Duration::from_millis(4);
/// How long a process that others waited for keeps off the lock. Longer than their backoff, or they would never find
/// it free between two of its writes.
const YIELD_AFTER_RELEASE: Duration = Duration::from_millis(8);

impl FileLock {
    pub(super) fn acquire(target: &TargetFile, deadline: WaitDeadline<'_>) -> Result<Self, SourceError> {
        let path = target.sidecar_path("lock");
        let to_error = |error: io::Error| error::write_error(target, "locking it", &error);
        loop {
            if let Some((file, is_new)) = open_lock_file(&path).map_err(to_error)? {
                wait_for_lock(&file, deadline, to_error)?;
                // The previous holder removes the file, and another process may have created a new one.
                if is_still_linked(&path, &file) {
                    return Ok(Self { path, file, was_abandoned: !is_new });
                }
            }
            deadline.check_cancelled()?;
            if deadline.is_expired() {
                return Err(error::busy_error(target.path(), "other processes are writing it"));
            }
        }
    }

    /// Releases the lock. Returns until when to leave it to other processes, if some are waiting.
    pub(super) fn release(self) -> Option<Instant> {
        let has_waiters = self.file.metadata().is_ok_and(|metadata| metadata.len() > 0);
        has_waiters.then(|| Instant::now() + YIELD_AFTER_RELEASE)
    }

    /// Whether the last holder ended without releasing the lock.
    pub(super) fn was_abandoned(&self) -> bool {
        self.was_abandoned
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Removes the file while it is still locked: a waiting process then sees that it is gone, and creates
        // another.
        if cfg!(unix) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens the lock file and tells whether it is new. `None` if it was removed in between.
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
        // Another user left it. Locking needs no write permission on a local disk.
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
    deadline: WaitDeadline<'_>,
    to_error: impl Fn(io::Error) -> SourceError,
) -> Result<(), SourceError> {
    let mut backoff = BACKOFF_MIN;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if deadline.is_expired() => {
                return Err(to_error(ErrorKind::WouldBlock.into()));
            }
            Err(TryLockError::WouldBlock) => deadline.check_cancelled()?,
            Err(TryLockError::Error(error)) => return Err(to_error(error)),
        }
        if backoff == BACKOFF_MIN {
            // Tells the holder that someone waits. Without write permission, this process has to find the lock free
            // by luck.
            let _ = file.write(b".");
        }
        std::thread::sleep(backoff);
        backoff = (backoff * 2).min(BACKOFF_MAX);
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

/// No process removes the file on this platform, so it is always the same one.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}
