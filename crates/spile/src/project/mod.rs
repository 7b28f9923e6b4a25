//! What a path on the command line means, and the way from it to something that can be served.
//!
//! ```text
//! path → Project (manifest or data files) → sources, facts → manifest → contract → readers, writers, statements
//! ```
//!
//! Without a manifest, the one that `spile init` would write is made and compiled: there is one way only.

pub(crate) mod not_found;
mod package;
mod sources;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use contract::compile::{DescribedStatement, KnownSource, compile};
use contract::diagnostic::{Diagnostic, Located, Severity};
use contract::manifest::{self, Manifest, SourceKind, SourceSettings, ToolBody};
use contract::source::{ColumnFacts, SourceError, SourceFacts};
use contract::{Contract, DataType, ToolOperation, init, names};
use host::ContractBackends;

use crate::lock::LockState;
pub use package::{PackageContents, PackedSource};
pub use sources::Sources;
use sources::{
    LoadedSource, SourceSpec, default_settings, describe_source, error_message, explain_error,
    fallback_settings,
};

pub const MANIFEST: &str = "spile.toml";
const ENDINGS: &str = ".csv .tsv .xlsx .xls .ods .json .jsonl .db .sqlite .sqlite3";
/// JSON files that are settings of some program wherever they lie.
const CONFIG_FILES: [&str; 5] =
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
    pub input: ProjectInput,
    /// Sources of a manifest whose files lie elsewhere than it says.
    pub relocated: BTreeMap<String, PathBuf>,
}

#[derive(Debug)]
pub enum ProjectInput {
    Manifest(PathBuf),
    /// Data files, each a collection.
    Files(Vec<PathBuf>),
}

impl Project {
    pub fn find(path: &Path) -> anyhow::Result<Self> {
        let kind = std::fs::metadata(path).map_err(|error| not_found::path_error(path, error))?;
        if kind.is_dir() { Self::from_folder(path) } else { Self::from_file(path) }
    }

    fn from_folder(folder: &Path) -> anyhow::Result<Self> {
        let name = file_name(&folder.canonicalize().unwrap_or_else(|_| folder.into()));
        let shown = folder.display();
        // What lies here is called by its name alone.
        let folder = if folder == Path::new(".") { Path::new("") } else { folder };
        let manifest = folder.join(MANIFEST);
        if manifest.is_file() {
            return Ok(Self::new(name, folder, ProjectInput::Manifest(manifest)));
        }
        let files = data_files(folder)?;
        match files.len() {
            0 => {
                if let Some(reason) = unsupported_content(non_empty_path(folder)) {
                    bail!("cannot serve `{shown}`: {reason}");
                }
                let below = servable_subfolders(non_empty_path(folder));
                let below = match below.as_slice() {
                    [] => String::new(),
                    some => format!("; there is in `{}`", some.join("`, `")),
                };
                bail!(
                    "nothing to serve in `{shown}`: there is no {MANIFEST} and no data file ({ENDINGS}){below}"
                )
            }
            1..=FILES_MAX => Ok(Self::new(name, folder, ProjectInput::Files(files))),
            many => bail!(
                "`{shown}` has {many} data files, and more than {FILES_MAX} are not served together; \
                 name some, or write a {MANIFEST}"
            ),
        }
    }

    fn from_file(path: &Path) -> anyhow::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml")) {
            let absolute = path.canonicalize().unwrap_or_else(|_| path.into());
            let name = absolute.parent().map_or_else(|| "server".into(), file_name);
            return Ok(Self::new(name, &folder, ProjectInput::Manifest(path.into())));
        }
        if let Some(reason) = unsupported_file(&file_name(path)) {
            bail!("cannot serve `{}`: {reason}", path.display());
        }
        if source_kind(path).is_none() {
            let is_numbers = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("numbers"));
            let way_out = if is_numbers { "; export it as XLSX or CSV" } else { "" };
            bail!("`{}` is neither a {MANIFEST} nor a data file ({ENDINGS}){way_out}", path.display());
        }
        let name =
            path.file_stem().map_or_else(|| "server".into(), |stem| stem.to_string_lossy().into_owned());
        Ok(Self::new(name, &folder, ProjectInput::Files(vec![path.into()])))
    }

    fn new(name: String, folder: &Path, input: ProjectInput) -> Self {
        Self { name, folder: folder.into(), input, relocated: BTreeMap::new() }
    }

    /// Whether somebody wrote a manifest.
    pub fn has_manifest(&self) -> bool {
        matches!(self.input, ProjectInput::Manifest(_))
    }

    /// What a packed server serves: its manifest, with some of its sources' files laid out elsewhere.
    pub fn from_packed(
        name: &str,
        folder: PathBuf,
        manifest: PathBuf,
        relocated: BTreeMap<String, PathBuf>,
    ) -> Self {
        Self { name: name.into(), folder, input: ProjectInput::Manifest(manifest), relocated }
    }
}

