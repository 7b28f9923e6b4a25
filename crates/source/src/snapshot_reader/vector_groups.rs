//! Groups rows by the codes of their columns, without reading the rows again.

use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::sync::Arc;

use contract::aggregate::{Canonical, DecimalSum, FloatSum};
use contract::source::{
    Aggregate, AggregateFunction, Comparison, Filter, GroupRow, Groups, Measure, SourceError,
};
use contract::{DataType, Value, ValueRef, order};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};

use super::ReadableTable;
use super::column_vectors::{ColumnVector, NullMap, VectorKey, scaled_value};
use super::order::SortableColumn;
use crate::progress::ScanProgress;

/// Combinations of codes that get a slot each, whether they occur or not.
const SLOTS_MAX: usize = 1 << 20;
/// Bits to count the different values of a coded column in every group.
const DISTINCT_BITS_MAX: usize = 1 << 28;
/// The different numbers of all groups together.
const DISTINCT_NUMBERS_MAX: usize = 1 << 24;
/// Rows that are filtered, then grouped, then measured.
const BATCH_ROWS: usize = 4096;

/// `None` if some column has no vector that answers the question.
pub(super) fn group_by_vectors<F: ReadableTable>(
    table: &F,
    question: &Aggregate<'_>,
    progress: &mut ScanProgress<'_>,
) -> Result<Option<Groups>, SourceError> {
    let mut tests = Vec::with_capacity(question.filters.len());
    for filter in &question.filters {
        // Each test leaves rows out; of joined filters one is enough.
        if filter.or_next {
            return Ok(None);
        }
        match row_test(table, filter, progress)? {
            Some(test) => tests.push(test),
            None => return Ok(None),
        }
    }
    let mut keys = Vec::with_capacity(question.groups.len());
    let mut slots = 1_usize;
    for group in &question.groups {
        let key = VectorKey::Codes { column: group.column, unit: group.unit, time_zone: group.time_zone };
        let Some(vector) = table.orders().vectors.get(table, key, progress)? else { return Ok(None) };
        let ColumnVector::Codes { values, codes } = &*vector else { return Ok(None) };
        let kind = table.columns()[group.column].data_type();
        let mapped = group.map.map(|map| Arc::new(map_codes(values, codes, |value| map.get(kind, value))));
        let vector = mapped.unwrap_or(vector);
        if let ColumnVector::Codes { values, .. } = &*vector {
            slots = slots.saturating_mul(values.len().max(1));
        }
        keys.push(vector);
    }
    if slots > SLOTS_MAX {
        return Ok(None);
    }
    let mut measures = Vec::with_capacity(question.measures.len());
    for measure in &question.measures {
        match VectorMeasure::new(table, *measure, slots, progress)? {
            Some(measure) => measures.push(measure),
            None => return Ok(None),
        }
    }
    let mut groups = SlotGroups { ids: vec![u32::MAX; slots], slots: Vec::new() };
    let (mut rows, mut ids) = (Vec::with_capacity(BATCH_ROWS), Vec::with_capacity(BATCH_ROWS));
    let mut start = 0;
    while start < table.len() {
        let end = table.len().min(start + BATCH_ROWS as u32);
        progress.count_rows(end - start)?;
        rows.clear();
        rows.extend(start..end);
        for test in &tests {
            test.retain(&mut rows);
        }
        groups.assign(&keys, &rows, &mut ids);
        if groups.slots.len() > question.groups_max {
            return Err(question.too_many_groups());
        }
        for measure in &mut measures {
            measure.push(&rows, &ids, groups.slots.len());
        }
        start = end;
    }
    Ok(Some(groups.finish(&keys, question, measures)))
}

/// The same rows with codes for what `map` makes of their values. Several values may become one.
fn map_codes<'m>(values: &[Value], codes: &[u32], map: impl Fn(ValueRef<'_>) -> &'m Value) -> ColumnVector {
    let (mut new_codes, mut new_values) = (Vec::with_capacity(values.len()), Vec::<Value>::new());
    let mut known: HashMap<Vec<u8>, u32, RandomState> = HashMap::default();
    for value in values {
        let mapped = map(value.as_value_ref());
        let mut key = Vec::new();
        Canonical::from(mapped).write_key(&mut key);
        let code = *known.entry(key).or_insert_with(|| {
            new_values.push(mapped.clone());
            new_values.len() as u32 - 1
        });
        new_codes.push(code);
    }
    ColumnVector::Codes {
        codes: codes.iter().map(|code| new_codes[*code as usize]).collect(),
        values: new_values,
    }
}

