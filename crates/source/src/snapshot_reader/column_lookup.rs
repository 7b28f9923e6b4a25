//! Columns as a contract knows them: by their names, and by which of that name they are where their place still
//! agrees.

use contract::nearest;
use contract::source::ColumnShape;

/// What every row must have in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    Key,
    Value,
    Optional,
}

impl Requirement {
    pub(crate) fn of(is_key: bool, nullable: bool) -> Self {
        match (is_key, nullable) {
            (true, _) => Self::Key,
            (false, true) => Self::Optional,
            (false, false) => Self::Value,
        }
    }
}

/// How many columns of its name come before it.
pub(crate) fn occurrence_of(column: &ColumnShape, header: &[String]) -> usize {
    let is_there = header.get(column.source_index).is_some_and(|name| *name == column.name);
    let before = if is_there { &header[..column.source_index] } else { &[] };
    before.iter().filter(|name| **name == column.name).count()
}

/// Where a column stands now.
pub(crate) fn find_column(name: &str, before: usize, header: &[String]) -> Option<usize> {
    (0..header.len()).filter(|place| header[*place] == name).nth(before)
}

/// What the column may be called now: what looks like its name, and is no other column that the contract knows.
pub(crate) fn similar_column(
    name: &str,
    header: &[String],
    is_ours: impl Fn(&str) -> bool,
) -> Option<String> {
    let others = header.iter().map(String::as_str).filter(|name| !is_ours(name));
    nearest(name, others).map(str::to_owned)
}
