//! A program with something behind its end. A file that is run is mapped by what its head says, so bytes behind
//! the last section are nobody's business: ours begin there, and the very last of them say so.
//!
//! ```text
//! program · payload (a zip archive) · digest of the payload, 32 · its length, 8 · MAGIC, 16
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

const MAGIC: &[u8; 16] = b"spile packed v1\n";
const TRAILER_BYTES: u64 = 32 + 8 + 16;

/// Whether a program looks for a payload behind its end: then it has our mark in it.
pub(super) fn has_magic(program: &mut File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    program.rewind()?;
    program.read_to_end(&mut bytes)?;
    program.rewind()?;
    Ok(memchr::memmem::find(&bytes, MAGIC).is_some())
}

/// Where the payload of a packed program lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) digest: [u8; 32],
    pub(super) start: u64,
    pub(super) length: u64,
}

impl Trailer {
    /// What stands at the end of a file, if it is ours.
    pub(super) fn read(file: &mut File) -> io::Result<Option<Self>> {
        let length = file.metadata()?.len();
        let Some(at) = length.checked_sub(TRAILER_BYTES) else { return Ok(None) };
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = [0; TRAILER_BYTES as usize];
        file.read_exact(&mut bytes)?;
        let (digest, rest) = bytes.split_at(32);
        let (payload, magic) = rest.split_at(8);
        if magic != MAGIC {
            return Ok(None);
        }
        let payload = u64::from_le_bytes(payload.try_into().unwrap_or_default());
        let Some(from) = at.checked_sub(payload) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the packed part is cut off"));
        };
        Ok(Some(Self { digest: digest.try_into().unwrap_or_default(), start: from, length: payload }))
    }

    pub(super) fn read_path(path: &Path) -> io::Result<Option<Self>> {
        Self::read(&mut File::open(path)?)
    }

    pub(super) fn write(self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.digest)?;
        out.write_all(&self.length.to_le_bytes())?;
        out.write_all(MAGIC)
    }
}

/// A part of a file that looks like a whole one.
pub(super) struct FileSection<'f> {
    file: &'f mut File,
    start: u64,
    /// Where it ends; a window that is written to has no end yet.
    end: Option<u64>,
}

impl<'f> FileSection<'f> {
    pub(super) fn new(file: &'f mut File, trailer: Trailer) -> io::Result<Self> {
        file.seek(SeekFrom::Start(trailer.start))?;
        Ok(Self { file, start: trailer.start, end: Some(trailer.start + trailer.length) })
    }

    /// From here to wherever it is written to.
    pub(super) fn open_ended(file: &'f mut File) -> io::Result<Self> {
        let from = file.stream_position()?;
        Ok(Self { file, start: from, end: None })
    }
}

impl Read for FileSection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = match self.end {
            Some(end) => end.saturating_sub(self.file.stream_position()?),
            None => u64::MAX,
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
        self.file.read(&mut buffer[..most])
    }
}

impl Write for FileSection<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for FileSection<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match (to, self.end) {
            (SeekFrom::Start(at), _) => SeekFrom::Start(self.start.saturating_add(at)),
            (SeekFrom::End(by), Some(end)) => {
                let at = end.checked_add_signed(by).filter(|at| *at >= self.start);
                SeekFrom::Start(at.ok_or_else(before_start_error)?)
            }
            (SeekFrom::End(by), None) => SeekFrom::End(by),
            (SeekFrom::Current(by), _) => SeekFrom::Current(by),
        };
        self.file.seek(place)?.checked_sub(self.start).ok_or_else(before_start_error)
    }
}

fn before_start_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "before the start")
}
