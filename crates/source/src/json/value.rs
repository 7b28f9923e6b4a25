//! Objects of JSON as rows: their members, and what a number is.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use foldhash::quality::RandomState;
use hashbrown::HashMap;
use json::{Bad, Doc, Kind, Node, ScanLimits, Why, scan, write};

use crate::rows::{Held, Table, Unreadable};
use crate::spot::Spot;

const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";
const COLUMNS_MAX: usize = 1024;
/// Of one object, with everything in it.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 20;
const LIMITS: ScanLimits = ScanLimits { depth_max: 64, slots_max: 500_000 };

/// Where the text begins, behind a mark that says it is UTF-8.
pub(super) fn start(bytes: &[u8]) -> Result<usize, Unreadable> {
    let is_utf16 = bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF");
    if is_utf16 || bytes.starts_with(b"{\0") || bytes.starts_with(b"[\0") {
        return Err(Unreadable {
            why: "is UTF-16, and JSON is UTF-8".into(),
            help: Some("save it as UTF-8".into()),
            at: None,
        });
    }
    Ok(if bytes.starts_with(UTF8_MARK) { UTF8_MARK.len() } else { 0 })
}

/// Where something is wrong, and with what: `line 7`, `element 7`, nothing for the file itself.
pub(super) struct Where<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) named: Option<(&'static str, u32)>,
}

impl Where<'_> {
    pub(super) fn wrong(&self, at: usize, why: &str, help: &str) -> Unreadable {
        let why = match self.named {
            Some((unit, number)) => format!("{unit} {number} {why}"),
            None => why.to_owned(),
        };
        let at = at.min(self.bytes.len());
        Unreadable { why, help: Some(help.to_owned()), at: Some(Spot::of_byte(self.bytes, at)) }
    }

    /// `from` is where the text begins that was scanned.
    pub(super) fn bad(&self, from: usize, bad: Bad) -> Unreadable {
        let (why, help) = match bad.why {
            Why::Utf8 => ("is not UTF-8", "save the file as UTF-8"),
            Why::Syntax => ("is not valid JSON", slip(self.bytes, from + bad.at, self.named)),
            Why::Depth => ("is nested deeper than 64 levels", "flatten it"),
            Why::Duplicate => ("names a member twice", "leave one of the two"),
            Why::TooMany => ("has more than 500000 values", "make it smaller"),
            Why::TooLong => ("is too long", "make it smaller"),
        };
        self.wrong(from + bad.at, why, help)
    }
}

/// What people write that JSON does not have.
fn slip(bytes: &[u8], at: usize, inside: Option<(&str, u32)>) -> &'static str {
    let before = bytes.get(..at).unwrap_or_default().trim_ascii_end().last();
    match (before, bytes.get(at)) {
        (Some(b','), Some(b']' | b'}')) => "remove the comma before it",
        (_, Some(b'\'')) => "a text stands in double quotes: `\"…\"`",
        (_, Some(b'/' | b'#')) => "JSON has no comments; remove it",
        (Some(b'{' | b','), Some(first)) if first.is_ascii_alphabetic() => {
            "a name or a text stands in double quotes: `\"…\"`"
        }
        (Some(b'}'), Some(b'{')) if inside.is_some_and(|(unit, _)| unit == "line") => {
            "give it a line of its own"
        }
        (Some(b'}' | b']' | b'"' | b'0'..=b'9'), Some(b'{' | b'[' | b'"')) => "put a comma before it",
        _ => "correct it there",
    }
}

/// Reads one object that begins at `from`.
pub(super) fn object(bytes: &[u8], from: usize, to: usize, at: &Where<'_>) -> Result<Doc, Unreadable> {
    if to - from > RECORD_BYTES_MAX {
        let why = format!("has more than {RECORD_BYTES_MAX} bytes");
        return Err(at.wrong(from, &why, "make it smaller, or put the data into a SQLite database"));
    }
    let doc = scan(bytes[from..to].to_vec(), &LIMITS).map_err(|bad| at.bad(from, bad))?;
    if doc.root().kind() != Kind::Object {
        let help = "make it an object, such as `{\"id\": 1}`: each record is one";
        return Err(at.wrong(from + doc.root().span().start, "is not an object", help));
    }
    Ok(doc)
}

