//! What a path on the command line means, and the way from it to something that can be served.
//!
//! ```text
//! path → Project (manifest or data files) → sources, facts → manifest → contract → readers, writers, statements
//! ```
//!
//! Without a manifest, the one that `spile init` would write is made and compiled: there is one way only.

pub(crate) mod missing;
mod packing;
mod sources;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use contract::compile::{Examined, Known, compile};
use contract::diagnostic::{Diagnostic, Placed, Severity};
use contract::manifest::{self, Body, Manifest, Settings, SourceKind};
use contract::source::{ColumnFacts, Facts, SourceFault};
use contract::{Contract, Kind, Operation, init, names};
use host::Answers;

use crate::lock::Locked;
pub use packing::{PackedSource, Packing};
pub use sources::Sources;
use sources::{Opened, Opening, described, explained, other_settings, settings, told};

pub const MANIFEST: &str = "spile.toml";
const ENDINGS: &str = ".csv .tsv .xlsx .xls .ods .json .jsonl .db .sqlite .sqlite3";
/// JSON files that are settings of some program wherever they lie.
const NOT_DATA: [&str; 5] =
    ["package.json", "package-lock.json", "tsconfig.json", "mcp.json", "composer.json"];
/// A folder with more data files than this is not meant to be served as it is.
const FILES_MAX: usize = 100;

/// What a path means.
#[derive(Debug)]
pub struct Project {
    /// What it is called if nobody says otherwise.
    pub name: String,
    /// Where paths in a manifest start from, and where `init` writes one.
    pub folder: PathBuf,
    pub plan: Plan,
    /// Sources of a manifest whose files lie elsewhere than it says.
    pub moved: BTreeMap<String, PathBuf>,
}

#[derive(Debug)]
pub enum Plan {
    Manifest(PathBuf),
    /// Data files, each a collection.
    Files(Vec<PathBuf>),
}

impl Project {
    pub fn find(path: &Path) -> anyhow::Result<Self> {
        let kind = std::fs::metadata(path).map_err(|error| missing::unread(path, error))?;
        if kind.is_dir() { Self::of_folder(path) } else { Self::of_file(path) }
    }

    fn of_folder(folder: &Path) -> anyhow::Result<Self> {
        let name = file_name(&folder.canonicalize().unwrap_or_else(|_| folder.into()));
        let shown = folder.display();
        // What lies here is called by its name alone.
        let folder = if folder == Path::new(".") { Path::new("") } else { folder };
        let manifest = folder.join(MANIFEST);
        if manifest.is_file() {
            return Ok(Self::new(name, folder, Plan::Manifest(manifest)));
        }
        let files = data_files(folder)?;
        match files.len() {
            0 => {
                let below = below(here(folder));
                let below = match below.as_slice() {
                    [] => String::new(),
                    some => format!("; there is in `{}`", some.join("`, `")),
                };
                bail!(
                    "nothing to serve in `{shown}`: there is no {MANIFEST} and no data file ({ENDINGS}){below}"
                )
            }
            1..=FILES_MAX => Ok(Self::new(name, folder, Plan::Files(files))),
            many => bail!(
                "`{shown}` has {many} data files, and more than {FILES_MAX} are not served together; \
                 name some, or write a {MANIFEST}"
            ),
        }
    }

    fn of_file(path: &Path) -> anyhow::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml")) {
            let absolute = path.canonicalize().unwrap_or_else(|_| path.into());
            let name = absolute.parent().map_or_else(|| "server".into(), file_name);
            return Ok(Self::new(name, &folder, Plan::Manifest(path.into())));
        }
        if kind_of(path).is_none() {
            let is_numbers = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("numbers"));
            let way_out = if is_numbers { "; export it as XLSX or CSV" } else { "" };
            bail!("`{}` is neither a {MANIFEST} nor a data file ({ENDINGS}){way_out}", path.display());
        }
        let name =
            path.file_stem().map_or_else(|| "server".into(), |stem| stem.to_string_lossy().into_owned());
        Ok(Self::new(name, &folder, Plan::Files(vec![path.into()])))
    }

    fn new(name: String, folder: &Path, plan: Plan) -> Self {
        Self { name, folder: folder.into(), plan, moved: BTreeMap::new() }
    }

    /// Whether somebody wrote a manifest.
    pub fn is_written(&self) -> bool {
        matches!(self.plan, Plan::Manifest(_))
    }

    /// What a packed server serves: its manifest, with some of its sources' files laid out elsewhere.
    pub fn packed(name: &str, folder: PathBuf, manifest: PathBuf, moved: BTreeMap<String, PathBuf>) -> Self {
        Self { name: name.into(), folder, plan: Plan::Manifest(manifest), moved }
    }
}

