//! Reads one table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::source::{
    Aggregate, CancelFlag, CursorPosition, Filter, Groups, Query, QuickReadFuture, ReadRequest, Reader,
    RowFlow, RowPosition, Search, SearchCoverage, SearchCursor, SearchOutcome, SourceError, SourceIdentity,
    TableShape, Total,
};
use contract::{Value, ValueRef, order};

use crate::call::CallLimits;
use crate::column::{Column, Storage};
use crate::connection::{OnRow, Param, ResultColumn, Sql};
use crate::dialect::{Dialect, SqlWriter, TABLE_ALIAS};
use crate::error::{DbError, unavailable};
use crate::options::CallerMode;
use crate::pool::Pool;
use crate::schema::{TableInfo, TextIndex, TextIndexKind};
use crate::select::{SortTerm, Table};

/// Rows that pass filters are counted up to this number.
const COUNTED_ROWS_MAX: u64 = 100_000;

#[derive(Clone)]
pub(crate) struct TableReader {
    pub(crate) pool: Arc<Pool>,
    pub(crate) dialect: &'static dyn Dialect,
    /// Quoted.
    pub(crate) name: String,
    is_view: bool,
    pub(crate) columns: Arc<[Column]>,
    pub(crate) key: Vec<usize>,
    /// With indexes of `columns`, in ascending order.
    text_indexes: Vec<TextIndex>,
    pub(crate) call_max: Duration,
    /// Who reads, where the database knows its callers.
    identity: Option<Arc<SourceIdentity>>,
}

impl TableReader {
    pub(crate) fn new(
        pool: &Arc<Pool>,
        dialect: &'static dyn Dialect,
        table: &TableInfo,
        shape: &TableShape,
        call_max: Duration,
    ) -> Result<Self, SourceError> {
        let column = |shape: &contract::source::ColumnShape| {
            let info = table.columns.iter().find(|column| column.name == shape.name);
            let info = info.ok_or_else(|| SourceError::Incompatible {
                message: format!("the table has no column `{}` any more", shape.name),
                detail: format!("`{}` of `{}`", shape.name, table.name),
            })?;
            let quoted = format!("{TABLE_ALIAS}.{}", dialect.quote(&info.name));
            Column::new(info, shape, quoted)
        };
        Ok(Self {
            pool: Arc::clone(pool),
            dialect,
            name: table.quoted.clone(),
            is_view: table.is_view,
            columns: shape.columns.iter().map(column).collect::<Result<_, _>>()?,
            key: shape.key.clone(),
            text_indexes: table
                .text_indexes
                .iter()
                .filter_map(|index| index.in_shape(table, shape))
                .collect(),
            call_max,
            identity: None,
        })
    }

    /// Fails if two rows have the same key.
    pub(crate) fn check_unique_key(&self) -> Result<(), SourceError> {
        let mut out = SqlWriter::new(self.dialect);
        // As they are compared: a collation may take different texts for the same.
        let names: Vec<String> =
            self.key.iter().map(|at| self.dialect.sort_expression(&self.columns[*at])).collect();
        let names = names.join(", ");
        out.push("SELECT 1");
        out.sql.results.push(ResultColumn::computed(Storage::Integer));
        out.from(&self.name);
        out.push(&format!(" GROUP BY {names} HAVING count(*) > 1 LIMIT 1"));
        let mut has_duplicates = false;
        self.run(&out.sql, &self.limits(None), &mut |_| {
            has_duplicates = true;
            Ok(RowFlow::Stop)
        })?;
        if has_duplicates {
            let columns: Vec<&str> = self.key.iter().map(|at| self.columns[*at].name.as_str()).collect();
            let message = format!("`{}` is not a key: several rows have the same value", columns.join(" + "));
            return Err(SourceError::Incompatible { detail: message.clone(), message });
        }
        Ok(())
    }

