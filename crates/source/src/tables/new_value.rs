//! A value from a caller as the sort of value that a column holds: the other direction of [`Column::tell`].

use contract::field::Field;
use contract::infer;
use contract::source::WriteError;
use contract::{DataType, Value, ValueRef};

use super::column::{TableColumn, decode_base64};
use super::profile::{DateTimeShare, StorageClass};
use super::table::StoredValue;

/// What is to be written, and what is to be read back afterwards.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NewValue {
    /// The place in the shape's columns.
    pub(super) column: usize,
    pub(super) value: Value,
    representation: Representation,
}

/// As which sort of value the file is to hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Representation {
    Unchanged,
    Text,
    DateTime,
    NumberText,
    Boolean,
    Json,
}

impl NewValue {
    /// `sort` is what the column holds, as far as it holds anything.
    pub(super) fn new(
        place: usize,
        column: &TableColumn,
        sort: StorageClass,
        cell: ValueRef<'_>,
    ) -> Result<Self, WriteError> {
        let refused = |why: &str| Err(WriteError::Rejected { column: Some(place), reason: why.into() });
        let asked = |value: Value, form| Ok(Self { column: place, value, representation: form });
        match (column.data_type, cell) {
            (_, ValueRef::Null) => asked(Value::Null, Representation::Unchanged),
            (DataType::Blob, ValueRef::Text(text)) => match decode_base64(text) {
                Some(bytes) => asked(Value::Blob(bytes), Representation::Unchanged),
                None => refused("it is not base64"),
            },
            (DataType::Blob, ValueRef::Blob(_)) => asked(cell.to_value(), Representation::Unchanged),
            (_, ValueRef::Blob(_)) => refused("bytes cannot be held here"),
            (DataType::Json, ValueRef::Text(_)) if column.has_nested_json => {
                asked(cell.to_value(), Representation::Json)
            }
            (DataType::Json, ValueRef::Text(_)) => asked(cell.to_value(), Representation::Text),
            (DataType::Boolean, ValueRef::Integer(n @ (0 | 1))) => match sort {
                StorageClass::Texts => {
                    asked(Value::Text(if n == 1 { "true" } else { "false" }.into()), Representation::Text)
                }
                StorageClass::Numbers => asked(cell.to_value(), Representation::Unchanged),
                StorageClass::Booleans | StorageClass::Other => {
                    asked(cell.to_value(), Representation::Boolean)
                }
            },
            (DataType::Boolean, ValueRef::Text(text @ ("true" | "false"))) if !column.mixed => {
                Self::new(place, column, sort, ValueRef::Integer((text == "true").into()))
            }
            (
                DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
                ValueRef::Integer(_) | ValueRef::Real(_),
            ) => asked(
                cell.to_value(),
                if sort == StorageClass::Texts { Representation::Text } else { Representation::Unchanged },
            ),
            (
                DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
                ValueRef::Text(text),
            ) => {
                let is_number = match column.data_type {
                    // These are handed in as texts, so one that looks like a number is one.
                    DataType::Decimal => infer::matches_type(DataType::Decimal, text),
                    _ => !column.mixed,
                };
                let form = if is_number && sort != StorageClass::Texts {
                    Representation::NumberText
                } else {
                    Representation::Text
                };
                asked(cell.to_value(), form)
            }
            (DataType::Date | DataType::Timestamp | DataType::LocalTimestamp, ValueRef::Text(_)) => {
                asked(cell.to_value(), Representation::DateTime)
            }
            (DataType::Text, ValueRef::Text(text)) => {
                // A column that is only told as text keeps what it has.
                let form = match sort {
                    StorageClass::Numbers if infer::matches_type(DataType::Decimal, text) => {
                        Representation::NumberText
                    }
                    StorageClass::Booleans if infer::matches_type(DataType::Boolean, text) => {
                        Representation::Boolean
                    }
                    StorageClass::Numbers
                    | StorageClass::Booleans
                    | StorageClass::Texts
                    | StorageClass::Other => Representation::Text,
                };
                asked(cell.to_value(), form)
            }
            (DataType::Text, ValueRef::Integer(_) | ValueRef::Real(_)) => {
                asked(cell.to_value(), Representation::Text)
            }
            (DataType::Boolean, ValueRef::Text(_)) => asked(cell.to_value(), Representation::Text),
            (
                DataType::Boolean
                | DataType::Date
                | DataType::Timestamp
                | DataType::LocalTimestamp
                | DataType::Json
                | DataType::Blob,
                ValueRef::Integer(_) | ValueRef::Real(_),
            ) => refused("it is not of the kind of this column"),
        }
    }

