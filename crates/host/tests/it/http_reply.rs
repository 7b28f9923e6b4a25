//! How the server answers HTTP requests: what is ready at once, what waits, what survives a disconnect, and what a
//! client that comes back receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use host::{
    AcceptedTypes, CallerIdentity, CompleteReply, Config, HttpReply, PostReply, PostSender, Refusal,
    ReplyStream, Server, SessionHeaders, TicketMemo, WaitingReply,
};
use json::Json;
use spile_core::{
    Call, CallContext, Catalog, Limits, Platform as _, Principal, Provider, Run, Tool, ToolResult,
};
use testkit::FakePlatform;
use tokio::sync::Semaphore;
use wire::{HeaderField, Headers};

/// `now` answers at once, `wait` when the test releases it, `talk` reports progress before that, `pause` pauses its
/// stream before that.
struct GatedProvider {
    gate: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
}

impl Provider for GatedProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let schema = || Json::parse(r#"{"type":"object"}"#).expect("a schema");
        let tools = ["now", "wait", "talk", "pause"].map(|name| Tool::new(name, "a tool", schema()));
        Arc::new(Catalog { tools: tools.into(), list_changed: true, ..Catalog::default() })
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let name = call.name().into_owned();
        if name == "now" {
            return Run::now(ToolResult::text("now"));
        }
        let (gate, events, running) = (self.gate.clone(), cx.events.clone(), Running::new(&self.running));
        Run::later(async move {
            match &*name {
                "talk" => events.progress(1.0, None, None),
                "pause" => events.pause_stream(500),
                _ => {}
            }
            gate.acquire().await.expect("a gate is never closed").forget();
            drop(running);
            ToolResult::text(name).into()
        })
    }
}

/// Counts a call while it runs.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Fixture {
    server: Arc<Server>,
    platform: Arc<FakePlatform>,
    gate: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::with_limits(Limits::default())
    }
}

/// What a client sends with each POST.
#[derive(Clone, Copy)]
struct Peer<'a> {
    session: Option<&'a str>,
    version: &'a str,
    accepted: AcceptedTypes,
}

const STATELESS: Peer<'_> = Peer { session: None, version: "2026-07-28", accepted: AcceptedTypes::BOTH };

impl<'a> Peer<'a> {
    fn in_session(session: &'a str, accepted: AcceptedTypes) -> Self {
        Self { session: Some(session), version: "2025-11-25", accepted }
    }
}

impl Fixture {
    fn with_limits(limits: Limits) -> Self {
        let (gate, running) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let provider = GatedProvider { gate: gate.clone(), running: running.clone() };
        let platform = Arc::new(FakePlatform::new(1));
        let config = Config::new("t", "1", limits, platform.clone());
        let server = Server::new(config, vec![Arc::new(provider)]);
        Self { server, platform, gate, running }
    }

    fn post(&self, peer: Peer<'_>, body: &str) -> PostReply {
        let identity = CallerIdentity::default();
        let is_stateless = peer.version == "2026-07-28";
        let field = |text: &'static str| HeaderField::Single(text.as_bytes());
        let name =
            ["now", "wait", "talk", "pause"].into_iter().find(|name| body.contains(&format!("\"{name}\"")));
        let headers = Headers {
            version: HeaderField::Single(peer.version.as_bytes()),
            method: if is_stateless { field("tools/call") } else { HeaderField::Absent },
            name: name.filter(|_| is_stateless).map_or(HeaderField::Absent, field),
        };
        let session = header(peer.session);
        let message =
            self.server.decode_post(body.into(), headers, session, &identity, &TicketMemo::default());
        let sender = PostSender { identity: &identity, accepted: peer.accepted };
        self.server.respond_to_post(message, &sender, |_| HeaderField::Absent, &mut context())
    }

