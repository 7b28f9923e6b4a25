//! Workbooks: each sheet is a table, named by its header row. Reads and writes XLSX; reads XLS and ODS.
//!
//! A formula reads as the value that a spreadsheet program cached for it; nothing is computed here. Reading is
//! bounded whatever the bytes are ([`budget`]). Not read: charts, pivot tables, macros, comments and formats; but a
//! write to an XLSX file leaves all of them as they are.

mod address;
mod biff;
mod budget;
mod cfb;
mod encode;
mod excel_table;
mod grid;
mod ods;
mod references;
mod serial_date;
mod sheet;
mod sheet_xml;
mod stale;
#[cfg(test)]
mod tests;
mod workbook;
mod writer;
mod xls;
mod xlsx;
mod xml;
mod zip;

use std::path::Path;

use contract::manifest::{DeclaredLayout, WorkbookFormat};
use contract::source::{SourceError, WriteError};

use crate::backups::BackupPolicy;
use crate::tables::{FileFormat, ParseError, ParsedFile, RowEdit, TableFile, TablesOptions};
use budget::{Budget, FILE_BYTES_MAX, too_large_error};

/// How to read a workbook, and how often to check it for changes.
#[derive(Debug, Clone)]
pub struct Options {
    pub format: WorkbookFormat,
    /// How to read each sheet, where the workbook itself does not tell.
    pub tables: TablesOptions,
    /// How long a snapshot is used before the file is checked for changes. 0: check at every call.
    pub poll_interval_ms: u64,
    pub backups: BackupPolicy,
}

impl Options {
    fn layout_of(&self, sheet: &str) -> &DeclaredLayout {
        &self.tables.of_table(sheet).layout
    }

    pub fn new(format: WorkbookFormat) -> Self {
        Self {
            format,
            tables: TablesOptions::default(),
            poll_interval_ms: 20,
            backups: BackupPolicy::default(),
        }
    }
}

/// A workbook. Each visible sheet with a header row is a table. Does not read the file yet.
pub fn open(path: &Path, options: Options) -> TableFile {
    let (tables, poll_interval_ms, backups) =
        (options.tables.clone(), options.poll_interval_ms, options.backups);
    TableFile::open(path, Box::new(options), tables, poll_interval_ms, backups)
}

/// The number of rows of each table, or why the workbook cannot be read. For fuzzing.
#[doc(hidden)]
pub fn try_bytes(bytes: &[u8], workbook: WorkbookFormat) -> Result<Vec<u32>, String> {
    let parsed = Options::new(workbook).load(bytes).map_err(|reason| reason.message)?;
    Ok(parsed.tables.iter().map(crate::tables::Table::len).collect())
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
        let mut budget = Budget::for_file(bytes.len());
        let mut parsed = match self.format {
            WorkbookFormat::Xlsx => return xlsx::load(bytes, self, &mut budget),
            WorkbookFormat::Xls => xls::load(bytes, self, &mut budget)?,
            WorkbookFormat::Ods => ods::load(bytes, self, &mut budget)?,
        };
        for table in &mut parsed.tables {
            table.read_only_reason = Some("only XLSX workbooks can be written; save the file as XLSX".into());
        }
        Ok(parsed)
    }

    fn rewrite(&self, bytes: &[u8], table: usize, edit: &RowEdit<'_>) -> Result<Vec<u8>, WriteError> {
        match self.format {
            WorkbookFormat::Xlsx => {
                xlsx::rewrite(bytes, self, table, edit, &mut Budget::for_file(bytes.len()))
            }
            WorkbookFormat::Xls | WorkbookFormat::Ods => Err(SourceError::read_only().into()),
        }
    }
}
