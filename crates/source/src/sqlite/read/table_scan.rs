//! Scans all rows of a table, a few milliseconds at a time.
//!
//! With a rollback journal a reader blocks commits. So a long read releases its lock again and again, and
//! continues after the last row. If others change rows meanwhile, the scan sees them as they were or as they
//! are; it misses no row that stays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::Value;
use contract::source::{CancelFlag, SourceError};
use rusqlite::{Row, params_from_iter};

use crate::progress;
use crate::sqlite::column::{SqlParam, from_sqlite};
use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::pool::ConnectionPool;
use crate::sqlite::error::DbError;
use crate::sqlite::schema::{RowLocator, Table, quote_identifier};

/// How long a lock is held at a time: about the time slice of a thread on a busy machine, so that it seldom
/// sleeps while it holds the lock.
const LOCK_HOLD_MAX: Duration = Duration::from_millis(3);
/// How long a scan waits for another connection's lock. Giving up would waste all that was read.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(1000);
/// How many rows are read between checks of the clock.
const ROWS_PER_CLOCK_CHECK: u64 = 32;

pub(crate) struct TableScan {
    first: String,
    next: String,
    /// The number of locator columns at the start of each row; the requested columns follow.
    pub(crate) locator_width: usize,
}

/// When a scan stops early.
pub(crate) struct ScanControl<'s> {
    /// For calls that cannot be cancelled.
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancelled: Option<&'s CancelFlag>,
    pub(crate) progress: Option<&'s AtomicU64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanStep {
    Continue,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanCoverage {
    Complete,
    /// The callback stopped it, or the deadline passed.
    Partial,
}

/// The quoted columns that find a row again; empty for a view.
pub(crate) fn locator_columns(table: &Table) -> Vec<String> {
    match &table.locator {
        RowLocator::Rowid(name) => vec![name.clone()],
        RowLocator::PrimaryKey(columns) => {
            columns.iter().map(|index| quote_identifier(&table.columns[*index].name)).collect()
        }
        RowLocator::None => Vec::new(),
    }
}

impl TableScan {
    /// Scans these quoted columns. `None` for a view, which has no locator.
    pub(crate) fn new(table: &Table, columns: &[&str]) -> Option<Self> {
        let locator = locator_columns(table);
        if locator.is_empty() {
            return None;
        }
        let (columns_sql, count) = (locator.join(", "), locator.len());
        let select: Vec<&str> = locator.iter().map(String::as_str).chain(columns.iter().copied()).collect();
        let select = format!("SELECT {} FROM {}", select.join(", "), table.sql_name());
        let placeholders = vec!["?"; count].join(", ");
        Some(Self {
            first: format!("{select} ORDER BY {columns_sql}"),
            next: format!("{select} WHERE ({columns_sql}) > ({placeholders}) ORDER BY {columns_sql}"),
            locator_width: count,
        })
    }

    pub(crate) fn run(
        &self,
        pool: &ConnectionPool,
        control: &ScanControl<'_>,
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ScanStep, DbError>,
    ) -> Result<ScanCoverage, DbError> {
        let mut last: Option<Vec<Value>> = None;
        loop {
            if control.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                return Err(SourceError::Cancelled.into());
            }
            let now = Instant::now();
            if control.deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(ScanCoverage::Partial);
            }
            let time_left = control.deadline.map_or(LOCK_TIMEOUT, |deadline| deadline - now);
            let lock_timeout = LOCK_TIMEOUT.min(time_left);
            // Only the first step of a statement can find the database busy, so no row is visited twice.
            match pool.read_with_timeout(lock_timeout, |connection| {
                self.run_chunk(connection, last.as_deref(), control, visit)
            })? {
                ChunkEnd::Finished => return Ok(ScanCoverage::Complete),
                ChunkEnd::Stopped => return Ok(ScanCoverage::Partial),
                ChunkEnd::PausedAt(locator) => last = Some(locator),
            }
        }
    }

    fn run_chunk(
        &self,
        connection: &DbConnection,
        last: Option<&[Value]>,
        control: &ScanControl<'_>,
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ScanStep, DbError>,
    ) -> Result<ChunkEnd, DbError> {
        let sql = if last.is_some() { &self.next } else { &self.first };
        let mut statement = connection.inner.prepare_cached(sql)?;
        let bound = last.unwrap_or_default().iter().map(|value| SqlParam::Value(value.as_value_ref()));
        let start = Instant::now();
        let mut rows = statement.query(params_from_iter(bound))?;
        let mut row_count = 0_u64;
        while let Some(row) = rows.next()? {
            if visit(row)? == ScanStep::Stop {
                progress::report_rows(control.progress, row_count % ROWS_PER_CLOCK_CHECK + 1);
                return Ok(ChunkEnd::Stopped);
            }
            row_count += 1;
            if !row_count.is_multiple_of(ROWS_PER_CLOCK_CHECK) {
                continue;
            }
            progress::report_rows(control.progress, ROWS_PER_CLOCK_CHECK);
            if start.elapsed() >= LOCK_HOLD_MAX {
                return Ok(ChunkEnd::PausedAt(self.locator_of(row)?));
            }
        }
        progress::report_rows(control.progress, row_count % ROWS_PER_CLOCK_CHECK);
        Ok(ChunkEnd::Finished)
    }

    pub(crate) fn locator_of(&self, row: &Row<'_>) -> Result<Vec<Value>, DbError> {
        (0..self.locator_width).map(|index| Ok(from_sqlite(row.get_ref(index)?).to_value())).collect()
    }
}

enum ChunkEnd {
    Finished,
    Stopped,
    PausedAt(Vec<Value>),
}
