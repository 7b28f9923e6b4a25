//! Manifest and facts in, contract out. Everything that is wrong is told at once; what is only worth knowing
//! is told too.

mod collection;
mod field;
mod statement;
mod tools;
mod writes;

use call::text::hex;
use ring::digest;

use crate::contract::{Collection, Contract, Statement, Tool};
use crate::diagnostic::{At, Diagnostic, Placed, Severity};
use crate::line::{BadLine, Line};
use crate::manifest::{Body, Manifest, SourceKind, Uses};
use crate::nearest::did_you_mean;
use crate::source::{BadStatement, Facts, StatementFacts};
use crate::words::some;

/// Columns that a list can be filtered and sorted by, where the author says nothing: more arguments than
/// this cost every conversation more than they help.
pub const CHOSEN_MAX: usize = 20;

/// A manifest's source with what it holds.
pub struct Known<'a> {
    pub name: &'a str,
    pub facts: &'a Facts,
    /// What it says of the statements that name it, by tool.
    pub statements: &'a [Examined<'a>],
}

/// The statement of this tool, as its source sees it.
pub type Examined<'a> = (&'a str, Result<StatementFacts, BadStatement>);

impl<'a> Known<'a> {
    /// A source that no statement names.
    pub fn new(name: &'a str, facts: &'a Facts) -> Self {
        Self { name, facts, statements: &[] }
    }
}

/// Compiles. Without errors there is a contract; notes and warnings come along either way.
pub fn compile(
    manifest: &Manifest,
    known: &[Known<'_>],
    default_name: &str,
) -> (Option<Contract>, Vec<Diagnostic>) {
    let mut compiler = Compiler { manifest, found: Vec::new() };
    let mut collections = Vec::new();
    let mut tools = Vec::new();
    for wanted in &manifest.collections {
        // What the sources lack was told when they were opened.
        let Some(facts) = known.iter().find(|one| one.name == wanted.source.value) else { continue };
        if let Some((collection, chosen)) = compiler.collection(wanted, facts.facts) {
            compiler.tools(wanted, &collection, &chosen, collections.len(), &mut tools);
            collections.push(collection);
        }
    }
    let statements = compiler.statements(known, &mut tools);
    compiler.judge_names(&tools);
    // What a source that cannot be read would offer, nobody knows.
    if manifest.sources.iter().all(|source| known.iter().any(|one| one.name == source.name.value)) {
        compiler.judge_emptiness(known, &tools);
    }
    let failed = compiler.errors() > 0;
    let contract =
        (!failed).then(|| contract(manifest, default_name, Parts { collections, statements, tools }));
    (contract, compiler.found)
}

/// All that was compiled.
struct Parts<'m> {
    collections: Vec<Collection>,
    statements: Vec<Statement>,
    tools: Vec<Made<'m>>,
}

fn contract(manifest: &Manifest, default_name: &str, parts: Parts<'_>) -> Contract {
    Contract {
        name: manifest.server.name.clone().unwrap_or_else(|| default_name.to_owned()),
        title: manifest.server.title.clone(),
        version: format!("0+{}", fingerprint(&parts.tools)),
        instructions: manifest.server.instructions.clone(),
        rate: manifest.server.rate_limit,
        collections: parts.collections,
        statements: parts.statements,
        tools: parts.tools.into_iter().map(|made| made.tool).collect(),
    }
}

/// A tool and where its name stands, if an author gave it.
struct Made<'m> {
    tool: Tool,
    at: Option<&'m At>,
}

struct Compiler<'m> {
    manifest: &'m Manifest,
    found: Vec<Diagnostic>,
}

impl<'m> Compiler<'m> {
    fn errors(&self) -> usize {
        self.found.iter().filter(|one| one.severity == Severity::Error).count()
    }

    /// Whatever is wrong has a way out.
    fn error(&mut self, at: &At, message: String, help: String) {
        self.found.push(Diagnostic::error(message).at(at).help(help));
    }

