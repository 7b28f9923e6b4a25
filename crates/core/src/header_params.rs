//! Arguments that a client repeats in HTTP headers: `x-mcp-header` in a tool's input schema.
//!
//! 2026-07-28, Custom Headers from Tool Parameters. The server checks that headers and arguments agree, and the client
//! sends the headers: both read the annotations here, by the same rules. A tool with an annotation that breaks a rule
//! is not served, and a client ignores it.

use std::fmt;

use json::{Node, NodeKind};

use crate::text::is_token_byte;

/// An argument with `x-mcp-header`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParam {
    /// The full header name in lower case: `mcp-param-region`.
    pub header: String,
    /// The annotation, as the author wrote it: `Region`.
    pub name: String,
    /// The keys from the root to the argument.
    pub path: Vec<String>,
}

/// Why a tool's annotations are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParamError(String);

const ANNOTATION: &str = "x-mcp-header";
const HEADER_PARAMS_MAX: usize = 64;

impl HeaderParam {
    /// The value of the argument, if the call has it.
    pub fn find<'a>(&self, arguments: Option<Node<'a>>) -> Option<Node<'a>> {
        self.path.iter().try_fold(arguments?, |node, key| node.get(key))
    }

    /// All annotations of a tool's input schema.
    pub fn read_all(schema: Node<'_>) -> Result<Vec<Self>, HeaderParamError> {
        let mut found = Vec::new();
        walk(schema, Some(&mut Vec::new()), &mut found)?;
        Ok(found)
    }
}

impl fmt::Display for HeaderParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HeaderParamError {}

/// `path` is the path of properties from the root; `None` below any other keyword.
fn walk(
    schema: Node<'_>,
    mut path: Option<&mut Vec<String>>,
    found: &mut Vec<HeaderParam>,
) -> Result<(), HeaderParamError> {
    if schema.kind() == NodeKind::Array {
        return schema.elements().try_for_each(|element| walk(element, None, found));
    }
    for (key, value) in schema.members() {
        if key.eq_str(ANNOTATION) {
            let param = parse_annotation(schema, value, path.as_deref().map_or(&[], Vec::as_slice), found)?;
            found.push(param);
        } else if key.eq_str("properties") && value.is_object() {
            for (name, property) in value.members() {
                match path.as_deref_mut() {
                    Some(path) => {
                        path.push(name.str().unwrap_or_default().into_owned());
                        walk(property, Some(path), found)?;
                        path.pop();
                    }
                    None => walk(property, None, found)?,
                }
            }
        } else if !["const", "enum", "default", "examples"].iter().any(|keyword| key.eq_str(keyword)) {
            walk(value, None, found)?;
        }
    }
    Ok(())
}

