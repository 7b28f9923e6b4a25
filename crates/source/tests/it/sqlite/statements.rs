//! Statements of an author: what is found out before they run, what they may not, and running them.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::source::{RowFlow, Source, SourceError, StatementWriteOptions, WriteError, WriteOutcome};
use contract::{DataType, ValueRef};

use super::kit::{TestDb, TestTable, idempotency_key, prepare, read_rows, run_write, statement_shape, terms};

const SHOP: &str = "
    CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT NOT NULL, plan TEXT, joined DATE NOT NULL);
    CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers(id), total REAL NOT NULL);
    CREATE VIEW recent AS SELECT name, joined FROM customers;
    INSERT INTO customers VALUES(1, 'Ann', 'pro', '2026-01-01'), (2, 'Bob', NULL, '2026-02-01');
    INSERT INTO orders VALUES(1, 1, 9.5), (2, 1, 20.25), (3, 2, 7.5);";

/// Names, kinds, `?` for what may be missing, `*` for what may be anything.
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
fn columns_are_what_their_tables_hold() {
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
fn parameters_tables_and_writing_are_known() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let facts = source
        .describe_statement(
            "SELECT :b, name FROM customers WHERE id = :a OR id = :b -- :c\n AND name <> ':d';  /* end */",
        )
        .expect("a statement");
    assert_eq!(facts.parameters, ["b", "a"]);
    assert_eq!(facts.tables, ["customers"]);
    assert!(!facts.writes);
    let facts =
        source.describe_statement("UPDATE customers SET plan = (SELECT max(id) FROM orders)").expect("one");
    assert_eq!(facts.tables, ["customers", "orders"]);
    assert!(facts.writes);
    let facts = source.describe_statement("WITH x AS (SELECT 1) DELETE FROM orders").expect("one");
    assert!(facts.writes, "whatever it begins with");
    assert_eq!(
        source.describe_statement("SELECT name FROM recent").expect("one").tables,
        ["customers", "recent"]
    );
}

/// What is wrong, the words it is about, and the way out.
fn check(sql: &str, message: &str, about: &str, help: Option<&str>) {
    let db = TestDb::new(SHOP);
    let bad = db.source().describe_statement(sql).expect_err(sql);
    assert_eq!(bad.message, message, "{sql}");
    assert_eq!(bad.span.map_or("", |at| &sql[at]), about, "{sql}");
    assert_eq!(bad.help.as_deref(), help, "{sql}");
}

#[test]
fn what_is_wrong_has_a_place_and_a_way_out() {
    check("SELECT nam FROM customers", "there is no column `nam`", "nam", Some("did you mean `name`?"));
    check(
        "SELECT 1 FROM custommers",
        "there is no table `custommers`",
        "custommers",
        Some("did you mean `customers`?"),
    );
    check("SELECT c.nme FROM customers c", "there is no column `c.nme`", "c", Some("did you mean `name`?"));
    check(
        "INSERT INTO orders(totl) VALUES(1)",
        "the table `orders` has no column `totl`",
        "totl",
        Some("did you mean `total`?"),
    );
    let single = Some("a text in SQL has single quotes: `'gone'`");
    check("SELECT \"gone\" FROM customers", "there is no column `gone`", "\"gone\"", single);
    check("SELECT lenght(name) FROM customers", "there is no function `lenght`", "lenght", None);
    check(
        "SELECT id FROM customers, orders",
        "`id` is in more than one table",
        "id",
        Some("write the table's name in front: `table.id`"),
    );
    check("SELECT FROM customers", "SQLite does not understand `FROM` here", "FROM", None);
    check("SELECT 1 +", "the statement ends too early", "+", None);
    check("SELECT 'a", "this text has no end", "'a", None);
    check("", "the statement is empty", "", Some("write a `SELECT`"));
    check(" -- nothing", "the statement is empty", "", Some("write a `SELECT`"));
    let named = Some("write `:name`, and declare `name` as an argument");
    check("SELECT ?", "`?` has no name that callers could use", "?", named);
    check("SELECT ?1", "`?1` has no name that callers could use", "?1", named);
    check(
        "SELECT @who",
        "`@who` has no name that callers could use",
        "@who",
        Some("write `:who`, and declare `who` as an argument"),
    );
    check(
        "SELECT $who",
        "`$who` has no name that callers could use",
        "$who",
        Some("write `:who`, and declare `who` as an argument"),
    );
    check(
        "SELECT :größe",
        "`:größe` cannot be the name of an argument",
        ":größe",
        Some("a name has letters, digits and `_`, and begins with a letter"),
    );
    let one = Some("a tool has one statement; make a tool of each, or one statement of both");
    check("SELECT 1; DELETE FROM orders", "a second statement begins here", "DELETE", one);
}

