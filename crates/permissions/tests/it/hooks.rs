//! Hooks: which tools they are for, what their output means, and real commands and requests around real calls.

use permissions::hooks::{HookEvent, HookReply, Matcher, MatcherSyntax};
use permissions::names::{Origin, ToolNames};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{ALLOW, Audited, Client, gateway};

#[test]
fn matchers_are_patterns_or_expressions_and_claude_codes_reading_is_available() {
    let matches = |matcher: &str, syntax: MatcherSyntax, listed: &str| {
        let (server, name) = listed[5..].split_once("__").expect("a public name");
        let origin = Origin { server: server.to_owned(), name: name.to_owned() };
        Matcher::parse(matcher, syntax).expect(matcher).matches(&ToolNames::new(listed, Some(origin)))
    };
    for (matcher, listed, glob, claude) in [
        ("", "mcp__github__get", true, true),
        ("*", "mcp__github__get", true, true),
        ("mcp__github__*", "mcp__github__get", true, true),
        // In Claude Code this is an expression, which reaches into another server.
        ("mcp__github__*", "mcp__github_enterprise__get", false, true),
        ("mcp__github", "mcp__github__get", true, false),
        ("mcp__github__get|mcp__jira", "mcp__jira__x", true, false),
        ("mcp__github__get, mcp__jira__x", "mcp__jira__x", true, true),
        ("mcp__github__g", "mcp__github__get", false, false),
        ("Bash", "mcp__github__get", false, false),
    ] {
        assert_eq!(matches(matcher, MatcherSyntax::Glob, listed), glob, "glob {matcher}");
        assert_eq!(matches(matcher, MatcherSyntax::ClaudeCode, listed), claude, "claude-code {matcher}");
    }
    for (matcher, expected) in [("/delete|drop/", true), ("/^mcp__db__drop$/", false), ("/(?i)DROP/", true)] {
        assert_eq!(matches(matcher, MatcherSyntax::Glob, "mcp__db__drop_table"), expected, "{matcher}");
    }
    assert!(matches("mcp__.*__drop.*", MatcherSyntax::ClaudeCode, "mcp__db__drop_table"));
    for (matcher, syntax) in [
        ("mcp__.*(", MatcherSyntax::Glob),
        ("/(/", MatcherSyntax::Glob),
        ("/a(?=b)/", MatcherSyntax::Glob),
        ("(", MatcherSyntax::ClaudeCode),
    ] {
        assert!(Matcher::parse(matcher, syntax).is_err(), "{matcher}");
    }
}

