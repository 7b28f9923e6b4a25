//! Rows are fresh, and writers are not blocked.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::source::{CancelFlag, Query, Reader, Source, SourceError, Total};
use contract::{Value, ValueRef};
use rusqlite::Connection;

use super::kit::{TestDb, all, equals, format_value, get, list, sort_by};

const MODES: [&str; 2] = ["DELETE", "WAL"];

/// The maximum age of a row, and the maximum time that a writer waits.
const LATENCY_MAX: Duration = Duration::from_millis(50);

fn counter(mode: &str) -> TestDb {
    TestDb::new(&format!(
        "PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v INT); INSERT INTO t VALUES(1, 0)"
    ))
}

/// A counter's value, read by its key.
fn count(reader: &dyn Reader) -> i64 {
    match get(reader, &[ValueRef::Integer(1)]).expect("a result").expect("a row")[1] {
        Value::Integer(n) => n,
        ref other => panic!("{other:?}"),
    }
}

/// Reads by key so often that the pool keeps a snapshot.
fn read_closely(reader: &dyn Reader) {
    (0..2_000).for_each(|_| {
        count(reader);
    });
}

/// Checkpoints and truncates the log. Whether that was possible.
fn truncate_wal(writer: &Connection) -> bool {
    let busy: i64 =
        writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).expect("an answer");
    busy == 0
}

#[test]
fn a_list_sees_earlier_commits() {
    for mode in MODES {
        let db = counter(mode);
        let (_, reader) = db.reader("t");
        let writer = db.connect();
        for turn in 1..50_i64 {
            read_closely(reader.as_ref());
            writer.execute("UPDATE t SET v = ?1", [turn]).expect("written");
            assert_eq!(all(reader.as_ref())[0][1], Value::Integer(turn), "{mode}");
        }
        writer.execute_batch("BEGIN IMMEDIATE; UPDATE t SET v = 99").expect("written");
        assert_eq!(count(reader.as_ref()), 49, "{mode}: not committed yet");
        writer.execute_batch("ROLLBACK").expect("rolled back");
    }
}

#[test]
fn a_row_is_at_most_50_ms_old() {
    for mode in MODES {
        let db = counter(mode);
        let (_, reader) = db.reader("t");
        let writer = db.connect();
        for turn in 1..50_i64 {
            read_closely(reader.as_ref());
            writer.execute("UPDATE t SET v = ?1", [turn]).expect("written");
            let committed = Instant::now();
            loop {
                let age = committed.elapsed();
                let seen = count(reader.as_ref());
                if seen == turn {
                    break;
                }
                assert_eq!((mode, seen), ("WAL", turn - 1), "one state or the other");
                assert!(age < LATENCY_MAX, "still {seen} after {age:?}");
            }
        }
    }
}

#[test]
fn reads_by_key_delay_no_checkpoint() {
    let db = counter("WAL");
    let (_, reader) = db.reader("t");
    let (is_done, seen_by_now) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let least = seen_by_now.load(Ordering::Relaxed);
                    assert!(count(reader.as_ref()) >= least, "older than promised");
                }
            });
        }
        let _done = DoneGuard(&is_done);
        let writer = db.connect();
        writer.busy_timeout(LATENCY_MAX).expect("a timeout");
        for turn in 1..10_i64 {
            writer.execute("UPDATE t SET v = ?1", [turn]).expect("written");
            std::thread::sleep(LATENCY_MAX);
            seen_by_now.store(turn, Ordering::Relaxed);
            assert!(truncate_wal(&writer), "a reader was in the way");
        }
    });
}

/// An open snapshot would keep the log from restarting.
#[test]
fn no_snapshot_is_kept_without_reads() {
    let db = counter("WAL");
    let (_, reader) = db.reader("t");
    let writer = db.connect();
    for turn in 1..10_i64 {
        writer.execute("UPDATE t SET v = ?1", [turn]).expect("written");
        // The first reads notice the commit, and keep no snapshot for a while.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            read_closely(reader.as_ref());
        }
        let last = Instant::now();
        while !truncate_wal(&writer) {
            assert!(last.elapsed() < LATENCY_MAX, "still kept");
        }
    }
}

