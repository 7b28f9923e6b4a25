//! Orders of a table's rows: made when first asked for, the last few kept.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::order::{Rank, compare};
use contract::source::{Position, Sort, SourceFault};
use contract::{Cell, Value};

use super::column::{Column, Told};
use super::fit::Fit;
use crate::pace::Pace;

/// Each takes four bytes for each row.
const KEPT_MAX: usize = 4;

/// Row numbers in an order.
#[derive(Clone)]
pub(super) enum Order {
    /// As they stand in the file.
    File(u32),
    By(Arc<Vec<u32>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Key,
    Column(Sort),
}

#[derive(Default)]
pub(super) struct Sorts {
    /// The one used last is the last one.
    kept: Mutex<Vec<(By, Arc<Vec<u32>>)>>,
    building: Mutex<()>,
}

/// A row while it is sorted, and how its value ranks, where it has a text that can.
struct Entry {
    rank: Option<Rank>,
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

impl Sorts {
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

impl Fit {
    /// Whether rows in this order can be walked without sorting first.
    pub(super) fn is_ordered(&self, sort: Option<Sort>) -> bool {
        self.by(sort).is_none_or(|by| self.sorts.kept().iter().any(|(one, _)| *one == by))
    }

    pub(super) fn order(&self, sort: Option<Sort>, pace: &mut Pace<'_>) -> Result<Order, SourceFault> {
        let Some(by) = self.by(sort) else { return Ok(Order::File(self.table.len())) };
        if let Some(rows) = self.sorts.get(by) {
            return Ok(Order::By(rows));
        }
        // Two who want the same wait for one another; who finds an order ready does not wait.
        let _one = self.sorts.building.lock().unwrap_or_else(PoisonError::into_inner);
        self.build(by, pace)
    }

    fn by(&self, sort: Option<Sort>) -> Option<By> {
        match sort {
            None if self.key.is_empty() => None,
            None => Some(By::Key),
            Some(sort) if !sort.descending && self.key == [sort.column] => Some(By::Key),
            Some(sort) => Some(By::Column(sort)),
        }
    }

    fn build(&self, by: By, pace: &mut Pace<'_>) -> Result<Order, SourceFault> {
        if let Some(rows) = self.sorts.get(by) {
            return Ok(Order::By(rows));
        }
        let rows = match by {
            By::Key => self.by_key(pace)?,
            By::Column(sort) => {
                let base = match self.key.is_empty() {
                    true => Order::File(self.table.len()),
                    false => self.build(By::Key, pace)?,
                };
                self.by_column(sort, &base, pace)?
            }
        };
        Ok(Order::By(self.sorts.keep(by, rows)))
    }

    fn by_key(&self, pace: &mut Pace<'_>) -> Result<Vec<u32>, SourceFault> {
        let first = &self.columns[self.key[0]];
        let (mut entries, _) = self.entries(first, &Order::File(self.table.len()), pace)?;
        entries.sort_unstable_by(|a, b| {
            self.compare_entries(first, a, b).then_with(|| self.compare_rows(a.row, b.row))
        });
        Ok(entries.into_iter().map(|entry| entry.row).collect())
    }

    /// Leaves rows that are equal in the order in which they stood: by key.
    fn by_column(&self, sort: Sort, base: &Order, pace: &mut Pace<'_>) -> Result<Vec<u32>, SourceFault> {
        let column = &self.columns[sort.column];
        let (mut entries, without) = self.entries(column, base, pace)?;
        // A stable sort: columns to sort by have few different values, and it makes use of that.
        entries.sort_by(|a, b| {
            let order = self.compare_entries(column, a, b);
            if sort.descending { order.reverse() } else { order }
        });
        let mut rows = Vec::with_capacity(base.len());
        rows.extend(entries.into_iter().map(|entry| entry.row));
        rows.extend(without);
        Ok(rows)
    }

    /// What is to be sorted, and apart from it the rows without a value.
    fn entries(
        &self,
        column: &Column,
        base: &Order,
        pace: &mut Pace<'_>,
    ) -> Result<(Vec<Entry>, Vec<u32>), SourceFault> {
        let mut entries = Vec::with_capacity(base.len());
        let mut without = Vec::new();
        for i in 0..base.len() {
            pace.row()?;
            let row = base.row(i);
            let told = self.compared(row, column);
            let rank = match told.cell() {
                Cell::Null => {
                    without.push(row);
                    continue;
                }
                Cell::Blob(_) => None,
                cell => column.text(cell).map(|text| Rank::of(column.kind, &text)),
            };
            entries.push(Entry { rank, row });
        }
        Ok((entries, without))
    }

