//! What went wrong, as a number and a status: one table, not forty call sites.

use call::{Caps, Fault, Thing};
use json::{Json, write};

use crate::id::Id;
use crate::version::{Feature, Version};

/// An error code of JSON-RPC, of MCP, or (below -31000) of our own.
///
/// 2026-07-28, Error Codes: new codes SHOULD lie outside the range that JSON-RPC reserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    HeaderMismatch,
    MissingCapability,
    UnsupportedVersion,
    ResourceNotFound,
    Busy,
    Timeout,
    Cancelled,
    Unauthorized,
    Forbidden,
    NoSession,
}

impl Code {
    #[rustfmt::skip]
    pub const TABLE: [(Self, i64, &'static str, &'static str); 15] = [
        (Self::Parse, -32700, "parse error", "the message is not JSON, not UTF-8, nested too deeply, or has a key twice"),
        (Self::InvalidRequest, -32600, "invalid request", "the message is JSON but no JSON-RPC request, or not allowed here"),
        (Self::MethodNotFound, -32601, "method not found", "unknown in this version, or a capability that nothing here has; `data.method` repeats it"),
        (Self::InvalidParams, -32602, "invalid params", "a parameter is missing or wrong; an unknown tool, prompt, cursor or task; from 2026-07-28 on an unknown resource"),
        (Self::Internal, -32603, "internal error", "a fault of ours; what happened is in the log"),
        (Self::HeaderMismatch, -32020, "header mismatch", "an HTTP header is missing, malformed, or differs from the body"),
        (Self::MissingCapability, -32021, "missing client capability", "`data.requiredCapabilities` names what the client must declare"),
        (Self::UnsupportedVersion, -32022, "unsupported protocol version", "`data.supported` lists the versions to choose from"),
        (Self::ResourceNotFound, -32002, "resource not found", "up to 2025-11-25; `data.uri` repeats the URI"),
        (Self::Busy, -31001, "busy", "a limit is reached; `Retry-After` and `data.retryAfterMs` say when to try again"),
        (Self::Timeout, -31002, "timeout", "no answer within the deadline (a tool answers this as a result with `isError`)"),
        (Self::Cancelled, -31003, "cancelled", "the work was stopped before it had a result"),
        (Self::Unauthorized, -31004, "unauthorized", "HTTP 401: the bearer token is missing or wrong"),
        (Self::Forbidden, -31005, "forbidden", "HTTP 403: the `Host` or `Origin` is not allowed here"),
        (Self::NoSession, -31006, "no such session", "HTTP 404: the session is unknown, ended or expired; initialize again"),
    ];

    pub fn number(self) -> i64 {
        Self::TABLE[self as usize].1
    }
}

/// An error on its way to the client.
#[derive(Debug, Clone)]
pub struct Told {
    pub code: i64,
    pub status: u16,
    pub message: String,
    pub data: Option<Json>,
}

impl Told {
    pub fn new(code: Code, status: u16, message: impl Into<String>) -> Self {
        Self { code: code.number(), status, message: message.into(), data: None }
    }

    #[must_use]
    pub fn with(mut self, data: Json) -> Self {
        self.data = Some(data);
        self
    }

    /// A method that this version or this server does not have.
    pub fn method_not_found(method: &str, version: Version) -> Self {
        // 2026-07-28, Protocol Version Header: MUST respond with 404 Not Found.
        let status = if version.has(Feature::Envelope) { 404 } else { 200 };
        Self::new(Code::MethodNotFound, status, format!("method not found: `{method}`")).with(Json::object(
            |o| {
                o.str("method", method);
            },
        ))
    }

    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidParams, 200, message)
    }

    /// What a fault is for a client of this version.
    pub fn from_fault(fault: &Fault, version: Version) -> Self {
        let text = fault.to_string();
        match fault {
            Fault::Unknown { what: Thing::Resource, name } => {
                let code = if version.has(Feature::NotFoundCode) {
                    Code::ResourceNotFound
                } else {
                    Code::InvalidParams
                };
                Self::new(code, 200, text).with(Json::object(|o| {
                    o.str("uri", name);
                }))
            }
            Fault::Unknown { what: Thing::Tool | Thing::Prompt | Thing::Task, .. }
            | Fault::BadParams { .. }
            | Fault::BadState(_) => Self::invalid_params(text),
            Fault::MissingCapability(caps) => Self::missing_capability(*caps, version),
            // 2025-11-25, Tool-Level Negotiation: servers SHOULD return -32601.
            Fault::NotATask => Self::new(Code::MethodNotFound, 200, text),
            Fault::Cancelled => Self::new(Code::Cancelled, 200, text),
            Fault::Timeout { .. } => Self::new(Code::Timeout, 200, text),
            Fault::Busy { retry_after_ms } => Self::busy(503, *retry_after_ms, text),
            Fault::Told { code, message, data } => {
                Self { code: *code, status: 200, message: message.clone(), data: data.clone() }
            }
            Fault::Bug { .. } => Self::new(Code::Internal, 200, text),
        }
    }

    pub fn busy(status: u16, retry_after_ms: u64, message: impl Into<String>) -> Self {
        Self::new(Code::Busy, status, message).with(Json::object(|o| {
            o.int("retryAfterMs", retry_after_ms.min(i64::MAX as u64) as i64);
        }))
    }

    fn missing_capability(caps: Caps, version: Version) -> Self {
        let (code, status) = if version.has(Feature::Envelope) {
            (Code::MissingCapability, 400)
        } else if caps.has(Caps::TASKS) {
            // 2025-11-25, Tool-Level Negotiation: "Servers MUST return a -32601 (Method not found) error".
            return Self::new(
                Code::MethodNotFound,
                200,
                "this tool runs only as a task, and none was asked for",
            );
        } else {
            // Earlier versions have no code for this; the request itself was fine, but not for this client.
            (Code::InvalidRequest, 200)
        };
        let data = Json::object(|o| {
            o.object("requiredCapabilities", |caps_out| crate::peer::write_caps(caps_out, caps));
        });
        let mut message =
            format!("this needs a client that {}, and the request does not say so", caps.in_words());
        if !version.has(Feature::Envelope) {
            message.push_str(
                "; over HTTP it also needs a session, and `Accept: text/event-stream` to be asked on",
            );
        }
        Self::new(code, status, message).with(data)
    }

    /// The whole response. An error without a request has no id, or `null` where the version has no word
    /// for that: JSON-RPC 2.0, section 5.
    pub fn response(&self, id: Option<&Id>, version: Version) -> Vec<u8> {
        let mut out = Vec::with_capacity(160 + self.message.len());
        let mut object = write::Object::new(&mut out);
        object.str("jsonrpc", "2.0");
        match id {
            Some(id) => object.key("id").extend_from_slice(id.as_bytes()),
            None if version.has(Feature::ErrorWithoutId) => {}
            None => object.key("id").extend_from_slice(b"null"),
        }
        object.object("error", |error| self.write(error));
        object.end();
        out
    }

    /// The members of the error object.
    pub fn write(&self, error: &mut write::Object<'_>) {
        error.int("code", self.code).str("message", &self.message);
        error.maybe_raw("data", self.data.as_ref().map(Json::as_str));
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn rows_stand_in_the_order_of_the_variants() {
        for (i, (code, number, ..)) in Code::TABLE.iter().enumerate() {
            assert_eq!((*code as usize, code.number()), (i, *number));
        }
    }
}
