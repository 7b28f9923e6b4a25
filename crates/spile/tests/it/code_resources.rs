//! Resources: code that answers one can report and ask in both eras, and subscribers hear of files that change.

use serde_json::{Value, json};

use crate::harness::{StdioServer, TestProject};

const MANIFEST: &[u8] = br#"
[server]
name = "shop"

[resources.order]
uri = "orders://{id}"
script = "order.ts"
"#;

const ORDER: &[u8] = br#"
const schema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };

export default async ({ id }: { id: string }, ctx: any) => {
    ctx.progress(1, 2, "asking");
    ctx.log.info(`order ${id}`);
    const { action, content } = await ctx.elicit("reason", { message: `Why ${id}?`, schema });
    ctx.progress(2, 2, "done");
    return `${id}: ${action} ${content?.text ?? "-"}`;
};
"#;

fn open(files: &[(&str, &[u8])]) -> (TestProject, StdioServer) {
    let project = TestProject::new(files);
    let pipe = StdioServer::open(&mut project.spile(&["serve", "."]));
    (project, pipe)
}

fn initialize(pipe: &mut StdioServer) {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {"form": {}}},
        "clientInfo": {"name": "t", "version": "1"},
    });
    pipe.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string());
    until_response(pipe, |_| panic!("nothing is asked"));
    pipe.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
}

/// Reads up to the response. Returns it and the notifications before it; answers requests with `answer`.
fn until_response(pipe: &mut StdioServer, answer: impl Fn(&Value) -> Value) -> (Value, Vec<Value>) {
    let mut notifications = Vec::new();
    loop {
        let message: Value = serde_json::from_str(&pipe.next()).expect("JSON");
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(id)) => {
                pipe.send(&json!({"jsonrpc": "2.0", "id": id, "result": answer(&message)}).to_string());
            }
            (Some(_), None) => notifications.push(message),
            (None, _) => return (message, notifications),
        }
    }
}

fn request(
    pipe: &mut StdioServer,
    method: &str,
    params: Value,
    answer: impl Fn(&Value) -> Value,
) -> (Value, Vec<Value>) {
    pipe.send(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string());
    until_response(pipe, answer)
}

/// The members of `_meta` in the stateless era.
fn stateless(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        "io.modelcontextprotocol/logLevel": "info",
        "progressToken": "p",
    });
    params
}

fn check_reports(notifications: &[Value], progress: &[u64], logs: usize) {
    let of = |method: &str| -> Vec<&Value> {
        notifications.iter().filter(|one| one["method"] == method).map(|one| &one["params"]).collect()
    };
    let steps: Vec<u64> =
        of("notifications/progress").iter().filter_map(|one| one["progress"].as_u64()).collect();
    assert_eq!(steps, progress, "{notifications:?}");
    let said = of("notifications/message");
    assert_eq!(said.len(), logs, "{notifications:?}");
    assert!(said.iter().all(|one| one["data"] == "order 7"), "{notifications:?}");
}

#[test]
fn a_resource_in_code_asks_logs_and_reports_progress_in_both_eras() {
    let (_project, mut pipe) = open(&[("spile.toml", MANIFEST), ("order.ts", ORDER)]);
    let question = |params: &Value| {
        assert_eq!(params["message"], "Why 7?", "{params}");
        json!({"action": "accept", "content": {"text": "late"}})
    };

    let params = stateless(json!({"uri": "orders://7"}));
    let (asked, reports) = request(&mut pipe, "resources/read", params, |one| panic!("asked by {one}"));
    let asked = &asked["result"];
    check_reports(&reports, &[1], 1);
    let answer = question(&asked["inputRequests"]["reason"]["params"]);
    let params = json!({
        "uri": "orders://7", "requestState": asked["requestState"], "inputResponses": {"reason": answer},
    });
    let (read, reports) =
        request(&mut pipe, "resources/read", stateless(params), |one| panic!("asked by {one}"));
    check_reports(&reports, &[2], 0);
    assert_eq!(read["result"]["contents"][0]["text"], "7: accept late", "{read}");

    initialize(&mut pipe);
    request(&mut pipe, "logging/setLevel", json!({"level": "info"}), |one| panic!("asked by {one}"));
    let params = json!({"uri": "orders://7", "_meta": {"progressToken": "p"}});
    let (read, reports) =
        request(&mut pipe, "resources/read", params.clone(), |one| question(&one["params"]));
    check_reports(&reports, &[1, 2], 1);
    assert_eq!(read["result"]["contents"][0]["text"], "7: accept late", "{read}");
    let (read, _) = request(&mut pipe, "resources/read", params, |_| json!({"action": "decline"}));
    assert_eq!(read["result"]["contents"][0]["text"], "7: decline -", "{read}");
}

/// Its journal would be that of the prompt, which may embed several.
#[test]
fn an_embedded_resource_that_asks_is_an_error_of_the_prompt_in_both_eras() {
    let prompt = b"Order:\n\n{{resource orders://7}}\n";
    let (_project, mut pipe) =
        open(&[("spile.toml", MANIFEST), ("order.ts", ORDER), ("prompts/order.md", prompt)]);
    let params = json!({"name": "order", "arguments": {}});
    let (answer, _) =
        request(&mut pipe, "prompts/get", stateless(params.clone()), |one| panic!("asked by {one}"));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    initialize(&mut pipe);
    let (answer, _) = request(&mut pipe, "prompts/get", params, |one| panic!("asked by {one}"));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}

#[test]
fn subscribers_of_both_eras_hear_of_files_that_change_come_and_go() {
    let (project, mut pipe) = open(&[("resources/notes.txt", b"Closed on Mondays.\n")]);
    initialize(&mut pipe);
    let uri = json!({"uri": "resource://notes"});
    request(&mut pipe, "resources/subscribe", uri.clone(), |one| panic!("asked by {one}"));
    let wanted = json!({"notifications": {"resourcesListChanged": true, "resourceSubscriptions": ["resource://notes"]}});
    let listen =
        json!({"jsonrpc": "2.0", "id": "ear", "method": "subscriptions/listen", "params": stateless(wanted)});
    pipe.send(&listen.to_string());
    assert!(pipe.next().contains("acknowledged"));
    // One for each era, in any order.
    let mut heard = |method: &str| {
        let mut subscriptions = Vec::new();
        while subscriptions.len() < 2 {
            let message: Value = serde_json::from_str(&pipe.next()).expect("JSON");
            if message["method"] == method {
                subscriptions.push(message.to_string().contains("subscriptionId"));
            }
        }
        subscriptions.sort_unstable();
        assert_eq!(subscriptions, [false, true], "{method}");
    };
    project.write("resources/notes.txt", b"Closed on Tuesdays, too.\n");
    heard("notifications/resources/updated");
    project.write("resources/more.txt", b"New.\n");
    heard("notifications/resources/list_changed");
    std::fs::remove_file(project.folder.join("resources/more.txt")).expect("removed");
    heard("notifications/resources/list_changed");
    let (read, _) = request(&mut pipe, "resources/read", uri, |one| panic!("asked by {one}"));
    assert_eq!(read["result"]["contents"][0]["text"], "Closed on Tuesdays, too.\n", "{read}");
}
