//! The JSON Schema of a manifest, for editors: generated from the [table of keys](super::keys).
//!
//! It has the keys of each table and their types. Rules that depend on other tables, on variables or on the data are
//! left to `spile check`. The schema accepts everything that the parser accepts.
//!
//! Draft 4, because editors use `taplo` for TOML, which does not reliably support later ones.

use serde_json::{Map, Value, json};

use super::keys::{AppliesTo, COLLECTION, Key, NameRule, ROOT, SOURCE, Section, TOOL, TextLength, ValueType};
use super::rate;
use super::reader::join_or;

/// The schema as JSON text, with a final line break.
pub fn schema() -> String {
    let mut schema = section_schema(&ROOT);
    let more = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": "spile.toml",
        "description": "The data that a Spile server reads, and the tools that it offers.",
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut schema, more) {
        all.extend(more);
    }
    format!("{schema:#}\n")
}

fn section_schema(section: &'static Section) -> Value {
    let properties: Map<String, Value> =
        section.keys.iter().map(|key| (key.name.to_owned(), key_schema(key))).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if std::ptr::eq(section, &SOURCE) {
        schema["oneOf"] = json!([{ "required": ["path"] }, { "required": ["url"] }]);
    }
    if std::ptr::eq(section, &COLLECTION) {
        schema["not"] = json!({ "required": ["table", "sheet"] });
    }
    if std::ptr::eq(section, &TOOL) {
        let bodies = ["uses", "sql", "request"];
        let pairs = [["uses", "sql"], ["uses", "request"], ["sql", "request"]];
        schema["not"] = json!({ "anyOf": pairs.map(|pair| json!({ "required": pair })) });
        let body = bodies.into_iter().chain(["access"]).map(|key| json!({ "required": [key] }));
        schema["anyOf"] = body.collect();
    }
    schema
}

fn key_schema(key: &'static Key) -> Value {
    let mut schema = match key.value_type {
        ValueType::Text(chars) => text_schema(chars),
        ValueType::Sql => text_schema(TextLength::NonBlank(0)),
        ValueType::OneOf(words) => one_of_schema(&words()),
        ValueType::SomeOf(words) => {
            json!({ "type": "array", "items": one_of_schema(&words()), "minItems": 1, "uniqueItems": true })
        }
        ValueType::Boolean => json!({ "type": "boolean" }),
        ValueType::Integer { min, max } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        ValueType::Rate => {
            json!({ "anyOf": [{ "type": "string", "pattern": rate::PATTERN }, variable_schema()] })
        }
        ValueType::Columns => json!({ "anyOf": [text_schema(TextLength::NonEmpty(0)), names_schema(1)] }),
        ValueType::Texts => json!({ "anyOf": [
            text_schema(TextLength::Any(0)),
            { "type": "array", "items": text_schema(TextLength::Any(0)), "minItems": 1, "uniqueItems": true },
        ] }),
        ValueType::FieldSelection => json!({ "anyOf": [{ "type": "boolean" }, names_schema(0)] }),
        ValueType::ColumnPairs => json!({
            "type": "object",
            "minProperties": 1,
            "additionalProperties": text_schema(TextLength::NonEmpty(0)),
        }),
        ValueType::TextPairs => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        ValueType::JsonTemplate => json!({}),
        ValueType::Names => json!({ "type": "array", "items": { "type": "string", "minLength": 1 } }),
        ValueType::Folders => json!({ "anyOf": [
            { "type": "array", "items": { "type": "string", "minLength": 1 } },
            {
                "type": "object",
                "properties": { "roots": { "enum": ["client"] } },
                "required": ["roots"],
                "additionalProperties": false,
            },
        ] }),
        ValueType::Literals => json!({
            "type": "array",
            "minItems": 1,
            "uniqueItems": true,
            "items": { "type": ["string", "integer"] },
        }),
        ValueType::Literal => json!({ "type": ["string", "number", "boolean"] }),
        ValueType::ClaimConditions => json!({ "anyOf": [
            { "type": "string", "enum": ["anyone"] },
            {
                "type": "object",
                "minProperties": 1,
                "patternProperties": { "^/.": {} },
                "additionalProperties": false,
            },
        ] }),
        ValueType::RowConditions => json!({ "anyOf": [
            { "type": "object" },
            { "type": "array", "minItems": 1, "items": { "type": "object", "minProperties": 1 } },
        ] }),
        ValueType::Assignments => json!({ "type": "object" }),
        ValueType::Table(table) => section_schema(table),
        ValueType::NamedTables(table, naming) => named_tables_schema(table, naming),
    };
    schema["description"] = json!(key_description(key));
    schema
}

fn named_tables_schema(table: &'static Section, naming: NameRule) -> Value {
    match naming {
        NameRule::Any => json!({ "type": "object", "additionalProperties": section_schema(table) }),
        NameRule::Collection | NameRule::Tool | NameRule::Argument => json!({
            "type": "object",
            "patternProperties": { naming.pattern(): section_schema(table) },
            "additionalProperties": false,
        }),
    }
}

/// No `maxLength`: lengths are checked after variables are replaced.
fn text_schema(chars: TextLength) -> Value {
    match chars {
        TextLength::Any(_) => json!({ "type": "string" }),
        TextLength::NonEmpty(_) => json!({ "type": "string", "minLength": 1 }),
        TextLength::NonBlank(_) => json!({ "type": "string", "pattern": "\\S" }),
    }
}

fn one_of_schema(words: &[&str]) -> Value {
    json!({ "anyOf": [{ "type": "string", "enum": words }, variable_schema()] })
}

/// A variable may expand to any word.
fn variable_schema() -> Value {
    json!({ "type": "string", "pattern": "\\$\\{" })
}

fn names_schema(items_min: usize) -> Value {
    json!({ "type": "array", "items": text_schema(TextLength::NonEmpty(0)), "minItems": items_min, "uniqueItems": true })
}

fn key_description(key: &Key) -> String {
    let mut text = key.description.to_owned();
    if !key.default_text.is_empty() {
        text += &format!(" Default: {}.", key.default_text);
    }
    if !key.example.is_empty() {
        text += &format!(" Example: `{} = {}`.", key.name, key.example);
    }
    match key.applies_to {
        AppliesTo::Everywhere => {}
        AppliesTo::SourceKinds(kinds) => {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            text += &format!(" Only for sources of the kind {}.", join_or(&kinds));
        }
        AppliesTo::Statements => text += " Only for tools with `sql`.",
        AppliesTo::StatementsAndRequests => text += " Only for tools with `sql` or `request`.",
        AppliesTo::Requests => text += " Only for tools with `request`.",
    }
    text
}