/// A log grows as long as a reader uses it whenever a writer would restart it.
#[test]
fn the_log_of_a_busy_writer_stays_short_during_reads() {
    const PAGES: u64 = 20;
    let db = counter("WAL");
    let (_, reader) = db.reader("t");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                count(reader.as_ref());
            }
        });
        let _done = DoneGuard(&is_done);
        let writer = db.connect();
        writer
            .execute_batch(&format!("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = {PAGES}"))
            .expect("set");
        for turn in 1..40_000_i64 {
            writer.execute("UPDATE t SET v = ?1", [turn]).expect("written");
        }
        let log = std::fs::metadata(db.folder.path().join("shop.db-wal")).expect("a log").len();
        // It is a third of this if every read stands alone, and more if snapshots are kept regardless.
        assert!(log < 4096 * PAGES * 100, "{log} bytes");
    });
}

#[test]
fn with_a_rollback_journal_no_lock_is_held_between_reads() {
    let db = counter("DELETE");
    let (_, reader) = db.reader("t");
    let writer = db.connect();
    writer.busy_timeout(Duration::ZERO).expect("a timeout");
    for _ in 0..50 {
        read_closely(reader.as_ref());
        writer
            .execute_batch("BEGIN EXCLUSIVE; UPDATE t SET v = v + 1; COMMIT")
            .expect("no reader is in the way");
    }
}

#[test]
fn a_table_altered_between_reads_is_read_correctly() {
    let db = counter("WAL");
    let (_, reader) = db.reader("t");
    let writer = db.connect();
    let soon = |expected: fn(&Result<Option<Vec<Value>>, SourceError>) -> bool| {
        let start = Instant::now();
        loop {
            let age = start.elapsed();
            let found = get(reader.as_ref(), &[ValueRef::Integer(1)]);
            if expected(&found) {
                return;
            }
            assert!(age < LATENCY_MAX, "still {found:?}");
        }
    };
    for change in ["ALTER TABLE t RENAME COLUMN v TO w", "ALTER TABLE t DROP COLUMN v", "DROP TABLE t"] {
        read_closely(reader.as_ref());
        writer.execute_batch(change).expect("changed");
        soon(|found| matches!(found, Err(SourceError::Incompatible { .. })));
        let again = "DROP TABLE IF EXISTS t; CREATE TABLE t(more, v INT, id INTEGER PRIMARY KEY);
            INSERT INTO t VALUES('more', 7, 1)";
        writer.execute_batch(again).expect("made again");
        soon(|found| matches!(found, Ok(Some(row)) if row[1] == Value::Integer(7)));
    }
}

/// Another database replaces the one that is served. Both were made by the same statements, so nothing in
/// them differs.
fn check_file_replaced(mode: &str, replace: impl Fn(&TestDb, &TestDb)) {
    let made = |v: &str| {
        let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, ";
        TestDb::new(&format!("PRAGMA journal_mode = {mode}; {sql}'{v}')"))
    };
    let (db, other) = (made("old"), made("new"));
    let (_, reader) = db.reader("t");
    let read =
        || format_value(&get(reader.as_ref(), &[ValueRef::Integer(1)]).expect("a result").expect("a row")[1]);
    (0..2_000).for_each(|_| assert_eq!(read(), "'old'"));
    replace(&db, &other);
    while read() == "'old'" {}
    assert_eq!(read(), "'new'");
}

#[test]
fn a_file_renamed_over_the_database_is_read_soon() {
    for mode in ["delete", "wal"] {
        check_file_replaced(mode, |db, other| std::fs::rename(&other.path, &db.path).expect("renamed"));
    }
}

