//! Rows kept aside until the lock is given back: three growing buffers, no allocation for each value.

use std::ops::Range;

use contract::{Cell, Value};

#[derive(Debug, Default)]
pub(super) struct Page {
    width: usize,
    slots: Vec<Slot>,
    texts: String,
    blobs: Vec<u8>,
    places: Vec<i64>,
}

#[derive(Debug, Clone)]
enum Slot {
    Null,
    Integer(i64),
    Real(f64),
    Text(Range<usize>),
    Blob(Range<usize>),
}

impl Page {
    pub(super) fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.texts.clear();
        self.blobs.clear();
        self.places.clear();
    }

    pub(super) fn rows(&self) -> usize {
        self.places.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.texts.len() + self.blobs.len() + self.slots.len() * size_of::<Slot>()
    }

    /// Adds a value to the row that is being made.
    pub(super) fn push(&mut self, cell: Cell<'_>) {
        self.slots.push(match cell {
            Cell::Null => Slot::Null,
            Cell::Integer(n) => Slot::Integer(n),
            Cell::Real(n) => Slot::Real(n),
            Cell::Text(text) => {
                let start = self.texts.len();
                self.texts.push_str(text);
                Slot::Text(start..self.texts.len())
            }
            Cell::Blob(bytes) => {
                let start = self.blobs.len();
                self.blobs.extend_from_slice(bytes);
                Slot::Blob(start..self.blobs.len())
            }
        });
    }

    /// Ends a row that has all its values.
    pub(super) fn end_row(&mut self, place: i64) {
        self.places.push(place);
        debug_assert_eq!(self.slots.len(), self.places.len() * self.width);
    }

    /// Takes back all rows but the first.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.places.truncate(rows);
        self.slots.truncate(rows * self.width);
    }

    pub(super) fn place(&self, row: usize) -> i64 {
        self.places[row]
    }

    pub(super) fn cell(&self, row: usize, column: usize) -> Cell<'_> {
        match &self.slots[row * self.width + column] {
            Slot::Null => Cell::Null,
            Slot::Integer(n) => Cell::Integer(*n),
            Slot::Real(n) => Cell::Real(*n),
            Slot::Text(range) => Cell::Text(&self.texts[range.clone()]),
            Slot::Blob(range) => Cell::Blob(&self.blobs[range.clone()]),
        }
    }

    pub(super) fn value(&self, row: usize, column: usize) -> Value {
        self.cell(row, column).to_value()
    }

    pub(super) fn cells(&self, row: usize) -> Vec<Cell<'_>> {
        (0..self.width).map(|column| self.cell(row, column)).collect()
    }
}
