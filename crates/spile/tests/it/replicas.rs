//! Two processes with one key file: what a client got from one is accepted by the other.

use serde_json::{Value, json};

use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject};

fn start(project: &TestProject, key_file: &str) -> HttpServer {
    let args = ["serve", ".", "--bind", "127.0.0.1:0", "--key-file", key_file, "--store-file", "store"];
    HttpServer::start(&mut project.spile(&args))
}

/// The response of a request of the handshake era in a session, and its status.
fn in_session(server: &HttpServer, session: &str, message: &Value) -> (u16, Value) {
    let headers = format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    let (head, body) = server.post("/mcp", &headers, &message.to_string());
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(&body).expect("JSON"))
}

fn open_session(server: &HttpServer) -> String {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let (head, _) = server.post("/mcp", "", &message.to_string());
    let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    session.expect("a session").to_owned()
}

/// The result or error of a tool call of the stateless era.
fn call(server: &HttpServer, tool: &str, arguments: &Value, more: &Value) -> Value {
    let capabilities = json!({"elicitation": {"form": {}}});
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let mut params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    for (key, value) in more.as_object().expect("an object") {
        params[key] = value.clone();
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers =
        format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n");
    let (_, body) = server.post("/mcp", &headers, &message.to_string());
    serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"))
}

const PING: fn() -> Value = || json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});

#[test]
fn sessions_cursors_and_questions_of_one_process_continue_in_another() {
    let project = TestProject::example("stock");
    let (one, other) = (start(&project, "keys"), start(&project, "keys"));
    let stranger = start(&project, "other-keys");

    let session = open_session(&one);
    assert_eq!(in_session(&other, &session, &PING()).0, 200);
    let (status, refusal) = in_session(&stranger, &session, &PING());
    assert_eq!(status, 404, "{refusal}");

    let page = call(&one, "list_stock", &json!({"limit": 1}), &json!({}));
    let page = &page["result"]["structuredContent"];
    let (first, cursor) = (&page["items"][0]["sku"], &page["nextCursor"]);
    let next = call(&other, "list_stock", &json!({"limit": 1, "cursor": cursor}), &json!({}));
    assert!(next["result"]["structuredContent"]["items"][0]["sku"].is_string(), "{next}");
    assert_ne!(&next["result"]["structuredContent"]["items"][0]["sku"], first);
    let refused = call(&stranger, "list_stock", &json!({"limit": 1, "cursor": cursor}), &json!({}));
    assert!(refused.to_string().contains("another server issued it"), "{refused}");

    let arguments = json!({"sku": first});
    let asked = call(&one, "delete_stock", &arguments, &json!({}));
    let asked = &asked["result"];
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let requests = asked["inputRequests"].as_object().expect("a question");
    let key = requests.keys().next().expect("a question").clone();
    let form = &requests[&key]["params"]["requestedSchema"]["properties"];
    let content: serde_json::Map<String, Value> =
        form.as_object().expect("a form").keys().map(|name| (name.clone(), json!(true))).collect();
    let mut responses = serde_json::Map::new();
    responses.insert(key, json!({"action": "accept", "content": content}));
    let answer = json!({"requestState": asked["requestState"], "inputResponses": responses});
    let deleted = call(&other, "delete_stock", &arguments, &answer);
    assert_eq!(deleted["result"]["structuredContent"]["outcome"], "deleted", "{deleted}");
    // The answer was lost: the client sends it again, to the first server.
    let again = call(&one, "delete_stock", &arguments, &answer);
    assert_eq!(again["result"]["structuredContent"]["outcome"], "deleted", "{again}");
}

