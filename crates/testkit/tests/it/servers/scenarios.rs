//! What the client does with each server, and the expected results.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use json::Json;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use upstream::{
    ClientHandler, Connection, ConnectionEvent, Direction, ProgressCallback, TraceEvent, TraceSink,
};
use wire::client::{ClientCall, ClientError, IncomingInputRequest, InputReply, InputRequestKind};
use wire::method::Method;
use wire::{Feature, ListKind, NotificationFilter, Version};

use super::{Behavior, Sdk, TransportKind};

/// Longer than anything takes: a scenario that hangs is named.
const TIMEOUT: Duration = Duration::from_secs(60);

const TOOLS: [&str; 11] =
    ["add", "fail", "progress", "log", "ask", "sample", "roots", "change", "wait", "was_cancelled", "die"];

pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(TIMEOUT, work).await.map_err(|_| format!("{what}: not done within {TIMEOUT:?}"))
}

/// Runs all scenarios on one connection.
pub async fn run_all(
    sdk: Sdk,
    transport: TransportKind,
    version: Version,
    server: &Connection,
    handler: &RecordingHandler,
    tap: &RecordingTap,
) -> Result<(), String> {
    let grants = |behavior| sdk.supports(behavior, transport, version);
    within("pages", pages(server, tap)).await??;
    run_granted(version, server, handler, &grants).await
}

/// Runs the scenarios whose behaviour is granted. Whether the server is there itself, or a gateway before it, is the same.
pub async fn run_granted(
    version: Version,
    server: &Connection,
    handler: &RecordingHandler,
    grants: &dyn Fn(Behavior) -> bool,
) -> Result<(), String> {
    within("greeting", greeting(server, version)).await??;
    within("tools", tools(server, version)).await??;
    within("calling", calls(server, version)).await??;
    within("failing", failures(server)).await??;
    within("resources", resources(server)).await??;
    within("prompts", prompts(server)).await??;
    if grants(Behavior::Progress) {
        within("progress", progress(server, version)).await??;
        within("log", log(server, handler)).await??;
    }
    if grants(Behavior::InputRequests) {
        within("questions", questions(server, handler, version)).await??;
    }
    if grants(Behavior::Changes) {
        within("changes", changes(server, handler)).await??;
    }
    if grants(Behavior::Cancellation) {
        within("cancelling", cancelling(server)).await??;
    }
    let pong = within("ping", server.ping(None)).await?;
    pong.map_err(|reason| format!("ping: {reason}"))?;
    match handler.warnings() {
        odd if odd.is_empty() => Ok(()),
        odd => Err(format!("not as it should be: {odd:?}")),
    }
}

async fn greeting(server: &Connection, version: Version) -> Result<(), String> {
    let greeting = server.server_info();
    expect_same("version", &greeting.protocol_version, &version)?;
    expect_same("name", &*greeting.name, "official")?;
    expect_same("its version", &*greeting.server_version, "1.2.3")?;
    expect_same("instructions", &greeting.instructions.as_deref(), &Some("for tests"))?;
    for capability in ["tools", "resources", "prompts", "logging"] {
        expect_same(capability, &server.has_capability(capability), &true)?;
    }
    Ok(())
}

async fn pages(server: &Connection, tap: &RecordingTap) -> Result<(), String> {
    list(server, ListKind::Tools).await?;
    expect_same("pages", &tap.request_count("tools/list"), &3)
}

async fn tools(server: &Connection, version: Version) -> Result<(), String> {
    let tools = list(server, ListKind::Tools).await?;
    let names: BTreeSet<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    expect_same("tools", &names, &BTreeSet::from(TOOLS))?;
    let add = tools.iter().find(|tool| tool["name"] == "add").ok_or("no `add`")?;
    expect_same("a type", &add["inputSchema"]["properties"]["a"]["type"], &json!("integer"))?;
    if version.has(Feature::StructuredContent) {
        expect_same(
            "the type of a result",
            &add["outputSchema"]["properties"]["sum"]["type"],
            &json!("integer"),
        )?;
    }
    Ok(())
}

