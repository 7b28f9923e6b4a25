//! Single rows on the connection that all callers share: the same rows as on the pool, or nothing, whatever happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use contract::source::{CancelFlag, QuickRead, Reader, SourceError};
use contract::{Value, ValueRef};
use database::Database;
use test_databases::{Kind, Server, TestDatabase};
use tokio::runtime::Runtime;

use crate::kit::{open, reader, rows};

const TABLE: &str = "CREATE TABLE t (id integer PRIMARY KEY, v text, n numeric(9, 2));
    INSERT INTO t SELECT n, 'row ' || n, n + 0.25 FROM generate_series(1, 500) n;";

/// The table, and the statements of its database that wait for a lock.
fn with_locks(place: &TestDatabase, source: &Database) -> (Arc<dyn Reader>, Arc<dyn Reader>) {
    place.run(TABLE);
    place.run(&format!(
        "CREATE TABLE other (id integer PRIMARY KEY); INSERT INTO other VALUES (1);
         CREATE VIEW waiting AS SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'",
        place.name
    ));
    (reader(source, "t"), reader(source, "waiting"))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn quick(reader: &dyn Reader, id: i64) -> QuickRead {
    reader.get_quickly(&[ValueRef::Integer(id)]).expect("PostgreSQL has such a connection").await
}

/// Asks until the connection is there: it is opened in the background.
async fn opened(reader: &dyn Reader, id: i64) -> QuickRead {
    let started = Instant::now();
    loop {
        match quick(reader, id).await {
            QuickRead::Unknown => assert!(started.elapsed() < Duration::from_secs(20), "it is never opened"),
            found => return found,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn row(id: i64) -> QuickRead {
    let (text, number) = (format!("row {id}"), format!("{id}.25"));
    QuickRead::Row(vec![Value::Integer(id), Value::Text(text), Value::Text(number)])
}

/// How many of many reads at the same time are answered; each with its own row.
async fn own_rows(reader: &Arc<dyn Reader>) -> usize {
    let reads = (1..=510).map(|id| {
        let reader = Arc::clone(reader);
        tokio::spawn(async move { (id, quick(&*reader, id).await) })
    });
    let mut own = 0;
    for read in reads.collect::<Vec<_>>() {
        match read.await.unwrap() {
            (_, QuickRead::Unknown) => {}
            (id, found) if id > 500 => assert_eq!(found, QuickRead::NoRow),
            (id, found) => {
                assert_eq!(found, row(id));
                own += 1;
            }
        }
    }
    own
}

#[test]
fn callers_at_the_same_time_get_their_own_rows() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run(TABLE);
    let reader = reader(&open(&place), "t");
    runtime().block_on(async {
        assert_eq!(quick(&*reader, 1).await, QuickRead::Unknown, "one row needs no second connection");
        assert_eq!(opened(&*reader, 1).await, row(1));
        // More than may wait at the same time: the others go to the pool, and all of them on a machine that is too slow.
        let started = Instant::now();
        while own_rows(&reader).await < 64 {
            assert!(started.elapsed() < Duration::from_secs(60), "hardly any read is answered");
            opened(&*reader, 1).await;
        }
    });
}

#[test]
fn what_is_not_answered_at_once_is_unknown_and_stops() {
    let place = TestDatabase::new(Kind::Postgres);
    let source = open(&place);
    let (table, waiting) = with_locks(&place, &source);
    let other = reader(&source, "other");
    runtime().block_on(async {
        assert_eq!(opened(&*table, 1).await, row(1));
        let mut lock = place.hold("BEGIN; LOCK TABLE t;");
        let (locked, behind) = tokio::join!(quick(&*table, 1), quick(&*other, 1));
        assert_eq!((locked, behind), (QuickRead::Unknown, QuickRead::Unknown));
        // Also what a caller leaves behind.
        opened(&*other, 1).await;
        drop(tokio::time::timeout(Duration::from_millis(20), quick(&*table, 1)).await);
        let started = Instant::now();
        while !tokio::task::block_in_place(|| rows(&*waiting)).unwrap().is_empty() {
            assert!(started.elapsed() < Duration::from_secs(20), "a statement still waits");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        lock.end();
        assert_eq!(opened(&*table, 2).await, row(2));
    });
}

#[test]
fn a_changed_table_and_a_server_that_stops_are_no_wrong_answers() {
    let place = Server::start_private(Kind::Postgres).create_database();
    place.run(TABLE);
    let reader = reader(&open(&place), "t");
    runtime().block_on(async {
        assert_eq!(opened(&*reader, 1).await, row(1));
        place.server.stop();
        assert_eq!(quick(&*reader, 1).await, QuickRead::Unknown);
        place.server.start();
        assert_eq!(opened(&*reader, 2).await, row(2));
        place.run("UPDATE t SET v = repeat('x', 100000) WHERE id = 3");
        assert_eq!(quick(&*reader, 3).await, QuickRead::Unknown, "a large row");
        place.run("ALTER TABLE t ALTER COLUMN n TYPE text");
        for _ in 0..3 {
            assert_eq!(quick(&*reader, 2).await, QuickRead::Unknown);
        }
    });
    let error = reader.get(&[ValueRef::Integer(2)], &mut |_| ()).unwrap_err();
    assert!(matches!(error, SourceError::Incompatible { .. }), "{error:?}");
}

/// The same for a row that is read on the pool.
#[test]
fn a_caller_who_has_gone_away_does_not_wait_for_a_locked_row() {
    let place = TestDatabase::new(Kind::Postgres);
    let source = open(&place);
    let (table, waiting) = with_locks(&place, &source);
    let mut lock = place.hold("BEGIN; LOCK TABLE t;");
    let cancelled = CancelFlag::default();
    let read = std::thread::scope(|scope| {
        let read = scope.spawn(|| table.get_cancellable(&[ValueRef::Integer(1)], &cancelled, &mut |_| ()));
        let started = Instant::now();
        while rows(&*waiting).unwrap().is_empty() {
            assert!(started.elapsed() < Duration::from_secs(20), "it never waits");
        }
        cancelled.store(true, Ordering::Relaxed);
        read.join().unwrap()
    });
    assert!(matches!(read, Err(SourceError::Cancelled)), "{read:?}");
    assert!(rows(&*waiting).unwrap().is_empty(), "the statement still waits");
    lock.end();
}
