//! Turns rows into tool results: structured content within row and byte limits, and text for people and models.

mod export;
mod groups;
mod items;
mod linked;
mod page;
mod write_result;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::Json;
use ring::digest;
use spile_core::{ToolContent, ToolResult};

use crate::contract::{Collection, VERSION_FIELD};
use crate::data_type::DataType;
use crate::field::{BLOB_BYTES_MAX, Field, write_readable};
use crate::text_template::TextTemplate;
use crate::value::ValueRef;

pub use export::{ExportError, ExportFormat, ExportLimits, ExportWriter};
pub use groups::{GroupMembers, groups};
pub use items::RowList;
pub use linked::{LinkError, LinkedRows, with_linked_rows};
pub use page::Page;
pub use write_result::{WriteResult, replayed_tool_result, write_tool_result};

/// Why a row cannot be returned. The texts are for the log: they may name a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A value does not have its field's type, in the row with this key.
    #[error("`{field}` does not match the contract in the row with {row}")]
    TypeMismatch { field: String, row: String },
    /// The row exceeds [`RECORD_BYTES_MAX`].
    #[error("the row has {bytes} bytes, which exceeds the limit of {RECORD_BYTES_MAX} bytes")]
    TooLarge { bytes: usize },
    /// The page would end at a value that a cursor cannot hold: a blob in a text column, or a text that is too long.
    #[error("the page would end at a value of `{field}` that a cursor cannot hold")]
    InvalidCursorValue { field: String },
}

