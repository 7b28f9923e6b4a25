//! Callers whom PostgreSQL knows: their role and their settings, in every transaction and never beyond it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use contract::source::{
    Aggregate, GROUPS_MAX, IdempotencyKey, Measure, PreparedStatement, Reader, RowChange, RowFlow, Source,
    SourceError, SourceIdentity, StatementShape, TransactionOptions, Verdict, WriteError, WriteOutcome,
    run_transaction,
};
use contract::{Value, ValueRef};
use database::{CallerMode, Database, Options};
use test_databases::{Kind, TestDatabase};

use crate::kit::{column_shape, open_with, reader, rows, shape, shown};

struct Fixture {
    place: TestDatabase,
    source: Database,
}

impl Fixture {
    /// Rows of two tenants, two roles that see those of the tenant in a setting, and a login that sees nothing by itself.
    fn new(mode: CallerMode) -> Self {
        let place = TestDatabase::new(Kind::Postgres);
        let name = &place.name;
        place.run(&format!(
            "CREATE TABLE t (id integer PRIMARY KEY, tenant text NOT NULL, v text);
             INSERT INTO t VALUES (1, 'a', 'one'), (2, 'a', 'two'), (3, 'b', 'three');
             ALTER TABLE t ENABLE ROW LEVEL SECURITY;
             CREATE POLICY own ON t USING (tenant = current_setting('app.tenant', true)) WITH CHECK (tenant = current_setting('app.tenant', true));
             CREATE ROLE login_{name} LOGIN NOINHERIT;
             CREATE ROLE staff_{name} NOLOGIN; CREATE ROLE guest_{name} NOLOGIN; CREATE ROLE other_{name} NOLOGIN;
             CREATE ROLE root_{name} NOLOGIN SUPERUSER; CREATE ROLE bypass_{name} NOLOGIN BYPASSRLS;
             GRANT staff_{name}, guest_{name}, root_{name}, bypass_{name} TO login_{name};
             GRANT SELECT, INSERT, UPDATE, DELETE ON t TO staff_{name}; GRANT SELECT ON t TO guest_{name};
             GRANT CREATE ON SCHEMA public TO login_{name};"
        ));
        if mode == CallerMode::Settings {
            place.run(&format!("GRANT SELECT ON t TO login_{name}"));
        }
        let options = Options {
            callers: mode,
            connections_max: 1,
            ..Options::new(place.url_as(&format!("login_{name}")))
        };
        Self { source: open_with(Kind::Postgres, options), place }
    }

    fn caller(&self, role: &str, tenant: &str) -> Arc<SourceIdentity> {
        Arc::new(SourceIdentity {
            role: (!role.is_empty()).then(|| format!("{role}_{}", self.place.name)),
            settings: vec![("app.tenant".into(), tenant.into())],
        })
    }

    fn statement(&self, sql: &str) -> Arc<dyn PreparedStatement> {
        let facts = self.source.describe_statement(sql).unwrap();
        let shape = StatementShape {
            sql: sql.into(),
            parameters: facts.parameters,
            parameter_types: Vec::new(),
            columns: facts.columns.iter().enumerate().map(column_shape).collect(),
            writes: false,
            changes_max: 0,
            timeout_ms: None,
        };
        self.source.prepare(&shape).unwrap()
    }

    /// Who the database says is there.
    fn who(&self, identity: &SourceIdentity) -> Result<String, SourceError> {
        let sql = "SELECT current_user::text AS r, current_setting('app.tenant', true) AS t";
        let mut found = String::new();
        self.statement(sql).read_as(identity, &[], None, &mut |values| {
            found = values.iter().map(|value| shown(&value.to_value())).collect::<Vec<_>>().join(" ");
            RowFlow::Continue
        })?;
        Ok(found.replace(&format!("_{}", self.place.name), ""))
    }
}

