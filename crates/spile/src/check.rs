//! `spile check`: what would be served, proven as far as it can be without serving it.
//!
//! Exit codes: 0 if it can be served, whatever is worth a look; 1 if something keeps it from being served, or with
//! `--locked` from being what was locked; 2 for a command line that means nothing. docs/check.md has the shape of
//! `--json`, which stays as it is: members may come, and none goes or changes its meaning.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use contract::compile::KnownSource;
use contract::diagnostic::{Diagnostic, Severity};
use contract::{Contract, ToolOperation, lint};
use json::Json;
use json::write::{self, ObjectWriter};

use crate::project::{Project, Scan};
use crate::report::{argument_names, instructions_cost, print, print_diagnostics, report, token_cost};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// What `serve` takes
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// Fail if it is not what the lock file says
    #[arg(long)]
    pub locked: bool,
    /// Print everything as one JSON object, for programs
    #[arg(long)]
    pub json: bool,
}

pub fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut looked = match Project::find(&args.path).and_then(|project| project.scan()) {
        Ok(looked) => looked,
        // A program that asked for JSON gets JSON, whatever happens.
        Err(error) if args.json => {
            let found = vec![Diagnostic::error(format!("{error:#}")).code("path")];
            Scan { diagnostics: found, ..Scan::default() }
        }
        Err(error) => return Err(error),
    };
    let unlocked = looked.lock_state.diagnostic(args.locked);
    let fails = args.locked && unlocked.is_some();
    looked.diagnostics.extend(unlocked);
    let findings = lint_findings(&looked);
    let contract = looked.compiled.as_ref().map(|ready| &ready.contract);
    let is_ok = contract.is_some() && !fails;
    if args.json {
        let all: Vec<&Diagnostic> = looked.diagnostics.iter().chain(&findings).collect();
        print(&format!("{}\n", as_json(is_ok, contract, &all).as_str()))?;
    } else {
        print_diagnostics(&looked.diagnostics);
        if let Some(contract) = contract {
            print(&report(contract, &looked.source_summaries, &findings))?;
        }
    }
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is worth a look in something that can be served.
fn lint_findings(looked: &Scan) -> Vec<Diagnostic> {
    let (Some(ready), Some(manifest)) = (&looked.compiled, &looked.manifest) else { return Vec::new() };
    let known: Vec<KnownSource<'_>> =
        looked.facts.iter().map(|(name, facts)| KnownSource::new(name, facts)).collect();
    let mut findings = lint::lint(&ready.contract, manifest, &known);
    if !looked.has_manifest {
        // Nobody has left anything out of a manifest that nobody wrote, and it has no places to point to.
        findings.retain(|one| one.code != Some("description_missing"));
        findings.iter_mut().for_each(|one| one.location = None);
    }
    findings
}

fn as_json(is_ok: bool, contract: Option<&Contract>, findings: &[&Diagnostic]) -> Json {
    let count = |severity| findings.iter().filter(|one| one.severity == severity).count() as i64;
    let tools = contract.map_or(&[][..], |contract| &contract.tools);
    Json::object(|o| {
        o.bool("ok", is_ok);
        o.maybe_str("server", contract.map(|contract| contract.name.as_str()));
        o.maybe_str("version", contract.map(|contract| contract.version.as_str()));
        let instructions = contract.map_or(0, instructions_cost);
        o.int("tokens", (tools.iter().map(token_cost).sum::<usize>() + instructions) as i64);
        o.int("instructions_tokens", instructions as i64);
        o.array("tools", tools, |out, tool| {
            let mut o = ObjectWriter::new(out);
            o.str("name", &tool.name).int("tokens", token_cost(tool) as i64);
            o.bool("writes", contract.is_some_and(|contract| operation_writes(contract, &tool.operation)));
            o.array("arguments", &argument_names(tool), |out, name| write::string(out, name));
            o.end();
        });
        let proven = contract.into_iter().flat_map(|contract| {
            contract.tools.iter().filter_map(|tool| match tool.operation {
                ToolOperation::Statement { statement } => Some((tool, &contract.statements[statement])),
                _ => None,
            })
        });
        o.array("statements", proven, |out, (tool, statement)| {
            let mut o = ObjectWriter::new(out);
            o.str("tool", &tool.name).str("source", &statement.source).bool("writes", statement.shape.writes);
            o.array("columns", &statement.result.fields, |out, field| {
                let mut o = ObjectWriter::new(out);
                o.str("name", &field.name).str("as", field.data_type.as_str());
                o.end();
            });
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

fn operation_writes(contract: &Contract, operation: &ToolOperation) -> bool {
    match operation {
        ToolOperation::Get { .. } | ToolOperation::List { .. } | ToolOperation::Search { .. } => false,
        ToolOperation::Create { .. } | ToolOperation::Update { .. } | ToolOperation::Delete { .. } => true,
        ToolOperation::Statement { statement } => contract.statements[*statement].shape.writes,
    }
}

fn write_finding(out: &mut Vec<u8>, one: &Diagnostic) {
    let mut o = ObjectWriter::new(out);
    o.str("severity", one.severity.as_str()).str("code", finding_code(one));
    if let Some(at) = &one.location {
        o.str("file", at.file_name()).int("line", at.line() as i64).int("column", at.column() as i64);
    }
    o.str("message", &one.message).maybe_str("help", one.help.as_deref());
    o.end();
}

/// What has no word of its own is about how a manifest fits the data, or about the data.
fn finding_code(one: &Diagnostic) -> &'static str {
    let in_manifest = one.location.as_ref().is_some_and(|at| at.file_name().ends_with(".toml"));
    one.code.unwrap_or(if in_manifest { "contract" } else { "data" })
}
