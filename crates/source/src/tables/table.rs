//! A table in memory: nine bytes per cell, column by column, and all texts in one string.

use std::sync::Arc;

use contract::infer::{DeclaredFormats, FormatInference, FormatOutcome};
use contract::manifest::Operation;
use contract::source::{AmbiguousFormat, ColumnFacts, HeaderRows, LayoutNote, TableOptions};
use contract::{ColumnFormat, DataType, ValueRef};

use super::profile::TableColumnProfile;

/// A value as the file stores it. A format gets the same class of value back in a [`RowEdit`](super::RowEdit).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StoredValue<'a> {
    Null,
    Text(&'a str),
    /// A date or a time in ISO 8601, where the file has a native form for it.
    DateTime(&'a str),
    Integer(i64),
    Real(f64),
    /// A number that is neither a 64-bit integer nor a float that prints back as these digits.
    NumberText(&'a str),
    Boolean(bool),
    /// Nested JSON, as the file spells it.
    Json(&'a str),
    Blob(&'a [u8]),
}

impl<'a> From<ValueRef<'a>> for StoredValue<'a> {
    fn from(cell: ValueRef<'a>) -> Self {
        match cell {
            ValueRef::Null => Self::Null,
            ValueRef::Text(text) => Self::Text(text),
            ValueRef::Integer(n) => Self::Integer(n),
            ValueRef::Real(n) => Self::Real(n),
            ValueRef::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

/// A table that is filled row by row.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) header: Vec<String>,
    /// Why the table cannot be written, if it cannot.
    pub(crate) read_only_reason: Option<String>,
    /// Operations that the file refuses whatever the row is, each with the reason.
    pub(crate) refused_operations: Vec<(Operation, String)>,
    /// Columns that callers cannot set, by position, each with the reason: a formula computes them.
    pub(crate) computed: Vec<(usize, String)>,
    /// Columns with a value that the file may invalidate later: a formula on another table's rows computes it.
    pub(crate) may_be_outdated: Vec<usize>,
    /// What callers should know about the values, as a sentence.
    pub(crate) notice: Option<Arc<str>>,
    /// The row that probably names the columns, if the header row looks like a title.
    pub(crate) likely_header_row: Option<u32>,
    /// Where the column names are, on a sheet.
    pub(crate) header_rows: Option<HeaderRows>,
    pub(crate) layout_notes: Vec<LayoutNote>,
    /// What a row's number counts: `line`, `row`.
    pub(crate) row_unit: &'static str,
    /// The letters of each column on a sheet; empty for other files.
    pub(crate) column_letters: Vec<String>,
    /// Whether each row names its own columns, as in JSON. A column that no row names then has no value anywhere.
    pub(crate) is_schemaless: bool,
    /// Whether nested JSON is stored as such.
    pub(crate) has_nested_json: bool,
    /// The types that the file itself states, for columns without any value; empty if it states none.
    pub(crate) stated_types: Vec<DataType>,
    /// Where texts inside nested JSON are decimals: names of the column and of members, `None` for any element.
    pub(crate) decimal_paths: Vec<Vec<Option<String>>>,
    columns: Vec<ColumnData>,
    /// Each row's number in the file, as people count.
    row_numbers: Vec<u32>,
    /// Rows and columns of the values that were outdated, ascending.
    outdated: Vec<(u32, usize)>,
    cell_count: usize,
    texts: String,
    blobs: Vec<u8>,
    is_over_limit: bool,
}

/// What is known of the values of a column.
#[derive(Clone, Default)]
pub(super) struct ColumnFindings {
    pub(super) profile: TableColumnProfile,
    /// The texts that mean "no value", with which the profile was made.
    pub(super) null_texts: Vec<String>,
    pub(super) format: Option<(ColumnFormat, DataType)>,
    ambiguous_format: Option<AmbiguousFormat>,
}

impl ColumnFindings {
    /// `first` returns the first text that is not blank and shows the ambiguity, and where it is.
    pub(super) fn new(
        profile: TableColumnProfile,
        null_texts: Vec<String>,
        outcome: FormatOutcome,
        first: impl Fn(&dyn Fn(&str) -> bool) -> Option<(String, String)>,
    ) -> Self {
        let (mut format, mut ambiguous_format) = (None, None);
        match outcome {
            FormatOutcome::Inferred(found, data_type) => format = Some((found, data_type)),
            FormatOutcome::Ambiguous(formats) => {
                let is_shown_by = |text: &str| AmbiguousFormat::is_shown_by(&formats, text);
                // `02/02/2026` is the same day in both readings; a column may have no other values.
                let shown = first(&is_shown_by).or_else(|| first(&|_| true));
                let (first_value, first_location) = shown.unwrap_or_default();
                ambiguous_format = Some(AmbiguousFormat { formats, first_value, first_location });
            }
            FormatOutcome::None => {}
        }
        Self { profile, null_texts, format, ambiguous_format }
    }

    /// Whether the texts are numbers whose notation is ambiguous.
    pub(super) fn may_be_measure(&self) -> bool {
        self.ambiguous_format.as_ref().is_some_and(AmbiguousFormat::is_number)
    }

    /// The type of most values, and whether there are others.
    pub(super) fn data_type(&self) -> (DataType, bool) {
        self.format.as_ref().map_or_else(|| self.profile.data_type(), |(_, data_type)| (*data_type, false))
    }

    /// `locate` names the place of a row for the owner of the data.
    pub(super) fn facts(&self, name: &str, rows: u64, locate: impl FnOnce(u64) -> String) -> ColumnFacts {
        let facts = self.profile.facts(name, rows, locate);
        let has_blanks = self.format.is_some() && self.profile.has_blank_texts();
        let is_settled = self.format.is_some() || self.ambiguous_format.is_some();
        ColumnFacts {
            data_type: self.format.as_ref().map_or(facts.data_type, |(_, data_type)| *data_type),
            distinct_values: if self.format.is_some() { Vec::new() } else { facts.distinct_values },
            near_miss: facts.near_miss.filter(|_| !is_settled),
            format: self.format.as_ref().map(|(format, _)| format.clone()),
            ambiguous_format: self.ambiguous_format.clone(),
            nullable: has_blanks || facts.nullable,
            ..facts
        }
    }
}

/// The cells of a column, from its first value to its last.
#[derive(Default)]
struct ColumnData {
    findings: ColumnFindings,
    first_row: u32,
    tags: Vec<ValueTag>,
    /// A number itself, or the start and the length of a text.
    payloads: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum ValueTag {
    Null,
    Text,
    DateTime,
    Integer,
    Real,
    NumberText,
    False,
    True,
    Json,
    Blob,
}

/// For all texts of a table together, and for all blobs: positions in them have 32 bits.
pub(crate) const TEXTS_BYTES_MAX: usize = u32::MAX as usize;
pub(crate) const ROWS_MAX: usize = u32::MAX as usize - 1;
/// Somewhat more than one gigabyte.
pub(crate) const CELLS_MAX: usize = 1 << 27;

impl Table {
    pub(crate) fn new(name: impl Into<String>, header: Vec<String>) -> Self {
        Self {
            name: name.into(),
            columns: header.iter().map(|_| ColumnData::default()).collect(),
            header,
            read_only_reason: None,
            refused_operations: Vec::new(),
            computed: Vec::new(),
            may_be_outdated: Vec::new(),
            notice: None,
            likely_header_row: None,
            header_rows: None,
            layout_notes: Vec::new(),
            row_unit: "row",
            column_letters: Vec::new(),
            is_schemaless: false,
            has_nested_json: false,
            stated_types: Vec::new(),
            decimal_paths: Vec::new(),
            row_numbers: Vec::new(),
            outdated: Vec::new(),
            cell_count: 0,
            texts: String::new(),
            blobs: Vec::new(),
            is_over_limit: false,
        }
    }

    /// Adds the row with this number in the file. Columns that it does not name have no value. A row that does not
    /// fit marks the table as over its limit, and the file is then refused.
    ///
    /// # Panics
    /// If it names a column that the table does not have.
    pub(crate) fn push_row<'a>(
        &mut self,
        position: u32,
        row: impl IntoIterator<Item = (usize, StoredValue<'a>)>,
    ) {
        if self.is_over_limit || self.row_numbers.len() == ROWS_MAX {
            self.is_over_limit = true;
            return;
        }
        let number = self.row_numbers.len();
        self.row_numbers.push(position);
        for (at, stored) in row {
            let Some((tag, payload)) = self.encode(stored) else {
                self.is_over_limit = true;
                return;
            };
            if tag == ValueTag::Null {
                continue;
            }
            self.push_value(number, at, stored, tag, payload);
            if self.is_over_limit {
                return;
            }
        }
    }

    /// Sets a value of a column that has none in this row and all that follow.
    pub(super) fn set_value(&mut self, row: u32, column: usize, stored: StoredValue<'_>) {
        let Some((tag, payload)) = self.encode(stored).filter(|_| !self.is_over_limit) else {
            self.is_over_limit = true;
            return;
        };
        if tag != ValueTag::Null {
            self.push_value(row as usize, column, stored, tag, payload);
        }
    }

    /// Adds a value to a column whose last value is in a row before this one.
    fn push_value(&mut self, row: usize, at: usize, stored: StoredValue<'_>, tag: ValueTag, payload: u64) {
        let column = &mut self.columns[at];
        column.findings.profile.observe(row as u64, stored);
        if column.tags.is_empty() {
            column.first_row = row as u32;
        }
        let missing = row - column.first_row as usize;
        self.cell_count += missing + 1 - column.tags.len();
        if self.cell_count > CELLS_MAX {
            self.is_over_limit = true;
            return;
        }
        column.tags.resize(missing, ValueTag::Null);
        column.payloads.resize(missing, 0);
        column.tags.push(tag);
        column.payloads.push(payload);
    }

    fn encode(&mut self, stored: StoredValue<'_>) -> Option<(ValueTag, u64)> {
        Some(match stored {
            StoredValue::Null => (ValueTag::Null, 0),
            StoredValue::Integer(n) => (ValueTag::Integer, n.cast_unsigned()),
            StoredValue::Real(n) => (ValueTag::Real, n.to_bits()),
            StoredValue::Boolean(false) => (ValueTag::False, 0),
            StoredValue::Boolean(true) => (ValueTag::True, 0),
            StoredValue::Text(text) => (ValueTag::Text, self.push_text(text)?),
            StoredValue::DateTime(text) => (ValueTag::DateTime, self.push_text(text)?),
            StoredValue::NumberText(text) => (ValueTag::NumberText, self.push_text(text)?),
            StoredValue::Json(text) => (ValueTag::Json, self.push_text(text)?),
            StoredValue::Blob(bytes) => {
                let payload = pack_span(self.blobs.len(), bytes.len())?;
                self.blobs.extend_from_slice(bytes);
                (ValueTag::Blob, payload)
            }
        })
    }

    fn push_text(&mut self, text: &str) -> Option<u64> {
        let payload = pack_span(self.texts.len(), text.len())?;
        self.texts.push_str(text);
        Some(payload)
    }

    /// Invalidates values that may be wrong: the cells read as null from now on. The column keeps the type that it has
    /// with them, so that the contract does not change until they come back. `cells` are rows and columns, ascending.
    pub(crate) fn invalidate(&mut self, cells: Vec<(u32, usize)>) {
        for (row, column) in &cells {
            let column = &mut self.columns[*column];
            let at = row.wrapping_sub(column.first_row) as usize;
            if let Some(tag) = column.tags.get_mut(at) {
                *tag = ValueTag::Null;
            }
        }
        self.outdated = cells;
    }

    /// The cells whose values were outdated.
    pub(crate) fn outdated(&self) -> &[(u32, usize)] {
        &self.outdated
    }

    pub(super) fn is_outdated(&self, row: u32, column: usize) -> bool {
        self.outdated.binary_search(&(row, column)).is_ok()
    }

    /// Each row's number in the file, ascending.
    pub(crate) fn row_numbers(&self) -> &[u32] {
        &self.row_numbers
    }

    /// Adds a column after all others, with no value in the rows so far.
    pub(crate) fn add_column(&mut self, name: String) {
        self.header.push(name);
        self.columns.push(ColumnData::default());
    }

    /// Whether there were more rows or cells than the table can hold.
    pub(super) fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }

    /// Frees reserved memory that was not used.
    pub(super) fn shrink_to_fit(&mut self) {
        self.row_numbers.shrink_to_fit();
        self.texts.shrink_to_fit();
        self.blobs.shrink_to_fit();
        for column in &mut self.columns {
            column.tags.shrink_to_fit();
            column.payloads.shrink_to_fit();
        }
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.row_numbers.len()).expect("more rows are not taken")
    }

    #[inline]
    pub(crate) fn value(&self, row: u32, column: usize) -> StoredValue<'_> {
        let column = &self.columns[column];
        let at = row.wrapping_sub(column.first_row) as usize;
        let Some(tag) = column.tags.get(at) else { return StoredValue::Null };
        let payload = column.payloads[at];
        let (from, to) = ((payload >> 32) as usize, (payload >> 32) as usize + payload as u32 as usize);
        match tag {
            ValueTag::Null => StoredValue::Null,
            ValueTag::Text => StoredValue::Text(&self.texts[from..to]),
            ValueTag::DateTime => StoredValue::DateTime(&self.texts[from..to]),
            ValueTag::Integer => StoredValue::Integer(payload.cast_signed()),
            ValueTag::Real => StoredValue::Real(f64::from_bits(payload)),
            ValueTag::NumberText => StoredValue::NumberText(&self.texts[from..to]),
            ValueTag::False => StoredValue::Boolean(false),
            ValueTag::True => StoredValue::Boolean(true),
            ValueTag::Json => StoredValue::Json(&self.texts[from..to]),
            ValueTag::Blob => StoredValue::Blob(&self.blobs[from..to]),
        }
    }

    /// The row's number in the file, as people count.
    pub(super) fn row_number(&self, row: u32) -> u32 {
        self.row_numbers[row as usize]
    }

    /// Takes the declared texts for "no value" into account, and finds out which texts are in a format.
    pub(crate) fn infer_formats(&mut self, options: &TableOptions) {
        let mut found = Vec::with_capacity(self.columns.len());
        for (at, name) in self.header.iter().enumerate() {
            let null_texts = options.null_texts(name).to_vec();
            let profile = (!null_texts.is_empty()).then(|| self.profile_without(at, &null_texts));
            let profile = profile.unwrap_or_else(|| self.columns[at].findings.profile.clone());
            let declared = options.formats(name, profile.data_type().0);
            let outcome = match profile.may_have_format(&declared) {
                true => self.infer_format(at, &null_texts, &declared),
                false => FormatOutcome::None,
            };
            let first = |is_shown_by: &dyn Fn(&str) -> bool| self.first_text(at, &null_texts, is_shown_by);
            found.push(ColumnFindings::new(profile, null_texts.clone(), outcome, first));
        }
        for (column, findings) in self.columns.iter_mut().zip(found) {
            column.findings = findings;
        }
    }

    /// The profile of a column without the texts that mean "no value".
    fn profile_without(&self, column: usize, null_texts: &[String]) -> TableColumnProfile {
        let mut profile = TableColumnProfile::default();
        for row in 0..self.len() {
            match self.value(row, column) {
                StoredValue::Text(text) if null_texts.iter().any(|null| null == text) => {}
                stored => profile.observe(u64::from(row), stored),
            }
        }
        profile
    }

    fn infer_format(
        &self,
        column: usize,
        null_texts: &[String],
        declared: &DeclaredFormats,
    ) -> FormatOutcome {
        let mut inference = FormatInference::new(declared);
        for row in 0..self.len() {
            match self.value(row, column) {
                StoredValue::Text(text)
                    if text.trim().is_empty() || null_texts.iter().any(|null| null == text) => {}
                // Digits in a text are a code where numbers have a type of their own, and blanks around them change nothing.
                StoredValue::Text(text) => inference.observe(text.trim()),
                _ => {}
            }
            if inference.is_hopeless() {
                return FormatOutcome::None;
            }
        }
        inference.finish()
    }

    /// The first text of a column, and where it is.
    fn first_text(
        &self,
        column: usize,
        null_texts: &[String],
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Option<(String, String)> {
        (0..self.len()).find_map(|row| match self.value(row, column) {
            StoredValue::Text(text)
                if !text.trim().is_empty()
                    && !null_texts.iter().any(|null| null == text)
                    && is_wanted(text) =>
            {
                Some((text.to_owned(), self.cell_name(row, column)))
            }
            _ => None,
        })
    }

    pub(super) fn format(&self, column: usize) -> Option<&ColumnFormat> {
        self.columns[column].findings.format.as_ref().map(|(format, _)| format)
    }

    /// Whether the texts of a column are numbers whose notation is ambiguous.
    pub(super) fn may_be_measure(&self, column: usize) -> bool {
        self.columns[column].findings.may_be_measure()
    }

    pub(super) fn null_texts(&self, column: usize) -> &[String] {
        &self.columns[column].findings.null_texts
    }

    /// The type of most values, and whether there are others.
    pub(super) fn data_type(&self, column: usize) -> (DataType, bool) {
        self.columns[column].findings.data_type()
    }

    pub(super) fn profile(&self, column: usize) -> &TableColumnProfile {
        &self.columns[column].findings.profile
    }

    /// `C10` on a sheet, `line 12` or `row 12` elsewhere.
    fn cell_name(&self, row: u32, column: usize) -> String {
        let number = self.row_number(row);
        match self.column_letters.get(column) {
            Some(letters) => format!("{letters}{number}"),
            None => format!("{} {number}", self.row_unit),
        }
    }

    pub(super) fn column_facts(&self) -> Vec<ColumnFacts> {
        let columns = self.header.iter().zip(&self.columns).enumerate();
        let facts = columns.map(|(at, (name, column))| {
            let computed = self.computed.iter().find(|(one, _)| *one == at);
            let facts =
                column.findings.facts(name, u64::from(self.len()), |row| self.cell_name(row as u32, at));
            let stated_type = self.stated_types.get(at).filter(|_| column.findings.profile.is_empty());
            ColumnFacts {
                data_type: stated_type.copied().unwrap_or(facts.data_type),
                nullable: facts.nullable || self.may_be_outdated.contains(&at),
                read_only_reason: computed.map(|(_, reason)| reason.clone()),
                has_default: computed.is_some(),
                is_base64: self.has_nested_json && column.findings.profile.is_base64(),
                ..facts
            }
        });
        facts.collect()
    }
}

fn pack_span(from: usize, length: usize) -> Option<u64> {
    (from + length <= TEXTS_BYTES_MAX).then_some((from as u64) << 32 | length as u64)
}
