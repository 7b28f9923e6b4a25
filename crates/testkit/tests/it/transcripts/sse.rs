//! An HTTP+SSE client: one stream that is read to the end, and one connection for each posted message.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::harness::Harness;
use super::http::{Response, TestHttpServer};
use super::pipe::{POLL_INTERVAL, READ_TIMEOUT};

pub struct SseClient {
    server: TestHttpServer,
    closed: bool,
    /// The URL for POSTs.
    endpoint: String,
    messages: Receiver<Result<String, String>>,
    /// Responses to POSTs.
    rejections: VecDeque<String>,
}

impl SseClient {
    pub fn open(harness: &Harness) -> Result<Self, String> {
        let server = TestHttpServer::open(harness);
        let accept = [("Accept".to_owned(), "text/event-stream".to_owned())];
        let mut stream = Response::send(server.address, "GET", "/sse", &accept, b"")?;
        let first = stream.next_field()?.unwrap_or_default();
        let endpoint = first.strip_prefix("data: ").ok_or("no endpoint")?.to_owned();
        // More than any transcript sends.
        let (say, said) = sync_channel(4096);
        std::thread::spawn(move || {
            while let Some(next) = stream.next().transpose() {
                let over = next.is_err();
                if say.send(next).is_err() || over {
                    return;
                }
            }
        });
        Ok(Self { server, closed: false, endpoint, messages: said, rejections: VecDeque::new() })
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        // A blank line means nothing on a pipe; here it is not sent.
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
    pub fn next(&mut self, harness: &Harness) -> Result<Option<String>, String> {
        if let Some(refused) = self.rejections.pop_front() {
            return Ok(Some(refused));
        }
        let mut left = READ_TIMEOUT;
        loop {
            match self.messages.recv_timeout(if self.closed { POLL_INTERVAL } else { left }) {
                Ok(said) => return said.map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.closed => {
                    harness.advance_time(Duration::from_millis(100))
                }
                Err(RecvTimeoutError::Timeout) => return Err("the server says nothing more".into()),
            }
            left = left.checked_sub(POLL_INTERVAL).ok_or("the stream does not end")?;
        }
    }

    /// Shuts the server down: closing the stream would hide what still comes.
    pub fn close(&mut self) {
        self.closed = true;
        self.server.close();
    }
}
