//! Pages compared with a naive model, while another connection writes.

use contract::source::{
    ColumnShape, Comparison, CursorPosition, Query, ReadRequest, Reader, RowFlow, Source, SourceError,
    TableShape, Total,
};
use contract::{DataType, Value, order};
use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef as SqlValueRef};

use super::kit::{Row, TestDb, equals, get, list, position, retry_inline, sort_by};

/// A row of the model: two key columns, a sort value, a filter value.
#[derive(Debug, Clone, PartialEq)]
struct ModelRow {
    key: (String, i64),
    sort_value: Value,
    plan: String,
}

#[derive(Debug, Clone)]
enum ModelChange {
    Insert(ModelRow),
    Delete((String, i64)),
}

const KINDS: [(&str, DataType); 6] = [
    ("INTEGER", DataType::Integer),
    ("TEXT", DataType::Text),
    ("DECIMAL(9,2)", DataType::Decimal),
    ("REAL", DataType::Number),
    ("TEXT", DataType::Timestamp),
    ("DATE", DataType::Date),
];

fn stored(kind: DataType) -> BoxedStrategy<Value> {
    let text = |texts: &[&str]| {
        let texts: Vec<Value> = texts.iter().map(|text| Value::Text((*text).into())).collect();
        prop::sample::select(texts).boxed()
    };
    let own = match kind {
        DataType::Integer => (-2..3_i64).prop_map(Value::Integer).boxed(),
        DataType::Number | DataType::Decimal => {
            prop::sample::select(vec![-1.5, 0.25, 19.99]).prop_map(Value::Real).boxed()
        }
        DataType::Timestamp => {
            text(&["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2025-12-31T23:30:00-01:00"])
        }
        DataType::Date => text(&["2026-01-01", "2026-01-02", "2025-12-31"]),
        _ => text(&["a", "A", "b", "ä", ""]),
    };
    prop_oneof![5 => own, 2 => Just(Value::Null), 1 => text(&["stray"])].boxed()
}

fn model(kind: DataType) -> impl Strategy<Value = ModelRow> {
    let plan = prop::sample::select(vec!["free", "ruby"]);
    (prop::sample::select(vec!["a", "A", "b"]), 0..6_i64, stored(kind), plan).prop_map(
        |(k, n, sorted, plan)| ModelRow { key: (k.into(), n), sort_value: sorted, plan: plan.into() },
    )
}

#[derive(Debug, Clone)]
struct Case {
    kind: usize,
    without_rowid: bool,
    wal: bool,
    index: bool,
    rows: Vec<ModelRow>,
    changes: Vec<ModelChange>,
    filter: Option<&'static str>,
    sort: Option<bool>,
    rows_max: usize,
}

