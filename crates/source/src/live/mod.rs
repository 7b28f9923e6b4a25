//! Answers reads from the newest state of a file that fits the contract, whatever kind of file it is.
//!
//! A kind of file says how its rows are found, told and tried ([`Fit`]), and how they are compared ([`Sorted`]).
//! Everything that is the same for all of them is here: following the file, walking a page, [`order`], search.

mod order;
pub(crate) mod plan;
mod walk;

use std::sync::{Arc, PoisonError, RwLock};

use contract::source::{
    Clerk, Filter, More, Place, Query, Read, Reader, Search, Searched, Shape, SourceFault, Stale, Test,
    Unwritable, WriteFault,
};
use contract::{Cell, Kind, Value};

use crate::hunt::Hunt;
use crate::pace::Pace;
use crate::watch::{Content, Follow, Watch};

pub(crate) use order::{Compared, Orders, Sorted};

/// Rows with more cells than this have them on the heap.
const CELLS_ON_STACK: usize = 32;

/// Content that a contract can be fitted to.
pub(crate) trait Tabular: Content {
    /// What a contract reads, by the names in the file. Outlives any one state of it.
    type Plan: Send + Sync;
    type Fit: Fit;

    fn plan(&self, shape: &Shape, loaded: &Self::Loaded) -> Self::Plan;

    /// A state of the file through the plan, or the place at which it no longer has that shape.
    fn fit(plan: &Self::Plan, loaded: &Self::Loaded) -> Result<Self::Fit, Self::Trouble>;
}

/// One state of a table, ready to be read.
pub(crate) trait Fit: Sorted + Send + Sync + 'static {
    /// What is used for one row after the other.
    type Scratch<'a>: Default
    where
        Self: 'a;
    /// A filter, ready to be tried on many rows.
    type Sieve<'a>
    where
        Self: 'a;

    /// The row whose key is written like this one.
    fn indexed(&self, key: &[Cell<'_>]) -> Option<u32>;

    /// The row with this key, however both are written: `1.5` is `1.50`.
    #[inline]
    fn find(&self, key: &[Cell<'_>]) -> Option<u32> {
        self.indexed(key).or_else(|| self.spelled(key))
    }

    /// The only row whose key means the same. Of several, nobody knows which one is meant.
    #[cold]
    fn spelled(&self, key: &[Cell<'_>]) -> Option<u32> {
        let places = &self.orders().key;
        if key.len() != places.len()
            || places.iter().all(|place| has_one_spelling(self.columns()[*place].kind()))
        {
            return None;
        }
        let filters: Vec<Filter<'_>> = places
            .iter()
            .zip(key)
            .map(|(column, value)| Filter { column: *column, test: Test::Equals, value: *value })
            .collect();
        let (sieves, mut scratch) = (self.sieves(&filters), Default::default());
        let mut found = (0..self.len()).filter(|row| self.passes(*row, &sieves, &mut scratch));
        found.next().filter(|_| found.next().is_none())
    }

    /// Hands a row's cells to `then`, in the order of the shape.
    fn hand<'a>(&'a self, row: u32, scratch: &mut Self::Scratch<'a>, then: impl FnOnce(&[Cell<'_>]));

    fn sieves<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<Self::Sieve<'a>>;

    fn passes<'a>(&'a self, row: u32, sieves: &[Self::Sieve<'a>], scratch: &mut Self::Scratch<'a>) -> bool;

    /// Columns in the order in which their texts are best looked at.
    fn sought(&self, places: &[usize]) -> Vec<&Self::Column>;

    /// Whether each word is part of one of the columns.
    fn has_all<'a>(
        &'a self,
        row: u32,
        columns: &[&Self::Column],
        hunt: &mut Hunt,
        scratch: &mut Self::Scratch<'a>,
    ) -> bool;

    /// Shows a row to the clerk before it is changed. What else is to be set.
    fn before(&self, row: u32, clerk: &mut dyn Clerk) -> Result<Vec<(usize, Value)>, WriteFault> {
        let mut said = Ok(Vec::new());
        self.hand(row, &mut Default::default(), |cells| said = clerk.before(cells));
        said.map_err(|Stale| WriteFault::Stale)
    }

    /// Shows a row to the clerk as it is afterwards. What is told of it.
    fn after(&self, row: u32, clerk: &mut dyn Clerk) -> Result<Vec<u8>, WriteFault> {
        let mut told = Ok(Vec::new());
        self.hand(row, &mut Default::default(), |cells| told = clerk.after(cells));
        told.map_err(|Unwritable| WriteFault::Unwritable)
    }
}

