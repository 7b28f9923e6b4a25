//! What a packed server says of itself, and what lies where in it.

use anyhow::{Context, bail};
use json::{Json, ScanLimits};

/// The first member of the archive.
pub(super) const MEMBER: &str = "about.json";
pub(super) const MANIFEST: &str = "spile.toml";
pub(super) const LOCK: &str = "spile.lock";
pub(super) const BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackMetadata {
    pub name: String,
    pub version: String,
    /// Variables that its manifest reads.
    pub variables: Vec<String>,
    /// Where each source's file lies in the archive; empty if none does.
    pub(super) sources: Vec<(String, String)>,
    /// Whether callers may write to them.
    pub(super) is_writable: bool,
    /// What tells the data of this server from that of another of its name.
    pub(super) id: Option<String>,
}

impl PackMetadata {
    pub(super) fn write(&self) -> String {
        let json = Json::object(|about| {
            about.int("format", 1).str("name", &self.name).str("version", &self.version);
            about.array("variables", &self.variables, |out, one| json::write::string(out, one));
            about.object("sources", |sources| {
                for (name, place) in &self.sources {
                    sources.str(name, place);
                }
            });
            about.bool("writable", self.is_writable);
            about.maybe_str("id", self.id.as_deref());
        });
        json.as_str().to_owned()
    }

    pub(super) fn read(bytes: Vec<u8>) -> anyhow::Result<Self> {
        let doc = json::scan(bytes, &ScanLimits::default()).map_err(|_| damaged_error())?;
        let root = doc.root();
        if root.get("format").and_then(|format| format.u64()) != Some(1) {
            bail!("it was packed by a newer version of spile");
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
                .filter_map(|(name, place)| Some((name.str()?.into_owned(), place.str()?.into_owned())))
                .collect(),
            is_writable: root.get("writable").and_then(|value| value.bool()).with_context(damaged_error)?,
            id: root.get("id").and_then(|id| id.str()).map(Into::into),
        })
    }
}

fn damaged_error() -> anyhow::Error {
    anyhow::anyhow!("what is packed in it is broken; get the file again")
}
