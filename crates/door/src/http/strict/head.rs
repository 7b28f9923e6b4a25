//! The head of a request, a line at a time: how long what follows it is.

use super::chunks::Chunks;
use super::{At, Seen};

pub(super) struct Head {
    /// The beginning of the line under way, as far as it matters.
    line: [u8; LINE],
    line_bytes: usize,
    last: u8,
    lines: usize,
    is_ascii: bool,
    length: Option<u64>,
    has_coding: bool,
    has_upgrade: bool,
}

const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
const UPGRADE: &[u8] = b"upgrade:";

/// A length fits into this, with some blanks.
const LINE: usize = 48;

struct Offence;

impl Head {
    pub(super) const START: Self = Self {
        line: [0; LINE],
        line_bytes: 0,
        last: 0,
        lines: 0,
        is_ascii: true,
        length: None,
        has_coding: false,
        has_upgrade: false,
    };

    pub(super) fn look(&mut self, bytes: &mut [u8]) -> Seen {
        let mut start = 0;
        while let Some(at) = memchr::memchr(b'\n', &bytes[start..]) {
            let end = start + at;
            let before = if end == 0 { self.last } else { bytes[end - 1] };
            self.begins(&bytes[start..end]);
            let over = if before == b'\r' { self.line_over() } else { Err(Offence) };
            match over {
                Ok(None) => start = end + 1,
                Ok(Some(next)) => return Seen::Until(end + 1, next),
                Err(Offence) => {
                    // No head can have this.
                    bytes[end] = 0;
                    return Seen::Offence;
                }
            }
        }
        if let Some(last) = bytes.last() {
            self.last = *last;
            self.begins(&bytes[start..]);
        }
        Seen::All
    }

    /// Notes what there is of a line.
    #[inline]
    fn begins(&mut self, bytes: &[u8]) {
        let room = self.line.get_mut(self.line_bytes..).unwrap_or_default();
        let kept = room.len().min(bytes.len());
        room[..kept].copy_from_slice(&bytes[..kept]);
        self.line_bytes += bytes.len();
        if self.lines == 0 {
            self.is_ascii &= bytes.is_ascii();
        }
    }

    /// A line is complete: what comes behind it, if that is not another.
    #[inline]
    fn line_over(&mut self) -> Result<Option<At>, Offence> {
        let bytes = std::mem::take(&mut self.line_bytes);
        let line = &self.line[..bytes.min(LINE)];
        if line == b"\r" {
            // Empty lines before a request are passed over; the one behind it ends it.
            return Ok((self.lines > 0).then(|| self.behind()));
        }
        self.lines += 1;
        match line.first() {
            // RFC 9112, 3.2: a target that is not ASCII is none.
            _ if self.lines == 1 && !self.is_ascii => return Err(Offence),
            Some(b'c' | b'C') if starts(line, LENGTH) => {
                let length = if bytes > LINE { None } else { number(&line[LENGTH.len()..]) };
                // RFC 9112, 6.3: what is no number is an error, and so may be one that comes twice.
                if self.length.replace(length.ok_or(Offence)?).is_some() {
                    return Err(Offence);
                }
            }
            Some(b't' | b'T') => self.has_coding |= starts(line, CODING),
            Some(b'u' | b'U') => self.has_upgrade |= starts(line, UPGRADE),
            _ => {}
        }
        if self.length.is_some() && self.has_coding { Err(Offence) } else { Ok(None) }
    }

    fn behind(&self) -> At {
        match self.length {
            _ if self.has_upgrade => At::Beyond,
            // Another coding than this one hyper does not take.
            _ if self.has_coding => At::Chunks(Chunks::START),
            Some(1..) => At::Body(self.length.unwrap_or_default()),
            Some(0) | None => At::START,
        }
    }
}

fn starts(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

fn number(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let is_number = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}
