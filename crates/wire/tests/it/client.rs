//! The client's machine, as transcripts: what it is told to do, what it sends, what it makes of what comes back.
//!
//! `>` it sends, `<` it gets, `!` it says; the other lines are what somebody does. Over HTTP `<` names a status
//! first, and `>` may be followed by headers in `[…]`.

mod over_http;
mod regressions;

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
    tickets: Vec<CallId>,
    asks: Vec<InputRequestId>,
    sent: Vec<String>,
    events: Vec<String>,
    /// The exchange of the last message that was sent.
    exchange: u64,
}

fn check(link: TransportKind, speak: VersionPolicy, transcript: &str) {
    check_with(link, ClientOptions { version_policy: speak, ..options() }, transcript);
}

fn options() -> ClientOptions {
    ClientOptions { name: "c".into(), version: "1".into(), ..ClientOptions::default() }
}

fn check_with(link: TransportKind, terms: ClientOptions, transcript: &str) {
    let mut stage = ClientHarness {
        client: Client::new(terms, link),
        now: 0,
        tickets: Vec::new(),
        asks: Vec::new(),
        sent: Vec::new(),
        events: Vec::new(),
        exchange: 0,
    };
    stage.client.start(0);
    stage.drain();
    for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            ">" => assert_eq!(stage.next_sent(), rest, "in\n{transcript}"),
            "!" => assert_eq!(stage.next_event(), rest, "in\n{transcript}"),
            "<" => stage.receive(link, rest),
            _ => {
                stage.assert_drained(transcript);
                stage.perform(word, rest);
            }
        }
        stage.drain();
    }
    stage.assert_drained(transcript);
}

impl ClientHarness {
    fn perform(&mut self, word: &str, rest: &str) {
        let now = self.now;
        let object = |text: &str| Json::parse(if text.is_empty() { "{}" } else { text }).expect("JSON");
        match word {
            "call" | "follow" => {
                let (method, params) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let method = Method::TABLE.iter().find(|(_, name, _)| *name == method).expect("a method").0;
                let call = ClientCall {
                    wants_progress: word == "follow",
                    timeout_ms: Some(60_000),
                    ..ClientCall::new(method, object(params))
                };
                self.tickets.push(self.client.call(call, now));
            }
            "list" => {
                let list = match rest {
                    "tools" => ListKind::Tools,
                    "prompts" => ListKind::Prompts,
                    _ => ListKind::Resources,
                };
                self.tickets.push(self.client.list(list, None, now));
            }
            "listen" => {
                let uris = rest.split_whitespace().map(str::to_owned).collect();
                let filter = NotificationFilter {
                    tools_list_changed: true,
                    resource_uris: uris,
                    ..NotificationFilter::default()
                };
                self.tickets.push(self.client.listen(&filter, now));
            }
            "ping" => self.tickets.push(self.client.ping(None, now)),
            "level" => self.client.set_level(LogLevel::parse(rest).expect("a level"), now),
            "cancel" => self.client.cancel(self.tickets[rest.parse::<usize>().expect("a number")]),
            "answer" => {
                let ask = self.asks.remove(0);
                self.client.respond(ask, InputReply::Result(object(rest)));
            }
            "refuse" => {
                let ask = self.asks.remove(0);
                self.client.respond(ask, InputReply::Declined(rest.to_owned()));
            }
            "wait" => {
                self.now += rest.parse::<u64>().expect("milliseconds");
                self.client.tick(self.now);
            }
            "closed" => self.client.connection_closed(rest),
            "cut" => self.client.exchange_failed(self.exchange, ClientError::ConnectionClosed("cut".into())),
            // What comes next comes in this exchange.
            "at" => self.exchange = rest.parse().expect("a number"),
            // The exchange before the last one answers.
            "ended" => {
                let (id, retry) = rest.split_once(' ').unwrap_or((rest, ""));
                let id = (!id.is_empty()).then(|| id.to_owned());
                self.client.stream_ended(self.exchange, id, retry.parse().ok());
            }
            "session" => self.client.set_session(self.exchange, rest),
            other => panic!("no such word: {other}"),
        }
    }

