//! What browsers are told, for the origins that were allowed and for no others.

use transport::Guard;

use crate::client::{HANDSHAKE, HttpRequest, HttpResponse, get, initialize, post};
use crate::test_server::TestServer;

const APP: &str = "https://app.example";

fn open() -> TestServer {
    let token = Some(transport::AccessTokens::single("secret"));
    TestServer::with_setup(|setup| {
        setup.guard = Guard { allowed_origins: vec![APP.into()], tokens: token, ..Guard::default() }
    })
}

fn preflight(origin: &str, wants: &str) -> HttpRequest {
    HttpRequest::new("OPTIONS", "/mcp")
        .with_header("Origin", origin)
        .with_header("Access-Control-Request-Method", "POST")
        .with_header("Access-Control-Request-Headers", wants)
}

fn header_items<'a>(response: &'a HttpResponse, head: &str) -> Vec<&'a str> {
    response.header(head).unwrap_or_default().split(',').map(str::trim).collect()
}

#[test]
fn preflight_of_an_allowed_origin_needs_no_token() {
    let server = open();
    let wants = "content-type, Mcp-Param-Region, mcp-param-x, x-evil, mcp-param-\u{e9}";
    let response = server.send_request(&preflight(APP, wants));
    assert_eq!((response.status, response.body.len()), (204, 0), "{response:?}");
    assert_eq!(response.header("access-control-allow-origin"), Some(APP));
    assert_eq!(response.header("access-control-allow-credentials"), None);
    assert!(header_items(&response, "vary").iter().any(|w| w.eq_ignore_ascii_case("origin")), "{response:?}");
    let methods = header_items(&response, "access-control-allow-methods");
    for method in ["POST", "GET", "DELETE"] {
        assert!(methods.contains(&method), "{method} in {methods:?}");
    }
    assert!(!methods.contains(&"*"), "{methods:?}");
}

#[test]
fn preflight_allows_the_protocol_headers() {
    let server = open();
    let response = server.send_request(&preflight(APP, "content-type, Mcp-Param-Region,mcp-param-x, x-evil"));
    let allowed = header_items(&response, "access-control-allow-headers");
    for (head, there) in [
        ("authorization", true),
        ("content-type", true),
        ("last-event-id", true),
        ("mcp-method", true),
        ("mcp-name", true),
        ("mcp-protocol-version", true),
        ("mcp-session-id", true),
        ("mcp-param-region", true),
        ("mcp-param-x", true),
        ("x-evil", false),
        ("*", false),
    ] {
        assert_eq!(allowed.contains(&head), there, "{head} in {allowed:?}");
    }
}

#[test]
fn preflight_of_another_origin_is_refused() {
    let server = open();
    for origin in ["https://evil.example", "null", "http://app.example"] {
        let response = server.send_request(&preflight(origin, "content-type"));
        assert_eq!(response.status, 403, "{origin}");
        assert_eq!(response.header("access-control-allow-origin"), None, "{origin}");
    }
    // A page of ours needs no preflight.
    let same = preflight(&format!("http://{}", server.address), "content-type");
    assert_eq!(server.send_request(&same.with_header("Host", &server.address.to_string())).status, 405);
}

/// What an allowed page may read of every kind of answer, errors among them.
#[test]
fn only_the_allowed_origin_can_read_responses() {
    let server = open();
    let authorized = |request: HttpRequest| request.with_header("Authorization", "Bearer secret");
    for (request, status) in [
        (authorized(initialize(HANDSHAKE, "{}")), 200),
        (authorized(get("/status")), 200),
        (get("/health"), 200),
        (get("/status"), 401),
        (authorized(get("/nowhere")), 404),
        (authorized(post("{")), 400),
        (authorized(post("{}").with_header("Content-Type", "text/plain")), 415),
        (authorized(get("/mcp")), 405),
    ] {
        let response = server.send_request(&request.clone().with_header("Origin", APP));
        assert_eq!(response.status, status, "{request:?}");
        assert_eq!(response.header("access-control-allow-origin"), Some(APP), "{request:?}");
        assert!(header_items(&response, "vary").contains(&"origin"), "{response:?}");
        let exposed = header_items(&response, "access-control-expose-headers");
        for head in ["mcp-session-id", "mcp-protocol-version", "www-authenticate", "retry-after"] {
            assert!(exposed.contains(&head), "{head} in {exposed:?}");
        }
        let response = server.send_request(&request);
        assert_eq!(
            response.header("access-control-allow-origin"),
            None,
            "no origin, nothing to allow: {request:?}"
        );
        let response = server.send_request(&request.with_header("Origin", "https://evil.example"));
        assert_eq!((response.status, response.header("access-control-allow-origin")), (403, None));
    }
}
