//! What groups and measures are, for every source alike.
//!
//! - [`canonical`] is the form of a value by which rows are grouped and different values are counted: `1.50` in one source
//!   and the number 1.5 in another are the same decimal.
//! - [`Accumulator`] computes one measure of one group, value by value.
//! - [`select_groups`] applies `having`, the order and the limit to the groups that a source returns.
//!
//! A source may compute in another way, as long as the result is the same.

mod canonical;
mod decimal_sum;
mod float_sum;
mod group_table;

use std::cmp::Ordering;
use std::collections::HashSet;

use crate::data_type::DataType;
use crate::infer::SAFE_INTEGER_MAX;
use crate::order;
use crate::source::{AggregateFunction, AggregateSort, GroupRow, Groups, Having, Measure, SortTarget};
use crate::value::{Value, ValueRef};

pub(crate) use canonical::utc_text;
pub use canonical::{Canonical, canonical, group_value};
pub use decimal_sum::{DecimalSum, scaled_decimal};
pub use float_sum::FloatSum;
pub use group_table::{GroupError, GroupTable};

/// A call cannot group by more fields than this.
pub const GROUP_FIELDS_MAX: usize = 3;
pub const MEASURES_MAX: usize = 8;

/// Why a value cannot be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasureError {
    /// It is to be added up and is not a number.
    NotANumber,
    /// It is to be compared with others and is not of their type.
    OtherType,
}

