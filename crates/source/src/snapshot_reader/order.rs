//! Sort orders of a table's rows: built on first use; the last few are cached.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::order::{SortRank, compare};
use contract::source::{CursorPosition, LinkedSort, LinkedValues, Query, Sort, SourceError};
use contract::{DataType, Value, ValueRef};

use super::CowValue;
use super::column_vectors::ColumnVectors;
use crate::progress::ScanProgress;

/// Each order takes four bytes per row.
const CACHED_ORDERS_MAX: usize = 4;

/// One snapshot of a table whose rows can be sorted.
pub(crate) trait SortableTable {
    type Column: SortableColumn;

    /// The number of rows.
    fn len(&self) -> u32;

    /// In the order of the shape.
    fn columns(&self) -> &[Self::Column];

    fn orders(&self) -> &SortOrders;

    /// Whether two rows have the same key, in violation of the contract.
    fn has_duplicate_keys(&self) -> bool;

    /// Where a row's value is, so that [`value_at`](Self::value_at) finds it without searching the row.
    fn value_position(&self, row: u32, column: &Self::Column) -> u32;

    /// The value at such a position.
    fn value_at(&self, position: u32, column: &Self::Column) -> CowValue<'_>;
}

/// A column whose values can be compared.
pub(crate) trait SortableColumn {
    /// A [`SortRank`], or `None` for values that have none.
    type Rank: Copy + Into<Option<SortRank>>;

    fn data_type(&self) -> DataType;

    /// Whether values of other types may occur.
    fn is_mixed(&self) -> bool;

    fn rank(&self, value: ValueRef<'_>) -> Self::Rank;

    /// A value in the form in which it is compared, whether it comes from the table or from a caller.
    fn normalize<'a>(&self, result: CowValue<'a>) -> CowValue<'a>;

    /// Orders two equal values that are different keys, such as `1` and `1.0`.
    fn break_tie(&self, a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering;
}

/// Row numbers in some order.
#[derive(Clone)]
pub(crate) enum RowOrder {
    /// In file order.
    File(u32),
    Sorted(Arc<Vec<u32>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SortKey {
    PrimaryKey,
    /// At least one.
    Columns(Vec<Sort>),
}

/// The key columns, and the cached sort orders.
pub(crate) struct SortOrders {
    /// Positions in the shape.
    pub(crate) key_columns: Vec<usize>,
    /// Identifies the contents where the table has no key: then a row is known only by its number in these contents.
    pub(super) table_version: i64,
    pub(super) vectors: ColumnVectors,
    /// Least recently used first.
    cache: Mutex<Vec<(SortKey, Arc<Vec<u32>>)>>,
    build_lock: Mutex<()>,
}

/// A row during a sort: the rank of its value, and where the value is.
struct SortEntry<R> {
    rank: R,
    value_position: u32,
    row: u32,
}

impl RowOrder {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::File(rows) => *rows as usize,
            Self::Sorted(rows) => rows.len(),
        }
    }

    pub(super) fn row(&self, at: usize) -> u32 {
        match self {
            Self::File(_) => u32::try_from(at).expect("places are below the number of rows"),
            Self::Sorted(rows) => rows[at],
        }
    }

