//! Workbooks: each sheet a table, its names in the header row. XLSX is read and written; XLS and ODS are read.
//!
//! Formulas are read as the values that a spreadsheet program left with them; nothing is computed here. Whatever
//! the bytes are, reading them is bounded ([`budget`]). What is not here: charts, pivots, macros, comments and
//! formats, but that a write to an XLSX file leaves all of them as they are.

mod biff;
mod book;
mod budget;
mod cfb;
mod encode;
mod grid;
mod moment;
mod ods;
mod part;
mod place;
mod sheet;
#[cfg(test)]
mod tests;
mod write;
mod xls;
mod xlsx;
mod xml;
mod zip;

use std::collections::HashMap;
use std::path::Path;

use contract::manifest::Workbook;
use contract::source::{SourceFault, WriteFault};

use crate::rows::{Edit, Format, Loaded, Rows, Unreadable};
use budget::{Budget, FILE_BYTES_MAX, smaller};

/// How a workbook is read, and how often it is looked at.
#[derive(Debug, Clone)]
pub struct Options {
    pub workbook: Workbook,
    /// By sheet: the row that has the names, from 1. The first one with a text in it where nothing is said.
    pub header_rows: HashMap<String, u32>,
    /// The same for a sheet that is not named there.
    pub header_row: Option<u32>,
    /// How long to trust that the file is what it was. 0: not beyond one call.
    pub look_every_ms: u64,
}

impl Options {
    fn header_row_of(&self, sheet: &str) -> Option<u32> {
        self.header_rows.get(sheet).copied().or(self.header_row)
    }

    pub fn new(workbook: Workbook) -> Self {
        Self { workbook, header_rows: HashMap::new(), header_row: None, look_every_ms: 20 }
    }
}

/// A workbook. Each of its sheets that is visible and has a row of names is a table. Nothing is read yet.
pub fn open(path: &Path, options: Options) -> Rows {
    let look_every_ms = options.look_every_ms;
    Rows::open(path, Box::new(options), look_every_ms)
}

/// How many rows each table of a workbook has, or why it cannot be read: for those who try bytes at random.
#[doc(hidden)]
pub fn try_bytes(bytes: &[u8], workbook: Workbook) -> Result<Vec<u32>, String> {
    let loaded = Options::new(workbook).load(bytes).map_err(|why| why.why)?;
    Ok(loaded.tables.iter().map(crate::rows::Table::len).collect())
}

impl Format for Options {
    fn name(&self) -> &'static str {
        match self.workbook {
            Workbook::Xlsx => "XLSX workbook",
            Workbook::Xls => "XLS workbook",
            Workbook::Ods => "ODS workbook",
        }
    }

    fn load(&self, bytes: &[u8]) -> Result<Loaded, Unreadable> {
        if bytes.len() > FILE_BYTES_MAX {
            let mebibytes = FILE_BYTES_MAX >> 20;
            return Err(smaller(format!("the workbook is longer than {mebibytes} MiB")));
        }
        let mut budget = Budget::new();
        let mut loaded = match self.workbook {
            Workbook::Xlsx => return xlsx::load(bytes, self, &mut budget),
            Workbook::Xls => xls::load(bytes, self, &mut budget)?,
            Workbook::Ods => ods::load(bytes, self, &mut budget)?,
        };
        for table in &mut loaded.tables {
            table.read_only = Some("only XLSX workbooks can be written; save the file as XLSX".into());
        }
        Ok(loaded)
    }

    fn rewrite(&self, bytes: &[u8], table: usize, edit: &Edit<'_>) -> Result<Vec<u8>, WriteFault> {
        match self.workbook {
            Workbook::Xlsx => xlsx::rewrite(bytes, self, table, edit, &mut Budget::new()),
            Workbook::Xls | Workbook::Ods => Err(SourceFault::read_only().into()),
        }
    }
}
