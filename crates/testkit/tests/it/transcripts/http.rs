//! An HTTP client by hand: one connection for each request, so that streams can be read in parallel.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use transport::Guard;
use transport::http::{ConnectionLimits, HttpService};

use super::harness::Harness;
use super::pipe::READ_TIMEOUT;

pub struct TestHttpServer {
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
}

impl TestHttpServer {
    pub fn open(harness: &Harness) -> Self {
        let (stop, stopped) = watch::channel(false);
        let server = HttpService {
            servers: vec![harness.server.clone()],
            guard: Guard::default(),
            connection_limits: ConnectionLimits::default(),
            tls: None,
            http_sse: true,
            failed_servers: Vec::new(),
            page: None,
            has_main_server: false,
            directory: None,
            admin: None,
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be set not to block");
        let address = listener.local_addr().expect("a bound socket has an address");
        let _inside = harness.handle.enter();
        let listener = TcpListener::from_std(listener).expect("the runtime takes a socket");
        harness.handle.spawn(transport::http::serve(listener, Arc::new(server), stopped));
        Self { address, stop }
    }

    pub fn close(&self) {
        // Closed already if the receiver is gone.
        let _closed = self.stop.send(true);
    }
}

/// A response, read on demand.
pub struct Response {
    stream: BufReader<TcpStream>,
    head: Option<ResponseHead>,
    body: ResponseBody,
    /// Fields of the current event.
    fields: VecDeque<String>,
}

struct ResponseHead {
    status: u16,
    headers: Vec<(String, String)>,
}

enum ResponseBody {
    /// The body has so many bytes, none of them read yet.
    Sized(usize),
    /// Decoded bytes that are not consumed yet.
    Chunked(Vec<u8>),
    Finished,
}

impl Response {
    pub fn send(
        address: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Result<Self, String> {
        let broken = |error: std::io::Error| format!("the connection broke: {error}");
        let mut stream = TcpStream::connect(address).map_err(broken)?;
        stream.set_read_timeout(Some(READ_TIMEOUT)).map_err(broken)?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        stream.write_all(&[head.as_bytes(), b"\r\n", body].concat()).map_err(broken)?;
        Ok(Self {
            stream: BufReader::new(stream),
            head: None,
            body: ResponseBody::Finished,
            fields: VecDeque::new(),
        })
    }

    fn head(&mut self) -> Result<&ResponseHead, String> {
        if self.head.is_none() {
            let head = read_head(&mut self.stream)?;
            self.body = match (head.get("content-length"), head.get("transfer-encoding")) {
                (Some(length), _) => ResponseBody::Sized(length.parse().map_err(|_| "a length is a number")?),
                (None, Some("chunked")) => ResponseBody::Chunked(Vec::new()),
                (None, _) => ResponseBody::Finished,
            };
            self.head = Some(head);
        }
        self.head.as_ref().ok_or_else(|| "the head was just read".into())
    }

    /// Whether anything of the response has been read.
    pub fn is_started(&self) -> bool {
        self.head.is_some()
    }

    pub fn status(&mut self) -> Result<u16, String> {
        self.head().map(|head| head.status)
    }

    pub fn header(&mut self, name: &str) -> Result<Option<&str>, String> {
        self.head().map(|head| head.get(name))
    }

    fn is_stream(&mut self) -> Result<bool, String> {
        Ok(self.header("content-type")? == Some("text/event-stream"))
    }

    /// The next message; `None` at the end. In a stream, event ids are skipped.
    pub fn next(&mut self) -> Result<Option<String>, String> {
        if !self.is_stream()? {
            let body = self.read_sized()?;
            return Ok((!body.is_empty()).then_some(body));
        }
        loop {
            match self.next_field()? {
                None => return Ok(None),
                Some(field) if field.starts_with("id: ") => {}
                Some(field) => match field.strip_prefix("data: ").filter(|data| !data.is_empty()) {
                    Some(data) => return Ok(Some(data.to_owned())),
                    None => return Err(format!("an event without a message: `{field}`")),
                },
            }
        }
    }

    /// The rest of a response that is not a stream.
    pub fn unread(&mut self) -> Result<Option<String>, String> {
        if self.is_stream()? { Ok(None) } else { self.next() }
    }

    /// The next field of the stream: `id: …`, `retry: …` or `data: …`. Comments are skipped, and the event name, which adds
    /// nothing to the data.
    pub fn next_field(&mut self) -> Result<Option<String>, String> {
        self.head()?;
        loop {
            if let Some(field) = self.fields.pop_front() {
                match field.split(':').next() {
                    Some("id" | "retry" | "data") => return Ok(Some(field)),
                    Some("") => {}
                    _ if field == "event: message" || field == "event: endpoint" => {}
                    _ => return Err(format!("what is `{field}`?")),
                }
                continue;
            }
            match self.read_event()? {
                None => return Ok(None),
                Some(event) => self.fields.extend(event.lines().map(str::to_owned)),
            }
        }
    }

    /// The lines up to the next empty one.
    fn read_event(&mut self) -> Result<Option<String>, String> {
        loop {
            if let ResponseBody::Chunked(at_hand) = &mut self.body
                && let Some(end) = at_hand.windows(2).position(|two| two == b"\n\n")
            {
                let event = String::from_utf8_lossy(&at_hand[..end]).into_owned();
                at_hand.drain(..end + 2);
                return Ok(Some(event));
            }
            match &self.body {
                ResponseBody::Finished => return Ok(None),
                ResponseBody::Sized(_) => {
                    let whole = self.read_sized()?;
                    self.fields.extend(whole.lines().filter(|line| !line.is_empty()).map(str::to_owned));
                    return Ok(Some(String::new()));
                }
                ResponseBody::Chunked(_) => self.read_chunk()?,
            }
        }
    }

    fn read_sized(&mut self) -> Result<String, String> {
        if let ResponseBody::Chunked(_) = self.body {
            return Err("a body in pieces that is no stream of events".into());
        }
        let ResponseBody::Sized(length) = std::mem::replace(&mut self.body, ResponseBody::Finished) else {
            return Ok(String::new());
        };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(|error| format!("the body ended early: {error}"))?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn read_chunk(&mut self) -> Result<(), String> {
        let size = read_line(&mut self.stream)?;
        let size = usize::from_str_radix(&size, 16).map_err(|_| format!("no size of a chunk: `{size}`"))?;
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk).map_err(|error| format!("a chunk ended early: {error}"))?;
        match &mut self.body {
            ResponseBody::Chunked(at_hand) if size > 0 => at_hand.extend_from_slice(&chunk[..size]),
            body => *body = ResponseBody::Finished,
        }
        Ok(())
    }
}

impl ResponseHead {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

fn read_head(stream: &mut BufReader<TcpStream>) -> Result<ResponseHead, String> {
    let first = read_line(stream)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| format!("no status in `{first}`"))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok(ResponseHead { status, headers });
        }
        let (name, value) = line.split_once(':').ok_or_else(|| format!("no header: `{line}`"))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_line(stream: &mut BufReader<TcpStream>) -> Result<String, String> {
    let mut line = String::new();
    match stream.read_line(&mut line) {
        Ok(0) => Err("the connection ended".into()),
        Ok(_) => Ok(line.trim_end().to_owned()),
        Err(error) => Err(format!("the server says nothing more: {error}")),
    }
}
