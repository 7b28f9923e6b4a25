//! From the arguments of a call to what a source is asked. Arguments have been checked against the schema.
//!
//! What is compared may be written in more than one way; what is kept is taken only if it will be told again as it
//! was said.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::{Decimal, Node, NodeKind as Json};
use spile_core::{ArgumentErrorKind, ToolError, ToolErrorCode};

use crate::contract::{ArgumentRole, Collection, Statement, VERSION_FIELD, Versioning};
use crate::data_type::DataType;
use crate::field::Field;
use crate::infer::{self, SAFE_INTEGER_MAX};
use crate::source::{Comparison, Filter, Sort};
use crate::value::{Value, ValueRef};

pub const QUERY_CHARS_MAX: usize = 1000;
/// More words than these make no search any better.
pub const SEARCH_TERMS_MAX: usize = 16;
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 200;

/// The value of an argument, as a source compares it.
#[derive(Debug, Clone, PartialEq)]
pub enum BoundValue<'a> {
    Null,
    Text(Cow<'a, str>),
    Integer(i64),
    Real(f64),
    Blob(Vec<u8>),
}

impl BoundValue<'_> {
    pub fn as_value_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Text(text) => ValueRef::Text(text),
            Self::Integer(n) => ValueRef::Integer(*n),
            Self::Real(n) => ValueRef::Real(*n),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }
    }
}

impl From<&Value> for BoundValue<'_> {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Text(text) => Self::Text(Cow::Owned(text.clone())),
            Value::Integer(n) => Self::Integer(*n),
            Value::Real(n) => Self::Real(*n),
            Value::Blob(bytes) => Self::Blob(bytes.clone()),
        }
    }
}

/// The key of a `get`, part by part.
#[inline]
pub fn key<'a>(
    collection: &Collection,
    arguments: Option<Node<'a>>,
) -> Result<Vec<BoundValue<'a>>, Box<ToolError>> {
    collection
        .key_fields()
        .map(|field| match arguments.and_then(|arguments| arguments.get(&field.name)) {
            Some(node) => bind_comparable(field, &field.name, node),
            None => Err(invalid_argument(
                &field.name,
                ArgumentErrorKind::MissingRequired,
                format!("`{}` is required", field.name),
            )),
        })
        .collect()
}

/// What a `list` is asked for.
#[derive(Debug, Default)]
pub struct ListArguments<'a> {
    pub filters: Vec<(usize, Comparison, BoundValue<'a>)>,
    pub sort: Option<Sort>,
    pub limit: Option<usize>,
    pub projection: Option<Projection>,
    pub cursor: Option<Cow<'a, str>>,
}

/// The fields that a caller wants to see, by place and in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    pub fields: Vec<usize>,
    /// Whether the record's [`VERSION`] is wanted too.
    pub include_version: bool,
}

impl ListArguments<'_> {
    pub fn filters(&self) -> Vec<Filter<'_>> {
        self.filters
            .iter()
            .map(|(column, test, value)| Filter {
                column: *column,
                comparison: *test,
                value: value.as_value_ref(),
            })
            .collect()
    }
}

pub fn list<'a>(
    collection: &Collection,
    meanings: &[(String, ArgumentRole)],
    arguments: Option<Node<'a>>,
) -> Result<ListArguments<'a>, Box<ToolError>> {
    let mut listing = ListArguments::default();
    for (name, node) in arguments.into_iter().flat_map(|arguments| arguments.members()) {
        let name = name.str().unwrap_or_default();
        let Some((_, meaning)) = meanings.iter().find(|(known, _)| *known == name) else { continue };
        match meaning {
            ArgumentRole::Cursor => listing.cursor = node.str(),
            ArgumentRole::Limit => listing.limit = parse_integer(node).and_then(|n| usize::try_from(n).ok()),
            ArgumentRole::Sort => listing.sort = node.str().and_then(|by| parse_sort(collection, &by)),
            ArgumentRole::Fields => listing.projection = Some(parse_projection(collection, node)),
            ArgumentRole::Filter { column, comparison: test } => {
                let value = bind_comparable(&collection.fields[*column], &name, node)?;
                listing.filters.push((*column, *test, value));
            }
        }
    }
    Ok(listing)
}

