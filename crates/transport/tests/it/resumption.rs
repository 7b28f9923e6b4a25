//! Streams that break, and are taken up again where they were left.

use crate::client::{Client, Event, HttpRequest, LEGACY, call, get, in_session, ping};
use crate::controlled_provider::CallEvent;
use crate::test_server::TestServer;

fn resume(session: &str, last: &str) -> HttpRequest {
    get("/mcp").with_header("Mcp-Session-Id", session).with_header("Last-Event-ID", last)
}

/// The place of an event in its stream: ids are `stream-event`.
fn event_position(event: &Event) -> (u64, u64) {
    let id = event.id.as_deref().unwrap_or_else(|| panic!("no id: {event:?}"));
    let (stream, number) = id.split_once('-').expect("two numbers");
    (stream.parse().expect("a number"), number.parse().expect("a number"))
}

fn progress(event: &Event) -> Option<f64> {
    event.json()["params"]["progress"].as_f64()
}

/// Events that say something: the priming one only marks a place.
fn message_events(client: &mut Client) -> Vec<Event> {
    client.remaining_events().into_iter().filter(|event| event.data.as_deref() != Some("")).collect()
}

#[test]
fn a_call_goes_on_without_its_reader_and_every_event_comes_once() {
    for version in ["2025-03-26", "2025-06-18", LEGACY] {
        let door = TestServer::start();
        let session = door.session(version);
        let mut first = door.connect();
        door.provider.release("k", 3);
        first.open_stream(&in_session(&session, call(1, "talk", r#"{"key":"k","steps":8}"#)));
        let mut read = Vec::new();
        while read.len() < 3 {
            let event = first.next_event().expect("progress");
            if event.data.as_deref() != Some("") {
                read.push(event);
            }
        }
        drop(first);
        // It goes on while nobody reads, and is taken up in the middle.
        door.provider.expect_started("k");
        door.provider.release("k", 3);
        let last = read.last().and_then(|event| event.id.clone()).expect("an id");
        let mut second = door.connect();
        second.open_stream(&resume(&session, &last));
        let mut again = Vec::new();
        while again.len() < 3 {
            let event = second.next_event().expect("progress");
            if event.data.as_deref() != Some("") {
                again.push(event);
            }
        }
        read.append(&mut again);
        door.provider.release("k", 3);
        read.append(&mut message_events(&mut second));
        let numbers: Vec<_> = read.iter().filter_map(progress).collect();
        assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "{version}");
        assert_eq!(read[8].json()["result"]["content"][0]["text"], "k is over", "{version}");
        let places: Vec<_> = read.iter().map(event_position).collect();
        assert!(places.windows(2).all(|w| w[0].0 == w[1].0 && w[0].1 < w[1].1), "{version}: {places:?}");
        door.provider.expect_ended("k");
    }
}

#[test]
fn an_answer_waits_for_its_reader() {
    let door = TestServer::start();
    let session = door.session(LEGACY);
    let mut first = door.connect();
    door.provider.release("k", 1);
    first.open_stream(&in_session(&session, call(1, "talk", r#"{"key":"k","steps":2}"#)));
    first.next_event().expect("the priming event");
    let last = first.next_event().and_then(|event| event.id).expect("an id");
    drop(first);
    door.provider.expect_started("k");
    door.provider.release("k", 2);
    door.provider.expect_ended("k");
    // As often as it is asked for: a reader that broke off again may come back again.
    for _ in 0..3 {
        let mut again = door.connect();
        again.open_stream(&resume(&session, &last));
        let events = message_events(&mut again);
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(progress(&events[0]), Some(2.0));
        assert_eq!(events[1].json()["id"], 1);
    }
}

#[test]
fn only_the_same_stream_is_replayed() {
    let door = TestServer::start();
    let session = door.session("2025-06-18");
    let mut lasts = Vec::new();
    for key in ["a", "b"] {
        let mut client = door.connect();
        door.provider.release(key, 1);
        client
            .open_stream(&in_session(&session, call(1, "talk", &format!(r#"{{"key":"{key}","steps":1}}"#))));
        lasts.push(client.next_event().and_then(|event| event.id).expect("an id"));
        drop(client);
        door.provider.expect_started(key);
        door.provider.release(key, 1);
        door.provider.expect_ended(key);
        door.wait_until("it is over", |status| status.calls_active == 0);
    }
    for (last, key) in lasts.iter().zip(["a", "b"]) {
        let mut again = door.connect();
        again.open_stream(&resume(&session, last));
        let events = message_events(&mut again);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0].json()["result"]["content"][0]["text"], format!("{key} is over"));
    }
    // Nor does the id of another session's stream open it.
    let other = door.session("2025-06-18");
    assert_eq!(door.send_request(&resume(&other, &lasts[0])).status, 400);
}

/// A call's stream that is not kept any more is not the stream of the session: nothing would ever be answered there.
#[test]
fn a_stream_that_is_gone_is_told() {
    let door = TestServer::start();
    let session = door.session("2025-06-18");
    for last in ["77-3", "4294967295-0", "1-18446744073709551615"] {
        let answer = door.send_request(&resume(&session, last));
        assert_eq!((answer.status, answer.error_code()), (400, Some(-32600)), "{last}");
    }
}

/// An id that we never gave, or a place that we no longer know, starts afresh: later news must arrive.
#[test]
fn a_place_that_is_unknown_is_no_reason_for_silence() {
    let door = TestServer::start();
    for last in ["0-1000000", "0-18446744073709551615", "x", "", "-", "1", "0-0-0", "99999999999-1", "0--1"] {
        let session = door.session("2025-06-18");
        let mut client = door.connect();
        client.open_stream(&resume(&session, last));
        door.send_request(&in_session(&session, call(1, "test_trigger_tool_change", "{}")));
        let event = client.next_event().expect("an event");
        assert_eq!(event.json()["method"], "notifications/tools/list_changed", "{last}");
    }
}

#[test]
fn news_that_were_missed_are_replayed() {
    let door = TestServer::start();
    let session = door.session(LEGACY);
    let trigger = |tool: &str| door.send_request(&in_session(&session, call(1, tool, "{}")));
    let mut first = door.connect();
    first.open_stream(&get("/mcp").with_header("Mcp-Session-Id", &session));
    let start = first.next_event().and_then(|event| event.id).expect("the priming event has an id");
    trigger("test_trigger_tool_change");
    let seen = first.next_event().expect("an event");
    drop(first);
    trigger("test_trigger_prompt_change");
    let mut second = door.connect();
    second.open_stream(&resume(&session, &start));
    let events: Vec<_> = (0..3).map(|_| second.next_event().expect("an event")).collect();
    assert_eq!(events[0].data.as_deref(), Some(""));
    assert_eq!(events[1], seen, "under the same id");
    assert_eq!(events[2].json()["method"], "notifications/prompts/list_changed");
    let mut third = door.connect();
    third.open_stream(&resume(&session, events[1].id.as_deref().expect("an id")));
    third.next_event().expect("the priming event");
    assert_eq!(third.next_event().expect("an event"), events[2]);
}

#[test]
fn a_stream_can_be_paused_by_the_server() {
    let door = TestServer::start();
    let session = door.session(LEGACY);
    let mut client = door.connect();
    client.open_stream(&in_session(&session, call(1, "test_reconnection", "{}")));
    let events = client.remaining_events();
    let [priming, retry] = &events[..] else { panic!("a priming event and a pause: {events:?}") };
    assert_eq!(priming.data.as_deref(), Some(""));
    assert_eq!(retry.retry, Some(500));
    let last = priming.id.as_deref().expect("an id to come back with");
    let mut again = door.connect();
    again.open_stream(&resume(&session, last));
    let events = message_events(&mut again);
    assert_eq!(events.len(), 1, "{events:?}");
    let text = events[0].json()["result"]["content"][0]["text"].to_string();
    assert!(text.contains("taken up again"), "{text}");
    // The same connection goes on to serve: the pause was the end of a stream, not of the connection.
    assert_eq!(client.send_request(&in_session(&session, ping(2))).status, 200);
}

/// Without a priming event a client would have no id to come back with: the stream stays until the answer.
#[test]
fn a_version_without_priming_is_neither_primed_nor_paused() {
    for version in ["2025-03-26", "2025-06-18"] {
        let door = TestServer::start();
        let session = door.session(version);
        let mut client = door.connect();
        client.send(
            &in_session(&session, call(1, "test_reconnection", "{}"))
                .with_header("Accept", "text/event-stream")
                .to_bytes(),
        );
        assert_eq!(client.read_head().expect("an answer").status, 200);
        let events = client.remaining_events();
        assert_eq!(events.len(), 1, "{version}: {events:?}");
        assert_eq!(events[0].json()["id"], 1, "{version}");
    }
}

#[test]
fn leaving_does_not_cancel_a_call_of_the_handshake_era() {
    let door = TestServer::start();
    let session = door.session(LEGACY);
    let json = "application/json";
    for (how, ask) in [
        ("in a session", in_session(&session, call(1, "hold", r#"{"key":"k"}"#))),
        (
            "in a session, for JSON",
            in_session(&session, call(1, "hold", r#"{"key":"k"}"#)).with_header("Accept", json),
        ),
        ("alone", crate::client::post(call(1, "hold", r#"{"key":"k"}"#))),
        (
            "alone, for JSON",
            crate::client::post(call(1, "hold", r#"{"key":"k"}"#)).with_header("Accept", json),
        ),
    ] {
        let mut client = door.connect();
        client.send(&ask.to_bytes());
        door.provider.expect_started("k");
        drop(client);
        // Another connection comes and goes: by then the first is seen to have left.
        door.assert_serving();
        door.provider.release("k", 1);
        assert_eq!(door.provider.next_event(), CallEvent::Ended("k".into()), "{how}");
        door.wait_until("it is over", |status| status.calls_active == 0);
    }
}
