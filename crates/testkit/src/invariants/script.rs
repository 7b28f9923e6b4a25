//! A provider that does what the arguments say, and keeps note of everything it did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use call::{
    Ask, Asks, Call, Catalog, Change, Cx, Emit, Fault, Level, Listener, Outcome, Provider, Run, TaskUse,
    Tool, ToolReply,
};
use json::Json;

/// Each call has a number and a script, one letter for each thing to do:
/// `l` log, `p` progress, `w` wait a second, `s` wait beyond the deadline, `z` let the caller go, `a` ask,
/// `f` fail, `d` go on as a task.
#[derive(Default)]
pub(super) struct Scripted {
    pub(super) notes: Arc<Mutex<Notes>>,
    mirrors: bool,
    listener: Mutex<Option<Arc<dyn Listener>>>,
}

#[derive(Default)]
pub(super) struct Notes {
    /// How many pieces of work of each call exist.
    pub(super) running: BTreeMap<u64, u32>,
    /// What was logged, in order.
    pub(super) said: BTreeMap<u64, Vec<u64>>,
    /// How often each round of each call was begun.
    pub(super) begun: BTreeMap<(u64, u32), u32>,
    /// How often the script of each call came to its end.
    pub(super) finished: BTreeMap<u64, u32>,
}

impl Scripted {
    /// The number of a call travels in a header as well.
    pub(super) fn mirroring() -> Self {
        Self { mirrors: true, ..Self::default() }
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.notes)
    }

    pub(super) fn change(&self, change: Change) {
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener {
            listener.changed(change);
        }
    }
}

impl Provider for Scripted {
    fn catalog(&self) -> Arc<Catalog> {
        let schema = Json::object(|o| {
            o.str("type", "object");
            if self.mirrors {
                o.raw("properties", r#"{"n":{"type":"integer","x-mcp-header":"Number"}}"#);
            }
        });
        let mut tool = Tool::new("t", "does what it is told", schema);
        tool.task = TaskUse::Optional;
        Arc::new(Catalog {
            tools: vec![tool],
            logs: true,
            watches: true,
            changes: true,
            ..Catalog::default()
        })
    }

    fn run(&self, call: &Call, cx: &Cx<'_>) -> Run {
        let n = call.arguments().and_then(|a| a.get("n")).and_then(|n| n.u64()).unwrap_or_default();
        let script = call.text("script").unwrap_or_default().into_owned();
        let round = cx.journal.round as usize;
        // Each question ends a round.
        let mut rounds = script.split('a').skip(round);
        let acts = rounds.next().unwrap_or_default().to_owned();
        let asks = rounds.next().is_some().then(|| format!("q{round}"));
        *self.notes().begun.entry((n, cx.journal.round)).or_default() += 1;
        let part = Part { n, acts, asks, emit: cx.emit.clone(), notes: self.notes.clone() };
        if part.acts.contains('d') {
            Run::Now(Outcome::Detach(Box::pin(part.play())))
        } else if part.acts.contains(['w', 's']) {
            Run::later(part.play())
        } else {
            // Nothing in it waits.
            let mut part = Box::pin(part.play());
            match part.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
                std::task::Poll::Ready(outcome) => Run::Now(outcome),
                std::task::Poll::Pending => Run::Later(part),
            }
        }
    }

    fn attach(&self, listener: Arc<dyn Listener>) {
        *lock(&self.listener) = Some(listener);
    }
}

/// One round of a call.
struct Part {
    n: u64,
    acts: String,
    asks: Option<String>,
    emit: Emit,
    notes: Arc<Mutex<Notes>>,
}

impl Part {
    async fn play(self) -> Outcome {
        let _running = Running::new(self.n, &self.notes);
        for act in self.acts.chars() {
            match act {
                'l' => self.log(),
                'p' => {
                    let said = lock(&self.notes).said.get(&self.n).map_or(0, Vec::len);
                    self.emit.progress(said as f64, None, None);
                }
                'w' => tokio::time::sleep(Duration::from_secs(1)).await,
                's' => tokio::time::sleep(Duration::from_secs(40)).await,
                'z' => self.emit.pause(10),
                'f' => {
                    return Fault::Told { code: -1, message: format!("failed {}", self.n), data: None }
                        .into();
                }
                _ => {}
            }
        }
        match self.asks {
            Some(key) => {
                let schema =
                    Json::parse(r#"{"type":"object","properties":{"x":{"type":"string"}}}"#).expect("JSON");
                Outcome::NeedInput(Asks::one(key, Ask::Form { message: "?".into(), schema }))
            }
            None => {
                *lock(&self.notes).finished.entry(self.n).or_default() += 1;
                ToolReply::text(format!("done {}", self.n)).into()
            }
        }
    }

    fn log(&self) {
        if !self.emit.wants_log(Level::Info) {
            return;
        }
        let i = {
            let mut notes = lock(&self.notes);
            let said = notes.said.entry(self.n).or_default();
            let i = said.len() as u64;
            said.push(i);
            i
        };
        let data = Json::object(|o| {
            o.int("n", self.n as i64).int("i", i as i64);
        });
        self.emit.log(Level::Info, None, data);
    }
}

/// Work that exists.
struct Running(u64, Arc<Mutex<Notes>>);

impl Running {
    fn new(n: u64, notes: &Arc<Mutex<Notes>>) -> Self {
        *lock(notes).running.entry(n).or_default() += 1;
        Self(n, notes.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(count) = lock(&self.1).running.get_mut(&self.0) {
            *count -= 1;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
