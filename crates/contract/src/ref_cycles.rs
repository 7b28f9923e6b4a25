//! Finds `$ref` cycles that never descend into the value: validating with such a schema would not terminate.
//!
//! `{"properties": {"child": {"$ref": "#"}}}` descends one level each time, so it terminates with the value.
//! `{"anyOf": [{"$ref": "#"}]}` applies itself to the same value forever.

use std::collections::HashMap;

use serde_json::Value;

/// Whether validating with this schema might not terminate.
pub(crate) fn has_ref_cycle(schema: &Value) -> bool {
    let mut walker = RefWalker { refs: RefResolver::new(schema), visited: HashMap::new() };
    walker.any_cycle_below(schema)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    InProgress,
    Terminates,
}

/// Finds the targets of references within a schema.
pub(crate) struct RefResolver<'s> {
    root: &'s Value,
    /// Targets of references by name: anchors, and schemas with an id.
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

struct RefWalker<'s> {
    refs: RefResolver<'s>,
    visited: HashMap<*const Value, VisitState>,
}

/// A longer chain of references is treated as a cycle: following it takes stack.
const CHAIN_MAX: u32 = 256;

impl<'s> RefResolver<'s> {
    pub(crate) fn new(schema: &'s Value) -> Self {
        let mut resolver = Self { root: schema, anchors: HashMap::new() };
        resolver.collect_anchors(schema);
        resolver
    }

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

    /// All schemas that a reference may resolve to. The compiler rejects one that resolves to nothing.
    pub(crate) fn targets(&self, reference: &str) -> Vec<&'s Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
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

impl<'s> RefWalker<'s> {
    fn any_cycle_below(&mut self, value: &'s Value) -> bool {
        if self.is_cyclic(value, 0) {
            return true;
        }
        match value {
            // These keywords hold data, not schemas.
            Value::Object(members) => members
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "const" | "enum" | "default" | "examples"))
                .any(|(_, member)| self.any_cycle_below(member)),
            Value::Array(items) => items.iter().any(|item| self.any_cycle_below(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    /// Follows all keywords that apply to the same value. Each schema is followed once.
    fn is_cyclic(&mut self, schema: &'s Value, chain: u32) -> bool {
        let Value::Object(members) = schema else { return false };
        if chain > CHAIN_MAX {
            return true;
        }
        match self.visited.get(&std::ptr::from_ref(schema)) {
            Some(VisitState::InProgress) => return true,
            Some(VisitState::Terminates) => return false,
            None => {}
        }
        self.visited.insert(std::ptr::from_ref(schema), VisitState::InProgress);
        for (key, member) in members {
            let is_cycle = match (key.as_str(), member) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(items)) => {
                    items.iter().any(|item| self.is_cyclic(item, chain + 1))
                }
                ("not" | "if" | "then" | "else", _) => self.is_cyclic(member, chain + 1),
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                    schemas.values().any(|schema| self.is_cyclic(schema, chain + 1))
                }
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    self.refs.targets(reference).into_iter().any(|target| self.is_cyclic(target, chain + 1))
                }
                _ => false,
            };
            if is_cycle {
                return true;
            }
        }
        self.visited.insert(std::ptr::from_ref(schema), VisitState::Terminates);
        false
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
    fn cycles_on_the_same_value_are_found() {
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
    fn recursion_into_the_value_is_allowed() {
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
