//! Ten servers behind a gateway, one of them bad: the other nine answer as if it were not there, and nothing is left behind.

use serde_json::{Map, Value, json};

use crate::faulty_server::{self, Fault, When};
use crate::gateway::{call, customers, project_with, start, tool_names};

const GOOD: usize = 9;

/// A server that breaks in one way, as a line for the shell.
fn bad(script: &str) -> Value {
    json!({"command": "/bin/sh", "args": ["-c", script]})
}

/// Answers a handshake of 2025-11-25 and the lists, and then does `then` for every other line.
fn answering(then: &str) -> String {
    let server = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bad","version":"1"}}"#;
    let tools =
        r#"{"tools":[{"name":"poke","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}"#;
    format!(
        r#"while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *'"initialize"'*) printf '{{"jsonrpc":"2.0","id":%s,"result":{server}}}\n' "$id" ;;
                *'"tools/list"'*) printf '{{"jsonrpc":"2.0","id":%s,"result":{tools}}}\n' "$id" ;;
                *'"server/discover"'*) printf '{{"jsonrpc":"2.0","id":%s,"error":{{"code":-32601,"message":"unknown"}}}}\n' "$id" ;;
                *'"tools/call"'*) {then} ;;
            esac
        done"#
    )
}

/// Processes with this text in their command line.
fn processes_with(mark: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("there is /proc").filter_map(Result::ok);
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(mark)).count()
}

#[test]
fn one_bad_server_of_ten_affects_no_other() {
    for (name, script) in [
        ("exits at once", "exit 1".to_owned()),
        ("never answers", "cat > /dev/null".to_owned()),
        ("writes garbage", "while read -r line; do head -c 100000 /dev/urandom; echo; done".to_owned()),
        ("floods stderr", "yes flood >&2".to_owned()),
        ("one endless line", "yes | tr -d '\\n'".to_owned()),
        ("stops in the call", answering("kill -STOP $$")),
        ("exits in the call", answering("exit 3")),
        ("answers with another id", answering(r#"printf '{"jsonrpc":"2.0","id":999999,"result":{}}\n'"#)),
        (
            "answers twice",
            answering(
                r#"for n in 1 2; do printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"x"}]}}\n' "$id"; done"#,
            ),
        ),
    ] {
        let mark = format!("spile-fault-{}-{}", std::process::id(), name.replace(' ', "-"));
        // In the command line of the bad server, so that its processes are found.
        check(name, bad(&format!("# {mark}\n{script}")), &mark);
    }
}

#[test]
fn one_bad_server_of_ten_at_an_address_affects_no_other() {
    use Fault::*;
    use When::{AtStart, InCall};
    for (is_sse, when, fault) in [
        (false, AtStart, NeverAnswers),
        (false, AtStart, EndlessBody),
        (false, AtStart, RedirectsInCircles),
        (false, InCall, NeverAnswers),
        (false, InCall, ResetsMidBody),
        (false, InCall, RedirectsInCircles),
        (false, InCall, EndlessBody),
        (false, InCall, EndlessEvent),
        (false, InCall, WrongId),
        (false, InCall, AnswersTwice),
        (true, AtStart, Garbage),
        (true, InCall, Closes),
        (true, InCall, EndlessEvent),
        (true, InCall, WrongId),
    ] {
        let name = format!("{when:?} {fault:?} {is_sse}");
        let kind = if is_sse { "sse" } else { "http" };
        check(
            &name,
            json!({"type": kind, "url": faulty_server::start(fault, when, is_sse)}),
            "no such process",
        );
    }
}

fn check(name: &str, mut entry: Value, mark: &str) {
    let mut servers: Map<String, Value> = (0..GOOD).map(|n| (format!("good{n}"), customers())).collect();
    // Soon enough for a test; the default is two minutes.
    entry["timeout"] = json!(1500);
    entry["startupTimeout"] = json!(3000);
    servers.insert("bad".to_owned(), entry);
    let project = project_with(&Value::Object(servers), &json!({}));
    let gateway = start(&project, &[]);
    let expected = {
        let first =
            call(&gateway, "/mcp/good0", "lookup_customer", &json!({"email": "dana@acme.test"}), &json!({}));
        first["result"]["structuredContent"].clone()
    };
    assert_eq!(expected["email"], "dana@acme.test", "{name}: {expected}");
    let has_poke = tool_names(&gateway, "/mcp").contains(&"mcp__bad__poke".to_owned());
    std::thread::scope(|scope| {
        let poking = scope.spawn(|| match has_poke {
            true => Some(call(&gateway, "/mcp", "mcp__bad__poke", &json!({}), &json!({}))),
            false => None,
        });
        let calling: Vec<_> = (0..GOOD)
            .map(|n| {
                let (gateway, expected) = (&gateway, &expected);
                scope.spawn(move || {
                    for _ in 0..5 {
                        let tool = format!("mcp__good{n}__lookup_customer");
                        let found =
                            call(gateway, "/mcp", &tool, &json!({"email": "dana@acme.test"}), &json!({}));
                        assert_eq!(found["result"]["structuredContent"], *expected, "{name}: {found}");
                    }
                })
            })
            .collect();
        for call in calling {
            call.join().unwrap_or_else(|_| panic!("{name}: a good server is affected"));
        }
        if let Some(answer) = poking.join().expect("no panic") {
            // A typed error that names the server, or the first of two answers.
            let text = answer.to_string();
            assert!(name.to_lowercase().contains("twice") || text.contains("bad"), "{name}: {text}");
        }
    });
    assert!(processes_with(mark) < 20, "{name}: processes pile up");
    let memory = resident_kib(gateway.pid().as_raw_nonzero().get());
    assert!(memory < 400 << 10, "{name}: the gateway has {memory} KiB");
    let (_, stderr, code) = gateway.stop();
    assert_eq!(code, Some(0), "{name}: {stderr}");
    let started = std::time::Instant::now();
    while processes_with(mark) > 0 {
        assert!(started.elapsed() < crate::harness::TEST_TIMEOUT, "{name}: processes are left");
    }
}

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}
