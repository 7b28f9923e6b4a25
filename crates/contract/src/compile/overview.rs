//! The overview: what a server has, in Markdown, for a model that wants to know more than the instructions say.
//!
//! It has the columns of every collection with their types, their links and their tools. It says no more about the data
//! than the schemas do: no hidden column, and values only where the author shows them. It is rendered once, with the
//! contract. If not everything fits, every collection loses the same number of columns, and has a text of its own with
//! all of them.

use super::IntrospectedSource;
use super::instructions::{approximate_rows, row_count};
use super::tools::CollectionLabels;
use crate::contract::{Cardinality, Collection, Link, Overview, Request, Statement, Tool, ToolOperation};
use crate::field::Field;
use crate::humanize::{join_truncated, pluralize};
use crate::manifest::Manifest;
use crate::schemas;

/// The maximum size of the overview.
const BYTES_MAX: usize = 32 << 10;
/// The maximum size of the text about one collection.
const COLLECTION_BYTES_MAX: usize = 64 << 10;
/// Room for the line that names what is left out.
const REST_BYTES: usize = 2 << 10;
const NAMES_MAX: usize = 40;
/// A field lists no more of its allowed values than this.
const ALLOWED_MAX: usize = 20;
const DESCRIPTION_CHARS_MAX: usize = 300;

pub(super) struct OverviewInputs<'a> {
    pub(super) title: &'a str,
    pub(super) manifest: &'a Manifest,
    pub(super) known: &'a [IntrospectedSource<'a>],
    pub(super) collections: &'a [Collection],
    pub(super) statements: &'a [Statement],
    pub(super) requests: &'a [Request],
    pub(super) tools: &'a [Tool],
}

/// `None` if no tool is about a collection: then the tools say everything.
pub(super) fn render(inputs: &OverviewInputs<'_>) -> Option<Overview> {
    let sections: Vec<Section> =
        (0..inputs.collections.len()).filter_map(|index| Section::new(inputs, index)).collect();
    if sections.is_empty() {
        return None;
    }
    let head = format!("# {}\n", one_line(inputs.title));
    let statements = statements_text(inputs);
    let room = BYTES_MAX.saturating_sub(head.len() + statements.len() + REST_BYTES);
    let columns_max = columns_that_fit(&sections, room);
    let mut text = head;
    let mut details = Vec::new();
    let mut used = 0;
    let mut left_out = Vec::new();
    for section in &sections {
        let length = section.length(columns_max);
        if !left_out.is_empty() || used + length > room {
            left_out.push(section.name.as_str());
        } else {
            section.write(&mut text, columns_max);
            used += length;
        }
        if !left_out.is_empty() || section.columns.len() > columns_max {
            details.push((section.name.clone(), section.whole_text()));
        }
    }
    if !left_out.is_empty() {
        let names = join_truncated(&left_out, NAMES_MAX);
        text += &format!("\nFurther collections: {names}. Each has {}/NAME.\n", Overview::URI);
    }
    text += &statements;
    Some(Overview { text, details })
}

