//! Generates a manifest: what `spile init` writes, and what a server without a manifest uses.
//!
//! Required settings are written out. Defaults are written as comments, so that the author can change one by removing
//! its `#`.

mod table_choice;

use std::collections::{HashMap, HashSet};

use crate::compile::{LISTED_FILTERS_MAX, null_setting};
use crate::data_type::DataType;
use crate::humanize::pluralize;
use crate::infer::is_null_name;
use crate::manifest::{BYTES_MAX_DEFAULT, Operation, ROWS_MAX_DEFAULT, SourceKind};
use crate::names;
use crate::source::{ColumnFacts, LayoutNote, LayoutNoteKind, NearMissType, SourceFacts, TableFacts};
use crate::toml_text::{toml_key, toml_string};

pub use table_choice::TABLES_SERVED_MAX;
use table_choice::chosen_tables;

/// Beyond this size, fields are no longer listed: a manifest has a maximum size.
const FIELDS_LISTED_BYTES_MAX: usize = 1 << 20;
/// A column with a longer header is referred to by its generated name.
const HEADER_CHARS_MAX: usize = 100;

/// A data file to generate a manifest for.
#[derive(Debug, Clone, Copy)]
pub struct DiscoveredSource<'a> {
    pub name: &'a str,
    /// As it is written to the manifest.
    pub path: &'a str,
    pub kind: SourceKind,
    /// The JSON pointer to the records of a document that is not an array itself.
    pub pointer: Option<&'a str>,
    pub facts: &'a SourceFacts,
}

