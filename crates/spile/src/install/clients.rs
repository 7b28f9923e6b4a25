//! Where each client keeps its servers, and how it writes them down.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TomlError, Value, value};

use super::Entry;
use super::jsonc::{self, Set};
use crate::banner::is_plain;

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

/// A settings file, and where in it servers stand.
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) format: Format,
}

pub(super) enum Format {
    /// Under this key. VS Code wants to be told that a server is a process.
    Json { servers: &'static str, has_type: bool },
    /// `[mcp_servers.NAME]`
    Toml,
}

impl Client {
    pub(super) fn place(self, scope: Scope, file: Option<&Path>) -> anyhow::Result<Place> {
        let file = match file {
            Some(file) => file.to_owned(),
            None => self.file(scope)?,
        };
        let format = match self {
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor => {
                Format::Json { servers: "mcpServers", has_type: false }
            }
            Self::VsCode => Format::Json { servers: "servers", has_type: true },
            Self::Codex => Format::Toml,
        };
        Ok(Place { file, format })
    }

    fn file(self, scope: Scope) -> anyhow::Result<PathBuf> {
        let here = || std::env::current_dir().context("the current folder cannot be told");
        Ok(match (self, scope) {
            (Self::ClaudeDesktop, Scope::User) => settings()?.join("Claude/claude_desktop_config.json"),
            (Self::ClaudeDesktop, Scope::Project) => {
                bail!("Claude Desktop knows no projects; leave --scope out")
            }
            (Self::ClaudeCode, Scope::User) => home()?.join(".claude.json"),
            (Self::ClaudeCode, Scope::Project) => here()?.join(".mcp.json"),
            (Self::Cursor, Scope::User) => home()?.join(".cursor/mcp.json"),
            (Self::Cursor, Scope::Project) => here()?.join(".cursor/mcp.json"),
            (Self::VsCode, Scope::User) => settings()?.join("Code/User/mcp.json"),
            (Self::VsCode, Scope::Project) => here()?.join(".vscode/mcp.json"),
            (Self::Codex, Scope::User) => match std::env::var_os("CODEX_HOME") {
                Some(folder) => PathBuf::from(folder).join("config.toml"),
                None => home()?.join(".codex/config.toml"),
            },
            (Self::Codex, Scope::Project) => here()?.join(".codex/config.toml"),
        })
    }

    /// What the person has to do now.
    pub(super) fn afterwards(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "quit Claude Desktop and start it again",
            Self::ClaudeCode => "a new session of Claude Code has it; `/mcp` shows it",
            Self::Cursor => "Cursor shows it under Settings, MCP; switch it on there",
            Self::VsCode => "VS Code asks whether you trust it when it is first used",
            Self::Codex => "a new session of Codex has it",
        }
    }
}

fn home() -> anyhow::Result<PathBuf> {
    std::env::home_dir()
        .filter(|home| !home.as_os_str().is_empty())
        .context("where your home is cannot be told; name the file with --config")
}

/// Where programs keep their settings.
fn settings() -> anyhow::Result<PathBuf> {
    if cfg!(target_os = "macos") {
        return Ok(home()?.join("Library/Application Support"));
    }
    let name = if cfg!(windows) { "APPDATA" } else { "XDG_CONFIG_HOME" };
    match std::env::var_os(name).filter(|folder| !folder.is_empty()) {
        Some(folder) => Ok(folder.into()),
        None if cfg!(windows) => bail!("APPDATA is not set; name the file with --config"),
        None => Ok(home()?.join(".config")),
    }
}

impl Place {
    /// The file with the entry in it; `None` if it is there already.
    pub(super) fn edited(&self, text: &str, entry: &Entry, force: bool) -> anyhow::Result<Option<String>> {
        let file = self.file.display();
        let other = || {
            anyhow::anyhow!(
                "{file} has another server called `{}`; choose another --name, or replace it with --force",
                entry.name
            )
        };
        match self.format {
            Format::Json { servers, has_type } => {
                match jsonc::set(text, &[servers, &entry.name], &entry.json(has_type), force) {
                    Ok(Set::Changed(text)) => Ok(Some(text)),
                    Ok(Set::Same) => Ok(None),
                    Ok(Set::Other) => Err(other()),
                    Err(bad) => {
                        bail!("{file}, line {}: {}; the file was left as it is", bad.line, bad.why)
                    }
                }
            }
            Format::Toml => {
                let mut document: DocumentMut = text.parse().map_err(|error: TomlError| {
                    let at = error.span().map_or(0, |span| span.start);
                    let line = text[..at.min(text.len())].matches('\n').count() + 1;
                    anyhow::anyhow!("{file}, line {line}: this is not TOML; the file was left as it is")
                })?;
                let servers = document.entry("mcp_servers").or_insert_with(|| {
                    let mut table = Table::new();
                    table.set_implicit(true);
                    Item::Table(table)
                });
                let Some(servers) = servers.as_table_like_mut() else {
                    bail!("{file} was left as it is: `mcp_servers` is no table there");
                };
                let wanted = entry.toml();
                match servers.get(&entry.name) {
                    Some(there) if same(there, &wanted) => return Ok(None),
                    Some(_) if !force => return Err(other()),
                    _ => {}
                }
                servers.insert(&entry.name, Item::Table(wanted));
                let written = document.to_string();
                // The library writes one kind of line end.
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

impl Entry {
    fn toml(&self) -> Table {
        debug_assert!(self.name.chars().all(is_plain));
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

/// Whether two tables say the same, however they are written.
fn same(there: &Item, wanted: &Table) -> bool {
    let Some(there) = there.as_table_like() else { return false };
    let says = |key: &str, value: &Item| there.get(key).is_some_and(|there| words(there) == words(value));
    there.len() == wanted.len() && wanted.iter().all(|(key, value)| says(key, value))
}

/// A text, a list of texts, or names with texts, as a list; anything else is nothing that we write.
fn words(item: &Item) -> Option<Vec<(String, String)>> {
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
