//! One column as a contract reads it: what its values must be, and how they are compared in SQL.

use std::cmp::Ordering;

use contract::infer::{self, SAFE_INTEGER_MAX};
use contract::source::{ColumnShape, Comparison};
use contract::{DataType, ValueRef, order};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef as SqlValueRef};

use super::schema::{Affinity, Table, quote_identifier};
use super::sort_key::{self, SortKeyKind};

#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) quoted_name: String,
    pub(super) data_type: DataType,
    nullable: bool,
    pub(super) mixed: bool,
    /// Text that means "no value".
    pub(super) null_text: Option<String>,
    affinity: Affinity,
    /// As its table declares it.
    pub(super) declared_type: String,
    pub(super) is_not_null: bool,
    pub(super) is_generated: bool,
    /// Where SQLite's own order is not the order of the kind.
    pub(super) sort_key: Option<SortKeyKind>,
    /// A collation whose index finds candidates, among which bytes decide.
    pub(super) index_collation: Option<&'static str>,
}

/// What a column's value should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExpectedType(pub(super) &'static str);

/// A value on its way into a statement.
#[derive(Debug, Clone)]
pub(super) enum SqlParam<'a> {
    Value(ValueRef<'a>),
    SortKey(Vec<u8>),
}

impl ToSql for SqlParam<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Value(ValueRef::Null) => SqlValueRef::Null,
            Self::Value(ValueRef::Integer(n)) => SqlValueRef::Integer(*n),
            Self::Value(ValueRef::Real(n)) => SqlValueRef::Real(*n),
            Self::Value(ValueRef::Text(text)) => SqlValueRef::Text(text.as_bytes()),
            Self::Value(ValueRef::Blob(bytes)) => SqlValueRef::Blob(bytes),
            Self::SortKey(bytes) => SqlValueRef::Blob(bytes),
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

/// A value as SQLite has it. Text that is not UTF-8 is bytes.
#[inline]
pub(super) fn from_sqlite(value: SqlValueRef<'_>) -> ValueRef<'_> {
    match value {
        SqlValueRef::Null => ValueRef::Null,
        SqlValueRef::Integer(n) => ValueRef::Integer(n),
        SqlValueRef::Real(n) => ValueRef::Real(n),
        SqlValueRef::Text(bytes) => std::str::from_utf8(bytes).map_or(ValueRef::Blob(bytes), ValueRef::Text),
        SqlValueRef::Blob(bytes) => ValueRef::Blob(bytes),
    }
}

/// Whether a value is of a kind as SQLite keeps it. Whether JSON is valid is for whoever writes it: it has to be read
/// for that anyway.
#[inline]
pub(super) fn is_of_type(kind: DataType, cell: ValueRef<'_>) -> bool {
    let exact = -SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX;
    match (kind, cell) {
        (DataType::Text | DataType::Json, ValueRef::Text(_)) => true,
        (DataType::Int64 | DataType::Decimal, ValueRef::Integer(_)) => true,
        (DataType::Integer | DataType::Number, ValueRef::Integer(n)) => exact.contains(&n),
        (DataType::Decimal | DataType::Number, ValueRef::Real(n)) => n.is_finite(),
        (DataType::Boolean, ValueRef::Integer(0 | 1)) => true,
        (
            DataType::Decimal
            | DataType::Boolean
            | DataType::Date
            | DataType::Timestamp
            | DataType::LocalTimestamp,
            ValueRef::Text(text),
        ) => infer::matches_type(kind, text),
        (DataType::Blob, ValueRef::Blob(_)) => true,
        (
            _,
            ValueRef::Null | ValueRef::Text(_) | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_),
        ) => false,
    }
}

impl Column {
    /// `at` is the column's place in the table.
    pub(super) fn new(shape: &ColumnShape, table: &Table, at: usize, is_utf16: bool) -> Self {
        let declared = &table.columns[at];
        let mut column = Self {
            name: declared.name.clone(),
            quoted_name: quote_identifier(&declared.name),
            data_type: shape.data_type,
            nullable: shape.nullable,
            mixed: shape.mixed,
            null_text: shape.null_text.clone(),
            affinity: declared.affinity,
            declared_type: declared.declared_type.clone(),
            is_not_null: declared.is_not_null,
            is_generated: declared.is_generated,
            sort_key: None,
            index_collation: None,
        };
        column.sort_key = column.choose_sort_key(is_utf16);
        if column.sort_key_for(Comparison::Equals).is_none()
            && column.null_text.is_none()
            && column.may_hold_text()
        {
            column.index_collation = table.index_collation(at);
        }
        column
    }

    /// Of what a statement gives: it is only looked at.
    pub(super) fn for_statement(shape: &ColumnShape) -> Self {
        Self {
            name: shape.name.clone(),
            quoted_name: quote_identifier(&shape.name),
            data_type: shape.data_type,
            nullable: shape.nullable,
            mixed: shape.mixed,
            null_text: shape.null_text.clone(),
            affinity: Affinity::Blob,
            declared_type: String::new(),
            is_not_null: false,
            is_generated: false,
            sort_key: None,
            index_collation: None,
        }
    }

