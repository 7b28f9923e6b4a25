//! Compiles a manifest and source facts into a contract. Reports every error at once, together with warnings and
//! notes.

mod collection;
mod field;
mod instructions;
mod links;
mod near_miss;
mod overview;
mod reading;
mod request;
mod roles;
mod statement;
mod tools;
mod writes;

use std::sync::Arc;

use links::CollectionEntry;
pub(crate) use near_miss::null_setting;
use overview::OverviewInputs;
pub use request::declared_columns;
use ring::digest;
use spile_core::text::hex;

use crate::access::{IdentityRules, RowRules};
use crate::compatibility::{ContractInterface, ToolInterface};
use crate::contract::{Collection, Contract, Request, Statement, Tool, ToolOperation};
use crate::diagnostic::{Diagnostic, FileLocation, Located, Severity};
use crate::humanize::join_truncated;
use crate::manifest::{self, CollectionOperation, Manifest, SourceKind, SourceSettings, ToolBody};
use crate::nearest::did_you_mean;
use crate::source::{SourceFacts, StatementError, StatementFacts};
use crate::text_template::{TemplateError, TextTemplate};
use crate::toml_text::toml_string;

/// How many columns the schemas list as filters unless the author chooses: more arguments than this cost every
/// conversation more tokens than they are worth. Callers can filter by the others too.
pub const LISTED_FILTERS_MAX: usize = 20;

/// A source of the manifest that could be opened, and its facts.
pub struct IntrospectedSource<'a> {
    pub name: &'a str,
    pub facts: &'a SourceFacts,
    /// How it describes the statements that use it, by tool.
    pub statements: &'a [DescribedStatement<'a>],
}

/// A tool's name, and its statement as the source describes it.
pub type DescribedStatement<'a> = (&'a str, Result<StatementFacts, StatementError>);

impl<'a> IntrospectedSource<'a> {
    /// A source that no statement uses.
    pub fn new(name: &'a str, facts: &'a SourceFacts) -> Self {
        Self { name, facts, statements: &[] }
    }
}

/// Returns a contract if there are no errors, and all diagnostics either way.
pub fn compile(
    manifest: &Manifest,
    known: &[IntrospectedSource<'_>],
    default_name: &str,
) -> (Option<Contract>, Vec<Diagnostic>) {
    if manifest.roles.is_empty() {
        return compile_contract(manifest, known, default_name);
    }
    let facts = roles::with_assigned_columns(manifest, known);
    let assigned: Vec<IntrospectedSource<'_>> =
        known.iter().zip(&facts).map(|(one, facts)| IntrospectedSource { facts, ..*one }).collect();
    let (contract, mut diagnostics) = compile_contract(manifest, &assigned, default_name);
    let Some(mut contract) = contract else { return (None, diagnostics) };
    let (roles, found) = roles::compile_roles(manifest, known, default_name, &contract);
    let has_error = found.iter().any(|one| one.severity == Severity::Error);
    diagnostics.extend(found);
    contract.roles = Some(Arc::new(roles));
    ((!has_error).then_some(contract), diagnostics)
}

/// The same for the whole manifest, whatever its roles are.
fn compile_contract(
    manifest: &Manifest,
    known: &[IntrospectedSource<'_>],
    default_name: &str,
) -> (Option<Contract>, Vec<Diagnostic>) {
    let mut compiler = Compiler { manifest, diagnostics: Vec::new() };
    let (mut collections, mut entries) = (Vec::new(), Vec::new());
    for declared in &manifest.collections {
        // A source that could not be opened was reported then.
        let Some(source) = known.iter().find(|one| one.name == declared.source.value) else { continue };
        if let Some((collection, tool_fields)) = compiler.compile_collection(declared, source.facts) {
            entries.push(CollectionEntry { declared, tool_fields });
            collections.push(collection);
        }
    }
    compiler.compile_links(known, &entries, &mut collections);
    let mut tools = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        compiler.compile_tools(entry, &collections, index, &mut tools);
    }
    let mut statements = compiler.compile_statements(known, &mut tools);
    let requests = compiler.compile_requests(known, &mut tools);
    compiler.check_tool_names(&tools);
    // A source that could not be opened might have provided tools.
    if manifest.sources.iter().all(|source| known.iter().any(|one| one.name == source.name.value)) {
        compiler.check_not_empty(known, &tools);
    }
    let identities = identities(manifest);
    for (source, identity) in &identities {
        let results = statements.iter_mut().map(|statement| &mut statement.result);
        for one in collections.iter_mut().chain(results).filter(|one| one.source == *source) {
            one.rules = Some(RowRules::of_source(identity.clone()));
        }
    }
    let failed = compiler.error_count() > 0;
    let contract = (!failed).then(|| {
        let parts = CompiledParts { collections, statements, requests, tools, identities };
        build_contract(manifest, known, default_name, parts)
    });
    (contract, compiler.diagnostics)
}

/// The sources that know their callers.
fn identities(manifest: &Manifest) -> Vec<(String, Arc<IdentityRules>)> {
    let identity = |source: &manifest::Source| match &source.settings {
        SourceSettings::Database(settings) => {
            let rules = settings.identity.as_ref().map(IdentityRules::new)?;
            Some((source.name.value.clone(), Arc::new(rules)))
        }
        _ => None,
    };
    manifest.sources.iter().filter_map(identity).collect()
}

struct CompiledParts<'m> {
    collections: Vec<Collection>,
    statements: Vec<Statement>,
    requests: Vec<Request>,
    tools: Vec<CompiledTool<'m>>,
    identities: Vec<(String, Arc<IdentityRules>)>,
}

