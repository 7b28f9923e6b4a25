//! Groups rows by a hash of their values, and computes the measures of each group.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::{Accumulator, MeasureError, Partial};
use crate::data_type::DataType;
use crate::source::{Aggregate, GroupRow, Groups, Measure, SourceError};
use crate::value::{Value, ValueRef};

/// The groups and the values that `distinct` remembers may take so much memory.
const BYTES_MAX: usize = 256 << 20;

/// The groups of an aggregate so far.
pub struct GroupTable<'a> {
    question: &'a Aggregate<'a>,
    /// The type of the column of each group, and of the values of each measure.
    group_kinds: Vec<DataType>,
    measure_kinds: Vec<DataType>,
    /// The type of the column of each measure: of the keys, for a measure behind a link.
    key_kinds: Vec<DataType>,
    index: HashTable<u32>,
    hasher: RandomState,
    /// The keys of all groups, one after the other, and where each ends.
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    values: Vec<Value>,
    /// The measures of the first group, then of the second, and so on.
    accumulators: Vec<Accumulator>,
    key: Vec<u8>,
    bytes: usize,
}

impl<'a> GroupTable<'a> {
    /// `kind` returns the type of a column.
    pub fn new(question: &'a Aggregate<'a>, kind: impl Fn(usize) -> DataType) -> Self {
        let measure_kind = |measure: &Measure<'_>| match measure {
            Measure::Count => DataType::Integer,
            Measure::Of { column, .. } => kind(*column),
            Measure::Linked { values, .. } => values.kind,
        };
        let key_kind = |measure: &Measure<'_>| measure.column().map_or(DataType::Integer, &kind);
        Self {
            question,
            group_kinds: question.groups.iter().map(|group| kind(group.column)).collect(),
            measure_kinds: question.measures.iter().map(measure_kind).collect(),
            key_kinds: question.measures.iter().map(key_kind).collect(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            values: Vec::new(),
            accumulators: Vec::new(),
            key: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a row. `value` returns its value in a column of the shape.
    pub fn push_row<'v>(&mut self, value: impl Fn(usize) -> ValueRef<'v>) -> Result<(), GroupError> {
        let question = self.question;
        let group = self.find_group(|at| value(question.groups[at].column))?;
        let width = self.measure_kinds.len();
        let accumulators = &mut self.accumulators[group * width..(group + 1) * width];
        let measures = question.measures.iter().zip(&self.key_kinds);
        for (accumulator, (measure, key_kind)) in accumulators.iter_mut().zip(measures) {
            let (measured, column) = match measure {
                Measure::Count => {
                    accumulator.count(1);
                    continue;
                }
                Measure::Of { column, .. } => (value(*column), *column),
                Measure::Linked { column, values, .. } => (values.get(*key_kind, value(*column)), *column),
            };
            let pushed =
                accumulator.push(measured).map_err(|error| GroupError::Unmeasurable { column, error })?;
            self.bytes += pushed;
        }
        self.check_bytes()
    }

    /// Adds rows that the source has counted and measured: all rows of a group, or a part of them. `group_value` returns a value
    /// that all of them have for a field to group by, `measured` what is known for a measure other than a count, both by index.
    pub fn push_part<'v>(
        &mut self,
        rows: u64,
        group_value: impl Fn(usize) -> ValueRef<'v>,
        measured: impl Fn(usize) -> Partial<'v>,
    ) -> Result<(), GroupError> {
        let question = self.question;
        let group = self.find_group(group_value)?;
        let width = self.measure_kinds.len();
        let accumulators = &mut self.accumulators[group * width..(group + 1) * width];
        for (at, (accumulator, measure)) in accumulators.iter_mut().zip(&question.measures).enumerate() {
            let Some(column) = measure.column() else {
                accumulator.count(rows);
                continue;
            };
            let partial = match (measured(at), measure) {
                (Partial::Same(key), Measure::Linked { values, .. }) => {
                    Partial::Same(values.get(self.key_kinds[at], key))
                }
                (partial, _) => partial,
            };
            let pushed = accumulator.push_part(rows, partial);
            self.bytes += pushed.map_err(|error| GroupError::Unmeasurable { column, error })?;
        }
        self.check_bytes()
    }

    fn check_bytes(&self) -> Result<(), GroupError> {
        match self.bytes > BYTES_MAX {
            true => Err(GroupError::Source(self.question.too_many_groups())),
            false => Ok(()),
        }
    }

