//! From HTTP to a WebSocket: RFC 6455, section 4.2, behind the same guards as every other request.
//!
//! Whoever asks for a WebSocket gets one or an error, never an ordinary answer: what follows the request may
//! be frames already, and must not be read as the next one. So a refusal also closes the connection.

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

/// What a connection becomes when the answer to its request is out.
pub(crate) struct PendingUpgrade {
    pub(crate) on_upgrade: OnUpgrade,
    pub(crate) server: Arc<Server>,
    pub(crate) identity: CallerIdentity,
}

/// What MCP is called here: the clients of the official SDKs offer it.
const SUBPROTOCOL: &str = "mcp";

const WEBSOCKET: &str = "websocket";

/// Whether a request asks for a WebSocket, rightly or not. Elsewhere an Upgrade may be ignored, and is.
#[inline]
pub(crate) fn is_websocket_upgrade(method: &Method, seen: &RequestHeaders<'_>) -> bool {
    match seen.upgrade {
        HeaderField::Absent => false,
        HeaderField::Single(_) | HeaderField::Repeated => {
            method == Method::GET
                && list_contains(seen.map, &header::UPGRADE, |name| name.eq_ignore_ascii_case(WEBSOCKET))
        }
    }
}

#[cold]
pub(crate) fn handle(
    arrived: &ConnectionContext,
    parts: &Parts,
    server: &Arc<Server>,
    who: CallerIdentity,
) -> Response<Body> {
    let asked = validate(parts).and_then(|key| match parts.extensions.get::<OnUpgrade>() {
        Some(on) => Ok((key, on.clone())),
        None => Err(bad_request("a WebSocket is asked for with an Upgrade of HTTP/1.1")),
    });
    match asked {
        Ok((key, on)) => {
            arrived.set_pending_upgrade(PendingUpgrade {
                on_upgrade: on,
                server: server.clone(),
                identity: who,
            });
            switching_protocols(key)
        }
        Err(refused) => *refused,
    }
}

/// Whoever asked for an upgrade and got none may have gone on as if it had: what it has sent is not read as requests.
#[cold]
pub(crate) fn close_unless_upgraded(response: &mut Response<Body>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// The client's key, if everything is as it must be.
fn validate(parts: &Parts) -> Result<&[u8], Box<Response<Body>>> {
    let heads = &parts.headers;
    if parts.version != Version::HTTP_11 {
        return Err(bad_request("a WebSocket is asked for with HTTP/1.1"));
    }
    if single_value(heads, &header::UPGRADE).is_none() {
        return Err(bad_request("more than one Upgrade header"));
    }
    if !list_contains(heads, &header::CONNECTION, |name| name.eq_ignore_ascii_case("upgrade")) {
        return Err(bad_request("Connection does not name Upgrade"));
    }
    let has_body = heads.contains_key(header::TRANSFER_ENCODING)
        || heads.get_all(header::CONTENT_LENGTH).iter().any(|length| length != "0");
    if has_body {
        return Err(bad_request("a request for a WebSocket has no body"));
    }
    if single_value(heads, &header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != b"13") {
        let why = "Sec-WebSocket-Version must be 13";
        let mut refused =
            Box::new(response::error(StatusCode::UPGRADE_REQUIRED, ErrorCode::InvalidRequest, why));
        let own = refused.headers_mut();
        own.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        own.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
        return Err(refused);
    }
    let Some(key) = single_value(heads, &header::SEC_WEBSOCKET_KEY).filter(|key| is_valid_key(key)) else {
        return Err(bad_request("Sec-WebSocket-Key must be 16 bytes in base64"));
    };
    if !list_contains(heads, &header::SEC_WEBSOCKET_PROTOCOL, |name| name == SUBPROTOCOL) {
        return Err(bad_request("Sec-WebSocket-Protocol must offer `mcp`"));
    }
    Ok(key)
}

fn switching_protocols(key: &[u8]) -> Response<Body> {
    let mut response = response::empty(StatusCode::SWITCHING_PROTOCOLS);
    let heads = response.headers_mut();
    heads.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
    heads.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    heads.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    if let Ok(accept) = HeaderValue::from_str(&accept_value(key)) {
        heads.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// RFC 6455, 4.2.2: shows that we know what we are asked for, and nothing else.
fn accept_value(key: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(context.finish())
}

fn is_valid_key(key: &[u8]) -> bool {
    STANDARD.decode(key).is_ok_and(|key| key.len() == 16)
}

/// The value of a header that comes once.
fn single_value<'h>(heads: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut all = heads.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => Some(value.as_bytes().trim_ascii()),
        (None, _) | (Some(_), Some(_)) => None,
    }
}

/// Whether one of the names in a header is the one.
fn list_contains(heads: &HeaderMap, header: &HeaderName, is: impl Fn(&str) -> bool) -> bool {
    let values = heads.get_all(header).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|name| is(name.trim()))
}

fn bad_request(why: &str) -> Box<Response<Body>> {
    Box::new(response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, why))
}

#[cfg(test)]
mod tests {
    use super::accept_value;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
