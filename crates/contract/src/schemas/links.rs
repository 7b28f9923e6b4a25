//! What links add to schemas: `include`, fields of linked rows as filters, and the rows in results.

use json::write::ObjectWriter;

use super::FilterDetail;
use crate::bind::{FilterSuffix, Scope, followable, is_measurable};
use crate::contract::{Cardinality, Collection, LINK_DEPTH_MAX, Link};
use crate::data_type::DataType;
use crate::source::AggregateFunction;

/// Arguments that name a field of a linked row: `customer.country`. The tool's description has an example, and `bind`
/// checks them: each of them in the schema would cost more tokens than all others.
pub(super) const DOTTED_PATTERN: &str = "[.]";

/// `include`: links whose rows are added to the result.
pub(super) fn include_schema(properties: &mut ObjectWriter<'_>, scope: Scope<'_>, detail: FilterDetail) {
    let collection = scope.collection();
    if collection.links.is_empty() {
        return;
    }
    properties.object("include", |include| {
        super::names_type(include);
        if detail == FilterDetail::Full {
            let names: Vec<String> = collection.links.iter().map(|link| link_label(scope, link)).collect();
            include.str("description", &format!("linked rows to add: {}", names.join(", ")));
        }
    });
}

/// The name of a link, and where it leads unless the name says so.
fn link_label(scope: Scope<'_>, link: &Link) -> String {
    let target = &scope.collections[link.target].name;
    match target.starts_with(&link.name) || link.name.starts_with(target.as_str()) {
        true => link.name.clone(),
        false => format!("{} ({target})", link.name),
    }
}

/// A field of a linked row as an argument, preferably one that says what the row is.
pub(crate) fn linked_example(scope: Scope<'_>) -> Option<String> {
    let collection = scope.collection();
    followable(collection).find_map(|link| {
        let target = &scope.collections[link.target];
        let is_key = |at: &usize| target.shape.key.contains(at);
        let others =
            || link.filters.iter().copied().filter(|at| !is_key(at) && !target.fields[*at].sensitive);
        let text = others().find(|at| target.fields[*at].data_type == DataType::Text);
        let field = text.or_else(|| others().next())?;
        Some(format!("{}.{}", link.name, target.fields[field].name))
    })
}

/// A number of a linked row, as part of a measure's name.
pub(super) fn linked_number(scope: Scope<'_>) -> Option<String> {
    followable(scope.collection()).find_map(|link| {
        let target = &scope.collections[link.target];
        let is_key = |at: &usize| {
            target.shape.key.contains(at)
                || target.links.iter().any(|link| link.fields.iter().any(|(own, _)| own == at))
        };
        let number = link.filters.iter().filter(|at| !is_key(at)).find(|at| {
            let field = &target.fields[**at];
            is_measurable(field, AggregateFunction::Avg)
        })?;
        Some(format!("{}.{}", link.name, target.fields[*number].name))
    })
}

/// A pattern cannot say which arguments must not be logged, so those are listed.
pub(super) fn sensitive_schema(properties: &mut ObjectWriter<'_>, scope: Scope<'_>) {
    sensitive_arguments(properties, scope, "", LINK_DEPTH_MAX);
}

fn sensitive_arguments(properties: &mut ObjectWriter<'_>, scope: Scope<'_>, before: &str, depth: usize) {
    if depth == 0 {
        return;
    }
    for link in followable(scope.collection()) {
        let target = &scope.collections[link.target];
        let before = format!("{before}{}.", link.name);
        let sensitive = link.filters.iter().map(|at| &target.fields[*at]).filter(|field| field.sensitive);
        for field in sensitive {
            let suffixes = FilterSuffix::ALL.into_iter().filter(|suffix| suffix.applies_to(field));
            let suffixes = suffixes.map(FilterSuffix::as_str);
            for suffix in std::iter::once("").chain(suffixes) {
                properties.object(&format!("{before}{}{suffix}", field.name), super::sensitive_argument);
            }
        }
        sensitive_arguments(properties, Scope { index: link.target, ..scope }, &before, depth - 1);
    }
}

/// The members of a row that `include` adds.
pub(super) fn output_schema(properties: &mut ObjectWriter<'_>, collection: &Collection) {
    for link in &collection.links {
        properties.object(&link.name, |out| match link.cardinality {
            Cardinality::ToOne => {
                out.raw("type", r#"["object","null"]"#);
            }
            Cardinality::ToMany { .. } => {
                out.str("type", "object").raw("required", r#"["items","truncated"]"#);
            }
        });
    }
}