    fn call(&self, peer: Peer<'_>, tool: &str) -> PostReply {
        let meta = match peer.version {
            "2026-07-28" => {
                r#","_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#
            }
            _ => r#","_meta":{"progressToken":1}"#,
        };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}{meta}}}}}"#
        );
        self.post(peer, &body)
    }

    /// A call that is not ready at the first poll.
    fn start_call(&self, peer: Peer<'_>, tool: &str) -> WaitingReply {
        match self.call(peer, tool) {
            PostReply::Waiting(waiting) => waiting,
            PostReply::Ready(reply) => panic!("it waits: {}", describe(&reply)),
        }
    }

    fn session(&self, version: &str) -> String {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        );
        match self.post(Peer { session: None, version, accepted: AcceptedTypes::BOTH }, &body) {
            PostReply::Ready(HttpReply::Initialized { session, .. }) => session,
            PostReply::Ready(reply) => panic!("no handshake: {}", describe(&reply)),
            PostReply::Waiting(_) => panic!("a handshake is answered at once"),
        }
    }

    fn get(&self, session: Option<&str>, last_event_id: HeaderField<'_>) -> HttpReply {
        let headers =
            SessionHeaders { session_id: header(session), last_event_id, ..SessionHeaders::default() };
        self.server.open_stream(&headers, Some(AcceptedTypes::STREAM), &CallerIdentity::default())
    }

    fn resume(&self, session: &str, last_event_id: &str) -> HttpReply {
        self.get(Some(session), HeaderField::Single(last_event_id.as_bytes()))
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Lets one waiting call end, and everything run that can run.
    async fn release(&self) {
        self.gate.add_permits(1);
        run_until_idle().await;
    }
}

fn header(value: Option<&str>) -> HeaderField<'_> {
    value.map_or(HeaderField::Absent, |value| HeaderField::Single(value.as_bytes()))
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

async fn run_until_idle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// A reply in one line: the status, and the body without what varies.
fn describe(reply: &HttpReply) -> String {
    let complete = |reply: &CompleteReply| match reply {
        CompleteReply::Json { status, .. } => format!("json {status}"),
        CompleteReply::Events(events) => format!("events {}", ids_of(events)),
    };
    match reply {
        HttpReply::Accepted => "accepted".to_owned(),
        HttpReply::SessionEnded => "session ended".to_owned(),
        HttpReply::Complete(reply) => complete(reply),
        HttpReply::Initialized { reply, .. } => format!("{} in a session", complete(reply)),
        HttpReply::Stream(_) => "stream".to_owned(),
        HttpReply::Refused(refusal) => format!("{refusal:?}"),
    }
}

/// The ids and fields of some events, without their data: `id: 1-0|event: message|retry: 500`.
fn ids_of(events: &[u8]) -> String {
    let text = String::from_utf8_lossy(events);
    let fields = text.lines().filter(|line| !line.is_empty() && !line.starts_with("data"));
    fields.collect::<Vec<_>>().join("|")
}

fn poll(waiting: &mut WaitingReply, elapsed_ms: u64) -> Option<HttpReply> {
    match waiting.poll(&mut context(), elapsed_ms) {
        Poll::Ready(reply) => Some(reply),
        Poll::Pending => None,
    }
}

fn expect_stream(reply: Option<HttpReply>) -> ReplyStream {
    match reply {
        Some(HttpReply::Stream(stream)) => stream,
        Some(other) => panic!("not a stream: {}", describe(&other)),
        None => panic!("no reply yet"),
    }
}

