//! From the arguments of a call to what a source is asked. Arguments have been checked against the schema.
//!
//! What is compared may be written in more than one way; what is kept is taken only if it will be told again as it
//! was said.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use call::{Failure, Problem, Reason};
use json::{Kind as Json, Node};

use crate::cell::{Cell, Value};
use crate::contract::{Collection, Meaning, Statement, VERSION, Versioning};
use crate::field::Field;
use crate::infer::{self, EXACT_MAX};
use crate::kind::Kind;
use crate::source::{Filter, Sort, Test};

pub const QUERY_CHARS_MAX: usize = 1000;
/// More words than these make no search any better.
pub const WORDS_MAX: usize = 16;
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 200;

/// The value of an argument, as a source compares it.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg<'a> {
    Null,
    Text(Cow<'a, str>),
    Integer(i64),
    Real(f64),
    Blob(Vec<u8>),
}

impl Arg<'_> {
    pub fn as_cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Text(text) => Cell::Text(text),
            Self::Integer(n) => Cell::Integer(*n),
            Self::Real(n) => Cell::Real(*n),
            Self::Blob(bytes) => Cell::Blob(bytes),
        }
    }
}

impl From<&Value> for Arg<'_> {
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
pub fn key<'a>(collection: &Collection, arguments: Option<Node<'a>>) -> Result<Vec<Arg<'a>>, Box<Problem>> {
    collection
        .key_fields()
        .map(|field| match arguments.and_then(|arguments| arguments.get(&field.name)) {
            Some(node) => arg(field, &field.name, node),
            None => {
                Err(refused(&field.name, Reason::MissingRequired, format!("`{}` is required", field.name)))
            }
        })
        .collect()
}

/// What a `list` is asked for.
#[derive(Debug, Default)]
pub struct Listing<'a> {
    pub filters: Vec<(usize, Test, Arg<'a>)>,
    pub sort: Option<Sort>,
    pub limit: Option<usize>,
    pub fields: Option<Shown>,
    pub cursor: Option<Cow<'a, str>>,
}

/// The fields that a caller wants to see, by place and in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub fields: Vec<usize>,
    /// Whether the record's [`VERSION`] is wanted too.
    pub version: bool,
}

impl Listing<'_> {
    pub fn filters(&self) -> Vec<Filter<'_>> {
        self.filters
            .iter()
            .map(|(column, test, value)| Filter { column: *column, test: *test, value: value.as_cell() })
            .collect()
    }
}

pub fn listing<'a>(
    collection: &Collection,
    meanings: &[(String, Meaning)],
    arguments: Option<Node<'a>>,
) -> Result<Listing<'a>, Box<Problem>> {
    let mut listing = Listing::default();
    for (name, node) in arguments.into_iter().flat_map(|arguments| arguments.members()) {
        let name = name.str().unwrap_or_default();
        let Some((_, meaning)) = meanings.iter().find(|(known, _)| *known == name) else { continue };
        match meaning {
            Meaning::Cursor => listing.cursor = node.str(),
            Meaning::Limit => listing.limit = whole(node).and_then(|n| usize::try_from(n).ok()),
            Meaning::Sort => listing.sort = node.str().and_then(|by| sort(collection, &by)),
            Meaning::Fields => listing.fields = Some(shown(collection, node)),
            Meaning::Filter { column, test } => {
                let value = arg(&collection.fields[*column], &name, node)?;
                listing.filters.push((*column, *test, value));
            }
        }
    }
    Ok(listing)
}

/// What a search is asked for.
#[derive(Debug)]
pub struct Searching<'a> {
    query: Cow<'a, str>,
    pub limit: Option<usize>,
    pub fields: Option<Shown>,
}

impl Searching<'_> {
    /// The different words of the query: at least one, for the schema wants a character that is none between words.
    pub fn words(&self) -> Vec<&str> {
        let mut words: Vec<&str> = Vec::new();
        for word in self.query.split_whitespace() {
            if words.len() < WORDS_MAX && !words.contains(&word) {
                words.push(word);
            }
        }
        words
    }
}

pub fn searching<'a>(
    collection: &Collection,
    arguments: Option<Node<'a>>,
) -> Result<Searching<'a>, Box<Problem>> {
    let said = |name: &str| arguments.and_then(|arguments| arguments.get(name));
    let query = said("query").and_then(|node| node.str()).unwrap_or_default();
    // What Unicode calls a blank and the schema's pattern does not.
    if query.trim().is_empty() {
        return Err(refused("query", Reason::OutOfRange, "`query`: has no words".into()));
    }
    Ok(Searching {
        query,
        limit: said("limit").and_then(whole).and_then(|n| usize::try_from(n).ok()),
        fields: said("fields").map(|node| shown(collection, node)),
    })
}

