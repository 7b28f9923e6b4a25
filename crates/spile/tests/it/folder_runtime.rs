//! A folder written for another runtime, with an `mcp.json` and no manifest, works without a change.

use serde_json::{Value, json};

use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject};

const CONTEXT: &[u8] = br#"
import type { IncomingMessage } from "http";

export default function createContext(req: IncomingMessage) {
  return {
    requestId: req.headers["x-request-id"],
    userId: req.headers["x-user-id"],
    token: req.headers["authorization"],
  };
}
"#;

const PROFILE: &[u8] = br#"
export const schema = {
  input: { type: "object", properties: { userId: { type: "string" } }, required: ["userId"] },
  output: { type: "object", properties: { id: { type: "string" }, caller: { type: "string" } }, required: ["id"] },
};

export default async function userProfile(args, context) {
  return { id: args.userId, caller: context.userId, request: context.requestId, token: context.token };
}
"#;

fn folder() -> TestProject {
    TestProject::new(&[
        ("mcp.json", br#"{"name":"demo","version":"1.2.0","runtime":"node","toolsDir":"./src/tools"}"#),
        ("src/context.ts", CONTEXT),
        ("src/tools/user-profile.ts", PROFILE),
        ("src/tools/count.ts", b"export default async () => [1, 2];\n"),
        (
            "src/tools/nothing.ts",
            b"export const schema = { output: { type: 'object' } };\nexport default async () => undefined;\n",
        ),
        ("src/tools/slow.ts", b"export default async (args, context) => { await context.sleep(60000); };\n"),
        ("resources/getting-started.md", b"# Getting started\n"),
        ("prompts/summarize.md", b"---\ndescription: Summarize.\n---\nSummarize this.\n"),
    ])
}

fn start(project: &TestProject, env: &[(&str, &str)]) -> HttpServer {
    let mut command = project.spile(&["serve", ".", "--http"]);
    command.env("PORT", "0").envs(env.iter().copied());
    HttpServer::start(&mut command)
}

/// A request without a handshake, as the other runtime's clients send them.
fn post(server: &HttpServer, headers: &str, method: &str, params: Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (_, body) = server.post("/mcp/demo", headers, &message.to_string());
    let value: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
    value.get("result").unwrap_or(&value["error"]).clone()
}

fn call(server: &HttpServer, headers: &str, tool: &str, arguments: Value) -> Value {
    post(server, headers, "tools/call", json!({"name": tool, "arguments": arguments}))
}

#[test]
fn methods_have_both_spellings() {
    let project = folder();
    let server = start(&project, &[]);
    for method in ["tools/list", "tools.list"] {
        let tools = post(&server, "", method, json!({}));
        let names: Vec<&str> = tools["tools"]
            .as_array()
            .expect("tools")
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        assert_eq!(names, ["count", "nothing", "slow", "user-profile"], "{method}");
    }
    for method in ["resources/list", "resources.list"] {
        assert_eq!(post(&server, "", method, json!({}))["resources"][0]["uri"], "resource://getting-started");
    }
    for method in ["prompts/list", "prompts.list"] {
        assert_eq!(post(&server, "", method, json!({}))["prompts"][0]["name"], "summarize");
    }
    for notification in ["notifications/cancelled", "notifications/canceled"] {
        let message = json!({"jsonrpc": "2.0", "method": notification, "params": {"requestId": 1}});
        let (head, _) = server.post("/mcp/demo", "", &message.to_string());
        assert!(head.starts_with("HTTP/1.1 202"), "{notification}: {head}");
    }
}

#[test]
fn a_context_function_gets_the_headers_of_each_request_but_no_credentials() {
    let project = folder();
    let server = start(&project, &[]);
    let headers = "X-Request-Id: r1\r\nX-User-Id: ada\r\nAuthorization: Bearer secret\r\n";
    let result = call(&server, headers, "user-profile", json!({"userId": "123"}));
    assert_eq!(
        result["structuredContent"],
        json!({"id": "123", "caller": "ada", "request": "r1"}),
        "{result}"
    );
    assert!(result["content"][0]["text"].is_string(), "the content is always there: {result}");
    let result = call(&server, "X-User-Id: bea\r\n", "user-profile", json!({"userId": "4"}));
    assert_eq!(result["structuredContent"], json!({"id": "4", "caller": "bea"}), "{result}");
}

#[test]
fn results_resources_and_prompts_have_the_shapes_that_the_other_runtime_documents() {
    let project = folder();
    let server = start(&project, &[]);
    let count = call(&server, "", "count", json!({}));
    assert_eq!((&count["content"][0]["text"], &count["structuredContent"]), (&json!("[1,2]"), &Value::Null));
    let nothing = call(&server, "", "nothing", json!({}));
    assert_eq!(nothing["isError"], true, "nothing, with an output schema, is an error: {nothing}");
    for uri in ["resource://getting-started", "getting-started.md", "resources/getting-started.md"] {
        let read = post(&server, "", "resources/read", json!({"uri": uri}));
        assert_eq!(read["contents"][0]["text"], "# Getting started\n", "{uri}: {read}");
    }
    let prompt = post(&server, "", "prompts/get", json!({"name": "summarize"}));
    assert_eq!(prompt["messages"][0]["content"]["text"], "Summarize this.", "{prompt}");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let (head, body) = server.post("/mcp/demo?stream=1", "", &message.to_string());
    assert!(head.contains("text/event-stream") && body.contains("event: message"), "{head}\n{body}");
}

#[test]
fn a_tool_that_takes_too_long_is_a_tool_error() {
    let project = folder();
    let server = start(&project, &[("DZX_TOOL_TIMEOUT_MS", "50"), ("DZX_HOST", "127.0.0.1")]);
    let result = call(&server, "", "slow", json!({}));
    assert_eq!((&result["isError"], &result["structuredContent"]["code"]), (&json!(true), &json!("timeout")));
    // Our own name wins.
    let server = start(&project, &[("DZX_TOOL_TIMEOUT_MS", "1"), ("SPILE_CALL_TIMEOUT_MS", "20000")]);
    assert_eq!(call(&server, "", "count", json!({}))["content"][0]["text"], "[1,2]");
}

#[test]
fn the_server_has_the_version_of_the_file_and_listens_where_the_variable_says() {
    let project = folder();
    let server = start(&project, &[("DZX_HOST", "127.0.0.2")]);
    assert_eq!(server.address.ip().to_string(), "127.0.0.2");
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let initialized = post(&server, "", "initialize", params);
    let info = &initialized["serverInfo"];
    assert_eq!((&info["name"], &info["version"]), (&json!("demo"), &json!("1.2.0")), "{initialized}");
}

#[test]
fn a_context_function_gets_the_session_and_the_trace_of_each_request() {
    let context = b"export default ({ method, session, trace }) => ({ seen: { method, session: session ?? 'none', trace: trace ?? 'none' } });\n";
    let project = TestProject::new(&[
        ("mcp.json", br#"{"name":"demo"}"#),
        ("context.ts", context),
        ("tools/seen.ts", b"export default async (args, context) => context.seen;\n"),
    ]);
    let server = start(&project, &[]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let params =
        json!({"name": "seen", "arguments": {}, "_meta": {"traceparent": trace, "tracestate": "a=1"}});
    let seen = |headers: &str, params: &Value| {
        post(&server, headers, "tools/call", params.clone())["structuredContent"].clone()
    };
    let alone = seen("", &params);
    let expected = json!({"method": "tools/call", "session": "none", "trace": {"traceparent": trace, "tracestate": "a=1"}});
    assert_eq!(alone, expected);

    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let open = || {
        let (head, _) = server.post("/mcp/demo", "", &initialize.to_string());
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session");
        format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n")
    };
    let (first, second) = (open(), open());
    let plain = json!({"name": "seen", "arguments": {}});
    let [one, again, other] = [&first, &first, &second].map(|session| seen(session, &plain));
    assert!(one["session"].as_str().is_some_and(|session| session != "none"), "{one}");
    assert_eq!((&one, &one["trace"]), (&again, &json!("none")), "the same session");
    assert_ne!(one["session"], other["session"]);
}

#[test]
fn health_and_status_are_there() {
    let project = folder();
    let server = start(&project, &[]);
    for (path, expected) in [("/health", "200"), ("/status", "200"), ("/", "200")] {
        let (head, _) = server.get(path);
        assert!(head.starts_with(&format!("HTTP/1.1 {expected}")), "{path}: {head}");
    }
    let (_, status) = server.get("/status");
    assert!(
        status.contains("tools") && status.contains("resources") && status.contains("prompts"),
        "{status}"
    );
}

#[test]
fn a_context_function_that_is_added_while_the_folder_is_served_gets_headers_from_then_on() {
    let project = TestProject::new(&[
        ("mcp.json", br#"{"name":"demo"}"#),
        ("tools/who.ts", b"export default async (args, context) => ({ user: context.userId ?? 'none' });\n"),
    ]);
    let server = start(&project, &[]);
    let who = || call(&server, "X-User-Id: ada\r\n", "who", json!({}))["structuredContent"]["user"].clone();
    assert_eq!(who(), "none");
    project.write("context.ts", b"export default (req) => ({ userId: req.headers['x-user-id'] });\n");
    let started = std::time::Instant::now();
    while who() != "ada" {
        assert!(started.elapsed() < TEST_TIMEOUT, "the headers never arrive");
    }
}
