//! JSON files: an object in each line, or an array of objects.
//!
//! Columns are the members of all objects, in the order in which they first appear; a member that is missing and
//! one that is `null` are both no value. Numbers keep their digits. A change touches the bytes of its own object
//! and no others.
//!
//! Deliberately absent: objects whose members are records, comments, and guessing what broken text meant.

mod document;
mod edit;
mod lines;
mod value;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::tables::{FileFormat, TableFile};
use document::JsonDocument;
use lines::JsonLines;

/// What a file is, and how often it is looked at.
#[derive(Debug, Clone)]
pub struct Options {
    pub layout: JsonLayout,
    /// How long to trust that the file is what it was. 0: not beyond one call.
    pub poll_interval_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonLayout {
    /// JSON Lines: an object in each line.
    Lines,
    /// One document that is an array of objects, or has one at this JSON pointer.
    Document { pointer: Option<String> },
}

impl Options {
    pub fn new(layout: JsonLayout) -> Self {
        Self { layout, poll_interval_ms: 20 }
    }
}

/// More of a document is not looked at to find its records: what is so large is nobody's first try.
const SCANNED_BYTES_MAX: u64 = 256 << 20;

/// A file with one table, which is named as the file. Nothing is read yet.
pub fn open(path: &Path, options: Options) -> TableFile {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let format: Box<dyn FileFormat> = match options.layout {
        JsonLayout::Lines => Box::new(JsonLines { name }),
        JsonLayout::Document { pointer: at } => Box::new(JsonDocument { name, pointer: at }),
    };
    TableFile::open(path, format, options.poll_interval_ms)
}

/// Where in a document the records are, if it is no array itself and there is one place only that could be meant: a
/// JSON pointer. What cannot be read is for [`Source::facts`](contract::source::Source::facts) to tell.
pub fn find_records(path: &Path) -> Option<String> {
    // To open a pipe is to wait for somebody to write.
    std::fs::metadata(path).ok().filter(|what| what.is_file())?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(SCANNED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    document::find_records(&bytes)
}
