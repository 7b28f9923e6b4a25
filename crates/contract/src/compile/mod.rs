//! Manifest and facts in, contract out. Everything that is wrong is told at once; what is only worth knowing
//! is told too.

mod collection;
mod field;
mod statement;
mod tools;
mod writes;

use ring::digest;
use spile_core::text::hex;

use crate::contract::{Collection, Contract, Statement, Tool};
use crate::diagnostic::{Diagnostic, FileLocation, Located, Severity};
use crate::humanize::join_truncated;
use crate::manifest::{CollectionOperation, Manifest, SourceKind, ToolBody};
use crate::nearest::did_you_mean;
use crate::source::{SourceFacts, StatementError, StatementFacts};
use crate::text_template::{TemplateError, TextTemplate};

/// Columns that a list can be filtered and sorted by, where the author says nothing: more arguments than
/// this cost every conversation more than they help.
pub const DEFAULT_FIELDS_MAX: usize = 20;

/// A manifest's source with what it holds.
pub struct KnownSource<'a> {
    pub name: &'a str,
    pub facts: &'a SourceFacts,
    /// What it says of the statements that name it, by tool.
    pub statements: &'a [DescribedStatement<'a>],
}

/// The statement of this tool, as its source sees it.
pub type DescribedStatement<'a> = (&'a str, Result<StatementFacts, StatementError>);

impl<'a> KnownSource<'a> {
    /// A source that no statement names.
    pub fn new(name: &'a str, facts: &'a SourceFacts) -> Self {
        Self { name, facts, statements: &[] }
    }
}

/// Compiles. Without errors there is a contract; notes and warnings come along either way.
pub fn compile(
    manifest: &Manifest,
    known: &[KnownSource<'_>],
    default_name: &str,
) -> (Option<Contract>, Vec<Diagnostic>) {
    let mut compiler = Compiler { manifest, diagnostics: Vec::new() };
    let mut collections = Vec::new();
    let mut tools = Vec::new();
    for wanted in &manifest.collections {
        // What the sources lack was told when they were opened.
        let Some(facts) = known.iter().find(|one| one.name == wanted.source.value) else { continue };
        if let Some((collection, chosen)) = compiler.compile_collection(wanted, facts.facts) {
            compiler.compile_tools(wanted, &collection, &chosen, collections.len(), &mut tools);
            collections.push(collection);
        }
    }
    let statements = compiler.compile_statements(known, &mut tools);
    compiler.check_tool_names(&tools);
    // What a source that cannot be read would offer, nobody knows.
    if manifest.sources.iter().all(|source| known.iter().any(|one| one.name == source.name.value)) {
        compiler.check_not_empty(known, &tools);
    }
    let failed = compiler.error_count() > 0;
    let contract = (!failed)
        .then(|| build_contract(manifest, default_name, CompiledParts { collections, statements, tools }));
    (contract, compiler.diagnostics)
}

/// All that was compiled.
struct CompiledParts<'m> {
    collections: Vec<Collection>,
    statements: Vec<Statement>,
    tools: Vec<CompiledTool<'m>>,
}

fn build_contract(manifest: &Manifest, default_name: &str, parts: CompiledParts<'_>) -> Contract {
    Contract {
        name: manifest.server.name.clone().unwrap_or_else(|| default_name.to_owned()),
        title: manifest.server.title.clone(),
        version: format!("0+{}", fingerprint(&parts.tools)),
        instructions: manifest.server.instructions.clone(),
        rate_limit: manifest.server.rate_limit,
        collections: parts.collections,
        statements: parts.statements,
        tools: parts.tools.into_iter().map(|made| made.tool).collect(),
    }
}

/// A tool and where its name stands, if an author gave it.
struct CompiledTool<'m> {
    tool: Tool,
    name_location: Option<&'m FileLocation>,
}

struct Compiler<'m> {
    manifest: &'m Manifest,
    diagnostics: Vec<Diagnostic>,
}

impl<'m> Compiler<'m> {
    fn error_count(&self) -> usize {
        self.diagnostics.iter().filter(|one| one.severity == Severity::Error).count()
    }

    /// Whatever is wrong has a way out.
    fn error(&mut self, at: &FileLocation, message: String, help: String) {
        self.diagnostics.push(Diagnostic::error(message).at(at).help(help));
    }

    fn warning(&mut self, at: &FileLocation, message: String, help: &str) {
        self.diagnostics.push(Diagnostic::warning(message).at(at).help(help));
    }

