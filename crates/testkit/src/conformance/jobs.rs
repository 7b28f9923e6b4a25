//! Tools whose work may go on as a task.
//!
//! A job returns [`Outcome::Detach`] in each round until it is done. Whether that becomes a task or the caller
//! waits is decided by the host; a question inside a job is the outcome of its work.

use std::time::Duration;

use call::{Call, Cx, Fault, Outcome, Run, TaskUse, ToolReply};
use tokio::time::sleep;

use super::questions::{NAME, chosen, done, form, together, typed, user_name};
use super::{Answered, Conformance, Row, settled};

pub(super) const TABLE: &[Row] = &[
    Row::new("greet", "Greets at once, never as a task", |_, call, _| {
        Run::Now(done(format!("Hello, {}!", call.text("name").unwrap_or_default())))
    })
    .takes(NAME),
    Row::new("slow_compute", "Takes as many seconds as it is told to", slow_compute)
        .takes(
            r#"{"type":"object","properties":{
                "seconds":{"type":"number","minimum":0,"maximum":3600},
                "label":{"type":"string"}
            }}"#,
        )
        .task(TaskUse::Optional),
    Row::new("failing_job", "Runs for a second and then fails as a tool", |_, _, _| {
        detached(async {
            sleep(Duration::from_secs(1)).await;
            ToolReply::text("The job failed, as it always does").failed().into()
        })
    })
    .task(TaskUse::Required),
    Row::new("protocol_error_job", "Ends in a protocol error", |_, _, _| {
        detached(async {
            let message = "the job ended in a protocol error, as it always does".into();
            Fault::Told { code: INTERNAL_ERROR, message, data: None }.into()
        })
    })
    .task(TaskUse::Optional),
    Row::new("confirm_delete", "Asks before it deletes (nothing)", |_, call, cx| {
        let deleted = confirm_delete(call, cx).unwrap_or_else(|instead| instead);
        detached(async { deleted })
    })
    .takes(r#"{"type":"object","properties":{"filename":{"type":"string"}},"required":["filename"]}"#)
    .task(TaskUse::Optional),
    Row::new("multi_input", "Asks two things at once", |_, _, cx| {
        let answered = multi_input(cx).unwrap_or_else(|instead| instead);
        detached(async { answered })
    })
    .task(TaskUse::Optional),
    Row::new("test_tool_with_task", "Asks first, and only then becomes a task", |_, _, cx| {
        settled(user_name(cx).map(|name| {
            Outcome::Detach(Box::pin(async move {
                sleep(Duration::from_millis(100)).await;
                done(format!("Task finished for {name}"))
            }))
        }))
    })
    .task(TaskUse::Required),
];

fn slow_compute(_: &Conformance, call: &Call, _: &Cx<'_>) -> Run {
    // The schema has seen the number; what is no duration all the same is none.
    let seconds = call.arguments().and_then(|arguments| arguments.get("seconds"));
    let seconds = seconds.and_then(|seconds| seconds.raw().parse().ok()).unwrap_or(0.0);
    let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let label = call.text("label").unwrap_or_default().into_owned();
    detached(async move {
        sleep(took).await;
        done(format!("Computed `{label}` in {seconds} s"))
    })
}

fn confirm_delete(call: &Call, cx: &Cx<'_>) -> Answered {
    let file = call.text("filename").unwrap_or_default();
    let message = format!("Delete {file}?");
    let sure = chosen(cx, "confirm", "confirm", || form(&message, CONFIRM))?;
    Ok(done(if sure { format!("Deleted {file}") } else { format!("Kept {file}") }))
}

fn multi_input(cx: &Cx<'_>) -> Answered {
    let name = typed(cx, "name", "name", || form("What is your name?", NAME));
    let sure = chosen(cx, "confirm", "confirm", || form("Are you sure?", CONFIRM));
    match (name, sure) {
        (Ok(name), Ok(sure)) => Ok(done(format!("{name} is {}", if sure { "sure" } else { "not sure" }))),
        (name, sure) => Err(together([name.err(), sure.err()])),
    }
}

fn detached(work: impl Future<Output = Outcome> + Send + 'static) -> Run {
    Run::Now(Outcome::Detach(Box::pin(work)))
}

/// JSON-RPC's.
const INTERNAL_ERROR: i64 = -32603;

const CONFIRM: &str =
    r#"{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}"#;
