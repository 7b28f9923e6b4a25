//! Plain requests, which hyper does not see, between others, which it does; and heads that are accepted again without
//! being read again.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use host::{Config, Server};
use serde_json::Value;
use spile_core::Limits;
use testkit::FakePlatform;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::fuzzing::{self, PlainRequests};
use transport::http::{ConnectionLimits, HttpService};
use transport::{AccessTokens, AuthThrottle, Guard};

use crate::certificates::CertificateFolder;
use crate::client::{Client, HttpRequest, call, get, ping, post, stateless_call};
use crate::test_server::TestServer;

/// Reads one response for each id; `Null` for a response without one.
fn expect_ids(client: &mut Client, ids: &[Value]) {
    for id in ids {
        let response = client.read_response().unwrap_or_else(|| panic!("no answer to {id}"));
        assert_eq!((response.status, &response.json()["id"]), (200, id), "{response:?}");
    }
}

fn chunked(body: &str) -> Vec<u8> {
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    post(chunks).with_header("Transfer-Encoding", "chunked").to_bytes()
}

#[test]
fn plain_and_other_requests_on_one_connection_are_answered_in_order() {
    let plain = TestServer::start();
    let secured = TestServer::with_setup(|setup| setup.certificates = Some(CertificateFolder::new()));
    let echo = stateless_call(3, "test_simple_text", "{}").to_bytes();
    let health = get("/health").to_bytes();
    let requests: Vec<(Value, Vec<u8>)> = vec![
        (1.into(), post(ping(1)).to_bytes()),
        (Value::Null, health.clone()),
        (3.into(), echo),
        (4.into(), chunked(&ping(4))),
        (5.into(), post(call(5, "big", r#"{"bytes":100000}"#)).to_bytes()),
        (6.into(), post(ping(6)).with_path("/mcp?x=y").to_bytes()),
        (7.into(), post(format!("{}{}", ping(7), " ".repeat(30_000))).to_bytes()),
        (8.into(), post(ping(8)).to_bytes()),
        (Value::Null, health),
        (10.into(), post(ping(10)).to_bytes()),
    ];
    for (how, mut client) in
        [("TCP", plain.connect()), ("a unix socket", plain.connect_unix()), ("TLS", secured.connect())]
    {
        eprintln!("{how}, one after the other");
        for (id, request) in &requests {
            client.send(request);
            expect_ids(&mut client, std::slice::from_ref(id));
        }
        eprintln!("{how}, all at once");
        let all: Vec<u8> = requests.iter().flat_map(|(_, request)| request.clone()).collect();
        client.send(&all);
        let ids: Vec<Value> = requests.iter().map(|(id, _)| id.clone()).collect();
        expect_ids(&mut client, &ids);
    }
}

#[test]
fn plain_requests_never_reach_hyper_before_or_after_others_that_do() {
    let plain = TestServer::start();
    let secured = TestServer::with_setup(|setup| setup.certificates = Some(CertificateFolder::new()));
    for (how, server, mut client) in [
        ("TCP", &plain, plain.connect()),
        ("a unix socket", &plain, plain.connect_unix()),
        ("TLS", &secured, secured.connect()),
    ] {
        let before = server.handovers.count();
        for (request, handovers) in [
            (post(ping(1)), 0),
            (stateless_call(2, "test_simple_text", "{}"), 0),
            (get("/health"), 1),
            // It comes back for the next one.
            (post(ping(3)), 1),
            (post(ping(4)), 1),
            (post(format!("{}{}", ping(5), " ".repeat(30_000))), 2),
            (stateless_call(6, "test_simple_text", "{}"), 2),
        ] {
            assert_eq!(client.send_request(&request).status, 200, "{how}");
            assert_eq!(server.handovers.count() - before, handovers, "{how}: {request:?}");
        }
    }
}

#[test]
fn a_request_behind_a_slow_call_waits_for_it() {
    let server = TestServer::start();
    let mut client = server.connect();
    let json = |request: HttpRequest| request.with_header("Accept", "application/json").to_bytes();
    client.send(&[json(stateless_call(1, "hold", r#"{"key":"k"}"#)), json(post(ping(2)))].concat());
    server.provider.expect_started("k");
    assert!(client.is_silent());
    server.provider.release("k", 1);
    expect_ids(&mut client, &[1.into(), 2.into()]);
}

/// The stream is hyper's; the requests around it are not.
#[test]
fn a_stream_between_plain_requests_is_complete() {
    let server = TestServer::start();
    let mut client = server.connect();
    for round in 0..3 {
        assert_eq!(client.send_request(&post(ping(1))).status, 200, "round {round}");
        let talk = r#""name":"talk","arguments":{"key":"k","steps":2},"_meta":{"progressToken":"p"}"#;
        let talk = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{{talk}}}}}"#);
        server.provider.release("k", 3);
        let head = client.open_stream(&post(talk));
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        let events = client.remaining_events();
        assert_eq!(events.last().expect("an answer").json()["id"], 2, "round {round}");
        assert_eq!(events.len(), 3, "round {round}: {events:?}");
        server.provider.expect_started("k");
        server.provider.expect_ended("k");
    }
}

#[test]
fn a_head_that_was_accepted_is_refused_once_its_token_is_revoked() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("token");
    std::fs::write(&path, "first-token\n").expect("a file can be written");
    let tokens = AccessTokens::from_file(&path).expect("a token");
    let server = TestServer::with_setup(|setup| {
        setup.guard = Guard { tokens: Some(tokens.clone()), ..Guard::default() };
    });
    let request = post(ping(1)).with_header("Authorization", "Bearer first-token");
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.send_request(&request).status, 200);
    }
    std::fs::write(&path, "second-token\n").expect("a file can be written");
    tokens.reload().expect("a token");
    client.send(&request.to_bytes());
    // Or the connection is closed already, because of the same change.
    let status = client.read_response().map(|response| response.status);
    assert!(matches!(status, Some(401) | None), "{status:?}");
}

#[test]
fn a_head_that_was_accepted_is_refused_once_its_token_has_expired() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("tokens.json");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let expires_ms = u64::try_from(now.as_millis()).expect("this century") + 1500;
    let expires = spile_core::calendar::DateTime::from_unix_ms(expires_ms).expect("a date");
    let text = format!(r#"{{"tokens":[{{"token":"the-token","subject":"ada","expires":"{expires}"}}]}}"#);
    std::fs::write(&path, text).expect("a file can be written");
    let server = TestServer::with_setup(|setup| {
        let tokens = AccessTokens::from_file(&path).expect("a token");
        setup.guard = Guard { tokens: Some(tokens), ..Guard::default() };
    });
    let request = post(ping(1)).with_header("Authorization", "Bearer the-token").to_bytes();
    let mut client = server.connect();
    loop {
        client.send(&request);
        match client.read_response().map(|response| response.status) {
            Some(200) => {}
            // Or the connection is closed already, because of the same end.
            Some(401) | None => break,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_head_that_was_accepted_waits_once_its_address_is_throttled() {
    let tokens = Some(AccessTokens::single("s3cret"));
    let throttle = AuthThrottle::new(3);
    let server = TestServer::with_setup(|setup| setup.guard = Guard { tokens, throttle, ..Guard::default() });
    let with_token = |token: &str| post(ping(1)).with_header("Authorization", &format!("Bearer {token}"));
    let mut client = server.connect();
    assert_eq!(client.send_request(&with_token("s3cret")).status, 200);
    let mut guesser = server.connect();
    for guess in 0..10 {
        assert_ne!(guesser.send_request(&with_token(&format!("guess{guess}"))).status, 200);
    }
    assert_eq!(client.send_request(&with_token("s3cret")).status, 429);
}

/// Heads of all sizes in turn: those that are remembered, those that are forgotten for others, and those that are too long.
#[test]
fn heads_that_are_not_kept_are_accepted_each_time() {
    let server = TestServer::start();
    let mut client = server.connect();
    for round in 0..3 {
        for bytes in [10, 1_500, 1_600, 1_700, 3_900, 5_000, 7_500, 20] {
            let request = post(ping(round)).with_header("X-Filler", &"f".repeat(bytes));
            for _ in 0..2 {
                assert_eq!(client.send_request(&request).status, 200, "{bytes} bytes, round {round}");
            }
        }
    }
}

#[test]
fn a_head_is_accepted_again_only_if_nothing_but_its_length_differs() {
    let server = TestServer::start();
    let mut client = server.connect();
    let first = post(ping(1)).with_header("Origin", &format!("http://{}", server.address));
    let host = |request: HttpRequest| request.with_header("Host", &server.address.to_string());
    for (what, request, status) in [
        ("the first", host(first.clone()), 200),
        ("the same", host(first.clone()), 200),
        (
            "a longer body",
            host(post(ping(123_456)).with_header("Origin", &format!("http://{}", server.address))),
            200,
        ),
        ("another origin", host(first.clone().with_header("Origin", "https://evil.example")), 403),
        ("another host", first.clone().with_header("Host", "evil.example"), 403),
        ("another type", host(first.clone().with_header("Content-Type", "text/plain")), 415),
        ("another path", host(first.clone().with_path("/other")), 404),
        ("a header more", host(first.clone().append_header("Origin", "null")), 403),
        ("the first again", host(first), 200),
    ] {
        assert_eq!(client.send_request(&request).status, status, "{what}");
    }
}

/// A connection that breaks once its client has sent these bytes.
#[derive(Clone)]
struct BreakingStream {
    bytes: Vec<u8>,
}

impl AsyncRead for BreakingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        buf.put_slice(&std::mem::take(&mut self.bytes));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BreakingStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Why a connection has failed that breaks after these requests.
fn failure_after(requests: &[Vec<u8>]) -> String {
    let config = Config::new("one", "1", Limits::default(), Arc::new(FakePlatform::new(1)));
    let service = HttpService {
        servers: vec![Server::new(config, Vec::new())],
        guard: Guard::default(),
        connection_limits: ConnectionLimits::default(),
        tls: None,
        http_sse: false,
        failed_servers: Vec::new(),
        page: None,
        has_main_server: true,
        directory: None,
        admin: None,
    };
    let stream = BreakingStream { bytes: requests.concat() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let served = runtime.block_on(fuzzing::serve_http1(Arc::new(service), stream, PlainRequests::FastPath));
    served.expect_err("the connection breaks").to_string()
}

#[test]
fn a_connection_that_breaks_says_whether_it_had_served_requests() {
    let ping = post(ping(1)).to_bytes();
    for (requests, expected) in [
        (vec![], "before the first request: connection reset"),
        (vec![ping.clone()], "connection reset"),
        (vec![ping.clone(), ping], "connection reset"),
    ] {
        assert_eq!(failure_after(&requests), expected);
    }
}
