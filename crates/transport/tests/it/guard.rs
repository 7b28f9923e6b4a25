//! Who may come in: `Host` and `Origin`, each judged on its own, on every route, before the body is read.

use transport::Guard;

use crate::certificates::CertificateFolder;
use crate::client::{Client, HANDSHAKE, HttpRequest, call, get, in_session, post};
use crate::sse::SseClient;
use crate::test_server::TestServer;
use crate::ws_client::upgrade;

const ROUTES: [&str; 10] =
    ["POST", "GET", "DELETE", "WebSocket", "/status", "/health", "/sse", "/messages", "/", "/-/activity"];

/// Whether a route takes a message; what is sent there is a call.
fn takes_a_message(route: &str) -> bool {
    matches!(route, "POST" | "/messages")
}

/// What is sent to a route: each time something that succeeds when it is let in.
fn request_for(route: &str, session: &str, line: &SseClient) -> HttpRequest {
    match route {
        "/messages" => line.post(call(1, "test_simple_text", "{}")),
        "POST" => in_session(session, call(1, "test_simple_text", "{}")),
        "GET" => get("/mcp").with_header("Mcp-Session-Id", session),
        "DELETE" => HttpRequest::new("DELETE", "/mcp").with_header("Mcp-Session-Id", session),
        "WebSocket" => upgrade(),
        path => get(path),
    }
}

/// The status, and whether the body was asked for. A request that announces its body and waits shows which
/// comes first, the verdict or the wish to read on.
fn send_expecting_continue(mut client: Client, request: &HttpRequest) -> (u16, bool) {
    let request = if request.body.is_empty() {
        request.clone()
    } else {
        request.clone().with_header("Expect", "100-continue")
    };
    client.send(&request.head_bytes());
    let head = client.read_head().expect("an answer");
    if head.status != 100 {
        return (head.status, false);
    }
    client.send(&request.body);
    (client.read_response().expect("an answer").status, true)
}

#[test]
fn host_and_origin_are_checked_separately_on_every_route() {
    check_every_route(None);
}

#[test]
fn host_and_origin_are_checked_separately_under_tls() {
    check_every_route(Some(CertificateFolder::new()));
}

fn check_every_route(keys: Option<CertificateFolder>) {
    const ADMITTED: [u16; 10] = [200, 200, 204, 101, 200, 200, 200, 202, 200, 200];
    const MALFORMED: [u16; 10] = [400; 10];
    const FORBIDDEN: [u16; 10] = [403; 10];
    let good = "127.0.0.1";
    let (allowed, foreign) = (Some("https://app.example"), Some("https://evil.example"));
    let table: [(&[&str], Option<&str>, [u16; 10]); 16] = [
        (&[good], None, ADMITTED),
        (&[good], allowed, ADMITTED),
        (&[good], foreign, FORBIDDEN),
        (&[good], Some("null"), FORBIDDEN),
        (&["evil.example"], None, FORBIDDEN),
        (&["evil.example"], allowed, FORBIDDEN),
        (&["evil.example"], foreign, FORBIDDEN),
        (&["evil.example"], Some("null"), FORBIDDEN),
        (&[], None, MALFORMED),
        (&[], allowed, MALFORMED),
        (&[], foreign, MALFORMED),
        (&[], Some("null"), MALFORMED),
        (&[good, good], None, MALFORMED),
        (&[good, good], allowed, MALFORMED),
        (&[good, good], foreign, MALFORMED),
        (&[good, good], Some("null"), MALFORMED),
    ];
    let server = TestServer::with_setup(|setup| {
        setup.guard.allowed_origins = vec!["https://app.example".into()];
        setup.certificates = keys;
    });
    let mut calls = 0;
    let connect = |kind| if kind == "a port" { server.connect() } else { server.connect_unix() };
    for (kind, (hosts, origin, expected)) in
        ["a port", "a socket"].into_iter().flat_map(|kind| table.map(|row| (kind, row)))
    {
        for (route, expected) in ROUTES.into_iter().zip(expected) {
            let session = server.session(HANDSHAKE);
            let line = SseClient::open(&server);
            line.initialize(HANDSHAKE);
            let mut request = request_for(route, &session, &line).without_header("Host");
            for host in hosts {
                request = request.append_header("Host", host);
            }
            if let Some(origin) = origin {
                request = request.with_header("Origin", origin);
            }
            let let_in = expected < 400;
            calls += u64::from(let_in && takes_a_message(route));
            let cell = format!("{route} at {kind} with Host {hosts:?} and Origin {origin:?}");
            let (status, body_read) = send_expecting_continue(connect(kind), &request);
            assert_eq!(status, expected, "{cell}");
            assert_eq!(
                body_read,
                let_in && takes_a_message(route),
                "the body comes after the verdict: {cell}"
            );
            assert_eq!(server.server().status().calls, calls, "nothing is done for a stranger: {cell}");
            if !let_in && route == "DELETE" {
                let still = server.send_request(&in_session(&session, crate::client::ping(1)));
                assert_eq!(still.status, 200, "the session outlives a stranger's DELETE: {cell}");
            }
        }
    }
}