/// So many folders in a folder are looked into, and so many named, for something that could be meant instead.
const BELOW_MAX: usize = 100;
const BELOW_SHOWN_MAX: usize = 3;

/// Folders in a folder that could be served.
fn below(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(BELOW_MAX);
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let shown = names.filter(|name| !name.to_string_lossy().starts_with('.'));
    let paths = shown.map(|name| if folder == Path::new(".") { name.into() } else { folder.join(name) });
    let is_served = |path: &PathBuf| {
        path.is_dir()
            && (path.join(MANIFEST).is_file() || data_files(path).is_ok_and(|files| !files.is_empty()))
    };
    let mut below: Vec<String> = paths.filter(is_served).map(|path| path.display().to_string()).collect();
    below.sort();
    below.truncate(BELOW_SHOWN_MAX);
    below
}

/// The current folder has a name too.
fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// The data files of a folder, by name.
fn data_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let here = here(folder);
    let entries = std::fs::read_dir(here).with_context(|| format!("`{}` cannot be read", here.display()))?;
    let paths = entries.filter_map(|entry| Some(folder.join(entry.ok()?.file_name())));
    let is_data = |path: &PathBuf| {
        let name = file_name(path);
        // A spreadsheet program keeps `~$customers.xlsx` beside what it has open.
        !name.starts_with(['.', '~']) && !NOT_DATA.contains(&name.as_str()) && kind_of(path).is_some()
    };
    let mut files: Vec<PathBuf> = paths.filter(|path| is_data(path) && path.is_file()).collect();
    files.sort();
    Ok(files)
}

fn kind_of(path: &Path) -> Option<SourceKind> {
    SourceKind::of_path(&file_name(path))
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "server".into(), |name| name.to_string_lossy().into_owned())
}

/// A project that has been looked at: what can be served, if nothing is wrong, and what there is to say.
#[derive(Default)]
pub struct Looked {
    pub ready: Option<Ready>,
    pub found: Vec<Diagnostic>,
    /// One line for each source: what it is and how it was read.
    pub sources: Vec<String>,
    /// The data files, whether they could be read or not.
    pub files: Vec<PathBuf>,
    /// How it stands to the lock file.
    pub locked: Locked,
    /// What the contract was made from, for whoever wants to look closer.
    pub manifest: Option<Manifest>,
    /// Whether somebody wrote that manifest.
    pub is_written: bool,
    /// The manifest as it is written, or would be.
    pub text: String,
    /// The variables that it reads, by name.
    pub variables: BTreeSet<String>,
    /// What each source holds, by its name.
    pub facts: Vec<(String, Facts)>,
}

/// A contract and what answers it.
pub struct Ready {
    pub contract: Contract,
    pub answers: Answers,
    pub call_timeout_ms: Option<u64>,
    /// What the answers come from.
    pub sources: Sources,
}

impl Project {
    /// Reads everything that a server needs to know before it serves.
    pub fn look(&self) -> anyhow::Result<Looked> {
        self.look_again(&Sources::default())
    }

    /// The same while it is served from these sources: what is read as it was is not opened a second time.
    pub fn look_again(&self, served: &Sources) -> anyhow::Result<Looked> {
        let mut looked = Looked::default();
        let mut openings = Openings::beside(served);
        let manifest = match &self.plan {
            Plan::Manifest(file) => self.read_manifest(file, &mut openings, &mut looked)?,
            Plan::Files(files) => self.made_manifest(files, &mut openings, &mut looked)?,
        };
        let Openings { sources, opened, .. } = openings;
        let Some(manifest) = manifest else { return Ok(looked) };
        let examined: Vec<Vec<Examined<'_>>> = opened.iter().map(|one| examined(&manifest, one)).collect();
        let known: Vec<Known<'_>> = opened
            .iter()
            .zip(&examined)
            .map(|(one, statements)| Known { name: &one.name, facts: &one.facts, statements })
            .collect();
        let (mut contract, mut found) = compile(&manifest, &known, &names::server_name(&self.name));
        if matches!(self.plan, Plan::Files(_)) {
            // Nobody has seen the manifest that was made.
            found.iter_mut().for_each(|one| one.at = None);
            // Nor has anybody chosen tables: what is not served has to be said.
            let left_out = opened.iter().flat_map(|one| &one.facts.left_out);
            looked.found.extend(left_out.map(|one| Diagnostic::note(one.to_string())));
        }
        looked.sources = opened.iter().map(|one| described(one, contract.as_ref())).collect();
        looked.found.append(&mut found);
        looked.found.extend(contract.iter().flat_map(renamed));
        if let Some(contract) = &mut contract {
            looked.locked = Locked::number(self, contract);
        }
        if let Some(contract) = contract.filter(|_| looked.errors() == 0) {
            looked.ready = ready(contract, &manifest, &opened, sources, &mut looked.found);
        }
        looked.manifest = Some(manifest);
        looked.is_written = self.is_written();
        looked.facts = opened.into_iter().map(|one| (one.name, one.facts)).collect();
        Ok(looked)
    }

