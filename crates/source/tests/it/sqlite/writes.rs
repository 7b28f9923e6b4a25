//! Creates, updates and deletes one row by its key; and every way in which that fails.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::source::{CancelFlag, RowChange, Source, SourceError, WriteError};
use contract::{Value, ValueRef};
use source::sqlite::{Options, Sqlite};

use super::kit::{RecordingChecks, TestDb, TestTable, shape};
use crate::driver::{ContractViolation, VersionConflict, WriteChecks, WriteOutcome, WriteRequest};

const SHOP: &str = "
    CREATE TABLE customers(id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE, plan TEXT DEFAULT 'free',
        age INTEGER CHECK (age > 0), rev INTEGER NOT NULL DEFAULT 1);
    CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers(id));
    INSERT INTO customers(id, email, age) VALUES(1, 'ann@x', 30), (2, 'bob@x', 40);
    INSERT INTO orders VALUES(1, 1);";

fn shop() -> (TestDb, TestTable) {
    let db = TestDb::new(SHOP);
    let table = TestTable::new(&db, "customers");
    (db, table)
}

/// Every row as another connection sees it.
fn rows(db: &TestDb, sql: &str) -> Vec<String> {
    let writer = db.connect();
    let mut statement = writer.prepare(sql).expect("valid SQL");
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

const EMAILS: &str = "SELECT id || ' ' || email FROM customers ORDER BY id";

#[test]
fn a_row_is_created_updated_and_deleted() {
    for mode in ["DELETE", "WAL", "TRUNCATE", "PERSIST"] {
        let db = TestDb::new(&format!("PRAGMA journal_mode = {mode}; {SHOP}"));
        let table = TestTable::new(&db, "customers");
        assert_eq!(table.create(&[("email", ValueRef::Text("cy@x"))]), "3 'cy@x' 'free' null 1");
        assert_eq!(
            table.update(&[ValueRef::Integer(3)], &[("age", ValueRef::Integer(7))]),
            "3 'cy@x' 'free' 7 1"
        );
        assert_eq!(
            table.get(&[ValueRef::Integer(3)]).expect("the row")[3],
            Value::Integer(7),
            "our own write"
        );
        assert_eq!(table.delete(&[ValueRef::Integer(2)]), "2 'bob@x' 'free' 40 1");
        assert_eq!(rows(&db, EMAILS), ["1 ann@x", "3 cy@x"]);
        let now: String =
            db.connect().query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("a mode");
        // Settings of a connection are not stored in the file.
        let expected = if mode == "WAL" { "wal" } else { "delete" };
        assert_eq!(now, expected);
    }
}

/// A program renames a new export over the file, or copies it there: the next write goes to the new file and
/// is read from it.
#[test]
fn a_write_to_a_replaced_file_is_visible_at_once() {
    for (mode, is_renamed) in [("DELETE", true), ("WAL", true), ("DELETE", false)] {
        let made = || TestDb::new(&format!("PRAGMA journal_mode = {mode}; {SHOP}"));
        let db = made();
        let table = TestTable::new(&db, "customers");
        for age in 50..60 {
            let other = made();
            // Open connections to the old file.
            table.get(&[ValueRef::Integer(1)]).expect("the row");
            if is_renamed {
                std::fs::rename(&other.path, &db.path).expect("renamed");
            } else {
                std::fs::copy(&other.path, &db.path).expect("copied");
            }
            let response = table.update(&[ValueRef::Integer(1)], &[("age", ValueRef::Integer(age))]);
            assert_eq!(response, format!("1 'ann@x' 'free' {age} 1"));
            let row = table.get(&[ValueRef::Integer(1)]).expect("the row");
            assert_eq!(row[3], Value::Integer(age), "{mode}, renamed: {is_renamed}");
        }
    }
}

#[test]
fn defaults_and_generated_columns_are_reported() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT DEFAULT 'x', b INT AS (id * 2), c INT AS (id) STORED, d);
         CREATE VIEW v AS SELECT id, a FROM t;
         CREATE VIRTUAL TABLE docs USING fts5(body);",
    );
    let facts = db.facts();
    let columns: Vec<(bool, Option<&str>)> = facts.tables[0]
        .columns
        .iter()
        .map(|column| (column.has_default, column.read_only_reason.as_deref()))
        .collect();
    let computed = Some("it is computed by the database");
    assert_eq!(columns, [(true, None), (true, None), (false, computed), (false, computed), (false, None)]);
    let closed: Vec<Option<&str>> = facts.tables.iter().map(|table| table.read_only_reason()).collect();
    assert_eq!(closed, [None, Some("it is a view"), Some("it is a virtual table")]);
    let shape = shape(&facts.tables[1]);
    assert!(db.source().writer(&shape).is_err());
}

