//! From the arguments of a call to what a source is asked. Arguments have been checked against the schema.

use std::borrow::Cow;

use call::{Failure, Problem, Reason};
use json::{Kind as Json, Node};

use crate::cell::Cell;
use crate::contract::{Collection, Meaning};
use crate::field::Field;
use crate::kind::Kind;
use crate::source::{Filter, Sort, Test};

/// The value of an argument, as a source compares it.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    Real(f64),
}

impl Arg<'_> {
    pub fn as_cell(&self) -> Cell<'_> {
        match self {
            Self::Text(text) => Cell::Text(text),
            Self::Integer(n) => Cell::Integer(*n),
            Self::Real(n) => Cell::Real(*n),
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
    pub fields: Option<Vec<usize>>,
    pub cursor: Option<Cow<'a, str>>,
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
            Meaning::Fields => {
                let chosen = node.elements().filter_map(|name| place(collection, &name.str()?));
                let mut chosen: Vec<usize> = chosen.collect();
                chosen.sort_unstable();
                listing.fields = Some(chosen);
            }
            Meaning::Filter { column, test } => {
                let value = arg(&collection.fields[*column], &name, node)?;
                listing.filters.push((*column, *test, value));
            }
        }
    }
    Ok(listing)
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