    fn read_manifest(
        &self,
        file: &Path,
        openings: &mut Openings<'_>,
        looked: &mut Looked,
    ) -> anyhow::Result<Option<Manifest>> {
        let bytes = std::fs::read(file).with_context(|| format!("`{}` cannot be read", file.display()))?;
        let Ok(text) = String::from_utf8(bytes) else {
            bail!("`{}` is not text in UTF-8; save it again as such", file.display());
        };
        looked.text = text;
        let shown = file.display().to_string();
        let (parsed, variables) = parsed(&shown, &looked.text);
        looked.variables = variables;
        let manifest = match parsed {
            Ok((manifest, mut found)) => {
                looked.found.append(&mut found);
                manifest
            }
            Err(mut found) => {
                looked.found.append(&mut found);
                return Ok(None);
            }
        };
        for one in &manifest.sources {
            let path = self.path_of(&one.name.value, &one.path.value);
            looked.files.push(path.clone());
            let opening = Opening {
                name: &one.name.value,
                path: &path,
                file: &one.path.value,
                settings: &one.settings,
                header_rows: header_rows(&manifest, &one.name.value),
                declared: declared(&manifest, &one.name.value),
            };
            match openings.open(&opening) {
                Ok(()) => {}
                Err(error) => looked.found.push(match error.at {
                    Some(_) => error,
                    None => error.at(&one.path.at),
                }),
            }
        }
        Ok(Some(manifest))
    }

    fn path_of(&self, source: &str, path: &str) -> PathBuf {
        self.moved.get(source).cloned().unwrap_or_else(|| self.folder.join(path))
    }

    /// The manifest that nobody wrote.
    fn made_manifest(
        &self,
        files: &[PathBuf],
        openings: &mut Openings<'_>,
        looked: &mut Looked,
    ) -> anyhow::Result<Option<Manifest>> {
        let stems: Vec<String> = files.iter().map(|file| stem(file)).collect();
        let stems: Vec<&str> = stems.iter().map(String::as_str).collect();
        for (file, name) in files.iter().zip(names::collection_names(&stems)) {
            let Some(kind) = kind_of(file) else { continue };
            looked.files.push(file.clone());
            let shown = file_name(file);
            let mut with = |settings: &Settings| {
                openings.open(&Opening {
                    name: &name,
                    path: file,
                    file: &shown,
                    settings,
                    header_rows: Vec::new(),
                    declared: Vec::new(),
                })
            };
            match with(&settings(kind)) {
                Ok(()) => {}
                // Much that is JSON is no table, and nobody has said that this one is.
                Err(error) if kind == SourceKind::Json && files.len() > 1 => {
                    let why = error.message.strip_prefix(&format!("`{shown}` "));
                    let why = why.map_or_else(|| error.message.clone(), |why| format!("it {why}"));
                    let note = Diagnostic::note(format!("`{shown}` is left out: {why}"));
                    looked.found.push(match other_settings(kind, file) {
                        Some(_) => note.help("to serve it, name it alone, or write a manifest"),
                        None => note,
                    });
                }
                Err(error) => match other_settings(kind, file).map(|settings| with(&settings)) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => looked.found.push(error),
                    None => looked.found.push(error),
                },
            }
        }
        if looked.errors() > 0 {
            return Ok(None);
        }
        looked.text = rendered(&openings.opened, &names::server_name(&self.name));
        match manifest::parse(MANIFEST, &looked.text, &|_| None) {
            Ok((manifest, _)) => Ok(Some(manifest)),
            Err(found) => {
                let why = contract::diagnostic::render_all(&found, false);
                bail!("the manifest that was made for this data does not hold (please report this):\n{why}")
            }
        }
    }

    /// The same place as if its manifest were not there.
    pub fn without_manifest(self) -> anyhow::Result<Self> {
        match &self.plan {
            Plan::Files(_) => Ok(self),
            Plan::Manifest(file) => {
                let files = data_files(&self.folder)?;
                if files.is_empty() {
                    bail!("`{}` is a manifest; name the data that a new one is for", file.display());
                }
                Ok(Self { plan: Plan::Files(files), ..self })
            }
        }
    }

    /// The manifest that serving without one uses, as a file for people.
    pub fn manifest_text(&self) -> anyhow::Result<(Option<String>, Vec<Diagnostic>)> {
        let Plan::Files(files) = &self.plan else {
            bail!("there is a manifest already; `spile check` says what it makes");
        };
        let mut looked = Looked::default();
        let made = self.made_manifest(files, &mut Openings::beside(&Sources::default()), &mut looked)?;
        Ok((made.map(|_| looked.text), looked.found))
    }
}

