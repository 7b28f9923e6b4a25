//! Copies a database, including what is still in its write-ahead log, into one file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use contract::source::SourceError;
use file_watch::FileStamp;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use crate::atomic_file;
use crate::backups::{BackupFolder, FILE_BYTES_MAX, NewBackup};
use crate::sqlite::error::{self, DbError};

const PAGES_PER_STEP: i32 = 1024;
/// After this many attempts the copy fails with `Busy`.
const TRIES_MAX: u32 = 100;
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// How long a restore waits for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a restore begins again because another program wrote in between.
const RESTORES_MAX: usize = 10;

/// Copies a database to a path that does not exist yet.
pub fn copy(from: &Path, to: &Path) -> Result<(), SourceError> {
    let failed = |error: rusqlite::Error| SourceError::Unavailable {
        message: "the database cannot be copied".into(),
        detail: error.to_string(),
    };
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let mut target = Connection::open(to).map_err(failed)?;
    let backup = Backup::new(&source, &mut target).map_err(failed)?;
    let mut tries = 0;
    loop {
        match backup.step(PAGES_PER_STEP).map_err(failed)? {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ if tries == TRIES_MAX => {
                return Err(SourceError::Busy { detail: "locked by another program for too long".into() });
            }
            _ => {
                tries += 1;
                std::thread::sleep(RETRY_DELAY);
            }
        }
    }
}

/// A copy of the database if it has none of today yet. The caller holds the write lock, so nothing changes meanwhile.
/// `None` also for a database that is too large to be copied within a call.
pub(super) fn copy_if_due(database: &Path, now_ms: u64) -> Result<Option<NewBackup>, SourceError> {
    let folder = BackupFolder::next_to(database);
    let is_due = folder.is_due(now_ms).map_err(|error| backup_error(database, &error))?;
    if !is_due || bytes_with_log(database) > FILE_BYTES_MAX {
        return Ok(None);
    }
    copy_to_folder(database, &folder, now_ms).map(Some)
}

fn copy_to_folder(database: &Path, folder: &BackupFolder, now_ms: u64) -> Result<NewBackup, SourceError> {
    let copied = folder.copy(now_ms, |to| {
        copy(database, to)?;
        use_one_file(to).map_err(|error| source_error(database, error))?;
        // Only SQLite may open the database in this process, so its permissions are read without opening it.
        let permissions = std::fs::metadata(database)?.permissions();
        Ok::<(), CopyError>(std::fs::set_permissions(to, permissions)?)
    });
    copied.map_err(|error| match error {
        CopyError::Io(error) => backup_error(database, &error),
        CopyError::Source(error) => error,
    })
}

/// A database in WAL mode cannot be opened without two more files next to it.
fn use_one_file(copy: &Path) -> rusqlite::Result<()> {
    Connection::open(copy)?.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))
}

fn source_error(database: &Path, error: rusqlite::Error) -> SourceError {
    error::source_error_on_write(DbError::from(error), database)
}

enum CopyError {
    Io(io::Error),
    Source(SourceError),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<SourceError> for CopyError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

pub(super) fn backup_error(database: &Path, error: &io::Error) -> SourceError {
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    atomic_file::backup_error(&name, database, error)
}

fn write_ahead_log(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn bytes_with_log(database: &Path) -> u64 {
    [database, &write_ahead_log(database)].into_iter().map(|path| FileStamp::of_path(path).bytes()).sum()
}

/// Replaces the contents of a database with those of a copy, in one transaction of SQLite: other connections keep
/// working, and see the new contents at once. Returns the version that keeps the old contents; `None` if there was no
/// database.
pub(crate) fn restore(from: &Path, database: &Path, now_ms: u64) -> Result<Option<String>, SourceError> {
    let failed = |error: rusqlite::Error| source_error(database, error);
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    if !database.exists() {
        copy(from, database)?;
        let permissions = std::fs::metadata(from).map(|metadata| metadata.permissions());
        // The contents are back in any case.
        let _ = permissions.and_then(|permissions| std::fs::set_permissions(database, permissions));
        return Ok(None);
    }
    let open = || {
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(LOCK_TIMEOUT)?;
        Ok(connection)
    };
    let (guard, mut target) = (open().map_err(failed)?, open().map_err(failed)?);
    let stamps = || [database, &write_ahead_log(database)].map(FileStamp::of_path);
    let folder = BackupFolder::next_to(database);
    for _ in 0..RESTORES_MAX {
        guard.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        let kept = copy_to_folder(database, &folder, now_ms)?;
        let before = stamps();
        // A restore cannot take over this lock. Should another program write before the restore has its own, the copy
        // lacks that write, so it is made again.
        guard.execute_batch("ROLLBACK").map_err(failed)?;
        let backup = Backup::new(&source, &mut target).map_err(failed)?;
        step(&backup, 1).map_err(|error| error.into_source_error(failed))?;
        if stamps() != before {
            continue;
        }
        let version = kept.publish().map_err(|error| backup_error(database, &error))?;
        if let Err(error) = step(&backup, -1) {
            version.discard();
            return Err(error.into_source_error(failed));
        }
        return Ok(Some(version.keep()));
    }
    Err(SourceError::Busy { detail: "other programs write it all the time".into() })
}

/// Copies so many pages, all with -1, and waits for locks.
fn step(backup: &Backup<'_, '_>, pages: i32) -> Result<(), StepError> {
    for _ in 0..TRIES_MAX {
        match backup.step(pages).map_err(StepError::Sql)? {
            StepResult::Done | StepResult::More => return Ok(()),
            _ => std::thread::sleep(RETRY_DELAY),
        }
    }
    Err(StepError::Locked)
}

enum StepError {
    Sql(rusqlite::Error),
    Locked,
}

impl StepError {
    fn into_source_error(self, failed: impl Fn(rusqlite::Error) -> SourceError) -> SourceError {
        match self {
            Self::Sql(error) => failed(error),
            Self::Locked => SourceError::Busy { detail: "locked by another program for too long".into() },
        }
    }
}
