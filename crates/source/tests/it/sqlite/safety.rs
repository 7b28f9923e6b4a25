//! Reading writes nothing, whatever the database contains and callers send.

use contract::source::{Query, Source};
use contract::{Value, ValueRef};

use super::kit::{TestDb, all, equals, get, list, position, sort_by};

const NAMES: [&str; 9] = [
    "users",
    "\"; DROP TABLE victim; --",
    "a\"b",
    "a'b",
    "`c`",
    "[d]",
    "select",
    "a;b\n-- ",
    "größe ✓ %s ?1 :x",
];

const VALUES: [&str; 7] =
    ["\"; DROP TABLE victim; --", "'; DROP TABLE victim; --", "' OR 1=1 --", "?1", "a\0b", "%", "\u{202e}x"];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[test]
fn hostile_names_are_quoted() {
    for name in NAMES {
        for column in NAMES {
            let (table, quoted_column) = (quoted(name), quoted(column));
            let db = TestDb::new(&format!(
                "CREATE TABLE victim(a); CREATE TABLE {table}({quoted_column} TEXT PRIMARY KEY, other TEXT);
                 INSERT INTO {table} VALUES('x', 'y'), ('z', NULL);"
            ));
            let before = std::fs::read(&db.path).expect("bytes");
            let (facts, reader) = db.reader(name);
            assert_eq!((facts.name.as_str(), facts.columns[0].name.as_str()), (name, column));
            let row = get(reader.as_ref(), &[ValueRef::Text("x")]).expect("a result").expect("a row");
            assert_eq!(row, [Value::Text("x".into()), Value::Text("y".into())]);
            for descending in [false, true] {
                let mut query = Query {
                    sort: sort_by(1, descending).into_iter().collect(),
                    rows_max: 1,
                    ..Query::default()
                };
                let first = list(reader.as_ref(), &query).expect("rows").0.remove(0);
                let after = position(&first, query.sort.first().copied(), &facts.key);
                query.after = Some(&after);
                query.filters = vec![equals(0, ValueRef::Text("z"))];
                assert_eq!(list(reader.as_ref(), &query).expect("rows").0.len(), 1);
            }
            assert_eq!(std::fs::read(&db.path).expect("bytes"), before);
        }
    }
}

#[test]
fn hostile_values_are_bound() {
    let db = TestDb::new("CREATE TABLE victim(a); CREATE TABLE t(k TEXT PRIMARY KEY, v TEXT)");
    let writer = db.connect();
    for value in VALUES {
        writer.execute("INSERT INTO t VALUES(?1, ?1)", [value]).expect("a row");
    }
    let before = std::fs::read(&db.path).expect("bytes");
    let (_, reader) = db.reader("t");
    for value in VALUES {
        let row = get(reader.as_ref(), &[ValueRef::Text(value)]).expect("a result").expect("a row");
        assert_eq!(row[1], Value::Text(value.into()));
        let query =
            Query { filters: vec![equals(1, ValueRef::Text(value))], rows_max: 9, ..Query::default() };
        assert_eq!(list(reader.as_ref(), &query).expect("rows").0.len(), 1, "{value:?}");
    }
    for value in ["", "x' OR 'a'='a", "a"] {
        assert_eq!(get(reader.as_ref(), &[ValueRef::Text(value)]).expect("a result"), None);
    }
    assert_eq!(std::fs::read(&db.path).expect("bytes"), before);
}

#[test]
fn reading_leaves_no_trace() {
    let db = TestDb::new("CREATE TABLE t(k TEXT PRIMARY KEY, v INT); INSERT INTO t VALUES('a', 2), ('b', 1)");
    let before = std::fs::read(&db.path).expect("bytes");
    let (_, reader) = db.reader("t");
    all(reader.as_ref());
    let query = Query { sort: sort_by(1, true).into_iter().collect(), rows_max: 9, ..Query::default() };
    list(reader.as_ref(), &query).expect("rows");
    drop(reader);
    assert_eq!(std::fs::read(&db.path).expect("bytes"), before);
    assert_eq!(db.files(), ["shop.db"]);
}

#[test]
fn reading_a_wal_database_keeps_its_log() {
    let db = TestDb::new(
        "PRAGMA journal_mode = WAL; CREATE TABLE t(k TEXT PRIMARY KEY); INSERT INTO t VALUES('a')",
    );
    assert_eq!(db.files(), ["shop.db"]);
    let before = std::fs::read(&db.path).expect("bytes");
    let (_, reader) = db.reader("t");
    assert_eq!(all(reader.as_ref()).len(), 1);
    drop(reader);
    assert_eq!(std::fs::read(&db.path).expect("bytes"), before);
    assert_eq!(db.files(), ["shop.db", "shop.db-shm", "shop.db-wal"]);
    let mode: String = db.connect().query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("a mode");
    assert_eq!(mode, "wal");
}

