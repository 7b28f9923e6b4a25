//! The container of a workbook: a ZIP archive, read strictly. Can replace one part and leave all others as they are.
//!
//! Refuses what two readers could read differently: two parts with one name, parts that share bytes, a local header
//! whose name differs from the directory's. Compares names, and never uses them as paths.
//!
//! Not a library: libraries write headers of their own, but a write here has to preserve every byte of every other
//! part, data descriptors and extra fields included.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::ops::Range;

use flate2::Crc;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::budget::{
    Budget, COMPRESSION_RATIO_MAX, ENTRIES_MAX, PART_BYTES_MAX, RATIO_EXEMPT_BYTES_MAX, error_with_help,
    invalid_file_error, too_large_error,
};
use crate::tables::ParseError;

pub(super) struct ZipArchive<'a> {
    bytes: &'a [u8],
    /// In the order of the directory.
    entries: Vec<ZipEntry>,
    directory: Range<usize>,
    /// The comment of the end record, at the end of the file.
    comment: Range<usize>,
}

struct ZipEntry {
    /// In lower case: part names are case-insensitive.
    name: String,
    method: u16,
    crc: u32,
    size: u64,
    data: Range<usize>,
    /// From the local header to the next one, with whatever is between them.
    local_span: Range<usize>,
    /// In the directory.
    directory_span: Range<usize>,
}

const END_RECORD: [u8; 4] = *b"PK\x05\x06";
const END_RECORD_BYTES: usize = 22;
const ZIP64_LOCATOR: [u8; 4] = *b"PK\x06\x07";
const ZIP64_LOCATOR_BYTES: usize = 20;
const ZIP64_END_RECORD: [u8; 4] = *b"PK\x06\x06";
const ZIP64_END_RECORD_BYTES: usize = 56;
const CENTRAL_HEADER: [u8; 4] = *b"PK\x01\x02";
const CENTRAL_HEADER_BYTES: usize = 46;
const LOCAL_HEADER: [u8; 4] = *b"PK\x03\x04";
const LOCAL_HEADER_BYTES: usize = 30;
/// The extra field with 64-bit sizes and offsets.
const ZIP64_EXTRA_FIELD: u16 = 1;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const ENCRYPTED: u16 = 1;
/// Checksum and sizes follow the data.
const HAS_DATA_DESCRIPTOR: u16 = 1 << 3;

impl<'a> ZipArchive<'a> {
    pub(super) fn open(bytes: &'a [u8], budget: &mut Budget) -> Result<Self, ParseError> {
        let end = end_record(bytes)
            .ok_or_else(|| invalid_file_error("the file is not a workbook, or is incomplete"))?;
        let damaged = || invalid_file_error("the file's directory is damaged");
        let (count, directory) = central_directory(bytes, end).ok_or_else(damaged)?;
        if count > ENTRIES_MAX {
            return Err(too_large_error(format!("the file has more than {ENTRIES_MAX} parts")));
        }
        let mut entries = Vec::with_capacity(count);
        let mut names = HashSet::new();
        let mut at = directory.start;
        for _ in 0..count {
            budget.step()?;
            let entry = ZipEntry::read(bytes, at, directory.end, directory.start).ok_or_else(damaged)??;
            if !names.insert(entry.name.clone()) {
                return Err(invalid_file_error("two parts of the file have the same name"));
            }
            at = entry.directory_span.end;
            entries.push(entry);
        }
        if at != directory.end {
            return Err(damaged());
        }
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by_key(|at| entries[*at].local_span.start);
        for (offset_position, at) in order.iter().enumerate() {
            let next = order
                .get(offset_position + 1)
                .map_or(directory.start, |next| entries[*next].local_span.start);
            if entries[*at].data.end > next {
                return Err(invalid_file_error("parts of the file share the same bytes"));
            }
            entries[*at].local_span.end = next;
        }
        Ok(Self { bytes, entries, directory, comment: end + END_RECORD_BYTES..bytes.len() })
    }

