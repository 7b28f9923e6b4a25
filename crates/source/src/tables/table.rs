//! A table in memory: nine bytes for each cell, column by column, and its texts one behind the other.

use contract::ValueRef;
use contract::source::ColumnFacts;

use super::profile::TableColumnProfile;

/// A value as a file has it. What a format reads it gets back in an [`Edit`](super::Edit), of the same sort.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StoredValue<'a> {
    Null,
    Text(&'a str),
    /// A date or a time as ISO 8601 writes it, where the file has a form of its own for them.
    DateTime(&'a str),
    Integer(i64),
    Real(f64),
    /// A number that is neither an integer of 64 bits nor a binary fraction that prints back as these digits.
    NumberText(&'a str),
    Boolean(bool),
    /// Nested JSON, as it is written.
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

/// A table that was filled row by row.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) header: Vec<String>,
    /// Why nothing can be written to it, if nothing can: half a sentence for whoever owns it.
    pub(crate) read_only_reason: Option<String>,
    /// Columns that nobody can set, by place, and why: they are computed.
    pub(crate) computed: Vec<(usize, String)>,
    /// What the place of a row is counted in: `line`, `row`.
    pub(crate) row_unit: &'static str,
    /// The letters of each column on a sheet; empty for other files.
    pub(crate) column_letters: Vec<String>,
    /// Whether a row names its own columns, as in JSON: then one that no row names has no value in any of them.
    pub(crate) is_schemaless: bool,
    /// Whether nested JSON stands in it as such.
    pub(crate) has_nested_json: bool,
    columns: Vec<ColumnData>,
    /// Where each row stands in the file, as people count.
    row_numbers: Vec<u32>,
    cell_count: usize,
    texts: String,
    blobs: Vec<u8>,
    is_over_limit: bool,
}

/// The cells of a column, from its first value to its last.
#[derive(Default)]
struct ColumnData {
    profile: TableColumnProfile,
    first_row: u32,
    tags: Vec<ValueTag>,
    /// A number itself, or where a text begins and how long it is.
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

/// All texts of a table together, and all bytes: places in them have 32 bits.
pub(crate) const TEXTS_BYTES_MAX: usize = u32::MAX as usize;
pub(crate) const ROWS_MAX: usize = u32::MAX as usize - 1;
/// Somewhat over a gigabyte.
pub(crate) const CELLS_MAX: usize = 1 << 27;

impl Table {
    pub(crate) fn new(name: impl Into<String>, header: Vec<String>) -> Self {
        Self {
            name: name.into(),
            columns: header.iter().map(|_| ColumnData::default()).collect(),
            header,
            read_only_reason: None,
            computed: Vec::new(),
            row_unit: "row",
            column_letters: Vec::new(),
            is_schemaless: false,
            has_nested_json: false,
            row_numbers: Vec::new(),
            cell_count: 0,
            texts: String::new(),
            blobs: Vec::new(),
            is_over_limit: false,
        }
    }

    /// Takes a row that stands at a place in the file. Columns that it does not name have no value. What there is
    /// no room for makes the table one that is not served.
    ///
    /// # Panics
    /// If it names a column that is not there.
    pub(crate) fn push_row<'a>(
        &mut self,
        place: u32,
        row: impl IntoIterator<Item = (usize, StoredValue<'a>)>,
    ) {
        if self.is_over_limit || self.row_numbers.len() == ROWS_MAX {
            self.is_over_limit = true;
            return;
        }
        let number = self.row_numbers.len();
        self.row_numbers.push(place);
        for (at, held) in row {
            let Some((tag, word)) = self.encode(held) else {
                self.is_over_limit = true;
                return;
            };
            if tag == ValueTag::Null {
                continue;
            }
            let column = &mut self.columns[at];
            column.profile.observe(number as u64, held);
            if column.tags.is_empty() {
                column.first_row = number as u32;
            }
            let missing = number - column.first_row as usize;
            self.cell_count += missing + 1 - column.tags.len();
            if self.cell_count > CELLS_MAX {
                self.is_over_limit = true;
                return;
            }
            column.tags.resize(missing, ValueTag::Null);
            column.payloads.resize(missing, 0);
            column.tags.push(tag);
            column.payloads.push(word);
        }
    }

    fn encode(&mut self, held: StoredValue<'_>) -> Option<(ValueTag, u64)> {
        Some(match held {
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
                let word = pack_span(self.blobs.len(), bytes.len())?;
                self.blobs.extend_from_slice(bytes);
                (ValueTag::Blob, word)
            }
        })
    }

    fn push_text(&mut self, text: &str) -> Option<u64> {
        let word = pack_span(self.texts.len(), text.len())?;
        self.texts.push_str(text);
        Some(word)
    }

    /// A column that no row before has had. Its place is behind all others.
    pub(crate) fn add_column(&mut self, name: String) {
        self.header.push(name);
        self.columns.push(ColumnData::default());
    }

    /// Whether there was more than there is room for.
    pub(super) fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }

    /// Gives back what was reserved and not used.
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
        let word = column.payloads[at];
        let (from, to) = ((word >> 32) as usize, (word >> 32) as usize + word as u32 as usize);
        match tag {
            ValueTag::Null => StoredValue::Null,
            ValueTag::Text => StoredValue::Text(&self.texts[from..to]),
            ValueTag::DateTime => StoredValue::DateTime(&self.texts[from..to]),
            ValueTag::Integer => StoredValue::Integer(word.cast_signed()),
            ValueTag::Real => StoredValue::Real(f64::from_bits(word)),
            ValueTag::NumberText => StoredValue::NumberText(&self.texts[from..to]),
            ValueTag::False => StoredValue::Boolean(false),
            ValueTag::True => StoredValue::Boolean(true),
            ValueTag::Json => StoredValue::Json(&self.texts[from..to]),
            ValueTag::Blob => StoredValue::Blob(&self.blobs[from..to]),
        }
    }

    /// Where a row stands in the file, as people count.
    pub(super) fn row_number(&self, row: u32) -> u32 {
        self.row_numbers[row as usize]
    }

    pub(super) fn profile(&self, column: usize) -> &TableColumnProfile {
        &self.columns[column].profile
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
            ColumnFacts {
                read_only_reason: computed.map(|(_, why)| why.clone()),
                has_default: computed.is_some(),
                is_base64: self.has_nested_json && column.profile.is_base64(),
                ..column.profile.facts(name, u64::from(self.len()), |row| self.cell_name(row as u32, at))
            }
        });
        facts.collect()
    }
}

fn pack_span(from: usize, length: usize) -> Option<u64> {
    (from + length <= TEXTS_BYTES_MAX).then_some((from as u64) << 32 | length as u64)
}
