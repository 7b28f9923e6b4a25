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
mod exact_numbers;
mod init;
mod keys;
mod kinds;
mod links;
mod lint;
mod lock;
mod manifest;
mod operations;
mod overview;
mod pages;
mod questions;
mod roles;
mod schema_budget;
mod token_budget;
mod toml_errors;
mod truncation;
mod wide;

use contract::{CompiledSchema, header_params};
use json::{Json, ParseLimits, parse};
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
    let doc = parse(arguments.as_bytes().to_vec(), &ParseLimits::default()).expect("JSON");
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
fn valid_arguments_pass() {
    check(r#"{"email":"dana@acme.test"}"#, Ok(()));
    check(r#"{"email":"dana\u0040acme.test","plan":"ruby","limit":200,"tags":["a","b"]}"#, Ok(()));
    check(r#"{"email":"dana@acme.test","limit":2.0}"#, Ok(()));
}

#[test]
fn errors_name_the_argument_the_reason_and_what_is_allowed() {
    check("{}", Err("email missing_required `email` is required"));
    check(r#"{"email":7}"#, Err("email wrong_type `email` must be a string"));
    check(
        r#"{"email":"nope"}"#,
        Err("email bad_format `email` is not a valid email address, such as `dana@acme.test`"),
    );
    check(
        r#"{"emial":"dana@acme.test"}"#,
        Err("emial unknown_argument unknown argument `emial`; did you mean `email`?"),
    );
    check(
        r#"{"email":"a@b.test","zebra":1}"#,
        Err(
            "zebra unknown_argument unknown argument `zebra`; the arguments are: email, plan, limit, code, tags",
        ),
    );
    check(
        r#"{"email":"a@b.test","plan":"gold"}"#,
        Err(r#"plan not_allowed `plan` must be one of `free`, `ruby`"#),
    );
    check(r#"{"email":"a@b.test","limit":0}"#, Err("limit out_of_range `limit` must be at least 1"));
    check(r#"{"email":"a@b.test","limit":1e400}"#, Err("limit out_of_range `limit` must be at most 200"));
    check(r#"{"email":"a@b.test","limit":2.5}"#, Err("limit wrong_type `limit` must be an integer"));
    check(
        r#"{"email":"a@b.test","code":"abc"}"#,
        Err("code bad_format `code` must match the pattern `^[A-Z]+$`"),
    );
    check(
        r#"{"email":"a@b.test","tags":["a","b","c"]}"#,
        Err("tags too_long `tags` exceeds the limit of 2 items"),
    );
    check(r#"{"email":"a@b.test","tags":["a",3]}"#, Err("tags.1 wrong_type `tags.1` must be a string"));
    check(r#"{"email":"a@b.test","tags":["a","a"]}"#, Err("tags not_allowed `tags` has duplicate items"));
    check("[]", Err(" wrong_type the value must be an object"));
}

#[test]
fn an_unknown_argument_without_a_near_match_lists_some_arguments() {
    let names: Vec<String> = (10..50).map(|i| format!("\"column_{i}\":{{}}")).collect();
    let schema =
        format!(r#"{{"type":"object","additionalProperties":false,"properties":{{{}}}}}"#, names.join(","));
    let message = |schema: &str| {
        let check = CompiledSchema::compile(&Json::parse(schema).expect("JSON")).expect("compiles");
        let doc = parse(br#"{"zebra":1}"#.to_vec(), &ParseLimits::default()).expect("JSON");
        check.validate(Some(doc.root())).expect_err("unknown").message
    };
    let listed = message(&schema);
    assert!(
        listed.starts_with("unknown argument `zebra`; the arguments are: column_10, column_11,"),
        "{listed}"
    );
    assert!(listed.ends_with(", column_33 and 16 more"), "{listed}");
    let none = message(r#"{"type":"object","additionalProperties":false}"#);
    assert_eq!(none, "this tool takes no arguments");
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
fn internationalized_formats_are_validated() {
    let email = "`a` is not a valid email address, such as `dana@acme.test`";
    for (format, valid, invalid, message) in [
        ("idn-email", "dörte@bücher.example", "dörte@-.example", email),
        ("idn-email", "dana@acme.test", "no address", email),
        (
            "idn-hostname",
            "bücher.example",
            "bü cher.example",
            "`a` is not a valid host name, such as `acme.test`",
        ),
    ] {
        let schema = format!(r#"{{"properties":{{"a":{{"format":"{format}"}}}}}}"#);
        let schema = CompiledSchema::compile(&Json::parse(&schema).expect("JSON")).expect("compiles");
        let validate = |text: &str| {
            let doc =
                parse(format!(r#"{{"a":"{text}"}}"#).into_bytes(), &ParseLimits::default()).expect("JSON");
            schema.validate(Some(doc.root())).map_err(|error| error.message)
        };
        assert_eq!(validate(valid), Ok(()), "{valid}");
        assert_eq!(validate(invalid), Err(message.to_owned()), "{invalid}");
    }
}

#[test]
fn schemas_with_remote_references_or_costly_patterns_are_rejected() {
    for (schema, reason) in [
        (r#"{"$ref":"http://127.0.0.1:1/x.json"}"#, "points outside the schema"),
        (r#"{"properties":{"a":{"$ref":"file:///etc/passwd"}}}"#, "points outside the schema"),
        (r#"{"type":"strin"}"#, "strin"),
        (r#"{"properties":{"a":{"pattern":"(?=x)"}}}"#, "regex"),
    ] {
        let error =
            CompiledSchema::compile(&Json::parse(schema).expect("JSON")).map(|_| ()).expect_err(schema);
        assert!(error.to_string().contains(reason), "{schema}: {error}");
    }
    let backtracking =
        CompiledSchema::compile(&Json::parse(r#"{"properties":{"a":{"pattern":"^(a+)+$"}}}"#).expect("JSON"))
            .expect("compiles");
    let doc = parse(format!("{{\"a\":\"{}!\"}}", "a".repeat(1 << 20)).into_bytes(), &ParseLimits::default())
        .expect("JSON");
    assert!(backtracking.validate(Some(doc.root())).is_err());
}

#[test]
fn recursive_schemas_terminate() {
    let tree = r##"{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"additionalProperties":false}}}"##;
    let check = CompiledSchema::compile(&Json::parse(tree).expect("JSON")).expect("compiles");
    let deep = |leaf: &str| {
        parse(
            format!("{}{leaf}{}", "{\"next\":".repeat(60), "}".repeat(60)).into_bytes(),
            &ParseLimits::default(),
        )
        .expect("JSON")
    };
    assert!(check.validate(Some(deep("{}").root())).is_ok());
    assert!(check.validate(Some(deep("7").root())).is_err());
}

#[test]
fn an_invalid_header_annotation_is_an_error_of_the_schema() {
    let schema = |kind: &str| {
        let text = format!(r#"{{"properties":{{"a":{{"type":"{kind}","x-mcp-header":"A"}}}}}}"#);
        header_params(&Json::parse(&text).expect("JSON"))
    };
    assert_eq!(schema("string").expect("valid").len(), 1);
    let error = schema("number").expect_err("not a type for a header").to_string();
    assert!(error.contains("`x-mcp-header` of `a`: only a string, an integer or a boolean"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_tape_validates_like_serde_json_values(
        data in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        testkit::invariants::check(&data);
    }
}
