//! One column as a contract reads it: which values it accepts, and how SQL compares them.

use contract::infer::{self, SAFE_INTEGER_MAX};
use contract::source::{ColumnShape, Comparison, Filter};
use contract::{DataType, ValueRef, order};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef as SqlValueRef};

use crate::sqlite::integer_totals::IntegerTotals;
use crate::sqlite::schema::{Affinity, Table, quote_identifier};
use crate::sqlite::sort_key::{self, SortKeyKind};

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
    /// As the table declares it.
    pub(super) declared_type: String,
    pub(super) is_not_null: bool,
    pub(super) is_generated: bool,
    /// Set where SQLite's order differs from the order of the data type.
    pub(super) sort_key: Option<SortKeyKind>,
    /// A collation whose index finds candidates; comparing bytes then decides.
    pub(super) index_collation: Option<&'static str>,
}

/// What a column's value should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExpectedType(pub(super) &'static str);

impl ExpectedType {
    pub(super) fn of(data_type: DataType) -> Self {
        Self(match data_type {
            DataType::Text => "text",
            DataType::Integer => "an integer below 2^53",
            DataType::Int64 => "an integer",
            DataType::Decimal => "a decimal number",
            DataType::Number => "a number",
            DataType::Boolean => "true or false",
            DataType::Date => "a date such as 2026-02-11",
            DataType::Timestamp => "a time with its zone",
            DataType::LocalTimestamp => "a time without a zone",
            DataType::Json => "JSON",
            DataType::Blob => "bytes",
        })
    }
}

/// A value to bind to a statement.
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

/// Converts a value of SQLite. Text that is not valid UTF-8 becomes a blob.
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

/// Whether a stored value is of a data type. Does not validate JSON: the code that writes the response parses
/// it anyway.
#[inline]
pub(super) fn is_of_type(data_type: DataType, value_ref: ValueRef<'_>) -> bool {
    let exact = -SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX;
    match (data_type, value_ref) {
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
        ) => infer::matches_type(data_type, text),
        (DataType::Blob, ValueRef::Blob(_)) => true,
        (
            _,
            ValueRef::Null | ValueRef::Text(_) | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_),
        ) => false,
    }
}

impl Column {
    /// `index` is the column's index in the table.
    pub(super) fn new(shape: &ColumnShape, table: &Table, index: usize, is_utf16: bool) -> Self {
        let declared = &table.columns[index];
        let mut column = Self {
            name: shape.name.clone(),
            quoted_name: quote_identifier(&declared.name),
            data_type: shape.data_type,
            nullable: shape.nullable,
            mixed: shape.mixed,
            null_text: shape.null_texts.first().cloned(),
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
            column.index_collation = table.index_collation(index);
        }
        column
    }

    /// A column of a statement's result. It is only read.
    pub(super) fn for_statement(shape: &ColumnShape) -> Self {
        Self {
            name: shape.name.clone(),
            quoted_name: quote_identifier(&shape.name),
            data_type: shape.data_type,
            nullable: shape.nullable,
            mixed: shape.mixed,
            null_text: shape.null_texts.first().cloned(),
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
            // In columns of numeric affinity SQLite sorts numbers as we do, and a text in them is not a
            // number. In other columns `10` may be stored beside `'9'`.
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

    /// A row's value, or what was expected instead.
    #[inline]
    pub(super) fn checked_value<'a>(&self, value: SqlValueRef<'a>) -> Result<ValueRef<'a>, ExpectedType> {
        let value_ref = self.unchecked_value(value);
        if self.accepts(value_ref) { Ok(value_ref) } else { Err(self.expected_type(value_ref)) }
    }