#[test]
fn a_session_that_ends_at_one_process_ends_at_the_other() {
    let project = TestProject::example("stock");
    let (one, other) = (start(&project, "keys"), start(&project, "keys"));
    let (ended, kept) = (open_session(&one), open_session(&one));
    assert_eq!(in_session(&other, &ended, &PING()).0, 200);
    let (head, _) = one.request("DELETE", "/mcp", &format!("Mcp-Session-Id: {ended}\r\n"), "");
    assert!(head.contains(" 204 "), "{head}");
    let waited = std::time::Instant::now();
    while in_session(&other, &ended, &PING()).0 == 200 {
        assert!(waited.elapsed() < TEST_TIMEOUT, "the other process never learns that the session has ended");
    }
    let (status, refusal) = in_session(&other, &ended, &PING());
    assert_eq!(status, 404);
    assert!(refusal.to_string().contains("ended"), "{refusal}");
    assert_eq!(in_session(&other, &kept, &PING()).0, 200, "only that session has ended");
    // A process that starts later knows it too.
    let third = start(&project, "keys");
    let waited = std::time::Instant::now();
    while in_session(&third, &ended, &PING()).0 == 200 {
        assert!(waited.elapsed() < TEST_TIMEOUT, "a new process never learns that the session has ended");
    }
}

#[test]
fn after_a_rotation_older_keys_are_accepted_until_the_overlap_ends() {
    let project = TestProject::example("stock");
    let (one, other) = (start(&project, "keys"), start(&project, "keys"));
    let old = open_session(&one);
    assert_eq!(project.run(&["keys", "rotate", "--key-file", "keys"]).code, Some(0));
    assert_eq!(in_session(&other, &old, &PING()).0, 200, "the old key is still accepted");
    let waited = std::time::Instant::now();
    let new = loop {
        // A server seals with the new key once it has noticed it; the other one accepts it at once.
        let new = open_session(&one);
        if new.as_bytes()[..8] != old.as_bytes()[..8] {
            break new;
        }
        assert!(waited.elapsed() < TEST_TIMEOUT, "the new key is never used");
    };
    assert_eq!(in_session(&other, &new, &PING()).0, 200);

    assert_eq!(project.run(&["keys", "rotate", "--key-file", "keys", "--overlap", "0s"]).code, Some(0));
    let waited = std::time::Instant::now();
    while in_session(&other, &new, &PING()).0 == 200 {
        assert!(waited.elapsed() < TEST_TIMEOUT, "a key that has ended is still accepted");
    }
    let (status, refusal) = in_session(&other, &old, &PING());
    assert_eq!(status, 404);
    assert!(refusal.to_string().contains("keys have changed"), "{refusal}");
}

/// Waits until this process does not accept the keys of a session any more. Pings have no rate limit.
fn wait_until_keys_have_ended(server: &HttpServer, old: &str) {
    let waited = std::time::Instant::now();
    while in_session(server, old, &PING()).0 == 200 {
        assert!(waited.elapsed() < TEST_TIMEOUT, "a key that has ended is still accepted");
    }
}

#[test]
fn after_a_rotation_cursors_and_questions_are_accepted_until_the_overlap_ends() {
    let project = TestProject::example("stock");
    let (one, other) = (start(&project, "keys"), start(&project, "keys"));
    let session = open_session(&one);
    let none = json!({});
    let page = call(&one, "list_stock", &json!({"limit": 2}), &none);
    let page = &page["result"]["structuredContent"];
    let list = json!({"limit": 1, "cursor": page["nextCursor"]});
    let delete = |row: usize| json!({"sku": page["items"][row]["sku"]});
    let asked = [0, 1].map(|row| answer_all(&call(&one, "delete_stock", &delete(row), &none)));

    assert_eq!(project.run(&["keys", "rotate", "--key-file", "keys"]).code, Some(0));
    let next = call(&other, "list_stock", &list, &none);
    assert!(next["result"]["structuredContent"]["items"][0]["sku"].is_string(), "{next}");
    let deleted = call(&other, "delete_stock", &delete(0), &asked[0]);
    assert_eq!(deleted["result"]["structuredContent"]["outcome"], "deleted", "{deleted}");

    assert_eq!(project.run(&["keys", "rotate", "--key-file", "keys", "--overlap", "0s"]).code, Some(0));
    for server in [&one, &other] {
        // Each process notices on its own.
        wait_until_keys_have_ended(server, &session);
        let refused = call(server, "list_stock", &list, &none);
        assert_eq!(refused["result"]["structuredContent"]["code"], "invalid_arguments", "{refused}");
        let refused = call(server, "delete_stock", &delete(1), &asked[1]);
        assert!(refused["error"]["message"].to_string().contains("keys have changed"), "{refused}");
    }
    let kept = call(&one, "get_stock", &delete(1), &none);
    assert_eq!(kept["result"]["structuredContent"]["sku"], page["items"][1]["sku"], "{kept}");
}

