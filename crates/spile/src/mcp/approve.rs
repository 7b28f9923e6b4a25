//! `spile mcp approve`: the user allows exactly what a file of a project says.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use servers::config::ConfiguredServer;
use servers::decisions::Permission;
use servers::definitions::{DefinitionState, ToolDifference};

use super::connect::{definition_pins, lists_of};
use super::context::ServerContext;
use super::{ConfigArgs, show};
use crate::client::output_style::OutputStyle;
use crate::layout::render_record;
use crate::sanitize;

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The servers to approve
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// Every server of this project that is not approved yet
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Approve the definitions of the server's tools as they are now, in place of those that you approved before
    #[arg(long, conflicts_with = "all")]
    definitions: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &ApproveArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&args.config.files)?;
    if args.definitions {
        for name in &args.names {
            if !approve_definitions(&context, context.find(name)?, args.yes)? {
                return Ok(ExitCode::FAILURE);
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let needs = |server: &&ConfiguredServer| {
        matches!(context.permission(server), Permission::NeedsApproval | Permission::Changed)
    };
    let chosen: Vec<&ConfiguredServer> = if args.all {
        context.configuration.servers.iter().filter(needs).collect()
    } else {
        args.names.iter().map(|name| context.find(name)).collect::<Result<_, _>>()?
    };
    if chosen.is_empty() {
        show::notice("every server of this project is approved");
    }
    for server in chosen {
        match context.permission(server) {
            Permission::NeedsApproval | Permission::Changed => {}
            Permission::Invalid => {
                let error = server.entry.as_ref().err().map(ToString::to_string).unwrap_or_default();
                bail!("server `{}` is invalid: {error}", server.name)
            }
            Permission::Allowed | Permission::Disabled | Permission::DisabledInFile => {
                show::notice(&format!("`{}` needs no approval", server.name));
                continue;
            }
        }
        if !args.yes && !confirm(&context, server)? {
            show::notice(&format!("`{}` is not approved", server.name));
            return Ok(ExitCode::FAILURE);
        }
        context.decision_file()?.update(|decisions| decisions.approve(server))?;
        show::notice(&format!("approved `{}`", server.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects, and shows what changed. Returns whether the user agreed.
fn approve_definitions(
    context: &ServerContext,
    server: &ConfiguredServer,
    is_agreed: bool,
) -> anyhow::Result<bool> {
    let pins = definition_pins().context("neither XDG_STATE_HOME nor HOME is set; set one of them")?;
    let lists = lists_of(context, server)?;
    let differences = pins.differences(server, &lists.tools)?;
    if differences.is_empty() {
        show::notice(&format!("the tools of `{}` are as you approved them", server.name));
        return Ok(true);
    }
    crate::print(&definition_lines(&differences, &OutputStyle::stdout()))?;
    if !is_agreed {
        if !std::io::stderr().is_terminal() || !std::io::stdin().is_terminal() {
            bail!(
                "cannot ask without a terminal; review the differences, then run `spile mcp approve {} --definitions --yes`",
                server.name
            );
        }
        if !ask("Use these definitions from now on? [y/N] ")? {
            show::notice("nothing was approved");
            return Ok(false);
        }
    }
    pins.approve(server, &lists.tools)?;
    // Programs that run read the lists again.
    context.decision_file()?.update(|decisions| decisions.retry(server))?;
    show::notice(&format!("approved the definitions of `{}`", server.name));
    Ok(true)
}

/// Everything that changed, in full: what a server wants to hide would be at the end of a long text.
fn definition_lines(all: &[ToolDifference], style: &OutputStyle) -> String {
    let mut out = String::new();
    let lines = |sign: &str, text: &str| {
        let mut lines = String::new();
        for line in text.lines() {
            lines += &format!("    {sign} {}\n", sanitize::escape_line(line));
        }
        lines
    };
    for tool in all {
        let state = match tool.state {
            DefinitionState::New => "new",
            DefinitionState::Changed => "changed",
        };
        out += &format!("{} ({state})\n", style.bold(&sanitize::escape_line(&tool.tool)));
        if tool.state == DefinitionState::New {
            out += &lines("+", &tool.description);
        }
        for one in &tool.differences {
            out += &format!("  {}\n", sanitize::escape_line(&one.path));
            out += &one.before.as_deref().map_or_else(String::new, |text| lines("-", text));
            out += &one.after.as_deref().map_or_else(String::new, |text| lines("+", text));
        }
    }
    out
}

/// Shows what would be started, and asks.
fn confirm(context: &ServerContext, server: &ConfiguredServer) -> anyhow::Result<bool> {
    let stderr = std::io::stderr();
    if !stderr.is_terminal() || !std::io::stdin().is_terminal() {
        bail!(
            "cannot ask without a terminal; review the server with `spile mcp get {0}`, then run `spile mcp approve {0} --yes`",
            server.name
        );
    }
    let details = render_record(&show::details(context, server), &OutputStyle::stderr(), 2);
    ask(&format!("{details}Start this server from now on? [y/N] "))
}

fn ask(question: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stderr().lock();
    write!(out, "{question}")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