fn ids(reader: &dyn Reader) -> Result<Vec<Value>, SourceError> {
    Ok(rows(reader)?.into_iter().map(|row| row[0].clone()).collect())
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, SourceError>, expected: &str) {
    match result {
        Err(SourceError::Refused { message, .. }) if message.contains(expected) => {}
        other => panic!("{other:?} instead of {expected:?}"),
    }
}

#[test]
fn each_caller_reads_the_rows_of_its_policies() {
    for mode in [CallerMode::Role, CallerMode::Settings] {
        let fixture = Fixture::new(mode);
        let role = if mode == CallerMode::Role { "guest" } else { "" };
        let table = reader(&fixture.source, "t");
        for (tenant, expected) in [("a", vec![1, 2]), ("b", vec![3]), ("c", vec![])] {
            let identity = fixture.caller(role, tenant);
            let own = table.as_caller(&identity).unwrap();
            let expected: Vec<Value> = expected.into_iter().map(Value::Integer).collect();
            assert_eq!(ids(&*own).unwrap(), expected, "{mode:?} {tenant}");
            assert_eq!(own.get(&[ValueRef::Integer(3)], &mut |_| ()).unwrap(), tenant == "b", "{mode:?}");
            let count =
                Aggregate { measures: vec![Measure::Count], groups_max: GROUPS_MAX, ..Aggregate::default() };
            let groups = own.aggregate(&count).unwrap();
            let counted = groups.rows.first().map(|row| row.0[0].clone());
            assert_eq!(counted, Some(Value::Integer(expected.len() as i64)), "{mode:?} {tenant}");
            let expected_name = if mode == CallerMode::Role { "guest" } else { "login" };
            assert_eq!(fixture.who(&identity).unwrap(), format!("{expected_name} {tenant}"), "{mode:?}");
        }
    }
}

#[test]
fn nothing_is_read_or_written_without_a_caller() {
    let fixture = Fixture::new(CallerMode::Role);
    let facts = fixture.source.introspect().unwrap();
    let table = fixture.source.reader(&shape(&facts, "t")).unwrap();
    assert_refused(ids(&*table), "must know who is calling");
    let statement = fixture.statement("SELECT id FROM t");
    assert_refused(statement.read(&[], None, &mut |_| RowFlow::Continue), "must know who is calling");
    let without_role = fixture.caller("", "a");
    assert_refused(ids(&*table.as_caller(&without_role).unwrap()), "must know who is calling");
    let writer = fixture.source.writer(&shape(&facts, "t")).unwrap();
    let Err(WriteError::Source(error)) = writer.begin(&TransactionOptions::default()).map(drop) else {
        panic!("a write without a caller begins");
    };
    assert_refused::<()>(Err(error), "must know who is calling");
    // And the other way round: a caller who would be ignored.
    let plain = open_with(Kind::Postgres, Options::new(fixture.place.url()));
    let plain = reader(&plain, "t");
    assert_refused(
        ids(&*plain.as_caller(&fixture.caller("guest", "a")).unwrap()),
        "must know who is calling",
    );
}

#[test]
fn roles_that_policies_do_not_apply_to_are_refused() {
    let fixture = Fixture::new(CallerMode::Role);
    let table = reader(&fixture.source, "t");
    // Before the statements are prepared, and afterwards, when all of a read is sent at once.
    for _ in 0..2 {
        for role in ["root", "bypass", "other", "nobody", "x\" ; SET ROLE \"root"] {
            let identity = fixture.caller(role, "a");
            assert_refused(ids(&*table.as_caller(&identity).unwrap()), "does not accept your role");
        }
        let guest = fixture.caller("guest", "a");
        assert_eq!(ids(&*table.as_caller(&guest).unwrap()).unwrap().len(), 2);
    }
    // The connection serves the next caller as before.
    assert_eq!(fixture.who(&fixture.caller("guest", "b")).unwrap(), "guest b");
    for (mode, role) in [(CallerMode::Role, "root"), (CallerMode::Settings, "bypass")] {
        let role = format!("{role}_{}", fixture.place.name);
        fixture.place.run(&format!("ALTER ROLE {role} LOGIN"));
        let options = Options { callers: mode, ..Options::new(fixture.place.url_as(&role)) };
        let error = open_with(Kind::Postgres, options).introspect().unwrap_err().to_string();
        assert!(error.contains("row-level security does not apply to the role"), "{error}");
    }
}