fn build_contract(
    manifest: &Manifest,
    known: &[IntrospectedSource<'_>],
    default_name: &str,
    parts: CompiledParts<'_>,
) -> Contract {
    let tools: Vec<Tool> = parts.tools.into_iter().map(|compiled| compiled.tool).collect();
    let generated = || {
        let tools: Vec<&Tool> = tools.iter().collect();
        instructions::generate(manifest, known, &parts.collections, &tools)
    };
    let instructions = manifest.server.instructions.clone().or_else(generated);
    let name = manifest.server.name.clone().unwrap_or_else(|| default_name.to_owned());
    let overview = overview::render(&OverviewInputs {
        title: manifest.server.title.as_deref().unwrap_or(&name),
        manifest,
        known,
        collections: &parts.collections,
        statements: &parts.statements,
        requests: &parts.requests,
        tools: &tools,
    });
    let (mut collections, identities) = (parts.collections, parts.identities);
    for tool in tools.iter().filter(|tool| matches!(tool.operation, ToolOperation::Update { .. })) {
        let collection = tool.operation.collection().and_then(|index| collections.get_mut(index));
        if let Some(policy) = collection.and_then(|collection| collection.write_policy.as_mut()) {
            policy.update_tool.get_or_insert_with(|| tool.name.clone());
        }
    }
    let mut contract = Contract {
        name,
        title: manifest.server.title.clone(),
        version: String::new(),
        instructions,
        instructions_are_generated: manifest.server.instructions.is_none(),
        overview,
        rate_limit: manifest.server.rate_limit,
        collections,
        statements: parts.statements,
        requests: parts.requests,
        tools,
        identities,
        roles: None,
    };
    contract.version = unlocked_version(&contract, []);
    contract
}

/// A tool, and where its author named it.
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

    fn error(&mut self, at: &FileLocation, message: String, help: String) {
        self.diagnostics.push(Diagnostic::error(message).at(at).help(help));
    }

    fn warning(&mut self, at: &FileLocation, message: String, help: &str) {
        self.diagnostics.push(Diagnostic::warning(message).at(at).help(help));
    }

    /// The tools with `uses`, and what each uses.
    fn renamed_tools(
        &self,
    ) -> impl Iterator<Item = (&'m manifest::Tool, &'m Located<CollectionOperation>)> + use<'m> {
        self.manifest.tools.iter().filter_map(|tool| match &tool.body {
            ToolBody::Uses(uses) => Some((tool, uses)),
            ToolBody::Statement(_) | ToolBody::Request(_) => None,
        })
    }

    fn parse_template(&mut self, text: &Located<String>, collection: &Collection) -> Option<TextTemplate> {
        match TextTemplate::parse(&text.value, &collection.fields) {
            Ok(template) => return Some(template),
            Err(TemplateError::Unclosed(span)) => {
                let at = text.location.inside(&text.value, span);
                self.error(&at, "a `{` has no `}`".into(), "write `{{` for a literal brace".into());
            }
            Err(TemplateError::UnknownField(name, span)) => {
                let at = text.location.inside(&text.value, span);
                let names = collection.fields.iter().map(|field| field.name.as_str());
                let message = format!("`{}` has no field `{name}`", collection.name);
                self.error(&at, message, suggest(&name, "field", names));
            }
        }
        None
    }

    /// Reports a manifest that offers no tool.
    fn check_not_empty(&mut self, known: &[IntrospectedSource<'_>], tools: &[CompiledTool<'m>]) {
        if self.manifest.may_be_empty {
            return;
        }
        let Manifest { sources, collections, tools: declared_tools, .. } = self.manifest;
        if collections.is_empty() && declared_tools.is_empty() {
            let mut tables = known.iter().flat_map(|known| &known.facts.tables);
            let skipped = known.iter().flat_map(|known| &known.facts.skipped_tables).next();
            if let (None, Some(skipped)) = (tables.next(), skipped) {
                let error = Diagnostic::error(format!("nothing to serve: {skipped}"));
                let help = "a table needs a row of column names: texts, above its rows";
                return self.diagnostics.push(error.help(help));
            }
            let error =
                Diagnostic::error("nothing to serve: the manifest declares no collection and no tool");
            let help = match (sources.first(), known.first()) {
                (Some(source), Some(known)) => {
                    first_collection_help(&source.name.value, source.settings.kind(), known.facts)
                }
                _ => {
                    "add `[sources.NAME]` with a `path`; `spile init` writes a manifest for your data".into()
                }
            };
            self.diagnostics.push(error.help(help));
        } else if tools.is_empty() && self.error_count() == 0 {
            let warning = Diagnostic::warning("every tool is hidden, so clients see no tools");
            self.diagnostics.push(warning.help("remove `hidden = true` from one of them"));
        }
    }

    fn check_tool_names(&mut self, tools: &[CompiledTool<'m>]) {
        for (i, compiled) in tools.iter().enumerate() {
            let Some(first) = tools[..i].iter().find(|other| other.tool.name == compiled.tool.name) else {
                continue;
            };
            let message = format!("two tools have the name `{}`", compiled.tool.name);
            match compiled.name_location.or(first.name_location) {
                Some(at) => self.error(at, message, "rename one of them".into()),
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
                let help = match self.manifest.sources.first() {
                    Some(source) if collections().next().is_none() => {
                        format!("declare it: `[collections.{of}]` with `source = \"{}\"`", source.name.value)
                    }
                    _ => suggest(of, "collection", collections()),
                };
                self.error(&at, format!("unknown collection `{of}`"), help);
            }
        }
    }
}

