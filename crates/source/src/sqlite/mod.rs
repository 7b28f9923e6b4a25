//! An SQLite database, read only.
//!
//! Nothing is written, created or locked for longer than a moment:
//!
//! - The file is opened read only, and only if it is there. An authorizer lets our own statements pass and
//!   nothing else (`session`). Names come from the schema, values are bound (`plan`).
//! - A row that is served was read less than 50 ms ago, and no writer waits for us longer than that. Reads by
//!   key take microseconds. A list that takes longer gives its lock back and goes on in pieces (`walk`), and
//!   reads the rows of its page again at the end.
//! - A read sees what was committed before it, but for reads by key in WAL mode that follow each other closely:
//!   while nobody commits they share one state of the database, for a millisecond at most (`pool`). It is let
//!   go some 5 ms after the last read at the latest (`janitor`), so a checkpoint that waits for readers does
//!   not wait longer.
//! - The journal mode is never changed. Beside a database with a rollback journal nothing appears. A database
//!   in WAL mode can only be read with its `-wal` and `-shm` files, so SQLite makes them if they are missing,
//!   and they stay: a reader may not fold the log into the database and remove it. Where they cannot be made
//!   that is an error. To read without them would need a promise that nobody writes, which nobody can give.
//!
//! What a column is said to hold is what its rows hold (`survey`), since SQLite stores anything anywhere.

mod chunked;
mod column;
mod copy;
mod fault;
mod janitor;
mod page;
mod plan;
mod pool;
mod reader;
mod schema;
mod session;
mod sorted;
mod survey;
mod walk;

#[cfg(test)]
mod agreement;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use contract::source::{Facts, Reader, Shape, Source, SourceFault};

pub use copy::copy;
use pool::Pool;
use schema::Schema;

/// One database file.
pub struct Sqlite {
    pool: Arc<Pool>,
    options: Options,
    /// What was declared when somebody last asked. A database of hundreds of tables has as many readers, and
    /// each is made from what its contract was made from.
    schema: Mutex<Option<Arc<Schema>>>,
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
        let pool = Arc::new(Pool::new(path, options.connections_max));
        Self { pool, options, schema: Mutex::default() }
    }

    /// A database that is there and has a schema that can be read.
    pub fn open(path: &Path, options: Options) -> Result<Self, SourceFault> {
        let source = Self::new(path, options);
        source.look()?;
        Ok(source)
    }

    /// Reads what is declared now.
    fn look(&self) -> Result<Arc<Schema>, SourceFault> {
        let schema = Arc::new(self.pool.schema(|session| Ok(schema::read(&session.connection)?))?);
        *self.schema.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&schema));
        Ok(schema)
    }
}

impl Source for Sqlite {
    fn facts(&self) -> Result<Facts, SourceFault> {
        survey::facts(&self.pool, &self.options, &*self.look()?)
    }

    fn reader(&self, shape: &Shape) -> Result<Arc<dyn Reader>, SourceFault> {
        let known = self.schema.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let schema = known.map_or_else(|| self.look(), Ok)?;
        Ok(Arc::new(reader::TableReader::new(&self.pool, &self.options, &schema, shape)?))
    }
}
