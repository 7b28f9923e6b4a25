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

use contract::source::{CLAIM_AGE_MS, CLAIMS_MAX, Claim, SourceFault};
use ring::digest::{SHA256, digest};

use super::beside::{Beside, chance, name_for};
use super::target::{State, Target, no_links};
use super::{Edited, TOLD_BYTES_MAX, fault};

/// A file with more is made anew, with the newer half of it.
const BYTES_MAX: u64 = 64 << 20;
/// So much more there can be before that happens: one claim, escaped.
const SLACK_BYTES_MAX: u64 = 2 * TOLD_BYTES_MAX as u64 + LINE_BYTES_MAX;
/// All of a line but what is told.
const LINE_BYTES_MAX: u64 = 1024;
/// In front of a line.
const CHECK_BYTES: usize = 16;
const MAGIC: &[u8] = b"spile-claims 1 ";

type Digest = [u8; 32];

/// What was read so far. Holds no more than where things are.
#[derive(Default)]
pub(super) struct Known {
    /// Another first line is another file.
    header: Vec<u8>,
    /// Up to where lines are whole and right.
    bytes: u64,
    entries: HashMap<Digest, Entry>,
    /// The claim that was begun and has no end.
    open: Option<Digest>,
    oldest_ms: Option<u64>,
    is_damaged: bool,
}

struct Entry {
    asked: Digest,
    at_ms: u64,
    line: Range<u64>,
    told: Range<u64>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun { before: Digest, after: Digest },
    Done,
    Unknowable,
}

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Undone,
    Unknowable,
}

/// What is known of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Done(Vec<u8>),
    Otherwise,
    Unknowable,
}

pub(super) struct Claims<'a> {
    target: &'a Target,
    known: &'a mut Known,
    file: Option<File>,
}

impl<'a> Claims<'a> {
    /// Under the lock: what was torn is cut off.
    pub(super) fn open(target: &'a Target, known: &'a mut Known) -> Result<Self, SourceFault> {
        let failed = |error: io::Error| fault::unwritten(target, "reading its claims", &error);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let mut claims = Self { file: open(&path(target), options).map_err(failed)?, target, known };
        let length = claims.read().map_err(failed)?;
        if let Some(file) = &claims.file
            && length > claims.known.bytes
            && !claims.known.is_damaged
        {
            file.set_len(claims.known.bytes).map_err(failed)?;
        }
        Ok(claims)
    }

    /// Without the lock, and without a trace.
    pub(super) fn look(target: &'a Target, known: &'a mut Known, bytes: &[u8]) -> Result<Self, SourceFault> {
        let failed = |error: io::Error| fault::unwritten(target, "reading its claims", &error);
        let mut options = OpenOptions::new();
        options.read(true);
        let mut claims = Self { file: open(&path(target), options).map_err(failed)?, target, known };
        claims.read().map_err(failed)?;
        if let Some((id, end)) = claims.outcome(bytes) {
            claims.known.end(id, end);
        }
        Ok(claims)
    }

    /// Reads what is new, and returns how long the file is.
    fn read(&mut self) -> io::Result<u64> {
        let Some(file) = &mut self.file else {
            *self.known = Known::default();
            return Ok(0);
        };
        let length = file.metadata()?.len();
        let mut header = vec![0; self.known.header.len()];
        let is_known = length >= self.known.bytes
            && !header.is_empty()
            && file.read_exact(&mut header).is_ok()
            && header == self.known.header;
        if !is_known {
            *self.known = Known::default();
        }
        if length > BYTES_MAX + SLACK_BYTES_MAX {
            // Not of our making.
            self.known.is_damaged = true;
            return Ok(length);
        }
        file.seek(SeekFrom::Start(self.known.bytes))?;
        let mut news = Vec::new();
        file.take(length - self.known.bytes).read_to_end(&mut news)?;
        self.known.take_in(&news);
        Ok(length)
    }

    /// Ends the claim that has no end, by what the file holds.
    pub(super) fn settle(&mut self, bytes: &[u8]) -> Result<(), SourceFault> {
        let Some((id, end)) = self.outcome(bytes) else { return Ok(()) };
        let line = end_line(&id, end);
        self.append(&line).map_err(|error| fault::unwritten(self.target, "ending a claim", &error))?;
        self.known.take_in(&line);
        Ok(())
    }

    fn outcome(&self, bytes: &[u8]) -> Option<(Digest, End)> {
        let id = self.known.open.filter(|_| !self.known.is_damaged)?;
        let Stage::Begun { before, after } = self.known.entries.get(&id)?.stage else { return None };
        let now = sum(bytes);
        Some(match () {
            () if now == after => (id, End::Done),
            () if now == before => (id, End::Undone),
            () => (id, End::Unknowable),
        })
    }

