//! The same claim again gets what was told the first time; another question under it gets nothing.

use contract::source::{
    IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, RowChange, WriteError, WriteOutcome, WriteRequest,
};
use contract::{Value, ValueRef};

use super::kit::{RecordingChecks, TestDb, TestTable, idempotency_key, prepare, run_write, terms};

fn shop() -> TestDb {
    TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
}

fn count_records(db: &TestDb) -> i64 {
    db.connect().query_row("SELECT count(*) FROM _spile_claims", [], |row| row.get(0)).expect("a table")
}

#[test]
fn a_repetition_is_told_the_same_and_does_nothing() {
    for mode in ["DELETE", "WAL"] {
        let db = shop();
        db.execute(&format!("PRAGMA journal_mode = {mode}"));
        let desk = TestTable::new(&db, "t");
        let cells = desk.named_values(&[("v", ValueRef::Text("a"))]);
        let create = || RowChange::Create { values: &cells };
        let mut notary = RecordingChecks::default();
        assert_eq!(desk.change_with(create(), idempotency_key(1, 1), &mut notary), "1 'a'");
        assert_eq!(
            desk.change_with(create(), idempotency_key(1, 1), &mut RecordingChecks::default()),
            "again: 1 'a'"
        );
        let told = desk.change_with(create(), idempotency_key(1, 2), &mut RecordingChecks::default());
        assert_eq!(told, "this idempotency key was already used for a different request");
        assert_eq!(
            desk.change_with(create(), idempotency_key(2, 1), &mut RecordingChecks::default()),
            "2 'a'"
        );
        // Another desk, and a row that changed since.
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
fn what_was_refused_or_only_tried_is_not_claimed() {
    let db = shop();
    db.execute("INSERT INTO t VALUES(1, 'a')");
    let desk = TestTable::new(&db, "t");
    let taken = desk.named_values(&[("id", ValueRef::Integer(1))]);
    let told = desk.change_with(
        RowChange::Create { values: &taken },
        idempotency_key(1, 1),
        &mut RecordingChecks::default(),
    );
    assert_eq!(told, "a row with this key already exists");
    let mut stale = RecordingChecks { is_stale: true, ..RecordingChecks::default() };
    let update = || RowChange::Update { key: &[ValueRef::Integer(1)], values: &[(1, ValueRef::Text("b"))] };
    desk.change_with(update(), idempotency_key(1, 1), &mut stale);
    let dry = WriteRequest {
        change: update(),
        idempotency_key: idempotency_key(1, 1),
        dry_run: true,
        now_ms: 1,
        cancelled: None,
    };
    assert_eq!(desk.write(&dry, &mut RecordingChecks::default()).expect("would do"), WriteOutcome::Done);
    let tables: i64 = db
        .connect()
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = '_spile_claims'", [], |row| row.get(0))
        .expect("a number");
    assert_eq!(tables, 0, "nothing was kept, so nothing was made");
    assert_eq!(desk.change_with(update(), idempotency_key(1, 1), &mut RecordingChecks::default()), "1 'b'");
}

#[test]
fn nobody_is_shown_the_table() {
    let db = shop();
    let desk = TestTable::new(&db, "t");
    let cells = desk.named_values(&[("v", ValueRef::Text("a"))]);
    desk.change_with(
        RowChange::Create { values: &cells },
        idempotency_key(1, 1),
        &mut RecordingChecks::default(),
    );
    let facts = db.facts();
    assert_eq!(facts.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["t"]);
    assert!(facts.skipped_tables.is_empty() && facts.notes.is_empty());
    for sql in [
        "SELECT * FROM _spile_claims",
        "DELETE FROM _SPILE_CLAIMS",
        "SELECT (SELECT told FROM _spile_claims)",
    ] {
        let bad = prepare(&db.source(), sql).err().expect("refused");
        assert_eq!(bad.message, "this table is Spile's own, and not for statements", "{sql}");
    }
}

#[test]
fn old_claims_go_and_so_do_too_many() {
    let db = shop();
    let desk = TestTable::new(&db, "t");
    let cells = desk.named_values(&[("v", ValueRef::Text("a"))]);
    let write = |id: u8, now_ms: u64| {
        let write = WriteRequest {
            change: RowChange::Create { values: &cells },
            idempotency_key: idempotency_key(id, 1),
            dry_run: false,
            now_ms,
            cancelled: None,
        };
        desk.write(&write, &mut RecordingChecks::default()).expect("written")
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
         INSERT INTO _spile_claims(id, asked, told, at_ms) SELECT randomblob(32), x'00', x'00', {} FROM n",
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
fn an_owner_can_forbid_the_table() {
    let db = shop();
    db.execute("CREATE VIEW _spile_claims AS SELECT 1");
    let desk = TestTable::new(&db, "t");
    let cells = desk.named_values(&[("v", ValueRef::Text("a"))]);
    let told = desk.change_with(
        RowChange::Create { values: &cells },
        idempotency_key(1, 1),
        &mut RecordingChecks::default(),
    );
    assert_eq!(
        told,
        "nothing was written: the database has a view named `_spile_claims`, so nobody could know whether a call with \
         an idempotency key, or one that a user said yes to, was done already; to write without, leave out the key, or \
         have the owner remove the view"
    );
    assert_eq!(desk.get(&[ValueRef::Integer(1)]), None);
    assert_eq!(desk.create(&[("v", ValueRef::Text("a"))]), "1 'a'");
}

#[test]
fn statements_have_claims_too() {
    let db = shop();
    let source = db.source();
    let insert = prepare(&source, "INSERT INTO t(v) VALUES(:v) RETURNING id").expect("a statement");
    let arguments = [ValueRef::Text("a")];
    let (rows, written, changed) =
        run_write(insert.as_ref(), &arguments, &terms(idempotency_key(1, 1))).expect("written");
    assert_eq!((rows, written, changed), (vec!["1".to_owned()], WriteOutcome::Done, Some(1)));
    let (rows, written, changed) =
        run_write(insert.as_ref(), &arguments, &terms(idempotency_key(1, 1))).expect("told again");
    assert_eq!((rows, written, changed), (vec![], WriteOutcome::Replayed(b"1 changed".to_vec()), None));
    let fault = run_write(insert.as_ref(), &arguments, &terms(idempotency_key(1, 2))).expect_err("refused");
    assert!(matches!(fault, WriteError::IdempotencyKeyReused));
    let desk = TestTable::from_source(&source, "t");
    assert_eq!(desk.get(&[ValueRef::Integer(1)]), Some(vec![Value::Integer(1), Value::Text("a".into())]));
    assert_eq!(desk.get(&[ValueRef::Integer(2)]), None);
}
