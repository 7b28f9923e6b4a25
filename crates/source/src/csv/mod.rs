//! A CSV or TSV file as one table.
//!
//! The file is kept as it is, with where its rows begin; a field is taken apart when it is read. Keys are
//! found through an index of row numbers, orders are made when first asked for. When the file changes it is
//! read again: what still has the shape that was compiled is served, what has not is told with its line.
//!
//! A row is written by changing as few bytes as there can be, and only if what was changed reads back as it was meant,
//! and everything else as it was: see [`pen`].
//!
//! Deliberately absent: guessing what a ragged row meant.

mod decode;
mod encode;
mod error;
mod index;
mod load;
mod read;
mod render;
mod sniff;
mod splice;
mod splitter;
mod table;
mod view;
mod writer;

use std::path::Path;
use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use contract::manifest::FormulaPolicy;
use contract::source::{
    ColumnFacts, Reader, Source, SourceError, SourceFacts, TableFacts, TableShape, Writer,
};

use crate::location;
use crate::snapshot_reader::{SnapshotReader, bind_shape};
use crate::watch::WatchedFile;
use load::{CsvLoader, CsvSnapshot};
use writer::CsvWriter;

/// Places in a file are kept in 32 bits.
const FILE_BYTES_MAX: u64 = u32::MAX as u64 - 1;
const COLUMNS_MAX: usize = 1024;

/// How a file is read, where it does not say so itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// What separates fields; found out if not given.
    pub delimiter: Option<u8>,
    /// Text that means "no value" in every column.
    pub null_text: Option<String>,
    /// How long to trust that the file is what it was. 0: not beyond one call.
    pub poll_interval_ms: u64,
    /// Whether a text that a spreadsheet would take for a formula may be written.
    pub formulas: FormulaPolicy,
}

impl Default for Options {
    fn default() -> Self {
        Self { delimiter: None, null_text: None, poll_interval_ms: 20, formulas: FormulaPolicy::default() }
    }
}

pub struct Csv(Arc<WatchedFile<CsvLoader>>);

impl Csv {
    /// Nothing is read yet.
    pub fn open(path: &Path, options: Options) -> Self {
        let look_every_ms = options.poll_interval_ms;
        Self(Arc::new(WatchedFile::new(path, CsvLoader::new(path, options), look_every_ms)))
    }

    /// Waits until a file that is being read again in the background has been read.
    #[doc(hidden)]
    pub fn wait_for_reload(&self) {
        self.0.wait_for_reload();
    }
}

impl Source for Csv {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let loaded = self.0.load_current().map_err(|trouble| self.0.source_error(&trouble))?;
        let name = self.0.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(facts(name, &loaded, self.0.atomic_file.read_only_reason()))
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        let live = SnapshotReader::open(&self.0, shape)?;
        Ok(live)
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        let fitted = bind_shape(&self.0, shape, self.0.load_current());
        let (plan, _) = fitted.map_err(|trouble| self.0.source_error(&trouble))?;
        Ok(Arc::new(CsvWriter::new(self.0.clone(), plan)))
    }

    fn diagnose(&self, shape: Option<&TableShape>) -> Option<Diagnostic> {
        let trouble = match shape {
            Some(shape) => bind_shape(&self.0, shape, self.0.load_current()).err()?,
            None => self.0.load_current().err()?,
        };
        Some(trouble.to_diagnostic(&self.0.file_name, &self.0.path))
    }
}

fn facts(name: String, loaded: &CsvSnapshot, read_only: Option<String>) -> SourceFacts {
    let table = &loaded.table;
    let columns = table.header.iter().zip(&table.profiles).map(|(name, seen)| ColumnFacts {
        nullable: seen.has_null || (seen.has_empty && seen.empty_is_null()),
        distinct_values: seen.distinct_values.clone(),
        near_miss: seen.near_miss.clone(),
        // An empty text is one of its values.
        has_default: seen.has_empty && !seen.empty_is_null(),
        ..ColumnFacts::new(name, seen.data_type)
    });
    let table = TableFacts {
        key: loaded.key_columns(),
        row_count: Some(u64::from(table.len())),
        read_only_reason: read_only,
        ..TableFacts::new(name, columns.collect())
    };
    let (notes, delimiter) = (loaded.table.notes.clone(), Some(loaded.table.splitter.delimiter));
    SourceFacts { tables: vec![table], notes, delimiter, ..SourceFacts::default() }
}