    pub(super) fn find(&mut self, claim: Claim, now_ms: u64) -> Result<Found, SourceFault> {
        if self.known.is_damaged {
            let file = self.target.file();
            let told = format!(
                "what was done under which idempotency key is damaged for `{file}`; write without one, or let \
                 the owner remove the claims beside the file"
            );
            return Err(SourceFault::Changed {
                told,
                log: format!("{}: damaged", path(self.target).display()),
            });
        }
        let Some(entry) = self.known.entries.get(&claim.id) else { return Ok(Found::Nothing) };
        if is_old(entry.at_ms, now_ms) {
            return Ok(Found::Nothing);
        }
        if entry.asked != claim.asked {
            return Ok(Found::Otherwise);
        }
        match entry.stage {
            Stage::Begun { .. } | Stage::Unknowable => Ok(Found::Unknowable),
            Stage::Done => {
                let told = self.slice(entry.told.clone());
                let told = told.map_err(|error| fault::unwritten(self.target, "reading a claim", &error))?;
                Ok(Found::Done(unescape(&told)))
            }
        }
    }

    /// Durable when this returns, as is that the file of claims is there.
    pub(super) fn begin(
        &mut self,
        claim: Claim,
        before: &State,
        edited: &Edited,
        now_ms: u64,
    ) -> Result<(), SourceFault> {
        let line = begun_line(claim, sum(&before.bytes), sum(&edited.bytes), &edited.told, now_ms);
        self.add(before, &line, now_ms)
    }

    /// For a change that leaves the file as it is.
    pub(super) fn record(
        &mut self,
        claim: Claim,
        before: &State,
        edited: &Edited,
        now_ms: u64,
    ) -> Result<(), SourceFault> {
        let same = sum(&before.bytes);
        let mut lines = begun_line(claim, same, same, &edited.told, now_ms);
        lines.extend_from_slice(&end_line(&claim.id, End::Done));
        self.add(before, &lines, now_ms)
    }

    fn add(&mut self, like: &State, lines: &[u8], now_ms: u64) -> Result<(), SourceFault> {
        let added = self.make_room(like, now_ms).and_then(|()| {
            self.append(lines)?;
            self.file.as_ref().map_or(Ok(()), File::sync_data)
        });
        if let Err(error) = added {
            // Half a line would be cut off by the next one to write; it is as well gone now.
            if let Some(file) = &self.file {
                let _ = file.set_len(self.known.bytes);
            }
            return Err(fault::unwritten(self.target, "writing down a claim", &error));
        }
        self.known.take_in(lines);
        Ok(())
    }

    /// Ends the claim that was begun. If this cannot be written down, the file itself tells it later.
    pub(super) fn end(&mut self, end: End) {
        let Some(id) = self.known.open else { return };
        let line = end_line(&id, end);
        match self.append(&line) {
            Ok(()) => self.known.take_in(&line),
            Err(_) => {
                let _ = self.file.as_ref().map(|file| file.set_len(self.known.bytes));
            }
        }
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        file.seek(SeekFrom::Start(self.known.bytes))?;
        file.write_all(lines)
    }

    /// Makes the file if there is none, and anew if there is too much or too old in it.
    fn make_room(&mut self, like: &State, now_ms: u64) -> io::Result<()> {
        let known = &self.known;
        let is_old = known.oldest_ms.is_some_and(|at_ms| is_old(at_ms.saturating_add(CLAIM_AGE_MS), now_ms));
        let is_full = known.entries.len() > CLAIMS_MAX + CLAIMS_MAX / 4 || known.bytes > BYTES_MAX;
        if self.file.is_some() && !known.header.is_empty() && !is_old && !is_full {
            return Ok(());
        }
        let mut content = MAGIC.to_vec();
        content.extend_from_slice(format!("{:016x}\n", chance()).as_bytes());
        for line in self.kept(now_ms) {
            let line = self.slice(line)?;
            let id = line.split(|byte| *byte == b' ').nth(2).and_then(hex);
            content.extend_from_slice(&line);
            let stage = id.and_then(|id| Some((id, self.known.entries.get(&id)?.stage)));
            match stage {
                Some((id, Stage::Done)) => content.extend_from_slice(&end_line(&id, End::Done)),
                Some((id, Stage::Unknowable)) => content.extend_from_slice(&end_line(&id, End::Unknowable)),
                Some((_, Stage::Begun { .. })) | None => {}
            }
        }
        let fresh = self.target.beside(&name_for("claims"));
        let fresh = Beside::fill(fresh, like, |file| file.write_all(&content))?;
        fresh.rename(&path(self.target))?;
        self.target.sync_folder()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        self.file = open(&path(self.target), options)?;
        *self.known = Known::default();
        self.known.take_in(&content);
        Ok(())
    }

    /// Which lines outlast the making anew, the oldest first.
    fn kept(&self, now_ms: u64) -> Vec<Range<u64>> {
        let entries = self.known.entries.values();
        let mut lines: Vec<Range<u64>> =
            entries.filter(|entry| !is_old(entry.at_ms, now_ms)).map(|entry| entry.line.clone()).collect();
        lines.sort_unstable_by_key(|line| std::cmp::Reverse(line.start));
        let mut bytes = 0;
        let fits = |line: &Range<u64>| {
            bytes += line.end - line.start + LINE_BYTES_MAX;
            bytes <= BYTES_MAX / 2
        };
        let mut kept: Vec<Range<u64>> = lines.into_iter().take(CLAIMS_MAX).take_while(fits).collect();
        kept.reverse();
        kept
    }

