//! Whether a column stores a value unchanged.
//!
//! SQLite converts a value to the column's affinity: `'007'` becomes 7, 18 digits become 16. The stored value
//! is read back and compared; only an equal one is accepted.

use contract::{DataType, Value, ValueRef, infer, order};
use rusqlite::Connection;

use crate::sqlite::column::{Column, SqlParam, format_number, from_sqlite};
use crate::sqlite::schema::{Affinity, GENERATED};

/// The value to store, or why the column cannot store it.
pub(crate) fn to_param<'a>(column: &'a Column, value: ValueRef<'a>) -> Result<SqlParam<'a>, String> {
    if column.is_generated {
        return Err(GENERATED.into());
    }
    Ok(SqlParam::Value(match value {
        ValueRef::Real(n) if !n.is_finite() => return Err(INFINITE.into()),
        // Responses show such numbers as these words. Stored as text, the word would look like a number.
        ValueRef::Text("Infinity" | "-Infinity" | "NaN") if column.may_be_infinite() => {
            return Err(INFINITE.into());
        }
        ValueRef::Real(n) if n == 0.0 && n.is_sign_negative() && column.has_numeric_affinity() => {
            return Err(SIGNED_ZERO.into());
        }
        ValueRef::Text(text) if column.null_text.as_deref() == Some(text) => {
            return Err("this text means \"no value\" in this column; send null instead".into());
        }
        // In a NOT NULL column the null text stands for NULL.
        ValueRef::Null if column.is_not_null => {
            column.null_text.as_deref().map_or(ValueRef::Null, ValueRef::Text)
        }
        ValueRef::Integer(n @ (0 | 1))
            if column.data_type == DataType::Boolean && column.has_text_affinity() =>
        {
            ValueRef::Text(if n == 1 { "true" } else { "false" })
        }
        value => value,
    }))
}

const INFINITE: &str = "it is not a finite number";
const SIGNED_ZERO: &str = "SQLite stores no negative zero in a numeric column; send 0";

/// Why the stored value differs from the value sent, or `None` if it does not.
pub(crate) fn describe_difference(
    column: &Column,
    sent: ValueRef<'_>,
    stored: ValueRef<'_>,
) -> Option<String> {
    if is_equivalent(column.data_type, sent, stored) {
        return None;
    }
    Some(match (sent, stored) {
        (ValueRef::Text(text), ValueRef::Integer(0)) if is_zero(text) => SIGNED_ZERO.into(),
        (ValueRef::Text(text), ValueRef::Real(0.0)) if is_zero(text) => SIGNED_ZERO.into(),
        (ValueRef::Text(_), ValueRef::Text(_))
        | (ValueRef::Blob(_), ValueRef::Blob(_))
        | (_, ValueRef::Null)
        | (ValueRef::Null, _) => "a trigger of the table changes it".into(),
        _ => {
            let help = precision_help(sent);
            match column.declared_type.as_str() {
                "" => format!("the column would not store it exactly{help}"),
                declared => {
                    format!("the column is declared as `{declared}` and would not store it exactly{help}")
                }
            }
        }
    })
}

/// For a number with more digits than SQLite keeps.
pub(crate) fn precision_help(sent: ValueRef<'_>) -> &'static str {
    let ValueRef::Text(text) = sent else { return "" };
    let digits = text.trim_start_matches('-').replace('.', "");
    let is_number = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    match is_number && digits.trim_start_matches('0').len() > 15 {
        true => "; send at most 15 significant digits",
        false => "",
    }
}

/// What a column of this affinity stores for a value, according to SQLite itself; `None` if it stores it
/// unchanged.
pub(crate) fn apply_affinity(affinity: Affinity, sent: ValueRef<'_>) -> rusqlite::Result<Option<Value>> {
    let declared = match (affinity, sent) {
        (_, ValueRef::Null | ValueRef::Blob(_))
        | (Affinity::Blob, _)
        | (Affinity::Text, ValueRef::Text(_))
        | (Affinity::Integer | Affinity::Numeric, ValueRef::Integer(_)) => return Ok(None),
        (Affinity::Integer, _) => "INTEGER",
        (Affinity::Real, _) => "REAL",
        (Affinity::Numeric, _) => "NUMERIC",
        (Affinity::Text, _) => "TEXT",
    };
    // A database in memory is cheap compared with a commit, and SQLite's conversion rules are many.
    let database = Connection::open_in_memory()?;
    database.execute_batch(&format!("CREATE TABLE t(v {declared})"))?;
    database.execute("INSERT INTO t VALUES(?1)", [SqlParam::Value(sent)])?;
    database.query_row("SELECT v FROM t", [], |row| Ok(Some(from_sqlite(row.get_ref(0)?).to_value())))
}

/// Like `is_equivalent`, for statements: a number that becomes text may keep only its digits.
pub(crate) fn is_equivalent_for_statement(
    data_type: DataType,
    sent: ValueRef<'_>,
    stored: ValueRef<'_>,
) -> bool {
    match (sent, stored) {
        (ValueRef::Integer(n), ValueRef::Text(text)) if data_type != DataType::Boolean => {
            text == n.to_string()
        }
        (ValueRef::Real(n), ValueRef::Text(text)) => {
            text.parse::<f64>().is_ok_and(|x| x.to_bits() == n.to_bits())
        }
        (sent, stored) => is_equivalent(data_type, sent, stored),
    }
}

fn is_equivalent(data_type: DataType, sent: ValueRef<'_>, stored: ValueRef<'_>) -> bool {
    match (sent, stored) {
        (ValueRef::Real(a), ValueRef::Real(b)) => a.to_bits() == b.to_bits(),
        (ValueRef::Integer(n), ValueRef::Real(x)) | (ValueRef::Real(x), ValueRef::Integer(n)) => {
            integer_equals_real(n, x)
        }
        (ValueRef::Integer(n), ValueRef::Text(text)) | (ValueRef::Text(text), ValueRef::Integer(n))
            if data_type == DataType::Boolean =>
        {
            matches!((n, text), (1, "true") | (0, "false"))
        }
        (ValueRef::Text(text), ValueRef::Integer(_) | ValueRef::Real(_)) => match data_type {
            DataType::Text => format_number(stored).as_deref() == Some(text),
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number => {
                infer::matches_type(DataType::Decimal, text)
                    && !(text.starts_with('-') && is_zero(text))
                    && order::compare(DataType::Decimal, stored, sent).is_eq()
            }
            DataType::Boolean
            | DataType::Date
            | DataType::Timestamp
            | DataType::LocalTimestamp
            | DataType::Json
            | DataType::Blob => false,
        },
        (sent, stored) => sent == stored,
    }
}

/// Whether a float is exactly this integer.
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

    fn check(data_type: DataType, sent: ValueRef<'_>, stored: ValueRef<'_>, expected: bool) {
        assert_eq!(is_equivalent(data_type, sent, stored), expected, "{data_type:?} {sent:?} {stored:?}");
    }

    #[test]
    fn equal_values_are_equivalent() {
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
    fn nearly_equal_values_are_not_equivalent() {
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
