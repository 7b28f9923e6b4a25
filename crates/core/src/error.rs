//! Why a call produced no result, split by whose fault it is.
//!
//! A [`Fault`] is a protocol fault: it becomes a JSON-RPC error. A [`Problem`] is what a tool answers when
//! it could not do its work: data that a model can read. One table in `wire` turns faults into codes.

use json::Json;

use crate::caller::ClientCapabilities;

/// Why there is no result. `Display` is the text for the caller; what only the log may see stays in the
/// field that `Display` leaves out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    // The caller's.
    #[error("unknown {kind} `{name}`")]
    UnknownItem { kind: ItemKind, name: String },
    #[error("`{path}`: {reason}")]
    InvalidParams { path: String, reason: String },
    #[error("this needs a client capability that the request does not declare")]
    MissingCapability(ClientCapabilities),
    #[error("this tool does not run as a task")]
    TaskNotSupported,
    #[error("requestState: {0}")]
    InvalidRequestState(&'static str),
    #[error("cancelled")]
    Cancelled,
    // The world's.
    #[error("no answer within {after_ms} ms")]
    Timeout { after_ms: u64 },
    #[error("too busy; try again in {retry_after_ms} ms")]
    Busy { retry_after_ms: u64 },
    /// The provider speaks for itself: an error of its own, passed on as it is.
    #[error("{message}")]
    Provider { code: i64, message: String, data: Option<Json> },
    // Ours.
    #[error("internal error; it has been logged")]
    Internal { detail: String },
}

/// What was asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    Tool,
    Prompt,
    Resource,
    Task,
}

impl std::fmt::Display for ItemKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Task => "task",
        })
    }
}

/// What kind of failure it is: a fixed list, so that a model can be taught it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolErrorCode {
    InvalidArguments,
    NotFound,
    Conflict,
    Forbidden,
    InputRefused,
    RateLimited,
    Timeout,
    SourceUnavailable,
    SourceChanged,
    TooLarge,
    Internal,
}

impl ToolErrorCode {
    /// Each with its code and what it means.
    pub const TABLE: [(Self, &'static str, &'static str); 11] = [
        (
            Self::InvalidArguments,
            "invalid_arguments",
            "an argument is missing, wrong or unknown; `field` and `reason` say which and why",
        ),
        (Self::NotFound, "not_found", "nothing has this key"),
        (
            Self::Conflict,
            "conflict",
            "the record is there already, or not in the state that was meant; read it and decide",
        ),
        (
            Self::Forbidden,
            "forbidden",
            "this is not allowed here, whoever asks again; `message` says what would be",
        ),
        (Self::InputRefused, "input_refused", "a question was put to the client, and it would not answer"),
        (Self::RateLimited, "rate_limited", "too much at once; `retry_after_ms` says when to try again"),
        (Self::Timeout, "timeout", "it took too long and was stopped; what it writes may have been written"),
        (Self::SourceUnavailable, "source_unavailable", "the file or database cannot be read now"),
        (
            Self::SourceChanged,
            "source_changed",
            "the data is no longer what this server promises; somebody must look at it",
        ),
        (
            Self::TooLarge,
            "too_large",
            "a record is larger than anything that is told; ask for fewer `fields`",
        ),
        (Self::Internal, "internal", "a fault of ours; the log has it under `ref`"),
    ];

    pub fn as_str(self) -> &'static str {
        Self::TABLE[self as usize].1
    }
}

/// A failure as data, for the model.
#[derive(Debug, Clone)]
pub struct ToolError {
    pub code: ToolErrorCode,
    pub message: String,
    pub field: Option<String>,
    pub reason: Option<ArgumentErrorKind>,
    pub allowed: Option<Json>,
    pub retryable: bool,
    pub retry_after_ms: Option<u64>,
    /// Under this the log has more.
    pub log_reference: Option<String>,
}

impl ToolError {
    pub fn new(code: ToolErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            message,
            field: None,
            reason: None,
            allowed: None,
            retryable: false,
            retry_after_ms: None,
            log_reference: None,
        }
    }

    /// As a line to read: `Not found: no customer has this address`.
    pub fn to_sentence(&self) -> String {
        let mut words = self.code.as_str().replace('_', " ");
        if let Some(first) = words.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{words}: {}", self.message)
    }

    /// How a fault reads when it is told to a model instead of a client.
    pub fn from_call_error(fault: &CallError) -> Option<Self> {
        match fault {
            CallError::Timeout { .. } => {
                Some(Self { retryable: true, ..Self::new(ToolErrorCode::Timeout, fault.to_string()) })
            }
            CallError::Busy { retry_after_ms } => Some(Self {
                retry_after_ms: Some(*retry_after_ms),
                ..Self::new(ToolErrorCode::RateLimited, fault.to_string())
            }),
            CallError::Internal { .. } => Some(Self::new(ToolErrorCode::Internal, fault.to_string())),
            CallError::UnknownItem { .. }
            | CallError::InvalidParams { .. }
            | CallError::MissingCapability(_)
            | CallError::TaskNotSupported
            | CallError::InvalidRequestState(_)
            | CallError::Cancelled
            | CallError::Provider { .. } => None,
        }
    }
}

/// Why an argument was refused: a fixed list, so that a model can be taught it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentErrorKind {
    MissingRequired,
    WrongType,
    NotAllowed,
    BadFormat,
    OutOfRange,
    UnknownArgument,
    TooLong,
}

impl ArgumentErrorKind {
    pub const ALL: [Self; 7] = [
        Self::MissingRequired,
        Self::WrongType,
        Self::NotAllowed,
        Self::BadFormat,
        Self::OutOfRange,
        Self::UnknownArgument,
        Self::TooLong,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingRequired => "missing_required",
            Self::WrongType => "wrong_type",
            Self::NotAllowed => "not_allowed",
            Self::BadFormat => "bad_format",
            Self::OutOfRange => "out_of_range",
            Self::UnknownArgument => "unknown_argument",
            Self::TooLong => "too_long",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ToolError, ToolErrorCode};

    #[test]
    fn every_failure_has_its_own_row() {
        for (failure, code, _) in ToolErrorCode::TABLE {
            assert_eq!(failure.as_str(), code);
        }
        let problem = ToolError::new(ToolErrorCode::NotFound, "nothing in customers has email x");
        assert_eq!(problem.to_sentence(), "Not found: nothing in customers has email x");
    }
}
