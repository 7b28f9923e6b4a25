//! Input and output schemas of tools, and the descriptions of their arguments.

mod links;

use std::borrow::Cow;

use json::Json;
use json::write::{self, ObjectWriter};

use crate::aggregate::GROUP_FIELDS_MAX;
use crate::bind::{self, FilterSuffix, IDEMPOTENCY_KEY_CHARS_MAX, QUERY_CHARS_MAX, Scope};
use crate::confirmation::is_invisible;
use crate::contract::{
    Argument, Collection, NOTICES_FIELD, NOTICES_MEMBER, Request, Returns, Statement, VERSION_FIELD,
    Versioning,
};
use crate::data_type::DataType;
use crate::field::{Field, SENSITIVE_KEYWORD, SchemaUse};
use crate::humanize::join_truncated;
use crate::source::{AggregateFunction, WriteCapabilities};
use crate::wide;

pub(crate) use links::linked_example;

/// The error alternative of every output schema: some clients validate error results too.
const ERROR_SCHEMA: &str = r#"{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}"#;

/// Starts the list of a column's current values in a description. Whatever follows it depends on the data, so it
/// is not part of the contract.
pub(crate) const VALUES_PREFIX: &str = "Current values: ";

/// A query has at least one term.
pub(crate) const QUERY_PATTERN: &str = r"\S";

pub(crate) fn get_input_schema(scope: Scope<'_>) -> Json {
    let collection = scope.collection();
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            key_schema(properties, collection);
            links::include_schema(properties, scope, FilterDetail::Full);
        });
        schema.array("required", collection.key_fields(), |out, field| write::string(out, &field.name));
        schema.bool("additionalProperties", false);
    })
}

/// One argument for each part of the key.
fn key_schema(properties: &mut ObjectWriter<'_>, collection: &Collection) {
    for field in collection.key_fields() {
        properties.object(&field.name, |out| {
            field.write_schema(out, SchemaUse::Lookup, field_description(field, false).as_deref());
        });
    }
}

/// Arguments that are a field's name and a suffix. Listing each would cost more tokens than all other arguments together;
/// the tool's description says what they mean, and `bind` checks which field takes which.
const SUFFIX_PATTERN: &str = "_(min|max|not|contains|starts|null)$";

/// How much the schema of a filter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterDetail {
    /// Its type, and its description.
    Full,
    /// Its type, where another tool of the collection says the rest.
    Type,
}

/// The filters of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfferedFilters<'a> {
    /// Fields with an argument in the schema.
    pub(crate) listed: &'a [usize],
    /// Whether callers can filter by other fields too.
    pub(crate) has_others: bool,
}

/// Any column is an argument, where not all of them are listed. `bind` checks the names.
const COLUMN_PATTERN: &str = "^.";

pub(crate) fn list_input_schema(scope: Scope<'_>, filters: OfferedFilters<'_>, sorts: &[usize]) -> Json {
    let collection = scope.collection();
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            filters_schema(properties, collection, filters.listed, FilterDetail::Full);
            links::include_schema(properties, scope, FilterDetail::Full);
            if !sorts.is_empty() {
                properties.object("sort", |sort| {
                    names_type(sort);
                    sort.str("description", &sort_description(collection, sorts));
                });
            }
            paging_schema(properties, collection, FilterDetail::Full);
            links::sensitive_schema(properties, scope);
        });
        if collection.is_wide() {
            schema.raw("required", r#"["fields"]"#);
        }
        close_schema(schema, scope, filters);
    })
}

