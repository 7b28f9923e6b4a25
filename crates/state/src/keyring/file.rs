//! Key files: created once, read whole, and replaced under a lock.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use file_watch::FileStamp;
use spile_core::Platform;

use super::format::{FILE_BYTES_MAX, FormatError, KEYS_MAX, KeyFileContent, KeyId};
use crate::private_file::{self, Access, FileExposure, OpenProblem};

/// Why a key file cannot be used. The text names the file and the way out.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot {action} the key file `{}`: {error}", path.display())]
    Io { path: PathBuf, action: &'static str, error: io::Error },
    #[error("the key file `{}` is not a regular file; name a file", path.display())]
    NotAFile { path: PathBuf },
    #[error(
        "other users can read or change the key file `{path}` (mode {mode:o}); run `chmod 600 {path}`, and `spile keys \
         rotate --overlap 0s --key-file {path}` if somebody may have read it", path = path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "the key file `{}` belongs to another user; change its owner to the user that runs Spile, or name another file",
        path.display()
    )]
    ForeignOwner { path: PathBuf },
    #[error(
        "the key file `{}` cannot be used: {problem}; restore it from a backup, or delete it: Spile then creates new \
         keys, and clients start new sessions", path.display()
    )]
    Invalid { path: PathBuf, problem: FormatError },
    #[error("the key file `{}` has {KEYS_MAX} keys that are still accepted; wait until one ends, or delete its line", path.display())]
    TooManyKeys { path: PathBuf },
    #[error("other processes are changing the key file `{}`; try again", path.display())]
    Busy { path: PathBuf },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Created {
    Now,
    Before,
}

/// How long to wait for other processes that rotate keys. Each holds the lock for some milliseconds.
const LOCK_ATTEMPTS_MAX: u32 = 2000;
const LOCK_ATTEMPT_INTERVAL: Duration = Duration::from_millis(5);
/// A file that was just created or replaced may be replaced again before it is opened.
const RACE_ATTEMPTS_MAX: u32 = 100;

/// Reads a key file, or creates it. Of several processes that create it at once, all get the keys of the first.
pub(super) fn read_or_create(
    path: &Path,
    platform: &dyn Platform,
) -> Result<(KeyFileContent, FileStamp, Created), KeyFileError> {
    let content = match read(path) {
        Err(KeyFileError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            KeyFileContent::generate(platform)
        }
        read => return read.map(|(content, stamp)| (content, stamp, Created::Before)),
    };
    let created = match private_file::publish(path, content.to_text().as_bytes(), platform) {
        Ok(()) => Created::Now,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Created::Before,
        Err(error) => return Err(io_error(path, "create", error)),
    };
    let (content, stamp) = read(path)?;
    Ok((content, stamp, created))
}

pub(super) fn read(path: &Path) -> Result<(KeyFileContent, FileStamp), KeyFileError> {
    let (file, metadata) = open(path, Access::Read)?;
    Ok((parse(path, &file)?, FileStamp::of_metadata(&metadata)))
}

/// Adds a key to the file. Several processes that rotate at once each add theirs.
pub(super) fn rotate(path: &Path, overlap_ms: u64, platform: &dyn Platform) -> Result<KeyId, KeyFileError> {
    // A link stays one: the file that it leads to is replaced.
    let target = std::fs::canonicalize(path).map_err(|error| io_error(path, "find", error))?;
    let (file, metadata) = lock(&target)?;
    let mut content = parse(&target, &file)?;
    let id = content
        .rotate(overlap_ms, platform)
        .map_err(|_| KeyFileError::TooManyKeys { path: target.clone() })?;
    private_file::replace(&target, content.to_text().as_bytes(), &metadata, platform)
        .map_err(|error| io_error(&target, "replace", error))?;
    Ok(id)
}

/// Opens and locks the file. The lock is on the file itself: a process that waited for it looks again whether it is
/// still the one under that name, so nothing has to stay beside it.
fn lock(path: &Path) -> Result<(File, Metadata), KeyFileError> {
    for _ in 0..RACE_ATTEMPTS_MAX {
        let (file, metadata) = open(path, Access::ReadWrite)?;
        let mut attempts = 0;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(io_error(path, "lock", error)),
                Err(TryLockError::WouldBlock) if attempts == LOCK_ATTEMPTS_MAX => {
                    return Err(KeyFileError::Busy { path: path.to_owned() });
                }
                Err(TryLockError::WouldBlock) => attempts += 1,
            }
            std::thread::sleep(LOCK_ATTEMPT_INTERVAL);
        }
        if private_file::is_same_file(path, &metadata) {
            return Ok((file, metadata));
        }
    }
    Err(KeyFileError::Busy { path: path.to_owned() })
}

fn open(path: &Path, access: Access) -> Result<(File, Metadata), KeyFileError> {
    private_file::open(path, access).map_err(|problem| {
        let path = path.to_owned();
        match problem {
            OpenProblem::Io(error) => KeyFileError::Io { path, action: "open", error },
            OpenProblem::NotAFile => KeyFileError::NotAFile { path },
            OpenProblem::Exposed(FileExposure::Mode(mode)) => KeyFileError::Exposed { path, mode },
            OpenProblem::Exposed(FileExposure::ForeignOwner) => KeyFileError::ForeignOwner { path },
        }
    })
}

fn parse(path: &Path, file: &File) -> Result<KeyFileContent, KeyFileError> {
    let bytes = private_file::read(file, FILE_BYTES_MAX).map_err(|error| io_error(path, "read", error))?;
    KeyFileContent::parse(&bytes).map_err(|problem| KeyFileError::Invalid { path: path.to_owned(), problem })
}

fn io_error(path: &Path, action: &'static str, error: io::Error) -> KeyFileError {
    KeyFileError::Io { path: path.to_owned(), action, error }
}
