//! Follows links to other collections: rows to include, and fields of linked rows as filters, groups, measures and sort
//! orders.
//!
//! A link is followed for all rows at once, by the values of its fields, so that it works between any two sources: one
//! question to the other collection for each link, never one for each row. Questions to two collections see two states of
//! the data if someone writes in between.

use std::collections::BTreeSet;

use contract::bind::{BoundGroup, BoundMeasure, BoundSort, FilterSuffix, LinkedFilter, Scope, split_measure};
use contract::results::{LinkError, LinkedRows};
use contract::source::{
    Aggregate, Comparison, Filter, GroupColumn, GroupRow, Groups, KeyMap, KeySet, LinkedValues, Measure,
    Query, RowFlow, Sort, SourceError,
};
use contract::{Cardinality, Collection, DataType, LINK_KEYS_MAX, Link, Tool, ToolOperation, Value};
use json::{Json, Node};
use spile_core::{Call, CallFuture, Journal, Outcome, Platform, ToolCaller, ToolError, ToolErrorCode};

use super::error::{record_error_outcome, source_error_outcome};
use super::{BlockingContext, ProviderInner};

/// How many rows of the other collection a call looks at to include them.
const ROWS_SEEN_MAX: usize = 9_999;

/// What of a call may follow links.
#[derive(Default)]
pub(super) struct LinkedArguments<'a> {
    pub(super) filters: &'a [LinkedFilter<'a>],
    pub(super) groups: &'a [BoundGroup],
    pub(super) measures: &'a [BoundMeasure],
    pub(super) sort: &'a [BoundSort],
}

/// What filters, groups, measures and sort orders of a call mean for its own collection, after its links were followed.
#[derive(Default)]
pub(super) struct FollowedLinks {
    filters: Vec<KeyFilter>,
    /// For each group, measure and sort order that follows a link.
    groups: Vec<Option<FollowedField>>,
    measures: Vec<Option<FollowedField>>,
    sort: Vec<Option<FollowedField>>,
}

/// A field behind a link.
struct FollowedField {
    /// The own field, which has the keys of the linked rows.
    field: usize,
    map: KeyMap,
    /// The type of the values in the map.
    kind: DataType,
}

impl FollowedField {
    fn values(&self) -> LinkedValues<'_> {
        LinkedValues { map: &self.map, kind: self.kind }
    }
}

/// Rows whose field has one of these values, or none of them.
struct KeyFilter {
    field: usize,
    keys: KeySet,
    is_negated: bool,
}

impl FollowedLinks {
    pub(super) fn filters(&self) -> impl Iterator<Item = Filter<'_>> {
        self.filters.iter().map(|KeyFilter { field, keys, is_negated }| match is_negated {
            false => Filter::one_of(*field, keys),
            true => Filter::none_of(*field, keys),
        })
    }

    pub(super) fn groups<'s>(&'s self, groups: &[BoundGroup]) -> Vec<GroupColumn<'s>> {
        let group = |(group, linked): (&BoundGroup, Option<&'s FollowedField>)| match linked {
            None => group.column(),
            Some(FollowedField { field, map, .. }) => {
                GroupColumn { map: Some(map), ..GroupColumn::new(*field) }
            }
        };
        groups.iter().zip(or_none(&self.groups)).map(group).collect()
    }

    pub(super) fn measures<'s>(&'s self, measures: &[BoundMeasure]) -> Vec<Measure<'s>> {
        let measure = |(bound, linked): (&BoundMeasure, Option<&'s FollowedField>)| match (
            linked,
            bound.measure.function(),
        ) {
            (Some(linked), Some(function)) => {
                Measure::Linked { function, column: linked.field, values: linked.values() }
            }
            (None, _) | (Some(_), None) => bound.measure,
        };
        measures.iter().zip(or_none(&self.measures)).map(measure).collect()
    }

    /// By own columns, and the values behind links that order rows instead.
    pub(super) fn sort<'s>(&'s self, sort: &[BoundSort]) -> (Vec<Sort>, Vec<Option<LinkedValues<'s>>>) {
        let by = |(bound, linked): (&BoundSort, Option<&'s FollowedField>)| match linked {
            None => (bound.sort, None),
            Some(linked) => (Sort { column: linked.field, ..bound.sort }, Some(linked.values())),
        };
        sort.iter().zip(or_none(&self.sort)).map(by).unzip()
    }
}

/// Links that were not followed are none.
fn or_none(fields: &[Option<FollowedField>]) -> impl Iterator<Item = Option<&FollowedField>> {
    fields.iter().map(Option::as_ref).chain(std::iter::repeat(None))
}

