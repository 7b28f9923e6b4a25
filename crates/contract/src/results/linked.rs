//! Rows of a link, collected for all rows of a result at once, and added to each of them.

use std::collections::HashMap;

use spile_core::{ToolContent, ToolResult};

use super::{RecordError, append_member, push_readable, write_record};
use crate::aggregate::canonical;
use crate::contract::{Cardinality, Collection, Link};
use crate::data_type::DataType;
use crate::source::RowFlow;
use crate::value::{Value, ValueRef};

/// The rows of one link, for some keys.
pub struct LinkedRows<'c> {
    link: &'c Link,
    target: &'c Collection,
    groups: HashMap<Vec<u8>, LinkedGroup>,
    /// Each row once, as JSON and as text.
    rows: Vec<(Vec<u8>, String)>,
    stored_bytes: usize,
    bytes_max: usize,
    seen: usize,
    seen_max: usize,
    is_complete: bool,
    error: Option<RecordError>,
}

/// The rows for one key.
#[derive(Default)]
struct LinkedGroup {
    /// Indexes into the stored rows.
    rows: Vec<usize>,
    /// How many rows there are, stored or not.
    total: usize,
}

/// A row that is left out of a link to one: the limit of bytes is reached.
const OMITTED: &[u8] = b"{\"_truncated\":true}";
/// Written around the rows of a link to many.
const ENVELOPE_BYTES: usize = 64;

impl<'c> LinkedRows<'c> {
    /// For rows of `own` with these values in the link's own fields. Stores at most `bytes_max`, and looks at
    /// `seen_max` rows.
    pub fn new(
        link: &'c Link,
        own: &Collection,
        target: &'c Collection,
        keys: impl Iterator<Item = Vec<Value>>,
        bytes_max: usize,
        seen_max: usize,
    ) -> Self {
        let keys = keys.filter_map(|key| own_key(link, own, &key));
        Self {
            groups: keys.map(|key| (key, LinkedGroup::default())).collect(),
            link,
            target,
            rows: Vec::new(),
            stored_bytes: 0,
            bytes_max,
            seen: 0,
            seen_max,
            is_complete: true,
            error: None,
        }
    }

    /// Adds a row of the target. Rows of other keys are ignored: a source may compare only one of several fields.
    pub fn push(&mut self, cells: &[ValueRef<'_>]) -> RowFlow {
        if self.seen == self.seen_max {
            self.is_complete = false;
            return RowFlow::Stop;
        }
        self.seen += 1;
        let fields =
            self.link.fields.iter().map(|(_, field)| (self.target.fields[*field].data_type, cells[*field]));
        let Some(group) = key_bytes(fields).and_then(|key| self.groups.get_mut(&key)) else {
            return RowFlow::Continue;
        };
        group.total += 1;
        let rows_max = match self.link.cardinality {
            Cardinality::ToOne => 1,
            Cardinality::ToMany { rows_max, .. } => rows_max,
        };
        if group.rows.len() >= rows_max || self.stored_bytes > self.bytes_max {
            return RowFlow::Continue;
        }
        let mut json = Vec::new();
        if let Err(error) = write_record(&mut json, self.target, cells) {
            self.error = Some(error);
            return RowFlow::Stop;
        }
        self.stored_bytes += json.len();
        if self.stored_bytes <= self.bytes_max {
            group.rows.push(self.rows.len());
            let mut text = String::new();
            for (at, field) in self.target.fields.iter().enumerate() {
                text.push_str(if at == 0 { "\n" } else { " | " });
                push_readable(&mut text, field, cells[at]);
            }
            self.rows.push((json, text));
        }
        RowFlow::Continue
    }

    /// Whether every row of the target was looked at.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Sets the number of rows of each key, where not every row was looked at.
    pub fn set_totals(&mut self, totals: impl Iterator<Item = (Value, usize)>) {
        let [(_, field)] = self.link.fields[..] else { return };
        let kind = self.target.fields[field].data_type;
        for (key, total) in totals {
            let group = key_bytes(std::iter::once((kind, key.as_value_ref())))
                .and_then(|key| self.groups.get_mut(&key));
            if let Some(group) = group {
                group.total = total;
            }
        }
        self.is_complete = true;
    }

    /// Fails if a row cannot be returned, or if a link to one leads to several.
    pub fn check(&self) -> Result<(), LinkError> {
        if let Some(error) = &self.error {
            return Err(LinkError::Record(error.clone()));
        }
        match self.link.is_to_one() && self.groups.values().any(|group| group.total > 1) {
            true => Err(LinkError::Ambiguous),
            false => Ok(()),
        }
    }

    /// Adds the member of one row. `bytes_left` is what all members may still take.
    fn write_member(&self, out: &mut Vec<u8>, own: &Collection, key: &[Value], bytes_left: &mut usize) {
        let group = own_key(self.link, own, key).and_then(|key| self.groups.get(&key));
        append_member(out, &self.link.name, |out| {
            let start = out.len();
            match &self.link.cardinality {
                Cardinality::ToOne => self.write_one(out, group, *bytes_left),
                Cardinality::ToMany { .. } => self.write_many(out, group, *bytes_left),
            }
            *bytes_left = bytes_left.saturating_sub(out.len() - start);
        });
    }

    fn write_one(&self, out: &mut Vec<u8>, group: Option<&LinkedGroup>, bytes_left: usize) {
        let row = group.and_then(|group| group.rows.first()).map(|index| &self.rows[*index].0);
        match (row, group) {
            (Some(row), _) if row.len() <= bytes_left => out.extend_from_slice(row),
            (Some(_), _) => out.extend_from_slice(OMITTED),
            (None, Some(group)) if group.total > 0 || !self.is_complete => out.extend_from_slice(OMITTED),
            (None, _) => out.extend_from_slice(b"null"),
        }
    }

    fn write_many(&self, out: &mut Vec<u8>, group: Option<&LinkedGroup>, bytes_left: usize) {
        let mut bytes_left = bytes_left.saturating_sub(ENVELOPE_BYTES);
        let mut written = 0;
        out.extend_from_slice(b"{\"items\":[");
        for index in group.into_iter().flat_map(|group| &group.rows) {
            let (row, _) = &self.rows[*index];
            if row.len() >= bytes_left {
                break;
            }
            if written > 0 {
                out.push(b',');
            }
            out.extend_from_slice(row);
            bytes_left -= row.len() + 1;
            written += 1;
        }
        out.push(b']');
        let total = group.map_or(0, |group| group.total);
        // A row without a key has no linked rows, whatever was looked at.
        if self.is_complete || group.is_none() {
            out.extend_from_slice(format!(",\"total\":{total}").as_bytes());
        }
        let is_truncated = written < total || (!self.is_complete && group.is_some());
        out.extend_from_slice(if is_truncated { b",\"truncated\":true}" } else { b",\"truncated\":false}" });
    }

    /// All rows as a table, each once.
    fn text(&self) -> String {
        let (name, target) = (&self.link.name, &self.target.name);
        let is_cut = !self.is_complete || self.groups.values().any(|group| group.rows.len() < group.total);
        let which = match (self.rows.len(), is_cut) {
            (0, false) => return format!("\n\n{name}: no rows of {target}."),
            (rows, true) => format!("{rows} rows of {target}; there are more, which its list has"),
            (1, false) => format!("1 row of {target}"),
            (rows, false) => format!("{rows} rows of {target}"),
        };
        let names: Vec<&str> = self.target.fields.iter().map(|field| field.name.as_str()).collect();
        let mut out = format!("\n\n{name}: {which}:\n{}", names.join(" | "));
        self.rows.iter().for_each(|(_, text)| out.push_str(text));
        out
    }
}

/// Why rows of a link cannot be returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkError {
    Record(RecordError),
    /// A link to one row leads to several.
    Ambiguous,
}

