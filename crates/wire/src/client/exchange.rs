//! The answer to one HTTP request, read as it comes: a body, or a stream of events.

use crate::frame::{Events, TooLong};

/// An answer under way.
#[derive(Debug)]
pub struct Exchange {
    status: u16,
    body: Body,
    body_bytes_max: usize,
}

#[derive(Debug)]
enum Body {
    Whole(Vec<u8>),
    Events(Events),
}

/// What came of it once the body has ended.
#[derive(Debug)]
pub enum Then {
    /// Everything there is to say was in the body.
    Said(Reply),
    /// A stream of events ended; it can perhaps be taken up again.
    Ended { last_id: Option<String>, retry_ms: Option<u64> },
}

/// An answer that is no stream.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    /// `WWW-Authenticate`, for whoever gets tokens.
    pub challenge: Option<String>,
}

impl Exchange {
    /// `content_type` as the header has it.
    pub fn new(status: u16, content_type: Option<&str>, body_bytes_max: usize) -> Self {
        let kind = content_type.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let is_stream = (200..300).contains(&status) && kind.eq_ignore_ascii_case("text/event-stream");
        let body =
            if is_stream { Body::Events(Events::new(body_bytes_max)) } else { Body::Whole(Vec::new()) };
        Self { status, body, body_bytes_max }
    }

    pub fn is_stream(&self) -> bool {
        matches!(self.body, Body::Events(_))
    }

    /// Takes a piece of the body; messages of a stream are handed on in their order.
    pub fn push(&mut self, bytes: &[u8], mut message: impl FnMut(Vec<u8>)) -> Result<(), TooLong> {
        match &mut self.body {
            Body::Whole(body) if body.len() + bytes.len() > self.body_bytes_max => Err(TooLong),
            Body::Whole(body) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
            Body::Events(events) => events.push(bytes, |event| {
                // 2025-11-25: a stream opens with an event that has an id and no data.
                if event.is_message() && !event.data.is_empty() {
                    message(event.data);
                }
            }),
        }
    }

    pub fn end(self, challenge: Option<String>) -> Then {
        match self.body {
            Body::Whole(body) => Then::Said(Reply { status: self.status, body, challenge }),
            Body::Events(events) => {
                Then::Ended { last_id: events.last_id().map(str::to_owned), retry_ms: events.retry_ms() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchange, Then};

    #[test]
    fn a_stream_is_told_by_its_type_and_status() {
        for (status, kind, expected) in [
            (200, Some("text/event-stream"), true),
            (200, Some("Text/Event-Stream; charset=utf-8"), true),
            (200, Some("application/json"), false),
            (200, None, false),
            (404, Some("text/event-stream"), false),
        ] {
            assert_eq!(Exchange::new(status, kind, 100).is_stream(), expected, "{status} {kind:?}");
        }
    }

    #[test]
    fn messages_come_out_and_the_place_is_kept() {
        let mut exchange = Exchange::new(200, Some("text/event-stream"), 100);
        let mut seen = Vec::new();
        let stream = "id: 1-0\ndata: \n\nevent: other\ndata: x\n\nid: 1-1\ndata: {}\n\nretry: 70\n\n";
        exchange.push(stream.as_bytes(), |message| seen.push(message)).expect("short");
        assert_eq!(seen, [b"{}"]);
        let Then::Ended { last_id, retry_ms } = exchange.end(None) else { panic!("a stream") };
        assert_eq!((last_id.as_deref(), retry_ms), (Some("1-1"), Some(70)));
    }

    #[test]
    fn a_body_has_an_end() {
        let mut exchange = Exchange::new(200, None, 10);
        assert!(exchange.push(b"0123456789", |_| ()).is_ok());
        assert!(exchange.push(b"x", |_| ()).is_err());
    }
}