    /// The number of rows for which `passes` holds; those rows come first.
    fn partition_point(&self, mut passes: impl FnMut(u32) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if passes(self.row(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

impl SortOrders {
    pub(crate) fn new(key: &[usize], table_version: i64) -> Self {
        Self {
            key_columns: key.to_vec(),
            table_version,
            vectors: ColumnVectors::default(),
            cache: Mutex::default(),
            build_lock: Mutex::default(),
        }
    }

    fn lock_cache(&self) -> MutexGuard<'_, Vec<(SortKey, Arc<Vec<u32>>)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, by: &SortKey) -> Option<Arc<Vec<u32>>> {
        let mut cache = self.lock_cache();
        let at = cache.iter().position(|(one, _)| one == by)?;
        let found = cache.remove(at);
        let rows = found.1.clone();
        cache.push(found);
        Some(rows)
    }

    fn insert(&self, by: SortKey, rows: Vec<u32>) -> Arc<Vec<u32>> {
        let rows = Arc::new(rows);
        let mut cache = self.lock_cache();
        if cache.len() == CACHED_ORDERS_MAX {
            cache.remove(0);
        }
        cache.push((by, rows.clone()));
        rows
    }
}

/// Whether rows can be read in this order without sorting first.
pub(super) fn is_order_cached(table: &impl SortableTable, sort: &[Sort]) -> bool {
    sort_key(table, sort).is_none_or(|by| table.orders().lock_cache().iter().any(|(one, _)| *one == by))
}

pub(super) fn row_order(
    table: &impl SortableTable,
    sort: &[Sort],
    progress: &mut ScanProgress<'_>,
) -> Result<RowOrder, SourceError> {
    let Some(by) = sort_key(table, sort) else {
        return Ok(RowOrder::File(table.len()));
    };
    if let Some(rows) = table.orders().get(&by) {
        return Ok(RowOrder::Sorted(rows));
    }
    // Two calls that need the same order build it once. A call that finds its order cached does not wait.
    let _one = table.orders().build_lock.lock().unwrap_or_else(PoisonError::into_inner);
    build_order(table, by, progress)
}

/// All rows, where a query orders them by values behind links. Not cached: the values are those of this call.
pub(super) fn linked_order(
    table: &impl SortableTable,
    query: &Query<'_>,
    progress: &mut ScanProgress<'_>,
) -> Result<RowOrder, SourceError> {
    let mut order = row_order(table, &[], progress)?;
    // The sort is stable, so the least significant column comes first.
    for by in query.sorts().iter().rev() {
        let rows = match by.values {
            None => sort_by_column(table, by.sort, &order, progress)?,
            Some(values) => sort_by_link(table, by.sort, values, &order, progress)?,
        };
        order = RowOrder::Sorted(Arc::new(rows));
    }
    Ok(order)
}

/// A stable sort by the values that a column's keys lead to. Rows without one come last.
fn sort_by_link(
    table: &impl SortableTable,
    sort: Sort,
    values: LinkedValues<'_>,
    base: &RowOrder,
    progress: &mut ScanProgress<'_>,
) -> Result<Vec<u32>, SourceError> {
    let column = &table.columns()[sort.column];
    let mut entries = Vec::with_capacity(base.len());
    let mut nulls = Vec::new();
    for at in 0..base.len() {
        progress.count_row()?;
        let row = base.row(at);
        match values.get(column.data_type(), row_value(table, row, column).as_value_ref()) {
            ValueRef::Null => nulls.push(row),
            value => entries.push((value, row)),
        }
    }
    entries.sort_by(|(a, _), (b, _)| {
        let order = compare(values.kind, *a, *b);
        if sort.descending { order.reverse() } else { order }
    });
    Ok(entries.into_iter().map(|(_, row)| row).chain(nulls).collect())
}

/// Only these rows, in the order of the key.
pub(super) fn key_order(table: &impl SortableTable, mut rows: Vec<u32>) -> RowOrder {
    rows.sort_unstable_by(|a, b| compare_keys(table, *a, 0, |_, column| row_value(table, *b, column)));
    rows.dedup();
    RowOrder::Sorted(Arc::new(rows))
}

fn sort_key(table: &impl SortableTable, sort: &[Sort]) -> Option<SortKey> {
    match sort {
        [] if table.orders().key_columns.is_empty() => None,
        [] => Some(SortKey::PrimaryKey),
        [only] if !only.descending && table.orders().key_columns == [only.column] => {
            Some(SortKey::PrimaryKey)
        }
        sort => Some(SortKey::Columns(sort.to_vec())),
    }
}

fn build_order(
    table: &impl SortableTable,
    by: SortKey,
    progress: &mut ScanProgress<'_>,
) -> Result<RowOrder, SourceError> {
    if let Some(rows) = table.orders().get(&by) {
        return Ok(RowOrder::Sorted(rows));
    }
    let rows = match &by {
        SortKey::PrimaryKey => sort_by_key(table, progress)?,
        // The sort is stable, so the least significant column comes first.
        SortKey::Columns(sort) => {
            let base = match sort_key(table, &sort[1..]) {
                None => RowOrder::File(table.len()),
                Some(rest) => build_order(table, rest, progress)?,
            };
            sort_by_column(table, sort[0], &base, progress)?
        }
    };
    Ok(RowOrder::Sorted(table.orders().insert(by, rows)))
}

fn sort_by_key(table: &impl SortableTable, progress: &mut ScanProgress<'_>) -> Result<Vec<u32>, SourceError> {
    let first = &table.columns()[table.orders().key_columns[0]];
    let (mut entries, nulls) = sort_entries(table, first, &RowOrder::File(table.len()), progress)?;
    entries.sort_unstable_by(|a, b| {
        let order = compare_entries(table, first, a, b);
        order.then_with(|| compare_keys(table, a.row, 1, |_, column| row_value(table, b.row, column)))
    });
    // Only a table that violates its contract has rows without a key.
    Ok(entries.into_iter().map(|entry| entry.row).chain(nulls).collect())
}

/// A stable sort: rows with equal values stay in key order.
fn sort_by_column(
    table: &impl SortableTable,
    sort: Sort,
    base: &RowOrder,
    progress: &mut ScanProgress<'_>,
) -> Result<Vec<u32>, SourceError> {
    let column = &table.columns()[sort.column];
    let (mut entries, nulls) = sort_entries(table, column, base, progress)?;
    // Columns to sort by have few different values; the stable sort makes use of long equal runs.
    entries.sort_by(|a, b| {
        let order = compare_entries(table, column, a, b);
        if sort.descending { order.reverse() } else { order }
    });
    let mut rows = Vec::with_capacity(base.len());
    rows.extend(entries.into_iter().map(|entry| entry.row));
    rows.extend(nulls);
    Ok(rows)
}

type SortEntries<T> = Vec<SortEntry<<<T as SortableTable>::Column as SortableColumn>::Rank>>;

/// The entries to sort and, separately, the rows without a value.
fn sort_entries<T: SortableTable>(
    table: &T,
    column: &T::Column,
    base: &RowOrder,
    progress: &mut ScanProgress<'_>,
) -> Result<(SortEntries<T>, Vec<u32>), SourceError> {
    let mut entries = Vec::with_capacity(base.len());
    let mut nulls = Vec::new();
    for i in 0..base.len() {
        progress.count_row()?;
        let row = base.row(i);
        let position = table.value_position(row, column);
        match column.normalize(table.value_at(position, column)).as_value_ref() {
            ValueRef::Null => nulls.push(row),
            cell => entries.push(SortEntry { rank: column.rank(cell), value_position: position, row }),
        }
    }
    Ok((entries, nulls))
}

#[inline]
fn compare_entries<T: SortableTable, R: Copy + Into<Option<SortRank>>>(
    table: &T,
    column: &T::Column,
    a: &SortEntry<R>,
    b: &SortEntry<R>,
) -> Ordering {
    let ranked = a.rank.into().zip(b.rank.into()).and_then(|(a, b)| a.try_cmp(b));
    ranked.unwrap_or_else(|| {
        let result = |entry: &SortEntry<R>| column.normalize(table.value_at(entry.value_position, column));
        compare(column.data_type(), result(a).as_value_ref(), result(b).as_value_ref())
    })
}

fn row_value<'a, T: SortableTable>(table: &'a T, row: u32, column: &T::Column) -> CowValue<'a> {
    table.value_at(table.value_position(row, column), column)
}

/// Compares a row's value with another by the column's type.
fn compare_value<T: SortableTable>(table: &T, row: u32, column: &T::Column, other: ValueRef<'_>) -> Ordering {
    let (own_value, other) =
        (column.normalize(row_value(table, row, column)), column.normalize(CowValue::Borrowed(other)));
    compare(column.data_type(), own_value.as_value_ref(), other.as_value_ref())
}

/// Compares a row's key with another one, whose values `other` returns. The first `same` values are known to be
/// equal. Keys that are equal in value are ordered by their spelling.
fn compare_keys<'a, T: SortableTable>(
    table: &'a T,
    row: u32,
    same: usize,
    other: impl Fn(usize, &T::Column) -> CowValue<'a>,
) -> Ordering {
    let columns =
        || table.orders().key_columns.iter().map(|position| &table.columns()[*position]).enumerate();
    let by_kind = columns()
        .skip(same)
        .map(|(at, column)| compare_value(table, row, column, other(at, column).as_value_ref()));
    first_unequal(by_kind).then_with(|| {
        first_unequal(columns().map(|(at, column)| {
            let (own_value, other) = (row_value(table, row, column), other(at, column));
            column.break_tie(own_value.as_value_ref(), other.as_value_ref())
        }))
    })
}

/// The number of rows, in this order, up to and including the cursor position.
pub(super) fn rows_up_to(
    table: &impl SortableTable,
    order: &RowOrder,
    sort: &[LinkedSort<'_>],
    after: &CursorPosition,
) -> Result<usize, SourceError> {
    if after.sort_values.len() != sort.len() {
        return Err(SourceError::StaleCursor);
    }
    if table.orders().key_columns.is_empty() {
        return rows_up_to_row(table, order, sort, after);
    }
    let key_length = table.orders().key_columns.len();
    let ties = match after.key.get(key_length..) {
        Some([]) => 0,
        Some([Value::Integer(ties)]) => usize::try_from(*ties).map_err(|_| SourceError::StaleCursor)?,
        Some(_) | None => return Err(SourceError::StaleCursor),
    };
    let compare_to_cursor = |row: u32| {
        let sorted = first_unequal(
            sort.iter()
                .zip(&after.sort_values)
                .map(|(sort, other)| compare_sorted(table, row, *sort, other.as_value_ref())),
        );
        let key = |at: usize, _: &_| CowValue::Borrowed(after.key[at].as_value_ref());
        sorted.then_with(|| compare_keys(table, row, 0, key))
    };
    let end = order.partition_point(|row| compare_to_cursor(row) != Ordering::Greater);
    if !table.has_duplicate_keys() {
        return Ok(end);
    }
    let start = order.partition_point(|row| compare_to_cursor(row) == Ordering::Less);
    Ok(end.min(start + ties + 1))
}

/// The number of rows directly before this one that the order cannot tell from it, because they have the same key.
#[cold]
pub(super) fn ties_before(
    table: &impl SortableTable,
    order: &RowOrder,
    sort: &[LinkedSort<'_>],
    at: usize,
) -> u32 {
    let row = order.row(at);
    let is_tie = |other: u32| {
        let is_sorted_same = sort.iter().all(|by| {
            let value = sort_value(table, other, *by);
            compare_sorted(table, row, *by, value.as_value_ref()) == Ordering::Equal
        });
        let is_same_key = compare_keys(table, row, 0, |_, column| row_value(table, other, column));
        is_sorted_same && is_same_key == Ordering::Equal
    };
    (0..at).rev().take_while(|before| is_tie(order.row(*before))).count() as u32
}

fn rows_up_to_row(
    table: &impl SortableTable,
    order: &RowOrder,
    sort: &[LinkedSort<'_>],
    after: &CursorPosition,
) -> Result<usize, SourceError> {
    let [Value::Integer(position), Value::Integer(state)] = after.key[..] else {
        return Err(SourceError::StaleCursor);
    };
    let last = u32::try_from(position)
        .ok()
        .filter(|row| *row < table.len() && state == table.orders().table_version);
    let last = last.ok_or(SourceError::StaleCursor)?;
    if sort.is_empty() {
        return Ok(last as usize + 1);
    }
    Ok(order.partition_point(|row| {
        let sorted = first_unequal(sort.iter().map(|sort| {
            let other = sort_value(table, last, *sort);
            compare_sorted(table, row, *sort, other.as_value_ref())
        }));
        sorted.then(row.cmp(&last)) != Ordering::Greater
    }))
}

/// The value that orders a row.
fn sort_value<'a>(table: &'a impl SortableTable, row: u32, by: LinkedSort<'a>) -> CowValue<'a> {
    let column = &table.columns()[by.sort.column];
    let value = row_value(table, row, column);
    match by.values {
        None => value,
        Some(values) => CowValue::Borrowed(values.get(column.data_type(), value.as_value_ref())),
    }
}

/// Compares a row's value with another for a sort. Missing values come last, ascending and descending.
fn compare_sorted(table: &impl SortableTable, row: u32, by: LinkedSort<'_>, other: ValueRef<'_>) -> Ordering {
    let column = &table.columns()[by.sort.column];
    let own_value = sort_value(table, row, by);
    let other = CowValue::Borrowed(other);
    let (own_value, other) = match by.values {
        None => (column.normalize(own_value), column.normalize(other)),
        Some(_) => (own_value, other),
    };
    match (own_value.as_value_ref(), other.as_value_ref()) {
        (ValueRef::Null, ValueRef::Null) => Ordering::Equal,
        (ValueRef::Null, _) => Ordering::Greater,
        (_, ValueRef::Null) => Ordering::Less,
        (own_value, other) => {
            let order = compare(by.kind(column.data_type()), own_value, other);
            if by.sort.descending { order.reverse() } else { order }
        }
    }
}

fn first_unequal(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
}
