//! Headers that mirror the body: any text survives the way there and back, and a header is taken for the
//! body's value only if it says exactly that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::ScanLimits;
use wire::frame::sse::{self, EventId};
use wire::heads::{Head, decode, mirrors, param_mirrors};

use super::Dice;

pub fn headers(data: &[u8]) {
    let mut dice = Dice::new(data);
    let header = dice.bytes();
    let mut argument = String::new();
    dice.json(1, &mut argument);
    let text = String::from_utf8_lossy(dice.rest()).into_owned();

    decoded(data);
    decoded(header);
    carried(&text);
    compared(header, &text);
    numbers(header, &argument);
    event_ids(&text);
}

/// A header is read as it is, or as base64; never as something else.
fn decoded(header: &[u8]) {
    match decode(header) {
        Some(value) if *value == *header => assert!(header.iter().all(|c| matches!(c, 0x20..=0x7e | b'\t'))),
        Some(value) => assert_eq!(format!("=?base64?{}?=", STANDARD.encode(value)).as_bytes(), header),
        None => {}
    }
}

/// 2026-07-28, Value Encoding, as a client does it.
pub(super) fn encode(text: &str) -> String {
    let visible = text.bytes().all(|c| matches!(c, 0x20..=0x7e | b'\t'));
    let marked = text.starts_with("=?base64?") && text.ends_with("?=");
    if visible && !marked && text.trim_ascii() == text {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text))
    }
}

fn carried(text: &str) {
    let header = encode(text);
    assert_eq!(decode(header.as_bytes()).as_deref(), Some(text.as_bytes()));
    let head = Head::One(header.as_bytes());
    assert_eq!(mirrors(head, text), Ok(()));
    assert!(mirrors(head, &format!("{text}x")).is_err());
    for head in [Head::Absent, Head::Twice] {
        assert!(mirrors(head, text).is_err());
    }
    let mut argument = Vec::new();
    json::write::string(&mut argument, text);
    let doc = json::scan(argument, &ScanLimits::default()).expect("a string");
    assert_eq!(param_mirrors(head, Some(doc.root())), Ok(()));
    assert!(param_mirrors(head, None).is_err());
    assert!(param_mirrors(Head::Absent, Some(doc.root())).is_err());
}

fn compared(header: &[u8], text: &str) {
    // No HTTP library lets control characters in.
    if !header.iter().any(u8::is_ascii_control) && mirrors(Head::One(header), text).is_ok() {
        assert_eq!(decode(header).as_deref(), Some(text.as_bytes()));
    }
}

/// A number in a header is the argument only if it is the same number, digit by digit.
fn numbers(header: &[u8], argument: &str) {
    let doc = json::scan(argument.as_bytes().to_vec(), &ScanLimits::default()).expect("made to be JSON");
    let node = doc.root();
    let taken = param_mirrors(Head::One(header), Some(node)).is_ok();
    let said = decode(header).map(|value| String::from_utf8_lossy(&value).into_owned());
    match node.kind() {
        json::Kind::Number if taken => {
            let said = said.expect("taken, so readable");
            assert!(
                exact(&said).is_some() && exact(&said) == exact(node.raw()),
                "`{said}` is not {}",
                node.raw()
            );
        }
        json::Kind::Number => {
            let own = param_mirrors(Head::One(node.raw().as_bytes()), Some(node));
            assert_eq!(own, Ok(()), "{}", node.raw());
        }
        json::Kind::True | json::Kind::False => assert_eq!(taken, said.as_deref() == Some(node.raw())),
        json::Kind::String => assert_eq!(taken, said.as_deref() == node.str().as_deref()),
        json::Kind::Null | json::Kind::Array | json::Kind::Object => assert!(!taken),
    }
}

/// A decimal number as sign, digits without zeros around them, and the power of ten of the last digit.
fn exact(text: &str) -> Option<(bool, String, i64)> {
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
    let kept = digits.trim_end_matches('0');
    let power = exponent.parse::<i64>().ok()? - fraction.len() as i64 + (digits.len() - kept.len()) as i64;
    let kept = kept.trim_start_matches('0').to_owned();
    if kept.is_empty() { Some((false, kept, 0)) } else { Some((negative, kept, power)) }
}

/// What comes back as `Last-Event-ID` is the place that was named, or no place at all.
fn event_ids(text: &str) {
    let Some(id) = EventId::parse(text) else { return };
    let mut out = Vec::new();
    sse::message(&mut out, Some(id), b"{}");
    let out = String::from_utf8(out).expect("ASCII");
    let written = out.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id");
    if id.event <= i64::MAX as u64 {
        assert_eq!(EventId::parse(written), Some(id));
    }
}
