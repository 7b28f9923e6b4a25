//! Reads the head of a request line by line, to learn where it ends and how its body is framed.
//!
//! This is the only definition of both: hyper's stream and the fast path read every head with it.

use super::chunked::ChunkedBody;
use super::{ParseStep, ParserState};

pub(in crate::http) struct RequestHead {
    partial_line: PartialLine,
    line_count: usize,
    content_length: Option<u64>,
    has_transfer_encoding: bool,
    has_upgrade: bool,
}

/// The first part of a line that arrived in several reads.
struct PartialLine {
    /// Its first bytes, enough for the headers that matter.
    prefix: [u8; LINE_BYTES_MAX],
    len: usize,
    last_byte: u8,
    is_ascii: bool,
}

const CONTENT_LENGTH: &[u8] = b"content-length:";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";
const UPGRADE: &[u8] = b"upgrade:";

/// Enough for a `Content-Length` line with some whitespace. A longer one is refused.
const LINE_BYTES_MAX: usize = 48;

struct Violation;

/// What a part of a head turned out to be.
pub(in crate::http) enum HeadScan {
    /// The head goes on.
    Incomplete,
    /// The head ends after this many bytes.
    Complete { bytes: usize, framing: BodyFraming },
    /// The line that ends here makes the request ambiguous.
    Violation { at: usize },
}

/// What comes after a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum BodyFraming {
    /// Neither a length nor a coding: no body.
    None,
    Length(u64),
    Chunked,
    /// Another protocol, or the end of the connection.
    Upgrade,
}

impl RequestHead {
    pub(in crate::http) const START: Self = Self {
        partial_line: PartialLine::EMPTY,
        line_count: 0,
        content_length: None,
        has_transfer_encoding: false,
        has_upgrade: false,
    };

    /// Reads the next bytes of the head, which may be all of it.
    pub(in crate::http) fn scan(&mut self, bytes: &[u8]) -> HeadScan {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let line = &bytes[start..end];
            start = end + 1;
            // The fast path: a complete line that is none of the relevant headers.
            if let [first, .., b'\r'] = line
                && !may_start_relevant_header(*first)
                && self.line_count > 0
                && self.partial_line.len == 0
            {
                continue;
            }
            match self.finish_line(line) {
                Ok(false) => {}
                Ok(true) => return HeadScan::Complete { bytes: start, framing: self.framing() },
                Err(Violation) => return HeadScan::Violation { at: end },
            }
        }
        self.partial_line.push(&bytes[start..]);
        HeadScan::Incomplete
    }

    pub(super) fn inspect(&mut self, bytes: &mut [u8]) -> ParseStep {
        match self.scan(bytes) {
            HeadScan::Incomplete => ParseStep::ConsumedAll,
            HeadScan::Complete { bytes, framing } => ParseStep::Transition(
                bytes,
                match framing {
                    BodyFraming::Upgrade => ParserState::PassThrough,
                    BodyFraming::Chunked => ParserState::Chunks(ChunkedBody::START),
                    BodyFraming::Length(length @ 1..) => ParserState::Body(length),
                    BodyFraming::Length(0) | BodyFraming::None => ParserState::START,
                },
            ),
            HeadScan::Violation { at } => {
                // A NUL is invalid in a head.
                bytes[at] = 0;
                ParseStep::Violation
            }
        }
    }

    /// Completes a line with its last part. Returns whether it ends the head.
    fn finish_line(&mut self, rest: &[u8]) -> Result<bool, Violation> {
        if self.partial_line.len == 0 {
            let is_ascii = self.line_count > 0 || rest.is_ascii();
            return self.check_line(rest, rest.len(), rest.last() == Some(&b'\r'), is_ascii);
        }
        self.partial_line.push(rest);
        let PartialLine { prefix: line, len: bytes, last_byte: last, is_ascii } =
            std::mem::replace(&mut self.partial_line, PartialLine::EMPTY);
        self.check_line(&line[..bytes.min(LINE_BYTES_MAX)], bytes, last == b'\r', is_ascii)
    }

    /// Checks a line of `bytes` bytes, of which `line` is at least the start.
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
            // Empty lines before a request are skipped; an empty line after headers ends the head.
            return Ok(self.line_count > 0);
        }
        self.line_count += 1;
        // RFC 9112, 3.2: a request target is ASCII.
        if self.line_count == 1 && !is_ascii {
            return Err(Violation);
        }
        match line[0] | 0x20 {
            b'c' => {
                if let Some(value) = header_value(line, CONTENT_LENGTH) {
                    let length = if bytes > LINE_BYTES_MAX { None } else { parse_decimal(value) };
                    // RFC 9112, 6.3: an invalid length is an error, and a repeated one may be.
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

    fn framing(&self) -> BodyFraming {
        match self.content_length {
            _ if self.has_upgrade => BodyFraming::Upgrade,
            // hyper refuses every other coding.
            _ if self.has_transfer_encoding => BodyFraming::Chunked,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::None,
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

/// Whether a relevant header can start with this byte.
#[inline]
fn may_start_relevant_header(first: u8) -> bool {
    matches!(first | 0x20, b'c' | b't' | b'u')
}

/// The value, if the line is this header in any case. `| 0x20` also maps other bytes to `-` and `:`, but hyper refuses
/// header names with those bytes.
#[inline]
fn header_value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.iter().zip(name).all(|(byte, wanted)| byte | 0x20 == *wanted).then_some(value)
}

/// How many digits a `Content-Length` line may have, if one that has `digits` of them is `line_bytes` long, with its CR.
pub(in crate::http) fn length_digits_max(line_bytes: usize, digits: usize) -> usize {
    LINE_BYTES_MAX.saturating_sub(line_bytes - digits)
}

/// A decimal number with optional whitespace around it.
fn parse_decimal(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let next = |number: u64, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    };
    digits.iter().try_fold(0, next).filter(|_| !digits.is_empty())
}
