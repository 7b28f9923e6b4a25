//! A file's text and where its rows begin.

use std::borrow::Cow;
use std::iter::Enumerate;

use contract::Kind;

use super::encode::Encoding;
use super::split::{End, Field, Split};
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
    pub(super) fn fields(&self, row: u32) -> Fields<'_> {
        let all = Row { table: self, at: Some(self.rows[row as usize] as usize) };
        Fields { all: all.enumerate(), last: None }
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
    all: Enumerate<Row<'a>>,
    last: Option<(usize, Field)>,
}

impl Fields<'_> {
    /// The field at this place, which is the one before or comes behind it.
    #[inline(always)]
    pub(super) fn at(&mut self, place: usize) -> Field {
        match self.last {
            Some((before, field)) if before == place => field,
            _ => {
                self.last = self.all.find(|(this, _)| *this == place);
                self.last.expect("rows with too few fields are not loaded").1
            }
        }
    }
}

/// The fields of one row, from the first.
struct Row<'a> {
    table: &'a Table,
    at: Option<usize>,
}

impl Iterator for Row<'_> {
    type Item = Field;

    #[inline]
    fn next(&mut self) -> Option<Field> {
        let field = self.table.split.field(self.table.text.as_bytes(), self.at?);
        self.at = match field.end {
            End::Delimiter => Some(field.next),
            End::Record | End::Open => None,
        };
        Some(field)
    }
}
