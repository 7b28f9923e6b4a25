//! The file to write: resolved through links, read whole, and compared before it is replaced.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use contract::source::SourceError;

use super::{WRITABLE_BYTES_MAX, error};

/// The resolved path of the file.
pub(super) struct TargetFile {
    path: PathBuf,
    folder: PathBuf,
    /// The name in messages: the one in the configured path, which may be a link.
    file_name: String,
}

/// One state of the file.
pub(super) struct FileState {
    pub(super) bytes: Vec<u8>,
    pub(super) metadata: Metadata,
    pub(super) file: File,
}

const CHUNK_BYTES: usize = 64 << 10;

impl TargetFile {
    pub(super) fn resolve(path: &Path) -> Result<Self, SourceError> {
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let found = std::fs::canonicalize(path);
        let found = found.map_err(|error| error::io_write_error(&file, path, "finding it", &error))?;
        let folder = found.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self { path: found, folder, file_name: file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file_name(&self) -> &str {
        &self.file_name
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// `.customers.csv.spile-…`
    pub(super) fn sidecar_path(&self, rest: &str) -> PathBuf {
        let mut name = self.sidecar_prefix();
        name.push(rest);
        self.folder.join(name)
    }

    pub(super) fn sidecar_prefix(&self) -> std::ffi::OsString {
        let mut name = std::ffi::OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".spile-");
        name
    }

    pub(super) fn check_writable(&self) -> Result<(), SourceError> {
        match self.read_only_reason() {
            None => Ok(()),
            Some(reason) => {
                let message = format!("cannot write `{}`, nothing was changed: {reason}", self.file_name);
                Err(SourceError::Unavailable {
                    message,
                    detail: format!("{}: {reason}", self.path.display()),
                })
            }
        }
    }

    /// Why the file must not be replaced. A write must change nothing but the bytes.
    pub(super) fn read_only_reason(&self) -> Option<String> {
        let metadata = match std::fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) => {
                return Some(
                    error::io_write_error(&self.file_name, &self.path, "checking it", &error).to_string(),
                );
            }
        };
        if !metadata.is_file() {
            return Some("it is not a file".into());
        }
        if metadata.len() > WRITABLE_BYTES_MAX {
            return Some(format!("it is larger than {} MB", WRITABLE_BYTES_MAX >> 20));
        }
        // Root could write it anyway; but its owner marked it.
        if metadata.permissions().readonly() {
            return Some("it is marked read-only".into());
        }
        platform::read_only_reason(self, &metadata)
    }

    pub(super) fn read(&self) -> Result<FileState, SourceError> {
        let to_error = |error: io::Error| error::write_error(self, "reading it", &error);
        let mut file = File::open(&self.path).map_err(to_error)?;
        let metadata = file.metadata().map_err(to_error)?;
        let mut bytes = Vec::new();
        // One byte more, so that `read_to_end` sees the end without growing the buffer.
        bytes.reserve_exact(usize::try_from(metadata.len().min(WRITABLE_BYTES_MAX)).unwrap_or(0) + 1);
        (&mut file).take(WRITABLE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(to_error)?;
        if bytes.len() as u64 > WRITABLE_BYTES_MAX {
            return Err(error::busy_error(&self.path, "it grows while it is read"));
        }
        Ok(FileState { bytes, metadata, file })
    }

    /// Other programs do not know our lock: their changes since the file was read must not be overwritten.
    pub(super) fn check_unchanged(&self, path: &Path, before: &FileState) -> Result<(), SourceError> {
        let to_error = |error: io::Error| error::write_error(self, "checking it again", &error);
        let is_there = std::fs::canonicalize(path).map_err(to_error)? == self.path;
        let mut file = File::open(&self.path).map_err(to_error)?;
        let metadata = file.metadata().map_err(to_error)?;
        if is_there
            && platform::is_same(&metadata, &before.metadata)
            && content_equals(&mut file, &before.bytes).map_err(to_error)?
        {
            Ok(())
        } else {
            Err(error::busy_error(&self.path, "another program changed it meanwhile"))
        }
    }

    pub(super) fn sync_folder(&self) -> io::Result<()> {
        platform::sync_folder(&self.folder)
    }
}

fn content_equals(file: &mut File, bytes: &[u8]) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut rest = bytes;
    loop {
        let read = match file.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok(rest.is_empty());
        }
        match rest.strip_prefix(&chunk[..read]) {
            Some(behind) => rest = behind,
            None => return Ok(false),
        }
    }
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    platform::sync_folder(folder)
}

