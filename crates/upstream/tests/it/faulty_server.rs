//! Servers over HTTP and HTTP+SSE, and programs, that break in one way each: from the start, or in the call of the tool `poke`. Plain threads, so
//! that they do not depend on the runtime of a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    NeverAnswers,
    Closes,
    ResetsMidBody,
    RedirectsInCircles,
    Garbage,
    EndlessHead,
    EndlessBody,
    EndlessEvent,
    WrongId,
    AnswersTwice,
    ServerError,
    Unauthorized,
    TooMany,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    AtStart,
    InCall,
}

/// More than anybody reads.
const ENDLESS_BYTES: usize = 1 << 30;
/// How long a connection without an answer is held.
const HOLD: Duration = Duration::from_secs(60);

const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bad","version":"1"}}"#;
const TOOLS: &str =
    r#"{"tools":[{"name":"poke","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}"#;
const POKED: &str = r#"{"content":[{"type":"text","text":"poked"}]}"#;

/// A program for the shell that answers a handshake of 2025-11-25 and the lists, and does `then` with a call, whose id is `$id`.
pub fn answering(then: &str) -> String {
    format!(
        r#"while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *'"initialize"'*) printf '{{"jsonrpc":"2.0","id":%s,"result":{INITIALIZED}}}\n' "$id" ;;
                *'"tools/list"'*) printf '{{"jsonrpc":"2.0","id":%s,"result":{TOOLS}}}\n' "$id" ;;
                *'"server/discover"'*) printf '{{"jsonrpc":"2.0","id":%s,"error":{{"code":-32601,"message":"unknown"}}}}\n' "$id" ;;
                *'"tools/call"'*) {then} ;;
            esac
        done"#
    )
}

/// Serves until the process ends. Returns the address of the endpoint: `/mcp` or `/sse`.
pub fn start(fault: Fault, when: When, is_sse: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let stream: EventStream = Arc::default();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let stream = stream.clone();
            std::thread::spawn(move || {
                // The client goes away when it has seen enough.
                let _ = serve(connection, fault, when, &stream);
            });
        }
    });
    format!("http://{address}{}", if is_sse { "/sse" } else { "/mcp" })
}

/// The connection that the events of HTTP+SSE go to.
type EventStream = Arc<Mutex<Option<TcpStream>>>;

struct Request {
    method: String,
    path: String,
    body: String,
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Request> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (method, path) =
        (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    if path.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Request { method, path, body: String::from_utf8_lossy(&body).into_owned() })
}

