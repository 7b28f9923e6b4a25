//! An index from keys to rows: row numbers by the hash of their key.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::ControlFlow;

use contract::{DataType, names};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

pub(crate) struct KeyIndex {
    rows: HashTable<u32>,
    // Seeded at random, so that an attacker cannot prepare a file whose keys all fall into one bucket.
    hash_builder: RandomState,
}

/// Hashes the values of a key, one after another.
pub(crate) type KeyHasher = <RandomState as BuildHasher>::Hasher;

/// Two rows with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DuplicateKey {
    pub(crate) first: u32,
    pub(crate) second: u32,
}

/// The first row with a key that occurs more than once, and the second.
pub(crate) type DuplicateRows = BTreeMap<u32, u32>;

/// The index is filled partition by partition, so that each partition stays in the CPU cache. Must be a power of two.
const PARTITIONS: usize = 256;
const ROWS_PER_PARTITION_MIN: usize = 256;
/// How many columns to try as a key, and how many rows to try first: most columns repeat a value early.
const KEY_CANDIDATES_MAX: usize = 64;
const KEY_SAMPLE_ROWS: u32 = 1024;

impl KeyIndex {
    /// Indexes the first `len` rows. Fails with the first row that repeats a key.
    pub(crate) fn build(
        len: u32,
        write: impl Fn(u32, &mut KeyHasher),
        is_same: impl Fn(u32, u32) -> bool,
    ) -> Result<Self, DuplicateKey> {
        let mut first: Option<DuplicateKey> = None;
        let index = Self::fill(len, write, is_same, |duplicate| {
            if first.is_none_or(|first| duplicate.second < first.second) {
                first = Some(duplicate);
            }
            // The rows of a partition are in file order.
            ControlFlow::Break(())
        });
        first.map_or(Ok(index), Err)
    }

    /// Indexes all rows. Of rows with the same key, finds the first.
    pub(crate) fn build_with_duplicates(
        len: u32,
        write: impl Fn(u32, &mut KeyHasher),
        is_same: impl Fn(u32, u32) -> bool,
    ) -> (Self, DuplicateRows) {
        let mut duplicates = DuplicateRows::default();
        let index = Self::fill(len, write, is_same, |DuplicateKey { first, second }| {
            duplicates.entry(first).or_insert(second);
            ControlFlow::Continue(())
        });
        (index, duplicates)
    }

    /// `on_duplicate` gets each row that repeats a key, and may end the partition.
    fn fill(
        len: u32,
        write: impl Fn(u32, &mut KeyHasher),
        is_same: impl Fn(u32, u32) -> bool,
        mut on_duplicate: impl FnMut(DuplicateKey) -> ControlFlow<()>,
    ) -> Self {
        let hash_builder = RandomState::default();
        let hash = |row: u32| hash_key(&hash_builder, |hasher| write(row, hasher));
        let mut rows = HashTable::with_capacity(len as usize);
        for partition in partition_rows(len, rows.num_buckets(), hash) {
            for (hash_value, row) in partition {
                let is_same = |other: &u32| is_same(row, *other);
                match rows.entry(widen_hash(hash_value), is_same, |other| widen_hash(hash(*other))) {
                    // Rows with the same key are in the same partition, in file order.
                    Entry::Occupied(first) => {
                        if on_duplicate(DuplicateKey { first: *first.get(), second: row }).is_break() {
                            break;
                        }
                    }
                    Entry::Vacant(slot) => {
                        slot.insert(row);
                    }
                }
            }
        }
        Self { rows, hash_builder }
    }

    /// Finds the row whose key is the one that `write` hashes.
    #[inline]
    pub(crate) fn find(
        &self,
        write: impl FnOnce(&mut KeyHasher),
        is_match: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        self.rows.find(widen_hash(hash_key(&self.hash_builder, write)), |row| is_match(*row)).copied()
    }
}

/// A column that may be a key, if its values are unique.
pub(crate) struct KeyCandidate<'a> {
    pub(crate) position: usize,
    pub(crate) name: &'a str,
    pub(crate) data_type: DataType,
}

