//! The load driver for HTTP: keep-alive connections on one thread, every response checked.
//!
//! Written by hand because the driver must stay cheaper than the servers it measures: one read and
//! one write per request, and an epoll wait per batch of ready connections. It understands what the
//! servers of the bench send (`Content-Length` and chunked answers) and nothing more.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use memchr::memmem;
use rustix::event::epoll;

use super::request::RequestTemplate;

/// No request of the bench takes this long; a server that is silent for longer has failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Connections that repeat the same request.
pub struct HttpLoad {
    connections: Vec<LoadConnection>,
    epoll: OwnedFd,
    requests_sent: u64,
}

/// The measurements of one run.
pub struct LoadResult {
    pub elapsed: Duration,
    /// Sorted.
    pub latencies: Vec<Duration>,
    /// Responses that refused the request, where that is allowed.
    pub refused: u64,
}

impl LoadResult {
    pub fn percentile(&self, percent: usize) -> Duration {
        let at = self.latencies.len() * percent / 100;
        self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

struct LoadConnection {
    stream: TcpStream,
    template: RequestTemplate,
    number: u64,
    sent_at: Instant,
    reader: ResponseReader,
}

impl HttpLoad {
    /// One connection per request.
    pub fn connect(at: SocketAddr, asks: Vec<RequestTemplate>) -> anyhow::Result<HttpLoad> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for ask in asks {
            let stream = TcpStream::connect(at).with_context(|| format!("cannot connect to {at}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let key = epoll::EventData::new_u64(connections.len() as u64);
            epoll::add(&epoll, &stream, key, epoll::EventFlags::IN)?;
            let incoming = ResponseReader::default();
            connections.push(LoadConnection {
                stream,
                template: ask,
                number: 0,
                sent_at: Instant::now(),
                reader: incoming,
            });
        }
        Ok(HttpLoad { connections, epoll, requests_sent: 0 })
    }

    /// Sends `count` requests; each connection sends the next as soon as it has a response.
    pub fn run(&mut self, count: u64) -> anyhow::Result<LoadResult> {
        let start = Instant::now();
        let mut latencies = Vec::with_capacity(usize::try_from(count)?);
        let until = self.requests_sent + count;
        let mut waiting = 0;
        for connection in &mut self.connections {
            if self.requests_sent < until {
                connection.send(self.requests_sent)?;
                self.requests_sent += 1;
                waiting += 1;
            }
        }
        let mut refused = 0;
        let mut ready = Vec::with_capacity(self.connections.len());
        let patience = rustix::event::Timespec { tv_sec: SILENCE_MAX.as_secs() as i64, tv_nsec: 0 };
        while waiting > 0 {
            ready.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&patience))?;
            ensure!(!ready.is_empty(), "no answer within {SILENCE_MAX:?}");
            for event in &ready {
                let connection = &mut self.connections[usize::try_from(event.data.u64())?];
                let Some(status) = connection.receive()? else { continue };
                refused += u64::from(status != 200);
                latencies.push(connection.sent_at.elapsed());
                if self.requests_sent < until {
                    connection.send(self.requests_sent)?;
                    self.requests_sent += 1;
                } else {
                    waiting -= 1;
                }
            }
        }
        let elapsed = start.elapsed();
        latencies.sort_unstable();
        Ok(LoadResult { elapsed, latencies, refused })
    }
}

impl LoadConnection {
    fn send(&mut self, number: u64) -> anyhow::Result<()> {
        self.number = number;
        self.sent_at = Instant::now();
        // Half a kilobyte always fits an idle socket's buffer, so a short write is a broken server.
        self.stream.write_all(self.template.bytes_for(number)).context("the server does not take the request")
    }

    /// Reads the available bytes; returns the status once the response is complete and correct.
    fn receive(&mut self) -> anyhow::Result<Option<u16>> {
        if !self.reader.read(&mut self.stream)? {
            return Ok(None);
        }
        let Some(answer) = self.reader.response()? else { return Ok(None) };
        let status = answer.status;
        self.template.check_response(self.number, status, answer.body)?;
        self.reader.clear();
        Ok(Some(status))
    }
}

/// One complete response.
pub struct HttpResponse<'a> {
    pub status: u16,
    pub head: &'a [u8],
    pub body: &'a [u8],
}

/// The bytes of a response as they arrive.
#[derive(Default)]
pub struct ResponseReader {
    buffer: Vec<u8>,
    filled: usize,
    decoded_chunks: Vec<u8>,
}

