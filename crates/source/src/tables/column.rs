//! One column as a contract reads it: how the file's values are told, and what they must be.

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::infer::{self, SAFE_INTEGER_MAX};
use contract::order::SortRank;
use contract::{DataType, ValueRef};

use super::table::{StoredValue, Table};
use crate::snapshot_reader::{CowValue, SortableColumn};

#[derive(Debug, Clone)]
pub(super) struct TableColumn {
    pub(super) name: String,
    /// The place in the table; none if no row names it.
    pub(super) column_index: Option<usize>,
    pub(super) data_type: DataType,
    pub(super) mixed: bool,
    /// Text that means "no value".
    pub(super) null_text: Option<String>,
    /// Whether a text in a column of JSON is a string of it, and not its source.
    pub(super) has_nested_json: bool,
}

/// What tells one key from another. Where texts stand beside numbers, `7` and `"7"` are two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyValue<'a> {
    Integer(i64),
    Text(Cow<'a, str>),
}

impl TableColumn {
    #[inline]
    pub(super) fn value<'a>(&self, table: &'a Table, row: u32) -> CowValue<'a> {
        self.column_index
            .map_or(CowValue::Borrowed(ValueRef::Null), |field| self.to_value(table.value(row, field)))
    }

    /// A value of the file as what the kind says.
    #[inline]
    pub(super) fn to_value<'a>(&self, held: StoredValue<'a>) -> CowValue<'a> {
        match held {
            StoredValue::Null => CowValue::Borrowed(ValueRef::Null),
            StoredValue::Text(text) if self.null_text.as_deref() == Some(text) => {
                CowValue::Borrowed(ValueRef::Null)
            }
            StoredValue::Text(text) if self.data_type == DataType::Json && self.has_nested_json => {
                let mut out = Vec::with_capacity(text.len() + 2);
                json::write::string(&mut out, text);
                CowValue::Text(String::from_utf8_lossy(&out).into_owned())
            }
            StoredValue::Text(text) if self.data_type == DataType::Blob => {
                decode_base64(text).map_or(CowValue::Borrowed(ValueRef::Text(text)), CowValue::Bytes)
            }
            StoredValue::Text(text) | StoredValue::DateTime(text) | StoredValue::Json(text) => {
                CowValue::Borrowed(ValueRef::Text(text))
            }
            StoredValue::Blob(bytes) => CowValue::Borrowed(ValueRef::Blob(bytes)),
            StoredValue::Boolean(yes) if self.data_type == DataType::Boolean => {
                CowValue::Borrowed(ValueRef::Integer(yes.into()))
            }
            StoredValue::Boolean(yes) => {
                CowValue::Borrowed(ValueRef::Text(if yes { "true" } else { "false" }))
            }
            StoredValue::Integer(n) if self.reads_numbers() => CowValue::Borrowed(ValueRef::Integer(n)),
            StoredValue::Integer(n) => CowValue::Text(n.to_string()),
            StoredValue::Real(n) if self.reads_numbers() => CowValue::Borrowed(ValueRef::Real(n)),
            StoredValue::Real(n) => CowValue::Text(format_real(n)),
            StoredValue::NumberText(digits) if self.data_type == DataType::Number => {
                match digits.parse::<f64>() {
                    Ok(n) if n.is_finite() => CowValue::Borrowed(ValueRef::Real(n)),
                    _ => CowValue::Borrowed(ValueRef::Text(digits)),
                }
            }
            StoredValue::NumberText(digits) => CowValue::Borrowed(ValueRef::Text(digits)),
        }
    }

    /// Whether a number is told as one. Beside `true` and `false`, 1 and 0 are something else.
    fn reads_numbers(&self) -> bool {
        match self.data_type {
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number => true,
            DataType::Boolean => !self.mixed,
            DataType::Text
            | DataType::Date
            | DataType::Timestamp
            | DataType::LocalTimestamp
            | DataType::Json
            | DataType::Blob => false,
        }
    }

    /// Whether a value that is told is what the contract says.
    pub(super) fn accepts(&self, cell: ValueRef<'_>) -> bool {
        let is_exact = |n: i64| (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n);
        match (self.data_type, cell) {
            (_, ValueRef::Null) => true,
            _ if self.mixed => true,
            (DataType::Text, ValueRef::Text(_)) | (DataType::Blob, ValueRef::Blob(_)) => true,
            (DataType::Json, ValueRef::Text(text)) => {
                self.has_nested_json || infer::matches_type(DataType::Json, text)
            }
            (DataType::Int64 | DataType::Decimal, ValueRef::Integer(_)) => true,
            (DataType::Integer | DataType::Number, ValueRef::Integer(n)) => is_exact(n),
            (DataType::Decimal | DataType::Number, ValueRef::Real(n)) => n.is_finite(),
            (DataType::Boolean, ValueRef::Integer(0 | 1)) => true,
            (
                DataType::Integer
                | DataType::Int64
                | DataType::Decimal
                | DataType::Number
                | DataType::Boolean
                | DataType::Date
                | DataType::Timestamp
                | DataType::LocalTimestamp,
                ValueRef::Text(text),
            ) => infer::matches_type(self.data_type, text),
            (_, ValueRef::Text(_) | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_)) => false,
        }
    }

    /// What makes a key of a value, its own or a caller's: the same for the same.
    #[inline]
    pub(super) fn key_value<'a>(&self, cell: ValueRef<'a>) -> Option<KeyValue<'a>> {
        match (self.data_type, cell) {
            (
                DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
                ValueRef::Integer(n),
            ) => Some(KeyValue::Integer(n)),
            (
                DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
                ValueRef::Text(text),
            ) if !self.mixed => {
                let whole = if infer::matches_type(DataType::Int64, text) { text.parse().ok() } else { None };
                Some(whole.map_or(KeyValue::Text(Cow::Borrowed(text)), KeyValue::Integer))
            }
            (DataType::Number, ValueRef::Real(n))
                if n.fract() == 0.0 && n.abs() <= SAFE_INTEGER_MAX as f64 =>
            {
                Some(KeyValue::Integer(n as i64))
            }
            (_, cell) => self.to_text(cell).map(KeyValue::Text),
        }
    }

    /// How a value is written where it is read by people.
    #[inline]
    pub(super) fn to_text<'a>(&self, cell: ValueRef<'a>) -> Option<Cow<'a, str>> {
        match cell {
            ValueRef::Text(text) => Some(Cow::Borrowed(text)),
            ValueRef::Integer(n) if self.data_type == DataType::Boolean => {
                Some(Cow::Borrowed(if n == 0 { "false" } else { "true" }))
            }
            ValueRef::Integer(n) => Some(Cow::Owned(n.to_string())),
            ValueRef::Real(n) => Some(Cow::Owned(format_real(n + 0.0))),
            ValueRef::Null | ValueRef::Blob(_) => None,
        }
    }
}

