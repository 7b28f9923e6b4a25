//! What clients and the models behind them refuse in an input schema, although JSON Schema allows it.

use json::{Json, Node};

use super::quote_names;
use crate::diagnostic::Diagnostic;

/// Keywords that say of which type a value is, or lead to schemas that do.
const TYPE_KEYWORDS: [&str; 5] = ["type", "$ref", "anyOf", "oneOf", "allOf"];
/// Keywords whose value is a list of schemas.
const UNIONS: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// Findings about the input schema of a tool, without a place.
pub fn lint_input_schema(tool: &str, input: &Json) -> Vec<Diagnostic> {
    let doc = input.to_doc();
    let root = doc.root();
    let mut found = Vec::new();
    let mut warn = |code, problem: String, help: &str| {
        let message = format!("the arguments of `{tool}` {problem}");
        found.push(Diagnostic::warning(message).code(code).help(help));
    };
    for key in UNIONS.into_iter().filter(|key| root.get(key).is_some()) {
        let problem = format!("are an `{key}` at the top, which some clients refuse");
        warn("schema_union", problem, "split it into two tools");
    }
    if let Some(remote) = remote_ref(root) {
        warn(
            "schema_remote_ref",
            format!("refer to `{remote}`, which clients do not fetch"),
            "include the schema",
        );
    }
    let names = root.get("properties").into_iter().flat_map(|properties| properties.members());
    let odd: Vec<String> = names
        .filter_map(|(name, _)| name.str().map(std::borrow::Cow::into_owned))
        .filter(|name| name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        .collect();
    if !odd.is_empty() {
        warn(
            "argument_name",
            format!("have names that some clients refuse: {}", quote_names(&odd)),
            "use ASCII letters, digits and `_`; rename a field with `name = \"…\"`",
        );
    }
    let mut unclear = Unclear::default();
    unclear.visit(root, "");
    if !unclear.untyped.is_empty() {
        warn(
            "schema_untyped",
            format!("have no type: {}", quote_names(&unclear.untyped)),
            "give each a `type`; Gemini CLI leaves out tools with untyped arguments",
        );
    }
    if !unclear.without_items.is_empty() {
        warn(
            "schema_items",
            format!("have arrays without `items`: {}", quote_names(&unclear.without_items)),
            "say what the elements are, `items = {}` if they may be anything; VS Code and OpenAI models refuse the tool",
        );
    }
    found
}

/// Paths of arguments whose schema says too little.
#[derive(Default)]
struct Unclear {
    untyped: Vec<String>,
    without_items: Vec<String>,
}

impl Unclear {
    fn visit(&mut self, schema: Node<'_>, path: &str) {
        let mut types = schema.get("type").into_iter().flat_map(|of| of.elements().chain([of]));
        if types.any(|of| of.str().is_some_and(|of| of == "array"))
            && schema.get("items").is_none()
            && schema.get("prefixItems").is_none()
        {
            self.without_items.push(path.to_owned());
        }
        for (name, property) in
            schema.get("properties").into_iter().flat_map(|properties| properties.members())
        {
            let name = name.str().unwrap_or_default();
            let path = if path.is_empty() { name.into_owned() } else { format!("{path}.{name}") };
            if !TYPE_KEYWORDS.into_iter().any(|key| property.get(key).is_some()) {
                self.untyped.push(path.clone());
            }
            self.visit(property, &path);
        }
        for nested in schema.get("items").into_iter().chain(UNIONS.iter().filter_map(|key| schema.get(key))) {
            // `items` may be a list of schemas, as the unions are.
            for schema in nested.elements().chain([nested]) {
                self.visit(schema, path);
            }
        }
    }
}

/// The first `$ref` that leaves the schema.
fn remote_ref(node: Node<'_>) -> Option<String> {
    for (key, value) in node.members() {
        let target = key.eq_str("$ref").then(|| value.str()).flatten();
        if let Some(target) = target.filter(|target| !target.starts_with('#')) {
            return Some(target.into_owned());
        }
        if let Some(found) = remote_ref(value) {
            return Some(found);
        }
    }
    node.elements().find_map(remote_ref)
}
