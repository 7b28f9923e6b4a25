//! A value on its way into a column, and whether it arrived.
//!
//! SQLite makes of a value what the column's type suggests: `'007'` becomes 7, 18 digits become 16. What was stored
//! is read back and compared; only what means exactly the same is kept.

use contract::{DataType, Value, ValueRef, infer, order};
use rusqlite::Connection;

use super::column::{Column, SqlParam, format_number, from_sqlite};
use super::schema::Affinity;

/// A value as the column keeps it, or why it cannot.
pub(super) fn to_param<'a>(column: &'a Column, cell: ValueRef<'a>) -> Result<SqlParam<'a>, String> {
    if column.is_generated {
        return Err(GENERATED.into());
    }
    Ok(SqlParam::Value(match cell {
        ValueRef::Real(n) if !n.is_finite() => return Err(INFINITE.into()),
        // As such numbers are told. Kept, it would be a text, and told as if it were one of them.
        ValueRef::Text("Infinity" | "-Infinity" | "NaN") if column.may_be_infinite() => {
            return Err(INFINITE.into());
        }
        ValueRef::Real(n) if n == 0.0 && n.is_sign_negative() && column.has_numeric_affinity() => {
            return Err(SIGNED_ZERO.into());
        }
        ValueRef::Text(text) if column.null_text.as_deref() == Some(text) => {
            return Err("this text stands for no value here; send null instead".into());
        }
        // Where nothing may not be stored, it has a text that means it.
        ValueRef::Null if column.is_not_null => {
            column.null_text.as_deref().map_or(ValueRef::Null, ValueRef::Text)
        }
        ValueRef::Integer(n @ (0 | 1))
            if column.data_type == DataType::Boolean && column.has_text_affinity() =>
        {
            ValueRef::Text(if n == 1 { "true" } else { "false" })
        }
        cell => cell,
    }))
}

/// Nobody sets what the database makes of other columns.
pub(super) const GENERATED: &str = "it is computed by the database";
const INFINITE: &str = "it is not a finite number";
const SIGNED_ZERO: &str = "SQLite keeps no zero with a sign in a column of numbers; send 0";

/// Why what is stored now is not what was said, if it is not.
pub(super) fn describe_difference(
    column: &Column,
    said: ValueRef<'_>,
    stored: ValueRef<'_>,
) -> Option<String> {
    if is_equivalent(column.data_type, said, stored) {
        return None;
    }
    Some(match (said, stored) {
        (ValueRef::Text(text), ValueRef::Integer(0)) if is_zero(text) => SIGNED_ZERO.into(),
        (ValueRef::Text(text), ValueRef::Real(0.0)) if is_zero(text) => SIGNED_ZERO.into(),
        (ValueRef::Text(_), ValueRef::Text(_))
        | (ValueRef::Blob(_), ValueRef::Blob(_))
        | (_, ValueRef::Null)
        | (ValueRef::Null, _) => "a trigger of the table makes something else of it".into(),
        _ if column.declared_type.is_empty() => "it would not be kept exactly as it is".into(),
        _ => format!("it would not be kept exactly: the column is declared as `{}`", column.declared_type),
    })
}

/// What a column of this affinity makes of a value, as SQLite itself says it; `None` if it keeps it as it is.
pub(super) fn apply_affinity(affinity: Affinity, said: ValueRef<'_>) -> rusqlite::Result<Option<Value>> {
    let declared = match (affinity, said) {
        (_, ValueRef::Null | ValueRef::Blob(_))
        | (Affinity::Blob, _)
        | (Affinity::Text, ValueRef::Text(_))
        | (Affinity::Integer | Affinity::Numeric, ValueRef::Integer(_)) => return Ok(None),
        (Affinity::Integer, _) => "INTEGER",
        (Affinity::Real, _) => "REAL",
        (Affinity::Numeric, _) => "NUMERIC",
        (Affinity::Text, _) => "TEXT",
    };
    // A database of its own, which is cheap beside a disk that confirms: the rules are SQLite's, and they are many.
    let memory = Connection::open_in_memory()?;
    memory.execute_batch(&format!("CREATE TABLE t(v {declared})"))?;
    memory.execute("INSERT INTO t VALUES(?1)", [SqlParam::Value(said)])?;
    memory.query_row("SELECT v FROM t", [], |row| Ok(Some(from_sqlite(row.get_ref(0)?).to_value())))
}

/// The same for what statements write: of a number that becomes a text its digits are enough.
pub(super) fn is_equivalent_for_statement(kind: DataType, said: ValueRef<'_>, stored: ValueRef<'_>) -> bool {
    match (said, stored) {
        (ValueRef::Integer(n), ValueRef::Text(text)) if kind != DataType::Boolean => text == n.to_string(),
        (ValueRef::Real(n), ValueRef::Text(text)) => {
            text.parse::<f64>().is_ok_and(|x| x.to_bits() == n.to_bits())
        }
        (said, stored) => is_equivalent(kind, said, stored),
    }
}

