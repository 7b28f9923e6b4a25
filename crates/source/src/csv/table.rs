//! A file's text and where its rows begin.

use std::borrow::Cow;

use contract::DataType;
use contract::source::NearMiss;

use super::encode::TextEncoding;
use super::location::{TextLocation, line_at};
use super::splitter::{Field, FieldSplitter};

pub(super) struct CsvTable {
    pub(super) text: String,
    /// How the text is written in the file.
    pub(super) encoding: TextEncoding,
    pub(super) splitter: FieldSplitter,
    /// Where each row begins.
    pub(super) row_starts: Vec<u32>,
    /// Where the header begins.
    pub(super) header_start: usize,
    pub(super) header: Vec<String>,
    pub(super) profiles: Vec<CsvColumnProfile>,
    pub(super) notes: Vec<String>,
}

/// What there is in one column.
pub(super) struct CsvColumnProfile {
    pub(super) data_type: DataType,
    pub(super) has_empty: bool,
    /// Whether the text that means "no value" is there.
    pub(super) has_null: bool,
    pub(super) distinct_values: Vec<String>,
    pub(super) near_miss: Option<NearMiss>,
}

impl CsvColumnProfile {
    /// An empty cell is a text like any other where the column is text.
    pub(super) fn empty_is_null(&self) -> bool {
        self.data_type != DataType::Text
    }
}

impl CsvTable {
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.row_starts.len()).expect("every row has a byte, and there are less than 2^32")
    }

    /// The fields of a row by their places.
    #[inline]
    pub(super) fn fields(&self, row: u32) -> FieldCursor<'_> {
        let begin = self.row_starts[row as usize] as usize;
        FieldCursor { table: self, index: 0, field: self.splitter.field_at(self.text.as_bytes(), begin) }
    }

    /// Where a field begins, quote included. Rows with too few fields are not loaded.
    #[inline]
    pub(super) fn field_start(&self, row: u32, column: usize) -> u32 {
        let mut at = self.row_starts[row as usize];
        for _ in 0..column {
            at = self.splitter.field_at(self.text.as_bytes(), at as usize).next as u32;
        }
        at
    }

    #[inline]
    pub(super) fn field_text(&self, row: u32, column: usize) -> Cow<'_, str> {
        self.field_text_at(self.field_start(row, column))
    }

    /// What the field says that begins at a byte.
    #[inline]
    pub(super) fn field_text_at(&self, at: u32) -> Cow<'_, str> {
        self.splitter.field_at(self.text.as_bytes(), at as usize).text(&self.text)
    }

    /// Where a field stands, quotes included.
    pub(super) fn field_location(&self, row: u32, column: usize) -> TextLocation {
        let from = self.field_start(row, column) as usize;
        TextLocation::new(&self.text, self.splitter.field_at(self.text.as_bytes(), from).raw_span(from))
    }

    /// The line on which a row begins.
    pub(super) fn row_line(&self, row: u32) -> usize {
        line_at(self.text.as_bytes(), self.row_starts[row as usize] as usize)
    }
}

/// The fields of one row, to be asked for in the order in which they stand.
pub(super) struct FieldCursor<'a> {
    table: &'a CsvTable,
    index: usize,
    field: Field,
}

impl FieldCursor<'_> {
    /// The field at this place, which is not before the last one. Rows with too few fields are not loaded.
    #[inline(always)]
    pub(super) fn seek(&mut self, place: usize) -> Field {
        while self.index < place {
            self.field = self.table.splitter.field_at(self.table.text.as_bytes(), self.field.next);
            self.index += 1;
        }
        self.field
    }
}
