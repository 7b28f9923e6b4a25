//! SQL and Rust return the same pages, for any query on any stored values.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::source::{ColumnShape, Comparison, CursorPosition, Filter, Query, Sort, TableShape, Total};
use contract::{DataType, Value, ValueRef, infer};
use proptest::prelude::*;
use rusqlite::types::{ToSqlOutput, ValueRef as SqlValueRef};

use crate::sqlite::connection::pool::{ConnectionPool, ReadMode};
use crate::sqlite::read::row_buffer::RowBuffer;
use crate::sqlite::read::{PageStatus, TableReader};
use crate::sqlite::{Options, error::DbError, schema};

/// Columns that hold any value, and the data type as which they are read.
const COLUMNS: [(&str, DataType); 13] = [
    ("INTEGER", DataType::Integer),
    ("", DataType::Integer),
    ("TEXT", DataType::Text),
    ("TEXT COLLATE NOCASE", DataType::Text),
    ("STRING", DataType::Text),
    ("", DataType::Text),
    ("DECIMAL(10,2)", DataType::Decimal),
    ("TEXT", DataType::Decimal),
    ("REAL", DataType::Number),
    ("TEXT", DataType::LocalTimestamp),
    ("BOOLEAN", DataType::Boolean),
    ("TEXT", DataType::Date),
    ("DATE", DataType::Date),
];

/// How a table identifies its rows: its first columns, the end of its declaration, and the number of key
/// columns.
const TABLES: [(&str, &str, usize); 5] = [
    ("k TEXT, n INTEGER", ", PRIMARY KEY (k, n))", 2),
    ("k TEXT, n INTEGER", ", PRIMARY KEY (k COLLATE NOCASE, n)) WITHOUT ROWID", 2),
    ("k TEXT, n INTEGER", ")", 0),
    ("k TEXT NOT NULL UNIQUE, n INTEGER", ")", 1),
    ("k TEXT NOT NULL, n INTEGER", ")", 1),
];

fn value() -> impl Strategy<Value = Value> {
    let texts = [
        "a",
        "A",
        "b",
        "",
        "7",
        "007",
        "7.0",
        "7.5",
        "-3",
        "10",
        "1e1",
        " 7",
        "true",
        "false",
        "none",
        "ä",
        "2026-01-01",
        "2026-01-02",
        "2026-01-01 00:00:00",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00.5",
        "7.50000000000000000001",
    ];
    prop_oneof![
        2 => Just(Value::Null),
        8 => prop::sample::select(texts.to_vec()).prop_map(|text| Value::Text(text.into())),
        4 => prop::sample::select(vec![0_i64, 1, 7, -3, 10, i64::MAX]).prop_map(Value::Integer),
        3 => prop::sample::select(vec![7.5, -0.5, 7.0, 1e300]).prop_map(Value::Real),
        1 => Just(Value::Blob(vec![7, 0])),
    ]
}

/// A value as a call may filter by it: its class follows from the data type.
fn filter_value(data_type: DataType, value: &Value) -> Value {
    let text = match value {
        Value::Null => String::new(),
        Value::Text(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Real(n) => n.to_string(),
        Value::Blob(_) => "2026-01-01T00:00:00".into(),
    };
    match data_type {
        DataType::Integer => Value::Integer(text.parse().unwrap_or(7)),
        DataType::Number => Value::Real(text.parse().unwrap_or(7.5)),
        DataType::Boolean => Value::Integer(i64::from(text == "true")),
        DataType::Decimal => {
            Value::Text(if text.parse::<f64>().is_ok() && text != "1e1" { text } else { "7.00".into() })
        }
        DataType::Date | DataType::LocalTimestamp if !infer::matches_type(data_type, &text) => {
            Value::Text(if data_type == DataType::Date { "2026-01-01" } else { "2026-01-01T00:00:00" }.into())
        }
        _ => Value::Text(text),
    }
}

struct SqlValue<'v>(&'v Value);

