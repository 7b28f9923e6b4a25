//! HTTP/2: the same guards, concurrent calls, and floods that the server must survive.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request};

use crate::client::{HttpRequest, get, ping, post, stateless_call};
use crate::test_server::{Setup, TEST_TIMEOUT, TestServer};

/// A well-behaved connection.
async fn connect(server: &TestServer) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(server.address).await.expect("the door is open");
    let (sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    tokio::spawn(async move {
        // Whatever ends it shows in the requests.
        let _ = connection.await;
    });
    sender
}

/// Sends a request; its `Host` is the authority unless it says otherwise.
async fn send(
    sender: &SendRequest<Bytes>,
    ask: &HttpRequest,
    authority: &str,
) -> Result<(u16, HeaderMap, Vec<u8>), h2::Error> {
    let mut request =
        Request::builder().method(ask.method.as_str()).uri(format!("http://{authority}{}", ask.path));
    for (name, value) in ask.headers.iter().filter(|(name, _)| name != "Host") {
        request = request.header(name, value);
    }
    let request = request.body(()).expect("a request");
    let mut sender = sender.clone().ready().await?;
    let (response, mut body) = sender.send_request(request, ask.body.is_empty())?;
    if !ask.body.is_empty() {
        // A refusal may come before the body is through.
        let _ = body.send_data(ask.body.clone().into(), true);
    }
    let (parts, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok((parts.status.as_u16(), parts.headers, bytes))
}

/// Runs a test with a timeout.
fn run<T>(server: &TestServer, test: impl Future<Output = T>) -> T {
    server
        .runtime
        .block_on(async { tokio::time::timeout(TEST_TIMEOUT, test).await })
        .expect("it ends in time")
}

/// RFC 9113, 8.1.1: a body with another length than declared is a stream error, also if the server does not need the body.
#[test]
fn refused_request_bodies_are_still_validated() {
    let server = TestServer::start();
    run(&server, async {
        let sender = connect(&server).await;
        for path in ["/nowhere", "/health", "/mcp"] {
            let ask = post(ping(1)).with_path(path);
            let lies = ask.with_header("Content-Type", "text/plain").with_header("Content-Length", "1000");
            let failed = send(&sender, &lies, "127.0.0.1").await.expect_err("a stream error");
            assert_eq!(failed.reason(), Some(h2::Reason::PROTOCOL_ERROR), "{path}: {failed}");
        }
    });
    server.assert_serving();
}

#[test]
fn host_and_origin_are_checked_on_http2() {
    let server = TestServer::with_setup(|setup| {
        setup.guard.allowed_hosts = vec!["mcp.example".into()];
        setup.guard.allowed_origins = vec!["https://app.example".into()];
    });
    let here = server.address.to_string();
    run(&server, async {
        let sender = connect(&server).await;
        for (authority, host, origin, expected) in [
            (&*here, "", "", 200),
            ("localhost", "", "", 200),
            ("[::1]:1", "", "", 200),
            ("mcp.example", "", "", 200),
            ("mcp.example", "mcp.example", "", 200),
            ("localhost", "", "https://app.example", 200),
            ("localhost", "", "http://localhost", 200),
            ("evil.example", "", "", 403),
            ("evil.example", "evil.example", "", 403),
            ("evil.example", "localhost", "", 400),
            ("localhost", "evil.example", "", 400),
            ("localhost.", "", "", 403),
            ("localhost", "", "https://evil.example", 403),
            ("localhost", "", "null", 403),
            ("evil.example", "", "https://app.example", 403),
        ] {
            for ask in [post(ping(1)), get("/status"), get("/health")] {
                let mut ask = ask.clone();
                if !host.is_empty() {
                    ask = ask.append_header("host", host);
                }
                if !origin.is_empty() {
                    ask = ask.append_header("origin", origin);
                }
                let (status, ..) = send(&sender, &ask, authority).await.expect("an answer");
                assert_eq!(status, expected, "{} {authority} host {host} origin {origin}", ask.path);
            }
        }
        let twice = post(ping(1)).append_header("host", "localhost").append_header("host", "localhost");
        assert_eq!(send(&sender, &twice, "localhost").await.expect("an answer").0, 400);
    });
}

#[test]
fn http2_bodies_have_the_same_limits() {
    let server = TestServer::with_setup(|setup| setup.limits.message_bytes_max = 1000);
    run(&server, async {
        let sender = connect(&server).await;
        for (body, expected) in [
            (ping(1), 200),
            (format!("{}{}", ping(1), " ".repeat(960)), 200),
            (format!("{}{}", ping(1), " ".repeat(961)), 413),
            ("x".repeat(100_000), 413),
            ("{".to_owned(), 400),
        ] {
            let response = send(&sender, &post(body.clone()), "localhost").await;
            assert_eq!(response.expect("an answer").0, expected, "{} bytes", body.len());
        }
        let plain = post(ping(1)).with_header("Content-Type", "text/plain");
        assert_eq!(send(&sender, &plain, "localhost").await.expect("an answer").0, 415);
    });
}

#[test]
fn hundred_concurrent_calls_on_one_connection() {
    let server = TestServer::start();
    run(&server, async {
        let sender = connect(&server).await;
        let calls: Vec<_> = (0..100)
            .map(|id| {
                let sender = sender.clone();
                tokio::spawn(async move {
                    send(&sender, &stateless_call(id, "hold", r#"{"key":"k"}"#), "localhost").await
                })
            })
            .collect();
        let provider = server.provider.clone();
        // All of them are under way before one is let go.
        tokio::task::spawn_blocking(move || (0..100).for_each(|_| provider.expect_started("k")))
            .await
            .expect("they start");
        // A call counts as active once it has turned out that it waits, just after it has started.
        while server.server().status().calls_active < 100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(server.server().status().calls_active, 100);
        server.provider.release("k", 100);
        for (id, call) in calls.into_iter().enumerate() {
            let (status, _, body) = call.await.expect("no panic").expect("an answer");
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!((status, &body["id"]), (200, &id.into()));
        }
    });
}

#[test]
fn reset_cancels_only_its_own_call() {
    let server = TestServer::start();
    run(&server, async {
        let sender = connect(&server).await;
        let other = tokio::spawn({
            let sender = sender.clone();
            async move { send(&sender, &stateless_call(1, "hold", r#"{"key":"other"}"#), "localhost").await }
        });
        let provider = server.provider.clone();
        tokio::task::spawn_blocking(move || provider.expect_started("other")).await.expect("it starts");
        let reset = tokio::spawn({
            let sender = sender.clone();
            async move { send(&sender, &stateless_call(2, "hold", r#"{"key":"k"}"#), "localhost").await }
        });
        let provider = server.provider.clone();
        tokio::task::spawn_blocking(move || provider.expect_started("k")).await.expect("it starts");
        // Dropping the answer resets its stream.
        reset.abort();
        let provider = server.provider.clone();
        tokio::task::spawn_blocking(move || provider.expect_dropped("k")).await.expect("it is cancelled");
        server.provider.release("other", 1);
        assert_eq!(other.await.expect("no panic").expect("an answer").0, 200);
    });
}

#[test]
fn slow_body_times_out_without_closing_the_connection() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.body_idle_timeout_ms = 200);
    run(&server, async {
        let sender = connect(&server).await;
        let request = Request::post("http://localhost/mcp").header("content-type", "application/json");
        let mut ready = sender.clone().ready().await.expect("it is open");
        let (slow, mut body) =
            ready.send_request(request.body(()).expect("a request"), false).expect("it is sent");
        body.send_data("{".into(), false).expect("it is sent");
        assert_eq!(send(&sender, &post(ping(1)), "localhost").await.expect("an answer").0, 200);
        assert_eq!(slow.await.expect("an answer").status(), 408);
        assert_eq!(send(&sender, &post(ping(2)), "localhost").await.expect("an answer").0, 200);
    });
}

#[test]
fn upgrade_to_h2c_or_websocket_on_post_is_ignored() {
    let server = TestServer::start();
    for upgrade in ["h2c", "websocket"] {
        let ask = post(ping(1))
            .with_header("Connection", "Upgrade, HTTP2-Settings")
            .with_header("Upgrade", upgrade);
        let response = server.send_request(&ask.with_header("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"));
        assert_eq!(response.status, 200, "{upgrade}: it is an HTTP/1.1 request like any other");
    }
}

// The tests below send frames that no library would send.

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Header fields as HPACK literals, neither compressed nor remembered.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            out.push(u8::try_from(text.len()).ok().filter(|n| *n < 127).expect("a short text"));
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

fn health() -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":path", "/health"), (":authority", "localhost")])
}

fn upload() -> Vec<u8> {
    let json = ("content-type", "application/json");
    block(&[(":method", "POST"), (":scheme", "http"), (":path", "/mcp"), (":authority", "localhost"), json])
}

/// A frame that came back.
#[derive(Debug)]
struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// The server closes the connection with an error.
    fn is_goaway(&self) -> bool {
        self.kind == GOAWAY && self.payload.get(4..8) != Some(&[0; 4])
    }

    /// 0x88 is `:status: 200` in the static table.
    fn is_success(&self) -> bool {
        self.kind == HEADERS && self.payload.first() == Some(&0x88)
    }
}

/// A raw connection for invalid frames. A thread reads all responses, so that the server never waits for the client.
struct RawHttp2Client {
    stream: TcpStream,
    received: Receiver<Frame>,
}

impl RawHttp2Client {
    fn connect_to(server: &TestServer) -> Self {
        let stream = TcpStream::connect(server.address).expect("the door is open");
        stream.set_write_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
        let mut input = stream.try_clone().expect("a socket can be shared");
        // More than any of the floods brings back.
        let (sender, received) = sync_channel(1 << 18);
        std::thread::spawn(move || {
            let mut head = [0; 9];
            while input.read_exact(&mut head).is_ok() {
                let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                if input.read_exact(&mut payload).is_err()
                    || sender.try_send(Frame { kind: head[3], stream, payload }).is_err()
                {
                    break;
                }
            }
        });
        let mut raw = Self { stream, received };
        assert!(raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        assert!(raw.send(&frame(SETTINGS, 0, 0, &[])));
        raw
    }

    /// Whether it was sent: the server may have closed the connection.
    fn send(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(error) => {
                let stuck = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
                assert!(!stuck.contains(&error.kind()), "the door neither reads nor hangs up");
                false
            }
        }
    }

    /// Waits for a frame; `None` if the connection ends before it comes.
    fn wait_for(&self, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            match self.received.recv_timeout(2 * TEST_TIMEOUT) {
                Ok(frame) if wanted(&frame) => return Some(frame),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("nothing came, and the connection was not closed"),
            }
        }
    }

    /// Ends it, and says what came back.
    fn end(self) -> Vec<Frame> {
        // It may be closed from the other side already.
        let _ = self.stream.shutdown(Shutdown::Write);
        std::iter::from_fn(|| self.wait_for(|_| true)).collect()
    }
}

#[test]
fn raw_client_gets_a_response() {
    let server = TestServer::start();
    let mut raw = RawHttp2Client::connect_to(&server);
    assert!(raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &health())));
    let response = raw.wait_for(|frame| frame.stream == 1).expect("an answer");
    assert!(response.is_success(), "{response:?}");
    assert!(raw.send(&frame(PING, 0, 0, b"12345678")));
    let pong = raw.wait_for(|frame| frame.kind == PING).expect("an answer");
    assert_eq!(pong.payload, b"12345678");
    assert!(!raw.end().iter().any(Frame::is_goaway));
}

