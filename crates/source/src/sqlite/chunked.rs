//! A page from a list that takes too long for one lock: filtered and sorted here, in pieces.
//!
//! The first pass finds which rows the page has, the second reads them as they are now. A row that was changed
//! or removed in between so that it no longer belongs where it was is left out, as it would be by a call that
//! came a moment later.

use std::cmp::Ordering;

use contract::source::{Query, SourceFault};
use contract::{Cell, Value, order};
use rusqlite::{Row, Statement, params_from_iter};

use super::column::{Bound, Column};
use super::fault::Fail;
use super::page::Page;
use super::reader::{After, Paging, Snapshot, TableReader};
use super::walk::{Limits, PATIENCE, Step, Walk, Walked, address};

/// Rows read again under one lock: some microseconds each.
const ROWS_PER_LOCK: usize = 64;
/// Rows found beyond the page, for those that change while it is made.
const SPARE_ROWS: usize = 16;

/// A row that belongs to the page so far.
struct Found {
    sorted: Value,
    key: Vec<Value>,
    address: Vec<Value>,
}

/// The first rows of the order that were seen so far. Sorted now and then, not for each row.
struct Best {
    rows: Vec<Found>,
    rows_max: usize,
    is_sorted: bool,
}

/// Where in the walk's rows the values lie.
struct Layout {
    filters: Vec<usize>,
    sort: Option<usize>,
    /// Of the key, or of the rowid.
    key: Vec<usize>,
    needed: Vec<usize>,
}

impl TableReader {
    /// Fills a page, and says how many rows pass the filters in all.
    pub(super) fn walk(
        &self,
        query: &Query<'_>,
        after: Option<&After>,
        rows_max: usize,
        page: &mut Page,
    ) -> Result<u64, Fail> {
        let layout = self.layout(query);
        let names: Vec<&str> = layout.needed.iter().map(|at| self.columns[*at].quoted.as_str()).collect();
        // What has no address cannot be gone on with.
        let Some(walk) = Walk::new(&self.table, &names).filter(|_| self.paging != Paging::Offset) else {
            return Err(SourceFault::TooSlow.into());
        };
        let limits = Limits { until: self.until(), stop: query.stop, progress: query.progress };
        let mut after = after.cloned();
        page.clear();
        loop {
            let mut best = Best::new(rows_max - page.rows() + SPARE_ROWS);
            let mut total = 0;
            let walked = walk.run(&self.pool, &limits, &mut |row| {
                if self.row_passes(query, &layout, row, walk.address)? {
                    total += 1;
                    self.consider(query, &layout, &walk, row, after.as_ref(), &mut best)?;
                }
                Ok(Step::On)
            })?;
            if walked == Walked::Part {
                return Err(SourceFault::TooSlow.into());
            }
            let is_end = best.rows.len() < best.rows_max;
            let found = best.into_rows(self, query);
            self.read_again(query, &found, rows_max, page)?;
            // So many rows changed meanwhile that the page is not full: on behind those.
            if is_end || page.rows() >= rows_max {
                return Ok(total);
            }
            after = found
                .into_iter()
                .last()
                .map(|row| After { sorted: query.sort.map(|_| row.sorted), key: row.key });
        }
    }

    fn layout(&self, query: &Query<'_>) -> Layout {
        let mut needed: Vec<usize> = Vec::new();
        let mut place = |column: usize| match needed.iter().position(|at| *at == column) {
            Some(place) => place,
            None => {
                needed.push(column);
                needed.len() - 1
            }
        };
        let filters = query.filters.iter().map(|filter| place(filter.column)).collect();
        let sort = query.sort.map(|sort| place(sort.column));
        let key = self.key.iter().map(|column| place(*column)).collect();
        Layout { filters, sort, key, needed }
    }

