//! Which row has a key: row numbers by the hash of their key's parts.

use std::hash::{BuildHasher, Hasher};

use contract::Cell;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::column::{Column, Key};
use super::table::Table;

pub(super) struct Index {
    rows: HashTable<u32>,
    // Seeded by chance, so that no file can be made to fall into one bucket.
    state: RandomState,
}

/// Two rows with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Twice {
    pub(super) first: u32,
    pub(super) second: u32,
}

impl Index {
    pub(super) fn build(table: &Table, key: &[&Column]) -> Result<Self, Twice> {
        let state = RandomState::default();
        let mut rows = HashTable::with_capacity(table.len() as usize);
        for row in 0..table.len() {
            let hash = hash_row(&state, table, key, row);
            let is_same = |other: &u32| key.iter().all(|column| is_same_key(table, column, row, *other));
            match rows.entry(hash, is_same, |other| hash_row(&state, table, key, *other)) {
                Entry::Occupied(first) => return Err(Twice { first: *first.get(), second: row }),
                Entry::Vacant(place) => {
                    place.insert(row);
                }
            }
        }
        Ok(Self { rows, state })
    }

    /// The row with this key.
    pub(super) fn find(&self, table: &Table, columns: &[&Column], key: &[Cell<'_>]) -> Option<u32> {
        if key.len() != columns.len() {
            return None;
        }
        let mut hasher = self.state.build_hasher();
        for (column, cell) in columns.iter().zip(key) {
            write(&mut hasher, column, *cell);
        }
        let is_it = |row: &u32| {
            columns.iter().zip(key).all(|(column, cell)| {
                let told = column.told(table, *row);
                let own = column.key(told.cell());
                own.is_some() && own == column.key(*cell)
            })
        };
        self.rows.find(hasher.finish(), is_it).copied()
    }
}

fn is_same_key(table: &Table, column: &Column, a: u32, b: u32) -> bool {
    column.key(column.told(table, a).cell()) == column.key(column.told(table, b).cell())
}

fn hash_row(state: &RandomState, table: &Table, key: &[&Column], row: u32) -> u64 {
    let mut hasher = state.build_hasher();
    for column in key {
        write(&mut hasher, column, column.told(table, row).cell());
    }
    hasher.finish()
}

#[inline]
fn write(hasher: &mut impl Hasher, column: &Column, cell: Cell<'_>) {
    match column.key(cell) {
        Some(Key::Integer(n)) => hasher.write_i64(n),
        Some(Key::Text(text)) => {
            hasher.write(text.as_bytes());
            // No text has this byte, so `ab`, `c` is not `a`, `bc`.
            hasher.write_u8(0xFF);
        }
        None => {}
    }
}
