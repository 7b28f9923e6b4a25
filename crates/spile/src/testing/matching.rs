//! Compares the actual result with the expected one, and adapts an expectation to the actual result.
//!
//! An expected table matches a table with at least these members; an expected list matches a list of the same length, one
//! element after the other. With `exact`, tables have no other members. A table `{ is = "…" }` stands for any value of a kind.

use contract::diagnostic::FileLocation;
use json::{Json, Node, NodeKind};

use super::document::{FileValue, LocatedValue};

/// One difference.
#[derive(Debug)]
pub(super) struct Mismatch {
    /// `items[2].plan`; empty for the whole value.
    pub(super) path: String,
    pub(super) kind: MismatchKind,
    pub(super) location: FileLocation,
}

#[derive(Debug)]
pub(super) enum MismatchKind {
    Different {
        expected: String,
        got: String,
    },
    Missing {
        expected: String,
    },
    Unexpected {
        got: String,
    },
    /// A list has another length.
    Length {
        expected: usize,
        got: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exactness {
    /// Tables may have more members.
    Subset,
    Exact,
}

/// The words of `{ is = "…" }`.
pub(super) const KIND_WORDS: [&str; 9] =
    ["any", "null", "absent", "text", "number", "integer", "boolean", "list", "table"];

/// The key of a table that matches every value of a type.
pub(super) const KIND_KEY: &str = "is";

/// All differences.
pub(super) fn compare(expected: &LocatedValue, got: Node<'_>, exactness: Exactness) -> Vec<Mismatch> {
    let mut found = Vec::new();
    compare_at(expected, got, exactness, String::new(), &mut found);
    found
}

fn compare_at(
    expected: &LocatedValue,
    got: Node<'_>,
    exactness: Exactness,
    path: String,
    found: &mut Vec<Mismatch>,
) {
    let location = expected.location.clone();
    let different = |path: String, expected: String| Mismatch {
        path,
        kind: MismatchKind::Different { expected, got: shorten(got) },
        location: location.clone(),
    };
    if let Some(word) = kind_word(expected) {
        if !is_of_kind(got, &word) {
            found.push(different(path, describe_kind(&word)));
        }
        return;
    }
    match (&expected.value, got.kind()) {
        (FileValue::Table(members), NodeKind::Object) => {
            for member in members {
                let path = join(&path, &member.name);
                let expects_absence = kind_word(&member.value).as_deref() == Some("absent");
                match (got.get(&member.name), expects_absence) {
                    (Some(value), true) => found.push(Mismatch {
                        path,
                        kind: MismatchKind::Unexpected { got: shorten(value) },
                        location: member.name_location.clone(),
                    }),
                    (None, true) => {}
                    (Some(value), false) => compare_at(&member.value, value, exactness, path, found),
                    (None, false) => found.push(Mismatch {
                        path,
                        kind: MismatchKind::Missing { expected: expected_text(&member.value) },
                        location: member.name_location.clone(),
                    }),
                }
            }
            if exactness == Exactness::Exact {
                for (name, value) in got.members() {
                    let name = name.str().unwrap_or_default();
                    if !members.iter().any(|member| member.name == *name) {
                        let kind = MismatchKind::Unexpected { got: shorten(value) };
                        found.push(Mismatch { path: join(&path, &name), kind, location: location.clone() });
                    }
                }
            }
        }
        (FileValue::Array(elements), NodeKind::Array) => {
            if elements.len() != got.len() {
                let kind = MismatchKind::Length { expected: elements.len(), got: got.len() };
                found.push(Mismatch { path: path.clone(), kind, location: location.clone() });
            }
            for (index, (element, value)) in elements.iter().zip(got.elements()).enumerate() {
                compare_at(element, value, exactness, format!("{path}[{index}]"), found);
            }
        }
        (FileValue::Scalar(scalar), _) if is_equal(scalar.to_doc().root(), got) => {}
        (FileValue::Scalar(_) | FileValue::Table(_) | FileValue::Array(_), _) => {
            found.push(different(path, expected_text(expected)));
        }
    }
}

/// The word of `{ is = "…" }`.
fn kind_word(expected: &LocatedValue) -> Option<String> {
    match &expected.value {
        FileValue::Table(members) => match &**members {
            [only] if only.name == KIND_KEY => {
                only.value.text().filter(|word| KIND_WORDS.contains(&word.as_str()))
            }
            _ => None,
        },
        FileValue::Array(_) | FileValue::Scalar(_) => None,
    }
}

fn is_of_kind(got: Node<'_>, word: &str) -> bool {
    match (word, got.kind()) {
        ("any", _) => true,
        ("null", kind) => kind == NodeKind::Null,
        ("text", kind) => kind == NodeKind::String,
        ("number", kind) => kind == NodeKind::Number,
        ("integer", NodeKind::Number) => got.decimal().is_some_and(|number| number.is_integer()),
        ("boolean", kind) => matches!(kind, NodeKind::True | NodeKind::False),
        ("list", kind) => kind == NodeKind::Array,
        ("table", kind) => kind == NodeKind::Object,
        _ => false,
    }
}

fn describe_kind(word: &str) -> String {
    match word {
        "any" | "null" => word.to_owned(),
        "absent" => "nothing".to_owned(),
        "integer" => "an integer".to_owned(),
        _ => format!("a {word}"),
    }
}

/// Numbers are equal by value, so that 1.50 is 1.5.
fn is_equal(expected: Node<'_>, got: Node<'_>) -> bool {
    if expected.kind() != got.kind() {
        return false;
    }
    match expected.kind() {
        NodeKind::Number => match (expected.decimal(), got.decimal()) {
            (Some(one), Some(other)) => {
                let (mut left, mut right) = (Vec::new(), Vec::new());
                one.write_canonical(&mut left);
                other.write_canonical(&mut right);
                left == right
            }
            _ => expected.raw() == got.raw(),
        },
        NodeKind::String => expected.str() == got.str(),
        NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Object | NodeKind::Array => true,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A value in a message is cut to this length.
const VALUE_CHARS_MAX: usize = 200;

fn shorten(node: Node<'_>) -> String {
    let mut out = Vec::new();
    node.write_compact(&mut out);
    cut(String::from_utf8_lossy(&out).into_owned())
}

fn expected_text(expected: &LocatedValue) -> String {
    match kind_word(expected) {
        Some(word) => describe_kind(&word),
        None => cut(expected.to_json().to_string()),
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The expectation that `got` fulfils and that says as much as this one: members that are expected are updated, others are
/// not added.
pub(super) fn adapt(expected: &LocatedValue, got: Node<'_>, exactness: Exactness) -> Json {
    let mut out = Vec::new();
    write_adapted(&mut out, expected, got, exactness);
    Json::from_written_bytes(out)
}

fn write_adapted(out: &mut Vec<u8>, expected: &LocatedValue, got: Node<'_>, exactness: Exactness) {
    if kind_word(expected).is_some_and(|word| is_of_kind(got, &word)) {
        return out.extend_from_slice(expected.to_json().as_str().as_bytes());
    }
    match (&expected.value, got.kind()) {
        (FileValue::Table(members), NodeKind::Object) if kind_word(expected).is_none() => {
            let mut object = json::write::ObjectWriter::new(out);
            for member in members {
                match got.get(&member.name) {
                    Some(value) => {
                        write_adapted(object.key(&member.name), &member.value, value, exactness);
                    }
                    None if kind_word(&member.value).as_deref() == Some("absent") => {
                        object.raw(&member.name, member.value.to_json().as_str());
                    }
                    None => {}
                }
            }
            if exactness == Exactness::Exact {
                for (name, value) in got.members() {
                    let name = name.str().unwrap_or_default();
                    if !members.iter().any(|member| member.name == *name) {
                        object.raw(&name, value.raw());
                    }
                }
            }
            object.end();
        }
        (FileValue::Array(elements), NodeKind::Array) if elements.len() == got.len() => {
            json::write::array(out, elements.iter().zip(got.elements()), |out, (element, value)| {
                write_adapted(out, element, value, exactness);
            });
        }
        _ => got.write_compact(out),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contract::diagnostic::FileText;
    use json::Json;

    use super::{Exactness, MismatchKind, adapt, compare};
    use crate::testing::document::{self, FileFormat, FileValue, LocatedValue};

    /// The value of `expect` in TOML.
    fn expected(toml: &str) -> LocatedValue {
        let origin = Arc::new(FileText::new("t.toml", format!("expect = {toml}")));
        let root = document::parse(&origin, FileFormat::Toml).expect("valid TOML");
        let FileValue::Table(mut members) = root.value else { unreachable!("a document is a table") };
        members.remove(0).value
    }

    fn differences(toml: &str, got: &str, exactness: Exactness) -> String {
        let got = Json::parse(got).expect("valid JSON");
        let found = compare(&expected(toml), got.to_doc().root(), exactness);
        let lines = found.iter().map(|one| match &one.kind {
            MismatchKind::Different { expected, got } => format!("{}: {expected} != {got}", one.path),
            MismatchKind::Missing { expected } => format!("{}: {expected} is missing", one.path),
            MismatchKind::Unexpected { got } => format!("{}: {got} is unexpected", one.path),
            MismatchKind::Length { expected, got } => format!("{}: length {expected} != {got}", one.path),
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_subset_matches() {
        for (toml, got) in [
            ("{ a = 1 }", r#"{"a":1,"b":2}"#),
            ("{ a = 1.5 }", r#"{"a":1.50}"#),
            ("{ a = 10 }", r#"{"a":1e1}"#),
            ("{ a = { b = [1, { c = 'x' }] } }", r#"{"a":{"b":[1,{"c":"x","d":0}],"e":null}}"#),
            ("{ day = 2026-02-11 }", r#"{"day":"2026-02-11"}"#),
            ("{ a = { is = 'null' }, b = { is = 'absent' } }", r#"{"a":null}"#),
            ("{ a = { is = 'any' }, b = { is = 'integer' } }", r#"{"a":[],"b":7}"#),
            ("[]", "[]"),
            ("true", "true"),
        ] {
            assert_eq!(differences(toml, got, Exactness::Subset), "", "{toml} {got}");
        }
    }

    #[test]
    fn every_difference_has_its_path() {
        for (toml, got, expected) in [
            ("{ a = 1 }", r#"{"a":2}"#, "a: 1 != 2"),
            ("{ a = '1' }", r#"{"a":1}"#, r#"a: "1" != 1"#),
            ("{ a = true }", r#"{"a":false}"#, "a: true != false"),
            ("{ a = 1, b = 2 }", r#"{"a":1}"#, "b: 2 is missing"),
            ("{ a = [1, 2] }", r#"{"a":[1]}"#, "a: length 2 != 1"),
            ("{ a = [{ b = 1 }] }", r#"{"a":[{"b":2}]}"#, "a[0].b: 1 != 2"),
            ("{ a = { is = 'null' } }", r#"{"a":0}"#, "a: null != 0"),
            ("{ a = { is = 'absent' } }", r#"{"a":0}"#, "a: 0 is unexpected"),
            ("{ a = { is = 'integer' } }", r#"{"a":1.5}"#, "a: an integer != 1.5"),
            ("{ a = { is = 'text' } }", "{}", "a: a text is missing"),
            ("{ a = { is = 'unknown' } }", r#"{"a":0}"#, r#"a: {"is":"unknown"} != 0"#),
            ("{ a = 1 }", "[]", r#": {"a":1} != []"#),
            ("1", "null", ": 1 != null"),
            ("9007199254740993", "9007199254740992", ": 9007199254740993 != 9007199254740992"),
        ] {
            assert_eq!(differences(toml, got, Exactness::Subset), expected, "{toml} {got}");
        }
    }

    #[test]
    fn an_exact_match_has_no_other_members() {
        assert_eq!(differences("{ a = { b = 1 } }", r#"{"a":{"b":1}}"#, Exactness::Exact), "");
        assert_eq!(
            differences("{ a = { b = 1 } }", r#"{"a":{"b":1,"c":[2]},"d":null}"#, Exactness::Exact),
            "a.c: [2] is unexpected; d: null is unexpected"
        );
    }

    #[test]
    fn an_adapted_expectation_matches_and_says_no_more_than_before() {
        for (toml, got, exactness, adapted) in [
            ("{ a = 1 }", r#"{"a":2,"b":3}"#, Exactness::Subset, r#"{"a":2}"#),
            ("{ a = 1 }", r#"{"a":2,"b":3}"#, Exactness::Exact, r#"{"a":2,"b":3}"#),
            ("{ a = 1, b = 2 }", r#"{"a":1}"#, Exactness::Subset, r#"{"a":1}"#),
            ("{ a = { is = 'any' } }", r#"{"a":7}"#, Exactness::Subset, r#"{"a":{"is":"any"}}"#),
            ("{ a = { is = 'null' } }", r#"{"a":7}"#, Exactness::Subset, r#"{"a":7}"#),
            ("{ a = [{ b = 1 }] }", r#"{"a":[{"b":2,"c":3}]}"#, Exactness::Subset, r#"{"a":[{"b":2}]}"#),
            ("{ a = [1] }", r#"{"a":[1,2]}"#, Exactness::Subset, r#"{"a":[1,2]}"#),
            ("1", r#"{"a":1}"#, Exactness::Subset, r#"{"a":1}"#),
        ] {
            let json = Json::parse(got).expect("valid JSON");
            assert_eq!(adapt(&expected(toml), json.to_doc().root(), exactness).as_str(), adapted, "{toml}");
        }
    }
}
