//! One pass over untrusted text: UTF-8, grammar, depth, number of values, duplicate keys. Spans, not values.
//!
//! The pass is iterative where it can be and recursive only as deep as `depth_max`, so hostile nesting costs
//! an error and not a stack. Keys are compared unescaped: `"a"` and `"\u0061"` are the same key, because
//! a reader behind us may think so.

use std::borrow::Cow;
use std::fmt;

use crate::node::{Kind, Node, Slot, unescape};

/// How much a text may ask of us before it is refused.
#[derive(Debug, Clone, Copy)]
pub struct ScanLimits {
    /// How deep arrays and objects may nest.
    pub depth_max: u32,
    /// How many values and keys there may be: the tape takes 16 bytes for each.
    pub slots_max: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { depth_max: 64, slots_max: 500_000 }
    }
}

/// What is wrong with a text, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad {
    pub at: usize,
    pub why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Utf8,
    Syntax,
    Depth,
    Duplicate,
    TooMany,
    TooLong,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Utf8 => "invalid UTF-8",
            Why::Syntax => "not valid JSON",
            Why::Depth => "nested too deeply",
            Why::Duplicate => "duplicate key",
            Why::TooMany => "too many values",
            Why::TooLong => "too long",
        };
        write!(f, "{why} at byte {}", self.at)
    }
}

impl std::error::Error for Bad {}

/// A scanned text: the text itself and the tape of spans over it.
#[derive(Debug, Clone)]
pub struct Doc {
    text: String,
    slots: Vec<Slot>,
}

impl Doc {
    /// The outermost value.
    #[inline]
    pub fn root(&self) -> Node<'_> {
        self.node(0)
    }

    /// The value at a place remembered from [`Node::at`] of the same document.
    #[inline]
    pub fn node(&self, at: u32) -> Node<'_> {
        Node { text: &self.text, slots: &self.slots, at }
    }

    #[inline]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Reads a whole text. The bytes are taken over, not copied.
pub fn scan(bytes: Vec<u8>, limits: &ScanLimits) -> Result<Doc, Bad> {
    if bytes.len() >= u32::MAX as usize {
        return Err(Bad { at: u32::MAX as usize, why: Why::TooLong });
    }
    let text =
        String::from_utf8(bytes).map_err(|e| Bad { at: e.utf8_error().valid_up_to(), why: Why::Utf8 })?;
    // A request has about one value per eight bytes; guessing right saves growing the tape.
    let guess = (text.len() / 8 + 8).min(limits.slots_max);
    let mut pass = Pass {
        bytes: text.as_bytes(),
        text: &text,
        i: 0,
        slots: Vec::with_capacity(guess.min(4096)),
        depth_left: limits.depth_max,
        slots_max: limits.slots_max,
    };
    pass.space();
    pass.value()?;
    pass.space();
    if pass.i != pass.bytes.len() {
        return pass.bad(Why::Syntax);
    }
    let slots = pass.slots;
    Ok(Doc { text, slots })
}

/// An object with up to this many keys compares each key with the earlier ones; a larger one is sorted,
/// so that no input is quadratic and there is no hash to attack.
const KEYS_COMPARED_MAX: u32 = 12;

struct Pass<'a> {
    bytes: &'a [u8],
    text: &'a str,
    i: usize,
    slots: Vec<Slot>,
    depth_left: u32,
    slots_max: usize,
}

