//! Answers reads from the newest state of the file that fits the contract.

use std::sync::{Arc, PoisonError, RwLock};

use contract::source::{Filter, More, Place, Query, Read, Reader, Search, Searched, SourceFault, Test};
use contract::{Cell, order};

use super::column::Column;
use super::fit::{Fit, Plan};
use super::state::{Kept, State};
use super::trouble::Trouble;
use crate::hunt::Hunt;
use crate::live::Told;
use crate::live::order::{self as sorted, Compared, Order};
use crate::pace::Pace;
use crate::watch::{Follow, Watch};

/// As many rows are walked where a call arrives.
const SHORT_ROWS_MAX: usize = 2000;
/// Where so many rows did not fill a page, all are tried before the walk goes on.
const MARK_AFTER_ROWS: usize = 8192;
/// Rows with more cells than this have them on the heap.
const CELLS_ON_STACK: usize = 32;

pub(super) struct Live {
    watch: Arc<Watch<Kept>>,
    plan: Plan,
    now: RwLock<Result<Arc<Fit>, SourceFault>>,
}

impl Live {
    pub(super) fn new(watch: Arc<Watch<Kept>>, plan: Plan, fit: Fit) -> Self {
        Self { watch, plan, now: RwLock::new(Ok(Arc::new(fit))) }
    }

    fn now(&self) -> Result<Arc<Fit>, SourceFault> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Follow<Kept> for Live {
    fn follow(&self, now: Result<&Arc<State>, &Trouble>) {
        let fit = now.map_err(Trouble::clone).and_then(|state| self.plan.fit(state));
        let fit = fit.map(Arc::new).map_err(|trouble| self.watch.fault(&trouble));
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = fit;
    }

    fn loses(&self, old: &State, new: &State) -> Option<Trouble> {
        let trouble = self.plan.fit(new).err()?;
        self.plan.fit(old).ok().map(|_| trouble)
    }
}

impl Reader for Live {
    fn is_short(&self, read: &Read<'_>) -> bool {
        match read {
            Read::Get => true,
            Read::List(query) => self.now().map_or(true, |fit| fit.is_short(query)),
        }
    }