/// Beside a list, which has the same filters, only those are listed that a pattern cannot describe.
pub(crate) fn search_input_schema(scope: Scope<'_>, filters: OfferedFilters<'_>, has_list: bool) -> Json {
    let collection = scope.collection();
    let sensitive: Vec<usize> =
        filters.listed.iter().copied().filter(|at| collection.fields[*at].sensitive).collect();
    let filters = match has_list && !filters.listed.is_empty() {
        true => OfferedFilters { listed: &sensitive, has_others: true },
        false => filters,
    };
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            properties.object("query", |query| {
                query
                    .str("type", "string")
                    .str("pattern", QUERY_PATTERN)
                    .int("maxLength", QUERY_CHARS_MAX as i64);
            });
            let detail = if has_list { FilterDetail::Type } else { FilterDetail::Full };
            filters_schema(properties, collection, filters.listed, FilterDetail::Full);
            links::include_schema(properties, scope, detail);
            paging_schema(properties, collection, detail);
            links::sensitive_schema(properties, scope);
        });
        schema.raw("required", if collection.is_wide() { r#"["query","fields"]"# } else { r#"["query"]"# });
        close_schema(schema, scope, filters);
    })
}

/// An argument names no more columns than this.
const COLUMNS_NAMED_MAX: usize = 20;

pub(crate) fn aggregate_input_schema(scope: Scope<'_>, filters: OfferedFilters<'_>, has_list: bool) -> Json {
    let collection = scope.collection();
    let mut fields = collection.fields.iter();
    let number = fields
        .clone()
        .find(|field| bind::is_measurable(field, AggregateFunction::Sum) && !is_key(collection, field));
    let date = fields.find(|field| bind::is_groupable(field) && bind::has_date_units(field));
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            properties.object("group", |group| {
                let mut parts = vec![match chosen_columns(collection, bind::is_groupable) {
                    None => format!("up to {GROUP_FIELDS_MAX} columns"),
                    Some(names) if names.is_empty() => "no column of these rows".to_owned(),
                    Some(names) => {
                        format!("up to {GROUP_FIELDS_MAX} of {}", join_truncated(&names, COLUMNS_NAMED_MAX))
                    }
                }];
                parts.extend(date.map(|date| {
                    format!("a date column by _year, _quarter, _month, _week or _day: {}_month", date.name)
                }));
                parts.extend(
                    linked_example(scope).map(|example| format!("a column of a linked row: {example}")),
                );
                names_type(group);
                group.str("description", &parts.join("; "));
            });
            properties.object("measures", |measures| {
                let columns =
                    chosen_columns(collection, |field| bind::is_measurable(field, AggregateFunction::Min));
                const FUNCTIONS: &str = "min_, max_ or distinct_ before";
                let mut description = match (columns, number) {
                    (None, None) => format!("count (default), or {FUNCTIONS} a column"),
                    (None, Some(number)) => {
                        format!("count (default), or sum_, avg_, {FUNCTIONS} a column: sum_{}", number.name)
                    }
                    (Some(names), _) if names.is_empty() => "count (default)".to_owned(),
                    (Some(names), number) => {
                        let sums = if number.is_some() { "sum_, avg_, " } else { "" };
                        let names = join_truncated(&names, COLUMNS_NAMED_MAX);
                        format!("count (default), or {sums}{FUNCTIONS} {names}")
                    }
                };
                if let Some(example) = links::linked_number(scope) {
                    description += &format!("; a column of a linked row: avg_{example}");
                }
                names_type(measures);
                measures.str("description", &description);
            });
            properties.object("having", |having| {
                having.str("type", "object").raw("properties", r#"{"count_min":{"type":"number"}}"#);
                having.str(
                    "description",
                    "keep groups in which a measure has at least (_min) or at most (_max) this value",
                );
            });
            properties.object("sort", |sort| {
                names_type(sort);
                sort.str("description", "groups or measures; `-` for descending: -count");
            });
            properties.object("limit", |limit| limit_schema(limit, collection));
            let detail = if has_list { FilterDetail::Type } else { FilterDetail::Full };
            for &column in filters.listed {
                let field = &collection.fields[column];
                filter_schema(properties, &bind::filter_argument(field), field, detail);
            }
            links::sensitive_schema(properties, scope);
        });
        close_schema(
            schema,
            scope,
            OfferedFilters {
                has_others: filters.has_others || (has_list && !filters.listed.is_empty()),
                ..filters
            },
        );
    })
}

