//! Operands of comparisons, as the column that they are compared with can hold them.
//!
//! What a comparison means is defined in [`contract::order`]. A database would round an operand to the type of the column,
//! and then other rows would pass; so an operand that the column cannot hold is replaced here by one that passes the same rows.

use std::cmp::Ordering;

use contract::order::{self, decimal_parts, timestamp_range, timestamp_sort_key};
use contract::source::Comparison;
use contract::{DataType, ValueRef};
use spile_core::calendar::{CivilDate, CivilTime};

use crate::column::{Column, Storage};
use crate::connection::Param;

/// What a row's value is compared with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    /// A value of the column's type.
    Value(Param),
    /// A decimal, which is compared with a column of integers.
    Decimal(String),
    /// A date or time that JSON readers do not know, as responses show it: the engine may have a literal for it
    /// ([`Dialect::exceptional_time`](crate::dialect::Dialect::exceptional_time)).
    Exception(String),
    /// Equal to no value of the column, and greater than all.
    AfterAll,
    /// Equal to no value of the column; never ordered.
    Nothing,
}

impl Operand {
    fn text(text: impl Into<String>) -> Self {
        Self::Value(Param::Text(text.into()))
    }
}

/// The operand for a comparison with a column. Timestamps of filters are ranges: see [`time_range`].
pub(crate) fn operand(column: &Column, comparison: Comparison, value: ValueRef<'_>) -> Operand {
    match column.storage() {
        Storage::Integer if column.data_type == DataType::Boolean => boolean(value),
        Storage::Integer | Storage::Unsigned | Storage::Decimal => number(column.storage(), value),
        Storage::Float64 => float(comparison, value),
        Storage::Float32 => narrow_float(comparison, value),
        Storage::Boolean => boolean(value),
        Storage::Text | Storage::PaddedText | Storage::Printed => match value {
            // No database of these stores the character 0 in a text.
            ValueRef::Text(text) if text.contains('\0') => Operand::Nothing,
            ValueRef::Text(text) => Operand::text(text),
            ValueRef::Integer(n) => Operand::text(n.to_string()),
            ValueRef::Real(n) => Operand::text(n.to_string()),
            ValueRef::Null | ValueRef::Blob(_) => Operand::Nothing,
        },
        Storage::Date => match value {
            ValueRef::Text(text) if is_date(text) => Operand::text(text),
            ValueRef::Text(text) if !text.contains('T') => Operand::Exception(text.into()),
            _ => Operand::Nothing,
        },
        Storage::Timestamp | Storage::LocalTimestamp => match value {
            ValueRef::Text(text) if is_in_year_0(text) => Operand::Exception(text.into()),
            ValueRef::Text(text) => match timestamp_sort_key(text).and_then(|at| time_text(at.0, at.1)) {
                Some(text) => Operand::text(text),
                None => Operand::Exception(text.into()),
            },
            _ => Operand::Nothing,
        },
        Storage::Uuid => match value {
            ValueRef::Text(text) if is_uuid(text) => Operand::text(text),
            _ => Operand::Nothing,
        },
        Storage::Bytes => match value {
            ValueRef::Blob(bytes) => Operand::Value(Param::Bytes(bytes.to_vec())),
            _ => Operand::Nothing,
        },
        Storage::Json | Storage::PrintedJson => Operand::Nothing,
    }
}

fn boolean(value: ValueRef<'_>) -> Operand {
    match value {
        ValueRef::Integer(n @ (0 | 1)) => Operand::Value(Param::Integer(n)),
        ValueRef::Text("true") => Operand::Value(Param::Integer(1)),
        ValueRef::Text("false") => Operand::Value(Param::Integer(0)),
        _ => Operand::Nothing,
    }
}

fn number(storage: Storage, value: ValueRef<'_>) -> Operand {
    let digits = match value {
        ValueRef::Integer(n) if storage == Storage::Integer => return Operand::Value(Param::Integer(n)),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) if n.is_finite() => n.to_string(),
        ValueRef::Real(n) => return special_number(storage, if n > 0.0 { "Infinity" } else { "-Infinity" }),
        ValueRef::Text(text) if decimal_parts(text).is_some() => text.to_owned(),
        ValueRef::Text(text) => return special_number(storage, text),
        ValueRef::Null | ValueRef::Blob(_) => return Operand::Nothing,
    };
    match (storage, digits.parse()) {
        (Storage::Integer, Ok(n)) => Operand::Value(Param::Integer(n)),
        _ => Operand::Decimal(digits),
    }
}

