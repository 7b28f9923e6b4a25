//! The schemas of a collection's tools: what callers may say, and what they are told.

use json::Json;
use json::write::{self, ObjectWriter};

use crate::bind::{IDEMPOTENCY_KEY_CHARS_MAX, QUERY_CHARS_MAX};
use crate::confirmation::is_invisible;
use crate::contract::{ArgumentRole, Collection, Returns, Statement, VERSION_FIELD, Versioning};
use crate::field::{Field, SchemaUse};
use crate::source::Comparison;

/// A failure as data, beside the record: some clients hold failures to the schema too.
const ERROR_SCHEMA: &str = r#"{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}"#;

/// How the values there are begin to be told. What follows is no promise.
pub(crate) const VALUES_PREFIX: &str = "Values now: ";

pub(crate) fn get_input(collection: &Collection) -> Json {
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| key_schema(properties, collection));
        schema.array("required", collection.key_fields(), |out, field| write::string(out, &field.name));
        schema.bool("additionalProperties", false);
    })
}

/// The parts of the key, as arguments.
fn key_schema(properties: &mut ObjectWriter<'_>, collection: &Collection) {
    for field in collection.key_fields() {
        properties.object(&field.name, |out| {
            field.write_schema(out, SchemaUse::Lookup, field_description(field, false).as_deref());
        });
    }
}

/// The schema, and what each argument means.
pub(crate) fn list_input(
    collection: &Collection,
    filters: &[usize],
    sorts: &[usize],
) -> (Json, Vec<(String, ArgumentRole)>) {
    let mut meanings = Vec::new();
    let schema = Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            for &column in filters {
                filter_schema(properties, &mut meanings, &collection.fields[column], column);
            }
            if !sorts.is_empty() {
                meanings.push(("sort".to_owned(), ArgumentRole::Sort));
                properties.object("sort", |sort| sort_schema(sort, collection, sorts));
            }
            meanings.push(("fields".to_owned(), ArgumentRole::Fields));
            properties.object("fields", |fields| fields_schema(fields, collection));
            meanings.push(("limit".to_owned(), ArgumentRole::Limit));
            properties.object("limit", |limit| limit_schema(limit, collection));
            meanings.push(("cursor".to_owned(), ArgumentRole::Cursor));
            properties.object("cursor", |cursor| {
                cursor.str("type", "string").str("description", "nextCursor of the page before");
            });
        });
        schema.bool("additionalProperties", false);
    });
    (schema, meanings)
}

pub(crate) fn search_input(collection: &Collection) -> Json {
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            properties.object("query", |query| {
                query.str("type", "string").str("pattern", r"\S").int("maxLength", QUERY_CHARS_MAX as i64);
                query.str("description", "words, all of which a record must have");
            });
            properties.object("fields", |fields| fields_schema(fields, collection));
            properties.object("limit", |limit| limit_schema(limit, collection));
        });
        schema.raw("required", r#"["query"]"#).bool("additionalProperties", false);
    })
}

/// A new record: these fields may be said, and the required ones must.
pub(crate) fn create_input(collection: &Collection, fields: &[usize], required: &[usize]) -> Json {
    let named = |at: &usize| collection.fields[*at].name.as_str();
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            settable_schema(properties, collection, fields);
            write_options_schema(properties);
        });
        if !required.is_empty() {
            schema.array("required", required.iter().map(named), write::string);
        }
        schema.bool("additionalProperties", false);
    })
}

/// The key, and some of these fields: at least one, though a schema that is a plain object cannot say it fully.
pub(crate) fn update_input(collection: &Collection, fields: &[usize]) -> Json {
    keyed_input(collection, |properties| settable_schema(properties, collection, fields), 1)
}

pub(crate) fn delete_input(collection: &Collection) -> Json {
    keyed_input(collection, |_| {}, 0)
}

/// What finds one record and says which state of it is meant, with `more` in between.
fn keyed_input(collection: &Collection, more: impl FnOnce(&mut ObjectWriter<'_>), least: usize) -> Json {
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            key_schema(properties, collection);
            more(properties);
            properties.object("expected_version", |version| expected_version_schema(version, collection));
            write_options_schema(properties);
        });
        let must = collection.write_policy.as_ref().is_some_and(|writes| writes.version_required);
        let names = collection.key_fields().map(|field| field.name.as_str());
        let names: Vec<&str> = names.chain(must.then_some("expected_version")).collect();
        schema.array("required", &names, |out, name| write::string(out, name));
        if least > 0 {
            schema.int("minProperties", (names.len() + least) as i64);
        }
        schema.bool("additionalProperties", false);
    })
}

fn settable_schema(properties: &mut ObjectWriter<'_>, collection: &Collection, fields: &[usize]) {
    for field in fields.iter().map(|at| &collection.fields[*at]) {
        properties.object(&field.name, |out| {
            field.write_schema(out, SchemaUse::Write, field_description(field, true).as_deref());
        });
    }
}

