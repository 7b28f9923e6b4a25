//! What authors put into a folder beside data: code in `tools/`, and `prompts/`, `resources/`, `skills/` and `apps/`.
//!
//! ```text
//! folder → AuthorFolder (which folders, what is permitted) → Author (bundle, content, diagnostics) → providers, watched
//! ```
//!
//! Each kind is a provider of its own and reloads alone: a broken tool never takes a prompt along.

mod backend;
mod collections;
mod network;
mod origin;
mod package;
mod resources;
mod role_view;
mod served_code;
mod server_file;
mod sql;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use content::{ContentPaths, ContentProvider, Folder, FolderWatch, Loaded, Watching};
use contract::Contract;
use contract::diagnostic::{Diagnostic, FileLocation, FileText, Located};
use contract::humanize::pluralize;
use contract::lint::lint_input_schema;
use contract::manifest::{CodeIsolation, Manifest, Permissions, Resource, Source};
use file_watch::PollThread;
use host::Server;
use script::{
    Bundle, BundleOptions, ClientRootAccess, Engine, EngineLimits, FileRoot, HostRule, Isolation,
    ModuleLinks, ScriptProvider, ScriptServices,
};
use spile_core::Tool;

pub(crate) use collections::{CurrentContract, ServedContract};
pub(crate) use package::PackedFolder;
use role_view::{AuthorFiles, RoleAware};
use served_code::ServedCode;
pub(crate) use server_file::{SERVER_FILE, ServerFile};
use watch::watch_scripts;
pub(crate) use watch::{CodeEvent, CodeListener, PromisedTools, log_code_event};

/// The folders of author files. Those that do not exist are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directories {
    pub(crate) tools: String,
    pub(crate) prompts: String,
    pub(crate) resources: String,
    pub(crate) skills: String,
    pub(crate) apps: String,
}

impl Default for Directories {
    fn default() -> Self {
        let [tools, prompts, resources, skills, apps] =
            ["tools", "prompts", "resources", "skills", "apps"].map(str::to_owned);
        Self { tools, prompts, resources, skills, apps }
    }
}

/// A folder with author files.
#[derive(Debug, Clone)]
pub(crate) struct AuthorFolder {
    root: PathBuf,
    directories: Directories,
    /// Where imports lead, in a packed folder. Its files do not change.
    packed_links: Option<Arc<ModuleLinks>>,
}

/// The author files of a folder, read and compiled.
pub(crate) struct Author {
    folder: AuthorFolder,
    permissions: script::Permissions,
    settings: AuthorSettings,
    options: BundleOptions,
    bundle: Bundle,
    content: Loaded,
    content_watch: FolderWatch,
    resources: Vec<Resource>,
    /// Whether the manifest says where code runs.
    declares_isolation: bool,
}

impl AuthorFolder {
    /// `None` if the folder has none of them.
    pub(crate) fn find(root: &Path, directories: Directories) -> Option<Self> {
        let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
        let Directories { tools, prompts, resources, skills, apps } = &directories;
        let has = |name: &String| root.join(name).is_dir();
        let is_one =
            [prompts, resources, skills, apps].into_iter().any(has) || has_scripts(&root.join(tools));
        is_one.then(|| Self { root: root.to_owned(), directories, packed_links: None })
    }

    /// A folder whose manifest offers more than data, whatever is in it.
    pub(crate) fn at(root: &Path) -> Self {
        let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
        Self { root: root.to_owned(), directories: Directories::default(), packed_links: None }
    }

    /// The folder of a packed server.
    pub(crate) fn packed(root: PathBuf, links: ModuleLinks) -> anyhow::Result<Self> {
        let directories = ServerFile::find(&root)?.as_ref().map(ServerFile::directories).transpose()?;
        Ok(Self { root, directories: directories.unwrap_or_default(), packed_links: Some(Arc::new(links)) })
    }

    fn bundle_options(&self, resources: &[Resource]) -> BundleOptions {
        BundleOptions {
            tools_dir: self.directories.tools.clone(),
            prompts_dir: self.directories.prompts.clone(),
            resource_files: resources::script_files(resources),
            links: self.packed_links.clone(),
            ..BundleOptions::default()
        }
    }

