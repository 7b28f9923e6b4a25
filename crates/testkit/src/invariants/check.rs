//! Schemas: whatever the schema, arguments are judged on the tape exactly as they would be as built values,
//! and an argument travels in a header only if it can be found by its path.

use contract::{CompiledSchema, SchemaError, header_params};
use json::{Json, ScanLimits};
use serde_json::Value;

use super::FuzzInput;

pub fn check(data: &[u8]) {
    let mut dice = FuzzInput::new(data);
    let (mut schema, mut instance) = (String::new(), String::new());
    if dice.one_in(4) {
        dice.json(4, &mut schema);
    } else {
        write_schema(&mut dice, 3, &mut schema);
    }
    let schema = Json::parse(&schema).expect("made to be JSON");
    check_header_params(&schema);

    let value: Value = serde_json::from_str(schema.as_str()).expect("made of numbers that serde knows");
    let theirs = jsonschema::options()
        .should_validate_formats(true)
        .with_pattern_options(jsonschema::PatternOptions::regex().size_limit(1 << 20))
        .build(&value);
    let check = match (CompiledSchema::compile(&schema), theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(_), Err(_)) => return,
        // Theirs would never end.
        (Err(SchemaError(why)), Ok(_))
            if why.contains("`$ref` cycle") || why.contains("nested too deeply") =>
        {
            return;
        }
        (ours, theirs) => panic!("{schema}: {:?} but {:?}", ours.err(), theirs.err()),
    };
    for _ in 0..3 {
        instance.clear();
        dice.json(3, &mut instance);
        let doc = json::scan(instance.clone().into_bytes(), &ScanLimits::default()).expect("made to be JSON");
        let value: Value = serde_json::from_str(&instance).expect("made of numbers that serde knows");
        let (ours, theirs) = (check.0.validate(Some(doc.root())), check.1.is_valid(&value));
        assert_eq!(check.0.is_valid(&Json::from(doc.root())), ours.is_ok());
        // A built value rounds such numbers; the tape has their digits.
        let rounded = ROUNDED_NUMBERS.iter().any(|n| instance.contains(n) || schema.as_str().contains(n));
        assert!(rounded || ours.is_ok() == theirs, "{schema} for {instance}: {ours:?} but {theirs}");
        if let Err(problem) = ours {
            assert!(!problem.message.is_empty() && problem.reason.is_some(), "{schema} for {instance}");
        }
    }
}

const ROUNDED_NUMBERS: [&str; 3] = ["1e-400", "18446744073709551616", "123456789012345678901234567890"];

/// Names are names of headers, no two the same, and each path leads through the schema's properties.
fn check_header_params(schema: &Json) {
    let Ok(found) = header_params(schema) else { return };
    let doc = schema.to_doc();
    for (i, one) in found.iter().enumerate() {
        let name = one.header.strip_prefix("mcp-param-").expect("all have the prefix");
        assert!(!name.is_empty() && name.bytes().all(|c| c.is_ascii_graphic() && !c.is_ascii_uppercase()));
        assert!(found[..i].iter().all(|earlier| earlier.header != one.header));
        let at = one.path.iter().try_fold(doc.root(), |node, key| node.get("properties")?.get(key));
        let annotation = at.and_then(|node| node.get("x-mcp-header")).and_then(|name| name.str());
        assert_eq!(annotation.map(|name| name.to_ascii_lowercase()).as_deref(), Some(name));
    }
}

/// Mostly what schemas are made of.
fn write_schema(dice: &mut FuzzInput<'_>, depth: u32, out: &mut String) {
    if depth == 0 || dice.one_in(12) {
        return out.push_str(dice.choose(&[
            "true",
            "false",
            "{}",
            r#"{"type":"string"}"#,
            r#"{"type":"integer"}"#,
        ]));
    }
    let mut used = Vec::new();
    out.push('{');
    for _ in 0..dice.below(6) {
        let keyword = dice.choose(&KEYWORDS);
        if used.contains(&keyword) {
            continue;
        }
        out.push_str(if used.is_empty() { "" } else { "," });
        used.push(keyword);
        out.push_str(&format!("\"{keyword}\":"));
        write_keyword_value(dice, keyword, depth - 1, out);
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

fn write_keyword_value(dice: &mut FuzzInput<'_>, keyword: &str, depth: u32, out: &mut String) {
    if dice.one_in(20) {
        return dice.json(1, out);
    }
    match keyword {
        "type" => out.push_str(dice.choose(&[
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
            for (i, key) in ["a0", "a1", "0", "é2"].into_iter().take(dice.below(5)).enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                out.push_str(&format!("\"{key}\":"));
                write_schema(dice, depth, out);
            }
            out.push('}');
        }
        "required" => out.push_str(dice.choose(&["[]", r#"["a0"]"#, r#"["a1","0"]"#])),
        "dependentRequired" => out.push_str(r#"{"a0":["a1"]}"#),
        "enum" => {
            out.push('[');
            dice.json(1, out);
            out.push(']');
        }
        "const" => dice.json(1, out),
        "minimum" | "maximum" | "exclusiveMinimum" => {
            out.push_str(dice.choose(&["0", "1.5", "-1", "9007199254740993", "18446744073709551615", "1e2"]));
        }
        "multipleOf" => out.push_str(dice.choose(&["1", "0.5", "7", "3"])),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" => {
            out.push_str(dice.choose(&["0", "1", "2", "2.0"]));
        }
        "uniqueItems" => out.push_str(dice.choose(&["true", "false"])),
        "pattern" => {
            out.push_str(dice.choose(&[r#""^a""#, r#""(a+)+$""#, r#""\\d""#, r#""[""#, r#""(?=a)""#]))
        }
        "format" => out.push_str(dice.choose(&[
            r#""email""#,
            r#""date-time""#,
            r#""uri""#,
            r#""ipv4""#,
            r#""regex""#,
        ])),
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
            out.push('[');
            for i in 0..=dice.below(3) {
                out.push_str(if i > 0 { "," } else { "" });
                write_schema(dice, depth, out);
            }
            out.push(']');
        }
        "$ref" => out.push_str(dice.choose(&[
            r##""#""##,
            r##""#/properties/a0""##,
            r#""http://a.test/x""#,
            r#""file:///x""#,
        ])),
        "x-mcp-header" => out.push_str(dice.choose(&[r#""A""#, r#""a""#, r#""B""#, r#""""#, r#""a b""#])),
        _ => write_schema(dice, depth, out),
    }
}