    /// The position of a part by its name, ignoring case.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let name = name.trim_start_matches('/').to_lowercase();
        self.entries.iter().position(|entry| entry.name == name)
    }

    pub(super) fn has_part_under(&self, folder: &str) -> bool {
        self.entries.iter().any(|entry| entry.name.starts_with(folder))
    }

    /// Inflates a part.
    pub(super) fn read(&self, at: usize, budget: &mut Budget) -> Result<Vec<u8>, ParseError> {
        let entry = &self.entries[at];
        let packed = &self.bytes[entry.data.clone()];
        let fits = entry.size <= PART_BYTES_MAX;
        let ratio = entry.size / (packed.len() as u64).max(1);
        if !fits || (entry.size > RATIO_EXEMPT_BYTES_MAX && ratio > COMPRESSION_RATIO_MAX) {
            return Err(too_large_error("a part of the file unpacks to an implausible size"));
        }
        budget.charge_part(entry.size)?;
        let mut out = Vec::new();
        match entry.method {
            STORED => {
                budget.charge_inflated(packed.len() as u64)?;
                out.extend_from_slice(packed);
            }
            DEFLATED => inflate(packed, entry.size, &mut out, budget)?,
            _ => {
                return Err(invalid_file_error("a part of the file uses an unsupported compression method"));
            }
        }
        let mut crc = Crc::new();
        crc.update(&out);
        if out.len() as u64 != entry.size || crc.sum() != entry.crc {
            return Err(invalid_file_error("a part of the file is damaged"));
        }
        Ok(out)
    }

    /// The whole file with one part replaced. Everything else keeps its bytes and its order.
    pub(super) fn replace_part(&self, part: usize, content: &[u8]) -> Vec<u8> {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by_key(|at| self.entries[*at].local_span.start);
        let before =
            order.first().map_or(self.directory.start, |first| self.entries[*first].local_span.start);
        let mut out = Vec::with_capacity(self.bytes.len() + content.len() / 4);
        out.extend_from_slice(&self.bytes[..before]);
        let packed = CompressedPart::new(content);
        let mut offsets = vec![0_u32; self.entries.len()];
        for at in order {
            let entry = &self.entries[at];
            offsets[at] = offset_u32(&out);
            if at == part {
                let local = &self.bytes[entry.local_span.start..entry.data.start];
                packed.write_header(&mut out, local, LOCAL_HEADER_BYTES, 4);
                out.extend_from_slice(&packed.data);
            } else {
                out.extend_from_slice(&self.bytes[entry.local_span.clone()]);
            }
        }
        let start = out.len();
        for (at, entry) in self.entries.iter().enumerate() {
            let head = &self.bytes[entry.directory_span.clone()];
            let from = out.len();
            if at == part {
                packed.write_header(&mut out, head, CENTRAL_HEADER_BYTES, 6);
            } else {
                out.extend_from_slice(head);
            }
            set_offset(&mut out[from..], offsets[at]);
        }
        let size = (out.len() - start) as u32;
        let count = self.entries.len() as u16;
        out.extend_from_slice(&END_RECORD);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&(start as u32).to_le_bytes());
        out.extend_from_slice(&(self.comment.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.bytes[self.comment.clone()]);
        out
    }
}

/// The limits on a package keep it far below 4 GiB.
fn offset_u32(out: &[u8]) -> u32 {
    u32::try_from(out.len()).expect("a workbook that is read is shorter than 4 GiB")
}

impl ZipEntry {
    /// `None` if bytes are missing or contradict each other.
    fn read(bytes: &[u8], at: usize, end: usize, data_end: usize) -> Option<Result<Self, ParseError>> {
        let head = bytes.get(at..at.checked_add(CENTRAL_HEADER_BYTES)?)?;
        if head[..4] != CENTRAL_HEADER {
            return None;
        }
        let flags = u16_at(head, 8)?;
        let [name_len, extra_len, comment_len] = [28, 30, 32].map(|at| u16_at(head, at).map(usize::from));
        let name_at = at + CENTRAL_HEADER_BYTES;
        let extra_at = name_at.checked_add(name_len?)?;
        let comment_at = extra_at.checked_add(extra_len?)?;
        let head_end = comment_at.checked_add(comment_len?)?;
        if head_end > end {
            return None;
        }
        let name_bytes = &bytes[name_at..extra_at];
        let [mut packed, mut size, mut offset] = [20, 24, 42].map(|at| u32_at(head, at).map(u64::from));
        let mut wide = extra_field(&bytes[extra_at..comment_at], ZIP64_EXTRA_FIELD).unwrap_or_default();
        for number in [&mut size, &mut packed, &mut offset] {
            if *number == Some(u64::from(u32::MAX)) {
                *number = Some(u64_at(wide, 0)?);
                wide = &wide[8..];
            }
        }
        let (packed, size) = (usize::try_from(packed?).ok()?, size?);
        let local_at = usize::try_from(offset?).ok()?;
        let local = bytes.get(local_at..local_at.checked_add(LOCAL_HEADER_BYTES)?)?;
        let local_name_at = local_at + LOCAL_HEADER_BYTES;
        let local_extra_at = local_name_at.checked_add(u16_at(local, 26)?.into())?;
        let data_at = local_extra_at.checked_add(u16_at(local, 28)?.into())?;
        let data = data_at..data_at.checked_add(packed)?;
        let method = u16_at(head, 10)?;
        let agree = local[..4] == LOCAL_HEADER
            && bytes.get(local_name_at..local_extra_at)? == name_bytes
            && u16_at(local, 8)? == method;
        if !agree || data.end > data_end {
            return None;
        }
        if (flags | u16_at(local, 6)?) & ENCRYPTED != 0 {
            return Some(Err(password_error()));
        }
        // Part names are ASCII; a part with another name is never read.
        // Some programs write back slashes.
        let name = String::from_utf8_lossy(name_bytes).to_lowercase().replace('\\', "/");
        let (crc, slot) = (u32_at(head, 16)?, local_at..data.end);
        Some(Ok(Self { name, method, crc, size, data, local_span: slot, directory_span: at..head_end }))
    }
}

