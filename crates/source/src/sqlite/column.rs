//! One column as a contract reads it: what its values must be, and how they are compared in SQL.

use std::cmp::Ordering;

use contract::infer::{self, EXACT_MAX};
use contract::source::{ShapeColumn, Test};
use contract::{Cell, Kind, order};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

use super::schema::{Affinity, Table, quoted};
use super::sorted::{self, Sorted};

#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) quoted: String,
    pub(super) kind: Kind,
    nullable: bool,
    pub(super) mixed: bool,
    /// Text that means "no value".
    pub(super) null: Option<String>,
    affinity: Affinity,
    /// As its table declares it.
    pub(super) declared: String,
    pub(super) is_required: bool,
    pub(super) is_computed: bool,
    /// Where SQLite's own order is not the order of the kind.
    pub(super) sorted: Option<Sorted>,
    /// A collation whose index finds candidates, among which bytes decide.
    pub(super) loose: Option<&'static str>,
}

/// What a column's value should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected(pub(super) &'static str);

/// A value on its way into a statement.
#[derive(Debug, Clone)]
pub(super) enum Bound<'a> {
    Cell(Cell<'a>),
    Bytes(Vec<u8>),
}

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Cell(Cell::Null) => ValueRef::Null,
            Self::Cell(Cell::Integer(n)) => ValueRef::Integer(*n),
            Self::Cell(Cell::Real(n)) => ValueRef::Real(*n),
            Self::Cell(Cell::Text(text)) => ValueRef::Text(text.as_bytes()),
            Self::Cell(Cell::Blob(bytes)) => ValueRef::Blob(bytes),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

/// A value as SQLite has it. Text that is not UTF-8 is bytes.
#[inline]
pub(super) fn raw(value: ValueRef<'_>) -> Cell<'_> {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(n) => Cell::Integer(n),
        ValueRef::Real(n) => Cell::Real(n),
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).map_or(Cell::Blob(bytes), Cell::Text),
        ValueRef::Blob(bytes) => Cell::Blob(bytes),
    }
}

/// Whether a value is of a kind as SQLite keeps it. Whether JSON is valid is for whoever writes it: it has to be read
/// for that anyway.
#[inline]
pub(super) fn is_of(kind: Kind, cell: Cell<'_>) -> bool {
    let exact = -EXACT_MAX..=EXACT_MAX;
    match (kind, cell) {
        (Kind::Text | Kind::Json, Cell::Text(_)) => true,
        (Kind::Int64 | Kind::Decimal, Cell::Integer(_)) => true,
        (Kind::Integer | Kind::Number, Cell::Integer(n)) => exact.contains(&n),
        (Kind::Decimal | Kind::Number, Cell::Real(n)) => n.is_finite(),
        (Kind::Boolean, Cell::Integer(0 | 1)) => true,
        (
            Kind::Decimal | Kind::Boolean | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp,
            Cell::Text(text),
        ) => infer::is(kind, text),
        (Kind::Blob, Cell::Blob(_)) => true,
        (_, Cell::Null | Cell::Text(_) | Cell::Integer(_) | Cell::Real(_) | Cell::Blob(_)) => false,
    }
}

impl Column {
    /// `at` is the column's place in the table.
    pub(super) fn new(shape: &ShapeColumn, table: &Table, at: usize, is_utf16: bool) -> Self {
        let declared = &table.columns[at];
        let mut column = Self {
            name: declared.name.clone(),
            quoted: quoted(&declared.name),
            kind: shape.kind,
            nullable: shape.nullable,
            mixed: shape.mixed,
            null: shape.null.clone(),
            affinity: declared.affinity,
            declared: declared.declared.clone(),
            is_required: declared.is_required,
            is_computed: declared.is_computed,
            sorted: None,
            loose: None,
        };
        column.sorted = column.order(is_utf16);
        if column.sorted_for(Test::Equals).is_none() && column.null.is_none() && column.may_hold_text() {
            column.loose = table.loose_collation(at);
        }
        column
    }

    /// Of what a statement gives: it is only looked at.
    pub(super) fn of_statement(shape: &ShapeColumn) -> Self {
        Self {
            name: shape.name.clone(),
            quoted: quoted(&shape.name),
            kind: shape.kind,
            nullable: shape.nullable,
            mixed: shape.mixed,
            null: shape.null.clone(),
            affinity: Affinity::Blob,
            declared: String::new(),
            is_required: false,
            is_computed: false,
            sorted: None,
            loose: None,
        }
    }

