//! Which rows a read returns: filters, sort order, and where a page starts.
//!
//! What a filter means is defined here and in [`crate::order`], once for every source. A source may evaluate a filter in
//! its own language, as long as the same rows pass.

use crate::bind::BoundValue;
use crate::data_type::DataType;
use crate::order;
use crate::value::{Value, ValueRef};

use super::CancelFlag;
use super::keys::{KeySet, LinkedValues};

/// The kind of read that a caller is about to make.
#[derive(Debug)]
pub enum ReadRequest<'a> {
    Get,
    List(&'a Query<'a>),
}

/// Which rows to list, in which order. The key breaks ties of the sort. Rows without a value in a sorted column come
/// last in both directions.
#[derive(Debug, Clone, Default)]
pub struct Query<'a> {
    /// A row must pass all of them.
    pub filters: Vec<Filter<'a>>,
    /// The first one decides; each further one orders the rows that are equal so far.
    pub sort: Vec<Sort>,
    /// For each of `sort`, the values behind a link by which rows are ordered instead of the column's own, which are the
    /// keys of the linked rows. May be shorter than `sort`.
    pub sort_links: Vec<Option<LinkedValues<'a>>>,
    /// Start after this row.
    pub after: Option<&'a CursorPosition>,
    /// No more rows than this are needed.
    pub rows_max: usize,
    /// Set when the caller has gone away; the work should stop.
    pub cancelled: Option<&'a CancelFlag>,
    /// Counts the scanned rows, or what [`Reader::progress_unit`](super::Reader::progress_unit) says, for progress notifications.
    pub progress: Option<&'a std::sync::atomic::AtomicU64>,
}

impl<'a> Query<'a> {
    /// The sort orders, each with the values behind its link.
    pub fn sorts(&self) -> Vec<LinkedSort<'a>> {
        let links = self.sort_links.iter().copied().chain(std::iter::repeat(None));
        self.sort.iter().zip(links).map(|(sort, values)| LinkedSort { sort: *sort, values }).collect()
    }

    /// Whether rows are ordered by values behind a link, which no index of the source has.
    pub fn is_sorted_by_link(&self) -> bool {
        self.sort_links.iter().any(Option::is_some)
    }
}

/// A condition on one column.
#[derive(Debug, Clone, Copy)]
pub struct Filter<'a> {
    /// The index in the shape's columns.
    pub column: usize,
    pub comparison: Comparison,
    /// The operand. `Null` if the comparison has none.
    pub value: ValueRef<'a>,
    /// Further operands of [`Comparison::Equals`] and [`Comparison::NotEquals`]: one of several, none of several.
    pub more: &'a [BoundValue<'a>],
    /// The operand of [`Comparison::OneOfKeys`] and [`Comparison::NoneOfKeys`].
    pub keys: Option<&'a KeySet>,
    /// Whether a row that passes the next filter instead passes, too. Filters that are joined this way follow each other;
    /// the last of them does not have it.
    pub or_next: bool,
}

/// How a filter compares a row's value with its operand.
///
/// A date as the operand of a timestamp column stands for the whole day: in UTC for timestamps with a time zone, as
/// written for those without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    Equals,
    /// Every row that does not pass [`Comparison::Equals`] passes, including those without a value.
    NotEquals,
    AtLeast,
    AtMost,
    /// The operand is in lower case, by [`crate::order::to_lowercase`]; the row's text is compared in lower case.
    Contains,
    /// As for [`Comparison::Contains`].
    StartsWith,
    /// The row has no value. The operand is not used.
    IsNull,
    IsNotNull,
    /// The value is in [`Filter::keys`]: the row has a link to a row that passes other filters.
    OneOfKeys,
    /// Every row that does not pass [`Comparison::OneOfKeys`] passes, including those without a value.
    NoneOfKeys,
}

impl<'a> Filter<'a> {
    /// A filter with one operand.
    pub fn new(column: usize, comparison: Comparison, value: ValueRef<'a>) -> Self {
        Self { column, comparison, value, more: &[], keys: None, or_next: false }
    }

    /// A filter that passes rows with a value in a set.
    pub fn one_of(column: usize, keys: &'a KeySet) -> Self {
        Self { keys: Some(keys), ..Self::new(column, Comparison::OneOfKeys, ValueRef::Null) }
    }

