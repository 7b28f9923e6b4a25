//! The HTTP headers that mirror the body, and how a value travels in one.
//!
//! 2026-07-28, Server Validation: headers that differ from the body MUST be refused, so that nobody routes
//! by one and executes by the other.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json::{Kind, Node, ScanLimits};

/// A header as it was found. Two of the same name are never one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Head<'a> {
    #[default]
    Absent,
    One(&'a [u8]),
    Twice,
}

/// The headers that a message may be judged by. A pipe has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heads<'a> {
    pub version: Head<'a>,
    pub method: Head<'a>,
    pub name: Head<'a>,
}

const PREFIX: &[u8] = b"=?base64?";
const SUFFIX: &[u8] = b"?=";

/// The value that a header carries: plain, or base64 between its two marks.
///
/// `None` if it is marked as base64 and is not, or holds what a header must not.
pub fn decode(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inner = value.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    match inner {
        // Strict: the standard alphabet, padding where it belongs, no stray bits.
        Some(inner) => STANDARD.decode(inner).ok().map(Cow::Owned),
        // RFC 9110: visible ASCII, space and tab.
        None => value.iter().all(|c| matches!(c, 0x20..=0x7e | b'\t')).then_some(Cow::Borrowed(value)),
    }
}

/// Whether a header says the same as a string of the body.
#[inline]
pub fn mirrors(head: Head<'_>, body: &str) -> Result<(), &'static str> {
    match head {
        Head::Absent => Err("is missing"),
        Head::Twice => Err("was sent twice"),
        // By far the most frequent; what a header must not hold beside non-ASCII, no HTTP library lets in.
        Head::One(value) if value == body.as_bytes() && value.is_ascii() && !value.starts_with(PREFIX) => {
            Ok(())
        }
        Head::One(value) => match decode(value) {
            None => Err("is malformed"),
            Some(decoded) if *decoded == *body.as_bytes() => Ok(()),
            Some(_) => Err("differs from the body"),
        },
    }
}

/// Whether an `Mcp-Param-*` header says the same as the argument it mirrors.
pub fn param_mirrors(head: Head<'_>, argument: Option<Node<'_>>) -> Result<(), &'static str> {
    let argument = argument.filter(|node| node.kind() != Kind::Null);
    match (head, argument) {
        (Head::Twice, _) => Err("was sent twice"),
        (Head::Absent, None) => Ok(()),
        (Head::Absent, Some(_)) => Err("is missing"),
        (Head::One(_), None) => Err("has no argument in the body"),
        (Head::One(value), Some(node)) => {
            let decoded = decode(value).ok_or("is malformed")?;
            let same = match node.kind() {
                Kind::String => node.str().is_some_and(|s| *decoded == *s.as_bytes()),
                Kind::True => *decoded == *b"true",
                Kind::False => *decoded == *b"false",
                // "SHOULD compare the header value and the body value numerically": 42.0 is 42.
                Kind::Number => same_number(&decoded, node.raw()),
                Kind::Null | Kind::Array | Kind::Object => false,
            };
            if same { Ok(()) } else { Err("differs from the body") }
        }
    }
}

/// Digit by digit: through a float, neighbours beyond 2^53 would be one number.
fn same_number(header: &[u8], body: &str) -> bool {
    if header == body.as_bytes() {
        return true;
    }
    let Ok(doc) = json::scan(header.to_vec(), &ScanLimits { depth_max: 0, slots_max: 1 }) else {
        return false;
    };
    let number = doc.root();
    // A number, with no white space around it.
    if number.kind() != Kind::Number || number.raw().len() != header.len() {
        return false;
    }
    match (decimal(number.raw()), decimal(body)) {
        (Some(header), Some(body)) => header == body,
        _ => false,
    }
}

/// A JSON number as its sign, its digits without zeros around them, and the power of ten of the last one.
///
/// `None` if the power is beyond all reason.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
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
