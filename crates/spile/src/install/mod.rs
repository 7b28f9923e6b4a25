//! `spile install` and `spile uninstall`: add a server to an MCP client's settings file, and remove it.
//!
//! The file belongs to the user: a backup is kept, everything else in it stays as it is, comments included. A file that
//! is read-only or cannot be parsed is not changed.

mod clients;
mod entry;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use contract::humanize::join_truncated;
use contract::nearest;

use crate::atomic_file::{self, FileMode};
use crate::{notice, sanitize};
pub use clients::Client;
use clients::{ConfigFile, Scope};
use entry::NewEntry;

#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The MCP client
    client: Client,
    /// A data file, a spile.toml, a folder of them, or an executable from `spile pack`
    #[arg(default_value = ".", conflicts_with = "url")]
    path: PathBuf,
    /// Install the server at this address instead of a file (http: or https:)
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Have the client send this header to the address; can be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// The server's name in the client; the default is the server's own name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Install for this user, or for everyone who works on the project in the current folder
    #[arg(long, value_enum, default_value_t = Scope::User)]
    scope: Scope,
    /// Pass this environment variable to the server, with its current value or VALUE; can be repeated
    #[arg(long, value_name = "NAME[=VALUE]", conflicts_with = "url")]
    env: Vec<String>,
    /// The client's settings file, if it is not in its usual place
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Replace a different entry of the same name
    #[arg(long)]
    force: bool,
    /// Print the entry and its file, and change nothing
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// The MCP client
    client: Client,
    /// The server's name in the client, or the path or address that was installed
    #[arg(default_value = ".")]
    server: String,
    /// Uninstall for this user, or for the project in the current folder
    #[arg(long, value_enum, default_value_t = Scope::User)]
    scope: Scope,
    /// The client's settings file, if it is not in its usual place
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

pub fn run(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let config = args.client.config_file(args.scope, args.settings.as_deref())?;
    let entry = NewEntry::from_args(args)?;
    if args.print {
        let text = config.with_entry("", &entry, true)?.unwrap_or_default();
        writeln!(std::io::stdout(), "{}", sanitize::json(text.trim_end()))?;
        print_stderr(&format!("add this to {}", config.path.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let before = read_config(&config.path)?;
    let text = before.as_deref().unwrap_or_default();
    let Some(after) = config.with_entry(text, &entry, args.force)? else {
        print_stderr(&format!("`{}` is already in {}", entry.name, config.path.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let backup = write_config(&config.path, &after)?;
    print_stderr(&format!("added `{}` to {}", entry.name, config.path.display()));
    print_backup(backup.as_deref());
    print_stderr(args.client.after_install());
    Ok(ExitCode::SUCCESS)
}

pub fn uninstall(args: &UninstallArgs) -> anyhow::Result<ExitCode> {
    let config = args.client.config_file(args.scope, args.settings.as_deref())?;
    let file = config.path.display();
    let Some(text) = read_config(&config.path)? else { bail!("no server is installed: `{file}` not found") };
    let name = installed_name(&config, &text, &args.server)?;
    let Some(after) = config.without_entry(&text, &name)? else {
        bail!("`{name}` is not in {file}");
    };
    let backup = write_config(&config.path, &after)?;
    print_stderr(&format!("removed `{name}` from {file}"));
    print_backup(backup.as_deref());
    print_stderr(args.client.after_uninstall());
    Ok(ExitCode::SUCCESS)
}

/// The entry that has this name, or else the only one that starts this path or connects to this address. The path
/// need not exist any more.
fn installed_name(config: &ConfigFile, text: &str, server: &str) -> anyhow::Result<String> {
    let file = config.path.display();
    let entries = config.entries(text)?;
    if let Some(named) = entries.iter().find(|entry| entry.name == server) {
        return Ok(named.name.clone());
    }
    let spellings = entry::spellings(server)?;
    let matching: Vec<&str> =
        entries.iter().filter(|entry| entry.is_for(&spellings)).map(|entry| entry.name.as_str()).collect();
    match &*matching {
        [only] => Ok((*only).to_owned()),
        [] => {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            match nearest(server, names.iter().copied()) {
                Some(near) => bail!("no server `{server}` in {file}; did you mean `{near}`?"),
                None if names.is_empty() => bail!("no server `{server}` in {file}; it has no servers"),
                None => {
                    bail!("no server `{server}` in {file}; known servers: {}", join_truncated(&names, 12))
                }
            }
        }
        several => {
            bail!("{file} has several servers for `{server}`; name one of {}", join_truncated(several, 12))
        }
    }
}

fn print_stderr(text: &str) {
    notice::info(&sanitize::lines(text));
}

fn print_backup(backup: Option<&Path>) {
    if let Some(backup) = backup {
        print_stderr(&format!("backup: {}", backup.display()));
    }
}

pub(crate) fn read_config(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read(file) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => bail!("`{}` is not UTF-8 text; the file was not changed", file.display()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", file.display())),
    }
}

/// Replaces the file, and returns the backup of an older one.
fn write_config(file: &Path, text: &str) -> anyhow::Result<Option<PathBuf>> {
    ensure_writable(file)?;
    let backup = file.exists().then(|| back_up(file)).transpose()?;
    atomic_file::create_parent_dir(file)?;
    atomic_file::write(file, text.as_bytes(), FileMode::PreserveOrPrivate)?;
    Ok(backup)
}

/// Replacing a file needs only permission to write its folder, so an owner's `chmod a-w` would have no effect.
pub(crate) fn ensure_writable(file: &Path) -> anyhow::Result<()> {
    let Ok(metadata) = std::fs::metadata(file) else { return Ok(()) };
    let is_denied = || {
        let opened = std::fs::OpenOptions::new().write(true).open(file);
        opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    // The bits are checked too, because root may write everything.
    if metadata.permissions().readonly() || is_denied() {
        bail!("`{}` is read-only; the file was not changed", file.display());
    }
    Ok(())
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
