//! The session machine: any sequence of what clients can do, against one server and a scripted provider.
//!
//! No call is answered twice, or after it was cancelled while under way. A stream shows each event once and
//! under one number, whoever reads it and however often they come back; where there is room, none is lost.
//! Whoever leaves takes their work along, and in the end every counter is zero.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use call::{Change, Limits};
use host::{
    Attached, Begun, Config, Flow, GET_STREAM, Line, Live, News, Out, Part, Server, Streams, Ticket, Who,
};
use serde_json::{Value, json};
use wire::{Bare, Heads, HttpBare, Id, Notice, Opened, Version, shape};

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

/// A session over HTTP, as its client knows it.
struct Session {
    id: String,
    ticket: Ticket,
    ended: bool,
    streams: BTreeMap<u32, Seen>,
    questions: Vec<u64>,
    calls: Vec<(u64, u64)>,
}

/// What was read from one stream, over all who read it.
#[derive(Default)]
struct Seen {
    calls: Vec<u64>,
    events: BTreeMap<u64, Vec<u8>>,
    answers: u32,
}

struct Reader {
    session: usize,
    attached: Attached,
    last: u64,
}

struct Pipe {
    live: Arc<Live>,
    calls: Vec<(u64, u64)>,
    /// What came out, with the number of the call.
    output: Arc<Mutex<Vec<(u64, Out)>>>,
    questions: Vec<u64>,
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
        let pipe =
            Pipe { live: server.pipe(), calls: Vec::new(), output: Arc::default(), questions: Vec::new() };
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

    fn open_in(&self, session: &Session, message: &Value) -> Opened {
        let state = || match self.server.session(&session.id, &Who::default()) {
            Some(ticket) => wire::Session::Open(ticket.peer),
            None => wire::Session::Dead,
        };
        let bare = HttpBare { heads: Heads::default(), session: &state };
        self.server.open(message.to_string().into_bytes(), Bare::Http(bare))
    }

    fn initialize(&mut self, dice: &mut Dice<'_>) {
        if self.sessions.len() >= 6 {
            return;
        }
        let message = handshake(dice);
        let bare = HttpBare { heads: Heads::default(), session: &|| wire::Session::None };
        let Opened::Request(request) = self.server.open(message.to_string().into_bytes(), Bare::Http(bare))
        else {
            panic!("a handshake is a request");
        };
        let Begun::Welcome { body, session: id } = self.server.begin(request, &Who::default(), Line::Alone)
        else {
            panic!("a handshake over HTTP makes a session");
        };
        assert_eq!(read(&body)["result"]["protocolVersion"], message["params"]["protocolVersion"]);
        let ticket = self.server.session(&id, &Who::default()).expect("a new session is alive");
        let (streams, questions, calls) = (BTreeMap::new(), Vec::new(), Vec::new());
        self.sessions.push(Session { id, ticket, ended: false, streams, questions, calls });
    }

    /// As a POST does it: at once if possible, else into a stream that the response reads.
    fn call_in_session(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let more = if dice.once_in(6) { json!({"task": {"ttl": 60_000}}) } else { Value::Null };
        let (n, id, message) = self.request(dice, more);
        match self.open_in(&self.sessions[at], &message) {
            Opened::Request(request) => {
                let line = Line::Session(self.sessions[at].ticket);
                match self.server.begin(request, &Who::default(), line) {
                    Begun::Call(serving) => self.flow(at, Flow::One(serving), &[(n, id)]),
                    Begun::Ready { body, .. } => assert_eq!(read(&body)["id"], id),
                    Begun::Welcome { .. } | Begun::Listen(_) => panic!("a call is no handshake"),
                }
            }
            Opened::Refused(refusal) => {
                assert!(
                    refusal.status == 404
                        && self.server.session(&self.sessions[at].id, &Who::default()).is_none()
                );
            }
            _ => panic!("a call is a request"),
        }
    }

    fn batch_in_session(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let (first, one, mut a) = self.request(dice, Value::Null);
        let (second, _, mut b) = self.request(dice, Value::Null);
        let ids = [(first, 10 + one), (second, 20 + one)];
        (a["id"], b["id"]) = (ids[0].1.into(), ids[1].1.into());
        if let Opened::Batch(batch) = self.open_in(&self.sessions[at], &json!([a, b])) {
            let line = Line::Session(self.sessions[at].ticket);
            let flow = self.server.begin_batch(batch, &Who::default(), &line).expect("something to answer");
            self.flow(at, flow, &ids);
        }
    }

