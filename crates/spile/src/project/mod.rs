//! From a path on the command line to a compiled contract with everything that backends its calls.
//!
//! ```text
//! path → Project (manifest or data files) → sources, facts → manifest → contract → readers, writers, statements
//! ```
//!
//! Without a manifest, Spile generates the one that `spile init` would write and compiles that, so there is only one
//! code path.

mod assumed;
mod backends;
mod databases;
mod declared;
mod folder;
mod known_facts;
mod left_out;
mod memory;
pub(crate) mod not_found;
mod opener;
mod package;
mod renamed;
mod rest_sources;
mod sources;
mod unavailable;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use contract::compile::{DescribedStatement, IntrospectedSource, compile};
use contract::diagnostic::{Diagnostic, Severity};
use contract::manifest::{self, Manifest, SourceKind, SourceSettings, ToolBody};
use contract::source::{DatabaseUrl, SourceFacts, SourceLocation};
use contract::{Contract, init, names};
use host::{ContractBackends, UnavailableSource};
use source::backups::BackupPolicy;
use source::json;
use spile_core::Tool;

use crate::author_folder::{Author, AuthorFolder, Directories, SERVER_FILE, ServerFile};
use crate::lock::{self, LockState};
use crate::report::SourceSummary;
use crate::settings::EnvNames;
use assumed::AssumedTable;
use backends::build_backends;
use databases::adopt_descriptions;
pub(crate) use databases::shown_path;
use declared::{declared_columns, table_options};
use folder::{
    Beside, DataFiles, IrregularFile, IrregularKind, data_files, non_empty_path, servable_subfolders,
};
use opener::SourceOpener;
pub use package::{PackageContents, PackedSource};
use renamed::renamed_columns;
pub use sources::Sources;
pub(crate) use sources::error_message;
use sources::{LoadedSource, SourceSpec, default_settings, describe_source, fallback_settings, role_warning};
pub use unavailable::SourceFailurePolicy;
use unavailable::{FailedPart, SourceFailure, read_only_failures, remove_failed};

pub const MANIFEST: &str = "spile.toml";
const DATA_EXTENSIONS: &str = ".csv .tsv .xlsx .xls .ods .json .jsonl .parquet .db .sqlite .sqlite3";
/// A folder with more data files than this is not served without a manifest.
const FILES_MAX: usize = 100;

/// What a path on the command line refers to.
#[derive(Debug)]
pub struct Project {
    /// The name of the server, unless the manifest gives one.
    pub name: String,
    /// Paths in the manifest are relative to this folder, and `init` writes the manifest into it.
    pub folder: PathBuf,
    pub input: ProjectInput,
    /// The places of sources that are not where the manifest says, by the name of the source.
    pub relocated: BTreeMap<String, SourceLocation>,
    pub source_failures: SourceFailurePolicy,
    /// Entries of the folder that are named like data files, but cannot be read.
    irregular: Vec<IrregularFile>,
    /// Code, prompts and resources beside the data.
    pub(crate) author: Option<AuthorFolder>,
    /// The variables that its server reads.
    pub(crate) env_names: EnvNames,
    /// The version that an `mcp.json` declares.
    pub(crate) version: Option<String>,
}

#[derive(Debug)]
pub enum ProjectInput {
    Manifest(PathBuf),
    /// Data files. Each table in them becomes a collection.
    Files(Vec<PathBuf>),
    /// A database. Its tables become collections.
    Database(DatabaseUrl),
}

impl Project {
    pub fn find(path: &Path) -> anyhow::Result<Self> {
        if let Some(url) = path.to_str().and_then(DatabaseUrl::parse) {
            return Ok(Self::new(url.database().to_owned(), Path::new(""), ProjectInput::Database(url)));
        }
        let kind = std::fs::metadata(path).map_err(|error| not_found::path_error(path, error))?;
        if kind.is_dir() { Self::from_folder(path) } else { Self::from_file(path) }
    }