fn case() -> impl Strategy<Value = Case> {
    (0..KINDS.len()).prop_flat_map(|kind| {
        let row = || model(KINDS[kind].1);
        let gone = (prop::sample::select(vec!["a", "A", "b"]), 0..6_i64);
        let change = prop_oneof![
            row().prop_map(ModelChange::Insert),
            gone.prop_map(|(k, n)| ModelChange::Delete((k.into(), n))),
        ];
        (
            (any::<bool>(), prop::bool::weighted(0.2), any::<bool>()),
            prop::collection::vec(row(), 0..18),
            prop::collection::vec(change, 0..5),
            prop::option::of(Just("free")),
            prop::option::of(any::<bool>()),
            1..6_usize,
        )
            .prop_map(move |(table, rows, changes, filter, sort, rows_max)| Case {
                kind,
                without_rowid: table.0,
                wal: table.1,
                index: table.2,
                rows,
                changes,
                filter,
                sort,
                rows_max,
            })
    })
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

fn insert(writer: &Connection, row: &ModelRow) {
    let values = rusqlite::params![row.key.0, row.key.1, SqlValue(&row.sort_value), row.plan];
    writer.execute("INSERT OR IGNORE INTO t VALUES(?, ?, ?, ?)", values).expect("a row");
}

fn delete(writer: &Connection, key: &(String, i64)) {
    writer.execute("DELETE FROM t WHERE k = ? AND n = ?", rusqlite::params![key.0, key.1]).expect("a change");
}

/// All matching rows in the order of the contract, computed naively.
fn expected(case: &Case, rows: &[ModelRow]) -> Vec<(String, i64)> {
    let kind = KINDS[case.kind].1;
    let mut rows: Vec<&ModelRow> =
        rows.iter().filter(|row| case.filter.is_none_or(|plan| row.plan == plan)).collect();
    rows.sort_by(|a, b| {
        let sorted = match (case.sort, &a.sort_value, &b.sort_value) {
            (None, _, _) | (_, Value::Null, Value::Null) => std::cmp::Ordering::Equal,
            (_, Value::Null, _) => std::cmp::Ordering::Greater,
            (_, _, Value::Null) => std::cmp::Ordering::Less,
            (Some(false), x, y) => order::compare(kind, x.as_value_ref(), y.as_value_ref()),
            (Some(true), x, y) => order::compare(kind, y.as_value_ref(), x.as_value_ref()),
        };
        sorted.then_with(|| a.key.cmp(&b.key))
    });
    rows.into_iter().map(|row| row.key.clone()).collect()
}

fn table(case: &Case) -> (TestDb, std::sync::Arc<dyn Reader>) {
    let (declared, kind) = KINDS[case.kind];
    let mode = if case.wal { "WAL" } else { "DELETE" };
    let tail = if case.without_rowid { " WITHOUT ROWID" } else { "" };
    let index = if case.index { "CREATE INDEX i ON t(s); CREATE INDEX j ON t(plan);" } else { "" };
    let db = TestDb::new(&format!(
        "PRAGMA journal_mode = {mode};
         CREATE TABLE t(k TEXT NOT NULL, n INTEGER NOT NULL, s {declared}, plan TEXT, PRIMARY KEY(k, n)){tail}; {index}"
    ));
    let column = |at, name: &str, kind| ColumnShape {
        source_index: at,
        name: name.into(),
        data_type: kind,
        nullable: at == 2,
        mixed: at == 2,
        null_texts: Vec::new(),
        format: None,
    };
    let columns = vec![
        column(0, "k", DataType::Text),
        column(1, "n", DataType::Integer),
        column(2, "s", kind),
        column(3, "plan", DataType::Text),
    ];
    let shape = TableShape { table: "t".into(), columns, key: vec![0, 1] };
    let reader = db.source().reader(&shape).expect("a reader");
    (db, reader)
}

fn key_of(row: &Row) -> (String, i64) {
    match &row.0[..2] {
        [Value::Text(k), Value::Integer(n)] => (k.clone(), *n),
        other => panic!("{other:?}"),
    }
}

/// Every row that stays is returned once and in order; a row that is inserted or deleted meanwhile at most
/// once.
fn check(case: &Case) {
    let (db, reader) = table(case);
    let writer = db.connect();
    writer.execute_batch("PRAGMA synchronous = OFF").expect("a setting");
    let mut rows: Vec<ModelRow> = Vec::new();
    for row in &case.rows {
        if !rows.iter().any(|other| other.key == row.key) {
            rows.push(row.clone());
            insert(&writer, row);
        }
    }
    let (mut touched, mut seen, mut after) = (Vec::new(), Vec::new(), None);
    let mut changes = case.changes.iter();
    let sort = case.sort.and_then(|descending| sort_by(2, descending));
    loop {
        let filters = case.filter.map(|plan| equals(3, contract::ValueRef::Text(plan)));
        let query = Query {
            filters: filters.into_iter().collect(),
            sort: sort.into_iter().collect(),
            sort_links: Vec::new(),
            after: after.as_ref(),
            rows_max: case.rows_max,
            cancelled: None,
            progress: None,
        };
        reader.can_run_inline(&ReadRequest::List(&query));
        let (page, total) = list(reader.as_ref(), &query).expect("a page");
        assert!(page.len() <= case.rows_max);
        if after.is_none() {
            let all = expected(case, &rows).len() as u64;
            assert_eq!(total, Some(Total::Exact(all)));
        }
        seen.extend(page.iter().map(key_of));
        match page.last() {
            Some(last) if page.len() == case.rows_max => after = Some(position(last, sort, &[0, 1])),
            _ => break,
        }
        match changes.next() {
            Some(ModelChange::Insert(row)) if !rows.iter().any(|other| other.key == row.key) => {
                insert(&writer, row);
                rows.push(row.clone());
                touched.push(row.key.clone());
            }
            Some(ModelChange::Delete(key)) => {
                delete(&writer, key);
                touched.push(key.clone());
            }
            _ => {}
        }
    }
    let stays = |keys: Vec<(String, i64)>| -> Vec<_> {
        keys.into_iter().filter(|key| !touched.contains(key)).collect()
    };
    assert_eq!(stays(seen.clone()), stays(expected(case, &rows)), "{case:?}");
    let mut once = seen.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), seen.len(), "a row was seen twice: {case:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn pages_return_every_row_once_and_in_order(case in case()) {
        check(&case);
    }
}