/// Responses name numbers that are not finite, and a filter finds them by the same names.
fn special_number(storage: Storage, text: &str) -> Operand {
    match text {
        "Infinity" | "-Infinity" | "NaN" if storage == Storage::Decimal => Operand::Decimal(text.into()),
        "-Infinity" => Operand::Nothing,
        _ => Operand::AfterAll,
    }
}

fn float(comparison: Comparison, value: ValueRef<'_>) -> Operand {
    let real = |n: f64| Operand::Value(Param::Real(n));
    let number = match value {
        ValueRef::Real(n) => return real(n),
        ValueRef::Integer(n) => order::nearest_real(comparison, &n.to_string()).to_value(),
        ValueRef::Text("Infinity") => return real(f64::INFINITY),
        ValueRef::Text("-Infinity") => return real(f64::NEG_INFINITY),
        ValueRef::Text("NaN") => return real(f64::NAN),
        ValueRef::Text(text) => order::nearest_real(comparison, text).to_value(),
        ValueRef::Null | ValueRef::Blob(_) => return Operand::Nothing,
    };
    match number.as_value_ref() {
        ValueRef::Real(n) => real(n),
        ValueRef::Integer(n) if n as f64 as i64 == n => real(n as f64),
        ValueRef::Integer(n) => float(comparison, ValueRef::Text(&format!("{n}.0"))),
        ValueRef::Text(_) => Operand::AfterAll,
        ValueRef::Null | ValueRef::Blob(_) => Operand::Nothing,
    }
}

/// As [`float`], for a column of 32 bits, whose values are the numbers that their shortest digits say.
fn narrow_float(comparison: Comparison, value: ValueRef<'_>) -> Operand {
    let digits = match value {
        ValueRef::Real(n) if n.is_finite() => n.to_string(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Text(text) if decimal_parts(text).is_some() => text.to_owned(),
        value => return float(comparison, value),
    };
    let Ok(nearest) = digits.parse::<f32>() else { return Operand::Nothing };
    let shown = nearest.to_string();
    let order = order::compare(DataType::Decimal, ValueRef::Text(&shown), ValueRef::Text(&digits));
    let number = match (comparison, order) {
        (_, Ordering::Equal) => nearest,
        (Comparison::AtLeast, Ordering::Less) => nearest.next_up(),
        (Comparison::AtMost, Ordering::Greater) => nearest.next_down(),
        (Comparison::AtLeast | Comparison::AtMost, _) => nearest,
        _ => return Operand::Nothing,
    };
    Operand::Value(Param::Real(f64::from(number)))
}

/// The first and the last time that a filter's operand stands for, in the resolution of the column. The first may be after the
/// last: then no value is equal.
pub(crate) fn time_range(column: &Column, value: ValueRef<'_>) -> Option<(Param, Param)> {
    let ValueRef::Text(text) = value else { return None };
    if !text.contains('/') && is_in_year_0(text) {
        return None;
    }
    let (first, last) = timestamp_range(text)?;
    let step = 10_u32.pow(9 - u32::from(column.info.fraction_digits.min(9)));
    let first = match first.1.div_ceil(step) * step {
        1_000_000_000 => (first.0 + 1, 0),
        nanos => (first.0, nanos),
    };
    let last = (last.0, last.1 / step * step);
    Some((Param::Text(time_text(first.0, first.1)?), Param::Text(time_text(last.0, last.1)?)))
}

/// `2026-02-11 10:00:00.5`: as every engine reads it. Times before the year 1 count as its first.
pub(crate) fn time_text(seconds: i64, nanos: u32) -> Option<String> {
    const DAY_SECONDS: i64 = 86_400;
    let (days, of_day) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let first = CivilDate::new(1, 1, 1)?;
    if days < first.days() {
        return Some(format!("{first} 00:00:00"));
    }
    let minutes = of_day / 60;
    let time = CivilTime::new((minutes / 60) as u8, (minutes % 60) as u8, (of_day % 60) as u8, nanos)?;
    Some(format!("{} {time}", CivilDate::from_days(days).unwrap_or(CivilDate::MAX)))
}

/// A day that every database knows: none has a year 0.
pub(crate) fn is_date(text: &str) -> bool {
    CivilDate::parse(text.as_bytes()).is_some_and(|date| date.year() > 0)
}

/// Whether it is of the year before the year 1, which no literal of a database calls 0.
fn is_in_year_0(text: &str) -> bool {
    text.starts_with("0000-")
}

/// In the only spelling that is shown.
pub(crate) fn is_uuid(text: &str) -> bool {
    let is_part = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_part)
}
