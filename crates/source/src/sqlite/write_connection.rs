//! The one connection that writes. Whoever has it has it alone; others wait for a moment.
//!
//! It is opened when somebody has something to write, and only on a file that is there. Each time it is looked
//! whether the path still leads to that file, as we left it; else it is opened anew. Everything happens in one
//! transaction that is begun for writing, so nobody else's change can come between a look and a write.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::{SourceError, WriteError};

use super::authorizer::AccessMode;
use super::cancellation::{self, CANCEL_CHECK_INTERVAL};
use super::connection::DbConnection;
use super::error::{self, ConstraintContext, DbError};
use super::idempotency::IdempotencyError;
use super::pool::{ConnectionPool, DbFileStamp, file_stamp};

/// How long somebody else's lock is waited for, and our own: a caller waits.
const LOCK_TIMEOUT: Duration = Duration::from_millis(2_000);

pub(super) struct WriteConnection {
    pub(super) pool: Arc<ConnectionPool>,
    slot: Mutex<WriterSlot>,
    slot_freed: Condvar,
}

#[derive(Default)]
struct WriterSlot {
    in_use: bool,
    idle: Option<OpenConnection>,
}

struct OpenConnection {
    connection: Box<DbConnection>,
    /// As it was left.
    file_stamp: Option<DbFileStamp>,
}

/// How a transaction ends that did what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionEnd {
    Commit,
    Rollback,
}

impl WriteConnection {
    pub(super) fn new(pool: &Arc<ConnectionPool>) -> Self {
        Self { pool: Arc::clone(pool), slot: Mutex::default(), slot_freed: Condvar::new() }
    }

    /// Runs one transaction: all of it or nothing, and nothing if nobody waits for it any more. What virtual tables
    /// keep may still be written at its end.
    pub(super) fn transaction<T>(
        &self,
        kept: &Arc<HashSet<String>>,
        stop: Option<&AtomicBool>,
        run: impl FnOnce(&DbConnection) -> Result<(TransactionEnd, T), WriteError>,
    ) -> Result<T, WriteError> {
        let is_stopped = || stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        let mut turn = self.acquire(stop)?;
        let open = self.reuse_or_open(turn.open.take())?;
        let session = &open.connection;
        deny_table_access(session);
        session.clear_deadline();
        self.execute(session, "BEGIN IMMEDIATE")?;
        let ended = match self.check_same_file(&open) {
            Ok(()) => cancellation::run_cancellable(stop, &session.cancel_handle(), || run(session)),
            Err(fault) => Err(fault),
        };
        session.authorizer.set_mode(AccessMode::WriteTables(Arc::clone(kept)));
        session.clear_deadline();
        let ended = match ended {
            // The last moment at which it can be taken back.
            _ if is_stopped() => Err(SourceError::Cancelled.into()),
            Ok((TransactionEnd::Commit, done)) => match self.execute(session, "COMMIT") {
                Ok(()) => {
                    // Before anybody is told that it is done.
                    self.pool.invalidate_snapshots();
                    Ok(done)
                }
                Err(fault) => Err(fault),
            },
            Ok((TransactionEnd::Rollback, done)) => Ok(done),
            Err(fault) => Err(fault),
        };
        if !session.inner.is_autocommit() {
            // If that fails the connection is closed, which does the same.
            let _ = self.execute(session, "ROLLBACK");
        }
        deny_table_access(session);
        if session.inner.is_autocommit() {
            turn.open = Some(OpenConnection { file_stamp: file_stamp(self.pool.path()), ..open });
        }
        ended
    }

    /// Whether these statements can be prepared, in a database that can be written to. Nobody is waited for: where
    /// somebody sits, that is found out on a connection of its own.
    pub(super) fn check_statements(
        &self,
        permit: AccessMode,
        statements: &[&str],
    ) -> Result<(), SourceError> {
        let mut turn = self.try_acquire();
        let open = self.reuse_or_open(turn.as_mut().and_then(|turn| turn.open.take()))?;
        open.connection.authorizer.set_mode(permit);
        for sql in statements {
            open.connection.inner.prepare_cached(sql).map_err(|error| self.source_error(error))?;
        }
        deny_table_access(&open.connection);
        if let Some(turn) = &mut turn {
            turn.open = Some(open);
        }
        Ok(())
    }

