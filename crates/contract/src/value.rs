//! One value of one row, as a source stores it.

use std::cmp::Ordering;

/// A borrowed value, from a row or from the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    Null,
    Text(&'a str),
    Integer(i64),
    Real(f64),
    Blob(&'a [u8]),
}

/// An owned value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Text(String),
    Integer(i64),
    Real(f64),
    Blob(Vec<u8>),
}

impl ValueRef<'_> {
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Text(text) => Value::Text(text.into()),
            Self::Integer(n) => Value::Integer(n),
            Self::Real(n) => Value::Real(n),
            Self::Blob(bytes) => Value::Blob(bytes.into()),
        }
    }

    /// SQLite's order: NULL, numbers, texts by their bytes, blobs. Every source sorts this way.
    pub fn sql_cmp(self, other: ValueRef<'_>) -> Ordering {
        use ValueRef::{Blob, Integer, Null, Real, Text};
        match (self, other) {
            (Integer(a), Integer(b)) => a.cmp(&b),
            // -0.0 equals 0.0.
            (Real(a), Real(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
            (Integer(a), Real(b)) => (a as f64).total_cmp(&(b + 0.0)),
            (Real(a), Integer(b)) => (a + 0.0).total_cmp(&(b as f64)),
            (Text(a), Text(b)) => a.cmp(b),
            (Blob(a), Blob(b)) => a.cmp(b),
            (Null, Null) => Ordering::Equal,
            (a, b) => a.storage_class().cmp(&b.storage_class()),
        }
    }

    /// Passes what identifies the value to a digest: its type, its length and its content. Two different rows of the same length
    /// never pass the same bytes, and a later build passes the same ones.
    pub fn write_identity(self, part: &mut dyn FnMut(&[u8])) {
        let integer;
        let (tag, bytes): (u8, &[u8]) = match self {
            Self::Null => (0, &[]),
            Self::Integer(n) => {
                integer = n.to_be_bytes();
                (1, &integer)
            }
            Self::Real(n) => {
                integer = n.to_bits().to_be_bytes();
                (2, &integer)
            }
            Self::Text(text) => (3, text.as_bytes()),
            Self::Blob(bytes) => (4, bytes),
        };
        part(&[tag]);
        part(&(bytes.len() as u64).to_be_bytes());
        part(bytes);
    }

    fn storage_class(self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Integer(_) | Self::Real(_) => 1,
            Self::Text(_) => 2,
            Self::Blob(_) => 3,
        }
    }
}

impl Value {
    pub fn as_value_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Text(text) => ValueRef::Text(text),
            Self::Integer(n) => ValueRef::Integer(*n),
            Self::Real(n) => ValueRef::Real(*n),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }
    }
}
