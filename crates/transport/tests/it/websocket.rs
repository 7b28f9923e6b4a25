//! WebSockets by the byte: how one begins, what breaks the rules and with which code that ends, and what a
//! client that does not play along can make us do.

use serde_json::Value;
use transport::{AccessTokens, Guard};

use crate::client::{HttpRequest, call, ping, post};
use crate::conn::Conn;
use crate::test_server::{Setup, TestServer};
use crate::ws_client::{
    BINARY, CLOSE, CONTINUATION, FIN, NOT_FINAL, PING, PONG, TEXT, WsClient, close, frame, head, text,
    upgrade,
};

/// Asks for a WebSocket on a connection of its own: the status, and that a refusal closes the connection.
#[track_caller]
fn upgrade_status(server: &TestServer, request: &HttpRequest) -> u16 {
    let mut client = server.connect();
    // The next bytes may be frames or a request: after a refusal the server reads nothing more.
    let smuggled = [text(&ping(1)), post(ping(2)).to_bytes()].concat();
    client.send(&[request.to_bytes(), smuggled].concat());
    let head = client.read_head().expect("an answer");
    let status = head.status;
    if status != 101 {
        let response = client.read_body(head).expect("a body");
        assert!(response.error_code().is_some(), "an error for people: {response:?}");
        assert_eq!(client.read_to_end(), b"", "it is closed and nothing behind it is answered: {request:?}");
    }
    status
}

#[test]
fn handshake_is_validated_strictly() {
    let server = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    let one = || upgrade().with_path("/mcp/one");
    for (what, request, expected) in [
        ("as it should be", one(), 101),
        ("the other server", upgrade().with_path("/mcp/two"), 101),
        (
            "in other letters",
            one().with_header("Upgrade", "WebSocket").with_header("Connection", "UPGRADE"),
            101,
        ),
        ("among others", one().with_header("Connection", "keep-alive, Upgrade"), 101),
        ("one of several offers", one().with_header("Sec-WebSocket-Protocol", "graphql-ws, mcp"), 101),
        (
            "offers one by one",
            one().with_header("Sec-WebSocket-Protocol", "x").append_header("Sec-WebSocket-Protocol", "mcp"),
            101,
        ),
        (
            "with extensions on offer",
            one().with_header("Sec-WebSocket-Extensions", "permessage-deflate"),
            101,
        ),
        ("an empty body", one().with_header("Content-Length", "0"), 101),
        ("no offer", one().without_header("Sec-WebSocket-Protocol"), 400),
        ("another offer", one().with_header("Sec-WebSocket-Protocol", "graphql-ws"), 400),
        ("an offer in other letters", one().with_header("Sec-WebSocket-Protocol", "MCP"), 400),
        ("an offer that only begins so", one().with_header("Sec-WebSocket-Protocol", "mcp2"), 400),
        ("an older version", one().with_header("Sec-WebSocket-Version", "8"), 426),
        ("a version to come", one().with_header("Sec-WebSocket-Version", "14"), 426),
        ("two versions", one().append_header("Sec-WebSocket-Version", "13"), 426),
        ("no version", one().without_header("Sec-WebSocket-Version"), 426),
        ("no key", one().without_header("Sec-WebSocket-Key"), 400),
        ("an empty key", one().with_header("Sec-WebSocket-Key", ""), 400),
        ("a short key", one().with_header("Sec-WebSocket-Key", "dGhlIHNhbXBsZQ=="), 400),
        ("a key that is no base64", one().with_header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZ!=="), 400),
        ("two keys", one().append_header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), 400),
        ("two Upgrade headers", one().append_header("Upgrade", "websocket"), 400),
        (
            "another Upgrade first",
            one().with_header("Upgrade", "h2c").append_header("Upgrade", "websocket"),
            400,
        ),
        ("Connection without Upgrade", one().with_header("Connection", "keep-alive"), 400),
        ("no Connection", one().without_header("Connection"), 400),
        ("a body", HttpRequest { body: b"{}".to_vec(), ..one() }, 400),
        ("a body that is a request", HttpRequest { body: post(ping(9)).to_bytes(), ..one() }, 400),
        ("a body in chunks", one().with_header("Transfer-Encoding", "chunked"), 400),
    ] {
        assert_eq!(upgrade_status(&server, &request), expected, "{what}");
    }
    let mut refused = server.connect();
    refused.send(&one().with_header("Sec-WebSocket-Version", "8").to_bytes());
    let response = refused.read_response().expect("an answer");
    assert_eq!(response.header("sec-websocket-version"), Some("13"), "says what would do");
    let mut old = server.connect();
    old.send(
        &String::from_utf8(one().to_bytes()).expect("ASCII").replace("HTTP/1.1", "HTTP/1.0").into_bytes(),
    );
    assert_eq!(old.read_head().expect("an answer").status, 400, "HTTP/1.0 has no Upgrade");
    assert_eq!(server.server().status().calls, 0);
}

