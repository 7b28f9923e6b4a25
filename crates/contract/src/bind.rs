//! Binds the arguments of a call, already validated against the schema, to the values that a source takes.
//!
//! A value to compare with may have several spellings. A value to store is accepted only if it will read back exactly
//! as the caller sent it.

mod aggregate;
mod filters;
mod links;

use std::borrow::Cow;
use std::ops::Deref;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::{Node, NodeKind as Json, exact_f64};
use spile_core::{ArgumentErrorKind, ToolError, ToolErrorCode};

use crate::contract::{Argument, Collection, Request, Statement, VERSION_FIELD, Versioning};
use crate::data_type::DataType;
use crate::field::Field;
use crate::humanize::{join_truncated, pluralize};
use crate::infer::{self, SAFE_INTEGER_MAX};
use crate::nearest::nearest;
use crate::order;
use crate::source::Sort;
use crate::value::{Value, ValueRef};

pub use aggregate::{
    AGGREGATE_ARGUMENTS, AggregateArguments, BoundGroup, BoundMeasure, COUNT, aggregate, filter_argument,
    has_date_units, is_comparable, is_groupable, is_measurable, split_measure,
};
pub(crate) use filters::{BoundFilter, bind_bound};
pub use filters::{BoundFilters, FILTER_VALUES_MAX, FilterSuffix, LinkedFilter};
pub use links::Scope;
pub(crate) use links::{countable, followable};

pub const QUERY_CHARS_MAX: usize = 1000;
pub(crate) const EMPTY_QUERY: &str = "is empty; give at least one search term";
/// Further terms are ignored.
pub const SEARCH_TERMS_MAX: usize = 16;
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 200;

/// The value of an argument, in the form that a source takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum BoundValue<'a> {
    #[default]
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

impl BoundValue<'_> {
    pub fn into_owned(self) -> BoundValue<'static> {
        match self {
            Self::Null => BoundValue::Null,
            Self::Text(text) => BoundValue::Text(Cow::Owned(text.into_owned())),
            Self::Integer(n) => BoundValue::Integer(n),
            Self::Real(n) => BoundValue::Real(n),
            Self::Blob(bytes) => BoundValue::Blob(bytes),
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

/// The parts of a key. Nearly every key has one; that case needs no allocation.
#[derive(Debug)]
pub enum BoundKey<'a> {
    Single([BoundValue<'a>; 1]),
    Composite(Vec<BoundValue<'a>>),
}

impl Default for BoundKey<'_> {
    fn default() -> Self {
        Self::Composite(Vec::new())
    }
}

impl<'a> Deref for BoundKey<'a> {
    type Target = [BoundValue<'a>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Single(part) => part,
            Self::Composite(parts) => parts,
        }
    }
}

/// Binds the key of a `get`, part by part.
#[inline]
pub fn key<'a>(collection: &Collection, arguments: Option<Node<'a>>) -> Result<BoundKey<'a>, Box<ToolError>> {
    let bind = |field: &Field| match arguments.and_then(|arguments| arguments.get(&field.name)) {
        Some(node) => bind_comparable(field, &field.name, node),
        None => Err(invalid_argument(
            &field.name,
            ArgumentErrorKind::MissingRequired,
            format!("`{}` is required", field.name),
        )),
    };
    let mut fields = collection.key_fields();
    match (fields.next(), fields.next()) {
        (Some(only), None) => Ok(BoundKey::Single([bind(only)?])),
        _ => collection.key_fields().map(bind).collect::<Result<_, _>>().map(BoundKey::Composite),
    }
}

/// The links whose rows a `get` includes, by index.
#[inline]
pub fn include(collection: &Collection, arguments: Option<Node<'_>>) -> Result<Vec<usize>, Box<ToolError>> {
    if collection.links.is_empty() {
        return Ok(Vec::new());
    }
    match arguments.and_then(|arguments| arguments.get("include")) {
        Some(node) => links::bind_include(collection, node),
        None => Ok(Vec::new()),
    }
}

/// A list can be sorted by so many fields.
pub const SORT_FIELDS_MAX: usize = 4;

