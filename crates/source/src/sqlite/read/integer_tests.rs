//! SQLite and Rust give the same totals of integers, for any stored values, or the same error.

use std::sync::Arc;
use std::time::Duration;

use contract::source::{
    Aggregate, AggregateFunction, ColumnShape, Comparison, Filter, Groups, Measure, TableShape,
};
use contract::{DataType, Value, ValueRef};
use proptest::prelude::*;
use rusqlite::types::Value as SqlValue;

use crate::sqlite::connection::pool::ConnectionPool;
use crate::sqlite::error::DbError;
use crate::sqlite::read::TableReader;
use crate::sqlite::{Options, schema};

/// The declarations that decide how SQLite stores a number, and the type as which the column is read.
const COLUMNS: [(&str, DataType); 5] = [
    ("INTEGER", DataType::Integer),
    ("INTEGER", DataType::Int64),
    ("NUMERIC", DataType::Int64),
    ("", DataType::Integer),
    ("TEXT", DataType::Int64),
];

const SAFE: i64 = contract::infer::SAFE_INTEGER_MAX;

fn integer() -> impl Strategy<Value = SqlValue> {
    prop_oneof![-5..5_i64, Just(SAFE), Just(-SAFE)].prop_map(SqlValue::Integer)
}

/// Values that a column of integers may have, or may have got from a careless writer.
fn value() -> impl Strategy<Value = SqlValue> {
    prop_oneof![
        60 => integer(),
        6 => prop_oneof![Just(i64::MAX), Just(i64::MIN), Just(SAFE + 1)].prop_map(SqlValue::Integer),
        4 => Just(SqlValue::Null),
        1 => prop::sample::select(vec![2.0, 2.5, f64::INFINITY]).prop_map(SqlValue::Real),
        1 => prop::sample::select(vec!["3", "", "x", "9223372036854775808"])
            .prop_map(|text| SqlValue::Text(text.into())),
        1 => Just(SqlValue::Blob(vec![52])),
    ]
}

/// A row has a value for each of [`COLUMNS`], and one that filters compare.
type StoredRow = (Vec<SqlValue>, i64);

fn rows() -> impl Strategy<Value = Vec<StoredRow>> {
    let any = prop::collection::vec(value(), COLUMNS.len());
    let clean = prop::collection::vec(integer(), COLUMNS.len());
    prop_oneof![
        prop::collection::vec((any, 0..3_i64), 0..12),
        prop::collection::vec((clean, 0..3_i64), 0..12),
    ]
}

fn reader_of(
    rows: &[StoredRow],
    is_wal: bool,
    nullable: bool,
    mixed: bool,
) -> (tempfile::TempDir, TableReader) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.db");
    let writer = rusqlite::Connection::open(&path).expect("a database");
    if is_wal {
        writer.execute_batch("PRAGMA journal_mode = WAL").expect("a mode");
    }
    let definitions: Vec<String> =
        COLUMNS.iter().enumerate().map(|(at, (declared, _))| format!("c{at} {declared}")).collect();
    writer
        .execute_batch(&format!("CREATE TABLE t ({}, f INTEGER)", definitions.join(", ")))
        .expect("a table");
    for (values, filtered) in rows {
        let values = values.iter().cloned().chain([SqlValue::Integer(*filtered)]);
        let sql = format!("INSERT INTO t VALUES ({})", vec!["?"; COLUMNS.len() + 1].join(", "));
        writer.execute(&sql, rusqlite::params_from_iter(values)).expect("a row");
    }
    let column = |(at, name, data_type): (usize, String, DataType)| ColumnShape {
        source_index: at,
        name,
        data_type,
        nullable,
        mixed,
        null_texts: Vec::new(),
        format: None,
    };
    let names = COLUMNS.iter().enumerate().map(|(at, (_, kind))| (at, format!("c{at}"), *kind));
    let columns = names.chain([(COLUMNS.len(), "f".to_owned(), DataType::Integer)]).map(column).collect();
    let shape = TableShape { table: "t".into(), columns, key: vec![] };
    let pool = Arc::new(ConnectionPool::new(&path, 2));
    let schema =
        pool.with_schema_connection(|connection| Ok(schema::read(&connection.inner)?)).expect("a schema");
    let reader = TableReader::new(&pool, &Options::default(), &schema, &shape).expect("a reader");
    (folder, reader)
}

fn question(columns: &[usize], filter: Option<i64>) -> Aggregate<'static> {
    let functions =
        [AggregateFunction::Sum, AggregateFunction::Avg, AggregateFunction::Min, AggregateFunction::Max];
    let measures = columns
        .iter()
        .flat_map(|column| functions.map(|function| Measure::Of { function, column: *column }))
        .chain([Measure::Count])
        .collect();
    let operand = |value| Filter::new(COLUMNS.len(), Comparison::Equals, ValueRef::Integer(value));
    Aggregate {
        filters: filter.map(operand).into_iter().collect(),
        measures,
        groups_max: 10,
        ..Aggregate::default()
    }
}

fn outcome(groups: Result<Groups, DbError>) -> Result<Vec<Vec<Value>>, String> {
    match groups {
        Ok(groups) => Ok(groups.rows.into_iter().map(|row| row.0).collect()),
        Err(error) => Err(format!("{error:?}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn totals_inside_sqlite_equal_a_scan_of_the_rows(
        rows in rows(),
        columns in prop::sample::subsequence((0..COLUMNS.len()).collect::<Vec<_>>(), 1..=2),
        filter in prop::option::of(0..4_i64),
        is_wal in any::<bool>(),
        nullable in any::<bool>(),
        mixed in any::<bool>(),
        has_time in any::<bool>(),
    ) {
        let (_folder, mut reader) = reader_of(&rows, is_wal, nullable, mixed);
        if !has_time {
            // The rows are read in ranges.
            reader.is_small = false;
            reader.lock_hold_max = Duration::ZERO;
        }
        let question = question(&columns, filter);
        prop_assert_eq!(outcome(reader.group_rows(&question)), outcome(reader.scan_groups(&question)));
    }
}

#[test]
fn sums_beyond_64_bits_and_columns_without_values_are_answered() {
    let row = |n: i64| {
        (vec![SqlValue::Null, SqlValue::Integer(n), SqlValue::Null, SqlValue::Null, SqlValue::Null], 0)
    };
    let (_folder, reader) = reader_of(&[row(i64::MAX), row(i64::MAX)], false, true, false);
    let groups = outcome(reader.group_rows(&question(&[0, 1], None))).expect("an answer");
    let (max, null) = (Value::Integer(i64::MAX), Value::Null);
    let expected = vec![
        null.clone(),
        null.clone(),
        null.clone(),
        null,
        Value::Text("18446744073709551614".into()),
        Value::Real(9_223_372_036_854_775_807.0),
        max.clone(),
        max,
        Value::Integer(2),
    ];
    assert_eq!(groups, [expected]);
}

#[test]
fn a_value_of_another_type_is_an_error_that_names_the_column() {
    let mut values = vec![SqlValue::Integer(1); COLUMNS.len()];
    values[0] = SqlValue::Text("x".into());
    let (_folder, reader) = reader_of(&[(values, 0)], false, true, false);
    let error = outcome(reader.group_rows(&question(&[0], None))).expect_err("not an integer");
    assert!(error.contains("column `c0`: expected an integer below 2^53"), "{error}");
    outcome(reader.group_rows(&question(&[1], None))).expect("another column");
}
