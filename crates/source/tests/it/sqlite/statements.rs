//! Authors' statements: how they are described, what is denied, and how they run.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::ValueRef;
use contract::source::{CancelFlag, Query, RowFlow, Source, SourceError, WriteError};

use super::kit::{
    TestDb, TestTable, idempotency_key, list, prepare, read_rows, retry_inline, run_write, statement_shape,
    terms,
};
use crate::driver::{StatementWriteOptions, WriteOutcome, WriteStatement};

pub(super) const SHOP: &str = "
    CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT NOT NULL, plan TEXT, joined DATE NOT NULL);
    CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers(id), total REAL NOT NULL);
    CREATE VIEW recent AS SELECT name, joined FROM customers;
    INSERT INTO customers VALUES(1, 'Ann', 'pro', '2026-01-01'), (2, 'Bob', NULL, '2026-02-01');
    INSERT INTO orders VALUES(1, 1, 9.5), (2, 1, 20.25), (3, 2, 7.5);";

/// Names and types, `?` for nullable, `*` for mixed.
fn columns(sql: &str) -> String {
    let db = TestDb::new(SHOP);
    let facts = db.source().describe_statement(sql).expect("a statement");
    let columns = facts.columns.iter().map(|column| {
        let nullable = if column.nullable { "?" } else { "" };
        let mixed = if column.mixed { "*" } else { "" };
        format!("{} {}{nullable}{mixed}", column.name, column.data_type.as_str())
    });
    columns.collect::<Vec<_>>().join(", ")
}

#[test]
fn columns_have_the_types_of_their_tables() {
    for (sql, expected) in [
        ("SELECT id, name, plan, joined FROM customers", "id integer, name text, plan text?, joined date"),
        (
            "SELECT name AS who, total FROM orders JOIN customers ON customers.id = customer;",
            "who text, total number",
        ),
        (
            "SELECT name, total FROM customers LEFT JOIN orders ON customer = customers.id",
            "name text?, total number?",
        ),
        (
            "SELECT count(*) AS n, count(DISTINCT plan), sum(total) FROM customers, orders",
            "n integer, count(DISTINCT plan) integer, sum(total) number?*",
        ),
        ("SELECT name, count(*) c FROM customers", "name text?, c integer"),
        ("SELECT name, count(*) AS c FROM customers GROUP BY name", "name text, c integer"),
        ("SELECT count(*) + 1 AS n, upper(name) AS u FROM customers", "n number?*, u number?*"),
        ("SELECT (SELECT name FROM customers WHERE id = 99) AS n", "n text?"),
        ("SELECT name FROM customers UNION SELECT total FROM orders", "name number?*"),
        ("SELECT name FROM recent", "name number?*"),
        ("WITH c AS (SELECT name FROM customers) SELECT name FROM c", "name text?"),
        ("VALUES (1)", "column1 number?*"),
        (
            "INSERT INTO orders(customer, total) VALUES(1, 2.5) RETURNING id, total",
            "id integer, total number",
        ),
        ("DELETE FROM orders WHERE id = :id", ""),
    ] {
        assert_eq!(columns(sql), expected, "{sql}");
    }
}

#[test]
fn a_description_lists_parameters_and_tables_and_whether_it_writes() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let facts = source
        .describe_statement(
            "SELECT :b, name FROM customers WHERE id = :a OR id = :b -- :c\n AND name <> ':d';  /* end */",
        )
        .expect("a statement");
    assert_eq!(facts.parameters, ["b", "a"]);
    assert_eq!(facts.tables, ["customers"]);
    assert!(facts.writes.is_none());
    let facts =
        source.describe_statement("UPDATE customers SET plan = (SELECT max(id) FROM orders)").expect("one");
    assert_eq!(facts.tables, ["customers", "orders"]);
    assert!(facts.writes.is_some());
    let facts = source.describe_statement("WITH x AS (SELECT 1) DELETE FROM orders").expect("one");
    assert!(facts.writes.is_some(), "whatever it begins with");
    assert_eq!(
        source.describe_statement("SELECT name FROM recent").expect("one").tables,
        ["customers", "recent"]
    );
}

