//! `spile trace`: whole sessions byte for byte, in both framings; recordings and their replay.
//!
//! Values that differ between runs are replaced: times, the process id, `<ref>`. With `GOLDEN=write` in the environment
//! the tests write the traces, to be reviewed in the diff.

use std::path::{Path, PathBuf};

use crate::golden::redact;
use crate::harness::{CommandOutput, HttpServer, SPILE, TestProject};

const STEPS: [&str; 3] = ["tools", "call lookup_customer email=dana@acme.test", "call lookup_customer"];

fn trace_customers(project: &TestProject, framing: &str, more: &[&str]) -> CommandOutput {
    let output = run_trace(project, framing, "2025-11-25", more, &STEPS);
    // The tool call of the last step fails.
    assert_eq!(output.code, Some(1), "{output}");
    output
}

fn run_trace(
    project: &TestProject,
    framing: &str,
    version: &str,
    more: &[&str],
    steps: &[&str],
) -> CommandOutput {
    let command = format!("{SPILE} serve");
    let args = ["trace", "--command", &command, "--framing", framing, "--protocol", version];
    project.run(&[&args[..], more, steps].concat())
}

#[test]
fn a_session_matches_its_golden_trace() {
    let project = TestProject::customers();
    for framing in ["lines", "headers"] {
        let text = normalize_trace(&trace_customers(&project, framing, &[]).stdout);
        let bytes = by_direction(&trace_customers(&project, framing, &["--raw"]).stdout);
        check_golden(&format!("trace-{framing}.txt"), &format!("{text}\n{bytes}"));
    }
}

/// In the framing and version of the original example, and in the current ones.
#[test]
fn the_verb_tutor_session_matches_its_golden_trace() {
    let project = TestProject::example("verbs");
    let steps = [
        "tools",
        "call conjugate verb=eat tense=past_simple person=3sg",
        "call lookup_spanish english_form=ate",
    ];
    for (framing, version) in [("headers", "2024-11-05"), ("lines", "2025-11-25")] {
        let text = run_trace(&project, framing, version, &[], &steps);
        let raw = run_trace(&project, framing, version, &["--raw"], &steps);
        assert_eq!((text.code, raw.code), (Some(0), Some(0)), "{text}");
        let (text, bytes) = (normalize_trace(&text.stdout), by_direction(&raw.stdout));
        check_golden(&format!("verbs-{framing}.txt"), &format!("{text}\n{bytes}"));
    }
}

fn check_golden(name: &str, now: &str) {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden").join(name);
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&file, now).expect("write a trace");
    }
    let before = std::fs::read_to_string(&file).expect("read a trace");
    assert!(before == now, "{name} is now:\n{now}");
}

/// Replaces values that differ between runs, and omits stderr lines, whose order varies.
fn normalize_trace(trace: &str) -> String {
    let mut out = String::new();
    for line in trace.lines().filter(|line| !line.contains(" ms  ! ")) {
        let mut line = match line.split_once(" ms  ") {
            Some((time, rest)) => {
                assert!(time.trim().parse::<f64>().is_ok(), "{line}");
                format!("<time> ms  {rest}")
            }
            None => line.to_owned(),
        };
        redact(&mut line, "ref", "<ref>");
        if let Some(at) = line.find(" (process ") {
            let end = line[at..].find(')').expect("an end") + at;
            line.replace_range(at + 10..end, "<pid>");
        }
        out.extend([&line, "\n"]);
    }
    out
}

/// All bytes sent, then all bytes received, because the size of the chunks varies.
fn by_direction(raw: &str) -> String {
    let (mut out, mut back) = (String::new(), String::new());
    let mut rest = raw;
    while !rest.is_empty() {
        let (head, after) = rest.split_once('\n').expect("a line");
        let (way, length) = head.split_once(' ').expect("an arrow");
        let length: usize = length.strip_suffix(" bytes").expect("a length").parse().expect("a number");
        let (bytes, after) = after.split_at(length);
        if way == "→" { &mut out } else { &mut back }.push_str(bytes);
        // `spile trace` adds a line break to a chunk that has none.
        rest = if bytes.ends_with('\n') { after } else { &after[1..] };
    }
    redact(&mut back, "ref", "<ref>");
    format!("→\n{}\n←\n{}\n", out.replace('\r', "\\r"), back.replace('\r', "\\r"))
}

