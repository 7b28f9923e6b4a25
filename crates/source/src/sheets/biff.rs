//! Records of an XLS workbook (BIFF8), and their texts, which may continue in further records.

use super::budget::{Budget, invalid_file_error};
use super::cfb::{u16_at, u32_at};
use crate::tables::ParseError;

pub(super) const CONTINUE: u16 = 0x3c;

/// Iterates over the records from an offset on.
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) id: u16,
    pub(super) data: &'a [u8],
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    fn peek(&self) -> Option<(Record<'a>, usize)> {
        let (id, len) = (u16_at(self.bytes, self.at)?, usize::from(u16_at(self.bytes, self.at + 2)?));
        let from = self.at + 4;
        Some((Record { id, data: self.bytes.get(from..from + len)? }, from + len))
    }

    /// The next record with its continuations.
    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<ContinuedRecord<'a>>, ParseError> {
        budget.step()?;
        let Some((record, end)) = self.peek() else { return Ok(None) };
        self.at = end;
        let mut segments = ContinuedRecord { id: record.id, parts: vec![record.data], part: 0, at: 0 };
        while let Some((more, end)) = self.peek().filter(|(more, _)| more.id == CONTINUE) {
            budget.step()?;
            segments.parts.push(more.data);
            self.at = end;
        }
        Ok(Some(segments))
    }
}

/// A record with its continuations.
pub(super) struct ContinuedRecord<'a> {
    pub(super) id: u16,
    parts: Vec<&'a [u8]>,
    part: usize,
    at: usize,
}

fn truncated_error() -> ParseError {
    invalid_file_error("the workbook is damaged")
}

impl<'a> ContinuedRecord<'a> {
    /// The first part of the record, without continuations.
    pub(super) fn data(&self) -> &'a [u8] {
        self.parts[0]
    }

    pub(super) fn seek(&mut self, at: usize) {
        (self.part, self.at) = (0, at);
    }

    fn rest(&self) -> &'a [u8] {
        self.parts.get(self.part).and_then(|part| part.get(self.at..)).unwrap_or_default()
    }

    /// Moves on to the next part at the end of one. Returns whether there is more.
    pub(super) fn has_more(&mut self) -> bool {
        while self.rest().is_empty() {
            if self.part + 1 >= self.parts.len() {
                return false;
            }
            self.part += 1;
            self.at = 0;
        }
        true
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        if !self.has_more() {
            return Err(truncated_error());
        }
        let bytes =
            self.rest().get(..N).and_then(|bytes| bytes.try_into().ok()).ok_or_else(truncated_error)?;
        self.at += N;
        Ok(bytes)
    }

    fn skip(&mut self, mut bytes: usize) -> Result<(), ParseError> {
        while bytes > 0 {
            if !self.has_more() {
                return Err(truncated_error());
            }
            let step = self.rest().len().min(bytes);
            self.at += step;
            bytes -= step;
        }
        Ok(())
    }

    /// A text with a 16-bit length.
    pub(super) fn text(&mut self, budget: &mut Budget) -> Result<String, ParseError> {
        let count = u16::from_le_bytes(self.take()?);
        self.text_of_len(count.into(), budget)
    }

    /// A text with an 8-bit length.
    pub(super) fn short_text(&mut self, budget: &mut Budget) -> Result<String, ParseError> {
        let [count] = self.take()?;
        self.text_of_len(count.into(), budget)
    }

    fn text_of_len(&mut self, count: usize, budget: &mut Budget) -> Result<String, ParseError> {
        let [flags] = self.take()?;
        let runs = if flags & 8 != 0 { usize::from(u16::from_le_bytes(self.take()?)) } else { 0 };
        let phonetic_bytes = if flags & 4 != 0 { u32::from_le_bytes(self.take()?) as usize } else { 0 };
        let mut is_wide = flags & 1 != 0;
        let mut units: Vec<u16> = Vec::new();
        while units.len() < count {
            if self.rest().is_empty() {
                // The text continues in the next record, which tells again how wide its characters are.
                if !self.has_more() {
                    return Err(truncated_error());
                }
                let [flags] = self.take()?;
                is_wide = flags & 1 != 0;
                continue;
            }
            let left = count - units.len();
            if is_wide {
                let pairs = self.rest().chunks_exact(2).take(left);
                let before = units.len();
                units.extend(pairs.map(|pair| u16::from_le_bytes([pair[0], pair[1]])));
                let taken = units.len() - before;
                if taken == 0 {
                    return Err(truncated_error());
                }
                self.at += taken * 2;
            } else {
                let bytes = &self.rest()[..self.rest().len().min(left)];
                units.extend(bytes.iter().map(|byte| u16::from(*byte)));
                self.at += bytes.len();
            }
        }
        self.skip(runs * 4)?;
        self.skip(phonetic_bytes)?;
        budget.charge_text(count * 2)?;
        Ok(char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')).collect())
    }
}

