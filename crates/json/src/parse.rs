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
        position: 0,
        slots: Vec::with_capacity(guess.min(4096)),
        depth_left: limits.depth_max,
        values_max: limits.values_max,
    };
    parser.skip_whitespace();
    parser.value()?;
    parser.skip_whitespace();
    if parser.position != parser.bytes.len() {
        return parser.error(JsonErrorKind::Syntax);
    }
    let slots = parser.slots;
    Ok(Doc { text, slots })
}

/// Up to this many keys, each key is compared with the earlier ones. The keys of larger objects are sorted
/// instead: no input takes quadratic time, and there is no hash to attack.
const PAIRWISE_KEYS_MAX: u32 = 12;

struct Parser<'a> {
    bytes: &'a [u8],
    text: &'a str,
    position: usize,
    slots: Vec<Slot>,
    depth_left: u32,
    values_max: usize,
}

impl Parser<'_> {
    #[inline]
    fn peek(&self) -> u8 {
        // NUL is never valid outside a string, so it can mark the end of the text.
        self.bytes.get(self.position).copied().unwrap_or(0)
    }

    fn error<T>(&self, kind: JsonErrorKind) -> Result<T, JsonError> {
        Err(JsonError { offset: self.position, kind })
    }

    #[inline]
    fn skip_whitespace(&mut self) {
        // Nearly always there is none.
        if self.peek() <= b' ' {
            self.skip_some_whitespace();
        }
    }

    #[inline(never)]
    fn skip_some_whitespace(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.position += 1;
        }
    }

    #[inline]
    fn push_slot(&mut self, start: usize, kind: NodeKind, complex: bool) -> Result<(), JsonError> {
        let next = self.slots.len() + 1;
        if next > self.values_max {
            return self.error(JsonErrorKind::TooManyValues);
        }
        self.slots.push(Slot::new(start, self.position, next, kind, complex, 0));
        Ok(())
    }

    fn value(&mut self) -> Result<(), JsonError> {
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
            _ => self.error(JsonErrorKind::Syntax),
        }
    }

    fn literal(&mut self, word: &[u8], kind: NodeKind) -> Result<(), JsonError> {
        let start = self.position;
        if !self.bytes[start..].starts_with(word) {
            return self.error(JsonErrorKind::Syntax);
        }
        self.position += word.len();
        self.push_slot(start, kind, false)
    }

    /// Scans a string including both quotes. Returns whether it has escapes.
    #[inline]
    fn string(&mut self) -> Result<bool, JsonError> {
        let mut from = self.position + 1;
        let mut escaped = false;
        loop {
            let (at, byte) = find_special(self.bytes, from);
            self.position = at;
            match byte {
                b'"' => {
                    self.position += 1;
                    return Ok(escaped);
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                    from = self.position;
                }
                _ => return self.error(JsonErrorKind::Syntax),
            }
        }
    }

    #[cold]
    fn escape(&mut self) -> Result<(), JsonError> {
        match self.bytes.get(self.position + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.position += 2;
                Ok(())
            }
            Some(b'u') => match self.utf16_unit(self.position) {
                // A lone surrogate has no UTF-8 form, so it could not be forwarded unchanged.
                Some(0xD800..0xDC00) => match self.utf16_unit(self.position + 6) {
                    Some(0xDC00..0xE000) => {
                        self.position += 12;
                        Ok(())
                    }
                    _ => self.error(JsonErrorKind::Syntax),
                },
                Some(0xDC00..0xE000) | None => self.error(JsonErrorKind::Syntax),
                Some(_) => {
                    self.position += 6;
                    Ok(())
                }
            },
            _ => self.error(JsonErrorKind::Syntax),
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

    /// Scans a number. Returns whether it has a fraction or an exponent.
    fn number(&mut self) -> Result<bool, JsonError> {
        if self.peek() == b'-' {
            self.position += 1;
        }
        match self.peek() {
            b'0' => self.position += 1,
            b'1'..=b'9' => self.digits()?,
            _ => return self.error(JsonErrorKind::Syntax),
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
    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.position;
        while self.peek().is_ascii_digit() {
            self.position += 1;
        }
        if self.position == start { self.error(JsonErrorKind::Syntax) } else { Ok(()) }
    }

    fn open_container(&mut self, kind: NodeKind) -> Result<usize, JsonError> {
        if self.depth_left == 0 {
            return self.error(JsonErrorKind::TooDeep);
        }
        self.depth_left -= 1;
        let index = self.slots.len();
        let start = self.position;
        self.push_slot(start, kind, false)?;
        self.position += 1;
        self.skip_whitespace();
        Ok(index)
    }

    #[inline]
    fn close_container(&mut self, index: usize, kind: NodeKind, len: u32) {
        self.position += 1;
        self.depth_left += 1;
        let next = self.slots.len();
        let start = self.slots[index].start();
        self.slots[index] = Slot::new(start, self.position, next, kind, false, len);
    }

    fn array(&mut self) -> Result<(), JsonError> {
        let index = self.open_container(NodeKind::Array)?;
        let mut len = 0;
        if self.peek() != b']' {
            loop {
                self.value()?;
                len += 1;
                self.skip_whitespace();
                match self.peek() {
                    b',' => self.position += 1,
                    b']' => break,
                    _ => return self.error(JsonErrorKind::Syntax),
                }
                self.skip_whitespace();
            }
        }
        self.close_container(index, NodeKind::Array, len);
        Ok(())
    }

    fn object(&mut self) -> Result<(), JsonError> {
        let index = self.open_container(NodeKind::Object)?;
        let mut len = 0;
        let mut keys = KeyFilter::default();
        if self.peek() != b'}' {
            loop {
                if self.peek() != b'"' {
                    return self.error(JsonErrorKind::Syntax);
                }
                let start = self.position;
                let escaped = self.string()?;
                self.push_slot(start, NodeKind::String, escaped)?;
                if keys.may_contain(&self.bytes[start..self.position], escaped) && len < PAIRWISE_KEYS_MAX {
                    self.check_new_key(index)?;
                }
                self.skip_whitespace();
                if self.peek() != b':' {
                    return self.error(JsonErrorKind::Syntax);
                }
                self.position += 1;
                self.skip_whitespace();
                self.value()?;
                len += 1;
                self.skip_whitespace();
                match self.peek() {
                    b',' => self.position += 1,
                    b'}' => break,
                    _ => return self.error(JsonErrorKind::Syntax),
                }
                self.skip_whitespace();
            }
        }
        self.close_container(index, NodeKind::Object, len);
        if len > PAIRWISE_KEYS_MAX { self.check_keys_sorted(index) } else { Ok(()) }
    }

    /// Compares the newest key with every earlier key of the object in slot `object`.
    #[inline]
    fn check_new_key(&self, object: usize) -> Result<(), JsonError> {
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
                return Err(JsonError { offset: key.start(), kind: JsonErrorKind::DuplicateKey });
            }
            index = self.slots[index + 1].next();
        }
        Ok(())
    }

    #[cold]
    fn check_keys_sorted(&self, object: usize) -> Result<(), JsonError> {
        let end = self.slots[object].next();
        let mut keys: Vec<(Cow<'_, str>, usize)> = Vec::with_capacity(self.slots[object].len());
        let mut index = object + 1;
        while index < end {
            let key = self.slots[index];
            keys.push((unescape(key.str(self.text)), key.start()));
            index = self.slots[index + 1].next();
        }
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(JsonError { offset: pair[1].1, kind: JsonErrorKind::DuplicateKey }),
            None => Ok(()),
        }
    }
}

