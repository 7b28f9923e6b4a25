//! Every kind of value, written and read back: exactly, or not at all.

use contract::{Cell, Value};
use proptest::prelude::*;

use super::kit::{Db, Desk};

/// A table that has a row already, so that its column is known to hold such values.
fn table(mode: &str, declared: &str, options: &str, seed: &str) -> (Db, Desk) {
    let db = Db::new(&format!(
        "PRAGMA journal_mode = {mode}; CREATE TABLE t(k TEXT PRIMARY KEY NOT NULL, v {declared}) {options}"
    ));
    if !seed.is_empty() {
        db.write(&format!("INSERT INTO t VALUES('seed', {seed})"));
    }
    let desk = Desk::new(&db, "t");
    (db, desk)
}

/// What becomes of a value in a column: the same, or a reason.
fn check(declared: &str, value: Cell<'_>, expected: Result<Cell<'_>, &str>) {
    check_with("", declared, value, expected);
}

fn check_with(seed: &str, declared: &str, value: Cell<'_>, expected: Result<Cell<'_>, &str>) {
    for (mode, options) in [("DELETE", ""), ("WAL", ""), ("DELETE", "WITHOUT ROWID")] {
        let (_db, desk) = table(mode, declared, options, seed);
        let created = desk.create(&[("k", Cell::Text("a")), ("v", value)]);
        // The same of a row that is there.
        desk.create(&[("k", Cell::Text("b"))]);
        let updated = desk.update(&[Cell::Text("b")], &[("v", value)]);
        match expected {
            Ok(expected) => {
                assert!(!created.contains('`'), "{declared} {value:?}: {created}");
                let row = desk.get(&[Cell::Text("a")]).expect("the row");
                assert_eq!(updated.replacen('b', "a", 1), created);
                assert_eq!(desk.get(&[Cell::Text("b")]).expect("the row")[1], row[1]);
                let is_same = match (&row[1], expected) {
                    (Value::Real(a), Cell::Real(b)) => a.to_bits() == b.to_bits(),
                    (stored, expected) => stored.as_cell() == expected,
                };
                assert!(is_same, "{declared}: {:?} is not {expected:?}", row[1]);
            }
            Err(why) => {
                assert_eq!(created, format!("`v`: {why}"), "{declared} {value:?}");
                assert_eq!(updated, created);
                assert_eq!(desk.get(&[Cell::Text("a")]), None, "nothing is left of it");
                assert_eq!(desk.get(&[Cell::Text("b")]).expect("the row")[1], Value::Null);
            }
        }
    }
}

/// It stays what it is.
fn kept(declared: &str, value: Cell<'_>) {
    check(declared, value, Ok(value));
}

const BIG: i64 = (1 << 53) + 1;

