//! Bodies and heads that are too long, too deep, malformed or lies: never a success, never a hang.

use serde_json::Value;

use crate::client::{HttpRequest, HttpResponse, ping, post, stateless};
use crate::test_server::TestServer;

const MAX: usize = 4 << 20;

/// A ping whose text is exactly this long.
fn padded(bytes: usize) -> Vec<u8> {
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":""}}"#;
    let x = "x".repeat(bytes - bare.len());
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{x}"}}}}"#).into_bytes()
}

fn chunked(body: &[u8], chunk: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 1024);
    for part in body.chunks(chunk) {
        out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

fn chunked_request(body: &[u8], chunk: usize) -> HttpRequest {
    let ask = post(chunked(body, chunk));
    ask.with_header("Transfer-Encoding", "chunked")
}

#[test]
fn body_size_limit_is_four_mebibytes() {
    let server = TestServer::start();
    for (bytes, expected) in [(MAX - 1, 200), (MAX, 200), (MAX + 1, 413), (MAX * 2, 413)] {
        let body = padded(bytes);
        assert_eq!(body.len(), bytes);
        for (how, ask) in [
            ("with a length", post(body.clone())),
            ("in large chunks", chunked_request(&body, 1 << 20)),
            ("in small chunks", chunked_request(&body, 4001)),
        ] {
            let response = server.send_request(&ask);
            assert_eq!(response.status, expected, "{bytes} bytes {how}");
            assert_eq!(response.error_code(), (expected == 413).then_some(-32600), "{bytes} bytes {how}");
        }
    }
}

#[test]
fn declared_length_over_the_limit_is_refused_before_the_body() {
    let server = TestServer::start();
    for length in ["4194305", "99999999999", "18446744073709551615"] {
        let mut client = server.connect();
        client.send(&post("").with_header("Content-Length", length).head_bytes());
        let response = client.read_response().expect("an answer");
        assert!([400, 413, 431].contains(&response.status), "{length}: {response:?}");
    }
}

/// What reaches us and is no request, with the code that says why. The body is bytes, not text.
fn check(table: &[(&str, Vec<u8>, u16, i64)]) {
    let server = TestServer::start();
    let mut client = server.connect();
    for (what, body, status, code) in table {
        // One connection for all: an error in a body that was read is no reason to hang up.
        let response = client.send_request(&post(body.clone()));
        assert_eq!((response.status, response.error_code()), (*status, Some(*code)), "{what}: {response:?}");
        let no_id = matches!(response.json().get("id"), None | Some(Value::Null));
        assert!(no_id || *code != -32700, "what cannot be read has no id; {what}: {response:?}");
    }
    assert_eq!(client.send_request(&post(ping(9))).json()["id"], 9);
    assert_eq!(server.server().status().calls, 0);
}

fn nested(depth: usize) -> Vec<u8> {
    // The message and its params are two levels.
    let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{open}{close}}}}}"#).into_bytes()
}

