//! The pipeline of a call, on one screen: route it, check its arguments, apply the rate limit, run it, request
//! missing input, and fit the result to what the tool promised.

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
use crate::input_responses::ResponseChecks;
use crate::panic_guard::{CatchPanic, catch_panic};
use crate::rate_limit::RateLimited;
use crate::registry::{CallRoute, Registry, ToolEntry};
use crate::server::{CallerIdentity, Server};

/// One call with everything that belongs to it.
pub(crate) struct CallJob {
    pub(crate) call: Call,
    pub(crate) peer: Peer,
    pub(crate) caller: Caller,
    pub(crate) identity: CallerIdentity,
    pub(crate) reply_channel: ReplyChannel,
    pub(crate) events: EventSink,
    pub(crate) journal: Journal,
    /// `None` until the client has sent a response.
    pub(crate) checks: Option<Box<ResponseChecks>>,
    pub(crate) task_metadata: Option<TaskMetadata>,
}

/// How a request for a call is answered.
pub(crate) enum CallResponse {
    Result(CallResult),
    InputRequired { requests: InputRequests, state: String },
    Task(TaskSnapshot),
    Error(CallError),
}

// An `async fn` stores its arguments twice. Every call allocates this future, so it must stay small enough for the
// allocator's fast path.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub(crate) fn execute_call(
    server: Arc<Server>,
    registry: Arc<Registry>,
    mut job: CallJob,
) -> impl Future<Output = Result<CallResponse, CallError>> + Send {
    async move {
        let route = registry.route(&job.call)?;
        if let CallRoute::Tool(tool) = &route {
            if let Err(error) = tool.input_schema.validate(job.call.arguments()) {
                return Ok(CallResponse::Result(tool_error_result(&server, tool, *error)));
            }
            check_task_support(tool, &job)?;
            if let Some(rate_limiter) = &tool.rate_limiter
                && let Err(limited) = rate_limiter.try_acquire(&job.identity, server.platform.now_ms())
            {
                return Ok(CallResponse::Result(tool_error_result(&server, tool, rate_limit_error(limited))));
            }
        }
        loop {
            let outcome = run_round(&server, &registry, &route, &job).await;
            let outcome = match outcome {
                Outcome::Detach(work) if continues_as_task(&route, &job) => {
                    let started = server.tasks.start(&server, &registry, job, work);
                    return started
                        .map(CallResponse::Task)
                        .or_else(|error| error_response(&server, &route, error));
                }
                Outcome::Detach(work) => {
                    await_with_timeout(call_timeout_ms(&registry, &route), Run::Later(work)).await
                }
                other => other,
            };
            match outcome {
                Outcome::Done(result) => return Ok(CallResponse::Result(fit_result(&route, result))),
                Outcome::ToolFailed(error) => {
                    return Ok(CallResponse::Result(tool_error_to_result(&server, &route, *error)?));
                }
                Outcome::Failed(error) => return error_response(&server, &route, error),
                Outcome::Detach(_) => {
                    return Err(CallError::Internal { detail: "detached work detached again".into() });
                }
                // Boxed: input requests are rare, and inline they would make every call's future larger.
                Outcome::InputRequired(requests) => {
                    match Box::pin(request_input(&server, &registry, &mut job, requests)).await {
                        Ok(InputOutcome::Answered) => {}
                        Ok(InputOutcome::Sealed { requests, state }) => {
                            return Ok(CallResponse::InputRequired { requests, state });
                        }
                        Ok(InputOutcome::Refused(error)) => {
                            return Ok(CallResponse::Result(tool_error_to_result(&server, &route, error)?));
                        }
                        Err(error) => return error_response(&server, &route, error),
                    }
                }
            }
        }
    }
}

/// Runs the provider once, with the call's time limit and with panics caught.
async fn run_round(server: &Server, registry: &Registry, route: &CallRoute<'_>, job: &CallJob) -> Outcome {
    let cx = CallContext {
        caller: &job.caller,
        journal: &job.journal,
        events: &job.events,
        platform: &server.platform,
    };
    let after_ms = call_timeout_ms(registry, route);
    match route {
        CallRoute::Tool(tool) => {
            await_with_timeout(after_ms, catch_panic(|| tool.provider.run(&job.call, &cx))).await
        }
        CallRoute::Provider(provider) => {
            await_with_timeout(after_ms, catch_panic(|| provider.run(&job.call, &cx))).await
        }
        CallRoute::ResourceProviders(providers) => {
            for provider in *providers {
                match await_with_timeout(after_ms, catch_panic(|| provider.run(&job.call, &cx))).await {
                    Outcome::Failed(CallError::UnknownItem { .. }) => {}
                    outcome => return outcome,
                }
            }
            let name = job.call.name().into_owned();
            Outcome::Failed(CallError::UnknownItem { kind: spile_core::ItemKind::Resource, name })
        }
    }
}

