//! TLS: versions, ALPN, invalid handshakes, timeouts, closing, and a renewed certificate.

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ALL_VERSIONS, ClientConfig, ClientConnection, ProtocolVersion};
use tokio_rustls::TlsConnector;
use transport::http::ConnectionLimits;

use crate::certificates::{CertificateFolder, TestCertificate, trusting_client_config};
use crate::client::{Client, call, get, ping, post, stateless_call};
use crate::conn::Conn;
use crate::test_server::{Setup, TEST_TIMEOUT, TestServer};

fn open() -> TestServer {
    open_with(|_| {})
}

fn open_with(change: impl FnOnce(&mut Setup)) -> TestServer {
    TestServer::with_setup(|setup| {
        setup.certificates = Some(CertificateFolder::new());
        change(setup);
    })
}

fn certificates(server: &TestServer) -> &CertificateFolder {
    server.certificates.as_ref().expect("this door has some")
}

#[test]
fn tls_1_2_and_1_3_work_with_and_without_alpn() {
    let server = open();
    for (version, named) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        for protocols in [&[][..], &["http/1.1"], &["http/1.0", "http/1.1"]] {
            let config = trusting_client_config(&[&certificates(&server).certificate], &[version], protocols);
            let mut client = Client::new(Conn::secured(server.address, config));
            for id in 1..4 {
                let response = client.send_request(&post(call(id, "test_simple_text", "{}")));
                assert_eq!(
                    (response.status, &response.json()["id"]),
                    (200, &id.into()),
                    "{named:?} {protocols:?}"
                );
            }
            let spoken = protocols.last().map(|_| &b"http/1.1"[..]);
            assert_eq!(client.tls().0.alpn_protocol(), spoken, "{protocols:?}");
            assert_eq!(client.tls().0.protocol_version(), Some(named));
        }
    }
}

#[test]
fn alpn_h2_selects_http2() {
    let server = open();
    for versions in [&[&TLS12][..], &[&TLS13], ALL_VERSIONS] {
        let config =
            trusting_client_config(&[&certificates(&server).certificate], versions, &["h2", "http/1.1"]);
        let talk = async {
            let stream = tokio::net::TcpStream::connect(server.address).await.expect("the door is open");
            let name = ServerName::try_from("localhost").expect("a name");
            let stream = TlsConnector::from(config).connect(name, stream).await.expect("a handshake");
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            let (sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
            tokio::spawn(connection);
            for id in 0..20 {
                let ask = post(call(id, "test_simple_text", "{}"));
                let mut request = Request::post("https://localhost/mcp");
                for (name, value) in ask.headers.iter().filter(|(name, _)| name != "Host") {
                    request = request.header(name, value);
                }
                let mut sender = sender.clone().ready().await.expect("it takes more");
                let request = request.body(()).expect("a request");
                let (response, mut body) = sender.send_request(request, false).expect("it is sent");
                body.send_data(Bytes::from(ask.body), true).expect("it is sent");
                let mut response = response.await.expect("an answer");
                assert_eq!(response.status(), 200);
                assert!(response.body_mut().data().await.expect("a body").is_ok());
            }
        };
        server.runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, talk).await }).expect("in time");
    }
}

#[test]
fn handshake_without_a_common_protocol_gets_an_alert() {
    let server = open();
    let stranger = TestCertificate::new();
    let pair = &certificates(&server).certificate;
    for (what, config, expected) in [
        (
            "no protocol in common",
            trusting_client_config(&[pair], ALL_VERSIONS, &["acme-tls/1"]),
            "NoApplicationProtocol",
        ),
        (
            "a certificate nobody trusts",
            trusting_client_config(&[&stranger], ALL_VERSIONS, &[]),
            "invalid peer certificate",
        ),
    ] {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(config, name).expect("a session");
        let mut stream = std::net::TcpStream::connect(server.address).expect("the door is open");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
        let error = session.complete_io(&mut stream).expect_err(what).to_string();
        assert!(error.contains(expected), "{what}: {error}");
        server.assert_serving();
    }
}

