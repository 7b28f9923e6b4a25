//! The instructions of a server whose author wrote none: which data there is, how much of it, what one row is, and which
//! collections it is linked to.
//!
//! Clients send them to the model before any tool is used, so they stay under [`BYTES_MAX`]. Row counts are rounded: a
//! few more rows must not change what is served. Generated instructions are not part of the published interface.

use super::IntrospectedSource;
use super::tools::CollectionLabels;
use crate::contract::{Collection, Overview, Tool};
use crate::humanize::{group_digits, join_truncated, pluralize};
use crate::manifest::Manifest;

/// The maximum size of generated instructions.
const BYTES_MAX: usize = 1000;
/// Room for the lines that count the collections without a line of their own, and that name the overview.
const REST_BYTES: usize = 120;
const FILES_NAMED_MAX: usize = 4;
const COLUMNS_NAMED_MAX: usize = 8;

/// `None` if no tool reads a collection.
pub(super) fn generate(
    manifest: &Manifest,
    known: &[IntrospectedSource<'_>],
    collections: &[Collection],
    tools: &[&Tool],
) -> Option<String> {
    let lines: Vec<String> = collections
        .iter()
        .enumerate()
        .filter_map(|(index, collection)| collection_line(manifest, known, collection, index, tools))
        .collect();
    if lines.is_empty() {
        return None;
    }
    let mut files: Vec<String> = Vec::new();
    for collection in collections {
        let file = CollectionLabels::new(manifest, collection).file;
        if !files.contains(&file) {
            files.push(file);
        }
    }
    let mut is_whole = collections.iter().all(|one| one.fields.len() <= COLUMNS_NAMED_MAX);
    let mut out = format!("Data from {}.", join_truncated(&files, FILES_NAMED_MAX));
    for (index, line) in lines.iter().enumerate() {
        if out.len() + line.len() + 1 > BYTES_MAX - REST_BYTES {
            let rest = (lines.len() - index) as u64;
            out.push_str(&format!("\nand {}.", pluralize(rest, "more collection")));
            is_whole = false;
            break;
        }
        out.push('\n');
        out.push_str(line);
    }
    if manifest.tables_left_out > 0 {
        let tables = pluralize(manifest.tables_left_out as u64, "more table");
        out.push_str(&format!("\n{tables} not served."));
    }
    if !is_whole {
        out.push_str(&format!("\nAll columns, types and links: resource {}.", Overview::URI));
    }
    Some(out)
}

/// `- "Stock List" (inventory.xlsx): about 500 rows, one per sku, with sku, item, quantity and 2 more. Tools: …`
fn collection_line(
    manifest: &Manifest,
    known: &[IntrospectedSource<'_>],
    collection: &Collection,
    index: usize,
    tools: &[&Tool],
) -> Option<String> {
    let names: Vec<&str> = tools
        .iter()
        .filter(|tool| tool.operation.collection() == Some(index))
        .map(|tool| tool.name.as_str())
        .collect();
    if names.is_empty() {
        return None;
    }
    let label = CollectionLabels::new(manifest, collection).full;
    let declared = manifest.collections.iter().find(|one| one.name.value == collection.name);
    let row = match declared.and_then(|declared| declared.description.as_deref()) {
        Some(description) => format!(". {}", description.trim_end_matches('.')),
        None => {
            let key: Vec<&str> = collection.key_fields().map(|field| field.name.as_str()).collect();
            let columns: Vec<&str> = collection.fields.iter().map(|field| field.name.as_str()).collect();
            let one_per =
                if key.is_empty() { String::new() } else { format!(", one per {}", key.join(" and ")) };
            format!("{one_per}, with {}", join_truncated(&columns, COLUMNS_NAMED_MAX))
        }
    };
    let rows = row_count(known, collection).map_or_else(|| "rows".to_owned(), approximate_rows);
    let links: Vec<&str> = collection.links.iter().map(|link| link.name.as_str()).collect();
    let links = match links.is_empty() {
        true => String::new(),
        false => format!(" Links: {}.", join_truncated(&links, COLUMNS_NAMED_MAX)),
    };
    Some(format!("- {label}: {rows}{row}.{links} Tools: {}.", join_truncated(&names, COLUMNS_NAMED_MAX)))
}

pub(super) fn row_count(known: &[IntrospectedSource<'_>], collection: &Collection) -> Option<u64> {
    let facts = known.iter().find(|one| one.name == collection.source)?.facts;
    facts.tables.iter().find(|table| table.name == collection.shape.table)?.row_count
}

/// Two significant digits from 100 on, one from 20 on. A new row in a small table must not change the text.
pub(super) fn approximate_rows(rows: u64) -> String {
    let unit = match rows {
        0..20 => return "fewer than 20 rows".to_owned(),
        20..100 => 10,
        _ => 10_u64.pow(rows.ilog10() - 1),
    };
    let rounded = (rows.saturating_add(unit / 2) / unit).saturating_mul(unit);
    format!("about {} rows", group_digits(rounded))
}

#[cfg(test)]
mod tests {
    use super::approximate_rows;

    #[test]
    fn row_counts_are_rounded() {
        for (rows, expected) in [
            (0, "fewer than 20 rows"),
            (1, "fewer than 20 rows"),
            (19, "fewer than 20 rows"),
            (20, "about 20 rows"),
            (26, "about 30 rows"),
            (95, "about 100 rows"),
            (500, "about 500 rows"),
            (12_345, "about 12,000 rows"),
            (999_999, "about 1,000,000 rows"),
        ] {
            assert_eq!(approximate_rows(rows), expected);
        }
    }
}
