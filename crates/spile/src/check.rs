//! `spile check`: compiles a project, as far as that is possible without serving it, and reports.
//!
//! Exit codes: 0 if it can be served, whatever the notes say; 1 if it cannot, or with `--locked` if it differs from
//! the lock file; 2 for an invalid command line. docs/check.md defines the JSON of `--json`, which is stable: members
//! may be added, none is removed or changes its meaning.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use contract::compile::IntrospectedSource;
use contract::diagnostic::{Diagnostic, Severity};
use contract::{ToolOperation, lint};
use json::Json;
use json::write::{self, ObjectWriter};

use crate::author_folder::Author;
use crate::client::output_style::OutputStyle;
use crate::data_profile::{CollectionProfile, profile};
use crate::project::{MANIFEST, Project, Scan, SourceFailurePolicy};
use crate::report::{
    Report, ToolSummary, instructions_tokens, print, print_diagnostics, tool_summaries, total_tokens,
};
use crate::sanitize;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A data file, a spile.toml, or a folder with either
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// Fail if the contract differs from the lock file
    #[arg(long)]
    pub locked: bool,
    /// Fail if any source is unavailable (default: check the others)
    #[arg(long)]
    pub strict: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let policy = if args.strict { SourceFailurePolicy::Fail } else { SourceFailurePolicy::Skip };
    let project = Project::find(&args.path).map(|project| project.with_source_failures(policy));
    let mut scan = match project.and_then(|project| project.scan()) {
        Ok(scan) => scan,
        // With --json, the caller gets JSON whatever happens.
        Err(error) if args.json => {
            let diagnostics = vec![Diagnostic::error(crate::error_text(&error)).code("path")];
            Scan { diagnostics, ..Scan::default() }
        }
        Err(error) => return Err(error),
    };
    let lock_diagnostic = scan.lock_state.diagnostic(args.locked);
    let is_lock_violated = args.locked && lock_diagnostic.is_some();
    scan.diagnostics.extend(lock_diagnostic);
    let taken = taken_names(&scan);
    scan.diagnostics.extend(taken.iter().map(|name| {
        Diagnostic::warning(format!(
            "the code tool `{name}` is not served: a collection has a tool with this name"
        ))
        .code("name_taken")
        .help("rename its file, or give the tool of the collection another name with `[tools.NAME]`")
    }));
    let findings = lint_findings(&scan);
    let contract = scan.compiled.as_ref().map(|compiled| &compiled.contract);
    let is_ok = contract.is_some() && !is_lock_violated;
    let compiled = scan.compiled.as_ref();
    let data =
        compiled.map(|compiled| profile(&compiled.contract, &compiled.backends.readers)).unwrap_or_default();
    let code =
        scan.author.iter().flat_map(|author| author.tools()).filter(|tool| !taken.contains(&tool.name));
    let tools = contract.map(|contract| tool_summaries(contract, code)).unwrap_or_default();
    if args.json {
        let all: Vec<&Diagnostic> = scan.diagnostics.iter().chain(&findings).collect();
        print(&format!("{}\n", sanitize::json(as_json(is_ok, &scan, &tools, &data, &all).as_str())))?;
    } else if let Some(contract) = contract {
        let is_error = |one: &&Diagnostic| one.severity == Severity::Error;
        let errors: Vec<Diagnostic> = scan.diagnostics.iter().filter(is_error).cloned().collect();
        let findings: Vec<&Diagnostic> =
            scan.diagnostics.iter().filter(|one| !is_error(one)).chain(&findings).collect();
        let content = scan.author.as_ref().map(|author| author.summary()).unwrap_or_default();
        let path = crate::banner::shell_quote(&crate::project::shown_path(&args.path));
        let hint = format!("Settings go into {MANIFEST}; `spile init {path}` writes one.");
        let report = Report {
            contract,
            tools: &tools,
            sources: &scan.source_summaries,
            data: &data,
            content: &content,
            findings: &findings,
            settings_hint: (!scan.has_manifest).then_some(&hint),
        };
        print(&report.render(&OutputStyle::stdout()))?;
        print_diagnostics(&errors);
    } else {
        print_diagnostics(&scan.diagnostics);
    }
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tools of author code that are not served because a tool of the data has their name.
fn taken_names(scan: &Scan) -> Vec<String> {
    let data = scan.compiled.iter().flat_map(|compiled| &compiled.contract.tools);
    let data: Vec<&str> = data.map(|tool| tool.name.as_str()).collect();
    let code = scan.author.iter().flat_map(|author| author.tools());
    code.filter(|tool| data.contains(&tool.name.as_str())).map(|tool| tool.name.clone()).collect()
}

