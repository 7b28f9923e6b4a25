//! What was begun, asked and said, and whether it fits together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use json::Json;
use serde_json::Value;
use wire::client::{AskId, Client, Event, Failure, Link, Question, Terms, Ticket};
use wire::code::Code;
use wire::version::{Feature, Version};
use wire::{List, Notice, Opened};

use super::super::script::Scripted;
use super::Dice;

pub(super) struct Book {
    script: Arc<Scripted>,
    is_shown: bool,
    link: Link,
    /// The version that both know.
    meeting: Option<Version>,
    is_tight: bool,
    calls_max: usize,
    asks_max: usize,
    handshake_ms: u64,

    lines: BTreeMap<Ticket, Line>,
    numbers: u64,
    asks: BTreeMap<AskId, Ask>,
    /// Requests of the client by id, as they were sent.
    requests: BTreeMap<u64, Asked>,
    /// Questions of the server by id, and whether they were answered.
    questions: BTreeMap<u64, bool>,
    /// Calls that must not work any more.
    stopped: BTreeSet<u64>,
    greeted: u32,
    /// How often the server forgot a session, and how often a connection was cut.
    pub(super) forgotten: u32,
    cuts: u32,
    /// Whether somebody is rude enough for the client to complain.
    pub(super) is_rude: bool,
    is_closing: bool,
    over: Option<Failure>,
}

/// A request that somebody waits for.
#[derive(Debug)]
pub(super) struct Line {
    kind: Kind,
    timeout_ms: Option<u64>,
    ends_by: Option<u64>,
    ended: bool,
    cancelled: bool,
    /// The connection or the session that it was in is gone.
    torn: bool,
    progress: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Call { n: u64, script: String, progress: bool },
    List(List),
    Listen,
    Ping,
}

impl Line {
    pub(super) fn new(kind: Kind, timeout_ms: Option<u64>, now: u64) -> Self {
        let ends_by = timeout_ms.map(|ms| now + ms);
        let (ended, cancelled, torn, progress) = (false, false, false, None);
        Self { kind, timeout_ms, ends_by, ended, cancelled, torn, progress }
    }

    fn has(&self, acts: &[char]) -> bool {
        matches!(&self.kind, Kind::Call { script, .. } if script.contains(acts))
    }
}

#[derive(Debug)]
struct Ask {
    of: Option<Ticket>,
    is_open: bool,
}

/// A request as it was sent.
#[derive(Debug, Default)]
struct Asked {
    method: String,
    /// The number of the call.
    n: Option<u64>,
    arrived: bool,
    answered: bool,
    /// The client has said that nobody waits.
    given_up: bool,
    /// The server knows that nobody waits.
    cancelled: bool,
}

impl Book {
    pub(super) fn new(
        script: Arc<Scripted>,
        link: Link,
        meeting: Option<Version>,
        is_tight: bool,
        terms: &Terms,
    ) -> Self {
        Self {
            script,
            is_shown: std::env::var_os("SPILE_PAIR_SEED").is_some(),
            link,
            meeting,
            is_tight,
            calls_max: terms.calls_max,
            asks_max: terms.asks_max,
            handshake_ms: terms.handshake_ms,
            lines: BTreeMap::new(),
            numbers: 0,
            asks: BTreeMap::new(),
            requests: BTreeMap::new(),
            questions: BTreeMap::new(),
            stopped: BTreeSet::new(),
            greeted: 0,
            forgotten: 0,
            cuts: 0,
            is_rude: is_tight,
            is_closing: false,
            over: None,
        }
    }

    /// Shows a game that is played alone.
    pub(super) fn trace(&self, what: std::fmt::Arguments<'_>) {
        if self.is_shown {
            eprintln!("{what}");
        }
    }

    // What somebody does.

    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn begun(&mut self, ticket: Ticket, line: Line) {
        assert!(self.lines.insert(ticket, line).is_none(), "one ticket for two requests");
    }

