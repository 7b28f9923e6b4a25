//! A provider that does what a test tells it to, and tells the test what became of it.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call::{Ask, Asks, Call, Catalog, Cx, Emit, Fault, Outcome, Provider, Run, Thing, Tool, ToolReply};
use json::Json;
use tokio::sync::Semaphore;

use crate::kit::AT_MOST;

/// What happened to a call, by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Started(String),
    /// It came to its own end.
    Ended(String),
    /// It was dropped on the way.
    Dropped(String),
}

pub(crate) struct Stand {
    says: SyncSender<Seen>,
    seen: Mutex<Receiver<Seen>>,
    gates: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for Stand {
    fn default() -> Self {
        let (says, seen) = sync_channel(1 << 16);
        Self { says, seen: Mutex::new(seen), gates: Mutex::default() }
    }
}

/// Each takes a `key`; one that waits goes on when the test lets that key go.
const TOOLS: [(&str, &str); 7] = [
    ("hold", "waits once, then answers"),
    ("talk", "reports progress `steps` times, waiting before each and before the end"),
    ("flood", "reports progress `steps` times with a message of `bytes`, then waits, then answers"),
    ("big", "answers with `bytes` bytes"),
    ("quiz", "asks for a name"),
    ("boom", "panics at once"),
    ("boom_later", "panics on the way"),
];

impl Stand {
    /// Waits for the next thing that happens.
    pub(crate) fn next(&self) -> Seen {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.recv_timeout(AT_MOST).expect("something happens in time")
    }

    pub(crate) fn expect(&self, expected: &Seen) {
        assert_eq!(self.next(), *expected);
    }

    pub(crate) fn started(&self, key: &str) {
        self.expect(&Seen::Started(key.into()));
    }

    pub(crate) fn ended(&self, key: &str) {
        self.expect(&Seen::Ended(key.into()));
    }

    pub(crate) fn dropped(&self, key: &str) {
        self.expect(&Seen::Dropped(key.into()));
    }

    /// Nothing has happened that nobody asked about.
    pub(crate) fn is_quiet(&self) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let next = seen.recv_timeout(Duration::ZERO);
        assert_eq!(next, Err(RecvTimeoutError::Timeout));
    }

    /// Lets calls with this key go on so many times.
    pub(crate) fn let_go(&self, key: &str, times: usize) {
        self.gate(key).add_permits(times);
    }

    fn gate(&self, key: &str) -> Arc<Semaphore> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(key.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))).clone()
    }
}

impl Provider for Stand {
    fn catalog(&self) -> Arc<Catalog> {
        let input = || Json::parse(r#"{"type":"object"}"#).expect("a schema");
        let tools = TOOLS.iter().map(|(name, about)| Tool::new(name, about, input())).collect();
        Arc::new(Catalog { tools, ..Catalog::default() })
    }

    fn run(&self, call: &Call, cx: &Cx<'_>) -> Run {
        let key = call.text("key").unwrap_or_default().into_owned();
        let number = |name: &str| {
            let number = call.arguments().and_then(|a| a.get(name)).and_then(|n| n.u64());
            usize::try_from(number.unwrap_or(0)).expect("a small number")
        };
        let (steps, bytes) = (number("steps"), number("bytes"));
        let (emit, gate) = (cx.emit.clone(), self.gate(&key));
        let start = || Watched::start(&key, &self.says);
        match call.name().as_ref() {
            "hold" => Run::later(hold(start(), gate)),
            "talk" => Run::later(talk(start(), gate, emit, steps)),
            "flood" => Run::later(flood(start(), gate, emit, steps, bytes)),
            "big" => Run::now(ToolReply::text("x".repeat(bytes))),
            "quiz" => Run::Now(quiz(cx)),
            "boom" => panic!("a handler panics, as the test wants"),
            "boom_later" => Run::later(async {
                tokio::task::yield_now().await;
                panic!("a handler panics, as the test wants")
            }),
            other => Run::now(Fault::Unknown { what: Thing::Tool, name: other.to_owned() }),
        }
    }
}

async fn pass(gate: &Semaphore) {
    gate.acquire().await.expect("a gate is never closed").forget();
}

async fn hold(watched: Watched, gate: Arc<Semaphore>) -> Outcome {
    pass(&gate).await;
    watched.end()
}

async fn talk(watched: Watched, gate: Arc<Semaphore>, emit: Emit, steps: usize) -> Outcome {
    for step in 1..=steps {
        pass(&gate).await;
        emit.progress(step as f64, Some(steps as f64), None);
    }
    pass(&gate).await;
    watched.end()
}

async fn flood(watched: Watched, gate: Arc<Semaphore>, emit: Emit, steps: usize, bytes: usize) -> Outcome {
    let message = "x".repeat(bytes);
    for step in 1..=steps {
        emit.progress(step as f64, Some(steps as f64), Some(&message));
        tokio::task::yield_now().await;
    }
    pass(&gate).await;
    watched.end()
}

fn quiz(cx: &Cx<'_>) -> Outcome {
    match cx.journal.answer("name").and_then(|answer| answer.field("name")) {
        Some(name) => ToolReply::text(format!("hello {name}")).into(),
        None => {
            let schema = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;
            let schema = Json::parse(schema).expect("a schema");
            Outcome::NeedInput(Asks::one("name", Ask::Form { message: "who?".into(), schema }))
        }
    }
}

/// Lives as long as the work.
struct Watched {
    key: String,
    says: SyncSender<Seen>,
    ended: bool,
}

impl Watched {
    fn start(key: &str, says: &SyncSender<Seen>) -> Self {
        let watched = Self { key: key.to_owned(), says: says.clone(), ended: false };
        watched.say(Seen::Started(key.to_owned()));
        watched
    }

    fn end(mut self) -> Outcome {
        self.ended = true;
        ToolReply::text(format!("{} is over", self.key)).into()
    }

    fn say(&self, seen: Seen) {
        // The test may be over and nobody listening any more.
        let _ = self.says.try_send(seen);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let key = self.key.clone();
        self.say(if self.ended { Seen::Ended(key) } else { Seen::Dropped(key) });
    }
}
