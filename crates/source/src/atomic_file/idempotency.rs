//! The idempotency log: which write was applied under which idempotency key. A file of lines next to the data file,
//! append-only.
//!
//! An entry is written, durably, before the data file is replaced, with the digests of the file before and after. It is
//! finished afterwards. If a process is killed in between, the entry stays pending, and the next process that holds
//! the lock compares the data file: with the digest after, the write was applied; with the digest before, it was not.
//! With any other, another program changed the file meanwhile, and the outcome is unknown.
//!
//! ```text
//! spile-idempotency 1 5a0c44cf5e1f7a02
//! 8be1b6f1c0a7d0e4 pending <id> <request> <ms> <before> <after> <response>
//! 1e2a09b3cc51f6aa applied <id>
//! ```
//!
//! Each line begins with a checksum of its rest. A line torn by a power cut is at the end, and is cut off. An invalid
//! line elsewhere means that the log is damaged, and then no entry is trusted.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;

use contract::source::{IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, SourceError};
use ring::digest::{SHA256, digest};
use spile_core::text::{hex, parse_hex};

use super::target::{FileState, TargetFile, no_follow};
use super::temp_file::{TempFile, random_u64, temp_name};
use super::transaction::IdempotencyRecord;
use super::{RESPONSE_BYTES_MAX, error};

/// A larger log is compacted to its newer half.
const BYTES_MAX: u64 = 64 << 20;
/// How far a log may exceed that: one escaped response.
const OVERRUN_BYTES_MAX: u64 = 2 * RESPONSE_BYTES_MAX as u64 + LINE_BYTES_MAX;
/// The longest line, without the response.
const LINE_BYTES_MAX: u64 = 1024;
/// At the start of a line.
const CHECKSUM_BYTES: usize = 16;
const MAGIC: &[u8] = b"spile-idempotency 1 ";

type Digest = [u8; 32];

/// An index of the log: the byte ranges of its entries, without their responses.
#[derive(Default)]
pub(super) struct IdempotencyIndex {
    /// A log with another first line is another log.
    header: Vec<u8>,
    /// The length of the valid prefix.
    valid_bytes: u64,
    entries: HashMap<Digest, IdempotencyEntry>,
    /// The entry that is not finished.
    pending: Option<Digest>,
    oldest_ms: Option<u64>,
    is_damaged: bool,
}

struct IdempotencyEntry {
    request_digest: Digest,
    created_ms: u64,
    line: Range<u64>,
    response: Range<u64>,
    state: EntryState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryState {
    Pending { before: Digest, after: Digest },
    Applied,
    Unknown,
}

/// How an entry was finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryOutcome {
    Applied,
    NotApplied,
    Unknown,
}

/// What the log has for an idempotency key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IdempotencyLookup {
    NotFound,
    Applied(Vec<u8>),
    KeyReused,
    Unknown,
}

pub(super) struct IdempotencyLog<'a> {
    target: &'a TargetFile,
    index: &'a mut IdempotencyIndex,
    file: Option<File>,
}

impl<'a> IdempotencyLog<'a> {
    /// Opens the log under the lock, and cuts off a torn last line.
    pub(super) fn open(target: &'a TargetFile, index: &'a mut IdempotencyIndex) -> Result<Self, SourceError> {
        let to_error = |error: io::Error| error::write_error(target, "reading the idempotency log", &error);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let mut log = Self { file: open_log(&log_path(target), options).map_err(to_error)?, target, index };
        let length = log.read_new_lines().map_err(to_error)?;
        if let Some(file) = &log.file
            && length > log.index.valid_bytes
            && !log.index.is_damaged
        {
            file.set_len(log.index.valid_bytes).map_err(to_error)?;
        }
        Ok(log)
    }

    /// The log as [`into_file`](Self::into_file) left it, under the same lock.
    pub(super) fn resume(
        target: &'a TargetFile,
        index: &'a mut IdempotencyIndex,
        file: Option<File>,
    ) -> Self {
        Self { target, index, file }
    }

    /// Keeps the log open for a later step.
    pub(super) fn into_file(self) -> Option<File> {
        self.file
    }

    /// Opens the log without the lock, and changes nothing.
    pub(super) fn open_read_only(
        target: &'a TargetFile,
        index: &'a mut IdempotencyIndex,
        bytes: &[u8],
    ) -> Result<Self, SourceError> {
        let to_error = |error: io::Error| error::write_error(target, "reading the idempotency log", &error);
        let mut options = OpenOptions::new();
        options.read(true);
        let mut log = Self { file: open_log(&log_path(target), options).map_err(to_error)?, target, index };
        log.read_new_lines().map_err(to_error)?;
        if let Some((id, end)) = log.pending_outcome(bytes) {
            log.index.finish(id, end);
        }
        Ok(log)
    }

