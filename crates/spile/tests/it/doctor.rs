//! `spile doctor`: each way in which a server can be broken is named, with what to do.

use std::net::TcpListener;

use crate::harness::{HttpServer, SPILE, TestProject};
use crate::mcp::User;

/// The verdicts of all steps, and the whole output.
fn steps(output: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("  ")?.split_whitespace();
        let (verdict, step) = (words.next()?, words.next()?);
        ["ok", "warning", "failed"].contains(&verdict).then(|| (verdict.to_owned(), step.to_owned()))
    };
    output.lines().filter_map(line).collect()
}

/// A server of the user's own file: the last step, its verdict, and a part of what is said about it.
#[track_caller]
fn check(entry: &str, verdict: &str, step: &str, expected: &str) {
    let user =
        User::new(&[("home/.config/spile/servers.json", &format!(r#"{{"mcpServers": {{"s": {entry}}}}}"#))]);
    let output = user.run(&["doctor", "s"]);
    let found = steps(&output.stdout);
    assert_eq!(found.last(), Some(&(verdict.to_owned(), step.to_owned())), "{output}");
    assert!(output.stdout.contains(expected), "{output}");
    let is_well = found.iter().all(|(verdict, _)| verdict != "failed");
    assert_eq!(output.code, Some(i32::from(!is_well)), "{output}");
}

#[test]
fn each_way_to_be_broken_is_named_with_the_way_out() {
    check(r#"{"command": "SPILE", "args": ["serve", "customers.csv"]}"#, "ok", "lists", "tools");
    check(r#"{"command": "no-such-program"}"#, "failed", "program", "was not found in PATH");
    check(
        r#"{"command": "SPILE", "args": ["${NO_SUCH_VARIABLE}"]}"#,
        "failed",
        "variables",
        "`NO_SUCH_VARIABLE` is not set",
    );
    check(r#"{"comand": "x"}"#, "failed", "configuration", "did you misspell it as `comand`?");
    check(r#"{"command": "SPILE", "cwd": "/no/such/folder"}"#, "failed", "program", "→ correct `cwd`");
    check(r#"{"command": "SPILE", "disabled": true}"#, "failed", "approval", "→ enable it in that file");
    check(r#"{"command": "sh", "args": ["-c", "echo lost >&2; exit 4"]}"#, "failed", "process", "lost");
    check(
        r#"{"command": "sh", "args": ["-c", "echo starting; exec SPILE serve customers.csv"]}"#,
        "ok",
        "lists",
        "→ send logs to stderr",
    );
}

#[test]
fn each_layer_of_the_network_is_tried() {
    check(r#"{"url": "http://nothing.invalid/mcp"}"#, "failed", "DNS", "→ check the spelling of the host");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it is bound");
    check(&format!(r#"{{"url": "http://{free}/mcp"}}"#), "failed", "TCP", "→ is the server running");
    let place = TestProject::customers();
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    let address = served.address;
    check(&format!(r#"{{"url": "http://{address}/mcp"}}"#), "ok", "lists", "tools");
    check(
        &format!(r#"{{"url": "https://{address}/mcp"}}"#),
        "failed",
        "TLS",
        "write `http:` in place of `https:`",
    );
    check(
        &format!(r#"{{"url": "http://{address}/other"}}"#),
        "failed",
        "handshake",
        "→ the MCP server may be at another path",
    );
    // An address needs no entry.
    let user = User::new(&[]);
    let output = user.run(&["doctor", &format!("http://{address}/mcp")]);
    assert_eq!(output.code, Some(0), "{output}");
}

#[test]
fn the_problems_of_other_servers_do_not_matter_to_one() {
    let entries =
        r#"{"mcpServers": {"s": {"command": "SPILE", "args": ["serve", "customers.csv"]}, "other": {}}}"#;
    let user = User::new(&[("home/.config/spile/servers.json", entries)]);
    let output = user.run(&["doctor", "s"]);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(!output.stdout.contains("`other`"), "{output}");
    assert_eq!(user.run(&["doctor"]).code, Some(1));
}

/// A server that wants a token and does not say where one is to be had: a sign-in would only fail.
#[test]
fn a_server_without_metadata_wants_a_key() {
    let place = TestProject::customers();
    place.write("token", b"4f1c0e6f0a3f4cf1a7d8e2b95a6c7d10");
    let args = ["serve", "--bind", "127.0.0.1:0", "--token-file", "token"];
    let served = HttpServer::start(&mut place.spile(&args));
    let entry = format!(r#"{{"url": "http://{}/mcp"}}"#, served.address);
    check(&entry, "failed", "token", "write it to `headers`");
}

#[test]
fn a_path_is_examined_as_a_client_would_start_it() {
    let user = User::new(&[]);
    let output = user.run(&["doctor", "customers.csv", "--json"]);
    assert_eq!(output.code, Some(0), "{output}");
    let json: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(json["well"], true);
    let names: Vec<&str> = json["servers"][0]["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .filter_map(|step| step["step"].as_str())
        .collect();
    assert!(
        names.starts_with(&["path", "program", "process", "stdout"])
            && names.ends_with(&["handshake", "lists"]),
        "{names:?}"
    );
    user.write("broken.csv", "");
    let output = user.run(&["doctor", "broken.csv"]);
    assert_eq!(output.code, Some(1), "{output}");
    user.check("doctor_unknown", &["doctor", "no-such-thing"], 1);
}

#[test]
fn all_configured_servers_are_examined_and_a_project_waits_for_approval() {
    let user = User::new(&[
        (".mcp.json", r#"{"mcpServers": {"theirs": {"command": "SPILE", "args": ["serve", "."]}}}"#),
        (
            "home/.config/spile/servers.json",
            r#"{"mcpServers": {"mine": {"command": "SPILE", "args": ["serve", "."]}}}"#,
        ),
        ("home/.claude.json", r#"{"mcpServers": {"mine": {"command": "shadowed"}}}"#),
    ]);
    let output = user.run(&["doctor"]);
    assert_eq!(output.code, Some(1), "{output}");
    assert!(
        output.stdout.contains("user scope, /home/.config/spile/servers.json; overrides /home/.claude.json"),
        "{output}"
    );
    assert!(
        output.stdout.contains("`theirs`") && output.stdout.contains("spile mcp approve theirs"),
        "{output}"
    );
    assert!(!output.stdout.contains(&format!("{SPILE} serve")), "nothing of the project was started");
    user.check("doctor_nothing", &["doctor", "--config", "missing.json"], 1);
}
