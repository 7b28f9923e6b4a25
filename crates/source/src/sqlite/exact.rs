//! A value on its way into a column, and whether it arrived.
//!
//! SQLite makes of a value what the column's type suggests: `'007'` becomes 7, 18 digits become 16. What was stored
//! is read back and compared; only what means exactly the same is kept.

use contract::{Cell, Kind, Value, infer, order};
use rusqlite::Connection;

use super::column::{Bound, Column, raw, told};
use super::schema::Affinity;

/// A value as the column keeps it, or why it cannot.
pub(super) fn bound<'a>(column: &'a Column, cell: Cell<'a>) -> Result<Bound<'a>, String> {
    if column.is_computed {
        return Err(COMPUTED.into());
    }
    Ok(Bound::Cell(match cell {
        Cell::Real(n) if !n.is_finite() => return Err(INFINITE.into()),
        // As such numbers are told. Kept, it would be a text, and told as if it were one of them.
        Cell::Text("Infinity" | "-Infinity" | "NaN") if column.may_be_infinite() => {
            return Err(INFINITE.into());
        }
        Cell::Real(n) if n == 0.0 && n.is_sign_negative() && column.is_numeric() => {
            return Err(SIGNED_ZERO.into());
        }
        Cell::Text(text) if column.null.as_deref() == Some(text) => {
            return Err("this text stands for no value here; send null instead".into());
        }
        // Where nothing may not be stored, it has a text that means it.
        Cell::Null if column.is_required => column.null.as_deref().map_or(Cell::Null, Cell::Text),
        Cell::Integer(n @ (0 | 1)) if column.kind == Kind::Boolean && column.is_text() => {
            Cell::Text(if n == 1 { "true" } else { "false" })
        }
        cell => cell,
    }))
}

/// Nobody sets what the database makes of other columns.
pub(super) const COMPUTED: &str = "it is computed by the database";
const INFINITE: &str = "it is not a finite number";
const SIGNED_ZERO: &str = "SQLite keeps no zero with a sign in a column of numbers; send 0";

/// Why what is stored now is not what was said, if it is not.
pub(super) fn difference(column: &Column, said: Cell<'_>, stored: Cell<'_>) -> Option<String> {
    if is_same(column.kind, said, stored) {
        return None;
    }
    Some(match (said, stored) {
        (Cell::Text(text), Cell::Integer(0)) if is_zero(text) => SIGNED_ZERO.into(),
        (Cell::Text(text), Cell::Real(0.0)) if is_zero(text) => SIGNED_ZERO.into(),
        (Cell::Text(_), Cell::Text(_))
        | (Cell::Blob(_), Cell::Blob(_))
        | (_, Cell::Null)
        | (Cell::Null, _) => "a trigger of the table makes something else of it".into(),
        _ if column.declared.is_empty() => "it would not be kept exactly as it is".into(),
        _ => format!("it would not be kept exactly: the column is declared as `{}`", column.declared),
    })
}

/// What a column of this affinity makes of a value, as SQLite itself says it; `None` if it keeps it as it is.
pub(super) fn stored(affinity: Affinity, said: Cell<'_>) -> rusqlite::Result<Option<Value>> {
    let declared = match (affinity, said) {
        (_, Cell::Null | Cell::Blob(_))
        | (Affinity::Blob, _)
        | (Affinity::Text, Cell::Text(_))
        | (Affinity::Integer | Affinity::Numeric, Cell::Integer(_)) => return Ok(None),
        (Affinity::Integer, _) => "INTEGER",
        (Affinity::Real, _) => "REAL",
        (Affinity::Numeric, _) => "NUMERIC",
        (Affinity::Text, _) => "TEXT",
    };
    // A database of its own, which is cheap beside a disk that confirms: the rules are SQLite's, and they are many.
    let memory = Connection::open_in_memory()?;
    memory.execute_batch(&format!("CREATE TABLE t(v {declared})"))?;
    memory.execute("INSERT INTO t VALUES(?1)", [Bound::Cell(said)])?;
    memory.query_row("SELECT v FROM t", [], |row| Ok(Some(raw(row.get_ref(0)?).to_value())))
}