#[test]
fn a_table_without_a_key_is_paged_by_rowid() {
    let db = TestDb::new(
        "CREATE TABLE t(v TEXT, n INT); INSERT INTO t VALUES('b', 1), ('a', 2), ('b', 1), (NULL, 3)",
    );
    let (facts, reader) = db.reader("t");
    assert!(facts.key.is_empty() || facts.key == [1]);
    for (sort, expected) in [(None, "1 2 3 4"), (sort_by(0, false), "2 1 3 4"), (sort_by(0, true), "1 3 2 4")]
    {
        let (mut places, mut after) = (Vec::new(), None);
        loop {
            let query = Query {
                sort: sort.into_iter().collect(),
                after: after.as_ref(),
                rows_max: 1,
                ..Query::default()
            };
            let (page, total) = list(reader.as_ref(), &query).expect("a page");
            let Some(row) = page.first() else { break };
            assert_eq!(total, Some(Total::Exact(4)));
            places.push(row.1.row_number.to_string());
            after = Some(position(row, sort, &facts.key));
        }
        assert_eq!(places.join(" "), expected, "{sort:?}");
    }
}

#[test]
fn a_view_is_paged_by_offset() {
    let db = TestDb::new(
        "CREATE TABLE t(v TEXT); INSERT INTO t VALUES('a'), ('b'), ('a'), ('c');
         CREATE VIEW w AS SELECT v, 1 AS one FROM t;",
    );
    let (facts, reader) = db.reader("w");
    assert!(facts.key.is_empty());
    let (mut values, mut after) = (Vec::new(), None);
    loop {
        let query = Query {
            sort: sort_by(0, false).into_iter().collect(),
            after: after.as_ref(),
            rows_max: 3,
            ..Query::default()
        };
        let (page, _) = list(reader.as_ref(), &query).expect("a page");
        values.extend(page.iter().map(|row| super::kit::format_value(&row.0[0])));
        match page.last() {
            Some(last) if page.len() == 3 => after = Some(position(last, query.sort.first().copied(), &[])),
            _ => break,
        }
    }
    assert_eq!(values.join(" "), "'a' 'a' 'b' 'c'");
}

#[test]
fn a_cursor_of_another_shape_is_stale() {
    let db =
        TestDb::new("CREATE TABLE t(k TEXT PRIMARY KEY); CREATE TABLE u(v); INSERT INTO u VALUES(1), (1)");
    let one = || Value::Integer(1);
    for (table, sorted, key) in [
        ("t", None, vec![]),
        ("t", None, vec![one(), one()]),
        ("t", Some(one()), vec![one()]),
        ("t", None, vec![Value::Null]),
        ("u", None, vec![one()]),
        ("u", None, vec![one(), one()]),
        ("u", None, vec![Value::Text("x".into()), Value::Integer(0)]),
    ] {
        let (_, reader) = db.reader(table);
        let after = CursorPosition { sort_values: sorted.into_iter().collect(), key };
        let query = Query { after: Some(&after), rows_max: 3, ..Query::default() };
        let error = list(reader.as_ref(), &query).expect_err("an error");
        assert!(matches!(error, SourceError::StaleCursor), "{table} {after:?} {error:?}");
    }
}

