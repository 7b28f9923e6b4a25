//! `spile init`: writes the manifest that serving used all along, to be changed.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::atomic_file::{self, FileMode};
use crate::project::{MANIFEST, Project};
use crate::report::print_diagnostics;

pub fn init(path: &Path, force: bool) -> anyhow::Result<ExitCode> {
    let project = Project::find(path)?;
    let folder = project.folder.clone();
    let file = folder.join(MANIFEST);
    let is_there = || format!("`{}` is there already; --force replaces it", file.display());
    if file.exists() && !force {
        bail!(is_there());
    }
    let (text, found) = project.without_manifest()?.manifest_text()?;
    print_diagnostics(&found);
    let Some(text) = text else { return Ok(ExitCode::FAILURE) };
    // Editors find the schema by the first line of the manifest; it is that of this version.
    let schema = folder.join(contract::init::SCHEMA_PATH);
    atomic_file::create_parent_dir(&schema)?;
    atomic_file::write(&schema, contract::manifest::schema().as_bytes(), FileMode::PreserveOrUmask)?;
    if force {
        atomic_file::write(&file, text.as_bytes(), FileMode::PreserveOrUmask)?;
    } else {
        // Somebody may have written one meanwhile.
        atomic_file::create_new(&file, text.as_bytes(), FileMode::Umask).with_context(|| {
            match file.exists() {
                true => is_there(),
                false => format!("`{}` cannot be written", file.display()),
            }
        })?;
    }
    writeln!(io::stderr(), "wrote {0}; `spile check {0}` says what it makes", file.display())?;
    Ok(ExitCode::SUCCESS)
}