/// `line` and `host` may name the server's own port as `PORT`.
fn check(guard: Guard, table: &[(&str, &str, &str, u16)]) {
    let server = TestServer::with_setup(|setup| setup.guard = guard);
    let here = |text: &str| text.replace("PORT", &server.address.port().to_string());
    for (line, host, origin, expected) in table {
        let mut request =
            post(call(1, "test_simple_text", "{}")).with_path(&here(line)).with_header("Host", &here(host));
        if !origin.is_empty() {
            request = request.with_header("Origin", &here(origin));
        }
        let response = server.send_request(&request);
        assert_eq!(response.status, *expected, "{line} Host: {host} Origin: {origin}: {response:?}");
        if *expected >= 400 {
            assert!(response.error_code().is_some(), "an error body for people: {response:?}");
        }
    }
}

#[test]
fn host_header_must_be_a_name_with_an_optional_port() {
    check(
        Guard::default(),
        &[
            ("/mcp", "127.0.0.1", "", 200),
            ("/mcp", "127.0.0.1:PORT", "", 200),
            ("/mcp", "127.0.0.1:1", "", 200),
            ("/mcp", "127.0.0.1:", "", 200),
            ("/mcp", "127.8.9.10", "", 200),
            ("/mcp", "localhost:PORT", "", 200),
            ("/mcp", "LocalHost", "", 200),
            ("/mcp", "[::1]:PORT", "", 200),
            ("/mcp", "[::1]", "", 200),
            ("/mcp", "[0:0:0:0:0:0:0:1]", "", 200),
            ("/mcp", "[::ffff:127.0.0.1]", "", 403),
            ("/mcp", "0.0.0.0:PORT", "", 403),
            ("/mcp", "[::]:PORT", "", 403),
            ("/mcp", "192.168.0.1:PORT", "", 403),
            ("/mcp", "2130706433", "", 403),
            ("/mcp", "0x7f.1", "", 403),
            ("/mcp", "127.1", "", 403),
            ("/mcp", "localhost.", "", 403),
            ("/mcp", "127.0.0.1.", "", 403),
            ("/mcp", "127.0.0.1.evil.example", "", 403),
            ("/mcp", "localhost.evil.example", "", 403),
            ("/mcp", "evil.example:PORT", "", 403),
            ("/mcp", "127.0.0.1@evil.example", "", 400),
            ("/mcp", "127.0.0.1:PORT@evil.example", "", 400),
            ("/mcp", "127.0.0.1, evil.example", "", 400),
            ("/mcp", "127.0.0.1 evil.example", "", 400),
            ("/mcp", "127.0.0.1:80:80", "", 400),
            ("/mcp", "127.0.0.1:8o8o", "", 400),
            ("/mcp", "127.0.0.1/mcp", "", 400),
            ("/mcp", "http://127.0.0.1", "", 400),
            ("/mcp", "::1", "", 400),
            ("/mcp", "[::1", "", 400),
            ("/mcp", "[::1]evil", "", 400),
            ("/mcp", "[fe80::1%25eth0]", "", 400),
            ("/mcp", ":80", "", 400),
            ("/mcp", "", "", 400),
            ("/mcp", "löcalhost", "", 400),
        ],
    );
}

