//! The bearer token: where it is required, in which form, throttling, rotation, and sessions.

use transport::{AccessTokens, AuthThrottle, Exposure, Guard, TokenError};

use crate::client::{HANDSHAKE, HttpRequest, call, get, in_session, initialize, ping, post};
use crate::test_server::TestServer;

fn locked() -> Guard {
    Guard { tokens: Some(AccessTokens::single("s3cret")), ..Guard::default() }
}

#[test]
fn token_must_match_exactly_in_one_header() {
    let server = TestServer::with_setup(|setup| {
        setup.guard = Guard { throttle: AuthThrottle::new(u32::MAX), ..locked() };
    });
    for (shown, right) in [
        (&["Bearer s3cret"][..], true),
        (&["bearer s3cret"], true),
        (&["BEARER s3cret"], true),
        (&["Bearer   s3cret"], true),
        (&[], false),
        (&[""], false),
        (&["Bearer"], false),
        (&["Bearer "], false),
        (&["Bearer s3cre"], false),
        (&["Bearer s3crets"], false),
        (&["Bearer S3CRET"], false),
        (&["Bearer s3cret, Bearer s3cret"], false),
        (&["Bearer s3cret s3cret"], false),
        (&["Bearer \"s3cret\""], false),
        (&["Bearers3cret"], false),
        (&["Bearer\ts3cret"], false),
        (&["s3cret"], false),
        (&["Basic s3cret"], false),
        (&["Basic OnMzY3JldA=="], false),
        (&["Token s3cret"], false),
        (&["Bearer s3cret", "Bearer s3cret"], false),
        (&["Bearer wrong", "Bearer s3cret"], false),
        (&["Bearer s3cret", "Bearer wrong"], false),
        (&["Bearer \u{fffd}"], false),
    ] {
        for (route, request) in [
            ("POST", post(call(1, "test_simple_text", "{}"))),
            ("GET", get("/mcp")),
            ("DELETE", HttpRequest::new("DELETE", "/mcp")),
            ("PUT", HttpRequest::new("PUT", "/mcp")),
            ("/status", get("/status")),
            ("/nowhere", get("/nowhere")),
        ] {
            let before = server.server().status().calls;
            let request =
                shown.iter().fold(request, |request, shown| request.append_header("Authorization", shown));
            let response = server.send_request(&request);
            let case = format!("{route} {shown:?}");
            assert_eq!(response.status != 401, right, "{case}");
            let ran = server.server().status().calls - before;
            assert_eq!(ran, u64::from(right && route == "POST"), "{case}");
            if !right {
                assert_eq!(response.header("www-authenticate"), Some("Bearer"), "{case}");
                assert!(response.error_code().is_some(), "{case}");
                assert!(!response.text().contains("s3cret"), "{case}: {response:?}");
            }
        }
        let request =
            shown.iter().fold(get("/health"), |request, shown| request.append_header("Authorization", shown));
        assert_eq!(server.send_request(&request).status, 200, "/health asks nobody: {shown:?}");
    }
}

#[test]
fn valid_token_does_not_bypass_host_and_origin_checks() {
    let server = TestServer::with_setup(|setup| setup.guard = locked());
    let request = post(ping(1)).with_header("Authorization", "Bearer s3cret");
    assert_eq!(server.send_request(&request).status, 200);
    assert_eq!(server.send_request(&request.clone().with_header("Host", "evil.example")).status, 403);
    assert_eq!(
        server.send_request(&request.clone().with_header("Origin", "https://evil.example")).status,
        403
    );
    assert_eq!(server.send_request(&request.with_header("Origin", "null")).status, 403);
}

#[test]
fn token_in_the_query_is_ignored() {
    let server = TestServer::with_setup(|setup| setup.guard = locked());
    for path in ["/mcp?token=s3cret", "/mcp?access_token=s3cret", "/status?token=s3cret"] {
        let request = if path.starts_with("/mcp") { post(ping(1)).with_path(path) } else { get(path) };
        assert_eq!(server.send_request(&request).status, 401, "{path}");
    }
}