    fn content_folder(&self, declared: &[Resource]) -> Folder {
        let Directories { prompts, resources, skills, apps, .. } = &self.directories;
        let join = |name: &String| self.root.join(name);
        let paths = ContentPaths {
            prompts: join(prompts),
            resources: join(resources),
            skills: join(skills),
            apps: join(apps),
        };
        Folder {
            paths,
            resources: resources::file_settings(declared),
            templates: resources::template_settings(declared),
            code_files: resources::code_in_folder(declared, &self.directories.resources),
            ..Folder::new(&self.root, Watching::Files)
        }
    }

    /// Reads everything. A file that cannot be used is a diagnostic; the others are served.
    pub(crate) fn load(self, manifest: Option<&Manifest>) -> (Author, Vec<Diagnostic>) {
        let mut diagnostics = Vec::new();
        let permissions = match manifest {
            Some(manifest) => permissions(&self.root, manifest, &mut diagnostics),
            None => script::Permissions::default(),
        };
        let resources = manifest.map(|manifest| manifest.resources.clone()).unwrap_or_default();
        let declared = manifest.and_then(|manifest| manifest.server.isolation);
        let settings = AuthorSettings::new(manifest);
        let options = BundleOptions {
            isolation: settings.isolation.clone(),
            eval_tools: settings.eval_tools.clone(),
            ..self.bundle_options(&resources)
        };
        let bundle = Bundle::build(&self.root, &options);
        diagnostics.extend(manifest.into_iter().flat_map(|manifest| unknown_eval_tools(manifest, &bundle)));
        diagnostics.extend(bundle.errors().chain(&bundle.warnings).map(|one| located(&self.root, one)));
        let (content_watch, content, found) =
            FolderWatch::new(self.content_folder(&resources), std::time::SystemTime::now());
        diagnostics.extend(found);
        let author = Author {
            folder: self,
            permissions,
            settings,
            options,
            bundle,
            content,
            content_watch,
            resources,
            declares_isolation: declared.is_some(),
        };
        (author, diagnostics)
    }
}

/// Tools that `permissions.eval` names, but that the folder does not have.
fn unknown_eval_tools(manifest: &Manifest, bundle: &Bundle) -> Vec<Diagnostic> {
    let files: Vec<&str> = bundle.tool_names().collect();
    let unknown = manifest.permissions.eval.iter().filter(|tool| !files.contains(&tool.value.as_str()));
    let diagnostics = unknown.map(|tool| {
        let help = match contract::nearest(&tool.value, files.iter().copied()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => "name a tool of `tools/`, as its file is called".to_owned(),
        };
        Diagnostic::warning("there is no such tool in code").at(&tool.location).help(help)
    });
    diagnostics.collect()
}

/// The name of the provider of scripts in its server.
const SCRIPT_PROVIDER: &str = "tools";

/// The tools of author code that a server offers now.
pub(crate) fn served_tools(server: &Server) -> Vec<Tool> {
    server.provider_catalog(SCRIPT_PROVIDER).map(|catalog| catalog.tools.clone()).unwrap_or_default()
}

/// What keeps author files served and up to date. The watches end when it is dropped.
pub(crate) struct ServedAuthor {
    _watches: Arc<Mutex<Watches>>,
    /// Code may come later.
    _code: Arc<RoleAware>,
}

#[derive(Default)]
struct Watches {
    _scripts: Option<PollThread>,
    _content: Option<PollThread>,
}

/// The providers of author files.
#[derive(Clone)]
struct AuthorProviders {
    scripts: Arc<ScriptProvider>,
    content: Arc<ContentProvider>,
    /// The provider of scripts, as roles see it.
    code: Arc<RoleAware>,
}

/// What the manifest says about author files, beside permissions.
#[derive(Debug, Clone, PartialEq)]
struct AuthorSettings {
    isolation: Isolation,
    /// Tools that may use `eval`.
    eval_tools: BTreeSet<String>,
    resource_files: Vec<String>,
    resources: Vec<content::ResourceSettings>,
    templates: Vec<content::TemplateSettings>,
}

