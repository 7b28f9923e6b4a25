//! `spile install`: adds a server to an MCP client's settings file.
//!
//! The file belongs to the user: a backup is kept, everything else in it stays as it is, comments included, and a
//! file that cannot be parsed is not changed.

mod clients;
mod jsonc;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use json::Json;

use crate::atomic_file::{self, FileMode};
use crate::banner::{client_name, is_client_name_char};
use crate::project::{Project, not_found};
pub use clients::Client;
use clients::Scope;

#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The MCP client
    client: Client,
    /// A data file, a spile.toml, a folder of them, or an executable from `spile pack`
    #[arg(default_value = ".")]
    path: PathBuf,
    /// The server's name in the client; the default is the server's own name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Install for this user, or only for the project in the current folder
    #[arg(long, value_enum, default_value_t = Scope::User)]
    scope: Scope,
    /// Pass this environment variable to the server, with its current value or VALUE; may be repeated
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The client's settings file, if it is not in its usual place
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Replace a different entry of the same name
    #[arg(long)]
    force: bool,
    /// Print the entry and its file, and change nothing
    #[arg(long)]
    print: bool,
}

/// A server's entry in a settings file.
struct ServerEntry {
    name: String,
    command: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

pub fn run(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let config = args.client.config_file(args.scope, args.config.as_deref())?;
    let entry = ServerEntry::from_args(args)?;
    if args.print {
        let text = config.with_entry("", &entry, true)?.unwrap_or_default();
        writeln!(std::io::stdout(), "{}", text.trim_end())?;
        writeln!(std::io::stderr(), "add this to {}", config.path.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = read_config(&config.path)?;
    let text = before.as_deref().unwrap_or_default();
    let Some(after) = config.with_entry(text, &entry, args.force)? else {
        print_stderr(&format!("`{}` is already in {}", entry.name, config.path.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let backup = before.map(|_| back_up(&config.path)).transpose()?;
    atomic_file::create_parent_dir(&config.path)?;
    atomic_file::write(&config.path, after.as_bytes(), FileMode::PreserveOrPrivate)?;
    print_stderr(&format!("added `{}` to {}", entry.name, config.path.display()));
    if let Some(backup) = backup {
        print_stderr(&format!("backup: {}", backup.display()));
    }
    print_stderr(args.client.next_step());
    Ok(ExitCode::SUCCESS)
}

fn print_stderr(text: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn read_config(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read(file) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => bail!("`{}` is not UTF-8 text; the file was not changed", file.display()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", file.display())),
    }
}

/// Copies the file to a name that is free: an older backup may still be needed.
fn back_up(file: &Path) -> anyhow::Result<PathBuf> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 0..1000 {
        let ending = if number == 0 { "bak".to_owned() } else { format!("bak.{number}") };
        let copy = file.with_file_name(format!("{name}.{ending}"));
        let bytes = std::fs::read(file)?;
        match atomic_file::create_new(&copy, &bytes, FileMode::SameAs(file)) {
            Ok(()) => return Ok(copy),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write `{}`", copy.display()));
            }
        }
    }
    bail!("`{}` has a thousand backups; delete some", file.display())
}

impl ServerEntry {
    fn from_args(args: &InstallArgs) -> anyhow::Result<Self> {
        let absolute = args.path.canonicalize().map_err(|error| not_found::path_error(&args.path, error))?;
        let path = absolute.to_str().with_context(|| {
            format!("`{}` is not UTF-8, and settings files are; rename it", absolute.display())
        })?;
        let variables =
            args.env.iter().map(|text| parse_variable(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let (own_name, command, arguments, required) = match crate::pack::read_packed_metadata(&absolute)? {
            Some(metadata) => (metadata.name, path.to_owned(), Vec::new(), metadata.variables),
            None => {
                let scan = Project::find(&args.path)?.scan()?;
                crate::print_diagnostics(&scan.diagnostics);
                let Some(compiled) = scan.compiled else {
                    bail!("`{}` cannot be served; fix the errors above", args.path.display())
                };
                let program = std::env::current_exe().context("cannot determine the path of this program")?;
                let program = program.to_str().context("the path of this program is not UTF-8")?;
                let required = scan.variables.into_iter().collect();
                (
                    compiled.contract.name,
                    program.to_owned(),
                    vec!["serve".to_owned(), path.to_owned()],
                    required,
                )
            }
        };
        for name in required {
            if !variables.iter().any(|(given, _)| *given == name) {
                print_stderr(&format!(
                    "note: the manifest reads ${{{name}}}, and clients pass only a few variables to servers; add --env {name}"
                ));
            }
        }
        let name = match &args.name {
            Some(name) if name.is_empty() || !name.chars().all(is_client_name_char) => {
                bail!("--name: use only ASCII letters, digits, `-` and `_`")
            }
            Some(name) => name.clone(),
            None => client_name(&own_name),
        };
        Ok(Self { name, command, arguments, variables })
    }

    fn to_json(&self, has_type: bool) -> Json {
        Json::object(|entry| {
            if has_type {
                entry.str("type", "stdio");
            }
            entry.str("command", &self.command);
            entry.array("args", &self.arguments, |out, one| json::write::string(out, one));
            if !self.variables.is_empty() {
                entry.object("env", |env| {
                    for (name, value) in &self.variables {
                        env.str(name, value);
                    }
                });
            }
        })
    }
}

fn parse_variable(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => match std::env::var(text) {
            Ok(value) => (text, value),
            Err(_) => bail!("--env {text}: the variable is not set; use --env {text}=VALUE"),
        },
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        bail!("--env: `{name}` is not a valid variable name");
    }
    Ok((name.to_owned(), value))
}
