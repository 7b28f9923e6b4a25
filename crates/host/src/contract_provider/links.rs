//! Follows links to other collections: rows to include, and fields of linked rows as filters and groups.
//!
//! A link is followed for all rows at once, by the values of its fields, so that it works between any two sources: one
//! question to the other collection for each link, never one for each row. Questions to two collections see two states of
//! the data if someone writes in between.

use std::collections::BTreeSet;

use contract::bind::{BoundGroup, LinkedFilter, Scope};
use contract::results::{LinkError, LinkedRows};
use contract::source::{
    Aggregate, Comparison, Filter, GroupColumn, GroupRow, Groups, KeyMap, KeySet, Measure, Query, RowFlow,
    SourceError,
};
use contract::{Cardinality, Collection, LINK_KEYS_MAX, Link, Tool, ToolOperation, Value};
use json::{Json, Node};
use spile_core::{Call, CallFuture, Journal, Outcome, Platform, ToolCaller, ToolError, ToolErrorCode};

use super::error::{record_error_outcome, source_error_outcome};
use super::{BlockingContext, ProviderInner};

/// How many rows of the other collection a call looks at to include them.
const ROWS_SEEN_MAX: usize = 9_999;

/// What the filters and groups of a call mean for its own collection, after its links were followed.
#[derive(Default)]
pub(super) struct FollowedLinks {
    filters: Vec<KeyFilter>,
    /// For each group that follows a link: the own field, and the value behind the link.
    maps: Vec<Option<(usize, KeyMap)>>,
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
        let maps = self.maps.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        let group = |(group, map): (&BoundGroup, Option<&'s (usize, KeyMap)>)| match map {
            None => group.column(),
            Some((field, map)) => GroupColumn { map: Some(map), ..GroupColumn::new(*field) },
        };
        groups.iter().zip(maps).map(group).collect()
    }
}

impl ProviderInner {
    /// Follows the links of filters and groups.
    pub(super) fn follow_links(
        &self,
        index: usize,
        filters: &[LinkedFilter<'_>],
        groups: &[BoundGroup],
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Result<FollowedLinks, Box<Outcome>> {
        let follower = Follower { inner: self, blocking, platform };
        let mut followed =
            FollowedLinks { filters: follower.follow_filters(index, filters)?, maps: Vec::new() };
        for group in groups {
            followed.maps.push(match group.path.is_empty() {
                true => None,
                false => Some(follower.follow_group(index, &group.path, group)?),
            });
        }
        Ok(followed)
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

    fn list_tool(&self, index: usize) -> Option<&Tool> {
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
            "group" | "sort" => texts().for_each(|name| add_dotted(scope, &name, &mut found)),
            _ => add_dotted(scope, &name, &mut found),
        }
    }
    found
}

fn add_dotted(scope: Scope<'_>, name: &str, found: &mut BTreeSet<usize>) {
    let Some((path, _)) = name.trim_start_matches('-').rsplit_once('.') else { return };
    add_path(scope, path.split('.'), found);
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

    /// The own field of the first link, and the group that each of its values belongs to.
    fn follow_group(
        &self,
        index: usize,
        path: &[usize],
        group: &BoundGroup,
    ) -> Result<(usize, KeyMap), Box<Outcome>> {
        let (link, field, target_field) = self.link(index, path)?;
        let behind;
        let column = match &path[1..] {
            [] => group.column(),
            rest => {
                behind = self.follow_group(link.target, rest, group)?;
                GroupColumn { map: Some(&behind.1), ..GroupColumn::new(behind.0) }
            }
        };
        let groups = self.group(link, Vec::new(), vec![GroupColumn::new(target_field), column])?;
        let mut map = KeyMap::default();
        for GroupRow(values) in groups.rows {
            let mut values = values.into_iter();
            let (Some(key), Some(value)) = (values.next(), values.next()) else { continue };
            map.insert(key, value).map_err(|_| Box::new(self.ambiguous(link)))?;
        }
        Ok((field, map))
    }

    fn link(&self, index: usize, path: &[usize]) -> Result<(&'c Link, usize, usize), Box<Outcome>> {
        let link = path.first().and_then(|link| self.collection(index).links.get(*link));
        link.and_then(|link| link.path_fields().map(|(own, target)| (link, own, target))).ok_or_else(|| {
            let detail = "a path follows a link that leads to many rows".into();
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
        self.inner.backends.readers[link.target]
            .aggregate(&question)
            .map_err(|error| Box::new(self.failed(link, &error)))
    }

    /// The outcome of a call whose question to a link's target failed.
    fn failed(&self, link: &Link, error: &SourceError) -> Outcome {
        let target = self.collection(link.target);
        match error {
            SourceError::TooManyGroups { .. } => {
                let message = format!(
                    "`{}` leads to more than {LINK_KEYS_MAX} rows of {}; add filters on its fields, or use its tools",
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
        let (target, reader) = (self.collection(link.target), &self.inner.backends.readers[link.target]);
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
