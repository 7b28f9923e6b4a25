//! Servers that break, over every transport: each fault is a typed error within the deadline, memory is bounded, and no process is
//! left.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt};
use json::Json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use upstream::process::Command;
use upstream::{Connection, ConnectionOptions, NoopClientHandler, OpenError, Target};
use wire::client::{ClientCall, ClientError, ClientOptions, CloseReason};
use wire::method::Method;

use crate::faulty_server::{self, Fault, When, answering};
use crate::{helper, kinds};

/// Longer than the timeouts below together, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const CALL_TIMEOUT_MS: u64 = 4000;
/// What some connections at once may cost, whatever the servers send: a few messages of 16 MiB each, and what the allocator keeps of
/// them. The servers send a gigabyte.
const MEMORY_KIB_MAX: u64 = 400 << 10;

fn options() -> ConnectionOptions {
    let client_options =
        ClientOptions { probe_timeout_ms: 1000, handshake_timeout_ms: 4000, ..ClientOptions::default() };
    ConnectionOptions {
        client_options,
        process: kinds::options(Some(helper())),
        ..ConnectionOptions::default()
    }
}

/// What opening the connection and calling its tool came to, in one word.
async fn outcome(opening: impl Future<Output = Result<Connection, OpenError>>) -> String {
    let work = async {
        let connection = match opening.await {
            Ok(connection) => connection,
            Err(error) => return format!("open: {}", open_error(&error)),
        };
        let params = Json::parse(r#"{"name":"poke","arguments":{}}"#).expect("JSON");
        let call =
            ClientCall { timeout_ms: Some(CALL_TIMEOUT_MS), ..ClientCall::new(Method::ToolsCall, params) };
        let called = connection.call(call, None).await;
        connection.close().await;
        match called {
            Ok(result) => format!("call: {result}"),
            Err(error) => format!("call: {}", client_error(&error)),
        }
    };
    tokio::time::timeout(DEADLINE, work).await.unwrap_or_else(|_| "hangs".to_owned())
}

fn open_error(error: &OpenError) -> String {
    match error {
        OpenError::Failed(error) => client_error(error),
        OpenError::Child { error, .. } => format!("child {}", client_error(error)),
        OpenError::Connect { failure, .. } => format!("connect {failure:?}"),
        OpenError::Outbound(error) => format!("outbound {error}"),
        OpenError::Start(error) => format!("start {error}"),
    }
}

fn client_error(error: &ClientError) -> String {
    match error {
        ClientError::Timeout { .. } => "timeout".to_owned(),
        ClientError::HttpStatus { status, retry_after_ms: Some(ms), .. } => {
            format!("status {status}, in {ms} ms")
        }
        ClientError::HttpStatus { status, .. } => format!("status {status}"),
        ClientError::ProtocolViolation(_) => "protocol violation".to_owned(),
        ClientError::ConnectionClosed(CloseReason::AlreadyClosed) => "closed before".to_owned(),
        ClientError::ConnectionClosed(CloseReason::NotSent(_)) => "not sent".to_owned(),
        ClientError::ConnectionClosed(_) => "closed".to_owned(),
        ClientError::UnsupportedVersion(_) => "unsupported version".to_owned(),
        ClientError::Server(error) => format!("server error {}", error.code),
        ClientError::Unauthorized { status, .. } => format!("unauthorized {status}"),
        ClientError::Cancelled => "cancelled".to_owned(),
        ClientError::InputRefused(_) => "input refused".to_owned(),
        ClientError::Busy => "busy".to_owned(),
    }
}

/// The most memory that this process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Each test is a process of its own, so the peak is the test's.
#[track_caller]
fn check(rows: &[(String, String, &str)]) {
    let wrong: Vec<String> = rows
        .iter()
        .filter(|(_, found, expected)| found != expected)
        .map(|(row, found, expected)| format!("{row}: {found}, expected {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(peak_kib() < MEMORY_KIB_MAX, "{} KiB", peak_kib());
}

const POKED: &str = r#"call: {"content":[{"type":"text","text":"poked"}]}"#;

async fn check_http(is_sse: bool, table: &[(When, Fault, &'static str)]) {
    let rows = table.iter().map(async |(when, fault, expected)| {
        let url = faulty_server::start(*fault, *when, is_sse);
        let url = url.parse().expect("an address");
        let target = if is_sse { Target::Sse(url) } else { Target::Http(url) };
        let found = outcome(Connection::open(&target, options(), Arc::new(NoopClientHandler))).await;
        (format!("{when:?} {fault:?}"), found, *expected)
    });
    check(&join_all(rows).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_server_over_http_is_a_typed_error() {
    use Fault::*;
    use When::{AtStart, InCall};
    check_http(
        false,
        &[
            (AtStart, NeverAnswers, "open: timeout"),
            (AtStart, Closes, "open: closed"),
            (AtStart, ResetsMidBody, "open: closed"),
            (AtStart, RedirectsInCircles, "open: status 307"),
            (AtStart, Garbage, "open: closed"),
            (AtStart, EndlessHead, "open: closed"),
            (AtStart, EndlessBody, "open: protocol violation"),
            (AtStart, EndlessEvent, "open: protocol violation"),
            (AtStart, WrongId, "open: protocol violation"),
            (AtStart, ServerError, "open: status 500"),
            (InCall, NeverAnswers, "call: timeout"),
            (InCall, Closes, "call: closed"),
            (InCall, ResetsMidBody, "call: closed"),
            (InCall, RedirectsInCircles, "call: status 307"),
            (InCall, Garbage, "call: closed"),
            (InCall, EndlessHead, "call: closed"),
            (InCall, EndlessBody, "call: protocol violation"),
            (InCall, EndlessEvent, "call: protocol violation"),
            (InCall, WrongId, "call: protocol violation"),
            (InCall, AnswersTwice, POKED),
            (InCall, ServerError, "call: status 500"),
            (InCall, Unauthorized, "call: unauthorized 401"),
            (InCall, TooMany, "call: status 429, in 7000 ms"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_server_over_http_and_sse_is_a_typed_error() {
    use Fault::*;
    use When::{AtStart, InCall};
    check_http(
        true,
        &[
            (AtStart, NeverAnswers, "open: connect Other"),
            (AtStart, Closes, "open: connect Other"),
            (AtStart, ResetsMidBody, "open: connect Other"),
            (AtStart, RedirectsInCircles, "open: status 307"),
            (AtStart, Garbage, "open: connect Other"),
            (AtStart, EndlessHead, "open: connect Other"),
            (AtStart, EndlessEvent, "open: connect Other"),
            (AtStart, ServerError, "open: status 500"),
            (InCall, NeverAnswers, "call: timeout"),
            (InCall, Closes, "call: closed"),
            (InCall, ResetsMidBody, "call: closed"),
            (InCall, Garbage, "call: timeout"),
            (InCall, EndlessEvent, "call: closed"),
            (InCall, WrongId, "call: timeout"),
            (InCall, AnswersTwice, POKED),
            (InCall, ServerError, "call: status 500"),
            (InCall, Unauthorized, "call: unauthorized 401"),
            (InCall, TooMany, "call: status 429, in 7000 ms"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_program_is_a_typed_error_and_leaves_no_process() {
    let mark = kinds::new_mark("faults");
    let poked =
        r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"poked"}]}}\n' "$id""#;
    let result = |json: &str| format!(r#"printf '{{"jsonrpc":"2.0","id":%s,"result":{json}}}\n' "$id""#);
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    let endless = "head -c 1073741824 /dev/zero | tr '\\0' x";
    let table = [
        ("exits at once", "exit 1".to_owned(), "open: child closed"),
        ("never answers", "cat >/dev/null".to_owned(), "open: child timeout"),
        (
            "ignores the end of its input",
            "trap '' TERM; sleep 1000 & sleep 1000".to_owned(),
            "open: child timeout",
        ),
        ("stops itself", "kill -STOP $$".to_owned(), "open: child timeout"),
        ("floods stderr and never answers", "yes flood >&2".to_owned(), "open: child timeout"),
        (
            "writes garbage",
            "while :; do head -c 65536 /dev/urandom || exit; echo; done".to_owned(),
            "open: child timeout",
        ),
        ("one line of 1 GiB", endless.to_owned(), "open: child timeout"),
        ("exits in the call", answering("exit 3"), "call: closed"),
        ("stops itself in the call", answering("kill -STOP $$"), "call: timeout"),
        ("hangs in the call", answering(":"), "call: timeout"),
        ("one line of 1 GiB in the call", answering(endless), "call: timeout"),
        ("floods stderr in the call", answering(&format!("yes flood | head -c 2000000 >&2; {poked}")), POKED),
        ("writes garbage before the answer", answering(&format!("echo hello; {poked}")), POKED),
        (
            "answers with another id",
            answering(r#"printf '{"jsonrpc":"2.0","id":999999,"result":{}}\n'"#),
            "call: timeout",
        ),
        ("answers twice", answering(&format!("{poked}; {poked}")), POKED),
        (
            "answers with a repeated key",
            answering(&result(r#"{"a":1,"\\u0061":2}"#)),
            "call: protocol violation",
        ),
        ("answers too deep", answering(&result(&deep)), "call: protocol violation"),
        ("answers in Latin-1", answering(&result(r#"{"a":"\377"}"#)), "call: timeout"),
    ];
    let rows = table.into_iter().map(async |(row, script, expected)| {
        let command = Command::new("sh").arg("-c").arg(script).env(kinds::MARK, &mark);
        let found = outcome(Connection::spawn(&command, options(), Arc::new(NoopClientHandler))).await;
        (row.to_owned(), found, expected)
    });
    let rows = join_all(rows).await;
    let left = kinds::until_none(|| kinds::marked(&mark));
    assert_eq!(left, Vec::<String>::new(), "processes are left");
    check(&rows);
}

/// What a WebSocket server does instead of an answer to the call.
#[derive(Debug, Clone, Copy)]
enum SocketFault {
    NeverAccepts,
    NoHandshake,
    NeverAnswers,
    Closes,
    Vanishes,
    NotJson,
    Binary,
    /// A frame that announces a terabyte, and sends some of it.
    EndlessFrame,
    /// Pieces of one message without an end.
    EndlessMessage,
    WrongId,
    AnswersTwice,
}

async fn socket_server(fault: SocketFault) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("ws://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_socket(stream, fault));
        }
    });
    Target::parse(&url).expect("an address")
}

async fn serve_socket(mut stream: tokio::net::TcpStream, fault: SocketFault) {
    match fault {
        SocketFault::NeverAccepts => return std::future::pending().await,
        SocketFault::NoHandshake => {
            let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n").await;
            return;
        }
        _ => {}
    }
    #[expect(clippy::result_large_err, reason = "the library wants it so")]
    let speaks = |_: &Request, mut response: Response| {
        response.headers_mut().insert("Sec-WebSocket-Protocol", "mcp".parse().expect("a header"));
        Ok(response)
    };
    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, speaks).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        let Ok(text) = message.to_text() else { continue };
        let Some(id) = Json::parse(text).ok().and_then(|json| json.to_doc().root().get("id").map(Json::from))
        else {
            continue;
        };
        let response = |id: &str, result: &str| {
            Message::text(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
        };
        let poked = |id: &str| response(id, r#"{"content":[{"type":"text","text":"poked"}]}"#);
        let sent = match text {
            _ if text.contains("\"initialize\"") => {
                let result = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bad","version":"1"}}"#;
                socket.send(response(id.as_str(), result)).await
            }
            _ if text.contains("\"tools/call\"") => match fault {
                SocketFault::NeverAccepts | SocketFault::NoHandshake | SocketFault::NeverAnswers => Ok(()),
                SocketFault::Closes => socket.close(None).await,
                SocketFault::Vanishes => return,
                SocketFault::NotJson => socket.send(Message::text("nonsense")).await,
                SocketFault::Binary => socket.send(Message::binary(vec![0xff; 10])).await,
                SocketFault::EndlessFrame => {
                    let _ = socket.get_mut().write_all(&[0x81, 0x7f, 0, 0, 1, 0, 0, 0, 0, 0]).await;
                    let chunk = vec![b'x'; 1 << 16];
                    while socket.get_mut().write_all(&chunk).await.is_ok() {}
                    return;
                }
                SocketFault::EndlessMessage => {
                    let mut frame = vec![0x01, 0x7e, 0xff, 0xff];
                    frame.extend(vec![b'x'; 0xffff]);
                    while socket.get_mut().write_all(&frame).await.is_ok() {
                        frame[0] = 0x00;
                    }
                    return;
                }
                SocketFault::WrongId => socket.send(poked("999999")).await,
                SocketFault::AnswersTwice => {
                    let _ = socket.send(poked(id.as_str())).await;
                    socket.send(poked(id.as_str())).await
                }
            },
            _ => {
                let error =
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"unknown"}}}}"#);
                socket.send(Message::text(error)).await
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_server_on_a_websocket_is_a_typed_error() {
    use SocketFault::*;
    let table = [
        (NeverAccepts, "open: timeout"),
        (NoHandshake, "open: status 302"),
        (NeverAnswers, "call: timeout"),
        (Closes, "call: closed"),
        (Vanishes, "call: closed"),
        (NotJson, "call: timeout"),
        (Binary, "call: timeout"),
        (EndlessFrame, "call: closed"),
        (EndlessMessage, "call: closed"),
        (WrongId, "call: timeout"),
        (AnswersTwice, POKED),
    ];
    let rows = table.into_iter().map(async |(fault, expected)| {
        let target = socket_server(fault).await;
        let mut options = options();
        options.outbound.connect_timeout_ms = 4000;
        let found = outcome(Connection::open(&target, options, Arc::new(NoopClientHandler))).await;
        (format!("{fault:?}"), found, expected)
    });
    check(&join_all(rows).await);
}
