//! Limits: each refuses with an error that tells when to try again.

use crate::client::{Client, HttpRequest, HttpResponse, call, get, in_session, stateless, stateless_call};
use crate::test_server::TestServer;

/// Refused for now, with everything a client needs to know.
fn expect_busy(response: &HttpResponse, status: u16, id: Option<u64>) {
    assert_eq!((response.status, response.error_code()), (status, Some(-31001)), "{response:?}");
    let seconds = response.header("retry-after").and_then(|s| s.parse::<u64>().ok());
    assert!(seconds.is_some_and(|s| s >= 1), "{response:?}");
    let reply = response.json();
    assert!(reply["error"]["data"]["retryAfterMs"].is_u64(), "{response:?}");
    assert_eq!(reply["id"].as_u64(), id, "{response:?}");
}

fn hold_arguments(key: &str) -> String {
    format!(r#"{{"key":"{key}"}}"#)
}

#[test]
fn concurrent_calls_of_all_clients_are_limited() {
    let server = TestServer::with_setup(|setup| setup.limits.calls_max = 2);
    let mut waiting: Vec<Client> = Vec::new();
    for id in 1..=2 {
        let mut client = server.connect();
        client.send(&stateless_call(id, "hold", &hold_arguments("k")).to_bytes());
        server.provider.expect_started("k");
        waiting.push(client);
    }
    let one_more = stateless_call(3, "test_simple_text", "{}");
    expect_busy(&server.send_request(&one_more), 503, Some(3));
    expect_busy(&server.send_request(&crate::client::post(call(4, "test_simple_text", "{}"))), 503, Some(4));
    server.assert_serving();
    server.provider.release("k", 2);
    for mut client in waiting {
        assert_eq!(client.read_response().expect("an answer").status, 200);
    }
    server.wait_until("there is room again", |status| status.calls_active == 0);
    assert_eq!(server.send_request(&one_more).status, 200);
}

#[test]
fn concurrent_calls_of_one_session_are_limited() {
    let server = TestServer::with_setup(|setup| setup.limits.calls_per_connection_max = 2);
    let (session, other) = (server.session("2025-06-18"), server.session("2025-06-18"));
    let mut waiting: Vec<Client> = Vec::new();
    for id in 1..=2 {
        let key = id.to_string();
        let mut client = server.connect();
        client.send(
            &in_session(&session, call(id, "talk", &format!(r#"{{"key":"{key}","steps":1}}"#))).to_bytes(),
        );
        server.provider.expect_started(&key);
        // The first thing it says shows that it is counted.
        server.provider.release(&key, 1);
        client.read_head().expect("an answer");
        assert!(client.next_event().is_some());
        waiting.push(client);
    }
    expect_busy(&server.send_request(&in_session(&session, call(3, "test_simple_text", "{}"))), 429, Some(3));
    assert_eq!(
        server.send_request(&in_session(&other, call(3, "test_simple_text", "{}"))).status,
        200,
        "others have theirs"
    );
    for (mut client, key) in waiting.into_iter().zip(["1", "2"]) {
        server.provider.release(key, 1);
        assert_eq!(client.remaining_events().len(), 1);
    }
    server.wait_until("there is room again", |status| status.calls_active == 0);
    assert_eq!(server.send_request(&in_session(&session, call(3, "test_simple_text", "{}"))).status, 200);
}

fn listen(session: &str) -> HttpRequest {
    get("/mcp").with_header("Mcp-Session-Id", session)
}

fn subscribe(session: &str) -> HttpRequest {
    let body = r#"{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"test://watched-resource"}}"#;
    in_session(session, body)
}

/// Each way in which a session comes to hold something, against each of the two limits.
#[test]
fn sessions_with_state_are_limited() {
    for (what, per_principal, all) in [("of one caller", 2, 100), ("of all callers", 100, 2)] {
        let server = TestServer::with_setup(|setup| {
            setup.limits.sessions_per_principal_max = per_principal;
            setup.limits.sessions_max = all;
        });
        let mut readers = Vec::new();
        for _ in 0..2 {
            let mut reader = server.connect();
            reader.open_stream(&listen(&server.session("2025-06-18")));
            readers.push(reader);
        }
        let session = server.session("2025-06-18");
        expect_busy(&server.send_request(&listen(&session)), 429, None);
        expect_busy(&server.send_request(&subscribe(&session)), 429, Some(9));
        // A call needs nothing kept, or can do without: what has begun is not refused.
        assert_eq!(
            server.send_request(&in_session(&session, call(6, "test_simple_text", "{}"))).status,
            200,
            "{what}"
        );
        let mut caller = server.connect();
        caller.send(&in_session(&session, call(5, "talk", r#"{"key":"k","steps":1}"#)).to_bytes());
        server.provider.expect_started("k");
        server.provider.release("k", 2);
        assert!(caller.read_response().expect("an answer").text().contains("k is over"), "{what}");
        server.provider.expect_ended("k");
        drop(readers);
        server.wait_until("the readers are gone", |_| server.status_of(&listen(&session)) == 200);
    }
}

#[test]
fn sessions_without_state_are_dropped_first() {
    let server = TestServer::with_setup(|setup| {
        setup.limits.sessions_per_principal_max = 3;
        setup.limits.session_idle_timeout_ms = 1000;
    });
    let subscribed = server.session("2025-06-18");
    assert_eq!(server.send_request(&subscribe(&subscribed)).status, 200);
    let reading = server.session("2025-06-18");
    let mut reader = server.connect();
    reader.open_stream(&listen(&reading));
    // A hundred that came, looked and left again.
    for _ in 0..100 {
        let passing = server.session("2025-06-18");
        // As soon as the one before is seen to have left.
        server.wait_until("there is room", |_| server.status_of(&listen(&passing)) == 200);
    }
    // Both that hold something are as they were.
    let trigger = server.send_request(&crate::client::post(call(1, "test_trigger_resource_change", "{}")));
    assert_eq!(trigger.status, 200);
    let mut client = server.connect();
    client.open_stream(&listen(&subscribed));
    let news = client.next_event().expect("the subscription lives").json();
    assert_eq!(news["method"], "notifications/resources/updated");
    server.send_request(&crate::client::post(call(1, "test_trigger_tool_change", "{}")));
    assert!(reader.next_event().is_some(), "the stream lives");
}

#[test]
fn idle_session_is_dropped_before_a_new_one_is_refused() {
    let server = TestServer::with_setup(|setup| {
        setup.limits.sessions_per_principal_max = 1;
        setup.limits.session_idle_timeout_ms = 1000;
    });
    let (first, second) = (server.session("2025-06-18"), server.session("2025-06-18"));
    assert_eq!(server.send_request(&subscribe(&first)).status, 200);
    expect_busy(&server.send_request(&subscribe(&second)), 429, Some(9));
    server.platform.advance_ms(1000);
    assert_eq!(server.send_request(&subscribe(&second)).status, 200);
    // What the first had subscribed to is gone, so it is told that it is over, and can begin again.
    assert_eq!(server.send_request(&in_session(&first, crate::client::ping(1))).status, 404);
}

#[test]
fn used_session_is_not_idle() {
    let server = TestServer::with_setup(|setup| {
        setup.limits.sessions_per_principal_max = 1;
        setup.limits.session_idle_timeout_ms = 1000;
    });
    let (first, second) = (server.session("2025-06-18"), server.session("2025-06-18"));
    assert_eq!(server.send_request(&subscribe(&first)).status, 200);
    for _ in 0..3 {
        server.platform.advance_ms(900);
        assert_eq!(server.send_request(&in_session(&first, crate::client::ping(1))).status, 200);
    }
    expect_busy(&server.send_request(&subscribe(&second)), 429, Some(9));
}

#[test]
fn subscriptions_of_a_session_are_limited_in_bytes() {
    let server = TestServer::with_setup(|setup| setup.limits.subscription_bytes_max = 100);
    let session = server.session("2025-06-18");
    let subscribe = |uri: &str| {
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{params}}}"#)
    };
    assert_eq!(server.send_request(&in_session(&session, subscribe(&"a".repeat(60)))).status, 200);
    expect_busy(&server.send_request(&in_session(&session, subscribe(&"b".repeat(60)))), 429, Some(9));
    assert_eq!(server.send_request(&in_session(&session, subscribe(&"a".repeat(60)))).status, 200);
}

#[test]
fn concurrent_subscriptions_are_limited() {
    let server = TestServer::with_setup(|setup| setup.limits.streams_max = 2);
    let listen =
        |id| stateless(id, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    let mut readers = Vec::new();
    for id in 1..=2 {
        let mut reader = server.connect();
        reader.open_stream(&listen(id));
        assert_eq!(
            reader.next_event().expect("it is acknowledged").json()["method"],
            "notifications/subscriptions/acknowledged"
        );
        readers.push(reader);
    }
    expect_busy(&server.send_request(&listen(3)), 503, Some(3));
    readers.pop();
    server.wait_until("one is gone", |status| status.subscriptions == 1);
    let mut reader = server.connect();
    reader.open_stream(&listen(4));
}

#[test]
fn subscriptions_of_one_session_are_limited() {
    let server = TestServer::with_setup(|setup| setup.limits.subscriptions_per_connection_max = 3);
    let session = server.session("2025-06-18");
    let subscribe = |uri: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
        );
        in_session(&session, body)
    };
    for uri in ["a:1", "a:2", "a:3", "a:3"] {
        assert_eq!(server.send_request(&subscribe(uri)).status, 200, "{uri}");
    }
    expect_busy(&server.send_request(&subscribe("a:4")), 429, Some(9));
}

/// A reader that comes back late has lost what did not fit, but neither the answer nor its own place.
#[test]
fn stream_drops_notifications_but_keeps_the_response() {
    for (what, events_max, bytes_max) in [("few events", 4, 4 << 20), ("few bytes", 1000, 2000)] {
        let server = TestServer::with_setup(|setup| {
            setup.limits.stream_events_max = events_max;
            setup.limits.stream_bytes_max = bytes_max;
        });
        let session = server.session("2025-06-18");
        let mut first = server.connect();
        server.provider.release("k", 1);
        first.open_stream(&in_session(&session, call(1, "talk", r#"{"key":"k","steps":60}"#)));
        let last = first.next_event().and_then(|event| event.id).expect("progress");
        drop(first);
        server.provider.expect_started("k");
        server.provider.release("k", 60);
        server.provider.expect_ended("k");
        server.wait_until("it is over", |status| status.calls_active == 0);
        let mut again = server.connect();
        again.open_stream(&listen(&session).with_header("Last-Event-ID", &last));
        let events = again.remaining_events();
        let (response, notices) = events.split_last().expect("the answer");
        assert_eq!(response.json()["result"]["content"][0]["text"], "k is over", "{what}");
        assert!(!notices.is_empty() && notices.len() <= 20, "{what}: {}", notices.len());
        let newest = notices.last().map(|event| event.json()["params"]["progress"].as_f64());
        assert_eq!(newest, Some(Some(60.0)), "the oldest make way: {what}");
    }
}

#[test]
fn concurrent_connections_are_limited() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.connections_max = 2);
    let mut kept: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut kept {
        assert_eq!(client.send_request(&get("/health")).status, 200);
    }
    let mut third = server.connect();
    third.send(&get("/health").to_bytes());
    assert!(third.read_response().is_none(), "there is no room");
    for client in &mut kept {
        assert_eq!(client.send_request(&get("/health")).status, 200, "who is in is served");
    }
    kept.pop();
    let served = || {
        let mut client = server.connect();
        client.send(&get("/health").to_bytes());
        client.read_response().is_some()
    };
    server.wait_until("there is room again", |_| served());
}

/// What `/status` shows under a key.
fn status_number(server: &TestServer, key: &str) -> u64 {
    server.send_request(&get("/status")).json()[key].as_u64().expect("a number")
}

/// Bodies that start and do not continue hold memory until their timeout; all of them together have a budget.
#[test]
fn incomplete_bodies_are_bounded_in_the_process_and_the_slowest_are_dropped() {
    const BYTES_MAX: u64 = 1 << 20;
    const LENGTH: usize = 250_000;
    let server = TestServer::with_setup(|setup| {
        setup.connection_limits.request_bytes_max = BYTES_MAX as usize;
    });
    let mut body = crate::client::ping(1);
    body.push_str(&" ".repeat(LENGTH - body.len()));
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {LENGTH}\r\n\r\n"
    );
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..6 {
        let before = status_number(&server, "requestBytesPending");
        let mut client = server.connect();
        client.send(head.as_bytes());
        client.send(&body.as_bytes()[..200_000]);
        clients.push(client);
        if number < 4 {
            server.wait_until("it is counted", |_| status_number(&server, "requestBytesPending") > before);
        }
        assert!(status_number(&server, "requestBytesPending") <= BYTES_MAX);
        server.assert_serving();
    }
    let response = clients[0].read_response().expect("the slowest gets an answer");
    expect_busy(&response, 503, None);
    let newest = clients.last_mut().expect("six clients");
    newest.send(&body.as_bytes()[200_000..]);
    assert_eq!(newest.read_response().expect("an answer").status, 200);
    drop(clients);
    server.wait_until("nothing is left", |_| status_number(&server, "requestBytesPending") == 0);
}

#[test]
fn incomplete_messages_of_pipes_share_the_budget() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.request_bytes_max = 1 << 20);
    let part = format!("{{\"a\":\"{}", "x".repeat(400_000));
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..3 {
        let before = status_number(&server, "requestBytesPending");
        let mut client = server.connect_unix();
        client.send(part.as_bytes());
        clients.push(client);
        if number < 2 {
            server.wait_until("it is counted", |_| status_number(&server, "requestBytesPending") > before);
        }
    }
    let reply = String::from_utf8(clients[0].read_to_end()).expect("text");
    assert!(reply.contains("-31001"), "{reply}");
    assert!(clients[2].is_open());
}
