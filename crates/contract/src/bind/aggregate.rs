//! The arguments of an aggregate: fields to group by, measures, conditions on measures, and the order.

use json::{Node, NodeKind as Json, exact_f64};
use spile_core::{ArgumentErrorKind, ToolError};

use super::filters::{BoundFilters, SHOWN_MAX};
use super::links::{self, Scope};
use super::{BoundValue, bind_comparable, invalid_argument, parse_integer, text_list};
use crate::TimeZone;
use crate::aggregate::{self, GROUP_FIELDS_MAX, MEASURES_MAX, Selection};
use crate::contract::Collection;
use crate::data_type::DataType;
use crate::field::Field;
use crate::humanize::join_truncated;
use crate::nearest::nearest;
use crate::source::{
    AggregateFunction, AggregateSort, Comparison, DateUnit, GroupColumn, Having, Measure, SortTarget,
};

/// Arguments of an aggregate that are not filters. A field of such a name is filtered by its name and a `_`.
pub const AGGREGATE_ARGUMENTS: [&str; 5] = ["group", "measures", "having", "sort", "limit"];
pub const COUNT: &str = "count";

/// The bound arguments of an aggregate.
#[derive(Debug, Default)]
pub struct AggregateArguments<'a> {
    pub filters: BoundFilters<'a>,
    pub groups: Vec<BoundGroup>,
    pub measures: Vec<BoundMeasure>,
    having: Vec<(usize, Comparison, BoundValue<'a>)>,
    sort: Vec<AggregateSort>,
    pub limit: Option<usize>,
    /// The name of each group's member in the result, then of each measure's.
    pub names: Vec<String>,
    /// The type of each of them.
    pub kinds: Vec<DataType>,
}

/// A field to group by: of the collection, or behind links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundGroup {
    /// The links to follow, by index: of the collection, then of the one that it leads to.
    pub path: Vec<usize>,
    /// A field of the last collection, by index.
    pub column: usize,
    pub unit: Option<DateUnit>,
    /// Of the last collection.
    pub time_zone: Option<TimeZone>,
}

impl BoundGroup {
    /// As a source of the last collection groups by it.
    pub fn column(&self) -> GroupColumn<'static> {
        GroupColumn { column: self.column, unit: self.unit, time_zone: self.time_zone, map: None }
    }
}

/// A measure: of the collection, or of a field behind links.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundMeasure {
    /// The links to follow, by index: of the collection, then of the one that it leads to.
    pub path: Vec<usize>,
    /// Of a field of the last collection.
    pub measure: Measure<'static>,
    name: String,
}

impl BoundMeasure {
    fn count() -> Self {
        Self { path: Vec::new(), measure: Measure::Count, name: COUNT.to_owned() }
    }

    /// The field that is measured; `None` for a count.
    fn field<'c>(&self, scope: Scope<'c>) -> Option<&'c Field> {
        let target = links::last_link(scope, &self.path).map(|link| &scope.collections[link.target]);
        self.measure.column().map(|column| &target.unwrap_or(scope.collection()).fields[column])
    }
}

impl AggregateArguments<'_> {
    /// How the groups of the answer are chosen.
    pub fn selection(&self, rows_max: usize) -> Selection<'_> {
        Selection {
            having: self
                .having
                .iter()
                .map(|(measure, comparison, value)| Having {
                    measure: *measure,
                    comparison: *comparison,
                    value: value.as_value_ref(),
                })
                .collect(),
            sort: self.sort.clone(),
            rows_max,
        }
    }
}

/// Whether a field has single values that may show in the order or the groups of rows.
pub fn is_comparable(field: &Field) -> bool {
    field.data_type.is_scalar() && !field.sensitive
}

/// Whether rows can be grouped by a field.
pub fn is_groupable(field: &Field) -> bool {
    is_comparable(field) && field.in_groups
}

/// Whether a function can be computed over a field.
pub fn is_measurable(field: &Field, function: AggregateFunction) -> bool {
    is_comparable(field) && field.in_measures && accepts(function, field.data_type)
}

/// Whether dates of a field can be grouped by year, month and so on.
pub fn has_date_units(field: &Field) -> bool {
    matches!(field.data_type, DataType::Date | DataType::Timestamp | DataType::LocalTimestamp)
}

