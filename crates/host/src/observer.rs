//! Reports finished calls to an observer: a log for people, an audit trail.
//!
//! Without an observer a call keeps nothing for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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

/// A finished call. A call that asks for input in several requests has one record for each, with its `round`; a call that
/// continues as a task has one when the task starts, and one when it ends.
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
    policy: Mutex<Vec<PolicyRecord>>,
    /// What runs instead of `call`.
    replacement: OnceLock<Call>,
    is_reported: AtomicBool,
}

/// Two for each round of a call; a call that asks again and again keeps the first ones.
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
            policy: Mutex::default(),
            replacement: OnceLock::new(),
            is_reported: AtomicBool::new(false),
        }))
    }

    pub(crate) fn record_decision(&self, record: PolicyRecord) {
        let mut records = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() < POLICY_RECORDS_MAX {
            records.push(record);
        }
    }

    /// The policy decides the same in every round of a request, so the first replacement stays.
    pub(crate) fn record_replacement(&self, call: &Call) {
        self.replacement.get_or_init(|| call.clone());
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
        self.observer.on_call_finished(&CallRecord {
            call: self.replacement.get().unwrap_or(&self.call),
            requested: self.replacement.get().map(|_| &self.call),
            call_id: self.call_id,
            identity: &self.identity,
            session: self.session,
            status,
            started_ms: self.started_ms,
            duration_ms,
            response_bytes: bytes,
            round: self.round,
            depth: self.depth,
            policy: &self.policy.lock().unwrap_or_else(PoisonError::into_inner),
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