/// All events that a stream has now, and whether it has ended.
fn read_now(stream: &mut ReplyStream, elapsed_ms: u64) -> (String, bool) {
    let mut bytes = Vec::new();
    loop {
        match stream.poll_next(&mut context(), elapsed_ms) {
            Poll::Ready(Some(more)) => bytes.extend_from_slice(&more),
            Poll::Ready(None) => return (ids_of(&bytes), true),
            Poll::Pending => return (ids_of(&bytes), false),
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

#[test]
fn message_that_needs_no_response_is_accepted() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-11-25");
        for body in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/unheard_of"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            let peer = Peer::in_session(&session, AcceptedTypes::BOTH);
            for accepted in [AcceptedTypes::BOTH, AcceptedTypes::JSON, AcceptedTypes::STREAM] {
                match fixture.post(Peer { accepted, ..peer }, body) {
                    PostReply::Ready(reply) => assert_eq!(describe(&reply), "accepted", "{body}"),
                    PostReply::Waiting(_) => panic!("nothing to wait for: {body}"),
                }
            }
        }
        for (body, expected) in [("{", "json 400"), ("[]", "json 400"), (r#"{"jsonrpc":"2.0"}"#, "json 400")]
        {
            match fixture.post(Peer::in_session(&session, AcceptedTypes::STREAM), body) {
                PostReply::Ready(reply) => assert_eq!(describe(&reply), expected, "{body}"),
                PostReply::Waiting(_) => panic!("nothing to wait for: {body}"),
            }
        }
    });
}

#[test]
fn call_that_is_ready_at_the_first_poll_is_answered_at_once() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-11-25");
        let peers = [
            STATELESS,
            Peer { version: "2025-06-18", ..STATELESS },
            Peer::in_session(&session, AcceptedTypes::BOTH),
        ];
        for peer in peers {
            for (accepted, expected) in [
                (AcceptedTypes::BOTH, "json 200"),
                (AcceptedTypes::JSON, "json 200"),
                (AcceptedTypes::STREAM, "events event: message"),
            ] {
                match fixture.call(Peer { accepted, ..peer }, "now") {
                    PostReply::Ready(reply) => assert_eq!(describe(&reply), expected, "{}", peer.version),
                    PostReply::Waiting(_) => panic!("it is ready"),
                }
            }
        }
        assert_eq!(fixture.server.status().sessions, 0, "such a call needs no state");
    });
}

/// When a silent call of a client becomes a stream, and with which bytes.
#[test]
fn call_becomes_a_stream_after_a_silence() {
    run(async {
        let fixture = Fixture::default();
        let old = fixture.session("2025-06-18");
        let new = fixture.session("2025-11-25");
        let in_old = Peer { version: "2025-06-18", ..Peer::in_session(&old, AcceptedTypes::BOTH) };
        for (peer, first, last) in [
            (STATELESS, ":", "event: message"),
            (Peer { version: "2025-06-18", ..STATELESS }, ":", "event: message"),
            (in_old, ":", "event: message|id: 1-1"),
            (Peer::in_session(&new, AcceptedTypes::BOTH), "id: 1-0", "event: message|id: 1-1"),
            (Peer::in_session(&new, AcceptedTypes::STREAM), "id: 2-0", "event: message|id: 2-1"),
        ] {
            let mut waiting = fixture.start_call(peer, "wait");
            assert_eq!(waiting.wake_at_ms(), Some(2000), "{first}");
            assert!(poll(&mut waiting, 0).is_none() && poll(&mut waiting, 1999).is_none(), "{first}");
            let mut stream = expect_stream(poll(&mut waiting, 2000));
            assert_eq!(read_now(&mut stream, 2000), (first.to_owned(), false));
            assert_eq!(stream.wake_at_ms(), Some(17_000), "{first}");
            assert_eq!(read_now(&mut stream, 17_000), (":".to_owned(), false), "a keep-alive");
            fixture.release().await;
            assert_eq!(
                read_now(&mut stream, 17_001),
                (last.to_owned(), true),
                "the response is the last event"
            );
        }
    });
}

