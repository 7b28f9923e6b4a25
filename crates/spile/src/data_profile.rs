//! What the data looks like as it is served: for each field its type and format, how many rows have no value, how many
//! values differ, and samples. `spile check` shows it, so that its owner sees what was understood.

use std::collections::HashSet;
use std::sync::Arc;

use contract::field::Field;
use contract::humanize::{group_digits, pluralize};
use contract::source::{ProgressUnit, Query, Reader, RowFlow};
use contract::{Collection, Contract, ValueRef};
use json::write::{self, ObjectWriter};

use crate::client::output_style::OutputStyle;
use crate::layout::{self, ColumnFit, Table};
use crate::sanitize;

/// No more rows than this are read.
const ROWS_MAX: usize = 20_000;
/// No more different values than this are counted.
const DISTINCT_MAX: usize = 1000;
const SAMPLES_MAX: usize = 3;
const SAMPLE_CHARS_MAX: usize = 24;
/// A report shows at most this many collections, and fields of each; `--json` has them all.
const COLLECTIONS_SHOWN_MAX: usize = 10;
const FIELDS_SHOWN_MAX: usize = 40;

/// The data of one collection.
pub(crate) struct CollectionProfile {
    name: String,
    rows_read: u64,
    /// Whether these are all rows.
    is_complete: bool,
    /// Why an API did not return its list.
    error: Option<String>,
    fields: Vec<FieldProfile>,
}

struct FieldProfile {
    name: String,
    column: String,
    data_type: &'static str,
    format: Option<String>,
    nulls: u64,
    values: HashSet<Vec<u8>>,
    samples: Vec<String>,
    is_sensitive: bool,
}

/// Reads the first rows of every collection. One that cannot be read is left out: its error is reported elsewhere, unless it is one
/// of an API, which nothing else asks.
pub(crate) fn profile(contract: &Contract, readers: &[Arc<dyn Reader>]) -> Vec<CollectionProfile> {
    let pairs = contract.collections.iter().zip(readers);
    pairs.filter_map(|(collection, reader)| profile_collection(collection, &**reader)).collect()
}

fn profile_collection(collection: &Collection, reader: &dyn Reader) -> Option<CollectionProfile> {
    let columns = collection.fields.iter().zip(&collection.shape.columns);
    let mut fields: Vec<FieldProfile> = columns
        .map(|(field, column)| FieldProfile {
            name: field.name.clone(),
            column: field.column.clone(),
            data_type: field.data_type.as_str(),
            format: column.format.as_ref().map(ToString::to_string),
            nulls: 0,
            values: HashSet::new(),
            samples: Vec::new(),
            is_sensitive: field.sensitive,
        })
        .collect();
    let (mut rows_read, mut is_complete) = (0, true);
    let query = Query { rows_max: ROWS_MAX + 1, ..Query::default() };
    let listed = reader.list(&query, &mut |row, _| {
        if rows_read == ROWS_MAX as u64 {
            is_complete = false;
            return RowFlow::Stop;
        }
        rows_read += 1;
        for ((profile, field), value) in fields.iter_mut().zip(&collection.fields).zip(row) {
            profile.observe(field, *value);
        }
        RowFlow::Continue
    });
    let error = match listed {
        Ok(_) => None,
        Err(error) if reader.progress_unit() == ProgressUnit::Requests => {
            fields.clear();
            Some(error.to_string())
        }
        Err(_) => return None,
    };
    Some(CollectionProfile { name: collection.name.clone(), rows_read, is_complete, error, fields })
}

impl FieldProfile {
    fn observe(&mut self, field: &Field, value: ValueRef<'_>) {
        if value == ValueRef::Null {
            self.nulls += 1;
            return;
        }
        if self.values.len() > DISTINCT_MAX {
            return;
        }
        let mut json = Vec::new();
        // A value that does not fit is an error of its own.
        if field.write_value(&mut json, value).is_err() {
            return;
        }
        if self.samples.len() < SAMPLES_MAX && !self.is_sensitive && !self.values.contains(&json) {
            self.samples.push(sample_text(&json));
        }
        self.values.insert(json);
    }

