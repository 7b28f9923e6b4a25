//! What a visitor does at the desk, and what must come of it.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use json::Json;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use upstream::{Company, Connection, Direction, Follow, News, Seen, Tap};
use wire::client::{Answer, Asked, Call, Failure, Question};
use wire::method::Method;
use wire::{Feature, Filter, List, Version};

use super::{Door, Sdk, Wish};

/// Longer than anything takes: whatever hangs is named.
const PATIENCE: Duration = Duration::from_secs(60);

const TOOLS: [&str; 11] =
    ["add", "fail", "progress", "log", "ask", "sample", "roots", "change", "wait", "was_cancelled", "die"];

pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, work).await.map_err(|_| format!("{what}: not done within {PATIENCE:?}"))
}

/// Everything, in one conversation.
pub async fn all(
    sdk: Sdk,
    door: Door,
    version: Version,
    server: &Connection,
    visitor: &Visitor,
    watch: &Watch,
) -> Result<(), String> {
    let grants = |wish| sdk.grants(wish, door, version);
    within("greeting", greeting(server, version)).await??;
    within("tools", tools(server, watch, version)).await??;
    within("calling", calls(server, version)).await??;
    within("failing", failures(server)).await??;
    within("resources", resources(server)).await??;
    within("prompts", prompts(server)).await??;
    if grants(Wish::Progress) {
        within("progress", progress(server, version)).await??;
        within("log", log(server, visitor)).await??;
    }
    if grants(Wish::Questions) {
        within("questions", questions(server, visitor, version)).await??;
    }
    if grants(Wish::Changes) {
        within("changes", changes(server, visitor)).await??;
    }
    if grants(Wish::Cancelling) {
        within("cancelling", cancelling(server)).await??;
    }
    let pong = within("ping", server.ping(None)).await?;
    pong.map_err(|why| format!("ping: {why}"))?;
    match visitor.odd() {
        odd if odd.is_empty() => Ok(()),
        odd => Err(format!("not as it should be: {odd:?}")),
    }
}

async fn greeting(server: &Connection, version: Version) -> Result<(), String> {
    let greeting = server.greeting();
    same("version", &greeting.version, &version)?;
    same("name", &*greeting.name, "official")?;
    same("its version", &*greeting.server_version, "1.2.3")?;
    same("instructions", &greeting.instructions.as_deref(), &Some("for tests"))?;
    for capability in ["tools", "resources", "prompts", "logging"] {
        same(capability, &server.offers(capability), &true)?;
    }
    Ok(())
}

async fn tools(server: &Connection, watch: &Watch, version: Version) -> Result<(), String> {
    let tools = list(server, List::Tools).await?;
    let names: BTreeSet<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    same("tools", &names, &BTreeSet::from(TOOLS))?;
    same("pages", &watch.sent("tools/list"), &3)?;
    let add = tools.iter().find(|tool| tool["name"] == "add").ok_or("no `add`")?;
    same("a type", &add["inputSchema"]["properties"]["a"]["type"], &json!("integer"))?;
    if version.has(Feature::StructuredContent) {
        same("the type of a result", &add["outputSchema"]["properties"]["sum"]["type"], &json!("integer"))?;
    }
    Ok(())
}

