//! The only connection that writes, used by one transaction at a time.
//!
//! It is opened for the first write, and only on an existing file. Before each transaction it checks that the
//! path still leads to that file, unchanged since the last write; otherwise it opens the file again. Every
//! transaction begins with `BEGIN IMMEDIATE`, so no other program can write between our reads and writes.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::{CancelFlag, IdempotencyKey, SourceError, TransactionOptions, WriteError};
use file_watch::FileStamp;

use crate::backups::{BackupPolicy, NewBackup, PublishedBackup};
use crate::sqlite::connection::authorizer::AccessMode;
use crate::sqlite::connection::pool::{ConnectionPool, file_stamp};
use crate::sqlite::connection::{CancelGuard, DbConnection};
use crate::sqlite::copy;
use crate::sqlite::error::{self, ConstraintContext, DbError};
use crate::sqlite::write::idempotency::{self, IdempotencyError};

/// How often the cancel flag is read while a write waits for its turn.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// How long a write waits for a lock, and for its turn.
const LOCK_TIMEOUT: Duration = Duration::from_millis(2_000);

pub(crate) struct WriteConnection {
    pub(crate) pool: Arc<ConnectionPool>,
    slot: Mutex<WriterSlot>,
    slot_freed: Condvar,
    backups: BackupPolicy,
}

#[derive(Default)]
struct WriterSlot {
    in_use: bool,
    idle: Option<OpenConnection>,
}

struct OpenConnection {
    connection: Box<DbConnection>,
    /// As the last transaction left it.
    file_stamp: Option<FileStamp>,
}

impl WriteConnection {
    pub(crate) fn new(pool: &Arc<ConnectionPool>) -> Self {
        let (pool, backups) = (Arc::clone(pool), BackupPolicy::Off);
        Self { pool, slot: Mutex::default(), slot_freed: Condvar::new(), backups }
    }

    pub(crate) fn with_backups(self, backups: BackupPolicy) -> Self {
        Self { backups, ..self }
    }

