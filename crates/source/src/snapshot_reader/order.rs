//! Orders of a table's rows: made when first asked for, the last few kept.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::order::{SortRank, compare};
use contract::source::{CursorPosition, Sort, SourceError};
use contract::{DataType, Value, ValueRef};

use super::CowValue;
use crate::progress::ScanProgress;

/// Each takes four bytes for each row.
const CACHED_ORDERS_MAX: usize = 4;

/// One state of a table whose rows can be put in order.
pub(crate) trait SortableTable {
    type Column: SortableColumn;

    /// How many rows there are.
    fn len(&self) -> u32;

    /// In the order of the shape.
    fn columns(&self) -> &[Self::Column];

    fn orders(&self) -> &SortOrders;

    /// Where a row's value is found again without looking for it.
    fn value_position(&self, row: u32, column: &Self::Column) -> u32;

    /// The value at such a spot.
    fn value_at(&self, spot: u32, column: &Self::Column) -> CowValue<'_>;
}

/// A column whose values can be compared.
pub(crate) trait SortableColumn {
    /// A [`Rank`], or none where some values have none.
    type Rank: Copy + Into<Option<SortRank>>;

    fn data_type(&self) -> DataType;

    fn rank(&self, value: ValueRef<'_>) -> Self::Rank;

    /// A value, its own or a caller's, as it takes part in comparisons.
    fn normalize<'a>(&self, told: CowValue<'a>) -> CowValue<'a>;

    /// Which of two values comes first that mean the same and are two keys, such as `1` and `1.0`.
    fn break_tie(&self, a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering;
}

/// Row numbers in an order.
#[derive(Clone)]
pub(crate) enum RowOrder {
    /// As they stand in the file.
    File(u32),
    Sorted(Arc<Vec<u32>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SortKey {
    PrimaryKey,
    Column(Sort),
}

/// What tells rows apart, and the orders that were asked for.
pub(crate) struct SortOrders {
    /// Columns, by their places in the shape.
    pub(crate) key_columns: Vec<usize>,
    /// Which content this is, where there is no key and rows are told apart by nothing but their place.
    pub(super) table_version: i64,
    /// The one used last is the last one.
    cache: Mutex<Vec<(SortKey, Arc<Vec<u32>>)>>,
    build_lock: Mutex<()>,
}

/// A row while it is sorted: how its value ranks, and where the value lies.
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

    /// How many rows come before the first that does not pass; those that pass come first.
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
            cache: Mutex::default(),
            build_lock: Mutex::default(),
        }
    }

    fn lock_cache(&self) -> MutexGuard<'_, Vec<(SortKey, Arc<Vec<u32>>)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, by: SortKey) -> Option<Arc<Vec<u32>>> {
        let mut kept = self.lock_cache();
        let at = kept.iter().position(|(one, _)| *one == by)?;
        let found = kept.remove(at);
        let rows = found.1.clone();
        kept.push(found);
        Some(rows)
    }

    fn insert(&self, by: SortKey, rows: Vec<u32>) -> Arc<Vec<u32>> {
        let rows = Arc::new(rows);
        let mut kept = self.lock_cache();
        if kept.len() == CACHED_ORDERS_MAX {
            kept.remove(0);
        }
        kept.push((by, rows.clone()));
        rows
    }
}

/// Whether rows in this order can be walked without sorting first.
pub(super) fn is_order_cached(table: &impl SortableTable, sort: Option<Sort>) -> bool {
    sort_key(table, sort).is_none_or(|by| table.orders().lock_cache().iter().any(|(one, _)| *one == by))
}

pub(super) fn row_order(
    table: &impl SortableTable,
    sort: Option<Sort>,
    pace: &mut ScanProgress<'_>,
) -> Result<RowOrder, SourceError> {
    let Some(by) = sort_key(table, sort) else { return Ok(RowOrder::File(table.len())) };
    if let Some(rows) = table.orders().get(by) {
        return Ok(RowOrder::Sorted(rows));
    }
    // Two who want the same wait for one another; who finds an order ready does not wait.
    let _one = table.orders().build_lock.lock().unwrap_or_else(PoisonError::into_inner);
    build_order(table, by, pace)
}

