//! Two schemas, compared keyword by keyword.
//!
//! Each difference makes a schema wider or narrower, and the side it stands on says what that means. This is
//! for schemas of ours: no `$ref`, no `not`. A keyword that is not known here is fine as long as it stays.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Verdict;
use crate::field::SENSITIVE;
use crate::schemas::VALUES_NOW;
use crate::words::some;

/// So many values are named in a sentence.
const SHOWN_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// What callers say.
    Input,
    /// What they are told.
    Output,
}

/// Only there to be read.
const WORDS: [&str; 5] = ["$comment", "$schema", "description", "examples", "title"];

/// A schema without its words, and the words.
pub(super) fn canonical(text: &str) -> (Value, String) {
    let mut schema: Value = serde_json::from_str(text).expect("a schema of ours is JSON");
    let mut words = String::new();
    strip(&mut schema, &mut words);
    (schema, words)
}

fn strip(schema: &mut Value, words: &mut String) {
    let Value::Object(members) = schema else { return };
    for name in WORDS {
        if let Some(said) = members.remove(name) {
            let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
            // What the data happens to hold is no promise.
            let said = said.split(VALUES_NOW).next().unwrap_or_default().trim_end_matches(['.', ' ']);
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
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties.iter_mut() {
                    words.push_str(name);
                    words.push('\n');
                    strip(property, words);
                }
            }
            ("items" | "additionalProperties", value) => strip(value, words),
            ("anyOf" | "oneOf" | "allOf", Value::Array(several)) => {
                several.iter_mut().for_each(|one| strip(one, words));
            }
            _ => {}
        }
    }
}

/// Tells `add` of everything that is different.
pub(super) fn compare(side: Side, was: &Value, is: &Value, add: &mut dyn FnMut(Verdict, String, String)) {
    let at = match side {
        Side::Input => "input",
        Side::Output => "output",
    };
    Judge { side, add }.node(at, was, is);
}

/// What a difference does to the values that are allowed.
enum Turn {
    Wider,
    Narrower,
    /// Neither can be shown.
    Other,
}

struct Judge<'a> {
    side: Side,
    add: &'a mut dyn FnMut(Verdict, String, String),
}

