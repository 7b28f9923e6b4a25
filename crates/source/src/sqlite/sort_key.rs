//! Bytes that sort as `contract::order` compares, for columns that SQLite would sort differently.
//!
//! The first byte is a class (numbers, values of the type, other texts, blobs); the rest decides within the
//! class. NULL stays NULL.

use contract::ValueRef;
use contract::order;

/// How a column is sorted, where SQLite's own order is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SortKeyKind {
    /// Points in time, in any spelling.
    Timestamp,
    /// Decimals of any length, in any storage class.
    Decimal,
    /// Texts of a UTF-16 database, which SQLite compares as UTF-16 bytes.
    Text,
    /// True and false, as numbers or as words.
    Boolean,
}

const TAG_NUMBER: u8 = 1;
const TAG_VALUE: u8 = 2;
const TAG_TEXT: u8 = 3;
const TAG_BLOB: u8 = 4;

impl SortKeyKind {
    pub(super) const ALL: [Self; 4] = [Self::Timestamp, Self::Decimal, Self::Text, Self::Boolean];

    pub(super) fn sql_function(self) -> &'static str {
        match self {
            Self::Timestamp => "spile_moments",
            Self::Decimal => "spile_decimals",
            Self::Text => "spile_texts",
            Self::Boolean => "spile_truths",
        }
    }
}

pub(super) fn encode(kind: SortKeyKind, value: ValueRef<'_>) -> Option<Vec<u8>> {
    match (kind, value) {
        (_, ValueRef::Null) => None,
        (_, ValueRef::Blob(bytes)) => Some(tagged(TAG_BLOB, bytes)),
        (SortKeyKind::Decimal, ValueRef::Integer(n)) => encode_decimal(&n.to_string()),
        (SortKeyKind::Decimal, ValueRef::Real(n)) if n.is_finite() => encode_decimal(&n.to_string()),
        (SortKeyKind::Decimal, ValueRef::Real(n)) => {
            Some(vec![TAG_VALUE, if n > 0.0 { POSITIVE_INFINITY } else { NEGATIVE_INFINITY }])
        }
        (_, ValueRef::Integer(n)) => Some(encode_number(n as f64, n)),
        (_, ValueRef::Real(n)) => Some(encode_number(n, n as i64)),
        (SortKeyKind::Timestamp, ValueRef::Text(text)) => Some(match timestamp_prefix(text) {
            Some(mut bytes) => {
                bytes.extend_from_slice(text.as_bytes());
                bytes
            }
            None => tagged(TAG_TEXT, text.as_bytes()),
        }),
        (SortKeyKind::Decimal, ValueRef::Text(text)) => {
            Some(encode_decimal(text).unwrap_or_else(|| tagged(TAG_TEXT, text.as_bytes())))
        }
        (SortKeyKind::Boolean, ValueRef::Text("true")) => Some(encode_number(1.0, 1)),
        (SortKeyKind::Boolean, ValueRef::Text("false")) => Some(encode_number(0.0, 0)),
        (SortKeyKind::Text | SortKeyKind::Boolean, ValueRef::Text(text)) => {
            Some(tagged(TAG_TEXT, text.as_bytes()))
        }
    }
}

/// The common prefix of all spellings of a timestamp. They sort before this prefix followed by a byte 255,
/// which no text contains.
pub(super) fn timestamp_prefix(text: &str) -> Option<Vec<u8>> {
    order::timestamp_sort_key(text).map(|at| time_prefix(at, text.len()))
}

/// The prefix of the first timestamp that a filter's operand stands for.
pub(super) fn timestamp_start_prefix(text: &str) -> Option<Vec<u8>> {
    order::timestamp_range(text).map(|(first, _)| time_prefix(first, 1))
}

/// The prefix of the last timestamp that a filter's operand stands for: a date is its whole day.
pub(super) fn timestamp_end_prefix(text: &str) -> Option<Vec<u8>> {
    order::timestamp_range(text).map(|(_, last)| time_prefix(last, 1))
}

fn time_prefix((seconds, nanos): (i64, u32), room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(14 + room);
    out.push(TAG_VALUE);
    out.extend_from_slice(&(seconds.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    out.extend_from_slice(&nanos.to_be_bytes());
    out
}

fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + bytes.len());
    out.push(tag);
    out.extend_from_slice(bytes);
    out
}