    /// `1,000+` if there are more than were counted.
    fn distinct(&self) -> String {
        match self.values.len() {
            more if more > DISTINCT_MAX => format!("{}+", group_digits(DISTINCT_MAX as u64)),
            count => group_digits(count as u64),
        }
    }
}

/// A value as people read it: a string without its quotes, cut short.
fn sample_text(json: &[u8]) -> String {
    let text = String::from_utf8_lossy(json);
    let plain = json::parse(json.to_vec(), &json::ParseLimits::default()).ok();
    let plain = plain.as_ref().and_then(|doc| doc.root().str()).map_or_else(|| text.into_owned(), Into::into);
    let cut: String = plain.chars().take(SAMPLE_CHARS_MAX).collect();
    if cut.len() < plain.len() { cut + "…" } else { cut }
}

/// The section `data` of the report.
pub(crate) fn data_section(profiles: &[CollectionProfile], style: &OutputStyle) -> String {
    let mut out = String::new();
    for profile in profiles.iter().take(COLLECTIONS_SHOWN_MAX) {
        if let Some(error) = &profile.error {
            let title = format!("{}: cannot be read now: {error}", profile.name);
            out += &layout::hanging("  ", &sanitize::escape_line(&title), style.columns);
            continue;
        }
        let rows = pluralize(profile.rows_read, "row");
        let rows = if profile.is_complete { rows } else { format!("first {rows}") };
        let title = format!("{}: {rows}", profile.name);
        out += &layout::hanging("  ", &sanitize::escape_line(&title), style.columns);
        out += &profile.table(style.columns).render(style, 4);
        if let Some(more) = profile.fields.len().checked_sub(FIELDS_SHOWN_MAX).filter(|more| *more > 0) {
            out += &layout::hanging("    ", &format!("and {more} more fields"), style.columns);
        }
    }
    if let Some(more) = profiles.len().checked_sub(COLLECTIONS_SHOWN_MAX).filter(|more| *more > 0) {
        let more = format!("and {more} more collections; --json lists them all");
        out += &layout::hanging("  ", &more, style.columns);
    }
    out
}

impl CollectionProfile {
    fn table(&self, columns: Option<usize>) -> Table {
        // As a block of names and values, a cell follows the longest name.
        let room =
            columns.map_or(usize::MAX, |columns| columns.saturating_sub("    distinct  ".len()).max(1));
        let mut table = Table::new(&["field", "type", "format", "nulls", "distinct", "samples"])
            .align_right(3)
            .align_right(4)
            .fit(4, ColumnFit::Drop)
            .fit(5, ColumnFit::Wrap);
        for field in self.fields.iter().take(FIELDS_SHOWN_MAX) {
            let samples = match field.is_sensitive {
                true => "(sensitive)".to_owned(),
                false => field.samples.join(" · "),
            };
            let cells = [
                field.name.clone(),
                field.data_type.to_owned(),
                field.format.clone().unwrap_or_default(),
                group_digits(field.nulls),
                field.distinct(),
                samples,
            ];
            let cells = cells.iter().map(|cell| sanitize::escape_line(cell).into_owned());
            let cut = |(at, cell): (usize, String)| match at {
                5 => cell,
                _ => sanitize::truncate(&cell, room).into_owned(),
            };
            table.rows.push(cells.enumerate().map(cut).collect());
        }
        table
    }

    /// As `--json` has it.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        let mut o = ObjectWriter::new(out);
        o.str("name", &self.name).maybe_str("error", self.error.as_deref());
        o.int("rows_read", self.rows_read as i64).bool("complete", self.is_complete && self.error.is_none());
        o.array("fields", &self.fields, |out, field| {
            let mut o = ObjectWriter::new(out);
            o.str("name", &field.name).str("column", &field.column).str("as", field.data_type);
            o.maybe_str("format", field.format.as_deref());
            o.int("nulls", field.nulls as i64).int("distinct", field.values.len().min(DISTINCT_MAX) as i64);
            o.bool("distinct_complete", field.values.len() <= DISTINCT_MAX);
            o.array("samples", &field.samples, |out, sample| write::string(out, sample));
            o.end();
        });
        o.end();
    }
}
