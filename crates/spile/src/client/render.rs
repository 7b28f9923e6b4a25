//! Formats a server's tools, resources, prompts and results for people.
//!
//! All text here comes from the server, so every string passes through [`sanitize`] on its way to the terminal.

use std::fmt::Write;

use contract::humanize::{group_digits, pluralize};
use json::{Json, Node, NodeKind};

use super::output_style::OutputStyle;
use super::schema::{Schema, ValueSchema};
use crate::layout::{ColumnFit, Table, hanging, join_names, render_record, wrap};
use crate::sanitize;

/// A list shows this many arguments of a tool or prompt.
const ARGUMENTS_SHOWN_MAX: usize = 6;

fn string_member(node: Node<'_>, key: &str) -> Option<String> {
    node.get(key).and_then(|text| text.str()).map(|text| text.into_owned())
}

/// The first line of the description, or else the title.
fn first_line(node: Node<'_>) -> String {
    let text =
        string_member(node, "description").or_else(|| string_member(node, "title")).unwrap_or_default();
    sanitize::escape_line(text.trim().lines().next().unwrap_or_default()).into_owned()
}

fn safe_name(node: Node<'_>) -> String {
    sanitize::escape_line(&string_member(node, "name").unwrap_or_default()).into_owned()
}

/// The name in a list. A row without one would look like a continuation of the row above.
fn display_name(node: Node<'_>) -> String {
    let name = safe_name(node);
    if name.trim().is_empty() { "(no name)".to_owned() } else { name }
}

/// The tool's own annotations. A server may lie in them.
fn hints(tool: Node<'_>) -> String {
    let hint =
        |key: &str| tool.get("annotations").and_then(|hints| hints.get(key)).and_then(|hint| hint.bool());
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (Some(true), _) => "read-only".to_owned(),
        (_, Some(true)) => "destructive".to_owned(),
        (_, Some(false) | None) => String::new(),
    }
}

pub(crate) fn tools(tools: &[Json], style: &OutputStyle) -> String {
    let mut table = Table::new(&["tool", "arguments", "", ""])
        .fit(0, ColumnFit::Keep)
        .fit(1, ColumnFit::Drop)
        .fit(2, ColumnFit::Drop);
    for tool in tools {
        let doc = tool.to_doc();
        let root = doc.root();
        let schema = root.get("inputSchema").map(Schema::parse).unwrap_or_default();
        let arguments: Vec<String> =
            schema.summary().iter().map(|one| sanitize::escape_line(one).into_owned()).collect();
        table.rows.push(vec![
            display_name(root),
            join_names(&arguments, ARGUMENTS_SHOWN_MAX, None),
            hints(root),
            first_line(root),
        ]);
    }
    table.render(style, 0)
}

/// Describes one tool in full.
pub(crate) fn tool(tool: &Json, style: &OutputStyle) -> String {
    let doc = tool.to_doc();
    let root = doc.root();
    let name = display_name(root);
    let title = string_member(root, "title").map(|title| sanitize::escape_line(&title).into_owned());
    let details: Vec<String> =
        title.into_iter().chain(Some(hints(root))).filter(|detail| !detail.is_empty()).collect();
    let details = details.join(" · ");
    let line_width = sanitize::width(&name) + sanitize::width(" · ") + sanitize::width(&details);
    let mut out = style.bold(&name);
    if details.is_empty() {
        out.push('\n');
    } else if style.columns.is_none_or(|columns| line_width <= columns) {
        let _ = writeln!(out, " · {details}");
    } else {
        out.push('\n');
        out += &hanging("  ", &details, style.columns);
    }
    write_description(&mut out, root, style);
    let input = root.get("inputSchema").map(Schema::parse).unwrap_or_default();
    write_fields(&mut out, "arguments", &input, style);
    if let Some(output) = root.get("outputSchema") {
        write_fields(&mut out, "result", &result_schema(output), style);
    }
    let _ = writeln!(out, "\n{}", style.faint("usage"));
    let usage = input.usage("call", &string_member(root, "name").unwrap_or_default());
    out + &hanging("  ", &sanitize::escape_line(&usage), style.columns)
}

/// The fields of a result. A schema that allows an error too has them in its first alternative.
fn result_schema(output: Node<'_>) -> Schema {
    let own = Schema::parse(output);
    if !own.arguments.is_empty() {
        return own;
    }
    let parts = output.get("anyOf").or_else(|| output.get("oneOf"));
    parts.and_then(|parts| parts.elements().next()).map(Schema::parse).unwrap_or(own)
}

