//! Which row has a key: row numbers by the hash of their key.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

pub(crate) struct KeyIndex {
    rows: HashTable<u32>,
    // Seeded by chance, so that no file can be made to fall into one bucket.
    hash_builder: RandomState,
}

/// Takes what makes a key, one part after the other.
pub(crate) type KeyHasher = <RandomState as BuildHasher>::Hasher;

/// Two rows with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DuplicateKey {
    pub(crate) first: u32,
    pub(crate) second: u32,
}

/// Rows are put in by parts of the index, so that each part is at hand while it fills. Their number is a power
/// of two.
const PARTITIONS: usize = 256;
const ROWS_PER_PARTITION_MIN: usize = 256;
/// Columns after which the search for a key is given up, and rows by which most show that they are none.
const KEY_CANDIDATES_MAX: usize = 64;
const KEY_SAMPLE_ROWS: u32 = 1024;

impl KeyIndex {
    /// Of the first `len` rows. If two have one key, the first that repeats one is told.
    pub(crate) fn build(
        len: u32,
        write: impl Fn(u32, &mut KeyHasher),
        is_same: impl Fn(u32, u32) -> bool,
    ) -> Result<Self, DuplicateKey> {
        let state = RandomState::default();
        let hash = |row: u32| hash_key(&state, |hasher| write(row, hasher));
        let mut rows = HashTable::with_capacity(len as usize);
        let mut twice: Option<DuplicateKey> = None;
        for part in partition_rows(len, rows.num_buckets(), hash) {
            for (own, row) in part {
                let is_same = |other: &u32| is_same(row, *other);
                match rows.entry(widen_hash(own), is_same, |other| widen_hash(hash(*other))) {
                    // Rows with one key are in one part, in the order of the file.
                    Entry::Occupied(first) if twice.is_none_or(|twice| row < twice.second) => {
                        twice = Some(DuplicateKey { first: *first.get(), second: row });
                        break;
                    }
                    Entry::Occupied(_) => break,
                    Entry::Vacant(place) => {
                        place.insert(row);
                    }
                }
            }
        }
        twice.map_or(Ok(Self { rows, hash_builder: state }), Err)
    }

    /// The row with the key that `write` makes.
    #[inline]
    pub(crate) fn find(
        &self,
        write: impl FnOnce(&mut KeyHasher),
        is_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        self.rows.find(widen_hash(hash_key(&self.hash_builder, write)), |row| is_it(*row)).copied()
    }
}

/// The first column that tells rows apart, if one does: `is_key` says so of a column and the first so many rows.
pub(crate) fn find_key_column(
    columns: impl Iterator<Item = usize>,
    rows: u32,
    is_key: impl Fn(usize, u32) -> bool,
) -> Option<usize> {
    let is_first = |column: &usize| is_key(*column, KEY_SAMPLE_ROWS.min(rows)) && is_key(*column, rows);
    if rows == 0 { None } else { columns.take(KEY_CANDIDATES_MAX).find(is_first) }
}

/// A text as part of a key.
#[inline]
pub(crate) fn hash_text(hasher: &mut KeyHasher, text: &str) {
    hasher.write(text.as_bytes());
    // No text has this byte, so `ab`, `c` is not `a`, `bc`.
    hasher.write_u8(0xFF);
}

/// Rows and their hashes, by where in the index they will come to lie: its place is a hash's lowest bits.
fn partition_rows(len: u32, buckets: usize, hash: impl Fn(u32) -> u32) -> Vec<Vec<(u32, u32)>> {
    let count = if len as usize >= PARTITIONS * ROWS_PER_PARTITION_MIN { PARTITIONS } else { 1 };
    let capacity = len as usize / count;
    let mut parts: Vec<_> = (0..count).map(|_| Vec::with_capacity(capacity + capacity / 8)).collect();
    let shift = (buckets / count).max(1).ilog2();
    for row in 0..len {
        let hash = hash(row);
        parts[(hash >> shift) as usize & (count - 1)].push((hash, row));
    }
    parts
}

#[inline]
fn hash_key(state: &RandomState, write: impl FnOnce(&mut KeyHasher)) -> u32 {
    let mut hasher = state.build_hasher();
    write(&mut hasher);
    hasher.finish() as u32
}

/// The index wants its hashes in both the lowest and the highest bits. Half of one is enough for as many rows as
/// there can be, and takes half the memory.
#[inline]
fn widen_hash(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