/// The message, the part of the statement that it marks, and the help.
fn check(sql: &str, message: &str, about: &str, help: Option<&str>) {
    let db = TestDb::new(SHOP);
    let error = db.source().describe_statement(sql).expect_err(sql);
    assert_eq!(error.message, message, "{sql}");
    assert_eq!(error.span.map_or("", |at| &sql[at]), about, "{sql}");
    assert_eq!(error.help.as_deref(), help, "{sql}");
}

#[test]
fn errors_have_a_position_and_help() {
    check("SELECT nam FROM customers", "unknown column `nam`", "nam", Some("did you mean `name`?"));
    check(
        "SELECT 1 FROM custommers",
        "unknown table `custommers`",
        "custommers",
        Some("did you mean `customers`?"),
    );
    check("SELECT c.nme FROM customers c", "unknown column `c.nme`", "c", Some("did you mean `name`?"));
    check(
        "INSERT INTO orders(totl) VALUES(1)",
        "the table `orders` has no column `totl`",
        "totl",
        Some("did you mean `total`?"),
    );
    let single = Some("a string in SQL has single quotes: `'gone'`");
    check("SELECT \"gone\" FROM customers", "unknown column `gone`", "\"gone\"", single);
    check("SELECT lenght(name) FROM customers", "unknown function `lenght`", "lenght", None);
    check(
        "SELECT id FROM customers, orders",
        "`id` is ambiguous: more than one table has this column",
        "id",
        Some("write the table's name before it: `table.id`"),
    );
    check("SELECT FROM customers", "syntax error at `FROM`", "FROM", None);
    check("SELECT 1 +", "the statement is incomplete", "+", None);
    check("SELECT 'a", "this string is not closed", "'a", None);
    check("SELECT 1 FROM zebra", "unknown table `zebra`", "zebra", Some("tables: customers, orders, recent"));
    let columns = Some("columns of `customers`: id, name, plan, joined");
    check("SELECT zebra FROM customers", "unknown column `zebra`", "zebra", columns);
    let kinds = "is not supported; a tool can run SELECT, WITH, VALUES, INSERT, REPLACE, UPDATE or DELETE";
    check("drop table orders", &format!("`DROP` {kinds}"), "drop", None);
    let files = "is not allowed: it can access files or the process outside the database";
    check("SELECT load_extension('x')", &format!("`load_extension` {files}"), "load_extension", None);
    check("", "the statement is empty", "", Some("write a `SELECT`"));
    check(" -- nothing", "the statement is empty", "", Some("write a `SELECT`"));
    let named = Some("write `:name`, and declare `name` as an argument");
    check("SELECT ?", "`?` has no name that callers can use", "?", named);
    check("SELECT ?1", "`?1` has no name that callers can use", "?1", named);
    check(
        "SELECT @who",
        "`@who` has no name that callers can use",
        "@who",
        Some("write `:who`, and declare `who` as an argument"),
    );
    check(
        "SELECT $who",
        "`$who` has no name that callers can use",
        "$who",
        Some("write `:who`, and declare `who` as an argument"),
    );
    check(
        "SELECT :größe",
        "`:größe` is not a valid argument name",
        ":größe",
        Some("use letters, digits and `_`, starting with a letter or `_`"),
    );
    let one = Some("a tool has one statement; declare a tool for each, or combine them");
    check("SELECT 1; DELETE FROM orders", "a second statement begins here", "DELETE", one);
}