#[test]
fn range_filters_are_inclusive() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, at TEXT, price DECIMAL(9,2));
         INSERT INTO t VALUES(1, '2026-01-01 00:00:00', 19.99), (2, '2026-01-01 00:00:01', 20), (3, NULL, NULL);",
    );
    let (_, reader) = db.reader("t");
    let text = contract::ValueRef::Text;
    for (column, test, value, expected) in [
        (1, Comparison::AtLeast, text("2026-01-01T00:00:00"), "1 2"),
        (1, Comparison::AtMost, text("2026-01-01T00:00:00"), "1"),
        (1, Comparison::Equals, text("2026-01-01T00:00:00"), "1"),
        (1, Comparison::AtLeast, text("2026-01-01T00:00:00.5"), "2"),
        (2, Comparison::AtLeast, text("19.99"), "1 2"),
        (2, Comparison::AtLeast, text("19.990001"), "2"),
        (2, Comparison::AtMost, text("20.00"), "1 2"),
        (2, Comparison::Equals, text("20.00"), "2"),
        (2, Comparison::AtMost, text("9"), ""),
    ] {
        let filter = contract::source::Filter::new(column, test, value);
        let query = Query { filters: vec![filter], rows_max: 9, ..Query::default() };
        let (rows, total) = list(reader.as_ref(), &query).expect("rows");
        let ids: Vec<String> = rows.iter().map(|row| super::kit::format_value(&row.0[0])).collect();
        assert_eq!(ids.join(" "), expected, "{filter:?}");
        assert_eq!(total, Some(Total::Exact(rows.len() as u64)));
    }
}

#[test]
fn a_read_can_run_inline_if_indexed_or_small() {
    let db = TestDb::new(
        "CREATE TABLE small(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO small VALUES(1, 'a');
         CREATE TABLE big(id INTEGER PRIMARY KEY, v TEXT NOT NULL, w TEXT, x DECIMAL(9,2) NOT NULL);
         CREATE INDEX i ON big(v); CREATE INDEX j ON big(x);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
         INSERT INTO big SELECT i, 'v' || i, 'w' || i, i / 4.0 FROM n;",
    );
    let (_, small) = db.reader("small");
    let (_, big) = db.reader("big");
    let filter = |column| vec![equals(column, contract::ValueRef::Text("7"))];
    for (sort, filters, is_short) in [
        (None, vec![], true),
        (sort_by(0, true), vec![], true),
        (sort_by(1, false), vec![], true),
        (sort_by(3, false), vec![], true),
        (None, filter(1), true),
        (None, filter(0), true),
        (sort_by(2, false), vec![], false),
        (None, filter(2), false),
        (sort_by(1, false), filter(2), false),
    ] {
        let query = Query { sort: sort.into_iter().collect(), filters, rows_max: 10, ..Query::default() };
        assert!(small.can_run_inline(&ReadRequest::List(&query)));
        assert_eq!(big.can_run_inline(&ReadRequest::List(&query)), is_short, "{query:?}");
    }
    assert!(big.can_run_inline(&ReadRequest::Get) && small.can_run_inline(&ReadRequest::Get));
}

#[test]
fn large_rows_are_all_returned() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12)
         INSERT INTO t SELECT i, zeroblob(1000000) FROM n;",
    );
    let (_, reader) = db.reader("t");
    let query = Query { sort: sort_by(0, true).into_iter().collect(), rows_max: 50, ..Query::default() };
    let (rows, total) = list(reader.as_ref(), &query).expect("rows");
    let ids: Vec<String> = rows.iter().map(|row| super::kit::format_value(&row.0[0])).collect();
    assert_eq!(ids.join(" "), "12 11 10 9 8 7 6 5 4 3 2 1");
    assert_eq!(total, Some(Total::Exact(12)));
}

