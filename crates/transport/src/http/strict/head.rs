//! The head of a request, a line at a time: how long what follows it is.

use super::chunked::ChunkedBody;
use super::{ParseStep, ParserState};

pub(super) struct RequestHead {
    partial_line: PartialLine,
    line_count: usize,
    content_length: Option<u64>,
    has_transfer_encoding: bool,
    has_upgrade: bool,
}

/// What came already of a line that came in pieces.
struct PartialLine {
    /// Its beginning, as far as it matters.
    prefix: [u8; LINE_BYTES_MAX],
    len: usize,
    last_byte: u8,
    is_ascii: bool,
}

const CONTENT_LENGTH: &[u8] = b"content-length:";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";
const UPGRADE: &[u8] = b"upgrade:";

/// A length fits into this, with some blanks.
const LINE_BYTES_MAX: usize = 48;

struct Violation;

impl RequestHead {
    pub(super) const START: Self = Self {
        partial_line: PartialLine::EMPTY,
        line_count: 0,
        content_length: None,
        has_transfer_encoding: false,
        has_upgrade: false,
    };

    pub(super) fn inspect(&mut self, bytes: &mut [u8]) -> ParseStep {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let line = &bytes[start..end];
            start = end + 1;
            // Most lines are whole, and none of those that matter.
            if let [first, .., b'\r'] = line
                && !may_start_relevant_header(*first)
                && self.line_count > 0
                && self.partial_line.len == 0
            {
                continue;
            }
            match self.finish_line(line) {
                Ok(false) => {}
                Ok(true) => return ParseStep::Transition(start, self.next_state()),
                Err(Violation) => {
                    // No head can have this.
                    bytes[end] = 0;
                    return ParseStep::Violation;
                }
            }
        }
        self.partial_line.push(&bytes[start..]);
        ParseStep::ConsumedAll
    }

    /// A line is complete, of which this came now: whether it is the last.
    fn finish_line(&mut self, now: &[u8]) -> Result<bool, Violation> {
        if self.partial_line.len == 0 {
            let is_ascii = self.line_count > 0 || now.is_ascii();
            return self.check_line(now, now.len(), now.last() == Some(&b'\r'), is_ascii);
        }
        self.partial_line.push(now);
        let PartialLine { prefix: line, len: bytes, last_byte: last, is_ascii } =
            std::mem::replace(&mut self.partial_line, PartialLine::EMPTY);
        self.check_line(&line[..bytes.min(LINE_BYTES_MAX)], bytes, last == b'\r', is_ascii)
    }

    /// A line of so many bytes, or at least how it begins.
    fn check_line(
        &mut self,
        line: &[u8],
        bytes: usize,
        has_return: bool,
        is_ascii: bool,
    ) -> Result<bool, Violation> {
        if !has_return {
            return Err(Violation);
        }
        if bytes == 1 {
            // Empty lines before a request are passed over; the one behind it ends it.
            return Ok(self.line_count > 0);
        }
        self.line_count += 1;
        // RFC 9112, 3.2: a target that is not ASCII is none.
        if self.line_count == 1 && !is_ascii {
            return Err(Violation);
        }
        match line[0] | 0x20 {
            b'c' => {
                if let Some(value) = header_value(line, CONTENT_LENGTH) {
                    let length = if bytes > LINE_BYTES_MAX { None } else { parse_decimal(value) };
                    // RFC 9112, 6.3: what is no number is an error, and so may be one that comes twice.
                    if self.content_length.replace(length.ok_or(Violation)?).is_some() {
                        return Err(Violation);
                    }
                }
            }
            b't' => self.has_transfer_encoding |= header_value(line, TRANSFER_ENCODING).is_some(),
            b'u' => self.has_upgrade |= header_value(line, UPGRADE).is_some(),
            _ => {}
        }
        if self.content_length.is_some() && self.has_transfer_encoding { Err(Violation) } else { Ok(false) }
    }

    fn next_state(&self) -> ParserState {
        match self.content_length {
            _ if self.has_upgrade => ParserState::PassThrough,
            // Another coding than this one hyper does not take.
            _ if self.has_transfer_encoding => ParserState::Chunks(ChunkedBody::START),
            Some(length @ 1..) => ParserState::Body(length),
            Some(0) | None => ParserState::START,
        }
    }
}

impl PartialLine {
    const EMPTY: Self = Self { prefix: [0; LINE_BYTES_MAX], len: 0, last_byte: 0, is_ascii: true };

    fn push(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        let room = self.prefix.get_mut(self.len..).unwrap_or_default();
        let kept = room.len().min(bytes.len());
        room[..kept].copy_from_slice(&bytes[..kept]);
        self.len += bytes.len();
        self.last_byte = *last;
        self.is_ascii &= bytes.is_ascii();
    }
}

/// Whether one of the headers that matter begins with this.
#[inline]
fn may_start_relevant_header(first: u8) -> bool {
    matches!(first | 0x20, b'c' | b't' | b'u')
}

/// What stands behind the name, if the line has it, in whatever case. No name has a byte that this takes for `-` or
/// `:`, or hyper does not take it.
#[inline]
fn header_value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.iter().zip(name).all(|(byte, wanted)| byte | 0x20 == *wanted).then_some(value)
}

/// Digits, with blanks around them.
fn parse_decimal(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let next = |number: u64, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    };
    digits.iter().try_fold(0, next).filter(|_| !digits.is_empty())
}
