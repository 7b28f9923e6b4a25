//! The one path of a call, on one screen: whose is it, is it well formed, run it, ask what is missing, shape
//! what came of it.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Call, CallContext, CallError, CallResult, Caller, EventSink, InputRequests, Journal, Outcome, Platform,
    Run, TaskSupport, ToolContent, ToolError, ToolErrorCode, ToolResult,
};
use tokio::time::timeout;
use wire::encode::TaskSnapshot;
use wire::{Peer, TaskMetadata};

use crate::connection_state::ReplyChannel;
use crate::input_requests::{InputOutcome, request_input};
use crate::panic_guard::{CatchPanic, catch_panic};
use crate::rate_limit::RateLimited;
use crate::registry::{CallRoute, Registry, ToolEntry};
use crate::server::{CallerIdentity, Server};

/// A call and all that belongs to it.
pub(crate) struct CallJob {
    pub(crate) call: Call,
    pub(crate) peer: Peer,
    pub(crate) caller: Caller,
    pub(crate) identity: CallerIdentity,
    pub(crate) reply_channel: ReplyChannel,
    pub(crate) events: EventSink,
    pub(crate) journal: Journal,
    pub(crate) task_metadata: Option<TaskMetadata>,
}

/// How a request for a call ended.
pub(crate) enum CallResponse {
    Result(CallResult),
    InputRequired { requests: InputRequests, state: String },
    Task(TaskSnapshot),
    Error(CallError),
}

// An `async fn` would keep its arguments twice, and what every call allocates has to fit where allocating is quick.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub(crate) fn execute_call(
    server: Arc<Server>,
    registry: Arc<Registry>,
    mut job: CallJob,
) -> impl Future<Output = Result<CallResponse, CallError>> + Send {
    async move {
        let owner = registry.route(&job.call)?; // whose is it
        if let CallRoute::Tool(tool) = &owner {
            if let Err(problem) = tool.input_schema.validate(job.call.arguments()) {
                return Ok(CallResponse::Result(tool_error_result(&server, tool, *problem))); // is it well formed
            }
            check_task_support(tool, &job)?;
            if let Some(gate) = &tool.rate_limiter
                && let Err(wait) = gate.try_acquire(&job.identity, server.platform.now_ms())
            {
                return Ok(CallResponse::Result(tool_error_result(&server, tool, rate_limit_error(wait)))); // is it not too often
            }
        }
        loop {
            let outcome = run_round(&server, &registry, &owner, &job).await;
            let outcome = match outcome {
                Outcome::Detach(work) if continues_as_task(&owner, &job) => {
                    let started = server.tasks.start(&server, &registry, job, work);
                    return started
                        .map(CallResponse::Task)
                        .or_else(|fault| error_response(&server, &owner, fault));
                }
                Outcome::Detach(work) => {
                    await_with_timeout(call_timeout_ms(&registry, &owner), Run::Later(work)).await
                }
                other => other,
            };
            match outcome {
                Outcome::Done(reply) => return Ok(CallResponse::Result(fit_result(&owner, reply))),
                Outcome::ToolFailed(problem) => {
                    return Ok(CallResponse::Result(tool_error_to_result(&server, &owner, *problem)?));
                }
                Outcome::Failed(fault) => return error_response(&server, &owner, fault),
                Outcome::Detach(_) => {
                    return Err(CallError::Internal { detail: "detached work detached again".into() });
                }
                // Boxed, because it is rare and would make every call's future larger.
                Outcome::InputRequired(asks) => {
                    match Box::pin(request_input(&server, &registry, &mut job, &asks)).await {
                        Ok(InputOutcome::Answered) => {}
                        Ok(InputOutcome::Sealed(state)) => {
                            return Ok(CallResponse::InputRequired { requests: asks, state });
                        }
                        Ok(InputOutcome::Refused(message)) => {
                            return Ok(CallResponse::Result(tool_error_to_result(
                                &server,
                                &owner,
                                input_refused_error(&message),
                            )?));
                        }
                        Err(fault) => return error_response(&server, &owner, fault),
                    }
                }
            }
        }
    }
}

