//! Files that are written whole or not at all.

use std::fs::Permissions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::{Builder, NamedTempFile};

/// Who may do what with a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode<'a> {
    /// As a file that is replaced was; nobody else's business where there was none.
    AsItWasOrPrivate,
    /// As a file that is replaced was; as programs usually leave files where there was none.
    AsItWasOrUsual,
    /// As this one.
    Like(&'a Path),
    /// As programs usually leave files.
    Usual,
    /// To be run.
    Executable,
}

/// Puts these bytes at a path. Whoever looks sees what was there before or all of this. A device or a pipe is
/// nothing that could be replaced: it is written to.
pub(crate) fn file(path: &Path, bytes: &[u8], mode: Mode<'_>) -> anyhow::Result<()> {
    if is_other(path) {
        return std::fs::write(path, bytes)
            .with_context(|| format!("`{}` cannot be written", path.display()));
    }
    with(path, mode, |file| Ok(file.write_all(bytes)?))
}

/// Puts at a path what `fill` writes; what goes wrong there is told in its own words.
pub(crate) fn with(
    path: &Path,
    mode: Mode<'_>,
    fill: impl FnOnce(&mut NamedTempFile) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    ensure!(!is_other(path), "`{}` is a device or a pipe; name a file", path.display());
    let unwritten = || format!("`{}` cannot be written", path.display());
    // A link that somebody made stays one.
    let to = std::fs::canonicalize(path).unwrap_or_else(|_| led_to(path));
    let mut temporary = temporary(&to, mode).with_context(unwritten)?;
    fill(&mut temporary)?;
    let kept = || {
        temporary.as_file().sync_all()?;
        temporary.persist(&to).map_err(|error| error.error)?;
        sync_folder(&folder(&to))
    };
    kept().with_context(unwritten)
}

/// Makes the folder that a file is to be in.
pub(crate) fn make_folder_of(path: &Path) -> anyhow::Result<()> {
    let folder = folder(path);
    std::fs::create_dir_all(&folder).with_context(|| format!("`{}` cannot be made", folder.display()))
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

/// Something is there that is neither a file nor a folder.
fn is_other(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|what| !what.is_file() && !what.is_dir())
}

fn temporary(path: &Path, mode: Mode<'_>) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    let permissions = match mode {
        Mode::AsItWasOrPrivate | Mode::AsItWasOrUsual => {
            std::fs::metadata(path).ok().map(|what| what.permissions())
        }
        Mode::Like(other) => Some(std::fs::metadata(other)?.permissions()),
        Mode::Usual | Mode::Executable => None,
    };
    // What a new file may be is for the user's mask to say; a temporary file is private if nothing is said.
    let asked = match mode {
        Mode::Executable => of_bits(0o777),
        Mode::Usual | Mode::AsItWasOrUsual => of_bits(0o666),
        Mode::AsItWasOrPrivate | Mode::Like(_) => None,
    };
    if let Some(asked) = asked.filter(|_| permissions.is_none()) {
        builder.permissions(asked);
    }
    let made = builder.prefix(".spile-").suffix(".tmp").tempfile_in(folder(path));
    // Without the name that it would have had.
    let file = made.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("there is no such folder"),
        kind => io::Error::from(kind),
    })?;
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    Ok(file)
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{Mode, file, new_file, with};

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_is_what_other_programs_would_have_made_and_an_old_one_stays_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("theirs"), "").expect("a file");
        let usual = mode_of(&at("theirs"));
        file(&at("new"), b"a", Mode::Usual).expect("it is written");
        assert_eq!(mode_of(&at("new")), usual);
        file(&at("private"), b"a", Mode::AsItWasOrPrivate).expect("it is written");
        assert_eq!(mode_of(&at("private")), 0o600);
        file(&at("private"), b"b", Mode::AsItWasOrUsual).expect("it is written");
        assert_eq!(mode_of(&at("private")), 0o600);
        file(&at("run"), b"a", Mode::Executable).expect("it is written");
        assert_eq!(mode_of(&at("run")) & 0o100, 0o100);
        new_file(&at("like"), b"a", Mode::Like(&at("private"))).expect("it is written");
        assert_eq!(mode_of(&at("like")), 0o600);
        let taken = new_file(&at("like"), b"b", Mode::Usual).expect_err("it is there");
        assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_link_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("elsewhere", at("link")).expect("a link");
        for text in ["a", "b"] {
            file(&at("link"), text.as_bytes(), Mode::Usual).expect("it is written");
            assert_eq!(std::fs::read_to_string(at("elsewhere")).expect("a file"), text);
        }
        assert!(std::fs::symlink_metadata(at("link")).expect("it is there").is_symlink());
    }

    #[test]
    fn a_device_is_written_to_and_never_replaced() {
        let null = Path::new("/dev/null");
        file(null, b"a", Mode::Usual).expect("it takes everything");
        let why = with(null, Mode::Usual, |_| Ok(())).expect_err("it is no file");
        assert_eq!(why.to_string(), "`/dev/null` is a device or a pipe; name a file");
        assert!(!std::fs::metadata(null).expect("it is there").is_file());
    }
}