/// What is to be written.
#[derive(Debug)]
pub struct Writing<'a> {
    /// Empty for a new record.
    pub key: Vec<Arg<'a>>,
    /// By their places in the collection's fields.
    pub cells: Vec<(usize, Arg<'a>)>,
    /// The state that the caller means, if they say so.
    pub expected: Option<Arg<'a>>,
    pub once: Once<'a>,
}

/// What makes a repetition harmless, and whether it is only a try.
#[derive(Debug, Default)]
pub struct Once<'a> {
    pub idempotency_key: Option<Cow<'a, str>>,
    pub dry_run: bool,
}

fn once(arguments: Option<Node<'_>>) -> Once<'_> {
    let said = |name: &str| arguments.and_then(|arguments| arguments.get(name));
    Once {
        idempotency_key: said("idempotency_key").and_then(|node| node.str()),
        dry_run: said("dry_run").and_then(|node| node.bool()).unwrap_or(false),
    }
}

/// A new record. Its version, where a field says it, begins with 1.
pub fn creation<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<Writing<'a>, Box<Problem>> {
    let mut cells = settings(collection, fields, arguments)?;
    if let Some(Versioning::Field(at)) = collection.writes.as_ref().map(|writes| writes.version) {
        cells.push((at, Arg::Integer(1)));
    }
    Ok(Writing { key: Vec::new(), cells, expected: None, once: once(arguments) })
}

/// Other values for some fields of one record.
pub fn change<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<Writing<'a>, Box<Problem>> {
    let cells = settings(collection, fields, arguments)?;
    if cells.is_empty() {
        let names: Vec<&str> = fields.iter().map(|at| collection.fields[*at].name.as_str()).collect();
        let message = format!("nothing to change is said; there are: {}", names.join(", "));
        let problem = Problem {
            reason: Some(Reason::MissingRequired),
            ..Problem::new(Failure::InvalidArguments, message)
        };
        return Err(Box::new(problem));
    }
    Ok(Writing { cells, ..deletion(collection, arguments)? })
}

/// One record that is to go.
pub fn deletion<'a>(
    collection: &Collection,
    arguments: Option<Node<'a>>,
) -> Result<Writing<'a>, Box<Problem>> {
    let said = arguments.and_then(|arguments| arguments.get("expected_version"));
    let expected = match (said, collection.writes.as_ref().map(|writes| writes.version)) {
        (None, _) => None,
        (Some(node), Some(Versioning::Field(at))) => {
            Some(kept(&collection.fields[at], "expected_version", node)?)
        }
        (Some(node), Some(Versioning::Digest) | None) => node.str().map(Arg::Text),
    };
    Ok(Writing { key: key(collection, arguments)?, cells: Vec::new(), expected, once: once(arguments) })
}

/// The arguments of a statement, in the order of its parameters.
pub fn statement<'a>(
    statement: &Statement,
    arguments: Option<Node<'a>>,
) -> Result<(Vec<Arg<'a>>, Once<'a>), Box<Problem>> {
    let mut bound = Vec::with_capacity(statement.arguments.len());
    for argument in &statement.arguments {
        let name = &argument.field.name;
        // `null` for what may be left out is as if it were.
        let said = arguments.and_then(|arguments| arguments.get(name));
        bound.push(match said.filter(|node| argument.required || node.kind() != Json::Null) {
            Some(node) => kept(&argument.field, name, node)?,
            None => Arg::from(&argument.default),
        });
    }
    Ok((bound, if statement.shape.writes { once(arguments) } else { Once::default() }))
}

/// What a statement is asked for, whatever key it is asked with: two that are the same here mean the same, however
/// their numbers are written and in whatever order they come.
pub fn asked(statement: &Statement, arguments: &[Arg<'_>]) -> Vec<u8> {
    let names = statement.arguments.iter().map(|argument| argument.field.name.as_str());
    named(names.zip(arguments).collect())
}

impl Writing<'_> {
    /// The same for one record.
    pub fn asked(&self, collection: &Collection) -> Vec<u8> {
        let name = |at: usize| collection.fields[at].name.as_str();
        let cells = named(self.cells.iter().map(|(at, value)| (name(*at), value)).collect());
        let key = named(collection.key_fields().map(|field| field.name.as_str()).zip(&self.key).collect());
        let expected = named(self.expected.iter().map(|value| ("", value)).collect());
        let mut out = Vec::new();
        for part in [key, cells, expected] {
            put(&mut out, &part);
        }
        out
    }
}

