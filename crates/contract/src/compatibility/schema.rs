//! Two schemas, compared keyword by keyword.
//!
//! Each difference makes a schema wider or narrower, and the side it stands on says what that means. This is
//! for schemas of ours: no `$ref`, no `not`. A keyword that is not known here is fine as long as it stays.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Compatibility;
use crate::field::SENSITIVE_KEYWORD;
use crate::humanize::join_truncated;
use crate::schemas::VALUES_PREFIX;

/// So many values are named in a sentence.
const SHOWN_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaSide {
    /// What callers say.
    Input,
    /// What they are told.
    Output,
}

/// Only there to be read.
const TEXT_KEYWORDS: [&str; 5] = ["$comment", "$schema", "description", "examples", "title"];

/// A schema without its texts, in canonical order: two schemas with the same structure accept the same values. `None`
/// if it is not JSON.
pub fn schema_structure(text: &str) -> Option<Value> {
    let mut schema: Value = serde_json::from_str(text).ok()?;
    strip_text(&mut schema, &mut String::new());
    Some(schema)
}

/// A schema without its words, and the words.
pub(super) fn canonical(text: &str) -> (Value, String) {
    let mut schema: Value = serde_json::from_str(text).expect("a schema of ours is JSON");
    let mut words = String::new();
    strip_text(&mut schema, &mut words);
    (schema, words)
}

fn strip_text(schema: &mut Value, words: &mut String) {
    let Value::Object(members) = schema else { return };
    for name in TEXT_KEYWORDS {
        if let Some(said) = members.remove(name) {
            let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
            // What the data happens to hold is no promise.
            let said = said.split(VALUES_PREFIX).next().unwrap_or_default().trim_end_matches(['.', ' ']);
            if !said.is_empty() {
                words.push_str(name);
                words.push(' ');
                words.push_str(said);
                words.push('\n');
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
                    words.push_str(name);
                    words.push('\n');
                    strip_text(property, words);
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
            ) => strip_text(value, words),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(several)) => {
                several.iter_mut().for_each(|one| strip_text(one, words));
            }
            _ => {}
        }
    }
}

/// Tells `add` of everything that is different.
pub(super) fn compare_side(
    side: SchemaSide,
    was: &Value,
    is: &Value,
    add: &mut dyn FnMut(Compatibility, String, String),
) {
    let at = match side {
        SchemaSide::Input => "input",
        SchemaSide::Output => "output",
    };
    SchemaComparer { side, report: add }.compare_schemas(at, was, is);
}

/// What a difference does to the values that are allowed.
enum SchemaChange {
    Widened,
    Narrowed,
    /// Neither can be shown.
    Unknown,
}

struct SchemaComparer<'a> {
    side: SchemaSide,
    report: &'a mut dyn FnMut(Compatibility, String, String),
}