#[test]
fn client_that_accepts_only_json_gets_only_the_response() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-11-25");
        let json = AcceptedTypes::JSON;
        for peer in [Peer { accepted: json, ..STATELESS }, Peer::in_session(&session, json)] {
            for tool in ["wait", "talk", "pause"] {
                let mut waiting = fixture.start_call(peer, tool);
                assert_eq!(waiting.wake_at_ms(), None, "{tool}");
                run_until_idle().await;
                assert!(poll(&mut waiting, 1 << 40).is_none(), "{tool}");
                fixture.release().await;
                let reply = poll(&mut waiting, 1 << 40).expect("it has ended");
                assert_eq!(describe(&reply), "json 200", "{tool}");
            }
        }
    });
}

#[test]
fn session_keeps_the_events_of_a_call_and_resumes_after_any_of_them() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-11-25");
        let mut waiting = fixture.start_call(Peer::in_session(&session, AcceptedTypes::BOTH), "talk");
        run_until_idle().await;
        let mut stream = expect_stream(poll(&mut waiting, 5));
        assert_eq!(read_now(&mut stream, 5), ("id: 1-0|event: message|id: 1-1".to_owned(), false));
        drop(stream);
        fixture.release().await;
        for (last, expected) in [
            ("1-0", "id: 1-0|event: message|id: 1-1|event: message|id: 1-2"),
            ("1-1", "id: 1-1|event: message|id: 1-2"),
            ("1-2", "id: 1-2"),
            ("1-3", "id: 1-2"),
        ] {
            let mut stream = expect_stream(Some(fixture.resume(&session, last)));
            assert_eq!(read_now(&mut stream, 0), (expected.to_owned(), true), "{last}");
        }
    });
}

#[test]
fn paused_call_is_resumed_and_not_paused_again() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-11-25");
        let mut waiting = fixture.start_call(Peer::in_session(&session, AcceptedTypes::BOTH), "pause");
        run_until_idle().await;
        let reply = poll(&mut waiting, 0).expect("it pauses");
        assert_eq!(describe(&reply), "events id: 1-0|retry: 500");
        let mut stream = expect_stream(Some(fixture.resume(&session, "1-0")));
        assert_eq!(read_now(&mut stream, 0), ("id: 1-0".to_owned(), false));
        fixture.release().await;
        assert_eq!(read_now(&mut stream, 0), ("event: message|id: 1-2".to_owned(), true));
    });
}

/// A version without priming, and a client without a session, cannot come back: the pause is ignored.
#[test]
fn pause_is_ignored_where_the_client_cannot_resume() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-06-18");
        let in_session = Peer { version: "2025-06-18", ..Peer::in_session(&session, AcceptedTypes::BOTH) };
        for peer in [in_session, STATELESS, Peer { version: "2025-11-25", ..STATELESS }] {
            let mut waiting = fixture.start_call(peer, "pause");
            run_until_idle().await;
            assert!(poll(&mut waiting, 0).is_none(), "{}", peer.version);
            fixture.release().await;
            assert_eq!(describe(&poll(&mut waiting, 1).expect("it has ended")), "json 200");
        }
    });
}

#[test]
fn disconnect_cancels_only_calls_of_the_stateless_era() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-11-25");
        for (peer, runs_on) in [
            (STATELESS, false),
            (Peer { version: "2025-11-25", ..STATELESS }, true),
            (Peer { version: "2025-03-26", ..STATELESS }, true),
            (Peer::in_session(&session, AcceptedTypes::BOTH), true),
            (Peer::in_session(&session, AcceptedTypes::JSON), true),
        ] {
            // Before the head is sent, and in the middle of a stream.
            for (tool, is_stream) in [("wait", false), ("talk", true)] {
                let mut waiting = fixture.start_call(peer, tool);
                run_until_idle().await;
                let reply = poll(&mut waiting, 0);
                assert_eq!(reply.is_some(), is_stream && peer.accepted.stream, "{tool}");
                drop((waiting, reply));
                run_until_idle().await;
                assert_eq!(fixture.running(), usize::from(runs_on), "{} {tool}", peer.version);
                if runs_on {
                    fixture.release().await;
                    assert_eq!(fixture.running(), 0, "{} {tool}", peer.version);
                }
            }
        }
        assert_eq!(fixture.server.status().calls_active, 0);
    });
}

