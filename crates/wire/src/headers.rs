//! The HTTP headers that repeat parts of the body, and the encoding of their values.
//!
//! 2026-07-28, Server Validation: headers that differ from the body MUST be rejected. Otherwise a proxy could
//! route by the header while the server executes the body.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::{Decimal, Node, NodeKind};

/// One header field of a request. A repeated field has no usable value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderField<'a> {
    #[default]
    Absent,
    Single(&'a [u8]),
    Repeated,
}

/// The headers that are compared with the body. A pipe has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Headers<'a> {
    pub version: HeaderField<'a>,
    pub method: HeaderField<'a>,
    pub name: HeaderField<'a>,
}

const BASE64_PREFIX: &[u8] = b"=?base64?";
const BASE64_SUFFIX: &[u8] = b"?=";

/// Decodes a header value: plain text, or base64 between `=?base64?` and `?=`.
///
/// `None` if the base64 is invalid, or if the value has characters that a header must not have.
pub fn decode_header_value(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inner = value.strip_prefix(BASE64_PREFIX).and_then(|rest| rest.strip_suffix(BASE64_SUFFIX));
    match inner {
        // Strict: standard alphabet, required padding, no trailing bits.
        Some(inner) => STANDARD.decode(inner).ok().map(Cow::Owned),
        // RFC 9110: visible ASCII, space and tab.
        None => value.iter().all(|c| matches!(c, 0x20..=0x7e | b'\t')).then_some(Cow::Borrowed(value)),
    }
}

/// Checks that a header equals a string of the body.
#[inline]
pub fn check_matches_body(header: HeaderField<'_>, body: &str) -> Result<(), &'static str> {
    match header {
        HeaderField::Absent => Err("is missing"),
        HeaderField::Repeated => Err("was sent more than once"),
        // The common case. HTTP libraries already reject ASCII that a header must not have.
        HeaderField::Single(value)
            if value == body.as_bytes() && value.is_ascii() && !value.starts_with(BASE64_PREFIX) =>
        {
            Ok(())
        }
        HeaderField::Single(value) => match decode_header_value(value) {
            None => Err("is malformed"),
            Some(decoded) if *decoded == *body.as_bytes() => Ok(()),
            Some(_) => Err("differs from the body"),
        },
    }
}

/// Checks that an `Mcp-Param-*` header equals the argument it repeats.
pub fn check_matches_argument(
    header: HeaderField<'_>,
    argument: Option<Node<'_>>,
) -> Result<(), &'static str> {
    let argument = argument.filter(|node| node.kind() != NodeKind::Null);
    match (header, argument) {
        (HeaderField::Repeated, _) => Err("was sent more than once"),
        (HeaderField::Absent, None) => Ok(()),
        (HeaderField::Absent, Some(_)) => Err("is missing"),
        (HeaderField::Single(_), None) => Err("has no argument in the body"),
        (HeaderField::Single(value), Some(node)) => {
            let decoded = decode_header_value(value).ok_or("is malformed")?;
            let is_equal = match node.kind() {
                NodeKind::String => node.str().is_some_and(|s| *decoded == *s.as_bytes()),
                NodeKind::True => *decoded == *b"true",
                NodeKind::False => *decoded == *b"false",
                // "SHOULD compare the header value and the body value numerically": 42.0 is 42.
                NodeKind::Number => numbers_equal(&decoded, node.raw()),
                NodeKind::Null | NodeKind::Array | NodeKind::Object => false,
            };
            if is_equal { Ok(()) } else { Err("differs from the body") }
        }
    }
}

/// Compares digits. As `f64`, neighbouring numbers above 2^53 would be equal.
fn numbers_equal(header: &[u8], body: &str) -> bool {
    if header == body.as_bytes() {
        return true;
    }
    let header = std::str::from_utf8(header).ok().and_then(Decimal::parse);
    header.is_some() && header == Decimal::parse(body)
}
