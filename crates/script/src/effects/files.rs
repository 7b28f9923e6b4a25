//! `ctx.files`: only below declared folders, or below the roots of the client. A path is walked part by part from an open folder, and no part
//! may be a symbolic link, so that nothing leads outside, whatever else changes meanwhile.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::Json;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use serde_json::Value;

use super::{EffectFailure, EffectFuture, Permissions, Work};

/// A folder that tools may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRoot {
    /// How tools name it: the first parts of their paths. Empty or `.` for all paths.
    pub name: String,
    pub folder: PathBuf,
    pub can_write: bool,
}

/// What `ctx.files` may do below the roots of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRootAccess {
    Read,
    Write,
}

/// An operation on a file below the roots of the client, once they are known.
pub(crate) struct ClientFileWork {
    path: String,
    operation: Operation,
}

const FILE_BYTES_MAX: usize = 8 << 20;
const ENTRIES_MAX: usize = 10_000;

enum Operation {
    Read,
    ReadBytes,
    List,
    Exists,
    Write(Vec<u8>),
    Remove,
}

pub(super) fn plan(
    permissions: &Arc<Permissions>,
    operation: &str,
    value: &Value,
) -> Result<Work, EffectFailure> {
    let path = value["path"].as_str().unwrap_or_default().to_owned();
    let operation = match operation {
        "read" => Operation::Read,
        "readBytes" => Operation::ReadBytes,
        "list" => Operation::List,
        "exists" => Operation::Exists,
        "remove" => Operation::Remove,
        "write" => Operation::Write(match (value["text"].as_str(), value["base64"].as_str()) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, base64) => STANDARD
                .decode(base64.unwrap_or_default())
                .map_err(|_| EffectFailure::new("files: the data is not valid"))?,
        }),
        _ => return Err(EffectFailure::new(format!("unknown file operation `{operation}`"))),
    };
    let changes = matches!(operation, Operation::Write(_) | Operation::Remove);
    let read_only = || {
        let message = format!("files: `{path}` is in a folder that is declared for reading only");
        EffectFailure::not_permitted(message)
    };
    match (find_root(permissions, &path), permissions.client_roots) {
        (Ok((root, _)), _) if changes && !root.can_write => Err(read_only()),
        (Ok((root, parts)), _) => {
            Ok(Work::Future(perform_later(root.folder.clone(), parts, path, operation)))
        }
        (Err(refused), None) => Err(refused),
        (Err(_), Some(ClientRootAccess::Read)) if changes => Err(read_only()),
        (Err(_), Some(_)) => Ok(Work::ClientFile(ClientFileWork { path, operation })),
    }
}

impl ClientFileWork {
    /// Begins the work with the client's answer to `roots/list`. A path that does not start with `/` is below the first root.
    pub(crate) fn start(self, roots: &Value) -> Result<EffectFuture, EffectFailure> {
        let refused = |reason: &str| {
            EffectFailure::not_permitted(format!("files: `{}` {reason}", self.path.escape_debug()))
        };
        let uris = roots["roots"].as_array().into_iter().flatten().filter_map(|root| root["uri"].as_str());
        let folders: Vec<PathBuf> = uris.filter_map(folder_of_uri).collect();
        let Some(first) = folders.first() else {
            return Err(refused("cannot be read: the client has no roots that are folders"));
        };
        let path = match self.path.starts_with("file:") {
            true => folder_of_uri(&self.path).ok_or_else(|| refused("is not a file URI of this machine"))?,
            // An absolute path replaces the root.
            false => first.join(&self.path),
        };
        let is_plain =
            path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !is_plain || self.path.contains('\0') {
            return Err(refused("leads out of its folder"));
        }
        // The most specific root.
        let within = folders.iter().filter_map(|root| Some((root, path.strip_prefix(root).ok()?)));
        let Some((root, rest)) = within.min_by_key(|(_, rest)| rest.components().count()) else {
            return Err(refused("is not below a root of the client"));
        };
        let parts = rest.components().map(|part| part.as_os_str().to_str().map(str::to_owned));
        let parts = parts.collect::<Option<_>>().ok_or_else(|| refused("is not UTF-8"))?;
        Ok(perform_later(root.clone(), parts, self.path, self.operation))
    }
}

