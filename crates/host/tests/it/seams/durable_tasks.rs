//! Tasks outlive their process: another one with the same keys and store shows them, and continues them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use host::{
    CallObserver, CallRecord, CallStatus, CallerIdentity, Config, Keyring, ProviderSet, ReplyChannel, Server,
    SystemPlatform,
};
use json::Doc;
use spile_core::{
    DetachedWork, InputRequests, Limits, Outcome, Principal, Provider, RateLimit, Run, TaskSupport, Tool,
    ToolResult,
};
use state::store::{
    LeaseOutcome, MemoryStore, PutOutcome, Reply, Sequence, Store, StoreKey, StoreLimits, StreamPage, Ttl,
};
use testkit::FakePlatform;
use tokio::sync::Notify;

use super::{ANONYMOUS, error_of, form, object_schema, provider, respond, respond_as, respond_on};

/// What the processes of one server share, and their clock.
pub(super) struct Cluster {
    keyring: Arc<Keyring>,
    pub(super) store: Arc<dyn Store>,
    pub(super) platform: Arc<FakePlatform>,
}

impl Cluster {
    pub(super) fn new() -> Self {
        Self::with_limits(StoreLimits::default())
    }

    pub(super) fn with_limits(limits: StoreLimits) -> Self {
        Self {
            keyring: Arc::new(Keyring::for_this_run(&SystemPlatform::default())),
            store: Arc::new(MemoryStore::new(limits)),
            platform: Arc::new(FakePlatform::new(1)),
        }
    }

    pub(super) fn start(&self, providers: Vec<Arc<dyn Provider>>) -> Arc<Server> {
        self.start_with(Limits::default(), providers)
    }

    pub(super) fn start_with(&self, limits: Limits, providers: Vec<Arc<dyn Provider>>) -> Arc<Server> {
        let config = Config::new("t", "1", limits, self.platform.clone());
        let (keyring, store) = (self.keyring.clone(), self.store.clone());
        Server::new(Config { keyring, store, ..config }, providers)
    }

    /// The lease of a process that ended without a word is over.
    pub(super) fn outlive_the_lease(&self) {
        self.platform.advance_ms(31_000);
    }
}