/// Which combination of codes is which group, in the order of their first rows.
struct SlotGroups {
    ids: Vec<u32>,
    slots: Vec<usize>,
}

impl SlotGroups {
    /// The group of each row.
    fn assign(&mut self, keys: &[Arc<ColumnVector>], rows: &[u32], ids: &mut Vec<u32>) {
        ids.clear();
        ids.resize(rows.len(), 0);
        for key in keys {
            let ColumnVector::Codes { codes, values } = &**key else { continue };
            let width = values.len() as u32;
            for (id, row) in ids.iter_mut().zip(rows) {
                *id = *id * width + codes[*row as usize];
            }
        }
        for id in ids {
            let group = &mut self.ids[*id as usize];
            if *group == u32::MAX {
                *group = self.slots.len() as u32;
                self.slots.push(*id as usize);
            }
            *id = *group;
        }
    }

    fn finish(
        mut self,
        keys: &[Arc<ColumnVector>],
        question: &Aggregate<'_>,
        measures: Vec<VectorMeasure>,
    ) -> Groups {
        // Without fields to group by there is one group, even without rows.
        if question.groups.is_empty() && self.slots.is_empty() {
            self.slots.push(0);
        }
        let count = self.slots.len();
        let mut columns: Vec<std::vec::IntoIter<Value>> =
            measures.into_iter().map(|measure| measure.finish(count).into_iter()).collect();
        let row = |slot: &usize| {
            let mut slot = *slot;
            let mut values: Vec<Value> = Vec::with_capacity(keys.len() + columns.len());
            for key in keys.iter().rev() {
                if let ColumnVector::Codes { values: known, .. } = &**key {
                    values.push(known[slot % known.len()].clone());
                    slot /= known.len();
                }
            }
            values.reverse();
            values.extend(columns.iter_mut().filter_map(Iterator::next));
            GroupRow(values)
        };
        Groups { rows: self.slots.iter().map(row).collect() }
    }
}

/// A filter over a vector.
enum RowTest {
    /// For each code whether it passes.
    Codes { vector: Arc<ColumnVector>, passes: Vec<bool> },
    /// Inclusive ranges of scaled numbers, of which one must contain the value; or none of them.
    Ranges { vector: Arc<ColumnVector>, ranges: Vec<(i64, i64)>, is_negated: bool },
}

fn row_test<F: ReadableTable>(
    table: &F,
    filter: &Filter<'_>,
    progress: &mut ScanProgress<'_>,
) -> Result<Option<RowTest>, SourceError> {
    let column = &table.columns()[filter.column];
    if column.is_mixed() {
        return Ok(None);
    }
    let kind = column.data_type();
    let vectors = &table.orders().vectors;
    let key = VectorKey::Codes { column: filter.column, unit: None, time_zone: None };
    if let Some(vector) = vectors.get(table, key, progress)?
        && let ColumnVector::Codes { values, .. } = &*vector
    {
        let passes = values.iter().map(|value| filter.matches(kind, value.as_value_ref())).collect();
        return Ok(Some(RowTest::Codes { vector, passes }));
    }
    let Some(vector) = vectors.get(table, VectorKey::Numbers { column: filter.column }, progress)? else {
        return Ok(None);
    };
    let ColumnVector::Scaled { scale, .. } = &*vector else { return Ok(None) };
    let ranges: Option<Vec<(i64, i64)>> = match filter.comparison {
        Comparison::Equals | Comparison::NotEquals | Comparison::AtLeast | Comparison::AtMost => {
            filter.values().map(|value| number_range(filter.comparison, value, *scale)).collect()
        }
        Comparison::Contains
        | Comparison::StartsWith
        | Comparison::IsNull
        | Comparison::IsNotNull
        | Comparison::OneOfKeys
        | Comparison::NoneOfKeys => None,
    };
    let is_negated = filter.comparison == Comparison::NotEquals;
    Ok(ranges.map(|ranges| RowTest::Ranges { vector, ranges, is_negated }))
}

