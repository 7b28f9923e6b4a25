//! One parser for untrusted text: checks UTF-8, grammar, depth, number of values and duplicate keys.
//!
//! Recursion is bounded by `depth_max`, so deep nesting is an error and never a stack overflow. Keys are
//! compared unescaped: `"a"` and `"\u0061"` are the same key, because a later reader may treat them so.

use std::borrow::Cow;
use std::fmt;

use crate::node::{Node, NodeKind, Slot, unescape};

/// Limits for one text. The parser rejects a text that exceeds one.
#[derive(Debug, Clone, Copy)]
pub struct ParseLimits {
    /// Maximum nesting depth of arrays and objects.
    pub depth_max: u32,
    /// Maximum number of values and keys. The tape uses 16 bytes for each.
    pub values_max: usize,
}

impl Default for ParseLimits {
    fn default() -> Self {
        Self { depth_max: 64, values_max: 500_000 }
    }
}

/// Why a text was rejected, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError {
    pub offset: usize,
    pub kind: JsonErrorKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonErrorKind {
    InvalidUtf8,
    Syntax,
    TooDeep,
    DuplicateKey,
    TooManyValues,
    TooLong,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self.kind {
            JsonErrorKind::InvalidUtf8 => "invalid UTF-8",
            JsonErrorKind::Syntax => "not valid JSON",
            JsonErrorKind::TooDeep => "nested too deeply",
            JsonErrorKind::DuplicateKey => "duplicate key",
            JsonErrorKind::TooManyValues => "too many values",
            JsonErrorKind::TooLong => "too long",
        };
        write!(f, "{message} at byte {}", self.offset)
    }
}

impl std::error::Error for JsonError {}

/// A scanned text: the text and the tape of spans over it.
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

    /// The value at an index from [`Node::index`] of the same document.
    #[inline]
    pub fn node(&self, index: u32) -> Node<'_> {
        Node { text: &self.text, slots: &self.slots, index }
    }

    #[inline]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Scans a whole text. It takes the bytes over and does not copy them.
pub fn parse(bytes: Vec<u8>, limits: &ParseLimits) -> Result<Doc, JsonError> {
    if bytes.len() >= u32::MAX as usize {
        return Err(JsonError { offset: u32::MAX as usize, kind: JsonErrorKind::TooLong });
    }
    let text = String::from_utf8(bytes)
        .map_err(|e| JsonError { offset: e.utf8_error().valid_up_to(), kind: JsonErrorKind::InvalidUtf8 })?;
    // A request has about one value per eight bytes. A good guess avoids growing the tape.
    let guess = (text.len() / 8 + 8).min(limits.values_max);
    let mut parser = Parser {
        bytes: text.as_bytes(),
        text: &text,
        slots: Vec::with_capacity(guess.min(4096)),
        depth_left: limits.depth_max,
        values_max: limits.values_max,
        error: JsonError { offset: 0, kind: JsonErrorKind::Syntax },
    };
    if parser.document().is_none() {
        return Err(parser.error);
    }
    let slots = parser.slots;
    Ok(Doc { text, slots })
}

/// Up to this many keys, each key is compared with the earlier ones. The keys of larger objects are sorted
/// instead: no input takes quadratic time, and there is no hash to attack.
const PAIRWISE_KEYS_MAX: u32 = 12;

/// Each method starts at the position that it is passed and returns the position behind what it has read, or `None` after
/// it has set `error`: a position in a register is cheaper than a field, and so is a small result.
struct Parser<'a> {
    bytes: &'a [u8],
    text: &'a str,
    slots: Vec<Slot>,
    depth_left: u32,
    values_max: usize,
    error: JsonError,
}

