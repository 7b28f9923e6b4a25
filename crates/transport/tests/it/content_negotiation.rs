//! Forms of request and answer: Content-Type, Accept, methods, paths, and the two plain pages.

use crate::client::{
    HANDSHAKE, HttpRequest, call, get, in_session, initialize, ping, post, stateless, stateless_call,
};
use crate::test_server::TestServer;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// A body in a coding would have to be undone before it is what the client means.
#[test]
fn encoded_bodies_are_refused() {
    let server = TestServer::start();
    for (name, value, expected) in [
        ("Content-Encoding", "identity", 200),
        ("Content-Encoding", "gzip", 415),
        ("Content-Encoding", "identity, br", 415),
        ("Content-Encoding", "", 415),
    ] {
        let response =
            server.send_request(&post(call(1, "test_simple_text", "{}")).append_header(name, value));
        assert_eq!(response.status, expected, "{name}: {value}");
    }
    let mut client = server.connect();
    client.send(
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
        Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    );
    assert_eq!(client.read_response().expect("an answer").status, 415);
}

#[test]
fn content_type_other_than_json_is_refused_unread() {
    let server = TestServer::start();
    for (types, expected) in [
        (&["application/json"][..], 200),
        (&["Application/JSON"], 200),
        (&["application/json; charset=utf-8"], 200),
        (&["application/json;charset=\"UTF-8\""], 200),
        (&["application/json; charset=iso-8859-1"], 415),
        (&["application/json; charset=utf-16"], 415),
        (&[], 415),
        (&[""], 415),
        (&["application/json", "application/json"], 415),
        (&["application/json", "text/plain"], 415),
        (&["text/plain", "application/json"], 415),
        (&["text/plain"], 415),
        (&["text/plain; application/json"], 415),
        (&["application/x-www-form-urlencoded"], 415),
        (&["multipart/form-data; boundary=application/json"], 415),
        (&["application/jsonx"], 415),
        (&["application/json-rpc"], 415),
        (&["application/json, text/plain"], 415),
        (&["*/*"], 415),
    ] {
        let before = server.server().status().calls;
        let request = post(call(1, "test_simple_text", "{}")).without_header("Content-Type");
        let request = types.iter().fold(request, |request, kind| request.append_header("Content-Type", kind));
        let response = server.send_request(&request);
        assert_eq!(response.status, expected, "{types:?}");
        let ran = server.server().status().calls - before;
        assert_eq!(ran, u64::from(expected == 200), "{types:?}");
        if expected != 200 {
            assert_eq!(response.error_code(), Some(-32600), "{types:?}");
        }
    }
}

