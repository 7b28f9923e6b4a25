//! Bytes in, text out: which encoding a file has, and whether it is text at all.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE, WINDOWS_1252};
use memchr::memchr;

use super::split::line_at;
use super::trouble::{Format, Trouble};

pub(super) struct Decoded {
    pub(super) text: String,
    /// Where the text begins, behind a byte order mark.
    pub(super) start: usize,
    pub(super) note: Option<&'static str>,
}

const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";
const UTF16_LE_MARK: &[u8] = b"\xFF\xFE";
const UTF16_BE_MARK: &[u8] = b"\xFE\xFF";

const FORMATS: [(&[u8], Format); 6] = [
    (b"PK\x03\x04", Format::Zip),
    (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", Format::Excel),
    (b"SQLite format 3\0", Format::Sqlite),
    (b"\x1F\x8B", Format::Gzip),
    (b"%PDF-", Format::Pdf),
    (b"PAR1", Format::Parquet),
];

pub(super) fn decode(bytes: Vec<u8>) -> Result<Decoded, Trouble> {
    if let Some((_, format)) = FORMATS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(Trouble::LooksLike(*format));
    }
    if let Some(rest) = bytes.strip_prefix(UTF16_LE_MARK) {
        return utf16(UTF_16LE, rest);
    }
    if let Some(rest) = bytes.strip_prefix(UTF16_BE_MARK) {
        return utf16(UTF_16BE, rest);
    }
    without_nul(&bytes)?;
    let start = if bytes.starts_with(UTF8_MARK) { UTF8_MARK.len() } else { 0 };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Decoded { text, start, note: None }),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let at_end = error.utf8_error().error_len().is_none();
            let bytes = error.into_bytes();
            // Behind a mark, or cut within a character where others are whole, it is UTF-8 and broken: perhaps
            // somebody is still writing.
            if start > 0 || (at_end && !bytes[..valid].is_ascii()) {
                return Err(Trouble::BrokenUtf8 { line: line_at(&bytes, valid) });
            }
            let (text, _) = WINDOWS_1252.decode_without_bom_handling(&bytes);
            let note = "read as Windows-1252, because it is not UTF-8";
            Ok(Decoded { text: text.into_owned(), start: 0, note: Some(note) })
        }
    }
}

fn utf16(encoding: &'static Encoding, bytes: &[u8]) -> Result<Decoded, Trouble> {
    let (text, broken) = encoding.decode_without_bom_handling(bytes);
    if broken {
        return Err(Trouble::BrokenUtf16);
    }
    without_nul(text.as_bytes())?;
    let note = "read as UTF-16, because it begins with the mark of UTF-16";
    Ok(Decoded { text: text.into_owned(), start: 0, note: Some(note) })
}

fn without_nul(bytes: &[u8]) -> Result<(), Trouble> {
    match memchr(0, bytes) {
        Some(at) => Err(Trouble::Nul { line: line_at(bytes, at) }),
        None => Ok(()),
    }
}
