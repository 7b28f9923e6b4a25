//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use contract::diagnostic::Diagnostic;
use spile::check::{CheckArgs, check};
use spile::dev::dev;
use spile::diff::{DiffArgs, diff};
use spile::init::init;
use spile::install::{self, InstallArgs, UninstallArgs};
use spile::lock::compile;
use spile::pack::{self, PackArgs};
use spile::project::MANIFEST;
use spile::serve::{ServeArgs, Service, serve, start_logging};
use spile::{client, print_diagnostics};

/// Turns spreadsheets and databases into MCP servers that every agent can use.
#[derive(Debug, Parser)]
#[command(name = "spile", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve data files or a manifest: on stdin and stdout, over HTTP and WebSocket, or on a unix socket
    Serve {
        /// A data file (.csv .tsv .xlsx .xls .ods .json .jsonl .db .sqlite), a spile.toml, or a folder of them; several are several servers
        #[arg(default_value = ".")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        args: ServeArgs,
    },
    /// Write the spile.toml that serving uses when there is none, to be changed
    Init {
        /// A data file, or a folder of them
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Replace a spile.toml that is there
        #[arg(long)]
        force: bool,
    },
    /// Say what would be served, what it costs, and what is wrong or worth a look; serve nothing
    Check(CheckArgs),
    /// Serve over HTTP while you work: follow every save, say what changed, log every call
    Dev {
        /// What `serve` takes
        #[arg(default_value = ".")]
        path: PathBuf,
        #[command(flatten)]
        args: ServeArgs,
    },
    /// Lock what a manifest promises now, and give it a version: writes spile.lock
    Compile {
        /// A manifest, or the folder of one
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Say what changed since a contract was locked: same, compatible or breaking
    Diff(DiffArgs),
    /// Make one file of a server: an executable that needs nothing installed, a bundle, or a registry's description
    Pack(PackArgs),
    /// Add a server to an MCP client's settings
    Install(InstallArgs),
    /// Remove a server from an MCP client's settings
    Uninstall(UninstallArgs),
    /// Print the JSON Schema of spile.toml, for editors
    Schema,
    #[command(flatten)]
    Client(client::Command),
    /// Print a completion script for a shell
    Completions { shell: Shell },
}

fn main() -> ExitCode {
    // First: a supervisor of a child needs none of the rest.
    upstream::process::run_supervisor_if_requested();
    if let Some(done) = pack::run_if_packed() {
        return exit_code(done);
    }
    let done = match Cli::parse().command {
        Command::Serve { paths, args } => run_serve(&paths, &args),
        Command::Init { path, force } => init(&path, force),
        Command::Check(args) => check(&args),
        Command::Dev { path, args } => dev(&path, args),
        Command::Compile { path } => compile(&path),
        Command::Diff(args) => Ok(diff(&args)),
        Command::Pack(args) => pack::run(&args),
        Command::Install(args) => install::run(&args),
        Command::Uninstall(args) => install::uninstall(&args),
        Command::Schema => print_text(&contract::manifest::schema()),
        Command::Client(command) => Ok(client::run(command)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "spile", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    };
    exit_code(done)
}

fn exit_code(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        print_diagnostics(&[Diagnostic::error(format!("{error:#}"))]);
        ExitCode::FAILURE
    })
}

fn run_serve(paths: &[PathBuf], args: &ServeArgs) -> anyhow::Result<ExitCode> {
    start_logging(args);
    let mut services: Vec<Service> = Vec::with_capacity(paths.len());
    for path in paths {
        let (service, found) = Service::from_path(path)?;
        print_diagnostics(&found);
        let Some(service) = service else { return Ok(ExitCode::FAILURE) };
        if services.iter().any(|other| other.name == service.name) {
            bail!(
                "two servers are called `{}`; name one in its {MANIFEST}: [server] name = \"…\"",
                service.name
            );
        }
        services.push(service);
    }
    serve(services, args)?;
    Ok(ExitCode::SUCCESS)
}

/// A reader that has seen enough, such as `head`, is no failure.
fn print_text(text: &str) -> anyhow::Result<ExitCode> {
    spile::print(text)?;
    Ok(ExitCode::SUCCESS)
}