    /// A row's value, whatever its type.
    #[inline]
    pub(super) fn unchecked_value<'a>(&self, value: SqlValueRef<'a>) -> ValueRef<'a> {
        match (from_sqlite(value), &self.null_text) {
            (ValueRef::Text(text), Some(null)) if text == null => ValueRef::Null,
            (value_ref, _) => value_ref,
        }
    }

    #[inline]
    fn accepts(&self, value_ref: ValueRef<'_>) -> bool {
        match value_ref {
            ValueRef::Null => self.may_be_null(),
            _ if self.mixed => true,
            value_ref => is_of_type(self.data_type, value_ref),
        }
    }

    fn expected_type(&self, value_ref: ValueRef<'_>) -> ExpectedType {
        match value_ref {
            ValueRef::Null => ExpectedType("a value in every row"),
            _ => ExpectedType::of(self.data_type),
        }
    }

    /// Whether it probably has no other values than integers and NULL.
    pub(super) fn is_integer(&self) -> bool {
        matches!(self.data_type, DataType::Integer | DataType::Int64) && self.null_text.is_none()
    }

    /// Whether all values that were added up are integers and NULL, and it accepts each of them.
    pub(super) fn accepts_all(&self, totals: &IntegerTotals) -> bool {
        let is_accepted = |n: i64| self.mixed || is_of_type(self.data_type, ValueRef::Integer(n));
        let has_accepted = totals.count == 0 || (is_accepted(totals.min) && is_accepted(totals.max));
        totals.others == 0 && has_accepted && (totals.nulls == 0 || self.may_be_null())
    }

    /// Equal texts are equal in every encoding.
    fn sort_key_for(&self, comparison: Comparison) -> Option<SortKeyKind> {
        self.sort_key.filter(|kind| (comparison, *kind) != (Comparison::Equals, SortKeyKind::Text))
    }

    /// The SQL expression that sorts as the data type does. The caller binds the null text.
    pub(super) fn sort_expression(&self) -> String {
        self.expression(self.sort_key)
    }

    /// The SQL expression that a filter compares.
    pub(super) fn filter_expression(&self, comparison: Comparison) -> String {
        self.expression(self.sort_key_for(comparison))
    }

    /// What follows the expression of a filter with a range. Values of other types, which sort before or after those of
    /// the column's, are in none: so a range has two ends. An index can serve it.
    pub(super) fn range_condition(&self, comparison: Comparison) -> &'static str {
        match (self.sort_key, comparison) {
            // The bounds are those of the keys of values of the type: see `sort_key`.
            (Some(SortKeyKind::Timestamp | SortKeyKind::Decimal), Comparison::AtLeast) => {
                " BETWEEN ? AND x'02ff'"
            }
            (Some(SortKeyKind::Timestamp | SortKeyKind::Decimal), _) => " BETWEEN x'02' AND ?",
            // Numbers come first, so only the upper bound matters: infinity.
            (None, Comparison::AtLeast) if self.data_type.is_stored_as_number() => " BETWEEN ? AND 9e999",
            (_, Comparison::AtLeast) => " >= ?",
            (_, _) => " <= ?",
        }
    }

    /// Whether a filter with a range must test the form of a value, because texts that are not dates sort among dates.
    pub(super) fn needs_date_test(&self) -> bool {
        self.mixed && self.data_type == DataType::Date
    }

    fn expression(&self, kind: Option<SortKeyKind>) -> String {
        match kind {
            Some(kind) => format!("{}({})", kind.sql_function(), self.value_expression()),
            // Texts are compared by their bytes, whatever collation the column declares.
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

    /// Whether a filter's value may be stored in two forms: `1` and `'true'`, `'7'` and `7`.
    pub(super) fn has_two_forms(&self) -> bool {
        // A column of text affinity holds no numbers: SQLite converts them to text.
        let may_hold_both = self.mixed && self.data_type == DataType::Text && self.affinity != Affinity::Text;
        self.sort_key_for(Comparison::Equals).is_none()
            && (self.data_type == DataType::Boolean || may_hold_both)
    }

    /// Whether SQL finds the rows with one of several values by comparing the column with each, and an index helps.
    pub(super) fn has_plain_equality(&self) -> bool {
        self.sort_key_for(Comparison::Equals).is_none() && !self.has_two_forms() && !self.mixed
    }

    /// A filter's value as the column stores it.
    pub(super) fn filter_param<'a>(&self, comparison: Comparison, value: ValueRef<'a>) -> SqlParam<'a> {
        let value = self.filter_value(value);
        if let Some(kind) = self.sort_key_for(comparison) {
            let prefix = match (kind, value) {
                (SortKeyKind::Timestamp, ValueRef::Text(text)) => sort_key::timestamp_start_prefix(text),
                _ => None,
            };
            let bytes = prefix.or_else(|| sort_key::encode(kind, value));
            return bytes.map_or(SqlParam::Value(ValueRef::Null), SqlParam::SortKey);
        }
        let value = match (self.data_type, value) {
            (
                DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
                ValueRef::Text(text),
            ) => order::nearest_real(comparison, text),
            (DataType::Boolean, ValueRef::Text("true")) => ValueRef::Integer(1),
            (DataType::Boolean, ValueRef::Text("false")) => ValueRef::Integer(0),
            (_, value) => value,
        };
        SqlParam::Value(match value {
            // SQLite would compare `007` as 7 in such a column, which cannot hold that text.
            ValueRef::Text(text) if self.has_numeric_affinity() && text.trim().parse::<f64>().is_ok() => {
                ValueRef::Null
            }
            value => value,
        })
    }

    /// Responses name infinite numbers, and a filter finds them by the same names.
    fn filter_value<'a>(&self, value: ValueRef<'a>) -> ValueRef<'a> {
        match value {
            ValueRef::Text("Infinity") if self.may_be_infinite() => ValueRef::Real(f64::INFINITY),
            ValueRef::Text("-Infinity") if self.may_be_infinite() => ValueRef::Real(f64::NEG_INFINITY),
            value => value,
        }
    }

    /// The other form of a filter's value.
    pub(super) fn alternate_param<'a>(&self, value: ValueRef<'a>) -> SqlParam<'a> {
        SqlParam::Value(match (self.data_type, value) {
            (DataType::Boolean, ValueRef::Integer(1) | ValueRef::Text("true")) => ValueRef::Text("true"),
            (DataType::Boolean, ValueRef::Integer(0) | ValueRef::Text("false")) => ValueRef::Text("false"),
            (DataType::Text, ValueRef::Text(text)) => match order::parse_number(text) {
                value_ref if format_number(value_ref).as_deref() == Some(text) => value_ref,
                _ => ValueRef::Null,
            },
            _ => ValueRef::Null,
        })
    }

    /// The upper bound of all spellings of a filter's timestamp.
    pub(super) fn range_end_param<'a>(&self, comparison: Comparison, value: ValueRef<'a>) -> SqlParam<'a> {
        match value {
            ValueRef::Text(text) => match sort_key::timestamp_end_prefix(text) {
                Some(mut bytes) => {
                    bytes.push(255);
                    SqlParam::SortKey(bytes)
                }
                None => self.filter_param(comparison, value),
            },
            _ => self.filter_param(comparison, value),
        }
    }

    /// A value of the previous page's last row, as the column is sorted.
    pub(super) fn cursor_param<'a>(&self, value: ValueRef<'a>) -> SqlParam<'a> {
        match self.sort_key {
            Some(kind) => {
                sort_key::encode(kind, value).map_or(SqlParam::Value(ValueRef::Null), SqlParam::SortKey)
            }
            None => SqlParam::Value(value),
        }
    }

    /// Whether it holds numbers that may be infinite.
    pub(super) fn may_be_infinite(&self) -> bool {
        let is_number = matches!(
            self.data_type,
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number
        );
        is_number && !self.has_text_affinity()
    }

    /// Whether SQLite converts numbers in it to text.
    pub(super) fn has_text_affinity(&self) -> bool {
        self.affinity == Affinity::Text
    }

    /// Whether SQLite converts texts in it to numbers, and drops the sign of zero.
    pub(super) fn has_numeric_affinity(&self) -> bool {
        self.affinity.is_numeric()
    }

    /// The same comparison as [`Self::filter_param`] in SQL, in Rust.
    pub(super) fn matches_filter(&self, value: ValueRef<'_>, filter: &Filter<'_>) -> bool {
        filter.matches_with(self.data_type, value, |comparison, operand| {
            self.matches_operand(value, comparison, operand)
        })
    }

    fn matches_operand(&self, value: ValueRef<'_>, comparison: Comparison, bound: ValueRef<'_>) -> bool {
        let bound = self.filter_value(bound);
        match (comparison, value, bound) {
            (Comparison::Equals, ValueRef::Integer(_) | ValueRef::Real(_), ValueRef::Text(text))
                if self.data_type == DataType::Text =>
            {
                format_number(value).as_deref() == Some(text)
            }
            _ => order::matches_filter(self.data_type, value, comparison, bound),
        }
    }
}

/// A number as text, as responses show it.
pub(super) fn format_number(value_ref: ValueRef<'_>) -> Option<String> {
    match value_ref {
        ValueRef::Integer(n) => Some(n.to_string()),
        ValueRef::Real(n) if n.is_finite() => Some(n.to_string()),
        _ => None,
    }
}