/// A table while objects are read into it.
pub(super) struct Filling {
    pub(super) table: Table,
    places: HashMap<String, usize, RandomState>,
}

impl Filling {
    pub(super) fn new(name: &str, unit: &'static str) -> Self {
        let mut table = Table::new(name, Vec::new());
        (table.unit, table.is_loose, table.nests) = (unit, true, true);
        Self { table, places: HashMap::default() }
    }

    pub(super) fn take(&mut self, number: u32, object: Node<'_>) -> Result<(), TooManyColumns> {
        let mut columns = Vec::with_capacity(object.len());
        for (at, (name, _)) in object.members().enumerate() {
            columns.push(self.column(at, name)?);
        }
        // Texts with escapes and nested values are made here, and kept by the table.
        let values: Vec<Owned<'_>> = object.members().map(|(_, value)| Owned::of(value)).collect();
        self.table.push_held(number, columns.into_iter().zip(values.iter().map(Owned::held)));
        Ok(())
    }

    /// Most objects have the same members in the same order.
    fn column(&mut self, at: usize, name: Node<'_>) -> Result<usize, TooManyColumns> {
        if self.table.header.get(at).is_some_and(|column| name.is(column)) {
            return Ok(at);
        }
        let name = name.str().unwrap_or_default();
        if let Some(place) = self.places.get(&*name) {
            return Ok(*place);
        }
        let place = self.table.header.len();
        if place == COLUMNS_MAX {
            return Err(TooManyColumns);
        }
        self.places.insert(name.clone().into_owned(), place);
        self.table.widen(name.into_owned());
        Ok(place)
    }
}

pub(super) struct TooManyColumns;

impl TooManyColumns {
    pub(super) fn told(&self, at: &Where<'_>, from: usize) -> Unreadable {
        let why = format!("has a member with which there are more than {COLUMNS_MAX} columns");
        at.wrong(from, &why, "leave some out, or nest what belongs together")
    }
}

/// A value and what had to be made to tell it.
enum Owned<'d> {
    Plain(Held<'d>),
    Text(Cow<'d, str>),
    Nested(String),
}

impl<'d> Owned<'d> {
    fn of(node: Node<'d>) -> Self {
        match node.kind() {
            Kind::Null => Self::Plain(Held::Null),
            Kind::True => Self::Plain(Held::Boolean(true)),
            Kind::False => Self::Plain(Held::Boolean(false)),
            Kind::Number => Self::Plain(number(node)),
            Kind::String => Self::Text(node.str().unwrap_or_default()),
            Kind::Array | Kind::Object => {
                let mut out = Vec::with_capacity(node.raw().len());
                node.compact_into(&mut out);
                Self::Nested(String::from_utf8_lossy(&out).into_owned())
            }
        }
    }

    fn held(&self) -> Held<'_> {
        match self {
            Self::Plain(held) => *held,
            Self::Text(text) => Held::Text(text),
            Self::Nested(text) => Held::Json(text),
        }
    }
}

/// Whether a member says this already.
pub(super) fn says(node: Node<'_>, held: Held<'_>) -> bool {
    match held {
        Held::Json(text) => match scan(text.as_bytes().to_vec(), &LIMITS) {
            Ok(doc) => {
                let (mut new, mut old) = (Vec::new(), Vec::new());
                doc.root().compact_into(&mut new);
                node.compact_into(&mut old);
                new == old
            }
            Err(_) => false,
        },
        // Two ways to write one number are not the same digits, and NaN is nothing that stands in a file.
        Held::Real(_) | Held::Integer(_) | Held::Digits(_) => {
            let mut out = Vec::new();
            value(&mut out, held).is_ok() && node.raw().as_bytes() == out
        }
        Held::Moment(text) => node.is(text),
        Held::Blob(bytes) => node.is(&STANDARD.encode(bytes)),
        Held::Null | Held::Text(_) | Held::Boolean(_) => Owned::of(node).held() == held,
    }
}

