//! Findings about a valid contract: descriptions that do not help models, schemas that some clients refuse, columns
//! that lose digits.
//!
//! A finding never prevents serving. Findings of the same kind are grouped into one where there may be many.

mod input_schema;

pub use self::input_schema::lint_input_schema;

use spile_core::INSTRUCTIONS_BYTES_MAX;

use crate::compile::IntrospectedSource;
use crate::contract::{Contract, Tool};
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, FileLocation};
use crate::humanize::join_truncated;
use crate::manifest::{self, Manifest, ToolBody};
use crate::names;
use crate::source::{ColumnFacts, TableFacts};

/// Some clients refuse or drop more tools than this.
pub const TOOLS_MAX: usize = 128;
/// Some clients refuse longer descriptions.
pub const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Descriptions that share this percentage of their words are too similar.
const SIMILAR_PERCENT: usize = 75;
/// No more descriptions than this are compared.
const COMPARED_MAX: usize = 500;

/// All findings, the most severe first.
pub fn lint(contract: &Contract, manifest: &Manifest, known: &[IntrospectedSource<'_>]) -> Vec<Diagnostic> {
    let mut linter = Linter { contract, manifest, diagnostics: Vec::new() };
    linter.check_descriptions();
    linter.check_similar_descriptions();
    linter.check_names();
    linter.check_schemas();
    linter.check_sizes();
    for collection in &manifest.collections {
        if let Some(table) = table_facts(collection, contract, known) {
            linter.check_types(collection, table);
            linter.check_precision(collection, table);
        }
    }
    linter.diagnostics.sort_by_key(|one| one.severity);
    linter.diagnostics
}

struct Linter<'a> {
    contract: &'a Contract,
    manifest: &'a Manifest,
    diagnostics: Vec<Diagnostic>,
}

