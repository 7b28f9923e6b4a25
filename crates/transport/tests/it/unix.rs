//! The unix socket: whose file it is, who may connect, and that it speaks HTTP and is a pipe.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde_json::Value;
use transport::unix::{BindError, SocketFile};
use transport::{AccessTokens, Guard};

use crate::client::{Client, HANDSHAKE, call, get, in_session, initialize, initialize_message, ping, post};
use crate::conn::Conn;
use crate::test_server::TestServer;
use crate::ws_client::{WsClient, upgrade};

fn bind(path: &Path) -> Result<SocketFile, BindError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let _inside = runtime.enter();
    SocketFile::bind(path)
}

#[test]
fn socket_file_is_private_and_removed_at_shutdown() {
    let mut server = TestServer::start();
    let socket = server.socket_path();
    let file = std::fs::symlink_metadata(&socket).expect("it is there");
    assert!(file.file_type().is_socket());
    assert_eq!(file.mode() & 0o777, 0o600);
    server.request_stop();
    server.wait_stopped();
    assert!(!socket.exists());
}

#[test]
fn stale_socket_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    drop(UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists(), "its file is still there");
    let file = bind(&path).expect("it is replaced");
    assert!(UnixStream::connect(&path).is_ok());
    assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
    drop(file);
    assert!(!path.exists());
}

#[test]
fn used_paths_and_other_files_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let _live = UnixListener::bind(at("live")).expect("a socket");
    drop(UnixListener::bind(at("dead")).expect("a socket"));
    std::fs::write(at("file"), "precious").expect("a file");
    std::fs::create_dir(at("folder")).expect("a folder");
    std::os::unix::fs::symlink(at("dead"), at("link")).expect("a link");
    std::os::unix::fs::symlink(at("nothing"), at("dangling")).expect("a link");
    let before = list_folder(folder.path());
    for (name, reason) in [
        ("live", "another server is already listening there"),
        ("file", "the path exists and is not a socket"),
        ("folder", "the path exists and is not a socket"),
        ("link", "the path exists and is not a socket"),
        ("dangling", "the path exists and is not a socket"),
        ("file/x", "Not a directory"),
        ("no/such/folder", "the folder does not exist"),
        (&"x".repeat(200), "the path is invalid or too long for a unix socket"),
    ] {
        let refused = bind(&at(name)).expect_err(name).to_string();
        assert!(refused.starts_with(reason), "{name}: {refused}");
    }
    assert_eq!(list_folder(folder.path()), before);
    assert_eq!(std::fs::read_to_string(at("file")).expect("it is there"), "precious");
    assert!(UnixStream::connect(at("live")).is_ok(), "it lives");
}

/// Names and inodes of what is in a folder.
fn list_folder(folder: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut all: Vec<_> = entries
        .map(|entry| {
            let inode = std::fs::symlink_metadata(entry.path()).expect("it is there").ino();
            (entry.file_name().to_string_lossy().into_owned(), inode)
        })
        .collect();
    all.sort();
    all
}

/// Somebody moved it away and put something else there: that is not ours to remove.
#[test]
fn replaced_socket_file_is_not_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sock");
    let file = bind(&path).expect("a socket");
    std::fs::rename(&path, folder.path().join("moved")).expect("it can be moved");
    std::fs::write(&path, "precious").expect("a file");
    drop(file);
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "precious");
}

#[test]
fn unix_socket_serves_http() {
    let server = TestServer::start();
    let mut client = server.connect_unix();
    assert_eq!(client.send_request(&get("/health")).status, 200);
    assert_eq!(client.send_request(&get("/status")).status, 200);
    let welcome = client.send_request(&initialize(HANDSHAKE, "{}"));
    let session = welcome.header("mcp-session-id").expect("a session").to_owned();
    assert_eq!(client.send_request(&in_session(&session, call(1, "test_simple_text", "{}"))).status, 200);
    assert_eq!(
        server.send_request(&in_session(&session, ping(2))).status,
        200,
        "the same servers behind both"
    );
    client.open_stream(&in_session(&session, call(3, "test_tool_with_progress", "{}")));
    assert!(client.remaining_events().len() > 1);
    let mut ws = WsClient::over(server.connect_unix(), &upgrade());
    ws.send_text(&ping(4));
    assert_eq!(ws.next_message()["id"], 4, "and from there to a WebSocket");
}

