//! Reads one HTTP response as it arrives: a body or an event stream.

use crate::frame::{SizeLimitExceeded, SseDecoder};

/// A response that is being received.
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

/// The result once the body has ended.
#[derive(Debug)]
pub enum ExchangeEnd {
    /// A response with a body.
    Response(HttpResponse),
    /// An event stream ended. The client may be able to resume it.
    StreamEnded { last_event_id: Option<String>, retry_ms: Option<u64> },
}

/// A response that is not an event stream.
#[derive(Debug, Clone, Default)]
pub struct HttpResponse {
    pub status: u16,
    pub body: Vec<u8>,
    /// The `WWW-Authenticate` header.
    pub www_authenticate: Option<String>,
    /// How long to wait, by the `Retry-After` header.
    pub retry_after_ms: Option<u64>,
}

impl HttpExchange {
    /// `content_type` is the value of the header.
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

    /// Takes the next bytes of the body. Passes the messages of an event stream to `message`, in order.
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
                // 2025-11-25: a stream starts with an event that has an id and no data.
                if event.is_message() && !event.data.is_empty() {
                    message(event.data);
                }
            }),
        }
    }

    pub fn finish(self, www_authenticate: Option<String>) -> ExchangeEnd {
        match self.body {
            ExchangeBody::Whole(body) => ExchangeEnd::Response(HttpResponse {
                status: self.status,
                body,
                www_authenticate,
                retry_after_ms: None,
            }),
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
    fn a_stream_is_recognized_by_content_type_and_status() {
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
    fn a_stream_returns_its_messages_and_the_last_event_id() {
        let mut exchange = HttpExchange::new(200, Some("text/event-stream"), 100);
        let mut messages = Vec::new();
        let stream = "id: 1-0\ndata: \n\nevent: other\ndata: x\n\nid: 1-1\ndata: {}\n\nretry: 70\n\n";
        exchange.push(stream.as_bytes(), |message| messages.push(message)).expect("within the limit");
        assert_eq!(messages, [b"{}"]);
        let ExchangeEnd::StreamEnded { last_event_id: last_id, retry_ms } = exchange.finish(None) else {
            panic!("expected a stream")
        };
        assert_eq!((last_id.as_deref(), retry_ms), (Some("1-1"), Some(70)));
    }

    #[test]
    fn a_body_over_the_limit_is_an_error() {
        let mut exchange = HttpExchange::new(200, None, 10);
        assert!(exchange.push(b"0123456789", |_| ()).is_ok());
        assert!(exchange.push(b"x", |_| ()).is_err());
    }
}
