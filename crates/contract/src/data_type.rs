//! The types of columns, and their representation in JSON.

/// A column has a type only if every value prints back identically; otherwise it is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataType {
    Text,
    /// Between -(2^53 - 1) and 2^53 - 1, which every JSON reader keeps exactly.
    Integer,
    /// A 64-bit integer, as a JSON string.
    Int64,
    /// A decimal fraction or large integer of any length, as a JSON string.
    Decimal,
    /// A binary floating-point number, as a JSON number.
    Number,
    Boolean,
    Date,
    /// Date and time with a time zone.
    Timestamp,
    /// Date and time without a time zone.
    LocalTimestamp,
    /// Nested JSON.
    Json,
    /// Bytes, as base64 in a JSON string.
    Blob,
}

impl DataType {
    pub const ALL: [Self; 11] = [
        Self::Text,
        Self::Integer,
        Self::Int64,
        Self::Decimal,
        Self::Number,
        Self::Boolean,
        Self::Date,
        Self::Timestamp,
        Self::LocalTimestamp,
        Self::Json,
        Self::Blob,
    ];

    /// The name in manifests and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Int64 => "int64",
            Self::Decimal => "decimal",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::LocalTimestamp => "local_timestamp",
            Self::Json => "json",
            Self::Blob => "blob",
        }
    }

    /// `an integer`, `a text`
    pub(crate) fn with_article(self) -> String {
        let article = if matches!(self, Self::Integer | Self::Int64) { "an" } else { "a" };
        format!("{article} {}", self.as_str())
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether a list has `_min` and `_max` arguments for it.
    pub fn has_range(self) -> bool {
        match self {
            Self::Integer
            | Self::Int64
            | Self::Decimal
            | Self::Number
            | Self::Date
            | Self::Timestamp
            | Self::LocalTimestamp => true,
            Self::Text | Self::Boolean | Self::Json | Self::Blob => false,
        }
    }

    /// Whether a source with native numbers stores values of this type as numbers, and a text file as their digits.
    pub fn is_stored_as_number(self) -> bool {
        match self {
            Self::Integer | Self::Int64 | Self::Decimal | Self::Number | Self::Boolean => true,
            Self::Text | Self::Date | Self::Timestamp | Self::LocalTimestamp | Self::Json | Self::Blob => {
                false
            }
        }
    }

    /// Whether rows can be filtered and sorted by it, and found by it.
    pub fn is_scalar(self) -> bool {
        !matches!(self, Self::Json | Self::Blob)
    }
}
