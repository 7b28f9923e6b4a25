//! HTTP requests as an author declares them: a method, a path, and where values go.
//!
//! Only the places of values are decided here, once, when the manifest is parsed. A value never changes the structure of
//! a request: the crate `rest` encodes each one for the place where it goes.

mod pattern;

use std::fmt;

use crate::data_type::DataType;
use crate::source::TableShape;

pub use pattern::{ArrayStyle, PatternError, PatternPart, TextPattern};

/// The methods that a request can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// RFC 9110, 9.2.1: a safe method only reads.
    pub fn is_safe(self) -> bool {
        self == Self::Get
    }

    /// RFC 9110, 9.2.2: repeating the request has no further effect.
    pub fn is_idempotent(self) -> bool {
        match self {
            Self::Get | Self::Put | Self::Delete => true,
            Self::Post | Self::Patch => false,
        }
    }

    pub fn has_body(self) -> bool {
        match self {
            Self::Post | Self::Put | Self::Patch => true,
            Self::Get | Self::Delete => false,
        }
    }
}

/// `/orders/{order_id}/refund`: segments below the URL of a source. A value stays inside its segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathTemplate {
    pub segments: Vec<TextPattern>,
    /// Whether the path ends with a `/`, which some servers insist on.
    pub has_final_slash: bool,
}

/// Why a text is not the path of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathError {
    Pattern(PatternError),
    NoSlash,
    EmptySegment,
    DotSegment,
    /// A `?`, a `#` or another character that cannot be in a path.
    Character(char),
}

impl PathTemplate {
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let Some(rest) = text.strip_prefix('/') else {
            return if text.is_empty() { Ok(Self::default()) } else { Err(PathError::NoSlash) };
        };
        let (rest, has_final_slash) = match rest.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        if rest.is_empty() {
            return Ok(Self { segments: Vec::new(), has_final_slash: true });
        }
        let mut segments = Vec::new();
        for segment in rest.split('/') {
            let pattern = TextPattern::parse(segment).map_err(PathError::Pattern)?;
            match pattern.literal() {
                Some("") => return Err(PathError::EmptySegment),
                Some("." | "..") => return Err(PathError::DotSegment),
                _ => {}
            }
            let literals = pattern.parts().iter().filter_map(PatternPart::literal);
            let is_invalid = |c: &char| matches!(c, '?' | '#' | '\\' | '%') || c.is_control();
            if let Some(c) = literals.flat_map(str::chars).find(is_invalid) {
                return Err(PathError::Character(c));
            }
            segments.push(pattern);
        }
        Ok(Self { segments, has_final_slash })
    }

    /// The names of its values, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().flat_map(TextPattern::names)
    }
}

/// As it is written in a manifest.
impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            write!(f, "/{segment}")?;
        }
        f.write_str(if self.has_final_slash { "/" } else { "" })
    }
}

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyTemplate {
    /// JSON text without values.
    Literal(String),
    /// A value, as JSON of its type.
    Value(String),
    /// A JSON string with values inside it.
    Text(TextPattern),
    /// A member whose value is NULL is left out.
    Object(Vec<(String, BodyTemplate)>),
    Array(Vec<BodyTemplate>),
}

impl BodyTemplate {
    /// Adds the names of all values.
    pub fn collect_names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::Literal(_) => {}
            Self::Value(name) => names.push(name),
            Self::Text(pattern) => names.extend(pattern.names()),
            Self::Object(members) => members.iter().for_each(|(_, value)| value.collect_names(names)),
            Self::Array(items) => items.iter().for_each(|item| item.collect_names(names)),
        }
    }
}

impl BodyTemplate {
    /// Whether a value of this name, and not a text with it, is a part of the body.
    pub fn has_value(&self, wanted: &str) -> bool {
        match self {
            Self::Literal(_) | Self::Text(_) => false,
            Self::Value(name) => name == wanted,
            Self::Object(members) => members.iter().any(|(_, value)| value.has_value(wanted)),
            Self::Array(items) => items.iter().any(|item| item.has_value(wanted)),
        }
    }
}

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyFormat {
    #[default]
    Json,
    /// `application/x-www-form-urlencoded`: the members of an object.
    Form,
}

/// A request with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTemplate {
    pub method: Method,
    pub path: PathTemplate,
    /// A parameter whose value is NULL is left out.
    pub query: Vec<(String, TextPattern)>,
    /// A header whose value is NULL is sent empty, so that their number never depends on values.
    pub headers: Vec<(String, TextPattern)>,
    pub body: Option<BodyTemplate>,
    pub body_format: BodyFormat,
    /// The header by which the API recognizes a repeated request.
    pub idempotency_header: Option<String>,
    /// Arguments that callers may give as `null`, which the body then has. NULL leaves the members of others out.
    pub nullable: Vec<String>,
    /// A JSON pointer to the text that says why a request was refused, which callers may read.
    pub error_pointer: Option<String>,
}

impl RequestTemplate {
    pub fn new(method: Method, path: PathTemplate) -> Self {
        Self {
            method,
            path,
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            body_format: BodyFormat::default(),
            idempotency_header: None,
            nullable: Vec::new(),
            error_pointer: None,
        }
    }

    /// The names of all values, in order of first use.
    pub fn names(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.path.names().collect();
        all.extend(self.query.iter().chain(&self.headers).flat_map(|(_, pattern)| pattern.names()));
        if let Some(body) = &self.body {
            body.collect_names(&mut all);
        }
        let mut names: Vec<&str> = Vec::new();
        for name in all {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Whether sending it again is harmless.
    pub fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.idempotency_header.is_some()
    }
}

/// A request of a tool, as its source sends it.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestShape {
    pub template: RequestTemplate,
    /// The names and types of its arguments.
    pub parameters: Vec<(String, DataType)>,
    pub writes: bool,
    pub result: ResponseShape,
    /// The result's columns. No key: rows are in the order of the response.
    pub table: TableShape,
    pub timeout_ms: Option<u64>,
}

/// Where the rows of a response are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseShape {
    /// One object at this JSON pointer.
    Object(String),
    /// An array of objects at this JSON pointer.
    Objects(String),
    /// The value at this JSON pointer, whatever it is, is the only column: NULL if there is none.
    Value(String),
}
