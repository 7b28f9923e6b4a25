//! What a browser is told, for the origins that the operator allows and for no others.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::body::Body;
use super::response;

const ALLOWED_HEADERS: &str =
    "authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id";

/// Answers a preflight request.
pub(crate) fn preflight(origin: &HeaderValue, heads: &HeaderMap) -> Response<Body> {
    let mut response = response::empty(StatusCode::NO_CONTENT);
    let out = response.headers_mut();
    out.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, DELETE, OPTIONS"));
    out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(heads));
    out.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    allow_origin(&mut response, origin);
    response
}

/// Tells the browser that this page may read the answer.
pub(crate) fn allow_origin(response: &mut Response<Body>, origin: &HeaderValue) {
    let out = response.headers_mut();
    out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    out.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("mcp-session-id, mcp-protocol-version, www-authenticate, retry-after"),
    );
    out.append(header::VARY, HeaderValue::from_static("origin"));
}

/// The fixed list, and those `mcp-param-*` that were asked for: a tool names them as it likes.
fn allowed_headers(heads: &HeaderMap) -> HeaderValue {
    let asked = heads.get(header::ACCESS_CONTROL_REQUEST_HEADERS).and_then(|v| v.to_str().ok()).unwrap_or("");
    let mut allowed = ALLOWED_HEADERS.to_owned();
    for name in asked.split(',').map(str::trim) {
        let lower = name.to_ascii_lowercase();
        if lower.starts_with("mcp-param-") && HeaderName::from_bytes(lower.as_bytes()).is_ok() {
            allowed.push_str(", ");
            allowed.push_str(&lower);
        }
    }
    HeaderValue::from_str(&allowed).unwrap_or(HeaderValue::from_static(ALLOWED_HEADERS))
}
