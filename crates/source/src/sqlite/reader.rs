//! Reads one table: a row by its key, a page in order.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use contract::source::{
    Comparison, CursorPosition, Filter, Query, ReadRequest, Reader, RowFlow, RowPosition, Search,
    SearchCoverage, SourceError, TableShape, Total,
};
use contract::{Value, ValueRef};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use rusqlite::Row;
use rusqlite::types::ValueRef as SqlValueRef;

use super::Options;
use super::column::{Column, ExpectedType, from_sqlite};
use super::connection::DbConnection;
use super::error::{DbError, file_name_of};
use super::pool::ConnectionPool;
use super::row_buffer::RowBuffer;
use super::schema::{RowLocator, Schema, Table};
use super::select_builder::{PageSegment, QueryParams, QueryShape, SelectBuilder, SqlTemplate};
use crate::progress;

/// How long a statement may hold its lock. Who waits 50 ms for us gets through, even if our thread has to wait
/// for a processor meanwhile.
const LOCK_HOLD_MAX: Duration = Duration::from_millis(5);
/// In WAL mode nobody waits for a reader, and only the rows get old.
const LOCK_HOLD_WAL_MAX: Duration = Duration::from_millis(40);
/// A table with so few rows is read in no time whatever is asked.
const SMALL_ROWS: u64 = 2_000;
/// Up to so many rows are counted for a total.
const COUNT_ROWS: u64 = 5_000;
/// More is handed over in pieces.
const PAGE_BYTES_MAX: usize = 4 << 20;
const ROWS_MAX: usize = 10_000;
const QUERY_CACHE_MAX: usize = 512;
/// Rows with no more columns than this are made on the stack.
const STACK_COLUMNS_MAX: usize = 24;

pub(super) struct TableReader {
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) table: Table,
    pub(super) columns: Vec<Column>,
    /// Their places in the table.
    pub(super) table_columns: Vec<usize>,
    pub(super) key: Vec<usize>,
    /// Whether no two rows can have one key, and an index finds it.
    pub(super) key_is_declared: bool,
    /// What follows a page: a key, a rowid, or a number of rows.
    pub(super) paging: Paging,
    pub(super) lock_hold_max: Duration,
    list_ms_max: u64,
    pub(super) sql_name: String,
    is_small: bool,
    /// Whether there were few enough rows to count them for every list.
    counts_total: bool,
    key_lookup: SqlTemplate,
    query_cache: RwLock<HashMap<QueryShape, Arc<CachedQuery>, RandomState>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Paging {
    Key,
    Rowid(String),
    Offset,
}

struct CachedQuery {
    template: SqlTemplate,
    is_cheap: bool,
}

/// Where a page ended, checked against the table.
#[derive(Debug, Clone)]
pub(super) struct PageCursor {
    pub(super) sort_value: Option<Value>,
    pub(super) key: Vec<Value>,
}

/// How far a page got.
pub(super) enum PageStatus {
    /// No rows are left behind it.
    Exhausted,
    /// There may be more.
    MayHaveMore,
}

impl TableReader {
    pub(super) fn new(
        pool: &Arc<ConnectionPool>,
        options: &Options,
        schema: &Schema,
        shape: &TableShape,
    ) -> Result<Self, SourceError> {
        let name = file_name_of(pool.path());
        let Schema { tables, is_utf16, is_wal, .. } = schema;
        let (is_utf16, is_wal) = (*is_utf16, *is_wal);
        let table = tables.iter().find(|table| table.name == shape.table).cloned();
        let table =
            table.ok_or_else(|| incompatible_error(format!("`{name}` has no table `{}`", shape.table)))?;
        let mut columns = Vec::with_capacity(shape.columns.len());
        let mut places = Vec::with_capacity(shape.columns.len());
        for wanted in &shape.columns {
            let is_at = |at: &usize| table.columns.get(*at).is_some_and(|column| column.name == wanted.name);
            let place = Some(wanted.source_index)
                .filter(is_at)
                .or_else(|| (0..table.columns.len()).find(|at| is_at(at)));
            let place = place.ok_or_else(|| {
                incompatible_error(format!("table `{}` has no column `{}`", shape.table, wanted.name))
            })?;
            columns.push(Column::new(wanted, &table, place, is_utf16));
            places.push(place);
        }
        let key = shape.key.clone();
        let declared: Vec<usize> = key.iter().filter_map(|at| places.get(*at).copied()).collect();
        let key_is_declared = declared.len() == key.len() && table.is_declared_key(&declared);
        let paging = match &table.locator {
            _ if !key.is_empty() => Paging::Key,
            RowLocator::Rowid(rowid) => Paging::Rowid(rowid.clone()),
            RowLocator::PrimaryKey(_) | RowLocator::None => Paging::Offset,
        };
        let mut reader = Self {
            pool: Arc::clone(pool),
            sql_name: table.sql_name(),
            table,
            columns,
            table_columns: places,
            key,
            key_is_declared,
            paging,
            lock_hold_max: if is_wal { LOCK_HOLD_WAL_MAX } else { LOCK_HOLD_MAX },
            list_ms_max: options.list_ms_max,
            is_small: false,
            counts_total: false,
            key_lookup: SqlTemplate::default(),
            query_cache: RwLock::default(),
        };
        reader.prepare()?;
        Ok(reader)
    }

