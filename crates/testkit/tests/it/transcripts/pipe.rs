//! The stdio transport, between two real pipes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use transport::stdio::StdoutWriter;

use super::harness::Harness;
use super::transcript::Framing;

/// How long a test waits for a message before it fails.
pub const READ_TIMEOUT: Duration = Duration::from_secs(20);

pub struct StdioClient {
    input: Option<PipeWriter>,
    messages: Receiver<String>,
    framing: Framing,
    server_thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl StdioClient {
    pub fn open(harness: &Harness, framing: Framing) -> Self {
        let (in_reader, in_writer) = std::io::pipe().expect("a pipe");
        let (out_reader, out_writer) = std::io::pipe().expect("a pipe");
        let (server, handle) = (harness.server.clone(), harness.handle.clone());
        let server_thread = std::thread::spawn(move || {
            let output = StdoutWriter::new(File::from(OwnedFd::from(out_writer)));
            transport::stdio::serve(server, &handle, in_reader, output)
        });
        // More than any transcript sends; if it is full, the server waits, as for any client.
        let (say, messages) = sync_channel(4096);
        std::thread::spawn(move || read_messages(out_reader, framing, &say));
        Self { input: Some(in_writer), messages, framing, server_thread: Some(server_thread) }
    }

    pub fn send(&mut self, message: &str) -> Result<(), String> {
        match self.framing {
            Framing::Lines => self.send_raw(format!("{message}\n").as_bytes()),
            Framing::ContentLength => {
                self.send_raw(format!("Content-Length: {}\r\n\r\n{message}", message.len()).as_bytes())
            }
        }
    }

    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("the client has closed its end")?;
        input.write_all(bytes).map_err(|error| format!("the server no longer reads: {error}"))
    }

    /// The next message; `None` if the server has ended. Once the client has closed its end, time passes.
    pub fn next(&mut self, harness: &Harness) -> Result<Option<String>, String> {
        if self.input.is_some() {
            return match self.messages.recv_timeout(READ_TIMEOUT) {
                Ok(line) => Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => Ok(None),
                Err(RecvTimeoutError::Timeout) => Err("the server says nothing more".into()),
            };
        }
        let mut left = READ_TIMEOUT;
        loop {
            match self.messages.recv_timeout(POLL_INTERVAL) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => harness.advance_time(Duration::from_millis(100)),
            }
            left = left.checked_sub(POLL_INTERVAL).ok_or("the server does not end")?;
        }
    }

    pub fn close(&mut self) {
        self.input = None;
    }

    /// How the server ended.
    pub fn exit_result(&mut self) -> Result<(), String> {
        match self.server_thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => Err(format!("the transport ended with {error}")),
            Some(Err(_)) => Err("the transport panicked".into()),
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }
}

/// Interval between two polls for the end of the server.
pub const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Reads messages until the end. Anything that is not a message in this framing is passed on and fails the test.
fn read_messages(output: PipeReader, framing: Framing, say: &SyncSender<String>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match output.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut text = String::from_utf8_lossy(&line).into_owned();
        if framing == Framing::ContentLength {
            let length = text.strip_prefix("Content-Length: ").and_then(|n| n.trim_end().parse().ok());
            let mut body: Vec<u8> = vec![0; length.unwrap_or(0)];
            let mut blank = [0; 2];
            if output.read_exact(&mut blank).and_then(|()| output.read_exact(&mut body)).is_err() {
                return;
            }
            text = String::from_utf8_lossy(&body).into_owned();
        }
        if say.send(text.trim_end_matches('\n').to_owned()).is_err() {
            return;
        }
    }
}
