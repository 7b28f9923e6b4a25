//! Where a row stands in the text, and what stands there instead.
//!
//! A splice is as short as it can be. Line ends, quotes, blanks: what a touched row or its neighbours have is kept or
//! taken after.

use std::ops::Range;

use super::splitter::{Field, Terminator};
use super::table::CsvTable;

/// A text in place of another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) replacement: String,
}

/// How far back to look for how fields of a column are quoted.
const QUOTE_STYLE_ROWS_MAX: u32 = 64;

/// One record where it stands.
struct RecordSpan {
    start: usize,
    /// Behind its last field.
    end: usize,
    /// Behind what ends its line.
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

    /// The record before a row: another row, or the header.
    fn record_before(&self, row: u32) -> RecordSpan {
        let before =
            row.checked_sub(1).map_or(self.header_start, |before| self.row_starts[before as usize] as usize);
        self.record_at(before)
    }

    /// A new row behind the last one. Has a text for each column.
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
            // It keeps having none.
            "" => {
                let header = self.record_at(self.header_start);
                let line_end = &self.text[header.end..header.next];
                format!("{}{row}", if line_end.is_empty() { "\n" } else { line_end })
            }
            ended => row + ended,
        };
        Splice { range: last.next..last.next, replacement: with }
    }

    /// A row without its line. The last line of a file that ends without a line's end leaves it so.
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

    /// A row with other texts in some columns, by their places. Nothing if it has them already.
    pub(super) fn set_fields(&self, row: u32, texts: &[(usize, &str)]) -> Option<Splice> {
        let mut splice: Option<Splice> = None;
        let mut at = self.row_starts[row as usize] as usize;
        for column in 0..self.header.len() {
            let field = self.field_at(at);
            let whole = field.raw_span(at);
            let new = texts.iter().rev().find(|(place, _)| *place == column).map(|(_, text)| *text);
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

    /// Whether a field of this column would be quoted, going by the rows before: texts by texts, and nothing by
    /// nothing.
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

    /// The same in the file's own bytes. `with` can be written in them.
    pub(super) fn apply_to_bytes(&self, table: &CsvTable, bytes: &[u8]) -> Result<Vec<u8>, char> {
        let encoding = table.encoding;
        let from = encoding.encoded_len(&table.text[..self.range.start]);
        let removed = encoding.encode(&table.text[self.range.clone()])?.len();
        let with = encoding.encode(&self.replacement)?;
        Ok([&bytes[..from], &with, &bytes[from + removed..]].concat())
    }
}
