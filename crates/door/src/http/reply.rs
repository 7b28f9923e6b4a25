//! Responses: a body, its type, and what goes with it.

use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use wire::Refusal;
use wire::code::{Code, Told};

use super::body::Body;
use crate::guard::Denied;

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const ACCEL: HeaderName = HeaderName::from_static("x-accel-buffering");

#[inline]
pub(crate) fn json(status: u16, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

pub(crate) fn stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let heads = response.headers_mut();
    heads.insert(header::CONTENT_TYPE, STREAM);
    heads.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    heads.insert(ACCEL, HeaderValue::from_static("no"));
    response
}

pub(crate) fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Refuses before any request is known, with an error body all the same: people read it.
pub(crate) fn refuse(status: StatusCode, code: Code, why: &str) -> Response<Body> {
    let told = Told::new(code, status.as_u16(), why);
    let refusal = host::refusal(&told, None);
    json(refusal.status, refusal.body)
}

pub(crate) fn denied(denied: Denied) -> Response<Body> {
    let code = match denied.status {
        StatusCode::UNAUTHORIZED => Code::Unauthorized,
        StatusCode::FORBIDDEN => Code::Forbidden,
        _ => Code::InvalidRequest,
    };
    let mut response = refuse(denied.status, code, denied.why);
    if denied.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

pub(crate) fn refused(refusal: Refusal) -> Response<Body> {
    with_retry(json(refusal.status, refusal.body), refusal.retry_after_ms)
}

pub(crate) fn with_retry(mut response: Response<Body>, retry_after_ms: Option<u64>) -> Response<Body> {
    if let Some(ms) = retry_after_ms {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).max(1)));
    }
    response
}

pub(crate) fn allow(allowed: &'static str) -> Response<Body> {
    let mut response =
        refuse(StatusCode::METHOD_NOT_ALLOWED, Code::InvalidRequest, "this method is not allowed here");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}
