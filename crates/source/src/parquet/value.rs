//! Values of flat columns: from what a Parquet file stores to what a table has.

use contract::DataType;
use contract::infer;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType as ParquetType, FixedLenByteArray, Int96};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;
use spile_core::calendar::CivilDate;

use crate::tables::StoredValue;

/// A value, and the class in which a table stores it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(String),
    DateTime(String),
    /// The digits of a decimal.
    Number(String),
    Json(String),
    Blob(Vec<u8>),
}

impl Cell {
    pub(super) fn as_stored(&self) -> StoredValue<'_> {
        match self {
            Self::Null => StoredValue::Null,
            Self::Boolean(value) => StoredValue::Boolean(*value),
            Self::Integer(n) => StoredValue::Integer(*n),
            Self::Real(n) => StoredValue::Real(*n),
            Self::Text(text) => StoredValue::Text(text),
            Self::DateTime(text) => StoredValue::DateTime(text),
            Self::Number(digits) => StoredValue::NumberText(digits),
            Self::Json(text) => StoredValue::Json(text),
            Self::Blob(bytes) => StoredValue::Blob(bytes),
        }
    }
}

/// What the values of a flat column mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlatType {
    Boolean,
    Integer,
    Unsigned32,
    Unsigned64,
    /// Digits after the point.
    Decimal(u32),
    Date,
    Time(TimeUnit),
    /// In UTC, or without a time zone.
    Timestamp(TimeUnit, TimeZoneUse),
    /// The nanoseconds of a Julian day, without a time zone.
    JulianNanos,
    Float,
    Half,
    Text,
    Json,
    Uuid,
    Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeZoneUse {
    Utc,
    None,
}

impl FlatType {
    /// The type of a column without values, from which nothing else can be inferred.
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Integer | Self::Unsigned32 | Self::Unsigned64 | Self::Decimal(0) => DataType::Integer,
            Self::Decimal(_) => DataType::Decimal,
            Self::Date => DataType::Date,
            Self::Timestamp(_, TimeZoneUse::Utc) => DataType::Timestamp,
            Self::Timestamp(_, TimeZoneUse::None) | Self::JulianNanos => DataType::LocalTimestamp,
            Self::Float | Self::Half => DataType::Number,
            Self::Time(_) | Self::Text | Self::Uuid => DataType::Text,
            Self::Json => DataType::Json,
            Self::Bytes => DataType::Blob,
        }
    }

    /// `None` if the type is not supported.
    pub(super) fn of(column: &ColumnDescriptor) -> Option<Self> {
        let (logical, converted) = (column.logical_type_ref(), column.converted_type());
        let scale = || match logical {
            Some(LogicalType::Decimal(decimal)) => u32::try_from(decimal.scale).ok(),
            _ => u32::try_from(column.type_scale()).ok(),
        };
        let is_decimal =
            matches!(logical, Some(LogicalType::Decimal(_))) || converted == ConvertedType::DECIMAL;
        Some(match column.physical_type() {
            PhysicalType::BOOLEAN => Self::Boolean,
            PhysicalType::INT96 => Self::JulianNanos,
            PhysicalType::FLOAT | PhysicalType::DOUBLE => Self::Float,
            _ if is_decimal => Self::Decimal(scale().filter(|scale| *scale <= SCALE_MAX)?),
            PhysicalType::INT32 => match (logical, converted) {
                (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => Self::Date,
                (Some(LogicalType::Time(time)), _) => Self::Time(time.unit),
                (None, ConvertedType::TIME_MILLIS) => Self::Time(TimeUnit::MILLIS),
                (Some(LogicalType::Integer(integer)), _) if !integer.is_signed => Self::Unsigned32,
                (None, ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32) => {
                    Self::Unsigned32
                }
                _ => Self::Integer,
            },
            PhysicalType::INT64 => match (logical, converted) {
                (Some(LogicalType::Timestamp(timestamp)), _) => {
                    let zone = match timestamp.is_adjusted_to_u_t_c {
                        true => TimeZoneUse::Utc,
                        false => TimeZoneUse::None,
                    };
                    Self::Timestamp(timestamp.unit, zone)
                }
                (None, ConvertedType::TIMESTAMP_MILLIS) => {
                    Self::Timestamp(TimeUnit::MILLIS, TimeZoneUse::Utc)
                }
                (None, ConvertedType::TIMESTAMP_MICROS) => {
                    Self::Timestamp(TimeUnit::MICROS, TimeZoneUse::Utc)
                }
                (Some(LogicalType::Time(time)), _) => Self::Time(time.unit),
                (None, ConvertedType::TIME_MICROS) => Self::Time(TimeUnit::MICROS),
                (Some(LogicalType::Integer(integer)), _) if !integer.is_signed => Self::Unsigned64,
                (None, ConvertedType::UINT_64) => Self::Unsigned64,
                _ => Self::Integer,
            },
            PhysicalType::BYTE_ARRAY => match (logical, converted) {
                (Some(LogicalType::String | LogicalType::Enum), _) => Self::Text,
                (Some(LogicalType::Json), _) | (None, ConvertedType::JSON) => Self::Json,
                (None, ConvertedType::UTF8 | ConvertedType::ENUM) => Self::Text,
                _ => Self::Bytes,
            },
            PhysicalType::FIXED_LEN_BYTE_ARRAY => match logical {
                Some(LogicalType::Uuid) => Self::Uuid,
                Some(LogicalType::Float16) => Self::Half,
                _ => Self::Bytes,
            },
        })
    }
}

