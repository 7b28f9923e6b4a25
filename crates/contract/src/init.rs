//! The manifest of a server that has none: what `spile init` writes, and what serving without one means.
//!
//! What must be said is said; what goes without saying stands in comments, so that it can be changed by
//! removing a `#`. Parsed, the text means the same as the facts alone.

use std::collections::HashMap;
use std::fmt::Write;

use crate::compile::DEFAULT_FIELDS_MAX;
use crate::humanize::pluralize;
use crate::manifest::{BYTES_MAX_DEFAULT, Operation, ROWS_MAX_DEFAULT, SourceKind};
use crate::names;
use crate::source::{ColumnFacts, SourceFacts, TableFacts};

/// Behind so much text, fields are no longer listed: nobody reads them, and a manifest has a largest size.
const FIELDS_LISTED_BYTES_MAX: usize = 1 << 20;
/// A header longer than this is not written out where its name will do.
const HEADER_CHARS_MAX: usize = 100;

/// A source that was found.
#[derive(Debug, Clone, Copy)]
pub struct DiscoveredSource<'a> {
    pub name: &'a str,
    /// As the user gave it.
    pub path: &'a str,
    pub kind: SourceKind,
    /// Where in a JSON document the records are, if it is no array itself.
    pub pointer: Option<&'a str>,
    pub facts: &'a SourceFacts,
}

/// The text of a `spile.toml`.
pub fn render_manifest(found: &[DiscoveredSource<'_>], server_name: &str) -> String {
    let mut out = String::with_capacity(4096);
    out += HEADER;
    out += &format!("name = {}\n", toml_string(&names::server_name(server_name)));
    out += SERVER_COMMENTS;
    let wanted: Vec<&str> = found.iter().map(|one| one.name).collect();
    let sources = names::collection_names(&wanted);
    let tables: Vec<&str> = found.iter().flat_map(tables).map(|table| table.name.as_str()).collect();
    let mut collections = names::collection_names(&tables).into_iter();
    for (one, source) in found.iter().zip(&sources) {
        render_source(&mut out, one, source);
        for (table, collection) in tables_with_names(one, &mut collections) {
            render_collection(&mut out, one.kind, source, table, &collection);
        }
    }
    out += TOOLS_COMMENTS;
    out
}

/// Where `spile init` puts the schema of the file it writes, from the folder of that file.
pub const SCHEMA_PATH: &str = ".spile/schema.json";

const HEADER: &str = "\
#:schema .spile/schema.json
# What this server offers, and where it comes from.
#
# A line that begins with `#` is a comment. A setting in a comment shows what holds without it, or an example:
# remove the `#` and change it. `spile check` tells what a change does.

[server]
# How clients show this server.
";

const SERVER_COMMENTS: &str = "\
# What a model reads before it uses the tools: what the data is about, and words it should know.
#instructions = \"Customer records by email. Plans: free, emerald, ruby.\"
# How long one call may take, in milliseconds.
#call_timeout_ms = 30000
# How many calls there may be in how long; those beyond are told when to come back. Tools may have their own.
#rate_limit = \"600/min\"
";

/// What there is to say about tools, for whoever comes to the end.
const TOOLS_COMMENTS: &str = "
# A generated tool can get another name, and a statement of your own can become one (for sqlite):
#
# [tools.lookup_customer]
# uses = \"customers.get\"
# description = \"Return the customer record for a given email address.\"
# rate_limit = \"60/min\"
#
# [tools.top_plans]
# sql = \"select plan, count(*) as customers from customers where signup_date >= :since group by plan\"
# arguments.since = { type = \"date\", description = \"First signup date to count.\" }
";

fn tables<'a>(found: &DiscoveredSource<'a>) -> impl Iterator<Item = &'a TableFacts> + use<'a> {
    found.facts.tables.iter()
}

fn tables_with_names<'a>(
    found: &DiscoveredSource<'a>,
    names: &mut impl Iterator<Item = String>,
) -> Vec<(&'a TableFacts, String)> {
    tables(found).map(|table| (table, names.next().unwrap_or_default())).collect()
}

