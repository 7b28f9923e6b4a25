//! Where a row stands in the text, and what stands there instead.
//!
//! A splice is as short as it can be. Line ends, quotes, blanks: what a touched row or its neighbours have is kept or
//! taken after.

use std::ops::Range;

use super::split::{End, Field};
use super::table::Table;

/// A text in place of another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) at: Range<usize>,
    pub(super) with: String,
}

/// How far back to look for how fields of a column are quoted.
const STYLE_ROWS_MAX: u32 = 64;

/// One record where it stands.
struct Record {
    begin: usize,
    /// Behind its last field.
    end: usize,
    /// Behind what ends its line.
    next: usize,
    is_all_quoted: bool,
}

impl Table {
    fn record(&self, begin: usize) -> Record {
        let mut at = begin;
        let mut is_all_quoted = true;
        loop {
            let field = self.field_at(at);
            is_all_quoted &= self.is_quoted(at);
            if field.end != End::Delimiter {
                return Record { begin, end: field.whole(at).end, next: field.next, is_all_quoted };
            }
            at = field.next;
        }
    }

    fn field_at(&self, at: usize) -> Field {
        self.split.field(self.text.as_bytes(), at)
    }

    fn is_quoted(&self, at: usize) -> bool {
        self.text.as_bytes().get(at) == Some(&b'"')
    }

    /// The record before a row: another row, or the header.
    fn record_before(&self, row: u32) -> Record {
        let before = row.checked_sub(1).map_or(self.header_at, |before| self.rows[before as usize] as usize);
        self.record(before)
    }

    /// A new row behind the last one. Has a text for each column.
    pub(super) fn append(&self, texts: &[&str]) -> Splice {
        let last = self.record_before(self.len());
        let mut row = String::new();
        for (column, text) in texts.iter().enumerate() {
            if column > 0 {
                row.push(char::from(self.split.delimiter));
            }
            let is_quoted = self.style(self.len(), column, text.is_empty());
            self.put(text, is_quoted || (texts.len() == 1 && text.is_empty()), &mut row);
        }
        let ended = &self.text[last.end..last.next];
        let with = match ended {
            // It keeps having none.
            "" => {
                let header = self.record(self.header_at);
                let line_end = &self.text[header.end..header.next];
                format!("{}{row}", if line_end.is_empty() { "\n" } else { line_end })
            }
            ended => row + ended,
        };
        Splice { at: last.next..last.next, with }
    }

    /// A row without its line. The last line of a file that ends without a line's end leaves it so.
    pub(super) fn remove(&self, row: u32) -> Splice {
        let record = self.record(self.rows[row as usize] as usize);
        let mut from = record.begin;
        if record.end == record.next {
            let before = &self.text[..from];
            let line_end = ["\r\n", "\n", "\r"].into_iter().find(|end| before.ends_with(end));
            from -= line_end.map_or(0, str::len);
        }
        Splice { at: from..record.next, with: String::new() }
    }

    /// A row with other texts in some columns, by their places. Nothing if it has them already.
    pub(super) fn set(&self, row: u32, texts: &[(usize, &str)]) -> Option<Splice> {
        let mut splice: Option<Splice> = None;
        let mut at = self.rows[row as usize] as usize;
        for column in 0..self.header.len() {
            let field = self.field_at(at);
            let whole = field.whole(at);
            let new = texts.iter().rev().find(|(place, _)| *place == column).map(|(_, text)| *text);
            if let Some(new) = new.filter(|new| field.text(&self.text) != *new) {
                let splice =
                    splice.get_or_insert(Splice { at: whole.start..whole.start, with: String::new() });
                splice.with.push_str(&self.text[splice.at.end..whole.start]);
                let is_empty = whole.is_empty() && !new.is_empty();
                let is_quoted = match is_empty {
                    true => self.style(row, column, false),
                    false => self.is_quoted(at) || (self.header.len() == 1 && new.is_empty()),
                };
                self.put(new, is_quoted, &mut splice.with);
                splice.at.end = whole.end;
            }
            at = field.next;
        }
        splice
    }

    /// Whether a field of this column would be quoted, going by the rows before: texts by texts, and nothing by
    /// nothing.
    fn style(&self, row: u32, column: usize, is_empty: bool) -> bool {
        for before in (0..row).rev().take(STYLE_ROWS_MAX as usize) {
            let at = self.begin(before, column) as usize;
            if self.field_at(at).text(&self.text).is_empty() == is_empty {
                return self.is_quoted(at);
            }
        }
        self.record_before(row).is_all_quoted
    }

    fn put(&self, text: &str, is_quoted: bool, out: &mut String) {
        let delimiter = char::from(self.split.delimiter);
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
    pub(super) fn text(&self, text: &str) -> String {
        [&text[..self.at.start], &self.with, &text[self.at.end..]].concat()
    }

    /// The same in the file's own bytes. `with` can be written in them.
    pub(super) fn bytes(&self, table: &Table, bytes: &[u8]) -> Result<Vec<u8>, char> {
        let encoding = table.written;
        let from = encoding.place(&table.text[..self.at.start]);
        let removed = encoding.encode(&table.text[self.at.clone()])?.len();
        let with = encoding.encode(&self.with)?;
        Ok([&bytes[..from], &with, &bytes[from + removed..]].concat())
    }
}