#[test]
fn a_generated_column_is_returned_but_cannot_be_set() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, b INT AS (id * 2))");
    let table = TestTable::new(&db, "t");
    assert_eq!(table.create(&[("id", ValueRef::Integer(4))]), "4 8");
    let response = table.create(&[("id", ValueRef::Integer(5)), ("b", ValueRef::Integer(1))]);
    assert_eq!(response, "`b`: it is computed by the database");
    assert_eq!(table.get(&[ValueRef::Integer(5)]), None);
}

#[test]
fn constraint_errors_name_the_column() {
    let (db, table) = shop();
    let email = |text| ("email", ValueRef::Text(text));
    let taken = "a row with this key already exists";
    assert_eq!(table.create(&[("id", ValueRef::Integer(1)), email("new@x")]), taken);
    assert_eq!(table.create(&[email("ann@x")]), "`email`: another row already has this value");
    assert_eq!(table.create(&[("age", ValueRef::Integer(3))]), "`email`: a value is required");
    let check = "`age`: a CHECK constraint of the table does not allow it";
    assert_eq!(table.create(&[email("new@x"), ("age", ValueRef::Integer(0))]), check);
    assert_eq!(table.update(&[ValueRef::Integer(1)], &[("age", ValueRef::Integer(-1))]), check);
    assert_eq!(
        table.update(&[ValueRef::Integer(1)], &[("email", ValueRef::Null)]),
        "`email`: a value is required"
    );
    assert_eq!(table.update(&[ValueRef::Integer(9)], &[email("z@x")]), "no row has this key");
    assert_eq!(table.delete(&[ValueRef::Integer(9)]), "no row has this key");
    assert_eq!(table.delete(&[ValueRef::Integer(1)]), "other rows reference it");
    let orders = TestTable::new(&db, "orders");
    let missing = "the row references a row that does not exist";
    assert_eq!(orders.create(&[("customer", ValueRef::Integer(99))]), missing);
    assert_eq!(orders.create(&[("customer", ValueRef::Integer(2))]), "2 2");
    assert_eq!(rows(&db, EMAILS), ["1 ann@x", "2 bob@x"]);
}

#[test]
fn a_check_constraint_of_several_columns_names_them() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, low INT, high INT, CHECK (low < high), CONSTRAINT odd CHECK (id % 2))",
    );
    let table = TestTable::new(&db, "t");
    let (low, high) = (("low", ValueRef::Integer(2)), ("high", ValueRef::Integer(1)));
    assert_eq!(
        table.create(&[("id", ValueRef::Integer(1)), low, high]),
        "a CHECK constraint on `low`, `high` does not allow these values together"
    );
    assert_eq!(
        table.create(&[("id", ValueRef::Integer(2))]),
        "the values violate a CHECK constraint of the table"
    );
}

#[test]
fn a_deferred_foreign_key_is_checked_at_commit() {
    let db = TestDb::new(
        "CREATE TABLE p(id INTEGER PRIMARY KEY);
         CREATE TABLE c(id INTEGER PRIMARY KEY, p INTEGER REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)",
    );
    let table = TestTable::new(&db, "c");
    let response = table.create(&[("id", ValueRef::Integer(1)), ("p", ValueRef::Integer(9))]);
    assert_eq!(response, "the row references a row that does not exist, or other rows reference it");
    assert_eq!(table.get(&[ValueRef::Integer(1)]), None);
}