    /// Reads the lines added since the last read. Returns the length of the log.
    fn read_new_lines(&mut self) -> io::Result<u64> {
        let Some(file) = &mut self.file else {
            *self.index = IdempotencyIndex::default();
            return Ok(0);
        };
        let length = file.metadata()?.len();
        let mut header = vec![0; self.index.header.len()];
        let is_known = length >= self.index.valid_bytes
            && !header.is_empty()
            && file.read_exact(&mut header).is_ok()
            && header == self.index.header;
        if !is_known {
            *self.index = IdempotencyIndex::default();
        }
        if length > BYTES_MAX + OVERRUN_BYTES_MAX {
            // Spile never writes such a log.
            self.index.is_damaged = true;
            return Ok(length);
        }
        file.seek(SeekFrom::Start(self.index.valid_bytes))?;
        let mut new_bytes = Vec::new();
        file.take(length - self.index.valid_bytes).read_to_end(&mut new_bytes)?;
        self.index.ingest(&new_bytes);
        Ok(length)
    }

    /// Finishes the pending entry by what the data file holds.
    pub(super) fn resolve_pending(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        let Some((id, end)) = self.pending_outcome(bytes) else { return Ok(()) };
        let line = outcome_line(&id, end);
        self.append(&line)
            .map_err(|error| error::write_error(self.target, "finishing a log entry", &error))?;
        self.index.ingest(&line);
        Ok(())
    }

    fn pending_outcome(&self, bytes: &[u8]) -> Option<(Digest, EntryOutcome)> {
        let id = self.index.pending.filter(|_| !self.index.is_damaged)?;
        let EntryState::Pending { before, after } = self.index.entries.get(&id)?.state else { return None };
        let now = sha256(bytes);
        Some(match () {
            () if now == after => (id, EntryOutcome::Applied),
            () if now == before => (id, EntryOutcome::NotApplied),
            () => (id, EntryOutcome::Unknown),
        })
    }

    pub(super) fn lookup(
        &mut self,
        key: IdempotencyKey,
        now_ms: u64,
    ) -> Result<IdempotencyLookup, SourceError> {
        if self.index.is_damaged {
            let file = self.target.file_name();
            let message = format!(
                "the idempotency log of `{file}` is damaged; write without an idempotency key, or ask the \
                 owner to delete the log next to the file"
            );
            return Err(SourceError::Incompatible {
                message,
                detail: format!("{}: damaged", log_path(self.target).display()),
            });
        }
        let Some(entry) = self.index.entries.get(&key.key_digest) else {
            return Ok(IdempotencyLookup::NotFound);
        };
        if is_expired(entry.created_ms, now_ms) {
            return Ok(IdempotencyLookup::NotFound);
        }
        if entry.request_digest != key.request_digest {
            return Ok(IdempotencyLookup::KeyReused);
        }
        match entry.state {
            EntryState::Pending { .. } | EntryState::Unknown => Ok(IdempotencyLookup::Unknown),
            EntryState::Applied => {
                let response = self.read_range(entry.response.clone());
                let response = response
                    .map_err(|error| error::write_error(self.target, "reading a log entry", &error))?;
                Ok(IdempotencyLookup::Applied(unescape(&response)))
            }
        }
    }

    /// The entry is durable when this returns, and so is the existence of the log.
    pub(super) fn begin(
        &mut self,
        record: &IdempotencyRecord,
        before: &FileState,
        after: &[u8],
        now_ms: u64,
    ) -> Result<(), SourceError> {
        let digests = (sha256(&before.bytes), sha256(after));
        let line = pending_line(record.key, digests.0, digests.1, &record.response, now_ms);
        self.append_durably(before, &line, now_ms)
    }

    /// Records a write that leaves the file as it is.
    pub(super) fn record_unchanged(
        &mut self,
        record: &IdempotencyRecord,
        before: &FileState,
        now_ms: u64,
    ) -> Result<(), SourceError> {
        let same = sha256(&before.bytes);
        let mut lines = pending_line(record.key, same, same, &record.response, now_ms);
        lines.extend_from_slice(&outcome_line(&record.key.key_digest, EntryOutcome::Applied));
        self.append_durably(before, &lines, now_ms)
    }

