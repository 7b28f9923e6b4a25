//! Bytes that sort as `contract::order` compares, for columns that SQLite would sort otherwise.
//!
//! First a class (numbers, values of the kind, other texts, blobs), then what decides within it. Nothing stays
//! nothing.

use contract::Cell;
use contract::order;

/// What decides the order of a column, where SQLite's own order is not it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sorted {
    /// Points in time, however they are written.
    Moments,
    /// Decimals of any length, in whatever class they are stored.
    Decimals,
    /// Texts of a database that keeps them as UTF-16 and compares those bytes.
    Texts,
    /// Yes and no, as numbers or as words.
    Truths,
}

const NUMBER: u8 = 1;
const VALUE: u8 = 2;
const TEXT: u8 = 3;
const BLOB: u8 = 4;

impl Sorted {
    pub(super) const ALL: [Self; 4] = [Self::Moments, Self::Decimals, Self::Texts, Self::Truths];

    pub(super) fn function(self) -> &'static str {
        match self {
            Self::Moments => "spile_moments",
            Self::Decimals => "spile_decimals",
            Self::Texts => "spile_texts",
            Self::Truths => "spile_truths",
        }
    }
}

pub(super) fn bytes(sorted: Sorted, cell: Cell<'_>) -> Option<Vec<u8>> {
    match (sorted, cell) {
        (_, Cell::Null) => None,
        (_, Cell::Blob(bytes)) => Some(tagged(BLOB, bytes)),
        (Sorted::Decimals, Cell::Integer(n)) => decimal(&n.to_string()),
        (Sorted::Decimals, Cell::Real(n)) if n.is_finite() => decimal(&n.to_string()),
        (Sorted::Decimals, Cell::Real(n)) => Some(vec![VALUE, if n > 0.0 { LARGEST } else { SMALLEST }]),
        (_, Cell::Integer(n)) => Some(number(n as f64, n)),
        (_, Cell::Real(n)) => Some(number(n, n as i64)),
        (Sorted::Moments, Cell::Text(text)) => Some(match moment(text) {
            Some(mut bytes) => {
                bytes.extend_from_slice(text.as_bytes());
                bytes
            }
            None => tagged(TEXT, text.as_bytes()),
        }),
        (Sorted::Decimals, Cell::Text(text)) => {
            Some(decimal(text).unwrap_or_else(|| tagged(TEXT, text.as_bytes())))
        }
        (Sorted::Truths, Cell::Text("true")) => Some(number(1.0, 1)),
        (Sorted::Truths, Cell::Text("false")) => Some(number(0.0, 0)),
        (Sorted::Texts | Sorted::Truths, Cell::Text(text)) => Some(tagged(TEXT, text.as_bytes())),
    }
}

/// What all the ways to write a moment begin with. They end before this and one byte 255, which is in no text.
pub(super) fn moment(text: &str) -> Option<Vec<u8>> {
    let (seconds, nanos) = order::moment(text)?;
    let mut out = Vec::with_capacity(14 + text.len());
    out.push(VALUE);
    out.extend_from_slice(&(seconds.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    out.extend_from_slice(&nanos.to_be_bytes());
    Some(out)
}

fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + bytes.len());
    out.push(tag);
    out.extend_from_slice(bytes);
    out
}

fn number(real: f64, whole: i64) -> Vec<u8> {
    // There is one zero.
    let bits = (real + 0.0).to_bits();
    // The order of `f64::total_cmp`: negative numbers turned round, positive ones behind them.
    let bits = if bits >> 63 == 1 { !bits } else { bits | (1 << 63) };
    let mut out = tagged(NUMBER, &bits.to_be_bytes());
    out.extend_from_slice(&(whole.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    out
}

const SMALLEST: u8 = 0;
const NEGATIVE: u8 = 1;
const ZERO: u8 = 2;
const POSITIVE: u8 = 3;
const LARGEST: u8 = 4;

/// Sign, number of digits before the point, digits, end. Of a negative number all that is turned round.
fn decimal(text: &str) -> Option<Vec<u8>> {
    let (is_negative, whole, fraction) = order::parts(text)?;
    if whole.is_empty() && fraction.is_empty() {
        return Some(vec![VALUE, ZERO]);
    }
    let mut out = vec![VALUE, if is_negative { NEGATIVE } else { POSITIVE }];
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
    use contract::{Cell, Kind, Value, order};
    use proptest::prelude::*;

    use super::{Sorted, bytes};

    fn check(sorted: Sorted, kind: Kind, a: Cell<'_>, b: Cell<'_>) {
        let ours = bytes(sorted, a).cmp(&bytes(sorted, b));
        assert_eq!(ours, order::compare(kind, a, b), "{sorted:?} {a:?} {b:?}");
    }

    fn moments() -> impl Strategy<Value = Value> {
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

    fn truths() -> impl Strategy<Value = Value> {
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
            m in (moments(), moments()),
            d in (decimals(), decimals()),
            t in (others(), others()),
            b in (truths(), truths()),
        ) {
            check(Sorted::Truths, Kind::Boolean, b.0.as_cell(), b.1.as_cell());
            check(Sorted::Moments, Kind::Timestamp, m.0.as_cell(), m.1.as_cell());
            check(Sorted::Decimals, Kind::Decimal, d.0.as_cell(), d.1.as_cell());
            check(Sorted::Texts, Kind::Text, t.0.as_cell(), t.1.as_cell());
        }
    }

    #[test]
    fn nothing_and_infinity_have_their_place() {
        assert_eq!(bytes(Sorted::Decimals, Cell::Null), None);
        let ascending =
            [Cell::Real(f64::NEG_INFINITY), Cell::Text("-9"), Cell::Integer(9), Cell::Real(f64::INFINITY)];
        assert!(ascending.map(|cell| bytes(Sorted::Decimals, cell)).is_sorted());
    }
}