    /// Begins a transaction. Virtual tables may still write their shadow tables at the COMMIT.
    pub(crate) fn begin(
        &self,
        shadow_tables: &Arc<HashSet<String>>,
        options: &TransactionOptions,
    ) -> Result<WriteTransaction<'_>, WriteError> {
        let mut guard = self.acquire(options.cancelled.as_ref())?;
        let open = self.reuse_or_open(guard.open.take())?;
        deny_table_access(&open.connection);
        open.connection.clear_deadline();
        self.execute(&open.connection, "BEGIN IMMEDIATE")?;
        self.check_same_file(&open)?;
        let backup = self.copy_if_due(options)?;
        let cancel = Some(open.connection.cancel_on(options.cancelled.as_ref()));
        let (options, shadow_tables) = (options.clone(), Arc::clone(shadow_tables));
        Ok(WriteTransaction { guard, open: Some(open), cancel, options, shadow_tables, backup })
    }

    /// Copies the database as it is, under the lock of the transaction. Its commit makes the copy a version.
    fn copy_if_due(&self, options: &TransactionOptions) -> Result<Option<NewBackup>, WriteError> {
        if options.dry_run || self.backups == BackupPolicy::Off {
            return Ok(None);
        }
        let path = self.pool.resolve_path().map_err(|error| self.pool.source_error(error))?;
        Ok(copy::copy_if_due(&path, options.now_ms)?)
    }

    /// Checks that these statements can be prepared and that the database can be written. Does not wait:
    /// while a transaction runs it uses a connection of its own.
    pub(crate) fn check_statements(&self, mode: AccessMode, statements: &[&str]) -> Result<(), SourceError> {
        let mut guard = self.try_acquire();
        let open = self.reuse_or_open(guard.as_mut().and_then(|guard| guard.open.take()))?;
        open.connection.authorizer.set_mode(mode);
        for sql in statements {
            open.connection.inner.prepare_cached(sql).map_err(|error| self.source_error(error))?;
        }
        deny_table_access(&open.connection);
        if let Some(guard) = &mut guard {
            guard.open = Some(open);
        }
        Ok(())
    }

    pub(crate) fn source_error(&self, error: rusqlite::Error) -> SourceError {
        error::source_error_on_write(DbError::from(error), self.pool.path())
    }

    pub(crate) fn idempotency_error(&self, error: IdempotencyError) -> WriteError {
        match error {
            IdempotencyError::Sql(error) => self.source_error(error).into(),
            IdempotencyError::Write(error) => error,
        }
    }

    fn execute(&self, connection: &DbConnection, sql: &str) -> Result<(), WriteError> {
        let done = connection.inner.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        // Deferred foreign keys are checked at the COMMIT.
        done.map(drop).map_err(|error| {
            ConstraintContext::default()
                .constraint_error(&error)
                .unwrap_or_else(|| self.source_error(error).into())
        })
    }

    fn acquire(&self, cancelled: Option<&CancelFlag>) -> Result<WriteGuard<'_>, SourceError> {
        let until = Instant::now() + LOCK_TIMEOUT;
        let mut slot = self.lock();
        loop {
            if cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                // The turn may have been given to this thread: pass it on.
                self.slot_freed.notify_one();
                return Err(SourceError::Cancelled);
            }
            if !slot.in_use {
                break;
            }
            if Instant::now() >= until {
                return Err(SourceError::Busy { detail: "another write of this server is running".into() });
            }
            (slot, _) = self
                .slot_freed
                .wait_timeout(slot, CANCEL_CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
        }
        slot.in_use = true;
        Ok(WriteGuard { owner: self, open: slot.idle.take() })
    }

    fn try_acquire(&self) -> Option<WriteGuard<'_>> {
        let mut slot = self.lock();
        if slot.in_use {
            return None;
        }
        slot.in_use = true;
        Some(WriteGuard { owner: self, open: slot.idle.take() })
    }

    /// Returns the open connection if the file is unchanged; otherwise opens it again.
    fn reuse_or_open(&self, open: Option<OpenConnection>) -> Result<OpenConnection, SourceError> {
        let stamp = file_stamp(self.pool.path());
        if let Some(open) = open.filter(|open| stamp.is_some() && open.file_stamp == stamp) {
            return Ok(open);
        }
        // Readers must not look for this write in the previous file.
        self.pool.force_file_check();
        let path = self.pool.resolve_path().map_err(|error| self.pool.source_error(error))?;
        let connection =
            DbConnection::open_read_write(&path, LOCK_TIMEOUT).map_err(|error| self.source_error(error))?;
        if connection.inner.is_readonly("main").unwrap_or(true) {
            return Err(error::not_writable(self.pool.path(), "opened read only".into()));
        }
        Ok(OpenConnection { connection: Box::new(connection), file_stamp: stamp })
    }

    /// Checks that the locked file is the one that the path leads to.
    fn check_same_file(&self, open: &OpenConnection) -> Result<(), WriteError> {
        let now = file_stamp(self.pool.path());
        if now.map(FileStamp::id) == open.file_stamp.map(FileStamp::id) {
            return Ok(());
        }
        let error = match now {
            None => self.pool.source_error(self.pool.missing_file_error()),
            Some(_) => SourceError::Busy { detail: "another file has replaced it".into() },
        };
        Err(error.into())
    }

    fn lock(&self) -> MutexGuard<'_, WriterSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction on the only connection that writes. Dropping it rolls it back.
pub(crate) struct WriteTransaction<'c> {
    guard: WriteGuard<'c>,
    /// `None` only while this is dropped.
    open: Option<OpenConnection>,
    /// Stops a statement whose caller has gone away.
    cancel: Option<CancelGuard>,
    options: TransactionOptions,
    shadow_tables: Arc<HashSet<String>>,
    /// A copy of the database as it was.
    backup: Option<NewBackup>,
}

