//! Full-text search: by an FTS5 index if there is one, else by scanning rows.
//!
//! An index finds words that start with a term, best matches first. A scan finds a term anywhere in a value,
//! in table order, in chunks like a long list, and stops at its limit.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::source::{
    CursorPosition, Filter, RowFlow, RowPosition, Search, SearchCoverage, SearchCursor, SearchOutcome,
    SourceError, Total, all_pass,
};
use contract::{Value, ValueRef};

use crate::progress;
use crate::sqlite::column::format_number;
use crate::sqlite::error::DbError;
use crate::sqlite::read::TableReader;
use crate::sqlite::read::row_buffer::RowBuffer;
use crate::sqlite::read::select_builder::{FilterShape, QueryParams};
use crate::sqlite::read::table_scan::{self, ScanControl, ScanCoverage, ScanStep, TableScan};
use crate::sqlite::schema::{RowLocator, quote_identifier};
use crate::text_search::TermMatcher;

/// An index query runs in one piece; writers wait for it.
const INDEX_LOCK_HOLD_MAX: Duration = Duration::from_millis(40);
/// Matches are buffered until the lock is released.
const BYTES_MAX: usize = 32 << 20;
const ROWS_MAX: usize = 10_000;
/// An index counts no more matches than this.
const TOTAL_MAX: i64 = 100_000;

impl TableReader {
    pub(crate) fn search_rows(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, DbError> {
        let after = match search.after {
            None => None,
            Some(CursorPosition { sort_values, key }) => match (&sort_values[..], &key[..]) {
                ([Value::Integer(position)], []) => Some(*position),
                _ => return Err(SourceError::StaleCursor.into()),
            },
        };
        let mut page = RowBuffer::new(self.columns.len());
        let indexed = self.search_index(search, after, &mut page)?;
        let (coverage, total) = match indexed {
            Some(found) => found,
            None => self.search_by_scan(search, after, &mut page)?,
        };
        for index in 0..page.row_count() {
            if search.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                return Err(SourceError::Cancelled.into());
            }
            let position = RowPosition { row_number: page.position(index), table_version: 0, ties: 0 };
            if row(&page.row(index), position) == RowFlow::Stop {
                break;
            }
        }
        Ok(SearchOutcome { coverage, total, cursor: SearchCursor::Position })
    }

