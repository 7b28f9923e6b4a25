//! Error texts that all kinds of files share: what is wrong, and how to fix it.

use std::path::Path;

use contract::DataType;
use contract::diagnostic::Diagnostic;
use contract::source::SourceError;

use crate::location::TextLocation;
use crate::watch::FileError;

/// What is wrong, and how to fix it, in the imperative. Names the file but never its folder, and shows no value of a row.
pub(crate) type ErrorText = (String, String);

/// The error for the caller, who cannot change the file: the help is for its owner. `file_error` decides whether a retry
/// may help.
pub(crate) fn source_error(
    (problem, help): ErrorText,
    detail: String,
    file_error: Option<&FileError>,
) -> SourceError {
    let message = format!("{problem}; the server's owner can {help}");
    match file_error {
        Some(file) if file.is_transient() => SourceError::Unavailable { message, detail },
        Some(_) | None => SourceError::Incompatible { message, detail },
    }
}

/// The error for the person who starts the server. Quotes the line if `location` names one.
pub(crate) fn diagnostic(
    (problem, help): ErrorText,
    location: Option<&TextLocation>,
    path: &Path,
) -> Diagnostic {
    match location {
        Some(location) => {
            Diagnostic::error(problem).at(&location.in_file(&path.display().to_string())).help(help)
        }
        None => Diagnostic::error(format!("{problem}; {help}")),
    }
}

/// The contract names a table or a column that the file does not have.
pub(crate) fn missing_item(file: &str, item: &str, name: &str, suggestion: Option<&str>) -> ErrorText {
    match suggestion {
        Some(suggestion) => (
            format!("`{file}` has no {item} `{name}`; the most similar is `{suggestion}`"),
            "rename it back, or update the contract".into(),
        ),
        None => (format!("`{file}` has no {item} `{name}`"), "put it back, or update the contract".into()),
    }
}

/// Completes the sentence "expected …".
pub(crate) fn expected_type(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Text => "text",
        DataType::Integer => "an integer, such as `42`",
        DataType::Int64 => "a 64-bit integer",
        DataType::Decimal | DataType::Number => "a number, such as `12.50`",
        DataType::Boolean => "`true` or `false`",
        DataType::Date => "a date, such as `2026-02-28`",
        DataType::Timestamp => "a time with its zone, such as `2026-02-28T10:00:00Z`",
        DataType::LocalTimestamp => "a time without a zone, such as `2026-02-28T10:00:00`",
        DataType::Json => "JSON",
        DataType::Blob => "base64",
    }
}

/// Cuts a value to the length that the log shows.
pub(crate) fn truncate(text: &str) -> &str {
    const BYTES_MAX: usize = 80;
    &text[..text.floor_char_boundary(BYTES_MAX)]
}