/// SETTINGS_INITIAL_WINDOW_SIZE = 0: the server may send the heads of responses, but no byte of a body.
fn window_zero() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
}

fn post_frames(stream: u32, body: &str) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, &upload());
    [head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

#[test]
fn client_with_window_zero_is_closed_after_the_write_stall() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.write_stall_timeout_ms = 300);
    for (name, request) in [
        ("a response", post_frames(1, &ping(1))),
        ("a stream", {
            let accept = ("accept", "text/event-stream");
            let head = [&upload()[..], &block(&[accept])].concat();
            let body = crate::client::call(1, "hold", r#"{"key":"k"}"#);
            [frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, END_STREAM, 1, body.as_bytes())].concat()
        }),
    ] {
        let mut raw = RawHttp2Client::connect_to(&server);
        assert!(raw.send(&window_zero()));
        assert!(raw.send(&request));
        assert!(raw.wait_for(|frame| frame.stream == 1).is_some_and(|head| head.is_success()), "{name}");
        assert!(raw.wait_for(|_| false).is_none(), "{name}: it is closed");
        server.assert_serving();
        server.wait_until("nothing waits", |_| pending_response_bytes(&server) == 0);
    }
}

fn pending_response_bytes(server: &TestServer) -> usize {
    let status = server.send_request(&get("/status")).json();
    usize::try_from(status["responseBytesPending"].as_u64().expect("a number")).expect("a small number")
}