/// Awaits a provider's work. After `after_ms` the work is dropped, and with it everything it holds.
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
fn call_timeout_ms(registry: &Registry, route: &CallRoute<'_>) -> u64 {
    match route {
        CallRoute::Tool(tool) => tool.call_timeout_ms,
        CallRoute::Provider(_) | CallRoute::ResourceProviders(_) => registry.config.call_timeout_ms,
    }
}

/// Checks that the caller's request for a task, or its absence, fits what the tool supports.
fn check_task_support(tool: &ToolEntry, job: &CallJob) -> Result<(), CallError> {
    match tool.task_support {
        TaskSupport::Forbidden if job.task_metadata.is_some() => Err(CallError::TaskNotSupported),
        TaskSupport::Required if !accepts_task(job) => {
            Err(CallError::MissingCapability(spile_core::ClientCapabilities::TASKS))
        }
        TaskSupport::Forbidden | TaskSupport::Optional | TaskSupport::Required => Ok(()),
    }
}

/// A client asks for a task in the call (2025-11-25) or declares the capability (later versions).
fn accepts_task(job: &CallJob) -> bool {
    job.task_metadata.is_some() || job.caller.capabilities.has(spile_core::ClientCapabilities::TASKS)
}

fn continues_as_task(route: &CallRoute<'_>, job: &CallJob) -> bool {
    matches!(route, CallRoute::Tool(tool) if tool.task_support != TaskSupport::Forbidden) && accepts_task(job)
}

/// An error that a model can act on becomes a tool result; any other stays a JSON-RPC error for the client.
fn error_response(
    server: &Server,
    route: &CallRoute<'_>,
    error: CallError,
) -> Result<CallResponse, CallError> {
    error_to_result(server, route, error).map(CallResponse::Result)
}

fn error_to_result(
    server: &Server,
    route: &CallRoute<'_>,
    error: CallError,
) -> Result<CallResult, CallError> {
    match (route, ToolError::from_call_error(&error)) {
        (CallRoute::Tool(tool), Some(tool_error)) => {
            log_internal_error(&error);
            let tool_error = match error {
                CallError::Timeout { after_ms } if tool.writes => write_timeout_error(after_ms),
                _ => tool_error,
            };
            Ok(tool_error_result(server, tool, tool_error))
        }
        _ => Err(error),
    }
}

/// A tool error becomes a tool result. Prompts and resources have no error results, so there it becomes a JSON-RPC
/// error.
fn tool_error_to_result(
    server: &Server,
    route: &CallRoute<'_>,
    error: ToolError,
) -> Result<CallResult, CallError> {
    match route {
        CallRoute::Tool(tool) => Ok(tool_error_result(server, tool, error)),
        CallRoute::Provider(_) | CallRoute::ResourceProviders(_) => {
            let path = error.field.unwrap_or_else(|| "params".into());
            Err(CallError::InvalidParams { path, reason: error.message })
        }
    }
}

/// Logs the error under a reference that the result carries too.
#[cold]
fn tool_error_result(server: &Server, tool: &ToolEntry, mut error: ToolError) -> CallResult {
    let reference = error.log_reference.get_or_insert_with(|| new_error_reference(&*server.platform));
    // The call log has the same at a higher level.
    tracing::debug!("ref" = %reference, code = error.code.as_str(), field = error.field.as_deref(), "call failed");
    fit_output_schema(tool, ToolResult::from_tool_error(&error))
}

/// A dropped write may already have been committed.
fn write_timeout_error(after_ms: u64) -> ToolError {
    let message = format!(
        "no result within {after_ms} ms; the write may have been applied: read the row before you try again, or \
         pass an `idempotency_key`"
    );
    ToolError { retryable: false, ..ToolError::new(ToolErrorCode::Timeout, message) }
}

fn rate_limit_error(limited: RateLimited) -> ToolError {
    let retry_after_ms = Some(limited.retry_after_ms);
    let message = format!("rate limit exceeded; retry in {}", human_duration(limited.retry_after_ms));
    ToolError { retry_after_ms, ..ToolError::new(ToolErrorCode::RateLimited, message) }
}

