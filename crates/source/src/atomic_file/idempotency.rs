//! What was done under which claim: a file of lines beside the data, written behind its end and never within.
//!
//! A claim is begun, durably, before the data file is replaced, with what the file holds before and after; and
//! ended afterwards. Of a process that was killed in between there is a claim without an end: the next one to hold
//! the lock looks at the file. It holds what it would after: done. What it did before: not done. Anything else:
//! somebody else was there, and nobody can tell any more.
//!
//! ```text
//! spile-claims 1 5a0c44cf5e1f7a02
//! 8be1b6f1c0a7d0e4 begun <id> <asked> <ms> <before> <after> <told>
//! 1e2a09b3cc51f6aa done <id>
//! ```
//!
//! Each line begins with the check of its rest. What was being written when the power went is at the end and is cut
//! off; a line that is wrong elsewhere is told, and then no claim is trusted.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;

use contract::source::{IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, SourceError};
use ring::digest::{SHA256, digest};

use super::target::{FileState, TargetFile, no_follow};
use super::temp_file::{TempFile, random_u64, temp_name};
use super::{EditResult, RESPONSE_BYTES_MAX, error};

/// A file with more is made anew, with the newer half of it.
const BYTES_MAX: u64 = 64 << 20;
/// So much more there can be before that happens: one claim, escaped.
const OVERRUN_BYTES_MAX: u64 = 2 * RESPONSE_BYTES_MAX as u64 + LINE_BYTES_MAX;
/// All of a line but what is told.
const LINE_BYTES_MAX: u64 = 1024;
/// In front of a line.
const CHECKSUM_BYTES: usize = 16;
const MAGIC: &[u8] = b"spile-claims 1 ";

type Digest = [u8; 32];

/// What was read so far. Holds no more than where things are.
#[derive(Default)]
pub(super) struct IdempotencyIndex {
    /// Another first line is another file.
    header: Vec<u8>,
    /// Up to where lines are whole and right.
    valid_bytes: u64,
    entries: HashMap<Digest, IdempotencyEntry>,
    /// The claim that was begun and has no end.
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

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryOutcome {
    Applied,
    NotApplied,
    Unknown,
}

/// What is known of a claim.
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
    /// Under the lock: what was torn is cut off.
    pub(super) fn open(target: &'a TargetFile, known: &'a mut IdempotencyIndex) -> Result<Self, SourceError> {
        let failed = |error: io::Error| error::write_error(target, "reading its claims", &error);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let mut claims =
            Self { file: open_log(&log_path(target), options).map_err(failed)?, target, index: known };
        let length = claims.read_new_lines().map_err(failed)?;
        if let Some(file) = &claims.file
            && length > claims.index.valid_bytes
            && !claims.index.is_damaged
        {
            file.set_len(claims.index.valid_bytes).map_err(failed)?;
        }
        Ok(claims)
    }

    /// Without the lock, and without a trace.
    pub(super) fn open_read_only(
        target: &'a TargetFile,
        known: &'a mut IdempotencyIndex,
        bytes: &[u8],
    ) -> Result<Self, SourceError> {
        let failed = |error: io::Error| error::write_error(target, "reading its claims", &error);
        let mut options = OpenOptions::new();
        options.read(true);
        let mut claims =
            Self { file: open_log(&log_path(target), options).map_err(failed)?, target, index: known };
        claims.read_new_lines().map_err(failed)?;
        if let Some((id, end)) = claims.pending_outcome(bytes) {
            claims.index.finish(id, end);
        }
        Ok(claims)
    }

