//! Arguments that a client repeats in HTTP headers.
//!
//! 2026-07-28, Custom Headers from Tool Parameters: a property of a tool's `inputSchema` with `x-mcp-header` is
//! repeated in `Mcp-Param-…`. A client must ignore a tool whose annotations are invalid.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::{Node, NodeKind};

/// The parameter headers of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamHeaders(Vec<ParamHeader>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ParamHeader {
    header: String,
    path: Vec<String>,
}

const ANNOTATION: &str = "x-mcp-header";
const PARAMS_MAX: usize = 64;

impl ParamHeaders {
    /// Reads a tool's `inputSchema`. The error says why the tool cannot be used.
    pub fn read(schema: Node<'_>) -> Result<Self, String> {
        let mut headers = Self::default();
        let mut names = BTreeSet::new();
        headers.walk(schema, Some(&mut Vec::new()), &mut names)?;
        Ok(headers)
    }

    /// `path` is the path of properties from the root; `None` below any other keyword.
    fn walk(
        &mut self,
        schema: Node<'_>,
        mut path: Option<&mut Vec<String>>,
        names: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        if schema.kind() == NodeKind::Array {
            return schema.elements().try_for_each(|item| self.walk(item, None, names));
        }
        for (key, value) in schema.members() {
            if key.eq_str(ANNOTATION) {
                self.add_annotation(schema, value, path.as_deref(), names)?;
            } else if key.eq_str("properties") && value.is_object() {
                for (name, property) in value.members() {
                    match path.as_deref_mut() {
                        Some(path) => {
                            path.push(name.str().unwrap_or_default().into_owned());
                            self.walk(property, Some(path), names)?;
                            path.pop();
                        }
                        None => self.walk(property, None, names)?,
                    }
                }
            } else if !(key.eq_str("const")
                || key.eq_str("enum")
                || key.eq_str("default")
                || key.eq_str("examples"))
            {
                self.walk(value, None, names)?;
            }
        }
        Ok(())
    }

    fn add_annotation(
        &mut self,
        schema: Node<'_>,
        value: Node<'_>,
        path: Option<&Vec<String>>,
        names: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let Some(name) = value.str() else { return Err(format!("`{ANNOTATION}` is not a string")) };
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return Err(format!(
                "`{ANNOTATION}`: `{name}` is not on a property reached through `properties` only"
            ));
        };
        let property = path.join(".");
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("`{property}`: `{}` is not a valid header name", name.escape_default()));
        }
        if !schema
            .get("type")
            .is_some_and(|t| t.eq_str("string") || t.eq_str("integer") || t.eq_str("boolean"))
        {
            return Err(format!(
                "`{property}`: only a string, an integer or a boolean can be sent in a header"
            ));
        }
        if !names.insert(name.to_ascii_lowercase()) {
            return Err(format!("`{property}`: the header name `{name}` is used twice"));
        }
        if self.0.len() >= PARAMS_MAX {
            return Err(format!("the schema exceeds the limit of {PARAMS_MAX} header arguments"));
        }
        self.0.push(ParamHeader { header: format!("Mcp-Param-{name}"), path: path.clone() });
        Ok(())
    }

    /// The headers for these arguments.
    pub fn headers_for(&self, arguments: Option<Node<'_>>) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        let Some(arguments) = arguments else { return headers };
        for ParamHeader { header, path } in &self.0 {
            let value = path.iter().try_fold(arguments, |node, key| node.get(key));
            let text = value.and_then(|value| match value.kind() {
                NodeKind::String => value.str().map(|text| encode_header_value(&text)),
                NodeKind::Number => Some(value.raw().to_owned()),
                NodeKind::True => Some("true".to_owned()),
                NodeKind::False => Some("false".to_owned()),
                NodeKind::Null | NodeKind::Array | NodeKind::Object => None,
            });
            headers.extend(text.map(|text| (header.clone(), text)));
        }
        headers
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c)
}