#[test]
fn cancelled_call_of_a_session_is_accepted_without_a_response() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-11-25");
        let peer = Peer::in_session(&session, AcceptedTypes::BOTH);
        let mut waiting = fixture.start_call(peer, "wait");
        fixture
            .post(peer, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
        run_until_idle().await;
        assert_eq!(describe(&poll(&mut waiting, 0).expect("it has ended")), "accepted");
        assert_eq!(fixture.running(), 0);
    });
}

/// Too many sessions have state: the call has started and must not run twice.
#[test]
fn call_without_room_for_its_session_continues_without_it() {
    run(async {
        let fixture = Fixture::with_limits(Limits { sessions_max: 0, ..Limits::default() });
        let session = fixture.session("2025-11-25");
        let mut waiting = fixture.start_call(Peer::in_session(&session, AcceptedTypes::BOTH), "wait");
        let mut stream = expect_stream(poll(&mut waiting, 2000));
        assert_eq!(read_now(&mut stream, 2000), (":".to_owned(), false), "nothing to resume from");
        fixture.release().await;
        assert_eq!(read_now(&mut stream, 2001), ("event: message".to_owned(), true));
        assert_eq!(describe(&fixture.resume(&session, "1-0")), "TooManySessions");
    });
}

#[test]
fn get_and_delete_need_a_session_of_this_caller() {
    run(async {
        let fixture = Fixture::default();
        let session = fixture.session("2025-11-25");
        let field = |text| HeaderField::Single(str::as_bytes(text));
        let stream = Some(AcceptedTypes::STREAM);
        let own = CallerIdentity::default();
        let other = CallerIdentity {
            principal: Principal::local("other").expect("a short name"),
            address: None,
            request_head: None,
        };
        const MALFORMED: &str = "SessionNotFound(Malformed)";
        const OTHER_CALLER: &str = "SessionNotFound(OtherCaller)";
        const ENDED: &str = "SessionNotFound(Ended)";
        for (session_id, version, accepted, identity, expected_get, expected_delete) in [
            (HeaderField::Absent, HeaderField::Absent, stream, &own, "NoSession", "NoSession"),
            (
                HeaderField::Repeated,
                HeaderField::Absent,
                stream,
                &own,
                "RepeatedSessionId",
                "RepeatedSessionId",
            ),
            (field(&session), field("2026-07-28"), stream, &own, "NoSession", "NoSession"),
            (field(&session), field("1999-01-01"), stream, &own, "UnsupportedVersion", "UnsupportedVersion"),
            (field("unknown"), HeaderField::Absent, stream, &own, MALFORMED, MALFORMED),
            (field(""), field("2025-11-25"), stream, &own, MALFORMED, MALFORMED),
            (HeaderField::Single(b"\xff"), HeaderField::Absent, stream, &own, MALFORMED, MALFORMED),
            (field(&session), HeaderField::Absent, stream, &other, OTHER_CALLER, OTHER_CALLER),
            (field(&session), field("2025-11-25"), stream, &own, "stream", "session ended"),
            (field(&session), field("2025-11-25"), stream, &own, ENDED, ENDED),
        ] {
            let headers =
                SessionHeaders { session_id, protocol_version: version, last_event_id: HeaderField::Absent };
            let label = format!("{headers:?}");
            let reply = fixture.server.open_stream(&headers, accepted, identity);
            assert_eq!(describe(&reply), expected_get, "{label}");
            drop(reply);
            let reply = fixture.server.delete_session(&headers, identity);
            assert_eq!(describe(&reply), expected_delete, "{label}");
        }
        let session = fixture.session("2025-11-25");
        let headers = SessionHeaders { session_id: field(&session), ..SessionHeaders::default() };
        for accepted in [None, Some(AcceptedTypes::JSON)] {
            let reply = fixture.server.open_stream(&headers, accepted, &own);
            assert_eq!(describe(&reply), "StreamNotAccepted", "{accepted:?}");
        }
    });
}