/// The corpus of things that were tried on other servers: stacked statements, writes in disguise, other files,
/// settings, functions with effects, comments, byte order marks. Each is refused, or reads and leaves no trace.
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
fn nothing_of_the_corpus_leaves_a_trace() {
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
                Err(bad) => {
                    assert!(!bad.message.is_empty());
                    // A contract that says otherwise does not help.
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
                    // To read: on a connection that cannot do anything else.
                    let shape =
                        contract::source::StatementShape { writes: false, ..statement_shape(sql, &facts, 0) };
                    if let Ok(statement) = source.prepare(&shape) {
                        let _ = read_rows(statement.as_ref(), &[]);
                    }
                    // To write: what changes more than it may is taken back.
                    if facts.writes {
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
fn rows_come_as_they_are_asked_for() {
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
    // The connection goes back to what everybody may do.
    let desk = TestTable::from_source(&source, "customers");
    assert!(desk.get(&[ValueRef::Integer(1)]).is_some());
}

#[test]
fn a_limit_that_is_no_integer_is_the_callers() {
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
    // Whoever comes next is served by the same connection.
    assert_eq!(read_rows(statement.as_ref(), &[ValueRef::Integer(1)]).expect("rows"), ["1"]);
}

#[test]
fn short_is_what_finds_one_row_or_reads_little() {
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
fn what_does_not_end_is_ended() {
    let db = TestDb::new(SHOP);
    let options = source::sqlite::Options { list_ms_max: 50, ..Default::default() };
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
    // And whoever comes next is served.
    let rows =
        prepare(&source, "SELECT count(*) FROM orders").map(|statement| read_rows(statement.as_ref(), &[]));
    assert_eq!(rows.expect("a statement").expect("rows"), ["3"]);
}

#[test]
fn nobody_waits_for_what_nobody_wants() {
    let db = TestDb::new(&format!("PRAGMA journal_mode = WAL; {SHOP}"));
    let source = db.source();
    let statement = prepare(&source, ENDLESS).expect("a statement");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| statement.read(&[], Some(&stop), &mut |_| RowFlow::Continue));
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(read.join().expect("ended"), Err(SourceError::Cancelled)));
    });
    let rows =
        prepare(&source, "SELECT count(*) FROM orders").map(|statement| read_rows(statement.as_ref(), &[]));
    assert_eq!(rows.expect("a statement").expect("rows"), ["3"]);
}

/// Whoever is told that nothing came of it can count on that.
#[test]
fn what_nobody_waits_for_is_not_written() {
    for mode in ["DELETE", "WAL"] {
        let db = TestDb::new(&format!("PRAGMA journal_mode = {mode}; {SHOP}"));
        let source = db.source();
        let count = || {
            let statement = prepare(&source, "SELECT count(*) FROM orders").expect("a statement");
            read_rows(statement.as_ref(), &[]).expect("rows")
        };
        let one = prepare(&source, "INSERT INTO orders(customer, total) VALUES(1, 1)").expect("a statement");
        let stop = AtomicBool::new(true);
        // They left before it began.
        let terms = StatementWriteOptions { cancelled: Some(&stop), ..terms(idempotency_key(1, 1)) };
        let ended = run_write(one.as_ref(), &[], &terms);
        assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{mode} {ended:?}");
        // They left when all was done but to keep it.
        stop.store(false, Ordering::Relaxed);
        let ended = one.write(&[], &terms, &mut |_| RowFlow::Continue, &mut |_| {
            stop.store(true, Ordering::Relaxed);
            Ok(Vec::new())
        });
        assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{mode} {ended:?}");
        assert_eq!(count(), ["3"], "{mode}");
        // And their key is free.
        stop.store(false, Ordering::Relaxed);
        let (_, written, _) = run_write(one.as_ref(), &[], &terms).expect("done");
        assert_eq!((written, count()), (WriteOutcome::Done, vec!["4".to_owned()]), "{mode}");
    }
}

