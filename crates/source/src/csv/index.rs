//! Which row has a key, by the texts of its fields.

use super::table::Table;
use crate::index::{self, KeyHasher, Twice, write_text};

pub(super) struct Index {
    /// Places in the file.
    pub(super) columns: Vec<usize>,
    rows: index::Index,
}

impl Index {
    /// Of the first `len` rows.
    pub(super) fn build(table: &Table, columns: &[usize], len: u32) -> Result<Self, Twice> {
        let write = |row: u32, hasher: &mut KeyHasher| match columns {
            [column] => write_text(hasher, &table.text(row, *column)),
            columns => columns.iter().for_each(|column| write_text(hasher, &table.text(row, *column))),
        };
        let is_same = |a: u32, b: u32| columns.iter().all(|c| table.text(a, *c) == table.text(b, *c));
        let rows = index::Index::build(len, write, is_same)?;
        Ok(Self { columns: columns.to_vec(), rows })
    }

    /// The row whose key has these texts, in the order of the columns.
    pub(super) fn find(&self, table: &Table, key: &[impl AsRef<str>]) -> Option<u32> {
        if key.len() != self.columns.len() {
            return None;
        }
        let write = |hasher: &mut KeyHasher| {
            for text in key {
                write_text(hasher, text.as_ref());
            }
        };
        let is_it =
            |row: u32| self.columns.iter().zip(key).all(|(c, text)| table.text(row, *c) == text.as_ref());
        self.rows.find(write, is_it)
    }
}
