//! What code tells clients beside its results: changes, streams that end, user interfaces; and the page at `/`.

use serde_json::{Value, json};

use crate::harness::{HttpServer, StdioServer, TestProject};
use crate::reloading::EventStream;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

const SAY: &[u8] = br#"
export default ({ event, uri }: { event: string; uri?: string }, ctx: any) => {
    ctx.emit(event, uri);
    return `said ${event}`;
};
"#;

/// Reads up to the response, and on until `count` notifications have come.
fn response_and_notifications(pipe: &mut StdioServer, count: usize) -> (Value, Vec<Value>) {
    let (mut response, mut notifications) = (None, Vec::new());
    while response.is_none() || notifications.len() < count {
        let message: Value = serde_json::from_str(&pipe.next()).expect("JSON");
        match message.get("method") {
            Some(_) => notifications.push(message),
            None => response = Some(message),
        }
    }
    (response.expect("a response"), notifications)
}

#[test]
fn code_says_what_has_changed_and_subscribers_of_both_eras_hear_it() {
    let project = TestProject::new(&[
        ("tools/say.ts", SAY),
        ("prompts/hello.md", b"Hello!\n"),
        ("resources/notes.txt", b"Closed on Mondays.\n"),
        ("resources/other.txt", b"Nobody subscribes to this.\n"),
    ]);
    let mut pipe = StdioServer::open(&mut project.spile(&["serve", "."]));
    pipe.send(INITIALIZE);
    response_and_notifications(&mut pipe, 0);
    pipe.send(INITIALIZED);
    pipe.send(
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"resource://notes"}}"#,
    );
    response_and_notifications(&mut pipe, 0);
    let wanted = r#""toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["resource://notes"]"#;
    pipe.send(&format!(
        r#"{{"jsonrpc":"2.0","id":"ear","method":"subscriptions/listen","params":{{"notifications":{{{wanted}}},{META}}}}}"#
    ));
    assert!(pipe.next().contains("acknowledged"));

    for (arguments, method) in [
        (json!({"event": "tools-changed"}), "notifications/tools/list_changed"),
        (json!({"event": "prompts-changed"}), "notifications/prompts/list_changed"),
        (json!({"event": "resources-changed"}), "notifications/resources/list_changed"),
        (json!({"event": "resource-updated", "uri": "resource://notes"}), "notifications/resources/updated"),
    ] {
        let params = json!({"name": "say", "arguments": arguments});
        pipe.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).to_string());
        let (response, heard) = response_and_notifications(&mut pipe, 2);
        let event = arguments["event"].as_str().expect("a text");
        assert_eq!(response["result"]["content"][0]["text"], format!("said {event}"), "{response}");
        assert!(heard.iter().all(|one| one["method"] == method), "{heard:?}");
        let uris: Vec<&Value> = heard.iter().map(|one| &one["params"]["uri"]).collect();
        assert!(uris.iter().all(|uri| **uri == arguments["uri"]), "{heard:?}");
        // One for the handshake era, and one for the subscription, with its id.
        let of_subscription = heard.iter().filter(|one| one.to_string().contains("subscriptionId")).count();
        assert_eq!(of_subscription, 1, "{heard:?}");
    }
    // Nobody subscribed to the other resource: the next message is the response to what is asked then.
    let params =
        json!({"name": "say", "arguments": {"event": "resource-updated", "uri": "resource://other"}});
    pipe.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}).to_string());
    let (_, heard) = response_and_notifications(&mut pipe, 0);
    pipe.send(r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#);
    let (response, more) = response_and_notifications(&mut pipe, 0);
    assert_eq!((response["id"].as_u64(), heard.len() + more.len()), (Some(4), 0), "{heard:?} {more:?}");
}

const LEAVE: &[u8] = br#"
export default async (_: {}, ctx: any) => {
    ctx.log.info("before");
    ctx.closeStream(300);
    await ctx.sleep(50);
    return "the answer";
};
"#;

fn serve(project: &TestProject, more: &[&str]) -> HttpServer {
    let args = [&["serve", ".", "--bind", "127.0.0.1:0"], more].concat();
    HttpServer::start(&mut project.spile(&args))
}