impl rusqlite::ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => SqlValueRef::Null,
            Value::Integer(n) => SqlValueRef::Integer(*n),
            Value::Real(n) => SqlValueRef::Real(*n),
            Value::Text(text) => SqlValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => SqlValueRef::Blob(bytes),
        }))
    }
}

struct PagingFixture {
    _folder: tempfile::TempDir,
    reader: TableReader,
}

fn paging_fixture(
    table: usize,
    column: usize,
    utf16: bool,
    null: Option<&str>,
    rows: &[(u8, Value, Value)],
) -> PagingFixture {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.db");
    let writer = rusqlite::Connection::open(&path).expect("a database");
    let (head, tail, key_width) = TABLES[table];
    let (declared, data_type) = COLUMNS[column];
    let encoding = if utf16 { "UTF-16le" } else { "UTF-8" };
    let make = format!("CREATE TABLE t ({head}, s {declared}, f {declared}{tail}");
    writer
        .execute_batch(&format!("PRAGMA synchronous = OFF; PRAGMA encoding = '{encoding}'; {make}"))
        .expect("a table");
    writer.execute_batch("BEGIN").expect("a transaction");
    for (n, (key, s, f)) in (0_i64..).zip(rows) {
        let letter = if key % 2 == 0 { "k" } else { "K" };
        let key = if key_width == 1 { format!("{letter}{n}") } else { format!("{letter}{key}") };
        let row = rusqlite::params![key, n, SqlValue(s), SqlValue(f)];
        writer.execute("INSERT INTO t (k, n, s, f) VALUES (?, ?, ?, ?)", row).expect("a row");
    }
    writer.execute_batch("COMMIT").expect("rows");
    let column = |index, name: &str, data_type, null: Option<&str>| ColumnShape {
        source_index: index,
        name: name.into(),
        data_type,
        nullable: index > 1,
        mixed: index > 1,
        null_texts: null.into_iter().map(Into::into).collect(),
        format: None,
    };
    let columns = vec![
        column(2, "s", data_type, null),
        column(0, "k", DataType::Text, None),
        column(1, "n", DataType::Integer, None),
        column(3, "f", data_type, null),
    ];
    let shape = TableShape { table: "t".into(), columns, key: (1..=key_width).collect() };
    let pool = Arc::new(ConnectionPool::new(&path, 2));
    let schema =
        pool.with_schema_connection(|connection| Ok(schema::read(&connection.inner)?)).expect("a schema");
    let mut reader = TableReader::new(&pool, &Options::default(), &schema, &shape).expect("a reader");
    // The test compares pages, not the speed of a busy machine.
    reader.lock_hold_max = Duration::from_secs(10);
    PagingFixture { _folder: folder, reader }
}

fn rows(page: &RowBuffer) -> Vec<(Vec<Value>, i64)> {
    (0..page.row_count())
        .map(|row| ((0..4).map(|index| page.value(row, index)).collect(), page.position(row)))
        .collect()
}

