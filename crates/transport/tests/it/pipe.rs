//! Pipes: stdio over real pipes, unix sockets and WebSockets. Framing, order, clients that do not read, and the end
//! of the input.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use host::{Config, Server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use spile_core::{Limits, Provider};
use testkit::FakePlatform;
use testkit::conformance::ConformanceProvider;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use transport::stdio::{StdoutWriter, serve};

use crate::client::{STATELESS, call, initialize_message, ping};
use crate::conn::Conn;
use crate::controlled_provider::ControlledProvider;
use crate::test_server::{TEST_TIMEOUT, TestServer};
use crate::ws_client::{WsClient, WsLineReader, close, text};

/// What carries a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeKind {
    Stdio,
    Unix,
    WebSocket,
}

const PIPE_KINDS: [PipeKind; 3] = [PipeKind::Stdio, PipeKind::Unix, PipeKind::WebSocket];

/// Those that are bytes, where messages are told apart by what is in them.
const BYTE_PIPE_KINDS: [PipeKind; 2] = [PipeKind::Stdio, PipeKind::Unix];

/// A pipe with a server at its other end.
struct Pipe {
    provider: Arc<ControlledProvider>,
    input: Option<Input>,
    output: Option<BufReader<Box<dyn Read>>>,
    server: ServerHandle,
}

enum Input {
    Pipe(std::io::PipeWriter),
    Conn(Conn),
    WebSocket(Conn),
}

enum ServerHandle {
    Thread { serving: Option<JoinHandle<std::io::Result<()>>>, ended: Receiver<()>, _runtime: Runtime },
    Network(TestServer),
}

impl Pipe {
    fn open(kind: PipeKind) -> Self {
        Self::with(kind, Limits { call_timeout_ms: 600_000, ..Limits::default() })
    }

    fn with(kind: PipeKind, limits: Limits) -> Self {
        match kind {
            PipeKind::Stdio => Self::over_stdio(limits),
            PipeKind::Unix => {
                let server = TestServer::with_setup(|setup| setup.limits = limits);
                let conn = Conn::unix(&server.socket_path());
                Self {
                    provider: server.provider.clone(),
                    output: Some(BufReader::new(Box::new(conn.clone_socket()))),
                    input: Some(Input::Conn(conn)),
                    server: ServerHandle::Network(server),
                }
            }
            PipeKind::WebSocket => {
                let server = TestServer::with_setup(|setup| setup.limits = limits);
                let (conn, lines) = WsLineReader::new(WsClient::open(&server));
                Self {
                    provider: server.provider.clone(),
                    output: Some(BufReader::new(Box::new(lines))),
                    input: Some(Input::WebSocket(conn)),
                    server: ServerHandle::Network(server),
                }
            }
        }
    }

    fn over_stdio(limits: Limits) -> Self {
        Self::over_stdio_with(limits, TEST_TIMEOUT)
    }

    fn over_stdio_with(limits: Limits, write_stall_timeout: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let provider = Arc::new(ControlledProvider::default());
        let providers: Vec<Arc<dyn Provider>> =
            vec![Arc::new(ConformanceProvider::default()), provider.clone()];
        let platform = Arc::new(FakePlatform::new(1));
        let config = Config::new("one", "1", limits, platform);
        let server = Server::new(config, providers);
        let (to_read, input) = std::io::pipe().expect("a pipe");
        let (output, to_write) = std::io::pipe().expect("a pipe");
        let handle = runtime.handle().clone();
        let (sender, ended) = sync_channel(1);
        let serving = std::thread::spawn(move || {
            let out = StdoutWriter::with_write_stall_timeout(
                File::from(OwnedFd::from(to_write)),
                write_stall_timeout,
            );
            let served = serve(server, &handle, to_read, out);
            // The test may not wait for this.
            let _ = sender.try_send(());
            served
        });
        Self {
            provider,
            input: Some(Input::Pipe(input)),
            output: Some(BufReader::new(Box::new(TimeoutReader(output)))),
            server: ServerHandle::Thread { serving: Some(serving), ended, _runtime: runtime },
        }
    }

    /// A pipe on which a handshake was made.
    fn initialized(kind: PipeKind, version: &str) -> Self {
        let mut pipe = Self::open(kind);
        pipe.initialize(version);
        pipe
    }

    fn initialize(&mut self, version: &str) {
        self.send_line(&initialize_message(version));
        assert_eq!(self.next_message()["result"]["protocolVersion"], version);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server reads");
    }

    fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self.input.as_mut().expect("the input is open") {
            Input::Pipe(pipe) => pipe.write_all(bytes),
            Input::Conn(conn) | Input::WebSocket(conn) => conn.write_all(bytes),
        }
    }

    fn send_line(&mut self, line: &str) {
        if let Some(Input::WebSocket(_)) = self.input {
            return self.send(&text(line));
        }
        self.send(line.as_bytes());
        self.send(b"\n");
    }

    /// The next line, which is one message and nothing else.
    fn next_message(&mut self) -> Value {
        self.try_next_message().expect("a line")
    }

    fn try_next_message(&mut self) -> Option<Value> {
        let mut line = String::new();
        let output = self.output.as_mut().expect("the output is open");
        if output.read_line(&mut line).expect("lines are UTF-8") == 0 {
            return None;
        }
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(message.is_array() || message["jsonrpc"] == "2.0", "{line}");
        Some(message)
    }

    /// Everything up to the end.
    fn read_to_end(&mut self) -> String {
        let mut out = String::new();
        self.output.as_mut().expect("the output is open").read_to_string(&mut out).expect("UTF-8");
        out
    }

    fn close_input(&mut self) {
        match self.input.take() {
            Some(Input::Conn(mut conn)) => conn.shutdown_write(),
            Some(Input::WebSocket(mut conn)) => conn.write_all(&close(1000)).expect("the server reads"),
            Some(Input::Pipe(_)) | None => {}
        }
    }

    fn stop_reading(&mut self) {
        self.output = None;
        if let Some(Input::Conn(conn)) = &self.input {
            conn.stop_reading();
        }
    }

    /// Waits until nothing is left of it, which must be without an error.
    fn wait_closed(&mut self) {
        match &mut self.server {
            ServerHandle::Thread { serving, ended, .. } => {
                ended.recv_timeout(TEST_TIMEOUT).expect("the door shuts in time");
                let serving = serving.take().expect("shut once");
                serving.join().expect("it does not panic").expect("the end of the input is no error");
            }
            ServerHandle::Network(server) => {
                server.wait_until("its calls are over", |status| {
                    status.calls_active == 0 && status.subscriptions == 0
                });
                server.assert_serving();
            }
        }
    }
}

/// Reads, but does not wait for ever.
struct TimeoutReader(std::io::PipeReader);

impl Read for TimeoutReader {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let timeout = Timespec::try_from(TEST_TIMEOUT).expect("it is short");
        let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout))?;
        assert!(ready > 0, "nothing came, and the pipe was not closed");
        self.0.read(bytes)
    }
}

