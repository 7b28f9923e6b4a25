//! JSON files: one object per line, or an array of objects.
//!
//! The columns are the members of all objects, in the order in which they first occur. A missing member and one that
//! is `null` are both "no value". Numbers keep their digits. A write changes the bytes of its own object and no
//! others.
//!
//! Deliberately absent: objects whose members are records, comments, and guessing what broken text meant.

mod document;
mod edit;
mod lines;
mod value;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use contract::source::TableOptions;

use crate::backups::BackupPolicy;
use crate::tables::{FileFormat, LargeTableFile, TableFile, TablesOptions};
pub(crate) use document::JsonDocument;
use lines::JsonLines;
pub(crate) use value::JsonValue;

/// The layout of a file, and how often to check it for changes.
#[derive(Debug, Clone)]
pub struct Options {
    pub layout: JsonLayout,
    /// How to read the records, where the file itself does not tell.
    pub table: TableOptions,
    /// How long a snapshot is used before the file is checked for changes. 0: check at every call.
    pub poll_interval_ms: u64,
    pub backups: BackupPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonLayout {
    /// JSON Lines: one object per line.
    Lines,
    /// One document: an array of objects, or an object that contains one at this JSON pointer.
    Document { pointer: Option<String> },
}

impl Options {
    pub fn new(layout: JsonLayout) -> Self {
        Self {
            layout,
            table: TableOptions::default(),
            poll_interval_ms: 20,
            backups: BackupPolicy::default(),
        }
    }
}

pub use crate::tables::FILE_BYTES_MAX;

/// Files beyond this size are searched for records only up to here.
const SCANNED_BYTES_MAX: u64 = 256 << 20;

/// A file with one table, which is named after the file. Does not read the file yet.
pub fn open(path: &Path, options: Options) -> TableFile {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let format: Box<dyn FileFormat> = match options.layout {
        JsonLayout::Lines => Box::new(JsonLines { name }),
        JsonLayout::Document { pointer: at } => Box::new(JsonDocument { name, pointer: at }),
    };
    let tables = TablesOptions { named: Vec::new(), others: options.table };
    TableFile::open(path, format, tables, options.poll_interval_ms, options.backups)
}

/// A file of JSON Lines that is too large for memory, served from an import that is kept in the folder `cache`. Does not
/// read the file yet.
pub fn open_large_lines(path: &Path, table: TableOptions, cache: &Path) -> LargeTableFile {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    LargeTableFile::open(path, Box::new(JsonLines { name }), table, cache)
}

/// The JSON pointer to the records of a document, if it is not an array itself and contains exactly one. If the file
/// cannot be read, returns `None`, and [`Source::introspect`](contract::source::Source::introspect) reports the
/// error.
pub fn find_records(path: &Path) -> Option<String> {
    document::find_records(&read_start(path)?)
}

/// Whether a file that is not a table is JSON at all: a damaged table is not, the settings of another program are.
pub fn is_json(path: &Path) -> bool {
    read_start(path).is_some_and(document::is_json)
}

fn read_start(path: &Path) -> Option<Vec<u8>> {
    // Opening a pipe would block until a process writes to it.
    std::fs::metadata(path).ok().filter(|what| what.is_file())?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(SCANNED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
