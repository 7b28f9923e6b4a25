//! HTTP+SSE of 2024-11-05: the stream, the posts, and invalid requests to both.

use std::cell::RefCell;

use serde_json::{Value, json};
use transport::{AccessTokens, Guard};

use crate::certificates::CertificateFolder;
use crate::client::{
    Client, Event, HANDSHAKE, HttpRequest, HttpResponse, STATELESS, call, get, in_session, initialize, ping,
    post, stateless,
};
use crate::test_server::{Setup, TestServer};

/// Both halves of it.
pub(crate) struct SseClient<'a> {
    server: &'a TestServer,
    stream: RefCell<Client>,
    /// Where to post, as the first event says.
    pub(crate) endpoint: String,
}

impl<'a> SseClient<'a> {
    pub(crate) fn open(server: &'a TestServer) -> Self {
        Self::open_with(server, &get("/sse"))
    }

    fn open_with(server: &'a TestServer, request: &HttpRequest) -> Self {
        let mut stream = server.connect();
        stream.open_stream(&request.clone().with_header("Accept", "text/event-stream"));
        let first = stream.next_event().expect("a first event");
        assert_eq!(first.event.as_deref(), Some("endpoint"), "{first:?}");
        let endpoint = first.data.expect("it says where");
        Self { server, stream: RefCell::new(stream), endpoint }
    }

    /// A message as it is posted; the client of that time asked for no form of answer.
    pub(crate) fn post(&self, body: impl Into<Vec<u8>>) -> HttpRequest {
        post(body).with_path(&self.endpoint).without_header("Accept")
    }

    fn send(&self, body: impl Into<Vec<u8>>) {
        let response = self.server.send_request(&self.post(body));
        assert_eq!((response.status, response.text()), (202, ""), "{response:?}");
    }

    fn receive(&self) -> Value {
        let event = self.stream.borrow_mut().next_event().expect("the stream goes on");
        let Event { event: Some(name), id: None, retry: None, .. } = &event else { panic!("{event:?}") };
        assert_eq!(name, "message");
        event.json()
    }

    pub(crate) fn initialize(&self, version: &str) {
        self.initialize_with(version, "{}");
    }

    fn initialize_with(&self, version: &str, capabilities: &str) {
        self.send(initialize(version, capabilities).body);
        assert_eq!(self.receive()["result"]["protocolVersion"], version);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// Nothing is on the stream that was not heard.
    fn expect_no_pending_event(&self) {
        self.send(ping(999));
        assert_eq!(self.receive()["id"], 999);
    }
}

#[test]
fn first_event_names_the_endpoint() {
    let server = TestServer::start();
    let (one, other) = (SseClient::open(&server), SseClient::open(&server));
    for line in [&one, &other] {
        let name = line.endpoint.strip_prefix("/messages?session_id=").expect("a path on this server");
        assert!(name.len() == 32 && name.bytes().all(|c| c.is_ascii_hexdigit()), "{name}");
    }
    assert_ne!(one.endpoint, other.endpoint);
    assert_eq!(server.server().status().sessions, 2);
    drop(one);
    server.wait_until("the first is gone", |status| status.sessions == 1);
    other.initialize("2024-11-05");
}

#[test]
fn each_server_has_its_own_stream() {
    let server = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    for name in ["one", "two"] {
        let line = SseClient::open_with(&server, &get(&format!("/mcp/{name}/sse")));
        assert!(line.endpoint.starts_with(&format!("/mcp/{name}/messages?session_id=")), "{}", line.endpoint);
        line.send(initialize("2024-11-05", "{}").body);
        assert_eq!(line.receive()["result"]["serverInfo"]["name"], name);
        // The stream of one is none of the other's.
        let elsewhere = line.endpoint.replace(name, if name == "one" { "two" } else { "one" });
        assert_eq!(server.send_request(&line.post(ping(1)).with_path(&elsewhere)).status, 404);
        line.expect_no_pending_event();
    }
    for path in ["/sse", "/messages", "/mcp/sse", "/mcp/three/sse", "/mcp//sse", "/one/sse", "/mcp/one/sse/"]
    {
        assert_eq!(server.send_request(&get(path)).status, 404, "{path}");
    }
}

#[test]
fn single_server_is_also_found_under_its_full_path() {
    let server = TestServer::start();
    for (path, base) in [("/sse", ""), ("/mcp/sse", "/mcp"), ("/mcp/one/sse", "/mcp/one"), ("/sse?x=1", "")] {
        let line = SseClient::open_with(&server, &get(path));
        assert!(line.endpoint.starts_with(&format!("{base}/messages?session_id=")), "{}", line.endpoint);
        line.expect_no_pending_event();
    }
}

#[test]
fn all_versions_work_over_http_sse() {
    let server = TestServer::start();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE] {
        let line = SseClient::open(&server);
        line.initialize(version);
        line.send(call(1, "test_simple_text", "{}"));
        assert!(line.receive()["result"].get("resultType").is_none());
        line.send(stateless(2, "tools/list", None, "").body);
        assert_eq!(line.receive()["result"]["resultType"], "complete");
        let batch = format!("[{},{}]", ping(3), ping(4));
        if version == "2025-03-26" {
            line.send(batch);
            let one = |id: u64| json!({"jsonrpc": "2.0", "id": id, "result": {}});
            assert_eq!(line.receive(), json!([one(3), one(4)]));
        } else {
            assert_eq!(server.send_request(&line.post(batch)).status, 400);
        }
    }
}

