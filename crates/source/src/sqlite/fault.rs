//! What goes wrong, for a tired person and for the log.
//!
//! The driver's words may hold paths, SQL and values: they go to the log only. What is told names the file
//! without its folder, and the way out.

use std::path::Path;

use contract::source::SourceFault;
use rusqlite::{Error, ErrorCode};

/// Why a read did not come to its end.
#[derive(Debug)]
pub(super) enum Fail {
    Sql(Error),
    /// The time for holding the lock is over; the lock has been given back.
    Late,
    Fault(SourceFault),
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::Late,
            _ => Self::Sql(error),
        }
    }
}

impl From<SourceFault> for Fail {
    fn from(fault: SourceFault) -> Self {
        Self::Fault(fault)
    }
}

/// What no connection reads (`session::LIMITS`): it would be in memory several times over.
pub(super) const TOO_BIG: &str = "a value of more than 64 MiB, and larger ones are not read";

impl Fail {
    pub(super) fn is_too_big(&self) -> bool {
        match self {
            Self::Sql(error) => error.sqlite_error_code() == Some(ErrorCode::TooBig),
            Self::Late | Self::Fault(_) => false,
        }
    }

    /// Whether somebody else holds a lock, which passes.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Sql(error) => {
                matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
            }
            Self::Late | Self::Fault(_) => false,
        }
    }

    pub(super) fn into_fault(self, path: &Path) -> SourceFault {
        match self {
            Self::Sql(error) => of_error(&error, path),
            Self::Late => SourceFault::TooSlow,
            Self::Fault(fault) => fault,
        }
    }
}

/// The file's name without its folder.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn of_error(error: &Error, path: &Path) -> SourceFault {
    let name = name_of(path);
    let log = format!("{}: {error}", path.display());
    let changed = |told: String, log: String| SourceFault::Changed { told, log };
    let unavailable = |told: String, log: String| SourceFault::Unavailable { told, log };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => SourceFault::Busy { log },
        Some(_) if path.is_dir() => unavailable(format!("`{name}` is a folder, not a database"), log),
        Some(ErrorCode::NotADatabase) => {
            changed(format!("`{name}` is not an SQLite database, or it is encrypted; check the path"), log)
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            changed(format!("`{name}` is damaged; restore a backup, or run `.recover` on a copy of it"), log)
        }
        Some(ErrorCode::TooBig) => changed(format!("`{name}` has {TOO_BIG}; make it smaller"), log),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => closed(path, log),
        Some(ErrorCode::PermissionDenied | ErrorCode::SystemIoFailure) => {
            unavailable(format!("`{name}` cannot be read; check the disk and who may read the file"), log)
        }
        // "no such table", "no such column": the statement was right when it was made.
        Some(ErrorCode::Unknown | ErrorCode::SchemaChanged) | None => {
            changed(format!("`{name}` no longer has the tables and columns it had; read it in again"), log)
        }
        Some(_) => unavailable(format!("`{name}` cannot be read; the log says why"), log),
    }
}

/// A file that is there and does not open, or is not there.
fn closed(path: &Path, log: String) -> SourceFault {
    let name = name_of(path);
    let told = match std::fs::metadata(path) {
        Err(_) => format!("`{name}` is not there; check the path"),
        Ok(_) if is_wal(path) => format!(
            "`{name}` is in WAL mode, and the files `{name}-wal` and `{name}-shm` can be neither read nor made \
             beside it; allow writing to its folder, or copy it with `VACUUM INTO`"
        ),
        Ok(_) => format!("`{name}` cannot be read; check who may read the file"),
    };
    SourceFault::Unavailable { told, log }
}

/// Whether the header says that changes go to a log beside the file. Bytes 18 and 19 are the versions for
/// writing and reading: 2 is WAL.
fn is_wal(path: &Path) -> bool {
    use std::io::Read;
    let mut header = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header[19] == 2
}
