//! Filters: an argument named after a field, or after a field with a suffix that says how to compare.

use json::{Node, NodeKind as Json, exact_f64};
use spile_core::calendar::Temporal;
use spile_core::{ArgumentErrorKind, ToolError};

use super::links::{self, LinkPath, Scope};
use super::{BoundValue, bind_comparable, bind_typed, invalid_argument};
use crate::TimeZone;
use crate::aggregate;
use crate::contract::Collection;
use crate::data_type::DataType;
use crate::field::Field;
use crate::humanize::{join_truncated, pluralize};
use crate::nearest::nearest;
use crate::order;
use crate::source::{Comparison, Filter};
use crate::value::ValueRef;

/// The maximum number of values of one filter.
pub const FILTER_VALUES_MAX: usize = 100;
/// An error names no more values or fields than this.
pub(super) const SHOWN_MAX: usize = 12;

/// What is appended to a field's name for another comparison than equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSuffix {
    Min,
    Max,
    Not,
    Contains,
    Starts,
    Null,
}

impl FilterSuffix {
    pub const ALL: [Self; 6] = [Self::Min, Self::Max, Self::Not, Self::Contains, Self::Starts, Self::Null];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Min => "_min",
            Self::Max => "_max",
            Self::Not => "_not",
            Self::Contains => "_contains",
            Self::Starts => "_starts",
            Self::Null => "_null",
        }
    }

    /// Whether the suffix makes sense for a field.
    pub fn applies_to(self, field: &Field) -> bool {
        match self {
            Self::Min | Self::Max => field.data_type.has_range(),
            Self::Contains | Self::Starts => field.data_type == DataType::Text,
            Self::Not | Self::Null => true,
        }
    }
}

/// The bound filters of a call. A row must pass all of them.
#[derive(Debug, Default, PartialEq)]
pub struct BoundFilters<'a> {
    own: Vec<BoundFilter<'a>>,
    linked: Vec<LinkedFilter<'a>>,
}

/// A filter that owns its operands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BoundFilter<'a> {
    pub(crate) column: usize,
    pub(crate) comparison: Comparison,
    pub(crate) value: BoundValue<'a>,
    pub(crate) more: Vec<BoundValue<'a>>,
}

impl BoundFilter<'_> {
    pub(crate) fn as_filter(&self) -> Filter<'_> {
        let Self { column, comparison, value, more } = self;
        Filter { more, ..Filter::new(*column, *comparison, value.as_value_ref()) }
    }

    /// Equal for filters that the same rows pass.
    pub(crate) fn write_bytes(&self, field: &mut dyn FnMut(u8, &[u8])) {
        field(b'c', &(self.column as u64).to_be_bytes());
        let tag = match self.comparison {
            Comparison::Equals => b'=',
            Comparison::NotEquals => b'!',
            Comparison::AtLeast => b'>',
            Comparison::AtMost => b'<',
            Comparison::Contains => b'~',
            Comparison::StartsWith => b'^',
            Comparison::IsNull => b'n',
            Comparison::IsNotNull => b'v',
            Comparison::OneOfKeys => b'k',
            Comparison::NoneOfKeys => b'm',
        };
        field(tag, &[]);
        for value in std::iter::once(&self.value).chain(&self.more) {
            match value {
                BoundValue::Null => field(b'0', &[]),
                BoundValue::Text(text) => field(b't', text.as_bytes()),
                BoundValue::Integer(number) => field(b'i', &number.to_be_bytes()),
                BoundValue::Real(number) => field(b'r', &number.to_bits().to_be_bytes()),
                BoundValue::Blob(bytes) => field(b'b', bytes),
            }
        }
    }
}

impl BoundFilter<'_> {
    /// A date stands for a day in this zone, where the column's timestamps have a time zone.
    pub(crate) fn count_days_in(&mut self, zone: TimeZone, kind: DataType) {
        if kind != DataType::Timestamp {
            return;
        }
        for value in std::iter::once(&mut self.value).chain(&mut self.more) {
            if let BoundValue::Text(text) = value
                && let Some(range) = day_range(zone, text)
            {
                *value = BoundValue::Text(range.into());
            }
        }
    }
}

/// The first and the last moment of a day, if the text is a date.
fn day_range(zone: TimeZone, text: &str) -> Option<String> {
    let Some(Temporal::Date(day)) = Temporal::parse(text.as_bytes()) else { return None };
    let (start, end) = zone.day_bounds(day)?;
    Some(format!("{}/{}", aggregate::utc_text(start, 0)?, aggregate::utc_text(end - 1, 999_999_999)?))
}

/// A filter on a field of the row that a row is linked to. A row without such a row has no value in the field. The last link may
/// lead to many rows where the filter asks whether there are any.
#[derive(Debug, PartialEq)]
pub struct LinkedFilter<'a> {
    /// The links to follow, by index: of the collection, then of the one that it leads to. At least one.
    pub path: Vec<usize>,
    filter: BoundFilter<'a>,
}