#[test]
fn a_statement_without_end_keeps_nobody_out_when_its_caller_left() {
    let db = TestDb::new(&format!("PRAGMA journal_mode = WAL; {SHOP}"));
    let source = db.source();
    let endless =
        format!("INSERT INTO orders SELECT i + 1000, 1, i FROM ({})", ENDLESS.replace("count(*)", "i"));
    let statement = prepare(&source, &endless).expect("a statement");
    let stop = AtomicBool::new(false);
    let other = db.connect();
    other.busy_timeout(std::time::Duration::ZERO).expect("set");
    std::thread::scope(|scope| {
        let terms = StatementWriteOptions { cancelled: Some(&stop), ..terms(None) };
        let write = scope.spawn(move || run_write(statement.as_ref(), &[], &terms));
        // Until it runs, and others are kept out.
        while !write.is_finished() && other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {}
        stop.store(true, Ordering::Relaxed);
        let ended = write.join().expect("ended");
        assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{ended:?}");
    });
    other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").expect("nobody is kept out");
}

#[test]
fn a_statement_writes_all_or_nothing() {
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
    // More rows than are allowed.
    let facts = source.describe_statement("DELETE FROM orders").expect("one");
    let all = source.prepare(&statement_shape("DELETE FROM orders", &facts, 2)).expect("one");
    let fault = run_write(all.as_ref(), &[], &terms(None)).expect_err("refused");
    assert_eq!(
        fault.to_string(),
        "this would change 3 rows, which exceeds the limit of 2; nothing was changed"
    );
    assert_eq!(totals().len(), 3);
    // A rule of the database, and a clerk who cannot tell.
    let orphan = prepare(&source, "INSERT INTO orders(customer, total) VALUES(99, 1)").expect("one");
    let fault = run_write(orphan.as_ref(), &[], &terms(None)).expect_err("refused");
    assert_eq!(fault.to_string(), "it refers to a record that is not there, or others refer to it");
    let untold = raise.write(&arguments, &terms(None), &mut |_| RowFlow::Continue, &mut |_| {
        Err(contract::source::ContractViolation)
    });
    assert!(matches!(untold, Err(WriteError::ContractViolation)));
    assert_eq!(totals(), ["10.5", "21.25", "7.5"]);
    // Each does what it is for.
    assert!(raise.read(&arguments, None, &mut |_| RowFlow::Continue).is_err());
    let read = prepare(&source, "SELECT 1").expect("one");
    assert!(run_write(read.as_ref(), &[], &terms(None)).is_err());
}

#[test]
fn what_a_statement_sets_off_counts() {
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
        // The one that makes room for it, too.
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
fn a_row_of_another_kind_is_told() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let statement = prepare(&source, "SELECT joined FROM customers").expect("a statement");
    db.execute("INSERT INTO customers VALUES(3, 'Cy', NULL, 'yesterday')");
    let fault = read_rows(statement.as_ref(), &[]).expect_err("a fault");
    assert_eq!(
        fault.to_string(),
        "column `joined`: expected a date such as 2026-02-11, and a row has something else; the data is not what it was"
    );
}

#[test]
fn a_star_that_stands_for_other_columns_is_told() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b TEXT, c TEXT); INSERT INTO t VALUES(1, 'a', 'b', 'c')",
    );
    let source = db.source();
    let all = prepare(&source, "SELECT * FROM t").expect("a statement");
    let touch = prepare(&source, "UPDATE t SET c = :c RETURNING *").expect("a statement");
    assert_eq!(read_rows(all.as_ref(), &[]).expect("rows"), ["1 'a' 'b' 'c'"]);
    db.execute("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN d TEXT");
    let told = "a statement no longer gives what it gave; read the database in again";
    assert_eq!(read_rows(all.as_ref(), &[]).expect_err("a fault").to_string(), told);
    let fault = run_write(touch.as_ref(), &[ValueRef::Text("z")], &terms(None)).expect_err("a fault");
    assert_eq!(fault.to_string(), told);
    let named = prepare(&source, "SELECT c FROM t").expect("a statement");
    assert_eq!(read_rows(named.as_ref(), &[]).expect("rows"), ["'c'"], "nothing was kept");
}

#[test]
fn digits_that_cannot_be_kept_are_told_of() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a DECIMAL(20,4), b DECIMAL(10,2), c NUMERIC( 18 ), d VARCHAR(200), e TEXT)",
    );
    let facts = db.facts();
    assert_eq!(facts.notes.len(), 2, "{:?}", facts.notes);
    assert_eq!(
        facts.notes[0],
        "`t`: `a` is declared as `DECIMAL(20,4)`, and SQLite keeps 15 digits of a fraction; what has more is not \
         written; a column of the type TEXT keeps them all"
    );
    assert_eq!(facts.tables[0].columns[1].data_type, DataType::Decimal);
}

