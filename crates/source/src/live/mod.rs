//! What is the same for all tables that are held in memory, whatever kind of file they came from.

pub(crate) mod order;

use contract::Cell;

/// A value as it is told: as the table has it, or as something that had to be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told<'a> {
    Cell(Cell<'a>),
    Text(String),
    Bytes(Vec<u8>),
}

impl Told<'_> {
    #[inline]
    pub(crate) fn cell(&self) -> Cell<'_> {
        match self {
            Self::Cell(cell) => *cell,
            Self::Text(text) => Cell::Text(text),
            Self::Bytes(bytes) => Cell::Blob(bytes),
        }
    }
}
