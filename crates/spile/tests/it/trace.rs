//! A whole session, byte for byte: from the start of the process to its end, in both framings.
//!
//! What is new each time has a name instead: times, the process, `<ref>`. With `GOLDEN=write` in the environment
//! the traces are written down, to be read in the diff.

use std::path::{Path, PathBuf};

use crate::golden::redact;
use crate::harness::{CommandOutput, HttpServer, SPILE, TestProject};

const STEPS: [&str; 3] = ["tools", "call lookup_customer email=dana@acme.test", "call lookup_customer"];

fn trace_customers(place: &TestProject, framing: &str, more: &[&str]) -> CommandOutput {
    let said = run_trace(place, framing, "2025-11-25", more, &STEPS);
    // The last step is a tool that fails.
    assert_eq!(said.code, Some(1), "{said}");
    said
}

fn run_trace(
    place: &TestProject,
    framing: &str,
    version: &str,
    more: &[&str],
    steps: &[&str],
) -> CommandOutput {
    let command = format!("{SPILE} serve");
    let args = ["trace", "--command", &command, "--framing", framing, "--protocol", version];
    place.run(&[&args[..], more, steps].concat())
}

#[test]
fn a_session_is_what_it_was() {
    let place = TestProject::customers();
    for framing in ["lines", "headers"] {
        let seen = normalize_trace(&trace_customers(&place, framing, &[]).stdout);
        let bytes = by_direction(&trace_customers(&place, framing, &["--raw"]).stdout);
        check_golden(&format!("trace-{framing}.txt"), &format!("{seen}\n{bytes}"));
    }
}

/// The lesson that the tutor was asked for, in the framing and version of that lesson, and in today's.
#[test]
fn the_verb_tutor_says_ate_and_comio() {
    let place = TestProject::example("verbs");
    let steps = [
        "tools",
        "call conjugate verb=eat tense=past_simple person=3sg",
        "call lookup_spanish english_form=ate",
    ];
    for (framing, version) in [("headers", "2024-11-05"), ("lines", "2025-11-25")] {
        let seen = run_trace(&place, framing, version, &[], &steps);
        let raw = run_trace(&place, framing, version, &["--raw"], &steps);
        assert_eq!((seen.code, raw.code), (Some(0), Some(0)), "{seen}");
        let (seen, bytes) = (normalize_trace(&seen.stdout), by_direction(&raw.stdout));
        check_golden(&format!("verbs-{framing}.txt"), &format!("{seen}\n{bytes}"));
    }
}

fn check_golden(name: &str, now: &str) {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden").join(name);
    if std::env::var("GOLDEN").is_ok_and(|what| what == "write") {
        std::fs::write(&file, now).expect("a trace can be written");
    }
    let before = std::fs::read_to_string(&file).expect("a trace is readable");
    assert!(before == now, "{name} is now:\n{now}");
}

/// Without what is new each time. What a server says on stderr comes when it comes.
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

/// All that went one way, then all that went the other. Where it was cut into chunks is chance.
fn by_direction(raw: &str) -> String {
    let (mut out, mut back) = (String::new(), String::new());
    let mut rest = raw;
    while !rest.is_empty() {
        let (head, after) = rest.split_once('\n').expect("a line");
        let (way, length) = head.split_once(' ').expect("an arrow");
        let length: usize = length.strip_suffix(" bytes").expect("a length").parse().expect("a number");
        let (bytes, after) = after.split_at(length);
        if way == "→" { &mut out } else { &mut back }.push_str(bytes);
        // One that does not end a line is followed by a line break of ours.
        rest = if bytes.ends_with('\n') { after } else { &after[1..] };
    }
    redact(&mut back, "ref", "<ref>");
    format!("→\n{}\n←\n{}\n", out.replace('\r', "\\r"), back.replace('\r', "\\r"))
}

#[test]
fn a_recording_shows_the_same_again() {
    let place = TestProject::customers();
    let live = trace_customers(&place, "headers", &["--record", "session.jsonl"]);
    let again = place.run(&["trace", "--replay", "session.jsonl"]);
    assert_eq!((again.code, &*again.stderr), (Some(0), ""), "{again}");
    assert_eq!(again.stdout, live.stdout);
    let raw = place.run(&["trace", "--replay", "session.jsonl", "--raw"]);
    assert!(raw.stdout.contains("Content-Length: 188\r\n\r\n{\"jsonrpc\""), "{raw}");
    assert!(raw.stderr.contains("* exited with code 0"), "{raw}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let found = std::fs::metadata(place.folder.join("session.jsonl")).expect("it is there");
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "it is nobody else's to read");
    }
}

