//! Compares two schemas keyword by keyword.
//!
//! Each difference widens or narrows a schema; its side decides what that means for clients. Only schemas that this
//! crate generates are compared: they have no `$ref` and no `not`. An unknown keyword is fine as long as it does not
//! change.

use std::collections::BTreeSet;

use json::Json;
use serde_json::{Map, Value};

use super::Compatibility;
use crate::field::SENSITIVE_KEYWORD;
use crate::humanize::join_truncated;
use crate::schemas::VALUES_PREFIX;
use crate::validate::CompiledSchema;

/// A reason names no more values than this.
const SHOWN_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaSide {
    Input,
    Output,
}

/// Keywords without an effect on validation.
const TEXT_KEYWORDS: [&str; 5] = ["$comment", "$schema", "description", "examples", "title"];

/// A schema without descriptions and titles, and that text.
pub(super) fn canonical(text: &str) -> (Value, String) {
    // Only a schema that is nested too deeply cannot be read; it is compared as a text.
    let mut schema: Value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let mut stripped = String::new();
    strip_text(&mut schema, &mut stripped);
    (schema, stripped)
}

fn strip_text(schema: &mut Value, stripped: &mut String) {
    let Value::Object(members) = schema else { return };
    for name in TEXT_KEYWORDS {
        if let Some(text) = members.remove(name) {
            let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
            // The current values of a column are not part of the contract.
            let text = text.split(VALUES_PREFIX).next().unwrap_or_default().trim_end_matches(['.', ' ']);
            if !text.is_empty() {
                stripped.push_str(name);
                stripped.push(' ');
                stripped.push_str(text);
                stripped.push('\n');
            }
        }
    }
    for (keyword, value) in members.iter_mut() {
        match (keyword.as_str(), value) {
            (
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                Value::Object(properties),
            ) => {
                for (name, property) in properties.iter_mut() {
                    stripped.push_str(name);
                    stripped.push('\n');
                    strip_text(property, stripped);
                }
            }
            (
                "items"
                | "additionalProperties"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties"
                | "not"
                | "if"
                | "then"
                | "else",
                value,
            ) => strip_text(value, stripped),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(several)) => {
                several.iter_mut().for_each(|one| strip_text(one, stripped));
            }
            _ => {}
        }
    }
}

/// Passes every difference to `report`.
pub(super) fn compare_side(
    side: SchemaSide,
    was: &Value,
    is: &Value,
    report: &mut dyn FnMut(Compatibility, String, String),
) {
    let at = match side {
        SchemaSide::Input => "input",
        SchemaSide::Output => "output",
    };
    SchemaComparer { side, report }.compare_schemas(at, was, is);
}

/// What a difference does to the set of valid values.
enum SchemaChange {
    Widened,
    Narrowed,
    /// Neither can be proven.
    Unknown,
}

struct SchemaComparer<'a> {
    side: SchemaSide,
    report: &'a mut dyn FnMut(Compatibility, String, String),
}

