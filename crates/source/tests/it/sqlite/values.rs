//! Values of every type, written and read back: exactly, or rejected.

use contract::source::{Comparison, Filter, Query};
use contract::{Value, ValueRef};
use proptest::prelude::*;

use super::kit::{TestDb, TestTable, list};

/// A table that already has a row, so that its column has a known type.
fn table(mode: &str, declared: &str, options: &str, seed: &str) -> (TestDb, TestTable) {
    let db = TestDb::new(&format!(
        "PRAGMA journal_mode = {mode}; CREATE TABLE t(k TEXT PRIMARY KEY NOT NULL, v {declared}) {options}"
    ));
    if !seed.is_empty() {
        db.execute(&format!("INSERT INTO t VALUES('seed', {seed})"));
    }
    let table = TestTable::new(&db, "t");
    (db, table)
}

/// What a column stores for a value: the same value, or a reason.
fn check(declared: &str, value: ValueRef<'_>, expected: Result<ValueRef<'_>, &str>) {
    check_with("", declared, value, expected);
}

fn check_with(seed: &str, declared: &str, value: ValueRef<'_>, expected: Result<ValueRef<'_>, &str>) {
    for (mode, options) in [("DELETE", ""), ("WAL", ""), ("DELETE", "WITHOUT ROWID")] {
        let (_db, table) = table(mode, declared, options, seed);
        let created = table.create(&[("k", ValueRef::Text("a")), ("v", value)]);
        // The same for an update.
        table.create(&[("k", ValueRef::Text("b"))]);
        let updated = table.update(&[ValueRef::Text("b")], &[("v", value)]);
        match expected {
            Ok(expected) => {
                assert!(!created.contains('`'), "{declared} {value:?}: {created}");
                let row = table.get(&[ValueRef::Text("a")]).expect("the row");
                assert_eq!(updated.replacen('b', "a", 1), created);
                assert_eq!(table.get(&[ValueRef::Text("b")]).expect("the row")[1], row[1]);
                let is_same = match (&row[1], expected) {
                    (Value::Real(a), ValueRef::Real(b)) => a.to_bits() == b.to_bits(),
                    (stored, expected) => stored.as_value_ref() == expected,
                };
                assert!(is_same, "{declared}: {:?} is not {expected:?}", row[1]);
            }
            Err(reason) => {
                assert_eq!(created, format!("`v`: {reason}"), "{declared} {value:?}");
                assert_eq!(updated, created);
                assert_eq!(table.get(&[ValueRef::Text("a")]), None, "nothing is left of it");
                assert_eq!(table.get(&[ValueRef::Text("b")]).expect("the row")[1], Value::Null);
            }
        }
    }
}

/// The value is stored unchanged.
fn check_kept(declared: &str, value: ValueRef<'_>) {
    check(declared, value, Ok(value));
}

const BIG: i64 = (1 << 53) + 1;

