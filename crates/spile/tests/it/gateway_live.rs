//! What changes while a gateway runs: its rules and hooks, what the user approved, and servers that come back.

use serde_json::{Map, Value, json};

use crate::gateway::{call, customers, project_with, spile_serve, start, tool_names};
use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject};

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TEST_TIMEOUT, "{what}");
    }
}

fn write_settings(project: &TestProject, servers: &Value, permissions: &Value, hooks: &Value) {
    let audit = json!({"path": project.folder.join("audit.jsonl")});
    let settings =
        json!({ "mcpServers": servers, "permissions": permissions, "hooks": hooks, "audit": audit });
    project.write("servers.json", settings.to_string().as_bytes());
}

const SEARCH: &str = "mcp__people__search_customers";

fn lists(gateway: &HttpServer, path: &str, tool: &str) -> bool {
    tool_names(gateway, path).iter().any(|name| name == tool)
}

fn lookup(gateway: &HttpServer) -> String {
    let arguments = json!({"email": "dana@acme.test"});
    call(gateway, "/mcp", "mcp__people__lookup_customer", &arguments, &json!({})).to_string()
}

#[test]
fn rules_and_hooks_count_from_the_next_call_on() {
    let servers = json!({"people": customers()});
    let project = project_with(&servers, &json!({}));
    let mut gateway = start(&project, &[]);
    assert!(lists(&gateway, "/mcp", SEARCH) && lookup(&gateway).contains("emerald"));

    write_settings(&project, &servers, &json!({"deny": ["mcp__people__search_*"]}), &json!({}));
    wait_until("the denied tool is hidden", || !lists(&gateway, "/mcp", SEARCH));
    assert!(!lists(&gateway, "/mcp/people", "search_customers"), "each address has the same rules");

    let asking = json!({"mode": "read-only", "ask": ["mcp__people__lookup_*"]});
    write_settings(&project, &servers, &asking, &json!({}));
    wait_until("the rule asks", || lookup(&gateway).contains("input_required"));
    assert!(lists(&gateway, "/mcp", SEARCH), "what is no longer denied is back");

    let hook = json!({"type": "command", "command": "echo not today >&2; exit 2"});
    let hooks = json!({"PreToolUse": [{"matcher": "mcp__people__*", "hooks": [hook]}]});
    write_settings(&project, &servers, &json!({}), &hooks);
    wait_until("the hook refuses", || lookup(&gateway).contains("not today"));

    // While somebody edits the file, nothing changes.
    project.write("servers.json", br#"{"mcpServers": {}, "permissions": {"allow": ["#);
    gateway.wait_for("the rules, hooks and audit settings stay as they were");
    assert!(lookup(&gateway).contains("not today"));
    write_settings(&project, &servers, &json!({}), &json!({}));
    wait_until("the call runs again", || lookup(&gateway).contains("emerald"));
    let (_, stderr, code) = gateway.stop();
    assert_eq!(code, Some(0), "{stderr}");
}

/// Asks for the deletion of a row, and returns what a user who agrees would send.
fn asked(gateway: &HttpServer, tool: &str) -> (Value, Value) {
    let arguments = json!({"sku": "A-1"});
    let asked = call(gateway, "/mcp", tool, &arguments, &json!({}));
    let asked = &asked["result"];
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let requests = asked["inputRequests"].as_object().expect("a question");
    let mut responses = Map::new();
    for key in requests.keys() {
        responses.insert(key.clone(), json!({"action": "accept", "content": {"allow": true}}));
    }
    (arguments, json!({"requestState": asked["requestState"], "inputResponses": responses}))
}

#[test]
fn a_call_whose_user_is_asked_is_refused_if_it_is_denied_meanwhile() {
    let servers = json!({"far": spile_serve(".")});
    let project = project_with(&servers, &json!({}));
    let gateway = start(&project, &[]);
    let (arguments, answer) = asked(&gateway, "mcp__far__delete_stock");
    write_settings(&project, &servers, &json!({"deny": ["mcp__far__delete_stock(sku:A-*)"]}), &json!({}));
    wait_until("the rule denies", || {
        let next = call(&gateway, "/mcp", "mcp__far__delete_stock", &arguments, &json!({}));
        next.to_string().contains("denies it")
    });
    let answered = call(&gateway, "/mcp", "mcp__far__delete_stock", &arguments, &answer).to_string();
    assert!(answered.contains("denies it"), "{answered}");
}

#[test]
fn what_a_user_allows_at_one_gateway_is_not_allowed_at_another() {
    let project = project_with(&json!({"far": spile_serve(".")}), &json!({}));
    let first = start(&project, &[]);
    let other = json!({"mcpServers": {"far": spile_serve(".")}, "audit": {"path": project.folder.join("other.jsonl")}});
    project.write("other.json", other.to_string().as_bytes());
    let args = ["gateway", "--config", "other.json", "--bind", "127.0.0.1:0", "--wait", "20"];
    let second = HttpServer::start(&mut project.spile(&args));
    let (arguments, answer) = asked(&first, "mcp__far__delete_stock");
    let elsewhere = call(&second, "/mcp", "mcp__far__delete_stock", &arguments, &answer);
    assert!(elsewhere["error"]["code"].is_i64(), "{elsewhere}");
}

#[test]
fn a_server_of_the_settings_takes_no_name_of_one_that_the_gateway_serves_itself() {
    let project = project_with(&json!({}), &json!({}));
    let manifest = std::fs::read_to_string(project.folder.join("spile.toml")).expect("it has a manifest");
    let renamed = manifest.replacen("name = \"stock\"", "name = \"my-stock\"", 1);
    assert_ne!(renamed, manifest);
    project.write("spile.toml", renamed.as_bytes());
    let gateway = start(&project, &["."]);
    let own = tool_names(&gateway, "/mcp/my-stock");
    assert!(own.contains(&"list_stock".to_owned()), "{own:?}");
    for name in ["my-stock", "my_stock"] {
        // The other one is the sign that the file was read.
        let servers = json!({name: customers(), "people": customers()});
        write_settings(&project, &servers, &json!({}), &json!({}));
        wait_until("the other server joins", || lists(&gateway, "/mcp", "mcp__people__lookup_customer"));
        assert_eq!(tool_names(&gateway, "/mcp/my-stock"), own, "{name}");
        assert!(lists(&gateway, "/mcp", "mcp__my_stock__list_stock"), "{name}");
        assert!(!lists(&gateway, "/mcp", "mcp__my_stock__list_customers"), "{name}");
        write_settings(&project, &json!({}), &json!({}), &json!({}));
        wait_until("the other server leaves", || gateway.get("/mcp/people").0.contains(" 404 "));
        assert_eq!(tool_names(&gateway, "/mcp/my-stock"), own, "{name}");
    }
    let (_, stderr, code) = gateway.stop();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("rename one of them"), "{stderr}");
}

