//! Numbers are validated and bound by their digits, never as `f64`.

use contract::CompiledSchema;
use json::{Json, ParseLimits, parse};

fn message(schema: &str, value: &str) -> Option<String> {
    let schema = format!(r#"{{"type":"object","properties":{{"n":{schema}}}}}"#);
    let schema = CompiledSchema::compile(&Json::parse(&schema).expect("JSON")).expect("compiles");
    let doc = parse(format!(r#"{{"n":{value}}}"#).into_bytes(), &ParseLimits::default()).expect("JSON");
    schema.validate(Some(doc.root())).err().map(|error| error.message)
}

fn check(schema: &str, value: &str, expected: Result<(), &str>) {
    assert_eq!(message(schema, value).as_deref(), expected.err(), "{schema} for {value}");
}

#[test]
fn a_fraction_is_never_an_integer() {
    let integer = r#"{"type":"integer"}"#;
    for value in ["4503599627370497.5", "8.99999999999999999999", "1e-400", "0.1e-5", "1.5"] {
        check(integer, value, Err("`n` must be an integer"));
    }
    for value in ["9.0", "90e-1", "1e400", "-0.0", "123456789012345678901234567890", "0e-400"] {
        check(integer, value, Ok(()));
    }
}

#[test]
fn limits_are_compared_by_digits() {
    check(r#"{"maximum":9007199254740992}"#, "9007199254740993", Err("`n` must be at most 9007199254740992"));
    check(r#"{"maximum":9007199254740992}"#, "9007199254740992.0", Ok(()));
    check(
        r#"{"maximum":9007199254740992}"#,
        "9007199254740992.5",
        Err("`n` must be at most 9007199254740992"),
    );
    check(r#"{"minimum":9}"#, "8.99999999999999999999", Err("`n` must be at least 9"));
    check(r#"{"exclusiveMinimum":0}"#, "1e-400", Ok(()));
    check(r#"{"exclusiveMinimum":0}"#, "0e5", Err("`n` must be greater than 0"));
    check(r#"{"exclusiveMaximum":9}"#, "8.99999999999999999999", Ok(()));
    check(r#"{"exclusiveMaximum":9}"#, "9.000", Err("`n` must be less than 9"));
    // The schema's own digits count as well.
    check(r#"{"minimum":0.30000000000000000001}"#, "0.3", Err("`n` must be at least 0.30000000000000000001"));
    check(r#"{"maximum":1e400}"#, "1e401", Err("`n` must be at most 1e400"));
    check(r#"{"maximum":1e400}"#, "1e400", Ok(()));
    check(r#"{"minimum":3}"#, r#""text""#, Ok(()));
    let draft4 = |flag| {
        let schema = format!(
            r#"{{"$schema":"http://json-schema.org/draft-04/schema#","properties":{{"n":{{"minimum":9,"exclusiveMinimum":{flag}}}}}}}"#
        );
        let schema = CompiledSchema::compile(&Json::parse(&schema).expect("JSON")).expect("compiles");
        let doc = parse(br#"{"n":9.0}"#.to_vec(), &ParseLimits::default()).expect("JSON");
        schema.validate(Some(doc.root())).is_ok()
    };
    assert_eq!((draft4(true), draft4(false)), (false, true));
}

#[test]
fn multiples_are_exact() {
    check(r#"{"multipleOf":0.01}"#, "4.35", Ok(()));
    check(r#"{"multipleOf":0.1}"#, "0.3", Ok(()));
    check(r#"{"multipleOf":2}"#, "9007199254740993", Err("`n` must be a multiple of 2"));
    check(r#"{"multipleOf":2}"#, "1e-400", Err("`n` must be a multiple of 2"));
    check(r#"{"multipleOf":7}"#, "7e300", Ok(()));
    for (divisor, reason) in [("0", "0"), ("-1", "-1"), ("0.1234567890123456789", "18 digits")] {
        let schema = format!(r#"{{"multipleOf":{divisor}}}"#);
        let error =
            CompiledSchema::compile(&Json::parse(&schema).expect("JSON")).map(|_| ()).expect_err(divisor);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn equality_is_exact() {
    check(r#"{"const":9}"#, "8.99999999999999999999", Err("`n` must be 9"));
    check(r#"{"const":9}"#, "9.0", Ok(()));
    check(r#"{"const":{"a":[1]}}"#, r#"{"a":[1.0]}"#, Ok(()));
    check(r#"{"const":{"a":1,"b":2}}"#, r#"{"b":2.0,"\u0061":1}"#, Ok(()));
    check(r#"{"const":{"a":1}}"#, r#"{"a":1,"b":2}"#, Err(r#"`n` must be {"a":1}"#));
    check(
        r#"{"enum":[9007199254740992,"x"]}"#,
        "9007199254740993",
        Err("`n` must be one of 9007199254740992, `x`"),
    );
    check(r#"{"enum":[9007199254740993]}"#, "9007199254740993", Ok(()));
    check(r#"{"enum":[1,{"a":1}]}"#, r#"{"a":1e0}"#, Ok(()));
    check(r#"{"enum":[1]}"#, "true", Err("`n` must be one of 1"));
    check(r#"{"uniqueItems":true}"#, "[9007199254740992,9007199254740993]", Ok(()));
    check(r#"{"uniqueItems":true}"#, "[1,1.0]", Err("`n` has duplicate items"));
    check(r#"{"uniqueItems":true}"#, r#"[{"a":1,"b":2},{"b":2,"a":10e-1}]"#, Err("`n` has duplicate items"));
    check(r#"{"uniqueItems":true}"#, r#"[1,"1",true,null,[1],{"1":1}]"#, Ok(()));
}

#[test]
fn the_allowed_values_are_named_with_their_digits() {
    let schema = Json::parse(r#"{"properties":{"n":{"enum":[0.1234567890123456789012,2]}}}"#).expect("JSON");
    let schema = CompiledSchema::compile(&schema).expect("compiles");
    let doc = parse(br#"{"n":3}"#.to_vec(), &ParseLimits::default()).expect("JSON");
    let error = schema.validate(Some(doc.root())).expect_err("not allowed");
    assert_eq!(error.allowed.map(|json| json.to_string()).as_deref(), Some("[0.1234567890123456789012,2]"));
}
