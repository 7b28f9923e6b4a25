//! What the system says when a file cannot be written, in words for whoever asked.

use std::io::{self, ErrorKind};
use std::path::Path;

use contract::source::{SourceError, WriteError};

use super::target::TargetFile;

/// Nothing was changed.
pub(super) fn write_error(target: &TargetFile, what: &str, error: &io::Error) -> SourceError {
    io_write_error(target.file_name(), target.path(), what, error)
}

pub(super) fn io_write_error(file: &str, path: &Path, what: &str, error: &io::Error) -> SourceError {
    let log = format!("{}: {what}: {error}", path.display());
    let why = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "the disk is full; make room",
        ErrorKind::FileTooLarge => "it would be larger than a file may be here",
        ErrorKind::PermissionDenied => {
            "that is not permitted; give the server permission to write it and its folder"
        }
        ErrorKind::ReadOnlyFilesystem => "the disk is read-only",
        ErrorKind::NotFound => "it is not there; check its name, or put it back",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => "it is not a file",
        ErrorKind::ResourceBusy | ErrorKind::WouldBlock | ErrorKind::Interrupted => {
            return SourceError::Busy { detail: log };
        }
        _ => "the log says why",
    };
    SourceError::Unavailable {
        message: format!("`{file}` cannot be written, nothing was changed: {why}"),
        detail: log,
    }
}

/// It was changed, and nobody knows whether a power cut would undo it.
pub(super) fn unconfirmed_error(target: &TargetFile, error: &io::Error) -> WriteError {
    let told = format!("`{}` was written, but the disk did not confirm it", target.file_name());
    let log = format!("{}: syncing the folder: {error}", target.path().display());
    WriteError::DurabilityUnknown { message: told, detail: log }
}

pub(super) fn busy_error(path: &Path, why: &str) -> SourceError {
    SourceError::Busy { detail: format!("{}: {why}", path.display()) }
}

#[cfg(test)]
mod tests {
    use contract::source::WriteError;

    use super::{TargetFile, unconfirmed_error};

    /// What may have been done is none of the faults after which nothing was.
    #[test]
    fn what_the_disk_did_not_confirm_is_no_failure_to_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data.csv");
        std::fs::write(&path, "a\n").expect("a file");
        let target = TargetFile::resolve(&path).expect("a file");
        let fault = unconfirmed_error(&target, &std::io::Error::other("no"));
        assert!(matches!(fault, WriteError::DurabilityUnknown { .. }));
        assert_eq!(fault.to_string(), "`data.csv` was written, but the disk did not confirm it");
    }
}