/// Another Upgrade is none of ours to make, and no other method than GET asks for one: such a request is
/// answered as if it had not asked.
#[test]
fn other_upgrades_are_ignored() {
    let server = TestServer::start();
    for (method, expected) in [("POST", 415), ("DELETE", 405), ("PUT", 405), ("OPTIONS", 405), ("HEAD", 405)]
    {
        assert_eq!(
            server.status_of(&HttpRequest { method: method.into(), ..upgrade() }),
            expected,
            "{method}"
        );
    }
    for other in ["h2c", "websocket2", "TLS/1.3", ""] {
        let request = post(ping(1)).with_header("Connection", "Upgrade").with_header("Upgrade", other);
        assert_eq!(server.send_request(&request).status, 200, "{other:?}");
    }
}

#[test]
fn upgrade_does_not_bypass_the_guard() {
    let token = Some(AccessTokens::single("s3cret"));
    let server = TestServer::with_setup(|setup| setup.guard = Guard { tokens: token, ..Guard::default() });
    let shown = upgrade().with_header("Authorization", "Bearer s3cret");
    for (what, request, expected) in [
        ("the token", shown.clone(), 101),
        ("no token", upgrade(), 401),
        ("the wrong token", upgrade().with_header("Authorization", "Bearer wrong"), 401),
        ("a token in the query", upgrade().with_path("/mcp?access_token=s3cret"), 401),
        ("a token among the offers", upgrade().with_header("Sec-WebSocket-Protocol", "mcp, s3cret"), 401),
        ("a foreign Host", shown.clone().with_header("Host", "evil.example"), 403),
        ("a foreign Origin", shown.clone().with_header("Origin", "https://evil.example"), 403),
        ("no Origin at all, they say", shown.clone().with_header("Origin", "null"), 403),
        ("a page from elsewhere", shown.clone().with_header("Sec-Fetch-Site", "cross-site"), 403),
        ("two Hosts", shown.append_header("Host", "127.0.0.1"), 400),
    ] {
        let mut client = server.connect();
        client.send(&request.to_bytes());
        assert_eq!(client.read_head().expect("an answer").status, expected, "{what}");
    }
}

/// What a client sends first may come with its request; it is read when it has its answer.
#[test]
fn frames_sent_with_the_handshake_are_read() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&[upgrade().to_bytes(), text(&ping(1)), text(&ping(2))].concat());
    assert_eq!(client.read_head().expect("an answer").status, 101);
    let one = client.read_bytes(2 + 36).expect("a frame");
    assert_eq!(one[..2], [0x81, 36]);
    assert_eq!(serde_json::from_slice::<Value>(&one[2..]).expect("JSON")["id"], 1);
}