fn serve(connection: TcpStream, fault: Fault, when: When, events: &EventStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut out = connection;
    loop {
        let request = read_request(&mut reader)?;
        let is_call = request.body.contains("\"tools/call\"");
        let is_faulty = when == When::AtStart || is_call;
        if request.method == "GET" && request.path == "/sse" {
            if when == When::AtStart {
                return break_http(out, fault, "0");
            }
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: /messages\n\n")?;
            *events.lock().expect("no panic") = Some(out.try_clone()?);
            std::thread::sleep(HOLD);
            return Ok(());
        }
        let id = id_of(&request.body);
        if request.path == "/messages"
            && is_call
            && let Some(refusal) = refusal(fault)
        {
            out.write_all(refusal.as_bytes())?;
            continue;
        }
        if request.path == "/messages" {
            out.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")?;
            let stream = events.lock().expect("no panic").as_ref().map(TcpStream::try_clone);
            let Some(Ok(mut stream)) = stream else { return Ok(()) };
            match (is_call, answer(&request.body, &id)) {
                (true, _) => break_events(stream, fault, &id)?,
                (false, Some(answer)) => write!(stream, "data: {answer}\n\n")?,
                (false, None) => {}
            }
            continue;
        }
        if is_faulty {
            return break_http(out, fault, &id);
        }
        let (status, body) = match (request.method.as_str(), answer(&request.body, &id)) {
            ("POST", Some(answer)) => ("200 OK", answer),
            ("POST", None) => ("202 Accepted", String::new()),
            (_, _) => ("405 Method Not Allowed", String::new()),
        };
        let length = body.len();
        write!(
            out,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
    }
}

fn id_of(body: &str) -> String {
    let digits = body.split("\"id\":").nth(1).unwrap_or_default();
    digits.chars().take_while(char::is_ascii_digit).collect()
}

/// `None` for a notification.
fn answer(body: &str, id: &str) -> Option<String> {
    if id.is_empty() {
        return None;
    }
    let result = match () {
        () if body.contains("\"initialize\"") => INITIALIZED,
        () if body.contains("\"tools/list\"") => TOOLS,
        () if body.contains("\"ping\"") => "{}",
        () => {
            let error = r#"{"code":-32601,"message":"unknown"}"#;
            return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
        }
    };
    Some(response(id, result))
}

fn response(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn endless(out: &mut TcpStream) -> std::io::Result<()> {
    let chunk = vec![b'x'; 1 << 16];
    for _ in 0..ENDLESS_BYTES / chunk.len() {
        out.write_all(&chunk)?;
    }
    Ok(())
}

fn break_http(mut out: TcpStream, fault: Fault, id: &str) -> std::io::Result<()> {
    let stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    match fault {
        Fault::NeverAnswers => std::thread::sleep(HOLD),
        Fault::Closes => out.shutdown(Shutdown::Both)?,
        Fault::ResetsMidBody => {
            write!(
                out,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{{\"jsonrpc\""
            )?;
            reset(out)?;
        }
        Fault::RedirectsInCircles => {
            write!(out, "HTTP/1.1 307 Temporary Redirect\r\nLocation: /mcp\r\nContent-Length: 0\r\n\r\n")?;
        }
        Fault::Garbage => out.write_all(&[0xff; 4096])?,
        Fault::EndlessHead => {
            out.write_all(b"HTTP/1.1 200 OK\r\nX: ")?;
            endless(&mut out)?;
        }
        Fault::EndlessBody => {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":\"")?;
            endless(&mut out)?;
        }
        Fault::EndlessEvent => {
            write!(out, "{stream}data: ")?;
            endless(&mut out)?;
        }
        Fault::WrongId => {
            let body = response("999999", POKED);
            let length = body.len();
            write!(
                out,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
        }
        Fault::AnswersTwice => {
            let body = response(id, POKED);
            write!(out, "{stream}data: {body}\n\ndata: {body}\n\n")?;
        }
        Fault::ServerError | Fault::Unauthorized | Fault::TooMany => {
            out.write_all(refusal(fault).unwrap_or_default().as_bytes())?;
        }
    }
    Ok(())
}

/// The response of a server that does not take a request.
fn refusal(fault: Fault) -> Option<String> {
    let head = match fault {
        Fault::ServerError => "500 Internal Server Error",
        Fault::Unauthorized => "401 Unauthorized\r\nWWW-Authenticate: Bearer error=\"invalid_token\"",
        Fault::TooMany => "429 Too Many Requests\r\nRetry-After: 7",
        _ => return None,
    };
    Some(format!("HTTP/1.1 {head}\r\nContent-Length: 4\r\n\r\noops"))
}

fn break_events(mut stream: TcpStream, fault: Fault, id: &str) -> std::io::Result<()> {
    match fault {
        Fault::NeverAnswers
        | Fault::ServerError
        | Fault::Unauthorized
        | Fault::TooMany
        | Fault::EndlessHead
        | Fault::RedirectsInCircles => Ok(()),
        Fault::Closes => stream.shutdown(Shutdown::Both),
        Fault::ResetsMidBody => {
            write!(stream, "data: {{\"jsonrpc\"")?;
            stream.shutdown(Shutdown::Both)
        }
        Fault::Garbage => stream.write_all(b"data: \xff\xff\n\ndata: nonsense\n\n"),
        Fault::EndlessBody | Fault::EndlessEvent => {
            stream.write_all(b"data: ")?;
            endless(&mut stream)
        }
        Fault::WrongId => write!(stream, "data: {}\n\n", response("999999", POKED)),
        Fault::AnswersTwice => {
            let body = response(id, POKED);
            write!(stream, "data: {body}\n\ndata: {body}\n\n")
        }
    }
}

/// Closes with data unread on the other side: the kernel sends RST.
fn reset(out: TcpStream) -> std::io::Result<()> {
    rustix::net::sockopt::set_socket_linger(&out, Some(Duration::ZERO))?;
    out.shutdown(Shutdown::Read)?;
    drop(out);
    Ok(())
}
