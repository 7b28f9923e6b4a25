//! What a column's values are, and how each is told in JSON.

/// A column has a kind only if every value prints back identically; everything else is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataType {
    Text,
    /// Between -(2^53 - 1) and 2^53 - 1: exact in every reader of JSON.
    Integer,
    /// Any integer of 64 bits, as a string.
    Int64,
    /// Any decimal fraction or large integer, as a string.
    Decimal,
    /// A binary fraction, as a number.
    Number,
    Boolean,
    Date,
    /// A point in time: date, time and zone.
    Timestamp,
    /// Date and time, without a zone.
    LocalTimestamp,
    /// Nested JSON.
    Json,
    /// Bytes, as base64.
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

    /// As manifests and people call it.
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

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether "at least" and "at most" mean something.
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

    /// Whether it can be filtered and sorted by: one value, not a structure.
    pub fn is_scalar(self) -> bool {
        !matches!(self, Self::Json | Self::Blob)
    }
}
