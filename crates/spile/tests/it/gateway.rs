//! `spile gateway`: configured servers and folders of its own behind one endpoint.

use serde_json::{Map, Value, json};

use crate::harness::{HttpServer, SPILE, StdioServer, TestProject, examples};

/// A folder with a settings file for `--config`, and a copy of the example `stock`.
fn project(servers: &Value) -> TestProject {
    project_with(servers, &json!({}))
}

pub fn project_with(servers: &Value, permissions: &Value) -> TestProject {
    let project = TestProject::example("stock");
    let audit = json!({"path": project.folder.join("audit.jsonl")});
    let settings = json!({ "mcpServers": servers, "permissions": permissions, "audit": audit });
    project.write("servers.json", settings.to_string().as_bytes());
    project
}

pub fn spile_serve(path: &str) -> Value {
    json!({"command": SPILE, "args": ["serve", path]})
}

pub fn customers() -> Value {
    spile_serve(&examples().join("customers").display().to_string())
}

pub fn start(project: &TestProject, more: &[&str]) -> HttpServer {
    let mut args = vec!["gateway", "--config", "servers.json", "--bind", "127.0.0.1:0", "--wait", "20"];
    args.extend(more);
    HttpServer::start(&mut project.spile(&args))
}

pub fn request(server: &HttpServer, path: &str, method: &str, name: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let headers = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n");
    let (_, body) = server.post(path, &headers, &message.to_string());
    response(&body)
}

/// The response in a body. A call that takes long, as on a busy machine, is answered with a stream.
pub fn response(body: &str) -> Value {
    let event =
        body.lines().filter_map(|line| line.strip_prefix("data: ")).find(|line| line.contains("\"id\""));
    serde_json::from_str(event.unwrap_or(body)).unwrap_or_else(|_| panic!("JSON: {body}"))
}

pub fn call(server: &HttpServer, path: &str, tool: &str, arguments: &Value, more: &Value) -> Value {
    let mut params = json!({"name": tool, "arguments": arguments});
    for (key, value) in more.as_object().expect("an object") {
        params[key] = value.clone();
    }
    request(server, path, "tools/call", tool, params)
}