    pub(crate) fn limits<'a>(&self, cancelled: Option<&'a CancelFlag>) -> CallLimits<'a> {
        CallLimits::new(cancelled, self.call_max)
    }

    pub(crate) fn table(&self) -> Table<'_> {
        Table { columns: &self.columns, key: &self.key }
    }

    /// Runs a statement that reads.
    pub(crate) fn run(
        &self,
        sql: &Sql,
        limits: &CallLimits<'_>,
        row: &mut OnRow<'_>,
    ) -> Result<(), SourceError> {
        if self.identity.is_some() || self.pool.callers != CallerMode::Connection {
            return self.pool.read_in_transaction(self.identity.as_deref(), sql, limits, row);
        }
        let mut has_passed_rows = false;
        let ran = self.pool.with_connection(limits, |connection| {
            let ran = connection.run(sql, limits, &mut |values| {
                has_passed_rows = true;
                row(values)
            });
            match ran {
                // It cannot begin again.
                Err(DbError::Lost { detail }) if has_passed_rows => Err(unavailable(detail).into()),
                ran => ran,
            }
        });
        ran.map(|_| ())
    }

    /// Fails for values that do not fit the contract. `values` begin with the chosen columns.
    pub(crate) fn check(
        &self,
        chosen: impl Iterator<Item = usize>,
        values: &[ValueRef<'_>],
    ) -> Result<(), SourceError> {
        for (at, value) in chosen.zip(values) {
            let column = &self.columns[at];
            if !column.accepts(*value) {
                return Err(column.mismatch(*value));
            }
        }
        Ok(())
    }

    /// The statement that finds a row by its key.
    pub(crate) fn key_lookup(&self, key: &[ValueRef<'_>], lock: &str) -> Sql {
        let mut out = SqlWriter::new(self.dialect);
        out.select(&self.columns, 0..self.columns.len());
        out.from(&self.name);
        for (at, (column, value)) in self.key.iter().zip(key).enumerate() {
            out.push(if at == 0 { " WHERE " } else { " AND " });
            out.equals(&self.columns[*column], *value);
        }
        out.push(lock);
        out.sql
    }

    fn get_within(
        &self,
        limits: &CallLimits<'_>,
        key: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        if key.len() != self.key.len() {
            return Ok(false);
        }
        let mut is_found = false;
        self.run(&self.key_lookup(key, ""), limits, &mut |values| {
            self.check(0..self.columns.len(), values)?;
            is_found = true;
            row(values);
            Ok(RowFlow::Stop)
        })?;
        Ok(is_found)
    }

    /// Writes a page: all columns, the number of rows that pass, and for a table without a key its version.
    fn page(&self, page: &PageQuery<'_>) -> Result<Sql, SourceError> {
        let mut out = SqlWriter::new(self.dialect);
        out.select(&self.columns, 0..self.columns.len());
        let scanned = page.scan().map(|search| self.scanned_rows(search));
        let rows = scanned.as_deref().unwrap_or(&self.name);
        out.push(", (SELECT count(*) FROM (SELECT 1");
        out.from(rows);
        self.conditions(&mut out, page);
        out.push(&format!(" LIMIT {}) AS counted)", COUNTED_ROWS_MAX + 1));
        out.sql.results.push(ResultColumn::computed(Storage::Integer));
        if self.key.is_empty() {
            out.push(", (SELECT ");
            out.push(&self.dialect.version_expression(&self.columns, self.is_view));
            out.from(&self.name);
            out.push(")");
            out.sql.results.push(ResultColumn::computed(Storage::Integer));
        }
        out.from(rows);
        let table = self.table();
        let terms = out.join_sorts(&table, page.sorts);
        self.conditions(&mut out, page);
        let row_id = if self.key.is_empty() { self.row_id() } else { Vec::new() };
        if let (false, Some(after)) = (self.key.is_empty(), page.after) {
            out.push(if page.has_conditions() { " AND " } else { " WHERE " });
            out.after(&table, &terms, after)?;
        }
        self.finish_page(&mut out, &terms, &row_id, page);
        Ok(out.sql)
    }

    fn finish_page(
        &self,
        out: &mut SqlWriter<'_>,
        terms: &[SortTerm],
        row_id: &[String],
        page: &PageQuery<'_>,
    ) {
        out.order_by(terms, row_id);
        out.push(&format!(" LIMIT {}", page.rows_max));
        if page.offset > 0 {
            out.push(&format!(" OFFSET {}", page.offset));
        }
    }

    /// What orders the rows of a table without a key.
    fn row_id(&self) -> Vec<String> {
        match self.own_row_id() {
            row_id if !row_id.is_empty() => {
                row_id.iter().map(|column| format!("{TABLE_ALIAS}.{column}")).collect()
            }
            _ => {
                let scalar = self.columns.iter().filter(|column| column.data_type.is_scalar());
                scalar
                    .map(|column| self.dialect.order_by(&self.dialect.sort_expression(column), false))
                    .collect()
            }
        }
    }

    /// The columns of the engine that identify a row; a view has none.
    fn own_row_id(&self) -> &'static [&'static str] {
        if self.is_view { &[] } else { self.dialect.row_id() }
    }

    /// The first rows of the table: as many as a search scans.
    fn scanned_rows(&self, search: &Search<'_>) -> String {
        let order: Vec<String> = match &self.key[..] {
            [] => self.row_id(),
            key => key.iter().map(|at| self.dialect.sort_expression(&self.columns[*at])).collect(),
        };
        let order = if order.is_empty() { String::new() } else { format!(" ORDER BY {}", order.join(", ")) };
        let row_id = if self.key.is_empty() { self.own_row_id() } else { &[] };
        let row_id: String = row_id.iter().map(|column| format!(", {TABLE_ALIAS}.{column}")).collect();
        let name = &self.name;
        let limit = search.scan_rows_max;
        format!("(SELECT {TABLE_ALIAS}.*{row_id} FROM {name} AS {TABLE_ALIAS}{order} LIMIT {limit})")
    }

    fn conditions(&self, out: &mut SqlWriter<'_>, page: &PageQuery<'_>) {
        out.filters(&self.columns, page.filters);
        if let Some(search) = page.search {
            if page.filters.is_empty() {
                out.push(" WHERE TRUE");
            }
            match page.index {
                Some(index) => self.word_match(out, index, search),
                None => out.terms(&self.columns, search.columns, &search.terms),
            }
        }
    }

    fn word_match(&self, out: &mut SqlWriter<'_>, index: &TextIndex, search: &Search<'_>) {
        let columns: Vec<&Column> = index.columns.iter().map(|at| &self.columns[*at]).collect();
        out.push(" AND ");
        self.dialect.write_word_match(out, &index.kind, &columns, &lowercase_terms(search));
    }

    /// The full-text index that answers a search: it has the searched columns and no others, because words of other columns
    /// must not decide.
    fn text_index(&self, search: &Search<'_>) -> Option<&TextIndex> {
        let mut searched = search.columns.to_vec();
        searched.sort_unstable();
        let index = self.text_indexes.iter().find(|index| index.columns == searched)?;
        self.dialect.can_match_words(&lowercase_terms(search)).then_some(index)
    }

    /// Whether a search has a word that the index knows. Without one, no row would match.
    fn has_words(&self, index: &TextIndex, search: &Search<'_>) -> Result<bool, SourceError> {
        let TextIndexKind::Vector { dictionary, .. } = &index.kind else { return Ok(true) };
        let mut out = SqlWriter::new(self.dialect);
        out.push(&format!("SELECT numnode(plainto_tsquery({dictionary}, "));
        out.param(Param::Text(lowercase_terms(search).join(" ")));
        out.push("))::int8");
        Ok(self.single_integer(out, &self.limits(search.cancelled))? > 0)
    }

    /// Reads a page and passes its rows on. Returns how many rows pass the conditions.
    fn read_page(
        &self,
        page: &mut PageQuery<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Total, SourceError> {
        let version = self.start_after(page)?;
        let limits = self.limits(page.cancelled);
        let width = self.columns.len();
        let (mut total, mut number, mut is_stopped) = (None, page.offset, false);
        self.run(&self.page(page)?, &limits, &mut |values| {
            let integer = |at: usize| match values.get(at) {
                Some(ValueRef::Integer(n)) => *n,
                _ => 0,
            };
            total = Some(integer(width));
            if is_stopped {
                return Ok(RowFlow::Stop);
            }
            let table_version = integer(width + 1);
            if version.is_some_and(|version| version != table_version) {
                return Err(SourceError::StaleCursor);
            }
            self.check(0..width, values)?;
            number += 1;
            count_rows(page.progress, 1);
            let position = RowPosition { row_number: number, table_version, ties: 0 };
            let flow = row(&values[..width], position);
            is_stopped = flow == RowFlow::Stop;
            Ok(flow)
        })?;
        let total = match total {
            Some(total) => total,
            None if page.after.is_none() => 0,
            // Nothing follows the position, so no row told.
            None => self.count(page, &limits)?,
        };
        let total = u64::try_from(total).unwrap_or(0);
        Ok(if total > COUNTED_ROWS_MAX { Total::AtLeast(COUNTED_ROWS_MAX) } else { Total::Exact(total) })
    }

    /// For a table without a key: sets the offset, and returns the version that the table had.
    fn start_after(&self, page: &mut PageQuery<'_>) -> Result<Option<i64>, SourceError> {
        let Some(after) = page.after else { return Ok(None) };
        match after.key.as_slice() {
            key if !self.key.is_empty() => {
                let is_own = key.len() == self.key.len() && after.sort_values.len() == page.sorts.len();
                if is_own { Ok(None) } else { Err(SourceError::StaleCursor) }
            }
            [Value::Integer(number), Value::Integer(version)] if *number >= 0 => {
                page.offset = *number;
                Ok(Some(*version))
            }
            _ => Err(SourceError::StaleCursor),
        }
    }

    fn count(&self, page: &PageQuery<'_>, limits: &CallLimits<'_>) -> Result<i64, SourceError> {
        let mut out = SqlWriter::new(self.dialect);
        let scanned = page.scan().map(|search| self.scanned_rows(search));
        out.push("SELECT count(*) FROM (SELECT 1");
        out.from(scanned.as_deref().unwrap_or(&self.name));
        self.conditions(&mut out, page);
        out.push(&format!(" LIMIT {}) AS counted", COUNTED_ROWS_MAX + 1));
        self.single_integer(out, limits)
    }

    fn single_integer(&self, mut out: SqlWriter<'_>, limits: &CallLimits<'_>) -> Result<i64, SourceError> {
        out.sql.results.push(ResultColumn::computed(Storage::Integer));
        let mut found = 0;
        self.run(&out.sql, limits, &mut |values| {
            if let Some(ValueRef::Integer(n)) = values.first() {
                found = *n;
            }
            Ok(RowFlow::Continue)
        })?;
        Ok(found)
    }

    /// Whether the table has more rows than this.
    fn has_more_rows_than(&self, rows: usize, limits: &CallLimits<'_>) -> Result<bool, SourceError> {
        let mut out = SqlWriter::new(self.dialect);
        out.push("SELECT count(*) FROM (SELECT 1");
        out.from(&self.name);
        out.push(" LIMIT 1 OFFSET ");
        let placeholder = out.bind(Param::Integer(i64::try_from(rows).unwrap_or(i64::MAX)));
        out.push(&placeholder);
        out.push(") AS counted");
        Ok(self.single_integer(out, limits)? > 0)
    }
}

/// Which rows a page has.
struct PageQuery<'a> {
    filters: &'a [Filter<'a>],
    sorts: &'a [contract::source::LinkedSort<'a>],
    search: Option<&'a Search<'a>>,
    /// Answers the search instead of a scan.
    index: Option<&'a TextIndex>,
    after: Option<&'a CursorPosition>,
    offset: i64,
    rows_max: usize,
    cancelled: Option<&'a CancelFlag>,
    progress: Option<&'a AtomicU64>,
}