impl ProviderInner {
    /// Follows the links of a call's arguments.
    pub(super) fn follow_links(
        &self,
        index: usize,
        arguments: &LinkedArguments<'_>,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Result<FollowedLinks, Box<Outcome>> {
        let follower = Follower { inner: self, blocking, platform };
        let LinkedArguments { filters, groups, measures, sort } = arguments;
        let field = |path: &[usize], column: GroupColumn<'static>| match path.is_empty() {
            true => Ok(None),
            false => follower.follow_field(index, path, column).map(Some),
        };
        let measured = |bound: &BoundMeasure| {
            field(&bound.path, GroupColumn::new(bound.measure.column().unwrap_or_default()))
        };
        let sorted = |bound: &BoundSort| field(&bound.path, GroupColumn::new(bound.sort.column));
        Ok(FollowedLinks {
            filters: follower.follow_filters(index, filters)?,
            groups: groups
                .iter()
                .map(|group| field(&group.path, group.column()))
                .collect::<Result<_, _>>()?,
            measures: measures.iter().map(measured).collect::<Result<_, _>>()?,
            sort: sort.iter().map(sorted).collect::<Result<_, _>>()?,
        })
    }

    /// The rows of some links, for rows with these values in the links' own fields.
    pub(super) fn linked_rows<'c>(
        &'c self,
        index: usize,
        links: &[usize],
        keys: &[Vec<Vec<Value>>],
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Result<Vec<LinkedRows<'c>>, Box<Outcome>> {
        let follower = Follower { inner: self, blocking, platform };
        let link = |(position, link): (usize, &usize)| {
            let keys = keys.iter().map(|row| row[position].clone());
            follower.read_rows(index, *link, keys.collect())
        };
        links.iter().enumerate().map(link).collect()
    }

    /// Calls to the lists of all collections that a call follows links to, so that whoever may not list a collection
    /// cannot read it through a link either.
    pub(super) fn link_probes(&self, index: usize, call: &Call, tools: &dyn ToolCaller) -> Vec<CallFuture> {
        let tool = &self.contract.tools[index];
        let Some(collection) = tool.operation.collection() else { return Vec::new() };
        if self.contract.collections[collection].links.is_empty() {
            return Vec::new();
        }
        let scope = Scope::new(&self.contract.collections, collection);
        let lists = linked_collections(scope, call.arguments()).into_iter();
        let lists = lists.filter_map(|target| self.list_tool(target)).filter(|list| list.name != tool.name);
        let probe = |list: &Tool| {
            let arguments = Json::object(|out| {
                out.int("limit", 1);
            });
            tools.call_tool(&list.name, arguments, Journal::default())
        };
        lists.map(probe).collect()
    }

    pub(super) fn list_tool(&self, index: usize) -> Option<&Tool> {
        let is_list = |tool: &&Tool| match tool.operation {
            ToolOperation::List { collection, .. } => collection == index,
            _ => false,
        };
        self.contract.tools.iter().find(is_list)
    }
}

/// The answer to a call that follows a link to a collection that the caller may not list.
pub(super) fn link_refusal(probe: &Outcome) -> Option<Outcome> {
    match probe {
        Outcome::Done(result) if !result.is_error() => None,
        _ => {
            let message =
                "a collection that this call follows a link to cannot be listed; leave the link out";
            Some(ToolError::new(ToolErrorCode::Forbidden, message).into())
        }
    }
}

/// The collections that the arguments of a call name through links. Names that are not known are reported when they are
/// bound.
fn linked_collections(scope: Scope<'_>, arguments: Option<Node<'_>>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for (name, node) in arguments.into_iter().flat_map(|arguments| arguments.members()) {
        let name = name.str().unwrap_or_default();
        let texts = || {
            let one = node.str().into_iter();
            one.chain(node.elements().filter_map(|element| element.str()))
        };
        match &*name {
            "include" => texts().for_each(|name| add_path(scope, std::iter::once(&*name), &mut found)),
            "group" | "sort" | "measures" => texts().for_each(|name| add_dotted(scope, &name, &mut found)),
            "having" => node.members().for_each(|(name, _)| {
                add_dotted(scope, &name.str().unwrap_or_default(), &mut found);
            }),
            name => {
                add_dotted(scope, name, &mut found);
                // `orders_null` asks whether there are linked rows.
                if let Some(path) = name.strip_suffix(FilterSuffix::Null.as_str()) {
                    add_path(scope, path.split('.'), &mut found);
                }
            }
        }
    }
    found
}

