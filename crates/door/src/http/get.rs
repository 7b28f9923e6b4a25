//! GET and DELETE: streams and the end of a session, for clients of the handshake era.

use std::sync::Arc;

use host::{GET_STREAM, Server, Streams, Ticket, Who};
use http::{Response, StatusCode};
use wire::code::{Code, Told};
use wire::frame::sse::{self, EventId};
use wire::{Feature, Head, Refusal};

use super::body::{Body, Source};
use super::reply;
use crate::accept::Accepts;
use crate::seen::Seen;

/// The session that a request names.
#[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
fn session(server: &Server, who: &Who, seen: &Seen<'_>) -> Result<Ticket, Response<Body>> {
    let id = match seen.session {
        // Without a session there is nothing to stream or to end; the newest era has neither.
        Head::Absent => return Err(reply::allow("POST")),
        Head::Twice => {
            let why = "more than one Mcp-Session-Id header";
            return Err(reply::refuse(StatusCode::BAD_REQUEST, Code::InvalidRequest, why));
        }
        Head::One(id) => std::str::from_utf8(id).unwrap_or_default(),
    };
    if let Head::One(version) = seen.version {
        match wire::Version::parse_bytes(version) {
            Some(version) if version.has(Feature::Sessions) => {}
            // 2026-07-28: "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not Allowed."
            Some(version) if version.has(Feature::Envelope) => return Err(reply::allow("POST")),
            Some(_) => {}
            None => {
                let why = "unsupported MCP-Protocol-Version";
                return Err(reply::refuse(StatusCode::BAD_REQUEST, Code::UnsupportedVersion, why));
            }
        }
    }
    server.session(id, who).ok_or_else(|| {
        let why = "no such session: it ended or expired; initialize again";
        reply::refuse(StatusCode::NOT_FOUND, Code::NoSession, why)
    })
}

/// Opens the session's own stream, or takes up one that was left.
pub(crate) fn stream(
    server: &Arc<Server>,
    who: &Who,
    seen: &Seen<'_>,
    query: Option<&str>,
) -> Response<Body> {
    let ticket = match session(server, who, seen) {
        Ok(ticket) => ticket,
        Err(response) => return response,
    };
    if !Accepts::read(seen, query).is_some_and(|accepts| accepts.stream) {
        return not_acceptable();
    }
    let live = match server.live(&ticket, who) {
        Ok(live) => live,
        Err(_) => return full(),
    };
    let last = match seen.last_event {
        Head::One(id) => std::str::from_utf8(id).ok().and_then(EventId::parse),
        Head::Absent | Head::Twice => None,
    };
    let attached = match last {
        Some(last) => Streams::attach(&live, last.stream, Some(last.event)),
        None => Streams::attach(&live, GET_STREAM, None),
    };
    // 2025-11-25, Resumability: "MUST NOT replay messages that would have been delivered on a different stream".
    // Whoever waits there for an answer would wait for ever.
    let Some(attached) = attached else {
        let why = "the stream of this Last-Event-ID is not kept any more; ask again";
        return reply::refuse(StatusCode::BAD_REQUEST, Code::InvalidRequest, why);
    };
    let mut first = Vec::new();
    if ticket.peer.version.has(Feature::Priming) {
        sse::priming(&mut first, attached.start());
    } else {
        // The head goes out now, not with the first event.
        first.extend_from_slice(sse::KEEP_ALIVE);
    }
    reply::stream(Body::stream(Source::Attached(attached), first, server.limits.keep_alive_ms))
}

pub(crate) fn delete(server: &Server, who: &Who, seen: &Seen<'_>) -> Response<Body> {
    match session(server, who, seen) {
        Ok(ticket) => {
            server.end_session(&ticket);
            reply::status(StatusCode::NO_CONTENT)
        }
        Err(response) => response,
    }
}

pub(crate) fn not_acceptable() -> Response<Body> {
    let why = "a GET is answered with text/event-stream; allow it in Accept";
    reply::refuse(StatusCode::NOT_ACCEPTABLE, Code::InvalidRequest, why)
}

/// Too many sessions hold something at once.
pub(crate) fn full() -> Response<Body> {
    let told = Told::busy(429, FULL_RETRY_MS, "too many sessions; try again shortly");
    reply::refused(Refusal { retry_after_ms: Some(FULL_RETRY_MS), ..host::refusal(&told, None) })
}

const FULL_RETRY_MS: u64 = 1000;
