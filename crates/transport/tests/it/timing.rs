//! Timeouts of connections. Others are served meanwhile; the exact time is not asserted.

use transport::http::ConnectionLimits;

use crate::client::{Client, HANDSHAKE, call, get, in_session, ping, post, stateless, stateless_call};
use crate::test_server::{Setup, TestServer};

/// A server with one short timeout; all others are long.
fn start_with_limits(short: impl FnOnce(&mut ConnectionLimits)) -> TestServer {
    TestServer::with_setup(|setup| short(&mut setup.connection_limits))
}

const HEAD: &[u8] =
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 40\r\n";

/// Clients that send these bytes and then nothing: each is closed without a success, while other clients are served.
fn expect_closed(server: &TestServer, beginnings: &[(&str, Vec<u8>)]) {
    let mut busy = server.connect();
    let stalled: Vec<(&str, Client)> = beginnings
        .iter()
        .map(|(what, bytes)| {
            let mut client = server.connect();
            client.send(bytes);
            assert_eq!(busy.send_request(&post(ping(1))).status, 200);
            (*what, client)
        })
        .collect();
    for (what, mut client) in stalled {
        let rest = String::from_utf8_lossy(&client.read_to_end()).into_owned();
        assert!(!rest.contains(" 200 "), "{what}: {rest}");
        server.assert_serving();
    }
}

#[test]
fn incomplete_head_times_out() {
    let server = start_with_limits(|timing| timing.header_timeout_ms = 300);
    expect_closed(
        &server,
        &[
            ("nothing at all", Vec::new()),
            ("one byte", b"P".to_vec()),
            ("half a line", b"POST /mcp HT".to_vec()),
            ("no empty line", HEAD.to_vec()),
            ("the beginning of HTTP/2", b"PRI * HTTP/2.0\r\n".to_vec()),
            ("HTTP/2 without a request", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec()),
        ],
    );
}

#[test]
fn incomplete_second_head_times_out() {
    let server = start_with_limits(|timing| timing.header_timeout_ms = 300);
    let mut client = server.connect();
    assert_eq!(client.send_request(&get("/health")).status, 200);
    client.send(b"GET /health HTTP/1.1\r\nX-Slow: ");
    assert_eq!(client.read_response().map(|response| response.status), Some(408));
    assert!(client.read_response().is_none());
}

#[test]
fn a_request_that_does_not_arrive_in_time_is_answered_with_408() {
    let server = start_with_limits(|timing| {
        timing.header_timeout_ms = 300;
        timing.body_idle_timeout_ms = 300;
    });
    for (what, bytes) in
        [("half a head", HEAD.to_vec()), ("half a body", [HEAD, b"\r\n", &ping(1).as_bytes()[..20]].concat())]
    {
        let mut client = server.connect();
        client.send(&bytes);
        let response = client.read_response().expect(what);
        assert_eq!((response.status, response.error_code()), (408, Some(-32600)), "{what}: {response:?}");
        assert!(client.read_response().is_none(), "{what}");
    }
}

/// A byte now and then does not help: the head as a whole has its time.
#[test]
fn slowly_dripping_head_times_out() {
    let server = start_with_limits(|timing| timing.header_timeout_ms = 300);
    let mut client = server.connect();
    client.send(HEAD);
    let mut dripped = 0_u32;
    while client.is_silent() {
        client.send(b"X: y\r\n");
        dripped += 1;
        assert!(dripped < 10_000, "a head is read for ever");
        server.assert_serving();
    }
}

#[test]
fn incomplete_body_times_out() {
    let server = start_with_limits(|timing| timing.body_idle_timeout_ms = 300);
    let chunks = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    expect_closed(
        &server,
        &[
            ("no byte of it", [HEAD, b"\r\n"].concat()),
            ("half of it", [HEAD, b"\r\n", &ping(1).as_bytes()[..20]].concat()),
            ("no chunk", chunks.as_bytes().to_vec()),
            ("half a chunk", [chunks.as_bytes(), b"28\r\n{"].concat()),
            ("no last chunk", [chunks.as_bytes(), b"28\r\n", ping(1).as_bytes(), b"\r\n"].concat()),
        ],
    );
}

