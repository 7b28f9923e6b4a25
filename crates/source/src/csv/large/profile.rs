//! Finds the table in a file that is too large for memory, and the types of its columns.
//!
//! Header, notes below the table and rows that are not data are found in the start and the end of the file, by the code
//! that finds them in a small one. Types and formats are inferred from every value, as there. The file is read from
//! start to end for each of these steps.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use contract::manifest::is_stop_text;
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::super::Options;
use super::super::decode::{DecodedText, decode};
use super::super::encode::TextEncoding;
use super::super::error::CsvError;
use super::super::formats::{ColumnScan, InferredFormat, OpenColumn, infer_formats};
use super::super::load::{ColumnProfiler, ParsedCsv, SkippedLines, find_delimiter, parse};
use super::super::sniff::FileExtension;
use super::super::table::{CsvColumnProfile, CsvTable};
use super::records::{Record, RecordReader};
use crate::large::open_file;
use crate::watch::FileError;

/// How much of the start and of the end of a file is in memory at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleSize {
    pub(super) head_bytes: usize,
    pub(super) tail_bytes: usize,
}

impl SampleSize {
    pub(super) const DEFAULT: Self = Self { head_bytes: 1 << 20, tail_bytes: 64 << 10 };
}

/// Where the table is in a file, and how its columns are written.
pub(super) struct LargeTable {
    /// Header, notes and delimiter; its text and its rows are those of the sample.
    pub(super) table: CsvTable,
    pub(super) rows: u64,
    encoding: &'static Encoding,
    /// Where the first record below the header starts.
    rows_start: u64,
    /// Records below the header that are not rows, in the start and the end of the file, ascending.
    left_out: Vec<u64>,
    /// Where a second table begins.
    second_table: Option<u64>,
    is_header_doubtful: bool,
    /// Whether blank records and repeated headers are rows, and where the table ends, if the manifest says so.
    keeps_all: bool,
    stop_at: Option<String>,
}

