//! SQLite databases.
//!
//! Readers write nothing, create nothing, and hold locks only briefly:
//!
//! - The file is opened read only, and only if it exists. An authorizer allows Spile's own statements and
//!   nothing else (`connection::authorizer`). Names come from the schema, values are bound
//!   (`read::select_builder`).
//! - A row that is served was read less than 50 ms ago, and no writer waits longer than that. Reads by key
//!   take microseconds. A list that takes longer releases its lock, continues in chunks (`read::table_scan`),
//!   and reads the rows of its page again at the end. An author's statement cannot be continued
//!   (`statement`).
//! - A read sees everything that was committed before it began. One exception: in WAL mode, reads by key that
//!   follow each other closely share a snapshot while no one commits, for a millisecond at most
//!   (`connection::pool`). It ends at the latest some 5 ms after the last read
//!   (`connection::snapshot_reaper`), so a checkpoint that waits for readers does not wait longer. Spile's
//!   own writes are visible to every read that begins after they were acknowledged.
//! - The journal mode is never changed. Nothing appears beside a database with a rollback journal. A database
//!   in WAL mode can only be read with its `-wal` and `-shm` files, so SQLite creates them if they are
//!   missing, and they stay: a reader may not checkpoint the log and remove it. Where they cannot be created,
//!   opening fails. Reading without them (`immutable`) would need a guarantee that no one writes, which we do
//!   not have.
//! - One exception: the hot journal of a killed program must be rolled back before anyone can read. SQLite
//!   does that on a connection that can write, which is closed again (`connection::pool`).
//!
//! Writers share one connection, opened with the first writer (`write::write_connection`). A row is changed
//! by its key and read back (`write`, `write::roundtrip`). A statement runs as it is written (`statement`),
//! if its columns can store its arguments unchanged (`statement::direct_params`). Both run in one transaction
//! together with their idempotency record (`write::idempotency`), which is on disk before the call is
//! acknowledged.
//!
//! Column types come from the stored values (`schema::profile`), since SQLite stores any value in any column.
//!
//! Only SQLite may open the file in this process: closing a second file descriptor would release the locks
//! that SQLite holds.

mod column;
mod connection;
mod copy;
mod error;
mod integer_totals;
mod key_blob;
mod lexer;
mod read;
mod reserved_names;
mod schema;
mod sort_key;
mod statement;
mod write;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use contract::source::{
    PreparedStatement, Reader, Source, SourceError, SourceFacts, StatementError, StatementFacts,
    StatementShape, TableShape, Writer,
};

use crate::backups::BackupPolicy;
use connection::pool::ConnectionPool;
pub use copy::copy;
pub(crate) use copy::restore;
use read::served_tables::ServedTables;
use schema::Schema;
use write::write_connection::WriteConnection;

/// One database file.
pub struct Sqlite {
    pool: Arc<ConnectionPool>,
    /// Shared by all writers, one transaction at a time.
    write_connection: Arc<WriteConnection>,
    options: Options,
    /// The schema as it was last read. A database with hundreds of tables has as many readers, and each is
    /// made from the schema that its contract was compiled from.
    cached_schema: Mutex<Option<Arc<Schema>>>,
    /// The facts of the last introspection: columns of statements have the same types.
    cached_facts: Mutex<Option<Arc<SourceFacts>>>,
    /// The column types that readers serve.
    served_tables: Arc<ServedTables>,
}

/// Limits.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many threads can read at the same time; others wait for a short time.
    pub connections_max: usize,
    /// How many rows of a table are profiled.
    pub scan_rows_max: u64,
    /// For how long a table is profiled.
    pub scan_ms_max: u64,
    /// How long a call may take that cannot be cancelled. The deadline of all others is their caller's.
    pub call_ms_max: u64,
    pub backups: BackupPolicy,
    /// For the import of a file, which nobody writes: how many rows its only table has. Shapes find its columns by their
    /// index, and name them as the file does.
    pub import_rows: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections_max: 8,
            scan_rows_max: 1_000_000,
            scan_ms_max: 2_000,
            call_ms_max: 60_000,
            backups: BackupPolicy::default(),
            import_rows: None,
        }
    }
}

impl Sqlite {
    /// Does not open the file yet: the first read finds out if it is missing or broken.
    pub fn new(path: &Path, options: Options) -> Self {
        let pool = Arc::new(ConnectionPool::new(path, options.connections_max));
        let write_connection = Arc::new(WriteConnection::new(&pool).with_backups(options.backups));
        Self {
            pool,
            write_connection,
            options,
            cached_schema: Mutex::default(),
            cached_facts: Mutex::default(),
            served_tables: Arc::default(),
        }
    }

    /// Opens an existing database and reads its schema.
    pub fn open(path: &Path, options: Options) -> Result<Self, SourceError> {
        let source = Self::new(path, options);
        source.load_schema()?;
        Ok(source)
    }

    /// Reads the current schema.
    fn load_schema(&self) -> Result<Arc<Schema>, SourceError> {
        let schema =
            Arc::new(self.pool.with_schema_connection(|connection| Ok(schema::read(&connection.inner)?))?);
        *self.cached_schema.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&schema));
        Ok(schema)
    }

    /// Whether the last introspection found this key unique.
    fn is_detected_key(&self, reader: &read::TableReader) -> bool {
        let facts = self.cached_facts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let table = facts
            .as_ref()
            .and_then(|facts| facts.tables.iter().find(|table| table.name == reader.table.name));
        let key = reader.key.iter().map(|column| reader.table_columns[*column]);
        table.is_some_and(|table| key.eq(table.key.iter().copied()))
    }

    /// The schema as it was last read.
    fn schema(&self) -> Result<Arc<Schema>, SourceError> {
        let cached = self.cached_schema.lock().unwrap_or_else(PoisonError::into_inner).clone();
        cached.map_or_else(|| self.load_schema(), Ok)
    }
}

impl Source for Sqlite {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        // Facts must describe the file as it is now, even if it was just replaced.
        self.pool.force_file_check();
        let facts = schema::profile::collect_facts(&self.pool, &self.options, &*self.load_schema()?)?;
        *self.cached_facts.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(facts.clone()));
        Ok(facts)
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        let mut reader = read::TableReader::new(&self.pool, &self.options, &*self.schema()?, shape)?;
        if !reader.key.is_empty() && !reader.key_is_declared && !self.is_detected_key(&reader) {
            reader.check_unique_key(&self.options)?;
        }
        reader.serve(&self.served_tables, shape);
        Ok(Arc::new(reader))
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        Ok(Arc::new(write::SqliteWriter::new(
            &self.write_connection,
            &self.options,
            &*self.schema()?,
            shape,
        )?))
    }

    fn describe_statement(&self, sql: &str) -> Result<StatementFacts, StatementError> {
        let facts = self.cached_facts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let facts = facts.map_or_else(|| self.introspect().map(Arc::new), Ok);
        let cached = facts.and_then(|facts| Ok((facts, self.schema()?)));
        let (facts, schema) =
            cached.map_err(|error| StatementError { message: error.to_string(), help: None, span: None })?;
        statement::describe::describe(&self.pool, &schema, &facts, sql)
    }

    fn prepare(&self, statement: &StatementShape) -> Result<Arc<dyn PreparedStatement>, SourceError> {
        let schema = self.schema()?;
        Ok(Arc::new(statement::SqliteStatement::new(
            &self.pool,
            &self.write_connection,
            &self.served_tables,
            &self.options,
            &schema,
            statement,
        )?))
    }
}
