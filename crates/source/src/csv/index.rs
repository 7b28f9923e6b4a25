//! Which row has a key: row numbers by the hash of their key's texts.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::table::Table;

pub(super) struct Index {
    /// Places in the file.
    pub(super) columns: Vec<usize>,
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

/// Rows are put in by parts of the index, so that each part is at hand while it fills. Their number is a power
/// of two.
const PARTS: usize = 256;
const ROWS_PER_PART_MIN: usize = 256;

impl Index {
    /// Of the first `len` rows. If two have one key, the first that repeats one is told.
    pub(super) fn build(table: &Table, columns: &[usize], len: u32) -> Result<Self, Twice> {
        let state = RandomState::default();
        let mut rows = HashTable::with_capacity(len as usize);
        let mut twice: Option<Twice> = None;
        for part in parts(&state, table, columns, len, rows.num_buckets()) {
            for (hash, row) in part {
                let hash = spread(hash);
                let is_same =
                    |other: &u32| columns.iter().all(|c| table.text(row, *c) == table.text(*other, *c));
                let rehash = |other: &u32| spread(hash_row(&state, table, columns, *other));
                match rows.entry(hash, is_same, rehash) {
                    // Rows with one key are in one part, in the order of the file.
                    Entry::Occupied(first) if twice.is_none_or(|twice| row < twice.second) => {
                        twice = Some(Twice { first: *first.get(), second: row });
                        break;
                    }
                    Entry::Occupied(_) => break,
                    Entry::Vacant(place) => {
                        place.insert(row);
                    }
                }
            }
        }
        match twice {
            Some(twice) => Err(twice),
            None => Ok(Self { columns: columns.to_vec(), rows, state }),
        }
    }

    /// The row whose key has these texts, in the order of the columns.
    pub(super) fn find(&self, table: &Table, key: &[impl AsRef<str>]) -> Option<u32> {
        if key.len() != self.columns.len() {
            return None;
        }
        let hash = spread(hash(&self.state, key.iter().map(AsRef::as_ref)));
        let is_it =
            |row: &u32| self.columns.iter().zip(key).all(|(c, text)| table.text(*row, *c) == text.as_ref());
        self.rows.find(hash, is_it).copied()
    }
}

/// Rows and their hashes, by where in the index they will come to lie: its place is a hash's lowest bits.
fn parts(
    state: &RandomState,
    table: &Table,
    columns: &[usize],
    len: u32,
    buckets: usize,
) -> Vec<Vec<(u32, u32)>> {
    let count = if len as usize >= PARTS * ROWS_PER_PART_MIN { PARTS } else { 1 };
    let capacity = len as usize / count;
    let mut parts: Vec<_> = (0..count).map(|_| Vec::with_capacity(capacity + capacity / 8)).collect();
    let shift = (buckets / count).max(1).ilog2();
    for row in 0..len {
        let hash = hash_row(state, table, columns, row);
        parts[(hash >> shift) as usize & (count - 1)].push((hash, row));
    }
    parts
}

#[inline]
fn hash_row(state: &RandomState, table: &Table, columns: &[usize], row: u32) -> u32 {
    match columns {
        [column] => hash(state, [table.text(row, *column)].iter()),
        columns => hash(state, columns.iter().map(|column| table.text(row, *column))),
    }
}

#[inline]
fn hash(state: &RandomState, texts: impl Iterator<Item = impl AsRef<str>>) -> u32 {
    let mut hasher = state.build_hasher();
    for text in texts {
        hasher.write(text.as_ref().as_bytes());
        // No text has this byte, so `ab`, `c` is not `a`, `bc`.
        hasher.write_u8(0xFF);
    }
    hasher.finish() as u32
}

/// The index wants its hashes in both the lowest and the highest bits. Half of one is enough for as many rows as
/// there can be, and takes half the memory.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
