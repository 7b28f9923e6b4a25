//! Bytes in, frames out: what comes down a pipe, by line or by `Content-Length`.
//!
//! Lines are the standard. Some clients borrow the framing of the Language Server Protocol; the name of the
//! first header tells, and we answer in kind. Feed with [`Frames::space`] and [`Frames::filled`], take with
//! [`Frames::next`]. Never holds more than one frame of `frame_bytes_max` and what was read behind it.

/// How messages are told apart on a pipe.
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

/// What was found in the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Message(Vec<u8>),
    /// A message that is too long; the rest of it is skipped as it comes.
    TooLong,
    /// Headers that make no sense: where the next message starts can no longer be known.
    Desynchronized,
}

/// What to do with the bytes at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderState {
    /// Nothing but white space came yet, or what may become the name of a header.
    Detecting,
    Line,
    /// In an overlong line: everything up to the next line break is dropped.
    SkipLine,
    HeaderBlock,
    Body(usize),
    /// In an overlong body: this many bytes are still to be dropped.
    SkipBody(usize),
    Desynchronized,
}

/// `start..end` of `buffer` is what has been read and not yet taken; `0 <= start <= searched <= end <= len`.
pub struct FrameDecoder {
    buffer: Vec<u8>,
    start: usize,
    searched: usize,
    end: usize,
    state: DecoderState,
    frame_bytes_max: usize,
}

/// A header block has a few short lines; more than this is not one.
const HEADER_BLOCK_BYTES_MAX: usize = 4096;
const READ_CHUNK_BYTES: usize = 64 << 10;

impl FrameDecoder {
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            end: 0,
            state: DecoderState::Detecting,
            frame_bytes_max,
        }
    }

    /// For whoever knows how the other end writes: a first line that looks like a header is a line.
    pub fn with_framing(framing: Framing, frame_bytes_max: usize) -> Self {
        let state = match framing {
            // The messages of a WebSocket have their own frames; who asks for these means a stream of bytes.
            Framing::Lines | Framing::WebSocket => DecoderState::Line,
            Framing::ContentLength => DecoderState::HeaderBlock,
        };
        Self { state, ..Self::new(frame_bytes_max) }
    }

    /// `None` until the first bytes came.
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

    /// Room to read into; never empty.
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
            // One long message must not cost its size for ever.
            self.buffer.truncate(READ_CHUNK_BYTES);
            self.buffer.shrink_to_fit();
        }
        &mut self.buffer[self.end..]
    }

    /// Says how much of [`Frames::space`] was filled.
    pub fn advance(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.buffer.len());
    }

    /// How much has been read and not yet taken: once no frame is left, at most one unfinished frame.
    pub fn buffered_bytes(&self) -> usize {
        self.end - self.start
    }

    /// What is left when the stream ends: a last line without a line break counts.
    pub fn finish(&mut self) -> Option<Frame> {
        if !matches!(self.state, DecoderState::Line | DecoderState::Detecting) || self.start == self.end {
            return None;
        }
        // The beginning of a header's name and no more is no header.
        self.state = DecoderState::Line;
        let line = &self.buffer[self.start..self.end];
        let too_long = line.len() > self.frame_bytes_max;
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
            Some(at) => {
                let end = self.searched + at;
                let line = &self.buffer[self.start..end];
                // Before trimming, as below: how a line is cut on its way here must not matter.
                let too_long = line.len() > self.frame_bytes_max;
                let frame = if too_long { Frame::TooLong } else { Frame::Message(trim_line(line).to_vec()) };
                self.start = end + 1;
                self.searched = self.start;
                Some(frame)
            }
            None => {
                self.searched = self.end;
                if self.unread().len() <= self.frame_bytes_max {
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
        let at_hand = self.unread();
        let window = &at_hand[..at_hand.len().min(HEADER_BLOCK_BYTES_MAX)];
        // A blank line ends it, whatever the line before ended with.
        let lf = memchr::memmem::find(window, b"\n\n").map(|at| (at, 2));
        let crlf = memchr::memmem::find(window, b"\n\r\n").map(|at| (at, 3));
        let Some((at, len)) = [lf, crlf].into_iter().flatten().min() else {
            // A message without a head is not waited for: the blank line behind it may never come.
            let is_lost = at_hand.len() >= HEADER_BLOCK_BYTES_MAX || !may_be_header_block(window);
            return is_lost.then_some(Err(()));
        };
        let length = content_length(&window[..at]);
        self.consume(at + len);
        Some(length.ok_or(()))
    }
}

/// The next whole frame, if it is there. Empty lines are no frames.
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
                        Ok(length) if length <= self.frame_bytes_max => {
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

/// What the first bytes look like.
enum Detection {
    Undecided,
    Detected(DecoderState),
}

/// The headers of the Language Server Protocol. A line that merely begins like one is a line.
const FRAMING_HEADERS: [&[u8]; 2] = [b"content-length:", b"content-type:"];

fn detect_framing(bytes: &[u8]) -> Detection {
    let agrees = |name: &&[u8]| {
        let known = name.len().min(bytes.len());
        bytes[..known].eq_ignore_ascii_case(&name[..known])
    };
    match FRAMING_HEADERS.iter().find(|name| agrees(name)) {
        Some(name) if bytes.len() >= name.len() => Detection::Detected(DecoderState::HeaderBlock),
        Some(_) => Detection::Undecided,
        None => Detection::Detected(DecoderState::Line),
    }
}

/// Whether each line, and the beginning of the last one, has the name of a header in front.
fn may_be_header_block(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|c| *c == b'\n');
    let last = lines.next_back().unwrap_or_default();
    let name = |line: &[u8]| line.iter().take_while(|c| is_token(**c)).count();
    // What follows the name is its colon; of the last line that, or the end of the block, may yet come.
    lines.all(|line| line.get(name(line)) == Some(&b':'))
        && (last == b"\r" || matches!(last.get(name(last)), None | Some(b':')))
}

/// What the name of a header is made of.
fn is_token(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c)
}

/// The one `Content-Length` of a header block; other headers are allowed and ignored.
fn content_length(head: &[u8]) -> Option<usize> {
    let mut found = None;
    for line in std::str::from_utf8(head).ok()?.lines() {
        let (name, value) = line.split_once(':')?;
        if !name.bytes().all(is_token) {
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
