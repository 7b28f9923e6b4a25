//! Why a GET, a DELETE or a subscription gets no stream: one answer for each reason.

use wire::error::{ErrorCode, RpcError};
use wire::{ErrorResponse, SessionError};

use crate::server::early_error_response;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The method exists only in sessions.
    NoSession,
    RepeatedSessionId,
    UnsupportedVersion,
    SessionNotFound(SessionError),
    /// The client does not accept `text/event-stream`.
    StreamNotAccepted,
    SubscriptionNotAccepted,
    TooManySessions,
    /// The stream that `Last-Event-ID` names does not exist in this session, or not any more.
    StreamNotFound,
}

impl Refusal {
    pub const ALL: [Self; 12] = [
        Self::NoSession,
        Self::RepeatedSessionId,
        Self::UnsupportedVersion,
        Self::SessionNotFound(SessionError::Malformed),
        Self::SessionNotFound(SessionError::OtherCaller),
        Self::SessionNotFound(SessionError::KeyChanged),
        Self::SessionNotFound(SessionError::Expired),
        Self::SessionNotFound(SessionError::Ended),
        Self::StreamNotAccepted,
        Self::SubscriptionNotAccepted,
        Self::TooManySessions,
        Self::StreamNotFound,
    ];

    /// Status, code and reason, for the client and for the log.
    fn details(self) -> (u16, ErrorCode, &'static str) {
        use ErrorCode::{Busy, InvalidRequest, SessionNotFound, UnsupportedVersion};
        match self {
            Self::NoSession => (405, InvalidRequest, "this method is not allowed at this path"),
            Self::RepeatedSessionId => (400, InvalidRequest, "more than one Mcp-Session-Id header"),
            Self::UnsupportedVersion => (400, UnsupportedVersion, "unsupported MCP-Protocol-Version"),
            Self::SessionNotFound(error) => (404, SessionNotFound, error.message()),
            Self::StreamNotAccepted => {
                (406, InvalidRequest, "the response to GET is text/event-stream; add it to Accept")
            }
            Self::SubscriptionNotAccepted => {
                let reason = "the response to a subscription is text/event-stream; add it to Accept";
                (406, InvalidRequest, reason)
            }
            Self::TooManySessions => (429, Busy, "too many sessions; try again shortly"),
            Self::StreamNotFound => {
                let reason =
                    "the stream of this Last-Event-ID is no longer available; send the request again";
                (400, InvalidRequest, reason)
            }
        }
    }

    pub fn reason(self) -> &'static str {
        self.details().2
    }

    /// The value of the `Allow` header.
    pub fn allowed_methods(self) -> Option<&'static str> {
        match self {
            Self::NoSession => Some("POST"),
            Self::RepeatedSessionId
            | Self::UnsupportedVersion
            | Self::SessionNotFound(_)
            | Self::StreamNotAccepted
            | Self::SubscriptionNotAccepted
            | Self::TooManySessions
            | Self::StreamNotFound => None,
        }
    }

    #[cold]
    pub fn to_response(self) -> ErrorResponse {
        const RETRY_AFTER_MS: u64 = 1000;
        let (status, code, reason) = self.details();
        let (error, retry_after_ms) = match code {
            ErrorCode::Busy => (RpcError::busy(status, RETRY_AFTER_MS, reason), Some(RETRY_AFTER_MS)),
            code => (RpcError::new(code, status, reason), None),
        };
        ErrorResponse { retry_after_ms, ..early_error_response(&error, None) }
    }
}
