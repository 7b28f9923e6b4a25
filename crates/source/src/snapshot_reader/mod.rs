//! Serves reads from the newest snapshot of a file that fits the contract, for every kind of file.
//!
//! A kind of file says how to find, read and filter its rows ([`ReadableTable`]) and how to compare them
//! ([`SortableTable`]). What is the same for all kinds is here: following the file, paging, sorting ([`order`]),
//! searching.

mod aggregate;
pub(crate) mod column_lookup;
mod column_vectors;
mod order;
mod scan;
mod vector_groups;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use contract::source::{
    Aggregate, Comparison, Filter, Groups, Query, ReadRequest, Reader, RowFlow, RowPosition, Search,
    SearchOutcome, SourceError, TableShape, Total,
};
use contract::{DataType, Value, ValueRef};

use crate::key_index::DuplicateRows;
use crate::progress::ScanProgress;
use crate::text_search::TermMatcher;
use crate::watch::{FileLoader, SnapshotObserver, WatchedFile};

pub(crate) use order::{SortOrders, SortableColumn, SortableTable};

/// So many keys are looked up one by one; for more, a scan is faster.
const INDEXED_KEYS_MAX: usize = 2000;
/// Rows with more values than this need a heap allocation.
const VALUES_ON_STACK: usize = 32;

/// A file loader whose snapshots can be read through a contract's shape.
pub(crate) trait TableLoader: FileLoader {
    /// The contract's columns by their names in the file. Outlives every single snapshot.
    type Mapping: Send + Sync;
    type View: ReadableTable;

    fn map_columns(&self, shape: &TableShape, snapshot: &Self::Snapshot) -> Self::Mapping;

    /// A view of the snapshot, or the error that names the first place where the snapshot does not fit the shape.
    fn open_view(mapping: &Self::Mapping, snapshot: &Self::Snapshot) -> Result<Self::View, Self::Error>;

    /// A view of a snapshot that has the contract's columns, but may have [`Violations`].
    fn open_partial_view(
        mapping: &Self::Mapping,
        snapshot: &Self::Snapshot,
    ) -> Result<Self::View, Self::Error>;

    /// The error of a call that meets this row, if one of its values does not fit the shape.
    fn row_error(mapping: &Self::Mapping, view: &Self::View, row: u32) -> Option<Self::Error>;

    /// The error of a call that asks for the key of this row, if another row has the same key.
    fn duplicate_error(mapping: &Self::Mapping, view: &Self::View, row: u32) -> Option<Self::Error>;
}

/// What of a snapshot does not fit the shape. The calls that meet it fail; all others work.
#[derive(Default)]
pub(crate) struct Violations {
    /// Positions in the shape of columns with a value that does not fit. Their values are checked row by row.
    pub(crate) columns: Vec<usize>,
    /// Rows whose key occurs again.
    pub(crate) duplicates: DuplicateRows,
}

/// One snapshot of a table, ready to be read.
pub(crate) trait ReadableTable: SortableTable + Send + Sync + 'static {
    /// A buffer that is reused from row to row.
    type Scratch<'a>: Default
    where
        Self: 'a;
    /// A filter, prepared to be tested on many rows.
    type PreparedFilter<'a>
    where
        Self: 'a;

    /// Finds the row whose key is spelled like this one.
    fn find_by_index(&self, key: &[ValueRef<'_>]) -> Option<u32>;

    /// Finds the row with this key, whatever the spelling of either: `1.5` equals `1.50`.
    #[inline]
    fn find(&self, key: &[ValueRef<'_>]) -> Option<u32> {
        self.find_by_index(key).or_else(|| self.find_equivalent_key(key))
    }

    /// The only row whose key is equal but spelled differently. With several such rows the key is ambiguous.
    #[cold]
    fn find_equivalent_key(&self, key: &[ValueRef<'_>]) -> Option<u32> {
        let positions = &self.orders().key_columns;
        if key.len() != positions.len()
            || positions.iter().all(|position| has_canonical_form(self.columns()[*position].data_type()))
        {
            return None;
        }
        let filters: Vec<Filter<'_>> = positions
            .iter()
            .zip(key)
            .map(|(column, value)| Filter::new(*column, Comparison::Equals, *value))
            .collect();
        let (prepared, mut scratch) = (self.prepare_filters(&filters), Default::default());
        let mut found = (0..self.len()).filter(|row| self.matches_filters(*row, &prepared, &mut scratch));
        found.next().filter(|_| found.next().is_none())
    }

    /// Passes a row's values to `then`, in the order of the shape.
    fn with_row<'a>(&'a self, row: u32, scratch: &mut Self::Scratch<'a>, then: impl FnOnce(&[ValueRef<'_>]));

    fn prepare_filters<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<Self::PreparedFilter<'a>>;

    fn matches_filters<'a>(
        &'a self,
        row: u32,
        prepared: &[Self::PreparedFilter<'a>],
        scratch: &mut Self::Scratch<'a>,
    ) -> bool;

    /// The columns in the order in which their texts are cheapest to read.
    fn search_columns(&self, positions: &[usize]) -> Vec<&Self::Column>;

    /// Whether every term occurs in one of the columns.
    fn matches_all_terms<'a>(
        &'a self,
        row: u32,
        columns: &[&Self::Column],
        matcher: &mut TermMatcher,
        scratch: &mut Self::Scratch<'a>,
    ) -> bool;

    fn violations(&self) -> &Violations;

    /// What callers should know about the values of this snapshot, as a sentence.
    fn notice(&self) -> Option<Arc<str>> {
        None
    }

    /// The notice, if it is about values of the key.
    fn key_notice(&self, _key: &[usize]) -> Option<Arc<str>> {
        None
    }

    /// The values of a row, in the order of the shape.
    fn row_values(&self, row: u32) -> Vec<Value> {
        let (mut values, mut scratch) = (Vec::new(), Self::Scratch::default());
        self.with_row(row, &mut scratch, |row| values = row.iter().map(|value| value.to_value()).collect());
        values
    }
}

