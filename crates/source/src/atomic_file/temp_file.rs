//! A file that is created next to another and replaces it, or is removed.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use contract::source::SourceError;

use super::error;
use super::target::{FileState, TargetFile, copy_metadata};

/// Removed when dropped, unless it was renamed.
pub(super) struct TempFile {
    path: PathBuf,
    is_committed: bool,
}

const SUFFIX: &str = ".tmp";
/// Larger folders are not searched for stale files: that would take longer than the write.
const CLEANUP_ENTRIES_MAX: usize = 100_000;

impl TempFile {
    /// Durable, with the metadata of the old file.
    pub(super) fn write(target: &TargetFile, old: &FileState, bytes: &[u8]) -> Result<Self, SourceError> {
        let name = format!("{:016x}{SUFFIX}", random_u64());
        Self::create(target.sidecar_path(&name), old, |file| file.write_all(bytes))
            .map_err(|error| error::write_error(target, "creating the new file", &error))
    }

    pub(super) fn create(
        path: PathBuf,
        old: &FileState,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut file = open_new(&path)?;
        let temp_file = Self { path, is_committed: false };
        write(&mut file)?;
        copy_metadata(&file, old)?;
        file.sync_all()?;
        Ok(temp_file)
    }

    pub(super) fn commit(self, target: &TargetFile) -> Result<(), SourceError> {
        self.rename_to(target.path()).map_err(|error| error::write_error(target, "replacing it", &error))
    }

    /// Leaves the file where it is.
    pub(super) fn leave(mut self) {
        self.is_committed = true;
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
            // If this fails, a later cleanup removes it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Creates a file that is not there, with the metadata of another one: durably, and never in part.
pub(crate) fn create(path: &Path, like: &Path, bytes: &[u8]) -> Result<(), SourceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let create = || {
        let file = File::open(like)?;
        let old = FileState { bytes: Vec::new(), metadata: file.metadata()?, file };
        let folder = path.parent().unwrap_or(Path::new("/"));
        let temp_file = folder.join(format!(".{name}.spile-{:016x}{SUFFIX}", random_u64()));
        let temp_file = TempFile::create(temp_file, &old, |file| file.write_all(bytes))?;
        // Unlike a rename, a link does not replace a file that another program has created meanwhile.
        std::fs::hard_link(&temp_file.path, path)?;
        drop(temp_file);
        super::target::sync_folder(folder)
    };
    create().map_err(|error| error::io_write_error(&name, path, "creating it", &error))
}

/// Readable by no one else until it gets the metadata of the old file.
fn open_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Removes temporary files of killed writers. The lock holder has not created one yet, and no one else may.
pub(super) fn remove_stale(target: &TargetFile) {
    let prefix = target.sidecar_prefix();
    let is_ours = |name: &std::ffi::OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(prefix.as_encoded_bytes()) && name.ends_with(SUFFIX.as_bytes())
    };
    // A folder that cannot be listed can still be written; then they stay.
    let Ok(entries) = std::fs::read_dir(target.folder()) else { return };
    for entry in entries.take(CLEANUP_ENTRIES_MAX).flatten() {
        if is_ours(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A random 64-bit number.
pub(super) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A temporary name for a file next to the target.
pub(super) fn temp_name(metadata: &str) -> String {
    format!("{metadata}-{:016x}{SUFFIX}", random_u64())
}