/// `250 ms`, `12 s`, `60 min`, `5 h`: rounded up, so that nobody retries too early.
fn human_duration(ms: u64) -> String {
    match ms {
        ..1_000 => format!("{ms} ms"),
        ..120_000 => format!("{} s", ms.div_ceil(1_000)),
        ..7_200_000 => format!("{} min", ms.div_ceil(60_000)),
        _ => format!("{} h", ms.div_ceil(3_600_000)),
    }
}

/// A random reference for one failure, short enough to read out over the phone.
pub(crate) fn new_error_reference(platform: &dyn Platform) -> String {
    let mut random = [0; 4];
    platform.fill_random(&mut random);
    format!("{:08x}", u32::from_be_bytes(random))
}

pub(crate) fn input_refused_error(message: &str) -> ToolError {
    ToolError::new(ToolErrorCode::InputRefused, format!("the client refused to answer: {message}"))
}

pub(crate) fn invalid_response_error(reason: &str) -> ToolError {
    let message = format!("the client's answers do not match the requested form: {reason}");
    ToolError::new(ToolErrorCode::InputRefused, message)
}

/// The result of a call that ran as a task: the same as if its caller had waited.
pub(crate) fn finish_task_call(
    server: &Server,
    registry: &Registry,
    call: &Call,
    outcome: Result<CallResult, CallFailure>,
) -> Result<CallResult, CallError> {
    let route = registry.route(call)?;
    match outcome {
        Ok(result) => Ok(fit_result(&route, result)),
        Err(CallFailure::Tool(error)) => tool_error_to_result(server, &route, *error),
        Err(CallFailure::Call(error)) => error_to_result(server, &route, error),
    }
}

/// A call without a result: a tool error or a call error.
pub(crate) enum CallFailure {
    Tool(Box<ToolError>),
    Call(CallError),
}

#[inline]
fn fit_result(route: &CallRoute<'_>, result: CallResult) -> CallResult {
    match (route, result) {
        (CallRoute::Tool(tool), CallResult::Tool(result)) if result.is_error => {
            fit_output_schema(tool, result)
        }
        (_, result) => result,
    }
}

/// Moves an error from structured content to text if the tool's output schema does not allow it.
fn fit_output_schema(tool: &ToolEntry, result: ToolResult) -> CallResult {
    CallResult::Tool(match (&result.content, &result.structured) {
        (content, Some(json)) if !tool.output_admits(json) => {
            let text = match content {
                ToolContent::Structured => ToolContent::Text(json.to_string()),
                other => other.clone(),
            };
            ToolResult { content: text, structured: None, ..result }
        }
        _ => result,
    })
}

/// Runs the provider again for a call that has become a task.
pub(crate) async fn run_task_round(server: &Server, registry: &Registry, job: &CallJob) -> Outcome {
    match registry.route(&job.call) {
        Ok(route) => {
            let cx = CallContext {
                caller: &job.caller,
                journal: &job.journal,
                events: &job.events,
                platform: &server.platform,
            };
            let provider = match &route {
                CallRoute::Tool(tool) => &tool.provider,
                CallRoute::Provider(provider) => provider,
                CallRoute::ResourceProviders(_) => {
                    return Outcome::Failed(CallError::Internal {
                        detail: "only tools can run as tasks".into(),
                    });
                }
            };
            match catch_panic(|| provider.run(&job.call, &cx)) {
                Run::Now(Outcome::Detach(work)) | Run::Later(work) => CatchPanic(work).await,
                Run::Now(outcome) => outcome,
            }
        }
        Err(error) => Outcome::Failed(error),
    }
}

pub(crate) fn log_internal_error(error: &CallError) {
    if let CallError::Internal { detail } = error {
        tracing::error!(%detail, "call failed: internal error");
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, CallJob, Registry, Server, execute_call, human_duration};

    #[test]
    fn a_duration_is_rounded_up_in_the_largest_unit_that_fits() {
        for (ms, expected) in [
            (1, "1 ms"),
            (999, "999 ms"),
            (1_001, "2 s"),
            (60_000, "60 s"),
            (120_000, "2 min"),
            (3_600_000, "60 min"),
            (7_200_001, "3 h"),
        ] {
            assert_eq!(human_duration(ms), expected);
        }
    }

    fn future_bytes<F>(_: fn(Arc<Server>, Arc<Registry>, CallJob) -> F) -> usize {
        size_of::<F>()
    }

    /// Allocators have a fast path for blocks of up to about a kilobyte.
    #[test]
    fn the_future_of_a_call_is_smaller_than_a_kilobyte() {
        let bytes = future_bytes(execute_call);
        assert!(bytes <= 832, "{bytes} bytes");
    }
}
