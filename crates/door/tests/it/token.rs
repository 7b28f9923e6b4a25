//! The bearer token: who must show it, how, and whose a session is.

use door::{Guard, Token};

use crate::client::{Ask, LEGACY, call, get, initialize, ping, post, within};
use crate::kit::Door;

fn locked() -> Guard {
    Guard { token: Some(Token::new("s3cret")), ..Guard::default() }
}

#[test]
fn a_token_is_shown_once_and_to_the_letter() {
    let door = Door::with(|setup| setup.guard = locked());
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
            ("DELETE", Ask::new("DELETE", "/mcp")),
            ("PUT", Ask::new("PUT", "/mcp")),
            ("/status", get("/status")),
            ("/nowhere", get("/nowhere")),
        ] {
            let before = door.server().status().calls;
            let ask = shown.iter().fold(ask, |ask, shown| ask.and("Authorization", shown));
            let answer = door.ask(&ask);
            let case = format!("{route} {shown:?}");
            assert_eq!(answer.status != 401, right, "{case}");
            let ran = door.server().status().calls - before;
            assert_eq!(ran, u64::from(right && route == "POST"), "{case}");
            if !right {
                assert_eq!(answer.head("www-authenticate"), Some("Bearer"), "{case}");
                assert!(answer.code().is_some(), "{case}");
                assert!(!answer.text().contains("s3cret"), "{case}: {answer:?}");
            }
        }
        let ask = shown.iter().fold(get("/health"), |ask, shown| ask.and("Authorization", shown));
        assert_eq!(door.ask(&ask).status, 200, "/health asks nobody: {shown:?}");
    }
}

#[test]
fn a_token_does_not_make_up_for_a_foreign_host_or_origin() {
    let door = Door::with(|setup| setup.guard = locked());
    let ask = post(ping(1)).with("Authorization", "Bearer s3cret");
    assert_eq!(door.ask(&ask).status, 200);
    assert_eq!(door.ask(&ask.clone().with("Host", "evil.example")).status, 403);
    assert_eq!(door.ask(&ask.clone().with("Origin", "https://evil.example")).status, 403);
    assert_eq!(door.ask(&ask.with("Origin", "null")).status, 403);
}

#[test]
fn a_token_in_the_query_is_no_token() {
    let door = Door::with(|setup| setup.guard = locked());
    for path in ["/mcp?token=s3cret", "/mcp?access_token=s3cret", "/status?token=s3cret"] {
        let ask = if path.starts_with("/mcp") { post(ping(1)).at(path) } else { get(path) };
        assert_eq!(door.ask(&ask).status, 401, "{path}");
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
    let locked_door = Door::with(|setup| setup.guard = locked());
    let open_door = Door::beside(&locked_door, Guard::default());
    let token = |ask: Ask| ask.with("Authorization", "Bearer s3cret");
    let named = locked_door.ask(&token(initialize(LEGACY, "{}")));
    let named = named.head("mcp-session-id").expect("a session").to_owned();
    let stranger = open_door.session(LEGACY);
    let routes = |session: &str| {
        [
            within(session, ping(1)),
            within(session, call(1, "test_simple_text", "{}")),
            within(
                session,
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            ),
            within(session, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            get("/mcp").with("Mcp-Session-Id", session),
            get("/mcp").with("Mcp-Session-Id", session).with("Last-Event-ID", "1-0"),
            Ask::new("DELETE", "/mcp").with("Mcp-Session-Id", session),
        ]
    };
    for ask in routes(&named) {
        let answer = open_door.ask(&ask);
        assert_eq!((answer.status, answer.code()), (404, Some(-31006)), "not the stranger's: {ask:?}");
        assert_eq!(locked_door.ask(&ask).status, 401, "no token: {ask:?}");
        let wrong = locked_door.ask(&ask.clone().with("Authorization", "Bearer other"));
        assert_eq!(wrong.status, 401, "the wrong token: {ask:?}");
    }
    for ask in routes(&stranger) {
        assert_eq!(locked_door.ask(&token(ask.clone())).status, 404, "not the token's: {ask:?}");
    }
    assert_eq!(locked_door.ask(&token(within(&named, ping(1)))).status, 200, "it is as alive as before");
    assert_eq!(open_door.ask(&within(&stranger, ping(1))).status, 200, "it is as alive as before");
}
