//! Tasks outlive their process: another one with the same keys and store shows them, and continues them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use host::{CallObserver, CallRecord, CallStatus, Config, Keyring, Server, SystemPlatform};
use json::Doc;
use spile_core::{
    DetachedWork, InputRequests, Limits, Outcome, Provider, Run, TaskSupport, Tool, ToolResult,
};
use state::store::{MemoryStore, Store, StoreLimits};
use testkit::FakePlatform;

use super::{error_of, form, object_schema, provider, respond};

/// What the processes of one server share, and their clock.
struct Cluster {
    keyring: Arc<Keyring>,
    store: Arc<dyn Store>,
    platform: Arc<FakePlatform>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            keyring: Arc::new(Keyring::for_this_run(&SystemPlatform::default())),
            store: Arc::new(MemoryStore::new(StoreLimits::default())),
            platform: Arc::new(FakePlatform::new(1)),
        }
    }

    fn start(&self, providers: Vec<Arc<dyn Provider>>) -> Arc<Server> {
        let config = Config::new("t", "1", Limits::default(), self.platform.clone());
        let (keyring, store) = (self.keyring.clone(), self.store.clone());
        Server::new(Config { keyring, store, ..config }, providers)
    }

    /// The lease of a process that ended without a word is over.
    fn outlive_the_lease(&self) {
        self.platform.advance_ms(31_000);
    }
}

fn request(method: &str, params: &str) -> String {
    format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{{{},"#,
            r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{"form":{{}}}},"#,
            r#""extensions":{{"io.modelcontextprotocol/tasks":{{}}}}}}}}}}}}"#
        ),
        method, params
    )
}

fn member(response: &Doc, name: &str) -> String {
    let value = response.root().get("result").and_then(|result| Some(result.get(name)?.str()?.into_owned()));
    value.unwrap_or_else(|| panic!("`{name}`: {}", response.text()))
}

