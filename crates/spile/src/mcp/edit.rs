//! `spile mcp add`, `remove` and `import`: changes in our own file, or in the project's `.mcp.json`.
//!
//! The files of other clients are theirs: Spile reads them and never writes them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use contract::humanize::pluralize;
use json::Json;
use servers::config::files::ImportedClient;
use servers::config::{ConfigScope, Dialect};
use servers::jsonc::{self, SetOutcome};

use super::Scope;
use super::context::ServerContext;
use super::show::notice;
use crate::atomic_file::{self, FileMode};
use crate::install;

#[derive(Debug, Args)]
pub struct AddArgs {
    /// The server's name
    name: String,
    /// An address (http:, https:, ws:, wss:, unix:), or a command with its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "URL | COMMAND ARGS…")]
    target: Vec<String>,
    /// Who the server is for
    #[arg(long, short, value_enum, default_value_t = Scope::User)]
    scope: Scope,
    /// How to reach an address; the default follows from it
    #[arg(long, short, value_name = "TYPE", value_parser = ["stdio", "http", "sse", "ws"])]
    transport: Option<String>,
    /// A variable for the command. Without VALUE the file refers to yours, and no secret is written
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// A header for the address; ${VARIABLE} in it is replaced when the server starts
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Replace a different server of the same name
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// The server's name
    name: String,
    /// Where to remove it; by default, where it is
    #[arg(long, short, value_enum)]
    scope: Option<Scope>,
}

#[derive(Debug, Args)]
pub struct IncludeArgs {
    /// claude-desktop, cursor, vscode or codex; without one, list what can be included
    #[arg(value_parser = ["claude-desktop", "cursor", "vscode", "codex"])]
    clients: Vec<String>,
    /// Stop reading these
    #[arg(long)]
    remove: bool,
}

/// A file that we write, and where in it the servers are.
struct OwnFile {
    path: PathBuf,
    keys: Vec<String>,
    mode: FileMode<'static>,
}

impl OwnFile {
    fn new(context: &ServerContext, scope: Scope) -> anyhow::Result<Self> {
        let own = || {
            context.places.own_file().context(
                "neither XDG_CONFIG_HOME nor HOME is set, so there is no place for your settings; set one of them",
            )
        };
        Ok(match scope {
            Scope::User => {
                let keys = vec!["mcpServers".to_owned()];
                Self { path: own()?, keys, mode: FileMode::PreserveOrPrivate }
            }
            Scope::Local => {
                let folder = context.places.current_dir.to_str().context("the folder's name is not UTF-8")?;
                let keys = ["projects", folder, "mcpServers"].map(str::to_owned).to_vec();
                Self { path: own()?, keys, mode: FileMode::PreserveOrPrivate }
            }
            Scope::Project => {
                let keys = vec!["mcpServers".to_owned()];
                Self { path: context.places.project_file(), keys, mode: FileMode::PreserveOrUmask }
            }
        })
    }

    fn key_path<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        self.keys.iter().map(String::as_str).chain([name]).collect()
    }

    fn read(&self) -> anyhow::Result<String> {
        Ok(install::read_config(&self.path)?.unwrap_or_default())
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        install::ensure_writable(&self.path)?;
        atomic_file::create_parent_dir(&self.path)?;
        atomic_file::write(&self.path, text.as_bytes(), self.mode)
    }

    fn jsonc_error(&self, error: jsonc::JsoncError) -> anyhow::Error {
        let file = self.path.display();
        anyhow::anyhow!("{file}, line {}: {}; the file was not changed", error.line, error.message)
    }
}

pub(super) fn add(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&[])?;
    let entry = entry_json(args)?;
    // What is written must be what can be read.
    let dialect = if args.scope == Scope::Project { Dialect::ClaudeCode } else { Dialect::Spile };
    if let Err(error) = dialect.parse_entry(entry.to_doc().root()) {
        bail!("{error}");
    }
    let file = OwnFile::new(&context, args.scope)?;
    let shown = file.path.display();
    let text = file.read()?;
    match jsonc::set_member(&text, &file.key_path(&args.name), &entry, args.force) {
        Ok(SetOutcome::Changed(text)) => {
            file.write(&text)?;
            notice(&format!("added `{}` to {shown}", args.name));
        }
        Ok(SetOutcome::Unchanged) => notice(&format!("`{}` is already in {shown}", args.name)),
        Ok(SetOutcome::Conflict) => bail!(
            "{shown} already has a different server named `{}`; choose another name, or replace it with --force",
            args.name
        ),
        Err(error) => return Err(file.jsonc_error(error)),
    }
    after_add(args, &file.path)
}

