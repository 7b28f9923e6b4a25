//! The load driver for HTTP: keep-alive connections on one thread, every answer checked.
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

use super::ask::Ask;

/// Nothing the bench asks takes this long; a server that is silent for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Connections that ask the same thing over and over.
pub struct Load {
    connections: Vec<Connection>,
    epoll: OwnedFd,
    asked: u64,
}

/// What one run of the load saw.
pub struct Run {
    pub elapsed: Duration,
    /// Sorted.
    pub latencies: Vec<Duration>,
    /// Answers that were a polite refusal, where one is allowed.
    pub refused: u64,
}

impl Run {
    pub fn percentile(&self, percent: usize) -> Duration {
        let at = self.latencies.len() * percent / 100;
        self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

struct Connection {
    stream: TcpStream,
    ask: Ask,
    number: u64,
    sent: Instant,
    incoming: Incoming,
}

impl Load {
    /// One connection per ask.
    pub fn connect(at: SocketAddr, asks: Vec<Ask>) -> anyhow::Result<Load> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for ask in asks {
            let stream = TcpStream::connect(at).with_context(|| format!("cannot connect to {at}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let key = epoll::EventData::new_u64(connections.len() as u64);
            epoll::add(&epoll, &stream, key, epoll::EventFlags::IN)?;
            let incoming = Incoming::default();
            connections.push(Connection { stream, ask, number: 0, sent: Instant::now(), incoming });
        }
        Ok(Load { connections, epoll, asked: 0 })
    }

    /// Asks `count` times, each connection as soon as its last answer is there.
    pub fn run(&mut self, count: u64) -> anyhow::Result<Run> {
        let start = Instant::now();
        let mut latencies = Vec::with_capacity(usize::try_from(count)?);
        let until = self.asked + count;
        let mut waiting = 0;
        for connection in &mut self.connections {
            if self.asked < until {
                connection.send(self.asked)?;
                self.asked += 1;
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
                latencies.push(connection.sent.elapsed());
                if self.asked < until {
                    connection.send(self.asked)?;
                    self.asked += 1;
                } else {
                    waiting -= 1;
                }
            }
        }
        let elapsed = start.elapsed();
        latencies.sort_unstable();
        Ok(Run { elapsed, latencies, refused })
    }
}

impl Connection {
    fn send(&mut self, number: u64) -> anyhow::Result<()> {
        self.number = number;
        self.sent = Instant::now();
        // Half a kilobyte always fits an idle socket's buffer, so a short write is a broken server.
        self.stream.write_all(self.ask.number(number)).context("the server does not take the request")
    }

    /// Reads what is there; the status once the answer is whole (and right).
    fn receive(&mut self) -> anyhow::Result<Option<u16>> {
        if !self.incoming.read(&mut self.stream)? {
            return Ok(None);
        }
        let Some(answer) = self.incoming.answer()? else { return Ok(None) };
        let status = answer.status;
        self.ask.check(self.number, status, answer.body)?;
        self.incoming.clear();
        Ok(Some(status))
    }
}

/// One answer, whole.
pub struct Answer<'a> {
    pub status: u16,
    pub head: &'a [u8],
    pub body: &'a [u8],
}

/// The bytes of an answer as they arrive.
#[derive(Default)]
pub struct Incoming {
    buffer: Vec<u8>,
    filled: usize,
    unchunked: Vec<u8>,
}

impl Incoming {
    /// Reads once; false if nothing was there.
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

    /// The answer, once all of it is here.
    pub fn answer(&mut self) -> anyhow::Result<Option<Answer<'_>>> {
        let filled = &self.buffer[..self.filled];
        let Some(head_end) = memmem::find(filled, b"\r\n\r\n") else { return Ok(None) };
        let (head, rest) = (&filled[..head_end + 2], &filled[head_end + 4..]);
        let status = status(head)?;
        let body = match framing(head)? {
            Framing::Length(length) if rest.len() < length => return Ok(None),
            Framing::Length(length) => {
                ensure!(rest.len() == length, "{} bytes more than the answer", rest.len() - length);
                rest
            }
            Framing::Chunked => {
                if !unchunk(rest, &mut self.unchunked)? {
                    return Ok(None);
                }
                &self.unchunked
            }
        };
        Ok(Some(Answer { status, head, body }))
    }

    /// The bytes so far, whole answer or not: a stream that stays open never has a whole one.
    pub fn so_far(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    pub fn clear(&mut self) {
        self.filled = 0;
    }
}

enum Framing {
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

fn framing(head: &[u8]) -> anyhow::Result<Framing> {
    if let Some(length) = header(head, "content-length") {
        return Ok(Framing::Length(length.parse().context("content-length is not a number")?));
    }
    match header(head, "transfer-encoding") {
        Some(coding) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        _ => bail!("an answer without a length"),
    }
}

/// Joins the chunks of `rest` in `body`; false if the last chunk is not there yet.
fn unchunk(mut rest: &[u8], body: &mut Vec<u8>) -> anyhow::Result<bool> {
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

/// One request on its own connection; gives the status, the session id if there is one, and the body.
pub fn once(at: SocketAddr, request: &[u8]) -> anyhow::Result<(u16, Option<String>, Vec<u8>)> {
    let mut stream = TcpStream::connect(at).with_context(|| format!("cannot connect to {at}"))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.write_all(request)?;
    let mut incoming = Incoming::default();
    loop {
        ensure!(incoming.read(&mut stream)?, "no answer within {SILENCE_MAX:?}");
        if let Some(answer) = incoming.answer()? {
            let session = header(answer.head, "mcp-session-id").map(str::to_owned);
            return Ok((answer.status, session, answer.body.to_vec()));
        }
    }
}

/// Opens a legacy session and ends its handshake.
pub fn open_session(at: SocketAddr) -> anyhow::Result<String> {
    let mut ask = Ask::initialize();
    let (status, session, body) = once(at, ask.number(0))?;
    ensure!(status == 200, "initialize: status {status}: {}", String::from_utf8_lossy(&body));
    let session = session.context("initialize gave no session id")?;
    let (status, ..) = once(at, &Ask::initialized(&session))?;
    ensure!(status == 202, "notifications/initialized: status {status}, not 202");
    Ok(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(u16, &str)>) {
        let mut incoming =
            Incoming { buffer: text.as_bytes().to_vec(), filled: text.len(), unchunked: Vec::new() };
        let answer = incoming.answer().unwrap();
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
