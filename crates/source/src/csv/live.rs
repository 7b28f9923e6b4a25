//! Answers reads from the newest state of the file that fits the contract.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use contract::order;
use contract::source::{Filter, More, Place, Query, Read, Reader, Search, Searched, SourceFault};
use contract::{Cell, Kind};

use super::fit::{Column, Fit, Plan};
use super::load::{Delimited, Loaded};
use super::trouble::Trouble;
use crate::hunt::Hunt;
use crate::live::order::{self as sorted, Order};
use crate::pace::Pace;
use crate::watch::{Follow, Watch};

/// As many rows are walked where a call arrives.
const SHORT_ROWS_MAX: usize = 2000;
/// Where so many rows did not fill a page, all are tried before the walk goes on.
const MARK_AFTER_ROWS: usize = 8192;
/// Rows with more cells than this have them on the heap.
const CELLS_ON_STACK: usize = 32;

pub(super) struct Live {
    watch: Arc<Watch<Delimited>>,
    plan: Plan,
    now: RwLock<Result<Arc<Fit>, SourceFault>>,
}

impl Live {
    pub(super) fn new(watch: Arc<Watch<Delimited>>, plan: Plan, fit: Fit) -> Self {
        Self { watch, plan, now: RwLock::new(Ok(Arc::new(fit))) }
    }