/// What a search is asked for.
#[derive(Debug)]
pub struct SearchArguments<'a> {
    query: Cow<'a, str>,
    pub limit: Option<usize>,
    pub projection: Option<Projection>,
}

impl SearchArguments<'_> {
    /// The different words of the query: at least one, for the schema wants a character that is none between words.
    pub fn terms(&self) -> Vec<&str> {
        let mut words: Vec<&str> = Vec::new();
        for word in self.query.split_whitespace() {
            if words.len() < SEARCH_TERMS_MAX && !words.contains(&word) {
                words.push(word);
            }
        }
        words
    }
}

pub fn search<'a>(
    collection: &Collection,
    arguments: Option<Node<'a>>,
) -> Result<SearchArguments<'a>, Box<ToolError>> {
    let said = |name: &str| arguments.and_then(|arguments| arguments.get(name));
    let query = said("query").and_then(|node| node.str()).unwrap_or_default();
    // What Unicode calls a blank and the schema's pattern does not.
    if query.trim().is_empty() {
        return Err(invalid_argument("query", ArgumentErrorKind::OutOfRange, "`query`: has no words".into()));
    }
    Ok(SearchArguments {
        query,
        limit: said("limit").and_then(parse_integer).and_then(|n| usize::try_from(n).ok()),
        projection: said("fields").map(|node| parse_projection(collection, node)),
    })
}

/// What is to be written.
#[derive(Debug)]
pub struct WriteArguments<'a> {
    /// Empty for a new record.
    pub key: Vec<BoundValue<'a>>,
    /// By their places in the collection's fields.
    pub values: Vec<(usize, BoundValue<'a>)>,
    /// The state that the caller means, if they say so.
    pub expected_version: Option<BoundValue<'a>>,
    pub options: WriteOptions<'a>,
}

/// What makes a repetition harmless, and whether it is only a try.
#[derive(Debug, Default)]
pub struct WriteOptions<'a> {
    pub idempotency_key: Option<Cow<'a, str>>,
    pub dry_run: bool,
}

fn write_options(arguments: Option<Node<'_>>) -> WriteOptions<'_> {
    let said = |name: &str| arguments.and_then(|arguments| arguments.get(name));
    WriteOptions {
        idempotency_key: said("idempotency_key").and_then(|node| node.str()),
        dry_run: said("dry_run").and_then(|node| node.bool()).unwrap_or(false),
    }
}

/// A new record. Its version, where a field says it, begins with 1.
pub fn create<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<WriteArguments<'a>, Box<ToolError>> {
    let mut cells = bind_fields(collection, fields, arguments)?;
    if let Some(Versioning::Field(at)) = collection.write_policy.as_ref().map(|writes| writes.versioning) {
        cells.push((at, BoundValue::Integer(1)));
    }
    Ok(WriteArguments {
        key: Vec::new(),
        values: cells,
        expected_version: None,
        options: write_options(arguments),
    })
}

/// Other values for some fields of one record.
pub fn update<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<WriteArguments<'a>, Box<ToolError>> {
    let cells = bind_fields(collection, fields, arguments)?;
    if cells.is_empty() {
        let names: Vec<&str> = fields.iter().map(|at| collection.fields[*at].name.as_str()).collect();
        let message = format!("nothing to change is said; there are: {}", names.join(", "));
        let problem = ToolError {
            reason: Some(ArgumentErrorKind::MissingRequired),
            ..ToolError::new(ToolErrorCode::InvalidArguments, message)
        };
        return Err(Box::new(problem));
    }
    Ok(WriteArguments { values: cells, ..delete(collection, arguments)? })
}

