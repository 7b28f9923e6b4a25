//! The client's state machine, as transcripts.
//!
//! `>` is a message that the client sends, `<` one that it receives, `!` an event. Other lines are actions of the
//! application. Over HTTP `<` starts with a status, and headers follow `>` in `[…]`.

mod errors;
mod order;
mod over_http;
mod regressions;
mod timeouts;

use json::Json;
use spile_core::{ClientCapabilities, LogLevel};
use wire::client::{
    Action, CallId, Client, ClientCall, ClientError, ClientEvent, ClientOptions, HttpResponse, InputReply,
    InputRequestId, TransportKind, VersionPolicy,
};
use wire::method::Method;
use wire::{ListKind, NotificationFilter, Version};

struct ClientHarness {
    client: Client,
    now: u64,
    calls: Vec<CallId>,
    input_requests: Vec<InputRequestId>,
    sent: Vec<String>,
    events: Vec<String>,
    /// The exchange of the last message that was sent.
    exchange: u64,
}

fn check(transport: TransportKind, version_policy: VersionPolicy, transcript: &str) {
    check_with(transport, ClientOptions { version_policy, ..options() }, transcript);
}

fn options() -> ClientOptions {
    ClientOptions { name: "c".into(), version: "1".into(), ..ClientOptions::default() }
}

fn check_with(transport: TransportKind, options: ClientOptions, transcript: &str) {
    let mut harness = ClientHarness {
        client: Client::new(options, transport),
        now: 0,
        calls: Vec::new(),
        input_requests: Vec::new(),
        sent: Vec::new(),
        events: Vec::new(),
        exchange: 0,
    };
    harness.client.start(0);
    harness.drain();
    for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            ">" => assert_eq!(harness.next_sent(), rest, "in\n{transcript}"),
            "!" => assert_eq!(harness.next_event(), rest, "in\n{transcript}"),
            "<" => harness.receive(transport, rest),
            _ => {
                harness.assert_drained(transcript);
                harness.perform(verb, rest);
            }
        }
        harness.drain();
    }
    harness.assert_drained(transcript);
}

impl ClientHarness {
    fn perform(&mut self, verb: &str, rest: &str) {
        let now = self.now;
        let object = |text: &str| Json::parse(if text.is_empty() { "{}" } else { text }).expect("JSON");
        match verb {
            "call" | "call_with_progress" | "call_for_100_s" => {
                let (method, params) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let method = Method::TABLE.iter().find(|(_, name, _)| *name == method).expect("a method").0;
                let call = ClientCall {
                    wants_progress: verb != "call",
                    timeout_ms: Some(60_000),
                    total_timeout_ms: (verb == "call_for_100_s").then_some(100_000),
                    ..ClientCall::new(method, object(params))
                };
                self.calls.push(self.client.call(call, now));
            }
            "list" => {
                let list = match rest {
                    "tools" => ListKind::Tools,
                    "prompts" => ListKind::Prompts,
                    _ => ListKind::Resources,
                };
                self.calls.push(self.client.list(list, None, now));
            }
            "listen" => {
                let uris = rest.split_whitespace().map(str::to_owned).collect();
                let filter = NotificationFilter {
                    tools_list_changed: true,
                    resource_uris: uris,
                    ..NotificationFilter::default()
                };
                self.calls.push(self.client.listen(&filter, now));
            }
            "ping" => self.calls.push(self.client.ping(None, now)),
            "level" => self.client.set_level(LogLevel::parse(rest).expect("a level"), now),
            "cancel" => self.client.cancel(self.calls[rest.parse::<usize>().expect("a number")]),
            "answer" => {
                let request = self.input_requests.remove(0);
                self.client.respond(request, InputReply::Result(object(rest)));
            }
            "refuse" => {
                let request = self.input_requests.remove(0);
                self.client.respond(request, InputReply::Declined(rest.to_owned()));
            }
            "wait" => {
                self.now += rest.parse::<u64>().expect("milliseconds");
                self.client.tick(self.now);
            }
            "closed" => self.client.connection_closed(rest),
            "cut" => self.client.exchange_failed(self.exchange, ClientError::ConnectionClosed("cut".into())),
            // The next message arrives in this exchange.
            "at" => self.exchange = parse_exchange(rest),
            "ended" => {
                let (id, retry) = rest.split_once(' ').unwrap_or((rest, ""));
                let id = (!id.is_empty()).then(|| id.to_owned());
                self.client.stream_ended(self.exchange, id, retry.parse().ok());
            }
            "session" => self.client.set_session(self.exchange, rest),
            other => panic!("unknown action: {other}"),
        }
    }

