//! Writes files completely or not at all: to a temporary file, which then replaces the old one.

use std::fs::Permissions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::{Builder, NamedTempFile};

/// The permissions of a written file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileMode<'a> {
    /// Those of the file it replaces; a new file is private.
    PreserveOrPrivate,
    /// Those of the file it replaces; a new file gets the umask.
    PreserveOrUmask,
    /// Those of this file.
    SameAs(&'a Path),
    /// The usual ones of a new file, by the umask.
    Umask,
    /// Executable, by the umask.
    Executable,
}

/// Writes a file. Readers see the old content or all of the new one. A device or a pipe cannot be replaced and is
/// written to directly.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: FileMode<'_>) -> anyhow::Result<()> {
    if is_special_file(path) {
        return std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()));
    }
    write_with(path, mode, |file| Ok(file.write_all(bytes)?))
}

/// Writes a file with the content that `fill` writes. Errors of `fill` are returned unchanged.
pub(crate) fn write_with(
    path: &Path,
    mode: FileMode<'_>,
    fill: impl FnOnce(&mut NamedTempFile) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    ensure!(!is_special_file(path), "`{}` is a device or a pipe; name a regular file", path.display());
    let write_error = || format!("cannot write `{}`", path.display());
    // A symbolic link stays one: the file that it points to is replaced.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| resolve_symlink(path));
    let mut temporary = create_temp_file(&target, mode).with_context(write_error)?;
    fill(&mut temporary)?;
    let replace = || {
        temporary.as_file().sync_all()?;
        temporary.persist(&target).map_err(|error| error.error)?;
        sync_dir(&parent_dir(&target))
    };
    replace().with_context(write_error)
}

/// Creates the folder of a file.
pub(crate) fn create_parent_dir(path: &Path) -> anyhow::Result<()> {
    let folder = parent_dir(path);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))
}

/// Writes a file that must not exist yet.
pub(crate) fn create_new(path: &Path, bytes: &[u8], mode: FileMode<'_>) -> io::Result<()> {
    let mut temporary = create_temp_file(path, mode)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    temporary.persist_noclobber(path).map_err(|error| error.error)?;
    sync_dir(&parent_dir(path))
}

/// The target of a symbolic link, also if the target does not exist.
fn resolve_symlink(path: &Path) -> PathBuf {
    match std::fs::read_link(path) {
        Ok(target) => parent_dir(path).join(target),
        Err(_) => path.to_owned(),
    }
}

/// Whether the path exists and is neither a regular file nor a folder.
fn is_special_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

fn create_temp_file(path: &Path, mode: FileMode<'_>) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    let permissions = match mode {
        FileMode::PreserveOrPrivate | FileMode::PreserveOrUmask => {
            std::fs::metadata(path).ok().map(|metadata| metadata.permissions())
        }
        FileMode::SameAs(other) => Some(std::fs::metadata(other)?.permissions()),
        FileMode::Umask | FileMode::Executable => None,
    };
    // A temporary file is private by default; a new file gets the permissions that the umask allows.
    let requested = match mode {
        FileMode::Executable => permissions_from_mode(0o777),
        FileMode::Umask | FileMode::PreserveOrUmask => permissions_from_mode(0o666),
        FileMode::PreserveOrPrivate | FileMode::SameAs(_) => None,
    };
    if let Some(requested) = requested.filter(|_| permissions.is_none()) {
        builder.permissions(requested);
    }
    let created = builder.prefix(".spile-").suffix(".tmp").tempfile_in(parent_dir(path));
    // The error of the temporary file would name a path that the user does not know.
    let file = created.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("its folder does not exist"),
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
        std::fs::metadata(path).expect("exists").permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_gets_the_umask_and_a_replaced_one_keeps_its_permissions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("other"), "").expect("a file");
        let usual = mode_of(&path("other"));
        write(&path("new"), b"a", FileMode::Umask).expect("written");
        assert_eq!(mode_of(&path("new")), usual);
        write(&path("private"), b"a", FileMode::PreserveOrPrivate).expect("written");
        assert_eq!(mode_of(&path("private")), 0o600);
        write(&path("private"), b"b", FileMode::PreserveOrUmask).expect("written");
        assert_eq!(mode_of(&path("private")), 0o600);
        write(&path("run"), b"a", FileMode::Executable).expect("written");
        assert_eq!(mode_of(&path("run")) & 0o100, 0o100);
        create_new(&path("like"), b"a", FileMode::SameAs(&path("private"))).expect("written");
        assert_eq!(mode_of(&path("like")), 0o600);
        let error = create_new(&path("like"), b"b", FileMode::Umask).expect_err("exists already");
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_symbolic_link_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("elsewhere", path("link")).expect("a link");
        for text in ["a", "b"] {
            write(&path("link"), text.as_bytes(), FileMode::Umask).expect("written");
            assert_eq!(std::fs::read_to_string(path("elsewhere")).expect("a file"), text);
        }
        assert!(std::fs::symlink_metadata(path("link")).expect("exists").is_symlink());
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        let null = Path::new("/dev/null");
        write(null, b"a", FileMode::Umask).expect("/dev/null takes every write");
        let error = write_with(null, FileMode::Umask, |_| Ok(())).expect_err("not a regular file");
        assert_eq!(error.to_string(), "`/dev/null` is a device or a pipe; name a regular file");
        assert!(!std::fs::metadata(null).expect("exists").is_file());
    }
}