impl Linter<'_> {
    fn warn(&mut self, code: &'static str, at: Option<&FileLocation>, message: String, help: &str) {
        let one = Diagnostic::warning(message).code(code).help(help);
        self.diagnostics.push(Diagnostic { location: at.cloned(), ..one });
    }

    fn note(&mut self, code: &'static str, at: Option<&FileLocation>, message: String, help: &str) {
        let one = Diagnostic::note(message).code(code).help(help);
        self.diagnostics.push(Diagnostic { location: at.cloned(), ..one });
    }

    /// Where the tool is declared, or its collection.
    fn tool_location(&self, tool: &Tool) -> Option<&FileLocation> {
        let own =
            self.manifest.tools.iter().find(|one| one.name.value == tool.name).map(|one| &one.name.location);
        own.or_else(|| {
            let of = &self.contract.collections[tool.operation.collection()?].name;
            self.manifest.collections.iter().find(|one| one.name.value == *of).map(|one| &one.name.location)
        })
    }

    fn check_descriptions(&mut self) {
        let manifest = self.manifest;
        let is_undescribed =
            |tool: &&manifest::Tool| !tool.hidden && tool.description.is_none() && is_statement(tool);
        let tools: Vec<_> = manifest.tools.iter().filter(is_undescribed).map(|tool| &tool.name).collect();
        if let [first, ..] = tools.as_slice() {
            let names: Vec<&str> = tools.iter().map(|name| name.value.as_str()).collect();
            let message =
                format!("{} no description: {}", count_with_have(names.len(), "tool"), quote_names(&names));
            let help =
                "describe what it returns and when to use it; models see neither the SQL nor the request";
            self.warn("description_missing", Some(&first.location), message, help);
        }
        let undescribed: Vec<_> = manifest
            .collections
            .iter()
            .filter(|one| one.description.is_none() && self.relies_on_description(&one.name.value))
            .map(|one| &one.name)
            .collect();
        if let [first, ..] = undescribed.as_slice() {
            let names: Vec<&str> = undescribed.iter().map(|name| name.value.as_str()).collect();
            let message = format!(
                "{} no description: {}",
                count_with_have(names.len(), "collection"),
                quote_names(&names)
            );
            let help = "describe what one row is, in one sentence; models choose their tools by it";
            self.note("description_missing", Some(&first.location), message, help);
        }
    }

    /// Whether a tool of the collection has no description from its author.
    fn relies_on_description(&self, collection: &str) -> bool {
        self.contract.tools.iter().any(|tool| {
            let of = tool.operation.collection().map(|at| self.contract.collections[at].name.as_str());
            let own = self.manifest.tools.iter().find(|one| one.name.value == tool.name);
            of == Some(collection) && own.is_none_or(|own| own.description.is_none())
        })
    }

    /// Compares the authors' descriptions of tools, and of collections. Generated ones differ by their operation.
    fn check_similar_descriptions(&mut self) {
        let tools = self.manifest.tools.iter().filter(|tool| !tool.hidden);
        let tools: Vec<_> = tools
            .filter_map(|tool| Some((&tool.name, DescriptionWords::new(tool.description.as_deref()?))))
            .collect();
        let collections = self.manifest.collections.iter();
        let collections: Vec<_> = collections
            .filter_map(|one| Some((&one.name, DescriptionWords::new(one.description.as_deref()?))))
            .collect();
        for (what, all) in [("tools", tools), ("collections", collections)] {
            let all = &all[..all.len().min(COMPARED_MAX)];
            for (at, (name, words)) in all.iter().enumerate() {
                let similar = all[..at].iter().find(|(_, other)| words.is_similar(other));
                let Some((other, other_words)) = similar else {
                    continue;
                };
                let relation = if words.text == other_words.text {
                    "have the same description"
                } else {
                    "have almost the same description"
                };
                let message = format!("the {what} `{}` and `{}` {relation}", other.value, name.value);
                let help = "models cannot tell which to use; describe in each what the other does not do";
                self.warn("descriptions_alike", Some(&name.location), message, help);
            }
        }
    }

    fn check_names(&mut self) {
        let chars_max = names::TOOL_CHARS_MAX;
        let contract = self.contract;
        for tool in contract.tools.iter().filter(|tool| tool.name.chars().count() > chars_max) {
            let message =
                format!("the tool name `{}` exceeds the limit of {chars_max} characters", tool.name);
            let help = "clients prefix it with the server's name and refuse more than 64 characters in total; rename the tool";
            let at = self.tool_location(tool).cloned();
            self.warn("tool_name_long", at.as_ref(), message, help);
        }
        if contract.tools.len() > TOOLS_MAX {
            let message = format!(
                "the server has {} tools; some clients accept at most {TOOLS_MAX}",
                contract.tools.len()
            );
            let help = "remove some with `operations`, or split the server in two";
            self.warn("tools_many", None, message, help);
        }
    }

    fn check_schemas(&mut self) {
        let contract = self.contract;
        for tool in &contract.tools {
            let at = self.tool_location(tool).cloned();
            let found = lint_input_schema(&tool.name, &tool.input_schema).into_iter();
            self.diagnostics.extend(found.map(|finding| match &at {
                Some(at) => finding.at(at),
                None => finding,
            }));
        }
    }

    fn check_sizes(&mut self) {
        let contract = self.contract;
        let instructions = contract.instructions.as_deref().unwrap_or_default();
        if instructions.len() > INSTRUCTIONS_BYTES_MAX {
            let message = format!("the instructions have {} bytes", instructions.len());
            let help = "some clients truncate them after 2048; put the most important part first, and the rest into descriptions";
            self.warn("instructions_long", None, message, help);
        }
        for tool in &contract.tools {
            let chars = tool.description.chars().count();
            if chars > DESCRIPTION_CHARS_MAX {
                let at = self.tool_location(tool).cloned();
                let message = format!("the description of `{}` has {chars} characters", tool.name);
                let help = "some clients refuse more than 1024 characters; shorten it";
                self.warn("description_long", at.as_ref(), message, help);
            }
        }
    }

    /// Declared types that fit every value but lose precision.
    fn check_types(&mut self, collection: &manifest::Collection, table: &TableFacts) {
        for field in &collection.fields {
            let Some(declared) = &field.data_type else { continue };
            let Some(column) = table.columns.iter().find(|one| one.name == field.column.value) else {
                continue;
            };
            // An empty column may have any type.
            if table.row_count == Some(0) {
                continue;
            }
            // The author may still prefer numbers, so this is only a note.
            if let (DataType::Int64 | DataType::Decimal, DataType::Number) =
                (column.data_type, declared.value)
            {
                let (name, found) = (&column.name, column.data_type.as_str());
                let message = format!(
                    "`{name}` is declared `number`, but its values are `{found}`: digits may be lost"
                );
                let help = format!("remove `as`, or write `as = \"{found}\"`");
                self.note("type_differs", Some(&declared.location), message, &help);
            }
        }
    }

    fn check_precision(&mut self, collection: &manifest::Collection, table: &TableFacts) {
        let hidden =
            |column: &str| collection.fields.iter().any(|field| field.hidden && field.column.value == column);
        let inexact: Vec<&ColumnFacts> = table
            .columns
            .iter()
            .filter(|column| column.precision_loss.is_some() && !hidden(&column.name))
            .collect();
        let [first, ..] = inexact.as_slice() else { return };
        let reason = first.precision_loss.as_deref().unwrap_or_default();
        let names: Vec<&str> = inexact.iter().map(|column| column.name.as_str()).collect();
        let message = format!("`{}`: {} {reason}", collection.name.value, quote_names(&names));
        let help = "stored values are returned as they are; for exact digits declare the column as TEXT in the database";
        let writes = collection.operations.iter().flatten().any(|one| one.value.writes());
        let at = Some(&collection.name.location);
        if writes {
            self.warn("column_rounds", at, message, help);
        } else {
            self.note("column_rounds", at, message, help);
        }
    }
}

