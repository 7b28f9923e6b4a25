//! Calls and connections: who leaves, who waits, who panics, and in which order answers come.

use crate::client::{Ask, LEGACY, call, get, modern, modern_call, ping, post, within};
use crate::kit::Door;
use crate::stand::Seen;

#[test]
fn leaving_cancels_a_call_of_the_newest_era() {
    let door = Door::open();
    let json = "application/json";
    let hold = || modern_call(1, "hold", r#"{"key":"k"}"#);
    let talk = || modern_call(1, "talk", r#"{"key":"k","steps":9}"#);
    let behind = |ask: Ask, more: &[u8]| [ask.bytes(), more.to_vec()].concat();
    for (how, bytes) in [
        ("while nothing was said", hold().bytes()),
        ("while nothing was said, for JSON", hold().with("Accept", json).bytes()),
        ("while something was said", talk().bytes()),
        ("with a byte behind", behind(hold(), b"P")),
        ("with a request behind", behind(hold(), &post(ping(2)).bytes())),
        ("while something was said, with a byte behind", behind(talk(), b"P")),
        ("asked to close after the answer", hold().with("Connection", "close").bytes()),
    ] {
        let mut client = door.connect();
        client.send(&bytes);
        door.stand.started("k");
        if how.starts_with("while something") {
            door.stand.let_go("k", 1);
            client.head().expect("an answer");
            client.event().expect("progress");
        }
        drop(client);
        assert_eq!(door.stand.next(), Seen::Dropped("k".into()), "{how}");
        door.until("it is counted as over", |status| status.calls_active == 0);
    }
    door.serves();
}

#[test]
fn leaving_a_subscription_ends_it() {
    let door = Door::open();
    let listen = modern(1, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    let mut client = door.connect();
    client.stream(&listen);
    door.until("it listens", |status| status.listening == 1);
    drop(client);
    door.until("it is gone", |status| status.listening == 0);
}

#[test]
fn a_call_over_its_deadline_is_stopped_and_says_so() {
    let door = Door::with(|setup| setup.limits.call_timeout_ms = 50);
    let session = door.session(LEGACY);
    let arguments = r#"{"key":"k"}"#;
    for (era, ask) in [
        ("modern", modern_call(1, "hold", arguments)),
        ("session", within(&session, call(1, "hold", arguments))),
        ("alone", post(call(1, "hold", arguments))),
    ] {
        let answer = door.ask(&ask);
        door.stand.started("k");
        door.stand.dropped("k");
        let result = &answer.json()["result"];
        assert_eq!((answer.status, &result["isError"]), (200, &true.into()), "{era}: {answer:?}");
        let problem: serde_json::Value = match result.get("structuredContent") {
            Some(problem) => problem.clone(),
            None => {
                serde_json::from_str(result["content"][0]["text"].as_str().expect("a text")).expect("JSON")
            }
        };
        assert_eq!((&problem["code"], &problem["retryable"]), (&"timeout".into(), &true.into()), "{era}");
    }
    door.serves();
}

#[test]
fn a_panic_is_one_fault_and_the_connection_lives() {
    let door = Door::open();
    let session = door.session(LEGACY);
    let mut client = door.connect();
    for tool in ["boom", "boom_later"] {
        for (era, ask) in [
            ("modern", modern_call(1, tool, "{}")),
            ("session", within(&session, call(1, tool, "{}"))),
            ("alone", post(call(1, tool, "{}"))),
        ] {
            let answer = client.ask(&ask);
            let case = format!("{tool} {era}: {answer:?}");
            assert_eq!((answer.status, &answer.json()["result"]["isError"]), (200, &true.into()), "{case}");
            assert!(!answer.text().contains("as the test wants"), "what happened is for the log: {case}");
            assert_eq!(client.ask(&post(ping(2))).status, 200, "{case}");
        }
    }
    door.until("none is left", |status| status.calls_active == 0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let door = Door::open();
    let mut client = door.connect();
    let mut bytes = modern_call(1, "hold", r#"{"key":"k"}"#).bytes();
    bytes.extend(get("/health").bytes());
    bytes.extend(post("{").bytes());
    bytes.extend(post(ping(2)).at("/nowhere").bytes());
    bytes.extend(post(ping(3)).with("Content-Type", "text/plain").bytes());
    bytes.extend(get("/mcp").bytes());
    for id in 10..60 {
        bytes.extend(post(ping(id)).bytes());
    }
    client.send(&bytes);
    door.stand.started("k");
    door.stand.let_go("k", 1);
    let first = client.answer().expect("an answer");
    assert_eq!(first.json()["id"], 1);
    for status in [200, 400, 404, 415, 405] {
        assert_eq!(client.answer().expect("an answer").status, status);
    }
    for id in 10..60 {
        assert_eq!(client.answer().expect("an answer").json()["id"], id);
    }
}

/// What a client did wrong in one request is no reason to hang up, as long as the end of it was seen.
/// A client may stop sending before it reads. What is ready is answered; it is waited for nothing else, because
/// a client that has left looks the same.
#[test]
fn a_client_that_only_listens_on_is_answered() {
    let door = Door::open();
    for _ in 0..100 {
        let mut client = door.connect();
        client.send(&post(call(1, "test_simple_text", "{}")).bytes());
        client.end();
        assert_eq!(client.answer().expect("an answer").status, 200);
        assert!(client.answer().is_none());
    }
}

#[test]
fn a_connection_lives_on_after_errors() {
    let door = Door::open();
    let mut client = door.connect();
    for (ask, status) in [
        (post("{"), 400),
        (post("{}"), 400),
        (post(ping(1)).with("Accept", "text/html"), 406),
        (post(ping(1)).with("Content-Type", "text/plain"), 415),
        (post(ping(1)).with("Host", "evil.example"), 403),
        (post(ping(1)).with("Origin", "null"), 403),
        (post(ping(1)).without("Host"), 400),
        (within("nonsense", ping(1)), 404),
        (get("/nowhere"), 404),
        (get("/mcp"), 405),
        (Ask::new("PUT", "/mcp"), 405),
        (post(call(1, "no_such_tool", "{}")), 200),
    ] {
        assert_eq!(client.ask(&ask).status, status, "{ask:?}");
        assert_eq!(client.ask(&post(ping(2))).status, 200, "after {ask:?}");
    }
}

#[test]
fn closing_down_answers_what_is_under_way() {
    let json = "application/json";
    let stream = "text/event-stream";
    for accept in [json, stream, "application/json, text/event-stream"] {
        for era in ["modern", "session", "alone"] {
            let mut door = Door::open();
            let session = door.session(LEGACY);
            let arguments = r#"{"key":"k"}"#;
            let ask = match era {
                "modern" => modern_call(1, "hold", arguments),
                "session" => within(&session, call(1, "hold", arguments)),
                _ => post(call(1, "hold", arguments)),
            };
            let mut client = door.connect();
            client.send(&ask.with("Accept", accept).bytes());
            door.stand.started("k");
            let mut idle = door.connect();
            assert_eq!(idle.ask(&get("/health")).status, 200);
            door.tell_to_stop();
            assert_eq!(idle.rest(), b"", "whoever waits for nothing is sent away");
            door.stand.let_go("k", 1);
            door.stand.ended("k");
            let answer = client.answer().expect("an answer");
            assert!(answer.text().contains("k is over"), "{era} for {accept}: {answer:?}");
            assert_eq!(client.rest(), b"", "and then the connection ends");
            door.shut();
            assert!(std::net::TcpStream::connect(door.address).is_err(), "nobody listens any more");
        }
    }
}

#[test]
fn closing_down_ends_what_would_go_on_for_ever() {
    let mut door = Door::open();
    let session = door.session(LEGACY);
    let mut reader = door.connect();
    reader.stream(&get("/mcp").with("Mcp-Session-Id", &session));
    let listen = modern(7, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    let mut listener = door.connect();
    listener.stream(&listen);
    listener.event().expect("it is acknowledged");
    door.tell_to_stop();
    let last = listener.events();
    assert_eq!(last.len(), 1, "a subscription ends with its answer: {last:?}");
    assert_eq!(last[0].json()["id"], 7);
    reader.event().expect("it was primed");
    assert_eq!(reader.events(), []);
    door.shut();
}

#[test]
fn closing_down_does_not_wait_for_ever() {
    let mut door = Door::with(|setup| setup.timing.drain_ms = 50);
    let mut client = door.connect();
    client.send(&modern_call(1, "hold", r#"{"key":"k"}"#).bytes());
    door.stand.started("k");
    door.tell_to_stop();
    door.stand.dropped("k");
    client.rest();
    door.shut();
}