fn expected_version_schema(out: &mut ObjectWriter<'_>, collection: &Collection) {
    match collection.write_policy.as_ref().map(|writes| writes.versioning) {
        Some(Versioning::Field(at)) => {
            let field = &collection.fields[at];
            let about = format!("{} of the record as you know it; another is a conflict", field.name);
            field.write_schema(out, SchemaUse::Write, Some(&about));
        }
        Some(Versioning::Digest) | None => {
            out.str("type", "string");
            out.str("description", "_version of the record as you know it; another is a conflict");
        }
    }
}

/// What makes a repetition harmless, and what only tries.
fn write_options_schema(properties: &mut ObjectWriter<'_>) {
    properties.object("idempotency_key", |key| {
        key.str("type", "string").int("minLength", 1).int("maxLength", IDEMPOTENCY_KEY_CHARS_MAX as i64);
        key.str("description", "any text of your own; the same again does nothing twice");
    });
    properties.object("dry_run", |dry_run| {
        dry_run.str("type", "boolean").str("description", "say what would be, and write nothing");
    });
}

pub(crate) fn statement_input(statement: &Statement) -> Json {
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            for argument in &statement.arguments {
                let field = &argument.field;
                properties.object(&field.name, |out| {
                    field.write_schema(out, SchemaUse::Write, field.description.as_deref());
                    let mut default = Vec::new();
                    if argument.default != crate::Value::Null
                        && field.write_value(&mut default, argument.default.as_value_ref()).is_ok()
                    {
                        out.raw("default", Json::from_written_bytes(default).as_str());
                    }
                });
            }
            if statement.shape.writes {
                write_options_schema(properties);
            }
        });
        let required = statement.arguments.iter().filter(|argument| argument.required);
        let required: Vec<&str> = required.map(|argument| argument.field.name.as_str()).collect();
        if !required.is_empty() {
            schema.array("required", &required, |out, name| write::string(out, name));
        }
        schema.bool("additionalProperties", false);
    })
}

fn limit_schema(limit: &mut ObjectWriter<'_>, collection: &Collection) {
    limit.str("type", "integer").int("minimum", 1).int("maximum", collection.rows_max as i64);
    limit.int("default", collection.rows_max as i64);
}

fn filter_schema(
    properties: &mut ObjectWriter<'_>,
    meanings: &mut Vec<(String, ArgumentRole)>,
    field: &Field,
    column: usize,
) {
    meanings.push((field.name.clone(), ArgumentRole::Filter { column, comparison: Comparison::Equals }));
    properties.object(&field.name, |out| {
        field.write_schema(out, SchemaUse::Lookup, field_description(field, true).as_deref())
    });
    if !field.data_type.has_range() || !field.allowed.is_empty() {
        return;
    }
    for (end, test, words) in
        [("min", Comparison::AtLeast, "at least"), ("max", Comparison::AtMost, "at most")]
    {
        let name = format!("{}_{end}", field.name);
        properties.object(&name, |out| {
            field.write_schema(out, SchemaUse::Lookup, Some(&format!("{} {words} this", field.name)));
        });
        meanings.push((name, ArgumentRole::Filter { column, comparison: test }));
    }
}

fn sort_schema(sort: &mut ObjectWriter<'_>, collection: &Collection, sorts: &[usize]) {
    sort.str("type", "string");
    let names = sorts.iter().map(|at| &collection.fields[*at].name);
    let both = names.flat_map(|name| [name.clone(), format!("-{name}")]);
    sort.array("enum", both, |out, name| write::string(out, &name));
    sort.str("description", "order; - for descending");
}

fn fields_schema(fields: &mut ObjectWriter<'_>, collection: &Collection) {
    fields.str("type", "array");
    fields.object("items", |items| {
        let names = collection.fields.iter().map(|field| field.name.as_str());
        let version = collection.has_version_field().then_some(VERSION_FIELD);
        items.array("enum", names.chain(version), write::string);
    });
    fields.int("minItems", 1).bool("uniqueItems", true).str("description", "only these fields; default all");
}

pub(crate) fn get_output(collection: &Collection) -> Json {
    or_error(|record| full_record_schema(record, collection))
}

