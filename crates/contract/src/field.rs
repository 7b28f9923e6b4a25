//! A column as callers see it: its name, its schema, and how its values are written as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::write::{self, ObjectWriter};
use json::{Json, ParseLimits, parse};

use crate::data_type::DataType;
use crate::infer::{self, SAFE_INTEGER_MAX};
use crate::order;
use crate::source::Comparison;
use crate::value::ValueRef;

/// A longer blob is returned as its size only.
pub const BLOB_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The name that callers use.
    pub name: String,
    /// The name in the source.
    pub column: String,
    pub data_type: DataType,
    pub nullable: bool,
    /// Whether values of other types occur and are returned as text.
    pub mixed: bool,
    /// A declared format, such as `email`. Checked in arguments, not in the data.
    pub format: Option<String>,
    pub description: Option<String>,
    /// The declared `enum`; empty if every value of the type is allowed.
    pub allowed: Vec<Json>,
    /// The column's current values, where the author asks to list them in descriptions.
    pub observed_values: Vec<String>,
    /// Never written to logs, recordings or the call log, nor shown in confirmations.
    pub sensitive: bool,
    /// Whether the author lets rows be grouped by it, and its values be added up and compared.
    pub in_groups: bool,
    pub in_measures: bool,
    /// `"name":`, rendered once.
    json_key: Box<str>,
}

/// A value that does not have its column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeMismatch;

/// What a schema is used for, which decides how strict it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaUse {
    /// An argument that selects rows: it must have the column's type.
    Lookup,
    /// An argument that is stored: it must have the exact form in which it will be returned.
    Write,
    /// A value in a result: only keywords that clients can use.
    Output,
}

impl Field {
    pub fn new(name: &str, column: &str, data_type: DataType) -> Self {
        let mut key = Vec::with_capacity(name.len() + 3);
        write::string(&mut key, name);
        key.push(b':');
        Self {
            name: name.into(),
            column: column.into(),
            data_type,
            nullable: false,
            mixed: false,
            format: None,
            description: None,
            allowed: Vec::new(),
            observed_values: Vec::new(),
            sensitive: false,
            in_groups: true,
            in_measures: true,
            json_key: String::from_utf8_lossy(&key).into(),
        }
    }

