//! CORS headers, only for the origins that the operator allows.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::body::Body;
use super::response;

const ALLOWED_HEADERS: &str =
    "authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id";

/// Answers a preflight request.
pub(crate) fn preflight(origin: &HeaderValue, request_headers: &HeaderMap) -> Response<Body> {
    let mut response = response::empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers
        .insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, DELETE, OPTIONS"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(request_headers));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    allow_origin(&mut response, origin);
    response
}

/// Lets a page of this origin read the response.
pub(crate) fn allow_origin(response: &mut Response<Body>, origin: &HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("mcp-session-id, mcp-protocol-version, www-authenticate, retry-after"),
    );
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

/// The fixed list, and the requested `mcp-param-*` headers, whose names tools choose.
fn allowed_headers(request_headers: &HeaderMap) -> HeaderValue {
    let requested = request_headers
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("");
    let mut allowed = ALLOWED_HEADERS.to_owned();
    for name in requested.split(',').map(str::trim) {
        let lower = name.to_ascii_lowercase();
        if lower.starts_with("mcp-param-") && HeaderName::from_bytes(lower.as_bytes()).is_ok() {
            allowed.push_str(", ");
            allowed.push_str(&lower);
        }
    }
    HeaderValue::from_str(&allowed).unwrap_or(HeaderValue::from_static(ALLOWED_HEADERS))
}
