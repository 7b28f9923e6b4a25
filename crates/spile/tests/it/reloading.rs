//! Reloads, on every transport and in both eras; each subscriber is notified once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use serde_json::Value;
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::{Message, WebSocket};

use crate::harness::{HttpServer, StdioServer, TEST_TIMEOUT, TestProject, spawn_line_reader};

const PEOPLE: &[u8] = b"id,name\n1,Ada\n2,Bea\n";

fn manifest(description: &str) -> String {
    format!(
        "[server]\nname = \"people\"\n\n[sources.data]\nkind = \"csv\"\npath = \"people.csv\"\n\n\
         [collections.people]\nsource = \"data\"\nkey = \"id\"\ndescription = \"{description}\"\n"
    )
}

fn project() -> TestProject {
    TestProject::new(&[("people.csv", PEOPLE), ("spile.toml", manifest("One.").as_bytes())])
}

pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
const LISTEN: &str = r#"{"jsonrpc":"2.0","id":"ear","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},META}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;
const CHANGED: &str = "notifications/tools/list_changed";

/// A channel that client and server share.
trait MessageChannel {
    fn send(&mut self, message: &str);

    fn next(&mut self) -> String;

    /// Sends a request. Returns the response and the messages before it.
    fn request(&mut self, message: &str) -> (String, Vec<String>) {
        self.send(message);
        let mut before = Vec::new();
        loop {
            let line = self.next();
            if line.contains("\"result\"") || line.contains("\"error\"") {
                return (line, before);
            }
            before.push(line);
        }
    }
}

impl MessageChannel for StdioServer {
    fn send(&mut self, message: &str) {
        self.send(message);
    }

    fn next(&mut self) -> String {
        self.next()
    }
}

/// A unix socket that is a pipe.
struct SocketChannel {
    stream: UnixStream,
    lines: Receiver<String>,
}

impl MessageChannel for SocketChannel {
    fn send(&mut self, message: &str) {
        writeln!(self.stream, "{message}").expect("it accepts input");
    }

    fn next(&mut self) -> String {
        self.lines.recv_timeout(TEST_TIMEOUT).expect("it says something")
    }
}

impl MessageChannel for WebSocket<TcpStream> {
    fn send(&mut self, message: &str) {
        self.send(Message::text(message)).expect("it accepts input");
    }

    fn next(&mut self) -> String {
        loop {
            if let Message::Text(text) = self.read().expect("it says something") {
                return text.to_string();
            }
        }
    }
}