/// One record that is to go.
pub fn delete<'a>(
    collection: &Collection,
    arguments: Option<Node<'a>>,
) -> Result<WriteArguments<'a>, Box<ToolError>> {
    let said = arguments.and_then(|arguments| arguments.get("expected_version"));
    let expected = match (said, collection.write_policy.as_ref().map(|writes| writes.versioning)) {
        (None, _) => None,
        (Some(node), Some(Versioning::Field(at))) => {
            Some(bind_stored(&collection.fields[at], "expected_version", node)?)
        }
        (Some(node), Some(Versioning::Digest) | None) => node.str().map(BoundValue::Text),
    };
    Ok(WriteArguments {
        key: key(collection, arguments)?,
        values: Vec::new(),
        expected_version: expected,
        options: write_options(arguments),
    })
}

/// The arguments of a statement, in the order of its parameters.
pub fn statement<'a>(
    statement: &Statement,
    arguments: Option<Node<'a>>,
) -> Result<(Vec<BoundValue<'a>>, WriteOptions<'a>), Box<ToolError>> {
    let mut bound = Vec::with_capacity(statement.arguments.len());
    for argument in &statement.arguments {
        let name = &argument.field.name;
        // `null` for what may be left out is as if it were.
        let said = arguments.and_then(|arguments| arguments.get(name));
        bound.push(match said.filter(|node| argument.required || node.kind() != Json::Null) {
            Some(node) => bind_stored(&argument.field, name, node)?,
            None => BoundValue::from(&argument.default),
        });
    }
    Ok((bound, if statement.shape.writes { write_options(arguments) } else { WriteOptions::default() }))
}

/// What a statement is asked for, whatever key it is asked with: two that are the same here mean the same, however
/// their numbers are written and in whatever order they come.
pub fn canonical_arguments(statement: &Statement, arguments: &[BoundValue<'_>]) -> Vec<u8> {
    let names = statement.arguments.iter().map(|argument| argument.field.name.as_str());
    encode_named(names.zip(arguments).collect())
}

impl WriteArguments<'_> {
    /// The same for one record.
    pub fn canonical_bytes(&self, collection: &Collection) -> Vec<u8> {
        let name = |at: usize| collection.fields[at].name.as_str();
        let cells = encode_named(self.values.iter().map(|(at, value)| (name(*at), value)).collect());
        let key =
            encode_named(collection.key_fields().map(|field| field.name.as_str()).zip(&self.key).collect());
        let expected = encode_named(self.expected_version.iter().map(|value| ("", value)).collect());
        let mut out = Vec::new();
        for part in [key, cells, expected] {
            push_length_prefixed(&mut out, &part);
        }
        out
    }
}