#[test]
fn invalid_json_is_a_parse_error() {
    let deep = "[".repeat(100_000).into_bytes();
    let utf8 = |bytes: &[u8]| [br#"{"jsonrpc":"2.0","id":1,"method":"#, bytes, b"}"].concat();
    check(&[
        ("nothing", b" ".to_vec(), 400, -32700),
        ("a word", b"hello".to_vec(), 400, -32700),
        ("cut short", br#"{"jsonrpc":"2.0","id":1,"method":"ping""#.to_vec(), 400, -32700),
        ("two in one", [ping(1), ping(2)].concat().into_bytes(), 400, -32700),
        ("rubbish behind", [ping(1).as_bytes(), b"}"].concat(), 400, -32700),
        ("a zero byte behind", [ping(1).as_bytes(), b"\0"].concat(), 400, -32700),
        ("a byte order mark", [b"\xef\xbb\xbf", ping(1).as_bytes()].concat(), 400, -32700),
        ("UTF-16", ping(1).encode_utf16().flat_map(u16::to_le_bytes).collect(), 400, -32700),
        ("a lone byte", utf8(b"\"\xff\""), 400, -32700),
        ("an overlong slash", utf8(b"\"\xc0\xaf\""), 400, -32700),
        ("a surrogate in UTF-8", utf8(b"\"\xed\xa0\x80\""), 400, -32700),
        ("a character cut in half", utf8(b"\"\xe2\x82\""), 400, -32700),
        ("a lone surrogate escape", utf8(br#""\ud800""#), 400, -32700),
        ("a control character", utf8(b"\"a\nb\""), 400, -32700),
        ("a trailing comma", utf8(br#""ping","x":[1,]"#), 400, -32700),
        ("a comment", utf8(br#""ping"/*x*/"#), 400, -32700),
        ("not a number", utf8(br#""ping","x":NaN"#), 400, -32700),
        ("a leading zero", utf8(br#""ping","x":01"#), 400, -32700),
        ("single quotes", b"{'jsonrpc':'2.0','id':1,'method':'ping'}".to_vec(), 400, -32700),
        ("65 levels", nested(65), 400, -32700),
        ("100,000 brackets", deep.clone(), 400, -32700),
        ("100,000 braces", br#"{"a":"#.repeat(100_000), 400, -32700),
        ("a key twice", utf8(br#""ping","id":2"#), 400, -32700),
        ("a key twice, spelled differently", utf8(br#""ping","\u0069d":2"#), 400, -32700),
        ("a key twice inside", utf8(br#""ping","params":{"a":1,"a":1}"#), 400, -32700),
        ("a key twice deep down", utf8(br#""ping","params":{"a":[[{"b":{"c":0,"c":0}}]]}"#), 400, -32700),
    ]);
}

#[test]
fn json_that_is_not_a_message_is_an_invalid_request() {
    check(&[
        ("null", b"null".to_vec(), 400, -32600),
        ("a number", b"7".to_vec(), 400, -32600),
        ("a string", b"\"ping\"".to_vec(), 400, -32600),
        ("an empty object", b"{}".to_vec(), 400, -32600),
        ("an empty batch", b"[]".to_vec(), 400, -32600),
        ("another version of JSON-RPC", br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.to_vec(), 400, -32600),
        ("no version of JSON-RPC", br#"{"method":"ping","x":1}"#.to_vec(), 400, -32600),
        ("an id of null", br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_vec(), 400, -32600),
        ("an id with a fraction", br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#.to_vec(), 400, -32600),
        ("an id that is a list", br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#.to_vec(), 400, -32600),
        ("a key in another case", br#"{"jsonrpc":"2.0","Method":"ping","x":1}"#.to_vec(), 400, -32600),
        ("a key and a zero", br#"{"jsonrpc":"2.0","method\u0000":"ping"}"#.to_vec(), 400, -32600),
    ]);
}

#[test]
fn json_depth_limit_is_64() {
    let server = TestServer::start();
    assert_eq!(server.send_request(&post(nested(64))).status, 200);
    assert_eq!(server.send_request(&post(nested(65))).status, 400);
}

#[test]
fn response_id_equals_request_id_exactly() {
    let server = TestServer::start();
    for id in ["0", "-7", "9007199254740993", "18446744073709551616", r#""""#, r#""é\u0000\"""#] {
        let response =
            server.send_request(&post(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)));
        assert_eq!(response.status, 200, "{id}");
        assert!(response.text().contains(&format!(r#""id":{id},"#)), "{id}: {}", response.text());
    }
}

/// Sends bytes as they are, and says what came back until the connection was closed. The client says that
/// it has no more to send, so a server that waits for more sees the end.
fn raw_statuses(server: &TestServer, bytes: &[u8]) -> Vec<u16> {
    let mut client = server.connect();
    client.send(bytes);
    client.shutdown_write();
    let mut answers = Vec::new();
    while let Some(HttpResponse { status, .. }) = client.read_response() {
        answers.push(status);
    }
    answers
}

/// `*` is a ping as a body of 40 bytes, `|` a line break. None of these may be taken for a request.
fn expect_rejected(table: &[(&str, &str)]) {
    let server = TestServer::start();
    let body = ping(1);
    assert_eq!(body.len(), 40);
    for (what, text) in table {
        let bytes = text.replace('|', "\r\n").replace('*', &body);
        let answers = raw_statuses(&server, bytes.as_bytes());
        assert!(answers.iter().all(|status| *status >= 400), "{what}: {answers:?}");
        assert!(answers.len() <= 1, "nothing is believed behind a lie; {what}: {answers:?}");
        server.assert_serving();
    }
}

#[test]
fn ambiguous_or_incomplete_requests_are_never_answered_as_valid() {
    const HEAD: &str = "POST /mcp HTTP/1.1|Host: 127.0.0.1|Content-Type: application/json|";
    let with = |rest: &str| format!("{HEAD}{rest}");
    let table = [
        ("half a body", with("Content-Length: 41||*")),
        ("no body at all", with("Content-Length: 40||")),
        ("half a head", HEAD.to_owned()),
        ("half a chunk", with("Transfer-Encoding: chunked||29|*")),
        ("no last chunk", with("Transfer-Encoding: chunked||28|*|")),
        ("a chunk that is longer than it says", with("Transfer-Encoding: chunked||20|*|0||")),
        ("a chunk size that is no number", with("Transfer-Encoding: chunked||zz|*|0||")),
        ("a chunk size beyond all bounds", with("Transfer-Encoding: chunked||ffffffffffffffffff|*|0||")),
        ("a negative chunk size", with("Transfer-Encoding: chunked||-28|*|0||")),
        ("two lengths that differ", with("Content-Length: 40|Content-Length: 0||*")),
        ("a list of lengths that differ", with("Content-Length: 40, 0||*")),
        ("a length that is no number", with("Content-Length: x||*")),
        ("a length with a sign", with("Content-Length: +40||*")),
        ("a negative length", with("Content-Length: -1||*")),
        ("a length in hexadecimal", with("Content-Length: 0x28||*")),
        ("a coding that is not known", with("Transfer-Encoding: identity||*")),
        ("chunked, but not last", with("Transfer-Encoding: chunked, gzip||28|*|0||")),
        ("a header that goes on in the next line", with("X-A: b| c|Content-Length: 40||*")),
        ("a space before the colon", with("Content-Length : 40||*")),
        ("a space before the name", with(" Content-Length: 40||*")),
        ("a header without a colon", with("Content-Length 40||*")),
        ("a header without a name", with(": x|Content-Length: 40||*")),
        ("a zero byte in a header", with("X-A: a\0b|Content-Length: 40||*")),
        ("a lone CR in a header", with("X-A: a\rb|Content-Length: 40||*")),
        ("no such version", "POST /mcp HTTP/9.9|Host: 127.0.0.1||".to_owned()),
        ("no version", "GET /health||".to_owned()),
        ("no path", "GET HTTP/1.1|Host: 127.0.0.1||".to_owned()),
        ("a space in the path", "GET /hea lth HTTP/1.1|Host: 127.0.0.1||".to_owned()),
        ("a zero byte in the path", "GET /hea\0lth HTTP/1.1|Host: 127.0.0.1||".to_owned()),
        ("no HTTP at all", "hello||".to_owned()),
        ("another protocol", "\x16\x03\x01\x02\0\x01\0\x01\u{fc}||".to_owned()),
    ];
    let table: Vec<(&str, &str)> = table.iter().map(|(what, text)| (*what, text.as_str())).collect();
    expect_rejected(&table);
}

/// RFC 9112, 6.3: a server may go by the chunks alone when there is a length too, but "MUST close the
/// connection after responding": what follows may be meant as part of the body.
#[test]
fn nothing_is_read_after_content_length_with_chunked_encoding() {
    let server = TestServer::start();
    let chunks = String::from_utf8(chunked(ping(1).as_bytes(), 64)).expect("it is text");
    let head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
    let behind = "GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    for both in [
        "Content-Length: 40\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let request = format!("{head}{both}\r\n{chunks}{behind}");
        assert_eq!(raw_statuses(&server, request.as_bytes()), [400], "{both}");
        assert_eq!(
            raw_statuses(&server, format!("{behind}{request}").as_bytes()),
            [200, 400],
            "behind another: {both}"
        );
    }
}

/// RFC 9112, 2.2: "a recipient MAY recognize a single LF as a line terminator". We do not: a proxy in front of us
/// may have read one request where we would read two.
#[test]
fn bare_line_feeds_are_refused() {
    let server = TestServer::start();
    let body = ping(1);
    let behind = "GET /status HTTP/1.1\nHost: 127.0.0.1\n\n";
    let length = body.len() + behind.len();
    let head = "POST /mcp HTTP/1.1\nHost: 127.0.0.1\nContent-Type: application/json\n";
    for request in [
        format!("{head}Content-Length: {length}\n\n{body}{behind}"),
        format!("{head}Transfer-Encoding: chunked\n\n28\n{body}\n0\n\n"),
        "GET /status HTTP/1.1\r\nHost: 127.0.0.1\nX: y\r\n\r\n".to_owned(),
        "GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\n".to_owned(),
        behind.to_owned(),
    ] {
        assert_eq!(raw_statuses(&server, request.as_bytes()), [400], "{request:?}");
        let first = "GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        assert_eq!(
            raw_statuses(&server, format!("{first}{request}").as_bytes()),
            [200, 400],
            "behind another: {request:?}"
        );
    }
    // A body may have line feeds, and so may the next head's neighbours.
    let spread = body.replace(',', ",\n");
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.send_request(&post(spread.clone())).status, 200);
    }
}

/// RFC 9112, 7.1.1: what is behind the size of a chunk is a list of names and values, or nothing.
#[test]
fn chunked_bodies_are_parsed_strictly() {
    let server = TestServer::start();
    let head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
    let (body, behind) = (ping(1), "GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    let size = format!("{:x}", body.len());
    for (line, last, expected) in [
        ("\r\n", "0\r\n\r\n", &[200, 200][..]),
        (";a;b=c;d=\"e;\\\"\"\r\n", "0;f\r\nX: y\r\n\r\n", &[200, 200]),
        (" \r\n", "0\r\n\r\n", &[400]),
        (";\r\n", "0\r\n\r\n", &[400]),
        (";a=\"\r\n", "0\r\n\r\n", &[400]),
        (" a\r\n", "0\r\n\r\n", &[400]),
        ("\n", "0\r\n\r\n", &[400]),
        ("\r\n", "0 \r\n\r\n", &[400]),
        ("\r\n", "0\r\nX: y\nZ: z\r\n\r\n", &[400]),
    ] {
        let request = format!("{head}Transfer-Encoding: chunked\r\n\r\n{size}{line}{body}\r\n{last}{behind}");
        assert_eq!(raw_statuses(&server, request.as_bytes()), expected, "{line:?} {last:?}");
    }
}

/// A client that asks for an upgrade may continue in another protocol: its next bytes are never read as requests.
#[test]
fn ignored_upgrade_closes_the_connection() {
    let server = TestServer::start();
    let asks = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let behind = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    assert_eq!(raw_statuses(&server, format!("{asks}{behind}").as_bytes()), [200]);
}

#[test]
fn request_head_size_is_limited() {
    let server = TestServer::start();
    let with = |count: usize, bytes: usize| {
        let ask = post(ping(1));
        (0..count).fold(ask, |ask, i| ask.append_header(&format!("X-{i}"), &"v".repeat(bytes)))
    };
    for (what, ask, ok) in [
        ("some headers", with(90, 10), true),
        ("8 KiB in one", with(1, 8 << 10), true),
        ("12 KiB in all", with(12, 1 << 10), true),
        ("16 KiB in one", with(1, 16 << 10), false),
        ("16 KiB in all", with(64, 256), false),
        ("1 MiB", with(1, 1 << 20), false),
        ("101 headers", with(98, 1), false),
        ("1000 headers", with(1000, 1), false),
        ("a path of 15 KiB", post(ping(1)).with_path(&format!("/mcp?{}", "x".repeat(15 << 10))), true),
        ("a path of 20 KiB", post(ping(1)).with_path(&format!("/mcp?{}", "x".repeat(20 << 10))), false),
    ] {
        if ok {
            assert_eq!(server.send_request(&ask).status, 200, "{what}");
        } else {
            let answers = raw_statuses(&server, &ask.to_bytes());
            // A server that closes on a flood may do so before its response can be read.
            assert!(answers.iter().all(|status| [400, 414, 431].contains(status)), "{what}: {answers:?}");
        }
        server.assert_serving();
    }
}

#[test]
fn headers_that_mirror_the_body_must_match_and_not_repeat() {
    let server = TestServer::start();
    let call = || {
        stateless(1, "tools/call", Some("test_simple_text"), r#""name":"test_simple_text","arguments":{}"#)
    };
    for (what, ask, status) in [
        ("the same", call(), 200),
        ("no version", call().without_header("MCP-Protocol-Version"), 400),
        ("two versions", call().append_header("MCP-Protocol-Version", "2026-07-28"), 400),
        ("another version", call().with_header("MCP-Protocol-Version", "2025-11-25"), 400),
        ("no method", call().without_header("Mcp-Method"), 400),
        ("another method", call().with_header("Mcp-Method", "tools/list"), 400),
        ("two methods", call().append_header("Mcp-Method", "tools/call"), 400),
        ("no name", call().without_header("Mcp-Name"), 400),
        ("another name", call().with_header("Mcp-Name", "test_image_content"), 400),
        ("two names", call().append_header("Mcp-Name", "test_simple_text"), 400),
        ("the name in base64", call().with_header("Mcp-Name", "=?base64?dGVzdF9zaW1wbGVfdGV4dA==?="), 200),
        ("bad base64", call().with_header("Mcp-Name", "=?base64?dGVzdF9zaW1wbGVfdGV4dA?="), 400),
    ] {
        let response = server.send_request(&ask);
        assert_eq!(response.status, status, "{what}: {response:?}");
        if status != 200 {
            assert_eq!(response.error_code(), Some(-32020), "{what}");
        }
    }
}

/// hyper refuses these itself, without a body.
#[test]
fn requests_that_hyper_refuses_get_a_json_rpc_error() {
    let server = TestServer::start();
    let headers = "X: y\r\n".repeat(200);
    for (name, sent, status) in [
        ("not HTTP", "hello\r\n\r\n".to_owned(), 400),
        ("a bad header", "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\na b: c\r\n\r\n".to_owned(), 400),
        ("too many headers", format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n"), 431),
    ] {
        let mut client = server.connect();
        client.send(sent.as_bytes());
        let response = client.read_response().unwrap_or_else(|| panic!("{name}: no answer"));
        assert_eq!((response.status, response.error_code()), (status, Some(-32600)), "{name}: {response:?}");
        assert_eq!(response.header("content-type"), Some("application/json"), "{name}");
        assert!(client.read_to_end().is_empty(), "{name}: nothing follows");
    }
    server.assert_serving();
}
