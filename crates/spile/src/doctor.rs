//! `spile doctor`: "my client does not see it", answered step by step.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use json::Json;
use json::write::ObjectWriter;
use servers::config::{ConfigProblem, ConfiguredServer, ResolvedTransport};
use servers::doctor::{Finding, Findings, Patient, Verdict};
use servers::oauth::{CredentialStore, ServerSignIn};
use upstream::{ConnectionOptions, Target, process};

use crate::client::output_style::OutputStyle;
use crate::mcp::{ConfigArgs, ServerContext, credential_store, refusal};
use crate::report::print;
use crate::sanitize;

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A configured server, an address, or a path to serve; default: every configured server
    #[arg(value_name = "SERVER|URL|PATH")]
    target: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is examined, and what was found before anything was started.
struct Case {
    title: String,
    findings: Findings,
    /// `None` if there is nothing to start.
    transport: Option<ResolvedTransport>,
    server: Option<ConfiguredServer>,
}

/// Exit codes: 0 if all is well, 1 if a step failed.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&args.config.files)?;
    let cases = match &args.target {
        None => context.configuration.servers.iter().map(|server| configured(&context, server)).collect(),
        Some(target) => vec![find(&context, target)?],
    };
    // Asked about one server, those of others do not matter.
    let matters = |problem: &&ConfigProblem| match (&args.target, &problem.server) {
        (None, _) => true,
        (Some(_), Some(_)) => false,
        (Some(_), None) => cases.iter().any(|case| case.server.is_some()),
    };
    let problems = context.configuration.problems.iter().filter(matters);
    let problems: Vec<String> = problems.map(ToString::to_string).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let home = context.home().map(PathBuf::from);
    let store = credential_store()?;
    let examined = runtime.block_on(async {
        let start = |case| tokio::spawn(examine(case, home.clone(), store.clone()));
        let all: Vec<_> = cases.into_iter().map(start).collect();
        let mut examined = Vec::new();
        for case in all {
            examined.push(case.await.context("this is a bug, please report it")?);
        }
        anyhow::Ok(examined)
    })?;
    let is_well = problems.is_empty() && examined.iter().all(|(_, findings)| findings.is_well());
    if args.json {
        print(&format!("{}\n", as_json(&problems, &examined, is_well)))?;
    } else {
        print(&as_text(&problems, &examined, &OutputStyle::stdout()))?;
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn examine(
    mut case: Case,
    home: Option<PathBuf>,
    store: Option<CredentialStore>,
) -> (String, Findings) {
    let Some(transport) = &case.transport else { return (case.title, case.findings) };
    let env = |name: &str| std::env::var(name).ok();
    let sign_in = match (&case.server, transport.url()) {
        (Some(server), Some(url)) => Some(ServerSignIn { server, url, env: &env, home: home.as_deref() }),
        _ => None,
    };
    let options = ConnectionOptions::default();
    let patient = Patient { transport, sign_in, credentials: store.as_ref(), options };
    patient.examine(&mut case.findings).await;
    (case.title, case.findings)
}

fn find(context: &ServerContext, target: &str) -> anyhow::Result<Case> {
    let is_address = target.contains("://") || target.starts_with("unix:");
    if is_address {
        let parsed = Target::parse(target)?;
        let title = parsed.to_string();
        let transport = Some(ResolvedTransport::Remote { target: parsed, headers: Vec::new() });
        return Ok(Case { title, findings: Findings::default(), transport, server: None });
    }
    match context.find(target) {
        Ok(server) => Ok(configured(context, server)),
        Err(_) if Path::new(target).exists() => served(Path::new(target)),
        Err(error) => {
            Err(error.context(format!("`{target}` is neither an address nor a path nor a configured server")))
        }
    }
}

/// A path is examined as a client would start it.
fn served(path: &Path) -> anyhow::Result<Case> {
    let own = std::env::current_exe().context("cannot determine the path of this program")?;
    let mut findings = Findings::default();
    let shown = crate::project::shown_path(path);
    findings.ok("path", shown.clone());
    let command = process::Command::new(own).arg("serve").arg(path);
    let transport = Some(ResolvedTransport::Process(command));
    Ok(Case { title: shown, findings, transport, server: None })
}

fn configured(context: &ServerContext, server: &ConfiguredServer) -> Case {
    let mut findings = Findings::default();
    let (source, name) = (&server.source, &server.name);
    let overridden: Vec<String> = server.shadowed.iter().map(|lower| lower.label()).collect();
    let mut detail = format!("{} scope, {}", source.scope.name(), source.label());
    if !overridden.is_empty() {
        detail += &format!("; overrides {}", overridden.join(", "));
    }
    let case =
        |findings, transport| Case { title: name.clone(), findings, transport, server: Some(server.clone()) };
    if let Err(reason) = &server.entry {
        findings.fail("configuration", format!("{detail}\n{reason}"), "correct the entry in that file");
        return case(findings, None);
    }
    findings.ok("configuration", detail);
    if let Some((reason, help)) = refusal(server, context.permission(server)) {
        findings.fail("approval", reason, help);
        return case(findings, None);
    }
    let env = |name: &str| std::env::var(name).ok();
    match server.resolve(&env, context.home()) {
        Ok(transport) => case(findings, Some(transport)),
        Err(error) => {
            let help = "set the variable where the client runs: a program that the desktop starts has no variables of \
                        your shell";
            findings.fail("variables", error.to_string(), help);
            case(findings, None)
        }
    }
}

fn as_text(problems: &[String], examined: &[(String, Findings)], style: &OutputStyle) -> String {
    let mut out = String::new();
    for problem in problems {
        out += &format!("{} {}\n", style.red("failed"), sanitize::escape_line(problem));
    }
    if examined.is_empty() {
        out += "no servers are configured; add one with `spile mcp add`\n";
    }
    for (index, (title, findings)) in examined.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        out += &format!("{gap}{}\n", style.bold(&sanitize::escape_line(title)));
        for Finding { step, verdict, detail, help } in &findings.0 {
            let name = match verdict {
                Verdict::Ok => style.green("ok     "),
                Verdict::Warning => style.cyan("warning"),
                Verdict::Failed => style.red("failed "),
            };
            let mut lines = detail.lines();
            let first = sanitize::escape_line(lines.next().unwrap_or_default());
            out += &format!("  {name}  {step:<13}  {first}\n");
            for line in lines {
                out += &format!("{:26}{}\n", "", sanitize::escape_line(line));
            }
            if let Some(help) = help {
                out += &format!("{:26}→ {}\n", "", sanitize::escape_line(help));
            }
        }
    }
    out
}

fn as_json(problems: &[String], examined: &[(String, Findings)], is_well: bool) -> Json {
    Json::object(|out| {
        out.bool("well", is_well);
        out.array("problems", problems, |out, problem| json::write::string(out, problem));
        out.array("servers", examined, |out, (title, findings)| {
            let mut server = ObjectWriter::new(out);
            server.str("target", title).bool("well", findings.is_well());
            server.array("steps", &findings.0, |out, finding| {
                let mut step = ObjectWriter::new(out);
                step.str("step", finding.step).str("result", finding.verdict.name());
                step.str("detail", &finding.detail).maybe_str("help", finding.help.as_deref());
                step.end();
            });
            server.end();
        });
    })
}
