//! The stdio door, between two real pipes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use door::stdio::Output;

use super::script::Framing;
use super::theatre::Theatre;

/// How long a test waits for something that never comes before it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Pipe {
    input: Option<PipeWriter>,
    said: Receiver<String>,
    framing: Framing,
    serving: Option<JoinHandle<std::io::Result<()>>>,
}

impl Pipe {
    pub fn open(theatre: &Theatre, framing: Framing) -> Self {
        let (in_reader, in_writer) = std::io::pipe().expect("a pipe");
        let (out_reader, out_writer) = std::io::pipe().expect("a pipe");
        let (server, handle) = (theatre.server.clone(), theatre.handle.clone());
        let serving = std::thread::spawn(move || {
            let output = Output::new(File::from(OwnedFd::from(out_writer)));
            door::stdio::serve(server, &handle, in_reader, output)
        });
        // More than any transcript says; if it is full, the server waits, as for any client.
        let (say, said) = sync_channel(4096);
        std::thread::spawn(move || listen(out_reader, framing, &say));
        Self { input: Some(in_writer), said, framing, serving: Some(serving) }
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
    pub fn next(&mut self, theatre: &Theatre) -> Result<Option<String>, String> {
        if self.input.is_some() {
            return match self.said.recv_timeout(PATIENCE) {
                Ok(line) => Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => Ok(None),
                Err(RecvTimeoutError::Timeout) => Err("the server says nothing more".into()),
            };
        }
        let mut left = PATIENCE;
        loop {
            match self.said.recv_timeout(GLIMPSE) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => theatre.pass(Duration::from_millis(100)),
            }
            left = left.checked_sub(GLIMPSE).ok_or("the server does not end")?;
        }
    }

    pub fn close(&mut self) {
        self.input = None;
    }

    /// How it ended.
    pub fn ended(&mut self) -> Result<(), String> {
        match self.serving.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => Err(format!("the door ended with {error}")),
            Some(Err(_)) => Err("the door panicked".into()),
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }
}

/// Between two looks at a server that is to end.
pub const GLIMPSE: Duration = Duration::from_millis(2);

/// Reads messages until the end. Whatever is no message in this framing is passed on to be stumbled over.
fn listen(output: PipeReader, framing: Framing, say: &SyncSender<String>) {
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