/// The columns that an aggregate may use, by name, if the author chose some of them.
fn chosen_columns(collection: &Collection, is_chosen: impl Fn(&Field) -> bool) -> Option<Vec<&str>> {
    let comparable = || collection.fields.iter().filter(|field| bind::is_comparable(field));
    let names: Vec<&str> = comparable().filter(|field| is_chosen(field)).map(|field| &*field.name).collect();
    (names.len() < comparable().count()).then_some(names)
}

fn is_key(collection: &Collection, field: &Field) -> bool {
    collection.key_fields().any(|key| key.name == field.name)
}

/// A name, or an array of names. `bind` checks them: the names are those of the filters, so the schema need not repeat them.
fn names_type(out: &mut ObjectWriter<'_>) {
    out.raw("type", r#"["string","array"]"#).raw("items", r#"{"type":"string"}"#);
}

/// `fields`, `limit` and `cursor`.
fn paging_schema(properties: &mut ObjectWriter<'_>, collection: &Collection, detail: FilterDetail) {
    properties.object("fields", |fields| {
        fields.str("type", "array").raw("items", r#"{"type":"string"}"#);
        let description = match collection.is_wide() {
            true if detail == FilterDetail::Full => Cow::Owned(wide::fields_description(collection)),
            true => Cow::Borrowed("columns to return, or groups of them"),
            false => Cow::Borrowed("columns to return; default: all"),
        };
        fields.str("description", &description);
    });
    properties.object("limit", |limit| limit_schema(limit, collection));
    properties.object("cursor", |cursor| {
        cursor.str("type", "string").str("description", "`nextCursor` of the previous page");
    });
}

/// No other arguments than the properties, fields with a suffix if there are filters, and fields of linked rows.
fn close_schema(schema: &mut ObjectWriter<'_>, scope: Scope<'_>, filters: OfferedFilters<'_>) {
    if filters.has_others {
        schema.object("patternProperties", |patterns| {
            patterns.raw(COLUMN_PATTERN, "{}");
        });
        schema.bool("additionalProperties", false);
        return;
    }
    let filters = filters.listed;
    let has_links = bind::followable(scope.collection()).next().is_some();
    // Whether there are linked rows is asked with a suffix, too.
    let has_suffixes = !filters.is_empty() || bind::countable(scope.collection()).next().is_some();
    if has_suffixes || has_links {
        schema.object("patternProperties", |patterns| {
            if has_suffixes {
                patterns.raw(SUFFIX_PATTERN, "{}");
            }
            if has_links {
                patterns.raw(links::DOTTED_PATTERN, "{}");
            }
        });
    }
    schema.bool("additionalProperties", false);
}

fn sort_description(collection: &Collection, sorts: &[usize]) -> String {
    let fields = &collection.fields;
    let by_any = fields.iter().filter(|field| field.data_type.is_scalar()).count() == sorts.len();
    let name = sorts.first().map_or("", |at| fields[*at].name.as_str());
    if by_any {
        return format!("columns; `-` for descending: -{name}");
    }
    let names: Vec<&str> = sorts.iter().map(|at| fields[*at].name.as_str()).collect();
    format!("{}; `-` for descending: -{name}", names.join(", "))
}

/// A new row: `fields` may be given, `required` must be.
pub(crate) fn create_input_schema(collection: &Collection, fields: &[usize], required: &[usize]) -> Json {
    let named = |at: &usize| collection.fields[*at].name.as_str();
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            settable_schema(properties, collection, fields);
            write_options_schema(properties, collection.write_capabilities());
        });
        if !required.is_empty() {
            schema.array("required", required.iter().map(named), write::string);
        }
        schema.bool("additionalProperties", false);
    })
}

