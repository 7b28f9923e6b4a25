//! Detects the encoding of a file, unless it is declared, and decodes it.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE, WINDOWS_1252};
use memchr::memchr;

use super::encode::TextEncoding;
use super::error::{CsvError, ForeignFormat};
use super::guess::{contradicts_windows_1252, guess_encodings};
use super::location::TextLocation;

pub(super) struct DecodedText {
    pub(super) text: String,
    /// Where the text begins, after a byte order mark.
    pub(super) start: usize,
    /// The encoding of the file.
    pub(super) encoding: TextEncoding,
    pub(super) note: Option<&'static str>,
}

const UTF8_BOM: &[u8] = b"\xEF\xBB\xBF";
const UTF16_LE_BOM: &[u8] = b"\xFF\xFE";
const UTF16_BE_BOM: &[u8] = b"\xFE\xFF";

const MAGIC_NUMBERS: [(&[u8], ForeignFormat); 6] = [
    (b"PK\x03\x04", ForeignFormat::Zip),
    (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", ForeignFormat::Excel),
    (b"SQLite format 3\0", ForeignFormat::Sqlite),
    (b"\x1F\x8B", ForeignFormat::Gzip),
    (b"%PDF-", ForeignFormat::Pdf),
    (b"PAR1", ForeignFormat::Parquet),
];

pub(super) fn decode(bytes: Vec<u8>, declared: Option<&'static Encoding>) -> Result<DecodedText, CsvError> {
    if let Some((_, format)) = MAGIC_NUMBERS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(CsvError::WrongFormat(*format));
    }
    match declared {
        Some(declared) => decode_declared(bytes, TextEncoding::new(declared)),
        None => detect(bytes),
    }
}

fn detect(bytes: Vec<u8>) -> Result<DecodedText, CsvError> {
    let bom_note = "read as UTF-16, because it begins with a UTF-16 byte order mark";
    if let Some(rest) = bytes.strip_prefix(UTF16_LE_BOM) {
        return decode_utf16(UTF_16LE, rest, TextEncoding::Utf16Le { has_bom: true }, Some(bom_note));
    }
    if let Some(rest) = bytes.strip_prefix(UTF16_BE_BOM) {
        return decode_utf16(UTF_16BE, rest, TextEncoding::Utf16Be { has_bom: true }, Some(bom_note));
    }
    if let Some(decoder) = detect_utf16_without_bom(&bytes) {
        let note = "read as UTF-16 without a byte order mark, because every other byte is zero";
        return decode_utf16(decoder, &bytes, TextEncoding::new(decoder), Some(note));
    }
    check_no_nul(&bytes)?;
    let start = if bytes.starts_with(UTF8_BOM) { UTF8_BOM.len() } else { 0 };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(DecodedText { text, start, encoding: TextEncoding::Utf8, note: None }),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let at_end = error.utf8_error().error_len().is_none();
            let bytes = error.into_bytes();
            // A file with a byte order mark, or one that is cut in the middle of a character after other valid ones,
            // is broken UTF-8: another process may still be writing it.
            if start > 0 || (at_end && !bytes[..valid].is_ascii()) {
                return Err(CsvError::InvalidUtf8 { location: TextLocation::at_byte(&bytes, valid) });
            }
            if let Some(at) = contradicts_windows_1252(&bytes) {
                let location = TextLocation::at_byte(&bytes, at);
                return Err(CsvError::UnknownEncoding { location, guesses: guess_encodings(&bytes) });
            }
            let (text, _) = WINDOWS_1252.decode_without_bom_handling(&bytes);
            let note = "read as Windows-1252, because it is not UTF-8; if letters look wrong, set the encoding of its \
                        source in the manifest; if they are right, `encoding = \"windows-1252\"` makes sure of it";
            let encoding = TextEncoding::Legacy(WINDOWS_1252);
            Ok(DecodedText { text: text.into_owned(), start: 0, encoding, note: Some(note) })
        }
    }
}

