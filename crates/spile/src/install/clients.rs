//! Where each MCP client stores its servers, and in which format.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use json::{Json, Node};
use servers::jsonc::{self, JsoncError, SetOutcome};
use toml_edit::{DocumentMut, Item, Table, TableLike, TomlError, Value};

use super::entry::{InstalledEntry, NewEntry};

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
    /// Servers are members of the object at this key.
    Json { servers_key: &'static str, types: TypeMember },
    /// `[mcp_servers.NAME]`
    Toml,
}

/// Whether an entry states its transport in a member `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeMember {
    Never,
    HttpOnly,
    Always,
}

/// Cursor and VS Code replace it with the project folder.
const WORKSPACE_FOLDER: &str = "${workspaceFolder}";

impl Client {
    /// Every prefix of a path in project settings.
    pub(super) const PROJECT_PREFIXES: &[&str] = &["", WORKSPACE_FOLDER];

    /// What stands for the project folder in its settings. Claude Code and Codex start servers in that folder.
    pub(super) fn project_prefix(self) -> &'static str {
        match self {
            Self::Cursor | Self::VsCode => WORKSPACE_FOLDER,
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Codex => "",
        }
    }

    pub(super) fn config_file(self, scope: Scope, file: Option<&Path>) -> anyhow::Result<ConfigFile> {
        let file = match file {
            Some(file) => file.to_owned(),
            None => self.config_path(scope)?,
        };
        let format = match self {
            Self::ClaudeDesktop | Self::Cursor => {
                ConfigFormat::Json { servers_key: "mcpServers", types: TypeMember::Never }
            }
            Self::ClaudeCode => ConfigFormat::Json { servers_key: "mcpServers", types: TypeMember::HttpOnly },
            Self::VsCode => ConfigFormat::Json { servers_key: "servers", types: TypeMember::Always },
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
    pub(super) fn after_install(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "next: quit Claude Desktop and start it again",
            Self::ClaudeCode => "next: start a new session of Claude Code; `/mcp` shows the server",
            Self::Cursor => "next: enable the server in Cursor under Settings, MCP",
            Self::VsCode => "next: VS Code asks whether you trust the server when it is first used",
            Self::Codex => "next: start a new session of Codex",
        }
    }

    pub(super) fn after_uninstall(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "next: quit Claude Desktop and start it again",
            Self::ClaudeCode => "running sessions of Claude Code keep the server until they end",
            Self::Cursor => "Cursor stops the server when it reads the file again",
            Self::VsCode => "VS Code stops the server when it reads the file again",
            Self::Codex => "running sessions of Codex keep the server until they end",
        }
    }
}

fn home_dir() -> anyhow::Result<PathBuf> {
    std::env::home_dir()
        .filter(|home| !home.as_os_str().is_empty())
        .context("cannot determine your home folder; name the file with --settings")
}

/// The folder where programs keep their settings.
fn config_dir() -> anyhow::Result<PathBuf> {
    if cfg!(target_os = "macos") {
        return Ok(home_dir()?.join("Library/Application Support"));
    }
    let name = if cfg!(windows) { "APPDATA" } else { "XDG_CONFIG_HOME" };
    match std::env::var_os(name).filter(|folder| !folder.is_empty()) {
        Some(folder) => Ok(folder.into()),
        None if cfg!(windows) => bail!("APPDATA is not set; name the file with --settings"),
        None => Ok(home_dir()?.join(".config")),
    }
}

