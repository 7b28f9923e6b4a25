//! Questions about many rows at once: groups, and measures over the rows of each group.
//!
//! A source reads the rows that pass the filters, groups them and computes the measures ([`Groups`]); one pass computes
//! all of them. What follows is the same for every source and is done in [`crate::aggregate`]: `having`, the order of the
//! groups, and the limit.

use super::keys::{KeyMap, LinkedValues};
use super::query::Filter;
use super::{CancelFlag, SourceError};
use crate::aggregate::{Canonical, group_value};
use crate::data_type::DataType;
use crate::time_zone::TimeZone;
use crate::value::{Value, ValueRef};

/// A table may have more groups than this, but a call cannot ask for them: the error says to add filters.
pub const GROUPS_MAX: usize = 100_000;

/// A question about the rows of a table.
#[derive(Debug, Clone, Default)]
pub struct Aggregate<'a> {
    /// A row must pass all of them.
    pub filters: Vec<Filter<'a>>,
    /// Without any, all rows are one group, even if there are none.
    pub groups: Vec<GroupColumn<'a>>,
    /// At least one.
    pub measures: Vec<Measure<'a>>,
    /// More groups than this are a [`SourceError::TooManyGroups`].
    pub groups_max: usize,
    /// Set when the caller has gone away; the work should stop.
    pub cancelled: Option<&'a CancelFlag>,
    /// Counts the scanned rows, for progress notifications.
    pub progress: Option<&'a std::sync::atomic::AtomicU64>,
}

/// A column whose values make groups; rows without a value are a group too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupColumn<'a> {
    /// The index in the shape's columns.
    pub column: usize,
    /// For a column of dates or timestamps: what its values are rounded down to.
    pub unit: Option<DateUnit>,
    /// Where days begin, for timestamps with a time zone. `None`: in UTC.
    pub time_zone: Option<TimeZone>,
    /// Rows are grouped by what the map has for the column's value, not by the value.
    pub map: Option<&'a KeyMap>,
}

impl GroupColumn<'_> {
    /// Groups by the values of a column.
    pub fn new(column: usize) -> Self {
        Self { column, unit: None, time_zone: None, map: None }
    }

    /// Writes bytes that are equal for rows of the same group.
    pub fn write_key(&self, kind: DataType, value: ValueRef<'_>, out: &mut Vec<u8>) {
        match self.map {
            None => group_value(kind, self.unit, self.time_zone, value).write_key(out),
            Some(map) => Canonical::from(map.get(kind, value)).write_key(out),
        }
    }

    /// The value of the group that a row belongs to.
    pub fn group_value(&self, kind: DataType, value: ValueRef<'_>) -> Value {
        match self.map {
            None => group_value(kind, self.unit, self.time_zone, value).into_value(),
            Some(map) => map.get(kind, value).clone(),
        }
    }
}

/// A part of the calendar. Weeks are those of ISO 8601. Timestamps with a time zone are counted in UTC, or in the zone
/// that the manifest declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DateUnit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
}

impl DateUnit {
    pub const ALL: [Self; 5] = [Self::Year, Self::Quarter, Self::Month, Self::Week, Self::Day];

    /// The suffix of an argument: `ordered_on_month`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Year => "year",
            Self::Quarter => "quarter",
            Self::Month => "month",
            Self::Week => "week",
            Self::Day => "day",
        }
    }
}

/// What is computed over the rows of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure<'a> {
    /// The number of rows.
    Count,
    /// A function of the values of a column. Rows without a value do not take part; without any value the result is
    /// NULL, and 0 for [`AggregateFunction::Distinct`].
    Of { function: AggregateFunction, column: usize },
    /// The same of the values behind a link: `column` has the keys of the linked rows. A row without a linked row has no
    /// value.
    Linked { function: AggregateFunction, column: usize, values: LinkedValues<'a> },
}

impl Measure<'_> {
    /// The column of the own table that the measure is computed from.
    pub fn column(&self) -> Option<usize> {
        match self {
            Self::Count => None,
            Self::Of { column, .. } | Self::Linked { column, .. } => Some(*column),
        }
    }

    pub fn function(&self) -> Option<AggregateFunction> {
        match self {
            Self::Count => None,
            Self::Of { function, .. } | Self::Linked { function, .. } => Some(*function),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateFunction {
    /// Exact for integers and decimals; correctly rounded for floating-point numbers, in whatever order they come.
    Sum,
    /// The exact sum divided by the number of values: for decimals rounded half to even, to six digits more than the sum
    /// has; for others a floating-point number.
    Avg,
    Min,
    Max,
    /// The number of different values.
    Distinct,
}

impl AggregateFunction {
    pub const ALL: [Self; 5] = [Self::Sum, Self::Avg, Self::Min, Self::Max, Self::Distinct];

    /// The prefix of an argument: `sum_total`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Distinct => "distinct",
        }
    }
}

/// All groups of a question, in no particular order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Groups {
    pub rows: Vec<GroupRow>,
}

/// One group: its values in the order of [`Aggregate::groups`], then the measures in the order of
/// [`Aggregate::measures`]. All are in their canonical form ([`crate::aggregate`]).
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRow(pub Vec<Value>);

/// A condition on a measure.
#[derive(Debug, Clone, Copy)]
pub struct Having<'a> {
    /// The index in [`Aggregate::measures`].
    pub measure: usize,
    /// `AtLeast` or `AtMost`.
    pub comparison: super::Comparison,
    pub value: ValueRef<'a>,
}

/// By what groups are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateSort {
    pub by: SortTarget,
    pub descending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortTarget {
    /// The index in [`Aggregate::groups`].
    Group(usize),
    /// The index in [`Aggregate::measures`].
    Measure(usize),
}

impl Aggregate<'_> {
    /// The error of a question with too many groups.
    pub fn too_many_groups(&self) -> SourceError {
        SourceError::TooManyGroups { groups_max: self.groups_max }
    }
}
