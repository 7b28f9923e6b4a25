//! The files of the log: `audit.jsonl` is written, `audit.jsonl.1` is the one before, and so on.
//!
//! A line is one write at the end of the file, so that a crash leaves at most one incomplete line, at the end. Opening the
//! file removes it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The current file, open for appending.
pub(super) struct LogFiles {
    path: PathBuf,
    file_bytes_max: u64,
    files_max: u32,
    open: Option<(File, u64)>,
    /// Held for as long as this process writes.
    _lock: File,
}

impl LogFiles {
    /// Opens the log and creates it if it is not there. Fails if another process writes it.
    pub(super) fn open(path: &Path, file_bytes_max: u64, files_max: u32) -> io::Result<Self> {
        let lock =
            private(OpenOptions::new().create(true).truncate(false).write(true)).open(lock_path(path))?;
        if lock.try_lock().is_err() {
            return Err(io::Error::other(
                "another process writes this audit log; give each its own `audit.path`",
            ));
        }
        let mut files = Self { path: path.to_owned(), file_bytes_max, files_max, open: None, _lock: lock };
        files.file()?;
        Ok(files)
    }

    /// Writes one line. After an error the file is opened again, and what was written of the line is removed.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let written = self.try_append(line);
        if written.is_err() {
            self.open = None;
        }
        written
    }

    fn try_append(&mut self, line: &[u8]) -> io::Result<()> {
        let (limit, added) = (self.file_bytes_max, line.len() as u64);
        let (_, length) = self.file()?;
        if *length > 0 && *length + added > limit {
            self.rotate()?;
        }
        let (file, length) = self.file()?;
        file.write_all(line)?;
        *length += added;
        Ok(())
    }

    /// Waits until the disk has what was written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let synced = match &self.open {
            Some((file, _)) => file.sync_data(),
            None => Ok(()),
        };
        if synced.is_err() {
            self.open = None;
        }
        synced
    }

    fn file(&mut self) -> io::Result<&mut (File, u64)> {
        if self.open.is_none() {
            let mut file =
                private(OpenOptions::new().create(true).read(true).append(true)).open(&self.path)?;
            let length = remove_incomplete_line(&mut file)?;
            self.open = Some((file, length));
        }
        self.open.as_mut().ok_or_else(|| io::Error::other("the file was just opened"))
    }

    /// Renames each file to the next number; the last one is deleted. A crash in between leaves a gap and loses nothing.
    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        let last = self.files_max.saturating_sub(1).max(1);
        for number in (0..last).rev() {
            let from = numbered(&self.path, number);
            match std::fs::rename(&from, numbered(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // A smaller limit than before leaves files with higher numbers.
        for (number, path) in existing(&self.path)? {
            if number > last {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// The file that a number means; 0 is the current one.
fn numbered(path: &Path, number: u32) -> PathBuf {
    match number {
        0 => path.to_owned(),
        _ => with_suffix(path, &format!(".{number}")),
    }
}

fn lock_path(path: &Path) -> PathBuf {
    with_suffix(path, ".lock")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// All files of a log with their numbers, the oldest first.
pub(super) fn existing(path: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?.file_name();
        let entry = entry.to_string_lossy();
        let number = match entry.strip_prefix(&name) {
            Some("") => Some(0),
            Some(rest) => {
                rest.strip_prefix('.').filter(|rest| !rest.starts_with('0')).and_then(|n| n.parse().ok())
            }
            None => None,
        };
        if let Some(number) = number {
            found.push((number, numbered(path, number)));
        }
    }
    found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
    Ok(found)
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Cuts the file behind its last line break. Returns its length.
fn remove_incomplete_line(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut end = length;
    let mut chunk = [0; 4096];
    while end > 0 {
        let start = end.saturating_sub(chunk.len() as u64);
        let part = &mut chunk[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            end = start + at as u64 + 1;
            break;
        }
        end = start;
    }
    if end < length {
        tracing::warn!(bytes = length - end, "the audit log ended in an incomplete line; it is removed");
        file.set_len(end)?;
    }
    Ok(end)
}