    fn compared(&self, row: u32, column: &Column) -> Told<'_> {
        column.compared(column.told(&self.table, row))
    }

    #[inline]
    fn compare_entries(&self, column: &Column, a: &Entry, b: &Entry) -> Ordering {
        let ranked = a.rank.zip(b.rank).and_then(|(a, b)| a.decide(b));
        ranked.unwrap_or_else(|| {
            let (a, b) = (self.compared(a.row, column), self.compared(b.row, column));
            compare(column.kind, a.cell(), b.cell())
        })
    }

    /// How the keys of two rows stand to each other. Texts decide between keys that mean the same.
    fn compare_rows(&self, a: u32, b: u32) -> Ordering {
        let key: Vec<Told<'_>> =
            self.key.iter().map(|place| self.columns[*place].told(&self.table, b)).collect();
        self.compare_key(a, key.iter().map(Told::cell))
    }

    /// How a row's key stands to another, such as one from a cursor.
    fn compare_key<'a>(&self, row: u32, key: impl Iterator<Item = Cell<'a>> + Clone) -> Ordering {
        let by_kind = |(column, other): (&Column, Cell<'_>)| {
            let other = column.compared(Told::Cell(other));
            compare(column.kind, self.compared(row, column).cell(), other.cell())
        };
        let by_text = |(column, other): (&Column, Cell<'_>)| {
            column.key(column.told(&self.table, row).cell()).cmp(&column.key(other))
        };
        let columns = self.key.iter().map(|place| &self.columns[*place]);
        let pairs = columns.zip(key);
        first_unequal(pairs.clone().map(by_kind)).then_with(|| first_unequal(pairs.map(by_text)))
    }

    /// How many rows of an order have been seen by who was given this position.
    pub(super) fn seen(
        &self,
        order: &Order,
        sort: Option<Sort>,
        after: &Position,
    ) -> Result<usize, SourceFault> {
        if self.key.is_empty() {
            return self.seen_by_place(order, sort, after);
        }
        if after.key.len() != self.key.len() {
            return Err(SourceFault::Moved);
        }
        Ok(order.partition(|row| {
            let sorted = sort.map_or(Ordering::Equal, |sort| {
                let other = after.sorted.as_ref().map_or(Cell::Null, Value::as_cell);
                self.compare_sorted(row, sort, other)
            });
            sorted.then_with(|| self.compare_key(row, after.key.iter().map(Value::as_cell)))
                != Ordering::Greater
        }))
    }

    fn seen_by_place(
        &self,
        order: &Order,
        sort: Option<Sort>,
        after: &Position,
    ) -> Result<usize, SourceFault> {
        let [Value::Integer(place), Value::Integer(state)] = after.key[..] else {
            return Err(SourceFault::Moved);
        };
        let last = u32::try_from(place).ok().filter(|row| *row < self.table.len() && state == self.state);
        let last = last.ok_or(SourceFault::Moved)?;
        let Some(sort) = sort else { return Ok(last as usize + 1) };
        let other = self.columns[sort.column].told(&self.table, last);
        Ok(order.partition(|row| {
            self.compare_sorted(row, sort, other.cell()).then(row.cmp(&last)) != Ordering::Greater
        }))
    }

    /// How a row's value stands to another in a sort. No value comes last either way.
    fn compare_sorted(&self, row: u32, sort: Sort, other: Cell<'_>) -> Ordering {
        let column = &self.columns[sort.column];
        let (own, other) = (self.compared(row, column), column.compared(Told::Cell(other)));
        match (own.cell(), other.cell()) {
            (Cell::Null, Cell::Null) => Ordering::Equal,
            (Cell::Null, _) => Ordering::Greater,
            (_, Cell::Null) => Ordering::Less,
            (own, other) => {
                let order = compare(column.kind, own, other);
                if sort.descending { order.reverse() } else { order }
            }
        }
    }
}

fn first_unequal(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
}