    pub(super) fn cancels(&mut self, ticket: Ticket) {
        let line = self.lines.get_mut(&ticket).expect("a ticket that was given");
        line.cancelled |= !line.ended;
    }

    pub(super) fn any_ticket(&self, dice: &mut Dice<'_>) -> Option<Ticket> {
        // The latest more often than others.
        let nth = dice.below(4).min(self.lines.len().checked_sub(1)?);
        self.lines.keys().rev().nth(nth).copied()
    }

    /// Any question that was ever put.
    pub(super) fn any_ask(&self, dice: &mut Dice<'_>) -> Option<AskId> {
        let nth = dice.below(3).min(self.asks.len().checked_sub(1)?);
        self.asks.keys().rev().nth(nth).copied()
    }

    pub(super) fn answers(&mut self, ask: AskId) {
        let ask = self.asks.get_mut(&ask).expect("a question that was put");
        ask.is_open = false;
        // Another round counts from its own beginning.
        if let Some(line) = ask.of.and_then(|of| self.lines.get_mut(&of)) {
            line.progress = None;
        }
    }

    pub(super) fn open_asks(&self) -> Vec<AskId> {
        self.asks.iter().filter(|(_, ask)| ask.is_open).map(|(id, _)| *id).collect()
    }

    pub(super) fn listening(&self) -> Vec<Ticket> {
        let is_open = |line: &Line| line.kind == Kind::Listen && !line.ended;
        self.lines.iter().filter(|(_, line)| is_open(line)).map(|(ticket, _)| *ticket).collect()
    }

    pub(super) fn all_ended(&self) -> bool {
        self.lines.values().all(|line| line.ended || line.kind == Kind::Listen)
    }

    // What happens to the link.

    /// Something broke that all requests may have depended on.
    pub(super) fn tears(&mut self) {
        self.trace(format_args!("        something breaks"));
        self.cuts += 1;
        self.lines.values_mut().for_each(|line| line.torn = true);
    }

    /// A connection broke in which this request cannot be answered any more.
    pub(super) fn tears_one(&mut self, id: u64) {
        self.trace(format_args!("        the connection of {id} breaks"));
        self.cuts += 1;
        let Some(asked) = self.requests.get(&id) else { return };
        let Some(n) = asked.n else { return self.tears() };
        let is_it = |line: &&mut Line| matches!(line.kind, Kind::Call { n: own, .. } if own == n);
        self.lines.values_mut().filter(is_it).for_each(|line| line.torn = true);
    }

    /// Nobody waits for this request any more, and the server has seen that.
    pub(super) fn stops(&mut self, id: u64) {
        if let Some(asked) = self.requests.get_mut(&id) {
            asked.cancelled = true;
            if asked.arrived && !asked.answered {
                self.stopped.extend(asked.n);
            }
        }
    }

    pub(super) fn closing(&mut self) {
        self.is_closing = true;
    }

    // What is said.

    /// The client sends something.
    pub(super) fn sent(&mut self, body: &[u8]) {
        self.trace(format_args!("        > {}", String::from_utf8_lossy(body)));
        assert!(self.over.is_none(), "said after the end: {}", String::from_utf8_lossy(body));
        let message = read(body);
        assert_eq!(message["jsonrpc"], "2.0");
        if let (Some(method), Some(id)) = (message["method"].as_str(), message["id"].as_u64()) {
            let n = message["params"]["arguments"]["n"].as_u64();
            let asked = Asked { method: method.to_owned(), n, ..Asked::default() };
            assert!(self.requests.insert(id, asked).is_none(), "the id {id} is used twice");
        } else if message["method"] == "notifications/cancelled" {
            let id = message["params"]["requestId"].as_u64().expect("our ids are numbers");
            self.requests.get_mut(&id).expect("what was asked").given_up = true;
        }
    }