pub(crate) fn list_output(collection: &Collection) -> Json {
    or_error(|page| {
        page.object("properties", |properties| {
            items_schema(properties, collection, ItemFields::Selected);
            properties.object("nextCursor", |cursor| {
                cursor.str("type", "string");
            });
            truncated_schema(properties);
            properties.object("total", |total| {
                total.str("type", "integer");
            });
            properties.object("total_at_least", |total| {
                total
                    .str("type", "integer")
                    .str("description", "instead of `total`, if counting stopped here");
            });
        });
        page.raw("required", r#"["items","truncated"]"#);
        page.bool("additionalProperties", false);
    })
}

pub(crate) fn search_output(collection: &Collection) -> Json {
    or_error(|found| {
        found.object("properties", |properties| {
            items_schema(properties, collection, ItemFields::Selected);
            truncated_schema(properties);
            properties.object("searched", |searched| {
                searched.str("type", "string").str("description", "`all`, or how many rows were looked at");
            });
        });
        found.raw("required", r#"["items","truncated","searched"]"#).bool("additionalProperties", false);
    })
}

/// What came of a write, and the record as it is now; of one that is deleted, as it was.
pub(crate) fn write_output(collection: &Collection, outcomes: &[&str]) -> Json {
    or_error(|written| {
        written.object("properties", |properties| {
            properties.object("outcome", |outcome| {
                outcome.array("enum", outcomes, |out, one| write::string(out, one));
            });
            properties.object("record", |record| {
                record.str("type", "object");
                full_record_schema(record, collection);
            });
            write_flags_schema(properties);
        });
        written.raw("required", r#"["outcome","record"]"#).bool("additionalProperties", false);
    })
}

pub(crate) fn statement_output(statement: &Statement) -> Json {
    let (result, writes) = (&statement.result, statement.shape.writes);
    if statement.returns == Returns::One && !writes {
        return or_error(|record| full_record_schema(record, result));
    }
    or_error(|told| {
        let mut required = Vec::new();
        told.object("properties", |properties| {
            if writes {
                required.push("changed");
                properties.object("changed", |changed| {
                    changed.str("type", "integer").str("description", "how many rows were changed");
                });
            }
            match statement.returns {
                _ if result.fields.is_empty() => {}
                Returns::One => {
                    required.push("record");
                    properties.object("record", |record| {
                        record.str("type", "object");
                        full_record_schema(record, result);
                    });
                }
                Returns::Many => {
                    required.extend(["items", "truncated"]);
                    items_schema(properties, result, ItemFields::All);
                    truncated_schema(properties);
                }
            }
            if writes {
                write_flags_schema(properties);
            }
        });
        told.array("required", &required, |out, name| write::string(out, name));
        told.bool("additionalProperties", false);
    })
}

/// What there is to say of a write besides what came of it.
fn write_flags_schema(properties: &mut ObjectWriter<'_>) {
    properties.object("dry_run", |dry_run| {
        dry_run.bool("const", true).str("description", "nothing was written");
    });
    properties.object("replayed", |replayed| {
        replayed.bool("const", true).str("description", "it was done before, with this idempotency_key");
    });
}

/// Whether items have all fields, or those that were asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemFields {
    All,
    Selected,
}

fn items_schema(properties: &mut ObjectWriter<'_>, collection: &Collection, whole: ItemFields) {
    properties.object("items", |items| {
        items.str("type", "array").int("maxItems", collection.rows_max as i64);
        let about = format!("at most {} bytes together", collection.bytes_max);
        items.str("description", &about);
        items.object("items", |item| {
            item.str("type", "object");
            if whole == ItemFields::All {
                return full_record_schema(item, collection);
            }
            record_schema(item, collection);
            item.bool("additionalProperties", false);
        });
    });
}

fn truncated_schema(properties: &mut ObjectWriter<'_>) {
    properties.object("truncated", |truncated| {
        truncated.str("type", "boolean").str("description", "whether there are more");
    });
}

/// A record with all its fields.
fn full_record_schema(record: &mut ObjectWriter<'_>, collection: &Collection) {
    record_schema(record, collection);
    let names = collection.fields.iter().map(|field| field.name.as_str());
    let version = collection.has_version_field().then_some(VERSION_FIELD);
    record.array("required", names.chain(version), write::string);
    record.bool("additionalProperties", false);
}

fn or_error(fill: impl FnOnce(&mut ObjectWriter<'_>)) -> Json {
    let result = Json::object(fill);
    Json::object(|schema| {
        schema.str("type", "object");
        schema.array("anyOf", [result.as_str(), ERROR_SCHEMA], |out, one| {
            out.extend_from_slice(one.as_bytes())
        });
    })
}

fn record_schema(out: &mut ObjectWriter<'_>, collection: &Collection) {
    out.object("properties", |properties| {
        for field in &collection.fields {
            properties.object(&field.name, |out| {
                field.write_schema(out, SchemaUse::Output, field_description(field, false).as_deref());
            });
        }
        if collection.has_version_field() {
            properties.object(VERSION_FIELD, |version| {
                version.str("type", "string").str("description", "of its state; see expected_version");
            });
        }
    });
}

/// A header is for people to read, and models read it too: one line, not long, nothing that hides or turns.
fn plain_header(header: &str) -> String {
    const CHARS_MAX: usize = 100;
    let mut out: String =
        header.chars().map(|c| if is_invisible(c) { ' ' } else { c }).take(CHARS_MAX).collect();
    if header.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

/// What the author says; else the column's own name where it is another; and, for a filter, the values there
/// are.
fn field_description(field: &Field, with_values: bool) -> Option<String> {
    let own = || {
        (field.column != field.name && !field.column.trim().is_empty()).then(|| plain_header(&field.column))
    };
    let said = field.description.clone().or_else(own);
    if !with_values || !field.allowed.is_empty() || field.observed_values.is_empty() {
        return said;
    }
    let values = format!("{VALUES_PREFIX}{}", field.observed_values.join(", "));
    Some(match said {
        Some(said) => format!("{}. {values}", said.trim_end_matches('.')),
        None => values,
    })
}
