//! The session machine: any sequence of client actions against one server and a scripted provider.
//!
//! No call is answered twice, or after it was cancelled in flight. A stream shows each event once and under one number,
//! whoever reads it and however often they resume; within the limits, no event is lost. A client that leaves ends its
//! work, and in the end every counter is zero.

mod http;
mod pipe;
mod stateless;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use host::{Config, ConnectionState, PendingResponse, Server};
use serde_json::{Value, json};
use spile_core::{CatalogChange, Limits};
use wire::{RequestId, Version};

use self::http::{AttachedReader, SessionClient};
use self::pipe::PipeClient;
use super::FuzzInput;
use super::scripted_provider::ScriptedProvider;
use crate::FakePlatform;

/// Runs the simulation that `data` encodes. `advance` moves the runtime's clock, which must be paused.
pub async fn session(data: &[u8], advance: impl AsyncFn(Duration)) {
    let mut input = FuzzInput::new(data);
    let mut simulation = SessionSimulation::new(input.one_in(2));
    while !input.is_exhausted() {
        simulation.step(&mut input, &advance).await;
    }
    simulation.finish(&advance).await;
}

struct SessionSimulation {
    server: Arc<Server>,
    platform: Arc<FakePlatform>,
    provider: Arc<ScriptedProvider>,
    /// Whether the limits are so wide that nothing is dropped.
    has_ample_limits: bool,
    call_count: u64,
    sessions: Vec<SessionClient>,
    readers: Vec<AttachedReader>,
    pipe: PipeClient,
    /// Modern calls, each held by its caller.
    stateless: Vec<(u64, PendingResponse)>,
    request_states: Vec<String>,
    tasks: Vec<String>,
    answered: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    /// Calls that may continue as tasks after their caller has left.
    detached: BTreeSet<u64>,
}

const VERSIONS: [Version; 3] = [Version::V2025_03_26, Version::V2025_06_18, Version::V2025_11_25];

fn limits(roomy: bool) -> Limits {
    let tight = Limits {
        calls_max: 12,
        calls_per_connection_max: 4,
        sessions_max: 3,
        sessions_per_principal_max: 3,
        stream_events_max: 3,
        stream_bytes_max: 1000,
        subscriptions_per_connection_max: 1,
        tasks_max: 3,
        tasks_per_principal_max: 2,
        input_rounds_max: 2,
        ..Limits::default()
    };
    if roomy { Limits::default() } else { tight }
}

impl SessionSimulation {
    fn new(has_ample_limits: bool) -> Self {
        let platform = Arc::new(FakePlatform::new(1));
        let provider = Arc::new(ScriptedProvider::default());
        let config = Config::new("game", "1", limits(has_ample_limits), platform.clone());
        let server = Server::new(config, vec![provider.clone()]);
        let pipe = PipeClient::new(server.open_pipe());
        Self {
            server,
            platform,
            provider,
            has_ample_limits,
            call_count: 0,
            sessions: Vec::new(),
            readers: Vec::new(),
            pipe,
            stateless: Vec::new(),
            request_states: Vec::new(),
            tasks: Vec::new(),
            answered: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            detached: BTreeSet::new(),
        }
    }

    async fn step(&mut self, input: &mut FuzzInput<'_>, advance: &impl AsyncFn(Duration)) {
        match input.below(20) {
            0 => self.initialize(input),
            1..5 => self.call_in_session(input),
            5 => self.batch_in_session(input),
            6 | 7 => self.read_stream(input),
            8 => {
                if !self.readers.is_empty() {
                    let at = input.below(self.readers.len());
                    self.readers.swap_remove(at);
                }
            }
            9 | 10 => self.resume_stream(input),
            11 => self.cancel_in_session(input),
            12 => self.answer_in_session(input),
            13 => self.delete_session(input).await,
            14 => self.step_pipe(input),
            15 | 16 => self.step_stateless(input),
            17 => self.step_task(input).await,
            18 => self.provider.notify(if input.one_in(2) {
                CatalogChange::Tools
            } else {
                CatalogChange::Resource("a:b".into())
            }),
            _ => {
                let ms = [1, 1000, 31_000, 600_000, 9 * 3_600_000][input.below(5)];
                self.platform.advance_ms(ms);
                advance(Duration::from_millis(ms)).await;
            }
        }
        if input.one_in(2) {
            run_until_idle().await;
            self.check_counts();
        }
    }

    /// Every call in flight is registered with its connection, and no cancelled call is.
    fn check_counts(&self) {
        let of_sessions: usize = self
            .sessions
            .iter()
            .filter_map(|s| self.server.session_state(&s.ticket))
            .map(|connection| connection.call_count())
            .sum();
        let status = self.server.status();
        // The calls of a batch stay registered until the last has ended.
        assert!(
            status.calls_active <= of_sessions + self.pipe.connection.call_count() + self.stateless.len()
        );
        assert!(status.sessions <= self.server.limits.sessions_max);
        for n in &self.cancelled {
            assert!(!self.is_running(*n), "call {n} is cancelled, and works on");
        }
        assert!(status.calls_active <= self.server.limits.calls_max);
    }