/// The scaled numbers that pass; an empty range if none does. `None` if the operand is not a number.
fn number_range(comparison: Comparison, operand: ValueRef<'_>, scale: u32) -> Option<(i64, i64)> {
    let (mantissa, places) = scaled_value(operand, true)?;
    let (floor, ceiling) = if places <= scale {
        let exact = mantissa.checked_mul(10_i128.checked_pow(scale - places)?)?;
        (exact, exact)
    } else {
        let factor = 10_i128.checked_pow(places - scale)?;
        let floor = mantissa.div_euclid(factor);
        (floor, floor + i128::from(mantissa.rem_euclid(factor) != 0))
    };
    let clamp = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    let in_range = |n: i128| i64::try_from(n).is_ok();
    Some(match comparison {
        Comparison::AtLeast if ceiling > i64::MAX.into() => EMPTY_RANGE,
        Comparison::AtLeast => (clamp(ceiling), i64::MAX),
        Comparison::AtMost if floor < i64::MIN.into() => EMPTY_RANGE,
        Comparison::AtMost => (i64::MIN, clamp(floor)),
        _ if floor == ceiling && in_range(floor) => (clamp(floor), clamp(floor)),
        _ => EMPTY_RANGE,
    })
}

const EMPTY_RANGE: (i64, i64) = (1, 0);

impl RowTest {
    fn retain(&self, rows: &mut Vec<u32>) {
        match self {
            Self::Codes { vector, passes } => {
                if let ColumnVector::Codes { codes, .. } = &**vector {
                    rows.retain(|row| passes[codes[*row as usize] as usize]);
                }
            }
            Self::Ranges { vector, ranges, is_negated } => {
                if let ColumnVector::Scaled { values, nulls, .. } = &**vector {
                    rows.retain(|row| {
                        let value = values[*row as usize];
                        let is_in = !nulls.contains(*row)
                            && ranges.iter().any(|(from, to)| *from <= value && value <= *to);
                        is_in != *is_negated
                    });
                }
            }
        }
    }
}

/// One measure of every group.
enum VectorMeasure {
    Count(Vec<u64>),
    Scaled {
        vector: Arc<ColumnVector>,
        kind: DataType,
        function: AggregateFunction,
        /// Sums, or the least or greatest value.
        results: Vec<i128>,
        counts: Vec<u64>,
    },
    Floats {
        vector: Arc<ColumnVector>,
        function: AggregateFunction,
        sums: Vec<FloatSum>,
        extremes: Vec<f64>,
        counts: Vec<u64>,
    },
    /// The least or greatest of coded values: each code has a rank.
    Ranked {
        vector: Arc<ColumnVector>,
        ranks: Vec<u32>,
        is_max: bool,
        best: Vec<Option<u32>>,
    },
    /// A bit for each code in each group.
    Distinct {
        vector: Arc<ColumnVector>,
        seen: Vec<Vec<u64>>,
    },
    /// The different numbers of each group, for a column with many.
    DistinctNumbers {
        vector: Arc<ColumnVector>,
        seen: HashTable<(u32, u64)>,
        hasher: RandomState,
        counts: Vec<u64>,
    },
}

impl VectorMeasure {
    fn new<F: ReadableTable>(
        table: &F,
        measure: Measure<'_>,
        slots: usize,
        progress: &mut ScanProgress<'_>,
    ) -> Result<Option<Self>, SourceError> {
        let (function, column) = match measure {
            Measure::Count => return Ok(Some(Self::Count(Vec::new()))),
            Measure::Of { function, column } => (function, column),
            Measure::Linked { .. } => return Ok(None),
        };
        let (vectors, kind) = (&table.orders().vectors, table.columns()[column].data_type());
        if table.columns()[column].is_mixed() {
            return Ok(None);
        }
        if function != AggregateFunction::Distinct
            && let Some(vector) = vectors.get(table, VectorKey::Numbers { column }, progress)?
        {
            return Ok(match &*vector {
                ColumnVector::Scaled { .. } => {
                    Some(Self::Scaled { vector, kind, function, results: Vec::new(), counts: Vec::new() })
                }
                ColumnVector::Floats { .. } => Some(Self::Floats {
                    vector,
                    function,
                    sums: Vec::new(),
                    extremes: Vec::new(),
                    counts: Vec::new(),
                }),
                ColumnVector::Codes { .. } => None,
            });
        }
        let Some(vector) =
            vectors.get(table, VectorKey::Codes { column, unit: None, time_zone: None }, progress)?
        else {
            return match function {
                AggregateFunction::Distinct => Self::distinct_numbers(table, column, progress),
                _ => Ok(None),
            };
        };
        let ColumnVector::Codes { values, .. } = &*vector else { return Ok(None) };
        Ok(match function {
            AggregateFunction::Sum | AggregateFunction::Avg => None,
            AggregateFunction::Distinct if values.len().saturating_mul(slots) > DISTINCT_BITS_MAX => {
                return Self::distinct_numbers(table, column, progress);
            }
            AggregateFunction::Distinct => Some(Self::Distinct { vector, seen: Vec::new() }),
            AggregateFunction::Min | AggregateFunction::Max => {
                let mut by_value: Vec<usize> = (0..values.len()).collect();
                by_value.sort_by(|a, b| compare(kind, &values[*a], &values[*b]));
                let mut ranks = vec![0; values.len()];
                for (rank, code) in by_value.into_iter().enumerate() {
                    ranks[code] = rank as u32;
                }
                Some(Self::Ranked {
                    vector,
                    ranks,
                    is_max: function == AggregateFunction::Max,
                    best: Vec::new(),
                })
            }
        })
    }