/// Window 0, 100 streams, each a batch of 64 list requests, on four connections: a few hundred kilobytes that made
/// the server hold gigabytes.
#[test]
fn unread_responses_are_bounded_per_connection_and_in_the_process() {
    let items: Vec<String> =
        (0..64).map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)).collect();
    let batch = format!("[{}]", items.join(","));
    let size = TestServer::start().send_request(&post(batch.clone())).body.len();
    let (connection_bytes_max, bytes_max) = (4 * size, 10 * size);
    let server = TestServer::with_setup(|setup| {
        setup.connection_limits.connection_response_bytes_max = connection_bytes_max;
        setup.connection_limits.response_bytes_max = bytes_max;
    });
    let mut clients = Vec::new();
    for number in 0..4 {
        let mut raw = RawHttp2Client::connect_to(&server);
        assert!(raw.send(&window_zero()));
        // The batches are more than the 64 KiB that a client may send before the server enlarges the window.
        assert!(raw.wait_for(|frame| frame.kind == WINDOW_UPDATE && frame.stream == 0).is_some());
        for stream in 0..100 {
            if !raw.send(&post_frames(2 * stream + 1, &batch)) {
                break;
            }
        }
        let heads: Vec<Frame> =
            std::iter::from_fn(|| raw.wait_for(|frame| frame.kind == HEADERS)).take(100).collect();
        let answered = heads.iter().filter(|head| head.is_success()).count();
        // Two worker threads may each have a response under way when the limit is reached.
        let is_cut = heads.len() < 100;
        assert!(
            answered <= 7 && (answered > 0 || is_cut),
            "{number}: {answered} of {} answered",
            heads.len()
        );
        assert!(pending_response_bytes(&server) <= bytes_max + 2 * size, "{number}");
        server.assert_serving();
        clients.push(raw);
    }
    let is_closed = |raw: &mut RawHttp2Client| {
        !raw.send(&frame(PING, 0, 0, b"12345678")) || raw.wait_for(|frame| frame.kind == PING).is_none()
    };
    let closed = clients.iter_mut().map(is_closed).filter(|closed| *closed).count();
    assert!((1..4).contains(&closed), "{closed} connections closed, no more than necessary");
    for client in &clients {
        // Not just dropped: the reading thread shares the socket. It may be closed from the other side already.
        let _ = client.stream.shutdown(Shutdown::Both);
    }
    server.wait_until("nothing waits", |_| pending_response_bytes(&server) == 0);
}