    fn append_durably(&mut self, old: &FileState, lines: &[u8], now_ms: u64) -> Result<(), SourceError> {
        let added = self.compact_if_needed(old, now_ms).and_then(|()| {
            self.append(lines)?;
            self.file.as_ref().map_or(Ok(()), File::sync_data)
        });
        if let Err(error) = added {
            // The next writer would cut off the torn line; better to cut it off now.
            if let Some(file) = &self.file {
                let _ = file.set_len(self.index.valid_bytes);
            }
            return Err(error::write_error(self.target, "writing a log entry", &error));
        }
        self.index.ingest(lines);
        Ok(())
    }

    /// Finishes the pending entry. If that cannot be written, the next writer derives the outcome from the data file.
    pub(super) fn finish(&mut self, end: EntryOutcome) {
        let Some(id) = self.index.pending else { return };
        let line = outcome_line(&id, end);
        match self.append(&line) {
            Ok(()) => self.index.ingest(&line),
            Err(_) => {
                let _ = self.file.as_ref().map(|file| file.set_len(self.index.valid_bytes));
            }
        }
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        file.seek(SeekFrom::Start(self.index.valid_bytes))?;
        file.write_all(lines)
    }

    /// Creates the log if there is none. Rewrites it if it is too large or too old.
    fn compact_if_needed(&mut self, old: &FileState, now_ms: u64) -> io::Result<()> {
        let index = &self.index;
        let is_old = index.oldest_ms.is_some_and(|created_ms| {
            is_expired(created_ms.saturating_add(IDEMPOTENCY_RETENTION_MS), now_ms)
        });
        let is_full = index.entries.len() > IDEMPOTENCY_RECORDS_MAX + IDEMPOTENCY_RECORDS_MAX / 4
            || index.valid_bytes > BYTES_MAX;
        if self.file.is_some() && !index.header.is_empty() && !is_old && !is_full {
            return Ok(());
        }
        let mut content = MAGIC.to_vec();
        content.extend_from_slice(format!("{:016x}\n", random_u64()).as_bytes());
        for line in self.retained_lines(now_ms) {
            let line = self.read_range(line)?;
            let id = line.split(|byte| *byte == b' ').nth(2).and_then(parse_hex);
            content.extend_from_slice(&line);
            let entry_state = id.and_then(|id| Some((id, self.index.entries.get(&id)?.state)));
            match entry_state {
                Some((id, EntryState::Applied)) => {
                    content.extend_from_slice(&outcome_line(&id, EntryOutcome::Applied))
                }
                Some((id, EntryState::Unknown)) => {
                    content.extend_from_slice(&outcome_line(&id, EntryOutcome::Unknown))
                }
                Some((_, EntryState::Pending { .. })) | None => {}
            }
        }
        let temp_file = self.target.sidecar_path(&temp_name("idempotency"));
        let temp_file = TempFile::create(temp_file, old, |file| file.write_all(&content))?;
        temp_file.rename_to(&log_path(self.target))?;
        self.target.sync_folder()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        self.file = open_log(&log_path(self.target), options)?;
        *self.index = IdempotencyIndex::default();
        self.index.ingest(&content);
        Ok(())
    }

    /// The lines to keep when the log is rewritten, oldest first.
    fn retained_lines(&self, now_ms: u64) -> Vec<Range<u64>> {
        let entries = self.index.entries.values();
        let mut lines: Vec<Range<u64>> = entries
            .filter(|entry| !is_expired(entry.created_ms, now_ms))
            .map(|entry| entry.line.clone())
            .collect();
        lines.sort_unstable_by_key(|line| std::cmp::Reverse(line.start));
        let mut bytes = 0;
        let fits = |line: &Range<u64>| {
            bytes += line.end - line.start + LINE_BYTES_MAX;
            bytes <= BYTES_MAX / 2
        };
        let mut kept: Vec<Range<u64>> =
            lines.into_iter().take(IDEMPOTENCY_RECORDS_MAX).take_while(fits).collect();
        kept.reverse();
        kept
    }