/// A ClientHello as clients of that time sent it: this version at most, and no word of a newer one.
fn old_client_hello(version: [u8; 2]) -> Vec<u8> {
    let mut hello = version.to_vec();
    hello.extend([7; 32]);
    hello.push(0);
    hello.extend([0, 4, 0xc0, 0x13, 0x00, 0x2f]);
    hello.extend([1, 0]);
    let mut message = vec![1, 0, 0, hello.len() as u8];
    message.extend(hello);
    let mut record = vec![0x16, 3, 1, 0, message.len() as u8];
    record.extend(message);
    record
}

#[test]
fn older_versions_are_refused_with_an_alert() {
    let server = open();
    for (what, version) in [("SSL 3", [3, 0]), ("TLS 1.0", [3, 1]), ("TLS 1.1", [3, 2])] {
        let mut client = Client::new(Conn::tcp(server.address));
        client.send(&old_client_hello(version));
        client.shutdown_write();
        // An alert, fatal: handshake_failure or protocol_version (RFC 8446, 6.2), and nothing else.
        let rest = client.read_to_end();
        assert_eq!((rest.first(), rest.len()), (Some(&0x15), 7), "{what}: {rest:?}");
        assert!(matches!(rest[5..], [2, 40 | 70]), "{what}: {rest:?}");
    }
    server.assert_serving();
}

#[test]
fn plain_http_on_a_tls_port_gets_a_helpful_error() {
    let server = open();
    for (what, bytes) in [
        ("a GET", get("/health").to_bytes()),
        ("a POST", post(ping(1)).to_bytes()),
        ("a long POST", post(format!("{}{}", ping(1), " ".repeat(30_000))).to_bytes()),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("a letter", b"G".to_vec()),
    ] {
        let mut client = Client::new(Conn::tcp(server.address));
        client.send(&bytes);
        client.shutdown_write();
        let response = client.read_response().expect(what);
        assert_eq!(response.status, 400, "{what}");
        assert_eq!(response.text(), "This port speaks TLS: use https:// in the URL.\n", "{what}");
        assert_eq!(client.read_to_end(), b"", "{what}: and that is all");
    }
    assert_eq!(server.server().status().calls, 0);
    server.assert_serving();
}

/// The first flight of a real client.
fn client_hello(server: &TestServer) -> Vec<u8> {
    let config = certificates(server).client_config();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(config, name).expect("a session");
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).expect("a vector takes everything");
    bytes
}

#[test]
fn invalid_handshake_closes_the_connection() {
    let server = open();
    let hello = client_hello(&server);
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("nothing".into(), Vec::new()),
        ("zeros".into(), vec![0; 100]),
        ("a long record".into(), vec![0x16, 3, 1, 0xff, 0xff]),
        ("an empty record".into(), vec![0x16, 3, 1, 0, 0]),
        ("an alert".into(), vec![0x15, 3, 1, 0, 2, 2, 40]),
        ("data before a handshake".into(), vec![0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5]),
        ("an unknown kind of record".into(), vec![0x99, 3, 3, 0, 1, 0]),
        ("no version of TLS".into(), vec![0x16, 9, 9, 0, 1, 1]),
        (
            "a message without an end".into(),
            [&[0x16, 3, 1, 0x3f, 0xff, 1, 0xff, 0xff, 0xff][..], &[0; 16_379]].concat(),
        ),
        ("a hello, and then noise".into(), [&hello[..], &[0x17; 64]].concat()),
        ("two of them".into(), [&hello[..], &hello[..]].concat()),
        ("SSL 2".into(), vec![0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10]),
    ];
    for cut in [1, 2, 4, 5, 6, 9, 11, 43, hello.len() / 2, hello.len() - 1, hello.len()] {
        cases.push((format!("a hello cut after {cut}"), hello[..cut].to_vec()));
    }
    for at in 0..hello.len().min(120) {
        let mut changed = hello.clone();
        changed[at] ^= 0xff;
        cases.push((format!("a hello with byte {at} changed"), changed));
    }
    for (what, bytes) in cases {
        let mut client = Client::new(Conn::tcp(server.address));
        client.send(&bytes);
        client.shutdown_write();
        let rest = client.read_to_end();
        assert!(!rest.windows(4).any(|four| four == b"HTTP"), "{what}: {}", rest.escape_ascii());
    }
    server.assert_serving();
}

fn start_with_limits(short: impl FnOnce(&mut ConnectionLimits)) -> TestServer {
    open_with(|setup| short(&mut setup.connection_limits))
}