impl Pass<'_> {
    #[inline]
    fn peek(&self) -> u8 {
        // NUL is never valid outside a string, so it can stand for the end.
        self.bytes.get(self.i).copied().unwrap_or(0)
    }

    fn bad<T>(&self, why: Why) -> Result<T, Bad> {
        Err(Bad { at: self.i, why })
    }

    #[inline]
    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.i += 1;
        }
    }

    #[inline]
    fn push(&mut self, start: usize, kind: Kind, odd: bool) -> Result<(), Bad> {
        let next = self.slots.len() + 1;
        if next > self.slots_max {
            return self.bad(Why::TooMany);
        }
        self.slots.push(Slot::new(start, self.i, next, kind, odd, 0));
        Ok(())
    }

    fn value(&mut self) -> Result<(), Bad> {
        let start = self.i;
        match self.peek() {
            b'"' => {
                let escaped = self.string()?;
                self.push(start, Kind::String, escaped)
            }
            b'{' => self.object(),
            b'[' => self.array(),
            b't' => self.word(b"true", Kind::True),
            b'f' => self.word(b"false", Kind::False),
            b'n' => self.word(b"null", Kind::Null),
            b'-' | b'0'..=b'9' => {
                let fractional = self.number()?;
                self.push(start, Kind::Number, fractional)
            }
            _ => self.bad(Why::Syntax),
        }
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<(), Bad> {
        let start = self.i;
        if !self.bytes[start..].starts_with(word) {
            return self.bad(Why::Syntax);
        }
        self.i += word.len();
        self.push(start, kind, false)
    }

    /// From the opening quote to behind the closing one; says whether there were escapes.
    #[inline]
    fn string(&mut self) -> Result<bool, Bad> {
        self.i += 1;
        let mut escaped = false;
        loop {
            self.i += plain_run(&self.bytes[self.i..]);
            match self.bytes.get(self.i) {
                Some(b'"') => {
                    self.i += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) | None => return self.bad(Why::Syntax),
            }
        }
    }

    #[cold]
    fn escape(&mut self) -> Result<(), Bad> {
        match self.bytes.get(self.i + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.i += 2;
                Ok(())
            }
            Some(b'u') => match self.unit(self.i) {
                // A lone surrogate has no UTF-8 form: it could not be forwarded faithfully.
                Some(0xD800..0xDC00) => match self.unit(self.i + 6) {
                    Some(0xDC00..0xE000) => {
                        self.i += 12;
                        Ok(())
                    }
                    _ => self.bad(Why::Syntax),
                },
                Some(0xDC00..0xE000) | None => self.bad(Why::Syntax),
                Some(_) => {
                    self.i += 6;
                    Ok(())
                }
            },
            _ => self.bad(Why::Syntax),
        }
    }

    /// The value of the `\uXXXX` that starts at `at`.
    fn unit(&self, at: usize) -> Option<u32> {
        let hex = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        if !hex.bytes().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        u32::from_str_radix(hex, 16).ok()
    }

    /// Says whether the number is written with a fraction or an exponent.
    fn number(&mut self) -> Result<bool, Bad> {
        if self.peek() == b'-' {
            self.i += 1;
        }
        match self.peek() {
            b'0' => self.i += 1,
            b'1'..=b'9' => self.digits()?,
            _ => return self.bad(Why::Syntax),
        }
        let mut fractional = false;
        if self.peek() == b'.' {
            fractional = true;
            self.i += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            fractional = true;
            self.i += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.i += 1;
            }
            self.digits()?;
        }
        Ok(fractional)
    }

    #[inline]
    fn digits(&mut self) -> Result<(), Bad> {
        let start = self.i;
        while self.peek().is_ascii_digit() {
            self.i += 1;
        }
        if self.i == start { self.bad(Why::Syntax) } else { Ok(()) }
    }

    fn deeper(&mut self, kind: Kind) -> Result<usize, Bad> {
        if self.depth_left == 0 {
            return self.bad(Why::Depth);
        }
        self.depth_left -= 1;
        let at = self.slots.len();
        let start = self.i;
        self.push(start, kind, false)?;
        self.i += 1;
        self.space();
        Ok(at)
    }

    #[inline]
    fn close(&mut self, at: usize, kind: Kind, len: u32) {
        self.i += 1;
        self.depth_left += 1;
        let next = self.slots.len();
        let start = self.slots[at].start();
        self.slots[at] = Slot::new(start, self.i, next, kind, false, len);
    }

    fn array(&mut self) -> Result<(), Bad> {
        let at = self.deeper(Kind::Array)?;
        let mut len = 0;
        if self.peek() != b']' {
            loop {
                self.value()?;
                len += 1;
                self.space();
                match self.peek() {
                    b',' => self.i += 1,
                    b']' => break,
                    _ => return self.bad(Why::Syntax),
                }
                self.space();
            }
        }
        self.close(at, Kind::Array, len);
        Ok(())
    }

    fn object(&mut self) -> Result<(), Bad> {
        let at = self.deeper(Kind::Object)?;
        let mut len = 0;
        if self.peek() != b'}' {
            loop {
                if self.peek() != b'"' {
                    return self.bad(Why::Syntax);
                }
                let start = self.i;
                let escaped = self.string()?;
                self.push(start, Kind::String, escaped)?;
                if len < KEYS_COMPARED_MAX {
                    self.compare_key(at)?;
                }
                self.space();
                if self.peek() != b':' {
                    return self.bad(Why::Syntax);
                }
                self.i += 1;
                self.space();
                self.value()?;
                len += 1;
                self.space();
                match self.peek() {
                    b',' => self.i += 1,
                    b'}' => break,
                    _ => return self.bad(Why::Syntax),
                }
                self.space();
            }
        }
        self.close(at, Kind::Object, len);
        if len > KEYS_COMPARED_MAX { self.sort_keys(at) } else { Ok(()) }
    }

    /// Compares the key just pushed with every earlier key of the object at `object`.
    #[inline]
    fn compare_key(&self, object: usize) -> Result<(), Bad> {
        let newest = self.slots.len() - 1;
        let key = self.slots[newest];
        let mut at = object + 1;
        while at < newest {
            let other = self.slots[at];
            let same = if !key.odd() && !other.odd() {
                other.len_bytes() == key.len_bytes() && other.bytes(self.bytes) == key.bytes(self.bytes)
            } else {
                unescape(other.str(self.text)) == unescape(key.str(self.text))
            };
            if same {
                return Err(Bad { at: key.start(), why: Why::Duplicate });
            }
            at = self.slots[at + 1].next();
        }
        Ok(())
    }

    #[cold]
    fn sort_keys(&self, object: usize) -> Result<(), Bad> {
        let end = self.slots[object].next();
        let mut keys: Vec<(Cow<'_, str>, usize)> = Vec::with_capacity(self.slots[object].len());
        let mut at = object + 1;
        while at < end {
            let key = self.slots[at];
            keys.push((unescape(key.str(self.text)), key.start()));
            at = self.slots[at + 1].next();
        }
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(Bad { at: pair[1].1, why: Why::Duplicate }),
            None => Ok(()),
        }
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// A word whose high bits mark the zero bytes of `x` (the lowest mark is exact).
#[inline]
fn zeros(x: u64) -> u64 {
    x.wrapping_sub(ONES) & !x & HIGHS
}

/// A word whose lowest high bit marks the first of eight bytes that JSON wants escaped: a quote, a backslash
/// or a control character. 0 if there is none.
#[inline]
pub(crate) fn special_bytes(x: u64) -> u64 {
    let quote = zeros(x ^ (ONES * b'"' as u64));
    let backslash = zeros(x ^ (ONES * b'\\' as u64));
    let control = x.wrapping_sub(ONES * 0x20) & !x & HIGHS;
    quote | backslash | control
}

/// How many bytes from the start need no escape in JSON: no quote, no backslash, no control character.
#[inline]
fn plain_run(bytes: &[u8]) -> usize {
    let mut i = 0;
    while let Some(eight) = bytes[i..].first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*eight));
        if special != 0 {
            return i + (special.trailing_zeros() / 8) as usize;
        }
        i += 8;
    }
    while let Some(&c) = bytes.get(i) {
        if c == b'"' || c == b'\\' || c < 0x20 {
            break;
        }
        i += 1;
    }
    i
}
