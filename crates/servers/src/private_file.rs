//! Files for this user only, replaced as a whole and changed under a lock that other processes respect.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Reads a text file; `None` if there is none.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    let read = file.take(bytes_max + 1).read_to_string(&mut text)?;
    if read as u64 > bytes_max {
        return Err(io::Error::other(format!("exceeds the limit of {bytes_max} bytes")));
    }
    Ok(Some(text))
}

/// Replaces the file: readers see the old text or all of the new one.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = parent(path);
    // A temporary file is readable by this user only, and keeps that mode when it is renamed.
    let mut file = tempfile::Builder::new().prefix(".spile-").suffix(".tmp").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Creates the folder of a file, and those above it that are missing, for this user only.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(parent(path))
}

/// Waits for the lock of a file. It is held until the result is dropped, or until this process ends.
pub(crate) fn lock(path: &Path) -> io::Result<PrivateFileLock> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(name)?;
    file.lock()?;
    Ok(PrivateFileLock { _file: file })
}

/// Released when dropped.
pub(crate) struct PrivateFileLock {
    _file: File,
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
