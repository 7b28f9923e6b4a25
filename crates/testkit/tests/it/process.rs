//! The fixture as a process: what it refuses to start with, what it prints where, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const FIXTURE: &str = env!("CARGO_BIN_EXE_fixture");

/// Far longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(30);

fn fixture(args: &[&str]) -> Command {
    let mut command = Command::new(FIXTURE);
    command.arg("conformance").args(args);
    for name in ["SPILE_TOKEN", "SPILE_LOG", "SPILE_WORKERS", "SPILE_CALL_TIMEOUT_MS"] {
        command.env_remove(name);
    }
    command
}

/// A process that ends with the test; waiting for it has a time limit.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the fixture starts"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it can be signalled");
    }

    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(start.elapsed() < TIMEOUT, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already, or the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a pipe; waiting for a line has a time limit.
struct Lines(std::sync::mpsc::Receiver<String>);

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let (tell, lines) = sync_channel(1 << 12);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                if line.is_err() || line.is_ok_and(|line| tell.send(line).is_err()) {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// `None` at the end.
    fn next(&self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.0.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(Disconnected) => None,
            Err(Timeout) => panic!("nothing came, and the pipe was not closed"),
        }
    }

    fn json(&self) -> Option<Value> {
        let line = self.next()?;
        Some(
            serde_json::from_str(&line)
                .unwrap_or_else(|e| panic!("stdout carries only messages: {e}: {line}")),
        )
    }
}

// Starting.

enum Startup {
    Serves,
    /// Prints all of these on stderr, and nothing on stdout.
    Fails(&'static [&'static str]),
}
use Startup::{Fails, Serves};

fn check(args: &[&str], env: &[(&str, &str)], then: &Startup) {
    let mut command = fixture(args);
    command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(&mut command);
    let stderr = Lines::of(process.0.stderr.take().expect("stderr is a pipe"));
    let stdout = Lines::of(process.0.stdout.take().expect("stdout is a pipe"));
    let case = format!("{args:?} {env:?}");
    match then {
        Serves => {
            let line = stderr.next().unwrap_or_default();
            assert!(line.contains("http://"), "{case}: {line}");
            process.signal(Signal::TERM);
            assert!(process.wait().success(), "{case}");
        }
        Fails(texts) => {
            assert!(!process.wait().success(), "{case}");
            let said: Vec<String> = std::iter::from_fn(|| stderr.next()).collect();
            let said = said.join("\n");
            for text in *texts {
                assert!(said.contains(text), "{case}: no `{text}` in {said}");
            }
        }
    }
    assert_eq!(stdout.next(), None, "{case}");
}

/// A file with this text, in the build directory.
fn file(name: &str, text: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, text).expect("it can be written");
    path
}

#[test]
fn a_public_address_without_a_token_needs_a_flag() {
    let token = &*file("token", "s3cret-s3cret-s3cret\n");
    let unasked = Fails(&["other machines can reach", "--token-file", "--no-auth"]);
    check(&["--bind", "127.0.0.1:0"], &[], &Serves);
    check(&["--bind", "[::1]:0"], &[], &Serves);
    check(&["--bind", "0.0.0.0:0"], &[], &unasked);
    check(&["--bind", "[::]:0"], &[], &unasked);
    check(&["--bind", "192.0.2.1:0"], &[], &unasked);
    check(&["--bind", "0.0.0.0:0", "--no-auth"], &[], &Serves);
    check(&["--bind", "0.0.0.0:0", "--token-file", token], &[], &Serves);
    check(&["--bind", "0.0.0.0:0"], &[("SPILE_TOKEN", "s3cret-s3cret-s3cret")], &Serves);
}

#[test]
fn an_empty_or_unreadable_token_is_refused() {
    let empty = Fails(&["the token is empty"]);
    for text in ["", "\n", " \t\r\n"] {
        let token = file("token-empty", text);
        check(&["--bind", "127.0.0.1:0", "--token-file", &token], &[], &empty);
        check(&["--bind", "127.0.0.1:0"], &[("SPILE_TOKEN", text)], &empty);
    }
    let missing = Fails(&["cannot read the token file `/nowhere/token`"]);
    check(&["--bind", "127.0.0.1:0", "--token-file", "/nowhere/token"], &[], &missing);
    // A named token file is used even if another token is set.
    let named = ["--bind", "127.0.0.1:0", "--token-file", "/nowhere/token"];
    check(&named, &[("SPILE_TOKEN", "s3cret")], &missing);
}