/// The key of a row, from its own values; `None` if it has none.
fn own_key(link: &Link, own: &Collection, values: &[Value]) -> Option<Vec<u8>> {
    let kinds = link.fields.iter().map(|(field, _)| own.fields[*field].data_type);
    key_bytes(kinds.zip(values.iter().map(Value::as_value_ref)))
}

/// Equal for equal keys of any two sources; `None` if a part has no value.
fn key_bytes<'v>(parts: impl Iterator<Item = (DataType, ValueRef<'v>)>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for (kind, value) in parts {
        if value == ValueRef::Null {
            return None;
        }
        canonical(kind, value).write_key(&mut bytes);
    }
    Some(bytes)
}

/// Adds the rows of links to the rows of a result: objects one after the other in `json`, the last byte of each at
/// `row_ends`. `keys` has the values of each link's own fields, for each row.
pub(super) fn splice(
    json: &[u8],
    row_ends: &[usize],
    own: &Collection,
    links: &[LinkedRows<'_>],
    keys: &[Vec<Vec<Value>>],
    bytes_max: usize,
) -> (Vec<u8>, String) {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut start, mut bytes_left) = (0, bytes_max);
    for (end, row_keys) in row_ends.iter().zip(keys) {
        out.extend_from_slice(&json[start..*end]);
        for (link, key) in links.iter().zip(row_keys) {
            link.write_member(&mut out, own, key, &mut bytes_left);
        }
        start = *end;
    }
    out.extend_from_slice(&json[start..]);
    (out, links.iter().map(LinkedRows::text).collect())
}

/// Adds the rows of links to the result of one row. `keys` has the values of each link's own fields.
pub fn with_linked_rows(
    mut result: ToolResult,
    own: &Collection,
    links: &[LinkedRows<'_>],
    keys: Vec<Vec<Value>>,
) -> ToolResult {
    if let Some(structured) = &result.structured {
        let json = structured.as_str().as_bytes();
        let (json, text) = splice(json, &[json.len()], own, links, &[keys], own.bytes_max);
        result.structured = Some(json::Json::from_written_bytes(json));
        if let ToolContent::Text(body) = &mut result.content {
            body.push_str(&text);
        }
    }
    result
}
