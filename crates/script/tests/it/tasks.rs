//! Tools whose calls continue as tasks: from their start, or from where they say so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use script::{HttpRequest, HttpResponse, Network, NetworkFuture};
use serde_json::{Value, json};

use crate::harness::{App, AppOptions, folder, problems, respond};
use crate::rounds::CountingNetwork;

async fn request(app: &App, method: &str, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": { "form": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let response = respond(&app.server, &message.to_string()).await;
    let value: Value = serde_json::from_str(response.text()).expect("JSON");
    value.get("result").unwrap_or(&value["error"]).clone()
}

/// The task, once it has this status.
async fn wait_for(app: &App, id: &Value, status: &str) -> Value {
    loop {
        let task = request(app, "tasks/get", json!({ "taskId": id })).await;
        let now = task["status"].as_str().unwrap_or_else(|| panic!("a task: {task}")).to_owned();
        if now == status {
            return task;
        }
        assert!(matches!(now.as_str(), "working" | "input_required"), "{task}");
        tokio::task::yield_now().await;
    }
}

const ASK: &str = r#"
    const schema = { type: "object", properties: { value: { type: "string" } }, required: ["value"] };
    const ask = async (ctx, key) => (await ctx.elicit(key, { message: key, schema })).content.value;
"#;

#[tokio::test]
async fn a_tool_is_a_task_from_its_start_and_asks_there() {
    let code = format!(
        "{ASK} export const metadata = {{ task: 'optional' }};
         export default async (_: {{}}, ctx: any) => `for ${{await ask(ctx, 'name')}}`;"
    );
    let folder = folder(&[("tools/job.ts", &code)]);
    let app = App::new(folder.path());
    let created = request(&app, "tools/call", json!({ "name": "job", "arguments": {} })).await;
    assert_eq!(created["resultType"], "task", "{created}");
    let asked = wait_for(&app, &created["taskId"], "input_required").await;
    let key =
        asked["inputRequests"].as_object().and_then(|all| all.keys().next()).expect("a question").clone();
    let responses = json!({ key: { "action": "accept", "content": { "value": "Ada" } } });
    request(&app, "tasks/update", json!({ "taskId": created["taskId"], "inputResponses": responses })).await;
    let done = wait_for(&app, &created["taskId"], "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "for Ada", "{done}");
    // A client without tasks waits for the result.
    let waited = app.call("job", "{}").await;
    assert_eq!(waited["resultType"], "input_required", "{waited}");
}

#[tokio::test]
async fn a_timer_of_a_task_fires_while_nobody_answers() {
    let code = format!(
        "{ASK} export const metadata = {{ task: 'optional' }};
         export default async (_: {{}}, ctx: any) => {{
             const answer = Promise.any([ask(ctx, 'name'), ask(ctx, 'nickname')]);
             let ticks = 0;
             const silence = new Promise((resolve) => setInterval(() => ++ticks === 3 && resolve('nobody'), 1));
             return `for ${{await Promise.race([answer, silence])}}`;
         }};"
    );
    let folder = folder(&[("tools/job.ts", &code)]);
    let app = App::new(folder.path());
    let created = request(&app, "tools/call", json!({ "name": "job", "arguments": {} })).await;
    let done = wait_for(&app, &created["taskId"], "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "for nobody", "{done}");
}

#[tokio::test]
async fn a_tool_that_detaches_asks_its_caller_first() {
    let code = format!(
        "{ASK} export const metadata = {{ task: 'required' }};
         export default async (_: {{}}, ctx: any) => {{
             const name = await ask(ctx, 'name');
             await ctx.detach();
             return `for ${{name}}`;
         }};"
    );
    let folder = folder(&[("tools/job.ts", &code)]);
    let app = App::new(folder.path());
    let asked = request(&app, "tools/call", json!({ "name": "job", "arguments": {} })).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let params = json!({
        "name": "job", "arguments": {}, "requestState": asked["requestState"],
        "inputResponses": { "name": { "action": "accept", "content": { "value": "Ada" } } },
    });
    let created = request(&app, "tools/call", params).await;
    assert_eq!(created["resultType"], "task", "{created}");
    let done = wait_for(&app, &created["taskId"], "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "for Ada", "{done}");
    // It is required: a client without tasks is refused before anything runs.
    assert_eq!(app.call("job", "{}").await["code"], -32021);
}

#[tokio::test]
async fn a_task_ends_as_the_tool_does() {
    let folder = folder(&[
        (
            "tools/fails.ts",
            "export const metadata = { task: 'optional' };\nexport default () => { throw new Error('no'); };",
        ),
        (
            "tools/breaks.ts",
            "export const metadata = { task: 'optional' };\nexport default () => { throw new McpError(-32000, 'no'); };",
        ),
    ]);
    let app = App::new(folder.path());
    for (tool, status) in [("fails", "completed"), ("breaks", "failed")] {
        let created = request(&app, "tools/call", json!({ "name": tool, "arguments": {} })).await;
        let ended = wait_for(&app, &created["taskId"], status).await;
        assert!(ended.to_string().contains("no"), "{ended}");
    }
}

/// The process ends after the first of two requests; the next one with the same store makes only the second.
#[tokio::test]
async fn no_effect_of_a_task_happens_twice_across_processes() {
    let code = format!(
        "{ASK} export const metadata = {{ task: 'optional' }};
         export default async (_: {{}}, ctx: any) => {{
             const first = await (await ctx.fetch('https://api.example.com/first')).text();
             const name = await ask(ctx, 'name');
             const second = await (await ctx.fetch('https://api.example.com/second')).text();
             return `${{first}}, ${{name}}, ${{second}}`;
         }};"
    );
    let folder = folder(&[("tools/job.ts", &code)]);
    let keys = folder.path().join("keys");
    let network = Arc::new(CountingNetwork::default());
    let store = AppOptions::default().store();
    let start = || crate::rounds::app_sharing(&crate::harness::build(folder.path()), &network, &keys, &store);
    let one = start();
    let created = request(&one, "tools/call", json!({ "name": "job", "arguments": {} })).await;
    let id = &created["taskId"];
    wait_for(&one, id, "input_required").await;
    one.server.release_tasks().await;
    one.server.close();
    drop(one);
    let other = start();
    let asked = wait_for(&other, id, "input_required").await;
    let key =
        asked["inputRequests"].as_object().and_then(|all| all.keys().next()).expect("a question").clone();
    let responses = json!({ key: { "action": "accept", "content": { "value": "Ada" } } });
    request(&other, "tasks/update", json!({ "taskId": id, "inputResponses": responses })).await;
    let done = wait_for(&other, id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "/first after 1, Ada, /second after 2", "{done}");
    assert_eq!(*network.0.lock().expect("no panic before"), ["/first", "/second"]);
}

/// Requests to `/hold` are not answered; all are counted.
#[derive(Default)]
struct HoldingNetwork {
    seen: Mutex<Vec<String>>,
    changed: tokio::sync::Notify,
    holds: AtomicBool,
}

impl HoldingNetwork {
    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic before").clone()
    }

    async fn wait_for(&self, path: &str) {
        loop {
            let changed = self.changed.notified();
            if self.seen().iter().any(|seen| seen.starts_with(path)) {
                return;
            }
            changed.await;
        }
    }
}

impl Network for HoldingNetwork {
    fn send(&self, request: HttpRequest) -> NetworkFuture {
        let path = request.url.path().to_owned();
        let is_held = self.holds.load(Ordering::Relaxed) && path.starts_with("/hold");
        self.seen.lock().expect("no panic before").push(path.clone());
        self.changed.notify_waiters();
        Box::pin(async move {
            if is_held {
                std::future::pending::<()>().await;
            }
            Ok(HttpResponse { status: 200, headers: Vec::new(), body: path.into_bytes() })
        })
    }
}

/// Runs a task until it waits for `/hold`, stops the process in order, and lets the next one finish it. What was requested.
async fn restart_at_hold(files: &[(&str, &str)], answers: &[&str]) -> (Vec<String>, Value) {
    let folder = folder(files);
    let keys = folder.path().join("keys");
    let network = Arc::new(HoldingNetwork::default());
    network.holds.store(true, Ordering::Relaxed);
    let store = AppOptions::default().store();
    let start =
        || crate::rounds::app_on(&crate::harness::build(folder.path()), network.clone(), &keys, &store);
    let one = start();
    let created = request(&one, "tools/call", json!({ "name": "outer", "arguments": {} })).await;
    let id = &created["taskId"];
    if !answers.is_empty() {
        let asked = wait_for(&one, id, "input_required").await;
        let keys: Vec<&String> =
            asked["inputRequests"].as_object().into_iter().flat_map(|all| all.keys()).collect();
        assert_eq!(keys, answers, "{asked}");
        let responses: serde_json::Map<String, Value> = keys
            .into_iter()
            .map(|key| (key.clone(), json!({ "action": "accept", "content": { "value": "yes" } })))
            .collect();
        request(&one, "tasks/update", json!({ "taskId": id, "inputResponses": responses })).await;
    }
    network.wait_for("/hold").await;
    one.server.release_tasks().await;
    one.server.close();
    drop(one);
    network.holds.store(false, Ordering::Relaxed);
    let other = start();
    let done = wait_for(&other, id, "completed").await;
    (network.seen(), done["result"].clone())
}

const OUTER: &str = r#"
    export const metadata = { task: "optional" };
    export default async (_, ctx) => (await ctx.tool("middle", {})).content[0].text;
"#;
const MIDDLE: &str = r#"
    export default async (_, ctx) => (await ctx.tool("inner", {})).content[0].text;
"#;

#[tokio::test]
async fn a_called_tool_goes_on_after_a_restart_however_deep_it_is() {
    let inner = r#"
        export default async (_, ctx) => {
            const get = async (path) => (await ctx.fetch(`https://api.example.com/${path}`)).text();
            const id = crypto.randomUUID();
            return [await get(`first/${id}`), await get(`hold/${id}`), await get("last")].join(" ");
        };
    "#;
    let files = [("tools/outer.js", OUTER), ("tools/middle.js", MIDDLE), ("tools/inner.js", inner)];
    let (seen, result) = restart_at_hold(&files, &[]).await;
    let [first, held, again, last] = &seen[..] else { panic!("four requests: {seen:?}") };
    assert_eq!(held, again, "the request that was under way is the same one");
    assert_eq!(first.replace("first", "hold"), *held, "the call has one seed");
    assert_eq!(result["content"][0]["text"], format!("{first} {held} {last}"));
}

#[tokio::test]
async fn the_seed_of_a_call_outlives_a_stop_during_its_first_effect() {
    let inner = r#"
        export default async (_, ctx) =>
            (await ctx.fetch(`https://api.example.com/hold/${crypto.randomUUID()}`)).text();
    "#;
    let files = [("tools/outer.js", OUTER), ("tools/middle.js", MIDDLE), ("tools/inner.js", inner)];
    let (seen, _) = restart_at_hold(&files, &[]).await;
    let [first, again] = &seen[..] else { panic!("two requests: {seen:?}") };
    assert_eq!(first, again);
}

/// The sibling saves a checkpoint after the called tool went on with its answer.
#[tokio::test]
async fn a_checkpoint_of_a_sibling_keeps_what_a_called_tool_did() {
    let form = r#"{ message: "m", schema: { type: "object", properties: { value: { type: "string" } } } }"#;
    let inner = format!(
        r#"export default async (_, ctx) => {{
            await ctx.fetch("https://api.example.com/before");
            await ctx.elicit("q", {form});
            await ctx.fetch("https://api.example.com/hold");
            return "ok";
        }};"#
    );
    let outer = format!(
        r#"export const metadata = {{ task: "optional" }};
        export default async (_, ctx) => {{
            const sibling = async () => {{
                await ctx.elicit("b", {form});
                await ctx.fetch("https://api.example.com/sibling");
            }};
            await Promise.all([sibling(), ctx.tool("inner", {{}})]);
            return "done";
        }};"#
    );
    let files = [("tools/outer.js", &*outer), ("tools/inner.js", &*inner)];
    let (mut seen, result) = restart_at_hold(&files, &["b", "tool-1:q"]).await;
    assert_eq!(result["content"][0]["text"], "done");
    seen.sort();
    assert_eq!(seen, ["/before", "/hold", "/hold", "/sibling"]);
}

/// `ctx.detach` of an earlier process is in the journal; the task still saves what happens after it.
#[tokio::test]
async fn a_task_that_detached_saves_checkpoints_also_after_a_question() {
    let outer = format!(
        r#"{ASK} export const metadata = {{ task: "optional" }};
        export default async (_, ctx) => {{
            await ctx.detach();
            await ask(ctx, "q");
            await ctx.fetch("https://api.example.com/once");
            await ctx.fetch("https://api.example.com/hold");
            return "done";
        }};"#
    );
    let (seen, _) = restart_at_hold(&[("tools/outer.js", &outer)], &["q"]).await;
    assert_eq!(seen, ["/once", "/hold", "/hold"]);
}

#[test]
fn detaching_without_a_task_is_a_warning() {
    let folder =
        folder(&[("tools/job.ts", "export default async (_: {}, ctx: any) => { await ctx.detach(); };")]);
    let told = problems(folder.path());
    assert!(told.contains("`ctx.detach` has no effect") && told.contains("task: \"optional\""), "{told}");
}
