//! All rows of a table, a few milliseconds at a time.
//!
//! In a database with a rollback journal a reader keeps writers from committing. So a long read gives its lock
//! back again and again, and goes on behind the row where it was. Rows that others change meanwhile may be seen
//! as they were or as they are; none that stays is missed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::Value;
use contract::source::SourceError;
use rusqlite::{Row, params_from_iter};

use super::column::{SqlParam, from_sqlite};
use super::connection::DbConnection;
use super::error::DbError;
use super::pool::ConnectionPool;
use super::schema::{RowLocator, Table, quote_identifier};
use crate::progress;

/// How long a lock is held in one go: about as long as a thread is left running on a busy machine, so that it
/// seldom sleeps with the lock in its hand.
const LOCK_HOLD_MAX: Duration = Duration::from_millis(3);
/// How long somebody else's lock is waited for on the way. To give up would waste all that was read.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_millis(1000);
/// How many rows between looks at the clock.
const ROWS_PER_CLOCK_CHECK: u64 = 32;

pub(super) struct TableScan {
    first: String,
    next: String,
    /// How many columns of a row are its address; what was asked for comes behind them.
    pub(super) locator_width: usize,
}

/// When a walk ends before its end.
pub(super) struct ScanControl<'s> {
    pub(super) deadline: Instant,
    pub(super) cancelled: Option<&'s AtomicBool>,
    pub(super) progress: Option<&'s AtomicU64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanStep {
    Continue,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanCoverage {
    Complete,
    /// Somebody had enough, or the time was over.
    Partial,
}

/// The quoted columns by which a row can be found again; none for a view.
pub(super) fn locator_columns(table: &Table) -> Vec<String> {
    match &table.locator {
        RowLocator::Rowid(name) => vec![name.clone()],
        RowLocator::PrimaryKey(columns) => {
            columns.iter().map(|at| quote_identifier(&table.columns[*at].name)).collect()
        }
        RowLocator::None => Vec::new(),
    }
}

impl TableScan {
    /// Reads these quoted columns. A view cannot be walked.
    pub(super) fn new(table: &Table, columns: &[&str]) -> Option<Self> {
        let address = locator_columns(table);
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
            locator_width: count,
        })
    }

    pub(super) fn run(
        &self,
        pool: &ConnectionPool,
        limits: &ScanControl<'_>,
        each: &mut dyn FnMut(&Row<'_>) -> Result<ScanStep, DbError>,
    ) -> Result<ScanCoverage, DbError> {
        let mut last: Option<Vec<Value>> = None;
        loop {
            if limits.cancelled.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(SourceError::Cancelled.into());
            }
            let now = Instant::now();
            if now >= limits.deadline {
                return Ok(ScanCoverage::Partial);
            }
            let patience = LOCK_TIMEOUT.min(limits.deadline - now);
            // Only the first step of a statement can find the database busy, so no row is seen twice.
            match pool.read_with_timeout(patience, |session| {
                self.run_chunk(session, last.as_deref(), limits, each)
            })? {
                ChunkEnd::Finished => return Ok(ScanCoverage::Complete),
                ChunkEnd::Stopped => return Ok(ScanCoverage::Partial),
                ChunkEnd::PausedAt(address) => last = Some(address),
            }
        }
    }

    fn run_chunk(
        &self,
        session: &DbConnection,
        last: Option<&[Value]>,
        limits: &ScanControl<'_>,
        each: &mut dyn FnMut(&Row<'_>) -> Result<ScanStep, DbError>,
    ) -> Result<ChunkEnd, DbError> {
        let sql = if last.is_some() { &self.next } else { &self.first };
        let mut statement = session.inner.prepare_cached(sql)?;
        let bound = last.unwrap_or_default().iter().map(|value| SqlParam::Value(value.as_value_ref()));
        let start = Instant::now();
        let mut rows = statement.query(params_from_iter(bound))?;
        let mut seen = 0_u64;
        while let Some(row) = rows.next()? {
            if each(row)? == ScanStep::Stop {
                progress::report_rows(limits.progress, seen % ROWS_PER_CLOCK_CHECK + 1);
                return Ok(ChunkEnd::Stopped);
            }
            seen += 1;
            if !seen.is_multiple_of(ROWS_PER_CLOCK_CHECK) {
                continue;
            }
            progress::report_rows(limits.progress, ROWS_PER_CLOCK_CHECK);
            if start.elapsed() >= LOCK_HOLD_MAX {
                return Ok(ChunkEnd::PausedAt(self.locator_of(row)?));
            }
        }
        progress::report_rows(limits.progress, seen % ROWS_PER_CLOCK_CHECK);
        Ok(ChunkEnd::Finished)
    }

    pub(super) fn locator_of(&self, row: &Row<'_>) -> Result<Vec<Value>, DbError> {
        (0..self.locator_width).map(|at| Ok(from_sqlite(row.get_ref(at)?).to_value())).collect()
    }
}

enum ChunkEnd {
    Finished,
    Stopped,
    PausedAt(Vec<Value>),
}
