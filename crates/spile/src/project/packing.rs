//! What goes into one file: the manifest, what it reads, and where that lies.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use call::World;
use contract::manifest::{self, Manifest, SourceKind};
use host::RealWorld;

use super::{Looked, MANIFEST, Plan, Project};
use crate::replace::{self, Mode};

const ID_CHARS: usize = 16;

/// What packing needs to know.
pub struct Packing {
    pub manifest: String,
    pub lock: Option<Vec<u8>>,
    /// The files that sources read.
    pub sources: Vec<PackedSource>,
    /// Variables that the manifest reads.
    pub variables: Vec<String>,
    /// What tells this project's data from another's.
    pub id: Option<String>,
    /// Where that was written down, if it was made now.
    pub made: Option<PathBuf>,
}

pub struct PackedSource {
    pub name: String,
    pub path: PathBuf,
    pub kind: SourceKind,
}

impl Project {
    /// What goes into one file. With data that is written to, the project needs an id, and gets one.
    pub fn packing(&self, needs_id: bool) -> anyhow::Result<Packing> {
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
        let (id, made) = if needs_id { self.id()? } else { (None, None) };
        Ok(Packing { sources: sources.collect(), lock, variables, manifest: text, id, made })
    }

    /// Chance decides it once; a project that is packed again keeps it, and with it the data of those who run it.
    fn id(&self) -> anyhow::Result<(Option<String>, Option<PathBuf>)> {
        let file = self.folder.join(".spile").join("id");
        if let Ok(text) = std::fs::read_to_string(&file) {
            let id = text.trim();
            let is_id = id.len() == ID_CHARS && id.bytes().all(|b| b.is_ascii_hexdigit());
            ensure!(is_id, "`{}` is not what was written there; remove it", file.display());
            return Ok((Some(id.to_owned()), None));
        }
        let mut random = [0; ID_CHARS / 2];
        RealWorld::default().fill(&mut random);
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        replace::make_folder_of(&file)?;
        replace::file(&file, format!("{id}\n").as_bytes(), Mode::Usual)?;
        Ok((Some(id), Some(file)))
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
