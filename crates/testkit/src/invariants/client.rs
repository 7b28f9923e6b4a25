//! The client's machine against any server at all: answers, questions and notices that fit or do not, statuses,
//! streams that end, and silence.
//!
//! Each request ends at most once, and at the latest when the connection does; nothing comes after that. What it
//! keeps is bounded, and so is what it makes of one thing that it hears. Whatever it sends is well formed.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use call::{Caps, Level};
use json::{Json, ScanLimits};
use wire::client::{Answer, AskId, Call, Client, Do, Event, Failure, Link, Reply, Speak, Terms, Ticket};
use wire::method::Method;
use wire::version::Version;
use wire::{Filter, List};

use super::Dice;

pub fn client(data: &[u8]) {
    let mut dice = Dice::new(data);
    let mut game = Game::new(&mut dice);
    game.client.start(0);
    game.look(0);
    while !dice.is_over() {
        game.turn(&mut dice);
    }
    game.end();
}

struct Game {
    client: Client,
    link: Link,
    now: u64,
    calls_max: usize,
    asks_max: usize,
    tickets: Vec<Ticket>,
    ended: BTreeSet<Ticket>,
    asks: Vec<AskId>,
    /// Ids and exchanges that were used, the latest last.
    sent: Vec<u64>,
    used: BTreeSet<u64>,
    is_over: bool,
}

impl Game {
    fn new(dice: &mut Dice<'_>) -> Self {
        let link = dice.pick(&[Link::Pipe, Link::Http]);
        let speak = match dice.below(4) {
            0 | 1 => Speak::Any,
            2 => Speak::Handshake,
            _ => Speak::Only(dice.pick(&Version::ALL).0),
        };
        let caps = dice.pick(&[Caps::NONE, Caps::ELICIT_FORM, Caps::ROOTS, Caps::SAMPLING]);
        let caps = caps.with(Caps::ELICIT_FORM);
        let (calls_max, asks_max) = if dice.once_in(4) { (2, 1) } else { (8, 4) };
        let terms =
            Terms { caps, speak, calls_max, asks_max, rounds_max: 3, resumes_max: 2, ..Terms::default() };
        Self {
            client: Client::new(terms, link),
            link,
            now: 0,
            calls_max,
            asks_max,
            tickets: Vec::new(),
            ended: BTreeSet::new(),
            asks: Vec::new(),
            sent: Vec::new(),
            used: BTreeSet::new(),
            is_over: false,
        }
    }

    fn turn(&mut self, dice: &mut Dice<'_>) {
        match dice.below(16) {
            0..5 => self.act(dice),
            5 => {
                self.now += dice.pick(&[1, 1000, 3000, 30_000, 100_000]);
                self.client.tick(self.now);
                self.look(0);
            }
            6..9 if self.link == Link::Http => self.exchange(dice),
            _ => {
                let frame = self.frame(dice);
                let (len, exchange) = (frame.len(), self.id(dice));
                let exchange = (self.link == Link::Http && dice.once_in(2)).then_some(exchange);
                self.client.receive(frame, exchange, self.now);
                self.look(len);
            }
        }
    }

