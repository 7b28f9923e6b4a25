//! Reports finished calls to an observer: a log for people, an audit trail.
//!
//! Without an observer a call keeps nothing for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use json::ParseLimits;
use spile_core::{Call, CallError, CallId, CallResult, Journal};
use wire::ErrorResponse;

use crate::connection_state::ReplyChannel;
use crate::pipeline::CallResponse;
use crate::server::{CallerIdentity, Server};

/// Receives each call when it ends. It runs on the call's own task, so it must be quick.
pub trait CallObserver: Send + Sync {
    fn on_call_finished(&self, record: &CallRecord<'_>);

    /// Whether it reads [`CallRecord::call_id`]. Choosing one for each call costs random bytes.
    fn needs_call_id(&self) -> bool {
        false
    }
}

/// Several observers of one server, in this order.
pub struct CallObservers(pub Vec<Arc<dyn CallObserver>>);

impl CallObserver for CallObservers {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        self.0.iter().for_each(|observer| observer.on_call_finished(record));
    }

    fn needs_call_id(&self) -> bool {
        self.0.iter().any(|observer| observer.needs_call_id())
    }
}

/// One answered request of a call, which is all of it, unless it asks for input in several requests: then it has one record for
/// each, with its `round`. A call that continues as a task has one when the task starts, and one when it ends. The id of the call
/// joins them, and at most one says how it ended (ADR 0390).
pub struct CallRecord<'a> {
    /// What ran, or would have run.
    pub call: &'a Call,
    /// What the client called, if the policy replaced its arguments.
    pub requested: Option<&'a Call>,
    /// The same for all rounds of a call. `None` if no observer needs it.
    pub call_id: Option<CallId>,
    pub identity: &'a CallerIdentity,
    /// Identifies the session or connection; `None` for a request that stands alone.
    pub session: Option<[u8; 16]>,
    pub status: CallStatus<'a>,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    pub duration_ms: u64,
    /// Size of the encoded response; 0 for a nested call.
    pub response_bytes: usize,
    /// Number of earlier rounds in which the client was asked for input.
    pub round: u32,
    /// 0 for a call of the client; 1 for a call of a tool by another, and so on.
    pub depth: u8,
    /// What the policy decided, in order; empty without a policy.
    pub policy: &'a [PolicyRecord],
}

/// What the policy decided about a call, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRecord {
    pub decision: &'static str,
    pub reason: Option<Box<str>>,
    /// The program outside of the server that decided, or had a part in it.
    pub hook: Option<Box<str>>,
}

impl PolicyRecord {
    /// The decision that another result is sent than the one that the call had.
    pub const REPLACED_RESULT: &str = "replace_result";

    pub fn new(decision: &'static str) -> Self {
        Self { decision, reason: None, hook: None }
    }

    #[must_use]
    pub fn because(self, reason: &str) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }
}

