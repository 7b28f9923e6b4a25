//! The transport and `testkit`'s simulation of it answer alike: a simulation that answered otherwise would prove
//! nothing about the server.

use testkit::simulated_http::{ResponseHead, SimulatedHttpServer};

use crate::client::{Event, HANDSHAKE, HttpRequest, call, get, in_session};
use crate::test_server::TestServer;

/// An answer without what HTTP adds. The events of a stream that stays open are those that it has at once.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    content_type: Option<String>,
    allowed_methods: Option<String>,
    retry_after_s: Option<u64>,
    body: AnswerBody,
}

#[derive(Debug, PartialEq, Eq)]
enum AnswerBody {
    Complete(String),
    Open(Vec<Event>),
}

/// What the simulation answers.
fn simulate(server: &TestServer, request: &HttpRequest) -> Answer {
    let http = SimulatedHttpServer::new(server.servers[0].clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let response = match request.method.as_str() {
            "GET" => http.get(&request.headers),
            "DELETE" => http.delete(&request.headers),
            method => panic!("{method} is not simulated here"),
        };
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let mut written = response.lock();
        let ResponseHead { status, content_type, allowed_methods, retry_after_ms, session } =
            written.head.take().expect("a head");
        assert_eq!(session, None);
        let body = String::from_utf8(written.bytes.clone()).expect("text");
        Answer {
            status,
            content_type: content_type.map(str::to_owned),
            allowed_methods: allowed_methods.map(str::to_owned),
            retry_after_s: retry_after_ms.map(|ms| ms.div_ceil(1000)),
            body: match written.is_finished {
                true => AnswerBody::Complete(body),
                false => AnswerBody::Open(body.split_inclusive("\n\n").map(Event::parse).collect()),
            },
        }
    })
}

/// What the transport answers. `expected` says how much of an open stream to read.
fn ask(server: &TestServer, request: &HttpRequest, expected: &AnswerBody) -> Answer {
    let mut client = server.connect();
    client.send(&request.to_bytes());
    let mut response = client.read_head().expect("an answer");
    let body = match expected {
        AnswerBody::Complete(_) => {
            response = client.read_body(response).expect("a body");
            AnswerBody::Complete(response.text().to_owned())
        }
        AnswerBody::Open(events) => {
            AnswerBody::Open(events.iter().map_while(|_| client.next_event_or_comment()).collect())
        }
    };
    let header = |name| response.header(name).map(str::to_owned);
    Answer {
        status: response.status,
        content_type: header("content-type"),
        allowed_methods: header("allow"),
        retry_after_s: header("retry-after").map(|seconds| seconds.parse().expect("a number")),
        body,
    }
}

fn check(server: &TestServer, label: &str, request: &HttpRequest, expected_status: u16) {
    let simulated = simulate(server, request);
    let answered = ask(server, request, &simulated.body);
    assert_eq!(answered, simulated, "{label}: {:?}", request.headers);
    assert_eq!(answered.status, expected_status, "{label}: {answered:?}");
}

/// Runs a call whose client leaves in the middle of its stream. Returns the id of the event it read.
fn abandoned_call(server: &TestServer, session: &str, key: &str) -> String {
    let mut client = server.connect();
    server.provider.release(key, 1);
    client.open_stream(&in_session(session, call(1, "talk", &format!(r#"{{"key":"{key}","steps":1}}"#))));
    let last = loop {
        let event = client.next_event().expect("progress");
        if event.data.as_deref() != Some("") {
            break event.id.expect("an id");
        }
    };
    drop(client);
    server.provider.expect_started(key);
    server.provider.release(key, 1);
    server.provider.expect_ended(key);
    server.wait_until("it is over", |status| status.calls_active == 0);
    last
}

#[test]
fn transport_and_simulation_answer_every_last_event_id_alike() {
    for version in ["2025-03-26", "2025-06-18", HANDSHAKE] {
        let server = TestServer::start();
        let (session, other) = (server.session(version), server.session(version));
        let known = abandoned_call(&server, &session, "k");
        let (stream, _) = known.split_once('-').expect("two numbers");
        let request = |session: &str| get("/mcp").with_header("Mcp-Session-Id", session);
        let resume = |last: &str| request(&session).with_header("Last-Event-ID", last);

        check(&server, "known", &resume(&known), 200);
        check(&server, "from the start", &resume(&format!("{stream}-0")), 200);
        check(&server, "from the future", &resume(&format!("{stream}-18446744073709551615")), 200);
        check(&server, "of the session's own stream", &resume("0-0"), 200);
        check(&server, "from its future", &resume("0-1000000"), 200);
        check(&server, "absent", &request(&session), 200);
        check(&server, "repeated", &resume(&known).append_header("Last-Event-ID", &known), 200);
        for malformed in ["", "-", "x", "1", "0-0-0", "99999999999-1", "0--1"] {
            check(&server, "malformed", &resume(malformed), 200);
        }
        for unknown in ["77-3", "4294967295-0", "4294967295-18446744073709551615"] {
            check(&server, "unknown", &resume(unknown), 400);
        }
        check(&server, "of another session", &request(&other).with_header("Last-Event-ID", &known), 400);
        // Sixteen are kept, but not those whose client still read when they ended.
        for _ in 0..40 {
            abandoned_call(&server, &session, "k");
        }
        check(&server, "no longer kept", &resume(&known), 400);

        let nobody = "not a session";
        check(&server, "of no session", &request(nobody).with_header("Last-Event-ID", &known), 404);
        let without = resume(&known).without_header("Mcp-Session-Id");
        check(&server, "without a session", &without, 405);
        check(&server, "of two sessions", &resume(&known).append_header("Mcp-Session-Id", &other), 400);
        check(&server, "unknown version", &resume(&known).with_header("MCP-Protocol-Version", "x"), 400);
        check(&server, "newest era", &resume(&known).with_header("MCP-Protocol-Version", "2026-07-28"), 405);

        server.platform.advance_ms(spile_core::Limits::default().session_ttl_ms);
        check(&server, "of an expired session", &resume(&known), 404);
        check(&server, "an expired session", &request(&session), 404);
    }
}

#[test]
fn transport_and_simulation_end_sessions_alike() {
    let server = TestServer::start();
    let delete = |session: &str| HttpRequest::new("DELETE", "/mcp").with_header("Mcp-Session-Id", session);
    check(&server, "unknown", &delete("not a session"), 404);
    check(&server, "no session", &delete("x").without_header("Mcp-Session-Id"), 405);
    check(&server, "two", &delete("x").append_header("Mcp-Session-Id", "y"), 400);
    let session = server.session(HANDSHAKE);
    assert_eq!(simulate(&server, &delete(&session)).status, 204);
    check(&server, "ended before", &delete(&session), 404);
    let session = server.session(HANDSHAKE);
    assert_eq!(server.send_request(&delete(&session)).status, 204);
    check(&server, "ended before", &delete(&session), 404);
}