impl ConfigFile {
    /// The file with the entry added; `None` if it is already there.
    pub(super) fn with_entry(
        &self,
        text: &str,
        entry: &NewEntry,
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
            ConfigFormat::Json { servers_key, types } => {
                match jsonc::set_member(text, &[servers_key, &entry.name], &entry.to_json(types), force) {
                    Ok(SetOutcome::Changed(text)) => Ok(Some(text)),
                    Ok(SetOutcome::Unchanged) => Ok(None),
                    Ok(SetOutcome::Conflict) => Err(conflict()),
                    Err(error) => Err(self.json_error(error)),
                }
            }
            ConfigFormat::Toml => {
                let mut document = self.parse_toml(text)?;
                let servers = document.entry("mcp_servers").or_insert_with(|| {
                    let mut table = Table::new();
                    table.set_implicit(true);
                    Item::Table(table)
                });
                let servers = servers.as_table_like_mut().with_context(|| self.not_a_table())?;
                let wanted = entry.to_toml();
                match servers.get(&entry.name) {
                    Some(there) if is_same_entry(there, &wanted) => return Ok(None),
                    Some(_) if !force => return Err(conflict()),
                    _ => {}
                }
                servers.insert(&entry.name, Item::Table(wanted));
                Ok(Some(toml_text(&document, text)))
            }
        }
    }

    /// The file without the entry; `None` if it is not there.
    pub(super) fn without_entry(&self, text: &str, name: &str) -> anyhow::Result<Option<String>> {
        match self.format {
            ConfigFormat::Json { servers_key, .. } => {
                jsonc::remove_member(text, &[servers_key, name]).map_err(|error| self.json_error(error))
            }
            ConfigFormat::Toml => {
                let mut document = self.parse_toml(text)?;
                let Some(servers) = document.get_mut("mcp_servers") else { return Ok(None) };
                let servers = servers.as_table_like_mut().with_context(|| self.not_a_table())?;
                Ok(servers.remove(name).map(|_| toml_text(&document, text)))
            }
        }
    }

    /// Every server in the file.
    pub(super) fn entries(&self, text: &str) -> anyhow::Result<Vec<InstalledEntry>> {
        match self.format {
            ConfigFormat::Json { servers_key, .. } => {
                let members = jsonc::members(text, servers_key).map_err(|error| self.json_error(error))?;
                Ok(members.iter().map(|(name, entry)| json_entry(name, entry)).collect())
            }
            ConfigFormat::Toml => {
                let document = self.parse_toml(text)?;
                let Some(servers) = document.get("mcp_servers") else { return Ok(Vec::new()) };
                let servers = servers.as_table_like().with_context(|| self.not_a_table())?;
                let entry = |(name, item): (&str, &Item)| Some(toml_entry(name, item.as_table_like()?));
                Ok(servers.iter().filter_map(entry).collect())
            }
        }
    }

    fn json_error(&self, error: JsoncError) -> anyhow::Error {
        let file = self.path.display();
        anyhow::anyhow!("{file}, line {}: {}; the file was not changed", error.line, error.message)
    }

    fn parse_toml(&self, text: &str) -> anyhow::Result<DocumentMut> {
        text.parse().map_err(|error: TomlError| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text[..start.min(text.len())].matches('\n').count() + 1;
            let file = self.path.display();
            anyhow::anyhow!("{file}, line {line}: this is not TOML; the file was not changed")
        })
    }

    fn not_a_table(&self) -> String {
        format!("{}: `mcp_servers` is not a table; the file was not changed", self.path.display())
    }
}

/// The document with the line ends of the old text: toml_edit writes `\n` only.
fn toml_text(document: &DocumentMut, before: &str) -> String {
    let written = document.to_string();
    if before.contains("\r\n") { written.replace("\r\n", "\n").replace('\n', "\r\n") } else { written }
}

fn json_entry(name: &str, entry: &Json) -> InstalledEntry {
    let doc = entry.to_doc();
    let text = |node: Node<'_>| node.str().map(|text| text.into_owned());
    let member = |key: &str| doc.root().get(key).and_then(text);
    let arguments = doc.root().get("args").into_iter().flat_map(|args| args.elements());
    InstalledEntry {
        name: name.to_owned(),
        command: member("command"),
        arguments: arguments.filter_map(text).collect(),
        url: member("url"),
    }
}

fn toml_entry(name: &str, entry: &dyn TableLike) -> InstalledEntry {
    let member = |key: &str| entry.get(key).and_then(Item::as_str).map(str::to_owned);
    let arguments = entry.get("args").and_then(Item::as_array).into_iter().flatten();
    InstalledEntry {
        name: name.to_owned(),
        command: member("command"),
        arguments: arguments.filter_map(|one| one.as_str().map(str::to_owned)).collect(),
        url: member("url"),
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