    fn order(&self, is_utf16: bool) -> Option<Sorted> {
        match self.kind {
            Kind::Timestamp | Kind::LocalTimestamp => Some(Sorted::Moments),
            // Where numbers are stored as numbers, SQLite sorts them as we do: a text in such a column is
            // none. Elsewhere `10` may lie beside `'9'`.
            Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number => match self.affinity {
                Affinity::Integer | Affinity::Real | Affinity::Numeric => None,
                Affinity::Blob if !self.mixed && self.kind != Kind::Decimal => None,
                Affinity::Blob | Affinity::Text => Some(Sorted::Decimals),
            },
            Kind::Boolean if self.mixed => Some(Sorted::Truths),
            Kind::Text | Kind::Date | Kind::Boolean | Kind::Json | Kind::Blob => {
                is_utf16.then_some(Sorted::Texts)
            }
        }
    }

    pub(super) fn may_hold_text(&self) -> bool {
        let numbers =
            matches!(self.kind, Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number | Kind::Blob);
        self.mixed || !numbers
    }

    pub(super) fn may_be_null(&self) -> bool {
        self.nullable || self.null.is_some()
    }

    /// A row's value, if it is what the contract says.
    #[inline]
    pub(super) fn cell<'a>(&self, value: ValueRef<'a>) -> Result<Cell<'a>, Expected> {
        let cell = self.lenient(value);
        if self.fits(cell) { Ok(cell) } else { Err(self.expected(cell)) }
    }

    /// A row's value, whatever it is.
    #[inline]
    pub(super) fn lenient<'a>(&self, value: ValueRef<'a>) -> Cell<'a> {
        match (raw(value), &self.null) {
            (Cell::Text(text), Some(null)) if text == null => Cell::Null,
            (cell, _) => cell,
        }
    }

    #[inline]
    fn fits(&self, cell: Cell<'_>) -> bool {
        match cell {
            Cell::Null => self.may_be_null(),
            _ if self.mixed => true,
            cell => is_of(self.kind, cell),
        }
    }

    fn expected(&self, cell: Cell<'_>) -> Expected {
        Expected(match (self.kind, cell) {
            (_, Cell::Null) => "a value in every row",
            (Kind::Text, _) => "text",
            (Kind::Integer, _) => "an integer below 2^53",
            (Kind::Int64, _) => "an integer",
            (Kind::Decimal, _) => "a decimal number",
            (Kind::Number, _) => "a number",
            (Kind::Boolean, _) => "true or false",
            (Kind::Date, _) => "a date such as 2026-02-11",
            (Kind::Timestamp, _) => "a time with its zone",
            (Kind::LocalTimestamp, _) => "a time without a zone",
            (Kind::Json, _) => "JSON",
            (Kind::Blob, _) => "bytes",
        })
    }

    /// Texts are equal in any encoding.
    fn sorted_for(&self, test: Test) -> Option<Sorted> {
        self.sorted.filter(|sorted| (test, *sorted) != (Test::Equals, Sorted::Texts))
    }

    /// What compares and sorts as the kind does; the text that means "no value" is to be bound.
    pub(super) fn ordered(&self) -> String {
        self.written(self.sorted)
    }

    /// What a filter compares.
    pub(super) fn compared(&self, test: Test) -> String {
        self.written(self.sorted_for(test))
    }

    fn written(&self, sorted: Option<Sorted>) -> String {
        match sorted {
            Some(sorted) => format!("{}({})", sorted.function(), self.value()),
            // Texts are compared by their bytes, whatever the column says.
            None if self.may_hold_text() => format!("{} COLLATE BINARY", self.value()),
            None => self.value(),
        }
    }

    pub(super) fn value(&self) -> String {
        if self.null.is_some() { format!("nullif({}, ?)", self.quoted) } else { self.quoted.clone() }
    }

    /// Whether a filter's value may be stored in two ways: `1` and `'true'`, `'7'` and `7`.
    pub(super) fn has_two_forms(&self) -> bool {
        // A column of text holds no numbers: SQLite makes texts of them, in its own way.
        let may_hold_both = self.mixed && self.kind == Kind::Text && self.affinity != Affinity::Text;
        self.sorted_for(Test::Equals).is_none() && (self.kind == Kind::Boolean || may_hold_both)
    }

    /// A filter's value as the column stores it.
    pub(super) fn bound<'a>(&self, test: Test, value: Cell<'a>) -> Bound<'a> {
        if let Some(sorted) = self.sorted_for(test) {
            let moment = match (sorted, value) {
                (Sorted::Moments, Cell::Text(text)) => sorted::moment(text),
                _ => None,
            };
            let bytes = moment.or_else(|| sorted::bytes(sorted, value));
            return bytes.map_or(Bound::Cell(Cell::Null), Bound::Bytes);
        }
        let value = match (self.kind, value) {
            (Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number, Cell::Text(text)) => {
                near(test, text)
            }
            (Kind::Boolean, Cell::Text("true")) => Cell::Integer(1),
            (Kind::Boolean, Cell::Text("false")) => Cell::Integer(0),
            (_, value) => value,
        };
        Bound::Cell(match value {
            // SQLite would read `007` as 7 for such a column, where no text like that can be stored.
            Cell::Text(text) if self.is_numeric() && text.trim().parse::<f64>().is_ok() => Cell::Null,
            value => value,
        })
    }

    /// Its other form.
    pub(super) fn other_form<'a>(&self, value: Cell<'a>) -> Bound<'a> {
        Bound::Cell(match (self.kind, value) {
            (Kind::Boolean, Cell::Integer(1) | Cell::Text("true")) => Cell::Text("true"),
            (Kind::Boolean, Cell::Integer(0) | Cell::Text("false")) => Cell::Text("false"),
            (Kind::Text, Cell::Text(text)) => match number(text) {
                cell if told(cell).as_deref() == Some(text) => cell,
                _ => Cell::Null,
            },
            _ => Cell::Null,
        })
    }

    /// Behind all ways to write a filter's moment.
    pub(super) fn bound_end<'a>(&self, test: Test, value: Cell<'a>) -> Bound<'a> {
        match value {
            Cell::Text(text) => match sorted::moment(text) {
                Some(mut bytes) => {
                    bytes.push(255);
                    Bound::Bytes(bytes)
                }
                None => self.bound(test, value),
            },
            _ => self.bound(test, value),
        }
    }

    /// A value from a row before, as the column is sorted.
    pub(super) fn position<'a>(&self, value: Cell<'a>) -> Bound<'a> {
        match self.sorted {
            Some(sorted) => sorted::bytes(sorted, value).map_or(Bound::Cell(Cell::Null), Bound::Bytes),
            None => Bound::Cell(value),
        }
    }

    /// Whether it holds numbers, and they need not be finite.
    pub(super) fn may_be_infinite(&self) -> bool {
        let is_number = matches!(self.kind, Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number);
        is_number && !self.is_text()
    }

    /// Whether numbers become texts in it.
    pub(super) fn is_text(&self) -> bool {
        self.affinity == Affinity::Text
    }

    /// Whether texts become numbers in it, and zeros lose their sign.
    pub(super) fn is_numeric(&self) -> bool {
        self.affinity.is_numeric()
    }

    /// What [`Self::bound`] and SQL say, in Rust.
    pub(super) fn passes(&self, value: Cell<'_>, test: Test, bound: Cell<'_>) -> bool {
        match (test, value, bound) {
            (Test::Equals, Cell::Integer(_) | Cell::Real(_), Cell::Text(text)) if self.kind == Kind::Text => {
                told(value).as_deref() == Some(text)
            }
            _ => order::passes(self.kind, value, test, bound),
        }
    }
}