impl SchemaComparer<'_> {
    fn report_difference(&mut self, compatibility: Compatibility, at: &str, reason: impl Into<String>) {
        (self.report)(compatibility, at.to_owned(), reason.into());
    }

    /// Reports a change with its meaning for this side.
    fn report_change(&mut self, change: &SchemaChange, at: &str, what: &str) {
        let (compatibility, effect) = match (self.side, change) {
            (SchemaSide::Input, SchemaChange::Widened) => {
                (Compatibility::Compatible, "it accepts more than before")
            }
            (SchemaSide::Input, SchemaChange::Narrowed) => {
                (Compatibility::Breaking, "arguments that were valid may be refused")
            }
            (SchemaSide::Output, SchemaChange::Narrowed) => {
                (Compatibility::Compatible, "it returns nothing new")
            }
            (SchemaSide::Output, SchemaChange::Widened) => {
                (Compatibility::Breaking, "clients may receive values that they do not expect")
            }
            (_, SchemaChange::Unknown) => (Compatibility::Breaking, "compatibility cannot be determined"),
        };
        self.report_difference(compatibility, at, format!("{what}; {effect}"));
    }

    fn compare_schemas(&mut self, at: &str, was: &Value, is: &Value) {
        if was == is {
            return;
        }
        let empty = Map::new();
        let (Some(was), Some(is)) = (schema_keywords(was, &empty), schema_keywords(is, &empty)) else {
            return self.report_change(
                &SchemaChange::Unknown,
                at,
                "a schema that is `false` was added or removed",
            );
        };
        self.compare_types(at, was, is);
        self.compare_values(at, was, is);
        for (keyword, end) in BOUNDS {
            self.compare_bound(at, keyword, *end, was.get(*keyword), is.get(*keyword));
        }
        for keyword in ["format", "pattern"] {
            let change = match (was.get(keyword), is.get(keyword)) {
                (was, is) if was == is => continue,
                (None, Some(_)) => SchemaChange::Narrowed,
                (Some(_), None) => SchemaChange::Widened,
                (_, _) => SchemaChange::Unknown,
            };
            let what = describe_change(keyword, was.get(keyword), is.get(keyword));
            self.report_change(&change, at, &what);
        }
        match (is_true(was.get("uniqueItems")), is_true(is.get("uniqueItems"))) {
            (false, true) => {
                self.report_change(&SchemaChange::Narrowed, at, "duplicates are no longer allowed")
            }
            (true, false) => self.report_change(&SchemaChange::Widened, at, "duplicates are allowed now"),
            (false, false) | (true, true) => {}
        }
        if was.get("default") != is.get("default") {
            let what = describe_change("default", was.get("default"), is.get("default"));
            let effect = "calls without it behave differently";
            self.report_difference(Compatibility::Compatible, at, format!("{what}; {effect}"));
        }
        if was.get(SENSITIVE_KEYWORD) != is.get(SENSITIVE_KEYWORD) {
            let reason = match is_true(is.get(SENSITIVE_KEYWORD)) {
                true => "it is sensitive now and must not be logged",
                false => "it is no longer sensitive",
            };
            self.report_difference(Compatibility::TextOnly, at, reason);
        }
        if was.contains_key("properties") || is.contains_key("properties") {
            self.compare_objects(at, was, is);
        } else {
            self.compare_required(at, was, is);
            self.compare_additional(at, was, is);
        }
        self.compare_schemas(
            &format!("{at}[]"),
            was.get("items").unwrap_or(&ANY_SCHEMA),
            is.get("items").unwrap_or(&ANY_SCHEMA),
        );
        self.compare_any_of(at, was.get("anyOf"), is.get("anyOf"));
        self.compare_patterns(at, was, is);
        let keywords: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        for keyword in keywords {
            let is_known =
                COMPARED_KEYWORDS.contains(&&**keyword) || BOUNDS.iter().any(|(one, _)| one == keyword);
            if !is_known && was.get(keyword) != is.get(keyword) {
                self.report_change(
                    &SchemaChange::Unknown,
                    at,
                    &describe_change(keyword, was.get(keyword), is.get(keyword)),
                );
            }
        }
    }

    fn compare_types(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let (was, is) = (allowed_types(was), allowed_types(is));
        let removed: Vec<&str> = was.difference(&is).copied().collect();
        let added: Vec<&str> = is.difference(&was).copied().collect();
        let (removed, added) = (removed.join(" or "), added.join(" or "));
        match (&*removed, &*added) {
            ("", "") => {}
            (_, "") => {
                self.report_change(&SchemaChange::Narrowed, at, &format!("it is never {removed} any more"))
            }
            ("", _) => self.report_change(&SchemaChange::Widened, at, &format!("it may be {added} too")),
            (_, _) => self.report_difference(
                Compatibility::Breaking,
                at,
                format!("it was {removed} and is {added} now"),
            ),
        }
    }

    /// `enum` and `const`.
    fn compare_values(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        match (allowed_values(was), allowed_values(is)) {
            (None, None) => {}
            (Some(_), None) => self.report_change(&SchemaChange::Widened, at, "every value is allowed now"),
            (None, Some(_)) => {
                self.report_change(&SchemaChange::Narrowed, at, "only some values are allowed now")
            }
            (Some(was), Some(is)) => {
                let removed: Vec<&str> = was.difference(&is).map(String::as_str).collect();
                let added: Vec<&str> = is.difference(&was).map(String::as_str).collect();
                if !removed.is_empty() {
                    self.report_change(
                        &SchemaChange::Narrowed,
                        at,
                        &format!("{} is no longer allowed", join_truncated(&removed, SHOWN_MAX)),
                    );
                }
                if !added.is_empty() {
                    self.report_change(
                        &SchemaChange::Widened,
                        at,
                        &format!("{} is allowed now", join_truncated(&added, SHOWN_MAX)),
                    );
                }
            }
        }
    }

    fn compare_bound(
        &mut self,
        at: &str,
        keyword: &str,
        end: BoundSide,
        was: Option<&Value>,
        is: Option<&Value>,
    ) {
        if was == is {
            return;
        }
        let change = match (was.map(Value::as_f64), is.map(Value::as_f64)) {
            (None, Some(Some(_))) => SchemaChange::Narrowed,
            (Some(Some(_)), None) => SchemaChange::Widened,
            (Some(Some(was)), Some(Some(is))) => match (end, is > was) {
                (BoundSide::Upper, true) | (BoundSide::Lower, false) => SchemaChange::Widened,
                (BoundSide::Upper, false) | (BoundSide::Lower, true) => SchemaChange::Narrowed,
            },
            (_, _) => SchemaChange::Unknown,
        };
        let what = describe_change(keyword, was, is);
        match (self.side, keyword, &change) {
            // The page size is a limit that clients do not depend on: they read one item after the other.
            (SchemaSide::Output, "maxItems", SchemaChange::Widened) => {
                let effect = "a list may be longer; a client that validates results with the old schema must list the \
                              tools again";
                self.report_difference(Compatibility::Compatible, at, format!("{what}; {effect}"));
            }
            (_, _, _) => self.report_change(&change, at, &what),
        }
    }

    fn compare_objects(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let empty = Map::new();
        let properties = |of: &'_ Map<String, Value>| {
            of.get("properties").and_then(Value::as_object).cloned().unwrap_or_else(|| empty.clone())
        };
        let (old, new) = (properties(was), properties(is));
        for (name, property) in &old {
            match (new.get(name), self.side) {
                (Some(now), _) => self.compare_schemas(&format!("{at}.{name}"), property, now),
                (None, SchemaSide::Input) if let Some(now) = matching_pattern(is, name) => {
                    self.compare_schemas(&format!("{at}.{name}"), property, now);
                }
                (None, SchemaSide::Input) => {
                    let reason = if is.get("additionalProperties") == Some(&Value::Bool(false)) {
                        "the argument was removed; calls with it are refused"
                    } else {
                        "the argument was removed; calls with it ignore it"
                    };
                    self.report_difference(Compatibility::Breaking, &format!("{at}.{name}"), reason);
                }
                (None, SchemaSide::Output) => {
                    let reason = "the field was removed; clients that read it find nothing";
                    self.report_difference(Compatibility::Breaking, &format!("{at}.{name}"), reason);
                }
            }
        }
        let required = required_names(is);
        for name in new.keys().filter(|name| !old.contains_key(*name)) {
            let at = format!("{at}.{name}");
            match self.side {
                SchemaSide::Input if required.contains(name.as_str()) => {
                    let reason = "a new required argument; calls without it are refused";
                    self.report_difference(Compatibility::Breaking, &at, reason);
                }
                SchemaSide::Input => {
                    self.report_difference(Compatibility::Compatible, &at, "a new optional argument");
                }
                SchemaSide::Output => {
                    // The schema that a client has may forbid it (`additionalProperties`). The client is notified
                    // that the list changed, and no reader loses anything.
                    let reason = "a new field; a client that validates results with the old schema must list the tools \
                                  again";
                    self.report_difference(Compatibility::Compatible, &at, reason);
                }
            }
        }
        self.compare_required(at, was, is);
        self.compare_additional(at, was, is);
    }

    /// `required`, except for properties that were added or removed.
    fn compare_required(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let names = |of: &Map<String, Value>, name: &str| {
            let properties = of.get("properties").and_then(Value::as_object);
            properties.is_some_and(|properties| properties.contains_key(name))
        };
        let (old, new) = (required_names(was), required_names(is));
        for name in old.symmetric_difference(&new).filter(|name| names(was, name) == names(is, name)) {
            let at = format!("{at}.{name}");
            match (self.side, new.contains(name)) {
                (SchemaSide::Input, true) => {
                    let reason = "it is required now; calls without it are refused";
                    self.report_difference(Compatibility::Breaking, &at, reason);
                }
                (SchemaSide::Input, false) => {
                    self.report_difference(Compatibility::Compatible, &at, "it is optional now")
                }
                (SchemaSide::Output, true) => {
                    self.report_difference(Compatibility::Compatible, &at, "it is always present now")
                }
                (SchemaSide::Output, false) => {
                    let reason = "it may be missing now; clients that rely on it find nothing";
                    self.report_difference(Compatibility::Breaking, &at, reason);
                }
            }
        }
    }

    /// `additionalProperties`
    fn compare_additional(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let (was, is) = (was.get("additionalProperties"), is.get("additionalProperties"));
        let closed = |one: Option<&Value>| one == Some(&Value::Bool(false));
        let open = |one: Option<&Value>| matches!(one, None | Some(Value::Bool(true)));
        match self.side {
            _ if was == is || open(was) && open(is) => {}
            SchemaSide::Output if closed(was) && open(is) => {
                self.report_difference(
                    Compatibility::Compatible,
                    at,
                    "other fields may occur now; clients ignore them",
                );
            }
            _ if closed(was) && open(is) => {
                self.report_change(&SchemaChange::Widened, at, "other names are allowed now")
            }
            _ if open(was) && closed(is) => {
                self.report_change(&SchemaChange::Narrowed, at, "other names are no longer allowed")
            }
            _ => match (was, is) {
                (Some(was @ Value::Object(_)), Some(is @ Value::Object(_))) => {
                    self.compare_schemas(&format!("{at}.*"), was, is);
                }
                (_, _) => self.report_change(&SchemaChange::Unknown, at, "the schema of other names changed"),
            },
        }
    }

    /// `patternProperties`: each pattern is compared with the same one, or with one that matches every name.
    fn compare_patterns(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let empty = Map::new();
        let patterns =
            |of: &Map<String, Value>| of.get(PATTERNS).and_then(Value::as_object).unwrap_or(&empty).clone();
        let (old, new) = (patterns(was), patterns(is));
        for (pattern, schema) in &old {
            match new.get(pattern).or_else(|| new.get(ANY_NAME)) {
                Some(now) => self.compare_schemas(&format!("{at}./{pattern}/"), schema, now),
                None => {
                    let what = format!("names that match `{pattern}` are no longer allowed");
                    self.report_change(&SchemaChange::Narrowed, at, &what);
                }
            }
        }
        for pattern in new.keys().filter(|pattern| !old.contains_key(*pattern)) {
            // Where other names were allowed, the pattern may forbid some of their values.
            let was_closed = was.get("additionalProperties") == Some(&Value::Bool(false));
            let change = if was_closed { SchemaChange::Widened } else { SchemaChange::Unknown };
            self.report_change(&change, at, &format!("names that match `{pattern}` are allowed now"));
        }
    }

    /// `anyOf`: alternatives in both are skipped; the others are compared in pairs if their number is the same.
    fn compare_any_of(&mut self, at: &str, was: Option<&Value>, is: Option<&Value>) {
        if was == is {
            return;
        }
        let (was, is) = match (was.map(Value::as_array), is.map(Value::as_array)) {
            (Some(Some(was)), Some(Some(is))) => (was, is),
            (None, Some(Some(_))) => {
                return self.report_change(&SchemaChange::Narrowed, at, "only some shapes are allowed now");
            }
            (Some(Some(_)), None) => {
                return self.report_change(&SchemaChange::Widened, at, "every shape is allowed now");
            }
            (_, _) => return self.report_change(&SchemaChange::Unknown, at, "`anyOf` is not a list"),
        };
        let removed: Vec<&Value> = was.iter().filter(|one| !is.contains(one)).collect();
        let added: Vec<&Value> = is.iter().filter(|one| !was.contains(one)).collect();
        match (&*removed, &*added) {
            ([], []) => {}
            ([], _) => self.report_change(&SchemaChange::Widened, at, "another shape is allowed too"),
            (_, []) => self.report_change(&SchemaChange::Narrowed, at, "a shape is no longer allowed"),
            (removed, added) if removed.len() == added.len() => {
                for (was, is) in removed.iter().zip(added) {
                    self.compare_schemas(at, was, is);
                }
            }
            (_, _) => self.report_change(&SchemaChange::Unknown, at, "its shapes changed"),
        }
    }
}

