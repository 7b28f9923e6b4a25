//! Which rows a statement changes, and how many, including those that SQLite does not count.

use contract::ValueRef;
use contract::source::{CaptureMode, ChangeSummary, RowFlow, Source, WriteError};

use super::kit::{TestDb, prepare, read_rows, run_write, statement_shape, terms};
use crate::driver::{StatementWriteOptions, WriteStatement};

/// What a statement would change: its result in a dry run.
fn preview_changes(db: &TestDb, sql: &str, arguments: &[ValueRef<'_>]) -> ChangeSummary {
    let source = db.source();
    let statement = prepare(&source, sql).expect("a statement");
    let mut seen = None;
    let terms = StatementWriteOptions { capture: CaptureMode::RowDigest, dry_run: true, ..terms(None) };
    let written = statement.write(arguments, &terms, &mut |_| RowFlow::Continue, &mut |changes| {
        seen = Some(*changes);
        Ok(Vec::new())
    });
    written.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    seen.expect("a result")
}

const TABLES: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, a, b);
    CREATE TABLE w(k TEXT PRIMARY KEY, a) WITHOUT ROWID;
    CREATE TABLE loose(a);
    CREATE TABLE parent(id INTEGER PRIMARY KEY);
    CREATE TABLE child(id INTEGER PRIMARY KEY, p REFERENCES parent(id) ON DELETE CASCADE, a);
    CREATE TABLE counter(n);
    CREATE TABLE counted(id INTEGER PRIMARY KEY);
    CREATE TRIGGER g AFTER INSERT ON counted BEGIN UPDATE counter SET n = n + 1; END;
    INSERT INTO t VALUES(1, 'x', 1), (2, 'x', 2), (3, 'y', 3);
    INSERT INTO w VALUES('k', 'x'), ('l', 'y');
    INSERT INTO loose VALUES('x'), ('y');
    INSERT INTO parent VALUES(1);
    INSERT INTO child VALUES(1, 1, 'x');
    INSERT INTO counter VALUES(0);
    CREATE TABLE r(id INTEGER PRIMARY KEY, u UNIQUE, a);
    CREATE TABLE log(a);
    CREATE TRIGGER h AFTER INSERT ON r BEGIN INSERT INTO log VALUES(new.a); END;
    CREATE TRIGGER no BEFORE DELETE ON r BEGIN SELECT RAISE(ABORT, 'no'); END;
    INSERT INTO r VALUES(1, 'u1', 'x'), (2, 'u2', 'y'), (3, 'u3', 'z');
    CREATE TABLE under(id INTEGER PRIMARY KEY, r REFERENCES r(id) ON DELETE CASCADE, a);
    INSERT INTO under VALUES(1, 1, 'x');
    CREATE TABLE touched(id INTEGER PRIMARY KEY, u UNIQUE, n);
    INSERT INTO touched VALUES(1, 'a', 1), (2, 'vb', 2), (3, 'vc', 3), (4, 'd', 4);
    CREATE TRIGGER touch AFTER INSERT ON touched BEGIN
        INSERT INTO touched(u, n) SELECT 'v' || new.u, new.n + 1 WHERE new.n < 9;
    END;";

/// Whether the preview of a statement is the same after another program made a change.
fn check(sql: &str, between: &str, is_same: bool) {
    let db = TestDb::new(TABLES);
    let before = preview_changes(&db, sql, &[]);
    assert_eq!(before, preview_changes(&db, sql, &[]), "{sql}: nothing changed");
    db.execute(between);
    let after = preview_changes(&db, sql, &[]);
    assert!(before.digest.is_some() && after.digest.is_some());
    assert_eq!(before.rows, after.rows, "{sql}: the number alone does not tell");
    assert_eq!(before.digest == after.digest, is_same, "{sql} after {between}");
}

#[test]
fn the_digest_changes_with_the_affected_rows() {
    let others = "UPDATE t SET a = 'y' WHERE id = 1; UPDATE t SET a = 'x' WHERE id = 3";
    check("DELETE FROM t WHERE a = 'x'", others, false);
    check("UPDATE t SET b = 0 WHERE a = 'x'", others, false);
    check("DELETE FROM t WHERE id = 1", "UPDATE t SET b = 9 WHERE id = 1", false);
    check("DELETE FROM t WHERE id = 3", "DELETE FROM t WHERE id = 3; INSERT INTO t VALUES(3, 'z', 3)", false);
    check("DELETE FROM w WHERE k = 'k'", "UPDATE w SET a = 'z' WHERE k = 'k'", false);
    check(
        "DELETE FROM loose WHERE a = 'x'",
        "DELETE FROM loose; INSERT INTO loose VALUES('z'), ('z'), ('x')",
        false,
    );
    check("DELETE FROM parent", "UPDATE child SET a = 'z'", false);
}

#[test]
fn the_digest_ignores_unaffected_rows() {
    check(
        "DELETE FROM t WHERE a = 'x'",
        "INSERT INTO t VALUES(9, 'z', 9); UPDATE t SET b = 0 WHERE a = 'y'",
        true,
    );
    check("UPDATE t SET b = random() WHERE a = 'x'", "UPDATE w SET a = 0", true);
    check("INSERT INTO t(a) VALUES(random())", "INSERT INTO t(a) VALUES('z')", true);
    check("INSERT INTO counted DEFAULT VALUES", "UPDATE counter SET n = 100", true);
}