/// One answer for each kind of `Last-Event-ID`.
#[test]
fn every_last_event_id_has_one_answer() {
    run(async {
        let fixture = Fixture::default();
        let (session, other) = (fixture.session("2025-11-25"), fixture.session("2025-11-25"));
        // Stream 1 is a call that has ended, stream 2 was answered with JSON.
        let peer = Peer::in_session(&session, AcceptedTypes::BOTH);
        let mut talked = fixture.start_call(peer, "talk");
        run_until_idle().await;
        drop(poll(&mut talked, 0));
        fixture.release().await;
        let mut answered = fixture.start_call(peer, "wait");
        fixture.release().await;
        assert_eq!(describe(&poll(&mut answered, 0).expect("it has ended")), "json 200");

        let check = |session: &str, last_event_id: HeaderField<'_>, expected: &str| {
            let label = format!("{last_event_id:?}");
            let got = match fixture.get(Some(session), last_event_id) {
                HttpReply::Stream(mut stream) => {
                    let (events, has_ended) = read_now(&mut stream, 0);
                    format!("{events}{}", if has_ended { "|end" } else { "" })
                }
                other => describe(&other),
            };
            assert_eq!(got, expected, "{label}");
        };
        let one = |text| HeaderField::Single(str::as_bytes(text));
        // Known.
        check(&session, one("1-1"), "id: 1-1|event: message|id: 1-2|end");
        check(&session, one("1-18446744073709551615"), "id: 1-2|end");
        check(&session, one("0-0"), "id: 0-0");
        check(&session, one("0-1000000"), "id: 0-0");
        // Absent, or not an id of ours: the session's own stream, as without the header.
        let not_ours =
            ["", "-", "x", "1", "1-", "-1", "0--1", "1-1-1", "99999999999-1", " 1-1", "1-1 ", "1,1"];
        for last in not_ours {
            check(&session, one(last), "id: 0-0");
        }
        check(&session, HeaderField::Absent, "id: 0-0");
        check(&session, HeaderField::Repeated, "id: 0-0");
        check(&session, HeaderField::Single(b"1-1\xff"), "id: 0-0");
        // Unknown: never used, or answered with JSON.
        for last in ["2-0", "3-1", "77-3", "4294967295-0"] {
            check(&session, one(last), "StreamNotFound");
        }
        // Of another session.
        check(&other, one("1-1"), "StreamNotFound");
        // No longer kept: more recent streams took its place.
        for _ in 0..17 {
            let mut waiting = fixture.start_call(peer, "talk");
            run_until_idle().await;
            drop(poll(&mut waiting, 0));
            fixture.release().await;
        }
        check(&session, one("1-1"), "StreamNotFound");
        check(&session, one("19-0"), "id: 19-0|event: message|id: 19-1|event: message|id: 19-2|end");
        // The session itself has expired.
        fixture.platform.set_ms(fixture.platform.now_ms() + Limits::default().session_ttl_ms);
        check(&session, one("19-0"), "SessionNotFound(Expired)");
        check(&session, HeaderField::Absent, "SessionNotFound(Expired)");
    });
}

#[test]
fn each_refusal_says_what_to_do() {
    for refusal in Refusal::ALL {
        let response = refusal.to_response();
        assert!(response.http_status >= 400, "{refusal:?}");
        assert!(String::from_utf8_lossy(&response.body).contains(refusal.reason()), "{refusal:?}");
        assert_eq!(refusal.allowed_methods().is_some(), response.http_status == 405, "{refusal:?}");
        assert_eq!(response.retry_after_ms.is_some(), response.http_status == 429, "{refusal:?}");
    }
}
