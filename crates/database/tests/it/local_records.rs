//! Idempotency records outside of the database, where the role may not create a table.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use contract::ValueRef;
use contract::source::{
    IdempotencyKey, RowChange, Source, SourceError, TransactionOptions, Verdict, WriteCapabilities,
    WriteError, WriteOutcome, WriteSupport, Writer, run_transaction,
};
use database::{Database, Options, RecordStore, StoredRecord};
use test_databases::{Kind, TestDatabase};

use crate::kit::{KINDS, open_with, reader, rows, shape, table};

/// Records as a file would keep them.
#[derive(Default)]
struct Store {
    records: Mutex<HashMap<[u8; 32], Option<Vec<u8>>>>,
    is_broken: Mutex<bool>,
}

impl RecordStore for Store {
    fn begin(&self, key: &IdempotencyKey, _now_ms: u64) -> Result<StoredRecord, String> {
        if *self.is_broken.lock().unwrap() {
            return Err("the disk is full".into());
        }
        let mut records = self.records.lock().unwrap();
        Ok(match records.get(&key.key_digest) {
            Some(Some(response)) => StoredRecord::Done(response.clone()),
            Some(None) => StoredRecord::Unknown,
            None => {
                records.insert(key.key_digest, None);
                StoredRecord::New
            }
        })
    }

    fn finish(&self, key: &IdempotencyKey, response: &[u8]) -> Result<(), String> {
        self.records.lock().unwrap().insert(key.key_digest, Some(response.to_vec()));
        Ok(())
    }

    fn abandon(&self, key: &IdempotencyKey) -> Result<(), String> {
        self.records.lock().unwrap().remove(&key.key_digest);
        Ok(())
    }
}

struct Fixture {
    source: Database,
    writer: Arc<dyn Writer>,
    store: Arc<Store>,
    _place: TestDatabase,
}

/// A role that may write to a table, and create none.
fn fixture(kind: Kind) -> Fixture {
    let place = TestDatabase::new(kind);
    let (role, name) = (format!("writer_{}", place.name), &place.name);
    place.run("CREATE TABLE t (id integer PRIMARY KEY, v varchar(10) NOT NULL)");
    place.run(&match kind {
        Kind::Postgres => format!(
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON t TO {role}"
        ),
        Kind::MariaDb => format!(
            "CREATE USER {role}@localhost; GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.t TO {role}@localhost"
        ),
    });
    let store = Arc::new(Store::default());
    let options = Options { record_store: Some(store.clone()), ..Options::new(place.url_as(&role)) };
    let source = open_with(kind, options);
    let facts = source.introspect().unwrap();
    assert_eq!(table(&facts, "t").write_support, WriteSupport::Supported(WriteCapabilities::ALL), "{kind:?}");
    let writer = source.writer(&shape(&facts, "t")).unwrap();
    Fixture { source, writer, store, _place: place }
}

fn options(key: u8) -> TransactionOptions {
    let key = IdempotencyKey { key_digest: [key; 32], request_digest: [key; 32] };
    TransactionOptions { idempotency_key: Some(key), now_ms: 1, ..TransactionOptions::default() }
}

fn create(fixture: &Fixture, id: i64, key: u8) -> Result<WriteOutcome<bool, ()>, WriteError> {
    let options = options(key);
    let values = [(0, ValueRef::Integer(id)), (1, ValueRef::Text("x"))];
    run_transaction(fixture.writer.begin(&options)?, &options, |transaction| {
        transaction.apply(&RowChange::Create { values: &values })?;
        let result = transaction.read_back()?.is_some();
        Ok(Verdict::Keep { response: b"made".to_vec(), result })
    })
}

fn row_count(fixture: &Fixture) -> usize {
    rows(&*reader(&fixture.source, "t")).unwrap().len()
}

#[test]
fn a_repeated_write_gets_the_stored_response() {
    for kind in KINDS {
        let fixture = fixture(kind);
        assert_eq!(create(&fixture, 1, 1).unwrap(), WriteOutcome::Done(true), "{kind:?}");
        assert_eq!(create(&fixture, 1, 1).unwrap(), WriteOutcome::Replayed(b"made".to_vec()), "{kind:?}");
        assert_eq!(row_count(&fixture), 1, "{kind:?}");
    }
}

#[test]
fn a_write_that_failed_can_be_repeated() {
    for kind in KINDS {
        let fixture = fixture(kind);
        create(&fixture, 1, 1).unwrap();
        assert!(matches!(create(&fixture, 1, 2), Err(WriteError::AlreadyExists)), "{kind:?}");
        assert_eq!(create(&fixture, 2, 2).unwrap(), WriteOutcome::Done(true), "{kind:?}");
    }
}

#[test]
fn a_write_whose_outcome_nobody_knows_is_not_made_again() {
    for kind in KINDS {
        let fixture = fixture(kind);
        // A process that ended between the commit and the response left this.
        fixture.store.records.lock().unwrap().insert([3; 32], None);
        assert!(matches!(create(&fixture, 3, 3), Err(WriteError::OutcomeUnknown)), "{kind:?}");
        assert_eq!(row_count(&fixture), 0, "{kind:?}");
    }
}

#[test]
fn two_calls_with_one_key_do_not_run_at_the_same_time() {
    for kind in KINDS {
        let fixture = fixture(kind);
        let mut first = fixture.writer.begin(&options(4)).unwrap();
        assert_eq!(first.find_response(&options(4).idempotency_key.unwrap()).unwrap(), None, "{kind:?}");
        let second = create(&fixture, 4, 4);
        assert!(matches!(second, Err(WriteError::Source(SourceError::Busy { .. }))), "{kind:?} {second:?}");
        first.roll_back();
        assert_eq!(create(&fixture, 4, 4).unwrap(), WriteOutcome::Done(true), "{kind:?}");
    }
}

#[test]
fn nothing_is_written_if_the_key_cannot_be_recorded() {
    for kind in KINDS {
        let fixture = fixture(kind);
        *fixture.store.is_broken.lock().unwrap() = true;
        let refused = create(&fixture, 5, 5);
        assert!(
            matches!(&refused, Err(WriteError::Source(SourceError::Unavailable { message, .. })) if message.contains("nothing was written")),
            "{kind:?} {refused:?}"
        );
        assert_eq!(row_count(&fixture), 0, "{kind:?}");
    }
}