/// The name of a field's filter argument in an aggregate.
pub fn filter_argument(field: &Field) -> String {
    match AGGREGATE_ARGUMENTS.contains(&field.name.as_str()) {
        true => format!("{}_", field.name),
        false => field.name.clone(),
    }
}

/// Binds the arguments of an aggregate with filters on these fields.
pub fn aggregate<'a>(
    scope: Scope<'_>,
    filters: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<AggregateArguments<'a>, Box<ToolError>> {
    let argument = |name: &str| arguments.and_then(|arguments| arguments.get(name));
    let mut bound = AggregateArguments::default();
    for name in argument("group").map(|node| text_list("group", node)).transpose()?.unwrap_or_default() {
        let group = parse_group(scope, &name)?;
        if !bound.groups.contains(&group) {
            bound.groups.push(group);
            bound.names.push(name);
        }
    }
    if bound.groups.len() > GROUP_FIELDS_MAX {
        let message = format!("`group` has {} fields; the limit is {GROUP_FIELDS_MAX}", bound.groups.len());
        return Err(invalid_argument("group", ArgumentErrorKind::TooLong, message));
    }
    let mut measures: Vec<BoundMeasure> = Vec::new();
    for name in argument("measures").map(|node| text_list("measures", node)).transpose()?.unwrap_or_default()
    {
        add_measure(&mut measures, parse_measure(scope, "measures", &name)?);
    }
    if measures.is_empty() {
        measures.push(BoundMeasure::count());
    }
    for (key, node) in argument("having").into_iter().flat_map(|having| having.members()) {
        let key = key.str().unwrap_or_default();
        let at = format!("having.{key}");
        let (name, comparison) = match (key.strip_suffix("_min"), key.strip_suffix("_max")) {
            (Some(name), _) => (name, Comparison::AtLeast),
            (None, Some(name)) => (name, Comparison::AtMost),
            (None, None) => {
                let message = format!("`{at}` must be a measure with `_min` or `_max`, such as `count_min`");
                return Err(invalid_argument(&at, ArgumentErrorKind::UnknownArgument, message));
            }
        };
        let measure = parse_measure(scope, &at, name)?;
        let value = bind_bound(scope, &measure, &at, node)?;
        bound.having.push((add_measure(&mut measures, measure), comparison, value));
    }
    for by in argument("sort").map(|node| text_list("sort", node)).transpose()?.unwrap_or_default() {
        let (name, descending) = match by.strip_prefix('-') {
            Some(name) => (name, true),
            None => (&*by, false),
        };
        let by = match bound.names.iter().position(|group| group == name) {
            Some(at) => SortTarget::Group(at),
            None => {
                let measure =
                    parse_measure(scope, "sort", name).map_err(|error| match parse_group(scope, name) {
                        Ok(_) => invalid_argument(
                            "sort",
                            ArgumentErrorKind::NotAllowed,
                            format!("`sort` names `{name}`, which is not in `group`"),
                        ),
                        Err(_) => error,
                    })?;
                SortTarget::Measure(add_measure(&mut measures, measure))
            }
        };
        bound.sort.push(AggregateSort { by, descending });
    }
    if measures.len() > MEASURES_MAX {
        let message = format!("{} measures are too many; the limit is {MEASURES_MAX}", measures.len());
        return Err(invalid_argument("measures", ArgumentErrorKind::TooLong, message));
    }
    bound.limit = argument("limit").and_then(parse_integer).and_then(|n| usize::try_from(n).ok());
    bind_filters(&mut bound.filters, scope, filters, arguments)?;
    describe_results(&mut bound, scope, measures);
    Ok(bound)
}

fn bind_filters<'a>(
    bound: &mut BoundFilters<'a>,
    scope: Scope<'_>,
    filters: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<(), Box<ToolError>> {
    let collection = scope.collection();
    for (name, node) in arguments.into_iter().flat_map(|arguments| arguments.members()) {
        let name = name.str().unwrap_or_default();
        if AGGREGATE_ARGUMENTS.contains(&&*name) {
            continue;
        }
        let renamed = AGGREGATE_ARGUMENTS.iter().find(|argument| {
            let is_field = filters.iter().any(|at| collection.fields[*at].name == **argument);
            is_field && name.strip_prefix(**argument).is_some_and(|rest| rest.starts_with('_'))
        });
        match renamed {
            // `group_` and `group_min` are filters on the field `group`.
            Some(argument) => {
                let rest = name.strip_prefix(argument).unwrap_or_default();
                let rest = if rest == "_" { "" } else { rest };
                bound.bind(scope, filters, &format!("{argument}{rest}"), node)?;
            }
            None => bound.bind(scope, filters, &name, node)?,
        }
    }
    Ok(())
}