impl Parser<'_> {
    #[cold]
    fn fail<T>(&mut self, offset: usize, kind: JsonErrorKind) -> Option<T> {
        self.error = JsonError { offset, kind };
        None
    }

    fn document(&mut self) -> Option<()> {
        let end = self.value(self.skip_whitespace(0))?;
        let end = self.skip_whitespace(end);
        if end == self.bytes.len() { Some(()) } else { self.fail(end, JsonErrorKind::Syntax) }
    }

    #[inline]
    fn peek(&self, position: usize) -> u8 {
        // NUL is never valid outside a string, so it can mark the end of the text.
        self.bytes.get(position).copied().unwrap_or(0)
    }

    #[inline]
    fn skip_whitespace(&self, position: usize) -> usize {
        // Nearly always there is none.
        if self.peek(position) <= b' ' { self.skip_some_whitespace(position) } else { position }
    }

    #[inline(never)]
    fn skip_some_whitespace(&self, mut position: usize) -> usize {
        while matches!(self.peek(position), b' ' | b'\t' | b'\n' | b'\r') {
            position += 1;
        }
        position
    }

    #[inline]
    fn push_slot(&mut self, start: usize, end: usize, kind: NodeKind, complex: bool) -> Option<()> {
        let next = self.slots.len() + 1;
        if next > self.values_max {
            return self.fail(end, JsonErrorKind::TooManyValues);
        }
        self.slots.push(Slot::new(start, end, next, kind, complex, 0));
        Some(())
    }

    fn value(&mut self, start: usize) -> Option<usize> {
        match self.peek(start) {
            b'"' => self.string(start),
            b'{' => self.object(start),
            b'[' => self.array(start),
            b't' => self.literal(start, b"true", NodeKind::True),
            b'f' => self.literal(start, b"false", NodeKind::False),
            b'n' => self.literal(start, b"null", NodeKind::Null),
            b'-' | b'0'..=b'9' => {
                let (end, fractional) = self.number(start)?;
                self.push_slot(start, end, NodeKind::Number, fractional)?;
                Some(end)
            }
            _ => self.fail(start, JsonErrorKind::Syntax),
        }
    }

    fn literal(&mut self, start: usize, word: &[u8], kind: NodeKind) -> Option<usize> {
        if !self.bytes[start..].starts_with(word) {
            return self.fail(start, JsonErrorKind::Syntax);
        }
        let end = start + word.len();
        self.push_slot(start, end, kind, false)?;
        Some(end)
    }

    /// Reads a string or a key, from one quote to the other.
    #[inline]
    fn string(&mut self, start: usize) -> Option<usize> {
        let (at, byte) = find_special(self.bytes, start + 1);
        // Nearly all strings have no escapes.
        let (end, escaped) = if byte == b'"' { (at + 1, false) } else { (self.escaped_string(at)?, true) };
        self.push_slot(start, end, NodeKind::String, escaped)?;
        Some(end)
    }

    /// Continues a string at its first special byte, which is not the closing quote.
    #[cold]
    fn escaped_string(&mut self, mut position: usize) -> Option<usize> {
        loop {
            let (at, byte) = find_special(self.bytes, position);
            match byte {
                b'"' => return Some(at + 1),
                b'\\' => position = self.escape(at)?,
                _ => return self.fail(at, JsonErrorKind::Syntax),
            }
        }
    }

    fn escape(&mut self, position: usize) -> Option<usize> {
        match self.bytes.get(position + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Some(position + 2),
            Some(b'u') => match self.utf16_unit(position) {
                // A lone surrogate has no UTF-8 form, so it could not be forwarded unchanged.
                Some(0xD800..0xDC00) => match self.utf16_unit(position + 6) {
                    Some(0xDC00..0xE000) => Some(position + 12),
                    _ => self.fail(position, JsonErrorKind::Syntax),
                },
                Some(0xDC00..0xE000) | None => self.fail(position, JsonErrorKind::Syntax),
                Some(_) => Some(position + 6),
            },
            _ => self.fail(position, JsonErrorKind::Syntax),
        }
    }

    /// The value of the `\uXXXX` escape that starts at `offset`.
    fn utf16_unit(&self, offset: usize) -> Option<u32> {
        let hex = self.text.get(offset..offset + 6)?.strip_prefix("\\u")?;
        if !hex.bytes().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        u32::from_str_radix(hex, 16).ok()
    }

    /// Reads a number. Returns its end, and whether it has a fraction or an exponent.
    fn number(&mut self, mut position: usize) -> Option<(usize, bool)> {
        if self.peek(position) == b'-' {
            position += 1;
        }
        match self.peek(position) {
            b'0' => position += 1,
            b'1'..=b'9' => position = self.digits(position)?,
            _ => return self.fail(position, JsonErrorKind::Syntax),
        }
        let mut fractional = false;
        if self.peek(position) == b'.' {
            fractional = true;
            position = self.digits(position + 1)?;
        }
        if matches!(self.peek(position), b'e' | b'E') {
            fractional = true;
            position += 1;
            if matches!(self.peek(position), b'+' | b'-') {
                position += 1;
            }
            position = self.digits(position)?;
        }
        Some((position, fractional))
    }

    #[inline]
    fn digits(&mut self, start: usize) -> Option<usize> {
        let mut position = start;
        while self.peek(position).is_ascii_digit() {
            position += 1;
        }
        if position == start { self.fail(position, JsonErrorKind::Syntax) } else { Some(position) }
    }

    fn open_container(&mut self, start: usize, kind: NodeKind) -> Option<usize> {
        if self.depth_left == 0 {
            return self.fail(start, JsonErrorKind::TooDeep);
        }
        self.depth_left -= 1;
        let index = self.slots.len();
        self.push_slot(start, start, kind, false)?;
        Some(index)
    }

    #[inline]
    fn close_container(&mut self, index: usize, end: usize, kind: NodeKind, len: u32) {
        self.depth_left += 1;
        let next = self.slots.len();
        let start = self.slots[index].start();
        self.slots[index] = Slot::new(start, end, next, kind, false, len);
    }

    fn array(&mut self, start: usize) -> Option<usize> {
        let index = self.open_container(start, NodeKind::Array)?;
        let mut position = self.skip_whitespace(start + 1);
        let mut len = 0;
        if self.peek(position) != b']' {
            loop {
                position = self.value(position)?;
                len += 1;
                position = self.skip_whitespace(position);
                match self.peek(position) {
                    b',' => position = self.skip_whitespace(position + 1),
                    b']' => break,
                    _ => return self.fail(position, JsonErrorKind::Syntax),
                }
            }
        }
        self.close_container(index, position + 1, NodeKind::Array, len);
        Some(position + 1)
    }

    fn object(&mut self, start: usize) -> Option<usize> {
        let index = self.open_container(start, NodeKind::Object)?;
        let mut position = self.skip_whitespace(start + 1);
        let mut len = 0;
        if self.peek(position) != b'}' {
            loop {
                if self.peek(position) != b'"' {
                    return self.fail(position, JsonErrorKind::Syntax);
                }
                position = self.string(position)?;
                if len < PAIRWISE_KEYS_MAX {
                    self.check_new_key(index)?;
                }
                position = self.skip_whitespace(position);
                if self.peek(position) != b':' {
                    return self.fail(position, JsonErrorKind::Syntax);
                }
                position = self.value(self.skip_whitespace(position + 1))?;
                len += 1;
                position = self.skip_whitespace(position);
                match self.peek(position) {
                    b',' => position = self.skip_whitespace(position + 1),
                    b'}' => break,
                    _ => return self.fail(position, JsonErrorKind::Syntax),
                }
            }
        }
        self.close_container(index, position + 1, NodeKind::Object, len);
        if len > PAIRWISE_KEYS_MAX {
            self.check_keys_sorted(index)?;
        }
        Some(position + 1)
    }

    /// Compares the newest key with every earlier key of the object in slot `object`.
    #[inline]
    fn check_new_key(&mut self, object: usize) -> Option<()> {
        let newest = self.slots.len() - 1;
        let key = self.slots[newest];
        let mut index = object + 1;
        while index < newest {
            let other = self.slots[index];
            let same = if !key.is_complex() && !other.is_complex() {
                other.len_bytes() == key.len_bytes() && other.bytes(self.bytes) == key.bytes(self.bytes)
            } else {
                unescape(other.str(self.text)) == unescape(key.str(self.text))
            };
            if same {
                return self.fail(key.start(), JsonErrorKind::DuplicateKey);
            }
            index = self.slots[index + 1].next();
        }
        Some(())
    }

    #[cold]
    fn check_keys_sorted(&mut self, object: usize) -> Option<()> {
        let end = self.slots[object].next();
        let mut keys: Vec<(Cow<'_, str>, usize)> = Vec::with_capacity(self.slots[object].len());
        let mut index = object + 1;
        while index < end {
            let key = self.slots[index];
            keys.push((unescape(key.str(self.text)), key.start()));
            index = self.slots[index + 1].next();
        }
        keys.sort_unstable();
        let duplicate = keys.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1);
        match duplicate {
            Some(offset) => self.fail(offset, JsonErrorKind::DuplicateKey),
            None => Some(()),
        }
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Sets the high bit of each zero byte of `x`. Only the lowest set bit is exact.
#[inline]
fn zero_byte_mask(x: u64) -> u64 {
    x.wrapping_sub(ONES) & !x & HIGHS
}

/// The lowest set bit marks the first of eight bytes that JSON must escape: a quote, a backslash or a control
/// character. 0 if there is none.
#[inline]
pub(crate) fn special_byte_mask(x: u64) -> u64 {
    let quote = zero_byte_mask(x ^ (ONES * b'"' as u64));
    let backslash = zero_byte_mask(x ^ (ONES * b'\\' as u64));
    let control = x.wrapping_sub(ONES * 0x20) & !x & HIGHS;
    quote | backslash | control
}

/// The first byte from `at` on that needs an escape, and its place: a quote, a backslash or a control character. At the
/// end of the text it is NUL, which no string may contain.
#[inline]
fn find_special(bytes: &[u8], mut at: usize) -> (usize, u8) {
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*eight);
        let special = special_byte_mask(word);
        if special != 0 {
            // The lowest set bit is the highest of its byte.
            let bits = special.trailing_zeros() & !7;
            return (at + (bits / 8) as usize, (word >> bits) as u8);
        }
        at += 8;
    }
    while let Some(&byte) = bytes.get(at) {
        if byte == b'"' || byte == b'\\' || byte < 0x20 {
            return (at, byte);
        }
        at += 1;
    }
    (at, 0)
}
