//! Edits of a CSV text: where a row is, and what replaces it.
//!
//! A splice is as short as possible. It keeps line ends, quotes and spaces of the row, or copies the style of the
//! rows around it.

use std::ops::Range;

use super::splitter::{Field, Terminator};
use super::table::CsvTable;

/// Replaces a range of the text by another text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) replacement: String,
}

/// How many rows to look back for how fields of a column are quoted.
const QUOTE_STYLE_ROWS_MAX: u32 = 64;

/// Where one record is.
struct RecordSpan {
    start: usize,
    /// After its last field.
    end: usize,
    /// After its line end.
    next: usize,
    is_all_quoted: bool,
}

impl CsvTable {
    fn record_at(&self, begin: usize) -> RecordSpan {
        let mut at = begin;
        let mut is_all_quoted = true;
        loop {
            let field = self.field_at(at);
            is_all_quoted &= self.is_quoted(at);
            if field.terminator != Terminator::Delimiter {
                return RecordSpan {
                    start: begin,
                    end: field.raw_span(at).end,
                    next: field.next,
                    is_all_quoted,
                };
            }
            at = field.next;
        }
    }

    fn field_at(&self, at: usize) -> Field {
        self.splitter.field_at(self.text.as_bytes(), at)
    }

    fn is_quoted(&self, at: usize) -> bool {
        self.text.as_bytes().get(at) == Some(&b'"')
    }

    /// The record before a row: the previous row, or the header.
    fn record_before(&self, row: u32) -> RecordSpan {
        let before =
            row.checked_sub(1).map_or(self.header_start, |before| self.row_starts[before as usize] as usize);
        self.record_at(before)
    }

    /// Appends a row after the last one. `texts` has one text per column.
    pub(super) fn append_row(&self, texts: &[&str]) -> Splice {
        let last = self.record_before(self.len());
        let mut row = String::new();
        for (column, text) in texts.iter().enumerate() {
            if column > 0 {
                row.push(char::from(self.splitter.delimiter));
            }
            let is_quoted = self.should_quote(self.len(), column, text.is_empty());
            self.write_field(text, is_quoted || (texts.len() == 1 && text.is_empty()), &mut row);
        }
        let ended = &self.text[last.end..last.next];
        let with = match ended {
            // A file without a final line end stays without one.
            "" => {
                let header = self.record_at(self.header_start);
                let line_end = &self.text[header.end..header.next];
                format!("{}{row}", if line_end.is_empty() { "\n" } else { line_end })
            }
            ended => row + ended,
        };
        Splice { range: last.next..last.next, replacement: with }
    }

    /// Removes a row with its line end. A file without a final line end stays without one.
    pub(super) fn remove_row(&self, row: u32) -> Splice {
        let record = self.record_at(self.row_starts[row as usize] as usize);
        let mut from = record.start;
        if record.end == record.next {
            let before = &self.text[..from];
            let line_end = ["\r\n", "\n", "\r"].into_iter().find(|end| before.ends_with(end));
            from -= line_end.map_or(0, str::len);
        }
        Splice { range: from..record.next, replacement: String::new() }
    }

    /// Sets the texts of some columns of a row, by their positions. `None` if the row has them already.
    pub(super) fn set_fields(&self, row: u32, texts: &[(usize, &str)]) -> Option<Splice> {
        let mut splice: Option<Splice> = None;
        let mut at = self.row_starts[row as usize] as usize;
        for column in 0..self.header.len() {
            let field = self.field_at(at);
            let whole = field.raw_span(at);
            let new = texts.iter().rev().find(|(position, _)| *position == column).map(|(_, text)| *text);
            if let Some(new) = new.filter(|new| field.text(&self.text) != *new) {
                let splice = splice
                    .get_or_insert(Splice { range: whole.start..whole.start, replacement: String::new() });
                splice.replacement.push_str(&self.text[splice.range.end..whole.start]);
                let is_empty = whole.is_empty() && !new.is_empty();
                let is_quoted = match is_empty {
                    true => self.should_quote(row, column, false),
                    false => self.is_quoted(at) || (self.header.len() == 1 && new.is_empty()),
                };
                self.write_field(new, is_quoted, &mut splice.replacement);
                splice.range.end = whole.end;
            }
            at = field.next;
        }
        splice
    }

    /// Whether a field of this column should be quoted, judging by the rows before: empty fields by empty fields,
    /// others by others.
    fn should_quote(&self, row: u32, column: usize, is_empty: bool) -> bool {
        for before in (0..row).rev().take(QUOTE_STYLE_ROWS_MAX as usize) {
            let at = self.field_start(before, column) as usize;
            if self.field_at(at).text(&self.text).is_empty() == is_empty {
                return self.is_quoted(at);
            }
        }
        self.record_before(row).is_all_quoted
    }

    fn write_field(&self, text: &str, is_quoted: bool, out: &mut String) {
        let delimiter = char::from(self.splitter.delimiter);
        if is_quoted || text.contains(['"', '\n', '\r', delimiter]) {
            out.push('"');
            out.push_str(&text.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(text);
        }
    }
}

impl Splice {
    pub(super) fn apply_to_text(&self, text: &str) -> String {
        [&text[..self.range.start], &self.replacement, &text[self.range.end..]].concat()
    }

    /// Applies the splice to the file's bytes. Fails with the first character that the encoding lacks.
    pub(super) fn apply_to_bytes(&self, table: &CsvTable, bytes: &[u8]) -> Result<Vec<u8>, char> {
        let encoding = table.encoding;
        let from = encoding.encoded_len(&table.text[..self.range.start]);
        let removed = encoding.encode(&table.text[self.range.clone()])?.len();
        let with = encoding.encode(&self.replacement)?;
        Ok([&bytes[..from], &with, &bytes[from + removed..]].concat())
    }
}
