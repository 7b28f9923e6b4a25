//! What browsers are told, for the origins that were allowed and for no others.

use transport::Guard;

use crate::client::{HttpRequest, HttpResponse, LEGACY, get, initialize, post};
use crate::test_server::TestServer;

const APP: &str = "https://app.example";

fn open() -> TestServer {
    let token = Some(transport::BearerToken::new("secret"));
    TestServer::with_setup(|setup| {
        setup.guard = Guard { allowed_origins: vec![APP.into()], token, ..Guard::default() }
    })
}

fn preflight(origin: &str, wants: &str) -> HttpRequest {
    HttpRequest::new("OPTIONS", "/mcp")
        .with_header("Origin", origin)
        .with_header("Access-Control-Request-Method", "POST")
        .with_header("Access-Control-Request-Headers", wants)
}

fn header_items<'a>(answer: &'a HttpResponse, head: &str) -> Vec<&'a str> {
    answer.header(head).unwrap_or_default().split(',').map(str::trim).collect()
}

#[test]
fn a_preflight_is_answered_to_an_allowed_origin_without_a_token() {
    let door = open();
    let wants = "content-type, Mcp-Param-Region, mcp-param-x, x-evil, mcp-param-\u{e9}";
    let answer = door.send_request(&preflight(APP, wants));
    assert_eq!((answer.status, answer.body.len()), (204, 0), "{answer:?}");
    assert_eq!(answer.header("access-control-allow-origin"), Some(APP));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    assert!(header_items(&answer, "vary").iter().any(|w| w.eq_ignore_ascii_case("origin")), "{answer:?}");
    let methods = header_items(&answer, "access-control-allow-methods");
    for method in ["POST", "GET", "DELETE"] {
        assert!(methods.contains(&method), "{method} in {methods:?}");
    }
    assert!(!methods.contains(&"*"), "{methods:?}");
}

#[test]
fn a_preflight_names_the_headers_that_the_protocol_needs() {
    let door = open();
    let answer = door.send_request(&preflight(APP, "content-type, Mcp-Param-Region,mcp-param-x, x-evil"));
    let allowed = header_items(&answer, "access-control-allow-headers");
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
fn a_preflight_from_elsewhere_is_refused() {
    let door = open();
    for origin in ["https://evil.example", "null", "http://app.example"] {
        let answer = door.send_request(&preflight(origin, "content-type"));
        assert_eq!(answer.status, 403, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}");
    }
    // A page of ours needs no preflight.
    let same = preflight(&format!("http://{}", door.address), "content-type");
    assert_eq!(door.send_request(&same.with_header("Host", &door.address.to_string())).status, 405);
}

/// What an allowed page may read of every kind of answer, errors among them.
#[test]
fn answers_can_be_read_by_the_allowed_origin_only() {
    let door = open();
    let authorized = |ask: HttpRequest| ask.with_header("Authorization", "Bearer secret");
    for (ask, status) in [
        (authorized(initialize(LEGACY, "{}")), 200),
        (authorized(get("/status")), 200),
        (get("/health"), 200),
        (get("/status"), 401),
        (authorized(get("/nowhere")), 404),
        (authorized(post("{")), 400),
        (authorized(post("{}").with_header("Content-Type", "text/plain")), 415),
        (authorized(get("/mcp")), 405),
    ] {
        let answer = door.send_request(&ask.clone().with_header("Origin", APP));
        assert_eq!(answer.status, status, "{ask:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(APP), "{ask:?}");
        assert!(header_items(&answer, "vary").contains(&"origin"), "{answer:?}");
        let exposed = header_items(&answer, "access-control-expose-headers");
        for head in ["mcp-session-id", "mcp-protocol-version", "www-authenticate", "retry-after"] {
            assert!(exposed.contains(&head), "{head} in {exposed:?}");
        }
        let answer = door.send_request(&ask);
        assert_eq!(
            answer.header("access-control-allow-origin"),
            None,
            "no origin, nothing to allow: {ask:?}"
        );
        let answer = door.send_request(&ask.with_header("Origin", "https://evil.example"));
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None));
    }
}