/// Subscribes in both eras on one channel.
fn each_era_is_notified_once(place: &TestProject, line: &mut dyn MessageChannel) {
    let (greeting, _) = line.request(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    );
    assert!(greeting.contains(r#""listChanged":true"#), "{greeting}");
    line.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    line.send(&LISTEN.replace("META", META));
    assert!(line.next().contains("acknowledged"));
    for round in 1..=3 {
        place.write("spile.toml", manifest(&format!("Round {round}.")).as_bytes());
        // One for the handshake era, and one for the subscription, with its id.
        let reply = [line.next(), line.next()];
        assert!(reply.iter().all(|line| line.contains(CHANGED)), "{reply:?}");
        assert_eq!(reply.iter().filter(|line| line.contains("subscriptionId")).count(), 1, "{reply:?}");
        let (list, before) = line.request(LIST);
        assert_eq!(before, [""; 0], "one notification for each change");
        assert!(list.contains(&format!("Round {round}.")), "{list}");
    }
}

#[test]
fn over_stdio_each_era_is_notified_once() {
    let place = project();
    let mut pipe = StdioServer::open(&mut place.spile(&["serve"]));
    each_era_is_notified_once(&place, &mut pipe);
}

#[test]
fn over_a_unix_socket_each_era_is_notified_once() {
    let place = project();
    let _served = HttpServer::start_and_wait_for(&mut place.spile(&["serve", "--socket", "a.sock"]), "unix:");
    let stream = UnixStream::connect(place.folder.join("a.sock")).expect("it listens");
    let lines = spawn_line_reader(stream.try_clone().expect("a second handle"));
    each_era_is_notified_once(&place, &mut SocketChannel { stream, lines });
}

#[test]
fn over_a_websocket_each_era_is_notified_once() {
    let place = project();
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    let stream = TcpStream::connect(served.address).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
    let mut request = format!("ws://{}/mcp", served.address).into_client_request().expect("an address");
    request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("mcp"));
    let (mut socket, _) = tungstenite::client(request, stream).expect("it is one");
    each_era_is_notified_once(&place, &mut socket);
}

/// A response that goes on, event by event.
pub(crate) struct EventStream(Receiver<String>);

impl EventStream {
    /// A request whose answer is a stream.
    pub(crate) fn open(served: &HttpServer, head: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(served.address).expect("it listens");
        let (address, length) = (served.address, body.len());
        let request = format!(
            "{head}Host: {address}\r\nAccept: application/json, text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it accepts input");
        Self(spawn_line_reader(stream))
    }

    /// The next piece of data that is a message.
    pub(crate) fn next(&self) -> String {
        loop {
            let line = self.0.recv_timeout(TEST_TIMEOUT).expect("it goes on");
            if let Some(data) = line.strip_prefix("data: ").filter(|data| data.starts_with('{')) {
                return data.to_owned();
            }
        }
    }

    /// The list-changed notifications that have arrived.
    fn drain_changes(&self) -> Vec<String> {
        self.0.try_iter().filter(|line| line.contains(CHANGED)).collect()
    }
}

fn status(served: &HttpServer) -> Value {
    let mut stream = TcpStream::connect(served.address).expect("it listens");
    let request = format!("GET /status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.address);
    stream.write_all(request.as_bytes()).expect("it accepts input");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is closed");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    let whole: Value = serde_json::from_str(body).expect("JSON");
    whole["servers"][0].clone()
}

/// Waits until the status matches.
fn wait_for_status(served: &HttpServer, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let now = status(served);
        if is_so(&now) {
            return now;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "{what}: {now}");
        std::thread::yield_now();
    }
}

fn has_reload_status(status: &Value, outcome: &str, why: &str) -> bool {
    status["reload"]["outcome"] == outcome
        && status["reload"]["reason"].as_str().unwrap_or_default().contains(why)
}

#[test]
fn over_http_each_era_is_notified_once() {
    let place = project();
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    let modern = "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n";
    let modern = EventStream::open(&served, modern, &LISTEN.replace("META", META));
    assert!(modern.next().contains("acknowledged"));
    let (head, _) = served.post(
        "/mcp",
        "",
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    );
    let session = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("mcp-session-id: ").map(|_| line[16..].to_owned()));
    let session = session.unwrap_or_else(|| panic!("a session: {head}"));
    let older = EventStream::open(
        &served,
        &format!("GET /mcp HTTP/1.1\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n"),
        "",
    );
    // The stream is open once the head of the response arrives.
    older.0.recv_timeout(TEST_TIMEOUT).expect("it is answered");
    let oldest = EventStream::open(&served, "GET /sse HTTP/1.1\r\n", "");
    let endpoint = loop {
        let line = oldest.0.recv_timeout(TEST_TIMEOUT).expect("it is answered");
        if let Some(endpoint) = line.strip_prefix("data: ") {
            break endpoint.to_owned();
        }
    };
    served.post(
        &endpoint,
        "",
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    );
    assert!(oldest.next().contains("protocolVersion"));
    for round in 1..=3 {
        place.write("spile.toml", manifest(&format!("Round {round}.")).as_bytes());
        for stream in [&modern, &older, &oldest] {
            assert!(stream.next().contains(CHANGED));
        }
        let (_, list) = served.post("/mcp", "", LIST);
        assert!(list.contains(&format!("Round {round}.")), "{list}");
        assert!(has_reload_status(&status(&served), "applied", ""));
    }
    for stream in [&modern, &older, &oldest] {
        assert_eq!(stream.drain_changes(), [""; 0], "one notification for each change");
    }
}