/// Refuses links for files next to the data file.
pub(super) fn no_follow(options: &mut OpenOptions) {
    platform::no_follow(options);
}

/// Copies owner, mode and extended attributes from the old file.
pub(super) fn copy_metadata(new: &File, old: &FileState) -> io::Result<()> {
    platform::copy_metadata(new, old)
}

#[cfg(unix)]
mod platform {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
    use std::path::Path;

    use rustix::fs::{Access, OFlags, access};
    use rustix::process::geteuid;

    use super::{FileState, TargetFile};

    pub(super) fn read_only_reason(target: &TargetFile, metadata: &Metadata) -> Option<String> {
        if access(&target.path, Access::WRITE_OK).is_err() {
            return Some("the server has no permission to write it".into());
        }
        if access(&target.folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            return Some(
                "the server has no permission to write its folder, where it creates the new file".into(),
            );
        }
        if metadata.nlink() > 1 {
            return Some("it has hard links, which a new file would break".into());
        }
        let me = geteuid();
        if !me.is_root() && metadata.uid() != me.as_raw() {
            return Some("it belongs to another user, and a new file would not".into());
        }
        None
    }

    pub(super) fn is_same(now: &Metadata, before: &Metadata) -> bool {
        let which = |metadata: &Metadata| {
            (
                metadata.dev(),
                metadata.ino(),
                metadata.mode(),
                metadata.uid(),
                metadata.gid(),
                metadata.nlink(),
                metadata.len(),
            )
        };
        which(now) == which(before)
    }

    pub(super) fn copy_metadata(new: &File, old: &FileState) -> io::Result<()> {
        let (is, was) = (new.metadata()?, &old.metadata);
        if (is.uid(), is.gid()) != (was.uid(), was.gid()) {
            fchown(new, Some(was.uid()), Some(was.gid()))?;
        }
        new.set_permissions(was.permissions())?;
        copy_attributes(new, &old.file)
    }

    /// Includes access control lists and user attributes. Security labels are for the system to set.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    fn copy_attributes(new: &File, old: &File) -> io::Result<()> {
        use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
        use rustix::io::Errno;

        const BYTES_MAX: usize = 64 << 10;
        let mut names = vec![0; BYTES_MAX];
        let length = match flistxattr(old, &mut names[..]) {
            Err(Errno::NOTSUP) => return Ok(()),
            length => length?,
        };
        let mut value = vec![0; BYTES_MAX];
        for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let is_kept = [&b"system."[..], b"user."].iter().any(|kind| name.starts_with(kind));
            if is_kept {
                let length = fgetxattr(old, name, &mut value[..])?;
                fsetxattr(new, name, &value[..length], XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    fn copy_attributes(_: &File, _: &File) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn no_follow(options: &mut OpenOptions) {
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    }

    pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

#[cfg(not(unix))]
mod platform {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io;
    use std::path::Path;

    use super::{FileState, TargetFile};

    pub(super) fn no_follow(_: &mut OpenOptions) {}

    pub(super) fn read_only_reason(_: &TargetFile, _: &Metadata) -> Option<String> {
        None
    }

    pub(super) fn is_same(now: &Metadata, before: &Metadata) -> bool {
        (now.len(), now.modified().ok()) == (before.len(), before.modified().ok())
    }

    pub(super) fn copy_metadata(new: &File, old: &FileState) -> io::Result<()> {
        new.set_permissions(old.metadata.permissions())
    }

    /// A rename is as durable as the platform makes it.
    pub(super) fn sync_folder(_: &Path) -> io::Result<()> {
        Ok(())
    }
}