/// The bound arguments of a `list`.
#[derive(Debug, Default)]
pub struct ListArguments<'a> {
    pub filters: BoundFilters<'a>,
    pub sort: Vec<BoundSort>,
    pub limit: Option<usize>,
    pub projection: Option<Projection>,
    pub cursor: Option<Cow<'a, str>>,
    /// The links whose rows are included, by index.
    pub include: Vec<usize>,
}

/// A field to sort by: of the collection, or behind links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundSort {
    /// The links to follow, by index: of the collection, then of the one that it leads to.
    pub path: Vec<usize>,
    /// By a field of the last collection.
    pub sort: Sort,
}

/// The fields that a caller selects, as sorted indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    pub fields: Vec<usize>,
    /// Whether [`VERSION_FIELD`] is selected too.
    pub include_version: bool,
}

impl ListArguments<'_> {
    /// Filters and sort order in bytes: equal for lists with the same rows in the same order.
    pub fn order_bytes(&self) -> Vec<u8> {
        order_bytes(&self.filters, &self.sort, None)
    }
}

fn order_bytes(filters: &BoundFilters<'_>, sort: &[BoundSort], query: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let mut field = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    filters.write_bytes(&mut field);
    for BoundSort { path, sort } in sort {
        path.iter().for_each(|link| field(b'l', &(*link as u64).to_be_bytes()));
        field(if sort.descending { b'd' } else { b'a' }, &(sort.column as u64).to_be_bytes());
    }
    if let Some(query) = query {
        field(b'q', query.as_bytes());
    }
    out
}

/// Binds the arguments of a list with filters and sort orders on these fields.
pub fn list<'a>(
    scope: Scope<'_>,
    filters: &[usize],
    sorts: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<ListArguments<'a>, Box<ToolError>> {
    let collection = scope.collection();
    let mut bound = ListArguments::default();
    for (name, node) in arguments.into_iter().flat_map(|arguments| arguments.members()) {
        let name = name.str().unwrap_or_default();
        match &*name {
            "cursor" => bound.cursor = node.str(),
            "limit" => bound.limit = parse_integer(node).and_then(|n| usize::try_from(n).ok()),
            "sort" => bound.sort = parse_sort(scope, sorts, node)?,
            "fields" => bound.projection = Some(parse_projection(collection, node)?),
            "include" => bound.include = links::bind_include(collection, node)?,
            _ => bound.filters.bind(scope, filters, &name, node)?,
        }
    }
    Ok(bound)
}

/// The bound arguments of a search.
#[derive(Debug)]
pub struct SearchArguments<'a> {
    query: Cow<'a, str>,
    pub filters: BoundFilters<'a>,
    pub limit: Option<usize>,
    pub projection: Option<Projection>,
    pub cursor: Option<Cow<'a, str>>,
    /// The links whose rows are included, by index.
    pub include: Vec<usize>,
}

impl SearchArguments<'_> {
    /// The distinct terms of the query. There is at least one: the query is not blank.
    pub fn terms(&self) -> Vec<&str> {
        let mut terms: Vec<&str> = Vec::new();
        for term in self.query.split_whitespace() {
            if terms.len() < SEARCH_TERMS_MAX && !terms.contains(&term) {
                terms.push(term);
            }
        }
        terms
    }

    /// Query and filters in bytes: equal for searches with the same rows in the same order.
    pub fn order_bytes(&self) -> Vec<u8> {
        order_bytes(&self.filters, &[], Some(&self.query))
    }
}

/// Binds the arguments of a search with filters on these fields.
pub fn search<'a>(
    scope: Scope<'_>,
    filters: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<SearchArguments<'a>, Box<ToolError>> {
    let collection = scope.collection();
    let mut bound = SearchArguments {
        query: Cow::Borrowed(""),
        filters: BoundFilters::default(),
        limit: None,
        projection: None,
        cursor: None,
        include: Vec::new(),
    };
    for (name, node) in arguments.into_iter().flat_map(|arguments| arguments.members()) {
        let name = name.str().unwrap_or_default();
        match &*name {
            "query" => bound.query = node.str().unwrap_or_default(),
            "cursor" => bound.cursor = node.str(),
            "limit" => bound.limit = parse_integer(node).and_then(|n| usize::try_from(n).ok()),
            "fields" => bound.projection = Some(parse_projection(collection, node)?),
            "include" if !collection.links.is_empty() => {
                bound.include = links::bind_include(collection, node)?;
            }
            _ => bound.filters.bind(scope, filters, &name, node)?,
        }
    }
    // Unicode has blanks that the schema's pattern does not know.
    if bound.query.trim().is_empty() {
        return Err(invalid_argument(
            "query",
            ArgumentErrorKind::OutOfRange,
            format!("`query` {EMPTY_QUERY}"),
        ));
    }
    Ok(bound)
}