    fn from_folder(folder: &Path) -> anyhow::Result<Self> {
        let name = file_name(&folder.canonicalize().unwrap_or_else(|_| folder.into()));
        let shown = folder.display();
        // Messages name files in the current folder without a `./`.
        let folder = if folder == Path::new(".") { Path::new("") } else { folder };
        let manifest = folder.join(MANIFEST);
        if manifest.is_file() {
            let author = AuthorFolder::find(folder, Directories::default());
            return Ok(Self { author, ..Self::new(name, folder, ProjectInput::Manifest(manifest)) });
        }
        let server_file = ServerFile::find(non_empty_path(folder))?;
        let directories = server_file.as_ref().map(ServerFile::directories).transpose()?;
        let author = AuthorFolder::find(folder, directories.unwrap_or_default());
        let env_names = if server_file.is_some() { EnvNames::ServerFile } else { EnvNames::Spile };
        let version = server_file.as_ref().and_then(|file| file.version.clone());
        let name = server_file.and_then(|file| file.name).unwrap_or(name);
        let DataFiles { files, irregular } = data_files(folder, Beside::of(author.as_ref()))?;
        match files.len() {
            0 if author.is_some() => {}
            0 => {
                let subfolders = servable_subfolders(non_empty_path(folder));
                let suggestion = match (subfolders.as_slice(), irregular.first()) {
                    ([], None) => String::new(),
                    ([], Some(one)) => format!("; `{}` {}", file_name(&one.path), one.reason()),
                    (some, _) => format!("; data was found in `{}`", some.join("`, `")),
                };
                bail!(
                    "nothing to serve in `{shown}`: no {MANIFEST} and no data file ({DATA_EXTENSIONS}){suggestion}"
                )
            }
            1..=FILES_MAX => {}
            many => bail!(
                "`{shown}` has {many} data files, which exceeds the limit of {FILES_MAX} without a manifest; \
                 name some of them, or write a {MANIFEST}"
            ),
        }
        let input = ProjectInput::Files(files);
        Ok(Self { irregular, author, env_names, version, ..Self::new(name, folder, input) })
    }

    fn from_file(path: &Path) -> anyhow::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
            let absolute = path.canonicalize().unwrap_or_else(|_| path.into());
            let name = absolute.parent().map_or_else(|| "server".into(), file_name);
            return Ok(Self::new(name, &folder, ProjectInput::Manifest(path.into())));
        }
        if path.file_name().is_some_and(|name| name == SERVER_FILE) {
            return Self::from_folder(non_empty_path(&folder));
        }
        if is_script(path) {
            bail!(
                "`{}` is one file of code; put it into a folder `tools` and serve the folder above that",
                path.display()
            );
        }
        if source_kind(path).is_none() {
            let is_numbers =
                path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("numbers"));
            let help = if is_numbers { "; export it as XLSX or CSV" } else { "" };
            bail!("`{}` is neither a {MANIFEST} nor a data file ({DATA_EXTENSIONS}){help}", path.display());
        }
        let name =
            path.file_stem().map_or_else(|| "server".into(), |stem| stem.to_string_lossy().into_owned());
        Ok(Self::new(name, &folder, ProjectInput::Files(vec![path.into()])))
    }

    fn new(name: String, folder: &Path, input: ProjectInput) -> Self {
        let source_failures = SourceFailurePolicy::default();
        Self {
            name,
            folder: folder.into(),
            input,
            relocated: BTreeMap::new(),
            source_failures,
            irregular: Vec::new(),
            author: None,
            env_names: EnvNames::default(),
            version: None,
        }
    }

    /// Sets what a scan does with a source that cannot be used.
    #[must_use]
    pub fn with_source_failures(self, source_failures: SourceFailurePolicy) -> Self {
        Self { source_failures, ..self }
    }

    /// Whether the project has a manifest on disk.
    pub fn has_manifest(&self) -> bool {
        matches!(self.input, ProjectInput::Manifest(_))
    }

    /// The project of a packed server: its manifest, with the files of some sources extracted elsewhere.
    pub(crate) fn from_packed(
        name: &str,
        folder: PathBuf,
        manifest: PathBuf,
        relocated: BTreeMap<String, SourceLocation>,
        author: Option<AuthorFolder>,
    ) -> Self {
        let source_failures = SourceFailurePolicy::Skip;
        Self {
            name: name.into(),
            folder,
            input: ProjectInput::Manifest(manifest),
            relocated,
            source_failures,
            irregular: Vec::new(),
            author,
            env_names: EnvNames::default(),
            version: None,
        }
    }
}

fn is_script(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("ts" | "mts" | "js" | "mjs"))
}