fn encode_named(mut values: Vec<(&str, &BoundValue<'_>)>) -> Vec<u8> {
    values.sort_by_key(|(name, _)| *name);
    let mut out = Vec::new();
    for (name, value) in values {
        push_length_prefixed(&mut out, name.as_bytes());
        let (tag, bytes): (u8, Cow<'_, [u8]>) = match value {
            BoundValue::Null => (0, Cow::Borrowed(&[])),
            BoundValue::Text(text) => (1, Cow::Borrowed(text.as_bytes())),
            BoundValue::Integer(n) => (2, Cow::Owned(n.to_be_bytes().to_vec())),
            BoundValue::Real(n) => (3, Cow::Owned(n.to_bits().to_be_bytes().to_vec())),
            BoundValue::Blob(bytes) => (4, Cow::Borrowed(bytes)),
        };
        out.push(tag);
        push_length_prefixed(&mut out, &bytes);
    }
    out
}

/// With its length, so that no two make a third.
fn push_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn bind_fields<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<Vec<(usize, BoundValue<'a>)>, Box<ToolError>> {
    let said = |at: &usize| {
        let field = &collection.fields[*at];
        let node = arguments.and_then(|arguments| arguments.get(&field.name))?;
        Some(bind_stored(field, &field.name, node).map(|value| (*at, value)))
    };
    fields.iter().filter_map(said).collect()
}

fn parse_projection(collection: &Collection, node: Node<'_>) -> Projection {
    let mut fields: Vec<usize> =
        node.elements().filter_map(|name| field_index(collection, &name.str()?)).collect();
    fields.sort_unstable();
    Projection { fields, include_version: node.elements().any(|name| name.eq_str(VERSION_FIELD)) }
}

fn field_index(collection: &Collection, name: &str) -> Option<usize> {
    collection.fields.iter().position(|field| field.name == name)
}

/// `plan` or, from the last to the first, `-plan`.
fn parse_sort(collection: &Collection, by: &str) -> Option<Sort> {
    let (name, descending) = match by.strip_prefix('-') {
        Some(name) => (name, true),
        None => (by, false),
    };
    field_index(collection, name).map(|column| Sort { column, descending })
}

fn bind_comparable<'a>(field: &Field, name: &str, node: Node<'a>) -> Result<BoundValue<'a>, Box<ToolError>> {
    // A stray is asked for as it was told: as text.
    if let (true, Some(text)) = (field.mixed, node.str()) {
        return Ok(match field.data_type {
            DataType::Int64 => text.parse().map_or(BoundValue::Text(text), BoundValue::Integer),
            _ => BoundValue::Text(text),
        });
    }
    let value = match field.data_type {
        DataType::Integer => parse_integer(node).map(BoundValue::Integer),
        DataType::Int64 => node.str().and_then(|text| text.parse().ok()).map(BoundValue::Integer),
        DataType::Number => exact_f64(node.raw()).map(BoundValue::Real),
        DataType::Boolean => node.bool().map(|yes| BoundValue::Integer(yes.into())),
        DataType::Text
        | DataType::Decimal
        | DataType::Date
        | DataType::Timestamp
        | DataType::LocalTimestamp
        | DataType::Json
        | DataType::Blob => node.str().map(BoundValue::Text),
    };
    value.ok_or_else(|| {
        invalid_argument(
            name,
            ArgumentErrorKind::OutOfRange,
            format!("`{name}`: not a value that this field can have"),
        )
    })
}

/// A value that is to be kept, if it can be told again exactly as it is said here.
fn bind_stored<'a>(field: &Field, name: &str, node: Node<'a>) -> Result<BoundValue<'a>, Box<ToolError>> {
    if node.kind() == Json::Null && field.nullable {
        return Ok(BoundValue::Null);
    }
    let bad = |reason, why: &str| invalid_argument(name, reason, format!("`{name}`: {why}"));
    if field.mixed && node.kind() == Json::String && field.data_type.is_scalar() {
        return bind_comparable(field, name, node);
    }
    match field.data_type {
        DataType::Text | DataType::Boolean => bind_comparable(field, name, node),
        DataType::Integer => match parse_integer(node) {
            Some(n) if (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n) => Ok(BoundValue::Integer(n)),
            Some(_) | None => Err(bad(
                ArgumentErrorKind::OutOfRange,
                "a whole number between -(2^53 - 1) and 2^53 - 1 is wanted",
            )),
        },
        DataType::Int64 => match node.str().filter(|text| infer::matches_type(DataType::Int64, text)) {
            Some(text) => text
                .parse()
                .map(BoundValue::Integer)
                .map_err(|_| bad(ArgumentErrorKind::OutOfRange, "too large")),
            None => Err(bad(
                ArgumentErrorKind::OutOfRange,
                "a whole number of 64 bits is wanted, without zeros before it",
            )),
        },
        DataType::Number => match exact_f64(node.raw()) {
            Some(n) => Ok(BoundValue::Real(n)),
            None => Err(bad(
                ArgumentErrorKind::OutOfRange,
                "cannot be kept exactly: too large, or too many digits",
            )),
        },
        DataType::Decimal | DataType::Date | DataType::Timestamp | DataType::LocalTimestamp => {
            match node.str().filter(|text| infer::matches_type(field.data_type, text)) {
                Some(text) => Ok(BoundValue::Text(text)),
                None => Err(bad(ArgumentErrorKind::BadFormat, expected_format(field.data_type))),
            }
        }
        DataType::Json => {
            let mut out = Vec::with_capacity(node.raw().len());
            node.write_compact(&mut out);
            Ok(BoundValue::Text(Cow::Owned(json::Json::from_written_bytes(out).as_str().to_owned())))
        }
        DataType::Blob => match node.str().and_then(|text| STANDARD.decode(text.as_bytes()).ok()) {
            Some(bytes) => Ok(BoundValue::Blob(bytes)),
            None => {
                Err(bad(ArgumentErrorKind::BadFormat, "not base64 (RFC 4648, with padding, on one line)"))
            }
        },
    }
}