fn render_source(out: &mut String, found: &DiscoveredSource<'_>, name: &str) {
    out.push('\n');
    let left_out = found.facts.skipped_tables.iter().map(ToString::to_string);
    for note in found.facts.notes.iter().cloned().chain(left_out) {
        *out += &format!("# {}\n", comment_text(&note));
    }
    *out += &format!("[sources.{name}]\n");
    *out +=
        "# What it is, and where. A path starts in the folder of this file; `${NAME}` is replaced from the\n";
    *out += "# environment, and `$${` is a literal `${`.\n";
    *out += &format!("kind = {}\n", toml_string(found.kind.as_str()));
    *out += &format!("path = {}\n", toml_string(found.path));
    match found.kind {
        SourceKind::Sqlite => {}
        SourceKind::Csv => {
            *out += "# What stands between columns, if it was found wrong: one character, or \"tab\".\n";
            let delimiter = match found.facts.delimiter {
                Some(b'\t') => "tab".to_owned(),
                Some(other) => char::from(other).to_string(),
                None => ",".to_owned(),
            };
            *out += &format!("#delimiter = {}\n", toml_string(&delimiter));
            *out += "# A text such as `=1+1` is not written, because a spreadsheet would run it; `keep` lets it through.\n";
            *out += "#formulas = \"refuse\"\n";
        }
        SourceKind::Json => {
            *out += "# Where in the file the records are, if it is no array itself: names with a `/` before each.\n";
            *out += &match found.pointer {
                Some(at) => format!("at = {}\n", toml_string(at)),
                None => "#at = \"/data/customers\"\n".to_owned(),
            };
        }
        SourceKind::Xlsx | SourceKind::Xls | SourceKind::Ods | SourceKind::JsonLines => {}
    }
}

fn render_collection(out: &mut String, kind: SourceKind, source: &str, table: &TableFacts, name: &str) {
    let columns = TableColumns::new(table);
    let rows = table.row_count.map_or_else(String::new, |rows| format!("{}, ", pluralize(rows, "row")));
    *out += &format!("\n# {rows}{}.\n", pluralize(table.columns.len() as u64, "column"));
    *out += &format!("[collections.{name}]\n");
    *out += &format!("source = {}\n", toml_string(source));
    match kind {
        SourceKind::Sqlite => *out += &format!("table = {}\n", toml_string(&table.name)),
        SourceKind::Xlsx | SourceKind::Xls | SourceKind::Ods => {
            *out += &format!("sheet = {}\n", toml_string(&table.name));
            *out += "# The row that has the names of the columns, if it was found wrong: counted from 1.\n";
            *out += "#header_row = 1\n";
        }
        // A file is one table.
        SourceKind::Csv | SourceKind::Json | SourceKind::JsonLines => {}
    }
    let has_key = render_key(out, table, &columns);
    *out += "# What a row is, in a sentence. Models choose their tools by it.\n";
    *out += "#description = \"People who bought something, one row each.\"\n";
    *out += "# What callers may do: get one row by its key, list rows in pages";
    *out += match (&table.read_only_reason, kind.is_writable(), has_key) {
        (None, true, true) => {
            "; also, when you name them: search,\n# create, update and delete. With confirm = \"ask\" the user is asked before a row is changed or deleted.\n"
        }
        _ => "; also search, when you name it.\n",
    };
    let operations =
        Operation::DEFAULT.into_iter().filter(|operation| *operation != Operation::Get || has_key);
    *out += &format!("#operations = {}\n", toml_array(operations.map(|one| one.as_str().to_owned())));
    let chosen = || columns.scalar_names().take(DEFAULT_FIELDS_MAX);
    *out += "# The fields that rows can be chosen by. `true` is all, `false` is none.\n";
    *out += &format!("#filters = {}\n", toml_array(chosen()));
    *out += "# The fields that rows can be sorted by, likewise.\n";
    *out += &format!("#sort = {}\n", toml_array(chosen()));
    *out += "# The most rows, and the most bytes, in one answer. What is left over is on the next page.\n";
    *out += &format!("#rows_max = {ROWS_MAX_DEFAULT}\n");
    *out += &format!("#bytes_max = {BYTES_MAX_DEFAULT}\n");
    *out += "# Text that means that there is no value.\n";
    *out += "#null = \"n/a\"\n";
    render_fields(out, name, &columns);
}

