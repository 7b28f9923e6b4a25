//! The file that is written: found behind links, read whole, and compared before another takes its place.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use contract::source::SourceError;

use super::{WRITABLE_BYTES_MAX, error};

/// Where the bytes are: what links led to.
pub(super) struct TargetFile {
    path: PathBuf,
    folder: PathBuf,
    /// What people are told: the name they know, which may be a link's.
    file_name: String,
}

/// A state of the file.
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
            Some(why) => {
                let told = format!("`{}` cannot be written, nothing was changed: {why}", self.file_name);
                Err(SourceError::Unavailable {
                    message: told,
                    detail: format!("{}: {why}", self.path.display()),
                })
            }
        }
    }

    /// Why the file is not to be replaced. What replacing would change besides the bytes is not done.
    pub(super) fn read_only_reason(&self) -> Option<String> {
        let what = match std::fs::metadata(&self.path) {
            Ok(what) => what,
            Err(error) => {
                return Some(
                    error::io_write_error(&self.file_name, &self.path, "looking", &error).to_string(),
                );
            }
        };
        if !what.is_file() {
            return Some("it is not a file".into());
        }
        if what.len() > WRITABLE_BYTES_MAX {
            return Some(format!("it is larger than {} MB", WRITABLE_BYTES_MAX >> 20));
        }
        // Whoever may write anything could; it says that it is not to be written.
        if what.permissions().readonly() {
            return Some("it is marked read-only".into());
        }
        platform::read_only_reason(self, &what)
    }

    pub(super) fn read(&self) -> Result<FileState, SourceError> {
        let failed = |error: io::Error| error::write_error(self, "reading it", &error);
        let mut file = File::open(&self.path).map_err(failed)?;
        let what = file.metadata().map_err(failed)?;
        let mut bytes = Vec::new();
        // One more, so that the end is seen without growing.
        bytes.reserve_exact(usize::try_from(what.len().min(WRITABLE_BYTES_MAX)).unwrap_or(0) + 1);
        (&mut file).take(WRITABLE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > WRITABLE_BYTES_MAX {
            return Err(error::busy_error(&self.path, "it grows while it is read"));
        }
        Ok(FileState { bytes, metadata: what, file })
    }

    /// Others do not know our lock: what they did since the file was read is not written over.
    pub(super) fn check_unchanged(&self, path: &Path, before: &FileState) -> Result<(), SourceError> {
        let failed = |error: io::Error| error::write_error(self, "looking at it again", &error);
        let is_there = std::fs::canonicalize(path).map_err(failed)? == self.path;
        let mut file = File::open(&self.path).map_err(failed)?;
        let what = file.metadata().map_err(failed)?;
        if is_there
            && platform::is_same(&what, &before.metadata)
            && content_equals(&mut file, &before.bytes).map_err(failed)?
        {
            Ok(())
        } else {
            Err(error::busy_error(&self.path, "somebody else changed it meanwhile"))
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

/// What lies beside the data is a file of ours or nothing.
pub(super) fn no_follow(options: &mut OpenOptions) {
    platform::no_follow(options);
}

/// Makes a file what another is for the system: its owner, its mode, its attributes.
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

    pub(super) fn read_only_reason(target: &TargetFile, what: &Metadata) -> Option<String> {
        if access(&target.path, Access::WRITE_OK).is_err() {
            return Some("the server may not write it".into());
        }
        if access(&target.folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            return Some("the server may not write its folder, where the new file is made".into());
        }
        if what.nlink() > 1 {
            return Some("it has several names (hard links), which a new file would part".into());
        }
        let me = geteuid();
        if !me.is_root() && what.uid() != me.as_raw() {
            return Some("it belongs to another user, and a new file would not".into());
        }
        None
    }

    pub(super) fn is_same(now: &Metadata, before: &Metadata) -> bool {
        let which = |what: &Metadata| {
            (what.dev(), what.ino(), what.mode(), what.uid(), what.gid(), what.nlink(), what.len())
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

    /// Access lists are attributes too, and so is what people mark files with. The system's own labels are not
    /// ours to set.
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

    /// Renaming is as durable as the system makes it.
    pub(super) fn sync_folder(_: &Path) -> io::Result<()> {
        Ok(())
    }
}