#[test]
fn foreign_key_actions_run() {
    let db = TestDb::new(
        "CREATE TABLE p(id INTEGER PRIMARY KEY, name TEXT);
         CREATE TABLE c(id INTEGER PRIMARY KEY, p INTEGER REFERENCES p(id) ON DELETE CASCADE ON UPDATE CASCADE);
         CREATE TABLE d(id INTEGER PRIMARY KEY, c INTEGER REFERENCES c(id) ON DELETE SET NULL);
         INSERT INTO p VALUES(1, 'a'), (2, 'b'); INSERT INTO c VALUES(1, 1), (2, 2); INSERT INTO d VALUES(1, 1);",
    );
    let table = TestTable::new(&db, "p");
    assert_eq!(table.delete(&[ValueRef::Integer(1)]), "1 'a'");
    assert_eq!(rows(&db, "SELECT id || ' ' || ifnull(c, 'null') FROM d"), ["1 null"]);
    assert_eq!(table.update(&[ValueRef::Integer(2)], &[("id", ValueRef::Integer(7))]), "7 'b'");
    assert_eq!(rows(&db, "SELECT id || ' ' || p FROM c"), ["2 7"]);
}

#[test]
fn triggers_run() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, seen TEXT);
         CREATE TABLE log(what TEXT);
         CREATE TRIGGER a AFTER INSERT ON t BEGIN
           UPDATE t SET seen = upper(new.name) WHERE id = new.id; INSERT INTO log VALUES('new ' || new.id); END;
         CREATE TRIGGER b BEFORE DELETE ON t WHEN old.id = 1 BEGIN SELECT RAISE(ABORT, 'secret words'); END;
         CREATE TRIGGER c BEFORE DELETE ON t WHEN old.id = 2 BEGIN SELECT RAISE(IGNORE); END;
         CREATE TRIGGER d AFTER UPDATE OF name ON t WHEN new.name = 'Bad'
           BEGIN UPDATE t SET name = 'Good' WHERE id = new.id; END;",
    );
    let table = TestTable::new(&db, "t");
    assert_eq!(table.create(&[("name", ValueRef::Text("ann"))]), "1 'ann' 'ANN'", "other columns may change");
    assert_eq!(table.create(&[("name", ValueRef::Text("bob"))]), "2 'bob' 'BOB'");
    assert_eq!(rows(&db, "SELECT what FROM log"), ["new 1", "new 2"]);
    assert_eq!(table.delete(&[ValueRef::Integer(1)]), "a trigger of the table refused the change");
    assert_eq!(table.delete(&[ValueRef::Integer(2)]), "a trigger of the table prevents the change");
    let response = table.update(&[ValueRef::Integer(2)], &[("name", ValueRef::Text("Bad"))]);
    assert_eq!(response, "`name`: a trigger of the table changes it");
    assert_eq!(rows(&db, "SELECT name FROM t"), ["ann", "bob"]);
}

#[test]
fn a_full_text_index_is_updated_by_triggers() {
    let db = TestDb::new(
        "CREATE TABLE docs(id INTEGER PRIMARY KEY, body TEXT);
         CREATE VIRTUAL TABLE words USING fts5(body, content='docs', content_rowid='id');
         CREATE TRIGGER i AFTER INSERT ON docs BEGIN INSERT INTO words(rowid, body) VALUES(new.id, new.body); END;
         CREATE TRIGGER d AFTER DELETE ON docs
           BEGIN INSERT INTO words(words, rowid, body) VALUES('delete', old.id, old.body); END;",
    );
    let table = TestTable::new(&db, "docs");
    assert_eq!(table.create(&[("body", ValueRef::Text("green tea"))]), "1 'green tea'");
    let found = |word| super::kit::search(table.reader.as_ref(), &[word], &[1], 10).0.len();
    assert_eq!(found("green"), 1);
    assert_eq!(table.delete(&[ValueRef::Integer(1)]), "1 'green tea'");
    assert_eq!(found("green"), 0);
}