/// The bound arguments of a write.
#[derive(Debug)]
pub struct WriteArguments<'a> {
    /// Without parts for a new row.
    pub key: BoundKey<'a>,
    /// By their indexes in the collection's fields.
    pub values: Vec<(usize, BoundValue<'a>)>,
    /// The version of the row that the caller expects.
    pub expected_version: Option<BoundValue<'a>>,
    pub options: WriteOptions<'a>,
}

/// The arguments that every writing tool has.
#[derive(Debug, Default)]
pub struct WriteOptions<'a> {
    pub idempotency_key: Option<Cow<'a, str>>,
    pub dry_run: bool,
}

fn write_options(arguments: Option<Node<'_>>) -> WriteOptions<'_> {
    let argument = |name: &str| arguments.and_then(|arguments| arguments.get(name));
    WriteOptions {
        idempotency_key: argument("idempotency_key").and_then(|node| node.str()),
        dry_run: argument("dry_run").and_then(|node| node.bool()).unwrap_or(false),
    }
}

/// Binds a new row. Its version field, if there is one, starts at 1.
pub fn create<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<WriteArguments<'a>, Box<ToolError>> {
    let mut values = bind_fields(collection, fields, arguments)?;
    if let Some(Versioning::Field(at)) = collection.write_policy.as_ref().map(|writes| writes.versioning) {
        values.push((at, BoundValue::Integer(1)));
    }
    Ok(WriteArguments {
        key: BoundKey::default(),
        values,
        expected_version: None,
        options: write_options(arguments),
    })
}

/// Binds new values for some fields of one row.
pub fn update<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<WriteArguments<'a>, Box<ToolError>> {
    let values = bind_fields(collection, fields, arguments)?;
    if values.is_empty() {
        let names: Vec<&str> = fields.iter().map(|at| collection.fields[*at].name.as_str()).collect();
        let message = format!("no field to update was given; set at least one of: {}", names.join(", "));
        let error = ToolError {
            reason: Some(ArgumentErrorKind::MissingRequired),
            ..ToolError::new(ToolErrorCode::InvalidArguments, message)
        };
        return Err(Box::new(error));
    }
    Ok(WriteArguments { values, ..delete(collection, arguments)? })
}

/// Binds the key and expected version of one row.
pub fn delete<'a>(
    collection: &Collection,
    arguments: Option<Node<'a>>,
) -> Result<WriteArguments<'a>, Box<ToolError>> {
    let argument = arguments.and_then(|arguments| arguments.get("expected_version"));
    let expected = match (argument, collection.write_policy.as_ref().map(|writes| writes.versioning)) {
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

/// Binds the arguments of a statement, in the order of its parameters.
pub fn statement<'a>(
    statement: &Statement,
    arguments: Option<Node<'a>>,
) -> Result<(Vec<BoundValue<'a>>, WriteOptions<'a>), Box<ToolError>> {
    bind_arguments(&statement.arguments, statement.shape.writes, arguments)
}

/// The arguments of a request, in the order of its parameters.
pub fn request<'a>(
    request: &Request,
    arguments: Option<Node<'a>>,
) -> Result<(Vec<BoundValue<'a>>, WriteOptions<'a>), Box<ToolError>> {
    bind_arguments(&request.arguments, request.shape.writes, arguments)
}

fn bind_arguments<'a>(
    declared: &[Argument],
    writes: bool,
    arguments: Option<Node<'a>>,
) -> Result<(Vec<BoundValue<'a>>, WriteOptions<'a>), Box<ToolError>> {
    let mut bound = Vec::with_capacity(declared.len());
    for argument in declared {
        let name = &argument.field.name;
        // `null` for an optional argument means that it is omitted.
        let node = arguments.and_then(|arguments| arguments.get(name));
        bound.push(match node.filter(|node| argument.required || node.kind() != Json::Null) {
            Some(node) => bind_stored(&argument.field, name, node)?,
            None => BoundValue::from(&argument.default),
        });
    }
    Ok((bound, if writes { write_options(arguments) } else { WriteOptions::default() }))
}

