//! What a compiled schema lets pass, and what it says about the rest.

mod bad_collections;
mod bad_contracts;
mod bad_manifests;
mod bad_operations;
mod bad_sections;
mod bad_sources;
mod bad_tools;
mod compatibility;
mod descriptions;
mod init;
mod keys;
mod kinds;
mod lint;
mod lock;
mod manifest;
mod operations;
mod pages;
mod toml_errors;
mod truncation;

use contract::{CompiledSchema, HeaderParam, header_params};
use json::{Json, ScanLimits, scan};
use proptest::prelude::*;

const SCHEMA: &str = r#"{
    "type": "object", "additionalProperties": false, "required": ["email"],
    "properties": {
        "email": {"type": "string", "format": "email", "maxLength": 40},
        "plan": {"enum": ["free", "ruby"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 200},
        "code": {"type": "string", "pattern": "^[A-Z]+$"},
        "tags": {"type": "array", "maxItems": 2, "uniqueItems": true, "items": {"type": "string"}}
    }
}"#;

fn check(arguments: &str, expected: Result<(), &str>) {
    let check = CompiledSchema::compile(&Json::parse(SCHEMA).expect("JSON")).expect("compiles");
    let doc = scan(arguments.as_bytes().to_vec(), &ScanLimits::default()).expect("JSON");
    let got = check.validate(Some(doc.root())).map_err(|p| {
        format!("{} {} {}", p.field.unwrap_or_default(), p.reason.expect("a reason").as_str(), p.message)
    });
    assert_eq!(
        got.as_ref().map_err(String::as_str),
        expected.as_ref().map_err(|e| *e).copied().map(|()| &()),
        "{arguments}"
    );
}