/// Whether equal values of a type are always spelled the same. If not, finding a key may take a scan.
fn has_canonical_form(data_type: DataType) -> bool {
    match data_type {
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

/// A value as it is read: borrowed from the table, or made for this read.
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

/// Passes the values of `parts` to `then`.
#[inline]
pub(crate) fn with_values<'a, T>(
    parts: &'a [T],
    cell: impl Fn(&'a T) -> ValueRef<'a>,
    then: impl FnOnce(&[ValueRef<'_>]),
) {
    if parts.len() <= VALUES_ON_STACK {
        let mut cells = [ValueRef::Null; VALUES_ON_STACK];
        for (slot, part) in cells.iter_mut().zip(parts) {
            *slot = cell(part);
        }
        then(&cells[..parts.len()]);
    } else {
        then(&parts.iter().map(cell).collect::<Vec<_>>());
    }
}

/// Maps a shape to the file's columns and opens the snapshot through the mapping.
pub(crate) fn bind_shape<C: TableLoader>(
    file: &WatchedFile<C>,
    shape: &TableShape,
    snapshot: Result<Arc<C::Snapshot>, C::Error>,
) -> Result<(C::Mapping, C::View), C::Error> {
    let snapshot = snapshot?;
    let mapping = file.loader.map_columns(shape, &snapshot);
    let view = C::open_view(&mapping, &snapshot)?;
    Ok((mapping, view))
}

/// Reads a file and follows its changes.
pub(crate) struct SnapshotReader<C: TableLoader> {
    file: Arc<WatchedFile<C>>,
    mapping: C::Mapping,
    /// The positions of the key in the shape.
    key: Vec<usize>,
    column_names: Vec<String>,
    /// Whether the key index finds every key, so that no scan is needed.
    index_is_exact: bool,
    current: RwLock<Result<Arc<C::View>, SourceError>>,
    /// Whether the current view has a notice. Nearly none has, and every call asks.
    has_notice: AtomicBool,
}

impl<C: TableLoader> SnapshotReader<C> {
    /// Fails if a value does not fit the shape.
    pub(crate) fn open(file: &Arc<WatchedFile<C>>, shape: &TableShape) -> Result<Arc<Self>, SourceError> {
        Self::open_with(file, shape, |mapping, snapshot| C::open_view(mapping, snapshot))
    }

    /// A value that does not fit the shape is an error of the calls that meet it.
    pub(crate) fn open_partial(
        file: &Arc<WatchedFile<C>>,
        shape: &TableShape,
    ) -> Result<Arc<Self>, SourceError> {
        Self::open_with(file, shape, |mapping, snapshot| {
            C::open_view(mapping, snapshot).or_else(|_| C::open_partial_view(mapping, snapshot))
        })
    }

    fn open_with(
        file: &Arc<WatchedFile<C>>,
        shape: &TableShape,
        open_view: impl FnOnce(&C::Mapping, &C::Snapshot) -> Result<C::View, C::Error>,
    ) -> Result<Arc<Self>, SourceError> {
        file.subscribe(|snapshot| {
            let bound = snapshot.and_then(|snapshot| {
                let mapping = file.loader.map_columns(shape, &snapshot);
                let view = open_view(&mapping, &snapshot)?;
                Ok((mapping, view))
            });
            let (mapping, view) = bound.map_err(|error| file.source_error(&error))?;
            let index_is_exact =
                shape.key.iter().all(|position| has_canonical_form(shape.columns[*position].data_type));
            let has_notice = AtomicBool::new(view.notice().is_some());
            let current = RwLock::new(Ok(Arc::new(view)));
            Ok(Arc::new(Self {
                file: file.clone(),
                mapping,
                key: shape.key.clone(),
                column_names: shape.columns.iter().map(|column| column.name.clone()).collect(),
                index_is_exact,
                current,
                has_notice,
            }))
        })
    }

    fn get_current(
        &self,
        key: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        let view = self.current_view()?;
        let Some(found) = view.find(key) else { return Ok(false) };
        if let Some(error) = C::duplicate_error(&self.mapping, &view, found) {
            return Err(self.file.source_error(&error));
        }
        self.check_row(&view, found)?;
        view.with_row(found, &mut Default::default(), row);
        Ok(true)
    }

    fn list_current(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        let view = self.current_view()?;
        let mut progress = ScanProgress::for_query(query);
        let order = match self.rows_with_keys(&view, query) {
            Some(rows) => order::key_order(&*view, rows),
            None if query.is_sorted_by_link() => order::linked_order(&*view, query, &mut progress)?,
            None => order::row_order(&*view, &query.sort, &mut progress)?,
        };
        let start = match query.after {
            Some(after) => order::rows_up_to(&*view, &order, &query.sorts(), after)?,
            None => 0,
        };
        let check = |row: u32| self.check_row(&view, row);
        scan::list_rows(&*view, query, &order, start, &mut progress, &check, row)
    }

    /// The rows that the key index finds for a set of keys; other filters may still leave some of them out. `None` if
    /// the query is not about a few keys, or the index does not find all of them.
    fn rows_with_keys(&self, view: &C::View, query: &Query<'_>) -> Option<Vec<u32>> {
        let [key] = self.key[..] else { return None };
        let is_by_key =
            |filter: &&Filter<'_>| filter.column == key && filter.comparison == Comparison::OneOfKeys;
        if query.filters.iter().any(|filter| filter.or_next) {
            return None;
        }
        let keys = query.filters.iter().find(is_by_key)?.keys?;
        let is_plain = query.sort.is_empty() && query.after.is_none() && self.index_is_exact;
        let is_indexed = view.violations().duplicates.is_empty() && !view.columns()[key].is_mixed();
        (is_plain && is_indexed && keys.len() <= INDEXED_KEYS_MAX)
            .then(|| keys.values().filter_map(|key| view.find_by_index(&[key])).collect())
    }

    /// Fails if a value of the row does not fit the shape.
    fn check_row(&self, view: &C::View, row: u32) -> Result<(), SourceError> {
        match C::row_error(&self.mapping, view, row) {
            Some(error) => Err(self.file.source_error(&error)),
            None => Ok(()),
        }
    }

    fn current_view(&self) -> Result<Arc<C::View>, SourceError> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<C: TableLoader> SnapshotObserver<C> for SnapshotReader<C> {
    fn snapshot_changed(&self, current: Result<&Arc<C::Snapshot>, &C::Error>) {
        let view = current.map_err(C::Error::clone).and_then(|snapshot| {
            C::open_view(&self.mapping, snapshot).or_else(|_| C::open_partial_view(&self.mapping, snapshot))
        });
        let view = view.map(Arc::new).map_err(|error| self.file.source_error(&error));
        let has_notice = view.as_ref().is_ok_and(|view| view.notice().is_some());
        self.has_notice.store(has_notice, Ordering::Relaxed);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = view;
    }

    fn would_break(&self, old: &C::Snapshot, new: &C::Snapshot) -> Option<C::Error> {
        let error = C::open_view(&self.mapping, new).err()?;
        C::open_view(&self.mapping, old).ok().map(|_| error)
    }
}

impl<C: TableLoader> Reader for SnapshotReader<C> {
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool {
        match read {
            ReadRequest::Get => {
                self.index_is_exact || self.current_view().map_or(true, |view| scan::fits_inline(&*view))
            }
            ReadRequest::List(query) => {
                self.current_view().map_or(true, |view| scan::query_fits_inline(&*view, query))
            }
        }
    }

    fn notice(&self) -> Option<Arc<str>> {
        if !self.has_notice.load(Ordering::Relaxed) {
            return None;
        }
        self.current.read().unwrap_or_else(PoisonError::into_inner).as_ref().ok()?.notice()
    }

    fn key_notice(&self) -> Option<Arc<str>> {
        if !self.has_notice.load(Ordering::Relaxed) {
            return None;
        }
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().ok()?.key_notice(&self.key)
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        self.file.poll();
        self.get_current(key, row)
    }

    fn get_inline(
        &self,
        key: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        if self.file.is_poll_due() {
            return Err(SourceError::WouldBlock);
        }
        self.get_current(key, row)
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.file.poll();
        self.list_current(query, row)
    }

    fn list_inline(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        if self.file.is_poll_due() {
            return Err(SourceError::WouldBlock);
        }
        self.list_current(query, row)
    }

    fn aggregate(&self, aggregate: &Aggregate<'_>) -> Result<Groups, SourceError> {
        self.file.poll();
        let view = self.current_view()?;
        aggregate::group_rows(&*view, aggregate, &|row: u32| self.check_row(&view, row))
            .map_err(|error| error.into_source_error(|column| &self.column_names[column]))
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        self.file.poll();
        let view = self.current_view()?;
        let mut progress = ScanProgress::for_search(search);
        let order = order::row_order(&*view, &[], &mut progress)?;
        let start = match search.after {
            Some(after) => order::rows_up_to(&*view, &order, &[], after)?,
            None => 0,
        };
        let check = |row: u32| self.check_row(&view, row);
        scan::search_rows(&*view, search, &order, start, &mut progress, &check, row)
    }
}
