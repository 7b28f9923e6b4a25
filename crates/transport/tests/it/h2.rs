//! HTTP/2: the same guards, many calls at once, and floods that must not take the door down.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request};

use crate::client::{HttpRequest, get, modern_call, ping, post};
use crate::test_server::{Setup, TEST_TIMEOUT, TestServer};

/// A well-behaved connection.
async fn connect(door: &TestServer) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(door.address).await.expect("the door is open");
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
    let (answer, mut body) = sender.send_request(request, ask.body.is_empty())?;
    if !ask.body.is_empty() {
        // A refusal may come before the body is through.
        let _ = body.send_data(ask.body.clone().into(), true);
    }
    let (parts, mut body) = answer.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok((parts.status.as_u16(), parts.headers, bytes))
}

/// Runs against a door, but not for ever.
fn run<T>(door: &TestServer, test: impl Future<Output = T>) -> T {
    door.runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, test).await }).expect("it ends in time")
}

/// RFC 9113, 8.1.1: a body of another length than was said is a stream error, also where nobody wants the body.
#[test]
fn what_is_refused_is_still_read_to_its_end() {
    let door = TestServer::start();
    run(&door, async {
        let sender = connect(&door).await;
        for path in ["/nowhere", "/health", "/mcp"] {
            let ask = post(ping(1)).with_path(path);
            let lies = ask.with_header("Content-Type", "text/plain").with_header("Content-Length", "1000");
            let failed = send(&sender, &lies, "127.0.0.1").await.expect_err("a stream error");
            assert_eq!(failed.reason(), Some(h2::Reason::PROTOCOL_ERROR), "{path}: {failed}");
        }
    });
    door.assert_serving();
}

