//! Databases that change, stop, hang or are busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use contract::source::{Aggregate, GROUPS_MAX, Measure, Query, RowFlow, Source, SourceError};
use database::Options;
use test_databases::{Kind, Server, TestDatabase};

use crate::kit::{KINDS, open, open_with, options, reader, rows};

fn with_rows(kind: Kind) -> TestDatabase {
    let place = TestDatabase::new(kind);
    place.run("CREATE TABLE t (id integer PRIMARY KEY, v integer); INSERT INTO t VALUES (1, 10), (2, 20)");
    place
}

#[test]
fn a_changed_table_is_an_error_before_it_is_a_wrong_answer() {
    for kind in KINDS {
        for change in ["ALTER TABLE t DROP COLUMN v", "DROP TABLE t"] {
            let place = with_rows(kind);
            let source = open(&place);
            let reader = reader(&source, "t");
            assert_eq!(rows(&*reader).unwrap().len(), 2, "{kind:?}");
            place.run(change);
            let error = rows(&*reader).unwrap_err();
            assert!(matches!(error, SourceError::Incompatible { .. }), "{kind:?} {change}: {error:?}");
        }
        let place = with_rows(kind);
        let source = open(&place);
        let reader = reader(&source, "t");
        rows(&*reader).unwrap();
        place.run(match kind {
            Kind::Postgres => "ALTER TABLE t ALTER COLUMN v TYPE numeric(5,1) USING v + 0.5",
            Kind::MariaDb => "ALTER TABLE t MODIFY v decimal(5,1)",
        });
        let error = rows(&*reader).unwrap_err();
        assert!(error.to_string().contains("column `v` has another type"), "{kind:?} {error:?}");
    }
}

#[test]
fn a_server_that_stops_is_unavailable_and_heals_by_itself() {
    for kind in KINDS {
        let place = Server::start_private(kind).create_database();
        place.run("CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1)");
        let source = open(&place);
        let reader = reader(&source, "t");
        for _ in 0..3 {
            rows(&*reader).unwrap();
            place.server.stop();
            let error = rows(&*reader).unwrap_err();
            assert!(matches!(error, SourceError::Unavailable { .. }), "{kind:?} {error:?}");
            place.server.start();
            let healed = Instant::now();
            while let Err(error) = rows(&*reader) {
                assert!(healed.elapsed() < Duration::from_secs(10), "{kind:?} {error:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // Restarted between two calls: the second one notices nothing.
        rows(&*reader).unwrap();
        place.server.stop();
        place.server.start();
        assert_eq!(rows(&*reader).unwrap().len(), 1, "{kind:?}");
    }
}

/// The database's own list of running statements.
fn running(place: &TestDatabase) -> usize {
    let source = open(place);
    let facts = source.introspect().unwrap();
    let _ = facts;
    let view = reader(&source, "running");
    rows(&*view).unwrap().len()
}

#[test]
fn a_caller_who_has_gone_away_stops_the_statement_in_the_database() {
    for kind in KINDS {
        let place = TestDatabase::new(kind);
        place.run(&match kind {
            Kind::Postgres => format!(
                "CREATE VIEW slow AS SELECT 1 AS id, pg_sleep(60)::text AS v;
                 CREATE VIEW running AS SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND state = 'active' AND query LIKE '%\"slow\"%';",
                place.name
            ),
            Kind::MariaDb => format!(
                "CREATE VIEW slow AS SELECT 1 AS id, SLEEP(60) AS v;
                 CREATE VIEW running AS SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}' AND INFO LIKE '%`slow`%'
                   AND INFO NOT LIKE '%PROCESSLIST%';",
                place.name
            ),
        });
        // Introspection would wait for the view, so that its shape is written down.
        let source = open_with(kind, Options { call_ms_max: 60_000, ..options(&place) });
        let column = |name: &str, data_type| contract::source::ColumnShape {
            source_index: 0,
            name: name.into(),
            data_type,
            nullable: true,
            mixed: false,
            null_texts: Vec::new(),
            format: None,
        };
        let value =
            if kind == Kind::Postgres { contract::DataType::Text } else { contract::DataType::Integer };
        let shape = contract::source::TableShape {
            table: "slow".into(),
            columns: vec![column("id", contract::DataType::Integer), column("v", value)],
            key: Vec::new(),
        };
        let slow = source.reader(&shape).unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                let question = Aggregate {
                    measures: vec![Measure::Of {
                        function: contract::source::AggregateFunction::Max,
                        column: 1,
                    }],
                    groups_max: GROUPS_MAX,
                    cancelled: Some(&gone),
                    ..Aggregate::default()
                };
                slow.aggregate(&question).map(|_| ())
            });
            let started = Instant::now();
            while running(&place) == 0 {
                assert!(started.elapsed() < Duration::from_secs(30), "{kind:?}: it never ran");
            }
            gone.store(true, Ordering::Relaxed);
            let ended = call.join().unwrap();
            assert!(matches!(ended, Err(SourceError::Cancelled)), "{kind:?} {ended:?}");
            let stopped = Instant::now();
            while running(&place) > 0 {
                assert!(stopped.elapsed() < Duration::from_secs(30), "{kind:?}: it still runs");
            }
        });
    }
}