/// Says yes to everything that a result asks.
fn answer_all(asked: &Value) -> Value {
    let form = &asked["result"]["inputRequests"]
        .as_object()
        .and_then(|all| all.values().next())
        .expect("a question")["params"]["requestedSchema"]["properties"];
    let yes = form.as_object().expect("a form").keys().map(|name| (name.clone(), json!(true))).collect();
    answer_to(asked, &Value::Object(yes))
}

const REPORT: &[u8] = br#"
export const metadata = { description: "Writes a report.", task: "optional" };
export default async (_: {}, ctx: any) => {
    await ctx.files.write(`out/started-${crypto.randomUUID()}`, "");
    const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const answer = await ctx.elicit("name", { message: "Whose report?", schema });
    return `The report of ${answer.content.name}`;
};
"#;

/// The result or error of a request about a task, by a client that accepts tasks.
fn task_request(server: &HttpServer, method: &str, params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    });
    let name = params["taskId"].as_str().or(params["name"].as_str()).expect("a name");
    let headers = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (_, body) = server.post("/mcp", &headers, &message.to_string());
    // The store may make the server answer with a stream.
    let body = body
        .lines()
        .find_map(|line| line.strip_prefix("data: {"))
        .map_or(body.clone(), |json| format!("{{{json}"));
    let value: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
    value.get("result").unwrap_or(&value["error"]).clone()
}

fn wait_for_task(server: &HttpServer, id: &Value, status: &str) -> Value {
    let waited = std::time::Instant::now();
    loop {
        let task = task_request(server, "tasks/get", &json!({"taskId": id}));
        if task["status"] == status {
            return task;
        }
        assert!(waited.elapsed() < TEST_TIMEOUT, "the task is never `{status}`: {task}");
    }
}

#[test]
fn a_task_of_a_process_that_stopped_goes_on_in_the_next_one() {
    let project = TestProject::new(&[
        ("spile.toml", b"[permissions]\nwritable_files = [\"out\"]\n"),
        ("tools/report.ts", REPORT),
        ("out/README", b""),
    ]);
    let one = start(&project, "keys");
    let created = task_request(&one, "tools/call", &json!({"name": "report", "arguments": {}}));
    let id = &created["taskId"];
    assert!(id.is_string(), "{created}");
    wait_for_task(&one, id, "input_required");
    assert_eq!(one.stop().2, Some(0));
    let other = start(&project, "keys");
    let asked = wait_for_task(&other, id, "input_required");
    let key =
        asked["inputRequests"].as_object().and_then(|all| all.keys().next()).expect("a question").clone();
    let mut responses = serde_json::Map::new();
    responses.insert(key, json!({"action": "accept", "content": {"name": "Ada"}}));
    task_request(&other, "tasks/update", &json!({"taskId": id, "inputResponses": responses}));
    let done = wait_for_task(&other, id, "completed");
    assert_eq!(done["result"]["content"][0]["text"], "The report of Ada", "{done}");
    let starts = std::fs::read_dir(project.folder.join("out")).expect("a folder").flatten();
    let starts = starts.filter(|entry| entry.file_name().to_string_lossy().starts_with("started-")).count();
    assert_eq!(starts, 1, "what was done before the restart is not done again");
}

