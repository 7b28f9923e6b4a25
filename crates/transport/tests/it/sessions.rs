//! Sessions of the handshake era: how they begin, what they carry, how they end.

use std::collections::HashSet;

use crate::client::{
    Client, HANDSHAKE, HttpRequest, STATELESS, call, get, in_session, initialize, ping, post,
};
use crate::test_server::TestServer;

fn listen(server: &TestServer, session: &str) -> Client {
    let mut client = server.connect();
    client.open_stream(&get("/mcp").with_header("Mcp-Session-Id", session));
    client
}

fn delete(session: &str) -> HttpRequest {
    HttpRequest::new("DELETE", "/mcp").with_header("Mcp-Session-Id", session)
}

/// Asks for something and expects an empty result.
fn expect_empty_result(server: &TestServer, session: &str, method: &str, params: &str) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":99,"method":"{method}","params":{params}}}"#);
    let response = server.send_request(&in_session(session, body));
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.json()["result"].is_object(), "{response:?}");
}

fn trigger(server: &TestServer, tool: &str) {
    let response = server.send_request(&post(call(1, tool, "{}")));
    assert_eq!(response.status, 200, "{response:?}");
}

#[test]
fn initialize_returns_a_session_id_in_every_version_with_sessions() {
    let server = TestServer::start();
    for (asked, got) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        (STATELESS, "2025-11-25"),
    ] {
        let response = server.send_request(&initialize(asked, r#"{"tools":{},"x":7}"#));
        assert_eq!(response.json()["result"]["protocolVersion"], got, "{asked}");
        let session = response.header("mcp-session-id").expect("a session id").to_owned();
        // 2025-11-25, Session Management: "MUST only contain visible ASCII characters".
        assert!(session.bytes().all(|c| c.is_ascii_graphic()) && session.len() >= 22, "{session}");
        let response = server.send_request(&in_session(&session, ping(5)));
        assert_eq!((response.status, &response.json()["id"]), (200, &5.into()), "{asked}");
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = server.send_request(&in_session(&session, initialized));
        assert_eq!((response.status, response.body.len()), (202, 0), "{asked}");
    }
    assert_eq!(server.server().status().sessions, 0, "none of them holds anything");
}

#[test]
fn session_ids_are_unique() {
    let server = TestServer::start();
    let mut client = server.connect();
    let mut seen = HashSet::new();
    let request = initialize(HANDSHAKE, "{}").to_bytes();
    const AT_ONCE: usize = 100;
    for _ in 0..1000 {
        client.send(&request.repeat(AT_ONCE));
        for _ in 0..AT_ONCE {
            let response = client.read_response().expect("an answer");
            let id = response.header("mcp-session-id").expect("a session id");
            assert!(seen.insert(id.to_owned()), "{id} was given before");
        }
    }
    assert_eq!((seen.len(), server.server().status().sessions), (100_000, 0));
}

#[test]
fn change_is_sent_once_on_the_open_stream() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let mut reader = listen(&server, &session);
    let priming = reader.next_event().expect("the stream is primed");
    assert_eq!((priming.data.as_deref(), priming.event), (Some(""), None));
    for tool in ["test_trigger_tool_change", "test_trigger_prompt_change", "test_trigger_tool_change"] {
        trigger(&server, tool);
        let expected = tool.replace("test_trigger_", "notifications/").replace("_change", "s/list_changed");
        let event = reader.next_event().expect("an event");
        assert_eq!(event.json()["method"], *expected, "{tool}");
        assert!(event.id.is_some() && event.event.as_deref() == Some("message"), "{event:?}");
    }
    assert_eq!(server.send_request(&delete(&session)).status, 204);
    assert_eq!(reader.remaining_events(), [], "nothing was told twice");
}