pub(super) fn password_error() -> ParseError {
    error_with_help("the workbook is protected with a password", "save it without a password")
}

/// The offset of the end record. It ends the file, so its comment must be exactly as long as it says.
fn end_record(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(END_RECORD_BYTES)?;
    let first = last.saturating_sub(usize::from(u16::MAX));
    let is_end = |at: usize| {
        let comment_len = bytes[at..].starts_with(&END_RECORD).then(|| u16_at(bytes, at + 20)).flatten();
        comment_len.is_some_and(|len| at + END_RECORD_BYTES + usize::from(len) == bytes.len())
    };
    (first..=last).rev().find(|at| is_end(*at))
}

/// The number of entries, and the range of the directory.
fn central_directory(bytes: &[u8], end: usize) -> Option<(usize, Range<usize>)> {
    let record = &bytes[end..];
    let [disk, start_disk, here, count] = [4, 6, 8, 10].map(|at| u16_at(record, at));
    let [size, offset] = [12, 16].map(|at| u32_at(record, at).map(u64::from));
    let (mut here, mut count) = (u64::from(here?), u64::from(count?));
    let (mut size, mut offset) = (size?, offset?);
    let mut rest_after = end;
    let mut is_whole = disk? == 0 && start_disk? == 0;
    let is_wide =
        count == u64::from(u16::MAX) || size == u64::from(u32::MAX) || offset == u64::from(u32::MAX);
    let locator = end.checked_sub(ZIP64_LOCATOR_BYTES).map(|at| &bytes[at..end]);
    if let Some(locator) = locator.filter(|locator| is_wide && locator.starts_with(&ZIP64_LOCATOR)) {
        let at = usize::try_from(u64_at(locator, 8)?).ok()?;
        let record = bytes.get(at..at.checked_add(ZIP64_END_RECORD_BYTES)?)?;
        if !record.starts_with(&ZIP64_END_RECORD) || at >= end {
            return None;
        }
        (here, count) = (u64_at(record, 24)?, u64_at(record, 32)?);
        (size, offset) = (u64_at(record, 40)?, u64_at(record, 48)?);
        is_whole = u32_at(record, 16)? == 0 && u32_at(record, 20)? == 0;
        rest_after = at;
    }
    let start = usize::try_from(offset).ok()?;
    let directory = start..start.checked_add(usize::try_from(size).ok()?)?;
    // Each entry needs a header, so a count that is too high is noticed before anything is allocated for it.
    let fits = count.checked_mul(CENTRAL_HEADER_BYTES as u64)? <= size;
    let is_sound = is_whole && here == count && fits && directory.end <= rest_after;
    is_sound.then_some((usize::try_from(count).ok()?, directory))
}

