//! Calls and connections: who leaves, who waits, who panics, and in which order answers come.

use crate::client::{HANDSHAKE, HttpRequest, call, get, in_session, ping, post, stateless, stateless_call};
use crate::controlled_provider::CallEvent;
use crate::test_server::TestServer;

#[test]
fn disconnect_cancels_a_call_of_the_newest_era() {
    let server = TestServer::start();
    let json = "application/json";
    let hold = || stateless_call(1, "hold", r#"{"key":"k"}"#);
    let talk = || stateless_call(1, "talk", r#"{"key":"k","steps":9}"#);
    let behind = |request: HttpRequest, more: &[u8]| [request.to_bytes(), more.to_vec()].concat();
    for (how, bytes) in [
        ("while nothing was said", hold().to_bytes()),
        ("while nothing was said, for JSON", hold().with_header("Accept", json).to_bytes()),
        ("while something was said", talk().to_bytes()),
        ("with a byte behind", behind(hold(), b"P")),
        ("with a request behind", behind(hold(), &post(ping(2)).to_bytes())),
        ("while something was said, with a byte behind", behind(talk(), b"P")),
        ("asked to close after the answer", hold().with_header("Connection", "close").to_bytes()),
    ] {
        let mut client = server.connect();
        client.send(&bytes);
        server.provider.expect_started("k");
        if how.starts_with("while something") {
            server.provider.release("k", 1);
            client.read_head().expect("an answer");
            client.next_event().expect("progress");
        }
        drop(client);
        assert_eq!(server.provider.next_event(), CallEvent::Dropped("k".into()), "{how}");
        server.wait_until("it is counted as over", |status| status.calls_active == 0);
    }
    server.assert_serving();
}

#[test]
fn disconnect_ends_a_subscription() {
    let server = TestServer::start();
    let listen = stateless(1, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    let mut client = server.connect();
    client.open_stream(&listen);
    server.wait_until("it listens", |status| status.subscriptions == 1);
    drop(client);
    server.wait_until("it is gone", |status| status.subscriptions == 0);
}

#[test]
fn call_over_its_deadline_is_stopped_with_an_error() {
    let server = TestServer::with_setup(|setup| setup.limits.call_timeout_ms = 50);
    let session = server.session(HANDSHAKE);
    let arguments = r#"{"key":"k"}"#;
    for (era, request) in [
        ("modern", stateless_call(1, "hold", arguments)),
        ("session", in_session(&session, call(1, "hold", arguments))),
        ("alone", post(call(1, "hold", arguments))),
    ] {
        let response = server.send_request(&request);
        server.provider.expect_started("k");
        server.provider.expect_dropped("k");
        let result = &response.json()["result"];
        assert_eq!((response.status, &result["isError"]), (200, &true.into()), "{era}: {response:?}");
        let problem: serde_json::Value = match result.get("structuredContent") {
            Some(problem) => problem.clone(),
            None => {
                serde_json::from_str(result["content"][0]["text"].as_str().expect("a text")).expect("JSON")
            }
        };
        assert_eq!((&problem["code"], &problem["retryable"]), (&"timeout".into(), &true.into()), "{era}");
    }
    server.assert_serving();
}

#[test]
fn panic_fails_one_call_and_keeps_the_connection() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let mut client = server.connect();
    for tool in ["boom", "boom_later"] {
        for (era, request) in [
            ("modern", stateless_call(1, tool, "{}")),
            ("session", in_session(&session, call(1, tool, "{}"))),
            ("alone", post(call(1, tool, "{}"))),
        ] {
            let response = client.send_request(&request);
            let case = format!("{tool} {era}: {response:?}");
            assert_eq!(
                (response.status, &response.json()["result"]["isError"]),
                (200, &true.into()),
                "{case}"
            );
            assert!(!response.text().contains("as the test wants"), "what happened is for the log: {case}");
            assert_eq!(client.send_request(&post(ping(2))).status, 200, "{case}");
        }
    }
    server.wait_until("none is left", |status| status.calls_active == 0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = TestServer::start();
    let mut client = server.connect();
    let mut bytes = stateless_call(1, "hold", r#"{"key":"k"}"#).to_bytes();
    bytes.extend(get("/health").to_bytes());
    bytes.extend(post("{").to_bytes());
    bytes.extend(post(ping(2)).with_path("/nowhere").to_bytes());
    bytes.extend(post(ping(3)).with_header("Content-Type", "text/plain").to_bytes());
    bytes.extend(get("/mcp").to_bytes());
    for id in 10..60 {
        bytes.extend(post(ping(id)).to_bytes());
    }
    client.send(&bytes);
    server.provider.expect_started("k");
    server.provider.release("k", 1);
    let first = client.read_response().expect("an answer");
    assert_eq!(first.json()["id"], 1);
    for status in [200, 400, 404, 415, 405] {
        assert_eq!(client.read_response().expect("an answer").status, status);
    }
    for id in 10..60 {
        assert_eq!(client.read_response().expect("an answer").json()["id"], id);
    }
}

/// What a client did wrong in one request is no reason to hang up, as long as the end of it was seen.
/// A client may stop sending before it reads. What is ready is answered; it is waited for nothing else, because
/// a client that has left looks the same.
#[test]
fn half_closed_client_gets_its_response() {
    let server = TestServer::start();
    for _ in 0..100 {
        let mut client = server.connect();
        client.send(&post(call(1, "test_simple_text", "{}")).to_bytes());
        client.shutdown_write();
        assert_eq!(client.read_response().expect("an answer").status, 200);
        assert!(client.read_response().is_none());
    }
}

#[test]
fn connection_stays_open_after_errors() {
    let server = TestServer::start();
    let mut client = server.connect();
    for (request, status) in [
        (post("{"), 400),
        (post("{}"), 400),
        (post(ping(1)).with_header("Accept", "text/html"), 406),
        (post(ping(1)).with_header("Content-Type", "text/plain"), 415),
        (post(ping(1)).with_header("Host", "evil.example"), 403),
        (post(ping(1)).with_header("Origin", "null"), 403),
        (post(ping(1)).without_header("Host"), 400),
        (in_session("nonsense", ping(1)), 404),
        (get("/nowhere"), 404),
        (get("/mcp"), 405),
        (HttpRequest::new("PUT", "/mcp"), 405),
        (post(call(1, "no_such_tool", "{}")), 200),
    ] {
        assert_eq!(client.send_request(&request).status, status, "{request:?}");
        assert_eq!(client.send_request(&post(ping(2))).status, 200, "after {request:?}");
    }
}

#[test]
fn shutdown_answers_running_calls() {
    let json = "application/json";
    let stream = "text/event-stream";
    for accept in [json, stream, "application/json, text/event-stream"] {
        for era in ["modern", "session", "alone"] {
            let mut server = TestServer::start();
            let session = server.session(HANDSHAKE);
            let arguments = r#"{"key":"k"}"#;
            let request = match era {
                "modern" => stateless_call(1, "hold", arguments),
                "session" => in_session(&session, call(1, "hold", arguments)),
                _ => post(call(1, "hold", arguments)),
            };
            let mut client = server.connect();
            client.send(&request.with_header("Accept", accept).to_bytes());
            server.provider.expect_started("k");
            let mut idle = server.connect();
            assert_eq!(idle.send_request(&get("/health")).status, 200);
            server.request_stop();
            assert_eq!(idle.read_to_end(), b"", "whoever waits for nothing is sent away");
            server.provider.release("k", 1);
            server.provider.expect_ended("k");
            let response = client.read_response().expect("an answer");
            assert!(response.text().contains("k is over"), "{era} for {accept}: {response:?}");
            assert_eq!(client.read_to_end(), b"", "and then the connection ends");
            server.wait_stopped();
            assert!(std::net::TcpStream::connect(server.address).is_err(), "nobody listens any more");
        }
    }
}

#[test]
fn shutdown_ends_subscriptions_and_streams() {
    let mut server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let mut reader = server.connect();
    reader.open_stream(&get("/mcp").with_header("Mcp-Session-Id", &session));
    let listen = stateless(7, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    let mut listener = server.connect();
    listener.open_stream(&listen);
    listener.next_event().expect("it is acknowledged");
    server.request_stop();
    let last = listener.remaining_events();
    assert_eq!(last.len(), 1, "a subscription ends with its answer: {last:?}");
    assert_eq!(last[0].json()["id"], 7);
    reader.next_event().expect("it was primed");
    assert_eq!(reader.remaining_events(), []);
    server.wait_stopped();
}

#[test]
fn shutdown_is_bounded_by_the_drain_timeout() {
    let mut server = TestServer::with_setup(|setup| setup.connection_limits.drain_timeout_ms = 50);
    let mut client = server.connect();
    client.send(&stateless_call(1, "hold", r#"{"key":"k"}"#).to_bytes());
    server.provider.expect_started("k");
    server.request_stop();
    server.provider.expect_dropped("k");
    client.read_to_end();
    server.wait_stopped();
}
