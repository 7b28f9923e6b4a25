//! Reads rows of a table: found by their key, told cell by cell, tried by filters and words.

use contract::source::{Filter, Test};
use contract::{Cell, order};

use super::column::Column;
use super::fit::Fit;
use crate::hunt::Hunt;
use crate::live::{self, Compared, Told};

/// A filter, with its value as it is compared.
pub(super) struct Sieve<'a> {
    column: &'a Column,
    test: Test,
    bound: Told<'a>,
}

impl live::Fit for Fit {
    /// The cells of one row.
    type Scratch<'a> = Vec<Told<'a>>;
    type Sieve<'a> = Sieve<'a>;

    fn indexed(&self, key: &[Cell<'_>]) -> Option<u32> {
        let index = self.index.as_ref()?;
        match &self.orders.key[..] {
            [only] => index.find(&self.table, &[&self.columns[*only]], key),
            places => {
                let columns: Vec<&Column> = places.iter().map(|place| &self.columns[*place]).collect();
                index.find(&self.table, &columns, key)
            }
        }
    }

    fn hand<'a>(&'a self, row: u32, told: &mut Vec<Told<'a>>, then: impl FnOnce(&[Cell<'_>])) {
        told.clear();
        told.extend(self.columns.iter().map(|column| column.told(&self.table, row)));
        live::hand(told, Told::cell, then);
    }

    fn sieves<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<Sieve<'a>> {
        let sieve = |filter: &Filter<'a>| {
            let column = &self.columns[filter.column];
            Sieve { column, test: filter.test, bound: column.compared(Told::Cell(filter.value)) }
        };
        filters.iter().map(sieve).collect()
    }

    fn passes<'a>(&'a self, row: u32, sieves: &[Sieve<'a>], _: &mut Vec<Told<'a>>) -> bool {
        sieves.iter().all(|Sieve { column, test, bound }| {
            let own = column.compared(column.told(&self.table, row));
            order::passes(column.kind, own.cell(), *test, bound.cell())
        })
    }

    fn sought(&self, places: &[usize]) -> Vec<&Column> {
        places.iter().map(|place| &self.columns[*place]).collect()
    }

    fn has_all<'a>(&'a self, row: u32, columns: &[&Column], hunt: &mut Hunt, _: &mut Vec<Told<'a>>) -> bool {
        columns.iter().any(|column| {
            let told = column.told(&self.table, row);
            column.text(told.cell()).is_some_and(|text| hunt.see(&text))
        })
    }
}