impl Judge<'_> {
    fn say(&mut self, verdict: Verdict, at: &str, why: impl Into<String>) {
        (self.add)(verdict, at.to_owned(), why.into());
    }

    /// By the side it is on.
    fn turned(&mut self, turn: &Turn, at: &str, what: &str) {
        let (verdict, why) = match (self.side, turn) {
            (Side::Input, Turn::Wider) => (Verdict::Compatible, "more is taken than before"),
            (Side::Input, Turn::Narrower) => (Verdict::Breaking, "what was taken before may be refused"),
            (Side::Output, Turn::Narrower) => (Verdict::Compatible, "no more is told than before"),
            (Side::Output, Turn::Wider) => (Verdict::Breaking, "readers may be told what they do not expect"),
            (_, Turn::Other) => (Verdict::Breaking, "it cannot be shown to be compatible"),
        };
        self.say(verdict, at, format!("{what}; {why}"));
    }

    fn node(&mut self, at: &str, was: &Value, is: &Value) {
        if was == is {
            return;
        }
        let empty = Map::new();
        let (Some(was), Some(is)) = (members(was, &empty), members(is, &empty)) else {
            return self.turned(&Turn::Other, at, "a schema that is `false` came or went");
        };
        self.types(at, was, is);
        self.values(at, was, is);
        for (keyword, end) in BOUNDS {
            self.bound(at, keyword, *end, was.get(*keyword), is.get(*keyword));
        }
        for keyword in ["format", "pattern"] {
            let turn = match (was.get(keyword), is.get(keyword)) {
                (was, is) if was == is => continue,
                (None, Some(_)) => Turn::Narrower,
                (Some(_), None) => Turn::Wider,
                (_, _) => Turn::Other,
            };
            let what = changed(keyword, was.get(keyword), is.get(keyword));
            self.turned(&turn, at, &what);
        }
        match (is_true(was.get("uniqueItems")), is_true(is.get("uniqueItems"))) {
            (false, true) => self.turned(&Turn::Narrower, at, "nothing may come twice now"),
            (true, false) => self.turned(&Turn::Wider, at, "the same may come twice now"),
            (false, false) | (true, true) => {}
        }
        if was.get("default") != is.get("default") {
            let what = changed("default", was.get("default"), is.get("default"));
            let why = "whoever leaves it out gets something else than before";
            self.say(Verdict::Compatible, at, format!("{what}; {why}"));
        }
        if was.get(SENSITIVE) != is.get(SENSITIVE) {
            let why = match is_true(is.get(SENSITIVE)) {
                true => "it is sensitive now; nobody should write it down",
                false => "it is not sensitive any more",
            };
            self.say(Verdict::Words, at, why);
        }
        if was.contains_key("properties") || is.contains_key("properties") {
            self.object(at, was, is);
        } else {
            self.required(at, was, is);
            self.others(at, was, is);
        }
        self.node(&format!("{at}[]"), was.get("items").unwrap_or(&ANY), is.get("items").unwrap_or(&ANY));
        self.alternatives(at, was.get("anyOf"), is.get("anyOf"));
        let keywords: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        for keyword in keywords {
            let is_known = KNOWN.contains(&&**keyword) || BOUNDS.iter().any(|(one, _)| one == keyword);
            if !is_known && was.get(keyword) != is.get(keyword) {
                self.turned(&Turn::Other, at, &changed(keyword, was.get(keyword), is.get(keyword)));
            }
        }
    }

    fn types(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let (was, is) = (types(was), types(is));
        let lost: Vec<&str> = was.difference(&is).copied().collect();
        let won: Vec<&str> = is.difference(&was).copied().collect();
        let (lost, won) = (lost.join(" or "), won.join(" or "));
        match (&*lost, &*won) {
            ("", "") => {}
            (_, "") => self.turned(&Turn::Narrower, at, &format!("it is never {lost} any more")),
            ("", _) => self.turned(&Turn::Wider, at, &format!("it may be {won} too")),
            (_, _) => self.say(Verdict::Breaking, at, format!("it was {lost} and is {won} now")),
        }
    }

    /// `enum` and `const`.
    fn values(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        match (values(was), values(is)) {
            (None, None) => {}
            (Some(_), None) => self.turned(&Turn::Wider, at, "any value may stand here now"),
            (None, Some(_)) => self.turned(&Turn::Narrower, at, "only some values may stand here now"),
            (Some(was), Some(is)) => {
                let lost: Vec<&str> = was.difference(&is).map(String::as_str).collect();
                let won: Vec<&str> = is.difference(&was).map(String::as_str).collect();
                if !lost.is_empty() {
                    self.turned(&Turn::Narrower, at, &format!("without {} now", some(&lost, SHOWN_MAX)));
                }
                if !won.is_empty() {
                    self.turned(&Turn::Wider, at, &format!("with {} now", some(&won, SHOWN_MAX)));
                }
            }
        }
    }

    fn bound(&mut self, at: &str, keyword: &str, end: End, was: Option<&Value>, is: Option<&Value>) {
        if was == is {
            return;
        }
        let turn = match (was.map(Value::as_f64), is.map(Value::as_f64)) {
            (None, Some(Some(_))) => Turn::Narrower,
            (Some(Some(_)), None) => Turn::Wider,
            (Some(Some(was)), Some(Some(is))) => match (end, is > was) {
                (End::Most, true) | (End::Least, false) => Turn::Wider,
                (End::Most, false) | (End::Least, true) => Turn::Narrower,
            },
            (_, _) => Turn::Other,
        };
        let what = changed(keyword, was, is);
        match (self.side, keyword, &turn) {
            // As many as a page has is a limit and no promise: readers take one after the other.
            (Side::Output, "maxItems", Turn::Wider) => {
                let why = "a list may be longer; readers find all that they knew, and a client that holds \
                           results to the old schema has to fetch the list again";
                self.say(Verdict::Compatible, at, format!("{what}; {why}"));
            }
            (_, _, _) => self.turned(&turn, at, &what),
        }
    }

    fn object(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let empty = Map::new();
        let properties = |of: &'_ Map<String, Value>| {
            of.get("properties").and_then(Value::as_object).cloned().unwrap_or_else(|| empty.clone())
        };
        let (old, new) = (properties(was), properties(is));
        for (name, property) in &old {
            match (new.get(name), self.side) {
                (Some(now), _) => self.node(&format!("{at}.{name}"), property, now),
                (None, Side::Input) => {
                    let why = if is.get("additionalProperties") == Some(&Value::Bool(false)) {
                        "the argument is gone; whoever says it is refused"
                    } else {
                        "the argument is gone; whoever says it is not heard"
                    };
                    self.say(Verdict::Breaking, &format!("{at}.{name}"), why);
                }
                (None, Side::Output) => {
                    let why = "the field is gone; whoever reads it finds nothing";
                    self.say(Verdict::Breaking, &format!("{at}.{name}"), why);
                }
            }
        }
        let must = required(is);
        for name in new.keys().filter(|name| !old.contains_key(*name)) {
            let at = format!("{at}.{name}");
            match self.side {
                Side::Input if must.contains(name.as_str()) => {
                    let why = "a new argument that must be said; whoever does not know it is refused";
                    self.say(Verdict::Breaking, &at, why);
                }
                Side::Input => {
                    self.say(Verdict::Compatible, &at, "a new argument that may be left out");
                }
                Side::Output => {
                    // The schema that a client fetched before may forbid it (`additionalProperties`). Such a
                    // client is told that the list changed; nobody who reads loses anything.
                    let why = "a new field; readers find all that they knew, and a client that holds results \
                               to the old schema has to fetch the list again";
                    self.say(Verdict::Compatible, &at, why);
                }
            }
        }
        self.required(at, was, is);
        self.others(at, was, is);
    }

    /// What must be there, but for what came or went as a whole.
    fn required(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let names = |of: &Map<String, Value>, name: &str| {
            let properties = of.get("properties").and_then(Value::as_object);
            properties.is_some_and(|properties| properties.contains_key(name))
        };
        let (old, new) = (required(was), required(is));
        for name in old.symmetric_difference(&new).filter(|name| names(was, name) == names(is, name)) {
            let at = format!("{at}.{name}");
            match (self.side, new.contains(name)) {
                (Side::Input, true) => {
                    let why = "it must be said now; whoever leaves it out is refused";
                    self.say(Verdict::Breaking, &at, why);
                }
                (Side::Input, false) => self.say(Verdict::Compatible, &at, "it may be left out now"),
                (Side::Output, true) => self.say(Verdict::Compatible, &at, "it is always there now"),
                (Side::Output, false) => {
                    let why = "it may be missing now; whoever relies on it finds nothing";
                    self.say(Verdict::Breaking, &at, why);
                }
            }
        }
    }

    /// `additionalProperties`
    fn others(&mut self, at: &str, was: &Map<String, Value>, is: &Map<String, Value>) {
        let (was, is) = (was.get("additionalProperties"), is.get("additionalProperties"));
        let closed = |one: Option<&Value>| one == Some(&Value::Bool(false));
        let open = |one: Option<&Value>| matches!(one, None | Some(Value::Bool(true)));
        match self.side {
            _ if was == is || open(was) && open(is) => {}
            Side::Output if closed(was) && open(is) => {
                self.say(
                    Verdict::Compatible,
                    at,
                    "there may be fields that are not named; readers pass over them",
                );
            }
            _ if closed(was) && open(is) => self.turned(&Turn::Wider, at, "other names may stand here now"),
            _ if open(was) && closed(is) => {
                self.turned(&Turn::Narrower, at, "no other names may stand here now")
            }
            _ => match (was, is) {
                (Some(was @ Value::Object(_)), Some(is @ Value::Object(_))) => {
                    self.node(&format!("{at}.*"), was, is);
                }
                (_, _) => self.turned(&Turn::Other, at, "what may stand under other names changed"),
            },
        }
    }

    /// `anyOf`: what is in both is taken out; the rest is compared one by one if it can be told what became of
    /// what.
    fn alternatives(&mut self, at: &str, was: Option<&Value>, is: Option<&Value>) {
        if was == is {
            return;
        }
        let (was, is) = match (was.map(Value::as_array), is.map(Value::as_array)) {
            (Some(Some(was)), Some(Some(is))) => (was, is),
            (None, Some(Some(_))) => {
                return self.turned(&Turn::Narrower, at, "only some shapes may stand here now");
            }
            (Some(Some(_)), None) => return self.turned(&Turn::Wider, at, "any shape may stand here now"),
            (_, _) => return self.turned(&Turn::Other, at, "`anyOf` is no list"),
        };
        let lost: Vec<&Value> = was.iter().filter(|one| !is.contains(one)).collect();
        let won: Vec<&Value> = is.iter().filter(|one| !was.contains(one)).collect();
        match (&*lost, &*won) {
            ([], []) => {}
            ([], _) => self.turned(&Turn::Wider, at, "it may have another shape too"),
            (_, []) => self.turned(&Turn::Narrower, at, "it has one shape less"),
            (lost, won) if lost.len() == won.len() => {
                for (was, is) in lost.iter().zip(won) {
                    self.node(at, was, is);
                }
            }
            (_, _) => self.turned(&Turn::Other, at, "it has other shapes"),
        }
    }
}