#[test]
fn a_hostile_schema_runs_no_code() {
    let db = TestDb::new(
        "CREATE TABLE t(k TEXT PRIMARY KEY);
         INSERT INTO t VALUES('a');
         CREATE VIEW v1 AS SELECT load_extension('evil') AS x;
         CREATE VIEW v2 AS SELECT sql AS x FROM sqlite_schema;
         CREATE VIEW v3 AS SELECT fts3_tokenizer('simple') AS x;
         CREATE VIEW v4 AS SELECT upper(k) AS x FROM t;
         CREATE VIEW v5 AS SELECT name AS x FROM pragma_database_list;
         CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END;",
    );
    let facts = db.facts();
    let names: Vec<&str> = facts.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["t", "v4"], "{:?}", facts.skipped_tables);
    assert_eq!(facts.skipped_tables.len(), 4);
}

#[test]
fn an_endless_view_is_interrupted() {
    let db = TestDb::new(
        "CREATE TABLE t(k TEXT PRIMARY KEY);
         CREATE VIEW v AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS i FROM n;",
    );
    let options = source::sqlite::Options { call_ms_max: 50, ..Default::default() };
    let source = source::sqlite::Sqlite::new(&db.path, options);
    let facts = source
        .introspect()
        .expect("facts")
        .tables
        .into_iter()
        .find(|table| table.name == "v")
        .expect("a view");
    let reader = source.reader(&crate::shape::shape_of(&facts)).expect("a reader");
    assert_eq!(facts.row_count, None);
    assert!(!reader.can_run_inline(&contract::source::ReadRequest::Get));
    let query = Query { rows_max: 9, ..Query::default() };
    let error = list(reader.as_ref(), &query).expect_err("an error");
    assert_eq!(error.to_string(), "the call timed out; add filters or a smaller limit");
}

/// SQLite copies a view for each time that another one names it, and no deadline interrupts that.
#[test]
fn views_that_expand_exponentially_are_left_out() {
    let mut sql = String::from(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT) STRICT, WITHOUT ROWID; CREATE VIRTUAL TABLE f USING fts5(x);
         CREATE TABLE f_own(id INTEGER PRIMARY KEY); CREATE VIEW v0 AS SELECT x FROM t;",
    );
    for level in 1..40 {
        let below = level - 1;
        sql.push_str(&format!(
            "CREATE VIEW v{level} AS SELECT a.x AS x FROM v{below} AS a JOIN \"V{below}\" AS b ON a.x = b.x;"
        ));
    }
    let db = TestDb::new(&sql);
    let facts = db.facts();
    let names: Vec<&str> = facts.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names[..4], ["t", "f", "f_own", "v0"], "{names:?}");
    // From the seventh level on SQLite itself has too many tables in a join.
    assert_eq!(names.last(), Some(&"v6"), "{names:?}");
    let reason = "it expands to more than 1,000 nested views; simplify its definition";
    let oversized = facts.skipped_tables.iter().filter(|skipped| skipped.reason == reason);
    assert_eq!(oversized.count(), 31, "{:?}", facts.skipped_tables);
    assert_eq!(facts.tables[0].key, [0]);
}

#[test]
fn several_threads_read_concurrently() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)");
    let writer = db.connect();
    writer.execute_batch("BEGIN").expect("begins");
    for id in 0..500 {
        writer.execute("INSERT INTO t VALUES(?1, 'v' || ?1)", [id]).expect("a row");
    }
    writer.execute_batch("COMMIT").expect("commits");
    let options = source::sqlite::Options { connections_max: 3, ..Default::default() };
    let source = source::sqlite::Sqlite::new(&db.path, options);
    let facts = source.introspect().expect("facts");
    let shape = super::kit::shape(&facts.tables[0]);
    let reader = source.reader(&shape).expect("a reader");
    std::thread::scope(|scope| {
        for thread in 0..6_i64 {
            let reader = &reader;
            scope.spawn(move || {
                for turn in 0..200 {
                    let id = (thread * 83 + turn) % 500;
                    let row =
                        get(reader.as_ref(), &[ValueRef::Integer(id)]).expect("a result").expect("a row");
                    assert_eq!(row[1], Value::Text(format!("v{id}")));
                }
                assert_eq!(all(reader.as_ref()).len(), 500);
            });
        }
    });
}
