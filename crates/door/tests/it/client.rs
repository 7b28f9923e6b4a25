//! An HTTP/1.1 client that sends whatever it is told to, and reads what comes back byte by byte.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rustls::ClientConnection;
use serde_json::Value;

use crate::conn::Conn;

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// A request to be sent. `HOST` in a value stands for the address of the door.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) heads: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Ask {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let heads = vec![("Host".into(), "127.0.0.1".into())];
        Self { method: method.into(), path: path.into(), heads, body: Vec::new() }
    }

    /// Adds a header, whether or not there is one of this name.
    pub(crate) fn and(mut self, name: &str, value: &str) -> Self {
        self.heads.push((name.into(), value.into()));
        self
    }

    /// Sets a header.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        self.without(name).and(name, value)
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.heads.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn at(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    /// The head, with the length of the body unless it says how long it is.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.heads {
            write!(text, "{name}: {value}\r\n").expect("a string takes everything");
        }
        let says = |name: &str| self.heads.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !self.body.is_empty() && !says("content-length") && !says("transfer-encoding") {
            write!(text, "Content-Length: {}\r\n", self.body.len()).expect("a string takes everything");
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.head(), self.body.clone()].concat()
    }
}

pub(crate) fn get(path: &str) -> Ask {
    Ask::new("GET", path)
}

/// A body, as a client of the handshake era posts it.
pub(crate) fn post(body: impl Into<Vec<u8>>) -> Ask {
    let ask = Ask::new("POST", "/mcp")
        .with("Content-Type", "application/json")
        .with("Accept", "application/json, text/event-stream");
    Ask { body: body.into(), ..ask }
}

pub(crate) fn initialize(version: &str, capabilities: &str) -> Ask {
    post(format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}",
            "capabilities":{capabilities},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    ))
}

/// The same on a pipe.
pub(crate) fn hello(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    )
}

/// A request within a session.
pub(crate) fn within(session: &str, body: impl Into<Vec<u8>>) -> Ask {
    post(body).with("Mcp-Session-Id", session)
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
pub(crate) fn modern(id: u64, method: &str, name: Option<&str>, params: &str) -> Ask {
    let meta = format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":{id}}}"#
    );
    let comma = if params.is_empty() { "" } else { "," };
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{comma}{meta}}}}}"#);
    let ask = post(body).with("MCP-Protocol-Version", MODERN).with("Mcp-Method", method);
    match name {
        Some(name) => ask.with("Mcp-Name", name),
        None => ask,
    }
}