/// Each begins so and then does nothing; each is closed, while others are served.
#[test]
fn incomplete_handshake_times_out() {
    let server = start_with_limits(|timing| timing.header_timeout_ms = 300);
    let hello = client_hello(&server);
    let silent = ["nothing", "a byte", "half a hello", "a hello", "plain HTTP, which then waits"];
    let beginnings = [&[][..], &hello[..1], &hello[..hello.len() / 2], &hello, b"GET / HTTP/1.1\r\n"];
    let mut stalled: Vec<Client> = Vec::new();
    for bytes in beginnings {
        let mut client = Client::new(Conn::tcp(server.address));
        client.send(bytes);
        stalled.push(client);
        server.assert_serving();
    }
    for (what, mut client) in silent.into_iter().zip(stalled) {
        let rest = client.read_to_end();
        assert!(!rest.windows(5).any(|five| five == b" 200 "), "{what}");
        server.assert_serving();
    }
}

/// A byte now and then does not help: the handshake as a whole has its time.
#[test]
fn slowly_dripping_handshake_times_out() {
    let server = start_with_limits(|timing| timing.header_timeout_ms = 300);
    let mut client = Client::new(Conn::tcp(server.address));
    // A record that is almost as long as one may be.
    client.send(&[0x16, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0]);
    let mut dripped = 0_u32;
    while client.is_open() {
        client.send(&[0]);
        dripped += 1;
        assert!(dripped < 16_000, "a handshake is read for ever");
        server.assert_serving();
    }
}

/// The handshake is done, and then comes less than a request.
#[test]
fn incomplete_request_under_tls_times_out() {
    let server = start_with_limits(|timing| {
        timing.header_timeout_ms = 300;
        timing.body_idle_timeout_ms = 300;
    });
    let shaken = || {
        let mut client = server.connect();
        let (session, socket) = client.tls();
        while session.is_handshaking() {
            session.complete_io(socket).expect("a handshake");
        }
        client
    };
    // As it goes over the wire, so that it can be cut.
    let sealed = |client: &mut Client, plain: &[u8]| {
        let mut bytes = Vec::new();
        let (session, _) = client.tls();
        session.writer().write_all(plain).expect("it is held");
        while session.wants_write() {
            session.write_tls(&mut bytes).expect("a vector takes everything");
        }
        bytes
    };
    let request = post(ping(1)).to_bytes();
    let mut waiting: Vec<(&str, Client)> = Vec::new();
    for what in
        ["silence", "half a record", "half a head", "half a body", "half a record of a second request"]
    {
        let mut client = shaken();
        match what {
            "half a record" => {
                let bytes = sealed(&mut client, &request);
                client.tls().1.write_all(&bytes[..bytes.len() / 2]).expect("it is sent");
            }
            "half a head" => client.send(&request[..20]),
            "half a body" => client.send(&request[..request.len() - 10]),
            "half a record of a second request" => {
                client.send(&request);
                assert_eq!(client.read_response().expect("the first is answered").status, 200);
                let bytes = sealed(&mut client, &request);
                client.tls().1.write_all(&bytes[..bytes.len() / 2]).expect("it is sent");
            }
            _ => {}
        }
        waiting.push((what, client));
        server.assert_serving();
    }
    for (what, mut client) in waiting {
        let rest = String::from_utf8_lossy(&client.read_to_end()).into_owned();
        assert!(!rest.contains(" 200 "), "{what}: {rest}");
        server.assert_serving();
    }
}

#[test]
fn modified_record_closes_the_connection() {
    let server = open();
    let mut client = server.connect();
    assert_eq!(client.send_request(&post(ping(1))).status, 200);
    let calls = server.server().status().calls;
    let mut bytes = Vec::new();
    let (session, socket) = client.tls();
    session.writer().write_all(&post(call(2, "test_simple_text", "{}")).to_bytes()).expect("it is held");
    session.write_tls(&mut bytes).expect("a vector takes everything");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    socket.write_all(&bytes).expect("it is sent");
    let error = session.complete_io(socket).expect_err("an alert").to_string();
    assert!(error.contains("BadRecordMac"), "{error}");
    assert_eq!(server.server().status().calls, calls);
    server.assert_serving();
}

