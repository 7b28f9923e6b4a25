//! Orders of a table's rows: made when first asked for, the last few kept.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::order::{Rank, compare};
use contract::source::{Position, Sort, SourceFault};
use contract::{Cell, Kind, Value};

use super::Told;
use crate::pace::Pace;

/// Each takes four bytes for each row.
const KEPT_MAX: usize = 4;

/// One state of a table whose rows can be put in order.
pub(crate) trait Sorted {
    type Column: Compared;

    /// How many rows there are.
    fn len(&self) -> u32;

    /// In the order of the shape.
    fn columns(&self) -> &[Self::Column];

    fn orders(&self) -> &Orders;

    /// Where a row's value is found again without looking for it.
    fn spot(&self, row: u32, column: &Self::Column) -> u32;

    /// The value at such a spot.
    fn told_at(&self, spot: u32, column: &Self::Column) -> Told<'_>;
}

/// A column whose values can be compared.
pub(crate) trait Compared {
    /// A [`Rank`], or none where some values have none.
    type Rank: Copy + Into<Option<Rank>>;

    fn kind(&self) -> Kind;

    fn rank(&self, value: Cell<'_>) -> Self::Rank;

    /// A value, its own or a caller's, as it takes part in comparisons.
    fn compared<'a>(&self, told: Told<'a>) -> Told<'a>;

    /// Which of two values comes first that mean the same and are two keys, such as `1` and `1.0`.
    fn tell_apart(&self, a: Cell<'_>, b: Cell<'_>) -> Ordering;
}