/// What tells rows apart. Says whether anything does.
fn render_key(out: &mut String, table: &TableFacts, columns: &TableColumns<'_>) -> bool {
    // A key that callers could not write down is of no use to them.
    let is_usable = |at: &usize| table.columns.get(*at).is_some_and(|column| column.data_type.is_scalar());
    if table.key.is_empty() || !table.key.iter().all(is_usable) {
        *out +=
            "# What tells one row from another. Nothing was found that does, so rows can be listed only.\n";
        return false;
    }
    *out += match table.key_is_declared {
        true => "# What tells one row from another, as the table declares it.\n",
        false => "# What tells one row from another: found in the rows there are now.\n",
    };
    let parts: Vec<String> = table.key.iter().map(|at| columns.manifest_name(*at)).collect();
    match parts.as_slice() {
        [one] => *out += &format!("key = {}\n", toml_string(one)),
        several => *out += &format!("key = {}\n", toml_array(several.iter().cloned())),
    }
    true
}

fn render_fields(out: &mut String, collection: &str, columns: &TableColumns<'_>) {
    *out += "\n# What there is to say about columns: as (what they are), format, description, enum (the only values\n";
    *out +=
        "# there may be), name (as callers see it), null, hidden = true for what nobody should see, and\n";
    *out += "# sensitive = true for what should not be in logs.\n";
    *out += &format!("[collections.{collection}.fields]\n");
    for (at, column) in columns.table.columns.iter().enumerate() {
        if out.len() > FIELDS_LISTED_BYTES_MAX {
            *out += &format!("# and {} more\n", columns.table.columns.len() - at);
            return;
        }
        let kind = column.data_type.as_str();
        if columns.has_unique_header(column) {
            *out += &format!("#{} = {{ as = {} }}", toml_key(&column.name), toml_string(kind));
        } else {
            let (name, header) = (&columns.names[at], toml_string(&column.name));
            *out += &format!("# {name}: {kind}, one of several columns called {header}");
        }
        if !column.distinct_values.is_empty() {
            let values: Vec<String> = column.distinct_values.iter().map(|value| toml_string(value)).collect();
            *out += &format!(" # values now: {}", values.join(", "));
        }
        out.push('\n');
    }
}

/// The columns of a table, by the names that a manifest knows them by.
struct TableColumns<'a> {
    table: &'a TableFacts,
    names: Vec<String>,
    /// How many columns have a header.
    header_counts: HashMap<&'a str, usize>,
}

impl<'a> TableColumns<'a> {
    fn new(table: &'a TableFacts) -> Self {
        let headers: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let mut header_counts = HashMap::new();
        for header in &headers {
            *header_counts.entry(*header).or_default() += 1;
        }
        Self { table, names: names::argument_names(&headers), header_counts }
    }

    fn has_unique_header(&self, column: &ColumnFacts) -> bool {
        self.header_counts.get(column.name.as_str()) == Some(&1)
    }

    /// A column by its header, or by its caller's name where the header is odd.
    fn manifest_name(&self, at: usize) -> String {
        let column = &self.table.columns[at];
        let is_plain = !column.name.trim().is_empty() && column.name.chars().count() <= HEADER_CHARS_MAX;
        if is_plain && self.has_unique_header(column) { column.name.clone() } else { self.names[at].clone() }
    }

    fn scalar_names(&self) -> impl Iterator<Item = String> {
        let scalar = self.table.columns.iter().enumerate().filter(|(_, column)| column.data_type.is_scalar());
        scalar.map(|(at, _)| self.manifest_name(at))
    }
}

/// A key of TOML. Variables are not replaced in keys.
fn toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { toml_quote(name) }
}

/// A text of TOML that means exactly this.
fn toml_string(value: &str) -> String {
    toml_quote(&value.replace("${", "$${"))
}

fn toml_array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.map(|value| toml_string(&value)).collect::<Vec<_>>().join(", "))
}

fn toml_quote(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out += "\\n",
            '\t' => out += "\\t",
            // TOML wants these escaped in texts, and has none of them in comments.
            c if c.is_control() => write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes everything"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A remark in a line of its own.
fn comment_text(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
