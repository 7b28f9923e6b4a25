//! The contents of a packed server: the manifest, the lock file, and the files of its sources.

use std::path::PathBuf;

use anyhow::ensure;
use contract::manifest::SourceKind;
use contract::source::SourceLocation;
use host::SystemPlatform;
use spile_core::Platform;
use spile_core::text::hex;
use toml_edit::{DocumentMut, Item, Value};

use super::{MANIFEST, Project, Scan, parse_manifest};
use crate::atomic_file::{self, FileMode};
use crate::lock;

const ID_CHARS: usize = 16;

/// Everything that `spile pack` puts into a file.
pub struct PackageContents {
    pub manifest: String,
    pub lock: Option<Vec<u8>>,
    /// Where the sources are.
    pub sources: Vec<PackedSource>,
    /// Names of the environment variables that the manifest uses.
    pub variables: Vec<String>,
    /// Distinguishes the data of this project from that of another one with the same name.
    pub id: Option<String>,
    /// The file that the id was written to, if it was generated just now.
    pub new_id_file: Option<PathBuf>,
}

pub struct PackedSource {
    pub name: String,
    pub location: SourceLocation,
    /// As the manifest has it.
    pub manifest_path: String,
    pub kind: SourceKind,
}

impl Project {
    /// The contents to pack. A project whose packed data can be written to needs an id; one is generated if there is
    /// none.
    pub fn package_contents(
        &self,
        scan: Scan,
        with_data: bool,
        is_written_to: bool,
    ) -> anyhow::Result<PackageContents> {
        let declared = scan.manifest.iter().flat_map(|manifest| &manifest.sources);
        let sources: Vec<PackedSource> = declared
            .map(|one| PackedSource {
                name: one.name.value.clone(),
                location: self.source_location(one),
                manifest_path: one.location.value.to_string(),
                kind: one.settings.kind(),
            })
            .collect();
        let (manifest, variables) = if with_data && !scan.variables.is_empty() {
            let text = with_file_names(&scan.manifest_text, &sources)?;
            let (_, variables) = parse_manifest(MANIFEST, &text);
            (text, variables)
        } else {
            (scan.manifest_text, scan.variables)
        };
        let lock = lock::lock_path(self).and_then(|file| std::fs::read(file).ok());
        let (id, new_id_file) = if with_data && is_written_to { self.project_id()? } else { (None, None) };
        let variables = variables.into_iter().collect();
        Ok(PackageContents { sources, lock, variables, manifest, id, new_id_file })
    }

    /// Random, and generated once: a project that is packed again keeps its id, so its users keep their data.
    fn project_id(&self) -> anyhow::Result<(Option<String>, Option<PathBuf>)> {
        let file = self.folder.join(".spile").join("id");
        if let Ok(text) = std::fs::read_to_string(&file) {
            let id = text.trim();
            let is_id = id.len() == ID_CHARS && id.bytes().all(|b| b.is_ascii_hexdigit());
            ensure!(is_id, "`{}` is not a valid project id; delete it to generate a new one", file.display());
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

/// Replaces paths that use an environment variable with the name of the packed file, so that the packed server does not
/// need the variable.
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
        let Some(file) = source.location.packable_file() else { continue };
        let name = file.file_name().unwrap_or_default().to_string_lossy().replace("${", "$${");
        let decor = path.decor().clone();
        *path = Value::from(name);
        *path.decor_mut() = decor;
    }
    Ok(document.to_string())
}