    fn flow(&mut self, at: usize, mut flow: Flow, calls: &[(u64, u64)]) {
        let first = match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Out::Final { body, .. }) => {
                return calls.iter().for_each(|(n, _)| self.answer(*n, &body));
            }
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        };
        let Ok(live) = self.server.live(&self.sessions[at].ticket, &Who::default()) else { return };
        let stream = flow.into_stream(&live, first);
        let session = &mut self.sessions[at];
        session.calls.extend(calls);
        let calls = calls.iter().map(|(n, _)| *n).collect();
        let old = session.streams.insert(stream, Seen { calls, ..Seen::default() });
        assert!(old.is_none(), "a stream's number is used once");
        let attached = Streams::attach(&live, stream, Some(0)).expect("a new stream can be read");
        self.readers.push(Reader { session: at, attached, last: 0 });
    }

    fn session(&self, dice: &mut Dice<'_>) -> Option<usize> {
        (!self.sessions.is_empty()).then(|| dice.below(self.sessions.len()))
    }

    fn read(&mut self, dice: &mut Dice<'_>) {
        if self.readers.is_empty() {
            return;
        }
        let at = dice.below(self.readers.len());
        let mut reader = self.readers.swap_remove(at);
        if self.drain(&mut reader) == Then::GoesOn {
            self.readers.push(reader);
        }
    }

    /// Reads what there is, as a response does.
    fn drain(&mut self, reader: &mut Reader) -> Then {
        let mut cx = Context::from_waker(Waker::noop());
        if reader.attached.stream() == GET_STREAM {
            let live = reader.attached.live();
            while let Poll::Ready(Some(News::Change(change))) = live.watch.poll_next(&mut cx) {
                live.streams.notice(GET_STREAM, shape::change(&change, None));
            }
        }
        loop {
            let part = match reader.attached.poll_next(&mut cx) {
                Poll::Pending => return Then::GoesOn,
                Poll::Ready(None) => return Then::IsOver,
                Poll::Ready(Some(part)) => part,
            };
            let (id, body, is_answer) = match part {
                Part::Pause { .. } => return Then::IsOver,
                Part::Message { id, body } => (id, body, false),
                Part::Answer { id, body, .. } => (id, body, true),
            };
            assert_eq!(id.stream, reader.attached.stream());
            assert!(id.event > reader.last, "events come in order");
            reader.last = id.event;
            let session = &mut self.sessions[reader.session];
            let seen = session.streams.entry(id.stream).or_default();
            if let Some(before) = seen.events.insert(id.event, body.to_vec()) {
                assert_eq!(before, body.to_vec(), "one number, one event");
                continue;
            }
            let message = read(&body);
            if is_answer {
                seen.answers += 1;
                assert_eq!(seen.answers, 1, "a stream has one answer");
                for n in seen.calls.clone() {
                    self.answer(n, &body);
                }
            } else if let (Some(id), true) = (message["id"].as_u64(), message["method"].is_string()) {
                session.questions.push(id);
            }
        }
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
                assert!(self.script.notes().finished.contains(&done));
                assert!(all.len() > 1 || done == n, "the answer of another call");
            }
            let task = result["taskId"].as_str().or(result["task"]["taskId"].as_str());
            self.tasks.extend(task.map(str::to_owned));
            self.states.extend(result["requestState"].as_str().map(str::to_owned));
        }
    }

    /// GET, with any `Last-Event-ID` or none.
    fn resume(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let session = &self.sessions[at];
        let Some(ticket) = self.server.session(&session.id, &Who::default()) else { return };
        let Ok(live) = self.server.live(&ticket, &Who::default()) else { return };
        let known: Vec<u32> = session.streams.keys().copied().collect();
        let (stream, after) = match dice.below(8) {
            0 => (u32::from_be_bytes([dice.byte(), 0, 0, dice.byte()]), Some(u64::from(dice.byte()) << 56)),
            1 => (GET_STREAM, None),
            _ if known.is_empty() => (GET_STREAM, None),
            way => {
                let stream = known[dice.below(known.len())];
                let last = session.streams[&stream].events.keys().next_back().copied().unwrap_or(0);
                // Mostly from where it was left, sometimes again from further back.
                (stream, Some(if way == 2 { last.saturating_sub(2) } else { last }))
            }
        };
        if let Some(attached) = Streams::attach(&live, stream, after) {
            let last = attached.start().event;
            self.readers.push(Reader { session: at, attached, last });
        }
    }

    fn cancel_in_session(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let id = dice.below(5) as u64;
        let message = cancelled(id);
        let Opened::Notice(Notice::Cancelled(named)) = self.open_in(&self.sessions[at], &message) else {
            return;
        };
        let Some(live) = self.server.peek(&self.sessions[at].ticket) else { return };
        let calls = self.sessions[at].calls.clone();
        self.cancel(&live, &named, &calls, id);
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

    fn answer_in_session(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let message = reply(dice, &mut self.sessions[at].questions);
        if let Opened::Answer { id, answer } = self.open_in(&self.sessions[at], &message)
            && let Some(live) = self.server.peek(&self.sessions[at].ticket)
        {
            live.answered(id, answer);
        }
    }

    async fn delete(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let session = &mut self.sessions[at];
        // What is too old cannot be ended any more; it is swept when its room is needed.
        let Some(ticket) = self.server.session(&session.id, &Who::default()) else { return };
        self.server.end_session(&ticket);
        session.ended = true;
        assert!(self.server.session(&session.id, &Who::default()).is_none(), "ended for good");
        settle().await;
        assert!(self.server.peek(&session.ticket).is_none());
        for (n, _) in &self.sessions[at].calls {
            assert!(!self.works(*n), "call {n} outlives its session");
        }
    }

    /// Whether work of a call exists that is no task.
    fn works(&self, n: u64) -> bool {
        !self.detached.contains(&n) && self.script.notes().running.get(&n).is_some_and(|count| *count > 0)
    }

    fn on_pipe(&mut self, dice: &mut Dice<'_>) {
        let message = match dice.below(6) {
            0 => handshake(dice),
            1 => cancelled(dice.below(5) as u64),
            2 => reply(dice, &mut self.pipe.questions),
            _ => {
                let (n, id, message) = self.request(dice, Value::Null);
                if let Opened::Request(request) = self.open_on_pipe(&message)
                    && let Begun::Call(serving) =
                        self.server.begin(request, &Who::default(), Line::Pipe(self.pipe.live.clone()))
                {
                    self.pipe.calls.push((n, id));
                    self.pipe.flow(n, Flow::One(serving));
                }
                return self.take_output();
            }
        };
        match self.open_on_pipe(&message) {
            Opened::Request(request) => {
                self.server.begin(request, &Who::default(), Line::Pipe(self.pipe.live.clone()));
            }
            Opened::Notice(Notice::Cancelled(named)) => {
                let (live, calls) = (self.pipe.live.clone(), self.pipe.calls.clone());
                let id = message["params"]["requestId"].as_u64().unwrap_or_default();
                self.cancel(&live, &named, &calls, id);
            }
            Opened::Answer { id, answer } => self.pipe.live.answered(id, answer),
            Opened::Notice(_) | Opened::Batch(_) | Opened::Refused(_) => {}
        }
        self.take_output();
    }

    fn open_on_pipe(&self, message: &Value) -> Opened {
        self.server.open(message.to_string().into_bytes(), Bare::Pipe(self.pipe.live.peer()))
    }

    fn take_output(&mut self) {
        let output = std::mem::take(&mut *self.pipe.output.lock().unwrap_or_else(PoisonError::into_inner));
        for (n, out) in output {
            match out {
                Out::Question(body) => self.pipe.questions.extend(read(&body)["id"].as_u64()),
                Out::Final { body, .. } => self.answer(n, &body),
                Out::Message(_) | Out::Pause { .. } => {}
            }
        }
    }

    /// A call of the newest era: made, looked at, or given up.
    fn stand_alone(&mut self, dice: &mut Dice<'_>) {
        let choice = dice.below(4);
        if choice < 2 {
            let mut more = json!({"_meta": modern_meta(dice)});
            if !self.states.is_empty() && dice.once_in(3) {
                more["requestState"] = self.states[dice.below(self.states.len().min(256))].clone().into();
                more["inputResponses"] = json!({"q0": {"action": "accept", "content": {}}});
            }
            let (n, _, message) = self.request(dice, more);
            if let Opened::Request(request) =
                self.server.open(message.to_string().into_bytes(), Bare::Pipe(None))
                && let Begun::Call(serving) = self.server.begin(request, &Who::default(), Line::Alone)
            {
                self.alone.push((n, Flow::One(serving)));
            }
        } else if !self.alone.is_empty() {
            let at = dice.below(self.alone.len().min(256));
            let (n, mut flow) = self.alone.swap_remove(at);
            if choice == 3 {
                drop(flow);
                assert!(!self.works(n), "whoever made call {n} is gone, and it works on");
                return;
            }
            loop {
                match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => break self.alone.push((n, flow)),
                    Poll::Ready(Out::Final { body, .. }) => break self.answer(n, &body),
                    Poll::Ready(_) => {}
                }
            }
        }
    }

    fn task(&mut self, dice: &mut Dice<'_>) {
        if self.tasks.is_empty() {
            return;
        }
        let id = self.tasks[dice.below(self.tasks.len().min(256))].clone();
        let method = dice.pick(&["tasks/get", "tasks/cancel", "tasks/update"]);
        let params = json!({"taskId": id, "inputResponses": {"q0": {}}, "_meta": modern_meta(dice)});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        if let Opened::Request(request) = self.server.open(message.to_string().into_bytes(), Bare::Pipe(None))
        {
            let begun = self.server.begin(request, &Who::default(), Line::Alone);
            let Begun::Ready { body, .. } = begun else { panic!("what is asked of a task is at hand") };
            assert_eq!(read(&body)["id"], 1);
        }
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

    /// Takes up every stream where it was left, as often as it sends its reader away.
    fn read_on(&mut self) {
        for at in 0..self.sessions.len() {
            let Some(live) = self.server.peek(&self.sessions[at].ticket) else { continue };
            let streams: Vec<u32> = self.sessions[at].streams.keys().copied().collect();
            for stream in streams {
                for _ in 0..10 {
                    let seen = &self.sessions[at].streams[&stream];
                    let last = seen.events.keys().next_back().copied().unwrap_or(0);
                    let Some(attached) = Streams::attach(&live, stream, Some(last)) else { break };
                    if self.drain(&mut Reader { session: at, attached, last }) == Then::GoesOn {
                        break;
                    }
                }
                let seen = &self.sessions[at].streams[&stream];
                let is_there = Streams::attach(&live, stream, None).is_some();
                let is_cancelled = seen.calls.iter().any(|n| self.cancelled.contains(n));
                if is_there && stream != GET_STREAM && !is_cancelled {
                    assert_eq!(seen.answers, 1, "the calls {:?} have no answer", seen.calls);
                }
            }
        }
    }

    /// What a call logged is what its stream showed: all of it if the call came to its end.
    fn nothing_is_lost(&self) {
        let notes = self.script.notes();
        for session in self.sessions.iter().filter(|session| !session.ended) {
            for seen in session.streams.values() {
                let [n] = seen.calls[..] else { continue };
                let shown: Vec<u64> = seen
                    .events
                    .values()
                    .map(|body| read(body))
                    .filter_map(|message| message["params"]["data"]["i"].as_u64())
                    .collect();
                let said = notes.said.get(&n).cloned().unwrap_or_default();
                assert!(said.starts_with(&shown), "call {n} said {said:?}, and its stream shows {shown:?}");
                if seen.answers == 1 && !self.is_task(seen) {
                    assert_eq!(said, shown, "call {n} was answered, and something is missing before that");
                }
            }
        }
    }

    /// What a task says after its call was answered goes nowhere.
    fn is_task(&self, seen: &Seen) -> bool {
        seen.events.values().any(|body| read(body)["result"]["task"].is_object())
    }
}