    /// Makes what every call needs, and finds what is wrong before the first.
    fn prepare(&mut self) -> Result<(), SourceError> {
        let filters = self.key.iter().map(|column| (*column, Comparison::Equals)).collect();
        self.key_lookup =
            self.select_builder().build(&QueryShape { filters, sort: None, segment: PageSegment::KeyLookup });
        let is_view = self.table.locator == RowLocator::None;
        let counted = self.pool.read(|session| {
            session.inner.prepare_cached(&self.key_lookup.sql)?;
            if is_view { Ok(None) } else { self.count(session, COUNT_ROWS) }
        });
        let counted = counted.map_err(|fail| self.pool.source_error(fail))?;
        self.counts_total = counted.is_some();
        self.is_small = counted.is_some_and(|rows| rows <= SMALL_ROWS);
        Ok(())
    }

    /// How many rows there are, if they are few.
    fn count(&self, session: &DbConnection, rows_max: u64) -> Result<Option<u64>, DbError> {
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {})", self.sql_name, rows_max + 1);
        session.set_deadline(self.lock_hold_max);
        let counted = session.inner.prepare_cached(&sql)?.query_row([], |row| row.get::<_, i64>(0));
        match counted.map_err(DbError::from) {
            Ok(count) => Ok(u64::try_from(count).ok().filter(|count| *count <= rows_max)),
            Err(DbError::DeadlineExceeded) => Ok(None),
            Err(fail) => Err(fail),
        }
    }

    pub(super) fn select_builder(&self) -> SelectBuilder<'_> {
        let rowid = match &self.paging {
            Paging::Rowid(rowid) => Some(rowid.as_str()),
            Paging::Key | Paging::Offset => None,
        };
        SelectBuilder { table: &self.sql_name, columns: &self.columns, key: &self.key, rowid }
    }

    fn cached_query(&self, form: &QueryShape) -> Option<Arc<CachedQuery>> {
        self.query_cache.read().unwrap_or_else(PoisonError::into_inner).get(form).map(Arc::clone)
    }

    fn query_for(&self, form: QueryShape, session: &DbConnection) -> Result<Arc<CachedQuery>, DbError> {
        if let Some(known) = self.cached_query(&form) {
            return Ok(known);
        }
        let plan = self.select_builder().build(&form);
        let is_short = plan.is_cheap(&session.inner, &form)?;
        let known = Arc::new(CachedQuery { template: plan, is_cheap: is_short });
        let mut plans = self.query_cache.write().unwrap_or_else(PoisonError::into_inner);
        if plans.len() < QUERY_CACHE_MAX {
            plans.insert(form, Arc::clone(&known));
        }
        Ok(known)
    }

    /// Hands a row's values over, or says which is not as it was.
    #[inline]
    pub(super) fn with_row_values<T>(
        &self,
        row: &Row<'_>,
        hand: impl FnOnce(&[ValueRef<'_>]) -> T,
    ) -> Result<T, DbError> {
        self.with_row_values_from(row, 0, hand)
    }

    /// The same where other columns come first.
    #[inline(always)]
    fn with_row_values_from<T>(
        &self,
        row: &Row<'_>,
        from: usize,
        hand: impl FnOnce(&[ValueRef<'_>]) -> T,
    ) -> Result<T, DbError> {
        let count = self.columns.len();
        let mut few = [ValueRef::Null; STACK_COLUMNS_MAX];
        let mut many = Vec::new();
        let cells = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, ValueRef::Null);
                &mut many[..]
            }
        };
        for (at, (cell, column)) in cells.iter_mut().zip(&self.columns).enumerate() {
            let value = row.get_ref(from + at)?;
            *cell = column
                .checked_value(value)
                .map_err(|expected| self.type_mismatch_error(row, from, column, expected))?;
        }
        for at in &self.key {
            if cells[*at] == ValueRef::Null {
                let expected = ExpectedType("a value in every row");
                return Err(self.type_mismatch_error(row, from, &self.columns[*at], expected).into());
            }
        }
        Ok(hand(cells))
    }

    /// Callers learn which column; which row it is says the log, to whoever can correct it.
    #[cold]
    fn type_mismatch_error(
        &self,
        row: &Row<'_>,
        from: usize,
        column: &Column,
        ExpectedType(expected): ExpectedType,
    ) -> SourceError {
        let what = format!("table `{}`, column `{}`: expected {expected}", self.table.name, column.name);
        let part = |at: &usize| {
            Some(format!("`{}` {}", self.columns[*at].name, format_key_value(row.get_ref(from + *at).ok()?)))
        };
        let key: Vec<String> = self.key.iter().filter_map(part).collect();
        SourceError::Incompatible {
            message: format!("{what}, and a row has something else; the log of the server says which"),
            detail: if key.is_empty() { what } else { format!("{what}, in the row with {}", key.join(", ")) },
        }
    }

    pub(super) fn duplicate_key_error(&self) -> SourceError {
        let names: Vec<String> = self.key.iter().map(|at| format!("`{}`", self.columns[*at].name)).collect();
        incompatible_error(format!("table `{}`: the key {} repeats", self.table.name, names.join(", ")))
    }

    /// Adds a row to a page.
    pub(super) fn buffer_row(&self, row: &Row<'_>, place: i64, page: &mut RowBuffer) -> Result<(), DbError> {
        self.buffer_row_from(row, 0, place, page)
    }

    pub(super) fn buffer_row_from(
        &self,
        row: &Row<'_>,
        from: usize,
        place: i64,
        page: &mut RowBuffer,
    ) -> Result<(), DbError> {
        self.with_row_values_from(row, from, |cells| {
            cells.iter().for_each(|cell| page.push(*cell));
            page.end_row(place);
        })
    }

    pub(super) fn key_filters<'a>(&self, key: &[ValueRef<'a>]) -> Vec<Filter<'a>> {
        let columns = self.key.iter().zip(key);
        columns
            .map(|(column, value)| Filter { column: *column, comparison: Comparison::Equals, value: *value })
            .collect()
    }

    /// The row with a key, by an index: handed over where it lies.
    fn find_by_index(
        &self,
        filters: &[Filter<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, DbError> {
        let values = QueryParams { filters, sort: None, sort_value: None, key: &[], limit: 1 };
        self.pool.read_row(|session| {
            let mut statement = session.inner.prepare_cached(&self.key_lookup.sql)?;
            self.key_lookup.bind(&mut statement, &self.columns, &self.key, &values)?;
            let mut rows = statement.raw_query();
            match rows.next()? {
                Some(found) => self.with_row_values(found, |cells| row(cells)).map(|()| true),
                None => Ok(false),
            }
        })
    }

    /// The row with a key that only happens to be one: perhaps by reading all, perhaps there are two.
    fn find_by_query(
        &self,
        filters: Vec<Filter<'_>>,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, DbError> {
        let mut page = RowBuffer::new(self.columns.len());
        let query = Query { filters, rows_max: 2, ..Query::default() };
        match self.query_page(&query, None, 2, &mut page) {
            Err(DbError::DeadlineExceeded) => {
                self.scan_page(&query, None, 2, &mut page)?;
            }
            filled => {
                filled?;
            }
        }
        match page.row_count() {
            0 => Ok(false),
            1 => {
                row(&page.row(0));
                Ok(true)
            }
            _ => Err(self.duplicate_key_error().into()),
        }
    }

    /// Fills a page within the time a lock may be held.
    pub(super) fn query_page(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        page: &mut RowBuffer,
    ) -> Result<PageStatus, DbError> {
        let parts = self.segments(query, after);
        self.pool.read(|session| {
            page.clear();
            session.set_deadline(self.lock_hold_max);
            // One state of the database for all parts.
            let _snapshot = if parts.len() > 1 { Some(ReadTransaction::begin(session)?) } else { None };
            for part in parts {
                let known = self.query_for(QueryShape::new(query, *part), session)?;
                let left = rows_max - page.row_count();
                if let PageStatus::MayHaveMore =
                    self.query_segment(query, after, left, &known.template, session, page)?
                {
                    return Ok(PageStatus::MayHaveMore);
                }
            }
            Ok(PageStatus::Exhausted)
        })
    }

    fn segments(&self, query: &Query<'_>, after: Option<&PageCursor>) -> &'static [PageSegment] {
        match (after, query.sort) {
            _ if self.paging == Paging::Offset => &[PageSegment::FromOffset],
            (None, _) => &[PageSegment::FromStart],
            (Some(_), None) => &[PageSegment::AfterKey],
            (Some(PageCursor { sort_value: Some(Value::Null) | None, .. }), Some(_)) => {
                &[PageSegment::NullSortValueAfterKey]
            }
            (Some(_), Some(sort)) if self.columns[sort.column].may_be_null() => {
                &[PageSegment::SameSortValue, PageSegment::LaterSortValue, PageSegment::NullSortValue]
            }
            (Some(_), Some(_)) => &[PageSegment::SameSortValue, PageSegment::LaterSortValue],
        }
    }

    fn query_segment(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        plan: &SqlTemplate,
        session: &DbConnection,
        page: &mut RowBuffer,
    ) -> Result<PageStatus, DbError> {
        let values = QueryParams {
            filters: &query.filters,
            sort: query.sort,
            sort_value: after.and_then(|after| after.sort_value.as_ref()),
            key: after.map_or(&[], |after| &after.key),
            limit: rows_max,
        };
        let mut offset = match values.key {
            [Value::Integer(seen), ..] if self.paging == Paging::Offset => seen.saturating_add(1),
            _ => 0,
        };
        let mut statement = session.inner.prepare_cached(&plan.sql)?;
        plan.bind(&mut statement, &self.columns, &self.key, &values)?;
        let mut rows = statement.raw_query();
        let mut taken = 0;
        while let Some(row) = rows.next()? {
            let place = match self.paging {
                Paging::Key => 0,
                Paging::Rowid(_) => row.get(self.columns.len())?,
                Paging::Offset => offset,
            };
            offset += 1;
            taken += 1;
            self.buffer_row(row, place, page)?;
            if taken == rows_max || page.byte_len() > PAGE_BYTES_MAX {
                return Ok(PageStatus::MayHaveMore);
            }
        }
        Ok(PageStatus::Exhausted)
    }

    /// Reads a cursor. It came from us, and perhaps from another shape of the table.
    pub(super) fn parse_cursor(&self, query: &Query<'_>) -> Result<Option<PageCursor>, SourceError> {
        let Some(CursorPosition { sort_value: sorted, key }) = query.after else { return Ok(None) };
        let after = PageCursor { sort_value: sorted.clone(), key: key.clone() };
        let fits = match (&self.paging, &key[..]) {
            (Paging::Key, key) => key.len() == self.key.len() && !key.contains(&Value::Null),
            (Paging::Rowid(_) | Paging::Offset, [Value::Integer(_), Value::Integer(0)]) => true,
            (Paging::Rowid(_) | Paging::Offset, _) => false,
        };
        if fits && sorted.is_some() == query.sort.is_some() {
            Ok(Some(after))
        } else {
            Err(SourceError::StaleCursor)
        }
    }

    pub(super) fn cursor_after(&self, query: &Query<'_>, page: &RowBuffer) -> Option<PageCursor> {
        let row = page.row_count().checked_sub(1)?;
        let sorted = query.sort.map(|sort| page.value(row, sort.column));
        let key = match self.paging {
            Paging::Key => self.key.iter().map(|column| page.value(row, *column)).collect(),
            Paging::Rowid(_) | Paging::Offset => vec![Value::Integer(page.position(row))],
        };
        Some(PageCursor { sort_value: sorted, key })
    }

    fn list_pages(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<u64>, DbError> {
        let rows_max = query.rows_max.min(ROWS_MAX);
        let mut after = self.parse_cursor(query)?;
        let mut page = RowBuffer::new(self.columns.len());
        let (mut read, mut total) = (0, None);
        while read < rows_max {
            let filled = match self.query_page(query, after.as_ref(), rows_max - read, &mut page) {
                Err(DbError::DeadlineExceeded) => {
                    total = Some(self.scan_page(query, after.as_ref(), rows_max - read, &mut page)?);
                    if page.row_count() < rows_max - read {
                        PageStatus::Exhausted
                    } else {
                        PageStatus::MayHaveMore
                    }
                }
                filled => {
                    let filled = filled?;
                    progress::report_rows(query.progress, page.row_count() as u64);
                    filled
                }
            };
            read += page.row_count();
            if self.emit_rows(query, &page, row)? == RowFlow::Stop {
                read = rows_max;
            }
            match filled {
                PageStatus::Exhausted if query.after.is_none() => {
                    return Ok(Some(total.unwrap_or(read as u64)));
                }
                PageStatus::Exhausted => break,
                PageStatus::MayHaveMore => after = self.cursor_after(query, &page).or(after),
            }
        }
        match total {
            None if query.filters.is_empty() && self.counts_total => {
                self.pool.read(|session| self.count(session, COUNT_ROWS))
            }
            total => Ok(total),
        }
    }

    fn emit_rows(
        &self,
        query: &Query<'_>,
        page: &RowBuffer,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<RowFlow, SourceError> {
        for at in 0..page.row_count() {
            if query.cancelled.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(SourceError::Cancelled);
            }
            let same =
                |column: &usize| at > 0 && page.value_ref(at, *column) == page.value_ref(at - 1, *column);
            if !self.key_is_declared && !self.key.is_empty() && self.key.iter().all(same) {
                return Err(self.duplicate_key_error());
            }
            let place = RowPosition { row_number: page.position(at), table_version: 0, ties: 0 };
            if row(&page.row(at), place) == RowFlow::Stop {
                return Ok(RowFlow::Stop);
            }
        }
        Ok(RowFlow::Continue)
    }

    pub(super) fn list_deadline(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.list_ms_max)
    }
}

impl Reader for TableReader {
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool {
        match read {
            _ if self.is_small => true,
            ReadRequest::Get => self.key_is_declared,
            ReadRequest::List(query) => {
                let Ok(after) = self.parse_cursor(query) else { return true };
                self.segments(query, after.as_ref()).iter().all(|part| {
                    let form = QueryShape::new(query, *part);
                    match self.cached_query(&form) {
                        Some(known) => known.is_cheap,
                        None => {
                            let known = self.pool.read(|session| self.query_for(form.clone(), session));
                            known.is_ok_and(|known| known.is_cheap)
                        }
                    }
                })
            }
        }
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        if key.len() != self.key.len() || key.is_empty() {
            return Ok(false);
        }
        let found = match (self.key_is_declared, &self.key[..], key) {
            (true, [column], [value]) => self.find_by_index(
                &[Filter { column: *column, comparison: Comparison::Equals, value: *value }],
                row,
            ),
            (true, ..) => self.find_by_index(&self.key_filters(key), row),
            (false, ..) => self.find_by_query(self.key_filters(key), row),
        };
        found.map_err(|fail| self.pool.source_error(fail))
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        if query.cancelled.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(SourceError::Cancelled);
        }
        self.list_pages(query, row)
            .map(|total| total.map(Total::Exact))
            .map_err(|fail| self.pool.source_error(fail))
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<SearchCoverage, SourceError> {
        self.search_rows(search, row).map_err(|fail| self.pool.source_error(fail))
    }
}

/// A transaction that ends with this.
pub(super) struct ReadTransaction<'s>(&'s DbConnection);

impl<'s> ReadTransaction<'s> {
    pub(super) fn begin(session: &'s DbConnection) -> Result<Self, DbError> {
        session.inner.prepare_cached("BEGIN")?.execute([])?;
        Ok(Self(session))
    }
}

impl Drop for ReadTransaction<'_> {
    fn drop(&mut self) {
        // The deadline may be over, and this must not be stopped by it.
        self.0.clear_deadline();
        let ended = self.0.inner.prepare_cached("COMMIT").and_then(|mut end| end.execute([]));
        // A connection that is still in a transaction is closed instead of lent again.
        drop(ended);
    }
}

fn incompatible_error(told: String) -> SourceError {
    SourceError::Incompatible {
        detail: told.clone(),
        message: format!("{told}; the data is not what it was"),
    }
}

/// A value of a key for the log.
fn format_key_value(value: SqlValueRef<'_>) -> String {
    const BYTES_MAX: usize = 80;
    match from_sqlite(value) {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(text) => format!("`{}`", &text[..text.floor_char_boundary(BYTES_MAX)]),
        ValueRef::Blob(bytes) => format!("of {} bytes", bytes.len()),
    }
}