fn named(mut values: Vec<(&str, &Arg<'_>)>) -> Vec<u8> {
    values.sort_by_key(|(name, _)| *name);
    let mut out = Vec::new();
    for (name, value) in values {
        put(&mut out, name.as_bytes());
        let (tag, bytes): (u8, Cow<'_, [u8]>) = match value {
            Arg::Null => (0, Cow::Borrowed(&[])),
            Arg::Text(text) => (1, Cow::Borrowed(text.as_bytes())),
            Arg::Integer(n) => (2, Cow::Owned(n.to_be_bytes().to_vec())),
            Arg::Real(n) => (3, Cow::Owned(n.to_bits().to_be_bytes().to_vec())),
            Arg::Blob(bytes) => (4, Cow::Borrowed(bytes)),
        };
        out.push(tag);
        put(&mut out, &bytes);
    }
    out
}

/// With its length, so that no two make a third.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn settings<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<Vec<(usize, Arg<'a>)>, Box<Problem>> {
    let said = |at: &usize| {
        let field = &collection.fields[*at];
        let node = arguments.and_then(|arguments| arguments.get(&field.name))?;
        Some(kept(field, &field.name, node).map(|value| (*at, value)))
    };
    fields.iter().filter_map(said).collect()
}

fn shown(collection: &Collection, node: Node<'_>) -> Shown {
    let mut fields: Vec<usize> = node.elements().filter_map(|name| place(collection, &name.str()?)).collect();
    fields.sort_unstable();
    Shown { fields, version: node.elements().any(|name| name.is(VERSION)) }
}

fn place(collection: &Collection, name: &str) -> Option<usize> {
    collection.fields.iter().position(|field| field.name == name)
}

/// `plan` or, from the last to the first, `-plan`.
fn sort(collection: &Collection, by: &str) -> Option<Sort> {
    let (name, descending) = match by.strip_prefix('-') {
        Some(name) => (name, true),
        None => (by, false),
    };
    place(collection, name).map(|column| Sort { column, descending })
}

fn arg<'a>(field: &Field, name: &str, node: Node<'a>) -> Result<Arg<'a>, Box<Problem>> {
    // A stray is asked for as it was told: as text.
    if let (true, Some(text)) = (field.mixed, node.str()) {
        return Ok(match field.kind {
            Kind::Int64 => text.parse().map_or(Arg::Text(text), Arg::Integer),
            _ => Arg::Text(text),
        });
    }
    let value = match field.kind {
        Kind::Integer => whole(node).map(Arg::Integer),
        Kind::Int64 => node.str().and_then(|text| text.parse().ok()).map(Arg::Integer),
        Kind::Number => node.raw().parse().ok().map(Arg::Real),
        Kind::Boolean => node.bool().map(|yes| Arg::Integer(yes.into())),
        Kind::Text
        | Kind::Decimal
        | Kind::Date
        | Kind::Timestamp
        | Kind::LocalTimestamp
        | Kind::Json
        | Kind::Blob => node.str().map(Arg::Text),
    };
    value.ok_or_else(|| {
        refused(name, Reason::OutOfRange, format!("`{name}`: not a value that this field can have"))
    })
}

/// A value that is to be kept, if it can be told again exactly as it is said here.
fn kept<'a>(field: &Field, name: &str, node: Node<'a>) -> Result<Arg<'a>, Box<Problem>> {
    if node.kind() == Json::Null && field.nullable {
        return Ok(Arg::Null);
    }
    let bad = |reason, why: &str| refused(name, reason, format!("`{name}`: {why}"));
    if field.mixed && node.kind() == Json::String && field.kind.is_scalar() {
        return arg(field, name, node);
    }
    match field.kind {
        Kind::Text | Kind::Boolean => arg(field, name, node),
        Kind::Integer => match whole(node) {
            Some(n) if (-EXACT_MAX..=EXACT_MAX).contains(&n) => Ok(Arg::Integer(n)),
            Some(_) | None => {
                Err(bad(Reason::OutOfRange, "a whole number between -(2^53 - 1) and 2^53 - 1 is wanted"))
            }
        },
        Kind::Int64 => match node.str().filter(|text| infer::is(Kind::Int64, text)) {
            Some(text) => text.parse().map(Arg::Integer).map_err(|_| bad(Reason::OutOfRange, "too large")),
            None => {
                Err(bad(Reason::OutOfRange, "a whole number of 64 bits is wanted, without zeros before it"))
            }
        },
        Kind::Number => match exact(node.raw()) {
            Some(n) => Ok(Arg::Real(n)),
            None => Err(bad(Reason::OutOfRange, "cannot be kept exactly: too large, or too many digits")),
        },
        Kind::Decimal | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp => {
            match node.str().filter(|text| infer::is(field.kind, text)) {
                Some(text) => Ok(Arg::Text(text)),
                None => Err(bad(Reason::BadFormat, how(field.kind))),
            }
        }
        Kind::Json => {
            let mut out = Vec::with_capacity(node.raw().len());
            node.compact_into(&mut out);
            Ok(Arg::Text(Cow::Owned(json::Json::written(out).as_str().to_owned())))
        }
        Kind::Blob => match node.str().and_then(|text| STANDARD.decode(text.as_bytes()).ok()) {
            Some(bytes) => Ok(Arg::Blob(bytes)),
            None => Err(bad(Reason::BadFormat, "not base64 (RFC 4648, with padding, on one line)")),
        },
    }
}

