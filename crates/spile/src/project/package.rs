//! What goes into one file: the manifest, what it reads, and where that lies.

use std::path::PathBuf;

use anyhow::ensure;
use contract::manifest::SourceKind;
use host::SystemPlatform;
use spile_core::Platform;
use spile_core::text::hex;
use toml_edit::{DocumentMut, Item, Value};

use super::{MANIFEST, Project, Scan, parse_manifest};
use crate::atomic_file::{self, FileMode};
use crate::lock;

const ID_CHARS: usize = 16;

/// What packing needs to know.
pub struct PackageContents {
    pub manifest: String,
    pub lock: Option<Vec<u8>>,
    /// The files that sources read.
    pub sources: Vec<PackedSource>,
    /// Variables that the manifest reads.
    pub variables: Vec<String>,
    /// What tells this project's data from another's.
    pub id: Option<String>,
    /// Where that was written down, if it was made now.
    pub new_id_file: Option<PathBuf>,
}

pub struct PackedSource {
    pub name: String,
    pub path: PathBuf,
    pub kind: SourceKind,
}

impl Project {
    /// What goes into one file, of what was looked at. With data that is written to, the project needs an id, and
    /// gets one.
    pub fn package_contents(
        &self,
        looked: Scan,
        with_data: bool,
        is_written_to: bool,
    ) -> anyhow::Result<PackageContents> {
        let named = looked.manifest.iter().flat_map(|manifest| &manifest.sources);
        let sources: Vec<PackedSource> = named
            .map(|one| PackedSource {
                name: one.name.value.clone(),
                path: self.source_path(&one.name.value, &one.path.value),
                kind: one.settings.kind(),
            })
            .collect();
        let (manifest, variables) = if with_data && !looked.variables.is_empty() {
            let text = with_file_names(&looked.manifest_text, &sources)?;
            let (_, variables) = parse_manifest(MANIFEST, &text);
            (text, variables)
        } else {
            (looked.manifest_text, looked.variables)
        };
        let lock = lock::lock_path(self).and_then(|file| std::fs::read(file).ok());
        let (id, made) = if with_data && is_written_to { self.project_id()? } else { (None, None) };
        let variables = variables.into_iter().collect();
        Ok(PackageContents { sources, lock, variables, manifest, id, new_id_file: made })
    }

    /// Chance decides it once; a project that is packed again keeps it, and with it the data of those who run it.
    fn project_id(&self) -> anyhow::Result<(Option<String>, Option<PathBuf>)> {
        let file = self.folder.join(".spile").join("id");
        if let Ok(text) = std::fs::read_to_string(&file) {
            let id = text.trim();
            let is_id = id.len() == ID_CHARS && id.bytes().all(|b| b.is_ascii_hexdigit());
            ensure!(is_id, "`{}` is not what was written there; remove it", file.display());
            return Ok((Some(id.to_owned()), None));
        }
        let mut random = [0; ID_CHARS / 2];
        SystemPlatform::default().fill_random(&mut random);
        let id = hex(&random);
        atomic_file::create_parent_dir(&file)?;
        atomic_file::write(&file, format!("{id}\n").as_bytes(), FileMode::Umask)?;
        Ok((Some(id), Some(file)))
    }
}

/// The manifest with the name of each file where a variable said where it lies: the file goes along, and nobody who
/// runs the server needs that variable.
fn with_file_names(text: &str, sources: &[PackedSource]) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse()?;
    let tables = document.get_mut("sources").and_then(Item::as_table_like_mut);
    let Some(tables) = tables else { return Ok(text.to_owned()) };
    for source in sources {
        let table = tables.get_mut(&source.name).and_then(Item::as_table_like_mut);
        let path = table.and_then(|table| table.get_mut("path")?.as_value_mut());
        let Some(path) = path.filter(|path| path.as_str().is_some_and(|path| path.contains("${"))) else {
            continue;
        };
        let name = source.path.file_name().unwrap_or_default().to_string_lossy().replace("${", "$${");
        let around = path.decor().clone();
        *path = Value::from(name);
        *path.decor_mut() = around;
    }
    Ok(document.to_string())
}
