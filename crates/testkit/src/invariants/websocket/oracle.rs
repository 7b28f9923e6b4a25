//! RFC 6455 once more, as a reader of everything a client has sent: what a server received, and how it must end.

/// Written for clarity, not for speed, and independent of the library it checks.
pub(super) struct WebSocketOracle {
    message_bytes_max: usize,
    /// An incomplete frame.
    bytes: Vec<u8>,
    /// The fragments of a message so far.
    fragments: Option<(MessageType, Vec<u8>)>,
    pub(super) received: Vec<ReceivedMessage>,
    pub(super) expected_close: ExpectedClose,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReceivedMessage {
    Text(Vec<u8>),
    Ping(Vec<u8>),
}

/// The codes with which a server closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpectedClose {
    StaysOpen,
    /// An error in a frame may show before the frame is complete.
    MayClose(Vec<u16>),
    MustClose(Vec<u16>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageType {
    Text,
    Binary,
}

/// The code for a close frame without one, as in RFC 6455, 7.1.5.
pub(super) const CLOSE_NO_STATUS: u16 = 1005;

const CLOSE_PROTOCOL_ERROR: u16 = 1002;
const CLOSE_UNSUPPORTED_DATA: u16 = 1003;
const CLOSE_INVALID_PAYLOAD: u16 = 1007;
const CLOSE_TOO_BIG: u16 = 1009;

struct FrameHeader {
    first: u8,
    mask: Option<[u8; 4]>,
    payload_offset: usize,
    length: u64,
}

impl WebSocketOracle {
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            bytes: Vec::new(),
            fragments: None,
            received: Vec::new(),
            expected_close: ExpectedClose::StaysOpen,
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while !self.must_close()
            && let Some(head) = parse_frame_header(&self.bytes)
        {
            let mut wrong = self.header_errors(&head);
            let end =
                usize::try_from(head.length).ok().and_then(|length| head.payload_offset.checked_add(length));
            let Some(end) = end.filter(|end| *end <= self.bytes.len()) else {
                // The server does not wait for so long a frame.
                let is_too_long = head.length > self.message_bytes_max as u64;
                self.expected_close = match (wrong.is_empty(), is_too_long) {
                    (true, _) => ExpectedClose::StaysOpen,
                    (false, true) => ExpectedClose::MustClose(wrong),
                    (false, false) => ExpectedClose::MayClose(wrong),
                };
                return;
            };
            let frame: Vec<u8> = self.bytes.drain(..end).collect();
            let mask = head.mask.unwrap_or_default();
            let payload = frame[head.payload_offset..].iter().zip(mask.iter().cycle());
            if wrong.is_empty() {
                wrong = self.handle_frame(head.first, payload.map(|(byte, mask)| byte ^ mask).collect());
            }
            self.expected_close =
                if wrong.is_empty() { ExpectedClose::StaysOpen } else { ExpectedClose::MustClose(wrong) };
        }
    }

    pub(super) fn must_close(&self) -> bool {
        matches!(self.expected_close, ExpectedClose::MustClose(_))
    }

    /// Whether neither a frame nor a message has begun.
    pub(super) fn is_between_messages(&self) -> bool {
        self.is_between_frames() && self.fragments.is_none()
    }

    pub(super) fn is_between_frames(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What the head of a frame alone shows.
    fn header_errors(&self, head: &FrameHeader) -> Vec<u16> {
        let (is_last, kind) = (head.first & 0x80 != 0, head.first & 0x0f);
        let held = self.fragments.as_ref().map_or(0, |(_, held)| held.len() as u64);
        let mut wrong = Vec::new();
        // 5.2: reserved bits MUST be 0; 5.1: a server MUST close upon a frame that is not masked.
        let mut breaks = head.first & 0x70 != 0 || head.mask.is_none();
        match kind {
            0x0 => breaks |= self.fragments.is_none(),
            0x1 | 0x2 => breaks |= self.fragments.is_some(),
            // 5.5: control frames have 125 bytes at most and MUST NOT be fragmented.
            0x8..=0xa => breaks |= !is_last || head.length > 125,
            _ => breaks = true,
        }
        if breaks {
            wrong.push(CLOSE_PROTOCOL_ERROR);
        }
        let whole = if kind < 0x8 { held.saturating_add(head.length) } else { head.length };
        if whole > self.message_bytes_max as u64 {
            wrong.push(CLOSE_TOO_BIG);
        }
        wrong
    }

    fn handle_frame(&mut self, first: u8, payload: Vec<u8>) -> Vec<u16> {
        let kind = match first & 0x0f {
            0x8 => return close_reply_codes(&payload),
            0x9 => {
                self.received.push(ReceivedMessage::Ping(payload));
                return Vec::new();
            }
            0xa => return Vec::new(),
            0x1 => MessageType::Text,
            _ => MessageType::Binary,
        };
        let (kind, mut message) = self.fragments.take().unwrap_or((kind, Vec::new()));
        message.extend(payload);
        let is_last = first & 0x80 != 0;
        let is_text = match std::str::from_utf8(&message) {
            Ok(_) => true,
            // Half a character may be completed later.
            Err(error) => error.error_len().is_none() && !is_last,
        };
        match (kind, is_last) {
            (MessageType::Text, _) if !is_text => return vec![CLOSE_INVALID_PAYLOAD],
            (MessageType::Binary, true) => return vec![CLOSE_UNSUPPORTED_DATA],
            (MessageType::Text, true) => self.received.push(ReceivedMessage::Text(message)),
            (MessageType::Text | MessageType::Binary, false) => self.fragments = Some((kind, message)),
        }
        Vec::new()
    }
}

/// 7.4: the code that answers a close frame.
fn close_reply_codes(payload: &[u8]) -> Vec<u16> {
    match payload {
        [] => vec![CLOSE_NO_STATUS],
        [_] => vec![CLOSE_PROTOCOL_ERROR],
        [high, low, why @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            let mut codes = match code {
                1000..=1003 | 1007..=1013 | 3000..=4999 => vec![code],
                // Registered later, for gateways; not every library knows it.
                1014 => vec![code, CLOSE_PROTOCOL_ERROR],
                _ => vec![CLOSE_PROTOCOL_ERROR],
            };
            if std::str::from_utf8(why).is_err() {
                codes.retain(|code| *code == CLOSE_PROTOCOL_ERROR);
                codes.push(CLOSE_INVALID_PAYLOAD);
            }
            codes
        }
    }
}

/// 5.2. `None` until it is complete.
fn parse_frame_header(bytes: &[u8]) -> Option<FrameHeader> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let (length, behind) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?)), 4),
        127 => (u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?), 10),
        short => (u64::from(short), 2),
    };
    if second & 0x80 == 0 {
        return Some(FrameHeader { first, mask: None, payload_offset: behind, length });
    }
    let mask = *bytes.get(behind..)?.first_chunk()?;
    Some(FrameHeader { first, mask: Some(mask), payload_offset: behind + 4, length })
}