#[test]
fn an_allowed_origin_must_be_scheme_and_host_only() {
    for origin in ["https://app.example", "http://localhost:5173", "https://[::1]:8443"] {
        check(&["--bind", "127.0.0.1:0", "--allow-origin", origin], &[], &Serves);
    }
    for origin in
        ["app.example", "https://", "https://app.example/", "https://app.example/x", "*", "null", ""]
    {
        let refuses = Fails(&["--allow-origin", "https://app.example"]);
        check(&["--bind", "127.0.0.1:0", "--allow-origin", origin], &[], &refuses);
    }
}

#[test]
fn a_setting_that_is_not_a_number_is_an_error() {
    for name in [
        "SPILE_CALL_TIMEOUT_MS",
        "SPILE_HEADER_TIMEOUT_MS",
        "SPILE_BODY_IDLE_TIMEOUT_MS",
        "SPILE_WRITE_STALL_TIMEOUT_MS",
        "SPILE_KEEP_ALIVE_TIMEOUT_MS",
        "SPILE_WORKERS",
    ] {
        check(&["--bind", "127.0.0.1:0"], &[(name, "1000")], &Serves);
        for value in ["0", "-1", "1s", "", "1e3"] {
            check(&["--bind", "127.0.0.1:0"], &[(name, value)], &Fails(&["SPILE_", ": "]));
        }
    }
}

#[test]
fn a_port_in_use_is_an_error_that_says_so() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    check(&["--bind", &address], &[], &Fails(&["cannot listen on", "port 0"]));
}

// Shutdown over HTTP.

struct HttpFixture {
    process: Process,
    address: SocketAddr,
    _stderr: Lines,
}

fn start_http(args: &[&str]) -> HttpFixture {
    let mut command = fixture(&[&["--bind", "127.0.0.1:0"], args].concat());
    let mut process =
        Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
    let stderr = Lines::of(process.0.stderr.take().expect("stderr is a pipe"));
    let line = stderr.next().expect("it says where it listens");
    let (_, address) = line.split_once("http://").expect("an address");
    let address = address.trim_end_matches("/mcp").parse().expect("an address");
    HttpFixture { process, address, _stderr: stderr }
}

fn send(address: SocketAddr, method: &str, path: &str, heads: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{heads}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// Everything up to the end of the connection.
fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it is closed in time");
    text
}

/// Waits until so many calls are in flight.
fn wait_until_active(address: SocketAddr, calls: u64) {
    let start = Instant::now();
    loop {
        let status = rest(send(address, "GET", "/status", "Connection: close\r\n", ""));
        if status.contains(&format!(r#""callsActive":{calls},"#)) {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "never {calls} calls: {status}");
    }
}

/// Waits until the address refuses connections.
fn wait_until_refused(address: SocketAddr) {
    let start = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(start.elapsed() < TIMEOUT, "it goes on listening");
    }
}

#[test]
fn shutdown_over_http_answers_calls_in_flight() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut served = start_http(&[]);
        let address = served.address;
        let session = {
            let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
            let heads = "Content-Type: application/json\r\nConnection: close\r\n";
            let answer = rest(send(address, "POST", "/mcp", heads, body));
            let line = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            line.expect("a session").to_owned()
        };
        let slow = |meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"slow_compute","arguments":{{"seconds":3}}{meta}}}}}"#
            )
        };
        let json = "Content-Type: application/json\r\n";
        let modern = concat!(
            r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientCapabilities":{}}"#
        );
        let modern_heads =
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: slow_compute\r\n";
        let waiting = [
            ("modern", send(address, "POST", "/mcp", &format!("{json}{modern_heads}"), &slow(modern))),
            (
                "session",
                send(address, "POST", "/mcp", &format!("{json}Mcp-Session-Id: {session}\r\n"), &slow("")),
            ),
            ("alone", send(address, "POST", "/mcp", json, &slow(""))),
        ];
        wait_until_active(address, 3);
        served.process.signal(signal);
        wait_until_refused(address);
        for (era, stream) in waiting {
            let answer = rest(stream);
            assert!(answer.contains(r#""id":7"#) && answer.contains(r#""result""#), "{era}: {answer}");
        }
        assert_eq!(served.process.wait().code(), Some(0));
    }
}

#[test]
fn shutdown_while_idle_exits_at_once() {
    let mut served = start_http(&[]);
    let mut idle = TcpStream::connect(served.address).expect("it listens");
    idle.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    let mut kept = BufReader::new(send(served.address, "GET", "/health", "", ""));
    kept.read_until(b'}', &mut Vec::new()).expect("an answer");
    served.process.signal(Signal::TERM);
    assert_eq!(idle.read(&mut [0]).expect("it is closed in time"), 0);
    assert_eq!(kept.read(&mut [0]).expect("it is closed in time"), 0);
    assert_eq!(served.process.wait().code(), Some(0));
}