#[test]
fn the_statement_of_a_refused_caller_does_not_run() {
    let fixture = Fixture::new(CallerMode::Role);
    // The lock stays after the transaction.
    let lock = fixture.statement("SELECT pg_advisory_lock(:number)::text AS l");
    let read = |role: &str, number: &str| {
        let identity = fixture.caller(role, "a");
        lock.read_as(&identity, &[ValueRef::Text(number)], None, &mut |_| RowFlow::Continue)
    };
    for number in ["1", "2"] {
        read("guest", number).unwrap();
    }
    for role in ["root", "bypass", "other", "nobody"] {
        assert_refused(read(role, "9"), "does not accept your role");
    }
    fixture.place.run(
        "DO $$ BEGIN ASSERT (SELECT array_agg(objid::int ORDER BY objid) = ARRAY[1, 2] FROM pg_locks
           WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())); END $$",
    );
}

/// Between a client and the server: holds back what the server sends until the client has sent the end of a transaction.
struct Toll {
    port: u16,
    is_armed: Arc<AtomicBool>,
}

impl Toll {
    fn start(place: &TestDatabase) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, is_armed) = (listener.local_addr().unwrap().port(), Arc::<AtomicBool>::default());
        let (socket, armed) = (place.server.folder.join(".s.PGSQL.5432"), Arc::clone(&is_armed));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = UnixStream::connect(&socket).unwrap();
                let (to_server, from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (armed, ended) = (Arc::clone(&armed), Arc::<AtomicBool>::default());
                let seen = Arc::clone(&ended);
                std::thread::spawn(move || {
                    pass(from_client, to_server, |bytes| {
                        if bytes.windows(8).any(|word| word == b"ROLLBACK") {
                            seen.store(true, Ordering::SeqCst);
                        }
                    });
                });
                std::thread::spawn(move || {
                    pass(server, client, |_| {
                        while armed.load(Ordering::SeqCst) && !ended.load(Ordering::SeqCst) {
                            std::thread::yield_now();
                        }
                    });
                });
            }
        });
        Self { port, is_armed }
    }
}