    fn act(&mut self, dice: &mut Dice<'_>) {
        let timeout_ms = dice.pick(&[None, Some(1), Some(5000)]);
        match dice.below(10) {
            0..4 => {
                let method = dice.pick(&[Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead]);
                let params = Json::parse(r#"{"name":"t","uri":"a:b","arguments":{"r":1}}"#).expect("JSON");
                let call = Call { progress: dice.once_in(2), timeout_ms, ..Call::new(method, params) };
                self.tickets.push(self.client.call(call, self.now));
            }
            4 => self.tickets.push(self.client.list(dice.pick(&LISTS), timeout_ms, self.now)),
            5 => {
                let filter = Filter { tools: true, uris: vec!["a:b".into()], ..Filter::default() };
                self.tickets.push(self.client.listen(&filter, self.now));
            }
            6 => self.tickets.push(self.client.ping(timeout_ms, self.now)),
            7 if !self.tickets.is_empty() => {
                let at = dice.below(self.tickets.len().min(256));
                self.client.cancel(self.tickets[at]);
            }
            8 if !self.asks.is_empty() => {
                let ask = self.asks[dice.below(self.asks.len().min(256))];
                let given = || Answer::Given(Json::object(|_| ()));
                let answer = if dice.once_in(2) { Answer::Refused("no".into()) } else { given() };
                self.client.answer(ask, answer);
            }
            _ => self.client.set_level(Level::Info, self.now),
        }
        self.look(0);
    }

    /// What a driver reports of an exchange.
    fn exchange(&mut self, dice: &mut Dice<'_>) {
        let exchange = self.id(dice);
        let mut len = 0;
        match dice.below(8) {
            0 => self.client.failed(exchange, Failure::Closed("cut".into())),
            1 => {
                let last_id = dice.once_in(2).then(|| "7".to_owned());
                self.client.stream_ended(exchange, last_id, dice.pick(&[None, Some(5)]));
            }
            2 => self.client.stream_lives(exchange),
            3 => self.client.session(exchange, dice.pick(&["S", "T"])),
            _ => {
                let status = dice.pick(&[200, 200, 404, 400, 202, 401, 403, 405, 500, 301, 0]);
                let body = if dice.once_in(4) { Vec::new() } else { self.frame(dice) };
                len = body.len();
                self.client.replied(exchange, Reply { status, body, challenge: None }, self.now);
            }
        }
        self.look(len);
    }

    /// An id that was used lately, or any.
    fn id(&self, dice: &mut Dice<'_>) -> u64 {
        match dice.below(8) {
            7 => u64::from(dice.byte()),
            back => self.sent.iter().rev().nth(back / 2).copied().unwrap_or_default(),
        }
    }

    /// Something that a server could send.
    fn frame(&self, dice: &mut Dice<'_>) -> Vec<u8> {
        let mut out = String::new();
        match dice.below(12) {
            11 => return dice.bytes().to_vec(),
            10 => dice.json(3, &mut out),
            9 => {
                out.push('[');
                for i in 0..dice.below(5) {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.message(dice, &mut out);
                }
                out.push(']');
            }
            _ => self.message(dice, &mut out),
        }
        out.into_bytes()
    }

    fn message(&self, dice: &mut Dice<'_>, out: &mut String) {
        let id = self.id(dice);
        // Writing to a string does not fail.
        let _ = match dice.below(12) {
            0..6 => write!(out, r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, dice.pick(&RESULTS)),
            6 => write!(out, r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, dice.pick(&ERRORS)),
            7 => write!(out, r#"{{"jsonrpc":"2.0","id":null,"error":{}}}"#, dice.pick(&ERRORS)),
            8 | 9 => {
                let method =
                    dice.pick(&["ping", "elicitation/create", "roots/list", "sampling/createMessage"]);
                write!(out, r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{{}}}}"#, dice.below(5))
            }
            _ => {
                let method = dice.pick(&NOTICES);
                let meta = format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
                write!(
                    out,
                    r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{"progressToken":{id},"requestId":{id},"progress":{},"uri":"a:b","level":"info","notifications":{{}},"_meta":{meta}}}}}"#,
                    dice.below(4)
                )
            }
        };
    }

    /// What came of hearing `bytes`, all at once.
    fn look(&mut self, bytes: usize) {
        let (mut made, mut written) = (0, 0);
        while let Some(todo) = self.client.take() {
            made += 1;
            match todo {
                Do::Send(send) => {
                    assert!(!self.is_over, "said after the end");
                    written += send.body.len();
                    self.sent.push(send.exchange);
                    self.well_formed(&send.body);
                }
                Do::Get { exchange, .. } => self.sent.push(exchange),
                Do::Abandon(_) => {}
            }
        }
        while let Some(event) = self.client.event() {
            made += 1;
            self.happened(event);
        }
        let under_way = self.calls_max + self.asks_max;
        assert!(made <= 16 + 4 * under_way + 2 * bytes, "{bytes} bytes came to {made} things");
        assert!(written <= 4096 + 1024 * under_way + 64 * bytes, "{bytes} bytes came to {written}");
        let [calls, ids, asks, due] = self.client.table_sizes();
        assert!(calls <= self.calls_max && ids <= calls && asks <= self.asks_max, "{calls} {ids} {asks}");
        assert!(due <= calls, "{due} deadlines of {calls}");
        let waiting = self.tickets.iter().filter(|ticket| !self.ended.contains(ticket)).count();
        assert!(waiting <= calls, "{waiting} wait, and it knows of {calls}");
    }

    fn well_formed(&mut self, body: &[u8]) {
        let doc = json::scan(body.to_vec(), &ScanLimits::default()).expect("what it sends is JSON");
        let message = doc.root();
        assert!(message.get("jsonrpc").is_some_and(|version| version.is("2.0")));
        if let (Some(id), Some(_)) = (message.get("id"), message.get("method")) {
            assert!(self.used.insert(id.u64().expect("a number")), "one id for two requests");
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Done { ticket, .. } | Event::Listed { ticket, .. } => {
                assert!(!self.is_over, "done after the end");
                self.ends(ticket);
            }
            Event::Failed { ticket, .. } => self.ends(ticket),
            Event::Progress { ticket, .. } | Event::Listening { ticket, .. } => {
                assert!(!self.ended.contains(&ticket), "heard of after its end");
            }
            Event::Asked(question) => {
                assert!(!self.asks.contains(&question.id));
                assert!(question.of.is_none_or(|of| !self.ended.contains(&of)));
                self.asks.push(question.id);
            }
            Event::Over(_) => {
                assert!(!self.is_over, "over twice");
                self.is_over = true;
            }
            Event::Ready(_) | Event::Log { .. } | Event::Changed(_) | Event::Withdrawn(_) | Event::Odd(_) => {
                assert!(!self.is_over, "heard of after the end: {event:?}");
            }
        }
    }

    fn ends(&mut self, ticket: Ticket) {
        // One that failed at once is told of before it is known.
        assert!(self.ended.insert(ticket), "{ticket:?} ends twice");
    }

    fn end(mut self) {
        self.client.closed("the end");
        self.look(0);
        assert!(self.is_over && self.client.is_over());
        assert_eq!(self.client.table_sizes(), [0; 4]);
        let known: BTreeSet<Ticket> = self.tickets.iter().copied().collect();
        assert_eq!(self.ended, known, "every ticket that was given ends, and no other");
        assert_eq!(self.client.deadline(), None, "nothing is left to wait for");
    }
}