impl SortableColumn for TableColumn {
    /// Bytes have none.
    type Rank = Option<SortRank>;

    fn data_type(&self) -> DataType {
        self.data_type
    }

    fn rank(&self, value: ValueRef<'_>) -> Option<SortRank> {
        self.to_text(value).map(|text| SortRank::new(self.data_type, &text))
    }

    /// There is one zero; and where there are numbers of any length, all are compared by their digits.
    #[inline]
    fn normalize<'a>(&self, told: CowValue<'a>) -> CowValue<'a> {
        match (self.data_type, told) {
            (DataType::Decimal, CowValue::Borrowed(ValueRef::Integer(n))) => CowValue::Text(n.to_string()),
            (DataType::Decimal, CowValue::Borrowed(ValueRef::Real(n))) => {
                CowValue::Text(format_real(n + 0.0))
            }
            (_, CowValue::Borrowed(ValueRef::Real(n))) => CowValue::Borrowed(ValueRef::Real(n + 0.0)),
            (_, told) => told,
        }
    }

    fn break_tie(&self, a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
        self.key_value(a).cmp(&self.key_value(b))
    }
}

/// What base64 says. What another text would be too is none: it could not be written back.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok().filter(|bytes| STANDARD.encode(bytes) == text)
}

/// The shortest digits that mean this number and no other.
fn format_real(n: f64) -> String {
    n.to_string()
}