#[test]
fn output_is_read_as_claude_code_writes_it() {
    use HookEvent::{PermissionRequest, PostToolUse, PreToolUse};
    let mut table = String::new();
    for (event, output) in [
        (PreToolUse, ""),
        (PreToolUse, "checked, all fine"),
        (PreToolUse, "{}"),
        (PreToolUse, r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}"#),
        (
            PreToolUse,
            r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}"#,
        ),
        (PreToolUse, r#"{"hookSpecificOutput":{"permissionDecision":"ask"}}"#),
        (PreToolUse, r#"{"hookSpecificOutput":{"permissionDecision":"defer"}}"#),
        (PreToolUse, r#"{"hookSpecificOutput":{"updatedInput":{"a":1},"additionalContext":"note"}}"#),
        (PreToolUse, r#"{"decision":"block","reason":"old form"}"#),
        (PreToolUse, r#"{"decision":"approve"}"#),
        (PreToolUse, r#"{"continue":false,"stopReason":"enough"}"#),
        (PreToolUse, r#"{"hookSpecificOutput":{"permissionDecision":"maybe"}}"#),
        (PreToolUse, r#"{"hookSpecificOutput":{"hookEventName":"PostToolUse"}}"#),
        (PreToolUse, r#"{"hookSpecificOutput":{"updatedInput":[1]}}"#),
        (PreToolUse, r#"{"a":1"#),
        (
            PermissionRequest,
            r#"{"hookSpecificOutput":{"decision":{"behavior":"allow","updatedInput":{"a":2}}}}"#,
        ),
        (PermissionRequest, r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"no"}}}"#),
        (PermissionRequest, r#"{"hookSpecificOutput":{"decision":{"behavior":"perhaps"}}}"#),
        (PostToolUse, r#"{"decision":"block","reason":"secret"}"#),
        (PostToolUse, r#"{"hookSpecificOutput":{"updatedToolOutput":"x","additionalContext":"note"}}"#),
        (PostToolUse, r#"{"hookSpecificOutput":{"updatedMCPToolOutput":[{"type":"text","text":"y"}]}}"#),
    ] {
        let reply = match HookReply::parse(event, output) {
            Ok(reply) => format!("{reply:?}"),
            Err(reason) => format!("failed: {reason}"),
        };
        table.push_str(&format!("{} {output}\n    {reply}\n", event.as_str()));
    }
    insta::assert_snapshot!(table);
}

/// A hook's settings for every tool, as JSON.
fn command(event: &str, command: &str, more: &str) -> String {
    let command = json::Json::string(command);
    format!(
        r#"{{"hooks": {{"{event}": [{{"hooks": [{{"type": "command", "command": {command}{more}}}]}}]}}}}"#
    )
}

/// Prints this JSON.
fn print(json: &str) -> String {
    format!("cat >/dev/null; printf '%s' '{json}'")
}

#[tokio::test]
async fn each_hook_has_the_effect_that_it_says() {
    let pre =
        |body: &str| command("PreToolUse", &print(&format!(r#"{{"hookSpecificOutput":{{{body}}}}}"#)), "");
    let request = |body: &str| {
        command(
            "PermissionRequest",
            &print(&format!(r#"{{"hookSpecificOutput":{{"decision":{{{body}}}}}}}"#)),
            "",
        )
    };
    let post = |body: &str| command("PostToolUse", &print(body), "");
    let rows: Vec<(&str, String, &str, Client<'_>)> = vec![
        ("says nothing", command("PreToolUse", "true", ""), "read", Client::CannotBeAsked),
        (
            "allows what would be asked",
            pre(r#""permissionDecision":"allow""#),
            "plain",
            Client::CannotBeAsked,
        ),
        (
            "cannot allow what is destructive",
            pre(r#""permissionDecision":"allow""#),
            "delete",
            Client::CannotBeAsked,
        ),
        (
            "denies",
            pre(r#""permissionDecision":"deny","permissionDecisionReason":"not now""#),
            "read",
            Client::CannotBeAsked,
        ),
        ("asks", pre(r#""permissionDecision":"ask""#), "read", Client::Answers(&[ALLOW])),
        (
            "asks, and nobody can be asked",
            pre(r#""permissionDecision":"ask""#),
            "read",
            Client::CannotBeAsked,
        ),
        ("rewrites the input", pre(r#""updatedInput":{"who":"bob"}"#), "read", Client::CannotBeAsked),
        (
            "rewrites what the user is shown",
            pre(r#""updatedInput":{"who":"bob"}"#),
            "plain",
            Client::Answers(&[ALLOW]),
        ),
        (
            "rewrites the input into an invalid one",
            pre(r#""updatedInput":{"who":7}"#),
            "read",
            Client::CannotBeAsked,
        ),
        ("adds a note for the model", pre(r#""additionalContext":"checked""#), "read", Client::CannotBeAsked),
        (
            "exits with 2",
            command("PreToolUse", "echo 'not allowed' >&2; exit 2", ""),
            "read",
            Client::CannotBeAsked,
        ),
        ("fails", command("PreToolUse", "echo secret >&2; exit 1", ""), "read", Client::CannotBeAsked),
        (
            "fails, and may",
            command("PreToolUse", "exit 1", r#", "on_error": "allow""#),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "fails after it denied",
            command(
                "PreToolUse",
                &format!("{}; exit 1", print(r#"{"decision":"block","reason":"no"}"#)),
                r#", "on_error": "allow""#,
            ),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "is not there",
            command("PreToolUse", "/nonexistent/hook", r#", "args": []"#),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "prints half of its JSON",
            command("PreToolUse", &print(r#"{"decision":"#), ""),
            "read",
            Client::CannotBeAsked,
        ),
        ("prints too much", command("PreToolUse", "yes", ""), "read", Client::CannotBeAsked),
        (
            "does not end",
            command("PreToolUse", "sleep 1000 & sleep 1000", r#", "timeout": 1"#),
            "read",
            Client::CannotBeAsked,
        ),
        ("answers for the user", request(r#""behavior":"allow""#), "plain", Client::CannotBeAsked),
        (
            "answers no for the user",
            request(r#""behavior":"deny","message":"ask Grace""#),
            "plain",
            Client::Answers(&[]),
        ),
        (
            "cannot answer for the user of a destructive tool",
            request(r#""behavior":"allow""#),
            "delete",
            Client::Answers(&[ALLOW]),
        ),
        (
            "is not asked about what runs anyway",
            request(r#""behavior":"deny""#),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "rewrites the output",
            post(r#"{"hookSpecificOutput":{"updatedToolOutput":"hidden"}}"#),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "rewrites the blocks of the output",
            post(r#"{"hookSpecificOutput":{"updatedMCPToolOutput":[{"type":"text","text":"a"}]}}"#),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "adds to the output",
            post(r#"{"hookSpecificOutput":{"additionalContext":"stale"}}"#),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "withholds the output",
            post(r#"{"decision":"block","reason":"it has a secret"}"#),
            "read",
            Client::CannotBeAsked,
        ),
        ("fails after the call", command("PostToolUse", "exit 1", ""), "read", Client::CannotBeAsked),
        (
            "fails after the call, and must not",
            command("PostToolUse", "exit 1", r#", "on_error": "deny""#),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "is for failures and the call succeeds",
            command("PostToolUseFailure", "exit 2", ""),
            "read",
            Client::CannotBeAsked,
        ),
        (
            "adds to a failure",
            command(
                "PostToolUseFailure",
                &print(r#"{"hookSpecificOutput":{"additionalContext":"try later"}}"#),
                "",
            ),
            "fails",
            Client::CannotBeAsked,
        ),
        (
            "is for successes and the call fails",
            post(r#"{"decision":"block"}"#),
            "fails",
            Client::CannotBeAsked,
        ),
        (
            "is for results and the call is refused",
            command("PostToolUseFailure", "exit 2", ""),
            "plain",
            Client::CannotBeAsked,
        ),
    ];
    let mut table = String::new();
    for (what, settings, tool, client) in rows {
        let audited = Audited::new(&settings, None);
        let mut transcript =
            audited.gateway.call(&format!("mcp__s__{tool}"), r#"{"who":"ada"}"#, client).await;
        audited.lines().iter().for_each(|line| transcript.push_str(&format!("audit: {line}\n")));
        table.push_str(&format!("the hook {what}\n    {}\n", transcript.trim_end().replace('\n', "\n    ")));
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn of_several_hooks_the_strictest_counts_and_identical_ones_run_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let hook = |output: &str| {
        let command = format!("cat >/dev/null; echo run >>{}; printf '%s' '{output}'", log.display());
        format!(r#"{{"type": "command", "command": {}}}"#, json::Json::string(&command))
    };
    let decide = |word: &str| {
        hook(&format!(
            r#"{{"hookSpecificOutput":{{"permissionDecision":"{word}","permissionDecisionReason":"says {word}"}}}}"#
        ))
    };
    for (hooks, tool, expected, runs) in [
        (vec![decide("allow"), decide("deny"), decide("ask")], "read", "Forbidden: says deny", 3),
        (vec![decide("allow"), decide("ask")], "read", "nobody can be asked", 2),
        (vec![decide("allow"), decide("allow"), decide("allow")], "plain", "result of mcp__s__plain", 1),
    ] {
        let _ = std::fs::remove_file(&log);
        let settings = format!(
            r#"{{"hooks": {{"PreToolUse": [{{"matcher": "mcp__s", "hooks": [{}]}}]}}}}"#,
            hooks.join(",")
        );
        let transcript =
            gateway(&settings, None).call(&format!("mcp__s__{tool}"), "{}", Client::CannotBeAsked).await;
        assert!(transcript.contains(expected), "{transcript}");
        assert_eq!(std::fs::read_to_string(&log).expect("it ran").lines().count(), runs, "{transcript}");
    }
}

#[tokio::test]
async fn a_hook_runs_once_although_the_call_has_several_rounds() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let append = format!("echo run >>{}", log.display());
    let settings = command(
        "PreToolUse",
        &format!(
            "{append}; {}",
            print(r#"{"hookSpecificOutput":{"permissionDecision":"ask","updatedInput":{"who":"bob"}}}"#)
        ),
        "",
    );
    let name = r#"{"action":"accept","content":{"n":"Ada"}}"#;
    let transcript =
        gateway(&settings, None).call("mcp__s__asks", "{}", Client::Answers(&[ALLOW, name])).await;
    assert_eq!(std::fs::read_to_string(&log).expect("it ran"), "run\n", "{transcript}");
    assert_eq!(transcript.matches(r#"runs mcp__s__asks with {"who":"bob"}"#).count(), 2, "{transcript}");
}

#[tokio::test]
async fn hooks_get_the_input_of_claude_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut table = String::new();
    for (event, tool) in [
        ("PreToolUse", "read"),
        ("PermissionRequest", "plain"),
        ("PostToolUse", "read"),
        ("PostToolUseFailure", "fails"),
    ] {
        let file = folder.path().join(event);
        let settings = command(event, &format!("cat >{}", file.display()), "");
        gateway(&settings, None)
            .call(&format!("mcp__s__{tool}"), r#"{"who":"ada"}"#, Client::Answers(&[ALLOW]))
            .await;
        let input = std::fs::read_to_string(&file).expect("the hook ran");
        table.push_str(&input.replace(&*std::env::temp_dir().to_string_lossy(), "TMP"));
    }
    insta::assert_snapshot!(table);
}

/// A server that answers each request by its path, and keeps what it got.
async fn http_server() -> (String, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let requests = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let kept = requests.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                let mut chunk = [0; 4096];
                loop {
                    let read = socket.read(&mut chunk).await.unwrap_or(0);
                    request.extend_from_slice(&chunk[..read]);
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let length = text
                        .to_lowercase()
                        .split("content-length: ")
                        .nth(1)
                        .and_then(|rest| rest.lines().next()?.trim().parse::<usize>().ok());
                    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                    if read == 0 || body >= length && body.is_some() {
                        break;
                    }
                }
                let text = String::from_utf8_lossy(&request).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
                kept.lock().expect("no panic").push(text);
                let (status, body) = match &*path {
                    "/allow" => (200, r#"{"hookSpecificOutput":{"permissionDecision":"allow"}}"#.to_owned()),
                    "/deny" => (200, r#"{"decision":"block","reason":"says the server"}"#.to_owned()),
                    "/empty" => (204, String::new()),
                    "/text" => (200, "fine".to_owned()),
                    "/large" => (200, format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20))),
                    "/redirect" => (302, String::new()),
                    "/silent" => return std::future::pending().await,
                    _ => (500, r#"{"hookSpecificOutput":{"permissionDecision":"allow"}}"#.to_owned()),
                };
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
            });
        }
    });
    (address, requests)
}

#[tokio::test]
async fn a_hook_may_be_an_address() {
    let (address, requests) = http_server().await;
    let mut table = String::new();
    for (path, more) in [
        ("/allow", ""),
        ("/deny", ""),
        ("/empty", ""),
        ("/text", ""),
        ("/large", ""),
        ("/redirect", ""),
        ("/broken", ""),
        ("/broken", r#", "on_error": "allow""#),
        ("/silent", r#", "timeout": 1"#),
    ] {
        let settings = format!(
            r#"{{"hooks": {{"PreToolUse": [{{"hooks": [{{"type": "http", "url": "{address}{path}"{more},
                "headers": {{"X-Path": "<${{PATH}}${{HOME}}>"}}, "allowedEnvVars": []}}]}}]}}}}"#
        );

        let transcript = gateway(&settings, None).call("mcp__s__plain", "{}", Client::CannotBeAsked).await;
        let transcript = transcript.replace(&address, "http://HOST");
        table.push_str(&format!("{path}{more}\n    {}\n", transcript.trim_end().replace('\n', "\n    ")));
    }
    insta::assert_snapshot!(table);
    let first = requests.lock().expect("no panic")[0].clone();
    assert!(first.contains("x-path: <>\r\n"), "a variable that is not allowed is empty: {first}");
    assert!(first.contains(r#""hook_event_name":"PreToolUse""#), "{first}");
    let nobody =
        r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "http", "url": "http://127.0.0.1:1/"}]}]}}"#;
    let transcript = gateway(nobody, None).call("mcp__s__read", "{}", Client::CannotBeAsked).await;
    assert!(transcript.contains("a hook of this server failed"), "{transcript}");
}