#[test]
fn messages_of_all_lengths_and_fragmentations_are_answered() {
    let server = TestServer::start();
    let mut ws = WsClient::open(&server);
    let padded = |id: u64, bytes: usize| {
        let message = ping(id);
        format!("{message}{}", " ".repeat(bytes - message.len()))
    };
    for (id, bytes) in [60, 125, 126, 127, 65535, 65536, 1 << 20, 4 << 20].into_iter().enumerate() {
        let id = id as u64;
        ws.send_text(&padded(id, bytes));
        assert_eq!(ws.next_message()["id"], id, "{bytes}");
    }
    for size in [1, 2, 3, 7] {
        let message = ping(7);
        let mut first = TEXT;
        for piece in message.as_bytes().chunks(size) {
            ws.send(&frame(NOT_FINAL | first, piece));
            ws.send(&frame(FIN | PING, b"between"));
            first = CONTINUATION;
        }
        ws.send(&frame(FIN | CONTINUATION, b""));
        for _ in 0..message.len().div_ceil(size) {
            assert_eq!(ws.read_frame(), Some((FIN | PONG, b"between".to_vec())));
        }
        assert_eq!(ws.next_message()["id"], 7, "{size}");
    }
    // 10,000 pieces of one byte.
    let message = padded(8, 10_000);
    let mut frames = Vec::new();
    for (at, byte) in message.bytes().enumerate() {
        let end = if at + 1 == message.len() { FIN } else { NOT_FINAL };
        frames.extend(frame(end | if at == 0 { TEXT } else { CONTINUATION }, &[byte]));
    }
    ws.send(&frames);
    assert_eq!(ws.next_message()["id"], 8);
    // And however the bytes are cut on their way.
    for part in [text(&ping(9)), frame(FIN | PING, b"x")].concat().chunks(1) {
        ws.send(part);
    }
    assert_eq!(ws.next_message()["id"], 9);
    assert_eq!(ws.read_frame(), Some((FIN | PONG, b"x".to_vec())));
    ws.send(&close(1000));
    assert_eq!(ws.wait_for_close(), Some(1000));
}

