//! Streams that break, and are taken up again where they were left.

use crate::client::{Client, Event, HANDSHAKE, HttpRequest, call, get, in_session, ping};
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
fn call_continues_after_disconnect_and_resumes_without_duplicates() {
    for version in ["2025-03-26", "2025-06-18", HANDSHAKE] {
        let server = TestServer::start();
        let session = server.session(version);
        let mut first = server.connect();
        server.provider.release("k", 3);
        first.open_stream(&in_session(&session, call(1, "talk", r#"{"key":"k","steps":8}"#)));
        let mut read = Vec::new();
        while read.len() < 3 {
            let event = first.next_event().expect("progress");
            if event.data.as_deref() != Some("") {
                read.push(event);
            }
        }
        drop(first);
        // The call continues without a reader, and the client resumes in the middle.
        server.provider.expect_started("k");
        server.provider.release("k", 3);
        let last = read.last().and_then(|event| event.id.clone()).expect("an id");
        let mut second = server.connect();
        second.open_stream(&resume(&session, &last));
        let mut again = Vec::new();
        while again.len() < 3 {
            let event = second.next_event().expect("progress");
            if event.data.as_deref() != Some("") {
                again.push(event);
            }
        }
        read.append(&mut again);
        server.provider.release("k", 3);
        read.append(&mut message_events(&mut second));
        let numbers: Vec<_> = read.iter().filter_map(progress).collect();
        assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "{version}");
        assert_eq!(read[8].json()["result"]["content"][0]["text"], "k is over", "{version}");
        let places: Vec<_> = read.iter().map(event_position).collect();
        assert!(places.windows(2).all(|w| w[0].0 == w[1].0 && w[0].1 < w[1].1), "{version}: {places:?}");
        server.provider.expect_ended("k");
    }
}

#[test]
fn response_is_kept_for_a_resuming_client() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let mut first = server.connect();
    server.provider.release("k", 1);
    first.open_stream(&in_session(&session, call(1, "talk", r#"{"key":"k","steps":2}"#)));
    first.next_event().expect("the priming event");
    let last = first.next_event().and_then(|event| event.id).expect("an id");
    drop(first);
    server.provider.expect_started("k");
    server.provider.release("k", 2);
    server.provider.expect_ended("k");
    // As often as it is asked for: a reader that broke off again may come back again.
    for _ in 0..3 {
        let mut again = server.connect();
        again.open_stream(&resume(&session, &last));
        let events = message_events(&mut again);
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(progress(&events[0]), Some(2.0));
        assert_eq!(events[1].json()["id"], 1);
    }
}

#[test]
fn resumption_replays_only_its_own_stream() {
    let server = TestServer::start();
    let session = server.session("2025-06-18");
    let mut lasts = Vec::new();
    for key in ["a", "b"] {
        let mut client = server.connect();
        server.provider.release(key, 1);
        client
            .open_stream(&in_session(&session, call(1, "talk", &format!(r#"{{"key":"{key}","steps":1}}"#))));
        lasts.push(client.next_event().and_then(|event| event.id).expect("an id"));
        drop(client);
        server.provider.expect_started(key);
        server.provider.release(key, 1);
        server.provider.expect_ended(key);
        server.wait_until("it is over", |status| status.calls_active == 0);
    }
    for (last, key) in lasts.iter().zip(["a", "b"]) {
        let mut again = server.connect();
        again.open_stream(&resume(&session, last));
        let events = message_events(&mut again);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0].json()["result"]["content"][0]["text"], format!("{key} is over"));
    }
    // Nor does the id of another session's stream open it.
    let other = server.session("2025-06-18");
    assert_eq!(server.send_request(&resume(&other, &lasts[0])).status, 400);
}

/// A call's stream that is not kept any more is not the stream of the session: nothing would ever be answered there.
#[test]
fn resuming_an_unavailable_stream_is_an_error() {
    let server = TestServer::start();
    let session = server.session("2025-06-18");
    for last in ["77-3", "4294967295-0", "1-18446744073709551615"] {
        let response = server.send_request(&resume(&session, last));
        assert_eq!((response.status, response.error_code()), (400, Some(-32600)), "{last}");
    }
}

/// An id that we never gave, or a place that we no longer know, starts afresh: later news must arrive.
#[test]
fn unknown_event_id_opens_the_session_stream() {
    let server = TestServer::start();
    for last in ["0-1000000", "0-18446744073709551615", "x", "", "-", "1", "0-0-0", "99999999999-1", "0--1"] {
        let session = server.session("2025-06-18");
        let mut client = server.connect();
        client.open_stream(&resume(&session, last));
        server.send_request(&in_session(&session, call(1, "test_trigger_tool_change", "{}")));
        let event = client.next_event().expect("an event");
        assert_eq!(event.json()["method"], "notifications/tools/list_changed", "{last}");
    }
}

#[test]
fn missed_notifications_are_replayed() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let trigger = |tool: &str| server.send_request(&in_session(&session, call(1, tool, "{}")));
    let mut first = server.connect();
    first.open_stream(&get("/mcp").with_header("Mcp-Session-Id", &session));
    let start = first.next_event().and_then(|event| event.id).expect("the priming event has an id");
    trigger("test_trigger_tool_change");
    let seen = first.next_event().expect("an event");
    drop(first);
    trigger("test_trigger_prompt_change");
    let mut second = server.connect();
    second.open_stream(&resume(&session, &start));
    let events: Vec<_> = (0..3).map(|_| second.next_event().expect("an event")).collect();
    assert_eq!(events[0].data.as_deref(), Some(""));
    assert_eq!(events[1], seen, "under the same id");
    assert_eq!(events[2].json()["method"], "notifications/prompts/list_changed");
    let mut third = server.connect();
    third.open_stream(&resume(&session, events[1].id.as_deref().expect("an id")));
    third.next_event().expect("the priming event");
    assert_eq!(third.next_event().expect("an event"), events[2]);
}

#[test]
fn server_can_pause_a_stream() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let mut client = server.connect();
    client.open_stream(&in_session(&session, call(1, "test_reconnection", "{}")));
    let events = client.remaining_events();
    let [priming, retry] = &events[..] else { panic!("a priming event and a pause: {events:?}") };
    assert_eq!(priming.data.as_deref(), Some(""));
    assert_eq!(retry.retry, Some(500));
    let last = priming.id.as_deref().expect("an id to come back with");
    let mut again = server.connect();
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
fn version_without_priming_gets_no_priming_and_no_pause() {
    for version in ["2025-03-26", "2025-06-18"] {
        let server = TestServer::start();
        let session = server.session(version);
        let mut client = server.connect();
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
fn disconnect_does_not_cancel_a_call_of_the_handshake_era() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let json = "application/json";
    for (how, request) in [
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
        let mut client = server.connect();
        client.send(&request.to_bytes());
        server.provider.expect_started("k");
        drop(client);
        // Another connection comes and goes: by then the first is seen to have left.
        server.assert_serving();
        server.provider.release("k", 1);
        assert_eq!(server.provider.next_event(), CallEvent::Ended("k".into()), "{how}");
        server.wait_until("it is over", |status| status.calls_active == 0);
    }
}
