//! Sessions of the handshake era: how they begin, what they carry, how they end.

use std::collections::HashSet;

use crate::client::{Client, HttpRequest, LEGACY, MODERN, call, get, in_session, initialize, ping, post};
use crate::test_server::TestServer;

fn listen(door: &TestServer, session: &str) -> Client {
    let mut client = door.connect();
    client.open_stream(&get("/mcp").with_header("Mcp-Session-Id", session));
    client
}

fn delete(session: &str) -> HttpRequest {
    HttpRequest::new("DELETE", "/mcp").with_header("Mcp-Session-Id", session)
}

/// Asks for something and expects an empty result.
fn expect_empty_result(door: &TestServer, session: &str, method: &str, params: &str) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":99,"method":"{method}","params":{params}}}"#);
    let answer = door.send_request(&in_session(session, body));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.json()["result"].is_object(), "{answer:?}");
}

fn trigger(door: &TestServer, tool: &str) {
    let answer = door.send_request(&post(call(1, tool, "{}")));
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_handshake_gives_a_session_in_every_version_that_has_one() {
    let door = TestServer::start();
    for (asked, got) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        (MODERN, "2025-11-25"),
    ] {
        let answer = door.send_request(&initialize(asked, r#"{"tools":{},"x":7}"#));
        assert_eq!(answer.json()["result"]["protocolVersion"], got, "{asked}");
        let session = answer.header("mcp-session-id").expect("a session id").to_owned();
        // 2025-11-25, Session Management: "MUST only contain visible ASCII characters".
        assert!(session.bytes().all(|c| c.is_ascii_graphic()) && session.len() >= 22, "{session}");
        let answer = door.send_request(&in_session(&session, ping(5)));
        assert_eq!((answer.status, &answer.json()["id"]), (200, &5.into()), "{asked}");
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let answer = door.send_request(&in_session(&session, initialized));
        assert_eq!((answer.status, answer.body.len()), (202, 0), "{asked}");
    }
    assert_eq!(door.server().status().sessions, 0, "none of them holds anything");
}

#[test]
fn no_id_is_given_twice() {
    let door = TestServer::start();
    let mut client = door.connect();
    let mut seen = HashSet::new();
    let ask = initialize(LEGACY, "{}").to_bytes();
    const AT_ONCE: usize = 100;
    for _ in 0..1000 {
        client.send(&ask.repeat(AT_ONCE));
        for _ in 0..AT_ONCE {
            let answer = client.read_response().expect("an answer");
            let id = answer.header("mcp-session-id").expect("a session id");
            assert!(seen.insert(id.to_owned()), "{id} was given before");
        }
    }
    assert_eq!((seen.len(), door.server().status().sessions), (100_000, 0));
}

#[test]
fn a_change_is_told_once_on_the_stream_that_listens() {
    let door = TestServer::start();
    let session = door.session(LEGACY);
    let mut reader = listen(&door, &session);
    let priming = reader.next_event().expect("the stream is primed");
    assert_eq!((priming.data.as_deref(), priming.event), (Some(""), None));
    for tool in ["test_trigger_tool_change", "test_trigger_prompt_change", "test_trigger_tool_change"] {
        trigger(&door, tool);
        let expected = tool.replace("test_trigger_", "notifications/").replace("_change", "s/list_changed");
        let event = reader.next_event().expect("an event");
        assert_eq!(event.json()["method"], *expected, "{tool}");
        assert!(event.id.is_some() && event.event.as_deref() == Some("message"), "{event:?}");
    }
    assert_eq!(door.send_request(&delete(&session)).status, 204);
    assert_eq!(reader.remaining_events(), [], "nothing was told twice");
}

#[test]
fn a_change_while_nobody_listens_is_told_later() {
    let door = TestServer::start();
    let session = door.session("2025-06-18");
    // The session holds something, so changes are kept for it.
    expect_empty_result(&door, &session, "logging/setLevel", r#"{"level":"info"}"#);
    for _ in 0..5 {
        trigger(&door, "test_trigger_tool_change");
    }
    let mut reader = listen(&door, &session);
    assert_eq!(reader.next_event().expect("an event").json()["method"], "notifications/tools/list_changed");
    trigger(&door, "test_trigger_prompt_change");
    assert_eq!(reader.next_event().expect("an event").json()["method"], "notifications/prompts/list_changed");
}

#[test]
fn a_resource_is_told_about_while_it_is_subscribed_to() {
    let door = TestServer::start();
    let session = door.session("2025-06-18");
    let other = door.session("2025-06-18");
    let (mut reader, mut bystander) = (listen(&door, &session), listen(&door, &other));
    let watched = r#"{"uri":"test://watched-resource"}"#;
    trigger(&door, "test_trigger_resource_change");
    expect_empty_result(&door, &session, "resources/subscribe", watched);
    trigger(&door, "test_trigger_resource_change");
    let event = reader.next_event().expect("an event").json();
    assert_eq!(event["method"], "notifications/resources/updated");
    assert_eq!(event["params"]["uri"], "test://watched-resource");
    expect_empty_result(&door, &session, "resources/unsubscribe", watched);
    trigger(&door, "test_trigger_resource_change");
    trigger(&door, "test_trigger_tool_change");
    for reader in [&mut reader, &mut bystander] {
        assert_eq!(
            reader.next_event().expect("an event").json()["method"],
            "notifications/tools/list_changed"
        );
    }
}

#[test]
fn an_ended_session_is_gone_for_everything() {
    let door = TestServer::start();
    let session = door.session(LEGACY);
    let mut reader = listen(&door, &session);
    assert_eq!(door.send_request(&delete(&session)).status, 204);
    reader.next_event().expect("the stream was primed");
    assert_eq!(reader.remaining_events(), [], "the stream ends with the session");
    expect_session_gone(&door, &session);
    door.wait_until("nothing is kept", |status| status.sessions == 0);
}

/// Each route says that there is no such session.
fn expect_session_gone(door: &TestServer, session: &str) {
    for ask in [
        in_session(session, ping(1)),
        in_session(session, call(1, "test_simple_text", "{}")),
        in_session(session, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        in_session(session, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        get("/mcp").with_header("Mcp-Session-Id", session),
        get("/mcp").with_header("Mcp-Session-Id", session).with_header("Last-Event-ID", "0-1"),
        delete(session),
    ] {
        let answer = door.send_request(&ask);
        assert_eq!((answer.status, answer.error_code()), (404, Some(-31006)), "{session:?}: {ask:?}");
    }
}

#[test]
fn what_was_never_a_session_is_none() {
    let door = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    let at_two = door.send_request(&initialize(LEGACY, "{}").with_path("/mcp/two"));
    let at_two = at_two.header("mcp-session-id").expect("a session id").to_owned();
    let door = TestServer::start();
    let session = door.session(LEGACY);
    let flipped = |at: usize| {
        let mut bytes = session.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("it is ASCII")
    };
    let ids = [
        String::new(),
        "1".into(),
        "null".into(),
        "../../etc/passwd".into(),
        "x".repeat(4000),
        session[..session.len() - 1].to_owned(),
        session[1..].to_owned(),
        format!("{session}A"),
        format!("{session}, {session}"),
        session.to_lowercase(),
        flipped(0),
        flipped(session.len() / 2),
        flipped(session.len() - 3),
        at_two,
    ];
    for id in ids {
        expect_session_gone(&door, &id);
    }
    let twice = in_session(&session, ping(1)).append_header("Mcp-Session-Id", &session);
    assert_eq!(door.send_request(&twice).status, 404);
    let twice =
        get("/mcp").append_header("Mcp-Session-Id", &session).append_header("Mcp-Session-Id", &session);
    assert_eq!(door.send_request(&twice).status, 400);
    assert_eq!(door.send_request(&in_session(&session, ping(1))).status, 200, "the real one lives");
}

#[test]
fn the_session_of_one_server_is_none_at_another() {
    let door = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    let session = door.send_request(&initialize(LEGACY, "{}").with_path("/mcp/one"));
    let session = session.header("mcp-session-id").expect("a session id").to_owned();
    for (path, status) in [("/mcp/one", 200), ("/mcp/two", 404)] {
        assert_eq!(
            door.send_request(&in_session(&session, ping(1)).with_path(path)).status,
            status,
            "{path}"
        );
    }
    let ask = delete(&session);
    assert_eq!(door.send_request(&ask.clone().with_path("/mcp/two")).status, 404);
    assert_eq!(door.send_request(&ask.with_path("/mcp/one")).status, 204);
}

#[test]
fn a_session_has_an_age() {
    let door = TestServer::with_setup(|setup| setup.limits.session_age_ms = 1000);
    let session = door.session(LEGACY);
    door.platform.advance_ms(999);
    assert_eq!(door.send_request(&in_session(&session, ping(1))).status, 200);
    door.platform.advance_ms(1);
    expect_session_gone(&door, &session);
    let next = door.session(LEGACY);
    assert_eq!(door.send_request(&in_session(&next, ping(1))).status, 200, "initialize again, and go on");
}

#[test]
fn a_second_reader_takes_the_place_of_the_first() {
    let door = TestServer::start();
    let session = door.session("2025-06-18");
    for _ in 0..20 {
        let mut first = listen(&door, &session);
        let mut second = listen(&door, &session);
        assert_eq!(first.remaining_events(), [], "the first ends");
        trigger(&door, "test_trigger_tool_change");
        let event = second.next_event().expect("the second hears");
        assert_eq!(event.json()["method"], "notifications/tools/list_changed");
    }
}

#[test]
fn get_and_delete_belong_to_versions_with_sessions() {
    let door = TestServer::start();
    let session = door.session(LEGACY);
    for (version, status) in [("2025-11-25", 200), ("2025-03-26", 200), (MODERN, 405), ("1999-01-01", 400)] {
        let ask =
            get("/mcp").with_header("Mcp-Session-Id", &session).with_header("MCP-Protocol-Version", version);
        let mut client = door.connect();
        client.send(&ask.to_bytes());
        assert_eq!(client.read_head().expect("an answer").status, status, "{version}");
    }
}

#[test]
fn a_question_travels_on_the_stream_and_the_answer_beside_it() {
    let door = TestServer::start();
    for version in ["2025-06-18", LEGACY] {
        let session = door.session_with(version, r#"{"elicitation":{}}"#);
        let mut caller = door.connect();
        caller.open_stream(&in_session(&session, call(1, "quiz", "{}")));
        let question = std::iter::from_fn(|| caller.next_event())
            .find(|event| event.data.as_deref() != Some(""))
            .expect("a question")
            .json();
        assert_eq!(question["method"], "elicitation/create", "{version}");
        let id = &question["id"];
        let answer = |id: &str, name: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"name":"{name}"}}}}}}"#
            )
        };
        // An answer to nothing, and one from another session, change nothing.
        assert_eq!(door.send_request(&in_session(&session, answer("4711", "nobody"))).status, 202);
        let other = door.session_with(version, r#"{"elicitation":{}}"#);
        assert_eq!(door.send_request(&in_session(&other, answer(&id.to_string(), "mallory"))).status, 202);
        assert_eq!(door.send_request(&in_session(&session, answer(&id.to_string(), "ada"))).status, 202);
        let last = caller.next_event().expect("the answer").json();
        assert_eq!(last["result"]["content"][0]["text"], "hello ada", "{version}");
        assert_eq!(caller.remaining_events(), []);
    }
}