    /// Something of the client's reached the host.
    pub(super) fn came(&mut self, message: &Value, opened: &Opened) {
        self.trace(format_args!("        at the server: {} {}", message["id"], message["method"]));
        match opened {
            Opened::Request(_) => {
                let id = message["id"].as_u64().expect("our ids are numbers");
                let asked = self.requests.get_mut(&id).expect("what comes was sent");
                assert!(!std::mem::replace(&mut asked.arrived, true), "{message} came twice");
                // Whoever shook hands is told of changes, even if the newest version is spoken after all.
                self.is_rude |= asked.method == "initialize" && self.meeting == Some(Version::NEWEST);
            }
            Opened::Notice(Notice::Initialized) => {}
            Opened::Notice(Notice::Cancelled(_)) => {
                let id = message["params"]["requestId"].as_u64().expect("our ids are numbers");
                let asked = self.requests.get(&id).unwrap_or_else(|| panic!("{message}: never asked"));
                assert!(asked.method != "initialize", "a handshake is not cancelled");
                self.stops(id);
            }
            Opened::Answer { id, .. } => {
                let id = id.unwrap_or_else(|| panic!("{message} answers nothing"));
                let answered = self.questions.get_mut(&id);
                let answered = answered.unwrap_or_else(|| panic!("{message}: never asked"));
                assert!(!std::mem::replace(answered, true), "{message} answers again");
            }
            Opened::Refused(refusal) => {
                let code = read(&refusal.body)["error"]["code"].as_i64().unwrap_or_default();
                let is_expected = match (refusal.status, code) {
                    (404, code) if code == Code::NoSession.number() => self.forgotten > 0,
                    // There are no prompts here.
                    (_, code) if code == Code::MethodNotFound.number() => message["method"] == "prompts/list",
                    _ => false,
                };
                let told = String::from_utf8_lossy(&refusal.body);
                assert!(is_expected, "{message} is refused with {} {told}", refusal.status);
            }
            Opened::Notice(Notice::Other) => panic!("a notification that nobody knows: {message}"),
            Opened::Batch(_) => panic!("we send no batches: {message}"),
        }
    }

    /// The server said something: on a pipe as it leaves, over HTTP as it arrives.
    pub(super) fn said(&mut self, message: &Value) {
        self.trace(format_args!("        < {message}"));
        let id = message["id"].as_u64();
        let asked = |id: u64| self.requests.get(&id).unwrap_or_else(|| panic!("{message}: never asked"));
        if message["method"] == "notifications/progress" {
            let token = message["params"]["progressToken"].as_u64().expect("our tokens are numbers");
            let asked = asked(token);
            assert!(!asked.answered, "{message} comes after the answer");
            assert!(!asked.cancelled || self.link == Link::Http, "{message} comes after it was cancelled");
        } else if message["method"].is_string() {
            if let Some(id) = id {
                // What a session had on its way when it was forgotten may have an id of the next.
                let is_new = self.questions.insert(id, false).is_none();
                assert!(is_new || self.forgotten > 0, "{message} is asked twice");
            }
        } else {
            let id = id.unwrap_or_else(|| panic!("{message} answers nothing"));
            let asked = asked(id);
            assert!(!asked.answered, "{message} answers again");
            assert!(!asked.cancelled || self.link == Link::Http, "{message} comes after it was cancelled");
            self.requests.entry(id).or_default().answered = true;
        }
    }

    // What the client makes of it.

