//! Which files of a folder are entries: tools, prompts and the code of resources.

use std::collections::BTreeSet;
use std::path::Path;

use super::BundleOptions;
use crate::diagnostic::Diagnostic;

pub(crate) struct Entry {
    pub(crate) name: String,
    /// The path inside the folder.
    pub(crate) file: String,
}

/// The tools in the order of their names.
pub(super) fn list_tools(root: &Path, options: &BundleOptions) -> Vec<Result<Entry, Diagnostic>> {
    list(root, &options.tools_dir, "tool", options.limits.tools_max)
}

/// The prompts that are code, in the order of their names. Those in Markdown are not for this crate.
pub(super) fn list_prompts(root: &Path, options: &BundleOptions) -> Vec<Result<Entry, Diagnostic>> {
    list(root, &options.prompts_dir, "prompt", options.limits.tools_max)
}

/// The files that answer resources, each once.
pub(super) fn list_resources(options: &BundleOptions) -> Vec<Entry> {
    let files: BTreeSet<&String> = options.resource_files.iter().collect();
    files.into_iter().map(|file| Entry { name: file.clone(), file: file.clone() }).collect()
}

fn list(root: &Path, directory: &str, noun: &str, entries_max: usize) -> Vec<Result<Entry, Diagnostic>> {
    let Ok(files) = std::fs::read_dir(root.join(directory)) else { return Vec::new() };
    let mut names: Vec<String> = files
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .filter(|name| entry_name(name).is_some())
        .collect();
    names.sort();
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for file_name in names {
        let file = format!("{}/{file_name}", directory.trim_matches('/'));
        let Some(name) = entry_name(&file_name) else { continue };
        entries.push(if !is_valid_name(name) {
            let message = format!("`{name}` cannot be the name of a {noun}");
            let help = "use letters, digits, `_`, `-` and `.`, at most 128 of them";
            Err(Diagnostic::error(&file, message).with_help(help))
        } else if !seen.insert(name.to_owned()) {
            let message = format!("another file is the {noun} `{name}` already");
            Err(Diagnostic::error(&file, message).with_help("rename one of the two files"))
        } else if entries.len() >= entries_max {
            Err(Diagnostic::error(&file, format!("more than {entries_max} {noun}s in one folder")))
        } else {
            Ok(Entry { name: name.to_owned(), file })
        });
    }
    entries
}

/// The file's stem if it is an entry: not a declaration file, a test or a hidden file.
fn entry_name(file_name: &str) -> Option<&str> {
    let (stem, extension) = file_name.rsplit_once('.')?;
    let is_code = matches!(extension, "ts" | "mts" | "js" | "mjs");
    let is_other = [".d", ".test", ".spec"].iter().any(|suffix| stem.ends_with(suffix));
    (is_code && !is_other && !stem.starts_with(['.', '_']) && !stem.is_empty()).then_some(stem)
}

/// 2025-11-25, Tool names: 1 to 128 characters, ASCII letters, digits, `_`, `-` and `.`.
fn is_valid_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}
