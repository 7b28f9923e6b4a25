//! A WebSocket client that sends whatever it is told to: frames are bytes here, and so is what comes back.

use std::io::{BufReader, Read, Write};

use serde_json::Value;

use crate::client::{Ask, Client, LEGACY, get, hello};
use crate::conn::Conn;
use crate::kit::Door;

/// What a client asks for a WebSocket with.
pub(crate) fn upgrade() -> Ask {
    get("/mcp")
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket")
        .with("Sec-WebSocket-Version", "13")
        .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
        .with("Sec-WebSocket-Protocol", "mcp")
}

pub(crate) const MORE: u8 = 0x00;
pub(crate) const LAST: u8 = 0x80;
pub(crate) const CONTINUED: u8 = 0x0;
pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xa;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame as a client sends it, masked.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = head(first, 0x80, payload.len() as u64);
    out.extend_from_slice(&MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// The first bytes of a frame, up to its mask.
pub(crate) fn head(first: u8, masked: u8, length: u64) -> Vec<u8> {
    let mut out = vec![first];
    match length {
        0..126 => out.push(masked | length as u8),
        126..0x1_0000 => {
            out.push(masked | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(masked | 127);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
    out
}

pub(crate) fn text(message: &str) -> Vec<u8> {
    frame(LAST | TEXT, message.as_bytes())
}

pub(crate) fn close(code: u16) -> Vec<u8> {
    frame(LAST | CLOSE, &code.to_be_bytes())
}

/// One connection that has become a WebSocket.
pub(crate) struct Ws {
    pub(crate) conn: Conn,
    input: BufReader<Conn>,
}

impl Ws {
    pub(crate) fn open(door: &Door) -> Self {
        Self::over(door.connect(), &upgrade())
    }

    pub(crate) fn over(mut client: Client, ask: &Ask) -> Self {
        client.send(&ask.bytes());
        let head = client.head().expect("an answer");
        assert_eq!(head.status, 101, "{head:?}");
        assert_eq!(head.head("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(head.head("sec-websocket-protocol"), Some("mcp"));
        assert_eq!(head.head("sec-websocket-extensions"), None);
        let (conn, early) = client.into_parts();
        assert_eq!(early, b"", "a server of MCP does not speak first");
        Self { input: BufReader::new(conn.another()), conn }
    }

    /// One on which a handshake was made.
    pub(crate) fn greeted(door: &Door) -> Self {
        let mut ws = Self::open(door);
        ws.text(&hello(LEGACY));
        assert_eq!(ws.next()["id"], "hello");
        ws
    }

    /// Sends; a door that closed early shows in what is read.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.conn.write_all(bytes);
    }

    pub(crate) fn text(&mut self, message: &str) {
        self.send(&text(message));
    }

    /// The next frame, first byte and payload; `None` once the other side has closed.
    pub(crate) fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        frame_from(&mut self.input)
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Value {
        match self.frame().expect("a message, and not the end") {
            (0x81, message) => serde_json::from_slice(&message).expect("JSON"),
            other => panic!("no message: {other:?}"),
        }
    }

    /// Waits for the end; says with what code it was closed. What came before is skipped.
    pub(crate) fn closed(&mut self) -> Option<u16> {
        let mut code = None;
        while let Some((first, payload)) = self.frame() {
            assert_eq!(code, None, "nothing comes behind the goodbye: {first:#x} {payload:?}");
            if first == LAST | CLOSE {
                code = Some(payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code)));
            }
        }
        code
    }
}

fn frame_from(input: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut read = |bytes: u64| {
        let mut all = Vec::new();
        let read = input.by_ref().take(bytes).read_to_end(&mut all);
        (read.is_ok() && all.len() as u64 == bytes).then_some(all)
    };
    let head = read(2)?;
    let length = match head[1] {
        126 => u64::from(u16::from_be_bytes(*read(2)?.first_chunk()?)),
        127 => u64::from_be_bytes(*read(8)?.first_chunk()?),
        short @ ..126 => u64::from(short),
        masked => panic!("a server does not mask: {masked:#x}"),
    };
    Some((head[0], read(length)?))
}

/// What arrives as messages, read as lines.
pub(crate) struct AsLines {
    input: BufReader<Conn>,
    line: Vec<u8>,
}

impl AsLines {
    pub(crate) fn new(ws: Ws) -> (Conn, Self) {
        (ws.conn, Self { input: ws.input, line: Vec::new() })
    }
}

impl Read for AsLines {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        while self.line.is_empty() {
            match frame_from(&mut self.input) {
                Some((0x81, message)) => self.line = [message, b"\n".to_vec()].concat(),
                Some((0x89 | 0x8a, _)) => {}
                Some((0x88, _)) | None => return Ok(0),
                Some(other) => panic!("no message: {other:?}"),
            }
        }
        let now = bytes.len().min(self.line.len());
        bytes[..now].copy_from_slice(&self.line[..now]);
        self.line.drain(..now);
        Ok(now)
    }
}
