//! Arguments that a client repeats in HTTP headers.
//!
//! 2026-07-28, Custom Headers from Tool Parameters: a property of a tool's `inputSchema` with `x-mcp-header` is
//! repeated in `Mcp-Param-…`. A client must ignore a tool whose annotations are invalid.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::{Node, NodeKind};
use spile_core::{HeaderParam, HeaderParamError};

/// The parameter headers of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamHeaders(Vec<HeaderParam>);

impl ParamHeaders {
    /// Reads a tool's `inputSchema`. The error says why the tool cannot be used.
    pub fn read(schema: Node<'_>) -> Result<Self, HeaderParamError> {
        HeaderParam::read_all(schema).map(Self)
    }

    /// The headers for these arguments.
    pub fn headers_for(&self, arguments: Option<Node<'_>>) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        for param in &self.0 {
            let text = param.find(arguments).and_then(|value| match value.kind() {
                NodeKind::String => value.str().map(|text| encode_header_value(&text)),
                NodeKind::Number => Some(value.raw().to_owned()),
                NodeKind::True => Some("true".to_owned()),
                NodeKind::False => Some("false".to_owned()),
                NodeKind::Null | NodeKind::Array | NodeKind::Object => None,
            });
            headers.extend(text.map(|text| (format!("Mcp-Param-{}", param.name), text)));
        }
        headers
    }
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

    fn check(schema: &str, arguments: &str, expected: &[(&str, &str)]) {
        let schema = Json::parse(schema).expect("JSON").to_doc();
        let arguments = Json::parse(arguments).expect("JSON").to_doc();
        let headers = ParamHeaders::read(schema.root()).expect("valid annotations");
        let headers = headers.headers_for(Some(arguments.root()));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(headers, expected);
    }

    #[test]
    fn annotated_arguments_become_headers() {
        let schema = r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},
            "at":{"properties":{"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}},
            "q":{"type":"string"}}}"#;
        check(
            schema,
            r#"{"region":"us-west1","at":{"n":42,"b":false},"q":"secret"}"#,
            &[("Mcp-Param-Region", "us-west1"), ("Mcp-Param-N", "42"), ("Mcp-Param-B", "false")],
        );
        check(schema, r#"{"region":null,"at":7}"#, &[]);
        check(schema, "{}", &[]);
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