    fn receive(&mut self, transport: TransportKind, rest: &str) {
        match transport {
            TransportKind::Pipe => self.client.receive(rest.as_bytes().to_vec(), None, self.now),
            TransportKind::Http => {
                let (status, body) = rest.split_once(' ').unwrap_or((rest, ""));
                match status {
                    "event" => {
                        self.client.receive(body.as_bytes().to_vec(), Some(self.exchange), self.now);
                    }
                    _ => {
                        let status = status.parse().expect("a status");
                        let reply = HttpResponse { status, body: body.into(), ..HttpResponse::default() };
                        self.client.http_response(self.exchange, reply, self.now);
                    }
                }
            }
        }
    }

    fn drain(&mut self) {
        while let Some(action) = self.client.next_action() {
            self.sent.push(match action {
                Action::Send(message) => {
                    self.exchange = message.exchange;
                    let mut line = String::from_utf8(message.body).expect("UTF-8");
                    for (name, value) in message.headers {
                        line.push_str(&format!(" [{name}: {value}]"));
                    }
                    line
                }
                Action::Abort(exchange) => format!("abort {}", exchange_name(exchange)),
                Action::Get { delay_ms, last_event_id, headers, .. } => {
                    let mut line = format!("GET after {delay_ms} from {last_event_id:?}");
                    for (name, value) in headers {
                        line.push_str(&format!(" [{name}: {value}]"));
                    }
                    line
                }
            });
        }
        while let Some(event) = self.client.next_event() {
            let index = |call_id| {
                self.calls.iter().position(|t| *t == call_id).map_or("new".into(), |i| i.to_string())
            };
            let line = match event {
                ClientEvent::Ready(server) => {
                    format!("ready {} {}", server.protocol_version.as_str(), server.name)
                        .trim_end()
                        .to_owned()
                }
                ClientEvent::Done { call_id, result } => format!("done {} {result}", index(call_id)),
                ClientEvent::Listed { call_id, items } => format!("listed {} {items:?}", index(call_id)),
                ClientEvent::Failed { call_id, error } => format!("failed {} {error}", index(call_id)),
                ClientEvent::Progress { call_id, progress, total, message } => {
                    format!("progress {} {progress} {total:?} {message:?}", index(call_id))
                }
                ClientEvent::Log { level, data, .. } => format!("log {level} {data}"),
                ClientEvent::CatalogChanged(change) => format!("changed {change:?}"),
                ClientEvent::SubscriptionStarted { call_id, granted } => {
                    format!(
                        "listening {} {} {:?}",
                        index(call_id),
                        granted.tools_list_changed,
                        granted.resource_uris
                    )
                }
                ClientEvent::InputRequested(request) => {
                    self.input_requests.push(request.id);
                    format!("input_requested {:?} {}", request.kind, request.params)
                }
                ClientEvent::InputRequestCancelled(_) => "input_cancelled".to_owned(),
                ClientEvent::ElicitationCompleted(id) => format!("elicitation_completed {id}"),
                ClientEvent::Warning(message) => format!("warning {message}"),
                ClientEvent::Closed(error) => format!("closed {error}"),
            };
            self.events.push(line);
        }
    }

    fn next_sent(&mut self) -> String {
        if self.sent.is_empty() { "(nothing)".into() } else { self.sent.remove(0) }
    }

    fn next_event(&mut self) -> String {
        if self.events.is_empty() { "(nothing)".into() } else { self.events.remove(0) }
    }

    /// The transcript lists every message and event.
    fn assert_drained(&self, transcript: &str) {
        assert!(
            self.sent.is_empty() && self.events.is_empty(),
            "not in the transcript: {:?} {:?}, in\n{transcript}",
            self.sent,
            self.events
        );
    }
}

