//! Where each MCP client stores its servers, and in which format.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TomlError, Value, value};

use super::ServerEntry;
use super::jsonc::{self, SetOutcome};
use crate::banner::is_client_name_char;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Codex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    User,
    Project,
}

/// A settings file, and how it lists servers.
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) format: ConfigFormat,
}

pub(super) enum ConfigFormat {
    /// Servers are members of the object at this key. VS Code requires a `type`.
    Json { servers_key: &'static str, has_type: bool },
    /// `[mcp_servers.NAME]`
    Toml,
}

impl Client {
    pub(super) fn config_file(self, scope: Scope, file: Option<&Path>) -> anyhow::Result<ConfigFile> {
        let file = match file {
            Some(file) => file.to_owned(),
            None => self.config_path(scope)?,
        };
        let format = match self {
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor => {
                ConfigFormat::Json { servers_key: "mcpServers", has_type: false }
            }
            Self::VsCode => ConfigFormat::Json { servers_key: "servers", has_type: true },
            Self::Codex => ConfigFormat::Toml,
        };
        Ok(ConfigFile { path: file, format })
    }

    fn config_path(self, scope: Scope) -> anyhow::Result<PathBuf> {
        let current_dir = || std::env::current_dir().context("cannot determine the current folder");
        Ok(match (self, scope) {
            (Self::ClaudeDesktop, Scope::User) => config_dir()?.join("Claude/claude_desktop_config.json"),
            (Self::ClaudeDesktop, Scope::Project) => {
                bail!("Claude Desktop has no project settings; omit --scope")
            }
            (Self::ClaudeCode, Scope::User) => home_dir()?.join(".claude.json"),
            (Self::ClaudeCode, Scope::Project) => current_dir()?.join(".mcp.json"),
            (Self::Cursor, Scope::User) => home_dir()?.join(".cursor/mcp.json"),
            (Self::Cursor, Scope::Project) => current_dir()?.join(".cursor/mcp.json"),
            (Self::VsCode, Scope::User) => config_dir()?.join("Code/User/mcp.json"),
            (Self::VsCode, Scope::Project) => current_dir()?.join(".vscode/mcp.json"),
            (Self::Codex, Scope::User) => match std::env::var_os("CODEX_HOME") {
                Some(folder) => PathBuf::from(folder).join("config.toml"),
                None => home_dir()?.join(".codex/config.toml"),
            },
            (Self::Codex, Scope::Project) => current_dir()?.join(".codex/config.toml"),
        })
    }

    /// What the user has to do next.
    pub(super) fn next_step(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "next: quit Claude Desktop and start it again",
            Self::ClaudeCode => "next: start a new session of Claude Code; `/mcp` shows the server",
            Self::Cursor => "next: enable the server in Cursor under Settings, MCP",
            Self::VsCode => "next: VS Code asks whether you trust the server when it is first used",
            Self::Codex => "next: start a new session of Codex",
        }
    }
}

fn home_dir() -> anyhow::Result<PathBuf> {
    std::env::home_dir()
        .filter(|home| !home.as_os_str().is_empty())
        .context("cannot determine your home folder; name the file with --config")
}

/// The folder where programs keep their settings.
fn config_dir() -> anyhow::Result<PathBuf> {
    if cfg!(target_os = "macos") {
        return Ok(home_dir()?.join("Library/Application Support"));
    }
    let name = if cfg!(windows) { "APPDATA" } else { "XDG_CONFIG_HOME" };
    match std::env::var_os(name).filter(|folder| !folder.is_empty()) {
        Some(folder) => Ok(folder.into()),
        None if cfg!(windows) => bail!("APPDATA is not set; name the file with --config"),
        None => Ok(home_dir()?.join(".config")),
    }
}

impl ConfigFile {
    /// The file with the entry added; `None` if it is already there.
    pub(super) fn with_entry(
        &self,
        text: &str,
        entry: &ServerEntry,
        force: bool,
    ) -> anyhow::Result<Option<String>> {
        let file = self.path.display();
        let conflict = || {
            anyhow::anyhow!(
                "{file} already has a different server named `{}`; choose another --name, or replace it with --force",
                entry.name
            )
        };
        match self.format {
            ConfigFormat::Json { servers_key: servers, has_type } => {
                match jsonc::set_member(text, &[servers, &entry.name], &entry.to_json(has_type), force) {
                    Ok(SetOutcome::Changed(text)) => Ok(Some(text)),
                    Ok(SetOutcome::Unchanged) => Ok(None),
                    Ok(SetOutcome::Conflict) => Err(conflict()),
                    Err(error) => {
                        bail!("{file}, line {}: {}; the file was not changed", error.line, error.message)
                    }
                }
            }
            ConfigFormat::Toml => {
                let mut document: DocumentMut = text.parse().map_err(|error: TomlError| {
                    let start = error.span().map_or(0, |span| span.start);
                    let line = text[..start.min(text.len())].matches('\n').count() + 1;
                    anyhow::anyhow!("{file}, line {line}: this is not TOML; the file was not changed")
                })?;
                let servers = document.entry("mcp_servers").or_insert_with(|| {
                    let mut table = Table::new();
                    table.set_implicit(true);
                    Item::Table(table)
                });
                let Some(servers) = servers.as_table_like_mut() else {
                    bail!("{file}: `mcp_servers` is not a table; the file was not changed");
                };
                let wanted = entry.to_toml();
                match servers.get(&entry.name) {
                    Some(there) if is_same_entry(there, &wanted) => return Ok(None),
                    Some(_) if !force => return Err(conflict()),
                    _ => {}
                }
                servers.insert(&entry.name, Item::Table(wanted));
                let written = document.to_string();
                // toml_edit writes `\n` only.
                let is_windows = text.contains("\r\n");
                Ok(Some(if is_windows {
                    written.replace("\r\n", "\n").replace('\n', "\r\n")
                } else {
                    written
                }))
            }
        }
    }
}

impl ServerEntry {
    fn to_toml(&self) -> Table {
        debug_assert!(self.name.chars().all(is_client_name_char));
        let mut table = Table::new();
        table.insert("command", value(&self.command));
        table.insert("args", value(self.arguments.iter().collect::<Array>()));
        if !self.variables.is_empty() {
            let variables = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            table.insert("env", value(variables.collect::<InlineTable>()));
        }
        table
    }
}

/// Whether two tables have the same content, however they are formatted.
fn is_same_entry(there: &Item, wanted: &Table) -> bool {
    let Some(there) = there.as_table_like() else { return false };
    let matches = |key: &str, value: &Item| {
        there.get(key).is_some_and(|there| string_values(there) == string_values(value))
    };
    there.len() == wanted.len() && wanted.iter().all(|(key, value)| matches(key, value))
}

/// A string, an array of strings, or a table of strings as a list; `None` for anything that we never write.
fn string_values(item: &Item) -> Option<Vec<(String, String)>> {
    let text = |item: &Value| item.as_str().map(str::to_owned);
    if let Some(list) = item.as_array() {
        return list.iter().map(|one| Some((String::new(), text(one)?))).collect();
    }
    if let Some(table) = item.as_table_like() {
        let mut names: Vec<(String, String)> = table
            .iter()
            .map(|(key, one)| Some((key.to_owned(), text(one.as_value()?)?)))
            .collect::<Option<_>>()?;
        names.sort();
        return Some(names);
    }
    Some(vec![(String::new(), text(item.as_value()?)?)])
}
