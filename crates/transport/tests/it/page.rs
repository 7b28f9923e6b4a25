//! The page at `/`: who gets which document, what it shows, and what it never shows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use transport::{AccessTokens, AuthThrottle, Guard};

use crate::client::{HttpRequest, call, get, post};
use crate::test_server::TestServer;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

fn browse(path: &str) -> HttpRequest {
    get(path).with_header("Accept", BROWSER)
}

#[test]
fn each_client_gets_a_document_that_it_accepts() {
    let server = TestServer::start();
    for (method, path, accept, status, content_type) in [
        ("GET", "/", Some(BROWSER), 200, "text/html; charset=utf-8"),
        ("GET", "/?x=1", Some(BROWSER), 200, "text/html; charset=utf-8"),
        ("GET", "/", Some("application/json"), 200, "application/json"),
        ("GET", "/", Some("*/*"), 200, "application/json"),
        ("GET", "/", None, 200, "application/json"),
        // It looks for an endpoint, as clients of HTTP+SSE do.
        ("GET", "/", Some("text/event-stream"), 404, "application/json"),
        ("GET", "/", Some("application/json, text/event-stream"), 200, "application/json"),
        ("POST", "/", Some(BROWSER), 404, "application/json"),
        ("DELETE", "/", Some(BROWSER), 404, "application/json"),
        ("GET", "/-/page.css", Some("text/css"), 200, "text/css; charset=utf-8"),
        ("GET", "/-/page.js", Some("*/*"), 200, "text/javascript; charset=utf-8"),
        ("GET", "/-/icon.svg", Some("image/svg+xml"), 200, "image/svg+xml"),
        ("GET", "/-/activity", Some("application/json"), 200, "application/json"),
        ("GET", "/-/", Some(BROWSER), 404, "application/json"),
        ("GET", "/-/../page.js", Some(BROWSER), 404, "application/json"),
        ("POST", "/-/activity", Some(BROWSER), 404, "application/json"),
        ("GET", "//", Some(BROWSER), 404, "application/json"),
    ] {
        let request = HttpRequest::new(method, path);
        let request = accept.map_or(request.clone(), |accept| request.with_header("Accept", accept));
        let response = server.send_request(&request);
        let got = (response.status, response.header("content-type").unwrap_or_default());
        assert_eq!(got, (status, content_type), "{method} {path} {accept:?}");
    }
    server.assert_serving();
}

#[test]
fn a_head_request_has_no_body() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&HttpRequest::new("HEAD", "/").with_header("Accept", BROWSER).to_bytes());
    let head = client.read_head().expect("an answer");
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(client.is_silent());
}

#[test]
fn without_a_page_nothing_is_there() {
    let server = TestServer::with_setup(|setup| setup.has_page = false);
    for path in ["/", "/-/page.js", "/-/activity"] {
        assert_eq!(server.send_request(&browse(path)).status, 404, "{path}");
    }
}

#[test]
fn every_document_has_the_strict_policy() {
    let server = TestServer::with_setup(|setup| {
        setup.guard.tokens = Some(AccessTokens::single("s3cret"));
    });
    for path in ["/", "/-/page.css", "/-/page.js", "/-/icon.svg", "/-/activity"] {
        let response = server.send_request(&browse(path).with_header("Authorization", "Bearer s3cret"));
        assert_eq!(response.status, 200, "{path}");
        for (name, value) in page::SECURITY_HEADERS {
            assert_eq!(response.header(name), Some(value), "{path} {name}");
        }
    }
    let response = server.send_request(&browse("/"));
    assert_eq!((response.status, response.header("cache-control")), (401, Some("no-store")));
    assert!(response.header("content-security-policy").is_some());
}

#[test]
fn a_browser_gives_the_token_as_a_password_and_only_to_the_page() {
    let server = TestServer::with_setup(|setup| {
        setup.guard = Guard {
            tokens: Some(AccessTokens::single("s3cret")),
            throttle: AuthThrottle::new(u32::MAX),
            ..Guard::default()
        };
    });
    let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
    for (shown, right) in [
        (basic(":s3cret"), true),
        (basic("ada:s3cret"), true),
        (basic("s3cret:"), true),
        ("Bearer s3cret".to_owned(), true),
        (basic("s3cret:wrong"), false),
        (basic("ada:s3cret:"), false),
        (basic("s3cret"), false),
        (basic(""), false),
        ("Basic".to_owned(), false),
        ("Basic !!!".to_owned(), false),
        ("Basic s3cret".to_owned(), false),
    ] {
        for path in ["/", "/-/activity", "/-/page.js"] {
            let status = server.send_request(&browse(path).with_header("Authorization", &shown)).status;
            assert_eq!(status, if right { 200 } else { 401 }, "{path} {shown}");
        }
    }
    // A browser sends the password with every request to this host, so it must not open the way to a tool.
    let call = post(call(1, "test_simple_text", "{}")).with_header("Authorization", &basic(":s3cret"));
    assert_eq!(server.send_request(&call).status, 401);
    let status = get("/status").with_header("Authorization", &basic(":s3cret"));
    assert_eq!(server.send_request(&status).status, 401);

    let refused = server.send_request(&browse("/"));
    let challenges: Vec<&str> = refused.headers("www-authenticate");
    assert!(challenges.iter().any(|one| one.starts_with("Basic realm=")), "{challenges:?}");
    assert!(challenges.contains(&"Bearer") && refused.text().contains("as the password"));
    // A program must not be asked for a password.
    let refused = server.send_request(&get("/").with_header("Accept", "application/json"));
    assert_eq!((refused.status, refused.headers("www-authenticate")), (401, vec!["Bearer"]));
}

