//! The process is killed at any moment: acknowledged writes are there, nothing is there twice, and the
//! database is intact.
//!
//! The killed process is this test again, told by its environment where to write.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use contract::ValueRef;
use contract::source::{IdempotencyKey, RowChange, Source};
use source::sqlite::{Options, Sqlite};

use super::kit::{RecordingChecks, TestDb, TestTable};
use crate::driver::{WriteOutcome, WriteRequest};

const DATABASE_PATH_VAR: &str = "SPILE_TEST_WRITES_TO";
const FIRST_NUMBER_VAR: &str = "SPILE_TEST_WRITES_FROM";
/// An environment variable asks for more; every run does this many.
const ROUNDS: &str = "SPILE_TEST_ROUNDS";

fn idempotency_key_for(n: u64) -> Option<IdempotencyKey> {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&n.to_be_bytes());
    Some(IdempotencyKey { key_digest: id, request_digest: id })
}

/// Creates rows until it is killed, and reports each. Does nothing unless the environment asks for it.
#[test]
fn child() {
    let (Ok(path), Ok(from)) = (std::env::var(DATABASE_PATH_VAR), std::env::var(FIRST_NUMBER_VAR)) else {
        return;
    };
    let source = Sqlite::new(std::path::Path::new(&path), Options::default());
    // Another process may be writing right now.
    let table = loop {
        if let Ok(table) = TestTable::try_from_source(&source, "t") {
            break table;
        }
    };
    for n in from.parse::<u64>().expect("a number").. {
        loop {
            let name = n.to_string();
            let values = table.named_values(&[("name", ValueRef::Text(&name))]);
            let write = WriteRequest {
                change: RowChange::Create { values: &values },
                idempotency_key: idempotency_key_for(n),
                dry_run: false,
                now_ms: n,
                cancelled: None,
            };
            if table.write(&write, &mut RecordingChecks::default()).is_ok() {
                break;
            }
        }
        use std::io::Write as _;
        writeln!(std::io::stdout().lock(), "did {n}").expect("the parent reads");
    }
}

/// Starts a child and kills it after it has reported this many rows, or in the middle of the next.
fn run(path: &std::path::Path, from: u64, said_before_kill: usize, spin: u32) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "sqlite::crash::child", "--nocapture"])
        .env(DATABASE_PATH_VAR, path)
        .env(FIRST_NUMBER_VAR, from.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut did = Vec::new();
    let number = |line: String| line.rsplit_once("did ").and_then(|(_, n)| n.parse::<u64>().ok());
    while did.len() < said_before_kill {
        let line = lines.next().expect("it goes on").expect("a line");
        did.extend(number(line));
    }
    for _ in 0..spin {
        std::hint::spin_loop();
    }
    child.kill().expect("killed");
    child.wait().expect("gone");
    // What it reported before it was killed counts.
    did.extend(lines.map_while(Result::ok).filter_map(number));
    did
}

#[test]
fn no_acknowledged_write_is_lost_or_applied_twice() {
    let rounds: u64 = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10);
    for mode in ["DELETE", "WAL"] {
        let db = TestDb::new(&format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)"
        ));
        let mut from = 0;
        // Any different numbers.
        let mut dice = 0x9e37_79b9_u32;
        for _ in 0..rounds {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let did = run(&db.path, from, 1 + (dice >> 28) as usize, (dice >> 4) % 400_000);
            let last = *did.last().expect("at least one");
            // Whether the row after the last report was written is unknown. Asked again, it is written once.
            let source = db.source();
            let table = TestTable::from_source(&source, "t");
            for n in [last, last + 1] {
                let name = n.to_string();
                let values = table.named_values(&[("name", ValueRef::Text(&name))]);
                let write = WriteRequest {
                    change: RowChange::Create { values: &values },
                    idempotency_key: idempotency_key_for(n),
                    dry_run: false,
                    now_ms: n,
                    cancelled: None,
                };
                let written = table.write(&write, &mut RecordingChecks::default()).expect("written");
                assert!(
                    n != last || matches!(written, WriteOutcome::Replayed(_)),
                    "an acknowledged record is lost"
                );
            }
            from = last + 2;
            let other = db.connect();
            let sound: String =
                other.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer");
            assert_eq!(sound, "ok");
            let (rows, names): (i64, i64) = other
                .query_row("SELECT count(*), count(DISTINCT name) FROM t", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .expect("counts");
            let expected = i64::try_from(from).expect("small");
            assert_eq!((rows, names), (expected, expected), "{mode}: lost or doubled");
        }
        assert!(db.source().introspect().is_ok());
    }
}

#[test]
fn two_processes_take_turns() {
    for mode in ["DELETE", "WAL"] {
        let db = TestDb::new(&format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)"
        ));
        std::thread::scope(|scope| {
            let one = scope.spawn(|| run(&db.path, 0, 20, 0));
            let two = scope.spawn(|| run(&db.path, 1_000_000, 20, 0));
            let did: Vec<u64> = [one, two].into_iter().flat_map(|run| run.join().expect("ran")).collect();
            let other = db.connect();
            for n in did {
                let found: i64 = other
                    .query_row("SELECT count(*) FROM t WHERE name = ?1", [n.to_string()], |row| row.get(0))
                    .expect("a number");
                assert_eq!(found, 1, "{n}");
            }
        });
    }
}

#[test]
fn a_hot_journal_is_rolled_back_before_the_first_read() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         INSERT INTO t SELECT i, 'before' || i FROM n;",
    );
    // Half of a change, as it is on disk: so many pages that SQLite had to write some before the commit.
    let other = db.connect();
    other.execute_batch("PRAGMA cache_size = 2; BEGIN; UPDATE t SET name = 'after' || id").expect("begun");
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("shop.db");
    for (from, to) in [("shop.db", "shop.db"), ("shop.db-journal", "shop.db-journal")] {
        std::fs::copy(db.folder.path().join(from), folder.path().join(to)).expect("a copy");
    }
    assert!(
        std::fs::read(&copy).expect("bytes").windows(6).any(|bytes| bytes == b"after1"),
        "nothing was cut off"
    );
    let cut = TestDb { folder, path: copy };
    let (facts, reader) = cut.reader("t");
    assert_eq!(facts.row_count, Some(2_000));
    for id in [1, 1_000, 2_000] {
        let row =
            super::kit::get(reader.as_ref(), &[ValueRef::Integer(id)]).expect("a result").expect("a row");
        assert_eq!(row[1], contract::Value::Text(format!("before{id}")));
    }
    assert_eq!(cut.files(), ["shop.db"], "nothing is left of it");
}
