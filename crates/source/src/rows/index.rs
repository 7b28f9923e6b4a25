//! Which row has a key, by what makes one of its values.

use std::hash::Hasher;

use contract::Cell;

use super::column::{Column, Key};
use super::table::Table;
use crate::index::{self, KeyHasher, Twice, write_text};

pub(super) struct Index(index::Index);

impl Index {
    /// Of the first `len` rows.
    pub(super) fn build(table: &Table, key: &[&Column], len: u32) -> Result<Self, Twice> {
        let write_row = |row: u32, hasher: &mut KeyHasher| {
            for column in key {
                write(hasher, column, column.told(table, row).cell());
            }
        };
        let is_same = |a: u32, b: u32| {
            key.iter().all(|column| {
                column.key(column.told(table, a).cell()) == column.key(column.told(table, b).cell())
            })
        };
        index::Index::build(len, write_row, is_same).map(Self)
    }

    /// The row with this key.
    pub(super) fn find(&self, table: &Table, columns: &[&Column], key: &[Cell<'_>]) -> Option<u32> {
        if key.len() != columns.len() {
            return None;
        }
        let pairs = || columns.iter().zip(key);
        let write_key = |hasher: &mut KeyHasher| {
            for (column, cell) in pairs() {
                write(hasher, column, *cell);
            }
        };
        let is_it = |row: u32| {
            pairs().all(|(column, cell)| {
                let told = column.told(table, row);
                let own = column.key(told.cell());
                own.is_some() && own == column.key(*cell)
            })
        };
        self.0.find(write_key, is_it)
    }
}

#[inline]
fn write(hasher: &mut KeyHasher, column: &Column, cell: Cell<'_>) {
    match column.key(cell) {
        Some(Key::Integer(n)) => hasher.write_i64(n),
        Some(Key::Text(text)) => write_text(hasher, &text),
        None => {}
    }
}