pub(super) fn request(method: &str, params: &str) -> String {
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

pub(super) fn member(response: &Doc, name: &str) -> String {
    let value = response.root().get("result").and_then(|result| Some(result.get(name)?.str()?.into_owned()));
    value.unwrap_or_else(|| panic!("`{name}`: {}", response.text()))
}

pub(super) async fn get(server: &Arc<Server>, id: &str) -> Doc {
    respond(server, &request("tasks/get", &format!(r#""taskId":"{id}""#))).await
}

/// The response once the task has this status. The work runs on the same thread, so it goes on while this waits.
pub(super) async fn get_when(server: &Arc<Server>, id: &str, status: &str) -> Doc {
    for _ in 0..10_000 {
        let response = get(server, id).await;
        if member(&response, "status") == status {
            return response;
        }
        tokio::task::yield_now().await;
    }
    panic!("the task is never `{status}`: {}", get(server, id).await.text())
}

pub(super) fn task_tool(name: &str) -> Tool {
    Tool { task_support: TaskSupport::Optional, ..Tool::new(name, "", object_schema()) }
}

pub(super) async fn start_task(server: &Arc<Server>, tool: &str) -> String {
    let created =
        respond(server, &request("tools/call", &format!(r#""name":"{tool}","arguments":{{}}"#))).await;
    member(&created, "taskId")
}

/// Does one thing, saves that it is done, and never comes back; with the checkpoint it goes on behind it.
pub(super) fn two_steps(first_steps: &Arc<AtomicUsize>) -> Arc<dyn Provider> {
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

pub(super) fn asking() -> Arc<dyn Provider> {
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

/// The client of a pipe starts its server again, and has another connection then.
#[tokio::test]
async fn a_task_of_a_pipe_is_found_by_its_id_after_a_restart_and_listed_for_its_connection_only() {
    let cluster = Cluster::new();
    let one = cluster.start(vec![asking()]);
    let (pipe, neighbour) = (ReplyChannel::Pipe(one.open_pipe()), ReplyChannel::Pipe(one.open_pipe()));
    let call = request("tools/call", r#""name":"ask","arguments":{}"#);
    let id = member(&respond_on(&one, &ANONYMOUS, pipe.clone(), &call).await, "taskId");
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#;
    for (channel, expected) in [(pipe, true), (neighbour, false)] {
        let listed = respond_on(&one, &ANONYMOUS, channel, list).await;
        assert_eq!(listed.text().contains(&id), expected, "{}", listed.text());
    }
    get_when(&one, &id, "input_required").await;
    one.release_tasks().await;
    one.close();

    let other = cluster.start(vec![asking()]);
    let pipe = ReplyChannel::Pipe(other.open_pipe());
    let about = |method: &str| request(method, &format!(r#""taskId":"{id}""#));
    let found = respond_on(&other, &ANONYMOUS, pipe.clone(), &about("tasks/get")).await;
    assert_eq!(member(&found, "status"), "input_required");
    respond_on(&other, &ANONYMOUS, pipe.clone(), &about("tasks/cancel")).await;
    let found = respond_on(&other, &ANONYMOUS, pipe, &about("tasks/get")).await;
    assert_eq!(member(&found, "status"), "cancelled");
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

#[tokio::test]
async fn a_task_that_ends_without_its_work_is_recorded() {
    let (cluster, statuses) = (Cluster::new(), Arc::new(Statuses::default()));
    let is_known = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let start = || {
        let (server, is_known) = (cluster.start(vec![asking()]), is_known.clone());
        server.set_observer(statuses.clone());
        server.set_known_principals(Box::new(move |_| is_known.load(Ordering::SeqCst)));
        server
    };
    let one = start();
    let (here, left) = (start_task(&one, "ask").await, start_task(&one, "ask").await);
    for id in [&here, &left] {
        get_when(&one, id, "input_required").await;
    }
    assert_eq!(statuses.take(), ["ask: task", "ask: task"]);
    is_known.store(false, Ordering::SeqCst);
    one.end_tasks_without_access().await;
    tokio::task::yield_now().await;
    assert_eq!(statuses.take(), ["ask: provider_error", "ask: provider_error"]);

    is_known.store(true, Ordering::SeqCst);
    let id = start_task(&one, "ask").await;
    get_when(&one, &id, "input_required").await;
    one.release_tasks().await;
    one.close();
    assert_eq!(statuses.take(), ["ask: task"]);
    is_known.store(false, Ordering::SeqCst);
    get_when(&start(), &id, "failed").await;
    assert_eq!(statuses.take(), ["ask: provider_error"], "by the process that found it");
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

/// Runs until it was released, and says so.
fn waiting_tool(tool: Tool) -> Arc<dyn Provider> {
    provider(vec![tool], |_, cx| {
        let is_resumed = cx.journal.memo().is_some();
        Run::Now(Outcome::Detach(DetachedWork::new(move |checkpoints| {
            Box::pin(async move {
                if !is_resumed {
                    checkpoints.save(b"begun".to_vec()).await;
                    std::future::pending::<()>().await;
                }
                ToolResult::text("went on").into()
            })
        })))
    })
}

/// A client of 2025-11-25, which asks for a task in its call.
pub(super) async fn old_start(server: &Arc<Server>, tool: &str, ttl_ms: u64) -> String {
    let params = format!(r#"{{"name":"{tool}","task":{{"ttl":{ttl_ms}}}}}"#);
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let created = respond(server, &message).await;
    let task = created.root().get("result").and_then(|result| result.get("task"));
    let id = task.and_then(|task| Some(task.get("taskId")?.str()?.into_owned()));
    id.unwrap_or_else(|| panic!("a task: {}", created.text()))
}

async fn release(server: &Arc<Server>) {
    tokio::task::yield_now().await;
    server.release_tasks().await;
    server.close();
}

#[tokio::test]
async fn a_task_that_ends_soon_does_not_hide_those_that_go_on() {
    let cluster = Cluster::new();
    let one = cluster.start(vec![waiting_tool(task_tool("wait"))]);
    let long = old_start(&one, "wait", 3_600_000).await;
    old_start(&one, "wait", 1000).await;
    release(&one).await;
    cluster.platform.advance_ms(2000);
    let other = cluster.start(vec![waiting_tool(task_tool("wait"))]);
    let statuses = Arc::new(Statuses::default());
    other.set_observer(statuses.clone());
    other.resume_tasks().await;
    settle().await;
    assert_eq!(statuses.take(), ["wait: result"], "nobody asked for it");
    assert_eq!(member(&get(&other, &long).await, "status"), "completed");
}

#[tokio::test]
async fn tasks_are_continued_after_a_key_that_older_ones_were_kept_with_has_ended() {
    let cluster = Cluster::new();
    let one = cluster.start(vec![waiting_tool(task_tool("wait"))]);
    start_task(&one, "wait").await;
    cluster.keyring.rotate(0, &*cluster.platform).expect("keys of this run");
    let id = start_task(&one, "wait").await;
    release(&one).await;
    let other = cluster.start(vec![waiting_tool(task_tool("wait"))]);
    let statuses = Arc::new(Statuses::default());
    other.set_observer(statuses.clone());
    other.resume_tasks().await;
    settle().await;
    assert_eq!(statuses.take(), ["wait: result"], "nobody asked for it");
    assert_eq!(member(&get(&other, &id).await, "status"), "completed");
}

/// The caller was let in when the task was created: neither a limit nor what its protocol version says of tasks may stop
/// the task in another process.
#[tokio::test]
async fn a_task_that_is_continued_is_not_judged_again() {
    let rate_limit = Some(RateLimit { calls: 1, per_ms: 1000 });
    let tool =
        || Tool { task_support: TaskSupport::Required, rate_limit, ..Tool::new("wait", "", object_schema()) };
    let cluster = Cluster::new();
    let one = cluster.start(vec![waiting_tool(tool())]);
    let first = old_start(&one, "wait", 3_600_000).await;
    cluster.platform.advance_ms(1000);
    let second = old_start(&one, "wait", 3_600_000).await;
    release(&one).await;
    let other = cluster.start(vec![waiting_tool(tool())]);
    other.resume_tasks().await;
    for id in [first, second] {
        let done = get_when(&other, &id, "completed").await;
        assert!(done.text().contains("went on"), "{}", done.text());
    }
}

#[tokio::test]
async fn a_call_that_is_too_large_for_a_task_is_refused_with_that_reason() {
    let server = Cluster::new().start(vec![asking()]);
    let params = format!(r#""name":"ask","arguments":{{"note":"{}"}}"#, "x".repeat(1 << 20));
    let error = error_of(&respond(&server, &request("tools/call", &params)).await);
    assert!(error.contains("params.arguments") && error.contains("at most 1047552 bytes"), "{error}");
}

/// A store that answers later, as one on a disk does.
struct SlowStore {
    engine: Arc<dyn Store>,
    /// Whether writes wait.
    is_stuck: Arc<tokio::sync::watch::Sender<bool>>,
    /// Whether what waits is the reply, and not the write.
    keeps_replies: bool,
}

impl SlowStore {
    fn later<T: Send + Unpin + 'static>(
        &self,
        reply: impl FnOnce(&dyn Store) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let (engine, mut stuck) = (self.engine.clone(), self.is_stuck.subscribe());
        let keeps_replies = self.keeps_replies;
        Reply::later(async move {
            if keeps_replies {
                let replied = reply(&*engine).await;
                let _ = stuck.wait_for(|stuck| !stuck).await;
                return replied;
            }
            let _ = stuck.wait_for(|stuck| !stuck).await;
            reply(&*engine).await
        })
    }
}

impl Store for SlowStore {
    fn put_once(&self, key: StoreKey<'_>, value: &[u8], ttl: Ttl, now_ms: u64) -> Reply<PutOutcome> {
        let (namespace, owner, name) = (key.namespace, key.owner.to_vec(), key.name.to_vec());
        let value = value.to_vec();
        self.later(move |engine| {
            let key = StoreKey { namespace, owner: &owner, name: &name };
            engine.put_once(key, &value, ttl, now_ms)
        })
    }

    fn get(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        self.engine.get(key, now_ms)
    }

    fn take(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        self.engine.take(key, now_ms)
    }

    fn delete(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<bool> {
        self.engine.delete(key, now_ms)
    }

    fn append(
        &self,
        stream: StoreKey<'_>,
        value: &[u8],
        entries_max: usize,
        ttl: Ttl,
        now_ms: u64,
    ) -> Reply<Sequence> {
        let (namespace, owner, name) = (stream.namespace, stream.owner.to_vec(), stream.name.to_vec());
        let value = value.to_vec();
        self.later(move |engine| {
            let stream = StoreKey { namespace, owner: &owner, name: &name };
            engine.append(stream, &value, entries_max, ttl, now_ms)
        })
    }

    fn read_after(
        &self,
        stream: StoreKey<'_>,
        after: Sequence,
        entries_max: usize,
        now_ms: u64,
    ) -> Reply<Option<StreamPage>> {
        self.engine.read_after(stream, after, entries_max, now_ms)
    }

    fn lease(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<LeaseOutcome> {
        self.engine.lease(key, holder, ttl, now_ms)
    }

    fn renew(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<bool> {
        self.engine.renew(key, holder, ttl, now_ms)
    }

    fn release(&self, key: StoreKey<'_>, holder: &[u8], now_ms: u64) -> Reply<bool> {
        self.engine.release(key, holder, now_ms)
    }

    fn expire(&self, records_max: usize, now_ms: u64) -> Reply<usize> {
        self.engine.expire(records_max, now_ms)
    }
}

impl Cluster {
    /// A cluster whose store can be held up, and by what. Each write that waits listens to it.
    pub(super) fn with_slow_store() -> (Self, Arc<tokio::sync::watch::Sender<bool>>) {
        Self::with_slow(false)
    }

    /// A cluster whose store does what it is asked to at once, and says so later.
    pub(super) fn with_slow_replies() -> (Self, Arc<tokio::sync::watch::Sender<bool>>) {
        Self::with_slow(true)
    }

    fn with_slow(keeps_replies: bool) -> (Self, Arc<tokio::sync::watch::Sender<bool>>) {
        let (cluster, is_stuck) = (Self::new(), Arc::new(tokio::sync::watch::Sender::new(false)));
        let (engine, stuck) = (cluster.store.clone(), is_stuck.clone());
        let store = Arc::new(SlowStore { engine, is_stuck: stuck, keeps_replies });
        (Self { store, ..cluster }, is_stuck)
    }
}

/// Lets everything run that can.
pub(super) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_answer_and_a_cancellation_are_acknowledged_when_the_store_has_them() {
    let answer = r#""inputResponses":{"size":{"action":"accept","content":{"value":"large"}}}"#;
    for (method, params, end) in
        [("tasks/update", answer, "completed"), ("tasks/cancel", r#""x":1"#, "cancelled")]
    {
        let (cluster, is_stuck) = Cluster::with_slow_store();
        let one = cluster.start(vec![asking()]);
        let id = start_task(&one, "ask").await;
        get_when(&one, &id, "input_required").await;
        settle().await;
        is_stuck.send_replace(true);
        let message = request(method, &format!(r#""taskId":"{id}",{params}"#));
        let acknowledged = tokio::spawn({
            let one = one.clone();
            async move { respond(&one, &message).await }
        });
        settle().await;
        assert!(!acknowledged.is_finished(), "{method}: a process that is killed now would forget it");
        is_stuck.send_replace(false);
        let acknowledged = acknowledged.await.expect("no panic");
        assert!(!acknowledged.text().contains("error"), "{}", acknowledged.text());
        // As a process that is killed right after the acknowledgement.
        one.close();
        cluster.outlive_the_lease();
        let other = cluster.start(vec![asking()]);
        get_when(&other, &id, end).await;
    }
}

#[tokio::test]
async fn a_task_that_is_cancelled_before_its_creation_is_answered_never_runs() {
    let (cluster, is_stuck) = Cluster::with_slow_store();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let run = provider(vec![task_tool("run")], move |_, _| {
        let counted = counted.clone();
        Run::Now(Outcome::Detach(DetachedWork::from_future(async move {
            counted.fetch_add(1, Ordering::SeqCst);
            ToolResult::text("ran").into()
        })))
    });
    let one = cluster.start(vec![run.clone()]);
    let ada = CallerIdentity { principal: Principal::local("ada").expect("valid"), ..ANONYMOUS };
    let ask = |message: String| {
        let (one, ada) = (one.clone(), ada.clone());
        tokio::spawn(async move { respond_as(&one, &ada, &message).await })
    };
    is_stuck.send_replace(true);
    let created = ask(request("tools/call", r#""name":"run","arguments":{}"#));
    settle().await;
    let list = ask(r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#.into()).await.expect("no panic");
    let tasks = list.root().get("result").and_then(|result| result.get("tasks"));
    let listed = tasks.and_then(|tasks| Some(tasks.elements().next()?.get("taskId")?.str()?.into_owned()));
    let id = listed.unwrap_or_else(|| panic!("it exists: {}", list.text()));
    let cancelled = ask(request("tasks/cancel", &format!(r#""taskId":"{id}""#)));
    settle().await;
    is_stuck.send_replace(false);
    assert_eq!(member(&created.await.expect("no panic"), "taskId"), id);
    cancelled.await.expect("no panic");
    settle().await;
    let state = ask(request("tasks/get", &format!(r#""taskId":"{id}""#))).await.expect("no panic");
    assert_eq!(member(&state, "status"), "cancelled");
    // Nor in a later process.
    one.close();
    cluster.outlive_the_lease();
    let other = cluster.start(vec![run]);
    other.resume_tasks().await;
    settle().await;
    let message = request("tasks/get", &format!(r#""taskId":"{id}""#));
    assert_eq!(member(&respond_as(&other, &ada, &message).await, "status"), "cancelled");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn results_that_the_store_has_do_not_keep_other_callers_from_starting_tasks() {
    let config =
        Config::new("t", "1", Limits { tasks_max: 4, ..Limits::default() }, Arc::new(FakePlatform::new(1)));
    let server = Server::new(
        config,
        vec![provider(vec![task_tool("quick")], |_, _| {
            Run::Now(Outcome::Detach(DetachedWork::from_future(async { ToolResult::text("done").into() })))
        })],
    );
    let mut ids = Vec::new();
    for _ in 0..10 {
        // Nobody fetches the results.
        ids.push(start_task(&server, "quick").await);
        settle().await;
    }
    for id in ids {
        let done = get(&server, &id).await;
        assert!(done.text().contains("done"), "{}", done.text());
    }
}

#[tokio::test]
async fn a_continued_task_ends_if_its_tool_changed_while_it_waited() {
    let cluster = Cluster::new();
    let one = cluster.start(vec![asking()]);
    let id = start_task(&one, "ask").await;
    get_when(&one, &id, "input_required").await;
    release(&one).await;
    let other = cluster.start(vec![asking()]);
    get_when(&other, &id, "input_required").await;
    let changed = json::Json::parse(r#"{"type":"object","required":["sku"]}"#).expect("JSON");
    let tool = Tool { task_support: TaskSupport::Optional, ..Tool::new("ask", "", changed) };
    other.swap(ProviderSet {
        version: "2".into(),
        providers: vec![provider(vec![tool], |_, _| Run::now(ToolResult::text("no")))],
        call_timeout_ms: None,
        tool_order: Vec::new(),
    });
    let answer = r#""inputResponses":{"size":{"action":"accept","content":{"value":"large"}}}"#;
    respond(&other, &request("tasks/update", &format!(r#""taskId":"{id}",{answer}"#))).await;
    let failed = get_when(&other, &id, "failed").await;
    assert!(failed.text().contains("the tool changed while it waited"), "{}", failed.text());
}

/// The store is slow, and the process stops while it writes the end.
#[tokio::test]
async fn a_task_that_ends_while_its_process_stops_is_not_run_again() {
    let (cluster, is_stuck) = Cluster::with_slow_store();
    let (runs, statuses) = (Arc::new(AtomicUsize::new(0)), Arc::new(Statuses::default()));
    let (gate, counted) = (Arc::new(Notify::new()), runs.clone());
    let opened = gate.clone();
    let run = provider(vec![task_tool("run")], move |_, _| {
        let (counted, gate) = (counted.clone(), gate.clone());
        Run::Now(Outcome::Detach(DetachedWork::from_future(async move {
            gate.notified().await;
            counted.fetch_add(1, Ordering::SeqCst);
            ToolResult::text("ran").into()
        })))
    });
    let one = cluster.start(vec![run.clone()]);
    one.set_observer(statuses.clone());
    let id = start_task(&one, "run").await;
    settle().await;
    is_stuck.send_replace(true);
    opened.notify_one();
    settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let stopped = tokio::spawn({
        let one = one.clone();
        async move { one.release_tasks().await }
    });
    settle().await;
    is_stuck.send_replace(false);
    stopped.await.expect("no panic");
    one.close();
    assert_eq!(statuses.take(), ["run: task", "run: result"]);
    opened.notify_one();
    let other = cluster.start(vec![run]);
    other.resume_tasks().await;
    let done = get_when(&other, &id, "completed").await;
    assert!(done.text().contains("ran"), "{}", done.text());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
