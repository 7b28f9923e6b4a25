//! Rows that have words: by an index of words where there is one, else by looking at row after row.
//!
//! An index finds words that begin with what was asked for, and the best rows first. Looking finds it anywhere, in the
//! order of the table, in pieces like a long list (`walk`), and no further than it may.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use contract::ValueRef;
use contract::source::{RowFlow, Search, SearchCoverage, SourceError};
use rusqlite::params;

use super::column::format_number;
use super::error::DbError;
use super::reader::TableReader;
use super::row_buffer::RowBuffer;
use super::schema::quote_identifier;
use super::table_scan::{self, ScanControl, ScanCoverage, ScanStep, TableScan};
use crate::progress;
use crate::text_search::TermMatcher;

/// An index is asked in one go, whoever waits to write.
const INDEX_LOCK_HOLD_MAX: Duration = Duration::from_millis(40);
/// What is found is kept until the lock is given back.
const BYTES_MAX: usize = 32 << 20;
const ROWS_MAX: usize = 10_000;

impl TableReader {
    pub(super) fn search_rows(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<SearchCoverage, DbError> {
        let mut page = RowBuffer::new(self.columns.len());
        let asked = self.search_index(search, &mut page)?;
        let searched = match asked {
            Some(searched) => searched,
            None => self.search_by_scan(search, &mut page)?,
        };
        for at in 0..page.row_count() {
            if search.cancelled.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(SourceError::Cancelled.into());
            }
            if row(&page.row(at)) == RowFlow::Stop {
                break;
            }
        }
        Ok(searched)
    }

    /// None where there is no index that could tell, or where it takes too long.
    fn search_index(
        &self,
        search: &Search<'_>,
        page: &mut RowBuffer,
    ) -> Result<Option<SearchCoverage>, DbError> {
        let Some(index) = &self.table.fts_index else { return Ok(None) };
        let places: Vec<usize> = search.columns.iter().map(|at| self.table_columns[*at]).collect();
        let Some(question) = index.match_expression(&search.terms, &places) else { return Ok(None) };
        let columns: Vec<String> =
            self.columns.iter().map(|column| format!("t.{}", column.quoted_name)).collect();
        let words = quote_identifier(&index.name);
        let rowid = table_scan::locator_columns(&self.table).join(", ");
        let (columns, table) = (columns.join(", "), &self.sql_name);
        let sql = if index.name == self.table.name {
            format!("SELECT {columns} FROM {table} AS t WHERE t.{words} MATCH ?1 ORDER BY t.rank LIMIT ?2")
        } else {
            format!(
                "SELECT {columns} FROM main.{words} AS w CROSS JOIN {table} AS t ON t.{rowid} = w.rowid \
                 WHERE w.{words} MATCH ?1 ORDER BY w.rank LIMIT ?2"
            )
        };
        let rows_max = search.rows_max.min(ROWS_MAX);
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let read = self.pool.read(|session| {
            page.clear();
            session.set_deadline(INDEX_LOCK_HOLD_MAX);
            let mut statement = session.inner.prepare_cached(&sql)?;
            let mut rows = statement.query(params![question, limit])?;
            while let Some(row) = rows.next()? {
                self.buffer_row(row, 0, page)?;
                if page.byte_len() > BYTES_MAX {
                    return Ok(SearchCoverage::Truncated);
                }
            }
            Ok(SearchCoverage::Complete)
        });
        match read {
            Ok(searched) => {
                progress::report_rows(search.progress, page.row_count() as u64);
                Ok(Some(searched))
            }
            Err(DbError::DeadlineExceeded) => Ok(None),
            Err(fail) => Err(fail),
        }
    }

    fn search_by_scan(&self, search: &Search<'_>, page: &mut RowBuffer) -> Result<SearchCoverage, DbError> {
        let mut hunt = TermMatcher::new(&search.terms);
        let rows_max = search.rows_max.min(ROWS_MAX);
        let names: Vec<&str> = self.columns.iter().map(|column| column.quoted_name.as_str()).collect();
        page.clear();
        let (mut seen, mut is_cut) = (0, false);
        let mut each =
            |row: &rusqlite::Row<'_>, from: usize, page: &mut RowBuffer| -> Result<ScanStep, DbError> {
                if seen == search.scan_rows_max || page.byte_len() > BYTES_MAX {
                    is_cut = true;
                    return Ok(ScanStep::Stop);
                }
                seen += 1;
                if self.row_contains_terms(row, from, search.columns, &mut hunt)? {
                    self.buffer_row_from(row, from, 0, page)?;
                }
                Ok(if page.row_count() == rows_max { ScanStep::Stop } else { ScanStep::Continue })
            };
        let walked = match TableScan::new(&self.table, &names) {
            Some(walk) => {
                let limits = ScanControl {
                    deadline: self.list_deadline(),
                    cancelled: search.cancelled,
                    progress: search.progress,
                };
                walk.run(&self.pool, &limits, &mut |row| each(row, walk.locator_width, page))?
            }
            None => {
                // A view has no order that could be gone on with.
                let sql = format!("SELECT {} FROM {}", names.join(", "), self.sql_name);
                let until = Instant::now() + self.lock_hold_max;
                self.pool.read(|session| {
                    session.set_deadline(until.saturating_duration_since(Instant::now()));
                    let mut statement = session.inner.prepare_cached(&sql)?;
                    let mut rows = statement.query([])?;
                    while let Some(row) = rows.next()? {
                        progress::report_rows(search.progress, 1);
                        if each(row, 0, page)? == ScanStep::Stop {
                            return Ok(ScanCoverage::Partial);
                        }
                    }
                    Ok(ScanCoverage::Complete)
                })?
            }
        };
        // Whoever has enough rows does not ask what comes behind them; whoever has none must know why.
        let is_full = page.row_count() == rows_max;
        Ok(if is_cut || (walked == ScanCoverage::Partial && !is_full) {
            SearchCoverage::Truncated
        } else {
            SearchCoverage::Complete
        })
    }

    /// Whether each word is part of one of the columns.
    fn row_contains_terms(
        &self,
        row: &rusqlite::Row<'_>,
        from: usize,
        columns: &[usize],
        hunt: &mut TermMatcher,
    ) -> Result<bool, DbError> {
        hunt.start_row();
        for at in columns {
            let cell = self.columns[*at].unchecked_value(row.get_ref(from + at)?);
            if searchable_text(cell).is_some_and(|text| hunt.match_text(&text)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What a value reads as. Bytes are not read.
fn searchable_text(cell: ValueRef<'_>) -> Option<Cow<'_, str>> {
    match cell {
        ValueRef::Text(text) => Some(Cow::Borrowed(text)),
        ValueRef::Integer(_) | ValueRef::Real(_) => format_number(cell).map(Cow::Owned),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}