/// The text of a `spile.toml`.
pub fn render_manifest(found: &[DiscoveredSource<'_>], server_name: &str) -> String {
    let mut out = String::with_capacity(4096);
    out += HEADER;
    out += &format!("name = {}\n", toml_string(&names::server_name(server_name)));
    out += SERVER_COMMENTS;
    let source_names: Vec<&str> = found.iter().map(|one| one.name).collect();
    let sources = names::collection_names(&source_names);
    let mut collections = collection_names(found, &sources).into_iter().zip(chosen_tables(found));
    for (one, source) in found.iter().zip(&sources) {
        render_source(&mut out, one, source);
        let mut left_out = Vec::new();
        for (table, (collection, is_chosen)) in tables(one).zip(&mut collections) {
            match is_chosen {
                true => render_collection(&mut out, one.kind, source, table, &collection),
                false => left_out.push((table, collection)),
            }
        }
        render_left_out(&mut out, one.kind, source, &left_out);
    }
    out += TOOLS_COMMENTS;
    out
}

/// Where `spile init` writes the JSON Schema of the manifest, relative to the manifest.
pub const SCHEMA_PATH: &str = ".spile/schema.json";

const HEADER: &str = "\
#:schema .spile/schema.json
# The data that this server reads, and the tools that it offers.
#
# A line that starts with `#` is a comment. A setting in a comment shows its default or an example: remove the `#`
# to change it. `spile check` reports what a change does.

[server]
# The name that clients show.
";

const SERVER_COMMENTS: &str = "\
# What a model should know before it uses the tools: what the data is about, and its terms.
#instructions = \"Customer records by email. Plans: free, emerald, ruby.\"
# The timeout of one call, in milliseconds.
#call_timeout_ms = 30000
# The maximum rate of calls; a call beyond it is refused with the time to wait. A tool can have its own limit.
#rate_limit = \"600/min\"
";

const TOOLS_COMMENTS: &str = "
# Rename or describe a generated tool, or add a tool that runs your own SQL statement (sqlite only):
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

/// A name for each table of each source. Tables with the same name in two files are told apart by the file:
/// `budget_sheet1` and `forecast_sheet1`.
fn collection_names(found: &[DiscoveredSource<'_>], sources: &[String]) -> Vec<String> {
    let named: Vec<(&String, String)> = found
        .iter()
        .zip(sources)
        .flat_map(|(one, source)| tables(one).map(move |table| (source, names::collection_name(&table.name))))
        .collect();
    let mut sources_of: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (source, name) in &named {
        sources_of.entry(name).or_default().insert(source);
    }
    let wanted = named.iter().map(|(source, name)| match sources_of[name.as_str()].len() {
        1 => name.clone(),
        // A file that is one table has the name of its source already.
        _ if source.starts_with(name.as_str()) => (*source).clone(),
        _ => format!("{source}_{name}"),
    });
    let wanted: Vec<String> = wanted.collect();
    names::collection_names(&wanted.iter().map(String::as_str).collect::<Vec<_>>())
}

fn tables<'a>(found: &DiscoveredSource<'a>) -> impl Iterator<Item = &'a TableFacts> + use<'a> {
    found.facts.tables.iter()
}

fn render_source(out: &mut String, found: &DiscoveredSource<'_>, name: &str) {
    out.push('\n');
    let skipped = found.facts.skipped_tables.iter().map(ToString::to_string);
    for note in found.facts.notes.iter().cloned().chain(skipped) {
        *out += &format!("# {}\n", comment_text(&note));
    }
    *out += &format!("[sources.{name}]\n");
    if found.kind.engine().is_some() {
        return render_database(out, found);
    }
    *out += "# The kind of file and its path, relative to this file. `${NAME}` is replaced from the environment;\n";
    *out += "# `$${` is a literal `${`.\n";
    *out += &format!("kind = {}\n", toml_string(found.kind.as_str()));
    *out += &format!("path = {}\n", toml_string(found.path));
    match found.kind {
        SourceKind::Sqlite | SourceKind::Postgres | SourceKind::MySql | SourceKind::Rest => {}
        SourceKind::Csv => {
            *out +=
                "# The character between fields, if it was detected wrongly: one character, or \"tab\".\n";
            let delimiter = match found.facts.delimiter {
                Some(b'\t') => "tab".to_owned(),
                Some(other) => char::from(other).to_string(),
                None => ",".to_owned(),
            };
            *out += &format!("#delimiter = {}\n", toml_string(&delimiter));
            *out += "# Writing a text such as `=1+1` is refused, because a spreadsheet would run it; `keep` allows it.\n";
            *out += "#formulas = \"refuse\"\n";
        }
        SourceKind::Json => {
            *out += "# The JSON pointer to the rows, if the file is not an array itself.\n";
            *out += &match found.pointer {
                Some(at) => format!("at = {}\n", toml_string(at)),
                None => "#at = \"/data/customers\"\n".to_owned(),
            };
        }
        SourceKind::Xlsx
        | SourceKind::Xls
        | SourceKind::Ods
        | SourceKind::JsonLines
        | SourceKind::Parquet => {}
    }
}

fn render_database(out: &mut String, found: &DiscoveredSource<'_>) {
    *out += "# The database, without its password. `${NAME}` is replaced from the environment.\n";
    *out += &format!("url = {}\n", toml_string(found.path));
    *out += "#password = \"${DATABASE_PASSWORD}\"\n#password_file = \"/run/secrets/database\"\n";
    *out += "# How many calls can use it at the same time.\n#connections_max = 8\n";
    *out += "# Refuses a role that could write.\n#require_readonly_role = true\n";
}

fn render_collection(out: &mut String, kind: SourceKind, source: &str, table: &TableFacts, name: &str) {
    let columns = TableColumns::new(table);
    let rows = table.row_count.map_or_else(String::new, |rows| format!("{}, ", pluralize(rows, "row")));
    *out += &format!("\n# {rows}{}.\n", pluralize(table.columns.len() as u64, "column"));
    *out += &format!("[collections.{name}]\n");
    *out += &format!("source = {}\n", toml_string(source));
    match kind {
        SourceKind::Sqlite | SourceKind::Postgres | SourceKind::MySql => {
            *out += &format!("table = {}\n", toml_string(&table.name));
        }
        SourceKind::Xlsx | SourceKind::Xls | SourceKind::Ods => {
            *out += &format!("sheet = {}\n", toml_string(&table.name));
            render_layout(out, table, "row");
        }
        SourceKind::Csv => render_layout(out, table, "line"),
        // Such a file is one table.
        SourceKind::Json | SourceKind::JsonLines | SourceKind::Parquet | SourceKind::Rest => {}
    }
    let has_key = render_key(out, table, &columns);
    render_foreign_keys(out, table, name);
    *out += "# What one row is, in one sentence. Models choose their tools by it.\n";
    *out += "#description = \"People who bought something, one row each.\"\n";
    *out += "# The operations: get one row by its key, list and search rows in pages, count and add up rows in groups";
    *out += match (table.read_only_reason(), kind.is_read_only(), has_key) {
        (None, false, true) => {
            ".\n# Add create, update and delete to allow them. With confirm = \"ask\" the user must approve each update and delete.\n"
        }
        _ => ".\n",
    };
    let has_texts = table.columns.iter().any(|column| column.data_type == DataType::Text);
    let operations = Operation::DEFAULT.into_iter().filter(|operation| match operation {
        Operation::Get => has_key,
        Operation::Search => has_texts,
        _ => true,
    });
    *out += &format!("#operations = {}\n", toml_array(operations.map(|one| one.as_str().to_owned())));
    let names: Vec<String> = columns.scalar_names().collect();
    let listed = || names.iter().take(LISTED_FILTERS_MAX).cloned();
    *out += "# The fields that rows can be filtered by. `true` is all, `false` is none.\n";
    *out += &format!("#filters = {}\n", toml_array(listed()));
    *out += "# The fields that a list can be sorted by.\n";
    *out += &match names.len() {
        0..=LISTED_FILTERS_MAX => format!("#sort = {}\n", toml_array(listed())),
        _ => "#sort = true\n".to_owned(),
    };
    *out += "# The maximum number of rows and bytes on one page.\n";
    *out += &format!("#rows_max = {ROWS_MAX_DEFAULT}\n");
    *out += &format!("#bytes_max = {BYTES_MAX_DEFAULT}\n");
    if kind.engine().is_none() {
        *out += "# The text that means NULL, or several.\n";
        *out += "#null = [\"-\", \"n/a\"]\n";
    }
    if !kind.is_database() {
        *out += "# How numbers, dates and booleans are written, for columns whose every value fits.\n";
        *out +=
            "#number_format = \"1.234,50\"\n#date_format = \"dd/mm/yyyy\"\n#boolean_format = \"ja/nein\"\n";
    }
    render_fields(out, name, &columns);
}

/// The tables that are not served because there are too many, as lines to remove the `#` from.
fn render_left_out(out: &mut String, kind: SourceKind, source: &str, tables: &[(&TableFacts, String)]) {
    if tables.is_empty() {
        return;
    }
    let count = pluralize(tables.len() as u64, "more table");
    *out += &format!(
        "\n# {count}: more tools than {TABLES_SERVED_MAX} tables have do not fit into some clients.\n"
    );
    *out += "# To serve one, remove the `#` from its lines; to leave out another, put a `#` before its lines above.\n";
    for (at, (table, name)) in tables.iter().enumerate() {
        if out.len() > FIELDS_LISTED_BYTES_MAX {
            *out += &format!("# and {} more\n", tables.len() - at);
            return;
        }
        let rows = table.row_count.map_or_else(String::new, |rows| format!("{}, ", pluralize(rows, "row")));
        *out += &format!("# {rows}{}.\n", pluralize(table.columns.len() as u64, "column"));
        *out += &format!("#[collections.{name}]\n#source = {}\n", toml_string(source));
        match kind {
            SourceKind::Sqlite | SourceKind::Postgres | SourceKind::MySql => {
                *out += &format!("#table = {}\n", toml_string(&table.name));
            }
            SourceKind::Xlsx | SourceKind::Xls | SourceKind::Ods => {
                *out += &format!("#sheet = {}\n", toml_string(&table.name));
            }
            SourceKind::Csv
            | SourceKind::Json
            | SourceKind::JsonLines
            | SourceKind::Parquet
            | SourceKind::Rest => {}
        }
    }
}

/// Writes where the table was found, and what else is on the sheet or in the file.
fn render_layout(out: &mut String, table: &TableFacts, unit: &str) {
    let header = table.header.map_or(1, |header| header.first);
    *out += &format!("# The {unit} with the column names, counted from 1, if it was detected wrongly.\n");
    *out += &format!("#header_row = {header}\n");
    if let Some(header) = table.header.filter(|header| header.count > 1) {
        *out += &format!("# How many rows the column names take.\n#header_rows = {}\n", header.count);
    }
    table.layout_notes.iter().filter(|note| !note.is_about_field()).for_each(|note| render_note(out, note));
}

fn render_note(out: &mut String, note: &LayoutNote) {
    if note.is_assumed() {
        *out += &format!("# The table {}.\n{}\n", comment_text(&note.message), comment_text(&note.setting));
    } else if note.kind == LayoutNoteKind::DoubtfulValues {
        *out += &format!("# The table {}: {}.\n", comment_text(&note.message), comment_text(&note.setting));
    } else if note.setting.is_empty() {
        *out += &format!("# The table {}.\n", comment_text(&note.message));
    } else {
        *out += &format!("# The table {}. To change that:\n", comment_text(&note.message));
        *out += &format!("#{}\n", comment_text(&note.setting));
        if note.kind == LayoutNoteKind::SecondTable {
            *out += "# To read all rows as one table:\n#footer_rows = 0\n";
        }
    }
}

/// Writes the key, and returns whether there is one.
fn render_key(out: &mut String, table: &TableFacts, columns: &TableColumns<'_>) -> bool {
    let is_usable = |at: &usize| table.columns.get(*at).is_some_and(|column| column.data_type.is_scalar());
    if table.key.is_empty() || !table.key.iter().all(is_usable) {
        *out += "# The key column. No column is unique, so rows can only be listed.\n";
        return false;
    }
    // Another reading of the rows may have other columns, and rows without a value in this one.
    let is_doubtful = table.layout_notes.iter().any(LayoutNote::is_about_rows);
    *out += match (table.key_is_declared, is_doubtful) {
        (true, _) => "# The primary key of the table.\n",
        (false, false) => "# The key column: the first one that is unique in the current rows.\n",
        (false, true) => {
            "# The key column, found anew in each reading: the first one that is unique in the current rows. Write it once the rows are right.\n#"
        }
    };
    let parts: Vec<String> = table.key.iter().map(|at| columns.manifest_name(*at)).collect();
    match parts.as_slice() {
        [one] => *out += &format!("key = {}\n", toml_string(one)),
        several => *out += &format!("key = {}\n", toml_array(several.iter().cloned())),
    }
    true
}

/// Foreign keys need no setting; what they mean for callers, and how a link without one is declared.
fn render_foreign_keys(out: &mut String, table: &TableFacts, collection: &str) {
    for key in &table.foreign_keys {
        let columns: Vec<&str> = key.columns.iter().map(|at| table.columns[*at].name.as_str()).collect();
        *out += &format!(
            "# A foreign key, which is a link without any setting: {} refers to {} ({}).\n",
            comment_text(&columns.join(", ")),
            comment_text(&key.table),
            comment_text(&key.target_columns.join(", "))
        );
    }
    if !table.foreign_keys.is_empty() {
        *out += &format!("# Other links are declared: [collections.{collection}.related.NAME]\n");
    }
}

fn render_fields(out: &mut String, collection: &str, columns: &TableColumns<'_>) {
    *out += "\n# Settings of columns: as (the type), format, description, enum (the allowed values), name (for callers),\n";
    *out += "# null, hidden = true to hide a column from callers, sensitive = true to keep its values out of logs,\n";
    *out += "# show_values = true to list its current values for models.\n";
    *out += &format!("[collections.{collection}.fields]\n");
    let notes = columns.table.layout_notes.iter();
    notes.filter(|note| note.is_about_field()).for_each(|note| render_note(out, note));
    for (at, column) in columns.table.columns.iter().enumerate() {
        if out.len() > FIELDS_LISTED_BYTES_MAX {
            *out += &format!("# and {} more\n", columns.table.columns.len() - at);
            return;
        }
        let kind = column.data_type.as_str();
        if columns.has_unique_header(column) {
            *out += &field_comments(column);
            let format = column.format.as_ref().map_or_else(String::new, |format| {
                format!(", {} = {}", format.key(), toml_string(&format.to_string()))
            });
            *out += &format!("#{} = {{ as = {}{format} }}", toml_key(&column.name), toml_string(kind));
        } else {
            let (name, header) = (&columns.names[at], toml_string(&column.name));
            *out += &format!("# {name}: {kind}, one of several columns named {header}");
        }
        out.push('\n');
    }
}

/// A text that means no value in a column of numbers or dates.
pub struct AssumedNull<'a> {
    column: &'a str,
    pub text: &'a str,
    pub first_location: &'a str,
}

