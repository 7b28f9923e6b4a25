//! What a contract can be right about and still be hard to use: for models that choose between its tools, for
//! clients that refuse what others take, and for whoever trusts a column with their digits.
//!
//! Nothing here keeps anything from being served. Findings that come in numbers are one finding.

use json::{Json, Node};

use crate::compile::KnownSource;
use crate::contract::{Contract, Tool, ToolOperation};
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, FileLocation};
use crate::humanize::join_truncated;
use crate::manifest::{self, Manifest, ToolBody};
use crate::names;
use crate::source::{ColumnFacts, TableFacts};

/// More tools than this are refused by some clients, or cut.
pub const TOOLS_MAX: usize = 128;
/// Longer instructions are cut by some clients.
pub const INSTRUCTIONS_BYTES_MAX: usize = 2048;
/// Longer descriptions are refused by some clients.
pub const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Descriptions that share so many of their words, in percent, read alike.
const SIMILAR_PERCENT: usize = 75;
/// So many descriptions are compared with each other.
const COMPARED_MAX: usize = 500;

/// All that is worth a look, the worst first.
pub fn lint(contract: &Contract, manifest: &Manifest, known: &[KnownSource<'_>]) -> Vec<Diagnostic> {
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

    /// Where a tool is declared, or the collection that it was made for.
    fn tool_location(&self, tool: &Tool) -> Option<&FileLocation> {
        let own =
            self.manifest.tools.iter().find(|one| one.name.value == tool.name).map(|one| &one.name.location);
        own.or_else(|| {
            let of = &self.contract.collections[collection_index(tool)?].name;
            self.manifest.collections.iter().find(|one| one.name.value == *of).map(|one| &one.name.location)
        })
    }

    fn check_descriptions(&mut self) {
        let manifest = self.manifest;
        let is_mute =
            |tool: &&manifest::Tool| !tool.hidden && tool.description.is_none() && is_statement(tool);
        let tools: Vec<_> = manifest.tools.iter().filter(is_mute).map(|tool| &tool.name).collect();
        if let [first, ..] = tools.as_slice() {
            let names: Vec<&str> = tools.iter().map(|name| name.value.as_str()).collect();
            let message =
                format!("{} no description: {}", count_with_have(names.len(), "tool"), quote_names(&names));
            let help = "say what a statement answers and when to use it; nobody sees the statement itself";
            self.warn("description_missing", Some(&first.location), message, help);
        }
        let mute: Vec<_> = manifest
            .collections
            .iter()
            .filter(|one| one.description.is_none() && self.relies_on_description(&one.name.value))
            .map(|one| &one.name)
            .collect();
        if let [first, ..] = mute.as_slice() {
            let names: Vec<&str> = mute.iter().map(|name| name.value.as_str()).collect();
            let message = format!(
                "{} no description: {}",
                count_with_have(names.len(), "collection"),
                quote_names(&names)
            );
            let help = "say what a record is in a sentence; models choose their tools by it";
            self.note("description_missing", Some(&first.location), message, help);
        }
    }

    /// Whether a tool of the collection has no description of its own.
    fn relies_on_description(&self, collection: &str) -> bool {
        self.contract.tools.iter().any(|tool| {
            let of = collection_index(tool).map(|at| self.contract.collections[at].name.as_str());
            let own = self.manifest.tools.iter().find(|one| one.name.value == tool.name);
            of == Some(collection) && own.is_none_or(|own| own.description.is_none())
        })
    }

    /// What authors wrote, each with each of its sort. What is made from an operation differs by the operation.
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
            for (at, (name, mine)) in all.iter().enumerate() {
                let Some((other, theirs)) = all[..at].iter().find(|(_, other)| mine.is_similar(other)) else {
                    continue;
                };
                let how = if mine.text == theirs.text {
                    "have the same description"
                } else {
                    "read almost the same"
                };
                let message = format!("the {what} `{}` and `{}` {how}", other.value, name.value);
                let help = "a model cannot tell which to use; say in each what the other does not do";
                self.warn("descriptions_alike", Some(&name.location), message, help);
            }
        }
    }

    fn check_names(&mut self) {
        let most = names::TOOL_CHARS_MAX;
        let contract = self.contract;
        for tool in contract.tools.iter().filter(|tool| tool.name.chars().count() > most) {
            let message = format!("the name `{}` has more than {most} characters", tool.name);
            let help = "clients put their own name for the server before it and refuse more than 64 together";
            let at = self.tool_location(tool).cloned();
            self.warn("tool_name_long", at.as_ref(), message, help);
        }
        if contract.tools.len() > TOOLS_MAX {
            let message = format!(
                "there are {} tools; some clients take no more than {TOOLS_MAX}",
                contract.tools.len()
            );
            let help = "leave some out with `operations`, or make two servers of it";
            self.warn("tools_many", None, message, help);
        }
    }

    fn check_schemas(&mut self) {
        let contract = self.contract;
        for tool in &contract.tools {
            let at = self.tool_location(tool).cloned();
            for refused in schema_issues(&tool.input_schema) {
                let message = format!("the arguments of `{}` {}", tool.name, refused.problem);
                self.warn(refused.code, at.as_ref(), message, refused.help);
            }
        }
    }

    fn check_sizes(&mut self) {
        let contract = self.contract;
        let instructions = contract.instructions.as_deref().unwrap_or_default();
        if instructions.len() > INSTRUCTIONS_BYTES_MAX {
            let message = format!("the instructions have {} bytes", instructions.len());
            let help = "some clients cut them after 2048; put first what matters most, and the rest into descriptions";
            self.warn("instructions_long", None, message, help);
        }
        for tool in &contract.tools {
            let chars = tool.description.chars().count();
            if chars > DESCRIPTION_CHARS_MAX {
                let at = self.tool_location(tool).cloned();
                let message = format!("the description of `{}` has {chars} characters", tool.name);
                let help = "some clients refuse more than 1024; shorten it";
                self.warn("description_long", at.as_ref(), message, help);
            }
        }
    }

    /// Types that are declared and hold for every value, else it would not be served, and yet tell less than it is.
    fn check_types(&mut self, collection: &manifest::Collection, table: &TableFacts) {
        for field in &collection.fields {
            let Some(declared) = &field.data_type else { continue };
            let Some(column) = table.columns.iter().find(|one| one.name == field.column.value) else {
                continue;
            };
            // Without rows a column is whatever it is said to be.
            if table.row_count == Some(0) {
                continue;
            }
            // An author may want numbers all the same.
            if let (DataType::Int64 | DataType::Decimal, DataType::Number) =
                (column.data_type, declared.value)
            {
                let (name, found) = (&column.name, column.data_type.as_str());
                let message = format!(
                    "`{name}` is declared `number`, and its values are `{found}`: digits may be lost"
                );
                let help = format!("leave `as` out, or say `as = \"{found}\"`");
                self.note("type_differs", Some(&declared.location), message, &help);
            }
        }
    }

    fn check_precision(&mut self, collection: &manifest::Collection, table: &TableFacts) {
        let hidden =
            |column: &str| collection.fields.iter().any(|field| field.hidden && field.column.value == column);
        let rounds: Vec<&ColumnFacts> = table
            .columns
            .iter()
            .filter(|column| column.precision_loss.is_some() && !hidden(&column.name))
            .collect();
        let [first, ..] = rounds.as_slice() else { return };
        let why = first.precision_loss.as_deref().unwrap_or_default();
        let names: Vec<&str> = rounds.iter().map(|column| column.name.as_str()).collect();
        let message = format!("`{}`: {} {why}", collection.name.value, quote_names(&names));
        let help = "what is stored already is told as it is; for exact digits declare the column TEXT in the database";
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
    known: &[KnownSource<'k>],
) -> Option<&'k TableFacts> {
    let facts = known.iter().find(|one| one.name == collection.source.value)?.facts;
    let compiled = contract.collections.iter().find(|one| one.name == collection.name.value)?;
    facts.tables.iter().find(|table| table.name == compiled.shape.table)
}

