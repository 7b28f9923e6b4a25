//! From rows to results: typed records under a row cap and a byte budget, and a text to read beside them.

use call::{Content, ToolReply};
use json::Json;

use crate::cell::{Cell, Value};
use crate::contract::Collection;
use crate::cursor::{self, POSITION_BYTES_MAX};
use crate::field::Field;
use crate::line::Line;
use crate::source::{More, Place, Position, Sort};

/// Why a row cannot be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// A value is not what the contract says of its field, in the row with this key.
    Value { field: String, row: String },
    /// It is larger than anything that should travel.
    TooLarge { bytes: usize },
    /// A page would end with a value that no cursor can name: bytes where there should be text, or a text that
    /// is too long for one.
    Nameless { field: String },
}

/// The largest record. A page has its own, smaller bound, which only its first record may exceed.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// One record as a result.
#[inline]
pub fn record(collection: &Collection, line: Option<&Line>, cells: &[Cell<'_>]) -> Result<ToolReply, Unfit> {
    let mut out = Vec::with_capacity(48 * collection.fields.len() + 32);
    object(&mut out, collection.fields.iter().zip(cells.iter().copied()))
        .map_err(|field| unfit(collection, field, cells))?;
    if out.len() > RECORD_BYTES_MAX {
        return Err(Unfit::TooLarge { bytes: out.len() });
    }
    let text = match line {
        Some(line) => line.fill(&collection.fields, cells),
        None => sentence(&collection.fields, cells),
    };
    Ok(reply(text, out))
}

fn reply(text: String, structured: Vec<u8>) -> ToolReply {
    ToolReply {
        content: Content::Text(text),
        structured: Some(Json::written(structured)),
        is_error: false,
        meta: None,
    }
}

#[inline]
fn object<'a>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'a Field, Cell<'a>)>,
) -> Result<(), &'a Field> {
    let start = out.len();
    for (field, cell) in members {
        out.push(if out.len() == start { b'{' } else { b',' });
        field.member(out, cell).map_err(|_| field)?;
    }
    if out.len() == start {
        out.push(b'{');
    }
    out.push(b'}');
    Ok(())
}

