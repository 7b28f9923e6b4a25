//! JSON-RPC errors: one table of codes, and the mapping from [`CallError`] to code and HTTP status.

use json::{Json, write};
use spile_core::{CallError, ClientCapabilities, ItemKind};

use crate::id::RequestId;
use crate::version::{Feature, Version};

/// An error code of JSON-RPC, of MCP, or (-31001 to -31006) of Spile.
///
/// 2026-07-28, Error Codes: new codes SHOULD lie outside the range that JSON-RPC reserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    InternalError,
    HeaderMismatch,
    MissingCapability,
    UnsupportedVersion,
    ResourceNotFound,
    Busy,
    Timeout,
    Cancelled,
    Unauthorized,
    Forbidden,
    SessionNotFound,
}

impl ErrorCode {
    #[rustfmt::skip]
    pub const TABLE: [(Self, i64, &'static str, &'static str); 15] = [
        (Self::ParseError, -32700, "parse error", "the message is not JSON, not UTF-8, nested too deeply, or has a duplicate key"),
        (Self::InvalidRequest, -32600, "invalid request", "the message is JSON but not a JSON-RPC request, or is not allowed here"),
        (Self::MethodNotFound, -32601, "method not found", "the method does not exist in this version, or the server lacks its capability; `data.method` repeats it"),
        (Self::InvalidParams, -32602, "invalid params", "a parameter is missing or invalid; the tool, prompt, cursor or task is unknown; from 2026-07-28 on, the resource is unknown"),
        (Self::InternalError, -32603, "internal error", "an internal error; the server's log has the details"),
        (Self::HeaderMismatch, -32020, "header mismatch", "an HTTP header is missing, malformed, or differs from the body"),
        (Self::MissingCapability, -32021, "missing client capability", "`data.requiredCapabilities` names what the client must declare"),
        (Self::UnsupportedVersion, -32022, "unsupported protocol version", "`data.supported` lists the versions to choose from"),
        (Self::ResourceNotFound, -32002, "resource not found", "the resource is unknown (up to 2025-11-25); `data.uri` repeats the URI"),
        (Self::Busy, -31001, "busy", "a limit is reached; `Retry-After` and `data.retryAfterMs` say when to try again"),
        (Self::Timeout, -31002, "timeout", "no result within the timeout (a tool call returns a result with `isError` instead)"),
        (Self::Cancelled, -31003, "cancelled", "the call was cancelled before it had a result"),
        (Self::Unauthorized, -31004, "unauthorized", "HTTP 401: the bearer token is missing or invalid"),
        (Self::Forbidden, -31005, "forbidden", "HTTP 403: the `Host` or `Origin` is not allowed"),
        (Self::SessionNotFound, -31006, "session not found", "HTTP 404: the session ended or expired, or the server's keys have changed; send `initialize` again"),
    ];

    pub fn number(self) -> i64 {
        Self::TABLE[self as usize].1
    }
}

/// A JSON-RPC error for a client, with its HTTP status.
#[derive(Debug, Clone)]
pub struct RpcError {
    pub code: i64,
    pub http_status: u16,
    pub message: String,
    pub data: Option<Json>,
}

impl RpcError {
    pub fn new(code: ErrorCode, http_status: u16, message: impl Into<String>) -> Self {
        Self { code: code.number(), http_status, message: message.into(), data: None }
    }

    #[must_use]
    pub fn with_data(mut self, data: Json) -> Self {
        self.data = Some(data);
        self
    }