/// The maximum size of one row. A page has its own, smaller limit, which only its first row may exceed.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// The result for one row.
#[inline]
pub fn record(
    collection: &Collection,
    template: Option<&TextTemplate>,
    cells: &[ValueRef<'_>],
) -> Result<ToolResult, RecordError> {
    let mut out = Vec::with_capacity(48 * collection.fields.len() + 32);
    let version = write_record(&mut out, collection, cells)?;
    if out.len() > RECORD_BYTES_MAX {
        return Err(RecordError::TooLarge { bytes: out.len() });
    }
    Ok(tool_result(record_text(collection, template, cells, version.as_deref()), out))
}

/// Writes a row with all its fields, and returns its `_version` if the collection has one.
#[inline]
fn write_record(
    out: &mut Vec<u8>,
    collection: &Collection,
    cells: &[ValueRef<'_>],
) -> Result<Option<String>, RecordError> {
    let start = out.len();
    write_object(out, collection.fields.iter().zip(cells.iter().copied()))
        .map_err(|field| type_mismatch(collection, field, cells))?;
    if !collection.has_version_field() {
        return Ok(None);
    }
    let version = version_digest(&out[start..], cells);
    append_member(out, VERSION_FIELD, |out| json::write::string(out, &version));
    Ok(Some(version))
}

/// The digest of a row: of everything that is returned, and of blobs that are too long to be returned.
pub fn record_version(collection: &Collection, cells: &[ValueRef<'_>]) -> Result<String, RecordError> {
    let mut out = Vec::with_capacity(48 * collection.fields.len() + 32);
    write_object(&mut out, collection.fields.iter().zip(cells.iter().copied()))
        .map_err(|field| type_mismatch(collection, field, cells))?;
    Ok(version_digest(&out, cells))
}

/// 72 bits are enough: an attacker gains nothing from two versions of a row that collide.
const VERSION_BYTES: usize = 9;

fn version_digest(record: &[u8], cells: &[ValueRef<'_>]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(record);
    for cell in cells {
        if let ValueRef::Blob(bytes) = cell
            && bytes.len() > BLOB_BYTES_MAX
        {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        }
    }
    URL_SAFE_NO_PAD.encode(&context.finish().as_ref()[..VERSION_BYTES])
}

/// The text for one row.
fn record_text(
    collection: &Collection,
    template: Option<&TextTemplate>,
    cells: &[ValueRef<'_>],
    version: Option<&str>,
) -> String {
    let mut text = match template {
        Some(template) => return template.render(&collection.fields, cells),
        None => default_text(&collection.fields, cells),
    };
    // Some clients show only the text to the model.
    if let Some(version) = version {
        text.push_str(&format!(" · {VERSION_FIELD}: {version}"));
    }
    text
}

fn tool_result(text: String, structured: Vec<u8>) -> ToolResult {
    ToolResult {
        content: ToolContent::Text(text),
        structured: Some(Json::from_written_bytes(structured)),
        is_error: false,
        meta: None,
    }
}

/// Adds notices about the values of a result: each as a text block, and all in the member `member`, if the output schema
/// has it.
pub fn with_notices(mut result: ToolResult, notices: &[&str], member: Option<&str>) -> ToolResult {
    if notices.is_empty() {
        return result;
    }
    if let (Some(member), Some(structured)) = (member, &result.structured) {
        let mut out = structured.as_str().as_bytes().to_vec();
        append_member(&mut out, member, |out| {
            json::write::array(out, notices, |out, notice| json::write::string(out, notice));
        });
        result.structured = Some(Json::from_written_bytes(out));
    }
    notices.iter().fold(result, |result, notice| result.with_notice(notice))
}

/// Adds a member to the object at the end of `out`.
fn append_member(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    out.pop();
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    json::write::string(out, name);
    out.push(b':');
    value(out);
    out.push(b'}');
}

#[inline]
fn write_object<'a>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'a Field, ValueRef<'a>)>,
) -> Result<(), &'a Field> {
    let start = out.len();
    for (field, cell) in members {
        out.push(if out.len() == start { b'{' } else { b',' });
        field.write_member(out, cell).map_err(|_| field)?;
    }
    if out.len() == start {
        out.push(b'{');
    }
    out.push(b'}');
    Ok(())
}

/// Names the row for the log.
#[cold]
fn type_mismatch(collection: &Collection, field: &Field, cells: &[ValueRef<'_>]) -> RecordError {
    let key = &collection.shape.key;
    let parts = key.iter().map(|at| {
        let field = &collection.fields[*at];
        let mut part = format!("{} ", field.name);
        if field.sensitive {
            part.push_str(MASK);
        } else {
            push_readable(&mut part, field, cells[*at]);
        }
        part
    });
    let row = if key.is_empty() { "no key".into() } else { parts.collect::<Vec<_>>().join(", ") };
    RecordError::TypeMismatch { field: field.name.clone(), row }
}

/// Replaces a sensitive value.
pub const MASK: &str = "***";

/// `email: dana@acme.test · plan: emerald`, without the fields that have no value.
fn default_text(fields: &[Field], cells: &[ValueRef<'_>]) -> String {
    let mut out = String::with_capacity(32 * fields.len());
    for (field, cell) in fields.iter().zip(cells) {
        if matches!(cell, ValueRef::Null) {
            continue;
        }
        if !out.is_empty() {
            out.push_str(" · ");
        }
        out.push_str(&field.name);
        out.push_str(": ");
        push_readable(&mut out, field, *cell);
    }
    out
}

/// The text shows a longer value truncated; the structured content has all of it.
const VALUE_CHARS_MAX: usize = 200;

pub(crate) fn push_readable(out: &mut String, field: &Field, cell: ValueRef<'_>) {
    push_readable_value(out, field.data_type, cell);
}

fn push_readable_value(out: &mut String, kind: DataType, cell: ValueRef<'_>) {
    let start = out.len();
    write_readable(out, kind, cell);
    if out.as_bytes()[start..].iter().any(|c| *c < 0x20) {
        let flat = out[start..].replace(|c: char| c < ' ', " ");
        out.replace_range(start.., &flat);
    }
    if out.len() - start > VALUE_CHARS_MAX
        && let Some((cut, _)) = out[start..].char_indices().nth(VALUE_CHARS_MAX)
    {
        out.truncate(start + cut);
        out.push('…');
    }
}
