//! An index from keys to rows, by the texts of the key fields.

use super::table::CsvTable;
use crate::key_index::{self, DuplicateKey, DuplicateRows, KeyHasher, hash_text};

pub(super) struct CsvKeyIndex {
    /// Positions in the file.
    pub(super) columns: Vec<usize>,
    key_index: key_index::KeyIndex,
}

impl CsvKeyIndex {
    /// Indexes the first `len` rows.
    pub(super) fn build(table: &CsvTable, columns: &[usize], len: u32) -> Result<Self, DuplicateKey> {
        let (write, is_same) = key_functions(table, columns);
        let rows = key_index::KeyIndex::build(len, write, is_same)?;
        Ok(Self { columns: columns.to_vec(), key_index: rows })
    }

    /// Indexes all rows. Of rows with the same key, finds the first.
    pub(super) fn build_with_duplicates(table: &CsvTable, columns: &[usize]) -> (Self, DuplicateRows) {
        let (write, is_same) = key_functions(table, columns);
        let (rows, duplicates) = key_index::KeyIndex::build_with_duplicates(table.len(), write, is_same);
        (Self { columns: columns.to_vec(), key_index: rows }, duplicates)
    }

    /// Finds the row whose key has these texts, in the order of the columns.
    pub(super) fn find(&self, table: &CsvTable, key: &[impl AsRef<str>]) -> Option<u32> {
        if key.len() != self.columns.len() {
            return None;
        }
        let write = |hasher: &mut KeyHasher| {
            for text in key {
                hash_text(hasher, text.as_ref());
            }
        };
        let is_match = |row: u32| {
            self.columns.iter().zip(key).all(|(c, text)| table.field_text(row, *c) == text.as_ref())
        };
        self.key_index.find(write, is_match)
    }
}

/// How to hash the key of a row, and how to compare the keys of two.
fn key_functions<'a>(
    table: &'a CsvTable,
    columns: &'a [usize],
) -> (impl Fn(u32, &mut KeyHasher) + 'a, impl Fn(u32, u32) -> bool + 'a) {
    let write = move |row: u32, hasher: &mut KeyHasher| match columns {
        [column] => hash_text(hasher, &table.field_text(row, *column)),
        columns => columns.iter().for_each(|column| hash_text(hasher, &table.field_text(row, *column))),
    };
    let is_same =
        move |a: u32, b: u32| columns.iter().all(|c| table.field_text(a, *c) == table.field_text(b, *c));
    (write, is_same)
}
