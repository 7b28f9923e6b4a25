//! JSON Schemas under construction.

use std::collections::BTreeSet;

use json::{Json, write};
use oxc::ast::ast::{Expression, TSLiteral};

/// A schema under construction: members in order, as JSON texts.
#[derive(Debug, Clone, Default)]
pub(super) struct Schema {
    pub(super) members: Vec<(String, String)>,
}

impl Schema {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn set(&mut self, key: &str, json: String) {
        match self.members.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = json,
            None => self.members.push((key.to_owned(), json)),
        }
    }

    pub(super) fn with(mut self, key: &str, json: Json) -> Self {
        self.set(key, json.to_string());
        self
    }

    pub(super) fn with_text(self, key: &str, text: &str) -> Self {
        self.with(key, Json::string(text))
    }

    pub(super) fn with_bool(mut self, key: &str, value: bool) -> Self {
        self.set(key, value.to_string());
        self
    }

    pub(super) fn with_list(mut self, key: &str, items: impl IntoIterator<Item = String>) -> Self {
        let items: Vec<String> = items.into_iter().collect();
        self.set(key, format!("[{}]", items.join(",")));
        self
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, json)| json.as_str())
    }

    pub(super) fn to_json(&self) -> Json {
        let mut out = Vec::new();
        let mut object = write::ObjectWriter::new(&mut out);
        for (key, json) in &self.members {
            object.raw(key, json);
        }
        object.end();
        Json::from_written_bytes(out)
    }

    pub(super) fn text(&self) -> String {
        self.to_json().to_string()
    }
}

/// The members of an object type.
#[derive(Debug, Clone, Default)]
pub(super) struct ObjectType {
    pub(super) properties: Vec<(String, Schema)>,
    pub(super) required: BTreeSet<String>,
    pub(super) additional: Option<Schema>,
}

impl ObjectType {
    pub(super) fn merge(&mut self, other: Self) {
        for (name, schema) in other.properties {
            self.properties.retain(|(own, _)| *own != name);
            self.properties.push((name, schema));
        }
        self.required.extend(other.required);
        self.additional = other.additional.or(self.additional.take());
    }

    pub(super) fn to_schema(&self) -> Schema {
        let properties = Json::object(|object| {
            for (name, schema) in &self.properties {
                object.raw(name, &schema.text());
            }
        });
        let mut schema = Schema::new().with_text("type", "object").with("properties", properties);
        let required = self.properties.iter().filter(|(name, _)| self.required.contains(name));
        let required: Vec<String> = required.map(|(name, _)| Json::string(name).to_string()).collect();
        if !required.is_empty() {
            schema = schema.with_list("required", required);
        }
        match &self.additional {
            Some(additional) => schema.set("additionalProperties", additional.text()),
            None => schema.set("additionalProperties", "false".into()),
        }
        schema
    }
}

/// One schema for several: their values if all are literals, their types if all are plain.
pub(super) fn unite(mut parts: Vec<Schema>) -> Schema {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    let literal = |part: &Schema| match part.get("const") {
        Some(text) => Some(text.to_owned()),
        None if part.get("type") == Some("\"null\"") => Some("null".to_owned()),
        None => None,
    };
    let literals: Option<Vec<String>> = parts.iter().map(literal).collect();
    if let Some(literals) = literals {
        return one_of(literals);
    }
    let plain =
        |part: &Schema| (part.members.len() == 1).then(|| part.get("type").map(ToOwned::to_owned)).flatten();
    let plain: Option<Vec<String>> = parts.iter().map(plain).collect();
    match plain {
        Some(types) => Schema::new().with_list("type", types),
        None => Schema::new().with_list("anyOf", parts.iter().map(Schema::text)),
    }
}

/// One of these JSON values, none of which is a list or an object. Some clients leave out tools with values that have no type.
pub(super) fn one_of(values: Vec<String>) -> Schema {
    let mut types: Vec<&str> = Vec::new();
    for value in &values {
        let name = type_of_literal(value);
        if !types.contains(&name) {
            types.push(name);
        }
    }
    if types.contains(&"number") {
        types.retain(|name| *name != "integer");
    }
    let schema = match types[..] {
        [only] => Schema::new().with_text("type", only),
        _ => Schema::new().with_list("type", types.iter().map(|name| Json::string(name).to_string())),
    };
    schema.with_list("enum", values)
}

pub(super) fn type_of_literal(value: &str) -> &'static str {
    match value.as_bytes().first() {
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ if value.parse::<i64>().is_ok() => "integer",
        _ => "number",
    }
}

pub(super) fn number_text(number: f64) -> String {
    let mut out = Vec::new();
    write::number(&mut out, number);
    String::from_utf8(out).unwrap_or_default()
}

pub(super) fn literal_text(literal: &TSLiteral<'_>) -> Option<String> {
    match literal {
        TSLiteral::StringLiteral(text) => Some(Json::string(&text.value).to_string()),
        TSLiteral::NumericLiteral(number) => Some(number_text(number.value)),
        TSLiteral::BooleanLiteral(value) => Some(value.value.to_string()),
        TSLiteral::UnaryExpression(unary) => match &unary.argument {
            Expression::NumericLiteral(number) => Some(number_text(-number.value)),
            _ => None,
        },
        _ => None,
    }
}
