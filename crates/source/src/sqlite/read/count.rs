//! Counts the rows that pass filters and adds up columns of integers, exactly and inside SQLite.
//!
//! In WAL mode one statement does it. Without WAL a reader keeps others from committing, so a statement that takes
//! longer than one lock may is repeated for one range of rowids after the other, each short enough. If another connection
//! commits meanwhile, it starts again; after some attempts one statement reads all rows.

use std::time::{Duration, Instant};

use contract::source::Aggregate;
use rusqlite::types::Value as SqlValue;

use crate::progress;
use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::pool::ReadMode;
use crate::sqlite::error::DbError;
use crate::sqlite::integer_totals::IntegerTotals;
use crate::sqlite::read::TableReader;
use crate::sqlite::read::select_builder::{FilterShape, QueryParams, SqlTemplate};
use crate::sqlite::read::table_scan::LOCK_TIMEOUT;
use crate::sqlite::schema::RowLocator;

/// A range that was read within this time may be followed by one of twice the width.
const SHORT_RANGE: Duration = Duration::from_micros(1500);
const FIRST_RANGE_WIDTH: i64 = 4096;
/// A range no wider than one that was read in time has so many times the time of a lock: it takes longer only if the thread
/// waits for a processor, and then reading it again would hold the lock for longer than reading on.
const PROVEN_WIDTH_TIMES: u32 = 4;
/// How often a read in ranges starts again because the table may have changed.
const ATTEMPTS_MAX: usize = 3;

/// What a question without groups asks of its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RowTotals {
    pub(super) rows: u64,
    /// In the order in which the columns were given.
    pub(super) columns: Vec<IntegerTotals>,
}

impl RowTotals {
    fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.columns.iter_mut().zip(&other.columns).for_each(|(all, part)| all.merge(part));
    }
}

impl TableReader {
    /// The totals of these columns over the rows that pass the filters; `None` if that needs a scan of the rows.
    pub(super) fn row_totals(
        &self,
        question: &Aggregate<'_>,
        columns: &[usize],
    ) -> Result<Option<RowTotals>, DbError> {
        if question.filters.is_empty() && columns.is_empty() {
            let counted = self.count_all(ReadMode::Blocking)?.and_then(|total| total.exact());
            return Ok(counted.map(|rows| RowTotals { rows, columns: Vec::new() }));
        }
        let builder = self.select_builder();
        let filters: Vec<FilterShape> = question.filters.iter().map(FilterShape::new).collect();
        let whole = builder.build_totals(columns, &filters, None);
        self.pool.read_with_timeout(LOCK_TIMEOUT, |connection| {
            let _cancel = connection.cancel_on(question.cancelled);
            if !connection.is_wal {
                let rowid = match &self.table.locator {
                    RowLocator::Rowid(rowid) => Some(rowid),
                    RowLocator::PrimaryKey(_) | RowLocator::None => None,
                };
                // Only an index finds the rows of a large table in time.
                let is_long = || Ok::<bool, DbError>(!self.is_small && whole.is_scan(&connection.inner)?);
                if rowid.is_none() || !is_long()? {
                    connection.set_deadline(self.lock_hold_max);
                    match self.run_totals(question, columns.len(), &whole, None, connection) {
                        Err(DbError::DeadlineExceeded) => {}
                        totals => return totals.map(Some),
                    }
                }
                let Some(rowid) = rowid else { return Ok(None) };
                let ranges = builder.build_totals(columns, &filters, Some(rowid));
                for _ in 0..ATTEMPTS_MAX {
                    let totals =
                        self.totals_in_ranges(question, columns.len(), rowid, &ranges, connection)?;
                    if totals.is_some() {
                        return Ok(totals);
                    }
                }
            }
            connection.set_call_limit(question.cancelled, self.call_max);
            self.run_totals(question, columns.len(), &whole, None, connection).map(Some)
        })
    }

