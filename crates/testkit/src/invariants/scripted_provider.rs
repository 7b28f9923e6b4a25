//! A provider that does what the arguments say, and records everything it did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use json::Json;
use spile_core::{
    Call, CallContext, CallError, Catalog, CatalogChange, ChangeListener, EventSink, InputRequest,
    InputRequests, LogLevel, Outcome, Provider, Run, TaskSupport, Tool, ToolResult,
};

/// Each call has a number and a script, one letter for each action:
/// `l` log, `p` progress, `w` wait a second, `s` wait beyond the time limit, `z` pause the stream, `a` request input,
/// `f` fail, `d` continue as a task.
#[derive(Default)]
pub(super) struct ScriptedProvider {
    pub(super) log: Arc<Mutex<ScriptLog>>,
    has_header_param: bool,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
}

#[derive(Default)]
pub(super) struct ScriptLog {
    /// Number of running futures by call.
    pub(super) running: BTreeMap<u64, u32>,
    /// Log messages, in order.
    pub(super) logged: BTreeMap<u64, Vec<u64>>,
    /// How often each round of each call started.
    pub(super) rounds_started: BTreeMap<(u64, u32), u32>,
    /// How often the script of each call ended.
    pub(super) finished: BTreeMap<u64, u32>,
}

impl ScriptedProvider {
    /// The number of a call is mirrored in a header as well.
    pub(super) fn with_header_param() -> Self {
        Self { has_header_param: true, ..Self::default() }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, ScriptLog> {
        lock(&self.log)
    }

    pub(super) fn notify(&self, change: CatalogChange) {
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener {
            listener.catalog_changed(change);
        }
    }
}

impl Provider for ScriptedProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let schema = Json::object(|o| {
            o.str("type", "object");
            if self.has_header_param {
                o.raw("properties", r#"{"n":{"type":"integer","x-mcp-header":"Number"}}"#);
            }
        });
        let mut tool = Tool::new("t", "Does what its script says", schema);
        tool.task_support = TaskSupport::Optional;
        Arc::new(Catalog {
            tools: vec![tool],
            logging: true,
            resource_subscriptions: true,
            list_changed: true,
            ..Catalog::default()
        })
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let n = call.arguments().and_then(|a| a.get("n")).and_then(|n| n.u64()).unwrap_or_default();
        let script = call.text_argument("script").unwrap_or_default().into_owned();
        let round = cx.journal.round as usize;
        // Each input request ends a round.
        let mut rounds = script.split('a').skip(round);
        let acts = rounds.next().unwrap_or_default().to_owned();
        let requests = rounds.next().is_some().then(|| format!("q{round}"));
        *self.log().rounds_started.entry((n, cx.journal.round)).or_default() += 1;
        let part = ScriptRound {
            number: n,
            actions: acts,
            request_key: requests,
            events: cx.events.clone(),
            log: self.log.clone(),
        };
        if part.actions.contains('d') {
            Run::Now(Outcome::Detach(spile_core::DetachedWork::from_future(part.run())))
        } else if part.actions.contains(['w', 's']) {
            Run::later(part.run())
        } else {
            // Nothing in it waits.
            let mut part = Box::pin(part.run());
            match part.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
                std::task::Poll::Ready(outcome) => Run::Now(outcome),
                std::task::Poll::Pending => Run::Later(part),
            }
        }
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *lock(&self.listener) = Some(listener);
    }
}

/// One round of a call.
struct ScriptRound {
    number: u64,
    actions: String,
    request_key: Option<String>,
    events: EventSink,
    log: Arc<Mutex<ScriptLog>>,
}

impl ScriptRound {
    async fn run(self) -> Outcome {
        let _running = RunningGuard::new(self.number, &self.log);
        for act in self.actions.chars() {
            match act {
                'l' => self.emit_log(),
                'p' => {
                    let said = lock(&self.log).logged.get(&self.number).map_or(0, Vec::len);
                    self.events.progress(said as f64, None, None);
                }
                'w' => tokio::time::sleep(Duration::from_secs(1)).await,
                's' => tokio::time::sleep(Duration::from_secs(40)).await,
                'z' => self.events.pause_stream(10),
                'f' => {
                    return CallError::Provider {
                        code: -1,
                        message: format!("failed {}", self.number),
                        data: None,
                    }
                    .into();
                }
                _ => {}
            }
        }
        match self.request_key {
            Some(key) => {
                let schema =
                    Json::parse(r#"{"type":"object","properties":{"x":{"type":"string"}}}"#).expect("JSON");
                Outcome::InputRequired(InputRequests::single(
                    key,
                    InputRequest::Form { message: "?".into(), schema },
                ))
            }
            None => {
                *lock(&self.log).finished.entry(self.number).or_default() += 1;
                ToolResult::text(format!("done {}", self.number)).into()
            }
        }
    }

    fn emit_log(&self) {
        if !self.events.wants_log(LogLevel::Info) {
            return;
        }
        let i = {
            let mut notes = lock(&self.log);
            let said = notes.logged.entry(self.number).or_default();
            let i = said.len() as u64;
            said.push(i);
            i
        };
        let data = Json::object(|o| {
            o.int("n", self.number as i64).int("i", i as i64);
        });
        self.events.log(LogLevel::Info, None, data);
    }
}

/// Counts a running future.
struct RunningGuard(u64, Arc<Mutex<ScriptLog>>);

impl RunningGuard {
    fn new(n: u64, notes: &Arc<Mutex<ScriptLog>>) -> Self {
        *lock(notes).running.entry(n).or_default() += 1;
        Self(n, notes.clone())
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if let Some(count) = lock(&self.1).running.get_mut(&self.0) {
            *count -= 1;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