#[test]
fn good_arguments_pass() {
    check(r#"{"email":"dana@acme.test"}"#, Ok(()));
    check(r#"{"email":"dana\u0040acme.test","plan":"ruby","limit":200,"tags":["a","b"]}"#, Ok(()));
    check(r#"{"email":"dana@acme.test","limit":2.0}"#, Ok(()));
}

#[test]
fn bad_arguments_are_told_where_why_and_what_instead() {
    check("{}", Err("email missing_required `email` is required"));
    check(r#"{"email":7}"#, Err("email wrong_type `email`: expected string"));
    check(r#"{"email":"nope"}"#, Err("email bad_format `email`: not a valid email"));
    check(
        r#"{"emial":"dana@acme.test"}"#,
        Err("emial unknown_argument `emial`: unknown argument; did you mean `email`?"),
    );
    check(
        r#"{"email":"a@b.test","zebra":1}"#,
        Err("zebra unknown_argument `zebra`: unknown argument; known are: code, email, limit, plan, tags"),
    );
    check(
        r#"{"email":"a@b.test","plan":"gold"}"#,
        Err(r#"plan not_allowed `plan`: expected one of `free`, `ruby`"#),
    );
    check(r#"{"email":"a@b.test","limit":0}"#, Err("limit out_of_range `limit`: less than 1"));
    check(r#"{"email":"a@b.test","limit":1e400}"#, Err("limit wrong_type `limit`: expected integer"));
    check(r#"{"email":"a@b.test","limit":2.5}"#, Err("limit wrong_type `limit`: expected integer"));
    check(r#"{"email":"a@b.test","code":"abc"}"#, Err("code bad_format `code`: does not match `^[A-Z]+$`"));
    check(r#"{"email":"a@b.test","tags":["a","b","c"]}"#, Err("tags too_long `tags`: more than 2 items"));
    check(r#"{"email":"a@b.test","tags":["a",3]}"#, Err("tags.1 wrong_type `tags.1`: expected string"));
    check(
        r#"{"email":"a@b.test","tags":["a","a"]}"#,
        Err("tags not_allowed `tags`: has the same item twice; name each once"),
    );
    check("[]", Err(" wrong_type expected object"));
}

#[test]
fn an_unknown_argument_far_from_all_names_some() {
    let names: Vec<String> = (10..50).map(|i| format!("\"column_{i}\":{{}}")).collect();
    let schema =
        format!(r#"{{"type":"object","additionalProperties":false,"properties":{{{}}}}}"#, names.join(","));
    let message = |schema: &str| {
        let check = CompiledSchema::compile(&Json::parse(schema).expect("JSON")).expect("compiles");
        let doc = scan(br#"{"zebra":1}"#.to_vec(), &ScanLimits::default()).expect("JSON");
        check.validate(Some(doc.root())).expect_err("unknown").message
    };
    let told = message(&schema);
    assert!(told.starts_with("`zebra`: unknown argument; known are: column_10, column_11,"), "{told}");
    assert!(told.ends_with(", column_33 and 16 more"), "{told}");
    let none = message(r#"{"type":"object","additionalProperties":false}"#);
    assert_eq!(none, "there are no arguments; leave them out");
}

#[test]
fn no_arguments_are_an_empty_object() {
    let check = CompiledSchema::compile(&Json::parse(SCHEMA).expect("JSON")).expect("compiles");
    assert_eq!(check.validate(None).expect_err("email is required").field.as_deref(), Some("email"));
    let open =
        CompiledSchema::compile(&Json::parse(r#"{"type":"object"}"#).expect("JSON")).expect("compiles");
    assert!(open.validate(None).is_ok());
}

#[test]
fn a_schema_that_reaches_out_or_blows_up_is_refused() {
    for (schema, why) in [
        (r#"{"$ref":"http://127.0.0.1:1/x.json"}"#, "leaves the schema"),
        (r#"{"properties":{"a":{"$ref":"file:///etc/passwd"}}}"#, "leaves the schema"),
        (r#"{"type":"strin"}"#, "strin"),
        (r#"{"properties":{"a":{"pattern":"(?=x)"}}}"#, "regex"),
    ] {
        let error =
            CompiledSchema::compile(&Json::parse(schema).expect("JSON")).map(|_| ()).expect_err(schema);
        assert!(error.to_string().contains(why), "{schema}: {error}");
    }
    let evil =
        CompiledSchema::compile(&Json::parse(r#"{"properties":{"a":{"pattern":"^(a+)+$"}}}"#).expect("JSON"))
            .expect("compiles");
    let doc = scan(format!("{{\"a\":\"{}!\"}}", "a".repeat(1 << 20)).into_bytes(), &ScanLimits::default())
        .expect("JSON");
    assert!(evil.validate(Some(doc.root())).is_err());
}

#[test]
fn recursive_schemas_end() {
    let tree = r##"{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"additionalProperties":false}}}"##;
    let check = CompiledSchema::compile(&Json::parse(tree).expect("JSON")).expect("compiles");
    let deep = |leaf: &str| {
        scan(
            format!("{}{leaf}{}", "{\"next\":".repeat(60), "}".repeat(60)).into_bytes(),
            &ScanLimits::default(),
        )
        .expect("JSON")
    };
    assert!(check.validate(Some(deep("{}").root())).is_ok());
    assert!(check.validate(Some(deep("7").root())).is_err());
}

#[test]
fn annotated_arguments_are_found_by_their_path() {
    let schema = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "where":{"type":"object","properties":{"zone":{"type":"integer","x-mcp-header":"Zone"}}}}}"#;
    let found = header_params(&Json::parse(schema).expect("JSON")).expect("valid");
    let of = |header: &str, path: &[&str]| HeaderParam {
        header: header.into(),
        path: path.iter().map(|&s| s.into()).collect(),
    };
    assert_eq!(found, [of("mcp-param-region", &["region"]), of("mcp-param-zone", &["where", "zone"])]);
}

#[test]
fn annotations_that_break_a_rule_are_refused() {
    for property in [
        r#""a":{"type":"string","x-mcp-header":""}"#,
        r#""a":{"type":"string","x-mcp-header":"A B"}"#,
        r#""a":{"type":"string","x-mcp-header":"A\r\nB"}"#,
        r#""a":{"type":"string","x-mcp-header":7}"#,
        r#""a":{"type":"number","x-mcp-header":"A"}"#,
        r#""a":{"type":"object","x-mcp-header":"A"}"#,
        r#""a":{"type":["string","null"],"x-mcp-header":"A"}"#,
        r#""a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}"#,
        r#""a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}"#,
        r#""a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}"#,
    ] {
        let schema = format!(r#"{{"type":"object","properties":{{{property}}}}}"#);
        assert!(header_params(&Json::parse(&schema).expect("JSON")).is_err(), "{property}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arguments_are_judged_on_the_tape_as_built_values_would_be(
        data in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        testkit::invariants::check(&data);
    }
}
