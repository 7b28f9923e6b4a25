//! The pipeline of a call: route it, validate its arguments, apply the rate limit, ask the policy, run it, request missing
//! input, and shape the result to what the tool promised.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use json::Json;
use spile_core::{
    Call, CallContext, CallError, CallFuture, CallResult, Caller, EventSink, InputRequests, ItemKind,
    Journal, Outcome, Platform, Policy, Provider, Run, TaskSupport, ToolContent, ToolError, ToolErrorCode,
    ToolResult,
};
use tokio::time::timeout;
use wire::encode::{TaskAnswer, TaskSnapshot};
use wire::{Peer, TaskMetadata};

use crate::connection_state::ReplyChannel;
use crate::input_requests::{InputOutcome, request_input, use_state};
use crate::input_responses::ResponseChecks;
use crate::nested_calls::NestedCalls;
use crate::observer::CallObservation;
use crate::panic_guard::{CatchPanic, catch_panic};
use crate::policy::{
    PolicyOutcome, apply_policy, apply_policy_to_result, check_keys, check_visible, record_hidden,
};
use crate::rate_limit::RateLimited;
use crate::registry::{CallRoute, Registry, ToolEntry};
use crate::server::{CallerIdentity, Server};
use crate::tasks::Task;

/// One call with everything that belongs to it.
pub(crate) struct CallJob {
    pub(crate) call: Call,
    /// What runs instead of `call`, if the policy replaced its arguments.
    pub(crate) replaced_call: Option<Box<Call>>,
    pub(crate) peer: Peer,
    pub(crate) caller: Caller,
    pub(crate) identity: CallerIdentity,
    pub(crate) reply_channel: ReplyChannel,
    pub(crate) events: EventSink,
    pub(crate) journal: Journal,
    /// `None` until the client has sent a response.
    pub(crate) checks: Option<Box<ResponseChecks>>,
    pub(crate) task_metadata: Option<TaskMetadata>,
    pub(crate) stage: CallStage,
    pub(crate) observation: Option<Arc<CallObservation>>,
}

/// Where a call runs, and so where its input requests go.
pub(crate) enum CallStage {
    /// Its client waits for the response.
    Request,
    /// It continues as a task.
    Task(Arc<Task>),
    /// Another tool called it, at this depth; or another server passed it on, which has asked its own policy.
    Nested { depth: u8, is_decided: bool, calls_below_root: Arc<AtomicU32> },
}

/// How a request for a call is answered.
pub(crate) enum CallResponse {
    Result(CallResult),
    InputRequired {
        requests: InputRequests,
        state: String,
    },
    /// The call continues as a task.
    Task(TaskSnapshot),
    /// The answer to a request about tasks.
    TaskAnswer(TaskAnswer),
    Error(CallError),
}

// An `async fn` stores its arguments twice. Every call allocates this future, so it must stay small enough for the
// allocator's fast path.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub(crate) fn execute_call(
    server: Arc<Server>,
    mut registry: Arc<Registry>,
    mut job: CallJob,
    mut work: Option<CallFuture>,
) -> impl Future<Output = Result<CallResponse, CallError>> + Send {
    async move {
        loop {
            let route = registry.route(&job.call).inspect_err(|_| record_hidden(&server, &registry, &job))?;
            if let Some(policy) = policy_of(&server, &job) {
                check_visible(policy, &job)?;
            }
            let outcome = match work.take() {
                Some(work) => {
                    let after_ms = call_timeout_ms(&registry, &route, &job);
                    check_keys(await_with_timeout(after_ms, Run::Later(work)).await)
                }
                None => match start_round(&server, &route, &mut job) {
                    Ok(()) => run_round(&server, &registry, &route, &mut job).await,
                    Err(refusal) => *refusal,
                },
            };
            match outcome {
                Outcome::Done(result) => return finish(&server, &route, &job, result).await,
                Outcome::ToolFailed(error) if policy_of(&server, &job).is_none() => {
                    return tool_error_response(&server, &route, *error);
                }
                // Boxed: inline it would make every call's future larger.
                Outcome::ToolFailed(error) => {
                    return Box::pin(finish_with_error(&server, &route, &job, error)).await;
                }
                Outcome::Failed(error) if policy_of(&server, &job).is_none() => {
                    return error_response(&server, &route, error);
                }
                Outcome::Failed(error) => {
                    let response = error_response(&server, &route, error);
                    return Box::pin(finish_with_response(&server, &route, &job, response)).await;
                }
                Outcome::Detach(detached) => match &job.stage {
                    CallStage::Request if continues_as_task(&route, &job) => {
                        let started = Box::pin(server.tasks.start(&server, &registry, job, detached)).await;
                        return started
                            .map(CallResponse::Task)
                            .or_else(|error| error_response(&server, &route, error));
                    }
                    CallStage::Task(task) => work = Some(detached.start(task.checkpoints(&server))),
                    CallStage::Request | CallStage::Nested { .. } => {
                        work = Some(detached.start(job.journal.checkpoints().clone()));
                    }
                },
                // Boxed: input requests are rare, and inline they would make every call's future larger.
                Outcome::InputRequired(requests) => {
                    match Box::pin(request_input(&server, &registry, &mut job, requests)).await {
                        Ok(InputOutcome::RunAgain) => registry = next_registry(&server, &registry, &job)?,
                        Ok(InputOutcome::Sealed { requests, state }) => {
                            return Ok(CallResponse::InputRequired { requests, state });
                        }
                        Ok(InputOutcome::Refused(error)) => {
                            return tool_error_response(&server, &route, error);
                        }
                        Err(error) => return error_response(&server, &route, error),
                    }
                }
            }
        }
    }
}

