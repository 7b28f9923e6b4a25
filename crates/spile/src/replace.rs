//! Files that are written whole or not at all.

use std::fs::Permissions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::{Builder, NamedTempFile};

/// Who may do what with a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode<'a> {
    /// As a file that is replaced was; nobody else's business where there was none.
    AsItWasOrPrivate,
    /// As this one.
    Like(&'a Path),
    /// As programs usually leave files.
    Usual,
    /// To be run.
    Executable,
}

/// Puts these bytes at a path. Whoever looks sees what was there before or all of this.
pub(crate) fn file(path: &Path, bytes: &[u8], mode: Mode<'_>) -> anyhow::Result<()> {
    with(path, mode, |file| Ok(file.write_all(bytes)?))
}

/// Puts at a path what `fill` writes; what goes wrong there is told in its own words.
pub(crate) fn with(
    path: &Path,
    mode: Mode<'_>,
    fill: impl FnOnce(&mut NamedTempFile) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // A link that somebody made stays one.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| led_to(path));
    let unwritten = || format!("`{}` cannot be written", path.display());
    let mut temporary = temporary(&path, mode).with_context(unwritten)?;
    fill(&mut temporary)?;
    let kept = || {
        temporary.as_file().sync_all()?;
        temporary.persist(&path).map_err(|error| error.error)?;
        sync_folder(&folder(&path))
    };
    kept().with_context(unwritten)
}

/// The same for a path where nothing may be yet.
pub(crate) fn new_file(path: &Path, bytes: &[u8], mode: Mode<'_>) -> io::Result<()> {
    let mut temporary = temporary(path, mode)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    temporary.persist_noclobber(path).map_err(|error| error.error)?;
    sync_folder(&folder(path))
}

/// Where a link leads, also if nothing is there yet.
fn led_to(path: &Path) -> PathBuf {
    match std::fs::read_link(path) {
        Ok(to) => folder(path).join(to),
        Err(_) => path.to_owned(),
    }
}

fn temporary(path: &Path, mode: Mode<'_>) -> io::Result<NamedTempFile> {
    let made = Builder::new().prefix(".spile-").suffix(".tmp").tempfile_in(folder(path));
    // Without the name that it would have had.
    let file = made.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("there is no such folder"),
        kind => io::Error::from(kind),
    })?;
    if let Some(permissions) = permissions(path, mode)? {
        file.as_file().set_permissions(permissions)?;
    }
    Ok(file)
}

/// What is to be set; a temporary file is private already.
fn permissions(path: &Path, mode: Mode<'_>) -> io::Result<Option<Permissions>> {
    match mode {
        Mode::AsItWasOrPrivate => Ok(std::fs::metadata(path).ok().map(|what| what.permissions())),
        Mode::Like(other) => Ok(Some(std::fs::metadata(other)?.permissions())),
        Mode::Usual => Ok(of_bits(0o644)),
        Mode::Executable => Ok(of_bits(0o755)),
    }
}

#[cfg(unix)]
fn of_bits(bits: u32) -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    Some(Permissions::from_mode(bits))
}

#[cfg(not(unix))]
fn of_bits(_: u32) -> Option<Permissions> {
    None
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}
