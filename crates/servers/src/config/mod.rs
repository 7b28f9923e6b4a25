//! The configured servers: which files there are, what they say, and which file wins.
//!
//! ```text
//! ConfigDirs      the folders of this user and this run
//!  → files    every file that may name servers, highest scope first; read, or left out if it does not exist
//!  → dialect  text → entries, by the rules of the client that owns the file
//!  → merge    one entry per name: the whole entry of the highest scope wins, fields are never mixed
//!  → resolve  when a server starts: variables are replaced, and not before
//! ```

mod dialect;
mod disabled;
mod entry;
pub mod files;
mod oauth;
mod registered;
mod roots;
mod sampling;
mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use dialect::{Dialect, EntryError, FileError, ParsedServer, Section};
pub use entry::{
    EntryTransport, EnvFile, RemoteEntry, RemoteKind, ResolveError, ResolvedTransport, ServerEntry,
    StdioEntry, ToolFilter,
};
pub use oauth::{GrantSettings, OAuthSettings};
pub use registered::{RegisterError, RegisteredServers, Registration, RegistrationRules};
pub use roots::{Root, roots_result};
pub use sampling::{SamplingFormat, SamplingModel, SamplingSettings};
pub use template::{ExpandError, Template, VariableSyntax, Variables, input_variable};

use crate::names;

/// Where an entry comes from. The first wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigScope {
    /// Named on the command line for this run.
    Run,
    /// This user in this project.
    Local,
    /// Everyone who works on this project.
    Project,
    /// This user, everywhere.
    User,
    /// Registered while the program runs.
    Dynamic,
}

impl ConfigScope {
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Local => "local",
            Self::Project => "project",
            Self::User => "user",
            Self::Dynamic => "dynamic",
        }
    }
}

/// Who wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// This user: the file is in their home, or they named it.
    User,
    /// Perhaps someone else: the file is in a project folder, and came with it. Nothing in it is started before the
    /// user approved exactly that.
    Project,
}

/// A place that names servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSource {
    pub scope: ConfigScope,
    pub dialect: Dialect,
    pub trust: Trust,
    pub path: PathBuf,
    /// The servers for one project, in a file of the user that has several: the key in that file.
    pub project_key: Option<String>,
    /// The project. Its servers start here, and `${workspaceFolder}` is this folder.
    pub folder: Option<PathBuf>,
}

impl ConfigSource {
    /// The path, and the project within it.
    pub fn label(&self) -> String {
        match &self.project_key {
            Some(project) => format!("{} (project {project})", self.path.display()),
            None => self.path.display().to_string(),
        }
    }
}

/// A server by name, and where it was found.
#[derive(Debug, Clone)]
pub struct ConfiguredServer {
    pub name: String,
    pub source: Arc<ConfigSource>,
    pub entry: Result<ServerEntry, EntryError>,
    /// The lower places that name the same server, highest first.
    pub shadowed: Vec<Arc<ConfigSource>>,
    /// The file with variables that a project's entry names, as it is now: an approval covers its content.
    pub env_file: Option<EnvFile>,
    /// The settings file of Claude Code in which the user disabled it.
    pub disabled_in: Option<Arc<Path>>,
}

impl ConfiguredServer {
    /// Expands the variables of the entry; the environment, home and inputs come from `variables`.
    pub fn resolve(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<ResolvedTransport, StartError> {
        let entry = self.entry.as_ref().map_err(|error| StartError::Entry(error.clone()))?;
        let folder = self.source.folder.as_deref();
        let input = |id: &str| env(&input_variable(id));
        let variables = Variables { env, input: &input, home, project: folder };
        let mut resolved = entry.resolve(&variables, folder, self.approved_env_file())?;
        // Claude Code tells its servers where the project is.
        if let (ResolvedTransport::Process(command), Dialect::ClaudeCode, Some(folder)) =
            (&mut resolved, self.source.dialect, folder)
        {
            command.env.insert(0, ("CLAUDE_PROJECT_DIR".into(), folder.into()));
        }
        Ok(resolved)
    }
}

impl ConfiguredServer {
    /// The file that disables it, if one does.
    pub fn disabling_file(&self) -> Option<&Path> {
        let is_disabled = self.entry.as_ref().is_ok_and(|entry| !entry.is_enabled);
        self.disabled_in.as_deref().or_else(|| is_disabled.then_some(&*self.source.path))
    }

