//! Everything has a limit, and whoever meets one is told when to come back.

use crate::client::{Client, HttpRequest, HttpResponse, call, get, in_session, modern, modern_call};
use crate::test_server::TestServer;

/// Refused for now, with everything a client needs to know.
fn expect_busy(answer: &HttpResponse, status: u16, id: Option<u64>) {
    assert_eq!((answer.status, answer.error_code()), (status, Some(-31001)), "{answer:?}");
    let seconds = answer.header("retry-after").and_then(|s| s.parse::<u64>().ok());
    assert!(seconds.is_some_and(|s| s >= 1), "{answer:?}");
    let told = answer.json();
    assert!(told["error"]["data"]["retryAfterMs"].is_u64(), "{answer:?}");
    assert_eq!(told["id"].as_u64(), id, "{answer:?}");
}

fn hold_arguments(key: &str) -> String {
    format!(r#"{{"key":"{key}"}}"#)
}

#[test]
fn calls_at_once_over_all_clients() {
    let door = TestServer::with_setup(|setup| setup.limits.calls_max = 2);
    let mut waiting: Vec<Client> = Vec::new();
    for id in 1..=2 {
        let mut client = door.connect();
        client.send(&modern_call(id, "hold", &hold_arguments("k")).to_bytes());
        door.provider.expect_started("k");
        waiting.push(client);
    }
    let one_more = modern_call(3, "test_simple_text", "{}");
    expect_busy(&door.send_request(&one_more), 503, Some(3));
    expect_busy(&door.send_request(&crate::client::post(call(4, "test_simple_text", "{}"))), 503, Some(4));
    door.assert_serving();
    door.provider.release("k", 2);
    for mut client in waiting {
        assert_eq!(client.read_response().expect("an answer").status, 200);
    }
    door.wait_until("there is room again", |status| status.calls_active == 0);
    assert_eq!(door.send_request(&one_more).status, 200);
}

#[test]
fn calls_at_once_in_one_session() {
    let door = TestServer::with_setup(|setup| setup.limits.calls_per_peer_max = 2);
    let (session, other) = (door.session("2025-06-18"), door.session("2025-06-18"));
    let mut waiting: Vec<Client> = Vec::new();
    for id in 1..=2 {
        let key = id.to_string();
        let mut client = door.connect();
        client.send(
            &in_session(&session, call(id, "talk", &format!(r#"{{"key":"{key}","steps":1}}"#))).to_bytes(),
        );
        door.provider.expect_started(&key);
        // The first thing it says shows that it is counted.
        door.provider.release(&key, 1);
        client.read_head().expect("an answer");
        assert!(client.next_event().is_some());
        waiting.push(client);
    }
    expect_busy(&door.send_request(&in_session(&session, call(3, "test_simple_text", "{}"))), 429, Some(3));
    assert_eq!(
        door.send_request(&in_session(&other, call(3, "test_simple_text", "{}"))).status,
        200,
        "others have theirs"
    );
    for (mut client, key) in waiting.into_iter().zip(["1", "2"]) {
        door.provider.release(key, 1);
        assert_eq!(client.remaining_events().len(), 1);
    }
    door.wait_until("there is room again", |status| status.calls_active == 0);
    assert_eq!(door.send_request(&in_session(&session, call(3, "test_simple_text", "{}"))).status, 200);
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
fn sessions_that_hold_something() {
    for (what, per_principal, all) in [("of one caller", 2, 100), ("of all callers", 100, 2)] {
        let door = TestServer::with_setup(|setup| {
            setup.limits.sessions_per_principal_max = per_principal;
            setup.limits.sessions_max = all;
        });
        let mut readers = Vec::new();
        for _ in 0..2 {
            let mut reader = door.connect();
            reader.open_stream(&listen(&door.session("2025-06-18")));
            readers.push(reader);
        }
        let session = door.session("2025-06-18");
        expect_busy(&door.send_request(&listen(&session)), 429, None);
        expect_busy(&door.send_request(&subscribe(&session)), 429, Some(9));
        // A call needs nothing kept, or can do without: what has begun is not refused.
        assert_eq!(
            door.send_request(&in_session(&session, call(6, "test_simple_text", "{}"))).status,
            200,
            "{what}"
        );
        let mut caller = door.connect();
        caller.send(&in_session(&session, call(5, "talk", r#"{"key":"k","steps":1}"#)).to_bytes());
        door.provider.expect_started("k");
        door.provider.release("k", 2);
        assert!(caller.read_response().expect("an answer").text().contains("k is over"), "{what}");
        door.provider.expect_ended("k");
        drop(readers);
        door.wait_until("the readers are gone", |_| door.status_of(&listen(&session)) == 200);
    }
}

#[test]
fn what_holds_nothing_makes_way_first() {
    let door = TestServer::with_setup(|setup| {
        setup.limits.sessions_per_principal_max = 3;
        setup.limits.session_idle_ms = 1000;
    });
    let subscribed = door.session("2025-06-18");
    assert_eq!(door.send_request(&subscribe(&subscribed)).status, 200);
    let reading = door.session("2025-06-18");
    let mut reader = door.connect();
    reader.open_stream(&listen(&reading));
    // A hundred that came, looked and left again.
    for _ in 0..100 {
        let passing = door.session("2025-06-18");
        // As soon as the one before is seen to have left.
        door.wait_until("there is room", |_| door.status_of(&listen(&passing)) == 200);
    }
    // Both that hold something are as they were.
    let trigger = door.send_request(&crate::client::post(call(1, "test_trigger_resource_change", "{}")));
    assert_eq!(trigger.status, 200);
    let mut client = door.connect();
    client.open_stream(&listen(&subscribed));
    let news = client.next_event().expect("the subscription lives").json();
    assert_eq!(news["method"], "notifications/resources/updated");
    door.send_request(&crate::client::post(call(1, "test_trigger_tool_change", "{}")));
    assert!(reader.next_event().is_some(), "the stream lives");
}

#[test]
fn an_idle_session_makes_way_before_a_new_one_is_refused() {
    let door = TestServer::with_setup(|setup| {
        setup.limits.sessions_per_principal_max = 1;
        setup.limits.session_idle_ms = 1000;
    });
    let (first, second) = (door.session("2025-06-18"), door.session("2025-06-18"));
    assert_eq!(door.send_request(&subscribe(&first)).status, 200);
    expect_busy(&door.send_request(&subscribe(&second)), 429, Some(9));
    door.platform.advance_ms(1000);
    assert_eq!(door.send_request(&subscribe(&second)).status, 200);
    // What the first had subscribed to is gone, so it is told that it is over, and can begin again.
    assert_eq!(door.send_request(&in_session(&first, crate::client::ping(1))).status, 404);
}

#[test]
fn a_session_in_use_is_not_idle() {
    let door = TestServer::with_setup(|setup| {
        setup.limits.sessions_per_principal_max = 1;
        setup.limits.session_idle_ms = 1000;
    });
    let (first, second) = (door.session("2025-06-18"), door.session("2025-06-18"));
    assert_eq!(door.send_request(&subscribe(&first)).status, 200);
    for _ in 0..3 {
        door.platform.advance_ms(900);
        assert_eq!(door.send_request(&in_session(&first, crate::client::ping(1))).status, 200);
    }
    expect_busy(&door.send_request(&subscribe(&second)), 429, Some(9));
}

#[test]
fn what_a_session_subscribes_to_is_bounded_in_bytes() {
    let door = TestServer::with_setup(|setup| setup.limits.subscription_bytes_max = 100);
    let session = door.session("2025-06-18");
    let subscribe = |uri: &str| {
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{params}}}"#)
    };
    assert_eq!(door.send_request(&in_session(&session, subscribe(&"a".repeat(60)))).status, 200);
    expect_busy(&door.send_request(&in_session(&session, subscribe(&"b".repeat(60)))), 429, Some(9));
    assert_eq!(door.send_request(&in_session(&session, subscribe(&"a".repeat(60)))).status, 200);
}

#[test]
fn subscriptions_at_once() {
    let door = TestServer::with_setup(|setup| setup.limits.streams_max = 2);
    let listen =
        |id| modern(id, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    let mut readers = Vec::new();
    for id in 1..=2 {
        let mut reader = door.connect();
        reader.open_stream(&listen(id));
        assert_eq!(
            reader.next_event().expect("it is acknowledged").json()["method"],
            "notifications/subscriptions/acknowledged"
        );
        readers.push(reader);
    }
    expect_busy(&door.send_request(&listen(3)), 503, Some(3));
    readers.pop();
    door.wait_until("one is gone", |status| status.subscriptions == 1);
    let mut reader = door.connect();
    reader.open_stream(&listen(4));
}

#[test]
fn subscriptions_of_one_session() {
    let door = TestServer::with_setup(|setup| setup.limits.subscriptions_per_peer_max = 3);
    let session = door.session("2025-06-18");
    let subscribe = |uri: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
        );
        in_session(&session, body)
    };
    for uri in ["a:1", "a:2", "a:3", "a:3"] {
        assert_eq!(door.send_request(&subscribe(uri)).status, 200, "{uri}");
    }
    expect_busy(&door.send_request(&subscribe("a:4")), 429, Some(9));
}

/// A reader that comes back late has lost what did not fit, but neither the answer nor its own place.
#[test]
fn a_stream_keeps_the_answer_whatever_it_drops() {
    for (what, events_max, bytes_max) in [("few events", 4, 4 << 20), ("few bytes", 1000, 2000)] {
        let door = TestServer::with_setup(|setup| {
            setup.limits.stream_events_max = events_max;
            setup.limits.stream_bytes_max = bytes_max;
        });
        let session = door.session("2025-06-18");
        let mut first = door.connect();
        door.provider.release("k", 1);
        first.open_stream(&in_session(&session, call(1, "talk", r#"{"key":"k","steps":60}"#)));
        let last = first.next_event().and_then(|event| event.id).expect("progress");
        drop(first);
        door.provider.expect_started("k");
        door.provider.release("k", 60);
        door.provider.expect_ended("k");
        door.wait_until("it is over", |status| status.calls_active == 0);
        let mut again = door.connect();
        again.open_stream(&listen(&session).with_header("Last-Event-ID", &last));
        let events = again.remaining_events();
        let (answer, notices) = events.split_last().expect("the answer");
        assert_eq!(answer.json()["result"]["content"][0]["text"], "k is over", "{what}");
        assert!(!notices.is_empty() && notices.len() <= 20, "{what}: {}", notices.len());
        let newest = notices.last().map(|event| event.json()["params"]["progress"].as_f64());
        assert_eq!(newest, Some(Some(60.0)), "the oldest make way: {what}");
    }
}

#[test]
fn connections_at_once() {
    let door = TestServer::with_setup(|setup| setup.connection_limits.connections_max = 2);
    let mut kept: Vec<Client> = (0..2).map(|_| door.connect()).collect();
    for client in &mut kept {
        assert_eq!(client.send_request(&get("/health")).status, 200);
    }
    let mut third = door.connect();
    third.send(&get("/health").to_bytes());
    assert!(third.read_response().is_none(), "there is no room");
    for client in &mut kept {
        assert_eq!(client.send_request(&get("/health")).status, 200, "who is in is served");
    }
    kept.pop();
    let served = || {
        let mut client = door.connect();
        client.send(&get("/health").to_bytes());
        client.read_response().is_some()
    };
    door.wait_until("there is room again", |_| served());
}
