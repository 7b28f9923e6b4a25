//! Splits the bytes of a pipe into messages, by line or by `Content-Length`.
//!
//! Lines are the standard. Some clients use the framing of the Language Server Protocol instead. The decoder
//! recognizes it by the name of the first header, and the server answers in the same framing. Fill with
//! [`FrameDecoder::read_buffer`] and [`FrameDecoder::advance`], then iterate. The decoder buffers at most one frame
//! of `message_bytes_max` and the bytes read after it.

use spile_core::text::is_token_byte;

/// How messages are separated on a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Lines,
    ContentLength,
    /// Text messages of a WebSocket, as a server sends them: RFC 6455, 5.2.
    WebSocket,
}

impl Framing {
    /// Appends a message in this framing.
    pub fn write(self, out: &mut Vec<u8>, message: &[u8]) {
        match self {
            Self::Lines => {
                out.extend_from_slice(message);
                out.push(b'\n');
            }
            Self::ContentLength => {
                out.extend_from_slice(b"Content-Length: ");
                json::write::integer(out, message.len() as i64);
                out.extend_from_slice(b"\r\n\r\n");
                out.extend_from_slice(message);
            }
            Self::WebSocket => {
                const LAST_AND_TEXT: u8 = 0x81;
                out.push(LAST_AND_TEXT);
                match (u8::try_from(message.len()), u16::try_from(message.len())) {
                    (Ok(length @ ..126), _) => out.push(length),
                    (_, Ok(length)) => {
                        out.push(126);
                        out.extend_from_slice(&length.to_be_bytes());
                    }
                    (_, Err(_)) => {
                        out.push(127);
                        out.extend_from_slice(&(message.len() as u64).to_be_bytes());
                    }
                }
                out.extend_from_slice(message);
            }
        }
    }
}

/// One item of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Message(Vec<u8>),
    /// A message over `message_bytes_max`. The decoder skips the rest of it.
    TooLong,
    /// Invalid headers. The start of the next message is unknown, so the stream cannot continue.
    Desynchronized,
}

/// How to treat the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderState {
    /// Only white space so far, or a prefix of a header name.
    Detecting,
    Line,
    /// In a line over the limit: skip up to the next line break.
    SkipLine,
    HeaderBlock,
    Body(usize),
    /// In a body over the limit: skip this many more bytes.
    SkipBody(usize),
    Desynchronized,
}

/// `start..end` of `buffer` are the unread bytes; `0 <= start <= searched <= end <= len`.
pub struct FrameDecoder {
    buffer: Vec<u8>,
    start: usize,
    searched: usize,
    end: usize,
    state: DecoderState,
    message_bytes_max: usize,
}

/// A header block has a few short lines. A longer one is invalid.
const HEADER_BLOCK_BYTES_MAX: usize = 4096;
const READ_CHUNK_BYTES: usize = 64 << 10;

impl FrameDecoder {
    pub fn new(message_bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            end: 0,
            state: DecoderState::Detecting,
            message_bytes_max,
        }
    }

    /// A decoder for a known framing: it does not guess from the first line.
    pub fn with_framing(framing: Framing, message_bytes_max: usize) -> Self {
        let state = match framing {
            // A WebSocket library splits its own messages, so a byte stream can only have lines.
            Framing::Lines | Framing::WebSocket => DecoderState::Line,
            Framing::ContentLength => DecoderState::HeaderBlock,
        };
        Self { state, ..Self::new(message_bytes_max) }
    }

    /// The framing in use; `None` until the first bytes decide it.
    pub fn framing(&self) -> Option<Framing> {
        match self.state {
            DecoderState::Detecting => None,
            DecoderState::Line | DecoderState::SkipLine => Some(Framing::Lines),
            DecoderState::HeaderBlock
            | DecoderState::Body(_)
            | DecoderState::SkipBody(_)
            | DecoderState::Desynchronized => Some(Framing::ContentLength),
        }
    }

    /// The buffer to read into. Never empty.
    pub fn read_buffer(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.searched -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < self.end + READ_CHUNK_BYTES {
            self.buffer.resize(self.end + READ_CHUNK_BYTES, 0);
        } else if self.end == 0 && self.buffer.len() > 8 * READ_CHUNK_BYTES {
            // One long message must not keep its buffer forever.
            self.buffer.truncate(READ_CHUNK_BYTES);
            self.buffer.shrink_to_fit();
        }
        &mut self.buffer[self.end..]
    }

    /// Records how many bytes of [`Self::read_buffer`] were filled.
    pub fn advance(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.buffer.len());
    }

    /// Buffered bytes. When the iterator is empty, at most one incomplete frame.
    pub fn buffered_bytes(&self) -> usize {
        self.end - self.start
    }

    /// The last frame at the end of the stream: a line without a line break counts.
    pub fn finish(&mut self) -> Option<Frame> {
        if !matches!(self.state, DecoderState::Line | DecoderState::Detecting) || self.start == self.end {
            return None;
        }
        // An incomplete header name is not a header.
        self.state = DecoderState::Line;
        let line = &self.buffer[self.start..self.end];
        let too_long = line.len() > self.message_bytes_max;
        let line = trim_line(line).to_vec();
        self.start = self.end;
        self.searched = self.end;
        match line.is_empty() {
            true => None,
            false if too_long => Some(Frame::TooLong),
            false => Some(Frame::Message(line)),
        }
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.searched = self.searched.max(self.start);
    }

    fn next_line(&mut self) -> Option<Frame> {
        match memchr::memchr(b'\n', &self.buffer[self.searched..self.end]) {
            Some(offset) => {
                let end = self.searched + offset;
                let line = &self.buffer[self.start..end];
                // Before trimming, as below: the result must not depend on how the line arrives in pieces.
                let too_long = line.len() > self.message_bytes_max;
                let frame = if too_long { Frame::TooLong } else { Frame::Message(trim_line(line).to_vec()) };
                self.start = end + 1;
                self.searched = self.start;
                Some(frame)
            }
            None => {
                self.searched = self.end;
                if self.unread().len() <= self.message_bytes_max {
                    return None;
                }
                self.consume(self.unread().len());
                self.state = DecoderState::SkipLine;
                Some(Frame::TooLong)
            }
        }
    }

    /// Reads a header block; `None` while it is incomplete.
    fn next_header_block(&mut self) -> Option<Result<usize, ()>> {
        let unread = self.unread();
        let window = &unread[..unread.len().min(HEADER_BLOCK_BYTES_MAX)];
        // A blank line ends the block, after either kind of line end.
        let lf = memchr::memmem::find(window, b"\n\n").map(|at| (at, 2));
        let crlf = memchr::memmem::find(window, b"\n\r\n").map(|at| (at, 3));
        let Some((at, len)) = [lf, crlf].into_iter().flatten().min() else {
            // A message without headers is an error at once: its blank line may never come.
            let is_invalid = unread.len() >= HEADER_BLOCK_BYTES_MAX || !may_be_header_block(window);
            return is_invalid.then_some(Err(()));
        };
        let length = content_length(&window[..at]);
        self.consume(at + len);
        Some(length.ok_or(()))
    }
}

