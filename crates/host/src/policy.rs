//! Applies the server's policy to a call, and records what it decided.

use std::sync::Arc;

use spile_core::{
    Call, CallError, CallResult, CallTarget, CompletionRef, Decision, InputRequests, ItemKind, Outcome,
    Policy, PolicyContext, ResultDecision, ToolError, ToolErrorCode,
};

use crate::pipeline::CallJob;
use crate::registry::CallRoute;
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
    match view.visibility.is_visible(kind, &name) {
        true => Ok(()),
        false => Err(CallError::UnknownItem { kind, name: name.into_owned() }),
    }
}

pub(crate) async fn apply_policy(
    server: &Server,
    policy: &Arc<dyn Policy>,
    route: &CallRoute<'_>,
    job: &CallJob,
) -> PolicyOutcome {
    let run = policy.before(&job.call, &policy_context(server, route, job));
    let decided = run.wait().await;
    if let Some(observation) = &job.observation {
        observation.record_decision(&decided);
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
                    let detail =
                        format!("the policy replaced arguments with invalid ones: {}", error.message);
                    PolicyOutcome::Ended(Box::new(CallError::Internal { detail }.into()))
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
    Outcome::InputRequired(match job.journal.memo() {
        Some(memo) => requests.with_memo(memo),
        None => requests,
    })
}

pub(crate) async fn apply_policy_to_result(
    server: &Server,
    policy: &Arc<dyn Policy>,
    route: &CallRoute<'_>,
    job: &CallJob,
    result: CallResult,
) -> Result<CallResult, Box<ToolError>> {
    let run = policy.after(&job.call, &result, &policy_context(server, route, job));
    match run.wait().await {
        ResultDecision::Keep => Ok(result),
        ResultDecision::Replace(replacement) => {
            record_result_decision(job, "replace_result", None);
            Ok(*replacement)
        }
        ResultDecision::Withhold(reason) => {
            record_result_decision(job, "withhold_result", Some(&reason));
            Err(Box::new(forbidden(&reason)))
        }
    }
}

fn record_result_decision(job: &CallJob, decision: &'static str, reason: Option<&str>) {
    if let Some(observation) = &job.observation {
        observation.record_result_decision(decision, reason);
    }
}

fn policy_context<'a>(server: &'a Server, route: &'a CallRoute<'_>, job: &'a CallJob) -> PolicyContext<'a> {
    let tool = match route {
        CallRoute::Tool(tool) => Some(&tool.compiled.definition),
        CallRoute::Provider(_) | CallRoute::ResourceProviders(_) => None,
    };
    PolicyContext { caller: &job.caller, tool, journal: &job.journal, platform: &server.platform }
}

fn forbidden(reason: &str) -> ToolError {
    ToolError::new(ToolErrorCode::Forbidden, reason)
}