impl AuthorSettings {
    fn new(manifest: Option<&Manifest>) -> Self {
        let resources = manifest.map(|manifest| &*manifest.resources).unwrap_or_default();
        let isolation = manifest.and_then(|manifest| manifest.server.isolation);
        Self {
            isolation: match isolation.unwrap_or_default() {
                CodeIsolation::Thread => Isolation::Thread,
                CodeIsolation::Process => Isolation::Process(own_binary()),
            },
            eval_tools: manifest
                .map(|manifest| manifest.permissions.eval.iter().map(|tool| tool.value.clone()).collect())
                .unwrap_or_default(),
            resource_files: resources::script_files(resources),
            resources: resources::file_settings(resources),
            templates: resources::template_settings(resources),
        }
    }
}

impl Author {
    /// The tools of the folder, in the order of their names.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.bundle.served().map(|tool| &tool.definition)
    }

    /// Lines for a person: what is served besides tools.
    pub(crate) fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let catalog = self.content.catalog();
        let code_prompts = self.bundle.served_prompts().map(|prompt| prompt.definition.name.as_str());
        let mut list = |what: &str, names: Vec<&str>| {
            if !names.is_empty() {
                lines.push(format!("{}: {}", pluralize(names.len() as u64, what), join_names(&names)));
            }
        };
        list("prompt", catalog.prompts.iter().map(|one| one.name.as_str()).chain(code_prompts).collect());
        let templates = catalog.resource_templates.iter().map(|one| one.uri_template.as_str());
        list("resource", catalog.resources.iter().map(|one| one.uri.as_str()).chain(templates).collect());
        list("skill", catalog.skills.iter().map(|one| one.uri.as_str()).collect());
        lines
    }

    /// What works, but could be better: clients choose by descriptions.
    pub(crate) fn lint(&self) -> Vec<Diagnostic> {
        let of_files = self.content.catalog().prompts.iter();
        let prompts = of_files.chain(self.bundle.served_prompts().map(|prompt| &prompt.definition));
        let prompts = prompts.filter(|prompt| prompt.description.is_none()).map(|prompt| {
            let message = format!("the prompt `{}` has no description", prompt.name);
            let help =
                "say what it is for: `description: …` in the front matter, or a comment above the function";
            Diagnostic::warning(message).code("prompt_description_missing").help(help)
        });
        let tools = self.tools().filter(|tool| tool.description.is_none()).map(|tool| {
            let message = format!("the tool `{}` has no description", tool.name);
            let help = "models choose by it: write a comment above the function, or `metadata.description`";
            Diagnostic::warning(message).code("tool_description_missing").help(help)
        });
        let origin = match self.declares_isolation {
            false => origin::foreign_code(&self.folder.root, &self.bundle),
            true => None,
        };
        let origin = origin.map(|reason| {
            let message = format!("this folder has code from elsewhere ({reason}), which runs on threads of the server");
            let help = "write `isolation = \"process\"` below `[server]` to run it in processes of their own, or \
                        `isolation = \"thread\"` if you trust it";
            Diagnostic::note(message).code("isolation").help(help)
        });
        let schemas = self.tools().flat_map(|tool| lint_input_schema(&tool.name, &tool.input_schema));
        prompts.chain(tools).chain(schemas).chain(origin).collect()
    }

    /// What the files say about collections, held against the contract.
    pub(crate) fn check_references(&self, contract: &Contract) -> Vec<Diagnostic> {
        resources::check_references(&self.resources, &self.content, contract)
    }

    /// Adds the providers to a server, and follows the files. `contract` answers `ctx.collection`.
    /// Changed tools must keep what `promised` says. `listener` hears of changes and failures.
    pub(crate) fn serve(
        self,
        server: &Arc<Server>,
        contract: Option<CurrentContract>,
        promised: PromisedTools,
        listener: CodeListener,
    ) -> ServedAuthor {
        let collections = contract.clone().map(collections::for_contract);
        // Code may come while the folder is served; the engine starts no thread before the first call.
        let services = ScriptServices {
            network: network::for_permissions(&self.permissions),
            permissions: self.permissions.clone(),
            collections: collections.clone().map(|collections| collections as _),
            diagnostics: Some(Arc::new(watch::FailureSink(listener.clone()))),
        };
        let engine = engine(&self.settings.isolation);
        let scripts = Arc::new(ScriptProvider::new(engine, &self.bundle, services));
        let (loaded, watched) = self.into_watched();
        let backend = backend::FolderBackend { scripts: scripts.clone(), collections };
        let content = Arc::new(ContentProvider::new(loaded, Arc::new(backend)));
        let role_aware =
            RoleAware { provider: content.clone(), contract: contract.clone(), kind: AuthorFiles::Content };
        server.set_provider("content", Some(Arc::new(role_aware)));
        let code =
            RoleAware { provider: scripts.clone(), contract: contract.clone(), kind: AuthorFiles::Code };
        let providers = AuthorProviders { scripts, content, code: Arc::new(code) };
        let (folder, settings) = (watched.folder.clone(), watched.settings.clone());
        let watches = watched.watch(server, &providers, promised.clone(), listener.clone());
        let watches = Arc::new(Mutex::new(watches));
        if let Some(contract) = &contract {
            contract.set_code(ServedCode::new(
                folder, settings, server, &providers, &watches, promised, listener,
            ));
        }
        ServedAuthor { _watches: watches, _code: providers.code }
    }

    fn into_watched(self) -> (Loaded, WatchedAuthor) {
        let Self { folder, settings, options, bundle, content, content_watch, .. } = self;
        (content, WatchedAuthor { folder, settings, options, bundle, content_watch })
    }
}