/// What a source has computed over rows of one group.
#[derive(Debug, Clone, Copy)]
pub enum Partial<'v> {
    /// All of the rows have this value: the measured one, or the key of a linked row.
    Same(ValueRef<'v>),
    /// The exact sum of so many values, which are integers or decimals.
    Sum { sum: &'v str, values: u64 },
    /// The least or the greatest value.
    Extreme(ValueRef<'v>),
    /// The number of different values. The rows are all of their group.
    Distinct(u64),
}

/// Whether a column of this type can be added up.
pub fn is_summable(kind: DataType) -> bool {
    matches!(kind, DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number)
}

/// One measure of one group.
#[derive(Debug, Clone)]
pub enum Accumulator {
    Count(u64),
    /// Sum or average of integers.
    Integers {
        function: AggregateFunction,
        sum: i128,
        count: u64,
    },
    Decimals {
        function: AggregateFunction,
        sum: DecimalSum,
        count: u64,
    },
    Floats {
        function: AggregateFunction,
        sum: FloatSum,
        count: u64,
    },
    /// The least or the greatest value so far, in its canonical form.
    Extreme {
        kind: DataType,
        wanted: Ordering,
        value: Value,
    },
    Distinct {
        kind: DataType,
        seen: HashSet<Box<[u8]>>,
    },
}

impl Accumulator {
    /// `kind` is the type of the values that are measured.
    pub fn new(measure: Measure<'_>, kind: DataType) -> Self {
        let Some(function) = measure.function() else { return Self::Count(0) };
        match function {
            AggregateFunction::Sum | AggregateFunction::Avg => match kind {
                DataType::Integer | DataType::Int64 => Self::Integers { function, sum: 0, count: 0 },
                DataType::Number => Self::Floats { function, sum: FloatSum::default(), count: 0 },
                DataType::Decimal
                | DataType::Text
                | DataType::Boolean
                | DataType::Date
                | DataType::Timestamp
                | DataType::LocalTimestamp
                | DataType::Json
                | DataType::Blob => Self::Decimals { function, sum: DecimalSum::default(), count: 0 },
            },
            AggregateFunction::Min => Self::Extreme { kind, wanted: Ordering::Less, value: Value::Null },
            AggregateFunction::Max => Self::Extreme { kind, wanted: Ordering::Greater, value: Value::Null },
            AggregateFunction::Distinct => Self::Distinct { kind, seen: HashSet::new() },
        }
    }

    /// Counts rows, if this is a count. Returns by how many bytes the accumulator has grown.
    #[inline]
    pub fn count(&mut self, rows: u64) -> usize {
        if let Self::Count(count) = self {
            *count += rows;
        }
        0
    }

    /// Adds the value of one row. Returns by how many bytes the accumulator has grown.
    #[inline]
    pub fn push(&mut self, value: ValueRef<'_>) -> Result<usize, MeasureError> {
        match self {
            _ if value == ValueRef::Null => {}
            Self::Count(count) => *count += 1,
            Self::Integers { sum, count, .. } => {
                let n = match value {
                    ValueRef::Integer(n) => n,
                    ValueRef::Text(text) => text.parse().map_err(|_| MeasureError::NotANumber)?,
                    ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => {
                        return Err(MeasureError::NotANumber);
                    }
                };
                *sum += i128::from(n);
                *count += 1;
            }
            Self::Decimals { sum, count, .. } => {
                let is_number = match value {
                    ValueRef::Integer(n) => {
                        sum.add_scaled(i128::from(n), 0);
                        true
                    }
                    // The shortest digits that mean this number are its value.
                    ValueRef::Real(n) => n.is_finite() && sum.add_text(&n.to_string()),
                    ValueRef::Text(text) => sum.add_text(text),
                    ValueRef::Null | ValueRef::Blob(_) => false,
                };
                if !is_number {
                    return Err(MeasureError::NotANumber);
                }
                *count += 1;
            }
            Self::Floats { sum, count, .. } => {
                let n = match value {
                    ValueRef::Integer(n) => n as f64,
                    ValueRef::Real(n) if n.is_finite() => n,
                    ValueRef::Text(text) => parse_number(text).ok_or(MeasureError::NotANumber)?,
                    ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => {
                        return Err(MeasureError::NotANumber);
                    }
                };
                sum.add(n);
                *count += 1;
            }
            Self::Extreme { kind, wanted, value: kept } => {
                if !order::is_in_order(*kind, value) {
                    return Err(MeasureError::OtherType);
                }
                let is_better =
                    *kept == Value::Null || order::compare(*kind, value, kept.as_value_ref()) == *wanted;
                if is_better {
                    *kept = canonical(*kind, value).into_value();
                }
            }
            Self::Distinct { kind, seen } => {
                let mut key = Vec::with_capacity(24);
                canonical(*kind, value).write_key(&mut key);
                if !seen.contains(&*key) {
                    let bytes = key.len() + SEEN_OVERHEAD_BYTES;
                    seen.insert(key.into_boxed_slice());
                    return Ok(bytes);
                }
            }
        }
        Ok(0)
    }

    /// Adds what a source has computed over so many rows. Returns by how many bytes the accumulator has grown.
    fn push_part(&mut self, rows: u64, partial: Partial<'_>) -> Result<usize, MeasureError> {
        match (self, partial) {
            (_, Partial::Same(ValueRef::Null)) => Ok(0),
            (this @ (Self::Extreme { .. } | Self::Distinct { .. }), Partial::Same(value))
            | (this, Partial::Extreme(value)) => this.push(value),
            (this, Partial::Same(value)) => (0..rows).try_fold(0, |bytes, _| Ok(bytes + this.push(value)?)),
            (_, Partial::Sum { values: 0, .. }) => Ok(0),
            (Self::Integers { sum, count, .. }, Partial::Sum { sum: part, values }) => {
                *sum += part.parse::<i128>().map_err(|_| MeasureError::NotANumber)?;
                *count += values;
                Ok(0)
            }
            (Self::Decimals { sum, count, .. }, Partial::Sum { sum: part, values }) => {
                *count += values;
                if sum.add_text(part) { Ok(0) } else { Err(MeasureError::NotANumber) }
            }
            (_, Partial::Sum { .. }) => Err(MeasureError::NotANumber),
            (this, Partial::Distinct(count)) => {
                *this = Self::Count(count);
                Ok(0)
            }
        }
    }

    /// The result, in its canonical form.
    pub fn finish(self) -> Value {
        match self {
            Self::Count(count) => Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
            Self::Integers { count: 0, .. }
            | Self::Decimals { count: 0, .. }
            | Self::Floats { count: 0, .. } => Value::Null,
            Self::Integers { function: AggregateFunction::Avg, sum, count } => {
                Value::Real(sum as f64 / count as f64)
            }
            Self::Integers { sum, .. } => {
                i64::try_from(sum).map_or_else(|_| Value::Text(sum.to_string()), Value::Integer)
            }
            Self::Decimals { function: AggregateFunction::Avg, sum, count } => {
                Value::Text(sum.average(count))
            }
            Self::Decimals { sum, .. } => Value::Text(sum.to_text()),
            Self::Floats { function: AggregateFunction::Avg, sum, count } => {
                Value::Real(sum.value() / count as f64 + 0.0)
            }
            Self::Floats { sum, .. } => Value::Real(sum.value()),
            Self::Extreme { value, .. } => value,
            Self::Distinct { seen, .. } => Value::Integer(seen.len() as i64),
        }
    }
}

/// A number as JSON writes it: not `inf`, `+1` or `.5`.
fn parse_number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit());
    text.parse().ok().filter(|n: &f64| is_number && n.is_finite())
}