/// Attacks that were tried on other servers: stacked statements, disguised writes, other files, settings,
/// functions with side effects, comments, byte order marks. Each is rejected, or only reads.
const CORPUS: [&str; 62] = [
    "COMMIT; DROP SCHEMA public CASCADE;",
    "SELECT 1; COMMIT; DELETE FROM orders",
    "ROLLBACK; DELETE FROM orders",
    "BEGIN; DELETE FROM orders; COMMIT",
    "SELECT 1;;DELETE FROM orders",
    "SELECT 1;/**/DELETE/**/FROM/**/orders",
    "SELECT 1;--\nDELETE FROM orders",
    "SELECT 1\0; DELETE FROM orders",
    "\u{feff}DELETE FROM orders",
    "\u{feff}SELECT 1; DELETE FROM orders",
    "/* SELECT */ DELETE FROM orders",
    "-- SELECT\nDELETE FROM orders",
    "dElEtE FROM orders",
    "WITH x AS (SELECT 1) DELETE FROM orders",
    "WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x",
    "WITH x(a) AS (VALUES(1)) INSERT INTO orders SELECT 9, a, a FROM x",
    "REPLACE INTO orders VALUES(1, 1, 1)",
    "INSERT INTO orders SELECT * FROM orders",
    "UPDATE orders SET total = 0 RETURNING *",
    "INSERT INTO orders VALUES(9, 1, 1) ON CONFLICT DO UPDATE SET total = 0",
    "EXPLAIN DELETE FROM orders",
    "EXPLAIN QUERY PLAN SELECT 1",
    "PRAGMA writable_schema = 1",
    "PRAGMA journal_mode = OFF",
    "PRAGMA user_version = 7",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA database_list",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_table_info('orders')",
    "SELECT * FROM sqlite_master",
    "SELECT sql FROM sqlite_schema",
    "SELECT * FROM sqlite_temp_master",
    "SELECT * FROM dbstat",
    "SELECT * FROM sqlite_dbpage",
    "UPDATE sqlite_schema SET sql = ''",
    "INSERT INTO sqlite_sequence VALUES('x', 1)",
    "ATTACH 'other.db' AS other",
    "ATTACH DATABASE ':memory:' AS m",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "ANALYZE",
    "REINDEX",
    "CREATE TABLE x(a)",
    "CREATE TEMP TABLE x AS SELECT * FROM orders",
    "CREATE TRIGGER g AFTER INSERT ON orders BEGIN DELETE FROM customers; END",
    "CREATE VIRTUAL TABLE x USING fts5(a)",
    "DROP TABLE orders",
    "ALTER TABLE orders RENAME TO x",
    "SAVEPOINT s",
    "RELEASE s",
    "SELECT load_extension('evil')",
    "SELECT LOAD_EXTENSION('evil', 'entry')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT fts3_tokenizer('simple', x'4141414141414141')",
    "SELECT readfile('/etc/passwd')",
    "SELECT writefile('out', 'x')",
    "SELECT edit('x', 'sh')",
    "COPY orders TO PROGRAM 'id'",
    "SELECT $$; DELETE FROM orders; $$",
    "SELECT * FROM orders INTO OUTFILE '/tmp/x'",
    "SELECT zeroblob(2000000000)",
];

#[test]
fn no_attack_changes_the_database() {
    for mode in ["DELETE", "WAL"] {
        let db = TestDb::new(&format!("PRAGMA journal_mode = {mode}; {SHOP}"));
        let source = db.source();
        source.introspect().expect("facts");
        let bytes = || {
            let log = std::fs::read(db.folder.path().join("shop.db-wal")).unwrap_or_default();
            (std::fs::read(&db.path).expect("bytes"), log)
        };
        let before = bytes();
        for sql in CORPUS {
            match source.describe_statement(sql) {
                Err(error) => {
                    assert!(!error.message.is_empty());
                    // Not even with a shape that claims to be valid.
                    let shape = contract::source::StatementShape {
                        sql: sql.to_owned(),
                        parameters: Vec::new(),
                        parameter_types: Vec::new(),
                        columns: Vec::new(),
                        writes: false,
                        changes_max: u64::MAX,
                        timeout_ms: None,
                    };
                    if let Ok(statement) = source.prepare(&shape) {
                        let _ = read_rows(statement.as_ref(), &[]);
                    }
                }
                Ok(facts) => {
                    // As a read: the connection cannot write.
                    let shape =
                        contract::source::StatementShape { writes: false, ..statement_shape(sql, &facts, 0) };
                    if let Ok(statement) = source.prepare(&shape) {
                        let _ = read_rows(statement.as_ref(), &[]);
                    }
                    // As a write: it is rolled back, because it changes more rows than allowed.
                    if facts.writes.is_some() {
                        let statement = source.prepare(&statement_shape(sql, &facts, 0)).expect("prepared");
                        let terms = StatementWriteOptions { dry_run: true, ..terms(None) };
                        assert!(run_write(statement.as_ref(), &[], &terms).is_err(), "{sql}");
                    }
                }
            }
            assert_eq!(bytes(), before, "{sql}");
        }
        let names = db.files();
        assert!(names.iter().all(|name| name.starts_with("shop.db")), "{names:?}");
    }
}

