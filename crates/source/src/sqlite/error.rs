//! Errors: one text for the caller, one for the log.
//!
//! SQLite's own messages may contain paths, SQL and values, so they go to the log only. The caller's message
//! names the file without its folder and says what to do.

use std::path::Path;

use contract::source::{SourceError, WriteError};
use rusqlite::{Error, ErrorCode, ffi};

use crate::sqlite::connection::WriterCountGuard;

/// Why a database operation failed.
#[derive(Debug)]
pub(super) enum DbError {
    Sql(Error),
    /// The deadline passed; the lock has been released.
    DeadlineExceeded,
    /// The read runs on a thread that must not block, and would have to wait.
    WouldBlock,
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
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

/// No connection reads a larger value (`connection::LIMITS`): it would be in memory several times.
pub(super) const TOO_BIG: &str = "a value that exceeds the limit of 64 MiB";

impl DbError {
    pub(super) fn is_too_big(&self) -> bool {
        match self {
            Self::Sql(error) => error.sqlite_error_code() == Some(ErrorCode::TooBig),
            Self::DeadlineExceeded | Self::WouldBlock | Self::Source(_) => false,
        }
    }

    /// Whether another connection holds a lock. Worth a retry.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Sql(error) => {
                matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
            }
            Self::DeadlineExceeded | Self::WouldBlock | Self::Source(_) => false,
        }
    }

    /// Whether a JSON function met text that is not JSON, or a path that is not one.
    pub(super) fn is_json_error(&self) -> bool {
        let message = self.sqlite_message();
        message.contains("malformed JSON") || self.is_json_path_error()
    }

    /// `bad JSON path: '…'`
    pub(super) fn is_json_path_error(&self) -> bool {
        self.sqlite_message().contains("JSON path")
    }

    /// `ESCAPE expression must be a single character`
    pub(super) fn is_escape_error(&self) -> bool {
        self.sqlite_message().contains("ESCAPE expression")
    }

    /// What SQLite says; empty for other errors.
    pub(super) fn sqlite_message(&self) -> &str {
        match self {
            Self::Sql(Error::SqliteFailure(_, Some(message))) => message,
            Self::Sql(Error::SqlInputError { msg, .. }) => msg,
            _ => "",
        }
    }

    pub(super) fn would_block(&self) -> bool {
        matches!(self, Self::WouldBlock)
    }

    /// Whether SQLite needed an integer and got another type.
    pub(super) fn is_type_mismatch(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::TypeMismatch))
    }

    /// Whether a killed program left a hot journal, which must be rolled back before anyone can read.
    pub(super) fn has_hot_journal(&self) -> bool {
        matches!(self, Self::Sql(error) if is_hot_journal_error(error))
    }

    pub(super) fn into_source_error(self, path: &Path) -> SourceError {
        match self {
            Self::Sql(error) => source_error(&error, path),
            Self::DeadlineExceeded => SourceError::Timeout,
            Self::WouldBlock => SourceError::WouldBlock,
            Self::Source(error) => error,
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
    let detail = format!("{}: {error}", path.display());
    let changed = |message: String, detail: String| SourceError::Incompatible { message, detail };
    let unavailable = |message: String, detail: String| SourceError::Unavailable { message, detail };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => SourceError::Busy { detail },
        Some(_) if path.is_dir() => unavailable(format!("`{name}` is a folder, not a database"), detail),
        Some(ErrorCode::NotADatabase) => {
            changed(format!("`{name}` is not an SQLite database, or it is encrypted; check the path"), detail)
        }
        Some(ErrorCode::DatabaseCorrupt) => changed(
            format!("`{name}` is damaged; restore a backup, or run `.recover` on a copy of it"),
            detail,
        ),
        Some(ErrorCode::TooBig) => changed(format!("`{name}` has {TOO_BIG}; make it smaller"), detail),
        Some(ErrorCode::ReadOnly) if is_hot_journal_error(error) => unavailable(
            format!(
                "another program was interrupted while it wrote to `{name}`, and Spile cannot roll the change back; \
                 open the file once with a program that can write to it"
            ),
            detail,
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => cannot_open(path, detail),
        Some(ErrorCode::PermissionDenied | ErrorCode::SystemIoFailure) => unavailable(
            format!("cannot read `{name}`; check the disk and the permissions of the file"),
            detail,
        ),
        // "no such table", "no such column": the statement was valid when it was prepared.
        Some(ErrorCode::Unknown | ErrorCode::SchemaChanged) | None => changed(
            format!(
                "`{name}` no longer has the tables and columns that it had; restart the server to read its schema again"
            ),
            detail,
        ),
        Some(_) => {
            unavailable(format!("cannot read `{name}`; the server's log has the reason under `ref`"), detail)
        }
    }
}

/// The error of a write.
pub(super) fn source_error_on_write(error: DbError, path: &Path) -> SourceError {
    let name = file_name_of(path);
    let code = match &error {
        DbError::Sql(error) => error.sqlite_error_code(),
        DbError::DeadlineExceeded | DbError::WouldBlock | DbError::Source(_) => None,
    };
    let detail = || format!("{}: {error:?}", path.display());
    match code {
        Some(ErrorCode::DiskFull) => {
            let message = format!("no space left for `{name}`; nothing was written");
            SourceError::Unavailable { message, detail: detail() }
        }
        Some(ErrorCode::TooBig) => {
            let message = "the value exceeds the limit of 64 MiB".into();
            SourceError::Unavailable { message, detail: detail() }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) if path.exists() => {
            not_writable(path, detail())
        }
        _ => error.into_source_error(path),
    }
}

pub(super) fn not_writable(path: &Path, detail: String) -> SourceError {
    let name = file_name_of(path);
    let message = format!("cannot write to `{name}`; check the permissions of the file and its folder");
    SourceError::Unavailable { message, detail }
}

/// The table that a statement writes, to name the column that violates a constraint.
#[derive(Debug, Default)]
pub(super) struct ConstraintContext<'a> {
    pub(super) table: &'a str,
    /// Column names with their indexes in the shape.
    pub(super) columns: Vec<(&'a str, usize)>,
    pub(super) key: &'a [usize],
    /// What a violated foreign key means for this operation.
    pub(super) foreign_key_reason: Option<&'static str>,
}

impl ConstraintContext<'_> {
    /// Explains a violated constraint. SQLite's message only names the column.
    pub(super) fn constraint_error(&self, error: &Error) -> Option<WriteError> {
        let Error::SqliteFailure(code, text) = error else { return None };
        let text = text.as_deref().unwrap_or_default();
        let rejected =
            |column, reason: &str| Some(WriteError::Rejected { column, reason: reason.to_owned() });
        match (code.code, code.extended_code) {
            (
                ErrorCode::ConstraintViolation,
                ffi::SQLITE_CONSTRAINT_UNIQUE
                | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                | ffi::SQLITE_CONSTRAINT_ROWID,
            ) => {
                let listed = self.listed(text);
                let is_key =
                    listed.len() == self.key.len() && self.key.iter().all(|index| listed.contains(index));
                match listed[..] {
                    [_, ..] if is_key => Some(WriteError::AlreadyExists),
                    [only] => rejected(Some(only), "another row already has this value"),
                    _ => rejected(listed.first().copied(), "another row already has these values"),
                }
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_NOTNULL) => {
                rejected(self.listed(text).first().copied(), "a value is required")
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_CHECK) => {
                let mentioned = self.mentioned(text);
                match mentioned[..] {
                    [] => rejected(None, "the values violate a CHECK constraint of the table"),
                    [only] => rejected(Some(only), "a CHECK constraint of the table does not allow it"),
                    _ => {
                        let names: Vec<String> =
                            mentioned.iter().map(|at| format!("`{}`", self.column_name(*at))).collect();
                        let names = names.join(", ");
                        rejected(
                            None,
                            &format!("a CHECK constraint on {names} does not allow these values together"),
                        )
                    }
                }
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
                let both = "the row references a row that does not exist, or other rows reference it";
                rejected(None, self.foreign_key_reason.unwrap_or(both))
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_TRIGGER) => {
                rejected(None, "a trigger of the table refused the change")
            }
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_DATATYPE) => {
                let name = text.rsplit_once(" column ").map_or(text, |(_, name)| name);
                rejected(self.column_index(name), "the column stores values of another type")
            }
            (ErrorCode::ConstraintViolation, _) => {
                rejected(None, "the change violates a constraint of the database")
            }
            (ErrorCode::TypeMismatch, _) => rejected(None, "the rowid must be an integer"),
            _ => None,
        }
    }

    /// Parses `table.column`.
    fn column_index(&self, name: &str) -> Option<usize> {
        let name = name.strip_prefix(self.table)?.strip_prefix('.')?;
        self.columns.iter().find(|(known, _)| *known == name).map(|(_, index)| *index)
    }

    /// Parses `…: table.column, table.column`.
    fn listed(&self, text: &str) -> Vec<usize> {
        let Some((_, names)) = text.split_once(": ") else { return Vec::new() };
        names.split(", ").filter_map(|name| self.column_index(name)).collect()
    }

    /// The columns that a CHECK constraint mentions. A named constraint is told by its name, which mentions none.
    fn mentioned(&self, text: &str) -> Vec<usize> {
        let Some((_, rule)) = text.split_once(": ") else { return Vec::new() };
        let mut known: Vec<usize> = rule
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter_map(|word| self.columns.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)))
            .map(|(_, index)| *index)
            .collect();
        known.sort_unstable();
        known.dedup();
        known
    }

    fn column_name(&self, index: usize) -> &str {
        self.columns.iter().find(|(_, at)| *at == index).map_or("", |(name, _)| name)
    }
}