/// Checks a round before anything runs: the arguments, and at the first round the rate limit.
#[inline]
fn start_round(server: &Arc<Server>, route: &CallRoute<'_>, job: &mut CallJob) -> Result<(), Box<Outcome>> {
    let CallRoute::Tool(tool) = route else { return Ok(()) };
    if let Err(error) = tool.compiled.input_schema.validate(job.call.arguments()) {
        return Err(Box::new(Outcome::ToolFailed(error)));
    }
    if let CallStage::Task(task) = &job.stage {
        // A tool that detached in an earlier round does not do so again.
        job.journal.set_checkpoints(task.checkpoints(server));
        // The task was accepted and counted when it was created, perhaps by an earlier process.
        return Ok(());
    }
    check_task_support(tool, job).map_err(|error| Box::new(Outcome::Failed(error)))?;
    // Answers to input requests belong to a call that was counted already: in an earlier round, or just now, if they came
    // with the call itself.
    let is_counted = job.journal.round > 0 || job.checks.as_ref().is_some_and(|checks| checks.has_accepted());
    if is_counted { Ok(()) } else { check_rate_limit(server, tool, job) }
}

#[inline]
fn check_rate_limit(server: &Server, tool: &ToolEntry, job: &CallJob) -> Result<(), Box<Outcome>> {
    let Some(rate_limiter) = &tool.rate_limiter else { return Ok(()) };
    let acquired = rate_limiter.try_acquire(&job.identity, server.platform.now_ms());
    acquired.map_err(|limited| Box::new(rate_limit_error(limited).into()))
}

/// The registry for the next round. A round runs on the registry that is current when it begins, as it does where the
/// client repeats the request; if the tool means something else by now, the call ends.
pub(crate) fn next_registry(
    server: &Server,
    registry: &Arc<Registry>,
    job: &CallJob,
) -> Result<Arc<Registry>, CallError> {
    let current = server.registry_of(&job.caller.principal);
    if !Arc::ptr_eq(&current, registry) && !current.has_same_contract(registry, &job.call) {
        return Err(CallError::ChangedWhileWaiting);
    }
    Ok(current)
}

/// The policy that decides about a call.
#[inline]
fn policy_of<'s>(server: &'s Server, job: &CallJob) -> Option<&'s Arc<dyn Policy>> {
    let policy = server.policy.get()?;
    (!matches!(job.stage, CallStage::Nested { is_decided: true, .. })).then_some(policy)
}

/// Runs the provider once, with the call's time limit and with panics caught.
async fn run_round(
    server: &Arc<Server>,
    registry: &Registry,
    route: &CallRoute<'_>,
    job: &mut CallJob,
) -> Outcome {
    if let Some(state) = job.checks.as_mut().and_then(|checks| checks.take_resumed_state()) {
        // A client that comes back without an answer runs the tool again, as a new call would. One that is refused may come
        // back with the same state.
        let admit = |job: &CallJob| match route {
            CallRoute::Tool(tool) if job.checks.as_ref().is_some_and(|checks| !checks.has_accepted()) => {
                check_rate_limit(server, tool, job)
            }
            CallRoute::Tool(_) | CallRoute::Provider(_) | CallRoute::ResourceProviders(_) => Ok(()),
        };
        // Boxed: it is rare, and inline it would make every call's future larger.
        if let Err(outcome) = Box::pin(use_state(server, route, job, state, admit)).await {
            return *outcome;
        }
    }
    let after_ms = call_timeout_ms(registry, route, job);
    if let Some(policy) = policy_of(server, job) {
        job.replaced_call = None;
        match Box::pin(apply_policy(server, policy, route, job)).await {
            PolicyOutcome::Allowed => {}
            PolicyOutcome::ReplacedArguments(call) => job.replaced_call = Some(call),
            PolicyOutcome::Ended(outcome) => return *outcome,
        }
        if let Some(observation) = &job.observation {
            observation.record_run(job.replaced_call.as_deref());
        }
    }
    let call = job.replaced_call.as_deref().unwrap_or(&job.call);
    let provider = match route {
        CallRoute::Tool(tool) => &tool.provider,
        CallRoute::Provider(provider) => provider,
        // Boxed: it is rare, and inline it would make every call's future larger.
        CallRoute::ResourceProviders(providers) => {
            return check_keys(Box::pin(try_providers(server, providers, call, job, after_ms)).await);
        }
    };
    let run = start(server, provider, call, job, after_ms);
    check_keys(await_with_timeout(after_ms, run).await)
}

