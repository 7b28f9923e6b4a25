//! Tables that are held in memory, whatever kind of file they came from: JSON, JSON Lines, workbooks.
//!
//! A [`Format`] turns a file's bytes into tables and one change of a row into a file's bytes. Everything else is
//! the same for all of them and lives here: noticing that the file changed, reading it again, keys, filters,
//! order, pages, search; and writing, where every change is read back before it is kept.

mod column;
mod error;
mod index;
mod new_value;
mod profile;
mod read;
mod snapshot;
mod table;
mod view;
mod writer;

use std::path::Path;
use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use contract::source::{
    Reader, SkippedTable, Source, SourceError, SourceFacts, TableShape, WriteError, Writer,
};

use crate::location::TextLocation;
use crate::snapshot_reader::{SnapshotReader, bind_shape};
use crate::watch::WatchedFile;
use error::TableError;
use snapshot::{FileSnapshot, FormatLoader};
use writer::TableWriter;

pub(crate) use table::{StoredValue, Table};

/// A kind of file.
pub(crate) trait FileFormat: Send + Sync + 'static {
    /// As people call such a file, after `a` or `an`: `JSON file`.
    fn name(&self) -> &'static str;

    /// Reads a whole file. Bounded in size, cells and time, whatever the bytes are.
    fn load(&self, bytes: &[u8]) -> Result<ParsedFile, ParseError>;

    /// The file as it is with one row changed. `table` and `row` are places in what `load` made of these bytes, and
    /// a refusal names [`Put::column`].
    fn rewrite(&self, bytes: &[u8], table: usize, edit: &RowEdit<'_>) -> Result<Vec<u8>, WriteError>;

    /// Where a cell stands in these bytes, for whoever mends it; a row, where it has no such cell.
    fn locate(
        &self,
        _bytes: &[u8],
        _table: usize,
        _row: usize,
        _column: Option<&str>,
    ) -> Option<TextLocation> {
        None
    }
}

/// One change of one row.
pub(crate) enum RowEdit<'a> {
    Append { updates: &'a [CellUpdate<'a>] },
    Set { row: usize, updates: &'a [CellUpdate<'a>] },
    Remove { row: usize },
}

/// A cell to be written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CellUpdate<'a> {
    /// The place in the table's header; behind all of it if the table is loose and has no such column yet.
    pub(crate) column: usize,
    pub(crate) name: &'a str,
    /// Of the sort that the column's values are, so that what is written reads back.
    pub(crate) value: StoredValue<'a>,
}

#[derive(Default)]
pub(crate) struct ParsedFile {
    pub(crate) tables: Vec<Table>,
    pub(crate) notes: Vec<String>,
    pub(crate) skipped_tables: Vec<SkippedTable>,
}

/// Why a file cannot be read: half a sentence for callers, and for its owner where and how to mend it.
#[derive(Debug, Clone)]
pub(crate) struct ParseError {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) location: Option<TextLocation>,
}

/// A file of tables, opened by what knows its format.
pub struct TableFile(Arc<WatchedFile<FormatLoader>>);

impl TableFile {
    /// Nothing is read yet.
    pub(crate) fn open(path: &Path, format: Box<dyn FileFormat>, look_every_ms: u64) -> Self {
        Self(Arc::new(WatchedFile::new(path, FormatLoader::new(format), look_every_ms)))
    }

    /// Waits until a file that is being read again in the background has been read.
    #[doc(hidden)]
    pub fn wait_for_reload(&self) {
        self.0.wait_for_reload();
    }

    /// Where the trouble is, in the file as it is now.
    fn locate_error(&self, trouble: &TableError) -> Option<TextLocation> {
        let (place, column) = trouble.row_location()?;
        self.0.loader.format.locate(&self.0.read_bytes()?, place.table_index, place.row as usize, column)
    }
}

impl Source for TableFile {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let state = self.0.load_current();
        let mut facts = state.map_err(|trouble| self.0.source_error(&trouble))?.facts();
        let read_only = self.0.atomic_file.read_only_reason();
        for table in &mut facts.tables {
            table.read_only_reason = table.read_only_reason.take().or_else(|| read_only.clone());
        }
        Ok(facts)
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        let live = SnapshotReader::open(&self.0, shape)?;
        Ok(live)
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        Ok(Arc::new(TableWriter::new(self.0.clone(), shape)?))
    }

    fn diagnose(&self, shape: Option<&TableShape>) -> Option<Diagnostic> {
        let state = self.0.load_current();
        let trouble = match shape {
            Some(shape) => bind_shape(&self.0, shape, state).err()?,
            None => state.and_then(FileSnapshot::require_columns).err()?,
        };
        let spot = self.locate_error(&trouble);
        Some(trouble.to_diagnostic(
            &self.0.file_name,
            &self.0.path,
            self.0.loader.format.name(),
            spot.as_ref(),
        ))
    }
}

#[cfg(test)]
mod tests;