impl LinkedFilter<'_> {
    /// The filter on the rows of the last collection.
    pub fn filter(&self) -> Filter<'_> {
        self.filter.as_filter()
    }
}

impl<'a> BoundFilters<'a> {
    /// Binds an argument, if it is a filter on one of these fields or on a field behind a link.
    pub(super) fn bind(
        &mut self,
        scope: Scope<'_>,
        fields: &[usize],
        name: &str,
        node: Node<'a>,
    ) -> Result<(), Box<ToolError>> {
        let mut path = match name.contains('.') {
            false => LinkPath { path: Vec::new(), scope, rest: name },
            true => links::follow(scope, name, name)?,
        };
        let (collection, rest) = (path.scope.collection(), path.rest);
        let fields = match links::last_link(scope, &path.path) {
            Some(link) => &link.filters,
            None => fields,
        };
        let named = |wanted: &str| fields.iter().copied().find(|at| collection.fields[*at].name == wanted);
        let suffixed = || {
            let mut suffixes = FilterSuffix::ALL.into_iter();
            suffixes.find_map(|suffix| Some((named(rest.strip_suffix(suffix.as_str())?)?, Some(suffix))))
        };
        let Some((column, suffix)) = named(rest).map(|column| (column, None)).or_else(suffixed) else {
            let link = rest.strip_suffix(FilterSuffix::Null.as_str());
            let column = link.map(|link| links::bind_presence(&mut path, name, link)).transpose()?.flatten();
            let column = column.ok_or_else(|| unknown_filter(collection, fields, name, rest))?;
            // A row has no linked row where it has no value in that row's field.
            let filter = bind_null(column, name, node)?;
            self.linked.push(LinkedFilter { path: path.path, filter });
            return Ok(());
        };
        let mut filter = bind_filter(&collection.fields[column], column, suffix, name, node)?;
        if let Some(zone) = collection.time_zone {
            filter.count_days_in(zone, collection.fields[column].data_type);
        }
        match path.path.is_empty() {
            true => self.own.push(filter),
            false => self.linked.push(LinkedFilter { path: path.path, filter }),
        }
        Ok(())
    }

    /// The filters on the rows themselves.
    pub fn filters(&self) -> Vec<Filter<'_>> {
        let mut filters = Vec::with_capacity(self.own.len());
        filters.extend(self.own.iter().map(BoundFilter::as_filter));
        filters
    }

    /// The filters that follow links.
    pub fn linked(&self) -> &[LinkedFilter<'a>] {
        &self.linked
    }

    /// Equal for filters that the same rows pass.
    pub(super) fn write_bytes(&self, field: &mut dyn FnMut(u8, &[u8])) {
        let own = self.own.iter().map(|filter| (&[][..], filter));
        for (path, bound) in own.chain(self.linked.iter().map(|linked| (&linked.path[..], &linked.filter))) {
            path.iter().for_each(|link| field(b'l', &(*link as u64).to_be_bytes()));
            bound.write_bytes(field);
        }
    }
}

fn bind_filter<'a>(
    field: &Field,
    column: usize,
    suffix: Option<FilterSuffix>,
    name: &str,
    node: Node<'a>,
) -> Result<BoundFilter<'a>, Box<ToolError>> {
    let out_of_range = |message: String| invalid_argument(name, ArgumentErrorKind::OutOfRange, message);
    if let Some(suffix) = suffix.filter(|suffix| !suffix.applies_to(field)) {
        let needed = match suffix {
            FilterSuffix::Min | FilterSuffix::Max => "a column of numbers, dates or timestamps",
            _ => "a text column",
        };
        let kind = field.data_type.with_article();
        let message = format!("`{}` needs {needed}; `{}` is {kind}", suffix.as_str(), field.name);
        return Err(invalid_argument(name, ArgumentErrorKind::NotAllowed, message));
    }
    let one = |comparison, value| BoundFilter { column, comparison, value, more: Vec::new() };
    Ok(match suffix {
        Some(FilterSuffix::Null) => bind_null(column, name, node)?,
        Some(FilterSuffix::Min) => one(Comparison::AtLeast, bind_bound(field, name, node, f64::ceil)?),
        Some(FilterSuffix::Max) => one(Comparison::AtMost, bind_bound(field, name, node, f64::floor)?),
        Some(suffix @ (FilterSuffix::Contains | FilterSuffix::Starts)) => {
            let Some(text) = node.str().filter(|text| !text.is_empty()) else {
                return Err(out_of_range(format!("`{name}` must be a string that is not empty")));
            };
            let comparison = match suffix {
                FilterSuffix::Contains => Comparison::Contains,
                _ => Comparison::StartsWith,
            };
            one(comparison, BoundValue::Text(order::to_lowercase(&text).into()))
        }
        None | Some(FilterSuffix::Not) => {
            let comparison = if suffix.is_none() { Comparison::Equals } else { Comparison::NotEquals };
            let mut values: Vec<BoundValue<'a>> = match node.kind() {
                Json::Array => node
                    .elements()
                    .map(|element| bind_operand(field, name, element))
                    .collect::<Result<_, _>>()?,
                _ => vec![bind_operand(field, name, node)?],
            };
            if values.len() > FILTER_VALUES_MAX {
                let message =
                    format!("`{name}` has {} values; the limit is {FILTER_VALUES_MAX}", values.len());
                return Err(invalid_argument(name, ArgumentErrorKind::TooLong, message));
            }
            if values.is_empty() {
                return Err(out_of_range(format!("`{name}` is empty; give at least one value")));
            }
            let value = values.remove(0);
            BoundFilter { column, comparison, value, more: values }
        }
    })
}

