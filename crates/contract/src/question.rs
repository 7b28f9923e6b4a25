//! What a user is asked before something is written: the record as it is and what would become of it, in plain
//! words.

use call::text::is_harmful;

use crate::cell::Cell;
use crate::contract::{Collection, Statement};
use crate::field::Field;
use crate::shape::{MASK, readable};

/// More lines than this nobody reads.
const LINES_MAX: usize = 40;

/// What is about to happen to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Create,
    Update,
    Delete,
}

/// The question for one record: as it is (a new one is not yet), and as it would be (for a delete, as it is).
pub fn record(collection: &Collection, doing: Doing, before: &[Cell<'_>], after: &[Cell<'_>]) -> String {
    let name = &collection.name;
    let (head, lines) = match doing {
        Doing::Create => (format!("Add this record to {name}?"), shown(&collection.fields, after)),
        Doing::Delete => (format!("Delete this record of {name}?"), shown(&collection.fields, after)),
        Doing::Update => (format!("Change this record of {name}?"), changed(collection, before, after)),
    };
    listed(head, lines)
}

/// The question for a statement: how many rows it would change, and with which arguments.
pub fn statement(statement: &Statement, changed: u64, arguments: &[Cell<'_>]) -> String {
    let rows = if changed == 1 { "1 row".to_owned() } else { format!("{changed} rows") };
    let head = format!("Run {}? It would change {rows}.", statement.result.name);
    let fields = statement.arguments.iter().map(|argument| &argument.field);
    let lines = fields.zip(arguments).map(|(field, cell)| format!("{}: {}", field.name, value(field, *cell)));
    listed(head, lines.collect())
}

fn shown(fields: &[Field], cells: &[Cell<'_>]) -> Vec<String> {
    let there = fields.iter().zip(cells).filter(|(_, cell)| !matches!(cell, Cell::Null));
    there.map(|(field, cell)| format!("{}: {}", field.name, value(field, *cell))).collect()
}

/// The key first, then what changes; what stays as it is would only hide it.
fn changed(collection: &Collection, before: &[Cell<'_>], after: &[Cell<'_>]) -> Vec<String> {
    let key = collection.shape.key.iter().map(|at| {
        let field = &collection.fields[*at];
        format!("{}: {}", field.name, value(field, after[*at]))
    });
    let rest = collection.fields.iter().zip(before.iter().zip(after)).filter(|(_, (old, new))| old != new);
    let rest = rest.map(|(field, (old, new))| {
        format!("{}: {} → {}", field.name, value(field, *old), value(field, *new))
    });
    key.chain(rest).collect()
}

fn value(field: &Field, cell: Cell<'_>) -> String {
    match cell {
        Cell::Null => "(nothing)".into(),
        _ if field.sensitive => MASK.into(),
        Cell::Text("") => "(empty)".into(),
        cell => {
            let mut out = String::new();
            readable(&mut out, field, cell);
            // Nothing that hides or turns: whoever reads this decides by it.
            out.retain(|c| !is_hidden(c));
            out
        }
    }
}

/// Characters that are not seen, or that turn others around. A terminal need not mind all of them.
pub(crate) fn is_hidden(c: char) -> bool {
    is_harmful(c) || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}')
}

fn listed(head: String, mut lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(LINES_MAX);
    lines.truncate(LINES_MAX);
    let mut out = head;
    for line in lines {
        out.push('\n');
        out.push_str(&line);
    }
    if more > 0 {
        out.push_str(&format!("\nand {more} more"));
    }
    out
}