/// Reads page after page in both ways, and compares them.
fn check(fixture: &PagingFixture, query: &mut Query<'_>, rows_max: usize) {
    let reader = &fixture.reader;
    let (mut sql, mut rust) = (RowBuffer::new(4), RowBuffer::new(4));
    let mut position: Option<CursorPosition> = None;
    let (mut all, mut counted) = (0, None);
    loop {
        let after = {
            let query = Query { after: position.as_ref(), sort: query.sort.clone(), ..Query::default() };
            reader.parse_cursor(&query).expect("our own cursor")
        };
        let filled =
            reader.query_page(query, after.as_ref(), rows_max, ReadMode::Blocking, &mut sql).expect("a page");
        let total = reader.scan_page(query, after.as_ref(), rows_max, &mut rust).expect("a page");
        assert_eq!(rows(&sql), rows(&rust), "{query:?} after {after:?}");
        assert_eq!(*counted.get_or_insert(total), total);
        all += sql.row_count();
        let Some(last) = reader.cursor_after(query, &sql) else { break };
        let mut key = last.key;
        if reader.key.is_empty() {
            key.push(Value::Integer(0));
        }
        position = Some(CursorPosition { sort_values: last.sort_values, key });
        if let PageStatus::Exhausted = filled {
            break;
        }
    }
    assert_eq!(Some(all as u64), counted, "{query:?}: rows were lost or seen twice");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn sql_and_rust_return_the_same_pages(
        shape in (0..TABLES.len(), 0..COLUMNS.len(), prop::bool::weighted(0.2), prop::bool::weighted(0.2)),
        rows in prop::collection::vec((0..6_u8, value(), value()), 0..30),
        filters in prop::collection::vec((prop::sample::select(vec![0_usize, 3]), 0..3_u8, value()), 0..2),
        sort in prop::option::of((0..4_usize, any::<bool>())),
        rows_max in 1..9_usize,
    ) {
        let (table, column, utf16, has_null) = shape;
        let fixture = paging_fixture(table, column, utf16, has_null.then_some("none"), &rows);
        let data_type = COLUMNS[column].1;
        let filters: Vec<_> = filters.into_iter().map(|(index, comparison, value)| (index, comparison, filter_value(data_type, &value))).collect();
        let filters = filters.iter().map(|(column, comparison, value)| Filter {
            column: *column,
            comparison: [Comparison::Equals, Comparison::AtLeast, Comparison::AtMost][usize::from(*comparison) * usize::from(data_type.has_range())],
            ..Filter::new(*column, Comparison::Equals, value.as_value_ref())
        });
        let mut query = Query {
            filters: filters.collect(),
            sort: sort.map(|(column, descending)| Sort { column, descending }).into_iter().collect(),
            ..Query::default()
        };
        check(&fixture, &mut query, rows_max);
    }
}

#[test]
fn a_view_cannot_be_scanned_in_chunks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.db");
    let writer = rusqlite::Connection::open(&path).expect("a database");
    writer.execute_batch("CREATE VIEW v AS SELECT 1 AS a").expect("a view");
    let column = ColumnShape {
        source_index: 0,
        name: "a".into(),
        data_type: DataType::Integer,
        nullable: true,
        mixed: false,
        null_texts: Vec::new(),
        format: None,
    };
    let shape = TableShape { table: "v".into(), columns: vec![column], key: vec![] };
    let pool = Arc::new(ConnectionPool::new(&path, 2));
    let schema =
        pool.with_schema_connection(|connection| Ok(schema::read(&connection.inner)?)).expect("a schema");
    let reader = TableReader::new(&pool, &Options::default(), &schema, &shape).expect("a reader");
    let result = reader.scan_page(&Query::default(), None, 1, &mut RowBuffer::new(1));
    assert!(matches!(result, Err(DbError::DeadlineExceeded)));
}

/// A table with as many rows, of which every tenth has `f` = 7.
fn counted_reader(rows: i64) -> PagingFixture {
    let row = |n: i64| (0, Value::Integer(n), Value::Integer(if n % 10 == 0 { 7 } else { 8 }));
    let integers = COLUMNS.iter().position(|(_, data_type)| *data_type == DataType::Integer);
    let rows: Vec<_> = (0..rows).map(row).collect();
    paging_fixture(0, integers.expect("a column of integers"), false, None, &rows)
}

#[test]
fn a_total_does_not_depend_on_how_busy_the_machine_is() {
    let mut fixture = counted_reader(412);
    let sevens = Filter::new(3, Comparison::Equals, ValueRef::Integer(7));
    let query = Query { filters: vec![sevens], rows_max: 5, ..Query::default() };
    let reader = &mut fixture.reader;
    // There is no time at all to count inline: the call is repeated where there is.
    reader.inline_count_max = Duration::ZERO;
    let reader = &*reader;
    assert!(matches!(reader.total(&query, ReadMode::Inline, 5), Err(DbError::WouldBlock)));
    assert!(matches!(reader.total(&query, ReadMode::Blocking, 5), Ok(Total::Exact(42))));
    // Nor is there elsewhere for a table that could not be counted in time.
    reader.is_costly_to_count.store(true, Ordering::Relaxed);
    assert!(matches!(reader.total(&query, ReadMode::Inline, 5), Ok(Total::AtLeast(5))));
}
