//! The files that name servers, and reading them.

use std::path::{Path, PathBuf};

use super::dialect::{Dialect, FileError, Section};
use super::disabled::DisabledServers;
use super::{
    ConfigProblem, ConfigScope, ConfigSource, Configuration, RegisteredServers, SamplingSettings,
    SourceContent, Trust, merge,
};
use crate::{jsonc, private_file};

/// The folders of this user and this run.
#[derive(Debug, Clone, Default)]
pub struct ConfigDirs {
    pub home: Option<PathBuf>,
    /// Where programs keep their settings: `~/.config`, `~/Library/Application Support`, `%APPDATA%`.
    pub settings: Option<PathBuf>,
    pub codex_home: Option<PathBuf>,
    pub current_dir: PathBuf,
}

/// A client whose files are read when the user imported them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImportedClient {
    ClaudeDesktop,
    Cursor,
    VsCode,
    Codex,
}

impl ImportedClient {
    pub const ALL: [Self; 4] = [Self::ClaudeDesktop, Self::Cursor, Self::VsCode, Self::Codex];

    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Codex => "codex",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    pub fn dialect(self) -> Dialect {
        match self {
            Self::ClaudeDesktop => Dialect::ClaudeDesktop,
            Self::Cursor => Dialect::Cursor,
            Self::VsCode => Dialect::VsCode,
            Self::Codex => Dialect::Codex,
        }
    }

    /// The client's file for this user.
    pub fn user_file(self, places: &ConfigDirs) -> Option<PathBuf> {
        match self {
            Self::ClaudeDesktop => {
                Some(places.settings.as_ref()?.join("Claude").join("claude_desktop_config.json"))
            }
            Self::Cursor => Some(places.home.as_ref()?.join(".cursor").join("mcp.json")),
            Self::VsCode => Some(places.settings.as_ref()?.join("Code").join("User").join("mcp.json")),
            Self::Codex => match &places.codex_home {
                Some(folder) => Some(folder.join("config.toml")),
                None => Some(places.home.as_ref()?.join(".codex").join("config.toml")),
            },
        }
    }

    /// Below a project folder.
    fn project_file(self) -> Option<&'static str> {
        match self {
            Self::ClaudeDesktop => None,
            Self::Cursor => Some(".cursor/mcp.json"),
            Self::VsCode => Some(".vscode/mcp.json"),
            Self::Codex => Some(".codex/config.toml"),
        }
    }
}

/// No settings file is longer. `~/.claude.json` grows to some megabytes.
const CONFIG_BYTES_MAX: u64 = 64 << 20;

impl ConfigDirs {
    /// `$XDG_CONFIG_HOME/spile/servers.json`: where `spile mcp add` writes.
    pub fn own_file(&self) -> Option<PathBuf> {
        Some(self.settings.as_ref()?.join("spile").join("servers.json"))
    }

    /// The nearest folder from here upwards that has this file.
    fn nearest(&self, file: &str) -> Option<PathBuf> {
        self.current_dir.ancestors().find(|folder| folder.join(file).is_file()).map(Path::to_owned)
    }

    /// The project file of Claude Code: the nearest, or the one that would be created here.
    pub fn project_file(&self) -> PathBuf {
        self.nearest(".mcp.json").unwrap_or_else(|| self.current_dir.clone()).join(".mcp.json")
    }

    /// Every place that may name servers, highest first. `run_files` were named on the command line.
    fn candidates(&self, imports: &[ImportedClient], run_files: &[PathBuf]) -> Vec<ConfigSource> {
        let mut all = Vec::new();
        let mut add = |scope, dialect, trust, path: PathBuf, folder: Option<PathBuf>| {
            all.push(ConfigSource { scope, dialect, trust, path, project_key: None, folder });
        };
        for file in run_files {
            // Decisions and pinned definitions are kept by the path: `servers.json` is another file in another folder.
            let file = self.current_dir.join(file);
            let folder = file.parent().map(Path::to_owned);
            add(ConfigScope::Run, Dialect::Spile, Trust::User, file, folder);
        }
        // A settings folder in the home folder is the user's, not that of a project.
        let nearest = |file: &str| self.nearest(file).filter(|folder| Some(folder) != self.home.as_ref());
        let own = self.own_file();
        let claude = self.home.as_ref().map(|home| home.join(".claude.json"));
        for (dialect, path) in [(Dialect::Spile, &own), (Dialect::ClaudeCode, &claude)] {
            if let Some(path) = path {
                add(ConfigScope::Local, dialect, Trust::User, path.clone(), Some(self.current_dir.clone()));
            }
        }
        if let Some(folder) = nearest(".claude/settings.local.json") {
            let file = folder.join(".claude/settings.local.json");
            add(ConfigScope::Local, Dialect::ClaudeCode, Trust::Project, file, Some(folder));
        }
        for name in [".mcp.json", ".claude/settings.json"] {
            if let Some(folder) = nearest(name) {
                add(
                    ConfigScope::Project,
                    Dialect::ClaudeCode,
                    Trust::Project,
                    folder.join(name),
                    Some(folder),
                );
            }
        }
        for client in imports {
            if let Some((name, folder)) = client.project_file().and_then(|name| Some((name, nearest(name)?)))
            {
                add(ConfigScope::Project, client.dialect(), Trust::Project, folder.join(name), Some(folder));
            }
        }
        for (dialect, path) in [(Dialect::Spile, own), (Dialect::ClaudeCode, claude)] {
            if let Some(path) = path {
                add(ConfigScope::User, dialect, Trust::User, path, None);
            }
        }
        if let Some(home) = &self.home {
            let file = home.join(".claude/settings.json");
            add(ConfigScope::User, Dialect::ClaudeCode, Trust::User, file, None);
        }
        for client in imports {
            if let Some(path) = client.user_file(self) {
                add(ConfigScope::User, client.dialect(), Trust::User, path, None);
            }
        }
        all
    }