#[test]
fn change_without_an_open_stream_is_sent_later() {
    let server = TestServer::start();
    let session = server.session("2025-06-18");
    // The session holds something, so changes are kept for it.
    expect_empty_result(&server, &session, "logging/setLevel", r#"{"level":"info"}"#);
    for _ in 0..5 {
        trigger(&server, "test_trigger_tool_change");
    }
    let mut reader = listen(&server, &session);
    assert_eq!(reader.next_event().expect("an event").json()["method"], "notifications/tools/list_changed");
    trigger(&server, "test_trigger_prompt_change");
    assert_eq!(reader.next_event().expect("an event").json()["method"], "notifications/prompts/list_changed");
}

#[test]
fn resource_updates_are_sent_only_while_subscribed() {
    let server = TestServer::start();
    let session = server.session("2025-06-18");
    let other = server.session("2025-06-18");
    let (mut reader, mut bystander) = (listen(&server, &session), listen(&server, &other));
    let watched = r#"{"uri":"test://watched-resource"}"#;
    trigger(&server, "test_trigger_resource_change");
    expect_empty_result(&server, &session, "resources/subscribe", watched);
    trigger(&server, "test_trigger_resource_change");
    let event = reader.next_event().expect("an event").json();
    assert_eq!(event["method"], "notifications/resources/updated");
    assert_eq!(event["params"]["uri"], "test://watched-resource");
    expect_empty_result(&server, &session, "resources/unsubscribe", watched);
    trigger(&server, "test_trigger_resource_change");
    trigger(&server, "test_trigger_tool_change");
    for reader in [&mut reader, &mut bystander] {
        assert_eq!(
            reader.next_event().expect("an event").json()["method"],
            "notifications/tools/list_changed"
        );
    }
}

#[test]
fn deleted_session_is_not_found_on_every_route() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let mut reader = listen(&server, &session);
    assert_eq!(server.send_request(&delete(&session)).status, 204);
    reader.next_event().expect("the stream was primed");
    assert_eq!(reader.remaining_events(), [], "the stream ends with the session");
    expect_session_gone(&server, &session);
    server.wait_until("nothing is kept", |status| status.sessions == 0);
}

/// Each route says that there is no such session.
fn expect_session_gone(server: &TestServer, session: &str) {
    for request in [
        in_session(session, ping(1)),
        in_session(session, call(1, "test_simple_text", "{}")),
        in_session(session, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        in_session(session, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        get("/mcp").with_header("Mcp-Session-Id", session),
        get("/mcp").with_header("Mcp-Session-Id", session).with_header("Last-Event-ID", "0-1"),
        delete(session),
    ] {
        let response = server.send_request(&request);
        assert_eq!((response.status, response.error_code()), (404, Some(-31006)), "{session:?}: {request:?}");
    }
}

#[test]
fn invalid_session_ids_are_not_found() {
    let server = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    let at_two = server.send_request(&initialize(HANDSHAKE, "{}").with_path("/mcp/two"));
    let at_two = at_two.header("mcp-session-id").expect("a session id").to_owned();
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
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
        expect_session_gone(&server, &id);
    }
    let twice = in_session(&session, ping(1)).append_header("Mcp-Session-Id", &session);
    assert_eq!(server.send_request(&twice).status, 404);
    let twice =
        get("/mcp").append_header("Mcp-Session-Id", &session).append_header("Mcp-Session-Id", &session);
    assert_eq!(server.send_request(&twice).status, 400);
    assert_eq!(server.send_request(&in_session(&session, ping(1))).status, 200, "the real one lives");
}

#[test]
fn session_is_not_valid_at_another_server() {
    let server = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    let session = server.send_request(&initialize(HANDSHAKE, "{}").with_path("/mcp/one"));
    let session = session.header("mcp-session-id").expect("a session id").to_owned();
    for (path, status) in [("/mcp/one", 200), ("/mcp/two", 404)] {
        assert_eq!(
            server.send_request(&in_session(&session, ping(1)).with_path(path)).status,
            status,
            "{path}"
        );
    }
    let request = delete(&session);
    assert_eq!(server.send_request(&request.clone().with_path("/mcp/two")).status, 404);
    assert_eq!(server.send_request(&request.with_path("/mcp/one")).status, 204);
}

#[test]
fn session_expires_at_its_maximum_age() {
    let server = TestServer::with_setup(|setup| setup.limits.session_ttl_ms = 1000);
    let session = server.session(HANDSHAKE);
    server.platform.advance_ms(999);
    assert_eq!(server.send_request(&in_session(&session, ping(1))).status, 200);
    server.platform.advance_ms(1);
    expect_session_gone(&server, &session);
    let next = server.session(HANDSHAKE);
    assert_eq!(server.send_request(&in_session(&next, ping(1))).status, 200, "initialize again, and go on");
}

#[test]
fn second_reader_replaces_the_first() {
    let server = TestServer::start();
    let session = server.session("2025-06-18");
    for _ in 0..20 {
        let mut first = listen(&server, &session);
        let mut second = listen(&server, &session);
        assert_eq!(first.remaining_events(), [], "the first ends");
        trigger(&server, "test_trigger_tool_change");
        let event = second.next_event().expect("the second hears");
        assert_eq!(event.json()["method"], "notifications/tools/list_changed");
    }
}

#[test]
fn get_and_delete_need_a_version_with_sessions() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    for (version, status) in [("2025-11-25", 200), ("2025-03-26", 200), (STATELESS, 405), ("1999-01-01", 400)]
    {
        let request =
            get("/mcp").with_header("Mcp-Session-Id", &session).with_header("MCP-Protocol-Version", version);
        let mut client = server.connect();
        client.send(&request.to_bytes());
        assert_eq!(client.read_head().expect("an answer").status, status, "{version}");
    }
}

