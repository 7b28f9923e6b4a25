//! Full-text search: by an FTS5 index if there is one, else by scanning rows.
//!
//! An index finds words that start with a term, best matches first. A scan finds a term anywhere in a value,
//! in table order, in chunks like a long list, and stops at its limit.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::ValueRef;
use contract::source::{RowFlow, Search, SearchCoverage, SourceError};
use rusqlite::params;

use crate::progress;
use crate::sqlite::column::format_number;
use crate::sqlite::error::DbError;
use crate::sqlite::read::TableReader;
use crate::sqlite::read::row_buffer::RowBuffer;
use crate::sqlite::read::table_scan::{self, ScanControl, ScanCoverage, ScanStep, TableScan};
use crate::sqlite::schema::quote_identifier;
use crate::text_search::TermMatcher;

/// An index query runs in one piece; writers wait for it.
const INDEX_LOCK_HOLD_MAX: Duration = Duration::from_millis(40);
/// Matches are buffered until the lock is released.
const BYTES_MAX: usize = 32 << 20;
const ROWS_MAX: usize = 10_000;

impl TableReader {
    pub(crate) fn search_rows(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<SearchCoverage, DbError> {
        let mut page = RowBuffer::new(self.columns.len());
        let indexed = self.search_index(search, &mut page)?;
        let coverage = match indexed {
            Some(coverage) => coverage,
            None => self.search_by_scan(search, &mut page)?,
        };
        for index in 0..page.row_count() {
            if search.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                return Err(SourceError::Cancelled.into());
            }
            if row(&page.row(index)) == RowFlow::Stop {
                break;
            }
        }
        Ok(coverage)
    }

    /// `None` if no index can answer, or if it takes too long.
    fn search_index(
        &self,
        search: &Search<'_>,
        page: &mut RowBuffer,
    ) -> Result<Option<SearchCoverage>, DbError> {
        let Some(index) = &self.table.fts_index else { return Ok(None) };
        let table_columns: Vec<usize> =
            search.columns.iter().map(|index| self.table_columns[*index]).collect();
        let Some(query) = index.match_expression(&search.terms, &table_columns) else { return Ok(None) };
        let columns: Vec<String> =
            self.columns.iter().map(|column| format!("t.{}", column.quoted_name)).collect();
        let index_name = quote_identifier(&index.name);
        let rowid = table_scan::locator_columns(&self.table).join(", ");
        let (columns, table) = (columns.join(", "), &self.sql_name);
        let sql = if index.name == self.table.name {
            format!(
                "SELECT {columns} FROM {table} AS t WHERE t.{index_name} MATCH ?1 ORDER BY t.rank LIMIT ?2"
            )
        } else {
            format!(
                "SELECT {columns} FROM main.{index_name} AS w CROSS JOIN {table} AS t ON t.{rowid} = w.rowid \
                 WHERE w.{index_name} MATCH ?1 ORDER BY w.rank LIMIT ?2"
            )
        };
        let rows_max = search.rows_max.min(ROWS_MAX);
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let read = self.pool.read(|connection| {
            page.clear();
            connection.set_deadline(INDEX_LOCK_HOLD_MAX);
            let mut statement = connection.inner.prepare_cached(&sql)?;
            let mut rows = statement.query(params![query, limit])?;
            while let Some(row) = rows.next()? {
                self.buffer_row(row, 0, page)?;
                if page.byte_len() > BYTES_MAX {
                    return Ok(SearchCoverage::Truncated);
                }
            }
            Ok(SearchCoverage::Complete)
        });
        match read {
            Ok(coverage) => {
                progress::report_rows(search.progress, page.row_count() as u64);
                Ok(Some(coverage))
            }
            Err(DbError::DeadlineExceeded) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn search_by_scan(&self, search: &Search<'_>, page: &mut RowBuffer) -> Result<SearchCoverage, DbError> {
        let mut matcher = TermMatcher::new(&search.terms);
        let rows_max = search.rows_max.min(ROWS_MAX);
        let names: Vec<&str> = self.columns.iter().map(|column| column.quoted_name.as_str()).collect();
        page.clear();
        let (mut scanned, mut is_truncated) = (0, false);
        let mut visit =
            |row: &rusqlite::Row<'_>, from: usize, page: &mut RowBuffer| -> Result<ScanStep, DbError> {
                if scanned == search.scan_rows_max || page.byte_len() > BYTES_MAX {
                    is_truncated = true;
                    return Ok(ScanStep::Stop);
                }
                scanned += 1;
                if self.row_contains_terms(row, from, search.columns, &mut matcher)? {
                    self.buffer_row_from(row, from, 0, page)?;
                }
                Ok(if page.row_count() == rows_max { ScanStep::Stop } else { ScanStep::Continue })
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
        // A full page does not need to know whether rows follow; an incomplete one must say why.
        let is_full = page.row_count() == rows_max;
        Ok(if is_truncated || (coverage == ScanCoverage::Partial && !is_full) {
            SearchCoverage::Truncated
        } else {
            SearchCoverage::Complete
        })
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