fn is_equivalent(kind: DataType, said: ValueRef<'_>, stored: ValueRef<'_>) -> bool {
    match (said, stored) {
        (ValueRef::Real(a), ValueRef::Real(b)) => a.to_bits() == b.to_bits(),
        (ValueRef::Integer(n), ValueRef::Real(x)) | (ValueRef::Real(x), ValueRef::Integer(n)) => {
            integer_equals_real(n, x)
        }
        (ValueRef::Integer(n), ValueRef::Text(text)) | (ValueRef::Text(text), ValueRef::Integer(n))
            if kind == DataType::Boolean =>
        {
            matches!((n, text), (1, "true") | (0, "false"))
        }
        (ValueRef::Text(text), ValueRef::Integer(_) | ValueRef::Real(_)) => match kind {
            DataType::Text => format_number(stored).as_deref() == Some(text),
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number => {
                infer::matches_type(DataType::Decimal, text)
                    && !(text.starts_with('-') && is_zero(text))
                    && order::compare(DataType::Decimal, stored, said).is_eq()
            }
            DataType::Boolean
            | DataType::Date
            | DataType::Timestamp
            | DataType::LocalTimestamp
            | DataType::Json
            | DataType::Blob => false,
        },
        (said, stored) => said == stored,
    }
}

/// Whether a binary fraction is this integer, and not only near it.
fn integer_equals_real(n: i64, x: f64) -> bool {
    const END: f64 = 9_223_372_036_854_775_808.0;
    let is_signed_zero = x == 0.0 && x.is_sign_negative();
    !is_signed_zero && x.fract() == 0.0 && (-END..END).contains(&x) && x as i64 == n
}

fn is_zero(text: &str) -> bool {
    order::decimal_parts(text).is_some_and(|(_, whole, fraction)| whole.is_empty() && fraction.is_empty())
}

#[cfg(test)]
mod tests {
    use contract::{DataType, ValueRef};

    use super::is_equivalent;

    fn check(kind: DataType, said: ValueRef<'_>, stored: ValueRef<'_>, expected: bool) {
        assert_eq!(is_equivalent(kind, said, stored), expected, "{kind:?} {said:?} {stored:?}");
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        check(DataType::Integer, ValueRef::Integer(7), ValueRef::Real(7.0), true);
        check(DataType::Number, ValueRef::Real(1e18), ValueRef::Integer(1_000_000_000_000_000_000), true);
        check(DataType::Decimal, ValueRef::Text("12.50"), ValueRef::Real(12.5), true);
        check(DataType::Decimal, ValueRef::Text("12.0"), ValueRef::Integer(12), true);
        check(DataType::Decimal, ValueRef::Text("0"), ValueRef::Integer(0), true);
        check(DataType::Text, ValueRef::Text("7"), ValueRef::Integer(7), true);
        check(DataType::Boolean, ValueRef::Integer(1), ValueRef::Text("true"), true);
        check(DataType::Text, ValueRef::Null, ValueRef::Null, true);
    }

    #[test]
    fn what_is_only_near_is_not() {
        check(
            DataType::Int64,
            ValueRef::Integer((1 << 53) + 1),
            ValueRef::Real(9_007_199_254_740_992.0),
            false,
        );
        check(
            DataType::Int64,
            ValueRef::Integer(i64::MAX),
            ValueRef::Real(9_223_372_036_854_775_808.0),
            false,
        );
        check(
            DataType::Decimal,
            ValueRef::Text("0.123456789012345678"),
            ValueRef::Real(0.123_456_789_012_345_68),
            false,
        );
        check(DataType::Decimal, ValueRef::Text("007"), ValueRef::Integer(7), false);
        check(DataType::Decimal, ValueRef::Text("-0.0"), ValueRef::Integer(0), false);
        check(DataType::Text, ValueRef::Text("007"), ValueRef::Integer(7), false);
        check(DataType::Text, ValueRef::Text("1.50"), ValueRef::Real(1.5), false);
        check(DataType::Json, ValueRef::Text("12"), ValueRef::Integer(12), false);
        check(DataType::Boolean, ValueRef::Integer(1), ValueRef::Text("false"), false);
        check(DataType::Number, ValueRef::Real(-0.0), ValueRef::Real(0.0), false);
        check(DataType::Number, ValueRef::Real(-0.0), ValueRef::Integer(0), false);
        check(DataType::Text, ValueRef::Text(""), ValueRef::Null, false);
        check(DataType::Blob, ValueRef::Blob(b"a"), ValueRef::Text("a"), false);
    }
}
