//! Tools that call other tools of the same server.

use std::sync::Arc;

use json::Json;
use spile_core::{Journal, Outcome, Run, ToolResult};

use super::{Records, ask, outcome_text, provider, respond, server, stateless_call, text_of, tools};

fn calls_inner(inner: &'static str) -> Arc<dyn spile_core::Provider> {
    provider(tools(&["outer", "loop", "hello", "asking"]), move |call, cx| match &*call.name() {
        "hello" => {
            Run::now(ToolResult::text(format!("hello {}", call.text_argument("who").unwrap_or_default())))
        }
        "asking" => Run::Now(Outcome::InputRequired(ask("sure"))),
        name => {
            let inner = if name == "loop" { "loop" } else { inner };
            let arguments = Json::parse(r#"{"who":"ada"}"#).expect("JSON");
            let called = cx.tools.call_tool(inner, arguments, Journal::default());
            Run::later(async move {
                match called.await {
                    Outcome::Done(result) => Outcome::Done(result),
                    other => ToolResult::text(outcome_text(other)).into(),
                }
            })
        }
    })
}

#[tokio::test]
async fn a_tool_calls_another_with_the_callers_rights_and_both_are_recorded() {
    let server = server(vec![calls_inner("hello")]);
    let records = Arc::new(Records::default());
    server.set_observer(records.clone());
    assert_eq!(text_of(&respond(&server, &stateless_call("outer", "")).await), "hello ada");
    assert_eq!(records.lines(), ["hello depth 1 round 0", "outer depth 0 round 0"]);
}

#[tokio::test]
async fn the_calling_tool_sees_what_the_other_one_asks() {
    let server = server(vec![calls_inner("asking")]);
    assert_eq!(text_of(&respond(&server, &stateless_call("outer", "")).await), "asks for 1");
}

/// What a nested call did before it was cut off must not go unrecorded.
#[tokio::test(start_paused = true)]
async fn a_nested_call_that_is_cut_off_is_recorded() {
    let outer = provider(tools(&["outer"]), |_, cx| {
        let called = cx.tools.call_tool("never", Json::parse("{}").expect("JSON"), Journal::default());
        Run::later(called)
    });
    let server = server(vec![outer, provider(tools(&["never"]), |_, _| Run::later(std::future::pending()))]);
    let records = Arc::new(Records::default());
    server.set_observer(records.clone());
    // Both have the same time limit, and the outer call began first.
    let text = text_of(&respond(&server, &stateless_call("outer", "")).await);
    assert!(text.starts_with("Timeout: "), "{text}");
    assert_eq!(records.lines(), ["never depth 1 round 0", "outer depth 0 round 0"]);
}

#[tokio::test]
async fn unknown_tools_and_endless_loops_end_with_a_reason() {
    let server = server(vec![calls_inner("nothing")]);
    assert_eq!(text_of(&respond(&server, &stateless_call("outer", "")).await), "unknown tool `nothing`");
    let text = text_of(&respond(&server, &stateless_call("loop", "")).await);
    assert!(text.contains("more than 8 levels deep"), "{text}");
}
