//! Rows kept aside until the lock is given back: three growing buffers, no allocation for each value.

use std::ops::Range;

use contract::{Value, ValueRef};

#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    width: usize,
    values: Vec<BufferedValue>,
    texts: String,
    blobs: Vec<u8>,
    positions: Vec<i64>,
}

#[derive(Debug, Clone)]
enum BufferedValue {
    Null,
    Integer(i64),
    Real(f64),
    Text(Range<usize>),
    Blob(Range<usize>),
}

impl RowBuffer {
    pub(super) fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.texts.clear();
        self.blobs.clear();
        self.positions.clear();
    }

    pub(super) fn row_count(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn byte_len(&self) -> usize {
        self.texts.len() + self.blobs.len() + self.values.len() * size_of::<BufferedValue>()
    }

    /// Adds a value to the row that is being made.
    pub(super) fn push(&mut self, cell: ValueRef<'_>) {
        self.values.push(match cell {
            ValueRef::Null => BufferedValue::Null,
            ValueRef::Integer(n) => BufferedValue::Integer(n),
            ValueRef::Real(n) => BufferedValue::Real(n),
            ValueRef::Text(text) => {
                let start = self.texts.len();
                self.texts.push_str(text);
                BufferedValue::Text(start..self.texts.len())
            }
            ValueRef::Blob(bytes) => {
                let start = self.blobs.len();
                self.blobs.extend_from_slice(bytes);
                BufferedValue::Blob(start..self.blobs.len())
            }
        });
    }

    /// Ends a row that has all its values.
    pub(super) fn end_row(&mut self, place: i64) {
        self.positions.push(place);
        debug_assert_eq!(self.values.len(), self.positions.len() * self.width);
    }

    /// Takes back all rows but the first.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.positions.truncate(rows);
        self.values.truncate(rows * self.width);
    }

    pub(super) fn position(&self, row: usize) -> i64 {
        self.positions[row]
    }

    pub(super) fn value_ref(&self, row: usize, column: usize) -> ValueRef<'_> {
        match &self.values[row * self.width + column] {
            BufferedValue::Null => ValueRef::Null,
            BufferedValue::Integer(n) => ValueRef::Integer(*n),
            BufferedValue::Real(n) => ValueRef::Real(*n),
            BufferedValue::Text(range) => ValueRef::Text(&self.texts[range.clone()]),
            BufferedValue::Blob(range) => ValueRef::Blob(&self.blobs[range.clone()]),
        }
    }

    pub(super) fn value(&self, row: usize, column: usize) -> Value {
        self.value_ref(row, column).to_value()
    }

    pub(super) fn row(&self, row: usize) -> Vec<ValueRef<'_>> {
        (0..self.width).map(|column| self.value_ref(row, column)).collect()
    }
}