#[test]
fn create_does_not_replace_a_row() {
    let db = TestDb::new(
        "CREATE TABLE t(k TEXT PRIMARY KEY ON CONFLICT REPLACE NOT NULL, v TEXT UNIQUE ON CONFLICT IGNORE);
         INSERT INTO t VALUES('a', 'old'), ('b', 'other')",
    );
    let table = TestTable::new(&db, "t");
    let created = table.create(&[("k", ValueRef::Text("a")), ("v", ValueRef::Text("new"))]);
    assert_eq!(created, "a row with this key already exists");
    let response = table.update(&[ValueRef::Text("b")], &[("v", ValueRef::Text("old"))]);
    assert_eq!(response, "`v`: another row already has this value");
    assert_eq!(rows(&db, "SELECT k || v FROM t ORDER BY k"), ["aold", "bother"]);
}

#[test]
fn every_kind_of_key_is_supported() {
    let db = TestDb::new(
        "CREATE TABLE pair(a TEXT NOT NULL, b INTEGER NOT NULL, v TEXT, PRIMARY KEY(b, a)) WITHOUT ROWID;
         CREATE TABLE loose(name TEXT, v TEXT);
         CREATE TABLE taken(rowid TEXT PRIMARY KEY NOT NULL, oid TEXT, _rowid_ TEXT);
         INSERT INTO loose VALUES('x', '1'), ('y', '2');",
    );
    let pair = TestTable::new(&db, "pair");
    let key = |a, b| [("a", ValueRef::Text(a)), ("b", ValueRef::Integer(b))];
    assert_eq!(pair.create(&key("x", 1)), "'x' 1 null");
    assert_eq!(pair.create(&key("x", 1)), "a row with this key already exists");
    let keyed = [ValueRef::Integer(1), ValueRef::Text("x")];
    assert_eq!(pair.update(&keyed, &[("v", ValueRef::Text("z"))]), "'x' 1 'z'");
    assert_eq!(pair.update(&keyed, &[("a", ValueRef::Text("w"))]), "'w' 1 'z'", "a part of the key");
    assert_eq!(pair.delete(&[ValueRef::Integer(1), ValueRef::Text("w")]), "'w' 1 'z'");
    // A key that the schema does not declare stays unique.
    let loose = TestTable::new(&db, "loose");
    assert_eq!(loose.create(&[("name", ValueRef::Text("x"))]), "a row with this key already exists");
    assert_eq!(loose.create(&[("v", ValueRef::Text("3"))]), "`name`: a value is required");
    let response = loose.update(&[ValueRef::Text("x")], &[("name", ValueRef::Text("y"))]);
    assert_eq!(response, "a row with this key already exists");
    assert_eq!(loose.update(&[ValueRef::Text("x")], &[("name", ValueRef::Text("w"))]), "'w' '1'");
    db.execute("INSERT INTO loose VALUES('w', '4')");
    assert!(loose.delete(&[ValueRef::Text("w")]).contains("two rows have the same key `name` = `w`"));
    let taken = TestTable::new(&db, "taken");
    assert_eq!(taken.create(&[("rowid", ValueRef::Text("k"))]), "'k' null null");
    assert_eq!(taken.update(&[ValueRef::Text("k")], &[("oid", ValueRef::Text("o"))]), "'k' 'o' null");
    assert_eq!(taken.delete(&[ValueRef::Text("k")]), "'k' 'o' null");
}

