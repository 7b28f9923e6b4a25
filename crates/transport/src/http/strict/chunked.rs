//! A strict parser for chunked bodies (RFC 9112, 7.1): hyper skips what it does not need.

use spile_core::text::is_token_byte;

use super::{ParseStep, ParserState};

pub(super) struct ChunkedBody {
    /// The size of the current chunk, or the bytes left of it.
    size: u64,
    state: ChunkState,
}

#[derive(Clone, Copy)]
enum ChunkState {
    Size,
    /// After a digit of the size.
    Digit,
    /// After whitespace: another extension.
    Extension,
    Name,
    /// After the first character of an extension name.
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
        let mut index = 0;
        while index < bytes.len() {
            if let ChunkState::Data = self.state {
                let taken = self.size.min((bytes.len() - index) as u64);
                self.size -= taken;
                index += taken as usize;
                if self.size == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            if let (ChunkState::LastLf, b'\n') = (self.state, bytes[index]) {
                return ParseStep::Transition(index + 1, ParserState::START);
            }
            match self.step(bytes[index]) {
                Some(next) => self.state = next,
                None => {
                    bytes[index] = self.poison_byte();
                    return ParseStep::Violation;
                }
            }
            index += 1;
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
            (Name | InName, _) if is_token_byte(byte) => InName,
            (InName | AfterName, b' ' | b'\t') => AfterName,
            (InName | AfterName, b'=') => Value,
            (Value, b' ' | b'\t') => Value,
            (Value, b'"') => Quoted,
            (Value | InValue, _) if is_token_byte(byte) => InValue,
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

    /// A byte that hyper rejects in this state.
    fn poison_byte(&self) -> u8 {
        match self.state {
            ChunkState::SizeLf | ChunkState::DataLf | ChunkState::TrailerLf | ChunkState::LastLf => 0,
            ChunkState::Trailer | ChunkState::InTrailer => 0,
            // In a chunk-size line hyper accepts nearly everything else.
            _ => b'\n',
        }
    }
}

fn hex_value(byte: u8) -> u64 {
    u64::from(char::from(byte).to_digit(16).unwrap_or_default())
}
