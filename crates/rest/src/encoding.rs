//! The encoding of a response: as it is, or gzip.

use std::io::Read;

use flate2::read::MultiGzDecoder;

/// What is asked for. Some APIs send it without being asked.
pub(crate) const ACCEPTED: &str = "gzip";

/// Why a body cannot be used: a clause that begins with a verb.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    TooLarge { bytes_max: usize },
    Damaged,
    Unknown(String),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { bytes_max } => {
                write!(f, "exceeds the limit of {bytes_max} bytes (`response_bytes_max`)")
            }
            Self::Damaged => f.write_str("is not valid gzip, although it says so"),
            Self::Unknown(encoding) => {
                write!(f, "has the encoding `{}`, which is not supported", encoding.escape_debug())
            }
        }
    }
}

/// The body as it was before it was encoded. No more than `bytes_max` bytes of it are made.
pub(crate) fn decode(body: Vec<u8>, encoding: Option<&str>, bytes_max: usize) -> Result<Vec<u8>, Unreadable> {
    match encoding.map(|encoding| encoding.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "identity") => Ok(body),
        // An answer without a body has nothing to decode.
        Some("gzip" | "x-gzip") if body.is_empty() => Ok(body),
        Some("gzip" | "x-gzip") => {
            let mut decoded = Vec::new();
            let mut reader = MultiGzDecoder::new(body.as_slice()).take(bytes_max as u64 + 1);
            reader.read_to_end(&mut decoded).map_err(|_| Unreadable::Damaged)?;
            if decoded.len() > bytes_max {
                return Err(Unreadable::TooLarge { bytes_max });
            }
            Ok(decoded)
        }
        Some(other) => Err(Unreadable::Unknown(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::{Unreadable, decode};

    #[test]
    fn a_body_is_decoded_up_to_the_limit() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&[b'x'; 5000]).expect("memory");
        let bomb = encoder.finish().expect("memory");
        for (body, encoding, expected) in [
            (b"abc".to_vec(), None, Ok(3)),
            (b"abc".to_vec(), Some("identity"), Ok(3)),
            (bomb.clone(), Some("GZIP"), Ok(5000)),
            (Vec::new(), Some("gzip"), Ok(0)),
            (b"abc".to_vec(), Some("gzip"), Err(Unreadable::Damaged)),
            (bomb[..bomb.len() - 9].to_vec(), Some("gzip"), Err(Unreadable::Damaged)),
            (b"abc".to_vec(), Some("br"), Err(Unreadable::Unknown("br".to_owned()))),
        ] {
            let got = decode(body, encoding, 5000).map(|decoded| decoded.len());
            assert_eq!(got, expected, "{encoding:?}");
        }
        assert_eq!(decode(bomb, Some("gzip"), 4999), Err(Unreadable::TooLarge { bytes_max: 4999 }));
    }
}