#[test]
fn statements_return_rows_for_their_arguments() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let statement = prepare(
        &source,
        "SELECT name, total * 2 AS twice FROM orders JOIN customers ON customers.id = customer
         WHERE total >= :least AND name LIKE :like ORDER BY total",
    )
    .expect("a statement");
    let rows = read_rows(statement.as_ref(), &[ValueRef::Text("9"), ValueRef::Text("a%")]).expect("rows");
    assert_eq!(rows, ["'Ann' 19.0", "'Ann' 40.5"]);
    let hostile =
        read_rows(statement.as_ref(), &[ValueRef::Integer(0), ValueRef::Text("' OR 1=1 --")]).expect("rows");
    assert_eq!(hostile, [""; 0]);
    assert_eq!(read_rows(statement.as_ref(), &[ValueRef::Null, ValueRef::Text("%")]).expect("rows"), [""; 0]);
    let mut seen = 0;
    let enough = statement.read(&[ValueRef::Integer(0), ValueRef::Text("%")], None, &mut |_| {
        seen += 1;
        RowFlow::Stop
    });
    assert!(enough.is_ok() && seen == 1);
    // The connection's access is reset.
    let table = TestTable::from_source(&source, "customers");
    assert!(table.get(&[ValueRef::Integer(1)]).is_some());
}

#[test]
fn a_limit_that_is_not_an_integer_is_an_invalid_argument() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let statement = prepare(&source, "SELECT id FROM orders WHERE id > :id LIMIT :n").expect("a statement");
    for (limit, expected) in [
        (ValueRef::Integer(1), Some(1)),
        (ValueRef::Integer(-1), Some(3)),
        (ValueRef::Text("2"), Some(2)),
        (ValueRef::Real(2.0), Some(2)),
        (ValueRef::Text("many"), None),
        (ValueRef::Real(1.5), None),
        (ValueRef::Null, None),
    ] {
        match (read_rows(statement.as_ref(), &[ValueRef::Integer(0), limit]), expected) {
            (Ok(rows), Some(expected)) => assert_eq!(rows.len(), expected, "{limit:?}"),
            (Err(SourceError::InvalidArgument { parameter: Some(1), .. }), None) => {}
            (other, _) => panic!("{limit:?}: {other:?}"),
        }
    }
    let statement = prepare(&source, "SELECT id FROM orders LIMIT min(:n, 5)").expect("a statement");
    let computed = read_rows(statement.as_ref(), &[ValueRef::Real(0.5)]);
    assert!(matches!(computed, Err(SourceError::InvalidArgument { parameter: None, .. })), "{computed:?}");
    // The next call uses the same connection.
    assert_eq!(read_rows(statement.as_ref(), &[ValueRef::Integer(1)]).expect("rows"), ["1"]);
}