impl ResponseReader {
    /// Reads once; false if no bytes were available.
    pub fn read(&mut self, stream: &mut TcpStream) -> anyhow::Result<bool> {
        if self.buffer.len() - self.filled < 4096 {
            self.buffer.resize((self.buffer.len() * 2).max(16 * 1024), 0);
        }
        match stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("the server hung up after {} bytes of an answer", self.filled),
            Ok(read) => {
                self.filled += read;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error).context("the connection broke"),
        }
    }

    /// The response, once it is complete.
    pub fn response(&mut self) -> anyhow::Result<Option<HttpResponse<'_>>> {
        let filled = &self.buffer[..self.filled];
        let Some(head_end) = memmem::find(filled, b"\r\n\r\n") else { return Ok(None) };
        let (head, rest) = (&filled[..head_end + 2], &filled[head_end + 4..]);
        let status = status(head)?;
        let body = match framing(head)? {
            BodyFraming::Length(length) if rest.len() < length => return Ok(None),
            BodyFraming::Length(length) => {
                ensure!(rest.len() == length, "{} bytes more than the answer", rest.len() - length);
                rest
            }
            BodyFraming::Chunked => {
                if !decode_chunked(rest, &mut self.decoded_chunks)? {
                    return Ok(None);
                }
                &self.decoded_chunks
            }
        };
        Ok(Some(HttpResponse { status, head, body }))
    }

    /// The bytes so far: a stream that stays open is never complete.
    pub fn buffered(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    pub fn clear(&mut self) {
        self.filled = 0;
    }
}

enum BodyFraming {
    Length(usize),
    Chunked,
}

fn status(head: &[u8]) -> anyhow::Result<u16> {
    let code = head.get(9..12).and_then(|code| std::str::from_utf8(code).ok());
    code.and_then(|code| code.parse().ok()).context("not an HTTP answer")
}

/// The value of header `name`, from a head whose every line ends with CRLF.
pub fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = head;
    while let Some(end) = memchr::memchr(b'\r', lines) {
        let line = &lines[..end];
        if line.len() > name.len()
            && line[name.len()] == b':'
            && line[..name.len()].eq_ignore_ascii_case(name.as_bytes())
        {
            return std::str::from_utf8(&line[name.len() + 1..]).ok().map(str::trim);
        }
        lines = lines.get(end + 2..).unwrap_or_default();
    }
    None
}

fn framing(head: &[u8]) -> anyhow::Result<BodyFraming> {
    if let Some(length) = header(head, "content-length") {
        return Ok(BodyFraming::Length(length.parse().context("content-length is not a number")?));
    }
    match header(head, "transfer-encoding") {
        Some(coding) if coding.eq_ignore_ascii_case("chunked") => Ok(BodyFraming::Chunked),
        _ => bail!("an answer without a length"),
    }
}

/// Joins the chunks of `rest` in `body`; false if the last chunk is not there yet.
fn decode_chunked(mut rest: &[u8], body: &mut Vec<u8>) -> anyhow::Result<bool> {
    body.clear();
    loop {
        let Some(line_end) = memmem::find(rest, b"\r\n") else { return Ok(false) };
        let size = std::str::from_utf8(&rest[..line_end]).context("a chunk size that is not text")?;
        let size = usize::from_str_radix(size, 16).context("a chunk size that is not a number")?;
        let Some(chunk) = rest.get(line_end + 2..line_end + 2 + size + 2) else { return Ok(false) };
        if size == 0 {
            return Ok(true);
        }
        body.extend_from_slice(&chunk[..size]);
        rest = &rest[line_end + 2 + size + 2..];
    }
}

/// One request on its own connection; returns the status, the session id if there is one, and the body.
pub fn send_once(at: SocketAddr, request: &[u8]) -> anyhow::Result<(u16, Option<String>, Vec<u8>)> {
    let mut stream = TcpStream::connect(at).with_context(|| format!("cannot connect to {at}"))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.write_all(request)?;
    let mut incoming = ResponseReader::default();
    loop {
        ensure!(incoming.read(&mut stream)?, "no answer within {SILENCE_MAX:?}");
        if let Some(answer) = incoming.response()? {
            let session = header(answer.head, "mcp-session-id").map(str::to_owned);
            return Ok((answer.status, session, answer.body.to_vec()));
        }
    }
}

/// Opens a legacy session and completes its handshake.
pub fn open_session(at: SocketAddr) -> anyhow::Result<String> {
    let mut ask = RequestTemplate::initialize();
    let (status, session, body) = send_once(at, ask.bytes_for(0))?;
    ensure!(status == 200, "initialize: status {status}: {}", String::from_utf8_lossy(&body));
    let session = session.context("initialize gave no session id")?;
    let (status, ..) = send_once(at, &RequestTemplate::initialized(&session))?;
    ensure!(status == 202, "notifications/initialized: status {status}, not 202");
    Ok(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(u16, &str)>) {
        let mut incoming = ResponseReader {
            buffer: text.as_bytes().to_vec(),
            filled: text.len(),
            decoded_chunks: Vec::new(),
        };
        let answer = incoming.response().unwrap();
        let answer =
            answer.map(|answer| (answer.status, std::str::from_utf8(answer.body).unwrap().to_owned()));
        assert_eq!(answer, expected.map(|(status, body)| (status, body.to_owned())));
    }

    #[test]
    fn an_answer_is_whole_when_its_length_is_there() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", None);
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Some((200, "{}")));
        check("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", Some((202, "")));
    }

    #[test]
    fn chunks_are_joined_once_the_empty_one_is_there() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        check(&format!("{head}2\r\nab\r\n"), None);
        check(&format!("{head}2\r\nab\r\na\r\n0123456789\r\n0\r\n\r\n"), Some((200, "ab0123456789")));
    }
}