/// A number as text, the way it is told.
pub(super) fn told(cell: Cell<'_>) -> Option<String> {
    match cell {
        Cell::Integer(n) => Some(n.to_string()),
        Cell::Real(n) if n.is_finite() => Some(n.to_string()),
        _ => None,
    }
}

/// A text as the number it says, if it does.
fn number(text: &str) -> Cell<'_> {
    let is_digit = |c: u8| c.is_ascii_digit() || c == b'.';
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || !digits.bytes().all(is_digit) {
        return Cell::Text(text);
    }
    match text.parse() {
        Ok(n) => Cell::Integer(n),
        Err(_) => text.parse().map_or(Cell::Text(text), Cell::Real),
    }
}

/// A decimal that no binary fraction is equal to, as the nearest one that passes the same values.
fn near(test: Test, text: &str) -> Cell<'_> {
    let Cell::Real(n) = number(text) else { return number(text) };
    match (test, order::compare(Kind::Decimal, Cell::Real(n), Cell::Text(text))) {
        (_, Ordering::Equal) => Cell::Real(n),
        (Test::Equals, _) => Cell::Null,
        (Test::AtLeast, Ordering::Less) => Cell::Real(n.next_up()),
        (Test::AtMost, Ordering::Greater) => Cell::Real(n.next_down()),
        (Test::AtLeast, Ordering::Greater) | (Test::AtMost, Ordering::Less) => Cell::Real(n),
    }
}