    pub(super) fn source_error(&self, error: rusqlite::Error) -> SourceError {
        error::source_error_on_write(DbError::from(error), self.pool.path())
    }

    pub(super) fn idempotency_error(&self, trouble: IdempotencyError) -> WriteError {
        match trouble {
            IdempotencyError::Sql(error) => self.source_error(error).into(),
            IdempotencyError::Write(fault) => fault,
        }
    }

    fn execute(&self, session: &DbConnection, sql: &str) -> Result<(), WriteError> {
        let done = session.inner.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        // What is only judged at the end: a foreign key that is deferred.
        done.map(drop).map_err(|error| {
            ConstraintContext::default()
                .constraint_error(&error)
                .unwrap_or_else(|| self.source_error(error).into())
        })
    }

    fn acquire(&self, stop: Option<&AtomicBool>) -> Result<WriteGuard<'_>, SourceError> {
        let until = Instant::now() + LOCK_TIMEOUT;
        let mut seat = self.lock();
        loop {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                // If it was this one's turn, it is another's now.
                self.slot_freed.notify_one();
                return Err(SourceError::Cancelled);
            }
            if !seat.in_use {
                break;
            }
            if Instant::now() >= until {
                return Err(SourceError::Busy { detail: "others of ours are writing".into() });
            }
            (seat, _) = self
                .slot_freed
                .wait_timeout(seat, CANCEL_CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
        }
        seat.in_use = true;
        Ok(WriteGuard { owner: self, open: seat.idle.take() })
    }

    fn try_acquire(&self) -> Option<WriteGuard<'_>> {
        let mut seat = self.lock();
        if seat.in_use {
            return None;
        }
        seat.in_use = true;
        Some(WriteGuard { owner: self, open: seat.idle.take() })
    }

    /// The connection there is, if the file is as we left it; else a new one.
    fn reuse_or_open(&self, open: Option<OpenConnection>) -> Result<OpenConnection, SourceError> {
        let file = file_stamp(self.pool.path());
        if let Some(open) = open.filter(|open| file.is_some() && open.file_stamp == file) {
            return Ok(open);
        }
        // Who reads what is written now must not read it in the file from before.
        self.pool.force_file_check();
        let path = self.pool.resolve_path().map_err(|fail| self.pool.source_error(fail))?;
        let session =
            DbConnection::open_read_write(&path, LOCK_TIMEOUT).map_err(|error| self.source_error(error))?;
        if session.inner.is_readonly("main").unwrap_or(true) {
            return Err(error::not_writable(self.pool.path(), "opened read only".into()));
        }
        Ok(OpenConnection { connection: Box::new(session), file_stamp: file })
    }

    /// Whether the file that is locked now is the one that the path leads to.
    fn check_same_file(&self, open: &OpenConnection) -> Result<(), WriteError> {
        let now = file_stamp(self.pool.path());
        if device_and_inode(now) == device_and_inode(open.file_stamp) {
            return Ok(());
        }
        let fault = match now {
            None => self.pool.source_error(self.pool.missing_file_error()),
            Some(_) => SourceError::Busy { detail: "another file was put in its place".into() },
        };
        Err(fault.into())
    }

    fn lock(&self) -> MutexGuard<'_, WriterSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between statements nothing is allowed but to begin and to end.
fn deny_table_access(session: &DbConnection) {
    session.authorizer.set_mode(AccessMode::WriteTables(Arc::default()));
}

#[cfg(unix)]
fn device_and_inode(file: Option<DbFileStamp>) -> Option<(u64, u64)> {
    file.map(|(device, node, ..)| (device, node))
}

#[cfg(not(unix))]
fn device_and_inode(file: Option<DbFileStamp>) -> Option<()> {
    file
}

/// Somebody sits at the desk until this ends, however it ends.
struct WriteGuard<'d> {
    owner: &'d WriteConnection,
    open: Option<OpenConnection>,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        let mut seat = self.owner.lock();
        seat.in_use = false;
        seat.idle = self.open.take();
        drop(seat);
        self.owner.slot_freed.notify_one();
    }
}