fn encode_number(real: f64, whole: i64) -> Vec<u8> {
    // Negative zero equals zero.
    let bits = (real + 0.0).to_bits();
    // The order of `f64::total_cmp`: the bits of negative numbers are inverted, positive numbers follow.
    let bits = if bits >> 63 == 1 { !bits } else { bits | (1 << 63) };
    let mut out = tagged(TAG_NUMBER, &bits.to_be_bytes());
    out.extend_from_slice(&(whole.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    out
}

const NEGATIVE_INFINITY: u8 = 0;
const NEGATIVE: u8 = 1;
const ZERO: u8 = 2;
const POSITIVE: u8 = 3;
const POSITIVE_INFINITY: u8 = 4;

/// Sign, number of integer digits, digits, end marker. For negative numbers all bytes after the sign are
/// inverted.
fn encode_decimal(text: &str) -> Option<Vec<u8>> {
    let (is_negative, whole, fraction) = order::decimal_parts(text)?;
    if whole.is_empty() && fraction.is_empty() {
        return Some(vec![TAG_VALUE, ZERO]);
    }
    let mut out = vec![TAG_VALUE, if is_negative { NEGATIVE } else { POSITIVE }];
    out.extend_from_slice(&u32::try_from(whole.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(whole.as_bytes());
    out.extend_from_slice(fraction.as_bytes());
    out.push(0);
    if is_negative {
        out[2..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use contract::{DataType, Value, ValueRef, order};
    use proptest::prelude::*;

    use super::{SortKeyKind, encode};

    fn check(kind: SortKeyKind, data_type: DataType, a: ValueRef<'_>, b: ValueRef<'_>) {
        let ours = encode(kind, a).cmp(&encode(kind, b));
        assert_eq!(ours, order::compare(data_type, a, b), "{kind:?} {a:?} {b:?}");
    }

    fn timestamps() -> impl Strategy<Value = Value> {
        let written = (1960..2040_u16, 0..3_u8, prop::option::of(0..2_u8), 0..4_u8).prop_map(
            |(year, hour, fraction, zone)| {
                let fraction = fraction.map_or(String::new(), |n| format!(".{n}"));
                let zone = ["", "Z", "+01:00", "-02:30"][usize::from(zone)];
                Value::Text(format!("{year}-01-01T{hour:02}:00:00{fraction}{zone}"))
            },
        );
        prop_oneof![4 => written, 1 => others()]
    }

    fn decimals() -> impl Strategy<Value = Value> {
        prop_oneof![
            4 => "-?[0-9]{1,3}(\\.[0-9]{0,3})?".prop_map(Value::Text),
            1 => "[a-z]{0,2}".prop_map(Value::Text),
            1 => (-1000..1000_i64).prop_map(Value::Integer),
        ]
    }

    fn booleans() -> impl Strategy<Value = Value> {
        let words = prop::sample::select(vec!["true", "false", "TRUE"]);
        prop_oneof![words.prop_map(|word| Value::Text(word.into())), (-1..3_i64).prop_map(Value::Integer)]
    }

    fn others() -> impl Strategy<Value = Value> {
        prop_oneof![
            "[a-z0-9-]{0,3}".prop_map(Value::Text),
            any::<i64>().prop_map(Value::Integer),
            (-9.0..9.0_f64).prop_map(Value::Real),
            prop::collection::vec(any::<u8>(), 0..3).prop_map(Value::Blob),
        ]
    }

    proptest! {
        #[test]
        fn bytes_sort_as_the_contract_compares(
            m in (timestamps(), timestamps()),
            d in (decimals(), decimals()),
            t in (others(), others()),
            b in (booleans(), booleans()),
        ) {
            check(SortKeyKind::Boolean, DataType::Boolean, b.0.as_value_ref(), b.1.as_value_ref());
            check(SortKeyKind::Timestamp, DataType::Timestamp, m.0.as_value_ref(), m.1.as_value_ref());
            check(SortKeyKind::Decimal, DataType::Decimal, d.0.as_value_ref(), d.1.as_value_ref());
            check(SortKeyKind::Text, DataType::Text, t.0.as_value_ref(), t.1.as_value_ref());
        }
    }

    #[test]
    fn null_and_infinity_sort_correctly() {
        assert_eq!(encode(SortKeyKind::Decimal, ValueRef::Null), None);
        let ascending = [
            ValueRef::Real(f64::NEG_INFINITY),
            ValueRef::Text("-9"),
            ValueRef::Integer(9),
            ValueRef::Real(f64::INFINITY),
        ];
        assert!(ascending.map(|value| encode(SortKeyKind::Decimal, value)).is_sorted());
    }
}
