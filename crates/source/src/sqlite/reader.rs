//! Reads one table: a row by its key, a page in order.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use contract::source::{
    Filter, More, Place, Position, Query, Read, Reader, Search, Searched, Shape, SourceFault, Test,
};
use contract::{Cell, Value};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::Options;
use super::column::{Column, Expected, raw};
use super::fault::{Fail, name_of};
use super::page::Page;
use super::plan::{Form, Grammar, Part, Plan, Values};
use super::pool::Pool;
use super::schema::{Address, Schema, Table};
use super::session::Session;
use crate::pace;

/// How long a statement may hold its lock. Who waits 50 ms for us gets through, even if our thread has to wait
/// for a processor meanwhile.
const HOLD: Duration = Duration::from_millis(5);
/// In WAL mode nobody waits for a reader, and only the rows get old.
const HOLD_WAL: Duration = Duration::from_millis(40);
/// A table with so few rows is read in no time whatever is asked.
const SMALL_ROWS: u64 = 2_000;
/// Up to so many rows are counted for a total.
const COUNT_ROWS: u64 = 5_000;
/// More is handed over in pieces.
const PAGE_BYTES_MAX: usize = 4 << 20;
const ROWS_MAX: usize = 10_000;
const PLANS_MAX: usize = 512;
/// Rows with no more columns than this are made on the stack.
const FEW: usize = 24;

pub(super) struct TableReader {
    pub(super) pool: Arc<Pool>,
    pub(super) table: Table,
    pub(super) columns: Vec<Column>,
    /// Their places in the table.
    pub(super) places: Vec<usize>,
    pub(super) key: Vec<usize>,
    /// Whether no two rows can have one key, and an index finds it.
    pub(super) key_is_declared: bool,
    /// What follows a page: a key, a rowid, or a number of rows.
    pub(super) paging: Paging,
    pub(super) hold: Duration,
    list_ms_max: u64,
    pub(super) sql_name: String,
    is_small: bool,
    /// Whether there were few enough rows to count them for every list.
    is_counted: bool,
    get: Plan,
    plans: RwLock<HashMap<Form, Arc<Known>, RandomState>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Paging {
    Key,
    Rowid(String),
    Offset,
}

struct Known {
    plan: Plan,
    is_short: bool,
}

/// Where a page ended, checked against the table.
#[derive(Debug, Clone)]
pub(super) struct After {
    pub(super) sorted: Option<Value>,
    pub(super) key: Vec<Value>,
}

/// How far a page got.
pub(super) enum Filled {
    /// No rows are left behind it.
    End,
    /// There may be more.
    More,
}

impl TableReader {
    pub(super) fn new(
        pool: &Arc<Pool>,
        options: &Options,
        schema: &Schema,
        shape: &Shape,
    ) -> Result<Self, SourceFault> {
        let name = name_of(pool.path());
        let Schema { tables, is_utf16, is_wal, .. } = schema;
        let (is_utf16, is_wal) = (*is_utf16, *is_wal);
        let table = tables.iter().find(|table| table.name == shape.table).cloned();
        let table = table.ok_or_else(|| changed(format!("`{name}` has no table `{}`", shape.table)))?;
        let mut columns = Vec::with_capacity(shape.columns.len());
        let mut places = Vec::with_capacity(shape.columns.len());
        for wanted in &shape.columns {
            let is_at = |at: &usize| table.columns.get(*at).is_some_and(|column| column.name == wanted.name);
            let place =
                Some(wanted.at).filter(is_at).or_else(|| (0..table.columns.len()).find(|at| is_at(at)));
            let place = place
                .ok_or_else(|| changed(format!("table `{}` has no column `{}`", shape.table, wanted.name)))?;
            columns.push(Column::new(wanted, &table, place, is_utf16));
            places.push(place);
        }
        let key = shape.key.clone();
        let declared: Vec<usize> = key.iter().filter_map(|at| places.get(*at).copied()).collect();
        let key_is_declared = declared.len() == key.len() && table.is_declared_key(&declared);
        let paging = match &table.address {
            _ if !key.is_empty() => Paging::Key,
            Address::Rowid(rowid) => Paging::Rowid(rowid.clone()),
            Address::Primary(_) | Address::None => Paging::Offset,
        };
        let mut reader = Self {
            pool: Arc::clone(pool),
            sql_name: table.sql_name(),
            table,
            columns,
            places,
            key,
            key_is_declared,
            paging,
            hold: if is_wal { HOLD_WAL } else { HOLD },
            list_ms_max: options.list_ms_max,
            is_small: false,
            is_counted: false,
            get: Plan::default(),
            plans: RwLock::default(),
        };
        reader.prepare()?;
        Ok(reader)
    }