/// The folder of a `file:` URI of this machine, without `..`.
fn folder_of_uri(uri: &str) -> Option<PathBuf> {
    let url = url::Url::parse(uri).ok().filter(|url| url.scheme() == "file")?;
    url.to_file_path().ok()
}

fn perform_later(folder: PathBuf, parts: Vec<String>, path: String, operation: Operation) -> EffectFuture {
    Box::pin(async move {
        let work = move || perform(&folder, &parts, &operation).map_err(|error| failure(&path, error));
        // Only a panic in `perform` makes the join fail.
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|_| Err(EffectFailure::new("files: internal error")))
    })
}

/// The declared folder of a path, and the parts below it.
fn find_root<'p>(
    permissions: &'p Permissions,
    path: &str,
) -> Result<(&'p FileRoot, Vec<String>), EffectFailure> {
    let refused =
        |reason: &str| EffectFailure::not_permitted(format!("files: `{}` {reason}", path.escape_debug()));
    if path.starts_with('/') || path.contains(['\0', '\\']) {
        return Err(refused("is not a path inside a declared folder"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(refused("leads out of its folder"));
    }
    let below = |root: &FileRoot| {
        let name: Vec<&str> = root.name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        parts
            .strip_prefix(&name[..])
            .map(|rest| rest.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>())
    };
    let matching = permissions.files.iter().filter_map(|root| Some((root, below(root)?)));
    // The most specific folder decides, and of two rights to the same folder the wider one.
    let best = matching.min_by_key(|(root, rest)| (rest.len(), !root.can_write));
    best.ok_or_else(|| refused("is not in a folder that is declared in `permissions.files`"))
}

#[derive(Debug)]
enum FileError {
    Os(Errno),
    TooLarge,
    NotText,
    NotAFile,
    TooManyEntries,
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        Self::Os(error)
    }
}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        Self::Os(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

fn failure(path: &str, error: FileError) -> EffectFailure {
    let reason = match error {
        FileError::Os(Errno::NOENT) => "does not exist".to_owned(),
        FileError::Os(Errno::LOOP | Errno::MLINK) => {
            "is or contains a symbolic link, which is not followed".to_owned()
        }
        FileError::Os(Errno::NOTDIR) => "has a part that is not a folder, or is a symbolic link".to_owned(),
        FileError::Os(Errno::ISDIR) | FileError::NotAFile => "is not a file".to_owned(),
        FileError::Os(Errno::ACCESS | Errno::PERM) => "cannot be opened: permission denied".to_owned(),
        FileError::Os(error) => format!("failed: {}", error.kind()),
        FileError::TooLarge => format!("is larger than {FILE_BYTES_MAX} bytes"),
        FileError::NotText => "is not UTF-8 text; use readBytes".to_owned(),
        FileError::TooManyEntries => format!("has more than {ENTRIES_MAX} entries"),
    };
    EffectFailure::new(format!("files: `{path}` {reason}"))
}

const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn perform(root: &Path, parts: &[String], operation: &Operation) -> Result<Json, FileError> {
    // The declared folder itself may be a link: its operator chose it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder: OwnedFd = openat(CWD, root, flags, Mode::empty())?;
    let empty = || Json::object(|_| ());
    let Some((name, parents)) = parts.split_last() else {
        return match operation {
            Operation::List => list(folder),
            Operation::Exists => Ok(exists(true)),
            Operation::Read | Operation::ReadBytes | Operation::Write(_) | Operation::Remove => {
                Err(FileError::NotAFile)
            }
        };
    };
    for part in parents {
        folder = match openat(folder.as_fd(), part.as_str(), FOLDER_FLAGS, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::NOENT) if matches!(operation, Operation::Exists) => return Ok(exists(false)),
            Err(Errno::NOENT) if matches!(operation, Operation::Write(_)) => {
                match mkdirat(folder.as_fd(), part.as_str(), Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                openat(folder.as_fd(), part.as_str(), FOLDER_FLAGS, Mode::empty())?
            }
            Err(error) => return Err(error.into()),
        };
    }
    match operation {
        Operation::Read => {
            let text = String::from_utf8(read(&folder, name)?).map_err(|_| FileError::NotText)?;
            Ok(Json::object(|object| {
                object.str("text", &text);
            }))
        }
        Operation::ReadBytes => {
            let bytes = read(&folder, name)?;
            Ok(Json::object(|object| {
                object.str("base64", &STANDARD.encode(bytes));
            }))
        }
        Operation::List => list(openat(folder.as_fd(), name.as_str(), FOLDER_FLAGS, Mode::empty())?),
        Operation::Exists => match statat(folder.as_fd(), name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(exists(!FileType::from_raw_mode(stat.st_mode).is_symlink())),
            Err(Errno::NOENT) => Ok(exists(false)),
            Err(error) => Err(error.into()),
        },
        Operation::Write(data) => {
            write(&folder, name, data)?;
            Ok(empty())
        }
        Operation::Remove => {
            unlinkat(folder.as_fd(), name.as_str(), AtFlags::empty())?;
            Ok(empty())
        }
    }
}

fn exists(exists: bool) -> Json {
    Json::object(|object| {
        object.bool("exists", exists);
    })
}

fn read(folder: &OwnedFd, name: &str) -> Result<Vec<u8>, FileError> {
    // Without NONBLOCK, a named pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(folder.as_fd(), name, flags, Mode::empty())?;
    if !FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
        return Err(FileError::NotAFile);
    }
    let mut bytes = Vec::new();
    File::from(file).take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(FileError::TooLarge);
    }
    Ok(bytes)
}

