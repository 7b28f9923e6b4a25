//! Builders for HTTP responses.

use host::{CompleteReply, HttpReply, Refusal};
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use wire::ErrorResponse;
use wire::error::{ErrorCode, RpcError};

use super::body::{Body, ResponseTimer};
use crate::guard::GuardRefusal;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const APPLICATION_JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT_EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The response that the host decided on.
#[inline]
pub(crate) fn from_reply(reply: HttpReply) -> Response<Body> {
    from_reply_with_timer(reply, ResponseTimer::start)
}

/// The same for a reply that had to wait; its timer goes on.
#[inline]
pub(crate) fn from_reply_with_timer(
    reply: HttpReply,
    timer: impl FnOnce() -> ResponseTimer,
) -> Response<Body> {
    match reply {
        HttpReply::Complete(reply) => complete(reply),
        HttpReply::Accepted => empty(StatusCode::ACCEPTED),
        HttpReply::SessionEnded => empty(StatusCode::NO_CONTENT),
        HttpReply::Initialized { reply, session } => {
            let mut response = complete(reply);
            if let Ok(session) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(SESSION_ID, session);
            }
            response
        }
        HttpReply::Stream(stream) => event_stream(Body::stream(stream, timer())),
        HttpReply::Refused(refusal) => refused(refusal),
    }
}

#[inline]
fn complete(reply: CompleteReply) -> Response<Body> {
    match reply {
        CompleteReply::Json { status, body, retry_after_ms } => {
            with_retry_after(json(status, body), retry_after_ms)
        }
        CompleteReply::Events(events) => event_stream(Body::full(events)),
    }
}

#[cold]
pub(crate) fn refused(refusal: Refusal) -> Response<Body> {
    let mut response = from_error_response(refusal.to_response());
    if let Some(allowed) = refusal.allowed_methods() {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    }
    with_reason(response, refusal.reason())
}

#[inline]
pub(crate) fn json(status: u16, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, APPLICATION_JSON);
    response
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, TEXT_EVENT_STREAM);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// An error before the JSON-RPC request is known. It has a JSON-RPC error body all the same.
pub(crate) fn error(status: StatusCode, code: ErrorCode, reason: &str) -> Response<Body> {
    let rpc_error = RpcError::new(code, status.as_u16(), reason);
    let error = host::early_error_response(&rpc_error, None);
    with_reason(json(error.http_status, error.body), reason)
}

/// The bytes of a 408 for HTTP/1.1, after which the connection closes.
pub(crate) fn raw_timeout(reason: &str) -> Vec<u8> {
    let rpc_error = RpcError::new(ErrorCode::InvalidRequest, StatusCode::REQUEST_TIMEOUT.as_u16(), reason);
    let body = host::early_error_response(&rpc_error, None).body;
    let head = format!(
        "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_ref()].concat()
}

/// Why a request was refused, for the log.
#[derive(Clone)]
pub(crate) struct RefusalReason(pub(crate) String);

fn with_reason(mut response: Response<Body>, reason: &str) -> Response<Body> {
    response.extensions_mut().insert(RefusalReason(reason.to_owned()));
    response
}

pub(crate) fn denied(denial: GuardRefusal) -> Response<Body> {
    if let Some(ms) = denial.retry_after_ms {
        let rpc_error = RpcError::busy(denial.status.as_u16(), ms, denial.reason);
        let response = from_error_response(host::early_error_response(&rpc_error, None));
        return with_reason(with_retry_after(response, Some(ms)), denial.reason);
    }
    let code = match denial.status {
        StatusCode::UNAUTHORIZED => ErrorCode::Unauthorized,
        StatusCode::FORBIDDEN => ErrorCode::Forbidden,
        _ => ErrorCode::InvalidRequest,
    };
    let mut response = error(denial.status, code, denial.reason);
    if denial.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

pub(crate) fn from_error_response(response: ErrorResponse) -> Response<Body> {
    with_retry_after(json(response.http_status, response.body), response.retry_after_ms)
}

pub(crate) fn with_retry_after(mut response: Response<Body>, retry_after_ms: Option<u64>) -> Response<Body> {
    if let Some(ms) = retry_after_ms {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).max(1)));
    }
    response
}

/// The client must read its responses before it sends further requests.
#[cold]
pub(crate) fn backlog_full() -> Response<Body> {
    let reason = "too many responses wait on this connection; read them before sending further requests";
    busy(StatusCode::SERVICE_UNAVAILABLE, reason)
}

/// The message was dropped because too many others are incomplete.
#[cold]
pub(crate) fn too_many_request_bytes() -> Response<Body> {
    busy(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_REQUEST_BYTES)
}

pub(crate) const TOO_MANY_REQUEST_BYTES: &str =
    "the server is receiving too many messages and dropped this slow one; send it again later";

/// A temporary error with `Retry-After`.
pub(crate) fn busy(status: StatusCode, reason: &str) -> Response<Body> {
    const RETRY_AFTER_MS: u64 = 1000;
    let rpc_error = RpcError::busy(status.as_u16(), RETRY_AFTER_MS, reason);
    let response = from_error_response(ErrorResponse {
        retry_after_ms: Some(RETRY_AFTER_MS),
        ..host::early_error_response(&rpc_error, None)
    });
    with_reason(response, reason)
}

pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let reason = match allowed {
        "GET" => "method not allowed; use GET",
        "POST, GET, DELETE" => "method not allowed; use POST, GET or DELETE",
        _ => "method not allowed; use POST; GET needs a session and Accept: text/event-stream",
    };
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::InvalidRequest, reason);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}
