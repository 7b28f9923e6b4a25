//! Applies the server's policy to a call, and records what it decided. A policy that panics, or that does not decide
//! within the call's time limit, allows nothing.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Call, CallError, CallResult, CallTarget, CompletionRef, Decision, InputRequests, ItemKind, Journal,
    Outcome, Policy, PolicyContext, PolicyRun, ResultDecision, ToolError, ToolErrorCode,
};
use tokio::time::timeout;

use crate::observer::PolicyRecord;
use crate::panic_guard::{CatchPanic, catch_panic};
use crate::pipeline::{CallJob, log_internal_error};
use crate::registry::{CallRoute, Registry};
use crate::server::Server;

/// What the policy makes of a round.
pub(crate) enum PolicyOutcome {
    Allowed,
    /// The round runs with this call instead. Its arguments match the schema.
    ReplacedArguments(Box<Call>),
    /// The round ends here: refused, or the user must be asked.
    Ended(Box<Outcome>),
}

/// Whether the caller may see the called item. What it may not see does not exist for it.
pub(crate) fn check_visible(policy: &Arc<dyn Policy>, job: &CallJob) -> Result<(), CallError> {
    let Some(view) = policy.view(&job.caller) else { return Ok(()) };
    let name = job.call.name();
    let kind = match job.call.target {
        CallTarget::Tool => ItemKind::Tool,
        CallTarget::Prompt | CallTarget::Completion { reference: CompletionRef::Prompt, .. } => {
            ItemKind::Prompt
        }
        CallTarget::Resource | CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
            ItemKind::Resource
        }
    };
    if view.visibility.is_visible(kind, &name) {
        return Ok(());
    }
    record_decision(job, PolicyRecord::new("hide"));
    Err(CallError::UnknownItem { kind, name: name.into_owned() })
}

/// Records that the called item exists, but not for the caller's role.
#[cold]
pub(crate) fn record_hidden(server: &Server, registry: &Registry, job: &CallJob) {
    let Some(role) = &registry.role else { return };
    if server.with_registry(|whole| whole.route(&job.call).is_ok()) {
        let reason = match &**role {
            "" => "the caller has no role".to_owned(),
            role => format!("the role `{role}` does not have it"),
        };
        record_decision(job, PolicyRecord::new("hide").because(&reason));
    }
}

/// Waits for a decision, within `after_ms` and with panics caught.
async fn decide<T>(after_ms: u64, start: impl FnOnce() -> PolicyRun<T>) -> Result<T, CallError> {
    match catch_panic(start)? {
        PolicyRun::Now(decision) => Ok(decision),
        PolicyRun::Later(future) => {
            match timeout(Duration::from_millis(after_ms), CatchPanic(future)).await {
                Ok(decision) => decision,
                Err(_) => Err(CallError::Timeout { after_ms }),
            }
        }
    }
}

pub(crate) async fn apply_policy(
    server: &Server,
    policy: &Arc<dyn Policy>,
    route: &CallRoute<'_>,
    job: &mut CallJob,
) -> PolicyOutcome {
    // A person may have to be asked, wherever they are.
    let after_ms = server.limits.input_timeout_ms;
    let cx = policy_context(server, route, job, after_ms);
    let decided = match decide(after_ms, || policy.before(&job.call, &cx)).await {
        Ok(decided) => decided,
        Err(error) => {
            record_decision(job, PolicyRecord::new("none").because(&error.to_string()));
            return PolicyOutcome::Ended(Box::new(Outcome::Failed(error)));
        }
    };
    let decision = decided.decision.as_str();
    let (reason, hook) = (decided.reason.clone(), decided.hook);
    record_decision(job, PolicyRecord { decision, reason, hook });
    if let Some(note) = decided.note {
        job.journal.record_policy_note(note);
    }
    let reason = decided.reason.as_deref().unwrap_or("the server's policy does not allow this call");
    match decided.decision {
        Decision::Allow => PolicyOutcome::Allowed,
        Decision::Refuse => PolicyOutcome::Ended(Box::new(forbidden(reason).into())),
        Decision::Ask(requests) => PolicyOutcome::Ended(Box::new(ask(requests, job))),
        Decision::ReplaceArguments(arguments) => {
            let call = Call::tool(&job.call.name(), &arguments);
            let checked = match route {
                CallRoute::Tool(tool) => tool.compiled.input_schema.validate(call.arguments()),
                CallRoute::Provider(_) | CallRoute::ResourceProviders(_) => Ok(()),
            };
            match (route, checked) {
                (CallRoute::Tool(_), Ok(())) => PolicyOutcome::ReplacedArguments(Box::new(call)),
                (_, Err(error)) => {
                    let reason = format!(
                        "the server's policy changed the arguments of this call into invalid ones, so it was not made; its \
                         operator must correct that: {}",
                        error.message
                    );
                    tracing::warn!(tool = &*job.call.name(), "{reason}");
                    PolicyOutcome::Ended(Box::new(forbidden(&reason).into()))
                }
                (_, Ok(())) => {
                    let detail = "the policy replaced the arguments of something that is not a tool".into();
                    PolicyOutcome::Ended(Box::new(CallError::Internal { detail }.into()))
                }
            }
        }
    }
}

