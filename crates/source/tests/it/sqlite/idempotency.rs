//! The same idempotency key returns the first result; another request under the same key is rejected.

use contract::source::{IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, RowChange, WriteError};
use contract::{Value, ValueRef};

use super::kit::{RecordingChecks, TestDb, TestTable, idempotency_key, prepare, run_write, terms};
use crate::driver::{WriteOutcome, WriteRequest};

fn shop() -> TestDb {
    TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
}

fn count_records(db: &TestDb) -> i64 {
    db.connect().query_row("SELECT count(*) FROM _spile_idempotency", [], |row| row.get(0)).expect("a table")
}

#[test]
fn a_repeated_call_returns_the_first_result_and_changes_nothing() {
    for mode in ["DELETE", "WAL"] {
        let db = shop();
        db.execute(&format!("PRAGMA journal_mode = {mode}"));
        let table = TestTable::new(&db, "t");
        let values = table.named_values(&[("v", ValueRef::Text("a"))]);
        let create = || RowChange::Create { values: &values };
        let mut checks = RecordingChecks::default();
        assert_eq!(table.change_with(create(), idempotency_key(1, 1), &mut checks), "1 'a'");
        assert_eq!(
            table.change_with(create(), idempotency_key(1, 1), &mut RecordingChecks::default()),
            "again: 1 'a'"
        );
        let response = table.change_with(create(), idempotency_key(1, 2), &mut RecordingChecks::default());
        assert_eq!(response, "this idempotency key was already used for a different request");
        assert_eq!(
            table.change_with(create(), idempotency_key(2, 1), &mut RecordingChecks::default()),
            "2 'a'"
        );
        // Another source, and a row that changed since.
        let other = TestTable::new(&db, "t");
        other.update(&[ValueRef::Integer(1)], &[("v", ValueRef::Text("z"))]);
        assert_eq!(
            other.change_with(create(), idempotency_key(1, 1), &mut RecordingChecks::default()),
            "again: 1 'a'"
        );
        assert_eq!(count_records(&db), 2);
    }
}

#[test]
fn rejected_writes_and_dry_runs_store_no_record() {
    let db = shop();
    db.execute("INSERT INTO t VALUES(1, 'a')");
    let table = TestTable::new(&db, "t");
    let taken = table.named_values(&[("id", ValueRef::Integer(1))]);
    let response = table.change_with(
        RowChange::Create { values: &taken },
        idempotency_key(1, 1),
        &mut RecordingChecks::default(),
    );
    assert_eq!(response, "a row with this key already exists");
    let mut stale = RecordingChecks { is_stale: true, ..RecordingChecks::default() };
    let update = || RowChange::Update { key: &[ValueRef::Integer(1)], values: &[(1, ValueRef::Text("b"))] };
    table.change_with(update(), idempotency_key(1, 1), &mut stale);
    let dry = WriteRequest {
        change: update(),
        idempotency_key: idempotency_key(1, 1),
        dry_run: true,
        now_ms: 1,
        cancelled: None,
    };
    assert_eq!(table.write(&dry, &mut RecordingChecks::default()).expect("would do"), WriteOutcome::Done);
    let tables: i64 = db
        .connect()
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = '_spile_idempotency'", [], |row| {
            row.get(0)
        })
        .expect("a number");
    assert_eq!(tables, 0, "nothing was kept, so nothing was made");
    assert_eq!(table.change_with(update(), idempotency_key(1, 1), &mut RecordingChecks::default()), "1 'b'");
}

#[test]
fn the_record_table_is_hidden() {
    let db = shop();
    let table = TestTable::new(&db, "t");
    let values = table.named_values(&[("v", ValueRef::Text("a"))]);
    table.change_with(
        RowChange::Create { values: &values },
        idempotency_key(1, 1),
        &mut RecordingChecks::default(),
    );
    let facts = db.facts();
    assert_eq!(facts.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["t"]);
    assert!(facts.skipped_tables.is_empty() && facts.notes.is_empty());
    for sql in [
        "SELECT * FROM _spile_idempotency",
        "DELETE FROM _SPILE_IDEMPOTENCY",
        "SELECT (SELECT response FROM _spile_idempotency)",
    ] {
        let error = prepare(&db.source(), sql).err().expect("refused");
        assert_eq!(error.message, "this table belongs to Spile; statements cannot use it", "{sql}");
    }
}