impl Looked {
    pub fn errors(&self) -> usize {
        self.found.iter().filter(|one| one.severity == Severity::Error).count()
    }
}

/// The sources of a project, one after the other.
struct Openings<'s> {
    served: &'s Sources,
    sources: Sources,
    opened: Vec<Opened>,
}

impl<'s> Openings<'s> {
    fn beside(served: &'s Sources) -> Self {
        Self { served, sources: Sources::default(), opened: Vec::new() }
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<(), Diagnostic> {
        self.opened.push(self.sources.open(self.served, opening)?);
        Ok(())
    }
}

/// A manifest, and the variables that it asked for.
fn parsed(shown: &str, text: &str) -> (Parsed, BTreeSet<String>) {
    let variables = RefCell::new(BTreeSet::new());
    let env = |name: &str| {
        variables.borrow_mut().insert(name.to_owned());
        std::env::var(name).ok()
    };
    let parsed = manifest::parse(shown, text, &env);
    (parsed, variables.into_inner())
}

type Parsed = Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>>;

fn stem(file: &Path) -> String {
    file.file_stem().map_or_else(|| "data".into(), |stem| stem.to_string_lossy().into_owned())
}

/// Which rows of a source's sheets have the names, as far as collections say.
fn header_rows<'m>(manifest: &'m Manifest, source: &str) -> Vec<(Option<&'m str>, u32)> {
    let of = manifest.collections.iter().filter(|one| one.source.value == source);
    let said = of.filter_map(|one| {
        let sheet = one.table.as_ref().map(|table| table.value.as_str());
        Some((sheet, one.header_row?))
    });
    said.collect()
}

/// The columns of a source's records as collections declare them: with their types, and with the key, else none. Each
/// has a value: a record without would leave nobody knowing of its column again.
fn declared(manifest: &Manifest, source: &str) -> Vec<ColumnFacts> {
    let mut columns: Vec<ColumnFacts> = Vec::new();
    for one in manifest.collections.iter().filter(|one| one.source.value == source) {
        let typed = || one.fields.iter().filter_map(|field| Some((field, field.kind.as_ref()?.value)));
        let is_typed = |part: &str| {
            let is_it = |name: &Placed<String>| name.value == part;
            typed().any(|(field, _)| is_it(&field.column) || field.name.as_ref().is_some_and(is_it))
        };
        if !one.key.iter().all(|part| is_typed(&part.value)) {
            return Vec::new();
        }
        for (field, kind) in typed() {
            if columns.iter().all(|column| column.name != field.column.value) {
                let base64 = kind == Kind::Blob;
                columns.push(ColumnFacts { base64, ..ColumnFacts::new(&field.column.value, kind) });
            }
        }
    }
    columns
}

fn rendered(opened: &[Opened], name: &str) -> String {
    let sources: Vec<init::Found<'_>> = opened
        .iter()
        .map(|one| init::Found {
            name: &one.name,
            path: &one.file,
            kind: one.settings.kind(),
            at: match &one.settings {
                Settings::Json { at } => at.as_deref(),
                Settings::Csv { .. } | Settings::Sqlite | Settings::JsonLines | Settings::Sheets(_) => None,
            },
            facts: &one.facts,
        })
        .collect();
    init::render(&sources, name)
}

