//! Server-sent events, as a client reads them: bytes in, events out.
//!
//! Line ends of all three kinds, a byte order mark, comments, several `data` lines: what the standard's parser
//! takes, this takes. Never holds more than one event of `event_bytes_max`.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// Empty means `message`.
    pub event_type: String,
    pub data: Vec<u8>,
}

impl SseEvent {
    pub fn is_message(&self) -> bool {
        self.event_type.is_empty() || self.event_type == "message"
    }
}

/// An event that is larger than anything that may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimitExceeded;

/// `line` is what came of the line under way; `pending` the event under way, and `id` the id as of its lines.
#[derive(Debug)]
pub struct SseDecoder {
    line: Vec<u8>,
    pending: SseEvent,
    has_data: bool,
    event_id: Option<String>,
    last_event_id: Option<String>,
    retry_ms: Option<u64>,
    after_cr: bool,
    is_first_line: bool,
    event_bytes_max: usize,
}

impl SseDecoder {
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            pending: SseEvent::default(),
            has_data: false,
            event_id: None,
            last_event_id: None,
            retry_ms: None,
            after_cr: false,
            is_first_line: true,
            event_bytes_max,
        }
    }

    /// Where to go on from, should the stream end: the id of the last event that came whole.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// How long to wait before coming back.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// How much it keeps: of the line and the event under way, and the two ids.
    pub fn buffered_bytes(&self) -> usize {
        let ids = [&self.event_id, &self.last_event_id].map(|id| id.as_ref().map_or(0, String::len));
        self.line.len() + self.pending.data.len() + self.pending.event_type.len() + ids[0] + ids[1]
    }

    /// Takes what arrived; whole events are handed on in their order.
    pub fn push(&mut self, bytes: &[u8], mut event: impl FnMut(SseEvent)) -> Result<(), SizeLimitExceeded> {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
            }
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            self.append_to_line(&rest[..at])?;
            let is_cr = rest[at] == b'\r';
            rest = &rest[at + 1..];
            match (is_cr, rest.first()) {
                (true, Some(b'\n')) => rest = &rest[1..],
                (true, None) => self.after_cr = true,
                _ => {}
            }
            let line = std::mem::take(&mut self.line);
            self.process_line(&line, &mut event)?;
            self.line = line;
            self.line.clear();
        }
        self.append_to_line(rest)
    }

    fn append_to_line(&mut self, bytes: &[u8]) -> Result<(), SizeLimitExceeded> {
        if self.line.len() + bytes.len() + self.pending.data.len() > self.event_bytes_max {
            return Err(SizeLimitExceeded);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn process_line(
        &mut self,
        line: &[u8],
        event: &mut impl FnMut(SseEvent),
    ) -> Result<(), SizeLimitExceeded> {
        let line = match (self.is_first_line, line.strip_prefix(b"\xef\xbb\xbf")) {
            (true, Some(rest)) => rest,
            _ => line,
        };
        self.is_first_line = false;
        if line.is_empty() {
            // Not before: an event that is cut off behind its id has not been read.
            self.last_event_id.clone_from(&self.event_id);
            let mut whole = std::mem::take(&mut self.pending);
            if std::mem::take(&mut self.has_data) {
                whole.data.pop();
                event(whole);
            }
            return Ok(());
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.pending.data.len() + value.len() >= self.event_bytes_max {
                    return Err(SizeLimitExceeded);
                }
                self.has_data = true;
                self.pending.data.extend_from_slice(value);
                self.pending.data.push(b'\n');
            }
            b"event" => self.pending.event_type = String::from_utf8_lossy(value).into_owned(),
            // The standard: an id with a NUL is none.
            b"id" if !value.contains(&0) => {
                let id = String::from_utf8_lossy(value).into_owned();
                self.event_id = (!id.is_empty()).then_some(id);
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry_ms = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{SizeLimitExceeded, SseDecoder};

    /// Whole, and cut at every byte: the same events, each as `event|data`, then the id and the wait.
    fn check(stream: &str, expected: &[&str], last_id: Option<&str>, retry_ms: Option<u64>) {
        for cut in 0..=stream.len() {
            let mut events = SseDecoder::new(64);
            let mut seen = Vec::new();
            for part in [&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]] {
                let took = events.push(part, |event| {
                    seen.push(format!("{}|{}", event.event_type, String::from_utf8_lossy(&event.data)));
                });
                took.expect("short enough");
            }
            assert_eq!(seen, expected, "{stream:?} cut at {cut}");
            assert_eq!((events.last_event_id(), events.retry_ms()), (last_id, retry_ms), "{stream:?}");
        }
    }

    #[test]
    fn whole_events_come_out() {
        check("data: {}\n\n", &["|{}"], None, None);
        check("event: message\r\nid: 7\r\ndata: a\r\n\r\n", &["message|a"], Some("7"), None);
        check("data: a\rdata: b\r\r", &["|a\nb"], None, None);
        check("\u{feff}data:x\n\n", &["|x"], None, None);
        check("data: a\n\ndata:  b\n\n", &["|a", "| b"], None, None);
        check("event: endpoint\ndata: /messages?x=1\n\n", &["endpoint|/messages?x=1"], None, None);
    }

    #[test]
    fn what_is_no_event_is_passed_over() {
        check(": keep alive\n\n", &[], None, None);
        check("data: cut off", &[], None, None);
        check("id: 1\ndata: a\n\nid: 2\ndata: cut off", &["|a"], Some("1"), None);
        check("id: 3\ndata: \n\nretry: 500\n\n", &["|"], Some("3"), Some(500));
        check("retry: soon\nid: a\0b\nnonsense\n\n", &[], None, None);
        check("id: 1\n\nid\n\n", &[], None, None);
        check("event: x\n\ndata: y\n\n", &["|y"], None, None);
    }

    #[test]
    fn too_much_is_refused_however_it_comes() {
        for stream in ["data: ".to_owned() + &"x".repeat(80), "data: 12345678\n".repeat(12), "x".repeat(70)] {
            let mut events = SseDecoder::new(64);
            let took = stream.as_bytes().chunks(7).try_for_each(|part| events.push(part, |_| ()));
            assert_eq!(took, Err(SizeLimitExceeded), "{stream}");
        }
    }
}