#[test]
fn a_recording_replays_the_same_trace() {
    let project = TestProject::customers();
    let live = trace_customers(&project, "headers", &["--record", "session.jsonl"]);
    let again = project.run(&["trace", "--replay", "session.jsonl"]);
    assert_eq!((again.code, &*again.stderr), (Some(0), ""), "{again}");
    assert_eq!(again.stdout, live.stdout);
    let raw = project.run(&["trace", "--replay", "session.jsonl", "--raw"]);
    assert!(raw.stdout.contains("Content-Length: 188\r\n\r\n{\"jsonrpc\""), "{raw}");
    assert!(raw.stderr.contains("* exited with code 0"), "{raw}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let found = std::fs::metadata(project.folder.join("session.jsonl")).expect("the file exists");
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "only the owner can read it");
    }
}

#[test]
fn http_headers_are_traced_and_credentials_are_masked() {
    let project = TestProject::customers();
    project.write("token", b"s3cret");
    let server =
        HttpServer::start(project.spile(&["serve", "--bind", "127.0.0.1:0"]).env("SPILE_TOKEN", "s3cret"));
    let url = format!("http://{}/mcp", server.address);
    for version in ["2025-11-25", "2026-07-28"] {
        let args = [
            "trace",
            "--url",
            &url,
            "--token-file",
            "token",
            "--header",
            "X-Key: k3y",
            "--record",
            "r.jsonl",
        ];
        let output = project.run(
            &[&args[..], &["--protocol", version, "call lookup_customer email=dana@acme.test"]].concat(),
        );
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
        let record = std::fs::read_to_string(project.folder.join("r.jsonl")).expect("the file was written");
        for text in [&output.stdout, &record] {
            assert!(!text.contains("s3cret") && !text.contains("k3y"), "{text}");
            assert!(text.contains("authorization: ***") && text.contains("x-key: ***"), "{text}");
        }
        assert!(output.stdout.contains("→ POST http://"), "{output}");
        for sent in [
            &format!("host: {}", server.address),
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            concat!("user-agent: spile/", env!("CARGO_PKG_VERSION")),
            "content-length: ",
        ] {
            assert!(output.stdout.contains(&format!("  {sent}")), "{sent}: {output}");
        }
        assert!(output.stdout.contains("← HTTP/1.1 200 OK"), "{output}");
        assert!(output.stdout.contains("→ tools/call #"), "{output}");
    }
}

#[test]
fn invalid_steps_and_recordings_are_usage_errors() {
    let project = TestProject::customers();
    let head = r#"{"format":"spile-trace","version":1,"server":"x"}"#;
    let line = r#"{"us":5,"kind":"opened","text":"started x"}"#;
    project.write("empty.jsonl", b"");
    project.write("other.jsonl", b"{\"a\":1}\n");
    project.write("newer.jsonl", b"{\"format\":\"spile-trace\",\"version\":2}\n");
    project.write("cut.jsonl", format!("{head}\n{line}\n{}", &line[..20]).as_bytes());
    project.write(
        "kind.jsonl",
        format!("{head}\n{line}\n{}\n{line}\n", line.replace("opened", "smoke")).as_bytes(),
    );
    project.write("bytes.jsonl", format!("{head}\n\u{0}\n").as_bytes());
    for (name, args) in [
        ("unknown_step", &["trace", "calll x"][..]),
        ("step_with_open_quote", &["trace", "call 'x"]),
        ("empty_step", &["trace", ""]),
        ("step_with_target", &["trace", "tools --url http://127.0.0.1/"]),
        ("record_nowhere", &["trace", "--record", "gone/r.jsonl"]),
        ("replay_missing", &["trace", "--replay", "gone.jsonl"]),
        ("replay_and_steps", &["trace", "--replay", "cut.jsonl", "tools"]),
        ("replay_and_record", &["trace", "--replay", "cut.jsonl", "--record", "x"]),
        ("replay_empty", &["trace", "--replay", "empty.jsonl"]),
        ("replay_other", &["trace", "--replay", "other.jsonl"]),
        ("replay_csv", &["trace", "--replay", "customers.csv"]),
        ("replay_newer", &["trace", "--replay", "newer.jsonl"]),
        ("replay_cut", &["trace", "--replay", "cut.jsonl"]),
        ("replay_unknown_kind", &["trace", "--replay", "kind.jsonl"]),
        ("replay_bytes", &["trace", "--replay", "bytes.jsonl"]),
    ] {
        let output = project.run(args);
        assert_eq!(output.code, Some(2), "{name}: {output}");
        insta::assert_snapshot!(name, output);
    }
}

