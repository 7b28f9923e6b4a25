//! Names that follow links, as `customer.country`; and the links whose rows a caller includes.

use json::Node;
use spile_core::{ArgumentErrorKind, ToolError};

use super::filters::SHOWN_MAX;
use super::{invalid_argument, text_list};
use crate::contract::{Cardinality, Collection, INCLUDES_MAX, LINK_DEPTH_MAX, Link};
use crate::humanize::join_truncated;
use crate::nearest::nearest;

/// A collection among those that its links lead to.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'c> {
    pub collections: &'c [Collection],
    pub index: usize,
}

impl<'c> Scope<'c> {
    pub fn new(collections: &'c [Collection], index: usize) -> Self {
        Self { collections, index }
    }

    pub fn collection(self) -> &'c Collection {
        &self.collections[self.index]
    }
}

/// The collection that some links lead to, and what of a name follows them.
pub(super) struct LinkPath<'c, 'n> {
    pub(super) path: Vec<usize>,
    pub(super) scope: Scope<'c>,
    pub(super) rest: &'n str,
}

/// Follows the links at the start of a name. `argument` is the one that errors are about.
pub(super) fn follow<'c, 'n>(
    scope: Scope<'c>,
    argument: &str,
    name: &'n str,
) -> Result<LinkPath<'c, 'n>, Box<ToolError>> {
    let invalid = |kind, message| Err(invalid_argument(argument, kind, message));
    let mut at = LinkPath { path: Vec::new(), scope, rest: name };
    while let Some((link_name, rest)) = at.rest.split_once('.') {
        let collection = at.scope.collection();
        let before = &name[..name.len() - at.rest.len()];
        let Some(index) = collection.links.iter().position(|link| link.name == link_name) else {
            let links: Vec<&str> = followable(collection).map(|link| link.name.as_str()).collect();
            let help = match nearest(link_name, links.iter().copied()) {
                Some(near) => format!("did you mean `{before}{near}.{rest}`?"),
                None if links.is_empty() => "a field has no fields of its own".to_owned(),
                None => format!("links are {}", join_truncated(&links, SHOWN_MAX)),
            };
            let message = format!("unknown link `{before}{link_name}` in `{name}`; {help}");
            return invalid(ArgumentErrorKind::UnknownArgument, message);
        };
        let link = &collection.links[index];
        if link.path_fields().is_none() {
            let target = &at.scope.collections[link.target].name;
            let message = match &link.cardinality {
                Cardinality::ToMany { .. } => format!(
                    "`{name}` cannot be used: a row has many `{link_name}`; use a tool of {target} instead"
                ),
                Cardinality::ToOne => {
                    format!("`{name}` cannot be used: `{link_name}` is linked by several columns")
                }
            };
            return invalid(ArgumentErrorKind::NotAllowed, message);
        }
        if at.path.len() == LINK_DEPTH_MAX {
            let message = format!("`{name}` follows too many links; the limit is {LINK_DEPTH_MAX}");
            return invalid(ArgumentErrorKind::NotAllowed, message);
        }
        at.path.push(index);
        at = LinkPath { scope: Scope { index: link.target, ..at.scope }, rest, path: at.path };
    }
    Ok(at)
}

/// The links of which a filter can ask whether a row has linked rows.
pub(crate) fn countable(collection: &Collection) -> impl Iterator<Item = &Link> {
    collection.links.iter().filter(|link| link.only_fields().is_some())
}

/// Adds the link that a filter asks for linked rows to a path. Returns the field that such a row has a value in. `argument`
/// is the one that errors are about.
pub(super) fn bind_presence<'n>(
    at: &mut LinkPath<'_, 'n>,
    argument: &str,
    link_name: &'n str,
) -> Result<Option<usize>, Box<ToolError>> {
    let collection = at.scope.collection();
    let Some(index) = collection.links.iter().position(|link| link.name == link_name) else {
        return Ok(None);
    };
    let not_allowed = |message| Err(invalid_argument(argument, ArgumentErrorKind::NotAllowed, message));
    let Some((_, target_field)) = collection.links[index].only_fields() else {
        return not_allowed(format!(
            "`{argument}` cannot be used: `{link_name}` is linked by several columns"
        ));
    };
    if at.path.len() == LINK_DEPTH_MAX {
        return not_allowed(format!("`{argument}` follows too many links; the limit is {LINK_DEPTH_MAX}"));
    }
    at.path.push(index);
    Ok(Some(target_field))
}

/// The links that filters and groups can follow.
pub(crate) fn followable(collection: &Collection) -> impl Iterator<Item = &Link> {
    collection.links.iter().filter(|link| link.path_fields().is_some())
}

/// The last of some links.
pub(super) fn last_link<'c>(scope: Scope<'c>, path: &[usize]) -> Option<&'c Link> {
    let mut collection = scope.collection();
    let mut last = None;
    for index in path {
        let link = &collection.links[*index];
        (last, collection) = (Some(link), &scope.collections[link.target]);
    }
    last
}

/// Binds `include`: the indexes of links, each once.
pub(super) fn bind_include(collection: &Collection, node: Node<'_>) -> Result<Vec<usize>, Box<ToolError>> {
    let mut links: Vec<usize> = Vec::new();
    for name in text_list("include", node)? {
        let Some(index) = collection.links.iter().position(|link| link.name == name) else {
            let known: Vec<&str> = collection.links.iter().map(|link| link.name.as_str()).collect();
            let help = match nearest(&name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("expected {}", join_truncated(&known, SHOWN_MAX)),
            };
            let message = format!("unknown link `{name}` in `include`; {help}");
            return Err(invalid_argument("include", ArgumentErrorKind::NotAllowed, message));
        };
        if !links.contains(&index) {
            links.push(index);
        }
    }
    if links.len() > INCLUDES_MAX {
        let message = format!("`include` has {} links; the limit is {INCLUDES_MAX}", links.len());
        return Err(invalid_argument("include", ArgumentErrorKind::TooLong, message));
    }
    Ok(links)
}
