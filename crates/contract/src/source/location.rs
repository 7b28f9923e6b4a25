//! Where the data of a source is.
//!
//! A place that is not a file is one more variant: the compiler then lists every decision that depends on the kind of
//! place. They are all methods here, except opening the source, which is in `spile/src/project/sources.rs`.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use super::database_url::DatabaseUrl;
use super::rest_url::RestUrl;

/// The place of a source: as the manifest has it, or resolved against the folder of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourceLocation {
    File(PathBuf),
    Database(DatabaseUrl),
    Rest(RestUrl),
}

/// A file that changes when the data changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileToWatch {
    pub path: PathBuf,
    /// Whether an empty file means the same as no file.
    pub empty_is_missing: bool,
}

/// A place that this version cannot read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedLocation {
    pub message: String,
    pub help: String,
}

impl SourceLocation {
    /// Parses the `path` of a source in a manifest.
    pub fn parse(text: &str) -> Result<Self, UnsupportedLocation> {
        match scheme(text) {
            None => Ok(Self::File(text.into())),
            Some("file") => {
                let path = text.trim_start_matches("file://");
                Err(UnsupportedLocation {
                    message: format!("`{text}` is a URL, but the path of a source must be a file"),
                    help: format!("write the path without `file://`: `{path}`"),
                })
            }
            Some(_) if DatabaseUrl::parse(text).is_some() => Err(UnsupportedLocation {
                message: "`path` is for files, and this is the URL of a database".into(),
                help: "write `url` instead of `path`".into(),
            }),
            // Without the rest, which may hold a password.
            Some(scheme) if !is_download(scheme) || text.contains('@') => Err(UnsupportedLocation {
                message: format!("sources at `{scheme}://` are not supported in this version"),
                help: "this version reads files, PostgreSQL, MySQL, MariaDB and REST APIs; export the data to a file, and name that"
                    .into(),
            }),
            Some(_) => Err(UnsupportedLocation {
                message: format!("`{text}` is a URL, but the path of a source must be a file"),
                help: "data on the web is a source of the kind `rest`: write `kind = \"rest\"` and `url`".into(),
            }),
        }
    }

    /// The same place, where a relative path is relative to `folder`.
    #[must_use]
    pub fn resolve(&self, folder: &Path) -> Self {
        match self {
            Self::File(path) => Self::File(folder.join(path)),
            Self::Database(_) | Self::Rest(_) => self.clone(),
        }
    }

    /// The last part of it, which descriptions and messages show: `customers.csv`.
    pub fn short_name(&self) -> Cow<'_, str> {
        match self {
            // A manifest may have been written on another system.
            Self::File(path) => match path.to_string_lossy() {
                Cow::Borrowed(text) => Cow::Borrowed(last_component(text)),
                Cow::Owned(text) => Cow::Owned(last_component(&text).to_owned()),
            },
            Self::Database(url) => Cow::Borrowed(url.database()),
            Self::Rest(url) => Cow::Borrowed(url.host()),
        }
    }

    /// The files whose stamps show that the data may have changed. A place without files is followed by its source.
    pub fn files_to_watch(&self) -> Vec<FileToWatch> {
        match self {
            Self::File(path) => {
                let mut log = path.clone().into_os_string();
                log.push("-wal");
                vec![
                    FileToWatch { path: path.clone(), empty_is_missing: false },
                    // The newest rows of a database may be in its write-ahead log. Opening the database may create an
                    // empty one, and closing it may delete that.
                    FileToWatch { path: log.into(), empty_is_missing: true },
                ]
            }
            Self::Database(_) | Self::Rest(_) => Vec::new(),
        }
    }

    /// The file that a packed server can take along; `None` for data that stays where it is.
    pub fn packable_file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Database(_) | Self::Rest(_) => None,
        }
    }

    /// Whether the place means the same on another machine, or beside another executable.
    pub fn is_relative(&self) -> bool {
        match self {
            Self::File(path) => path.is_relative(),
            Self::Database(_) | Self::Rest(_) => false,
        }
    }

    /// Whether there is certainly nothing at this place now.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::File(path) => !path.exists(),
            Self::Database(_) | Self::Rest(_) => false,
        }
    }

    /// The size of the data in bytes, where that is known without reading it.
    pub fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::File(path) => std::fs::metadata(path).ok().map(|metadata| metadata.len()),
            Self::Database(_) | Self::Rest(_) => None,
        }
    }
}

/// As the author wrote it, without a password.
impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Database(url) => url.fmt(f),
            Self::Rest(url) => url.fmt(f),
        }
    }
}

/// The scheme of a URL. A path such as `C:\data` has none.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some(scheme)
}

fn is_download(scheme: &str) -> bool {
    ["http", "https"].iter().any(|one| scheme.eq_ignore_ascii_case(one))
}

fn last_component(text: &str) -> &str {
    text.rsplit(['/', '\\']).next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_file_and_a_url_is_not_in_this_version() {
        let url = "is a URL, but the path of a source must be a file";
        for (text, expected) in [
            ("people.csv", Ok("people.csv")),
            (r"C:\data\people.csv", Ok("people.csv")),
            ("../a b/people.csv", Ok("people.csv")),
            ("://people.csv", Ok("people.csv")),
            ("./1://people.csv", Ok("people.csv")),
            ("https://example.com/people.csv", Err(format!("`https://example.com/people.csv` {url}"))),
            ("file:///people.csv", Err(format!("`file:///people.csv` {url}"))),
            (
                "postgres://eve:secret@db/crm",
                Err("`path` is for files, and this is the URL of a database".to_owned()),
            ),
            (
                "HTTPS://eve:secret@example.com/people.csv",
                Err("sources at `HTTPS://` are not supported in this version".to_owned()),
            ),
            (
                "mongodb+srv://db/crm",
                Err("sources at `mongodb+srv://` are not supported in this version".to_owned()),
            ),
        ] {
            let parsed = SourceLocation::parse(text);
            let short =
                parsed.map(|location| location.short_name().into_owned()).map_err(|error| error.message);
            assert_eq!(short, expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn a_message_never_repeats_a_password() {
        for text in ["postgres://eve:secret@db/crm", "https://eve:secret@example.com/people.csv"] {
            let error = SourceLocation::parse(text).expect_err("a URL");
            assert!(!format!("{} {}", error.message, error.help).contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_file_is_relative_to_its_folder_and_watched_with_its_write_ahead_log() {
        let location = SourceLocation::File("crm.db".into());
        assert!(location.is_relative());
        let resolved = location.resolve(Path::new("/data"));
        assert_eq!(resolved, SourceLocation::File("/data/crm.db".into()));
        let watched = resolved.files_to_watch();
        let watched: Vec<_> =
            watched.iter().map(|file| (file.path.as_path(), file.empty_is_missing)).collect();
        assert_eq!(watched, [(Path::new("/data/crm.db"), false), (Path::new("/data/crm.db-wal"), true)]);
        assert_eq!(resolved.packable_file(), Some(Path::new("/data/crm.db")));
        let elsewhere = SourceLocation::File("/srv/crm.db".into());
        assert_eq!(elsewhere.resolve(Path::new("/data")), elsewhere);
    }
}