/// The request without its idempotency key, in canonical form: equal bytes mean the same request, whatever the order
/// of its arguments and the spelling of its numbers.
pub fn canonical_arguments(declared: &[Argument], arguments: &[BoundValue<'_>]) -> Vec<u8> {
    let names = declared.iter().map(|argument| argument.field.name.as_str());
    encode_named(names.zip(arguments).collect())
}

impl WriteArguments<'_> {
    /// The same for a write of one row.
    pub fn canonical_bytes(&self, collection: &Collection) -> Vec<u8> {
        let name = |at: usize| collection.fields[at].name.as_str();
        let values = encode_named(self.values.iter().map(|(at, value)| (name(*at), value)).collect());
        let key = encode_named(
            collection.key_fields().map(|field| field.name.as_str()).zip(self.key.iter()).collect(),
        );
        let expected = encode_named(self.expected_version.iter().map(|value| ("", value)).collect());
        let mut out = Vec::new();
        for part in [key, values, expected] {
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

/// The length prefix keeps different sequences from having the same bytes.
fn push_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn bind_fields<'a>(
    collection: &Collection,
    fields: &[usize],
    arguments: Option<Node<'a>>,
) -> Result<Vec<(usize, BoundValue<'a>)>, Box<ToolError>> {
    let bind = |at: &usize| {
        let field = &collection.fields[*at];
        let node = arguments.and_then(|arguments| arguments.get(&field.name))?;
        Some(bind_stored(field, &field.name, node).map(|value| (*at, value)))
    };
    fields.iter().filter_map(bind).collect()
}

fn parse_projection(collection: &Collection, node: Node<'_>) -> Result<Projection, Box<ToolError>> {
    let mut projection = Projection { fields: Vec::new(), include_version: false };
    let names = text_list("fields", node)?;
    if names.is_empty() {
        let message = "`fields` is empty; give at least one field, or omit it".to_owned();
        return Err(invalid_argument("fields", ArgumentErrorKind::OutOfRange, message));
    }
    for name in names {
        let group = collection.columns_in_group(&name).filter(|columns| !columns.is_empty());
        match field_index(collection, &name) {
            Some(at) => projection.fields.push(at),
            None if let Some(columns) = group => projection.fields.extend(columns),
            None if name == VERSION_FIELD && collection.has_version_field() => {
                projection.include_version = true;
            }
            None => {
                let all = collection.fields.iter().map(|field| field.name.as_str());
                return Err(unknown_field("fields", &name, all));
            }
        }
    }
    projection.fields.sort_unstable();
    projection.fields.dedup();
    Ok(projection)
}

fn field_index(collection: &Collection, name: &str) -> Option<usize> {
    collection.fields.iter().position(|field| field.name == name)
}

/// A text, or an array of texts.
fn text_list(argument: &str, node: Node<'_>) -> Result<Vec<String>, Box<ToolError>> {
    let text = |node: Node<'_>| {
        node.str().map(Cow::into_owned).ok_or_else(|| {
            let message = format!("`{argument}` must be a name or an array of names");
            invalid_argument(argument, ArgumentErrorKind::WrongType, message)
        })
    };
    match node.kind() {
        Json::Array => node.elements().map(text).collect(),
        _ => Ok(vec![text(node)?]),
    }
}

fn unknown_field<'n>(argument: &str, name: &str, known: impl Iterator<Item = &'n str>) -> Box<ToolError> {
    let known: Vec<&str> = known.collect();
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("expected one of {}", join_truncated(&known, filters::SHOWN_MAX)),
    };
    let message = format!("unknown field `{name}` in `{argument}`; {help}");
    invalid_argument(argument, ArgumentErrorKind::NotAllowed, message)
}