fn cancel(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

fn stateless_call(id: u64, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{STATELESS}","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
}

#[test]
fn lines_are_parsed_however_they_are_split() {
    for kind in BYTE_PIPE_KINDS {
        let text = format!("{}\n\r\n  \n{}\r\n\t{}\n", initialize_message("2025-06-18"), ping(1), ping(2));
        for piece in [1, 2, 3, 7, 64, 1000] {
            let mut pipe = Pipe::open(kind);
            for part in text.as_bytes().chunks(piece) {
                pipe.send(part);
            }
            // A last line without a line break counts too.
            pipe.send(ping(3).as_bytes());
            pipe.close_input();
            assert_eq!(pipe.next_message()["id"], "hello", "{piece}");
            for id in 1..=3 {
                assert_eq!(pipe.next_message()["id"], id, "{piece}");
            }
            assert_eq!(pipe.try_next_message(), None);
            pipe.wait_closed();
        }
    }
}

#[test]
fn content_length_framing_is_parsed_and_answered_in_kind() {
    for kind in BYTE_PIPE_KINDS {
        let framed = |text: &str| format!("Content-Length: {}\r\n\r\n{text}", text.len());
        let typed = |text: &str| {
            let kind = "Content-Type: application/vscode-jsonrpc; charset=utf-8";
            format!("content-length:{}\r\n{kind}\r\n\r\n{text}\r\n", text.len())
        };
        let bare = |text: &str| format!("Content-Length: {}\n\n{text}", text.len());
        let text =
            [framed(&initialize_message("2025-06-18")), typed(&ping(1)), bare(&ping(2)), framed(&ping(3))]
                .concat();
        for piece in [1, 2, 5, 64, 1000] {
            let mut pipe = Pipe::open(kind);
            for part in text.as_bytes().chunks(piece) {
                pipe.send(part);
            }
            pipe.close_input();
            let out = pipe.read_to_end();
            let mut rest = out.as_str();
            let mut ids = Vec::new();
            while !rest.is_empty() {
                let (head, after) = rest.split_once("\r\n\r\n").expect("a header block");
                let length =
                    head.strip_prefix("Content-Length: ").and_then(|n| n.parse().ok()).expect("a length");
                let (body, after) = after.split_at(length);
                let body: Value = serde_json::from_str(body).expect("JSON");
                ids.push(body["id"].to_string());
                rest = after;
            }
            assert_eq!(ids, ["\"hello\"", "1", "2", "3"], "{piece}");
            pipe.wait_closed();
        }
    }
}

#[test]
fn invalid_header_block_closes_the_pipe() {
    for kind in BYTE_PIPE_KINDS {
        for head in [
            "Content-Length: x\r\n\r\n",
            "Content-Type: a\r\n\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        ] {
            let mut pipe = Pipe::open(kind);
            pipe.send(format!("{head}{{}}").as_bytes());
            let out = pipe.read_to_end();
            assert!(out.starts_with("Content-Length: ") && out.contains("-32700"), "{head}: {out}");
            pipe.wait_closed();
        }
    }
}

#[test]
fn invalid_line_gets_an_error_and_the_next_is_served() {
    for kind in BYTE_PIPE_KINDS {
        let limits = Limits { message_bytes_max: 1 << 20, ..Limits::default() };
        let mut pipe = Pipe::with(kind, limits);
        pipe.initialize("2025-06-18");
        let long = |bytes: usize| [b"\"".to_vec(), vec![b'x'; bytes - 2], b"\"".to_vec()].concat();
        for (what, line, code) in [
            ("not JSON", b"hello".to_vec(), -32700),
            ("not UTF-8", b"{\"a\":\"\xff\"}".to_vec(), -32700),
            ("a key twice", br#"{"a":1,"a":2}"#.to_vec(), -32700),
            ("a byte order mark", [b"\xef\xbb\xbf", ping(1).as_bytes()].concat(), -32700),
            ("100,000 brackets", b"[".repeat(100_000), -32700),
            ("as long as may be, but no message", long(1 << 20), -32600),
            ("one byte too long", long((1 << 20) + 1), -32600),
            ("far too long", long(9 << 20), -32600),
            ("no such method", br#"{"jsonrpc":"2.0","id":1,"method":"x"}"#.to_vec(), -32601),
        ] {
            pipe.send(&line);
            pipe.send(b"\n");
            let reply = pipe.next_message();
            assert_eq!(reply["error"]["code"], code, "{what}: {reply}");
            pipe.send_line(&ping(7));
            assert_eq!(pipe.next_message()["id"], 7, "after {what}");
        }
        pipe.close_input();
        assert_eq!(pipe.try_next_message(), None);
        pipe.wait_closed();
    }
}

#[test]
fn slow_call_does_not_delay_other_calls() {
    for kind in PIPE_KINDS {
        let mut pipe = Pipe::initialized(kind, "2025-11-25");
        pipe.send_line(&call(1, "hold", r#"{"key":"k"}"#));
        pipe.provider.expect_started("k");
        for id in 2..50 {
            pipe.send_line(&call(id, "test_simple_text", "{}"));
            assert_eq!(pipe.next_message()["id"], id);
        }
        pipe.send_line(&stateless_call(50, "test_simple_text", "{}"));
        assert_eq!(pipe.next_message()["result"]["resultType"], "complete", "both eras on one pipe");
        pipe.provider.release("k", 1);
        assert_eq!(pipe.next_message()["id"], 1);
    }
}

#[test]
fn cancellation_works_in_both_eras() {
    for kind in PIPE_KINDS {
        for (era, line) in [
            ("handshake", call(1, "hold", r#"{"key":"k"}"#)),
            ("newest", stateless_call(1, "hold", r#"{"key":"k"}"#)),
        ] {
            let mut pipe = Pipe::initialized(kind, "2025-11-25");
            pipe.send_line(&line);
            pipe.provider.expect_started("k");
            pipe.send_line(&cancel(2));
            pipe.send_line(&ping(3));
            assert_eq!(pipe.next_message()["id"], 3, "{era}: another id cancels nothing");
            pipe.provider.expect_no_event();
            pipe.send_line(&cancel(1));
            pipe.provider.expect_dropped("k");
            pipe.send_line(&ping(4));
            assert_eq!(pipe.next_message()["id"], 4, "{era}: nothing is said about what was cancelled");
            pipe.close_input();
            assert_eq!(pipe.try_next_message(), None, "{era}");
            pipe.wait_closed();
        }
    }
}

/// The pipe to the client is full, and it does not read: what it sends is still read.
#[test]
fn client_that_does_not_read_can_still_cancel() {
    for kind in PIPE_KINDS {
        let mut pipe = Pipe::initialized(kind, "2025-11-25");
        pipe.send_line(&call(1, "hold", r#"{"key":"k"}"#));
        pipe.provider.expect_started("k");
        pipe.send_line(&call(2, "hold", r#"{"key":"other"}"#));
        pipe.provider.expect_started("other");
        // Far more than a pipe holds.
        for id in 10..20 {
            pipe.send_line(&call(id, "big", r#"{"bytes":300000}"#));
        }
        pipe.send_line(&cancel(1));
        pipe.provider.expect_dropped("k");
        pipe.provider.release("other", 1);
        pipe.provider.expect_ended("other");
        if kind != PipeKind::WebSocket {
            // A WebSocket client that closes expects no responses.
            pipe.close_input();
        }
        let mut ids: Vec<_> =
            (0..11).map(|_| pipe.next_message()["id"].as_u64().expect("a number")).collect();
        ids.sort_unstable();
        assert_eq!(ids, [2, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19], "each once, and whole");
        pipe.close_input();
        assert_eq!(pipe.try_next_message(), None);
        pipe.wait_closed();
    }
}

/// stdout is full and unread, so the thread that reads stdin waits for room and cannot see that stdin is closed.
#[test]
fn stdio_ends_after_the_write_stall_when_stdout_is_full_and_stdin_closed() {
    let limits = Limits { call_timeout_ms: 600_000, ..Limits::default() };
    let mut pipe = Pipe::over_stdio_with(limits, Duration::from_millis(300));
    pipe.initialize("2025-11-25");
    for id in 10..60 {
        pipe.send_line(&call(id, "big", r#"{"bytes":300000}"#));
    }
    pipe.close_input();
    pipe.wait_closed();
}

#[test]
fn queued_bytes_of_a_pipe_count_as_pending_responses() {
    for kind in [PipeKind::Unix, PipeKind::WebSocket] {
        let mut pipe = Pipe::initialized(kind, "2025-11-25");
        // More than the kernel buffers of a TCP connection hold.
        for id in 10..80 {
            pipe.send_line(&call(id, "big", r#"{"bytes":300000}"#));
        }
        let ServerHandle::Network(server) = &pipe.server else { unreachable!("not stdio") };
        let pending = || {
            let status = server.send_request(&crate::client::get("/status")).json();
            status["responseBytesPending"].as_u64().expect("a number")
        };
        server.wait_until("responses wait", |_| pending() > 100_000);
        pipe.output = None;
        pipe.input = None;
        let ServerHandle::Network(server) = &pipe.server else { unreachable!("not stdio") };
        server.wait_until("nothing waits", |_| pending() == 0);
    }
}

#[test]
fn client_that_never_reads_does_not_block_shutdown() {
    for kind in PIPE_KINDS {
        let mut pipe = match kind {
            PipeKind::Stdio => Pipe::over_stdio_with(Limits::default(), Duration::from_millis(300)),
            PipeKind::Unix | PipeKind::WebSocket => Pipe::open(kind),
        };
        pipe.initialize("2025-11-25");
        for id in 10..20 {
            pipe.send_line(&call(id, "big", r#"{"bytes":300000}"#));
        }
        pipe.close_input();
        pipe.wait_closed();
    }
}

/// `spile serve file < requests.txt | less`: the client has sent everything, and takes its time to read.
#[test]
fn stdio_writes_all_responses_after_the_end_of_the_input() {
    // The client reads a part at a time, and each pause is longer than the grace period of a stop was: two parts of
    // the time in which a client must take something.
    let mut pipe = Pipe::over_stdio_with(Limits::default(), Duration::from_secs(6));
    pipe.initialize("2025-11-25");
    for id in 10..20 {
        pipe.send_line(&call(id, "big", r#"{"bytes":300000}"#));
    }
    pipe.close_input();
    let ServerHandle::Thread { ended, .. } = &pipe.server else { unreachable!("it is stdio") };
    assert!(ended.recv_timeout(Duration::from_secs(2)).is_err(), "it waits for its client");
    let ids: Vec<_> = (0..10).map(|_| pipe.next_message()["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids, (10..20).collect::<Vec<_>>());
    assert_eq!(pipe.try_next_message(), None);
    pipe.wait_closed();
}

#[test]
fn closed_output_ends_the_pipe() {
    for kind in BYTE_PIPE_KINDS {
        let mut pipe = Pipe::initialized(kind, "2025-11-25");
        pipe.send_line(&call(1, "hold", r#"{"key":"k"}"#));
        pipe.provider.expect_started("k");
        pipe.stop_reading();
        pipe.send_line(&ping(2));
        // The response cannot be written; later requests are not read, or not answered either.
        let next = format!("{}\n", ping(3));
        while pipe.try_send(next.as_bytes()).is_ok() {}
        pipe.provider.expect_dropped("k");
        pipe.wait_closed();
    }
}

#[test]
fn end_of_input_lets_running_calls_finish() {
    for kind in BYTE_PIPE_KINDS {
        for (what, line) in [
            ("handshake", call(1, "hold", r#"{"key":"k"}"#)),
            ("newest", stateless_call(1, "hold", r#"{"key":"k"}"#)),
            ("batch", format!("[{},{}]", ping(2), call(1, "hold", r#"{"key":"k"}"#))),
        ] {
            let mut pipe = Pipe::initialized(kind, "2025-03-26");
            pipe.send_line(&line);
            pipe.provider.expect_started("k");
            pipe.close_input();
            pipe.provider.release("k", 1);
            pipe.provider.expect_ended("k");
            let response = pipe.try_next_message().unwrap_or_else(|| panic!("no answer: {what}"));
            assert!(response.to_string().contains("k is over"), "{what}: {response}");
            assert_eq!(pipe.try_next_message(), None, "{what}");
            pipe.wait_closed();
        }
    }
}

#[test]
fn end_of_input_on_a_socket_cancels_calls_after_the_grace_period() {
    for (what, line) in [
        ("handshake", call(1, "hold", r#"{"key":"k"}"#)),
        ("newest", stateless_call(1, "hold", r#"{"key":"k"}"#)),
        ("batch", format!("[{}]", call(1, "hold", r#"{"key":"k"}"#))),
    ] {
        let mut pipe = Pipe::initialized(PipeKind::Unix, "2025-03-26");
        pipe.send_line(&line);
        pipe.provider.expect_started("k");
        pipe.close_input();
        pipe.wait_closed();
        pipe.provider.expect_dropped("k");
        assert_eq!(pipe.try_next_message(), None, "{what}");
    }
}

#[test]
fn end_of_stdin_leaves_running_calls_their_timeout() {
    let limits = Limits { call_timeout_ms: 1500, ..Limits::default() };
    let mut pipe = Pipe::with(PipeKind::Stdio, limits);
    pipe.initialize("2025-11-25");
    pipe.send_line(&call(1, "hold", r#"{"key":"k"}"#));
    pipe.provider.expect_started("k");
    pipe.close_input();
    let response = pipe.next_message();
    assert!(response["id"] == 1 && response.to_string().contains("1500 ms"), "{response}");
    assert_eq!(pipe.try_next_message(), None);
    pipe.wait_closed();
}

#[test]
fn end_of_stdin_and_stdout_cancels_running_calls() {
    let mut pipe = Pipe::initialized(PipeKind::Stdio, "2025-11-25");
    pipe.send_line(&call(1, "hold", r#"{"key":"k"}"#));
    pipe.provider.expect_started("k");
    pipe.close_input();
    pipe.stop_reading();
    pipe.wait_closed();
    pipe.provider.expect_dropped("k");
}

/// The elicitation cannot be answered any more, and its timeout is ten minutes.
#[test]
fn end_of_stdin_ends_calls_that_wait_for_the_client() {
    let mut pipe = Pipe::open(PipeKind::Stdio);
    let hello = initialize_message("2025-06-18")
        .replace(r#""capabilities":{}"#, r#""capabilities":{"elicitation":{}}"#);
    pipe.send_line(&hello);
    pipe.next_message();
    pipe.send_line(&call(1, "quiz", "{}"));
    assert_eq!(pipe.next_message()["method"], "elicitation/create");
    pipe.close_input();
    pipe.read_to_end();
    pipe.wait_closed();
}

#[test]
fn notifications_and_input_requests_use_the_same_pipe() {
    for kind in PIPE_KINDS {
        let mut pipe = Pipe::open(kind);
        let hello = initialize_message("2025-06-18")
            .replace(r#""capabilities":{}"#, r#""capabilities":{"elicitation":{}}"#);
        pipe.send_line(&hello);
        pipe.next_message();
        pipe.send_line(&call(1, "test_trigger_tool_change", "{}"));
        let two = [pipe.next_message(), pipe.next_message()];
        assert!(two.iter().any(|m| m["method"] == "notifications/tools/list_changed"), "{two:?}");
        assert!(two.iter().any(|m| m["id"] == 1), "{two:?}");
        pipe.send_line(&call(2, "quiz", "{}"));
        let question = pipe.next_message();
        assert_eq!(question["method"], "elicitation/create");
        let response = r#""result":{"action":"accept","content":{"name":"ada"}}"#;
        pipe.send_line(&format!(r#"{{"jsonrpc":"2.0","id":{},{response}}}"#, question["id"]));
        assert_eq!(pipe.next_message()["result"]["content"][0]["text"], "hello ada");
    }
}

#[test]
fn concurrent_calls_on_one_pipe_are_limited() {
    for kind in PIPE_KINDS {
        let mut pipe = Pipe::with(kind, Limits { calls_per_connection_max: 2, ..Limits::default() });
        pipe.initialize("2025-06-18");
        for (id, key) in [(1, "a"), (2, "b")] {
            pipe.send_line(&call(id, "hold", &format!(r#"{{"key":"{key}"}}"#)));
            pipe.provider.expect_started(key);
        }
        pipe.send_line(&call(3, "test_simple_text", "{}"));
        let reply = pipe.next_message();
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&3.into(), &(-31001).into()));
        pipe.send_line(&call(1, "test_simple_text", "{}"));
        assert_eq!(pipe.next_message()["error"]["code"], -32600, "an id in use");
        pipe.provider.release("a", 1);
        assert_eq!(pipe.next_message()["id"], 1);
        pipe.provider.expect_ended("a");
        // Room comes with the end of the call, which may be a moment after its answer.
        loop {
            pipe.send_line(&call(4, "test_simple_text", "{}"));
            let response = pipe.next_message();
            if response["result"].is_object() {
                break;
            }
            assert_eq!(response["error"]["code"], -31001, "{response}");
        }
    }
}

#[test]
fn panic_fails_one_call_and_keeps_the_pipe() {
    for kind in PIPE_KINDS {
        let mut pipe = Pipe::initialized(kind, "2025-06-18");
        for tool in ["boom", "boom_later"] {
            pipe.send_line(&call(1, tool, "{}"));
            assert_eq!(pipe.next_message()["result"]["isError"], true, "{tool}");
            pipe.send_line(&ping(2));
            assert_eq!(pipe.next_message()["id"], 2, "{tool}");
        }
    }
}

/// In memory, without timeouts: running calls are answered after the end of the input.
#[tokio::test(start_paused = true)]
async fn a_pipe_in_this_process() {
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(ConformanceProvider::default())];
    let platform = Arc::new(FakePlatform::new(1));
    let config = Config::new("one", "1", Limits::default(), platform);
    let server = Server::new(config, providers);
    // So little that neither side can say anything at once.
    let (ours, theirs) = tokio::io::duplex(7);
    let serving = tokio::spawn(transport::pipe::serve(server, theirs));
    let (mut output, mut input) = tokio::io::split(ours);
    let asked = [
        initialize_message("2025-06-18"),
        call(1, "test_tool_with_progress", "{}"),
        "no JSON".into(),
        ping(2),
    ]
    .join("\n");
    let asking = tokio::spawn(async move {
        input.write_all(asked.as_bytes()).await.expect("it is read");
        input.shutdown().await.expect("it is there");
    });
    let mut said = String::new();
    output.read_to_string(&mut said).await.expect("it is text");
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ids: Vec<&Value> =
        said.iter().filter(|said| said["method"].is_null()).map(|said| &said["id"]).collect();
    assert_eq!(ids, [&Value::from("hello"), &Value::Null, &Value::from(2), &Value::from(1)], "{said:?}");
    asking.await.expect("it does not panic");
    serving.await.expect("it does not panic");
}