impl WriteTransaction<'_> {
    fn open_connection(&self) -> &OpenConnection {
        self.open.as_ref().expect("it is open until it is dropped")
    }

    pub(crate) fn connection(&self) -> &DbConnection {
        &self.open_connection().connection
    }

    /// Allows the statements of a change, and limits their time.
    pub(crate) fn allow_change(&self, mode: AccessMode, timeout: Duration) {
        let connection = self.connection();
        connection.authorizer.set_mode(mode);
        connection.set_call_limit(self.options.cancelled.as_ref(), timeout);
    }

    pub(crate) fn find_response(&self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        let found = idempotency::find(self.connection(), key);
        found.map_err(|error| self.guard.owner.idempotency_error(error))
    }

    pub(crate) fn store_response(&self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        let connection = self.connection();
        connection.clear_deadline();
        let stored = idempotency::store(connection, key, response, self.options.now_ms);
        stored.map_err(|error| self.guard.owner.idempotency_error(error))
    }

    pub(crate) fn commit(mut self) -> Result<(), WriteError> {
        self.cancel = None;
        let (owner, backup) = (self.guard.owner, self.backup.take());
        let connection = self.connection();
        connection.authorizer.set_mode(AccessMode::WriteTables(Arc::clone(&self.shadow_tables)));
        connection.clear_deadline();
        // The last moment to roll back.
        self.options.check_cancelled()?;
        let version = backup.map(NewBackup::publish).transpose();
        let version = version.map_err(|error| copy::backup_error(owner.pool.path(), &error))?;
        if let Err(error) = owner.execute(connection, "COMMIT") {
            if let Some(_version) = version {
                PublishedBackup::discard(_version)
            }
            return Err(error);
        }
        version.map(PublishedBackup::keep);
        // Before the write is acknowledged.
        owner.pool.invalidate_snapshots();
        Ok(())
    }
}

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        self.cancel = None;
        let Some(open) = self.open.take() else { return };
        let connection = &open.connection;
        connection.authorizer.set_mode(AccessMode::WriteTables(Arc::clone(&self.shadow_tables)));
        connection.clear_deadline();
        if !connection.inner.is_autocommit() {
            // If that fails the connection is closed, which rolls back too.
            let _ = self.guard.owner.execute(connection, "ROLLBACK");
        }
        deny_table_access(connection);
        // A connection to a file that was replaced meanwhile is closed: the next write goes to the new file.
        let now = file_stamp(self.guard.owner.pool.path());
        let id = |stamp: Option<FileStamp>| stamp.and_then(FileStamp::id);
        let is_same_file = id(now) == id(open.file_stamp);
        if connection.inner.is_autocommit() && is_same_file {
            self.guard.open = Some(OpenConnection { file_stamp: now, ..open });
        }
    }
}

/// Between statements only BEGIN, COMMIT and ROLLBACK are allowed.
fn deny_table_access(connection: &DbConnection) {
    connection.authorizer.set_mode(AccessMode::WriteTables(Arc::default()));
}

