//! Answers reads from the newest state of a file that fits the contract, whatever kind of file it is.
//!
//! A kind of file says how its rows are found, told and tried ([`Fit`]), and how they are compared ([`Sorted`]).
//! Everything that is the same for all of them is here: following the file, walking a page, [`order`], search.

pub(crate) mod column_lookup;
mod order;
mod scan;

use std::sync::{Arc, PoisonError, RwLock};

use contract::source::{
    Comparison, ContractViolation, Filter, Query, ReadRequest, Reader, RowFlow, RowPosition, Search,
    SearchCoverage, SourceError, TableShape, Total, VersionConflict, WriteChecks, WriteError,
};
use contract::{DataType, Value, ValueRef};

use crate::progress::ScanProgress;
use crate::text_search::TermMatcher;
use crate::watch::{FileLoader, SnapshotObserver, WatchedFile};

pub(crate) use order::{SortOrders, SortableColumn, SortableTable};

/// Rows with more cells than this have them on the heap.
const VALUES_ON_STACK: usize = 32;

/// Content that a contract can be fitted to.
pub(crate) trait TableLoader: FileLoader {
    /// What a contract reads, by the names in the file. Outlives any one state of it.
    type Mapping: Send + Sync;
    type View: ReadableTable;

    fn map_columns(&self, shape: &TableShape, loaded: &Self::Snapshot) -> Self::Mapping;

    /// A state of the file through the plan, or the place at which it no longer has that shape.
    fn open_view(plan: &Self::Mapping, loaded: &Self::Snapshot) -> Result<Self::View, Self::Error>;
}

/// One state of a table, ready to be read.
pub(crate) trait ReadableTable: SortableTable + Send + Sync + 'static {
    /// What is used for one row after the other.
    type Scratch<'a>: Default
    where
        Self: 'a;
    /// A filter, ready to be tried on many rows.
    type PreparedFilter<'a>
    where
        Self: 'a;

    /// The row whose key is written like this one.
    fn find_by_index(&self, key: &[ValueRef<'_>]) -> Option<u32>;

    /// The row with this key, however both are written: `1.5` is `1.50`.
    #[inline]
    fn find(&self, key: &[ValueRef<'_>]) -> Option<u32> {
        self.find_by_index(key).or_else(|| self.find_equivalent_key(key))
    }

    /// The only row whose key means the same. Of several, nobody knows which one is meant.
    #[cold]
    fn find_equivalent_key(&self, key: &[ValueRef<'_>]) -> Option<u32> {
        let places = &self.orders().key_columns;
        if key.len() != places.len()
            || places.iter().all(|place| has_canonical_form(self.columns()[*place].data_type()))
        {
            return None;
        }
        let filters: Vec<Filter<'_>> = places
            .iter()
            .zip(key)
            .map(|(column, value)| Filter { column: *column, comparison: Comparison::Equals, value: *value })
            .collect();
        let (sieves, mut scratch) = (self.prepare_filters(&filters), Default::default());
        let mut found = (0..self.len()).filter(|row| self.matches_filters(*row, &sieves, &mut scratch));
        found.next().filter(|_| found.next().is_none())
    }

    /// Hands a row's cells to `then`, in the order of the shape.
    fn with_row<'a>(&'a self, row: u32, scratch: &mut Self::Scratch<'a>, then: impl FnOnce(&[ValueRef<'_>]));

    fn prepare_filters<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<Self::PreparedFilter<'a>>;

    fn matches_filters<'a>(
        &'a self,
        row: u32,
        sieves: &[Self::PreparedFilter<'a>],
        scratch: &mut Self::Scratch<'a>,
    ) -> bool;

    /// Columns in the order in which their texts are best looked at.
    fn search_columns(&self, places: &[usize]) -> Vec<&Self::Column>;

    /// Whether each word is part of one of the columns.
    fn matches_all_terms<'a>(
        &'a self,
        row: u32,
        columns: &[&Self::Column],
        hunt: &mut TermMatcher,
        scratch: &mut Self::Scratch<'a>,
    ) -> bool;

    /// Shows a row to the clerk before it is changed. What else is to be set.
    fn check_before_write(
        &self,
        row: u32,
        clerk: &mut dyn WriteChecks,
    ) -> Result<Vec<(usize, Value)>, WriteError> {
        let mut said = Ok(Vec::new());
        self.with_row(row, &mut Default::default(), |cells| said = clerk.before_write(cells));
        said.map_err(|VersionConflict| WriteError::VersionConflict)
    }

    /// Shows a row to the clerk as it is afterwards. What is told of it.
    fn check_after_write(&self, row: u32, clerk: &mut dyn WriteChecks) -> Result<Vec<u8>, WriteError> {
        let mut told = Ok(Vec::new());
        self.with_row(row, &mut Default::default(), |cells| told = clerk.after_write(cells));
        told.map_err(|ContractViolation| WriteError::ContractViolation)
    }
}