/// What the lints find in a contract that can be served.
fn lint_findings(scan: &Scan) -> Vec<Diagnostic> {
    let (Some(compiled), Some(manifest)) = (&scan.compiled, &scan.manifest) else { return Vec::new() };
    let sources: Vec<IntrospectedSource<'_>> =
        scan.facts.iter().map(|(name, facts)| IntrospectedSource::new(name, facts)).collect();
    let mut findings = lint::lint(&compiled.contract, manifest, &sources);
    findings.extend(scan.author.iter().flat_map(Author::lint));
    if !scan.has_manifest {
        // The manifest was generated: its missing descriptions are not the user's, and its locations point nowhere.
        findings.retain(|one| one.code != Some("description_missing"));
        findings.iter_mut().for_each(|one| one.location = None);
    }
    findings
}

fn as_json(
    is_ok: bool,
    scan: &Scan,
    tools: &[ToolSummary],
    data: &[CollectionProfile],
    findings: &[&Diagnostic],
) -> Json {
    let contract = scan.compiled.as_ref().map(|compiled| &compiled.contract);
    let count = |severity| findings.iter().filter(|one| one.severity == severity).count() as i64;
    Json::object(|o| {
        o.bool("ok", is_ok);
        o.maybe_str("server", contract.map(|contract| contract.name.as_str()));
        o.maybe_str("version", contract.map(|contract| contract.version.as_str()));
        o.int("tokens", contract.map_or(0, |contract| total_tokens(contract, tools)) as i64);
        o.int("instructions_tokens", contract.map_or(0, instructions_tokens) as i64);
        o.array("tools", tools, |out, tool| {
            let mut o = ObjectWriter::new(out);
            o.str("name", &tool.name).str("kind", tool.kind.as_str()).int("tokens", tool.tokens as i64);
            o.bool("writes", tool.writes);
            o.array("arguments", &tool.arguments, |out, name| write::string(out, name));
            o.end();
        });
        let statements = contract.into_iter().flat_map(|contract| {
            contract.tools.iter().filter_map(|tool| match tool.operation {
                ToolOperation::Statement { statement } => Some((tool, &contract.statements[statement])),
                _ => None,
            })
        });
        o.array("statements", statements, |out, (tool, statement)| {
            let mut o = ObjectWriter::new(out);
            o.str("tool", &tool.name).str("source", &statement.source).bool("writes", statement.shape.writes);
            o.array("columns", &statement.result.fields, |out, field| {
                let mut o = ObjectWriter::new(out);
                o.str("name", &field.name).str("as", field.data_type.as_str());
                o.end();
            });
            o.end();
        });
        let author_tools = scan.author.iter().flat_map(|author| author.tools());
        o.array("code_tools", author_tools, |out, tool| write::string(out, &tool.name));
        o.array("data", data, |out, profile| profile.write_json(out));
        o.array("unavailable", &scan.unavailable, |out, source| {
            let mut o = ObjectWriter::new(out);
            o.str("name", &source.name).str("reason", &source.reason).bool("readable", source.is_readable);
            o.end();
        });
        o.object("counts", |o| {
            o.int("error", count(Severity::Error));
            o.int("warning", count(Severity::Warning));
            o.int("note", count(Severity::Note));
        });
        o.array("findings", findings, |out, one| write_finding(out, one));
    })
}

fn write_finding(out: &mut Vec<u8>, one: &Diagnostic) {
    let mut o = ObjectWriter::new(out);
    o.str("severity", one.severity.as_str()).str("code", finding_code(one));
    if let Some(location) = &one.location {
        o.str("file", location.file_name());
        o.int("line", location.line() as i64).int("column", location.column() as i64);
    }
    o.str("message", &one.message).maybe_str("help", one.help.as_deref());
    o.end();
}

/// A finding without a code is about how the manifest fits the data, or about the data itself.
fn finding_code(one: &Diagnostic) -> &'static str {
    let in_manifest = one.location.as_ref().is_some_and(|location| location.file_name().ends_with(".toml"));
    one.code.unwrap_or(if in_manifest { "contract" } else { "data" })
}
