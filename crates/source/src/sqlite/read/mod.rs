//! Reads one table: a row by its key, a page in order.

mod aggregate;
mod count;
#[cfg(test)]
mod integer_tests;
pub(crate) mod page_cursor;
#[cfg(test)]
mod paging_tests;
pub(crate) mod row_buffer;
pub(crate) mod scan_page;
pub(crate) mod search;
pub(crate) mod select_builder;
pub(crate) mod served_tables;
pub(crate) mod table_scan;
mod total;
mod unique_key;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use contract::source::{
    Aggregate, CancelFlag, Comparison, Filter, Groups, Query, ReadRequest, Reader, RowFlow, RowPosition,
    Search, SearchOutcome, SourceError, TableShape, Total,
};
use contract::{Value, ValueRef};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use rusqlite::Row;
use rusqlite::types::ValueRef as SqlValueRef;

use crate::progress;
use crate::sqlite::Options;
use crate::sqlite::column::{Column, ExpectedType, from_sqlite};
use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::pool::{ConnectionPool, ReadMode};
use crate::sqlite::error::{DbError, file_name_of};
pub(crate) use crate::sqlite::read::page_cursor::PageCursor;
use crate::sqlite::read::row_buffer::RowBuffer;
use crate::sqlite::read::select_builder::{
    FilterShape, PageSegment, QueryParams, QueryShape, SelectBuilder, SqlTemplate,
};
use crate::sqlite::read::served_tables::{ServedTable, ServedTables};
use crate::sqlite::read::total::{CountedRows, INLINE_COUNT_MAX};
use crate::sqlite::schema::{RowLocator, Schema, Table};

/// How long a statement may hold its lock. A writer with a busy timeout of 50 ms gets through, even if our
/// thread waits for a processor meanwhile.
const LOCK_HOLD_MAX: Duration = Duration::from_millis(5);
/// In WAL mode readers do not block writers; the limit only bounds the age of the rows.
const LOCK_HOLD_WAL_MAX: Duration = Duration::from_millis(40);
/// A table with so few rows is read quickly, whatever the query.
const SMALL_ROWS: u64 = 2_000;
/// How long a statement may take on a thread that must not block.
const INLINE_TIME_MAX: Duration = Duration::from_millis(5);
/// A larger page is handed over in parts.
const PAGE_BYTES_MAX: usize = 4 << 20;
const ROWS_MAX: usize = 10_000;
const QUERY_CACHE_MAX: usize = 512;
/// Rows with at most this many columns are built on the stack.
const STACK_COLUMNS_MAX: usize = 24;

pub(crate) struct TableReader {
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) table: Table,
    pub(crate) columns: Vec<Column>,
    /// The index of each column in the table.
    pub(crate) table_columns: Vec<usize>,
    pub(crate) key: Vec<usize>,
    /// Whether the schema declares the key unique, so that an index finds it.
    pub(crate) key_is_declared: bool,
    /// How a page continues: after a key, after a rowid, or at an offset.
    pub(crate) paging: Paging,
    pub(crate) lock_hold_max: Duration,
    /// How long rows are counted on a thread that must not block.
    pub(crate) inline_count_max: Duration,
    /// Whether counting the rows did not end in time elsewhere either.
    pub(crate) is_costly_to_count: AtomicBool,
    /// For calls that cannot be cancelled.
    pub(crate) call_max: Duration,
    pub(crate) sql_name: String,
    is_small: bool,
    /// The number of all rows, if they need not be counted.
    pub(crate) known_rows: Option<u64>,
    /// The number of all rows, as each connection counted them.
    pub(crate) counted_rows: Mutex<Vec<CountedRows>>,
    pub(crate) connections_max: usize,
    key_lookup: SqlTemplate,
    query_cache: RwLock<HashMap<QueryShape, Arc<CachedQuery>, RandomState>>,
    /// Counted among the served tables while this reader is in use.
    _served_table: Option<Arc<ServedTable>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Paging {
    Key,
    Rowid(String),
    Offset,
}

pub(crate) struct CachedQuery {
    pub(crate) template: SqlTemplate,
    is_cheap: bool,
}

/// Whether more rows follow a page.
pub(crate) enum PageStatus {
    /// No rows follow.
    Exhausted,
    /// More rows may follow.
    MayHaveMore,
}