/// Whether there is no value: `true` or `false`.
fn bind_null<'a>(column: usize, name: &str, node: Node<'_>) -> Result<BoundFilter<'a>, Box<ToolError>> {
    let is_null = node.bool().ok_or_else(|| {
        let message = format!("`{name}` must be true or false");
        invalid_argument(name, ArgumentErrorKind::WrongType, message)
    })?;
    let comparison = if is_null { Comparison::IsNull } else { Comparison::IsNotNull };
    Ok(BoundFilter { column, comparison, value: BoundValue::Null, more: Vec::new() })
}

/// The end of a range. Integers may be compared with a fraction: at least 1.5 is at least 2.
pub(crate) fn bind_bound<'a>(
    field: &Field,
    name: &str,
    node: Node<'a>,
    round: fn(f64) -> f64,
) -> Result<BoundValue<'a>, Box<ToolError>> {
    let fraction = match (field.data_type, node.kind()) {
        (DataType::Integer | DataType::Int64, Json::Number) => exact_f64(node.raw()),
        _ => None,
    };
    match fraction.filter(|n| n.fract() != 0.0) {
        Some(n) => Ok(BoundValue::Integer(round(n) as i64)),
        // Also in a column with values of other types, which are in no range.
        None => match bind_comparable(field, name, node)? {
            value if order::is_in_order(field.data_type, value.as_value_ref()) => Ok(value),
            _ => bind_typed(field, name, node),
        },
    }
}

/// A value to compare with; one of the declared `enum`, if there is one.
fn bind_operand<'a>(field: &Field, name: &str, node: Node<'a>) -> Result<BoundValue<'a>, Box<ToolError>> {
    let value = bind_comparable(field, name, node)?;
    if field.allowed.is_empty() {
        return Ok(value);
    }
    let mut json = Vec::new();
    aggregate::write_value(&mut json, field.data_type, value.as_value_ref());
    if !field.allowed.iter().any(|one| one.as_str().as_bytes() == json) {
        let allowed: Vec<&str> = field.allowed.iter().map(json::Json::as_str).collect();
        let message = format!("`{name}` must be one of {}", join_truncated(&allowed, SHOWN_MAX));
        return Err(invalid_argument(name, ArgumentErrorKind::NotAllowed, message));
    }
    Ok(value)
}

/// `name` ends with `rest`, which should be a field; links may stand before it.
fn unknown_filter(collection: &Collection, fields: &[usize], name: &str, rest: &str) -> Box<ToolError> {
    let links = &name[..name.len() - rest.len()];
    let names: Vec<&str> = fields.iter().map(|at| collection.fields[*at].name.as_str()).collect();
    let bases = FilterSuffix::ALL.into_iter().filter_map(|suffix| name.strip_suffix(suffix.as_str()));
    let is_field = |base: &&str| collection.fields.iter().any(|field| field.name == *base);
    // Another column with a similar name would answer another question.
    if let Some(base) = bases.chain([name]).find(is_field) {
        let message = format!(
            "`{base}` cannot be filtered; the {} that can are {}",
            pluralize(names.len() as u64, "column"),
            join_truncated(&names, SHOWN_MAX)
        );
        return invalid_argument(name, ArgumentErrorKind::UnknownArgument, message);
    }
    let suffixed = FilterSuffix::ALL.into_iter().find_map(|suffix| {
        let base = rest.strip_suffix(suffix.as_str())?;
        let links = links::countable(collection).filter(|_| suffix == FilterSuffix::Null);
        let known = names.iter().copied().chain(links.map(|link| link.name.as_str()));
        Some(format!("{}{}", nearest(base, known)?, suffix.as_str()))
    });
    let help = match suffixed.or_else(|| nearest(rest, names.iter().copied()).map(str::to_owned)) {
        Some(near) => format!("did you mean `{links}{near}`?"),
        None if links.is_empty() => format!("filters are {}", join_truncated(&names, SHOWN_MAX)),
        None => format!("filters after `{links}` are {}", join_truncated(&names, SHOWN_MAX)),
    };
    invalid_argument(name, ArgumentErrorKind::UnknownArgument, format!("unknown argument `{name}`; {help}"))
}

impl<'a> From<ValueRef<'a>> for BoundValue<'a> {
    fn from(value: ValueRef<'a>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Text(text) => Self::Text(text.into()),
            ValueRef::Integer(n) => Self::Integer(n),
            ValueRef::Real(n) => Self::Real(n),
            ValueRef::Blob(bytes) => Self::Blob(bytes.into()),
        }
    }
}