#[test]
fn every_list_has_a_total() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, v INTEGER NOT NULL); CREATE INDEX by_kind ON t(kind);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO t SELECT i, iif(i % 2, 'odd', 'even'), i % 10 FROM n;
         CREATE VIEW w AS SELECT id, v FROM t WHERE v = 3;",
    );
    let (_, reader) = db.reader("t");
    let filters = |kind: Option<&'static str>, v: Option<i64>| {
        let kind = kind.map(|kind| equals(1, contract::ValueRef::Text(kind)));
        kind.into_iter().chain(v.map(|v| equals(2, contract::ValueRef::Integer(v)))).collect::<Vec<_>>()
    };
    let total = |filters, after: Option<&CursorPosition>| {
        let query = Query { filters, rows_max: 5, after, ..Query::default() };
        list(reader.as_ref(), &query).expect("a page").1
    };
    assert_eq!(total(filters(None, None), None), Some(Total::Exact(20_000)));
    assert_eq!(total(filters(Some("odd"), None), None), Some(Total::Exact(10_000)));
    assert_eq!(total(filters(None, Some(3)), None), Some(Total::Exact(2_000)));
    assert_eq!(total(filters(Some("odd"), Some(4)), None), Some(Total::Exact(0)));
    let later = CursorPosition { sort_values: Vec::new(), key: vec![Value::Integer(19_990)] };
    assert_eq!(total(filters(None, Some(3)), Some(&later)), Some(Total::Exact(2_000)), "of all pages");
    // A commit is counted.
    db.execute("DELETE FROM t WHERE v = 3 AND id > 10");
    assert_eq!(total(filters(None, None), None), Some(Total::Exact(18_001)));
    assert_eq!(total(filters(None, Some(3)), None), Some(Total::Exact(1)));
    let (_, view) = db.reader("w");
    let (rows, total) = list(view.as_ref(), &Query { rows_max: 5, ..Query::default() }).expect("a page");
    assert_eq!((rows.len(), total), (1, Some(Total::Exact(1))));
    // Inline no more than a bounded number of rows is counted.
    let query = Query { filters: filters(Some("odd"), None), rows_max: 5, ..Query::default() };
    let blocking = || list(reader.as_ref(), &query).map(drop);
    let total = retry_inline(blocking, || {
        match reader.list_inline(&query, &mut |_, _| RowFlow::Continue)? {
            // A busy machine has no time to count.
            Some(Total::AtLeast(..5_000)) => Err(SourceError::WouldBlock),
            total => Ok(total),
        }
    });
    assert_eq!(total, Some(Total::AtLeast(5_000)));
}

#[test]
fn a_page_that_is_stopped_early_has_the_right_total() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES(1), (2), (3)");
    let (_, reader) = db.reader("t");
    let query = Query { rows_max: 100, ..Query::default() };
    let total = reader.list(&query, &mut |_, _| RowFlow::Stop).expect("a page");
    assert_eq!(total, Some(Total::Exact(3)));
}

#[test]
fn an_inline_read_does_not_wait() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES(1), (2), (3)");
    let (_, reader) = db.reader("t");
    let key = [contract::ValueRef::Integer(1)];
    let read = || reader.get_inline(&key, &mut |_| {});
    let query = Query { rows_max: 2, ..Query::default() };
    let page = || reader.list_inline(&query, &mut |_, _| RowFlow::Continue);
    let blocking = || get(reader.as_ref(), &key).map(drop);
    assert!(retry_inline(blocking, read));
    assert_eq!(retry_inline(blocking, page), Some(Total::Exact(3)));
    let other = db.connect();
    other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    assert!(matches!(read(), Err(SourceError::WouldBlock)));
    assert!(matches!(page(), Err(SourceError::WouldBlock)));
    other.execute_batch("COMMIT").expect("unlocked");
    assert!(retry_inline(blocking, read));
}