fn decode_declared(bytes: Vec<u8>, encoding: TextEncoding) -> Result<DecodedText, CsvError> {
    let bom = [(UTF8_BOM, "UTF-8"), (UTF16_LE_BOM, "UTF-16LE"), (UTF16_BE_BOM, "UTF-16BE")];
    let bom = bom.into_iter().find(|(bom, _)| bytes.starts_with(bom));
    let (bom_len, found) = bom.map_or((0, None), |(bom, name)| (bom.len(), Some(name)));
    if let Some(found) = found.filter(|found| *found != encoding.name()) {
        return Err(CsvError::OtherEncoding { declared: encoding.name(), found });
    }
    let has_bom = bom_len > 0;
    match encoding {
        TextEncoding::Utf16Le { .. } => {
            decode_utf16(UTF_16LE, &bytes[bom_len..], TextEncoding::Utf16Le { has_bom }, None)
        }
        TextEncoding::Utf16Be { .. } => {
            decode_utf16(UTF_16BE, &bytes[bom_len..], TextEncoding::Utf16Be { has_bom }, None)
        }
        TextEncoding::Utf8 => {
            check_no_nul(&bytes)?;
            match String::from_utf8(bytes) {
                Ok(text) => Ok(DecodedText { text, start: bom_len, encoding, note: None }),
                Err(error) => {
                    let at = error.utf8_error().valid_up_to();
                    Err(invalid_encoding(error.as_bytes(), at, encoding))
                }
            }
        }
        TextEncoding::Legacy(legacy) => {
            check_no_nul(&bytes)?;
            match legacy.decode_without_bom_handling_and_without_replacement(&bytes) {
                Some(text) => Ok(DecodedText { text: text.into_owned(), start: 0, encoding, note: None }),
                None => Err(invalid_encoding(&bytes, first_malformed(legacy, &bytes), encoding)),
            }
        }
    }
}

fn invalid_encoding(bytes: &[u8], at: usize, encoding: TextEncoding) -> CsvError {
    CsvError::InvalidEncoding { location: TextLocation::at_byte(bytes, at), declared: encoding.name() }
}

/// Where a line begins that cannot be decoded. No line end is part of another character in these encodings.
fn first_malformed(encoding: &'static Encoding, bytes: &[u8]) -> usize {
    let mut at = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if encoding.decode_without_bom_handling_and_without_replacement(line).is_none() {
            return at;
        }
        at += line.len();
    }
    at
}

/// Detects UTF-16 without a byte order mark: in a header, one byte of most characters is zero, and always the same
/// one.
fn detect_utf16_without_bom(bytes: &[u8]) -> Option<&'static Encoding> {
    const SAMPLE_BYTES_MAX: usize = 256;
    const PAIRS_MIN: usize = 2;
    let first_line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (pairs, _) = bytes[..first_line.min(SAMPLE_BYTES_MAX)].as_chunks::<2>();
    let zeros = |at: usize| pairs.iter().filter(|pair| pair[at] == 0).count();
    let (first, second) = (zeros(0), zeros(1));
    // Letters beyond Latin-1 have no zero byte; delimiters and digits do.
    let is_most = |zeros: usize| pairs.len() >= PAIRS_MIN && zeros * 2 > pairs.len();
    match (first, second) {
        (0, low) if is_most(low) => Some(UTF_16LE),
        (high, 0) if is_most(high) => Some(UTF_16BE),
        _ => None,
    }
}

fn decode_utf16(
    decoder: &'static Encoding,
    bytes: &[u8],
    encoding: TextEncoding,
    note: Option<&'static str>,
) -> Result<DecodedText, CsvError> {
    let (text, broken) = decoder.decode_without_bom_handling(bytes);
    if broken {
        return Err(CsvError::InvalidUtf16);
    }
    check_no_nul(text.as_bytes())?;
    Ok(DecodedText { text: text.into_owned(), start: 0, encoding, note })
}

fn check_no_nul(bytes: &[u8]) -> Result<(), CsvError> {
    match memchr(0, bytes) {
        Some(at) => Err(CsvError::Nul { location: TextLocation::at_byte(bytes, at) }),
        None => Ok(()),
    }
}
