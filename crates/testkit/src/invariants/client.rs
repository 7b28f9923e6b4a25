//! The client's state machine against any server: responses, requests and notifications that fit or do not, statuses,
//! streams that end, and silence.
//!
//! Each request ends at most once, and at the latest with the connection; nothing follows its end. The client's state
//! is bounded, and so is its reaction to one message. Whatever it sends is well formed.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use json::{Json, ParseLimits};
use spile_core::{ClientCapabilities, LogLevel};
use wire::client::{
    Action, CallId, Client, ClientCall, ClientError, ClientEvent, ClientOptions, HttpResponse, InputReply,
    InputRequestId, TransportKind, VersionPolicy,
};
use wire::method::Method;
use wire::version::Version;
use wire::{ListKind, NotificationFilter};

use super::FuzzInput;

pub fn client(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let mut simulation = ClientSimulation::new(&mut input);
    simulation.client.start(0);
    simulation.check_output(0);
    while !input.is_exhausted() {
        simulation.step(&mut input);
    }
    simulation.finish();
}

struct ClientSimulation {
    client: Client,
    link: TransportKind,
    now_ms: u64,
    calls_max: usize,
    asks_max: usize,
    tickets: Vec<CallId>,
    ended: BTreeSet<CallId>,
    requests: Vec<InputRequestId>,
    /// Ids and exchanges used so far, the latest last.
    sent_ids: Vec<u64>,
    used_ids: BTreeSet<u64>,
    is_closed: bool,
}

impl ClientSimulation {
    fn new(input: &mut FuzzInput<'_>) -> Self {
        let link = input.choose(&[TransportKind::Pipe, TransportKind::Http]);
        let speak = match input.below(4) {
            0 | 1 => VersionPolicy::Any,
            2 => VersionPolicy::HandshakeOnly,
            _ => VersionPolicy::Only(input.choose(&Version::ALL).0),
        };
        let capabilities = input.choose(&[
            ClientCapabilities::NONE,
            ClientCapabilities::ELICITATION_FORM,
            ClientCapabilities::ROOTS,
            ClientCapabilities::SAMPLING,
        ]);
        let capabilities = capabilities.with(ClientCapabilities::ELICITATION_FORM);
        let (calls_max, asks_max) = if input.one_in(4) { (2, 1) } else { (8, 4) };
        let terms = ClientOptions {
            capabilities,
            version_policy: speak,
            calls_max,
            input_requests_max: asks_max,
            input_rounds_max: 3,
            resume_attempts_max: 2,
            ..ClientOptions::default()
        };
        Self {
            client: Client::new(terms, link),
            link,
            now_ms: 0,
            calls_max,
            asks_max,
            tickets: Vec::new(),
            ended: BTreeSet::new(),
            requests: Vec::new(),
            sent_ids: Vec::new(),
            used_ids: BTreeSet::new(),
            is_closed: false,
        }
    }

    fn step(&mut self, input: &mut FuzzInput<'_>) {
        match input.below(16) {
            0..5 => self.act_as_caller(input),
            5 => {
                self.now_ms += input.choose(&[1, 1000, 3000, 30_000, 100_000]);
                self.client.tick(self.now_ms);
                self.check_output(0);
            }
            6..9 if self.link == TransportKind::Http => self.report_exchange(input),
            _ => {
                let frame = self.make_frame(input);
                let (len, exchange) = (frame.len(), self.pick_id(input));
                let exchange = (self.link == TransportKind::Http && input.one_in(2)).then_some(exchange);
                self.client.receive(frame, exchange, self.now_ms);
                self.check_output(len);
            }
        }
    }