fn how(kind: Kind) -> &'static str {
    match kind {
        Kind::Decimal => "not a decimal such as `-12.50`, without zeros before it",
        Kind::Date => "not a date such as `2026-02-11`",
        Kind::Timestamp => "not a moment with a zone such as `2026-02-11T10:00:00Z`",
        Kind::LocalTimestamp => "not a date and time without a zone such as `2026-02-11T10:00:00`",
        Kind::Text | Kind::Integer | Kind::Int64 | Kind::Number | Kind::Boolean | Kind::Json | Kind::Blob => {
            "not a value that this field can have"
        }
    }
}

/// The binary fraction that prints as these digits, if there is one: what has more digits would lose some.
fn exact(raw: &str) -> Option<f64> {
    let n: f64 = raw.parse().ok().filter(|n: &f64| n.is_finite())?;
    (digits(raw)? == digits(&format!("{n:e}"))?).then_some(n)
}

/// A number as JSON writes it, as its digits and where they stand; however it is written, the same for the same.
fn digits(raw: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = raw.split_once(['e', 'E']).unwrap_or((raw, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{}{fraction}", whole.trim_start_matches('-'));
    let kept = all.trim_end_matches('0');
    let shifted = (all.len() - kept.len()) as i64 - fraction.len() as i64;
    let kept = kept.trim_start_matches('0').to_owned();
    if kept.is_empty() {
        return Some((kept, 0));
    }
    Some((kept, exponent.parse::<i64>().ok()?.checked_add(shifted)?))
}

/// JSON knows one kind of number: `42.0` is the integer 42.
fn whole(node: Node<'_>) -> Option<i64> {
    if node.kind() != Json::Number {
        return None;
    }
    let raw = node.raw();
    raw.parse().ok().or_else(|| {
        let n: f64 = raw.parse().ok()?;
        (n.fract() == 0.0 && n.abs() < 9e15).then_some(n as i64)
    })
}

fn refused(field: &str, reason: Reason, message: String) -> Box<Problem> {
    Box::new(Problem {
        field: Some(field.into()),
        reason: Some(reason),
        ..Problem::new(Failure::InvalidArguments, message)
    })
}

#[cfg(test)]
mod tests {
    use super::{Arg, exact, named};

    #[test]
    fn a_number_is_kept_if_no_digit_of_it_is_lost() {
        for good in ["0", "-0.0", "0.1", "1E+2", "100", "1.50", "5e-324", "1.7976931348623157e308", "0e999"] {
            let n: f64 = good.parse().expect("a number");
            assert_eq!(exact(good).map(f64::to_bits), Some(n.to_bits()), "{good}");
        }
        for bad in
            ["1e400", "-1e400", "1e-400", "9007199254740993", "0.12345678901234567890", "1.5e99999999999"]
        {
            assert_eq!(exact(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_asked_does_not_depend_on_order() {
        let (text, one, real) = (Arg::Text("1".into()), Arg::Integer(1), Arg::Real(1.0));
        assert_eq!(named(vec![("a", &text), ("b", &one)]), named(vec![("b", &one), ("a", &text)]));
        let others = [
            named(vec![("a", &text)]),
            named(vec![("a", &one)]),
            named(vec![("a", &real)]),
            named(vec![("a", &Arg::Null)]),
            named(vec![("b", &text)]),
            named(vec![("a", &text), ("b", &Arg::Null)]),
            named(vec![]),
        ];
        for (at, other) in others.iter().enumerate() {
            assert!(!others[..at].contains(other), "{at}");
        }
    }
}