/// Says which row it is, for the log.
#[cold]
fn unfit(collection: &Collection, field: &Field, cells: &[Cell<'_>]) -> Unfit {
    let key = &collection.shape.key;
    let parts = key.iter().map(|at| {
        let mut part = format!("{} ", collection.fields[*at].name);
        readable(&mut part, &collection.fields[*at], cells[*at]);
        part
    });
    let row = if key.is_empty() { "no key".into() } else { parts.collect::<Vec<_>>().join(", ") };
    Unfit::Value { field: field.name.clone(), row }
}

/// `email: dana@acme.test · plan: emerald`. What has no value is left out.
fn sentence(fields: &[Field], cells: &[Cell<'_>]) -> String {
    let mut out = String::with_capacity(32 * fields.len());
    for (field, cell) in fields.iter().zip(cells) {
        if matches!(cell, Cell::Null) {
            continue;
        }
        if !out.is_empty() {
            out.push_str(" · ");
        }
        out.push_str(&field.name);
        out.push_str(": ");
        readable(&mut out, field, *cell);
    }
    out
}

/// A text is for reading: one line, and no longer than a line should be. The record has all of it.
const CELL_CHARS_MAX: usize = 200;

fn readable(out: &mut String, field: &Field, cell: Cell<'_>) {
    let start = out.len();
    field.readable(out, cell);
    if out.as_bytes()[start..].iter().any(|c| *c < 0x20) {
        let flat = out[start..].replace(|c: char| c < ' ', " ");
        out.replace_range(start.., &flat);
    }
    if out.len() - start > CELL_CHARS_MAX
        && let Some((cut, _)) = out[start..].char_indices().nth(CELL_CHARS_MAX)
    {
        out.truncate(start + cut);
        out.push('…');
    }
}

/// A page that is being filled.
pub struct Page<'c> {
    collection: &'c Collection,
    line: Option<&'c Line>,
    fields: Option<Vec<usize>>,
    sort: Option<Sort>,
    rows_max: usize,
    items: Vec<u8>,
    text: String,
    rows: usize,
    truncated: bool,
    last: Option<Position>,
    unfit: Option<Unfit>,
}

impl<'c> Page<'c> {
    pub fn new(
        collection: &'c Collection,
        line: Option<&'c Line>,
        fields: Option<Vec<usize>>,
        sort: Option<Sort>,
        rows_max: usize,
    ) -> Self {
        Self {
            collection,
            line,
            fields,
            sort,
            rows_max,
            items: Vec::new(),
            text: String::new(),
            rows: 0,
            truncated: false,
            last: None,
            unfit: None,
        }
    }

    /// Takes a row, if there is still room for it.
    pub fn take(&mut self, cells: &[Cell<'_>], place: Place) -> More {
        if self.rows == self.rows_max {
            self.truncated = true;
            return More::No;
        }
        let before = self.items.len();
        if self.rows > 0 {
            self.items.push(b',');
        }
        let fields = &self.collection.fields;
        let written = match &self.fields {
            None => object(&mut self.items, fields.iter().zip(cells.iter().copied())),
            Some(chosen) => object(&mut self.items, chosen.iter().map(|at| (&fields[*at], cells[*at]))),
        };
        if let Err(field) = written {
            self.unfit = Some(unfit(self.collection, field, cells));
            return More::No;
        }
        // The first row is told whatever its size: without it no page would ever get further.
        if self.items.len() > self.collection.bytes_max && self.rows > 0 {
            self.items.truncate(before);
            self.truncated = true;
            return More::No;
        }
        if self.items.len() > RECORD_BYTES_MAX {
            self.unfit = Some(Unfit::TooLarge { bytes: self.items.len() });
            return More::No;
        }
        self.rows += 1;
        self.text_row(cells);
        let key = match &*self.collection.shape.key {
            [] => vec![Cell::Integer(place.row).to_value(), Cell::Integer(place.state).to_value()],
            key => key.iter().map(|at| cells[*at].to_value()).collect(),
        };
        self.last = Some(Position { sorted: self.sort.map(|sort| cells[sort.column].to_value()), key });
        More::Yes
    }

    fn text_row(&mut self, cells: &[Cell<'_>]) {
        self.text.push('\n');
        let fields = &self.collection.fields;
        if let Some(line) = self.line {
            self.text.push_str(&line.fill(fields, cells));
            return;
        }
        let mut first = true;
        for at in chosen(fields, self.fields.as_deref()) {
            if !std::mem::take(&mut first) {
                self.text.push_str(" | ");
            }
            readable(&mut self.text, &fields[at], cells[at]);
        }
    }

    /// The result. `seal` makes a cursor of the place where the page ended.
    pub fn finish(
        self,
        total: Option<u64>,
        seal: impl FnOnce(&Position) -> String,
    ) -> Result<ToolReply, Unfit> {
        if let Some(unfit) = self.unfit {
            return Err(unfit);
        }
        let last = self.last.as_ref().filter(|_| self.truncated);
        if let Some(field) = last.and_then(|last| self.nameless(last)) {
            return Err(Unfit::Nameless { field: field.name.clone() });
        }
        let cursor = last.map(seal);
        let mut out = Vec::with_capacity(self.items.len() + 128);
        out.extend_from_slice(b"{\"items\":[");
        out.extend_from_slice(&self.items);
        out.push(b']');
        if let Some(cursor) = &cursor {
            out.extend_from_slice(b",\"nextCursor\":");
            json::write::string(&mut out, cursor);
        }
        out.extend_from_slice(if self.truncated { b",\"truncated\":true" } else { b",\"truncated\":false" });
        if let Some(total) = total {
            out.extend_from_slice(format!(",\"total\":{total}").as_bytes());
        }
        out.push(b'}');
        Ok(reply(self.headed(total), out))
    }

    /// The field whose value a cursor could not name.
    fn nameless(&self, last: &Position) -> Option<&'c Field> {
        let key = last.key.iter().zip(&self.collection.shape.key).map(|(value, at)| (value, *at));
        let sorted = last.sorted.iter().zip(self.sort).map(|(value, sort)| (value, sort.column));
        let named = || sorted.clone().chain(key.clone());
        let is_long = named().map(|(value, _)| cursor::size(value)).sum::<usize>() > POSITION_BYTES_MAX;
        let bytes = named().find(|(value, _)| matches!(value, Value::Blob(_)));
        let blamed =
            bytes.or_else(|| named().max_by_key(|(value, _)| cursor::size(value)).filter(|_| is_long));
        blamed.map(|(_, at)| &self.collection.fields[at])
    }

    /// The table under a line that says how much of it this is.
    fn headed(&self, total: Option<u64>) -> String {
        let name = &self.collection.name;
        let of = total.map_or_else(String::new, |total| format!(" of {total}"));
        let more = if self.truncated { "; there are more: pass `nextCursor` as `cursor`" } else { "" };
        let mut out = format!("{name}: {}{of}{more}", self.rows);
        if self.rows > 0 && self.line.is_none() {
            out.push('\n');
            let fields = &self.collection.fields;
            let names: Vec<&str> =
                chosen(fields, self.fields.as_deref()).map(|at| fields[at].name.as_str()).collect();
            out.push_str(&names.join(" | "));
        }
        out.push_str(&self.text);
        out
    }
}

fn chosen<'a>(fields: &[Field], chosen: Option<&'a [usize]>) -> impl Iterator<Item = usize> + 'a {
    let all = chosen.is_none().then_some(0..fields.len());
    all.into_iter().flatten().chain(chosen.into_iter().flatten().copied())
}