fn source_kind(path: &Path) -> Option<SourceKind> {
    SourceKind::from_path(&file_name(path))
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "server".into(), |name| name.to_string_lossy().into_owned())
}

/// The result of reading a project: what can be served, unless there is an error, and all diagnostics.
#[derive(Default)]
pub struct Scan {
    pub compiled: Option<Compiled>,
    pub diagnostics: Vec<Diagnostic>,
    pub source_summaries: Vec<SourceSummary>,
    /// Where the data is, including what could not be read.
    pub locations: Vec<SourceLocation>,
    /// How the contract compares with the lock file.
    pub lock_state: LockState,
    /// The manifest that the contract was compiled from.
    pub manifest: Option<Manifest>,
    /// Whether that manifest is a file; otherwise it was generated.
    pub has_manifest: bool,
    /// The text of the manifest, written or generated.
    pub manifest_text: String,
    /// Names of the environment variables that the manifest uses.
    pub variables: BTreeSet<String>,
    /// Sources, or parts of them, that are not served.
    pub unavailable: Vec<UnavailableSource>,
    /// The number of sources, including those that could not be opened.
    pub source_count: usize,
    /// The facts about each source, by its name.
    pub facts: Vec<(String, SourceFacts)>,
    /// Code, prompts and resources beside the data. Not read again with the data: they reload alone.
    pub(crate) author: Option<Author>,
}

/// A contract, and the readers, writers and statements that answer its calls.
pub struct Compiled {
    pub contract: Contract,
    pub backends: ContractBackends,
    pub call_timeout_ms: Option<u64>,
    /// Tools that are listed first.
    pub tool_order: Vec<String>,
    /// The open sources.
    pub sources: Sources,
}

impl Scan {
    /// Compares what is offered with the lock file. `author_tools` are the tools of the project's code.
    pub(crate) fn compare_with_lock(&mut self, project: &Project, author_tools: &[Tool]) {
        if let Some(compiled) = &mut self.compiled {
            self.lock_state = LockState::apply_version(project, &mut compiled.contract, author_tools);
            if let (LockState::Unlocked, Some(version)) = (&self.lock_state, &project.version) {
                compiled.contract.version = version.clone();
            }
        }
    }
}

impl Project {
    /// Reads the manifest, the author code and the data, compiles them and compares them with the lock file.
    pub fn scan(&self) -> anyhow::Result<Scan> {
        let mut scan = self.rescan(&Sources::default())?;
        let manifest = scan.manifest.as_ref();
        let declares_resources = manifest.is_some_and(|manifest| !manifest.resources.is_empty());
        let folder = self.author.clone();
        let folder = folder.or_else(|| declares_resources.then(|| AuthorFolder::at(&self.folder)));
        if let Some(folder) = folder {
            let (author, diagnostics) = folder.load(manifest);
            scan.diagnostics.extend(diagnostics);
            if let Some(compiled) = &scan.compiled {
                scan.diagnostics.extend(author.check_references(&compiled.contract));
            }
            scan.author = Some(author);
        }
        let author_tools = scan.author.iter().flat_map(Author::tools).cloned().collect::<Vec<_>>();
        scan.compare_with_lock(self, &author_tools);
        Ok(scan)
    }