    fn receive(&mut self, link: TransportKind, rest: &str) {
        match link {
            TransportKind::Pipe => self.client.receive(rest.as_bytes().to_vec(), None, self.now),
            TransportKind::Http => {
                let (status, body) = rest.split_once(' ').unwrap_or((rest, ""));
                match status {
                    "event" => {
                        self.client.receive(body.as_bytes().to_vec(), Some(self.exchange), self.now);
                    }
                    _ => {
                        let status = status.parse().expect("a status");
                        let reply = HttpResponse { status, body: body.into(), www_authenticate: None };
                        self.client.http_response(self.exchange, reply, self.now);
                    }
                }
            }
        }
    }

    fn drain(&mut self) {
        while let Some(todo) = self.client.next_action() {
            self.sent.push(match todo {
                Action::Send(send) => {
                    self.exchange = send.exchange;
                    let mut line = String::from_utf8(send.body).expect("UTF-8");
                    for (name, value) in send.headers {
                        line.push_str(&format!(" [{name}: {value}]"));
                    }
                    line
                }
                Action::Abort(exchange) => format!("abandon {exchange}"),
                Action::Get { delay_ms: after_ms, last_event_id: last_id, headers: heads, .. } => {
                    let mut line = format!("GET after {after_ms} from {last_id:?}");
                    for (name, value) in heads {
                        line.push_str(&format!(" [{name}: {value}]"));
                    }
                    line
                }
            });
        }
        while let Some(event) = self.client.next_event() {
            let nth = |ticket| {
                self.tickets.iter().position(|t| *t == ticket).map_or("new".into(), |i| i.to_string())
            };
            let line = match event {
                ClientEvent::Ready(hello) => {
                    format!("ready {} {}", hello.protocol_version.as_str(), hello.name).trim_end().to_owned()
                }
                ClientEvent::Done { ticket, result } => format!("done {} {result}", nth(ticket)),
                ClientEvent::Listed { ticket, items } => format!("listed {} {items:?}", nth(ticket)),
                ClientEvent::Failed { ticket, error: why } => format!("failed {} {why}", nth(ticket)),
                ClientEvent::Progress { ticket, progress, total, message } => {
                    format!("progress {} {progress} {total:?} {message:?}", nth(ticket))
                }
                ClientEvent::Log { level, data, .. } => format!("log {level} {data}"),
                ClientEvent::CatalogChanged(change) => format!("changed {change:?}"),
                ClientEvent::SubscriptionStarted { ticket, granted } => {
                    format!(
                        "listening {} {} {:?}",
                        nth(ticket),
                        granted.tools_list_changed,
                        granted.resource_uris
                    )
                }
                ClientEvent::InputRequested(question) => {
                    self.asks.push(question.id);
                    format!("asked {:?} {}", question.kind, question.params)
                }
                ClientEvent::InputRequestCancelled(_) => "withdrawn".to_owned(),
                ClientEvent::Warning(what) => format!("odd {what}"),
                ClientEvent::Closed(why) => format!("over {why}"),
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

    /// Everything that was sent or said has been told.
    fn assert_drained(&self, transcript: &str) {
        assert!(
            self.sent.is_empty() && self.events.is_empty(),
            "left: {:?} {:?} in\n{transcript}",
            self.sent,
            self.events
        );
    }
}

/// The messages that open every transcript, shortened.
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
fn a_call_to_a_modern_server() {
    on_modern_pipe(
        r#"
        call tools/call {"name":"t","arguments":{"a":1}}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t","arguments":{"a":1},"_meta":{META}}}
        < {"jsonrpc":"2.0","id":4,"result":{"content":[],"resultType":"complete"}}
        ! done 0 {"content":[],"resultType":"complete"}
    "#
        .replace(r#""id":4"#, r#""id":3"#)
        .as_str(),
    );
}

#[test]
fn a_result_without_its_kind_is_complete_and_an_unknown_kind_is_none() {
    on_modern_pipe(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":3,"result":{"content":[]}}
        ! done 0 {"content":[]}
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":5,"result":{"resultType":"surprise"}}
        ! failed 1 a result of the unknown kind `surprise`
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":7,"result":[]}
        ! failed 2 a result that is no object
    "#,
    );
}

#[test]
fn a_server_of_the_handshake_era_is_found_by_any_other_answer() {
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
fn silence_on_a_pipe_means_the_handshake_era() {
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
fn a_server_that_never_answers_is_given_up() {
    check(
        TransportKind::Pipe,
        VersionPolicy::HandshakeOnly,
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        call tools/call {"name":"t"}
        wait 30000
        ! failed 0 no answer within 30000 ms
        ! over no answer within 30000 ms
        call tools/call {"name":"t"}
        ! failed 1 the connection is closed
    "#,
    );
}

#[test]
fn versions_that_do_not_meet_are_told() {
    check(
        TransportKind::Pipe,
        VersionPolicy::Any,
        &with_meta(
            r#"
            > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
            < {"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"?","data":{"supported":["2031-01-01"],"requested":"x"}}}
            ! over the server speaks protocol 2031-01-01, which will not do here
        "#,
        ),
    );
    check(
        TransportKind::Pipe,
        VersionPolicy::Only(Version::V2024_11_05),
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        < {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        ! over the server speaks protocol 2025-11-25, which will not do here
    "#,
    );
    check(
        TransportKind::Pipe,
        VersionPolicy::Only(Version::V2026_07_28),
        &with_meta(
            r#"
            > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
            < {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}
            ! over the server is of the time before 2026-07-28, which is all that was asked for
        "#,
        ),
    );
}

#[test]
fn a_refused_version_is_followed_by_a_supported_one() {
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
fn calls_wait_until_the_server_is_ready() {
    check(
        TransportKind::Pipe,
        VersionPolicy::HandshakeOnly,
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        call tools/call {"name":"t"}
        < {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}
        ! ready 2025-11-25 s
        < {"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"unknown tool `t`"}}
        ! failed 0 unknown tool `t` (-32602)
    "#,
    );
}

#[test]
fn questions_of_the_newest_era_are_rounds() {
    let caps = META.replace(
        r#""io.modelcontextprotocol/clientCapabilities":{}"#,
        r#""io.modelcontextprotocol/clientCapabilities":{"roots":{},"elicitation":{"form":{}}}"#,
    );
    let script = r#"
        > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":3,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"?"}},"r":{"method":"roots/list"}},"requestState":"A\u00e9/\/b"}}
        ! asked Elicitation {"message":"?"}
        ! asked Roots {}
        answer {"action":"accept","content":{}}
        answer {"roots":[]}
        > {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"t","inputResponses":{"k":{"action":"accept","content":{}},"r":{"roots":[]}},"requestState":"A\u00e9/\/b","_meta":{META}}}
        < {"jsonrpc":"2.0","id":6,"result":{"resultType":"input_required","requestState":"2"}}
        > {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","requestState":"2","_meta":{META}}}
        < {"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}}}}}
        ! asked Elicitation {}
        refuse nobody is here
        > {"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"t","inputResponses":{"k":{"action":"decline"}},"_meta":{META}}}
        < {"jsonrpc":"2.0","id":9,"result":{"resultType":"complete"}}
        ! done 0 {"resultType":"complete"}
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":11,"result":{"resultType":"input_required","inputRequests":{"s":{"method":"sampling/createMessage","params":{}}}}}
        ! failed 1 questions that cannot be answered: `sampling/createMessage` is nothing that this client offers
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":13,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":13,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}}
        ! asked Roots {}
        refuse there are none
        ! failed 2 there are none
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":16,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"jsonrpc":"2.0","id":16,"result":{"resultType":"input_required"}}
        ! failed 3 questions that cannot be answered: there are none, and no state to go on with
        list tools
        > {"jsonrpc":"2.0","id":18,"method":"tools/list","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":18,"result":{"resultType":"input_required","requestState":"x"}}
        ! failed 4 questions that cannot be answered: this kind of request has none
    "#
    .replace("META", &caps);
    let caps = ClientCapabilities::ROOTS.with(ClientCapabilities::ELICITATION_FORM);
    check_with(TransportKind::Pipe, ClientOptions { capabilities: caps, ..options() }, &script);
}

#[test]
fn rounds_have_an_end() {
    let mut script = String::from(
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{META}}}
    "#,
    );
    for id in 3..13 {
        script.push_str(&format!(
            "< {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"input_required\",\"requestState\":\"s\"}}}}\n> {{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tools/call\",\"params\":{{\"name\":\"t\",\"requestState\":\"s\",\"_meta\":{{META}}}}}}\n",
            id + 1
        ));
    }
    script.push_str(
        r#"
        < {"jsonrpc":"2.0","id":13,"result":{"resultType":"input_required","requestState":"s"}}
        ! failed 0 more than 10 rounds of questions
    "#,
    );
    check(TransportKind::Pipe, VersionPolicy::Any, &with_meta(&script));
}

#[test]
fn questions_of_the_handshake_era_are_requests() {
    let opening =
        INITIALIZED.replace("VERSION", "2025-11-25").replace("CAPS", r#"{"elicitation":{"form":{}}}"#);
    let script = opening
        + r#"
        < {"jsonrpc":"2.0","id":"p","method":"ping"}
        > {"jsonrpc":"2.0","id":"p","result":{}}
        < {"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"mode":"form","message":"?"}}
        ! asked Elicitation {"mode":"form","message":"?"}
        answer {"action":"accept","content":{"x":1}}
        > {"jsonrpc":"2.0","id":7,"result":{"action":"accept","content":{"x":1}}}
        < {"jsonrpc":"2.0","id":8,"method":"elicitation/create","params":{"mode":"url","message":"?"}}
        > {"jsonrpc":"2.0","id":8,"error":{"code":-32601,"message":"method not found: `elicitation/create`"}}
        < {"jsonrpc":"2.0","id":9,"method":"roots/list"}
        > {"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"method not found: `roots/list`"}}
        < {"jsonrpc":"2.0","id":10,"method":"elicitation/create","params":{}}
        ! asked Elicitation {}
        < {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10}}
        ! withdrawn
        < {"jsonrpc":"2.0","id":11,"method":"elicitation/create","params":{}}
        ! asked Elicitation {}
        closed the server exited
        ! withdrawn
        ! over the server exited
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
fn a_server_that_asks_and_does_not_read_is_given_up() {
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
    let over = std::iter::from_fn(|| client.next_event())
        .filter(|event| matches!(event, ClientEvent::Closed(_)))
        .count();
    let kept = std::iter::from_fn(|| client.next_action()).count();
    assert_eq!((over, kept), (1, 16));
}

#[test]
fn whoever_is_being_asked_may_take_their_time() {
    let opening =
        INITIALIZED.replace("VERSION", "2025-11-25").replace("CAPS", r#"{"elicitation":{"form":{}}}"#);
    let script = opening
        + r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}
        < {"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}
        ! asked Elicitation {}
        wait 60000
        wait 50000
        answer {"action":"decline"}
        > {"jsonrpc":"2.0","id":7,"result":{"action":"decline"}}
        wait 10000
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"it took too long"}}
        ! failed 0 no answer within 60000 ms
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
fn a_modern_server_asks_nothing_of_its_own() {
    on_modern_pipe(
        r#"
        < {"jsonrpc":"2.0","id":1,"method":"roots/list"}
        ! odd a request of the server's own: `roots/list`
    "#,
    );
}

#[test]
fn cancelling_a_call_tells_the_server_and_drops_what_comes() {
    on_initialized_pipe(
        "2025-06-18",
        r#"
        follow tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":4}}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4,"progress":1,"total":3,"message":"m"}}
        ! progress 0 1 Some(3.0) Some("m")
        cancel 0
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"nobody waits for it any more"}}
        ! failed 0 cancelled
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4,"progress":2}}
        < {"jsonrpc":"2.0","id":4,"result":{}}
        cancel 0
    "#,
    );
}

#[test]
fn a_call_that_takes_too_long_is_cancelled() {
    on_modern_pipe(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        wait 59999
        wait 1
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"it took too long"}}
        ! failed 0 no answer within 60000 ms
    "#,
    );
}

#[test]
fn an_answer_on_a_pipe_that_cannot_be_read_is_told_when_time_is_up() {
    on_modern_pipe(
        r#"
        < before it was asked
        ! odd skipped what cannot be read: not valid JSON at byte 0: `before it was asked`
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        wait 60000
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"it took too long"}}
        ! failed 0 no answer within 60000 ms
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"t","_meta":{META}}}
        < {"id":5,"id":5}
        ! odd skipped what cannot be read: duplicate key at byte 8: `{\"id\":5,\"id\":5}`
        wait 60000
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6,"reason":"it took too long"}}
        ! failed 1 no answer within 60000 ms; meanwhile the server sent what cannot be read: duplicate key at byte 8: `{\"id\":5,\"id\":5}`
    "#,
    );
}

