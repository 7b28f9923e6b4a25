//! Tables that are held in memory, whatever kind of file they came from: JSON, JSON Lines, workbooks.
//!
//! A [`Format`] turns a file's bytes into tables and one change of a row into a file's bytes. Everything else is
//! the same for all of them and lives here: noticing that the file changed, reading it again, keys, filters,
//! order, pages, search; and writing, where every change is read back before it is kept.

mod column;
mod fit;
mod index;
mod pen;
mod put;
mod read;
mod seen;
mod state;
mod table;
mod trouble;

use std::path::Path;
use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use contract::source::{Facts, LeftOut, Reader, Shape, Source, SourceFault, WriteFault, Writer};

use crate::live::{Live, fitted};
use crate::spot::Spot;
use crate::watch::Watch;
use pen::Pen;
use state::{Kept, State};
use trouble::Trouble;

pub(crate) use table::{Held, Table};

/// A kind of file.
pub(crate) trait Format: Send + Sync + 'static {
    /// As people call such a file, after `a` or `an`: `JSON file`.
    fn name(&self) -> &'static str;

    /// Reads a whole file. Bounded in size, cells and time, whatever the bytes are.
    fn load(&self, bytes: &[u8]) -> Result<Loaded, Unreadable>;

    /// The file as it is with one row changed. `table` and `row` are places in what `load` made of these bytes, and
    /// a refusal names [`Put::column`].
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
    /// The place in the table's header; behind all of it if the table is loose and has no such column yet.
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

/// A file of tables, opened by what knows its format.
pub struct Rows(Arc<Watch<Kept>>);

impl Rows {
    /// Nothing is read yet.
    pub(crate) fn open(path: &Path, format: Box<dyn Format>, look_every_ms: u64) -> Self {
        Self(Arc::new(Watch::new(path, Kept::new(format), look_every_ms)))
    }

    /// Waits until a file that is being read again in the background has been read.
    #[doc(hidden)]
    pub fn wait(&self) {
        self.0.wait();
    }

    /// Where the trouble is, in the file as it is now.
    fn spot(&self, trouble: &Trouble) -> Option<Spot> {
        let (place, column) = trouble.place()?;
        self.0.content.format.spot(&self.0.bytes()?, place.table, place.row as usize, column)
    }
}

impl Source for Rows {
    fn facts(&self) -> Result<Facts, SourceFault> {
        let state = self.0.fresh();
        let mut facts = state.map_err(|trouble| self.0.fault(&trouble))?.facts();
        let read_only = self.0.keeper.read_only();
        for table in &mut facts.tables {
            table.read_only = table.read_only.take().or_else(|| read_only.clone());
        }
        Ok(facts)
    }

    fn reader(&self, shape: &Shape) -> Result<Arc<dyn Reader>, SourceFault> {
        let live = Live::open(&self.0, shape)?;
        Ok(live)
    }

    fn writer(&self, shape: &Shape) -> Result<Arc<dyn Writer>, SourceFault> {
        Ok(Arc::new(Pen::new(self.0.clone(), shape)?))
    }

    fn explain(&self, shape: Option<&Shape>) -> Option<Diagnostic> {
        let state = self.0.fresh();
        let trouble = match shape {
            Some(shape) => fitted(&self.0, shape, state).err()?,
            None => state.and_then(State::with_columns).err()?,
        };
        let spot = self.spot(&trouble);
        Some(trouble.shown(&self.0.file, &self.0.path, self.0.content.format.name(), spot.as_ref()))
    }
}

#[cfg(test)]
mod tests;