    /// Makes what every call needs, and finds what is wrong before the first.
    fn prepare(&mut self) -> Result<(), SourceFault> {
        let filters = self.key.iter().map(|column| (*column, Test::Equals)).collect();
        self.get = self.grammar().plan(&Form { filters, sort: None, part: Part::Row });
        let is_view = self.table.address == Address::None;
        let counted = self.pool.read(|session| {
            session.connection.prepare_cached(&self.get.sql)?;
            if is_view { Ok(None) } else { self.count(session, COUNT_ROWS) }
        });
        let counted = counted.map_err(|fail| self.pool.fault(fail))?;
        self.is_counted = counted.is_some();
        self.is_small = counted.is_some_and(|rows| rows <= SMALL_ROWS);
        Ok(())
    }

    /// How many rows there are, if they are few.
    fn count(&self, session: &Session, rows_max: u64) -> Result<Option<u64>, Fail> {
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {})", self.sql_name, rows_max + 1);
        session.hold_at_most(self.hold);
        let counted = session.connection.prepare_cached(&sql)?.query_row([], |row| row.get::<_, i64>(0));
        match counted.map_err(Fail::from) {
            Ok(count) => Ok(u64::try_from(count).ok().filter(|count| *count <= rows_max)),
            Err(Fail::Late) => Ok(None),
            Err(fail) => Err(fail),
        }
    }

