//! Making JSON: strings, and small objects member by member.
//!
//! Nothing here can make invalid JSON as long as [`Object::raw`] is given valid JSON, which is what
//! [`Json`](crate::Json) and [`Node::raw`](crate::Node::raw) are.

use crate::scan::special_byte_mask;

/// Writes `s` as a JSON string, quotes included.
#[inline]
pub fn string(out: &mut Vec<u8>, s: &str) {
    out.push(b'"');
    escaped(out, s.as_bytes());
    out.push(b'"');
}

/// Writes UTF-8 text with what JSON wants escaped; no quotes.
///
/// Eight bytes are written at a time and what was too much is taken back: in JSON inside JSON, every few
/// bytes need an escape, and a copy of each run between two of them would cost more than the copying.
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
    let mut at = digits.len();
    let mut left = n.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if n < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes a finite number so that it reads back identically; JSON has no other numbers, so NaN and the
/// infinities become `null`.
pub fn number(out: &mut Vec<u8>, n: f64) {
    if !n.is_finite() {
        out.extend_from_slice(b"null");
    } else if n == 0.0 && n.is_sign_negative() {
        out.extend_from_slice(b"-0.0");
    } else if n.fract() == 0.0 && n.abs() < 9e15 {
        integer(out, n as i64);
    } else if (1e-5..1e16).contains(&n.abs()) {
        out.extend_from_slice(n.to_string().as_bytes());
    } else {
        // Written out, it would be hundreds of zeros.
        out.extend_from_slice(format!("{n:e}").as_bytes());
    }
}

/// An object being written: members in the order of the calls. [`Object::end`] closes it.
pub struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> ObjectWriter<'o> {
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    /// Starts a member and hands out the buffer for its value.
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

/// Writes an array, each item by `each`.
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
