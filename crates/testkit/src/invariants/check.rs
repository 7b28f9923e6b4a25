//! Schema validation: for any schema, arguments on the tape are judged exactly as built values are, and an
//! argument is mirrored in a header only if its path leads to it.

use contract::{CompiledSchema, SchemaError, header_params};
use json::{Json, ParseLimits};
use serde_json::Value;

use super::FuzzInput;

pub fn check(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let (mut schema, mut instance) = (String::new(), String::new());
    if input.one_in(4) {
        input.json(4, &mut schema);
    } else {
        write_schema(&mut input, 3, &mut schema);
    }
    let schema = Json::parse(&schema).expect("made to be JSON");
    check_header_params(&schema);

    let value: Value = serde_json::from_str(schema.as_str()).expect("made of numbers that serde knows");
    let reference = jsonschema::options()
        .should_validate_formats(true)
        .with_pattern_options(jsonschema::PatternOptions::regex().size_limit(1 << 20))
        .build(&value);
    let check = match (CompiledSchema::compile(&schema), reference) {
        (Ok(compiled), Ok(reference)) => (compiled, reference),
        (Err(_), Err(_)) => return,
        // The reference implementation would not terminate.
        (Err(SchemaError(reason)), Ok(_))
            if reason.contains("`$ref` cycle") || reason.contains("nested too deeply") =>
        {
            return;
        }
        // The reference implementation divides in floating point.
        (Err(SchemaError(reason)), Ok(_)) if reason.contains("exceeds the limit of 18 digits") => return,
        (compiled, reference) => panic!("{schema}: {:?} but {:?}", compiled.err(), reference.err()),
    };
    for _ in 0..3 {
        instance.clear();
        input.json(3, &mut instance);
        let doc =
            json::parse(instance.clone().into_bytes(), &ParseLimits::default()).expect("made to be JSON");
        let value: Value = serde_json::from_str(&instance).expect("made of numbers that serde knows");
        let (compiled, reference) = (check.0.validate(Some(doc.root())), check.1.is_valid(&value));
        assert_eq!(check.0.is_valid(&Json::from(doc.root())), compiled.is_ok());
        // A built value rounds such numbers; the tape keeps their digits.
        let rounded = ROUNDED_NUMBERS.iter().any(|n| instance.contains(n) || schema.as_str().contains(n));
        assert!(
            rounded || compiled.is_ok() == reference,
            "{schema} for {instance}: {compiled:?} but {reference}"
        );
        if let Err(error) = compiled {
            assert!(!error.message.is_empty() && error.reason.is_some(), "{schema} for {instance}");
        }
    }
}

const ROUNDED_NUMBERS: [&str; 3] = ["1e-400", "18446744073709551616", "123456789012345678901234567890"];

/// Names are valid header names without duplicates, and each path leads through the schema's properties.
fn check_header_params(schema: &Json) {
    let Ok(found) = header_params(schema) else { return };
    let doc = schema.to_doc();
    for (i, one) in found.iter().enumerate() {
        let name = one.header.strip_prefix("mcp-param-").expect("all have the prefix");
        assert!(!name.is_empty() && name.bytes().all(|c| c.is_ascii_graphic() && !c.is_ascii_uppercase()));
        assert!(found[..i].iter().all(|earlier| earlier.header != one.header));
        let node = one.path.iter().try_fold(doc.root(), |node, key| node.get("properties")?.get(key));
        let annotation = node.and_then(|node| node.get("x-mcp-header")).and_then(|name| name.str());
        assert_eq!(annotation.map(|name| name.to_ascii_lowercase()).as_deref(), Some(name));
    }
}

/// Mostly keywords that schemas use.
fn write_schema(input: &mut FuzzInput<'_>, depth: u32, out: &mut String) {
    if depth == 0 || input.one_in(12) {
        return out.push_str(input.choose(&[
            "true",
            "false",
            "{}",
            r#"{"type":"string"}"#,
            r#"{"type":"integer"}"#,
        ]));
    }
    let mut used = Vec::new();
    out.push('{');
    for _ in 0..input.below(6) {
        let keyword = input.choose(&KEYWORDS);
        if used.contains(&keyword) {
            continue;
        }
        out.push_str(if used.is_empty() { "" } else { "," });
        used.push(keyword);
        out.push_str(&format!("\"{keyword}\":"));
        write_keyword_value(input, keyword, depth - 1, out);
    }
    out.push('}');
}

const KEYWORDS: [&str; 33] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "prefixItems",
    "propertyNames",
    "patternProperties",
    "minProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "$ref",
    "x-mcp-header",
    "unevaluatedProperties",
    "dependentRequired",
];

fn write_keyword_value(input: &mut FuzzInput<'_>, keyword: &str, depth: u32, out: &mut String) {
    if input.one_in(20) {
        return input.json(1, out);
    }
    match keyword {
        "type" => out.push_str(input.choose(&[
            r#""object""#,
            r#""array""#,
            r#""string""#,
            r#""integer""#,
            r#""number""#,
            r#""boolean""#,
            r#""null""#,
            r#"["string","null"]"#,
            r#"["integer","array"]"#,
        ])),
        "properties" | "patternProperties" => {
            out.push('{');
            for (i, key) in ["a0", "a1", "0", "é2"].into_iter().take(input.below(5)).enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                out.push_str(&format!("\"{key}\":"));
                write_schema(input, depth, out);
            }
            out.push('}');
        }
        "required" => out.push_str(input.choose(&["[]", r#"["a0"]"#, r#"["a1","0"]"#])),
        "dependentRequired" => out.push_str(r#"{"a0":["a1"]}"#),
        "enum" => {
            out.push('[');
            input.json(1, out);
            out.push(']');
        }
        "const" => input.json(1, out),
        "minimum" | "maximum" | "exclusiveMinimum" => {
            out.push_str(input.choose(&[
                "0",
                "1.5",
                "-1",
                "9007199254740993",
                "18446744073709551615",
                "1e2",
            ]));
        }
        "multipleOf" => out.push_str(input.choose(&["1", "0.5", "7", "3"])),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" => {
            out.push_str(input.choose(&["0", "1", "2", "2.0"]));
        }
        "uniqueItems" => out.push_str(input.choose(&["true", "false"])),
        "pattern" => {
            out.push_str(input.choose(&[r#""^a""#, r#""(a+)+$""#, r#""\\d""#, r#""[""#, r#""(?=a)""#]))
        }
        "format" => out.push_str(input.choose(&[
            r#""email""#,
            r#""date-time""#,
            r#""uri""#,
            r#""ipv4""#,
            r#""regex""#,
        ])),
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
            out.push('[');
            for i in 0..=input.below(3) {
                out.push_str(if i > 0 { "," } else { "" });
                write_schema(input, depth, out);
            }
            out.push(']');
        }
        "$ref" => out.push_str(input.choose(&[
            r##""#""##,
            r##""#/properties/a0""##,
            r#""http://a.test/x""#,
            r#""file:///x""#,
        ])),
        "x-mcp-header" => out.push_str(input.choose(&[r#""A""#, r#""a""#, r#""B""#, r#""""#, r#""a b""#])),
        _ => write_schema(input, depth, out),
    }
}