impl TableReader {
    pub(crate) fn new(
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
        let mut table_columns = Vec::with_capacity(shape.columns.len());
        for column_shape in &shape.columns {
            let is_at = |index: &usize| {
                let column = table.columns.get(*index);
                column.is_some_and(|it| options.import_rows.is_some() || it.name == column_shape.name)
            };
            let position = Some(column_shape.source_index)
                .filter(is_at)
                .or_else(|| (0..table.columns.len()).find(|index| is_at(index)));
            let position = position.ok_or_else(|| {
                incompatible_error(format!("table `{}` has no column `{}`", shape.table, column_shape.name))
            })?;
            columns.push(Column::new(column_shape, &table, position, is_utf16));
            table_columns.push(position);
        }
        let key = shape.key.clone();
        let declared: Vec<usize> =
            key.iter().filter_map(|index| table_columns.get(*index).copied()).collect();
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
            table_columns,
            key,
            key_is_declared,
            paging,
            lock_hold_max: if is_wal { LOCK_HOLD_WAL_MAX } else { LOCK_HOLD_MAX },
            inline_count_max: INLINE_COUNT_MAX,
            is_costly_to_count: AtomicBool::new(false),
            call_max: Duration::from_millis(options.call_ms_max),
            is_small: false,
            known_rows: options.import_rows,
            counted_rows: Mutex::default(),
            connections_max: options.connections_max.max(1),
            key_lookup: SqlTemplate::default(),
            query_cache: RwLock::default(),
            _served_table: None,
        };
        reader.prepare()?;
        Ok(reader)
    }

    /// Keeps statements from storing what this reader could not return.
    pub(crate) fn serve(&mut self, served: &ServedTables, shape: &TableShape) {
        self._served_table = Some(served.add(shape));
    }

    /// Runs a read on a pooled connection.
    pub(crate) fn read_in<T>(
        &self,
        mode: ReadMode,
        run: impl FnMut(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        match mode {
            ReadMode::Inline => self.pool.read_inline(run),
            ReadMode::Blocking => self.pool.read(run),
        }
    }

    /// Prepares what every call needs, and finds errors before the first call.
    fn prepare(&mut self) -> Result<(), SourceError> {
        let filters = self.key.iter().map(|column| FilterShape::equals(*column)).collect();
        let segment = PageSegment::KeyLookup;
        self.key_lookup = self.select_builder().build(&QueryShape { filters, sort: Vec::new(), segment });
        let is_view = self.table.locator == RowLocator::None;
        let counted = self.pool.read(|connection| {
            connection.inner.prepare_cached(&self.key_lookup.sql)?;
            if is_view { Ok(None) } else { self.count(connection, SMALL_ROWS) }
        });
        let counted = counted.map_err(|error| self.pool.source_error(error))?;
        self.is_small = counted.is_some();
        Ok(())
    }

    /// The number of rows, if there are at most `rows_max`.
    fn count(&self, connection: &DbConnection, rows_max: u64) -> Result<Option<u64>, DbError> {
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {})", self.sql_name, rows_max + 1);
        connection.set_deadline(self.lock_hold_max);
        let counted = connection.inner.prepare_cached(&sql)?.query_row([], |row| row.get::<_, i64>(0));
        match counted.map_err(DbError::from) {
            Ok(count) => Ok(u64::try_from(count).ok().filter(|count| *count <= rows_max)),
            Err(DbError::DeadlineExceeded) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn select_builder(&self) -> SelectBuilder<'_> {
        let rowid = match &self.paging {
            Paging::Rowid(rowid) => Some(rowid.as_str()),
            Paging::Key | Paging::Offset => None,
        };
        SelectBuilder { table: &self.sql_name, columns: &self.columns, key: &self.key, rowid }
    }

    fn cached_query(&self, shape: &QueryShape) -> Option<Arc<CachedQuery>> {
        self.query_cache.read().unwrap_or_else(PoisonError::into_inner).get(shape).map(Arc::clone)
    }

    pub(crate) fn query_for(
        &self,
        shape: QueryShape,
        connection: &DbConnection,
    ) -> Result<Arc<CachedQuery>, DbError> {
        if let Some(cached) = self.cached_query(&shape) {
            return Ok(cached);
        }
        let template = self.select_builder().build(&shape);
        let is_cheap = template.is_cheap(&connection.inner, &shape)?;
        let cached = Arc::new(CachedQuery { template, is_cheap });
        let mut plans = self.query_cache.write().unwrap_or_else(PoisonError::into_inner);
        if plans.len() < QUERY_CACHE_MAX {
            plans.insert(shape, Arc::clone(&cached));
        }
        Ok(cached)
    }

    /// Passes a row's values to `visit`, or names the column that has another type than before.
    #[inline]
    pub(crate) fn with_row_values<T>(
        &self,
        row: &Row<'_>,
        visit: impl FnOnce(&[ValueRef<'_>]) -> T,
    ) -> Result<T, DbError> {
        self.with_row_values_from(row, 0, visit)
    }

    /// Like `with_row_values`, where `from` other columns come first.
    #[inline(always)]
    fn with_row_values_from<T>(
        &self,
        row: &Row<'_>,
        from: usize,
        visit: impl FnOnce(&[ValueRef<'_>]) -> T,
    ) -> Result<T, DbError> {
        let count = self.columns.len();
        let mut stack = [ValueRef::Null; STACK_COLUMNS_MAX];
        let mut heap = Vec::new();
        let values = match stack.get_mut(..count) {
            Some(stack) => stack,
            None => {
                heap.resize(count, ValueRef::Null);
                &mut heap[..]
            }
        };
        for (index, (value, column)) in values.iter_mut().zip(&self.columns).enumerate() {
            let stored = row.get_ref(from + index)?;
            *value = column
                .checked_value(stored)
                .map_err(|expected| self.type_mismatch_error(row, from, column, expected))?;
        }
        for index in &self.key {
            if values[*index] == ValueRef::Null {
                let expected = ExpectedType("a value in every row");
                return Err(self.type_mismatch_error(row, from, &self.columns[*index], expected).into());
            }
        }
        Ok(visit(values))
    }

    /// The error of a call that meets such a value while it reads no row as a whole.
    #[cold]
    fn column_type_error(&self, column: &Column, ExpectedType(expected): ExpectedType) -> SourceError {
        let detail = format!("table `{}`, column `{}`: expected {expected}", self.table.name, column.name);
        SourceError::Incompatible { message: format!("{detail}, but a row has another value"), detail }
    }

    /// The caller learns the column. Only the log names the row, for the owner who can correct it.
    #[cold]
    fn type_mismatch_error(
        &self,
        row: &Row<'_>,
        from: usize,
        column: &Column,
        ExpectedType(expected): ExpectedType,
    ) -> SourceError {
        let problem = format!("table `{}`, column `{}`: expected {expected}", self.table.name, column.name);
        let segment = |index: &usize| {
            Some(format!(
                "`{}` {}",
                self.columns[*index].name,
                format_key_value(row.get_ref(from + *index).ok()?)
            ))
        };
        let key: Vec<String> = self.key.iter().filter_map(segment).collect();
        SourceError::Incompatible {
            message: format!(
                "{problem}, but a row has another value; the server's log names the row under `ref`"
            ),
            detail: if key.is_empty() {
                problem
            } else {
                format!("{problem}, in the row with {}", key.join(", "))
            },
        }
    }

    /// Copies a row into the buffer.
    pub(crate) fn buffer_row(
        &self,
        row: &Row<'_>,
        position: i64,
        page: &mut RowBuffer,
    ) -> Result<(), DbError> {
        self.buffer_row_from(row, 0, position, page)
    }

    pub(crate) fn buffer_row_from(
        &self,
        row: &Row<'_>,
        from: usize,
        position: i64,
        page: &mut RowBuffer,
    ) -> Result<(), DbError> {
        self.with_row_values_from(row, from, |values| {
            values.iter().for_each(|value| page.push(*value));
            page.end_row(position);
        })
    }

    pub(crate) fn key_filters<'a>(&self, key: &[ValueRef<'a>]) -> Vec<Filter<'a>> {
        let columns = self.key.iter().zip(key);
        columns.map(|(column, value)| Filter::new(*column, Comparison::Equals, *value)).collect()
    }

    /// Finds a row by a declared key and passes it on without copying.
    fn find_by_index(
        &self,
        filters: &[Filter<'_>],
        mode: ReadMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, DbError> {
        let values = QueryParams { filters, sort: &[], sort_values: &[], key: &[], limit: 1 };
        self.pool.read_row(mode, |connection| {
            let mut statement = connection.inner.prepare_cached(&self.key_lookup.sql)?;
            self.key_lookup.bind(&mut statement, &self.columns, &self.key, &values)?;
            let mut rows = statement.raw_query();
            match rows.next()? {
                Some(found) => self.with_row_values(found, |values| row(values)).map(|()| true),
                None => Ok(false),
            }
        })
    }

    /// Finds a row by a key that is not declared: may scan the table, and may find two.
    fn find_by_query(
        &self,
        filters: Vec<Filter<'_>>,
        mode: ReadMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, DbError> {
        let mut page = RowBuffer::new(self.columns.len());
        let query = Query { filters, rows_max: 2, ..Query::default() };
        self.fill_page(&query, None, 2, mode, &mut page)?;
        match page.row_count() {
            0 => Ok(false),
            1 => {
                row(&page.row(0));
                Ok(true)
            }
            _ => {
                let key: Vec<ValueRef<'_>> = self.key.iter().map(|at| page.value_ref(0, *at)).collect();
                Err(self.duplicate_key_error(&key).into())
            }
        }
    }

    /// Fills a page within the time that a lock may be held.
    pub(crate) fn query_page(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        mode: ReadMode,
        page: &mut RowBuffer,
    ) -> Result<PageStatus, DbError> {
        self.read_in(mode, |connection| {
            connection.set_deadline(match mode {
                ReadMode::Inline => INLINE_TIME_MAX,
                ReadMode::Blocking => self.lock_hold_max,
            });
            self.query_segments(query, after, rows_max, connection, page)
        })
    }

    /// Fills a page within the time of the call.
    fn query_whole_page(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        page: &mut RowBuffer,
    ) -> Result<PageStatus, DbError> {
        self.pool.read_with_timeout(table_scan::LOCK_TIMEOUT, |connection| {
            connection.set_call_limit(query.cancelled, self.call_max);
            let _cancel = connection.cancel_on(query.cancelled);
            self.query_segments(query, after, rows_max, connection, page)
        })
    }

    fn query_segments(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        connection: &DbConnection,
        page: &mut RowBuffer,
    ) -> Result<PageStatus, DbError> {
        page.clear();
        let segments = self.segments(query, after);
        // One snapshot for all segments.
        let _snapshot = if segments.len() > 1 { Some(ReadTransaction::begin(connection)?) } else { None };
        for segment in segments {
            let cached = self.query_for(QueryShape::new(query, segment), connection)?;
            let left = rows_max - page.row_count();
            if let PageStatus::MayHaveMore =
                self.query_segment(query, after, left, &cached.template, connection, page)?
            {
                return Ok(PageStatus::MayHaveMore);
            }
        }
        Ok(PageStatus::Exhausted)
    }

    /// What follows the cursor, in order: first the rows that are equal in every sorted column and have a later key, then
    /// the rows that are later in the last sorted column, then in the one before it, and so on.
    fn segments(&self, query: &Query<'_>, after: Option<&PageCursor>) -> Vec<PageSegment> {
        let Some(after) = after.filter(|_| self.paging != Paging::Offset) else {
            let from_offset = self.paging == Paging::Offset;
            return vec![if from_offset { PageSegment::FromOffset } else { PageSegment::FromStart }];
        };
        if query.sort.is_empty() {
            return vec![PageSegment::AfterKey];
        }
        let is_null = |at: usize| matches!(after.sort_values.get(at), Some(Value::Null) | None);
        let nulls = (0..query.sort.len()).filter(|at| is_null(*at)).fold(0_u8, |nulls, at| nulls | 1 << at);
        let mut segments = vec![PageSegment::SameSortValues { nulls }];
        for (at, sort) in query.sort.iter().enumerate().rev() {
            // Rows without a value come last, so nothing follows them.
            if is_null(at) {
                continue;
            }
            let same = at as u8;
            segments.push(PageSegment::LaterSortValue { same, nulls });
            if self.columns[sort.column].may_be_null() {
                segments.push(PageSegment::NullSortValue { same, nulls });
            }
        }
        segments
    }

    fn query_segment(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        template: &SqlTemplate,
        connection: &DbConnection,
        page: &mut RowBuffer,
    ) -> Result<PageStatus, DbError> {
        let values = QueryParams {
            filters: &query.filters,
            sort: &query.sort,
            sort_values: after.map_or(&[], |after| &after.sort_values),
            key: after.map_or(&[], |after| &after.key),
            limit: rows_max,
        };
        let mut offset = match values.key {
            [Value::Integer(seen), ..] if self.paging == Paging::Offset => seen.saturating_add(1),
            _ => 0,
        };
        let mut statement = connection.inner.prepare_cached(&template.sql)?;
        template.bind(&mut statement, &self.columns, &self.key, &values)?;
        let mut rows = statement.raw_query();
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let position = match self.paging {
                Paging::Key => 0,
                Paging::Rowid(_) => row.get(self.columns.len())?,
                Paging::Offset => offset,
            };
            offset += 1;
            count += 1;
            self.buffer_row(row, position, page)?;
            if count == rows_max || page.byte_len() > PAGE_BYTES_MAX {
                return Ok(PageStatus::MayHaveMore);
            }
        }
        Ok(PageStatus::Exhausted)
    }

    fn list_pages(
        &self,
        query: &Query<'_>,
        mode: ReadMode,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Total, DbError> {
        let rows_max = query.rows_max.min(ROWS_MAX);
        let mut after = self.parse_cursor(query)?;
        let mut page = RowBuffer::new(self.columns.len());
        let (mut read, mut total) = (0, None);
        while read < rows_max {
            let (status, counted) =
                self.fill_page(query, after.as_ref(), rows_max - read, mode, &mut page)?;
            total = counted.or(total);
            read += page.row_count();
            let flow = self.emit_rows(query, &page, row)?;
            match status {
                PageStatus::Exhausted if query.after.is_none() => {
                    return Ok(Total::Exact(total.unwrap_or(read as u64)));
                }
                PageStatus::Exhausted => break,
                PageStatus::MayHaveMore if flow == RowFlow::Stop => break,
                PageStatus::MayHaveMore => after = self.cursor_after(query, &page).or(after),
            }
        }
        match total {
            Some(total) => Ok(Total::Exact(total)),
            None => self.total(query, mode, read as u64),
        }
    }

    /// Fills a page: in one piece if that is quick, else by a scan that releases its lock. Returns the number of matching
    /// rows if the scan counted them.
    fn fill_page(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        mode: ReadMode,
        page: &mut RowBuffer,
    ) -> Result<(PageStatus, Option<u64>), DbError> {
        if query.is_sorted_by_link() {
            return match mode {
                ReadMode::Inline => Err(DbError::WouldBlock),
                ReadMode::Blocking if self.can_scan() => self.scan_whole_page(query, after, rows_max, page),
                // Nothing tells the rows of a view apart, so a page could not be read again.
                ReadMode::Blocking => Err(self.unsortable_view_error().into()),
            };
        }
        let status = match self.query_page(query, after, rows_max, mode, page) {
            Err(DbError::DeadlineExceeded) if mode == ReadMode::Inline => return Err(DbError::WouldBlock),
            Err(DbError::DeadlineExceeded) if self.can_scan() => {
                return self.scan_whole_page(query, after, rows_max, page);
            }
            // A view cannot be continued, so it holds its lock until it ends, as a statement does.
            Err(DbError::DeadlineExceeded) => self.query_whole_page(query, after, rows_max, page)?,
            status => status?,
        };
        progress::report_rows(query.progress, page.row_count() as u64);
        Ok((status, None))
    }

    /// Fills a page by a scan, which counts the rows as well.
    fn scan_whole_page(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        page: &mut RowBuffer,
    ) -> Result<(PageStatus, Option<u64>), DbError> {
        let total = self.scan_page(query, after, rows_max, page)?;
        let is_full = page.row_count() >= rows_max;
        let status = if is_full { PageStatus::MayHaveMore } else { PageStatus::Exhausted };
        Ok((status, Some(total)))
    }

    /// Whether a scan can continue after it released its lock.
    pub(crate) fn can_scan(&self) -> bool {
        self.table.locator != RowLocator::None && self.paging != Paging::Offset
    }

    fn emit_rows(
        &self,
        query: &Query<'_>,
        page: &RowBuffer,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<RowFlow, SourceError> {
        for index in 0..page.row_count() {
            if query.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                return Err(SourceError::Cancelled);
            }
            let position = RowPosition { row_number: page.position(index), table_version: 0, ties: 0 };
            if row(&page.row(index), position) == RowFlow::Stop {
                return self.check_page_end(query, page, index).map(|()| RowFlow::Stop);
            }
        }
        Ok(RowFlow::Continue)
    }

    #[inline]
    fn find(
        &self,
        key: &[ValueRef<'_>],
        mode: ReadMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        if key.len() != self.key.len() || key.is_empty() {
            return Ok(false);
        }
        let found = match (self.key_is_declared, &self.key[..], key) {
            (true, [column], [value]) => {
                self.find_by_index(&[Filter::new(*column, Comparison::Equals, *value)], mode, row)
            }
            (true, ..) => self.find_by_index(&self.key_filters(key), mode, row),
            (false, ..) => self.find_by_query(self.key_filters(key), mode, row),
        };
        found.map_err(|error| self.pool.source_error(error))
    }

    fn list_in(
        &self,
        query: &Query<'_>,
        mode: ReadMode,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        if query.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            return Err(SourceError::Cancelled);
        }
        self.list_pages(query, mode, row).map(Some).map_err(|error| self.source_error(error, query.cancelled))
    }

    /// When a scan stops by itself: only if its call cannot be cancelled.
    pub(crate) fn scan_deadline(&self, cancelled: Option<&CancelFlag>) -> Option<Instant> {
        cancelled.is_none().then(|| Instant::now() + self.call_max)
    }

    fn source_error(&self, error: DbError, cancelled: Option<&CancelFlag>) -> SourceError {
        match error {
            DbError::DeadlineExceeded if cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed)) => {
                SourceError::Cancelled
            }
            error => self.pool.source_error(error),
        }
    }
}

impl Reader for TableReader {
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool {
        match read {
            _ if self.is_small => true,
            ReadRequest::Get => self.key_is_declared,
            ReadRequest::List(query) => {
                let Ok(after) = self.parse_cursor(query) else { return true };
                self.segments(query, after.as_ref()).into_iter().all(|segment| {
                    let shape = QueryShape::new(query, segment);
                    match self.cached_query(&shape) {
                        Some(cached) => cached.is_cheap,
                        None => {
                            let cached =
                                self.pool.read_inline(|connection| self.query_for(shape.clone(), connection));
                            cached.is_ok_and(|cached| cached.is_cheap)
                        }
                    }
                })
            }
        }
    }

    #[inline]
    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        self.find(key, ReadMode::Blocking, row)
    }

    #[inline]
    fn get_inline(
        &self,
        key: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        self.find(key, ReadMode::Inline, row)
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.list_in(query, ReadMode::Blocking, row)
    }

    fn list_inline(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.list_in(query, ReadMode::Inline, row)
    }

    fn aggregate(&self, aggregate: &Aggregate<'_>) -> Result<Groups, SourceError> {
        self.group_rows(aggregate).map_err(|error| self.source_error(error, aggregate.cancelled))
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        self.search_rows(search, row).map_err(|error| self.source_error(error, search.cancelled))
    }
}

/// A read transaction that ends when this is dropped.
pub(crate) struct ReadTransaction<'s>(&'s DbConnection);

impl<'s> ReadTransaction<'s> {
    pub(crate) fn begin(connection: &'s DbConnection) -> Result<Self, DbError> {
        connection.inner.prepare_cached("BEGIN")?.execute([])?;
        Ok(Self(connection))
    }
}

impl Drop for ReadTransaction<'_> {
    fn drop(&mut self) {
        // The deadline may have passed; it must not interrupt the COMMIT.
        self.0.clear_deadline();
        let ended = self.0.inner.prepare_cached("COMMIT").and_then(|mut end| end.execute([]));
        // The pool closes a connection that is still in a transaction.
        drop(ended);
    }
}

fn incompatible_error(message: String) -> SourceError {
    SourceError::Incompatible { detail: message.clone(), message: format!("{message}; the data has changed") }
}

/// A key value for the log.
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
