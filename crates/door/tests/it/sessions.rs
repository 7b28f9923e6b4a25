//! Sessions of the handshake era: how they begin, what they carry, how they end.

use std::collections::HashSet;

use crate::client::{Ask, Client, LEGACY, MODERN, call, get, initialize, ping, post, within};
use crate::kit::Door;

fn listen(door: &Door, session: &str) -> Client {
    let mut client = door.connect();
    client.stream(&get("/mcp").with("Mcp-Session-Id", session));
    client
}

fn delete(session: &str) -> Ask {
    Ask::new("DELETE", "/mcp").with("Mcp-Session-Id", session)
}

/// Asks for something and expects an empty result.
fn done(door: &Door, session: &str, method: &str, params: &str) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":99,"method":"{method}","params":{params}}}"#);
    let answer = door.ask(&within(session, body));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.json()["result"].is_object(), "{answer:?}");
}

fn trigger(door: &Door, tool: &str) {
    let answer = door.ask(&post(call(1, tool, "{}")));
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_handshake_gives_a_session_in_every_version_that_has_one() {
    let door = Door::open();
    for (asked, got) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        (MODERN, "2025-11-25"),
    ] {
        let answer = door.ask(&initialize(asked, r#"{"tools":{},"x":7}"#));
        assert_eq!(answer.json()["result"]["protocolVersion"], got, "{asked}");
        let session = answer.head("mcp-session-id").expect("a session id").to_owned();
        // 2025-11-25, Session Management: "MUST only contain visible ASCII characters".
        assert!(session.bytes().all(|c| c.is_ascii_graphic()) && session.len() >= 22, "{session}");
        let answer = door.ask(&within(&session, ping(5)));
        assert_eq!((answer.status, &answer.json()["id"]), (200, &5.into()), "{asked}");
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let answer = door.ask(&within(&session, initialized));
        assert_eq!((answer.status, answer.body.len()), (202, 0), "{asked}");
    }
    assert_eq!(door.server().status().sessions, 0, "none of them holds anything");
}

#[test]
fn no_id_is_given_twice() {
    let door = Door::open();
    let mut client = door.connect();
    let mut seen = HashSet::new();
    let ask = initialize(LEGACY, "{}").bytes();
    const AT_ONCE: usize = 100;
    for _ in 0..1000 {
        client.send(&ask.repeat(AT_ONCE));
        for _ in 0..AT_ONCE {
            let answer = client.answer().expect("an answer");
            let id = answer.head("mcp-session-id").expect("a session id");
            assert!(seen.insert(id.to_owned()), "{id} was given before");
        }
    }
    assert_eq!((seen.len(), door.server().status().sessions), (100_000, 0));
}

#[test]
fn a_change_is_told_once_on_the_stream_that_listens() {
    let door = Door::open();
    let session = door.session(LEGACY);
    let mut reader = listen(&door, &session);
    let priming = reader.event().expect("the stream is primed");
    assert_eq!((priming.data.as_deref(), priming.event), (Some(""), None));
    for tool in ["test_trigger_tool_change", "test_trigger_prompt_change", "test_trigger_tool_change"] {
        trigger(&door, tool);
        let expected = tool.replace("test_trigger_", "notifications/").replace("_change", "s/list_changed");
        let event = reader.event().expect("an event");
        assert_eq!(event.json()["method"], *expected, "{tool}");
        assert!(event.id.is_some() && event.event.as_deref() == Some("message"), "{event:?}");
    }
    assert_eq!(door.ask(&delete(&session)).status, 204);
    assert_eq!(reader.events(), [], "nothing was told twice");
}

#[test]
fn a_change_while_nobody_listens_is_told_later() {
    let door = Door::open();
    let session = door.session("2025-06-18");
    // The session holds something, so changes are kept for it.
    done(&door, &session, "logging/setLevel", r#"{"level":"info"}"#);
    for _ in 0..5 {
        trigger(&door, "test_trigger_tool_change");
    }
    let mut reader = listen(&door, &session);
    assert_eq!(reader.event().expect("an event").json()["method"], "notifications/tools/list_changed");
    trigger(&door, "test_trigger_prompt_change");
    assert_eq!(reader.event().expect("an event").json()["method"], "notifications/prompts/list_changed");
}

#[test]
fn a_resource_is_told_about_while_it_is_subscribed_to() {
    let door = Door::open();
    let session = door.session("2025-06-18");
    let other = door.session("2025-06-18");
    let (mut reader, mut bystander) = (listen(&door, &session), listen(&door, &other));
    let watched = r#"{"uri":"test://watched-resource"}"#;
    trigger(&door, "test_trigger_resource_change");
    done(&door, &session, "resources/subscribe", watched);
    trigger(&door, "test_trigger_resource_change");
    let event = reader.event().expect("an event").json();
    assert_eq!(event["method"], "notifications/resources/updated");
    assert_eq!(event["params"]["uri"], "test://watched-resource");
    done(&door, &session, "resources/unsubscribe", watched);
    trigger(&door, "test_trigger_resource_change");
    trigger(&door, "test_trigger_tool_change");
    for reader in [&mut reader, &mut bystander] {
        assert_eq!(reader.event().expect("an event").json()["method"], "notifications/tools/list_changed");
    }
}

#[test]
fn an_ended_session_is_gone_for_everything() {
    let door = Door::open();
    let session = door.session(LEGACY);
    let mut reader = listen(&door, &session);
    assert_eq!(door.ask(&delete(&session)).status, 204);
    reader.event().expect("the stream was primed");
    assert_eq!(reader.events(), [], "the stream ends with the session");
    gone(&door, &session);
    door.until("nothing is kept", |status| status.sessions == 0);
}

/// Each route says that there is no such session.
fn gone(door: &Door, session: &str) {
    for ask in [
        within(session, ping(1)),
        within(session, call(1, "test_simple_text", "{}")),
        within(session, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        within(session, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        get("/mcp").with("Mcp-Session-Id", session),
        get("/mcp").with("Mcp-Session-Id", session).with("Last-Event-ID", "0-1"),
        delete(session),
    ] {
        let answer = door.ask(&ask);
        assert_eq!((answer.status, answer.code()), (404, Some(-31006)), "{session:?}: {ask:?}");
    }
}

#[test]
fn what_was_never_a_session_is_none() {
    let door = Door::with(|setup| setup.names = &["one", "two"]);
    let at_two = door.ask(&initialize(LEGACY, "{}").at("/mcp/two"));
    let at_two = at_two.head("mcp-session-id").expect("a session id").to_owned();
    let door = Door::open();
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
        gone(&door, &id);
    }
    let twice = within(&session, ping(1)).and("Mcp-Session-Id", &session);
    assert_eq!(door.ask(&twice).status, 404);
    let twice = get("/mcp").and("Mcp-Session-Id", &session).and("Mcp-Session-Id", &session);
    assert_eq!(door.ask(&twice).status, 400);
    assert_eq!(door.ask(&within(&session, ping(1))).status, 200, "the real one lives");
}

#[test]
fn the_session_of_one_server_is_none_at_another() {
    let door = Door::with(|setup| setup.names = &["one", "two"]);
    let session = door.ask(&initialize(LEGACY, "{}").at("/mcp/one"));
    let session = session.head("mcp-session-id").expect("a session id").to_owned();
    for (path, status) in [("/mcp/one", 200), ("/mcp/two", 404)] {
        assert_eq!(door.ask(&within(&session, ping(1)).at(path)).status, status, "{path}");
    }
    let ask = delete(&session);
    assert_eq!(door.ask(&ask.clone().at("/mcp/two")).status, 404);
    assert_eq!(door.ask(&ask.at("/mcp/one")).status, 204);
}

#[test]
fn a_session_has_an_age() {
    let door = Door::with(|setup| setup.limits.session_age_ms = 1000);
    let session = door.session(LEGACY);
    door.world.advance_ms(999);
    assert_eq!(door.ask(&within(&session, ping(1))).status, 200);
    door.world.advance_ms(1);
    gone(&door, &session);
    let next = door.session(LEGACY);
    assert_eq!(door.ask(&within(&next, ping(1))).status, 200, "initialize again, and go on");
}

#[test]
fn a_second_reader_takes_the_place_of_the_first() {
    let door = Door::open();
    let session = door.session("2025-06-18");
    for _ in 0..20 {
        let mut first = listen(&door, &session);
        let mut second = listen(&door, &session);
        assert_eq!(first.events(), [], "the first ends");
        trigger(&door, "test_trigger_tool_change");
        let event = second.event().expect("the second hears");
        assert_eq!(event.json()["method"], "notifications/tools/list_changed");
    }
}

#[test]
fn get_and_delete_belong_to_versions_with_sessions() {
    let door = Door::open();
    let session = door.session(LEGACY);
    for (version, status) in [("2025-11-25", 200), ("2025-03-26", 200), (MODERN, 405), ("1999-01-01", 400)] {
        let ask = get("/mcp").with("Mcp-Session-Id", &session).with("MCP-Protocol-Version", version);
        let mut client = door.connect();
        client.send(&ask.bytes());
        assert_eq!(client.head().expect("an answer").status, status, "{version}");
    }
}

#[test]
fn a_question_travels_on_the_stream_and_the_answer_beside_it() {
    let door = Door::open();
    for version in ["2025-06-18", LEGACY] {
        let session = door.session_with(version, r#"{"elicitation":{}}"#);
        let mut caller = door.connect();
        caller.stream(&within(&session, call(1, "quiz", "{}")));
        let question = std::iter::from_fn(|| caller.event())
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
        assert_eq!(door.ask(&within(&session, answer("4711", "nobody"))).status, 202);
        let other = door.session_with(version, r#"{"elicitation":{}}"#);
        assert_eq!(door.ask(&within(&other, answer(&id.to_string(), "mallory"))).status, 202);
        assert_eq!(door.ask(&within(&session, answer(&id.to_string(), "ada"))).status, 202);
        let last = caller.event().expect("the answer").json();
        assert_eq!(last["result"]["content"][0]["text"], "hello ada", "{version}");
        assert_eq!(caller.events(), []);
    }
}

#[test]
fn a_call_is_cancelled_by_a_notification_on_another_connection() {
    let door = Door::open();
    let session = door.session("2025-06-18");
    let cancel = |id: u64| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    let mut caller = door.connect();
    door.stand.let_go("k", 1);
    caller.stream(&within(&session, call(7, "talk", r#"{"key":"k","steps":5}"#)));
    door.stand.started("k");
    assert_eq!(caller.event().expect("progress").json()["params"]["progress"], 1);
    // Neither another id nor another session's say stops it.
    assert_eq!(door.ask(&within(&session, cancel(8))).status, 202);
    assert_eq!(door.ask(&within(&door.session("2025-06-18"), cancel(7))).status, 202);
    door.stand.let_go("k", 1);
    assert_eq!(caller.event().expect("progress").json()["params"]["progress"], 2);
    door.stand.is_quiet();
    assert_eq!(door.ask(&within(&session, cancel(7))).status, 202);
    door.stand.dropped("k");
    assert_eq!(caller.events(), [], "no answer is owed");
    // The id is free again.
    assert_eq!(door.ask(&within(&session, call(7, "test_simple_text", "{}"))).status, 200);
}

#[test]
fn an_id_in_use_is_not_used_twice() {
    let door = Door::open();
    let session = door.session(LEGACY);
    let mut caller = door.connect();
    caller.send(
        &within(&session, call(7, "hold", r#"{"key":"k"}"#)).with("Accept", "application/json").bytes(),
    );
    door.stand.started("k");
    door.until("the call waits", |status| status.sessions == 1);
    let answer = door.ask(&within(&session, call(7, "test_simple_text", "{}")));
    assert_eq!((answer.status, answer.code()), (200, Some(-32600)), "{answer:?}");
    door.stand.let_go("k", 1);
    assert_eq!(caller.answer().expect("an answer").json()["result"]["content"][0]["text"], "k is over");
}

/// Nobody proved who they are, but a session is somebody: what is one's is not another's.
#[test]
fn a_task_belongs_to_the_session_that_made_it() {
    let door = Door::open();
    let (mine, other) = (door.session("2025-11-25"), door.session("2025-11-25"));
    let made = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow_compute","arguments":{"seconds":0,"label":"mine"},"task":{}}}"#;
    let task = door.ask(&within(&mine, made)).json()["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{task}");
    let ask = |method: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{{"taskId":{task}}}}}"#)
    };
    let listed = |session: &str| {
        let answer = door.ask(&within(session, ask("tasks/list"))).json();
        answer["result"]["tasks"].as_array().map(Vec::len)
    };
    assert_eq!((listed(&mine), listed(&other)), (Some(1), Some(0)));
    assert!(door.ask(&within(&mine, ask("tasks/get"))).json()["result"].is_object());
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(door.ask(&within(&other, ask(method))).code(), Some(-32602), "{method}");
        assert_eq!(
            door.ask(&post(ask(method)).with("MCP-Protocol-Version", "2025-11-25")).code(),
            Some(-32602)
        );
    }
    // Whoever stands alone cannot be told from others: there is no list to show.
    let alone = door.ask(&post(ask("tasks/list")).with("MCP-Protocol-Version", "2025-11-25"));
    assert_eq!(alone.code(), Some(-32601));
}
