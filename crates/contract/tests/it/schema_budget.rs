//! Hostile schemas and values: compiling and validating takes bounded work.

use contract::CompiledSchema;
use json::{Json, ParseLimits, parse};

fn compile(schema: &str) -> Result<CompiledSchema, String> {
    CompiledSchema::compile(&Json::parse(schema).expect("JSON")).map_err(|error| error.to_string())
}

fn validate(schema: &CompiledSchema, value: &str) -> Result<(), String> {
    let doc = parse(value.as_bytes().to_vec(), &ParseLimits::default()).expect("JSON");
    schema.validate(Some(doc.root())).map_err(|error| error.message)
}

/// Thirty definitions, each of which uses the next one twice.
fn doubling(body: &str) -> String {
    let definitions: Vec<String> = (0..30)
        .map(|i| format!(r#""d{i}":{}"#, body.replace("NEXT", &format!("#/$defs/d{}", i + 1))))
        .collect();
    format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d30":{{"type":"object"}}}}}}"##, definitions.join(","))
}

#[test]
fn a_schema_that_doubles_for_one_value_is_rejected() {
    for body in [
        r#"{"allOf":[{"$ref":"NEXT"},{"$ref":"NEXT"}]}"#,
        r#"{"anyOf":[{"$ref":"NEXT"},{"$ref":"NEXT"}]}"#,
        r#"{"not":{"$ref":"NEXT"},"if":{"$ref":"NEXT"}}"#,
    ] {
        let error = compile(&doubling(body)).map(|_| ()).expect_err(body);
        assert!(error.contains("subschemas for one value"), "{error}");
    }
}

#[test]
fn a_schema_that_doubles_with_each_level_of_the_value_stops_at_the_budget() {
    let schema = compile(&doubling(r#"{"properties":{"a":{"anyOf":[{"$ref":"NEXT"},{"$ref":"NEXT"}]}}}"#))
        .expect("compiles");
    let value = format!("{}7{}", r#"{"a":"#.repeat(30), "}".repeat(30));
    assert_eq!(validate(&schema, &value), Err(EXHAUSTED.into()));
}

/// The error of a value that takes too much work to validate.
const EXHAUSTED: &str = "the arguments are too large or too deeply nested for this tool's schema; send less";

#[test]
fn recursive_alternatives_end_with_the_right_answer() {
    let value = format!("{}7{}", r#"{"a":"#.repeat(60), "}".repeat(60));
    for (schema, expected) in [
        (
            r##"{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["x"]},{"properties":{"a":{"$ref":"#"}},"required":["y"]}]}"##,
            Err("the value must match `anyOf` of the schema"),
        ),
        (
            r##"{"anyOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}},"required":["y"]}]}"##,
            Ok(()),
        ),
        (
            r##"{"oneOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}"##,
            Err("the value must match `oneOf` of the schema"),
        ),
    ] {
        let compiled = compile(schema).expect("compiles");
        assert_eq!(validate(&compiled, &value), expected.map_err(str::to_owned), "{schema}");
    }
}

#[test]
fn a_negation_does_not_turn_the_end_of_the_budget_into_success() {
    let next = [r#"{"$ref":"NEXT"}"#; 8].join(",");
    let schema = compile(&doubling(&format!(r#"{{"properties":{{"a":{{"not":{{"anyOf":[{next}]}}}}}}}}"#)))
        .expect("compiles");
    for depth in [29, 30] {
        let value = format!("{}7{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        assert_eq!(validate(&schema, &value), Err(EXHAUSTED.into()), "{depth}");
    }
}

#[test]
fn an_enum_of_many_objects_is_looked_up() {
    let objects: Vec<String> = (0..10_000).map(|i| format!(r#"{{"k":"v{i}"}}"#)).collect();
    let schema =
        compile(&format!(r#"{{"properties":{{"list":{{"items":{{"enum":[{}]}}}}}}}}"#, objects.join(",")))
            .expect("compiles");
    let items = vec![r#"{"k":"v9999"}"#; 20_000].join(",");
    assert_eq!(validate(&schema, &format!(r#"{{"list":[{items}]}}"#)), Ok(()));
    let error = validate(&schema, &format!(r#"{{"list":[{items},{{"k":"v"}}]}}"#)).expect_err("not allowed");
    assert!(error.ends_with("and 9976 more"), "{error}");
}

#[test]
fn a_long_chain_of_references_is_rejected_and_not_a_stack_overflow() {
    let definitions: Vec<String> =
        (0..5000).map(|i| format!(r##""d{i}":{{"$ref":"#/$defs/d{}"}}"##, i + 1)).collect();
    let chain = definitions.join(",");
    for schema in [
        format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{chain},"d5000":{{}}}}}}"##),
        // Not used, but present.
        format!(r#"{{"$defs":{{{chain},"d5000":{{}}}}}}"#),
    ] {
        let error = compile(&schema).map(|_| ()).expect_err("too deep");
        assert!(error.contains("nested too deeply") || error.contains("cycle"), "{error}");
    }
}

#[test]
fn the_deepest_schema_and_value_fit_on_a_small_stack() {
    // As deep as the limits allow: 30 references for each of 60 levels of the value.
    let definitions: Vec<String> =
        (0..30).map(|i| format!(r##""d{i}":{{"$ref":"#/$defs/d{}"}}"##, i + 1)).collect();
    let schema = format!(
        r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d30":{{"properties":{{"a":{{"$ref":"#/$defs/d0"}}}}}}}}}}"##,
        definitions.join(",")
    );
    let work = move || {
        let schema = compile(&schema).expect("compiles");
        let value = format!("{}7{}", r#"{"a":"#.repeat(60), "}".repeat(60));
        assert_eq!(validate(&schema, &value), Ok(()));
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).expect("a thread").join().expect("fits");
}

#[test]
fn the_number_of_patterns_is_limited() {
    let many = |n: usize| {
        let properties: Vec<String> =
            (0..n).map(|i| format!(r#""p{i}":{{"pattern":"^[a-z]{{3}}-{i}$"}}"#)).collect();
        compile(&format!(r#"{{"properties":{{{}}}}}"#, properties.join(","))).map(|_| ())
    };
    assert_eq!(many(200), Ok(()));
    assert!(many(1001).expect_err("too many").contains("1000 patterns"));
}

#[test]
fn large_values_of_a_recursive_schema_are_within_the_budget() {
    let schema = compile(
        r##"{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"additionalProperties":false}}}"##,
    )
    .expect("compiles");
    let children = vec![r#"{"name":"leaf","children":[]}"#; 20_000].join(",");
    assert_eq!(validate(&schema, &format!(r#"{{"children":[{children}]}}"#)), Ok(()));
}
