//! The session machine: any sequence of what clients can do, against one server and a scripted provider.
//!
//! No call is answered twice, or after it was cancelled while under way. A stream shows each event once and
//! under one number, whoever reads it and however often they come back; where there is room, none is lost.
//! Whoever leaves takes their work along, and in the end every counter is zero.

mod alone;
mod http;
mod pipe;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use call::{Change, Limits};
use host::{Config, Flow, Live, Server};
use serde_json::{Value, json};
use wire::{Id, Version};

use self::http::{Reader, Session};
use self::pipe::Pipe;
use super::Dice;
use super::script::Scripted;
use crate::FakeWorld;

/// Plays the game that `data` spells. `advance` moves the runtime's clock, which must be paused.
pub async fn session(data: &[u8], advance: impl AsyncFn(Duration)) {
    let mut dice = Dice::new(data);
    let mut game = Game::new(dice.once_in(2));
    while !dice.is_over() {
        game.turn(&mut dice, &advance).await;
    }
    game.end(&advance).await;
}

struct Game {
    server: Arc<Server>,
    world: Arc<FakeWorld>,
    script: Arc<Scripted>,
    /// Whether the limits are so wide that nothing has to make way.
    roomy: bool,
    calls: u64,
    sessions: Vec<Session>,
    readers: Vec<Reader>,
    pipe: Pipe,
    /// Calls of the newest era, each in the hands of whoever waits for it.
    alone: Vec<(u64, Flow)>,
    states: Vec<String>,
    tasks: Vec<String>,
    answered: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    /// Calls that may go on as tasks, beyond whoever made them.
    detached: BTreeSet<u64>,
}

const VERSIONS: [Version; 3] = [Version::V2025_03_26, Version::V2025_06_18, Version::V2025_11_25];

fn limits(roomy: bool) -> Limits {
    let tight = Limits {
        calls_max: 12,
        calls_per_peer_max: 4,
        sessions_max: 3,
        sessions_per_principal_max: 3,
        stream_events_max: 3,
        stream_bytes_max: 1000,
        subscriptions_per_peer_max: 1,
        tasks_max: 3,
        tasks_per_principal_max: 2,
        rounds_max: 2,
        ..Limits::default()
    };
    if roomy { Limits::default() } else { tight }
}

impl Game {
    fn new(roomy: bool) -> Self {
        let world = Arc::new(FakeWorld::new(1));
        let script = Arc::new(Scripted::default());
        let config =
            Config { name: "game".into(), version: "1".into(), limits: limits(roomy), world: world.clone() };
        let server = Server::new(config, vec![script.clone()]).expect("the script's catalog is good");
        let pipe = Pipe::new(server.pipe());
        Self {
            server,
            world,
            script,
            roomy,
            calls: 0,
            sessions: Vec::new(),
            readers: Vec::new(),
            pipe,
            alone: Vec::new(),
            states: Vec::new(),
            tasks: Vec::new(),
            answered: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            detached: BTreeSet::new(),
        }
    }

    async fn turn(&mut self, dice: &mut Dice<'_>, advance: &impl AsyncFn(Duration)) {
        match dice.below(20) {
            0 => self.initialize(dice),
            1..5 => self.call_in_session(dice),
            5 => self.batch_in_session(dice),
            6 | 7 => self.read(dice),
            8 => {
                if !self.readers.is_empty() {
                    let at = dice.below(self.readers.len());
                    self.readers.swap_remove(at);
                }
            }
            9 | 10 => self.resume(dice),
            11 => self.cancel_in_session(dice),
            12 => self.answer_in_session(dice),
            13 => self.delete(dice).await,
            14 => self.on_pipe(dice),
            15 | 16 => self.stand_alone(dice),
            17 => self.task(dice),
            18 => self.script.change(if dice.once_in(2) {
                Change::Tools
            } else {
                Change::Resource("a:b".into())
            }),
            _ => {
                let ms = [1, 1000, 31_000, 600_000, 9 * 3_600_000][dice.below(5)];
                self.world.advance_ms(ms);
                advance(Duration::from_millis(ms)).await;
            }
        }
        if dice.once_in(2) {
            settle().await;
            self.count();
        }
    }

    /// Every call under way is known to whoever could stop it, and none is that was stopped.
    fn count(&self) {
        let of_sessions: usize =
            self.sessions.iter().filter_map(|s| self.server.peek(&s.ticket)).map(|live| live.calls()).sum();
        let status = self.server.status();
        // Those of a batch stay in the books until the last is over.
        assert!(status.calls_active <= of_sessions + self.pipe.live.calls() + self.alone.len());
        assert!(status.sessions <= self.server.limits.sessions_max);
        for n in &self.cancelled {
            assert!(!self.works(*n), "call {n} is cancelled, and works on");
        }
        assert!(status.calls_active <= self.server.limits.calls_max);
    }