#[test]
fn checks_can_reject_a_write_and_add_values() {
    let (db, table) = shop();
    let sent = table.named_values(&[("age", ValueRef::Integer(31))]);
    let update = || RowChange::Update { key: &[ValueRef::Integer(1)], values: &sent };
    let mut stale = RecordingChecks { is_stale: true, ..RecordingChecks::default() };
    let response = table.change_with(update(), None, &mut stale);
    assert_eq!(response, "the row has changed since it was read");
    assert_eq!(stale.before.as_deref(), Some("1 'ann@x' 'free' 30 1"));
    let mut speechless = RecordingChecks { is_unwritable: true, ..RecordingChecks::default() };
    let response = table.change_with(update(), None, &mut speechless);
    assert_eq!(response, "the new row would not match the schema of this collection");
    assert_eq!(table.get(&[ValueRef::Integer(1)]).expect("the row")[3], Value::Integer(30));
    let mut counting =
        RecordingChecks { extra_values: vec![(4, Value::Integer(2))], ..RecordingChecks::default() };
    assert_eq!(table.change_with(update(), None, &mut counting), "1 'ann@x' 'free' 31 2");
    // Values that the checks add win over the caller's.
    let both = table.named_values(&[("rev", ValueRef::Integer(77)), ("age", ValueRef::Integer(32))]);
    let mut counting =
        RecordingChecks { extra_values: vec![(4, Value::Integer(3))], ..RecordingChecks::default() };
    let response = table.change_with(
        RowChange::Update { key: &[ValueRef::Integer(1)], values: &both },
        None,
        &mut counting,
    );
    assert_eq!(response, "1 'ann@x' 'free' 32 3");
    let mut stale = RecordingChecks { is_stale: true, ..RecordingChecks::default() };
    table.change_with(RowChange::Delete { key: &[ValueRef::Integer(2)] }, None, &mut stale);
    assert_eq!(rows(&db, EMAILS).len(), 2);
}

#[test]
fn a_dry_run_checks_and_stores_nothing() {
    let (db, table) = shop();
    let before = std::fs::read(&db.path).expect("bytes");
    let dry = |change| {
        let mut checks = RecordingChecks::default();
        let key = super::kit::idempotency_key(1, 1);
        let written = table.write(
            &WriteRequest { change, idempotency_key: key, dry_run: true, now_ms: 1, cancelled: None },
            &mut checks,
        );
        written.map(|written| (written, checks.after))
    };
    let email = table.named_values(&[("email", ValueRef::Text("cy@x"))]);
    let (written, after) = dry(RowChange::Create { values: &email }).expect("would do");
    assert_eq!((written, after.as_deref()), (WriteOutcome::Done, Some("3 'cy@x' 'free' null 1")));
    dry(RowChange::Update { key: &[ValueRef::Integer(2)], values: &email }).expect("would do");
    dry(RowChange::Delete { key: &[ValueRef::Integer(2)] }).expect("would do");
    let error = dry(RowChange::Delete { key: &[ValueRef::Integer(1)] }).expect_err("refused");
    assert!(matches!(error, WriteError::Rejected { .. }));
    assert_eq!(std::fs::read(&db.path).expect("bytes"), before);
    assert_eq!(db.files(), ["shop.db"]);
}

/// Its caller goes away while the result is rendered.
struct CancelDuringWrite<'a>(&'a AtomicBool);