/// How a client may leave while its call is under way. Each is the cancellation.
#[test]
fn disconnect_under_tls_cancels_the_call() {
    let server = open();
    for leaves in ["says so", "says so and closes", "closes", "is gone", "sent something else before"] {
        let mut client = server.connect();
        client.send(&stateless_call(1, "hold", r#"{"key":"k"}"#).to_bytes());
        server.provider.expect_started("k");
        let (session, socket) = client.tls();
        match leaves {
            "says so" => {
                session.send_close_notify();
                session.complete_io(socket).expect("it is sent");
            }
            "says so and closes" => client.shutdown_write(),
            "closes" => socket.shutdown(Shutdown::Write).expect("it is open"),
            "sent something else before" => {
                client.send(&get("/health").to_bytes());
                client.shutdown_write();
            }
            _ => drop(client),
        }
        server.provider.expect_dropped("k");
    }
    server.wait_until("nothing is left of them", |status| status.calls_active == 0);
}

#[test]
fn close_notify_marks_the_end_of_a_response() {
    let mut server = open();
    let mut asked_to_close = server.connect();
    assert_eq!(asked_to_close.send_request(&post(ping(1)).with_header("Connection", "close")).status, 200);
    assert_eq!((asked_to_close.read_to_end(), asked_to_close.is_truncated()), (Vec::new(), false));
    let mut busy = server.connect();
    busy.send(&stateless_call(1, "hold", r#"{"key":"k"}"#).to_bytes());
    server.provider.expect_started("k");
    let mut idle = server.connect();
    assert_eq!(idle.send_request(&get("/health")).status, 200);
    server.request_stop();
    assert_eq!(
        (idle.read_to_end(), idle.is_truncated()),
        (Vec::new(), false),
        "whoever waits for nothing is sent away"
    );
    server.provider.release("k", 1);
    assert!(busy.read_response().expect("an answer").text().contains("k is over"));
    assert_eq!((busy.read_to_end(), busy.is_truncated()), (Vec::new(), false));
    server.wait_stopped();
}

#[test]
fn large_requests_and_responses_work_under_tls() {
    let server = open();
    let mut client = server.connect();
    let padded = format!("{}{}", ping(1), " ".repeat(3 << 20));
    assert_eq!(client.send_request(&post(padded)).status, 200);
    let response = client.send_request(&stateless_call(1, "big", r#"{"bytes":33554432}"#));
    assert!(response.body.len() > 32 << 20);
    // Many requests in few records.
    let many: Vec<u8> = (0..500).flat_map(|id| post(ping(id)).to_bytes()).collect();
    client.send(&many);
    for id in 0..500 {
        assert_eq!(client.read_response().expect("an answer").json()["id"], id);
    }
}

/// The certificate that a new connection is shown.
fn presented_certificate(server: &TestServer, config: Arc<ClientConfig>) -> Vec<u8> {
    let mut client = Client::new(Conn::secured(server.address, config));
    assert_eq!(client.send_request(&post(ping(1))).status, 200);
    client.tls().0.peer_certificates().expect("it showed some")[0].to_vec()
}

/// New connections see the new certificate, and the old ones do not see anything of it.
#[test]
fn renewed_certificate_is_used_without_a_restart() {
    let server = open();
    let keys = certificates(&server);
    let mut before = server.connect();
    assert_eq!(before.send_request(&post(ping(1))).status, 200);
    let mut streaming = server.connect();
    streaming.send(&stateless_call(2, "talk", r#"{"key":"k","steps":2}"#).to_bytes());
    server.provider.expect_started("k");
    server.provider.release("k", 1);
    streaming.read_head().expect("an answer");
    assert!(streaming.next_event().is_some());
    let renewed = [TestCertificate::new(), TestCertificate::new()];
    let trusting = trusting_client_config(&[&keys.certificate, &renewed[0], &renewed[1]], ALL_VERSIONS, &[]);
    for pair in &renewed {
        keys.write_files(&pair.cert, &pair.key);
        // The files are checked at most once a second.
        server.wait_until("the new one is shown", |_| {
            presented_certificate(&server, trusting.clone()) == *pair.der
        });
    }
    assert_eq!(before.send_request(&post(ping(2))).status, 200);
    server.provider.release("k", 2);
    assert!(streaming.remaining_events().len() >= 2, "the stream went on");
}