/// Approves what the user just typed, and says if another file wins.
fn after_add(args: &AddArgs, path: &Path) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&[])?;
    match context.configuration.find(&args.name) {
        Some(server) if server.source.path == *path => {
            if args.scope == Scope::Project {
                context.decision_file()?.update(|decisions| decisions.approve(server))?;
            }
        }
        Some(server) => notice(&format!(
            "note: `{}` of {} overrides it ({} scope)",
            args.name,
            server.source.label(),
            server.source.scope.name()
        )),
        None => {
            let problems = context.configuration.problems.iter();
            let own = problems.filter(|problem| problem.server.as_deref() == Some(&args.name));
            own.for_each(|problem| notice(&format!("warning: {problem}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn entry_json(args: &AddArgs) -> anyhow::Result<Json> {
    let [target, arguments @ ..] = args.target.as_slice() else { bail!("name a command or an address") };
    let is_address = target.contains("://") || target.starts_with("unix:");
    let is_remote = match args.transport.as_deref() {
        Some("stdio") => false,
        Some(_) => true,
        None => is_address,
    };
    if !is_remote {
        if !args.header.is_empty() {
            bail!("--header needs an address; pass secrets to a command with --env");
        }
        let env = args.env.iter().map(|text| parse_env(text)).collect::<anyhow::Result<Vec<_>>>()?;
        return Ok(Json::object(|out| {
            out.str("command", target);
            out.array("args", arguments, |out, arg| json::write::string(out, arg));
            if !env.is_empty() {
                out.object("env", |out| {
                    for (name, value) in &env {
                        out.str(name, value);
                    }
                });
            }
        }));
    }
    if !args.env.is_empty() {
        bail!("--env needs a command; send secrets to an address with --header");
    }
    if let Some(extra) = arguments.first() {
        bail!("an address takes no arguments, found `{extra}`; put options before the name");
    }
    let headers = args.header.iter().map(|text| parse_header(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let kind = match args.transport.as_deref() {
        Some(kind) => kind,
        None if target.starts_with("ws:") || target.starts_with("wss:") => "ws",
        None => "http",
    };
    Ok(Json::object(|out| {
        out.str("type", kind).str("url", target);
        if !headers.is_empty() {
            out.object("headers", |out| {
                for (name, value) in &headers {
                    out.str(name, value);
                }
            });
        }
    }))
}

/// `NAME=value`, or `NAME` for a reference to the variable.
fn parse_env(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => (text, format!("${{{text}}}")),
    };
    let is_name = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !is_name {
        bail!("--env: `{name}` is not a valid variable name");
    }
    Ok((name.to_owned(), value))
}

fn parse_header(text: &str) -> anyhow::Result<(String, String)> {
    // The value may be a secret, so no error repeats it.
    let Some((name, value)) = text.split_once(':') else {
        bail!("--header: expected the form \"Name: value\"");
    };
    let is_name = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || !name.bytes().all(is_name) {
        bail!("--header: a name may contain only letters, digits and `-`");
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

pub(super) fn remove(args: &RemoveArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&[])?;
    let scope = match args.scope {
        Some(scope) => scope,
        None => {
            let server = context.find(&args.name)?;
            let source = &server.source;
            let is_own = Some(&source.path) == context.places.own_file().as_ref();
            match source.scope {
                ConfigScope::User if is_own => Scope::User,
                ConfigScope::Local if is_own => Scope::Local,
                ConfigScope::Project if source.path == context.places.project_file() => Scope::Project,
                ConfigScope::User
                | ConfigScope::Local
                | ConfigScope::Project
                | ConfigScope::Run
                | ConfigScope::Dynamic => bail!(
                    "`{}` is in {}, which belongs to {}; remove it there, or run `spile mcp disable {}`",
                    args.name,
                    source.path.display(),
                    source.dialect.name(),
                    args.name
                ),
            }
        }
    };
    let mut file = OwnFile::new(&context, scope)?;
    if scope == Scope::Local
        && let Some(server) = context.configuration.find(&args.name)
        && let Some(key) = &server.source.project_key
    {
        // The server may have been added in a folder above this one.
        file.keys[1] = key.clone();
    }
    let text = file.read()?;
    let shown = file.path.display();
    match jsonc::remove_member(&text, &file.key_path(&args.name)) {
        Ok(Some(text)) => file.write(&text)?,
        Ok(None) => bail!("`{}` is not in {shown}", args.name),
        Err(error) => return Err(file.jsonc_error(error)),
    }
    notice(&format!("removed `{}` from {shown}", args.name));
    let context = ServerContext::load(&[])?;
    if let Some(server) = context.configuration.find(&args.name) {
        notice(&format!("note: `{}` of {} takes its place", args.name, server.source.label()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn include(args: &IncludeArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&[])?;
    let imported = context.places.imports();
    if args.clients.is_empty() {
        for client in ImportedClient::ALL {
            let Some(path) = client.user_file(&context.places) else { continue };
            let state = match (imported.contains(&client), path.is_file()) {
                (true, _) => "included",
                (false, true) => "found; not included",
                (false, false) => "not found",
            };
            crate::print(&format!("{}: {state} ({})\n", client.name(), path.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let named: Vec<ImportedClient> =
        args.clients.iter().filter_map(|name| ImportedClient::parse(name)).collect();
    let mut wanted: Vec<ImportedClient> =
        imported.iter().copied().filter(|client| !args.remove || !named.contains(client)).collect();
    if !args.remove {
        wanted.extend(&named);
    }
    wanted.sort_unstable();
    wanted.dedup();
    let mut list = Vec::new();
    json::write::array(&mut list, &wanted, |out, client| json::write::string(out, client.name()));
    let file = OwnFile::new(&context, Scope::User)?;
    let text = file.read()?;
    match jsonc::set_member(&text, &["import"], &Json::from_written_bytes(list), true) {
        Ok(SetOutcome::Changed(text)) => file.write(&text)?,
        Ok(SetOutcome::Unchanged | SetOutcome::Conflict) => {}
        Err(error) => return Err(file.jsonc_error(error)),
    }
    let context = ServerContext::load(&[])?;
    for client in named {
        if args.remove {
            notice(&format!("the servers of {} are no longer included", client.name()));
            continue;
        }
        let sources = context.configuration.sources.iter();
        let count: usize =
            sources.filter(|(source, _)| source.dialect == client.dialect()).map(|(_, count)| count).sum();
        let count = pluralize(count as u64, "server");
        notice(&format!("included {}: {count} at present", client.name()));
    }
    Ok(ExitCode::SUCCESS)
}