#[test]
fn lists_are_read_page_by_page_and_end() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        list tools
        > {"jsonrpc":"2.0","id":4,"method":"tools/list"}
        < {"jsonrpc":"2.0","id":4,"result":{"tools":[{"name":"a"}],"nextCursor":""}}
        > {"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"cursor":""}}
        < {"jsonrpc":"2.0","id":5,"result":{"tools":[{"name":"b"}]}}
        ! listed 0 [{"name":"a"}, {"name":"b"}]
        list prompts
        > {"jsonrpc":"2.0","id":7,"method":"prompts/list"}
        < {"jsonrpc":"2.0","id":7,"result":{"prompts":[],"nextCursor":"x"}}
        > {"jsonrpc":"2.0","id":8,"method":"prompts/list","params":{"cursor":"x"}}
        < {"jsonrpc":"2.0","id":8,"result":{"prompts":[],"nextCursor":"x"}}
        ! failed 1 the list of prompts does not end: one cursor came twice
        list resources
        > {"jsonrpc":"2.0","id":10,"method":"resources/list"}
        < {"jsonrpc":"2.0","id":10,"result":{"tools":[]}}
        ! failed 2 `resources/list` was answered without a list of `resources`
    "#,
    );
}

#[test]
fn changes_are_heard_in_both_eras() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        listen file:///a
        > {"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"file:///a"}}
        < {"jsonrpc":"2.0","id":5,"result":{}}
        ! listening 0 true ["file:///a"]
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}
        ! changed Tools
        < {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}
        ! changed Resource("file:///a")
        cancel 0
        > {"jsonrpc":"2.0","id":7,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}
        ! failed 0 cancelled
    "#,
    );
    on_modern_pipe(
        r#"
        listen file:///a
        > {"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]},"_meta":{META}}}
        < {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":3},"notifications":{"toolsListChanged":true}}}
        ! listening 0 true []
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":3}}}
        ! changed Tools
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":99}}}
        ! odd word of a change that nobody asked for
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}
        ! odd word of a change that nobody asked for
        < {"jsonrpc":"2.0","id":3,"result":{"resultType":"complete"}}
        ! done 0 {"resultType":"complete"}
        < {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}
    "#,
    );
}

