//! The configured servers of this user, in this folder, for this run.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use contract::humanize::join_truncated;
use contract::nearest;
use servers::config::files::ConfigDirs;
use servers::config::{Configuration, ConfiguredServer};
use servers::decisions::{DecisionFile, Decisions, Permission};

use crate::keys;

pub(crate) struct ServerContext {
    pub(crate) places: ConfigDirs,
    pub(crate) configuration: Configuration,
    pub(crate) decisions: Decisions,
}

impl ServerContext {
    /// Reads every settings file, and the decisions of the user.
    pub(crate) fn load(run_files: &[PathBuf]) -> anyhow::Result<Self> {
        let places = places()?;
        let configuration = places.load(run_files).context("--config")?;
        let decisions = match decision_path() {
            Some(path) => DecisionFile::new(path).load()?,
            // Without a state folder nothing is approved.
            None => Decisions::default(),
        };
        Ok(Self { places, configuration, decisions })
    }

    pub(crate) fn decision_file(&self) -> anyhow::Result<DecisionFile> {
        let path = decision_path().context("neither XDG_STATE_HOME nor HOME is set; set one of them")?;
        Ok(DecisionFile::new(path))
    }

    pub(crate) fn find(&self, name: &str) -> anyhow::Result<&ConfiguredServer> {
        if let Some(server) = self.configuration.find(name) {
            return Ok(server);
        }
        let names: Vec<&str> = self.configuration.servers.iter().map(|server| server.name.as_str()).collect();
        match nearest(name, names.iter().copied()) {
            Some(near) => bail!("no server `{name}` is configured; did you mean `{near}`?"),
            None if names.is_empty() => {
                bail!("no server `{name}` is configured; add one with `spile mcp add`")
            }
            None => bail!("no server `{name}` is configured; known servers: {}", join_truncated(&names, 12)),
        }
    }

    pub(crate) fn permission(&self, server: &ConfiguredServer) -> Permission {
        self.decisions.permission(server)
    }

    pub(crate) fn home(&self) -> Option<&Path> {
        self.places.home.as_deref()
    }
}

/// Why a server may not be started, and what to do; `None` if it may.
pub(crate) fn refusal(server: &ConfiguredServer, permission: Permission) -> Option<(String, String)> {
    let name = &server.name;
    let file = server.source.path.display();
    let approve = || format!("review it with `spile mcp get {name}`, then run `spile mcp approve {name}`");
    Some(match permission {
        Permission::Allowed => return None,
        Permission::NeedsApproval => {
            (format!("server `{name}` of {file} is not approved; Spile did not start it"), approve())
        }
        Permission::Changed => (
            format!("server `{name}` of {file} has changed since you approved it; Spile did not start it"),
            approve(),
        ),
        Permission::Disabled => {
            (format!("server `{name}` is disabled"), format!("enable it with `spile mcp enable {name}`"))
        }
        Permission::DisabledInFile => {
            let file = server.disabling_file().unwrap_or(&server.source.path).display();
            (format!("server `{name}` is disabled in {file}"), "enable it in that file".to_owned())
        }
        Permission::Invalid => {
            let reason = server.entry.as_ref().err().map(ToString::to_string).unwrap_or_default();
            (format!("server `{name}` of {file} is invalid: {reason}"), "correct the file".to_owned())
        }
    })
}

pub(crate) fn decision_path() -> Option<PathBuf> {
    Some(keys::state_folder()?.join("server-decisions.json"))
}

fn places() -> anyhow::Result<ConfigDirs> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // Not the entry of the user database: a program that was started without HOME is meant to have none.
    let home = if cfg!(windows) { std::env::home_dir() } else { absolute("HOME") };
    let settings = match () {
        () if cfg!(target_os = "macos") => {
            home.as_ref().map(|home| home.join("Library").join("Application Support"))
        }
        () if cfg!(windows) => absolute("APPDATA"),
        () => absolute("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config"))),
    };
    let current_dir = std::env::current_dir().context("cannot determine the current folder")?;
    // The keys of `projects` are real paths.
    let current_dir = current_dir.canonicalize().unwrap_or(current_dir);
    Ok(ConfigDirs { home, settings, codex_home: absolute("CODEX_HOME"), current_dir })
}
