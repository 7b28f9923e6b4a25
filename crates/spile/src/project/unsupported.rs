//! Inputs that a later version will serve, and that this one names instead of passing them over in silence.

use std::path::Path;

/// How many entries of a folder are looked at.
const ENTRIES_MAX: usize = 1000;
/// The folders that may hold tools, prompts and resources as files.
const FEATURE_FOLDERS: [&str; 4] = ["tools", "prompts", "resources", "skills"];

/// What a file is, if this version cannot serve it.
pub(super) fn unsupported_file(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    if name == "mcp.json" {
        return Some("an `mcp.json` describes a server of TypeScript tools");
    }
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    matches!(extension.as_str(), "ts" | "mts" | "js" | "mjs").then_some("a TypeScript or JavaScript tool")
}

/// The first thing in a folder that this version cannot serve: `mcp.json`, a script, or a folder of either.
pub(super) fn unsupported_entry(folder: &Path) -> Option<String> {
    if folder.join("mcp.json").is_file() {
        return Some("mcp.json".into());
    }
    if folder.join("context.ts").is_file() {
        return Some("context.ts".into());
    }
    let in_folders = FEATURE_FOLDERS.iter().find_map(|name| {
        let found = first_file(&folder.join(name), |path| {
            is_typescript(path) || path.extension().is_some_and(|extension| extension == "md")
        })?;
        Some(format!("{name}/{found}"))
    });
    in_folders.or_else(|| first_file(folder, is_typescript))
}

fn is_typescript(path: &Path) -> bool {
    // JavaScript files, and declarations, often lie beside data for other reasons.
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".ts") && !name.ends_with(".d.ts")
}

fn first_file(folder: &Path, is_it: impl Fn(&Path) -> bool) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?.take(ENTRIES_MAX);
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_it(path) && path.is_file())
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names.into_iter().next()
}
