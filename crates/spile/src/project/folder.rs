//! What a folder has to serve: its data files, and what only looks like one.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{MANIFEST, file_name, source_kind};

/// JSON files that are never data: well-known settings of other programs.
const CONFIG_FILES: [&str; 5] =
    ["package.json", "package-lock.json", "tsconfig.json", "mcp.json", "composer.json"];

/// An entry of a folder that is named like a data file and is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IrregularFile {
    pub(super) path: PathBuf,
    pub(super) kind: IrregularKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IrregularKind {
    Folder,
    /// A named pipe, a socket or a device.
    Special,
    BrokenLink,
    /// JSON without rows, in a folder of code: settings of a program, or a file that the code imports.
    Settings,
}

impl IrregularFile {
    pub(super) fn reason(&self) -> &'static str {
        match self.kind {
            IrregularKind::Folder => "is a folder",
            IrregularKind::Special => "is not a regular file",
            IrregularKind::BrokenLink => "is a link to a file that cannot be found or opened",
            IrregularKind::Settings => "is not an array of objects",
        }
    }
}

/// What a folder has, sorted by name.
pub(super) struct DataFiles {
    pub(super) files: Vec<PathBuf>,
    pub(super) irregular: Vec<IrregularFile>,
}

/// What else is in a folder with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    /// Code, prompts or resources.
    Code,
}

impl Beside {
    pub(super) fn of<T>(author: Option<&T>) -> Self {
        if author.is_some() { Self::Code } else { Self::Nothing }
    }
}

pub(super) fn data_files(folder: &Path, beside: Beside) -> anyhow::Result<DataFiles> {
    let dir = non_empty_path(folder);
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read `{}`", dir.display()))?;
    let paths = entries.filter_map(|entry| Some(folder.join(entry.ok()?.file_name())));
    let is_data = |path: &PathBuf| {
        let name = file_name(path);
        // Spreadsheet programs create `~$customers.xlsx` next to a file that is open.
        !name.starts_with(['.', '~']) && !CONFIG_FILES.contains(&name.as_str()) && source_kind(path).is_some()
    };
    let mut named: Vec<PathBuf> = paths.filter(is_data).collect();
    named.sort();
    let mut found = DataFiles { files: Vec::new(), irregular: Vec::new() };
    for path in named {
        // Follows links. Opening a named pipe would block until another process writes to it.
        let kind = match std::fs::metadata(&path) {
            Ok(kind) if kind.is_file() && beside == Beside::Code && is_json_without_rows(&path) => {
                IrregularKind::Settings
            }
            Ok(kind) if kind.is_file() => {
                found.files.push(path);
                continue;
            }
            Ok(kind) if kind.is_dir() => IrregularKind::Folder,
            Ok(_) => IrregularKind::Special,
            Err(_) if path.is_symlink() => IrregularKind::BrokenLink,
            // Deleted since the folder was read.
            Err(_) => continue,
        };
        found.irregular.push(IrregularFile { path, kind });
    }
    Ok(found)
}

/// Whether a `.json` file is anything but an array of objects, by its beginning.
fn is_json_without_rows(path: &Path) -> bool {
    /// Longer white space at the start is not looked past.
    const BYTES_LOOKED_AT: u64 = 4096;
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("json")) {
        return false;
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_LOOKED_AT).read_to_end(&mut start));
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start);
    let mut tokens = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    // A file that cannot be read is reported when it is opened.
    read.is_ok()
        && match (tokens.next(), tokens.next()) {
            (Some(b'['), Some(b'{' | b']') | None) | (None, _) => false,
            (Some(_), _) => true,
        }
}

/// How many subfolders are searched for data, and how many of them a message names.
const SUBFOLDERS_MAX: usize = 100;
const SUBFOLDERS_SHOWN_MAX: usize = 3;

/// Subfolders that could be served.
pub(super) fn servable_subfolders(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(SUBFOLDERS_MAX);
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let visible = names.filter(|name| !name.to_string_lossy().starts_with('.'));
    let paths = visible.map(|name| if folder == Path::new(".") { name.into() } else { folder.join(name) });
    let is_servable = |path: &PathBuf| {
        path.is_dir()
            && (path.join(MANIFEST).is_file()
                || data_files(path, Beside::Nothing).is_ok_and(|found| !found.files.is_empty()))
    };
    let mut servable: Vec<String> =
        paths.filter(is_servable).map(|path| path.display().to_string()).collect();
    servable.sort();
    servable.truncate(SUBFOLDERS_SHOWN_MAX);
    servable
}

/// `.` for the empty path, which file system calls do not take.
pub(super) fn non_empty_path(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}
