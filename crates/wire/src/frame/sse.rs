//! Server-sent events, as a server writes them.

/// The place of an event: which stream of the session, and which event of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    pub stream: u32,
    pub event: u64,
}

impl EventId {
    /// Reads what [`message`] wrote; a client sends it back as `Last-Event-ID`.
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

/// One message as one event. The message is one line: JSON that we wrote has no line breaks.
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
/// the client can come back even if nothing else arrives.
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

/// How long to wait before coming back.
pub fn write_retry(out: &mut Vec<u8>, ms: u64) {
    out.extend_from_slice(b"retry: ");
    json::write::integer(out, ms.min(i64::MAX as u64) as i64);
    out.extend_from_slice(b"\n\n");
}

/// A comment: keeps whatever lies in between from giving up on a quiet stream.
pub const KEEP_ALIVE: &[u8] = b":\n\n";