/// Exchanges of requests have the number of the request. Those of notifications and streams are `x0`, `x1` and so on.
const EXCHANGE_WITHOUT_REQUEST_MIN: u64 = 1 << 62;

fn exchange_name(exchange: u64) -> String {
    match exchange.checked_sub(EXCHANGE_WITHOUT_REQUEST_MIN) {
        Some(number) => format!("x{number}"),
        None => exchange.to_string(),
    }
}

fn parse_exchange(name: &str) -> u64 {
    match name.strip_prefix('x') {
        Some(number) => EXCHANGE_WITHOUT_REQUEST_MIN + number.parse::<u64>().expect("a number"),
        None => name.parse().expect("a number"),
    }
}

/// Runs `rest` after a probe that the server accepts.
fn on_modern_pipe(rest: &str) {
    let opening = r#"
        > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}}}}
        ! ready 2026-07-28 s
    "#;
    check(TransportKind::Pipe, VersionPolicy::Any, &with_meta(&format!("{opening}{rest}")));
}

const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}"#;

fn with_meta(text: &str) -> String {
    text.replace("META", META)
}

const INITIALIZED: &str = r#"
    > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":CAPS,"clientInfo":{"name":"c","version":"1"}}}
    < {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"VERSION","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"2"}}}
    > {"jsonrpc":"2.0","method":"notifications/initialized"}
    ! ready VERSION s
"#;

fn on_initialized_pipe(version: &str, rest: &str) {
    let opening = INITIALIZED.replace("VERSION", version).replace("CAPS", "{}");
    check(TransportKind::Pipe, VersionPolicy::HandshakeOnly, &format!("{opening}{rest}"));
}

#[test]
fn a_call_to_a_server_of_the_stateless_era() {
    on_modern_pipe(
        r#"
        call tools/call {"name":"t","arguments":{"a":1}}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{"a":1},"_meta":{META}}}
        < {"jsonrpc":"2.0","id":2,"result":{"content":[],"resultType":"complete"}}
        ! done 0 {"content":[],"resultType":"complete"}
    "#,
    );
}

#[test]
fn a_result_without_result_type_is_complete_and_an_unknown_one_is_an_error() {
    on_modern_pipe(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":2,"result":{"content":[]}}
        ! done 0 {"content":[]}
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":3,"result":{"resultType":"surprise"}}
        ! failed 1 unknown `resultType`: `surprise`
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":4,"result":[]}
        ! failed 2 the result is not an object
    "#,
    );
}

#[test]
fn any_other_response_to_the_probe_means_the_handshake_era() {
    for answer in [
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"not initialized"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    ] {
        check(
            TransportKind::Pipe,
            VersionPolicy::Any,
            &with_meta(&format!(
                r#"
                > {{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{{META}}}}}}
                < {answer}
                > {{"jsonrpc":"2.0","id":2,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}
                < {{"jsonrpc":"2.0","id":2,"result":{{"protocolVersion":"2024-11-05","capabilities":{{}},"serverInfo":{{"name":"old","version":"0"}}}}}}
                > {{"jsonrpc":"2.0","method":"notifications/initialized"}}
                ! ready 2024-11-05 old
            "#
            )),
        );
    }
}

