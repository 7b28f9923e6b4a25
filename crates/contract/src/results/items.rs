//! Collects rows as `items` within a row limit and a byte limit: for pages and statements.

use spile_core::ToolResult;

use super::linked::{self, LinkedRows};
use super::{
    RECORD_BYTES_MAX, RecordError, WriteResult, append_member, push_readable, record_version, tool_result,
    type_mismatch, write_object, write_record,
};
use crate::bind::Projection;
use crate::contract::{Collection, VERSION_FIELD};
use crate::field::Field;
use crate::source::RowFlow;
use crate::text_template::TextTemplate;
use crate::value::{Value, ValueRef};

pub(super) struct Items<'c> {
    pub(super) collection: &'c Collection,
    template: Option<&'c TextTemplate>,
    projection: Option<Projection>,
    rows_max: usize,
    json: Vec<u8>,
    text: String,
    row_count: usize,
    truncated: bool,
    error: Option<RecordError>,
    links: Option<LinkKeys>,
}

/// What is kept of each row to add the rows of links to it.
#[derive(Default)]
struct LinkKeys {
    /// The own fields of each link.
    fields: Vec<Vec<usize>>,
    /// Their values: for each row, for each link.
    keys: Vec<Vec<Vec<Value>>>,
    /// Where each row ends in the JSON.
    row_ends: Vec<usize>,
    /// The rows of the links, after all others.
    text: String,
}

impl<'c> Items<'c> {
    pub(super) fn new(
        collection: &'c Collection,
        template: Option<&'c TextTemplate>,
        projection: Option<Projection>,
        rows_max: usize,
    ) -> Self {
        Self {
            collection,
            template,
            projection,
            rows_max,
            json: Vec::new(),
            text: String::new(),
            row_count: 0,
            truncated: false,
            error: None,
            links: None,
        }
    }

    /// Keeps the values of these fields of each row, for each link.
    pub(super) fn keep_link_keys(&mut self, fields: Vec<Vec<usize>>) {
        self.links = Some(LinkKeys { fields, ..LinkKeys::default() });
    }

    /// The kept values: for each row, for each link.
    pub(super) fn link_keys(&self) -> &[Vec<Vec<Value>>] {
        self.links.as_ref().map_or(&[], |links| &links.keys)
    }

