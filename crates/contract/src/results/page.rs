//! One page of a list, with the cursor of the next page.

use spile_core::ToolResult;

use super::items::Items;
use super::linked::LinkedRows;
use super::{RecordError, tool_result};
use crate::bind::Projection;
use crate::contract::Collection;
use crate::cursor::{self, CURSOR_BYTES_MAX};
use crate::field::Field;
use crate::source::{
    CursorPosition, LinkedSort, RowFlow, RowPosition, SearchCoverage, SearchCursor, SearchOutcome, Total,
};
use crate::text_template::TextTemplate;
use crate::value::{Value, ValueRef};

/// Collects the rows of a page.
pub struct Page<'c> {
    items: Items<'c>,
    sort: Vec<LinkedSort<'c>>,
    last_position: Option<CursorPosition>,
    last_row_number: i64,
}

impl<'c> Page<'c> {
    pub fn new(
        collection: &'c Collection,
        template: Option<&'c TextTemplate>,
        projection: Option<Projection>,
        sort: Vec<LinkedSort<'c>>,
        rows_max: usize,
    ) -> Self {
        let items = Items::new(collection, template, projection, rows_max);
        Self { items, sort, last_position: None, last_row_number: 0 }
    }

    /// Keeps the values of these fields of each row, for each link whose rows are added later.
    pub fn keep_link_keys(&mut self, fields: Vec<Vec<usize>>) {
        self.items.keep_link_keys(fields);
    }

    /// The kept values: for each row, for each link.
    pub fn link_keys(&self) -> &[Vec<Vec<Value>>] {
        self.items.link_keys()
    }

    /// Adds the rows of links to all rows so far.
    pub fn add_linked_rows(&mut self, linked: &[LinkedRows<'_>]) {
        self.items.add_linked_rows(linked);
    }

    /// Adds a row, unless a limit is reached.
    pub fn push(&mut self, cells: &[ValueRef<'_>], position: RowPosition) -> RowFlow {
        let flow = self.items.push(cells);
        if flow == RowFlow::Continue {
            self.last_row_number = position.row_number;
            let key = match &*self.items.collection.shape.key {
                [] => vec![
                    ValueRef::Integer(position.row_number).to_value(),
                    ValueRef::Integer(position.table_version).to_value(),
                ],
                key => {
                    let ties = (position.ties > 0).then(|| Value::Integer(position.ties.into()));
                    key.iter().map(|at| cells[*at].to_value()).chain(ties).collect()
                }
            };
            let fields = &self.items.collection.fields;
            let sort_value = |by: &LinkedSort<'_>| {
                let column = by.sort.column;
                by.value(fields[column].data_type, cells[column]).to_value()
            };
            let sort_values = self.sort.iter().map(sort_value).collect();
            self.last_position = Some(CursorPosition { sort_values, key });
        }
        flow
    }

    /// The result of a list. `seal` turns the position where the page ended into a cursor.
    pub fn finish(
        self,
        total: Option<Total>,
        seal: impl FnOnce(&CursorPosition) -> String,
    ) -> Result<ToolResult, RecordError> {
        self.finish_with(total, None, seal)
    }

    /// The result of a search that scanned at most `scan_rows_max` rows.
    pub fn finish_search(
        mut self,
        outcome: SearchOutcome,
        scan_rows_max: usize,
        seal: impl FnOnce(&CursorPosition) -> String,
    ) -> Result<ToolResult, RecordError> {
        if let (SearchCursor::Position, Some(last)) = (outcome.cursor, &mut self.last_position) {
            *last =
                CursorPosition { sort_values: vec![Value::Integer(self.last_row_number)], key: Vec::new() };
            self.sort.clear();
        }
        let searched = match outcome.coverage {
            SearchCoverage::Complete => "all".to_owned(),
            SearchCoverage::Truncated => format!("first {scan_rows_max} rows"),
        };
        self.finish_with(Some(outcome.total), Some((searched, outcome.coverage)), seal)
    }

    fn finish_with(
        self,
        total: Option<Total>,
        searched: Option<(String, SearchCoverage)>,
        seal: impl FnOnce(&CursorPosition) -> String,
    ) -> Result<ToolResult, RecordError> {
        self.items.check()?;
        let last = self.last_position.as_ref().filter(|_| self.items.is_truncated());
        if let Some(field) = last.and_then(|last| self.invalid_cursor_field(last)) {
            return Err(RecordError::InvalidCursorValue { field: field.name.clone() });
        }
        let cursor = last.map(seal);
        let mut out = vec![b'{'];
        self.items.write_items(&mut out);
        if let Some(cursor) = &cursor {
            out.extend_from_slice(b",\"nextCursor\":");
            json::write::string(&mut out, cursor);
        }
        let is_partial = matches!(searched, Some((_, SearchCoverage::Truncated)));
        match is_partial {
            // Rows that were not searched may match as well.
            true => out.extend_from_slice(b",\"truncated\":true"),
            false => self.items.write_truncated(&mut out),
        }
        let which = match total {
            Some(Total::Exact(rows)) => {
                out.extend_from_slice(format!(",\"total\":{rows}").as_bytes());
                format!(" of {rows} matching")
            }
            Some(Total::AtLeast(rows)) => {
                out.extend_from_slice(format!(",\"total_at_least\":{rows}").as_bytes());
                format!(" of at least {rows} matching")
            }
            None => " matching".to_owned(),
        };
        let scope = match &searched {
            Some((searched, coverage)) => {
                out.extend_from_slice(b",\"searched\":");
                json::write::string(&mut out, searched);
                match coverage {
                    SearchCoverage::Truncated => format!(" in the {searched}; other rows were not searched"),
                    SearchCoverage::Complete => String::new(),
                }
            }
            None => String::new(),
        };
        out.push(b'}');
        let more = "; for more, pass `nextCursor` as `cursor`";
        Ok(tool_result(self.items.to_text(&which, &scope, more), out))
    }

    /// The field whose value a cursor cannot hold.
    fn invalid_cursor_field(&self, last: &CursorPosition) -> Option<&'c Field> {
        let collection = self.items.collection;
        let key = last.key.iter().zip(&collection.shape.key).map(|(value, at)| (value, *at));
        let sorted = last.sort_values.iter().zip(&self.sort).map(|(value, by)| (value, by.sort.column));
        let values = || sorted.clone().chain(key.clone());
        let is_long = values().map(|(value, _)| cursor::encoded_len(value)).sum::<usize>() > CURSOR_BYTES_MAX;
        let blob = values().find(|(value, _)| matches!(value, Value::Blob(_)));
        let invalid =
            blob.or_else(|| values().max_by_key(|(value, _)| cursor::encoded_len(value)).filter(|_| is_long));
        invalid.map(|(_, at)| &collection.fields[at])
    }
}