#[test]
fn no_response_to_the_probe_on_a_pipe_means_the_handshake_era() {
    check(
        TransportKind::Pipe,
        VersionPolicy::Any,
        &with_meta(
            r#"
            > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
            wait 2999
            wait 1
            > {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
            < {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"late"}}
            < {"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
            > {"jsonrpc":"2.0","method":"notifications/initialized"}
            ! ready 2025-03-26 s
            wait 100000
        "#,
        ),
    );
}

#[test]
fn a_server_that_never_responds_times_out() {
    check(
        TransportKind::Pipe,
        VersionPolicy::HandshakeOnly,
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        call tools/call {"name":"t"}
        wait 30000
        ! failed 0 no response within 30000 ms
        ! closed no response within 30000 ms
        call tools/call {"name":"t"}
        ! failed 1 the connection is closed
    "#,
    );
}

#[test]
fn no_common_version_closes_with_an_error() {
    check(
        TransportKind::Pipe,
        VersionPolicy::Any,
        &with_meta(
            r#"
            > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
            < {"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"?","data":{"supported":["2031-01-01"],"requested":"x"}}}
            ! closed the server supports only protocol version 2031-01-01, which this client does not allow
        "#,
        ),
    );
    check(
        TransportKind::Pipe,
        VersionPolicy::Only(Version::V2024_11_05),
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        < {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        ! closed the server supports only protocol version 2025-11-25, which this client does not allow
    "#,
    );
    check(
        TransportKind::Pipe,
        VersionPolicy::Only(Version::V2026_07_28),
        &with_meta(
            r#"
            > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
            < {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}
            ! closed the server supports only versions with a handshake; this client allows only 2026-07-28
        "#,
        ),
    );
}

#[test]
fn the_client_retries_with_a_version_that_the_server_supports() {
    check(
        TransportKind::Pipe,
        VersionPolicy::Any,
        &with_meta(
            r#"
            > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
            < {"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"?","data":{"supported":["2025-06-18","1999-01-01"],"requested":"x"}}}
            > {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
            < {"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
            > {"jsonrpc":"2.0","method":"notifications/initialized"}
            ! ready 2025-06-18 s
        "#,
        ),
    );
}

#[test]
fn calls_are_sent_once_the_server_is_ready() {
    check(
        TransportKind::Pipe,
        VersionPolicy::HandshakeOnly,
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        call tools/call {"name":"t"}
        < {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}
        ! ready 2025-11-25 s
        < {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"unknown tool `t`"}}
        ! failed 0 unknown tool `t` (-32602)
    "#,
    );
}

#[test]
fn input_required_results_start_rounds() {
    let caps = META.replace(
        r#""io.modelcontextprotocol/clientCapabilities":{}"#,
        r#""io.modelcontextprotocol/clientCapabilities":{"roots":{},"elicitation":{"form":{}}}"#,
    );
    let script = r#"
        > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"?"}},"r":{"method":"roots/list"}},"requestState":"A\u00e9/\/b"}}
        ! input_requested Elicitation {"message":"?"}
        ! input_requested Roots {}
        answer {"action":"accept","content":{}}
        answer {"roots":[]}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","inputResponses":{"k":{"action":"accept","content":{}},"r":{"roots":[]}},"requestState":"A\u00e9/\/b","_meta":{META}}}
        < {"jsonrpc":"2.0","id":3,"result":{"resultType":"input_required","requestState":"2"}}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t","requestState":"2","_meta":{META}}}
        < {"jsonrpc":"2.0","id":4,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}}}}}
        ! input_requested Elicitation {}
        refuse no user
        > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t","inputResponses":{"k":{"action":"decline"}},"_meta":{META}}}
        < {"jsonrpc":"2.0","id":5,"result":{"resultType":"complete"}}
        ! done 0 {"resultType":"complete"}
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":6,"result":{"resultType":"input_required","inputRequests":{"s":{"method":"sampling/createMessage","params":{}}}}}
        ! failed 1 invalid `input_required` result: this client did not declare a capability for `sampling/createMessage`
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}}
        ! input_requested Roots {}
        refuse there are none
        ! failed 2 there are none
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":8,"result":{"resultType":"input_required"}}
        ! failed 3 invalid `input_required` result: it has neither `inputRequests` nor `requestState`
        list tools
        > {"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":9,"result":{"resultType":"input_required","requestState":"x"}}
        ! failed 4 invalid `input_required` result: this method does not support input requests
    "#
    .replace("META", &caps);
    let caps = ClientCapabilities::ROOTS.with(ClientCapabilities::ELICITATION_FORM);
    check_with(TransportKind::Pipe, ClientOptions { capabilities: caps, ..options() }, &script);
}

