//! Converts JSON objects to rows.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use foldhash::quality::RandomState;
use hashbrown::HashMap;
use json::{Doc, JsonError, JsonErrorKind, Node, NodeKind, ParseLimits, exact_f64, parse, write};

use crate::location::TextLocation;
use crate::tables::{ParseError, StoredValue, Table};

const UTF8_BOM: &[u8] = b"\xEF\xBB\xBF";
const COLUMNS_MAX: usize = 1024;
/// The largest object, with everything in it.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 20;
const LIMITS: ParseLimits = ParseLimits { depth_max: 64, values_max: 500_000 };

/// Where the text begins, after a byte order mark.
pub(super) fn content_start(bytes: &[u8]) -> Result<usize, ParseError> {
    let is_utf16 = bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF");
    if is_utf16 || bytes.starts_with(b"{\0") || bytes.starts_with(b"[\0") {
        return Err(ParseError {
            message: "is UTF-16, and JSON is UTF-8".into(),
            help: Some("save it as UTF-8".into()),
            location: None,
        });
    }
    Ok(if bytes.starts_with(UTF8_BOM) { UTF8_BOM.len() } else { 0 })
}

/// What an error is about: `line 7`, `element 7`, or the file itself.
pub(super) struct ErrorContext<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) record: Option<(&'static str, u32)>,
}

impl ErrorContext<'_> {
    pub(super) fn error_at(&self, at: usize, message: &str, help: &str) -> ParseError {
        let message = match self.record {
            Some((unit, number)) => format!("{unit} {number} {message}"),
            None => message.to_owned(),
        };
        let at = at.min(self.bytes.len());
        ParseError {
            message,
            help: Some(help.to_owned()),
            location: Some(TextLocation::at_byte(self.bytes, at)),
        }
    }

    /// `from` is where the scanned text begins.
    pub(super) fn json_error(&self, from: usize, error: JsonError) -> ParseError {
        let (message, help) = match error.kind {
            JsonErrorKind::InvalidUtf8 => ("is not UTF-8", "save the file as UTF-8"),
            JsonErrorKind::Syntax => {
                ("is not valid JSON", syntax_help(self.bytes, from + error.offset, self.record))
            }
            JsonErrorKind::TooDeep => ("is nested deeper than 64 levels", "flatten it"),
            JsonErrorKind::DuplicateKey => ("names a member twice", "remove one of the two"),
            JsonErrorKind::TooManyValues => ("has more than 500000 values", "make it smaller"),
            JsonErrorKind::TooLong => ("is too long", "make it smaller"),
        };
        self.error_at(from + error.offset, message, help)
    }
}

/// Hints for common mistakes.
fn syntax_help(bytes: &[u8], at: usize, record: Option<(&str, u32)>) -> &'static str {
    let before = bytes.get(..at).unwrap_or_default().trim_ascii_end().last();
    match (before, bytes.get(at)) {
        (Some(b','), Some(b']' | b'}')) => "remove the comma before it",
        (_, Some(b'\'')) => "put the text in double quotes: `\"…\"`",
        (_, Some(b'/' | b'#')) => "remove it: JSON has no comments",
        (Some(b'{' | b','), Some(first)) if first.is_ascii_alphabetic() => {
            "put names and texts in double quotes: `\"…\"`"
        }
        (Some(b'}'), Some(b'{')) if record.is_some_and(|(unit, _)| unit == "line") => {
            "give it a line of its own"
        }
        (Some(b'}' | b']' | b'"' | b'0'..=b'9'), Some(b'{' | b'[' | b'"')) => "put a comma before it",
        _ => "correct the syntax at this position",
    }
}

/// Parses the object that starts at `from`.
pub(super) fn parse_object(
    bytes: &[u8],
    from: usize,
    to: usize,
    at: &ErrorContext<'_>,
) -> Result<Doc, ParseError> {
    if to - from > RECORD_BYTES_MAX {
        let message = format!("has more than {RECORD_BYTES_MAX} bytes");
        return Err(at.error_at(from, &message, "make it smaller, or put the data into a SQLite database"));
    }
    let doc = parse(bytes[from..to].to_vec(), &LIMITS).map_err(|error| at.json_error(from, error))?;
    if doc.root().kind() != NodeKind::Object {
        let help = "make it an object, such as `{\"id\": 1}`: each row is one";
        return Err(at.error_at(from + doc.root().span().start, "is not an object", help));
    }
    Ok(doc)
}

