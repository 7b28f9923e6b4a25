//! What can be wrong with a file of tables, and how a person is told: the file, the place, the way out.
//!
//! The log has the path and the value, too.

use std::path::Path;

use contract::Kind;
use contract::diagnostic::Diagnostic;
use contract::source::SourceFault;

use super::Unreadable;
use crate::spot::Spot;
use crate::watch::OutOfReach;
use crate::words::{self, Words, kind_of, shortened};

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
        let out_of_reach = if let Self::File(file) = self { Some(file) } else { None };
        words::fault(self.words(file, what), self.log(file, path, what), out_of_reach)
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

    pub(super) fn shown(&self, file: &str, path: &Path, what: &str, spot: Option<&Spot>) -> Diagnostic {
        let own = match self {
            Self::Unreadable(unreadable) => unreadable.at.as_ref(),
            _ => None,
        };
        words::shown(self.words(file, what), own.or(spot), path)
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

    fn words(&self, file: &str, what: &str) -> Words {
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
            Self::Bare => (
                format!("`{file}` has no records, so nobody knows their fields"),
                "add one, or declare the fields with `as` in a manifest, the key among them".into(),
            ),
            Self::NoTable { name, near } => words::missing(file, "table", name, near.as_deref()),
            Self::NoColumn { name, near } => words::missing(file, "column", name, near.as_deref()),
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
