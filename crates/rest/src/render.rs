//! Builds a request from its template and values.
//!
//! Scheme, host and path of the source are pinned: a value in a path stays inside its segment, a value in a query is one value, a
//! header has the characters that headers have, and their number depends on the template alone.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::request::{
    BodyFormat, BodyTemplate, Method, PathTemplate, PatternPart, RequestTemplate, TextPattern,
};
use contract::{DataType, ValueRef};
use json::Json;
use url::Url;

/// A value with its type.
#[derive(Debug, Clone, Copy)]
pub struct TypedValue<'a> {
    pub data_type: DataType,
    pub value: ValueRef<'a>,
}

/// The values of a request, by name.
pub trait Values {
    fn get(&self, name: &str) -> Option<TypedValue<'_>>;
}

/// The values of parameters, in their order.
pub struct Parameters<'a> {
    pub names: &'a [(String, DataType)],
    pub values: &'a [ValueRef<'a>],
}

impl Values for Parameters<'_> {
    fn get(&self, name: &str) -> Option<TypedValue<'_>> {
        let at = self.names.iter().position(|(one, _)| one == name)?;
        Some(TypedValue { data_type: self.names[at].1, value: *self.values.get(at)? })
    }
}

/// No values.
pub struct NoValues;

impl Values for NoValues {
    fn get(&self, _name: &str) -> Option<TypedValue<'_>> {
        None
    }
}

/// A request that can be sent.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    pub method: Method,
    /// What all requests of one template have in common: `GET /orders/{id}`.
    pub endpoint: String,
    pub url: Url,
    /// Those of the template, in its order; then the idempotency header and the type of the body.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether sending it again is harmless.
    pub is_repeatable: bool,
}

/// Why a value cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderError {
    /// The name of the value, if one is at fault.
    pub name: Option<String>,
    /// A clause for the caller.
    pub reason: String,
}

impl RenderError {
    fn new(name: &str, reason: impl Into<String>) -> Self {
        Self { name: Some(name.to_owned()), reason: reason.into() }
    }
}

/// Longer URLs are refused by many servers.
const URL_BYTES_MAX: usize = 16 << 10;
const HEADER_BYTES_MAX: usize = 8 << 10;

/// Renders a request of a tool. `base` is the URL of the source.
pub fn request(
    base: &Url,
    template: &RequestTemplate,
    values: &dyn Values,
    idempotency_key: Option<&str>,
) -> Result<HttpRequest, RenderError> {
    let mut url = path(base, &template.path, values)?;
    for (name, pattern) in &template.query {
        for value in query_values(pattern, values)? {
            append_query(&mut url, name, &value);
        }
    }
    check_url(base, &url)?;
    let mut headers = Vec::with_capacity(template.headers.len() + 2);
    for (name, pattern) in &template.headers {
        headers.push((name.clone(), header(pattern, values)?));
    }
    if let (Some(name), Some(key)) = (&template.idempotency_header, idempotency_key) {
        headers.push((name.clone(), key.to_owned()));
    }
    let mut body_bytes = Vec::new();
    if let Some(template_body) = &template.body {
        let content_type = match template.body_format {
            BodyFormat::Json => {
                if !body(&mut body_bytes, template_body, &template.nullable, values)? {
                    body_bytes.extend_from_slice(b"null");
                }
                "application/json"
            }
            BodyFormat::Form => {
                form(&mut body_bytes, template_body, values)?;
                "application/x-www-form-urlencoded"
            }
        };
        headers.push(("Content-Type".to_owned(), content_type.to_owned()));
    }
    let is_repeatable = template.method.is_idempotent()
        || (template.idempotency_header.is_some() && idempotency_key.is_some());
    let endpoint = endpoint(template.method, &template.path);
    Ok(HttpRequest { method: template.method, endpoint, url, headers, body: body_bytes, is_repeatable })
}

/// The endpoint that requests of a template are sent to.
pub(crate) fn endpoint(method: Method, path: &PathTemplate) -> String {
    format!("{} {path}", method.as_str())
}

/// The URL of a path below `base`.
pub fn path(base: &Url, template: &PathTemplate, values: &dyn Values) -> Result<Url, RenderError> {
    let mut text = base.as_str().trim_end_matches('/').to_owned();
    for segment in &template.segments {
        text.push('/');
        let mut plain = String::new();
        for part in segment.parts() {
            match part {
                PatternPart::Literal(literal) => plain.push_str(literal),
                PatternPart::Value { name, .. } => plain.push_str(&path_value(name, values)?),
            }
        }
        // A literal beside a value may complete a segment of dots.
        if is_dot_segment(&plain) {
            let name = segment.names().next().unwrap_or_default();
            return Err(RenderError::new(name, DOTS_REASON));
        }
        encode_segment(&mut text, &plain);
    }
    if template.has_final_slash {
        text.push('/');
    }
    let url = Url::parse(&text).map_err(|error| RenderError { name: None, reason: error.to_string() })?;
    check_url(base, &url)?;
    Ok(url)
}

