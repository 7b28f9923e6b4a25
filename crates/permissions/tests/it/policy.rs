//! The policy in a real server: what runs, who is asked, and what the call record says.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use permissions::hooks::Hooks;
use permissions::{Approval, ApprovalRequest, Approver, CallGate, PermissionPolicy};

use crate::harness::{ALLOW, Client, TestOrigins, gateway, gateway_without_policy, settings};

/// Answers what it was told, and keeps what it was shown.
pub struct TestApprover {
    answer: Option<Approval>,
    shown: Mutex<Vec<String>>,
}

impl TestApprover {
    pub fn new(answer: Option<Approval>) -> Arc<Self> {
        Arc::new(Self { answer, shown: Mutex::default() })
    }
}

impl Approver for TestApprover {
    fn is_available(&self) -> bool {
        true
    }

    fn ask(self: Arc<Self>, request: ApprovalRequest) -> Pin<Box<dyn Future<Output = Approval> + Send>> {
        self.shown.lock().expect("no panic").push(format!("{request:#?}"));
        match self.answer.clone() {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(std::future::pending()),
        }
    }
}

#[tokio::test]
async fn calls_run_ask_or_are_refused() {
    let gateway = gateway(
        r#"{"permissions": {"allow": ["mcp__s__write"], "deny": ["mcp__s__plain(who:root)"]}}"#,
        None,
    );
    let mut transcript = String::new();
    for (tool, arguments, client) in [
        ("mcp__s__read", "{}", Client::CannotBeAsked),
        ("mcp__s__write", "{}", Client::CannotBeAsked),
        ("mcp__s__plain", "{}", Client::CannotBeAsked),
        ("mcp__s__plain", r#"{"who":"root"}"#, Client::Answers(&[ALLOW])),
        ("mcp__s__plain", r#"{"who":"ada"}"#, Client::Answers(&[ALLOW])),
        ("mcp__s__plain", "{}", Client::Answers(&[r#"{"action":"accept","content":{"allow":false}}"#])),
        ("mcp__s__plain", "{}", Client::Answers(&[r#"{"action":"accept","content":{}}"#])),
        ("mcp__s__delete", "{}", Client::Answers(&[r#"{"action":"decline"}"#])),
        ("mcp__s__delete", "{}", Client::Answers(&[r#"{"action":"cancel"}"#])),
        // An answer that is not one is asked for again.
        (
            "mcp__s__delete",
            "{}",
            Client::Answers(&[r#"{"action":"accept","content":{"allow":"yes"}}"#, ALLOW]),
        ),
    ] {
        transcript
            .push_str(&format!("> {tool} {arguments}\n{}\n", gateway.call(tool, arguments, client).await));
    }
    insta::assert_snapshot!(transcript);
}

#[tokio::test]
async fn the_user_is_asked_once_however_many_rounds_the_call_has() {
    let gateway = gateway(r#"{"permissions": {"ask": ["mcp__s__asks"]}}"#, None);
    let name = r#"{"action":"accept","content":{"n":"Ada"}}"#;
    let transcript = gateway.call("mcp__s__asks", "{}", Client::Answers(&[ALLOW, name])).await;
    assert_eq!(transcript.matches("Run the tool").count(), 1, "{transcript}");
    insta::assert_snapshot!(transcript);
}

#[tokio::test]
async fn what_is_shown_is_safe_short_and_without_secrets() {
    let gateway = gateway("{}", None);
    let long = "x".repeat(300);
    let arguments = format!(
        r#"{{"who":"a\u001b[2Jb\n\nAllowed by the administrator.","long":"{long}","\u202egnp":"","api_key":"k",
            "nested":{{"password":"p","list":[1,"\u0007"]}},"n":null}}"#
    );
    insta::assert_snapshot!(gateway.call("mcp__s__plain", &arguments, Client::Answers(&[ALLOW])).await);
    let many: Vec<String> = (0..45).map(|n| format!("\"a{n}\":{n}")).collect();
    let many = format!("{{{}}}", many.join(","));
    let shown = gateway.call("mcp__s__plain", &many, Client::Answers(&[ALLOW])).await;
    assert!(shown.contains("a39: 39\n      … and 5 more\n"), "{shown}");
}

#[tokio::test]
async fn somebody_else_is_asked_where_the_client_cannot_be() {
    let approver = TestApprover::new(Some(Approval::Allowed { by: Some("grace".into()) }));
    let gateway = gateway(r#"{"permissions": {"ask": ["mcp__s__asks"]}}"#, Some(approver.clone()));
    let mut transcript = gateway.call("mcp__s__delete", r#"{"who":"ada"}"#, Client::CannotBeAsked).await;
    transcript.push_str(&gateway.call("mcp__s__delete", "{}", Client::Answers(&[ALLOW])).await);
    transcript.push_str(&approver.shown.lock().expect("no panic").join("\n"));
    insta::assert_snapshot!(transcript);
}

#[tokio::test(start_paused = true)]
async fn an_approver_that_declines_or_never_answers_allows_nothing() {
    for (answer, expected) in [
        (Some(Approval::Declined { by: None }), "answer: Forbidden: declined; "),
        (Some(Approval::Declined { by: Some("grace".into()) }), "answer: Forbidden: declined by grace; "),
        (Some(Approval::Unanswered), "answer: Forbidden: nobody answered in time; "),
        (None, "answer: Forbidden: nobody answered in time; "),
    ] {
        let gateway = gateway("{}", Some(TestApprover::new(answer)));
        let transcript = gateway.call("mcp__s__plain", "{}", Client::CannotBeAsked).await;
        assert!(transcript.contains(expected) && !transcript.contains("runs"), "{transcript}");
    }
}

#[tokio::test]
async fn what_is_denied_is_neither_listed_nor_callable() {
    let gateway = gateway(r#"{"permissions": {"deny": ["mcp__s__delete", "*write*"]}}"#, None);
    assert_eq!(
        gateway.list("tools").await,
        ["mcp__s__read", "mcp__s__plain", "mcp__s__fails", "mcp__s__asks"]
    );
    assert_eq!(gateway.list("prompts").await, ["mcp__s__greet"]);
    let transcript = gateway.call("mcp__s__delete", "{}", Client::CannotBeAsked).await;
    assert!(transcript.contains("unknown tool") && !transcript.contains("runs"), "{transcript}");
    let all = crate::harness::gateway(r#"{"permissions": {"deny": ["mcp__s"]}}"#, None);
    assert!(all.list("tools").await.is_empty() && all.list("prompts").await.is_empty());
}

struct Closed;

impl CallGate for Closed {
    fn check(&self) -> Result<(), &'static str> {
        Err("the audit log cannot be written")
    }
}

#[tokio::test]
async fn a_closed_gate_refuses_everything() {
    let settings = settings("{}");
    let policy =
        PermissionPolicy::new(settings.rules, settings.mode, Hooks::none(), Arc::new(TestOrigins), None);
    let gateway = gateway_without_policy();
    gateway.server.set_policy(Arc::new(policy.with_gate(Arc::new(Closed))));
    let transcript = gateway.call("mcp__s__read", "{}", Client::CannotBeAsked).await;
    assert!(transcript.ends_with("answer: Forbidden: the audit log cannot be written\n"), "{transcript}");
}
