//! A value from a caller as the sort of value that a column holds: the other direction of [`Column::tell`].

use contract::field::Field;
use contract::infer;
use contract::source::WriteFault;
use contract::{Cell, Kind, Value};

use super::column::{Column, bytes};
use super::seen::{Moments, Sort};
use super::table::Held;

/// What is to be written, and what is to be read back afterwards.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// The place in the shape's columns.
    pub(super) place: usize,
    pub(super) value: Value,
    form: Form,
}

/// As which sort of value the file is to hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    AsItIs,
    Text,
    Moment,
    Digits,
    Boolean,
    Json,
}

impl Asked {
    /// `sort` is what the column holds, as far as it holds anything.
    pub(super) fn new(place: usize, column: &Column, sort: Sort, cell: Cell<'_>) -> Result<Self, WriteFault> {
        let refused = |why: &str| Err(WriteFault::Refused { column: Some(place), why: why.into() });
        let asked = |value: Value, form| Ok(Self { place, value, form });
        match (column.kind, cell) {
            (_, Cell::Null) => asked(Value::Null, Form::AsItIs),
            (Kind::Blob, Cell::Text(text)) => match bytes(text) {
                Some(bytes) => asked(Value::Blob(bytes), Form::AsItIs),
                None => refused("it is not base64"),
            },
            (Kind::Blob, Cell::Blob(_)) => asked(cell.to_value(), Form::AsItIs),
            (_, Cell::Blob(_)) => refused("bytes cannot be held here"),
            (Kind::Json, Cell::Text(_)) if column.nests => asked(cell.to_value(), Form::Json),
            (Kind::Json, Cell::Text(_)) => asked(cell.to_value(), Form::Text),
            (Kind::Boolean, Cell::Integer(n @ (0 | 1))) => match sort {
                Sort::Texts => asked(Value::Text(if n == 1 { "true" } else { "false" }.into()), Form::Text),
                Sort::Numbers => asked(cell.to_value(), Form::AsItIs),
                Sort::Booleans | Sort::Others => asked(cell.to_value(), Form::Boolean),
            },
            (Kind::Boolean, Cell::Text(text @ ("true" | "false"))) if !column.mixed => {
                Self::new(place, column, sort, Cell::Integer((text == "true").into()))
            }
            (
                Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number,
                Cell::Integer(_) | Cell::Real(_),
            ) => asked(cell.to_value(), if sort == Sort::Texts { Form::Text } else { Form::AsItIs }),
            (Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number, Cell::Text(text)) => {
                let is_number = match column.kind {
                    // These are handed in as texts, so one that looks like a number is one.
                    Kind::Decimal => infer::is(Kind::Decimal, text),
                    _ => !column.mixed,
                };
                let form = if is_number && sort != Sort::Texts { Form::Digits } else { Form::Text };
                asked(cell.to_value(), form)
            }
            (Kind::Date | Kind::Timestamp | Kind::LocalTimestamp, Cell::Text(_)) => {
                asked(cell.to_value(), Form::Moment)
            }
            (Kind::Text, Cell::Text(text)) => {
                // A column that is only told as text keeps what it has.
                let form = match sort {
                    Sort::Numbers if infer::is(Kind::Decimal, text) => Form::Digits,
                    Sort::Booleans if infer::is(Kind::Boolean, text) => Form::Boolean,
                    Sort::Numbers | Sort::Booleans | Sort::Texts | Sort::Others => Form::Text,
                };
                asked(cell.to_value(), form)
            }
            (Kind::Text, Cell::Integer(_) | Cell::Real(_)) => asked(cell.to_value(), Form::Text),
            (Kind::Boolean, Cell::Text(_)) => asked(cell.to_value(), Form::Text),
            (
                Kind::Boolean | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Json | Kind::Blob,
                Cell::Integer(_) | Cell::Real(_),
            ) => refused("it is not of the kind of this column"),
        }
    }

    /// `text` has what had to be written out.
    pub(super) fn held<'a>(&'a self, text: &'a mut String, moments: Moments) -> Held<'a> {
        match (self.plainly(text), moments) {
            // Among times a text that looks like one would be told as one, and count for nothing in the file.
            (Held::Text(text), Moments::Some) if looks_like_moment(text) => Held::Moment(text),
            (Held::Text(text), Moments::Only) => Held::Moment(text),
            (Held::Text(text), Moments::Some) if self.form == Form::Moment => Held::Moment(text),
            (held, _) => held,
        }
    }

    fn plainly<'a>(&'a self, text: &'a mut String) -> Held<'a> {
        let cell = self.value.as_cell();
        match (self.form, cell) {
            (Form::Boolean, Cell::Integer(n)) => Held::Boolean(n != 0),
            (Form::Boolean, Cell::Text(word)) => Held::Boolean(word == "true"),
            (Form::Digits, Cell::Text(digits)) => Held::Digits(digits),
            (Form::Json, Cell::Text(json)) => Held::Json(json),
            (Form::Text, Cell::Integer(n)) => {
                *text = n.to_string();
                Held::Text(text)
            }
            (Form::Text, Cell::Real(n)) => {
                *text = n.to_string();
                Held::Text(text)
            }
            (Form::AsItIs | Form::Text | Form::Moment | Form::Digits | Form::Boolean | Form::Json, cell) => {
                cell.into()
            }
        }
    }

    /// Whether a value that was read back is told as the one that was asked for.
    pub(super) fn is_told_as(&self, column: &Column, cell: Cell<'_>) -> bool {
        let asked = self.value.as_cell();
        if asked == cell {
            return true;
        }
        let field = field(column);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let are_told = field.value(&mut a, asked).is_ok() && field.value(&mut b, cell).is_ok();
        are_told && a == b
    }

    /// Whether a value that stands there already is told exactly as this one would be.
    pub(super) fn is_there(&self, column: &Column, cell: Cell<'_>) -> bool {
        field(column).keeps(self.value.as_cell(), cell)
    }
}

/// A date, a time of day or both, however many parts of it are there.
fn looks_like_moment(text: &str) -> bool {
    let is_clock = |text: &str| {
        let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let parts = clock.split(':').count();
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
        (2..=3).contains(&parts) && clock.split(':').all(is_number) && is_number(fraction)
    };
    let kinds = [Kind::Date, Kind::Timestamp, Kind::LocalTimestamp];
    kinds.into_iter().any(|kind| infer::is(kind, text)) || is_clock(text)
}

fn field(column: &Column) -> Field {
    let mut field = Field::new(&column.name, &column.name, column.kind);
    (field.nullable, field.mixed) = (true, column.mixed);
    field
}
