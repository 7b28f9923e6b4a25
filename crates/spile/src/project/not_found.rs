//! Messages for files that do not exist: the path that was tried, and what the user probably meant. Only the operator
//! sees them; callers do not learn paths.

use std::io::{self, ErrorKind};
use std::path::Path;

use contract::diagnostic::Diagnostic;
use contract::nearest;
use contract::source::{DatabaseUrl, SourceLocation};

use super::file_name;

/// How many files of a folder are compared to find a similar name.
const SIBLINGS_MAX: usize = 10_000;

/// The diagnostic for a source that is not there; `None` if it cannot be read for another reason. `declared` is the
/// place as the manifest has it.
pub(super) fn location_diagnostic(declared: &str, location: &SourceLocation) -> Option<Diagnostic> {
    match location {
        SourceLocation::File(path) => match std::fs::metadata(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Some(not_found_diagnostic(declared, path))
            }
            Ok(_) | Err(_) => None,
        },
        SourceLocation::Database(_) | SourceLocation::Rest(_) => None,
    }
}

/// `file` is the path in the manifest, `path` the one it resolves to.
fn not_found_diagnostic(file: &str, path: &Path) -> Diagnostic {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let message = format!("`{file}` not found; tried `{}`", absolute.display());
    Diagnostic::error(message).help(suggestion(file, path))
}

/// Why a path on the command line cannot be used.
pub(crate) fn path_error(path: &Path, error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => not_found_error(path),
        _ => anyhow::Error::new(error).context(format!("cannot read `{}`", path.display())),
    }
}

fn not_found_error(path: &Path) -> anyhow::Error {
    let shown = super::shown_path(path);
    let near = sibling_names(path).and_then(|names| {
        let near = nearest(&file_name(path), names.iter().map(String::as_str))?;
        Some(path.with_file_name(near))
    });
    match near {
        _ if DatabaseUrl::parse(&shown).is_some() => anyhow::anyhow!(
            "`{shown}` is a database; write a manifest for it with `spile init`, and name that here"
        ),
        _ if shown.contains("://") => anyhow::anyhow!(
            "`{shown}` is a URL, but Spile serves files and folders; to call a server there, use \
             `spile tools --url {shown}`"
        ),
        Some(near) => {
            anyhow::anyhow!("file or folder `{shown}` not found; did you mean `{}`?", near.display())
        }
        None => anyhow::anyhow!("file or folder `{shown}` not found"),
    }
}

/// The names of the files in the same folder, if that folder exists.
fn sibling_names(path: &Path) -> Option<Vec<String>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).ok()?.take(SIBLINGS_MAX);
    Some(entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect())
}

fn suggestion(file: &str, path: &Path) -> String {
    if let Some(rest) = file.strip_prefix("~/") {
        return format!("`~` is not expanded; write `${{HOME}}/{rest}`");
    }
    if let Some(name) = unbraced_variable(file) {
        return format!("`${name}` is not expanded; write `${{{name}}}`");
    }
    if file.contains(char::is_control) {
        return "in double quotes, `\\` starts an escape such as a tab; write the path in single quotes"
            .into();
    }
    let Some(names) = sibling_names(path) else {
        return "its folder was not found either; paths are relative to the folder of the manifest".into();
    };
    match nearest(&file_name(path), names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`, which is in the same folder?"),
        None => "check the name; paths are relative to the folder of the manifest".into(),
    }
}

/// `DATA_DIR` of `$DATA_DIR/people.csv`
fn unbraced_variable(file: &str) -> Option<&str> {
    let (_, rest) = file.split_once('$')?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}
