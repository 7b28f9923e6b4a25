//! Finds a contract's columns in a header: by name and, where several columns share a name, by which of them it is.

use contract::nearest;
use contract::source::ColumnShape;

/// Whether every row needs a value in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    Key,
    Value,
    Optional,
}

impl Requirement {
    /// For the keys of imports, which outlive the process.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Key => 0,
            Self::Value => 1,
            Self::Optional => 2,
        }
    }

    pub(crate) fn of(is_key: bool, nullable: bool) -> Self {
        match (is_key, nullable) {
            (true, _) => Self::Key,
            (false, true) => Self::Optional,
            (false, false) => Self::Value,
        }
    }
}

/// How many columns of the same name come before this one.
pub(crate) fn occurrence_of(column: &ColumnShape, header: &[String]) -> usize {
    let is_there = header.get(column.source_index).is_some_and(|name| *name == column.name);
    let before = if is_there { &header[..column.source_index] } else { &[] };
    before.iter().filter(|name| **name == column.name).count()
}

/// The position of a column in the header.
pub(crate) fn find_column(name: &str, before: usize, header: &[String]) -> Option<usize> {
    (0..header.len()).filter(|position| header[*position] == name).nth(before)
}

/// Suggests the new name of a missing column: the most similar name that is not one of the contract's own columns.
pub(crate) fn similar_column(
    name: &str,
    header: &[String],
    is_ours: impl Fn(&str) -> bool,
) -> Option<String> {
    let others = header.iter().map(String::as_str).filter(|name| !is_ours(name));
    nearest(name, others).map(str::to_owned)
}