#[test]
fn invalid_and_breaking_changes_are_not_served() {
    let place = project();
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    let version = status(&served)["contractVersion"].clone();
    assert!(status(&served).get("reload").is_none());

    place.write("spile.toml", b"[server]\nnmae = \"people\"\n");
    let now = wait_for_status(&served, "a slip", |status| {
        has_reload_status(status, "rejected", "spile.toml:2:1: unknown key `nmae`")
    });
    assert_eq!(now["contractVersion"], version);

    std::fs::remove_file(place.folder.join("spile.toml")).expect("exists");
    std::fs::remove_file(place.folder.join("people.csv")).expect("exists");
    wait_for_status(&served, "nothing is left", |status| {
        has_reload_status(status, "rejected", "nothing to serve")
    });
    place.write("people.csv", PEOPLE);

    place.write(
        "spile.toml",
        manifest("One.").replace("key = \"id\"", "key = \"id\"\noperations = [\"get\"]").as_bytes(),
    );
    let now = wait_for_status(&served, "a tool less", |status| {
        has_reload_status(status, "rejected", "aggregate_people: the tool was removed")
    });
    assert_eq!(now["contractVersion"], version);
    let (_, list) = served.post("/mcp", "", LIST);
    assert!(list.contains("list_people"), "{list}");

    place.write("spile.toml", manifest("One.").as_bytes());
    wait_for_status(&served, "as it was", |status| has_reload_status(status, "unchanged", ""));

    // Data alone: a column more is compatible, and a column less is not.
    place.write("people.csv", b"id,name,phone\n1,Ada,5\n2,Bea,6\n");
    let now = wait_for_status(&served, "a column more", |status| has_reload_status(status, "applied", ""));
    assert_ne!(now["contractVersion"], version);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_people","arguments":{"id":1}}}"#;
    let (_, reply) = served.post("/mcp", "", call);
    assert!(reply.contains(r#"\"phone\":5"#), "{reply} {}", status(&served));
    place.write("people.csv", b"id,phone\n1,5\n2,6\n");
    wait_for_status(&served, "a column less", |status| {
        has_reload_status(status, "rejected", "output.name: the field was removed")
    });
    // The old contract is still served, and its calls report the changed data.
    let (_, reply) = served.post("/mcp", "", call);
    assert!(reply.contains("source_changed"), "{reply}");
}

/// A change of the file behind the same tools is served.
#[test]
fn another_file_of_the_same_columns_is_served() {
    let place = project();
    place.write("others.csv", b"id,name\n1,Cleo\n2,Dora\n");
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    place.write("spile.toml", manifest("One.").replace("people.csv", "others.csv").as_bytes());
    wait_for_status(&served, "another file", |status| has_reload_status(status, "applied", ""));
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_people","arguments":{"id":1}}}"#;
    let (_, reply) = served.post("/mcp", "", call);
    assert!(reply.contains("Cleo"), "{reply}");
}

/// The declared fields describe a file whose last record was deleted.
#[test]
fn a_file_without_records_is_served_by_what_is_declared() {
    for (file, kind, one, none) in [
        ("t.json", "json", "[{\"id\":1,\"v\":\"x\"}]", "[]"),
        ("t.jsonl", "jsonl", "{\"id\":1,\"v\":\"x\"}\n", ""),
    ] {
        let manifest = format!(
            "[server]\nname = \"t\"\n[sources.data]\nkind = \"{kind}\"\npath = \"{file}\"\n[collections.t]\nsource = \
             \"data\"\nkey = \"id\"\noperations = [\"get\", \"list\", \"create\", \"delete\"]\nfields.id = {{ as = \
             \"integer\" }}\nfields.v = {{ as = \"text\" }}\n"
        );
        let place = TestProject::new(&[(file, one.as_bytes()), ("spile.toml", manifest.as_bytes())]);
        let call = |served: &HttpServer, tool: &str, arguments: &str| {
            let call =
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"TOOL","arguments":ARGS}}"#;
            served.post("/mcp", "", &call.replace("TOOL", tool).replace("ARGS", arguments)).1
        };
        let serve = || HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
        let served = serve();
        let (_, tools) = served.post("/mcp", "", LIST);
        let reply = call(&served, "delete_t", r#"{"id":1}"#);
        assert!(reply.contains("deleted"), "{reply}");
        assert_eq!(std::fs::read_to_string(place.folder.join(file)).expect("exists"), none);
        drop(served);
        let served = serve();
        assert_eq!(served.post("/mcp", "", LIST).1, tools, "the same tools");
        let reply = call(&served, "list_t", "{}");
        assert!(reply.contains(r#"\"items\":[]"#), "{reply}");
        let reply = call(&served, "create_t", r#"{"id":2,"v":"y"}"#);
        assert!(reply.contains("created"), "{reply}");
        let reply = call(&served, "get_t", r#"{"id":2}"#);
        assert!(reply.contains(r#"\"v\":\"y\""#), "{reply}");
        drop(served);
        // Also of the file as it is now.
        let reply = call(&serve(), "get_t", r#"{"id":2}"#);
        assert!(reply.contains(r#"\"v\":\"y\""#), "{reply}");
    }
}

/// A manifest that hides a column of a folder with two files.
fn project_with_hidden_field() -> TestProject {
    let hidden = format!("{}\n[collections.people.fields]\nsecret = {{ hidden = true }}\n", manifest("One."));
    TestProject::new(&[
        ("people.csv", b"id,name,secret\n1,Ada,x\n2,Bea,y\n"),
        ("salaries.csv", b"id,pay\n1,5\n2,6\n"),
        ("spile.toml", hidden.as_bytes()),
    ])
}

#[test]
fn removing_the_manifest_does_not_expose_hidden_fields() {
    let place = project_with_hidden_field();
    let file = place.folder.join("spile.toml");
    let text = std::fs::read(&file).expect("exists");
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    let (_, before) = served.post("/mcp", "", LIST);
    assert!(!before.contains("secret") && !before.contains("salaries"), "{before}");
    std::fs::remove_file(&file).expect("exists");
    let is_gone =
        |status: &Value| has_reload_status(status, "rejected", "`spile.toml` was removed; put it back");
    let first = wait_for_status(&served, "no manifest", is_gone);
    assert_eq!(served.post("/mcp", "", LIST).1, before);
    // Nor does data that changes meanwhile.
    place.write("offices.csv", b"id,town\n1,Bonn\n");
    place.write("people.csv", b"id,name,secret,phone\n1,Ada,x,5\n2,Bea,y,6\n");
    wait_for_status(&served, "other data", |status| {
        is_gone(status) && status["reload"]["atMs"] != first["reload"]["atMs"]
    });
    assert_eq!(served.post("/mcp", "", LIST).1, before);
    place.write("spile.toml", &text);
    wait_for_status(&served, "it is back", |status| has_reload_status(status, "applied", ""));
    let (_, after) = served.post("/mcp", "", LIST);
    assert!(after.contains("phone") && !after.contains("secret") && !after.contains("salaries"), "{after}");
}

#[test]
fn dev_does_not_expose_hidden_fields_without_its_manifest() {
    let place = project_with_hidden_field();
    let mut dev = HttpServer::start(&mut place.spile(&["dev", "--bind", "127.0.0.1:0"]));
    let (_, before) = dev.post("/mcp", "", LIST);
    std::fs::remove_file(place.folder.join("spile.toml")).expect("exists");
    dev.wait_for("`spile.toml` was removed; put it back");
    dev.wait_for("change rejected; still serving the previous contract");
    assert_eq!(dev.post("/mcp", "", LIST).1, before);
}

#[test]
fn a_new_manifest_is_served_and_then_required() {
    let place = TestProject::new(&[("people.csv", PEOPLE)]);
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    place.write(
        "spile.toml",
        manifest("One.").replace("key = \"id\"", "key = \"id\"\noperations = [\"get\"]").as_bytes(),
    );
    wait_for_status(&served, "a tool less", |status| {
        has_reload_status(status, "rejected", "the tool was removed")
    });
    // What was never served need not stay.
    std::fs::remove_file(place.folder.join("spile.toml")).expect("exists");
    wait_for_status(&served, "as it was", |status| has_reload_status(status, "unchanged", ""));
    place.write("spile.toml", manifest("One.").as_bytes());
    wait_for_status(&served, "a manifest", |status| has_reload_status(status, "applied", ""));
    std::fs::remove_file(place.folder.join("spile.toml")).expect("exists");
    wait_for_status(&served, "no manifest", |status| {
        has_reload_status(status, "rejected", "`spile.toml` was removed")
    });
}

#[test]
fn a_recovery_is_logged_after_a_warning() {
    let place = project();
    let mut served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    place.write("spile.toml", b"[server]\nnmae = \"people\"\n");
    served.wait_for("unknown key `nmae`");
    place.write("spile.toml", manifest("One.").as_bytes());
    wait_for_status(&served, "as it was", |status| has_reload_status(status, "unchanged", ""));
    place.write("spile.toml", manifest("Two.").as_bytes());
    wait_for_status(&served, "other words", |status| has_reload_status(status, "applied", ""));
    std::fs::remove_file(place.folder.join("people.csv")).expect("exists");
    wait_for_status(&served, "no data", |status| {
        has_reload_status(status, "rejected", "`people.csv` cannot be read: not found")
    });
    place.write("people.csv", b"id,name,phone\n1,Ada,5\n2,Bea,6\n");
    wait_for_status(&served, "a column more", |status| has_reload_status(status, "applied", ""));
    // The status changes before the log line is written.
    served.wait_for("served again name=people version=");
    let (_, stderr, code) = served.stop();
    assert_eq!(code, Some(0), "{stderr}");
    let is_news =
        |line: &&str| line.contains("still serving the previous contract") || line.contains(" INFO ");
    let news: Vec<&str> = stderr.lines().filter(is_news).collect();
    let (rejected, again) =
        ("still serving the previous contract", "the project on disk is served again name=people");
    for (line, is) in news.iter().zip([rejected, again, rejected, again]) {
        assert!(line.contains(is), "{line}");
    }
    assert_eq!(news.len(), 4, "what was served all along is not reply: {stderr}");
    assert!(!stderr.contains("`it`"), "{stderr}");
}

#[test]
fn the_version_is_the_locked_one_with_a_hash_if_it_differs() {
    let place = project();
    assert_eq!(place.run(&["compile"]).code, Some(0));
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    assert_eq!(status(&served)["contractVersion"], "1.0.0");
    place.write("spile.toml", manifest("Two.").as_bytes());
    let is = |version: &'static str| {
        move |status: &Value| status["contractVersion"].as_str().is_some_and(|it| it.starts_with(version))
    };
    wait_for_status(&served, "an unlocked change", is("1.0.0+"));
    assert_eq!(place.run(&["compile"]).code, Some(0));
    wait_for_status(&served, "a locked change", is("1.0.1"));
}

/// The number of reloads; `cargo xtask judges` sets 200.
fn rounds() -> usize {
    std::env::var("SPILE_RELOADS").map_or(20, |rounds| rounds.parse().expect("a number"))
}

#[test]
fn no_call_fails_during_repeated_reloads() {
    let place = project();
    let served = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
    let address = served.address;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (stop, answered) = (stop.clone(), answered.clone());
            std::thread::spawn(move || {
                let stream = TcpStream::connect(address).expect("it listens");
                stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
                let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
                let mut cursor = None;
                while !stop.load(Ordering::Relaxed) {
                    cursor = call(&stream, &mut reader, cursor);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 1..=rounds() {
        let calls = answered.load(Ordering::Relaxed);
        place.write("spile.toml", manifest(&format!("Round {round}.")).as_bytes());
        let began = Instant::now();
        while !served.post("/mcp", "", LIST).1.contains(&format!("Round {round}.")) {
            assert!(began.elapsed() < TEST_TIMEOUT, "round {round} is not served");
            std::thread::yield_now();
        }
        assert!(callers.iter().all(|caller| !caller.is_finished()), "a call failed in round {round}");
        while answered.load(Ordering::Relaxed) == calls {
            std::thread::yield_now();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.join().expect("no call failed");
    }
    assert!(answered.load(Ordering::Relaxed) >= rounds());
}

/// A page of one row, or the next one: cursors outlive a reload.
fn call(mut stream: &TcpStream, reader: &mut BufReader<TcpStream>, cursor: Option<String>) -> Option<String> {
    let cursor = cursor.map_or_else(String::new, |cursor| format!(r#","cursor":"{cursor}""#));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"list_people","arguments":{{"limit":1{cursor}}}}}}}"#
    );
    let length = body.len();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         MCP-Protocol-Version: 2025-11-25\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + &body).as_bytes()).expect("it accepts input");
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("it answers");
        assert!(!line.is_empty(), "it stays open");
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer).expect("it answers whole");
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    let result = &answer["result"];
    assert_eq!(result["isError"], false, "{answer}");
    result["structuredContent"]["nextCursor"].as_str().map(str::to_owned)
}

#[test]
fn dev_prints_calls_and_reloads() {
    let place = TestProject::new(&[
        ("people.csv", b"id,name,secret\n1,Ada,x\n2,Bea,y\n"),
        (
            "spile.toml",
            format!("{}\n[collections.people.fields]\nsecret = {{ sensitive = true }}\n", manifest("One."))
                .as_bytes(),
        ),
    ]);
    let mut dev = HttpServer::start(&mut place.spile(&["dev", "--bind", "127.0.0.1:0"]));
    let call = |name: &str, arguments: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}}}"#
        );
        dev.post("/mcp", "", &body)
    };
    call("get_people", r#"{"id":1}"#);
    call("get_people", r#"{"id":7}"#);
    call("get_people", r#"{"no":"a\u001b[31m\nb"}"#);
    call(
        "list_people",
        r#"{"name":"a very long name that nobody has and that goes on for ever","secret":"x"}"#,
    );
    call("nothing", "{}");
    let good = std::fs::read_to_string(place.folder.join("spile.toml")).expect("exists");
    place.write("spile.toml", good.replace("description", "descriptoin").as_bytes());
    dev.wait_for("change rejected; still serving the previous contract");
    place.write("spile.toml", good.replace("One.", "Two.").as_bytes());
    dev.wait_for("reloaded; compatible");
    dev.wait_for("a description changed");
    place.write("people.csv", b"id,secret\n1,x\n2,y\n");
    dev.wait_for("reloaded with breaking changes");
    let (_, list) = dev.post("/mcp", "", LIST);
    assert!(!list.contains("\"name\":{\"type\""), "it is served at once: {list}");
    let port = format!(":{}", dev.address.port());
    let (stdout, stderr, code) = dev.stop();
    assert_eq!((code, &*stdout), (Some(0), ""));
    let output = place.normalize(stderr.replace(&port, ":PORT").as_bytes());
    insta::assert_snapshot!("dev_log", output.lines().map(redact_times).collect::<Vec<_>>().join("\n"));
}

/// Replaces times and hashes.
fn redact_times(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_clock = word.len() == 9 && word.ends_with('Z') && word.as_bytes()[2] == b':';
        let is_time = words.get(at + 1) == Some(&"ms") && word.parse::<u64>().is_ok();
        let is_version = word.strip_prefix("0+").is_some_and(|hash| hash.len() == 8);
        out.push(match () {
            () if is_clock => "<time>".into(),
            () if is_time => "<n>".into(),
            () if is_version => "0+<hash>".into(),
            () => (*word).to_owned(),
        });
    }
    out.join(" ")
}

#[test]
fn dev_uses_the_next_port_if_the_first_is_in_use() {
    let place = project();
    // Another program may have the port already; that serves the test too.
    let taken = std::net::TcpListener::bind("127.0.0.1:3333");
    let dev = HttpServer::start(&mut place.spile(&["dev"]));
    assert!((3334..3343).contains(&dev.address.port()), "{}", dev.address);
    drop(taken);
}
