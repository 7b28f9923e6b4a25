//! A column as callers see it: its name, its schema, and how a value of it is written.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::write::{self, Object};
use json::{Json, ScanLimits, scan};

use crate::cell::Cell;
use crate::infer::{self, EXACT_MAX};
use crate::kind::Kind;
use crate::order;
use crate::source::Test;

/// Longer bytes are told by their size only.
pub const BLOB_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone)]
pub struct Field {
    /// As callers name it.
    pub name: String,
    /// As the source names it.
    pub column: String,
    pub kind: Kind,
    pub nullable: bool,
    /// Whether values of another shape are told as text.
    pub mixed: bool,
    /// A format that the author promises, such as `email`.
    pub format: Option<String>,
    pub description: Option<String>,
    /// The only values there may be, as the author says.
    pub allowed: Vec<Json>,
    /// The values there are now: good to know, and no promise.
    pub seen: Vec<String>,
    /// Never written to logs, recordings or the call log, nor shown in questions.
    pub sensitive: bool,
    /// `"name":`, written once.
    key: Box<str>,
}

/// A value that is not what the contract says of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfit;

/// Where a schema stands, which decides how strict it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// An argument to choose by: what is not of its kind is refused.
    Input,
    /// An argument that is to be kept: exactly as it will be told again.
    Write,
    /// A result: we promise no more than clients can use.
    Output,
}

impl Field {
    pub fn new(name: &str, column: &str, kind: Kind) -> Self {
        let mut key = Vec::with_capacity(name.len() + 3);
        write::string(&mut key, name);
        key.push(b':');
        Self {
            name: name.into(),
            column: column.into(),
            kind,
            nullable: false,
            mixed: false,
            format: None,
            description: None,
            allowed: Vec::new(),
            seen: Vec::new(),
            sensitive: false,
            key: String::from_utf8_lossy(&key).into(),
        }
    }

