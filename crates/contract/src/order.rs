//! How values of a kind stand to each other, whatever a source keeps them as.

use std::cmp::Ordering;

use crate::cell::Cell;
use crate::kind::Kind;
use crate::time;

/// Compares two values of a column. Texts are read as what the kind says; a text that is none of that comes
/// after all that are.
pub fn compare(kind: Kind, a: Cell<'_>, b: Cell<'_>) -> Ordering {
    match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => texts(kind, a, b),
        (Cell::Text(text), other) if is_number(kind) => numeric(text, other),
        (other, Cell::Text(text)) if is_number(kind) => numeric(text, other).reverse(),
        (a, b) => a.order(b),
    }
}

fn is_number(kind: Kind) -> bool {
    matches!(kind, Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number)
}

fn numeric(text: &str, other: Cell<'_>) -> Ordering {
    match other {
        Cell::Integer(n) => decimals(text, &n.to_string()),
        Cell::Real(n) => match text.parse::<f64>() {
            Ok(text) => text.total_cmp(&n),
            Err(_) => Ordering::Greater,
        },
        other => Cell::Text(text).order(other),
    }
}

fn texts(kind: Kind, a: &str, b: &str) -> Ordering {
    match kind {
        Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number => decimals(a, b),
        Kind::Timestamp | Kind::LocalTimestamp => {
            match (time::read(a.as_bytes()), time::read(b.as_bytes())) {
                // Equal moments may be written differently; an order must not leave them equal.
                (Some(x), Some(y)) => x.order().cmp(&y.order()).then_with(|| a.cmp(b)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => a.cmp(b),
            }
        }
        Kind::Text | Kind::Boolean | Kind::Date | Kind::Json | Kind::Blob => a.cmp(b),
    }
}

/// A decimal taken apart: sign, digits before the point without leading zeros, digits behind it.
fn parts(text: &str) -> Option<(bool, &str, &str)> {
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

/// Compares decimals of any length exactly.
fn decimals(a: &str, b: &str) -> Ordering {
    let (Some(x), Some(y)) = (parts(a), parts(b)) else {
        return match (parts(a).is_some(), parts(b).is_some()) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => a.cmp(b),
        };
    };
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

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{self, Equal, Greater, Less};

    use super::compare;
    use crate::cell::Cell;
    use crate::kind::Kind;

    #[test]
    fn values_are_ordered_as_what_they_are() {
        let text = Cell::Text;
        let table: &[(Kind, Cell<'_>, Cell<'_>, Ordering)] = &[
            (Kind::Integer, text("9"), text("10"), Less),
            (Kind::Integer, text("-9"), text("-10"), Greater),
            (Kind::Integer, text("9"), Cell::Integer(10), Less),
            (Kind::Integer, Cell::Integer(10), text("9"), Greater),
            (Kind::Decimal, text("1.50"), text("1.5"), Equal),
            (Kind::Decimal, text("1.05"), text("1.5"), Less),
            (Kind::Decimal, text("-0.00"), text("0"), Equal),
            (Kind::Decimal, text("-0.1"), text("0.1"), Less),
            (Kind::Decimal, text("123456789012345678901.2"), text("123456789012345678901.10"), Greater),
            (Kind::Date, text("2026-02-11"), text("2026-10-01"), Less),
            (Kind::Timestamp, text("2026-02-11T10:00:00+02:00"), text("2026-02-11T09:00:00Z"), Less),
            (Kind::Text, text("10"), text("9"), Less),
            (Kind::Integer, Cell::Integer(1), text("one"), Less),
        ];
        for (kind, a, b, expected) in table {
            assert_eq!(compare(*kind, *a, *b), *expected, "{kind:?} {a:?} {b:?}");
            assert_eq!(compare(*kind, *b, *a), expected.reverse(), "{kind:?} {b:?} {a:?}");
        }
    }
}
