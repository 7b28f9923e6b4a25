//! Rows copied out of SQLite before the lock is released: three growing buffers, no allocation per value.

use std::ops::Range;

use contract::{Value, ValueRef};

#[derive(Debug, Default)]
pub(crate) struct RowBuffer {
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
    pub(crate) fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.texts.clear();
        self.blobs.clear();
        self.positions.clear();
    }

    pub(crate) fn row_count(&self) -> usize {
        self.positions.len()
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.texts.len() + self.blobs.len() + self.values.len() * size_of::<BufferedValue>()
    }

    /// Adds a value to the current row.
    pub(crate) fn push(&mut self, value: ValueRef<'_>) {
        self.values.push(match value {
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
    pub(crate) fn end_row(&mut self, position: i64) {
        self.positions.push(position);
        debug_assert_eq!(self.values.len(), self.positions.len() * self.width);
    }

    /// Keeps only the first `rows` rows.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.positions.truncate(rows);
        self.values.truncate(rows * self.width);
    }

    pub(crate) fn position(&self, row: usize) -> i64 {
        self.positions[row]
    }

    pub(crate) fn value_ref(&self, row: usize, column: usize) -> ValueRef<'_> {
        match &self.values[row * self.width + column] {
            BufferedValue::Null => ValueRef::Null,
            BufferedValue::Integer(n) => ValueRef::Integer(*n),
            BufferedValue::Real(n) => ValueRef::Real(*n),
            BufferedValue::Text(range) => ValueRef::Text(&self.texts[range.clone()]),
            BufferedValue::Blob(range) => ValueRef::Blob(&self.blobs[range.clone()]),
        }
    }

    pub(crate) fn value(&self, row: usize, column: usize) -> Value {
        self.value_ref(row, column).to_value()
    }

    pub(crate) fn row(&self, row: usize) -> Vec<ValueRef<'_>> {
        (0..self.width).map(|column| self.value_ref(row, column)).collect()
    }
}