/// `plan`, `-plan` for descending, `customer.country` behind a link, or an array of them.
fn parse_sort(scope: Scope<'_>, sorts: &[usize], node: Node<'_>) -> Result<Vec<BoundSort>, Box<ToolError>> {
    let mut parsed: Vec<BoundSort> = Vec::new();
    for by in text_list("sort", node)? {
        let (name, descending) = match by.strip_prefix('-') {
            Some(name) => (name, true),
            None => (&*by, false),
        };
        let (path, column) = match name.contains('.') {
            false => (Vec::new(), sorted_field(scope.collection(), sorts, name)?),
            true => {
                let at = links::follow(scope, "sort", name)?;
                let target = at.scope.collection();
                let fields: Vec<usize> =
                    (0..target.fields.len()).filter(|field| is_comparable(&target.fields[*field])).collect();
                (at.path, sorted_field(target, &fields, at.rest)?)
            }
        };
        if parsed.iter().all(|known| (&known.path, known.sort.column) != (&path, column)) {
            parsed.push(BoundSort { path, sort: Sort { column, descending } });
        }
    }
    if parsed.len() > SORT_FIELDS_MAX {
        let message = format!("`sort` has {} fields; the limit is {SORT_FIELDS_MAX}", parsed.len());
        return Err(invalid_argument("sort", ArgumentErrorKind::TooLong, message));
    }
    Ok(parsed)
}

/// One of these fields, by its name.
fn sorted_field(collection: &Collection, sorts: &[usize], name: &str) -> Result<usize, Box<ToolError>> {
    let found = field_index(collection, name);
    if let Some(column) = found.filter(|column| sorts.contains(column)) {
        return Ok(column);
    }
    let names: Vec<&str> = sorts.iter().map(|at| &*collection.fields[*at].name).collect();
    if found.is_none() {
        return Err(unknown_field("sort", name, names.into_iter()));
    }
    let message = format!(
        "`{name}` cannot be sorted by; the {} that can are {}",
        pluralize(names.len() as u64, "column"),
        join_truncated(&names, filters::SHOWN_MAX)
    );
    Err(invalid_argument("sort", ArgumentErrorKind::NotAllowed, message))
}

pub(crate) fn bind_comparable<'a>(
    field: &Field,
    name: &str,
    node: Node<'a>,
) -> Result<BoundValue<'a>, Box<ToolError>> {
    // A value of another type is returned as text, so a filter compares it as text.
    if let (true, Some(text)) = (field.mixed, node.str()) {
        return Ok(match field.data_type {
            DataType::Int64 => text.parse().map_or(BoundValue::Text(text), BoundValue::Integer),
            _ => BoundValue::Text(text),
        });
    }
    bind_typed(field, name, node)
}

/// A value of the field's type, to compare with.
fn bind_typed<'a>(field: &Field, name: &str, node: Node<'a>) -> Result<BoundValue<'a>, Box<ToolError>> {
    let value = match field.data_type {
        DataType::Integer => parse_integer(node).map(BoundValue::Integer),
        DataType::Int64 => match node.kind() {
            Json::Number => parse_integer(node),
            _ => node.str().and_then(|text| text.parse().ok()),
        }
        .map(BoundValue::Integer),
        DataType::Number => exact_f64(node.raw()).map(BoundValue::Real),
        DataType::Boolean => node.bool().map(|yes| BoundValue::Integer(yes.into())),
        // A number is taken by its digits.
        DataType::Decimal => match node.kind() {
            Json::Number => Some(Cow::Borrowed(node.raw())),
            _ => node.str(),
        }
        .filter(|text| order::decimal_parts(text).is_some())
        .map(BoundValue::Text),
        DataType::Date => {
            node.str().filter(|text| infer::matches_type(DataType::Date, text)).map(BoundValue::Text)
        }
        DataType::Timestamp | DataType::LocalTimestamp => {
            let is_time = |text: &Cow<'_, str>| {
                infer::matches_type(field.data_type, text) || infer::matches_type(DataType::Date, text)
            };
            node.str().filter(is_time).map(BoundValue::Text)
        }
        DataType::Text | DataType::Json | DataType::Blob => node.str().map(BoundValue::Text),
    };
    value.ok_or_else(|| {
        let expected = match field.data_type {
            DataType::Integer => "must be an integer",
            DataType::Int64 => "must be a 64-bit integer, such as `-12`",
            DataType::Decimal => "must be a decimal, such as `-12.50`",
            DataType::Number => "must be a number that a 64-bit float holds exactly",
            DataType::Boolean => "must be true or false",
            DataType::Date => "must be a date such as `2026-02-11`",
            DataType::Timestamp => {
                "must be a date, or a date and time with a time zone, such as `2026-02-11T10:00:00Z`"
            }
            DataType::LocalTimestamp => {
                "must be a date, or a date and time without a time zone, such as `2026-02-11T10:00:00`"
            }
            DataType::Text => "must be a string",
            DataType::Json | DataType::Blob => "is not a valid value for this field",
        };
        invalid_argument(name, ArgumentErrorKind::OutOfRange, format!("`{name}` {expected}"))
    })
}

