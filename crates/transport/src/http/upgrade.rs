//! The WebSocket handshake (RFC 6455, section 4.2), behind the same guard as every other request.
//!
//! A request for an upgrade gets a WebSocket or an error, never an ordinary response: the bytes after it may already
//! be frames and must not be parsed as the next request. So an error also closes the connection.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use host::{CallerIdentity, Server};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use ring::digest;
use wire::HeaderField;
use wire::error::ErrorCode;

use super::body::Body;
use super::response;
use super::route::ConnectionContext;
use crate::request_headers::RequestHeaders;

/// The WebSocket that a connection becomes after its 101 response.
pub(crate) struct PendingUpgrade {
    pub(crate) on_upgrade: OnUpgrade,
    pub(crate) server: Arc<Server>,
    pub(crate) identity: CallerIdentity,
}

/// The subprotocol that the clients of the official SDKs offer.
const SUBPROTOCOL: &str = "mcp";

const WEBSOCKET: &str = "websocket";

/// Whether a request asks for a WebSocket, valid or not. Other upgrades are ignored.
#[inline]
pub(crate) fn is_websocket_upgrade(method: &Method, headers: &RequestHeaders<'_>) -> bool {
    match headers.upgrade {
        HeaderField::Absent => false,
        HeaderField::Single(_) | HeaderField::Repeated => {
            let texts = headers.values("upgrade").filter_map(|value| std::str::from_utf8(value).ok());
            let mut names = texts.flat_map(|value| value.split(','));
            method == Method::GET && names.any(|name| name.trim().eq_ignore_ascii_case(WEBSOCKET))
        }
    }
}

#[cold]
pub(crate) fn handle(
    context: &ConnectionContext,
    parts: &Parts,
    server: &Arc<Server>,
    identity: CallerIdentity,
) -> Response<Body> {
    let validated = validate(parts).and_then(|key| match parts.extensions.get::<OnUpgrade>() {
        Some(on_upgrade) => Ok((key, on_upgrade.clone())),
        None => Err(bad_request("this connection cannot be upgraded to a WebSocket")),
    });
    match validated {
        Ok((key, on_upgrade)) => {
            context.set_pending_upgrade(PendingUpgrade { on_upgrade, server: server.clone(), identity });
            switching_protocols(key)
        }
        Err(response) => *response,
    }
}

/// After a refused upgrade the client may already have sent frames, which must not be parsed as requests.
#[cold]
pub(crate) fn close_unless_upgraded(response: &mut Response<Body>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// The client's key, if the request is a valid handshake.
fn validate(parts: &Parts) -> Result<&[u8], Box<Response<Body>>> {
    let headers = &parts.headers;
    if parts.version != Version::HTTP_11 {
        return Err(bad_request("a WebSocket handshake must use HTTP/1.1"));
    }
    if single_value(headers, &header::UPGRADE).is_none() {
        return Err(bad_request("more than one Upgrade header"));
    }
    if !list_contains(headers, &header::CONNECTION, |name| name.eq_ignore_ascii_case("upgrade")) {
        return Err(bad_request("the Connection header must contain Upgrade"));
    }
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get_all(header::CONTENT_LENGTH).iter().any(|length| length != "0");
    if has_body {
        return Err(bad_request("a WebSocket handshake must not have a body"));
    }
    if single_value(headers, &header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != b"13") {
        let reason = "Sec-WebSocket-Version must be 13";
        let mut response =
            Box::new(response::error(StatusCode::UPGRADE_REQUIRED, ErrorCode::InvalidRequest, reason));
        let response_headers = response.headers_mut();
        response_headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        response_headers.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
        return Err(response);
    }
    let Some(key) = single_value(headers, &header::SEC_WEBSOCKET_KEY).filter(|key| is_valid_key(key)) else {
        return Err(bad_request("Sec-WebSocket-Key must be 16 bytes in base64"));
    };
    if !list_contains(headers, &header::SEC_WEBSOCKET_PROTOCOL, |name| name == SUBPROTOCOL) {
        return Err(bad_request("Sec-WebSocket-Protocol must offer `mcp`"));
    }
    Ok(key)
}

fn switching_protocols(key: &[u8]) -> Response<Body> {
    let mut response = response::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    if let Ok(accept) = HeaderValue::from_str(&accept_value(key)) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// RFC 6455, 4.2.2: proves that the server understands the handshake.
fn accept_value(key: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(context.finish())
}

fn is_valid_key(key: &[u8]) -> bool {
    STANDARD.decode(key).is_ok_and(|key| key.len() == 16)
}

/// The value of a header, unless it is repeated.
fn single_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes().trim_ascii()),
        (None, _) | (Some(_), Some(_)) => None,
    }
}

/// Whether one item of a comma-separated header matches.
fn list_contains(headers: &HeaderMap, header: &HeaderName, matches: impl Fn(&str) -> bool) -> bool {
    let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|name| matches(name.trim()))
}

fn bad_request(reason: &str) -> Box<Response<Body>> {
    Box::new(response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, reason))
}

#[cfg(test)]
mod tests {
    use super::accept_value;

    #[test]
    fn accept_value_matches_the_example_of_rfc_6455() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
