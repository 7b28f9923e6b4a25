//! Bytes in, text out: which encoding a file has, and whether it is text at all.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE, WINDOWS_1252};
use memchr::memchr;

use super::encode::Encoding as Written;
use super::spot::Spot;
use super::trouble::{Format, Trouble};

pub(super) struct Decoded {
    pub(super) text: String,
    /// Where the text begins, behind a byte order mark.
    pub(super) start: usize,
    /// How the text is written in the file.
    pub(super) written: Written,
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
    let marked = "read as UTF-16, because it begins with the mark of UTF-16";
    if let Some(rest) = bytes.strip_prefix(UTF16_LE_MARK) {
        return utf16(UTF_16LE, rest, Written::Utf16Le { is_marked: true }, marked);
    }
    if let Some(rest) = bytes.strip_prefix(UTF16_BE_MARK) {
        return utf16(UTF_16BE, rest, Written::Utf16Be { is_marked: true }, marked);
    }
    if let Some(encoding) = unmarked(&bytes) {
        let written = match encoding == UTF_16LE {
            true => Written::Utf16Le { is_marked: false },
            false => Written::Utf16Be { is_marked: false },
        };
        let note = "read as UTF-16 without its mark, because every other byte is zero";
        return utf16(encoding, &bytes, written, note);
    }
    without_nul(&bytes)?;
    let start = if bytes.starts_with(UTF8_MARK) { UTF8_MARK.len() } else { 0 };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Decoded { text, start, written: Written::Utf8, note: None }),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let at_end = error.utf8_error().error_len().is_none();
            let bytes = error.into_bytes();
            // Behind a mark, or cut within a character where others are whole, it is UTF-8 and broken: perhaps
            // somebody is still writing.
            if start > 0 || (at_end && !bytes[..valid].is_ascii()) {
                return Err(Trouble::BrokenUtf8 { at: Spot::of_byte(&bytes, valid) });
            }
            let (text, _) = WINDOWS_1252.decode_without_bom_handling(&bytes);
            let note = "read as Windows-1252, because it is not UTF-8";
            let written = Written::Windows1252;
            Ok(Decoded { text: text.into_owned(), start: 0, written, note: Some(note) })
        }
    }
}

/// UTF-16 that does not say so: in a header, one byte of each character is zero, and always the same one.
fn unmarked(bytes: &[u8]) -> Option<&'static Encoding> {
    const SAMPLE_BYTES_MAX: usize = 256;
    const PAIRS_MIN: usize = 2;
    let first_line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (pairs, _) = bytes[..first_line.min(SAMPLE_BYTES_MAX)].as_chunks::<2>();
    let zeros = |at: usize| pairs.iter().filter(|pair| pair[at] == 0).count();
    let (first, second) = (zeros(0), zeros(1));
    // Letters beyond Latin-1 have no zero at all; delimiters and digits do.
    let is_most = |zeros: usize| pairs.len() >= PAIRS_MIN && zeros * 2 > pairs.len();
    match (first, second) {
        (0, low) if is_most(low) => Some(UTF_16LE),
        (high, 0) if is_most(high) => Some(UTF_16BE),
        _ => None,
    }
}

fn utf16(
    encoding: &'static Encoding,
    bytes: &[u8],
    written: Written,
    note: &'static str,
) -> Result<Decoded, Trouble> {
    let (text, broken) = encoding.decode_without_bom_handling(bytes);
    if broken {
        return Err(Trouble::BrokenUtf16);
    }
    without_nul(text.as_bytes())?;
    Ok(Decoded { text: text.into_owned(), start: 0, written, note: Some(note) })
}

fn without_nul(bytes: &[u8]) -> Result<(), Trouble> {
    match memchr(0, bytes) {
        Some(at) => Err(Trouble::Nul { at: Spot::of_byte(bytes, at) }),
        None => Ok(()),
    }
}
