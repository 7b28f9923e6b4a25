//! Which arguments of a tool sqlmap attacks, and with which request: every property of the tool's schema, as a value and as an item
//! of an array, every suffix of a filter, and the names that callers choose.
//!
//! A schema that is not understood is an error: an argument that nobody attacks is not left out silently.

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};

/// What kind of place an argument has in a query. CI attacks one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A value that is bound: a key, an argument of a statement, a filter.
    Value,
    /// A value in an array.
    Item,
    /// A filter with a suffix: `_min`, `_contains`.
    Suffix,
    /// The name of a column or of a measure: `sort`, `fields`, `group`.
    Column,
    /// The name of an argument or of a member.
    Name,
}

/// One place in the arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Attack {
    pub place: Place,
    /// The argument, with `[]` for an item of an array, and `*` in a name.
    pub label: String,
    /// All arguments of the call. `*` marks the place for sqlmap.
    pub arguments: Value,
}

/// Properties that hold names of columns or of measures.
const COLUMNS: [&str; 5] = ["sort", "fields", "group", "measures", "include"];
/// Properties of lists that are no filters.
const OTHERS: [&str; 4] = ["having", "limit", "cursor", "query"];

/// Every attack on a tool, in the order of its schema.
pub fn attacks(tool: &Value) -> Result<Vec<Attack>> {
    let name = tool["name"].as_str().context("a tool has a name")?;
    let schema = &tool["inputSchema"];
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let has_patterns = schema.get("patternProperties").is_some();
    let is_filter =
        |property: &str| has_patterns && !COLUMNS.contains(&property) && !OTHERS.contains(&property);
    let filters: Vec<&String> = properties.keys().filter(|property| is_filter(property)).collect();
    let given = Given { required: required(schema, &properties, &filters), filters: &filters };
    let mut attacks = Vec::new();
    for (property, schema) in &properties {
        let found = given.property(property, schema);
        attacks.extend(found.with_context(|| format!("`{name}.{property}` is not attacked"))?);
    }
    for (pattern, _) in schema["patternProperties"].as_object().into_iter().flatten() {
        let found = given.pattern(pattern, &properties);
        attacks
            .extend(found.with_context(|| format!("the pattern `{pattern}` of `{name}` is not attacked"))?);
    }
    Ok(attacks)
}

/// The first attack on each kind of place.
pub fn sample<T>(attacks: Vec<(T, Attack)>) -> Vec<(T, Attack)> {
    let mut kept: Vec<(T, Attack)> = Vec::new();
    for (tool, attack) in attacks {
        if kept.iter().all(|(_, one)| one.place != attack.place) {
            kept.push((tool, attack));
        }
    }
    kept
}

/// What a call passes besides the argument that is attacked. Optional arguments would only narrow the result, and hide an
/// injection.
struct Given<'a> {
    required: Map<String, Value>,
    filters: &'a [&'a String],
}

fn required(schema: &Value, properties: &Map<String, Value>, filters: &[&String]) -> Map<String, Value> {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let valid = |name: &str| (name.to_owned(), valid_value(name, &properties[name], filters));
    names.filter(|name| properties.contains_key(*name)).map(valid).collect()
}

/// A value that the tool accepts, so that a query runs unless the attack changes it.
fn valid_value(name: &str, schema: &Value, filters: &[&String]) -> Value {
    let column = || filters.first().map_or("x", |filter| filter.as_str());
    let first_type = schema["type"].as_str().or(schema["type"][0].as_str());
    match (name, first_type, schema["format"].as_str()) {
        ("sort" | "fields" | "group", ..) => json!(column()),
        ("measures", ..) => json!("count"),
        ("include", ..) => json!(link_name(schema)),
        _ if !schema["enum"][0].is_null() => schema["enum"][0].clone(),
        _ if !schema["items"]["enum"][0].is_null() => schema["items"]["enum"][0].clone(),
        (_, Some("integer" | "number"), _) => json!(1),
        (_, Some("boolean"), _) => json!(true),
        (_, _, Some("date")) => json!("2026-01-01"),
        (_, _, Some("email")) => json!("dana@acme.test"),
        (_, _, Some("date-time")) => json!("2026-01-01T00:00:00Z"),
        _ => json!("x"),
    }
}

/// The first link that `include` names in its description.
fn link_name(schema: &Value) -> String {
    let description = schema["description"].as_str().unwrap_or_default();
    let names = description.split(": ").nth(1).unwrap_or_default();
    let name: String = names.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.is_empty() { "x".to_owned() } else { name }
}

/// A text with the mark of sqlmap behind it. A number is attacked as a text, which the schema must refuse.
fn marked(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(format!("{text}*")),
        other => json!(format!("{other}*")),
    }
}

