//! The files of a content folder: found by one bounded walk, read without leaving the folder.
//!
//! A name from outside never becomes a path. A request is compared with the paths that the walk found, so `..`, encoded
//! slashes, other letter cases, absolute paths and NUL name nothing. A symbolic link to a file inside the same folder is
//! resolved by the walk; any other link is skipped. Reads open each component without following links, so a link that
//! appears after the walk leads nowhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use contract::diagnostic::Diagnostic;
use file_watch::FileStamp;

use crate::limits::ContentLimits;

/// One folder of files, as the last walk found it.
#[derive(Debug, Clone)]
pub(crate) struct FileTree {
    /// How messages call it: `resources`.
    pub(crate) label: String,
    /// Without symbolic links. `None` if the folder does not exist.
    root: Option<PathBuf>,
    /// By path inside the folder, with `/`.
    pub(crate) files: BTreeMap<String, FileEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileEntry {
    /// The path inside the folder that the file really has, once links are resolved.
    real_path: String,
    pub(crate) stamp: FileStamp,
}

impl FileEntry {
    pub(crate) fn bytes(&self) -> u64 {
        self.stamp.bytes()
    }

    pub(crate) fn modified_ms(&self) -> Option<u64> {
        let FileStamp::Present { modified: Some(modified), .. } = self.stamp else { return None };
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    }
}

/// Why a file could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It is gone, or is not an ordinary file any more.
    Gone,
    TooLarge,
    Io(io::Error),
}

impl FileTree {
    /// Walks the folder. What cannot be served is reported and left out.
    pub(crate) fn walk(
        label: &str,
        root: &Path,
        limits: &ContentLimits,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut tree = Self { label: label.to_owned(), root: None, files: BTreeMap::new() };
        let canonical = match root.canonicalize() {
            Ok(canonical) if canonical.is_dir() => canonical,
            Ok(_) => {
                diagnostics.push(
                    Diagnostic::error(format!("`{label}` is not a folder"))
                        .help(format!("make `{label}` a folder, or rename the file")),
                );
                return tree;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return tree,
            Err(error) => {
                diagnostics.push(unreadable(label, &error));
                return tree;
            }
        };
        let mut walk = Walk { tree: &mut tree, root: &canonical, limits, diagnostics, is_full: false };
        walk.folder(&canonical, "", 0);
        tree.root = Some(canonical);
        tree
    }

    /// What the next walk is compared with, to find out whether anything changed.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = (&str, FileStamp)> {
        self.files.iter().map(|(path, entry)| (path.as_str(), entry.stamp))
    }

    pub(crate) fn exists(&self) -> bool {
        self.root.is_some()
    }

    /// The whole file.
    pub(crate) fn read(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
        let file = self.open(path)?;
        let metadata = file.metadata().map_err(ReadError::Io)?;
        if !metadata.is_file() {
            return Err(ReadError::Gone);
        }
        if metadata.len() > bytes_max {
            return Err(ReadError::TooLarge);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
        // It may grow while it is read.
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(ReadError::Io)?;
        if bytes.len() as u64 > bytes_max { Err(ReadError::TooLarge) } else { Ok(bytes) }
    }

    /// The first bytes of a file.
    pub(crate) fn read_head(&self, path: &str, bytes: usize) -> Result<Vec<u8>, ReadError> {
        let file = self.open(path)?;
        if !file.metadata().map_err(ReadError::Io)?.is_file() {
            return Err(ReadError::Gone);
        }
        let mut head = Vec::with_capacity(bytes);
        file.take(bytes as u64).read_to_end(&mut head).map_err(ReadError::Io)?;
        Ok(head)
    }

    fn open(&self, path: &str) -> Result<File, ReadError> {
        let (Some(root), Some(entry)) = (&self.root, self.files.get(path)) else {
            return Err(ReadError::Gone);
        };
        open_inside(root, &entry.real_path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::Gone,
            _ => ReadError::Io(error),
        })
    }
}

