//! SQL and Rust give the same page, whatever is asked of whatever is stored.

use std::sync::Arc;
use std::time::Duration;

use contract::source::{Filter, Position, Query, Shape, ShapeColumn, Sort, SourceFault, Test};
use contract::{Kind, Value, infer};
use proptest::prelude::*;
use rusqlite::types::{ToSqlOutput, ValueRef};

use super::page::Page;
use super::pool::Pool;
use super::reader::{Filled, TableReader};
use super::{Options, fault::Fail, schema};

/// A column that holds anything, read as a kind.
const COLUMNS: [(&str, Kind); 13] = [
    ("INTEGER", Kind::Integer),
    ("", Kind::Integer),
    ("TEXT", Kind::Text),
    ("TEXT COLLATE NOCASE", Kind::Text),
    ("STRING", Kind::Text),
    ("", Kind::Text),
    ("DECIMAL(10,2)", Kind::Decimal),
    ("TEXT", Kind::Decimal),
    ("REAL", Kind::Number),
    ("TEXT", Kind::LocalTimestamp),
    ("BOOLEAN", Kind::Boolean),
    ("TEXT", Kind::Date),
    ("DATE", Kind::Date),
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
fn asked(kind: Kind, value: &Value) -> Value {
    let text = match value {
        Value::Null => String::new(),
        Value::Text(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Real(n) => n.to_string(),
        Value::Blob(_) => "2026-01-01T00:00:00".into(),
    };
    match kind {
        Kind::Integer => Value::Integer(text.parse().unwrap_or(7)),
        Kind::Number => Value::Real(text.parse().unwrap_or(7.5)),
        Kind::Boolean => Value::Integer(i64::from(text == "true")),
        Kind::Decimal => {
            Value::Text(if text.parse::<f64>().is_ok() && text != "1e1" { text } else { "7.00".into() })
        }
        Kind::Date | Kind::LocalTimestamp if !infer::is(kind, &text) => {
            Value::Text(if kind == Kind::Date { "2026-01-01" } else { "2026-01-01T00:00:00" }.into())
        }
        _ => Value::Text(text),
    }
}

struct Sql<'v>(&'v Value);

impl rusqlite::ToSql for Sql<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Integer(n) => ValueRef::Integer(*n),
            Value::Real(n) => ValueRef::Real(*n),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

struct World {
    _folder: tempfile::TempDir,
    reader: TableReader,
}

fn world(table: usize, column: usize, utf16: bool, null: Option<&str>, rows: &[(u8, Value, Value)]) -> World {
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
        let row = rusqlite::params![key, n, Sql(s), Sql(f)];
        writer.execute("INSERT INTO t (k, n, s, f) VALUES (?, ?, ?, ?)", row).expect("a row");
    }
    writer.execute_batch("COMMIT").expect("rows");
    let column = |at, name: &str, kind, null: Option<&str>| ShapeColumn {
        at,
        name: name.into(),
        kind,
        nullable: at > 1,
        mixed: at > 1,
        null: null.map(Into::into),
    };
    let columns = vec![
        column(2, "s", kind, null),
        column(0, "k", Kind::Text, None),
        column(1, "n", Kind::Integer, None),
        column(3, "f", kind, null),
    ];
    let shape = Shape { table: "t".into(), columns, key: (1..=key_width).collect() };
    let pool = Arc::new(Pool::new(&path, 2));
    let schema = pool.schema(|session| Ok(schema::read(&session.connection)?)).expect("a schema");
    let mut reader = TableReader::new(&pool, &Options::default(), &schema, &shape).expect("a reader");
    // What is compared is the pages, not how fast a busy machine makes them.
    reader.hold = Duration::from_secs(10);
    World { _folder: folder, reader }
}

fn rows(page: &Page) -> Vec<(Vec<Value>, i64)> {
    (0..page.rows()).map(|row| ((0..4).map(|at| page.value(row, at)).collect(), page.place(row))).collect()
}

/// Reads page after page in both ways, and compares.
fn check(world: &World, query: &mut Query<'_>, rows_max: usize) {
    let reader = &world.reader;
    let (mut sql, mut rust) = (Page::new(4), Page::new(4));
    let mut position: Option<Position> = None;
    let (mut all, mut counted) = (0, None);
    loop {
        let after = {
            let query = Query { after: position.as_ref(), sort: query.sort, ..Query::default() };
            reader.after(&query).expect("our own cursor")
        };
        let filled = reader.fill(query, after.as_ref(), rows_max, &mut sql).expect("a page");
        let total = reader.walk(query, after.as_ref(), rows_max, &mut rust).expect("a page");
        assert_eq!(rows(&sql), rows(&rust), "{query:?} after {after:?}");
        assert_eq!(*counted.get_or_insert(total), total);
        all += sql.rows();
        let Some(last) = reader.last(query, &sql) else { break };
        let mut key = last.key;
        if reader.key.is_empty() {
            key.push(Value::Integer(0));
        }
        position = Some(Position { sorted: last.sorted, key });
        if let Filled::End = filled {
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
        let world = world(table, column, utf16, has_null.then_some("none"), &rows);
        let kind = COLUMNS[column].1;
        let filters: Vec<_> = filters.into_iter().map(|(at, test, value)| (at, test, asked(kind, &value))).collect();
        let filters = filters.iter().map(|(column, test, value)| Filter {
            column: *column,
            test: [Test::Equals, Test::AtLeast, Test::AtMost][usize::from(*test) * usize::from(kind.has_range())],
            value: value.as_cell(),
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
    let column = ShapeColumn {
        at: 0,
        name: "a".into(),
        kind: Kind::Integer,
        nullable: true,
        mixed: false,
        null: None,
    };
    let shape = Shape { table: "v".into(), columns: vec![column], key: vec![] };
    let pool = Arc::new(Pool::new(&path, 2));
    let schema = pool.schema(|session| Ok(schema::read(&session.connection)?)).expect("a schema");
    let reader = TableReader::new(&pool, &Options::default(), &schema, &shape).expect("a reader");
    let walked = reader.walk(&Query::default(), None, 1, &mut Page::new(1));
    assert!(matches!(walked, Err(Fail::Fault(SourceFault::TooSlow))));
}