fn write_description(out: &mut String, root: Node<'_>, style: &OutputStyle) {
    let Some(description) = string_member(root, "description") else { return };
    let columns = style.columns.map(|columns| columns.saturating_sub(2));
    for row in wrap(&sanitize::lines(description.trim()), columns) {
        let _ = writeln!(out, "{}", format!("  {row}").trim_end());
    }
}

fn write_fields(out: &mut String, heading: &str, schema: &Schema, style: &OutputStyle) {
    if schema.arguments.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.faint(heading));
    let rows: Vec<Vec<String>> = schema
        .arguments
        .iter()
        .map(|argument| {
            let name = format!("{}{}", argument.name, if argument.is_required { "*" } else { "" });
            let cells = [name, argument.schema.describe(), description_with_default(&argument.schema)];
            cells.iter().map(|cell| sanitize::escape_line(cell).into_owned()).collect()
        })
        .collect();
    let name_width = rows.iter().map(|row| sanitize::width(&row[0])).max().unwrap_or(0);
    if style.columns.is_some_and(|columns| columns < name_width + FIELD_TEXT_WIDTH_MIN) {
        return write_stacked_fields(out, &rows, style);
    }
    let mut table =
        Table::new(&["", "", ""]).fit(0, ColumnFit::Keep).fit(1, ColumnFit::Wrap).fit(2, ColumnFit::Wrap);
    table.rows = rows;
    out.push_str(&table.render(style, 2));
}

/// Type and description side by side need this many columns to wrap at words.
const FIELD_TEXT_WIDTH_MIN: usize = 46;

/// For a narrow terminal: the description is below the name.
fn write_stacked_fields(out: &mut String, rows: &[Vec<String>], style: &OutputStyle) {
    for row in rows {
        out.push_str(&hanging("  ", &format!("{}: {}", row[0], row[1]), style.columns));
        if !row[2].is_empty() {
            out.push_str(&hanging("    ", &row[2], style.columns));
        }
    }
}

fn description_with_default(schema: &ValueSchema) -> String {
    let description = schema.description.as_deref().unwrap_or_default().replace(['\n', '\r'], " ");
    match &schema.default {
        Some(default) => format!("{description} (default {default})").trim_start().to_owned(),
        None => description,
    }
}

pub(crate) fn resources(resources: &[Json], templates: &[Json], style: &OutputStyle) -> String {
    let mut table = Table::new(&["resource", "name", "type", "size", ""])
        .fit(0, ColumnFit::Keep)
        .fit(2, ColumnFit::Drop)
        .fit(3, ColumnFit::Drop)
        .align_right(3);
    let mut row = |one: &Json, key: &str| {
        let doc = one.to_doc();
        let root = doc.root();
        let size = root.get("size").and_then(|size| size.u64()).map(group_digits).unwrap_or_default();
        let uri = sanitize::escape_line(&string_member(root, key).unwrap_or_default()).into_owned();
        let kind = sanitize::escape_line(&string_member(root, "mimeType").unwrap_or_default()).into_owned();
        table.rows.push(vec![uri, safe_name(root), kind, size, first_line(root)]);
    };
    resources.iter().for_each(|one| row(one, "uri"));
    templates.iter().for_each(|one| row(one, "uriTemplate"));
    table.render(style, 0)
}

pub(crate) fn prompts(prompts: &[Json], style: &OutputStyle) -> String {
    let mut table = Table::new(&["prompt", "arguments", ""]).fit(0, ColumnFit::Keep).fit(1, ColumnFit::Drop);
    for prompt in prompts {
        let doc = prompt.to_doc();
        let arguments: Vec<String> = doc
            .root()
            .get("arguments")
            .into_iter()
            .flat_map(|all| all.elements())
            .map(|one| {
                let is_required = one.get("required").and_then(|flag| flag.bool()).unwrap_or(false);
                format!("{}{}", safe_name(one), if is_required { "*" } else { "?" })
            })
            .collect();
        table.rows.push(vec![
            display_name(doc.root()),
            join_names(&arguments, ARGUMENTS_SHOWN_MAX, None),
            first_line(doc.root()),
        ]);
    }
    table.render(style, 0)
}

