//! An index from keys to rows, by the texts of the key fields.

use std::borrow::Cow;

use contract::ColumnFormat;

use super::table::CsvTable;
use super::view::CsvColumn;
use crate::key_index::{self, DuplicateKey, DuplicateRows, KeyHasher, hash_text};

pub(super) struct CsvKeyIndex {
    pub(super) columns: Vec<KeyField>,
    key_index: key_index::KeyIndex,
}

/// A column of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyField {
    /// The position in the file.
    pub(super) field_index: usize,
    /// How the file writes the values: two spellings of a value are one key.
    pub(super) format: Option<ColumnFormat>,
}

impl KeyField {
    pub(super) fn plain(field_index: usize) -> Self {
        Self { field_index, format: None }
    }

    pub(super) fn of(column: &CsvColumn) -> Self {
        Self { field_index: column.field_index, format: column.format.clone() }
    }

    #[inline]
    fn text<'a>(&self, table: &'a CsvTable, row: u32) -> Cow<'a, str> {
        let text = table.field_text(row, self.field_index);
        match &self.format {
            None => text,
            Some(format) => format.parse(&text).map_or(text, Cow::Owned),
        }
    }
}

impl CsvKeyIndex {
    /// Indexes the first `len` rows.
    pub(super) fn build(table: &CsvTable, columns: Vec<KeyField>, len: u32) -> Result<Self, DuplicateKey> {
        let (write, is_same) = key_functions(table, &columns);
        let key_index = key_index::KeyIndex::build(len, write, is_same)?;
        Ok(Self { columns, key_index })
    }

    /// Indexes all rows. Of rows with the same key, finds the first.
    pub(super) fn build_with_duplicates(table: &CsvTable, columns: Vec<KeyField>) -> (Self, DuplicateRows) {
        let (write, is_same) = key_functions(table, &columns);
        let (key_index, duplicates) = key_index::KeyIndex::build_with_duplicates(table.len(), write, is_same);
        (Self { columns, key_index }, duplicates)
    }

    /// Finds the row whose key has these texts, in the notation of their type and in the order of the columns.
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
            self.columns.iter().zip(key).all(|(column, text)| column.text(table, row) == text.as_ref())
        };
        self.key_index.find(write, is_match)
    }
}

/// How to hash the key of a row, and how to compare the keys of two.
fn key_functions<'a>(
    table: &'a CsvTable,
    columns: &'a [KeyField],
) -> (impl Fn(u32, &mut KeyHasher) + 'a, impl Fn(u32, u32) -> bool + 'a) {
    let write = move |row: u32, hasher: &mut KeyHasher| match columns {
        [column] => hash_text(hasher, &column.text(table, row)),
        columns => columns.iter().for_each(|column| hash_text(hasher, &column.text(table, row))),
    };
    let is_same =
        move |a: u32, b: u32| columns.iter().all(|column| column.text(table, a) == column.text(table, b));
    (write, is_same)
}