fn add_dotted(scope: Scope<'_>, name: &str, found: &mut BTreeSet<usize>) {
    let Some((path, _)) = name.trim_start_matches('-').rsplit_once('.') else { return };
    add_path(scope, path.split('.'), found);
    // `sum_product.price` is a measure behind the link `product`.
    if let Some((_, path)) = split_measure(path) {
        add_path(scope, path.split('.'), found);
    }
}

fn add_path<'n>(scope: Scope<'_>, names: impl Iterator<Item = &'n str>, found: &mut BTreeSet<usize>) {
    let mut collection = scope.collection();
    for name in names {
        let Some(link) = collection.links.iter().find(|link| link.name == name) else { return };
        found.insert(link.target);
        collection = &scope.collections[link.target];
    }
}

/// Asks the collections that links lead to.
struct Follower<'c, 'a> {
    inner: &'c ProviderInner,
    blocking: &'a BlockingContext,
    platform: &'a dyn Platform,
}

impl<'c> Follower<'c, '_> {
    fn collection(&self, index: usize) -> &'c Collection {
        &self.inner.contract.collections[index]
    }

    /// Filters through the same links are one question. A row without a linked row has no value, so a filter that such
    /// rows pass asks for the rows that do not pass.
    fn follow_filters(
        &self,
        index: usize,
        filters: &[LinkedFilter<'_>],
    ) -> Result<Vec<KeyFilter>, Box<Outcome>> {
        let mut followed = Vec::new();
        let mut together: Vec<(&[usize], Vec<Filter<'_>>)> = Vec::new();
        for linked in filters {
            let filter = linked.filter();
            let opposite = match filter.comparison {
                Comparison::NotEquals => Some(Comparison::Equals),
                Comparison::IsNull => Some(Comparison::IsNotNull),
                _ => None,
            };
            match (opposite, together.iter_mut().find(|(path, _)| *path == linked.path)) {
                (Some(comparison), _) => {
                    let filters = vec![Filter { comparison, ..filter }];
                    let (field, keys) = self.matching_keys(index, &linked.path, filters)?;
                    followed.push(KeyFilter { field, keys, is_negated: true });
                }
                (None, Some((_, filters))) => filters.push(filter),
                (None, None) => together.push((&linked.path, vec![filter])),
            }
        }
        for (path, filters) in together {
            let (field, keys) = self.matching_keys(index, path, filters)?;
            followed.push(KeyFilter { field, keys, is_negated: false });
        }
        Ok(followed)
    }

    /// The own field of the first link, and its values for which the last row passes the filters.
    fn matching_keys(
        &self,
        index: usize,
        path: &[usize],
        filters: Vec<Filter<'_>>,
    ) -> Result<(usize, KeySet), Box<Outcome>> {
        let (link, field, target_field) = self.link(index, path)?;
        let behind;
        let filters = match &path[1..] {
            [] => filters,
            rest => {
                behind = self.matching_keys(link.target, rest, filters)?;
                vec![Filter::one_of(behind.0, &behind.1)]
            }
        };
        let groups = self.group(link, filters, vec![GroupColumn::new(target_field)])?;
        let kind = self.collection(link.target).fields[target_field].data_type;
        let mut keys = KeySet::default();
        for GroupRow(values) in &groups.rows {
            keys.insert(kind, values[0].as_value_ref());
        }
        Ok((field, keys))
    }

    /// The own field of the first link, and what the last row has in a column for each of its values.
    fn follow_field(
        &self,
        index: usize,
        path: &[usize],
        wanted: GroupColumn<'static>,
    ) -> Result<FollowedField, Box<Outcome>> {
        let (link, field, target_field) = self.link(index, path)?;
        let behind;
        let (column, kind) = match &path[1..] {
            [] => (wanted, self.collection(link.target).fields[wanted.column].data_type),
            rest => {
                behind = self.follow_field(link.target, rest, wanted)?;
                (GroupColumn { map: Some(&behind.map), ..GroupColumn::new(behind.field) }, behind.kind)
            }
        };
        let groups = self.group(link, Vec::new(), vec![GroupColumn::new(target_field), column])?;
        let mut map = KeyMap::default();
        for GroupRow(values) in groups.rows {
            let mut values = values.into_iter();
            let (Some(key), Some(value)) = (values.next(), values.next()) else { continue };
            map.insert(key, value).map_err(|_| Box::new(self.ambiguous(link)))?;
        }
        Ok(FollowedField { field, map, kind })
    }

    fn link(&self, index: usize, path: &[usize]) -> Result<(&'c Link, usize, usize), Box<Outcome>> {
        let link = path.first().and_then(|link| self.collection(index).links.get(*link));
        link.and_then(|link| link.only_fields().map(|(own, target)| (link, own, target))).ok_or_else(|| {
            let detail = "a path follows a link by several fields".into();
            Box::new(Outcome::Failed(spile_core::CallError::Internal { detail }))
        })
    }

    /// The different values of some fields, in the rows of a link's target that pass filters.
    fn group(
        &self,
        link: &Link,
        filters: Vec<Filter<'_>>,
        groups: Vec<GroupColumn<'_>>,
    ) -> Result<Groups, Box<Outcome>> {
        let question = Aggregate {
            filters,
            groups,
            measures: vec![Measure::Count],
            groups_max: LINK_KEYS_MAX,
            cancelled: Some(&self.blocking.cancelled),
            progress: Some(&self.blocking.rows_scanned),
        };
        let reader = self.inner.reader(link.target, &self.blocking.caller);
        reader.aggregate(&question).map_err(|error| Box::new(self.failed(link, &error)))
    }

    /// The outcome of a call whose question to a link's target failed.
    fn failed(&self, link: &Link, error: &SourceError) -> Outcome {
        let target = self.collection(link.target);
        match error {
            SourceError::TooManyGroups { .. } => {
                let help = match link.cardinality {
                    Cardinality::ToOne => "add filters on its fields, or use its tools",
                    Cardinality::ToMany { .. } => "use its tools",
                };
                let message = format!(
                    "`{}` leads to more than {LINK_KEYS_MAX} rows of {}; {help}",
                    link.name, target.name
                );
                ToolError::new(ToolErrorCode::TooLarge, message).into()
            }
            error => source_error_outcome(error, target, self.platform),
        }
    }

    /// The outcome of a call that follows a link to one row and finds several.
    fn ambiguous(&self, link: &Link) -> Outcome {
        let target = &self.collection(link.target).name;
        let message = format!("several rows of {target} have the same key, so `{}` is not clear", link.name);
        ToolError::new(ToolErrorCode::SourceUnavailable, message).into()
    }

    /// The rows of a link for some values of its own fields.
    fn read_rows(
        &self,
        index: usize,
        link: usize,
        keys: Vec<Vec<Value>>,
    ) -> Result<LinkedRows<'c>, Box<Outcome>> {
        let own = self.collection(index);
        let link = &own.links[link];
        let (target, reader) =
            (self.collection(link.target), self.inner.reader(link.target, &self.blocking.caller));
        let mut wanted: Vec<(usize, KeySet)> = Vec::new();
        for (position, (field, target_field)) in link.fields.iter().enumerate() {
            let mut values = KeySet::default();
            keys.iter()
                .for_each(|key| values.insert(own.fields[*field].data_type, key[position].as_value_ref()));
            wanted.push((*target_field, values));
        }
        let mut linked = LinkedRows::new(link, own, target, keys.into_iter(), own.bytes_max, ROWS_SEEN_MAX);
        if wanted.iter().any(|(_, values)| values.is_empty()) {
            return Ok(linked);
        }
        let filters = || wanted.iter().map(|(field, values)| Filter::one_of(*field, values)).collect();
        let query = Query {
            filters: filters(),
            sort: match &link.cardinality {
                Cardinality::ToOne => Vec::new(),
                Cardinality::ToMany { sort, .. } => sort.clone(),
            },
            sort_links: Vec::new(),
            after: None,
            // One more than is looked at, to know whether there are more.
            rows_max: ROWS_SEEN_MAX + 1,
            cancelled: Some(&self.blocking.cancelled),
            progress: Some(&self.blocking.rows_scanned),
        };
        let mut push = |cells: &[contract::ValueRef<'_>], _| -> RowFlow { linked.push(cells) };
        reader.list(&query, &mut push).map_err(|error| Box::new(self.failed(link, &error)))?;
        if let (false, [(_, target_field)]) = (linked.is_complete(), &link.fields[..]) {
            let groups = self.group(link, filters(), vec![GroupColumn::new(*target_field)])?;
            linked.set_totals(groups.rows.into_iter().filter_map(|GroupRow(values)| {
                let mut values = values.into_iter();
                match (values.next(), values.next()) {
                    (Some(key), Some(Value::Integer(total))) => Some((key, usize::try_from(total).ok()?)),
                    _ => None,
                }
            }));
        }
        match linked.check() {
            Ok(()) => Ok(linked),
            Err(LinkError::Ambiguous) => Err(Box::new(self.ambiguous(link))),
            Err(LinkError::Record(error)) => {
                Err(Box::new(record_error_outcome(&error, target, self.platform)))
            }
        }
    }
}
