//! Messages for errors of the operating system while writing a file.

use std::io::{self, ErrorKind};
use std::path::Path;

use contract::source::{SourceError, WriteError};

use super::target::TargetFile;

/// For an error after which the file is unchanged.
pub(super) fn write_error(target: &TargetFile, metadata: &str, error: &io::Error) -> SourceError {
    io_write_error(target.file_name(), target.path(), metadata, error)
}

pub(super) fn io_write_error(file: &str, path: &Path, metadata: &str, error: &io::Error) -> SourceError {
    let log = format!("{}: {metadata}: {error}", path.display());
    let Some(reason) = reason(error) else { return SourceError::Busy { detail: log } };
    SourceError::Unavailable {
        message: format!("cannot write `{file}`, nothing was changed: {reason}"),
        detail: log,
    }
}

/// A write waits for its copy: without one, it could not be undone.
pub(crate) fn backup_error(file: &str, path: &Path, error: &io::Error) -> SourceError {
    let log = format!("{}: keeping a copy: {error}", path.display());
    let reason = match error.kind() {
        ErrorKind::NotADirectory => "there is a file or a link in place of its folder",
        _ => match reason(error) {
            Some(reason) => reason,
            None => return SourceError::Busy { detail: log },
        },
    };
    let message = format!(
        "cannot keep a copy of `{file}` from before this write, nothing was changed: {reason}; \
         `[server] backups = false` in the manifest switches copies off"
    );
    SourceError::Unavailable { message, detail: log }
}

/// `None` if it may work soon.
fn reason(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the disk is full; the server's owner must make room"
        }
        ErrorKind::FileTooLarge => "it would exceed the system's limit on file sizes",
        ErrorKind::PermissionDenied => {
            "permission denied; the server's owner must allow it to write the file and its folder"
        }
        ErrorKind::ReadOnlyFilesystem => "the disk is read-only",
        ErrorKind::NotFound => "it was not found; the server's owner can check its name, or put it back",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => "it is not a file",
        ErrorKind::ResourceBusy | ErrorKind::WouldBlock | ErrorKind::Interrupted => {
            return None;
        }
        _ => "the server's log has the reason under `ref`",
    })
}

/// The file was replaced, but a power cut may undo that.
pub(super) fn unconfirmed_error(target: &TargetFile, error: &io::Error) -> WriteError {
    let message = format!("`{}` was written, but the disk did not confirm it", target.file_name());
    let log = format!("{}: syncing the folder: {error}", target.path().display());
    WriteError::DurabilityUnknown { message, detail: log }
}

pub(super) fn busy_error(path: &Path, reason: &str) -> SourceError {
    SourceError::Busy { detail: format!("{}: {reason}", path.display()) }
}

#[cfg(test)]
mod tests {
    use contract::source::WriteError;

    use super::{TargetFile, unconfirmed_error};

    /// The write may have happened, so the error must not be one of those that promise an unchanged file.
    #[test]
    fn an_unconfirmed_write_is_not_a_failed_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data.csv");
        std::fs::write(&path, "a\n").expect("a file");
        let target = TargetFile::resolve(&path).expect("a file");
        let error = unconfirmed_error(&target, &std::io::Error::other("no"));
        assert!(matches!(error, WriteError::DurabilityUnknown { .. }));
        assert_eq!(error.to_string(), "`data.csv` was written, but the disk did not confirm it");
    }
}