#[test]
fn disconnect_cancels_a_call_over_a_unix_socket() {
    let server = TestServer::start();
    let mut client = server.connect_unix();
    client.send(&crate::client::stateless_call(1, "hold", r#"{"key":"k"}"#).to_bytes());
    server.provider.expect_started("k");
    drop(client);
    server.provider.expect_dropped("k");
}

#[test]
fn host_may_be_empty_but_not_foreign_on_a_unix_socket() {
    let server = TestServer::start();
    for (hosts, origin, expected) in [
        (&["localhost"][..], "", 200),
        (&["127.0.0.1:80"], "", 200),
        (&["[::1]"], "", 200),
        (&[""], "", 200),
        (&["evil.example"], "", 403),
        (&["192.168.0.1"], "", 403),
        (&["door.sock"], "", 403),
        (&["local host"], "", 400),
        (&["/run/door.sock"], "", 400),
        (&[], "", 400),
        (&["", ""], "", 400),
        (&["localhost", "localhost"], "", 400),
        (&["localhost"], "http://localhost", 200),
        (&["localhost"], "https://evil.example", 403),
        (&["localhost"], "null", 403),
        (&[""], "http://", 403),
        (&[""], "http://localhost", 403),
        (&[""], "null", 403),
    ] {
        let mut request = hosts
            .iter()
            .fold(post(ping(1)).without_header("Host"), |request, host| request.append_header("Host", host));
        if !origin.is_empty() {
            request = request.with_header("Origin", origin);
        }
        assert_eq!(server.connect_unix().send_request(&request).status, expected, "{hosts:?} {origin}");
    }
}

/// A connection on which this is sent: everything that comes back until it is closed.
fn raw_response(server: &TestServer, bytes: &[u8]) -> String {
    let mut client = server.connect_unix();
    client.send(bytes);
    String::from_utf8(client.read_to_end()).expect("text")
}

#[test]
fn pipe_is_refused_when_a_token_is_required() {
    let token = Some(AccessTokens::single("s3cret"));
    let server = TestServer::with_setup(|setup| setup.guard = Guard { tokens: token, ..Guard::default() });
    let line = format!("{}\n", ping(1));
    let reply: Value =
        serde_json::from_str(&raw_response(&server, line.as_bytes())).expect("one line of JSON");
    assert_eq!(reply["error"]["code"], -31004, "{reply}");
    assert!(
        reply["error"]["message"].as_str().is_some_and(|reason| reason.contains("HTTP")),
        "says the way out: {reply}"
    );
    let framed = format!("Content-Length: {}\r\n\r\n{}", ping(1).len(), ping(1));
    let reply = raw_response(&server, framed.as_bytes());
    assert!(reply.starts_with("Content-Length: ") && reply.contains("-31004"), "in kind: {reply}");
    assert_eq!(server.connect_unix().send_request(&post(ping(1))).status, 401);
    let shown = post(ping(1)).with_header("Authorization", "Bearer s3cret");
    assert_eq!(server.connect_unix().send_request(&shown).status, 200);
    assert_eq!(server.server().status().calls, 0);
}

#[test]
fn pipe_is_refused_with_several_servers() {
    let server = TestServer::with_setup(|setup| setup.names = &["one", "two"]);
    let reply: Value = serde_json::from_str(&raw_response(&server, b"{}\n")).expect("one line of JSON");
    assert_eq!(reply["error"]["code"], -32600, "{reply}");
    assert!(reply["error"]["message"].as_str().is_some_and(|reason| reason.contains("/mcp/NAME")), "{reply}");
    assert_eq!(server.connect_unix().send_request(&post(ping(1)).with_path("/mcp/two")).status, 200);
}

/// The first bytes tell, however they are cut.
#[test]
fn protocol_is_detected_byte_by_byte() {
    let server = TestServer::start();
    let framed = format!("Content-Length: {}\r\n\r\n{}", ping(1).len(), ping(1));
    for (what, sent, begins) in [
        ("a line", format!("{}\n", ping(1)), "{\"jsonrpc\":\"2.0\",\"id\":1,"),
        ("a line behind empty ones", format!("\r\n \n{}\n", ping(1)), "{\"jsonrpc\":\"2.0\",\"id\":1,"),
        ("a line that is no JSON", "hello\n".into(), "{\"jsonrpc\":\"2.0\""),
        ("a message with a header", framed, "Content-Length: "),
        (
            "HTTP",
            "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".into(),
            "HTTP/1.1 200 OK",
        ),
        (
            "HTTP that nobody speaks",
            "CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\nConnection: close\r\n\r\n".into(),
            "HTTP/1.1 40",
        ),
        ("a line in capitals", "HELLO\r\n\r\n".into(), "{\"jsonrpc\":\"2.0\""),
        ("words in capitals", "NOT JSON\n".into(), "{\"jsonrpc\":\"2.0\""),
        ("a capital and no end", "Hello".into(), "{\"jsonrpc\":\"2.0\""),
        ("HTTP that breaks its rules", "GET /health HTTP/1.1\n\n".into(), "HTTP/1.1 400 "),
    ] {
        let mut client = server.connect_unix();
        for byte in sent.as_bytes() {
            client.send(&[*byte]);
        }
        client.shutdown_write();
        let response = String::from_utf8(client.read_to_end()).expect("text");
        assert!(response.starts_with(begins), "{what}: {response}");
    }
    for (what, sent) in [
        ("nothing", ""),
        ("spaces", "   "),
        ("more of them than are looked at", &" ".repeat(100)),
        ("half a word", "Cont"),
    ] {
        let mut client = server.connect_unix();
        client.send(sent.as_bytes());
        client.shutdown_write();
        let response = String::from_utf8(client.read_to_end()).expect("text");
        assert!(response.is_empty() || response.starts_with("{\"jsonrpc\":"), "{what}: {response}");
    }
    server.assert_serving();
}

#[test]
fn incomplete_line_times_out() {
    let server = TestServer::with_setup(|setup| setup.connection_limits.body_idle_timeout_ms = 300);
    let mut quiet = initialized_pipe(&server);
    for begun in ["{", &ping(1), "Content-Length: 10\r\n\r\n{", "Content-Len"] {
        let mut client = server.connect_unix();
        client.send(begun.as_bytes());
        assert_eq!(client.read_to_end(), b"", "{begun}");
    }
    // Between messages there is no hurry.
    quiet.send(format!("{}\n", ping(2)).as_bytes());
    assert!(quiet.is_open());
}

/// A pipe on which a handshake was made.
fn initialized_pipe(server: &TestServer) -> Client {
    let mut client = server.connect_unix();
    client.send(format!("{}\n", initialize_message(HANDSHAKE)).as_bytes());
    assert!(client.read_until(b"\n").is_some());
    client
}

#[test]
fn shutdown_answers_running_calls_of_a_pipe() {
    let mut server = TestServer::start();
    let (mut idle, mut busy) = (initialized_pipe(&server), initialized_pipe(&server));
    busy.send(format!("{}\n", call(2, "hold", r#"{"key":"k"}"#)).as_bytes());
    server.provider.expect_started("k");
    server.request_stop();
    assert_eq!(idle.read_to_end(), b"");
    server.provider.release("k", 1);
    let rest = String::from_utf8(busy.read_to_end()).expect("text");
    assert!(rest.contains("k is over") && rest.lines().count() == 1, "{rest}");
    server.wait_stopped();
    assert!(!server.socket_path().exists());
}

/// A client that does not read: its news are kept once each, not once for every change. A changed resource does not
/// rebuild the catalog, so thousands of changes take no time.
#[test]
fn unread_subscription_does_not_grow() {
    let server = TestServer::with_setup(|setup| setup.limits.stream_bytes_max = 1000);
    let mut client = server.connect_unix();
    let listen = crate::client::stateless(
        1,
        "subscriptions/listen",
        None,
        r#""notifications":{"resourceSubscriptions":["test://watched-resource"]}"#,
    );
    client.send(&[&listen.body[..], b"\n"].concat());
    server.wait_until("it listens", |status| status.subscriptions == 1);
    // Far more than what fits into the socket and the queue.
    let mut other = server.connect();
    for id in 0..5_000 {
        assert_eq!(other.send_request(&post(call(id, "test_trigger_resource_change", "{}"))).status, 200);
    }
    client.shutdown_write();
    let reply = String::from_utf8(client.read_to_end()).expect("text").lines().count();
    assert!((2..5_000).contains(&reply), "{reply}");
}

/// The file mode keeps others out. If the owner changes it, the server still refuses other users.
#[test]
fn other_users_are_refused() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return; // Only root can act as another user.
    }
    let server = TestServer::start();
    let socket = server.socket_path();
    let open = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    open(server.folder.path(), 0o755).expect("ours to open");
    let health = |uid| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "--unix-socket"]).arg(&socket).arg("http://localhost/health").uid(uid);
        curl.output().map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let Ok(own) = health(0) else { return }; // No curl here.
    assert_eq!(own, r#"{"status":"ok"}"#);
    assert_eq!(health(65534).expect("curl runs"), "", "the file keeps them out");
    open(&socket, 0o666).expect("ours to open");
    assert_eq!(health(65534).expect("curl runs"), "", "and so do we");
    assert_eq!(health(0).expect("curl runs"), own);
    let mut still = Client::new(Conn::unix(&socket));
    assert_eq!(still.send_request(&get("/health")).status, 200);
}
