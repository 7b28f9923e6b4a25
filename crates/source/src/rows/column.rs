//! One column as a contract reads it: how the file's values are told, and what they must be.

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::infer::{self, EXACT_MAX};
use contract::order::Rank;
use contract::{Cell, Kind};

use super::table::{Held, Table};
use crate::live::{Compared, Told};

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    /// The place in the table; none if no row names it.
    pub(super) field: Option<usize>,
    pub(super) kind: Kind,
    pub(super) mixed: bool,
    /// Text that means "no value".
    pub(super) null: Option<String>,
    /// Whether a text in a column of JSON is a string of it, and not its source.
    pub(super) nests: bool,
}

/// What tells one key from another. Where texts stand beside numbers, `7` and `"7"` are two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    Integer(i64),
    Text(Cow<'a, str>),
}

impl Column {
    #[inline]
    pub(super) fn told<'a>(&self, table: &'a Table, row: u32) -> Told<'a> {
        self.field.map_or(Told::Cell(Cell::Null), |field| self.tell(table.held(row, field)))
    }

    /// A value of the file as what the kind says.
    #[inline]
    pub(super) fn tell<'a>(&self, held: Held<'a>) -> Told<'a> {
        match held {
            Held::Null => Told::Cell(Cell::Null),
            Held::Text(text) if self.null.as_deref() == Some(text) => Told::Cell(Cell::Null),
            Held::Text(text) if self.kind == Kind::Json && self.nests => {
                let mut out = Vec::with_capacity(text.len() + 2);
                json::write::string(&mut out, text);
                Told::Text(String::from_utf8_lossy(&out).into_owned())
            }
            Held::Text(text) if self.kind == Kind::Blob => {
                bytes(text).map_or(Told::Cell(Cell::Text(text)), Told::Bytes)
            }
            Held::Text(text) | Held::Moment(text) | Held::Json(text) => Told::Cell(Cell::Text(text)),
            Held::Blob(bytes) => Told::Cell(Cell::Blob(bytes)),
            Held::Boolean(yes) if self.kind == Kind::Boolean => Told::Cell(Cell::Integer(yes.into())),
            Held::Boolean(yes) => Told::Cell(Cell::Text(if yes { "true" } else { "false" })),
            Held::Integer(n) if self.keeps_numbers() => Told::Cell(Cell::Integer(n)),
            Held::Integer(n) => Told::Text(n.to_string()),
            Held::Real(n) if self.keeps_numbers() => Told::Cell(Cell::Real(n)),
            Held::Real(n) => Told::Text(real(n)),
            Held::Digits(digits) if self.kind == Kind::Number => match digits.parse::<f64>() {
                Ok(n) if n.is_finite() => Told::Cell(Cell::Real(n)),
                _ => Told::Cell(Cell::Text(digits)),
            },
            Held::Digits(digits) => Told::Cell(Cell::Text(digits)),
        }
    }

    /// Whether a number is told as one. Beside `true` and `false`, 1 and 0 are something else.
    fn keeps_numbers(&self) -> bool {
        match self.kind {
            Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number => true,
            Kind::Boolean => !self.mixed,
            Kind::Text | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Json | Kind::Blob => {
                false
            }
        }
    }

    /// Whether a value that is told is what the contract says.
    pub(super) fn fits(&self, cell: Cell<'_>) -> bool {
        let is_exact = |n: i64| (-EXACT_MAX..=EXACT_MAX).contains(&n);
        match (self.kind, cell) {
            (_, Cell::Null) => true,
            _ if self.mixed => true,
            (Kind::Text, Cell::Text(_)) | (Kind::Blob, Cell::Blob(_)) => true,
            (Kind::Json, Cell::Text(text)) => self.nests || infer::is(Kind::Json, text),
            (Kind::Int64 | Kind::Decimal, Cell::Integer(_)) => true,
            (Kind::Integer | Kind::Number, Cell::Integer(n)) => is_exact(n),
            (Kind::Decimal | Kind::Number, Cell::Real(n)) => n.is_finite(),
            (Kind::Boolean, Cell::Integer(0 | 1)) => true,
            (
                Kind::Integer
                | Kind::Int64
                | Kind::Decimal
                | Kind::Number
                | Kind::Boolean
                | Kind::Date
                | Kind::Timestamp
                | Kind::LocalTimestamp,
                Cell::Text(text),
            ) => infer::is(self.kind, text),
            (_, Cell::Text(_) | Cell::Integer(_) | Cell::Real(_) | Cell::Blob(_)) => false,
        }
    }

    /// What makes a key of a value, its own or a caller's: the same for the same.
    #[inline]
    pub(super) fn key<'a>(&self, cell: Cell<'a>) -> Option<Key<'a>> {
        match (self.kind, cell) {
            (Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number, Cell::Integer(n)) => {
                Some(Key::Integer(n))
            }
            (Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number, Cell::Text(text)) if !self.mixed => {
                let whole = if infer::is(Kind::Int64, text) { text.parse().ok() } else { None };
                Some(whole.map_or(Key::Text(Cow::Borrowed(text)), Key::Integer))
            }
            (Kind::Number, Cell::Real(n)) if n.fract() == 0.0 && n.abs() <= EXACT_MAX as f64 => {
                Some(Key::Integer(n as i64))
            }
            (_, cell) => self.text(cell).map(Key::Text),
        }
    }

    /// How a value is written where it is read by people.
    #[inline]
    pub(super) fn text<'a>(&self, cell: Cell<'a>) -> Option<Cow<'a, str>> {
        match cell {
            Cell::Text(text) => Some(Cow::Borrowed(text)),
            Cell::Integer(n) if self.kind == Kind::Boolean => {
                Some(Cow::Borrowed(if n == 0 { "false" } else { "true" }))
            }
            Cell::Integer(n) => Some(Cow::Owned(n.to_string())),
            Cell::Real(n) => Some(Cow::Owned(real(n + 0.0))),
            Cell::Null | Cell::Blob(_) => None,
        }
    }
}

impl Compared for Column {
    /// Bytes have none.
    type Rank = Option<Rank>;

    fn kind(&self) -> Kind {
        self.kind
    }

    fn rank(&self, value: Cell<'_>) -> Option<Rank> {
        self.text(value).map(|text| Rank::of(self.kind, &text))
    }

    /// There is one zero; and where there are numbers of any length, all are compared by their digits.
    #[inline]
    fn compared<'a>(&self, told: Told<'a>) -> Told<'a> {
        match (self.kind, told) {
            (Kind::Decimal, Told::Cell(Cell::Integer(n))) => Told::Text(n.to_string()),
            (Kind::Decimal, Told::Cell(Cell::Real(n))) => Told::Text(real(n + 0.0)),
            (_, Told::Cell(Cell::Real(n))) => Told::Cell(Cell::Real(n + 0.0)),
            (_, told) => told,
        }
    }

    fn tell_apart(&self, a: Cell<'_>, b: Cell<'_>) -> Ordering {
        self.key(a).cmp(&self.key(b))
    }
}

/// What base64 says. What another text would be too is none: it could not be written back.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok().filter(|bytes| STANDARD.encode(bytes) == text)
}

/// The shortest digits that mean this number and no other.
fn real(n: f64) -> String {
    n.to_string()
}