    pub(super) fn happened(&mut self, event: Event, now: u64) {
        self.trace(format_args!("{now:>7} ! {event:?}"));
        match event {
            Event::Ready(greeting) => {
                self.greeted += 1;
                // Another session counts its questions anew.
                self.questions.clear();
                assert_eq!(Some(greeting.version), self.meeting, "not the newest that both know");
                assert!(self.greeted <= 1 + self.forgotten, "greeted again, and nobody forgot");
            }
            Event::Done { ticket, result } => {
                let line = self.ends(ticket);
                match line.kind.clone() {
                    Kind::Call { n, .. } => self.is_own_result(ticket, n, &result),
                    Kind::Ping => {}
                    Kind::Listen => panic!("a subscription ended by itself"),
                    Kind::List(_) => panic!("a list is no result"),
                }
            }
            Event::Listed { ticket, items } => {
                let line = self.ends(ticket);
                assert_eq!(line.kind, Kind::List(List::Tools));
                assert_eq!(items.len(), 1);
            }
            Event::Failed { ticket, why } => {
                self.ends(ticket);
                if matches!(why, Failure::Cancelled | Failure::Timeout { .. }) && self.over.is_none() {
                    self.is_given_up(ticket);
                }
                let may = self.is_closing || self.may_fail(ticket, &why, now);
                assert!(may, "at {now}: {:?} failed: {why:?}", self.lines[&ticket]);
            }
            Event::Progress { ticket, progress, .. } => {
                let line = self.lines.get_mut(&ticket).expect("a ticket that was given");
                assert!(!line.ended, "progress after the end of {line:?}");
                assert!(matches!(line.kind, Kind::Call { progress: true, .. }), "nobody asked for progress");
                assert!(line.progress.is_none_or(|last| progress > last), "progress goes back: {line:?}");
                line.progress = Some(progress);
            }
            Event::Log { data, .. } => {
                let n = read(data.as_str().as_bytes())["n"].as_u64();
                assert!(n.is_some_and(|n| n <= self.numbers), "a log message of no call: {data}");
            }
            Event::Changed(_) => {
                let is_free = self.meeting.is_some_and(|version| version.has(Feature::Subscribe));
                assert!(is_free || self.lines.values().any(|line| line.kind == Kind::Listen));
            }
            Event::Listening { ticket, granted } => {
                let line = &self.lines[&ticket];
                assert!(line.kind == Kind::Listen && !line.ended && granted.tools, "{line:?}");
            }
            Event::Asked(question) => self.asked(question),
            Event::Withdrawn(id) => {
                let ask = self.asks.get_mut(&id).expect("a question that was put");
                assert!(ask.is_open, "a question is withdrawn that is not open");
                ask.is_open = false;
            }
            Event::Odd(what) => {
                let is_excused = self.is_rude
                    || self.cuts > 0
                    || self.forgotten > 0
                    || self.is_closing
                    // A request that nobody waits for took too long.
                    || now >= self.handshake_ms;
                assert!(is_excused, "the client complains: {what}");
            }
            Event::Over(why) => {
                let may = match &why {
                    Failure::NoVersion(_) => self.meeting.is_none(),
                    Failure::Timeout { .. } => now >= self.handshake_ms,
                    Failure::Closed(_) => self.is_closing || self.cuts > 0,
                    _ => self.forgotten > 0 && self.cuts > 0,
                };
                assert!(may, "at {now}: it is over: {why:?}");
                assert!(self.over.is_none(), "it is over twice");
                assert!(self.lines.values().all(|line| line.ended), "over, and somebody waits");
                self.over = Some(why);
            }
        }
    }

    fn ends(&mut self, ticket: Ticket) -> &Line {
        let line = self.lines.get_mut(&ticket).expect("a ticket that was given");
        assert!(!line.ended, "{line:?} ends twice");
        line.ended = true;
        let is_left = self.asks.values().any(|ask| ask.is_open && ask.of == Some(ticket));
        assert!(!is_left, "{line:?} ends, and leaves a question");
        line
    }

    fn is_own_result(&self, ticket: Ticket, n: u64, result: &Json) {
        let line = &self.lines[&ticket];
        assert!(!line.cancelled, "{line:?} is cancelled and done");
        let value = read(result.as_str().as_bytes());
        let text = value["content"][0]["text"].as_str().unwrap_or_default();
        match text.strip_prefix("done ") {
            Some(done) => {
                assert_eq!(done, n.to_string(), "the result of another call: {line:?}");
                assert_eq!(self.script.notes().finished.get(&n), Some(&1), "{line:?}");
                assert!(!line.has(&['f']));
            }
            None => {
                assert_eq!(value["isError"], true, "{result}");
                assert!(line.has(&['a', 's', 'f']), "{line:?} came to {result}");
            }
        }
    }

