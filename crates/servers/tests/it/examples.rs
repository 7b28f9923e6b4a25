//! The examples of the library, run as a reader would run them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::harness::User;
use crate::http_server::{Response, serve};
use crate::manager::HELPER;

/// Cargo builds the examples with the tests.
fn example(name: &str) -> PathBuf {
    let program = Path::new(HELPER).parent().expect("a folder").join("examples").join(name);
    assert!(program.exists(), "run `cargo build -p servers --examples`");
    program
}

fn user() -> (User, PathBuf) {
    let user = User::new(&[]);
    let log = user.path("s.log").display().to_string();
    let entry = format!(
        r#"{{"mcpServers": {{"s": {{"command": "{HELPER}", "args": ["serve", "{log}"]}}, "gone": {{"command": "no-such-program"}}}}}}"#
    );
    user.write("servers.json", &entry);
    let file = user.path("servers.json");
    (user, file)
}

#[test]
fn tools_are_listed_and_called_after_an_approval() {
    let (user, file) = user();
    for (answer, is_called) in [("y\n", true), ("n\n", false)] {
        let mut child = Command::new(example("use_servers"))
            .arg(&file)
            .args(["mcp__s__echo", r#"{"a":1}"#])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(answer.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        for expected in ["s: connected\n", "`no-such-program` was not found in PATH", "\nmcp__s__grow\n"] {
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!(text.contains(r#"{"content":[{"type":"text""#), is_called, "{text}");
    }
    let log = std::fs::read_to_string(user.path("s.log")).expect("a log");
    assert_eq!(log.matches("called echo").count(), 1, "{log}");
}

#[test]
fn a_question_of_a_server_is_answered_at_the_terminal() {
    let (user, file) = user();
    user.write("s.log.asks", "");
    for (typed, expected) in [
        ("dana\n", r#"{\"action\":\"accept\",\"content\":{\"who\":\"dana\"}}"#),
        ("\n", r#"{\"action\":\"decline\"}"#),
        ("", r#"{\"action\":\"decline\"}"#),
    ] {
        let mut child = Command::new(example("answer_questions"))
            .arg(&file)
            .args(["mcp__s__ask", "{}"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(typed.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        assert!(text.contains(r#"s asks: "Who?""#) && text.contains(expected), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_calls_tools_until_the_model_answers() {
    let (_user, file) = user();
    let replies = Mutex::new(vec![
        r#"{"text":"done"}"#,
        r#"{"tool":"mcp__s__echo","arguments":{"a":1}}"#,
        r#"{"tool":"mcp__s__no_such_tool","arguments":{}}"#,
    ]);
    let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let origin = serve(move |request| {
        log.lock().expect("no panic").push(request.body);
        Response::json(200, replies.lock().expect("no panic").pop().expect("three turns"))
    })
    .await;
    let output = tokio::task::spawn_blocking(move || {
        Command::new(example("agent")).arg(&file).args([&format!("{origin}/chat"), "What is a?"]).output()
    });
    let output = output.await.expect("no panic").expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text, "done\n");
    let seen = seen.lock().expect("no panic");
    assert!(
        seen[0].contains(r#""content":"What is a?""#) && seen[0].contains(r#""name":"mcp__s__echo""#),
        "{}",
        seen[0]
    );
    assert!(seen[1].contains("unknown tool `mcp__s__no_such_tool`"), "{}", seen[1]);
    assert!(seen[2].contains(r#"{\"a\":1}"#), "{}", seen[2]);
}
