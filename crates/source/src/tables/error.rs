//! What can be wrong with a file of tables, and the message for it: the file, the place, how to fix it.
//!
//! The log also gets the path and the value.

use std::path::Path;

use contract::DataType;
use contract::diagnostic::Diagnostic;
use contract::source::SourceError;

use super::ParseError;
use crate::error_text::{self, ErrorText, expected_type, truncate};
use crate::location::TextLocation;
use crate::watch::FileError;

/// Why a file cannot be served, or no longer fits the contract.
#[derive(Debug, Clone)]
pub(super) enum TableError {
    File(FileError),
    Parse(ParseError),
    /// More rows or cells than fit into memory.
    TooLarge,
    /// No record, so no column names.
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

/// Where a row is in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowLocation {
    pub(super) table_index: usize,
    pub(super) row: u32,
    pub(super) unit: &'static str,
    pub(super) number: u32,
}

impl From<FileError> for TableError {
    fn from(file_error: FileError) -> Self {
        Self::File(file_error)
    }
}

impl TableError {
    pub(super) fn to_source_error(&self, file: &str, path: &Path, kind_name: &str) -> SourceError {
        let file_error = if let Self::File(file) = self { Some(file) } else { None };
        error_text::source_error(
            self.error_text(file, kind_name),
            self.log_detail(file, path, kind_name),
            file_error,
        )
    }

    /// The row and the column that the error is about.
    pub(super) fn row_location(&self) -> Option<(RowLocation, Option<&str>)> {
        match self {
            Self::TypeMismatch { location, column, .. }
            | Self::MissingValue { location, column }
            | Self::MissingKey { location, column } => Some((*location, Some(column))),
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
        kind_name: &str,
        location: Option<&TextLocation>,
    ) -> Diagnostic {
        let own = match self {
            Self::Parse(unreadable) => unreadable.location.as_ref(),
            _ => None,
        };
        error_text::diagnostic(self.error_text(file, kind_name), own.or(location), path)
    }

    /// For the log: the path, and the value if there is one.
    fn log_detail(&self, file: &str, path: &Path, kind_name: &str) -> String {
        let path = path.display();
        let (problem, _) = self.error_text(file, kind_name);
        match self {
            Self::File(FileError::Io(error)) => format!("{path}: {error}"),
            Self::TypeMismatch { text, .. } => format!("{path}: {problem}: `{}`", truncate(text)),
            Self::DuplicateKey { values, .. } => {
                format!("{path}: {problem}: `{}`", truncate(&values.join("`, `")))
            }
            Self::Parse(ParseError { location: Some(location), .. }) => {
                format!("{path}:{}:{}: {problem}", location.line, location.column)
            }
            Self::File(_)
            | Self::Parse(_)
            | Self::TooLarge
            | Self::NoColumns
            | Self::TableNotFound { .. }
            | Self::ColumnNotFound { .. }
            | Self::MissingValue { .. }
            | Self::MissingKey { .. } => format!("{path}: {problem}"),
        }
    }

    fn error_text(&self, file: &str, kind_name: &str) -> ErrorText {
        let location = |position: &RowLocation| format!("`{file}` {} {}", position.unit, position.number);
        match self {
            Self::File(file_error) => file_error.error_text(file, kind_name),
            Self::Parse(ParseError { message, help, .. }) => (
                format!("`{file}` {message}"),
                help.clone().unwrap_or_else(|| format!("give the path of a {kind_name}")),
            ),
            Self::TooLarge => (
                format!("`{file}` has more rows or cells than fit into memory"),
                "put the data into a SQLite database".into(),
            ),
            Self::NoColumns => (
                format!("`{file}` has no rows, so its fields are unknown"),
                "add one, or declare the fields with `as` in a manifest, the key among them".into(),
            ),
            Self::TableNotFound { name, suggestion } => {
                error_text::missing_item(file, "table", name, suggestion.as_deref())
            }
            Self::ColumnNotFound { name, suggestion } => {
                error_text::missing_item(file, "column", name, suggestion.as_deref())
            }
            Self::TypeMismatch { location: position, column, data_type: kind, text: _ } => (
                format!("{}, column `{column}`: expected {}", location(position), expected_type(*kind)),
                "correct the value, or declare another type with `as` in the manifest".into(),
            ),
            Self::MissingValue { location: position, column } => (
                format!("{}, column `{column}`: expected a value, but there is none", location(position)),
                "fill it in, or update the contract".into(),
            ),
            Self::MissingKey { location: position, column } => (
                format!("{} has no `{column}`, which is a key", location(position)),
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