#[test]
fn the_number_of_rounds_is_limited() {
    let mut script = String::from(
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}}
    "#,
    );
    for id in 2..12 {
        script.push_str(&format!(
            "< {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"input_required\",\"requestState\":\"s\"}}}}\n> {{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tools/call\",\"params\":{{\"name\":\"t\",\"requestState\":\"s\",\"_meta\":{{META}}}}}}\n",
            id + 1
        ));
    }
    script.push_str(
        r#"
        < {"jsonrpc":"2.0","id":12,"result":{"resultType":"input_required","requestState":"s"}}
        ! failed 0 the call exceeds the limit of 10 rounds of input
    "#,
    );
    check(TransportKind::Pipe, VersionPolicy::Any, &with_meta(&script));
}

#[test]
fn input_requests_of_the_handshake_era_are_requests() {
    let opening =
        INITIALIZED.replace("VERSION", "2025-11-25").replace("CAPS", r#"{"elicitation":{"form":{}}}"#);
    let script = opening
        + r#"
        < {"jsonrpc":"2.0","id":"p","method":"ping"}
        > {"jsonrpc":"2.0","id":"p","result":{}}
        < {"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"mode":"form","message":"?"}}
        ! input_requested Elicitation {"mode":"form","message":"?"}
        answer {"action":"accept","content":{"x":1}}
        > {"jsonrpc":"2.0","id":7,"result":{"action":"accept","content":{"x":1}}}
        < {"jsonrpc":"2.0","id":8,"method":"elicitation/create","params":{"mode":"url","message":"?"}}
        > {"jsonrpc":"2.0","id":8,"error":{"code":-32601,"message":"method not found: `elicitation/create`"}}
        < {"jsonrpc":"2.0","id":9,"method":"roots/list"}
        > {"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"method not found: `roots/list`"}}
        < {"jsonrpc":"2.0","id":10,"method":"elicitation/create","params":{}}
        ! input_requested Elicitation {}
        < {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10}}
        ! input_cancelled
        < {"jsonrpc":"2.0","id":11,"method":"elicitation/create","params":{}}
        ! input_requested Elicitation {}
        closed the server exited
        ! input_cancelled
        ! closed the server exited
    "#;
    check_with(
        TransportKind::Pipe,
        ClientOptions {
            capabilities: ClientCapabilities::ELICITATION_FORM,
            version_policy: VersionPolicy::HandshakeOnly,
            ..options()
        },
        &script,
    );
}

#[test]
fn a_server_that_sends_requests_and_does_not_read_is_closed() {
    let mut client = Client::new(
        ClientOptions { version_policy: VersionPolicy::HandshakeOnly, calls_max: 8, ..options() },
        TransportKind::Pipe,
    );
    client.start(0);
    let greeting = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"2"}}}"#;
    client.receive(greeting.into(), None, 0);
    for id in 0..100 {
        client.receive(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).into(), None, 0);
    }
    let closed = std::iter::from_fn(|| client.next_event())
        .filter(|event| matches!(event, ClientEvent::Closed(_)))
        .count();
    let actions = std::iter::from_fn(|| client.next_action()).count();
    assert_eq!((closed, actions), (1, 16));
}