/// The names of all members so far, in the order in which they first occurred.
#[derive(Default)]
pub(super) struct ColumnNames {
    pub(super) names: Vec<String>,
    indexes: HashMap<String, usize, RandomState>,
}

impl ColumnNames {
    /// The column of the member at position `at` of its object. Most objects have the same members in the same order.
    fn column_for(&mut self, at: usize, name: Node<'_>) -> Result<usize, TooManyColumns> {
        if self.names.get(at).is_some_and(|column| name.eq_str(column)) {
            return Ok(at);
        }
        let name = name.str().unwrap_or_default();
        if let Some(index) = self.indexes.get(&*name) {
            return Ok(*index);
        }
        let index = self.names.len();
        if index == COLUMNS_MAX {
            return Err(TooManyColumns);
        }
        self.indexes.insert(name.clone().into_owned(), index);
        self.names.push(name.into_owned());
        Ok(index)
    }

    /// Passes the columns of an object and their values to `visit`.
    pub(super) fn with_values<T>(
        &mut self,
        object: Node<'_>,
        visit: impl FnOnce(&[String], &[(usize, StoredValue<'_>)]) -> T,
    ) -> Result<T, TooManyColumns> {
        let mut columns = Vec::with_capacity(object.len());
        for (at, (name, _)) in object.members().enumerate() {
            columns.push(self.column_for(at, name)?);
        }
        // Unescaped texts and compacted nested values live here until they were visited.
        let values: Vec<JsonValue<'_>> =
            object.members().map(|(_, value)| JsonValue::from_node(value)).collect();
        let row: Vec<(usize, StoredValue<'_>)> =
            columns.into_iter().zip(values.iter().map(JsonValue::as_stored)).collect();
        Ok(visit(&self.names, &row))
    }
}

/// Builds a table from JSON objects.
pub(super) struct TableBuilder {
    pub(super) table: Table,
    names: ColumnNames,
}

impl TableBuilder {
    pub(super) fn new(name: &str, unit: &'static str) -> Self {
        let mut table = Table::new(name, Vec::new());
        (table.row_unit, table.is_schemaless, table.has_nested_json) = (unit, true, true);
        Self { table, names: ColumnNames::default() }
    }

    pub(super) fn push_object(&mut self, number: u32, object: Node<'_>) -> Result<(), TooManyColumns> {
        let table = &mut self.table;
        self.names.with_values(object, |names, row| {
            for name in &names[table.header.len()..] {
                table.add_column(name.clone());
            }
            table.push_row(number, row.iter().copied());
        })
    }
}

pub(super) struct TooManyColumns;

impl TooManyColumns {
    pub(super) fn to_parse_error(&self, at: &ErrorContext<'_>, from: usize) -> ParseError {
        let message = format!("has a member that exceeds the limit of {COLUMNS_MAX} columns");
        at.error_at(from, &message, "remove some, or nest what belongs together")
    }
}

/// A stored value that owns its text where the text had to be made.
pub(crate) enum JsonValue<'d> {
    Plain(StoredValue<'d>),
    Text(Cow<'d, str>),
    Nested(String),
}

impl<'d> JsonValue<'d> {
    pub(crate) fn from_node(node: Node<'d>) -> Self {
        match node.kind() {
            NodeKind::Null => Self::Plain(StoredValue::Null),
            NodeKind::True => Self::Plain(StoredValue::Boolean(true)),
            NodeKind::False => Self::Plain(StoredValue::Boolean(false)),
            NodeKind::Number => Self::Plain(parse_number(node)),
            NodeKind::String => Self::Text(node.str().unwrap_or_default()),
            NodeKind::Array | NodeKind::Object => {
                let mut out = Vec::with_capacity(node.raw().len());
                node.write_compact(&mut out);
                Self::Nested(String::from_utf8_lossy(&out).into_owned())
            }
        }
    }

    pub(crate) fn as_stored(&self) -> StoredValue<'_> {
        match self {
            Self::Plain(stored) => *stored,
            Self::Text(text) => StoredValue::Text(text),
            Self::Nested(text) => StoredValue::Json(text),
        }
    }
}

/// Whether a member has this value already.
pub(super) fn is_equal_to(node: Node<'_>, stored: StoredValue<'_>) -> bool {
    match stored {
        StoredValue::Json(text) => match parse(text.as_bytes().to_vec(), &LIMITS) {
            Ok(doc) => {
                let (mut new, mut old) = (Vec::new(), Vec::new());
                doc.root().write_compact(&mut new);
                node.write_compact(&mut old);
                new == old
            }
            Err(_) => false,
        },
        // Numbers are compared by spelling: `1.0` and `1.00` differ.
        StoredValue::Real(_) | StoredValue::Integer(_) | StoredValue::NumberText(_) => {
            let mut out = Vec::new();
            write_json(&mut out, stored).is_ok() && node.raw().as_bytes() == out
        }
        StoredValue::DateTime(text) => node.eq_str(text),
        StoredValue::Blob(bytes) => node.eq_str(&STANDARD.encode(bytes)),
        StoredValue::Null | StoredValue::Text(_) | StoredValue::Boolean(_) => {
            JsonValue::from_node(node).as_stored() == stored
        }
    }
}

/// A number that does not print back as it is spelled keeps its spelling.
fn parse_number(node: Node<'_>) -> StoredValue<'_> {
    let raw = node.raw();
    if node.is_plain_integer() {
        return match raw.parse() {
            Ok(n) if raw != "-0" => StoredValue::Integer(n),
            _ => StoredValue::NumberText(raw),
        };
    }
    match raw.parse::<f64>() {
        Ok(n) if n.is_finite() && (n.to_string() == raw || is_shortest_exponent(raw)) => StoredValue::Real(n),
        _ => StoredValue::NumberText(raw),
    }
}

/// Whether a number spelled with an exponent is the shortest decimal for a float.
fn is_shortest_exponent(raw: &str) -> bool {
    raw.contains(['e', 'E']) && exact_f64(raw).is_some()
}

/// Writes a value as JSON on one line, or returns why JSON cannot represent it.
pub(super) fn write_json(out: &mut Vec<u8>, stored: StoredValue<'_>) -> Result<(), &'static str> {
    match stored {
        StoredValue::Null => out.extend_from_slice(b"null"),
        StoredValue::Boolean(yes) => out.extend_from_slice(if yes { b"true" } else { b"false" }),
        StoredValue::Text(text) | StoredValue::DateTime(text) => write::string(out, text),
        StoredValue::Integer(n) => write::integer(out, n),
        StoredValue::Real(n) if n.is_finite() => write::number(out, n),
        StoredValue::Real(_) => return Err("JSON cannot represent this number"),
        StoredValue::NumberText(digits) => match parse(digits.as_bytes().to_vec(), &LIMITS) {
            Ok(doc) if doc.root().kind() == NodeKind::Number && doc.root().raw() == digits => {
                out.extend_from_slice(digits.as_bytes());
            }
            _ => return Err("JSON cannot represent this number"),
        },
        StoredValue::Json(text) => match parse(text.as_bytes().to_vec(), &LIMITS) {
            Ok(doc) => doc.root().write_compact(out),
            Err(_) => return Err("the value is not valid JSON"),
        },
        StoredValue::Blob(bytes) => write::string(out, &STANDARD.encode(bytes)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use json::{ParseLimits, parse};

    use super::{StoredValue, parse_number};

    fn check(raw: &str, expected: StoredValue<'_>) {
        let doc = parse(raw.as_bytes().to_vec(), &ParseLimits::default()).expect("JSON");
        assert_eq!(format!("{:?}", parse_number(doc.root())), format!("{expected:?}"), "{raw}");
    }

    #[test]
    fn a_number_is_stored_as_what_prints_back_identically() {
        for (raw, n) in [("0", 0), ("-7", -7), ("9007199254740993", 9_007_199_254_740_993)] {
            check(raw, StoredValue::Integer(n));
        }
        check("9223372036854775807", StoredValue::Integer(i64::MAX));
        for (raw, n) in [("1.5", 1.5), ("0.1", 0.1), ("-2.25", -2.25), ("1e5", 1e5), ("1E+5", 1e5)] {
            check(raw, StoredValue::Real(n));
        }
        for (raw, n) in [("1.5e-9", 1.5e-9), ("150e-2", 1.5), ("0e7", 0.0), ("-0e7", -0.0), ("1e300", 1e300)]
        {
            check(raw, StoredValue::Real(n));
        }
    }

    #[test]
    fn a_number_that_would_lose_digits_keeps_its_text() {
        for raw in [
            "-0",
            "-0.0",
            "1.0",
            "1.50",
            "9223372036854775808",
            "0.1000000000000000055511151231257827",
            "1e400",
            "-1e400",
            "1e-400",
            "1.00000000000000000001e5",
            "1e99999999999999999999",
            "123456789012345678.5",
        ] {
            check(raw, StoredValue::NumberText(raw));
        }
    }
}