    fn choose_sort_key(&self, is_utf16: bool) -> Option<SortKeyKind> {
        match self.data_type {
            DataType::Timestamp | DataType::LocalTimestamp => Some(SortKeyKind::Timestamp),
            // Where numbers are stored as numbers, SQLite sorts them as we do: a text in such a column is
            // none. Elsewhere `10` may lie beside `'9'`.
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number => match self.affinity
            {
                Affinity::Integer | Affinity::Real | Affinity::Numeric => None,
                Affinity::Blob if !self.mixed && self.data_type != DataType::Decimal => None,
                Affinity::Blob | Affinity::Text => Some(SortKeyKind::Decimal),
            },
            DataType::Boolean if self.mixed => Some(SortKeyKind::Boolean),
            DataType::Text | DataType::Date | DataType::Boolean | DataType::Json | DataType::Blob => {
                is_utf16.then_some(SortKeyKind::Text)
            }
        }
    }

    pub(super) fn may_hold_text(&self) -> bool {
        let numbers = matches!(
            self.data_type,
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number | DataType::Blob
        );
        self.mixed || !numbers
    }

    pub(super) fn may_be_null(&self) -> bool {
        self.nullable || self.null_text.is_some()
    }

    /// A row's value, if it is what the contract says.
    #[inline]
    pub(super) fn checked_value<'a>(&self, value: SqlValueRef<'a>) -> Result<ValueRef<'a>, ExpectedType> {
        let cell = self.unchecked_value(value);
        if self.accepts(cell) { Ok(cell) } else { Err(self.expected_type(cell)) }
    }

    /// A row's value, whatever it is.
    #[inline]
    pub(super) fn unchecked_value<'a>(&self, value: SqlValueRef<'a>) -> ValueRef<'a> {
        match (from_sqlite(value), &self.null_text) {
            (ValueRef::Text(text), Some(null)) if text == null => ValueRef::Null,
            (cell, _) => cell,
        }
    }

    #[inline]
    fn accepts(&self, cell: ValueRef<'_>) -> bool {
        match cell {
            ValueRef::Null => self.may_be_null(),
            _ if self.mixed => true,
            cell => is_of_type(self.data_type, cell),
        }
    }

    fn expected_type(&self, cell: ValueRef<'_>) -> ExpectedType {
        ExpectedType(match (self.data_type, cell) {
            (_, ValueRef::Null) => "a value in every row",
            (DataType::Text, _) => "text",
            (DataType::Integer, _) => "an integer below 2^53",
            (DataType::Int64, _) => "an integer",
            (DataType::Decimal, _) => "a decimal number",
            (DataType::Number, _) => "a number",
            (DataType::Boolean, _) => "true or false",
            (DataType::Date, _) => "a date such as 2026-02-11",
            (DataType::Timestamp, _) => "a time with its zone",
            (DataType::LocalTimestamp, _) => "a time without a zone",
            (DataType::Json, _) => "JSON",
            (DataType::Blob, _) => "bytes",
        })
    }

    /// Texts are equal in any encoding.
    fn sort_key_for(&self, test: Comparison) -> Option<SortKeyKind> {
        self.sort_key.filter(|sorted| (test, *sorted) != (Comparison::Equals, SortKeyKind::Text))
    }

    /// What compares and sorts as the kind does; the text that means "no value" is to be bound.
    pub(super) fn sort_expression(&self) -> String {
        self.expression(self.sort_key)
    }

    /// What a filter compares.
    pub(super) fn filter_expression(&self, test: Comparison) -> String {
        self.expression(self.sort_key_for(test))
    }

    fn expression(&self, sorted: Option<SortKeyKind>) -> String {
        match sorted {
            Some(sorted) => format!("{}({})", sorted.sql_function(), self.value_expression()),
            // Texts are compared by their bytes, whatever the column says.
            None if self.may_hold_text() => format!("{} COLLATE BINARY", self.value_expression()),
            None => self.value_expression(),
        }
    }

    pub(super) fn value_expression(&self) -> String {
        if self.null_text.is_some() {
            format!("nullif({}, ?)", self.quoted_name)
        } else {
            self.quoted_name.clone()
        }
    }

    /// Whether a filter's value may be stored in two ways: `1` and `'true'`, `'7'` and `7`.
    pub(super) fn has_two_forms(&self) -> bool {
        // A column of text holds no numbers: SQLite makes texts of them, in its own way.
        let may_hold_both = self.mixed && self.data_type == DataType::Text && self.affinity != Affinity::Text;
        self.sort_key_for(Comparison::Equals).is_none()
            && (self.data_type == DataType::Boolean || may_hold_both)
    }

    /// A filter's value as the column stores it.
    pub(super) fn filter_param<'a>(&self, test: Comparison, value: ValueRef<'a>) -> SqlParam<'a> {
        if let Some(sorted) = self.sort_key_for(test) {
            let moment = match (sorted, value) {
                (SortKeyKind::Timestamp, ValueRef::Text(text)) => sort_key::timestamp_prefix(text),
                _ => None,
            };
            let bytes = moment.or_else(|| sort_key::encode(sorted, value));
            return bytes.map_or(SqlParam::Value(ValueRef::Null), SqlParam::SortKey);
        }
        let value = match (self.data_type, value) {
            (
                DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
                ValueRef::Text(text),
            ) => nearest_real(test, text),
            (DataType::Boolean, ValueRef::Text("true")) => ValueRef::Integer(1),
            (DataType::Boolean, ValueRef::Text("false")) => ValueRef::Integer(0),
            (_, value) => value,
        };
        SqlParam::Value(match value {
            // SQLite would read `007` as 7 for such a column, where no text like that can be stored.
            ValueRef::Text(text) if self.has_numeric_affinity() && text.trim().parse::<f64>().is_ok() => {
                ValueRef::Null
            }
            value => value,
        })
    }

    /// Its other form.
    pub(super) fn alternate_param<'a>(&self, value: ValueRef<'a>) -> SqlParam<'a> {
        SqlParam::Value(match (self.data_type, value) {
            (DataType::Boolean, ValueRef::Integer(1) | ValueRef::Text("true")) => ValueRef::Text("true"),
            (DataType::Boolean, ValueRef::Integer(0) | ValueRef::Text("false")) => ValueRef::Text("false"),
            (DataType::Text, ValueRef::Text(text)) => match parse_number(text) {
                cell if format_number(cell).as_deref() == Some(text) => cell,
                _ => ValueRef::Null,
            },
            _ => ValueRef::Null,
        })
    }

    /// Behind all ways to write a filter's moment.
    pub(super) fn range_end_param<'a>(&self, test: Comparison, value: ValueRef<'a>) -> SqlParam<'a> {
        match value {
            ValueRef::Text(text) => match sort_key::timestamp_prefix(text) {
                Some(mut bytes) => {
                    bytes.push(255);
                    SqlParam::SortKey(bytes)
                }
                None => self.filter_param(test, value),
            },
            _ => self.filter_param(test, value),
        }
    }

    /// A value from a row before, as the column is sorted.
    pub(super) fn cursor_param<'a>(&self, value: ValueRef<'a>) -> SqlParam<'a> {
        match self.sort_key {
            Some(sorted) => {
                sort_key::encode(sorted, value).map_or(SqlParam::Value(ValueRef::Null), SqlParam::SortKey)
            }
            None => SqlParam::Value(value),
        }
    }

    /// Whether it holds numbers, and they need not be finite.
    pub(super) fn may_be_infinite(&self) -> bool {
        let is_number = matches!(
            self.data_type,
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number
        );
        is_number && !self.has_text_affinity()
    }

    /// Whether numbers become texts in it.
    pub(super) fn has_text_affinity(&self) -> bool {
        self.affinity == Affinity::Text
    }

    /// Whether texts become numbers in it, and zeros lose their sign.
    pub(super) fn has_numeric_affinity(&self) -> bool {
        self.affinity.is_numeric()
    }

    /// What [`Self::bound`] and SQL say, in Rust.
    pub(super) fn matches_filter(&self, value: ValueRef<'_>, test: Comparison, bound: ValueRef<'_>) -> bool {
        match (test, value, bound) {
            (Comparison::Equals, ValueRef::Integer(_) | ValueRef::Real(_), ValueRef::Text(text))
                if self.data_type == DataType::Text =>
            {
                format_number(value).as_deref() == Some(text)
            }
            _ => order::matches_filter(self.data_type, value, test, bound),
        }
    }
}

