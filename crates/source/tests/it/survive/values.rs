//! The values that are hard to keep, and what each must be told as.

use contract::{Kind, Value};

pub struct Case {
    /// As the published table calls it.
    pub name: &'static str,
    pub kind: Kind,
    pub value: Value,
    /// The JSON of it; none where JSON has none.
    pub told: Option<String>,
}

fn case(name: &'static str, kind: Kind, value: Value, told: &str) -> Case {
    Case { name, kind, value, told: Some(told.to_owned()) }
}

fn text(name: &'static str, text: &str) -> Case {
    let mut told = Vec::new();
    json::write::string(&mut told, text);
    Case {
        name,
        kind: Kind::Text,
        value: Value::Text(text.to_owned()),
        told: Some(String::from_utf8(told).unwrap()),
    }
}

/// A text that JSON writes as it is, in a column of another kind.
fn plain(name: &'static str, kind: Kind, text: &str) -> Case {
    case(name, kind, Value::Text(text.to_owned()), &format!("\"{text}\""))
}

pub const DECIMAL: &str = "1234567890123456.7891";
pub const BIG: i64 = (1 << 53) + 1;
pub const DAY: &str = "2026-02-28";
pub const ZONED: &str = "2026-02-11T10:00:00.123456789+02:00";
pub const LOCAL: &str = "2026-02-11T10:00:00";
pub const NESTED: &str = r#"{"a":[1,2.50,null,"é"],"b":{"c":9007199254740993}}"#;
pub const BYTES: [u8; 4] = [0, 255, 16, 10];
pub const BYTES_TOLD: &str = "AP8QCg==";
pub const LINES: &str = "one\ntwo\r\nthree\rfour\n";

pub fn long() -> String {
    "ä".repeat(32_768)
}

pub fn all() -> Vec<Case> {
    let none = |name, number| Case { name, kind: Kind::Number, value: Value::Real(number), told: None };
    vec![
        plain("decimal(20,4)", Kind::Decimal, DECIMAL),
        case("2^53 + 1", Kind::Int64, Value::Integer(BIG), "\"9007199254740993\""),
        case("-0.0 as `number`", Kind::Number, Value::Real(-0.0), "-0.0"),
        plain("-0.0 as `decimal`", Kind::Decimal, "-0.0"),
        none("Infinity", f64::INFINITY),
        none("NaN", f64::NAN),
        plain("date", Kind::Date, DAY),
        plain("timestamp with zone", Kind::Timestamp, ZONED),
        plain("timestamp without zone", Kind::LocalTimestamp, LOCAL),
        case("nested JSON", Kind::Json, Value::Text(NESTED.to_owned()), NESTED),
        case("blob", Kind::Blob, Value::Blob(BYTES.to_vec()), &format!("\"{BYTES_TOLD}\"")),
        case("boolean", Kind::Boolean, Value::Integer(1), "true"),
        case("NULL", Kind::Text, Value::Null, "null"),
        text("empty text", ""),
        text("4-byte emoji", "🦀𝄞"),
        text("NUL in a text", "a\0b"),
        text("`=1+1`", "=1+1"),
        text("`007`", "007"),
        text("blanks around a text", "  a\t"),
        text("line breaks in a text", LINES),
        text("text of 32,768 characters", &long()),
    ]
}
