//! A table in memory: nine bytes for each cell, column by column, and its texts one behind the other.

use contract::Cell;
use contract::source::ColumnFacts;

use super::seen::Seen;

/// A value as a file has it. What a format reads it gets back in an [`Edit`](super::Edit), of the same sort.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Held<'a> {
    Null,
    Text(&'a str),
    /// A date or a time as ISO 8601 writes it, where the file has a form of its own for them.
    Moment(&'a str),
    Integer(i64),
    Real(f64),
    /// A number that is neither an integer of 64 bits nor a binary fraction that prints back as these digits.
    Digits(&'a str),
    Boolean(bool),
    /// Nested JSON, as it is written.
    Json(&'a str),
    Blob(&'a [u8]),
}

impl<'a> From<Cell<'a>> for Held<'a> {
    fn from(cell: Cell<'a>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::Text(text) => Self::Text(text),
            Cell::Integer(n) => Self::Integer(n),
            Cell::Real(n) => Self::Real(n),
            Cell::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

/// A table that was filled row by row.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) header: Vec<String>,
    /// Why nothing can be written to it, if nothing can: half a sentence for whoever owns it.
    pub(crate) read_only: Option<String>,
    /// Columns that nobody can set, by place, and why: they are computed.
    pub(crate) computed: Vec<(usize, String)>,
    /// What the place of a row is counted in: `line`, `row`.
    pub(crate) unit: &'static str,
    /// Whether a row names its own columns, as in JSON: then one that no row names has no value in any of them.
    pub(crate) is_loose: bool,
    /// Whether nested JSON stands in it as such.
    pub(crate) nests: bool,
    columns: Vec<Column>,
    /// Where each row stands in the file, as people count.
    places: Vec<u32>,
    cells: usize,
    texts: String,
    blobs: Vec<u8>,
    is_full: bool,
}

/// The cells of a column, from its first value to its last.
#[derive(Default)]
struct Column {
    seen: Seen,
    from: u32,
    tags: Vec<Tag>,
    /// A number itself, or where a text begins and how long it is.
    words: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    Null,
    Text,
    Moment,
    Integer,
    Real,
    Digits,
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
            columns: header.iter().map(|_| Column::default()).collect(),
            header,
            read_only: None,
            computed: Vec::new(),
            unit: "row",
            is_loose: false,
            nests: false,
            places: Vec::new(),
            cells: 0,
            texts: String::new(),
            blobs: Vec::new(),
            is_full: false,
        }
    }

    /// Takes a row that stands at a place in the file. Columns that it does not name have no value. What there is
    /// no room for makes the table one that is not served.
    ///
    /// # Panics
    /// If it names a column that is not there.
    pub(crate) fn push_held<'a>(&mut self, place: u32, row: impl IntoIterator<Item = (usize, Held<'a>)>) {
        if self.is_full || self.places.len() == ROWS_MAX {
            self.is_full = true;
            return;
        }
        let number = self.places.len();
        self.places.push(place);
        for (at, held) in row {
            let Some((tag, word)) = self.stored(held) else {
                self.is_full = true;
                return;
            };
            if tag == Tag::Null {
                continue;
            }
            let column = &mut self.columns[at];
            column.seen.see(held);
            if column.tags.is_empty() {
                column.from = number as u32;
            }
            let missing = number - column.from as usize;
            self.cells += missing + 1 - column.tags.len();
            if self.cells > CELLS_MAX {
                self.is_full = true;
                return;
            }
            column.tags.resize(missing, Tag::Null);
            column.words.resize(missing, 0);
            column.tags.push(tag);
            column.words.push(word);
        }
    }

    fn stored(&mut self, held: Held<'_>) -> Option<(Tag, u64)> {
        Some(match held {
            Held::Null => (Tag::Null, 0),
            Held::Integer(n) => (Tag::Integer, n.cast_unsigned()),
            Held::Real(n) => (Tag::Real, n.to_bits()),
            Held::Boolean(false) => (Tag::False, 0),
            Held::Boolean(true) => (Tag::True, 0),
            Held::Text(text) => (Tag::Text, self.keep(text)?),
            Held::Moment(text) => (Tag::Moment, self.keep(text)?),
            Held::Digits(text) => (Tag::Digits, self.keep(text)?),
            Held::Json(text) => (Tag::Json, self.keep(text)?),
            Held::Blob(bytes) => {
                let word = span(self.blobs.len(), bytes.len())?;
                self.blobs.extend_from_slice(bytes);
                (Tag::Blob, word)
            }
        })
    }

    fn keep(&mut self, text: &str) -> Option<u64> {
        let word = span(self.texts.len(), text.len())?;
        self.texts.push_str(text);
        Some(word)
    }

    /// A column that no row before has had. Its place is behind all others.
    pub(crate) fn widen(&mut self, name: String) {
        self.header.push(name);
        self.columns.push(Column::default());
    }

    /// Whether there was more than there is room for.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Gives back what was reserved and not used.
    pub(super) fn settle(&mut self) {
        self.places.shrink_to_fit();
        self.texts.shrink_to_fit();
        self.blobs.shrink_to_fit();
        for column in &mut self.columns {
            column.tags.shrink_to_fit();
            column.words.shrink_to_fit();
        }
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.places.len()).expect("more rows are not taken")
    }

    #[inline]
    pub(crate) fn held(&self, row: u32, column: usize) -> Held<'_> {
        let column = &self.columns[column];
        let at = row.wrapping_sub(column.from) as usize;
        let Some(tag) = column.tags.get(at) else { return Held::Null };
        let word = column.words[at];
        let (from, to) = ((word >> 32) as usize, (word >> 32) as usize + word as u32 as usize);
        match tag {
            Tag::Null => Held::Null,
            Tag::Text => Held::Text(&self.texts[from..to]),
            Tag::Moment => Held::Moment(&self.texts[from..to]),
            Tag::Integer => Held::Integer(word.cast_signed()),
            Tag::Real => Held::Real(f64::from_bits(word)),
            Tag::Digits => Held::Digits(&self.texts[from..to]),
            Tag::False => Held::Boolean(false),
            Tag::True => Held::Boolean(true),
            Tag::Json => Held::Json(&self.texts[from..to]),
            Tag::Blob => Held::Blob(&self.blobs[from..to]),
        }
    }

    /// Where a row stands in the file, as people count.
    pub(super) fn place(&self, row: u32) -> u32 {
        self.places[row as usize]
    }

    pub(super) fn seen(&self, column: usize) -> &Seen {
        &self.columns[column].seen
    }

    pub(super) fn column_facts(&self) -> Vec<ColumnFacts> {
        let columns = self.header.iter().zip(&self.columns).enumerate();
        let facts = columns.map(|(at, (name, column))| {
            let computed = self.computed.iter().find(|(one, _)| *one == at);
            ColumnFacts {
                read_only: computed.map(|(_, why)| why.clone()),
                has_default: computed.is_some(),
                base64: self.nests && column.seen.is_base64(),
                ..column.seen.facts(name, u64::from(self.len()))
            }
        });
        facts.collect()
    }
}

fn span(from: usize, length: usize) -> Option<u64> {
    (from + length <= TEXTS_BYTES_MAX).then_some((from as u64) << 32 | length as u64)
}
