//! Values that are hard to preserve, and the JSON each must read back as.

use contract::{DataType, Value};

pub struct Case {
    /// The name in the published table.
    pub name: &'static str,
    pub kind: DataType,
    pub value: Value,
    /// Its JSON; `None` if JSON cannot represent it.
    pub expected_json: Option<String>,
}

fn case(name: &'static str, kind: DataType, value: Value, message: &str) -> Case {
    Case { name, kind, value, expected_json: Some(message.to_owned()) }
}

fn text(name: &'static str, text: &str) -> Case {
    let mut message = Vec::new();
    json::write::string(&mut message, text);
    Case {
        name,
        kind: DataType::Text,
        value: Value::Text(text.to_owned()),
        expected_json: Some(String::from_utf8(message).unwrap()),
    }
}

/// A text whose JSON is the text itself, in a column of another type.
fn plain(name: &'static str, kind: DataType, text: &str) -> Case {
    case(name, kind, Value::Text(text.to_owned()), &format!("\"{text}\""))
}

pub const DECIMAL: &str = "1234567890123456.7891";
pub const BIG: i64 = (1 << 53) + 1;
pub const DAY: &str = "2026-02-28";
pub const ZONED: &str = "2026-02-11T10:00:00.123456789+02:00";
pub const LOCAL: &str = "2026-02-11T10:00:00";
pub const NESTED: &str = r#"{"a":[1,2.50,null,"é"],"b":{"c":9007199254740993}}"#;
pub const BYTES: [u8; 4] = [0, 255, 16, 10];
pub const BYTES_BASE64: &str = "AP8QCg==";
pub const LINES: &str = "one\ntwo\r\nthree\rfour\n";

pub fn long() -> String {
    "ä".repeat(32_768)
}

pub fn all() -> Vec<Case> {
    let none =
        |name, number| Case { name, kind: DataType::Number, value: Value::Real(number), expected_json: None };
    vec![
        plain("decimal(20,4)", DataType::Decimal, DECIMAL),
        case("2^53 + 1", DataType::Int64, Value::Integer(BIG), "\"9007199254740993\""),
        case("-0.0 as `number`", DataType::Number, Value::Real(-0.0), "-0.0"),
        plain("-0.0 as `decimal`", DataType::Decimal, "-0.0"),
        none("Infinity", f64::INFINITY),
        none("NaN", f64::NAN),
        plain("date", DataType::Date, DAY),
        plain("timestamp with zone", DataType::Timestamp, ZONED),
        plain("timestamp without zone", DataType::LocalTimestamp, LOCAL),
        case("nested JSON", DataType::Json, Value::Text(NESTED.to_owned()), NESTED),
        case("blob", DataType::Blob, Value::Blob(BYTES.to_vec()), &format!("\"{BYTES_BASE64}\"")),
        case("boolean", DataType::Boolean, Value::Integer(1), "true"),
        case("NULL", DataType::Text, Value::Null, "null"),
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
