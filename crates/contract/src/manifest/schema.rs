//! The JSON Schema of a manifest, for editors: printed from the [table of keys](super::keys).
//!
//! It says what each table may have and of what type. What depends on other tables, on variables or on the data
//! is not in it: `spile check` tells that. Nothing that the parser takes is wrong by the schema.
//!
//! Draft 4: editors read TOML with `taplo`, which knows no later one for certain.

use serde_json::{Map, Value, json};

use super::keys::{COLLECTION, Chars, Key, Naming, Only, ROOT, SOURCE, Section, TOOL, Takes};
use super::rate;
use super::reader::either;

/// As a text, with a line break at its end.
pub fn schema() -> String {
    let mut schema = section(&ROOT);
    let more = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": "spile.toml",
        "description": "What a Spile server offers, and where it comes from.",
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut schema, more) {
        all.extend(more);
    }
    format!("{schema:#}\n")
}

fn section(section: &'static Section) -> Value {
    let properties: Map<String, Value> =
        section.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if std::ptr::eq(section, &SOURCE) {
        schema["required"] = json!(["path"]);
    }
    if std::ptr::eq(section, &COLLECTION) {
        schema["not"] = json!({ "required": ["table", "sheet"] });
    }
    if std::ptr::eq(section, &TOOL) {
        schema["oneOf"] = json!([{ "required": ["uses"] }, { "required": ["sql"] }]);
    }
    schema
}

fn property(key: &'static Key) -> Value {
    let mut schema = match key.takes {
        Takes::Text(chars) => text(chars),
        Takes::Sql => text(Chars::Words(0)),
        Takes::Word(words) => word(&words()),
        Takes::Words(words) => {
            json!({ "type": "array", "items": word(&words()), "minItems": 1, "uniqueItems": true })
        }
        Takes::Boolean => json!({ "type": "boolean" }),
        Takes::Integer { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Takes::Rate => json!({ "anyOf": [{ "type": "string", "pattern": rate::PATTERN }, variable()] }),
        Takes::Columns => json!({ "anyOf": [text(Chars::Some(0)), names(1)] }),
        Takes::Choice => json!({ "anyOf": [{ "type": "boolean" }, names(0)] }),
        Takes::Literals => json!({
            "type": "array",
            "minItems": 1,
            "uniqueItems": true,
            "items": { "type": ["string", "integer"] },
        }),
        Takes::Literal => json!({ "type": ["string", "number", "boolean"] }),
        Takes::Table(table) => section(table),
        Takes::Named(table, naming) => named(table, naming),
    };
    schema["description"] = json!(described(key));
    schema
}

fn named(table: &'static Section, naming: Naming) -> Value {
    match naming {
        Naming::Any => json!({ "type": "object", "additionalProperties": section(table) }),
        Naming::Collection | Naming::Tool | Naming::Argument => json!({
            "type": "object",
            "patternProperties": { naming.pattern(): section(table) },
            "additionalProperties": false,
        }),
    }
}

/// Lengths are counted when variables have been replaced, so a schema has no largest.
fn text(chars: Chars) -> Value {
    match chars {
        Chars::Any(_) => json!({ "type": "string" }),
        Chars::Some(_) => json!({ "type": "string", "minLength": 1 }),
        Chars::Words(_) => json!({ "type": "string", "pattern": "\\S" }),
    }
}

fn word(words: &[&str]) -> Value {
    json!({ "anyOf": [{ "type": "string", "enum": words }, variable()] })
}

/// `${NAME}` may become any word.
fn variable() -> Value {
    json!({ "type": "string", "pattern": "\\$\\{" })
}

fn names(least: usize) -> Value {
    json!({ "type": "array", "items": text(Chars::Some(0)), "minItems": least, "uniqueItems": true })
}

fn described(key: &Key) -> String {
    let mut about = key.about.to_owned();
    if !key.unsaid.is_empty() {
        about += &format!(" Default: {}.", key.unsaid);
    }
    if !key.such_as.is_empty() {
        about += &format!(" Example: `{} = {}`.", key.name, key.such_as);
    }
    match key.only {
        Only::Everywhere => {}
        Only::Kinds(kinds) => {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            about += &format!(" Only for sources of the kind {}.", either(&kinds));
        }
        Only::Statements => about += " Only for tools with `sql`.",
    }
    about
}
