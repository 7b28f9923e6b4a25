//! What can be wrong with a CSV file, and the message for it: the file, the line, how to fix it.
//!
//! The log also gets the path and the value. The person who starts the server also sees the line itself.

use std::path::Path;

use contract::DataType;
use contract::diagnostic::Diagnostic;
use contract::humanize::pluralize;
use contract::source::SourceError;

use super::SHORT_ROWS_CODE;
use super::guess::EncodingGuess;
use super::location::TextLocation;
use crate::error_text::{self, ErrorText, expected_type, truncate};
use crate::watch::FileError;

/// Why a file is not a table, or no longer the table of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CsvError {
    File(FileError),
    Empty,
    /// The declared line of the header is beyond the end, or blank.
    NoHeader {
        line: usize,
    },
    WrongFormat(ForeignFormat),
    Nul {
        location: TextLocation,
    },
    InvalidUtf8 {
        location: TextLocation,
    },
    InvalidUtf16,
    /// Its rows are to be completed, and it is too large to be in memory.
    NeedsMemory,
    /// Neither UTF-8 nor Windows-1252.
    UnknownEncoding {
        location: TextLocation,
        guesses: Vec<EncodingGuess>,
    },
    /// Not in the encoding that the manifest declares.
    InvalidEncoding {
        location: TextLocation,
        declared: &'static str,
    },
    /// The byte order mark is that of another encoding than the declared one.
    OtherEncoding {
        declared: &'static str,
        found: &'static str,
    },
    InvalidDelimiter(u8),
    TooManyColumns(usize),
    Ragged {
        location: TextLocation,
        fields: usize,
        header: usize,
        delimiter: u8,
        cause: Option<RaggedCause>,
    },
    UnclosedQuote {
        location: TextLocation,
    },
    ColumnNotFound {
        name: String,
        suggestion: Option<String>,
    },
    TypeMismatch {
        location: TextLocation,
        column: String,
        data_type: DataType,
        text: String,
    },
    MissingValue {
        location: TextLocation,
        column: String,
    },
    MissingKey {
        location: TextLocation,
        column: String,
    },
    DuplicateKey {
        lines: [usize; 2],
        columns: Vec<String>,
        values: Vec<String>,
    },
}

/// Why a line probably has another number of fields than the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RaggedCause {
    /// The first line begins with `#`, as comments do in other formats.
    FirstIsComment,
    IsComment,
    /// The table begins in this line, and other lines are before it.
    LinesBefore {
        first: usize,
    },
    /// The table ends in this line, and other lines follow.
    LinesAfter {
        last: usize,
    },
}

/// Files that are often named `.csv` by mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignFormat {
    Zip,
    Excel,
    Sqlite,
    Gzip,
    Pdf,
    Parquet,
}

impl From<FileError> for CsvError {
    fn from(file_error: FileError) -> Self {
        Self::File(file_error)
    }
}

impl CsvError {
    pub(super) fn to_source_error(&self, file: &str, path: &Path) -> SourceError {
        let file_error = if let Self::File(file) = self { Some(file) } else { None };
        error_text::source_error(self.error_text(file), self.log_detail(file, path), file_error)
    }

    fn location(&self) -> Option<&TextLocation> {
        match self {
            Self::Nul { location }
            | Self::InvalidUtf8 { location }
            | Self::UnknownEncoding { location, .. }
            | Self::InvalidEncoding { location, .. }
            | Self::Ragged { location, .. }
            | Self::UnclosedQuote { location }
            | Self::TypeMismatch { location, .. }
            | Self::MissingValue { location, .. }
            | Self::MissingKey { location, .. } => Some(location),
            Self::File(_)
            | Self::Empty
            | Self::NoHeader { .. }
            | Self::WrongFormat(_)
            | Self::InvalidUtf16
            | Self::NeedsMemory
            | Self::OtherEncoding { .. }
            | Self::InvalidDelimiter(_)
            | Self::TooManyColumns(_)
            | Self::ColumnNotFound { .. }
            | Self::DuplicateKey { .. } => None,
        }
    }

