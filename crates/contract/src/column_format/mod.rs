//! How people write the values of a column: `1.234,50 €`, `13/02/2026`, `ja`.
//!
//! A [`ColumnFormat`] parses such a text into the canonical text of its type (`1234.50`, `2026-02-13`, `true`) and
//! renders it back. The canonical text is exact: no digit passes through a float. Inference, readers, writers,
//! `check` and `init` all use this one type. Its [`Display`](fmt::Display) is what a manifest says:
//! `number_format = "1.234,50 €"`, `date_format = "dd/mm/yyyy"`, `boolean_format = "ja/nein"`.

mod boolean;
mod date;
mod month_names;
mod number;

use std::fmt;

use crate::data_type::DataType;

pub use boolean::BooleanFormat;
pub use date::DateFormat;
pub use number::{Grouping, NegativeStyle, NumberFormat};
pub(crate) use number::{NumberReading, NumberSpelling, is_currency};

/// The notation of a column's values in a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ColumnFormat {
    Number(NumberFormat),
    Date(DateFormat),
    Boolean(BooleanFormat),
}

impl ColumnFormat {
    /// The canonical text of a value, or `None` if the text is not in this format. Blanks around it are ignored.
    pub fn parse(&self, text: &str) -> Option<String> {
        match self {
            Self::Number(format) => format.parse(text),
            Self::Date(format) => format.parse(text),
            Self::Boolean(format) => format.parse(text).map(|value| value.to_string()),
        }
    }

    /// A canonical text in this format; `None` if the format cannot express it, such as seconds without a place for
    /// them.
    pub fn render(&self, canonical: &str) -> Option<String> {
        match self {
            Self::Number(format) => format.render(canonical),
            Self::Date(format) => format.render(canonical),
            Self::Boolean(format) => format.render(canonical).map(str::to_owned),
        }
    }

    /// Whether values of a type can be in this format.
    pub fn is_for(&self, data_type: DataType) -> bool {
        match self {
            Self::Number(_) => {
                matches!(
                    data_type,
                    DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number
                )
            }
            Self::Date(format) => format.data_type() == data_type,
            Self::Boolean(_) => data_type == DataType::Boolean,
        }
    }

    /// The type of the values, if nothing else is known about them.
    pub fn default_type(&self) -> DataType {
        match self {
            Self::Number(_) => DataType::Decimal,
            Self::Date(format) => format.data_type(),
            Self::Boolean(_) => DataType::Boolean,
        }
    }

    /// The manifest key that declares such a format.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Number(_) => "number_format",
            Self::Date(_) => "date_format",
            Self::Boolean(_) => "boolean_format",
        }
    }

    /// The unit that the texts have and the values do not: `€`, `%`.
    pub fn unit(&self) -> Option<&str> {
        match self {
            Self::Number(format) => format.unit(),
            Self::Date(_) | Self::Boolean(_) => None,
        }
    }
}

impl fmt::Display for ColumnFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(format) => format.fmt(f),
            Self::Date(format) => format.fmt(f),
            Self::Boolean(format) => format.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
