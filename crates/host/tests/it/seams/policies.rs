//! A policy that refuses, asks, rewrites and withholds, and what the call record says about it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use host::{CallObserver, CallRecord, CallerIdentity};
use json::Json;
use spile_core::{
    Call, CallContext, CallResult, Caller, Catalog, CatalogView, Decision, ElicitResult, ItemKind, Journal,
    Outcome, Policy, PolicyContext, PolicyDecision, PolicyRun, Principal, ResultDecision, Run, ToolError,
    ToolErrorCode, ToolResult, Visibility,
};

use super::{
    ANONYMOUS, FnProvider, PipeClient, Records, answers, ask, error_of, provider, respond, respond_as,
    server, state_of, stateless_call, text_of, tools,
};

struct TestPolicy;

impl Policy for TestPolicy {
    fn before(&self, call: &Call, cx: &PolicyContext<'_>) -> PolicyRun<PolicyDecision> {
        let decision = match &*call.name() {
            "refused" => return PolicyRun::Now(PolicyDecision::refuse("not on Fridays")),
            "asked" => match cx.journal.response("sure") {
                None => Decision::Ask(ask("sure")),
                Some(answer) if matches!(answer.elicit_result(), Some(ElicitResult::Accepted(_))) => {
                    Decision::Allow
                }
                Some(_) => Decision::Refuse,
            },
            "rewritten" => Decision::ReplaceArguments(Json::parse(r#"{"who":"bob"}"#).expect("JSON")),
            // Rewrites otherwise in the second round, and not at all in the third.
            "drifts" | "returns" => match (cx.journal.response("a"), cx.journal.response("b")) {
                (None, _) => Decision::ReplaceArguments(Json::parse(r#"{"who":"first"}"#).expect("JSON")),
                (_, None) => Decision::ReplaceArguments(Json::parse(r#"{"who":"second"}"#).expect("JSON")),
                (Some(_), Some(_)) => Decision::Allow,
            },
            "broken" => Decision::ReplaceArguments(Json::parse("[]").expect("JSON")),
            "noted" => match cx.journal.policy_note() {
                Some(note) => return PolicyRun::Now(PolicyDecision::allow().because(note.as_str())),
                None => {
                    let note = Some(Json::parse(r#"{"decided":true}"#).expect("JSON"));
                    return PolicyRun::Now(PolicyDecision { note, ..PolicyDecision::allow() });
                }
            },
            "panics" => panic!("the policy is broken"),
            "undecided" => return PolicyRun::Later(Box::pin(std::future::pending())),
            "slow" => {
                return PolicyRun::Later(Box::pin(async {
                    tokio::task::yield_now().await;
                    PolicyDecision::refuse("later")
                }));
            }
            _ => Decision::Allow,
        };
        PolicyRun::Now(PolicyDecision::new(decision).because("the test says so"))
    }

    fn after(&self, call: &Call, _: &CallResult, cx: &PolicyContext<'_>) -> PolicyRun<ResultDecision> {
        PolicyRun::Now(match &*call.name() {
            "noted" => withhold(cx.journal.policy_note().map_or("no note", Json::as_str)),
            "times-out" => withhold("it failed"),
            "withheld" | "fails" => withhold("it has a secret"),
            "rewritten" if call.text_argument("who").as_deref() != Some("bob") => {
                withhold("not the call that ran")
            }
            "panics-later" => panic!("the policy is broken"),
            "replaced" => {
                let result = Box::new(CallResult::Tool(ToolResult::text("something else")));
                ResultDecision::Replace { result, reason: Some("it has names".into()), hook: None }
            }
            _ => ResultDecision::Keep,
        })
    }

    fn view(&self, _: &Caller) -> Option<CatalogView> {
        Some(CatalogView { key: 1, visibility: Arc::new(NotHidden) })
    }
}

fn withhold(reason: &str) -> ResultDecision {
    ResultDecision::Withhold { reason: reason.into(), hook: None }
}

struct NotHidden;

impl Visibility for NotHidden {
    fn is_visible(&self, _: ItemKind, name: &str) -> bool {
        name != "hidden"
    }
}

const TOOLS: &[&str] = &[
    "refused",
    "asked",
    "rewritten",
    "drifts",
    "returns",
    "broken",
    "slow",
    "panics",
    "undecided",
    "withheld",
    "fails",
    "panics-later",
    "replaced",
    "free",
    "noted",
    "forges",
    "times-out",
    "hidden",
];

fn guarded_server() -> (Arc<host::Server>, Arc<Records>) {
    let records = Arc::new(Records::default());
    (guarded(records.clone()), records)
}

fn guarded(observer: Arc<dyn CallObserver>) -> Arc<host::Server> {
    let greet = provider(tools(TOOLS), |call, cx| {
        match &*call.name() {
            "fails" => return Run::now(ToolError::new(ToolErrorCode::Conflict, "the secret is 42")),
            "noted" if cx.journal.response("who").is_none() => {
                return Run::now(Outcome::InputRequired(ask("who")));
            }
            name @ ("drifts" | "returns") => {
                let questions = if name == "drifts" { &["a"][..] } else { &["a", "b"] };
                if let Some(key) = questions.iter().find(|key| cx.journal.response(key).is_none()) {
                    return Run::now(Outcome::InputRequired(ask(key)));
                }
            }
            "forges" => return Run::now(Outcome::InputRequired(ask(Journal::POLICY_KEY))),
            "times-out" => return Run::later(std::future::pending()),
            _ => {}
        }
        Run::now(ToolResult::text(format!("hello {}", call.text_argument("who").unwrap_or_default())))
    });
    let server = server(vec![greet]);
    server.set_policy(Arc::new(TestPolicy));
    server.set_observer(observer);
    server
}

#[tokio::test]
async fn a_policy_refuses_rewrites_and_withholds_and_the_record_says_so() {
    let (server, records) = guarded_server();
    for (tool, expected, record) in [
        ("free", "hello ada", "free depth 0 round 0 allow(the test says so)"),
        ("refused", "Forbidden: not on Fridays", "refused depth 0 round 0 refuse(not on Fridays)"),
        ("slow", "Forbidden: later", "slow depth 0 round 0 refuse(later)"),
        ("rewritten", "hello bob", "rewritten depth 0 round 0 replace_arguments(the test says so)"),
        (
            "withheld",
            "Forbidden: it has a secret",
            "withheld depth 0 round 0 allow(the test says so) withhold_result(it has a secret)",
        ),
        (
            "fails",
            "Forbidden: it has a secret",
            "fails depth 0 round 0 allow(the test says so) withhold_result(it has a secret)",
        ),
        (
            "replaced",
            "something else",
            "replaced depth 0 round 0 allow(the test says so) replace_result(it has names)",
        ),
    ] {
        let message = stateless_call(tool, r#","arguments":{"who":"ada"}"#);
        assert_eq!(text_of(&respond(&server, &message).await), expected);
        assert_eq!(records.lines().last().map(String::as_str), Some(record));
    }
    let broken = text_of(&respond(&server, &stateless_call("broken", "")).await);
    assert_eq!(
        broken,
        "Forbidden: the server's policy changed the arguments of this call into invalid ones, so it was not made; its operator \
         must correct that: the value must be an object"
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_does_not_decide_allows_nothing() {
    let (server, records) = guarded_server();
    for (tool, expected, record) in [
        (
            "panics",
            "Internal: internal error; the server's log has the details",
            "panics depth 0 round 0 none(internal error; the server's log has the details)",
        ),
        (
            "undecided",
            "Timeout: no result within 600000 ms",
            "undecided depth 0 round 0 none(no result within 600000 ms)",
        ),
        (
            "panics-later",
            "Forbidden: the server's policy could not decide about the result",
            "panics-later depth 0 round 0 allow(the test says so) \
             withhold_result(internal error; the server's log has the details)",
        ),
    ] {
        assert_eq!(text_of(&respond(&server, &stateless_call(tool, "")).await), expected);
        assert_eq!(records.lines().last().map(String::as_str), Some(record));
    }
}

#[tokio::test]
async fn a_policy_asks_the_user_in_both_eras() {
    let (server, records) = guarded_server();
    let first = respond(&server, &stateless_call("asked", r#","arguments":{"who":"ada"}"#)).await;
    let resumed = format!(r#","arguments":{{"who":"ada"}}{}"#, answers(&state_of(&first), "sure", "yes"));
    assert_eq!(text_of(&respond(&server, &stateless_call("asked", &resumed)).await), "hello ada");
    assert_eq!(
        records.lines(),
        ["asked depth 0 round 0 ask(the test says so)", "asked depth 0 round 1 allow(the test says so)",]
    );
    assert_eq!(text_of(&PipeClient::new(&server).call("asked", &["yes"]).await), "hello ");
}

#[tokio::test]
async fn the_note_of_a_policy_is_there_in_later_rounds_and_after_the_call() {
    let (server, records) = guarded_server();
    let first = respond(&server, &stateless_call("noted", "")).await;
    let resumed = answers(&state_of(&first), "who", "ada");
    let last = respond(&server, &stateless_call("noted", &resumed)).await;
    let note = r#"{"decided":true}"#;
    assert_eq!(text_of(&last), format!("Forbidden: {note}"));
    assert_eq!(
        records.lines(),
        [
            "noted depth 0 round 0 allow()".to_owned(),
            format!("noted depth 0 round 1 allow({note}) withhold_result({note})"),
        ]
    );
    let pipe = PipeClient::new(&server).call("noted", &["ada"]).await;
    assert_eq!(text_of(&pipe), format!("Forbidden: {note}"), "also where the call waits");
}

#[tokio::test]
async fn no_provider_asks_under_the_key_of_the_policy() {
    let (guarded, _) = guarded_server();
    let forged = respond(&guarded, &stateless_call("forges", "")).await;
    assert!(text_of(&forged).starts_with("Internal: "), "{}", forged.text());

    // A resource that no catalog lists is asked of every provider.
    let catalog = Catalog { resource_subscriptions: true, ..Catalog::default() };
    let run = |_: &Call, _: &CallContext<'_>| Run::now(Outcome::InputRequired(ask(Journal::POLICY_KEY)));
    let server = server(vec![Arc::new(FnProvider { catalog: Arc::new(catalog), run })]);
    let read = stateless_call("x", r#","uri":"test://unlisted""#).replace("tools/call", "resources/read");
    assert_eq!(error_of(&respond(&server, &read).await), "internal error; the server's log has the details");
}

#[tokio::test(start_paused = true)]
async fn a_policy_sees_a_call_that_timed_out() {
    let (server, _) = guarded_server();
    let late = respond(&server, &stateless_call("times-out", "")).await;
    assert_eq!(text_of(&late), "Forbidden: it failed");
}

#[tokio::test]
async fn what_a_view_hides_is_neither_listed_nor_callable() {
    let (server, records) = guarded_server();
    let list = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"#,
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{}}}}"#
    );
    let listed = respond(&server, list).await;
    let names: Vec<String> = listed
        .root()
        .get("result")
        .and_then(|result| result.get("tools"))
        .expect("tools")
        .elements()
        .filter_map(|tool| Some(tool.get("name")?.str()?.into_owned()))
        .collect();
    assert_eq!(names, TOOLS.iter().filter(|name| **name != "hidden").copied().collect::<Vec<_>>());
    let hidden = respond(&server, &stateless_call("hidden", "")).await;
    assert_eq!(error_of(&hidden), "unknown tool `hidden`");
    assert_eq!(records.lines(), ["hidden depth 0 round 0 hide()"]);
}

/// Keeps the arguments that ran, and those that were sent if they are others.
#[derive(Default)]
struct RunArguments(Mutex<Vec<String>>);

impl CallObserver for RunArguments {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        let shown = |call: &Call| call.arguments().map_or("nothing".to_owned(), |node| node.raw().to_owned());
        let requested = record.requested.map(|call| format!(" instead of {}", shown(call)));
        let line = format!("{}{}", shown(record.call), requested.unwrap_or_default());
        self.0.lock().expect("no panic before").push(line);
    }
}

/// In the handshake era one call has several rounds, and the policy is asked in each.
#[tokio::test]
async fn the_record_of_a_call_has_the_arguments_that_ran_last() {
    let records = Arc::new(RunArguments::default());
    let server = guarded(records.clone());
    let client = PipeClient::new(&server);
    assert_eq!(text_of(&client.call("drifts", &["yes"]).await), "hello second");
    assert_eq!(text_of(&client.call("returns", &["yes", "yes"]).await), "hello ");
    let lines = records.0.lock().expect("no panic before").clone();
    assert_eq!(lines, [r#"{"who":"second"} instead of nothing"#, "nothing"]);
}

/// Counts what it is asked.
#[derive(Default)]
struct CountingVisibility(AtomicUsize);

impl Visibility for CountingVisibility {
    fn is_visible(&self, _: ItemKind, name: &str) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        name != "hidden"
    }
}

/// Shows each caller what its own view says. All views share one count.
struct ViewPerCaller(Arc<CountingVisibility>);

impl Policy for ViewPerCaller {
    fn before(&self, _: &Call, _: &PolicyContext<'_>) -> PolicyRun<PolicyDecision> {
        PolicyRun::Now(PolicyDecision::allow())
    }

    fn view(&self, caller: &Caller) -> Option<CatalogView> {
        let key = u64::from(caller.principal != Principal::Anonymous);
        Some(CatalogView { key, visibility: self.0.clone() })
    }
}

#[tokio::test]
async fn the_list_of_a_caller_is_rendered_once() {
    let server = server(vec![provider(tools(TOOLS), |_, _| Run::now(ToolResult::text("")))]);
    let asked = Arc::new(CountingVisibility::default());
    server.set_policy(Arc::new(ViewPerCaller(asked.clone())));
    let list = stateless_call("x", "").replace("tools/call", "tools/list");
    let ada = CallerIdentity { principal: Principal::local("ada").expect("valid"), ..ANONYMOUS };
    let mut first = None;
    for (caller, expected) in [(&ANONYMOUS, 1), (&ANONYMOUS, 1), (&ada, 2), (&ada, 2), (&ANONYMOUS, 2)] {
        let listed = respond_as(&server, caller, &list).await;
        assert!(!listed.text().contains(r#""hidden""#), "{}", listed.text());
        assert_eq!(first.get_or_insert_with(|| listed.text().to_owned()), listed.text());
        assert_eq!(asked.0.load(Ordering::SeqCst), expected * TOOLS.len(), "once for each tool of a view");
    }
}