async fn calls(server: &Connection, version: Version) -> Result<(), String> {
    let add = |a: u32| async move {
        let result = called(server, "add", &format!(r#"{{"a":{a},"b":100}}"#)).await?;
        same("isError", &result["isError"].as_bool().unwrap_or(false), &false)?;
        if version.has(Feature::StructuredContent) {
            return same("structured", &result["structuredContent"], &json!({ "sum": a + 100 }));
        }
        let text = text(&result)?;
        let has_sum = text.contains(&(a + 100).to_string());
        if has_sum { Ok(()) } else { Err(format!("`{text}` is no sum")) }
    };
    add(0).await?;
    // Several at once, and each gets its own answer.
    tokio::try_join!(add(1), add(2), add(3), add(4), add(5), add(6), add(7), add(8)).map(drop)
}

async fn failures(server: &Connection) -> Result<(), String> {
    let result = called(server, "fail", "{}").await?;
    same("isError", &result["isError"], &json!(true))?;
    let said = text(&result)?;
    if !said.contains("on purpose") {
        return Err(format!("`{said}` is not what the tool said"));
    }
    // Some SDKs answer these with an error, some with a result that is one.
    for (name, arguments) in [("no_such_tool", "{}"), ("add", r#"{"a":"x","b":1}"#)] {
        match tool(server, name, arguments).await {
            Err(Failure::Told(told)) if !told.message.is_empty() => {}
            Ok(result) if value(&result)["isError"] == true => {}
            other => return Err(format!("`{name}` with {arguments}: {other:?}")),
        }
    }
    match read(server, "test://nowhere").await {
        Err(Failure::Told(told)) if !told.message.is_empty() => Ok(()),
        other => Err(format!("an unknown resource: {other:?}")),
    }
}

async fn progress(server: &Connection, version: Version) -> Result<(), String> {
    let seen: Arc<Mutex<Vec<upstream::Progress>>> = Arc::default();
    let follow: Follow = {
        let seen = seen.clone();
        Arc::new(move |progress| lock(&seen).push(progress))
    };
    let result = server.call(tool_call("progress", "{}"), Some(follow)).await;
    same("result", &text(&value(&result.map_err(|why| why.to_string())?))?, &"done".to_owned())?;
    let seen = lock(&seen);
    let steps: Vec<(f64, Option<f64>)> = seen.iter().map(|step| (step.progress, step.total)).collect();
    same("steps", &steps, &vec![(1.0, Some(3.0)), (2.0, Some(3.0)), (3.0, Some(3.0))])?;
    let first = seen.first().and_then(|step| step.message.as_deref());
    // Earlier versions have no word for it; some servers say it all the same.
    if version.has(Feature::ProgressMessage) || first.is_some() {
        same("message", &first, &Some("step 1"))?;
    }
    Ok(())
}

async fn log(server: &Connection, visitor: &Visitor) -> Result<(), String> {
    server.set_level(call::Level::Warning);
    same("result", &said(server, "log", "{}").await?, &"done".to_owned())?;
    visitor.hears(r#"log warning desk {"careful":true}"#).await;
    Ok(())
}

async fn questions(server: &Connection, visitor: &Visitor, version: Version) -> Result<(), String> {
    let mut expected = vec!["Sampling the capital?", "Roots "];
    same("sampled", &said(server, "sample", "{}").await?, &"Paris".to_owned())?;
    same("roots", &said(server, "roots", "{}").await?, &"file:///srv/desk".to_owned())?;
    if version.has(Feature::Elicitation) {
        same("asked", &said(server, "ask", "{}").await?, &"hello ada".to_owned())?;
        expected.push("Elicitation who are you?");
    }
    let asked = std::mem::take(&mut *lock(&visitor.asked));
    same("questions", &asked.iter().map(String::as_str).collect::<Vec<_>>(), &expected)
}

async fn resources(server: &Connection) -> Result<(), String> {
    let listed = list(server, List::Resources).await?;
    let uris: BTreeSet<&str> = listed.iter().filter_map(|item| item["uri"].as_str()).collect();
    same("resources", &uris, &BTreeSet::from(["test://one", "test://blob"]))?;
    let templates = list(server, List::Templates).await?;
    let uris: Vec<&str> = templates.iter().filter_map(|item| item["uriTemplate"].as_str()).collect();
    same("templates", &uris, &vec!["test://item/{id}"])?;
    for (uri, key, expected) in
        [("test://one", "text", "one"), ("test://blob", "blob", "AAEC"), ("test://item/7", "text", "item 7")]
    {
        let read = read(server, uri).await.map_err(|why| format!("{uri}: {why}"))?;
        same(uri, &value(&read)["contents"][0][key], &json!(expected))?;
    }
    Ok(())
}

async fn prompts(server: &Connection) -> Result<(), String> {
    let listed = list(server, List::Prompts).await?;
    same("prompts", &listed.len(), &1)?;
    same("prompt", &listed[0]["name"], &json!("greet"))?;
    same("its argument", &listed[0]["arguments"][0]["name"], &json!("who"))?;
    let got = ask(server, Method::PromptsGet, r#"{"name":"greet","arguments":{"who":"ada"}}"#).await?;
    same("message", &got["messages"][0]["content"]["text"], &json!("hello ada"))?;
    let reference = r#"{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"a"}}"#;
    let completed = ask(server, Method::Complete, reference).await?;
    same("completion", &completed["completion"]["values"], &json!(["ada", "alan"]))
}

async fn changes(server: &Connection, visitor: &Visitor) -> Result<(), String> {
    let uris = vec!["test://one".to_owned()];
    let filter = Filter { tools: true, prompts: true, resources: true, uris, ..Filter::default() };
    let subscription = server.listen(&filter).await.map_err(|why| format!("listening: {why}"))?;
    let granted = &subscription.granted;
    same("granted", &(granted.tools, granted.prompts, granted.resources), &(true, true, true))?;
    same("granted", &granted.uris, &filter.uris)?;
    same("result", &said(server, "change", "{}").await?, &"done".to_owned())?;
    for change in ["Tools", "Prompts", "Resources", r#"Resource("test://one")"#] {
        visitor.hears(&format!("changed {change}")).await;
    }
    Ok(())
}

/// The call is given up when it has begun, and the server notices.
async fn cancelling(server: &Connection) -> Result<(), String> {
    let (begun, beginning) = oneshot::channel();
    let begun = Mutex::new(Some(begun));
    let follow: Follow = Arc::new(move |_| {
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
    same("cancelled", &said(server, "was_cancelled", "{}").await?, &"yes".to_owned())
}

// Calls, short.

fn tool_call(name: &str, arguments: &str) -> Call {
    let params = Json::object(|params| {
        params.str("name", name).raw("arguments", arguments);
    });
    Call::new(Method::ToolsCall, params)
}

pub async fn tool(server: &Connection, name: &str, arguments: &str) -> Result<Json, Failure> {
    server.call(tool_call(name, arguments), None).await
}

async fn called(server: &Connection, name: &str, arguments: &str) -> Result<Value, String> {
    let result = tool(server, name, arguments).await;
    result.map(|result| value(&result)).map_err(|why| format!("{name}: {why}"))
}

/// What a tool says that does not fail.
async fn said(server: &Connection, name: &str, arguments: &str) -> Result<String, String> {
    let result = called(server, name, arguments).await?;
    match result["isError"].as_bool() {
        Some(true) => Err(format!("{name} failed: {result}")),
        Some(false) | None => text(&result),
    }
}

async fn ask(server: &Connection, method: Method, params: &str) -> Result<Value, String> {
    let params = Json::parse(params).expect("written here");
    let result = server.call(Call::new(method, params), None).await;
    result.map(|result| value(&result)).map_err(|why| format!("{}: {why}", method.as_str()))
}

async fn read(server: &Connection, uri: &str) -> Result<Json, Failure> {
    let params = Json::object(|params| {
        params.str("uri", uri);
    });
    server.call(Call::new(Method::ResourcesRead, params), None).await
}

async fn list(server: &Connection, list: List) -> Result<Vec<Value>, String> {
    let items = server.list(list, None).await.map_err(|why| format!("{}: {why}", list.key()))?;
    Ok(items.iter().map(value).collect())
}

fn value(json: &Json) -> Value {
    serde_json::from_str(json.as_str()).expect("JSON is JSON")
}

fn text(result: &Value) -> Result<String, String> {
    let text = result["content"][0]["text"].as_str();
    text.map(str::to_owned).ok_or_else(|| format!("no text: {result}"))
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers what it is asked, and remembers what it heard.
pub struct Visitor {
    asked: Mutex<Vec<String>>,
    heard: Mutex<Vec<String>>,
    news: Notify,
}

impl Visitor {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { asked: Mutex::default(), heard: Mutex::default(), news: Notify::new() })
    }

    /// Waits for something to be said, however it came; once it is heard it is forgotten.
    async fn hears(&self, wanted: &str) {
        while !self.heard_already(wanted) {
            self.news.notified().await;
        }
    }

    fn heard_already(&self, wanted: &str) -> bool {
        let mut heard = lock(&self.heard);
        let at = heard.iter().position(|said| said == wanted);
        at.map(|at| heard.remove(at)).is_some()
    }

    fn odd(&self) -> Vec<String> {
        let heard = lock(&self.heard);
        heard.iter().filter(|said| said.starts_with("odd") || said.starts_with("over")).cloned().collect()
    }
}

impl Company for Visitor {
    fn asked(&self, question: Question) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let params = value(&question.params);
        let (about, answer) = match question.kind {
            Asked::Roots => (Value::from(""), json!({ "roots": [{ "uri": "file:///srv/desk" }] })),
            Asked::Sampling => (
                params["messages"][0]["content"]["text"].clone(),
                json!({
                    "role": "assistant",
                    "content": { "type": "text", "text": "Paris" },
                    "model": "none",
                    "stopReason": "endTurn",
                }),
            ),
            Asked::Elicitation => {
                (params["message"].clone(), json!({ "action": "accept", "content": { "name": "ada" } }))
            }
        };
        lock(&self.asked).push(format!("{:?} {}", question.kind, about.as_str().unwrap_or_default()));
        let answer = Json::parse(&answer.to_string()).expect("written above");
        Box::pin(async { Answer::Given(answer) })
    }

    fn heard(&self, news: News) {
        let said = match news {
            News::Log { level, logger, data } => {
                format!("log {level} {} {data}", logger.unwrap_or_default())
            }
            News::Changed(change) => format!("changed {change:?}"),
            News::Odd(what) => format!("odd {what}"),
            News::Again(greeting) => format!("odd greeted again: {greeting:?}"),
            News::Over(why) => format!("over {why}"),
        };
        lock(&self.heard).push(said);
        self.news.notify_one();
    }
}

/// Counts what goes by.
pub struct Watch(Mutex<Vec<String>>);

impl Watch {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// How many requests of a kind were made.
    fn sent(&self, method: &str) -> usize {
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

impl Tap for Watch {
    fn saw(&self, seen: Seen<'_>) {
        match seen {
            Seen::Frame { direction: Direction::Out, message, .. } => {
                lock(&self.0).push(String::from_utf8_lossy(message).into_owned());
            }
            Seen::Head { head, .. } => lock(&self.0).push(head.to_owned()),
            Seen::Frame { .. }
            | Seen::Opened(_)
            | Seen::Bytes { .. }
            | Seen::Stderr(_)
            | Seen::InputClosed
            | Seen::Ended(_) => {}
        }
    }
}
