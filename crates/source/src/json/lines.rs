//! JSON Lines: one object per line. Blank lines are not records, and stay where they are.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;

use contract::source::WriteError;
use json::{ParseLimits, parse};
use memchr::memchr;

use super::edit::{self, ObjectStyle};
use super::value::{ColumnNames, ErrorContext, RECORD_BYTES_MAX, TableBuilder, content_start, parse_object};
use crate::location::TextLocation;
use crate::tables::{FileFormat, ParseError, ParsedFile, RowEdit, RowStream, RowVisitor, StreamError};

/// How much of a large file is read at once.
const PART_BYTES: usize = 1 << 20;
/// A longer line of a large file is not read to its end.
const LINE_BYTES_MAX: usize = RECORD_BYTES_MAX + PART_BYTES;
const DOCUMENT_HELP: &str = "name it `.json`, or set `kind = \"json\"`: it looks like one JSON document";

pub(super) struct JsonLines {
    /// The name of the table.
    pub(super) name: String,
}

/// A line that is not blank.
struct Line {
    number: u32,
    /// Without the line end and the whitespace around the object.
    span: Range<usize>,
    /// Where the next line starts.
    next: usize,
}

/// Iterates over the lines that are not blank.
struct LineIter<'a> {
    bytes: &'a [u8],
    position: usize,
    number: u32,
}

impl Iterator for LineIter<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while self.position < self.bytes.len() {
            let from = self.position;
            let end = memchr(b'\n', &self.bytes[from..]).map_or(self.bytes.len(), |ahead| from + ahead);
            self.position = (end + 1).min(self.bytes.len());
            self.number = self.number.saturating_add(1);
            let line = &self.bytes[from..end];
            let trimmed = line.trim_ascii();
            if !trimmed.is_empty() {
                let from = from + (line.len() - line.trim_ascii_start().len());
                return Some(Line {
                    number: self.number,
                    span: from..from + trimmed.len(),
                    next: self.position,
                });
            }
        }
        None
    }
}

fn lines(bytes: &[u8]) -> Result<LineIter<'_>, ParseError> {
    Ok(LineIter { bytes, position: content_start(bytes)?, number: 0 })
}

impl FileFormat for JsonLines {
    fn name(&self) -> &'static str {
        "JSON Lines file"
    }

    fn load(&self, bytes: &[u8]) -> Result<ParsedFile, ParseError> {
        let mut builder = TableBuilder::new(&self.name, "line");
        for line in lines(bytes)? {
            let Line { number, span: Range { start: from, end: to }, .. } = line;
            let at = ErrorContext { bytes, record: Some(("line", number)) };
            let doc =
                parse_object(bytes, from, to, &at).map_err(|error| suggest_json_document(bytes, error))?;
            builder.push_object(number, doc.root()).map_err(|too_many| too_many.to_parse_error(&at, from))?;
        }
        Ok(ParsedFile { tables: vec![builder.table], ..ParsedFile::default() })
    }

    fn rewrite(&self, bytes: &[u8], _table: usize, edit: &RowEdit<'_>) -> Result<Vec<u8>, WriteError> {
        let mut lines = lines(bytes).map_err(|_| edit::changed_error())?;
        match edit {
            RowEdit::Append { updates: cells } => {
                let last = lines.last();
                let style = last
                    .as_ref()
                    .map(|last| ObjectStyle::of_object(&bytes[last.span.clone()]))
                    .unwrap_or_default();
                let mut new = Vec::new();
                edit::write_object(&mut new, &style.single_line(), cells)?;
                let end = line_ending(bytes);
                let mut out = Vec::with_capacity(bytes.len() + new.len() + 2 * end.len());
                out.extend_from_slice(bytes);
                // A file without a final line end stays without one.
                let is_open = last.is_some() && !bytes.ends_with(b"\n");
                if is_open {
                    out.extend_from_slice(end);
                }
                out.extend_from_slice(&new);
                if !is_open {
                    out.extend_from_slice(end);
                }
                Ok(out)
            }
            RowEdit::Set { row, updates: cells } => {
                let line = lines.nth(*row).ok_or_else(edit::changed_error)?;
                let mut new = Vec::new();
                edit::write_updated_object(&mut new, &bytes[line.span.clone()], cells)?;
                Ok(edit::splice(bytes, line.span, &new))
            }
            RowEdit::Remove { row } => {
                let mut from = content_start(bytes).map_err(|_| edit::changed_error())?;
                if let Some(before) = row.checked_sub(1) {
                    from = lines.nth(before).ok_or_else(edit::changed_error)?.next;
                }
                let line = lines.next().ok_or_else(edit::changed_error)?;
                // Blank lines before it stay.
                let blank = &bytes[from..line.span.start];
                from += memchr::memrchr(b'\n', blank).map_or(0, |end| end + 1);
                Ok(edit::splice(bytes, from..line.next, b""))
            }
        }
    }

    fn locate(&self, bytes: &[u8], _table: usize, row: usize, column: Option<&str>) -> Option<TextLocation> {
        let line = lines(bytes).ok()?.nth(row)?;
        edit::member_location(bytes, line.span, column)
    }
}