    /// `None` if no index can answer, or if it takes too long. The best matches come first, and a page continues after so
    /// many of them.
    fn search_index(
        &self,
        search: &Search<'_>,
        after: Option<i64>,
        page: &mut RowBuffer,
    ) -> Result<Option<(SearchCoverage, Total)>, DbError> {
        let Some(index) = &self.table.fts_index else { return Ok(None) };
        let table_columns: Vec<usize> =
            search.columns.iter().map(|index| self.table_columns[*index]).collect();
        let Some(query) = index.match_expression(&search.terms, &table_columns) else { return Ok(None) };
        let columns: Vec<String> =
            self.columns.iter().map(|column| format!("t.{}", column.quoted_name)).collect();
        let index_name = quote_identifier(&index.name);
        let rowid = table_scan::locator_columns(&self.table).join(", ");
        let (columns, table) = (columns.join(", "), &self.sql_name);
        let (from, alias) = if index.name == self.table.name {
            (format!("{table} AS t"), "t")
        } else {
            (format!("main.{index_name} AS w CROSS JOIN {table} AS t ON t.{rowid} = w.rowid"), "w")
        };
        // Values are bound in this order: the match expression, the filters, then the limit and the offset.
        let shapes: Vec<FilterShape> = search.filters.iter().map(FilterShape::new).collect();
        let filters = self.select_builder().build_scan(&[&rowid], &shapes, &[], false);
        let condition = match shapes.is_empty() {
            true => format!("{alias}.{index_name} MATCH ?"),
            false => format!("{alias}.{index_name} MATCH ? AND t.{rowid} IN ({})", filters.sql),
        };
        let sql =
            format!("SELECT {columns} FROM {from} WHERE {condition} ORDER BY {alias}.rank LIMIT ? OFFSET ?");
        let count_sql =
            format!("SELECT count(*) FROM (SELECT 1 FROM {from} WHERE {condition} LIMIT {TOTAL_MAX})");
        let values = QueryParams {
            filters: &search.filters,
            sort: &[],
            sort_values: &[],
            key: &[],
            limit: search.rows_max.min(ROWS_MAX),
        };
        let first = after.map_or(0, |after| after.saturating_add(1));
        let read = self.pool.read(|connection| {
            page.clear();
            connection.set_deadline(INDEX_LOCK_HOLD_MAX);
            let mut statement = connection.inner.prepare_cached(&sql)?;
            statement.raw_bind_parameter(1, &query)?;
            let bound = filters.bind_from(&mut statement, 1, &self.columns, &self.key, &values)?;
            statement.raw_bind_parameter(bound + 1, i64::try_from(values.limit).unwrap_or(i64::MAX))?;
            statement.raw_bind_parameter(bound + 2, first)?;
            let mut rows = statement.raw_query();
            let mut position = first;
            while let Some(row) = rows.next()? {
                self.buffer_row(row, position, page)?;
                position += 1;
                if page.byte_len() > BYTES_MAX {
                    return Ok((SearchCoverage::Truncated, Total::AtLeast(position.cast_unsigned())));
                }
            }
            let mut statement = connection.inner.prepare_cached(&count_sql)?;
            statement.raw_bind_parameter(1, &query)?;
            filters.bind_from(&mut statement, 1, &self.columns, &self.key, &values)?;
            let mut rows = statement.raw_query();
            let counted: i64 = rows.next()?.map_or(Ok(0), |row| row.get(0))?;
            let total = match counted < TOTAL_MAX {
                true => Total::Exact(counted.cast_unsigned()),
                false => Total::AtLeast(counted.cast_unsigned()),
            };
            Ok((SearchCoverage::Complete, total))
        });
        match read {
            Ok(found) => {
                progress::report_rows(search.progress, page.row_count() as u64);
                Ok(Some(found))
            }
            Err(DbError::DeadlineExceeded) if after.is_some() => Err(SourceError::StaleCursor.into()),
            Err(DbError::DeadlineExceeded) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Scans the table from its start, also for a later page, to count the matches. Rows are known by their rowid; in a
    /// table without one, by their number among the matches.
    fn search_by_scan(
        &self,
        search: &Search<'_>,
        after: Option<i64>,
        page: &mut RowBuffer,
    ) -> Result<(SearchCoverage, Total), DbError> {
        let mut matcher = TermMatcher::new(&search.terms);
        let rows_max = search.rows_max.min(ROWS_MAX);
        let names: Vec<&str> = self.columns.iter().map(|column| column.quoted_name.as_str()).collect();
        let has_rowid = matches!(self.table.locator, RowLocator::Rowid(_));
        page.clear();
        let (mut scanned, mut is_truncated, mut total) = (0, false, 0_u64);
        let mut visit =
            |row: &rusqlite::Row<'_>, from: usize, page: &mut RowBuffer| -> Result<ScanStep, DbError> {
                if scanned == search.scan_rows_max || page.byte_len() > BYTES_MAX {
                    is_truncated = true;
                    return Ok(ScanStep::Stop);
                }
                scanned += 1;
                if !self.passes_filters(&search.filters, row, from)?
                    || !self.row_contains_terms(row, from, search.columns, &mut matcher)?
                {
                    return Ok(ScanStep::Continue);
                }
                let position = match has_rowid && from > 0 {
                    true => row.get(0)?,
                    false => i64::try_from(total).unwrap_or(i64::MAX),
                };
                total += 1;
                if page.row_count() < rows_max && after.is_none_or(|after| position > after) {
                    self.buffer_row_from(row, from, position, page)?;
                }
                Ok(ScanStep::Continue)
            };
        let coverage = match TableScan::new(&self.table, &names) {
            Some(scan) => {
                let control = ScanControl {
                    deadline: self.scan_deadline(search.cancelled),
                    cancelled: search.cancelled,
                    progress: search.progress,
                };
                scan.run(&self.pool, &control, &mut |row| visit(row, scan.locator_width, page))?
            }
            None => {
                // A view has no locator to continue after.
                let sql = format!("SELECT {} FROM {}", names.join(", "), self.sql_name);
                self.pool.read_with_timeout(table_scan::LOCK_TIMEOUT, |connection| {
                    connection.set_call_limit(search.cancelled, self.call_max);
                    let _cancel = connection.cancel_on(search.cancelled);
                    let mut statement = connection.inner.prepare_cached(&sql)?;
                    let mut rows = statement.query([])?;
                    while let Some(row) = rows.next()? {
                        progress::report_rows(search.progress, 1);
                        if visit(row, 0, page)? == ScanStep::Stop {
                            return Ok(ScanCoverage::Partial);
                        }
                    }
                    Ok(ScanCoverage::Complete)
                })?
            }
        };
        Ok(if is_truncated || coverage == ScanCoverage::Partial {
            (SearchCoverage::Truncated, Total::AtLeast(total))
        } else {
            (SearchCoverage::Complete, Total::Exact(total))
        })
    }

    /// Whether a row with all columns of the shape, from `from` on, passes the filters.
    fn passes_filters(
        &self,
        filters: &[Filter<'_>],
        row: &rusqlite::Row<'_>,
        from: usize,
    ) -> Result<bool, DbError> {
        all_pass(
            filters,
            |filter| filter.or_next,
            |_, filter| {
                let column = &self.columns[filter.column];
                Ok(column.matches_filter(column.unchecked_value(row.get_ref(from + filter.column)?), filter))
            },
        )
    }

    /// Whether each term occurs in one of the columns.
    fn row_contains_terms(
        &self,
        row: &rusqlite::Row<'_>,
        from: usize,
        columns: &[usize],
        matcher: &mut TermMatcher,
    ) -> Result<bool, DbError> {
        matcher.start_row();
        for index in columns {
            let value = self.columns[*index].unchecked_value(row.get_ref(from + index)?);
            if searchable_text(value).is_some_and(|text| matcher.match_text(&text)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A value as searchable text. Blobs are not searched.
fn searchable_text(value: ValueRef<'_>) -> Option<Cow<'_, str>> {
    match value {
        ValueRef::Text(text) => Some(Cow::Borrowed(text)),
        ValueRef::Integer(_) | ValueRef::Real(_) => format_number(value).map(Cow::Owned),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}