    /// The same while these sources are served: a source with the same settings is not opened a second time. Author code
    /// and the lock file are left to the caller.
    pub fn rescan(&self, served: &Sources) -> anyhow::Result<Scan> {
        let mut scan = Scan::default();
        let mut opener = SourceOpener::reusing(served, lock::lock_path(self));
        let manifest = match &self.input {
            ProjectInput::Manifest(file) => self.read_manifest(file, &mut opener, &mut scan)?,
            ProjectInput::Files(files) => {
                self.generate_manifest(files, &mut opener, &mut scan, ManifestUse::ForServing)?
            }
            ProjectInput::Database(url) => self.generate_for_database(url, &mut opener, &mut scan)?,
        };
        let SourceOpener { mut sources, loaded, failures, .. } = opener;
        let Some(mut manifest) = manifest else { return Ok(scan) };
        manifest.may_be_empty = self.author.is_some() || !manifest.resources.is_empty();
        adopt_descriptions(&mut manifest, &loaded);
        scan.source_count = loaded.len() + failures.len();
        if !self.skip_failed(&mut manifest, &failures, &mut scan) {
            // Nothing can be served; report the other errors of the manifest, too.
            scan.diagnostics.extend(self.compile_manifest(&manifest, &loaded).1);
            return Ok(scan);
        }
        for stale in loaded.iter().filter_map(|one| one.stale.as_ref()) {
            scan.diagnostics.push(stale.stale_warning());
            scan.unavailable.push(stale.unavailable());
        }
        if self.source_failures == SourceFailurePolicy::Skip {
            let failures = read_only_failures(&manifest, &loaded);
            self.skip_failed(&mut manifest, &failures, &mut scan);
        }
        let (contract, backends) = self.compile_available(&mut manifest, &loaded, served, &mut scan);
        if !self.has_manifest() {
            // The user did not choose the tables, so every table that is left out is named.
            let skipped = loaded.iter().flat_map(|one| &one.facts.skipped_tables);
            scan.diagnostics.extend(skipped.map(|one| Diagnostic::note(one.to_string()).code("skipped")));
        }
        let declares_key = |collection: &str| {
            let declared = manifest.collections.iter().find(|one| one.name.value == collection);
            self.has_manifest() && declared.is_some_and(|one| !one.key.is_empty())
        };
        let describe = |one| describe_source(one, contract.as_ref(), &declares_key);
        scan.source_summaries = loaded.iter().map(describe).collect();
        scan.diagnostics.extend(contract.iter().flat_map(|contract| renamed_columns(contract, &loaded)));
        if let (Some(contract), Some(backends)) = (contract, backends) {
            sources.keep_backends(&contract, &backends);
            scan.diagnostics.extend(sources.without_backups(&contract));
            scan.diagnostics.extend(loaded.iter().filter_map(|one| role_warning(one, &contract)));
            let call_timeout_ms = manifest.server.call_timeout_ms;
            let tool_order = manifest.server.tool_order.iter().map(|name| name.value.clone()).collect();
            scan.compiled = Some(Compiled { contract, backends, call_timeout_ms, tool_order, sources });
        }
        scan.manifest = Some(manifest);
        scan.has_manifest = self.has_manifest();
        scan.facts = loaded.into_iter().map(|one| (one.name, one.facts)).collect();
        Ok(scan)
    }

    /// Compiles the manifest and creates its backends, a second time without the parts that failed.
    fn compile_available(
        &self,
        manifest: &mut Manifest,
        loaded: &[LoadedSource],
        served: &Sources,
        scan: &mut Scan,
    ) -> (Option<Contract>, Option<ContractBackends>) {
        let mut is_retry = false;
        loop {
            let (contract, found) = self.compile_manifest(manifest, loaded);
            let Some(contract) = contract.filter(|_| !has_error(&found)) else {
                scan.diagnostics.extend(found);
                return (None, None);
            };
            let (mut backends, mut failures) = build_backends(&contract, manifest, loaded, served, None);
            for role in contract.roles.iter().flat_map(|roles| &roles.roles) {
                let whole = Some((&contract, &backends));
                let (role_backends, found) = build_backends(&role.contract, manifest, loaded, served, whole);
                failures.extend(found);
                backends.roles.push(role_backends);
            }
            if failures.is_empty() {
                scan.diagnostics.extend(found);
                return (Some(contract), Some(backends));
            }
            // One pass finds all failures. If some are left, a file changed in between.
            if is_retry {
                scan.diagnostics.extend(failures.into_iter().map(|failure| failure.error));
                return (Some(contract), None);
            }
            if !self.skip_failed(manifest, &failures, scan) {
                scan.diagnostics.extend(found);
                return (Some(contract), None);
            }
            is_retry = true;
        }
    }

    /// Leaves failed parts out of the manifest and reports them as warnings. Returns false, and reports errors, if the
    /// policy forbids that or nothing would be left to serve.
    fn skip_failed(&self, manifest: &mut Manifest, failures: &[SourceFailure], scan: &mut Scan) -> bool {
        if failures.is_empty() {
            return true;
        }
        if self.source_failures == SourceFailurePolicy::Fail || !remove_failed(manifest, failures) {
            for failure in failures {
                // The writer often fails for the same reason as the reader.
                if !scan.diagnostics.contains(&failure.error) {
                    scan.diagnostics.push(failure.error.clone());
                }
            }
            return false;
        }
        scan.diagnostics.extend(failures.iter().map(SourceFailure::warning));
        scan.unavailable.extend(failures.iter().map(SourceFailure::unavailable));
        true
    }

