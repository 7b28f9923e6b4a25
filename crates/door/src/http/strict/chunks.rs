//! A body in chunks, to the letter of RFC 9112, 7.1: hyper lets pass what it does not need.

use super::{At, Seen};

pub(super) struct Chunks {
    /// Of the chunk under way: its size, or what is left of it.
    size: u64,
    expects: Expects,
}

#[derive(Clone, Copy)]
enum Expects {
    Size,
    /// Another digit, or what comes behind a size.
    Digit,
    /// Behind blank space: another extension.
    Extension,
    Name,
    /// More of a name, or what comes behind it.
    InName,
    BehindName,
    Value,
    InValue,
    Quoted,
    Escaped,
    BehindQuote,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    InTrailer,
    TrailerLf,
    LastLf,
}

impl Chunks {
    pub(super) const START: Self = Self { size: 0, expects: Expects::Size };

    pub(super) fn look(&mut self, bytes: &mut [u8]) -> Seen {
        let mut at = 0;
        while at < bytes.len() {
            if let Expects::Data = self.expects {
                let now = self.size.min((bytes.len() - at) as u64);
                self.size -= now;
                at += now as usize;
                if self.size == 0 {
                    self.expects = Expects::DataCr;
                }
                continue;
            }
            if let (Expects::LastLf, b'\n') = (self.expects, bytes[at]) {
                return Seen::Until(at + 1, At::START);
            }
            match self.step(bytes[at]) {
                Some(next) => self.expects = next,
                None => {
                    bytes[at] = self.unreadable();
                    return Seen::Offence;
                }
            }
            at += 1;
        }
        Seen::All
    }

    fn step(&mut self, byte: u8) -> Option<Expects> {
        use Expects::*;
        Some(match (self.expects, byte) {
            (Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.size = digit(byte);
                Digit
            }
            (Digit, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.size = self.size.checked_mul(16)? + digit(byte);
                Digit
            }
            (Digit | InName | InValue | BehindQuote, b'\r') => SizeLf,
            (Digit | InName | InValue | BehindQuote | Extension | BehindName, b';') => Name,
            (Digit | InValue | BehindQuote | Extension, b' ' | b'\t') => Extension,
            (Name, b' ' | b'\t') => Name,
            (Name | InName, _) if is_token(byte) => InName,
            (InName | BehindName, b' ' | b'\t') => BehindName,
            (InName | BehindName, b'=') => Value,
            (Value, b' ' | b'\t') => Value,
            (Value, b'"') => Quoted,
            (Value | InValue, _) if is_token(byte) => InValue,
            (Quoted, b'"') => BehindQuote,
            (Quoted, b'\\') => Escaped,
            (Quoted | Escaped, b'\t' | b' '..=b'~' | 0x80..) => Quoted,
            (SizeLf, b'\n') if self.size > 0 => Data,
            (SizeLf, b'\n') => Trailer,
            (DataCr, b'\r') => DataLf,
            (DataLf, b'\n') => Size,
            (Trailer, b'\r') => LastLf,
            (InTrailer, b'\r') => TrailerLf,
            (Trailer | InTrailer, _) if byte != b'\n' => InTrailer,
            (TrailerLf, b'\n') => Trailer,
            _ => return None,
        })
    }

    /// What hyper does not take at this place.
    fn unreadable(&self) -> u8 {
        match self.expects {
            Expects::SizeLf | Expects::DataLf | Expects::TrailerLf | Expects::LastLf => 0,
            Expects::Trailer | Expects::InTrailer => 0,
            // In the line of a size it takes nearly everything else.
            _ => b'\n',
        }
    }
}

fn digit(byte: u8) -> u64 {
    u64::from(char::from(byte).to_digit(16).unwrap_or_default())
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
