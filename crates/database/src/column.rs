//! One column of a table: how the database stores it, and as what the contract serves it.

use contract::infer::SAFE_INTEGER_MAX;
use contract::source::{ColumnShape, SourceError};
use contract::{DataType, ValueRef};

use crate::connection::ResultColumn;
use crate::schema::ColumnInfo;

/// How a database stores a column, as far as reading and comparing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Storage {
    /// Up to 64 bits with a sign.
    Integer,
    /// 64 bits without a sign.
    Unsigned,
    Float32,
    Float64,
    Decimal,
    Boolean,
    Text,
    /// Text that is filled up with blanks, which do not count.
    PaddedText,
    Date,
    /// A point in time.
    Timestamp,
    /// A date and time without a zone.
    LocalTimestamp,
    Uuid,
    Bytes,
    Json,
    /// Another type, which is read as the database prints it: intervals, addresses, ranges, enums.
    Printed,
    /// An array or row, which is read as JSON.
    PrintedJson,
}

impl Storage {
    /// Whether statements select it as text or JSON.
    pub(crate) fn is_printed(self) -> bool {
        matches!(self, Self::Printed | Self::PrintedJson)
    }

    /// The types that such a column can be served as; the first is the natural one.
    pub(crate) fn data_types(self) -> &'static [DataType] {
        match self {
            Self::Integer => &[DataType::Int64, DataType::Integer, DataType::Decimal, DataType::Boolean],
            Self::Unsigned => &[DataType::Decimal, DataType::Int64, DataType::Integer],
            Self::Decimal => &[DataType::Decimal],
            Self::Float32 | Self::Float64 => &[DataType::Number],
            Self::Boolean => &[DataType::Boolean],
            Self::Text | Self::PaddedText => &[DataType::Text, DataType::Json],
            Self::Uuid | Self::Printed => &[DataType::Text],
            Self::Date => &[DataType::Date],
            Self::Timestamp => &[DataType::Timestamp],
            Self::LocalTimestamp => &[DataType::LocalTimestamp],
            Self::Bytes => &[DataType::Blob],
            Self::Json | Self::PrintedJson => &[DataType::Json],
        }
    }
}

/// A column as a contract reads it.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// With the alias of the table.
    pub(crate) quoted: String,
    pub(crate) info: ColumnInfo,
    pub(crate) data_type: DataType,
    nullable: bool,
    mixed: bool,
}

impl Column {
    pub(crate) fn new(info: &ColumnInfo, shape: &ColumnShape, quoted: String) -> Result<Self, SourceError> {
        let supported = info.storage.data_types();
        if !supported.contains(&shape.data_type) {
            let words: Vec<&str> = supported.iter().map(|kind| kind.as_str()).collect();
            let message = format!(
                "column `{}` is `{}` in the database, which can be served as {}, not as {}",
                info.name,
                info.type_name,
                words.join(" or "),
                shape.data_type.as_str()
            );
            return Err(SourceError::Incompatible { detail: message.clone(), message });
        }
        if !shape.null_texts.is_empty() {
            let message = format!("column `{}`: a text that means NULL is only for files", info.name);
            return Err(SourceError::Incompatible { detail: message.clone(), message });
        }
        let mut info = info.clone();
        // Those that fit 64 bits with a sign are read and compared as such; a larger one does not fit the contract then.
        if info.storage == Storage::Unsigned && shape.data_type != DataType::Decimal {
            info.storage = Storage::Integer;
        }
        Ok(Self {
            name: info.name.clone(),
            quoted,
            info,
            data_type: shape.data_type,
            nullable: shape.nullable,
            mixed: shape.mixed,
        })
    }

    pub(crate) fn storage(&self) -> Storage {
        self.info.storage
    }

    /// Whether values of other types exist.
    pub(crate) fn is_mixed(&self) -> bool {
        self.mixed
    }

    pub(crate) fn result(&self) -> ResultColumn {
        match self.info.storage {
            storage @ (Storage::Printed | Storage::PrintedJson) => ResultColumn::computed(storage),
            storage => ResultColumn { storage, native_type: Some(self.info.native_type) },
        }
    }

    /// Whether a value fits the contract.
    pub(crate) fn accepts(&self, value: ValueRef<'_>) -> bool {
        match (self.data_type, value) {
            (_, ValueRef::Null) => self.nullable,
            _ if self.mixed => true,
            (DataType::Integer, ValueRef::Integer(n)) => n.unsigned_abs() <= SAFE_INTEGER_MAX.unsigned_abs(),
            (DataType::Boolean, ValueRef::Integer(n)) => n == 0 || n == 1,
            (DataType::Int64 | DataType::Decimal, ValueRef::Integer(_)) => true,
            (DataType::Number, ValueRef::Real(n)) => n.is_finite(),
            (DataType::Decimal, ValueRef::Text(text)) => text != "NaN",
            (DataType::Date | DataType::Timestamp | DataType::LocalTimestamp, ValueRef::Text(text)) => {
                // Neither `infinity` nor `0000-00-00`.
                text.as_bytes().first().is_some_and(u8::is_ascii_digit) && !text[4..].contains("-00")
            }
            (DataType::Text | DataType::Json, ValueRef::Text(_)) | (DataType::Blob, ValueRef::Blob(_)) => {
                true
            }
            _ => false,
        }
    }

    /// A value does not fit the contract.
    pub(crate) fn mismatch(&self, value: ValueRef<'_>) -> SourceError {
        let what = match value {
            ValueRef::Null => "a row without a value, and it had none before",
            _ => "a value that does not fit its type in the contract",
        };
        let message = format!("column `{}` has {what}; the server must read the database again", self.name);
        SourceError::Incompatible { detail: message.clone(), message }
    }
}