#[test]
fn a_file_copied_over_the_database_is_read_soon() {
    for mode in ["delete", "wal"] {
        check_file_replaced(mode, |db, other| {
            std::fs::copy(&other.path, &db.path).expect("copied");
        });
    }
}

/// Two keys may denote the same time and are still two keys.
#[test]
fn equal_timestamps_in_different_spellings_are_different_keys() {
    let keys = ["2024-01-01T00:00:00Z", "2024-01-01T02:00:00+02:00", "2024-01-02T00:00:00Z"];
    let db = TestDb::new("CREATE TABLE t(k TEXT PRIMARY KEY NOT NULL, v INTEGER)");
    for (at, key) in keys.iter().enumerate() {
        db.execute(&format!("INSERT INTO t VALUES('{key}', {at})"));
    }
    let (_, reader) = db.reader("t");
    for (at, key) in keys.iter().enumerate() {
        let row = get(reader.as_ref(), &[ValueRef::Text(key)]).expect("a result").expect("a row");
        assert_eq!((format_value(&row[0]), format_value(&row[1])), (format!("'{key}'"), at.to_string()));
    }
}

/// Sets the flag when it is dropped, so that a failed test does not wait for its writer.
struct DoneGuard<'a>(&'a AtomicBool);

impl Drop for DoneGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Retries while the writer leaves no gap, or while a busy machine leaves no time.
fn retry_while_busy<T>(mut read: impl FnMut() -> Result<T, SourceError>) -> T {
    loop {
        match read() {
            Err(SourceError::Busy { .. } | SourceError::Timeout) => {}
            other => return other.expect("a result"),
        }
    }
}

/// A program that commits again and again, and waits no longer than promised.
struct CommittingWriter {
    connection: Connection,
    commits: u32,
    /// How often that was too short. On a busy machine that happens now and then.
    late: u32,
}

impl CommittingWriter {
    fn new(db: &TestDb) -> Self {
        let connection = db.connect();
        connection.busy_timeout(LATENCY_MAX).expect("a timeout");
        Self { connection, commits: 0, late: 0 }
    }

    fn commit(&mut self, sql: &str) -> bool {
        match self.connection.execute(sql, []) {
            Ok(_) => {
                self.commits += 1;
                true
            }
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                self.late += 1;
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A lock held for longer than promised makes nearly all commits late.
    fn assert_not_starved(&self) {
        assert!(self.commits > self.late, "{} commits, {} late", self.commits, self.late);
    }
}

const ROWS: u64 = 60_000;

/// Enough rows that sorting them takes several times as long as a lock may be held.
fn large(mode: &str) -> TestDb {
    TestDb::new(&format!(
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = {mode};
         CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, score INTEGER, at TEXT);
         CREATE TABLE other(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO other VALUES(1, 0);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO t SELECT i, 'name ' || (i * 7919 % 120011), i * 31 % 1009,
             printf('2026-01-01 %02d:%02d:%02d', i / 3600 % 24, i / 60 % 60, i % 60) FROM n;"
    ))
}

/// Another program commits while a list runs: behind its first rows, and before its last.
#[test]
fn a_long_list_does_not_block_writers() {
    for mode in MODES {
        let db = large(mode);
        let (_, reader) = db.reader("t");
        let (is_done, progress, in_between) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = CommittingWriter::new(&db);
                let mut last = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let before = progress.load(Ordering::SeqCst);
                    // With pauses: a program that writes all the time leaves no time for readers.
                    if before.abs_diff(last) < ROWS / 30 {
                        std::thread::yield_now();
                        continue;
                    }
                    last = before;
                    let is_committed = writer.commit("UPDATE other SET n = n + 1");
                    let after = progress.load(Ordering::SeqCst);
                    if is_committed && 0 < before && before <= after && after < ROWS {
                        in_between.fetch_add(1, Ordering::SeqCst);
                    }
                }
                writer.assert_not_starved();
            });
            let _done = DoneGuard(&is_done);
            for (sort, first) in
                [(sort_by(3, true), "16:40:00"), (sort_by(1, false), "name 1"), (sort_by(2, true), "1008")]
            {
                let query = Query {
                    sort: sort.into_iter().collect(),
                    rows_max: 20,
                    progress: Some(&progress),
                    ..Query::default()
                };
                let was_let_through = (0..LISTS_MAX).any(|_| {
                    let before = in_between.load(Ordering::SeqCst);
                    let (rows, _) = retry_while_busy(|| {
                        progress.store(0, Ordering::SeqCst);
                        list(reader.as_ref(), &query)
                    });
                    assert_eq!(rows.len(), 20);
                    let column = sort.expect("a sort").column;
                    assert!(format_value(&rows[0].0[column]).contains(first), "{mode} {:?}", rows[0]);
                    in_between.load(Ordering::SeqCst) > before
                });
                // In WAL mode a list does not block writers, so it need not release its lock.
                assert!(was_let_through || mode == "WAL", "{mode} {sort:?}");
            }
            let query = Query {
                filters: vec![equals(1, ValueRef::Text("name 5"))],
                rows_max: 20,
                ..Query::default()
            };
            let (rows, total) = retry_while_busy(|| list(reader.as_ref(), &query));
            assert_eq!(Some(Total::Exact(rows.len() as u64)), total);
        });
    }
}

