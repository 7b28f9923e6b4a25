//! Tables that are held in memory, whatever kind of file they came from: JSON, JSON Lines, workbooks.
//!
//! A [`Format`] turns a file's bytes into tables and one change of a row into a file's bytes. Everything else is
//! the same for all of them and lives here: noticing that the file changed, reading it again, keys, filters,
//! order, pages, search; and writing, where every change is read back before it is kept.

use contract::Cell;
use contract::source::{LeftOut, WriteFault};

/// A kind of file.
pub(crate) trait Format: Send + Sync + 'static {
    /// Reads a whole file. Bounded in size, cells and time, whatever the bytes are.
    fn load(&self, bytes: &[u8]) -> Result<Loaded, Unreadable>;

    /// The file as it is with one row changed. `table` and `row` are places in what `load` made of these bytes.
    fn rewrite(&self, bytes: &[u8], table: usize, edit: &Edit<'_>) -> Result<Vec<u8>, WriteFault>;
}

/// One change of one row, with columns by their places in the table's header.
pub(crate) enum Edit<'a> {
    Append { cells: &'a [(usize, Cell<'a>)] },
    Set { row: usize, cells: &'a [(usize, Cell<'a>)] },
    Remove { row: usize },
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
}

/// A table that was filled row by row.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) header: Vec<String>,
}

impl Table {
    pub(crate) fn new(name: impl Into<String>, header: Vec<String>) -> Self {
        Self { name: name.into(), header }
    }

    /// Takes a row. It has a cell for each column.
    pub(crate) fn push(&mut self, _row: &[Cell<'_>]) {}
}