/// A tool result: its text content, then its structured content, unless the text repeats it as JSON.
pub(crate) fn result(result: Node<'_>, style: &OutputStyle) -> String {
    let data = result.get("structuredContent");
    let table = data.map(|data| structured(data, style)).unwrap_or_default();
    let mut out = String::new();
    for block in result.get("content").into_iter().flat_map(|all| all.elements()) {
        let text = block.get("text").filter(|_| block.get("type").is_some_and(|kind| kind.eq_str("text")));
        if let (Some(data), Some(text)) = (data, text.and_then(|text| text.str())) {
            if is_json_of(&text, data) {
                continue;
            }
            // The text of a list result repeats every item; the table shows them better.
            if data.get("items").is_some_and(|items| items.kind() == NodeKind::Array) {
                if let Some(first) = text.lines().next() {
                    out.push_str(&hanging("", &sanitize::escape_line(first), style.columns));
                }
                continue;
            }
        }
        out.push_str(&content_block(block));
    }
    if !table.is_empty() && !out.is_empty() {
        out.push('\n');
    }
    out + &table
}

/// Whether the text is the structured content written as JSON.
fn is_json_of(text: &str, data: Node<'_>) -> bool {
    text.trim_start().starts_with(['{', '[', '"'])
        && Json::parse(text).is_ok_and(|json| is_json_equal(json.to_doc().root(), data))
}

fn is_json_equal(a: Node<'_>, b: Node<'_>) -> bool {
    a.kind() == b.kind()
        && match a.kind() {
            NodeKind::Null | NodeKind::True | NodeKind::False => true,
            NodeKind::Number => a.raw() == b.raw(),
            NodeKind::String => a.str() == b.str(),
            NodeKind::Array => {
                a.len() == b.len() && a.elements().zip(b.elements()).all(|(a, b)| is_json_equal(a, b))
            }
            NodeKind::Object => {
                let other = |key: Node<'_>| b.get(&key.str().unwrap_or_default());
                a.len() == b.len()
                    && a.members().all(|(key, a)| other(key).is_some_and(|b| is_json_equal(a, b)))
            }
        }
}

/// One content block.
pub(crate) fn content_block(block: Node<'_>) -> String {
    let kind = string_member(block, "type").unwrap_or_default();
    match &*kind {
        "text" => with_newline(&sanitize::lines(&string_member(block, "text").unwrap_or_default())),
        "image" | "audio" => {
            let mime = string_member(block, "mimeType").unwrap_or_else(|| kind.clone());
            format!("[{kind}: {}, {}]\n", sanitize::escape_line(&mime), base64_size(block.get("data")))
        }
        "resource" => block.get("resource").map(resource_contents).unwrap_or_default(),
        "resource_link" => {
            let (uri, name) = (string_member(block, "uri").unwrap_or_default(), safe_name(block));
            format!("[resource: {} {name}]\n", sanitize::escape_line(&uri))
        }
        other => format!("[{}]\n", sanitize::escape_line(other)),
    }
}

/// The contents of a resource.
pub(crate) fn resource_contents(contents: Node<'_>) -> String {
    if let Some(text) = string_member(contents, "text") {
        return with_newline(&sanitize::lines(&text));
    }
    let mime = string_member(contents, "mimeType").unwrap_or_else(|| "bytes".to_owned());
    let uri = string_member(contents, "uri").unwrap_or_default();
    format!(
        "[{}: {}, {}]\n",
        sanitize::escape_line(&uri),
        sanitize::escape_line(&mime),
        base64_size(contents.get("blob"))
    )
}