#[test]
fn the_timeout_does_not_run_while_the_user_answers() {
    let opening =
        INITIALIZED.replace("VERSION", "2025-11-25").replace("CAPS", r#"{"elicitation":{"form":{}}}"#);
    let script = opening
        + r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}
        < {"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}
        ! input_requested Elicitation {}
        wait 60000
        wait 50000
        answer {"action":"decline"}
        > {"jsonrpc":"2.0","id":7,"result":{"action":"decline"}}
        wait 10000
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the request timed out"}}
        ! failed 0 no response within 60000 ms
    "#;
    check_with(
        TransportKind::Pipe,
        ClientOptions {
            capabilities: ClientCapabilities::ELICITATION_FORM,
            version_policy: VersionPolicy::HandshakeOnly,
            ..options()
        },
        &script,
    );
}

#[test]
fn requests_from_a_server_of_the_stateless_era_are_skipped() {
    on_modern_pipe(
        r#"
        < {"jsonrpc":"2.0","id":1,"method":"roots/list"}
        ! warning skipped a request from the server, which this protocol version does not allow: `roots/list`
    "#,
    );
}

#[test]
fn cancelling_a_call_notifies_the_server_and_ignores_its_response() {
    on_initialized_pipe(
        "2025-06-18",
        r#"
        call_with_progress tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":2}}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1,"total":3,"message":"m"}}
        ! progress 0 1 Some(3.0) Some("m")
        cancel 0
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the caller cancelled the request"}}
        ! failed 0 cancelled
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":2}}
        < {"jsonrpc":"2.0","id":2,"result":{}}
        cancel 0
    "#,
    );
}

#[test]
fn a_call_that_times_out_is_cancelled() {
    on_modern_pipe(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        wait 59999
        wait 1
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the request timed out"}}
        ! failed 0 no response within 60000 ms
    "#,
    );
}

#[test]
fn a_response_that_cannot_be_read_fails_its_request_at_once() {
    on_modern_pipe(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":2,"result":{"a":1,"a":2}}
        ! failed 0 the response is not readable: duplicate key at byte 40: `{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"a\":1,\"a\":2}}`
    "#,
    );
}

#[test]
fn a_timeout_on_a_pipe_mentions_an_unreadable_message() {
    on_modern_pipe(
        r#"
        < a log line
        ! warning skipped an unreadable message: not valid JSON at byte 0: `a log line`
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        wait 60000
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the request timed out"}}
        ! failed 0 no response within 60000 ms
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"id":5,"id":5}
        ! warning skipped an unreadable message: duplicate key at byte 8: `{\"id\":5,\"id\":5}`
        wait 60000
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"the request timed out"}}
        ! failed 1 no response within 60000 ms; the server sent an unreadable message: duplicate key at byte 8: `{\"id\":5,\"id\":5}`
    "#,
    );
}

#[test]
fn lists_are_read_page_by_page() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        list tools
        > {"jsonrpc":"2.0","id":2,"method":"tools/list"}
        < {"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a"}],"nextCursor":""}}
        > {"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":""}}
        < {"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"b"}]}}
        ! listed 0 [{"name":"a"}, {"name":"b"}]
        list prompts
        > {"jsonrpc":"2.0","id":4,"method":"prompts/list"}
        < {"jsonrpc":"2.0","id":4,"result":{"prompts":[],"nextCursor":"x"}}
        > {"jsonrpc":"2.0","id":5,"method":"prompts/list","params":{"cursor":"x"}}
        < {"jsonrpc":"2.0","id":5,"result":{"prompts":[],"nextCursor":"x"}}
        ! failed 1 the list of prompts does not end: the server returned the same cursor twice
        list resources
        > {"jsonrpc":"2.0","id":6,"method":"resources/list"}
        < {"jsonrpc":"2.0","id":6,"result":{"tools":[]}}
        ! failed 2 the result of `resources/list` has no array `resources`
    "#,
    );
}

#[test]
fn changes_are_reported_in_both_eras() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        listen file:///a
        > {"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///a"}}
        < {"jsonrpc":"2.0","id":2,"result":{}}
        ! listening 0 true ["file:///a"]
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}
        ! changed Tools
        < {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}
        ! changed Resource("file:///a")
        cancel 0
        > {"jsonrpc":"2.0","id":3,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}
        ! failed 0 cancelled
    "#,
    );
    on_modern_pipe(
        r#"
        listen file:///a
        > {"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]},"_meta":{META}}}
        < {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2},"notifications":{"toolsListChanged":true}}}
        ! listening 0 true []
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}
        ! changed Tools
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":99}}}
        ! warning skipped a change notification that belongs to no subscription
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}
        ! warning skipped a change notification that belongs to no subscription
        < {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete"}}
        ! done 0 {"resultType":"complete"}
        < {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}
    "#,
    );
}

#[test]
fn the_log_level_is_sent_as_the_era_requires() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        level debug
        > {"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}
        < {"jsonrpc":"2.0","id":2,"result":{}}
        < {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hi"}}
        ! log info "hi"
    "#,
    );
    let level = format!(r#"{META},"io.modelcontextprotocol/logLevel":"debug""#);
    on_modern_pipe(
        &r#"
        level debug
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{LEVEL}}}
        < {"jsonrpc":"2.0","id":2,"result":{}}
        ! done 0 {}
    "#
        .replace("LEVEL", &level),
    );
}
