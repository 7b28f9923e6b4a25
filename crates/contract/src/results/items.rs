//! Rows as `items`, one after the other, under a row cap and a byte budget: what pages, searches and statements
//! have in common.

use spile_core::ToolResult;

use super::{
    RECORD_BYTES_MAX, RecordError, WriteResult, append_version, push_readable, record_version, tool_result,
    type_mismatch, write_object, write_record,
};
use crate::bind::Projection;
use crate::contract::{Collection, VERSION_FIELD};
use crate::field::Field;
use crate::source::{RowFlow, SearchCoverage};
use crate::text_template::TextTemplate;
use crate::value::ValueRef;

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
        }
    }

    /// Takes a row, if there is still room for it. Without room the row is not taken, and no more are wanted.
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
            Err(unfit) => {
                self.error = Some(unfit);
                return RowFlow::Stop;
            }
        };
        // The first row is told whatever its size: without it no page would ever get further.
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
        self.push_text_row(cells, version.as_deref());
        RowFlow::Continue
    }

    fn write_row(&mut self, cells: &[ValueRef<'_>]) -> Result<Option<String>, RecordError> {
        let Some(shown) = &self.projection else {
            return write_record(&mut self.json, self.collection, cells);
        };
        let fields = &self.collection.fields;
        let bad = |field: &Field| type_mismatch(self.collection, field, cells);
        write_object(&mut self.json, shown.fields.iter().map(|at| (&fields[*at], cells[*at])))
            .map_err(bad)?;
        if !shown.include_version || !self.collection.has_version_field() {
            return Ok(None);
        }
        let version = record_version(self.collection, cells)?;
        append_version(&mut self.json, &version);
        Ok(Some(version))
    }

    fn push_text_row(&mut self, cells: &[ValueRef<'_>], version: Option<&str>) {
        self.text.push('\n');
        let fields = &self.collection.fields;
        if let Some(line) = self.template {
            self.text.push_str(&line.render(fields, cells));
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

    /// The fields that are shown, by place.
    fn field_indexes(&self) -> impl Iterator<Item = usize> + use<> {
        let all = 0..self.collection.fields.len();
        match &self.projection {
            None => all.collect::<Vec<_>>().into_iter(),
            Some(shown) => shown.fields.clone().into_iter(),
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

    /// The table under a line that says how much of it this is: `of` so many, and what to do about more.
    pub(super) fn to_text(&self, of: &str, more: &str) -> String {
        let name = &self.collection.name;
        let more = if self.truncated { more } else { "" };
        let mut out = format!("{name}: {}{of}{more}", self.row_count);
        if self.row_count > 0 && self.template.is_none() {
            out.push('\n');
            let fields = &self.collection.fields;
            let mut names: Vec<&str> = self.field_indexes().map(|at| fields[at].name.as_str()).collect();
            let version = self.projection.as_ref().is_none_or(|shown| shown.include_version);
            names.extend((version && self.collection.has_version_field()).then_some(VERSION_FIELD));
            out.push_str(&names.join(" | "));
        }
        out.push_str(&self.text);
        out
    }
}

/// Rows without pages: what a search found, or a statement gave.
pub struct RowList<'c>(Items<'c>);

impl<'c> RowList<'c> {
    pub fn new(
        collection: &'c Collection,
        line: Option<&'c TextTemplate>,
        shown: Option<Projection>,
        rows_max: usize,
    ) -> Self {
        Self(Items::new(collection, line, shown, rows_max))
    }

    pub fn push(&mut self, cells: &[ValueRef<'_>]) -> RowFlow {
        self.0.push(cells)
    }

    /// What a search found, and how far it looked.
    pub fn into_search_result(
        self,
        searched: SearchCoverage,
        scan_rows_max: usize,
    ) -> Result<ToolResult, RecordError> {
        self.0.check()?;
        let mut items = self.0;
        // Rows that were not looked at may match as well.
        let found_more = items.truncated;
        items.truncated |= searched == SearchCoverage::Truncated;
        let looked = match searched {
            SearchCoverage::Complete => "all".to_owned(),
            SearchCoverage::Truncated => format!("first {scan_rows_max} rows"),
        };
        let mut out = vec![b'{'];
        items.write_items(&mut out);
        items.write_truncated(&mut out);
        out.extend_from_slice(b",\"searched\":");
        json::write::string(&mut out, &looked);
        out.push(b'}');
        let of =
            if searched == SearchCoverage::Truncated { format!(" in the {looked}") } else { String::new() };
        let more = if found_more {
            "; there are more: add words to the query"
        } else {
            "; other rows were not searched"
        };
        Ok(tool_result(items.to_text(&of, more), out))
    }

    /// What a statement gave.
    pub fn into_statement_result(self) -> Result<ToolResult, RecordError> {
        self.0.check()?;
        let mut out = vec![b'{'];
        self.0.write_items(&mut out);
        self.0.write_truncated(&mut out);
        out.push(b'}');
        Ok(tool_result(self.0.to_text("", MORE_ROWS_TEXT), out))
    }

    /// What a statement that writes gave, and how many rows it changed.
    pub fn to_write_result(&self, changed: u64) -> Result<WriteResult, RecordError> {
        self.0.check()?;
        let mut structured = format!("{{\"changed\":{changed}").into_bytes();
        let mut text = rows_changed_text(changed);
        if !self.0.collection.fields.is_empty() {
            structured.push(b',');
            self.0.write_items(&mut structured);
            self.0.write_truncated(&mut structured);
            text.push('\n');
            text.push_str(&self.0.to_text("", MORE_ROWS_TEXT));
        }
        structured.push(b'}');
        Ok(WriteResult { structured, text })
    }
}

const MORE_ROWS_TEXT: &str = "; there are more";

pub(super) fn rows_changed_text(changed: u64) -> String {
    if changed == 1 { "1 row changed".to_owned() } else { format!("{changed} rows changed") }
}