    /// One attempt; `None` if another connection has committed meanwhile, or if there was no time for even one row.
    fn totals_in_ranges(
        &self,
        question: &Aggregate<'_>,
        width: usize,
        rowid: &str,
        template: &SqlTemplate,
        connection: &DbConnection,
    ) -> Result<Option<RowTotals>, DbError> {
        let give_up = question.cancelled.is_none().then(|| Instant::now() + self.call_max);
        let version = connection.data_version()?;
        // Two statements: SQLite finds the least or the greatest rowid at once, but not both.
        let bounds =
            format!("SELECT (SELECT min({rowid}) FROM {0}), (SELECT max({rowid}) FROM {0})", self.sql_name);
        connection.clear_deadline();
        let bounds: (Option<i64>, Option<i64>) =
            connection.inner.prepare_cached(&bounds)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut totals = RowTotals { rows: 0, columns: vec![IntegerTotals::default(); width] };
        let (Some(mut from), Some(last)) = bounds else { return Ok(Some(totals)) };
        let (mut range_width, mut proven_width, mut too_wide) = (FIRST_RANGE_WIDTH, 0, i64::MAX);
        loop {
            if connection.data_version()? != version {
                return Ok(None);
            }
            let started = Instant::now();
            if give_up.is_some_and(|give_up| started >= give_up) {
                return Err(DbError::DeadlineExceeded);
            }
            let is_proven = range_width <= proven_width;
            connection.set_deadline(self.lock_hold_max * if is_proven { PROVEN_WIDTH_TIMES } else { 1 });
            let to = from.saturating_add(range_width - 1).min(last);
            let part = self.run_totals(question, width, template, Some([from, to]), connection);
            connection.clear_deadline();
            match part {
                Ok(part) => {
                    totals.merge(&part);
                    progress::report_rows(question.progress, part.rows);
                    if to == last {
                        return Ok((connection.data_version()? == version).then_some(totals));
                    }
                    from = to + 1;
                    proven_width = proven_width.max(range_width);
                    let wider = range_width.saturating_mul(2);
                    if started.elapsed() < SHORT_RANGE && wider < too_wide {
                        range_width = wider;
                    }
                }
                // A busy machine, or many rows after a gap.
                Err(DbError::DeadlineExceeded) if range_width > 1 => {
                    too_wide = range_width;
                    range_width = (range_width / 4).max(1);
                    proven_width = proven_width.min(range_width);
                }
                Err(DbError::DeadlineExceeded) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// The totals of a range of rowids, or of all rows. `width` is the number of columns.
    fn run_totals(
        &self,
        question: &Aggregate<'_>,
        width: usize,
        template: &SqlTemplate,
        range: Option<[i64; 2]>,
        connection: &DbConnection,
    ) -> Result<RowTotals, DbError> {
        let filters = &question.filters;
        let values = QueryParams { filters, sort: &[], sort_values: &[], key: &[], limit: 0 };
        let mut statement = connection.inner.prepare_cached(&template.sql)?;
        let mut bound = template.bind_from(&mut statement, 0, &self.columns, &[], &values)?;
        for edge in range.into_iter().flatten() {
            bound += 1;
            statement.raw_bind_parameter(bound, SqlValue::Integer(edge))?;
        }
        let mut rows = statement.raw_query();
        let Some(row) = rows.next()? else { return Ok(RowTotals::default()) };
        let totals = (0..width).map(|at| {
            let bytes = row.get_ref(at)?.as_blob().unwrap_or_default();
            Ok(IntegerTotals::decode(bytes).expect("our own function returns it for every set of rows"))
        });
        let columns = totals.collect::<Result<Vec<_>, DbError>>()?;
        let rows = match columns.first() {
            Some(totals) => totals.count + totals.nulls + totals.others,
            None => u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
        };
        Ok(RowTotals { rows, columns })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use contract::source::{Aggregate, ColumnShape, Comparison, Filter, Measure, TableShape};
    use contract::{DataType, ValueRef};
    use proptest::prelude::*;

    use super::{FilterShape, TableReader};
    use crate::sqlite::Options;
    use crate::sqlite::connection::pool::ConnectionPool;
    use crate::sqlite::schema;

    const ROWID: &str = "rowid";

    /// A table with these rowids. The value of a row is its rowid modulo 3, never negative.
    fn reader_of(rowids: &BTreeSet<i64>) -> (tempfile::TempDir, rusqlite::Connection, TableReader) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        let mut writer = rusqlite::Connection::open(&path).expect("a database");
        writer.execute_batch("CREATE TABLE t (n INTEGER NOT NULL)").expect("a table");
        let transaction = writer.transaction().expect("a transaction");
        for rowid in rowids {
            let row = [*rowid, rowid.rem_euclid(3)];
            transaction.execute("INSERT INTO t (rowid, n) VALUES (?, ?)", row).expect("a row");
        }
        transaction.commit().expect("rows");
        let column = ColumnShape {
            source_index: 0,
            name: "n".into(),
            data_type: DataType::Integer,
            nullable: false,
            mixed: false,
            null_texts: Vec::new(),
            format: None,
        };
        let shape = TableShape { table: "t".into(), columns: vec![column], key: vec![] };
        let pool = Arc::new(ConnectionPool::new(&path, 2));
        let schema =
            pool.with_schema_connection(|connection| Ok(schema::read(&connection.inner)?)).expect("a schema");
        let reader = TableReader::new(&pool, &Options::default(), &schema, &shape).expect("a reader");
        (folder, writer, reader)
    }

    fn ones() -> Aggregate<'static> {
        Aggregate {
            filters: vec![Filter::new(0, Comparison::Equals, ValueRef::Integer(1))],
            measures: vec![Measure::Count],
            ..Aggregate::default()
        }
    }

    fn expected(rowids: &BTreeSet<i64>) -> u64 {
        rowids.iter().filter(|rowid| rowid.rem_euclid(3) == 1).count() as u64
    }

    /// Counts in ranges only.
    fn count_in_ranges(reader: &TableReader) -> Option<u64> {
        let question = ones();
        let filters: Vec<FilterShape> = question.filters.iter().map(FilterShape::new).collect();
        let template = reader.select_builder().build_totals(&[], &filters, Some(ROWID));
        let totals = reader
            .pool
            .read(|connection| reader.totals_in_ranges(&question, 0, ROWID, &template, connection));
        totals.expect("a count").map(|totals| totals.rows)
    }

    /// Counts in whatever way the time allows.
    fn count(reader: &TableReader) -> Option<u64> {
        reader.row_totals(&ones(), &[]).expect("a count").map(|totals| totals.rows)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        #[test]
        fn ranges_cover_every_rowid_once(
            rowids in prop::collection::btree_set(
                prop_oneof![
                    -50..50_i64,
                    4000..4200_i64,
                    any::<i64>(),
                    Just(i64::MIN),
                    Just(i64::MAX),
                ],
                0..40,
            ),
        ) {
            let (_folder, _writer, mut reader) = reader_of(&rowids);
            reader.lock_hold_max = Duration::from_secs(10);
            prop_assert_eq!(count_in_ranges(&reader), Some(expected(&rowids)));
        }
    }

    #[test]
    fn ranges_shrink_until_each_is_counted_within_the_time_of_a_lock() {
        // A gap makes the ranges wide; after it there are more rows than the time of a lock allows for.
        let rowids: BTreeSet<i64> = (0..10).chain(1 << 40..(1 << 40) + 30_000).collect();
        let (_folder, _writer, mut reader) = reader_of(&rowids);
        reader.lock_hold_max = Duration::from_micros(100);
        assert_eq!(count(&reader), Some(expected(&rowids)));
    }

    #[test]
    fn a_count_without_time_for_even_one_row_is_an_error() {
        let (_folder, _writer, mut reader) = reader_of(&(0..30_000).collect());
        reader.lock_hold_max = Duration::ZERO;
        reader.call_max = Duration::ZERO;
        assert!(reader.row_totals(&ones(), &[]).is_err());
    }

    #[test]
    fn rows_that_another_connection_adds_are_counted_the_next_time() {
        let rowids: BTreeSet<i64> = (0..100).collect();
        let (_folder, writer, reader) = reader_of(&rowids);
        assert_eq!(count(&reader), Some(33));
        writer.execute("INSERT INTO t (rowid, n) VALUES (1000000, 1)", []).expect("a row");
        assert_eq!(count(&reader), Some(34));
        assert_eq!(count_in_ranges(&reader), Some(34));
    }
}
