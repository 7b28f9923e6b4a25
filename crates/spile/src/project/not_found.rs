//! What is not there: where it was looked for, and what was probably meant. For its owner alone; callers learn no
//! paths.

use std::io;
use std::path::Path;

use contract::diagnostic::Diagnostic;
use contract::nearest;

use super::file_name;

/// So many files of a folder are looked at for one of a similar name.
const SIBLINGS_MAX: usize = 10_000;

/// `file` is as the manifest says, and `path` where that leads.
pub(super) fn not_found_diagnostic(file: &str, path: &Path) -> Diagnostic {
    if file.contains("://") {
        let error = Diagnostic::error(format!("`{file}` is an address, and a source is a file"));
        return error.help("addresses are not read in this version; save it as a file, and name that");
    }
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let looked = format!("`{file}` is not there; it was looked for as `{}`", whole.display());
    Diagnostic::error(looked).help(suggestion(file, path))
}

/// Why nothing is known of a path on the command line.
pub(crate) fn path_error(path: &Path, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => not_found_error(path),
        _ => anyhow::Error::new(error).context(format!("`{}` cannot be read", path.display())),
    }
}

fn not_found_error(path: &Path) -> anyhow::Error {
    let shown = path.display();
    let near = sibling_names(path).and_then(|names| {
        let near = nearest(&file_name(path), names.iter().map(String::as_str))?;
        Some(path.with_file_name(near))
    });
    match near {
        _ if shown.to_string().contains("://") => anyhow::anyhow!(
            "`{shown}` is an address, and what is served is a file or a folder; `spile tools --url {shown}` asks a \
             server there"
        ),
        Some(near) => {
            anyhow::anyhow!("there is no file or folder `{shown}`; did you mean `{}`?", near.display())
        }
        None => anyhow::anyhow!("there is no file or folder `{shown}`"),
    }
}

/// What lies in the folder where it should be, if that is there.
fn sibling_names(path: &Path) -> Option<Vec<String>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).ok()?.take(SIBLINGS_MAX);
    Some(entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect())
}

fn suggestion(file: &str, path: &Path) -> String {
    if let Some(rest) = file.strip_prefix("~/") {
        return format!("`~` is not replaced; write `${{HOME}}/{rest}`");
    }
    if let Some(name) = unbraced_variable(file) {
        return format!("`${name}` is not replaced; write `${{{name}}}`");
    }
    if file.contains(char::is_control) {
        return "a `\\` in double quotes may mean another sign; write the path in single quotes".into();
    }
    let Some(names) = sibling_names(path) else {
        return "its folder is not there either; a path starts in the folder of the manifest".into();
    };
    match nearest(&file_name(path), names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`, which is in the same folder?"),
        None => "check its name; a path starts in the folder of the manifest".into(),
    }
}

/// `DATA_DIR` of `$DATA_DIR/people.csv`
fn unbraced_variable(file: &str) -> Option<&str> {
    let (_, rest) = file.split_once('$')?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}
