//! GET opens a session's stream, DELETE ends the session; for clients of the handshake era.

use std::sync::Arc;

use host::{CallerIdentity, HttpReply, Server, SessionHeaders};

use crate::content_negotiation::accepted_types;
use crate::request_headers::RequestHeaders;

/// Opens the session's own stream, or resumes the stream of `Last-Event-ID`.
pub(crate) fn open_stream(
    server: &Server,
    identity: &CallerIdentity,
    headers: &RequestHeaders<'_>,
    query: Option<&str>,
) -> HttpReply {
    server.open_stream(&session_headers(headers), accepted_types(headers, query), identity)
}

pub(crate) fn delete_session(
    server: &Arc<Server>,
    identity: &CallerIdentity,
    headers: &RequestHeaders<'_>,
) -> HttpReply {
    server.delete_session(&session_headers(headers), identity)
}

fn session_headers<'h>(headers: &RequestHeaders<'h>) -> SessionHeaders<'h> {
    SessionHeaders {
        session_id: headers.session_id,
        protocol_version: headers.protocol_version,
        last_event_id: headers.last_event_id,
    }
}