/// Why a file cannot be served that a later version will serve.
fn unsupported_file(name: &str) -> Option<&'static str> {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match (name, extension.to_ascii_lowercase().as_str()) {
        ("mcp.json" | ".mcp.json", _) => Some("serving the servers of an `mcp.json` is not in this version"),
        (_, "ts" | "mts" | "js" | "mjs") => Some("tools in TypeScript or JavaScript are not in this version"),
        _ => None,
    }
}

/// Why a folder without data cannot be served that a later version will serve.
fn unsupported_content(folder: &Path) -> Option<&'static str> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().take(SUBFOLDERS_MAX);
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
    };
    let own = names(folder);
    let tools = names(&folder.join("tools"));
    // An `mcp.json` says most about a folder.
    let config = own.iter().find(|name| matches!(name.as_str(), "mcp.json" | ".mcp.json"));
    config.into_iter().chain(&own).chain(&tools).find_map(|name| unsupported_file(name))
}

/// So many folders in a folder are looked into, and so many named, for something that could be meant instead.
const SUBFOLDERS_MAX: usize = 100;
const SUBFOLDERS_SHOWN_MAX: usize = 3;

/// Folders in a folder that could be served.
fn servable_subfolders(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(SUBFOLDERS_MAX);
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let shown = names.filter(|name| !name.to_string_lossy().starts_with('.'));
    let paths = shown.map(|name| if folder == Path::new(".") { name.into() } else { folder.join(name) });
    let is_served = |path: &PathBuf| {
        path.is_dir()
            && (path.join(MANIFEST).is_file() || data_files(path).is_ok_and(|files| !files.is_empty()))
    };
    let mut below: Vec<String> = paths.filter(is_served).map(|path| path.display().to_string()).collect();
    below.sort();
    below.truncate(SUBFOLDERS_SHOWN_MAX);
    below
}

/// The current folder has a name too.
fn non_empty_path(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// The data files of a folder, by name.
fn data_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let here = non_empty_path(folder);
    let entries = std::fs::read_dir(here).with_context(|| format!("`{}` cannot be read", here.display()))?;
    let paths = entries.filter_map(|entry| Some(folder.join(entry.ok()?.file_name())));
    let is_data = |path: &PathBuf| {
        let name = file_name(path);
        // A spreadsheet program keeps `~$customers.xlsx` beside what it has open.
        !name.starts_with(['.', '~']) && !CONFIG_FILES.contains(&name.as_str()) && source_kind(path).is_some()
    };
    let mut files: Vec<PathBuf> = paths.filter(|path| is_data(path) && path.is_file()).collect();
    files.sort();
    Ok(files)
}

fn source_kind(path: &Path) -> Option<SourceKind> {
    SourceKind::from_path(&file_name(path))
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "server".into(), |name| name.to_string_lossy().into_owned())
}

/// A project that has been looked at: what can be served, if nothing is wrong, and what there is to say.
#[derive(Default)]
pub struct Scan {
    pub compiled: Option<Compiled>,
    pub diagnostics: Vec<Diagnostic>,
    /// One line for each source: what it is and how it was read.
    pub source_summaries: Vec<String>,
    /// The data files, whether they could be read or not.
    pub data_files: Vec<PathBuf>,
    /// How it stands to the lock file.
    pub lock_state: LockState,
    /// What the contract was made from, for whoever wants to look closer.
    pub manifest: Option<Manifest>,
    /// Whether somebody wrote that manifest.
    pub has_manifest: bool,
    /// The manifest as it is written, or would be.
    pub manifest_text: String,
    /// The variables that it reads, by name.
    pub variables: BTreeSet<String>,
    /// What each source holds, by its name.
    pub facts: Vec<(String, SourceFacts)>,
}

/// A contract and what answers it.
pub struct Compiled {
    pub contract: Contract,
    pub backends: ContractBackends,
    pub call_timeout_ms: Option<u64>,
    /// What the answers come from.
    pub sources: Sources,
}

