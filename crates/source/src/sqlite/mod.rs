//! An SQLite database.
//!
//! Who reads writes nothing, creates nothing, and locks nothing for longer than a moment:
//!
//! - The file is opened read only, and only if it is there. An authorizer lets our own statements pass and
//!   nothing else (`gate`). Names come from the schema, values are bound (`plan`).
//! - A row that is served was read less than 50 ms ago, and no writer waits for us longer than that. Reads by
//!   key take microseconds. A list that takes longer gives its lock back and goes on in pieces (`walk`), and
//!   reads the rows of its page again at the end. An author's statement cannot do that (`statement`).
//! - A read sees what was committed before it, but for reads by key in WAL mode that follow each other closely:
//!   while nobody commits they share one state of the database, for a millisecond at most (`pool`). It is let
//!   go some 5 ms after the last read at the latest (`janitor`), so a checkpoint that waits for readers does
//!   not wait longer. What we wrote ourselves is seen by every read that begins after it was acknowledged.
//! - The journal mode is never changed. Beside a database with a rollback journal nothing appears. A database
//!   in WAL mode can only be read with its `-wal` and `-shm` files, so SQLite makes them if they are missing,
//!   and they stay: a reader may not fold the log into the database and remove it. Where they cannot be made
//!   that is an error. To read without them would need a promise that nobody writes, which nobody can give.
//! - One exception: a journal of somebody who was killed in the middle of a change has to be played back before
//!   anybody can read. SQLite does that on a connection that may write, which is closed again (`pool`).
//!
//! Who writes has one connection for all, opened when the first writer is made (`desk`). A row is changed by its key
//! and read back (`writer`, `exact`), a statement runs as it is (`statement`) if the columns keep what it puts into them
//! (`straight`); either in one transaction together with its claim (`claims`), on the disk before it is acknowledged.
//!
//! What a column is said to hold is what its rows hold (`survey`), since SQLite stores anything anywhere.
//!
//! Nobody but SQLite may open the file in this process, not even to look at it: to close it would give back the locks
//! that SQLite holds on it.

mod authorizer;
mod cancellation;
mod change_capture;
mod column;
mod connection;
mod copy;
mod describe;
mod direct_params;
mod error;
mod fts;
mod idempotency;
mod lexer;
mod pool;
mod profile;
mod reader;
mod roundtrip;
mod row_buffer;
mod scan_page;
mod schema;
mod search;
mod select_builder;
mod snapshot_reaper;
mod sort_key;
mod statement;
mod table_scan;
mod write_connection;
mod writer;

#[cfg(test)]
mod paging_tests;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use contract::source::{
    PreparedStatement, Reader, Source, SourceError, SourceFacts, StatementError, StatementFacts,
    StatementShape, TableShape, Writer,
};

pub use copy::copy;
use pool::ConnectionPool;
use schema::Schema;
use write_connection::WriteConnection;

/// One database file.
pub struct Sqlite {
    pool: Arc<ConnectionPool>,
    /// Where writers take turns.
    write_connection: Arc<WriteConnection>,
    options: Options,
    /// What was declared when somebody last asked. A database of hundreds of tables has as many readers, and
    /// each is made from what its contract was made from.
    cached_schema: Mutex<Option<Arc<Schema>>>,
    /// What was found then: statements give columns of the same kinds.
    cached_facts: Mutex<Option<Arc<SourceFacts>>>,
}

/// How much may be asked of us, and of the file.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many threads can read at once; others wait for a moment.
    pub connections_max: usize,
    /// How many rows of a table are looked at to tell what it holds.
    pub scan_rows_max: u64,
    /// For how long.
    pub scan_ms_max: u64,
    /// How long a list may take in all, with its locks given back in between.
    pub list_ms_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections_max: 8, scan_rows_max: 1_000_000, scan_ms_max: 2_000, list_ms_max: 20_000 }
    }
}

impl Sqlite {
    /// Opens nothing yet: a file that is missing or broken is found by whoever reads.
    pub fn new(path: &Path, options: Options) -> Self {
        let pool = Arc::new(ConnectionPool::new(path, options.connections_max));
        let write_connection = Arc::new(WriteConnection::new(&pool));
        Self {
            pool,
            write_connection,
            options,
            cached_schema: Mutex::default(),
            cached_facts: Mutex::default(),
        }
    }

    /// A database that is there and has a schema that can be read.
    pub fn open(path: &Path, options: Options) -> Result<Self, SourceError> {
        let source = Self::new(path, options);
        source.load_schema()?;
        Ok(source)
    }

    /// Reads what is declared now.
    fn load_schema(&self) -> Result<Arc<Schema>, SourceError> {
        let schema = Arc::new(self.pool.with_schema_connection(|session| Ok(schema::read(&session.inner)?))?);
        *self.cached_schema.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&schema));
        Ok(schema)
    }

    /// What was declared when somebody last looked.
    fn schema(&self) -> Result<Arc<Schema>, SourceError> {
        let known = self.cached_schema.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.map_or_else(|| self.load_schema(), Ok)
    }
}

impl Source for Sqlite {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        // What is declared is read from the file as it is now, and so is what it holds.
        self.pool.force_file_check();
        let facts = profile::collect_facts(&self.pool, &self.options, &*self.load_schema()?)?;
        *self.cached_facts.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(facts.clone()));
        Ok(facts)
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        Ok(Arc::new(reader::TableReader::new(&self.pool, &self.options, &*self.schema()?, shape)?))
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        Ok(Arc::new(writer::TableWriter::new(
            &self.write_connection,
            &self.options,
            &*self.schema()?,
            shape,
        )?))
    }

    fn describe_statement(&self, sql: &str) -> Result<StatementFacts, StatementError> {
        let found = self.cached_facts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let found = found.map_or_else(|| self.introspect().map(Arc::new), Ok);
        let known = found.and_then(|facts| Ok((facts, self.schema()?)));
        let (facts, schema) =
            known.map_err(|fault| StatementError { message: fault.to_string(), help: None, span: None })?;
        describe::describe(&self.pool, &schema, &facts, sql)
    }

    fn prepare(&self, statement: &StatementShape) -> Result<Arc<dyn PreparedStatement>, SourceError> {
        let schema = self.schema()?;
        Ok(Arc::new(statement::SqliteStatement::new(
            &self.pool,
            &self.write_connection,
            &self.options,
            &schema,
            statement,
        )?))
    }
}