/// What is stored of a value that a statement puts into a column, or why it is not.
fn write_through_statement(declared: &str, kind: DataType, said: ValueRef<'_>) -> String {
    let db = TestDb::new(&format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v {declared}); INSERT INTO t VALUES(1, NULL)"
    ));
    let source = db.source();
    let mut told = Vec::new();
    for (id, sql) in [
        (2, "INSERT INTO t(id, v) VALUES(2, :v)"),
        (1, "UPDATE t SET v = coalesce(:v, v) WHERE id = 1"),
        (1, "INSERT INTO t VALUES(1, 0) ON CONFLICT(id) DO UPDATE SET v = :v"),
    ] {
        let facts = source.describe_statement(sql).expect("a statement");
        let shape = contract::source::StatementShape {
            parameter_types: vec![kind],
            ..statement_shape(sql, &facts, 1)
        };
        let statement = source.prepare(&shape).expect("prepared");
        told.push(match run_write(statement.as_ref(), &[said], &terms(None)) {
            Ok(_) => {
                let sql = format!("SELECT quote(v) FROM t WHERE id = {id}");
                db.connect().query_row(&sql, [], |row| row.get(0)).expect("a value")
            }
            Err(WriteError::Rejected { column: Some(0), reason: why }) => why,
            Err(fault) => panic!("{sql} {said:?}: {fault:?}"),
        });
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    told.remove(0)
}

#[test]
fn what_a_column_would_keep_as_something_else_is_not_written() {
    let refused =
        |declared: &str| format!("it would not be kept exactly: the column `v` is declared as `{declared}`");
    for (declared, kind, said) in [
        ("INTEGER", DataType::Text, ValueRef::Text("007")),
        ("INTEGER", DataType::Text, ValueRef::Text(" 7")),
        ("INTEGER", DataType::Text, ValueRef::Text("1e3")),
        ("NUMERIC", DataType::Text, ValueRef::Text("1.50")),
        ("REAL", DataType::Text, ValueRef::Text("7.0")),
        ("DECIMAL(20,4)", DataType::Decimal, ValueRef::Text("1234567890123456.7891")),
        ("NUMERIC", DataType::Decimal, ValueRef::Text("-0.0")),
        ("NUMERIC", DataType::Json, ValueRef::Text("12")),
        ("REAL", DataType::Int64, ValueRef::Integer((1 << 53) + 1)),
        ("REAL", DataType::Number, ValueRef::Real(-0.0)),
    ] {
        assert_eq!(write_through_statement(declared, kind, said), refused(declared), "{declared} {said:?}");
    }
}

#[test]
fn what_is_no_number_is_not_written_among_numbers() {
    for (declared, kind, said) in [
        ("INTEGER", DataType::Text, ValueRef::Text("seven")),
        ("BIGINT", DataType::Text, ValueRef::Text("")),
        ("DOUBLE", DataType::Date, ValueRef::Text("2026-02-11")),
        ("INTEGER", DataType::Json, ValueRef::Text("[7]")),
        ("REAL", DataType::Blob, ValueRef::Blob(b"7")),
    ] {
        let why = format!("it is no number, and the column `v`, declared as `{declared}`, keeps numbers");
        assert_eq!(write_through_statement(declared, kind, said), why, "{declared} {said:?}");
    }
}

/// Whose fault it is that what a statement gives is not what it gave.
#[test]
fn a_row_that_does_not_fit_is_the_fault_of_who_wrote_it() {
    let check = |sql: &str, said: ValueRef<'_>, expected: &str| {
        let db = TestDb::new(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, w); INSERT INTO t VALUES(1, 1, 1)",
        );
        let source = db.source();
        let statement = prepare(&source, sql).expect("one");
        db.execute("INSERT INTO t VALUES(2, 'other', 'other')");
        let fault = run_write(statement.as_ref(), &[said], &terms(None)).expect_err("it does not fit");
        let told = match fault {
            WriteError::Rejected { column, reason: why } => format!("{column:?} {why}"),
            WriteError::ContractViolation => "unwritable".to_owned(),
            WriteError::Source(fault) => format!("{fault}"),
            fault => panic!("{sql}: {fault:?}"),
        };
        assert_eq!(told, expected, "{sql}");
    };
    let large = ValueRef::Text("9007199254740993");
    let why = "Some(0) the column `v` has an integer below 2^53, and this would be something else";
    check("INSERT INTO t(v, w) VALUES(:v, 1) RETURNING v", large, why);
    check("UPDATE t SET v = :v WHERE id = 1 RETURNING v", large, why);
    check("INSERT INTO t(v, w) VALUES(1, :v || 'x') RETURNING w", large, "unwritable");
    let changed = "column `v`: expected an integer below 2^53, and a row has something else; the data is not what it was";
    check("UPDATE t SET v = coalesce(:v, v) WHERE id = 2 RETURNING v", ValueRef::Null, changed);
}

