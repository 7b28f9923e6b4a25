//! An HTTP/1.1 client that sends arbitrary bytes and parses the responses itself.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rustls::ClientConnection;
use serde_json::Value;

use crate::conn::Conn;

pub(crate) const STATELESS: &str = "2026-07-28";
pub(crate) const HANDSHAKE: &str = "2025-11-25";

/// A request to be sent. `HOST` in a value stands for the address of the server.
#[derive(Debug, Clone)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpRequest {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let headers = vec![("Host".into(), "127.0.0.1".into())];
        Self { method: method.into(), path: path.into(), headers, body: Vec::new() }
    }

    /// Adds a header, whether or not there is one of this name.
    pub(crate) fn append_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets a header.
    pub(crate) fn with_header(self, name: &str, value: &str) -> Self {
        self.without_header(name).append_header(name, value)
    }

    pub(crate) fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn with_path(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    /// The head, with the length of the body unless it says how long it is.
    pub(crate) fn head_bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            write!(text, "{name}: {value}\r\n").expect("a string takes everything");
        }
        let says = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !self.body.is_empty() && !says("content-length") && !says("transfer-encoding") {
            write!(text, "Content-Length: {}\r\n", self.body.len()).expect("a string takes everything");
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [self.head_bytes(), self.body.clone()].concat()
    }
}

pub(crate) fn get(path: &str) -> HttpRequest {
    HttpRequest::new("GET", path)
}

/// A body, as a client of the handshake era posts it.
pub(crate) fn post(body: impl Into<Vec<u8>>) -> HttpRequest {
    let request = HttpRequest::new("POST", "/mcp")
        .with_header("Content-Type", "application/json")
        .with_header("Accept", "application/json, text/event-stream");
    HttpRequest { body: body.into(), ..request }
}

pub(crate) fn initialize(version: &str, capabilities: &str) -> HttpRequest {
    post(format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}",
            "capabilities":{capabilities},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    ))
}

/// The same on a pipe.
pub(crate) fn initialize_message(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    )
}

/// A request within a session.
pub(crate) fn in_session(session: &str, body: impl Into<Vec<u8>>) -> HttpRequest {
    post(body).with_header("Mcp-Session-Id", session)
}

/// A tool call of the handshake era; the token for progress is the id.
pub(crate) fn call(id: u64, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":{id}}}}}}}"#
    )
}

pub(crate) fn ping(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

/// A request of the newest era.
pub(crate) fn stateless(id: u64, method: &str, name: Option<&str>, params: &str) -> HttpRequest {
    let meta = format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{STATELESS}","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":{id}}}"#
    );
    let comma = if params.is_empty() { "" } else { "," };
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{comma}{meta}}}}}"#);
    let request = post(body).with_header("MCP-Protocol-Version", STATELESS).with_header("Mcp-Method", method);
    match name {
        Some(name) => request.with_header("Mcp-Name", name),
        None => request,
    }
}

pub(crate) fn stateless_call(id: u64, tool: &str, arguments: &str) -> HttpRequest {
    stateless(id, "tools/call", Some(tool), &format!(r#""name":"{tool}","arguments":{arguments}"#))
}

#[derive(Debug, Clone)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    /// The only header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let found = all.next().map(|(_, value)| value.as_str());
        assert!(all.next().is_none(), "{name} comes twice: {self:?}");
        found
    }

    /// All values of a header that may come several times.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        let all = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        all.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The code of the JSON-RPC error in the body.
    pub(crate) fn error_code(&self) -> Option<i64> {
        let json: Value = serde_json::from_slice(&self.body).ok()?;
        assert_eq!(json["jsonrpc"], "2.0");
        json["error"]["code"].as_i64()
    }
}

/// One server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) event: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) retry: Option<u64>,
}

impl Event {
    pub(crate) fn parse(text: &str) -> Self {
        let mut event = Self::default();
        for line in text.lines() {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match name {
                "" => {}
                "event" => event.event = Some(value),
                "id" => event.id = Some(value),
                "data" => event.data = Some(value),
                "retry" => event.retry = Some(value.parse().expect("retry is a number")),
                other => panic!("unknown field `{other}` in {text:?}"),
            }
        }
        event
    }

    /// A comment, which only keeps the connection.
    pub(crate) fn is_comment(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn json(&self) -> Value {
        let data = self.data.as_deref().unwrap_or_else(|| panic!("no data: {self:?}"));
        serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))
    }
}

/// One connection.
pub(crate) struct Client {
    stream: Conn,
    /// Under TLS: it ended without a word.
    truncated: bool,
    /// Read, but not looked at.
    raw: Vec<u8>,
    /// The decoded body of a stream.
    decoded: Vec<u8>,
    body_remaining: BodyRemaining,
}

/// What is still to be read of the body.
enum BodyRemaining {
    Nothing,
    Bytes(usize),
    Chunks,
}

impl Client {
    pub(crate) fn new(stream: Conn) -> Self {
        Self {
            stream,
            truncated: false,
            raw: Vec::new(),
            decoded: Vec::new(),
            body_remaining: BodyRemaining::Nothing,
        }
    }

    /// The session, and the socket under it.
    pub(crate) fn tls(&mut self) -> (&mut ClientConnection, &mut TcpStream) {
        self.stream.tls()
    }

