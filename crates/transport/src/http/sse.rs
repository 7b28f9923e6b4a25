//! HTTP+SSE, the transport of 2024-11-05: a stream that a client opens, and messages that it posts.
//!
//! Together they are a pipe: the handshake goes over it, every answer, notification and question comes as an event
//! of the stream, and when the stream ends, so does everything that was under way on it.

use std::sync::Arc;
use std::task::{Context, Poll};

use host::{CallerIdentity, ConnectionState, Server};
use http::{Method, Response, StatusCode};
use wire::error::ErrorCode;
use wire::frame::sse;
use wire::{Decoded, ErrorResponse};

use super::body::{Body, StreamSource};
use super::{Site, get, post, response};
use crate::content_negotiation::AcceptedTypes;
use crate::conversation::{Conversation, MessageSink};
use crate::request_headers::RequestHeaders;

/// One of the two ends of the transport.
pub(crate) struct SseEndpoint<'a> {
    server: &'a Arc<Server>,
    /// The path before `/sse` and `/messages`.
    base_path: &'a str,
    kind: SseEndpointKind,
}

enum SseEndpointKind {
    Stream,
    Messages,
}

impl<'a> SseEndpoint<'a> {
    /// `/mcp/<name>/sse` and `/mcp/<name>/messages`; without `/mcp/<name>` when there is one server.
    pub(crate) fn from_path(site: &'a Site, path: &'a str) -> Option<Self> {
        if site.guard.refuse_sse {
            return None;
        }
        let (base, last) = path.rsplit_once('/')?;
        let what = match last {
            "sse" => SseEndpointKind::Stream,
            "messages" => SseEndpointKind::Messages,
            _ => return None,
        };
        let server = match (base, &*site.servers) {
            ("", [only]) => only,
            _ => site.server_at(base)?,
        };
        Some(Self { server, base_path: base, kind: what })
    }
}

/// What a request to one of the ends comes to.
pub(crate) enum SseRoute {
    Respond(Response<Body>),
    /// A message is to come.
    Post(SsePost),
}

pub(crate) fn route(
    end: &SseEndpoint<'_>,
    method: &Method,
    who: CallerIdentity,
    seen: &RequestHeaders<'_>,
    query: Option<&str>,
) -> SseRoute {
    match (&end.kind, method) {
        (SseEndpointKind::Stream, &Method::GET) => SseRoute::Respond(open_stream(end, &who, seen)),
        (SseEndpointKind::Stream, _) => SseRoute::Respond(response::method_not_allowed("GET")),
        (SseEndpointKind::Messages, &Method::POST) => match SsePost::new(end.server, who, seen, query) {
            Ok(posting) => SseRoute::Post(posting),
            Err(refused) => SseRoute::Respond(refused),
        },
        (SseEndpointKind::Messages, _) => SseRoute::Respond(response::method_not_allowed("POST")),
    }
}

/// Opens a stream. Its first event says where to post.
fn open_stream(end: &SseEndpoint<'_>, who: &CallerIdentity, seen: &RequestHeaders<'_>) -> Response<Body> {
    if !AcceptedTypes::from_request(seen, None).is_some_and(|accepts| accepts.stream) {
        return get::not_acceptable();
    }
    let Ok(posted) = end.server.open_sse(who) else { return get::too_many_sessions() };
    let mut first = Vec::with_capacity(128);
    sse::write_endpoint(
        &mut first,
        &format!("{}/messages?session_id={}", end.base_path, posted.connection_id()),
    );
    response::event_stream(Body::stream(
        StreamSource::SseConnection(posted),
        first,
        end.server.limits.keep_alive_ms,
    ))
}

/// A message whose head is in order; its body comes next.
pub(crate) struct SsePost {
    conversation: Conversation<ConnectionState>,
}

impl SsePost {
    #[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
    fn new(
        server: &Arc<Server>,
        who: CallerIdentity,
        seen: &RequestHeaders<'_>,
        query: Option<&str>,
    ) -> Result<Self, Response<Body>> {
        post::check_body_headers(seen)?;
        let mut named =
            query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("session_id="));
        let why = match (named.next(), named.next()) {
            (Some(name), None) => match server.sse_connection(name, &who) {
                Some(live) if live.outgoing.is_full() => return Err(get::too_many_sessions()),
                Some(live) => {
                    return Ok(Self {
                        conversation: Conversation::with_state(server.clone(), who, live.clone(), live),
                    });
                }
                None => {
                    let why = "no such stream: it ended, or is somebody else's; open another with GET";
                    return Err(response::error(StatusCode::NOT_FOUND, ErrorCode::SessionNotFound, why));
                }
            },
            (None, _) => "no `session_id` in the query; post to where the stream's first event says",
            (Some(_), Some(_)) => "more than one `session_id` in the query",
        };
        Err(response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, why))
    }

    pub(crate) fn server(&self) -> &Server {
        &self.conversation.server
    }

    /// Acts on one message. What it comes to goes out on the stream; all that is said here is that it arrived.
    pub(crate) fn handle(&self, bytes: Vec<u8>) -> Response<Body> {
        match self.conversation.decode(bytes) {
            // Nobody waits on the stream for an answer to what was no request.
            Decoded::Rejected(refusal) if !refusal.has_request_id => {
                response::from_error_response(ErrorResponse {
                    http_status: refusal.http_status.max(400),
                    ..refusal
                })
            }
            opened => {
                self.conversation.handle_message(opened, &mut Vec::new());
                response::empty(StatusCode::ACCEPTED)
            }
        }
    }
}

/// Nothing is gathered: each message is an event by itself. Whoever has no room for what must arrive is cut, so
/// nobody waits for it.
impl MessageSink for ConnectionState {
    fn append(&self, _: &mut Vec<u8>, message: Vec<u8>) {
        self.outgoing.send(message);
    }

    fn append_lossy(&self, _: &mut Vec<u8>, message: Vec<u8>) {
        self.outgoing.send_notification(message);
    }

    fn write_batch(self: &Arc<Self>, _: &mut Vec<u8>) {}

    fn send(self: &Arc<Self>, message: Vec<u8>) {
        self.outgoing.send(message);
    }

    fn send_lossy(self: &Arc<Self>, message: Vec<u8>) {
        self.outgoing.send_notification(message);
    }

    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}