const DOTS_REASON: &str = "a value in a path cannot be empty or a segment of dots";

fn path_value(name: &str, values: &dyn Values) -> Result<String, RenderError> {
    let value = values.get(name).filter(|value| value.value != ValueRef::Null);
    let text = value
        .map(plain_text)
        .ok_or_else(|| RenderError::new(name, "is part of the path, and has no value"))?;
    // A server may decode a segment before it splits the path, once or twice.
    let mut decoded = text.clone();
    for _ in 0..3 {
        if decoded.is_empty() || decoded.split(['/', '\\']).any(is_dot_segment) {
            return Err(RenderError::new(name, DOTS_REASON));
        }
        decoded = percent_decode(&decoded);
    }
    if text.contains(char::is_control) {
        return Err(RenderError::new(name, "a value in a path cannot have control characters"));
    }
    Ok(text)
}

fn is_dot_segment(text: &str) -> bool {
    matches!(text, "." | "..")
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, hex) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes everything that is not unreserved (RFC 3986, 2.3).
fn encode_segment(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            // Allowed in a segment, and literal in many templates: `/search:run`.
            b':' | b',' | b'@' | b'$' | b'=' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

/// Appends a parameter to the query. Name and value are encoded.
pub fn append_query(url: &mut Url, name: &str, value: &str) {
    url.query_pairs_mut().append_pair(name, value);
}

/// The values of a parameter: none if it has no value, several for an array.
fn query_values(pattern: &TextPattern, values: &dyn Values) -> Result<Vec<String>, RenderError> {
    let Some((name, style)) = pattern.single_value() else {
        return text(pattern, values).map(|text| text.into_iter().collect());
    };
    let Some(value) = values.get(name).filter(|value| value.value != ValueRef::Null) else {
        return Ok(Vec::new());
    };
    if value.data_type != DataType::Json {
        return Ok(vec![plain_text(value)]);
    }
    let ValueRef::Text(source) = value.value else { return Ok(vec![plain_text(value)]) };
    let parsed = Json::parse(source).map_err(|_| RenderError::new(name, "is not valid JSON"))?;
    let doc = parsed.to_doc();
    let root = doc.root();
    if root.kind() != json::NodeKind::Array {
        return scalar(&root).map(|text| vec![text]).ok_or_else(|| RenderError::new(name, ARRAY_REASON));
    }
    let items: Option<Vec<String>> = root.elements().map(|item| scalar(&item)).collect();
    let items = items.ok_or_else(|| RenderError::new(name, ARRAY_REASON))?;
    let Some(separator) = style.separator() else { return Ok(items) };
    if let Some(item) = items.iter().find(|item| item.contains(separator)) {
        let reason = format!("`{}` contains `{separator}`, which separates the items", item.escape_debug());
        return Err(RenderError::new(name, reason));
    }
    Ok(vec![items.join(&separator.to_string())])
}

const ARRAY_REASON: &str = "must be a text, a number, a boolean or an array of them";

fn scalar(node: &json::Node<'_>) -> Option<String> {
    match node.kind() {
        json::NodeKind::String => node.str().map(|text| text.into_owned()),
        json::NodeKind::Array | json::NodeKind::Object | json::NodeKind::Null => None,
        _ => Some(node.raw().to_owned()),
    }
}

/// The text of a pattern; `None` if one of its values is NULL.
fn text(pattern: &TextPattern, values: &dyn Values) -> Result<Option<String>, RenderError> {
    let mut out = String::new();
    for part in pattern.parts() {
        match part {
            PatternPart::Literal(literal) => out.push_str(literal),
            PatternPart::Value { name, .. } => match values.get(name) {
                Some(value) if value.value != ValueRef::Null => out.push_str(&plain_text(value)),
                Some(_) => return Ok(None),
                None => return Err(RenderError::new(name, "is not an argument of this request")),
            },
        }
    }
    Ok(Some(out))
}

fn header(pattern: &TextPattern, values: &dyn Values) -> Result<String, RenderError> {
    let text = text(pattern, values)?.unwrap_or_default();
    let name = || pattern.names().next().unwrap_or_default();
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(RenderError::new(
            name(),
            "can only have visible ASCII characters and blanks, because it is sent in a header",
        ));
    }
    if text.len() > HEADER_BYTES_MAX {
        return Err(RenderError::new(
            name(),
            format!("exceeds the limit of {HEADER_BYTES_MAX} bytes for a header"),
        ));
    }
    Ok(text)
}