/// For a pipe, a socket or a device.
pub(super) fn not_a_file(path: &Path) -> SourceError {
    let message = format!("`{}` is not a file; give the path of a database", file_name_of(path));
    SourceError::Unavailable { detail: format!("{}: not a file", path.display()), message }
}

/// For a missing file, and for an existing one that cannot be opened.
fn cannot_open(path: &Path, detail: String) -> SourceError {
    let name = file_name_of(path);
    let message = match std::fs::metadata(path) {
        Err(_) => format!("`{name}` was not found; check the path"),
        Ok(_) if is_wal(path) => format!(
            "`{name}` is in WAL mode, and the files `{name}-wal` and `{name}-shm` can be neither read nor created \
             beside it; allow writing to its folder, or copy it with `VACUUM INTO`"
        ),
        Ok(_) => format!("cannot read `{name}`; check the permissions of the file"),
    };
    SourceError::Unavailable { message, detail }
}

/// Whether the file header says WAL: bytes 18 and 19 are the write and read versions, and 2 means WAL.
/// Closing the file would release all POSIX locks that this process holds on it, so the header is not read
/// while a writer is open.
fn is_wal(path: &Path) -> bool {
    use std::io::Read;
    if WriterCountGuard::any_open() {
        return false;
    }
    let mut header = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header[19] == 2
}
