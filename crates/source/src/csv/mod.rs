//! A CSV or TSV file as one table.
//!
//! The text stays in memory as it is, with the start of each row; fields are split when they are read. Keys are found
//! through an index of row numbers; sort orders are built on first use. When the file changes, it is read again: if
//! it still fits the compiled shape it is served, otherwise reads fail with an error that names the line.
//!
//! A write changes as few bytes as possible. It is kept only if the changed row reads back as intended and all other
//! rows as before: see [`writer`].
//!
//! Deliberately absent: guessing what a ragged row meant.

mod complete;
mod decode;
mod encode;
mod error;
mod formats;
mod formula_guard;
mod guess;
mod header;
mod index;
mod large;
mod load;
mod ragged;
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
    ColumnFacts, Reader, Source, SourceError, SourceFacts, TableFacts, TableOptions, TableShape,
    WriteSupport, Writer,
};
use encoding_rs::Encoding;

use crate::backups::BackupPolicy;
use crate::location;
use crate::memory;
use crate::snapshot_reader::{SnapshotReader, bind_shape};
use crate::watch::WatchedFile;
pub use large::LargeCsv;
use load::CsvLoader;
use table::CsvTable;
use writer::CsvWriter;

/// A larger file cannot be held in memory: positions in it have 32 bits.
pub const FILE_BYTES_MAX: u64 = u32::MAX as u64 - 1;
/// The code of the error that `short_rows` in the manifest removes.
pub const SHORT_ROWS_CODE: &str = "short_rows";
const COLUMNS_MAX: usize = 1024;

/// How to read a file, where the file itself does not tell.
#[derive(Debug, Clone)]
pub struct Options {
    /// What separates fields; detected if not given.
    pub delimiter: Option<u8>,
    /// Detected if not given.
    pub encoding: Option<&'static Encoding>,
    /// How to read the table, where the file itself does not tell.
    pub table: TableOptions,
    /// How long a snapshot is used before the file is checked for changes. 0: check at every call.
    pub poll_interval_ms: u64,
    /// Whether to write a text that a spreadsheet would take for a formula.
    pub formulas: FormulaPolicy,
    pub backups: BackupPolicy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            delimiter: None,
            encoding: None,
            table: TableOptions::default(),
            poll_interval_ms: 20,
            formulas: FormulaPolicy::default(),
            backups: BackupPolicy::default(),
        }
    }
}

pub struct Csv(Arc<WatchedFile<CsvLoader>>);

impl Csv {
    /// Does not read the file yet.
    pub fn open(path: &Path, options: Options) -> Self {
        let (poll_interval_ms, backups) = (options.poll_interval_ms, options.backups);
        let file = WatchedFile::new(path, CsvLoader::new(path, options), poll_interval_ms);
        Self(Arc::new(file.with_backups(backups)))
    }

    /// A file that exists only in memory.
    pub(crate) fn in_memory(name: &str, options: Options, bytes: Vec<u8>) -> Result<Self, SourceError> {
        memory::watched(name, CsvLoader::new(Path::new(name), options), bytes).map(Self)
    }

    /// The facts of the file as it was read last.
    pub(crate) fn snapshot_facts(&self) -> Result<SourceFacts, SourceError> {
        let snapshot = self.0.load_current().map_err(|error| self.0.source_error(&error))?;
        let rows = u64::from(snapshot.table.len());
        Ok(facts(self.0.file_name.clone(), &snapshot.table, &snapshot.key_columns(), rows, None))
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
}

impl Source for Csv {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let snapshot = self.0.load_current().map_err(|error| self.0.source_error(&error))?;
        let name = self.0.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let rows = u64::from(snapshot.table.len());
        let read_only = self.0.atomic_file.read_only_reason();
        Ok(facts(name, &snapshot.table, &snapshot.key_columns(), rows, read_only))
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        let reader = SnapshotReader::open(&self.0, shape)?;
        Ok(reader)
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        let bound = bind_shape(&self.0, shape, self.0.load_current());
        let (mapping, _) = bound.map_err(|error| self.0.source_error(&error))?;
        Ok(Arc::new(CsvWriter::new(self.0.clone(), mapping)))
    }

    fn diagnose(&self, shape: Option<&TableShape>) -> Option<Diagnostic> {
        let error = match shape {
            Some(shape) => bind_shape(&self.0, shape, self.0.load_current()).err()?,
            None => self.0.load_current().err()?,
        };
        Some(error.to_diagnostic(&self.0.file_name, &self.0.path))
    }
}

/// `key` are positions in the file.
fn facts(name: String, table: &CsvTable, key: &[usize], rows: u64, read_only: Option<String>) -> SourceFacts {
    let shown = shown_columns(table);
    let columns = shown.iter().map(|at| (&table.header[*at], &table.profiles[*at]));
    let columns = columns.map(|(name, profile)| ColumnFacts {
        format: profile.format.clone(),
        ambiguous_format: profile.ambiguous_format.clone(),
        nullable: profile.has_null || (profile.has_empty && profile.empty_is_null()),
        distinct_values: profile.distinct_values.clone(),
        near_miss: profile.near_miss.clone(),
        // A new row may leave it out and gets an empty text.
        has_default: profile.has_empty && !profile.empty_is_null(),
        ..ColumnFacts::new(name, profile.data_type)
    });
    let key = key.iter().filter_map(|field| shown.iter().position(|at| at == field)).collect();
    let (notes, delimiter) = (table.notes.clone(), Some(table.splitter.delimiter));
    let table = TableFacts {
        key,
        row_count: Some(rows),
        write_support: WriteSupport::transactional_unless(
            read_only.or_else(|| table.read_only_reason.clone()),
        ),
        header: Some(table.header_rows),
        likely_header_row: table.likely_header_row,
        layout_notes: table.layout_notes.clone(),
        ..TableFacts::new(name, columns.collect())
    };
    SourceFacts { tables: vec![table], notes, delimiter, reads_texts: true, ..SourceFacts::default() }
}

/// The columns with a name or a value. A blank column between others is shown if names are repeated, because then
/// columns are told apart by their position.
fn shown_columns(table: &CsvTable) -> Vec<usize> {
    let is_blank = |at: usize| table.header[at].trim().is_empty() && !table.profiles[at].has_values;
    let last = (0..table.header.len()).rev().find(|at| !is_blank(*at)).unwrap_or(0);
    let mut names: Vec<&str> =
        (0..=last).filter(|at| !is_blank(*at)).map(|at| table.header[at].as_str()).collect();
    names.sort_unstable();
    let has_repeated_names = names.windows(2).any(|pair| pair[0] == pair[1]);
    (0..=last).filter(|at| has_repeated_names || !is_blank(*at)).collect()
}