/// More digits after the point are not a decimal that anybody computes with.
const SCALE_MAX: u32 = 76;

/// Reads the values of up to so many rows.
pub(super) fn read_cells(
    reader: &mut ColumnReader,
    flat_type: FlatType,
    definition_level_max: i16,
    rows: usize,
) -> Result<Vec<Cell>, ParquetError> {
    let batch = Batch { definition_level_max, rows };
    match reader {
        ColumnReader::BoolColumnReader(reader) => batch.read(reader, Cell::Boolean),
        ColumnReader::Int32ColumnReader(reader) => batch.read(reader, |n: i32| match flat_type {
            FlatType::Unsigned32 => Cell::Integer(i64::from(n.cast_unsigned())),
            _ => integer_cell(flat_type, i64::from(n)),
        }),
        ColumnReader::Int64ColumnReader(reader) => batch.read(reader, |n| integer_cell(flat_type, n)),
        ColumnReader::Int96ColumnReader(reader) => batch.read(reader, |value| julian_cell(&value)),
        // The shortest digits that mean this number are its value.
        ColumnReader::FloatColumnReader(reader) => {
            batch.read(reader, |n: f32| Cell::Real(n.to_string().parse().unwrap_or(f64::from(n))))
        }
        ColumnReader::DoubleColumnReader(reader) => batch.read(reader, Cell::Real),
        ColumnReader::ByteArrayColumnReader(reader) => {
            batch.read(reader, |bytes: ByteArray| bytes_cell(flat_type, bytes.data()))
        }
        ColumnReader::FixedLenByteArrayColumnReader(reader) => {
            batch.read(reader, |bytes: FixedLenByteArray| bytes_cell(flat_type, bytes.data()))
        }
    }
}

/// The next rows of a column.
struct Batch {
    definition_level_max: i16,
    rows: usize,
}

impl Batch {
    fn read<T: ParquetType>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        cell: impl Fn(T::T) -> Cell,
    ) -> Result<Vec<Cell>, ParquetError> {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut records = 0;
        while records < self.rows {
            let definitions = (self.definition_level_max > 0).then_some(&mut levels);
            let (read, ..) = reader.read_records(self.rows - records, definitions, None, &mut values)?;
            if read == 0 {
                break;
            }
            records += read;
        }
        let mut values = values.into_iter();
        if self.definition_level_max == 0 {
            return Ok(values.map(cell).collect());
        }
        let cell = |level: i16| match level == self.definition_level_max {
            true => values.next().map_or(Cell::Null, &cell),
            false => Cell::Null,
        };
        Ok(levels.into_iter().map(cell).collect())
    }
}