/// Which lines to add to a manifest that has a source and no collection.
fn first_collection_help(source: &str, kind: SourceKind, facts: &SourceFacts) -> String {
    let table = match kind {
        SourceKind::Sqlite | SourceKind::Postgres | SourceKind::MySql => "table",
        SourceKind::Xlsx | SourceKind::Xls | SourceKind::Ods => "sheet",
        // Such a file is one table.
        SourceKind::Csv
        | SourceKind::Json
        | SourceKind::JsonLines
        | SourceKind::Parquet
        | SourceKind::Rest => "",
    };
    let help = format!("add `[collections.NAME]` with `source = \"{source}\"`");
    match facts.tables.first() {
        Some(first) if !table.is_empty() => format!("{help} and `{table} = {}`", toml_string(&first.name)),
        Some(_) | None => help,
    }
}

/// A suggestion lists no more names than this.
const SUGGESTIONS_MAX: usize = 30;

/// The nearest known name, else the list of known names. `what` they are: `column`.
fn suggest<'k>(name: &str, what: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    did_you_mean(name, known.clone()).unwrap_or_else(|| {
        match known.map(|name| format!("`{name}`")).collect::<Vec<_>>().as_slice() {
            [] => format!("there are no {what}s"),
            all => format!("known {what}s: {}", join_truncated(all, SUGGESTIONS_MAX)),
        }
    })
}

/// Identifies the tools as clients see them, in their order. Excludes what depends on the data alone: the current values
/// of columns.
/// The version of a server without a lock file: `0+` and a hash of the interface of its tools. `other_tools` are those of other
/// providers, such as the code of the folder.
pub fn unlocked_version<'t>(
    contract: &Contract,
    other_tools: impl IntoIterator<Item = &'t spile_core::Tool>,
) -> String {
    let interface = ContractInterface::from_contract(contract);
    let mut context = digest::Context::new(&digest::SHA256);
    let mut add = |name: &str, hash: &str| {
        for piece in [name, hash] {
            context.update(&(piece.len() as u64).to_be_bytes());
            context.update(piece.as_bytes());
        }
    };
    for tool in &contract.tools {
        add(&tool.name, &interface.tools.get(&tool.name).map(ToolInterface::hash).unwrap_or_default());
    }
    for (name, tool) in &ContractInterface::default().with_tools(other_tools).tools {
        add(name, &tool.hash());
    }
    format!("0+{}", hex(&context.finish().as_ref()[..4]))
}
