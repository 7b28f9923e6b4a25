//! Arguments that a client mirrors into HTTP headers: `x-mcp-header` in a tool's input schema.

use json::{Json, Kind, Node};

use crate::check::BadSchema;

/// One annotated argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// The whole header name, lower case: `mcp-param-region`.
    pub header: String,
    /// The keys that lead to the argument.
    pub path: Vec<String>,
}

impl Mirrored {
    /// The argument itself, if the call has it.
    pub fn find<'a>(&self, arguments: Option<Node<'a>>) -> Option<Node<'a>> {
        self.path.iter().try_fold(arguments?, |node, key| node.get(key))
    }
}

/// All annotations of a schema; an error if one breaks a rule of 2026-07-28, Schema Extension.
pub fn mirrored(schema: &Json) -> Result<Vec<Mirrored>, BadSchema> {
    if !schema.as_str().contains("x-mcp-header") {
        return Ok(Vec::new());
    }
    let doc = schema.doc();
    let mut found = Vec::new();
    let mut path = Vec::new();
    walk(doc.root(), &mut path, true, &mut found)?;
    for (i, one) in found.iter().enumerate() {
        if found[..i].iter().any(|earlier: &Mirrored| earlier.header == one.header) {
            return Err(BadSchema(format!("`x-mcp-header`: `{}` is used twice", one.header)));
        }
    }
    Ok(found)
}

/// `reachable`: the way from the root led through `properties` only.
fn walk(
    schema: Node<'_>,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<Mirrored>,
) -> Result<(), BadSchema> {
    for (key, value) in schema.members() {
        if key.is("x-mcp-header") {
            found.push(annotation(schema, value, path, reachable)?);
        } else if key.is("properties") {
            for (name, property) in value.members() {
                path.push(name.str().unwrap_or_default().into_owned());
                walk(property, path, reachable, found)?;
                path.pop();
            }
        } else if !key.is("default") && !key.is("examples") && !key.is("const") && !key.is("enum") {
            elsewhere(value, path, found)?;
        }
    }
    Ok(())
}

/// Everywhere but along `properties` an annotation is an error, so walking on finds it.
fn elsewhere(node: Node<'_>, path: &mut Vec<String>, found: &mut Vec<Mirrored>) -> Result<(), BadSchema> {
    match node.kind() {
        Kind::Object => walk(node, path, false, found),
        Kind::Array => node.elements().try_for_each(|element| elsewhere(element, path, found)),
        Kind::Null | Kind::True | Kind::False | Kind::Number | Kind::String => Ok(()),
    }
}

fn annotation(
    schema: Node<'_>,
    value: Node<'_>,
    path: &[String],
    reachable: bool,
) -> Result<Mirrored, BadSchema> {
    let at = path.join(".");
    let bad = |why: &str| Err(BadSchema(format!("`x-mcp-header` at `{at}`: {why}")));
    let Some(name) = value.str() else { return bad("expected a string") };
    if !reachable || path.is_empty() {
        return bad("only an argument reached through `properties` can be mirrored");
    }
    let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || !name.bytes().all(token) {
        return bad("not a header name");
    }
    let primitive = schema.get("type").is_some_and(|t| t.is("string") || t.is("integer") || t.is("boolean"));
    if !primitive {
        return bad("only a string, an integer or a boolean can be mirrored");
    }
    Ok(Mirrored { header: format!("mcp-param-{}", name.to_ascii_lowercase()), path: path.to_vec() })
}
