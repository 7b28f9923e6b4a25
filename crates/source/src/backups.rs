//! Copies of a data file from before it was written, so that its owner can undo what callers changed (ADR 0085).
//!
//! They are in a private folder next to the file, `.orders.csv.spile-backups`, one file per version, named after the
//! time at which it was made: `2026-11-16T085206.123Z.csv`. A copy is written under a temporary name, synced and
//! renamed, so a backup is always complete. A process that makes or removes one holds the lock of the data file, or of the
//! database.
//!
//! Deliberately absent: knowing what the bytes mean, and compressing them. Any program can open a version.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use contract::source::{SourceError, TransactionOptions, WriteError};
use spile_core::calendar::{CivilDate, CivilTime, DateTime};

use crate::atomic_file::{self, AtomicFile};
use crate::sqlite;

/// Older versions are removed.
pub const BACKUPS_MAX: usize = 14;
/// Of all versions of a file together; the newest stays in any case.
pub const VERSIONS_BYTES_MAX: u64 = 1 << 30;
/// Of a larger file, which only a database can be, no copy is kept: it would hold up the write for too long.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// Larger texts are not compared line by line.
const COMPARED_BYTES_MAX: u64 = 16 << 20;

const TEMP_SUFFIX: &str = ".tmp";
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// When copies are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackupPolicy {
    #[default]
    Off,
    /// Before the first write of a day, in UTC.
    Daily,
}

/// One copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The time at which it was made, as [`restore`] takes it: `2026-11-16T085206.123Z`.
    pub id: String,
    pub created_ms: u64,
    pub bytes: u64,
    path: PathBuf,
}

/// Where the versions of a file are.
#[derive(Debug, Clone)]
pub(crate) struct BackupFolder {
    path: PathBuf,
    extension: Option<OsString>,
}

/// A copy that is complete, but no version yet. Removed when dropped.
#[must_use]
pub(crate) struct NewBackup {
    folder: BackupFolder,
    path: PathBuf,
    now_ms: u64,
    is_published: bool,
}

impl BackupFolder {
    /// `data_file` without symbolic links.
    pub(crate) fn next_to(data_file: &Path) -> Self {
        let mut name = OsString::from(".");
        name.push(data_file.file_name().unwrap_or_default());
        name.push(".spile-backups");
        Self { path: data_file.with_file_name(name), extension: data_file.extension().map(OsStr::to_owned) }
    }

    /// Newest first. None if there is no folder.
    pub(crate) fn versions(&self) -> io::Result<Vec<Backup>> {
        let entries = match std::fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut versions = Vec::new();
        for entry in entries {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let is_ours = |id: &str| metadata.is_file() && entry.file_name() == self.file_name(id);
            let parsed = parse_file_name(&entry.file_name()).filter(|(id, _)| is_ours(id));
            if let Some((id, created_ms)) = parsed {
                versions.push(Backup { id, created_ms, bytes: metadata.len(), path: entry.path() });
            }
        }
        versions.sort_by(|a, b| b.id.cmp(&a.id));
        Ok(versions)
    }

    fn file_name(&self, id: &str) -> OsString {
        let mut name = OsString::from(id);
        if let Some(extension) = &self.extension {
            name.push(".");
            name.push(extension);
        }
        name
    }

    /// Whether there is no version of today yet.
    pub(crate) fn is_due(&self, now_ms: u64) -> io::Result<bool> {
        let newest = self.versions()?.into_iter().next();
        Ok(newest.is_none_or(|newest| newest.created_ms / DAY_MS != now_ms / DAY_MS))
    }