/// Encodes a header value: plain text where possible, otherwise base64 between `=?base64?` and `?=`.
pub fn encode_header_value(value: &str) -> String {
    let is_visible = value.bytes().all(|c| matches!(c, 0x20..=0x7e | b'\t'));
    let is_trimmed = !value.starts_with([' ', '\t']) && !value.ends_with([' ', '\t']);
    let looks_encoded = value.starts_with("=?base64?") && value.ends_with("?=");
    if is_visible && is_trimmed && !looks_encoded {
        return value.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(value))
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{ParamHeaders, encode_header_value};
    use crate::headers::decode_header_value;

    fn check(schema: &str, arguments: &str, expected: Result<&[(&str, &str)], &str>) {
        let schema = Json::parse(schema).expect("JSON").to_doc();
        let arguments = Json::parse(arguments).expect("JSON").to_doc();
        let got =
            ParamHeaders::read(schema.root()).map(|headers| headers.headers_for(Some(arguments.root())));
        let expected = expected.map(|headers| {
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        });
        assert_eq!(got, expected.map_err(str::to_owned));
    }

    #[test]
    fn annotated_arguments_become_headers() {
        let schema = r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},
            "at":{"properties":{"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}},
            "q":{"type":"string"}}}"#;
        check(
            schema,
            r#"{"region":"us-west1","at":{"n":42,"b":false},"q":"secret"}"#,
            Ok(&[("Mcp-Param-Region", "us-west1"), ("Mcp-Param-N", "42"), ("Mcp-Param-B", "false")]),
        );
        check(schema, r#"{"region":null,"at":7}"#, Ok(&[]));
        check(schema, "{}", Ok(&[]));
        check(r#"{"properties":{"x":{"default":{"x-mcp-header":""}}}}"#, "{}", Ok(&[]));
    }

    #[test]
    fn invalid_annotations_are_errors() {
        let schema_with = |property: &str| format!(r#"{{"properties":{{"a":{property}}}}}"#);
        let invalid_name = |name: &str| Err(format!("`a`: `{name}` is not a valid header name"));
        for (name, shown) in
            [("", ""), ("a b", "a b"), ("a:b", "a:b"), ("a\\r\\nb", "a\\r\\nb"), ("ü", "\\u{fc}")]
        {
            let schema = schema_with(&format!(r#"{{"type":"string","x-mcp-header":"{name}"}}"#));
            let got = ParamHeaders::read(Json::parse(&schema).expect("JSON").to_doc().root());
            assert_eq!(got, invalid_name(shown));
        }
        check(
            &schema_with(r#"{"type":"string","x-mcp-header":7}"#),
            "{}",
            Err("`x-mcp-header` is not a string"),
        );
        let wrong_type = "`a`: only a string, an integer or a boolean can be sent in a header";
        for kind in [r#""number""#, r#""object""#, r#""array""#, r#"["string","null"]"#] {
            check(&schema_with(&format!(r#"{{"type":{kind},"x-mcp-header":"A"}}"#)), "{}", Err(wrong_type));
        }
        check(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"Same"},"b":{"type":"string","x-mcp-header":"same"}}}"#,
            "{}",
            Err("`b`: the header name `same` is used twice"),
        );
        let misplaced = "`x-mcp-header`: `A` is not on a property reached through `properties` only";
        let inner = r#"{"type":"string","x-mcp-header":"A"}"#;
        for schema in [
            schema_with(&format!(r#"{{"type":"array","items":{inner}}}"#)),
            schema_with(&format!(r#"{{"anyOf":[{inner}]}}"#)),
            format!(r#"{{"allOf":[{{"properties":{{"a":{inner}}}}}]}}"#),
            format!(r#"{{"$defs":{{"a":{inner}}}}}"#),
            format!(r#"{{"if":{{"properties":{{"a":{inner}}}}}}}"#),
            inner.to_owned(),
        ] {
            check(&schema, "{}", Err(misplaced));
        }
    }

    #[test]
    fn encoded_header_values_decode_to_the_same_text() {
        for value in
            ["plain", "a b", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=", "", "\t"]
        {
            let header = encode_header_value(value);
            assert!(header.bytes().all(|c| (0x20..0x7f).contains(&c)), "{header:?}");
            assert_eq!(decode_header_value(header.as_bytes()).expect("well formed"), value.as_bytes());
        }
        assert_eq!(encode_header_value("Hello, 世界"), "=?base64?SGVsbG8sIOS4lueVjA==?=");
        assert_eq!(encode_header_value("=?base64?literal?="), "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=");
    }
}