#[test]
fn a_call_is_cancelled_by_a_notification_on_another_connection() {
    let door = TestServer::start();
    let session = door.session("2025-06-18");
    let cancel = |id: u64| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    let mut caller = door.connect();
    door.provider.release("k", 1);
    caller.open_stream(&in_session(&session, call(7, "talk", r#"{"key":"k","steps":5}"#)));
    door.provider.expect_started("k");
    assert_eq!(caller.next_event().expect("progress").json()["params"]["progress"], 1);
    // Neither another id nor another session's say stops it.
    assert_eq!(door.send_request(&in_session(&session, cancel(8))).status, 202);
    assert_eq!(door.send_request(&in_session(&door.session("2025-06-18"), cancel(7))).status, 202);
    door.provider.release("k", 1);
    assert_eq!(caller.next_event().expect("progress").json()["params"]["progress"], 2);
    door.provider.expect_no_event();
    assert_eq!(door.send_request(&in_session(&session, cancel(7))).status, 202);
    door.provider.expect_dropped("k");
    assert_eq!(caller.remaining_events(), [], "no answer is owed");
    // The id is free again.
    assert_eq!(door.send_request(&in_session(&session, call(7, "test_simple_text", "{}"))).status, 200);
}

#[test]
fn an_id_in_use_is_not_used_twice() {
    let door = TestServer::start();
    let session = door.session(LEGACY);
    let mut caller = door.connect();
    caller.send(
        &in_session(&session, call(7, "hold", r#"{"key":"k"}"#))
            .with_header("Accept", "application/json")
            .to_bytes(),
    );
    door.provider.expect_started("k");
    door.wait_until("the call waits", |status| status.sessions == 1);
    let answer = door.send_request(&in_session(&session, call(7, "test_simple_text", "{}")));
    assert_eq!((answer.status, answer.error_code()), (200, Some(-32600)), "{answer:?}");
    door.provider.release("k", 1);
    assert_eq!(
        caller.read_response().expect("an answer").json()["result"]["content"][0]["text"],
        "k is over"
    );
}

/// Nobody proved who they are, but a session is somebody: what is one's is not another's.
#[test]
fn a_task_belongs_to_the_session_that_made_it() {
    let door = TestServer::start();
    let (mine, other) = (door.session("2025-11-25"), door.session("2025-11-25"));
    let made = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow_compute","arguments":{"seconds":0,"label":"mine"},"task":{}}}"#;
    let task = door.send_request(&in_session(&mine, made)).json()["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{task}");
    let ask = |method: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{{"taskId":{task}}}}}"#)
    };
    let listed = |session: &str| {
        let answer = door.send_request(&in_session(session, ask("tasks/list"))).json();
        answer["result"]["tasks"].as_array().map(Vec::len)
    };
    assert_eq!((listed(&mine), listed(&other)), (Some(1), Some(0)));
    assert!(door.send_request(&in_session(&mine, ask("tasks/get"))).json()["result"].is_object());
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(
            door.send_request(&in_session(&other, ask(method))).error_code(),
            Some(-32602),
            "{method}"
        );
        assert_eq!(
            door.send_request(&post(ask(method)).with_header("MCP-Protocol-Version", "2025-11-25"))
                .error_code(),
            Some(-32602)
        );
    }
    // Whoever stands alone cannot be told from others: there is no list to show.
    let alone = door.send_request(&post(ask("tasks/list")).with_header("MCP-Protocol-Version", "2025-11-25"));
    assert_eq!(alone.error_code(), Some(-32601));
}