#[test]
fn expired_and_excess_records_are_deleted() {
    let db = shop();
    let table = TestTable::new(&db, "t");
    let values = table.named_values(&[("v", ValueRef::Text("a"))]);
    let write = |id: u8, now_ms: u64| {
        let write = WriteRequest {
            change: RowChange::Create { values: &values },
            idempotency_key: idempotency_key(id, 1),
            dry_run: false,
            now_ms,
            cancelled: None,
        };
        table.write(&write, &mut RecordingChecks::default()).expect("written")
    };
    assert_eq!(write(1, 1_000), WriteOutcome::Done);
    assert_eq!(write(2, 1_000 + IDEMPOTENCY_RETENTION_MS), WriteOutcome::Done);
    assert!(
        matches!(write(1, 1_000 + IDEMPOTENCY_RETENTION_MS), WriteOutcome::Replayed(_)),
        "as old as it may get"
    );
    assert_eq!(write(3, 1_001 + IDEMPOTENCY_RETENTION_MS), WriteOutcome::Done);
    assert_eq!(count_records(&db), 2, "the first is too old");
    let many = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) \
         INSERT INTO _spile_idempotency(key_digest, request_digest, response, created_ms) SELECT randomblob(32), x'00', x'00', {} FROM n",
        IDEMPOTENCY_RECORDS_MAX,
        2_000 + IDEMPOTENCY_RETENTION_MS
    );
    db.execute(&many);
    assert_eq!(write(4, 3_000 + IDEMPOTENCY_RETENTION_MS), WriteOutcome::Done);
    assert_eq!(count_records(&db), i64::try_from(IDEMPOTENCY_RECORDS_MAX).expect("small"));
    assert!(
        matches!(write(4, 3_000 + IDEMPOTENCY_RETENTION_MS), WriteOutcome::Replayed(_)),
        "the newest is there"
    );
    assert_eq!(write(2, 3_000 + IDEMPOTENCY_RETENTION_MS), WriteOutcome::Done, "the oldest is not");
}

#[test]
fn a_view_with_the_name_of_the_record_table_rejects_keys() {
    let db = shop();
    db.execute("CREATE VIEW _spile_idempotency AS SELECT 1");
    let table = TestTable::new(&db, "t");
    let values = table.named_values(&[("v", ValueRef::Text("a"))]);
    let response = table.change_with(
        RowChange::Create { values: &values },
        idempotency_key(1, 1),
        &mut RecordingChecks::default(),
    );
    assert_eq!(
        response,
        "nothing was written: the database has a view named `_spile_idempotency`, which Spile needs as a table to remember \
         calls with an idempotency key and calls that a user confirmed; leave out the key, or have the owner of the \
         database remove the view"
    );
    assert_eq!(table.get(&[ValueRef::Integer(1)]), None);
    assert_eq!(table.create(&[("v", ValueRef::Text("a"))]), "1 'a'");
}

#[test]
fn statements_support_idempotency_keys() {
    let db = shop();
    let source = db.source();
    let insert = prepare(&source, "INSERT INTO t(v) VALUES(:v) RETURNING id").expect("a statement");
    let arguments = [ValueRef::Text("a")];
    let (rows, written, changed) =
        run_write(insert.as_ref(), &arguments, &terms(idempotency_key(1, 1))).expect("written");
    assert_eq!((rows, written, changed), (vec!["1".to_owned()], WriteOutcome::Done, Some(1)));
    let (rows, written, changed) =
        run_write(insert.as_ref(), &arguments, &terms(idempotency_key(1, 1))).expect("repeated");
    assert_eq!((rows, written, changed), (vec![], WriteOutcome::Replayed(b"1 changed".to_vec()), None));
    let error = run_write(insert.as_ref(), &arguments, &terms(idempotency_key(1, 2))).expect_err("refused");
    assert!(matches!(error, WriteError::IdempotencyKeyReused));
    let table = TestTable::from_source(&source, "t");
    assert_eq!(table.get(&[ValueRef::Integer(1)]), Some(vec![Value::Integer(1), Value::Text("a".into())]));
    assert_eq!(table.get(&[ValueRef::Integer(2)]), None);
}