/// One round: the provider's own function, under the deadline and with its panics caught.
async fn run_round(server: &Server, registry: &Registry, owner: &CallRoute<'_>, job: &CallJob) -> Outcome {
    let cx = CallContext {
        caller: &job.caller,
        journal: &job.journal,
        events: &job.events,
        platform: &server.platform,
    };
    let after_ms = call_timeout_ms(registry, owner);
    match owner {
        CallRoute::Tool(tool) => {
            await_with_timeout(after_ms, catch_panic(|| tool.provider.run(&job.call, &cx))).await
        }
        CallRoute::Provider(provider) => {
            await_with_timeout(after_ms, catch_panic(|| provider.run(&job.call, &cx))).await
        }
        CallRoute::ResourceProviders(readers) => {
            for reader in *readers {
                match await_with_timeout(after_ms, catch_panic(|| reader.run(&job.call, &cx))).await {
                    Outcome::Failed(CallError::UnknownItem { .. }) => {}
                    outcome => return outcome,
                }
            }
            let name = job.call.name().into_owned();
            Outcome::Failed(CallError::UnknownItem { kind: spile_core::ItemKind::Resource, name })
        }
    }
}

/// Waits for what is not at hand; when time is up the work is dropped, and with it everything it held.
#[inline]
async fn await_with_timeout(after_ms: u64, run: Run) -> Outcome {
    match run {
        Run::Now(outcome) => outcome,
        Run::Later(work) => {
            match Box::pin(timeout(Duration::from_millis(after_ms), CatchPanic(work))).await {
                Ok(outcome) => outcome,
                Err(_) => Outcome::Failed(CallError::Timeout { after_ms }),
            }
        }
    }
}

#[inline]
fn call_timeout_ms(registry: &Registry, owner: &CallRoute<'_>) -> u64 {
    match owner {
        CallRoute::Tool(tool) => tool.call_timeout_ms,
        CallRoute::Provider(_) | CallRoute::ResourceProviders(_) => registry.config.call_timeout_ms,
    }
}

/// Whether the caller's wish for a task, or lack of it, fits the tool.
fn check_task_support(tool: &ToolEntry, job: &CallJob) -> Result<(), CallError> {
    match tool.task_support {
        TaskSupport::Forbidden if job.task_metadata.is_some() => Err(CallError::TaskNotSupported),
        TaskSupport::Required if !accepts_task(job) => {
            Err(CallError::MissingCapability(spile_core::ClientCapabilities::TASKS))
        }
        TaskSupport::Forbidden | TaskSupport::Optional | TaskSupport::Required => Ok(()),
    }
}

/// A client asks for a task in the call (2025-11-25), or declares that it can take one.
fn accepts_task(job: &CallJob) -> bool {
    job.task_metadata.is_some() || job.caller.capabilities.has(spile_core::ClientCapabilities::TASKS)
}

fn continues_as_task(owner: &CallRoute<'_>, job: &CallJob) -> bool {
    matches!(owner, CallRoute::Tool(tool) if tool.task_support != TaskSupport::Forbidden) && accepts_task(job)
}

/// What a model can act on is told to the model, as a result; the rest is the client's business.
fn error_response(
    server: &Server,
    owner: &CallRoute<'_>,
    fault: CallError,
) -> Result<CallResponse, CallError> {
    error_to_result(server, owner, fault).map(CallResponse::Result)
}

fn error_to_result(
    server: &Server,
    owner: &CallRoute<'_>,
    fault: CallError,
) -> Result<CallResult, CallError> {
    match (owner, ToolError::from_call_error(&fault)) {
        (CallRoute::Tool(tool), Some(problem)) => {
            log_internal_error(&fault);
            let problem = match fault {
                CallError::Timeout { after_ms } if tool.writes => write_timeout_error(after_ms),
                _ => problem,
            };
            Ok(tool_error_result(server, tool, problem))
        }
        _ => Err(fault),
    }
}

/// A problem, where a model reads it; a prompt or a resource has no place for one.
fn tool_error_to_result(
    server: &Server,
    owner: &CallRoute<'_>,
    problem: ToolError,
) -> Result<CallResult, CallError> {
    match owner {
        CallRoute::Tool(tool) => Ok(tool_error_result(server, tool, problem)),
        CallRoute::Provider(_) | CallRoute::ResourceProviders(_) => {
            let at = problem.field.unwrap_or_else(|| "params".into());
            Err(CallError::InvalidParams { path: at, reason: problem.message })
        }
    }
}

/// Every failure that leaves here is found again in the log.
#[cold]
fn tool_error_result(server: &Server, tool: &ToolEntry, mut problem: ToolError) -> CallResult {
    let reference = problem.log_reference.get_or_insert_with(|| new_error_reference(&*server.platform));
    tracing::info!(%reference, code = problem.code.as_str(), field = problem.field.as_deref(), "a call failed");
    fit_output_schema(tool, ToolResult::from_tool_error(&problem))
}