fn pass(mut from: impl Read, mut to: impl Write, mut look: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        look(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn a_prepared_read_is_one_round_trip() {
    for mode in [CallerMode::Connection, CallerMode::Role] {
        let fixture = Fixture::new(mode);
        let toll = Toll::start(&fixture.place);
        let name = fixture.place.name.clone();
        let user = if mode == CallerMode::Role { format!("login_{name}") } else { "postgres".to_owned() };
        let options = Options {
            callers: mode,
            connections_max: 1,
            call_ms_max: 10_000,
            ..Options::new(format!("postgres://{user}@127.0.0.1:{}/{name}", toll.port))
        };
        let fixture = Fixture { source: open_with(Kind::Postgres, options), ..fixture };
        let statement = fixture.statement("SELECT 7 AS n");
        let identity = fixture.caller("guest", "a");
        let read = || {
            let mut found = 0;
            let mut row = |values: &[ValueRef<'_>]| {
                found += usize::from(values == [ValueRef::Integer(7)]);
                RowFlow::Continue
            };
            match mode {
                CallerMode::Connection => statement.read(&[], None, &mut row)?,
                _ => statement.read_as(&identity, &[], None, &mut row)?,
            }
            Ok::<_, SourceError>(found)
        };
        assert_eq!(read().unwrap(), 1, "{mode:?}");
        toll.is_armed.store(true, Ordering::SeqCst);
        assert_eq!(read().unwrap(), 1, "{mode:?}: it waits for an answer before it has sent everything");
    }
}

#[test]
fn writes_are_held_to_policies_and_rights_and_their_records_to_the_connection() {
    let fixture = Fixture::new(CallerMode::Role);
    let facts = fixture.source.introspect().unwrap();
    let writer = fixture.source.writer(&shape(&facts, "t")).unwrap();
    let create = |role: &str, id: i64, tenant: &str, key: Option<u8>| {
        let key = key.map(|key| IdempotencyKey { key_digest: [key; 32], request_digest: [key; 32] });
        let options = TransactionOptions {
            identity: Some(fixture.caller(role, "a")),
            idempotency_key: key,
            now_ms: 1,
            ..TransactionOptions::default()
        };
        let values = [(0, ValueRef::Integer(id)), (1, ValueRef::Text(tenant))];
        let transaction = writer.begin(&options)?;
        run_transaction(transaction, &options, |transaction| {
            transaction.apply(&RowChange::Create { values: &values })?;
            let row = transaction.read_back()?;
            Ok::<_, WriteError>(Verdict::<_, ()>::Keep { response: b"kept".to_vec(), result: row.is_some() })
        })
    };
    assert_eq!(create("staff", 10, "a", Some(1)).unwrap(), WriteOutcome::Done(true));
    assert_eq!(create("staff", 10, "a", Some(1)).unwrap(), WriteOutcome::Replayed(b"kept".to_vec()));
    for (role, tenant) in [("staff", "b"), ("guest", "a")] {
        let Err(WriteError::Source(error)) = create(role, 11, tenant, Some(2)) else {
            panic!("{role} {tenant}")
        };
        assert_refused::<()>(Err(error), "does not permit this to you");
    }
    // Callers cannot read what the server recorded.
    let records = fixture.statement("SELECT count(*) AS n FROM _spile_idempotency");
    let caller = fixture.caller("staff", "a");
    assert_refused(
        records.read_as(&caller, &[], None, &mut |_| RowFlow::Continue),
        "does not permit this to you",
    );
    // Nothing of this makes the server doubt the tables.
    assert!(!fixture.source.take_suspicion());
}

#[test]
fn a_connection_never_has_the_role_of_the_call_before() {
    let fixture = Fixture::new(CallerMode::Role);
    let (a, b) = (fixture.caller("staff", "a"), fixture.caller("guest", "b"));
    let slow = fixture.statement("SELECT id, pg_sleep(60)::text AS s FROM t");
    for round in 0..6 {
        assert_eq!(fixture.who(&a).unwrap(), "staff a", "{round}");
        std::thread::scope(|scope| {
            let gone = Arc::new(AtomicBool::new(false));
            let flag = gone.clone();
            let (slow, a) = (&slow, &a);
            let call = scope.spawn(move || slow.read_as(a, &[], Some(&flag), &mut |_| RowFlow::Continue));
            let running = format!(
                "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '{}' AND state = 'active' \
                 AND query LIKE 'SELECT id, pg_sleep%' AND wait_event = 'PgSleep') LOOP PERFORM pg_sleep(0.01); \
                 PERFORM pg_stat_clear_snapshot(); END LOOP; END $$",
                fixture.place.name
            );
            fixture.place.run(&running);
            if round % 2 == 1 {
                // The connection is killed in the middle; the read begins again on another one.
                fixture.place.run(&format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()",
                    fixture.place.name
                ));
                fixture.place.run(&running);
            }
            // The caller goes away in the middle.
            gone.store(true, Ordering::Relaxed);
            assert!(call.join().unwrap().is_err(), "{round}");
        });
        assert_eq!(fixture.who(&b).unwrap(), "guest b", "{round}");
        let table = reader(&fixture.source, "t");
        assert_refused(ids(&*table), "must know who is calling");
        assert_eq!(ids(&*table.as_caller(&b).unwrap()).unwrap(), [Value::Integer(3)], "{round}");
    }
}
