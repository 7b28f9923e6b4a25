//! The order of values of a type, however a source stores them.

use std::cmp::Ordering;

use json::Decimal;
use spile_core::calendar::Temporal;

use crate::data_type::DataType;
use crate::source::Comparison;
use crate::value::ValueRef;

/// Compares two values of a column. A text is read as a value of the type; a text that is not one comes after those
/// that are.
pub fn compare(kind: DataType, a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    if kind == DataType::Boolean {
        return boolean_as_integer(a).sql_cmp(boolean_as_integer(b));
    }
    match (a, b) {
        (ValueRef::Text(a), ValueRef::Text(b)) => compare_texts(kind, a, b),
        (ValueRef::Text(text), other) if is_number(kind) => compare_text_with_number(kind, text, other),
        (other, ValueRef::Text(text)) if is_number(kind) => {
            compare_text_with_number(kind, text, other).reverse()
        }
        (a, b) => a.sql_cmp(b),
    }
}

/// Booleans are `true` and `false` in some sources, 1 and 0 in others.
fn boolean_as_integer(cell: ValueRef<'_>) -> ValueRef<'_> {
    match cell {
        ValueRef::Text("true") => ValueRef::Integer(1),
        ValueRef::Text("false") => ValueRef::Integer(0),
        other => other,
    }
}

/// Whether a row's value passes a filter with this one operand. A row without a value passes none. Timestamps are compared
/// as points in time: `2026-01-01 00:00:00` equals `2026-01-01T00:00:00`, and a date stands for its whole day.
///
/// A range holds only values of the column's type: `n/a` in a column of numbers sorts after them, and is in no range.
///
/// For `NotEquals`, `IsNull` and `IsNotNull` see [`crate::source::Filter::matches`].
pub fn matches_filter(kind: DataType, value: ValueRef<'_>, test: Comparison, bound: ValueRef<'_>) -> bool {
    if value == ValueRef::Null || bound == ValueRef::Null {
        return false;
    }
    if matches!(test, Comparison::Contains | Comparison::StartsWith) {
        return matches_text(test, value, bound);
    }
    if matches!(test, Comparison::AtLeast | Comparison::AtMost) && !is_in_order(kind, value) {
        return false;
    }
    let (from, to) = match (kind, value, bound) {
        (DataType::Timestamp | DataType::LocalTimestamp, ValueRef::Text(a), ValueRef::Text(b)) => {
            match (timestamp_sort_key(a), timestamp_range(b)) {
                (Some(a), Some((first, last))) => (a.cmp(&first), a.cmp(&last)),
                _ => (compare(kind, value, bound), compare(kind, value, bound)),
            }
        }
        _ => {
            let order = compare(kind, value, bound);
            (order, order)
        }
    };
    match test {
        Comparison::Equals => from.is_ge() && to.is_le(),
        Comparison::AtLeast => from.is_ge(),
        Comparison::AtMost => to.is_le(),
        Comparison::NotEquals => from.is_lt() || to.is_gt(),
        Comparison::Contains
        | Comparison::StartsWith
        | Comparison::IsNull
        | Comparison::IsNotNull
        | Comparison::OneOfKeys
        | Comparison::NoneOfKeys => false,
    }
}

/// Whether a value can be in a range of this type: a number, a point in time, or what looks like a date.
pub fn is_in_order(kind: DataType, value: ValueRef<'_>) -> bool {
    match (kind, value) {
        (
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
            ValueRef::Integer(_) | ValueRef::Real(_),
        ) => true,
        (
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number,
            ValueRef::Text(text),
        ) => is_number_text(kind, text),
        (DataType::Date, ValueRef::Text(text)) => is_date_shaped(text),
        (DataType::Timestamp | DataType::LocalTimestamp, ValueRef::Text(text)) => {
            timestamp_sort_key(text).is_some()
        }
        (
            DataType::Integer
            | DataType::Int64
            | DataType::Decimal
            | DataType::Number
            | DataType::Date
            | DataType::Timestamp
            | DataType::LocalTimestamp,
            _,
        ) => false,
        // No filter has a range of these types.
        (DataType::Text | DataType::Boolean | DataType::Json | DataType::Blob, _) => true,
    }
}

/// Whether a text has the form `2026-02-11`. Sources test the same in their own languages, so the calendar has no say.
fn is_date_shaped(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// The sort key of a timestamp: seconds since 1970, in UTC if it has a time zone, and nanoseconds.
pub fn timestamp_sort_key(text: &str) -> Option<(i64, u32)> {
    Temporal::parse(text.as_bytes()).map(Temporal::sort_key)
}

/// The first and the last sort key that a filter's timestamp stands for: a date is its whole day, and two timestamps
/// with a `/` between are all of the time from one to the other.
pub fn timestamp_range(text: &str) -> Option<((i64, u32), (i64, u32))> {
    if let Some((from, to)) = text.split_once('/') {
        return Some((timestamp_sort_key(from)?, timestamp_sort_key(to)?));
    }
    const LAST_SECOND: i64 = 86_399;
    const LAST_NANOS: u32 = 999_999_999;
    let at = Temporal::parse(text.as_bytes())?;
    let first = at.sort_key();
    Some(match at {
        Temporal::Date(_) => (first, (first.0 + LAST_SECOND, LAST_NANOS)),
        Temporal::DateTime(_) => (first, first),
    })
}

/// Whether the text of a row contains or starts with another one, in lower case. Values that are neither text nor number
/// do not.
pub fn matches_text(test: Comparison, value: ValueRef<'_>, lowercase: ValueRef<'_>) -> bool {
    let ValueRef::Text(wanted) = lowercase else { return false };
    let number;
    let text = match value {
        ValueRef::Text(text) => text,
        ValueRef::Integer(n) => {
            number = n.to_string();
            &number
        }
        ValueRef::Real(n) => {
            number = n.to_string();
            &number
        }
        ValueRef::Null | ValueRef::Blob(_) => return false,
    };
    let is_prefix = test == Comparison::StartsWith;
    if text.is_ascii() {
        let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
        let starts = |at: usize| text[at..at + wanted.len()].eq_ignore_ascii_case(wanted);
        let Some(last) = text.len().checked_sub(wanted.len()) else { return false };
        return if is_prefix { starts(0) } else { (0..=last).any(starts) };
    }
    let text = to_lowercase(text);
    if is_prefix { text.starts_with(wanted) } else { text.contains(wanted) }
}

/// Lowers one character at a time, so that a part of a text stays a part of it: `Σ` becomes `σ` at the end of a word too.
pub fn to_lowercase(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

fn is_number(kind: DataType) -> bool {
    matches!(kind, DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number)
}

fn compare_text_with_number(kind: DataType, text: &str, other: ValueRef<'_>) -> Ordering {
    match other {
        ValueRef::Integer(n) => compare_numbers(kind, text, &n.to_string()),
        // By its shortest digits, so that texts, integers and reals have one order.
        ValueRef::Real(n) if n.is_finite() => compare_numbers(kind, text, &n.to_string()),
        ValueRef::Real(n) if n < 0.0 || !is_number_text(kind, text) => Ordering::Greater,
        ValueRef::Real(_) => Ordering::Less,
        other => ValueRef::Text(text).sql_cmp(other),
    }
}

fn compare_texts(kind: DataType, a: &str, b: &str) -> Ordering {
    match kind {
        DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number => {
            compare_numbers(kind, a, b)
        }
        DataType::Timestamp | DataType::LocalTimestamp => {
            match (timestamp_sort_key(a), timestamp_sort_key(b)) {
                // Equal timestamps may have different spellings; the order must be total.
                (Some(x), Some(y)) => x.cmp(&y).then_with(|| a.cmp(b)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => a.cmp(b),
            }
        }
        DataType::Text | DataType::Boolean | DataType::Date | DataType::Json | DataType::Blob => a.cmp(b),
    }
}

/// A prefix of a value that decides most comparisons without the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortRank(u64, u64);

impl SortRank {
    pub fn new(kind: DataType, text: &str) -> Self {
        match kind {
            DataType::Integer | DataType::Int64 | DataType::Decimal => Self::of_decimal(text),
            DataType::Number => match decimal_parts(text) {
                Some(_) => Self::of_decimal(text),
                None => Self::of_number(text),
            },
            DataType::Timestamp | DataType::LocalTimestamp => timestamp_sort_key(text)
                .map_or(Self::LAST, |(seconds, nanos)| {
                    Self(seconds.cast_unsigned() ^ 1 << 63, u64::from(nanos) << 1 | 1)
                }),
            DataType::Boolean => match text {
                "false" => Self(0, 0),
                "true" => Self(0, 2),
                _ => Self::LAST,
            },
            DataType::Text | DataType::Date | DataType::Json | DataType::Blob => Self::of_text(text),
        }
    }

    /// The order of the values; `None` if only [`compare`] can decide.
    #[inline]
    pub fn try_cmp(self, other: Self) -> Option<Ordering> {
        match self.cmp(&other) {
            Ordering::Equal if self.1 & 1 == 1 => None,
            order => Some(order),
        }
    }

    // The last bit means that the value is longer than its rank. It is set only where that makes the value larger, so
    // it can take part in the comparison.
    const LAST: Self = Self(u64::MAX, u64::MAX);

    /// The first 15 bytes, and their number.
    fn of_text(text: &str) -> Self {
        let mut bytes = [0; 16];
        let length = text.len().min(15);
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        bytes[15] = if text.len() > 15 { 16 << 1 | 1 } else { (length as u8) << 1 };
        Self::split(u128::from_be_bytes(bytes))
    }

    /// 18 digits before the decimal point and 18 after it.
    fn of_decimal(text: &str) -> Self {
        const DIGITS: usize = 18;
        let Some((negative, whole, fraction)) = decimal_parts(text) else { return Self::LAST };
        let number = |digits: &str| digits.bytes().fold(0, |n, c| n * 10 + u128::from(c - b'0'));
        let size = if whole.len() > DIGITS {
            10_u128.pow(DIGITS as u32) << 64 | 1
        } else {
            let kept = &fraction[..fraction.len().min(DIGITS)];
            let scaled = number(kept) * 10_u128.pow((DIGITS - kept.len()) as u32);
            number(whole) << 64 | scaled << 1 | u128::from(fraction.len() > DIGITS)
        };
        Self::split(if negative { (1 << 127) - size } else { (1 << 127) + size })
    }

    /// Like [`Self::of_decimal`], for a number with an exponent.
    fn of_number(text: &str) -> Self {
        const DIGITS: i64 = 18;
        let Some(number) = Decimal::parse_lenient(text) else { return Self::LAST };
        let digits = |powers: std::ops::Range<i64>| {
            powers.rev().fold(0, |n, power| n * 10 + u128::from(number.digit_at(power)))
        };
        let size = match number.powers() {
            None => 0,
            Some((first, _)) if first >= DIGITS => 10_u128.pow(DIGITS as u32) << 64 | 1,
            Some((_, last)) => digits(0..DIGITS) << 64 | digits(-DIGITS..0) << 1 | u128::from(last < -DIGITS),
        };
        Self::split(if number.is_negative() { (1 << 127) - size } else { (1 << 127) + size })
    }

    fn split(whole: u128) -> Self {
        Self((whole >> 64) as u64, whole as u64)
    }
}

/// The parts of a decimal: sign, digits before the point without leading zeros, digits after it without trailing
/// zeros.
pub fn decimal_parts(text: &str) -> Option<(bool, &str, &str)> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
    if whole.is_empty() || !all(whole) || !all(fraction) {
        return None;
    }
    Some((negative, whole.trim_start_matches('0'), fraction.trim_end_matches('0')))
}

fn is_number_text(kind: DataType, text: &str) -> bool {
    decimal_parts(text).is_some() || (kind == DataType::Number && Decimal::parse_lenient(text).is_some())
}

/// Compares numbers of any length exactly. Only [`DataType::Number`] has exponents.
fn compare_numbers(kind: DataType, a: &str, b: &str) -> Ordering {
    if let (Some(x), Some(y)) = (decimal_parts(a), decimal_parts(b)) {
        return compare_decimals(x, y);
    }
    match (is_number_text(kind, a), is_number_text(kind, b)) {
        (true, true) => Decimal::parse_lenient(a).cmp(&Decimal::parse_lenient(b)),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.cmp(b),
    }
}

fn compare_decimals(x: (bool, &str, &str), y: (bool, &str, &str)) -> Ordering {
    let is_zero = |(_, whole, fraction): (bool, &str, &str)| whole.is_empty() && fraction.is_empty();
    let (x_negative, y_negative) = (x.0 && !is_zero(x), y.0 && !is_zero(y));
    let size = x.1.len().cmp(&y.1.len()).then_with(|| x.1.cmp(y.1)).then_with(|| x.2.cmp(y.2));
    match (x_negative, y_negative) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => size,
        (true, true) => size.reverse(),
    }
}

/// A text as a number, if it is one.
pub fn parse_number(text: &str) -> ValueRef<'_> {
    let is_digit = |c: u8| c.is_ascii_digit() || c == b'.';
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || !digits.bytes().all(is_digit) {
        return ValueRef::Text(text);
    }
    match text.parse() {
        Ok(n) => ValueRef::Integer(n),
        Err(_) => text.parse().map_or(ValueRef::Text(text), ValueRef::Real),
    }
}

/// A decimal that no binary fraction equals, as the nearest one that matches the same rows.
pub fn nearest_real(comparison: Comparison, text: &str) -> ValueRef<'_> {
    let ValueRef::Real(n) = parse_number(text) else { return parse_number(text) };
    match (comparison, compare(DataType::Decimal, ValueRef::Real(n), ValueRef::Text(text))) {
        (_, Ordering::Equal) => ValueRef::Real(n),
        (Comparison::Equals, _) => ValueRef::Null,
        (Comparison::AtLeast, Ordering::Less) => ValueRef::Real(n.next_up()),
        (Comparison::AtMost, Ordering::Greater) => ValueRef::Real(n.next_down()),
        (Comparison::AtLeast, Ordering::Greater) | (Comparison::AtMost, Ordering::Less) => ValueRef::Real(n),
        (
            Comparison::NotEquals
            | Comparison::Contains
            | Comparison::StartsWith
            | Comparison::IsNull
            | Comparison::IsNotNull
            | Comparison::OneOfKeys
            | Comparison::NoneOfKeys,
            _,
        ) => ValueRef::Null,
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{self, Equal, Greater, Less};

    use super::{SortRank, compare};
    use crate::data_type::DataType;
    use crate::value::ValueRef;

    #[test]
    fn compare_orders_values_by_type() {
        let text = ValueRef::Text;
        let table: &[(DataType, ValueRef<'_>, ValueRef<'_>, Ordering)] = &[
            (DataType::Integer, text("9"), text("10"), Less),
            (DataType::Integer, text("-9"), text("-10"), Greater),
            (DataType::Integer, text("9"), ValueRef::Integer(10), Less),
            (DataType::Integer, ValueRef::Integer(10), text("9"), Greater),
            (DataType::Decimal, text("1.50"), text("1.5"), Equal),
            (DataType::Decimal, text("1.05"), text("1.5"), Less),
            (DataType::Decimal, text("-0.00"), text("0"), Equal),
            (DataType::Decimal, text("-0.1"), text("0.1"), Less),
            (DataType::Decimal, text("123456789012345678901.2"), text("123456789012345678901.10"), Greater),
            (DataType::Date, text("2026-02-11"), text("2026-10-01"), Less),
            (DataType::Timestamp, text("2026-02-11T10:00:00+02:00"), text("2026-02-11T09:00:00Z"), Less),
            (DataType::Boolean, text("false"), text("true"), Less),
            (DataType::Boolean, text("true"), ValueRef::Integer(1), Equal),
            (DataType::Text, text("10"), text("9"), Less),
            (DataType::Integer, ValueRef::Integer(1), text("one"), Less),
        ];
        for (kind, a, b, expected) in table {
            assert_eq!(compare(*kind, *a, *b), *expected, "{kind:?} {a:?} {b:?}");
            assert_eq!(compare(*kind, *b, *a), expected.reverse(), "{kind:?} {b:?} {a:?}");
        }
    }

    #[test]
    fn ranks_agree_with_compare() {
        let numbers = [
            "0",
            "-0",
            "-0.00",
            "1",
            "1.0",
            "1.5",
            "1.50",
            "-1.5",
            "10",
            "9",
            "-10",
            "007",
            "0.1",
            "0.01",
            "one",
            "",
            "999999999999999999",
            "1000000000000000000",
            "1000000000000000001",
            "-1000000000000000001.5",
            "0.123456789012345678",
            "0.1234567890123456789",
            "0.12345678901234567890",
            "-0.1234567890123456789",
            "1e-7",
            "2E-3",
            "0.002",
            "1.42e-07",
            "-3e-08",
            "-1.5E+3",
            "1e17",
            "1e18",
            "1e19",
            "-1e300",
            "1e-18",
            "1.5e-18",
            "1e-19",
            "1e-300",
            "0e5",
        ];
        let texts = [
            "",
            "a",
            "a\0",
            "ab",
            "b",
            "é",
            "fourteen bytes",
            "fifteen bytes!!",
            "sixteen bytes!!!",
            "sixteen bytes!!?",
            "fifteen bytes!!\0",
            "2026-02-11",
            "true",
        ];
        let moments = [
            "2026-02-11T10:00:00+02:00",
            "2026-02-11T08:00:00Z",
            "2026-02-11T08:00:00.5Z",
            "1969-12-31T00:00:00Z",
            "never",
            "2026-02-11 08:00:00",
            "2026-02-11T08:00:00",
        ];
        for kind in DataType::ALL {
            let all = || numbers.iter().chain(&texts).chain(&moments);
            for (a, b) in all().flat_map(|a| all().map(move |b| (a, b))) {
                let values = compare(kind, ValueRef::Text(a), ValueRef::Text(b));
                let ranks = SortRank::new(kind, a).try_cmp(SortRank::new(kind, b));
                assert!(
                    ranks.is_none_or(|ranks| ranks == values),
                    "{kind:?} {a:?} {b:?}: {ranks:?} {values:?}"
                );
            }
        }
        assert_eq!(
            SortRank::new(DataType::Date, "2026-02-11").try_cmp(SortRank::new(DataType::Date, "2026-02-11")),
            Some(Equal)
        );
        assert_eq!(
            SortRank::new(DataType::Integer, "42").try_cmp(SortRank::new(DataType::Integer, "42")),
            Some(Equal)
        );
    }

    #[test]
    fn filters_compare_points_in_time_and_match_neither_null_nor_in_ranges_other_types() {
        use crate::source::Comparison::{AtLeast, AtMost, Equals};
        let text = ValueRef::Text;
        for (kind, value, test, bound, expected) in [
            (
                DataType::LocalTimestamp,
                text("2026-01-01 00:00:00"),
                AtLeast,
                text("2026-01-01T00:00:00"),
                true,
            ),
            (
                DataType::LocalTimestamp,
                text("2026-01-01 00:00:00"),
                Equals,
                text("2026-01-01T00:00:00"),
                true,
            ),
            (
                DataType::Timestamp,
                text("2026-01-01T01:00:00+01:00"),
                AtMost,
                text("2026-01-01T00:00:00Z"),
                true,
            ),
            (DataType::Timestamp, text("soon"), AtMost, text("2026-01-01T00:00:00Z"), false),
            (DataType::Decimal, ValueRef::Real(19.99), Equals, text("19.990"), true),
            (DataType::Decimal, ValueRef::Real(19.99), Equals, text("19.9900000000000000001"), false),
            (DataType::Number, text("1e1"), AtMost, ValueRef::Real(1e300), true),
            (DataType::Number, text("2E-3"), Equals, ValueRef::Real(0.002), true),
            (DataType::Number, text("1e3"), Equals, ValueRef::Integer(1000), true),
            (DataType::Number, text("1.42e-07"), AtMost, ValueRef::Real(0.00001), true),
            (DataType::Number, text("1.42e-07"), AtLeast, ValueRef::Real(0.5), false),
            (DataType::Number, text("1e5"), AtMost, ValueRef::Real(f64::INFINITY), true),
            (DataType::Decimal, text("1e1"), AtMost, text("20"), false),
            (DataType::Number, text("5"), AtMost, ValueRef::Real(f64::INFINITY), true),
            (DataType::Timestamp, text("soon"), AtLeast, text("2026-01-01T00:00:00Z"), false),
            (DataType::Timestamp, ValueRef::Integer(7), AtMost, text("2026-01-01T00:00:00Z"), false),
            (DataType::Date, text("soon"), AtLeast, text("2026-01-01"), false),
            (DataType::Date, text("1 May 2026"), AtMost, text("2026-01-01"), false),
            (DataType::Date, text("2026-05-01"), AtLeast, text("2026-01-01"), true),
            (DataType::Integer, text("n/a"), AtLeast, ValueRef::Integer(1000), false),
            (DataType::Integer, ValueRef::Real(f64::INFINITY), AtLeast, ValueRef::Integer(1000), true),
            (DataType::Decimal, text("n/a"), AtLeast, text("-1000"), false),
            (DataType::Decimal, ValueRef::Blob(b"9"), AtLeast, text("1"), false),
            (DataType::Number, text("n/a"), AtLeast, ValueRef::Real(1.5), false),
            (DataType::Number, text("n/a"), Equals, text("n/a"), true),
            (DataType::Text, ValueRef::Null, Equals, ValueRef::Null, false),
            (DataType::Integer, ValueRef::Null, AtMost, ValueRef::Integer(1), false),
        ] {
            assert_eq!(
                super::matches_filter(kind, value, test, bound),
                expected,
                "{kind:?} {value:?} {test:?} {bound:?}"
            );
        }
    }
}