    fn row_passes(
        &self,
        query: &Query<'_>,
        layout: &Layout,
        row: &Row<'_>,
        from: usize,
    ) -> Result<bool, Fail> {
        for (filter, place) in query.filters.iter().zip(&layout.filters) {
            let column = &self.columns[filter.column];
            let cell = column.lenient(row.get_ref(from + place)?);
            if !column.passes(cell, filter.test, filter.value) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps a row if it comes after where the last page ended and before what is kept already.
    fn consider(
        &self,
        query: &Query<'_>,
        layout: &Layout,
        walk: &Walk,
        row: &Row<'_>,
        after: Option<&After>,
        best: &mut Best,
    ) -> Result<(), Fail> {
        let cell = |column: &Column, place: usize| -> Result<Cell<'_>, Fail> {
            Ok(column.lenient(row.get_ref(walk.address + place)?))
        };
        let sorted = match (query.sort, layout.sort) {
            (Some(sort), Some(place)) => cell(&self.columns[sort.column], place)?,
            _ => Cell::Null,
        };
        let mut key = Vec::with_capacity(self.key.len().max(1));
        match self.paging {
            Paging::Key => {
                for (column, place) in self.key.iter().zip(&layout.key) {
                    key.push(cell(&self.columns[*column], *place)?);
                }
            }
            Paging::Rowid(_) | Paging::Offset => key.push(super::column::raw(row.get_ref(0)?)),
        }
        if let Some(after) = after {
            let after_sorted = after.sorted.as_ref().map_or(Cell::Null, Value::as_cell);
            if self.compare(query, (sorted, &key), (after_sorted, &cells(&after.key))).is_le() {
                return Ok(());
            }
        }
        if let Some(worst) = best.worst()
            && self.compare(query, (sorted, &key), (worst.sorted.as_cell(), &cells(&worst.key))).is_ge()
        {
            return Ok(());
        }
        let found = Found {
            sorted: sorted.to_value(),
            key: key.iter().map(|cell| cell.to_value()).collect(),
            address: walk.address_of(row)?,
        };
        best.push(found, |a, b| self.compare_found(query, a, b));
        Ok(())
    }

    fn compare_found(&self, query: &Query<'_>, a: &Found, b: &Found) -> Ordering {
        self.compare(query, (a.sorted.as_cell(), &cells(&a.key)), (b.sorted.as_cell(), &cells(&b.key)))
    }

    /// The order of the list: by the sorted value, nothing last, then by key.
    fn compare(&self, query: &Query<'_>, a: (Cell<'_>, &[Cell<'_>]), b: (Cell<'_>, &[Cell<'_>])) -> Ordering {
        let sorted = match query.sort {
            None => Ordering::Equal,
            Some(sort) => match (a.0, b.0) {
                (Cell::Null, Cell::Null) => Ordering::Equal,
                (Cell::Null, _) => Ordering::Greater,
                (_, Cell::Null) => Ordering::Less,
                (x, y) => {
                    let order = order::compare(self.columns[sort.column].kind, x, y);
                    if sort.descending { order.reverse() } else { order }
                }
            },
        };
        sorted.then_with(|| {
            let parts = a.1.iter().zip(b.1).enumerate();
            let mut orders = parts.map(|(at, (x, y))| match self.key.get(at) {
                Some(column) => order::compare(self.columns[*column].kind, *x, *y),
                None => x.order(*y),
            });
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        })
    }

    /// Reads the rows of a page as they are now.
    fn read_again(
        &self,
        query: &Query<'_>,
        found: &[Found],
        rows_max: usize,
        page: &mut Page,
    ) -> Result<(), Fail> {
        let (names, rowid) = match &self.paging {
            Paging::Rowid(rowid) => (vec![rowid.clone()], Some(rowid)),
            // A row that was replaced has a new rowid and its old key.
            Paging::Key if self.key_is_declared => {
                (self.key.iter().map(|at| self.columns[*at].quoted.clone()).collect(), None)
            }
            Paging::Key | Paging::Offset => (address(&self.table), None),
        };
        let columns: Vec<&str> = self
            .columns
            .iter()
            .map(|column| column.quoted.as_str())
            .chain(rowid.map(String::as_str))
            .collect();
        let conditions: Vec<String> = names.iter().map(|name| format!("{name} IS ?")).collect();
        let select = if columns.is_empty() { "1".into() } else { columns.join(", ") };
        let (table, conditions) = (self.table.sql_name(), conditions.join(" AND "));
        let sql = format!("SELECT {select} FROM {table} WHERE {conditions} LIMIT 1");
        for some in found.chunks(ROWS_PER_LOCK) {
            let before = page.rows();
            if before == rows_max {
                break;
            }
            self.pool.read_within(PATIENCE, |session| {
                page.truncate(before);
                session.hold();
                let _snapshot = Snapshot::begin(session)?;
                let mut statement = session.connection.prepare_cached(&sql)?;
                some.iter().try_for_each(|one| self.read_one(query, one, rows_max, &mut statement, page))
            })?;
        }
        Ok(())
    }

    fn read_one(
        &self,
        query: &Query<'_>,
        found: &Found,
        rows_max: usize,
        statement: &mut Statement<'_>,
        page: &mut Page,
    ) -> Result<(), Fail> {
        if page.rows() == rows_max {
            return Ok(());
        }
        let by = match self.paging {
            Paging::Key if self.key_is_declared => &found.key,
            Paging::Key | Paging::Rowid(_) | Paging::Offset => &found.address,
        };
        let mut rows =
            statement.query(params_from_iter(by.iter().map(|value| Bound::Cell(value.as_cell()))))?;
        let Some(row) = rows.next()? else { return Ok(()) };
        let place = match (&self.paging, &found.key[..]) {
            (Paging::Rowid(_), [Value::Integer(rowid)]) => *rowid,
            _ => 0,
        };
        self.push(row, place, page)?;
        if !self.still_fits(query, found, page) {
            page.truncate(page.rows() - 1);
        }
        Ok(())
    }

    /// Whether the page's last row passes the filters and stands where it was found.
    fn still_fits(&self, query: &Query<'_>, found: &Found, page: &Page) -> bool {
        let row = page.rows() - 1;
        let passes = query.filters.iter().all(|filter| {
            self.columns[filter.column].passes(page.cell(row, filter.column), filter.test, filter.value)
        });
        let stands = query.sort.is_none_or(|sort| page.value(row, sort.column) == found.sorted);
        let keys = self.key.iter().zip(&found.key);
        passes && stands && keys.into_iter().all(|(column, value)| page.value(row, *column) == *value)
    }
}

fn cells(values: &[Value]) -> Vec<Cell<'_>> {
    values.iter().map(Value::as_cell).collect()
}

impl Best {
    fn new(rows_max: usize) -> Self {
        Self { rows: Vec::new(), rows_max, is_sorted: false }
    }

    /// The last row that still belongs, once there are enough.
    fn worst(&self) -> Option<&Found> {
        if self.is_sorted { self.rows.get(self.rows_max - 1) } else { None }
    }

    fn push(&mut self, found: Found, compare: impl Fn(&Found, &Found) -> Ordering) {
        self.rows.push(found);
        if self.rows.len() >= self.rows_max * 2 {
            self.rows.sort_unstable_by(compare);
            self.rows.truncate(self.rows_max);
            self.is_sorted = true;
        }
    }

    fn into_rows(mut self, reader: &TableReader, query: &Query<'_>) -> Vec<Found> {
        self.rows.sort_unstable_by(|a, b| reader.compare_found(query, a, b));
        self.rows.truncate(self.rows_max);
        self.rows
    }
}