/// The key and some of `fields`. A plain object schema cannot say "at least one of these", so `bind` checks that.
pub(crate) fn update_input_schema(collection: &Collection, fields: &[usize]) -> Json {
    keyed_input_schema(collection, |properties| settable_schema(properties, collection, fields))
}

pub(crate) fn delete_input_schema(collection: &Collection) -> Json {
    keyed_input_schema(collection, |_| {})
}

/// The key, the arguments that `more` adds, `expected_version` and the write options.
fn keyed_input_schema(collection: &Collection, more: impl FnOnce(&mut ObjectWriter<'_>)) -> Json {
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            key_schema(properties, collection);
            more(properties);
            let capabilities = collection.write_capabilities();
            if capabilities.has(WriteCapabilities::ROW_VERSIONS) {
                properties.object("expected_version", |version| expected_version_schema(version, collection));
            }
            write_options_schema(properties, capabilities);
        });
        let version_required = collection.write_policy.as_ref().is_some_and(|writes| writes.version_required);
        let names = collection.key_fields().map(|field| field.name.as_str());
        let names: Vec<&str> = names.chain(version_required.then_some("expected_version")).collect();
        schema.array("required", &names, |out, name| write::string(out, name));
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
    match collection.write_policy.as_ref().map(|policy| policy.versioning) {
        Some(Versioning::Field(at)) => {
            let field = &collection.fields[at];
            let description = expected_version_description(&field.name);
            field.write_schema(out, SchemaUse::Write, Some(&description));
        }
        Some(Versioning::Digest) | None => {
            out.str("type", "string");
            out.str("description", &expected_version_description(VERSION_FIELD));
        }
    }
}

fn expected_version_description(field: &str) -> String {
    format!("`{field}` of the row you read; fails with `conflict` if it has changed")
}

/// The arguments that every writing tool has, where the source can do what they ask for.
fn write_options_schema(properties: &mut ObjectWriter<'_>, capabilities: WriteCapabilities) {
    if capabilities.has(WriteCapabilities::IDEMPOTENCY) {
        properties.object("idempotency_key", |key| {
            key.str("type", "string").int("minLength", 1).int("maxLength", IDEMPOTENCY_KEY_CHARS_MAX as i64);
            key.str("description", "client-chosen key for this write; repeating the call with the same key and arguments has no further effect");
        });
    }
    if capabilities.has(WriteCapabilities::DRY_RUN) {
        properties.object("dry_run", |dry_run| {
            dry_run.str("type", "boolean").str("description", "preview the change without writing it");
        });
    }
}

/// Arguments in the order of the manifest, which its author chose; the statement may use them in another.
pub(crate) fn statement_input_schema(statement: &Statement) -> Json {
    let writes = statement.shape.writes.then_some(statement.capabilities);
    arguments_schema(&statement.arguments, writes)
}

pub(crate) fn request_input_schema(request: &Request) -> Json {
    arguments_schema(&request.arguments, request.shape.writes.then_some(request.capabilities))
}

/// `writes` is what the source can do, for a tool that writes.
fn arguments_schema(arguments: &[Argument], writes: Option<WriteCapabilities>) -> Json {
    let mut arguments: Vec<&Argument> = arguments.iter().collect();
    arguments.sort_by_key(|argument| argument.declared_index);
    Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            for argument in &arguments {
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
            if let Some(capabilities) = writes {
                write_options_schema(properties, capabilities);
            }
        });
        let required = arguments.iter().filter(|argument| argument.required);
        let required: Vec<&str> = required.map(|argument| argument.field.name.as_str()).collect();
        if !required.is_empty() {
            schema.array("required", &required, |out, name| write::string(out, name));
        }
        schema.bool("additionalProperties", false);
    })
}

fn limit_schema(limit: &mut ObjectWriter<'_>, collection: &Collection) {
    limit.str("type", "integer").int("minimum", 1).int("maximum", collection.rows_max as i64);
}