/// Names and types of the result's members. A group whose name is also a measure's gets a `_` appended.
fn describe_results(bound: &mut AggregateArguments<'_>, scope: Scope<'_>, measures: Vec<BoundMeasure>) {
    let collection = scope.collection();
    let measure_names: Vec<String> = measures.iter().map(|measure| measure.name.clone()).collect();
    for name in &mut bound.names {
        if measure_names.contains(name) {
            name.push('_');
        }
    }
    bound.names.extend(measure_names);
    bound.kinds = bound
        .groups
        .iter()
        .map(|group| match group.unit {
            Some(_) => DataType::Text,
            None => {
                let target = links::last_link(scope, &group.path).map(|link| &scope.collections[link.target]);
                target.unwrap_or(collection).fields[group.column].data_type
            }
        })
        .chain(measures.iter().map(|measure| match measure.field(scope) {
            None => DataType::Integer,
            Some(field) => aggregate::result_type(measure.measure, field.data_type),
        }))
        .collect();
    bound.measures = measures;
}

fn add_measure(measures: &mut Vec<BoundMeasure>, measure: BoundMeasure) -> usize {
    measures.iter().position(|known| *known == measure).unwrap_or_else(|| {
        measures.push(measure);
        measures.len() - 1
    })
}

/// A field's name, or the name of a date field and a unit: `ordered_on_month`. Links may stand before it.
fn parse_group(scope: Scope<'_>, name: &str) -> Result<BoundGroup, Box<ToolError>> {
    match name.contains('.') {
        false => parse_group_field(scope.collection(), Vec::new(), name, name),
        true => {
            let at = links::follow(scope, "group", name)?;
            parse_group_field(at.scope.collection(), at.path, name, at.rest)
        }
    }
}

/// `full_name` ends with `name`, which is a field of the collection that the links lead to.
fn parse_group_field(
    collection: &Collection,
    path: Vec<usize>,
    full_name: &str,
    name: &str,
) -> Result<BoundGroup, Box<ToolError>> {
    let links = &full_name[..full_name.len() - name.len()];
    let invalid = |message: String| invalid_argument("group", ArgumentErrorKind::NotAllowed, message);
    let named =
        |wanted: &str| collection.fields.iter().position(|field| field.name == wanted && is_groupable(field));
    if let Some(column) = named(name) {
        let field = &collection.fields[column];
        if matches!(field.data_type, DataType::Timestamp | DataType::LocalTimestamp) {
            let units = DateUnit::ALL.map(|unit| format!("{full_name}_{}", unit.as_str()));
            let units: Vec<&str> = units.iter().map(String::as_str).collect();
            return Err(invalid(format!(
                "`{full_name}` is a timestamp; group by one of {}",
                join_truncated(&units, SHOWN_MAX)
            )));
        }
        return Ok(BoundGroup { path, column, unit: None, time_zone: None });
    }
    for unit in DateUnit::ALL {
        let field = name.strip_suffix(unit.as_str()).and_then(|rest| rest.strip_suffix('_'));
        if let Some(column) = field.and_then(named) {
            return match has_date_units(&collection.fields[column]) {
                true => Ok(BoundGroup { path, column, unit: Some(unit), time_zone: collection.time_zone }),
                false => Err(invalid(format!(
                    "`_{}` needs a column of dates or timestamps; `{}` is {}",
                    unit.as_str(),
                    collection.fields[column].name,
                    collection.fields[column].data_type.with_article()
                ))),
            };
        }
    }
    let names: Vec<&str> = collection
        .fields
        .iter()
        .filter(|field| is_groupable(field))
        .map(|field| field.name.as_str())
        .collect();
    Err(invalid(match nearest(name, names.iter().copied()) {
        Some(near) => format!("unknown field `{full_name}` in `group`; did you mean `{links}{near}`?"),
        None => {
            let names = match names.is_empty() {
                true => {
                    return Err(invalid(format!(
                        "unknown field `{full_name}` in `group`; no field can be grouped by"
                    )));
                }
                false => join_truncated(&names, SHOWN_MAX),
            };
            match links.is_empty() {
                true => format!("unknown field `{name}` in `group`; fields are {names}"),
                false => {
                    format!("unknown field `{full_name}` in `group`; fields after `{links}` are {names}")
                }
            }
        }
    }))
}

