//! Columns of a snapshot as vectors of numbers, for questions about all rows.
//!
//! A file is kept as it is, so reading a value means to find it and to parse it again. The first question about a column
//! pays for that once; its vector stays with the snapshot, as long as there is room. A column is either *coded*, if it
//! has few different values, or a vector of numbers. For other columns there is no vector, and the rows are read.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::TimeZone;
use contract::aggregate::{group_value, scaled_decimal};
use contract::source::{DateUnit, SourceError};
use contract::{DataType, Value, ValueRef};
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::order::{SortableColumn, SortableTable};
use crate::progress::ScanProgress;

/// All vectors of a snapshot together.
const VECTORS_BYTES_MAX: usize = 256 << 20;
/// A column with more different values is not coded. Somewhat more than there may be groups.
const CODES_MAX: usize = 1 << 17;

/// The vectors of one snapshot, least recently used first.
#[derive(Default)]
pub(super) struct ColumnVectors(Mutex<Vec<(VectorKey, Option<Arc<ColumnVector>>)>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VectorKey {
    /// The groups of a column.
    Codes {
        column: usize,
        unit: Option<DateUnit>,
        time_zone: Option<TimeZone>,
    },
    Numbers {
        column: usize,
    },
}

pub(super) enum ColumnVector {
    /// For each row the index of its value, in canonical form.
    Codes {
        codes: Vec<u32>,
        values: Vec<Value>,
    },
    /// Integers, or decimals times ten to the power of `scale`.
    Scaled {
        values: Vec<i64>,
        scale: u32,
        nulls: NullMap,
    },
    Floats {
        values: Vec<f64>,
        nulls: NullMap,
    },
}

/// A bit for each row without a value; empty if every row has one.
#[derive(Default)]
pub(super) struct NullMap(Vec<u64>);

impl NullMap {
    #[inline]
    pub(super) fn contains(&self, row: u32) -> bool {
        self.0.get(row as usize / 64).is_some_and(|bits| bits >> (row % 64) & 1 == 1)
    }

    fn insert(&mut self, row: u32, rows: u32) {
        self.0.resize((rows as usize).div_ceil(64), 0);
        self.0[row as usize / 64] |= 1 << (row % 64);
    }
}

impl ColumnVector {
    fn bytes(&self) -> usize {
        match self {
            Self::Codes { codes, values } => codes.len() * 4 + values.len() * 64,
            Self::Scaled { values, .. } => values.len() * 9,
            Self::Floats { values, .. } => values.len() * 9,
        }
    }
}

impl ColumnVectors {
    fn lock(&self) -> MutexGuard<'_, Vec<(VectorKey, Option<Arc<ColumnVector>>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The vector of a column, built if it is not there yet; `None` if the column does not fit into one.
    pub(super) fn get<T: SortableTable>(
        &self,
        table: &T,
        key: VectorKey,
        progress: &mut ScanProgress<'_>,
    ) -> Result<Option<Arc<ColumnVector>>, SourceError> {
        {
            let mut vectors = self.lock();
            if let Some(at) = vectors.iter().position(|(known, _)| *known == key) {
                let found = vectors.remove(at);
                let vector = found.1.clone();
                vectors.push(found);
                return Ok(vector);
            }
        }
        let built = match key {
            VectorKey::Codes { column, unit, time_zone } => {
                build_codes(table, column, unit, time_zone, progress)?
            }
            VectorKey::Numbers { column } => build_numbers(table, column, progress)?,
        };
        let built = built.map(Arc::new);
        let bytes = |vector: &Option<Arc<ColumnVector>>| vector.as_ref().map_or(0, |vector| vector.bytes());
        let mut vectors = self.lock();
        let mut total: usize = vectors.iter().map(|(_, vector)| bytes(vector)).sum::<usize>() + bytes(&built);
        while total > VECTORS_BYTES_MAX && !vectors.is_empty() {
            total -= bytes(&vectors.remove(0).1);
        }
        vectors.push((key, built.clone()));
        Ok(built)
    }
}

fn build_codes<T: SortableTable>(
    table: &T,
    column: usize,
    unit: Option<DateUnit>,
    time_zone: Option<TimeZone>,
    progress: &mut ScanProgress<'_>,
) -> Result<Option<ColumnVector>, SourceError> {
    let column = &table.columns()[column];
    let kind = column.data_type();
    let hasher = RandomState::default();
    let mut index: HashTable<(u32, Box<[u8]>)> = HashTable::new();
    let (mut codes, mut values) = (Vec::with_capacity(table.len() as usize), Vec::new());
    let mut key = Vec::new();
    for row in 0..table.len() {
        progress.count_row()?;
        let value = table.value_at(table.value_position(row, column), column);
        let canonical = group_value(kind, unit, time_zone, value.as_value_ref());
        key.clear();
        canonical.write_key(&mut key);
        let hash = hasher.hash_one(&*key);
        let code = match index.find(hash, |(_, known)| **known == *key) {
            Some((code, _)) => *code,
            None => {
                if values.len() == CODES_MAX {
                    return Ok(None);
                }
                let code = values.len() as u32;
                values.push(canonical.into_value());
                index.insert_unique(hash, (code, key.clone().into()), |(_, key)| hasher.hash_one(&**key));
                code
            }
        };
        codes.push(code);
    }
    Ok(Some(ColumnVector::Codes { codes, values }))
}

fn build_numbers<T: SortableTable>(
    table: &T,
    column: usize,
    progress: &mut ScanProgress<'_>,
) -> Result<Option<ColumnVector>, SourceError> {
    let column = &table.columns()[column];
    let rows = table.len();
    let mut nulls = NullMap::default();
    match column.data_type() {
        DataType::Integer | DataType::Int64 | DataType::Decimal => {
            let is_decimal = column.data_type() == DataType::Decimal;
            let (mut values, mut scale) = (Vec::with_capacity(rows as usize), 0);
            for row in 0..rows {
                progress.count_row()?;
                let value = table.value_at(table.value_position(row, column), column);
                let (mantissa, places) = match scaled_value(value.as_value_ref(), is_decimal) {
                    Some(number) => number,
                    None if value.as_value_ref() == ValueRef::Null => {
                        nulls.insert(row, rows);
                        (0, scale)
                    }
                    None => return Ok(None),
                };
                if places > scale {
                    // Seldom: the values so far have fewer digits.
                    let factor = 10_i64.checked_pow(places - scale);
                    let grown = factor.and_then(|factor| rescale(&mut values, factor));
                    if grown.is_none() {
                        return Ok(None);
                    }
                    scale = places;
                }
                let factor = 10_i128.checked_pow(scale - places);
                let Some(value) = factor
                    .and_then(|factor| mantissa.checked_mul(factor))
                    .and_then(|value| i64::try_from(value).ok())
                else {
                    return Ok(None);
                };
                values.push(value);
            }
            Ok(Some(ColumnVector::Scaled { values, scale, nulls }))
        }
        DataType::Number => {
            let mut values = Vec::with_capacity(rows as usize);
            for row in 0..rows {
                progress.count_row()?;
                let value = table.value_at(table.value_position(row, column), column);
                let number = match value.as_value_ref() {
                    ValueRef::Null => {
                        nulls.insert(row, rows);
                        0.0
                    }
                    ValueRef::Real(n) if n.is_finite() => n + 0.0,
                    ValueRef::Integer(n) if i64::from(n as i32) == n => n as f64,
                    _ => return Ok(None),
                };
                values.push(number);
            }
            Ok(Some(ColumnVector::Floats { values, nulls }))
        }
        DataType::Text
        | DataType::Boolean
        | DataType::Date
        | DataType::Timestamp
        | DataType::LocalTimestamp
        | DataType::Json
        | DataType::Blob => Ok(None),
    }
}

fn rescale(values: &mut [i64], factor: i64) -> Option<()> {
    values.iter_mut().try_for_each(|value| {
        *value = value.checked_mul(factor)?;
        Some(())
    })
}

/// A number as its digits and the number of digits after the point.
pub(super) fn scaled_value(value: ValueRef<'_>, is_decimal: bool) -> Option<(i128, u32)> {
    match value {
        ValueRef::Integer(n) => Some((i128::from(n), 0)),
        ValueRef::Real(n) if is_decimal && n.is_finite() => scaled_decimal(&n.to_string()),
        ValueRef::Text(text) => scaled_decimal(text).filter(|(_, scale)| is_decimal || *scale == 0),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => None,
    }
}