    /// Writes the schema of one value.
    pub fn schema(&self, out: &mut Object<'_>, side: Side, description: Option<&str>) {
        let nullable = self.nullable && side != Side::Input;
        // What can be told can be asked for.
        let mixed = self.mixed;
        match self.kind {
            Kind::Json => {}
            Kind::Blob if side == Side::Output => {
                out.array("anyOf", blob_schemas(nullable), |out, schema| {
                    out.extend_from_slice(schema.as_bytes());
                });
            }
            Kind::Blob => {
                out.raw("type", if nullable { r#"["string","null"]"# } else { r#""string""# });
                out.str("contentEncoding", "base64");
            }
            _ => self.scalar_schema(out, side, nullable, mixed),
        }
        out.maybe_str("description", description);
        if self.sensitive {
            out.bool(SENSITIVE, true);
        }
    }

    fn scalar_schema(&self, out: &mut Object<'_>, side: Side, nullable: bool, mixed: bool) {
        let json_type = match self.kind {
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
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
        // A column with strays keeps no format: they would break it.
        if self.mixed {
            return;
        }
        let (format, pattern) = match self.kind {
            // What is kept has one way of being written, so that it reads back as it was.
            Kind::Int64 if side == Side::Write => (Some("int64"), Some(INTEGER_KEPT)),
            Kind::Decimal if side == Side::Write => (Some("decimal"), Some(DECIMAL_KEPT)),
            Kind::Int64 => (Some("int64"), Some(INTEGER_PATTERN)),
            Kind::Decimal => (Some("decimal"), Some(DECIMAL_PATTERN)),
            Kind::Date => (Some("date"), None),
            Kind::Timestamp => (Some("date-time"), None),
            Kind::LocalTimestamp => (Some("local-date-time"), Some(LOCAL_PATTERN)),
            // Callers are held to what the author says; rows are not, so it is no promise about them.
            _ => (self.format.as_deref().filter(|_| side != Side::Output), None),
        };
        out.maybe_str("format", format);
        if side != Side::Output {
            out.maybe_str("pattern", pattern);
        }
    }

    /// Writes `"name":value`.
    #[inline]
    pub fn member(&self, out: &mut Vec<u8>, cell: Cell<'_>) -> Result<(), Misfit> {
        out.extend_from_slice(self.key.as_bytes());
        self.value(out, cell)
    }

    /// Writes a value as the schema says.
    #[inline]
    pub fn value(&self, out: &mut Vec<u8>, cell: Cell<'_>) -> Result<(), Misfit> {
        match (self.kind, cell) {
            (Kind::Text, Cell::Text(text)) if self.allowed.is_empty() => write::string(out, text),
            (_, Cell::Null) if self.nullable => out.extend_from_slice(b"null"),
            (_, Cell::Null) => return Err(Misfit),
            _ if self.allowed.is_empty() => return self.typed(out, cell),
            _ => {
                let start = out.len();
                self.typed(out, cell)?;
                if !self.allowed.iter().any(|one| one.as_str().as_bytes() == &out[start..]) {
                    return Err(Misfit);
                }
            }
        }
        Ok(())
    }

    fn typed(&self, out: &mut Vec<u8>, cell: Cell<'_>) -> Result<(), Misfit> {
        match (self.kind, cell) {
            (Kind::Text, Cell::Text(text)) => write::string(out, text),
            // A text among numbers is a text, even if it looks like one of them.
            (_, Cell::Text(text)) if self.mixed && self.kind != Kind::Json => write::string(out, text),
            (Kind::Integer, Cell::Text(text)) if infer::is(Kind::Integer, text) => {
                out.extend_from_slice(text.as_bytes());
            }
            (Kind::Integer, Cell::Integer(n)) if (-EXACT_MAX..=EXACT_MAX).contains(&n) => {
                write::integer(out, n);
            }
            (Kind::Boolean, Cell::Text(text @ ("true" | "false"))) => out.extend_from_slice(text.as_bytes()),
            (Kind::Boolean, Cell::Integer(n @ (0 | 1))) => {
                out.extend_from_slice(if n == 1 { b"true" } else { b"false" });
            }
            (Kind::Number, Cell::Text(text)) if infer::is(Kind::Number, text) => {
                out.extend_from_slice(text.as_bytes());
            }
            (Kind::Number, Cell::Real(n)) if n.is_finite() => write::number(out, n),
            // Where a text may stand, a whole number that not every reader keeps is one.
            (Kind::Number, Cell::Integer(n)) if self.mixed && n.unsigned_abs() > EXACT_MAX.unsigned_abs() => {
                stray(out, cell);
            }
            (Kind::Number, Cell::Integer(n)) => write::integer(out, n),
            (Kind::Int64 | Kind::Decimal | Kind::Text, Cell::Integer(n)) => {
                write::string(out, &n.to_string());
            }
            (Kind::Decimal | Kind::Text, Cell::Real(n)) if n.is_finite() => {
                write::string(out, &n.to_string());
            }
            (Kind::Json, Cell::Text(text)) => return self.nested(out, text),
            (Kind::Blob, Cell::Blob(bytes)) => blob(out, bytes),
            (
                Kind::Int64 | Kind::Decimal | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp,
                Cell::Text(text),
            ) if infer::is(self.kind, text) => write::string(out, text),
            (_, cell) if self.mixed => stray(out, cell),
            _ => return Err(Misfit),
        }
        Ok(())
    }

    fn nested(&self, out: &mut Vec<u8>, text: &str) -> Result<(), Misfit> {
        match scan(text.as_bytes().to_vec(), &ScanLimits::default()) {
            Ok(doc) => doc.root().compact_into(out),
            Err(_) if self.mixed => write::string(out, text),
            Err(_) => return Err(Misfit),
        }
        Ok(())
    }

    /// Whether a value that was said is told again as it was, now that a source has kept it.
    pub fn keeps(&self, said: Cell<'_>, kept: Cell<'_>) -> bool {
        if let (Cell::Blob(said), Cell::Blob(kept)) = (said, kept) {
            return said == kept;
        }
        let told = |cell| {
            let mut out = Vec::new();
            self.value(&mut out, cell).ok().map(|()| out)
        };
        // Where a source has numbers, `12.50` is the number 12.5.
        if let (Kind::Decimal, Cell::Integer(_) | Cell::Real(_)) = (self.kind, kept)
            && order::passes(self.kind, kept, Test::Equals, said)
        {
            return true;
        }
        let (Some(said), Some(kept)) = (told(said), told(kept)) else { return false };
        // A number may be written in many ways.
        let number = |json: &[u8]| std::str::from_utf8(json).ok()?.parse().ok().map(f64::to_bits);
        said == kept || self.kind == Kind::Number && number(&said).is_some_and(|n| number(&kept) == Some(n))
    }

    /// How a value reads in a line of text.
    pub fn readable(&self, out: &mut String, cell: Cell<'_>) {
        match (self.kind, cell) {
            (_, Cell::Null) => {}
            (Kind::Boolean, Cell::Integer(n)) => out.push_str(if n == 0 { "false" } else { "true" }),
            (_, Cell::Text(text)) => out.push_str(text),
            (_, Cell::Integer(n)) => out.push_str(&n.to_string()),
            (_, Cell::Real(n)) if !n.is_finite() => {
                let mut out_of_range = Vec::with_capacity(12);
                stray(&mut out_of_range, cell);
                out.push_str(String::from_utf8_lossy(&out_of_range).trim_matches('"'));
            }
            (_, Cell::Real(n)) => {
                let mut number = Vec::with_capacity(24);
                write::number(&mut number, n);
                out.push_str(&String::from_utf8_lossy(&number));
            }
            (_, Cell::Blob(bytes)) => out.push_str(&format!("({} bytes)", bytes.len())),
        }
    }
}

/// Marks a property that recordings must not show.
pub const SENSITIVE: &str = "x-sensitive";

const INTEGER_PATTERN: &str = "^-?[0-9]{1,19}$";
const INTEGER_KEPT: &str = "^(0|-?[1-9][0-9]{0,18})$";
const DECIMAL_KEPT: &str = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$";
const DECIMAL_PATTERN: &str = r"^-?[0-9]+(\.[0-9]+)?$";
const LOCAL_PATTERN: &str = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?$";

fn blob_schemas(nullable: bool) -> impl Iterator<Item = &'static str> {
    let omitted = r#"{"type":"object","properties":{"omitted":{"const":true},"bytes":{"type":"integer"}},"required":["omitted","bytes"]}"#;
    let base64 = r#"{"type":"string","contentEncoding":"base64"}"#;
    [Some(base64), Some(omitted), nullable.then_some(r#"{"type":"null"}"#)].into_iter().flatten()
}

fn blob(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() > BLOB_BYTES_MAX {
        let mut object = Object::new(out);
        object.bool("omitted", true).int("bytes", bytes.len() as i64);
        object.end();
    } else {
        write::string(out, &STANDARD.encode(bytes));
    }
}

/// A value of another shape than its column's, as text.
fn stray(out: &mut Vec<u8>, cell: Cell<'_>) {
    match cell {
        Cell::Null => out.extend_from_slice(b"null"),
        Cell::Text(text) => write::string(out, text),
        Cell::Integer(n) => write::string(out, &n.to_string()),
        Cell::Real(n) if n.is_nan() => write::string(out, "NaN"),
        Cell::Real(n) if n.is_infinite() => {
            write::string(out, if n > 0.0 { "Infinity" } else { "-Infinity" });
        }
        Cell::Real(n) => write::string(out, &n.to_string()),
        Cell::Blob(bytes) => blob(out, &bytes[..bytes.len().min(BLOB_BYTES_MAX)]),
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{Field, Misfit, Side};
    use crate::cell::Cell;
    use crate::check::Check;
    use crate::kind::Kind;

    fn field(kind: Kind, nullable: bool, mixed: bool) -> Field {
        Field { nullable, mixed, ..Field::new("f", "F", kind) }
    }

    /// A value is written as expected, and its schema admits it.
    fn check(field: &Field, cell: Cell<'_>, expected: Result<&str, Misfit>) {
        let mut out = Vec::new();
        let got = field.value(&mut out, cell).map(|()| String::from_utf8_lossy(&out).into_owned());
        assert_eq!(got.as_deref().map_err(|e| *e), expected, "{:?} {cell:?}", field.kind);
        let schema = Json::object(|o| field.schema(o, Side::Output, None));
        let schema = Check::compile(&schema).expect("a schema");
        if let Ok(written) = got {
            assert!(schema.admits(&Json::parse(&written).expect("JSON")), "{:?} {written}", field.kind);
        }
    }

    #[test]
    fn every_kind_is_told_exactly() {
        let text = Cell::Text;
        let big = vec![0; (64 << 10) + 1];
        let table: &[(Kind, Cell<'_>, Result<&str, Misfit>)] = &[
            (Kind::Text, text("a\"b"), Ok(r#""a\"b""#)),
            (Kind::Text, text(""), Ok(r#""""#)),
            (Kind::Text, Cell::Integer(7), Ok(r#""7""#)),
            (Kind::Integer, text("-17"), Ok("-17")),
            (Kind::Integer, Cell::Integer(42), Ok("42")),
            (Kind::Int64, text("9007199254740993"), Ok(r#""9007199254740993""#)),
            (Kind::Int64, Cell::Integer(i64::MIN), Ok(r#""-9223372036854775808""#)),
            (Kind::Decimal, text("12345678901234.5678"), Ok(r#""12345678901234.5678""#)),
            (Kind::Decimal, Cell::Real(19.99), Ok(r#""19.99""#)),
            (Kind::Decimal, Cell::Integer(20), Ok(r#""20""#)),
            (Kind::Number, Cell::Real(1.5), Ok("1.5")),
            (Kind::Number, Cell::Real(1e300), Ok("1e300")),
            (Kind::Number, Cell::Real(-2.5e-9), Ok("-2.5e-9")),
            (Kind::Number, Cell::Integer(2), Ok("2")),
            (Kind::Boolean, text("true"), Ok("true")),
            (Kind::Boolean, Cell::Integer(0), Ok("false")),
            (Kind::Date, text("2026-02-11"), Ok(r#""2026-02-11""#)),
            (Kind::Timestamp, text("2026-02-11T10:00:00+01:00"), Ok(r#""2026-02-11T10:00:00+01:00""#)),
            (Kind::LocalTimestamp, text("2026-02-11 10:00:00"), Ok(r#""2026-02-11 10:00:00""#)),
            (Kind::Json, text(r#"{ "a": [1, 2.50] }"#), Ok(r#"{"a":[1,2.50]}"#)),
            (Kind::Blob, Cell::Blob(&[0, 255, 16]), Ok(r#""AP8Q""#)),
            (Kind::Blob, Cell::Blob(&big), Ok(r#"{"omitted":true,"bytes":65537}"#)),
        ];
        for (kind, cell, expected) in table {
            check(&field(*kind, false, false), *cell, *expected);
            // In a mixed column a text is always told as text.
            let quoted = match cell {
                Cell::Text(text) if *kind != Kind::Json => {
                    Some(Json::parse(&format!("{text:?}")).expect("JSON"))
                }
                _ => None,
            };
            let mixed = quoted.as_ref().map_or(*expected, |quoted| Ok(quoted.as_str()));
            check(&field(*kind, true, true), *cell, mixed);
            check(&field(*kind, true, false), Cell::Null, Ok("null"));
        }
    }

    #[test]
    fn what_was_said_is_kept_or_not() {
        let text = Cell::Text;
        for (kind, said, kept, yes) in [
            (Kind::Decimal, text("12.50"), Cell::Real(12.5), true),
            (Kind::Decimal, text("100.00"), Cell::Integer(100), true),
            (Kind::Decimal, text("12345678901234567.8901"), Cell::Real(12_345_678_901_234_568.0), false),
            (Kind::Decimal, text("12.50"), text("12.5"), false),
            (Kind::Number, Cell::Real(2.0), Cell::Integer(2), true),
            (Kind::Text, text("007"), Cell::Integer(7), false),
            (Kind::Integer, Cell::Integer(7), Cell::Integer(8), false),
        ] {
            assert_eq!(field(kind, false, false).keeps(said, kept), yes, "{kind:?} {said:?} {kept:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_text_in_a_mixed_column_and_refused_in_another() {
        let text = Cell::Text;
        for (kind, cell, told) in [
            (Kind::Integer, text("n/a"), r#""n/a""#),
            (Kind::Integer, text("007"), r#""007""#),
            (Kind::Integer, Cell::Integer(1 << 53), r#""9007199254740992""#),
            (Kind::Integer, Cell::Real(0.5), r#""0.5""#),
            (Kind::Int64, text("x"), r#""x""#),
            (Kind::Decimal, text("1,5"), r#""1,5""#),
            (Kind::Number, text("x"), r#""x""#),
            (Kind::Number, Cell::Real(f64::INFINITY), r#""Infinity""#),
            (Kind::Number, Cell::Real(f64::NEG_INFINITY), r#""-Infinity""#),
            (Kind::Number, Cell::Real(f64::NAN), r#""NaN""#),
            (Kind::Boolean, Cell::Integer(2), r#""2""#),
            (Kind::Date, text("2026-02-30"), r#""2026-02-30""#),
            (Kind::Timestamp, text("yesterday"), r#""yesterday""#),
            (Kind::Json, text("{"), r#""{""#),
        ] {
            check(&field(kind, false, true), cell, Ok(told));
            check(&field(kind, false, false), cell, Err(Misfit));
        }
        for kind in Kind::ALL {
            check(&field(kind, false, false), Cell::Null, Err(Misfit));
        }
    }
}