    /// Reads what is new, and returns how long the file is.
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
            // Not of our making.
            self.index.is_damaged = true;
            return Ok(length);
        }
        file.seek(SeekFrom::Start(self.index.valid_bytes))?;
        let mut news = Vec::new();
        file.take(length - self.index.valid_bytes).read_to_end(&mut news)?;
        self.index.ingest(&news);
        Ok(length)
    }

    /// Ends the claim that has no end, by what the file holds.
    pub(super) fn resolve_pending(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        let Some((id, end)) = self.pending_outcome(bytes) else { return Ok(()) };
        let line = outcome_line(&id, end);
        self.append(&line).map_err(|error| error::write_error(self.target, "ending a claim", &error))?;
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
        claim: IdempotencyKey,
        now_ms: u64,
    ) -> Result<IdempotencyLookup, SourceError> {
        if self.index.is_damaged {
            let file = self.target.file_name();
            let told = format!(
                "what was done under which idempotency key is damaged for `{file}`; write without one, or let \
                 the owner remove the claims beside the file"
            );
            return Err(SourceError::Incompatible {
                message: told,
                detail: format!("{}: damaged", log_path(self.target).display()),
            });
        }
        let Some(entry) = self.index.entries.get(&claim.key_digest) else {
            return Ok(IdempotencyLookup::NotFound);
        };
        if is_expired(entry.created_ms, now_ms) {
            return Ok(IdempotencyLookup::NotFound);
        }
        if entry.request_digest != claim.request_digest {
            return Ok(IdempotencyLookup::KeyReused);
        }
        match entry.state {
            EntryState::Pending { .. } | EntryState::Unknown => Ok(IdempotencyLookup::Unknown),
            EntryState::Applied => {
                let told = self.read_range(entry.response.clone());
                let told =
                    told.map_err(|error| error::write_error(self.target, "reading a claim", &error))?;
                Ok(IdempotencyLookup::Applied(unescape(&told)))
            }
        }
    }

    /// Durable when this returns, as is that the file of claims is there.
    pub(super) fn begin(
        &mut self,
        claim: IdempotencyKey,
        before: &FileState,
        edited: &EditResult,
        now_ms: u64,
    ) -> Result<(), SourceError> {
        let line =
            pending_line(claim, sha256(&before.bytes), sha256(&edited.bytes), &edited.response, now_ms);
        self.append_durably(before, &line, now_ms)
    }

    /// For a change that leaves the file as it is.
    pub(super) fn record_unchanged(
        &mut self,
        claim: IdempotencyKey,
        before: &FileState,
        edited: &EditResult,
        now_ms: u64,
    ) -> Result<(), SourceError> {
        let same = sha256(&before.bytes);
        let mut lines = pending_line(claim, same, same, &edited.response, now_ms);
        lines.extend_from_slice(&outcome_line(&claim.key_digest, EntryOutcome::Applied));
        self.append_durably(before, &lines, now_ms)
    }

    fn append_durably(&mut self, like: &FileState, lines: &[u8], now_ms: u64) -> Result<(), SourceError> {
        let added = self.compact_if_needed(like, now_ms).and_then(|()| {
            self.append(lines)?;
            self.file.as_ref().map_or(Ok(()), File::sync_data)
        });
        if let Err(error) = added {
            // Half a line would be cut off by the next one to write; it is as well gone now.
            if let Some(file) = &self.file {
                let _ = file.set_len(self.index.valid_bytes);
            }
            return Err(error::write_error(self.target, "writing down a claim", &error));
        }
        self.index.ingest(lines);
        Ok(())
    }

    /// Ends the claim that was begun. If this cannot be written down, the file itself tells it later.
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

    /// Makes the file if there is none, and anew if there is too much or too old in it.
    fn compact_if_needed(&mut self, like: &FileState, now_ms: u64) -> io::Result<()> {
        let known = &self.index;
        let is_old = known
            .oldest_ms
            .is_some_and(|at_ms| is_expired(at_ms.saturating_add(IDEMPOTENCY_RETENTION_MS), now_ms));
        let is_full = known.entries.len() > IDEMPOTENCY_RECORDS_MAX + IDEMPOTENCY_RECORDS_MAX / 4
            || known.valid_bytes > BYTES_MAX;
        if self.file.is_some() && !known.header.is_empty() && !is_old && !is_full {
            return Ok(());
        }
        let mut content = MAGIC.to_vec();
        content.extend_from_slice(format!("{:016x}\n", random_u64()).as_bytes());
        for line in self.retained_lines(now_ms) {
            let line = self.read_range(line)?;
            let id = line.split(|byte| *byte == b' ').nth(2).and_then(parse_hex);
            content.extend_from_slice(&line);
            let stage = id.and_then(|id| Some((id, self.index.entries.get(&id)?.state)));
            match stage {
                Some((id, EntryState::Applied)) => {
                    content.extend_from_slice(&outcome_line(&id, EntryOutcome::Applied))
                }
                Some((id, EntryState::Unknown)) => {
                    content.extend_from_slice(&outcome_line(&id, EntryOutcome::Unknown))
                }
                Some((_, EntryState::Pending { .. })) | None => {}
            }
        }
        let fresh = self.target.sidecar_path(&temp_name("claims"));
        let fresh = TempFile::create(fresh, like, |file| file.write_all(&content))?;
        fresh.rename_to(&log_path(self.target))?;
        self.target.sync_folder()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        self.file = open_log(&log_path(self.target), options)?;
        *self.index = IdempotencyIndex::default();
        self.index.ingest(&content);
        Ok(())
    }

    /// Which lines outlast the making anew, the oldest first.
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
    /// Takes in what stands behind what is known, as far as it is whole and right.
    fn ingest(&mut self, news: &[u8]) {
        let mut lines =
            news.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
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
        // Something right behind what is wrong: it is not only the end that was torn. Nor is a file torn that does
        // not begin as ours do: they are there with their first line or not at all.
        let is_other = self.header.is_empty() && news.contains(&b'\n');
        self.is_damaged |= is_other || lines.any(has_valid_checksum);
    }

    /// Whether a line says something, which is then known.
    fn ingest_line(&mut self, line: &[u8], from: u64) -> bool {
        if !has_valid_checksum(line) {
            return false;
        }
        let mut words = line[CHECKSUM_BYTES + 1..].splitn(7, |byte| *byte == b' ');
        let mut next = || words.next();
        let word = next();
        let Some(id) = next().and_then(parse_hex) else { return false };
        match word {
            Some(b"done") => self.finish(id, EntryOutcome::Applied),
            Some(b"undone") => self.finish(id, EntryOutcome::NotApplied),
            Some(b"unknowable") => self.finish(id, EntryOutcome::Unknown),
            Some(b"begun") => {
                let entry = (|| {
                    let asked = next().and_then(parse_hex)?;
                    let at_ms = std::str::from_utf8(next()?).ok()?.parse().ok()?;
                    let (before, after) = (next().and_then(parse_hex)?, next().and_then(parse_hex)?);
                    let told = next()?.len() as u64;
                    let end = from + line.len() as u64;
                    let stage = EntryState::Pending { before, after };
                    Some(IdempotencyEntry {
                        request_digest: asked,
                        created_ms: at_ms,
                        line: from..end + 1,
                        response: end - told..end,
                        state: stage,
                    })
                })();
                let Some(entry) = entry else { return false };
                self.oldest_ms =
                    Some(self.oldest_ms.map_or(entry.created_ms, |at_ms| at_ms.min(entry.created_ms)));
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
    target.sidecar_path("claims")
}

fn open_log(path: &PathBuf, mut options: OpenOptions) -> io::Result<Option<File>> {
    no_follow(&mut options);
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_expired(at_ms: u64, now_ms: u64) -> bool {
    at_ms.saturating_add(IDEMPOTENCY_RETENTION_MS) < now_ms
}

pub(super) fn pending_line(
    claim: IdempotencyKey,
    before: Digest,
    after: Digest,
    told: &[u8],
    now_ms: u64,
) -> Vec<u8> {
    let [id, asked, before, after] =
        [claim.key_digest, claim.request_digest, before, after].map(|digest| to_hex(&digest));
    let mut rest = format!("begun {id} {asked} {now_ms} {before} {after} ").into_bytes();
    rest.extend_from_slice(&escape(told));
    with_checksum(&rest)
}

pub(super) fn outcome_line(id: &Digest, end: EntryOutcome) -> Vec<u8> {
    let word = match end {
        EntryOutcome::Applied => "done",
        EntryOutcome::NotApplied => "undone",
        EntryOutcome::Unknown => "unknowable",
    };
    with_checksum(format!("{word} {}", to_hex(id)).as_bytes())
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
    to_hex(&sha256(rest)[..CHECKSUM_BYTES / 2]).into_bytes()
}

fn sha256(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn parse_hex(text: &[u8]) -> Option<Digest> {
    let pairs: &[u8; 64] = text.try_into().ok()?;
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut out = Digest::default();
    for (byte, pair) in out.iter_mut().zip(pairs.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// A line has no other end than its own.
fn escape(told: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(told.len() + told.len() / 8);
    for byte in told {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(*byte),
        }
    }
    out
}

fn unescape(told: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(told.len());
    let mut bytes = told.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next().map(|byte| if *byte == b'n' { b'\n' } else { *byte })),
            byte => out.push(*byte),
        }
    }
    out
}
