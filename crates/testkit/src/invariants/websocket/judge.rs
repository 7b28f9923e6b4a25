//! RFC 6455 once more, as a reader of all that a client has sent: what a server heard, and how it has to end.

/// Written without a thought for speed, and apart from the library that it judges.
pub(super) struct Judge {
    message_bytes_max: usize,
    /// Of a frame that is not complete.
    bytes: Vec<u8>,
    /// What a message in pieces is made of so far.
    pieces: Option<(Kind, Vec<u8>)>,
    pub(super) heard: Vec<Heard>,
    pub(super) verdict: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Text(Vec<u8>),
    Ping(Vec<u8>),
}

/// The codes with which a server closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    GoesOn,
    /// What is wrong with a frame may show before all of it is there.
    MayEnd(Vec<u16>),
    MustEnd(Vec<u16>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
}

/// A code of its own for a goodbye without one, as RFC 6455, 7.1.5 has it.
pub(super) const NO_CODE: u16 = 1005;

const PROTOCOL: u16 = 1002;
const UNSUPPORTED: u16 = 1003;
const INVALID: u16 = 1007;
const SIZE: u16 = 1009;

struct Head {
    first: u8,
    mask: Option<[u8; 4]>,
    payload: usize,
    length: u64,
}

impl Judge {
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            bytes: Vec::new(),
            pieces: None,
            heard: Vec::new(),
            verdict: Verdict::GoesOn,
        }
    }

    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while !self.must_end()
            && let Some(head) = head(&self.bytes)
        {
            let mut wrong = self.wrong(&head);
            let end = usize::try_from(head.length).ok().and_then(|length| head.payload.checked_add(length));
            let Some(end) = end.filter(|end| *end <= self.bytes.len()) else {
                // So long a frame is not waited for.
                let is_too_long = head.length > self.message_bytes_max as u64;
                self.verdict = match (wrong.is_empty(), is_too_long) {
                    (true, _) => Verdict::GoesOn,
                    (false, true) => Verdict::MustEnd(wrong),
                    (false, false) => Verdict::MayEnd(wrong),
                };
                return;
            };
            let frame: Vec<u8> = self.bytes.drain(..end).collect();
            let mask = head.mask.unwrap_or_default();
            let payload = frame[head.payload..].iter().zip(mask.iter().cycle());
            if wrong.is_empty() {
                wrong = self.take(head.first, payload.map(|(byte, mask)| byte ^ mask).collect());
            }
            self.verdict = if wrong.is_empty() { Verdict::GoesOn } else { Verdict::MustEnd(wrong) };
        }
    }

    pub(super) fn must_end(&self) -> bool {
        matches!(self.verdict, Verdict::MustEnd(_))
    }

    /// Whether nothing has begun: neither a frame nor a message.
    pub(super) fn is_between(&self) -> bool {
        self.is_between_frames() && self.pieces.is_none()
    }

    pub(super) fn is_between_frames(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What the head of a frame alone shows.
    fn wrong(&self, head: &Head) -> Vec<u16> {
        let (is_last, kind) = (head.first & 0x80 != 0, head.first & 0x0f);
        let held = self.pieces.as_ref().map_or(0, |(_, held)| held.len() as u64);
        let mut wrong = Vec::new();
        // 5.2: reserved bits MUST be 0; 5.1: a server MUST close upon a frame that is not masked.
        let mut breaks = head.first & 0x70 != 0 || head.mask.is_none();
        match kind {
            0x0 => breaks |= self.pieces.is_none(),
            0x1 | 0x2 => breaks |= self.pieces.is_some(),
            // 5.5: control frames have 125 bytes at most and MUST NOT be fragmented.
            0x8..=0xa => breaks |= !is_last || head.length > 125,
            _ => breaks = true,
        }
        if breaks {
            wrong.push(PROTOCOL);
        }
        let whole = if kind < 0x8 { held.saturating_add(head.length) } else { head.length };
        if whole > self.message_bytes_max as u64 {
            wrong.push(SIZE);
        }
        wrong
    }

    fn take(&mut self, first: u8, payload: Vec<u8>) -> Vec<u16> {
        let kind = match first & 0x0f {
            0x8 => return goodbye(&payload),
            0x9 => {
                self.heard.push(Heard::Ping(payload));
                return Vec::new();
            }
            0xa => return Vec::new(),
            0x1 => Kind::Text,
            _ => Kind::Binary,
        };
        let (kind, mut message) = self.pieces.take().unwrap_or((kind, Vec::new()));
        message.extend(payload);
        let is_last = first & 0x80 != 0;
        let is_text = match std::str::from_utf8(&message) {
            Ok(_) => true,
            // Half a character may become one.
            Err(error) => error.error_len().is_none() && !is_last,
        };
        match (kind, is_last) {
            (Kind::Text, _) if !is_text => return vec![INVALID],
            (Kind::Binary, true) => return vec![UNSUPPORTED],
            (Kind::Text, true) => self.heard.push(Heard::Text(message)),
            (Kind::Text | Kind::Binary, false) => self.pieces = Some((kind, message)),
        }
        Vec::new()
    }
}

/// 7.4: what is said back to a goodbye.
fn goodbye(payload: &[u8]) -> Vec<u16> {
    match payload {
        [] => vec![NO_CODE],
        [_] => vec![PROTOCOL],
        [high, low, why @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            let mut codes = match code {
                1000..=1003 | 1007..=1013 | 3000..=4999 => vec![code],
                // Given since, to gateways; not every library knows.
                1014 => vec![code, PROTOCOL],
                _ => vec![PROTOCOL],
            };
            if std::str::from_utf8(why).is_err() {
                codes.retain(|code| *code == PROTOCOL);
                codes.push(INVALID);
            }
            codes
        }
    }
}

/// 5.2. `None` as long as it is not complete.
fn head(bytes: &[u8]) -> Option<Head> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let (length, behind) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?)), 4),
        127 => (u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?), 10),
        short => (u64::from(short), 2),
    };
    if second & 0x80 == 0 {
        return Some(Head { first, mask: None, payload: behind, length });
    }
    let mask = *bytes.get(behind..)?.first_chunk()?;
    Some(Head { first, mask: Some(mask), payload: behind + 4, length })
}
