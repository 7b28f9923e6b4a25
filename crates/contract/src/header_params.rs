//! Arguments that a client repeats in HTTP headers: `x-mcp-header` in a tool's input schema.

use json::{Json, Node, NodeKind};

use crate::validate::SchemaError;

/// An argument with `x-mcp-header`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParam {
    /// The full header name in lower case: `mcp-param-region`.
    pub header: String,
    /// The keys from the root to the argument.
    pub path: Vec<String>,
}

impl HeaderParam {
    /// The value of the argument, if the call has it.
    pub fn find<'a>(&self, arguments: Option<Node<'a>>) -> Option<Node<'a>> {
        self.path.iter().try_fold(arguments?, |node, key| node.get(key))
    }
}

/// All annotations of a schema. An error if one breaks a rule of 2026-07-28, Schema Extension.
pub fn header_params(schema: &Json) -> Result<Vec<HeaderParam>, SchemaError> {
    if !schema.as_str().contains("x-mcp-header") {
        return Ok(Vec::new());
    }
    let doc = schema.to_doc();
    let mut found = Vec::new();
    let mut path = Vec::new();
    walk(doc.root(), &mut path, true, &mut found)?;
    for (i, param) in found.iter().enumerate() {
        if found[..i].iter().any(|earlier: &HeaderParam| earlier.header == param.header) {
            return Err(SchemaError(format!("`x-mcp-header`: `{}` is used twice", param.header)));
        }
    }
    Ok(found)
}

/// `reachable`: the path from the root leads through `properties` only.
fn walk(
    schema: Node<'_>,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<HeaderParam>,
) -> Result<(), SchemaError> {
    for (key, value) in schema.members() {
        if key.eq_str("x-mcp-header") {
            found.push(parse_annotation(schema, value, path, reachable)?);
        } else if key.eq_str("properties") {
            for (name, property) in value.members() {
                path.push(name.str().unwrap_or_default().into_owned());
                walk(property, path, reachable, found)?;
                path.pop();
            }
        } else if !key.eq_str("default")
            && !key.eq_str("examples")
            && !key.eq_str("const")
            && !key.eq_str("enum")
        {
            walk_unreachable(value, path, found)?;
        }
    }
    Ok(())
}

/// Walks a part of the schema in which every annotation is an error.
fn walk_unreachable(
    node: Node<'_>,
    path: &mut Vec<String>,
    found: &mut Vec<HeaderParam>,
) -> Result<(), SchemaError> {
    match node.kind() {
        NodeKind::Object => walk(node, path, false, found),
        NodeKind::Array => node.elements().try_for_each(|element| walk_unreachable(element, path, found)),
        NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Number | NodeKind::String => Ok(()),
    }
}

fn parse_annotation(
    schema: Node<'_>,
    value: Node<'_>,
    path: &[String],
    reachable: bool,
) -> Result<HeaderParam, SchemaError> {
    let argument = path.join(".");
    let invalid = |reason: &str| Err(SchemaError(format!("`x-mcp-header` of `{argument}`: {reason}")));
    let Some(name) = value.str() else { return invalid("expected a string") };
    if !reachable || path.is_empty() {
        return invalid("only an argument reached through `properties` can be sent in a header");
    }
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || !name.bytes().all(is_token) {
        return invalid("not a valid header name");
    }
    let is_primitive =
        schema.get("type").is_some_and(|t| t.eq_str("string") || t.eq_str("integer") || t.eq_str("boolean"));
    if !is_primitive {
        return invalid("only a string, an integer or a boolean can be sent in a header");
    }
    Ok(HeaderParam { header: format!("mcp-param-{}", name.to_ascii_lowercase()), path: path.to_vec() })
}