    /// Every file that may name servers, whether it exists or not.
    pub fn paths(&self, run_files: &[PathBuf]) -> Vec<PathBuf> {
        let candidates = self.candidates(&self.imports(), run_files).into_iter().map(|source| source.path);
        // Project files that do not exist yet.
        let here = [".mcp.json", ".claude/settings.json", ".claude/settings.local.json"];
        let mut paths: Vec<PathBuf> =
            candidates.chain(here.map(|name| self.current_dir.join(name))).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Reads every file and combines them. A file that was named and does not exist is an error.
    pub fn load(&self, run_files: &[PathBuf]) -> Result<Configuration, LoadError> {
        self.load_with(run_files, None)
    }

    /// The same, with the servers that were registered since the start below all others.
    pub fn load_with(
        &self,
        run_files: &[PathBuf],
        registered: Option<&RegisteredServers>,
    ) -> Result<Configuration, LoadError> {
        let imports = self.imports();
        let mut contents: Vec<(ConfigSource, SourceContent)> = Vec::new();
        let mut sampling = None;
        let mut disabled = DisabledServers::default();
        let ancestors: Vec<PathBuf> = self.current_dir.ancestors().map(Path::to_owned).collect();
        for mut source in self.candidates(&imports, run_files) {
            let text = match private_file::read(&source.path, CONFIG_BYTES_MAX) {
                Ok(Some(text)) => text,
                Ok(None) if source.scope == ConfigScope::Run => {
                    return Err(LoadError::NotFound(source.path.display().to_string()));
                }
                Ok(None) => continue,
                Err(error) => {
                    let error = FileError { line: 1, message: format!("cannot read the file: {error}") };
                    contents.push((source, Err(error)));
                    continue;
                }
            };
            disabled.read(&source, &text, &ancestors);
            let is_local_of_user = source.scope == ConfigScope::Local && source.trust == Trust::User;
            let section = match source.scope {
                _ if is_local_of_user => {
                    let Some((key, folder)) = self.project_key(&text) else { continue };
                    source.project_key = Some(key);
                    source.folder = Some(folder);
                    Section::Project(source.project_key.as_deref().unwrap_or_default())
                }
                ConfigScope::Run => {
                    source.dialect = Dialect::detect(&source.path, &text);
                    Section::Top
                }
                ConfigScope::Local | ConfigScope::Project | ConfigScope::User | ConfigScope::Dynamic => {
                    Section::Top
                }
            };
            let is_own = source.scope == ConfigScope::User && source.dialect == Dialect::Spile;
            if sampling.is_none() && (source.scope == ConfigScope::Run || is_own) {
                let found = jsonc::parse(&text).ok().and_then(|file| SamplingSettings::parse_file(&file));
                sampling = found.map(|found| (source.path.clone(), found));
            }
            let content = source.dialect.parse(&text, section);
            contents.push((source, content));
        }
        let registered = registered.map(RegisteredServers::source);
        contents.extend(registered.map(|(source, servers)| (source, Ok(servers))));
        let mut configuration = merge(contents);
        configuration.read_env_files(self.home.as_deref());
        for server in &mut configuration.servers {
            server.disabled_in = disabled.file(server);
        }
        match sampling {
            Some((_, Ok(settings))) => configuration.sampling = Some(settings),
            Some((path, Err(error))) => {
                let (server, is_unreadable) = (None, false);
                let message = error.to_string();
                configuration.problems.push(ConfigProblem { path, server, is_unreadable, message });
            }
            None => {}
        }
        Ok(configuration)
    }

    /// The key of `projects` that is this folder, or the nearest above it.
    fn project_key(&self, text: &str) -> Option<(String, PathBuf)> {
        let json = jsonc::parse(text).ok()?;
        let doc = json.to_doc();
        let projects = doc.root().get("projects")?;
        self.current_dir.ancestors().find_map(|folder| {
            let key = folder.to_str()?;
            projects.get(key)?.get("mcpServers")?;
            Some((key.to_owned(), folder.to_owned()))
        })
    }

    /// The clients that the user imported: `"import": ["cursor"]` in our own file.
    pub fn imports(&self) -> Vec<ImportedClient> {
        let text = self.own_file().and_then(|file| private_file::read(&file, CONFIG_BYTES_MAX).ok()?);
        let Some(json) = text.and_then(|text| jsonc::parse(&text).ok()) else { return Vec::new() };
        let doc = json.to_doc();
        let names = doc.root().get("import").into_iter().flat_map(|list| list.elements());
        let mut found: Vec<ImportedClient> =
            names.filter_map(|name| ImportedClient::parse(&name.str()?)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Why the configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("`{0}` not found")]
    NotFound(String),
}