    /// A new call of the script: its number, its request id from a small pool, and the request.
    fn new_call(&mut self, input: &mut FuzzInput<'_>, more: Value) -> (u64, u64, Value) {
        self.call_count += 1;
        let (n, id) = (self.call_count, input.below(5) as u64);
        let script: String = (0..input.below(6)).map(|_| input.choose(&ACTIONS)).collect();
        if script.contains('d') {
            self.detached.insert(n);
        }
        let mut params =
            json!({"name": "t", "arguments": {"n": n, "script": script}, "_meta": {"progressToken": n}});
        if let (Value::Object(params), Value::Object(more)) = (&mut params, more) {
            for (key, value) in more {
                params.insert(key, value);
            }
        }
        (n, id, json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
    }

    /// A response has reached its caller.
    fn record_answer(&mut self, n: u64, body: &[u8]) {
        assert!(self.answered.insert(n), "call {n} is answered twice");
        assert!(!self.cancelled.contains(&n), "call {n} is answered after it was cancelled");
        let body = parse_json(body);
        let all = body.as_array().cloned().unwrap_or_else(|| vec![body]);
        for one in &all {
            assert!(one["id"].is_u64() && (one["result"].is_object() != one["error"].is_object()));
            let result = &one["result"];
            if let Some(done) =
                result["content"][0]["text"].as_str().and_then(|text| text.strip_prefix("done "))
            {
                let done = done.parse().expect("a number");
                assert!(self.provider.log().finished.contains_key(&done));
                assert!(all.len() > 1 || done == n, "the answer of another call");
            }
            let task = result["taskId"].as_str().or(result["task"]["taskId"].as_str());
            self.tasks.extend(task.map(str::to_owned));
            self.request_states.extend(result["requestState"].as_str().map(str::to_owned));
        }
    }

    /// A call in flight can be cancelled.
    fn cancel(&mut self, connection: &ConnectionState, named: &RequestId, calls: &[(u64, u64)], id: u64) {
        let last = calls.iter().rev().find(|(_, own)| *own == id).map(|(n, _)| *n);
        let before = connection.call_count();
        connection.cancel(named);
        if connection.call_count() < before {
            self.cancelled.insert(last.expect("a call of this id was made"));
        } else if let Some(n) = last {
            assert!(self.cancelled.contains(&n) || !self.is_running(n), "call {n} cannot be cancelled");
        }
    }

    /// Whether a call runs that is not a task.
    fn is_running(&self, n: u64) -> bool {
        !self.detached.contains(&n) && self.provider.log().running.get(&n).is_some_and(|count| *count > 0)
    }

    /// Waits until all calls have ended, reads what is left, and leaves.
    async fn finish(mut self, advance: &impl AsyncFn(Duration)) {
        run_until_idle().await;
        self.check_counts();
        for mut reader in std::mem::take(&mut self.readers) {
            self.drain(&mut reader);
        }
        // Every wait of a script, then every unanswered input request, then what followed.
        for ms in [31_000, 601_000, 31_000, 31_000].into_iter().flat_map(|ms| [ms; 6]) {
            self.platform.advance_ms(ms);
            advance(Duration::from_millis(ms)).await;
            run_until_idle().await;
        }
        self.resume_all_streams();
        self.take_output();
        if self.has_ample_limits {
            self.check_no_lost_events();
        }
        self.stateless.clear();
        for session in &self.sessions {
            self.server.end_session(&session.ticket);
        }
        self.pipe.connection.close();
        self.server.close();
        run_until_idle().await;
        let status = self.server.status();
        let left = (status.sessions, status.calls_active, status.subscriptions);
        assert_eq!(left, (0, 0, 0), "state is left after all clients have left");
        let notes = self.provider.log();
        assert!(notes.running.values().all(|count| *count == 0), "work goes on: {:?}", notes.running);
    }
}

const ACTIONS: [char; 9] = ['l', 'p', 'w', 'l', 's', 'z', 'a', 'f', 'd'];

/// Runs everything that can run.
async fn run_until_idle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

fn parse_json(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("what we send is JSON")
}

fn initialize_request(input: &mut FuzzInput<'_>) -> Value {
    let capabilities = if input.one_in(4) { json!({}) } else { json!({"elicitation": {}}) };
    let version = input.choose(&VERSIONS).as_str();
    let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

fn cancelled_notification(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// A response to an open request, or to none.
fn random_response(input: &mut FuzzInput<'_>, questions: &mut Vec<u64>) -> Value {
    let id = match questions.len() {
        0 => u64::from(input.byte()),
        len => questions.swap_remove(input.below(len.min(256))),
    };
    match input.below(4) {
        0 => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}}),
        _ => json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"x": "y"}}}),
    }
}