fn filters_schema(
    properties: &mut ObjectWriter<'_>,
    collection: &Collection,
    filters: &[usize],
    detail: FilterDetail,
) {
    for &column in filters {
        let field = &collection.fields[column];
        filter_schema(properties, &field.name, field, detail);
    }
}

/// A value, or an array of values of which one must match.
fn filter_schema(properties: &mut ObjectWriter<'_>, name: &str, field: &Field, detail: FilterDetail) {
    properties.object(name, |out| {
        filter_type(out, field);
        if detail == FilterDetail::Full {
            let description = field_description(field, true);
            let is_time = matches!(field.data_type, DataType::Timestamp | DataType::LocalTimestamp);
            let time = is_time.then(|| "timestamp, or a date for the whole day".to_owned());
            out.maybe_str("description", description.or(time).as_deref());
        }
        if field.sensitive {
            out.bool(SENSITIVE_KEYWORD, true);
        }
    });
    // A pattern cannot say which arguments must not be logged.
    for suffix in FilterSuffix::ALL.into_iter().filter(|suffix| field.sensitive && suffix.applies_to(field)) {
        properties.object(&format!("{name}{}", suffix.as_str()), sensitive_argument);
    }
}

/// A schema that every client accepts has a type for each argument and `items` for each array.
fn filter_type(out: &mut ObjectWriter<'_>, field: &Field) {
    let types: &[&str] = match field.data_type {
        DataType::Integer => &["integer", "array"],
        DataType::Number => &["number", "array"],
        DataType::Boolean => &["boolean", "array"],
        // By their digits, so that a number is as good as a string.
        DataType::Int64 | DataType::Decimal => &["number", "string", "array"],
        DataType::Text
        | DataType::Date
        | DataType::Timestamp
        | DataType::LocalTimestamp
        | DataType::Json
        | DataType::Blob => &["string", "array"],
    };
    let mixed = (field.mixed && !types.contains(&"string")).then_some(&"string");
    out.array("type", types.iter().chain(mixed), |out, name| write::string(out, name));
    out.object("items", |items| {
        if !field.allowed.is_empty() {
            items.array("enum", field.allowed.iter().map(Json::as_str), |out, value| {
                out.extend_from_slice(value.as_bytes());
            });
        }
    });
    if field.allowed.is_empty() && !field.mixed {
        let format = if field.data_type == DataType::Date { Some("date") } else { field.format.as_deref() };
        out.maybe_str("format", format);
    }
}

