//! A set of keys as one parameter of a statement, and the SQL function that looks values up in it.

use std::sync::Arc;

use contract::source::KeySet;
use contract::{DataType, ValueRef};
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};

use crate::sqlite::column::from_sqlite;
use crate::sqlite::reserved_names::IN_KEYS_FUNCTION;

/// The keys that a blob holds, and the type of the column that is compared with them.
struct DecodedKeys {
    kind: DataType,
    keys: KeySet,
}

const INTEGER: u8 = 0;
const TEXT: u8 = 1;

/// The type's name, then each key: its tag, its length and its bytes.
pub(super) fn encode(kind: DataType, keys: &KeySet) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 * keys.len() + 16);
    let mut part = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    part(TEXT, kind.as_str().as_bytes());
    for key in keys.values() {
        match key {
            ValueRef::Integer(n) => part(INTEGER, &n.to_le_bytes()),
            ValueRef::Text(text) => part(TEXT, text.as_bytes()),
            // No set has them.
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => {}
        }
    }
    out
}

fn decode(mut bytes: &[u8]) -> Option<DecodedKeys> {
    let mut next = || {
        let (tag, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some((*tag, part))
    };
    let kind = DataType::parse(std::str::from_utf8(next()?.1).ok()?)?;
    let mut keys = KeySet::default();
    while let Some((tag, part)) = next() {
        match tag {
            INTEGER => {
                let number = i64::from_le_bytes(part.try_into().ok()?);
                keys.insert(DataType::Int64, ValueRef::Integer(number));
            }
            _ => keys.insert(DataType::Text, ValueRef::Text(std::str::from_utf8(part).ok()?)),
        }
    }
    Some(DecodedKeys { kind, keys })
}

/// Registers the function of a set and a value. SQLite keeps the decoded set for as long as a statement runs.
pub(super) fn register(connection: &Connection) -> rusqlite::Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function(IN_KEYS_FUNCTION, 2, flags, |context: &Context<'_>| {
        let keys: Arc<DecodedKeys> = context.get_or_create_aux(0, |blob| {
            blob.as_blob().ok().and_then(decode).ok_or("a set of keys is expected")
        })?;
        Ok(keys.keys.contains(keys.kind, from_sqlite(context.get_raw(1))))
    })
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, register};
    use contract::source::KeySet;
    use contract::{DataType, ValueRef};
    use rusqlite::Connection;

    fn keys() -> KeySet {
        let mut keys = KeySet::default();
        for number in [i64::MIN, -1, 0, 7] {
            keys.insert(DataType::Integer, ValueRef::Integer(number));
        }
        for text in ["", "7", "ä"] {
            keys.insert(DataType::Text, ValueRef::Text(text));
        }
        keys
    }

    #[test]
    fn a_set_survives_its_encoding() {
        let decoded = decode(&encode(DataType::Date, &keys())).expect("valid");
        assert_eq!((decoded.kind, decoded.keys), (DataType::Date, keys()));
        let whole = encode(DataType::Text, &keys());
        assert!(decode(&[]).is_none() && decode(b"\x01\xff\xff\xff\xff").is_none());
        assert!(decode(&whole[..8]).is_none());
    }

    #[test]
    fn the_function_compares_as_the_column_does() {
        let connection = Connection::open_in_memory().expect("memory");
        register(&connection).expect("a function");
        for (kind, value, expected) in [
            (DataType::Integer, "7", true),
            (DataType::Integer, "'7'", true),
            (DataType::Integer, "8", false),
            (DataType::Text, "'7'", true),
            (DataType::Text, "7", true),
            (DataType::Text, "''", true),
            (DataType::Text, "'Ä'", false),
            (DataType::Text, "NULL", false),
            (DataType::Text, "x'37'", false),
        ] {
            let sql = format!("SELECT spile_in_keys(?, {value})");
            let found: bool = connection
                .query_row(&sql, [encode(kind, &keys())], |row| row.get(0))
                .unwrap_or_else(|error| panic!("{value}: {error}"));
            assert_eq!(found, expected, "{kind:?} {value}");
        }
        assert!(connection.query_row("SELECT spile_in_keys(1, 1)", [], |_| Ok(())).is_err());
    }
}
