//! Server-sent events: the client's push parser.
//!
//! It accepts what the standard's parser accepts: three kinds of line ends, a byte order mark, comments and several
//! `data` lines. It buffers at most one event of `event_bytes_max`.

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

/// The event exceeds `event_bytes_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimitExceeded;

/// `line` is the incomplete line, `pending` the incomplete event, and `event_id` the id that it would set.
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

    /// The id of the last complete event, to resume from.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// How long to wait before reconnecting, as the server set it.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Buffered bytes: the incomplete line, the incomplete event and the two ids.
    pub fn buffered_bytes(&self) -> usize {
        let ids = [&self.event_id, &self.last_event_id].map(|id| id.as_ref().map_or(0, String::len));
        self.line.len() + self.pending.data.len() + self.pending.event_type.len() + ids[0] + ids[1]
    }

    /// Parses the next bytes and passes complete events to `event`, in order.
    pub fn push(&mut self, bytes: &[u8], mut event: impl FnMut(SseEvent)) -> Result<(), SizeLimitExceeded> {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
            }
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            self.append_to_line(&rest[..end])?;
            let is_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
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
            // Only now: an event that is cut off after its `id` line was not received.
            self.last_event_id.clone_from(&self.event_id);
            let mut complete = std::mem::take(&mut self.pending);
            if std::mem::take(&mut self.has_data) {
                complete.data.pop();
                event(complete);
            }
            return Ok(());
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
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
            // The standard: ignore an id that contains NUL.
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

    /// The stream gives the same events (as `event|data`), id and retry time wherever it is cut in two.
    fn check(stream: &str, expected: &[&str], last_id: Option<&str>, retry_ms: Option<u64>) {
        for cut in 0..=stream.len() {
            let mut decoder = SseDecoder::new(64);
            let mut events = Vec::new();
            for part in [&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]] {
                let result = decoder.push(part, |event| {
                    events.push(format!("{}|{}", event.event_type, String::from_utf8_lossy(&event.data)));
                });
                result.expect("within the limit");
            }
            assert_eq!(events, expected, "{stream:?} cut at {cut}");
            assert_eq!((decoder.last_event_id(), decoder.retry_ms()), (last_id, retry_ms), "{stream:?}");
        }
    }

    #[test]
    fn complete_events_are_returned() {
        check("data: {}\n\n", &["|{}"], None, None);
        check("event: message\r\nid: 7\r\ndata: a\r\n\r\n", &["message|a"], Some("7"), None);
        check("data: a\rdata: b\r\r", &["|a\nb"], None, None);
        check("\u{feff}data:x\n\n", &["|x"], None, None);
        check("data: a\n\ndata:  b\n\n", &["|a", "| b"], None, None);
        check("event: endpoint\ndata: /messages?x=1\n\n", &["endpoint|/messages?x=1"], None, None);
    }

    #[test]
    fn comments_and_incomplete_events_are_skipped() {
        check(": keep alive\n\n", &[], None, None);
        check("data: cut off", &[], None, None);
        check("id: 1\ndata: a\n\nid: 2\ndata: cut off", &["|a"], Some("1"), None);
        check("id: 3\ndata: \n\nretry: 500\n\n", &["|"], Some("3"), Some(500));
        check("retry: soon\nid: a\0b\nnonsense\n\n", &[], None, None);
        check("id: 1\n\nid\n\n", &[], None, None);
        check("event: x\n\ndata: y\n\n", &["|y"], None, None);
    }

    #[test]
    fn an_event_over_the_limit_is_an_error() {
        for stream in ["data: ".to_owned() + &"x".repeat(80), "data: 12345678\n".repeat(12), "x".repeat(70)] {
            let mut decoder = SseDecoder::new(64);
            let result = stream.as_bytes().chunks(7).try_for_each(|part| decoder.push(part, |_| ()));
            assert_eq!(result, Err(SizeLimitExceeded), "{stream}");
        }
    }
}