    /// Makes a copy with `write`, which gets the path of a file that does not exist yet. The caller holds the lock of
    /// the data file.
    pub(crate) fn copy<E: From<io::Error>>(
        &self,
        now_ms: u64,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<NewBackup, E> {
        self.create()?;
        self.remove_stale();
        let path = self.path.join(format!("new{TEMP_SUFFIX}"));
        let version = NewBackup { folder: self.clone(), path, now_ms, is_published: false };
        write(&version.path)?;
        File::open(&version.path)?.sync_all()?;
        Ok(version)
    }

    /// A folder that only this user can open.
    fn create(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(&self.path) {
            Ok(()) => self.path.parent().map_or(Ok(()), sync_folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.check_private(),
            Err(error) => Err(error),
        }
    }

    /// Where others can write too, one of them may have put a link or a folder of their own there.
    fn check_private(&self) -> io::Result<()> {
        let metadata = std::fs::symlink_metadata(&self.path)?;
        if !metadata.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        #[cfg(unix)]
        if std::os::unix::fs::MetadataExt::uid(&metadata) != rustix::process::geteuid().as_raw() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }

    /// Removes what a killed process left. The holder of the lock has not begun a copy yet.
    fn remove_stale(&self) {
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"new") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Removes the oldest versions beyond the limits. What cannot be removed now is removed after the next copy.
    fn prune(&self) {
        let mut bytes = 0_u64;
        for (index, version) in self.versions().unwrap_or_default().into_iter().enumerate() {
            bytes = bytes.saturating_add(version.bytes);
            if index >= BACKUPS_MAX || (index > 0 && bytes > VERSIONS_BYTES_MAX) {
                let _ = std::fs::remove_file(version.path);
            }
        }
    }
}

impl NewBackup {
    /// Makes the copy a version, durably.
    pub(crate) fn publish(mut self) -> io::Result<PublishedBackup> {
        // Two versions within a millisecond get different names.
        for created_ms in self.now_ms.. {
            let id = version_id(created_ms).ok_or(ErrorKind::InvalidInput)?;
            let path = self.folder.path.join(self.folder.file_name(&id));
            if path.try_exists()? {
                continue;
            }
            std::fs::rename(&self.path, &path)?;
            self.is_published = true;
            sync_folder(&self.folder.path)?;
            return Ok(PublishedBackup { folder: self.folder.clone(), path, id });
        }
        Err(ErrorKind::InvalidInput.into())
    }
}

impl Drop for NewBackup {
    fn drop(&mut self) {
        if !self.is_published {
            // If this fails, the next copy removes it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The version of a write that has not ended yet.
#[must_use]
pub(crate) struct PublishedBackup {
    folder: BackupFolder,
    path: PathBuf,
    pub(crate) id: String,
}

impl PublishedBackup {
    /// The write was made.
    pub(crate) fn keep(self) -> String {
        self.folder.prune();
        self.id
    }

    /// The write was not made: the next one needs a copy of the file as it is then.
    pub(crate) fn discard(self) {
        let _ = std::fs::remove_file(self.path);
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A rename is as durable as the platform makes it.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Without colons, which Windows does not allow in names.
fn version_id(created_ms: u64) -> Option<String> {
    let at = DateTime::from_unix_ms(created_ms)?;
    let time = &at.time;
    let millis = time.nanos() / 1_000_000;
    Some(format!("{}T{:02}{:02}{:02}.{millis:03}Z", at.date, time.hour(), time.minute(), time.second()))
}

/// The id and the time of a version, from the name of its file.
fn parse_file_name(name: &OsStr) -> Option<(String, u64)> {
    const ID_CHARS: usize = "2026-11-16T085206.123Z".len();
    let (id, _) = name.to_str()?.split_at_checked(ID_CHARS)?;
    let (date, clock) = id.split_once('T')?;
    let clock = [clock.get(..2)?, clock.get(2..4)?, clock.get(4..)?.strip_suffix('Z')?].join(":");
    let time = CivilTime::parse(clock.as_bytes())?;
    let at = DateTime { date: CivilDate::parse(date.as_bytes())?, time, offset: None };
    let created_ms = u64::try_from(at.sort_key().0).ok()? * 1000 + u64::from(time.nanos() / 1_000_000);
    (version_id(created_ms)? == id).then_some((id.to_owned(), created_ms))
}

/// The versions of a data file, newest first. The data file itself may be gone.
pub fn list(data_file: &Path) -> io::Result<Vec<Backup>> {
    BackupFolder::next_to(&resolve(data_file)?).versions()
}

/// What happened to the lines of a text between two states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineChanges {
    pub added: u64,
    pub removed: u64,
}

impl Backup {
    /// How the text changed from this version to a later one, or to the file as it is now. `None` if that cannot be
    /// said cheaply: not a text, or a large one.
    pub fn changes_until(&self, later: Option<&Self>, data_file: &Path) -> Option<LineChanges> {
        let before = read_text(&self.path)?;
        let after = read_text(later.map_or(data_file, |later| &later.path))?;
        let (hasher, mut counts) = (RandomState::new(), HashMap::<u64, i64>::new());
        for line in before.split(|byte| *byte == b'\n') {
            *counts.entry(hasher.hash_one(line)).or_default() -= 1;
        }
        for line in after.split(|byte| *byte == b'\n') {
            *counts.entry(hasher.hash_one(line)).or_default() += 1;
        }
        let sum = |is_counted: fn(i64) -> bool| {
            counts.values().filter(|count| is_counted(**count)).map(|count| count.unsigned_abs()).sum()
        };
        Some(LineChanges { added: sum(|count| count > 0), removed: sum(|count| count < 0) })
    }

    fn is_sqlite(&self) -> io::Result<bool> {
        let mut start = Vec::new();
        File::open(&self.path)?.take(SQLITE_MAGIC.len() as u64).read_to_end(&mut start)?;
        Ok(start == SQLITE_MAGIC)
    }
}

/// A file without NUL bytes, as databases and workbooks have them.
fn read_text(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if std::fs::metadata(path).ok()?.len() > COMPARED_BYTES_MAX {
        return None;
    }
    File::open(path).ok()?.take(COMPARED_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= COMPARED_BYTES_MAX && memchr::memchr(0, &bytes).is_none()).then_some(bytes)
}

/// Why a version was not restored. Nothing was changed, except for [`WriteError::DurabilityUnknown`].
#[derive(Debug)]
pub enum RestoreError {
    /// The data file, or its versions, cannot be read.
    Io(io::Error),
    /// Its bytes could not be put back.
    Write(WriteError),
}

impl From<io::Error> for RestoreError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<SourceError> for RestoreError {
    fn from(error: SourceError) -> Self {
        Self::Write(error.into())
    }
}

/// Puts a version back, atomically and under the lock that writers take. Returns the id of the version that keeps the
/// file as it was before: restoring that one undoes this. `None` if the file was the same, or was gone.
pub fn restore(data_file: &Path, version: &Backup, now_ms: u64) -> Result<Option<String>, RestoreError> {
    let target = resolve(data_file)?;
    if version.is_sqlite()? {
        return Ok(sqlite::restore(&version.path, &target, now_ms)?);
    }
    if version.bytes > atomic_file::WRITABLE_BYTES_MAX {
        return Err(RestoreError::Io(ErrorKind::FileTooLarge.into()));
    }
    let bytes = std::fs::read(&version.path)?;
    if !target.try_exists()? {
        atomic_file::create(&target, &version.path, &bytes)?;
        return Ok(None);
    }
    let file = AtomicFile::new(data_file);
    let options = TransactionOptions { now_ms, ..TransactionOptions::default() };
    let mut transaction = file.begin(&options).map_err(RestoreError::Write)?;
    transaction.set_bytes(bytes).map_err(RestoreError::Write)?;
    transaction.commit_with_backup().map_err(RestoreError::Write)
}

/// The path without symbolic links. The file itself may be gone.
fn resolve(data_file: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(data_file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let name = data_file.file_name().ok_or(ErrorKind::InvalidInput)?;
            let folder = data_file.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(std::fs::canonicalize(folder.unwrap_or(Path::new(".")))?.join(name))
        }
        found => found,
    }
}

#[cfg(test)]
mod tests;