#[test]
fn a_statement_whose_time_is_up_is_stopped_in_the_database() {
    for kind in KINDS {
        let place = TestDatabase::new(kind);
        let (sql, running) = match kind {
            Kind::Postgres => (
                "SELECT pg_sleep(600)::text AS v",
                format!(
                    "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND state = 'active' AND query LIKE '%sleep(600)%' AND pid <> pg_backend_pid()",
                    place.name
                ),
            ),
            Kind::MariaDb => (
                "SELECT SLEEP(600) AS v",
                format!(
                    "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}' AND INFO LIKE '%SLEEP(600)%' AND ID <> CONNECTION_ID()",
                    place.name
                ),
            ),
        };
        let source = open(&place);
        let prepare = |sql: &str, timeout_ms: u64| {
            let facts = source.describe_statement(sql).unwrap();
            let shape = contract::source::StatementShape {
                sql: sql.into(),
                parameters: Vec::new(),
                parameter_types: Vec::new(),
                columns: facts.columns.iter().enumerate().map(crate::kit::column_shape).collect(),
                writes: false,
                changes_max: 0,
                timeout_ms: Some(timeout_ms),
            };
            source.prepare(&shape).unwrap()
        };
        let (slow, running) = (prepare(sql, 500), prepare(&running, 60_000));
        let ended = slow.read(&[], None, &mut |_| RowFlow::Continue);
        assert!(matches!(ended, Err(SourceError::Timeout)), "{kind:?} {ended:?}");
        let stopped = Instant::now();
        let is_running = || {
            let mut found = false;
            let read = running.read(&[], None, &mut |_| {
                found = true;
                RowFlow::Continue
            });
            read.unwrap();
            found
        };
        while is_running() {
            assert!(stopped.elapsed() < Duration::from_secs(60), "{kind:?}: it still runs");
        }
    }
}

#[test]
fn more_calls_than_connections_wait_and_far_too_many_are_refused() {
    for kind in KINDS {
        let place = with_rows(kind);
        let source = open_with(kind, Options { connections_max: 1, ..options(&place) });
        let reader = reader(&source, "t");
        // One call holds the only connection until the others have been refused or wait.
        let (holding, release) = (AtomicBool::new(false), AtomicBool::new(false));
        let results: Vec<Result<(), SourceError>> = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let query = Query { rows_max: 1, ..Query::default() };
                reader.list(&query, &mut |_, _| {
                    holding.store(true, Ordering::Relaxed);
                    while !release.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    RowFlow::Stop
                })
            });
            while !holding.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let others: Vec<_> = (0..40).map(|_| scope.spawn(|| rows(&*reader).map(|_| ()))).collect();
            while others.iter().filter(|other| other.is_finished()).count() < 24 {
                std::thread::yield_now();
            }
            release.store(true, Ordering::Relaxed);
            holder.join().unwrap().unwrap();
            others.into_iter().map(|other| other.join().unwrap()).collect()
        });
        let refused =
            results.iter().filter(|result| matches!(result, Err(SourceError::Overloaded { .. }))).count();
        let answered = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!((answered, refused), (16, 24), "{kind:?} {results:?}");
    }
}