/// A number by its digits: what does not print back as it is written stays as it is written.
fn number(node: Node<'_>) -> Held<'_> {
    let raw = node.raw();
    if node.is_plain_integer() {
        return match raw.parse() {
            Ok(n) if raw != "-0" => Held::Integer(n),
            _ => Held::Digits(raw),
        };
    }
    match raw.parse::<f64>() {
        Ok(n) if n.is_finite() && (n.to_string() == raw || is_same_power(raw, n)) => Held::Real(n),
        _ => Held::Digits(raw),
    }
}

/// Whether a number that is written with an exponent is the shortest decimal that means this binary fraction.
fn is_same_power(raw: &str, n: f64) -> bool {
    raw.contains(['e', 'E']) && parts(raw).is_some_and(|own| parts(&format!("{n:e}")) == Some(own))
}

/// The sign, the digits without zeros at either end, and the power of ten of the last of them.
fn parts(raw: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = raw.split_once(['e', 'E'])?;
    let exponent: i64 = exponent.parse().ok()?;
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let zeros = digits.len() - kept.len();
    let kept = kept.trim_start_matches('0');
    if kept.is_empty() {
        return Some((is_negative, String::new(), 0));
    }
    let power = exponent.checked_sub(fraction.len() as i64)?.checked_add(zeros as i64)?;
    Some((is_negative, kept.to_owned(), power))
}

/// Writes a value as JSON, on one line; or says in half a sentence why there is no JSON for it.
pub(super) fn value(out: &mut Vec<u8>, held: Held<'_>) -> Result<(), &'static str> {
    match held {
        Held::Null => out.extend_from_slice(b"null"),
        Held::Boolean(yes) => out.extend_from_slice(if yes { b"true" } else { b"false" }),
        Held::Text(text) | Held::Moment(text) => write::string(out, text),
        Held::Integer(n) => write::integer(out, n),
        Held::Real(n) if n.is_finite() => write::number(out, n),
        Held::Real(_) => return Err("JSON has no such number"),
        Held::Digits(digits) => match scan(digits.as_bytes().to_vec(), &LIMITS) {
            Ok(doc) if doc.root().kind() == Kind::Number && doc.root().raw() == digits => {
                out.extend_from_slice(digits.as_bytes());
            }
            _ => return Err("JSON has no such number"),
        },
        Held::Json(text) => match scan(text.as_bytes().to_vec(), &LIMITS) {
            Ok(doc) => doc.root().compact_into(out),
            Err(_) => return Err("it is not valid JSON"),
        },
        Held::Blob(bytes) => write::string(out, &STANDARD.encode(bytes)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use json::{ScanLimits, scan};

    use super::{Held, number};

    fn check(raw: &str, expected: Held<'_>) {
        let doc = scan(raw.as_bytes().to_vec(), &ScanLimits::default()).expect("JSON");
        assert_eq!(format!("{:?}", number(doc.root())), format!("{expected:?}"), "{raw}");
    }

    #[test]
    fn a_number_is_kept_as_what_prints_back_as_it() {
        for (raw, n) in [("0", 0), ("-7", -7), ("9007199254740993", 9_007_199_254_740_993)] {
            check(raw, Held::Integer(n));
        }
        check("9223372036854775807", Held::Integer(i64::MAX));
        for (raw, n) in [("1.5", 1.5), ("0.1", 0.1), ("-2.25", -2.25), ("1e5", 1e5), ("1E+5", 1e5)] {
            check(raw, Held::Real(n));
        }
        for (raw, n) in [("1.5e-9", 1.5e-9), ("150e-2", 1.5), ("0e7", 0.0), ("-0e7", -0.0), ("1e300", 1e300)]
        {
            check(raw, Held::Real(n));
        }
    }

    #[test]
    fn what_would_lose_a_digit_keeps_them_all() {
        for raw in [
            "-0",
            "-0.0",
            "1.0",
            "1.50",
            "9223372036854775808",
            "0.1000000000000000055511151231257827",
            "1e400",
            "-1e400",
            "1e-400",
            "1.00000000000000000001e5",
            "1e99999999999999999999",
            "123456789012345678.5",
        ] {
            check(raw, Held::Digits(raw));
        }
    }
}
