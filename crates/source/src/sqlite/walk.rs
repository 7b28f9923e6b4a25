//! All rows of a table, a few milliseconds at a time.
//!
//! In a database with a rollback journal a reader keeps writers from committing. So a long read gives its lock
//! back again and again, and goes on behind the row where it was. Rows that others change meanwhile may be seen
//! as they were or as they are; none that stays is missed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::Value;
use contract::source::SourceFault;
use rusqlite::{Row, params_from_iter};

use super::column::{Bound, raw};
use super::fault::Fail;
use super::pool::Pool;
use super::schema::{Address, Table, quoted};
use super::session::Session;
use crate::pace;

/// How long a lock is held in one go: about as long as a thread is left running on a busy machine, so that it
/// seldom sleeps with the lock in its hand.
const CHUNK: Duration = Duration::from_millis(3);
/// How long somebody else's lock is waited for on the way. To give up would waste all that was read.
pub(super) const PATIENCE: Duration = Duration::from_millis(1000);
/// How many rows between looks at the clock.
const ROWS_PER_LOOK: u64 = 32;

pub(super) struct Walk {
    first: String,
    next: String,
    /// How many columns of a row are its address; what was asked for comes behind them.
    pub(super) address: usize,
}

/// When a walk ends before its end.
pub(super) struct Limits<'s> {
    pub(super) until: Instant,
    pub(super) stop: Option<&'s AtomicBool>,
    pub(super) progress: Option<&'s AtomicU64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    On,
    Enough,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walked {
    Whole,
    /// Somebody had enough, or the time was over.
    Part,
}

/// The quoted columns by which a row can be found again; none for a view.
pub(super) fn address(table: &Table) -> Vec<String> {
    match &table.address {
        Address::Rowid(name) => vec![name.clone()],
        Address::Primary(columns) => columns.iter().map(|at| quoted(&table.columns[*at].name)).collect(),
        Address::None => Vec::new(),
    }
}

impl Walk {
    /// Reads these quoted columns. A view cannot be walked.
    pub(super) fn new(table: &Table, columns: &[&str]) -> Option<Self> {
        let address = address(table);
        if address.is_empty() {
            return None;
        }
        let (list, count) = (address.join(", "), address.len());
        let select: Vec<&str> = address.iter().map(String::as_str).chain(columns.iter().copied()).collect();
        let select = format!("SELECT {} FROM {}", select.join(", "), table.sql_name());
        let marks = vec!["?"; count].join(", ");
        Some(Self {
            first: format!("{select} ORDER BY {list}"),
            next: format!("{select} WHERE ({list}) > ({marks}) ORDER BY {list}"),
            address: count,
        })
    }

    pub(super) fn run(
        &self,
        pool: &Pool,
        limits: &Limits<'_>,
        each: &mut dyn FnMut(&Row<'_>) -> Result<Step, Fail>,
    ) -> Result<Walked, Fail> {
        let mut last: Option<Vec<Value>> = None;
        loop {
            if limits.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(SourceFault::Stopped.into());
            }
            let now = Instant::now();
            if now >= limits.until {
                return Ok(Walked::Part);
            }
            let patience = PATIENCE.min(limits.until - now);
            // Only the first step of a statement can find the database busy, so no row is seen twice.
            match pool.read_within(patience, |session| self.chunk(session, last.as_deref(), limits, each))? {
                Chunk::End => return Ok(Walked::Whole),
                Chunk::Enough => return Ok(Walked::Part),
                Chunk::Until(address) => last = Some(address),
            }
        }
    }

    fn chunk(
        &self,
        session: &Session,
        last: Option<&[Value]>,
        limits: &Limits<'_>,
        each: &mut dyn FnMut(&Row<'_>) -> Result<Step, Fail>,
    ) -> Result<Chunk, Fail> {
        let sql = if last.is_some() { &self.next } else { &self.first };
        let mut statement = session.connection.prepare_cached(sql)?;
        let bound = last.unwrap_or_default().iter().map(|value| Bound::Cell(value.as_cell()));
        let start = Instant::now();
        let mut rows = statement.query(params_from_iter(bound))?;
        let mut seen = 0_u64;
        while let Some(row) = rows.next()? {
            if each(row)? == Step::Enough {
                pace::tell(limits.progress, seen % ROWS_PER_LOOK + 1);
                return Ok(Chunk::Enough);
            }
            seen += 1;
            if !seen.is_multiple_of(ROWS_PER_LOOK) {
                continue;
            }
            pace::tell(limits.progress, ROWS_PER_LOOK);
            if start.elapsed() >= CHUNK {
                return Ok(Chunk::Until(self.address_of(row)?));
            }
        }
        pace::tell(limits.progress, seen % ROWS_PER_LOOK);
        Ok(Chunk::End)
    }

    pub(super) fn address_of(&self, row: &Row<'_>) -> Result<Vec<Value>, Fail> {
        (0..self.address).map(|at| Ok(raw(row.get_ref(at)?).to_value())).collect()
    }
}

enum Chunk {
    End,
    Enough,
    Until(Vec<Value>),
}
