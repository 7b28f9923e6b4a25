//! The load driver for a pipe: lines to a child's stdin, checked lines from its stdout.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use memchr::memchr;

use super::ask::{Ask, INITIALIZE, INITIALIZED};
use super::http::Run;

/// Both ends of a child's pipe.
pub struct Pipe {
    to: ChildStdin,
    from: ChildStdout,
    ask: Ask,
    asked: u64,
    buffer: Vec<u8>,
    filled: usize,
}

impl Pipe {
    pub fn new(to: ChildStdin, from: ChildStdout, ask: Ask) -> Pipe {
        Pipe { to, from, ask, asked: 0, buffer: vec![0; 256 * 1024], filled: 0 }
    }

    /// The 2025-11-25 handshake.
    pub fn shake_hands(&mut self) -> anyhow::Result<()> {
        let greeting = self.once(format!("{INITIALIZE}\n").as_bytes())?;
        ensure!(greeting.contains(r#""protocolVersion":"2025-11-25""#), "initialize: {greeting}");
        writeln!(self.to, "{INITIALIZED}")?;
        Ok(())
    }

    /// Sends one line and waits for one.
    pub fn once(&mut self, line: &[u8]) -> anyhow::Result<String> {
        self.to.write_all(line).context("the server does not take the request")?;
        let mut answer = None;
        while answer.is_none() {
            self.lines(|line| {
                answer = Some(String::from_utf8_lossy(line).into_owned());
                Ok(())
            })?;
        }
        Ok(answer.unwrap_or_default())
    }

    /// Asks the first request again: what comes back now, right or not.
    pub fn again(&mut self) -> anyhow::Result<String> {
        let line = self.ask.number(0).to_vec();
        self.once(&line)
    }

    /// Asks `count` times with at most `outstanding_max` unanswered.
    ///
    /// Answers may come in any order: each is matched by its id. Requests that became due together
    /// leave in one write, as a client that pipelines would send them.
    pub fn run(&mut self, count: u64, outstanding_max: u64) -> anyhow::Result<Run> {
        let start = Instant::now();
        let first = self.asked;
        let until = first + count;
        let mut sent_at = Vec::with_capacity(usize::try_from(count)?);
        let mut latencies: Vec<Duration> = Vec::with_capacity(usize::try_from(count)?);
        let mut outgoing = Vec::new();
        let mut outstanding = 0;
        let checker = self.ask.clone();
        while (latencies.len() as u64) < count {
            outgoing.clear();
            let now = Instant::now();
            while self.asked < until && outstanding < outstanding_max {
                outgoing.extend_from_slice(self.ask.number(self.asked));
                sent_at.push(Some(now));
                self.asked += 1;
                outstanding += 1;
            }
            self.to.write_all(&outgoing).context("the server does not take the request")?;
            let before = latencies.len();
            self.lines(|line| {
                let number = checker.number_of(line).unwrap_or(first + latencies.len() as u64);
                checker.check(number, 200, line)?;
                let at = usize::try_from(number.checked_sub(first).context("an answer to an old id")?)?;
                let sent = sent_at.get_mut(at).and_then(Option::take);
                latencies.push(sent.context("an answer to an id that is not open")?.elapsed());
                Ok(())
            })?;
            outstanding -= (latencies.len() - before) as u64;
        }
        let elapsed = start.elapsed();
        latencies.sort_unstable();
        Ok(Run { elapsed, latencies, refused: 0 })
    }

    /// Reads once and hands over every whole line.
    fn lines(&mut self, mut each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let read = self.from.read(&mut self.buffer[self.filled..])?;
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