impl LargeTable {
    /// Reads the file three times, or more if columns may have a format.
    pub(super) fn profile(
        path: &Path,
        extension: FileExtension,
        options: &Options,
        sample: SampleSize,
    ) -> Result<Self, CsvError> {
        if options.table.layout.completes_rows() {
            return Err(CsvError::NeedsMemory);
        }
        let mut table = Self::find(path, extension, options, sample)?;
        let header = table.table.header.clone();
        let mut columns: Vec<ColumnProfiler> =
            header.iter().map(|name| ColumnProfiler::new(options.table.null_texts(name))).collect();
        let mut rows = 0_u64;
        let mut scratch = String::new();
        table.for_each_row(path, |record| {
            rows += 1;
            for (at, column) in columns.iter_mut().enumerate() {
                column.observe(record.line, record.text(at, &mut scratch));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let formats = table.infer_formats(path, options, &columns)?;
        let locate = |line: u64| format!("line {line}");
        let columns = columns.into_iter().zip(formats);
        table.table.profiles = columns.map(|(column, format)| column.finish(format, locate)).collect();
        table.rows = rows;
        Ok(table)
    }

    /// Finds header, delimiter and what is not data.
    fn find(
        path: &Path,
        extension: FileExtension,
        options: &Options,
        sample: SampleSize,
    ) -> Result<Self, CsvError> {
        let start = decode(read_head(path, sample.head_bytes)?, options.encoding)?;
        let (delimiter, _) = find_delimiter(&start.text, start.start, extension, options)?;
        let encoding = match &start.encoding {
            TextEncoding::Utf8 => UTF_8,
            TextEncoding::Utf16Le { .. } => UTF_16LE,
            TextEncoding::Utf16Be { .. } => UTF_16BE,
            TextEncoding::Legacy(encoding) => *encoding,
        };
        let ends = FileEnds::read(open(path)?, encoding, delimiter, sample)?;
        let head_bytes = ends.head.len();
        let mut text = ends.head;
        text.push_str(&ends.tail);
        let skipped = SkippedLines { at: head_bytes, count: ends.lines_between };
        let decoded = DecodedText { text, start: 0, encoding: start.encoding, note: start.note };
        let ParsedCsv { table, rows_start, left_out, second_table, is_header_doubtful } =
            parse(decoded, extension, options, skipped)?;
        let in_file = |at: &u32| match (*at as usize).checked_sub(head_bytes) {
            None => u64::from(*at),
            Some(in_tail) => ends.tail_offset + in_tail as u64,
        };
        let layout = &options.table.layout;
        Ok(Self {
            left_out: left_out.iter().map(in_file).collect(),
            second_table: second_table.as_ref().map(in_file),
            table,
            rows: 0,
            encoding,
            rows_start: rows_start as u64,
            is_header_doubtful,
            keeps_all: layout.footer_rows == Some(0),
            stop_at: layout.stop_at.as_ref().map(|text| text.trim().to_owned()),
        })
    }

    /// Passes each row of the table to `row`, in the order of the file.
    pub(super) fn for_each_row(
        &self,
        path: &Path,
        mut row: impl FnMut(&Record<'_>) -> Result<ControlFlow<()>, CsvError>,
    ) -> Result<(), CsvError> {
        let mut reader = RecordReader::new(open(path)?, self.encoding, self.table.splitter.delimiter);
        let mut scratch = String::new();
        while let Some(record) = reader.next()? {
            if self.second_table.is_some_and(|start| record.offset >= start) {
                return Ok(());
            }
            if record.offset < self.rows_start || self.left_out.binary_search(&record.offset).is_ok() {
                continue;
            }
            match self.classify(&record, &mut scratch) {
                RecordKind::Row => {
                    if row(&record)?.is_break() {
                        return Ok(());
                    }
                }
                RecordKind::NotData => {}
                RecordKind::End => return Ok(()),
                RecordKind::Ragged => {
                    return Err(CsvError::Ragged {
                        location: record.location(self.table.header.len().min(record.len())),
                        fields: record.len(),
                        header: self.table.header.len(),
                        delimiter: self.table.splitter.delimiter,
                        cause: None,
                    });
                }
            }
        }
        Ok(())
    }

    /// The same decisions as for a file in memory.
    fn classify(&self, record: &Record<'_>, scratch: &mut String) -> RecordKind {
        let header = &self.table.header;
        let (mut filled, mut names) = (0, 0);
        for at in 0..record.len() {
            let value = record.text(at, scratch);
            if value.trim_ascii_start().is_empty() {
                continue;
            }
            if filled == 0 && self.stop_at.as_ref().is_some_and(|stop| is_stop_text(stop, value)) {
                return RecordKind::End;
            }
            filled += 1;
            names += usize::from(header.get(at).is_some_and(|name| name == value));
        }
        let is_wide = header.len() > 1;
        if filled == 0 && is_wide {
            return if self.keeps_all { self.check_width(record) } else { RecordKind::NotData };
        }
        let is_header = names == filled && names == header.len() && is_wide && !self.is_header_doubtful;
        match self.check_width(record) {
            RecordKind::Row if is_header && !self.keeps_all => RecordKind::NotData,
            kind => kind,
        }
    }

    fn check_width(&self, record: &Record<'_>) -> RecordKind {
        let header = self.table.header.len();
        match record.len() {
            len if len == header => RecordKind::Row,
            len if len > header && header > 1 && record.is_blank_from(header) => RecordKind::Row,
            _ => RecordKind::Ragged,
        }
    }

    fn infer_formats(
        &self,
        path: &Path,
        options: &Options,
        columns: &[ColumnProfiler],
    ) -> Result<Vec<InferredFormat>, CsvError> {
        let mut scan = RowsOfFile { table: self, path, first_values: vec![None; columns.len()] };
        let declared = |at: usize, data_type| options.table.formats(&self.table.header[at], data_type);
        infer_formats(&mut scan, columns, self.table.splitter.delimiter, declared)
    }

    pub(super) fn profiles(&self) -> &[CsvColumnProfile] {
        &self.table.profiles
    }

    /// Everything that decides how the file is read, in bytes.
    pub(super) fn write_interpretation(&self, part: &mut dyn FnMut(&[u8])) {
        part(self.encoding.name().as_bytes());
        part(&[self.table.splitter.delimiter, u8::from(self.is_header_doubtful), u8::from(self.keeps_all)]);
        part(&self.rows_start.to_be_bytes());
        self.left_out.iter().for_each(|offset| part(&offset.to_be_bytes()));
        self.second_table.iter().for_each(|offset| part(&offset.to_be_bytes()));
        part(self.stop_at.as_deref().unwrap_or_default().as_bytes());
    }
}

enum RecordKind {
    Row,
    NotData,
    /// The table ends before it.
    End,
    Ragged,
}

/// The rows of a file, for a second look at their columns: each scan reads the file.
struct RowsOfFile<'a> {
    table: &'a LargeTable,
    path: &'a Path,
    /// Of the columns that were scanned, with their lines.
    first_values: Vec<Option<(usize, String)>>,
}

impl ColumnScan for RowsOfFile<'_> {
    type Error = CsvError;

    fn scan(&mut self, open: &mut Vec<OpenColumn<'_>>) -> Result<(), CsvError> {
        let mut scratch = String::new();
        self.table.for_each_row(self.path, |record| {
            for column in &mut *open {
                let value = record.text(column.position, &mut scratch);
                let first_value = &mut self.first_values[column.position];
                if first_value.is_none() && !value.trim().is_empty() {
                    *first_value = Some((record.line as usize, value.to_owned()));
                }
                column.observe(value);
            }
            open.retain(|column| !column.is_hopeless());
            Ok(if open.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    fn first_value(&mut self, position: usize, _: &dyn Fn(&str) -> bool) -> Option<(usize, String)> {
        self.first_values[position].take()
    }
}

/// The records at the start and at the end of a file.
struct FileEnds {
    head: String,
    /// Empty if the head is the whole file.
    tail: String,
    /// Where the tail starts in the decoded file.
    tail_offset: u64,
    /// How many lines are neither in the head nor in the tail.
    lines_between: usize,
}

impl FileEnds {
    fn read(
        file: File,
        encoding: &'static Encoding,
        delimiter: u8,
        sample: SampleSize,
    ) -> Result<Self, CsvError> {
        let mut reader = RecordReader::new(file, encoding, delimiter);
        let (mut head, mut tail) = (String::new(), String::new());
        // Where each record of the tail starts in it, where in the file, and its line.
        let mut records: Vec<(usize, u64, u64)> = Vec::new();
        let mut head_lines = 1;
        while let Some(record) = reader.next()? {
            if tail.is_empty() && head.len() < sample.head_bytes {
                head.push_str(record.raw);
                head_lines = record.line + line_count(record.raw);
                continue;
            }
            let blank = record.raw.len() - record.raw.trim_start_matches(['\n', '\r']).len();
            let start = record.offset - blank as u64;
            records.push((tail.len(), start, record.line - line_count(&record.raw[..blank])));
            tail.push_str(record.raw);
            if tail.len() > 2 * sample.tail_bytes {
                let wanted = tail.len() - sample.tail_bytes;
                let first = records.partition_point(|(at, _, _)| *at < wanted).min(records.len() - 1);
                let cut = records[first].0;
                tail.drain(..cut);
                records.drain(..first);
                records.iter_mut().for_each(|(at, _, _)| *at -= cut);
            }
        }
        let (_, tail_offset, line) = records.first().copied().unwrap_or((0, 0, head_lines));
        let lines_between = usize::try_from(line.saturating_sub(head_lines)).unwrap_or(usize::MAX);
        Ok(Self { head, tail, tail_offset, lines_between })
    }
}

/// How many lines end in a text.
fn line_count(text: &str) -> u64 {
    (super::super::location::line_at(text.as_bytes(), text.len()) - 1) as u64
}

/// The first lines of a file, about so many bytes.
fn read_head(path: &Path, bytes_max: usize) -> Result<Vec<u8>, CsvError> {
    let mut bytes = Vec::new();
    let is_whole = {
        let mut file = open(path)?;
        let read = (&mut file).take(bytes_max as u64).read_to_end(&mut bytes);
        read.map_err(|error| FileError::Io(error.to_string()))? < bytes_max
    };
    if !is_whole {
        // A character must not be cut. In UTF-16 the second byte of a line end belongs to it.
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let is_utf16 = bytes.get(end) == Some(&0) && end % 2 == 1;
        bytes.truncate(end + usize::from(is_utf16));
    }
    Ok(bytes)
}

fn open(path: &Path) -> Result<File, CsvError> {
    Ok(open_file(path)?)
}
