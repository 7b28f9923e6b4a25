//! Reads a file record by record, in parts: no more of it is in memory than one part and the record that it ends in.

use std::io::Read;

use encoding_rs::{Decoder, DecoderResult, Encoding};
use memchr::memchr;

use super::super::error::CsvError;
use super::super::location::{TextLocation, line_at};
use super::super::splitter::{Field, FieldSplitter, Terminator, skip_blank_lines};
use crate::watch::FileError;

/// How many bytes are read at once.
const PART_BYTES: usize = 1 << 20;
/// A longer record is a quote that is not closed.
const RECORD_BYTES_MAX: usize = 64 << 20;

pub(in super::super) struct RecordReader<R> {
    input: R,
    decoder: Decoder,
    splitter: FieldSplitter,
    /// Read, and not decoded yet: the start of a character.
    undecoded: Vec<u8>,
    /// Decoded, and not consumed yet.
    text: String,
    fields: Vec<Field>,
    /// Where the next record starts in `text`.
    at: usize,
    /// The position of `text` in the decoded file.
    offset: u64,
    /// The line of `at`, from 1.
    line: u64,
    is_at_end: bool,
}

/// One record of a file.
pub(in super::super) struct Record<'a> {
    text: &'a str,
    fields: &'a [Field],
    /// The record with its line end, and with blank lines before it.
    pub(super) raw: &'a str,
    start: usize,
    /// Where it starts in the decoded file.
    pub(super) offset: u64,
    /// The line on which it starts, from 1.
    pub(super) line: u64,
}

impl<R: Read> RecordReader<R> {
    pub(super) fn new(input: R, encoding: &'static Encoding, delimiter: u8) -> Self {
        Self {
            input,
            decoder: encoding.new_decoder_with_bom_removal(),
            splitter: FieldSplitter::new(delimiter),
            undecoded: Vec::new(),
            text: String::new(),
            fields: Vec::new(),
            at: 0,
            offset: 0,
            line: 1,
            is_at_end: false,
        }
    }

    /// The next record, or `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, CsvError> {
        let start = loop {
            let bytes = self.text.as_bytes();
            let start = skip_blank_lines(bytes, self.at);
            if start < bytes.len() && self.split_record(start)? {
                break start;
            }
            if self.is_at_end {
                return Ok(None);
            }
            self.read_part()?;
        };
        let end = self.fields.last().map_or(start, |field| field.next);
        let bytes = self.text.as_bytes();
        let line = self.line + count_lines(&bytes[self.at..start]);
        self.line = line + count_lines(&bytes[start..end]);
        let raw = self.at..end;
        self.at = end;
        Ok(Some(Record {
            text: &self.text,
            fields: &self.fields,
            raw: &self.text[raw],
            start,
            offset: self.offset + start as u64,
            line,
        }))
    }

    /// Splits the record that starts here; `false` if more of the file must be read to know where it ends.
    fn split_record(&mut self, start: usize) -> Result<bool, CsvError> {
        let bytes = self.text.as_bytes();
        self.fields.clear();
        let mut at = start;
        loop {
            let field = self.splitter.field_at(bytes, at);
            self.fields.push(field);
            match field.terminator {
                Terminator::Delimiter => at = field.next,
                // A `\r` at the end may be the first half of a line end.
                Terminator::RecordEnd => return Ok(field.next < bytes.len() || self.is_at_end),
                Terminator::UnclosedQuote if !self.is_at_end && bytes.len() - start < RECORD_BYTES_MAX => {
                    return Ok(false);
                }
                Terminator::UnclosedQuote => {
                    let location = TextLocation::new(&self.text, at..field.next);
                    return Err(CsvError::UnclosedQuote { location: self.at_line(location) });
                }
            }
        }
    }

    /// A location in `text`, with its line in the file.
    fn at_line(&self, mut location: TextLocation) -> TextLocation {
        let line = usize::try_from(self.line).unwrap_or(usize::MAX);
        location.line = (location.line + line).saturating_sub(line_at(self.text.as_bytes(), self.at));
        location
    }

    fn read_part(&mut self) -> Result<(), CsvError> {
        self.text.drain(..self.at);
        self.offset += self.at as u64;
        self.at = 0;
        let before = self.undecoded.len();
        self.undecoded.resize(before + PART_BYTES, 0);
        let read = loop {
            match self.input.read(&mut self.undecoded[before..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FileError::Io(error.to_string()).into()),
                Ok(read) => break read,
            }
        };
        self.undecoded.truncate(before + read);
        self.is_at_end = read == 0;
        let decoded = self.text.len();
        let bytes_max = self.decoder.max_utf8_buffer_length_without_replacement(self.undecoded.len());
        self.text.reserve(bytes_max.unwrap_or(self.undecoded.len() * 3) + 16);
        let (result, consumed) = self.decoder.decode_to_string_without_replacement(
            &self.undecoded,
            &mut self.text,
            self.is_at_end,
        );
        if let DecoderResult::Malformed(..) = result {
            let location = TextLocation::new(&self.text, self.text.len()..self.text.len());
            return Err(CsvError::InvalidUtf8 { location: self.at_line(location) });
        }
        self.undecoded.drain(..consumed);
        if let Some(at) = memchr(0, &self.text.as_bytes()[decoded..]) {
            let location = TextLocation::at_byte(self.text.as_bytes(), decoded + at);
            return Err(CsvError::Nul { location: self.at_line(location) });
        }
        Ok(())
    }
}