    fn get(&self, key: &[Cell<'_>], row: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool, SourceFault> {
        self.watch.look();
        let fit = self.now()?;
        let Some(found) = fit.find(key) else { return Ok(false) };
        fit.hand(found, &mut Vec::new(), row);
        Ok(true)
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[Cell<'_>], Place) -> More,
    ) -> Result<Option<u64>, SourceFault> {
        self.watch.look();
        let fit = self.now()?;
        let mut pace = Pace::of_query(query);
        let order = sorted::order(&*fit, query.sort, &mut pace)?;
        let seen = match query.after {
            Some(after) => sorted::seen(&*fit, &order, query.sort, after)?,
            None => 0,
        };
        fit.walk(query, &order, seen, &mut pace, row)
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<Searched, SourceFault> {
        self.watch.look();
        self.now()?.search(search, row)
    }
}

/// A filter, ready to be tried on many rows.
struct Sieve<'a> {
    column: &'a Column,
    test: Test,
    bound: Told<'a>,
}

/// Which rows pass, and how many.
struct Marked {
    bits: Vec<u64>,
    count: u64,
}

impl Marked {
    fn has(&self, row: u32) -> bool {
        self.bits[row as usize / 64] >> (row % 64) & 1 == 1
    }
}

impl Fit {
    fn is_short(&self, query: &Query<'_>) -> bool {
        let rows = self.table.len() as usize;
        let touched = if query.filters.is_empty() { rows.min(query.rows_max) } else { rows };
        rows <= SHORT_ROWS_MAX || (touched <= SHORT_ROWS_MAX && sorted::is_ordered(self, query.sort))
    }

    pub(super) fn find(&self, key: &[Cell<'_>]) -> Option<u32> {
        let index = self.index.as_ref()?;
        match &self.key[..] {
            [only] => index.find(&self.table, &[&self.columns[*only]], key),
            places => {
                let columns: Vec<&Column> = places.iter().map(|place| &self.columns[*place]).collect();
                index.find(&self.table, &columns, key)
            }
        }
    }

    /// Hands rows from the place `seen` on to `row`, as far as they pass.
    fn walk(
        &self,
        query: &Query<'_>,
        order: &Order,
        seen: usize,
        pace: &mut Pace<'_>,
        row: &mut dyn FnMut(&[Cell<'_>], Place) -> More,
    ) -> Result<Option<u64>, SourceFault> {
        let filters = self.sieves(&query.filters);
        let mut told = Vec::new();
        let (mut at, mut passed) = (seen, 0);
        let mut marked = None;
        while at < order.len() && passed < query.rows_max {
            pace.row()?;
            if at - seen == MARK_AFTER_ROWS && !filters.is_empty() {
                marked = Some(self.mark(&filters, pace)?);
            }
            let number = order.row(at);
            at += 1;
            let passes = match &marked {
                Some(marked) => marked.has(number),
                None => self.passes(number, &filters),
            };
            if !passes {
                continue;
            }
            passed += 1;
            let place = Place { row: i64::from(number), state: self.state };
            let mut more = More::Yes;
            self.hand(number, &mut told, |cells| more = row(cells, place));
            if more == More::No {
                break;
            }
        }
        let is_whole = seen == 0 && at == order.len();
        Ok(match marked {
            _ if filters.is_empty() => Some(order.len() as u64),
            Some(marked) => Some(marked.count),
            None => is_whole.then_some(passed as u64),
        })
    }

    /// Marks all rows that pass, in the order of the file: in any other each row is a miss of the cache.
    fn mark(&self, filters: &[Sieve<'_>], pace: &mut Pace<'_>) -> Result<Marked, SourceFault> {
        let mut marked = Marked { bits: vec![0; (self.table.len() as usize).div_ceil(64)], count: 0 };
        for row in 0..self.table.len() {
            pace.row()?;
            if self.passes(row, filters) {
                marked.bits[row as usize / 64] |= 1 << (row % 64);
                marked.count += 1;
            }
        }
        Ok(marked)
    }

    fn sieves<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<Sieve<'a>> {
        let sieve = |filter: &Filter<'a>| {
            let column = &self.columns[filter.column];
            Sieve { column, test: filter.test, bound: column.compared(Told::Cell(filter.value)) }
        };
        filters.iter().map(sieve).collect()
    }

    fn passes(&self, row: u32, filters: &[Sieve<'_>]) -> bool {
        filters.iter().all(|Sieve { column, test, bound }| {
            let own = column.compared(column.told(&self.table, row));
            order::passes(column.kind, own.cell(), *test, bound.cell())
        })
    }

    /// Hands a row's cells to `then`, in the order of the shape. `told` is used for one row after the other.
    pub(super) fn hand<'a>(&'a self, row: u32, told: &mut Vec<Told<'a>>, then: impl FnOnce(&[Cell<'_>])) {
        told.clear();
        told.extend(self.columns.iter().map(|column| column.told(&self.table, row)));
        if told.len() <= CELLS_ON_STACK {
            let mut cells = [Cell::Null; CELLS_ON_STACK];
            for (place, told) in cells.iter_mut().zip(told.iter()) {
                *place = told.cell();
            }
            then(&cells[..told.len()]);
        } else {
            then(&told.iter().map(Told::cell).collect::<Vec<_>>());
        }
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<Searched, SourceFault> {
        let mut hunt = Hunt::new(&search.words);
        let mut pace = Pace::of_search(search);
        let rows = self.table.len() as usize;
        let (mut told, mut found) = (Vec::new(), 0);
        for number in 0..rows.min(search.scan_rows_max) {
            if found == search.rows_max {
                return Ok(Searched::All);
            }
            pace.row()?;
            let number = number as u32;
            hunt.begin();
            let has_all = search.columns.iter().any(|place| {
                let column = &self.columns[*place];
                let value = column.told(&self.table, number);
                column.text(value.cell()).is_some_and(|text| hunt.see(&text))
            });
            if has_all {
                found += 1;
                let mut more = More::Yes;
                self.hand(number, &mut told, |cells| more = row(cells));
                if more == More::No {
                    return Ok(Searched::All);
                }
            }
        }
        let is_cut = rows > search.scan_rows_max && found < search.rows_max;
        Ok(if is_cut { Searched::Cut } else { Searched::All })
    }
}
