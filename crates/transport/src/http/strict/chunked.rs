//! A body in chunks, to the letter of RFC 9112, 7.1: hyper lets pass what it does not need.

use super::{ParseStep, ParserState};

pub(super) struct ChunkedBody {
    /// Of the chunk under way: its size, or what is left of it.
    size: u64,
    state: ChunkState,
}

#[derive(Clone, Copy)]
enum ChunkState {
    Size,
    /// Another digit, or what comes behind a size.
    Digit,
    /// Behind blank space: another extension.
    Extension,
    Name,
    /// More of a name, or what comes behind it.
    InName,
    AfterName,
    Value,
    InValue,
    Quoted,
    Escaped,
    AfterQuote,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    InTrailer,
    TrailerLf,
    LastLf,
}

impl ChunkedBody {
    pub(super) const START: Self = Self { size: 0, state: ChunkState::Size };

    pub(super) fn inspect(&mut self, bytes: &mut [u8]) -> ParseStep {
        let mut at = 0;
        while at < bytes.len() {
            if let ChunkState::Data = self.state {
                let now = self.size.min((bytes.len() - at) as u64);
                self.size -= now;
                at += now as usize;
                if self.size == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            if let (ChunkState::LastLf, b'\n') = (self.state, bytes[at]) {
                return ParseStep::Transition(at + 1, ParserState::START);
            }
            match self.step(bytes[at]) {
                Some(next) => self.state = next,
                None => {
                    bytes[at] = self.poison_byte();
                    return ParseStep::Violation;
                }
            }
            at += 1;
        }
        ParseStep::ConsumedAll
    }

    fn step(&mut self, byte: u8) -> Option<ChunkState> {
        use ChunkState::*;
        Some(match (self.state, byte) {
            (Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.size = hex_value(byte);
                Digit
            }
            (Digit, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.size = self.size.checked_mul(16)? + hex_value(byte);
                Digit
            }
            (Digit | InName | InValue | AfterQuote, b'\r') => SizeLf,
            (Digit | InName | InValue | AfterQuote | Extension | AfterName, b';') => Name,
            (Digit | InValue | AfterQuote | Extension, b' ' | b'\t') => Extension,
            (Name, b' ' | b'\t') => Name,
            (Name | InName, _) if is_token_char(byte) => InName,
            (InName | AfterName, b' ' | b'\t') => AfterName,
            (InName | AfterName, b'=') => Value,
            (Value, b' ' | b'\t') => Value,
            (Value, b'"') => Quoted,
            (Value | InValue, _) if is_token_char(byte) => InValue,
            (Quoted, b'"') => AfterQuote,
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
    fn poison_byte(&self) -> u8 {
        match self.state {
            ChunkState::SizeLf | ChunkState::DataLf | ChunkState::TrailerLf | ChunkState::LastLf => 0,
            ChunkState::Trailer | ChunkState::InTrailer => 0,
            // In the line of a size it takes nearly everything else.
            _ => b'\n',
        }
    }
}

fn hex_value(byte: u8) -> u64 {
    u64::from(char::from(byte).to_digit(16).unwrap_or_default())
}

/// RFC 9110, 5.6.2.
fn is_token_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
