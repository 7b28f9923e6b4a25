//! A small HTTP server for tests: each request is answered by a function.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

pub struct Request {
    pub method: String,
    /// With the query.
    pub target: String,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Request {
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The parameters of the query or of a form.
    pub fn parameters(text: &str) -> BTreeMap<String, String> {
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }
}

pub struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// The connection breaks before the end of the body.
    pub is_cut: bool,
}

impl Response {
    pub fn json(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: vec![("Content-Type", "application/json".to_owned())],
            body: body.into(),
            is_cut: false,
        }
    }

    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: String::new(), is_cut: false }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// Serves until the runtime ends. Returns the origin.
pub async fn serve(answer: impl Fn(Request) -> Response + Send + Sync + 'static) -> String {
    let (address, _) = serve_at("127.0.0.1:0", answer).await;
    format!("http://{address}")
}

/// Serves until the task ends. Then nothing listens at the address any more.
pub async fn serve_at(
    address: &str,
    answer: impl Fn(Request) -> Response + Send + Sync + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(address).await.expect("the port is free");
    let address = listener.local_addr().expect("it is bound");
    let answer = Arc::new(answer);
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move { one(stream, &*answer).await });
        }
    });
    (address, serving)
}

/// The same on a unix socket.
#[cfg(unix)]
pub fn serve_on_socket(path: &Path, answer: impl Fn(Request) -> Response + Send + Sync + 'static) {
    let listener = UnixListener::bind(path).expect("the path is free");
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move { one(stream, &*answer).await });
        }
    });
}

async fn one(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &(dyn Fn(Request) -> Response + Send + Sync),
) -> Option<()> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let header =
        |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&bytes[end + 4..]).into_owned();
    let response = answer(Request { method, target, headers, body });
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", response.status);
    for (name, value) in &response.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let length = response.body.len() + usize::from(response.is_cut);
    head += &format!("Content-Length: {length}\r\n\r\n{}", response.body);
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}