/// The function of a measure's name, and what follows it: `sum` and `total` of `sum_total`.
pub fn split_measure(name: &str) -> Option<(AggregateFunction, &str)> {
    AggregateFunction::ALL
        .into_iter()
        .find_map(|function| Some((function, name.strip_prefix(function.as_str())?.strip_prefix('_')?)))
}

/// `count`, or a function and a field: `sum_total`. Links may stand before the field: `avg_product.price`.
fn parse_measure(scope: Scope<'_>, argument: &str, name: &str) -> Result<BoundMeasure, Box<ToolError>> {
    let invalid = |message: String| invalid_argument(argument, ArgumentErrorKind::NotAllowed, message);
    if name == COUNT {
        return Ok(BoundMeasure::count());
    }
    let Some((function, dotted)) = split_measure(name) else {
        return Err(invalid(format!(
            "unknown measure `{name}`; use `count`, or sum_, avg_, min_, max_ or distinct_ with a field's name"
        )));
    };
    let (path, collection, wanted) = match dotted.contains('.') {
        false => (Vec::new(), scope.collection(), dotted),
        true => {
            let at = links::follow(scope, argument, dotted)?;
            (at.path, at.scope.collection(), at.rest)
        }
    };
    let links = &dotted[..dotted.len() - wanted.len()];
    let fields = |function: AggregateFunction| {
        let takes = move |field: &&Field| is_measurable(field, function);
        collection.fields.iter().filter(takes).map(|field| field.name.as_str())
    };
    let column = collection.fields.iter().position(|field| field.name == wanted);
    match column.filter(|column| fields(function).any(|name| name == collection.fields[*column].name)) {
        Some(column) => {
            Ok(BoundMeasure { path, measure: Measure::Of { function, column }, name: name.to_owned() })
        }
        None => {
            let names: Vec<&str> = fields(function).collect();
            let problem = match column {
                Some(column) if accepts(function, collection.fields[column].data_type) => {
                    format!("this server computes no measures of `{wanted}`")
                }
                Some(column) => format!(
                    "cannot compute `{name}`: `{wanted}` is {}",
                    collection.fields[column].data_type.with_article()
                ),
                None => format!("unknown measure `{name}`"),
            };
            let help = match nearest(wanted, names.iter().copied()) {
                Some(near) if column.is_none() => {
                    format!("did you mean `{}_{links}{near}`?", function.as_str())
                }
                _ if names.is_empty() => "no field can be used for that; use `count`".to_owned(),
                _ => format!("`{}_` takes {}", function.as_str(), join_truncated(&names, SHOWN_MAX)),
            };
            Err(invalid(format!("{problem}; {help}")))
        }
    }
}

fn accepts(function: AggregateFunction, data_type: DataType) -> bool {
    match function {
        AggregateFunction::Sum | AggregateFunction::Avg => aggregate::is_summable(data_type),
        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Distinct => true,
    }
}

/// The bound of a measure, of the type of its result.
fn bind_bound<'a>(
    scope: Scope<'_>,
    measure: &BoundMeasure,
    name: &str,
    node: Node<'a>,
) -> Result<BoundValue<'a>, Box<ToolError>> {
    match (measure.measure.function(), measure.field(scope)) {
        (Some(AggregateFunction::Min | AggregateFunction::Max), Some(field)) => {
            bind_comparable(field, name, node)
        }
        (Some(_) | None, _) => {
            let number = match node.kind() {
                Json::Number => exact_f64(node.raw()).map(|_| node.raw().to_owned()),
                _ => node.str().map(|text| text.into_owned()),
            };
            let is_decimal = |text: &String| crate::order::decimal_parts(text).is_some();
            number.filter(is_decimal).map(|text| BoundValue::Text(text.into())).ok_or_else(|| {
                let message = format!("`{name}` must be a number, such as 100 or 12.5");
                invalid_argument(name, ArgumentErrorKind::WrongType, message)
            })
        }
    }
}
