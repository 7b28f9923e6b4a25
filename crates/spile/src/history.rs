//! `spile history` and `spile restore`: the copies of a data file from before it was written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use contract::humanize::{group_digits, pluralize};
use contract::source::WriteError;
use host::SystemPlatform;
use source::backups::{self, LineChanges, RestoreError, Version};
use spile_core::Platform;

use crate::client::output_style::OutputStyle;
use crate::keys::format_duration;
use crate::layout::{ColumnFit, Table};
use crate::project::{MANIFEST, error_message};
use crate::report::print;
use crate::{notice, sanitize};

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// A data file that Spile has written
    path: PathBuf,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// A data file that Spile has written
    path: PathBuf,
    /// A version as `spile history` lists it, or its beginning; default: the newest
    version: Option<String>,
}

pub fn history(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let versions = find_versions(&args.path)?;
    let shown = shown_path(&args.path);
    if versions.is_empty() {
        print(&format!(
            "`{shown}` has no earlier versions; Spile keeps one before the first write of a day\n"
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let now_ms = SystemPlatform::default().now_ms();
    let mut table =
        Table::new(&["version", "age", "bytes", "changes since"]).fit(0, ColumnFit::Keep).align_right(2);
    for (index, version) in versions.iter().enumerate() {
        let later = index.checked_sub(1).map(|later| &versions[later]);
        table.rows.push(vec![
            version.id.clone(),
            format_duration(now_ms.saturating_sub(version.created_ms)),
            group_digits(version.bytes),
            changes_text(version.changes_until(later, &args.path)),
        ]);
    }
    print(&format!("{shown}\n{}", table.render(&OutputStyle::stdout(), 2)))?;
    Ok(ExitCode::SUCCESS)
}

/// Until the next version, or until now.
fn changes_text(changes: Option<LineChanges>) -> String {
    match changes {
        None => String::new(),
        Some(LineChanges { added: 0, removed: 0 }) => "none".into(),
        Some(LineChanges { added, removed }) => {
            format!("{} added, {} removed", pluralize(added, "line"), group_digits(removed))
        }
    }
}

pub fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let versions = find_versions(&args.path)?;
    let shown = shown_path(&args.path);
    let version = choose_version(&versions, args.version.as_deref(), &shown)?;
    let now_ms = SystemPlatform::default().now_ms();
    let undo = match backups::restore(&args.path, version, now_ms) {
        Ok(undo) => undo,
        Err(RestoreError::Io(error)) => return Err(error).context(format!("cannot restore `{shown}`")),
        Err(RestoreError::Write(WriteError::Source(error))) => {
            let name = args.path.file_name().unwrap_or_default().to_string_lossy();
            bail!("cannot restore `{shown}`: {}", error_message(&error, &name));
        }
        Err(RestoreError::Write(error)) => bail!("cannot restore `{shown}`: {error}"),
    };
    let id = &version.id;
    notice::info(&match undo {
        Some(undo) => format!("`{shown}` is version {id} again; `spile restore {shown} {undo}` undoes this"),
        None => format!("`{shown}` is version {id}; there was nothing to keep from before"),
    });
    Ok(ExitCode::SUCCESS)
}

fn choose_version<'v>(
    versions: &'v [Version],
    wanted: Option<&str>,
    shown: &str,
) -> anyhow::Result<&'v Version> {
    let Some(newest) = versions.first() else { bail!("`{shown}` has no earlier versions to restore") };
    let Some(wanted) = wanted else { return Ok(newest) };
    let matching: Vec<&Version> =
        versions.iter().filter(|one| !wanted.is_empty() && one.id.starts_with(wanted)).collect();
    let wanted = sanitize::escape_line(wanted);
    match matching[..] {
        [one] => Ok(one),
        [] => bail!("`{shown}` has no version `{wanted}`; `spile history {shown}` lists them"),
        [first, second, ..] => {
            bail!("`{wanted}` is the beginning of several versions, e.g. `{}` and `{}`", second.id, first.id)
        }
    }
}

fn find_versions(path: &Path) -> anyhow::Result<Vec<Version>> {
    let shown = shown_path(path);
    let is_manifest = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    if path.is_dir() || is_manifest {
        bail!("`{shown}` is not a data file; name a file that {MANIFEST} or the folder serves");
    }
    match backups::versions(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("`{shown}` was not found"),
        versions => versions.with_context(|| format!("cannot read the versions of `{shown}`")),
    }
}

fn shown_path(path: &Path) -> String {
    sanitize::escape_line(&path.display().to_string()).into_owned()
}