    pub(super) fn to_diagnostic(&self, file: &str, path: &Path) -> Diagnostic {
        let diagnostic = error_text::diagnostic(self.error_text(file), self.location(), path);
        match self {
            Self::Ragged { fields, header, cause: None, .. } if fields < header => {
                diagnostic.code(SHORT_ROWS_CODE)
            }
            _ => diagnostic,
        }
    }

    /// For the log: the path, the position, and the value if there is one.
    fn log_detail(&self, file: &str, path: &Path) -> String {
        let path = path.display();
        let position = self
            .location()
            .map_or_else(String::new, |location| format!(":{}:{}", location.line, location.column));
        let (problem, _) = self.error_text(file);
        match self {
            Self::File(FileError::Io(error)) => format!("{path}: {error}"),
            Self::TypeMismatch { text, .. } => format!("{path}{position}: {problem}: `{}`", truncate(text)),
            Self::DuplicateKey { values, .. } => {
                format!("{path}: {problem}: `{}`", truncate(&values.join("`, `")))
            }
            _ => format!("{path}{position}: {problem}"),
        }
    }

    fn error_text(&self, file: &str) -> ErrorText {
        match self {
            Self::File(FileError::TooLarge { bytes, .. }) => {
                let gib = *bytes as f64 / f64::from(1 << 30);
                let problem = format!("`{file}` has {gib:.1} GiB, which exceeds the limit of 4");
                (problem, "split it, or load it into SQLite".into())
            }
            Self::File(file_error) => file_error.error_text(file, "CSV file"),
            Self::NoHeader { line } => (
                format!("`{file}` has no column names on line {line}"),
                "correct `header_row` or `skip_rows` in the manifest".into(),
            ),
            Self::Empty => (format!("`{file}` is empty"), "name the columns in its first line".into()),
            Self::WrongFormat(format) => {
                let (problem, help) = format.description_and_help();
                (format!("`{file}` looks like {problem}"), help.into())
            }
            Self::Nul { location } => (
                format!("`{file}` line {} has a NUL byte, so it is not text", location.line),
                "save it again as CSV in UTF-8".into(),
            ),
            Self::InvalidUtf8 { location } => (
                format!("`{file}` line {} is not valid UTF-8, but the lines before are", location.line),
                "save it again as UTF-8".into(),
            ),
            Self::NeedsMemory => (
                format!("`{file}` is too large to complete its rows (`short_rows`, `fill_down`)"),
                "raise `memory_bytes_max` of `[server]` above its size, or complete the rows in the file"
                    .into(),
            ),
            Self::InvalidUtf16 => (format!("`{file}` is not valid UTF-16"), "save it again as UTF-8".into()),
            Self::UnknownEncoding { location, guesses } => (
                format!("`{file}` line {} is neither UTF-8 nor Windows-1252", location.line),
                unknown_encoding_help(guesses),
            ),
            Self::InvalidEncoding { location, declared } => (
                format!("`{file}` line {} is not valid {declared}", location.line),
                "correct `encoding` in the manifest, or save the file again in that encoding".into(),
            ),
            Self::OtherEncoding { declared, found } => (
                format!("`{file}` begins with the byte order mark of {found}, but `encoding` is {declared}"),
                "remove `encoding` from the manifest".into(),
            ),
            Self::InvalidDelimiter(byte) => (
                format!("`{}` cannot separate fields", byte.escape_ascii()),
                "use a comma, a semicolon, a tab or `|`".into(),
            ),
            Self::TooManyColumns(columns) => {
                let max = super::COLUMNS_MAX;
                (
                    format!("`{file}` has {columns} columns, which exceeds the limit of {max}"),
                    "remove some".into(),
                )
            }
            Self::Ragged { location, fields, header, delimiter, cause } => (
                format!(
                    "`{file}` line {} has {}, the header has {header}",
                    location.line,
                    field_count_text(*fields)
                ),
                match cause {
                    Some(RaggedCause::FirstIsComment) => {
                        "remove line 1 if it is a comment (it begins with `#`), so that the first line names \
                         the columns"
                            .into()
                    }
                    Some(RaggedCause::IsComment) => "remove the line: a CSV has no comments".into(),
                    Some(RaggedCause::LinesBefore { first }) => {
                        format!("the table seems to begin in line {first}; remove the lines before it")
                    }
                    Some(RaggedCause::LinesAfter { last }) => {
                        format!("the table seems to end in line {last}; remove the lines after it")
                    }
                    None => ragged_row_help(file, *fields, *header, *delimiter),
                },
            ),
            Self::UnclosedQuote { location } => (
                format!("`{file}` line {} opens a quote that is never closed", location.line),
                "close it, or write `\"\"` for a quote in a field".into(),
            ),
            Self::ColumnNotFound { name, suggestion } => {
                error_text::missing_item(file, "column", name, suggestion.as_deref())
            }
            Self::TypeMismatch { location, column, data_type, text: _ } => (
                format!(
                    "`{file}` line {}, column `{column}`: expected {}",
                    location.line,
                    expected_type(*data_type)
                ),
                "correct the value, or declare another type with `as` in the manifest".into(),
            ),
            Self::MissingValue { location, column } => (
                format!(
                    "`{file}` line {}, column `{column}`: expected a value, but there is none",
                    location.line
                ),
                "fill it in, or allow missing values with `null = \"\"` for this column in the manifest"
                    .into(),
            ),
            Self::MissingKey { location, column } => (
                format!("`{file}` line {} has no `{column}`, which is a key", location.line),
                "fill it in, or choose another key".into(),
            ),
            Self::DuplicateKey { lines: [first, second], columns, values: _ } => (
                format!(
                    "`{file}` lines {first} and {second} have the same `{}`, which is the key",
                    columns.join("`, `")
                ),
                "change one, or choose another key".into(),
            ),
        }
    }
}