    fn act_as_caller(&mut self, input: &mut FuzzInput<'_>) {
        let timeout_ms = input.choose(&[None, Some(1), Some(5000)]);
        match input.below(10) {
            0..4 => {
                let method = input.choose(&[Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead]);
                let params = Json::parse(r#"{"name":"t","uri":"a:b","arguments":{"r":1}}"#).expect("JSON");
                let call = ClientCall {
                    wants_progress: input.one_in(2),
                    timeout_ms,
                    total_timeout_ms: input.choose(&[None, Some(0), Some(7000)]),
                    ..ClientCall::new(method, params)
                };
                self.tickets.push(self.client.call(call, self.now_ms));
            }
            4 => self.tickets.push(self.client.list(input.choose(&LISTS), timeout_ms, self.now_ms)),
            5 => {
                let filter = NotificationFilter {
                    tools_list_changed: true,
                    resource_uris: vec!["a:b".into()],
                    ..NotificationFilter::default()
                };
                self.tickets.push(self.client.listen(&filter, self.now_ms));
            }
            6 => self.tickets.push(self.client.ping(timeout_ms, self.now_ms)),
            7 if !self.tickets.is_empty() => {
                let at = input.below(self.tickets.len().min(256));
                self.client.cancel(self.tickets[at]);
            }
            8 if !self.requests.is_empty() => {
                let ask = self.requests[input.below(self.requests.len().min(256))];
                let given = || InputReply::Result(Json::object(|_| ()));
                let answer = if input.one_in(2) { InputReply::Declined("no".into()) } else { given() };
                self.client.respond(ask, answer);
            }
            _ => self.client.set_level(LogLevel::Info, self.now_ms),
        }
        self.check_output(0);
    }

    /// What a driver reports about an exchange.
    fn report_exchange(&mut self, input: &mut FuzzInput<'_>) {
        let exchange = self.pick_id(input);
        let mut len = 0;
        match input.below(8) {
            0 => self.client.exchange_failed(exchange, ClientError::ConnectionClosed("cut".into())),
            1 => {
                let last_id = input.one_in(2).then(|| "7".to_owned());
                self.client.stream_ended(exchange, last_id, input.choose(&[None, Some(5)]));
            }
            2 => self.client.stream_active(exchange),
            3 => self.client.set_session(exchange, input.choose(&["S", "T"])),
            _ => {
                let status = input.choose(&[200, 200, 404, 400, 202, 401, 403, 405, 500, 301, 0]);
                let body = if input.one_in(4) { Vec::new() } else { self.make_frame(input) };
                len = body.len();
                self.client.http_response(
                    exchange,
                    HttpResponse { status, body, ..HttpResponse::default() },
                    self.now_ms,
                );
            }
        }
        self.check_output(len);
    }

    /// A recently used id, or any id.
    fn pick_id(&self, input: &mut FuzzInput<'_>) -> u64 {
        match input.below(8) {
            7 => u64::from(input.byte()),
            back => self.sent_ids.iter().rev().nth(back / 2).copied().unwrap_or_default(),
        }
    }

    /// A message that a server could send.
    fn make_frame(&self, input: &mut FuzzInput<'_>) -> Vec<u8> {
        let mut out = String::new();
        match input.below(12) {
            11 => return input.bytes().to_vec(),
            10 => input.json(3, &mut out),
            9 => {
                out.push('[');
                for i in 0..input.below(5) {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.write_message(input, &mut out);
                }
                out.push(']');
            }
            _ => self.write_message(input, &mut out),
        }
        out.into_bytes()
    }

    fn write_message(&self, input: &mut FuzzInput<'_>, out: &mut String) {
        let id = self.pick_id(input);
        // Writing to a string does not fail.
        let _ = match input.below(12) {
            0..6 => write!(out, r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, input.choose(&RESULTS)),
            6 => write!(out, r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, input.choose(&ERRORS)),
            7 => write!(out, r#"{{"jsonrpc":"2.0","id":null,"error":{}}}"#, input.choose(&ERRORS)),
            8 | 9 => {
                let method =
                    input.choose(&["ping", "elicitation/create", "roots/list", "sampling/createMessage"]);
                write!(
                    out,
                    r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{{}}}}"#,
                    input.below(5)
                )
            }
            _ => {
                let method = input.choose(&NOTIFICATIONS);
                let meta = format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
                write!(
                    out,
                    r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{"progressToken":{id},"requestId":{id},"progress":{},"uri":"a:b","level":"info","notifications":{{}},"_meta":{meta}}}}}"#,
                    input.below(4)
                )
            }
        };
    }

    /// The client's events after receiving `bytes` at once.
    fn check_output(&mut self, bytes: usize) {
        let (mut made, mut written) = (0, 0);
        while let Some(todo) = self.client.next_action() {
            made += 1;
            match todo {
                Action::Send(send) => {
                    assert!(!self.is_closed, "said after the end");
                    written += send.body.len();
                    self.sent_ids.push(send.exchange);
                    self.check_well_formed(&send.body);
                }
                Action::Get { exchange, .. } => self.sent_ids.push(exchange),
                Action::Abort(_) => {}
            }
        }
        while let Some(event) = self.client.next_event() {
            made += 1;
            self.handle_event(event);
        }
        let under_way = self.calls_max + self.asks_max;
        assert!(made <= 16 + 4 * under_way + 2 * bytes, "{bytes} bytes came to {made} things");
        assert!(written <= 4096 + 1024 * under_way + 64 * bytes, "{bytes} bytes came to {written}");
        let [calls, ids, requests, due] = self.client.table_sizes();
        assert!(
            calls <= self.calls_max && ids <= calls && requests <= self.asks_max,
            "{calls} {ids} {requests}"
        );
        assert!(due <= calls, "{due} deadlines of {calls}");
        let waiting = self.tickets.iter().filter(|call_id| !self.ended.contains(call_id)).count();
        assert!(waiting <= calls, "{waiting} wait, and it knows of {calls}");
    }

    fn check_well_formed(&mut self, body: &[u8]) {
        let doc = json::parse(body.to_vec(), &ParseLimits::default()).expect("what it sends is JSON");
        let message = doc.root();
        assert!(message.get("jsonrpc").is_some_and(|version| version.eq_str("2.0")));
        if let (Some(id), Some(_)) = (message.get("id"), message.get("method")) {
            assert!(self.used_ids.insert(id.u64().expect("a number")), "one id for two requests");
        }
    }

    fn handle_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Done { call_id, .. } | ClientEvent::Listed { call_id, .. } => {
                assert!(!self.is_closed, "done after the end");
                self.mark_ended(call_id);
            }
            ClientEvent::Failed { call_id, .. } => self.mark_ended(call_id),
            ClientEvent::Progress { call_id, .. } | ClientEvent::SubscriptionStarted { call_id, .. } => {
                assert!(!self.ended.contains(&call_id), "heard of after its end");
            }
            ClientEvent::InputRequested(question) => {
                assert!(!self.requests.contains(&question.id));
                assert!(question.call.is_none_or(|of| !self.ended.contains(&of)));
                self.requests.push(question.id);
            }
            ClientEvent::Closed(_) => {
                assert!(!self.is_closed, "over twice");
                self.is_closed = true;
            }
            ClientEvent::Ready(_)
            | ClientEvent::Log { .. }
            | ClientEvent::CatalogChanged(_)
            | ClientEvent::InputRequestCancelled(_)
            | ClientEvent::ElicitationCompleted(_)
            | ClientEvent::Warning(_) => {
                assert!(!self.is_closed, "heard of after the end: {event:?}");
            }
        }
    }

    fn mark_ended(&mut self, call_id: CallId) {
        // A request that fails at once reports its end before its id is known.
        assert!(self.ended.insert(call_id), "{call_id:?} ends twice");
    }

    fn finish(mut self) {
        self.client.connection_closed("the end");
        self.check_output(0);
        assert!(self.is_closed && self.client.is_closed());
        assert_eq!(self.client.table_sizes(), [0; 4]);
        let known: BTreeSet<CallId> = self.tickets.iter().copied().collect();
        assert_eq!(self.ended, known, "every call_id that was given ends, and no other");
        assert_eq!(self.client.next_deadline(), None, "nothing is left to wait for");
    }
}

const LISTS: [ListKind; 4] = [ListKind::Tools, ListKind::Resources, ListKind::Templates, ListKind::Prompts];

const NOTIFICATIONS: [&str; 8] = [
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