#[test]
fn exact_values_are_stored_exactly() {
    check_kept("TEXT", ValueRef::Text("1234567890123456.7891"));
    for declared in ["INTEGER", "NUMERIC", ""] {
        for n in [BIG, i64::MIN, i64::MAX] {
            check_with("9007199254740993", declared, ValueRef::Integer(n), Ok(ValueRef::Integer(n)));
        }
    }
    check_kept("REAL", ValueRef::Real(0.1));
    check_kept("REAL", ValueRef::Real(f64::MAX));
    check_kept("REAL", ValueRef::Real(5e-324));
    check_kept("DATE", ValueRef::Text("2026-02-11"));
    check_kept("TIMESTAMP", ValueRef::Text("2026-02-11T10:00:00.123456789+02:00"));
    check_kept("DATETIME", ValueRef::Text("2026-02-11 10:00:00"));
    check_kept("JSON", ValueRef::Text(r#"{"a":[1,2.50,null]}"#));
    check_kept("BLOB", ValueRef::Blob(&[0, 255, 7]));
    check_kept("BLOB", ValueRef::Blob(&[]));
    check_kept("BOOLEAN", ValueRef::Integer(1));
    check_kept("TEXT", ValueRef::Null);
    check_kept("TEXT", ValueRef::Text(""));
    check_kept("TEXT", ValueRef::Text("🦀 𝔘𝔫𝔦 \u{10ffff}"));
    check_kept("TEXT", ValueRef::Text("a\0b"));
    check_kept("TEXT", ValueRef::Text("\u{feff}bom"));
    check_kept("TEXT", ValueRef::Text("=1+1"));
    check_kept("TEXT", ValueRef::Text("'; DROP TABLE t; --"));
    check_kept("", ValueRef::Text("007"));
    check_with("1.5", "", ValueRef::Real(-0.0), Ok(ValueRef::Real(-0.0)));
}

#[test]
fn equal_decimals_in_different_spellings_are_accepted() {
    check("DECIMAL(10,2)", ValueRef::Text("12.50"), Ok(ValueRef::Real(12.5)));
    check("DECIMAL(10,2)", ValueRef::Text("12.00"), Ok(ValueRef::Integer(12)));
    check("INTEGER", ValueRef::Real(3.0), Ok(ValueRef::Integer(3)));
    check("REAL", ValueRef::Integer(3), Ok(ValueRef::Real(3.0)));
}

/// Responses use these words for infinite numbers: a text would look the same.
#[test]
fn the_names_of_infinite_numbers_are_rejected() {
    for text in ["Infinity", "-Infinity", "NaN"] {
        for declared in ["REAL", "NUMERIC", ""] {
            check_with("9e999", declared, ValueRef::Text(text), Err("it is not a finite number"));
        }
        check_with("'x'", "REAL", ValueRef::Text(text), Ok(ValueRef::Text(text)));
        check_kept("TEXT", ValueRef::Text(text));
    }
    for text in ["inf", "nan", "infinity", "many"] {
        check_with("9e999", "REAL", ValueRef::Text(text), Ok(ValueRef::Text(text)));
    }
}

#[test]
fn infinite_numbers_are_found_by_their_names() {
    for declared in ["REAL", "NUMERIC", "DECIMAL(9,2)", ""] {
        let db = TestDb::new(&format!("CREATE TABLE t(k INTEGER PRIMARY KEY, v {declared})"));
        db.execute("INSERT INTO t VALUES(1, 9e999), (2, -9e999), (3, 1.5), (4, 2), (5, NULL)");
        let (_, reader) = db.reader("t");
        let keys = |text, comparison| {
            let filter = Filter::new(1, comparison, ValueRef::Text(text));
            let query = Query { filters: vec![filter], rows_max: 10, ..Query::default() };
            let (rows, _) = list(reader.as_ref(), &query).expect("rows");
            rows.iter().map(|row| super::kit::format_value(&row.0[0])).collect::<String>()
        };
        assert_eq!(keys("Infinity", Comparison::Equals), "1", "{declared}");
        assert_eq!(keys("-Infinity", Comparison::Equals), "2", "{declared}");
        assert_eq!(keys("Infinity", Comparison::AtMost), "1234", "{declared}");
        assert_eq!(keys("-Infinity", Comparison::AtMost), "2", "{declared}");
        assert_eq!(keys("infinity", Comparison::Equals), "", "{declared}");
    }
}

#[test]
fn values_that_would_change_are_rejected() {
    let declared = |name: &str| format!("the column is declared as `{name}` and would not store it exactly");
    let refused = |name: &str, value| check(name, value, Err(&declared(name)));
    let long = |name: &str| format!("{}; send at most 15 significant digits", declared(name));
    check("DECIMAL(20,4)", ValueRef::Text("1234567890123456.7891"), Err(&long("DECIMAL(20,4)")));
    check("NUMERIC", ValueRef::Text("0.123456789012345678"), Err(&long("NUMERIC")));
    refused("REAL", ValueRef::Integer(BIG));
    refused("INTEGER", ValueRef::Text("007"));
    refused("NUMERIC", ValueRef::Text("1e3"));
    refused("JSON", ValueRef::Text("12"));
    refused("TEXT", ValueRef::Integer(7));
    refused("TEXT", ValueRef::Real(0.5));
    let signed = "SQLite stores no negative zero in a numeric column; send 0";
    check("REAL", ValueRef::Real(-0.0), Err(signed));
    check("NUMERIC", ValueRef::Text("-0.0"), Err(signed));
    for number in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        check("REAL", ValueRef::Real(number), Err("it is not a finite number"));
    }
}

#[test]
fn strict_tables_reject_other_types() {
    let strict = |declared: &str, value| {
        let (_db, table) = table("DELETE", declared, "STRICT", "");
        table.create(&[("k", ValueRef::Text("a")), ("v", value)])
    };
    assert_eq!(strict("INTEGER", ValueRef::Integer(BIG - 2)), format!("'a' {}", BIG - 2));
    assert_eq!(strict("ANY", ValueRef::Text("007")), "'a' '007'");
    assert_eq!(strict("BLOB", ValueRef::Blob(&[1])), "'a' x01");
    assert_eq!(strict("INTEGER", ValueRef::Text("seven")), "`v`: the column stores values of another type");
    assert_eq!(strict("INTEGER", ValueRef::Real(0.5)), "`v`: the column stores values of another type");
    assert_eq!(strict("TEXT", ValueRef::Blob(&[1])), "`v`: the column stores values of another type");
    let declared =
        |name: &str| format!("`v`: the column is declared as `{name}` and would not store it exactly");
    assert_eq!(strict("INTEGER", ValueRef::Text("007")), declared("INTEGER"));
    let long = format!("{}; send at most 15 significant digits", declared("REAL"));
    assert_eq!(strict("REAL", ValueRef::Text("0.123456789012345678")), long);
}

#[test]
fn a_utf16_database_stores_texts_exactly() {
    let db = TestDb::new("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(k TEXT PRIMARY KEY NOT NULL, v TEXT)");
    let table = TestTable::new(&db, "t");
    for text in ["", "a\0b", "🦀", "größe", "\u{fffd}"] {
        table.create(&[("k", ValueRef::Text("a")), ("v", ValueRef::Text(text))]);
        assert_eq!(table.get(&[ValueRef::Text("a")]).expect("the row")[1], Value::Text(text.into()));
        table.delete(&[ValueRef::Text("a")]);
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Integer),
        any::<f64>().prop_map(Value::Real),
        "[-0-9.e]{0,22}".prop_map(Value::Text),
        any::<String>().prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(Value::Blob),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_written_row_reads_back_identical_or_is_rejected(
        declared in prop::sample::select(vec!["TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB", "DECIMAL(9,2)", ""]),
        values in prop::collection::vec(any_value(), 1..6),
    ) {
        let db = TestDb::new(&format!("CREATE TABLE t(k INTEGER PRIMARY KEY, v {declared})"));
        // Rows of every storage class, so that the column is mixed.
        db.execute("INSERT INTO t VALUES(1, 'x'), (2, x'00'), (3, 1.5)");
        let table = TestTable::new(&db, "t");
        for (key, value) in (10..).zip(&values) {
            let response = table.create(&[("k", ValueRef::Integer(key)), ("v", value.as_value_ref())]);
            match table.get(&[ValueRef::Integer(key)]) {
                None => prop_assert!(response.starts_with("`v`: "), "{}", response),
                Some(row) => {
                    let is_equal = match (&row[1], value) {
                        (Value::Integer(n), Value::Real(x)) => *n as f64 == *x && x.abs() < 9.1e18,
                        (Value::Real(x), Value::Integer(n)) => *x as i128 == i128::from(*n),
                        (Value::Integer(n), Value::Text(text)) => contract::order::compare(
                            contract::DataType::Decimal, ValueRef::Integer(*n), ValueRef::Text(text)).is_eq(),
                        (Value::Real(x), Value::Text(text)) => contract::order::compare(
                            contract::DataType::Decimal, ValueRef::Real(*x), ValueRef::Text(text)).is_eq(),
                        (stored, sent) => stored == sent,
                    };
                    prop_assert!(is_equal, "{declared}: {value:?} became {:?}", row[1]);
                }
            }
        }
    }
}