/// Sends many frames and checks that other clients are served meanwhile. Where the server must close the
/// connection, it sends GOAWAY.
fn flood(what: &str, hangs_up: bool, count: u32, mut next: impl FnMut(u32) -> Vec<u8>) {
    let server = Setup::default().start();
    let mut raw = RawHttp2Client::connect_to(&server);
    let mut sent = 0;
    while sent < count && raw.send(&next(sent)) {
        sent += 1;
        if sent.is_multiple_of(1000) {
            server.assert_serving();
        }
    }
    let frames = raw.end();
    if hangs_up {
        assert!(
            frames.iter().any(Frame::is_goaway) || sent < count,
            "{what}: {sent} sent, {} read",
            frames.len()
        );
    }
    server.assert_serving();
    server.wait_until("nothing is left of it", |status| status.calls_active == 0);
}

#[test]
fn rapid_reset_closes_the_connection() {
    flood("rapid reset", true, 20_000, |i| {
        let stream = 1 + 2 * i;
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream, &health()), reset].concat()
    });
}

#[test]
fn resetting_running_calls_keeps_the_server_available() {
    let body = String::from_utf8(stateless_call(1, "hold", r#"{"key":"k"}"#).body).expect("it is text");
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/mcp"),
        (":authority", "localhost"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "hold"),
    ]);
    flood("reset of calls", false, 5000, |i| {
        let stream = 1 + 2 * i;
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        let data = frame(DATA, END_STREAM, stream, body.as_bytes());
        [frame(HEADERS, END_HEADERS, stream, &head), data, reset].concat()
    });
}

