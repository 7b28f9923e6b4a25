//! HTTP+SSE, the transport of 2024-11-05: the client opens a stream with GET and sends messages with POST.
//!
//! Together they form a pipe: every response, notification and server request is an event of the stream. When the
//! stream ends, all its calls are cancelled.

use std::sync::Arc;
use std::task::{Context, Poll};

use host::{CallerIdentity, ConnectionState, HttpReply, Refusal, ReplyStream, Server};
use http::{Method, Response, StatusCode};
use wire::error::ErrorCode;
use wire::{Decoded, ErrorResponse};

use super::body::Body;
use super::directory::ServerRef;
use super::{HttpService, post, response};
use crate::content_negotiation::accepted_types;
use crate::conversation::{Conversation, MessageSink};
use crate::request_headers::RequestHeaders;

/// One of the two endpoints of the transport.
pub(crate) struct SseEndpoint<'a> {
    server: ServerRef<'a>,
    /// The path before `/sse` and `/messages`.
    base_path: &'a str,
    kind: SseEndpointKind,
}

enum SseEndpointKind {
    Stream,
    Messages,
}

impl<'a> SseEndpoint<'a> {
    /// `/mcp/<name>/sse` and `/mcp/<name>/messages`; also `/sse` and `/messages` for the server at `/mcp`.
    pub(crate) fn from_path(service: &'a HttpService, path: &'a str) -> Option<Self> {
        let (base, last) = path.rsplit_once('/').filter(|_| service.http_sse)?;
        let kind = match last {
            "sse" => SseEndpointKind::Stream,
            "messages" => SseEndpointKind::Messages,
            _ => return None,
        };
        let server = match base {
            "" => service.main_server().map(ServerRef::Fixed)?,
            base => service.server_at(base)?,
        };
        Some(Self { server, base_path: base, kind })
    }
}

/// What to do with a request to one of the endpoints.
pub(crate) enum SseRoute {
    Respond(Response<Body>),
    /// The body is a message.
    Post(SsePost),
}

pub(crate) fn route(
    endpoint: &SseEndpoint<'_>,
    method: &Method,
    identity: CallerIdentity,
    headers: &RequestHeaders<'_>,
    query: Option<&str>,
) -> SseRoute {
    match (&endpoint.kind, method) {
        (SseEndpointKind::Stream, &Method::GET) => {
            SseRoute::Respond(open_stream(endpoint, &identity, headers))
        }
        (SseEndpointKind::Stream, _) => SseRoute::Respond(response::method_not_allowed("GET")),
        (SseEndpointKind::Messages, &Method::POST) => {
            match SsePost::new(&endpoint.server, identity, headers, query) {
                Ok(post) => SseRoute::Post(post),
                Err(response) => SseRoute::Respond(response),
            }
        }
        (SseEndpointKind::Messages, _) => SseRoute::Respond(response::method_not_allowed("POST")),
    }
}

/// Opens a stream. Its first event contains the URL for POST.
fn open_stream(
    endpoint: &SseEndpoint<'_>,
    identity: &CallerIdentity,
    headers: &RequestHeaders<'_>,
) -> Response<Body> {
    if !accepted_types(headers, None).is_some_and(|accepted| accepted.stream) {
        return response::refused(Refusal::StreamNotAccepted);
    }
    let Ok(connection) = endpoint.server.open_sse(identity) else {
        return response::refused(Refusal::TooManySessions);
    };
    let keep_alive_ms = endpoint.server.limits.keep_alive_ms;
    let stream = ReplyStream::sse_connection(connection, endpoint.base_path, keep_alive_ms);
    response::from_reply(HttpReply::Stream(stream))
}

/// A POST with a valid head; its body comes next.
pub(crate) struct SsePost {
    conversation: Conversation<ConnectionState>,
}

impl SsePost {
    #[expect(clippy::result_large_err, reason = "the error is the response, on its way out")]
    fn new(
        server: &Arc<Server>,
        identity: CallerIdentity,
        headers: &RequestHeaders<'_>,
        query: Option<&str>,
    ) -> Result<Self, Response<Body>> {
        post::check_body_headers(headers)?;
        let mut ids =
            query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("session_id="));
        let reason = match (ids.next(), ids.next()) {
            (Some(id), None) => match server.sse_connection(id, &identity) {
                Some(state) if state.outgoing.is_full() => {
                    return Err(response::refused(Refusal::TooManySessions));
                }
                Some(state) => {
                    return Ok(Self {
                        conversation: Conversation::with_state(
                            server.clone(),
                            identity,
                            state.clone(),
                            state,
                        ),
                    });
                }
                None => {
                    let reason = "unknown `session_id`: the stream has ended or belongs to another caller; open a new one with GET";
                    return Err(response::error(StatusCode::NOT_FOUND, ErrorCode::SessionNotFound, reason));
                }
            },
            (None, _) => "missing `session_id` in the query; POST to the URL in the stream's first event",
            (Some(_), Some(_)) => "more than one `session_id` in the query",
        };
        Err(response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, reason))
    }

    pub(crate) fn server(&self) -> &Server {
        &self.conversation.server
    }

    /// Handles one message. The response goes to the stream; the POST only gets a 202.
    pub(crate) fn handle(&self, bytes: Vec<u8>) -> Response<Body> {
        let (decoded, registry) = self.conversation.decode(bytes);
        match decoded {
            // This is not a request, so no client waits on the stream for the error.
            Decoded::Rejected(error) if !error.has_request_id => {
                response::from_error_response(ErrorResponse {
                    http_status: error.http_status.max(400),
                    ..error
                })
            }
            decoded => {
                self.conversation.handle_message(decoded, registry, &mut Vec::new());
                response::empty(StatusCode::ACCEPTED)
            }
        }
    }
}

/// There is no batch: each message is an event. A stream without room for a message that must arrive is cut, so
/// senders never wait.
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