/// Opens each component below the one before, and no link.
#[cfg(unix)]
fn open_inside(root: &Path, path: &str) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open, openat};
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = open(root, folder, Mode::empty())?;
    let mut components = path.split('/').peekable();
    while let Some(name) = components.next() {
        // NONBLOCK: a pipe in place of the file must not hold up the call.
        let flags = match components.peek() {
            Some(_) => folder | OFlags::NOFOLLOW,
            None => OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
        };
        at = match openat(&at, name, flags, Mode::empty()) {
            Ok(next) => next,
            Err(rustix::io::Errno::LOOP) => return Err(io::ErrorKind::NotFound.into()),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(at.into())
}

/// Without `openat`, the path is resolved and compared; a link that appears in between is not noticed.
#[cfg(not(unix))]
fn open_inside(root: &Path, path: &str) -> io::Result<File> {
    let path = root.join(path).canonicalize()?;
    if !path.starts_with(root) {
        return Err(io::ErrorKind::NotFound.into());
    }
    File::open(path)
}

struct Walk<'a> {
    tree: &'a mut FileTree,
    root: &'a Path,
    limits: &'a ContentLimits,
    diagnostics: &'a mut Vec<Diagnostic>,
    /// The limit of files is reported once.
    is_full: bool,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) {
        let label = format!("{}/{prefix}", self.tree.label);
        let label = label.trim_end_matches('/');
        if depth > self.limits.folder_depth_max {
            let message = format!("`{}` is nested too deeply and not served", label);
            let help = format!("at most {} folders inside each other", self.limits.folder_depth_max);
            self.diagnostics.push(Diagnostic::warning(message).help(help));
            return;
        }
        let entries = match std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries,
            Err(error) => {
                self.diagnostics.push(unreadable(label, &error));
                return;
            }
        };
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let Some(name) = name.to_str() else {
                let message = format!("`{}` has a file whose name is not UTF-8", label);
                self.diagnostics.push(Diagnostic::warning(message).help("rename the file"));
                continue;
            };
            if is_ignored(name) {
                continue;
            }
            let path = format!("{prefix}{name}");
            if name.chars().any(char::is_control) || name.contains('\\') {
                let message =
                    format!("`{}/{path}` is not served: its name has unsafe characters", self.tree.label);
                self.diagnostics.push(Diagnostic::warning(message).help("rename the file"));
                continue;
            }
            self.entry(&folder.join(name), path, depth);
        }
    }

    fn entry(&mut self, full_path: &Path, path: String, depth: usize) {
        let name = format!("{}/{path}", self.tree.label);
        let metadata = match full_path.symlink_metadata() {
            Ok(metadata) => metadata,
            // It went away since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.diagnostics.push(unreadable(&name, &error)),
        };
        if metadata.is_dir() {
            return self.folder(full_path, &format!("{path}/"), depth + 1);
        }
        let real_path = if metadata.is_symlink() {
            match self.link_target(full_path) {
                Some(target) => target,
                None => {
                    let message = format!(
                        "`{name}` is not served: it is a link that leads to no file inside the folder"
                    );
                    let help = format!("link to a file inside `{}`, or copy the file", self.tree.label);
                    return self.diagnostics.push(Diagnostic::warning(message).help(help));
                }
            }
        } else if metadata.is_file() {
            path.clone()
        } else {
            let message = format!("`{name}` is not served: it is not an ordinary file");
            return self.diagnostics.push(Diagnostic::warning(message).help("remove it from the folder"));
        };
        if self.tree.files.len() >= self.limits.files_max {
            if !std::mem::replace(&mut self.is_full, true) {
                let max = self.limits.files_max;
                let message =
                    format!("`{}` has more than {max} files; the rest is not served", self.tree.label);
                self.diagnostics.push(Diagnostic::warning(message).help("remove some files"));
            }
            return;
        }
        let stamp = FileStamp::of_path(full_path);
        self.tree.files.insert(path, FileEntry { real_path, stamp });
    }

    /// The path inside the folder of the file that a link leads to.
    fn link_target(&self, link: &Path) -> Option<String> {
        let target = link.canonicalize().ok()?;
        if !target.is_file() {
            return None;
        }
        let inside = target.strip_prefix(self.root).ok()?;
        let components: Option<Vec<&str>> = inside
            .components()
            .map(|component| match component {
                Component::Normal(name) => name.to_str(),
                _ => None,
            })
            .collect();
        // A hidden file stays hidden behind a link.
        let components = components.filter(|names| !names.iter().any(|name| is_ignored(name)))?;
        Some(components.join("/"))
    }
}

/// Hidden files, and what editors and systems leave behind.
fn is_ignored(name: &str) -> bool {
    name.starts_with('.')
        || name.ends_with('~')
        || (name.starts_with('#') && name.ends_with('#'))
        || name == "Thumbs.db"
}

fn unreadable(name: &str, error: &io::Error) -> Diagnostic {
    Diagnostic::error(format!("cannot read `{name}`: {error}")).help("check the permissions of the file")
}

impl ReadError {
    pub(crate) fn diagnostic(&self, name: &str, bytes_max: u64) -> Diagnostic {
        match self {
            Self::Gone => {
                Diagnostic::warning(format!("`{name}` went away while it was read")).help("save it again")
            }
            Self::TooLarge => too_large(name, bytes_max),
            Self::Io(error) => unreadable(name, error),
        }
    }
}

pub(crate) fn too_large(name: &str, bytes_max: u64) -> Diagnostic {
    Diagnostic::warning(format!("`{name}` is not served: it exceeds the limit of {bytes_max} bytes"))
        .help("make it smaller, or split it")
}