fn is_statement(tool: &manifest::Tool) -> bool {
    match tool.body {
        ToolBody::Statement(_) => true,
        ToolBody::Uses(_) => false,
    }
}

fn collection_index(tool: &Tool) -> Option<usize> {
    match tool.operation {
        ToolOperation::Get { collection }
        | ToolOperation::List { collection, .. }
        | ToolOperation::Search { collection, .. }
        | ToolOperation::Create { collection, .. }
        | ToolOperation::Update { collection, .. }
        | ToolOperation::Delete { collection } => Some(collection),
        ToolOperation::Statement { .. } => None,
    }
}

/// What some clients refuse in a schema of arguments.
struct SchemaIssue {
    code: &'static str,
    /// Behind "the arguments of …".
    problem: String,
    help: &'static str,
}

fn schema_issues(input: &Json) -> Vec<SchemaIssue> {
    let doc = input.to_doc();
    let root = doc.root();
    let mut found = Vec::new();
    for key in ["anyOf", "oneOf", "allOf"].into_iter().filter(|key| root.get(key).is_some()) {
        found.push(SchemaIssue {
            code: "schema_union",
            problem: format!("are an `{key}` at the top, which some clients refuse"),
            help: "make two tools of it",
        });
    }
    if let Some(remote) = remote_ref(root) {
        found.push(SchemaIssue {
            code: "schema_remote_ref",
            problem: format!("refer to `{remote}`, which no client fetches"),
            help: "write the schema out",
        });
    }
    let names = root.get("properties").into_iter().flat_map(|properties| properties.members());
    let odd: Vec<String> = names
        .filter_map(|(name, _)| name.str().map(std::borrow::Cow::into_owned))
        .filter(|name| name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        .collect();
    if !odd.is_empty() {
        let odd: Vec<&str> = odd.iter().map(String::as_str).collect();
        found.push(SchemaIssue {
            code: "argument_name",
            problem: format!("have names that some clients refuse: {}", quote_names(&odd)),
            help: "use letters without marks, digits and `_`; a field gets another name with `name = \"…\"`",
        });
    }
    found
}

/// The first `$ref` that leaves the schema.
fn remote_ref(node: Node<'_>) -> Option<String> {
    for (key, value) in node.members() {
        let refers = key.eq_str("$ref").then(|| value.str()).flatten();
        if let Some(away) = refers.filter(|to| !to.starts_with('#')) {
            return Some(away.into_owned());
        }
        if let Some(found) = remote_ref(value) {
            return Some(found);
        }
    }
    node.elements().find_map(remote_ref)
}

/// What an author says about something.
struct DescriptionWords<'a> {
    text: &'a str,
    /// The words that say something, in order of the alphabet, each once.
    words: Vec<String>,
}

impl<'a> DescriptionWords<'a> {
    fn new(text: &'a str) -> Self {
        const EMPTY: [&str; 20] = [
            "a", "an", "and", "are", "by", "for", "from", "given", "in", "is", "it", "its", "of", "or",
            "that", "the", "this", "to", "which", "who",
        ];
        let split = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        let mut words: Vec<String> =
            split.filter(|word| !word.is_empty() && !EMPTY.contains(&word.as_str())).collect();
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

/// The first few names, and how many more there are.
fn quote_names(names: &[&str]) -> String {
    const SHOWN_MAX: usize = 8;
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    join_truncated(&names, SHOWN_MAX)
}