/// The exclusive use of the connection until this is dropped.
struct WriteGuard<'d> {
    owner: &'d WriteConnection,
    open: Option<OpenConnection>,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        let mut slot = self.owner.lock();
        slot.in_use = false;
        slot.idle = self.open.take();
        drop(slot);
        self.owner.slot_freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use contract::source::{ColumnShape, RowChange, TableShape, TransactionOptions};
    use contract::{DataType, ValueRef};

    use super::WriteConnection;
    use crate::sqlite::connection::authorizer::AccessMode;
    use crate::sqlite::connection::pool::ConnectionPool;
    use crate::sqlite::schema;
    use crate::sqlite::write::SqliteWriter;
    use crate::test_write::write_row;

    /// Limits the number of pages, as on a full disk.
    #[test]
    fn a_full_disk_is_an_error_and_nothing_is_written() {
        for mode in ["DELETE", "WAL"] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("t.db");
            let other = rusqlite::Connection::open(&path).expect("a database");
            let sql = format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)");
            other.execute_batch(&sql).expect("a table");
            let pool = Arc::new(ConnectionPool::new(&path, 2));
            let write_connection = Arc::new(WriteConnection::new(&pool));
            let schema = pool
                .with_schema_connection(|connection| Ok(schema::read(&connection.inner)?))
                .expect("a schema");
            let column = |at, name: &str, kind| ColumnShape {
                source_index: at,
                name: name.into(),
                data_type: kind,
                nullable: at > 0,
                mixed: false,
                null_texts: Vec::new(),
                format: None,
            };
            let columns = vec![column(0, "id", DataType::Integer), column(1, "v", DataType::Text)];
            let shape = TableShape { table: "t".into(), columns, key: vec![0] };
            let writer =
                SqliteWriter::new(&write_connection, &Default::default(), &schema, &shape).expect("a writer");
            let mut slot = write_connection.lock();
            let connection = &mut slot.idle.as_mut().expect("tried out").connection.inner;
            let none: Option<fn(rusqlite::hooks::AuthContext<'_>) -> rusqlite::hooks::Authorization> = None;
            connection.authorizer(none).expect("set");
            connection.query_row("PRAGMA max_page_count = 3", [], |_| Ok(())).expect("set");
            drop(slot);
            let create = |id, text: &str| {
                let cells = [(0, ValueRef::Integer(id)), (1, ValueRef::Text(text))];
                let change = RowChange::Create { values: &cells };
                write_row(&writer, &change)
            };
            let error = create(1, &"x".repeat(1 << 20)).expect_err("there is no room");
            assert_eq!(error.to_string(), "no space left for `t.db`; nothing was written");
            let rows: i64 =
                other.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a number");
            assert_eq!(rows, 0);
            create(1, "x").expect("what fits is written");
        }
    }

    #[test]
    fn only_one_transaction_uses_the_connection() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        rusqlite::Connection::open(&path)
            .expect("a database")
            .execute_batch("CREATE TABLE t(a)")
            .expect("a table");
        let write_connection = WriteConnection::new(&Arc::new(ConnectionPool::new(&path, 2)));
        let guard = write_connection.acquire(None).expect("free");
        assert!(matches!(write_connection.acquire(None), Err(contract::source::SourceError::Busy { .. })));
        let mode = || AccessMode::WriteTables(Arc::new(HashSet::from(["t".to_owned()])));
        write_connection
            .check_statements(mode(), &["DELETE FROM t"])
            .expect("checking a statement does not wait");
        assert!(
            write_connection.check_statements(mode(), &["DELETE FROM u"]).is_err(),
            "and finds out all the same"
        );
        drop(guard);
        assert!(write_connection.acquire(None).is_ok());
    }
    /// The path leads to another file before the transaction ends: the next one must not write to the old file.
    #[cfg(unix)]
    #[test]
    fn a_connection_to_a_replaced_file_is_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("t.db"), folder.path().join("other.db"));
        for path in [&path, &other] {
            let database = rusqlite::Connection::open(path).expect("a database");
            database.execute_batch("CREATE TABLE t(a)").expect("a table");
        }
        let write_connection = WriteConnection::new(&Arc::new(ConnectionPool::new(&path, 2)));
        let tables = Arc::new(HashSet::from(["t".to_owned()]));
        let insert = |value: i64, is_replaced: bool| {
            let options = TransactionOptions::default();
            let transaction = write_connection.begin(&tables, &options).expect("begun");
            let mode = AccessMode::WriteTables(Arc::clone(&tables));
            transaction.allow_change(mode, std::time::Duration::from_secs(60));
            let insert = transaction.connection().inner.execute("INSERT INTO t VALUES(?1)", [value]);
            assert_eq!(insert.expect("inserted"), 1);
            if is_replaced {
                std::fs::rename(&other, &path).expect("replaced");
            }
            transaction.commit().expect("committed");
        };
        insert(1, true);
        insert(2, false);
        let database = rusqlite::Connection::open(&path).expect("a database");
        let rows: i64 = database.query_row("SELECT sum(a) FROM t", [], |row| row.get(0)).expect("a sum");
        assert_eq!(rows, 2, "the second write is in the file that is there now");
    }
}
