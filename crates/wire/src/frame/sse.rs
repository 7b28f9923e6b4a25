//! Server-sent events: the server's writer.

/// Identifies an event: the stream within the session, and the event within the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    pub stream: u32,
    pub event: u64,
}

impl EventId {
    /// Parses an id that [`write_message`] wrote. A client sends it back as `Last-Event-ID`.
    pub fn parse(text: &str) -> Option<Self> {
        let (stream, event) = text.split_once('-')?;
        Some(Self { stream: stream.parse().ok()?, event: event.parse().ok()? })
    }

    fn write_id_line(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"id: ");
        json::write::integer(out, i64::from(self.stream));
        out.push(b'-');
        json::write::integer(out, self.event.min(i64::MAX as u64) as i64);
        out.push(b'\n');
    }
}

/// Writes one message as one event. The message must be one line, as all JSON from this crate is.
pub fn write_message(out: &mut Vec<u8>, id: Option<EventId>, message: &[u8]) {
    out.extend_from_slice(b"event: message\n");
    if let Some(id) = id {
        id.write_id_line(out);
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(message);
    out.extend_from_slice(b"\n\n");
}

/// 2025-11-25, Sending Messages: "an SSE event consisting of an event ID and an empty data field", so that
/// the client can resume even if nothing else arrives.
pub fn write_priming(out: &mut Vec<u8>, id: EventId) {
    id.write_id_line(out);
    out.extend_from_slice(b"data: \n\n");
}

/// 2024-11-05, HTTP with SSE: "the server MUST send an `endpoint` event containing a URI for the client to use
/// for sending messages."
pub fn write_endpoint(out: &mut Vec<u8>, uri: &str) {
    out.extend_from_slice(b"event: endpoint\ndata: ");
    out.extend_from_slice(uri.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Tells the client how long to wait before it reconnects.
pub fn write_retry(out: &mut Vec<u8>, ms: u64) {
    out.extend_from_slice(b"retry: ");
    json::write::integer(out, ms.min(i64::MAX as u64) as i64);
    out.extend_from_slice(b"\n\n");
}

/// A comment, sent so that proxies do not time out a quiet stream.
pub const KEEP_ALIVE: &[u8] = b":\n\n";
