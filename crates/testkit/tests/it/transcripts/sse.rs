//! The same door by its older way: a stream that is read to the end, and a connection for each message posted.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::harness::Harness;
use super::http::{Response, TestHttpServer};
use super::pipe::{POLL_INTERVAL, READ_TIMEOUT};

pub struct SseClient {
    server: TestHttpServer,
    closed: bool,
    /// Where to post.
    endpoint: String,
    messages: Receiver<Result<String, String>>,
    /// What was answered on the spot.
    rejections: VecDeque<String>,
}

impl SseClient {
    pub fn open(theatre: &Harness) -> Result<Self, String> {
        let site = TestHttpServer::open(theatre);
        let accept = [("Accept".to_owned(), "text/event-stream".to_owned())];
        let mut stream = Response::send(site.address, "GET", "/sse", &accept, b"")?;
        let first = stream.next_field()?.unwrap_or_default();
        let endpoint = first.strip_prefix("data: ").ok_or("no endpoint")?.to_owned();
        // More than any transcript says.
        let (say, said) = sync_channel(4096);
        std::thread::spawn(move || {
            while let Some(next) = stream.next().transpose() {
                let over = next.is_err();
                if say.send(next).is_err() || over {
                    return;
                }
            }
        });
        Ok(Self { server: site, closed: false, endpoint, messages: said, rejections: VecDeque::new() })
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        // A blank line, which means nothing on a pipe; here it is nothing to be sent.
        if bytes.is_empty() {
            return Ok(());
        }
        let json = [("Content-Type".to_owned(), "application/json".to_owned())];
        let mut answer = Response::send(self.server.address, "POST", &self.endpoint, &json, bytes)?;
        match (answer.status()?, answer.unread()?) {
            (202, None) => {}
            (400, Some(refused)) => self.rejections.push_back(refused),
            (status, body) => return Err(format!("a message was answered with {status} {body:?}")),
        }
        Ok(())
    }

    /// The next message; `None` if the stream has ended. Once the client is done, time passes.
    pub fn next(&mut self, theatre: &Harness) -> Result<Option<String>, String> {
        if let Some(refused) = self.rejections.pop_front() {
            return Ok(Some(refused));
        }
        let mut left = READ_TIMEOUT;
        loop {
            match self.messages.recv_timeout(if self.closed { POLL_INTERVAL } else { left }) {
                Ok(said) => return said.map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.closed => {
                    theatre.advance_time(Duration::from_millis(100))
                }
                Err(RecvTimeoutError::Timeout) => return Err("the server says nothing more".into()),
            }
            left = left.checked_sub(POLL_INTERVAL).ok_or("the stream does not end")?;
        }
    }

    /// The server is told to go: whoever closed the stream would not see what still comes.
    pub fn close(&mut self) {
        self.closed = true;
        self.server.close();
    }
}
