//! The text of a confirmation: the row and the change that the user is asked to approve.

use spile_core::text::is_unsafe_to_display;

use crate::contract::{Collection, Request, Statement};
use crate::field::Field;
use crate::humanize::pluralize;
use crate::results::{MASK, push_readable};
use crate::value::ValueRef;

/// A longer list of fields is truncated.
const LINES_MAX: usize = 40;

/// The change that needs a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOperation {
    Create,
    Update,
    Delete,
}

/// The confirmation for one row. `before` is empty for a new row; for a delete, `after` is the current row.
pub fn record_message(
    collection: &Collection,
    operation: WriteOperation,
    before: &[ValueRef<'_>],
    after: &[ValueRef<'_>],
) -> String {
    let name = &collection.name;
    let (head, lines) = match operation {
        WriteOperation::Create => {
            (format!("Add this row to {name}?"), field_lines(&collection.fields, after))
        }
        WriteOperation::Delete => {
            (format!("Delete this row of {name}?"), field_lines(&collection.fields, after))
        }
        WriteOperation::Update => {
            (format!("Update this row of {name}?"), changed_lines(collection, before, after))
        }
    };
    format_message(head, lines)
}

/// The confirmation for a statement: how many rows it would change, and its arguments.
pub fn statement_message(statement: &Statement, changed: u64, arguments: &[ValueRef<'_>]) -> String {
    let rows = pluralize(changed, "row");
    let head = format!("Run {}? It would change {rows}.", statement.result.name);
    let fields = statement.arguments.iter().map(|argument| &argument.field);
    let lines =
        fields.zip(arguments).map(|(field, cell)| format!("{}: {}", field.name, display_value(field, *cell)));
    format_message(head, lines.collect())
}

/// The confirmation for a request: what it is called, and its arguments. What it changes is not known before it is sent.
pub fn request_message(request: &Request, arguments: &[ValueRef<'_>]) -> String {
    let method = request.shape.template.method.as_str();
    let head = format!("Send {} ({method}) to {}?", request.result.name, request.source);
    let fields = request.arguments.iter().map(|argument| &argument.field);
    let given = fields.zip(arguments).filter(|(_, cell)| **cell != ValueRef::Null);
    let lines = given.map(|(field, cell)| format!("{}: {}", field.name, display_value(field, *cell)));
    format_message(head, lines.collect())
}

fn field_lines(fields: &[Field], cells: &[ValueRef<'_>]) -> Vec<String> {
    let present = fields.iter().zip(cells).filter(|(_, cell)| !matches!(cell, ValueRef::Null));
    present.map(|(field, cell)| format!("{}: {}", field.name, display_value(field, *cell))).collect()
}

/// The key, then the fields that change.
fn changed_lines(collection: &Collection, before: &[ValueRef<'_>], after: &[ValueRef<'_>]) -> Vec<String> {
    let key = collection.shape.key.iter().map(|at| {
        let field = &collection.fields[*at];
        format!("{}: {}", field.name, display_value(field, after[*at]))
    });
    let rest = collection.fields.iter().zip(before.iter().zip(after)).filter(|(_, (old, new))| old != new);
    let rest = rest.map(|(field, (old, new))| {
        format!("{}: {} → {}", field.name, display_value(field, *old), display_value(field, *new))
    });
    key.chain(rest).collect()
}

fn display_value(field: &Field, cell: ValueRef<'_>) -> String {
    match cell {
        ValueRef::Null => "(no value)".into(),
        _ if field.sensitive => MASK.into(),
        ValueRef::Text("") => "(empty)".into(),
        cell => {
            let mut out = String::new();
            push_readable(&mut out, field, cell);
            // The user decides by this text, so it must not hide or reorder anything.
            out.retain(|c| !is_invisible(c));
            out
        }
    }
}

/// Characters that are invisible or change the direction of text. Includes some that are harmless in a terminal.
pub(crate) fn is_invisible(c: char) -> bool {
    is_unsafe_to_display(c) || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}')
}

fn format_message(head: String, mut lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(LINES_MAX);
    lines.truncate(LINES_MAX);
    let mut out = head;
    for line in lines {
        out.push('\n');
        out.push_str(&line);
    }
    if more > 0 {
        out.push_str(&format!("\nand {more} more fields"));
    }
    out
}
