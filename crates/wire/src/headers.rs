//! The HTTP headers that mirror the body, and how a value travels in one.
//!
//! 2026-07-28, Server Validation: headers that differ from the body MUST be refused, so that nobody routes
//! by one and executes by the other.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::{Node, NodeKind, ScanLimits};

/// A header as it was found. Two of the same name are never one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderField<'a> {
    #[default]
    Absent,
    Single(&'a [u8]),
    Repeated,
}

/// The headers that a message may be judged by. A pipe has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Headers<'a> {
    pub version: HeaderField<'a>,
    pub method: HeaderField<'a>,
    pub name: HeaderField<'a>,
}

const BASE64_PREFIX: &[u8] = b"=?base64?";
const BASE64_SUFFIX: &[u8] = b"?=";

/// The value that a header carries: plain, or base64 between its two marks.
///
/// `None` if it is marked as base64 and is not, or holds what a header must not.
pub fn decode_header_value(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inner = value.strip_prefix(BASE64_PREFIX).and_then(|rest| rest.strip_suffix(BASE64_SUFFIX));
    match inner {
        // Strict: the standard alphabet, padding where it belongs, no stray bits.
        Some(inner) => STANDARD.decode(inner).ok().map(Cow::Owned),
        // RFC 9110: visible ASCII, space and tab.
        None => value.iter().all(|c| matches!(c, 0x20..=0x7e | b'\t')).then_some(Cow::Borrowed(value)),
    }
}

/// Whether a header says the same as a string of the body.
#[inline]
pub fn check_matches_body(head: HeaderField<'_>, body: &str) -> Result<(), &'static str> {
    match head {
        HeaderField::Absent => Err("is missing"),
        HeaderField::Repeated => Err("was sent twice"),
        // By far the most frequent; what a header must not hold beside non-ASCII, no HTTP library lets in.
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

/// Whether an `Mcp-Param-*` header says the same as the argument it mirrors.
pub fn check_matches_argument(head: HeaderField<'_>, argument: Option<Node<'_>>) -> Result<(), &'static str> {
    let argument = argument.filter(|node| node.kind() != NodeKind::Null);
    match (head, argument) {
        (HeaderField::Repeated, _) => Err("was sent twice"),
        (HeaderField::Absent, None) => Ok(()),
        (HeaderField::Absent, Some(_)) => Err("is missing"),
        (HeaderField::Single(_), None) => Err("has no argument in the body"),
        (HeaderField::Single(value), Some(node)) => {
            let decoded = decode_header_value(value).ok_or("is malformed")?;
            let same = match node.kind() {
                NodeKind::String => node.str().is_some_and(|s| *decoded == *s.as_bytes()),
                NodeKind::True => *decoded == *b"true",
                NodeKind::False => *decoded == *b"false",
                // "SHOULD compare the header value and the body value numerically": 42.0 is 42.
                NodeKind::Number => numbers_equal(&decoded, node.raw()),
                NodeKind::Null | NodeKind::Array | NodeKind::Object => false,
            };
            if same { Ok(()) } else { Err("differs from the body") }
        }
    }
}

/// Digit by digit: through a float, neighbours beyond 2^53 would be one number.
fn numbers_equal(header: &[u8], body: &str) -> bool {
    if header == body.as_bytes() {
        return true;
    }
    let Ok(doc) = json::scan(header.to_vec(), &ScanLimits { depth_max: 0, slots_max: 1 }) else {
        return false;
    };
    let number = doc.root();
    // A number, with no white space around it.
    if number.kind() != NodeKind::Number || number.raw().len() != header.len() {
        return false;
    }
    match (parse_decimal(number.raw()), parse_decimal(body)) {
        (Some(header), Some(body)) => header == body,
        _ => false,
    }
}

/// A JSON number as its sign, its digits without zeros around them, and the power of ten of the last one.
///
/// `None` if the power is beyond all reason.
fn parse_decimal(number: &str) -> Option<(bool, String, i64)> {
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, power) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let power =
        i64::from(power.parse::<i32>().ok()?) - fraction.len() as i64 + (digits.len() - kept.len()) as i64;
    match kept.trim_start_matches('0') {
        "" => Some((false, String::new(), 0)),
        kept => Some((negative, kept.to_owned(), power)),
    }
}
