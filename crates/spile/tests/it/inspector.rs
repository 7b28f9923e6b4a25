//! MCP Inspector on its command line: how many people try a server for the first time.
//!
//! It comes from the development cache. Without it these tests fail, because a skipped test proves nothing.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::clients::{Server, cached, node};
use crate::harness::{SPILE, examples};

/// Inspector's exit code for a tool error.
const TOOL_FAILED: i32 = 5;

#[test]
fn inspector_works_over_stdio() {
    let example = examples().join("customers").to_string_lossy().into_owned();
    check(&[SPILE, "serve", &example]);
}

#[test]
fn inspector_works_over_http() {
    let example = examples().join("customers").to_string_lossy().into_owned();
    let server = Server::start(SPILE, &["serve", &example]);
    check(&[&server.url, "--transport", "http"]);
}

/// The same requests for every transport, in both eras.
fn check(target: &[&str]) {
    for era in ["legacy", "modern"] {
        // --strict fails on schemas that some clients do not support.
        let listed = request(target, era, &["--method", "tools/list", "--strict"], 0);
        let names: Vec<&Value> =
            listed["tools"].as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["lookup_customer", "list_customers", "search_customers", "aggregate_customers"]);
        for tool in listed["tools"].as_array().expect("tools") {
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        }

        let found = call(target, era, "lookup_customer", &["email=dana@acme.test"], 0);
        let dana = json!({ "email": "dana@acme.test", "plan": "emerald", "signup_date": "2026-02-11" });
        assert_eq!(found["structuredContent"], dana, "{era}");
        assert_eq!(
            found["content"][0]["text"], "Found customer dana@acme.test on the emerald plan.",
            "{era}"
        );

        let missing = call(target, era, "lookup_customer", &[], TOOL_FAILED);
        assert_eq!(missing["isError"], true, "{era}: {missing}");
        assert_eq!(missing["structuredContent"]["field"], "email", "{era}: {missing}");
        assert_eq!(missing["structuredContent"]["reason"], "missing_required", "{era}: {missing}");

        let nobody = call(target, era, "lookup_customer", &["email=nobody@acme.test"], TOOL_FAILED);
        assert_eq!(nobody["structuredContent"]["code"], "not_found", "{era}: {nobody}");

        let page = call(target, era, "list_customers", &["limit=5", "plan=free"], 0);
        let page = &page["structuredContent"];
        assert_eq!((&page["total"], &page["truncated"]), (&json!(5), &json!(false)), "{era}: {page}");
    }
}

#[track_caller]
fn call(target: &[&str], era: &str, tool: &str, arguments: &[&str], code: i32) -> Value {
    let mut args = vec!["--method", "tools/call", "--tool-name", tool];
    arguments.iter().for_each(|argument| args.extend(["--tool-arg", argument]));
    request(target, era, &args, code)
}

/// Runs Inspector and parses its stdout.
#[track_caller]
fn request(target: &[&str], era: &str, args: &[&str], code: i32) -> Value {
    let home = tempfile::tempdir().expect("create a folder");
    let out = Command::new(node())
        .arg(cached("inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"))
        .arg("--cli")
        .args(target)
        .args(["--quiet", "--protocol-era", era])
        .args(args)
        // Inspector stores servers and tokens in HOME; keep the tests away from the developer's own.
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .output()
        .expect("Inspector starts");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{era} {args:?}: {stderr}");
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{era} {args:?}: {error}: {stderr}"))
}