/// Asks each provider for a resource that no catalog lists, until one knows it.
async fn try_providers(
    server: &Arc<Server>,
    providers: &[Arc<dyn Provider>],
    call: &Call,
    job: &CallJob,
    after_ms: u64,
) -> Outcome {
    for provider in providers {
        let run = start(server, provider, call, job, after_ms);
        match await_with_timeout(after_ms, run).await {
            Outcome::Failed(CallError::UnknownItem { .. }) => {}
            outcome => return outcome,
        }
    }
    Outcome::Failed(CallError::UnknownItem { kind: ItemKind::Resource, name: call.name().into_owned() })
}

#[inline]
fn start(
    server: &Arc<Server>,
    provider: &Arc<dyn Provider>,
    call: &Call,
    job: &CallJob,
    timeout_ms: u64,
) -> Run {
    let cx = CallContext {
        caller: &job.caller,
        journal: &job.journal,
        events: &job.events,
        platform: &server.platform,
        timeout_ms,
        tools: &NestedCalls { server, job },
        request_head: job.identity.request_head.as_deref(),
        session: job.reply_channel.session_key(),
        address: job.identity.address,
        wants_task: job.task_metadata.is_some(),
    };
    catch_panic(|| provider.run(call, &cx)).unwrap_or_else(|error| Run::Now(Outcome::Failed(error)))
}

/// Awaits a provider's work. After `after_ms` the work is dropped, and with it everything it holds.
#[inline]
async fn await_with_timeout(after_ms: u64, run: Run) -> Outcome {
    match run {
        Run::Now(outcome) => outcome,
        Run::Later(work) => {
            match Box::pin(timeout(Duration::from_millis(after_ms), CatchPanic(work))).await {
                Ok(outcome) => outcome.unwrap_or_else(Outcome::Failed),
                Err(_) => Outcome::Failed(CallError::Timeout { after_ms }),
            }
        }
    }
}

#[inline]
fn call_timeout_ms(registry: &Registry, route: &CallRoute<'_>, job: &CallJob) -> u64 {
    match (&job.stage, route) {
        (CallStage::Task(task), _) => task.ttl_ms(),
        (_, CallRoute::Tool(tool)) => tool.call_timeout_ms.unwrap_or(registry.config.call_timeout_ms),
        (_, CallRoute::Provider(_) | CallRoute::ResourceProviders(_)) => registry.config.call_timeout_ms,
    }
}

