//! `spile history` and `spile restore`: the backups of a data file from before it was written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use contract::humanize::{group_digits, pluralize};
use contract::source::WriteError;
use host::SystemPlatform;
use source::backups::{self, Backup, LineChanges, RestoreError};
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
    /// A backup as `spile history` lists it, or the beginning of its name; default: the most recent one, which is the file
    /// before the first write of the last day with writes, or before the last restore
    backup: Option<String>,
}

pub fn history(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let backups = find_backups(&args.path)?;
    let shown = shown_path(&args.path);
    if backups.is_empty() {
        print(&format!("`{shown}` has no backups; Spile makes one before the first write of a day\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let now_ms = SystemPlatform::default().now_ms();
    let mut table =
        Table::new(&["backup", "age", "bytes", "changes since"]).fit(0, ColumnFit::Keep).align_right(2);
    for (index, backup) in backups.iter().enumerate() {
        let later = index.checked_sub(1).map(|later| &backups[later]);
        table.rows.push(vec![
            backup.id.clone(),
            format_duration(now_ms.saturating_sub(backup.created_ms)),
            group_digits(backup.bytes),
            changes_text(backup.changes_until(later, &args.path)),
        ]);
    }
    print(&format!("{shown}\n{}", table.render(&OutputStyle::stdout(), 2)))?;
    Ok(ExitCode::SUCCESS)
}

/// Until the next backup, or until now.
fn changes_text(changes: Option<LineChanges>) -> String {
    match changes {
        // Only text files have lines to compare.
        None => "not counted".into(),
        Some(LineChanges { added: 0, removed: 0 }) => "none".into(),
        Some(LineChanges { added, removed }) => {
            format!("{} added, {} removed", pluralize(added, "line"), group_digits(removed))
        }
    }
}

pub fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let backups = find_backups(&args.path)?;
    let shown = shown_path(&args.path);
    let backup = choose_backup(&backups, args.backup.as_deref(), &shown)?;
    let now_ms = SystemPlatform::default().now_ms();
    let undo = match backups::restore(&args.path, backup, now_ms) {
        Ok(undo) => undo,
        Err(RestoreError::Io(error)) => return Err(error).context(format!("cannot restore `{shown}`")),
        Err(RestoreError::Write(WriteError::Source(error))) => {
            let name = args.path.file_name().unwrap_or_default().to_string_lossy();
            bail!("cannot restore `{shown}`: {}", error_message(&error, &name));
        }
        Err(RestoreError::Write(error)) => bail!("cannot restore `{shown}`: {error}"),
    };
    let id = &backup.id;
    notice::info(&match undo {
        Some(undo) => format!("restored `{shown}` from backup {id}; undo with: spile restore {shown} {undo}"),
        None => format!("restored `{shown}` from backup {id}; there was no file to back up before"),
    });
    Ok(ExitCode::SUCCESS)
}

fn choose_backup<'v>(backups: &'v [Backup], wanted: Option<&str>, shown: &str) -> anyhow::Result<&'v Backup> {
    let Some(newest) = backups.first() else { bail!("`{shown}` has no backups") };
    let Some(wanted) = wanted else { return Ok(newest) };
    let matching: Vec<&Backup> =
        backups.iter().filter(|one| !wanted.is_empty() && one.id.starts_with(wanted)).collect();
    let wanted = sanitize::escape_line(wanted);
    match matching[..] {
        [one] => Ok(one),
        [] => bail!("`{shown}` has no backup `{wanted}`; `spile history {shown}` lists them"),
        [first, second, ..] => {
            bail!("`{wanted}` is the beginning of several backups, e.g. `{}` and `{}`", second.id, first.id)
        }
    }
}

fn find_backups(path: &Path) -> anyhow::Result<Vec<Backup>> {
    let shown = shown_path(path);
    let is_manifest = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    if path.is_dir() || is_manifest {
        bail!("`{shown}` is not a data file; name a file that {MANIFEST} or the folder serves");
    }
    match backups::list(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("`{shown}` was not found"),
        backups => backups.with_context(|| format!("cannot read the backups of `{shown}`")),
    }
}

fn shown_path(path: &Path) -> String {
    sanitize::escape_line(&path.display().to_string()).into_owned()
}