    /// `text` has what had to be written out.
    pub(super) fn to_stored<'a>(&'a self, text: &'a mut String, moments: DateTimeShare) -> StoredValue<'a> {
        match (self.to_stored_plain(text), moments) {
            // Among times a text that looks like one would be told as one, and count for nothing in the file.
            (StoredValue::Text(text), DateTimeShare::Some) if looks_like_date_time(text) => {
                StoredValue::DateTime(text)
            }
            (StoredValue::Text(text), DateTimeShare::All) => StoredValue::DateTime(text),
            (StoredValue::Text(text), DateTimeShare::Some)
                if self.representation == Representation::DateTime =>
            {
                StoredValue::DateTime(text)
            }
            (held, _) => held,
        }
    }

    fn to_stored_plain<'a>(&'a self, text: &'a mut String) -> StoredValue<'a> {
        let cell = self.value.as_value_ref();
        match (self.representation, cell) {
            (Representation::Boolean, ValueRef::Integer(n)) => StoredValue::Boolean(n != 0),
            (Representation::Boolean, ValueRef::Text(word)) => StoredValue::Boolean(word == "true"),
            (Representation::NumberText, ValueRef::Text(digits)) => StoredValue::NumberText(digits),
            (Representation::Json, ValueRef::Text(json)) => StoredValue::Json(json),
            (Representation::Text, ValueRef::Integer(n)) => {
                *text = n.to_string();
                StoredValue::Text(text)
            }
            (Representation::Text, ValueRef::Real(n)) => {
                *text = n.to_string();
                StoredValue::Text(text)
            }
            (
                Representation::Unchanged
                | Representation::Text
                | Representation::DateTime
                | Representation::NumberText
                | Representation::Boolean
                | Representation::Json,
                cell,
            ) => cell.into(),
        }
    }

    /// Whether a value that was read back is told as the one that was asked for.
    pub(super) fn reads_back_as(&self, column: &TableColumn, cell: ValueRef<'_>) -> bool {
        let asked = self.value.as_value_ref();
        if asked == cell {
            return true;
        }
        let field = as_field(column);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let are_told = field.write_value(&mut a, asked).is_ok() && field.write_value(&mut b, cell).is_ok();
        are_told && a == b
    }

    /// Whether a value that stands there already is told exactly as this one would be.
    pub(super) fn is_stored_already(&self, column: &TableColumn, cell: ValueRef<'_>) -> bool {
        as_field(column).round_trips(self.value.as_value_ref(), cell)
    }
}

/// A date, a time of day or both, however many parts of it are there.
fn looks_like_date_time(text: &str) -> bool {
    let is_clock = |text: &str| {
        let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let parts = clock.split(':').count();
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
        (2..=3).contains(&parts) && clock.split(':').all(is_number) && is_number(fraction)
    };
    let kinds = [DataType::Date, DataType::Timestamp, DataType::LocalTimestamp];
    kinds.into_iter().any(|kind| infer::matches_type(kind, text)) || is_clock(text)
}

fn as_field(column: &TableColumn) -> Field {
    let mut field = Field::new(&column.name, &column.name, column.data_type);
    (field.nullable, field.mixed) = (true, column.mixed);
    field
}
