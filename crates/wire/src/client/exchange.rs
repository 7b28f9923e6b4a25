//! The answer to one HTTP request, read as it comes: a body, or a stream of events.

use crate::frame::{SizeLimitExceeded, SseDecoder};

/// An answer under way.
#[derive(Debug)]
pub struct HttpExchange {
    status: u16,
    body: ExchangeBody,
    body_bytes_max: usize,
}

#[derive(Debug)]
enum ExchangeBody {
    Whole(Vec<u8>),
    EventStream(SseDecoder),
}

/// What came of it once the body has ended.
#[derive(Debug)]
pub enum ExchangeEnd {
    /// Everything there is to say was in the body.
    Response(HttpResponse),
    /// A stream of events ended; it can perhaps be taken up again.
    StreamEnded { last_event_id: Option<String>, retry_ms: Option<u64> },
}

/// An answer that is no stream.
#[derive(Debug, Clone, Default)]
pub struct HttpResponse {
    pub status: u16,
    pub body: Vec<u8>,
    /// `WWW-Authenticate`, for whoever gets tokens.
    pub www_authenticate: Option<String>,
}

impl HttpExchange {
    /// `content_type` as the header has it.
    pub fn new(status: u16, content_type: Option<&str>, body_bytes_max: usize) -> Self {
        let kind = content_type.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let is_stream = (200..300).contains(&status) && kind.eq_ignore_ascii_case("text/event-stream");
        let body = if is_stream {
            ExchangeBody::EventStream(SseDecoder::new(body_bytes_max))
        } else {
            ExchangeBody::Whole(Vec::new())
        };
        Self { status, body, body_bytes_max }
    }

    pub fn is_stream(&self) -> bool {
        matches!(self.body, ExchangeBody::EventStream(_))
    }

    /// Takes a piece of the body; messages of a stream are handed on in their order.
    pub fn push(&mut self, bytes: &[u8], mut message: impl FnMut(Vec<u8>)) -> Result<(), SizeLimitExceeded> {
        match &mut self.body {
            ExchangeBody::Whole(body) if body.len() + bytes.len() > self.body_bytes_max => {
                Err(SizeLimitExceeded)
            }
            ExchangeBody::Whole(body) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
            ExchangeBody::EventStream(events) => events.push(bytes, |event| {
                // 2025-11-25: a stream opens with an event that has an id and no data.
                if event.is_message() && !event.data.is_empty() {
                    message(event.data);
                }
            }),
        }
    }

    pub fn finish(self, challenge: Option<String>) -> ExchangeEnd {
        match self.body {
            ExchangeBody::Whole(body) => {
                ExchangeEnd::Response(HttpResponse { status: self.status, body, www_authenticate: challenge })
            }
            ExchangeBody::EventStream(events) => ExchangeEnd::StreamEnded {
                last_event_id: events.last_event_id().map(str::to_owned),
                retry_ms: events.retry_ms(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ExchangeEnd, HttpExchange};

    #[test]
    fn a_stream_is_told_by_its_type_and_status() {
        for (status, kind, expected) in [
            (200, Some("text/event-stream"), true),
            (200, Some("Text/Event-Stream; charset=utf-8"), true),
            (200, Some("application/json"), false),
            (200, None, false),
            (404, Some("text/event-stream"), false),
        ] {
            assert_eq!(HttpExchange::new(status, kind, 100).is_stream(), expected, "{status} {kind:?}");
        }
    }

    #[test]
    fn messages_come_out_and_the_place_is_kept() {
        let mut exchange = HttpExchange::new(200, Some("text/event-stream"), 100);
        let mut seen = Vec::new();
        let stream = "id: 1-0\ndata: \n\nevent: other\ndata: x\n\nid: 1-1\ndata: {}\n\nretry: 70\n\n";
        exchange.push(stream.as_bytes(), |message| seen.push(message)).expect("short");
        assert_eq!(seen, [b"{}"]);
        let ExchangeEnd::StreamEnded { last_event_id: last_id, retry_ms } = exchange.finish(None) else {
            panic!("a stream")
        };
        assert_eq!((last_id.as_deref(), retry_ms), (Some("1-1"), Some(70)));
    }

    #[test]
    fn a_body_has_an_end() {
        let mut exchange = HttpExchange::new(200, None, 10);
        assert!(exchange.push(b"0123456789", |_| ()).is_ok());
        assert!(exchange.push(b"x", |_| ()).is_err());
    }
}
