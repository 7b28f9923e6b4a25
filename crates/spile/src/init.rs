//! `spile init`: writes the manifest that `serve` uses when there is none.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::atomic_file::{self, FileMode};
use crate::notice;
use crate::project::{MANIFEST, Project};
use crate::report::print_diagnostics;

pub fn init(path: &Path, force: bool) -> anyhow::Result<ExitCode> {
    let project = Project::find(path)?;
    let folder = project.folder.clone();
    let file = folder.join(MANIFEST);
    let exists_message = || format!("`{}` already exists; use --force to replace it", file.display());
    if file.exists() && !force {
        bail!(exists_message());
    }
    let (text, found) = project.without_manifest()?.manifest_text()?;
    print_diagnostics(&found);
    let Some(text) = text else { return Ok(ExitCode::FAILURE) };
    // The first line of the manifest points editors to this schema, which is that of this version.
    let schema = folder.join(contract::init::SCHEMA_PATH);
    atomic_file::create_parent_dir(&schema)?;
    atomic_file::write(&schema, contract::manifest::schema().as_bytes(), FileMode::PreserveOrUmask)?;
    if force {
        atomic_file::write(&file, text.as_bytes(), FileMode::PreserveOrUmask)?;
    } else {
        // Another program may have written one in the meantime.
        atomic_file::create_new(&file, text.as_bytes(), FileMode::Umask).with_context(|| {
            match file.exists() {
                true => exists_message(),
                false => format!("cannot write `{}`", file.display()),
            }
        })?;
    }
    notice::info(&format!(
        "wrote {0} and {1}; `spile check {0}` shows what it compiles to",
        file.display(),
        schema.display()
    ));
    Ok(ExitCode::SUCCESS)
}