/// A number as text, the way it is told.
pub(super) fn format_number(cell: ValueRef<'_>) -> Option<String> {
    match cell {
        ValueRef::Integer(n) => Some(n.to_string()),
        ValueRef::Real(n) if n.is_finite() => Some(n.to_string()),
        _ => None,
    }
}

/// A text as the number it says, if it does.
fn parse_number(text: &str) -> ValueRef<'_> {
    let is_digit = |c: u8| c.is_ascii_digit() || c == b'.';
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || !digits.bytes().all(is_digit) {
        return ValueRef::Text(text);
    }
    match text.parse() {
        Ok(n) => ValueRef::Integer(n),
        Err(_) => text.parse().map_or(ValueRef::Text(text), ValueRef::Real),
    }
}

/// A decimal that no binary fraction is equal to, as the nearest one that passes the same values.
fn nearest_real(test: Comparison, text: &str) -> ValueRef<'_> {
    let ValueRef::Real(n) = parse_number(text) else { return parse_number(text) };
    match (test, order::compare(DataType::Decimal, ValueRef::Real(n), ValueRef::Text(text))) {
        (_, Ordering::Equal) => ValueRef::Real(n),
        (Comparison::Equals, _) => ValueRef::Null,
        (Comparison::AtLeast, Ordering::Less) => ValueRef::Real(n.next_up()),
        (Comparison::AtMost, Ordering::Greater) => ValueRef::Real(n.next_down()),
        (Comparison::AtLeast, Ordering::Greater) | (Comparison::AtMost, Ordering::Less) => ValueRef::Real(n),
    }
}