#[test]
fn malformed_json_from_a_caller_is_an_invalid_argument() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, doc TEXT); INSERT INTO t VALUES(1, '{}')");
    let source = db.source();
    for sql in [
        "SELECT value FROM json_each(:p)",
        "SELECT t.id FROM t, json_each(:p) AS j WHERE t.id = j.value",
        "SELECT :p ->> '$.a' AS a",
        "SELECT json_extract(:p, '$.a') AS a",
    ] {
        let statement = prepare(&source, sql).expect(sql);
        let read = read_rows(statement.as_ref(), &[ValueRef::Text("[1,")]);
        let Err(SourceError::InvalidArgument { parameter: Some(0), reason }) = &read else {
            panic!("{sql}: {read:?}")
        };
        assert_eq!(reason, "it is not valid JSON");
        assert!(read_rows(statement.as_ref(), &[ValueRef::Text("[1]")]).is_ok(), "{sql}");
    }
    let write = prepare(&source, "UPDATE t SET doc = json_set(doc, '$.a', json(:p))").expect("a statement");
    let written = run_write(write.as_ref(), &[ValueRef::Text("{")], &terms(None));
    assert!(matches!(&written, Err(WriteError::Rejected { column: Some(0), .. })), "{written:?}");
    // A stored value is not the caller's.
    db.execute("UPDATE t SET doc = '{'");
    let statement = prepare(&source, "SELECT doc ->> :path AS a FROM t").expect("a statement");
    let read = read_rows(statement.as_ref(), &[ValueRef::Text("$.a")]);
    assert!(matches!(&read, Err(SourceError::Incompatible { .. })), "{read:?}");
}

#[test]
fn a_value_that_a_function_cannot_use_is_an_invalid_argument() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, doc TEXT); INSERT INTO t VALUES(1, '{}')");
    let source = db.source();
    let huge = ValueRef::Integer(2_000_000_000);
    for (sql, value, parameter) in [
        ("SELECT json_extract('{}', :p) AS a", ValueRef::Text("9999999999"), Some(0)),
        (
            "SELECT doc ->> '$.a' AS a FROM t WHERE json_extract(doc, :p) IS NULL",
            ValueRef::Text("x"),
            Some(0),
        ),
        ("SELECT zeroblob(:p) AS a", huge, Some(0)),
        ("SELECT length(printf('%.*c', :p, 'x')) AS a", huge, Some(0)),
        ("SELECT doc LIKE :p ESCAPE 'xx' AS a FROM t", ValueRef::Text("a"), None),
        ("SELECT doc LIKE 'a' ESCAPE :p AS a FROM t", ValueRef::Text("xx"), None),
    ] {
        let statement = prepare(&source, sql).expect(sql);
        let read = read_rows(statement.as_ref(), &[value]);
        let is_it = matches!(&read, Err(SourceError::InvalidArgument { parameter: found, .. }) if *found == parameter);
        assert!(is_it, "{sql}: {read:?}");
    }
    let write = prepare(&source, "UPDATE t SET doc = hex(zeroblob(:p))").expect("a statement");
    let written = run_write(write.as_ref(), &[huge], &terms(None));
    assert!(matches!(&written, Err(WriteError::Rejected { column: Some(0), .. })), "{written:?}");
}

#[test]
fn an_inline_statement_does_not_wait_for_a_lock() {
    let db = TestDb::new(SHOP);
    let statement = prepare(&db.source(), "SELECT name FROM customers WHERE id = :id").expect("a statement");
    let read = || statement.read_inline(&[ValueRef::Integer(1)], &mut |_| RowFlow::Continue);
    let blocking = || read_rows(statement.as_ref(), &[ValueRef::Integer(1)]).map(drop);
    retry_inline(blocking, read);
    let other = db.connect();
    other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    assert!(matches!(read(), Err(SourceError::WouldBlock)));
    other.execute_batch("COMMIT").expect("unlocked");
    retry_inline(blocking, read);
}

#[test]
fn a_statement_can_run_inline_if_it_reads_little() {
    let db = TestDb::new(SHOP);
    db.execute(
        "CREATE TABLE big(id INTEGER PRIMARY KEY, v INT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
         INSERT INTO big SELECT i, i FROM n",
    );
    let source = db.source();
    for (sql, expected) in [
        ("SELECT name FROM customers WHERE id = :id", true),
        ("SELECT name FROM customers ORDER BY name", true),
        ("SELECT v FROM big WHERE id = :id", true),
        ("SELECT v FROM big JOIN customers ON customers.id = v WHERE big.id = :id", true),
        ("SELECT v FROM big WHERE v = :v", false),
        ("SELECT count(*) FROM customers, orders", false),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", false),
        ("DELETE FROM orders WHERE id = :id", false),
    ] {
        assert_eq!(prepare(&source, sql).expect("a statement").can_run_inline(), expected, "{sql}");
    }
}

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