#[test]
fn log_messages_are_asked_for_as_the_era_has_it() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        level debug
        > {"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"debug"}}
        < {"jsonrpc":"2.0","id":4,"result":{}}
        < {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hi"}}
        ! log info "hi"
    "#,
    );
    let level = format!(r#"{META},"io.modelcontextprotocol/logLevel":"debug""#);
    on_modern_pipe(
        &r#"
        level debug
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{LEVEL}}}
        < {"jsonrpc":"2.0","id":3,"result":{}}
        ! done 0 {}
    "#
        .replace("LEVEL", &level),
    );
}

#[test]
fn what_makes_no_sense_is_passed_over() {
    on_initialized_pipe(
        "2025-03-26",
        r#"
        < Server listening on stdin
        ! odd skipped what cannot be read: not valid JSON at byte 0: `Server listening on stdin`
        < 7
        ! odd skipped a message that is no object: `7`
        < {"jsonrpc":"2.0"}
        ! odd skipped a message that is neither a request nor a response: `{\"jsonrpc\":\"2.0\"}`
        < {"jsonrpc":"2.0","id":99,"result":{}}
        < {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}
        ! odd the server reports: parse error (-32700)
        < {"jsonrpc":"2.0","method":"notifications/unheard_of"}
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a"}}
        call tools/call {"name":"b"}
        > {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"b"}}
        < [{"jsonrpc":"2.0","id":6,"result":{}},{"jsonrpc":"2.0","id":4,"result":{}}]
        ! done 1 {}
        ! done 0 {}
    "#,
    );
}