/// Whether values of a kind that mean the same are written the same. Else a key may have to be looked for row by row.
fn has_canonical_form(kind: DataType) -> bool {
    match kind {
        DataType::Decimal | DataType::Number | DataType::Timestamp | DataType::LocalTimestamp => false,
        DataType::Text
        | DataType::Integer
        | DataType::Int64
        | DataType::Boolean
        | DataType::Date
        | DataType::Json
        | DataType::Blob => true,
    }
}

/// A value as it is told: as the table has it, or as something that had to be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CowValue<'a> {
    Borrowed(ValueRef<'a>),
    Text(String),
    Bytes(Vec<u8>),
}

impl CowValue<'_> {
    #[inline]
    pub(crate) fn as_value_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Borrowed(cell) => *cell,
            Self::Text(text) => ValueRef::Text(text),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }
    }
}

/// Hands the cells that `parts` stand for to `then`.
#[inline]
pub(crate) fn with_values<'a, T>(
    parts: &'a [T],
    cell: impl Fn(&'a T) -> ValueRef<'a>,
    then: impl FnOnce(&[ValueRef<'_>]),
) {
    if parts.len() <= VALUES_ON_STACK {
        let mut cells = [ValueRef::Null; VALUES_ON_STACK];
        for (place, part) in cells.iter_mut().zip(parts) {
            *place = cell(part);
        }
        then(&cells[..parts.len()]);
    } else {
        then(&parts.iter().map(cell).collect::<Vec<_>>());
    }
}

/// A plan for a shape, and what the file holds through it.
pub(crate) fn bind_shape<C: TableLoader>(
    watch: &WatchedFile<C>,
    shape: &TableShape,
    loaded: Result<Arc<C::Snapshot>, C::Error>,
) -> Result<(C::Mapping, C::View), C::Error> {
    let loaded = loaded?;
    let plan = watch.loader.map_columns(shape, &loaded);
    let fit = C::open_view(&plan, &loaded)?;
    Ok((plan, fit))
}

/// Reads a file as it is, and as it becomes.
pub(crate) struct SnapshotReader<C: TableLoader> {
    file: Arc<WatchedFile<C>>,
    mapping: C::Mapping,
    /// Whether the index finds whatever is there.
    index_is_exact: bool,
    current: RwLock<Result<Arc<C::View>, SourceError>>,
}

impl<C: TableLoader> SnapshotReader<C> {
    pub(crate) fn open(watch: &Arc<WatchedFile<C>>, shape: &TableShape) -> Result<Arc<Self>, SourceError> {
        watch.subscribe(|loaded| {
            let (plan, fit) =
                bind_shape(watch, shape, loaded).map_err(|trouble| watch.source_error(&trouble))?;
            let finds_at_once =
                shape.key.iter().all(|place| has_canonical_form(shape.columns[*place].data_type));
            let now = RwLock::new(Ok(Arc::new(fit)));
            Ok(Arc::new(Self {
                file: watch.clone(),
                mapping: plan,
                index_is_exact: finds_at_once,
                current: now,
            }))
        })
    }

    fn current_view(&self) -> Result<Arc<C::View>, SourceError> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<C: TableLoader> SnapshotObserver<C> for SnapshotReader<C> {
    fn snapshot_changed(&self, now: Result<&Arc<C::Snapshot>, &C::Error>) {
        let fit = now.map_err(C::Error::clone).and_then(|loaded| C::open_view(&self.mapping, loaded));
        let fit = fit.map(Arc::new).map_err(|trouble| self.file.source_error(&trouble));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fit;
    }

    fn would_break(&self, old: &C::Snapshot, new: &C::Snapshot) -> Option<C::Error> {
        let trouble = C::open_view(&self.mapping, new).err()?;
        C::open_view(&self.mapping, old).ok().map(|_| trouble)
    }
}

impl<C: TableLoader> Reader for SnapshotReader<C> {
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool {
        match read {
            ReadRequest::Get => {
                self.index_is_exact || self.current_view().map_or(true, |fit| scan::fits_inline(&*fit))
            }
            ReadRequest::List(query) => {
                self.current_view().map_or(true, |fit| scan::query_fits_inline(&*fit, query))
            }
        }
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        self.file.poll();
        let fit = self.current_view()?;
        let Some(found) = fit.find(key) else { return Ok(false) };
        fit.with_row(found, &mut Default::default(), row);
        Ok(true)
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.file.poll();
        let fit = self.current_view()?;
        let mut pace = ScanProgress::for_query(query);
        let order = order::row_order(&*fit, query.sort, &mut pace)?;
        let seen = match query.after {
            Some(after) => order::rows_up_to(&*fit, &order, query.sort, after)?,
            None => 0,
        };
        scan::list_rows(&*fit, query, &order, seen, &mut pace, row)
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<SearchCoverage, SourceError> {
        self.file.poll();
        scan::search_rows(&*self.current_view()?, search, row)
    }
}