fn expected_format(kind: DataType) -> &'static str {
    match kind {
        DataType::Decimal => "not a decimal such as `-12.50`, without zeros before it",
        DataType::Date => "not a date such as `2026-02-11`",
        DataType::Timestamp => "not a moment with a zone such as `2026-02-11T10:00:00Z`",
        DataType::LocalTimestamp => "not a date and time without a zone such as `2026-02-11T10:00:00`",
        DataType::Text
        | DataType::Integer
        | DataType::Int64
        | DataType::Number
        | DataType::Boolean
        | DataType::Json
        | DataType::Blob => "not a value that this field can have",
    }
}

/// The `f64` that prints as these digits, if there is one. A number with more digits would lose some.
fn exact_f64(raw: &str) -> Option<f64> {
    let n: f64 = raw.parse().ok().filter(|n: &f64| n.is_finite())?;
    (Decimal::parse(raw)? == Decimal::parse(&format!("{n:e}"))?).then_some(n)
}

/// JSON knows one kind of number: `42.0` is the integer 42.
fn parse_integer(node: Node<'_>) -> Option<i64> {
    if node.kind() != Json::Number {
        return None;
    }
    node.raw().parse().ok().or_else(|| node.decimal()?.to_i64())
}

fn invalid_argument(field: &str, reason: ArgumentErrorKind, message: String) -> Box<ToolError> {
    Box::new(ToolError {
        field: Some(field.into()),
        reason: Some(reason),
        ..ToolError::new(ToolErrorCode::InvalidArguments, message)
    })
}

#[cfg(test)]
mod tests {
    use super::{BoundValue, encode_named, exact_f64, parse_integer};

    #[test]
    fn integers_are_bound_by_their_digits() {
        for (text, expected) in [
            ("42", Some(42)),
            ("42.0", Some(42)),
            ("4.2e1", Some(42)),
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("9007199254740993.0", Some(9_007_199_254_740_993)),
            ("4503599627370497.5", None),
            ("8.99999999999999999999", None),
            ("1e-400", None),
            ("1e400", None),
        ] {
            let doc = json::scan(text.into(), &json::ScanLimits::default()).expect("JSON");
            assert_eq!(parse_integer(doc.root()), expected, "{text}");
        }
    }

    #[test]
    fn a_number_is_kept_if_no_digit_of_it_is_lost() {
        for good in ["0", "-0.0", "0.1", "1E+2", "100", "1.50", "5e-324", "1.7976931348623157e308", "0e999"] {
            let n: f64 = good.parse().expect("a number");
            assert_eq!(exact_f64(good).map(f64::to_bits), Some(n.to_bits()), "{good}");
        }
        for bad in
            ["1e400", "-1e400", "1e-400", "9007199254740993", "0.12345678901234567890", "1.5e99999999999"]
        {
            assert_eq!(exact_f64(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_asked_does_not_depend_on_order() {
        let (text, one, real) = (BoundValue::Text("1".into()), BoundValue::Integer(1), BoundValue::Real(1.0));
        assert_eq!(
            encode_named(vec![("a", &text), ("b", &one)]),
            encode_named(vec![("b", &one), ("a", &text)])
        );
        let others = [
            encode_named(vec![("a", &text)]),
            encode_named(vec![("a", &one)]),
            encode_named(vec![("a", &real)]),
            encode_named(vec![("a", &BoundValue::Null)]),
            encode_named(vec![("b", &text)]),
            encode_named(vec![("a", &text), ("b", &BoundValue::Null)]),
            encode_named(vec![]),
        ];
        for (at, other) in others.iter().enumerate() {
            assert!(!others[..at].contains(other), "{at}");
        }
    }
}