    fn read_range(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let Some(mut file) = self.file.as_ref() else { return Err(io::ErrorKind::NotFound.into()) };
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = vec![0; usize::try_from(range.end - range.start).map_err(io::Error::other)?];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl IdempotencyIndex {
    /// Indexes further lines, up to the first invalid one.
    fn ingest(&mut self, new_bytes: &[u8]) {
        let mut lines =
            new_bytes.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
        for line in lines.by_ref() {
            let is_right = match self.header.is_empty() {
                true if line.starts_with(MAGIC) => {
                    self.header = line.to_vec();
                    true
                }
                true => false,
                false => self.ingest_line(line, self.valid_bytes),
            };
            if !is_right {
                break;
            }
            self.valid_bytes += line.len() as u64 + 1;
        }
        // A valid line after an invalid one: more than the end is torn. A log that does not start with our header is
        // not torn either: its first line is written together with the file.
        let is_other = self.header.is_empty() && new_bytes.contains(&b'\n');
        self.is_damaged |= is_other || lines.any(has_valid_checksum);
    }

    /// Whether a line is valid. Indexes it if so.
    fn ingest_line(&mut self, line: &[u8], from: u64) -> bool {
        if !has_valid_checksum(line) {
            return false;
        }
        let mut words = line[CHECKSUM_BYTES + 1..].splitn(7, |byte| *byte == b' ');
        let mut next = || words.next();
        let word = next();
        let Some(id) = next().and_then(parse_hex) else { return false };
        match word {
            Some(b"applied") => self.finish(id, EntryOutcome::Applied),
            Some(b"not_applied") => self.finish(id, EntryOutcome::NotApplied),
            Some(b"unknown") => self.finish(id, EntryOutcome::Unknown),
            Some(b"pending") => {
                let entry = (|| {
                    let request_digest = next().and_then(parse_hex)?;
                    let created_ms = std::str::from_utf8(next()?).ok()?.parse().ok()?;
                    let (before, after) = (next().and_then(parse_hex)?, next().and_then(parse_hex)?);
                    let response = next()?.len() as u64;
                    let end = from + line.len() as u64;
                    let entry_state = EntryState::Pending { before, after };
                    Some(IdempotencyEntry {
                        request_digest,
                        created_ms,
                        line: from..end + 1,
                        response: end - response..end,
                        state: entry_state,
                    })
                })();
                let Some(entry) = entry else { return false };
                self.oldest_ms = Some(
                    self.oldest_ms.map_or(entry.created_ms, |created_ms| created_ms.min(entry.created_ms)),
                );
                self.entries.insert(id, entry);
                self.pending = Some(id);
            }
            _ => return false,
        }
        true
    }

    fn finish(&mut self, id: Digest, end: EntryOutcome) {
        if self.pending == Some(id) {
            self.pending = None;
        }
        match (end, self.entries.get_mut(&id)) {
            (EntryOutcome::NotApplied, _) => {
                self.entries.remove(&id);
            }
            (EntryOutcome::Applied, Some(entry)) => entry.state = EntryState::Applied,
            (EntryOutcome::Unknown, Some(entry)) => entry.state = EntryState::Unknown,
            (EntryOutcome::Applied | EntryOutcome::Unknown, None) => {}
        }
    }
}

fn log_path(target: &TargetFile) -> PathBuf {
    target.sidecar_path("idempotency")
}

fn open_log(path: &PathBuf, mut options: OpenOptions) -> io::Result<Option<File>> {
    no_follow(&mut options);
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_expired(created_ms: u64, now_ms: u64) -> bool {
    created_ms.saturating_add(IDEMPOTENCY_RETENTION_MS) < now_ms
}

pub(super) fn pending_line(
    key: IdempotencyKey,
    before: Digest,
    after: Digest,
    response: &[u8],
    now_ms: u64,
) -> Vec<u8> {
    let [id, request_digest, before, after] =
        [key.key_digest, key.request_digest, before, after].map(|digest| hex(&digest));
    let mut rest = format!("pending {id} {request_digest} {now_ms} {before} {after} ").into_bytes();
    rest.extend_from_slice(&escape(response));
    with_checksum(&rest)
}

pub(super) fn outcome_line(id: &Digest, end: EntryOutcome) -> Vec<u8> {
    let word = match end {
        EntryOutcome::Applied => "applied",
        EntryOutcome::NotApplied => "not_applied",
        EntryOutcome::Unknown => "unknown",
    };
    with_checksum(format!("{word} {}", hex(id)).as_bytes())
}

fn with_checksum(rest: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(rest.len() + 18);
    line.extend_from_slice(&checksum(rest));
    line.push(b' ');
    line.extend_from_slice(rest);
    line.push(b'\n');
    line
}

fn has_valid_checksum(line: &[u8]) -> bool {
    let parts = line
        .split_at_checked(CHECKSUM_BYTES)
        .and_then(|(check, rest)| Some((check, rest.strip_prefix(b" ")?)));
    parts.is_some_and(|(check, rest)| check == checksum(rest))
}

fn checksum(rest: &[u8]) -> Vec<u8> {
    hex(&sha256(rest)[..CHECKSUM_BYTES / 2]).into_bytes()
}

fn sha256(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// A response must not contain a line end.
fn escape(response: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(response.len() + response.len() / 8);
    for byte in response {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(*byte),
        }
    }
    out
}

fn unescape(response: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(response.len());
    let mut bytes = response.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next().map(|byte| if *byte == b'n' { b'\n' } else { *byte })),
            byte => out.push(*byte),
        }
    }
    out
}
