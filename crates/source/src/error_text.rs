//! How people are told what is wrong with a file, whatever kind of file it is: what is wrong, and the way out.

use std::path::Path;

use contract::DataType;
use contract::diagnostic::Diagnostic;
use contract::source::SourceError;

use crate::location::TextLocation;
use crate::watch::FileError;

/// What is wrong, and the way out. Names the file and never its folder, and shows no value of a row.
pub(crate) type ErrorText = (String, String);

/// For whoever calls, and for the log. What may pass is another fault than what must be mended.
pub(crate) fn source_error(
    (what, way_out): ErrorText,
    log: String,
    out_of_reach: Option<&FileError>,
) -> SourceError {
    let told = format!("{what}; {way_out}");
    match out_of_reach {
        Some(file) if file.is_transient() => SourceError::Unavailable { message: told, detail: log },
        Some(_) | None => SourceError::Incompatible { message: told, detail: log },
    }
}

/// For whoever starts the server: with the line itself, where it is about one.
pub(crate) fn diagnostic((what, way_out): ErrorText, spot: Option<&TextLocation>, path: &Path) -> Diagnostic {
    match spot {
        Some(spot) => Diagnostic::error(what).at(&spot.in_file(&path.display().to_string())).help(way_out),
        None => Diagnostic::error(format!("{what}; {way_out}")),
    }
}

/// A table or a column that a contract knows is not there.
pub(crate) fn missing_item(file: &str, what: &str, name: &str, near: Option<&str>) -> ErrorText {
    match near {
        Some(near) => (
            format!("`{file}` has no {what} `{name}`, but `{near}`"),
            "name it as it was, or make the contract anew".into(),
        ),
        None => (format!("`{file}` has no {what} `{name}`"), "put it back, or make the contract anew".into()),
    }
}

/// Half a sentence, after `expected`.
pub(crate) fn expected_type(kind: DataType) -> &'static str {
    match kind {
        DataType::Text => "text",
        DataType::Integer => "a whole number, such as `42`",
        DataType::Int64 => "a whole number of 64 bits",
        DataType::Decimal | DataType::Number => "a number, such as `12.50`",
        DataType::Boolean => "`true` or `false`",
        DataType::Date => "a date, such as `2026-02-28`",
        DataType::Timestamp => "a time with its zone, such as `2026-02-28T10:00:00Z`",
        DataType::LocalTimestamp => "a time without a zone, such as `2026-02-28T10:00:00`",
        DataType::Json => "JSON",
        DataType::Blob => "base64",
    }
}

/// As much of a value as the log shows.
pub(crate) fn truncate(text: &str) -> &str {
    const BYTES_MAX: usize = 80;
    &text[..text.floor_char_boundary(BYTES_MAX)]
}