fn sort_key(table: &impl SortableTable, sort: Option<Sort>) -> Option<SortKey> {
    match sort {
        None if table.orders().key_columns.is_empty() => None,
        None => Some(SortKey::PrimaryKey),
        Some(sort) if !sort.descending && table.orders().key_columns == [sort.column] => {
            Some(SortKey::PrimaryKey)
        }
        Some(sort) => Some(SortKey::Column(sort)),
    }
}

fn build_order(
    table: &impl SortableTable,
    by: SortKey,
    pace: &mut ScanProgress<'_>,
) -> Result<RowOrder, SourceError> {
    if let Some(rows) = table.orders().get(by) {
        return Ok(RowOrder::Sorted(rows));
    }
    let rows = match by {
        SortKey::PrimaryKey => sort_by_key(table, pace)?,
        SortKey::Column(sort) => {
            let base = match table.orders().key_columns.is_empty() {
                true => RowOrder::File(table.len()),
                false => build_order(table, SortKey::PrimaryKey, pace)?,
            };
            sort_by_column(table, sort, &base, pace)?
        }
    };
    Ok(RowOrder::Sorted(table.orders().insert(by, rows)))
}

fn sort_by_key(table: &impl SortableTable, pace: &mut ScanProgress<'_>) -> Result<Vec<u32>, SourceError> {
    let first = &table.columns()[table.orders().key_columns[0]];
    let (mut entries, _) = sort_entries(table, first, &RowOrder::File(table.len()), pace)?;
    entries.sort_unstable_by(|a, b| {
        let order = compare_entries(table, first, a, b);
        order.then_with(|| compare_keys(table, a.row, 1, |_, column| row_value(table, b.row, column)))
    });
    Ok(entries.into_iter().map(|entry| entry.row).collect())
}

/// Leaves rows that are equal in the order in which they stood: by key.
fn sort_by_column(
    table: &impl SortableTable,
    sort: Sort,
    base: &RowOrder,
    pace: &mut ScanProgress<'_>,
) -> Result<Vec<u32>, SourceError> {
    let column = &table.columns()[sort.column];
    let (mut entries, without) = sort_entries(table, column, base, pace)?;
    // A stable sort: columns to sort by have few different values, and it makes use of that.
    entries.sort_by(|a, b| {
        let order = compare_entries(table, column, a, b);
        if sort.descending { order.reverse() } else { order }
    });
    let mut rows = Vec::with_capacity(base.len());
    rows.extend(entries.into_iter().map(|entry| entry.row));
    rows.extend(without);
    Ok(rows)
}

type SortEntries<T> = Vec<SortEntry<<<T as SortableTable>::Column as SortableColumn>::Rank>>;

/// What is to be sorted, and apart from it the rows without a value.
fn sort_entries<T: SortableTable>(
    table: &T,
    column: &T::Column,
    base: &RowOrder,
    pace: &mut ScanProgress<'_>,
) -> Result<(SortEntries<T>, Vec<u32>), SourceError> {
    let mut entries = Vec::with_capacity(base.len());
    let mut without = Vec::new();
    for i in 0..base.len() {
        pace.count_row()?;
        let row = base.row(i);
        let spot = table.value_position(row, column);
        match column.normalize(table.value_at(spot, column)).as_value_ref() {
            ValueRef::Null => without.push(row),
            cell => entries.push(SortEntry { rank: column.rank(cell), value_position: spot, row }),
        }
    }
    Ok((entries, without))
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
        let told = |entry: &SortEntry<R>| column.normalize(table.value_at(entry.value_position, column));
        compare(column.data_type(), told(a).as_value_ref(), told(b).as_value_ref())
    })
}