async fn calls(server: &Connection, version: Version) -> Result<(), String> {
    let add = |a: u32| async move {
        let result = call_result(server, "add", &format!(r#"{{"a":{a},"b":100}}"#)).await?;
        expect_same("isError", &result["isError"].as_bool().unwrap_or(false), &false)?;
        if version.has(Feature::StructuredContent) {
            return expect_same("structured", &result["structuredContent"], &json!({ "sum": a + 100 }));
        }
        let text = text(&result)?;
        let has_sum = text.contains(&(a + 100).to_string());
        if has_sum { Ok(()) } else { Err(format!("`{text}` is no sum")) }
    };
    add(0).await?;
    // Several calls at once, each with its own result.
    tokio::try_join!(add(1), add(2), add(3), add(4), add(5), add(6), add(7), add(8)).map(drop)
}

async fn failures(server: &Connection) -> Result<(), String> {
    let result = call_result(server, "fail", "{}").await?;
    expect_same("isError", &result["isError"], &json!(true))?;
    let said = text(&result)?;
    if !said.contains("on purpose") {
        return Err(format!("`{said}` is not what the tool said"));
    }
    // Some SDKs answer these with an error, some with an error result.
    for (name, arguments) in [("no_such_tool", "{}"), ("add", r#"{"a":"x","b":1}"#)] {
        match tool(server, name, arguments).await {
            Err(ClientError::Server(told)) if !told.message.is_empty() => {}
            Ok(result) if value(&result)["isError"] == true => {}
            other => return Err(format!("`{name}` with {arguments}: {other:?}")),
        }
    }
    match read(server, "test://nowhere").await {
        Err(ClientError::Server(told)) if !told.message.is_empty() => Ok(()),
        other => Err(format!("an unknown resource: {other:?}")),
    }
}

async fn progress(server: &Connection, version: Version) -> Result<(), String> {
    let seen: Arc<Mutex<Vec<upstream::Progress>>> = Arc::default();
    let follow: ProgressCallback = {
        let seen = seen.clone();
        Arc::new(move |progress| lock(&seen).push(progress))
    };
    let result = server.call(tool_call("progress", "{}"), Some(follow)).await;
    expect_same("result", &text(&value(&result.map_err(|reason| reason.to_string())?))?, &"done".to_owned())?;
    let seen = lock(&seen);
    let steps: Vec<(f64, Option<f64>)> = seen.iter().map(|step| (step.progress, step.total)).collect();
    expect_same("steps", &steps, &vec![(1.0, Some(3.0)), (2.0, Some(3.0)), (3.0, Some(3.0))])?;
    let first = seen.first().and_then(|step| step.message.as_deref());
    // Earlier versions have no message field; some servers send it all the same.
    if version.has(Feature::ProgressMessage) || first.is_some() {
        expect_same("message", &first, &Some("step 1"))?;
    }
    Ok(())
}

async fn log(server: &Connection, handler: &RecordingHandler) -> Result<(), String> {
    server.set_log_level(spile_core::LogLevel::Warning);
    expect_same("result", &call_text(server, "log", "{}").await?, &"done".to_owned())?;
    handler.wait_for(r#"log warning desk {"careful":true}"#).await;
    Ok(())
}

async fn questions(server: &Connection, handler: &RecordingHandler, version: Version) -> Result<(), String> {
    let mut expected = vec!["Sampling the capital?", "Roots "];
    expect_same("sampled", &call_text(server, "sample", "{}").await?, &"Paris".to_owned())?;
    expect_same("roots", &call_text(server, "roots", "{}").await?, &"file:///srv/desk".to_owned())?;
    if version.has(Feature::Elicitation) {
        expect_same("asked", &call_text(server, "ask", "{}").await?, &"hello ada".to_owned())?;
        expected.push("Elicitation who are you?");
    }
    let asked = std::mem::take(&mut *lock(&handler.requests));
    expect_same("questions", &asked.iter().map(String::as_str).collect::<Vec<_>>(), &expected)
}

async fn resources(server: &Connection) -> Result<(), String> {
    let listed = list(server, ListKind::Resources).await?;
    let uris: BTreeSet<&str> = listed.iter().filter_map(|item| item["uri"].as_str()).collect();
    expect_same("resources", &uris, &BTreeSet::from(["test://one", "test://blob"]))?;
    let templates = list(server, ListKind::Templates).await?;
    let uris: Vec<&str> = templates.iter().filter_map(|item| item["uriTemplate"].as_str()).collect();
    expect_same("templates", &uris, &vec!["test://item/{id}"])?;
    for (uri, key, expected) in
        [("test://one", "text", "one"), ("test://blob", "blob", "AAEC"), ("test://item/7", "text", "item 7")]
    {
        let read = read(server, uri).await.map_err(|reason| format!("{uri}: {reason}"))?;
        expect_same(uri, &value(&read)["contents"][0][key], &json!(expected))?;
    }
    Ok(())
}

async fn prompts(server: &Connection) -> Result<(), String> {
    let listed = list(server, ListKind::Prompts).await?;
    expect_same("prompts", &listed.len(), &1)?;
    expect_same("prompt", &listed[0]["name"], &json!("greet"))?;
    expect_same("its argument", &listed[0]["arguments"][0]["name"], &json!("who"))?;
    let got =
        send_request(server, Method::PromptsGet, r#"{"name":"greet","arguments":{"who":"ada"}}"#).await?;
    expect_same("message", &got["messages"][0]["content"]["text"], &json!("hello ada"))?;
    let reference = r#"{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"a"}}"#;
    let completed = send_request(server, Method::Complete, reference).await?;
    expect_same("completion", &completed["completion"]["values"], &json!(["ada", "alan"]))
}

async fn changes(server: &Connection, handler: &RecordingHandler) -> Result<(), String> {
    let uris = vec!["test://one".to_owned()];
    let filter = NotificationFilter {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        resource_uris: uris,
        ..NotificationFilter::default()
    };
    let subscription = server.subscribe(&filter).await.map_err(|reason| format!("listening: {reason}"))?;
    let granted = &subscription.granted;
    expect_same(
        "granted",
        &(granted.tools_list_changed, granted.prompts_list_changed, granted.resources_list_changed),
        &(true, true, true),
    )?;
    expect_same("granted", &granted.resource_uris, &filter.resource_uris)?;
    expect_same("result", &call_text(server, "change", "{}").await?, &"done".to_owned())?;
    for change in ["Tools", "Prompts", "Resources", r#"Resource("test://one")"#] {
        handler.wait_for(&format!("changed {change}")).await;
    }
    Ok(())
}

/// The call is cancelled once it has started, and the server notices.
async fn cancelling(server: &Connection) -> Result<(), String> {
    let (begun, beginning) = oneshot::channel();
    let begun = Mutex::new(Some(begun));
    let follow: ProgressCallback = Arc::new(move |_| {
        if let Some(begun) = lock(&begun).take() {
            let _ = begun.send(());
        }
    });
    tokio::select! {
        ended = server.call(tool_call("wait", "{}"), Some(follow)) => {
            return Err(format!("`wait` did not wait: {ended:?}"));
        }
        _ = beginning => {}
    }
    expect_same("cancelled", &call_text(server, "was_cancelled", "{}").await?, &"yes".to_owned())
}

// Short forms of calls.

fn tool_call(name: &str, arguments: &str) -> ClientCall {
    let params = Json::object(|params| {
        params.str("name", name).raw("arguments", arguments);
    });
    ClientCall::new(Method::ToolsCall, params)
}

pub async fn tool(server: &Connection, name: &str, arguments: &str) -> Result<Json, ClientError> {
    server.call(tool_call(name, arguments), None).await
}

async fn call_result(server: &Connection, name: &str, arguments: &str) -> Result<Value, String> {
    let result = tool(server, name, arguments).await;
    result.map(|result| value(&result)).map_err(|reason| format!("{name}: {reason}"))
}

/// The text of a successful result.
async fn call_text(server: &Connection, name: &str, arguments: &str) -> Result<String, String> {
    let result = call_result(server, name, arguments).await?;
    match result["isError"].as_bool() {
        Some(true) => Err(format!("{name} failed: {result}")),
        Some(false) | None => text(&result),
    }
}

async fn send_request(server: &Connection, method: Method, params: &str) -> Result<Value, String> {
    let params = Json::parse(params).expect("written here");
    let result = server.call(ClientCall::new(method, params), None).await;
    result.map(|result| value(&result)).map_err(|reason| format!("{}: {reason}", method.as_str()))
}

async fn read(server: &Connection, uri: &str) -> Result<Json, ClientError> {
    let params = Json::object(|params| {
        params.str("uri", uri);
    });
    server.call(ClientCall::new(Method::ResourcesRead, params), None).await
}

async fn list(server: &Connection, list: ListKind) -> Result<Vec<Value>, String> {
    let items = server.list(list, None).await.map_err(|reason| format!("{}: {reason}", list.result_key()))?;
    Ok(items.iter().map(value).collect())
}

fn value(json: &Json) -> Value {
    serde_json::from_str(json.as_str()).expect("JSON is JSON")
}

fn text(result: &Value) -> Result<String, String> {
    let text = result["content"][0]["text"].as_str();
    text.map(str::to_owned).ok_or_else(|| format!("no text: {result}"))
}

fn expect_same<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers requests and records events.
pub struct RecordingHandler {
    requests: Mutex<Vec<String>>,
    events: Mutex<Vec<String>>,
    event_notify: Notify,
}

impl RecordingHandler {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { requests: Mutex::default(), events: Mutex::default(), event_notify: Notify::new() })
    }

    /// Waits for an event, and removes it.
    async fn wait_for(&self, wanted: &str) {
        while !self.take_event(wanted) {
            self.event_notify.notified().await;
        }
    }

    fn take_event(&self, wanted: &str) -> bool {
        let mut heard = lock(&self.events);
        let at = heard.iter().position(|said| said == wanted);
        at.map(|at| heard.remove(at)).is_some()
    }

    fn warnings(&self) -> Vec<String> {
        let heard = lock(&self.events);
        heard.iter().filter(|said| said.starts_with("odd") || said.starts_with("over")).cloned().collect()
    }
}

impl ClientHandler for RecordingHandler {
    fn on_input_request(
        &self,
        question: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let params = value(&question.params);
        let (about, answer) = match question.kind {
            InputRequestKind::Roots => (Value::from(""), json!({ "roots": [{ "uri": "file:///srv/desk" }] })),
            InputRequestKind::Sampling => (
                params["messages"][0]["content"]["text"].clone(),
                json!({
                    "role": "assistant",
                    "content": { "type": "text", "text": "Paris" },
                    "model": "none",
                    "stopReason": "endTurn",
                }),
            ),
            InputRequestKind::Elicitation => {
                (params["message"].clone(), json!({ "action": "accept", "content": { "name": "ada" } }))
            }
        };
        lock(&self.requests).push(format!("{:?} {}", question.kind, about.as_str().unwrap_or_default()));
        let answer = Json::parse(&answer.to_string()).expect("written above");
        Box::pin(async { InputReply::Result(answer) })
    }

    fn on_event(&self, event: ConnectionEvent) {
        let said = match event {
            ConnectionEvent::Log { level, logger, data, .. } => {
                format!("log {level} {} {data}", logger.unwrap_or_default())
            }
            ConnectionEvent::CatalogChanged(change) => format!("changed {change:?}"),
            ConnectionEvent::ElicitationCompleted(id) => format!("completed {id}"),
            ConnectionEvent::ProtocolWarning(what) => format!("odd {what}"),
            ConnectionEvent::Reinitialized(greeting) => format!("odd greeted again: {greeting:?}"),
            ConnectionEvent::Closed(reason) => format!("over {reason}"),
            ConnectionEvent::Stderr(line) => format!("stderr {line}"),
        };
        lock(&self.events).push(said);
        self.event_notify.notify_one();
    }
}

/// Counts the traffic.
pub struct RecordingTap(Mutex<Vec<String>>);

impl RecordingTap {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// The number of requests with this method.
    fn request_count(&self, method: &str) -> usize {
        let wanted = format!(r#""method":"{method}""#);
        lock(&self.0).iter().filter(|line| line.contains(&wanted)).count()
    }

    pub fn session_ended(&self) -> Result<(), String> {
        let lines = lock(&self.0);
        let asked = lines.iter().position(|line| line.starts_with("DELETE"));
        let answer = asked.and_then(|at| lines.get(at + 1)).map(String::as_str).unwrap_or("nothing");
        let is_taken = ["HTTP/1.1 200", "HTTP/1.1 202", "HTTP/1.1 204"];
        match is_taken.iter().any(|status| answer.starts_with(status)) {
            true => Ok(()),
            false => Err(format!("the session was not ended: {asked:?}, {answer}")),
        }
    }
}

impl TraceSink for RecordingTap {
    fn record(&self, seen: TraceEvent<'_>) {
        match seen {
            TraceEvent::Message { direction: Direction::Out, message, .. } => {
                lock(&self.0).push(String::from_utf8_lossy(message).into_owned());
            }
            TraceEvent::Head { head, .. } => lock(&self.0).push(head.to_owned()),
            TraceEvent::Message { .. }
            | TraceEvent::Opened(_)
            | TraceEvent::Bytes { .. }
            | TraceEvent::Stderr(_)
            | TraceEvent::InputClosed
            | TraceEvent::Ended(_) => {}
        }
    }
}