/// An argument whose value must not be logged. `bind` knows its type.
fn sensitive_argument(out: &mut ObjectWriter<'_>) {
    out.raw("type", r#"["string","number","boolean","array"]"#).raw("items", "{}");
    out.bool(SENSITIVE_KEYWORD, true);
}

pub(crate) fn get_output_schema(collection: &Collection) -> Json {
    or_error(|record| {
        if collection.is_wide() {
            record.str("type", "object");
            return;
        }
        record.object("properties", |properties| {
            record_members_schema(properties, collection);
            links::output_schema(properties, collection);
            if collection.notices.in_reads {
                notices_schema(properties, NOTICES_FIELD);
            }
        });
        require_fields(record, collection);
    })
}

pub(crate) fn list_output_schema(collection: &Collection) -> Json {
    or_error(|page| {
        page.object("properties", |properties| {
            page_members_schema(properties, collection);
        });
        page.raw("required", r#"["items","truncated"]"#);
        page.bool("additionalProperties", false);
    })
}

/// The members of a page of rows.
fn page_members_schema(properties: &mut ObjectWriter<'_>, collection: &Collection) {
    items_schema(properties, collection, ItemFields::Selected);
    properties.object("nextCursor", |cursor| {
        cursor.str("type", "string");
        cursor.str("description", "pass as `cursor` to get the next page; absent on the last page");
    });
    truncated_schema(properties);
    properties.object("total", |total| {
        total.str("type", "integer").str("description", "number of matching rows");
    });
    properties.object("total_at_least", |total| {
        total.str("type", "integer").str(
            "description",
            "at least this many rows match; replaces `total` when counting stopped early",
        );
    });
    if collection.notices.in_reads {
        notices_schema(properties, NOTICES_MEMBER);
    }
}

pub(crate) fn search_output_schema(collection: &Collection) -> Json {
    or_error(|output| {
        output.object("properties", |properties| {
            page_members_schema(properties, collection);
            properties.object("searched", |searched| {
                searched
                    .str("type", "string")
                    .str("description", "`all`, or the part that was searched: `first 100000 rows`");
            });
        });
        output.raw("required", r#"["items","truncated","searched"]"#).bool("additionalProperties", false);
    })
}

/// One object for each group, with the groups and measures that the caller asked for.
pub(crate) fn aggregate_output_schema(collection: &Collection) -> Json {
    or_error(|output| {
        output.object("properties", |properties| {
            properties.object("items", |items| {
                items.str("type", "array").int("maxItems", collection.rows_max as i64);
                items.object("items", |item| {
                    item.str("type", "object");
                    item.raw("additionalProperties", r#"{"type":["string","number","boolean","null"]}"#);
                });
            });
            properties.object("groups_total", |total| {
                total.str("type", "integer").str("description", "number of groups that pass `having`");
            });
            truncated_schema(properties);
            if collection.notices.in_reads {
                notices_schema(properties, NOTICES_MEMBER);
            }
        });
        output.raw("required", r#"["items","groups_total","truncated"]"#).bool("additionalProperties", false);
    })
}

/// The outcome of a write and the row after it; for a delete, the row before it.
pub(crate) fn write_output_schema(collection: &Collection, outcomes: &[&str]) -> Json {
    or_error(|output| {
        output.object("properties", |properties| {
            properties.object("outcome", |outcome| {
                outcome.array("enum", outcomes, |out, one| write::string(out, one));
            });
            properties.object("record", |record| {
                record.str("type", "object");
                full_record_schema(record, collection);
            });
            write_flags_schema(properties, collection.write_capabilities());
            if collection.notices.in_writes {
                notices_schema(properties, NOTICES_MEMBER);
            }
        });
        output.raw("required", r#"["outcome","record"]"#).bool("additionalProperties", false);
    })
}

pub(crate) fn statement_output_schema(statement: &Statement) -> Json {
    let (result, writes) = (&statement.result, statement.shape.writes);
    if statement.returns == Returns::One && !writes {
        return or_error(|record| full_record_schema(record, result));
    }
    or_error(|output| {
        let mut required = Vec::new();
        output.object("properties", |properties| {
            if writes {
                required.push("changed");
                properties.object("changed", |changed| {
                    changed.str("type", "integer").str("description", "number of rows changed");
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
                write_flags_schema(properties, statement.capabilities);
            }
        });
        output.array("required", &required, |out, name| write::string(out, name));
        output.bool("additionalProperties", false);
    })
}

pub(crate) fn request_output_schema(request: &Request) -> Json {
    let result = &request.result;
    match request.returns {
        Returns::One => or_error(|record| full_record_schema(record, result)),
        Returns::Many => or_error(|output| {
            output.object("properties", |properties| {
                items_schema(properties, result, ItemFields::All);
                truncated_schema(properties);
            });
            output.raw("required", r#"["items","truncated"]"#);
            output.bool("additionalProperties", false);
        }),
    }
}

/// The flags that a write result may carry.
fn write_flags_schema(properties: &mut ObjectWriter<'_>, capabilities: WriteCapabilities) {
    if capabilities.has(WriteCapabilities::DRY_RUN) {
        properties.object("dry_run", |dry_run| {
            dry_run
                .bool("const", true)
                .str("description", "`true`: preview only; the other members show what the call would do");
        });
    }
    if capabilities.has(WriteCapabilities::IDEMPOTENCY) {
        properties.object("replayed", |replayed| {
            replayed.bool("const", true).str(
                "description",
                "already applied by an earlier call with this idempotency_key; this call wrote nothing",
            );
        });
    }
}

/// Whether items have all fields, or only those the caller selects with `fields`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemFields {
    All,
    Selected,
}

fn items_schema(properties: &mut ObjectWriter<'_>, collection: &Collection, whole: ItemFields) {
    properties.object("items", |items| {
        items.str("type", "array").int("maxItems", collection.rows_max as i64);
        let about = format!("at most {} bytes in total", collection.bytes_max);
        items.str("description", &about);
        items.object("items", |item| {
            item.str("type", "object");
            if whole == ItemFields::All {
                return full_record_schema(item, collection);
            }
            if collection.is_wide() {
                return;
            }
            item.object("properties", |properties| {
                record_members_schema(properties, collection);
                links::output_schema(properties, collection);
            });
            item.bool("additionalProperties", false);
        });
    });
}

fn truncated_schema(properties: &mut ObjectWriter<'_>) {
    properties.object("truncated", |truncated| {
        truncated.str("type", "boolean").str("description", "true if more rows match");
    });
}

/// What callers should know about the values of a result.
fn notices_schema(properties: &mut ObjectWriter<'_>, name: &str) {
    properties.object(name, |notices| {
        notices.str("type", "array").raw("items", r#"{"type":"string"}"#);
        notices.str("description", "why values are missing");
    });
}

/// A row with all its fields, every one of them required.
fn full_record_schema(record: &mut ObjectWriter<'_>, collection: &Collection) {
    if collection.is_wide() {
        return;
    }
    record.object("properties", |properties| record_members_schema(properties, collection));
    require_fields(record, collection);
}

fn require_fields(record: &mut ObjectWriter<'_>, collection: &Collection) {
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

/// The members of a row.
fn record_members_schema(properties: &mut ObjectWriter<'_>, collection: &Collection) {
    for field in &collection.fields {
        properties.object(&field.name, |out| {
            field.write_schema(out, SchemaUse::Output, field_description(field, false).as_deref());
        });
    }
    if collection.has_version_field() {
        properties.object(VERSION_FIELD, |version| {
            version
                .str("type", "string")
                .str("description", "version of this row; pass it as expected_version");
        });
    }
}

/// Text from a data file for a description that models read: one line, not too long, no invisible characters.
pub(crate) fn plain_text(text: &str) -> String {
    const CHARS_MAX: usize = 100;
    let mut out: String =
        text.chars().map(|c| if is_invisible(c) { ' ' } else { c }).take(CHARS_MAX).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

/// The author's description, else the column's header where the field's name does not already say it; with the
/// column's current values for a filter or a new value, where the author asks for them.
pub(crate) fn field_description(field: &Field, with_values: bool) -> Option<String> {
    let description = field.description.clone().or_else(|| header_description(field));
    if !with_values || !field.allowed.is_empty() || field.observed_values.is_empty() {
        return description;
    }
    let quoted = field.observed_values.iter().map(|value| quoted_value(value));
    let values = format!("{VALUES_PREFIX}{}", quoted.collect::<Vec<_>>().join(", "));
    Some(match description {
        Some(description) => format!("{}. {values}", description.trim_end_matches('.')),
        None => values,
    })
}

/// A value from the data, in quotes that it cannot leave.
fn quoted_value(value: &str) -> String {
    format!("\"{}\"", plain_text(value).replace('"', "'"))
}

/// The header of a column whose name is not just the header in lower case with `_` for blanks.
fn header_description(field: &Field) -> Option<String> {
    let words = |text: &str| text.trim().to_lowercase().replace(['_', '-'], " ");
    let is_same = words(&field.column) == words(&field.name);
    (!is_same && !field.column.trim().is_empty()).then(|| plain_text(&field.column))
}