impl RowStream for JsonLines {
    fn kind_name(&self) -> &'static str {
        FileFormat::name(self)
    }

    fn table_name(&self) -> &str {
        &self.name
    }

    fn row_unit(&self) -> &'static str {
        "line"
    }

    fn for_each_row(&self, file: File, visit: &mut RowVisitor<'_>) -> Result<(), StreamError> {
        let mut input = BufReader::with_capacity(PART_BYTES, file);
        let (mut names, mut bytes, mut number) = (ColumnNames::default(), Vec::new(), 0_u32);
        let mut starts_with_array = false;
        loop {
            bytes.clear();
            // One byte more than a record and the whitespace around it may have.
            let mut limited = (&mut input).take(LINE_BYTES_MAX as u64 + 1);
            if limited.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(());
            }
            number = number.saturating_add(1);
            let start = if number == 1 { content_start(&bytes)? } else { 0 };
            let line = bytes[start..].trim_ascii();
            if line.is_empty() && bytes.len() <= LINE_BYTES_MAX {
                continue;
            }
            let from = start + (bytes.len() - start - bytes[start..].trim_ascii_start().len());
            let to = from + line.len();
            starts_with_array |= number == 1 && line.starts_with(b"[");
            let at = ErrorContext { bytes: &bytes, record: Some(("line", number)) };
            let in_file = |mut error: ParseError| {
                if let Some(location) = &mut error.location {
                    location.line = number as usize;
                }
                match starts_with_array {
                    true => ParseError { help: Some(DOCUMENT_HELP.into()), ..error },
                    false => error,
                }
            };
            let doc = parse_object(&bytes, from, to, &at).map_err(in_file)?;
            let flow = names
                .with_values(doc.root(), |names, row| visit(number, names, row))
                .map_err(|too_many| in_file(too_many.to_parse_error(&at, from)))?;
            if flow?.is_break() {
                return Ok(());
            }
        }
    }
}

/// How the first line ends.
fn line_ending(bytes: &[u8]) -> &'static [u8] {
    match memchr(b'\n', bytes) {
        Some(at) if bytes[..at].ends_with(b"\r") => b"\r\n",
        Some(_) | None => b"\n",
    }
}

/// Suggests a JSON document if the whole file is one.
fn suggest_json_document(bytes: &[u8], error: ParseError) -> ParseError {
    let text = &bytes[content_start(bytes).unwrap_or(0)..];
    let start = text.trim_ascii_start();
    const LOOKED_BYTES_MAX: usize = 1 << 20;
    let is_whole = || text.len() <= LOOKED_BYTES_MAX && parse(text.to_vec(), &ParseLimits::default()).is_ok();
    if start.starts_with(b"[") || (start.starts_with(b"{") && is_whole()) {
        return ParseError { help: Some(DOCUMENT_HELP.into()), ..error };
    }
    error
}
