//! What goes into one file: the manifest, what it reads, and where that lies.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, bail};
use contract::manifest::{self, Manifest, SourceKind};

use super::{Looked, MANIFEST, Plan, Project};

/// What packing needs to know.
pub struct Packing {
    pub manifest: String,
    pub lock: Option<Vec<u8>>,
    /// The files that sources read.
    pub sources: Vec<PackedSource>,
    /// Variables that the manifest reads.
    pub variables: Vec<String>,
}

pub struct PackedSource {
    pub name: String,
    pub path: PathBuf,
    pub kind: SourceKind,
}

impl Project {
    /// What goes into one file.
    pub fn packing(&self) -> anyhow::Result<Packing> {
        let (manifest, text) = match &self.plan {
            Plan::Manifest(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("`{}` cannot be read", file.display()))?;
                (None, text)
            }
            Plan::Files(files) => {
                let made = self.made_manifest(files, &mut Vec::new(), &mut Looked::default())?;
                let (manifest, text) = made.context("these files cannot be served")?;
                (Some(manifest), text)
            }
        };
        let (read, variables) = asked(&text)?;
        let manifest = manifest.unwrap_or(read);
        let lock = std::fs::read(self.folder.join("spile.lock")).ok();
        let sources = manifest.sources.iter().map(|one| PackedSource {
            name: one.name.value.clone(),
            path: self.path_of(&one.name.value, &one.path.value),
            kind: one.settings.kind(),
        });
        Ok(Packing { sources: sources.collect(), lock, variables, manifest: text })
    }

    /// The variables that a manifest reads.
    pub fn variables(&self) -> anyhow::Result<Vec<String>> {
        match &self.plan {
            Plan::Manifest(file) => Ok(asked(&std::fs::read_to_string(file)?)?.1),
            Plan::Files(_) => Ok(Vec::new()),
        }
    }
}

/// A manifest, and which variables it asked for.
fn asked(text: &str) -> anyhow::Result<(Manifest, Vec<String>)> {
    let names = RefCell::new(BTreeSet::new());
    let env = |name: &str| {
        names.borrow_mut().insert(name.to_owned());
        std::env::var(name).ok()
    };
    let manifest = match manifest::parse(MANIFEST, text, &env) {
        Ok((manifest, _)) => manifest,
        Err(found) => bail!("{}", contract::diagnostic::render_all(&found, false)),
    };
    Ok((manifest, names.into_inner().into_iter().collect()))
}
