//! The head of a request, a line at a time: how long what follows it is.

use super::chunks::Chunks;
use super::{At, Seen};

pub(super) struct Head {
    cut: Cut,
    lines: usize,
    length: Option<u64>,
    has_coding: bool,
    has_upgrade: bool,
}

/// What came already of a line that came in pieces.
struct Cut {
    /// Its beginning, as far as it matters.
    line: [u8; LINE_BYTES_MAX],
    bytes: usize,
    last: u8,
    is_ascii: bool,
}

const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
const UPGRADE: &[u8] = b"upgrade:";

/// A length fits into this, with some blanks.
const LINE_BYTES_MAX: usize = 48;

struct Offence;

impl Head {
    pub(super) const START: Self =
        Self { cut: Cut::NOTHING, lines: 0, length: None, has_coding: false, has_upgrade: false };

    pub(super) fn look(&mut self, bytes: &mut [u8]) -> Seen {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let line = &bytes[start..end];
            start = end + 1;
            // Most lines are whole, and none of those that matter.
            if let [first, .., b'\r'] = line
                && !may_matter(*first)
                && self.lines > 0
                && self.cut.bytes == 0
            {
                continue;
            }
            match self.line_over(line) {
                Ok(false) => {}
                Ok(true) => return Seen::Until(start, self.behind()),
                Err(Offence) => {
                    // No head can have this.
                    bytes[end] = 0;
                    return Seen::Offence;
                }
            }
        }
        self.cut.add(&bytes[start..]);
        Seen::All
    }

    /// A line is complete, of which this came now: whether it is the last.
    fn line_over(&mut self, now: &[u8]) -> Result<bool, Offence> {
        if self.cut.bytes == 0 {
            let is_ascii = self.lines > 0 || now.is_ascii();
            return self.line(now, now.len(), now.last() == Some(&b'\r'), is_ascii);
        }
        self.cut.add(now);
        let Cut { line, bytes, last, is_ascii } = std::mem::replace(&mut self.cut, Cut::NOTHING);
        self.line(&line[..bytes.min(LINE_BYTES_MAX)], bytes, last == b'\r', is_ascii)
    }

    /// A line of so many bytes, or at least how it begins.
    fn line(&mut self, line: &[u8], bytes: usize, has_return: bool, is_ascii: bool) -> Result<bool, Offence> {
        if !has_return {
            return Err(Offence);
        }
        if bytes == 1 {
            // Empty lines before a request are passed over; the one behind it ends it.
            return Ok(self.lines > 0);
        }
        self.lines += 1;
        // RFC 9112, 3.2: a target that is not ASCII is none.
        if self.lines == 1 && !is_ascii {
            return Err(Offence);
        }
        match line[0] | 0x20 {
            b'c' => {
                if let Some(value) = value(line, LENGTH) {
                    let length = if bytes > LINE_BYTES_MAX { None } else { number(value) };
                    // RFC 9112, 6.3: what is no number is an error, and so may be one that comes twice.
                    if self.length.replace(length.ok_or(Offence)?).is_some() {
                        return Err(Offence);
                    }
                }
            }
            b't' => self.has_coding |= value(line, CODING).is_some(),
            b'u' => self.has_upgrade |= value(line, UPGRADE).is_some(),
            _ => {}
        }
        if self.length.is_some() && self.has_coding { Err(Offence) } else { Ok(false) }
    }

    fn behind(&self) -> At {
        match self.length {
            _ if self.has_upgrade => At::Beyond,
            // Another coding than this one hyper does not take.
            _ if self.has_coding => At::Chunks(Chunks::START),
            Some(length @ 1..) => At::Body(length),
            Some(0) | None => At::START,
        }
    }
}

impl Cut {
    const NOTHING: Self = Self { line: [0; LINE_BYTES_MAX], bytes: 0, last: 0, is_ascii: true };

    fn add(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        let room = self.line.get_mut(self.bytes..).unwrap_or_default();
        let kept = room.len().min(bytes.len());
        room[..kept].copy_from_slice(&bytes[..kept]);
        self.bytes += bytes.len();
        self.last = *last;
        self.is_ascii &= bytes.is_ascii();
    }
}

/// Whether one of the headers that matter begins with this.
#[inline]
fn may_matter(first: u8) -> bool {
    matches!(first | 0x20, b'c' | b't' | b'u')
}

/// What stands behind the name, if the line has it, in whatever case. No name has a byte that this takes for `-` or
/// `:`, or hyper does not take it.
#[inline]
fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.iter().zip(name).all(|(byte, wanted)| byte | 0x20 == *wanted).then_some(value)
}

/// Digits, with blanks around them.
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let next = |number: u64, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    };
    digits.iter().try_fold(0, next).filter(|_| !digits.is_empty())
}
