//! How many rows a list has in total, with bounded work.
//!
//! The number of all rows is kept for each connection until another connection commits; in an import it is known. The number of
//! rows that match filters is counted by SQLite within the time of one lock, then by a scan within a short time. What is not counted to
//! its end is a lower bound. A call that has no time to count inline is repeated on a thread that may block, so that the
//! load of the machine does not decide whether a list has an exact total.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use contract::source::{Query, Total};

use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::pool::ReadMode;
use crate::sqlite::error::DbError;
use crate::sqlite::read::TableReader;
use crate::sqlite::read::select_builder::{PageSegment, QueryParams, QueryShape};
use crate::sqlite::read::table_scan::{ScanControl, ScanCoverage, ScanStep, TableScan};

/// How many matching rows are counted on a thread that must not block, and for how long.
const INLINE_ROWS_MAX: u64 = 5_000;
pub(super) const INLINE_COUNT_MAX: Duration = Duration::from_millis(2);
/// How many are counted elsewhere.
const ROWS_MAX: u64 = 1_000_000;
/// How long a scan may count that releases its lock.
const SCAN_TIME_MAX: Duration = Duration::from_millis(250);

/// The number of all rows as a connection last counted them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedRows {
    connection: u64,
    data_version: i64,
    /// `None` if counting took too long.
    rows: Option<u64>,
}

impl TableReader {
    /// How many rows match the query. At least `read` do.
    pub(crate) fn total(&self, query: &Query<'_>, mode: ReadMode, read: u64) -> Result<Total, DbError> {
        let counted =
            if query.filters.is_empty() { self.count_all(mode) } else { self.count_matching(query, mode) };
        let was_too_slow = matches!(counted, Ok(None));
        match counted {
            Ok(Some(total)) => return Ok(total),
            Ok(None) => {}
            Err(error) if error.is_busy() || error.would_block() => {}
            Err(error) => return Err(error),
        }
        match mode {
            // There is more time elsewhere, unless that was found to be too short as well.
            ReadMode::Inline if !self.is_costly_to_count.load(Ordering::Relaxed) => Err(DbError::WouldBlock),
            ReadMode::Blocking if was_too_slow => {
                let total = match self.can_scan() {
                    true => self.count_by_scan(query, read)?,
                    false => Total::AtLeast(read),
                };
                if matches!(total, Total::AtLeast(_)) {
                    self.is_costly_to_count.store(true, Ordering::Relaxed);
                }
                Ok(total)
            }
            // A list does not fail because it cannot be counted.
            ReadMode::Inline | ReadMode::Blocking => Ok(Total::AtLeast(read)),
        }
    }

    pub(super) fn count_all(&self, mode: ReadMode) -> Result<Option<Total>, DbError> {
        if let Some(rows) = self.known_rows {
            return Ok(Some(Total::Exact(rows)));
        }
        let rows = self.read_in(mode, |connection| {
            let data_version = connection.data_version()?;
            let known = self.known_rows(connection, data_version);
            if let Some(rows) = known.filter(|rows| rows.is_some() || mode == ReadMode::Inline) {
                return Ok(rows);
            }
            connection.set_deadline(self.count_time_max(mode));
            let sql = format!("SELECT count(*) FROM {}", self.sql_name);
            let rows = count(connection.inner.prepare_cached(&sql)?.query_row([], |row| row.get(0)))?;
            self.remember_rows(CountedRows { connection: connection.id, data_version, rows });
            Ok(rows)
        })?;
        Ok(rows.map(Total::Exact))
    }

    fn count_matching(&self, query: &Query<'_>, mode: ReadMode) -> Result<Option<Total>, DbError> {
        let rows_max = if mode == ReadMode::Inline { INLINE_ROWS_MAX } else { ROWS_MAX };
        let limit = usize::try_from(rows_max).unwrap_or(usize::MAX).saturating_add(1);
        let rows = self.read_in(mode, |connection| {
            connection.set_deadline(self.count_time_max(mode));
            let shape = QueryShape { sort: Vec::new(), ..QueryShape::new(query, PageSegment::Count) };
            let cached = self.query_for(shape, connection)?;
            let values =
                QueryParams { filters: &query.filters, sort: &[], sort_values: &[], key: &[], limit };
            let mut statement = connection.inner.prepare_cached(&cached.template.sql)?;
            cached.template.bind(&mut statement, &self.columns, &self.key, &values)?;
            let mut rows = statement.raw_query();
            count(rows.next().and_then(|row| row.map_or(Ok(0), |row| row.get(0))))
        })?;
        Ok(rows.map(|rows| if rows > rows_max { Total::AtLeast(rows_max) } else { Total::Exact(rows) }))
    }

    /// Counts matching rows in chunks.
    fn count_by_scan(&self, query: &Query<'_>, read: u64) -> Result<Total, DbError> {
        let layout = self.layout(query);
        let names: Vec<&str> =
            layout.columns.iter().map(|column| self.columns[*column].quoted_name.as_str()).collect();
        let Some(scan) = TableScan::new(&self.table, &names) else { return Ok(Total::AtLeast(read)) };
        let deadline = Some(Instant::now() + SCAN_TIME_MAX);
        let control = ScanControl { deadline, cancelled: query.cancelled, progress: query.progress };
        let mut rows = 0;
        let coverage = scan.run(&self.pool, &control, &mut |row| {
            rows += u64::from(self.row_matches_filters(query, &layout, row, scan.locator_width)?);
            Ok(ScanStep::Continue)
        });
        match coverage {
            Ok(ScanCoverage::Complete) => Ok(Total::Exact(rows)),
            Ok(ScanCoverage::Partial) => Ok(Total::AtLeast(rows.max(read))),
            Err(error) if error.is_busy() => Ok(Total::AtLeast(rows.max(read))),
            Err(error) => Err(error),
        }
    }

    fn count_time_max(&self, mode: ReadMode) -> Duration {
        match mode {
            ReadMode::Inline => self.inline_count_max,
            ReadMode::Blocking => self.lock_hold_max,
        }
    }

    /// What this connection counted, if no other connection committed since.
    fn known_rows(&self, connection: &DbConnection, data_version: i64) -> Option<Option<u64>> {
        let counted = self.counted_rows.lock().unwrap_or_else(PoisonError::into_inner);
        let known = counted.iter().find(|known| known.connection == connection.id)?;
        (known.data_version == data_version).then_some(known.rows)
    }

    fn remember_rows(&self, rows: CountedRows) {
        let mut counted = self.counted_rows.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|known| known.connection != rows.connection);
        // Connections are replaced over time; only so many are open.
        if counted.len() >= self.connections_max {
            counted.remove(0);
        }
        counted.push(rows);
    }
}

/// A count, or `None` if it took too long.
fn count(counted: rusqlite::Result<i64>) -> Result<Option<u64>, DbError> {
    match counted.map_err(DbError::from) {
        Ok(rows) => Ok(Some(u64::try_from(rows).unwrap_or(0))),
        Err(DbError::DeadlineExceeded) => Ok(None),
        Err(error) => Err(error),
    }
}
