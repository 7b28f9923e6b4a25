//! Values that were decoded from a row.

use contract::ValueRef;

/// A value of a row: borrowed from the row, or a text that was made from it.
#[derive(Debug, PartialEq)]
pub(crate) enum Cell<'r> {
    Borrowed(ValueRef<'r>),
    Text(String),
}

impl Cell<'_> {
    pub(crate) fn as_value_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Borrowed(value) => *value,
            Self::Text(text) => ValueRef::Text(text),
        }
    }
}

/// The bytes are not what the type promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A number that may not be one.
pub(crate) fn float<'r>(n: f64) -> Result<Cell<'r>, Malformed> {
    Ok(Cell::Borrowed(if n.is_nan() { ValueRef::Text("NaN") } else { ValueRef::Real(n) }))
}
