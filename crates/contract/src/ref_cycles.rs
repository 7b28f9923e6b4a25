//! Schemas that lead back to themselves without going deeper into the value: no judge of them ever ends.
//!
//! `{"properties": {"child": {"$ref": "#"}}}` goes one level down each time and ends with the value.
//! `{"anyOf": [{"$ref": "#"}]}` asks the same of the same value for ever.

use std::collections::HashMap;

use serde_json::Value;

/// Whether judging some value by this schema would never end.
pub(crate) fn has_ref_cycle(schema: &Value) -> bool {
    let mut walk = RefWalker { root: schema, anchors: HashMap::new(), visited: HashMap::new() };
    walk.collect_anchors(schema);
    walk.any_cycle_below(schema)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    InProgress,
    Terminates,
}

struct RefWalker<'s> {
    root: &'s Value,
    /// What can be referred to by name: anchors, and schemas with an id.
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    visited: HashMap<*const Value, VisitState>,
}

impl<'s> RefWalker<'s> {
    fn collect_anchors(&mut self, value: &'s Value) {
        match value {
            Value::Object(members) => {
                for key in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                    if let Some(Value::String(name)) = members.get(key) {
                        self.anchors.entry(name.trim_start_matches('#')).or_default().push(value);
                    }
                }
                members.values().for_each(|member| self.collect_anchors(member));
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect_anchors(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn any_cycle_below(&mut self, value: &'s Value) -> bool {
        if self.is_cyclic(value) {
            return true;
        }
        match value {
            // What is data and no schema judges nothing.
            Value::Object(members) => members
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "const" | "enum" | "default" | "examples"))
                .any(|(_, member)| self.any_cycle_below(member)),
            Value::Array(items) => items.iter().any(|item| self.any_cycle_below(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    /// Follows everything that judges the same value. What has been seen to end is not followed again.
    fn is_cyclic(&mut self, schema: &'s Value) -> bool {
        let Value::Object(members) = schema else { return false };
        match self.visited.get(&std::ptr::from_ref(schema)) {
            Some(VisitState::InProgress) => return true,
            Some(VisitState::Terminates) => return false,
            None => {}
        }
        self.visited.insert(std::ptr::from_ref(schema), VisitState::InProgress);
        for (key, member) in members {
            let looped = match (key.as_str(), member) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(items)) => {
                    items.iter().any(|item| self.is_cyclic(item))
                }
                ("not" | "if" | "then" | "else", _) => self.is_cyclic(member),
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                    schemas.values().any(|one| self.is_cyclic(one))
                }
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => {
                    self.ref_targets(to).into_iter().any(|target| self.is_cyclic(target))
                }
                _ => false,
            };
            if looped {
                return true;
            }
        }
        self.visited.insert(std::ptr::from_ref(schema), VisitState::Terminates);
        false
    }

    /// Everything that a reference may mean. One that means nothing here is refused elsewhere.
    fn ref_targets(&self, to: &str) -> Vec<&'s Value> {
        let (base, fragment) = to.split_once('#').unwrap_or((to, ""));
        let bases = match base {
            "" => vec![self.root],
            id => self.anchors.get(id).cloned().unwrap_or_default(),
        };
        match fragment {
            "" => bases,
            pointer if pointer.starts_with('/') => {
                let pointer = percent_decode(pointer);
                bases.into_iter().filter_map(|base| base.pointer(&pointer)).collect()
            }
            anchor => self.anchors.get(anchor).cloned().unwrap_or_default(),
        }
    }
}

fn percent_decode(pointer: &str) -> String {
    let mut out = Vec::with_capacity(pointer.len());
    let mut rest = pointer.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                out.push(byte);
                rest = &after[2..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::has_ref_cycle;

    fn check(schema: &str, expected: bool) {
        let value: Value = serde_json::from_str(schema).expect("JSON");
        assert_eq!(has_ref_cycle(&value), expected, "{schema}");
    }

    #[test]
    fn a_schema_that_never_ends_is_found() {
        for schema in [
            r##"{"$ref":"#"}"##,
            r##"{"anyOf":[{"type":"string"},{"$ref":"#"}]}"##,
            r##"{"allOf":[{"oneOf":[{"not":{"$ref":"#"}}]}]}"##,
            r##"{"if":{},"then":{"$ref":"#"}}"##,
            r##"{"dependentSchemas":{"a":{"$ref":"#"}}}"##,
            r##"{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"anyOf":[{"$ref":"#/$defs/y"}]},"y":{"$ref":"#/$defs/x"}}}"##,
            r##"{"items":{"$anchor":"here","anyOf":[{"$ref":"#here"}]}}"##,
            r##"{"$id":"urn:a","anyOf":[{"$ref":"urn:a"}]}"##,
            r##"{"$dynamicAnchor":"n","allOf":[{"$dynamicRef":"#n"}]}"##,
            r##"{"$defs":{"a b":{"anyOf":[{"$ref":"#/$defs/a%20b"}]}}}"##,
        ] {
            check(schema, true);
        }
    }

    #[test]
    fn a_schema_that_goes_deeper_ends() {
        for schema in [
            "true",
            r##"{"type":"object"}"##,
            r##"{"properties":{"child":{"$ref":"#"}}}"##,
            r##"{"items":{"$ref":"#"},"additionalProperties":{"$ref":"#"}}"##,
            r##"{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}}"##,
            r##"{"$defs":{"tree":{"properties":{"left":{"$ref":"#/$defs/tree"}}}},"$ref":"#/$defs/tree"}"##,
            r##"{"properties":{"$ref":{"type":"string"}}}"##,
            r##"{"const":{"$ref":"#"}}"##,
            r##"{"$ref":"#/nowhere"}"##,
        ] {
            check(schema, false);
        }
    }
}
