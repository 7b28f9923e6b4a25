//! Whoever watches calls go by: a log for people, an audit.
//!
//! Where nobody watches, nothing is kept for it.

use std::sync::Arc;

use json::ScanLimits;
use spile_core::{Call, CallError, CallResult};
use wire::ErrorResponse;

use crate::pipeline::CallResponse;
use crate::server::{CallerIdentity, Server};

/// Is told of each call when it ends. What it does takes from the call's own time.
pub trait CallObserver: Send + Sync {
    fn on_call_finished(&self, called: &CallRecord<'_>);
}

/// A call that is over.
pub struct CallRecord<'a> {
    pub call: &'a Call,
    pub identity: &'a CallerIdentity,
    pub status: CallStatus<'a>,
    pub duration_ms: u64,
    /// Of the answer as it goes out.
    pub response_bytes: usize,
}

/// How a call ended.
pub enum CallStatus<'a> {
    Result(&'a CallResult),
    /// The caller is asked something, and comes back.
    InputRequired,
    /// It goes on as a task.
    Task,
    Error(&'a CallError),
    /// Nobody waited for the answer any more.
    Cancelled,
}

/// What has to be kept of a call so that it can be told.
pub(crate) struct CallObservation {
    observer: Arc<dyn CallObserver>,
    call: Call,
    identity: CallerIdentity,
    started_ms: u64,
}

impl CallObservation {
    /// `None` if nobody watches.
    #[inline]
    pub(crate) fn new(server: &Server, call: &Call, who: &CallerIdentity) -> Option<Box<Self>> {
        let observer = server.observer.get()?.clone();
        let began_ms = server.platform.now_ms();
        Some(Box::new(Self { observer, call: call.clone(), identity: who.clone(), started_ms: began_ms }))
    }

    #[cold]
    pub(crate) fn report(&self, server: &Server, ended: Option<&CallResponse>, bytes: usize) {
        let ending = match ended {
            Some(CallResponse::Result(reply)) => CallStatus::Result(reply),
            Some(CallResponse::InputRequired { .. }) => CallStatus::InputRequired,
            Some(CallResponse::Task(_)) => CallStatus::Task,
            Some(CallResponse::Error(fault)) => CallStatus::Error(fault),
            None => CallStatus::Cancelled,
        };
        let took_ms = server.platform.now_ms().saturating_sub(self.started_ms);
        self.observer.on_call_finished(&CallRecord {
            call: &self.call,
            identity: &self.identity,
            status: ending,
            duration_ms: took_ms,
            response_bytes: bytes,
        });
    }
}

/// Logs a message that could not be decoded into a request: invalid JSON, an unknown method, invalid parameters. The
/// text names methods and members, never argument values.
#[cold]
pub(crate) fn log_rejected_message(response: &ErrorResponse) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let Ok(doc) = json::scan(response.body.clone(), &ScanLimits::default()) else { return };
    let error = doc.root().get("error");
    let code = error.and_then(|error| Some(error.get("code")?.raw()));
    let reason = error.and_then(|error| error.get("message")?.str()).unwrap_or_default();
    let bytes = response.body.len();
    tracing::info!(
        status = response.http_status,
        code,
        reason = &*reason,
        response_bytes = bytes,
        "refused message"
    );
}
