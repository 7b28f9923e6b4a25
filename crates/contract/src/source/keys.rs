//! Sets and maps of key values, for questions that follow a link to another collection.
//!
//! A link may join a file to a database, so values are compared in their canonical form ([`crate::aggregate::canonical`]):
//! an integer is the same in every source, whether it is stored as digits or as a number.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::aggregate::{Canonical, canonical};
use crate::data_type::DataType;
use crate::value::{Value, ValueRef};

/// The values of a link's column in the rows of another collection that pass filters. NULL is never one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet {
    integers: HashSet<i64>,
    texts: HashSet<String>,
}

impl KeySet {
    /// Adds a value of a column of this type. Values that cannot be keys, such as blobs, are left out.
    pub fn insert(&mut self, kind: DataType, value: ValueRef<'_>) {
        match canonical(kind, value) {
            Canonical::Integer(n) => {
                self.integers.insert(n);
            }
            Canonical::Text(text) => {
                if !self.texts.contains(&*text) {
                    self.texts.insert(text.into_owned());
                }
            }
            Canonical::Null | Canonical::Real(_) | Canonical::Blob(_) => {}
        }
    }

    /// Whether a value of a column of this type is in the set.
    pub fn contains(&self, kind: DataType, value: ValueRef<'_>) -> bool {
        match canonical(kind, value) {
            Canonical::Integer(n) => self.integers.contains(&n),
            Canonical::Text(text) => self.texts.contains(&*text),
            Canonical::Null | Canonical::Real(_) | Canonical::Blob(_) => false,
        }
    }

    pub fn len(&self) -> usize {
        self.integers.len() + self.texts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = ValueRef<'_>> {
        let integers = self.integers.iter().map(|n| ValueRef::Integer(*n));
        integers.chain(self.texts.iter().map(|text| ValueRef::Text(text)))
    }
}

/// The value that a row of another collection has, by the row's key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyMap {
    integers: HashMap<i64, u32>,
    texts: HashMap<String, u32>,
    values: Vec<Value>,
}

/// Two rows have the same key and different values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmbiguousKey;

impl KeyMap {
    /// Adds the value of the row with this key. Both are in their canonical form.
    pub fn insert(&mut self, key: Value, value: Value) -> Result<(), AmbiguousKey> {
        let next = self.values.len() as u32;
        let index = match key {
            Value::Integer(n) => insert_new(self.integers.entry(n), next),
            Value::Text(text) => insert_new(self.texts.entry(text), next),
            Value::Null | Value::Real(_) | Value::Blob(_) => return Ok(()),
        };
        match self.values.get(index as usize) {
            None => self.values.push(value),
            Some(known) if *known == value => {}
            Some(_) => return Err(AmbiguousKey),
        }
        Ok(())
    }

    /// All keys with their values, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = (ValueRef<'_>, &Value)> {
        let value = |index: &u32| self.values.get(*index as usize).unwrap_or(&Value::Null);
        let integers = self.integers.iter().map(move |(key, index)| (ValueRef::Integer(*key), value(index)));
        let texts = self.texts.iter().map(move |(key, index)| (ValueRef::Text(key), value(index)));
        integers.chain(texts)
    }

    /// The value of the row with this key; NULL if there is no such row.
    pub fn get(&self, kind: DataType, key: ValueRef<'_>) -> &Value {
        let index = match canonical(kind, key) {
            Canonical::Integer(n) => self.integers.get(&n),
            Canonical::Text(text) => self.texts.get(&*text),
            Canonical::Null | Canonical::Real(_) | Canonical::Blob(_) => None,
        };
        index.and_then(|index| self.values.get(*index as usize)).unwrap_or(&Value::Null)
    }
}

/// What rows of another collection have in one of its fields, by the keys of those rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkedValues<'a> {
    pub map: &'a KeyMap,
    /// The type of the values.
    pub kind: DataType,
}

impl<'a> LinkedValues<'a> {
    /// The value for a row whose column of type `kind` has this key.
    pub fn get(&self, kind: DataType, key: ValueRef<'_>) -> ValueRef<'a> {
        self.map.get(kind, key).as_value_ref()
    }
}

fn insert_new<K>(entry: Entry<'_, K, u32>, next: u32) -> u32 {
    *entry.or_insert(next)
}

/// Whether rows can be linked by a column of one type and a column of another: both types write equal values alike.
pub fn are_linkable(one: DataType, other: DataType) -> bool {
    match (one, other) {
        (DataType::Text, DataType::Text) | (DataType::Date, DataType::Date) => true,
        (DataType::Integer | DataType::Int64, DataType::Integer | DataType::Int64) => true,
        // Numbers and timestamps have several spellings, booleans few values, and the others cannot be compared.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{AmbiguousKey, KeyMap, KeySet, are_linkable};
    use crate::data_type::DataType;
    use crate::value::{Value, ValueRef};

    #[test]
    fn values_are_the_same_in_every_source() {
        let mut keys = KeySet::default();
        keys.insert(DataType::Integer, ValueRef::Text("5"));
        keys.insert(DataType::Text, ValueRef::Text("007"));
        for (kind, value, expected) in [
            (DataType::Integer, ValueRef::Integer(5), true),
            (DataType::Int64, ValueRef::Text("5"), true),
            (DataType::Integer, ValueRef::Integer(7), false),
            (DataType::Text, ValueRef::Text("5"), false),
            (DataType::Text, ValueRef::Text("007"), true),
            (DataType::Text, ValueRef::Text("7"), false),
            (DataType::Text, ValueRef::Integer(7), false),
            (DataType::Text, ValueRef::Null, false),
            (DataType::Text, ValueRef::Blob(b"007"), false),
        ] {
            assert_eq!(keys.contains(kind, value), expected, "{kind:?} {value:?}");
        }
        assert_eq!((keys.len(), keys.values().count()), (2, 2));
        keys.insert(DataType::Text, ValueRef::Null);
        assert_eq!(keys.len(), 2);
    }

    #[test]
    fn a_map_has_one_value_for_each_key() {
        let mut map = KeyMap::default();
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(map.insert(Value::Integer(1), text("DE")), Ok(()));
        assert_eq!(map.insert(Value::Integer(1), text("DE")), Ok(()));
        assert_eq!(map.insert(text("x"), Value::Null), Ok(()));
        assert_eq!(map.insert(Value::Integer(1), text("FR")), Err(AmbiguousKey));
        assert_eq!(map.get(DataType::Integer, ValueRef::Text("1")), &text("DE"));
        assert_eq!(map.get(DataType::Integer, ValueRef::Integer(2)), &Value::Null);
        assert_eq!(map.get(DataType::Integer, ValueRef::Null), &Value::Null);
        assert_eq!(map.get(DataType::Text, ValueRef::Text("x")), &Value::Null);
    }

    #[test]
    fn only_types_with_one_spelling_are_linked() {
        for one in DataType::ALL {
            for other in DataType::ALL {
                assert_eq!(are_linkable(one, other), are_linkable(other, one), "{one:?} {other:?}");
            }
            let alone = matches!(one, DataType::Text | DataType::Date | DataType::Integer | DataType::Int64);
            assert_eq!(are_linkable(one, one), alone, "{one:?}");
        }
        assert!(are_linkable(DataType::Integer, DataType::Int64));
        assert!(!are_linkable(DataType::Integer, DataType::Text));
    }
}
