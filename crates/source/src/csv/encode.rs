//! Encodes text as the file is encoded.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// A text encoding. Nearly all of them encode a text in exactly one way, so untouched parts keep their bytes; where one
/// does not, the writer finds that other rows would read differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextEncoding {
    /// A byte order mark is part of the text.
    Utf8,
    Utf16Le {
        has_bom: bool,
    },
    Utf16Be {
        has_bom: bool,
    },
    /// An encoding of one language or region, without a state.
    Legacy(&'static Encoding),
}

impl TextEncoding {
    pub(super) fn new(encoding: &'static Encoding) -> Self {
        match encoding {
            _ if encoding == UTF_8 => Self::Utf8,
            _ if encoding == UTF_16LE => Self::Utf16Le { has_bom: false },
            _ if encoding == UTF_16BE => Self::Utf16Be { has_bom: false },
            legacy => Self::Legacy(legacy),
        }
    }

    /// As people write it: `UTF-8`, `Shift_JIS`, `Windows-1252`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le { .. } => "UTF-16LE",
            Self::Utf16Be { .. } => "UTF-16BE",
            Self::Legacy(encoding) => match encoding.name() {
                "windows-1252" => "Windows-1252",
                name => name,
            },
        }
    }

    /// The number of bytes that encode the text `before`, with the byte order mark.
    pub(super) fn encoded_len(self, before: &str) -> usize {
        match self {
            Self::Utf8 => before.len(),
            Self::Utf16Le { has_bom: is_marked } | Self::Utf16Be { has_bom: is_marked } => {
                let units: usize = before.chars().map(char::len_utf16).sum();
                2 * (units + usize::from(is_marked))
            }
            Self::Legacy(encoding) if encoding.is_single_byte() => before.chars().count(),
            Self::Legacy(encoding) => encoding.encode(before).0.len(),
        }
    }

    /// Encodes a text, or returns the first character that the encoding lacks.
    pub(super) fn encode(self, text: &str) -> Result<Vec<u8>, char> {
        match self {
            Self::Utf8 => Ok(text.as_bytes().to_vec()),
            Self::Utf16Le { .. } => Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Self::Utf16Be { .. } => Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
            Self::Legacy(encoding) => match encoding.encode(text) {
                (bytes, _, false) => Ok(bytes.into_owned()),
                (_, _, true) => {
                    let mut one = [0; 4];
                    let is_other = |c: &char| encoding.encode(c.encode_utf8(&mut one)).2;
                    Err(text.chars().find(is_other).unwrap_or(char::REPLACEMENT_CHARACTER))
                }
            },
        }
    }
}