impl Given<'_> {
    fn attack(&self, place: Place, label: &str, argument: &str, value: Value) -> Attack {
        let mut arguments = self.required.clone();
        arguments.insert(argument.to_owned(), value);
        Attack { place, label: label.to_owned(), arguments: Value::Object(arguments) }
    }

    /// The attacks on a property: as a value, as an item, or as both.
    fn property(&self, name: &str, schema: &Value) -> Result<Vec<Attack>> {
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            // A filter that another tool describes, or a value of any type.
            Value::Null if !schema["enum"].is_null() => vec!["string"],
            Value::Null => vec!["string", "array"],
            other => bail!("its type is {other}"),
        };
        let is_column = COLUMNS.contains(&name);
        let (value_place, item_place) =
            if is_column { (Place::Column, Place::Column) } else { (Place::Value, Place::Item) };
        let value = marked(&valid_value(name, schema, self.filters));
        let mut attacks = Vec::new();
        for one in types {
            match one {
                "string" | "integer" | "number" | "boolean" => {
                    attacks.push(self.attack(value_place, name, name, value.clone()));
                }
                "array" => attacks.push(self.attack(item_place, &format!("{name}[]"), name, json!([value]))),
                // `having`: names of measures with numbers.
                "object" => attacks.extend([
                    self.attack(Place::Name, &format!("{name}.*"), name, json!({ "count_min*": 1 })),
                    self.attack(
                        Place::Suffix,
                        &format!("{name}.count_min"),
                        name,
                        json!({ "count_min": "1*" }),
                    ),
                ]),
                "null" => {}
                other => bail!("its type is `{other}`"),
            }
        }
        Ok(attacks)
    }

    /// The attacks on arguments that a pattern allows.
    fn pattern(&self, pattern: &str, properties: &Map<String, Value>) -> Result<Vec<Attack>> {
        let filter = self.filters.first().map_or("x", |filter| filter.as_str());
        if let Some(suffixes) = pattern.strip_prefix("_(").and_then(|rest| rest.strip_suffix(")$")) {
            let mut attacks = Vec::new();
            for suffix in suffixes.split('|') {
                for name in self.filters {
                    let value = marked(&valid_value(name, &properties[name.as_str()], self.filters));
                    let argument = format!("{name}_{suffix}");
                    attacks.push(self.attack(Place::Suffix, &argument, &argument, value));
                }
                let argument = format!("{filter}*_{suffix}");
                attacks.push(self.attack(Place::Name, &argument, &argument, json!("x")));
            }
            return Ok(attacks);
        }
        let link = properties.get("include").map_or_else(|| "x".to_owned(), link_name);
        let (argument, name) = match pattern {
            "[.]" => (format!("{link}.id"), format!("{link}.id*")),
            "^." => (format!("{filter}_min"), format!("{filter}*")),
            other => bail!("it is neither `_(…)$` nor `[.]` nor `^.` but `{other}`"),
        };
        Ok(vec![
            self.attack(Place::Value, &argument, &argument, json!("x*")),
            self.attack(Place::Name, &name, &name, json!("x")),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The labels of all attacks, and of those that CI makes.
    fn labels(tool: &Value) -> (String, String) {
        let attacks = attacks(tool).expect("a schema that is understood");
        let attacks: Vec<((), Attack)> = attacks.into_iter().map(|attack| ((), attack)).collect();
        let all = |attacks: &[((), Attack)]| {
            attacks.iter().map(|(_, attack)| attack.label.as_str()).collect::<Vec<_>>().join(" ")
        };
        (all(&attacks), all(&sample(attacks.clone())))
    }

    fn check(schema: Value, expected: &str, in_sample: &str) {
        let (all, sampled) = labels(&json!({ "name": "list_orders", "inputSchema": schema }));
        assert_eq!((all.as_str(), sampled.as_str()), (expected, in_sample));
    }

    #[test]
    fn every_argument_of_a_list_is_attacked_as_a_value_and_as_an_item() {
        check(
            json!({
                "properties": {
                    "id": { "type": ["integer", "array"] }, "status": {}, "sort": { "type": ["string", "array"] },
                    "fields": { "type": "array", "items": { "type": "string" } },
                    "limit": { "type": "integer" }, "cursor": { "type": "string" },
                },
                "patternProperties": { "_(min|not)$": {} },
            }),
            "id id[] status status[] sort sort[] fields[] limit cursor id_min status_min id*_min id_not status_not id*_not",
            "id id[] sort id_min id*_min",
        );
    }

    #[test]
    fn measures_groups_and_linked_rows_are_attacked() {
        check(
            json!({
                "properties": {
                    "group": { "type": ["string", "array"] }, "measures": { "type": ["string", "array"] },
                    "having": { "type": "object" },
                    "include": { "type": ["string", "array"], "description": "linked rows to add: customer (customers), lines" },
                    "status": { "type": ["string", "array"] },
                },
                "patternProperties": { "[.]": {} },
            }),
            "group group[] measures measures[] having.* having.count_min include include[] status status[] customer.id customer.id*",
            "group having.* having.count_min status status[]",
        );
    }

    #[test]
    fn arguments_of_statements_keep_the_others_valid() {
        let tool = json!({
            "name": "best", "inputSchema": {
                "properties": { "since": { "type": "string", "format": "date" }, "top": { "type": "integer" },
                    "kind": { "type": "string", "enum": ["a", "b"] } },
                "required": ["since", "kind"],
            },
        });
        let attacks = attacks(&tool).expect("a schema that is understood");
        let arguments: Vec<&Value> = attacks.iter().map(|attack| &attack.arguments).collect();
        let expected = [
            json!({ "since": "2026-01-01*", "kind": "a" }),
            json!({ "since": "2026-01-01", "kind": "a", "top": "1*" }),
            json!({ "since": "2026-01-01", "kind": "a*" }),
        ];
        assert_eq!(arguments, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_schema_that_is_not_understood_is_an_error() {
        for schema in [
            json!({ "properties": { "x": { "type": "blob" } } }),
            json!({ "properties": { "x": { "type": 1 } } }),
            json!({ "properties": {}, "patternProperties": { "^x_": {} } }),
        ] {
            let tool = json!({ "name": "t", "inputSchema": schema });
            assert!(attacks(&tool).is_err(), "{tool}");
        }
    }
}
