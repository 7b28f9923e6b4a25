//! The bearer token: who must show it, how, and whose a session is.

use transport::{BearerToken, Guard};

use crate::client::{HttpRequest, LEGACY, call, get, in_session, initialize, ping, post};
use crate::test_server::TestServer;

fn locked() -> Guard {
    Guard { token: Some(BearerToken::new("s3cret")), ..Guard::default() }
}

#[test]
fn a_token_is_shown_once_and_to_the_letter() {
    let door = TestServer::with_setup(|setup| setup.guard = locked());
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
        for (route, ask) in [
            ("POST", post(call(1, "test_simple_text", "{}"))),
            ("GET", get("/mcp")),
            ("DELETE", HttpRequest::new("DELETE", "/mcp")),
            ("PUT", HttpRequest::new("PUT", "/mcp")),
            ("/status", get("/status")),
            ("/nowhere", get("/nowhere")),
        ] {
            let before = door.server().status().calls;
            let ask = shown.iter().fold(ask, |ask, shown| ask.append_header("Authorization", shown));
            let answer = door.send_request(&ask);
            let case = format!("{route} {shown:?}");
            assert_eq!(answer.status != 401, right, "{case}");
            let ran = door.server().status().calls - before;
            assert_eq!(ran, u64::from(right && route == "POST"), "{case}");
            if !right {
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{case}");
                assert!(answer.error_code().is_some(), "{case}");
                assert!(!answer.text().contains("s3cret"), "{case}: {answer:?}");
            }
        }
        let ask = shown.iter().fold(get("/health"), |ask, shown| ask.append_header("Authorization", shown));
        assert_eq!(door.send_request(&ask).status, 200, "/health asks nobody: {shown:?}");
    }
}

#[test]
fn a_token_does_not_make_up_for_a_foreign_host_or_origin() {
    let door = TestServer::with_setup(|setup| setup.guard = locked());
    let ask = post(ping(1)).with_header("Authorization", "Bearer s3cret");
    assert_eq!(door.send_request(&ask).status, 200);
    assert_eq!(door.send_request(&ask.clone().with_header("Host", "evil.example")).status, 403);
    assert_eq!(door.send_request(&ask.clone().with_header("Origin", "https://evil.example")).status, 403);
    assert_eq!(door.send_request(&ask.with_header("Origin", "null")).status, 403);
}

#[test]
fn a_token_in_the_query_is_no_token() {
    let door = TestServer::with_setup(|setup| setup.guard = locked());
    for path in ["/mcp?token=s3cret", "/mcp?access_token=s3cret", "/status?token=s3cret"] {
        let ask = if path.starts_with("/mcp") { post(ping(1)).with_path(path) } else { get(path) };
        assert_eq!(door.send_request(&ask).status, 401, "{path}");
    }
}

#[test]
fn a_debug_print_keeps_the_secret() {
    let shown = format!("{:?}", locked());
    assert!(shown.contains("***") && !shown.contains("s3cret"), "{shown}");
}

/// One server behind two doors: whoever comes through the open one is somebody else.
#[test]
fn a_session_belongs_to_whom_it_was_given() {
    let locked_door = TestServer::with_setup(|setup| setup.guard = locked());
    let open_door = TestServer::sharing_servers(&locked_door, Guard::default());
    let token = |ask: HttpRequest| ask.with_header("Authorization", "Bearer s3cret");
    let named = locked_door.send_request(&token(initialize(LEGACY, "{}")));
    let named = named.header("mcp-session-id").expect("a session").to_owned();
    let stranger = open_door.session(LEGACY);
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
    for ask in routes(&named) {
        let answer = open_door.send_request(&ask);
        assert_eq!((answer.status, answer.error_code()), (404, Some(-31006)), "not the stranger's: {ask:?}");
        assert_eq!(locked_door.send_request(&ask).status, 401, "no token: {ask:?}");
        let wrong = locked_door.send_request(&ask.clone().with_header("Authorization", "Bearer other"));
        assert_eq!(wrong.status, 401, "the wrong token: {ask:?}");
    }
    for ask in routes(&stranger) {
        assert_eq!(locked_door.send_request(&token(ask.clone())).status, 404, "not the token's: {ask:?}");
    }
    assert_eq!(
        locked_door.send_request(&token(in_session(&named, ping(1)))).status,
        200,
        "it is as alive as before"
    );
    assert_eq!(
        open_door.send_request(&in_session(&stranger, ping(1))).status,
        200,
        "it is as alive as before"
    );
}