/// Row numbers in an order.
#[derive(Clone)]
pub(crate) enum Order {
    /// As they stand in the file.
    File(u32),
    By(Arc<Vec<u32>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Key,
    Column(Sort),
}

/// What tells rows apart, and the orders that were asked for.
pub(crate) struct Orders {
    /// Columns, by their places in the shape.
    pub(crate) key: Vec<usize>,
    /// Which content this is, where there is no key and rows are told apart by nothing but their place.
    pub(super) state: i64,
    /// The one used last is the last one.
    kept: Mutex<Vec<(By, Arc<Vec<u32>>)>>,
    building: Mutex<()>,
}

/// A row while it is sorted: how its value ranks, and where the value lies.
struct Entry<R> {
    rank: R,
    spot: u32,
    row: u32,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::File(rows) => *rows as usize,
            Self::By(rows) => rows.len(),
        }
    }

    pub(super) fn row(&self, at: usize) -> u32 {
        match self {
            Self::File(_) => u32::try_from(at).expect("places are below the number of rows"),
            Self::By(rows) => rows[at],
        }
    }

    /// How many rows come before the first that does not pass; those that pass come first.
    fn partition(&self, mut passes: impl FnMut(u32) -> bool) -> usize {
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

impl Orders {
    pub(crate) fn new(key: &[usize], state: i64) -> Self {
        Self { key: key.to_vec(), state, kept: Mutex::default(), building: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(By, Arc<Vec<u32>>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, by: By) -> Option<Arc<Vec<u32>>> {
        let mut kept = self.kept();
        let at = kept.iter().position(|(one, _)| *one == by)?;
        let found = kept.remove(at);
        let rows = found.1.clone();
        kept.push(found);
        Some(rows)
    }

    fn keep(&self, by: By, rows: Vec<u32>) -> Arc<Vec<u32>> {
        let rows = Arc::new(rows);
        let mut kept = self.kept();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push((by, rows.clone()));
        rows
    }
}

/// Whether rows in this order can be walked without sorting first.
pub(super) fn is_ordered(table: &impl Sorted, sort: Option<Sort>) -> bool {
    by(table, sort).is_none_or(|by| table.orders().kept().iter().any(|(one, _)| *one == by))
}

pub(super) fn order(
    table: &impl Sorted,
    sort: Option<Sort>,
    pace: &mut Pace<'_>,
) -> Result<Order, SourceFault> {
    let Some(by) = by(table, sort) else { return Ok(Order::File(table.len())) };
    if let Some(rows) = table.orders().get(by) {
        return Ok(Order::By(rows));
    }
    // Two who want the same wait for one another; who finds an order ready does not wait.
    let _one = table.orders().building.lock().unwrap_or_else(PoisonError::into_inner);
    build(table, by, pace)
}

fn by(table: &impl Sorted, sort: Option<Sort>) -> Option<By> {
    match sort {
        None if table.orders().key.is_empty() => None,
        None => Some(By::Key),
        Some(sort) if !sort.descending && table.orders().key == [sort.column] => Some(By::Key),
        Some(sort) => Some(By::Column(sort)),
    }
}

fn build(table: &impl Sorted, by: By, pace: &mut Pace<'_>) -> Result<Order, SourceFault> {
    if let Some(rows) = table.orders().get(by) {
        return Ok(Order::By(rows));
    }
    let rows = match by {
        By::Key => by_key(table, pace)?,
        By::Column(sort) => {
            let base = match table.orders().key.is_empty() {
                true => Order::File(table.len()),
                false => build(table, By::Key, pace)?,
            };
            by_column(table, sort, &base, pace)?
        }
    };
    Ok(Order::By(table.orders().keep(by, rows)))
}

fn by_key(table: &impl Sorted, pace: &mut Pace<'_>) -> Result<Vec<u32>, SourceFault> {
    let first = &table.columns()[table.orders().key[0]];
    let (mut entries, _) = entries(table, first, &Order::File(table.len()), pace)?;
    entries.sort_unstable_by(|a, b| {
        let order = compare_entries(table, first, a, b);
        order.then_with(|| compare_keys(table, a.row, 1, |_, column| told(table, b.row, column)))
    });
    Ok(entries.into_iter().map(|entry| entry.row).collect())
}

/// Leaves rows that are equal in the order in which they stood: by key.
fn by_column(
    table: &impl Sorted,
    sort: Sort,
    base: &Order,
    pace: &mut Pace<'_>,
) -> Result<Vec<u32>, SourceFault> {
    let column = &table.columns()[sort.column];
    let (mut entries, without) = entries(table, column, base, pace)?;
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

type Entries<T> = Vec<Entry<<<T as Sorted>::Column as Compared>::Rank>>;

/// What is to be sorted, and apart from it the rows without a value.
fn entries<T: Sorted>(
    table: &T,
    column: &T::Column,
    base: &Order,
    pace: &mut Pace<'_>,
) -> Result<(Entries<T>, Vec<u32>), SourceFault> {
    let mut entries = Vec::with_capacity(base.len());
    let mut without = Vec::new();
    for i in 0..base.len() {
        pace.row()?;
        let row = base.row(i);
        let spot = table.spot(row, column);
        match column.compared(table.told_at(spot, column)).cell() {
            Cell::Null => without.push(row),
            cell => entries.push(Entry { rank: column.rank(cell), spot, row }),
        }
    }
    Ok((entries, without))
}

#[inline]
fn compare_entries<T: Sorted, R: Copy + Into<Option<Rank>>>(
    table: &T,
    column: &T::Column,
    a: &Entry<R>,
    b: &Entry<R>,
) -> Ordering {
    let ranked = a.rank.into().zip(b.rank.into()).and_then(|(a, b)| a.decide(b));
    ranked.unwrap_or_else(|| {
        let told = |entry: &Entry<R>| column.compared(table.told_at(entry.spot, column));
        compare(column.kind(), told(a).cell(), told(b).cell())
    })
}

fn told<'a, T: Sorted>(table: &'a T, row: u32, column: &T::Column) -> Told<'a> {
    table.told_at(table.spot(row, column), column)
}

/// How a row's value stands to another as what the two are.
fn compare_value<T: Sorted>(table: &T, row: u32, column: &T::Column, other: Cell<'_>) -> Ordering {
    let (own, other) = (column.compared(told(table, row, column)), column.compared(Told::Cell(other)));
    compare(column.kind(), own.cell(), other.cell())
}

/// How a row's key stands to another, of which `other` tells the values, and of which the first `same` mean the same.
/// What they are written as decides between keys that do.
fn compare_keys<'a, T: Sorted>(
    table: &'a T,
    row: u32,
    same: usize,
    other: impl Fn(usize, &T::Column) -> Told<'a>,
) -> Ordering {
    let columns = || table.orders().key.iter().map(|place| &table.columns()[*place]).enumerate();
    let by_kind =
        columns().skip(same).map(|(at, column)| compare_value(table, row, column, other(at, column).cell()));
    first_unequal(by_kind).then_with(|| {
        first_unequal(columns().map(|(at, column)| {
            let (own, other) = (told(table, row, column), other(at, column));
            column.tell_apart(own.cell(), other.cell())
        }))
    })
}

/// How many rows of an order have been seen by who was given this position.
pub(super) fn seen(
    table: &impl Sorted,
    order: &Order,
    sort: Option<Sort>,
    after: &Position,
) -> Result<usize, SourceFault> {
    if table.orders().key.is_empty() {
        return seen_by_place(table, order, sort, after);
    }
    if after.key.len() != table.orders().key.len() {
        return Err(SourceFault::Moved);
    }
    Ok(order.partition(|row| {
        let sorted = sort.map_or(Ordering::Equal, |sort| {
            let other = after.sorted.as_ref().map_or(Cell::Null, Value::as_cell);
            compare_sorted(table, row, sort, other)
        });
        let key = |at: usize, _: &_| Told::Cell(after.key[at].as_cell());
        sorted.then_with(|| compare_keys(table, row, 0, key)) != Ordering::Greater
    }))
}

fn seen_by_place(
    table: &impl Sorted,
    order: &Order,
    sort: Option<Sort>,
    after: &Position,
) -> Result<usize, SourceFault> {
    let [Value::Integer(place), Value::Integer(state)] = after.key[..] else {
        return Err(SourceFault::Moved);
    };
    let last = u32::try_from(place).ok().filter(|row| *row < table.len() && state == table.orders().state);
    let last = last.ok_or(SourceFault::Moved)?;
    let Some(sort) = sort else { return Ok(last as usize + 1) };
    let other = told(table, last, &table.columns()[sort.column]);
    Ok(order.partition(|row| {
        compare_sorted(table, row, sort, other.cell()).then(row.cmp(&last)) != Ordering::Greater
    }))
}

/// How a row's value stands to another in a sort. No value comes last either way.
fn compare_sorted(table: &impl Sorted, row: u32, sort: Sort, other: Cell<'_>) -> Ordering {
    let column = &table.columns()[sort.column];
    let (own, other) = (column.compared(told(table, row, column)), column.compared(Told::Cell(other)));
    match (own.cell(), other.cell()) {
        (Cell::Null, Cell::Null) => Ordering::Equal,
        (Cell::Null, _) => Ordering::Greater,
        (_, Cell::Null) => Ordering::Less,
        (own, other) => {
            let order = compare(column.kind(), own, other);
            if sort.descending { order.reverse() } else { order }
        }
    }
}

fn first_unequal(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
}
