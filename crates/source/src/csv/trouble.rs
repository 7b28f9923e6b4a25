//! What can be wrong with a file, and how a person is told: the file, the line, the way out.
//!
//! What callers read names the file and never its folder, and shows no value of a row; the log has both.

use std::path::Path;

use contract::Kind;

/// Why a file is not a table, or not the table it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    Gone,
    NotAFile,
    Denied,
    Unreadable(String),
    TooLarge { bytes: u64 },
    Empty,
    LooksLike(Format),
    Nul { line: usize },
    BrokenUtf8 { line: usize },
    BrokenUtf16,
    Delimiter(u8),
    TooManyColumns(usize),
    Ragged { line: usize, fields: usize, header: usize, delimiter: u8 },
    Unclosed { line: usize },
    NoColumn { name: String, near: Option<String> },
    NotOfKind { line: usize, column: String, kind: Kind, text: String },
    NoValue { line: usize, column: String },
    NoKey { line: usize, column: String },
    KeyTwice { lines: [usize; 2], columns: Vec<String>, texts: Vec<String> },
}

/// Files that are often named `.csv` by mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Zip,
    Excel,
    Sqlite,
    Gzip,
    Pdf,
    Parquet,
}

impl Trouble {
    /// For whoever calls.
    pub(super) fn told(&self, file: &str) -> String {
        match self {
            Self::Gone => format!("`{file}` is not there; check its name, or put it back"),
            Self::NotAFile => format!("`{file}` is not a file; give the path of a CSV file"),
            Self::Denied => format!("`{file}` may not be read; give the server permission to read it"),
            Self::Unreadable(_) => format!("`{file}` cannot be read; the log says why"),
            Self::TooLarge { bytes } => {
                let gib = *bytes as f64 / f64::from(1 << 30);
                format!(
                    "`{file}` has {gib:.1} GiB, and must have less than 4; split it, or load it into SQLite"
                )
            }
            Self::Empty => format!("`{file}` is empty; its first line must name the columns"),
            Self::LooksLike(format) => format!("`{file}` {}", format.told()),
            Self::Nul { line } => {
                format!(
                    "`{file}` line {line} has a NUL byte, so it is not text; save it again as CSV in UTF-8"
                )
            }
            Self::BrokenUtf8 { line } => {
                format!(
                    "`{file}` line {line} is not UTF-8, though what comes before is; save it again as UTF-8"
                )
            }
            Self::BrokenUtf16 => format!("`{file}` is UTF-16, but broken; save it again as UTF-8"),
            Self::Delimiter(byte) => {
                let shown = byte.escape_ascii();
                format!("`{shown}` cannot separate fields; use a comma, a semicolon, a tab or `|`")
            }
            Self::TooManyColumns(columns) => {
                let most = super::COLUMNS_MAX;
                format!("`{file}` has {columns} columns, and {most} is the most; leave some out")
            }
            Self::Ragged { line, fields, header, delimiter } => {
                let way_out = ragged(*fields, *header, *delimiter);
                format!("`{file}` line {line} has {}, the header has {header}; {way_out}", count(*fields))
            }
            Self::Unclosed { line } => {
                format!(
                    "`{file}` line {line} opens a quote that is never closed; close it, or write `\"\"` for a quote in a field"
                )
            }
            Self::NoColumn { name, near: None } => {
                format!("`{file}` has no column `{name}`; put it back, or make the contract anew")
            }
            Self::NoColumn { name, near: Some(near) } => {
                format!(
                    "`{file}` has no column `{name}`, but `{near}`; name it as it was, or make the contract anew"
                )
            }
            Self::NotOfKind { line, column, kind, text: _ } => {
                format!(
                    "`{file}` line {line}, column `{column}`: expected {}; correct the value",
                    kind_of(*kind)
                )
            }
            Self::NoValue { line, column } => {
                format!(
                    "`{file}` line {line}, column `{column}`: expected a value, but there is none; fill it in"
                )
            }
            Self::NoKey { line, column } => {
                format!(
                    "`{file}` line {line} has no `{column}`, which is a key; fill it in, or choose another key"
                )
            }
            Self::KeyTwice { lines: [first, second], columns, texts: _ } => {
                let columns = columns.join("`, `");
                format!(
                    "`{file}` lines {first} and {second} have the same `{columns}`, which is the key; change one, or choose another key"
                )
            }
        }
    }

    /// For whoever runs the server: the path, and the value where there is one.
    pub(super) fn log(&self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Unreadable(error) => format!("{path}: {error}"),
            Self::NotOfKind { line, column, kind, text } => {
                let (kind, text) = (kind.as_str(), shortened(text));
                format!("{path}: line {line}, column `{column}`: no {kind}: `{text}`")
            }
            Self::KeyTwice { lines: [first, second], columns: _, texts } => {
                let texts = texts.join("`, `");
                format!("{path}: lines {first} and {second}: key twice: `{}`", shortened(&texts))
            }
            other => format!("{path}: {other:?}"),
        }
    }
}

impl Format {
    fn told(self) -> &'static str {
        match self {
            Self::Zip => {
                "looks like an Excel workbook or another ZIP archive; save the sheet as CSV, or unpack it"
            }
            Self::Excel => "looks like an old Excel workbook; save the sheet as CSV",
            Self::Sqlite => "looks like a SQLite database; serve it as one, or export a table as CSV",
            Self::Gzip => "looks like a gzip archive; unpack it first",
            Self::Pdf => "looks like a PDF; export the table as CSV",
            Self::Parquet => "looks like a Parquet file; export it as CSV",
        }
    }
}

fn count(fields: usize) -> String {
    if fields == 1 { "1 field".to_owned() } else { format!("{fields} fields") }
}

fn ragged(fields: usize, header: usize, delimiter: u8) -> String {
    let separator = match delimiter {
        b'\t' => "a tab".to_owned(),
        other => format!("`{}`", other.escape_ascii()),
    };
    if fields > header {
        format!("quote fields that contain {separator}")
    } else {
        format!("add what is missing, with {separator} for each empty field")
    }
}

fn kind_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Integer => "a whole number, such as `42`",
        Kind::Int64 => "a whole number of 64 bits",
        Kind::Decimal | Kind::Number => "a number, such as `12.50`",
        Kind::Boolean => "`true` or `false`",
        Kind::Date => "a date, such as `2026-02-28`",
        Kind::Timestamp => "a time with its zone, such as `2026-02-28T10:00:00Z`",
        Kind::LocalTimestamp => "a time without a zone, such as `2026-02-28T10:00:00`",
        Kind::Json => "JSON",
        Kind::Blob => "base64",
    }
}

fn shortened(text: &str) -> &str {
    const BYTES_MAX: usize = 80;
    &text[..text.floor_char_boundary(BYTES_MAX)]
}
