//! `metadata.json`, the first member of the archive: the name of a packed server, and where its files are.

use anyhow::{Context, bail};
use json::{Json, ParseLimits};

/// The name of this member.
pub(super) const MEMBER: &str = "metadata.json";
pub(super) const MANIFEST: &str = "spile.toml";
pub(super) const LOCK: &str = "spile.lock";
/// Code and content are below this folder of the archive.
pub(super) const FOLDER: &str = "folder";
/// Where the imports of the code lead.
pub(super) const LINKS: &str = "links.json";
pub(super) const BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackMetadata {
    pub name: String,
    pub version: String,
    /// Names of the environment variables that its manifest uses.
    pub variables: Vec<String>,
    /// The path in the archive of the file of each source; empty if the data is not packed.
    pub(super) sources: Vec<(String, String)>,
    /// Whether a tool writes to them.
    pub(super) is_writable: bool,
    /// Distinguishes the data of this server from that of another one with the same name.
    pub(super) id: Option<String>,
}

impl PackMetadata {
    pub(super) fn write(&self) -> String {
        let json = Json::object(|metadata| {
            metadata.int("format", 1).str("name", &self.name).str("version", &self.version);
            metadata.array("variables", &self.variables, |out, one| json::write::string(out, one));
            metadata.object("sources", |sources| {
                for (name, path) in &self.sources {
                    sources.str(name, path);
                }
            });
            metadata.bool("writable", self.is_writable);
            metadata.maybe_str("id", self.id.as_deref());
        });
        json.as_str().to_owned()
    }

    pub(super) fn read(bytes: Vec<u8>) -> anyhow::Result<Self> {
        let doc = json::parse(bytes, &ParseLimits::default()).map_err(|_| damaged_error())?;
        let root = doc.root();
        if root.get("format").and_then(|format| format.u64()) != Some(1) {
            bail!("this file was packed by a newer version of spile");
        }
        let text = |key: &str| {
            root.get(key).and_then(|value| value.str()).map(Into::into).with_context(damaged_error)
        };
        let variables = root.get("variables").with_context(damaged_error)?;
        let sources = root.get("sources").with_context(damaged_error)?;
        Ok(Self {
            name: text("name")?,
            version: text("version")?,
            variables: variables.elements().filter_map(|one| Some(one.str()?.into_owned())).collect(),
            sources: sources
                .members()
                .filter_map(|(name, path)| Some((name.str()?.into_owned(), path.str()?.into_owned())))
                .collect(),
            is_writable: root.get("writable").and_then(|value| value.bool()).with_context(damaged_error)?,
            id: root.get("id").and_then(|id| id.str()).map(Into::into),
        })
    }
}

fn damaged_error() -> anyhow::Error {
    anyhow::anyhow!("the packed data is damaged; download or copy the file again")
}
