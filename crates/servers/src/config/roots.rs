//! The roots that an entry offers its server: folders, as `roots/list` names them.

use std::path::Path;

use json::Json;
use url::Url;

use super::dialect::{EntryError, Fields};
use super::template::{Template, Variables};
use super::{ConfiguredServer, ResolveError, StartError, input_variable};

/// A folder that a server may work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// A `file:` URI without a slash at its end.
    pub uri: String,
    pub name: Option<String>,
}

/// An entry has no more.
const ROOTS_MAX: usize = 100;

impl Root {
    /// `None` if the path is not absolute.
    pub fn from_folder(folder: &Path) -> Option<Self> {
        let uri = Url::from_directory_path(folder).ok()?;
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        Some(Self { uri: uri.as_str().trim_end_matches('/').to_owned(), name })
    }
}

/// The result of `roots/list`.
pub fn roots_result(roots: &[Root]) -> Json {
    Json::object(|out| {
        out.array("roots", roots, |out, Root { uri, name }| {
            let mut root = json::write::ObjectWriter::new(out);
            root.str("uri", uri).maybe_str("name", name.as_deref());
            root.end();
        });
    })
}

/// `roots`: a list of folders.
pub(super) fn parse(fields: Fields<'_>) -> Result<Option<Vec<Template>>, EntryError> {
    let Some(roots) = fields.texts("roots")? else { return Ok(None) };
    if roots.len() > ROOTS_MAX {
        return Err(EntryError(format!("`roots` exceeds the limit of {ROOTS_MAX} folders")));
    }
    Ok(Some(roots.into_iter().map(|root| fields.template(root)).collect()))
}

impl ConfiguredServer {
    /// Whether the entry says which roots the server gets.
    pub fn declares_roots(&self) -> bool {
        self.entry.as_ref().is_ok_and(|entry| entry.roots.is_some())
    }

    /// Expands the variables of these roots. Relative paths start at the folder of the project, or of the file that was named
    /// for this run.
    pub fn resolve_roots(
        &self,
        roots: &[Template],
        env: &dyn Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<Vec<Root>, StartError> {
        let folder = self.source.folder.as_deref();
        let input = |id: &str| env(&input_variable(id));
        let variables = Variables { env, input: &input, home, project: folder };
        let resolve = |(index, root): (usize, &Template)| {
            let text = root
                .expand(&variables)
                .map_err(|error| ResolveError::Expand { field: format!("roots[{index}]"), error })?;
            let invalid = || ResolveError::Root { root: root.text().to_owned() };
            let path = match text.strip_prefix("file:") {
                Some(_) => {
                    Url::parse(&text).ok().and_then(|url| url.to_file_path().ok()).ok_or_else(invalid)?
                }
                None => folder.map_or_else(|| Path::new(&text).to_owned(), |folder| folder.join(&text)),
            };
            Root::from_folder(&path).ok_or_else(invalid)
        };
        roots.iter().enumerate().map(resolve).collect::<Result<_, _>>().map_err(StartError::Resolve)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Root, roots_result};

    #[test]
    fn roots_are_listed_as_file_uris() {
        let root = Root::from_folder(Path::new("/data/my files")).expect("an absolute path");
        let expected = r#"{"roots":[{"uri":"file:///data/my%20files","name":"my files"}]}"#;
        assert_eq!(roots_result(&[root]).as_str(), expected);
        assert_eq!(Root::from_folder(Path::new("data")), None);
    }
}
