//! From rows to results: typed records under a row cap and a byte budget, and a text to read beside them.

mod items;
mod page;
mod written;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use call::{Content, ToolReply};
use json::Json;
use ring::digest;

use crate::cell::Cell;
use crate::contract::{Collection, VERSION};
use crate::field::{BLOB_BYTES_MAX, Field};
use crate::line::Line;

pub use items::Rows;
pub use page::Page;
pub use written::{Told, replayed, told};

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
    let version = whole(&mut out, collection, cells)?;
    if out.len() > RECORD_BYTES_MAX {
        return Err(Unfit::TooLarge { bytes: out.len() });
    }
    Ok(reply(words(collection, line, cells, version.as_deref()), out))
}

/// Writes a record with all its fields, and says its version where that is told.
#[inline]
fn whole(out: &mut Vec<u8>, collection: &Collection, cells: &[Cell<'_>]) -> Result<Option<String>, Unfit> {
    let start = out.len();
    object(out, collection.fields.iter().zip(cells.iter().copied()))
        .map_err(|field| unfit(collection, field, cells))?;
    if !collection.tells_version() {
        return Ok(None);
    }
    let version = state(&out[start..], cells);
    put_version(out, &version);
    Ok(Some(version))
}

/// What tells this state of a row from another: a digest of all that is told of it, and of what is too long to be.
pub fn version(collection: &Collection, cells: &[Cell<'_>]) -> Result<String, Unfit> {
    let mut out = Vec::with_capacity(48 * collection.fields.len() + 32);
    object(&mut out, collection.fields.iter().zip(cells.iter().copied()))
        .map_err(|field| unfit(collection, field, cells))?;
    Ok(state(&out, cells))
}

/// 72 bits: nobody gains by finding two states that are told apart by chance only.
const VERSION_BYTES: usize = 9;

fn state(record: &[u8], cells: &[Cell<'_>]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(record);
    for cell in cells {
        if let Cell::Blob(bytes) = cell
            && bytes.len() > BLOB_BYTES_MAX
        {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        }
    }
    URL_SAFE_NO_PAD.encode(&context.finish().as_ref()[..VERSION_BYTES])
}

/// Adds the version to the object that `out` ends with.
fn put_version(out: &mut Vec<u8>, version: &str) {
    out.pop();
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    json::write::string(out, VERSION);
    out.push(b':');
    json::write::string(out, version);
    out.push(b'}');
}

/// How a record reads.
fn words(collection: &Collection, line: Option<&Line>, cells: &[Cell<'_>], version: Option<&str>) -> String {
    let mut text = match line {
        Some(line) => return line.fill(&collection.fields, cells),
        None => sentence(&collection.fields, cells),
    };
    // Some clients show their model the text alone.
    if let Some(version) = version {
        text.push_str(&format!(" · {VERSION}: {version}"));
    }
    text
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
        let field = &collection.fields[*at];
        let mut part = format!("{} ", field.name);
        if field.sensitive {
            part.push_str(MASK);
        } else {
            readable(&mut part, field, cells[*at]);
        }
        part
    });
    let row = if key.is_empty() { "no key".into() } else { parts.collect::<Vec<_>>().join(", ") };
    Unfit::Value { field: field.name.clone(), row }
}

/// What stands for a value that must not be seen.
pub const MASK: &str = "•••";

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

pub(crate) fn readable(out: &mut String, field: &Field, cell: Cell<'_>) {
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
