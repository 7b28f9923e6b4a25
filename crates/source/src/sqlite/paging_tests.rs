//! SQL and Rust give the same page, whatever is asked of whatever is stored.

use std::sync::Arc;
use std::time::Duration;

use contract::source::{
    ColumnShape, Comparison, CursorPosition, Filter, Query, Sort, SourceError, TableShape,
};
use contract::{DataType, Value, infer};
use proptest::prelude::*;
use rusqlite::types::{ToSqlOutput, ValueRef as SqlValueRef};

use super::pool::ConnectionPool;
use super::reader::{PageStatus, TableReader};
use super::row_buffer::RowBuffer;
use super::{Options, error::DbError, schema};

/// A column that holds anything, read as a kind.
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

/// How a table tells its rows apart: its first columns, its last words, and how many columns are the key.
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

/// A value as a call may filter by it: its class follows from the kind.
fn filter_value(kind: DataType, value: &Value) -> Value {
    let text = match value {
        Value::Null => String::new(),
        Value::Text(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Real(n) => n.to_string(),
        Value::Blob(_) => "2026-01-01T00:00:00".into(),
    };
    match kind {
        DataType::Integer => Value::Integer(text.parse().unwrap_or(7)),
        DataType::Number => Value::Real(text.parse().unwrap_or(7.5)),
        DataType::Boolean => Value::Integer(i64::from(text == "true")),
        DataType::Decimal => {
            Value::Text(if text.parse::<f64>().is_ok() && text != "1e1" { text } else { "7.00".into() })
        }
        DataType::Date | DataType::LocalTimestamp if !infer::matches_type(kind, &text) => {
            Value::Text(if kind == DataType::Date { "2026-01-01" } else { "2026-01-01T00:00:00" }.into())
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
    let (declared, kind) = COLUMNS[column];
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
    let column = |at, name: &str, kind, null: Option<&str>| ColumnShape {
        source_index: at,
        name: name.into(),
        data_type: kind,
        nullable: at > 1,
        mixed: at > 1,
        null_text: null.map(Into::into),
    };
    let columns = vec![
        column(2, "s", kind, null),
        column(0, "k", DataType::Text, None),
        column(1, "n", DataType::Integer, None),
        column(3, "f", kind, null),
    ];
    let shape = TableShape { table: "t".into(), columns, key: (1..=key_width).collect() };
    let pool = Arc::new(ConnectionPool::new(&path, 2));
    let schema = pool.with_schema_connection(|session| Ok(schema::read(&session.inner)?)).expect("a schema");
    let mut reader = TableReader::new(&pool, &Options::default(), &schema, &shape).expect("a reader");
    // What is compared is the pages, not how fast a busy machine makes them.
    reader.lock_hold_max = Duration::from_secs(10);
    PagingFixture { _folder: folder, reader }
}

fn rows(page: &RowBuffer) -> Vec<(Vec<Value>, i64)> {
    (0..page.row_count())
        .map(|row| ((0..4).map(|at| page.value(row, at)).collect(), page.position(row)))
        .collect()
}

/// Reads page after page in both ways, and compares.
fn check(world: &PagingFixture, query: &mut Query<'_>, rows_max: usize) {
    let reader = &world.reader;
    let (mut sql, mut rust) = (RowBuffer::new(4), RowBuffer::new(4));
    let mut position: Option<CursorPosition> = None;
    let (mut all, mut counted) = (0, None);
    loop {
        let after = {
            let query = Query { after: position.as_ref(), sort: query.sort, ..Query::default() };
            reader.parse_cursor(&query).expect("our own cursor")
        };
        let filled = reader.query_page(query, after.as_ref(), rows_max, &mut sql).expect("a page");
        let total = reader.scan_page(query, after.as_ref(), rows_max, &mut rust).expect("a page");
        assert_eq!(rows(&sql), rows(&rust), "{query:?} after {after:?}");
        assert_eq!(*counted.get_or_insert(total), total);
        all += sql.row_count();
        let Some(last) = reader.cursor_after(query, &sql) else { break };
        let mut key = last.key;
        if reader.key.is_empty() {
            key.push(Value::Integer(0));
        }
        position = Some(CursorPosition { sort_value: last.sort_value, key });
        if let PageStatus::Exhausted = filled {
            break;
        }
    }
    assert_eq!(Some(all as u64), counted, "{query:?}: rows were lost or seen twice");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn sql_and_rust_give_the_same_pages(
        shape in (0..TABLES.len(), 0..COLUMNS.len(), prop::bool::weighted(0.2), prop::bool::weighted(0.2)),
        rows in prop::collection::vec((0..6_u8, value(), value()), 0..30),
        filters in prop::collection::vec((prop::sample::select(vec![0_usize, 3]), 0..3_u8, value()), 0..2),
        sort in prop::option::of((0..4_usize, any::<bool>())),
        rows_max in 1..9_usize,
    ) {
        let (table, column, utf16, has_null) = shape;
        let world = paging_fixture(table, column, utf16, has_null.then_some("none"), &rows);
        let kind = COLUMNS[column].1;
        let filters: Vec<_> = filters.into_iter().map(|(at, test, value)| (at, test, filter_value(kind, &value))).collect();
        let filters = filters.iter().map(|(column, test, value)| Filter {
            column: *column,
            comparison: [Comparison::Equals, Comparison::AtLeast, Comparison::AtMost][usize::from(*test) * usize::from(kind.has_range())],
            value: value.as_value_ref(),
        });
        let mut query = Query {
            filters: filters.collect(),
            sort: sort.map(|(column, descending)| Sort { column, descending }),
            ..Query::default()
        };
        check(&world, &mut query, rows_max);
    }
}

#[test]
fn a_view_is_not_walked() {
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
        null_text: None,
    };
    let shape = TableShape { table: "v".into(), columns: vec![column], key: vec![] };
    let pool = Arc::new(ConnectionPool::new(&path, 2));
    let schema = pool.with_schema_connection(|session| Ok(schema::read(&session.inner)?)).expect("a schema");
    let reader = TableReader::new(&pool, &Options::default(), &schema, &shape).expect("a reader");
    let walked = reader.scan_page(&Query::default(), None, 1, &mut RowBuffer::new(1));
    assert!(matches!(walked, Err(DbError::Source(SourceError::Timeout))));
}
