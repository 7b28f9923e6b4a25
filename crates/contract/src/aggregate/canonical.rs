//! The canonical form of a value: equal values have the same, however a source spells or stores them.

use std::borrow::Cow;

use spile_core::calendar::{CivilDate, CivilTime, DateTime, Temporal, UtcOffset};

use super::decimal_sum::format_decimal;
use super::parse_number;
use crate::data_type::DataType;
use crate::infer::SAFE_INTEGER_MAX;
use crate::order::decimal_parts;
use crate::source::DateUnit;
use crate::time_zone::TimeZone;
use crate::value::{Value, ValueRef};

/// A value in its canonical form, borrowed where the source already has it.
#[derive(Debug, Clone, PartialEq)]
pub enum Canonical<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'a, str>),
    Blob(&'a [u8]),
}

/// Of a value that is in its canonical form already.
impl<'a> From<&'a Value> for Canonical<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(n) => Self::Integer(*n),
            Value::Real(n) => Self::Real(*n),
            Value::Text(text) => Self::Text(Cow::Borrowed(text)),
            Value::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

impl<'a> Canonical<'a> {
    pub fn into_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Integer(n) => Value::Integer(n),
            Self::Real(n) => Value::Real(n),
            Self::Text(text) => Value::Text(text.into_owned()),
            Self::Blob(bytes) => Value::Blob(bytes.into()),
        }
    }

    /// Writes bytes that are equal for equal values of one column. No key is the start of another one.
    pub fn write_key(&self, out: &mut Vec<u8>) {
        let mut bytes = |tag: u8, bytes: &[u8]| {
            out.push(tag);
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        match self {
            Self::Null => out.push(0),
            Self::Integer(n) => {
                out.push(1);
                out.extend_from_slice(&n.to_le_bytes());
            }
            Self::Real(n) => {
                out.push(2);
                out.extend_from_slice(&n.to_bits().to_le_bytes());
            }
            Self::Text(text) => bytes(3, text.as_bytes()),
            Self::Blob(blob) => bytes(4, blob),
        }
    }
}

/// The canonical form of a value of a column. A value of another type keeps its text.
pub fn canonical(kind: DataType, value: ValueRef<'_>) -> Canonical<'_> {
    match (kind, value) {
        (_, ValueRef::Null) => Canonical::Null,
        (_, ValueRef::Blob(bytes)) => Canonical::Blob(bytes),
        (DataType::Integer | DataType::Int64, ValueRef::Integer(n)) => Canonical::Integer(n),
        (DataType::Integer | DataType::Int64, ValueRef::Text(text)) => {
            let whole = text.parse::<i64>().ok().filter(|_| !text.starts_with('+'));
            whole.map_or(Canonical::Text(Cow::Borrowed(text)), Canonical::Integer)
        }
        (DataType::Decimal, ValueRef::Text(text)) => Canonical::Text(shortest_decimal(text)),
        (DataType::Decimal, ValueRef::Integer(n)) => Canonical::Text(Cow::Owned(n.to_string())),
        (DataType::Decimal, ValueRef::Real(n)) => {
            Canonical::Text(Cow::Owned(shortest_decimal(&n.to_string()).into_owned()))
        }
        (DataType::Number, ValueRef::Integer(n)) if n.unsigned_abs() <= SAFE_INTEGER_MAX.unsigned_abs() => {
            Canonical::Real(n as f64)
        }
        (DataType::Number, ValueRef::Real(n)) if n.is_finite() => Canonical::Real(n + 0.0),
        (DataType::Number, ValueRef::Text(text)) => {
            parse_number(text).map_or(Canonical::Text(Cow::Borrowed(text)), |n| Canonical::Real(n + 0.0))
        }
        (DataType::Boolean, ValueRef::Integer(n)) => Canonical::Integer(n),
        (DataType::Boolean, ValueRef::Text("true")) => Canonical::Integer(1),
        (DataType::Boolean, ValueRef::Text("false")) => Canonical::Integer(0),
        (DataType::Timestamp | DataType::LocalTimestamp, ValueRef::Text(text)) => {
            Canonical::Text(canonical_timestamp(text))
        }
        (_, ValueRef::Text(text)) => Canonical::Text(Cow::Borrowed(text)),
        (_, ValueRef::Integer(n)) => Canonical::Text(Cow::Owned(n.to_string())),
        (_, ValueRef::Real(n)) => Canonical::Text(Cow::Owned(n.to_string())),
    }
}

/// The value by which a row is grouped: its canonical form, or the part of the calendar that it falls into.
pub fn group_value<'a>(
    kind: DataType,
    unit: Option<DateUnit>,
    time_zone: Option<TimeZone>,
    value: ValueRef<'a>,
) -> Canonical<'a> {
    match (unit, value) {
        (Some(unit), ValueRef::Text(text)) => match day_of(text, time_zone) {
            Some(date) => Canonical::Text(Cow::Owned(calendar_unit(date, unit))),
            None => Canonical::Text(Cow::Borrowed(text)),
        },
        (Some(_) | None, value) => canonical(kind, value),
    }
}

/// A decimal without needless zeros. A text that is not a decimal stays as it is.
fn shortest_decimal(text: &str) -> Cow<'_, str> {
    let Some((negative, whole, fraction)) = decimal_parts(text) else { return Cow::Borrowed(text) };
    let is_shortest = text.len()
        == usize::from(negative) + whole.len() + if fraction.is_empty() { 0 } else { 1 + fraction.len() };
    match is_shortest && !whole.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format_decimal(negative, whole, fraction)),
    }
}