#[test]
fn debug_output_hides_the_token() {
    let shown = format!("{:?}", locked());
    assert!(shown.contains("***") && !shown.contains("s3cret"), "{shown}");
}

/// One MCP server behind two sites: a caller through the open one is another caller.
#[test]
fn session_belongs_to_the_caller_that_opened_it() {
    let locked_server = TestServer::with_setup(|setup| setup.guard = locked());
    let open_server = TestServer::sharing_servers(&locked_server, Guard::default());
    let token = |request: HttpRequest| request.with_header("Authorization", "Bearer s3cret");
    let named = locked_server.send_request(&token(initialize(HANDSHAKE, "{}")));
    let named = named.header("mcp-session-id").expect("a session").to_owned();
    let stranger = open_server.session(HANDSHAKE);
    let routes = |session: &str| {
        [
            in_session(session, ping(1)),
            in_session(session, call(1, "test_simple_text", "{}")),
            in_session(
                session,
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            ),
            in_session(session, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            get("/mcp").with_header("Mcp-Session-Id", session),
            get("/mcp").with_header("Mcp-Session-Id", session).with_header("Last-Event-ID", "1-0"),
            HttpRequest::new("DELETE", "/mcp").with_header("Mcp-Session-Id", session),
        ]
    };
    for request in routes(&named) {
        let response = open_server.send_request(&request);
        assert_eq!(
            (response.status, response.error_code()),
            (404, Some(-31006)),
            "not the stranger's: {request:?}"
        );
        assert_eq!(locked_server.send_request(&request).status, 401, "no token: {request:?}");
        let wrong = locked_server.send_request(&request.clone().with_header("Authorization", "Bearer other"));
        assert_eq!(wrong.status, 401, "the wrong token: {request:?}");
    }
    for request in routes(&stranger) {
        assert_eq!(
            locked_server.send_request(&token(request.clone())).status,
            404,
            "not the token's: {request:?}"
        );
    }
    assert_eq!(
        locked_server.send_request(&token(in_session(&named, ping(1)))).status,
        200,
        "it is as alive as before"
    );
    assert_eq!(
        open_server.send_request(&in_session(&stranger, ping(1))).status,
        200,
        "it is as alive as before"
    );
}

#[test]
fn wrong_tokens_are_throttled_by_address() {
    let server = TestServer::with_setup(|setup| setup.guard = locked());
    let with_token = |token: &str| post(ping(1)).with_header("Authorization", &format!("Bearer {token}"));
    let mut client = server.connect();
    let mut refused = 0;
    for guess in 0..100 {
        match client.send_request(&with_token(&format!("guess{guess}"))).status {
            401 => {}
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(refused >= 80, "{refused} of 100 guesses were not compared");
    let response = client.send_request(&with_token("s3cret"));
    assert_eq!((response.status, response.error_code()), (429, Some(-31001)), "the right one waits too");
    let seconds = response.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| (1..=60).contains(&seconds)), "{response:?}");
    // Without a token there is nothing to guess, and a unix socket has no address.
    assert_eq!(client.send_request(&post(ping(1))).status, 401);
    assert_eq!(server.connect_unix().send_request(&with_token("s3cret")).status, 200);
}

#[test]
fn a_short_token_on_a_public_address_is_refused() {
    let guard =
        |secret, exposure| Guard::new(Vec::new(), Vec::new(), Some(AccessTokens::single(secret)), exposure);
    for secret in ["x", "s3cret"] {
        let error = guard(secret, Exposure::Public).expect_err(secret);
        assert!(matches!(error, TokenError::TooShort { chars } if chars == secret.len()), "{error:?}");
        assert!(error.to_string().contains("openssl rand -hex 32"), "{error}");
        assert!(guard(secret, Exposure::Local).is_ok(), "{secret}");
    }
    assert!(guard("0123456789abcdef", Exposure::Public).is_ok());
}

/// Rotation: the file gets a new token while the server runs.
#[test]
fn a_rotated_token_file_is_read_again_and_the_old_token_refused() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("token");
    std::fs::write(&path, "first-token\n").expect("a file can be written");
    let server = TestServer::with_setup(|setup| {
        let token = Some(AccessTokens::from_file(&path).expect("a token"));
        setup.guard = Guard { tokens: token, throttle: AuthThrottle::new(u32::MAX), ..Guard::default() };
        // Whoever has lost access is not drained.
        setup.connection_limits.drain_timeout_ms = 600_000;
    });
    // `None` where the connection is closed because the token changed meanwhile.
    let status = |token: &str| {
        let mut client = server.connect();
        let request = post(ping(1)).with_header("Authorization", &format!("Bearer {token}"));
        client.send(&request.to_bytes());
        client.read_head().map(|head| head.status)
    };
    assert_eq!((status("first-token"), status("second-token")), (Some(200), Some(401)));
    let mut stream = server.connect();
    let authorize = |request: HttpRequest| request.with_header("Authorization", "Bearer first-token");
    stream.open_stream(&authorize(get("/sse")));
    std::fs::write(&path, "second-token\n").expect("a file can be written");
    server.wait_until("the new token is accepted", |_| status("second-token") == Some(200));
    server.wait_until("the old one is refused", |_| status("first-token") == Some(401));
    assert!(stream.remaining_events().len() <= 1, "a stream of the old token ends");
}

