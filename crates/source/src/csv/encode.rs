//! Encodes text as the file is encoded.

use encoding_rs::WINDOWS_1252;

/// A text encoding. Each of them encodes a text in exactly one way, so untouched parts keep their bytes.
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
    Windows1252,
}

impl TextEncoding {
    /// The number of bytes that encode the text `before`, with the byte order mark.
    pub(super) fn encoded_len(self, before: &str) -> usize {
        match self {
            Self::Utf8 => before.len(),
            Self::Utf16Le { has_bom: is_marked } | Self::Utf16Be { has_bom: is_marked } => {
                let units: usize = before.chars().map(char::len_utf16).sum();
                2 * (units + usize::from(is_marked))
            }
            Self::Windows1252 => before.chars().count(),
        }
    }

    /// Encodes a text, or returns the first character that the encoding lacks.
    pub(super) fn encode(self, text: &str) -> Result<Vec<u8>, char> {
        match self {
            Self::Utf8 => Ok(text.as_bytes().to_vec()),
            Self::Utf16Le { .. } => Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Self::Utf16Be { .. } => Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
            Self::Windows1252 => match WINDOWS_1252.encode(text) {
                (bytes, _, false) => Ok(bytes.into_owned()),
                (_, _, true) => {
                    let mut one = [0; 4];
                    let is_other = |c: &char| WINDOWS_1252.encode(c.encode_utf8(&mut one)).2;
                    Err(text.chars().find(is_other).unwrap_or(char::REPLACEMENT_CHARACTER))
                }
            },
        }
    }
}
