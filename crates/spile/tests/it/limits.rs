//! Rate limits and timeouts of a manifest, on every transport.

use serde_json::{Value, json};

use crate::harness::{HttpServer, StdioServer, TestProject};

/// A count that runs as long as its argument allows.
const SLOW: &str = "with recursive n(i) as (select 1 union all select i + 1 from n where i < :most) select count(*) as n from n";

fn project(manifest: &str) -> TestProject {
    let place = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    let database = rusqlite::Connection::open(place.folder.join("shop.db")).expect("a database");
    database
        .execute_batch("CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT); INSERT INTO t VALUES ('a', 'b')")
        .expect("a table");
    place
}

/// A server on stdin and stdout, with the notifications it sent.
struct StdioSession {
    server: StdioServer,
    notifications: Vec<Value>,
    /// The last request id.
    calls: u64,
}

impl StdioSession {
    fn open(place: &TestProject) -> Self {
        Self { server: StdioServer::open(&mut place.spile(&["serve"])), notifications: Vec::new(), calls: 0 }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.calls += 1;
        let message = message(self.calls, tool, arguments);
        self.server.send(&message.to_string());
        loop {
            let output: Value = serde_json::from_str(&self.server.next()).expect("JSON");
            if output["id"] == self.calls {
                assert!(output["result"].is_object(), "{output}");
                return output["result"].clone();
            }
            self.notifications.push(output);
        }
    }
}

fn message(id: u64, tool: &str, arguments: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": "p",
    });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

fn over_http(served: &HttpServer, tool: &str, arguments: &Value) -> Value {
    let headers =
        format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n");
    let (_, body) = served.post("/mcp", &headers, &message(1, tool, arguments).to_string());
    let output: Value = serde_json::from_str(&body).expect("JSON");
    output["result"].clone()
}

/// The third call within a minute is refused with the time to wait.
fn check_rate(mut call: impl FnMut(&str) -> Value) {
    for _ in 0..2 {
        assert_eq!(call("get_t")["isError"], false);
    }
    let refused = call("get_t");
    assert_eq!(refused["isError"], true, "{refused}");
    let why = &refused["structuredContent"];
    assert_eq!((&why["code"], &why["retryable"]), (&json!("rate_limited"), &json!(true)), "{why}");
    let after = why["retry_after_ms"].as_u64().expect("when to try again");
    assert!((1..=60_000).contains(&after), "{why}");
    // Another tool has its own limit.
    assert_eq!(call("list_t")["isError"], false);
}

#[test]
fn a_rate_limit_refusal_says_when_to_retry_on_every_transport() {
    let manifest = "[sources.s]\npath = \"shop.db\"\n[collections.t]\n[tools.get_t]\nuses = \"t.get\"\nrate_limit = \"2/min\"\n";
    let place = project(manifest);
    let arguments = |tool: &str| if tool == "get_t" { json!({ "k": "a" }) } else { json!({}) };
    let mut pipe = StdioSession::open(&place);
    check_rate(|tool| pipe.call(tool, &arguments(tool)));
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    check_rate(|tool| over_http(&served, tool, &arguments(tool)));
}

#[test]
fn a_server_wide_rate_limit_counts_all_tools() {
    let manifest = "[server]\nrate_limit = \"2/h\"\n[sources.s]\npath = \"shop.db\"\n[collections.t]\n";
    let place = project(manifest);
    let mut pipe = StdioSession::open(&place);
    assert_eq!(pipe.call("get_t", &json!({ "k": "a" }))["isError"], false);
    assert_eq!(pipe.call("list_t", &json!({}))["isError"], false);
    let refused = pipe.call("list_t", &json!({}));
    assert_eq!(refused["structuredContent"]["code"], "rate_limited", "{refused}");
}

#[test]
fn a_tool_that_takes_too_long_is_stopped() {
    let manifest = format!(
        "[sources.s]\npath = \"shop.db\"\n[tools.slow]\nsource = \"s\"\nsql = \"{SLOW}\"\ncall_timeout_ms = 1000\nreturns = \"one\"\narguments.most = {{ type = \"integer\" }}\n"
    );
    let place = project(&manifest);
    let mut pipe = StdioSession::open(&place);
    assert_eq!(pipe.call("slow", &json!({ "most": 10 }))["structuredContent"]["n"], 10);
    let stopped = pipe.call("slow", &json!({ "most": 1_000_000_000 }));
    assert_eq!(stopped["structuredContent"]["code"], "timeout", "{stopped}");
    // The next call works.
    assert_eq!(pipe.call("slow", &json!({ "most": 5 }))["structuredContent"]["n"], 5);
}

#[test]
fn a_long_running_tool_reports_progress_to_a_caller_with_a_token() {
    let manifest = format!(
        "[sources.s]\npath = \"shop.db\"\n[tools.slow]\nsource = \"s\"\nsql = \"{SLOW}\"\nlong_running = true\nreturns = \"one\"\narguments.most = {{ type = \"integer\" }}\n"
    );
    let place = project(&manifest);
    let mut pipe = StdioSession::open(&place);
    assert_eq!(pipe.call("slow", &json!({ "most": 200_000 }))["structuredContent"]["n"], 200_000);
    let progress: Vec<&Value> =
        pipe.notifications.iter().filter(|output| output["method"] == "notifications/progress").collect();
    assert!(!progress.is_empty(), "{:?}", pipe.notifications);
    assert!(progress.iter().all(|output| output["params"]["progressToken"] == "p"));
    let steps: Vec<f64> =
        progress.iter().filter_map(|output| output["params"]["progress"].as_f64()).collect();
    assert!(steps.is_sorted(), "{steps:?}");
}
