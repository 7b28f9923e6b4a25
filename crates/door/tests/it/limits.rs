//! Everything has a limit, and whoever meets one is told when to come back.

use crate::client::{Answer, Ask, Client, call, get, modern, modern_call, within};
use crate::kit::Door;

/// Refused for now, with everything a client needs to know.
fn busy(answer: &Answer, status: u16, id: Option<u64>) {
    assert_eq!((answer.status, answer.code()), (status, Some(-31001)), "{answer:?}");
    let seconds = answer.head("retry-after").and_then(|s| s.parse::<u64>().ok());
    assert!(seconds.is_some_and(|s| s >= 1), "{answer:?}");
    let told = answer.json();
    assert!(told["error"]["data"]["retryAfterMs"].is_u64(), "{answer:?}");
    assert_eq!(told["id"].as_u64(), id, "{answer:?}");
}

fn hold(key: &str) -> String {
    format!(r#"{{"key":"{key}"}}"#)
}

#[test]
fn calls_at_once_over_all_clients() {
    let door = Door::with(|setup| setup.limits.calls_max = 2);
    let mut waiting: Vec<Client> = Vec::new();
    for id in 1..=2 {
        let mut client = door.connect();
        client.send(&modern_call(id, "hold", &hold("k")).bytes());
        door.stand.started("k");
        waiting.push(client);
    }
    let one_more = modern_call(3, "test_simple_text", "{}");
    busy(&door.ask(&one_more), 503, Some(3));
    busy(&door.ask(&crate::client::post(call(4, "test_simple_text", "{}"))), 503, Some(4));
    door.serves();
    door.stand.let_go("k", 2);
    for mut client in waiting {
        assert_eq!(client.answer().expect("an answer").status, 200);
    }
    door.until("there is room again", |status| status.calls_active == 0);
    assert_eq!(door.ask(&one_more).status, 200);
}

#[test]
fn calls_at_once_in_one_session() {
    let door = Door::with(|setup| setup.limits.calls_per_peer_max = 2);
    let (session, other) = (door.session("2025-06-18"), door.session("2025-06-18"));
    let mut waiting: Vec<Client> = Vec::new();
    for id in 1..=2 {
        let key = id.to_string();
        let mut client = door.connect();
        client.send(&within(&session, call(id, "talk", &format!(r#"{{"key":"{key}","steps":1}}"#))).bytes());
        door.stand.started(&key);
        // The first thing it says shows that it is counted.
        door.stand.let_go(&key, 1);
        client.head().expect("an answer");
        assert!(client.event().is_some());
        waiting.push(client);
    }
    busy(&door.ask(&within(&session, call(3, "test_simple_text", "{}"))), 429, Some(3));
    assert_eq!(
        door.ask(&within(&other, call(3, "test_simple_text", "{}"))).status,
        200,
        "others have theirs"
    );
    for (mut client, key) in waiting.into_iter().zip(["1", "2"]) {
        door.stand.let_go(key, 1);
        assert_eq!(client.events().len(), 1);
    }
    door.until("there is room again", |status| status.calls_active == 0);
    assert_eq!(door.ask(&within(&session, call(3, "test_simple_text", "{}"))).status, 200);
}

fn listen(session: &str) -> Ask {
    get("/mcp").with("Mcp-Session-Id", session)
}

fn subscribe(session: &str) -> Ask {
    let body = r#"{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"test://watched-resource"}}"#;
    within(session, body)
}

/// Each way in which a session comes to hold something, against each of the two limits.
#[test]
fn sessions_that_hold_something() {
    for (what, per_principal, all) in [("of one caller", 2, 100), ("of all callers", 100, 2)] {
        let door = Door::with(|setup| {
            setup.limits.sessions_per_principal_max = per_principal;
            setup.limits.sessions_max = all;
        });
        let mut readers = Vec::new();
        for _ in 0..2 {
            let mut reader = door.connect();
            reader.stream(&listen(&door.session("2025-06-18")));
            readers.push(reader);
        }
        let session = door.session("2025-06-18");
        busy(&door.ask(&listen(&session)), 429, None);
        busy(&door.ask(&subscribe(&session)), 429, Some(9));
        // A call needs nothing kept, or can do without: what has begun is not refused.
        assert_eq!(door.ask(&within(&session, call(6, "test_simple_text", "{}"))).status, 200, "{what}");
        let mut caller = door.connect();
        caller.send(&within(&session, call(5, "talk", r#"{"key":"k","steps":1}"#)).bytes());
        door.stand.started("k");
        door.stand.let_go("k", 2);
        assert!(caller.answer().expect("an answer").text().contains("k is over"), "{what}");
        door.stand.ended("k");
        drop(readers);
        door.until("the readers are gone", |_| door.status_of(&listen(&session)) == 200);
    }
}

#[test]
fn what_holds_nothing_makes_way_first() {
    let door = Door::with(|setup| {
        setup.limits.sessions_per_principal_max = 3;
        setup.limits.session_idle_ms = 1000;
    });
    let subscribed = door.session("2025-06-18");
    assert_eq!(door.ask(&subscribe(&subscribed)).status, 200);
    let reading = door.session("2025-06-18");
    let mut reader = door.connect();
    reader.stream(&listen(&reading));
    // A hundred that came, looked and left again.
    for _ in 0..100 {
        let passing = door.session("2025-06-18");
        // As soon as the one before is seen to have left.
        door.until("there is room", |_| door.status_of(&listen(&passing)) == 200);
    }
    // Both that hold something are as they were.
    let trigger = door.ask(&crate::client::post(call(1, "test_trigger_resource_change", "{}")));
    assert_eq!(trigger.status, 200);
    let mut client = door.connect();
    client.stream(&listen(&subscribed));
    let news = client.event().expect("the subscription lives").json();
    assert_eq!(news["method"], "notifications/resources/updated");
    door.ask(&crate::client::post(call(1, "test_trigger_tool_change", "{}")));
    assert!(reader.event().is_some(), "the stream lives");
}

#[test]
fn an_idle_session_makes_way_before_a_new_one_is_refused() {
    let door = Door::with(|setup| {
        setup.limits.sessions_per_principal_max = 1;
        setup.limits.session_idle_ms = 1000;
    });
    let (first, second) = (door.session("2025-06-18"), door.session("2025-06-18"));
    assert_eq!(door.ask(&subscribe(&first)).status, 200);
    busy(&door.ask(&subscribe(&second)), 429, Some(9));
    door.world.advance_ms(1000);
    assert_eq!(door.ask(&subscribe(&second)).status, 200);
    // What the first had subscribed to is gone, so it is told that it is over, and can begin again.
    assert_eq!(door.ask(&within(&first, crate::client::ping(1))).status, 404);
}

#[test]
fn a_session_in_use_is_not_idle() {
    let door = Door::with(|setup| {
        setup.limits.sessions_per_principal_max = 1;
        setup.limits.session_idle_ms = 1000;
    });
    let (first, second) = (door.session("2025-06-18"), door.session("2025-06-18"));
    assert_eq!(door.ask(&subscribe(&first)).status, 200);
    for _ in 0..3 {
        door.world.advance_ms(900);
        assert_eq!(door.ask(&within(&first, crate::client::ping(1))).status, 200);
    }
    busy(&door.ask(&subscribe(&second)), 429, Some(9));
}

#[test]
fn what_a_session_subscribes_to_is_bounded_in_bytes() {
    let door = Door::with(|setup| setup.limits.subscription_bytes_max = 100);
    let session = door.session("2025-06-18");
    let subscribe = |uri: &str| {
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{params}}}"#)
    };
    assert_eq!(door.ask(&within(&session, subscribe(&"a".repeat(60)))).status, 200);
    busy(&door.ask(&within(&session, subscribe(&"b".repeat(60)))), 429, Some(9));
    assert_eq!(door.ask(&within(&session, subscribe(&"a".repeat(60)))).status, 200);
}

#[test]
fn subscriptions_at_once() {
    let door = Door::with(|setup| setup.limits.streams_max = 2);
    let listen =
        |id| modern(id, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    let mut readers = Vec::new();
    for id in 1..=2 {
        let mut reader = door.connect();
        reader.stream(&listen(id));
        assert_eq!(
            reader.event().expect("it is acknowledged").json()["method"],
            "notifications/subscriptions/acknowledged"
        );
        readers.push(reader);
    }
    busy(&door.ask(&listen(3)), 503, Some(3));
    readers.pop();
    door.until("one is gone", |status| status.listening == 1);
    let mut reader = door.connect();
    reader.stream(&listen(4));
}

#[test]
fn subscriptions_of_one_session() {
    let door = Door::with(|setup| setup.limits.subscriptions_per_peer_max = 3);
    let session = door.session("2025-06-18");
    let subscribe = |uri: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
        );
        within(&session, body)
    };
    for uri in ["a:1", "a:2", "a:3", "a:3"] {
        assert_eq!(door.ask(&subscribe(uri)).status, 200, "{uri}");
    }
    busy(&door.ask(&subscribe("a:4")), 429, Some(9));
}

/// A reader that comes back late has lost what did not fit, but neither the answer nor its own place.
#[test]
fn a_stream_keeps_the_answer_whatever_it_drops() {
    for (what, events_max, bytes_max) in [("few events", 4, 4 << 20), ("few bytes", 1000, 2000)] {
        let door = Door::with(|setup| {
            setup.limits.stream_events_max = events_max;
            setup.limits.stream_bytes_max = bytes_max;
        });
        let session = door.session("2025-06-18");
        let mut first = door.connect();
        door.stand.let_go("k", 1);
        first.stream(&within(&session, call(1, "talk", r#"{"key":"k","steps":60}"#)));
        let last = first.event().and_then(|event| event.id).expect("progress");
        drop(first);
        door.stand.started("k");
        door.stand.let_go("k", 60);
        door.stand.ended("k");
        door.until("it is over", |status| status.calls_active == 0);
        let mut again = door.connect();
        again.stream(&listen(&session).with("Last-Event-ID", &last));
        let events = again.events();
        let (answer, notices) = events.split_last().expect("the answer");
        assert_eq!(answer.json()["result"]["content"][0]["text"], "k is over", "{what}");
        assert!(!notices.is_empty() && notices.len() <= 20, "{what}: {}", notices.len());
        let newest = notices.last().map(|event| event.json()["params"]["progress"].as_f64());
        assert_eq!(newest, Some(Some(60.0)), "the oldest make way: {what}");
    }
}

#[test]
fn connections_at_once() {
    let door = Door::with(|setup| setup.timing.connections_max = 2);
    let mut kept: Vec<Client> = (0..2).map(|_| door.connect()).collect();
    for client in &mut kept {
        assert_eq!(client.ask(&get("/health")).status, 200);
    }
    let mut third = door.connect();
    third.send(&get("/health").bytes());
    assert!(third.answer().is_none(), "there is no room");
    for client in &mut kept {
        assert_eq!(client.ask(&get("/health")).status, 200, "who is in is served");
    }
    kept.pop();
    let served = || {
        let mut client = door.connect();
        client.send(&get("/health").bytes());
        client.answer().is_some()
    };
    door.until("there is room again", |_| served());
}