    fn now(&self) -> Result<Arc<Fit>, SourceFault> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Follow<Delimited> for Live {
    fn follow(&self, now: Result<&Arc<Loaded>, &Trouble>) {
        let fit = now.map_err(Trouble::clone).and_then(|loaded| self.plan.fit(loaded));
        let fit = fit.map(Arc::new).map_err(|trouble| self.watch.fault(&trouble));
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = fit;
    }

    fn loses(&self, old: &Loaded, new: &Loaded) -> Option<Trouble> {
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
        fit.hand(found, &mut Scratch::default(), row);
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

/// Where the cells of one row lie; used for one row after the other.
#[derive(Default)]
pub(super) struct Scratch {
    spans: Vec<Span>,
    /// What does not stand in the file as it is.
    text: String,
}

#[derive(Clone, Copy)]
enum Span {
    Null,
    File { from: usize, to: usize },
    Scratch { from: usize, to: usize },
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
        let rows = self.table.rows.len();
        let touched = if query.filters.is_empty() { rows.min(query.rows_max) } else { rows };
        rows <= SHORT_ROWS_MAX || (touched <= SHORT_ROWS_MAX && sorted::is_ordered(self, query.sort))
    }

    pub(super) fn find(&self, key: &[Cell<'_>]) -> Option<u32> {
        let index = self.index.as_ref()?;
        let column = |at: usize| &self.columns[self.key[at]];
        match key {
            [cell] if self.key.len() == 1 => index.find(&self.table, &[column(0).written(*cell)?]),
            cells if self.key.len() == cells.len() => {
                let texts = cells.iter().enumerate().map(|(at, cell)| column(at).written(*cell));
                index.find(&self.table, &texts.collect::<Option<Vec<_>>>()?)
            }
            _ => None,
        }
    }

    /// Hands rows with all the words to `row`, in the order of the file.
    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<Searched, SourceFault> {
        let mut hunt = Hunt::new(&search.words);
        let mut columns: Vec<&Column> = search.columns.iter().map(|place| &self.columns[*place]).collect();
        columns.sort_unstable_by_key(|column| column.field);
        let (mut scratch, mut passed) = (Scratch::default(), 0);
        let mut pace = Pace::of_search(search);
        for number in 0..self.table.len() {
            if number as usize >= search.scan_rows_max {
                return Ok(Searched::Cut);
            }
            if passed >= search.rows_max {
                break;
            }
            pace.row()?;
            if !self.has_all(number, &columns, &mut hunt, &mut scratch.text) {
                continue;
            }
            passed += 1;
            let mut more = More::Yes;
            self.hand(number, &mut scratch, |cells| more = row(cells));
            if more == More::No {
                break;
            }
        }
        Ok(Searched::All)
    }

    fn has_all(&self, row: u32, columns: &[&Column], hunt: &mut Hunt, scratch: &mut String) -> bool {
        hunt.begin();
        let mut fields = self.table.fields(row).enumerate();
        let mut last = None;
        for column in columns {
            let field = match last {
                Some((place, field)) if place == column.field => field,
                _ => {
                    last = fields.find(|(place, _)| *place == column.field);
                    last.expect("rows with too few fields are not loaded").1
                }
            };
            let text = match field.plain(&self.table.text) {
                Some(text) => text,
                None => {
                    scratch.clear();
                    field.unescape(&self.table.text, scratch);
                    &*scratch
                }
            };
            if !column.is_null(text) && hunt.see(text) {
                return true;
            }
        }
        false
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
        let filters = self.filters(query);
        let mut scratch = Scratch::default();
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
                None => self.passes(number, &filters, &mut scratch.text),
            };
            if !passes {
                continue;
            }
            passed += 1;
            let place = Place { row: i64::from(number), state: self.state };
            let mut more = More::Yes;
            self.hand(number, &mut scratch, |cells| more = row(cells, place));
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
        let mut marked = Marked { bits: vec![0; self.table.rows.len().div_ceil(64)], count: 0 };
        let mut scratch = String::new();
        for row in 0..self.table.len() {
            pace.row()?;
            if self.passes(row, filters, &mut scratch) {
                marked.bits[row as usize / 64] |= 1 << (row % 64);
                marked.count += 1;
            }
        }
        Ok(marked)
    }

    /// Filters in the order in which their fields come, with values as the file would write them.
    fn filters<'a>(&'a self, query: &Query<'a>) -> Vec<Sieve<'a>> {
        let mut filters: Vec<Sieve<'a>> = query
            .filters
            .iter()
            .map(|filter| {
                let column = &self.columns[filter.column];
                let value = match filter.value {
                    Cell::Integer(_) if is_written(column.kind) => {
                        column.written(filter.value).map(Cow::into_owned)
                    }
                    _ => None,
                };
                Sieve { column, filter: *filter, value }
            })
            .collect();
        filters.sort_by_key(|sieve| sieve.column.field);
        filters
    }

    fn passes(&self, row: u32, filters: &[Sieve<'_>], scratch: &mut String) -> bool {
        let mut fields = self.table.fields(row).enumerate();
        let mut last = None;
        filters.iter().all(|sieve| {
            let field = match last {
                Some((place, field)) if place == sieve.column.field => field,
                _ => {
                    last = fields.find(|(place, _)| *place == sieve.column.field);
                    last.expect("rows with too few fields are not loaded").1
                }
            };
            match field.plain(&self.table.text) {
                Some(text) => sieve.passes(text),
                None => {
                    scratch.clear();
                    field.unescape(&self.table.text, scratch);
                    sieve.passes(scratch)
                }
            }
        })
    }

    /// Hands a row's cells to `then`, in the order of the shape.
    pub(super) fn hand(&self, row: u32, scratch: &mut Scratch, then: impl FnOnce(&[Cell<'_>])) {
        self.fill(row, scratch);
        let cell = |span: &Span| match *span {
            Span::Null => Cell::Null,
            Span::File { from, to } => Cell::Text(&self.table.text[from..to]),
            Span::Scratch { from, to } => Cell::Text(&scratch.text[from..to]),
        };
        if scratch.spans.len() <= CELLS_ON_STACK {
            let mut cells = [Cell::Null; CELLS_ON_STACK];
            for (place, span) in cells.iter_mut().zip(&scratch.spans) {
                *place = cell(span);
            }
            then(&cells[..scratch.spans.len()]);
        } else {
            then(&scratch.spans.iter().map(cell).collect::<Vec<_>>());
        }
    }

    fn fill(&self, row: u32, scratch: &mut Scratch) {
        let Scratch { spans, text } = scratch;
        text.clear();
        spans.clear();
        spans.resize(self.columns.len(), Span::Null);
        let mut fields = self.table.fields(row).enumerate();
        let mut last = None;
        for (place, at) in &self.walk {
            let field = match last {
                Some((before, field)) if before == *place => field,
                _ => {
                    last = fields.find(|(this, _)| this == place);
                    last.expect("rows with too few fields are not loaded").1
                }
            };
            let (said, span) = match field.plain(&self.table.text) {
                Some(said) => (said, Span::File { from: field.from, to: field.to }),
                None => {
                    let from = text.len();
                    field.unescape(&self.table.text, text);
                    (&text[from..], Span::Scratch { from, to: text.len() })
                }
            };
            if !self.columns[*at].is_null(said) {
                spans[*at] = span;
            }
        }
    }
}

/// Whether an integer is compared with what is written in the file.
fn is_written(kind: Kind) -> bool {
    match kind {
        Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number | Kind::Boolean => true,
        Kind::Text | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Json | Kind::Blob => false,
    }
}

/// A filter, ready to be tried on many rows.
struct Sieve<'a> {
    column: &'a Column,
    filter: Filter<'a>,
    value: Option<String>,
}

impl Sieve<'_> {
    fn passes(&self, text: &str) -> bool {
        let value = self.value.as_deref().map_or(self.filter.value, Cell::Text);
        !self.column.is_null(text)
            && order::passes(self.column.kind, Cell::Text(text), self.filter.test, value)
    }
}