/// A byte now and then does not help here either: the body as a whole has its time.
#[test]
fn slowly_dripping_body_times_out() {
    let server = start_with_limits(|timing| timing.body_total_timeout_ms = 300);
    let mut client = server.connect();
    client.send(&[&HEAD[..HEAD.len() - "40\r\n".len()], b"100000\r\n\r\n"].concat());
    let mut dripped = 0_u32;
    while client.is_silent() {
        client.send(b" ");
        dripped += 1;
        assert!(dripped < 90_000, "a body is read for ever");
        server.assert_serving();
    }
}

#[test]
fn idle_connection_is_closed() {
    let server = start_with_limits(|timing| timing.keep_alive_timeout_ms = 300);
    let mut client = server.connect();
    assert_eq!(client.send_request(&get("/health")).status, 200);
    assert_eq!(client.read_to_end(), b"");
    server.assert_serving();
}

/// Quiet is not idle: a call may take its time, and so may a stream.
#[test]
fn running_calls_and_streams_are_never_idle() {
    let mut setup = Setup::default();
    setup.connection_limits = ConnectionLimits {
        header_timeout_ms: 300,
        body_idle_timeout_ms: 300,
        write_stall_timeout_ms: 300,
        keep_alive_timeout_ms: 300,
        ..setup.connection_limits
    };
    // A comment now and then: the number of them is the time that passed.
    setup.limits.keep_alive_ms = 100;
    setup.limits.stream_after_silence_ms = 100;
    let server = setup.start();
    let session = server.session(HANDSHAKE);
    let long = 20;
    for (what, request) in [
        ("a call in a session", in_session(&session, call(1, "hold", r#"{"key":"k"}"#))),
        ("a call alone", post(call(1, "hold", r#"{"key":"k"}"#))),
        ("a call of the newest era", stateless_call(1, "hold", r#"{"key":"k"}"#)),
        ("a stream of a session", get("/mcp").with_header("Mcp-Session-Id", &session)),
        (
            "a subscription",
            stateless(1, "subscriptions/listen", None, r#""notifications":{"toolsListChanged":true}"#),
        ),
    ] {
        let mut client = server.connect();
        client.open_stream(&request);
        let mut comments = 0;
        while comments < long {
            let event =
                client.next_event_or_comment().unwrap_or_else(|| panic!("cut after {comments}: {what}"));
            comments += u32::from(event.is_comment());
        }
    }
    let mut client = server.connect();
    client.send(
        &stateless_call(1, "hold", r#"{"key":"j"}"#).with_header("Accept", "application/json").to_bytes(),
    );
    let mut meanwhile = server.connect();
    meanwhile.open_stream(&get("/mcp").with_header("Mcp-Session-Id", &session));
    for _ in 0..long {
        meanwhile.next_event_or_comment().expect("a comment");
    }
    server.provider.release("j", 1);
    assert_eq!(client.read_response().expect("an answer in JSON").status, 200);
}

/// A client that asks for much and reads nothing.
#[test]
fn stalled_reader_is_closed_after_the_write_stall() {
    let server = start_with_limits(|timing| timing.write_stall_timeout_ms = 300);
    let big = r#"{"bytes":67108864}"#;
    let mut client = server.connect();
    client.send(&stateless_call(1, "big", big).to_bytes());
    client.read_head().expect("an answer that does not fit into any buffer");
    let mut streaming = server.connect();
    let flood = stateless_call(1, "flood", r#"{"key":"k","steps":4000,"bytes":65536}"#);
    streaming.send(&flood.to_bytes());
    server.provider.expect_started("k");
    server.assert_serving();
    server.provider.expect_dropped("k");
    server.wait_until("nothing is left of them", |status| status.calls_active == 0);
    // The first stalled before the second did.
    assert!(client.read_to_end().len() < 64 << 20, "cut off");
    server.assert_serving();
}
