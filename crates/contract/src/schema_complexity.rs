//! Measures how much work a schema can cause, before it is compiled.
//!
//! A few hundred bytes of `$ref`s can stand for a schema of any size: each of thirty definitions that refers to the
//! next one twice doubles it. The compiler and the validator recurse through references, so their depth counts too.

use std::collections::HashMap;

use serde_json::Value;

use crate::ref_cycles::RefResolver;
use crate::validate::SchemaError;

/// The limit of subschemas, with references expanded, that apply to one value.
const SUBSCHEMAS_PER_VALUE_MAX: u64 = 10_000;
/// The limit of nested subschemas that apply to one value. The validator needs stack for each.
const NESTING_PER_VALUE_MAX: u32 = 32;
/// The limit of nested subschemas, with references expanded. The compiler needs stack for each.
const NESTING_MAX: u32 = 128;
/// The limit of regular expressions. Each takes time to compile.
const PATTERNS_MAX: usize = 1000;

/// The result of [`measure`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaShape {
    /// The largest number of subschemas, with references expanded, that apply to one value.
    pub(crate) subschemas_per_value: u64,
    pub(crate) patterns: usize,
}

/// Measures a schema. An error if it exceeds a limit.
pub(crate) fn measure(schema: &Value) -> Result<SchemaShape, SchemaError> {
    let patterns = count_patterns(schema);
    if patterns > PATTERNS_MAX {
        return Err(SchemaError(format!("the schema exceeds the limit of {PATTERNS_MAX} patterns")));
    }
    let mut measurer =
        Measurer { refs: RefResolver::new(schema), known: HashMap::new(), subschemas_per_value: 1 };
    measurer.measure(schema, 0)?;
    Ok(SchemaShape { subschemas_per_value: measurer.subschemas_per_value, patterns })
}

/// How large a schema is, with references expanded.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Subschemas that apply to the same value.
    same_value: u64,
    same_value_nesting: u32,
    nesting: u32,
}

struct Measurer<'s> {
    refs: RefResolver<'s>,
    /// `None` while a schema is being measured.
    known: HashMap<*const Value, Option<Size>>,
    subschemas_per_value: u64,
}

impl<'s> Measurer<'s> {
    fn measure(&mut self, schema: &'s Value, nesting: u32) -> Result<Size, SchemaError> {
        let leaf = Size { same_value: 1, same_value_nesting: 0, nesting: 0 };
        let Value::Object(members) = schema else { return Ok(leaf) };
        let size = match self.known.get(&std::ptr::from_ref(schema)) {
            Some(Some(size)) => *size,
            // Recursion: it is being counted already.
            Some(None) => return Ok(leaf),
            None => {
                if nesting > NESTING_MAX {
                    return Err(too_deep());
                }
                self.known.insert(std::ptr::from_ref(schema), None);
                let mut size = leaf;
                for (key, member) in members {
                    let (subschemas, is_same_value) = self.subschemas(key, member);
                    for subschema in subschemas {
                        let sub = self.measure(subschema, nesting + 1)?;
                        size.nesting = size.nesting.max(sub.nesting + 1);
                        if is_same_value {
                            size.same_value = size.same_value.saturating_add(sub.same_value);
                            size.same_value_nesting = size.same_value_nesting.max(sub.same_value_nesting + 1);
                        }
                    }
                }
                self.known.insert(std::ptr::from_ref(schema), Some(size));
                size
            }
        };
        self.subschemas_per_value = self.subschemas_per_value.max(size.same_value);
        if size.same_value > SUBSCHEMAS_PER_VALUE_MAX {
            return Err(SchemaError(format!(
                "the schema exceeds the limit of {SUBSCHEMAS_PER_VALUE_MAX} subschemas for one value, with each `$ref` expanded"
            )));
        }
        if size.same_value_nesting > NESTING_PER_VALUE_MAX || nesting + size.nesting > NESTING_MAX {
            return Err(too_deep());
        }
        Ok(size)
    }

    /// The subschemas of a keyword, and whether they apply to the same value.
    fn subschemas(&self, keyword: &str, value: &'s Value) -> (Vec<&'s Value>, bool) {
        let one_or_many = || match value {
            Value::Array(items) => items.iter().collect(),
            one => vec![one],
        };
        let named = || value.as_object().map_or_else(Vec::new, |schemas| schemas.values().collect());
        match keyword {
            "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => (one_or_many(), true),
            "dependentSchemas" | "dependencies" => (named(), true),
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                (value.as_str().map_or_else(Vec::new, |reference| self.refs.targets(reference)), true)
            }
            "properties" | "patternProperties" => (named(), false),
            "items"
            | "prefixItems"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames"
            | "contentSchema" => (one_or_many(), false),
            _ => (Vec::new(), false),
        }
    }
}

fn too_deep() -> SchemaError {
    SchemaError("the schema is nested too deeply, with each `$ref` expanded".to_owned())
}

fn count_patterns(value: &Value) -> usize {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| match (key.as_str(), member) {
                ("pattern", Value::String(_)) => 1,
                ("patternProperties", Value::Object(schemas)) => schemas.len() + count_patterns(member),
                _ => count_patterns(member),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count_patterns).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