impl Project {
    /// Reads everything that a server needs to know before it serves.
    pub fn scan(&self) -> anyhow::Result<Scan> {
        self.rescan(&Sources::default())
    }

    /// The same while it is served from these sources: what is read as it was is not opened a second time.
    pub fn rescan(&self, served: &Sources) -> anyhow::Result<Scan> {
        let mut looked = Scan::default();
        let mut openings = SourceOpener::reusing(served);
        let manifest = match &self.input {
            ProjectInput::Manifest(file) => self.read_manifest(file, &mut openings, &mut looked)?,
            ProjectInput::Files(files) => self.generate_manifest(files, &mut openings, &mut looked)?,
        };
        let SourceOpener { sources, loaded: opened, .. } = openings;
        let Some(manifest) = manifest else { return Ok(looked) };
        let examined: Vec<Vec<DescribedStatement<'_>>> =
            opened.iter().map(|one| examine_statements(&manifest, one)).collect();
        let known: Vec<KnownSource<'_>> = opened
            .iter()
            .zip(&examined)
            .map(|(one, statements)| KnownSource { name: &one.name, facts: &one.facts, statements })
            .collect();
        let (mut contract, mut found) = compile(&manifest, &known, &names::server_name(&self.name));
        if matches!(self.input, ProjectInput::Files(_)) {
            // Nobody has seen the manifest that was made.
            found.iter_mut().for_each(|one| one.location = None);
            // Nor has anybody chosen tables: what is not served has to be said.
            let left_out = opened.iter().flat_map(|one| &one.facts.skipped_tables);
            looked.diagnostics.extend(left_out.map(|one| Diagnostic::note(one.to_string())));
        }
        looked.source_summaries = opened.iter().map(|one| describe_source(one, contract.as_ref())).collect();
        looked.diagnostics.append(&mut found);
        looked.diagnostics.extend(contract.iter().flat_map(renamed_columns));
        if let Some(contract) = &mut contract {
            looked.lock_state = LockState::apply_version(self, contract);
        }
        if let Some(contract) = contract.filter(|_| looked.error_count() == 0) {
            looked.compiled = build_project(contract, &manifest, &opened, sources, &mut looked.diagnostics);
        }
        looked.manifest = Some(manifest);
        looked.has_manifest = self.has_manifest();
        looked.facts = opened.into_iter().map(|one| (one.name, one.facts)).collect();
        Ok(looked)
    }

    fn read_manifest(
        &self,
        file: &Path,
        openings: &mut SourceOpener<'_>,
        looked: &mut Scan,
    ) -> anyhow::Result<Option<Manifest>> {
        let bytes = std::fs::read(file).with_context(|| format!("`{}` cannot be read", file.display()))?;
        let Ok(text) = String::from_utf8(bytes) else {
            bail!("`{}` is not text in UTF-8; save it again as such", file.display());
        };
        looked.manifest_text = text;
        let shown = file.display().to_string();
        let (parsed, variables) = parse_manifest(&shown, &looked.manifest_text);
        looked.variables = variables;
        let manifest = match parsed {
            Ok((manifest, mut found)) => {
                looked.diagnostics.append(&mut found);
                manifest
            }
            Err(mut found) => {
                looked.diagnostics.append(&mut found);
                return Ok(None);
            }
        };
        for one in &manifest.sources {
            let path = self.source_path(&one.name.value, &one.path.value);
            looked.data_files.push(path.clone());
            let opening = SourceSpec {
                name: &one.name.value,
                path: &path,
                display_name: &one.path.value,
                settings: &one.settings,
                header_rows: header_rows(&manifest, &one.name.value),
                declared_columns: declared_columns(&manifest, &one.name.value),
            };
            match openings.open(&opening) {
                Ok(()) => {}
                Err(error) => looked.diagnostics.push(match error.location {
                    Some(_) => error,
                    None => error.at(&one.path.location),
                }),
            }
        }
        Ok(Some(manifest))
    }

    fn source_path(&self, source: &str, path: &str) -> PathBuf {
        self.relocated.get(source).cloned().unwrap_or_else(|| self.folder.join(path))
    }

