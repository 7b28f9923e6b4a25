//! The answer of an aggregate.

use json::write::{integer, string};
use spile_core::ToolResult;

use super::{push_readable_value, tool_result};
use crate::aggregate::{SelectedGroups, write_value};
use crate::contract::Collection;
use crate::data_type::DataType;
use crate::humanize::pluralize;
use crate::source::GroupRow;

/// Names and types of the members of each item.
#[derive(Debug, Clone, Copy)]
pub struct GroupMembers<'a> {
    pub names: &'a [String],
    pub kinds: &'a [DataType],
    /// How many of them are groups; the others are measures.
    pub group_count: usize,
}

/// The result: one item for each group, within the limits of a page; and whether that is not all of them.
pub fn groups(
    collection: &Collection,
    members: GroupMembers<'_>,
    selected: &SelectedGroups,
) -> (ToolResult, bool) {
    let (mut items, mut lines, mut shown) = (Vec::new(), String::new(), 0);
    for GroupRow(values) in &selected.rows {
        let before = items.len();
        if shown > 0 {
            items.push(b',');
        }
        for (at, (name, value)) in members.names.iter().zip(values).enumerate() {
            items.push(if at == 0 { b'{' } else { b',' });
            string(&mut items, name);
            items.push(b':');
            write_value(&mut items, members.kinds[at], value.as_value_ref());
        }
        items.push(b'}');
        if items.len() > collection.bytes_max && shown > 0 {
            items.truncate(before);
            break;
        }
        shown += 1;
        for (at, value) in values.iter().enumerate() {
            lines.push_str(if at == 0 { "\n" } else { " | " });
            push_readable_value(&mut lines, members.kinds[at], value.as_value_ref());
        }
    }
    let is_truncated = shown < selected.total;
    let mut out = b"{\"items\":[".to_vec();
    out.extend_from_slice(&items);
    out.extend_from_slice(b"],\"groups_total\":");
    integer(&mut out, i64::try_from(selected.total).unwrap_or(i64::MAX));
    out.extend_from_slice(if is_truncated { b",\"truncated\":true}" } else { b",\"truncated\":false}" });
    (tool_result(text(collection, members, selected.total, shown, &lines), out), is_truncated)
}

/// A summary line, then the groups as a table; without groups only the measures.
fn text(
    collection: &Collection,
    members: GroupMembers<'_>,
    total: usize,
    shown: usize,
    lines: &str,
) -> String {
    let (name, header) = (&collection.name, members.names.join(" | "));
    if shown == 0 {
        return format!("No groups of {name} match.");
    }
    let summary = match members.group_count {
        0 => format!("All matching rows of {name}:"),
        _ if shown < total => {
            format!("{shown} of {total} groups of {name}; for others, add filters or sort:")
        }
        _ => format!("{} of {name}:", pluralize(total as u64, "group")),
    };
    format!("{summary}\n{header}{lines}")
}
