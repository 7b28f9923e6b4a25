//! `spile mcp approve`: the user allows exactly what a file of a project says.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use servers::config::ConfiguredServer;
use servers::decisions::Permission;

use super::context::ServerContext;
use super::show;
use crate::client::output_style::OutputStyle;
use crate::layout::render_record;

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The servers to approve
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// Every server of this project that is not approved yet
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(super) fn run(args: &ApproveArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&[])?;
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
    let mut out = stderr.lock();
    write!(out, "{details}Start this server from now on? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