#[test]
fn a_task_is_answered_and_cancelled_through_the_other_process() {
    let project = TestProject::new(&[
        ("spile.toml", b"[permissions]\nwritable_files = [\"out\"]\n"),
        ("tools/report.ts", REPORT),
        ("out/README", b""),
    ]);
    let (one, other) = (start(&project, "keys"), start(&project, "keys"));
    let create = || {
        let created = task_request(&one, "tools/call", &json!({"name": "report", "arguments": {}}));
        let id = created["taskId"].clone();
        wait_for_task(&one, &id, "input_required");
        id
    };
    let (answered, cancelled) = (create(), create());
    let responses = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let update = json!({"taskId": answered, "inputResponses": responses});
    assert_eq!(task_request(&other, "tasks/update", &update)["resultType"], "complete");
    let done = wait_for_task(&other, &answered, "completed");
    assert_eq!(done["result"]["content"][0]["text"], "The report of Ada", "{done}");
    assert_eq!(wait_for_task(&one, &answered, "completed")["result"], done["result"]);
    let cancel = task_request(&other, "tasks/cancel", &json!({"taskId": cancelled}));
    assert_eq!(cancel["resultType"], "complete", "{cancel}");
    for server in [&one, &other] {
        wait_for_task(server, &cancelled, "cancelled");
    }
}

const BOOKING: &[u8] = br#"
const form = (name: string) => ({ type: "object", properties: { [name]: { type: "string" } }, required: [name] });
export const metadata = { description: "Books a table." };
export default async (_: {}, ctx: any) => {
    await ctx.files.write(`out/started-${crypto.randomUUID()}`, "");
    const who = await ctx.elicit("who", { message: "For whom?", schema: form("name") });
    await ctx.files.write(`out/asked-${crypto.randomUUID()}`, "");
    const when = await ctx.elicit("when", { message: "When?", schema: form("day") });
    return `${who.content.name} on ${when.content.day}`;
};
"#;

/// Answers the only question of a result.
fn answer_to(asked: &Value, content: &Value) -> Value {
    let asked = &asked["result"];
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let requests = asked["inputRequests"].as_object().expect("a question");
    let key = requests.keys().next().expect("a question").clone();
    let mut responses = serde_json::Map::new();
    responses.insert(key, json!({"action": "accept", "content": content}));
    json!({"requestState": asked["requestState"], "inputResponses": responses})
}

#[test]
fn two_rounds_of_questions_survive_a_restart_and_a_change_of_process() {
    let project = TestProject::new(&[
        ("spile.toml", b"[permissions]\nwritable_files = [\"out\"]\n"),
        ("tools/book.ts", BOOKING),
        ("out/README", b""),
    ]);
    let count = |prefix: &str| {
        let files = std::fs::read_dir(project.folder.join("out")).expect("a folder").flatten();
        files.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).count()
    };
    let none = json!({});
    let one = start(&project, "keys");
    let who = answer_to(&call(&one, "book", &none, &none), &json!({"name": "Ada"}));
    assert_eq!(one.stop().2, Some(0));
    let (two, three) = (start(&project, "keys"), start(&project, "keys"));
    let when = answer_to(&call(&two, "book", &none, &who), &json!({"day": "Monday"}));
    // The answer was used in the other process.
    let again = call(&three, "book", &none, &who);
    assert!(again.to_string().contains("already used"), "{again}");
    let booked = call(&three, "book", &none, &when);
    assert_eq!(booked["result"]["content"][0]["text"], "Ada on Monday", "{booked}");
    assert_eq!((count("started-"), count("asked-")), (1, 1), "no effect happens twice");
    // A server with other keys cannot read it, and says why.
    let stranger = start(&project, "other-keys");
    let refused = call(&stranger, "book", &none, &when);
    assert!(refused["error"]["message"].is_string(), "{refused}");
}