/// Which keys an object may have so far: a bit for each length and last byte. Keys with the same bit are compared.
#[derive(Default)]
struct KeyFilter(u64);

impl KeyFilter {
    /// Adds a key, with its quotes, and returns whether it may be there already.
    #[inline]
    fn may_contain(&mut self, quoted: &[u8], is_escaped: bool) -> bool {
        if is_escaped {
            // It may be another spelling of any other key.
            self.0 = u64::MAX;
            return true;
        }
        let last = quoted.len().checked_sub(2).and_then(|at| quoted.get(at)).copied().unwrap_or(0);
        let bit = 1 << ((quoted.len() ^ usize::from(last) << 1) & 63);
        let may_contain = self.0 & bit != 0;
        self.0 |= bit;
        may_contain
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The lowest set bit marks the first of eight bytes that JSON must escape: a quote, a backslash or a control
/// character. 0 if there is none.
///
/// A byte is a control character or a quote if it is below 0x21 once its bit 0x02 is flipped: the quote is 0x22. Both
/// subtractions set the high bit of such a byte; `!x` leaves out the bytes beyond ASCII, which have it anyway. A borrow
/// changes only the bytes above one that is marked, so the lowest mark is exact.
#[inline]
pub(crate) fn special_byte_mask(x: u64) -> u64 {
    let control_or_quote = (x ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslash = (x ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (control_or_quote | backslash) & !x & HIGHS
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

#[cfg(test)]
mod tests {
    use super::special_byte_mask;

    /// Neighbours matter: a subtraction borrows from the byte above it.
    #[test]
    fn the_first_byte_to_escape_is_found_among_any_neighbours() {
        for around in [b'a', b' ', b'!', b'#', b'[', b']', 0x7F, 0x80, 0xFF] {
            for (first, second) in (0..=255).flat_map(|first| (0..=255).map(move |second| (first, second))) {
                let word = [around, around, around, first, second, around, around, around];
                let expected = word.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20);
                let mask = special_byte_mask(u64::from_le_bytes(word));
                let found = (mask != 0).then(|| (mask.trailing_zeros() / 8) as usize);
                assert_eq!(found, expected, "{word:?}");
            }
        }
    }
}