pub(crate) fn modern_call(id: u64, tool: &str, arguments: &str) -> Ask {
    modern(id, "tools/call", Some(tool), &format!(r#""name":"{tool}","arguments":{arguments}"#))
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) heads: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The only header of this name.
    pub(crate) fn head(&self, name: &str) -> Option<&str> {
        let mut all = self.heads.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let found = all.next().map(|(_, value)| value.as_str());
        assert!(all.next().is_none(), "{name} comes twice: {self:?}");
        found
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The code of the JSON-RPC error in the body.
    pub(crate) fn code(&self) -> Option<i64> {
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
    fn read(text: &str) -> Self {
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
    cut: bool,
    /// Read, but not looked at.
    raw: Vec<u8>,
    /// The decoded body of a stream.
    decoded: Vec<u8>,
    left: Left,
}

/// What is still to be read of the body.
enum Left {
    Nothing,
    Bytes(usize),
    Chunks,
}

impl Client {
    pub(crate) fn over(stream: Conn) -> Self {
        Self { stream, cut: false, raw: Vec::new(), decoded: Vec::new(), left: Left::Nothing }
    }

    /// The session, and the socket under it.
    pub(crate) fn tls(&mut self) -> (&mut ClientConnection, &mut TcpStream) {
        self.stream.tls()
    }

    /// Whether the other side ended it without saying so.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// The connection, and what was read from it but not looked at.
    pub(crate) fn into_parts(self) -> (Conn, Vec<u8>) {
        (self.stream, self.raw)
    }

    /// Sends; a door that closed early shows in what is read.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let sent = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        if let Err(error) = sent {
            let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted];
            assert!(gone.contains(&error.kind()), "cannot send: {error}");
        }
    }

    pub(crate) fn ask(&mut self, ask: &Ask) -> Answer {
        self.send(&ask.bytes());
        self.answer().expect("an answer")
    }

    /// Says that nothing more will be sent.
    pub(crate) fn end(&mut self) {
        self.stream.end();
    }

    /// More bytes, or the end.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.cut = true;
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

    pub(crate) fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.raw.len() < bytes {
            if !self.more() {
                return None;
            }
        }
        Some(self.raw.drain(..bytes).collect())
    }

    pub(crate) fn take_until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        let mut from = 0;
        loop {
            if let Some(at) = self.raw[from..].windows(mark.len()).position(|w| w == mark) {
                return self.take(from + at + mark.len());
            }
            from = (self.raw.len() + 1).saturating_sub(mark.len());
            if !self.more() {
                return None;
            }
        }
    }

    /// The head of an answer; `None` if the connection ends before there is one.
    pub(crate) fn head(&mut self) -> Option<Answer> {
        let head = self.take_until(b"\r\n\r\n")?;
        let head = String::from_utf8(head).expect("a head is ASCII");
        let mut lines = head.lines();
        let first = lines.next().expect("a head has a first line");
        let status = first.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let heads = lines.filter_map(|line| line.split_once(": "));
        let heads = heads.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let answer = Answer { status, heads, body: Vec::new() };
        self.decoded.clear();
        self.left = match answer.head("content-length") {
            Some(length) => Left::Bytes(length.parse().expect("a length")),
            None if answer.head("transfer-encoding") == Some("chunked") => Left::Chunks,
            None => Left::Nothing,
        };
        Some(answer)
    }

    /// A whole answer; `None` if the connection ends before it does.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let answer = self.head()?;
        self.body(answer)
    }

    /// The rest of an answer whose head was read.
    pub(crate) fn body(&mut self, mut answer: Answer) -> Option<Answer> {
        answer.body = match std::mem::replace(&mut self.left, Left::Nothing) {
            Left::Nothing => Vec::new(),
            Left::Bytes(bytes) => self.take(bytes)?,
            Left::Chunks => {
                while self.chunk()? {}
                std::mem::take(&mut self.decoded)
            }
        };
        Some(answer)
    }

    /// Decodes one chunk; `false` after the last.
    fn chunk(&mut self) -> Option<bool> {
        let size = self.take_until(b"\r\n")?;
        let size = std::str::from_utf8(&size).expect("a chunk size is ASCII").trim();
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        let chunk = self.take(size + 2)?;
        self.decoded.extend_from_slice(&chunk[..size]);
        Some(size > 0)
    }

    /// The next event of the stream whose head was read; `None` at its end.
    pub(crate) fn any_event(&mut self) -> Option<Event> {
        loop {
            if let Some(at) = self.decoded.windows(2).position(|w| w == b"\n\n") {
                let event: Vec<u8> = self.decoded.drain(..at + 2).collect();
                return Some(Event::read(std::str::from_utf8(&event).expect("an event is UTF-8")));
            }
            match self.left {
                Left::Nothing => return None,
                Left::Bytes(bytes) => {
                    let whole = self.take(bytes)?;
                    self.decoded.extend_from_slice(&whole);
                    self.left = Left::Nothing;
                }
                Left::Chunks => {
                    if !self.chunk()? {
                        self.left = Left::Nothing;
                    }
                }
            }
        }
    }

    /// The next event that is no comment.
    pub(crate) fn event(&mut self) -> Option<Event> {
        loop {
            let event = self.any_event()?;
            if !event.is_comment() {
                return Some(event);
            }
        }
    }

    /// Sends, and reads the head of the stream that it is answered with.
    pub(crate) fn stream(&mut self, ask: &Ask) -> Answer {
        self.send(&ask.bytes());
        let head = self.head().expect("an answer");
        if head.status != 200 {
            panic!("no stream: {:?}", self.body(head));
        }
        assert_eq!(head.head("content-type"), Some("text/event-stream"), "{head:?}");
        head
    }

    /// Everything that is left of the stream, without comments.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// Whether the other side has not closed yet.
    pub(crate) fn is_open(&mut self) -> bool {
        self.stream.is_open()
    }

    /// Waits until the other side closes; says what came before.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.raw)
    }
}
