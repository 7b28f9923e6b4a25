//! Reads values from a scanned text. A [`Node`] is a cheap reference to one value on the tape.

use std::borrow::Cow;

use crate::decimal::Decimal;
use crate::write;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    Null,
    True,
    False,
    Number,
    String,
    Array,
    Object,
}

/// One value or one key on the tape: sixteen bytes.
///
/// `start..end` is the raw text, `next` the slot after this subtree. `info` packs the kind, the "complex" bit
/// (a string with escapes, a number with fraction or exponent) and the number of members.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    start: u32,
    end: u32,
    next: u32,
    info: u32,
}

impl Slot {
    /// Lengths and counts fit into `u32`: `parse` rejects texts of 4 GiB and more, and a value has at least one byte.
    #[inline]
    pub(crate) fn new(
        start: usize,
        end: usize,
        next: usize,
        kind: NodeKind,
        complex: bool,
        len: u32,
    ) -> Self {
        let kind = match kind {
            NodeKind::Null => 0,
            NodeKind::True => 1,
            NodeKind::False => 2,
            NodeKind::Number => 3,
            NodeKind::String => 4,
            NodeKind::Array => 5,
            NodeKind::Object => 6,
        };
        let info = kind | u32::from(complex) << 3 | len << 4;
        Self { start: start as u32, end: end as u32, next: next as u32, info }
    }

    #[inline]
    pub(crate) fn kind(self) -> NodeKind {
        match self.info & 7 {
            0 => NodeKind::Null,
            1 => NodeKind::True,
            2 => NodeKind::False,
            3 => NodeKind::Number,
            4 => NodeKind::String,
            5 => NodeKind::Array,
            _ => NodeKind::Object,
        }
    }

    #[inline]
    pub(crate) fn is_complex(self) -> bool {
        self.info & 8 != 0
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.info >> 4) as usize
    }

    #[inline]
    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    #[inline]
    pub(crate) fn next(self) -> usize {
        self.next as usize
    }

    #[inline]
    pub(crate) fn len_bytes(self) -> u32 {
        self.end - self.start
    }

    #[inline]
    pub(crate) fn bytes(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..self.end as usize]
    }

    #[inline]
    pub(crate) fn str(self, text: &str) -> &str {
        &text[self.start as usize..self.end as usize]
    }

    /// Whether this is a string without escapes, as nearly all strings are.
    #[inline]
    pub(crate) fn is_plain_string(self) -> bool {
        self.info & 15 == 4
    }

    /// The text of a string between its quotes.
    #[inline]
    fn quoted(self, text: &str) -> &str {
        &text[self.start as usize + 1..self.end as usize - 1]
    }

    /// Compares a string without escapes. Most lengths differ, and bytes need no check for character boundaries.
    #[inline]
    fn eq_plain(self, text: &str, expected: &[u8]) -> bool {
        self.len_bytes() as usize == expected.len() + 2
            && text.as_bytes()[self.start as usize + 1..self.end as usize - 1] == *expected
    }
}

/// A value in a scanned text.
#[derive(Clone, Copy)]
pub struct Node<'d> {
    pub(crate) text: &'d str,
    pub(crate) slots: &'d [Slot],
    pub(crate) index: u32,
}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.raw())
    }
}

impl<'d> Node<'d> {
    #[inline]
    fn slot(&self) -> Slot {
        self.slots[self.index as usize]
    }

    /// The index of this value on its tape; [`Doc::node`](crate::Doc::node) returns the node for it.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    #[inline]
    pub fn kind(&self) -> NodeKind {
        self.slot().kind()
    }