static ANY: Value = Value::Bool(true);

#[derive(Clone, Copy)]
enum End {
    Least,
    Most,
}

const BOUNDS: &[(&str, End)] = &[
    ("minimum", End::Least),
    ("exclusiveMinimum", End::Least),
    ("minLength", End::Least),
    ("minItems", End::Least),
    ("minProperties", End::Least),
    ("maximum", End::Most),
    ("exclusiveMaximum", End::Most),
    ("maxLength", End::Most),
    ("maxItems", End::Most),
    ("maxProperties", End::Most),
];

/// What is judged somewhere above.
const KNOWN: [&str; 13] = [
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
    SENSITIVE,
];

/// `true` is a schema without a keyword.
fn members<'a>(schema: &'a Value, empty: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
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
fn types(schema: &Map<String, Value>) -> BTreeSet<&str> {
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

fn values(schema: &Map<String, Value>) -> Option<BTreeSet<String>> {
    match (schema.get("enum").and_then(Value::as_array), schema.get("const")) {
        (Some(several), _) => Some(several.iter().map(Value::to_string).collect()),
        (None, Some(one)) => Some(BTreeSet::from([one.to_string()])),
        (None, None) => None,
    }
}

fn required(schema: &Map<String, Value>) -> BTreeSet<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `maximum is 50, was 100`
fn changed(keyword: &str, was: Option<&Value>, is: Option<&Value>) -> String {
    match (was, is) {
        (Some(was), Some(is)) => format!("`{keyword}` was {was} and is {is} now"),
        (None, Some(is)) => format!("`{keyword}` is {is} now"),
        (Some(was), None) => format!("`{keyword}` was {was} and is gone"),
        (None, None) => String::new(),
    }
}
