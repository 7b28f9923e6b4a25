//! The load driver for a pipe: lines to a child's stdin, checked lines from its stdout.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use memchr::memchr;

use super::http::LoadResult;
use super::request::{INITIALIZE, INITIALIZED, RequestTemplate};

/// Both ends of a child's pipe.
pub struct StdioLoad {
    stdin: ChildStdin,
    stdout: ChildStdout,
    template: RequestTemplate,
    requests_sent: u64,
    buffer: Vec<u8>,
    filled: usize,
}

impl StdioLoad {
    pub fn new(stdin: ChildStdin, stdout: ChildStdout, template: RequestTemplate) -> StdioLoad {
        StdioLoad { stdin, stdout, template, requests_sent: 0, buffer: vec![0; 256 * 1024], filled: 0 }
    }

    /// The 2025-11-25 handshake.
    pub fn handshake(&mut self) -> anyhow::Result<()> {
        let greeting = self.send_once(format!("{INITIALIZE}\n").as_bytes())?;
        ensure!(greeting.contains(r#""protocolVersion":"2025-11-25""#), "initialize: {greeting}");
        writeln!(self.stdin, "{INITIALIZED}")?;
        Ok(())
    }

    /// Sends one line and waits for one.
    pub fn send_once(&mut self, line: &[u8]) -> anyhow::Result<String> {
        self.stdin.write_all(line).context("the server does not take the request")?;
        let mut answer = None;
        while answer.is_none() {
            self.read_lines(|line| {
                answer = Some(String::from_utf8_lossy(line).into_owned());
                Ok(())
            })?;
        }
        Ok(answer.unwrap_or_default())
    }

    /// Sends the first request again and returns the response unchecked.
    pub fn repeat_first(&mut self) -> anyhow::Result<String> {
        let line = self.template.bytes_for(0).to_vec();
        self.send_once(&line)
    }

    /// Sends `count` requests with at most `outstanding_max` in flight.
    ///
    /// Responses may come in any order and are matched by id. Requests that are due together go out in one write, as
    /// from a client that pipelines.
    pub fn run(&mut self, count: u64, outstanding_max: u64) -> anyhow::Result<LoadResult> {
        let start = Instant::now();
        let first = self.requests_sent;
        let until = first + count;
        let mut sent_at = Vec::with_capacity(usize::try_from(count)?);
        let mut latencies: Vec<Duration> = Vec::with_capacity(usize::try_from(count)?);
        let mut outgoing = Vec::new();
        let mut outstanding = 0;
        let checker = self.template.clone();
        while (latencies.len() as u64) < count {
            outgoing.clear();
            let now = Instant::now();
            while self.requests_sent < until && outstanding < outstanding_max {
                outgoing.extend_from_slice(self.template.bytes_for(self.requests_sent));
                sent_at.push(Some(now));
                self.requests_sent += 1;
                outstanding += 1;
            }
            self.stdin.write_all(&outgoing).context("the server does not take the request")?;
            let before = latencies.len();
            self.read_lines(|line| {
                let number = checker.request_number(line).unwrap_or(first + latencies.len() as u64);
                checker.check_response(number, 200, line)?;
                let at = usize::try_from(number.checked_sub(first).context("an answer to an old id")?)?;
                let sent = sent_at.get_mut(at).and_then(Option::take);
                latencies.push(sent.context("an answer to an id that is not open")?.elapsed());
                Ok(())
            })?;
            outstanding -= (latencies.len() - before) as u64;
        }
        let elapsed = start.elapsed();
        latencies.sort_unstable();
        Ok(LoadResult { elapsed, latencies, refused: 0 })
    }

    /// Reads once and passes on every complete line.
    fn read_lines(&mut self, mut each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let read = self.stdout.read(&mut self.buffer[self.filled..])?;
        ensure!(read > 0, "the server closed its stdout, or sent a line beyond {} bytes", self.buffer.len());
        self.filled += read;
        let mut from = 0;
        while let Some(length) = memchr(b'\n', &self.buffer[from..self.filled]) {
            each(&self.buffer[from..from + length])?;
            from += length + 1;
        }
        self.buffer.copy_within(from..self.filled, 0);
        self.filled -= from;
        Ok(())
    }
}