/// Whether values of a kind that mean the same are written the same. Else a key may have to be looked for row by row.
fn has_one_spelling(kind: Kind) -> bool {
    match kind {
        Kind::Decimal | Kind::Number | Kind::Timestamp | Kind::LocalTimestamp => false,
        Kind::Text | Kind::Integer | Kind::Int64 | Kind::Boolean | Kind::Date | Kind::Json | Kind::Blob => {
            true
        }
    }
}

/// A value as it is told: as the table has it, or as something that had to be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told<'a> {
    Cell(Cell<'a>),
    Text(String),
    Bytes(Vec<u8>),
}

impl Told<'_> {
    #[inline]
    pub(crate) fn cell(&self) -> Cell<'_> {
        match self {
            Self::Cell(cell) => *cell,
            Self::Text(text) => Cell::Text(text),
            Self::Bytes(bytes) => Cell::Blob(bytes),
        }
    }
}

/// Hands the cells that `parts` stand for to `then`.
#[inline]
pub(crate) fn hand<'a, T>(parts: &'a [T], cell: impl Fn(&'a T) -> Cell<'a>, then: impl FnOnce(&[Cell<'_>])) {
    if parts.len() <= CELLS_ON_STACK {
        let mut cells = [Cell::Null; CELLS_ON_STACK];
        for (place, part) in cells.iter_mut().zip(parts) {
            *place = cell(part);
        }
        then(&cells[..parts.len()]);
    } else {
        then(&parts.iter().map(cell).collect::<Vec<_>>());
    }
}

/// A plan for a shape, and what the file holds through it.
pub(crate) fn fitted<C: Tabular>(
    watch: &Watch<C>,
    shape: &Shape,
    loaded: Result<Arc<C::Loaded>, C::Trouble>,
) -> Result<(C::Plan, C::Fit), C::Trouble> {
    let loaded = loaded?;
    let plan = watch.content.plan(shape, &loaded);
    let fit = C::fit(&plan, &loaded)?;
    Ok((plan, fit))
}

/// Reads a file as it is, and as it becomes.
pub(crate) struct Live<C: Tabular> {
    watch: Arc<Watch<C>>,
    plan: C::Plan,
    /// Whether the index finds whatever is there.
    finds_at_once: bool,
    now: RwLock<Result<Arc<C::Fit>, SourceFault>>,
}

impl<C: Tabular> Live<C> {
    pub(crate) fn open(watch: &Arc<Watch<C>>, shape: &Shape) -> Result<Arc<Self>, SourceFault> {
        watch.join(|loaded| {
            let (plan, fit) = fitted(watch, shape, loaded).map_err(|trouble| watch.fault(&trouble))?;
            let finds_at_once = shape.key.iter().all(|place| has_one_spelling(shape.columns[*place].kind));
            let now = RwLock::new(Ok(Arc::new(fit)));
            Ok(Arc::new(Self { watch: watch.clone(), plan, finds_at_once, now }))
        })
    }

    fn now(&self) -> Result<Arc<C::Fit>, SourceFault> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<C: Tabular> Follow<C> for Live<C> {
    fn follow(&self, now: Result<&Arc<C::Loaded>, &C::Trouble>) {
        let fit = now.map_err(C::Trouble::clone).and_then(|loaded| C::fit(&self.plan, loaded));
        let fit = fit.map(Arc::new).map_err(|trouble| self.watch.fault(&trouble));
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = fit;
    }

    fn loses(&self, old: &C::Loaded, new: &C::Loaded) -> Option<C::Trouble> {
        let trouble = C::fit(&self.plan, new).err()?;
        C::fit(&self.plan, old).ok().map(|_| trouble)
    }
}

impl<C: Tabular> Reader for Live<C> {
    fn is_short(&self, read: &Read<'_>) -> bool {
        match read {
            Read::Get => self.finds_at_once || self.now().map_or(true, |fit| walk::is_small(&*fit)),
            Read::List(query) => self.now().map_or(true, |fit| walk::is_short(&*fit, query)),
        }
    }

    fn get(&self, key: &[Cell<'_>], row: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool, SourceFault> {
        self.watch.look();
        let fit = self.now()?;
        let Some(found) = fit.find(key) else { return Ok(false) };
        fit.hand(found, &mut Default::default(), row);
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
        let order = order::order(&*fit, query.sort, &mut pace)?;
        let seen = match query.after {
            Some(after) => order::seen(&*fit, &order, query.sort, after)?,
            None => 0,
        };
        walk::walk(&*fit, query, &order, seen, &mut pace, row)
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<Searched, SourceFault> {
        self.watch.look();
        walk::search(&*self.now()?, search, row)
    }
}
