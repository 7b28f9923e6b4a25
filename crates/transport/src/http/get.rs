//! GET and DELETE: streams and the end of a session, for clients of the handshake era.

use std::sync::Arc;

use host::{CallerIdentity, GET_STREAM, Server, SessionStreams, SessionTicket};
use http::{Response, StatusCode};
use wire::error::{ErrorCode, RpcError};
use wire::frame::sse::{self, EventId};
use wire::{ErrorResponse, Feature, HeaderField};

use super::body::{Body, StreamSource};
use super::response;
use crate::content_negotiation::AcceptedTypes;
use crate::request_headers::RequestHeaders;

/// The session that a request names.
#[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
fn require_session(
    server: &Server,
    who: &CallerIdentity,
    seen: &RequestHeaders<'_>,
) -> Result<SessionTicket, Response<Body>> {
    let id = match seen.session_id {
        // Without a session there is nothing to stream or to end; the newest era has neither.
        HeaderField::Absent => return Err(response::method_not_allowed("POST")),
        HeaderField::Repeated => {
            let why = "more than one Mcp-Session-Id header";
            return Err(response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, why));
        }
        HeaderField::Single(id) => std::str::from_utf8(id).unwrap_or_default(),
    };
    if let HeaderField::Single(version) = seen.protocol_version {
        match wire::Version::parse_bytes(version) {
            Some(version) if version.has(Feature::Sessions) => {}
            // 2026-07-28: "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not Allowed."
            Some(version) if version.has(Feature::Envelope) => {
                return Err(response::method_not_allowed("POST"));
            }
            Some(_) => {}
            None => {
                let why = "unsupported MCP-Protocol-Version";
                return Err(response::error(StatusCode::BAD_REQUEST, ErrorCode::UnsupportedVersion, why));
            }
        }
    }
    server.verify_session(id, who).ok_or_else(|| {
        let why = "no such session: it ended or expired; initialize again";
        response::error(StatusCode::NOT_FOUND, ErrorCode::SessionNotFound, why)
    })
}

/// Opens the session's own stream, or takes up one that was left.
pub(crate) fn open_stream(
    server: &Arc<Server>,
    who: &CallerIdentity,
    seen: &RequestHeaders<'_>,
    query: Option<&str>,
) -> Response<Body> {
    let ticket = match require_session(server, who, seen) {
        Ok(ticket) => ticket,
        Err(response) => return response,
    };
    if !AcceptedTypes::from_request(seen, query).is_some_and(|accepts| accepts.stream) {
        return not_acceptable();
    }
    let live = match server.ensure_session_state(&ticket, who) {
        Ok(live) => live,
        Err(_) => return too_many_sessions(),
    };
    let last = match seen.last_event_id {
        HeaderField::Single(id) => std::str::from_utf8(id).ok().and_then(EventId::parse),
        HeaderField::Absent | HeaderField::Repeated => None,
    };
    let attached = match last {
        Some(last) => SessionStreams::attach_reader(&live, last.stream, Some(last.event)),
        None => SessionStreams::attach_reader(&live, GET_STREAM, None),
    };
    // 2025-11-25, Resumability: "MUST NOT replay messages that would have been delivered on a different stream".
    // Whoever waits there for an answer would wait for ever.
    let Some(attached) = attached else {
        let why = "the stream of this Last-Event-ID is not kept any more; ask again";
        return response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, why);
    };
    let mut first = Vec::new();
    if ticket.peer.version.has(Feature::Priming) {
        sse::write_priming(&mut first, attached.start_event_id());
    } else {
        // The head goes out now, not with the first event.
        first.extend_from_slice(sse::KEEP_ALIVE);
    }
    response::event_stream(Body::stream(
        StreamSource::SessionStream(attached),
        first,
        server.limits.keep_alive_ms,
    ))
}

pub(crate) fn delete_session(
    server: &Server,
    who: &CallerIdentity,
    seen: &RequestHeaders<'_>,
) -> Response<Body> {
    match require_session(server, who, seen) {
        Ok(ticket) => {
            server.end_session(&ticket);
            response::empty(StatusCode::NO_CONTENT)
        }
        Err(response) => response,
    }
}

pub(crate) fn not_acceptable() -> Response<Body> {
    let why = "a GET is answered with text/event-stream; allow it in Accept";
    response::error(StatusCode::NOT_ACCEPTABLE, ErrorCode::InvalidRequest, why)
}

/// Too many sessions hold something at once.
pub(crate) fn too_many_sessions() -> Response<Body> {
    let told = RpcError::busy(429, TOO_MANY_SESSIONS_RETRY_MS, "too many sessions; try again shortly");
    response::from_error_response(ErrorResponse {
        retry_after_ms: Some(TOO_MANY_SESSIONS_RETRY_MS),
        ..host::early_error_response(&told, None)
    })
}

const TOO_MANY_SESSIONS_RETRY_MS: u64 = 1000;
