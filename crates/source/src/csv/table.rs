//! A file's text and where its rows begin.

use std::borrow::Cow;

use contract::Kind;

use super::encode::Encoding;
use super::split::{Field, Split};
use super::spot::{Spot, line_at};

pub(super) struct Table {
    pub(super) text: String,
    /// How the text is written in the file.
    pub(super) written: Encoding,
    pub(super) split: Split,
    /// Where each row begins.
    pub(super) rows: Vec<u32>,
    /// Where the header begins.
    pub(super) header_at: usize,
    pub(super) header: Vec<String>,
    pub(super) columns: Vec<Seen>,
    pub(super) notes: Vec<String>,
}

/// What there is in one column.
pub(super) struct Seen {
    pub(super) kind: Kind,
    pub(super) has_empty: bool,
    /// Whether the text that means "no value" is there.
    pub(super) has_null: bool,
    pub(super) values: Vec<String>,
}

impl Seen {
    /// An empty cell is a text like any other where the column is text.
    pub(super) fn empty_is_null(&self) -> bool {
        self.kind != Kind::Text
    }
}

impl Table {
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.rows.len()).expect("every row has a byte, and there are less than 2^32")
    }

    /// The fields of a row by their places.
    #[inline]
    pub(super) fn fields(&self, row: u32) -> Fields<'_> {
        let begin = self.rows[row as usize] as usize;
        Fields { table: self, place: 0, field: self.split.field(self.text.as_bytes(), begin) }
    }

    /// Where a field begins, quote included. Rows with too few fields are not loaded.
    #[inline]
    pub(super) fn begin(&self, row: u32, column: usize) -> u32 {
        let mut at = self.rows[row as usize];
        for _ in 0..column {
            at = self.split.field(self.text.as_bytes(), at as usize).next as u32;
        }
        at
    }

    #[inline]
    pub(super) fn text(&self, row: u32, column: usize) -> Cow<'_, str> {
        self.text_at(self.begin(row, column))
    }

    /// What the field says that begins at a byte.
    #[inline]
    pub(super) fn text_at(&self, at: u32) -> Cow<'_, str> {
        self.split.field(self.text.as_bytes(), at as usize).text(&self.text)
    }

    /// Where a field stands, quotes included.
    pub(super) fn spot(&self, row: u32, column: usize) -> Spot {
        let from = self.begin(row, column) as usize;
        Spot::new(&self.text, self.split.field(self.text.as_bytes(), from).whole(from))
    }

    /// The line on which a row begins.
    pub(super) fn line(&self, row: u32) -> usize {
        line_at(self.text.as_bytes(), self.rows[row as usize] as usize)
    }
}

/// The fields of one row, to be asked for in the order in which they stand.
pub(super) struct Fields<'a> {
    table: &'a Table,
    place: usize,
    field: Field,
}

impl Fields<'_> {
    /// The field at this place, which is not before the last one. Rows with too few fields are not loaded.
    #[inline(always)]
    pub(super) fn at(&mut self, place: usize) -> Field {
        while self.place < place {
            self.field = self.table.split.field(self.table.text.as_bytes(), self.field.next);
            self.place += 1;
        }
        self.field
    }
}