    /// A filter that passes rows without a value in a set.
    pub fn none_of(column: usize, keys: &'a KeySet) -> Self {
        Self { comparison: Comparison::NoneOfKeys, ..Self::one_of(column, keys) }
    }

    /// All operands.
    pub fn values(&self) -> impl Iterator<Item = ValueRef<'a>> + use<'a> {
        std::iter::once(self.value).chain(self.more.iter().map(BoundValue::as_value_ref))
    }

    /// Whether a row's value passes.
    pub fn matches(&self, kind: DataType, value: ValueRef<'_>) -> bool {
        self.matches_with(kind, value, |comparison, operand| {
            order::matches_filter(kind, value, comparison, operand)
        })
    }

    /// Whether a row's value passes, where `compare` decides about one operand of `Equals`, `AtLeast` and `AtMost`.
    #[inline]
    pub fn matches_with(
        &self,
        kind: DataType,
        value: ValueRef<'_>,
        compare: impl Fn(Comparison, ValueRef<'_>) -> bool,
    ) -> bool {
        let equals = || {
            compare(Comparison::Equals, self.value)
                || self.more.iter().any(|operand| compare(Comparison::Equals, operand.as_value_ref()))
        };
        match self.comparison {
            Comparison::Equals => equals(),
            Comparison::NotEquals => !equals(),
            Comparison::AtLeast | Comparison::AtMost => compare(self.comparison, self.value),
            Comparison::Contains | Comparison::StartsWith => {
                order::matches_text(self.comparison, value, self.value)
            }
            Comparison::IsNull => value == ValueRef::Null,
            Comparison::IsNotNull => value != ValueRef::Null,
            Comparison::OneOfKeys => self.keys.is_some_and(|keys| keys.contains(kind, value)),
            Comparison::NoneOfKeys => !self.keys.is_some_and(|keys| keys.contains(kind, value)),
        }
    }
}

/// Whether a row passes filters, where `test` says whether it passes one of them, by its index. Of filters that are joined by
/// [`Filter::or_next`] one is enough.
#[inline]
pub fn all_pass<F, E>(
    filters: &[F],
    or_next: impl Fn(&F) -> bool,
    mut test: impl FnMut(usize, &F) -> Result<bool, E>,
) -> Result<bool, E> {
    let mut has_passed = false;
    for (index, filter) in filters.iter().enumerate() {
        has_passed = has_passed || test(index, filter)?;
        if or_next(filter) {
            continue;
        }
        if !has_passed {
            return Ok(false);
        }
        has_passed = false;
    }
    Ok(true)
}

/// The filters that every row must pass by itself: those that are not one of several alternatives.
pub fn required_filters<'f>(filters: &[Filter<'f>]) -> Vec<Filter<'f>> {
    let mut is_joined = false;
    let mut required = Vec::with_capacity(filters.len());
    for filter in filters {
        if !is_joined && !filter.or_next {
            required.push(*filter);
        }
        is_joined = filter.or_next;
    }
    required
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sort {
    pub column: usize,
    pub descending: bool,
}

/// A sort order by the values of a column, or by the values behind a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkedSort<'a> {
    pub sort: Sort,
    pub values: Option<LinkedValues<'a>>,
}

impl From<Sort> for LinkedSort<'_> {
    fn from(sort: Sort) -> Self {
        Self { sort, values: None }
    }
}

impl<'a> LinkedSort<'a> {
    /// The value that orders a row. `kind` is the type of the sorted column, `value` its value in the row.
    pub fn value<'v>(&self, kind: DataType, value: ValueRef<'v>) -> ValueRef<'v>
    where
        'a: 'v,
    {
        self.values.map_or(value, |values| values.get(kind, value))
    }

    /// The type of the values that order rows. `kind` is the type of the sorted column.
    pub fn kind(&self, kind: DataType) -> DataType {
        self.values.map_or(kind, |values| values.kind)
    }
}

/// Where a page ended: the last row's value in each sorted column, and its key. In a table without a key, its
/// [`RowPosition`](super::RowPosition) as two integers; if the table has changed since, the cursor is a
/// [`SourceError::StaleCursor`](super::SourceError::StaleCursor).
#[derive(Debug, Clone, PartialEq)]
pub struct CursorPosition {
    pub sort_values: Vec<Value>,
    pub key: Vec<Value>,
}