    /// A new call of the script: its number, its request id from a small pool, and the request.
    fn request(&mut self, dice: &mut Dice<'_>, more: Value) -> (u64, u64, Value) {
        self.calls += 1;
        let (n, id) = (self.calls, dice.below(5) as u64);
        let script: String = (0..dice.below(6)).map(|_| dice.pick(&ACTS)).collect();
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

    /// An answer to a call has reached whoever called.
    fn answer(&mut self, n: u64, body: &[u8]) {
        assert!(self.answered.insert(n), "call {n} is answered twice");
        assert!(!self.cancelled.contains(&n), "call {n} is answered after it was cancelled");
        let body = read(body);
        let all = body.as_array().cloned().unwrap_or_else(|| vec![body]);
        for one in &all {
            assert!(one["id"].is_u64() && (one["result"].is_object() != one["error"].is_object()));
            let result = &one["result"];
            if let Some(done) =
                result["content"][0]["text"].as_str().and_then(|text| text.strip_prefix("done "))
            {
                let done = done.parse().expect("a number");
                assert!(self.script.notes().finished.contains_key(&done));
                assert!(all.len() > 1 || done == n, "the answer of another call");
            }
            let task = result["taskId"].as_str().or(result["task"]["taskId"].as_str());
            self.tasks.extend(task.map(str::to_owned));
            self.states.extend(result["requestState"].as_str().map(str::to_owned));
        }
    }

    /// A call that is under way can be cancelled.
    fn cancel(&mut self, live: &Live, named: &Id, calls: &[(u64, u64)], id: u64) {
        let last = calls.iter().rev().find(|(_, own)| *own == id).map(|(n, _)| *n);
        let before = live.calls();
        live.cancel(named);
        if live.calls() < before {
            self.cancelled.insert(last.expect("a call of this id was made"));
        } else if let Some(n) = last {
            assert!(self.cancelled.contains(&n) || !self.works(n), "call {n} cannot be cancelled");
        }
    }

    /// Whether work of a call exists that is no task.
    fn works(&self, n: u64) -> bool {
        !self.detached.contains(&n) && self.script.notes().running.get(&n).is_some_and(|count| *count > 0)
    }

    /// Everybody waits until all calls are over, reads what is left, and leaves.
    async fn end(mut self, advance: &impl AsyncFn(Duration)) {
        settle().await;
        self.count();
        for mut reader in std::mem::take(&mut self.readers) {
            self.drain(&mut reader);
        }
        // Every wait of a script, then every question that nobody answered, then what came after those.
        for ms in [31_000, 601_000, 31_000, 31_000].into_iter().flat_map(|ms| [ms; 6]) {
            self.world.advance_ms(ms);
            advance(Duration::from_millis(ms)).await;
            settle().await;
        }
        self.read_on();
        self.take_output();
        if self.roomy {
            self.nothing_is_lost();
        }
        self.alone.clear();
        for session in &self.sessions {
            self.server.end_session(&session.ticket);
        }
        self.pipe.live.close();
        self.server.close();
        settle().await;
        let status = self.server.status();
        let left = (status.sessions, status.calls_active, status.listening);
        assert_eq!(left, (0, 0, 0), "somebody is still there");
        let notes = self.script.notes();
        assert!(notes.running.values().all(|count| *count == 0), "work goes on: {:?}", notes.running);
    }
}

const ACTS: [char; 9] = ['l', 'p', 'w', 'l', 's', 'z', 'a', 'f', 'd'];

/// Lets everything run that can.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

fn read(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("what we send is JSON")
}

fn handshake(dice: &mut Dice<'_>) -> Value {
    let capabilities = if dice.once_in(4) { json!({}) } else { json!({"elicitation": {}}) };
    let version = dice.pick(&VERSIONS).as_str();
    let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

fn cancelled(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// An answer to a question that was asked, or to none.
fn reply(dice: &mut Dice<'_>, questions: &mut Vec<u64>) -> Value {
    let id = match questions.len() {
        0 => u64::from(dice.byte()),
        len => questions.swap_remove(dice.below(len.min(256))),
    };
    match dice.below(4) {
        0 => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}}),
        _ => json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"x": "y"}}}),
    }
}