#[test]
fn the_digest_covers_replaced_rows() {
    // Conflicts by rowid, by a unique column, and with rows that reference them.
    check("INSERT OR REPLACE INTO r VALUES(1, 'n', 'n')", "UPDATE r SET a = 'edited' WHERE id = 1", false);
    let moved = "UPDATE r SET u = 'free' WHERE id = 3; UPDATE r SET u = 'u3' WHERE id = 2";
    check("INSERT OR REPLACE INTO r VALUES(9, 'u3', 'n')", moved, false);
    check(
        "REPLACE INTO r(u, a) VALUES('u2', 'n') RETURNING id",
        "UPDATE r SET a = 'edited' WHERE id = 2",
        false,
    );
    check("UPDATE OR REPLACE r SET u = 'u2' WHERE id = 1", "UPDATE r SET a = 'edited' WHERE id = 2", false);
    check("REPLACE INTO r VALUES(1, 'n', 'n')", "UPDATE under SET a = 'edited'", false);
    let others = "UPDATE r SET a = 'edited' WHERE id = 3; INSERT INTO r VALUES(8, 'u8', ''); INSERT INTO log VALUES(0)";
    check("INSERT OR REPLACE INTO r VALUES(1, 'u2', random())", others, true);
    check("INSERT OR REPLACE INTO r VALUES(9, 'u9', random())", others, true);
    // A trial run does not show what a trigger replaces: any change of its table counts.
    check("REPLACE INTO touched VALUES(9, 'b', 1)", "UPDATE touched SET n = 0 WHERE u = 'vb'", false);
    check("REPLACE INTO touched VALUES(9, 'b', 1)", "UPDATE touched SET n = 0 WHERE u = 'd'", false);
    check("REPLACE INTO touched VALUES(9, 'free', 9)", "UPDATE touched SET n = 0 WHERE u = 'd'", true);
}

#[test]
fn a_trial_run_leaves_nothing_behind() {
    let db = TestDb::new(TABLES);
    let source = db.source();
    let sql = "REPLACE INTO r VALUES(1, 'u2', 'n')";
    let response = StatementWriteOptions { capture: CaptureMode::RowDigest, ..terms(None) };
    let statement = prepare(&source, sql).expect("one");
    statement.write(&[], &response, &mut |_| RowFlow::Continue, &mut |_| Ok(Vec::new())).expect("done");
    // The owner's triggers are enabled again. They do not see replaced rows: `no` would reject them.
    let again = prepare(&source, "REPLACE INTO r VALUES(1, 'u3', 'm')").expect("one");
    run_write(again.as_ref(), &[], &terms(None)).expect("done");
    let gone = prepare(&source, "DELETE FROM r").expect("one");
    assert!(run_write(gone.as_ref(), &[], &terms(None)).is_err());
    let all = "SELECT (SELECT group_concat(id || u || a) FROM r), (SELECT group_concat(a) FROM log)";
    let found = read_rows(prepare(&source, all).expect("one").as_ref(), &[]).expect("rows");
    assert_eq!(found, ["'1u3m' 'x,y,z,n,m'"]);
}

#[test]
fn replaced_rows_are_counted() {
    for (schema, sql, rows) in [
        ("CREATE TABLE r(a UNIQUE, b UNIQUE)", "REPLACE INTO r VALUES(1, 2)", 3),
        ("CREATE TABLE r(a UNIQUE, b UNIQUE)", "INSERT OR REPLACE INTO r VALUES(1, 9)", 2),
        ("CREATE TABLE r(a UNIQUE, b UNIQUE)", "REPLACE INTO r VALUES(8, 9)", 1),
        ("CREATE TABLE r(a UNIQUE, b UNIQUE)", "UPDATE OR REPLACE r SET b = 2 WHERE a = 1", 2),
        ("CREATE TABLE r(a UNIQUE ON CONFLICT REPLACE, b)", "INSERT INTO r VALUES(1, 1)", 2),
        ("CREATE TABLE r(a PRIMARY KEY, b UNIQUE) WITHOUT ROWID", "REPLACE INTO r VALUES(1, 2)", 3),
        ("CREATE TABLE r(a PRIMARY KEY, b UNIQUE) WITHOUT ROWID", "UPDATE OR REPLACE r SET b = 2 WHERE a = 1", 2),
        (
            "CREATE TABLE r(a UNIQUE, b UNIQUE); CREATE TABLE log(x);
             CREATE TRIGGER g AFTER INSERT ON r BEGIN INSERT INTO log VALUES(1); DELETE FROM r WHERE a = 3 AND new.b > new.a; END;",
            "REPLACE INTO r VALUES(1, 2)",
            5,
        ),
        (
            "CREATE TABLE r(a UNIQUE, b UNIQUE); CREATE TABLE s(x UNIQUE);
             INSERT INTO s VALUES(1);
             CREATE TRIGGER g AFTER DELETE ON r BEGIN INSERT OR REPLACE INTO s VALUES(1); END;",
            "DELETE FROM r WHERE a = 1",
            3,
        ),
        (
            "CREATE TABLE r(a UNIQUE, b UNIQUE); CREATE TABLE s(x REFERENCES r(a) ON DELETE CASCADE);",
            "REPLACE INTO r VALUES(1, 9)",
            2,
        ),
    ] {
        let db = TestDb::new(&format!("{schema}; INSERT INTO r VALUES(1, 1), (2, 2), (3, 3)"));
        let source = db.source();
        let run = |most: u64| {
            let facts = source.describe_statement(sql).expect("a statement");
            let statement = source.prepare(&statement_shape(sql, &facts, most)).expect("prepared");
            run_write(statement.as_ref(), &[], &terms(None))
        };
        let all = || read_rows(prepare(&source, "SELECT a, b FROM r ORDER BY a").expect("one").as_ref(), &[]);
        let before = all().expect("rows");
        match run(rows - 1) {
            Err(WriteError::TooManyRows { rows: counted, .. }) => assert_eq!(counted, rows, "{schema} {sql}"),
            other => panic!("{schema} {sql}: {other:?}"),
        }
        assert_eq!(all().expect("rows"), before, "nothing was changed");
        let (_, _, changed) = run(rows).expect("allowed");
        assert_eq!(changed, Some(rows), "{schema} {sql}");
    }
}