/// How likely a unique column identifies its rows on purpose, from the most to the least likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyLikelihood {
    /// `id`, `key`
    NamedKey,
    FirstColumn,
    /// `order_id`, `Invoice no`
    EndsLikeKey,
    Other,
}

impl KeyCandidate<'_> {
    pub(crate) fn is_key_type(data_type: DataType) -> bool {
        matches!(data_type, DataType::Text | DataType::Integer | DataType::Int64 | DataType::Date)
    }

    /// `None` if the column is not a key though its values may be unique by accident: a count, a measure, a person's first
    /// name.
    fn likelihood(&self) -> Option<KeyLikelihood> {
        const PERSON_NAMES: [&str; 10] = [
            "first_name",
            "firstname",
            "forename",
            "given_name",
            "last_name",
            "lastname",
            "surname",
            "vorname",
            "nachname",
            "prenom",
        ];
        const NAMES: [&str; 4] = ["id", "key", "uuid", "guid"];
        const LAST_WORDS: [&str; 9] = ["id", "key", "uuid", "guid", "code", "no", "nr", "number", "sku"];
        let name = names::collection_name(self.name);
        let last_word = name.rsplit('_').next().unwrap_or_default();
        Some(match self.data_type {
            _ if NAMES.contains(&name.as_str()) => KeyLikelihood::NamedKey,
            _ if PERSON_NAMES.contains(&name.as_str()) => return None,
            _ if self.position == 0 => KeyLikelihood::FirstColumn,
            _ if LAST_WORDS.contains(&last_word) => KeyLikelihood::EndsLikeKey,
            DataType::Integer | DataType::Int64 => return None,
            _ => KeyLikelihood::Other,
        })
    }
}

/// The likeliest column whose values are unique, the first among equals. `is_key` tests a column over a number of
/// leading rows.
pub(crate) fn find_key_column<'a>(
    columns: impl Iterator<Item = KeyCandidate<'a>>,
    rows: u32,
    is_key: impl Fn(usize, u32) -> bool,
) -> Option<usize> {
    if rows == 0 {
        return None;
    }
    let mut columns: Vec<(KeyLikelihood, usize)> =
        columns.filter_map(|column| Some((column.likelihood()?, column.position))).collect();
    columns.sort_unstable();
    let mut columns = columns.into_iter().map(|(_, position)| position).take(KEY_CANDIDATES_MAX);
    columns.find(|column| is_key(*column, KEY_SAMPLE_ROWS.min(rows)) && is_key(*column, rows))
}

/// Hashes one text of a key.
#[inline]
pub(crate) fn hash_text(hasher: &mut KeyHasher, text: &str) {
    hasher.write(text.as_bytes());
    // UTF-8 never contains this byte, so the key (`ab`, `c`) differs from (`a`, `bc`).
    hasher.write_u8(0xFF);
}

/// Rows with their hashes, partitioned by where the index will put them: a hash's lowest bits choose the bucket.
fn partition_rows(len: u32, buckets: usize, hash: impl Fn(u32) -> u32) -> Vec<Vec<(u32, u32)>> {
    let count = if len as usize >= PARTITIONS * ROWS_PER_PARTITION_MIN { PARTITIONS } else { 1 };
    let capacity = len as usize / count;
    let mut partitions: Vec<_> = (0..count).map(|_| Vec::with_capacity(capacity + capacity / 8)).collect();
    let shift = (buckets / count).max(1).ilog2();
    for row in 0..len {
        let hash = hash(row);
        partitions[(hash >> shift) as usize & (count - 1)].push((hash, row));
    }
    partitions
}

#[inline]
fn hash_key(hash_builder: &RandomState, write: impl FnOnce(&mut KeyHasher)) -> u32 {
    let mut hasher = hash_builder.build_hasher();
    write(&mut hasher);
    hasher.finish() as u32
}

/// The hash table uses both the lowest and the highest bits of a hash. 32 bits are enough for the largest possible
/// number of rows, and take half the memory of 64.
#[inline]
fn widen_hash(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