#[test]
fn input_request_uses_the_stream_and_its_response_a_post() {
    let server = TestServer::start();
    for version in ["2025-06-18", HANDSHAKE] {
        let session = server.session_with(version, r#"{"elicitation":{}}"#);
        let mut caller = server.connect();
        caller.open_stream(&in_session(&session, call(1, "quiz", "{}")));
        let question = std::iter::from_fn(|| caller.next_event())
            .find(|event| event.data.as_deref() != Some(""))
            .expect("a question")
            .json();
        assert_eq!(question["method"], "elicitation/create", "{version}");
        let id = &question["id"];
        let response = |id: &str, name: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"name":"{name}"}}}}}}"#
            )
        };
        // An answer to nothing, and one from another session, change nothing.
        assert_eq!(server.send_request(&in_session(&session, response("4711", "nobody"))).status, 202);
        let other = server.session_with(version, r#"{"elicitation":{}}"#);
        assert_eq!(
            server.send_request(&in_session(&other, response(&id.to_string(), "mallory"))).status,
            202
        );
        assert_eq!(server.send_request(&in_session(&session, response(&id.to_string(), "ada"))).status, 202);
        let last = caller.next_event().expect("the answer").json();
        assert_eq!(last["result"]["content"][0]["text"], "hello ada", "{version}");
        assert_eq!(caller.remaining_events(), []);
    }
}

#[test]
fn cancellation_works_from_another_connection() {
    let server = TestServer::start();
    let session = server.session("2025-06-18");
    let cancel = |id: u64| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    let mut caller = server.connect();
    server.provider.release("k", 1);
    caller.open_stream(&in_session(&session, call(7, "talk", r#"{"key":"k","steps":5}"#)));
    server.provider.expect_started("k");
    assert_eq!(caller.next_event().expect("progress").json()["params"]["progress"], 1);
    // Neither another id nor another session's say stops it.
    assert_eq!(server.send_request(&in_session(&session, cancel(8))).status, 202);
    assert_eq!(server.send_request(&in_session(&server.session("2025-06-18"), cancel(7))).status, 202);
    server.provider.release("k", 1);
    assert_eq!(caller.next_event().expect("progress").json()["params"]["progress"], 2);
    server.provider.expect_no_event();
    assert_eq!(server.send_request(&in_session(&session, cancel(7))).status, 202);
    server.provider.expect_dropped("k");
    assert_eq!(caller.remaining_events(), [], "no answer is owed");
    // The id is free again.
    assert_eq!(server.send_request(&in_session(&session, call(7, "test_simple_text", "{}"))).status, 200);
}

#[test]
fn request_id_in_use_is_refused() {
    let server = TestServer::start();
    let session = server.session(HANDSHAKE);
    let mut caller = server.connect();
    caller.send(
        &in_session(&session, call(7, "hold", r#"{"key":"k"}"#))
            .with_header("Accept", "application/json")
            .to_bytes(),
    );
    server.provider.expect_started("k");
    server.wait_until("the call waits", |status| status.sessions == 1);
    let response = server.send_request(&in_session(&session, call(7, "test_simple_text", "{}")));
    assert_eq!((response.status, response.error_code()), (200, Some(-32600)), "{response:?}");
    server.provider.release("k", 1);
    assert_eq!(
        caller.read_response().expect("an answer").json()["result"]["content"][0]["text"],
        "k is over"
    );
}

/// Anonymous callers are told apart by their session: one cannot use the tasks of another.
#[test]
fn task_belongs_to_the_session_that_created_it() {
    let server = TestServer::start();
    let (mine, other) = (server.session("2025-11-25"), server.session("2025-11-25"));
    let made = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow_compute","arguments":{"seconds":0,"label":"mine"},"task":{}}}"#;
    let task = server.send_request(&in_session(&mine, made)).json()["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{task}");
    let request = |method: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{{"taskId":{task}}}}}"#)
    };
    let listed = |session: &str| {
        let response = server.send_request(&in_session(session, request("tasks/list"))).json();
        response["result"]["tasks"].as_array().map(Vec::len)
    };
    assert_eq!((listed(&mine), listed(&other)), (Some(1), Some(0)));
    assert!(server.send_request(&in_session(&mine, request("tasks/get"))).json()["result"].is_object());
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(
            server.send_request(&in_session(&other, request(method))).error_code(),
            Some(-32602),
            "{method}"
        );
        assert_eq!(
            server
                .send_request(&post(request(method)).with_header("MCP-Protocol-Version", "2025-11-25"))
                .error_code(),
            Some(-32602)
        );
    }
    // A caller without a name cannot be distinguished from others, so no list is shown.
    let alone =
        server.send_request(&post(request("tasks/list")).with_header("MCP-Protocol-Version", "2025-11-25"));
    assert_eq!(alone.error_code(), Some(-32601));
}