/// An empty path: the annotation is on the schema itself, or below another keyword than `properties`.
fn parse_annotation(
    schema: Node<'_>,
    value: Node<'_>,
    path: &[String],
    found: &[HeaderParam],
) -> Result<HeaderParam, HeaderParamError> {
    let argument = match path {
        [] => String::new(),
        path => format!(" of `{}`", path.join(".")),
    };
    let invalid = |reason: &str| Err(HeaderParamError(format!("`{ANNOTATION}`{argument}: {reason}")));
    let Some(name) = value.str() else { return invalid("expected a string") };
    if path.is_empty() {
        return invalid("only an argument reached through `properties` can be sent in a header");
    }
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return invalid(&format!("`{}` is not a valid header name", name.escape_default()));
    }
    let is_primitive =
        schema.get("type").is_some_and(|t| t.eq_str("string") || t.eq_str("integer") || t.eq_str("boolean"));
    if !is_primitive {
        return invalid("only a string, an integer or a boolean can be sent in a header");
    }
    let header = format!("mcp-param-{}", name.to_ascii_lowercase());
    if found.iter().any(|other| other.header == header) {
        return invalid(&format!("the header name `{name}` is used twice"));
    }
    if found.len() >= HEADER_PARAMS_MAX {
        return invalid(&format!("the schema exceeds the limit of {HEADER_PARAMS_MAX} header arguments"));
    }
    Ok(HeaderParam { header, name: name.into_owned(), path: path.to_vec() })
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{HEADER_PARAMS_MAX, HeaderParam};

    /// The header, name and path of each argument, or the error.
    fn check(schema: &str, expected: Result<&[(&str, &str, &str)], &str>) {
        let doc = Json::parse(schema).expect("JSON").to_doc();
        let found = HeaderParam::read_all(doc.root());
        let found = found.map(|all| {
            all.into_iter().map(|one| (one.header, one.name, one.path.join("."))).collect::<Vec<_>>()
        });
        let expected = expected.map(|all| {
            all.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect()
        });
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{schema}");
    }

    #[test]
    fn annotated_arguments_are_found_at_any_depth() {
        check(
            r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},
                "at":{"properties":{"n":{"type":"integer","x-mcp-header":"N"},
                                    "b":{"type":"boolean","x-mcp-header":"B"}}},
                "q":{"type":"string"}}}"#,
            Ok(&[
                ("mcp-param-region", "Region", "region"),
                ("mcp-param-n", "N", "at.n"),
                ("mcp-param-b", "B", "at.b"),
            ]),
        );
        for data in ["default", "examples", "const", "enum"] {
            check(&format!(r#"{{"properties":{{"x":{{"{data}":[{{"x-mcp-header":""}}]}}}}}}"#), Ok(&[]));
        }
        check("true", Ok(&[]));
        check("{}", Ok(&[]));
    }

    #[test]
    fn invalid_annotations_are_errors() {
        let schema_with = |property: &str| format!(r#"{{"properties":{{"a":{property}}}}}"#);
        for (name, shown) in
            [("", ""), ("a b", "a b"), ("a:b", "a:b"), ("a\\r\\nb", "a\\r\\nb"), ("ü", "\\u{fc}")]
        {
            check(
                &schema_with(&format!(r#"{{"type":"string","x-mcp-header":"{name}"}}"#)),
                Err(&format!("`x-mcp-header` of `a`: `{shown}` is not a valid header name")),
            );
        }
        check(
            &schema_with(r#"{"type":"string","x-mcp-header":7}"#),
            Err("`x-mcp-header` of `a`: expected a string"),
        );
        for kind in [r#""number""#, r#""object""#, r#""array""#, r#"["string","null"]"#] {
            check(
                &schema_with(&format!(r#"{{"type":{kind},"x-mcp-header":"A"}}"#)),
                Err("`x-mcp-header` of `a`: only a string, an integer or a boolean can be sent in a header"),
            );
        }
        check(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"Same"},"b":{"type":"string","x-mcp-header":"same"}}}"#,
            Err("`x-mcp-header` of `b`: the header name `same` is used twice"),
        );
        let misplaced =
            "`x-mcp-header`: only an argument reached through `properties` can be sent in a header";
        let inner = r#"{"type":"string","x-mcp-header":"A"}"#;
        for schema in [
            schema_with(&format!(r#"{{"type":"array","items":{inner}}}"#)),
            schema_with(&format!(r#"{{"anyOf":[{inner}]}}"#)),
            format!(r#"{{"allOf":[{{"properties":{{"a":{inner}}}}}]}}"#),
            format!(r#"{{"$defs":{{"a":{inner}}}}}"#),
            format!(r#"{{"if":{{"properties":{{"a":{inner}}}}}}}"#),
            format!(r#"{{"properties":[{inner}]}}"#),
            inner.to_owned(),
        ] {
            check(&schema, Err(misplaced));
        }
    }

    #[test]
    fn the_number_of_annotations_is_limited() {
        let schema = |count: usize| {
            let property = |i| format!(r#""a{i}":{{"type":"string","x-mcp-header":"A{i}"}}"#);
            format!(r#"{{"properties":{{{}}}}}"#, (0..count).map(property).collect::<Vec<_>>().join(","))
        };
        let read = |count| {
            let doc = Json::parse(&schema(count)).expect("JSON").to_doc();
            HeaderParam::read_all(doc.root()).map(|found| found.len())
        };
        assert_eq!(read(HEADER_PARAMS_MAX), Ok(64));
        let error = read(HEADER_PARAMS_MAX + 1).expect_err("one too many");
        assert!(error.to_string().contains("exceeds the limit of 64"), "{error}");
    }
}