/// A tool that answers at once, one that says something first, and one that says nothing for a while.
#[test]
fn accept_selects_json_or_event_stream() {
    let server = TestServer::start();
    let table: [(&[&str], &str, [&str; 2]); 15] = [
        (&["application/json, text/event-stream"], "/mcp", [JSON, STREAM]),
        (&["text/event-stream, application/json"], "/mcp", [JSON, STREAM]),
        (&["application/json", "text/event-stream"], "/mcp", [JSON, STREAM]),
        (&["*/*"], "/mcp", [JSON, STREAM]),
        (&["text/html, */*;q=0.1"], "/mcp", [JSON, STREAM]),
        (&[], "/mcp", [JSON, STREAM]),
        (&["application/json"], "/mcp", [JSON, JSON]),
        (&["APPLICATION/JSON"], "/mcp", [JSON, JSON]),
        (&["application/*"], "/mcp", [JSON, JSON]),
        (&["text/event-stream"], "/mcp", [STREAM, STREAM]),
        (&["text/*"], "/mcp", [STREAM, STREAM]),
        (&["application/json;q=0, text/event-stream"], "/mcp", [STREAM, STREAM]),
        (&["application/json"], "/mcp?stream=1", [STREAM, STREAM]),
        (&["*/*"], "/mcp?x=y&stream=1", [STREAM, STREAM]),
        (&["application/json"], "/mcp?stream=0", [JSON, JSON]),
    ];
    for (accepts, path, expected) in table {
        let tools = ["test_simple_text", "test_tool_with_progress"];
        for (tool, kind) in tools.into_iter().zip(expected) {
            let session = server.session(HANDSHAKE);
            for (era, request) in [
                ("modern", stateless_call(7, tool, "{}")),
                ("session", in_session(&session, call(7, tool, "{}"))),
                ("alone", post(call(7, tool, "{}"))),
            ] {
                let request =
                    accepts.iter().fold(request.without_header("Accept").with_path(path), |request, a| {
                        request.append_header("Accept", a)
                    });
                let mut client = server.connect();
                client.send(&request.to_bytes());
                let head = client.read_head().expect("an answer");
                let case = format!("{era} {tool} {accepts:?} {path}");
                assert_eq!((head.status, head.header("content-type")), (200, Some(kind)), "{case}");
                let last = if kind == STREAM {
                    let events: Vec<_> =
                        client.read_body(head).map(|a| a.text().to_owned()).into_iter().collect();
                    let last = events[0].trim_end().rsplit("\n\n").next().expect("an event").to_owned();
                    assert!(last.starts_with("event: message\n"), "{case}: {last}");
                    let data = last.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
                    serde_json::from_str(data).expect("JSON")
                } else {
                    client.read_body(head).expect("an answer").json()
                };
                assert_eq!(last["id"], 7, "{case}: {last}");
                assert!(last["result"]["content"].is_array(), "{case}: {last}");
            }
        }
    }
}