pub fn tool_names(server: &HttpServer, path: &str) -> Vec<String> {
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let (_, body) = server.post(path, "", &list.to_string());
    let list: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
    let tools = list["result"]["tools"].as_array().expect("a list of tools");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn all_servers_are_at_one_endpoint_and_each_at_its_own() {
    let servers = json!({"people": customers(), "broken": {"command": "/bin/false"}});
    let project = project(&servers);
    let gateway = start(&project, &["."]);
    let all = tool_names(&gateway, "/mcp");
    for expected in ["mcp__people__list_customers", "mcp__stock__list_stock"] {
        assert!(all.iter().any(|name| name == expected), "{all:?}");
    }
    let own = all.iter().filter(|name| !name.starts_with("mcp__"));
    assert_eq!(own.collect::<Vec<_>>(), ["list_resources", "read_resource"], "{all:?}");
    assert!(tool_names(&gateway, "/mcp/people").contains(&"list_customers".to_owned()));
    assert!(tool_names(&gateway, "/mcp/stock").contains(&"list_stock".to_owned()));
    assert_eq!(tool_names(&gateway, "/mcp/broken"), Vec::<String>::new());
    assert!(gateway.get("/mcp/nobody").0.contains(" 404 "));

    let arguments = json!({"limit": 1});
    for (path, tool) in [("/mcp", "mcp__people__list_customers"), ("/mcp/people", "list_customers")] {
        let page = call(&gateway, path, tool, &arguments, &json!({}));
        assert_eq!(page["result"]["structuredContent"]["items"][0]["email"], "amir@globex.test", "{page}");
    }
    let page = call(&gateway, "/mcp", "mcp__stock__list_stock", &arguments, &json!({}));
    assert!(page["result"]["structuredContent"]["items"][0]["sku"].is_string(), "{page}");

    // A bad argument is refused here, by the name that the caller used.
    let refused = call(&gateway, "/mcp", "mcp__people__list_customers", &json!({"limit": "x"}), &json!({}));
    assert_eq!(refused["result"]["structuredContent"]["code"], "invalid_arguments", "{refused}");
    let unknown = call(&gateway, "/mcp", "mcp__people__nothing", &json!({}), &json!({}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");

    let (_, status) = gateway.get("/status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let names: Vec<&str> =
        status["servers"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["gateway", "stock", "broken", "people"]);
    let (_, stderr, code) = gateway.stop();
    assert!(stderr.contains("server `broken`"), "{stderr}");
    assert_eq!(code, Some(0), "{stderr}");
}

/// Deletes a row of `stock`, which asks the user, and returns the result and the answer that was sent.
fn delete_after_asking(gateway: &HttpServer, path: &str, prefix: &str) -> (Value, Value, Value) {
    let page = call(gateway, path, &format!("{prefix}list_stock"), &json!({"limit": 1}), &json!({}));
    let arguments = json!({"sku": page["result"]["structuredContent"]["items"][0]["sku"]});
    let tool = format!("{prefix}delete_stock");
    let asked = call(gateway, path, &tool, &arguments, &json!({}));
    let asked = &asked["result"];
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let requests = asked["inputRequests"].as_object().expect("a question");
    let key = requests.keys().next().expect("a question").clone();
    let form = &requests[&key]["params"]["requestedSchema"]["properties"];
    let content: Map<String, Value> =
        form.as_object().expect("a form").keys().map(|name| (name.clone(), json!(true))).collect();
    let mut responses = Map::new();
    responses.insert(key, json!({"action": "accept", "content": content}));
    let answer = json!({"requestState": asked["requestState"], "inputResponses": responses});
    let deleted = call(gateway, path, &tool, &arguments, &answer);
    assert_eq!(deleted["result"]["structuredContent"]["outcome"], "deleted", "{deleted}");
    (arguments, answer, deleted)
}

#[test]
fn a_question_reaches_the_caller_whoever_asks_it() {
    // Otherwise the gateway asks as well.
    let allowed = json!({"allow": ["mcp__stock__delete_stock", "mcp__far__delete_stock"]});
    let project = project_with(&json!({"far": spile_serve(".")}), &allowed);
    // A server of this process, one of the same era, and one of the other.
    let direct = start(&project, &["."]);
    delete_after_asking(&direct, "/mcp", "mcp__stock__");
    delete_after_asking(&direct, "/mcp", "mcp__far__");
    // Two processes do not write one audit log.
    direct.stop();
    let bridge = start(&project, &["--handshake-only"]);
    let (arguments, answer, _) = delete_after_asking(&bridge, "/mcp/far", "");
    // The call waited here for one answer.
    let again = call(&bridge, "/mcp/far", "delete_stock", &arguments, &answer);
    assert!(again["error"]["message"].as_str().is_some_and(|text| text.contains("used")), "{again}");
}

#[test]
fn over_stdio_the_gateway_and_its_servers_end_with_their_client() {
    let project = project(&json!({"people": customers()}));
    let args = ["gateway", "--config", "servers.json", "--wait", "20"];
    let mut gateway = StdioServer::open(&mut project.spile(&args));
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    gateway.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).to_string());
    assert!(gateway.next().contains(r#""name":"gateway""#));
    gateway.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let params = json!({"name": "mcp__people__lookup_customer", "arguments": {"email": "dana@acme.test"}});
    gateway.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).to_string());
    let result = gateway.next();
    assert!(result.contains("dana@acme.test"), "{result}");
    let (rest, code) = gateway.close();
    assert_eq!((rest.as_slice(), code), (&[][..], Some(0)));
}

#[test]
fn a_gateway_is_reached_over_every_transport() {
    let project = project(&json!({"people": customers()}));
    let socket = project.folder.join("gateway.sock").display().to_string();
    let gateway = start(&project, &["--socket", &socket]);
    let port = gateway.port().expect("it listens");
    for url in [
        format!("http://127.0.0.1:{port}/mcp"),
        format!("http://127.0.0.1:{port}/sse"),
        format!("ws://127.0.0.1:{port}/mcp"),
        format!("ws://127.0.0.1:{port}/mcp/people"),
        format!("unix:{socket}"),
        format!("http+unix://{}/mcp", socket.replace('/', "%2F")),
    ] {
        let tool = if url.ends_with("/people") { "lookup_customer" } else { "mcp__people__lookup_customer" };
        let called = project.run(&["call", tool, "email=dana@acme.test", "--url", &url]);
        assert_eq!(called.code, Some(0), "{url}: {called}");
        assert!(called.stdout.contains("emerald"), "{url}: {called}");
    }
    let (_, stderr, code) = gateway.stop();
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn what_cannot_be_served_is_said() {
    let none = TestProject::new(&[]).run(&["gateway"]);
    assert_eq!(none.code, Some(1));
    assert!(none.stderr.contains("no servers are configured here"), "{none}");
    let clash = project(&json!({"stock": customers()}));
    let clash = clash.run(&["gateway", "--config", "servers.json", "."]);
    assert_eq!(clash.code, Some(1));
    assert!(clash.stderr.contains("of the configured server `stock` and of `stock`"), "{clash}");
    let missing = TestProject::new(&[]).run(&["gateway", "--config", "nothing.json"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("nothing.json"), "{missing}");
}

#[test]
fn permissions_hide_ask_and_refuse_and_each_call_is_recorded() {
    let permissions = json!({"deny": ["mcp__people__search_customers"], "ask": ["mcp__people__list_*"]});
    let project = project_with(&json!({"people": customers()}), &permissions);
    let gateway = start(&project, &["."]);
    for (path, hidden) in [("/mcp", "mcp__people__search_customers"), ("/mcp/people", "search_customers")] {
        assert!(!tool_names(&gateway, path).iter().any(|name| name == hidden), "{path}");
        let unknown = call(&gateway, path, hidden, &json!({"query": "a"}), &json!({}));
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
    // A read-only tool runs, a rule asks, and a destructive tool asks in any case.
    let found = call(
        &gateway,
        "/mcp",
        "mcp__people__lookup_customer",
        &json!({"email": "dana@acme.test"}),
        &json!({}),
    );
    assert!(found["result"]["structuredContent"].is_object(), "{found}");
    for tool in ["mcp__people__list_customers", "mcp__stock__delete_stock"] {
        let arguments = if tool.contains("delete") { json!({"sku": "A-1"}) } else { json!({"limit": 1}) };
        let asked = call(&gateway, "/mcp", tool, &arguments, &json!({}));
        assert_eq!(asked["result"]["resultType"], "input_required", "{tool}: {asked}");
    }
    // A caller that cannot be asked learns which rule is missing.
    let plain = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "mcp__people__list_customers", "arguments": {"limit": 1}}});
    let (_, refused) = gateway.post("/mcp", "", &plain.to_string());
    assert!(refused.contains("forbidden"), "{refused}");
    let (_, _, code) = gateway.stop();
    assert_eq!(code, Some(0));
    let log = std::fs::read_to_string(project.folder.join("audit.jsonl")).expect("the log is there");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 6, "{log}");
    assert!(lines.iter().all(|line| line["server"] == "people" || line["server"] == "stock"), "{log}");
}

/// What the gateway's model is asked costs money and takes data along, so it is recorded beside the call.
#[test]
fn a_sampling_that_the_gateway_answers_has_a_line_of_its_own() {
    let everything = spile_serve(&examples().join("everything").display().to_string());
    let project = project_with(&json!({"all": everything}), &json!({"allow": ["mcp__all__*"]}));
    let read = |name: &str| std::fs::read_to_string(project.folder.join(name)).expect("the file is there");
    let mut settings: Value = serde_json::from_str(&read("servers.json")).expect("the settings are JSON");
    settings["sampling"] =
        json!({"command": "sh", "args": ["-c", "cat >/dev/null; echo Paris"], "allow": ["all"]});
    project.write("servers.json", settings.to_string().as_bytes());
    let gateway = start(&project, &[]);
    let answer =
        call(&gateway, "/mcp", "mcp__all__test_sampling", &json!({"prompt": "capital?"}), &json!({}));
    assert!(answer["result"]["content"][0]["text"].as_str().expect("a text").contains("Paris"), "{answer}");
    gateway.stop();
    let lines = read("audit.jsonl");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [sampling, call] = &lines[..] else { panic!("{lines:?}") };
    let expected = json!({
        "event": "sampling", "outcome": "ok", "server": "all", "target": "sampling/createMessage",
        "upstream": "stdio", "decision": "allow", "reason": "the settings allow it",
    });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&sampling[key], value, "{key} of {sampling}");
    }
    assert_eq!(call["event"], "tool.call", "{call}");
    assert_eq!((&sampling["id"], &sampling["address"]), (&call["id"], &call["address"]), "{lines:?}");
    assert!(sampling["request_bytes"].as_u64() > Some(0) && sampling["response_bytes"].as_u64() > Some(0));
}