impl ForeignFormat {
    fn description_and_help(self) -> (&'static str, &'static str) {
        match self {
            Self::Zip => ("an Excel workbook or another ZIP archive", "save the sheet as CSV, or unpack it"),
            Self::Excel => ("an old Excel workbook", "save the sheet as CSV"),
            Self::Sqlite => ("a SQLite database", "serve it as one, or export a table as CSV"),
            Self::Gzip => ("a gzip archive", "unpack it first"),
            Self::Pdf => ("a PDF", "export the table as CSV"),
            Self::Parquet => ("a Parquet file", "name it `.parquet`, or set `kind = \"parquet\"`"),
        }
    }
}

fn field_count_text(fields: usize) -> String {
    pluralize(fields as u64, "field")
}

fn unknown_encoding_help(guesses: &[EncodingGuess]) -> String {
    let guess = |guess: &EncodingGuess| match guess.line.is_empty() {
        // What is not ASCII is beyond the part of the file that was looked at.
        true => format!("`encoding = \"{}\"`", guess.label),
        false => format!("`encoding = \"{}\"` (`{}`)", guess.label, guess.line),
    };
    let guesses: Vec<String> = guesses.iter().map(guess).collect();
    match guesses.is_empty() {
        true => "save it as UTF-8, or set `encoding` for its source in the manifest".into(),
        false => {
            format!(
                "save it as UTF-8, or set how its source reads it in the manifest: {}",
                guesses.join(" or ")
            )
        }
    }
}

fn ragged_row_help(file: &str, fields: usize, header: usize, delimiter: u8) -> String {
    let separator = match delimiter {
        b'\t' => "a tab".to_owned(),
        other => format!("`{}`", other.escape_ascii()),
    };
    if fields > header {
        format!("quote fields that contain {separator}")
    } else {
        let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let collection = contract::names::collection_name(&stem);
        format!(
            "add what is missing, with {separator} for each empty field; or set `short_rows = true` in \
             `[collections.{collection}]`"
        )
    }
}