/// The pattern of a schema that leaves the names to `bind`.
const ANY_NAME: &str = "^.";

static ANY_SCHEMA: Value = Value::Bool(true);

#[derive(Clone, Copy)]
enum BoundSide {
    Lower,
    Upper,
}

const BOUNDS: &[(&str, BoundSide)] = &[
    ("minimum", BoundSide::Lower),
    ("exclusiveMinimum", BoundSide::Lower),
    ("minLength", BoundSide::Lower),
    ("minItems", BoundSide::Lower),
    ("minProperties", BoundSide::Lower),
    ("maximum", BoundSide::Upper),
    ("exclusiveMaximum", BoundSide::Upper),
    ("maxLength", BoundSide::Upper),
    ("maxItems", BoundSide::Upper),
    ("maxProperties", BoundSide::Upper),
];

/// Keywords that are compared above, besides `BOUNDS`.
const COMPARED_KEYWORDS: [&str; 14] = [
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "enum",
    "format",
    "items",
    "pattern",
    PATTERNS,
    "properties",
    "required",
    "type",
    "uniqueItems",
    SENSITIVE_KEYWORD,
];

const PATTERNS: &str = "patternProperties";

/// The schema of an argument that the properties do not name but a pattern allows.
fn matching_pattern<'s>(schema: &'s Map<String, Value>, name: &str) -> Option<&'s Value> {
    let patterns = schema.get(PATTERNS)?.as_object()?;
    let matches = |pattern: &str| {
        let names = Json::object(|schema| {
            schema.object("propertyNames", |names| {
                names.str("pattern", pattern);
            });
        });
        let named = Json::object(|named| {
            named.bool(name, true);
        });
        CompiledSchema::compile(&names).is_ok_and(|names| names.is_valid(&named))
    };
    patterns.iter().find(|(pattern, _)| matches(pattern)).map(|(_, schema)| schema)
}