#[test]
fn host_and_origin_are_judged_as_ever() {
    let door = TestServer::with_setup(|setup| {
        setup.guard.allowed_hosts = vec!["mcp.example".into()];
        setup.guard.allowed_origins = vec!["https://app.example".into()];
    });
    let here = door.address.to_string();
    run(&door, async {
        let sender = connect(&door).await;
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
fn bodies_have_the_same_limits() {
    let door = TestServer::with_setup(|setup| setup.limits.frame_bytes_max = 1000);
    run(&door, async {
        let sender = connect(&door).await;
        for (body, expected) in [
            (ping(1), 200),
            (format!("{}{}", ping(1), " ".repeat(960)), 200),
            (format!("{}{}", ping(1), " ".repeat(961)), 413),
            ("x".repeat(100_000), 413),
            ("{".to_owned(), 400),
        ] {
            let answer = send(&sender, &post(body.clone()), "localhost").await;
            assert_eq!(answer.expect("an answer").0, expected, "{} bytes", body.len());
        }
        let plain = post(ping(1)).with_header("Content-Type", "text/plain");
        assert_eq!(send(&sender, &plain, "localhost").await.expect("an answer").0, 415);
    });
}

#[test]
fn a_hundred_calls_at_once_on_one_connection() {
    let door = TestServer::start();
    run(&door, async {
        let sender = connect(&door).await;
        let calls: Vec<_> = (0..100)
            .map(|id| {
                let sender = sender.clone();
                tokio::spawn(async move {
                    send(&sender, &modern_call(id, "hold", r#"{"key":"k"}"#), "localhost").await
                })
            })
            .collect();
        let stand = door.provider.clone();
        // All of them are under way before one is let go.
        tokio::task::spawn_blocking(move || (0..100).for_each(|_| stand.expect_started("k")))
            .await
            .expect("they start");
        assert_eq!(door.server().status().calls_active, 100);
        door.provider.release("k", 100);
        for (id, call) in calls.into_iter().enumerate() {
            let (status, _, body) = call.await.expect("no panic").expect("an answer");
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!((status, &body["id"]), (200, &id.into()));
        }
    });
}

#[test]
fn a_reset_cancels_one_call_and_no_other() {
    let door = TestServer::start();
    run(&door, async {
        let sender = connect(&door).await;
        let other = tokio::spawn({
            let sender = sender.clone();
            async move { send(&sender, &modern_call(1, "hold", r#"{"key":"other"}"#), "localhost").await }
        });
        let stand = door.provider.clone();
        tokio::task::spawn_blocking(move || stand.expect_started("other")).await.expect("it starts");
        let reset = tokio::spawn({
            let sender = sender.clone();
            async move { send(&sender, &modern_call(2, "hold", r#"{"key":"k"}"#), "localhost").await }
        });
        let stand = door.provider.clone();
        tokio::task::spawn_blocking(move || stand.expect_started("k")).await.expect("it starts");
        // Dropping the answer resets its stream.
        reset.abort();
        let stand = door.provider.clone();
        tokio::task::spawn_blocking(move || stand.expect_dropped("k")).await.expect("it is cancelled");
        door.provider.release("other", 1);
        assert_eq!(other.await.expect("no panic").expect("an answer").0, 200);
    });
}

#[test]
fn a_slow_body_is_one_request_and_not_the_connection() {
    let door = TestServer::with_setup(|setup| setup.connection_limits.body_idle_timeout_ms = 200);
    run(&door, async {
        let sender = connect(&door).await;
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
fn an_upgrade_is_not_taken_up() {
    let door = TestServer::start();
    for upgrade in ["h2c", "websocket"] {
        let ask = post(ping(1))
            .with_header("Connection", "Upgrade, HTTP2-Settings")
            .with_header("Upgrade", upgrade);
        let answer = door.send_request(&ask.with_header("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"));
        assert_eq!(answer.status, 200, "{upgrade}: it is an HTTP/1.1 request like any other");
    }
}

// What follows sends frames that no library would.

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
    /// The door hangs up because of something.
    fn is_goaway(&self) -> bool {
        self.kind == GOAWAY && self.payload.get(4..8) != Some(&[0; 4])
    }

    /// 0x88 is `:status: 200` in the static table.
    fn is_success(&self) -> bool {
        self.kind == HEADERS && self.payload.first() == Some(&0x88)
    }
}

/// A connection that misbehaves. What comes back is read all the while, so that nobody waits for us.
struct RawHttp2Client {
    stream: TcpStream,
    received: Receiver<Frame>,
}

impl RawHttp2Client {
    fn connect_to(door: &TestServer) -> Self {
        let stream = TcpStream::connect(door.address).expect("the door is open");
        stream.set_write_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
        let mut input = stream.try_clone().expect("a socket can be shared");
        // More than any of the floods brings back.
        let (tell, came) = sync_channel(1 << 18);
        std::thread::spawn(move || {
            let mut head = [0; 9];
            while input.read_exact(&mut head).is_ok() {
                let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                if input.read_exact(&mut payload).is_err()
                    || tell.try_send(Frame { kind: head[3], stream, payload }).is_err()
                {
                    break;
                }
            }
        });
        let mut raw = Self { stream, received: came };
        assert!(raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        assert!(raw.send(&frame(SETTINGS, 0, 0, &[])));
        raw
    }

    /// Whether it could be sent: the other side may have hung up.
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
fn raw_frames_are_understood() {
    let door = TestServer::start();
    let mut raw = RawHttp2Client::connect_to(&door);
    assert!(raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &health())));
    let answer = raw.wait_for(|frame| frame.stream == 1).expect("an answer");
    assert!(answer.is_success(), "{answer:?}");
    assert!(raw.send(&frame(PING, 0, 0, b"12345678")));
    let pong = raw.wait_for(|frame| frame.kind == PING).expect("an answer");
    assert_eq!(pong.payload, b"12345678");
    assert!(!raw.end().iter().any(Frame::is_goaway));
}

/// A flood is so many frames, the first few thousand of which any door may bear. After each, somebody else
/// is served; where the door must hang up, it says why.
fn flood(what: &str, hangs_up: bool, count: u32, mut next: impl FnMut(u32) -> Vec<u8>) {
    let door = Setup::default().start();
    let mut raw = RawHttp2Client::connect_to(&door);
    let mut sent = 0;
    while sent < count && raw.send(&next(sent)) {
        sent += 1;
        if sent.is_multiple_of(1000) {
            door.assert_serving();
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
    door.assert_serving();
    door.wait_until("nothing is left of it", |status| status.calls_active == 0);
}

#[test]
fn a_rapid_reset_is_refused() {
    flood("rapid reset", true, 20_000, |i| {
        let stream = 1 + 2 * i;
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream, &health()), reset].concat()
    });
}

#[test]
fn a_reset_of_calls_under_way_is_bearable() {
    let body = String::from_utf8(modern_call(1, "hold", r#"{"key":"k"}"#).body).expect("it is text");
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
fn headers_without_end_are_refused() {
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
fn empty_data_without_end_is_refused() {
    flood("empty DATA", true, 200_000, |i| match i {
        0 => frame(HEADERS, END_HEADERS, 1, &upload()),
        _ => frame(DATA, 0, 1, &[]),
    });
}

#[test]
fn floods_that_want_answers_are_bearable() {
    flood("SETTINGS", false, 20_000, |_| frame(SETTINGS, 0, 0, &[]));
    flood("PING", false, 20_000, |i| frame(PING, 0, 0, &u64::from(i).to_be_bytes()));
    flood("WINDOW_UPDATE", false, 20_000, |_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
    flood("unknown frames", false, 20_000, |_| frame(0xfe, 0, 0, b"x"));
}

#[test]
fn what_breaks_the_protocol_ends_the_connection() {
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
        let door = TestServer::start();
        let mut raw = RawHttp2Client::connect_to(&door);
        raw.send(&bytes);
        assert!(raw.wait_for(Frame::is_goaway).is_some(), "{what}");
        assert!(raw.wait_for(|_| false).is_none(), "{what}: and then it is closed");
        door.assert_serving();
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
        let door = TestServer::start();
        let mut raw = RawHttp2Client::connect_to(&door);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields));
        let verdict = raw.wait_for(|frame| frame.stream == 1 || frame.is_goaway());
        assert!(!verdict.as_ref().is_some_and(Frame::is_success), "{what}: {verdict:?}");
        door.assert_serving();
    }
}
