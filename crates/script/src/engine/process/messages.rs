//! The conversation with a worker process: JSON in frames, each with its length in front.
//!
//! The server asks, the worker answers every question with one frame, and neither side sends anything else.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::sandbox::LoadError;
use super::super::{CodeHash, EngineLimits, ProgramCode, StateOwner, Step};
use crate::journal::{Completion, EffectJournal};

/// What a worker accepts: the largest program of a folder, escaped.
pub(super) const REQUEST_BYTES_MAX: usize = 256 << 20;

/// What the server accepts from a worker, which may be in the hands of its code.
pub(super) const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// A question to a worker.
#[derive(Serialize)]
pub(super) enum Request<'a> {
    /// The first one. Answered with [`Response::Ready`], once the limits hold.
    Begin(&'a EngineLimits),
    Program(&'a ProgramCode),
    /// A program that is not needed any more.
    Forget(CodeHash),
    /// What a program declares. The worker has it already.
    Describe {
        program: CodeHash,
        now_ms: u64,
    },
    Start {
        call: u64,
        start: StartRef<'a>,
    },
    Deliver {
        call: u64,
        completions: &'a [Completion],
    },
    Cancel {
        call: u64,
    },
    Discard {
        call: u64,
    },
}

/// The same, as the worker reads it.
#[derive(Deserialize)]
pub(super) enum OwnedRequest {
    Begin(EngineLimits),
    Program(ProgramCode),
    Forget(CodeHash),
    Describe { program: CodeHash, now_ms: u64 },
    Start { call: u64, start: Box<OwnedStart> },
    Deliver { call: u64, completions: Vec<Completion> },
    Cancel { call: u64 },
    Discard { call: u64 },
}

/// [`super::super::Start`], with the program by its hash.
#[derive(Serialize)]
pub(super) struct StartRef<'a> {
    pub(super) program: CodeHash,
    pub(super) owner: &'a StateOwner,
    pub(super) begins_fresh: bool,
    pub(super) arguments: &'a str,
    pub(super) request: &'a str,
    pub(super) journal: &'a EffectJournal,
    pub(super) env: &'a BTreeMap<String, Option<String>>,
    pub(super) secrets: &'a BTreeMap<String, Option<String>>,
    pub(super) capabilities: Vec<&'static str>,
}

#[derive(Deserialize)]
pub(super) struct OwnedStart {
    pub(super) program: CodeHash,
    pub(super) owner: StateOwner,
    pub(super) begins_fresh: bool,
    pub(super) arguments: String,
    pub(super) request: String,
    pub(super) journal: EffectJournal,
    pub(super) env: BTreeMap<String, Option<String>>,
    pub(super) secrets: BTreeMap<String, Option<String>>,
    pub(super) capabilities: Vec<String>,
}

/// An answer of a worker.
#[derive(Serialize, Deserialize)]
pub(super) enum Response {
    Ready,
    Described(Result<String, LoadError>),
    /// `None` where the call ended before, or has nothing to say.
    Step(Option<Step>),
}

pub(super) fn write_frame(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // One write where it fits: the other side wakes up once.
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    out.write_all(&frame)?;
    out.flush()
}

/// Reads one message. `None` at the end of the stream.
pub(super) fn read_frame<T: DeserializeOwned>(
    input: &mut impl Read,
    bytes_max: usize,
) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("a frame of {length} bytes")));
    }
    // Grows with what really comes.
    let mut body = Vec::new();
    if input.take(length as u64).read_to_end(&mut body)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&body)?))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, ErrorKind};

    use super::{read_frame, write_frame};

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        for text in ["", "a\u{0}b", "é\n"] {
            write_frame(&mut bytes, &text).expect("memory");
        }
        let mut input = Cursor::new(bytes);
        for text in ["", "a\u{0}b", "é\n"] {
            assert_eq!(read_frame::<String>(&mut input, 100).expect("a frame").as_deref(), Some(text));
        }
        assert_eq!(read_frame::<String>(&mut input, 100).expect("the end"), None);
    }

    #[test]
    fn what_is_too_long_cut_or_not_json_is_an_error() {
        for (bytes, expected) in [
            (&b"\x00\x00\x00\x65"[..], ErrorKind::FileTooLarge),
            (b"\xff\xff\xff\xff\"a\"", ErrorKind::FileTooLarge),
            (b"\x00\x00\x00\x04\"a\"", ErrorKind::UnexpectedEof),
            (b"\x00\x00\x00\x03{]}", ErrorKind::InvalidData),
            (b"\x00\x00\x00\x01\"", ErrorKind::UnexpectedEof),
            (b"\x00\x00\x00\x01\x31", ErrorKind::InvalidData),
        ] {
            let error = read_frame::<String>(&mut Cursor::new(bytes), 100).expect_err("not a frame");
            assert_eq!(error.kind(), expected, "{bytes:?}");
        }
    }
}
