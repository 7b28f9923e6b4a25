//! `spile mcp`: the servers that the user configured.
//!
//! `context` loads the files and the user's decisions; `edit` changes our own file or the project's; `show` prints.

mod approve;
mod connect;
mod context;
mod edit;
mod login;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

pub(crate) use connect::{ProcessHost, credential_store, os_keyring};
pub(crate) use context::{ServerContext, decision_path, refusal};
pub use login::{LoginArgs, LogoutArgs, login, logout};
pub(crate) use login::{LoginTarget, probe};

#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// List the configured servers with their scope, command or URL, and approval
    List(ListArgs),
    /// Show one server in full: its settings file, scope, command, and the entries it overrides
    Get(GetArgs),
    /// Add a server: a command to start, or an address
    Add(edit::AddArgs),
    /// Remove a server from your own file or from the project's .mcp.json
    Remove(edit::RemoveArgs),
    /// Approve servers of this project, so that they may be started
    Approve(approve::ApproveArgs),
    /// Enable a server that was disabled
    Enable(NameArgs),
    /// Disable a server: Spile does not start it until it is enabled
    Disable(NameArgs),
    /// Connect to a server and report the result
    Test(connect::ConnectArgs),
    /// Try a server again now, also in gateways that gave it up
    Retry(connect::ConnectArgs),
    /// Connect to all servers, and list their tools under their public names
    Tools(connect::ToolsArgs),
    /// Include the servers that are configured in other MCP clients
    #[command(visible_alias = "import")]
    Include(edit::IncludeArgs),
    /// List the settings files, with the servers that each one has and those that are used
    Files(FilesArgs),
}

/// `spile config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show where each configured server comes from: its file and scope, and the entries it overrides
    Show(FilesArgs),
}

pub fn run_config(command: &ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Show(args) => show::files(&ServerContext::load(&args.config.files)?, args.json),
    }
}

/// The files of a run.
#[derive(Debug, Args, Clone, Default)]
pub struct ConfigArgs {
    /// Also read the servers in this file; it takes precedence over all others and needs no approval. Can be repeated
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Connect to every server, and show what each offers and costs
    #[arg(long)]
    connect: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct FilesArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// The server's name
    name: String,
    /// Connect to it, and show what it offers and what it wrote to stderr
    #[arg(long)]
    connect: bool,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// The server's name
    name: String,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Where a server is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// For you, in every folder
    User,
    /// For you, in this folder and below
    Local,
    /// For everyone who works on this project: .mcp.json
    Project,
}

pub fn run(command: &McpCommand) -> anyhow::Result<ExitCode> {
    match command {
        McpCommand::List(args) => {
            let context = ServerContext::load(&args.config.files)?;
            if args.connect { connect::list(&context, args) } else { show::list(&context, args.json) }
        }
        McpCommand::Get(args) => {
            let context = ServerContext::load(&args.config.files)?;
            if args.connect {
                return connect::get(&context, args);
            }
            show::get(&context, context.find(&args.name)?, args.json)
        }
        McpCommand::Add(args) => edit::add(args),
        McpCommand::Remove(args) => edit::remove(args),
        McpCommand::Approve(args) => approve::run(args),
        McpCommand::Enable(args) => {
            let context = ServerContext::load(&args.config.files)?;
            let server = context.find(&args.name)?;
            context.decision_file()?.update(|decisions| decisions.enable(server))?;
            show::notice(&format!("enabled `{}`", server.name));
            Ok(ExitCode::SUCCESS)
        }
        McpCommand::Disable(args) => {
            let context = ServerContext::load(&args.config.files)?;
            let server = context.find(&args.name)?;
            context.decision_file()?.update(|decisions| decisions.disable(server))?;
            show::notice(&format!("disabled `{}`", server.name));
            Ok(ExitCode::SUCCESS)
        }
        McpCommand::Test(args) => connect::test(args),
        McpCommand::Retry(args) => connect::retry(args),
        McpCommand::Tools(args) => connect::tools(args),
        McpCommand::Include(args) => edit::include(args),
        McpCommand::Files(args) => show::files(&ServerContext::load(&args.config.files)?, args.json),
    }
}