    /// The method does not exist in this version or on this server.
    pub fn method_not_found(method: &str, version: Version) -> Self {
        // 2026-07-28, Protocol Version Header: MUST respond with 404 Not Found.
        let status = if version.has(Feature::RequestMeta) { 404 } else { 200 };
        Self::new(ErrorCode::MethodNotFound, status, format!("method not found: `{method}`")).with_data(
            Json::object(|o| {
                o.str("method", method);
            }),
        )
    }

    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidParams, 200, message)
    }

    /// The error for a client of this version.
    pub fn from_call_error(error: &CallError, version: Version) -> Self {
        let text = error.to_string();
        match error {
            CallError::UnknownItem { kind: ItemKind::Resource, name } => {
                let code = if version.has(Feature::ResourceNotFoundCode) {
                    ErrorCode::ResourceNotFound
                } else {
                    ErrorCode::InvalidParams
                };
                Self::new(code, 200, text).with_data(Json::object(|o| {
                    o.str("uri", name);
                }))
            }
            CallError::UnknownItem { kind: ItemKind::Tool | ItemKind::Prompt | ItemKind::Task, .. }
            | CallError::InvalidParams { .. }
            | CallError::InvalidRequestState(_)
            | CallError::ChangedWhileWaiting => Self::invalid_params(text),
            CallError::MissingCapability(capabilities) => Self::missing_capability(*capabilities, version),
            // 2025-11-25, Tool-Level Negotiation: servers SHOULD return -32601.
            CallError::TaskNotSupported => Self::new(ErrorCode::MethodNotFound, 200, text),
            CallError::Cancelled => Self::new(ErrorCode::Cancelled, 200, text),
            CallError::Timeout { .. } => Self::new(ErrorCode::Timeout, 200, text),
            CallError::Busy { retry_after_ms } | CallError::TaskElsewhere { retry_after_ms } => {
                Self::busy(503, *retry_after_ms, text)
            }
            CallError::TooMuchState => Self::new(ErrorCode::Busy, 200, text),
            CallError::Provider { code, message, data } => {
                Self { code: *code, http_status: 200, message: message.clone(), data: data.clone() }
            }
            CallError::StoreUnavailable | CallError::Internal { .. } => {
                Self::new(ErrorCode::InternalError, 200, text)
            }
        }
    }

    pub fn busy(status: u16, retry_after_ms: u64, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Busy, status, message).with_data(Json::object(|o| {
            o.int("retryAfterMs", retry_after_ms.min(i64::MAX as u64) as i64);
        }))
    }

    fn missing_capability(capabilities: ClientCapabilities, version: Version) -> Self {
        let (code, status) = if version.has(Feature::RequestMeta) {
            (ErrorCode::MissingCapability, 400)
        } else if capabilities.has(ClientCapabilities::TASKS) {
            // 2025-11-25, Tool-Level Negotiation: "Servers MUST return a -32601 (Method not found) error".
            return Self::new(
                ErrorCode::MethodNotFound,
                200,
                "this tool runs only as a task; send the `task` parameter",
            );
        } else {
            // Earlier versions have no code for this.
            (ErrorCode::InvalidRequest, 200)
        };
        let data = Json::object(|o| {
            o.object("requiredCapabilities", |out| crate::peer::write_capabilities(out, capabilities));
        });
        let mut message = format!(
            "this call needs a client capability that the client did not declare: {}",
            capabilities.describe()
        );
        if !version.has(Feature::RequestMeta) {
            message.push_str("; over HTTP it also needs a session and `Accept: text/event-stream`");
        }
        Self::new(code, status, message).with_data(data)
    }

    /// Writes the whole response. An error that belongs to no request has no id, or the id `null` in older
    /// versions: JSON-RPC 2.0, section 5.
    pub fn to_response(&self, id: Option<&RequestId>, version: Version) -> Vec<u8> {
        let mut out = Vec::with_capacity(160 + self.message.len());
        let mut object = write::ObjectWriter::new(&mut out);
        object.str("jsonrpc", "2.0");
        match id {
            Some(id) => object.key("id").extend_from_slice(id.as_bytes()),
            None if version.has(Feature::ErrorWithoutId) => {}
            None => object.key("id").extend_from_slice(b"null"),
        }
        object.object("error", |error| self.write_members(error));
        object.end();
        out
    }

    /// Writes the members of the error object.
    pub fn write_members(&self, error: &mut write::ObjectWriter<'_>) {
        error.int("code", self.code).str("message", &self.message);
        error.maybe_raw("data", self.data.as_ref().map(Json::as_str));
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn table_rows_are_in_the_order_of_the_variants() {
        for (i, (code, number, ..)) in ErrorCode::TABLE.iter().enumerate() {
            assert_eq!((*code as usize, code.number()), (i, *number));
        }
    }
}
