//! The examples of docs/permissions.md do what the page says.

use permissions::hooks::{CommandEnvironment, Hooks};
use permissions::modes::{Effect, HookAdvice, Mode, Verdict, WhoCanBeAsked, decide};
use permissions::names::{Origin, ToolNames};
use permissions::rules::RuleKind;

use crate::harness::{command_environment, settings};

const PAGE: &str = include_str!("../../../../docs/permissions.md");

/// The code block of a language.
fn block(language: &str) -> &'static str {
    let start = format!("```{language}\n");
    PAGE.split_once(&start).and_then(|(_, rest)| rest.split_once("```")).expect("a block").0
}

fn names(tool: &str) -> ToolNames {
    let (server, name) = tool[5..].split_once("__").expect("a public name");
    ToolNames::new(tool, Some(Origin { server: server.to_owned(), name: name.to_owned() }))
}

fn arguments(repo: &str) -> json::Json {
    json::Json::object(|out| {
        out.str("repo", repo);
    })
}

#[test]
fn the_example_settings_mean_what_the_page_says() {
    let settings = settings(block("json"));
    for (tool, repo, expected) in [
        ("mcp__github__create_issue", "acme/web", Some(RuleKind::Allow)),
        ("mcp__github__create_issue", "acme/payroll", Some(RuleKind::Deny)),
        ("mcp__github__get_secrets", "", Some(RuleKind::Ask)),
        ("mcp__github__get_issue", "", None),
        ("mcp__jira__x", "", Some(RuleKind::Deny)),
    ] {
        let doc = arguments(repo).to_doc();
        let found = settings.rules.first_match(&names(tool), Some(doc.root())).map(|found| found.kind);
        assert_eq!(found, expected, "{tool} {repo}");
    }
    assert!(settings.audit.is_some());
}

#[test]
fn the_table_of_modes_is_right() {
    let rows = [
        ("read-only", Effect::ReadOnly),
        ("not at all", Effect::Unannotated),
        ("as writing", Effect::Writes),
        ("as destructive", Effect::Destructive),
    ];
    for (name, effect) in rows {
        let cells = Mode::ALL.map(|mode| {
            match decide(mode, effect, None, HookAdvice::None, WhoCanBeAsked::Caller).verdict {
                Verdict::Allow => "runs",
                Verdict::AskCaller => "asks",
                Verdict::AskApprover => "asks somebody else",
                Verdict::Refuse => "refused",
            }
        });
        let row = format!("| {name} | {} |", cells.join(" | "));
        assert!(PAGE.contains(&row), "{row}");
    }
    let header: Vec<String> = Mode::ALL.iter().map(|mode| format!("`{}`", mode.as_str())).collect();
    assert!(PAGE.contains(&format!("| the tool is annotated | {} |", header.join(" | "))));
}

#[cfg(unix)]
#[tokio::test]
async fn the_example_hook_refuses_one_repository() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("check-call.sh");
    std::fs::write(&script, block("sh")).expect("a script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
    let environment: CommandEnvironment = command_environment(folder.path());
    let hooks = Hooks::new(settings(block("json")).hooks, environment).expect("hooks");
    for (repo, expected) in [("acme/web", None), ("acme/payroll", Some("payroll is off limits"))] {
        let arguments = arguments(repo);
        let names = names("mcp__github__create_issue");
        let call = permissions::hooks::HookCall {
            names: &names,
            arguments: &arguments,
            mode: "default",
            session: None,
            call_id: "1",
            principal: "ada",
            outcome: None,
        };
        let answers = hooks.run(permissions::hooks::HookEvent::PreToolUse, &call, 60_000).await;
        assert_eq!(answers.reply.reason.as_deref(), expected, "{repo}");
    }
}