/// How a call ended.
pub enum CallStatus<'a> {
    Result(&'a CallResult),
    /// The client must provide input and repeat the call.
    InputRequired,
    /// The call continues as a task, whose end has a record of its own.
    Task,
    Error(&'a CallError),
    /// The client cancelled the call or disconnected.
    Cancelled,
}

/// What a call keeps for its observer.
pub(crate) struct CallObservation {
    observer: Arc<dyn CallObserver>,
    call: Call,
    call_id: Option<CallId>,
    identity: CallerIdentity,
    session: Option<[u8; 16]>,
    started_ms: u64,
    round: u32,
    depth: u8,
    decided: Mutex<Decided>,
    is_reported: AtomicBool,
}

/// What the policy decided so far.
#[derive(Default)]
struct Decided {
    records: Vec<PolicyRecord>,
    /// What ran last instead of the call, if it was not the call itself.
    replacement: Option<Call>,
}

/// Two for each round of a call; a call that asks again and again keeps the first ones and the last ones.
const POLICY_RECORDS_MAX: usize = 64;

impl CallObservation {
    /// `None` without an observer.
    #[inline]
    pub(crate) fn new(
        server: &Server,
        call: &Call,
        identity: &CallerIdentity,
        reply_channel: &ReplyChannel,
        journal: &Journal,
        depth: u8,
    ) -> Option<Arc<Self>> {
        let observer = server.observer.get()?.clone();
        let call_id = observer.needs_call_id().then(|| journal.call_id(&*server.platform));
        let started_ms = server.platform.now_ms();
        Some(Arc::new(Self {
            observer,
            call: call.clone(),
            call_id,
            identity: identity.clone(),
            session: reply_channel.session_key(),
            started_ms,
            round: journal.round,
            depth,
            decided: Mutex::default(),
            is_reported: AtomicBool::new(false),
        }))
    }

    pub(crate) fn record_decision(&self, record: PolicyRecord) {
        let records = &mut self.decided().records;
        if records.len() >= POLICY_RECORDS_MAX {
            records.remove(POLICY_RECORDS_MAX / 2);
        }
        records.push(record);
    }

    /// Notes what is about to run: in a round of its own, a policy may replace the arguments otherwise, or not at all.
    pub(crate) fn record_run(&self, replacement: Option<&Call>) {
        let replaced = &mut self.decided().replacement;
        if replaced.is_some() || replacement.is_some() {
            *replaced = replacement.cloned();
        }
    }

    fn decided(&self) -> MutexGuard<'_, Decided> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a call that is refused before it starts.
    #[cold]
    pub(crate) fn report_refusal(
        server: &Server,
        call: &Call,
        identity: &CallerIdentity,
        reply_channel: &ReplyChannel,
        error: CallError,
    ) {
        if let Some(observation) = Self::new(server, call, identity, reply_channel, &Journal::default(), 0) {
            observation.report(server, Some(&CallResponse::Error(error)), 0);
        }
    }

    /// Reports the call, once.
    #[cold]
    pub(crate) fn report(&self, server: &Server, response: Option<&CallResponse>, bytes: usize) {
        let status = match response {
            Some(CallResponse::Result(result)) => CallStatus::Result(result),
            Some(CallResponse::InputRequired { .. }) => CallStatus::InputRequired,
            Some(CallResponse::Task(_) | CallResponse::TaskAnswer(_)) => CallStatus::Task,
            Some(CallResponse::Error(error)) => CallStatus::Error(error),
            None => CallStatus::Cancelled,
        };
        self.report_status(server, status, bytes);
    }

    pub(crate) fn report_status(&self, server: &Server, status: CallStatus<'_>, bytes: usize) {
        if self.is_reported.swap(true, Ordering::Relaxed) {
            return;
        }
        let duration_ms = server.platform.now_ms().saturating_sub(self.started_ms);
        let decided = self.decided();
        self.observer.on_call_finished(&CallRecord {
            call: decided.replacement.as_ref().unwrap_or(&self.call),
            requested: decided.replacement.as_ref().map(|_| &self.call),
            call_id: self.call_id,
            identity: &self.identity,
            session: self.session,
            status,
            started_ms: self.started_ms,
            duration_ms,
            response_bytes: bytes,
            round: self.round,
            depth: self.depth,
            policy: &decided.records,
        });
    }
}

/// Reports a call that is dropped before it ends as cancelled.
pub(crate) struct ReportOnDrop {
    pub(crate) server: Arc<Server>,
    pub(crate) observation: Option<Arc<CallObservation>>,
}

impl ReportOnDrop {
    pub(crate) fn report(mut self, response: &CallResponse) {
        if let Some(observation) = self.observation.take() {
            observation.report(&self.server, Some(response), 0);
        }
    }
}

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        if let Some(observation) = self.observation.take() {
            observation.report(&self.server, None, 0);
        }
    }
}

/// Logs a message that could not be decoded into a request: invalid JSON, an unknown method, invalid parameters. The
/// text names methods and members, never argument values.
#[cold]
pub(crate) fn log_rejected_message(response: &ErrorResponse) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let Ok(doc) = json::parse(response.body.clone(), &ParseLimits::default()) else { return };
    let error = doc.root().get("error");
    let code = error.and_then(|error| Some(error.get("code")?.raw()));
    let reason = error.and_then(|error| error.get("message")?.str()).unwrap_or_default();
    let bytes = response.body.len();
    // Over a pipe, and in a batch, there is no status of its own.
    let status = Some(response.http_status).filter(|status| *status != 200);
    tracing::info!(status, code, reason = &*reason, response_bytes = bytes, "refused message");
}