    /// The text of the value, byte for byte.
    #[inline]
    pub fn raw(&self) -> &'d str {
        self.slot().str(self.text)
    }

    /// The byte range of the value in the scanned text.
    #[inline]
    pub fn span(&self) -> std::ops::Range<usize> {
        let start = self.slot().start();
        start..start + self.slot().len_bytes() as usize
    }

    /// The number of values and keys of this value, itself included.
    #[inline]
    pub fn slot_count(&self) -> usize {
        self.slot().next() - self.index as usize
    }

    /// The number of members or elements; 0 for other kinds.
    #[inline]
    pub fn len(&self) -> usize {
        self.slot().len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn is_object(&self) -> bool {
        self.kind() == NodeKind::Object
    }

    /// The value of a string without escapes; `None` for other strings. Nearly all keys have no escapes.
    #[inline]
    pub fn plain_str(&self) -> Option<&'d str> {
        let slot = self.slot();
        if slot.is_plain_string() { Some(slot.quoted(self.text)) } else { None }
    }

    /// The value of a string; borrowed unless it has escapes.
    #[inline]
    pub fn str(&self) -> Option<Cow<'d, str>> {
        let slot = self.slot();
        if slot.is_plain_string() {
            return Some(Cow::Borrowed(slot.quoted(self.text)));
        }
        if slot.kind() == NodeKind::String { Some(unescape(slot.str(self.text))) } else { None }
    }

    pub fn bool(&self) -> Option<bool> {
        match self.kind() {
            NodeKind::True => Some(true),
            NodeKind::False => Some(false),
            _ => None,
        }
    }

    /// Whether this is a number without fraction and exponent, of any size.
    #[inline]
    pub fn is_plain_integer(&self) -> bool {
        let slot = self.slot();
        slot.kind() == NodeKind::Number && !slot.is_complex()
    }

    pub fn u64(&self) -> Option<u64> {
        if self.is_plain_integer() { self.raw().parse().ok() } else { None }
    }

    /// The exact value of a number.
    pub fn decimal(&self) -> Option<Decimal<'d>> {
        if self.kind() == NodeKind::Number { Decimal::parse(self.raw()) } else { None }
    }

    /// Whether this is a string equal to `expected`.
    #[inline]
    pub fn eq_str(&self, expected: &str) -> bool {
        let slot = self.slot();
        if slot.is_plain_string() {
            return slot.eq_plain(self.text, expected.as_bytes());
        }
        slot.kind() == NodeKind::String && unescape(slot.str(self.text)) == expected
    }

    /// The member with this key; `None` if this is not an object or has no such member.
    #[inline]
    pub fn get(&self, key: &str) -> Option<Node<'d>> {
        self.members().find(|(k, _)| k.eq_str(key)).map(|(_, v)| v)
    }

    /// Keys and values of an object, in source order; empty for other kinds.
    #[inline]
    pub fn members(&self) -> Members<'d> {
        let slot = self.slot();
        let end = if slot.kind() == NodeKind::Object { slot.next() as u32 } else { 0 };
        Members { node: Node { index: self.index + 1, ..*self }, end }
    }

    /// The elements of an array; empty for other kinds.
    #[inline]
    pub fn elements(&self) -> Elements<'d> {
        let slot = self.slot();
        let end = if slot.kind() == NodeKind::Array { slot.next() as u32 } else { 0 };
        Elements { node: Node { index: self.index + 1, ..*self }, end }
    }

    /// Writes a form that does not depend on white space, on the order of members or on escapes: for digests.
    /// Numbers are copied byte for byte.
    pub fn write_canonical(&self, out: &mut Vec<u8>) {
        match self.kind() {
            NodeKind::Array => {
                write::array(out, self.elements(), |out, element| element.write_canonical(out))
            }
            NodeKind::Object => {
                let mut members: Vec<_> =
                    self.members().map(|(key, value)| (key.str().unwrap_or_default(), value)).collect();
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                out.push(b'{');
                for (i, (key, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write::string(out, key);
                    out.push(b':');
                    value.write_canonical(out);
                }
                out.push(b'}');
            }
            NodeKind::String => write::string(out, &self.str().unwrap_or_default()),
            NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Number => {
                out.extend_from_slice(self.raw().as_bytes());
            }
        }
    }

    /// Writes the value on one line, without white space between its parts.
    ///
    /// Strings and numbers are copied byte for byte. A scanned string contains no raw line break.
    pub fn write_compact(&self, out: &mut Vec<u8>) {
        let raw = self.raw().as_bytes();
        match self.kind() {
            NodeKind::Array => {
                out.push(b'[');
                for (i, element) in self.elements().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    element.write_compact(out);
                }
                out.push(b']');
            }
            NodeKind::Object => {
                out.push(b'{');
                for (i, (key, value)) in self.members().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(key.raw().as_bytes());
                    out.push(b':');
                    value.write_compact(out);
                }
                out.push(b'}');
            }
            NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Number | NodeKind::String => {
                out.extend_from_slice(raw);
            }
        }
    }
}

/// See [`Node::members`].
pub struct Members<'d> {
    node: Node<'d>,
    end: u32,
}

impl<'d> Iterator for Members<'d> {
    type Item = (Node<'d>, Node<'d>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.node.index >= self.end {
            return None;
        }
        let key = self.node;
        let value = Node { index: key.index + 1, ..key };
        self.node.index = value.slot().next() as u32;
        Some((key, value))
    }
}

/// See [`Node::elements`].
pub struct Elements<'d> {
    node: Node<'d>,
    end: u32,
}

impl<'d> Iterator for Elements<'d> {
    type Item = Node<'d>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.node.index >= self.end {
            return None;
        }
        let element = self.node;
        self.node.index = element.slot().next() as u32;
        Some(element)
    }
}

/// The value of a scanned string. `raw` includes the quotes.
pub(crate) fn unescape(raw: &str) -> Cow<'_, str> {
    let inner = &raw[1..raw.len() - 1];
    let Some(first) = memchr::memchr(b'\\', inner.as_bytes()) else { return Cow::Borrowed(inner) };
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    let mut next = Some(first);
    while let Some(offset) = next {
        out.push_str(&rest[..offset]);
        rest = &rest[offset..];
        let (value, used) = decode_escape(rest);
        out.push(value);
        rest = &rest[used..];
        next = memchr::memchr(b'\\', rest.as_bytes());
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Decodes the escape at the start of `text`: the character, and the length of the escape in bytes.
fn decode_escape(text: &str) -> (char, usize) {
    let unit = |offset: usize| {
        u32::from_str_radix(&text[offset + 2..offset + 6], 16)
            .expect("the parser checked the four hex digits")
    };
    match text.as_bytes()[1] {
        b'b' => ('\u{8}', 2),
        b'f' => ('\u{c}', 2),
        b'n' => ('\n', 2),
        b'r' => ('\r', 2),
        b't' => ('\t', 2),
        b'u' => {
            let high = unit(0);
            let (value, used) = match high {
                0xD800..0xDC00 => (0x10000 + ((high - 0xD800) << 10) + (unit(6) - 0xDC00), 12),
                _ => (high, 6),
            };
            (char::from_u32(value).expect("the parser checked the surrogate pair"), used)
        }
        same => (same as char, 2),
    }
}
