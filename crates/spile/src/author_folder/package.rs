//! What a packed server takes along of a folder: the modules of its code, packages included, and its content.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use super::{Author, Directories, SERVER_FILE};

const FILES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 256 << 20;

/// The files of a folder, by their path inside it.
#[derive(Debug, Default)]
pub(crate) struct PackedFolder {
    pub(crate) files: BTreeMap<String, PathBuf>,
    /// Where the imports of code lead, as JSON.
    pub(crate) links: Vec<u8>,
    /// The environment variables that code may read.
    pub(crate) variables: Vec<String>,
    /// Names and descriptions of the tools in code.
    pub(crate) tools: Vec<(String, String)>,
}

impl Author {
    /// Everything that is served. Code that cannot be served is left out, as it is when the folder is served.
    pub(crate) fn package(&self) -> anyhow::Result<PackedFolder> {
        if let Some(root) = self.permissions.files.iter().find(|root| root.can_write) {
            bail!(
                "code may write to `{}`, which a packed server does not have; serve the folder itself, or remove \
                 `writable_files`",
                root.name
            );
        }
        let root = &self.folder.root;
        let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
        for file in
            self.bundle.packable_files().into_iter().chain(["tsconfig.json".into(), SERVER_FILE.into()])
        {
            let path = root.join(&file);
            if path.is_file() {
                files.insert(file, path);
            }
        }
        let Directories { tools: _, prompts, resources, skills, apps } = &self.folder.directories;
        let permitted = self.permissions.files.iter().map(|root| &root.name);
        for folder in [prompts, resources, skills, apps].into_iter().chain(permitted) {
            add_folder(&mut files, root, Path::new(folder))?;
        }
        let bytes: u64 = files.values().filter_map(|path| Some(std::fs::metadata(path).ok()?.len())).sum();
        ensure!(
            files.len() <= FILES_MAX && bytes <= BYTES_MAX,
            "the folder has {} files with {bytes} bytes; a packed server holds at most {FILES_MAX} and {BYTES_MAX}",
            files.len()
        );
        let variables = self.permissions.env.keys().chain(self.permissions.secrets.keys()).cloned().collect();
        let tools =
            self.tools().map(|tool| (tool.name.clone(), tool.description.clone().unwrap_or_default()));
        Ok(PackedFolder { files, links: self.bundle.links().to_json(), variables, tools: tools.collect() })
    }
}

/// All regular files below a folder. Links are not followed, and hidden files are not served.
fn add_folder(files: &mut BTreeMap<String, PathBuf>, root: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            let (inside, kind) = (folder.join(name), entry.file_type()?);
            if kind.is_dir() {
                folders.push(inside);
            } else if kind.is_file() {
                let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
                files.insert(parts.join("/"), entry.path());
            }
            ensure!(files.len() <= FILES_MAX, "the folder has more than {FILES_MAX} files");
        }
    }
    Ok(())
}
