//! Nine good servers behind a gateway, and bad ones beside them: the nine answer as if they were alone, and nothing is left behind.

use serde_json::{Map, Value, json};

use crate::faulty_server::{self, Fault, When, answering};
use crate::gateway::{call, customers, project_with, start, tool_names};

const GOOD: usize = 9;
/// Each bad server may send messages up to the limit of 16 MiB, several at a time.
const MEMORY_KIB_MAX: u64 = 600 << 10;

/// A server that breaks in one way, as a line for the shell.
fn bad(script: &str) -> Value {
    json!({"command": "/bin/sh", "args": ["-c", script]})
}

/// Processes with this text in their command line.
fn processes_with(mark: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("there is /proc").filter_map(Result::ok);
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(mark)).count()
}

#[test]
fn bad_programs_affect_no_other_server() {
    let rows: Vec<Row> = [
        ("exits at once", "exit 1".to_owned()),
        ("never answers", "cat > /dev/null".to_owned()),
        ("writes garbage", "while read -r line; do head -c 100000 /dev/urandom; echo; done".to_owned()),
        ("floods stderr", "yes flood >&2".to_owned()),
        ("one endless line", "yes | tr -d '\\n'".to_owned()),
        ("stops in the call", answering("kill -STOP $$")),
        ("exits in the call", answering("exit 3")),
        ("stops once", once("stop", "kill -STOP $$")),
        ("exits once", once("exit", "exit 3")),
        ("hangs once", once("hang", "continue")),
        ("answers with another id", answering(r#"printf '{"jsonrpc":"2.0","id":999999,"result":{}}\n'"#)),
        ("answers with a repeated key", answering(&result(r#"{"content":[],"a":1,"\\u0061":2}"#))),
        ("answers too deep", answering(&result(&format!("{{\"content\":[],\"a\":{}{}}}", "[".repeat(64), "]".repeat(64))))),
        ("answers in Latin-1", answering(&result(r#"{"content":[{"type":"text","text":"\377"}]}"#))),
        (
            "answers twice",
            answering(
                r#"for n in 1 2; do printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"x"}]}}\n' "$id"; done"#,
            ),
        ),
    ]
    .into_iter()
    // In the command line of the bad server, so that its processes are found.
    .map(|(name, script)| (name.replace(' ', "_"), bad(&format!("# {}\n{script}", mark()))))
    .collect();
    check(&rows);
}

#[test]
fn bad_servers_at_addresses_affect_no_other_server() {
    use Fault::*;
    use When::{AtStart, InCall};
    let rows: Vec<Row> = [
        ("http", AtStart, NeverAnswers),
        ("http", AtStart, EndlessBody),
        ("http", AtStart, RedirectsInCircles),
        ("http", InCall, NeverAnswers),
        ("http", InCall, ResetsMidBody),
        ("http", InCall, RedirectsInCircles),
        ("http", InCall, EndlessBody),
        ("http", InCall, EndlessEvent),
        ("http", InCall, WrongId),
        ("http", InCall, AnswersTwice),
        ("sse", AtStart, Garbage),
        ("sse", InCall, Closes),
        ("sse", InCall, EndlessEvent),
        ("sse", InCall, WrongId),
    ]
    .into_iter()
    .map(|(kind, when, fault)| {
        let url = faulty_server::start(fault, when, kind == "sse");
        (format!("{kind}_{when:?}_{fault:?}"), json!({"type": kind, "url": url}))
    })
    .collect();
    check(&rows);
}

/// Answers a call with this result, in which `printf` replaces escapes.
fn result(json: &str) -> String {
    format!(r#"printf '{{"jsonrpc":"2.0","id":%s,"result":{json}}}\n' "$id""#)
}

/// Breaks in the first call; every later one, of this process or another, is answered.
fn once(name: &str, fault: &str) -> String {
    let flag = std::env::temp_dir().join(format!("{}-{name}", mark()));
    // Of an earlier process with the same id.
    let _ = std::fs::remove_file(&flag);
    let flag = flag.display();
    let poked =
        r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"poked"}]}}\n' "$id""#;
    answering(&format!("if [ -e {flag} ]; then {poked}; else : > {flag}; {fault}; fi"))
}

/// A name and an entry.
type Row = (String, Value);

fn mark() -> String {
    format!("spile-fault-{}", std::process::id())
}

/// All bad servers at once are worse than each alone.
fn check(rows: &[Row]) {
    let mut servers: Map<String, Value> = (0..GOOD).map(|n| (format!("good{n}"), customers())).collect();
    for (name, entry) in rows {
        let mut entry = entry.clone();
        // Soon enough for a test; the default is two minutes.
        entry["timeout"] = json!(1500);
        entry["startupTimeout"] = json!(3000);
        servers.insert(name.clone(), entry);
    }
    let project = project_with(&Value::Object(servers), &json!({}));
    let gateway = start(&project, &[]);
    let arguments = json!({"email": "dana@acme.test"});
    let expected = {
        let first = call(&gateway, "/mcp/good0", "lookup_customer", &arguments, &json!({}));
        first["result"]["structuredContent"].clone()
    };
    assert_eq!(expected["email"], "dana@acme.test", "{expected}");
    let listed = tool_names(&gateway, "/mcp");
    let pokes = rows.iter().map(|(name, _)| (name.as_str(), format!("mcp__{name}__poke")));
    let pokes: Vec<(&str, String)> = pokes.filter(|(_, tool)| listed.contains(tool)).collect();
    std::thread::scope(|scope| {
        let poking: Vec<_> = pokes
            .iter()
            .map(|(name, tool)| {
                let gateway = &gateway;
                (name, scope.spawn(move || call(gateway, "/mcp", tool, &json!({}), &json!({}))))
            })
            .collect();
        let calling: Vec<_> = (0..GOOD)
            .map(|n| {
                let (gateway, expected, arguments) = (&gateway, &expected, &arguments);
                scope.spawn(move || {
                    for _ in 0..5 {
                        let tool = format!("mcp__good{n}__lookup_customer");
                        let found = call(gateway, "/mcp", &tool, arguments, &json!({}));
                        assert_eq!(found["result"]["structuredContent"], *expected, "{found}");
                    }
                })
            })
            .collect();
        for call in calling {
            call.join().unwrap_or_else(|_| panic!("a good server is affected"));
        }
        assert!(!poking.is_empty(), "{listed:?}");
        for (name, answer) in poking {
            check_poked(name, &answer.join().expect("no panic").to_string());
        }
    });
    // Once more: those that broke once are well, and the others break as before, in time.
    std::thread::scope(|scope| {
        for (name, tool) in &pokes {
            let gateway = &gateway;
            scope.spawn(move || {
                let poke = || call(gateway, "/mcp", tool, &json!({}), &json!({})).to_string();
                match name.contains("once") {
                    true => {
                        let text = poke();
                        assert!(text.contains("poked"), "{name}: {text}");
                    }
                    false => check_poked(name, &poke()),
                }
            });
        }
    });
    let mark = mark();
    assert!(processes_with(&mark) < 20 * rows.len(), "processes pile up");
    let memory = peak_kib(gateway.pid().as_raw_nonzero().get());
    assert!(memory < MEMORY_KIB_MAX, "the gateway had {memory} KiB");
    let (_, stderr, code) = gateway.stop();
    assert_eq!(code, Some(0), "{stderr}");
    let started = std::time::Instant::now();
    while processes_with(&mark) > 0 {
        assert!(started.elapsed() < crate::harness::TEST_TIMEOUT, "processes are left");
    }
}

/// A typed error that names the server, or the first of two answers.
#[track_caller]
fn check_poked(name: &str, text: &str) {
    let is_expected = match name.to_lowercase().contains("twice") {
        true => text.contains(r#""text""#) && !text.contains("isError\":true"),
        false => text.contains(r#""isError":true"#) && text.contains(name),
    };
    assert!(is_expected, "{name}: {text}");
}

/// The most memory that the process ever had.
fn peak_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}
