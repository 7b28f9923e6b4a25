//! Edits a JSON object in place: the bytes of all other members stay as they are.

use std::ops::Range;

use contract::source::{SourceError, WriteError};
use json::{Doc, ParseLimits, parse};

use super::value::{is_equal_to, write_json};
use crate::location::TextLocation;
use crate::tables::CellUpdate;

/// The whitespace and punctuation between the parts of an object, as its author writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectStyle {
    /// After the opening brace, between members, around the colon, before the closing brace.
    open: Vec<u8>,
    separator: Vec<u8>,
    colon: Vec<u8>,
    close: Vec<u8>,
}

impl Default for ObjectStyle {
    fn default() -> Self {
        Self { open: Vec::new(), separator: b",".to_vec(), colon: b":".to_vec(), close: Vec::new() }
    }
}

impl ObjectStyle {
    /// The style of an existing object. An object without members has the default style.
    pub(super) fn of_object(object: &[u8]) -> Self {
        scan_object(object).map(|doc| Self::of_doc(&doc)).unwrap_or_default()
    }

    fn of_doc(doc: &Doc) -> Self {
        let object = doc.root();
        let text = doc.text().as_bytes();
        let members: Vec<_> = object.members().collect();
        let [(first, _), ..] = &members[..] else { return Self::default() };
        let (last, last_value) = members[members.len() - 1];
        let open = text[object.span().start + 1..first.span().start].to_vec();
        let colon = text[last.span().end..last_value.span().start].to_vec();
        let separator = match members.len() {
            1 if open.contains(&b'\n') => [b",", &open[..]].concat(),
            1 if colon.ends_with(b" ") => b", ".to_vec(),
            1 => b",".to_vec(),
            count => text[members[count - 2].1.span().end..last.span().start].to_vec(),
        };
        let close = text[last_value.span().end..object.span().end - 1].to_vec();
        Self { open, separator, colon, close }
    }

    /// The same style without line ends, for files in which a line is a record.
    pub(super) fn single_line(self) -> Self {
        let flat = |part: Vec<u8>| part.into_iter().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
        Self {
            open: flat(self.open),
            separator: flat(self.separator),
            colon: flat(self.colon),
            close: flat(self.close),
        }
    }
}

/// The bytes are not those that were parsed, so nothing is written.
pub(super) fn changed_error() -> WriteError {
    SourceError::Busy { detail: "the file is not what it was when it was read".into() }.into()
}

fn scan_object(object: &[u8]) -> Option<Doc> {
    parse(object.to_vec(), &ParseLimits { depth_max: 64, values_max: 500_000 }).ok()
}

/// Writes a new object in the style of another. Its members are in the order of the table's columns.
pub(super) fn write_object(
    out: &mut Vec<u8>,
    style: &ObjectStyle,
    cells: &[CellUpdate<'_>],
) -> Result<(), WriteError> {
    let mut cells: Vec<&CellUpdate<'_>> = cells.iter().collect();
    cells.sort_by_key(|update| update.column);
    out.push(b'{');
    for (at, update) in cells.iter().enumerate() {
        out.extend_from_slice(if at == 0 { &style.open } else { &style.separator });
        write_member(out, style, update)?;
    }
    if !cells.is_empty() {
        out.extend_from_slice(&style.close);
    }
    out.push(b'}');
    Ok(())
}

fn write_member(out: &mut Vec<u8>, style: &ObjectStyle, update: &CellUpdate<'_>) -> Result<(), WriteError> {
    json::write::string(out, update.name);
    out.extend_from_slice(&style.colon);
    write_value(out, update)
}

fn write_value(out: &mut Vec<u8>, update: &CellUpdate<'_>) -> Result<(), WriteError> {
    write_json(out, update.value)
        .map_err(|message| WriteError::Rejected { column: Some(update.column), reason: message.into() })
}

/// Writes an object with some members changed. New members go after the others.
pub(super) fn write_updated_object(
    out: &mut Vec<u8>,
    object: &[u8],
    cells: &[CellUpdate<'_>],
) -> Result<(), WriteError> {
    let doc = scan_object(object).ok_or_else(changed_error)?;
    let (root, style) = (doc.root(), ObjectStyle::of_doc(&doc));
    let mut copied = 0;
    for (name, node) in root.members() {
        let Some(update) = cells.iter().find(|update| name.eq_str(update.name)) else { continue };
        if is_equal_to(node, update.value) {
            continue;
        }
        out.extend_from_slice(&object[copied..node.span().start]);
        write_value(out, update)?;
        copied = node.span().end;
    }
    let new = cells
        .iter()
        .filter(|update| update.value != crate::tables::StoredValue::Null && root.get(update.name).is_none());
    let end = root.members().last().map_or(root.span().start + 1, |(_, last)| last.span().end);
    out.extend_from_slice(&object[copied..end]);
    let mut is_first = root.is_empty();
    for update in new {
        if !std::mem::take(&mut is_first) {
            out.extend_from_slice(&style.separator);
        }
        write_member(out, &style, update)?;
    }
    out.extend_from_slice(&object[end..]);
    Ok(())
}

/// Replaces a range of `bytes`.
pub(super) fn splice(bytes: &[u8], span: Range<usize>, new: &[u8]) -> Vec<u8> {
    [&bytes[..span.start], new, &bytes[span.end..]].concat()
}

/// The location of a member's value; of the object, if it has no such member.
pub(super) fn member_location(
    bytes: &[u8],
    object: Range<usize>,
    column: Option<&str>,
) -> Option<TextLocation> {
    let text = std::str::from_utf8(bytes).ok()?;
    let doc = scan_object(&bytes[object.clone()])?;
    let member = column.and_then(|name| doc.root().get(name)).map(|node| node.span());
    let span = member.unwrap_or_else(|| doc.root().span());
    Some(TextLocation::new(text, object.start + span.start..object.start + span.end))
}