#[test]
fn unknown_version_is_answered_with_a_supported_one() {
    let server = TestServer::start();
    for (asked, given) in [(STATELESS, HANDSHAKE), ("1999-01-01", HANDSHAKE)] {
        let line = SseClient::open(&server);
        line.send(initialize(asked, "{}").body);
        assert_eq!(line.receive()["result"]["protocolVersion"], given);
    }
}

#[test]
fn responses_arrive_in_completion_order() {
    let server = TestServer::start();
    let line = SseClient::open(&server);
    line.initialize("2024-11-05");
    for key in ["a", "b", "c"] {
        line.send(call(key.as_bytes()[0].into(), "hold", &format!(r#"{{"key":"{key}"}}"#)));
        server.provider.expect_started(key);
    }
    line.send(ping(1));
    assert_eq!(line.receive()["id"], 1);
    for key in ["b", "c", "a"] {
        server.provider.release(key, 1);
        server.provider.expect_ended(key);
        assert_eq!(line.receive()["id"], key.as_bytes()[0]);
    }
}

#[test]
fn concurrent_posts_from_many_connections() {
    let server = TestServer::start();
    let line = SseClient::open(&server);
    line.initialize("2024-11-05");
    let mut clients: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    for (id, client) in clients.iter_mut().enumerate() {
        client.send(&line.post(ping(id as u64)).to_bytes());
    }
    for client in &mut clients {
        assert_eq!(client.read_response().expect("an answer").status, 202);
    }
    let mut heard: Vec<u64> = (0..40).map(|_| line.receive()["id"].as_u64().expect("a number")).collect();
    heard.sort_unstable();
    assert!(heard.into_iter().eq(0..40));
}

#[test]
fn progress_input_requests_and_cancellation_work_over_http_sse() {
    let server = TestServer::start();
    let line = SseClient::open(&server);
    line.initialize_with("2025-06-18", r#"{"elicitation":{}}"#);
    line.send(call(1, "talk", r#"{"key":"k","steps":2}"#));
    server.provider.expect_started("k");
    server.provider.release("k", 3);
    for _ in 0..2 {
        let progress = line.receive();
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"]["progressToken"], 1);
    }
    assert_eq!(line.receive()["id"], 1);
    server.provider.expect_ended("k");

    line.send(call(2, "quiz", "{}"));
    let question = line.receive();
    assert_eq!(question["method"], "elicitation/create");
    line.send(format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"accept","content":{{"name":"Ada"}}}}}}"#,
        question["id"]
    ));
    let response = line.receive();
    assert!(response["id"] == 2 && response.to_string().contains("Ada"), "{response}");

    line.send(call(3, "hold", r#"{"key":"h"}"#));
    server.provider.expect_started("h");
    line.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
    server.provider.expect_dropped("h");
    line.expect_no_pending_event();
}

#[test]
fn changes_are_sent_only_after_the_handshake() {
    let server = TestServer::start();
    let (greeted, silent) = (SseClient::open(&server), SseClient::open(&server));
    greeted.initialize("2024-11-05");
    assert_eq!(server.send_request(&post(call(1, "test_trigger_tool_change", "{}"))).status, 200);
    assert_eq!(greeted.receive()["method"], "notifications/tools/list_changed");
    silent.expect_no_pending_event();
}

#[test]
fn closing_the_stream_cancels_its_calls() {
    let server = TestServer::start();
    let line = SseClient::open(&server);
    line.initialize("2024-11-05");
    line.send(call(1, "hold", r#"{"key":"k"}"#));
    server.provider.expect_started("k");
    let after = line.post(ping(2));
    drop(line);
    server.provider.expect_dropped("k");
    server.wait_until("nothing is left of it", |status| status.sessions == 0 && status.calls_active == 0);
    let response = server.send_request(&after);
    assert_eq!((response.status, response.error_code()), (404, Some(-31006)), "{response:?}");
}

#[test]
fn shutdown_waits_for_running_calls() {
    let mut server = TestServer::start();
    let mut stream = {
        let line = SseClient::open(&server);
        line.initialize("2024-11-05");
        line.send(call(1, "hold", r#"{"key":"k"}"#));
        server.provider.expect_started("k");
        line.stream.into_inner()
    };
    server.request_stop();
    server.provider.release("k", 1);
    server.provider.expect_ended("k");
    assert_eq!(stream.next_event().expect("an answer").json()["id"], 1);
    assert_eq!(stream.next_event(), None);
    server.wait_stopped();
}

/// What is posted, and with which status and code it is refused. `LINE` in a path is a stream that is there.
fn expect_rejected(server: &TestServer, line: &SseClient<'_>, table: &[(&str, HttpRequest, u16, i64)]) {
    for (what, request, status, code) in table {
        let response: HttpResponse = server.send_request(request);
        assert_eq!((response.status, response.error_code()), (*status, Some(*code)), "{what}: {response:?}");
        assert!(response.json()["id"].is_null(), "{what}: {response:?}");
    }
    line.expect_no_pending_event();
}

#[test]
fn invalid_message_is_refused_in_the_post_response() {
    let server = TestServer::with_setup(|setup| setup.limits.message_bytes_max = 1000);
    let line = SseClient::open(&server);
    line.initialize("2025-06-18");
    let name = line.endpoint.split_once('=').expect("a name").1;
    let to = |path: &str| line.post(ping(1)).with_path(&path.replace("LINE", name));
    let long = format!("{}{}", ping(1), " ".repeat(1000));
    expect_rejected(
        &server,
        &line,
        &[
            ("no JSON", line.post("{"), 400, -32700),
            ("no UTF-8", line.post(*b"{\"jsonrpc\":\"\xff\"}"), 400, -32700),
            ("nothing", line.post("").with_header("Content-Length", "0"), 400, -32700),
            ("a key twice", line.post(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#), 400, -32700),
            ("no object", line.post("7"), 400, -32600),
            ("no message", line.post("{}"), 400, -32600),
            ("an empty batch", line.post("[]"), 400, -32600),
            ("a batch where there are none", line.post(format!("[{}]", ping(1))), 400, -32600),
            ("too long", line.post(long), 413, -32600),
            ("another type", line.post(ping(1)).with_header("Content-Type", "text/plain"), 415, -32600),
            ("no type", line.post(ping(1)).without_header("Content-Type"), 415, -32600),
            (
                "a form",
                line.post(ping(1)).with_header("Content-Type", "application/x-www-form-urlencoded"),
                415,
                -32600,
            ),
            ("compressed", line.post(ping(1)).with_header("Content-Encoding", "gzip"), 415, -32600),
            ("no stream named", to("/messages"), 400, -32600),
            ("an empty query", to("/messages?"), 400, -32600),
            ("another name for it", to("/messages?session=LINE"), 400, -32600),
            ("twice", to("/messages?session_id=LINE&session_id=LINE"), 400, -32600),
            ("twice, once empty", to("/messages?session_id=&session_id=LINE"), 400, -32600),
            ("an empty name", to("/messages?session_id="), 404, -31006),
            ("no such stream", to("/messages?session_id=00000000000000000000000000000000"), 404, -31006),
            ("too short", to(&format!("/messages?session_id={}", &name[1..])), 404, -31006),
            ("too long a name", to("/messages?session_id=LINE0"), 404, -31006),
            ("no digits", to("/messages?session_id=zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"), 404, -31006),
            ("no ASCII", to("/messages?session_id=%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9"), 404, -31006),
            ("in a header instead", to("/messages").with_header("Mcp-Session-Id", name), 400, -32600),
        ],
    );
    assert_eq!(
        server.send_request(&to("/messages?x=1&session_id=LINE&y=2")).status,
        202,
        "others may be there"
    );
    assert_eq!(line.receive()["id"], 1);
    // It is no session of streamable HTTP, and such a session is no stream.
    assert_eq!(server.send_request(&in_session(name, ping(1))).status, 404);
    let session = server.session(HANDSHAKE);
    assert_eq!(server.send_request(&to(&format!("/messages?session_id={session}"))).status, 404);
}

/// The client of a refused request waits for the error on the stream.
#[test]
fn request_errors_are_sent_on_the_stream() {
    let server = TestServer::start();
    let line = SseClient::open(&server);
    line.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    assert_eq!(line.receive()["error"]["code"], -32602, "before a handshake");
    line.initialize("2024-11-05");
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","id":2,"method":"no/such"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":7}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":4,"method":"ping","params":[]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":5,"method":5}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"no_such_tool"}}"#, -32602),
    ] {
        line.send(body);
        let reply = line.receive();
        let asked: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&asked["id"], &json!(code)), "{body}");
    }
}

#[test]
fn other_methods_and_media_types_are_refused() {
    let server = TestServer::start();
    let line = SseClient::open(&server);
    for (method, path, status, allowed) in [
        ("POST", "/sse", 405, Some("GET")),
        ("DELETE", "/sse", 405, Some("GET")),
        ("HEAD", "/sse", 405, Some("GET")),
        ("PUT", "/sse", 405, Some("GET")),
        ("GET", &*line.endpoint, 405, Some("POST")),
        ("DELETE", &line.endpoint, 405, Some("POST")),
        ("GET", "/sse/", 404, None),
        ("GET", "/SSE", 404, None),
        ("GET", "/messages/sse", 404, None),
    ] {
        let mut client = server.connect();
        client.send(
            &HttpRequest {
                body: if method == "POST" { ping(1).into() } else { Vec::new() },
                ..HttpRequest::new(method, path)
            }
            .to_bytes(),
        );
        let response = client.read_head().expect("an answer");
        assert_eq!((response.status, response.header("allow")), (status, allowed), "{method} {path}");
    }
    for (accept, status) in [
        (None, 200),
        (Some("text/event-stream"), 200),
        (Some("*/*"), 200),
        (Some("text/*;q=0.5"), 200),
        (Some("application/json"), 406),
        (Some("text/html"), 406),
        (Some("text/event-stream;q=0"), 406),
    ] {
        let request =
            accept.into_iter().fold(get("/sse"), |request, accept| request.with_header("Accept", accept));
        assert_eq!(server.status_of(&request), status, "{accept:?}");
    }
    // A GET of the endpoint means what it always meant.
    assert_eq!(server.send_request(&get("/mcp").with_header("Accept", "text/event-stream")).status, 405);
    line.expect_no_pending_event();
}

#[test]
fn connection_belongs_to_the_caller_that_opened_it() {
    let guard = || Guard { tokens: Some(AccessTokens::single("s3cret")), ..Guard::default() };
    let locked = TestServer::with_setup(|setup| setup.guard = guard());
    let open = TestServer::sharing_servers(&locked, Guard::default());
    let token = |request: HttpRequest| request.with_header("Authorization", "Bearer s3cret");
    for request in
        [get("/sse"), get("/sse").with_header("Authorization", "Bearer other"), get("/sse?token=s3cret")]
    {
        assert_eq!(locked.send_request(&request).status, 401);
    }
    let named = SseClient::open_with(&locked, &token(get("/sse")));
    let stranger = SseClient::open(&open);
    stranger.initialize("2024-11-05");
    for (server, request, status) in [
        (&locked, named.post(ping(1)), 401),
        (&locked, named.post(ping(1)).with_header("Authorization", "Bearer other"), 401),
        (&open, named.post(ping(1)), 404),
        (&locked, token(stranger.post(ping(1))), 404),
        (&locked, token(named.post(ping(1))), 202),
    ] {
        assert_eq!(server.send_request(&request).status, status, "{request:?}");
    }
    assert_eq!(named.receive()["id"], 1);
    stranger.expect_no_pending_event();
}

/// Each has a name, so that what one leaves behind is not another's.
#[test]
fn tasks_belong_to_their_own_connection() {
    let server = TestServer::start();
    let (one, other) = (SseClient::open(&server), SseClient::open(&server));
    let list = r#"{"jsonrpc":"2.0","id":9,"method":"tasks/list"}"#;
    for line in [&one, &other] {
        line.initialize(HANDSHAKE);
    }
    one.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow_compute","arguments":{"seconds":600,"label":"x"},"task":{}}}"#);
    let id = one.receive()["result"]["task"]["taskId"].as_str().expect("a task").to_owned();
    one.send(list);
    assert_eq!(one.receive()["result"]["tasks"].as_array().map(Vec::len), Some(1));
    other.send(list);
    assert_eq!(other.receive()["result"]["tasks"].as_array().map(Vec::len), Some(0));
    other.send(format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{{"taskId":"{id}"}}}}"#));
    assert_eq!(other.receive()["error"]["code"], -32602);
}

#[test]
fn http_sse_streams_count_as_sessions() {
    let server = TestServer::with_setup(|setup| setup.limits.sessions_per_principal_max = 2);
    let first = SseClient::open(&server);
    let _second = SseClient::open(&server);
    let response = server.send_request(&get("/sse"));
    assert_eq!((response.status, response.error_code()), (429, Some(-31001)), "{response:?}");
    assert!(response.header("retry-after").is_some());
    drop(first);
    server.wait_until("there is room again", |_| server.status_of(&get("/sse")) == 200);
}

#[test]
fn concurrent_calls_of_one_connection_are_limited() {
    let server = TestServer::with_setup(|setup| setup.limits.calls_per_connection_max = 2);
    let line = SseClient::open(&server);
    line.initialize("2024-11-05");
    for id in 1..=2 {
        line.send(call(id, "hold", r#"{"key":"k"}"#));
        server.provider.expect_started("k");
    }
    line.send(call(3, "test_simple_text", "{}"));
    assert_eq!(line.receive()["error"]["code"], -31001);
    line.send(call(1, "test_simple_text", "{}"));
    assert_eq!(line.receive()["error"]["code"], -32600, "the id is in use");
    server.provider.release("k", 2);
    for _ in 0..2 {
        assert!(line.receive()["result"].is_object());
    }
}

/// A client that posts and posts, and does not read its stream: it is told to wait with more, and when what is
/// under way has more to say than there is room for, it is cut.
#[test]
fn unread_stream_drops_notifications_and_refuses_posts() {
    let mut setup = Setup::default();
    setup.limits.stream_bytes_max = 1 << 20;
    setup.limits.stream_events_max = 4;
    let server = setup.start();
    let line = SseClient::open(&server);
    line.initialize("2024-11-05");
    let fill = || {
        let mut poster = server.connect();
        for posted in 0..1000 {
            let response = poster.send_request(&line.post(call(1, "big", r#"{"bytes":4194304}"#)));
            if response.status != 202 {
                assert_eq!((response.status, response.error_code()), (429, Some(-31001)), "{response:?}");
                assert!(response.header("retry-after").is_some());
                return posted;
            }
        }
        panic!("it takes everything");
    };
    for _ in 0..fill() {
        assert!(line.receive()["result"].is_object(), "whoever reads on is served on");
    }
    line.expect_no_pending_event();
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    for (id, key) in (10..).zip(keys.iter().flat_map(|key| [key; 20])) {
        line.send(call(id, "hold", &format!(r#"{{"key":"{key}"}}"#)));
        server.provider.expect_started(key);
    }
    // What is full now may be on its way a moment later, but not for ever: sockets hold so much and no more.
    let cut = keys.iter().zip((0..keys.len()).rev()).any(|(key, left)| {
        fill();
        server.provider.release(key, 20);
        server.wait_until("they are answered", |status| status.calls_active <= left * 20);
        server.send_request(&line.post(ping(2))).status == 404
    });
    assert!(cut, "it is kept for ever");
    server.assert_serving();
    while line.stream.borrow_mut().next_event().is_some() {}
    server.wait_until("nothing is left of it", |status| status.sessions == 0 && status.calls_active == 0);
}

#[test]
fn stalled_reader_is_closed() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.write_stall_timeout_ms = 300);
    let line = SseClient::open(&server);
    line.initialize("2024-11-05");
    let big = call(1, "big", r#"{"bytes":4194304}"#);
    let mut poster = server.connect();
    // Until no more can be written, and then until the tracker notices.
    let mut posted = 0;
    while poster.send_request(&line.post(&*big)).status != 404 {
        posted += 1;
        assert!(posted < 100_000, "it is kept for ever");
    }
    server.wait_until("nothing is left of it", |status| status.sessions == 0);
}

#[test]
fn silent_streams_get_keep_alive_comments() {
    let mut setup = Setup::default();
    setup.limits.keep_alive_ms = 50;
    setup.connection_limits.keep_alive_timeout_ms = 100;
    setup.connection_limits.header_timeout_ms = 100;
    setup.connection_limits.body_idle_timeout_ms = 100;
    let server = setup.start();
    let line = SseClient::open(&server);
    for _ in 0..20 {
        let event = line.stream.borrow_mut().next_event_or_comment().expect("the stream goes on");
        assert!(event.is_comment(), "{event:?}");
    }
    line.expect_no_pending_event();
}

#[test]
fn http_sse_works_under_tls() {
    let server = TestServer::with_setup(|setup| setup.certificates = Some(CertificateFolder::new()));
    let line = SseClient::open(&server);
    line.initialize("2024-11-05");
    line.send(call(1, "hold", r#"{"key":"k"}"#));
    server.provider.expect_started("k");
    line.expect_no_pending_event();
    line.stream.borrow_mut().shutdown_write();
    server.provider.expect_dropped("k");
    server.wait_until("nothing is left of it", |status| status.sessions == 0);
}

#[test]
fn http_sse_can_be_switched_off() {
    let server = TestServer::with_setup(|setup| setup.http_sse = false);
    for path in ["/sse", "/mcp/one/sse"] {
        assert_eq!(server.send_request(&get(path)).status, 404, "{path}");
    }
    assert_eq!(server.send_request(&post(ping(1)).with_path("/messages?session_id=x")).status, 404);
    server.assert_serving();
}