/// Author files that are served, and are to be followed.
struct WatchedAuthor {
    folder: AuthorFolder,
    settings: AuthorSettings,
    options: BundleOptions,
    bundle: Bundle,
    content_watch: FolderWatch,
}

impl WatchedAuthor {
    fn watch(
        self,
        server: &Arc<Server>,
        providers: &AuthorProviders,
        promised: PromisedTools,
        listener: CodeListener,
    ) -> Watches {
        let Self { folder, options, bundle, content_watch, .. } = self;
        let AuthorProviders { scripts, content, code } = providers;
        let has_scripts = !bundle.is_empty();
        let scripts = has_scripts.then(|| {
            server.set_provider(SCRIPT_PROVIDER, Some(code.clone()));
            match folder.packed_links {
                None => {
                    watch_scripts(folder.root.clone(), options, bundle, scripts, server, promised, listener)
                }
                Some(_) => None,
            }
        });
        let root = folder.root;
        let watched = content::watch_folder(content_watch, content, move |diagnostics| {
            for one in diagnostics {
                tracing::warn!(folder = %root.display(), "{}", one.message);
            }
        });
        let content = watched.map_err(|error| tracing::warn!(%error, "changes of files are not noticed"));
        Watches { _scripts: scripts.flatten(), _content: content.ok() }
    }
}

fn engine(isolation: &Isolation) -> Arc<Engine> {
    Arc::new(Engine::with_isolation(EngineLimits::default(), isolation.clone()))
}

/// This program, also while its file is being replaced.
fn own_binary() -> PathBuf {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_else(|_| "spile".into())
}

/// How many names a line lists.
const NAMES_SHOWN_MAX: usize = 8;

fn join_names(names: &[&str]) -> String {
    crate::layout::join_names(
        &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
        NAMES_SHOWN_MAX,
        None,
    )
}

fn has_scripts(tools: &Path) -> bool {
    let entries = std::fs::read_dir(tools).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("ts" | "mts" | "js" | "mjs")) && !path.to_string_lossy().ends_with(".d.ts")
    })
}