#[test]
fn endless_continuation_frames_close_the_connection() {
    let field = block(&[("x", "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy")]);
    flood("CONTINUATION", true, 100_000, |i| match i {
        0 => frame(HEADERS, END_STREAM, 1, &health()),
        _ => frame(CONTINUATION, 0, 1, &field),
    });
    flood("empty CONTINUATION", true, 100_000, |i| match i {
        0 => frame(HEADERS, END_STREAM, 1, &health()),
        _ => frame(CONTINUATION, 0, 1, &[]),
    });
}

#[test]
fn endless_empty_data_frames_close_the_connection() {
    flood("empty DATA", true, 200_000, |i| match i {
        0 => frame(HEADERS, END_HEADERS, 1, &upload()),
        _ => frame(DATA, 0, 1, &[]),
    });
}

#[test]
fn ping_and_settings_floods_keep_the_server_available() {
    flood("SETTINGS", false, 20_000, |_| frame(SETTINGS, 0, 0, &[]));
    flood("PING", false, 20_000, |i| frame(PING, 0, 0, &u64::from(i).to_be_bytes()));
    flood("WINDOW_UPDATE", false, 20_000, |_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
    flood("unknown frames", false, 20_000, |_| frame(0xfe, 0, 0, b"x"));
}

#[test]
fn protocol_violations_close_the_connection() {
    for (what, bytes) in [
        ("DATA on no stream", frame(DATA, END_STREAM, 0, b"x")),
        ("HEADERS on no stream", frame(HEADERS, END_HEADERS, 0, &health())),
        ("an even stream", frame(HEADERS, END_HEADERS | END_STREAM, 2, &health())),
        ("CONTINUATION of nothing", frame(CONTINUATION, END_HEADERS, 1, &health())),
        ("a PING of the wrong size", frame(PING, 0, 0, b"x")),
        ("SETTINGS on a stream", frame(SETTINGS, 0, 1, &[])),
        ("SETTINGS of the wrong size", frame(SETTINGS, 0, 0, b"x")),
        ("a frame that is too large", frame(DATA, 0, 1, &[0; 20_000])),
        ("a header block that cannot be read", frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 20])),
        ("a window beyond all bounds", frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())),
    ] {
        let server = TestServer::start();
        let mut raw = RawHttp2Client::connect_to(&server);
        raw.send(&bytes);
        assert!(raw.wait_for(Frame::is_goaway).is_some(), "{what}");
        assert!(raw.wait_for(|_| false).is_none(), "{what}: and then it is closed");
        server.assert_serving();
    }
}

/// Requests that are none: each is refused on its own stream, or with the connection.
#[test]
fn malformed_requests_are_never_answered_with_success() {
    let pseudo = [(":method", "GET"), (":scheme", "http"), (":path", "/health"), (":authority", "localhost")];
    let without = |name: &str| block(&pseudo.iter().copied().filter(|(n, _)| *n != name).collect::<Vec<_>>());
    let and = |more: (&str, &str)| block(&[&pseudo[..], &[more]].concat());
    for (what, fields) in [
        ("no method", without(":method")),
        ("no scheme", without(":scheme")),
        ("no path", without(":path")),
        ("no authority", without(":authority")),
        ("two paths", and((":path", "/health"))),
        ("an unknown pseudo-header", and((":evil", "x"))),
        ("a name in capitals", and(("X-Evil", "x"))),
        ("a connection header", and(("connection", "close"))),
        ("a transfer coding", and(("transfer-encoding", "chunked"))),
        ("an upgrade", and(("upgrade", "websocket"))),
        ("a WebSocket by RFC 8441, which nobody was offered", {
            let mut fields = pseudo;
            (fields[0].1, fields[2].1) = ("CONNECT", "/mcp");
            block(&[&fields[..], &[(":protocol", "websocket"), ("sec-websocket-protocol", "mcp")]].concat())
        }),
        ("a line break in a value", and(("x", "a\r\nb: c"))),
        ("a length that is a lie", and(("content-length", "7"))),
        ("an authority with a user", {
            let mut fields = pseudo;
            fields[3].1 = "localhost@evil.example";
            block(&fields)
        }),
    ] {
        let server = TestServer::start();
        let mut raw = RawHttp2Client::connect_to(&server);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields));
        let verdict = raw.wait_for(|frame| frame.stream == 1 || frame.is_goaway());
        assert!(!verdict.as_ref().is_some_and(Frame::is_success), "{what}: {verdict:?}");
        server.assert_serving();
    }
}
