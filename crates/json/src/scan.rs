//! One pass over untrusted text: UTF-8, grammar, depth, number of values, duplicate keys. Spans, not values.
//!
//! The pass is iterative where it can be and recursive only as deep as `depth_max`, so hostile nesting costs
//! an error and not a stack. Keys are compared unescaped: `"a"` and `"\u0061"` are the same key, because
//! a reader behind us may think so.

use std::borrow::Cow;
use std::fmt;

use crate::node::{Node, NodeKind, Slot, unescape};

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
pub struct ScanError {
    pub offset: usize,
    pub kind: ScanErrorKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanErrorKind {
    InvalidUtf8,
    Syntax,
    TooDeep,
    DuplicateKey,
    TooManyValues,
    TooLong,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.kind {
            ScanErrorKind::InvalidUtf8 => "invalid UTF-8",
            ScanErrorKind::Syntax => "not valid JSON",
            ScanErrorKind::TooDeep => "nested too deeply",
            ScanErrorKind::DuplicateKey => "duplicate key",
            ScanErrorKind::TooManyValues => "too many values",
            ScanErrorKind::TooLong => "too long",
        };
        write!(f, "{why} at byte {}", self.offset)
    }
}

impl std::error::Error for ScanError {}

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
        Node { text: &self.text, slots: &self.slots, index: at }
    }

    #[inline]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Reads a whole text. The bytes are taken over, not copied.
pub fn scan(bytes: Vec<u8>, limits: &ScanLimits) -> Result<Doc, ScanError> {
    if bytes.len() >= u32::MAX as usize {
        return Err(ScanError { offset: u32::MAX as usize, kind: ScanErrorKind::TooLong });
    }
    let text = String::from_utf8(bytes)
        .map_err(|e| ScanError { offset: e.utf8_error().valid_up_to(), kind: ScanErrorKind::InvalidUtf8 })?;
    // A request has about one value per eight bytes; guessing right saves growing the tape.
    let guess = (text.len() / 8 + 8).min(limits.slots_max);
    let mut pass = Scanner {
        bytes: text.as_bytes(),
        text: &text,
        position: 0,
        slots: Vec::with_capacity(guess.min(4096)),
        depth_left: limits.depth_max,
        slots_max: limits.slots_max,
    };
    pass.skip_whitespace();
    pass.value()?;
    pass.skip_whitespace();
    if pass.position != pass.bytes.len() {
        return pass.error(ScanErrorKind::Syntax);
    }
    let slots = pass.slots;
    Ok(Doc { text, slots })
}

/// An object with up to this many keys compares each key with the earlier ones; a larger one is sorted,
/// so that no input is quadratic and there is no hash to attack.
const PAIRWISE_KEYS_MAX: u32 = 12;

struct Scanner<'a> {
    bytes: &'a [u8],
    text: &'a str,
    position: usize,
    slots: Vec<Slot>,
    depth_left: u32,
    slots_max: usize,
}