#[test]
fn a_server_that_was_given_up_is_tried_again_when_the_user_says_so() {
    let project = project_with(&json!({}), &json!({}));
    let script = "[ -e ready ] && exec \"$0\" serve . || exit 1";
    let entry = json!({"command": "/bin/sh", "args": ["-c", script, crate::harness::SPILE]});
    write_settings(&project, &json!({"late": entry}), &json!({}), &json!({}));
    let args = ["gateway", "--config", "servers.json", "--bind", "127.0.0.1:0", "--wait", "1"];
    let gateway = HttpServer::start(&mut project.spile(&args));
    let has_tools = || tool_names(&gateway, "/mcp").contains(&"mcp__late__list_stock".to_owned());
    assert!(!has_tools());
    project.write("ready", b"");
    let tried = project.run(&["mcp", "retry", "late", "--config", "servers.json"]);
    assert_eq!(tried.code, Some(0), "{tried}");
    wait_until("it is served", has_tools);
}

#[test]
fn definitions_that_the_user_approves_are_used_by_a_gateway_that_runs() {
    let project = project_with(&json!({"far": spile_serve(".")}), &json!({}));
    let first = start(&project, &[]);
    assert!(tool_names(&first, "/mcp").contains(&"mcp__far__list_stock".to_owned()));
    first.stop();
    let manifest = std::fs::read_to_string(project.folder.join("spile.toml")).expect("it is there");
    let changed = manifest.replacen("description = \"", "description = \"Now: ", 1);
    assert_ne!(manifest, changed);
    project.write("spile.toml", changed.as_bytes());
    let gateway = start(&project, &[]);
    let all = project.run(&["mcp", "tools", "--config", "servers.json"]);
    assert!(all.stderr.contains("suspended"), "{all}");
    let before = tool_names(&gateway, "/mcp").len();
    let approved =
        project.run(&["mcp", "approve", "far", "--definitions", "--yes", "--config", "servers.json"]);
    assert_eq!(approved.code, Some(0), "{approved}");
    wait_until("the tools are back", || tool_names(&gateway, "/mcp").len() > before);
}

#[test]
fn audit_settings_are_followed_and_no_line_is_lost() {
    let servers = json!({"people": customers()});
    let project = project_with(&servers, &json!({}));
    let write = |audit: &Value| {
        let settings = json!({"mcpServers": servers, "audit": audit});
        project.write("servers.json", settings.to_string().as_bytes());
    };
    let read = |name: &str| std::fs::read_to_string(project.folder.join(name)).unwrap_or_default();
    let path = |name: &str| json!(project.folder.join(name));
    let mut gateway = start(&project, &[]);
    lookup(&gateway);
    // The same file, with more in each line.
    write(&json!({"path": path("audit.jsonl"), "arguments": "all"}));
    wait_until("arguments are recorded", || {
        lookup(&gateway);
        read("audit.jsonl").contains("dana@acme.test")
    });
    assert!(!read("audit.jsonl").lines().next().unwrap_or_default().contains("dana@acme.test"));
    write(&json!({"path": path("other.jsonl"), "arguments": "names"}));
    wait_until("lines go to another file", || {
        lookup(&gateway);
        read("other.jsonl").contains("lookup_customer")
    });
    let lines = read("audit.jsonl").lines().count();
    // A log that cannot be opened changes nothing.
    write(&json!({"path": path("nowhere/audit.jsonl")}));
    gateway.wait_for("audit settings stay as they were");
    let before = read("other.jsonl").lines().count();
    lookup(&gateway);
    wait_until("the old log goes on", || read("other.jsonl").lines().count() > before);
    assert_eq!(read("audit.jsonl").lines().count(), lines, "the first file is closed");
    let (_, stderr, code) = gateway.stop();
    assert_eq!(code, Some(0), "{stderr}");
}