/// Binds a value to store, if it will read back exactly as the caller sent it.
pub(crate) fn bind_stored<'a>(
    field: &Field,
    name: &str,
    node: Node<'a>,
) -> Result<BoundValue<'a>, Box<ToolError>> {
    if node.kind() == Json::Null && field.nullable {
        return Ok(BoundValue::Null);
    }
    let invalid = |kind, problem: &str| invalid_argument(name, kind, format!("`{name}` {problem}"));
    if field.mixed && node.kind() == Json::String && field.data_type.is_scalar() {
        return bind_comparable(field, name, node);
    }
    match field.data_type {
        DataType::Text | DataType::Boolean => bind_comparable(field, name, node),
        DataType::Integer => match parse_integer(node) {
            Some(n) if (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n) => Ok(BoundValue::Integer(n)),
            Some(_) | None => Err(invalid(
                ArgumentErrorKind::OutOfRange,
                "must be an integer between -(2^53 - 1) and 2^53 - 1",
            )),
        },
        DataType::Int64 => match node.str().filter(|text| infer::matches_type(DataType::Int64, text)) {
            Some(text) => text
                .parse()
                .map(BoundValue::Integer)
                .map_err(|_| invalid(ArgumentErrorKind::OutOfRange, "exceeds 64 bits")),
            None => Err(invalid(
                ArgumentErrorKind::OutOfRange,
                "must be a 64-bit integer without leading zeros, such as `-12`",
            )),
        },
        DataType::Number => match exact_f64(node.raw()) {
            Some(n) => Ok(BoundValue::Real(n)),
            None => Err(invalid(
                ArgumentErrorKind::OutOfRange,
                "cannot be stored exactly: it is too large or has too many digits",
            )),
        },
        DataType::Decimal | DataType::Date | DataType::Timestamp | DataType::LocalTimestamp => {
            match node.str().filter(|text| infer::matches_type(field.data_type, text)) {
                Some(text) => Ok(BoundValue::Text(text)),
                None => Err(invalid(ArgumentErrorKind::BadFormat, expected_format(field.data_type))),
            }
        }
        DataType::Json => {
            let mut out = Vec::with_capacity(node.raw().len());
            node.write_compact(&mut out);
            Ok(BoundValue::Text(Cow::Owned(json::Json::from_written_bytes(out).as_str().to_owned())))
        }
        DataType::Blob => match node.str().and_then(|text| STANDARD.decode(text.as_bytes()).ok()) {
            Some(bytes) => Ok(BoundValue::Blob(bytes)),
            None => Err(invalid(
                ArgumentErrorKind::BadFormat,
                "must be base64 (RFC 4648, with padding, on one line)",
            )),
        },
    }
}

fn expected_format(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Decimal => "must be a decimal without leading zeros, such as `-12.50`",
        DataType::Date => "must be a date such as `2026-02-11`",
        DataType::Timestamp => "must be a date and time with a time zone, such as `2026-02-11T10:00:00Z`",
        DataType::LocalTimestamp => {
            "must be a date and time without a time zone, such as `2026-02-11T10:00:00`"
        }
        DataType::Text
        | DataType::Integer
        | DataType::Int64
        | DataType::Number
        | DataType::Boolean
        | DataType::Json
        | DataType::Blob => "is not a valid value for this field",
    }
}

/// JSON has one type of number: `42.0` is the integer 42.
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
    use super::{BoundValue, encode_named, parse_integer};

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
            let doc = json::parse(text.into(), &json::ParseLimits::default()).expect("JSON");
            assert_eq!(parse_integer(doc.root()), expected, "{text}");
        }
    }

    #[test]
    fn encode_named_ignores_the_order_of_arguments() {
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
