//! What goes wrong, for a tired person and for the log.
//!
//! The driver's words may hold paths, SQL and values: they go to the log only. What is told names the file
//! without its folder, and the way out.

use std::path::Path;

use contract::source::{SourceError, WriteError};
use rusqlite::{Error, ErrorCode, ffi};

use super::connection::WriterCountGuard;

/// Why a read did not come to its end.
#[derive(Debug)]
pub(super) enum DbError {
    Sql(Error),
    /// The time for holding the lock is over; the lock has been given back.
    DeadlineExceeded,
    Source(SourceError),
}

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::DeadlineExceeded,
            _ => Self::Sql(error),
        }
    }
}

impl From<SourceError> for DbError {
    fn from(fault: SourceError) -> Self {
        Self::Source(fault)
    }
}

/// What no connection reads (`session::LIMITS`): it would be in memory several times over.
pub(super) const TOO_BIG: &str = "a value of more than 64 MiB, and larger ones are not read";

impl DbError {
    pub(super) fn is_too_big(&self) -> bool {
        match self {
            Self::Sql(error) => error.sqlite_error_code() == Some(ErrorCode::TooBig),
            Self::DeadlineExceeded | Self::Source(_) => false,
        }
    }

    /// Whether somebody else holds a lock, which passes.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Sql(error) => {
                matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
            }
            Self::DeadlineExceeded | Self::Source(_) => false,
        }
    }

    /// Whether a number was wanted and something else came.
    pub(super) fn is_type_mismatch(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::TypeMismatch))
    }

    /// Whether somebody was cut off in the middle of a change, which has to be taken back before anybody can read.
    pub(super) fn has_hot_journal(&self) -> bool {
        matches!(self, Self::Sql(error) if is_hot_journal_error(error))
    }

    pub(super) fn into_source_error(self, path: &Path) -> SourceError {
        match self {
            Self::Sql(error) => source_error(&error, path),
            Self::DeadlineExceeded => SourceError::Timeout,
            Self::Source(fault) => fault,
        }
    }
}

fn is_hot_journal_error(error: &Error) -> bool {
    matches!(error, Error::SqliteFailure(code, _) if code.extended_code == ffi::SQLITE_READONLY_ROLLBACK)
}