#[test]
fn over_http_the_heads_are_seen_and_secrets_are_not() {
    let place = TestProject::customers();
    place.write("token", b"s3cret");
    let served =
        HttpServer::start(place.spile(&["serve", "--bind", "127.0.0.1:0"]).env("SPILE_TOKEN", "s3cret"));
    let url = format!("http://{}/mcp", served.address);
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
        let said = place.run(
            &[&args[..], &["--protocol", version, "call lookup_customer email=dana@acme.test"]].concat(),
        );
        assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{said}");
        let record = std::fs::read_to_string(place.folder.join("r.jsonl")).expect("it was written");
        for text in [&said.stdout, &record] {
            assert!(!text.contains("s3cret") && !text.contains("k3y"), "{text}");
            assert!(text.contains("authorization: ***") && text.contains("x-key: ***"), "{text}");
        }
        assert!(said.stdout.contains("→ POST http://"), "{said}");
        for sent in [
            &format!("host: {}", served.address),
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            concat!("user-agent: spile/", env!("CARGO_PKG_VERSION")),
            "content-length: ",
        ] {
            assert!(said.stdout.contains(&format!("  {sent}")), "{sent}: {said}");
        }
        assert!(said.stdout.contains("← HTTP/1.1 200 OK"), "{said}");
        assert!(said.stdout.contains("→ tools/call #"), "{said}");
    }
}

#[test]
fn steps_and_recordings_that_make_no_sense() {
    let place = TestProject::customers();
    let head = r#"{"format":"spile-trace","version":1,"server":"x"}"#;
    let line = r#"{"us":5,"kind":"opened","text":"started x"}"#;
    place.write("empty.jsonl", b"");
    place.write("other.jsonl", b"{\"a\":1}\n");
    place.write("newer.jsonl", b"{\"format\":\"spile-trace\",\"version\":2}\n");
    place.write("cut.jsonl", format!("{head}\n{line}\n{}", &line[..20]).as_bytes());
    place.write(
        "kind.jsonl",
        format!("{head}\n{line}\n{}\n{line}\n", line.replace("opened", "smoke")).as_bytes(),
    );
    place.write("bytes.jsonl", format!("{head}\n\u{0}\n").as_bytes());
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
        let said = place.run(args);
        assert_eq!(said.code, Some(2), "{name}: {said}");
        insta::assert_snapshot!(name, said);
    }
}

#[test]
fn steps_go_on_where_one_fails_and_end_where_the_server_does() {
    let place = crate::harness::scripted_server();
    let trace = |steps: &[&str]| place.run(&[&["trace", "--command", "/bin/sh server.sh"], steps].concat());
    let said = trace(&["call nothing", "call error", "ping"]);
    assert_eq!(said.code, Some(0), "{said}");
    assert!(said.stderr.contains("there is no tool `nothing`") && said.stderr.contains("it broke"), "{said}");
    let said = trace(&["call dies", "ping"]);
    assert_eq!(said.code, Some(3), "{said}");
    assert!(said.stdout.contains("! out of tea") && said.stdout.contains("* exited with code 7"), "{said}");
    assert!(said.stderr.contains("out of tea"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_recording_over_a_file_is_nobody_elses_and_over_a_link_is_none() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestProject::customers();
    let mode = |name: &str| {
        std::fs::metadata(place.folder.join(name)).expect("it is there").permissions().mode() & 0o777
    };
    place.write("old.jsonl", &b"x".repeat(100_000));
    let wide = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(place.folder.join("old.jsonl"), wide.clone()).expect("it is ours");
    let said = place.run(&["trace", "--record", "old.jsonl", "ping"]);
    assert_eq!((said.code, mode("old.jsonl")), (Some(0), 0o600), "{said}");
    assert_eq!(place.run(&["trace", "--replay", "old.jsonl"]).code, Some(0), "nothing of it is left");

    place.write("mine.txt", b"mine");
    std::fs::set_permissions(place.folder.join("mine.txt"), wide).expect("it is ours");
    std::os::unix::fs::symlink("mine.txt", place.folder.join("link.jsonl")).expect("a link can be made");
    let said = place.run(&["trace", "--record", "link.jsonl", "ping"]);
    assert_eq!((said.code, mode("mine.txt")), (Some(2), 0o644), "{said}");
    assert!(said.stderr.contains("`link.jsonl` is a link to another file"), "{said}");
    assert_eq!(std::fs::read(place.folder.join("mine.txt")).expect("it is there"), b"mine");
}