impl WriteChecks for CancelDuringWrite<'_> {
    fn before_write(&mut self, _: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict> {
        Ok(Vec::new())
    }

    fn after_write(&mut self, _: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation> {
        self.0.store(true, Ordering::Relaxed);
        Ok(Vec::new())
    }
}

#[test]
fn a_cancelled_write_changes_nothing() {
    let (db, table) = shop();
    let before = rows(&db, EMAILS);
    let email = table.named_values(&[("email", ValueRef::Text("cy@x"))]);
    let key = [ValueRef::Integer(2)];
    let write = |change, is_gone: bool| {
        let stop = CancelFlag::new(AtomicBool::new(is_gone));
        let key = super::kit::idempotency_key(1, 1);
        let write =
            WriteRequest { change, idempotency_key: key, dry_run: false, now_ms: 1, cancelled: Some(&stop) };
        table.write(&write, &mut CancelDuringWrite(&stop))
    };
    for is_gone in [true, false] {
        for change in [
            RowChange::Create { values: &email },
            RowChange::Update { key: &key, values: &email },
            RowChange::Delete { key: &key },
        ] {
            let ended = write(change, is_gone);
            assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{is_gone} {ended:?}");
            assert_eq!(rows(&db, EMAILS), before);
        }
    }
    // The idempotency key is still unused.
    let response = table.change_with(
        RowChange::Create { values: &email },
        super::kit::idempotency_key(1, 1),
        &mut RecordingChecks::default(),
    );
    assert_eq!(response, "3 'cy@x' 'free' null 1");
}

#[test]
fn a_write_waits_for_a_lock_and_then_is_busy() {
    for mode in ["DELETE", "WAL"] {
        let db = TestDb::new(&format!("PRAGMA journal_mode = {mode}; {SHOP}"));
        let table = TestTable::new(&db, "customers");
        let other = db.connect();
        other.execute_batch("BEGIN IMMEDIATE").expect("begins");
        assert_eq!(table.delete(&[ValueRef::Integer(2)]), "the data is locked by another writer; try again");
        other.execute_batch("COMMIT").expect("ends");
        assert_eq!(table.delete(&[ValueRef::Integer(2)]), "2 'bob@x' 'free' 40 1");
    }
}

#[test]
fn concurrent_increments_are_all_applied() {
    for mode in ["DELETE", "WAL"] {
        let db = TestDb::new(&format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES(1, 0)"
        ));
        // Four of ours on two sources, and one other connection.
        let (one, two) = (TestTable::new(&db, "t"), TestTable::new(&db, "t"));
        let rounds = 25;
        std::thread::scope(|scope| {
            for table in [&one, &one, &two, &two] {
                scope.spawn(move || {
                    for _ in 0..rounds {
                        increment_with_version_check(table);
                    }
                });
            }
            let other = db.connect();
            other.busy_timeout(std::time::Duration::from_secs(60)).expect("set");
            for _ in 0..rounds {
                other.execute("UPDATE t SET n = n + 1", []).expect("written");
            }
        });
        let n = one.get(&[ValueRef::Integer(1)]).expect("the row")[1].clone();
        assert_eq!(n, Value::Integer(rounds * 5), "{mode}");
    }
}

