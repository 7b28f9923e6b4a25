//! The payload of a packed executable. The loader maps an executable by its headers and ignores bytes after the last
//! section: the payload is appended there, followed by a trailer.
//!
//! ```text
//! program · payload (a zip archive) · SHA-256 of the payload, 32 bytes · its length, 8 · MAGIC, 16
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

const MAGIC: &[u8; 16] = b"spile packed v1\n";
const TRAILER_BYTES: u64 = 32 + 8 + 16;

/// Whether a program is a build of spile that can find a payload: its code then contains the magic bytes.
pub(super) fn has_magic(program: &mut File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    program.rewind()?;
    program.read_to_end(&mut bytes)?;
    program.rewind()?;
    Ok(memchr::memmem::find(&bytes, MAGIC).is_some())
}

/// The position of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) digest: [u8; 32],
    pub(super) start: u64,
    pub(super) length: u64,
}

impl Trailer {
    /// Reads the trailer at the end of a file; `None` if there is none.
    pub(super) fn read(file: &mut File) -> io::Result<Option<Self>> {
        let length = file.metadata()?.len();
        let Some(position) = length.checked_sub(TRAILER_BYTES) else { return Ok(None) };
        file.seek(SeekFrom::Start(position))?;
        let mut bytes = [0; TRAILER_BYTES as usize];
        file.read_exact(&mut bytes)?;
        let (digest, rest) = bytes.split_at(32);
        let (payload, magic) = rest.split_at(8);
        if magic != MAGIC {
            return Ok(None);
        }
        let payload = u64::from_le_bytes(payload.try_into().unwrap_or_default());
        let Some(start) = position.checked_sub(payload) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the packed data is incomplete; download or copy the file again",
            ));
        };
        Ok(Some(Self { digest: digest.try_into().unwrap_or_default(), start, length: payload }))
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

/// A part of a file with the interface of a whole file.
pub(super) struct FileSection<'f> {
    file: &'f mut File,
    start: u64,
    /// `None` for a section that is still being written.
    end: Option<u64>,
}

impl<'f> FileSection<'f> {
    pub(super) fn new(file: &'f mut File, trailer: Trailer) -> io::Result<Self> {
        file.seek(SeekFrom::Start(trailer.start))?;
        Ok(Self { file, start: trailer.start, end: Some(trailer.start + trailer.length) })
    }

    /// A section from the current position on, to write to.
    pub(super) fn open_ended(file: &'f mut File) -> io::Result<Self> {
        let start = file.stream_position()?;
        Ok(Self { file, start, end: None })
    }
}

impl Read for FileSection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = match self.end {
            Some(end) => end.saturating_sub(self.file.stream_position()?),
            None => u64::MAX,
        };
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.file.read(&mut buffer[..count])
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
        let target = match (to, self.end) {
            (SeekFrom::Start(offset), _) => SeekFrom::Start(self.start.saturating_add(offset)),
            (SeekFrom::End(by), Some(end)) => {
                let position = end.checked_add_signed(by).filter(|position| *position >= self.start);
                SeekFrom::Start(position.ok_or_else(before_start_error)?)
            }
            (SeekFrom::End(by), None) => SeekFrom::End(by),
            (SeekFrom::Current(by), _) => SeekFrom::Current(by),
        };
        self.file.seek(target)?.checked_sub(self.start).ok_or_else(before_start_error)
    }
}

fn before_start_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "seek before the start")
}
