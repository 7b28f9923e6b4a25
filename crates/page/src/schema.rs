//! A JSON Schema for people: one row for each argument, and the whole schema as indented text.

use json::{Json, Node, NodeKind};

/// A longer schema is cut.
const SCHEMA_CHARS_MAX: usize = 32 << 10;
const ROWS_MAX: usize = 200;
/// An enum lists at most this many values.
const VALUES_MAX: usize = 12;

pub(crate) struct PropertyRow {
    pub(crate) name: String,
    pub(crate) data_type: String,
    pub(crate) is_required: bool,
    pub(crate) description: String,
}

/// The properties of an object schema, in the order of the schema.
pub(crate) fn properties(schema: &Json) -> Vec<PropertyRow> {
    let doc = schema.to_doc();
    let root = doc.root();
    let required: Vec<String> = root
        .get("required")
        .into_iter()
        .flat_map(|all| all.elements())
        .filter_map(|name| name.str().map(|name| name.into_owned()))
        .collect();
    let properties = root.get("properties").into_iter().flat_map(|all| all.members());
    properties
        .take(ROWS_MAX)
        .map(|(name, property)| {
            let name = name.str().unwrap_or_default().into_owned();
            PropertyRow {
                data_type: data_type(property),
                is_required: required.contains(&name),
                description: property
                    .get("description")
                    .and_then(|text| text.str())
                    .map(|text| text.into_owned())
                    .unwrap_or_default(),
                name,
            }
        })
        .collect()
}

/// `string (date)`, `"free" | "ruby"`, `array of string`, `string or null`
fn data_type(schema: Node<'_>) -> String {
    if let Some(value) = schema.get("const") {
        return value.raw().to_owned();
    }
    if let Some(values) = schema.get("enum") {
        let mut shown: Vec<&str> = values.elements().take(VALUES_MAX).map(|value| value.raw()).collect();
        if values.len() > VALUES_MAX {
            shown.push("…");
        }
        return shown.join(" | ");
    }
    let one = |name: &str| match name {
        "array" => {
            let items = schema.get("items").map(data_type);
            items.map_or_else(|| "array".to_owned(), |items| format!("array of {items}"))
        }
        "string" => match schema.get("format").and_then(|format| format.str()) {
            Some(format) => format!("string ({format})"),
            None => "string".to_owned(),
        },
        name => name.to_owned(),
    };
    match schema.get("type") {
        Some(types) if types.kind() == NodeKind::Array => {
            let names: Vec<String> =
                types.elements().filter_map(|name| name.str().map(|name| one(&name))).collect();
            names.join(" or ")
        }
        Some(name) => name.str().map(|name| one(&name)).unwrap_or_default(),
        None => {
            let branches = schema.get("anyOf").or_else(|| schema.get("oneOf"));
            let names: Vec<String> =
                branches.into_iter().flat_map(|all| all.elements()).take(VALUES_MAX).map(data_type).collect();
            if names.is_empty() { "any".to_owned() } else { names.join(" or ") }
        }
    }
}

/// The schema as indented JSON, cut if it is very long.
pub(crate) fn pretty(schema: &Json) -> String {
    let mut out = String::new();
    write_pretty(&mut out, schema.to_doc().root(), 0);
    if out.len() > SCHEMA_CHARS_MAX {
        out.truncate(out.floor_char_boundary(SCHEMA_CHARS_MAX));
        out.push_str("\n… (the rest is not shown)");
    }
    out
}

fn write_pretty(out: &mut String, node: Node<'_>, depth: usize) {
    if out.len() > SCHEMA_CHARS_MAX {
        return;
    }
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    match node.kind() {
        NodeKind::Object if !node.is_empty() => {
            out.push('{');
            for (i, (name, value)) in node.members().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                line(out, depth + 1);
                out.push_str(name.raw());
                out.push_str(": ");
                write_pretty(out, value, depth + 1);
            }
            line(out, depth);
            out.push('}');
        }
        NodeKind::Array
            if node.elements().any(|one| matches!(one.kind(), NodeKind::Object | NodeKind::Array)) =>
        {
            out.push('[');
            for (i, value) in node.elements().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                line(out, depth + 1);
                write_pretty(out, value, depth + 1);
            }
            line(out, depth);
            out.push(']');
        }
        NodeKind::Array => {
            let values: Vec<&str> = node.elements().map(|value| value.raw()).collect();
            out.push('[');
            out.push_str(&values.join(", "));
            out.push(']');
        }
        NodeKind::Object
        | NodeKind::Null
        | NodeKind::True
        | NodeKind::False
        | NodeKind::Number
        | NodeKind::String => out.push_str(node.raw()),
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{data_type, pretty};

    #[test]
    fn a_type_is_named_in_words() {
        for (schema, expected) in [
            (r#"{"type":"string"}"#, "string"),
            (r#"{"type":"string","format":"date"}"#, "string (date)"),
            (r#"{"type":["integer","null"]}"#, "integer or null"),
            (r#"{"type":"array","items":{"type":"string"}}"#, "array of string"),
            (r#"{"enum":["a",1,null]}"#, r#""a" | 1 | null"#),
            (r#"{"const":"x"}"#, r#""x""#),
            (r#"{"anyOf":[{"type":"string"},{"type":"number"}]}"#, "string or number"),
            ("{}", "any"),
            ("true", "any"),
        ] {
            assert_eq!(data_type(Json::parse(schema).expect("JSON").to_doc().root()), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_is_indented_and_a_long_one_is_cut() {
        let schema =
            Json::parse(r#"{"type":"object","required":["a"],"properties":{"a":{}},"x":[{"b":[]}]}"#);
        insta::assert_snapshot!(pretty(&schema.expect("JSON")), @r#"
        {
          "type": "object",
          "required": ["a"],
          "properties": {
            "a": {}
          },
          "x": [
            {
              "b": []
            }
          ]
        }
        "#);
        let long = format!(r#"{{"description":"{}"}}"#, "é".repeat(40_000));
        let text = pretty(&Json::parse(&long).expect("JSON"));
        assert!(text.len() < 33 << 10 && text.ends_with("(the rest is not shown)"));
    }
}