    fn compile_manifest(
        &self,
        manifest: &Manifest,
        loaded: &[LoadedSource],
    ) -> (Option<Contract>, Vec<Diagnostic>) {
        let described: Vec<Vec<DescribedStatement<'_>>> =
            loaded.iter().map(|one| describe_statements(manifest, one)).collect();
        let known_sources: Vec<IntrospectedSource<'_>> = loaded
            .iter()
            .zip(&described)
            .map(|(one, statements)| IntrospectedSource { name: &one.name, facts: &one.facts, statements })
            .collect();
        let (contract, mut found) = compile(manifest, &known_sources, &names::server_name(&self.name));
        if !self.has_manifest() {
            // The user has not seen the generated manifest, so a location in it means nothing.
            found.iter_mut().for_each(|one| one.location = None);
        }
        (contract, found)
    }

    fn read_manifest(
        &self,
        file: &Path,
        opener: &mut SourceOpener<'_>,
        scan: &mut Scan,
    ) -> anyhow::Result<Option<Manifest>> {
        let bytes = std::fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let Ok(text) = String::from_utf8(bytes) else {
            bail!("`{}` is not UTF-8 text; save it as UTF-8", file.display());
        };
        scan.manifest_text = text;
        let display_name = file.display().to_string();
        let (parsed, variables) = parse_manifest(&display_name, &scan.manifest_text);
        scan.variables = variables;
        let manifest = match parsed {
            Ok((manifest, mut found)) => {
                scan.diagnostics.append(&mut found);
                manifest
            }
            Err(mut found) => {
                scan.diagnostics.append(&mut found);
                return Ok(None);
            }
        };
        for one in &manifest.sources {
            let location = self.source_location(one);
            scan.locations.push(location.clone());
            let display_name = one.location.value.to_string();
            let spec = SourceSpec {
                name: &one.name.value,
                location: &location,
                display_name: &display_name,
                settings: &one.settings,
                tables: table_options(&manifest, &one.name.value),
                declared_columns: declared_columns(&manifest, &one.name.value),
                backups: match manifest.server.backups {
                    Some(false) => BackupPolicy::Off,
                    Some(true) | None => BackupPolicy::Daily,
                },
                memory_bytes_max: manifest.server.memory_bytes_max.unwrap_or_else(memory::default_bytes_max),
                folder: &self.folder,
                rest: rest_sources::DeclaredApi::of_source(&manifest, one),
            };
            if let Err(error) = opener.open(&spec, self.source_failures) {
                let error = match error.location {
                    Some(_) => error,
                    None => error.at(&one.location.location),
                };
                opener.failures.push(SourceFailure::of_source(&spec, error));
            }
        }
        Ok(Some(manifest))
    }

    fn source_location(&self, declared: &manifest::Source) -> SourceLocation {
        let relocated = self.relocated.get(&declared.name.value).cloned();
        relocated.unwrap_or_else(|| declared.location.value.resolve(&self.folder))
    }