fn integer_cell(flat_type: FlatType, n: i64) -> Cell {
    // What the calendar does not have stays the number that it is.
    let or_number = |text: Option<String>| text.map_or_else(|| Cell::Number(n.to_string()), Cell::DateTime);
    match flat_type {
        FlatType::Decimal(scale) => decimal_cell(i128::from(n), scale),
        FlatType::Date => or_number(date_text(n)),
        FlatType::Time(unit) => {
            let nanos = i128::from(n) * nanos_in(unit);
            let text = u64::try_from(nanos).ok().filter(|nanos| *nanos < DAY_NANOS as u64).map(time_text);
            text.map_or_else(|| Cell::Number(n.to_string()), Cell::Text)
        }
        FlatType::Timestamp(unit, zone) => or_number(timestamp_text(i128::from(n) * nanos_in(unit), zone)),
        FlatType::Unsigned64 => {
            let n = n.cast_unsigned();
            i64::try_from(n).map_or_else(|_| Cell::Number(n.to_string()), Cell::Integer)
        }
        _ => Cell::Integer(n),
    }
}

const DAY_NANOS: i128 = 86_400_000_000_000;
const JULIAN_DAY_OF_EPOCH: i64 = 2_440_588;

fn nanos_in(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::MILLIS => 1_000_000,
        TimeUnit::MICROS => 1_000,
        TimeUnit::NANOS => 1,
    }
}

fn julian_cell(value: &Int96) -> Cell {
    let [low, high, day] = value.data() else { return Cell::Null };
    let nanos = (i128::from(*high) << 32) | i128::from(*low);
    let days = i64::from(day.cast_signed()) - JULIAN_DAY_OF_EPOCH;
    let text = timestamp_text(i128::from(days) * DAY_NANOS + nanos, TimeZoneUse::None);
    text.map_or_else(|| Cell::Number(format!("{days}")), Cell::DateTime)
}

pub(super) fn date_text(days: i64) -> Option<String> {
    let date = CivilDate::from_days(days)?;
    Some(format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day()))
}

fn time_text(nanos: u64) -> String {
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction > 0 {
        let digits = format!("{fraction:09}");
        let length = if fraction % 1_000_000 == 0 {
            3
        } else if fraction % 1000 == 0 {
            6
        } else {
            9
        };
        text.push('.');
        text.push_str(&digits[..length]);
    }
    text
}

/// A point in time, from the nanoseconds since 1970.
pub(super) fn timestamp_text(nanos: i128, zone: TimeZoneUse) -> Option<String> {
    let date = date_text(i64::try_from(nanos.div_euclid(DAY_NANOS)).ok()?)?;
    let time = time_text(u64::try_from(nanos.rem_euclid(DAY_NANOS)).ok()?);
    let zone = match zone {
        TimeZoneUse::Utc => "Z",
        TimeZoneUse::None => "",
    };
    Some(format!("{date}T{time}{zone}"))
}

/// A whole number is one, whatever its column may hold.
fn decimal_cell(unscaled: i128, scale: u32) -> Cell {
    match i64::try_from(unscaled) {
        Ok(n) if scale == 0 => Cell::Integer(n),
        _ => Cell::Number(decimal_text(unscaled < 0, &unscaled.unsigned_abs().to_string(), scale)),
    }
}

/// Digits with a point before the last `scale` of them.
fn decimal_text(is_negative: bool, digits: &str, scale: u32) -> String {
    let scale = scale as usize;
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let is_zero = digits.bytes().all(|digit| digit == b'0');
    let sign = if is_negative && !is_zero { "-" } else { "" };
    match fraction.is_empty() {
        true => format!("{sign}{whole}"),
        false => format!("{sign}{whole}.{fraction}"),
    }
}

fn bytes_cell(flat_type: FlatType, bytes: &[u8]) -> Cell {
    let text = || std::str::from_utf8(bytes).ok();
    match flat_type {
        FlatType::Decimal(scale) => big_decimal_cell(bytes, scale),
        // Bytes that are not UTF-8, where a text was promised, are returned as bytes.
        FlatType::Text => text().map_or_else(|| Cell::Blob(bytes.to_vec()), |text| Cell::Text(text.into())),
        FlatType::Json => match text().filter(|text| infer::matches_type(DataType::Json, text)) {
            Some(text) => Cell::Json(text.into()),
            None => text().map_or_else(|| Cell::Blob(bytes.to_vec()), |text| Cell::Text(text.into())),
        },
        FlatType::Uuid => uuid_text(bytes).map_or_else(|| Cell::Blob(bytes.to_vec()), Cell::Text),
        FlatType::Half => match bytes {
            [low, high] => Cell::Real(half_value(u16::from_le_bytes([*low, *high]))),
            _ => Cell::Blob(bytes.to_vec()),
        },
        _ => Cell::Blob(bytes.to_vec()),
    }
}

