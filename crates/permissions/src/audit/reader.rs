//! Reads the files of a log: all lines in their order, those that a filter accepts, and new ones as they come.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use json::{Doc, ParseLimits};

use super::files::existing;
use super::line::utc;
use crate::glob::Glob;

/// Longer lines are not lines of this log.
const LINE_BYTES_MAX: usize = 1 << 20;
/// How often the files are listed again if they are rotated meanwhile.
const LISTINGS_MAX: usize = 10;

/// One line of a log.
pub struct AuditEntry {
    doc: Doc,
}

impl AuditEntry {
    /// `None` if the text is not a line of an audit log.
    pub fn parse(text: &str) -> Option<Self> {
        let doc = json::parse(text.as_bytes().to_vec(), &ParseLimits::default()).ok()?;
        (doc.root().get("time").is_some() && doc.root().get("event").is_some()).then_some(Self { doc })
    }

    /// As it is written.
    pub fn text(&self) -> &str {
        self.doc.text()
    }

    pub fn str(&self, key: &str) -> Option<Cow<'_, str>> {
        self.doc.root().get(key)?.str()
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        self.doc.root().get(key)?.u64()
    }

    /// The subject of the caller; `None` for an anonymous one.
    pub fn subject(&self) -> Option<Cow<'_, str>> {
        self.doc.root().get("principal")?.get("subject")?.str()
    }
}

/// Which lines are wanted. Texts are patterns with `*`.
#[derive(Debug, Default)]
pub struct AuditFilter {
    since: Option<String>,
    fields: Vec<(Field, Glob)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Server,
    Target,
    Principal,
    Outcome,
}

impl AuditFilter {
    /// Calls that ended at this time or later.
    #[must_use]
    pub fn since(self, ms: u64) -> Self {
        Self { since: Some(utc(ms)), ..self }
    }

    #[must_use]
    pub fn with(mut self, field: Field, pattern: &str) -> Self {
        self.fields.push((field, Glob::new(pattern)));
        self
    }

    pub fn matches(&self, entry: &AuditEntry) -> bool {
        let is_late = match &self.since {
            Some(since) => entry.str("time").is_some_and(|time| *time >= **since),
            None => true,
        };
        is_late
            && self.fields.iter().all(|(field, pattern)| {
                let value = match field {
                    Field::Server => entry.str("server"),
                    Field::Target => entry.str("target"),
                    Field::Principal => entry.subject(),
                    Field::Outcome => entry.str("outcome"),
                };
                pattern.matches(&value.unwrap_or_default())
            })
    }
}

/// Reads a log from its oldest line on, and later what was added.
pub struct AuditReader {
    path: PathBuf,
    current: Option<OpenLog>,
    invalid_lines: u64,
}

struct OpenLog {
    file: BufReader<File>,
    id: FileId,
    /// A line whose end is not there yet.
    partial: Vec<u8>,
}

/// Identifies a file whatever its name is.
type FileId = (u64, u64);

impl AuditReader {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), current: None, invalid_lines: 0 }
    }

    /// Lines that are not entries of an audit log.
    pub fn invalid_lines(&self) -> u64 {
        self.invalid_lines
    }

    /// Calls `each` with every entry that was not read yet. `Ok(false)` if there is no log.
    pub fn read(&mut self, mut each: impl FnMut(&AuditEntry) -> io::Result<()>) -> io::Result<bool> {
        let mut invalid = 0;
        let mut one = |line: &[u8]| match std::str::from_utf8(line).ok().and_then(AuditEntry::parse) {
            Some(entry) => each(&entry),
            None => {
                invalid += 1;
                Ok(())
            }
        };
        if let Some(current) = &mut self.current {
            current.read(&mut one)?;
        }
        let mut later = open_all(&self.path)?;
        if let Some(current) = &mut self.current {
            // What was written between the last read and a rotation.
            current.read(&mut one)?;
            if let Some(at) = later.iter().position(|log| log.id == current.id) {
                later.drain(..=at);
            }
        }
        for mut log in later {
            log.read(&mut one)?;
            self.current = Some(log);
        }
        self.invalid_lines += invalid;
        Ok(self.current.is_some())
    }
}

impl OpenLog {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let id = file_id(&file.metadata()?);
        Ok(Self { file: BufReader::new(file), id, partial: Vec::new() })
    }

    fn read(&mut self, each: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        loop {
            let available = self.file.fill_buf()?;
            if available.is_empty() {
                return Ok(());
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            // One byte more than fits marks a line that is too long.
            let room = (LINE_BYTES_MAX + 1).saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&available[..end.unwrap_or(taken).min(room)]);
            self.file.consume(taken);
            if end.is_some() {
                let line = std::mem::take(&mut self.partial);
                each(if line.len() > LINE_BYTES_MAX { b"" } else { &line })?;
            }
        }
    }
}

/// All files of a log, the oldest first, as they are at one moment.
fn open_all(path: &Path) -> io::Result<Vec<OpenLog>> {
    for _ in 0..LISTINGS_MAX {
        let listed = match existing(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed?,
        };
        let opened: io::Result<Vec<OpenLog>> = listed.iter().map(|(_, path)| OpenLog::open(path)).collect();
        match opened {
            Ok(opened) => {
                let is_same = |((_, path), log): (&(u32, PathBuf), &OpenLog)| {
                    std::fs::metadata(path).is_ok_and(|now| file_id(&now) == log.id)
                };
                if listed.iter().zip(&opened).all(is_same) {
                    return Ok(opened);
                }
            }
            // It was renamed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the files of the log change all the time"))
}

#[cfg(unix)]
fn file_id(metadata: &std::fs::Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn file_id(metadata: &std::fs::Metadata) -> FileId {
    let created = metadata.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    (0, created.map_or(0, |since| since.as_nanos() as u64))
}
