//! A page of a list that takes too long for one lock: filtered and sorted in Rust, in chunks.
//!
//! The first pass finds the rows of the page, the second reads them as they are now. A row that was changed
//! or deleted in between, so that it no longer belongs where it was, is left out; a call a moment later would
//! leave it out too.

use std::cmp::Ordering;
use std::convert::Infallible;

use contract::source::{Query, all_pass};
use contract::{Value, ValueRef, order};
use rusqlite::{Row, Statement, params_from_iter};

use crate::sqlite::column::{Column, SqlParam};
use crate::sqlite::error::DbError;
use crate::sqlite::read::row_buffer::RowBuffer;
use crate::sqlite::read::table_scan::{
    LOCK_TIMEOUT, ScanControl, ScanCoverage, ScanStep, TableScan, locator_columns,
};
use crate::sqlite::read::{PageCursor, Paging, ReadTransaction, TableReader};

/// Rows read again under one lock: a few microseconds each.
const ROWS_PER_LOCK: usize = 64;
/// Extra rows beyond the page, to replace rows that change meanwhile.
const SPARE_ROWS: usize = 16;

/// A row that belongs to the page so far.
struct ScannedRow {
    sort_values: Vec<Value>,
    key: Vec<Value>,
    locator: Vec<Value>,
}

/// The first rows of the order so far. Sorted in batches, not for each row.
struct TopRows {
    rows: Vec<ScannedRow>,
    rows_max: usize,
    is_sorted: bool,
}

/// The index of each value in the rows of the scan.
pub(super) struct ScanLayout {
    filters: Vec<usize>,
    sort: Vec<usize>,
    /// Of the key, or of the rowid.
    key: Vec<usize>,
    pub(super) columns: Vec<usize>,
}

impl TableReader {
    /// Fills a page. Returns how many rows match the filters in total.
    pub(crate) fn scan_page(
        &self,
        query: &Query<'_>,
        after: Option<&PageCursor>,
        rows_max: usize,
        page: &mut RowBuffer,
    ) -> Result<u64, DbError> {
        let layout = self.layout(query);
        let names: Vec<&str> =
            layout.columns.iter().map(|index| self.columns[*index].quoted_name.as_str()).collect();
        // Without a locator the scan cannot continue after it releases the lock.
        let Some(scan) = TableScan::new(&self.table, &names).filter(|_| self.paging != Paging::Offset) else {
            return Err(DbError::DeadlineExceeded);
        };
        let control = ScanControl {
            deadline: self.scan_deadline(query.cancelled),
            cancelled: query.cancelled,
            progress: query.progress,
        };
        let mut after = after.cloned();
        page.clear();
        loop {
            let mut top = TopRows::new(rows_max - page.row_count() + SPARE_ROWS);
            let mut total = 0;
            let coverage = scan.run(&self.pool, &control, &mut |row| {
                if self.row_matches_filters(query, &layout, row, scan.locator_width)? {
                    total += 1;
                    self.consider(query, &layout, &scan, row, after.as_ref(), &mut top)?;
                }
                Ok(ScanStep::Continue)
            })?;
            if coverage == ScanCoverage::Partial {
                return Err(DbError::DeadlineExceeded);
            }
            let is_end = top.rows.len() < top.rows_max;
            let found = top.into_rows(self, query);
            self.reread_rows(query, &found, rows_max, page)?;
            // So many rows changed meanwhile that the page is not full: continue after them.
            if is_end || page.row_count() >= rows_max {
                return Ok(total);
            }
            after =
                found.into_iter().last().map(|row| PageCursor { sort_values: row.sort_values, key: row.key });
        }
    }

    pub(super) fn layout(&self, query: &Query<'_>) -> ScanLayout {
        let mut needed: Vec<usize> = Vec::new();
        let mut place = |column: usize| match needed.iter().position(|index| *index == column) {
            Some(place) => place,
            None => {
                needed.push(column);
                needed.len() - 1
            }
        };
        let filters = query.filters.iter().map(|filter| place(filter.column)).collect();
        let sort = query.sort.iter().map(|sort| place(sort.column)).collect();
        let key = self.key.iter().map(|column| place(*column)).collect();
        ScanLayout { filters, sort, key, columns: needed }
    }

