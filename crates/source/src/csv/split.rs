//! Where fields and records end: RFC 4180, and what files in the wild make of it.
//!
//! A quote means something only where a field begins; elsewhere it is a character. What follows a closing
//! quote belongs to the field. `\n`, `\r\n` and `\r` end a record; blank lines are no records.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

/// Knows what ends a field that is not quoted.
pub(super) struct Split {
    pub(super) delimiter: u8,
    /// What ends a field, eight times each.
    ends: [u64; 3],
}

/// One field where it lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) from: usize,
    pub(super) to: usize,
    form: Form,
    /// Where the next field or record begins.
    pub(super) next: usize,
    pub(super) end: End,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// As it stands, or between its quotes.
    Plain,
    /// With its quotes, because there are some within or something behind them.
    Escaped,
}

/// What ended a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Delimiter,
    Record,
    /// Nothing: the text ended within quotes.
    Open,
}

impl Split {
    /// Fields between `delimiter`, which is neither a quote nor a line's end.
    pub(super) fn new(delimiter: u8) -> Self {
        let ends = [delimiter, b'\n', b'\r'].map(|byte| u64::from_le_bytes([byte; 8]));
        Self { delimiter, ends }
    }

    /// The field that begins at `at`.
    #[inline(always)]
    pub(super) fn field(&self, text: &[u8], at: usize) -> Field {
        if text.get(at) == Some(&b'"') {
            return self.quoted(text, at);
        }
        let to = self.run(text, at);
        self.ended(text, to, Field { from: at, to, form: Form::Plain, next: to, end: End::Record })
    }

    fn quoted(&self, text: &[u8], from: usize) -> Field {
        let mut at = from + 1;
        let mut form = Form::Plain;
        loop {
            let Some(ahead) = memchr(b'"', &text[at..]) else {
                let to = text.len();
                return Field { from, to, form: Form::Escaped, next: to, end: End::Open };
            };
            at += ahead + 1;
            if text.get(at) != Some(&b'"') {
                break;
            }
            form = Form::Escaped;
            at += 1;
        }
        let to = self.run(text, at);
        let field = match form {
            Form::Plain if to == at => Field { from: from + 1, to: to - 1, form, next: to, end: End::Record },
            _ => Field { from, to, form: Form::Escaped, next: to, end: End::Record },
        };
        self.ended(text, to, field)
    }

    /// Where a field that is not quoted ends. Eight bytes at a time: fields are too short for a call of `memchr`
    /// to pay.
    #[inline(always)]
    fn run(&self, text: &[u8], mut at: usize) -> usize {
        while let Some(bytes) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*bytes);
            let ends = self.ends.iter().fold(0, |found, end| found | zeros(word ^ end));
            if ends != 0 {
                return at + ends.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        let is_end = |byte: &u8| *byte == self.delimiter || matches!(byte, b'\n' | b'\r');
        text[at..].iter().position(is_end).map_or(text.len(), |ahead| at + ahead)
    }

    #[inline(always)]
    fn ended(&self, text: &[u8], to: usize, field: Field) -> Field {
        match text.get(to) {
            Some(byte) if *byte == self.delimiter => Field { next: to + 1, end: End::Delimiter, ..field },
            Some(b'\r') if text.get(to + 1) == Some(&b'\n') => Field { next: to + 2, ..field },
            Some(_) => Field { next: to + 1, ..field },
            None => field,
        }
    }
}

impl Field {
    /// What the field says, if it stands there as it is.
    #[inline]
    pub(super) fn plain(self, whole: &str) -> Option<&str> {
        match self.form {
            Form::Plain => Some(&whole[self.from..self.to]),
            Form::Escaped => None,
        }
    }

    /// Where a field that begins at `begin` stands, with its quotes.
    pub(super) fn whole(self, begin: usize) -> Range<usize> {
        begin..if self.from > begin { self.to + 1 } else { self.to }
    }

    /// What the field says.
    #[inline]
    pub(super) fn text(self, whole: &str) -> Cow<'_, str> {
        match self.plain(whole) {
            Some(text) => Cow::Borrowed(text),
            None => {
                let mut out = String::with_capacity(self.to - self.from);
                self.unescape(whole, &mut out);
                Cow::Owned(out)
            }
        }
    }

    /// What the field says, in `scratch` where it has to be made.
    #[inline]
    pub(super) fn text_in<'a>(self, whole: &'a str, scratch: &'a mut String) -> &'a str {
        match self.plain(whole) {
            Some(text) => text,
            None => {
                scratch.clear();
                self.unescape(whole, scratch);
                scratch
            }
        }
    }

    /// Writes what a field that is not plain says behind `out`.
    pub(super) fn unescape(self, whole: &str, out: &mut String) {
        let mut rest = &whole[self.from + 1..self.to];
        while let Some((before, behind)) = rest.split_once('"') {
            out.push_str(before);
            match behind.strip_prefix('"') {
                Some(behind) => {
                    out.push('"');
                    rest = behind;
                }
                // The closing quote. Quotes behind it are characters.
                None => {
                    rest = behind;
                    break;
                }
            }
        }
        out.push_str(rest);
    }
}

/// The highest bit of the lowest byte that is zero, and perhaps of others above it.
#[inline]
fn zeros(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Where the next record begins: behind blank lines.
#[inline]
pub(super) fn behind_blanks(text: &[u8], mut at: usize) -> usize {
    while let Some(b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}