/// The provider's memo must survive a round in which only the policy asks.
fn ask(requests: InputRequests, job: &CallJob) -> Outcome {
    let requests = requests.as_consent();
    Outcome::InputRequired(match job.journal.memo() {
        Some(memo) => requests.with_memo(memo),
        None => requests,
    })
}

/// The result to send, and whether the policy replaced it.
pub(crate) async fn apply_policy_to_result(
    server: &Server,
    policy: &Arc<dyn Policy>,
    route: &CallRoute<'_>,
    job: &CallJob,
    result: CallResult,
) -> Result<(CallResult, bool), Box<ToolError>> {
    let call = job.replaced_call.as_deref().unwrap_or(&job.call);
    let after_ms = server.limits.call_timeout_ms;
    let cx = policy_context(server, route, job, after_ms);
    let decided = decide(after_ms, || policy.after(call, &result, &cx)).await;
    match decided {
        Ok(ResultDecision::Keep) => Ok((result, false)),
        Ok(ResultDecision::Replace { result, reason, hook }) => {
            record_decision(job, PolicyRecord { decision: PolicyRecord::REPLACED_RESULT, reason, hook });
            Ok((*result, true))
        }
        Ok(ResultDecision::Withhold { reason, hook }) => {
            let record = PolicyRecord::new("withhold_result").because(&reason);
            record_decision(job, PolicyRecord { hook, ..record });
            Err(Box::new(forbidden(&reason)))
        }
        Err(error) => {
            log_internal_error(&error);
            record_decision(job, PolicyRecord::new("withhold_result").because(&error.to_string()));
            Err(Box::new(forbidden("the server's policy could not decide about the result")))
        }
    }
}

fn record_decision(job: &CallJob, record: PolicyRecord) {
    if let Some(observation) = &job.observation {
        observation.record_decision(record);
    }
}

/// Refuses input requests of a provider whose answers would count for something else: for the note of the policy, or for
/// another question of the same round.
#[inline]
pub(crate) fn check_keys(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::InputRequired(requests) => match misleading_key(&requests) {
            Some(detail) => Outcome::Failed(CallError::Internal { detail }),
            None => Outcome::InputRequired(requests),
        },
        outcome => outcome,
    }
}

#[cold]
fn misleading_key(requests: &InputRequests) -> Option<String> {
    for key in [Journal::POLICY_KEY, Journal::PASSED_ON_POLICY_KEY] {
        if requests.contains_key(key) {
            return Some(format!("a provider requests input under the reserved key `{key}`"));
        }
    }
    requests.repeated_key().map(|key| format!("a provider requests input twice under the key `{key}`"))
}

fn policy_context<'a>(
    server: &'a Server,
    route: &'a CallRoute<'_>,
    job: &'a CallJob,
    timeout_ms: u64,
) -> PolicyContext<'a> {
    let tool = match route {
        CallRoute::Tool(tool) => Some(&tool.compiled.definition),
        CallRoute::Provider(_) | CallRoute::ResourceProviders(_) => None,
    };
    PolicyContext {
        caller: &job.caller,
        tool,
        journal: &job.journal,
        platform: &server.platform,
        session: job.reply_channel.session_key(),
        timeout_ms,
    }
}

fn forbidden(reason: &str) -> ToolError {
    ToolError::new(ToolErrorCode::Forbidden, reason)
}