/// Columns whose own name is blank, or there twice: callers know them by another, and their owner is told.
fn renamed(contract: &Contract) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for collection in &contract.collections {
        let (of, fields) = (&collection.name, &collection.fields);
        for (at, field) in fields.iter().enumerate() {
            let column = &field.column;
            if column.trim().is_empty() {
                let place = collection.shape.columns[at].at + 1;
                let told =
                    format!("column {place} of `{of}` has no name; callers know it as `{}`", field.name);
                found.push(Diagnostic::note(told).help("name it in the first line of the file"));
                continue;
            }
            let same = fields[at..].iter().filter(|other| other.column == *column);
            let names: Vec<String> = same.map(|field| format!("`{}`", field.name)).collect();
            if names.len() > 1 && fields[..at].iter().all(|earlier| earlier.column != *column) {
                let (many, names) = (names.len(), names.join(", "));
                let told =
                    format!("{many} columns of `{of}` are called `{column}`; callers know them as {names}");
                found.push(Diagnostic::note(told).help("tell them apart in the first line of the file"));
            }
        }
    }
    found
}

/// What a source says of the statements that name it.
fn examined<'m>(manifest: &'m Manifest, opened: &Opened) -> Vec<Examined<'m>> {
    let of_it = manifest.tools.iter().filter_map(|tool| match &tool.body {
        Body::Statement(statement) if statement.source.value == opened.name => Some((tool, statement)),
        Body::Statement(_) | Body::Uses(_) => None,
    });
    of_it
        .map(|(tool, statement)| (tool.name.value.as_str(), opened.source.examine(&statement.sql.value)))
        .collect()
}

/// Everything that answers the contract. What is not written to gets nobody who could.
fn ready(
    contract: Contract,
    manifest: &Manifest,
    opened: &[Opened],
    sources: Sources,
    found: &mut Vec<Diagnostic>,
) -> Option<Ready> {
    let errors = found.len();
    let source = |name: &str| opened.iter().find(|one| one.name == name);
    let mut answers = Answers { readers: Vec::new(), writers: Vec::new(), statements: Vec::new() };
    for (at, collection) in contract.collections.iter().enumerate() {
        let from = source(&collection.source)?;
        let place = manifest.collections.iter().find(|one| one.name.value == collection.name);
        // What a reader minds is most often the key.
        let place = place.map(|place| place.key.first().map_or(&place.name.at, |key| &key.at));
        let failed = |fault: &SourceFault, found: &mut Vec<Diagnostic>| {
            let file = file_name(from.file.as_ref());
            let error = explained(&*from.source, Some(&collection.shape), fault, &file);
            let error = match place {
                Some(place) if error.at.is_none() => error.at(place),
                Some(_) | None => error,
            };
            // What keeps a reader from being made most often keeps a writer, too.
            if !found.contains(&error) {
                found.push(error);
            }
        };
        match from.source.reader(&collection.shape) {
            Ok(reader) => answers.readers.push(reader),
            Err(fault) => failed(&fault, found),
        }
        let writer = is_written(&contract, at).then(|| from.source.writer(&collection.shape));
        match writer.transpose() {
            Ok(writer) => answers.writers.push(writer),
            Err(fault) => failed(&fault, found),
        }
    }
    for statement in &contract.statements {
        let from = source(&statement.source)?;
        match from.source.prepare(&statement.shape) {
            Ok(prepared) => answers.statements.push(prepared),
            Err(fault) => {
                let error = Diagnostic::error(told(&fault, &file_name(from.file.as_ref())));
                let tool = manifest.tools.iter().find(|tool| tool.name.value == statement.result.name);
                found.push(tool.map_or(error.clone(), |tool| error.at(&tool.name.at)));
            }
        }
    }
    let call_timeout_ms = manifest.server.call_timeout_ms;
    (found.len() == errors).then_some(Ready { contract, answers, call_timeout_ms, sources })
}

/// Whether a tool writes to this collection.
fn is_written(contract: &Contract, at: usize) -> bool {
    contract.tools.iter().any(|tool| match &tool.operation {
        Operation::Create { collection, .. }
        | Operation::Update { collection, .. }
        | Operation::Delete { collection } => *collection == at,
        Operation::Get { .. }
        | Operation::List { .. }
        | Operation::Search { .. }
        | Operation::Statement { .. } => false,
    })
}

#[cfg(test)]
mod tests;