    /// Adds the rows of links to all rows so far.
    pub(super) fn add_linked_rows(&mut self, linked: &[LinkedRows<'_>]) {
        let Some(LinkKeys { keys, row_ends, text, .. }) = &mut self.links else { return };
        let bytes_max = self.collection.bytes_max;
        (self.json, *text) = linked::splice(&self.json, row_ends, self.collection, linked, keys, bytes_max);
    }

    /// Adds a row, unless a limit is reached; then the result is truncated and no more rows are needed.
    pub(super) fn push(&mut self, cells: &[ValueRef<'_>]) -> RowFlow {
        if self.row_count == self.rows_max {
            self.truncated = true;
            return RowFlow::Stop;
        }
        let before = self.json.len();
        if self.row_count > 0 {
            self.json.push(b',');
        }
        let version = match self.write_row(cells) {
            Ok(version) => version,
            Err(error) => {
                self.error = Some(error);
                return RowFlow::Stop;
            }
        };
        // The first row is returned whatever its size, or paging would never get past it.
        if self.json.len() > self.collection.bytes_max && self.row_count > 0 {
            self.json.truncate(before);
            self.truncated = true;
            return RowFlow::Stop;
        }
        if self.json.len() > RECORD_BYTES_MAX {
            self.error = Some(RecordError::TooLarge { bytes: self.json.len() });
            return RowFlow::Stop;
        }
        self.row_count += 1;
        if let Some(LinkKeys { fields, keys, row_ends, .. }) = &mut self.links {
            let values = |fields: &Vec<usize>| fields.iter().map(|at| cells[*at].to_value()).collect();
            keys.push(fields.iter().map(values).collect());
            row_ends.push(self.json.len());
        }
        self.push_text_row(cells, version.as_deref());
        RowFlow::Continue
    }

    fn write_row(&mut self, cells: &[ValueRef<'_>]) -> Result<Option<String>, RecordError> {
        let Some(projection) = &self.projection else {
            return write_record(&mut self.json, self.collection, cells);
        };
        let fields = &self.collection.fields;
        let mismatch = |field: &Field| type_mismatch(self.collection, field, cells);
        write_object(&mut self.json, projection.fields.iter().map(|at| (&fields[*at], cells[*at])))
            .map_err(mismatch)?;
        if !projection.include_version || !self.collection.has_version_field() {
            return Ok(None);
        }
        let version = record_version(self.collection, cells)?;
        append_member(&mut self.json, VERSION_FIELD, |out| json::write::string(out, &version));
        Ok(Some(version))
    }

    fn push_text_row(&mut self, cells: &[ValueRef<'_>], version: Option<&str>) {
        self.text.push('\n');
        let fields = &self.collection.fields;
        if let Some(template) = self.template {
            self.text.push_str(&template.render(fields, cells));
            return;
        }
        let mut first = true;
        for at in self.field_indexes() {
            if !std::mem::take(&mut first) {
                self.text.push_str(" | ");
            }
            push_readable(&mut self.text, &fields[at], cells[at]);
        }
        if let Some(version) = version {
            self.text.push_str(if first { "" } else { " | " });
            self.text.push_str(version);
        }
    }

    /// The indexes of the selected fields.
    fn field_indexes(&self) -> impl Iterator<Item = usize> + use<> {
        let all = 0..self.collection.fields.len();
        match &self.projection {
            None => all.collect::<Vec<_>>().into_iter(),
            Some(projection) => projection.fields.clone().into_iter(),
        }
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }

    pub(super) fn check(&self) -> Result<(), RecordError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// `"items":[…]`
    pub(super) fn write_items(&self, out: &mut Vec<u8>) {
        out.reserve(self.json.len() + 128);
        out.extend_from_slice(b"\"items\":[");
        out.extend_from_slice(&self.json);
        out.push(b']');
    }

    /// `,"truncated":false`
    pub(super) fn write_truncated(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.truncated { b",\"truncated\":true" } else { b",\"truncated\":false" });
    }

    /// A summary line, then the rows as a table: `2 of 3 matching rows of stock:`. `which` stands before "rows", `scope`
    /// after the name; `more` tells how to get further rows.
    pub(super) fn to_text(&self, which: &str, scope: &str, more: &str) -> String {
        let name = &self.collection.name;
        let more = if self.truncated { more } else { "" };
        if self.row_count == 0 {
            let matching = if which.is_empty() { "" } else { " match" };
            return format!("No rows of {name}{scope}{matching}{more}.");
        }
        let rows = if self.row_count == 1 && !which.contains(" of ") { "row" } else { "rows" };
        let mut out = format!("{}{which} {rows} of {name}{scope}{more}:", self.row_count);
        if self.template.is_none() {
            out.push('\n');
            let fields = &self.collection.fields;
            let mut names: Vec<&str> = self.field_indexes().map(|at| fields[at].name.as_str()).collect();
            let version = self.projection.as_ref().is_none_or(|projection| projection.include_version);
            names.extend((version && self.collection.has_version_field()).then_some(VERSION_FIELD));
            out.push_str(&names.join(" | "));
        }
        out.push_str(&self.text);
        out.push_str(self.links.as_ref().map_or("", |links| &links.text));
        out
    }
}

/// Rows without a cursor: the result of a statement.
pub struct RowList<'c>(Items<'c>);

impl<'c> RowList<'c> {
    pub fn new(
        collection: &'c Collection,
        template: Option<&'c TextTemplate>,
        projection: Option<Projection>,
        rows_max: usize,
    ) -> Self {
        Self(Items::new(collection, template, projection, rows_max))
    }

    pub fn push(&mut self, cells: &[ValueRef<'_>]) -> RowFlow {
        self.0.push(cells)
    }

    /// The result of a statement that reads.
    pub fn into_statement_result(self) -> Result<ToolResult, RecordError> {
        self.0.check()?;
        let mut out = vec![b'{'];
        self.0.write_items(&mut out);
        self.0.write_truncated(&mut out);
        out.push(b'}');
        Ok(tool_result(self.0.to_text("", "", MORE_ROWS_TEXT), out))
    }

    /// The result of a statement that writes.
    pub fn to_write_result(&self, changed: u64) -> Result<WriteResult, RecordError> {
        self.0.check()?;
        let mut structured = format!("{{\"changed\":{changed}").into_bytes();
        let mut rows = String::new();
        if !self.0.collection.fields.is_empty() {
            structured.push(b',');
            self.0.write_items(&mut structured);
            self.0.write_truncated(&mut structured);
            rows.push('\n');
            rows.push_str(&self.0.to_text("", "", MORE_ROWS_TEXT));
        }
        structured.push(b'}');
        Ok(WriteResult::statement(structured, changed, &rows))
    }
}

const MORE_ROWS_TEXT: &str = "; more rows match";