const LISTS: [List; 4] = [List::Tools, List::Resources, List::Templates, List::Prompts];

const NOTICES: [&str; 8] = [
    "progress",
    "message",
    "tools/list_changed",
    "resources/updated",
    "subscriptions/acknowledged",
    "cancelled",
    "resources/list_changed",
    "unheard_of",
];

const RESULTS: [&str; 20] = [
    "{}",
    r#"{"supportedVersions":["2026-07-28"],"capabilities":{"logging":{}}}"#,
    r#"{"supportedVersions":["2025-11-25"],"capabilities":{}}"#,
    r#"{"supportedVersions":["2026-07-28","2025-06-18"],"capabilities":{},"resultType":"complete"}"#,
    r#"{"protocolVersion":"2025-11-25","capabilities":{"logging":{}}}"#,
    r#"{"protocolVersion":"2025-06-18","capabilities":{"logging":{}}}"#,
    r#"{"protocolVersion":"2025-03-26","capabilities":{}}"#,
    r#"{"protocolVersion":"2024-11-05","capabilities":{"logging":{}}}"#,
    r#"{"protocolVersion":"2030-01-01"}"#,
    r#"{"resultType":"complete","content":[]}"#,
    r#"{"resultType":"surprise"}"#,
    r#"{"resultType":"input_required"}"#,
    r#"{"resultType":"input_required","requestState":"s"}"#,
    r#"{"resultType":"input_required","requestState":"s","inputRequests":{"a":{"method":"elicitation/create"},"b":{"method":"roots/list"}}}"#,
    r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}"#,
    r#"{"tools":[],"resources":[],"prompts":[],"resourceTemplates":[]}"#,
    r#"{"tools":[{"name":"t"}],"nextCursor":"a"}"#,
    r#"{"tools":[{"name":"t","inputSchema":{"properties":{"r":{"type":"integer","x-mcp-header":"R"}}}}],"nextCursor":""}"#,
    r#"{"tools":[{"name":"t","inputSchema":{"properties":{"r":{"type":"integer","x-mcp-header":"R"}}}}]}"#,
    "[]",
];

const ERRORS: [&str; 9] = [
    r#"{"code":-32601,"message":"?"}"#,
    r#"{"code":-32602,"message":"?"}"#,
    r#"{"code":-32020,"message":"?"}"#,
    r#"{"code":-32021,"message":"?"}"#,
    r#"{"code":-32022,"message":"?","data":{"supported":["2026-07-28"]}}"#,
    r#"{"code":-32022,"message":"?","data":{"supported":["2025-06-18"]}}"#,
    r#"{"code":-32022,"message":"?"}"#,
    r#"{"code":-1,"message":"no"}"#,
    "7",
];
