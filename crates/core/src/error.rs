//! Errors of a call.
//!
//! A [`CallError`] becomes a JSON-RPC error; one table in `wire` maps it to a code. A [`ToolError`] is the result
//! of a tool that failed: data that a model can read.

use json::Json;

use crate::caller::ClientCapabilities;

/// Why a call has no result. `Display` is the text for the caller. It leaves out fields that only the log may
/// show.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    // Errors of the caller.
    #[error("unknown {kind} `{name}`")]
    UnknownItem { kind: ItemKind, name: String },
    #[error("`{path}`: {reason}")]
    InvalidParams { path: String, reason: String },
    #[error("the request needs a client capability that the client did not declare")]
    MissingCapability(ClientCapabilities),
    #[error("this tool does not support tasks")]
    TaskNotSupported,
    #[error("requestState: {0}")]
    InvalidRequestState(&'static str),
    /// The answers to its questions belong to a tool that no longer exists as it was.
    #[error("the tool changed while it waited for input; repeat the call")]
    ChangedWhileWaiting,
    #[error("cancelled")]
    Cancelled,
    // Errors of the environment.
    #[error("no result within {after_ms} ms")]
    Timeout { after_ms: u64 },
    #[error("the server is busy; try again in {retry_after_ms} ms")]
    Busy { retry_after_ms: u64 },
    /// The store is full or cannot be reached.
    #[error("the server cannot store the state of this call; its operator must look at the log")]
    StoreUnavailable,
    /// The caller's share of the store is used up.
    #[error(
        "your calls and tasks that wait for input hold too much state; answer or cancel some, or wait until they expire"
    )]
    TooMuchState,
    /// Another process runs the task.
    #[error(
        "another process of this server runs the task; send this request there, or repeat it in {retry_after_ms} ms in case that process has ended"
    )]
    TaskElsewhere { retry_after_ms: u64 },
    /// A JSON-RPC error from the provider, forwarded unchanged.
    #[error("{message}")]
    Provider { code: i64, message: String, data: Option<Json> },
    // Errors of Spile.
    #[error("internal error; the server's log has the details")]
    Internal { detail: String },
}

impl CallError {
    /// The word for logs and audit.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::UnknownItem { .. } => "unknown_item",
            Self::InvalidParams { .. } => "invalid_params",
            Self::MissingCapability(_) => "missing_capability",
            Self::TaskNotSupported => "task_not_supported",
            Self::InvalidRequestState(_) => "invalid_request_state",
            Self::ChangedWhileWaiting => "changed_while_waiting",
            Self::Cancelled => "cancelled",
            Self::Timeout { .. } => "timeout",
            Self::Busy { .. } => "busy",
            Self::StoreUnavailable => "store_unavailable",
            Self::TooMuchState => "too_much_state",
            Self::TaskElsewhere { .. } => "task_elsewhere",
            Self::Provider { .. } => "provider_error",
            Self::Internal { .. } => "internal",
        }
    }
}

/// What kind of item a name was looked up as.
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

/// The kind of failure. The list is fixed, so that models and programs can rely on it.
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
    /// Each code with its name and its meaning.
    pub const TABLE: [(Self, &'static str, &'static str); 11] = [
        (
            Self::InvalidArguments,
            "invalid_arguments",
            "an argument is missing, invalid or unknown; `field` and `reason` say which and why",
        ),
        (Self::NotFound, "not_found", "no record has this key"),
        (
            Self::Conflict,
            "conflict",
            "the record already exists, or has changed since it was read; read it again and decide",
        ),
        (
            Self::Forbidden,
            "forbidden",
            "this is not allowed, and retrying does not help; `message` says what is allowed",
        ),
        (
            Self::InputRefused,
            "input_refused",
            "the server asked the user or the client for input, and the request was refused",
        ),
        (Self::RateLimited, "rate_limited", "too many calls; `retry_after_ms` says when to try again"),
        (Self::Timeout, "timeout", "the call took too long and was stopped; a write may have been applied"),
        (
            Self::SourceUnavailable,
            "source_unavailable",
            "the file or database is not available at the moment",
        ),
        (
            Self::SourceChanged,
            "source_changed",
            "the data no longer matches what this server declares; its operator must look at it",
        ),
        (Self::TooLarge, "too_large", "a record exceeds the size limit of a result; request fewer `fields`"),
        (Self::Internal, "internal", "an internal error; the server's log has the details under `ref`"),
    ];

    pub fn as_str(self) -> &'static str {
        Self::TABLE[self as usize].1
    }
}

/// A failed tool call as data, for the model.
#[derive(Debug, Clone)]
pub struct ToolError {
    pub code: ToolErrorCode,
    pub message: String,
    pub field: Option<String>,
    pub reason: Option<ArgumentErrorKind>,
    pub allowed: Option<Json>,
    pub retryable: bool,
    pub retry_after_ms: Option<u64>,
    /// The id under which the log has details.
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

    /// The error as one sentence: `Not found: no customer has this address`.
    pub fn to_sentence(&self) -> String {
        let mut sentence = self.code.as_str().replace('_', " ");
        if let Some(first) = sentence.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{sentence}: {}", self.message)
    }

    /// The tool error for a call error that a model should see; `None` if it must stay a JSON-RPC error.
    pub fn from_call_error(error: &CallError) -> Option<Self> {
        match error {
            CallError::Timeout { .. } => {
                Some(Self { retryable: true, ..Self::new(ToolErrorCode::Timeout, error.to_string()) })
            }
            CallError::TooMuchState => {
                Some(Self { retryable: true, ..Self::new(ToolErrorCode::RateLimited, error.to_string()) })
            }
            CallError::Busy { retry_after_ms } | CallError::TaskElsewhere { retry_after_ms } => Some(Self {
                retry_after_ms: Some(*retry_after_ms),
                ..Self::new(ToolErrorCode::RateLimited, error.to_string())
            }),
            CallError::StoreUnavailable => {
                Some(Self { retryable: true, ..Self::new(ToolErrorCode::Internal, error.to_string()) })
            }
            CallError::Internal { .. } => Some(Self::new(ToolErrorCode::Internal, error.to_string())),
            CallError::UnknownItem { .. }
            | CallError::InvalidParams { .. }
            | CallError::MissingCapability(_)
            | CallError::TaskNotSupported
            | CallError::InvalidRequestState(_)
            | CallError::ChangedWhileWaiting
            | CallError::Cancelled
            | CallError::Provider { .. } => None,
        }
    }
}

/// Why an argument was rejected. The list is fixed, so that models and programs can rely on it.
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
    fn the_table_has_one_row_per_code_in_order() {
        for (code, name, _) in ToolErrorCode::TABLE {
            assert_eq!(code.as_str(), name);
        }
        let error = ToolError::new(ToolErrorCode::NotFound, "no customer has email x");
        assert_eq!(error.to_sentence(), "Not found: no customer has email x");
    }
}
