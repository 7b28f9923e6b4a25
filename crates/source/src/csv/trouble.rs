//! What can be wrong with a file, and how a person is told: the file, the line, the way out.
//!
//! The log has the path and the value, too. Whoever starts the server is shown the line itself.

use std::path::Path;

use contract::Kind;
use contract::diagnostic::Diagnostic;
use contract::source::SourceFault;

use super::spot::Spot;
use crate::watch::OutOfReach;
use crate::words::{self, Words, kind_of, shortened};

/// Why a file is not a table, or not the table it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    File(OutOfReach),
    Empty,
    LooksLike(Format),
    Nul { at: Spot },
    BrokenUtf8 { at: Spot },
    BrokenUtf16,
    Delimiter(u8),
    TooManyColumns(usize),
    Ragged { at: Spot, fields: usize, header: usize, delimiter: u8, comment: Option<Comment> },
    Unclosed { at: Spot },
    NoColumn { name: String, near: Option<String> },
    NotOfKind { at: Spot, column: String, kind: Kind, text: String },
    NoValue { at: Spot, column: String },
    NoKey { at: Spot, column: String },
    KeyTwice { lines: [usize; 2], columns: Vec<String>, texts: Vec<String> },
}

/// Which line begins with `#`, as comments do elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comment {
    First,
    This,
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

impl From<OutOfReach> for Trouble {
    fn from(out_of_reach: OutOfReach) -> Self {
        Self::File(out_of_reach)
    }
}

impl Trouble {
    pub(super) fn fault(&self, file: &str, path: &Path) -> SourceFault {
        let out_of_reach = if let Self::File(file) = self { Some(file) } else { None };
        words::fault(self.words(file), self.log(file, path), out_of_reach)
    }

    fn spot(&self) -> Option<&Spot> {
        match self {
            Self::Nul { at }
            | Self::BrokenUtf8 { at }
            | Self::Ragged { at, .. }
            | Self::Unclosed { at }
            | Self::NotOfKind { at, .. }
            | Self::NoValue { at, .. }
            | Self::NoKey { at, .. } => Some(at),
            Self::File(_)
            | Self::Empty
            | Self::LooksLike(_)
            | Self::BrokenUtf16
            | Self::Delimiter(_)
            | Self::TooManyColumns(_)
            | Self::NoColumn { .. }
            | Self::KeyTwice { .. } => None,
        }
    }

    pub(super) fn shown(&self, file: &str, path: &Path) -> Diagnostic {
        words::shown(self.words(file), self.spot(), path)
    }

    /// For whoever runs the server: the path, the place, and the value where there is one.
    fn log(&self, file: &str, path: &Path) -> String {
        let path = path.display();
        let place = self.spot().map_or_else(String::new, |at| format!(":{}:{}", at.line, at.column));
        let (what, _) = self.words(file);
        match self {
            Self::File(OutOfReach::Unreadable(error)) => format!("{path}: {error}"),
            Self::NotOfKind { text, .. } => format!("{path}{place}: {what}: `{}`", shortened(text)),
            Self::KeyTwice { texts, .. } => {
                format!("{path}: {what}: `{}`", shortened(&texts.join("`, `")))
            }
            _ => format!("{path}{place}: {what}"),
        }
    }

    fn words(&self, file: &str) -> Words {
        match self {
            Self::File(OutOfReach::TooLarge { bytes, .. }) => {
                let gib = *bytes as f64 / f64::from(1 << 30);
                let what = format!("`{file}` has {gib:.1} GiB, and must have less than 4");
                (what, "split it, or load it into SQLite".into())
            }
            Self::File(out_of_reach) => out_of_reach.words(file, "CSV file"),
            Self::Empty => (format!("`{file}` is empty"), "its first line must name the columns".into()),
            Self::LooksLike(format) => {
                let (what, way_out) = format.words();
                (format!("`{file}` looks like {what}"), way_out.into())
            }
            Self::Nul { at } => (
                format!("`{file}` line {} has a NUL byte, so it is not text", at.line),
                "save it again as CSV in UTF-8".into(),
            ),
            Self::BrokenUtf8 { at } => (
                format!("`{file}` line {} is not UTF-8, though what comes before is", at.line),
                "save it again as UTF-8".into(),
            ),
            Self::BrokenUtf16 => (format!("`{file}` is UTF-16, but broken"), "save it again as UTF-8".into()),
            Self::Delimiter(byte) => (
                format!("`{}` cannot separate fields", byte.escape_ascii()),
                "use a comma, a semicolon, a tab or `|`".into(),
            ),
            Self::TooManyColumns(columns) => {
                let most = super::COLUMNS_MAX;
                (format!("`{file}` has {columns} columns, and {most} is the most"), "leave some out".into())
            }
            Self::Ragged { at, fields, header, delimiter, comment } => (
                format!("`{file}` line {} has {}, the header has {header}", at.line, count(*fields)),
                match comment {
                    Some(Comment::First) => {
                        "line 1 begins with `#`: if it is a comment, remove it, so that the first line names \
                         the columns"
                            .into()
                    }
                    Some(Comment::This) => "a CSV has no comments: remove the line".into(),
                    None => ragged(*fields, *header, *delimiter),
                },
            ),
            Self::Unclosed { at } => (
                format!("`{file}` line {} opens a quote that is never closed", at.line),
                "close it, or write `\"\"` for a quote in a field".into(),
            ),
            Self::NoColumn { name, near } => words::missing(file, "column", name, near.as_deref()),
            Self::NotOfKind { at, column, kind, text: _ } => (
                format!("`{file}` line {}, column `{column}`: expected {}", at.line, kind_of(*kind)),
                "correct the value".into(),
            ),
            Self::NoValue { at, column } => (
                format!("`{file}` line {}, column `{column}`: expected a value, but there is none", at.line),
                "fill it in, or let it be missing: `null = \"\"` for this column in the manifest".into(),
            ),
            Self::NoKey { at, column } => (
                format!("`{file}` line {} has no `{column}`, which is a key", at.line),
                "fill it in, or choose another key".into(),
            ),
            Self::KeyTwice { lines: [first, second], columns, texts: _ } => (
                format!(
                    "`{file}` lines {first} and {second} have the same `{}`, which is the key",
                    columns.join("`, `")
                ),
                "change one, or choose another key".into(),
            ),
        }
    }
}

impl Format {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Zip => ("an Excel workbook or another ZIP archive", "save the sheet as CSV, or unpack it"),
            Self::Excel => ("an old Excel workbook", "save the sheet as CSV"),
            Self::Sqlite => ("a SQLite database", "serve it as one, or export a table as CSV"),
            Self::Gzip => ("a gzip archive", "unpack it first"),
            Self::Pdf => ("a PDF", "export the table as CSV"),
            Self::Parquet => ("a Parquet file", "export it as CSV"),
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