/// Several callers in one file: each has its own sessions, and removing one leaves the connections of the others alone.
#[test]
fn a_caller_that_is_removed_from_the_token_file_is_disconnected_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("tokens.json");
    let write = |callers: &[&str]| {
        let callers: Vec<String> = callers
            .iter()
            .map(|name| format!(r#"{{"token":"token-of-{name}","subject":"{name}"}}"#))
            .collect();
        std::fs::write(&path, format!(r#"{{"tokens":[{}]}}"#, callers.join(",")))
            .expect("a file can be written");
    };
    write(&["ada", "bob"]);
    let server = TestServer::with_setup(|setup| {
        let tokens = Some(AccessTokens::from_file(&path).expect("two tokens"));
        setup.guard = Guard { tokens, throttle: AuthThrottle::new(u32::MAX), ..Guard::default() };
        // Whoever has lost access is not drained.
        setup.connection_limits.drain_timeout_ms = 600_000;
    });
    let by = |name: &str, request: HttpRequest| {
        request.with_header("Authorization", &format!("Bearer token-of-{name}"))
    };
    let session = |name: &str| {
        let response = server.send_request(&by(name, initialize(HANDSHAKE, "{}")));
        response.header("mcp-session-id").expect("a session").to_owned()
    };
    let of_ada = session("ada");
    assert_eq!(server.send_request(&by("ada", in_session(&of_ada, ping(1)))).status, 200);
    assert_eq!(
        server.send_request(&by("bob", in_session(&of_ada, ping(1)))).status,
        404,
        "not bob's session"
    );
    assert_eq!(server.send_request(&by("eve", ping_request())).status, 401);

    let (mut ada, mut bob) = (server.connect(), server.connect());
    ada.open_stream(&by("ada", get("/sse")));
    bob.open_stream(&by("bob", get("/sse")));
    write(&["ada", "eve"]);
    server.wait_until("the new caller is accepted", |_| {
        server.send_request(&by("eve", ping_request())).status == 200
    });
    assert!(bob.remaining_events().len() <= 1, "the stream of the removed caller ends");
    assert_eq!(server.send_request(&by("bob", ping_request())).status, 401);
    let mut kept = server.connect();
    assert_eq!(kept.send_request(&by("ada", ping_request())).status, 200);
    assert_eq!(kept.send_request(&by("ada", in_session(&of_ada, ping(1)))).status, 200, "ada goes on");
    assert!(ada.is_open(), "and so does her stream");
    write(&[]);
    server.wait_until("nobody is left", |_| server.send_request(&by("eve", ping_request())).status == 401);
    assert_eq!(server.send_request(&by("ada", ping_request())).status, 401);
}

fn ping_request() -> HttpRequest {
    post(ping(1))
}