#[test]
fn invalid_message_gets_an_error_and_the_next_is_served() {
    let server = TestServer::start();
    let mut ws = WsClient::initialized(&server);
    for (what, message, code) in [
        ("nothing", "", -32700),
        ("not JSON", "hello", -32700),
        ("two messages", &format!("{}\n{}", ping(1), ping(2)), -32700),
        ("a key twice", r#"{"a":1,"a":2}"#, -32700),
        ("100,000 brackets", &"[".repeat(100_000), -32700),
        ("no JSON-RPC", r#"{"a":1}"#, -32600),
        ("no such method", r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, -32601),
    ] {
        ws.send_text(message);
        let reply = ws.next_message();
        assert_eq!(reply["error"]["code"], code, "{what}: {reply}");
        ws.send_text(&ping(7));
        assert_eq!(ws.next_message()["id"], 7, "after {what}");
    }
}

/// What is sent after the handshake, and with what code it ends.
#[track_caller]
fn expect_close_code(server: &TestServer, what: &str, frames: &[u8], expected: u16) {
    let mut ws = WsClient::open(server);
    ws.send(frames);
    assert_eq!(ws.wait_for_close(), Some(expected), "{what}");
    server.assert_serving();
}

#[test]
fn invalid_frame_closes_the_websocket() {
    let server = TestServer::start();
    let long = [b'x'; 126];
    let start = frame(NOT_FINAL | TEXT, b"{");
    for (what, frames) in [
        ("no mask", [head(FIN | TEXT, 0, 2), b"{}".to_vec()].concat()),
        ("a ping without a mask", head(FIN | PING, 0, 0)),
        ("reserved bit 1", frame(FIN | 0x40 | TEXT, b"{}")),
        ("reserved bit 2", frame(FIN | 0x20 | TEXT, b"{}")),
        ("reserved bit 3", frame(FIN | 0x10 | TEXT, b"{}")),
        ("all reserved bits", frame(FIN | 0x70 | TEXT, b"{}")),
        ("a reserved bit in a ping", frame(FIN | 0x40 | PING, b"")),
        ("kind 3", frame(FIN | 0x3, b"{}")),
        ("kind 7", frame(FIN | 0x7, b"{}")),
        ("kind 11", frame(FIN | 0xb, b"")),
        ("kind 15", frame(FIN | 0xf, b"")),
        ("a ping of 126 bytes", frame(FIN | PING, &long)),
        ("a pong of 126 bytes", frame(FIN | PONG, &long)),
        ("a goodbye of 126 bytes", frame(FIN | CLOSE, &long)),
        ("a ping in pieces", frame(NOT_FINAL | PING, b"x")),
        ("a goodbye in pieces", frame(NOT_FINAL | CLOSE, &1000_u16.to_be_bytes())),
        ("more of nothing", frame(FIN | CONTINUATION, b"{}")),
        ("more of nothing, and on", frame(NOT_FINAL | CONTINUATION, b"{}")),
        ("a text within a text", [start.clone(), frame(FIN | TEXT, b"{}")].concat()),
        ("a binary within a text", [start.clone(), frame(NOT_FINAL | BINARY, b"{}")].concat()),
        ("more after the last", [text(&ping(1)), frame(FIN | CONTINUATION, b"")].concat()),
        ("a goodbye of one byte", frame(FIN | CLOSE, &[3])),
        ("garbage", vec![0xff; 80]),
        ("HTTP", post(ping(1)).to_bytes()),
        ("a line", format!("{}\n", ping(1)).into_bytes()),
    ] {
        expect_close_code(&server, what, &frames, 1002);
    }
}

#[test]
fn binary_message_closes_the_websocket() {
    let server = TestServer::start();
    expect_close_code(&server, "binary", &frame(FIN | BINARY, ping(1).as_bytes()), 1003);
    expect_close_code(&server, "empty binary", &frame(FIN | BINARY, b""), 1003);
    let pieces = [frame(NOT_FINAL | BINARY, b"{"), frame(FIN | CONTINUATION, b"}")].concat();
    expect_close_code(&server, "binary in pieces", &pieces, 1003);
    let bad: [(&str, &[&[u8]]); 9] = [
        ("a byte that is none", &[b"{\"a\":\"\xff\"}"]),
        ("an overlong slash", &[b"\xc0\xaf"]),
        ("half a character at the end", &[b"{\"a\":\"\xe2\x82"]),
        ("half of a pair", &[b"\xed\xa0\x80"]),
        ("beyond the last character", &[b"\xf4\x90\x80\x80"]),
        ("in the second piece", &[b"{\"a\":\"", b"\xff", b"\"}"]),
        ("cut within a character and wrong", &[b"\xe2", b"\x28\xa1"]),
        ("cut within a character and ended", &[b"\xe2\x82", b""]),
        ("a first byte twice", &[b"\xe2", b"\xe2\x82\xac"]),
    ];
    for (what, pieces) in bad {
        let mut frames = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let end = if at + 1 == pieces.len() { FIN } else { NOT_FINAL };
            frames.extend(frame(end | if at == 0 { TEXT } else { CONTINUATION }, piece));
        }
        expect_close_code(&server, what, &frames, 1007);
    }
    // A character that is cut is none the worse for it.
    let mut ws = WsClient::initialized(&server);
    let message = ping(1).replace("\"ping\"", "\"€\"");
    let at = message.find('€').expect("it is there") + 1;
    let (one, two) = message.as_bytes().split_at(at);
    ws.send(&[frame(NOT_FINAL | TEXT, one), frame(FIN | CONTINUATION, two)].concat());
    assert_eq!(ws.next_message()["error"]["code"], -32601);
}

#[test]
fn message_over_the_limit_closes_the_websocket() {
    let server = TestServer::with_setup(|setup| setup.limits.message_bytes_max = 1000);
    let message = |bytes: usize| format!("{}{}", ping(1), " ".repeat(bytes - ping(1).len()));
    let mut ws = WsClient::open(&server);
    ws.send_text(&message(1000));
    assert_eq!(ws.next_message()["id"], 1, "as long as may be");
    expect_close_code(&server, "one byte more", &text(&message(1001)), 1009);
    expect_close_code(
        &server,
        "announced only",
        &[head(FIN | TEXT, 0x80, 1001), vec![1, 2, 3, 4]].concat(),
        1009,
    );
    expect_close_code(
        &server,
        "2^63 - 1",
        &[head(FIN | TEXT, 0x80, i64::MAX as u64), vec![1, 2, 3, 4]].concat(),
        1009,
    );
    expect_close_code(
        &server,
        "2^64 - 1",
        &[head(FIN | TEXT, 0x80, u64::MAX), vec![1, 2, 3, 4]].concat(),
        1009,
    );
    let pieces =
        [frame(NOT_FINAL | TEXT, &[b' '; 600]), frame(NOT_FINAL | CONTINUATION, &[b' '; 600])].concat();
    expect_close_code(&server, "in pieces", &pieces, 1009);
    // Far more than it takes, all of it sent: the goodbye still arrives.
    let far = [head(FIN | TEXT, 0x80, 8 << 20), vec![0; 8 << 20]].concat();
    expect_close_code(&server, "8 MiB", &far, 1009);
}

#[test]
fn endless_fragments_close_the_websocket() {
    let server = TestServer::start();
    let mut ws = WsClient::open(&server);
    let empty = frame(NOT_FINAL | CONTINUATION, b"").repeat(10_000);
    ws.send(&frame(NOT_FINAL | TEXT, b"{"));
    for _ in 0..14 {
        ws.send(&empty);
    }
    assert_eq!(ws.wait_for_close(), Some(1009));
    server.assert_serving();
}

#[test]
fn close_frames_are_answered() {
    let server = TestServer::start();
    let with = |code: u16, reason: &[u8]| frame(FIN | CLOSE, &[&code.to_be_bytes()[..], reason].concat());
    for (what, frames, expected) in [
        ("no reason", frame(FIN | CLOSE, b""), 1005),
        ("normal", close(1000), 1000),
        ("going away", with(1001, b"bye"), 1001),
        ("of a library", close(3000), 3000),
        ("of an application", close(4999), 4999),
        ("as long as may be", with(1000, &[b'x'; 123]), 1000),
        ("0", close(0), 1002),
        ("999", close(999), 1002),
        ("no code, as a code", close(1005), 1002),
        ("abnormal, as a code", close(1006), 1002),
        ("TLS, as a code", close(1015), 1002),
        ("not yet given", close(1016), 1002),
        ("2999", close(2999), 1002),
        ("5000", close(5000), 1002),
        ("65535", close(65535), 1002),
        ("a reason that is no text", with(1000, b"\xff"), 1007),
        ("and then a message", [close(1000), text(&ping(1))].concat(), 1000),
        ("and then another", [close(1000), close(1001)].concat(), 1000),
    ] {
        expect_close_code(&server, what, &frames, expected);
    }
}

#[test]
fn close_frame_cancels_running_calls() {
    for (what, bye) in [("said", Some(close(1000))), ("not said", None)] {
        let server = TestServer::start();
        let mut ws = WsClient::initialized(&server);
        ws.send_text(&call(1, "hold", r#"{"key":"k"}"#));
        server.provider.expect_started("k");
        match bye {
            Some(bye) => ws.send(&bye),
            None => drop(ws),
        }
        server.provider.expect_dropped("k");
        server.wait_until(what, |status| status.calls_active == 0);
    }
}

/// The server stops reading from a client that does not read its responses, and closes the connection in the end.
#[test]
fn unread_pongs_are_bounded() {
    let server = TestServer::with_setup(|setup| {
        setup.limits.stream_bytes_max = 64 << 10;
        setup.connection_limits.write_stall_timeout_ms = 300;
    });
    let mut ws = WsClient::open(&server);
    let pings = frame(FIN | PING, &[b'x'; 125]).repeat(1000);
    let mut sent = 0_u64;
    while send_raw(&mut ws.conn, &pings) {
        sent += pings.len() as u64;
        assert!(sent < 1 << 30, "it takes what it does not answer");
    }
    server.assert_serving();
}

fn send_raw(conn: &mut Conn, bytes: &[u8]) -> bool {
    std::io::Write::write_all(conn, bytes).is_ok()
}

#[test]
fn silent_client_gets_a_ping_and_is_then_closed() {
    let mut setup = Setup::default();
    setup.limits.keep_alive_ms = 50;
    setup.connection_limits.keep_alive_timeout_ms = 300;
    let server = setup.start();
    let mut silent = WsClient::open(&server);
    let mut there = WsClient::open(&server);
    let mut asked = 0;
    // One answers each time, and outlasts the other many times over.
    for _ in 0..40 {
        assert_eq!(there.read_frame(), Some((FIN | PING, Vec::new())));
        there.send(&frame(FIN | PONG, b""));
    }
    while let Some(ping) = silent.read_frame() {
        assert_eq!(ping, (FIN | PING, Vec::new()));
        asked += 1;
    }
    assert!(asked > 0);
    there.send_text(&ping(1));
    while there.read_frame().expect("it lives").0 != FIN | TEXT {}
}

#[test]
fn incomplete_frame_times_out() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.body_idle_timeout_ms = 300);
    for (what, begun) in [
        ("one byte", &text(&ping(1))[..1]),
        ("half a head", &text(&ping(1))[..4]),
        ("half a message", &text(&ping(1))[..20]),
        ("the first piece", &frame(NOT_FINAL | TEXT, b"{")),
        ("much announced", &[head(FIN | TEXT, 0x80, 4 << 20), vec![1, 2, 3, 4, 5]].concat()),
    ] {
        let mut ws = WsClient::open(&server);
        ws.send(begun);
        assert_eq!(ws.wait_for_close(), None, "{what}");
    }
    // Between messages there is no hurry.
    let mut ws = WsClient::open(&server);
    let mut other = WsClient::open(&server);
    other.send(&text(&ping(1))[..1]);
    assert_eq!(other.wait_for_close(), None);
    ws.send_text(&ping(1));
    assert_eq!(ws.next_message()["id"], 1);
}

/// A byte now and then does not help: the message as a whole has its time.
#[test]
fn slowly_dripping_message_times_out() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.body_total_timeout_ms = 300);
    let mut ws = WsClient::open(&server);
    ws.send(&[head(FIN | TEXT, 0x80, 1 << 20), vec![1, 2, 3, 4]].concat());
    let mut dripped = 0_u32;
    while ws.conn.is_open() {
        ws.send(b"x");
        dripped += 1;
        assert!(dripped < 1 << 20, "a message is read for ever");
        server.assert_serving();
    }
}

