//! What can be wrong with a file of tables, and how a person is told: the file, the place, the way out.
//!
//! The log has the path and the value, too.

use std::path::Path;

use contract::DataType;
use contract::diagnostic::Diagnostic;
use contract::source::SourceError;

use super::ParseError;
use crate::error_text::{self, ErrorText, expected_type, truncate};
use crate::location::TextLocation;
use crate::watch::FileError;

/// Why a file has no tables, or not the tables it had.
#[derive(Debug, Clone)]
pub(super) enum TableError {
    File(FileError),
    Parse(ParseError),
    /// More than there is room for.
    TooLarge,
    /// No row that names a column.
    NoColumns,
    TableNotFound {
        name: String,
        suggestion: Option<String>,
    },
    ColumnNotFound {
        name: String,
        suggestion: Option<String>,
    },
    TypeMismatch {
        location: RowLocation,
        column: String,
        data_type: DataType,
        text: String,
    },
    MissingValue {
        location: RowLocation,
        column: String,
    },
    MissingKey {
        location: RowLocation,
        column: String,
    },
    DuplicateKey {
        locations: [RowLocation; 2],
        columns: Vec<String>,
        values: Vec<String>,
    },
}

/// Where a row stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowLocation {
    pub(super) table_index: usize,
    pub(super) row: u32,
    pub(super) unit: &'static str,
    pub(super) number: u32,
}

impl From<FileError> for TableError {
    fn from(out_of_reach: FileError) -> Self {
        Self::File(out_of_reach)
    }
}

impl TableError {
    pub(super) fn to_source_error(&self, file: &str, path: &Path, what: &str) -> SourceError {
        let out_of_reach = if let Self::File(file) = self { Some(file) } else { None };
        error_text::source_error(self.error_text(file, what), self.log_detail(file, path, what), out_of_reach)
    }

    /// The row it is about, and the column.
    pub(super) fn row_location(&self) -> Option<(RowLocation, Option<&str>)> {
        match self {
            Self::TypeMismatch { location: at, column, .. }
            | Self::MissingValue { location: at, column }
            | Self::MissingKey { location: at, column } => Some((*at, Some(column))),
            Self::DuplicateKey { locations: [_, second], columns, .. } => {
                Some((*second, columns.first().map(String::as_str)))
            }
            Self::File(_)
            | Self::Parse(_)
            | Self::TooLarge
            | Self::NoColumns
            | Self::TableNotFound { .. }
            | Self::ColumnNotFound { .. } => None,
        }
    }

    pub(super) fn to_diagnostic(
        &self,
        file: &str,
        path: &Path,
        what: &str,
        spot: Option<&TextLocation>,
    ) -> Diagnostic {
        let own = match self {
            Self::Parse(unreadable) => unreadable.location.as_ref(),
            _ => None,
        };
        error_text::diagnostic(self.error_text(file, what), own.or(spot), path)
    }

    /// For whoever runs the server: the path, and the value where there is one.
    fn log_detail(&self, file: &str, path: &Path, what: &str) -> String {
        let path = path.display();
        let (message, _) = self.error_text(file, what);
        match self {
            Self::File(FileError::Io(error)) => format!("{path}: {error}"),
            Self::TypeMismatch { text, .. } => format!("{path}: {message}: `{}`", truncate(text)),
            Self::DuplicateKey { values: texts, .. } => {
                format!("{path}: {message}: `{}`", truncate(&texts.join("`, `")))
            }
            Self::Parse(ParseError { location: Some(at), .. }) => {
                format!("{path}:{}:{}: {message}", at.line, at.column)
            }
            Self::File(_)
            | Self::Parse(_)
            | Self::TooLarge
            | Self::NoColumns
            | Self::TableNotFound { .. }
            | Self::ColumnNotFound { .. }
            | Self::MissingValue { .. }
            | Self::MissingKey { .. } => format!("{path}: {message}"),
        }
    }

    fn error_text(&self, file: &str, what: &str) -> ErrorText {
        let at = |place: &RowLocation| format!("`{file}` {} {}", place.unit, place.number);
        match self {
            Self::File(out_of_reach) => out_of_reach.error_text(file, what),
            Self::Parse(ParseError { message: why, help, .. }) => (
                format!("`{file}` {why}"),
                help.clone().unwrap_or_else(|| format!("give the path of a {what}")),
            ),
            Self::TooLarge => (
                format!("`{file}` has more rows or cells than are kept in memory"),
                "put the data into a SQLite database".into(),
            ),
            Self::NoColumns => (
                format!("`{file}` has no records, so nobody knows their fields"),
                "add one, or declare the fields with `as` in a manifest, the key among them".into(),
            ),
            Self::TableNotFound { name, suggestion: near } => {
                error_text::missing_item(file, "table", name, near.as_deref())
            }
            Self::ColumnNotFound { name, suggestion: near } => {
                error_text::missing_item(file, "column", name, near.as_deref())
            }
            Self::TypeMismatch { location: place, column, data_type: kind, text: _ } => (
                format!("{}, column `{column}`: expected {}", at(place), expected_type(*kind)),
                "correct the value".into(),
            ),
            Self::MissingValue { location: place, column } => (
                format!("{}, column `{column}`: expected a value, but there is none", at(place)),
                "fill it in, or make the contract anew".into(),
            ),
            Self::MissingKey { location: place, column } => (
                format!("{} has no `{column}`, which is a key", at(place)),
                "fill it in, or choose another key".into(),
            ),
            Self::DuplicateKey { locations: [first, second], columns, values: _ } => (
                format!(
                    "`{file}` {}s {} and {} have the same `{}`, which is the key",
                    first.unit,
                    first.number,
                    second.number,
                    columns.join("`, `")
                ),
                "change one, or choose another key".into(),
            ),
        }
    }
}
