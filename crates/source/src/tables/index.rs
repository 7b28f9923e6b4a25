//! An index from keys to rows, by key values.

use std::hash::Hasher;

use contract::ValueRef;

use super::column::{KeyValue, TableColumn};
use super::table::Table;
use crate::key_index::{self, DuplicateKey, DuplicateRows, KeyHasher, hash_text};

pub(super) struct TableKeyIndex(key_index::KeyIndex);

impl TableKeyIndex {
    /// Indexes the first `len` rows.
    pub(super) fn build(table: &Table, key: &[&TableColumn], len: u32) -> Result<Self, DuplicateKey> {
        let (write_row, is_same) = key_functions(table, key);
        key_index::KeyIndex::build(len, write_row, is_same).map(Self)
    }

    /// Indexes all rows. Of rows with the same key, finds the first.
    pub(super) fn build_with_duplicates(table: &Table, key: &[&TableColumn]) -> (Self, DuplicateRows) {
        let (write_row, is_same) = key_functions(table, key);
        let (index, duplicates) = key_index::KeyIndex::build_with_duplicates(table.len(), write_row, is_same);
        (Self(index), duplicates)
    }

    /// Finds the row with this key.
    pub(super) fn find(&self, table: &Table, columns: &[&TableColumn], key: &[ValueRef<'_>]) -> Option<u32> {
        if key.len() != columns.len() {
            return None;
        }
        let pairs = || columns.iter().zip(key);
        let write_key = |hasher: &mut KeyHasher| {
            for (column, cell) in pairs() {
                hash_value(hasher, column, *cell);
            }
        };
        let is_match = |row: u32| {
            pairs().all(|(column, cell)| {
                let value = column.value(table, row);
                let own = column.key_value(value.as_value_ref());
                own.is_some() && own == column.key_value(*cell)
            })
        };
        self.0.find(write_key, is_match)
    }
}

/// How to hash the key of a row, and how to compare the keys of two.
fn key_functions<'a>(
    table: &'a Table,
    key: &'a [&'a TableColumn],
) -> (impl Fn(u32, &mut KeyHasher) + 'a, impl Fn(u32, u32) -> bool + 'a) {
    let write_row = move |row: u32, hasher: &mut KeyHasher| {
        for column in key {
            hash_value(hasher, column, column.value(table, row).as_value_ref());
        }
    };
    let is_same = move |a: u32, b: u32| {
        key.iter().all(|column| {
            column.key_value(column.value(table, a).as_value_ref())
                == column.key_value(column.value(table, b).as_value_ref())
        })
    };
    (write_row, is_same)
}

#[inline]
fn hash_value(hasher: &mut KeyHasher, column: &TableColumn, cell: ValueRef<'_>) {
    match column.key_value(cell) {
        Some(KeyValue::Integer(n)) => hasher.write_i64(n),
        Some(KeyValue::Text(text)) => hash_text(hasher, &text),
        None => {}
    }
}
