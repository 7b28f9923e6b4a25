//! `spile new`: a folder for a new server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use crate::atomic_file::{self, FileMode};
use crate::banner::shell_quote;
use crate::notice;

#[derive(Debug, Args)]
pub struct NewArgs {
    /// The folder to make; its name becomes the name of the server
    pub path: PathBuf,
    /// What the folder starts with
    #[arg(long, value_enum, default_value_t = Template::Data)]
    pub template: Template,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// A spreadsheet with a manifest
    Data,
    /// Tools in TypeScript
    Tools,
    /// Data, tools, prompts and resources
    Everything,
}

/// A file of a template; `{{name}}` stands for the name of the server.
type TemplateFile = (&'static str, &'static str);

const DATA_FILES: [TemplateFile; 3] = [
    ("spile.toml", include_str!("templates/data.toml")),
    ("customers.csv", include_str!("templates/customers.csv")),
    ("tests/customers.toml", include_str!("templates/tests/customers.toml")),
];
const TOOL_FILES: [TemplateFile; 5] = [
    ("tools/roll-dice.ts", include_str!("templates/tools/roll-dice.ts")),
    ("tools/greet.ts", include_str!("templates/tools/greet.ts")),
    ("tests/tools.toml", include_str!("templates/tests/tools.toml")),
    ("spile.d.ts", include_str!("templates/spile.d.ts")),
    ("tsconfig.json", include_str!("templates/tsconfig.json")),
];
const TOOLS_MANIFEST: TemplateFile = ("spile.toml", include_str!("templates/tools.toml"));
const CONTENT_FILES: [TemplateFile; 3] = [
    ("prompts/welcome.md", include_str!("templates/prompts/welcome.md")),
    ("resources/plans.md", include_str!("templates/resources/plans.md")),
    ("tests/content.toml", include_str!("templates/tests/content.toml")),
];

impl Template {
    fn files(self) -> Vec<TemplateFile> {
        match self {
            Self::Data => DATA_FILES.to_vec(),
            Self::Tools => [&[TOOLS_MANIFEST][..], &TOOL_FILES].concat(),
            Self::Everything => [&DATA_FILES[..], &TOOL_FILES, &CONTENT_FILES].concat(),
        }
    }

    /// A call that works in the new folder.
    fn example_call(self) -> &'static str {
        match self {
            Self::Data | Self::Everything => "lookup_customer email=dana@acme.test",
            Self::Tools => "roll-dice count=2",
        }
    }
}

pub fn new(args: &NewArgs) -> anyhow::Result<ExitCode> {
    let folder = &args.path;
    let name = server_name(folder)?;
    check_free(folder)?;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let schema = (contract::init::SCHEMA_PATH, contract::manifest::schema());
    let files = args.template.files().into_iter().map(|(path, text)| (path, text.replace("{{name}}", &name)));
    for (path, text) in files.chain([schema]) {
        let file = folder.join(path);
        atomic_file::create_parent_dir(&file)?;
        // Never replaces a file that another program wrote in the meantime.
        atomic_file::create_new(&file, text.as_bytes(), FileMode::Umask)
            .with_context(|| format!("cannot write `{}`", file.display()))?;
    }
    let shown = shell_quote(&folder.display().to_string());
    notice::info(&format!(
        "created {shown}; try:\n  spile test {shown}\n  spile call {} --from {shown}\n  spile dev {shown}",
        args.template.example_call()
    ));
    Ok(ExitCode::SUCCESS)
}

/// The last part of the path, which must be usable as a name everywhere.
fn server_name(folder: &Path) -> anyhow::Result<String> {
    let name = match folder.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => {
            let absolute = std::path::absolute(folder)?;
            let absolute = absolute.canonicalize().unwrap_or(absolute);
            absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        }
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_plain) || name.starts_with(['-', '.']) {
        bail!(
            "`{name}` cannot be the name of a server; use letters, digits, `-`, `_` and `.`, such as my-server"
        );
    }
    Ok(name)
}

/// An existing folder must be empty.
fn check_free(folder: &Path) -> anyhow::Result<()> {
    let metadata = match std::fs::symlink_metadata(folder) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", folder.display())),
    };
    if !metadata.is_dir() {
        bail!("`{}` exists and is not a folder; choose another name", folder.display());
    }
    let mut entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    if entries.next().is_some() {
        bail!(
            "`{}` exists and is not empty; choose another name, or use `spile init` for your data",
            folder.display()
        );
    }
    Ok(())
}
