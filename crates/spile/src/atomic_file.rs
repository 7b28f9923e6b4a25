//! Files that are written whole or not at all.

use std::fs::Permissions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::{Builder, NamedTempFile};

/// Who may do what with a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileMode<'a> {
    /// As a file that is replaced was; nobody else's business where there was none.
    PreserveOrPrivate,
    /// As a file that is replaced was; as programs usually leave files where there was none.
    PreserveOrUmask,
    /// As this one.
    SameAs(&'a Path),
    /// As programs usually leave files.
    Umask,
    /// To be run.
    Executable,
}

/// Puts these bytes at a path. Whoever looks sees what was there before or all of this. A device or a pipe is
/// nothing that could be replaced: it is written to.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: FileMode<'_>) -> anyhow::Result<()> {
    if is_special_file(path) {
        return std::fs::write(path, bytes)
            .with_context(|| format!("`{}` cannot be written", path.display()));
    }
    write_with(path, mode, |file| Ok(file.write_all(bytes)?))
}

/// Puts at a path what `fill` writes; what goes wrong there is told in its own words.
pub(crate) fn write_with(
    path: &Path,
    mode: FileMode<'_>,
    fill: impl FnOnce(&mut NamedTempFile) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    ensure!(!is_special_file(path), "`{}` is a device or a pipe; name a file", path.display());
    let unwritten = || format!("`{}` cannot be written", path.display());
    // A link that somebody made stays one.
    let to = std::fs::canonicalize(path).unwrap_or_else(|_| resolve_symlink(path));
    let mut temporary = create_temp_file(&to, mode).with_context(unwritten)?;
    fill(&mut temporary)?;
    let kept = || {
        temporary.as_file().sync_all()?;
        temporary.persist(&to).map_err(|error| error.error)?;
        sync_dir(&parent_dir(&to))
    };
    kept().with_context(unwritten)
}

/// Makes the folder that a file is to be in.
pub(crate) fn create_parent_dir(path: &Path) -> anyhow::Result<()> {
    let folder = parent_dir(path);
    std::fs::create_dir_all(&folder).with_context(|| format!("`{}` cannot be made", folder.display()))
}

/// The same for a path where nothing may be yet.
pub(crate) fn create_new(path: &Path, bytes: &[u8], mode: FileMode<'_>) -> io::Result<()> {
    let mut temporary = create_temp_file(path, mode)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    temporary.persist_noclobber(path).map_err(|error| error.error)?;
    sync_dir(&parent_dir(path))
}

/// Where a link leads, also if nothing is there yet.
fn resolve_symlink(path: &Path) -> PathBuf {
    match std::fs::read_link(path) {
        Ok(to) => parent_dir(path).join(to),
        Err(_) => path.to_owned(),
    }
}

/// Something is there that is neither a file nor a folder.
fn is_special_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|what| !what.is_file() && !what.is_dir())
}

fn create_temp_file(path: &Path, mode: FileMode<'_>) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    let permissions = match mode {
        FileMode::PreserveOrPrivate | FileMode::PreserveOrUmask => {
            std::fs::metadata(path).ok().map(|what| what.permissions())
        }
        FileMode::SameAs(other) => Some(std::fs::metadata(other)?.permissions()),
        FileMode::Umask | FileMode::Executable => None,
    };
    // What a new file may be is for the user's mask to say; a temporary file is private if nothing is said.
    let asked = match mode {
        FileMode::Executable => permissions_from_mode(0o777),
        FileMode::Umask | FileMode::PreserveOrUmask => permissions_from_mode(0o666),
        FileMode::PreserveOrPrivate | FileMode::SameAs(_) => None,
    };
    if let Some(asked) = asked.filter(|_| permissions.is_none()) {
        builder.permissions(asked);
    }
    let made = builder.prefix(".spile-").suffix(".tmp").tempfile_in(parent_dir(path));
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
fn permissions_from_mode(bits: u32) -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    Some(Permissions::from_mode(bits))
}

#[cfg(not(unix))]
fn permissions_from_mode(_: u32) -> Option<Permissions> {
    None
}

fn parent_dir(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(unix)]
fn sync_dir(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_dir(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{FileMode, create_new, write, write_with};

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_is_what_other_programs_would_have_made_and_an_old_one_stays_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("theirs"), "").expect("a file");
        let usual = mode_of(&at("theirs"));
        write(&at("new"), b"a", FileMode::Umask).expect("it is written");
        assert_eq!(mode_of(&at("new")), usual);
        write(&at("private"), b"a", FileMode::PreserveOrPrivate).expect("it is written");
        assert_eq!(mode_of(&at("private")), 0o600);
        write(&at("private"), b"b", FileMode::PreserveOrUmask).expect("it is written");
        assert_eq!(mode_of(&at("private")), 0o600);
        write(&at("run"), b"a", FileMode::Executable).expect("it is written");
        assert_eq!(mode_of(&at("run")) & 0o100, 0o100);
        create_new(&at("like"), b"a", FileMode::SameAs(&at("private"))).expect("it is written");
        assert_eq!(mode_of(&at("like")), 0o600);
        let taken = create_new(&at("like"), b"b", FileMode::Umask).expect_err("it is there");
        assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_link_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("elsewhere", at("link")).expect("a link");
        for text in ["a", "b"] {
            write(&at("link"), text.as_bytes(), FileMode::Umask).expect("it is written");
            assert_eq!(std::fs::read_to_string(at("elsewhere")).expect("a file"), text);
        }
        assert!(std::fs::symlink_metadata(at("link")).expect("it is there").is_symlink());
    }

    #[test]
    fn a_device_is_written_to_and_never_replaced() {
        let null = Path::new("/dev/null");
        write(null, b"a", FileMode::Umask).expect("it takes everything");
        let why = write_with(null, FileMode::Umask, |_| Ok(())).expect_err("it is no file");
        assert_eq!(why.to_string(), "`/dev/null` is a device or a pipe; name a file");
        assert!(!std::fs::metadata(null).expect("it is there").is_file());
    }
}