#[test]
fn a_truth_value_that_is_used_twice_is_no_word() {
    let db = TestDb::new("CREATE TABLE t(a TEXT, b TEXT, n INTEGER); INSERT INTO t VALUES('x', 'y', 1)");
    let source = db.source();
    let run = |sql: &str| {
        let facts = source.describe_statement(sql).expect("a statement");
        let shape = contract::source::StatementShape {
            parameter_types: vec![DataType::Boolean],
            ..statement_shape(sql, &facts, 1)
        };
        let statement = source.prepare(&shape).expect("prepared");
        let ran = run_write(statement.as_ref(), &[ValueRef::Integer(1)], &terms(None));
        (ran.is_ok(), facts.assignments.iter().map(|one| one.accepts).collect::<Vec<_>>())
    };
    assert_eq!(run("UPDATE t SET a = :on, b = coalesce(:on, b)"), (true, vec![]));
    assert_eq!(run("UPDATE t SET a = iif(:on, 'true', 'false') WHERE n = :on"), (true, vec![]));
    let texts = contract::source::AcceptedValues::Texts;
    assert_eq!(run("UPDATE t SET a = :on WHERE n = :on"), (false, vec![texts]));
    let rows = read_rows(prepare(&source, "SELECT a, b, n FROM t").expect("one").as_ref(), &[]);
    assert_eq!(rows.expect("rows"), ["'true' 'true' 1"]);
}

#[test]
fn what_means_the_same_is_written() {
    for (declared, kind, said, stored) in [
        ("INTEGER", DataType::Text, ValueRef::Text("7"), "7"),
        ("NUMERIC", DataType::Text, ValueRef::Text("seven"), "'seven'"),
        ("POINT", DataType::Text, ValueRef::Text("1 2"), "'1 2'"),
        ("TEXT", DataType::Boolean, ValueRef::Integer(1), "'true'"),
        ("TEXT", DataType::Boolean, ValueRef::Integer(0), "'false'"),
        ("BOOLEAN", DataType::Boolean, ValueRef::Integer(1), "1"),
        ("INTEGER", DataType::Boolean, ValueRef::Integer(1), "1"),
        ("INTEGER", DataType::Integer, ValueRef::Integer(7), "7"),
        ("INTEGER", DataType::Number, ValueRef::Real(7.0), "7"),
        ("NUMERIC", DataType::Decimal, ValueRef::Text("12.50"), "12.5"),
        ("DATE", DataType::Date, ValueRef::Text("2026-02-11"), "'2026-02-11'"),
        ("REAL", DataType::Integer, ValueRef::Integer(7), "7.0"),
        ("TEXT", DataType::Text, ValueRef::Text("007"), "'007'"),
        ("TEXT", DataType::Integer, ValueRef::Integer(7), "'7'"),
        ("TEXT", DataType::Number, ValueRef::Real(0.1 + 0.2), "'0.30000000000000004'"),
        ("BLOB", DataType::Text, ValueRef::Text("007"), "'007'"),
        ("", DataType::Number, ValueRef::Real(1.0), "1.0"),
        ("NUMERIC", DataType::Blob, ValueRef::Blob(b"7"), "X'37'"),
    ] {
        assert_eq!(write_through_statement(declared, kind, said), stored, "{declared} {said:?}");
    }
}

#[test]
fn who_computes_first_decides_what_is_kept() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let statement =
        prepare(&source, "INSERT INTO orders VALUES(cast(:id AS INTEGER), 1, :total) RETURNING id")
            .expect("one");
    let (rows, ..) =
        run_write(statement.as_ref(), &[ValueRef::Text("007"), ValueRef::Real(1.0)], &terms(None))
            .expect("done");
    assert_eq!(rows, ["7"]);
}