    fn distinct_numbers<F: ReadableTable>(
        table: &F,
        column: usize,
        progress: &mut ScanProgress<'_>,
    ) -> Result<Option<Self>, SourceError> {
        if table.len() as usize > DISTINCT_NUMBERS_MAX {
            return Ok(None);
        }
        let vector = table.orders().vectors.get(table, VectorKey::Numbers { column }, progress)?;
        Ok(vector.map(|vector| Self::DistinctNumbers {
            vector,
            seen: HashTable::new(),
            hasher: RandomState::default(),
            counts: Vec::new(),
        }))
    }

    /// Adds rows, each with its group, of which there are `group_count` now.
    fn push(&mut self, rows: &[u32], ids: &[u32], group_count: usize) {
        let pairs = || rows.iter().zip(ids).map(|(row, id)| (*row, *id as usize));
        match self {
            Self::Count(counts) => {
                counts.resize(group_count, 0);
                ids.iter().for_each(|id| counts[*id as usize] += 1);
            }
            Self::Scaled { vector, function, results, counts, .. } => {
                let ColumnVector::Scaled { values, nulls, .. } = &**vector else { return };
                counts.resize(group_count, 0);
                results.resize(group_count, 0);
                let has_value = |row: u32, nulls: &NullMap| !nulls.contains(row);
                for (row, id) in pairs().filter(|(row, _)| has_value(*row, nulls)) {
                    let value = i128::from(values[row as usize]);
                    let result = &mut results[id];
                    match function {
                        AggregateFunction::Min if counts[id] == 0 || value < *result => *result = value,
                        AggregateFunction::Max if counts[id] == 0 || value > *result => *result = value,
                        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Distinct => {}
                        AggregateFunction::Sum | AggregateFunction::Avg => *result += value,
                    }
                    counts[id] += 1;
                }
            }
            Self::Floats { vector, function, sums, extremes, counts } => {
                let ColumnVector::Floats { values, nulls } = &**vector else { return };
                counts.resize(group_count, 0);
                sums.resize(group_count, FloatSum::default());
                extremes.resize(group_count, 0.0);
                for (row, id) in pairs().filter(|(row, _)| !nulls.contains(*row)) {
                    let value = values[row as usize];
                    match function {
                        AggregateFunction::Min if counts[id] == 0 || value < extremes[id] => {
                            extremes[id] = value
                        }
                        AggregateFunction::Max if counts[id] == 0 || value > extremes[id] => {
                            extremes[id] = value
                        }
                        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Distinct => {}
                        AggregateFunction::Sum | AggregateFunction::Avg => sums[id].add(value),
                    }
                    counts[id] += 1;
                }
            }
            Self::Ranked { vector, ranks, is_max, best } => {
                let ColumnVector::Codes { codes, values } = &**vector else { return };
                best.resize(group_count, None);
                for (row, id) in pairs() {
                    let code = codes[row as usize];
                    if values[code as usize] == Value::Null {
                        continue;
                    }
                    let is_better = best[id].is_none_or(|best| {
                        let (new, old) = (ranks[code as usize], ranks[best as usize]);
                        if *is_max { new > old } else { new < old }
                    });
                    if is_better {
                        best[id] = Some(code);
                    }
                }
            }
            Self::Distinct { vector, seen } => {
                let ColumnVector::Codes { codes, values } = &**vector else { return };
                seen.resize_with(group_count, || vec![0; values.len().div_ceil(64)]);
                for (row, id) in pairs() {
                    let code = codes[row as usize] as usize;
                    seen[id][code / 64] |= 1 << (code % 64);
                }
            }
            Self::DistinctNumbers { vector, seen, hasher, counts } => {
                let (bits, nulls): (&dyn Fn(usize) -> u64, _) = match &**vector {
                    ColumnVector::Scaled { values, nulls, .. } => (&|row| values[row].cast_unsigned(), nulls),
                    ColumnVector::Floats { values, nulls } => (&|row| values[row].to_bits(), nulls),
                    ColumnVector::Codes { .. } => return,
                };
                counts.resize(group_count, 0);
                for (row, id) in pairs().filter(|(row, _)| !nulls.contains(*row)) {
                    let entry = (id as u32, bits(row as usize));
                    let hash = hasher.hash_one(entry);
                    if seen.find(hash, |known| *known == entry).is_none() {
                        seen.insert_unique(hash, entry, |known| hasher.hash_one(known));
                        counts[id] += 1;
                    }
                }
            }
        }
    }

