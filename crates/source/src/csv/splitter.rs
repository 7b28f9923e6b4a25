//! Splits text into fields and records: RFC 4180, and common deviations from it.
//!
//! A quote is special only where a field begins; elsewhere it is an ordinary character. Text after a closing quote
//! belongs to the field. `\n`, `\r\n` and `\r` end a record; blank lines are not records.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

/// Splits at one delimiter.
pub(super) struct FieldSplitter {
    pub(super) delimiter: u8,
    /// The bytes that end a field, each repeated eight times.
    end_patterns: [u64; 3],
}

/// The position of one field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) text_start: usize,
    pub(super) text_end: usize,
    form: FieldForm,
    /// Where the next field or record starts.
    pub(super) next: usize,
    pub(super) terminator: Terminator,
}

#[derive(Debug, Clone, Copy)]
enum FieldForm {
    /// The text is in the file verbatim, possibly between quotes.
    Plain,
    /// The span includes the quotes, because the text contains quotes or goes on after the closing one.
    Escaped,
}

/// What ended a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Terminator {
    Delimiter,
    RecordEnd,
    /// The end of the text, inside quotes.
    UnclosedQuote,
}

impl FieldSplitter {
    /// `delimiter` is neither a quote nor a line end.
    pub(super) fn new(delimiter: u8) -> Self {
        let end_patterns = [delimiter, b'\n', b'\r'].map(|byte| u64::from_le_bytes([byte; 8]));
        Self { delimiter, end_patterns }
    }

    /// The field that starts at `at`.
    #[inline(always)]
    pub(super) fn field_at(&self, text: &[u8], at: usize) -> Field {
        if text.get(at) == Some(&b'"') {
            return self.parse_quoted(text, at);
        }
        let to = self.unquoted_end(text, at);
        self.with_terminator(
            text,
            to,
            Field {
                text_start: at,
                text_end: to,
                form: FieldForm::Plain,
                next: to,
                terminator: Terminator::RecordEnd,
            },
        )
    }

    fn parse_quoted(&self, text: &[u8], from: usize) -> Field {
        let mut at = from + 1;
        let mut form = FieldForm::Plain;
        loop {
            let Some(ahead) = memchr(b'"', &text[at..]) else {
                let to = text.len();
                return Field {
                    text_start: from,
                    text_end: to,
                    form: FieldForm::Escaped,
                    next: to,
                    terminator: Terminator::UnclosedQuote,
                };
            };
            at += ahead + 1;
            if text.get(at) != Some(&b'"') {
                break;
            }
            form = FieldForm::Escaped;
            at += 1;
        }
        let to = self.unquoted_end(text, at);
        let field = match form {
            FieldForm::Plain if to == at => Field {
                text_start: from + 1,
                text_end: to - 1,
                form,
                next: to,
                terminator: Terminator::RecordEnd,
            },
            _ => Field {
                text_start: from,
                text_end: to,
                form: FieldForm::Escaped,
                next: to,
                terminator: Terminator::RecordEnd,
            },
        };
        self.with_terminator(text, to, field)
    }

    /// Where an unquoted field ends. Compares eight bytes at a time: fields are too short for a call of `memchr` to
    /// pay.
    #[inline(always)]
    fn unquoted_end(&self, text: &[u8], mut at: usize) -> usize {
        while let Some(bytes) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*bytes);
            let ends = self.end_patterns.iter().fold(0, |found, end| found | zero_bytes(word ^ end));
            if ends != 0 {
                return at + ends.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        let is_end = |byte: &u8| *byte == self.delimiter || matches!(byte, b'\n' | b'\r');
        text[at..].iter().position(is_end).map_or(text.len(), |ahead| at + ahead)
    }

    #[inline(always)]
    fn with_terminator(&self, text: &[u8], to: usize, field: Field) -> Field {
        match text.get(to) {
            Some(byte) if *byte == self.delimiter => {
                Field { next: to + 1, terminator: Terminator::Delimiter, ..field }
            }
            Some(b'\r') if text.get(to + 1) == Some(&b'\n') => Field { next: to + 2, ..field },
            Some(_) => Field { next: to + 1, ..field },
            None => field,
        }
    }
}

impl Field {
    /// The field's text, if the file holds it verbatim.
    #[inline]
    pub(super) fn as_plain(self, whole: &str) -> Option<&str> {
        match self.form {
            FieldForm::Plain => Some(&whole[self.text_start..self.text_end]),
            FieldForm::Escaped => None,
        }
    }

    /// The span of the field that starts at `begin`, with its quotes.
    pub(super) fn raw_span(self, begin: usize) -> Range<usize> {
        begin..if self.text_start > begin { self.text_end + 1 } else { self.text_end }
    }

    /// The field's text.
    #[inline]
    pub(super) fn text(self, whole: &str) -> Cow<'_, str> {
        match self.as_plain(whole) {
            Some(text) => Cow::Borrowed(text),
            None => {
                let mut out = String::with_capacity(self.text_end - self.text_start);
                self.unescape(whole, &mut out);
                Cow::Owned(out)
            }
        }
    }

    /// The field's text; uses `scratch` if it has to be unescaped.
    #[inline]
    pub(super) fn text_with_scratch<'a>(self, whole: &'a str, scratch: &'a mut String) -> &'a str {
        match self.as_plain(whole) {
            Some(text) => text,
            None => {
                scratch.clear();
                self.unescape(whole, scratch);
                scratch
            }
        }
    }

    /// Appends the text of an escaped field to `out`.
    pub(super) fn unescape(self, whole: &str, out: &mut String) {
        let mut rest = &whole[self.text_start + 1..self.text_end];
        while let Some((before, behind)) = rest.split_once('"') {
            out.push_str(before);
            match behind.strip_prefix('"') {
                Some(behind) => {
                    out.push('"');
                    rest = behind;
                }
                // The closing quote. Later quotes are ordinary characters.
                None => {
                    rest = behind;
                    break;
                }
            }
        }
        out.push_str(rest);
    }
}

/// The highest bit of the lowest zero byte, and perhaps of others above it.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Where the next record starts, after blank lines.
#[inline]
pub(super) fn skip_blank_lines(text: &[u8], mut at: usize) -> usize {
    while let Some(b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}