    /// Opens the data files and generates the manifest for them.
    fn generate_manifest(
        &self,
        files: &[PathBuf],
        opener: &mut SourceOpener<'_>,
        scan: &mut Scan,
        use_of_manifest: ManifestUse,
    ) -> anyhow::Result<Option<Manifest>> {
        let (settings, irregular): (Vec<_>, Vec<_>) =
            self.irregular.iter().partition(|one| one.kind == IrregularKind::Settings);
        for one in settings {
            let message = format!("`{}` is not served as data: it {}", file_name(&one.path), one.reason());
            scan.diagnostics.push(Diagnostic::note(message));
        }
        let paths = irregular.iter().map(|one| &one.path);
        let stems: Vec<String> = files.iter().chain(paths).map(|file| stem(file)).collect();
        let stems: Vec<&str> = stems.iter().map(String::as_str).collect();
        let source_names = names::collection_names(&stems);
        for (one, name) in irregular.iter().zip(&source_names[files.len()..]) {
            let display_name = file_name(&one.path);
            if one.kind == IrregularKind::Folder {
                let message = format!("`{display_name}` is not served: it {}", one.reason());
                scan.diagnostics.push(Diagnostic::note(message));
                continue;
            }
            let error = Diagnostic::error(format!("`{display_name}` {}", one.reason()));
            let part = FailedPart::Source(name.clone());
            opener.failures.push(SourceFailure { part, display_name, error });
        }
        for (file, name) in files.iter().zip(source_names) {
            let Some(kind) = source_kind(file) else { continue };
            let location = SourceLocation::File(file.clone());
            scan.locations.push(location.clone());
            let display_name = file_name(file);
            let open_with = |opener: &mut SourceOpener<'_>,
                             settings: &SourceSettings,
                             assumed: Vec<AssumedTable>|
             -> Result<(), Box<SourceFailure>> {
                let spec = SourceSpec {
                    name: &name,
                    location: &location,
                    display_name: &display_name,
                    settings,
                    tables: assumed.iter().map(|one| one.declaration(kind, &name)).collect(),
                    declared_columns: Vec::new(),
                    backups: BackupPolicy::Daily,
                    memory_bytes_max: memory::default_bytes_max(),
                    folder: &self.folder,
                    rest: None,
                };
                opener
                    .open(&spec, self.source_failures)
                    .map_err(|error| Box::new(SourceFailure::of_source(&spec, error)))?;
                opener.note_assumed(assumed);
                Ok(())
            };
            let settings = default_settings(kind);
            match open_with(opener, &settings, Vec::new()) {
                Ok(()) => {
                    // Where the file could not be read again, what is there is not the worst reading.
                    let assumed = opener.assumed_of_last(kind);
                    if !assumed.is_empty() && open_with(opener, &settings, assumed).is_ok() {
                        opener.forget_last_but_one();
                    }
                }
                // Whoever asks for a manifest gets one that works, and edits it; without one, nobody sees what was assumed.
                Err(failure)
                    if use_of_manifest == ManifestUse::ForAuthor
                        && failure.error.code == Some(source::csv::SHORT_ROWS_CODE) =>
                {
                    let assumed = vec![assumed::short_rows(&stem(file), &failure.error.message)];
                    if open_with(opener, &settings, assumed).is_err() {
                        opener.failures.push(*failure);
                    }
                }
                // Many JSON files are not tables, and the user did not name this one.
                Err(failure) if kind == SourceKind::Json && files.len() > 1 && json::is_json(file) => {
                    let note = Diagnostic::note(failure.warning().message).code("skipped");
                    scan.diagnostics.push(match fallback_settings(kind, file) {
                        Some(_) => note.help("to serve it, name this file alone, or write a manifest"),
                        None => note,
                    });
                }
                Err(failure) => {
                    match fallback_settings(kind, file)
                        .map(|settings| open_with(opener, &settings, Vec::new()))
                    {
                        Some(Ok(())) => {}
                        Some(Err(failure)) => opener.failures.push(*failure),
                        None => opener.failures.push(*failure),
                    }
                }
            }
        }
        let is_fatal = self.source_failures == SourceFailurePolicy::Fail || opener.loaded.is_empty();
        if is_fatal && !opener.failures.is_empty() {
            scan.diagnostics.extend(opener.failures.drain(..).map(|failure| failure.error));
            return Ok(None);
        }
        self.parse_generated(opener, scan)
    }

    /// Renders the manifest of the open sources and parses it.
    fn parse_generated(
        &self,
        opener: &SourceOpener<'_>,
        scan: &mut Scan,
    ) -> anyhow::Result<Option<Manifest>> {
        scan.manifest_text = render_manifest(&opener.loaded, &names::server_name(&self.name));
        match manifest::parse(MANIFEST, &scan.manifest_text, &|_| None) {
            Ok((mut manifest, _)) => {
                let left_out = left_out::tables_left_out(&manifest, &opener.loaded);
                manifest.tables_left_out = left_out.len();
                scan.diagnostics.extend(left_out::warning(&left_out));
                Ok(Some(manifest))
            }
            Err(found) => {
                let errors = contract::diagnostic::render_all(&found, false);
                bail!("the manifest generated for this data is invalid; please report this bug:\n{errors}")
            }
        }
    }

