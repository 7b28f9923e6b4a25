//! Tables held in memory, whatever kind of file they come from: JSON, JSON Lines, workbooks.
//!
//! A [`FileFormat`] parses a file's bytes into tables, and rewrites the bytes for one changed row. What is the same
//! for all formats is here: following the file, keys, filters, sorting, paging, search; and writing, where every
//! change is read back before it is kept.

mod column;
mod error;
mod index;
mod large;
mod new_value;
mod options;
mod paths;
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
    Reader, SkippedTable, Source, SourceError, SourceFacts, TableShape, WriteError, WriteSupport, Writer,
};

use crate::backups::BackupPolicy;
use crate::location::TextLocation;
use crate::memory;
use crate::snapshot_reader::{SnapshotReader, bind_shape};
use crate::watch::WatchedFile;
use error::TableError;
pub use snapshot::FILE_BYTES_MAX;
use snapshot::{FileSnapshot, FormatLoader};
use writer::TableWriter;

pub use large::LargeTableFile;
pub(crate) use large::{RowStream, RowVisitor, StreamError};
pub use options::TablesOptions;
pub(crate) use table::{StoredValue, Table};

/// A file format.
pub(crate) trait FileFormat: Send + Sync + 'static {
    /// The name of such a file, for messages: `JSON file`.
    fn name(&self) -> &'static str;

    /// Parses a whole file. Must bound memory and time, whatever the bytes are.
    fn load(&self, bytes: &[u8]) -> Result<ParsedFile, ParseError>;

    /// Returns the file's bytes with one row changed. `table` and the row are positions in what `load` made of these
    /// bytes. A rejection names [`CellUpdate::column`].
    fn rewrite(&self, bytes: &[u8], table: usize, edit: &RowEdit<'_>) -> Result<Vec<u8>, WriteError>;

    /// Where a cell is in these bytes; the row, if it has no such cell.
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

/// A change of one row.
pub(crate) enum RowEdit<'a> {
    Append { updates: &'a [CellUpdate<'a>] },
    Set { row: usize, updates: &'a [CellUpdate<'a>] },
    Remove { row: usize },
}

/// A new value for a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CellUpdate<'a> {
    /// The position in the table's header; beyond its end if a schemaless table has no such column yet.
    pub(crate) column: usize,
    pub(crate) name: &'a str,
    /// Of the storage class that the column has, so that it reads back as it was.
    pub(crate) value: StoredValue<'a>,
}

#[derive(Default)]
pub(crate) struct ParsedFile {
    pub(crate) tables: Vec<Table>,
    pub(crate) notes: Vec<String>,
    pub(crate) skipped_tables: Vec<SkippedTable>,
}

/// Why a file cannot be read: the end of a sentence that begins with the file's name, how to fix it, and where.
#[derive(Debug, Clone)]
pub(crate) struct ParseError {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) location: Option<TextLocation>,
}

/// A file of tables in some [`FileFormat`].
pub struct TableFile(Arc<WatchedFile<FormatLoader>>);

impl TableFile {
    /// Does not read the file yet.
    pub(crate) fn open(
        path: &Path,
        format: Box<dyn FileFormat>,
        options: TablesOptions,
        poll_interval_ms: u64,
        backups: BackupPolicy,
    ) -> Self {
        let file = WatchedFile::new(path, FormatLoader::new(format, options), poll_interval_ms);
        Self(Arc::new(file.with_backups(backups)))
    }

    /// A file that exists only in memory.
    pub(crate) fn in_memory(
        name: &str,
        format: Box<dyn FileFormat>,
        options: TablesOptions,
        bytes: Vec<u8>,
    ) -> Result<Self, SourceError> {
        memory::watched(name, FormatLoader::new(format, options), bytes).map(Self)
    }

    /// The facts of the file as it was read last.
    pub(crate) fn snapshot_facts(&self) -> Result<SourceFacts, SourceError> {
        let snapshot = self.0.load_current().map_err(|error| self.0.source_error(&error))?;
        Ok(snapshot.facts())
    }

    /// A reader whose calls fail where they meet a value that does not fit.
    pub(crate) fn snapshot_reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        memory::reader(&self.0, shape)
    }

    /// Waits until a reload in the background has finished.
    #[doc(hidden)]
    pub fn wait_for_reload(&self) {
        self.0.wait_for_reload();
    }

    /// Where the error is, in the file's current bytes.
    fn locate_error(&self, error: &TableError) -> Option<TextLocation> {
        let (position, column) = error.row_location()?;
        self.0.loader.format.locate(
            &self.0.read_bytes()?,
            position.table_index,
            position.row as usize,
            column,
        )
    }
}

impl Source for TableFile {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let snapshot = self.0.load_current();
        let mut facts = snapshot.map_err(|error| self.0.source_error(&error))?.facts();
        let read_only = self.0.atomic_file.read_only_reason();
        for table in &mut facts.tables {
            if let (None, Some(reason)) = (table.read_only_reason(), &read_only) {
                table.write_support = WriteSupport::read_only(reason);
            }
        }
        Ok(facts)
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        let reader = SnapshotReader::open(&self.0, shape)?;
        Ok(reader)
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        Ok(Arc::new(TableWriter::new(self.0.clone(), shape)?))
    }

    fn diagnose(&self, shape: Option<&TableShape>) -> Option<Diagnostic> {
        let snapshot = self.0.load_current();
        let error = match shape {
            Some(shape) => bind_shape(&self.0, shape, snapshot).err()?,
            None => snapshot.and_then(FileSnapshot::require_columns).err()?,
        };
        let location = self.locate_error(&error);
        Some(error.to_diagnostic(
            &self.0.file_name,
            &self.0.path,
            self.0.loader.format.name(),
            location.as_ref(),
        ))
    }
}

#[cfg(test)]
mod tests;