/// A 32-bit number: the upper bits of a float, or an integer; possibly in hundredths.
pub(super) fn decode_rk(word: u32) -> f64 {
    let n = match word & 2 {
        0 => f64::from_bits(u64::from(word & !3) << 32),
        _ => f64::from(word.cast_signed() >> 2),
    };
    if word & 1 != 0 { n / 100.0 } else { n }
}

pub(super) fn f64_at(bytes: &[u8], at: usize) -> Option<f64> {
    let (low, high) = (u32_at(bytes, at)?, u32_at(bytes, at + 4)?);
    Some(f64::from_bits(u64::from(high) << 32 | u64::from(low)))
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::{Records, decode_rk};

    fn record(id: u16, data: &[u8]) -> Vec<u8> {
        [&id.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), data].concat()
    }

    fn texts(stream: &[u8]) -> Result<Vec<String>, String> {
        let mut budget = Budget::new();
        let mut record =
            Records::new(stream, 0).next(&mut budget).map_err(|reason| reason.message)?.ok_or("nothing")?;
        let mut texts = Vec::new();
        while record.has_more() {
            texts.push(record.text(&mut budget).map_err(|reason| reason.message)?);
        }
        Ok(texts)
    }

    #[test]
    fn texts_continue_in_further_records() {
        let plain = record(0xfc, b"\x03\0\0abc");
        assert_eq!(texts(&plain).unwrap(), ["abc"]);
        // Narrow first, then wide, with formatting runs and phonetic text that are cut too.
        let cut = [
            record(0xfc, b"\x04\0\x0dA\0\x01\0\x02\0\0\0B\0"),
            record(0x3c, b"\x01C\0D\0"),
            record(0x3c, b"\x01\x3d\xd8\x00"),
        ];
        assert!(texts(&cut.concat()).is_err());
        let wide = [
            record(0xfc, b"\x04\0\x01A\0B\0"),
            record(0x3c, b"\0CD\x01\0\0E"),
            record(0x3c, b"\x02\0\x08\x01\0xy1234"),
        ];
        assert_eq!(texts(&wide.concat()).unwrap(), ["ABCD", "E", "xy"]);
        for invalid in [
            &b""[..],
            b"\x05\0\0ab",
            b"\x05\0",
            b"\x05",
            b"\x01\0\x01a",
            b"\x01\0\x08\xff\xffa",
            b"\x01\0\x04\xff\xff\xff\xffa",
        ] {
            let result = texts(&record(0xfc, invalid));
            assert!(invalid.is_empty() || result.is_err(), "{invalid:?}: {result:?}");
        }
    }

    #[test]
    fn rk_numbers_are_decoded() {
        for (word, expected) in [
            (0x3ff0_0000, 1.0),
            (0x3ff0_0001, 0.01),
            ((1234 << 2) | 2, 1234.0),
            ((1234 << 2) | 3, 12.34),
            ((-5_i32 << 2).cast_unsigned() | 2, -5.0),
        ] {
            assert_eq!(decode_rk(word), expected, "{word:x}");
        }
    }
}