/// Returns the next complete frame. Skips empty lines.
impl Iterator for FrameDecoder {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        loop {
            match self.state {
                DecoderState::Detecting => {
                    let blank = self.unread().iter().take_while(|c| c.is_ascii_whitespace()).count();
                    self.consume(blank);
                    self.state = match detect_framing(self.unread()) {
                        Detection::Undecided => return None,
                        Detection::Detected(state) => state,
                    };
                }
                DecoderState::Line => match self.next_line()? {
                    Frame::Message(line) if line.is_empty() => {}
                    frame => return Some(frame),
                },
                DecoderState::SkipLine => match memchr::memchr(b'\n', self.unread()) {
                    Some(at) => {
                        self.consume(at + 1);
                        self.state = DecoderState::Line;
                    }
                    None => {
                        self.consume(self.unread().len());
                        return None;
                    }
                },
                DecoderState::HeaderBlock => {
                    let blank = self.unread().iter().take_while(|c| matches!(c, b'\r' | b'\n')).count();
                    self.consume(blank);
                    if self.unread().is_empty() {
                        return None;
                    }
                    match self.next_header_block()? {
                        Ok(length) if length <= self.message_bytes_max => {
                            self.state = DecoderState::Body(length)
                        }
                        Ok(length) => {
                            self.state = DecoderState::SkipBody(length);
                            return Some(Frame::TooLong);
                        }
                        Err(()) => {
                            self.state = DecoderState::Desynchronized;
                            return Some(Frame::Desynchronized);
                        }
                    }
                }
                DecoderState::Body(length) => {
                    let body = self.unread().get(..length)?.to_vec();
                    self.consume(length);
                    self.state = DecoderState::HeaderBlock;
                    return Some(Frame::Message(body));
                }
                DecoderState::SkipBody(left) => {
                    let skipped = left.min(self.unread().len());
                    self.consume(skipped);
                    if skipped < left {
                        self.state = DecoderState::SkipBody(left - skipped);
                        return None;
                    }
                    self.state = DecoderState::HeaderBlock;
                }
                DecoderState::Desynchronized => {
                    self.consume(self.unread().len());
                    return None;
                }
            }
        }
    }
}

fn trim_line(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

/// The framing that the first bytes indicate.
enum Detection {
    Undecided,
    Detected(DecoderState),
}

/// The headers of the Language Server Protocol. Only the whole name with its colon counts.
const FRAMING_HEADERS: [&[u8]; 2] = [b"content-length:", b"content-type:"];

fn detect_framing(bytes: &[u8]) -> Detection {
    let matches_prefix = |name: &&[u8]| {
        let known = name.len().min(bytes.len());
        bytes[..known].eq_ignore_ascii_case(&name[..known])
    };
    match FRAMING_HEADERS.iter().find(|name| matches_prefix(name)) {
        Some(name) if bytes.len() >= name.len() => Detection::Detected(DecoderState::HeaderBlock),
        Some(_) => Detection::Undecided,
        None => Detection::Detected(DecoderState::Line),
    }
}

/// Whether each line starts with a header name; the last line may be incomplete.
fn may_be_header_block(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|c| *c == b'\n');
    let last = lines.next_back().unwrap_or_default();
    let name = |line: &[u8]| line.iter().take_while(|c| is_token_byte(**c)).count();
    // A colon follows each name. The last line may not have reached its colon yet.
    lines.all(|line| line.get(name(line)) == Some(&b':'))
        && (last == b"\r" || matches!(last.get(name(last)), None | Some(b':')))
}

/// The only `Content-Length` of a header block. Other headers are ignored.
fn content_length(head: &[u8]) -> Option<usize> {
    let mut found = None;
    for line in std::str::from_utf8(head).ok()?.lines() {
        let (name, value) = line.split_once(':')?;
        if !name.bytes().all(is_token_byte) {
            return None;
        }
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim();
            if found.is_some() || !value.bytes().all(|c| c.is_ascii_digit()) {
                return None;
            }
            found = Some(value.parse().ok()?);
        }
    }
    found
}