impl AssumedNull<'_> {
    /// The line of `[collections.NAME.fields]` that says so.
    pub fn setting(&self) -> String {
        format!("{} = {{ null = {} }}", toml_key(self.column), toml_string(self.text))
    }
}

/// The text that means no value: all other values of the column are numbers or dates, and programs write it for that.
pub fn assumed_null(column: &ColumnFacts) -> Option<AssumedNull<'_>> {
    let near_miss = column.near_miss.as_ref().filter(|_| !column.name.trim().is_empty())?;
    let is_clear = near_miss.is_only_exception
        && near_miss.looks_like != NearMissType::Time
        && is_null_name(&near_miss.first_value);
    is_clear.then_some(AssumedNull {
        column: &column.name,
        text: &near_miss.first_value,
        first_location: &near_miss.first_location,
    })
}

/// What is doubtful about a column, with the lines that decide.
fn field_comments(column: &ColumnFacts) -> String {
    let mut out = String::new();
    let key = toml_key(&column.name);
    if let Some(ambiguous) = &column.ambiguous_format {
        out += match ambiguous.formats.len() {
            1 => "# Its values are text. If they are written so:\n",
            _ => "# Its values have several readings. Choose one:\n",
        };
        for format in &ambiguous.formats {
            out += &format!("#{key} = {{ {} = {} }}\n", format.key(), toml_string(&format.to_string()));
        }
    }
    if let Some(null) = column.near_miss.as_ref().and_then(null_setting) {
        out += &format!("# If this means that there is no value:\n#{key} = {{ null = {null} }}\n");
    }
    out
}

/// The columns of a table, with the names that a manifest uses.
struct TableColumns<'a> {
    table: &'a TableFacts,
    names: Vec<String>,
    /// How many columns have each header.
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

    /// The column's header, or its generated name if the header is blank, too long or not unique.
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

fn toml_array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.map(|value| toml_string(&value)).collect::<Vec<_>>().join(", "))
}

/// Text for a comment on one line.
fn comment_text(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