#[test]
fn a_stream_that_code_closes_is_taken_up_where_it_ended() {
    let project = TestProject::new(&[("tools/leave.ts", LEAVE)]);
    let server = serve(&project, &[]);
    let (head, _) = server.post("/mcp", "", INITIALIZE);
    let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session");
    let session = format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    server.post("/mcp", &session, INITIALIZED);
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"leave","arguments":{}}}"#;
    // The server ends the response before the call has ended.
    let (head, body) = server.post("/mcp", &session, call);
    assert!(head.contains("text/event-stream"), "{head}");
    assert!(body.contains("retry: 300") && !body.contains("the answer"), "{body}");
    let last = body.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().expect("an id");
    let head = format!("GET /mcp HTTP/1.1\r\nLast-Event-ID: {last}\r\n{session}");
    let response: Value = serde_json::from_str(&EventStream::open(&server, &head, "").next()).expect("JSON");
    assert_eq!(
        (&response["id"], &response["result"]["content"][0]["text"]),
        (&json!(7), &json!("the answer")),
        "{response}"
    );

    // In the stateless era the response is the call: there is nothing to come back to.
    let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: leave\r\n";
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{{"name":"leave","arguments":{{}},{META}}}}}"#
    );
    let (_, body) = server.post("/mcp", headers, &call);
    assert!(body.contains("the answer") && !body.contains("retry:"), "{body}");
}

const CHART: &[u8] = br#"
/** Draws sales by month. */
export const metadata = { _meta: { ui: { resourceUri: "ui://charts/sales" } } };
export default () => ({ months: [3, 5] });
"#;

#[test]
fn a_tool_names_its_user_interface_and_clients_can_read_it() {
    let html = "<!doctype html>\n<title>Sales</title>\n";
    let page = format!("<!-- app\ntitle: Sales\nprefers_border: true\n-->\n{html}");
    let project = TestProject::new(&[("tools/chart.ts", CHART), ("apps/charts/sales.html", page.as_bytes())]);
    let mut pipe = StdioServer::open(&mut project.spile(&["serve", "."]));
    let mut result = |era: &str, method: &str, params: &str| {
        let params = match (era, params) {
            ("handshake", params) => params.to_owned(),
            (_, "") => META.to_owned(),
            (_, params) => format!("{params},{META}"),
        };
        pipe.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#));
        response_and_notifications(&mut pipe, 0).0["result"].clone()
    };
    for era in ["stateless", "handshake"] {
        if era == "handshake" {
            let params =
                r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}"#;
            result(era, "initialize", params);
        }
        let listed = result(era, "tools/list", "");
        let tool = &listed["tools"][0];
        assert_eq!(tool["name"], "chart", "{listed}");
        let uri = tool["_meta"]["ui"]["resourceUri"].as_str().unwrap_or_else(|| panic!("{era}: {listed}"));
        let read = result(era, "resources/read", &format!(r#""uri":"{uri}""#));
        let contents = &read["contents"][0];
        assert_eq!(contents["uri"], uri, "{era}: {read}");
        assert_eq!(contents["mimeType"], "text/html;profile=mcp-app", "{era}: {read}");
        assert_eq!(contents["text"], html, "{era}: {read}");
        assert_eq!(contents["_meta"]["ui"]["prefersBorder"], true, "{era}: {read}");
        let called = result(era, "tools/call", r#""name":"chart","arguments":{}"#);
        assert_eq!(called["structuredContent"]["months"], json!([3, 5]), "{era}: {called}");
    }
}

#[test]
fn the_page_can_be_switched_off() {
    let project = TestProject::new(&[("tools/say.ts", SAY)]);
    for (options, has_page) in [(&[][..], true), (&["--no-page"], false)] {
        let server = serve(&project, options);
        let (head, body) = server.request("GET", "/", "Accept: text/html\r\n", "");
        let status = head.split(' ').nth(1).unwrap_or_default();
        assert_eq!(status, if has_page { "200" } else { "404" }, "{options:?}: {head}");
        assert_eq!(body.contains("<html") && body.contains("say"), has_page, "{options:?}: {body}");
        let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";
        let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
        let (_, list) = server.post("/mcp", headers, &list);
        assert!(list.contains(r#""name":"say""#), "{options:?}: {list}");
    }
}
