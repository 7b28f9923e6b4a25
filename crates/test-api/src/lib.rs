//! A small HTTP API for tests and examples. Development only: it listens on this machine alone and trusts its clients.
//!
//! [`ApiServer`] answers requests with a function; [`shop`] is an API with everything that real ones have: pages of every style,
//! filters, records that change, refunds that must not happen twice.

pub mod shop;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A request, with its query decoded.
#[derive(Debug, Clone, Default)]
pub struct ApiRequest {
    pub method: String,
    /// As it was sent, without the query.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl ApiRequest {
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// The segments of the path, decoded.
    pub fn segments(&self) -> Vec<String> {
        self.path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| decode(segment, false))
            .collect()
    }
}

#[derive(Debug, Clone)]
pub struct ApiResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Closes the connection after so many bytes of the body.
    pub cut_at: Option<usize>,
}

impl ApiResponse {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut_at: None }
    }

    pub fn json(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, body).with_header("Content-Type", "application/json")
    }

    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

type Handler = dyn Fn(&ApiRequest) -> ApiResponse + Send + Sync;

/// A server on this machine. It answers until the process ends.
pub struct ApiServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ApiRequest>>>,
}

impl ApiServer {
    /// Starts a server at any free port.
    pub fn start(handler: impl Fn(&ApiRequest) -> ApiResponse + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", handler).expect("this machine has a free port")
    }

    pub fn start_at(
        address: &str,
        handler: impl Fn(&ApiRequest) -> ApiResponse + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let server = Self { address: listener.local_addr()?, requests: Arc::default() };
        let (handler, requests): (Arc<Handler>, _) = (Arc::new(handler), Arc::clone(&server.requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (handler, requests) = (Arc::clone(&handler), Arc::clone(&requests));
                std::thread::spawn(move || serve(stream, &*handler, &requests));
            }
        });
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<ApiRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requests since the last time.
    pub fn take_requests(&self) -> Vec<ApiRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, handler: &Handler, requests: &Mutex<Vec<ApiRequest>>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let request = read_request(&mut reader)?;
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let response = handler(&request);
        let mut head =
            format!("HTTP/1.1 {} Status\r\nContent-Length: {}\r\n", response.status, response.body.len());
        for (name, value) in &response.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body = &response.body[..response.cut_at.unwrap_or(response.body.len())];
        writer.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        writer.write_all(body).ok()?;
        if response.cut_at.is_some() {
            return None;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<ApiRequest> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_ascii_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name, true), decode(value, true))
    };
    let mut request = ApiRequest {
        method,
        path: path.to_owned(),
        query: pairs.map(pair).collect(),
        ..ApiRequest::default()
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// Percent-decodes a text; in a query, `+` is a blank.
fn decode(text: &str, is_query: bool) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) if is_query => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
