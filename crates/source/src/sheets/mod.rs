//! Workbooks: each sheet a table, its names in the header row. XLSX is read and written; XLS and ODS are read.
//!
//! Formulas are read as the values that a spreadsheet program left with them; nothing is computed here. Whatever
//! the bytes are, reading them is bounded ([`budget`]). What is not here: charts, pivots, macros, comments and
//! formats, but that a write to an XLSX file leaves all of them as they are.

mod address;
mod biff;
mod budget;
mod cfb;
mod encode;
mod grid;
mod ods;
mod serial_date;
mod sheet;
mod sheet_xml;
#[cfg(test)]
mod tests;
mod workbook;
mod writer;
mod xls;
mod xlsx;
mod xml;
mod zip;

use std::collections::HashMap;
use std::path::Path;

use contract::manifest::WorkbookFormat;
use contract::source::{SourceError, WriteError};

use crate::tables::{FileFormat, ParseError, ParsedFile, RowEdit, TableFile};
use budget::{Budget, FILE_BYTES_MAX, too_large_error};

/// How a workbook is read, and how often it is looked at.
#[derive(Debug, Clone)]
pub struct Options {
    pub format: WorkbookFormat,
    /// By sheet: the row that has the names, from 1. The first one with a text in it where nothing is said.
    pub header_rows: HashMap<String, u32>,
    /// The same for a sheet that is not named there.
    pub header_row: Option<u32>,
    /// How long to trust that the file is what it was. 0: not beyond one call.
    pub poll_interval_ms: u64,
}

impl Options {
    fn header_row_for(&self, sheet: &str) -> Option<u32> {
        self.header_rows.get(sheet).copied().or(self.header_row)
    }

    pub fn new(format: WorkbookFormat) -> Self {
        Self { format, header_rows: HashMap::new(), header_row: None, poll_interval_ms: 20 }
    }
}

/// A workbook. Each of its sheets that is visible and has a row of names is a table. Nothing is read yet.
pub fn open(path: &Path, options: Options) -> TableFile {
    let look_every_ms = options.poll_interval_ms;
    TableFile::open(path, Box::new(options), look_every_ms)
}

/// How many rows each table of a workbook has, or why it cannot be read: for those who try bytes at random.
#[doc(hidden)]
pub fn try_bytes(bytes: &[u8], workbook: WorkbookFormat) -> Result<Vec<u32>, String> {
    let loaded = Options::new(workbook).load(bytes).map_err(|why| why.message)?;
    Ok(loaded.tables.iter().map(crate::tables::Table::len).collect())
}

impl FileFormat for Options {
    fn name(&self) -> &'static str {
        match self.format {
            WorkbookFormat::Xlsx => "XLSX workbook",
            WorkbookFormat::Xls => "XLS workbook",
            WorkbookFormat::Ods => "ODS workbook",
        }
    }

    fn load(&self, bytes: &[u8]) -> Result<ParsedFile, ParseError> {
        if bytes.len() > FILE_BYTES_MAX {
            let mebibytes = FILE_BYTES_MAX >> 20;
            return Err(too_large_error(format!("the workbook is longer than {mebibytes} MiB")));
        }
        let mut budget = Budget::new();
        let mut loaded = match self.format {
            WorkbookFormat::Xlsx => return xlsx::load(bytes, self, &mut budget),
            WorkbookFormat::Xls => xls::load(bytes, self, &mut budget)?,
            WorkbookFormat::Ods => ods::load(bytes, self, &mut budget)?,
        };
        for table in &mut loaded.tables {
            table.read_only_reason = Some("only XLSX workbooks can be written; save the file as XLSX".into());
        }
        Ok(loaded)
    }

    fn rewrite(&self, bytes: &[u8], table: usize, edit: &RowEdit<'_>) -> Result<Vec<u8>, WriteError> {
        match self.format {
            WorkbookFormat::Xlsx => xlsx::rewrite(bytes, self, table, edit, &mut Budget::new()),
            WorkbookFormat::Xls | WorkbookFormat::Ods => Err(SourceError::read_only().into()),
        }
    }
}