    /// The tools that rename something, each with what.
    fn renamed_tools(
        &self,
    ) -> impl Iterator<Item = (&'m crate::manifest::Tool, &'m Located<CollectionOperation>)> + use<'m> {
        self.manifest.tools.iter().filter_map(|tool| match &tool.body {
            ToolBody::Uses(uses) => Some((tool, uses)),
            ToolBody::Statement(_) => None,
        })
    }

    fn parse_template(&mut self, text: &Located<String>, collection: &Collection) -> Option<TextTemplate> {
        match TextTemplate::parse(&text.value, &collection.fields) {
            Ok(line) => return Some(line),
            Err(TemplateError::Unclosed(span)) => {
                let at = text.location.inside(&text.value, span);
                self.error(&at, "a `{` without its `}`".into(), "a brace itself is `{{`".into());
            }
            Err(TemplateError::UnknownField(name, span)) => {
                let at = text.location.inside(&text.value, span);
                let names = collection.fields.iter().map(|field| field.name.as_str());
                let message = format!("no field `{name}` in `{}`", collection.name);
                self.error(&at, message, suggest(&name, names));
            }
        }
        None
    }

    /// Whether there is anything that callers could use.
    fn check_not_empty(&mut self, known: &[KnownSource<'_>], tools: &[CompiledTool<'m>]) {
        let Manifest { sources, collections, tools: said, .. } = self.manifest;
        if collections.is_empty() && said.is_empty() {
            let nothing = Diagnostic::error("there is nothing to serve: no collection is declared");
            let help = match (sources.first(), known.first()) {
                (Some(source), Some(known)) => {
                    first_collection_help(&source.name.value, source.settings.kind(), known.facts)
                }
                _ => "add a [sources.NAME] with its `path`; `spile init` writes a manifest for your data"
                    .into(),
            };
            self.diagnostics.push(nothing.help(help));
        } else if tools.is_empty() && self.error_count() == 0 {
            let nothing = Diagnostic::warning("every tool is hidden: callers find nothing to use");
            self.diagnostics.push(nothing.help("leave `hidden = true` out for one of them"));
        }
    }

    fn check_tool_names(&mut self, tools: &[CompiledTool<'m>]) {
        for (i, made) in tools.iter().enumerate() {
            let Some(first) = tools[..i].iter().find(|other| other.tool.name == made.tool.name) else {
                continue;
            };
            let message = format!("two tools are called `{}`", made.tool.name);
            match made.name_location.or(first.name_location) {
                Some(at) => self.error(at, message, "give one of them another name".into()),
                None => {
                    self.diagnostics.push(Diagnostic::error(message).help("rename one of the collections"))
                }
            }
        }
        for (_, uses) in self.renamed_tools() {
            let of = &uses.value.collection;
            let collections = || self.manifest.collections.iter().map(|one| one.name.value.as_str());
            if !collections().any(|name| name == of) {
                let at = uses.location.inside(of, 0..of.len());
                self.error(&at, format!("no collection `{of}`"), suggest(of, collections()));
            }
        }
    }
}

/// What to add for a source of this kind that nothing is made of.
fn first_collection_help(source: &str, kind: SourceKind, facts: &SourceFacts) -> String {
    let table = match kind {
        SourceKind::Sqlite => "table",
        SourceKind::Xlsx | SourceKind::Xls | SourceKind::Ods => "sheet",
        // A file is one table.
        SourceKind::Csv | SourceKind::Json | SourceKind::JsonLines => "",
    };
    let said = format!("add a [collections.NAME] with `source = \"{source}\"`");
    match facts.tables.first() {
        Some(first) if !table.is_empty() => format!("{said} and `{table} = \"{}\"`", first.name),
        Some(_) | None => said,
    }
}

/// So many names are offered to whoever got one wrong.
const SUGGESTIONS_MAX: usize = 30;

/// What was probably meant, else what there is.
fn suggest<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    did_you_mean(name, known.clone()).unwrap_or_else(|| match known.collect::<Vec<_>>().as_slice() {
        [] => "there is none to choose from".into(),
        all => format!("there are: {}", join_truncated(all, SUGGESTIONS_MAX)),
    })
}

/// Tells one set of tools from another: all that callers can see of them.
fn fingerprint(tools: &[CompiledTool<'_>]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for CompiledTool { tool, .. } in tools {
        let title = tool.title.as_deref().unwrap_or_default();
        for piece in
            [&tool.name, title, &tool.description, tool.input_schema.as_str(), tool.output_schema.as_str()]
        {
            context.update(&(piece.len() as u64).to_be_bytes());
            context.update(piece.as_bytes());
        }
    }
    hex(&context.finish().as_ref()[..4])
}