    /// The result of each group, in canonical form.
    fn finish(self, group_count: usize) -> Vec<Value> {
        let integer = |n: u64| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
        match self {
            Self::Count(mut counts) | Self::DistinctNumbers { mut counts, .. } => {
                counts.resize(group_count, 0);
                counts.into_iter().map(integer).collect()
            }
            Self::Scaled { vector, kind, function, mut results, mut counts } => {
                let ColumnVector::Scaled { scale, .. } = &*vector else { return Vec::new() };
                results.resize(group_count, 0);
                counts.resize(group_count, 0);
                let result =
                    |(result, count): (i128, u64)| scaled_result(kind, function, result, *scale, count);
                results.into_iter().zip(counts).map(result).collect()
            }
            Self::Floats { function, mut sums, mut extremes, mut counts, .. } => {
                sums.resize(group_count, FloatSum::default());
                extremes.resize(group_count, 0.0);
                counts.resize(group_count, 0);
                let result = |((sum, extreme), count): ((FloatSum, f64), u64)| match function {
                    _ if count == 0 => Value::Null,
                    AggregateFunction::Sum => Value::Real(sum.value()),
                    AggregateFunction::Avg => Value::Real(sum.value() / count as f64 + 0.0),
                    AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Distinct => {
                        Value::Real(extreme)
                    }
                };
                sums.into_iter().zip(extremes).zip(counts).map(result).collect()
            }
            Self::Ranked { vector, mut best, .. } => {
                best.resize(group_count, None);
                let ColumnVector::Codes { values, .. } = &*vector else { return Vec::new() };
                let value =
                    |code: Option<u32>| code.map_or(Value::Null, |code| values[code as usize].clone());
                best.into_iter().map(value).collect()
            }
            Self::Distinct { vector, mut seen } => {
                let ColumnVector::Codes { values, .. } = &*vector else { return Vec::new() };
                seen.resize_with(group_count, || vec![0; values.len().div_ceil(64)]);
                let null = values.iter().position(|value| *value == Value::Null);
                let count = |mut bits: Vec<u64>| {
                    // Rows without a value do not take part.
                    if let Some(null) = null {
                        bits[null / 64] &= !(1 << (null % 64));
                    }
                    integer(bits.iter().map(|bits| u64::from(bits.count_ones())).sum())
                };
                seen.into_iter().map(count).collect()
            }
        }
    }
}

fn compare(kind: DataType, a: &Value, b: &Value) -> Ordering {
    order::compare(kind, a.as_value_ref(), b.as_value_ref())
}

fn scaled_result(kind: DataType, function: AggregateFunction, result: i128, scale: u32, count: u64) -> Value {
    if count == 0 {
        return Value::Null;
    }
    if kind != DataType::Decimal {
        return match function {
            AggregateFunction::Avg => Value::Real(result as f64 / count as f64),
            _ => i64::try_from(result).map_or_else(|_| Value::Text(result.to_string()), Value::Integer),
        };
    }
    let mut sum = DecimalSum::default();
    sum.add_scaled(result, scale);
    Value::Text(match function {
        AggregateFunction::Avg => sum.average(count),
        _ => sum.to_text(),
    })
}