#[test]
fn capture_leaves_no_trace_and_cannot_be_called() {
    let db = TestDb::new(TABLES);
    let source = db.source();
    let gone = prepare(&source, "DELETE FROM t WHERE id = 1").expect("one");
    let response = StatementWriteOptions { capture: CaptureMode::RowDigest, ..terms(None) };
    gone.write(&[], &response, &mut |_| RowFlow::Continue, &mut |_| Ok(Vec::new())).expect("done");
    // The next write on the same connection is not captured.
    let (_, _, changed) =
        run_write(prepare(&source, "UPDATE t SET a = 0").expect("one").as_ref(), &[], &terms(None))
            .expect("done");
    assert_eq!(changed, Some(2));
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%spile%'";
    assert_eq!(db.connect().query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number"), 0);
    for sql in ["SELECT _spile_saw(1)", "UPDATE t SET a = _spile_saw(0, 1, 0)"] {
        assert!(source.describe_statement(sql).is_err(), "{sql}");
    }
    // Nor can the owner's schema call it.
    db.execute("CREATE TRIGGER _spile_x AFTER UPDATE ON t BEGIN SELECT _spile_saw(0, -5, 0); END");
    let source = db.source();
    let facts = source.describe_statement("UPDATE t SET a = 1 WHERE id = 2");
    let prepared =
        facts.map(|facts| source.prepare(&statement_shape("UPDATE t SET a = 1 WHERE id = 2", &facts, 1)));
    assert!(matches!(prepared, Err(_) | Ok(Err(_))));
}

/// A failed statement leaves no capture triggers for the next one.
#[test]
fn a_failed_statement_leaves_no_triggers() {
    let db = TestDb::new(TABLES);
    let source = db.source();
    let fails = prepare(&source, "INSERT INTO t(id) VALUES(:id)").expect("one");
    let response = StatementWriteOptions { capture: CaptureMode::RowDigest, ..terms(None) };
    let run = |id: i64| {
        fails.write(&[ValueRef::Integer(id)], &response, &mut |_| RowFlow::Continue, &mut |changes| {
            assert_eq!(changes.rows, 1);
            Ok(Vec::new())
        })
    };
    for _ in 0..2 {
        let error = run(1).expect_err("it is there");
        assert!(matches!(error, WriteError::Rejected { .. }), "{error:?}");
    }
    run(9).expect("done");
    run(10).expect("done");
}

#[test]
fn every_row_up_to_the_limit_is_captured() {
    let columns: Vec<String> = (0..250).map(|at| format!("c{at}")).collect();
    let db = TestDb::new(&format!("CREATE TABLE wide({})", columns.join(", ")));
    for row in 0..10 {
        db.execute(&format!("INSERT INTO wide(c0) VALUES({row})"));
    }
    // As many rows as are allowed, and the last of them.
    let before = preview_changes(&db, "DELETE FROM wide", &[]);
    assert_eq!(before.rows, 10);
    db.execute("UPDATE wide SET c1 = 'other' WHERE c0 = 9");
    assert_ne!(before.digest, preview_changes(&db, "DELETE FROM wide", &[]).digest);
}

#[test]
fn tables_with_many_columns_are_captured() {
    let columns: Vec<String> = (0..300).map(|at| format!("c{at} DEFAULT {at}")).collect();
    let db =
        TestDb::new(&format!("CREATE TABLE wide({}); INSERT INTO wide DEFAULT VALUES", columns.join(", ")));
    let before = preview_changes(&db, "DELETE FROM wide", &[]);
    db.execute("UPDATE wide SET c299 = 0");
    assert_ne!(before.digest, preview_changes(&db, "DELETE FROM wide", &[]).digest);
}