fn row_value<'a, T: SortableTable>(table: &'a T, row: u32, column: &T::Column) -> CowValue<'a> {
    table.value_at(table.value_position(row, column), column)
}

/// How a row's value stands to another as what the two are.
fn compare_value<T: SortableTable>(table: &T, row: u32, column: &T::Column, other: ValueRef<'_>) -> Ordering {
    let (own, other) =
        (column.normalize(row_value(table, row, column)), column.normalize(CowValue::Borrowed(other)));
    compare(column.data_type(), own.as_value_ref(), other.as_value_ref())
}

/// How a row's key stands to another, of which `other` tells the values, and of which the first `same` mean the same.
/// What they are written as decides between keys that do.
fn compare_keys<'a, T: SortableTable>(
    table: &'a T,
    row: u32,
    same: usize,
    other: impl Fn(usize, &T::Column) -> CowValue<'a>,
) -> Ordering {
    let columns = || table.orders().key_columns.iter().map(|place| &table.columns()[*place]).enumerate();
    let by_kind = columns()
        .skip(same)
        .map(|(at, column)| compare_value(table, row, column, other(at, column).as_value_ref()));
    first_unequal(by_kind).then_with(|| {
        first_unequal(columns().map(|(at, column)| {
            let (own, other) = (row_value(table, row, column), other(at, column));
            column.break_tie(own.as_value_ref(), other.as_value_ref())
        }))
    })
}

/// How many rows of an order have been seen by who was given this position.
pub(super) fn rows_up_to(
    table: &impl SortableTable,
    order: &RowOrder,
    sort: Option<Sort>,
    after: &CursorPosition,
) -> Result<usize, SourceError> {
    if table.orders().key_columns.is_empty() {
        return rows_up_to_row(table, order, sort, after);
    }
    if after.key.len() != table.orders().key_columns.len() {
        return Err(SourceError::StaleCursor);
    }
    Ok(order.partition_point(|row| {
        let sorted = sort.map_or(Ordering::Equal, |sort| {
            let other = after.sort_value.as_ref().map_or(ValueRef::Null, Value::as_value_ref);
            compare_sorted(table, row, sort, other)
        });
        let key = |at: usize, _: &_| CowValue::Borrowed(after.key[at].as_value_ref());
        sorted.then_with(|| compare_keys(table, row, 0, key)) != Ordering::Greater
    }))
}

fn rows_up_to_row(
    table: &impl SortableTable,
    order: &RowOrder,
    sort: Option<Sort>,
    after: &CursorPosition,
) -> Result<usize, SourceError> {
    let [Value::Integer(place), Value::Integer(state)] = after.key[..] else {
        return Err(SourceError::StaleCursor);
    };
    let last =
        u32::try_from(place).ok().filter(|row| *row < table.len() && state == table.orders().table_version);
    let last = last.ok_or(SourceError::StaleCursor)?;
    let Some(sort) = sort else { return Ok(last as usize + 1) };
    let other = row_value(table, last, &table.columns()[sort.column]);
    Ok(order.partition_point(|row| {
        compare_sorted(table, row, sort, other.as_value_ref()).then(row.cmp(&last)) != Ordering::Greater
    }))
}

/// How a row's value stands to another in a sort. No value comes last either way.
fn compare_sorted(table: &impl SortableTable, row: u32, sort: Sort, other: ValueRef<'_>) -> Ordering {
    let column = &table.columns()[sort.column];
    let (own, other) =
        (column.normalize(row_value(table, row, column)), column.normalize(CowValue::Borrowed(other)));
    match (own.as_value_ref(), other.as_value_ref()) {
        (ValueRef::Null, ValueRef::Null) => Ordering::Equal,
        (ValueRef::Null, _) => Ordering::Greater,
        (_, ValueRef::Null) => Ordering::Less,
        (own, other) => {
            let order = compare(column.data_type(), own, other);
            if sort.descending { order.reverse() } else { order }
        }
    }
}

fn first_unequal(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
}
