//! Parses `[collections.NAME.related.NAME]`.

use super::reader::{Entry, ManifestReader, TomlTable};
use super::sections::located_text;
use super::{DeclaredLink, LINK_ROWS_MAX_DEFAULT};
use crate::diagnostic::{FileLocation, Located};
use crate::names;

pub(super) fn parse_links(reader: &mut ManifestReader<'_>, table: &mut TomlTable<'_>) -> Vec<DeclaredLink> {
    let named = reader.named_tables(table, "related");
    named.into_iter().filter_map(|(entry, table)| parse_link(reader, &entry, table)).collect()
}

fn parse_link(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
) -> Option<DeclaredLink> {
    let t = &mut table;
    let others: Vec<(&str, FileLocation)> = ["collection", "by", "sort", "rows_max"]
        .into_iter()
        .filter_map(|name| Some((name, t.key_location(name)?)))
        .collect();
    let link = DeclaredLink {
        name: Located::new(entry.key.to_owned(), entry.key_location.clone()),
        collection: reader.text(t, "collection").map(located_text),
        by: reader.column_pairs(t, "by").into_iter().map(|(own, other)| (own, located_text(other))).collect(),
        sort: reader.columns(t, "sort").unwrap_or_default().into_iter().map(located_text).collect(),
        rows_max: reader.integer(t, "rows_max").unwrap_or(LINK_ROWS_MAX_DEFAULT),
        hidden: reader.boolean(t, "hidden").unwrap_or(false),
    };
    reader.finish(table);
    if !names::is_field_name(entry.key) {
        let message = format!("`{}` is not a valid name for a link", entry.key);
        let help = match names::RESERVED_NAMES.contains(&entry.key) {
            true => "it is the name of another argument; choose a different one".to_owned(),
            false => format!("use at most {} ASCII letters, digits and `_`", names::FIELD_CHARS_MAX),
        };
        reader.error(&entry.key_location, message, help);
        return None;
    }
    if let (true, Some((name, at))) = (link.hidden, others.first()) {
        let message = format!("`{name}` has no effect: the link is hidden");
        reader.error(at, message, "remove it or `hidden`");
    }
    Some(link)
}