/// What the manifest permits, with values of the environment.
fn permissions(root: &Path, manifest: &Manifest, diagnostics: &mut Vec<Diagnostic>) -> script::Permissions {
    let declared = &manifest.permissions;
    let mut network = Vec::new();
    for host in &declared.network {
        match HostRule::parse(&host.value) {
            Some(rule) => network.push(rule),
            None => diagnostics.push(
                Diagnostic::error("this is not a host that can be permitted").at(&host.location).help(
                    "write a host name as in `api.example.com`, `*.example.com` or `http://localhost:3000`",
                ),
            ),
        }
    }
    let mut files = Vec::new();
    for (folders, can_write) in [(&declared.files, false), (&declared.writable_files, true)] {
        for folder in folders.named() {
            match file_root(root, folder, can_write) {
                Ok(one) => files.push(one),
                Err(problem) => diagnostics.push(*problem),
            }
        }
    }
    let values = |names: &[Located<String>]| {
        names.iter().map(|name| (name.value.clone(), std::env::var(&name.value).ok())).collect()
    };
    let (env, secrets) = (values(&declared.env), values(&declared.secrets));
    let sql = permitted_sources(declared, &manifest.sources, diagnostics);
    let client_roots = match (declared.files.are_client_roots(), declared.writable_files.are_client_roots()) {
        (_, true) => Some(ClientRootAccess::Write),
        (true, false) => Some(ClientRootAccess::Read),
        (false, false) => None,
    };
    script::Permissions { network, files, client_roots, env, secrets, sql }
}

/// The sources that `ctx.sql` may read.
fn permitted_sources(
    declared: &Permissions,
    sources: &[Source],
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<String> {
    let mut permitted = Vec::new();
    for name in &declared.sql {
        match sources.iter().any(|source| source.name.value == name.value) {
            true => permitted.push(name.value.clone()),
            false => {
                let names = sources.iter().map(|source| source.name.value.as_str());
                let help = match contract::nearest(&name.value, names) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => "name a source of `[sources]`".to_owned(),
                };
                let message = format!("there is no source `{}`", name.value);
                diagnostics.push(Diagnostic::error(message).at(&name.location).help(help));
            }
        }
    }
    permitted
}

fn file_root(root: &Path, folder: &Located<String>, can_write: bool) -> Result<FileRoot, Box<Diagnostic>> {
    let is_inside = Path::new(&folder.value)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir));
    if !is_inside {
        return Err(Box::new(
            Diagnostic::error("only folders inside this one can be permitted")
                .at(&folder.location)
                .help("write a path without `..` that does not start with `/`"),
        ));
    }
    let path = root.join(&folder.value);
    if !path.is_dir() {
        return Err(Box::new(
            Diagnostic::warning(format!("there is no folder `{}`", folder.value))
                .at(&folder.location)
                .help("create it, or remove the permission"),
        ));
    }
    Ok(FileRoot { name: folder.value.clone(), folder: path, can_write })
}

/// A diagnostic of a script, with the line it is about.
/// The code of findings about files that are not served.
pub(crate) const NOT_SERVED: &str = "not_served";

fn located(root: &Path, one: &script::Diagnostic) -> Diagnostic {
    let diagnostic = match one.severity {
        script::Severity::Error => {
            Diagnostic::warning(format!("not served: {}", one.message)).code(NOT_SERVED)
        }
        script::Severity::Warning => Diagnostic::warning(one.message.clone()).code("script"),
    };
    let diagnostic = match &one.help {
        Some(help) => diagnostic.help(help.clone()),
        None => diagnostic,
    };
    let path = root.join(&one.file);
    let shown = path.strip_prefix(".").unwrap_or(&path).display().to_string();
    match (one.position, std::fs::read_to_string(&path)) {
        (Some(position), Ok(text)) => {
            let start = offset_of(&text, position.line as usize, position.column as usize);
            let end = text[start..].chars().next().map_or(start, |c| start + c.len_utf8());
            let file = Arc::new(FileText::new(shown, text));
            diagnostic.at(&FileLocation::new(&file, start..end))
        }
        (_, _) => Diagnostic { message: format!("{shown}: {}", diagnostic.message), ..diagnostic },
    }
}

/// The byte offset of a line and a column, both counted from 1.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = text[start..].lines().next().unwrap_or_default();
    start + rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(offset, _)| offset)
}

#[cfg(test)]
mod tests {
    use super::offset_of;

    #[test]
    fn a_line_and_a_column_are_an_offset() {
        let text = "ab\ncödé\n";
        for (place, expected) in [((1, 1), 0), ((1, 3), 2), ((2, 1), 3), ((2, 3), 6), ((9, 1), 10)] {
            assert_eq!(offset_of(text, place.0, place.1), expected, "{place:?}");
        }
    }
}
