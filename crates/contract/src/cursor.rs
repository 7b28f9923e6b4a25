//! Encodes the position where a page ended. The host seals the bytes, so clients can neither read nor forge them.

use crate::source::CursorPosition;
use crate::value::Value;

/// The maximum size of a cursor: it passes through the model's context with every page.
pub const CURSOR_BYTES_MAX: usize = 4 << 10;
/// A column with a longer value cannot be a key, declared or not: a cursor could not hold it.
pub const KEY_BYTES_MAX: usize = 2 << 10;

const NULL: u8 = 0;
const TEXT: u8 = 1;
const INTEGER: u8 = 2;
const REAL: u8 = 3;
const BLOB: u8 = 4;

pub fn encode(position: &CursorPosition) -> Vec<u8> {
    let sorted = u8::try_from(position.sort_values.len()).expect("`bind` limits the number of sorted fields");
    let mut out = vec![sorted];
    for value in position.sort_values.iter().chain(&position.key) {
        match value {
            Value::Null => out.push(NULL),
            Value::Text(text) => push_value(&mut out, TEXT, text.as_bytes()),
            Value::Integer(n) => push_value(&mut out, INTEGER, &n.to_be_bytes()),
            Value::Real(n) => push_value(&mut out, REAL, &n.to_be_bytes()),
            Value::Blob(bytes) => push_value(&mut out, BLOB, bytes),
        }
    }
    out
}

fn push_value(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// How many bytes a value takes.
pub fn encoded_len(value: &Value) -> usize {
    const HEAD: usize = 5;
    match value {
        Value::Null => 1,
        Value::Text(text) => HEAD + text.len(),
        Value::Integer(_) | Value::Real(_) => HEAD + 8,
        Value::Blob(bytes) => HEAD + bytes.len(),
    }
}

pub fn decode(bytes: &[u8]) -> Option<CursorPosition> {
    let (sorted, mut rest) = bytes.split_first()?;
    let mut values = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        if *kind == NULL {
            values.push(Value::Null);
            rest = after;
            continue;
        }
        let (length, after) = after.split_first_chunk()?;
        let (bytes, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        values.push(match *kind {
            TEXT => Value::Text(String::from_utf8(bytes.into()).ok()?),
            INTEGER => Value::Integer(i64::from_be_bytes(bytes.try_into().ok()?)),
            REAL => Value::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
            BLOB => Value::Blob(bytes.into()),
            _ => return None,
        });
        rest = after;
    }
    let sorted = usize::from(*sorted);
    if values.len() < sorted {
        return None;
    }
    let key = values.split_off(sorted);
    Some(CursorPosition { sort_values: values, key })
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, encoded_len};
    use crate::source::CursorPosition;
    use crate::value::Value;

    #[test]
    fn decode_reverses_encode() {
        let values = [
            Value::Null,
            Value::Text("Größe".into()),
            Value::Text(String::new()),
            Value::Integer(i64::MIN),
            Value::Real(-0.5),
            Value::Blob(vec![0, 255]),
        ];
        for sorted in 0..=values.len() {
            for count in 0..=values.len() {
                let position =
                    CursorPosition { sort_values: values[..sorted].to_vec(), key: values[..count].to_vec() };
                let bytes = encode(&position);
                let sizes = position.sort_values.iter().chain(&position.key).map(encoded_len);
                assert_eq!(bytes.len(), 1 + sizes.sum::<usize>());
                assert_eq!(decode(&bytes).as_ref(), Some(&position));
                for cut in 0..bytes.len() {
                    assert_ne!(decode(&bytes[..cut]).as_ref(), Some(&position), "{cut} bytes are not all");
                }
            }
        }
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[1]), None);
        assert_eq!(decode(&[0, 9, 0, 0, 0, 0]), None);
    }
}
