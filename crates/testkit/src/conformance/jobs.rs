//! Tools whose work may continue as a task.
//!
//! A job returns [`Outcome::Detach`] in each round until it is done. The host decides whether that becomes a task
//! or the caller waits. An input request inside a job is the outcome of its work.

use std::time::Duration;

use spile_core::{Call, CallContext, CallError, DetachedWork, Outcome, Run, TaskSupport, ToolResult};
use tokio::time::sleep;

use super::input_requests::{
    NAME_SCHEMA, bool_field, form_request, merge_input_requests, text_field, text_outcome, user_name,
};
use super::{ConformanceProvider, RoundResult, ToolSpec, run_now};

pub(super) const TOOLS: &[ToolSpec] = &[
    ToolSpec::new("greet", "Greets at once, never as a task", |_, call, _| {
        Run::Now(text_outcome(format!("Hello, {}!", call.text_argument("name").unwrap_or_default())))
    })
    .input_schema(NAME_SCHEMA),
    ToolSpec::new("slow_compute", "Takes as many seconds as it is told to", slow_compute)
        .input_schema(
            r#"{"type":"object","properties":{
                "seconds":{"type":"number","minimum":0,"maximum":3600},
                "label":{"type":"string"}
            }}"#,
        )
        .task(TaskSupport::Optional),
    ToolSpec::new("failing_job", "Runs for a second and then fails as a tool", |_, _, _| {
        detach(async {
            sleep(Duration::from_secs(1)).await;
            ToolResult::text("The job failed, as it always does").into_error().into()
        })
    })
    .task(TaskSupport::Required),
    ToolSpec::new("protocol_error_job", "Ends in a protocol error", |_, _, _| {
        detach(async {
            let message = "the job ended in a protocol error, as it always does".into();
            CallError::Provider { code: INTERNAL_ERROR, message, data: None }.into()
        })
    })
    .task(TaskSupport::Optional),
    ToolSpec::new("confirm_delete", "Asks before it deletes (nothing)", |_, call, cx| {
        let deleted = confirm_delete(call, cx).unwrap_or_else(|instead| instead);
        detach(async { deleted })
    })
    .input_schema(r#"{"type":"object","properties":{"filename":{"type":"string"}},"required":["filename"]}"#)
    .task(TaskSupport::Optional),
    ToolSpec::new("multi_input", "Asks two things at once", |_, _, cx| {
        let answered = multi_input(cx).unwrap_or_else(|instead| instead);
        detach(async { answered })
    })
    .task(TaskSupport::Optional),
    ToolSpec::new("test_tool_with_task", "Asks first, and only then becomes a task", |_, _, cx| {
        run_now(user_name(cx).map(|name| {
            Outcome::Detach(DetachedWork::from_future(async move {
                sleep(Duration::from_millis(100)).await;
                text_outcome(format!("Task finished for {name}"))
            }))
        }))
    })
    .task(TaskSupport::Required),
];

fn slow_compute(_: &ConformanceProvider, call: &Call, _: &CallContext<'_>) -> Run {
    // The schema has checked the number; a value that is still not a duration counts as zero.
    let seconds = call.arguments().and_then(|arguments| arguments.get("seconds"));
    let seconds = seconds.and_then(|seconds| seconds.raw().parse().ok()).unwrap_or(0.0);
    let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let label = call.text_argument("label").unwrap_or_default().into_owned();
    detach(async move {
        sleep(took).await;
        text_outcome(format!("Computed `{label}` in {seconds} s"))
    })
}

fn confirm_delete(call: &Call, cx: &CallContext<'_>) -> RoundResult {
    let file = call.text_argument("filename").unwrap_or_default();
    let message = format!("Delete {file}?");
    let sure = bool_field(cx, "confirm", "confirm", || form_request(&message, CONFIRM_SCHEMA))?;
    Ok(text_outcome(if sure { format!("Deleted {file}") } else { format!("Kept {file}") }))
}

fn multi_input(cx: &CallContext<'_>) -> RoundResult {
    let name = text_field(cx, "name", "name", || form_request("What is your name?", NAME_SCHEMA));
    let sure = bool_field(cx, "confirm", "confirm", || form_request("Are you sure?", CONFIRM_SCHEMA));
    match (name, sure) {
        (Ok(name), Ok(sure)) => {
            Ok(text_outcome(format!("{name} is {}", if sure { "sure" } else { "not sure" })))
        }
        (name, sure) => Err(merge_input_requests([name.err(), sure.err()])),
    }
}

fn detach(work: impl Future<Output = Outcome> + Send + 'static) -> Run {
    Run::Now(Outcome::Detach(DetachedWork::from_future(work)))
}

/// JSON-RPC error code.
const INTERNAL_ERROR: i64 = -32603;

const CONFIRM_SCHEMA: &str =
    r#"{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}"#;