/// Replaces the file in one step: a reader sees the old content or the new.
fn write(folder: &OwnedFd, name: &str, data: &[u8]) -> Result<(), FileError> {
    if data.len() > FILE_BYTES_MAX {
        return Err(FileError::TooLarge);
    }
    if let Ok(stat) = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
        && !FileType::from_raw_mode(stat.st_mode).is_file()
    {
        return Err(FileError::NotAFile);
    }
    // A name that nothing else uses, neither another write nor what a crash left behind.
    let mut random = [0; 8];
    SystemRandom::new().fill(&mut random).map_err(|_| FileError::Os(Errno::IO))?;
    let temporary = format!(".{:016x}.tmp", u64::from_be_bytes(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let written = openat(folder.as_fd(), temporary.as_str(), flags, Mode::from_raw_mode(0o666))
        .map_err(FileError::from)
        .and_then(|file| {
            let mut file = File::from(file);
            file.write_all(data)?;
            file.sync_all()?;
            Ok(renameat(folder.as_fd(), temporary.as_str(), folder.as_fd(), name)?)
        });
    if written.is_err() {
        // The first error counts.
        let _ = unlinkat(folder.as_fd(), temporary.as_str(), AtFlags::empty());
    }
    written
}

fn list(folder: OwnedFd) -> Result<Json, FileError> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let kind = match entry.file_type() {
            FileType::RegularFile => "file",
            FileType::Directory => "folder",
            _ => continue,
        };
        if name == "." || name == ".." {
            continue;
        }
        if entries.len() >= ENTRIES_MAX {
            return Err(FileError::TooManyEntries);
        }
        entries.push((name.to_owned(), kind));
    }
    entries.sort();
    Ok(Json::object(|object| {
        object.array("entries", &entries, |out, (name, kind)| {
            let mut entry = json::write::ObjectWriter::new(out);
            entry.str("name", name).str("type", kind);
            entry.end();
        });
    }))
}
