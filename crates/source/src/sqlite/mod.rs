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

mod chunked;
mod claims;
mod column;
mod copy;
mod desk;
mod exact;
mod examine;
mod fault;
mod fts;
mod gate;
mod janitor;
mod lex;
mod page;
mod plan;
mod pool;
mod reader;
mod schema;
mod search;
mod session;
mod sorted;
mod statement;
mod stop;
mod straight;
mod survey;
mod walk;
mod witness;
mod writer;

#[cfg(test)]
mod agreement;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use contract::source::{
    BadStatement, Facts, Prepared, Reader, Shape, Source, SourceFault, StatementFacts, StatementShape, Writer,
};

pub use copy::copy;
use desk::Desk;
use pool::Pool;
use schema::Schema;

/// One database file.
pub struct Sqlite {
    pool: Arc<Pool>,
    /// Where writers take turns.
    desk: Arc<Desk>,
    options: Options,
    /// What was declared when somebody last asked. A database of hundreds of tables has as many readers, and
    /// each is made from what its contract was made from.
    schema: Mutex<Option<Arc<Schema>>>,
    /// What was found then: statements give columns of the same kinds.
    facts: Mutex<Option<Arc<Facts>>>,
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
        let desk = Arc::new(Desk::new(&pool));
        Self { pool, desk, options, schema: Mutex::default(), facts: Mutex::default() }
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

    /// What was declared when somebody last looked.
    fn known(&self) -> Result<Arc<Schema>, SourceFault> {
        let known = self.schema.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.map_or_else(|| self.look(), Ok)
    }
}

impl Source for Sqlite {
    fn facts(&self) -> Result<Facts, SourceFault> {
        // What is declared is read from the file as it is now, and so is what it holds.
        self.pool.doubt();
        let facts = survey::facts(&self.pool, &self.options, &*self.look()?)?;
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(facts.clone()));
        Ok(facts)
    }

    fn reader(&self, shape: &Shape) -> Result<Arc<dyn Reader>, SourceFault> {
        Ok(Arc::new(reader::TableReader::new(&self.pool, &self.options, &*self.known()?, shape)?))
    }

    fn writer(&self, shape: &Shape) -> Result<Arc<dyn Writer>, SourceFault> {
        Ok(Arc::new(writer::TableWriter::new(&self.desk, &self.options, &*self.known()?, shape)?))
    }

    fn examine(&self, sql: &str) -> Result<StatementFacts, BadStatement> {
        let found = self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let found = found.map_or_else(|| self.facts().map(Arc::new), Ok);
        let known = found.and_then(|facts| Ok((facts, self.known()?)));
        let (facts, schema) =
            known.map_err(|fault| BadStatement { message: fault.to_string(), help: None, at: None })?;
        examine::examine(&self.pool, &schema, &facts, sql)
    }

    fn prepare(&self, statement: &StatementShape) -> Result<Arc<dyn Prepared>, SourceFault> {
        let schema = self.known()?;
        Ok(Arc::new(statement::Script::new(&self.pool, &self.desk, &self.options, &schema, statement)?))
    }
}
