//! A file that is made beside another and takes its place, or is gone.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use contract::source::SourceError;

use super::error;
use super::target::{FileState, TargetFile, copy_metadata};

/// Gone when dropped, unless it was put.
pub(super) struct TempFile {
    path: PathBuf,
    is_committed: bool,
}

const SUFFIX: &str = ".tmp";
/// Folders with more entries are not swept: it would take longer than the write.
const CLEANUP_ENTRIES_MAX: usize = 100_000;

impl TempFile {
    /// Durable, and like the old one for the system.
    pub(super) fn write(target: &TargetFile, old: &FileState, bytes: &[u8]) -> Result<Self, SourceError> {
        let name = format!("{:016x}{SUFFIX}", random_u64());
        Self::create(target.sidecar_path(&name), old, |file| file.write_all(bytes))
            .map_err(|error| error::write_error(target, "making the new file", &error))
    }

    pub(super) fn create(
        path: PathBuf,
        old: &FileState,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut file = open_new(&path)?;
        let beside = Self { path, is_committed: false };
        write(&mut file)?;
        copy_metadata(&file, old)?;
        file.sync_all()?;
        Ok(beside)
    }

    pub(super) fn commit(self, target: &TargetFile) -> Result<(), SourceError> {
        self.rename_to(target.path()).map_err(|error| error::write_error(target, "replacing it", &error))
    }

    pub(super) fn rename_to(mut self, to: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, to)?;
        self.is_committed = true;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.is_committed {
            // What cannot be removed now is swept later.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Nobody else reads it until it is like the old one.
fn open_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Removes what others left who were killed. Whoever holds the lock has made none yet, and nobody else may.
pub(super) fn remove_stale(target: &TargetFile) {
    let prefix = target.sidecar_prefix();
    let is_ours = |name: &std::ffi::OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(prefix.as_encoded_bytes()) && name.ends_with(SUFFIX.as_bytes())
    };
    // A folder that cannot be read can still be written to; then they stay.
    let Ok(entries) = std::fs::read_dir(target.folder()) else { return };
    for entry in entries.take(CLEANUP_ENTRIES_MAX).flatten() {
        if is_ours(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A number that nobody else has, as far as 64 bits go.
pub(super) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The name of a temporary file for what is kept beside the target.
pub(super) fn temp_name(what: &str) -> String {
    format!("{what}-{:016x}{SUFFIX}", random_u64())
}
