//! The records of a list, and which of them are the same.

use std::collections::HashMap;
use std::ops::Range;

use contract::manifest::rest::ListEndpoint;
use contract::source::{SourceError, TableOptions, TableShape};
use json::{Json, Node};

use super::{ReadBounds, ReadError, too_much};
use crate::response::{self, incompatible};

/// Where the key and the columns are in a record: JSON pointers. Records without a key are all different.
#[derive(Debug, Default)]
pub(crate) struct RecordKeys {
    key: Vec<String>,
    columns: Vec<String>,
    /// The names of the key's columns.
    names: Vec<String>,
}

impl RecordKeys {
    pub(crate) fn new(shape: &TableShape, options: &TableOptions) -> Self {
        let pointer = |name: &String| {
            let declared = options.columns.iter().find(|column| column.name == *name);
            let escaped = || format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            declared.and_then(|column| column.path.clone()).unwrap_or_else(escaped)
        };
        let names: Vec<String> = shape.key.iter().map(|at| shape.columns[*at].name.clone()).collect();
        Self {
            key: names.iter().map(pointer).collect(),
            columns: shape.columns.iter().map(|column| pointer(&column.name)).collect(),
            names,
        }
    }

    /// The parts of a record's key as text; `None` if it has no key.
    fn key_of(&self, record: Node<'_>) -> Option<Vec<String>> {
        let parts = self.key.iter().map(|at| response::scalar_text(response::pointer(record, at)?));
        parts.collect::<Option<Vec<String>>>().filter(|parts| !parts.is_empty())
    }

    /// Whether two records have the same values in the columns of the collection.
    fn are_equal(&self, one: Node<'_>, other: Node<'_>) -> bool {
        self.columns.iter().all(|at| {
            let value = |record| response::pointer(record, at).map(|node| node.raw());
            value(one) == value(other)
        })
    }
}

/// The records of a JSON array, as text.
pub(crate) struct Records<'k> {
    keys: &'k RecordKeys,
    array: Vec<u8>,
    rows: usize,
    /// Where the records with these keys are.
    seen: HashMap<Vec<String>, Range<usize>>,
    /// The records of the page before, as text.
    last_page: Vec<String>,
}

/// What a page adds.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// How many of its records are new.
    pub(super) records: usize,
    /// The key of a record that an earlier page has, too, for the operator and the caller.
    pub(super) repeated: Option<String>,
    /// It has the records of the page before, and at least one.
    pub(super) is_same_page: bool,
}

impl<'k> Records<'k> {
    pub(crate) fn new(keys: &'k RecordKeys) -> Self {
        Self { keys, array: vec![b'['], rows: 0, seen: HashMap::new(), last_page: Vec::new() }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn into_array(mut self) -> Vec<u8> {
        self.array.push(b']');
        self.array
    }

    /// Adds the records of a page. One that an earlier page has with the same values is the same record. Within one page, and
    /// without a key, no record is another.
    pub(super) fn push_page(
        &mut self,
        items: &[Node<'_>],
        bounds: ReadBounds,
        endpoint: &ListEndpoint,
    ) -> Result<Added, ReadError> {
        let texts: Vec<String> = items.iter().map(|item| item.raw().to_owned()).collect();
        let is_same_page = !texts.is_empty() && texts == self.last_page;
        self.last_page = texts;
        let mut added = Added { is_same_page, ..Added::default() };
        let mut new = Vec::new();
        for item in items {
            let key = self.keys.key_of(*item);
            if let Some((key, place)) = key.as_ref().and_then(|key| self.seen.get_key_value(key)) {
                let shown = format!("`{}` {}", self.keys.names.join("`, `"), key.join(", "));
                if !self.is_record_at(place, *item) {
                    return Err(ReadError::Changed(format!(
                        "two pages have different records with the same {shown}"
                    )));
                }
                added.repeated = Some(shown);
                continue;
            }
            let place = self.push(item, bounds, endpoint)?;
            added.records += 1;
            new.extend(key.map(|key| (key, place)));
        }
        self.seen.extend(new);
        Ok(added)
    }

    /// Adds a record, unless it has the key of an earlier one.
    pub(crate) fn push_unless_known(
        &mut self,
        record: &Node<'_>,
        bounds: ReadBounds,
        endpoint: &ListEndpoint,
    ) -> Result<(), SourceError> {
        let key = self.keys.key_of(*record);
        if key.as_ref().is_some_and(|key| self.seen.contains_key(key)) {
            return Ok(());
        }
        let place = self.push(record, bounds, endpoint)?;
        self.seen.extend(key.map(|key| (key, place)));
        Ok(())
    }

    /// Adds a record, and returns where it is.
    pub(super) fn push(
        &mut self,
        record: &Node<'_>,
        bounds: ReadBounds,
        endpoint: &ListEndpoint,
    ) -> Result<Range<usize>, SourceError> {
        if !record.is_object() {
            let message = "the API returned a record that is not an object";
            return Err(incompatible(message, message));
        }
        if self.rows == bounds.rows_max {
            return Err(too_much(&format!("{} rows (`read_rows_max`)", bounds.rows_max), endpoint));
        }
        if self.rows > 0 {
            self.array.push(b',');
        }
        let start = self.array.len();
        self.array.extend_from_slice(record.raw().as_bytes());
        self.rows += 1;
        if self.array.len() > bounds.bytes_max {
            return Err(too_much(&format!("{} bytes", bounds.bytes_max), endpoint));
        }
        Ok(start..self.array.len())
    }

    fn is_record_at(&self, place: &Range<usize>, item: Node<'_>) -> bool {
        let text = std::str::from_utf8(&self.array[place.clone()]).unwrap_or_default();
        text == item.raw()
            || Json::parse(text).is_ok_and(|known| self.keys.are_equal(known.to_doc().root(), item))
    }
}