    /// The manifest that nobody wrote.
    fn generate_manifest(
        &self,
        files: &[PathBuf],
        openings: &mut SourceOpener<'_>,
        looked: &mut Scan,
    ) -> anyhow::Result<Option<Manifest>> {
        let stems: Vec<String> = files.iter().map(|file| stem(file)).collect();
        let stems: Vec<&str> = stems.iter().map(String::as_str).collect();
        for (file, name) in files.iter().zip(names::collection_names(&stems)) {
            let Some(kind) = source_kind(file) else { continue };
            looked.data_files.push(file.clone());
            let shown = file_name(file);
            let mut with = |settings: &SourceSettings| {
                openings.open(&SourceSpec {
                    name: &name,
                    path: file,
                    display_name: &shown,
                    settings,
                    header_rows: Vec::new(),
                    declared_columns: Vec::new(),
                })
            };
            match with(&default_settings(kind)) {
                Ok(()) => {}
                // Much that is JSON is no table, and nobody has said that this one is.
                Err(error) if kind == SourceKind::Json && files.len() > 1 => {
                    let why = error.message.strip_prefix(&format!("`{shown}` "));
                    let why = why.map_or_else(|| error.message.clone(), |why| format!("it {why}"));
                    let note = Diagnostic::note(format!("`{shown}` is left out: {why}"));
                    looked.diagnostics.push(match fallback_settings(kind, file) {
                        Some(_) => note.help("to serve it, name it alone, or write a manifest"),
                        None => note,
                    });
                }
                Err(error) => match fallback_settings(kind, file).map(|settings| with(&settings)) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => looked.diagnostics.push(error),
                    None => looked.diagnostics.push(error),
                },
            }
        }
        if looked.error_count() > 0 {
            return Ok(None);
        }
        looked.manifest_text = render_manifest(&openings.loaded, &names::server_name(&self.name));
        match manifest::parse(MANIFEST, &looked.manifest_text, &|_| None) {
            Ok((manifest, _)) => Ok(Some(manifest)),
            Err(found) => {
                let why = contract::diagnostic::render_all(&found, false);
                bail!("the manifest that was made for this data does not hold (please report this):\n{why}")
            }
        }
    }

    /// The same place as if its manifest were not there.
    pub fn without_manifest(self) -> anyhow::Result<Self> {
        match &self.input {
            ProjectInput::Files(_) => Ok(self),
            ProjectInput::Manifest(file) => {
                let files = data_files(&self.folder)?;
                if files.is_empty() {
                    bail!("`{}` is a manifest; name the data that a new one is for", file.display());
                }
                Ok(Self { input: ProjectInput::Files(files), ..self })
            }
        }
    }

    /// The manifest that serving without one uses, as a file for people.
    pub fn manifest_text(&self) -> anyhow::Result<(Option<String>, Vec<Diagnostic>)> {
        let ProjectInput::Files(files) = &self.input else {
            bail!("there is a manifest already; `spile check` says what it makes");
        };
        let mut looked = Scan::default();
        let made =
            self.generate_manifest(files, &mut SourceOpener::reusing(&Sources::default()), &mut looked)?;
        Ok((made.map(|_| looked.manifest_text), looked.diagnostics))
    }
}

impl Scan {
    pub fn error_count(&self) -> usize {
        self.diagnostics.iter().filter(|one| one.severity == Severity::Error).count()
    }
}

/// The sources of a project, one after the other.
struct SourceOpener<'s> {
    reusable: &'s Sources,
    sources: Sources,
    loaded: Vec<LoadedSource>,
}

impl<'s> SourceOpener<'s> {
    fn reusing(reusable: &'s Sources) -> Self {
        Self { reusable, sources: Sources::default(), loaded: Vec::new() }
    }

    fn open(&mut self, opening: &SourceSpec<'_>) -> Result<(), Diagnostic> {
        self.loaded.push(self.sources.open(self.reusable, opening)?);
        Ok(())
    }
}

/// A manifest, and the variables that it asked for.
fn parse_manifest(shown: &str, text: &str) -> (ManifestResult, BTreeSet<String>) {
    let variables = RefCell::new(BTreeSet::new());
    let env = |name: &str| {
        variables.borrow_mut().insert(name.to_owned());
        std::env::var(name).ok()
    };
    let parsed = manifest::parse(shown, text, &env);
    (parsed, variables.into_inner())
}