async fn get(server: &Arc<Server>, id: &str) -> Doc {
    respond(server, &request("tasks/get", &format!(r#""taskId":"{id}""#))).await
}

/// The response once the task has this status. The work runs on the same thread, so it goes on while this waits.
async fn get_when(server: &Arc<Server>, id: &str, status: &str) -> Doc {
    for _ in 0..10_000 {
        let response = get(server, id).await;
        if member(&response, "status") == status {
            return response;
        }
        tokio::task::yield_now().await;
    }
    panic!("the task is never `{status}`: {}", get(server, id).await.text())
}

fn task_tool(name: &str) -> Tool {
    Tool { task_support: TaskSupport::Optional, ..Tool::new(name, "", object_schema()) }
}

async fn start_task(server: &Arc<Server>, tool: &str) -> String {
    let created =
        respond(server, &request("tools/call", &format!(r#""name":"{tool}","arguments":{{}}"#))).await;
    member(&created, "taskId")
}

/// Does one thing, saves that it is done, and never comes back; with the checkpoint it goes on behind it.
fn two_steps(first_steps: &Arc<AtomicUsize>) -> Arc<dyn Provider> {
    let first_steps = first_steps.clone();
    provider(vec![task_tool("steps")], move |_, cx| {
        let (memo, first_steps) = (cx.journal.memo().map(<[u8]>::to_vec), first_steps.clone());
        Run::Now(Outcome::Detach(DetachedWork::new(move |checkpoints| {
            Box::pin(async move {
                match memo {
                    None => {
                        first_steps.fetch_add(1, Ordering::SeqCst);
                        checkpoints.save(b"half".to_vec()).await;
                        std::future::pending().await
                    }
                    Some(memo) => {
                        let text = format!("went on from {}", String::from_utf8_lossy(&memo));
                        ToolResult::text(text).into()
                    }
                }
            })
        })))
    })
}

#[tokio::test]
async fn a_task_continues_from_its_checkpoint_when_its_process_has_ended() {
    let (cluster, first_steps) = (Cluster::new(), Arc::new(AtomicUsize::new(0)));
    let one = cluster.start(vec![two_steps(&first_steps)]);
    let id = start_task(&one, "steps").await;
    while first_steps.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // As a process that is killed: nothing is written any more, and the lease stays.
    one.close();
    let other = cluster.start(vec![two_steps(&first_steps)]);
    assert_eq!(member(&get(&other, &id).await, "status"), "working", "its state is known at once");
    let cancel = request("tasks/cancel", &format!(r#""taskId":"{id}""#));
    let refused = respond(&other, &cancel).await;
    assert!(refused.text().contains("error"), "another process may still run it: {}", refused.text());
    cluster.outlive_the_lease();
    let done = get_when(&other, &id, "completed").await;
    assert!(done.text().contains("went on from half"), "{}", done.text());
    assert_eq!(first_steps.load(Ordering::SeqCst), 1, "what was saved is not repeated");

    // The result is there for every later process, too.
    let third = cluster.start(vec![two_steps(&first_steps)]);
    let done = get(&third, &id).await;
    assert!(done.text().contains("went on from half"), "{}", done.text());
}

#[tokio::test]
async fn a_process_that_starts_continues_what_an_earlier_one_released() {
    let (cluster, first_steps) = (Cluster::new(), Arc::new(AtomicUsize::new(0)));
    let one = cluster.start(vec![two_steps(&first_steps)]);
    let id = start_task(&one, "steps").await;
    while first_steps.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    one.release_tasks().await;
    one.close();
    // Nobody asks for the task: the server looks for it itself.
    let other = cluster.start(vec![two_steps(&first_steps)]);
    other.resume_tasks().await;
    get_when(&other, &id, "completed").await;
    assert_eq!(first_steps.load(Ordering::SeqCst), 1);
}

fn asking() -> Arc<dyn Provider> {
    provider(vec![task_tool("ask")], |_, cx| {
        let answer = cx.journal.response("size").and_then(|answer| answer.text_field("value"));
        Run::Now(Outcome::Detach(DetachedWork::from_future(async move {
            match answer {
                Some(size) => ToolResult::text(format!("size {size}")).into(),
                None => Outcome::InputRequired(InputRequests::single("size", form("Which size?"))),
            }
        })))
    })
}

#[tokio::test]
async fn an_open_question_of_a_task_is_answered_in_another_process() {
    let cluster = Cluster::new();
    let one = cluster.start(vec![asking()]);
    let id = start_task(&one, "ask").await;
    get_when(&one, &id, "input_required").await;
    one.release_tasks().await;
    one.close();
    let other = cluster.start(vec![asking()]);
    let asked = get(&other, &id).await;
    assert!(asked.text().contains("Which size?"), "{}", asked.text());
    let answer = r#""inputResponses":{"size":{"action":"accept","content":{"value":"large"}}}"#;
    respond(&other, &request("tasks/update", &format!(r#""taskId":"{id}",{answer}"#))).await;
    let done = get_when(&other, &id, "completed").await;
    assert!(done.text().contains("size large"), "{}", done.text());
}

#[tokio::test]
async fn a_cancelled_task_stays_cancelled_and_an_expired_one_is_unknown() {
    let cluster = Cluster::new();
    let one = cluster.start(vec![asking()]);
    let (cancelled, expired) = (start_task(&one, "ask").await, start_task(&one, "ask").await);
    respond(&one, &request("tasks/cancel", &format!(r#""taskId":"{cancelled}""#))).await;
    // The store is written after the acknowledgement.
    tokio::task::yield_now().await;
    get_when(&one, &expired, "input_required").await;
    one.release_tasks().await;
    let other = cluster.start(vec![asking()]);
    assert_eq!(member(&get(&other, &cancelled).await, "status"), "cancelled");
    cluster.platform.advance_ms(Limits::default().task_ttl_ms + 1);
    let third = cluster.start(vec![asking()]);
    for id in [&expired, "0123456789abcdef0123456789abcdef", "index", ""] {
        let error = error_of(&get(&third, id).await);
        assert!(!error.is_empty(), "{id}");
    }
}

/// The tool means something else in the new process.
#[tokio::test]
async fn a_task_of_another_contract_fails_with_the_reason() {
    let cluster = Cluster::new();
    let one = cluster.start(vec![asking()]);
    let id = start_task(&one, "ask").await;
    get_when(&one, &id, "input_required").await;
    one.release_tasks().await;
    let changed = json::Json::parse(r#"{"type":"object","required":["sku"]}"#).expect("JSON");
    let tool = Tool { task_support: TaskSupport::Optional, ..Tool::new("ask", "", changed) };
    let other = cluster.start(vec![provider(vec![tool], |_, _| Run::now(ToolResult::text("no")))]);
    let failed = get_when(&other, &id, "failed").await;
    assert!(failed.text().contains("the tool changed while it waited"), "{}", failed.text());
}

/// Keeps how each call ended.
#[derive(Default)]
struct Statuses(Mutex<Vec<String>>);

impl CallObserver for Statuses {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        let status = match &record.status {
            CallStatus::Result(_) => "result".to_owned(),
            CallStatus::InputRequired => "input_required".to_owned(),
            CallStatus::Task => "task".to_owned(),
            CallStatus::Error(error) => error.kind().to_owned(),
            CallStatus::Cancelled => "cancelled".to_owned(),
        };
        let line = format!("{}: {status}", record.call.name());
        self.0.lock().expect("no panic before").push(line);
    }
}

impl Statuses {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic before"))
    }
}

#[tokio::test]
async fn the_start_and_the_end_of_a_task_are_recorded() {
    let cluster = Cluster::new();
    let statuses = Arc::new(Statuses::default());
    let observed = |providers| {
        let server = cluster.start(providers);
        server.set_observer(statuses.clone());
        server
    };
    let one = observed(vec![asking()]);
    let id = start_task(&one, "ask").await;
    get_when(&one, &id, "input_required").await;
    assert_eq!(statuses.take(), ["ask: task"]);
    let answer = r#""inputResponses":{"size":{"action":"accept","content":{"value":"large"}}}"#;
    respond(&one, &request("tasks/update", &format!(r#""taskId":"{id}",{answer}"#))).await;
    get_when(&one, &id, "completed").await;
    assert_eq!(statuses.take(), ["ask: result"]);

    let id = start_task(&one, "ask").await;
    get_when(&one, &id, "input_required").await;
    respond(&one, &request("tasks/cancel", &format!(r#""taskId":"{id}""#))).await;
    while statuses.0.lock().expect("no panic before").len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(statuses.take(), ["ask: task", "ask: cancelled"]);

    // A process that ends leaves the task to the next one, which records the end.
    let id = start_task(&one, "ask").await;
    get_when(&one, &id, "input_required").await;
    one.release_tasks().await;
    one.close();
    tokio::task::yield_now().await;
    assert_eq!(statuses.take(), ["ask: task"]);
    let other = observed(vec![asking()]);
    respond(&other, &request("tasks/update", &format!(r#""taskId":"{id}",{answer}"#))).await;
    get_when(&other, &id, "completed").await;
    assert_eq!(statuses.take(), ["ask: result"]);
}