    fn slice(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let Some(mut file) = self.file.as_ref() else { return Err(io::ErrorKind::NotFound.into()) };
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = vec![0; usize::try_from(range.end - range.start).map_err(io::Error::other)?];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Known {
    /// Takes in what stands behind what is known, as far as it is whole and right.
    fn take_in(&mut self, news: &[u8]) {
        let mut lines =
            news.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
        for line in lines.by_ref() {
            let is_right = match self.header.is_empty() {
                true if line.starts_with(MAGIC) => {
                    self.header = line.to_vec();
                    true
                }
                true => false,
                false => self.line(line, self.bytes),
            };
            if !is_right {
                break;
            }
            self.bytes += line.len() as u64 + 1;
        }
        // Something right behind what is wrong: it is not only the end that was torn. Nor is a file torn that does
        // not begin as ours do: they are there with their first line or not at all.
        let is_other = self.header.is_empty() && news.contains(&b'\n');
        self.is_damaged |= is_other || lines.any(is_right);
    }

    /// Whether a line says something, which is then known.
    fn line(&mut self, line: &[u8], from: u64) -> bool {
        if !is_right(line) {
            return false;
        }
        let mut words = line[CHECK_BYTES + 1..].splitn(7, |byte| *byte == b' ');
        let mut next = || words.next();
        let word = next();
        let Some(id) = next().and_then(hex) else { return false };
        match word {
            Some(b"done") => self.end(id, End::Done),
            Some(b"undone") => self.end(id, End::Undone),
            Some(b"unknowable") => self.end(id, End::Unknowable),
            Some(b"begun") => {
                let entry = (|| {
                    let asked = next().and_then(hex)?;
                    let at_ms = std::str::from_utf8(next()?).ok()?.parse().ok()?;
                    let (before, after) = (next().and_then(hex)?, next().and_then(hex)?);
                    let told = next()?.len() as u64;
                    let end = from + line.len() as u64;
                    let stage = Stage::Begun { before, after };
                    Some(Entry { asked, at_ms, line: from..end + 1, told: end - told..end, stage })
                })();
                let Some(entry) = entry else { return false };
                self.oldest_ms = Some(self.oldest_ms.map_or(entry.at_ms, |at_ms| at_ms.min(entry.at_ms)));
                self.entries.insert(id, entry);
                self.open = Some(id);
            }
            _ => return false,
        }
        true
    }

    fn end(&mut self, id: Digest, end: End) {
        if self.open == Some(id) {
            self.open = None;
        }
        match (end, self.entries.get_mut(&id)) {
            (End::Undone, _) => {
                self.entries.remove(&id);
            }
            (End::Done, Some(entry)) => entry.stage = Stage::Done,
            (End::Unknowable, Some(entry)) => entry.stage = Stage::Unknowable,
            (End::Done | End::Unknowable, None) => {}
        }
    }
}

fn path(target: &Target) -> PathBuf {
    target.beside("claims")
}

fn open(path: &PathBuf, mut options: OpenOptions) -> io::Result<Option<File>> {
    no_links(&mut options);
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_old(at_ms: u64, now_ms: u64) -> bool {
    at_ms.saturating_add(CLAIM_AGE_MS) < now_ms
}

pub(super) fn begun_line(claim: Claim, before: Digest, after: Digest, told: &[u8], now_ms: u64) -> Vec<u8> {
    let [id, asked, before, after] = [claim.id, claim.asked, before, after].map(|digest| to_hex(&digest));
    let mut rest = format!("begun {id} {asked} {now_ms} {before} {after} ").into_bytes();
    rest.extend_from_slice(&escape(told));
    checked(&rest)
}

pub(super) fn end_line(id: &Digest, end: End) -> Vec<u8> {
    let word = match end {
        End::Done => "done",
        End::Undone => "undone",
        End::Unknowable => "unknowable",
    };
    checked(format!("{word} {}", to_hex(id)).as_bytes())
}

fn checked(rest: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(rest.len() + 18);
    line.extend_from_slice(&check_of(rest));
    line.push(b' ');
    line.extend_from_slice(rest);
    line.push(b'\n');
    line
}

fn is_right(line: &[u8]) -> bool {
    let parts =
        line.split_at_checked(CHECK_BYTES).and_then(|(check, rest)| Some((check, rest.strip_prefix(b" ")?)));
    parts.is_some_and(|(check, rest)| check == check_of(rest))
}

fn check_of(rest: &[u8]) -> Vec<u8> {
    to_hex(&sum(rest)[..CHECK_BYTES / 2]).into_bytes()
}

fn sum(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn hex(text: &[u8]) -> Option<Digest> {
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