#[test]
fn an_endless_statement_times_out() {
    let db = TestDb::new(SHOP);
    let options = source::sqlite::Options { call_ms_max: 50, ..Default::default() };
    let source = source::sqlite::Sqlite::new(&db.path, options);
    let statement = prepare(&source, ENDLESS).expect("a statement");
    let ended = read_rows(statement.as_ref(), &[]);
    assert!(matches!(ended, Err(SourceError::Timeout)), "{ended:?}");
    let endless = format!("INSERT INTO orders SELECT i, 1, i FROM ({})", ENDLESS.replace("count(*)", "i"));
    let statement = prepare(&source, &endless).expect("a statement");
    let ended = run_write(statement.as_ref(), &[], &terms(None));
    assert!(
        matches!(ended, Err(WriteError::Source(SourceError::Timeout) | WriteError::Rejected { .. })),
        "{ended:?}"
    );
    // The next call is served.
    let rows =
        prepare(&source, "SELECT count(*) FROM orders").map(|statement| read_rows(statement.as_ref(), &[]));
    assert_eq!(rows.expect("a statement").expect("rows"), ["3"]);
}

/// The deadline of a call is its caller's. A limit of the source beside it would give one timeout two answers.
#[test]
fn a_call_that_can_be_cancelled_has_no_other_time_limit() {
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT count(*) AS n FROM n";
    let db = TestDb::new(&format!("{SHOP} CREATE VIEW slow AS {slow};"));
    let options = source::sqlite::Options { call_ms_max: 0, ..Default::default() };
    let source = source::sqlite::Sqlite::new(&db.path, options);
    let statement = prepare(&source, slow).expect("a statement");
    assert!(matches!(read_rows(statement.as_ref(), &[]), Err(SourceError::Timeout)));
    let cancelled = CancelFlag::default();
    let mut rows = 0;
    let read = statement.read(&[], Some(&cancelled), &mut |_| {
        rows += 1;
        RowFlow::Continue
    });
    assert!(read.is_ok() && rows == 1, "{read:?}");
    let write = format!("INSERT INTO orders SELECT 9, 1, n FROM ({slow})");
    let statement = prepare(&source, &write).expect("a statement");
    let options = StatementWriteOptions { cancelled: Some(&cancelled), ..terms(None) };
    run_write(statement.as_ref(), &[], &options).expect("written");
    // A view holds its lock as a statement does, for more than the few milliseconds of a table.
    let facts = source.introspect().expect("facts");
    let view = facts.tables.iter().find(|table| table.name == "slow").expect("the view");
    let reader = source.reader(&crate::shape::shape_of(view)).expect("a reader");
    let query = Query { rows_max: 5, cancelled: Some(&cancelled), ..Query::default() };
    assert_eq!(list(reader.as_ref(), &query).expect("a page").0.len(), 1);
}

#[test]
fn a_cancelled_statement_stops() {
    let db = TestDb::new(&format!("PRAGMA journal_mode = WAL; {SHOP}"));
    let source = db.source();
    let statement = prepare(&source, ENDLESS).expect("a statement");
    let stop = CancelFlag::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let read = scope.spawn(|| statement.read(&[], Some(&stop), &mut |_| RowFlow::Continue));
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(read.join().expect("ended"), Err(SourceError::Cancelled)));
    });
    let rows =
        prepare(&source, "SELECT count(*) FROM orders").map(|statement| read_rows(statement.as_ref(), &[]));
    assert_eq!(rows.expect("a statement").expect("rows"), ["3"]);
}