    /// The group of a row; `value` returns its values by the index of the field to group by.
    fn find_group<'v>(&mut self, value: impl Fn(usize) -> ValueRef<'v>) -> Result<usize, GroupError> {
        self.key.clear();
        for (at, (group, kind)) in self.question.groups.iter().zip(&self.group_kinds).enumerate() {
            group.write_key(*kind, value(at), &mut self.key);
        }
        let hash = self.hasher.hash_one(&*self.key);
        let (keys, ends, key) = (&self.keys, &self.key_ends, &self.key);
        let found = self.index.find(hash, |group| stored_key(keys, ends, *group) == &**key);
        match found {
            Some(group) => Ok(*group as usize),
            None => self.add_group(hash, &value),
        }
    }

    fn add_group<'v>(
        &mut self,
        hash: u64,
        value: &impl Fn(usize) -> ValueRef<'v>,
    ) -> Result<usize, GroupError> {
        let group = self.key_ends.len();
        if group >= self.question.groups_max {
            return Err(GroupError::Source(self.question.too_many_groups()));
        }
        for (at, (group, kind)) in self.question.groups.iter().zip(&self.group_kinds).enumerate() {
            self.values.push(group.group_value(*kind, value(at)));
        }
        let measures = self.question.measures.iter().zip(&self.measure_kinds);
        self.accumulators.extend(measures.map(|(measure, kind)| Accumulator::new(*measure, *kind)));
        self.bytes += self.key.len() * 2 + GROUP_OVERHEAD_BYTES;
        self.keys.extend_from_slice(&self.key);
        self.key_ends.push(self.keys.len());
        let (keys, ends, hasher) = (&self.keys, &self.key_ends, &self.hasher);
        self.index.insert_unique(hash, group as u32, |group| hasher.hash_one(stored_key(keys, ends, *group)));
        Ok(group)
    }

    /// Adds rows of which only the number is known, to a question without groups.
    pub fn count_rows(&mut self, rows: u64) {
        self.add_only_group();
        self.accumulators.iter_mut().for_each(|accumulator| {
            accumulator.count(rows);
        });
    }

    /// Without fields to group by there is one group, even without rows.
    fn add_only_group(&mut self) {
        if self.question.groups.is_empty() && self.key_ends.is_empty() {
            let measures = self.question.measures.iter().zip(&self.measure_kinds);
            self.accumulators.extend(measures.map(|(measure, kind)| Accumulator::new(*measure, *kind)));
            self.key_ends.push(0);
        }
    }

    pub fn finish(mut self) -> Groups {
        self.add_only_group();
        let (group_width, width) = (self.group_kinds.len(), self.measure_kinds.len());
        let mut values = self.values.into_iter();
        let mut accumulators = self.accumulators.into_iter();
        let row = |_| {
            let group = values.by_ref().take(group_width);
            GroupRow(group.chain(accumulators.by_ref().take(width).map(Accumulator::finish)).collect())
        };
        Groups { rows: (0..self.key_ends.len()).map(row).collect() }
    }
}

/// What a group takes besides its key.
const GROUP_OVERHEAD_BYTES: usize = 200;

fn stored_key<'k>(keys: &'k [u8], ends: &[usize], group: u32) -> &'k [u8] {
    let group = group as usize;
    let start = group.checked_sub(1).map_or(0, |before| ends[before]);
    &keys[start..ends[group]]
}

/// Why rows cannot be grouped.
#[derive(Debug)]
pub enum GroupError {
    /// A value of this column of the shape cannot be measured.
    Unmeasurable {
        column: usize,
        error: MeasureError,
    },
    Source(SourceError),
}

impl From<SourceError> for GroupError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl GroupError {
    /// The error of a call. `name` returns the name of a column.
    pub fn into_source_error<'n>(self, name: impl Fn(usize) -> &'n str) -> SourceError {
        match self {
            Self::Source(error) => error,
            Self::Unmeasurable { column, error } => {
                // The column allows such values, so nothing has changed: the question leaves them in.
                let name = name(column);
                let problem = match error {
                    MeasureError::NotANumber => "a value that is not a number, so it cannot be added up",
                    MeasureError::OtherType => {
                        "a value of another type, so it has no least and no greatest value"
                    }
                };
                let reason = format!(
                    "column `{name}` has {problem}; leave such rows out with a range of the column, by its `_min` or \
                     `_max`"
                );
                SourceError::InvalidArgument { parameter: None, reason }
            }
        }
    }
}