/// In so many lists the writer may get no time on a processor.
const LISTS_MAX: u32 = 50;

#[test]
fn introspection_does_not_block_writers() {
    let db = large("DELETE");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = CommittingWriter::new(&db);
            while !is_done.load(Ordering::Relaxed) {
                writer.commit("UPDATE other SET n = n + 1");
            }
            writer.assert_not_starved();
        });
        let _done = DoneGuard(&is_done);
        let facts = retry_while_busy(|| db.source().introspect());
        assert_eq!(facts.tables[0].key, [0]);
    });
}

#[test]
fn a_row_that_changes_during_a_list_is_current_or_left_out() {
    let db = large("DELETE");
    let (_, reader) = db.reader("t");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = CommittingWriter::new(&db);
            // Ids that end in 7 leave the list for good, one after the other.
            for id in (7..60_000).step_by(10) {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                while !writer.commit(&format!("UPDATE t SET name = 'gone' WHERE id = {id}")) {}
            }
        });
        let _done = DoneGuard(&is_done);
        let query = Query { sort: sort_by(2, true).into_iter().collect(), rows_max: 50, ..Query::default() };
        for _ in 0..3 {
            let (rows, _) = retry_while_busy(|| list(reader.as_ref(), &query));
            assert_eq!(rows.len(), 50);
            let keys = |row: &super::kit::Row| match (&row.0[2], &row.0[0]) {
                (Value::Integer(score), Value::Integer(id)) => (-score, *id),
                other => panic!("{other:?}"),
            };
            assert!(rows.iter().map(keys).is_sorted());
        }
    });
}

#[test]
fn a_cancelled_list_stops() {
    let db = large("DELETE");
    let (_, reader) = db.reader("t");
    let stop = CancelFlag::new(AtomicBool::new(true));
    let query = Query {
        sort: sort_by(1, false).into_iter().collect(),
        rows_max: 20,
        cancelled: Some(&stop),
        ..Query::default()
    };
    assert!(matches!(list(reader.as_ref(), &query), Err(SourceError::Cancelled)));
    // Also when the flag is set while the list runs.
    stop.store(false, Ordering::Relaxed);
    let listed = std::thread::scope(|scope| {
        scope.spawn(|| stop.store(true, Ordering::Relaxed));
        list(reader.as_ref(), &query)
    });
    assert!(matches!(listed, Err(SourceError::Cancelled)), "{:?}", listed.map(|(rows, _)| rows.len()));
}