    pub(super) fn grammar(&self) -> Grammar<'_> {
        let rowid = match &self.paging {
            Paging::Rowid(rowid) => Some(rowid.as_str()),
            Paging::Key | Paging::Offset => None,
        };
        Grammar { table: &self.sql_name, columns: &self.columns, key: &self.key, rowid }
    }

    fn planned(&self, form: &Form) -> Option<Arc<Known>> {
        self.plans.read().unwrap_or_else(PoisonError::into_inner).get(form).map(Arc::clone)
    }

    fn known(&self, form: Form, session: &Session) -> Result<Arc<Known>, Fail> {
        if let Some(known) = self.planned(&form) {
            return Ok(known);
        }
        let plan = self.grammar().plan(&form);
        let is_short = plan.is_short(&session.connection, &form)?;
        let known = Arc::new(Known { plan, is_short });
        let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
        if plans.len() < PLANS_MAX {
            plans.insert(form, Arc::clone(&known));
        }
        Ok(known)
    }

    /// Hands a row's values over, or says which is not as it was.
    #[inline]
    pub(super) fn cells<T>(&self, row: &Row<'_>, hand: impl FnOnce(&[Cell<'_>]) -> T) -> Result<T, Fail> {
        self.cells_from(row, 0, hand)
    }

    /// The same where other columns come first.
    #[inline(always)]
    fn cells_from<T>(
        &self,
        row: &Row<'_>,
        from: usize,
        hand: impl FnOnce(&[Cell<'_>]) -> T,
    ) -> Result<T, Fail> {
        let count = self.columns.len();
        let mut few = [Cell::Null; FEW];
        let mut many = Vec::new();
        let cells = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, Cell::Null);
                &mut many[..]
            }
        };
        for (at, (cell, column)) in cells.iter_mut().zip(&self.columns).enumerate() {
            let value = row.get_ref(from + at)?;
            *cell = column.cell(value).map_err(|expected| self.broken(row, from, column, expected))?;
        }
        for at in &self.key {
            if cells[*at] == Cell::Null {
                let expected = Expected("a value in every row");
                return Err(self.broken(row, from, &self.columns[*at], expected).into());
            }
        }
        Ok(hand(cells))
    }

    /// Callers learn which column; which row it is says the log, to whoever can correct it.
    #[cold]
    fn broken(
        &self,
        row: &Row<'_>,
        from: usize,
        column: &Column,
        Expected(expected): Expected,
    ) -> SourceFault {
        let what = format!("table `{}`, column `{}`: expected {expected}", self.table.name, column.name);
        let part = |at: &usize| {
            Some(format!("`{}` {}", self.columns[*at].name, shown(row.get_ref(from + *at).ok()?)))
        };
        let key: Vec<String> = self.key.iter().filter_map(part).collect();
        SourceFault::Changed {
            told: format!("{what}, and a row has something else; the log of the server says which"),
            log: if key.is_empty() { what } else { format!("{what}, in the row with {}", key.join(", ")) },
        }
    }

    pub(super) fn repeats(&self) -> SourceFault {
        let names: Vec<String> = self.key.iter().map(|at| format!("`{}`", self.columns[*at].name)).collect();
        changed(format!("table `{}`: the key {} repeats", self.table.name, names.join(", ")))
    }

    /// Adds a row to a page.
    pub(super) fn push(&self, row: &Row<'_>, place: i64, page: &mut Page) -> Result<(), Fail> {
        self.push_from(row, 0, place, page)
    }

    pub(super) fn push_from(
        &self,
        row: &Row<'_>,
        from: usize,
        place: i64,
        page: &mut Page,
    ) -> Result<(), Fail> {
        self.cells_from(row, from, |cells| {
            cells.iter().for_each(|cell| page.push(*cell));
            page.end_row(place);
        })
    }

    pub(super) fn key_filters<'a>(&self, key: &[Cell<'a>]) -> Vec<Filter<'a>> {
        let columns = self.key.iter().zip(key);
        columns.map(|(column, value)| Filter { column: *column, test: Test::Equals, value: *value }).collect()
    }

    /// The row with a key, by an index: handed over where it lies.
    fn find(&self, filters: &[Filter<'_>], row: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool, Fail> {
        let values = Values { filters, sort: None, sorted: None, key: &[], limit: 1 };
        self.pool.read_row(|session| {
            let mut statement = session.connection.prepare_cached(&self.get.sql)?;
            self.get.bind(&mut statement, &self.columns, &self.key, &values)?;
            let mut rows = statement.raw_query();
            match rows.next()? {
                Some(found) => self.cells(found, |cells| row(cells)).map(|()| true),
                None => Ok(false),
            }
        })
    }

    /// The row with a key that only happens to be one: perhaps by reading all, perhaps there are two.
    fn look_for(&self, filters: Vec<Filter<'_>>, row: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool, Fail> {
        let mut page = Page::new(self.columns.len());
        let query = Query { filters, rows_max: 2, ..Query::default() };
        match self.fill(&query, None, 2, &mut page) {
            Err(Fail::Late) => {
                self.walk(&query, None, 2, &mut page)?;
            }
            filled => {
                filled?;
            }
        }
        match page.rows() {
            0 => Ok(false),
            1 => {
                row(&page.cells(0));
                Ok(true)
            }
            _ => Err(self.repeats().into()),
        }
    }

    /// Fills a page within the time a lock may be held.
    pub(super) fn fill(
        &self,
        query: &Query<'_>,
        after: Option<&After>,
        rows_max: usize,
        page: &mut Page,
    ) -> Result<Filled, Fail> {
        let parts = self.parts(query, after);
        self.pool.read(|session| {
            page.clear();
            session.hold_at_most(self.hold);
            // One state of the database for all parts.
            let _snapshot = if parts.len() > 1 { Some(Snapshot::begin(session)?) } else { None };
            for part in parts {
                let known = self.known(Form::new(query, *part), session)?;
                let left = rows_max - page.rows();
                if let Filled::More = self.part(query, after, left, &known.plan, session, page)? {
                    return Ok(Filled::More);
                }
            }
            Ok(Filled::End)
        })
    }

    fn parts(&self, query: &Query<'_>, after: Option<&After>) -> &'static [Part] {
        match (after, query.sort) {
            _ if self.paging == Paging::Offset => &[Part::Offset],
            (None, _) => &[Part::All],
            (Some(_), None) => &[Part::AfterKey],
            (Some(After { sorted: Some(Value::Null) | None, .. }), Some(_)) => &[Part::WithoutAfterKey],
            (Some(_), Some(sort)) if self.columns[sort.column].may_be_null() => {
                &[Part::Tied, Part::Later, Part::Without]
            }
            (Some(_), Some(_)) => &[Part::Tied, Part::Later],
        }
    }

    fn part(
        &self,
        query: &Query<'_>,
        after: Option<&After>,
        rows_max: usize,
        plan: &Plan,
        session: &Session,
        page: &mut Page,
    ) -> Result<Filled, Fail> {
        let values = Values {
            filters: &query.filters,
            sort: query.sort,
            sorted: after.and_then(|after| after.sorted.as_ref()),
            key: after.map_or(&[], |after| &after.key),
            limit: rows_max,
        };
        let mut offset = match values.key {
            [Value::Integer(seen), ..] if self.paging == Paging::Offset => seen.saturating_add(1),
            _ => 0,
        };
        let mut statement = session.connection.prepare_cached(&plan.sql)?;
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
            self.push(row, place, page)?;
            if taken == rows_max || page.bytes() > PAGE_BYTES_MAX {
                return Ok(Filled::More);
            }
        }
        Ok(Filled::End)
    }

    /// Reads a cursor. It came from us, and perhaps from another shape of the table.
    pub(super) fn after(&self, query: &Query<'_>) -> Result<Option<After>, SourceFault> {
        let Some(Position { sorted, key }) = query.after else { return Ok(None) };
        let after = After { sorted: sorted.clone(), key: key.clone() };
        let fits = match (&self.paging, &key[..]) {
            (Paging::Key, key) => key.len() == self.key.len() && !key.contains(&Value::Null),
            (Paging::Rowid(_) | Paging::Offset, [Value::Integer(_), Value::Integer(0)]) => true,
            (Paging::Rowid(_) | Paging::Offset, _) => false,
        };
        if fits && sorted.is_some() == query.sort.is_some() {
            Ok(Some(after))
        } else {
            Err(SourceFault::Moved)
        }
    }

    pub(super) fn last(&self, query: &Query<'_>, page: &Page) -> Option<After> {
        let row = page.rows().checked_sub(1)?;
        let sorted = query.sort.map(|sort| page.value(row, sort.column));
        let key = match self.paging {
            Paging::Key => self.key.iter().map(|column| page.value(row, *column)).collect(),
            Paging::Rowid(_) | Paging::Offset => vec![Value::Integer(page.place(row))],
        };
        Some(After { sorted, key })
    }

    fn pages(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[Cell<'_>], Place) -> More,
    ) -> Result<Option<u64>, Fail> {
        let rows_max = query.rows_max.min(ROWS_MAX);
        let mut after = self.after(query)?;
        let mut page = Page::new(self.columns.len());
        let (mut read, mut total) = (0, None);
        while read < rows_max {
            let filled = match self.fill(query, after.as_ref(), rows_max - read, &mut page) {
                Err(Fail::Late) => {
                    total = Some(self.walk(query, after.as_ref(), rows_max - read, &mut page)?);
                    if page.rows() < rows_max - read { Filled::End } else { Filled::More }
                }
                filled => {
                    let filled = filled?;
                    pace::tell(query.progress, page.rows() as u64);
                    filled
                }
            };
            read += page.rows();
            if self.hand_over(query, &page, row)? == More::No {
                read = rows_max;
            }
            match filled {
                Filled::End if query.after.is_none() => return Ok(Some(total.unwrap_or(read as u64))),
                Filled::End => break,
                Filled::More => after = self.last(query, &page).or(after),
            }
        }
        match total {
            None if query.filters.is_empty() && self.is_counted => {
                self.pool.read(|session| self.count(session, COUNT_ROWS))
            }
            total => Ok(total),
        }
    }

    fn hand_over(
        &self,
        query: &Query<'_>,
        page: &Page,
        row: &mut dyn FnMut(&[Cell<'_>], Place) -> More,
    ) -> Result<More, SourceFault> {
        for at in 0..page.rows() {
            if query.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(SourceFault::Stopped);
            }
            let same = |column: &usize| at > 0 && page.cell(at, *column) == page.cell(at - 1, *column);
            if !self.key_is_declared && !self.key.is_empty() && self.key.iter().all(same) {
                return Err(self.repeats());
            }
            let place = Place { row: page.place(at), state: 0 };
            if row(&page.cells(at), place) == More::No {
                return Ok(More::No);
            }
        }
        Ok(More::Yes)
    }

    pub(super) fn until(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.list_ms_max)
    }
}

impl Reader for TableReader {
    fn is_short(&self, read: &Read<'_>) -> bool {
        match read {
            _ if self.is_small => true,
            Read::Get => self.key_is_declared,
            Read::List(query) => {
                let Ok(after) = self.after(query) else { return true };
                self.parts(query, after.as_ref()).iter().all(|part| {
                    let form = Form::new(query, *part);
                    match self.planned(&form) {
                        Some(known) => known.is_short,
                        None => {
                            let known = self.pool.read(|session| self.known(form.clone(), session));
                            known.is_ok_and(|known| known.is_short)
                        }
                    }
                })
            }
        }
    }

    fn get(&self, key: &[Cell<'_>], row: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool, SourceFault> {
        if key.len() != self.key.len() || key.is_empty() {
            return Ok(false);
        }
        let found = match (self.key_is_declared, &self.key[..], key) {
            (true, [column], [value]) => {
                self.find(&[Filter { column: *column, test: Test::Equals, value: *value }], row)
            }
            (true, ..) => self.find(&self.key_filters(key), row),
            (false, ..) => self.look_for(self.key_filters(key), row),
        };
        found.map_err(|fail| self.pool.fault(fail))
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[Cell<'_>], Place) -> More,
    ) -> Result<Option<u64>, SourceFault> {
        if query.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(SourceFault::Stopped);
        }
        self.pages(query, row).map_err(|fail| self.pool.fault(fail))
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<Searched, SourceFault> {
        self.by_words(search, row).map_err(|fail| self.pool.fault(fail))
    }
}

/// A transaction that ends with this.
pub(super) struct Snapshot<'s>(&'s Session);

impl<'s> Snapshot<'s> {
    pub(super) fn begin(session: &'s Session) -> Result<Self, Fail> {
        session.connection.prepare_cached("BEGIN")?.execute([])?;
        Ok(Self(session))
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // The deadline may be over, and this must not be stopped by it.
        self.0.hold();
        let ended = self.0.connection.prepare_cached("COMMIT").and_then(|mut end| end.execute([]));
        // A connection that is still in a transaction is closed instead of lent again.
        drop(ended);
    }
}

fn changed(told: String) -> SourceFault {
    SourceFault::Changed { log: told.clone(), told: format!("{told}; the data is not what it was") }
}

/// A value of a key for the log.
fn shown(value: ValueRef<'_>) -> String {
    const BYTES_MAX: usize = 80;
    match raw(value) {
        Cell::Null => "NULL".into(),
        Cell::Integer(n) => n.to_string(),
        Cell::Real(n) => n.to_string(),
        Cell::Text(text) => format!("`{}`", &text[..text.floor_char_boundary(BYTES_MAX)]),
        Cell::Blob(bytes) => format!("of {} bytes", bytes.len()),
    }
}