impl<'a> PageQuery<'a> {
    /// The search, if it scans the rows.
    fn scan(&self) -> Option<&'a Search<'a>> {
        self.search.filter(|_| self.index.is_none())
    }

    fn has_conditions(&self) -> bool {
        !self.filters.is_empty() || self.search.is_some()
    }
}

fn lowercase_terms(search: &Search<'_>) -> Vec<String> {
    search.terms.iter().map(|term| order::to_lowercase(term)).collect()
}

pub(crate) fn count_rows(progress: Option<&AtomicU64>, rows: u64) {
    if let Some(progress) = progress {
        progress.fetch_add(rows, Ordering::Relaxed);
    }
}

impl Reader for TableReader {
    /// The network is never quick enough.
    fn can_run_inline(&self, _read: &ReadRequest<'_>) -> bool {
        false
    }

    fn as_caller<'r>(&'r self, identity: &Arc<SourceIdentity>) -> Result<Box<dyn Reader + 'r>, SourceError> {
        Ok(Box::new(Self { identity: Some(identity.clone()), ..self.clone() }))
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        self.get_within(&self.limits(None), key, row)
    }

    fn get_cancellable(
        &self,
        key: &[ValueRef<'_>],
        cancelled: &CancelFlag,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        self.get_within(&self.limits(Some(cancelled)), key, row)
    }

    fn get_quickly(&self, key: &[ValueRef<'_>]) -> Option<QuickReadFuture> {
        let knows_callers = self.identity.is_some() || self.pool.callers != CallerMode::Connection;
        if knows_callers || key.len() != self.key.len() {
            return None;
        }
        self.pool.read_quickly(self.key_lookup(key, ""), Arc::clone(&self.columns))
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        let mut page = PageQuery {
            filters: &query.filters,
            sorts: &query.sorts(),
            search: None,
            index: None,
            after: query.after,
            offset: 0,
            rows_max: query.rows_max,
            cancelled: query.cancelled,
            progress: query.progress,
        };
        self.read_page(&mut page, row).map(Some)
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        let mut page = PageQuery {
            filters: &search.filters,
            sorts: &[],
            search: Some(search),
            index: self.text_index(search),
            after: search.after,
            offset: 0,
            rows_max: search.rows_max,
            cancelled: search.cancelled,
            progress: search.progress,
        };
        if let Some(index) = page.index {
            let total = self.read_page(&mut page, row)?;
            if total != Total::Exact(0) || self.has_words(index, search)? {
                return Ok(SearchOutcome {
                    coverage: SearchCoverage::Complete,
                    total,
                    cursor: SearchCursor::Row,
                });
            }
            page.index = None;
        }
        let total = self.read_page(&mut page, row)?;
        let is_truncated = self.has_more_rows_than(search.scan_rows_max, &self.limits(search.cancelled))?;
        let coverage = if is_truncated { SearchCoverage::Truncated } else { SearchCoverage::Complete };
        // Rows that were not scanned may match, too.
        let total = match total {
            Total::Exact(rows) if is_truncated => Total::AtLeast(rows),
            total => total,
        };
        Ok(SearchOutcome { coverage, total, cursor: SearchCursor::Row })
    }

    fn aggregate(&self, question: &Aggregate<'_>) -> Result<Groups, SourceError> {
        self.group_rows(question)
    }
}