    /// A call that nobody waits for any more is one that the server is told of, if it has not answered.
    fn is_given_up(&self, ticket: Ticket) {
        let Kind::Call { n, .. } = self.lines[&ticket].kind else { return };
        // In a session that is gone nothing is left to be told.
        let is_told =
            self.forgotten > 0 || (self.link == Link::Http && self.meeting == Some(Version::NEWEST));
        let last = self.requests.iter().rev().find(|(_, asked)| asked.n == Some(n));
        if let Some((id, asked)) = last.filter(|_| !is_told) {
            assert!(asked.answered || asked.given_up, "{id} is given up in silence");
        }
    }

    fn may_fail(&self, ticket: Ticket, why: &Failure, now: u64) -> bool {
        let line = &self.lines[&ticket];
        match why {
            Failure::Cancelled => line.cancelled,
            Failure::Timeout { after_ms, .. } => {
                let is_due = line.timeout_ms == Some(*after_ms) && line.ends_by.is_some_and(|by| by <= now);
                is_due || (*after_ms == self.handshake_ms && now >= self.handshake_ms)
            }
            Failure::Told(told) => {
                let is_busy = self.is_tight && told.code == Code::Busy.number();
                let is_left = told.code == Code::NoSession.number() && line.torn;
                line.has(&['a', 's', 'f']) || line.kind == Kind::List(List::Prompts) || is_busy || is_left
            }
            Failure::NoVersion(_) => self.meeting.is_none(),
            Failure::Busy => self.is_tight,
            Failure::Closed(_) | Failure::NotMcp(_) | Failure::Status { .. } => line.torn,
            Failure::Unauthorized { .. } | Failure::Refused(_) => false,
        }
    }

    fn asked(&mut self, question: Question) {
        if let Some(of) = question.of {
            assert!(!self.lines[&of].ended, "a question of a call that is over");
        }
        let ask = Ask { of: question.of, is_open: true };
        assert!(self.asks.insert(question.id, ask).is_none(), "one id for two questions");
    }

    // Whether it fits together.

    /// Nobody waits for something that the client has forgotten, and what was stopped does not work.
    pub(super) fn balances(&self, client: &Client) {
        let [calls, ids, asks, due] = client.table_sizes();
        let waiting = self.lines.values().filter(|line| !line.ended).count();
        assert!(calls >= waiting, "{waiting} wait, and the client knows of {calls}");
        let fits = calls <= self.calls_max && ids <= calls && due <= calls && asks <= self.asks_max;
        assert!(fits, "{calls} calls, {ids} ids, {due} deadlines, {asks} questions");
        assert_eq!(asks, self.asks.values().filter(|ask| ask.is_open).count());
        let notes = self.script.notes();
        for n in &self.stopped {
            let works = notes.running.get(n).is_some_and(|count| *count > 0);
            assert!(!works, "call {n} is cancelled, and works on");
        }
        for ((n, round), count) in &notes.begun {
            assert_eq!(*count, 1, "round {round} of call {n} was begun {count} times");
        }
    }

    pub(super) fn everything_ended(&self) {
        for line in self.lines.values() {
            assert!(line.ended, "the link is up, and this never ends: {line:?}");
        }
        assert!(self.greeted > 0, "the client is neither ready nor over");
        assert_eq!(self.open_asks(), [], "questions that nobody wants answered");
    }

    pub(super) fn is_settled(&self, client: &Client) {
        assert!(self.over.is_some() && client.is_over());
        assert_eq!(client.table_sizes(), [0; 4], "the client keeps something");
        assert!(self.lines.values().all(|line| line.ended));
    }
}

pub(super) fn read(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|e| panic!("no JSON: {e}: {}", String::from_utf8_lossy(body)))
}