    /// Writes the schema of one value into `out`.
    pub fn write_schema(&self, out: &mut ObjectWriter<'_>, side: SchemaUse, description: Option<&str>) {
        let nullable = self.nullable && side != SchemaUse::Lookup;
        let mixed = self.mixed;
        match self.data_type {
            DataType::Json if side == SchemaUse::Output => {}
            // Gemini CLI leaves out tools with untyped arguments.
            DataType::Json => {
                out.raw("type", r#"["object","array","string","number","boolean","null"]"#)
                    .raw("items", "{}");
            }
            DataType::Blob if side == SchemaUse::Output => {
                out.array("anyOf", blob_schemas(nullable), |out, schema| {
                    out.extend_from_slice(schema.as_bytes());
                });
            }
            DataType::Blob => {
                out.raw("type", if nullable { r#"["string","null"]"# } else { r#""string""# });
                out.str("contentEncoding", "base64");
            }
            _ => self.write_scalar_schema(out, side, nullable, mixed),
        }
        out.maybe_str("description", description);
        if self.sensitive {
            out.bool(SENSITIVE_KEYWORD, true);
        }
    }

    fn write_scalar_schema(&self, out: &mut ObjectWriter<'_>, side: SchemaUse, nullable: bool, mixed: bool) {
        let json_type = match self.data_type {
            DataType::Integer => "integer",
            DataType::Number => "number",
            DataType::Boolean => "boolean",
            _ => "string",
        };
        let mixed = mixed && json_type != "string";
        let types = [Some(json_type), mixed.then_some("string"), nullable.then_some("null")];
        match types {
            [Some(only), None, None] => out.str("type", only),
            _ => out.array("type", types.into_iter().flatten(), write::string),
        };
        if !self.allowed.is_empty() {
            let null = nullable.then_some("null");
            out.array("enum", self.allowed.iter().map(Json::as_str).chain(null), |out, value| {
                out.extend_from_slice(value.as_bytes());
            });
            return;
        }
        // Values of other types would violate a format.
        if self.mixed {
            return;
        }
        let (format, pattern) = match self.data_type {
            // A stored value has one canonical form, so that it reads back as it was written.
            DataType::Int64 if side == SchemaUse::Write => (Some("int64"), Some(INTEGER_WRITE_PATTERN)),
            DataType::Decimal if side == SchemaUse::Write => (Some("decimal"), Some(DECIMAL_WRITE_PATTERN)),
            DataType::Int64 => (Some("int64"), Some(INTEGER_PATTERN)),
            DataType::Decimal => (Some("decimal"), Some(DECIMAL_PATTERN)),
            DataType::Date => (Some("date"), None),
            DataType::Timestamp => (Some("date-time"), None),
            DataType::LocalTimestamp => (Some("local-date-time"), Some(LOCAL_TIMESTAMP_PATTERN)),
            // The declared format is checked in arguments only: rows may violate it.
            _ => (self.format.as_deref().filter(|_| side != SchemaUse::Output), None),
        };
        out.maybe_str("format", format);
        if side != SchemaUse::Output {
            out.maybe_str("pattern", pattern);
        }
    }

    /// Writes `"name":value`.
    #[inline]
    pub fn write_member(&self, out: &mut Vec<u8>, cell: ValueRef<'_>) -> Result<(), TypeMismatch> {
        out.extend_from_slice(self.json_key.as_bytes());
        self.write_value(out, cell)
    }

    /// Writes a value as its schema describes it.
    #[inline]
    pub fn write_value(&self, out: &mut Vec<u8>, cell: ValueRef<'_>) -> Result<(), TypeMismatch> {
        match (self.data_type, cell) {
            (DataType::Text, ValueRef::Text(text)) if self.allowed.is_empty() => write::string(out, text),
            (_, ValueRef::Null) if self.nullable => out.extend_from_slice(b"null"),
            (_, ValueRef::Null) => return Err(TypeMismatch),
            _ if self.allowed.is_empty() => return self.write_typed(out, cell),
            _ => {
                let start = out.len();
                self.write_typed(out, cell)?;
                if !self.allowed.iter().any(|one| one.as_str().as_bytes() == &out[start..]) {
                    return Err(TypeMismatch);
                }
            }
        }
        Ok(())
    }

    fn write_typed(&self, out: &mut Vec<u8>, cell: ValueRef<'_>) -> Result<(), TypeMismatch> {
        match (self.data_type, cell) {
            (DataType::Text, ValueRef::Text(text)) => write::string(out, text),
            // A text in a mixed column stays a text, even if it looks like a number.
            (_, ValueRef::Text(text)) if self.mixed && self.data_type != DataType::Json => {
                write::string(out, text)
            }
            (DataType::Integer, ValueRef::Text(text)) if infer::matches_type(DataType::Integer, text) => {
                out.extend_from_slice(text.as_bytes());
            }
            (DataType::Integer, ValueRef::Integer(n))
                if (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n) =>
            {
                write::integer(out, n);
            }
            (DataType::Boolean, ValueRef::Text(text @ ("true" | "false"))) => {
                out.extend_from_slice(text.as_bytes())
            }
            (DataType::Boolean, ValueRef::Integer(n @ (0 | 1))) => {
                out.extend_from_slice(if n == 1 { b"true" } else { b"false" });
            }
            (DataType::Number, ValueRef::Text(text)) if infer::matches_type(DataType::Number, text) => {
                out.extend_from_slice(text.as_bytes());
            }
            (DataType::Number, ValueRef::Real(n)) if n.is_finite() => write::number(out, n),
            // In a mixed column, an integer that not every JSON reader keeps is returned as text.
            (DataType::Number, ValueRef::Integer(n))
                if self.mixed && n.unsigned_abs() > SAFE_INTEGER_MAX.unsigned_abs() =>
            {
                write_as_text(out, cell);
            }
            (DataType::Number, ValueRef::Integer(n)) => write::integer(out, n),
            (DataType::Int64 | DataType::Decimal | DataType::Text, ValueRef::Integer(n)) => {
                write::string(out, &n.to_string());
            }
            (DataType::Decimal | DataType::Text, ValueRef::Real(n)) if n.is_finite() => {
                write::string(out, &n.to_string());
            }
            (DataType::Json, ValueRef::Text(text)) => return self.write_json(out, text),
            (DataType::Blob, ValueRef::Blob(bytes)) => write_blob(out, bytes),
            (
                DataType::Int64
                | DataType::Decimal
                | DataType::Date
                | DataType::Timestamp
                | DataType::LocalTimestamp,
                ValueRef::Text(text),
            ) if infer::matches_type(self.data_type, text) => write::string(out, text),
            (_, cell) if self.mixed => write_as_text(out, cell),
            _ => return Err(TypeMismatch),
        }
        Ok(())
    }

    fn write_json(&self, out: &mut Vec<u8>, text: &str) -> Result<(), TypeMismatch> {
        match parse(text.as_bytes().to_vec(), &ParseLimits::default()) {
            Ok(doc) => doc.root().write_compact(out),
            Err(_) if self.mixed => write::string(out, text),
            Err(_) => return Err(TypeMismatch),
        }
        Ok(())
    }

    /// Whether a value reads back as the caller sent it, after the source stored it.
    pub fn round_trips(&self, sent: ValueRef<'_>, stored: ValueRef<'_>) -> bool {
        if let (ValueRef::Blob(sent), ValueRef::Blob(stored)) = (sent, stored) {
            return sent == stored;
        }
        let json = |cell| {
            let mut out = Vec::new();
            self.write_value(&mut out, cell).ok().map(|()| out)
        };
        // A source with native numbers stores `12.50` as the number 12.5, and a column whose format has two decimals stores
        // `12.5` as `12,50`: the same decimal.
        let is_number = match (stored, sent) {
            (ValueRef::Integer(_) | ValueRef::Real(_), _) => true,
            // Zeros may be added, but none that the caller sent may be lost.
            (ValueRef::Text(stored), ValueRef::Text(sent)) => {
                order::decimal_parts(stored).is_some() && stored.starts_with(sent)
            }
            (ValueRef::Text(_) | ValueRef::Null | ValueRef::Blob(_), _) => false,
        };
        if self.data_type == DataType::Decimal
            && is_number
            && order::matches_filter(self.data_type, stored, Comparison::Equals, sent)
        {
            return true;
        }
        let (Some(sent), Some(stored)) = (json(sent), json(stored)) else { return false };
        // The same number may have several spellings.
        let number = |json: &[u8]| std::str::from_utf8(json).ok()?.parse().ok().map(f64::to_bits);
        sent == stored
            || self.data_type == DataType::Number && number(&sent).is_some_and(|n| number(&stored) == Some(n))
    }

    /// Writes a value for the text of a result.
    pub fn write_readable(&self, out: &mut String, cell: ValueRef<'_>) {
        write_readable(out, self.data_type, cell);
    }
}

/// Writes a value of a type for the text of a result.
pub(crate) fn write_readable(out: &mut String, kind: DataType, cell: ValueRef<'_>) {
    match (kind, cell) {
        (_, ValueRef::Null) => {}
        (DataType::Boolean, ValueRef::Integer(n)) => out.push_str(if n == 0 { "false" } else { "true" }),
        (_, ValueRef::Text(text)) => out.push_str(text),
        (_, ValueRef::Integer(n)) => out.push_str(&n.to_string()),
        (_, ValueRef::Real(n)) if !n.is_finite() => {
            let mut out_of_range = Vec::with_capacity(12);
            write_as_text(&mut out_of_range, cell);
            out.push_str(String::from_utf8_lossy(&out_of_range).trim_matches('"'));
        }
        (_, ValueRef::Real(n)) => {
            let mut number = Vec::with_capacity(24);
            write::number(&mut number, n);
            out.push_str(&String::from_utf8_lossy(&number));
        }
        (_, ValueRef::Blob(bytes)) => out.push_str(&format!("({} bytes)", bytes.len())),
    }
}

/// The schema keyword of a property that recordings must not show.
pub const SENSITIVE_KEYWORD: &str = "x-sensitive";

const INTEGER_PATTERN: &str = "^-?[0-9]{1,19}$";
const INTEGER_WRITE_PATTERN: &str = "^(0|-?[1-9][0-9]{0,18})$";
const DECIMAL_WRITE_PATTERN: &str = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$";
const DECIMAL_PATTERN: &str = r"^-?[0-9]+(\.[0-9]+)?$";
const LOCAL_TIMESTAMP_PATTERN: &str =
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?$";

/// What an argument that violates one of these patterns must be.
pub(crate) fn describe_pattern(pattern: &str) -> Option<&'static str> {
    Some(match pattern {
        INTEGER_PATTERN => "must be a 64-bit integer, such as `-12`",
        INTEGER_WRITE_PATTERN => "must be a 64-bit integer without leading zeros, such as `-12`",
        DECIMAL_PATTERN => "must be a decimal, such as `-12.50`",
        DECIMAL_WRITE_PATTERN => "must be a decimal without leading zeros, such as `-12.50`",
        LOCAL_TIMESTAMP_PATTERN => {
            "must be a date and time without a time zone, such as `2026-02-11T10:00:00`"
        }
        _ => return None,
    })
}

fn blob_schemas(nullable: bool) -> impl Iterator<Item = &'static str> {
    let omitted = r#"{"type":"object","properties":{"omitted":{"const":true},"bytes":{"type":"integer"}},"required":["omitted","bytes"]}"#;
    let base64 = r#"{"type":"string","contentEncoding":"base64"}"#;
    [Some(base64), Some(omitted), nullable.then_some(r#"{"type":"null"}"#)].into_iter().flatten()
}

fn write_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() > BLOB_BYTES_MAX {
        let mut object = ObjectWriter::new(out);
        object.bool("omitted", true).int("bytes", bytes.len() as i64);
        object.end();
    } else {
        write::string(out, &STANDARD.encode(bytes));
    }
}

/// Writes a value of a mixed column as text.
fn write_as_text(out: &mut Vec<u8>, cell: ValueRef<'_>) {
    match cell {
        ValueRef::Null => out.extend_from_slice(b"null"),
        ValueRef::Text(text) => write::string(out, text),
        ValueRef::Integer(n) => write::string(out, &n.to_string()),
        ValueRef::Real(n) if n.is_nan() => write::string(out, "NaN"),
        ValueRef::Real(n) if n.is_infinite() => {
            write::string(out, if n > 0.0 { "Infinity" } else { "-Infinity" });
        }
        ValueRef::Real(n) => write::string(out, &n.to_string()),
        ValueRef::Blob(bytes) => write_blob(out, &bytes[..bytes.len().min(BLOB_BYTES_MAX)]),
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{Field, SchemaUse, TypeMismatch};
    use crate::data_type::DataType;
    use crate::validate::CompiledSchema;
    use crate::value::ValueRef;

    fn field(kind: DataType, nullable: bool, mixed: bool) -> Field {
        Field { nullable, mixed, ..Field::new("f", "F", kind) }
    }

    /// Asserts how a value is written, and that its schema accepts it.
    fn check(field: &Field, cell: ValueRef<'_>, expected: Result<&str, TypeMismatch>) {
        let mut out = Vec::new();
        let got = field.write_value(&mut out, cell).map(|()| String::from_utf8_lossy(&out).into_owned());
        assert_eq!(got.as_deref().map_err(|e| *e), expected, "{:?} {cell:?}", field.data_type);
        let schema = Json::object(|o| field.write_schema(o, SchemaUse::Output, None));
        let schema = CompiledSchema::compile(&schema).expect("a schema");
        if let Ok(written) = got {
            assert!(
                schema.is_valid(&Json::parse(&written).expect("JSON")),
                "{:?} {written}",
                field.data_type
            );
        }
    }

    #[test]
    fn write_value_is_exact_for_every_type() {
        let text = ValueRef::Text;
        let big = vec![0; (64 << 10) + 1];
        let table: &[(DataType, ValueRef<'_>, Result<&str, TypeMismatch>)] = &[
            (DataType::Text, text("a\"b"), Ok(r#""a\"b""#)),
            (DataType::Text, text(""), Ok(r#""""#)),
            (DataType::Text, ValueRef::Integer(7), Ok(r#""7""#)),
            (DataType::Integer, text("-17"), Ok("-17")),
            (DataType::Integer, ValueRef::Integer(42), Ok("42")),
            (DataType::Int64, text("9007199254740993"), Ok(r#""9007199254740993""#)),
            (DataType::Int64, ValueRef::Integer(i64::MIN), Ok(r#""-9223372036854775808""#)),
            (DataType::Decimal, text("12345678901234.5678"), Ok(r#""12345678901234.5678""#)),
            (DataType::Decimal, ValueRef::Real(19.99), Ok(r#""19.99""#)),
            (DataType::Decimal, ValueRef::Integer(20), Ok(r#""20""#)),
            (DataType::Number, ValueRef::Real(1.5), Ok("1.5")),
            (DataType::Number, ValueRef::Real(1e300), Ok("1e300")),
            (DataType::Number, ValueRef::Real(-2.5e-9), Ok("-2.5e-9")),
            (DataType::Number, ValueRef::Integer(2), Ok("2")),
            (DataType::Boolean, text("true"), Ok("true")),
            (DataType::Boolean, ValueRef::Integer(0), Ok("false")),
            (DataType::Date, text("2026-02-11"), Ok(r#""2026-02-11""#)),
            (DataType::Timestamp, text("2026-02-11T10:00:00+01:00"), Ok(r#""2026-02-11T10:00:00+01:00""#)),
            (DataType::LocalTimestamp, text("2026-02-11 10:00:00"), Ok(r#""2026-02-11 10:00:00""#)),
            (DataType::Json, text(r#"{ "a": [1, 2.50] }"#), Ok(r#"{"a":[1,2.50]}"#)),
            (DataType::Blob, ValueRef::Blob(&[0, 255, 16]), Ok(r#""AP8Q""#)),
            (DataType::Blob, ValueRef::Blob(&big), Ok(r#"{"omitted":true,"bytes":65537}"#)),
        ];
        for (kind, cell, expected) in table {
            check(&field(*kind, false, false), *cell, *expected);
            // In a mixed column a text is always written as text.
            let quoted = match cell {
                ValueRef::Text(text) if *kind != DataType::Json => {
                    Some(Json::parse(&format!("{text:?}")).expect("JSON"))
                }
                _ => None,
            };
            let mixed = quoted.as_ref().map_or(*expected, |quoted| Ok(quoted.as_str()));
            check(&field(*kind, true, true), *cell, mixed);
            check(&field(*kind, true, false), ValueRef::Null, Ok("null"));
        }
    }

    #[test]
    fn round_trips_detects_a_stored_value_that_reads_back_differently() {
        let text = ValueRef::Text;
        for (data_type, sent, stored, expected) in [
            (DataType::Decimal, text("12.50"), ValueRef::Real(12.5), true),
            (DataType::Decimal, text("100.00"), ValueRef::Integer(100), true),
            (
                DataType::Decimal,
                text("12345678901234567.8901"),
                ValueRef::Real(12_345_678_901_234_568.0),
                false,
            ),
            (DataType::Decimal, text("12.50"), text("12.5"), false),
            (DataType::Decimal, text("12.5"), text("12.50"), true),
            (DataType::Decimal, text("12.5"), text("12.51"), false),
            (DataType::Number, ValueRef::Real(2.0), ValueRef::Integer(2), true),
            (DataType::Text, text("007"), ValueRef::Integer(7), false),
            (DataType::Integer, ValueRef::Integer(7), ValueRef::Integer(8), false),
        ] {
            let field = field(data_type, false, false);
            assert_eq!(field.round_trips(sent, stored), expected, "{data_type:?} {sent:?} {stored:?}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_text_in_a_mixed_column_and_an_error_in_others() {
        let text = ValueRef::Text;
        for (kind, cell, expected) in [
            (DataType::Integer, text("n/a"), r#""n/a""#),
            (DataType::Integer, text("007"), r#""007""#),
            (DataType::Integer, ValueRef::Integer(1 << 53), r#""9007199254740992""#),
            (DataType::Integer, ValueRef::Real(0.5), r#""0.5""#),
            (DataType::Int64, text("x"), r#""x""#),
            (DataType::Decimal, text("1,5"), r#""1,5""#),
            (DataType::Number, text("x"), r#""x""#),
            (DataType::Number, ValueRef::Real(f64::INFINITY), r#""Infinity""#),
            (DataType::Number, ValueRef::Real(f64::NEG_INFINITY), r#""-Infinity""#),
            (DataType::Number, ValueRef::Real(f64::NAN), r#""NaN""#),
            (DataType::Boolean, ValueRef::Integer(2), r#""2""#),
            (DataType::Date, text("2026-02-30"), r#""2026-02-30""#),
            (DataType::Timestamp, text("yesterday"), r#""yesterday""#),
            (DataType::Json, text("{"), r#""{""#),
        ] {
            check(&field(kind, false, true), cell, Ok(expected));
            check(&field(kind, false, false), cell, Err(TypeMismatch));
        }
        for kind in DataType::ALL {
            check(&field(kind, false, false), ValueRef::Null, Err(TypeMismatch));
        }
    }
}