/// Writes a body as JSON. Returns false, and writes nothing, for a value that is NULL.
fn body(
    out: &mut Vec<u8>,
    template: &BodyTemplate,
    nullable: &[String],
    values: &dyn Values,
) -> Result<bool, RenderError> {
    match template {
        BodyTemplate::Literal(literal) => out.extend_from_slice(literal.as_bytes()),
        BodyTemplate::Value(name) => match values.get(name) {
            Some(value) if value.value != ValueRef::Null => write_json(out, value),
            Some(_) if nullable.contains(name) => out.extend_from_slice(b"null"),
            Some(_) => return Ok(false),
            None => return Err(RenderError::new(name, "is not an argument of this request")),
        },
        BodyTemplate::Text(pattern) => match text(pattern, values)? {
            Some(text) => json::write::string(out, &text),
            None => return Ok(false),
        },
        BodyTemplate::Object(members) => {
            out.push(b'{');
            let mut is_first = true;
            for (name, member) in members {
                let before = out.len();
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                json::write::string(out, name);
                out.push(b':');
                if !body(out, member, nullable, values)? {
                    out.truncate(before);
                    is_first = out.last() == Some(&b'{');
                }
            }
            out.push(b'}');
        }
        BodyTemplate::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                if !body(out, item, nullable, values)? {
                    out.extend_from_slice(b"null");
                }
            }
            out.push(b']');
        }
    }
    Ok(true)
}

fn form(out: &mut Vec<u8>, template: &BodyTemplate, values: &dyn Values) -> Result<(), RenderError> {
    let mut serializer = url::form_urlencoded::Serializer::new(String::new());
    if let BodyTemplate::Object(members) = template {
        for (name, member) in members {
            let texts = match member {
                BodyTemplate::Value(value) => {
                    query_values(&TextPattern::value(value, contract::request::ArrayStyle::Repeated), values)?
                }
                BodyTemplate::Text(pattern) => text(pattern, values)?.into_iter().collect(),
                BodyTemplate::Literal(literal) => {
                    let doc = Json::parse(literal).map(|json| json.to_doc());
                    doc.ok().and_then(|doc| scalar(&doc.root())).into_iter().collect()
                }
                BodyTemplate::Object(_) | BodyTemplate::Array(_) => {
                    return Err(RenderError { name: None, reason: "a form has no nested values".to_owned() });
                }
            };
            texts.iter().for_each(|text| {
                serializer.append_pair(name, text);
            });
        }
    }
    out.extend_from_slice(serializer.finish().as_bytes());
    Ok(())
}

/// A value as people write it: in a path, a query or a header.
pub fn plain_text(value: TypedValue<'_>) -> String {
    match (value.data_type, value.value) {
        (_, ValueRef::Null) => String::new(),
        (DataType::Boolean, ValueRef::Integer(n)) => (n != 0).to_string(),
        (_, ValueRef::Text(text)) => text.to_owned(),
        (_, ValueRef::Integer(n)) => n.to_string(),
        (_, ValueRef::Real(n)) => n.to_string(),
        (_, ValueRef::Blob(bytes)) => STANDARD.encode(bytes),
    }
}

/// A value as JSON of its type.
pub fn write_json(out: &mut Vec<u8>, value: TypedValue<'_>) {
    match (value.data_type, value.value) {
        (_, ValueRef::Null) => out.extend_from_slice(b"null"),
        (DataType::Boolean, ValueRef::Integer(n)) => out.extend_from_slice((n != 0).to_string().as_bytes()),
        (_, ValueRef::Integer(n)) => json::write::integer(out, n),
        (_, ValueRef::Real(n)) => json::write::number(out, n),
        (
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number | DataType::Json,
            ValueRef::Text(text),
        ) => match Json::parse(text) {
            Ok(json) => out.extend_from_slice(json.as_str().as_bytes()),
            Err(_) => json::write::string(out, text),
        },
        (_, ValueRef::Text(text)) => json::write::string(out, text),
        (_, ValueRef::Blob(bytes)) => json::write::string(out, &STANDARD.encode(bytes)),
    }
}

/// Whether a URL has the scheme and host of `base`, and is below its path.
pub fn is_below(base: &Url, url: &Url) -> bool {
    let prefix = base.path().trim_end_matches('/');
    let rest = url.path().strip_prefix(prefix);
    url.scheme() == base.scheme()
        && url.host() == base.host()
        && url.port_or_known_default() == base.port_or_known_default()
        && url.username().is_empty()
        && url.password().is_none()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check_url(base: &Url, url: &Url) -> Result<(), RenderError> {
    let reason = if !is_below(base, url) {
        "the request would leave the URL of the source".to_owned()
    } else if url.as_str().len() > URL_BYTES_MAX {
        format!("the URL of the request exceeds the limit of {URL_BYTES_MAX} bytes")
    } else {
        return Ok(());
    };
    Err(RenderError { name: None, reason })
}

#[cfg(test)]
mod tests;
