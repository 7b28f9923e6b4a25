//! The container of an XLS workbook: a compound file of sectors, chained into streams.
//!
//! No number in it is trusted: nothing is allocated for what it promises, and no chain is longer than the file.

use super::budget::{Budget, invalid_file_error};
use crate::tables::ParseError;

const MAGIC: [u8; 8] = [0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1];
const HEADER_BYTES: usize = 512;
const ENTRY_BYTES: usize = 128;
const MINI_BYTES: usize = 64;
/// Shorter streams are in the mini stream.
const MINI_STREAM_BYTES_MAX: u64 = 4096;
/// Higher sector numbers have special meanings: free, end of chain, the table itself.
const SECTOR_MAX: u32 = 0xffff_fffa;

pub(super) struct CompoundFile<'a> {
    sectors: Sectors<'a>,
    /// The successor of each sector.
    fat: Vec<u32>,
    mini_fat: Vec<u32>,
    mini_stream: Vec<u8>,
    streams: Vec<Stream>,
}

struct Stream {
    name: String,
    start: u32,
    size: u64,
}

#[derive(Clone, Copy)]
struct Sectors<'a> {
    bytes: &'a [u8],
    size: usize,
}

pub(super) fn is_compound_file(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

impl<'a> Sectors<'a> {
    fn get(self, sector: u32) -> Option<&'a [u8]> {
        let at = usize::try_from(sector).ok()?.checked_add(1)?.checked_mul(self.size)?;
        let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
        // The last sector of a file may be incomplete.
        Some(&rest[..rest.len().min(self.size)])
    }

    fn count(self) -> usize {
        self.bytes.len() / self.size + 1
    }

    /// The bytes of a chain of sectors.
    fn chain(self, start: u32, next: &[u32], budget: &mut Budget) -> Result<Vec<u8>, ParseError> {
        let mut out = Vec::new();
        let mut sector = start;
        let mut count = 0;
        while sector < SECTOR_MAX {
            budget.step()?;
            count += 1;
            let bytes = self.get(sector).filter(|_| count <= self.count()).ok_or_else(damaged_error)?;
            out.extend_from_slice(bytes);
            sector = *next.get(sector as usize).ok_or_else(damaged_error)?;
        }
        Ok(out)
    }
}

fn damaged_error() -> ParseError {
    invalid_file_error("the workbook is damaged")
}

impl<'a> CompoundFile<'a> {
    pub(super) fn open(bytes: &'a [u8], budget: &mut Budget) -> Result<Self, ParseError> {
        let header =
            bytes.get(..HEADER_BYTES).filter(|_| is_compound_file(bytes)).ok_or_else(damaged_error)?;
        let size = match u16_at(header, 30) {
            Some(9) => 512,
            Some(12) => 4096,
            _ => return Err(damaged_error()),
        };
        let sectors = Sectors { bytes, size };
        let next = read_fat(sectors, header, budget)?;
        let word = |at: usize| u32_at(header, at).ok_or_else(damaged_error);
        let directory = sectors.chain(word(48)?, &next, budget)?;
        let mini_table = sectors.chain(word(60)?, &next, budget)?;
        let mut streams = Vec::new();
        let mut mini = Vec::new();
        for (at, entry) in directory.chunks_exact(ENTRY_BYTES).enumerate() {
            budget.step()?;
            let len = usize::from(u16_at(entry, 64).unwrap_or(0)).clamp(2, 64) - 2;
            let units = entry[..len].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            let name: String = char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')).collect();
            let start = u32_at(entry, 116).ok_or_else(damaged_error)?;
            let mut length = u64::from(u32_at(entry, 120).ok_or_else(damaged_error)?);
            if size == 4096 {
                length |= u64::from(u32_at(entry, 124).ok_or_else(damaged_error)?) << 32;
            }
            match entry[66] {
                2 => streams.push(Stream { name, start, size: length }),
                5 if at == 0 => mini = sectors.chain(start, &next, budget)?,
                _ => {}
            }
        }
        Ok(Self {
            sectors,
            fat: next,
            mini_fat: u32_words(&mini_table).collect(),
            mini_stream: mini,
            streams,
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.streams.iter().any(|one| one.name.eq_ignore_ascii_case(name))
    }

    /// A stream by its name, ignoring case.
    pub(super) fn stream(&self, name: &str, budget: &mut Budget) -> Result<Option<Vec<u8>>, ParseError> {
        let Some(stream) = self.streams.iter().find(|one| one.name.eq_ignore_ascii_case(name)) else {
            return Ok(None);
        };
        let mut content = if stream.size < MINI_STREAM_BYTES_MAX {
            self.mini_chain(stream.start, budget)?
        } else {
            self.sectors.chain(stream.start, &self.fat, budget)?
        };
        let size = usize::try_from(stream.size).map_err(|_| damaged_error())?;
        content.truncate(size);
        Ok(Some(content))
    }

    fn mini_chain(&self, start: u32, budget: &mut Budget) -> Result<Vec<u8>, ParseError> {
        let mut out = Vec::new();
        let mut sector = start;
        while sector < SECTOR_MAX && (out.len() as u64) < MINI_STREAM_BYTES_MAX {
            budget.step()?;
            let at = sector as usize * MINI_BYTES;
            out.extend_from_slice(self.mini_stream.get(at..at + MINI_BYTES).ok_or_else(damaged_error)?);
            sector = *self.mini_fat.get(sector as usize).ok_or_else(damaged_error)?;
        }
        Ok(out)
    }
}

/// Reads the table of each sector's successor. The header, and a chain that starts there, list its sectors.
fn read_fat(sectors: Sectors<'_>, header: &[u8], budget: &mut Budget) -> Result<Vec<u32>, ParseError> {
    let mut lists: Vec<u32> = u32_words(&header[76..]).collect();
    let mut more = u32_at(header, 68).ok_or_else(damaged_error)?;
    let mut count = 0;
    while more < SECTOR_MAX {
        count += 1;
        budget.step()?;
        let sector = sectors.get(more).filter(|_| count <= sectors.count()).ok_or_else(damaged_error)?;
        let mut list: Vec<u32> = u32_words(sector).collect();
        more = list.pop().filter(|_| sector.len() == sectors.size).ok_or_else(damaged_error)?;
        lists.extend(list);
    }
    let mut next = Vec::new();
    for sector in lists.into_iter().filter(|sector| *sector < SECTOR_MAX) {
        budget.step()?;
        // Entries for sectors beyond the end of the file are useless.
        if next.len() > sectors.count() {
            break;
        }
        next.extend(u32_words(sectors.get(sector).ok_or_else(damaged_error)?));
    }
    Ok(next)
}

fn u32_words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
