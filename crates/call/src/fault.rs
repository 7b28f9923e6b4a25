//! Why a call produced no result, split by whose fault it is.
//!
//! A [`Fault`] is a protocol fault: it becomes a JSON-RPC error. A [`Problem`] is what a tool answers when
//! it could not do its work: data that a model can read. One table in `wire` turns faults into codes.

use json::Json;

use crate::caller::Caps;

/// Why there is no result. `Display` is the text for the caller; what only the log may see stays in the
/// field that `Display` leaves out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    // The caller's.
    #[error("unknown {what} `{name}`")]
    Unknown { what: Thing, name: String },
    #[error("`{at}`: {why}")]
    BadParams { at: String, why: String },
    #[error("this needs a client capability that the request does not declare")]
    MissingCapability(Caps),
    #[error("this tool does not run as a task")]
    NotATask,
    #[error("requestState: {0}")]
    BadState(&'static str),
    #[error("cancelled")]
    Cancelled,
    // The world's.
    #[error("no answer within {after_ms} ms")]
    Timeout { after_ms: u64 },
    #[error("too busy; try again in {retry_after_ms} ms")]
    Busy { retry_after_ms: u64 },
    /// The provider speaks for itself: an error of its own, passed on as it is.
    #[error("{message}")]
    Told { code: i64, message: String, data: Option<Json> },
    // Ours.
    #[error("internal error; it has been logged")]
    Bug { log: String },
}

/// What was asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    Tool,
    Prompt,
    Resource,
    Task,
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Task => "task",
        })
    }
}

/// A failure as data, for the model.
#[derive(Debug, Clone)]
pub struct Problem {
    pub code: &'static str,
    pub message: String,
    pub field: Option<String>,
    pub reason: Option<Reason>,
    pub allowed: Option<Json>,
    pub retryable: bool,
    pub retry_after_ms: Option<u64>,
    /// Under this the log has more.
    pub reference: Option<String>,
}

impl Problem {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            message,
            field: None,
            reason: None,
            allowed: None,
            retryable: false,
            retry_after_ms: None,
            reference: None,
        }
    }

    /// As a line to read: `Not found: no customer has this address`.
    pub fn sentence(&self) -> String {
        let mut words = self.code.replace('_', " ");
        if let Some(first) = words.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{words}: {}", self.message)
    }

    /// How a fault reads when it is told to a model instead of a client.
    pub fn from_fault(fault: &Fault) -> Option<Self> {
        match fault {
            Fault::Timeout { .. } => {
                Some(Self { retryable: true, ..Self::new("timeout", fault.to_string()) })
            }
            Fault::Busy { retry_after_ms } => Some(Self {
                retry_after_ms: Some(*retry_after_ms),
                ..Self::new("rate_limited", fault.to_string())
            }),
            Fault::Bug { .. } => Some(Self::new("internal", fault.to_string())),
            Fault::Unknown { .. }
            | Fault::BadParams { .. }
            | Fault::MissingCapability(_)
            | Fault::NotATask
            | Fault::BadState(_)
            | Fault::Cancelled
            | Fault::Told { .. } => None,
        }
    }
}

/// Why an argument was refused: a fixed list, so that a model can be taught it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    MissingRequired,
    WrongType,
    NotAllowed,
    BadFormat,
    OutOfRange,
    UnknownArgument,
    TooLong,
}

impl Reason {
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
