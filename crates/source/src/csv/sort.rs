//! Orders of a table's rows: made when first asked for, the last few kept.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::order::{Rank, compare};
use contract::source::{Position, Sort, SourceFault};
use contract::{Cell, Kind, Value};

use super::fit::{Column, Fit};
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

/// A row while it is sorted: how its value ranks, and where the value lies.
struct Entry {
    rank: Rank,
    at: u32,
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
            let order = self.compare_entries(first.kind, a, b);
            order.then_with(|| self.compare_rows(a.row, b.row))
        });
        Ok(entries.into_iter().map(|entry| entry.row).collect())
    }

    /// Leaves rows that are equal in the order in which they stood: by key.
    fn by_column(&self, sort: Sort, base: &Order, pace: &mut Pace<'_>) -> Result<Vec<u32>, SourceFault> {
        let column = &self.columns[sort.column];
        let (mut entries, without) = self.entries(column, base, pace)?;
        // A stable sort: columns to sort by have few different values, and it makes use of that.
        entries.sort_by(|a, b| {
            let order = self.compare_entries(column.kind, a, b);
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
            let at = self.table.begin(row, column.field);
            let text = self.table.text_at(at);
            if column.is_null(&text) {
                without.push(row);
            } else {
                entries.push(Entry { rank: Rank::of(column.kind, &text), at, row });
            }
        }
        Ok((entries, without))
    }

    #[inline]
    fn compare_entries(&self, kind: Kind, a: &Entry, b: &Entry) -> Ordering {
        a.rank.decide(b.rank).unwrap_or_else(|| {
            let (a, b) = (self.table.text_at(a.at), self.table.text_at(b.at));
            compare(kind, Cell::Text(&a), Cell::Text(&b))
        })
    }

    /// How the keys of two rows stand to each other. Texts decide between keys that mean the same.
    fn compare_rows(&self, a: u32, b: u32) -> Ordering {
        let text = |row: u32, column: &Column| self.table.text(row, column.field);
        let by_kind = |column: &Column| {
            compare(column.kind, Cell::Text(&text(a, column)), Cell::Text(&text(b, column)))
        };
        let by_text = |column: &Column| text(a, column).cmp(&text(b, column));
        let key = || self.key.iter().map(|place| &self.columns[*place]);
        first_unequal(key().map(by_kind)).then_with(|| first_unequal(key().map(by_text)))
    }

    /// How a row's key stands to one from a cursor.
    fn compare_key(&self, row: u32, key: &[Value]) -> Ordering {
        let text = |column: &Column| self.table.text(row, column.field);
        let by_kind = |(column, value): (&Column, &Value)| {
            compare(column.kind, Cell::Text(&text(column)), value.as_cell())
        };
        let by_text = |(column, value): (&Column, &Value)| match value {
            Value::Text(other) => text(column).as_ref().cmp(other),
            Value::Null | Value::Integer(_) | Value::Real(_) | Value::Blob(_) => Ordering::Equal,
        };
        let pairs = || self.key.iter().map(|place| &self.columns[*place]).zip(key);
        first_unequal(pairs().map(by_kind)).then_with(|| first_unequal(pairs().map(by_text)))
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
            sorted.then_with(|| self.compare_key(row, &after.key)) != Ordering::Greater
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
        let column = &self.columns[sort.column];
        let text = self.table.text(last, column.field);
        let other = if column.is_null(&text) { Cell::Null } else { Cell::Text(&text) };
        Ok(order
            .partition(|row| self.compare_sorted(row, sort, other).then(row.cmp(&last)) != Ordering::Greater))
    }

    /// How a row's value stands to another in a sort. No value comes last either way.
    fn compare_sorted(&self, row: u32, sort: Sort, other: Cell<'_>) -> Ordering {
        let column = &self.columns[sort.column];
        let text = self.table.text(row, column.field);
        match (column.is_null(&text), other) {
            (true, Cell::Null) => Ordering::Equal,
            (true, _) => Ordering::Greater,
            (false, Cell::Null) => Ordering::Less,
            (false, other) => {
                let order = compare(column.kind, Cell::Text(&text), other);
                if sort.descending { order.reverse() } else { order }
            }
        }
    }
}

fn first_unequal(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
}