type ManifestResult = Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>>;

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
fn declared_columns(manifest: &Manifest, source: &str) -> Vec<ColumnFacts> {
    let mut columns: Vec<ColumnFacts> = Vec::new();
    for one in manifest.collections.iter().filter(|one| one.source.value == source) {
        let typed = || one.fields.iter().filter_map(|field| Some((field, field.data_type.as_ref()?.value)));
        let is_typed = |part: &str| {
            let is_it = |name: &Located<String>| name.value == part;
            typed().any(|(field, _)| is_it(&field.column) || field.name.as_ref().is_some_and(is_it))
        };
        if !one.key.iter().all(|part| is_typed(&part.value)) {
            return Vec::new();
        }
        for (field, kind) in typed() {
            if columns.iter().all(|column| column.name != field.column.value) {
                let base64 = kind == DataType::Blob;
                columns
                    .push(ColumnFacts { is_base64: base64, ..ColumnFacts::new(&field.column.value, kind) });
            }
        }
    }
    columns
}

fn render_manifest(opened: &[LoadedSource], name: &str) -> String {
    let sources: Vec<init::DiscoveredSource<'_>> = opened
        .iter()
        .map(|one| init::DiscoveredSource {
            name: &one.name,
            path: &one.display_name,
            kind: one.settings.kind(),
            pointer: match &one.settings {
                SourceSettings::Json { pointer: at } => at.as_deref(),
                SourceSettings::Csv { .. }
                | SourceSettings::Sqlite
                | SourceSettings::JsonLines
                | SourceSettings::Workbook(_) => None,
            },
            facts: &one.facts,
        })
        .collect();
    init::render_manifest(&sources, name)
}

/// Columns whose own name is blank, or there twice: callers know them by another, and their owner is told.
fn renamed_columns(contract: &Contract) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for collection in &contract.collections {
        let (of, fields) = (&collection.name, &collection.fields);
        for (at, field) in fields.iter().enumerate() {
            let column = &field.column;
            if column.trim().is_empty() {
                let place = collection.shape.columns[at].source_index + 1;
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
fn examine_statements<'m>(manifest: &'m Manifest, opened: &LoadedSource) -> Vec<DescribedStatement<'m>> {
    let of_it = manifest.tools.iter().filter_map(|tool| match &tool.body {
        ToolBody::Statement(statement) if statement.source.value == opened.name => Some((tool, statement)),
        ToolBody::Statement(_) | ToolBody::Uses(_) => None,
    });
    of_it
        .map(|(tool, statement)| {
            (tool.name.value.as_str(), opened.source.describe_statement(&statement.sql.value))
        })
        .collect()
}

/// Everything that answers the contract. What is not written to gets nobody who could.
fn build_project(
    contract: Contract,
    manifest: &Manifest,
    opened: &[LoadedSource],
    sources: Sources,
    found: &mut Vec<Diagnostic>,
) -> Option<Compiled> {
    let errors = found.len();
    let source = |name: &str| opened.iter().find(|one| one.name == name);
    let mut answers = ContractBackends { readers: Vec::new(), writers: Vec::new(), statements: Vec::new() };
    for (at, collection) in contract.collections.iter().enumerate() {
        let from = source(&collection.source)?;
        let place = manifest.collections.iter().find(|one| one.name.value == collection.name);
        // What a reader minds is most often the key.
        let place = place.map(|place| place.key.first().map_or(&place.name.location, |key| &key.location));
        let failed = |fault: &SourceError, found: &mut Vec<Diagnostic>| {
            let file = file_name(from.display_name.as_ref());
            let error = explain_error(&*from.source, Some(&collection.shape), fault, &file);
            let error = match place {
                Some(place) if error.location.is_none() => error.at(place),
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
        let writer = is_collection_written(&contract, at).then(|| from.source.writer(&collection.shape));
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
                let error = Diagnostic::error(error_message(&fault, &file_name(from.display_name.as_ref())));
                let tool = manifest.tools.iter().find(|tool| tool.name.value == statement.result.name);
                found.push(tool.map_or(error.clone(), |tool| error.at(&tool.name.location)));
            }
        }
    }
    let call_timeout_ms = manifest.server.call_timeout_ms;
    (found.len() == errors).then_some(Compiled { contract, backends: answers, call_timeout_ms, sources })
}

/// Whether a tool writes to this collection.
fn is_collection_written(contract: &Contract, at: usize) -> bool {
    contract.tools.iter().any(|tool| match &tool.operation {
        ToolOperation::Create { collection, .. }
        | ToolOperation::Update { collection, .. }
        | ToolOperation::Delete { collection } => *collection == at,
        ToolOperation::Get { .. }
        | ToolOperation::List { .. }
        | ToolOperation::Search { .. }
        | ToolOperation::Statement { .. } => false,
    })
}

#[cfg(test)]
mod tests;