    /// Whether the other side ended it without saying so.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// The connection, and what was read from it but not looked at.
    pub(crate) fn into_parts(self) -> (Conn, Vec<u8>) {
        (self.stream, self.raw)
    }

    /// Sends; reading shows whether the server closed early.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let sent = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        if let Err(error) = sent {
            let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted];
            assert!(gone.contains(&error.kind()), "cannot send: {error}");
        }
    }

    pub(crate) fn send_request(&mut self, request: &HttpRequest) -> HttpResponse {
        self.send(&request.to_bytes());
        self.read_response().expect("an answer")
    }

    /// Says that nothing more will be sent.
    pub(crate) fn shutdown_write(&mut self) {
        self.stream.shutdown_write();
    }

    /// More bytes, or the end.
    fn read_more(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.truncated = true;
                false
            }
            Ok(n) => {
                self.raw.extend_from_slice(&bytes[..n]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}; at hand: {:?}", String::from_utf8_lossy(&self.raw)),
        }
    }

    pub(crate) fn read_bytes(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.raw.len() < bytes {
            if !self.read_more() {
                return None;
            }
        }
        Some(self.raw.drain(..bytes).collect())
    }

    pub(crate) fn read_until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        let mut from = 0;
        loop {
            if let Some(at) = self.raw[from..].windows(mark.len()).position(|w| w == mark) {
                return self.read_bytes(from + at + mark.len());
            }
            from = (self.raw.len() + 1).saturating_sub(mark.len());
            if !self.read_more() {
                return None;
            }
        }
    }

    /// The head of an answer; `None` if the connection ends before there is one.
    pub(crate) fn read_head(&mut self) -> Option<HttpResponse> {
        let head = self.read_until(b"\r\n\r\n")?;
        let head = String::from_utf8(head).expect("a head is ASCII");
        let mut lines = head.lines();
        let first = lines.next().expect("a head has a first line");
        let status = first.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let heads = lines.filter_map(|line| line.split_once(": "));
        let heads = heads.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let response = HttpResponse { status, headers: heads, body: Vec::new() };
        self.decoded.clear();
        self.body_remaining = match response.header("content-length") {
            Some(length) => BodyRemaining::Bytes(length.parse().expect("a length")),
            None if response.header("transfer-encoding") == Some("chunked") => BodyRemaining::Chunks,
            None => BodyRemaining::Nothing,
        };
        Some(response)
    }

    /// A whole answer; `None` if the connection ends before it does.
    pub(crate) fn read_response(&mut self) -> Option<HttpResponse> {
        let response = self.read_head()?;
        self.read_body(response)
    }

    /// The rest of an answer whose head was read.
    pub(crate) fn read_body(&mut self, mut response: HttpResponse) -> Option<HttpResponse> {
        response.body = match std::mem::replace(&mut self.body_remaining, BodyRemaining::Nothing) {
            BodyRemaining::Nothing => Vec::new(),
            BodyRemaining::Bytes(bytes) => self.read_bytes(bytes)?,
            BodyRemaining::Chunks => {
                while self.read_chunk()? {}
                std::mem::take(&mut self.decoded)
            }
        };
        Some(response)
    }

    /// Decodes one chunk; `false` after the last.
    fn read_chunk(&mut self) -> Option<bool> {
        let size = self.read_until(b"\r\n")?;
        let size = std::str::from_utf8(&size).expect("a chunk size is ASCII").trim();
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        let chunk = self.read_bytes(size + 2)?;
        self.decoded.extend_from_slice(&chunk[..size]);
        Some(size > 0)
    }

    /// The next event of the stream whose head was read; `None` at its end.
    pub(crate) fn next_event_or_comment(&mut self) -> Option<Event> {
        loop {
            if let Some(at) = self.decoded.windows(2).position(|w| w == b"\n\n") {
                let event: Vec<u8> = self.decoded.drain(..at + 2).collect();
                return Some(Event::parse(std::str::from_utf8(&event).expect("an event is UTF-8")));
            }
            match self.body_remaining {
                BodyRemaining::Nothing => return None,
                BodyRemaining::Bytes(bytes) => {
                    let whole = self.read_bytes(bytes)?;
                    self.decoded.extend_from_slice(&whole);
                    self.body_remaining = BodyRemaining::Nothing;
                }
                BodyRemaining::Chunks => {
                    if !self.read_chunk()? {
                        self.body_remaining = BodyRemaining::Nothing;
                    }
                }
            }
        }
    }

    /// The next event that is no comment.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = self.next_event_or_comment()?;
            if !event.is_comment() {
                return Some(event);
            }
        }
    }

    /// Sends, and reads the head of the stream that it is answered with.
    pub(crate) fn open_stream(&mut self, request: &HttpRequest) -> HttpResponse {
        self.send(&request.to_bytes());
        let head = self.read_head().expect("an answer");
        if head.status != 200 {
            panic!("no stream: {:?}", self.read_body(head));
        }
        assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
        head
    }

    /// Everything that is left of the stream, without comments.
    pub(crate) fn remaining_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next_event()).collect()
    }

    /// Whether the other side has not closed yet.
    pub(crate) fn is_open(&mut self) -> bool {
        self.stream.is_open()
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.stream.is_silent()
    }

    /// Waits until the other side closes; says what came before.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        while self.read_more() {}
        std::mem::take(&mut self.raw)
    }
}
