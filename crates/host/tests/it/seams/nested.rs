//! Tools that call other tools of the same server.

use std::sync::Arc;

use json::Json;
use spile_core::{
    Call, CallTarget, Decision, ElicitResult, Journal, Outcome, Policy, PolicyContext, PolicyDecision,
    PolicyRun, Run, ToolResult,
};

use super::{
    Records, answers, ask, outcome_text, provider, respond, server, state_of, stateless_call, text_of, tools,
};

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

/// Decides about the inner tool only, and notes that it did.
struct InnerPolicy;

impl Policy for InnerPolicy {
    fn before(&self, call: &Call, cx: &PolicyContext<'_>) -> PolicyRun<PolicyDecision> {
        let note = Some(Json::parse(r#"{"decided":true}"#).expect("JSON"));
        let decision = match (&*call.name(), cx.journal.policy_note()) {
            (_, Some(_)) => return PolicyRun::Now(PolicyDecision::allow().because("decided before")),
            ("refused", None) => return PolicyRun::Now(PolicyDecision::refuse("not on Fridays")),
            ("rewritten", None) => Decision::ReplaceArguments(Json::parse(r#"{"who":"bob"}"#).expect("JSON")),
            ("confirmed", None) => match cx.journal.response("sure") {
                None => {
                    let decision = PolicyDecision::new(Decision::Ask(ask("sure")));
                    return PolicyRun::Now(decision.because("a person decides"));
                }
                Some(answer) if matches!(answer.elicit_result(), Some(ElicitResult::Accepted(_))) => {
                    Decision::Allow
                }
                Some(_) => Decision::Refuse,
            },
            ("asking", None) => Decision::Allow,
            _ => return PolicyRun::Now(PolicyDecision::allow().because("not judged")),
        };
        PolicyRun::Now(PolicyDecision { note, ..PolicyDecision::new(decision).because("decided now") })
    }
}

/// `pass` passes its call on to the tool that it is told.
fn judged_server() -> (Arc<host::Server>, Arc<Records>) {
    let inner = provider(tools(&["pass", "refused", "rewritten", "confirmed", "asking"]), |call, cx| {
        match &*call.name() {
            "pass" => {
                assert_eq!(call.target, CallTarget::Tool);
                let name = call.text_argument("who").expect("a name").into_owned();
                let arguments = Json::parse(r#"{"who":"ada"}"#).expect("JSON");
                Run::later(cx.tools.pass_on(&name, arguments, cx.journal.to_passed_on()))
            }
            "asking" if cx.journal.response("who").is_none() => Run::Now(Outcome::InputRequired(ask("who"))),
            _ => {
                let who = call.text_argument("who").unwrap_or_default();
                Run::now(ToolResult::text(format!("hello {who}")))
            }
        }
    });
    let (server, records) = (server(vec![inner]), Arc::new(Records::default()));
    server.set_policy(Arc::new(InnerPolicy));
    server.set_observer(records.clone());
    (server, records)
}

#[tokio::test]
async fn the_policy_decides_about_a_called_tool_once() {
    const OUTER: &str = "allow(not judged)";
    for (inner, question, expected, lines) in [
        (
            "refused",
            None,
            "Forbidden: not on Fridays",
            &[
                "refused depth 1 round 0 refuse(not on Fridays)".to_owned(),
                format!("pass depth 0 round 0 {OUTER}"),
            ][..],
        ),
        (
            "rewritten",
            None,
            "hello bob",
            &[
                "rewritten depth 1 round 0 replace_arguments(decided now)".to_owned(),
                format!("pass depth 0 round 0 {OUTER}"),
            ],
        ),
        (
            "confirmed",
            Some("sure"),
            "hello ada",
            &[
                "confirmed depth 1 round 0 ask(a person decides)".to_owned(),
                format!("pass depth 0 round 0 {OUTER}"),
                "confirmed depth 1 round 1 allow(decided now)".to_owned(),
                format!("pass depth 0 round 1 {OUTER}"),
            ],
        ),
        (
            "asking",
            Some("who"),
            "hello ada",
            &[
                "asking depth 1 round 0 allow(decided now)".to_owned(),
                format!("pass depth 0 round 0 {OUTER}"),
                "asking depth 1 round 1 allow(decided before)".to_owned(),
                format!("pass depth 0 round 1 {OUTER}"),
            ],
        ),
    ] {
        let (server, records) = judged_server();
        let arguments = format!(r#","arguments":{{"who":"{inner}"}}"#);
        let mut response = respond(&server, &stateless_call("pass", &arguments)).await;
        if let Some(key) = question {
            let resumed = format!("{arguments}{}", answers(&state_of(&response), key, "yes"));
            response = respond(&server, &stateless_call("pass", &resumed)).await;
        }
        assert_eq!(text_of(&response), expected);
        assert_eq!(records.lines(), lines, "{inner}");
    }
}

#[tokio::test]
async fn no_provider_requests_input_under_the_keys_of_the_policy() {
    for key in [Journal::POLICY_KEY, Journal::PASSED_ON_POLICY_KEY] {
        let forges = provider(tools(&["forges"]), move |_, _| Run::Now(Outcome::InputRequired(ask(key))));
        let text = text_of(&respond(&server(vec![forges]), &stateless_call("forges", "")).await);
        assert!(text.starts_with("Internal: "), "{text}");
    }
}
