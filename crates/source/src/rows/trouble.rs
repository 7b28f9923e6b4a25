//! What can be wrong with a file of tables, and how a person is told: the file, the place, the way out.
//!
//! What callers read names the file and never its folder, and shows no value of a row; the log has both.

use std::path::Path;

use contract::Kind;
use contract::diagnostic::Diagnostic;
use contract::source::SourceFault;

use super::Unreadable;
use crate::spot::Spot;
use crate::watch::OutOfReach;

/// Why a file has no tables, or not the tables it had.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    File(OutOfReach),
    Unreadable(Unreadable),
    /// More than there is room for.
    Full,
    /// No row that names a column.
    Bare,
    NoTable {
        name: String,
        near: Option<String>,
    },
    NoColumn {
        name: String,
        near: Option<String>,
    },
    NotOfKind {
        at: Place,
        column: String,
        kind: Kind,
        text: String,
    },
    NoValue {
        at: Place,
        column: String,
    },
    NoKey {
        at: Place,
        column: String,
    },
    KeyTwice {
        at: [Place; 2],
        columns: Vec<String>,
        texts: Vec<String>,
    },
}

/// Where a row stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) table: usize,
    pub(super) row: u32,
    pub(super) unit: &'static str,
    pub(super) number: u32,
}

impl From<OutOfReach> for Trouble {
    fn from(out_of_reach: OutOfReach) -> Self {
        Self::File(out_of_reach)
    }
}

impl Trouble {
    pub(super) fn fault(&self, file: &str, path: &Path, what: &str) -> SourceFault {
        let (message, way_out) = self.words(file, what);
        let (told, log) = (format!("{message}; {way_out}"), self.log(file, path, what));
        let is_passing = matches!(self, Self::File(out_of_reach) if out_of_reach.is_passing());
        if is_passing { SourceFault::Unavailable { told, log } } else { SourceFault::Changed { told, log } }
    }

    /// The row it is about, and the column.
    pub(super) fn place(&self) -> Option<(Place, Option<&str>)> {
        match self {
            Self::NotOfKind { at, column, .. }
            | Self::NoValue { at, column }
            | Self::NoKey { at, column } => Some((*at, Some(column))),
            Self::KeyTwice { at: [_, second], columns, .. } => {
                Some((*second, columns.first().map(String::as_str)))
            }
            Self::File(_)
            | Self::Unreadable(_)
            | Self::Full
            | Self::Bare
            | Self::NoTable { .. }
            | Self::NoColumn { .. } => None,
        }
    }

    /// For whoever starts the server: with the line itself, where there is one.
    pub(super) fn shown(&self, file: &str, path: &Path, what: &str, spot: Option<&Spot>) -> Diagnostic {
        let (message, way_out) = self.words(file, what);
        let own = match self {
            Self::Unreadable(unreadable) => unreadable.at.as_ref(),
            _ => None,
        };
        match own.or(spot) {
            Some(spot) => Diagnostic::error(message).at(&spot.at(&path.display().to_string())).help(way_out),
            None => Diagnostic::error(format!("{message}; {way_out}")),
        }
    }

    /// For whoever runs the server: the path, and the value where there is one.
    fn log(&self, file: &str, path: &Path, what: &str) -> String {
        let path = path.display();
        let (message, _) = self.words(file, what);
        match self {
            Self::File(OutOfReach::Unreadable(error)) => format!("{path}: {error}"),
            Self::NotOfKind { text, .. } => format!("{path}: {message}: `{}`", shortened(text)),
            Self::KeyTwice { texts, .. } => {
                format!("{path}: {message}: `{}`", shortened(&texts.join("`, `")))
            }
            Self::Unreadable(Unreadable { at: Some(at), .. }) => {
                format!("{path}:{}:{}: {message}", at.line, at.column)
            }
            Self::File(_)
            | Self::Unreadable(_)
            | Self::Full
            | Self::Bare
            | Self::NoTable { .. }
            | Self::NoColumn { .. }
            | Self::NoValue { .. }
            | Self::NoKey { .. } => format!("{path}: {message}"),
        }
    }

    /// What is wrong, and the way out.
    fn words(&self, file: &str, what: &str) -> (String, String) {
        let at = |place: &Place| format!("`{file}` {} {}", place.unit, place.number);
        match self {
            Self::File(out_of_reach) => out_of_reach.words(file, what),
            Self::Unreadable(Unreadable { why, help, .. }) => (
                format!("`{file}` {why}"),
                help.clone().unwrap_or_else(|| format!("give the path of a {what}")),
            ),
            Self::Full => (
                format!("`{file}` has more rows or cells than are kept in memory"),
                "put the data into a SQLite database".into(),
            ),
            Self::Bare => {
                (format!("`{file}` has no records, so nobody knows their fields"), "add one".into())
            }
            Self::NoTable { name, near } => match near {
                Some(near) => (
                    format!("`{file}` has no table `{name}`, but `{near}`"),
                    "name it as it was, or make the contract anew".into(),
                ),
                None => (
                    format!("`{file}` has no table `{name}`"),
                    "put it back, or make the contract anew".into(),
                ),
            },
            Self::NoColumn { name, near } => match near {
                Some(near) => (
                    format!("`{file}` has no column `{name}`, but `{near}`"),
                    "name it as it was, or make the contract anew".into(),
                ),
                None => (
                    format!("`{file}` has no column `{name}`"),
                    "put it back, or make the contract anew".into(),
                ),
            },
            Self::NotOfKind { at: place, column, kind, text: _ } => (
                format!("{}, column `{column}`: expected {}", at(place), kind_of(*kind)),
                "correct the value".into(),
            ),
            Self::NoValue { at: place, column } => (
                format!("{}, column `{column}`: expected a value, but there is none", at(place)),
                "fill it in, or make the contract anew".into(),
            ),
            Self::NoKey { at: place, column } => (
                format!("{} has no `{column}`, which is a key", at(place)),
                "fill it in, or choose another key".into(),
            ),
            Self::KeyTwice { at: [first, second], columns, texts: _ } => (
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