/// The facts that a collection was compiled from.
fn table_facts<'k>(
    collection: &manifest::Collection,
    contract: &Contract,
    known: &[IntrospectedSource<'k>],
) -> Option<&'k TableFacts> {
    let facts = known.iter().find(|one| one.name == collection.source.value)?.facts;
    let compiled = contract.collections.iter().find(|one| one.name == collection.name.value)?;
    facts.tables.iter().find(|table| table.name == compiled.shape.table)
}

fn is_statement(tool: &manifest::Tool) -> bool {
    match tool.body {
        ToolBody::Statement(_) | ToolBody::Request(_) => true,
        ToolBody::Uses(_) => false,
    }
}

/// An author's description, and its significant words.
struct DescriptionWords<'a> {
    text: &'a str,
    /// Sorted and unique, without the most common words.
    words: Vec<String>,
}

impl<'a> DescriptionWords<'a> {
    fn new(text: &'a str) -> Self {
        const STOP_WORDS: [&str; 20] = [
            "a", "an", "and", "are", "by", "for", "from", "given", "in", "is", "it", "its", "of", "or",
            "that", "the", "this", "to", "which", "who",
        ];
        let split = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        let mut words: Vec<String> =
            split.filter(|word| !word.is_empty() && !STOP_WORDS.contains(&word.as_str())).collect();
        words.sort();
        words.dedup();
        Self { text, words }
    }

    fn is_similar(&self, other: &Self) -> bool {
        let shared = self.words.iter().filter(|word| other.words.binary_search(word).is_ok()).count();
        let all = self.words.len() + other.words.len() - shared;
        self.text == other.text || (all > 0 && shared * 100 >= all * SIMILAR_PERCENT)
    }
}

/// `1 tool has`, `3 tools have`
fn count_with_have(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what} has") } else { format!("{n} {what}s have") }
}

/// The first few names in backticks, and how many more there are.
fn quote_names(names: &[impl std::fmt::Display]) -> String {
    const SHOWN_MAX: usize = 8;
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    join_truncated(&names, SHOWN_MAX)
}