impl Scanner<'_> {
    #[inline]
    fn peek(&self) -> u8 {
        // NUL is never valid outside a string, so it can stand for the end.
        self.bytes.get(self.position).copied().unwrap_or(0)
    }

    fn error<T>(&self, why: ScanErrorKind) -> Result<T, ScanError> {
        Err(ScanError { offset: self.position, kind: why })
    }

    #[inline]
    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.position += 1;
        }
    }

    #[inline]
    fn push_slot(&mut self, start: usize, kind: NodeKind, odd: bool) -> Result<(), ScanError> {
        let next = self.slots.len() + 1;
        if next > self.slots_max {
            return self.error(ScanErrorKind::TooManyValues);
        }
        self.slots.push(Slot::new(start, self.position, next, kind, odd, 0));
        Ok(())
    }

    fn value(&mut self) -> Result<(), ScanError> {
        let start = self.position;
        match self.peek() {
            b'"' => {
                let escaped = self.string()?;
                self.push_slot(start, NodeKind::String, escaped)
            }
            b'{' => self.object(),
            b'[' => self.array(),
            b't' => self.literal(b"true", NodeKind::True),
            b'f' => self.literal(b"false", NodeKind::False),
            b'n' => self.literal(b"null", NodeKind::Null),
            b'-' | b'0'..=b'9' => {
                let fractional = self.number()?;
                self.push_slot(start, NodeKind::Number, fractional)
            }
            _ => self.error(ScanErrorKind::Syntax),
        }
    }

    fn literal(&mut self, word: &[u8], kind: NodeKind) -> Result<(), ScanError> {
        let start = self.position;
        if !self.bytes[start..].starts_with(word) {
            return self.error(ScanErrorKind::Syntax);
        }
        self.position += word.len();
        self.push_slot(start, kind, false)
    }

    /// From the opening quote to behind the closing one; says whether there were escapes.
    #[inline]
    fn string(&mut self) -> Result<bool, ScanError> {
        self.position += 1;
        let mut escaped = false;
        loop {
            self.position += plain_prefix_len(&self.bytes[self.position..]);
            match self.bytes.get(self.position) {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) | None => return self.error(ScanErrorKind::Syntax),
            }
        }
    }

    #[cold]
    fn escape(&mut self) -> Result<(), ScanError> {
        match self.bytes.get(self.position + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.position += 2;
                Ok(())
            }
            Some(b'u') => match self.utf16_unit(self.position) {
                // A lone surrogate has no UTF-8 form: it could not be forwarded faithfully.
                Some(0xD800..0xDC00) => match self.utf16_unit(self.position + 6) {
                    Some(0xDC00..0xE000) => {
                        self.position += 12;
                        Ok(())
                    }
                    _ => self.error(ScanErrorKind::Syntax),
                },
                Some(0xDC00..0xE000) | None => self.error(ScanErrorKind::Syntax),
                Some(_) => {
                    self.position += 6;
                    Ok(())
                }
            },
            _ => self.error(ScanErrorKind::Syntax),
        }
    }

    /// The value of the `\uXXXX` that starts at `at`.
    fn utf16_unit(&self, at: usize) -> Option<u32> {
        let hex = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        if !hex.bytes().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        u32::from_str_radix(hex, 16).ok()
    }

    /// Says whether the number is written with a fraction or an exponent.
    fn number(&mut self) -> Result<bool, ScanError> {
        if self.peek() == b'-' {
            self.position += 1;
        }
        match self.peek() {
            b'0' => self.position += 1,
            b'1'..=b'9' => self.digits()?,
            _ => return self.error(ScanErrorKind::Syntax),
        }
        let mut fractional = false;
        if self.peek() == b'.' {
            fractional = true;
            self.position += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            fractional = true;
            self.position += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.position += 1;
            }
            self.digits()?;
        }
        Ok(fractional)
    }

    #[inline]
    fn digits(&mut self) -> Result<(), ScanError> {
        let start = self.position;
        while self.peek().is_ascii_digit() {
            self.position += 1;
        }
        if self.position == start { self.error(ScanErrorKind::Syntax) } else { Ok(()) }
    }

    fn open_container(&mut self, kind: NodeKind) -> Result<usize, ScanError> {
        if self.depth_left == 0 {
            return self.error(ScanErrorKind::TooDeep);
        }
        self.depth_left -= 1;
        let at = self.slots.len();
        let start = self.position;
        self.push_slot(start, kind, false)?;
        self.position += 1;
        self.skip_whitespace();
        Ok(at)
    }

    #[inline]
    fn close_container(&mut self, at: usize, kind: NodeKind, len: u32) {
        self.position += 1;
        self.depth_left += 1;
        let next = self.slots.len();
        let start = self.slots[at].start();
        self.slots[at] = Slot::new(start, self.position, next, kind, false, len);
    }

    fn array(&mut self) -> Result<(), ScanError> {
        let at = self.open_container(NodeKind::Array)?;
        let mut len = 0;
        if self.peek() != b']' {
            loop {
                self.value()?;
                len += 1;
                self.skip_whitespace();
                match self.peek() {
                    b',' => self.position += 1,
                    b']' => break,
                    _ => return self.error(ScanErrorKind::Syntax),
                }
                self.skip_whitespace();
            }
        }
        self.close_container(at, NodeKind::Array, len);
        Ok(())
    }

    fn object(&mut self) -> Result<(), ScanError> {
        let at = self.open_container(NodeKind::Object)?;
        let mut len = 0;
        if self.peek() != b'}' {
            loop {
                if self.peek() != b'"' {
                    return self.error(ScanErrorKind::Syntax);
                }
                let start = self.position;
                let escaped = self.string()?;
                self.push_slot(start, NodeKind::String, escaped)?;
                if len < PAIRWISE_KEYS_MAX {
                    self.check_new_key(at)?;
                }
                self.skip_whitespace();
                if self.peek() != b':' {
                    return self.error(ScanErrorKind::Syntax);
                }
                self.position += 1;
                self.skip_whitespace();
                self.value()?;
                len += 1;
                self.skip_whitespace();
                match self.peek() {
                    b',' => self.position += 1,
                    b'}' => break,
                    _ => return self.error(ScanErrorKind::Syntax),
                }
                self.skip_whitespace();
            }
        }
        self.close_container(at, NodeKind::Object, len);
        if len > PAIRWISE_KEYS_MAX { self.check_keys_sorted(at) } else { Ok(()) }
    }

    /// Compares the key just pushed with every earlier key of the object at `object`.
    #[inline]
    fn check_new_key(&self, object: usize) -> Result<(), ScanError> {
        let newest = self.slots.len() - 1;
        let key = self.slots[newest];
        let mut at = object + 1;
        while at < newest {
            let other = self.slots[at];
            let same = if !key.is_complex() && !other.is_complex() {
                other.len_bytes() == key.len_bytes() && other.bytes(self.bytes) == key.bytes(self.bytes)
            } else {
                unescape(other.str(self.text)) == unescape(key.str(self.text))
            };
            if same {
                return Err(ScanError { offset: key.start(), kind: ScanErrorKind::DuplicateKey });
            }
            at = self.slots[at + 1].next();
        }
        Ok(())
    }

    #[cold]
    fn check_keys_sorted(&self, object: usize) -> Result<(), ScanError> {
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
            Some(pair) => Err(ScanError { offset: pair[1].1, kind: ScanErrorKind::DuplicateKey }),
            None => Ok(()),
        }
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// A word whose high bits mark the zero bytes of `x` (the lowest mark is exact).
#[inline]
fn zero_byte_mask(x: u64) -> u64 {
    x.wrapping_sub(ONES) & !x & HIGHS
}

/// A word whose lowest high bit marks the first of eight bytes that JSON wants escaped: a quote, a backslash
/// or a control character. 0 if there is none.
#[inline]
pub(crate) fn special_byte_mask(x: u64) -> u64 {
    let quote = zero_byte_mask(x ^ (ONES * b'"' as u64));
    let backslash = zero_byte_mask(x ^ (ONES * b'\\' as u64));
    let control = x.wrapping_sub(ONES * 0x20) & !x & HIGHS;
    quote | backslash | control
}

/// How many bytes from the start need no escape in JSON: no quote, no backslash, no control character.
#[inline]
fn plain_prefix_len(bytes: &[u8]) -> usize {
    let mut i = 0;
    while let Some(eight) = bytes[i..].first_chunk::<8>() {
        let special = special_byte_mask(u64::from_le_bytes(*eight));
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