/// What a set adds to each of its values.
const SEEN_OVERHEAD_BYTES: usize = 24;

/// The type of a measure's result. `kind` is the type of the values that are measured.
pub fn result_type(measure: Measure<'_>, kind: DataType) -> DataType {
    match measure.function() {
        None | Some(AggregateFunction::Distinct) => DataType::Integer,
        Some(AggregateFunction::Avg) => match kind {
            DataType::Integer | DataType::Int64 | DataType::Number => DataType::Number,
            other => other,
        },
        Some(AggregateFunction::Sum | AggregateFunction::Min | AggregateFunction::Max) => kind,
    }
}

/// Writes a group's value or a measure as JSON. `kind` is its type. An integer that not every JSON reader keeps, and every
/// decimal, is a string.
pub fn write_value(out: &mut Vec<u8>, kind: DataType, value: ValueRef<'_>) {
    match (kind, value) {
        (_, ValueRef::Null) => out.extend_from_slice(b"null"),
        (DataType::Boolean, ValueRef::Integer(n)) => {
            out.extend_from_slice(if n == 0 { b"false" } else { b"true" });
        }
        (DataType::Integer, ValueRef::Integer(n)) if n.unsigned_abs() <= SAFE_INTEGER_MAX.unsigned_abs() => {
            json::write::integer(out, n);
        }
        (_, ValueRef::Integer(n)) => json::write::string(out, &n.to_string()),
        (_, ValueRef::Real(n)) if n.is_finite() => json::write::number(out, n),
        (_, ValueRef::Real(n)) => json::write::string(out, &n.to_string()),
        (_, ValueRef::Text(text)) => json::write::string(out, text),
        (_, ValueRef::Blob(bytes)) => json::write::string(out, &format!("({} bytes)", bytes.len())),
    }
}

/// The groups of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectedGroups {
    pub rows: Vec<GroupRow>,
    /// How many groups pass `having`.
    pub total: usize,
}

/// How the groups of an answer are chosen.
#[derive(Debug, Default)]
pub struct Selection<'a> {
    pub having: Vec<Having<'a>>,
    /// The values of the groups break ties, in ascending order. Groups and measures without a value come last.
    pub sort: Vec<AggregateSort>,
    pub rows_max: usize,
}

/// Applies `having`, the order and the limit. `kinds` has the type of each value of a row.
pub fn select_groups(
    groups: Groups,
    selection: &Selection<'_>,
    group_count: usize,
    kinds: &[DataType],
) -> SelectedGroups {
    let mut rows = groups.rows;
    rows.retain(|GroupRow(values)| {
        selection.having.iter().all(|having| {
            let at = group_count + having.measure;
            order::matches_filter(kinds[at], values[at].as_value_ref(), having.comparison, having.value)
        })
    });
    let mut order: Vec<(usize, bool)> = selection
        .sort
        .iter()
        .map(|sort| match sort.by {
            SortTarget::Group(at) => (at, sort.descending),
            SortTarget::Measure(at) => (group_count + at, sort.descending),
        })
        .collect();
    order.extend((0..group_count).map(|at| (at, false)));
    let compare = |GroupRow(a): &GroupRow, GroupRow(b): &GroupRow| {
        let orders = order.iter().map(|(at, descending)| {
            compare_results(kinds[*at], a[*at].as_value_ref(), b[*at].as_value_ref(), *descending)
        });
        orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let total = rows.len();
    if selection.rows_max < total {
        if selection.rows_max > 0 {
            rows.select_nth_unstable_by(selection.rows_max - 1, compare);
        }
        rows.truncate(selection.rows_max);
    }
    rows.sort_by(compare);
    SelectedGroups { rows, total }
}

fn compare_results(kind: DataType, a: ValueRef<'_>, b: ValueRef<'_>, descending: bool) -> Ordering {
    match (a, b) {
        (ValueRef::Null, ValueRef::Null) => Ordering::Equal,
        (ValueRef::Null, _) => Ordering::Greater,
        (_, ValueRef::Null) => Ordering::Less,
        (a, b) => {
            let order = order::compare(kind, a, b);
            if descending { order.reverse() } else { order }
        }
    }
}
