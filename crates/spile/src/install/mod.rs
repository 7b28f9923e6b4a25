//! `spile install`: tells an MCP client where a server is, in the client's own settings file.
//!
//! The file belongs to somebody: a copy of it is kept, everything else in it stays as it is, comments too, and
//! what cannot be read is not touched.

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
    /// Which client
    client: Client,
    /// What `serve` takes, or an executable that `pack` made
    #[arg(default_value = ".")]
    path: PathBuf,
    /// What the client calls it; the server's own name if nothing is said
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// For everything that this user does, or for the project in the current folder only
    #[arg(long, value_enum, default_value_t = Scope::User)]
    scope: Scope,
    /// Give the server this variable: its value here, or VALUE; may be repeated
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The client's settings file, where it is not in its usual place
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Replace an entry of the same name that says something else
    #[arg(long)]
    force: bool,
    /// Only show what would be added, and where
    #[arg(long)]
    print: bool,
}

/// How a client starts the server.
struct ServerEntry {
    name: String,
    command: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

pub fn run(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let place = args.client.config_file(args.scope, args.config.as_deref())?;
    let entry = ServerEntry::from_args(args)?;
    if args.print {
        let shown = place.with_entry("", &entry, true)?.unwrap_or_default();
        writeln!(std::io::stdout(), "{}", shown.trim_end())?;
        writeln!(std::io::stderr(), "this goes into {}", place.path.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = read_config(&place.path)?;
    let text = before.as_deref().unwrap_or_default();
    let Some(after) = place.with_entry(text, &entry, args.force)? else {
        print_stderr(&format!("`{}` is in {} already", entry.name, place.path.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let kept = before.map(|_| back_up(&place.path)).transpose()?;
    atomic_file::create_parent_dir(&place.path)?;
    atomic_file::write(&place.path, after.as_bytes(), FileMode::PreserveOrPrivate)?;
    print_stderr(&format!("added `{}` to {}", entry.name, place.path.display()));
    if let Some(kept) = kept {
        print_stderr(&format!("as it was before: {}", kept.display()));
    }
    print_stderr(args.client.next_step());
    Ok(ExitCode::SUCCESS)
}

fn print_stderr(text: &str) {
    // Nobody there to read it is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn read_config(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read(file) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => bail!("`{}` is not text in UTF-8, and was left as it is", file.display()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("`{}` cannot be read", file.display())),
    }
}

/// A copy beside the file, under a name that is free: an older copy may be the one that is needed.
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
                return Err(error).with_context(|| format!("`{}` cannot be written", copy.display()));
            }
        }
    }
    bail!("there are a thousand copies of `{}` already; remove some", file.display())
}

impl ServerEntry {
    fn from_args(args: &InstallArgs) -> anyhow::Result<Self> {
        let absolute = args.path.canonicalize().map_err(|error| not_found::path_error(&args.path, error))?;
        let shown = absolute.to_str().with_context(|| {
            format!("`{}` is not text in UTF-8, and settings files are; rename it", absolute.display())
        })?;
        let variables =
            args.env.iter().map(|said| parse_variable(said)).collect::<anyhow::Result<Vec<_>>>()?;
        let (own_name, command, arguments, needed) = match crate::pack::read_packed_metadata(&absolute)? {
            Some(about) => (about.name, shown.to_owned(), Vec::new(), about.variables),
            None => {
                let looked = Project::find(&args.path)?.scan()?;
                crate::print_diagnostics(&looked.diagnostics);
                let Some(ready) = looked.compiled else { bail!("it cannot be served as it is") };
                let own = std::env::current_exe().context("where this program lies cannot be told")?;
                let own = own.to_str().context("this program lies in a folder whose name is not text")?;
                let needed = looked.variables.into_iter().collect();
                (ready.contract.name, own.to_owned(), vec!["serve".to_owned(), shown.to_owned()], needed)
            }
        };
        for name in needed {
            if !variables.iter().any(|(given, _)| *given == name) {
                print_stderr(&format!(
                    "note: the manifest reads ${{{name}}}, and clients pass few variables on; give it with --env {name}"
                ));
            }
        }
        let name = match &args.name {
            Some(name) if name.is_empty() || !name.chars().all(is_client_name_char) => {
                bail!("--name: use letters without marks, digits, `-` and `_`")
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

fn parse_variable(said: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = match said.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => match std::env::var(said) {
            Ok(value) => (said, value),
            Err(_) => bail!("--env {said}: it is not set here; write --env {said}=VALUE"),
        },
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        bail!("--env: `{name}` is not the name of a variable");
    }
    Ok((name.to_owned(), value))
}
