//! Headers that mirror the body: any text survives the round trip, and a header matches the body only if it has
//! exactly the same value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::ParseLimits;
use wire::frame::sse::{self, EventId};
use wire::headers::{HeaderField, check_matches_argument, check_matches_body, decode_header_value};

use super::FuzzInput;

pub fn headers(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let header = input.bytes();
    let mut argument = String::new();
    input.json(1, &mut argument);
    let text = String::from_utf8_lossy(input.rest()).into_owned();

    check_decode(data);
    check_decode(header);
    check_roundtrip(&text);
    check_comparison(header, &text);
    check_number_mirror(header, &argument);
    check_event_ids(&text);
}

/// A header is read literally or as base64, and as nothing else.
fn check_decode(header: &[u8]) {
    match decode_header_value(header) {
        Some(value) if *value == *header => assert!(header.iter().all(|c| matches!(c, 0x20..=0x7e | b'\t'))),
        Some(value) => assert_eq!(format!("=?base64?{}?=", STANDARD.encode(value)).as_bytes(), header),
        None => {}
    }
}

/// 2026-07-28, Value Encoding, as a client encodes it.
pub(super) fn encode_header(text: &str) -> String {
    let visible = text.bytes().all(|c| matches!(c, 0x20..=0x7e | b'\t'));
    let marked = text.starts_with("=?base64?") && text.ends_with("?=");
    if visible && !marked && text.trim_ascii() == text {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text))
    }
}

fn check_roundtrip(text: &str) {
    let header = encode_header(text);
    assert_eq!(decode_header_value(header.as_bytes()).as_deref(), Some(text.as_bytes()));
    let head = HeaderField::Single(header.as_bytes());
    assert_eq!(check_matches_body(head, text), Ok(()));
    assert!(check_matches_body(head, &format!("{text}x")).is_err());
    for head in [HeaderField::Absent, HeaderField::Repeated] {
        assert!(check_matches_body(head, text).is_err());
    }
    let mut argument = Vec::new();
    json::write::string(&mut argument, text);
    let doc = json::parse(argument, &ParseLimits::default()).expect("a string");
    assert_eq!(check_matches_argument(head, Some(doc.root())), Ok(()));
    assert!(check_matches_argument(head, None).is_err());
    assert!(check_matches_argument(HeaderField::Absent, Some(doc.root())).is_err());
}

fn check_comparison(header: &[u8], text: &str) {
    // HTTP libraries reject control characters.
    if !header.iter().any(u8::is_ascii_control)
        && check_matches_body(HeaderField::Single(header), text).is_ok()
    {
        assert_eq!(decode_header_value(header).as_deref(), Some(text.as_bytes()));
    }
}

/// A number in a header matches an argument only if it is the same number, digit by digit.
fn check_number_mirror(header: &[u8], argument: &str) {
    let doc = json::parse(argument.as_bytes().to_vec(), &ParseLimits::default()).expect("made to be JSON");
    let node = doc.root();
    let taken = check_matches_argument(HeaderField::Single(header), Some(node)).is_ok();
    let decoded = decode_header_value(header).map(|value| String::from_utf8_lossy(&value).into_owned());
    match node.kind() {
        json::NodeKind::Number if taken => {
            let decoded = decoded.expect("taken, so readable");
            assert!(
                decimal_parts(&decoded).is_some() && decimal_parts(&decoded) == decimal_parts(node.raw()),
                "`{decoded}` is not {}",
                node.raw()
            );
        }
        json::NodeKind::Number => {
            let own = check_matches_argument(HeaderField::Single(node.raw().as_bytes()), Some(node));
            assert_eq!(own, Ok(()), "{}", node.raw());
        }
        json::NodeKind::True | json::NodeKind::False => {
            assert_eq!(taken, decoded.as_deref() == Some(node.raw()))
        }
        json::NodeKind::String => assert_eq!(taken, decoded.as_deref() == node.str().as_deref()),
        json::NodeKind::Null | json::NodeKind::Array | json::NodeKind::Object => assert!(!taken),
    }
}

/// A decimal number as sign, digits without leading and trailing zeros, and the exponent of the last digit.
fn decimal_parts(text: &str) -> Option<(bool, String, i64)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if whole.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_end_matches('0');
    let power =
        exponent.parse::<i64>().ok()? - fraction.len() as i64 + (digits.len() - significant.len()) as i64;
    let significant = significant.trim_start_matches('0').to_owned();
    if significant.is_empty() { Some((false, significant, 0)) } else { Some((negative, significant, power)) }
}

/// A `Last-Event-ID` that comes back is the position that was sent, or invalid.
fn check_event_ids(text: &str) {
    let Some(id) = EventId::parse(text) else { return };
    let mut out = Vec::new();
    sse::write_message(&mut out, Some(id), b"{}");
    let out = String::from_utf8(out).expect("ASCII");
    let written = out.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id");
    if id.event <= i64::MAX as u64 {
        assert_eq!(EventId::parse(written), Some(id));
    }
}
