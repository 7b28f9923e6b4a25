//! What the system says when a file cannot be written, in words for whoever asked.

use std::io::{self, ErrorKind};
use std::path::Path;

use contract::source::{SourceFault, WriteFault};

use super::target::Target;

/// Nothing was changed.
pub(super) fn unwritten(target: &Target, what: &str, error: &io::Error) -> SourceFault {
    of(target.file(), target.path(), what, error)
}

pub(super) fn of(file: &str, path: &Path, what: &str, error: &io::Error) -> SourceFault {
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
            return SourceFault::Busy { log };
        }
        _ => "the log says why",
    };
    SourceFault::Unavailable { told: format!("`{file}` cannot be written, nothing was changed: {why}"), log }
}

/// It was changed, and nobody knows whether a power cut would undo it.
pub(super) fn unconfirmed(target: &Target, error: &io::Error) -> WriteFault {
    let told = format!("`{}` was written, but the disk did not confirm it", target.file());
    let log = format!("{}: syncing the folder: {error}", target.path().display());
    WriteFault::Unconfirmed { told, log }
}

pub(super) fn busy(path: &Path, why: &str) -> SourceFault {
    SourceFault::Busy { log: format!("{}: {why}", path.display()) }
}

#[cfg(test)]
mod tests {
    use contract::source::WriteFault;

    use super::{Target, unconfirmed};

    /// What may have been done is none of the faults after which nothing was.
    #[test]
    fn what_the_disk_did_not_confirm_is_no_failure_to_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data.csv");
        std::fs::write(&path, "a\n").expect("a file");
        let target = Target::find(&path).expect("a file");
        let fault = unconfirmed(&target, &std::io::Error::other("no"));
        assert!(matches!(fault, WriteFault::Unconfirmed { .. }));
        assert_eq!(fault.to_string(), "`data.csv` was written, but the disk did not confirm it");
    }
}
