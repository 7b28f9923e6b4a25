//! `spile import openapi`: chosen operations of an OpenAPI document as tools of a manifest.
//!
//! ```text
//! file or URL → document (JSON or YAML) → operations → chosen ones → manifest entries, or a reason for each that cannot be one
//! ```
//!
//! It never mirrors a whole API by itself: a model that has to choose among two hundred tools chooses badly. What it writes is an
//! ordinary manifest, to be read and edited.

mod convert;
mod document;
mod operations;
mod picker;
mod render;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use contract::diagnostic::Diagnostic;
use contract::humanize::pluralize;

use crate::atomic_file::{self, FileMode};
use crate::notice;
use crate::report::{print, print_diagnostics};
use crate::sanitize::escape_line;
use convert::{Refusal, ToolEntry};
use document::Document;
use operations::Operation;

/// More tools than this cost every conversation more than they are worth.
const TOOLS_ADVISED_MAX: usize = 40;

#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Write chosen operations of an OpenAPI document (3.0 or 3.1, JSON or YAML) as tools of a manifest
    Openapi(OpenapiArgs),
}

#[derive(Debug, Args)]
pub struct OpenapiArgs {
    /// The document: a file, or an http(s) URL
    document: String,
    /// Operations to import: an operationId, `METHOD /path`, `tag:NAME` or a pattern with `*`; may be repeated
    #[arg(long, value_name = "PATTERN")]
    select: Vec<String>,
    /// List the operations, and say which cannot be imported
    #[arg(long, conflicts_with_all = ["select", "output"])]
    list: bool,
    /// Write a new manifest instead of printing it
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    force: bool,
    /// The name of the source [default: from the document's title]
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

pub fn import(command: ImportCommand) -> anyhow::Result<ExitCode> {
    match command {
        ImportCommand::Openapi(args) => import_openapi(&args),
    }
}

fn import_openapi(args: &OpenapiArgs) -> anyhow::Result<ExitCode> {
    let document = Document::load(&args.document)?;
    let operations = operations::list(&document);
    if operations.is_empty() {
        bail!("`{}` has no operations", args.document);
    }
    if args.list {
        print(&format!("{}\n", picker::lines(&document, &operations).join("\n")))?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_interactive = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let chosen = match (args.select.is_empty(), is_interactive) {
        (false, _) => operations::select(&operations, &args.select)?,
        (true, true) => picker::pick(&document, &operations)?,
        (true, false) => bail!(
            "`{}` has {}; choose some with --select, for example --select '{}'; --list shows them",
            args.document,
            pluralize(operations.len() as u64, "operation"),
            operations[0].id
        ),
    };
    let imported = import_chosen(&document, &chosen, args.source.as_deref());
    for (operation, reason) in &imported.refused {
        warn(&format!("{} is not imported: {reason}", operation.label()));
    }
    if imported.count == 0 {
        bail!("none of the chosen operations can be imported");
    }
    if imported.count > TOOLS_ADVISED_MAX {
        warn(&format!(
            "{} tools are more than a model can choose well from; {TOOLS_ADVISED_MAX} are a good maximum",
            imported.count
        ));
    }
    match &args.output {
        None => print(&imported.manifest)?,
        Some(file) if args.force => {
            atomic_file::write(file, imported.manifest.as_bytes(), FileMode::PreserveOrUmask)?;
        }
        Some(file) => {
            atomic_file::create_new(file, imported.manifest.as_bytes(), FileMode::Umask).with_context(
                || format!("cannot write `{}`; use --force to replace an existing file", file.display()),
            )?;
        }
    }
    if let Some(file) = &args.output {
        let tools = pluralize(imported.count as u64, "tool");
        notice::info(&format!(
            "wrote {0} with {tools}; `spile check {0}` shows what it compiles to",
            file.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn warn(message: &str) {
    print_diagnostics(&[Diagnostic::warning(escape_line(message))]);
}

/// What became of the chosen operations.
struct Imported<'o> {
    manifest: String,
    count: usize,
    refused: Vec<(&'o Operation, Refusal)>,
}

fn import_chosen<'o>(document: &Document, chosen: &[&'o Operation], source: Option<&str>) -> Imported<'o> {
    let api = render::Api::new(document, source);
    let (mut tools, mut refused): (Vec<ToolEntry>, Vec<(&Operation, Refusal)>) = (Vec::new(), Vec::new());
    for operation in chosen {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let entry = convert::tool(document, operation, &names).and_then(|entry| {
            render::check(&api, &entry)?;
            Ok(entry)
        });
        match entry {
            Ok(entry) => tools.push(entry),
            Err(reason) => refused.push((operation, reason)),
        }
    }
    Imported { manifest: render::manifest(&api, &tools), count: tools.len(), refused }
}

#[cfg(test)]
mod tests;
