//! The same door by its older way: a stream that is read to the end, and a connection for each message posted.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::http::{Doorstep, Response};
use super::pipe::{GLIMPSE, PATIENCE};
use super::theatre::Theatre;

pub struct Posts {
    site: Doorstep,
    closed: bool,
    /// Where to post.
    endpoint: String,
    said: Receiver<Result<String, String>>,
    /// What was answered on the spot.
    refused: VecDeque<String>,
}

impl Posts {
    pub fn open(theatre: &Theatre) -> Result<Self, String> {
        let site = Doorstep::open(theatre);
        let accept = [("Accept".to_owned(), "text/event-stream".to_owned())];
        let mut stream = Response::to(site.address, "GET", "/sse", &accept, b"")?;
        let first = stream.field()?.unwrap_or_default();
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
        Ok(Self { site, closed: false, endpoint, said, refused: VecDeque::new() })
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        // A blank line, which means nothing on a pipe; here it is nothing to be sent.
        if bytes.is_empty() {
            return Ok(());
        }
        let json = [("Content-Type".to_owned(), "application/json".to_owned())];
        let mut answer = Response::to(self.site.address, "POST", &self.endpoint, &json, bytes)?;
        match (answer.status()?, answer.unread()?) {
            (202, None) => {}
            (400, Some(refused)) => self.refused.push_back(refused),
            (status, body) => return Err(format!("a message was answered with {status} {body:?}")),
        }
        Ok(())
    }

    /// The next message; `None` if the stream has ended. Once the client is done, time passes.
    pub fn next(&mut self, theatre: &Theatre) -> Result<Option<String>, String> {
        if let Some(refused) = self.refused.pop_front() {
            return Ok(Some(refused));
        }
        let mut left = PATIENCE;
        loop {
            match self.said.recv_timeout(if self.closed { GLIMPSE } else { left }) {
                Ok(said) => return said.map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.closed => theatre.pass(Duration::from_millis(100)),
                Err(RecvTimeoutError::Timeout) => return Err("the server says nothing more".into()),
            }
            left = left.checked_sub(GLIMPSE).ok_or("the stream does not end")?;
        }
    }

    /// The server is told to go: whoever closed the stream would not see what still comes.
    pub fn close(&mut self) {
        self.closed = true;
        self.site.close();
    }
}
