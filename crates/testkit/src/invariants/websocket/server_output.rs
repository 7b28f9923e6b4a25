//! The server's output, frame by frame, and whether it follows the RFC.

use serde_json::Value;

use super::oracle::CLOSE_NO_STATUS;

#[derive(Default)]
pub(super) struct ServerOutput {
    /// An incomplete frame.
    bytes: Vec<u8>,
    /// Messages, one by one even if they came as a batch.
    pub(super) messages: Vec<Value>,
    pub(super) pongs: Vec<Vec<u8>>,
    pub(super) pings: usize,
    /// The code of the close frame.
    pub(super) close_code: Option<u16>,
}

impl ServerOutput {
    pub(super) fn read(&mut self, bytes: &[u8]) {
        assert!(bytes.is_empty() || self.close_code.is_none(), "nothing comes behind a goodbye: {bytes:?}");
        self.bytes.extend_from_slice(bytes);
        while let Some((first, payload)) = self.next_frame() {
            assert_eq!(self.close_code, None, "nothing comes behind a goodbye: {first:#x}");
            self.handle_frame(first, payload);
        }
    }

    /// Whether it ends with a complete frame.
    pub(super) fn is_frame_complete(&self) -> bool {
        self.bytes.is_empty()
    }

    fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let (first, second) = (*self.bytes.first()?, *self.bytes.get(1)?);
        assert_eq!(first & 0xf0, 0x80, "in one piece and without reserved bits: {first:#x}");
        let (length, behind, least) = match second {
            126 => (u64::from(u16::from_be_bytes(*self.bytes.get(2..)?.first_chunk()?)), 4, 126),
            127 => (u64::from_be_bytes(*self.bytes.get(2..)?.first_chunk()?), 10, 1 << 16),
            short @ ..126 => (u64::from(short), 2, 0),
            masked => panic!("a server does not mask: {masked:#x}"),
        };
        assert!(length >= least, "a length is written as short as can be: {length}");
        assert!(first & 0x08 == 0 || length <= 125, "a control frame of {length} bytes");
        let end = behind + usize::try_from(length).expect("we do not say as much");
        if self.bytes.len() < end {
            return None;
        }
        let frame: Vec<u8> = self.bytes.drain(..end).collect();
        Some((first, frame[behind..].to_vec()))
    }

    fn handle_frame(&mut self, first: u8, payload: Vec<u8>) {
        match first {
            0x81 => match serde_json::from_slice(&payload).expect("a message is JSON") {
                Value::Array(several) => self.messages.extend(several),
                one => self.messages.push(one),
            },
            0x88 => {
                let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                assert_ne!(payload.len(), 1, "a code has two bytes");
                assert!(
                    std::str::from_utf8(payload.get(2..).unwrap_or_default()).is_ok(),
                    "a reason is text"
                );
                assert_ne!(code, Some(CLOSE_NO_STATUS), "that code is not for sending");
                self.close_code = Some(code.unwrap_or(CLOSE_NO_STATUS));
            }
            0x89 => self.pings += 1,
            0x8a => self.pongs.push(payload),
            other => panic!("a server of MCP does not send this: {other:#x}"),
        }
    }
}