    pub(super) fn row_matches_filters(
        &self,
        query: &Query<'_>,
        layout: &ScanLayout,
        row: &Row<'_>,
        from: usize,
    ) -> Result<bool, DbError> {
        all_pass(
            &query.filters,
            |filter| filter.or_next,
            |index, filter| {
                let column = &self.columns[filter.column];
                let value = column.unchecked_value(row.get_ref(from + layout.filters[index])?);
                Ok(column.matches_filter(value, filter))
            },
        )
    }

    /// Keeps a row if it comes after the previous page and before the rows that fill this one.
    fn consider(
        &self,
        query: &Query<'_>,
        layout: &ScanLayout,
        scan: &TableScan,
        row: &Row<'_>,
        after: Option<&PageCursor>,
        top: &mut TopRows,
    ) -> Result<(), DbError> {
        let value = |column: &Column, place: usize| -> Result<ValueRef<'_>, DbError> {
            Ok(column.unchecked_value(row.get_ref(scan.locator_width + place)?))
        };
        let sorts = query.sorts();
        let sorted = sorts
            .iter()
            .zip(&layout.sort)
            .map(|(by, place)| Ok(self.sort_value(by, value(&self.columns[by.sort.column], *place)?)))
            .collect::<Result<Vec<_>, DbError>>()?;
        let mut key = Vec::with_capacity(self.key.len().max(1));
        match self.paging {
            Paging::Key => {
                for (column, place) in self.key.iter().zip(&layout.key) {
                    key.push(value(&self.columns[*column], *place)?);
                }
            }
            Paging::Rowid(_) | Paging::Offset => {
                key.push(crate::sqlite::column::from_sqlite(row.get_ref(0)?))
            }
        }
        if let Some(after) = after {
            let after = (&*value_refs(&after.sort_values), &*value_refs(&after.key));
            if self.compare(query, (&sorted, &key), after).is_le() {
                return Ok(());
            }
        }
        if let Some(cutoff) = top.cutoff()
            && self
                .compare(query, (&sorted, &key), (&value_refs(&cutoff.sort_values), &value_refs(&cutoff.key)))
                .is_ge()
        {
            return Ok(());
        }
        let found = ScannedRow {
            sort_values: sorted.iter().map(|value| value.to_value()).collect(),
            key: key.iter().map(|value| value.to_value()).collect(),
            locator: scan.locator_of(row)?,
        };
        top.push(found, |a, b| self.compare_rows(query, a, b));
        Ok(())
    }

    fn compare_rows(&self, query: &Query<'_>, a: &ScannedRow, b: &ScannedRow) -> Ordering {
        self.compare(
            query,
            (&value_refs(&a.sort_values), &value_refs(&a.key)),
            (&value_refs(&b.sort_values), &value_refs(&b.key)),
        )
    }

    /// The order of the list: by the sort values, NULL last, then by key.
    fn compare(
        &self,
        query: &Query<'_>,
        a: (&[ValueRef<'_>], &[ValueRef<'_>]),
        b: (&[ValueRef<'_>], &[ValueRef<'_>]),
    ) -> Ordering {
        let links = query.sort_links.iter().copied().chain(std::iter::repeat(None));
        let sorts = query.sort.iter().zip(links).zip(a.0.iter().zip(b.0));
        let sorted = sorts.map(|((sort, linked), pair)| match pair {
            (ValueRef::Null, ValueRef::Null) => Ordering::Equal,
            (ValueRef::Null, _) => Ordering::Greater,
            (_, ValueRef::Null) => Ordering::Less,
            (x, y) => {
                let kind = linked.map_or(self.columns[sort.column].data_type, |values| values.kind);
                let order = order::compare(kind, *x, *y);
                if sort.descending { order.reverse() } else { order }
            }
        });
        let sorted = sorted.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        sorted.then_with(|| {
            let parts = a.1.iter().zip(b.1).enumerate();
            let mut orders = parts.map(|(index, (x, y))| match self.key.get(index) {
                Some(column) => order::compare(self.columns[*column].data_type, *x, *y),
                None => x.sql_cmp(*y),
            });
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        })
    }

    /// Reads the rows of a page as they are now.
    fn reread_rows(
        &self,
        query: &Query<'_>,
        found: &[ScannedRow],
        rows_max: usize,
        page: &mut RowBuffer,
    ) -> Result<(), DbError> {
        let (names, rowid) = match &self.paging {
            Paging::Rowid(rowid) => (vec![rowid.clone()], Some(rowid)),
            // A row that was replaced has a new rowid but its old key.
            Paging::Key if self.key_is_declared => {
                (self.key.iter().map(|index| self.columns[*index].quoted_name.clone()).collect(), None)
            }
            Paging::Key | Paging::Offset => (locator_columns(&self.table), None),
        };
        let columns: Vec<&str> = self
            .columns
            .iter()
            .map(|column| column.quoted_name.as_str())
            .chain(rowid.map(String::as_str))
            .collect();
        let conditions: Vec<String> = names.iter().map(|name| format!("{name} IS ?")).collect();
        let select = if columns.is_empty() { "1".into() } else { columns.join(", ") };
        let (table, conditions) = (self.table.sql_name(), conditions.join(" AND "));
        let sql = format!("SELECT {select} FROM {table} WHERE {conditions} LIMIT 1");
        for chunk in found.chunks(ROWS_PER_LOCK) {
            let before = page.row_count();
            if before == rows_max {
                break;
            }
            self.pool.read_with_timeout(LOCK_TIMEOUT, |connection| {
                page.truncate(before);
                connection.clear_deadline();
                let _snapshot = ReadTransaction::begin(connection)?;
                let mut statement = connection.inner.prepare_cached(&sql)?;
                chunk
                    .iter()
                    .try_for_each(|found| self.reread_row(query, found, rows_max, &mut statement, page))
            })?;
        }
        Ok(())
    }

    fn reread_row(
        &self,
        query: &Query<'_>,
        found: &ScannedRow,
        rows_max: usize,
        statement: &mut Statement<'_>,
        page: &mut RowBuffer,
    ) -> Result<(), DbError> {
        if page.row_count() == rows_max {
            return Ok(());
        }
        let locator = match self.paging {
            Paging::Key if self.key_is_declared => &found.key,
            Paging::Key | Paging::Rowid(_) | Paging::Offset => &found.locator,
        };
        let mut rows = statement
            .query(params_from_iter(locator.iter().map(|value| SqlParam::Value(value.as_value_ref()))))?;
        let Some(row) = rows.next()? else { return Ok(()) };
        let place = match (&self.paging, &found.key[..]) {
            (Paging::Rowid(_), [Value::Integer(rowid)]) => *rowid,
            _ => 0,
        };
        self.buffer_row(row, place, page)?;
        if !self.still_matches(query, found, page) {
            page.truncate(page.row_count() - 1);
        }
        Ok(())
    }

    /// Whether the last row of the page still matches the filters and has the same place in the order.
    fn still_matches(&self, query: &Query<'_>, found: &ScannedRow, page: &RowBuffer) -> bool {
        let row = page.row_count() - 1;
        let matches = all_pass(
            &query.filters,
            |filter| filter.or_next,
            |_, filter| {
                let column = &self.columns[filter.column];
                Ok::<_, Infallible>(column.matches_filter(page.value_ref(row, filter.column), filter))
            },
        );
        let Ok(matches) = matches;
        let sorts = query.sorts();
        let mut sorted = sorts.iter().zip(&found.sort_values);
        let keeps_order = sorted
            .all(|(by, value)| self.sort_value(by, page.value_ref(row, by.sort.column)).to_value() == *value);
        let keys = self.key.iter().zip(&found.key);
        matches && keeps_order && keys.into_iter().all(|(column, value)| page.value(row, *column) == *value)
    }
}

fn value_refs(values: &[Value]) -> Vec<ValueRef<'_>> {
    values.iter().map(Value::as_value_ref).collect()
}

impl TopRows {
    fn new(rows_max: usize) -> Self {
        Self { rows: Vec::new(), rows_max, is_sorted: false }
    }

    /// The last row that still belongs to the page, once it is full.
    fn cutoff(&self) -> Option<&ScannedRow> {
        if self.is_sorted { self.rows.get(self.rows_max - 1) } else { None }
    }

    fn push(&mut self, found: ScannedRow, compare: impl Fn(&ScannedRow, &ScannedRow) -> Ordering) {
        self.rows.push(found);
        if self.rows.len() >= self.rows_max * 2 {
            self.rows.sort_unstable_by(compare);
            self.rows.truncate(self.rows_max);
            self.is_sorted = true;
        }
    }

    fn into_rows(mut self, reader: &TableReader, query: &Query<'_>) -> Vec<ScannedRow> {
        self.rows.sort_unstable_by(|a, b| reader.compare_rows(query, a, b));
        self.rows.truncate(self.rows_max);
        self.rows
    }
}
