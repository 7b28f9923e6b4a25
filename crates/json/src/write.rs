//! Writes JSON: strings, numbers, and objects member by member.
//!
//! The output is always valid JSON if every text passed to [`ObjectWriter::raw`] is. [`Json`](crate::Json) and
//! [`Node::raw`](crate::Node::raw) always are.

use crate::parse::special_byte_mask;

/// Writes `s` as a JSON string, quotes included.
#[inline]
pub fn string(out: &mut Vec<u8>, s: &str) {
    out.push(b'"');
    escaped(out, s.as_bytes());
    out.push(b'"');
}

/// Writes UTF-8 text with JSON escapes, without the quotes.
///
/// It appends eight bytes at a time and truncates at the first one that needs an escape. JSON inside JSON needs
/// an escape every few bytes, so finding each plain run first and then copying it is slower.
#[inline]
pub fn escaped(out: &mut Vec<u8>, s: &[u8]) {
    out.reserve(s.len() + s.len() / 4 + 8);
    let mut i = 0;
    while let Some(eight) = s[i..].first_chunk::<8>() {
        out.extend_from_slice(eight);
        let special = special_byte_mask(u64::from_le_bytes(*eight));
        if special == 0 {
            i += 8;
            continue;
        }
        let plain = (special.trailing_zeros() / 8) as usize;
        out.truncate(out.len() - (8 - plain));
        escape_byte(out, eight[plain]);
        i += plain + 1;
    }
    for &c in &s[i..] {
        if c == b'"' || c == b'\\' || c < 0x20 { escape_byte(out, c) } else { out.push(c) }
    }
}

#[inline(always)]
fn escape_byte(out: &mut Vec<u8>, c: u8) {
    if c == b'"' || c == b'\\' { out.extend_from_slice(&[b'\\', c]) } else { escape_control(out, c) }
}

#[cold]
fn escape_control(out: &mut Vec<u8>, c: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match c {
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        c => {
            let hex = [HEX[usize::from(c >> 4)], HEX[usize::from(c & 15)]];
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&hex);
        }
    }
}

/// Writes an integer in decimal.
pub fn integer(out: &mut Vec<u8>, n: i64) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    let mut rest = n.unsigned_abs();
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[first..]);
}

/// Writes a finite number with as few digits as read back as the same `f64`: the digits that JavaScript and Python write.
/// JSON has no NaN and no infinities: they become `null`.
pub fn number(out: &mut Vec<u8>, n: f64) {
    if !n.is_finite() {
        out.extend_from_slice(b"null");
    } else if n == 0.0 && n.is_sign_negative() {
        out.extend_from_slice(b"-0.0");
    } else if n.fract() == 0.0 && n.abs() < 9e15 {
        integer(out, n as i64);
    } else if (1e-5..1e16).contains(&n.abs()) {
        let digits = ties_to_even(n, n.to_string(), |decimals| format!("{n:.decimals$}"));
        out.extend_from_slice(digits.as_bytes());
    } else {
        // Without an exponent this could be hundreds of zeros.
        let digits = ties_to_even(n, format!("{n:e}"), |decimals| format!("{n:.decimals$e}"));
        out.extend_from_slice(digits.as_bytes());
    }
}

/// 1658206780088562.25 has two shortest forms, `.2` and `.3`, and both are equally close. Rust's `Display` takes the odd
/// digit, everybody else the even one. `rounded` writes the number with so many digits after the point.
fn ties_to_even(n: f64, shortest: String, rounded: impl FnOnce(usize) -> String) -> String {
    // Fifteen digits are never a tie: every one of them reads back as another number.
    if shortest.len() <= 15 {
        return shortest;
    }
    let mantissa = shortest.split('e').next().unwrap_or_default();
    let even = rounded(mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len()));
    // Next to a power of two, the closest digits may read back as the neighbour.
    let is_same = even.parse::<f64>().is_ok_and(|read| read.to_bits() == n.to_bits());
    if is_same { even } else { shortest }
}

/// Writes one object, members in the order of the calls. [`ObjectWriter::end`] closes it.
pub struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> ObjectWriter<'o> {
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    /// Starts a member and returns the buffer for its value.
    pub fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        string(self.out, key);
        self.out.push(b':');
        self.out
    }

    pub fn str(&mut self, key: &str, value: &str) -> &mut Self {
        string(self.key(key), value);
        self
    }

    pub fn maybe_str(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.str(key, value);
        }
        self
    }

    pub fn int(&mut self, key: &str, value: i64) -> &mut Self {
        integer(self.key(key), value);
        self
    }

    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    /// A member whose value is already JSON.
    pub fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.key(key).extend_from_slice(json.as_bytes());
        self
    }

    pub fn maybe_raw(&mut self, key: &str, json: Option<&str>) -> &mut Self {
        if let Some(json) = json {
            self.raw(key, json);
        }
        self
    }

    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut ObjectWriter<'_>)) -> &mut Self {
        let mut inner = ObjectWriter::new(self.key(key));
        fill(&mut inner);
        inner.end();
        self
    }

    pub fn array<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Vec<u8>, T),
    ) -> &mut Self {
        array(self.key(key), items, &mut each);
        self
    }

    pub fn end(self) {
        self.out.push(b'}');
    }
}

/// Writes an array; `each` writes one item.
pub fn array<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        each(out, item);
    }
    out.push(b']');
}