/// Reads, adds one, and writes only if the row has not changed.
fn increment_with_version_check(table: &TestTable) {
    struct ValueUnchangedCheck(i64);
    impl WriteChecks for ValueUnchangedCheck {
        fn before_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict> {
            if row[1] == ValueRef::Integer(self.0) { Ok(Vec::new()) } else { Err(VersionConflict) }
        }
        fn after_write(&mut self, _: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation> {
            Ok(Vec::new())
        }
    }
    loop {
        // Another program writes all the time, and a read waits only briefly.
        let Ok(Some(row)) = super::kit::get(table.reader.as_ref(), &[ValueRef::Integer(1)]) else { continue };
        let Value::Integer(n) = row[1] else { panic!("no number") };
        let values = [(1, ValueRef::Integer(n + 1))];
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &values };
        match table.write(
            &WriteRequest { change, idempotency_key: None, dry_run: false, now_ms: 1, cancelled: None },
            &mut ValueUnchangedCheck(n),
        ) {
            Ok(_) => return,
            Err(WriteError::VersionConflict | WriteError::Source(SourceError::Busy { .. })) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_read_sees_the_preceding_write() {
    let db = TestDb::new(
        "PRAGMA journal_mode = WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES(1, 0)",
    );
    let table = TestTable::new(&db, "t");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Reads in close succession share a snapshot.
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    table.get(&[ValueRef::Integer(1)]);
                }
            });
        }
        for n in 1..200 {
            for _ in 0..20 {
                table.get(&[ValueRef::Integer(1)]);
            }
            let response = table.update(&[ValueRef::Integer(1)], &[("n", ValueRef::Integer(n))]);
            assert_eq!(response, format!("1 {n}"));
            assert_eq!(table.get(&[ValueRef::Integer(1)]).expect("the row")[1], Value::Integer(n));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_write_does_not_create_a_missing_file() {
    let (db, table) = shop();
    std::fs::remove_file(&db.path).expect("removed");
    assert_eq!(table.delete(&[ValueRef::Integer(2)]), "`shop.db` was not found; check the path");
    assert_eq!(db.files(), [""; 0]);
    // A file that replaces it is written to instead.
    db.execute(SHOP);
    assert_eq!(table.delete(&[ValueRef::Integer(2)]), "2 'bob@x' 'free' 40 1");
    assert_eq!(rows(&db, EMAILS), ["1 ann@x"]);
}

#[test]
fn a_read_only_file_is_an_error() {
    let (db, _) = shop();
    let close = |path: &std::path::Path, is_closed| {
        let mut permissions = std::fs::metadata(path).expect("there").permissions();
        permissions.set_readonly(is_closed);
        std::fs::set_permissions(path, permissions).expect("set");
    };
    let response = || db.facts().tables[0].read_only_reason().map(str::to_owned);
    assert_eq!(response(), None);
    close(&db.path, true);
    assert_eq!(response().as_deref(), Some("the file is read only"));
    close(&db.path, false);
    close(db.folder.path(), true);
    assert_eq!(response().as_deref(), Some("its folder is read only"));
    close(db.folder.path(), false);
}

#[test]
fn a_row_that_is_too_large_is_rejected() {
    let (db, table) = shop();
    let long = "x".repeat(40 << 20);
    let response = table.create(&[("email", ValueRef::Text(&long)), ("plan", ValueRef::Text(&long))]);
    assert_eq!(response, "the value exceeds the limit of 64 MiB");
    assert_eq!(rows(&db, EMAILS), ["1 ann@x", "2 bob@x"]);
}

#[test]
fn no_connection_can_write_before_the_first_writer() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let source = Sqlite::new(&db.path, Options::default());
    let facts = source.introspect().expect("facts");
    source.reader(&shape(&facts.tables[0])).expect("a reader");
    let opened = std::fs::read_dir("/proc/self/fd").expect("a folder").filter_map(|entry| {
        let entry = entry.ok()?;
        let is_ours = std::fs::read_link(entry.path()).is_ok_and(|path| path == db.path);
        let flags =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().to_string_lossy()));
        is_ours.then(|| flags.unwrap_or_default())
    });
    for flags in opened {
        let flags =
            flags.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags").trim().to_owned();
        assert!(flags.ends_with('0'), "opened for writing: {flags}");
    }
}

#[test]
fn sqlite_statistics_do_not_prevent_writes() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT COLLATE NOCASE, x REAL DEFAULT (abs(-1.5)));
         CREATE UNIQUE INDEX i ON t(lower(v)) WHERE v IS NOT NULL;
         CREATE VIRTUAL TABLE places USING rtree(id, a, b);
         CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO places VALUES(new.id, 1, 2); END;
         ANALYZE;",
    );
    let source = db.source();
    let table = TestTable::from_source(&source, "t");
    assert_eq!(table.create(&[("v", ValueRef::Text("a"))]), "1 'a' 1.5");
    assert_eq!(table.create(&[("v", ValueRef::Text("A"))]), "another row already has these values");
    assert_eq!(table.delete(&[ValueRef::Integer(1)]), "1 'a' 1.5");
    let insert =
        super::kit::prepare(&source, "INSERT INTO t(v) VALUES(:v) RETURNING id").expect("a statement");
    let (rows, ..) = super::kit::run_write(insert.as_ref(), &[ValueRef::Text("b")], &super::kit::terms(None))
        .expect("done");
    assert_eq!(rows, ["2"], "numbers are not used again");
    assert_eq!(rows_of_places(&db), 2);
}

fn rows_of_places(db: &TestDb) -> i64 {
    db.connect().query_row("SELECT count(*) FROM places", [], |row| row.get(0)).expect("a number")
}