/// A caller whose call is cancelled can rely on it.
#[test]
fn a_cancelled_write_changes_nothing() {
    for mode in ["DELETE", "WAL"] {
        let db = TestDb::new(&format!("PRAGMA journal_mode = {mode}; {SHOP}"));
        let source = db.source();
        let count = || {
            let statement = prepare(&source, "SELECT count(*) FROM orders").expect("a statement");
            read_rows(statement.as_ref(), &[]).expect("rows")
        };
        let one = prepare(&source, "INSERT INTO orders(customer, total) VALUES(1, 1)").expect("a statement");
        let stop = CancelFlag::new(AtomicBool::new(true));
        // Cancelled before it began.
        let terms = StatementWriteOptions { cancelled: Some(&stop), ..terms(idempotency_key(1, 1)) };
        let ended = run_write(one.as_ref(), &[], &terms);
        assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{mode} {ended:?}");
        // Cancelled just before the commit.
        stop.store(false, Ordering::Relaxed);
        let ended = one.write(&[], &terms, &mut |_| RowFlow::Continue, &mut |_| {
            stop.store(true, Ordering::Relaxed);
            Ok(Vec::new())
        });
        assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{mode} {ended:?}");
        assert_eq!(count(), ["3"], "{mode}");
        // The idempotency key is still unused.
        stop.store(false, Ordering::Relaxed);
        let (_, written, _) = run_write(one.as_ref(), &[], &terms).expect("done");
        assert_eq!((written, count()), (WriteOutcome::Done, vec!["4".to_owned()]), "{mode}");
    }
}

#[test]
fn a_cancelled_endless_write_releases_its_lock() {
    let db = TestDb::new(&format!("PRAGMA journal_mode = WAL; {SHOP}"));
    let source = db.source();
    let endless =
        format!("INSERT INTO orders SELECT i + 1000, 1, i FROM ({})", ENDLESS.replace("count(*)", "i"));
    let statement = prepare(&source, &endless).expect("a statement");
    let stop = CancelFlag::new(AtomicBool::new(false));
    let other = db.connect();
    other.busy_timeout(std::time::Duration::ZERO).expect("set");
    std::thread::scope(|scope| {
        let terms = StatementWriteOptions { cancelled: Some(&stop), ..terms(None) };
        let write = scope.spawn(move || run_write(statement.as_ref(), &[], &terms));
        // Until it runs and blocks others.
        while !write.is_finished() && other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {}
        stop.store(true, Ordering::Relaxed);
        let ended = write.join().expect("ended");
        assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{ended:?}");
    });
    other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").expect("the lock is free");
}

#[test]
fn a_statement_is_atomic() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let totals = || {
        read_rows(prepare(&source, "SELECT total FROM orders ORDER BY id").expect("one").as_ref(), &[])
            .expect("rows")
    };
    let raise =
        prepare(&source, "UPDATE orders SET total = total + :by WHERE customer = :who RETURNING id, total")
            .expect("one");
    let arguments = [ValueRef::Real(1.0), ValueRef::Integer(1)];
    let dry = StatementWriteOptions { dry_run: true, ..terms(idempotency_key(1, 1)) };
    let (rows, written, changed) = run_write(raise.as_ref(), &arguments, &dry).expect("would do");
    assert_eq!((rows.len(), written, changed), (2, WriteOutcome::Done, Some(2)));
    assert_eq!(totals(), ["9.5", "20.25", "7.5"]);
    let (rows, ..) = run_write(raise.as_ref(), &arguments, &terms(None)).expect("done");
    assert_eq!(rows, ["1 10.5", "2 21.25"]);
    assert_eq!(totals(), ["10.5", "21.25", "7.5"]);
    // More rows than allowed.
    let facts = source.describe_statement("DELETE FROM orders").expect("one");
    let all = source.prepare(&statement_shape("DELETE FROM orders", &facts, 2)).expect("one");
    let error = run_write(all.as_ref(), &[], &terms(None)).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "this would change 3 rows, which exceeds the limit of 2; nothing was changed"
    );
    assert_eq!(totals().len(), 3);
    // A constraint of the database, and a result that does not fit the contract.
    let orphan = prepare(&source, "INSERT INTO orders(customer, total) VALUES(99, 1)").expect("one");
    let error = run_write(orphan.as_ref(), &[], &terms(None)).expect_err("refused");
    assert_eq!(error.to_string(), "the row references a row that does not exist, or other rows reference it");
    let untold = raise.write(&arguments, &terms(None), &mut |_| RowFlow::Continue, &mut |_| {
        Err(crate::driver::ContractViolation)
    });
    assert!(matches!(untold, Err(WriteError::ContractViolation)));
    assert_eq!(totals(), ["10.5", "21.25", "7.5"]);
    // Each trigger does its work.
    assert!(raise.read(&arguments, None, &mut |_| RowFlow::Continue).is_err());
    let read = prepare(&source, "SELECT 1").expect("one");
    assert!(run_write(read.as_ref(), &[], &terms(None)).is_err());
}