fn inflate(packed: &[u8], size: u64, out: &mut Vec<u8>, budget: &mut Budget) -> Result<(), ParseError> {
    const CHUNK: usize = 256 << 10;
    let mut reader = DeflateDecoder::new(packed);
    // The caller has charged the memory for it.
    out.reserve_exact(usize::try_from(size).unwrap_or(0));
    let mut chunk = vec![0; CHUNK];
    loop {
        let count =
            reader.read(&mut chunk).map_err(|_| invalid_file_error("a part of the file is damaged"))?;
        if count == 0 {
            return Ok(());
        }
        budget.charge_inflated(count as u64)?;
        out.extend_from_slice(&chunk[..count]);
        if out.len() as u64 > size {
            return Err(invalid_file_error("a part of the file unpacks to more than it says"));
        }
    }
}

/// The new content of a part, compressed.
struct CompressedPart {
    data: Vec<u8>,
    crc: u32,
    size: u32,
}

impl CompressedPart {
    fn new(content: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(content);
        let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        let data = encoder.write_all(content).and_then(|()| encoder.finish());
        let data = data.expect("writing to memory does not fail");
        let size = u32::try_from(content.len()).expect("parts are bounded");
        Self { data, crc: crc.sum(), size }
    }

    /// Copies a header, except for what describes the content. `version_at` is the offset of "version needed to
    /// extract"; flags, method, time, checksum and sizes follow it in both kinds of headers.
    fn write_header(&self, out: &mut Vec<u8>, header: &[u8], fixed: usize, version_at: usize) {
        let lens_at = version_at + 22;
        let name_len = usize::from(u16_at(header, lens_at).expect("was read before"));
        let extra_len = usize::from(u16_at(header, lens_at + 2).expect("was read before"));
        let extras =
            without_extra_field(&header[fixed + name_len..fixed + name_len + extra_len], ZIP64_EXTRA_FIELD);
        let flags = u16_at(header, version_at + 2).expect("was read before") & !HAS_DATA_DESCRIPTOR;
        let mut head = header[..fixed].to_vec();
        head[version_at + 2..version_at + 4].copy_from_slice(&flags.to_le_bytes());
        head[version_at + 4..version_at + 6].copy_from_slice(&DEFLATED.to_le_bytes());
        head[version_at + 10..version_at + 14].copy_from_slice(&self.crc.to_le_bytes());
        head[version_at + 14..version_at + 18].copy_from_slice(&offset_u32(&self.data).to_le_bytes());
        head[version_at + 18..version_at + 22].copy_from_slice(&self.size.to_le_bytes());
        head[lens_at + 2..lens_at + 4].copy_from_slice(&(extras.len() as u16).to_le_bytes());
        if fixed == CENTRAL_HEADER_BYTES {
            // The offset is set later. It fits here, because the extra field with the 64-bit offset is gone.
            head[42..46].fill(0);
        }
        out.extend_from_slice(&head);
        out.extend_from_slice(&header[fixed..fixed + name_len]);
        out.extend_from_slice(&extras);
        out.extend_from_slice(&header[fixed + name_len + extra_len..]);
    }
}

/// Sets the offset of a part in its directory entry.
fn set_offset(head: &mut [u8], offset_position: u32) {
    if head[42..46] != [0xff; 4] {
        head[42..46].copy_from_slice(&offset_position.to_le_bytes());
        return;
    }
    let before = [24, 20].iter().filter(|at| head[**at..**at + 4] == [0xff; 4]).count() * 8;
    let name_len = usize::from(u16_at(head, 28).expect("was read before"));
    let extra_len = usize::from(u16_at(head, 30).expect("was read before"));
    let extras = CENTRAL_HEADER_BYTES + name_len..CENTRAL_HEADER_BYTES + name_len + extra_len;
    let wide = extra_field_span(&head[extras.clone()], ZIP64_EXTRA_FIELD).expect("was read before");
    let at = extras.start + wide.start + before;
    head[at..at + 8].copy_from_slice(&u64::from(offset_position).to_le_bytes());
}

fn extra_field(extras: &[u8], id: u16) -> Option<&[u8]> {
    extra_field_span(extras, id).map(|offset_position| &extras[offset_position])
}

fn extra_field_span(extras: &[u8], id: u16) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        let (one, len) = (u16_at(extras, at)?, usize::from(u16_at(extras, at + 2)?));
        let content = at + 4..at + 4 + len;
        extras.get(content.clone())?;
        if one == id {
            return Some(content);
        }
        at = content.end;
    }
}

fn without_extra_field(extras: &[u8], id: u16) -> Vec<u8> {
    match extra_field_span(extras, id) {
        Some(offset_position) => {
            [&extras[..offset_position.start - 4], &extras[offset_position.end..]].concat()
        }
        None => extras.to_vec(),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