#[test]
fn unacceptable_request_is_refused_before_it_runs() {
    let server = TestServer::start();
    for accept in ["text/html", "", "application/jsonx", "application/json;q=0", "image/*", "json"] {
        let response =
            server.send_request(&post(call(1, "test_simple_text", "{}")).with_header("Accept", accept));
        assert_eq!((response.status, response.error_code()), (406, Some(-32600)), "{accept}");
    }
    assert_eq!(server.server().status().calls, 0);
    let session = server.session(HANDSHAKE);
    let request = get("/mcp").with_header("Mcp-Session-Id", &session).with_header("Accept", JSON);
    assert_eq!(server.send_request(&request).status, 406, "a GET is a stream");
    let request = stateless(1, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    assert_eq!(
        server.send_request(&request.with_header("Accept", JSON)).status,
        406,
        "a subscription is a stream"
    );
}

#[test]
fn methods_and_paths_return_the_documented_status() {
    let one = TestServer::start();
    let two = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    let body = ping(1);
    for (server, method, path, expected, allow) in [
        (&one, "POST", "/mcp", 200, None),
        (&one, "POST", "/mcp/one", 200, None),
        (&one, "POST", "/mcp?x=1", 200, None),
        (&one, "POST", "/mcp/", 404, None),
        (&one, "POST", "/mcp/two", 404, None),
        (&one, "POST", "/mcp/one/", 404, None),
        (&one, "POST", "/mcp/one/more", 404, None),
        (&one, "POST", "/mcpx", 404, None),
        (&one, "POST", "/MCP", 404, None),
        (&one, "POST", "/mcp/%6fne", 404, None),
        (&one, "POST", "/", 404, None),
        (&one, "POST", "/../mcp", 404, None),
        (&one, "GET", "/", 200, None),
        (&one, "GET", "/.well-known/oauth-protected-resource", 404, None),
        (&two, "POST", "/mcp", 404, None),
        (&two, "POST", "/mcp/one", 200, None),
        (&two, "POST", "/mcp/two", 200, None),
        (&two, "POST", "/mcp/three", 404, None),
        (&one, "PUT", "/mcp", 405, Some("POST, GET, DELETE")),
        (&one, "PATCH", "/mcp", 405, Some("POST, GET, DELETE")),
        (&one, "HEAD", "/mcp", 405, Some("POST, GET, DELETE")),
        (&one, "OPTIONS", "/mcp", 405, Some("POST, GET, DELETE")),
        (&one, "TRACE", "/mcp", 405, Some("POST, GET, DELETE")),
        (&one, "BREW", "/mcp", 405, Some("POST, GET, DELETE")),
        (&one, "post", "/mcp", 405, Some("POST, GET, DELETE")),
        (&one, "GET", "/mcp", 405, Some("POST")),
        (&one, "DELETE", "/mcp", 405, Some("POST")),
        (&one, "GET", "/health", 200, None),
        (&one, "HEAD", "/health", 200, None),
        (&one, "POST", "/health", 405, Some("GET")),
        (&one, "DELETE", "/health", 405, Some("GET")),
        (&one, "GET", "/status", 200, None),
        (&one, "HEAD", "/status", 200, None),
        (&one, "POST", "/status", 405, Some("GET")),
    ] {
        let request = if method == "POST" { post(body.clone()) } else { HttpRequest::new(method, path) };
        let mut client = server.connect();
        client.send(&request.with_path(path).to_bytes());
        let head = client.read_head().expect("an answer");
        let case = format!("{method} {path}");
        assert_eq!((head.status, head.header("allow")), (expected, allow), "{case}");
        if method == "HEAD" {
            // Nothing follows the head: the next answer starts right there.
            client.send(&get("/health").to_bytes());
            let next = client.read_response().expect("an answer");
            assert_eq!((next.status, next.text()), (200, r#"{"status":"ok"}"#), "{case}");
        } else {
            let response = client.read_body(head).expect("an answer");
            assert!(expected < 400 || response.error_code().is_some(), "{case}: {response:?}");
        }
    }
}

#[test]
fn connect_method_is_refused() {
    let server = TestServer::start();
    let response =
        server.send_request(&HttpRequest::new("CONNECT", "127.0.0.1:80").with_header("Host", "127.0.0.1:80"));
    assert!(response.status >= 400, "{response:?}");
    server.assert_serving();
}

#[test]
fn health_returns_only_ok() {
    let server = TestServer::start();
    let response = server.send_request(&get("/health"));
    assert_eq!((response.status, response.text()), (200, r#"{"status":"ok"}"#));
    assert_eq!(response.header("content-type"), Some(JSON));
}

#[test]
fn status_reports_counts_of_each_server() {
    let server = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    let session = server
        .send_request(&initialize(HANDSHAKE, "{}").with_path("/mcp/one"))
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let stream = get("/mcp/one").with_header("Mcp-Session-Id", &session);
    let mut reader = server.connect();
    reader.open_stream(&stream);
    let mut caller = server.connect();
    caller.send(&stateless_call(1, "hold", r#"{"key":"k"}"#).with_path("/mcp/one").to_bytes());
    server.provider.expect_started("k");
    let listen = stateless(1, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#);
    let mut listener = server.connect();
    listener.open_stream(&listen.with_path("/mcp/one"));
    server.platform.advance_ms(1234);

    let status = server.send_request(&get("/status")).json();
    assert_eq!(status["status"], "ok");
    let servers = status["servers"].as_array().expect("a list");
    assert_eq!(servers.len(), 2);
    for (field, one, two) in [
        ("contractVersion", "\"1\"", "\"1\""),
        ("name", "\"one\"", "\"two\""),
        ("sessions", "1", "0"),
        ("subscriptions", "1", "0"),
        ("calls", "1", "0"),
        ("callsActive", "1", "0"),
        ("uptimeMs", "1234", "1234"),
    ] {
        let got = (servers[0][field].to_string(), servers[1][field].to_string());
        assert_eq!(got, (one.to_owned(), two.to_owned()), "{field}");
    }
    for field in ["tools", "resources", "prompts"] {
        assert!(servers[0][field].as_u64().is_some_and(|n| n > 0), "{field}: {status}");
    }
    server.provider.release("k", 1);
    assert_eq!(caller.read_response().expect("an answer").status, 200);
    server.wait_until("the call is counted as over", |status| status.calls_active == 0 && status.calls == 1);
}