#[test]
fn a_wrong_password_is_throttled_like_a_wrong_token() {
    let server = TestServer::with_setup(|setup| {
        setup.guard = Guard {
            tokens: Some(AccessTokens::single("s3cret")),
            throttle: AuthThrottle::new(2),
            ..Guard::default()
        };
    });
    let with =
        |pair: &str| browse("/").with_header("Authorization", &format!("Basic {}", STANDARD.encode(pair)));
    let statuses: Vec<u16> =
        [":a", ":b", ":c", ":d"].map(|pair| server.send_request(&with(pair)).status).to_vec();
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
}

#[test]
fn the_overview_for_programs_names_the_endpoints() {
    let server = TestServer::with_setup(|setup| setup.names = &["one", "zwei é"]);
    let overview = server.send_request(&get("/").with_header("Host", "localhost:99")).json();
    let servers = overview["servers"].as_array().expect("a list");
    let urls: Vec<&Value> = servers.iter().map(|server| &server["url"]).collect();
    assert_eq!(urls, ["http://localhost:99/mcp/one", "http://localhost:99/mcp/zwei%20%C3%A9"]);
    assert_eq!(overview["tokenRequired"], json!(false));
    let html = server.send_request(&browse("/")).text().to_owned();
    assert!(html.contains("http://127.0.0.1/mcp/zwei%20%C3%A9") && html.contains("<h1>2 servers</h1>"));
}

#[test]
fn recent_calls_show_names_and_outcomes_and_no_data() {
    let server = TestServer::start();
    // Before the first visit nothing is recorded.
    server.send_request(&post(call(1, "test_simple_text", "{}")));
    let empty = server.send_request(&browse("/")).text().to_owned();
    assert!(empty.contains("No calls yet."));

    for (tool, arguments) in [
        ("test_simple_text", r#"{"secret":"PRIVATE-1"}"#),
        ("test_error_handling", "{}"),
        ("PRIVATE-2<script>", "{}"),
    ] {
        server.send_request(&post(call(1, tool, arguments)));
    }
    let uri = r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://template/PRIVATE-3/data"}}"#;
    server.send_request(&post(uri));
    let activity = server.send_request(&get("/-/activity")).json();
    let calls = activity["servers"][0]["recentCalls"].as_array().expect("a list").clone();
    let calls: Vec<Value> = calls
        .iter()
        .map(|call| json!([call["kind"], call["name"], call["outcome"], call["class"]]))
        .collect();
    assert_eq!(
        calls,
        [
            json!(["resource", "test://template/{id}/data", "ok", "good"]),
            json!(["tool", null, "unknown item", "bad"]),
            json!(["tool", "test_error_handling", "tool error", "bad"]),
            json!(["tool", "test_simple_text", "ok", "good"]),
        ]
    );
    let html = server.send_request(&browse("/")).text().to_owned();
    assert!(html.contains("unlisted tool") && html.contains("test://template/{id}/data"));
    assert!(!html.contains("PRIVATE") && !activity.to_string().contains("PRIVATE"));
}

#[test]
fn callers_see_their_own_calls_only() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("tokens.json");
    let tokens =
        ["ada", "bob"].map(|name| json!({"token": format!("{name}-token-0123456789"), "subject": name}));
    std::fs::write(&file, json!({"tokens": tokens}).to_string()).expect("a file can be written");
    let server = TestServer::with_setup(|setup| {
        setup.guard.tokens = Some(AccessTokens::from_file(&file).expect("valid tokens"));
    });
    let as_caller = |request: HttpRequest, name: &str| {
        request.with_header("Authorization", &format!("Bearer {name}-token-0123456789"))
    };
    let seen = |name: &str| {
        let activity = server.send_request(&as_caller(get("/-/activity"), name)).json();
        activity["servers"][0]["recentCalls"].as_array().expect("a list").len()
    };
    assert_eq!((seen("ada"), seen("bob")), (0, 0));
    server.send_request(&as_caller(post(call(1, "test_simple_text", "{}")), "ada"));
    assert_eq!((seen("ada"), seen("bob")), (1, 0));
}

#[test]
fn the_record_of_calls_is_bounded() {
    let server = TestServer::start();
    server.send_request(&get("/-/activity"));
    let mut client = server.connect();
    for _ in 0..130 {
        assert_eq!(client.send_request(&post(call(1, "test_simple_text", "{}"))).status, 200);
    }
    let activity = server.send_request(&get("/-/activity")).json();
    assert_eq!(activity["servers"][0]["recentCalls"].as_array().expect("a list").len(), 100);
    assert_eq!(activity["servers"][0]["calls"], json!(130));
}