/// `true` is a schema without keywords.
fn schema_keywords<'a>(schema: &'a Value, empty: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
    match schema {
        Value::Object(members) => Some(members),
        Value::Bool(true) => Some(empty),
        _ => None,
    }
}

fn is_true(value: Option<&Value>) -> bool {
    value == Some(&Value::Bool(true))
}

/// The allowed types. `number` includes `integer`.
fn allowed_types(schema: &Map<String, Value>) -> BTreeSet<&str> {
    let named: Vec<&str> = match schema.get("type") {
        None => vec!["array", "boolean", "null", "number", "object", "string"],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        Some(one) => one.as_str().into_iter().collect(),
    };
    let mut all: BTreeSet<&str> = named.into_iter().collect();
    if all.contains("number") {
        all.insert("integer");
    }
    all
}

fn allowed_values(schema: &Map<String, Value>) -> Option<BTreeSet<String>> {
    match (schema.get("enum").and_then(Value::as_array), schema.get("const")) {
        (Some(several), _) => Some(several.iter().map(Value::to_string).collect()),
        (None, Some(one)) => Some(BTreeSet::from([one.to_string()])),
        (None, None) => None,
    }
}

fn required_names(schema: &Map<String, Value>) -> BTreeSet<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `maximum was 100 and is 50 now`
fn describe_change(keyword: &str, was: Option<&Value>, is: Option<&Value>) -> String {
    match (was, is) {
        (Some(was), Some(is)) => format!("`{keyword}` was {was} and is {is} now"),
        (None, Some(is)) => format!("`{keyword}` is {is} now"),
        (Some(was), None) => format!("`{keyword}` was {was} and was removed"),
        (None, None) => String::new(),
    }
}