/// The file's name without its folder.
pub(super) fn file_name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn source_error(error: &Error, path: &Path) -> SourceError {
    let name = file_name_of(path);
    let log = format!("{}: {error}", path.display());
    let changed = |told: String, log: String| SourceError::Incompatible { message: told, detail: log };
    let unavailable = |told: String, log: String| SourceError::Unavailable { message: told, detail: log };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => SourceError::Busy { detail: log },
        Some(_) if path.is_dir() => unavailable(format!("`{name}` is a folder, not a database"), log),
        Some(ErrorCode::NotADatabase) => {
            changed(format!("`{name}` is not an SQLite database, or it is encrypted; check the path"), log)
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            changed(format!("`{name}` is damaged; restore a backup, or run `.recover` on a copy of it"), log)
        }
        Some(ErrorCode::TooBig) => changed(format!("`{name}` has {TOO_BIG}; make it smaller"), log),
        Some(ErrorCode::ReadOnly) if is_hot_journal_error(error) => unavailable(
            format!(
                "another program was cut off while it changed `{name}`, and we may not put it right; open it once with \
                 a program that may write to it"
            ),
            log,
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => cannot_open(path, log),
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

/// The same for who writes.
pub(super) fn source_error_on_write(fail: DbError, path: &Path) -> SourceError {
    let name = file_name_of(path);
    let code = match &fail {
        DbError::Sql(error) => error.sqlite_error_code(),
        DbError::DeadlineExceeded | DbError::Source(_) => None,
    };
    let log = || format!("{}: {fail:?}", path.display());
    match code {
        Some(ErrorCode::DiskFull) => {
            let told = format!("there is no room left for `{name}`; nothing was written");
            SourceError::Unavailable { message: told, detail: log() }
        }
        Some(ErrorCode::TooBig) => {
            let told = "this is more than 64 MiB, and larger values are not kept".into();
            SourceError::Unavailable { message: told, detail: log() }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) if path.exists() => {
            not_writable(path, log())
        }
        _ => fail.into_source_error(path),
    }
}

pub(super) fn not_writable(path: &Path, log: String) -> SourceError {
    let name = file_name_of(path);
    let told = format!("`{name}` cannot be written to; check who may write to the file and to its folder");
    SourceError::Unavailable { message: told, detail: log }
}

/// Whose rules a row may break, to name them by.
#[derive(Debug, Default)]
pub(super) struct ConstraintContext<'a> {
    pub(super) table: &'a str,
    /// Names, with their places in a shape.
    pub(super) columns: Vec<(&'a str, usize)>,
    pub(super) key: &'a [usize],
    /// What a foreign key has against it.
    pub(super) foreign_key_reason: Option<&'static str>,
}

impl ConstraintContext<'_> {
    /// What the database has against a row, in our words. The driver's say only which column it is.
    pub(super) fn constraint_error(&self, error: &Error) -> Option<WriteError> {
        let Error::SqliteFailure(code, said) = error else { return None };
        let said = said.as_deref().unwrap_or_default();
        let refused = |column, why: &str| Some(WriteError::Rejected { column, reason: why.to_owned() });
        match (code.code, code.extended_code) {
            (
                ErrorCode::ConstraintViolation,
                ffi::SQLITE_CONSTRAINT_UNIQUE
                | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                | ffi::SQLITE_CONSTRAINT_ROWID,
            ) => {
                let named = self.listed(said);
                let is_key = named.len() == self.key.len() && self.key.iter().all(|at| named.contains(at));
                match named[..] {
                    [_, ..] if is_key => Some(WriteError::AlreadyExists),
                    [only] => refused(Some(only), "another record has this value already"),
                    _ => refused(named.first().copied(), "another record has the same values already"),
                }
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_NOTNULL) => {
                refused(self.listed(said).first().copied(), "a value is required")
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_CHECK) => {
                refused(self.mentioned(said), "a rule of the table (CHECK) does not allow it")
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
                let both = "it refers to a record that is not there, or others refer to it";
                refused(None, self.foreign_key_reason.unwrap_or(both))
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_TRIGGER) => {
                refused(None, "a trigger of the table does not allow it")
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_DATATYPE) => {
                let name = said.rsplit_once(" column ").map_or(said, |(_, name)| name);
                refused(self.column_index(name), "the column keeps other kinds of values")
            }
            (ErrorCode::ConstraintViolation, _) => refused(None, "a rule of the database does not allow it"),
            (ErrorCode::TypeMismatch, _) => refused(None, "its number has to be an integer"),
            _ => None,
        }
    }

    /// `table.column`
    fn column_index(&self, name: &str) -> Option<usize> {
        let name = name.strip_prefix(self.table)?.strip_prefix('.')?;
        self.columns.iter().find(|(known, _)| *known == name).map(|(_, at)| *at)
    }

    /// `…: table.column, table.column`
    fn listed(&self, said: &str) -> Vec<usize> {
        let Some((_, names)) = said.split_once(": ") else { return Vec::new() };
        names.split(", ").filter_map(|name| self.column_index(name)).collect()
    }

    /// The only column of which a rule speaks.
    fn mentioned(&self, said: &str) -> Option<usize> {
        let (_, rule) = said.split_once(": ")?;
        let mut words = rule.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let mut known: Vec<usize> = words
            .by_ref()
            .filter_map(|word| self.columns.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)))
            .map(|(_, at)| *at)
            .collect();
        known.dedup();
        if let [only] = known[..] { Some(only) } else { None }
    }
}

/// A pipe, a socket, a device.
pub(super) fn not_a_file(path: &Path) -> SourceError {
    let told = format!("`{}` is not a file; give the path of a database", file_name_of(path));
    SourceError::Unavailable { detail: format!("{}: not a file", path.display()), message: told }
}

/// A file that is there and does not open, or is not there.
fn cannot_open(path: &Path, log: String) -> SourceError {
    let name = file_name_of(path);
    let told = match std::fs::metadata(path) {
        Err(_) => format!("`{name}` is not there; check the path"),
        Ok(_) if is_wal(path) => format!(
            "`{name}` is in WAL mode, and the files `{name}-wal` and `{name}-shm` can be neither read nor made \
             beside it; allow writing to its folder, or copy it with `VACUUM INTO`"
        ),
        Ok(_) => format!("`{name}` cannot be read; check who may read the file"),
    };
    SourceError::Unavailable { message: told, detail: log }
}

/// Whether the header says that changes go to a log beside the file. Bytes 18 and 19 are the versions for
/// writing and reading: 2 is WAL. To close the file gives back all locks that this process has on it (POSIX says
/// so), so where we may hold some it is not looked.
fn is_wal(path: &Path) -> bool {
    use std::io::Read;
    if WriterCountGuard::any_open() {
        return false;
    }
    let mut header = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header[19] == 2
}