/// A trace shows how a server handles invalid input, so the client checks nothing before it sends.
#[test]
fn invalid_calls_are_sent_and_traced() {
    let project = TestProject::customers();
    for flags in [&["trace"][..], &["trace", "-v"]] {
        let steps = ["call list_customers limit=ten", "call no_such_tool a=1", "prompt no_such_prompt"];
        let output = project.run(&[flags, &steps].concat());
        assert_eq!(output.code, Some(1), "{output}");
        for sent in [
            r#""name":"list_customers","arguments":{"limit":"ten"}"#,
            r#""name":"no_such_tool","arguments":{"a":1}"#,
            r#""name":"no_such_prompt","arguments":{}"#,
        ] {
            assert!(output.stdout.contains(sent), "{sent}: {output}");
        }
    }
}

#[test]
fn steps_continue_after_an_error_and_stop_when_the_server_exits() {
    let project = crate::harness::scripted_server();
    let trace = |steps: &[&str]| project.run(&[&["trace", "--command", "/bin/sh server.sh"], steps].concat());
    let output = trace(&["call nothing", "call error", "ping"]);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stderr.contains("no such tool") && output.stderr.contains("it broke"), "{output}");
    let output = trace(&["call dies", "ping"]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(
        output.stdout.contains("! out of tea") && output.stdout.contains("* exited with code 7"),
        "{output}"
    );
    assert!(output.stderr.contains("out of tea"), "{output}");
}

#[cfg(unix)]
#[test]
fn a_recording_is_private_and_never_follows_a_link() {
    use std::os::unix::fs::PermissionsExt;
    let project = TestProject::customers();
    let mode = |name: &str| {
        std::fs::metadata(project.folder.join(name)).expect("the file exists").permissions().mode() & 0o777
    };
    project.write("old.jsonl", &b"x".repeat(100_000));
    let wide = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(project.folder.join("old.jsonl"), wide.clone()).expect("set permissions");
    let output = project.run(&["trace", "--record", "old.jsonl", "ping"]);
    assert_eq!((output.code, mode("old.jsonl")), (Some(0), 0o600), "{output}");
    assert_eq!(project.run(&["trace", "--replay", "old.jsonl"]).code, Some(0), "the old content is gone");

    project.write("mine.txt", b"mine");
    std::fs::set_permissions(project.folder.join("mine.txt"), wide).expect("set permissions");
    std::os::unix::fs::symlink("mine.txt", project.folder.join("link.jsonl")).expect("create a link");
    let output = project.run(&["trace", "--record", "link.jsonl", "ping"]);
    assert_eq!((output.code, mode("mine.txt")), (Some(2), 0o644), "{output}");
    assert!(output.stderr.contains("`link.jsonl` is a symbolic link"), "{output}");
    assert_eq!(std::fs::read(project.folder.join("mine.txt")).expect("the file exists"), b"mine");
}
