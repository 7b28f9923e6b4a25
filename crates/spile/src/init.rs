//! `spile init`: writes the manifest that serving used all along, to be changed.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::project::{MANIFEST, Project};
use crate::replace::{self, Mode};
use crate::report::tell;

pub fn init(path: &Path, force: bool) -> anyhow::Result<ExitCode> {
    let project = Project::find(path)?;
    let folder = project.folder.clone();
    let file = folder.join(MANIFEST);
    let is_there = || format!("`{}` is there already; --force replaces it", file.display());
    if file.exists() && !force {
        bail!(is_there());
    }
    let (text, found) = project.without_manifest()?.manifest_text()?;
    tell(&found);
    let Some(text) = text else { return Ok(ExitCode::FAILURE) };
    // Editors find the schema by the first line of the manifest; it is that of this version.
    let schema = folder.join(contract::init::SCHEMA_PATH);
    replace::make_folder_of(&schema)?;
    replace::file(&schema, contract::manifest::schema().as_bytes(), Mode::AsItWasOrUsual)?;
    if force {
        replace::file(&file, text.as_bytes(), Mode::AsItWasOrUsual)?;
    } else {
        // Somebody may have written one meanwhile.
        replace::new_file(&file, text.as_bytes(), Mode::Usual).with_context(|| match file.exists() {
            true => is_there(),
            false => format!("`{}` cannot be written", file.display()),
        })?;
    }
    writeln!(io::stderr(), "wrote {0}; `spile check {0}` says what it makes", file.display())?;
    Ok(ExitCode::SUCCESS)
}