/// How many columns each collection can show so that all of them fit into `room`.
fn columns_that_fit(sections: &[Section], room: usize) -> usize {
    let fits = |columns: usize| sections.iter().map(|one| one.length(columns)).sum::<usize>() <= room;
    let (mut low, mut high) = (0, sections.iter().map(|one| one.columns.len()).max().unwrap_or(0));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// What the overview says about one collection.
struct Section {
    name: String,
    head: String,
    /// One line for each column, with the end of the line.
    columns: Vec<String>,
}

impl Section {
    /// `None` if no tool reads or writes the collection.
    fn new(inputs: &OverviewInputs<'_>, index: usize) -> Option<Self> {
        let collection = &inputs.collections[index];
        let tools: Vec<&Tool> =
            inputs.tools.iter().filter(|tool| tool.operation.collection() == Some(index)).collect();
        if tools.is_empty() {
            return None;
        }
        let label = CollectionLabels::new(inputs.manifest, collection).full;
        let rows = row_count(inputs.known, collection).map_or_else(|| "rows".to_owned(), approximate_rows);
        let mut head = format!("\n## {}\n\n{label}: {rows}", collection.name);
        let key: Vec<&str> = collection.key_fields().map(|field| field.name.as_str()).collect();
        if !key.is_empty() {
            head += &format!(", one per {}", key.join(" and "));
        }
        head.push('.');
        let declared = inputs.manifest.collections.iter().find(|one| one.name.value == collection.name);
        if let Some(description) = declared.and_then(|declared| declared.description.as_deref()) {
            head += &format!(" {}", one_line(description));
        }
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        head += &format!("\nTools: {}.\n", join_truncated(&names, NAMES_MAX));
        if let Some(filters) = chosen_filters(collection, &tools) {
            head += &format!("Filters: {filters}.\n");
        }
        for link in &collection.links {
            head += &link_line(collection, link, inputs.collections);
        }
        head += &format!("\n{}:\n", pluralize(collection.fields.len() as u64, "column"));
        let columns = (0..collection.fields.len()).map(|at| column_line(collection, at)).collect();
        Some(Self { name: collection.name.clone(), head, columns })
    }

    fn length(&self, columns_max: usize) -> usize {
        let shown = self.columns.iter().take(columns_max).map(String::len).sum::<usize>();
        self.head.len() + shown + self.rest(columns_max).len()
    }

    /// The line that counts the columns without a line of their own.
    fn rest(&self, columns_max: usize) -> String {
        match self.columns.len().saturating_sub(columns_max) {
            0 => String::new(),
            more => format!("- and {more} more: {}/{}\n", Overview::URI, self.name),
        }
    }

    fn write(&self, out: &mut String, columns_max: usize) {
        *out += &self.head;
        self.columns.iter().take(columns_max).for_each(|line| *out += line);
        *out += &self.rest(columns_max);
    }

    fn whole_text(&self) -> String {
        let mut out = self.head.trim_start().to_owned();
        for (at, line) in self.columns.iter().enumerate() {
            if out.len() + line.len() > COLLECTION_BYTES_MAX {
                out += &format!("- and {} more\n", self.columns.len() - at);
                break;
            }
            out += line;
        }
        out
    }
}

/// The filters of a list whose author chose some of the columns.
fn chosen_filters(collection: &Collection, tools: &[&Tool]) -> Option<String> {
    let filters = tools.iter().find_map(|tool| match &tool.operation {
        ToolOperation::List { filters, .. } => Some(filters),
        _ => None,
    })?;
    let scalar = collection.fields.iter().filter(|field| field.data_type.is_scalar()).count();
    if filters.len() == scalar {
        return None;
    }
    let names: Vec<&str> = filters.iter().map(|at| collection.fields[*at].name.as_str()).collect();
    Some(if names.is_empty() { "none".to_owned() } else { join_truncated(&names, NAMES_MAX) })
}

/// `Link customer: one row of customers, by customer_id = id.`
fn link_line(collection: &Collection, link: &Link, collections: &[Collection]) -> String {
    let target = &collections[link.target];
    let rows = match link.cardinality {
        Cardinality::ToOne => "one row",
        Cardinality::ToMany { .. } => "rows",
    };
    let pairs: Vec<String> = link
        .fields
        .iter()
        .map(|(own, other)| format!("{} = {}", collection.fields[*own].name, target.fields[*other].name))
        .collect();
    format!("Link {}: {rows} of {}, by {}.\n", link.name, target.name, pairs.join(" and "))
}

/// `- total: decimal or null, in the file as 1.234,50 €. Sum of the order.`
fn column_line(collection: &Collection, at: usize) -> String {
    let field = &collection.fields[at];
    let mut line = format!("- {}", field_text(field));
    if collection.shape.key.contains(&at) {
        line += ", key";
    }
    if let Some(format) = &collection.shape.columns[at].format {
        line += &format!(", in the file as {format}");
    }
    if let Some(description) = schemas::field_description(field, true) {
        line += &format!(". {}", one_line(description.trim_end_matches('.')));
    }
    line.push('\n');
    line
}

/// `email: text or null (email), one of "free", "ruby"`
fn field_text(field: &Field) -> String {
    let mut text = format!("{}: {}", field.name, field.data_type.as_str());
    if field.mixed {
        text += " or text";
    }
    if field.nullable {
        text += " or null";
    }
    if let Some(format) = &field.format {
        text += &format!(" ({format})");
    }
    if !field.allowed.is_empty() {
        let values: Vec<&str> = field.allowed.iter().map(json::Json::as_str).collect();
        text += &format!(", one of {}", join_truncated(&values, ALLOWED_MAX));
    }
    text
}

/// The tools that run the author's SQL, or send the author's requests.
fn statements_text(inputs: &OverviewInputs<'_>) -> String {
    let mut out = String::new();
    let mut more = 0;
    for tool in inputs.tools {
        let (arguments, result) = match tool.operation {
            ToolOperation::Statement { statement } => {
                let Some(statement) = inputs.statements.get(statement) else { continue };
                (&statement.arguments, &statement.result)
            }
            ToolOperation::Request { request } => {
                let Some(request) = inputs.requests.get(request) else { continue };
                (&request.arguments, &request.result)
            }
            _ => continue,
        };
        let arguments: Vec<String> = arguments.iter().map(|argument| field_text(&argument.field)).collect();
        let fields: Vec<&str> = result.fields.iter().map(|field| field.name.as_str()).collect();
        let mut line = format!("- {}: {}", tool.name, one_line(tool.description.trim_end_matches('.')));
        for (what, names) in [
            ("Arguments", join_truncated(&arguments, NAMES_MAX)),
            ("Returns", join_truncated(&fields, NAMES_MAX)),
        ] {
            if !names.is_empty() {
                line += &format!(". {what}: {names}");
            }
        }
        if out.len() + line.len() > BYTES_MAX / 4 {
            more += 1;
        } else {
            out += &format!("{line}.\n");
        }
    }
    if more > 0 {
        out += &format!("- and {more} more\n");
    }
    let heading = if inputs.requests.is_empty() { "Statements" } else { "Other tools" };
    if out.is_empty() { out } else { format!("\n## {heading}\n\n{out}") }
}

/// An author's text on one line, not too long.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
