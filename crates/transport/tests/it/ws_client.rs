//! A WebSocket client that sends whatever it is told to: frames are bytes here, and so is what comes back.

use std::io::{BufReader, Read, Write};

use serde_json::Value;

use crate::client::{Client, HANDSHAKE, HttpRequest, get, initialize_message};
use crate::conn::Conn;
use crate::test_server::TestServer;

/// What a client asks for a WebSocket with.
pub(crate) fn upgrade() -> HttpRequest {
    get("/mcp")
        .with_header("Connection", "Upgrade")
        .with_header("Upgrade", "websocket")
        .with_header("Sec-WebSocket-Version", "13")
        .with_header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
        .with_header("Sec-WebSocket-Protocol", "mcp")
}

pub(crate) const NOT_FINAL: u8 = 0x00;
pub(crate) const FIN: u8 = 0x80;
pub(crate) const CONTINUATION: u8 = 0x0;
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
    frame(FIN | TEXT, message.as_bytes())
}

pub(crate) fn close(code: u16) -> Vec<u8> {
    frame(FIN | CLOSE, &code.to_be_bytes())
}

/// One connection that has become a WebSocket.
pub(crate) struct WsClient {
    pub(crate) conn: Conn,
    input: BufReader<Conn>,
}

impl WsClient {
    pub(crate) fn open(server: &TestServer) -> Self {
        Self::over(server.connect(), &upgrade())
    }

    pub(crate) fn over(mut client: Client, request: &HttpRequest) -> Self {
        client.send(&request.to_bytes());
        let head = client.read_head().expect("an answer");
        assert_eq!(head.status, 101, "{head:?}");
        assert_eq!(head.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(head.header("sec-websocket-protocol"), Some("mcp"));
        assert_eq!(head.header("sec-websocket-extensions"), None);
        let (conn, early) = client.into_parts();
        assert_eq!(early, b"", "a server of MCP does not speak first");
        Self { input: BufReader::new(conn.clone_socket()), conn }
    }

    /// One on which a handshake was made.
    pub(crate) fn initialized(server: &TestServer) -> Self {
        let mut ws = Self::open(server);
        ws.send_text(&initialize_message(HANDSHAKE));
        assert_eq!(ws.next_message()["id"], "hello");
        ws
    }

    /// Sends; reading shows whether the server closed early.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.conn.write_all(bytes);
    }

    pub(crate) fn send_text(&mut self, message: &str) {
        self.send(&text(message));
    }

    /// The next frame, first byte and payload; `None` once the other side has closed.
    pub(crate) fn read_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        read_frame_from(&mut self.input)
    }

    /// The next message.
    pub(crate) fn next_message(&mut self) -> Value {
        match self.read_frame().expect("a message, and not the end") {
            (0x81, message) => serde_json::from_slice(&message).expect("JSON"),
            other => panic!("no message: {other:?}"),
        }
    }

    /// Waits for the end; says with what code it was closed. What came before is skipped.
    pub(crate) fn wait_for_close(&mut self) -> Option<u16> {
        let mut code = None;
        while let Some((first, payload)) = self.read_frame() {
            assert_eq!(code, None, "nothing comes behind the goodbye: {first:#x} {payload:?}");
            if first == FIN | CLOSE {
                code = Some(payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code)));
            }
        }
        code
    }
}

fn read_frame_from(input: &mut impl Read) -> Option<(u8, Vec<u8>)> {
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
pub(crate) struct WsLineReader {
    input: BufReader<Conn>,
    line: Vec<u8>,
}

impl WsLineReader {
    pub(crate) fn new(ws: WsClient) -> (Conn, Self) {
        (ws.conn, Self { input: ws.input, line: Vec::new() })
    }
}

impl Read for WsLineReader {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        while self.line.is_empty() {
            match read_frame_from(&mut self.input) {
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