impl SchemaComparer<'_> {
    fn report_difference(&mut self, verdict: Compatibility, at: &str, why: impl Into<String>) {
        (self.report)(verdict, at.to_owned(), why.into());
    }

    /// By the side it is on.
    fn report_change(&mut self, turn: &SchemaChange, at: &str, what: &str) {
        let (verdict, why) = match (self.side, turn) {
            (SchemaSide::Input, SchemaChange::Widened) => {
                (Compatibility::Compatible, "more is taken than before")
            }
            (SchemaSide::Input, SchemaChange::Narrowed) => {
                (Compatibility::Breaking, "what was taken before may be refused")
            }
            (SchemaSide::Output, SchemaChange::Narrowed) => {
                (Compatibility::Compatible, "no more is told than before")
            }
            (SchemaSide::Output, SchemaChange::Widened) => {
                (Compatibility::Breaking, "readers may be told what they do not expect")
            }
            (_, SchemaChange::Unknown) => (Compatibility::Breaking, "it cannot be shown to be compatible"),
        };
        self.report_difference(verdict, at, format!("{what}; {why}"));
    }

    fn compare_schemas(&mut self, at: &str, was: &Value, is: &Value) {
        if was == is {
            return;
        }
        let empty = Map::new();
        let (Some(was), Some(is)) = (schema_keywords(was, &empty), schema_keywords(is, &empty)) else {
            return self.report_change(&SchemaChange::Unknown, at, "a schema that is `false` came or went");
        };
        self.compare_types(at, was, is);
        self.compare_values(at, was, is);
        for (keyword, end) in BOUNDS {
            self.compare_bound(at, keyword, *end, was.get(*keyword), is.get(*keyword));
        }
        for keyword in ["format", "pattern"] {
            let turn = match (was.get(keyword), is.get(keyword)) {
                (was, is) if was == is => continue,
                (None, Some(_)) => SchemaChange::Narrowed,
                (Some(_), None) => SchemaChange::Widened,
                (_, _) => SchemaChange::Unknown,
            };
            let what = describe_change(keyword, was.get(keyword), is.get(keyword));
            self.report_change(&turn, at, &what);
        }
        match (is_true(was.get("uniqueItems")), is_true(is.get("uniqueItems"))) {
            (false, true) => self.report_change(&SchemaChange::Narrowed, at, "nothing may come twice now"),
            (true, false) => self.report_change(&SchemaChange::Widened, at, "the same may come twice now"),
            (false, false) | (true, true) => {}
        }
        if was.get("default") != is.get("default") {
            let what = describe_change("default", was.get("default"), is.get("default"));
            let why = "whoever leaves it out gets something else than before";
            self.report_difference(Compatibility::Compatible, at, format!("{what}; {why}"));
        }
        if was.get(SENSITIVE_KEYWORD) != is.get(SENSITIVE_KEYWORD) {
            let why = match is_true(is.get(SENSITIVE_KEYWORD)) {
                true => "it is sensitive now; nobody should write it down",
                false => "it is not sensitive any more",
            };
            self.report_difference(Compatibility::TextOnly, at, why);
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
        let lost: Vec<&str> = was.difference(&is).copied().collect();
        let won: Vec<&str> = is.difference(&was).copied().collect();
        let (lost, won) = (lost.join(" or "), won.join(" or "));
        match (&*lost, &*won) {
            ("", "") => {}
            (_, "") => {
                self.report_change(&SchemaChange::Narrowed, at, &format!("it is never {lost} any more"))
            }
            ("", _) => self.report_change(&SchemaChange::Widened, at, &format!("it may be {won} too")),
            (_, _) => {
                self.report_difference(Compatibility::Breaking, at, format!("it was {lost} and is {won} now"))
            }
        }
    }

    /// `enum` and `const`.
    fn compare_values(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        match (allowed_values(was), allowed_values(is)) {
            (None, None) => {}
            (Some(_), None) => self.report_change(&SchemaChange::Widened, at, "any value may stand here now"),
            (None, Some(_)) => {
                self.report_change(&SchemaChange::Narrowed, at, "only some values may stand here now")
            }
            (Some(was), Some(is)) => {
                let lost: Vec<&str> = was.difference(&is).map(String::as_str).collect();
                let won: Vec<&str> = is.difference(&was).map(String::as_str).collect();
                if !lost.is_empty() {
                    self.report_change(
                        &SchemaChange::Narrowed,
                        at,
                        &format!("without {} now", join_truncated(&lost, SHOWN_MAX)),
                    );
                }
                if !won.is_empty() {
                    self.report_change(
                        &SchemaChange::Widened,
                        at,
                        &format!("with {} now", join_truncated(&won, SHOWN_MAX)),
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
        let turn = match (was.map(Value::as_f64), is.map(Value::as_f64)) {
            (None, Some(Some(_))) => SchemaChange::Narrowed,
            (Some(Some(_)), None) => SchemaChange::Widened,
            (Some(Some(was)), Some(Some(is))) => match (end, is > was) {
                (BoundSide::Upper, true) | (BoundSide::Lower, false) => SchemaChange::Widened,
                (BoundSide::Upper, false) | (BoundSide::Lower, true) => SchemaChange::Narrowed,
            },
            (_, _) => SchemaChange::Unknown,
        };
        let what = describe_change(keyword, was, is);
        match (self.side, keyword, &turn) {
            // As many as a page has is a limit and no promise: readers take one after the other.
            (SchemaSide::Output, "maxItems", SchemaChange::Widened) => {
                let why = "a list may be longer; readers find all that they knew, and a client that holds \
                           results to the old schema has to fetch the list again";
                self.report_difference(Compatibility::Compatible, at, format!("{what}; {why}"));
            }
            (_, _, _) => self.report_change(&turn, at, &what),
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
                (None, SchemaSide::Input) => {
                    let why = if is.get("additionalProperties") == Some(&Value::Bool(false)) {
                        "the argument is gone; whoever says it is refused"
                    } else {
                        "the argument is gone; whoever says it is not heard"
                    };
                    self.report_difference(Compatibility::Breaking, &format!("{at}.{name}"), why);
                }
                (None, SchemaSide::Output) => {
                    let why = "the field is gone; whoever reads it finds nothing";
                    self.report_difference(Compatibility::Breaking, &format!("{at}.{name}"), why);
                }
            }
        }
        let must = required_names(is);
        for name in new.keys().filter(|name| !old.contains_key(*name)) {
            let at = format!("{at}.{name}");
            match self.side {
                SchemaSide::Input if must.contains(name.as_str()) => {
                    let why = "a new argument that must be said; whoever does not know it is refused";
                    self.report_difference(Compatibility::Breaking, &at, why);
                }
                SchemaSide::Input => {
                    self.report_difference(
                        Compatibility::Compatible,
                        &at,
                        "a new argument that may be left out",
                    );
                }
                SchemaSide::Output => {
                    // The schema that a client fetched before may forbid it (`additionalProperties`). Such a
                    // client is told that the list changed; nobody who reads loses anything.
                    let why = "a new field; readers find all that they knew, and a client that holds results \
                               to the old schema has to fetch the list again";
                    self.report_difference(Compatibility::Compatible, &at, why);
                }
            }
        }
        self.compare_required(at, was, is);
        self.compare_additional(at, was, is);
    }

    /// What must be there, but for what came or went as a whole.
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
                    let why = "it must be said now; whoever leaves it out is refused";
                    self.report_difference(Compatibility::Breaking, &at, why);
                }
                (SchemaSide::Input, false) => {
                    self.report_difference(Compatibility::Compatible, &at, "it may be left out now")
                }
                (SchemaSide::Output, true) => {
                    self.report_difference(Compatibility::Compatible, &at, "it is always there now")
                }
                (SchemaSide::Output, false) => {
                    let why = "it may be missing now; whoever relies on it finds nothing";
                    self.report_difference(Compatibility::Breaking, &at, why);
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
                    "there may be fields that are not named; readers pass over them",
                );
            }
            _ if closed(was) && open(is) => {
                self.report_change(&SchemaChange::Widened, at, "other names may stand here now")
            }
            _ if open(was) && closed(is) => {
                self.report_change(&SchemaChange::Narrowed, at, "no other names may stand here now")
            }
            _ => match (was, is) {
                (Some(was @ Value::Object(_)), Some(is @ Value::Object(_))) => {
                    self.compare_schemas(&format!("{at}.*"), was, is);
                }
                (_, _) => {
                    self.report_change(&SchemaChange::Unknown, at, "what may stand under other names changed")
                }
            },
        }
    }

    /// `anyOf`: what is in both is taken out; the rest is compared one by one if it can be told what became of
    /// what.
    fn compare_any_of(&mut self, at: &str, was: Option<&Value>, is: Option<&Value>) {
        if was == is {
            return;
        }
        let (was, is) = match (was.map(Value::as_array), is.map(Value::as_array)) {
            (Some(Some(was)), Some(Some(is))) => (was, is),
            (None, Some(Some(_))) => {
                return self.report_change(
                    &SchemaChange::Narrowed,
                    at,
                    "only some shapes may stand here now",
                );
            }
            (Some(Some(_)), None) => {
                return self.report_change(&SchemaChange::Widened, at, "any shape may stand here now");
            }
            (_, _) => return self.report_change(&SchemaChange::Unknown, at, "`anyOf` is no list"),
        };
        let lost: Vec<&Value> = was.iter().filter(|one| !is.contains(one)).collect();
        let won: Vec<&Value> = is.iter().filter(|one| !was.contains(one)).collect();
        match (&*lost, &*won) {
            ([], []) => {}
            ([], _) => self.report_change(&SchemaChange::Widened, at, "it may have another shape too"),
            (_, []) => self.report_change(&SchemaChange::Narrowed, at, "it has one shape less"),
            (lost, won) if lost.len() == won.len() => {
                for (was, is) in lost.iter().zip(won) {
                    self.compare_schemas(at, was, is);
                }
            }
            (_, _) => self.report_change(&SchemaChange::Unknown, at, "it has other shapes"),
        }
    }
}

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

/// What is judged somewhere above.
const COMPARED_KEYWORDS: [&str; 13] = [
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "enum",
    "format",
    "items",
    "pattern",
    "properties",
    "required",
    "type",
    "uniqueItems",
    SENSITIVE_KEYWORD,
];

/// `true` is a schema without a keyword.
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

/// Every type that may stand there. A number that may be any is an integer too.
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

/// `maximum is 50, was 100`
fn describe_change(keyword: &str, was: Option<&Value>, is: Option<&Value>) -> String {
    match (was, is) {
        (Some(was), Some(is)) => format!("`{keyword}` was {was} and is {is} now"),
        (None, Some(is)) => format!("`{keyword}` is {is} now"),
        (Some(was), None) => format!("`{keyword}` was {was} and is gone"),
        (None, None) => String::new(),
    }
}