#[test]
fn rows_changed_by_triggers_are_counted() {
    let db = TestDb::new(
        "CREATE TABLE folders(id INTEGER PRIMARY KEY);
         CREATE TABLE notes(id INTEGER PRIMARY KEY, folder INTEGER REFERENCES folders(id) ON DELETE CASCADE);
         CREATE TABLE seen(id INTEGER);
         CREATE TRIGGER t AFTER INSERT ON notes BEGIN UPDATE seen SET id = new.id; END;
         INSERT INTO seen VALUES(0), (0);
         INSERT INTO folders VALUES(1), (2);
         INSERT INTO notes VALUES(1, 1), (2, 1), (3, 2);",
    );
    let source = db.source();
    for (sql, most, expected) in [
        ("DELETE FROM folders WHERE id = 1", 2, None),
        ("DELETE FROM folders WHERE id = 1", 3, Some(3)),
        ("INSERT INTO notes VALUES(9, 2)", 2, None),
        ("INSERT INTO notes VALUES(9, 2)", 3, Some(3)),
        ("DELETE FROM folders WHERE id = 7", 1, Some(0)),
        // Including the replaced row.
        ("REPLACE INTO notes VALUES(3, 2)", 4, Some(4)),
    ] {
        let facts = source.describe_statement(sql).expect("a statement");
        let statement = source.prepare(&statement_shape(sql, &facts, most)).expect("a statement");
        let dry = StatementWriteOptions { dry_run: true, ..terms(None) };
        match (run_write(statement.as_ref(), &[], &dry), expected) {
            (Ok((.., changed)), Some(_)) => assert_eq!(changed, expected, "{sql}"),
            (Err(WriteError::TooManyRows { rows: 3, .. }), None) => {}
            (ended, _) => panic!("{sql}, {most}: {ended:?}"),
        }
    }
}

#[test]
fn a_row_of_another_type_is_an_error() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let statement = prepare(&source, "SELECT joined FROM customers").expect("a statement");
    db.execute("INSERT INTO customers VALUES(3, 'Cy', NULL, 'yesterday')");
    let error = read_rows(statement.as_ref(), &[]).expect_err("an error");
    assert_eq!(
        error.to_string(),
        "column `joined`: expected a date such as 2026-02-11, but a row has another value; the data has changed"
    );
}

#[test]
fn a_star_that_returns_other_columns_is_an_error() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b TEXT, c TEXT); INSERT INTO t VALUES(1, 'a', 'b', 'c')",
    );
    let source = db.source();
    let all = prepare(&source, "SELECT * FROM t").expect("a statement");
    let touch = prepare(&source, "UPDATE t SET c = :c RETURNING *").expect("a statement");
    assert_eq!(read_rows(all.as_ref(), &[]).expect("rows"), ["1 'a' 'b' 'c'"]);
    db.execute("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN d TEXT");
    let response = "the statement no longer returns the columns that it returned; restart the server to read the schema again";
    assert_eq!(read_rows(all.as_ref(), &[]).expect_err("an error").to_string(), response);
    let error = run_write(touch.as_ref(), &[ValueRef::Text("z")], &terms(None)).expect_err("an error");
    assert_eq!(error.to_string(), response);
    let named = prepare(&source, "SELECT c FROM t").expect("a statement");
    assert_eq!(read_rows(named.as_ref(), &[]).expect("rows"), ["'c'"], "nothing was kept");
}
