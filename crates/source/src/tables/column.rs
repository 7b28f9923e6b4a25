//! One column as a contract reads it: how stored values become values of the column's type.

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::infer::{self, SAFE_INTEGER_MAX};
use contract::order::SortRank;
use contract::{ColumnFormat, DataType, ValueRef};

use super::table::{StoredValue, Table};
use crate::snapshot_reader::{CowValue, SortableColumn};

#[derive(Debug, Clone)]
pub(super) struct TableColumn {
    pub(super) name: String,
    /// The position in the table; `None` if no row has this column.
    pub(super) column_index: Option<usize>,
    pub(super) data_type: DataType,
    pub(super) mixed: bool,
    /// The texts that mean "no value".
    pub(super) null_texts: Vec<String>,
    /// How the file writes values as texts.
    pub(super) format: Option<ColumnFormat>,
    /// Whether a text in a JSON column is a JSON string rather than JSON source.
    pub(super) has_nested_json: bool,
}

/// What identifies a key value. In a mixed column, `7` and `"7"` are two keys.
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

    /// Converts a stored value to the column's type.
    #[inline]
    pub(super) fn to_value<'a>(&self, stored: StoredValue<'a>) -> CowValue<'a> {
        match stored {
            StoredValue::Null => CowValue::Borrowed(ValueRef::Null),
            StoredValue::Text(text) if self.is_null(text) => CowValue::Borrowed(ValueRef::Null),
            StoredValue::Text(text) if self.format.is_some() => {
                let canonical = self.format.as_ref().and_then(|format| format.parse(text));
                match (canonical, self.data_type) {
                    (None, _) => CowValue::Borrowed(ValueRef::Text(text)),
                    (Some(canonical), DataType::Boolean) => {
                        CowValue::Borrowed(ValueRef::Integer((canonical == "true").into()))
                    }
                    (Some(canonical), _) => CowValue::Text(canonical),
                }
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
            StoredValue::Boolean(value) if self.data_type == DataType::Boolean => {
                CowValue::Borrowed(ValueRef::Integer(value.into()))
            }
            StoredValue::Boolean(value) => {
                CowValue::Borrowed(ValueRef::Text(if value { "true" } else { "false" }))
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

    /// Whether a text means "no value". In a column with a format, blanks alone are no value.
    pub(super) fn is_null(&self, text: &str) -> bool {
        self.null_texts.iter().any(|null| null == text) || (self.format.is_some() && text.trim().is_empty())
    }

    /// Whether numbers are read as numbers. In a mixed boolean column, 1 and 0 are not booleans.
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

    /// Whether a value fits the contract.
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

    /// The identity of a key value from the table or from a caller: equal for equal values.
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

    /// The text of a value, as people write it.
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
    /// Blobs have no rank.
    type Rank = Option<SortRank>;

    fn data_type(&self) -> DataType {
        self.data_type
    }

    fn is_mixed(&self) -> bool {
        self.mixed
    }

    fn rank(&self, value: ValueRef<'_>) -> Option<SortRank> {
        self.to_text(value).map(|text| SortRank::new(self.data_type, &text))
    }

    /// There is only one zero; and decimals are compared digit by digit.
    #[inline]
    fn normalize<'a>(&self, value: CowValue<'a>) -> CowValue<'a> {
        match (self.data_type, value) {
            (DataType::Decimal, CowValue::Borrowed(ValueRef::Integer(n))) => CowValue::Text(n.to_string()),
            (DataType::Decimal, CowValue::Borrowed(ValueRef::Real(n))) => {
                CowValue::Text(format_real(n + 0.0))
            }
            (_, CowValue::Borrowed(ValueRef::Real(n))) => CowValue::Borrowed(ValueRef::Real(n + 0.0)),
            (_, value) => value,
        }
    }

    fn break_tie(&self, a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
        self.key_value(a).cmp(&self.key_value(b))
    }
}

/// Decodes base64 in its canonical form. Any other form could not be written back identically.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok().filter(|bytes| STANDARD.encode(bytes) == text)
}

/// The shortest digits that identify this number.
fn format_real(n: f64) -> String {
    n.to_string()
}