/// A client of 2025-11-25 asks for a task in the call itself. A newer server is not told that the client accepts tasks, and
/// need not make one: the gateway does.
#[test]
fn an_older_client_gets_a_task_of_a_newer_server() {
    let everything = spile_serve(&examples().join("everything").display().to_string());
    let project = project_with(&json!({"all": everything}), &json!({"allow": ["mcp__all__*"]}));
    let gateway = start(&project, &[]);
    let headers = "MCP-Protocol-Version: 2025-11-25\r\n";
    let post = |method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        response(&gateway.post("/mcp", headers, &message.to_string()).1)
    };
    // The last one makes a task only for clients that accept one.
    for (tool, arguments, text) in [
        ("slow_compute", json!({"seconds": 0, "label": "x"}), "Computed `x` in 0 s"),
        ("test_simple_text", json!({}), "This is a simple text response for testing."),
        ("failing_job", json!({}), ""),
    ] {
        let name = format!("mcp__all__{tool}");
        let created =
            post("tools/call", json!({"name": name, "arguments": arguments, "task": {"ttl": 60_000}}));
        let id = created["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{tool}: {created}"));
        let result = post("tasks/result", json!({"taskId": id}));
        let found =
            result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {result}"));
        assert!(found.contains(text), "{tool}: {result}");
    }
}

#[test]
fn templates_of_two_servers_that_match_the_same_addresses_are_listed_once() {
    let everything = spile_serve(&examples().join("everything").display().to_string());
    let gateway = start(&project(&json!({"one": everything, "two": everything})), &[]);
    let list = request(&gateway, "/mcp", "resources/templates/list", "", json!({}));
    assert_eq!(list["result"]["resourceTemplates"].as_array().map(Vec::len), Some(1), "{list}");
    let (_, status) = gateway.get("/status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let left_out = status["servers"][0]["notServed"].as_array().expect("a list");
    let is_named = |one: &Value| one["provider"] == "two" && one["name"] == "test://template/{id}/data";
    assert!(left_out.iter().any(is_named), "{status}");
    let unknown = call(&gateway, "/mcp", "list_resources", &json!({"server": "three"}), &json!({}));
    assert_eq!(unknown["result"]["structuredContent"]["code"], "not_found", "{unknown}");
}