/// Checks that the caller's request for a task, or its absence, fits what the tool supports.
fn check_task_support(tool: &ToolEntry, job: &CallJob) -> Result<(), CallError> {
    match tool.compiled.definition.task_support {
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
    matches!(route, CallRoute::Tool(tool) if tool.compiled.definition.task_support != TaskSupport::Forbidden)
        && accepts_task(job)
}

/// An error that a model can act on becomes a tool result; any other stays a JSON-RPC error for the client.
fn error_response(
    server: &Server,
    route: &CallRoute<'_>,
    error: CallError,
) -> Result<CallResponse, CallError> {
    match (route, ToolError::from_call_error(&error)) {
        (CallRoute::Tool(tool), Some(tool_error)) => {
            log_internal_error(&error);
            let tool_error = match error {
                CallError::Timeout { after_ms } if tool.compiled.writes => write_timeout_error(after_ms),
                _ => tool_error,
            };
            Ok(CallResponse::Result(tool_error_result(server, tool, tool_error)))
        }
        _ => Err(error),
    }
}

/// A tool error becomes a tool result. Prompts and resources have no error results, so there it becomes a JSON-RPC
/// error.
fn tool_error_response(
    server: &Server,
    route: &CallRoute<'_>,
    error: ToolError,
) -> Result<CallResponse, CallError> {
    match route {
        CallRoute::Tool(tool) => Ok(CallResponse::Result(tool_error_result(server, tool, error))),
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
        1_000..120_000 => format!("{} s", ms.div_ceil(1_000)),
        120_000..7_200_000 => format!("{} min", ms.div_ceil(60_000)),
        _ => format!("{} h", ms.div_ceil(3_600_000)),
    }
}

/// A random reference that links a tool error to its log line.
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

/// The response for a result: as the policy decides, and as the tool promised.
#[inline]
async fn finish(
    server: &Server,
    route: &CallRoute<'_>,
    job: &CallJob,
    mut result: CallResult,
) -> Result<CallResponse, CallError> {
    let mut is_replaced = false;
    if let Some(policy) = policy_of(server, job) {
        match Box::pin(apply_policy_to_result(server, policy, route, job, result)).await {
            Ok(decided) => (result, is_replaced) = decided,
            Err(error) => return tool_error_response(server, route, *error),
        }
    }
    if let CallRoute::Tool(tool) = route {
        return match fit_result(tool, result, is_replaced) {
            Ok(result) => Ok(CallResponse::Result(result)),
            Err(detail) => error_response(server, route, CallError::Internal { detail }),
        };
    }
    Ok(CallResponse::Result(result))
}

/// The response for a tool that failed. The policy sees the error as the caller would.
async fn finish_with_error(
    server: &Server,
    route: &CallRoute<'_>,
    job: &CallJob,
    error: Box<ToolError>,
) -> Result<CallResponse, CallError> {
    let response = tool_error_response(server, route, *error);
    finish_with_response(server, route, job, response).await
}

/// The policy decides about a failure that the caller would get as a result.
async fn finish_with_response(
    server: &Server,
    route: &CallRoute<'_>,
    job: &CallJob,
    response: Result<CallResponse, CallError>,
) -> Result<CallResponse, CallError> {
    match response? {
        CallResponse::Result(result) => finish(server, route, job, result).await,
        response => Ok(response),
    }
}

/// Checks what a tool returns, or the policy instead of it, against what the tool promised. `Err` has the reason for
/// the log.
#[inline]
fn fit_result(tool: &ToolEntry, result: CallResult, is_replaced: bool) -> Result<CallResult, String> {
    match result {
        CallResult::Tool(result) if result.is_error => Ok(fit_output_schema(tool, result)),
        result if tool.checks_output || is_replaced => check_output(tool, result),
        result => Ok(result),
    }
}

/// Where the provider does not guarantee it, the host checks that a successful result matches the output schema.
#[cold]
fn check_output(tool: &ToolEntry, result: CallResult) -> Result<CallResult, String> {
    if tool.compiled.definition.output_schema.is_none() || result.is_error() {
        return Ok(result);
    }
    let relayed;
    let structured = match &result {
        CallResult::Tool(result) => result.structured.as_ref(),
        CallResult::Relayed(json) => {
            let doc = json.to_doc();
            let content = doc.root().get("structuredContent");
            relayed = content.map(|node| Json::from_written_bytes(node.raw().as_bytes().to_vec()));
            relayed.as_ref()
        }
        CallResult::Prompt(_) | CallResult::Resource(_) | CallResult::Completion(_) => None,
    };
    let name = &tool.compiled.definition.name;
    match structured {
        None => Err(format!("`{name}` returned no structured content, but has an output schema")),
        Some(json) if !tool.compiled.output_schema_allows(json) => {
            Err(format!("`{name}` returned structured content that does not match its output schema"))
        }
        Some(_) => Ok(result),
    }
}

/// Moves an error from structured content to text if the tool's output schema does not allow it.
fn fit_output_schema(tool: &ToolEntry, result: ToolResult) -> CallResult {
    CallResult::Tool(match (&result.content, &result.structured) {
        (content, Some(json)) if !tool.compiled.output_schema_allows(json) => {
            let text = match content {
                ToolContent::Structured => ToolContent::Text(json.to_string()),
                other => other.clone(),
            };
            ToolResult { content: text, structured: None, ..result }
        }
        _ => result,
    })
}

pub(crate) fn log_internal_error(error: &CallError) {
    if let CallError::Internal { detail } = error {
        tracing::error!(%detail, "call failed: internal error");
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, CallFuture, CallJob, Registry, Server, execute_call, human_duration};

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

    fn future_bytes<F>(_: fn(Arc<Server>, Arc<Registry>, CallJob, Option<CallFuture>) -> F) -> usize {
        size_of::<F>()
    }

    /// Allocators have a fast path for blocks of up to about a kilobyte.
    #[test]
    fn the_future_of_a_call_is_smaller_than_a_kilobyte() {
        let bytes = future_bytes(execute_call);
        assert!(bytes <= 832, "{bytes} bytes");
    }
}
