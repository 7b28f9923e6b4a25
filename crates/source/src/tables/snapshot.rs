//! One snapshot of a file: its tables, and what identifies its contents.

use std::hash::BuildHasher;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use contract::source::{SkippedTable, SourceError, SourceFacts, TableFacts, WriteSupport};
use foldhash::quality::{FixedState, RandomState};

use super::column::TableColumn;
use super::error::TableError;
use super::index::TableKeyIndex;
use super::paths::add_path_columns;
use super::table::Table;
use super::{FileFormat, ParsedFile, TablesOptions};
use crate::key_index::{KeyCandidate, find_key_column};
use crate::watch::FileLoader;

/// A larger file is not held in memory: positions in it have 32 bits.
pub const FILE_BYTES_MAX: u64 = u32::MAX as u64 - 1;

pub(super) struct FileSnapshot {
    pub(super) tables: Vec<Arc<Table>>,
    notes: Vec<String>,
    skipped_tables: Vec<SkippedTable>,
    detected_keys: OnceLock<Vec<Option<usize>>>,
    fingerprint: ContentFingerprint,
    content_hash: i64,
}

/// Identifies the bytes of a snapshot by a 64-bit hash with a random seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ContentFingerprint {
    bytes: usize,
    hash: u64,
}

/// Loads files of one format.
pub(super) struct FormatLoader {
    pub(super) format: Box<dyn FileFormat>,
    options: TablesOptions,
    hasher: RandomState,
}

impl FormatLoader {
    pub(super) fn new(format: Box<dyn FileFormat>, options: TablesOptions) -> Self {
        Self { format, options, hasher: RandomState::default() }
    }

    fn fingerprint(&self, bytes: &[u8]) -> ContentFingerprint {
        ContentFingerprint { bytes: bytes.len(), hash: self.hasher.hash_one(bytes) }
    }

    pub(super) fn parse(&self, bytes: &[u8]) -> Result<FileSnapshot, TableError> {
        let parsed = self.format.load(bytes).map_err(TableError::Parse)?;
        let ParsedFile { mut tables, mut notes, skipped_tables: skipped } = parsed;
        for table in &mut tables {
            notes.extend(add_path_columns(table, self.options.of_table(&table.name)));
        }
        if tables.iter().any(Table::is_over_limit) {
            return Err(TableError::TooLarge);
        }
        for table in &mut tables {
            table.infer_formats(self.options.of_table(&table.name));
            table.shrink_to_fit();
        }
        Ok(FileSnapshot {
            tables: tables.into_iter().map(Arc::new).collect(),
            notes,
            skipped_tables: skipped,
            detected_keys: OnceLock::new(),
            fingerprint: self.fingerprint(bytes),
            // A fixed seed: the same contents have the same hash after a restart, so cursors stay valid.
            content_hash: FixedState::default().hash_one(bytes).cast_signed(),
        })
    }
}

impl FileLoader for FormatLoader {
    type Snapshot = FileSnapshot;
    type Error = TableError;

    fn file_bytes_max(&self) -> u64 {
        FILE_BYTES_MAX
    }

    fn load(&self, bytes: Vec<u8>) -> Result<FileSnapshot, TableError> {
        self.parse(&bytes)
    }

    fn is_snapshot_of(&self, parsed: &FileSnapshot, bytes: &[u8]) -> bool {
        parsed.fingerprint == self.fingerprint(bytes)
    }

    fn source_error(&self, error: &TableError, file: &str, path: &Path) -> SourceError {
        error.to_source_error(file, path, self.format.name())
    }
}

impl FileSnapshot {
    pub(super) fn find_table(&self, table: &str) -> Option<usize> {
        self.tables.iter().position(|one| one.name == table)
    }

    /// A 64-bit hash of the contents.
    pub(super) fn content_hash(&self) -> i64 {
        self.content_hash
    }

    /// Fails if a contract cannot be inferred from this file alone, because no record names a column.
    pub(super) fn require_columns(self: Arc<Self>) -> Result<Arc<Self>, TableError> {
        let is_empty = |table: &Arc<Table>| table.is_schemaless && table.header.is_empty();
        if !self.tables.is_empty() && self.tables.iter().all(is_empty) {
            Err(TableError::NoColumns)
        } else {
            Ok(self)
        }
    }

    pub(super) fn facts(&self) -> SourceFacts {
        let keys = self
            .detected_keys
            .get_or_init(|| self.tables.iter().map(|table| detect_key_column(table)).collect());
        let tables = self.tables.iter().zip(keys).map(|(table, key)| TableFacts {
            key: key.iter().copied().collect(),
            row_count: Some(u64::from(table.len())),
            write_support: WriteSupport::transactional_unless(table.read_only_reason.clone()),
            refused_operations: table.refused_operations.clone(),
            likely_header_row: table.likely_header_row,
            header: table.header_rows,
            layout_notes: table.layout_notes.clone(),
            may_be_outdated: !table.may_be_outdated.is_empty(),
            ..TableFacts::new(&table.name, table.column_facts())
        });
        let (notes, skipped) = (self.notes.clone(), self.skipped_tables.clone());
        SourceFacts {
            tables: tables.collect(),
            notes,
            skipped_tables: skipped,
            reads_texts: true,
            ..SourceFacts::default()
        }
    }
}

/// The first column whose values are unique, if there is one.
fn detect_key_column(table: &Table) -> Option<usize> {
    let columns = table.header.iter().enumerate();
    let candidates = columns.filter(|(position, _)| {
        table.format(*position).is_none()
            && !table.may_be_measure(*position)
            && table.profile(*position).is_key_candidate(table.len().into())
    });
    let candidates = candidates.map(|(position, name)| KeyCandidate {
        position,
        name,
        data_type: table.profile(position).data_type().0,
    });
    find_key_column(candidates, table.len(), |position, rows| {
        let column = TableColumn {
            name: String::new(),
            column_index: Some(position),
            data_type: table.profile(position).data_type().0,
            mixed: false,
            null_texts: Vec::new(),
            format: None,
            has_nested_json: table.has_nested_json,
        };
        TableKeyIndex::build(table, &[&column], rows).is_ok()
    })
}