/// Work that is dropped may have passed the point at which it can be taken back.
fn write_timeout_error(after_ms: u64) -> ToolError {
    let message = format!(
        "no answer within {after_ms} ms; it may have been done: read the record before you try again, or pass an \
         idempotency_key"
    );
    ToolError { retryable: false, ..ToolError::new(ToolErrorCode::Timeout, message) }
}

fn rate_limit_error(wait: RateLimited) -> ToolError {
    let retry_after_ms = Some(wait.retry_after_ms);
    let message = format!("too many calls; try again in {} ms", wait.retry_after_ms);
    ToolError { retry_after_ms, ..ToolError::new(ToolErrorCode::RateLimited, message) }
}

/// A name for one failure, short enough to be read out.
pub(crate) fn new_error_reference(world: &dyn Platform) -> String {
    let mut random = [0; 4];
    world.fill_random(&mut random);
    format!("{:08x}", u32::from_be_bytes(random))
}

pub(crate) fn input_refused_error(message: &str) -> ToolError {
    ToolError::new(ToolErrorCode::InputRefused, format!("the client refused to answer: {message}"))
}

/// What a call that went on as a task is answered: the same as if its caller had waited.
pub(crate) fn finish_task_call(
    server: &Server,
    registry: &Registry,
    call: &Call,
    came_of_it: Result<CallResult, CallFailure>,
) -> Result<CallResult, CallError> {
    let owner = registry.route(call)?;
    match came_of_it {
        Ok(reply) => Ok(fit_result(&owner, reply)),
        Err(CallFailure::Tool(problem)) => tool_error_to_result(server, &owner, *problem),
        Err(CallFailure::Call(fault)) => error_to_result(server, &owner, fault),
    }
}

/// Why a call has no result of its own.
pub(crate) enum CallFailure {
    Tool(Box<ToolError>),
    Call(CallError),
}

#[inline]
fn fit_result(owner: &CallRoute<'_>, reply: CallResult) -> CallResult {
    match (owner, reply) {
        (CallRoute::Tool(tool), CallResult::Tool(reply)) if reply.is_error => fit_output_schema(tool, reply),
        (_, reply) => reply,
    }
}

/// A failure says what it has to say as text where the tool's output schema has no place for it.
fn fit_output_schema(tool: &ToolEntry, reply: ToolResult) -> CallResult {
    CallResult::Tool(match (&reply.content, &reply.structured) {
        (content, Some(json)) if !tool.output_admits(json) => {
            let text = match content {
                ToolContent::Structured => ToolContent::Text(json.to_string()),
                other => other.clone(),
            };
            ToolResult { content: text, structured: None, ..reply }
        }
        _ => reply,
    })
}

/// The round of a call that goes on as a task, after the first.
pub(crate) async fn run_task_round(server: &Server, registry: &Registry, job: &CallJob) -> Outcome {
    match registry.route(&job.call) {
        Ok(owner) => {
            let cx = CallContext {
                caller: &job.caller,
                journal: &job.journal,
                events: &job.events,
                platform: &server.platform,
            };
            let provider = match &owner {
                CallRoute::Tool(tool) => &tool.provider,
                CallRoute::Provider(provider) => provider,
                CallRoute::ResourceProviders(_) => {
                    return Outcome::Failed(CallError::Internal { detail: "only tools are tasks".into() });
                }
            };
            match catch_panic(|| provider.run(&job.call, &cx)) {
                Run::Now(Outcome::Detach(work)) | Run::Later(work) => CatchPanic(work).await,
                Run::Now(outcome) => outcome,
            }
        }
        Err(fault) => Outcome::Failed(fault),
    }
}

pub(crate) fn log_internal_error(fault: &CallError) {
    if let CallError::Internal { detail: log } = fault {
        tracing::error!(%log, "a call failed by a fault of ours");
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, CallJob, Registry, Server, execute_call};

    fn future_bytes<F>(_: fn(Arc<Server>, Arc<Registry>, CallJob) -> F) -> usize {
        size_of::<F>()
    }

    /// Allocators keep blocks of about a kilobyte at hand, and look for larger ones.
    #[test]
    fn a_call_is_no_large_block() {
        let bytes = future_bytes(execute_call);
        assert!(bytes <= 832, "{bytes} bytes");
    }
}
