//! Files that only this user, or the system's administrator, can read and change.
//!
//! Links are followed, and every check is made on the opened file: container platforms mount secrets as links. Files
//! are published and replaced in one step, so a reader sees all of one state or all of another.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use spile_core::Platform;

/// Why a file is not private.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileExposure {
    /// Users other than the owner have access; the permission bits.
    Mode(u32),
    /// It belongs to another user, who can change it.
    ForeignOwner,
}

#[derive(Debug)]
pub(crate) enum OpenProblem {
    Io(io::Error),
    NotAFile,
    Exposed(FileExposure),
}

impl From<io::Error> for OpenProblem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Some file systems lock only files that are open for writing.
    ReadWrite,
}

/// Opens a regular file that is private.
pub(crate) fn open(path: &Path, access: Access) -> Result<(File, Metadata), OpenProblem> {
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite);
    platform::never_wait(&mut options);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) => {
            // Directories and sockets cannot be opened this way; the reason is clearer than the system's.
            let is_other = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
            return Err(if is_other { OpenProblem::NotAFile } else { error.into() });
        }
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(OpenProblem::NotAFile);
    }
    platform::check_private(&metadata).map_err(OpenProblem::Exposed)?;
    Ok((file, metadata))
}

/// Checks a file without opening it. For a file with locks: closing any handle would release those of this process.
pub(crate) fn check(path: &Path) -> Result<(), OpenProblem> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(OpenProblem::NotAFile);
    }
    platform::check_private(&metadata).map_err(OpenProblem::Exposed)
}

