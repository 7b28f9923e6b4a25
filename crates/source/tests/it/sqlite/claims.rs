//! The same claim again gets what was told the first time; another question under it gets nothing.

use contract::source::{CLAIM_AGE_MS, CLAIMS_MAX, Change, Write, WriteFault, Written};
use contract::{Cell, Value};

use super::kit::{Db, Desk, Notary, claim, prepared, ran, terms};

fn shop() -> Db {
    Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
}

fn claims(db: &Db) -> i64 {
    db.writer().query_row("SELECT count(*) FROM _spile_claims", [], |row| row.get(0)).expect("a table")
}

#[test]
fn a_repetition_is_told_the_same_and_does_nothing() {
    for mode in ["DELETE", "WAL"] {
        let db = shop();
        db.write(&format!("PRAGMA journal_mode = {mode}"));
        let desk = Desk::new(&db, "t");
        let cells = desk.cells(&[("v", Cell::Text("a"))]);
        let create = || Change::Create { cells: &cells };
        let mut notary = Notary::default();
        assert_eq!(desk.change_with(create(), claim(1, 1), &mut notary), "1 'a'");
        assert_eq!(desk.change_with(create(), claim(1, 1), &mut Notary::default()), "again: 1 'a'");
        let told = desk.change_with(create(), claim(1, 2), &mut Notary::default());
        assert_eq!(told, "this idempotency key was used for something else");
        assert_eq!(desk.change_with(create(), claim(2, 1), &mut Notary::default()), "2 'a'");
        // Another desk, and a row that changed since.
        let other = Desk::new(&db, "t");
        other.update(&[Cell::Integer(1)], &[("v", Cell::Text("z"))]);
        assert_eq!(other.change_with(create(), claim(1, 1), &mut Notary::default()), "again: 1 'a'");
        assert_eq!(claims(&db), 2);
    }
}

#[test]
fn what_was_refused_or_only_tried_is_not_claimed() {
    let db = shop();
    db.write("INSERT INTO t VALUES(1, 'a')");
    let desk = Desk::new(&db, "t");
    let taken = desk.cells(&[("id", Cell::Integer(1))]);
    let told = desk.change_with(Change::Create { cells: &taken }, claim(1, 1), &mut Notary::default());
    assert_eq!(told, "there is a record with this key already");
    let mut stale = Notary { is_stale: true, ..Notary::default() };
    let update = || Change::Update { key: &[Cell::Integer(1)], cells: &[(1, Cell::Text("b"))] };
    desk.change_with(update(), claim(1, 1), &mut stale);
    let dry = Write { change: update(), claim: claim(1, 1), dry_run: true, now_ms: 1, stop: None };
    assert_eq!(desk.write(&dry, &mut Notary::default()).expect("would do"), Written::Done);
    let tables: i64 = db
        .writer()
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = '_spile_claims'", [], |row| row.get(0))
        .expect("a number");
    assert_eq!(tables, 0, "nothing was kept, so nothing was made");
    assert_eq!(desk.change_with(update(), claim(1, 1), &mut Notary::default()), "1 'b'");
}

#[test]
fn nobody_is_shown_the_table() {
    let db = shop();
    let desk = Desk::new(&db, "t");
    let cells = desk.cells(&[("v", Cell::Text("a"))]);
    desk.change_with(Change::Create { cells: &cells }, claim(1, 1), &mut Notary::default());
    let facts = db.facts();
    assert_eq!(facts.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["t"]);
    assert!(facts.left_out.is_empty() && facts.notes.is_empty());
    for sql in [
        "SELECT * FROM _spile_claims",
        "DELETE FROM _SPILE_CLAIMS",
        "SELECT (SELECT told FROM _spile_claims)",
    ] {
        let bad = prepared(&db.source(), sql).err().expect("refused");
        assert_eq!(bad.message, "this table is Spile's own, and not for statements", "{sql}");
    }
}

#[test]
fn old_claims_go_and_so_do_too_many() {
    let db = shop();
    let desk = Desk::new(&db, "t");
    let cells = desk.cells(&[("v", Cell::Text("a"))]);
    let write = |id: u8, now_ms: u64| {
        let write = Write {
            change: Change::Create { cells: &cells },
            claim: claim(id, 1),
            dry_run: false,
            now_ms,
            stop: None,
        };
        desk.write(&write, &mut Notary::default()).expect("written")
    };
    assert_eq!(write(1, 1_000), Written::Done);
    assert_eq!(write(2, 1_000 + CLAIM_AGE_MS), Written::Done);
    assert!(matches!(write(1, 1_000 + CLAIM_AGE_MS), Written::Replayed(_)), "as old as it may get");
    assert_eq!(write(3, 1_001 + CLAIM_AGE_MS), Written::Done);
    assert_eq!(claims(&db), 2, "the first is too old");
    let many = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) \
         INSERT INTO _spile_claims(id, asked, told, at_ms) SELECT randomblob(32), x'00', x'00', {} FROM n",
        CLAIMS_MAX,
        2_000 + CLAIM_AGE_MS
    );
    db.write(&many);
    assert_eq!(write(4, 3_000 + CLAIM_AGE_MS), Written::Done);
    assert_eq!(claims(&db), i64::try_from(CLAIMS_MAX).expect("small"));
    assert!(matches!(write(4, 3_000 + CLAIM_AGE_MS), Written::Replayed(_)), "the newest is there");
    assert_eq!(write(2, 3_000 + CLAIM_AGE_MS), Written::Done, "the oldest is not");
}

#[test]
fn an_owner_can_forbid_the_table() {
    let db = shop();
    db.write("CREATE VIEW _spile_claims AS SELECT 1");
    let desk = Desk::new(&db, "t");
    let cells = desk.cells(&[("v", Cell::Text("a"))]);
    let told = desk.change_with(Change::Create { cells: &cells }, claim(1, 1), &mut Notary::default());
    assert_eq!(
        told,
        "nothing was written: the database has a view named `_spile_claims`, so nobody could know whether a call with \
         an idempotency key, or one that a user said yes to, was done already; to write without, leave out the key, or \
         have the owner remove the view"
    );
    assert_eq!(desk.get(&[Cell::Integer(1)]), None);
    assert_eq!(desk.create(&[("v", Cell::Text("a"))]), "1 'a'");
}

#[test]
fn statements_have_claims_too() {
    let db = shop();
    let source = db.source();
    let insert = prepared(&source, "INSERT INTO t(v) VALUES(:v) RETURNING id").expect("a statement");
    let arguments = [Cell::Text("a")];
    let (rows, written, changed) = ran(insert.as_ref(), &arguments, &terms(claim(1, 1))).expect("written");
    assert_eq!((rows, written, changed), (vec!["1".to_owned()], Written::Done, Some(1)));
    let (rows, written, changed) = ran(insert.as_ref(), &arguments, &terms(claim(1, 1))).expect("told again");
    assert_eq!((rows, written, changed), (vec![], Written::Replayed(b"1 changed".to_vec()), None));
    let fault = ran(insert.as_ref(), &arguments, &terms(claim(1, 2))).expect_err("refused");
    assert!(matches!(fault, WriteFault::ClaimedOtherwise));
    let desk = Desk::of(&source, "t");
    assert_eq!(desk.get(&[Cell::Integer(1)]), Some(vec![Value::Integer(1), Value::Text("a".into())]));
    assert_eq!(desk.get(&[Cell::Integer(2)]), None);
}
