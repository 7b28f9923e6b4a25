//! The schemas of a collection's tools: what callers may say, and what they are told.

use json::Json;
use json::write::{self, Object};

use crate::contract::{Collection, Meaning};
use crate::field::{Field, Side};
use crate::source::Test;

/// A failure as data, beside the record: some clients hold failures to the schema too.
const FAILURE: &str = r#"{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}"#;

/// How the values there are begin to be told. What follows is no promise.
pub(crate) const VALUES_NOW: &str = "Values now: ";

pub(crate) fn get_input(collection: &Collection) -> Json {
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            for field in collection.key_fields() {
                properties.object(&field.name, |out| {
                    field.schema(out, Side::Input, described(field, false).as_deref());
                });
            }
        });
        schema.array("required", collection.key_fields(), |out, field| write::string(out, &field.name));
        schema.bool("additionalProperties", false);
    })
}

/// The schema, and what each argument means.
pub(crate) fn list_input(
    collection: &Collection,
    filters: &[usize],
    sorts: &[usize],
) -> (Json, Vec<(String, Meaning)>) {
    let mut meanings = Vec::new();
    let schema = Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            for &column in filters {
                filter(properties, &mut meanings, &collection.fields[column], column);
            }
            if !sorts.is_empty() {
                meanings.push(("sort".to_owned(), Meaning::Sort));
                properties.object("sort", |sort| sort_schema(sort, collection, sorts));
            }
            meanings.push(("fields".to_owned(), Meaning::Fields));
            properties.object("fields", |fields| fields_schema(fields, collection));
            meanings.push(("limit".to_owned(), Meaning::Limit));
            properties.object("limit", |limit| {
                limit.str("type", "integer").int("minimum", 1).int("maximum", collection.rows_max as i64);
                limit.int("default", collection.rows_max as i64);
            });
            meanings.push(("cursor".to_owned(), Meaning::Cursor));
            properties.object("cursor", |cursor| {
                cursor.str("type", "string").str("description", "nextCursor of the page before");
            });
        });
        schema.bool("additionalProperties", false);
    });
    (schema, meanings)
}

fn filter(properties: &mut Object<'_>, meanings: &mut Vec<(String, Meaning)>, field: &Field, column: usize) {
    meanings.push((field.name.clone(), Meaning::Filter { column, test: Test::Equals }));
    properties.object(&field.name, |out| field.schema(out, Side::Input, described(field, true).as_deref()));
    if !field.kind.has_range() || !field.allowed.is_empty() {
        return;
    }
    for (end, test, words) in [("min", Test::AtLeast, "at least"), ("max", Test::AtMost, "at most")] {
        let name = format!("{}_{end}", field.name);
        properties.object(&name, |out| {
            field.schema(out, Side::Input, Some(&format!("{} {words} this", field.name)));
        });
        meanings.push((name, Meaning::Filter { column, test }));
    }
}

fn sort_schema(sort: &mut Object<'_>, collection: &Collection, sorts: &[usize]) {
    sort.str("type", "string");
    let names = sorts.iter().map(|at| &collection.fields[*at].name);
    let both = names.flat_map(|name| [name.clone(), format!("-{name}")]);
    sort.array("enum", both, |out, name| write::string(out, &name));
    sort.str("description", "order; - for descending");
}

fn fields_schema(fields: &mut Object<'_>, collection: &Collection) {
    fields.str("type", "array");
    fields.object("items", |items| {
        items.array("enum", &collection.fields, |out, field| write::string(out, &field.name));
    });
    fields.int("minItems", 1).bool("uniqueItems", true).str("description", "only these fields; default all");
}

pub(crate) fn get_output(collection: &Collection) -> Json {
    or_failure(|record| {
        record_schema(record, collection);
        record.array("required", &collection.fields, |out, field| write::string(out, &field.name));
        record.bool("additionalProperties", false);
    })
}

pub(crate) fn list_output(collection: &Collection) -> Json {
    or_failure(|page| {
        page.object("properties", |properties| {
            properties.object("items", |items| {
                items.str("type", "array").int("maxItems", collection.rows_max as i64);
                let about = format!("at most {} bytes together", collection.bytes_max);
                items.str("description", &about);
                items.object("items", |item| {
                    item.str("type", "object");
                    record_schema(item, collection);
                    item.bool("additionalProperties", false);
                });
            });
            properties.object("nextCursor", |cursor| {
                cursor.str("type", "string");
            });
            properties.object("truncated", |truncated| {
                truncated.str("type", "boolean").str("description", "whether there are more");
            });
            properties.object("total", |total| {
                total.str("type", "integer");
            });
        });
        page.raw("required", r#"["items","truncated"]"#);
        page.bool("additionalProperties", false);
    })
}

fn or_failure(fill: impl FnOnce(&mut Object<'_>)) -> Json {
    let result = Json::object(fill);
    Json::object(|schema| {
        schema.str("type", "object");
        schema.array("anyOf", [result.as_str(), FAILURE], |out, one| out.extend_from_slice(one.as_bytes()));
    })
}

fn record_schema(out: &mut Object<'_>, collection: &Collection) {
    out.object("properties", |properties| {
        for field in &collection.fields {
            properties.object(&field.name, |out| {
                field.schema(out, Side::Output, described(field, false).as_deref());
            });
        }
    });
}

/// A header is for people to read, and models read it too: one line, not long, nothing that hides or turns.
fn plain(header: &str) -> String {
    const CHARS_MAX: usize = 100;
    let hides =
        ['\u{200b}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2060}'..='\u{206f}', '\u{feff}'..='\u{feff}'];
    let is_odd = |c: char| c.is_control() || hides.iter().any(|range| range.contains(&c));
    let mut out: String = header.chars().map(|c| if is_odd(c) { ' ' } else { c }).take(CHARS_MAX).collect();
    if header.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

/// What the author says; else the column's own name where it is another; and, for a filter, the values there
/// are.
fn described(field: &Field, with_values: bool) -> Option<String> {
    let own =
        || (field.column != field.name && !field.column.trim().is_empty()).then(|| plain(&field.column));
    let said = field.description.clone().or_else(own);
    if !with_values || !field.allowed.is_empty() || field.seen.is_empty() {
        return said;
    }
    let values = format!("{VALUES_NOW}{}", field.seen.join(", "));
    Some(match said {
        Some(said) => format!("{}. {values}", said.trim_end_matches('.')),
        None => values,
    })
}