/// All bytes of a file, or one more than `bytes_max` if it is larger.
pub(crate) fn read(file: &File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates a folder and those above it that are missing, for this user only.
pub(crate) fn create_dir(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    platform::make_dir_private(&mut builder);
    builder.create(folder)
}

/// Creates a file with this content, complete and on the disk. Fails with [`io::ErrorKind::AlreadyExists`] if there is one.
pub(crate) fn publish(path: &Path, bytes: &[u8], random: &dyn Platform) -> io::Result<()> {
    let temporary = TempFile::create(path, bytes, None, random)?;
    platform::rename_new(&temporary.path, path)?;
    platform::sync_dir(parent(path))
}

/// Replaces a file, keeping its owner and permissions.
pub(crate) fn replace(path: &Path, bytes: &[u8], old: &Metadata, random: &dyn Platform) -> io::Result<()> {
    let temporary = TempFile::create(path, bytes, Some(old), random)?;
    std::fs::rename(&temporary.path, path)?;
    platform::sync_dir(parent(path))
}

pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// A complete file under a name of its own. Removed when dropped, unless it was renamed.
struct TempFile {
    path: PathBuf,
}

impl TempFile {
    fn create(path: &Path, bytes: &[u8], old: Option<&Metadata>, random: &dyn Platform) -> io::Result<Self> {
        let mut suffix = [0; 8];
        random.fill_random(&mut suffix);
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{:016x}.tmp", u64::from_be_bytes(suffix)));
        let path = parent(path).join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        platform::make_private(&mut options);
        let mut file = options.open(&path)?;
        let temporary = Self { path };
        if let Some(old) = old {
            platform::copy_owner_and_mode(&file, old)?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(temporary)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the path still leads to the opened file.
pub(crate) fn is_same_file(path: &Path, metadata: &Metadata) -> bool {
    std::fs::metadata(path).is_ok_and(|there| platform::is_same(&there, metadata))
}

#[cfg(unix)]
mod platform {
    use std::fs::{DirBuilder, File, Metadata, OpenOptions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
    use std::path::Path;

    use rustix::fs::OFlags;
    use rustix::process::geteuid;

    use super::FileExposure;

    const OTHERS: u32 = 0o077;
    const OTHERS_EXCEPT_GROUP_READ: u32 = 0o037;

    pub(super) fn check_private(metadata: &Metadata) -> Result<(), FileExposure> {
        check_owner_and_mode(geteuid().as_raw(), metadata.uid(), metadata.mode() & 0o7777)
    }

    /// The rule of PostgreSQL for its keys. A file of this user is for this user alone. A file of the administrator may
    /// also be readable for a group, because that is how a service gets a secret that it must not change.
    pub(super) fn check_owner_and_mode(me: u32, owner: u32, mode: u32) -> Result<(), FileExposure> {
        let forbidden = match owner {
            0 => OTHERS_EXCEPT_GROUP_READ,
            // The administrator may look after the file of a service.
            owner if me == 0 || owner == me => OTHERS,
            _ => return Err(FileExposure::ForeignOwner),
        };
        if mode & forbidden == 0 { Ok(()) } else { Err(FileExposure::Mode(mode)) }
    }

    /// Opening a pipe would wait for its other end.
    pub(super) fn never_wait(options: &mut OpenOptions) {
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    }

    pub(super) fn make_private(options: &mut OpenOptions) {
        options.mode(0o600);
    }

    pub(super) fn make_dir_private(builder: &mut DirBuilder) {
        builder.mode(0o700);
    }

    pub(super) fn copy_owner_and_mode(new: &File, old: &Metadata) -> io::Result<()> {
        let is = new.metadata()?;
        if (is.uid(), is.gid()) != (old.uid(), old.gid()) {
            fchown(new, Some(old.uid()), Some(old.gid()))?;
        }
        new.set_permissions(old.permissions())
    }

    pub(super) fn is_same(a: &Metadata, b: &Metadata) -> bool {
        (a.dev(), a.ino()) == (b.dev(), b.ino())
    }

    /// Renames a file to a name that is not taken.
    pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            use rustix::io::Errno;
            match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                // The file system cannot do it.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                renamed => return Ok(renamed?),
            }
        }
        std::fs::hard_link(from, to)
    }

    pub(super) fn sync_dir(folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

#[cfg(not(unix))]
mod platform {
    use std::fs::{DirBuilder, File, Metadata, OpenOptions};
    use std::io;
    use std::path::Path;

    use super::FileExposure;

    /// The folder of a user's state is private by its access control list.
    pub(super) fn check_private(_: &Metadata) -> Result<(), FileExposure> {
        Ok(())
    }

    pub(super) fn never_wait(_: &mut OpenOptions) {}

    pub(super) fn make_private(_: &mut OpenOptions) {}

    pub(super) fn make_dir_private(_: &mut DirBuilder) {}

    pub(super) fn copy_owner_and_mode(_: &File, _: &Metadata) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn is_same(a: &Metadata, b: &Metadata) -> bool {
        (a.len(), a.modified().ok()) == (b.len(), b.modified().ok())
    }

    pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    /// A rename is as durable as the platform makes it.
    pub(super) fn sync_dir(_: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::FileExposure;
    use super::platform::check_owner_and_mode;

    #[test]
    fn a_private_file_belongs_to_this_user_or_to_the_administrator() {
        const ME: u32 = 1000;
        let open = |mode| Err(FileExposure::Mode(mode));
        for (me, owner, mode, expected) in [
            (ME, ME, 0o600, Ok(())),
            (ME, ME, 0o400, Ok(())),
            (ME, ME, 0o640, open(0o640)),
            (ME, ME, 0o602, open(0o602)),
            (ME, ME, 0o604, open(0o604)),
            (ME, 0, 0o440, Ok(())),
            (ME, 0, 0o640, Ok(())),
            (ME, 0, 0o660, open(0o660)),
            (ME, 0, 0o644, open(0o644)),
            (ME, 1001, 0o600, Err(FileExposure::ForeignOwner)),
            (ME, 1001, 0o644, Err(FileExposure::ForeignOwner)),
            (0, ME, 0o600, Ok(())),
            (0, ME, 0o640, open(0o640)),
            (0, 0, 0o400, Ok(())),
        ] {
            assert_eq!(check_owner_and_mode(me, owner, mode), expected, "{me} {owner} {mode:o}");
        }
    }
}
