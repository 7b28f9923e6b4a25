//! A provider that the test controls and observes.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use json::Json;
use spile_core::{
    Call, CallContext, CallError, Catalog, EventSink, InputRequest, InputRequests, ItemKind, Outcome,
    Provider, Run, Tool, ToolResult,
};
use tokio::sync::Semaphore;

use crate::test_server::TEST_TIMEOUT;

/// An event of a call, identified by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallEvent {
    Started(String),
    /// The call completed.
    Ended(String),
    /// The call was dropped.
    Dropped(String),
}

pub(crate) struct ControlledProvider {
    event_sender: SyncSender<CallEvent>,
    events: Mutex<Receiver<CallEvent>>,
    gates: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for ControlledProvider {
    fn default() -> Self {
        let (sender, receiver) = sync_channel(1 << 16);
        Self { event_sender: sender, events: Mutex::new(receiver), gates: Mutex::default() }
    }
}

/// Each takes a `key`; a waiting tool continues when the test releases its key.
const TOOLS: [(&str, &str); 7] = [
    ("hold", "waits once, then answers"),
    ("talk", "reports progress `steps` times, waiting before each and before the end"),
    ("flood", "reports progress `steps` times with a message of `bytes`, then waits, then answers"),
    ("big", "answers with `bytes` bytes"),
    ("quiz", "asks for a name"),
    ("boom", "panics at once"),
    ("boom_later", "panics on the way"),
];

impl ControlledProvider {
    /// Waits for the next event.
    pub(crate) fn next_event(&self) -> CallEvent {
        let receiver = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.recv_timeout(TEST_TIMEOUT).expect("something happens in time")
    }

    pub(crate) fn expect(&self, expected: &CallEvent) {
        assert_eq!(self.next_event(), *expected);
    }

    pub(crate) fn expect_started(&self, key: &str) {
        self.expect(&CallEvent::Started(key.into()));
    }

    pub(crate) fn expect_ended(&self, key: &str) {
        self.expect(&CallEvent::Ended(key.into()));
    }

    pub(crate) fn expect_dropped(&self, key: &str) {
        self.expect(&CallEvent::Dropped(key.into()));
    }

    /// Asserts that there is no further event.
    pub(crate) fn expect_no_event(&self) {
        let receiver = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let next = receiver.recv_timeout(Duration::ZERO);
        assert_eq!(next, Err(RecvTimeoutError::Timeout));
    }

    /// Releases calls with this key `times` times.
    pub(crate) fn release(&self, key: &str, times: usize) {
        self.gate(key).add_permits(times);
    }

    fn gate(&self, key: &str) -> Arc<Semaphore> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(key.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))).clone()
    }
}

impl Provider for ControlledProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let input = || Json::parse(r#"{"type":"object"}"#).expect("a schema");
        let tools = TOOLS.iter().map(|(name, about)| Tool::new(name, about, input())).collect();
        Arc::new(Catalog { tools, ..Catalog::default() })
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let key = call.text_argument("key").unwrap_or_default().into_owned();
        let number = |name: &str| {
            let number = call.arguments().and_then(|a| a.get(name)).and_then(|n| n.u64());
            usize::try_from(number.unwrap_or(0)).expect("a small number")
        };
        let (steps, bytes) = (number("steps"), number("bytes"));
        let (events, gate) = (cx.events.clone(), self.gate(&key));
        let start = || CallTracker::start(&key, &self.event_sender);
        match call.name().as_ref() {
            "hold" => Run::later(hold(start(), gate)),
            "talk" => Run::later(talk(start(), gate, events, steps)),
            "flood" => Run::later(flood(start(), gate, events, steps, bytes)),
            "big" => Run::now(ToolResult::text("x".repeat(bytes))),
            "quiz" => Run::Now(quiz(cx)),
            "boom" => panic!("a handler panics, as the test wants"),
            "boom_later" => Run::later(async {
                tokio::task::yield_now().await;
                panic!("a handler panics, as the test wants")
            }),
            other => Run::now(CallError::UnknownItem { kind: ItemKind::Tool, name: other.to_owned() }),
        }
    }
}

async fn acquire(gate: &Semaphore) {
    gate.acquire().await.expect("a gate is never closed").forget();
}

async fn hold(tracker: CallTracker, gate: Arc<Semaphore>) -> Outcome {
    acquire(&gate).await;
    tracker.end()
}

async fn talk(tracker: CallTracker, gate: Arc<Semaphore>, events: EventSink, steps: usize) -> Outcome {
    for step in 1..=steps {
        acquire(&gate).await;
        events.progress(step as f64, Some(steps as f64), None);
    }
    acquire(&gate).await;
    tracker.end()
}

async fn flood(
    tracker: CallTracker,
    gate: Arc<Semaphore>,
    events: EventSink,
    steps: usize,
    bytes: usize,
) -> Outcome {
    let message = "x".repeat(bytes);
    for step in 1..=steps {
        events.progress(step as f64, Some(steps as f64), Some(&message));
        tokio::task::yield_now().await;
    }
    acquire(&gate).await;
    tracker.end()
}

fn quiz(cx: &CallContext<'_>) -> Outcome {
    match cx.journal.response("name").and_then(|response| response.text_field("name")) {
        Some(name) => ToolResult::text(format!("hello {name}")).into(),
        None => {
            let schema = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;
            let schema = Json::parse(schema).expect("a schema");
            Outcome::InputRequired(InputRequests::single(
                "name",
                InputRequest::Form { message: "who?".into(), schema },
            ))
        }
    }
}

/// Sends an event when the call ends or is dropped.
struct CallTracker {
    key: String,
    event_sender: SyncSender<CallEvent>,
    ended: bool,
}

impl CallTracker {
    fn start(key: &str, sender: &SyncSender<CallEvent>) -> Self {
        let tracker = Self { key: key.to_owned(), event_sender: sender.clone(), ended: false };
        tracker.emit(CallEvent::Started(key.to_owned()));
        tracker
    }

    fn end(mut self) -> Outcome {
        self.ended = true;
        ToolResult::text(format!("{} is over", self.key)).into()
    }

    fn emit(&self, receiver: CallEvent) {
        // The test may already be over.
        let _ = self.event_sender.try_send(receiver);
    }
}

impl Drop for CallTracker {
    fn drop(&mut self) {
        let key = self.key.clone();
        self.emit(if self.ended { CallEvent::Ended(key) } else { CallEvent::Dropped(key) });
    }
}
