//! The text of a file, and where its rows start.

use std::borrow::Cow;

use contract::source::{AmbiguousFormat, HeaderRows, LayoutNote, NearMiss};
use contract::{ColumnFormat, DataType};

use super::encode::TextEncoding;
use super::formula_guard::LeadingSigns;
use super::location::{TextLocation, line_at};
use super::splitter::{Field, FieldSplitter};

pub(super) struct CsvTable {
    pub(super) text: String,
    /// The encoding of the file.
    pub(super) encoding: TextEncoding,
    pub(super) splitter: FieldSplitter,
    /// The byte at which each row starts.
    pub(super) row_starts: Vec<u32>,
    /// The byte at which the last row of the header starts.
    pub(super) header_start: usize,
    pub(super) header: Vec<String>,
    pub(super) header_rows: HeaderRows,
    /// The line that probably has the column names, if the header looks like a title.
    pub(super) likely_header_row: Option<u32>,
    pub(super) layout_notes: Vec<LayoutNote>,
    /// Why a write would make the file wrong.
    pub(super) read_only_reason: Option<String>,
    pub(super) profiles: Vec<CsvColumnProfile>,
    pub(super) notes: Vec<String>,
}

/// The values of one column.
pub(super) struct CsvColumnProfile {
    pub(super) data_type: DataType,
    pub(super) format: Option<ColumnFormat>,
    pub(super) ambiguous_format: Option<AmbiguousFormat>,
    /// The texts that mean "no value", with which the profile was made.
    pub(super) null_texts: Vec<String>,
    pub(super) has_values: bool,
    pub(super) has_empty: bool,
    /// Whether some field is the text that means "no value".
    pub(super) has_null: bool,
    pub(super) distinct_values: Vec<String>,
    pub(super) leading_signs: LeadingSigns,
    pub(super) near_miss: Option<NearMiss>,
}

impl CsvColumnProfile {
    /// Whether the texts are numbers whose notation is ambiguous.
    pub(super) fn may_be_measure(&self) -> bool {
        self.ambiguous_format.as_ref().is_some_and(AmbiguousFormat::is_number)
    }
}

impl CsvColumnProfile {
    /// In a text column an empty field is a text like any other.
    pub(super) fn empty_is_null(&self) -> bool {
        self.data_type != DataType::Text
    }
}

impl CsvTable {
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.row_starts.len()).expect("every row has a byte, and there are less than 2^32")
    }

    /// A cursor over the fields of a row.
    #[inline]
    pub(super) fn fields(&self, row: u32) -> FieldCursor<'_> {
        let begin = self.row_starts[row as usize] as usize;
        FieldCursor { table: self, index: 0, field: self.splitter.field_at(self.text.as_bytes(), begin) }
    }

    /// The byte at which a field starts, quote included. Every loaded row has a field per column.
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

    /// The text of the field that starts at a byte.
    #[inline]
    pub(super) fn field_text_at(&self, at: u32) -> Cow<'_, str> {
        self.splitter.field_at(self.text.as_bytes(), at as usize).text(&self.text)
    }

    /// The location of a field, quotes included.
    pub(super) fn field_location(&self, row: u32, column: usize) -> TextLocation {
        let from = self.field_start(row, column) as usize;
        TextLocation::new(&self.text, self.splitter.field_at(self.text.as_bytes(), from).raw_span(from))
    }

    /// The line on which a row starts.
    pub(super) fn row_line(&self, row: u32) -> usize {
        line_at(self.text.as_bytes(), self.row_starts[row as usize] as usize)
    }
}

/// The fields of one row, read from left to right.
pub(super) struct FieldCursor<'a> {
    table: &'a CsvTable,
    index: usize,
    field: Field,
}

impl FieldCursor<'_> {
    /// The field at this position, which must not be before the previous one. Every loaded row has a field per
    /// column.
    #[inline(always)]
    pub(super) fn seek(&mut self, position: usize) -> Field {
        while self.index < position {
            self.field = self.table.splitter.field_at(self.table.text.as_bytes(), self.field.next);
            self.index += 1;
        }
        self.field
    }
}
