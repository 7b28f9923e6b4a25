//! Converts a caller's value to what a column stores: the inverse of [`TableColumn::to_value`].

use contract::field::Field;
use contract::infer;
use contract::source::WriteError;
use contract::{ColumnFormat, DataType, Value, ValueRef};

use super::column::{TableColumn, decode_base64};
use super::profile::{DateTimeShare, StorageClass};
use super::table::StoredValue;

/// A value to write, and to compare with what reads back afterwards.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NewValue {
    /// The position in the shape's columns.
    pub(super) column: usize,
    pub(super) value: Value,
    representation: Representation,
    /// The value in the format of the column.
    formatted: Option<String>,
}

/// How the file should store the value.
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
    /// `storage` is what the column holds so far.
    pub(super) fn new(
        position: usize,
        column: &TableColumn,
        storage: StorageClass,
        cell: ValueRef<'_>,
    ) -> Result<Self, WriteError> {
        let refused =
            |reason: &str| Err(WriteError::Rejected { column: Some(position), reason: reason.into() });
        let new_value =
            |value: Value, form| Ok(Self { column: position, value, representation: form, formatted: None });
        if let (Some(format), false) = (&column.format, cell == ValueRef::Null) {
            return Self::in_format(position, column, format, cell);
        }
        match (column.data_type, cell) {
            (_, ValueRef::Null) => new_value(Value::Null, Representation::Unchanged),
            (DataType::Blob, ValueRef::Text(text)) => match decode_base64(text) {
                Some(bytes) => new_value(Value::Blob(bytes), Representation::Unchanged),
                None => refused("the value is not base64"),
            },
            (DataType::Blob, ValueRef::Blob(_)) => new_value(cell.to_value(), Representation::Unchanged),
            (_, ValueRef::Blob(_)) => refused("this column cannot hold bytes"),
            (DataType::Json, ValueRef::Text(_)) if column.has_nested_json => {
                new_value(cell.to_value(), Representation::Json)
            }
            (DataType::Json, ValueRef::Text(_)) => new_value(cell.to_value(), Representation::Text),
            (DataType::Boolean, ValueRef::Integer(n @ (0 | 1))) => match storage {
                StorageClass::Texts => {
                    new_value(Value::Text(if n == 1 { "true" } else { "false" }.into()), Representation::Text)
                }
                StorageClass::Numbers => new_value(cell.to_value(), Representation::Unchanged),
                StorageClass::Booleans | StorageClass::Other => {
                    new_value(cell.to_value(), Representation::Boolean)
                }
            },
            (DataType::Boolean, ValueRef::Text(text @ ("true" | "false"))) if !column.mixed => {
                Self::new(position, column, storage, ValueRef::Integer((text == "true").into()))
            }
            (
                DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
                ValueRef::Integer(_) | ValueRef::Real(_),
            ) => new_value(
                cell.to_value(),
                if storage == StorageClass::Texts { Representation::Text } else { Representation::Unchanged },
            ),
            (
                DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
                ValueRef::Text(text),
            ) => {
                let is_number = match column.data_type {
                    // Decimals arrive as texts, so a text that looks like a decimal is one.
                    DataType::Decimal => infer::matches_type(DataType::Decimal, text),
                    _ => !column.mixed,
                };
                let form = if is_number && storage != StorageClass::Texts {
                    Representation::NumberText
                } else {
                    Representation::Text
                };
                new_value(cell.to_value(), form)
            }
            (DataType::Date | DataType::Timestamp | DataType::LocalTimestamp, ValueRef::Text(_)) => {
                new_value(cell.to_value(), Representation::DateTime)
            }
            (DataType::Text, ValueRef::Text(text)) => {
                // A text column whose stored values are numbers or booleans stays so.
                let form = match storage {
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
                new_value(cell.to_value(), form)
            }
            (DataType::Text, ValueRef::Integer(_) | ValueRef::Real(_)) => {
                new_value(cell.to_value(), Representation::Text)
            }
            (DataType::Boolean, ValueRef::Text(_)) => new_value(cell.to_value(), Representation::Text),
            (
                DataType::Boolean
                | DataType::Date
                | DataType::Timestamp
                | DataType::LocalTimestamp
                | DataType::Json
                | DataType::Blob,
                ValueRef::Integer(_) | ValueRef::Real(_),
            ) => refused("the value is not of the column's type"),
        }
    }

    /// A value for a column of texts in a format. It is compared as it reads back, with the zeros that the format adds.
    fn in_format(
        position: usize,
        column: &TableColumn,
        format: &ColumnFormat,
        cell: ValueRef<'_>,
    ) -> Result<Self, WriteError> {
        let refused = |reason: String| WriteError::Rejected { column: Some(position), reason };
        let canonical =
            column.to_text(cell).ok_or_else(|| refused("this column cannot hold bytes".into()))?;
        let text = format.render(&canonical);
        let text =
            text.ok_or_else(|| refused(format!("the column's format `{format}` cannot express it")))?;
        if column.is_null(&text) {
            return Err(refused(format!("`{text}` would read back as null")));
        }
        let value = column.to_value(StoredValue::Text(&text)).as_value_ref().to_value();
        Ok(Self { column: position, value, representation: Representation::Text, formatted: Some(text) })
    }

    /// `text` is a buffer for values that have to be formatted.
    pub(super) fn to_stored<'a>(
        &'a self,
        text: &'a mut String,
        date_times: DateTimeShare,
    ) -> StoredValue<'a> {
        match (self.to_stored_plain(text), date_times) {
            // Among dates, a text that looks like a date would read back as one, but would be no date to the
            // spreadsheet.
            (StoredValue::Text(text), DateTimeShare::Some) if looks_like_date_time(text) => {
                StoredValue::DateTime(text)
            }
            (StoredValue::Text(text), DateTimeShare::All) => StoredValue::DateTime(text),
            (StoredValue::Text(text), DateTimeShare::Some)
                if self.representation == Representation::DateTime =>
            {
                StoredValue::DateTime(text)
            }
            (stored, _) => stored,
        }
    }

    fn to_stored_plain<'a>(&'a self, text: &'a mut String) -> StoredValue<'a> {
        if let Some(formatted) = &self.formatted {
            return StoredValue::Text(formatted);
        }
        let cell = self.value.as_value_ref();
        match (self.representation, cell) {
            (Representation::Boolean, ValueRef::Integer(n)) => StoredValue::Boolean(n != 0),
            (Representation::Boolean, ValueRef::Text(payload)) => StoredValue::Boolean(payload == "true"),
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

    /// Whether the value that was read back means the same as this one.
    pub(super) fn reads_back_as(&self, column: &TableColumn, cell: ValueRef<'_>) -> bool {
        let new_value = self.value.as_value_ref();
        if new_value == cell {
            return true;
        }
        let field = as_field(column);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let are_valid =
            field.write_value(&mut a, new_value).is_ok() && field.write_value(&mut b, cell).is_ok();
        are_valid && a == b
    }

    /// Whether the stored value reads exactly as this one would.
    pub(super) fn is_stored_already(&self, column: &TableColumn, cell: ValueRef<'_>) -> bool {
        as_field(column).round_trips(self.value.as_value_ref(), cell)
    }
}

/// A date, a time of day, or both, however precise.
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