    /// The same folder without its manifest.
    pub fn without_manifest(self) -> anyhow::Result<Self> {
        match &self.input {
            ProjectInput::Files(_) | ProjectInput::Database(_) => Ok(self),
            ProjectInput::Manifest(file) => {
                let DataFiles { files, irregular } =
                    data_files(&self.folder, Beside::of(self.author.as_ref()))?;
                if files.is_empty() {
                    bail!(
                        "`{}` is a manifest, and its folder has no data files; name the data to write a manifest for",
                        file.display()
                    );
                }
                Ok(Self { input: ProjectInput::Files(files), irregular, ..self })
            }
        }
    }

    /// The text of the manifest that serving without one uses.
    pub fn manifest_text(&self) -> anyhow::Result<(Option<String>, Vec<Diagnostic>)> {
        let mut scan = Scan::default();
        let sources = Sources::default();
        let mut opener = SourceOpener::reusing(&sources, None);
        let made = match &self.input {
            ProjectInput::Files(files) => {
                self.generate_manifest(files, &mut opener, &mut scan, ManifestUse::ForAuthor)?
            }
            ProjectInput::Database(url) => self.generate_for_database(url, &mut opener, &mut scan)?,
            ProjectInput::Manifest(_) => {
                bail!("a manifest exists already; `spile check` shows what it compiles to")
            }
        };
        Ok((made.map(|_| scan.manifest_text), scan.diagnostics))
    }
}

impl Scan {
    pub fn error_count(&self) -> usize {
        self.diagnostics.iter().filter(|one| one.severity == Severity::Error).count()
    }
}

fn has_error(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|one| one.severity == Severity::Error)
}

/// What a generated manifest is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ManifestUse {
    /// Its author reads and edits it.
    ForAuthor,
    /// Nobody sees it.
    ForServing,
}

/// Parses a manifest, and collects the names of the environment variables that it uses.
fn parse_manifest(file: &str, text: &str) -> (ManifestResult, BTreeSet<String>) {
    let variables = RefCell::new(BTreeSet::new());
    let env = |name: &str| {
        variables.borrow_mut().insert(name.to_owned());
        std::env::var(name).ok()
    };
    let parsed = manifest::parse(file, text, &env);
    (parsed, variables.into_inner())
}

type ManifestResult = Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>>;

fn stem(file: &Path) -> String {
    file.file_stem().map_or_else(|| "data".into(), |stem| stem.to_string_lossy().into_owned())
}

fn render_manifest(loaded: &[LoadedSource], name: &str) -> String {
    let sources: Vec<init::DiscoveredSource<'_>> = loaded
        .iter()
        .map(|one| init::DiscoveredSource {
            name: &one.name,
            path: &one.display_name,
            kind: one.settings.kind(),
            pointer: match &one.settings {
                SourceSettings::Json { pointer } => pointer.as_deref(),
                SourceSettings::Csv { .. }
                | SourceSettings::Sqlite
                | SourceSettings::JsonLines
                | SourceSettings::Parquet
                | SourceSettings::Workbook(_)
                | SourceSettings::Database(_)
                | SourceSettings::Rest(_) => None,
            },
            facts: &one.facts,
        })
        .collect();
    init::render_manifest(&sources, name)
}

/// Asks a source to describe the statements that use it.
fn describe_statements<'m>(manifest: &'m Manifest, loaded: &LoadedSource) -> Vec<DescribedStatement<'m>> {
    let statements = manifest.tools.iter().filter_map(|tool| match &tool.body {
        ToolBody::Statement(statement) if statement.source.value == loaded.name => Some((tool, statement)),
        ToolBody::Statement(_) | ToolBody::Uses(_) | ToolBody::Request(_) => None,
    });
    statements
        .map(|(tool, statement)| {
            let sql = &statement.sql.value;
            let (name, settings) = (loaded.display_name.as_str(), &loaded.settings);
            let locked = || known_facts::statement_from_lock(loaded.locked.as_ref()?, sql);
            let known = loaded
                .stale
                .as_ref()
                .and_then(|_| known_facts::load_statement(name, settings, sql).or_else(locked));
            let described = known.map_or_else(|| loaded.source.describe_statement(sql), Ok);
            if let (Ok(facts), None) = (&described, &loaded.stale) {
                known_facts::store_statement(name, settings, sql, facts);
            }
            (tool.name.value.as_str(), described)
        })
        .collect()
}

#[cfg(test)]
mod tests;