    fn warning(&mut self, at: &At, message: String, help: &str) {
        self.found.push(Diagnostic::warning(message).at(at).help(help));
    }

    /// The tools that rename something, each with what.
    fn uses(&self) -> impl Iterator<Item = (&'m crate::manifest::Tool, &'m Placed<Uses>)> + use<'m> {
        self.manifest.tools.iter().filter_map(|tool| match &tool.body {
            Body::Uses(uses) => Some((tool, uses)),
            Body::Statement(_) => None,
        })
    }

    fn line(&mut self, text: &Placed<String>, collection: &Collection) -> Option<Line> {
        match Line::parse(&text.value, &collection.fields) {
            Ok(line) => return Some(line),
            Err(BadLine::Open(span)) => {
                let at = text.at.inside(&text.value, span);
                self.error(&at, "a `{` without its `}`".into(), "a brace itself is `{{`".into());
            }
            Err(BadLine::Unknown(name, span)) => {
                let at = text.at.inside(&text.value, span);
                let names = collection.fields.iter().map(|field| field.name.as_str());
                let message = format!("no field `{name}` in `{}`", collection.name);
                self.error(&at, message, instead(&name, names));
            }
        }
        None
    }

    /// Whether there is anything that callers could use.
    fn judge_emptiness(&mut self, known: &[Known<'_>], tools: &[Made<'m>]) {
        let Manifest { sources, collections, tools: said, .. } = self.manifest;
        if collections.is_empty() && said.is_empty() {
            let nothing = Diagnostic::error("there is nothing to serve: no collection is declared");
            let help = match (sources.first(), known.first()) {
                (Some(source), Some(known)) => {
                    first_collection(&source.name.value, source.settings.kind(), known.facts)
                }
                _ => "add a [sources.NAME] with its `path`; `spile init` writes a manifest for your data"
                    .into(),
            };
            self.found.push(nothing.help(help));
        } else if tools.is_empty() && self.errors() == 0 {
            let nothing = Diagnostic::warning("every tool is hidden: callers find nothing to use");
            self.found.push(nothing.help("leave `hidden = true` out for one of them"));
        }
    }

    fn judge_names(&mut self, tools: &[Made<'m>]) {
        for (i, made) in tools.iter().enumerate() {
            let Some(first) = tools[..i].iter().find(|other| other.tool.name == made.tool.name) else {
                continue;
            };
            let message = format!("two tools are called `{}`", made.tool.name);
            match made.at.or(first.at) {
                Some(at) => self.error(at, message, "give one of them another name".into()),
                None => self.found.push(Diagnostic::error(message).help("rename one of the collections")),
            }
        }
        for (_, uses) in self.uses() {
            let of = &uses.value.collection;
            let collections = || self.manifest.collections.iter().map(|one| one.name.value.as_str());
            if !collections().any(|name| name == of) {
                let at = uses.at.inside(of, 0..of.len());
                self.error(&at, format!("no collection `{of}`"), instead(of, collections()));
            }
        }
    }
}

/// What to add for a source of this kind that nothing is made of.
fn first_collection(source: &str, kind: SourceKind, facts: &Facts) -> String {
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
const OFFERED_MAX: usize = 30;

/// What was probably meant, else what there is.
fn instead<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    did_you_mean(name, known.clone()).unwrap_or_else(|| match known.collect::<Vec<_>>().as_slice() {
        [] => "there is none to choose from".into(),
        all => format!("there are: {}", some(all, OFFERED_MAX)),
    })
}

/// Tells one set of tools from another: all that callers can see of them.
fn fingerprint(tools: &[Made<'_>]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for Made { tool, .. } in tools {
        let title = tool.title.as_deref().unwrap_or_default();
        for piece in [&tool.name, title, &tool.description, tool.input.as_str(), tool.output.as_str()] {
            context.update(&(piece.len() as u64).to_be_bytes());
            context.update(piece.as_bytes());
        }
    }
    hex(&context.finish().as_ref()[..4])
}
