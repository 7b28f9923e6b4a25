//! The last calls of a server: what was called, how it ended, how long it took. No arguments and no results.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use ::page::CallOutcome;
use host::{CallObserver, CallRecord, CallStatus};
use spile_core::{CallError, CallResult, CallTarget, Principal, ToolErrorCode};

/// Older calls are forgotten.
const CALLS_MAX: usize = 100;
/// A longer name is not listed anywhere, so it is not kept.
const NAME_BYTES_MAX: usize = 1024;

/// A bounded record of calls.
#[derive(Default)]
pub(crate) struct CallHistory {
    since_ms: OnceLock<u64>,
    /// The newest first.
    calls: Mutex<VecDeque<RecordedCall>>,
}

#[derive(Debug, Clone)]
pub(crate) struct RecordedCall {
    pub(crate) started_ms: u64,
    pub(crate) target: CallTarget,
    /// As the caller wrote it.
    pub(crate) name: Box<str>,
    pub(crate) outcome: CallOutcome,
    pub(crate) duration_ms: u64,
    pub(crate) response_bytes: usize,
    pub(crate) is_nested: bool,
    principal: Principal,
}

impl CallHistory {
    /// Marks the begin of the recording. Returns whether it had not begun.
    pub(crate) fn start(&self, now_ms: u64) -> bool {
        self.since_ms.set(now_ms).is_ok()
    }

    pub(crate) fn since_ms(&self) -> u64 {
        self.since_ms.get().copied().unwrap_or_default()
    }

    /// The calls of one caller, the newest first.
    pub(crate) fn calls_of(&self, principal: &Principal) -> Vec<RecordedCall> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter(|call| call.principal == *principal).cloned().collect()
    }
}

impl CallObserver for CallHistory {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        let name = record.call.name();
        let name = if name.len() > NAME_BYTES_MAX { "".into() } else { name.into_owned().into_boxed_str() };
        let call = RecordedCall {
            started_ms: record.started_ms,
            target: record.call.target,
            name,
            outcome: outcome(&record.status),
            duration_ms: record.duration_ms,
            response_bytes: record.response_bytes,
            is_nested: record.depth > 0,
            principal: record.identity.principal.clone(),
        };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.truncate(CALLS_MAX - 1);
        calls.push_front(call);
    }
}

/// How a call ended, in words of our own: what an error says may contain data.
fn outcome(status: &CallStatus<'_>) -> CallOutcome {
    match status {
        CallStatus::Result(CallResult::Tool(reply)) if reply.is_error => {
            let structured = reply.structured.as_ref().map(json::Json::to_doc);
            let code = structured.as_ref().and_then(|doc| doc.root().get("code")?.str());
            let known = code.and_then(|code| {
                ToolErrorCode::TABLE.iter().find(|(_, name, _)| *name == code).map(|(_, name, _)| *name)
            });
            CallOutcome::ToolError(known)
        }
        CallStatus::Result(_) => CallOutcome::Ok,
        CallStatus::InputRequired => CallOutcome::InputRequired,
        CallStatus::Task => CallOutcome::Task,
        CallStatus::Cancelled => CallOutcome::Cancelled,
        CallStatus::Error(error) => CallOutcome::Error(match error {
            CallError::UnknownItem { .. } => "unknown item",
            CallError::InvalidParams { .. } => "invalid params",
            CallError::MissingCapability(_) => "missing capability",
            CallError::TaskNotSupported => "task not supported",
            CallError::InvalidRequestState(_) => "invalid requestState",
            CallError::ChangedWhileWaiting => "changed while waiting",
            CallError::Cancelled => "cancelled",
            CallError::Timeout { .. } => "timeout",
            CallError::Busy { .. } => "busy",
            CallError::StoreUnavailable => "store unavailable",
            CallError::TooMuchState => "too much state",
            CallError::TaskElsewhere { .. } => "task elsewhere",
            CallError::Provider { .. } => "error",
            CallError::Internal { .. } => "internal error",
        }),
    }
}
