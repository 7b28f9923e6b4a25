//! Tables that are held in memory, whatever kind of file they came from: JSON, JSON Lines, workbooks.
//!
//! A [`Format`] turns a file's bytes into tables and one change of a row into a file's bytes. Everything else is
//! the same for all of them and lives here: noticing that the file changed, reading it again, keys, filters,
//! order, pages, search; and writing, where every change is read back before it is kept.

mod seen;
mod table;

use contract::source::{LeftOut, WriteFault};

use crate::spot::Spot;

pub(crate) use table::{Held, Table};

/// A kind of file.
pub(crate) trait Format: Send + Sync + 'static {
    /// As people call such a file, after `a` or `an`: `JSON file`.
    fn name(&self) -> &'static str;

    /// Reads a whole file. Bounded in size, cells and time, whatever the bytes are.
    fn load(&self, bytes: &[u8]) -> Result<Loaded, Unreadable>;

    /// The file as it is with one row changed. `table` and `row` are places in what `load` made of these bytes.
    fn rewrite(&self, bytes: &[u8], table: usize, edit: &Edit<'_>) -> Result<Vec<u8>, WriteFault>;

    /// Where a cell stands in these bytes, for whoever mends it; a row, where it has no such cell.
    fn spot(&self, _bytes: &[u8], _table: usize, _row: usize, _column: Option<&str>) -> Option<Spot> {
        None
    }
}

/// One change of one row.
pub(crate) enum Edit<'a> {
    Append { cells: &'a [Put<'a>] },
    Set { row: usize, cells: &'a [Put<'a>] },
    Remove { row: usize },
}

/// A cell to be written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Put<'a> {
    /// The place in the table's header; as long as that if the table is loose and has no such column yet.
    pub(crate) column: usize,
    pub(crate) name: &'a str,
    /// Of the sort that the column's values are, so that what is written reads back.
    pub(crate) value: Held<'a>,
}

#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) tables: Vec<Table>,
    pub(crate) notes: Vec<String>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// Why a file cannot be read: half a sentence for callers, and for its owner where and how to mend it.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    pub(crate) why: String,
    pub(crate) help: Option<String>,
    pub(crate) at: Option<Spot>,
}