    /// For a project's server: what its file with variables must be. A user's own file may change as they like.
    fn approved_env_file(&self) -> Option<&EnvFile> {
        self.env_file.as_ref().filter(|_| self.source.trust == Trust::Project)
    }

    /// Reads the file with variables that the entry of a project's server names.
    fn read_env_file(&mut self, home: Option<&Path>) {
        let Ok(ServerEntry { transport: EntryTransport::Stdio(stdio), .. }) = &self.entry else { return };
        if self.source.trust == Trust::Project
            && let Some(file) = &stdio.env_file
        {
            let folder = self.source.folder.as_deref();
            let none = |_: &str| None;
            let variables = Variables { env: &none, input: &none, home, project: folder };
            self.env_file = Some(EnvFile::read(file, &variables, folder));
        }
    }

    /// Expands one text of the entry.
    pub fn expand(
        &self,
        template: &Template,
        env: &dyn Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<String, ExpandError> {
        let input = |id: &str| env(&input_variable(id));
        template.expand(&Variables { env, input: &input, home, project: self.source.folder.as_deref() })
    }
}

/// Why a configured server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Entry(EntryError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

/// All servers, and what is wrong with the files.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// By name.
    pub servers: Vec<ConfiguredServer>,
    pub problems: Vec<ConfigProblem>,
    /// How `sampling/createMessage` is answered, if the user said so.
    pub sampling: Option<SamplingSettings>,
    /// The files that were read, highest first, and how many servers each names.
    pub sources: Vec<(Arc<ConfigSource>, usize)>,
}

/// Something in a file that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub path: PathBuf,
    pub server: Option<String>,
    /// Whether nothing of the file could be read.
    pub is_unreadable: bool,
    pub message: String,
}

impl std::fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.server.iter().try_for_each(|server| write!(f, ", server `{server}`"))?;
        write!(f, ": {}", self.message)
    }
}

impl Configuration {
    /// Reads the files with variables that entries of projects name.
    fn read_env_files(&mut self, home: Option<&Path>) {
        self.servers.iter_mut().for_each(|server| server.read_env_file(home));
    }

    pub fn find(&self, name: &str) -> Option<&ConfiguredServer> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The server whose tools have this prefix: `mcp__server__tool`.
    pub fn find_by_public_name(&self, public_name: &str) -> Option<&ConfiguredServer> {
        let part = names::server_part_of(public_name)?;
        self.servers.iter().find(|server| names::server_part(&server.name) == part)
    }
}

/// What was read from a source.
pub type SourceContent = Result<Vec<ParsedServer>, FileError>;

/// Combines the sources; the first that names a server wins with its whole entry, even if that entry is invalid: a
/// lower one in its place would be a surprise.
pub fn merge(sources: impl IntoIterator<Item = (ConfigSource, SourceContent)>) -> Configuration {
    let mut servers: BTreeMap<String, ConfiguredServer> = BTreeMap::new();
    // The name that has a public name already.
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    let mut configuration = Configuration::default();
    for (source, content) in sources {
        let source = Arc::new(source);
        let parsed = match content {
            Ok(parsed) => parsed,
            Err(error) => {
                let message = error.to_string();
                configuration.problems.push(ConfigProblem {
                    path: source.path.clone(),
                    server: None,
                    is_unreadable: true,
                    message,
                });
                continue;
            }
        };
        configuration.sources.push((source.clone(), parsed.len()));
        for ParsedServer { name, entry } in parsed {
            if let Some(winner) = servers.get_mut(&name) {
                winner.shadowed.push(source.clone());
                continue;
            }
            let mut problem = |message: String| {
                let server = Some(name.clone());
                let (path, is_unreadable) = (source.path.clone(), false);
                configuration.problems.push(ConfigProblem { path, server, is_unreadable, message });
            };
            let part = names::server_part(&name);
            if let Some(other) = taken.get(&part) {
                problem(format!(
                    "left out: its tools would have the same names as those of `{other}` (`mcp__{part}__…`); rename one"
                ));
                continue;
            }
            if let Err(error) = &entry {
                problem(error.to_string());
            }
            taken.insert(part, name.clone());
            let server = ConfiguredServer {
                name: name.clone(),
                source: source.clone(),
                entry,
                shadowed: Vec::new(),
                env_file: None,
                disabled_in: None,
            };
            servers.insert(name, server);
        }
    }
    configuration.servers = servers.into_values().collect();
    configuration
}