#[test]
fn host_in_the_request_line_must_match_the_header() {
    check(
        Guard::default(),
        &[
            ("http://127.0.0.1:PORT/mcp", "127.0.0.1:PORT", "", 200),
            ("http://LOCALHOST/mcp", "localhost", "", 200),
            ("http://evil.example/mcp", "127.0.0.1", "", 400),
            ("http://127.0.0.1/mcp", "evil.example", "", 400),
            ("http://127.0.0.1:1/mcp", "127.0.0.1:2", "", 400),
            ("http://evil.example/mcp", "evil.example", "", 403),
            ("http://127.0.0.1@evil.example/mcp", "127.0.0.1", "", 400),
            ("http://127.0.0.1@evil.example/mcp", "127.0.0.1@evil.example", "", 400),
        ],
    );
}

#[test]
fn origin_must_be_same_or_exactly_allowed() {
    let guard = || Guard { allowed_origins: vec!["https://app.example".into()], ..Guard::default() };
    check(
        guard(),
        &[
            ("/mcp", "127.0.0.1:PORT", "http://127.0.0.1:PORT", 200),
            ("/mcp", "localhost:PORT", "http://localhost:PORT", 200),
            ("/mcp", "[::1]:PORT", "http://[::1]:PORT", 200),
            ("/mcp", "127.0.0.1:PORT", "https://app.example", 200),
            // Another port is another origin, and so is another name for the same machine.
            ("/mcp", "127.0.0.1:PORT", "http://127.0.0.1:1", 403),
            ("/mcp", "127.0.0.1:PORT", "http://127.0.0.1", 403),
            ("/mcp", "127.0.0.1:PORT", "http://localhost:PORT", 403),
            ("/mcp", "127.0.0.1:PORT", "http://app.example", 403),
            ("/mcp", "127.0.0.1:PORT", "https://app.example:444", 403),
            ("/mcp", "127.0.0.1:PORT", "https://app.example.evil.example", 403),
            ("/mcp", "127.0.0.1:PORT", "https://evil.example/https://app.example", 403),
            ("/mcp", "127.0.0.1:PORT", "https://app.example, https://evil.example", 403),
            ("/mcp", "127.0.0.1:PORT", "file://", 403),
            ("/mcp", "127.0.0.1:PORT", "127.0.0.1:PORT", 403),
            ("/mcp", "127.0.0.1:PORT", "http://127.0.0.1:PORT@evil.example", 403),
            ("/mcp", "127.0.0.1:PORT", "null", 403),
            ("/mcp", "127.0.0.1:PORT", "NULL", 403),
        ],
    );
    let server = TestServer::with_setup(|setup| setup.guard = guard());
    for twice in
        [["https://app.example", "https://app.example"], ["https://app.example", "https://evil.example"]]
    {
        let request = post(call(1, "test_simple_text", "{}"));
        let request = twice.iter().fold(request, |request, origin| request.append_header("Origin", origin));
        assert_eq!(server.send_request(&request).status, 403, "{twice:?}");
    }
    let empty = post(call(1, "test_simple_text", "{}")).with_header("Origin", "");
    assert_eq!(server.send_request(&empty).status, 403);
}

#[test]
fn configured_hosts_are_allowed() {
    let guard = || Guard { allowed_hosts: vec!["mcp.example".into(), "10.1.2.3".into()], ..Guard::default() };
    check(
        guard(),
        &[
            ("/mcp", "mcp.example", "", 200),
            ("/mcp", "MCP.example:8443", "", 200),
            ("/mcp", "10.1.2.3:80", "", 200),
            ("/mcp", "localhost", "", 200),
            ("/mcp", "mcp.example", "http://mcp.example", 200),
            ("/mcp", "mcp.example", "https://mcp.example", 200),
            ("/mcp", "mcp.example", "https://other.example", 403),
            ("/mcp", "other.example", "", 403),
            ("/mcp", "mcp.example.", "", 403),
            ("/mcp", "x.mcp.example", "", 403),
            ("/mcp", "10.1.2.4", "", 403),
        ],
    );
}

#[test]
fn sec_fetch_site_is_checked_without_an_origin() {
    let server = TestServer::start();
    for (site, expected) in
        [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200), ("whatever", 200)]
    {
        for route in ["/status", "/health"] {
            let response = server.send_request(&get(route).with_header("Sec-Fetch-Site", site));
            assert_eq!(response.status, expected, "{site} {route}");
        }
        let response =
            server.send_request(&post(call(1, "test_simple_text", "{}")).with_header("Sec-Fetch-Site", site));
        assert_eq!(response.status, expected, "{site} POST");
    }
}