/// Why nothing can be written to this file at all, as its owner may have meant it.
pub(super) fn file_read_only_reason(path: &Path) -> Option<String> {
    let is_closed = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.permissions().readonly());
    if is_closed(path) {
        return Some("the file is read only".into());
    }
    let path = path.canonicalize().ok()?;
    // A journal has to be made beside it.
    path.parent().is_some_and(is_closed).then(|| "its folder is read only".into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use contract::source::{
        ColumnShape, ContractViolation, RowChange, TableShape, VersionConflict, WriteChecks, WriteRequest,
        Writer,
    };
    use contract::{DataType, Value, ValueRef};

    use super::super::authorizer::AccessMode;
    use super::super::pool::ConnectionPool;
    use super::super::schema;
    use super::super::writer::TableWriter;
    use super::WriteConnection;

    struct NoopChecks;

    impl WriteChecks for NoopChecks {
        fn before_write(&mut self, _: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict> {
            Ok(Vec::new())
        }

        fn after_write(&mut self, _: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation> {
            Ok(Vec::new())
        }
    }

    /// A desk at which only so many pages fit into the file, as on a disk that is full.
    #[test]
    fn a_full_disk_is_told_and_nothing_is_written() {
        for mode in ["DELETE", "WAL"] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("t.db");
            let other = rusqlite::Connection::open(&path).expect("a database");
            let sql = format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)");
            other.execute_batch(&sql).expect("a table");
            let pool = Arc::new(ConnectionPool::new(&path, 2));
            let desk = Arc::new(WriteConnection::new(&pool));
            let schema =
                pool.with_schema_connection(|session| Ok(schema::read(&session.inner)?)).expect("a schema");
            let column = |at, name: &str, kind| ColumnShape {
                source_index: at,
                name: name.into(),
                data_type: kind,
                nullable: at > 0,
                mixed: false,
                null_text: None,
            };
            let columns = vec![column(0, "id", DataType::Integer), column(1, "v", DataType::Text)];
            let shape = TableShape { table: "t".into(), columns, key: vec![0] };
            let writer = TableWriter::new(&desk, &Default::default(), &schema, &shape).expect("a writer");
            let mut seat = desk.lock();
            let connection = &mut seat.idle.as_mut().expect("tried out").connection.inner;
            let none: Option<fn(rusqlite::hooks::AuthContext<'_>) -> rusqlite::hooks::Authorization> = None;
            connection.authorizer(none).expect("set");
            connection.query_row("PRAGMA max_page_count = 3", [], |_| Ok(())).expect("set");
            drop(seat);
            let create = |id, text: &str| {
                let cells = [(0, ValueRef::Integer(id)), (1, ValueRef::Text(text))];
                let change = RowChange::Create { values: &cells };
                writer.write(
                    &WriteRequest {
                        change,
                        idempotency_key: None,
                        dry_run: false,
                        now_ms: 0,
                        cancelled: None,
                    },
                    &mut NoopChecks,
                )
            };
            let fault = create(1, &"x".repeat(1 << 20)).expect_err("there is no room");
            assert_eq!(fault.to_string(), "there is no room left for `t.db`; nothing was written");
            let rows: i64 =
                other.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a number");
            assert_eq!(rows, 0);
            create(1, "x").expect("what fits is written");
        }
    }

    #[test]
    fn nobody_sits_down_where_somebody_sits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        rusqlite::Connection::open(&path)
            .expect("a database")
            .execute_batch("CREATE TABLE t(a)")
            .expect("a table");
        let desk = WriteConnection::new(&Arc::new(ConnectionPool::new(&path, 2)));
        let turn = desk.acquire(None).expect("free");
        assert!(matches!(desk.acquire(None), Err(contract::source::SourceError::Busy { .. })));
        let permit = || AccessMode::WriteTables(Arc::new(HashSet::from(["t".to_owned()])));
        desk.check_statements(permit(), &["DELETE FROM t"])
            .expect("who tries something out waits for nobody");
        assert!(desk.check_statements(permit(), &["DELETE FROM u"]).is_err(), "and finds out all the same");
        drop(turn);
        assert!(desk.acquire(None).is_ok());
    }
}