impl Record<'_> {
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The text of a field. `scratch` holds a text that the file escapes.
    #[inline]
    pub(super) fn text<'s>(&'s self, at: usize, scratch: &'s mut String) -> &'s str {
        self.fields[at].text_with_scratch(self.text, scratch)
    }

    /// Whether all fields from `at` on are empty.
    pub(super) fn is_blank_from(&self, at: usize) -> bool {
        self.fields[at..].iter().all(|field| field.text_start >= field.text_end)
    }

    /// The location of a field, or of what follows the last one.
    pub(super) fn location(&self, at: usize) -> TextLocation {
        let from = match at.checked_sub(1) {
            Some(before) => self.fields[before.min(self.fields.len() - 1)].next,
            None => self.start,
        };
        let span = match self.fields.get(at) {
            Some(field) => field.raw_span(from),
            None => {
                let last = self.fields.len() - 1;
                let from = if last == 0 { self.start } else { self.fields[last - 1].next };
                let end = self.fields[last].raw_span(from).end;
                end..end
            }
        };
        let mut location = TextLocation::new(self.text, span);
        let line = usize::try_from(self.line).unwrap_or(usize::MAX);
        location.line = (location.line + line).saturating_sub(line_at(self.text.as_bytes(), self.start));
        location
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    (line_at(bytes, bytes.len()) - 1) as u64
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use encoding_rs::{UTF_8, UTF_16LE};

    use super::{Record, RecordReader};
    use crate::csv::error::CsvError;

    /// Gives a few bytes at a time.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn record_text(record: &Record<'_>) -> String {
        let mut scratch = String::new();
        let fields: Vec<String> =
            (0..record.len()).map(|at| record.text(at, &mut scratch).to_owned()).collect();
        format!("{}@{}: {}", record.line, record.offset, fields.join("|"))
    }

    /// All records, read in parts of every size.
    fn check(text: &[u8], expected: &[&str]) {
        for part in 1..=text.len() + 1 {
            let mut reader = RecordReader::new(Slowly(text, part), UTF_8, b',');
            let mut records = Vec::new();
            while let Some(record) = reader.next().unwrap_or_else(|error| panic!("{error:?}")) {
                records.push(record_text(&record));
            }
            assert_eq!(records, expected, "parts of {part} bytes");
        }
    }

    #[test]
    fn records_are_the_same_whatever_the_parts_are() {
        check(b"a,b\n1,2\n", &["1@0: a|b", "2@4: 1|2"]);
        check(b"a,b\r\n\r\n1,\"x\r\ny\"\r\n3,4", &["1@0: a|b", "3@7: 1|x\r\ny", "5@17: 3|4"]);
        check("\u{feff}ä,\"b\"\"c\"\rö,\r".as_bytes(), &["1@0: ä|b\"c", "2@10: ö|"]);
        check(b"", &[]);
        check(b"\n\n", &[]);
        check(b"a", &["1@0: a"]);
        check(b"a,", &["1@0: a|"]);
    }

    #[test]
    fn other_encodings_are_decoded() {
        let bytes: Vec<u8> = "\u{feff}a,é\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut reader = RecordReader::new(Slowly(&bytes, 3), UTF_16LE, b',');
        let record = reader.next().expect("decodes").map(|record| record_text(&record));
        assert_eq!(record.as_deref(), Some("1@0: a|é"));
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        let error = |bytes: &[u8]| {
            let mut reader = RecordReader::new(Slowly(bytes, 4), UTF_8, b',');
            loop {
                match reader.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{}", bytes.escape_ascii()),
                    Err(error) => return error,
                }
            }
        };
        let CsvError::UnclosedQuote { location } = error(b"a,b\n1,2\n3,\"x\n4,5\n") else { panic!() };
        assert_eq!(location.line, 3);
        let CsvError::InvalidUtf8 { location } = error(b"a,b\n1,2\n3,\xff\n") else { panic!() };
        assert_eq!(location.line, 3);
        let CsvError::Nul { location } = error(b"a,b\n1,\0\n3,4\n") else { panic!() };
        assert_eq!(location.line, 2);
    }
}
