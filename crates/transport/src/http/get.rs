//! GET opens a session's stream, DELETE ends the session; for clients of the handshake era.

use std::sync::Arc;

use host::{CallerIdentity, GET_STREAM, Server, SessionStreams, SessionTicket};
use http::{Response, StatusCode};
use wire::error::ErrorCode;
use wire::frame::sse::{self, EventId};
use wire::{Feature, HeaderField};

use super::body::{Body, StreamSource};
use super::response;
use crate::content_negotiation::AcceptedTypes;
use crate::request_headers::RequestHeaders;

/// The session that a request names, verified.
#[expect(clippy::result_large_err, reason = "the error is the response, on its way out")]
fn require_session(
    server: &Server,
    identity: &CallerIdentity,
    headers: &RequestHeaders<'_>,
) -> Result<SessionTicket, Response<Body>> {
    let id = match headers.session_id {
        // Without a session there is nothing to stream or to end. The newest era has no sessions.
        HeaderField::Absent => return Err(response::method_not_allowed("POST")),
        HeaderField::Repeated => {
            let reason = "more than one Mcp-Session-Id header";
            return Err(response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, reason));
        }
        HeaderField::Single(id) => std::str::from_utf8(id).unwrap_or_default(),
    };
    if let HeaderField::Single(version) = headers.protocol_version {
        match wire::Version::parse_bytes(version) {
            Some(version) if version.has(Feature::Sessions) => {}
            // 2026-07-28: "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not Allowed."
            Some(version) if version.has(Feature::Envelope) => {
                return Err(response::method_not_allowed("POST"));
            }
            Some(_) => {}
            None => {
                let reason = "unsupported MCP-Protocol-Version";
                return Err(response::error(StatusCode::BAD_REQUEST, ErrorCode::UnsupportedVersion, reason));
            }
        }
    }
    server.verify_session(id, identity).ok_or_else(|| {
        let reason = "unknown session: it ended or expired; initialize again";
        response::error(StatusCode::NOT_FOUND, ErrorCode::SessionNotFound, reason)
    })
}

/// Opens the session's own stream, or resumes the stream of `Last-Event-ID`.
pub(crate) fn open_stream(
    server: &Arc<Server>,
    identity: &CallerIdentity,
    headers: &RequestHeaders<'_>,
    query: Option<&str>,
) -> Response<Body> {
    let ticket = match require_session(server, identity, headers) {
        Ok(ticket) => ticket,
        Err(response) => return response,
    };
    if !AcceptedTypes::from_request(headers, query).is_some_and(|accepted| accepted.stream) {
        return not_acceptable();
    }
    let state = match server.ensure_session_state(&ticket, identity) {
        Ok(state) => state,
        Err(_) => return too_many_sessions(),
    };
    let last = match headers.last_event_id {
        HeaderField::Single(id) => std::str::from_utf8(id).ok().and_then(EventId::parse),
        HeaderField::Absent | HeaderField::Repeated => None,
    };
    let reader = match last {
        Some(last) => SessionStreams::attach_reader(&state, last.stream, Some(last.event)),
        None => SessionStreams::attach_reader(&state, GET_STREAM, None),
    };
    // 2025-11-25, Resumability: "MUST NOT replay messages that would have been delivered on a different stream".
    // A client that waits there for a response would wait forever.
    let Some(reader) = reader else {
        let reason = "the stream of this Last-Event-ID is no longer available; send the request again";
        return response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, reason);
    };
    let mut first = Vec::new();
    if ticket.peer.version.has(Feature::Priming) {
        sse::write_priming(&mut first, reader.start_event_id());
    } else {
        // Makes hyper send the head now, not with the first event.
        first.extend_from_slice(sse::KEEP_ALIVE);
    }
    response::event_stream(Body::stream(
        StreamSource::SessionStream(reader),
        first,
        server.limits.keep_alive_ms,
    ))
}

pub(crate) fn delete_session(
    server: &Server,
    identity: &CallerIdentity,
    headers: &RequestHeaders<'_>,
) -> Response<Body> {
    match require_session(server, identity, headers) {
        Ok(ticket) => {
            server.end_session(&ticket);
            response::empty(StatusCode::NO_CONTENT)
        }
        Err(response) => response,
    }
}

pub(crate) fn not_acceptable() -> Response<Body> {
    let reason = "the response to GET is text/event-stream; add it to Accept";
    response::error(StatusCode::NOT_ACCEPTABLE, ErrorCode::InvalidRequest, reason)
}

/// Too many sessions have state at once.
pub(crate) fn too_many_sessions() -> Response<Body> {
    response::busy(StatusCode::TOO_MANY_REQUESTS, "too many sessions; try again shortly")
}