const ACTS: [char; 9] = ['l', 'p', 'w', 'l', 's', 'z', 'a', 'f', 'd'];

#[derive(PartialEq, Eq)]
enum Then {
    GoesOn,
    IsOver,
}

impl Pipe {
    /// As the door does it: looked at once, then left to itself.
    fn flow(&self, n: u64, mut flow: Flow) {
        let output = self.output.clone();
        let put = move |out| output.lock().unwrap_or_else(PoisonError::into_inner).push((n, out));
        loop {
            match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => break,
                Poll::Ready(out) => {
                    let last = matches!(out, Out::Final { .. });
                    put(out);
                    if last {
                        return;
                    }
                }
            }
        }
        let waiting = flow.enter(&self.live);
        let number = waiting.number();
        let task = tokio::spawn(async move {
            let _waiting = waiting;
            loop {
                let out = poll_fn(|cx| flow.poll_next(cx)).await;
                let last = matches!(out, Out::Final { .. });
                put(out);
                if last {
                    return;
                }
            }
        });
        self.live.started(number, task.abort_handle());
    }
}

/// Lets everything run that can.
async fn settle() {
    for _ in 0..20 {
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

fn modern_meta(dice: &mut Dice<'_>) -> Value {
    let capabilities = match dice.below(3) {
        0 => json!({}),
        1 => json!({"elicitation": {}}),
        _ => json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}),
    };
    json!({
        "io.modelcontextprotocol/protocolVersion": Version::NEWEST.as_str(),
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}