#[test]
fn shutdown_sends_a_close_frame_after_the_responses() {
    let mut server = TestServer::start();
    let mut idle = WsClient::initialized(&server);
    let mut busy = WsClient::initialized(&server);
    busy.send_text(&call(1, "hold", r#"{"key":"k"}"#));
    server.provider.expect_started("k");
    server.request_stop();
    assert_eq!(idle.wait_for_close(), Some(1001));
    // Connections are told one after the other, so this one may not know yet.
    loop {
        busy.send_text(&ping(2));
        let reply = busy.next_message();
        assert_eq!(reply["id"], 2, "{reply}");
        if reply["error"]["code"] == -31001 {
            break; // Nothing new begins.
        }
        assert!(reply["result"].is_object(), "{reply}");
    }
    server.provider.release("k", 1);
    let response = busy.next_message();
    assert_eq!(response["result"]["content"][0]["text"], "k is over");
    assert_eq!(busy.wait_for_close(), Some(1001));
    server.wait_stopped();
}

#[test]
fn endless_call_does_not_block_shutdown() {
    let mut server = TestServer::with_setup(|setup| setup.connection_limits.drain_timeout_ms = 400);
    let mut ws = WsClient::initialized(&server);
    ws.send_text(&call(1, "hold", r#"{"key":"k"}"#));
    server.provider.expect_started("k");
    server.request_stop();
    assert_eq!(ws.wait_for_close(), Some(1001));
    server.provider.expect_dropped("k");
    server.wait_stopped();
}

#[test]
fn websockets_count_as_connections() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.connections_max = 2);
    let first = WsClient::open(&server);
    let _second = WsClient::open(&server);
    let mut third = server.connect();
    third.send(&upgrade().to_bytes());
    assert!(third.read_head().is_none(), "there is no room");
    drop(first);
    server.wait_until("there is room again", |_| {
        let mut client = server.connect();
        client.send(&upgrade().to_bytes());
        client.read_head().is_some()
    });
}