/// A timestamp in UTC if it has a time zone, and always with a `T`.
fn canonical_timestamp(text: &str) -> Cow<'_, str> {
    let Some(Temporal::DateTime(at)) = Temporal::parse(text.as_bytes()) else { return Cow::Borrowed(text) };
    let written = match at.offset {
        None => Some(at),
        Some(_) => {
            let (seconds, nanos) = at.sort_key();
            utc_time(seconds, nanos)
        }
    };
    written.map_or(Cow::Borrowed(text), |at| Cow::Owned(at.to_string()))
}

const DAY_SECONDS: i64 = 86_400;

/// A point in time, as a timestamp in UTC.
pub(crate) fn utc_text(seconds: i64, nanos: u32) -> Option<String> {
    utc_time(seconds, nanos).map(|at| at.to_string())
}

fn utc_time(seconds: i64, nanos: u32) -> Option<DateTime> {
    let date = CivilDate::from_days(seconds.div_euclid(DAY_SECONDS))?;
    let second = seconds.rem_euclid(DAY_SECONDS);
    let time = CivilTime::new((second / 3600) as u8, (second / 60 % 60) as u8, (second % 60) as u8, nanos)?;
    Some(DateTime { date, time, offset: Some(UtcOffset::UTC) })
}

/// The day of a date or timestamp: in the zone, or in UTC, if it has a time zone itself, else as written.
fn day_of(text: &str, time_zone: Option<TimeZone>) -> Option<CivilDate> {
    match (Temporal::parse(text.as_bytes())?, time_zone) {
        (Temporal::Date(date), _) => Some(date),
        (Temporal::DateTime(at), Some(zone)) if at.offset.is_some() => zone.day_at(at.sort_key().0),
        (at @ Temporal::DateTime(_), _) => CivilDate::from_days(at.sort_key().0.div_euclid(DAY_SECONDS)),
    }
}

/// `2026`, `2026-Q1`, `2026-02`, `2026-W07`, `2026-02-11`
fn calendar_unit(date: CivilDate, unit: DateUnit) -> String {
    match unit {
        DateUnit::Year => format!("{:04}", date.year()),
        DateUnit::Quarter => format!("{:04}-Q{}", date.year(), (date.month() - 1) / 3 + 1),
        DateUnit::Month => format!("{:04}-{:02}", date.year(), date.month()),
        DateUnit::Day => date.to_string(),
        DateUnit::Week => {
            // 1970-01-01 was a Thursday. The week belongs to the year of its Thursday.
            let thursday = date.days() - (date.days() + 3).rem_euclid(7) + 3;
            let Some(in_year) = CivilDate::from_days(thursday) else { return date.to_string() };
            let new_year = CivilDate::new(in_year.year(), 1, 1).unwrap_or(in_year);
            format!("{:04}-W{:02}", in_year.year(), (thursday - new_year.days()) / 7 + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Canonical, canonical, group_value};
    use crate::data_type::DataType;
    use crate::source::DateUnit;
    use crate::value::{Value, ValueRef};

    #[test]
    fn equal_values_have_one_form() {
        let text = |text: &str| Value::Text(text.into());
        for (kind, values, expected) in [
            (DataType::Decimal, &[ValueRef::Text("1.50"), ValueRef::Real(1.5)][..], text("1.5")),
            (
                DataType::Decimal,
                &[ValueRef::Text("-0.00"), ValueRef::Integer(0), ValueRef::Real(-0.0)],
                text("0"),
            ),
            (DataType::Decimal, &[ValueRef::Text("0.50"), ValueRef::Real(0.5)], text("0.5")),
            (DataType::Decimal, &[ValueRef::Text("n/a")], text("n/a")),
            (DataType::Integer, &[ValueRef::Text("7"), ValueRef::Integer(7)], Value::Integer(7)),
            (
                DataType::Number,
                &[ValueRef::Text("7.0"), ValueRef::Integer(7), ValueRef::Real(7.0)],
                Value::Real(7.0),
            ),
            (DataType::Boolean, &[ValueRef::Text("true"), ValueRef::Integer(1)], Value::Integer(1)),
            (
                DataType::Timestamp,
                &[ValueRef::Text("2026-01-01T01:00:00+01:00"), ValueRef::Text("2026-01-01T00:00:00Z")],
                text("2026-01-01T00:00:00Z"),
            ),
            (DataType::LocalTimestamp, &[ValueRef::Text("2026-01-01 00:00:00")], text("2026-01-01T00:00:00")),
            (DataType::Text, &[ValueRef::Text("7"), ValueRef::Integer(7)], text("7")),
            (DataType::Text, &[ValueRef::Null], Value::Null),
        ] {
            for value in values {
                assert_eq!(canonical(kind, *value).into_value(), expected, "{kind:?} {value:?}");
            }
        }
    }

    #[test]
    fn dates_fall_into_parts_of_the_calendar() {
        for (value, unit, expected) in [
            ("2026-02-11", DateUnit::Year, "2026"),
            ("2026-02-11", DateUnit::Quarter, "2026-Q1"),
            ("2026-12-31", DateUnit::Quarter, "2026-Q4"),
            ("2026-02-11", DateUnit::Month, "2026-02"),
            ("2026-02-11", DateUnit::Week, "2026-W07"),
            ("2024-12-30", DateUnit::Week, "2025-W01"),
            ("2021-01-03", DateUnit::Week, "2020-W53"),
            ("2026-02-11T23:30:00-02:00", DateUnit::Day, "2026-02-12"),
            ("2026-02-11T23:30:00", DateUnit::Day, "2026-02-11"),
            ("soon", DateUnit::Day, "soon"),
        ] {
            let group = group_value(DataType::Timestamp, Some(unit), None, ValueRef::Text(value));
            assert_eq!(group, Canonical::Text(expected.into()), "{value} {unit:?}");
        }
    }
}