/// The same for what statements write: of a number that becomes a text its digits are enough.
pub(super) fn is_same_to_statements(kind: Kind, said: Cell<'_>, stored: Cell<'_>) -> bool {
    match (said, stored) {
        (Cell::Integer(n), Cell::Text(text)) if kind != Kind::Boolean => text == n.to_string(),
        (Cell::Real(n), Cell::Text(text)) => text.parse::<f64>().is_ok_and(|x| x.to_bits() == n.to_bits()),
        (said, stored) => is_same(kind, said, stored),
    }
}

fn is_same(kind: Kind, said: Cell<'_>, stored: Cell<'_>) -> bool {
    match (said, stored) {
        (Cell::Real(a), Cell::Real(b)) => a.to_bits() == b.to_bits(),
        (Cell::Integer(n), Cell::Real(x)) | (Cell::Real(x), Cell::Integer(n)) => is_equal(n, x),
        (Cell::Integer(n), Cell::Text(text)) | (Cell::Text(text), Cell::Integer(n))
            if kind == Kind::Boolean =>
        {
            matches!((n, text), (1, "true") | (0, "false"))
        }
        (Cell::Text(text), Cell::Integer(_) | Cell::Real(_)) => match kind {
            Kind::Text => told(stored).as_deref() == Some(text),
            Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number => {
                infer::is(Kind::Decimal, text)
                    && !(text.starts_with('-') && is_zero(text))
                    && order::compare(Kind::Decimal, stored, said).is_eq()
            }
            Kind::Boolean | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Json | Kind::Blob => {
                false
            }
        },
        (said, stored) => said == stored,
    }
}

/// Whether a binary fraction is this integer, and not only near it.
fn is_equal(n: i64, x: f64) -> bool {
    const END: f64 = 9_223_372_036_854_775_808.0;
    let is_signed_zero = x == 0.0 && x.is_sign_negative();
    !is_signed_zero && x.fract() == 0.0 && (-END..END).contains(&x) && x as i64 == n
}

fn is_zero(text: &str) -> bool {
    order::parts(text).is_some_and(|(_, whole, fraction)| whole.is_empty() && fraction.is_empty())
}

#[cfg(test)]
mod tests {
    use contract::{Cell, Kind};

    use super::is_same;

    fn check(kind: Kind, said: Cell<'_>, stored: Cell<'_>, expected: bool) {
        assert_eq!(is_same(kind, said, stored), expected, "{kind:?} {said:?} {stored:?}");
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        check(Kind::Integer, Cell::Integer(7), Cell::Real(7.0), true);
        check(Kind::Number, Cell::Real(1e18), Cell::Integer(1_000_000_000_000_000_000), true);
        check(Kind::Decimal, Cell::Text("12.50"), Cell::Real(12.5), true);
        check(Kind::Decimal, Cell::Text("12.0"), Cell::Integer(12), true);
        check(Kind::Decimal, Cell::Text("0"), Cell::Integer(0), true);
        check(Kind::Text, Cell::Text("7"), Cell::Integer(7), true);
        check(Kind::Boolean, Cell::Integer(1), Cell::Text("true"), true);
        check(Kind::Text, Cell::Null, Cell::Null, true);
    }

    #[test]
    fn what_is_only_near_is_not() {
        check(Kind::Int64, Cell::Integer((1 << 53) + 1), Cell::Real(9_007_199_254_740_992.0), false);
        check(Kind::Int64, Cell::Integer(i64::MAX), Cell::Real(9_223_372_036_854_775_808.0), false);
        check(Kind::Decimal, Cell::Text("0.123456789012345678"), Cell::Real(0.123_456_789_012_345_68), false);
        check(Kind::Decimal, Cell::Text("007"), Cell::Integer(7), false);
        check(Kind::Decimal, Cell::Text("-0.0"), Cell::Integer(0), false);
        check(Kind::Text, Cell::Text("007"), Cell::Integer(7), false);
        check(Kind::Text, Cell::Text("1.50"), Cell::Real(1.5), false);
        check(Kind::Json, Cell::Text("12"), Cell::Integer(12), false);
        check(Kind::Boolean, Cell::Integer(1), Cell::Text("false"), false);
        check(Kind::Number, Cell::Real(-0.0), Cell::Real(0.0), false);
        check(Kind::Number, Cell::Real(-0.0), Cell::Integer(0), false);
        check(Kind::Text, Cell::Text(""), Cell::Null, false);
        check(Kind::Blob, Cell::Blob(b"a"), Cell::Text("a"), false);
    }
}