/// A decimal of any length, in two's complement, the most significant byte first.
fn big_decimal_cell(bytes: &[u8], scale: u32) -> Cell {
    const EXACT_BYTES: usize = 16;
    let is_negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    if bytes.len() <= EXACT_BYTES {
        let fill = if is_negative { 0xff } else { 0 };
        let mut wide = [fill; EXACT_BYTES];
        wide[EXACT_BYTES - bytes.len()..].copy_from_slice(bytes);
        return decimal_cell(i128::from_be_bytes(wide), scale);
    }
    let mut magnitude = bytes.to_vec();
    if is_negative {
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            let (sum, has_carry) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, has_carry);
        }
    }
    Cell::Number(decimal_text(is_negative, &big_digits(magnitude), scale))
}

/// The decimal digits of a number, by dividing it by a billion again and again.
fn big_digits(mut magnitude: Vec<u8>) -> String {
    const BILLION: u64 = 1_000_000_000;
    let mut groups = Vec::new();
    while magnitude.iter().any(|byte| *byte != 0) {
        let mut rest = 0_u64;
        for byte in &mut magnitude {
            let value = rest << 8 | u64::from(*byte);
            *byte = (value / BILLION) as u8;
            rest = value % BILLION;
        }
        groups.push(rest);
    }
    let mut digits = groups.pop().unwrap_or(0).to_string();
    groups.iter().rev().for_each(|group| digits.push_str(&format!("{group:09}")));
    digits
}

fn uuid_text(bytes: &[u8]) -> Option<String> {
    (bytes.len() == 16).then(|| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    })
}

/// An IEEE 754 number of 16 bits. Every one is a number of 64 bits, too.
pub(super) fn half_value(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, TimeZoneUse, big_decimal_cell, decimal_cell, half_value, timestamp_text, uuid_text};

    #[test]
    fn decimals_have_their_digits_whatever_their_length() {
        let number = |digits: &str| Cell::Number(digits.to_owned());
        for (unscaled, scale, expected) in [
            (1250, 2, number("12.50")),
            (-5, 3, number("-0.005")),
            (0, 2, number("0.00")),
            (42, 0, Cell::Integer(42)),
            (i128::MAX, 0, number("170141183460469231731687303715884105727")),
            (i128::MIN, 38, number("-1.70141183460469231731687303715884105728")),
        ] {
            assert_eq!(decimal_cell(unscaled, scale), expected);
            let bytes = unscaled.to_be_bytes();
            assert_eq!(big_decimal_cell(&bytes, scale), expected);
            // The same number in more bytes.
            let fill = if unscaled < 0 { 0xff } else { 0 };
            let wide: Vec<u8> = std::iter::repeat_n(fill, 8).chain(bytes).collect();
            match (big_decimal_cell(&wide, scale), expected) {
                (Cell::Number(digits), Cell::Integer(n)) => assert_eq!(digits, n.to_string()),
                (found, expected) => assert_eq!(found, expected),
            }
        }
        assert_eq!(big_decimal_cell(&[], 2), number("0.00"));
    }

    #[test]
    fn times_have_as_many_digits_as_they_need() {
        for (nanos, zone, expected) in [
            (0, TimeZoneUse::Utc, Some("1970-01-01T00:00:00Z")),
            (-1, TimeZoneUse::None, Some("1969-12-31T23:59:59.999999999")),
            (1_770_804_000_123_000_000, TimeZoneUse::Utc, Some("2026-02-11T10:00:00.123Z")),
            (1_770_804_000_000_001_000, TimeZoneUse::None, Some("2026-02-11T10:00:00.000001")),
            (i128::MAX, TimeZoneUse::Utc, None),
        ] {
            assert_eq!(timestamp_text(nanos, zone).as_deref(), expected, "{nanos}");
        }
    }

    #[test]
    fn small_types_are_read_exactly() {
        let uuid =
            [0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0];
        assert_eq!(uuid_text(&uuid).as_deref(), Some("123e4567-e89b-12d3-a456-426614174000"));
        assert_eq!(uuid_text(&uuid[1..]), None);
        for (bits, expected) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 5.960_464_477_539_063e-8), (0x7bff, 65504.0)]
        {
            assert_eq!(half_value(bits), expected, "{bits:x}");
        }
        assert!(half_value(0x7c00).is_infinite() && half_value(0x7e00).is_nan());
    }
}