pub(super) fn with_newline(text: &str) -> String {
    if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// The decoded size of base64 data.
fn base64_size(data: Option<Node<'_>>) -> String {
    let text = data.and_then(|data| data.str()).unwrap_or_default();
    let bytes = text.trim_end_matches('=').len() * 3 / 4;
    pluralize(bytes as u64, "byte")
}

pub(crate) fn prompt(result: Node<'_>, style: &OutputStyle) -> String {
    let mut out = String::new();
    if let Some(description) = string_member(result, "description") {
        let _ = writeln!(out, "{}\n", style.faint(&sanitize::escape_line(&description)));
    }
    for message in result.get("messages").into_iter().flat_map(|all| all.elements()) {
        let role = string_member(message, "role").unwrap_or_default();
        let _ = writeln!(out, "{}", style.bold(&format!("{}:", sanitize::escape_line(&role))));
        if let Some(content) = message.get("content") {
            out.push_str(&content_block(content));
        }
    }
    out
}

/// Structured content: a list of records as a table, a record as its fields, anything else as JSON.
pub(crate) fn structured(data: Node<'_>, style: &OutputStyle) -> String {
    let items = data.get("items").filter(|items| items.kind() == NodeKind::Array);
    let list = items.or_else(|| (data.kind() == NodeKind::Array).then_some(data));
    match list {
        Some(list) if list.elements().all(|row| row.is_object()) => {
            let mut out = render_rows(list, style);
            let other_fields: Vec<(String, String)> = match items {
                Some(_) => field_pairs(data).into_iter().filter(|(name, _)| name != "items").collect(),
                None => Vec::new(),
            };
            if !other_fields.is_empty() {
                out.push('\n');
                out.push_str(&render_record(&other_fields, style, 0));
            }
            out
        }
        Some(_) | None if data.is_object() => render_record(&field_pairs(data), style, 0),
        Some(_) | None => format!("{}\n", pretty(data, style)),
    }
}

fn field_pairs(data: Node<'_>) -> Vec<(String, String)> {
    data.members()
        .map(|(name, value)| {
            (sanitize::escape_line(&name.str().unwrap_or_default()).into_owned(), cell_text(value))
        })
        .collect()
}

/// Columns in the order in which they first appear.
fn render_rows(list: Node<'_>, style: &OutputStyle) -> String {
    let mut headers: Vec<String> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for row in list.elements() {
        for (name, _) in row.members() {
            let name = name.str().unwrap_or_default().into_owned();
            if !known.contains_key(&name) && headers.len() < COLUMNS_MAX {
                known.insert(name.clone(), headers.len());
                headers.push(sanitize::escape_line(&name).into_owned());
            }
        }
    }
    let mut table = Table::new(&headers.iter().map(String::as_str).collect::<Vec<_>>());
    for row in list.elements() {
        let mut cells = vec![String::new(); table.headers.len()];
        for (name, value) in row.members() {
            if let Some(index) = known.get(&*name.str().unwrap_or_default()) {
                cells[*index] = cell_text(value);
            }
        }
        table.rows.push(cells);
    }
    table.render(style, 0)
}

/// Rows with different fields could make a table of a million columns.
const COLUMNS_MAX: usize = 200;

fn cell_text(value: Node<'_>) -> String {
    match value.kind() {
        NodeKind::Null => String::new(),
        NodeKind::String => sanitize::escape_line(&value.str().unwrap_or_default()).into_owned(),
        NodeKind::True | NodeKind::False | NodeKind::Number => value.raw().to_owned(),
        NodeKind::Array | NodeKind::Object => sanitize::escape_line(Json::from(value).as_str()).into_owned(),
    }
}

/// JSON with its numbers as sent: indented on a terminal, on one line otherwise.
pub(crate) fn pretty(data: Node<'_>, style: &OutputStyle) -> String {
    if !style.is_terminal {
        return Json::from(data).to_string();
    }
    let mut out = String::new();
    write_indented(&mut out, data, 0);
    sanitize::json(&out).into_owned()
}

fn write_indented(out: &mut String, node: Node<'_>, depth: usize) {
    let inner = "  ".repeat(depth + 1);
    let (open, close) = if node.is_object() { ('{', '}') } else { ('[', ']') };
    match node.kind() {
        NodeKind::Array | NodeKind::Object if !node.is_empty() => {
            out.push(open);
            let mut is_first = true;
            let mut member = |out: &mut String, key: Option<Node<'_>>, value: Node<'_>| {
                out.push_str(if std::mem::take(&mut is_first) { "\n" } else { ",\n" });
                out.push_str(&inner);
                if let Some(key) = key {
                    let _ = write!(out, "{}: ", key.raw());
                }
                write_indented(out, value, depth + 1);
            };
            node.members().for_each(|(key, value)| member(out, Some(key), value));
            node.elements().for_each(|value| member(out, None, value));
            let _ = write!(out, "\n{}{close}", "  ".repeat(depth));
        }
        NodeKind::Array | NodeKind::Object => out.extend([open, close]),
        NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Number | NodeKind::String => {
            out.push_str(node.raw())
        }
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{prompts, tools};
    use crate::client::output_style::OutputStyle;

    #[test]
    fn a_tool_or_prompt_without_a_name_is_listed() {
        for item in [r#"{"name":""}"#, r#"{"name":"  "}"#, "{}", r#"{"name":7}"#] {
            let list = [Json::parse(item).expect("valid JSON")];
            for shown in [
                tools(&list, &OutputStyle::stdout().unlimited_width()),
                prompts(&list, &OutputStyle::stdout().unlimited_width()),
            ] {
                assert!(shown.contains("(no name)"), "{item}: {shown}");
            }
        }
    }
}