// Shutdown over stdio.

struct StdioFixture {
    process: Process,
    input: Option<ChildStdin>,
    output: Lines,
    stderr: Lines,
}

fn start_stdio(args: &[&str]) -> StdioFixture {
    start_stdio_with(&mut fixture(args))
}

fn start_stdio_with(command: &mut Command) -> StdioFixture {
    let mut process =
        Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let output: ChildStdout = process.0.stdout.take().expect("stdout is a pipe");
    let stderr = Lines::of(process.0.stderr.take().expect("stderr is a pipe"));
    let input = process.0.stdin.take();
    let mut piped = StdioFixture { process, input, output: Lines::of(output), stderr };
    piped.line(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    );
    assert_eq!(piped.output.json().expect("an answer")["id"], 0);
    piped
}

impl StdioFixture {
    fn line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).expect("it reads");
    }

    /// Starts a slow call, and waits until it is in flight.
    fn call(&mut self) {
        self.line(
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"test_tool_with_progress","arguments":{},"_meta":{"progressToken":7}}}"#,
        );
        let progress = self.output.json().expect("progress");
        assert_eq!(progress["method"], "notifications/progress");
    }

    /// Everything up to the end of the output.
    fn rest(&self) -> Vec<Value> {
        std::iter::from_fn(|| self.output.json()).collect()
    }
}

#[test]
fn shutdown_over_stdio_answers_calls_in_flight() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut piped = start_stdio(&[]);
        piped.call();
        piped.process.signal(signal);
        let rest = piped.rest();
        let last = rest.last().unwrap_or_else(|| panic!("no answer to {signal:?}"));
        assert_eq!((&last["id"], last["result"].is_object()), (&7.into(), true), "{rest:?}");
        assert_eq!(piped.process.wait().code(), Some(0));
    }
}

#[test]
fn shutdown_over_stdio_has_a_time_limit() {
    let mut piped = start_stdio(&[]);
    piped.line(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow_compute","arguments":{"seconds":3600}}}"#,
    );
    piped.line(r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#);
    assert_eq!(piped.output.json().expect("an answer")["id"], 8);
    piped.process.signal(Signal::TERM);
    assert_eq!(piped.process.wait().code(), Some(0));
    assert_eq!(piped.rest(), [] as [Value; 0]);
}

#[test]
fn the_server_exits_at_the_end_of_its_input() {
    let mut quiet = start_stdio(&[]);
    quiet.input = None;
    assert_eq!(quiet.process.wait().code(), Some(0));
    assert_eq!(quiet.rest(), [] as [Value; 0]);

    let mut finishing = start_stdio(&[]);
    finishing.call();
    finishing.input = None;
    let rest = finishing.rest();
    assert_eq!(rest.last().expect("an answer")["id"], 7, "{rest:?}");
    assert_eq!(finishing.process.wait().code(), Some(0));

    let mut endless = start_stdio(&[]);
    endless.line(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow_compute","arguments":{"seconds":3600}}}"#,
    );
    endless.input = None;
    assert_eq!(endless.process.wait().code(), Some(0), "it is cancelled");
}

/// Whatever is logged, stdout carries only messages: [`Lines::json`] would fail on anything else.
#[test]
fn logs_go_to_stderr_and_stdout_has_only_messages() {
    for args in [&["-vv"][..], &["-vv", "--log-format", "json"]] {
        let mut piped = start_stdio(args);
        piped.line("no message at all");
        assert_eq!(piped.output.json().expect("an answer")["error"]["code"], -32700);
        piped.line(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow_compute","arguments":{"seconds":3600}}}"#);
        piped.input = None;
        assert_eq!(piped.rest(), [] as [Value; 0]);
        assert!(piped.process.wait().success());
        assert!(piped.stderr.next().is_some(), "{args:?}: what was cancelled is in the log");
    }
}

/// The reading thread is not a worker: with one worker, pending calls must go on while the server reads.
#[test]
fn one_worker_thread_is_enough_over_stdio() {
    let mut piped = start_stdio_with(fixture(&[]).env("SPILE_WORKERS", "1"));
    piped.call();
    let answered = std::iter::from_fn(|| piped.output.json()).find(|message| message["id"] == 7);
    assert!(answered.is_some_and(|answer| answer["result"].is_object()));
    piped.input = None;
    assert_eq!(piped.process.wait().code(), Some(0));
}