#[test]
fn exact_values_stay_exact() {
    kept("TEXT", Cell::Text("1234567890123456.7891"));
    for declared in ["INTEGER", "NUMERIC", ""] {
        for n in [BIG, i64::MIN, i64::MAX] {
            check_with("9007199254740993", declared, Cell::Integer(n), Ok(Cell::Integer(n)));
        }
    }
    kept("REAL", Cell::Real(0.1));
    kept("REAL", Cell::Real(f64::MAX));
    kept("REAL", Cell::Real(5e-324));
    kept("DATE", Cell::Text("2026-02-11"));
    kept("TIMESTAMP", Cell::Text("2026-02-11T10:00:00.123456789+02:00"));
    kept("DATETIME", Cell::Text("2026-02-11 10:00:00"));
    kept("JSON", Cell::Text(r#"{"a":[1,2.50,null]}"#));
    kept("BLOB", Cell::Blob(&[0, 255, 7]));
    kept("BLOB", Cell::Blob(&[]));
    kept("BOOLEAN", Cell::Integer(1));
    kept("TEXT", Cell::Null);
    kept("TEXT", Cell::Text(""));
    kept("TEXT", Cell::Text("🦀 𝔘𝔫𝔦 \u{10ffff}"));
    kept("TEXT", Cell::Text("a\0b"));
    kept("TEXT", Cell::Text("\u{feff}bom"));
    kept("TEXT", Cell::Text("=1+1"));
    kept("TEXT", Cell::Text("'; DROP TABLE t; --"));
    kept("", Cell::Text("007"));
    check_with("1.5", "", Cell::Real(-0.0), Ok(Cell::Real(-0.0)));
}

#[test]
fn a_decimal_that_is_the_same_number_is_the_same() {
    check("DECIMAL(10,2)", Cell::Text("12.50"), Ok(Cell::Real(12.5)));
    check("DECIMAL(10,2)", Cell::Text("12.00"), Ok(Cell::Integer(12)));
    check("INTEGER", Cell::Real(3.0), Ok(Cell::Integer(3)));
    check("REAL", Cell::Integer(3), Ok(Cell::Real(3.0)));
}

/// As callers are told of them: nobody could tell the text from the number.
#[test]
fn a_text_that_stands_for_an_infinite_number_is_none() {
    for text in ["Infinity", "-Infinity", "NaN"] {
        for declared in ["REAL", "NUMERIC", ""] {
            check_with("9e999", declared, Cell::Text(text), Err("it is not a finite number"));
        }
        check_with("'x'", "REAL", Cell::Text(text), Ok(Cell::Text(text)));
        kept("TEXT", Cell::Text(text));
    }
    for text in ["inf", "nan", "infinity", "many"] {
        check_with("9e999", "REAL", Cell::Text(text), Ok(Cell::Text(text)));
    }
}

#[test]
fn what_would_change_is_refused() {
    let declared = |name: &str| format!("it would not be kept exactly: the column is declared as `{name}`");
    let refused = |name: &str, value| check(name, value, Err(&declared(name)));
    refused("DECIMAL(20,4)", Cell::Text("1234567890123456.7891"));
    refused("NUMERIC", Cell::Text("0.123456789012345678"));
    refused("REAL", Cell::Integer(BIG));
    refused("INTEGER", Cell::Text("007"));
    refused("NUMERIC", Cell::Text("1e3"));
    refused("JSON", Cell::Text("12"));
    refused("TEXT", Cell::Integer(7));
    refused("TEXT", Cell::Real(0.5));
    let signed = "SQLite keeps no zero with a sign in a column of numbers; send 0";
    check("REAL", Cell::Real(-0.0), Err(signed));
    check("NUMERIC", Cell::Text("-0.0"), Err(signed));
    for number in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        check("REAL", Cell::Real(number), Err("it is not a finite number"));
    }
}

#[test]
fn strict_tables_say_what_they_keep() {
    let strict = |declared: &str, value| {
        let (_db, desk) = table("DELETE", declared, "STRICT", "");
        desk.create(&[("k", Cell::Text("a")), ("v", value)])
    };
    assert_eq!(strict("INTEGER", Cell::Integer(BIG - 2)), format!("'a' {}", BIG - 2));
    assert_eq!(strict("ANY", Cell::Text("007")), "'a' '007'");
    assert_eq!(strict("BLOB", Cell::Blob(&[1])), "'a' x01");
    assert_eq!(strict("INTEGER", Cell::Text("seven")), "`v`: the column keeps other kinds of values");
    assert_eq!(strict("INTEGER", Cell::Real(0.5)), "`v`: the column keeps other kinds of values");
    assert_eq!(strict("TEXT", Cell::Blob(&[1])), "`v`: the column keeps other kinds of values");
    let what = "it would not be kept exactly: the column is declared as";
    assert_eq!(strict("INTEGER", Cell::Text("007")), format!("`v`: {what} `INTEGER`"));
    assert_eq!(strict("REAL", Cell::Text("0.123456789012345678")), format!("`v`: {what} `REAL`"));
}

#[test]
fn a_database_in_utf16_keeps_texts() {
    let db = Db::new("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(k TEXT PRIMARY KEY NOT NULL, v TEXT)");
    let desk = Desk::new(&db, "t");
    for text in ["", "a\0b", "🦀", "größe", "\u{fffd}"] {
        desk.create(&[("k", Cell::Text("a")), ("v", Cell::Text(text))]);
        assert_eq!(desk.get(&[Cell::Text("a")]).expect("the row")[1], Value::Text(text.into()));
        desk.delete(&[Cell::Text("a")]);
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
    fn a_written_row_reads_back_identical_or_is_not_there(
        declared in prop::sample::select(vec!["TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB", "DECIMAL(9,2)", ""]),
        values in prop::collection::vec(any_value(), 1..6),
    ) {
        let db = Db::new(&format!("CREATE TABLE t(k INTEGER PRIMARY KEY, v {declared})"));
        // Rows of every class, so that anything may be there.
        db.write("INSERT INTO t VALUES(1, 'x'), (2, x'00'), (3, 1.5)");
        let desk = Desk::new(&db, "t");
        for (key, value) in (10..).zip(&values) {
            let told = desk.create(&[("k", Cell::Integer(key)), ("v", value.as_cell())]);
            match desk.get(&[Cell::Integer(key)]) {
                None => prop_assert!(told.starts_with("`v`: "), "{}", told),
                Some(row) => {
                    let is_equal = match (&row[1], value) {
                        (Value::Integer(n), Value::Real(x)) => *n as f64 == *x && x.abs() < 9.1e18,
                        (Value::Real(x), Value::Integer(n)) => *x as i128 == i128::from(*n),
                        (Value::Integer(n), Value::Text(text)) => contract::order::compare(
                            contract::Kind::Decimal, Cell::Integer(*n), Cell::Text(text)).is_eq(),
                        (Value::Real(x), Value::Text(text)) => contract::order::compare(
                            contract::Kind::Decimal, Cell::Real(*x), Cell::Text(text)).is_eq(),
                        (stored, said) => stored == said,
                    };
                    prop_assert!(is_equal, "{declared}: {value:?} became {:?}", row[1]);
                }
            }
        }
    }
}
