//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use contract::diagnostic::Diagnostic;
use spile::access::{self, AccessArgs};
use spile::audit::{self, AuditArgs};
use spile::check::{CheckArgs, check};
use spile::dev::dev;
use spile::diff::{DiffArgs, diff};
use spile::doctor::{DoctorArgs, doctor};
use spile::gateway::{self, GatewayArgs};
use spile::history::{HistoryArgs, RestoreArgs, history, restore};
use spile::import::{ImportCommand, import};
use spile::init::init;
use spile::install::{self, InstallArgs, UninstallArgs};
use spile::keys::{self, KeysCommand};
use spile::lock::compile;
use spile::mcp::{self, ConfigCommand, LoginArgs, LogoutArgs, McpCommand};
use spile::new::{NewArgs, new};
use spile::pack::{self, PackArgs};
use spile::project::MANIFEST;
use spile::serve::{FailedServer, ServeArgs, Service, serve_rest, start_logging};
use spile::testing::{TestArgs, test};
use spile::{client, print_diagnostics, print_usage};

/// Turn spreadsheets, databases and TypeScript into MCP servers, and call any MCP server.
#[derive(Debug, Parser)]
#[command(name = "spile", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve data files or a manifest over stdio, HTTP, WebSocket or a unix socket
    #[command(after_help = SERVE_EXIT_CODES)]
    Serve {
        /// A data file (.csv .tsv .xlsx .xls .ods .json .jsonl .parquet .db .sqlite .sqlite3), a spile.toml, or a folder with either; each path becomes one server
        #[arg(default_value = ".")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        args: ServeArgs,
    },
    /// Write a spile.toml for your data files, with a comment for every setting
    Init {
        /// A data file, or a folder of data files
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Replace an existing spile.toml
        #[arg(long)]
        force: bool,
    },
    /// Import tools from the description of an API
    #[command(subcommand, disable_help_subcommand = true)]
    Import(ImportCommand),
    /// Compile and report: tools, token cost, problems. Does not serve
    #[command(after_help = CHECK_EXIT_CODES)]
    Check(CheckArgs),
    /// Serve over HTTP while you edit: reload on every save, print what changed and every call
    Dev {
        /// A data file, a spile.toml, or a folder with either
        #[arg(default_value = ".")]
        path: PathBuf,
        #[command(flatten)]
        args: ServeArgs,
    },
    /// Run the calls in tests/ and compare their results
    #[command(after_help = TEST_EXIT_CODES)]
    Test(TestArgs),
    /// Make a folder for a new server: a manifest, data or tools, tests, and types for editors
    New(NewArgs),
    /// Lock the tools: write their schemas and a version to spile.lock
    #[command(after_help = COMPILE_EXIT_CODES)]
    Compile {
        /// A manifest, or a folder with one
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Compare the tools with spile.lock: same, compatible or breaking
    #[command(after_help = DIFF_EXIT_CODES)]
    Diff(DiffArgs),
    /// Print who may do what: roles, collections, operations, fields and rows
    Access(AccessArgs),
    /// Pack a server into one file: a standalone executable, an MCPB bundle, or a registry entry
    Pack(PackArgs),
    /// Add a server to the settings of an MCP client
    Install(InstallArgs),
    /// Remove a server from an MCP client's settings
    Uninstall(UninstallArgs),
    /// List the backups of a data file that Spile has written
    History(HistoryArgs),
    /// Restore a data file from a backup
    Restore(RestoreArgs),
    /// Offer all configured servers at one endpoint, over stdio, HTTP, WebSocket or a unix socket
    #[command(after_help = SERVE_EXIT_CODES)]
    Gateway(GatewayArgs),
    /// Manage the MCP servers that you configured: list, add, remove, approve, enable, disable
    #[command(subcommand, disable_help_subcommand = true)]
    Mcp(McpCommand),
    /// Show where the configured servers come from
    #[command(subcommand, disable_help_subcommand = true)]
    Config(ConfigCommand),
    /// Sign in to a configured server with OAuth
    Login(LoginArgs),
    /// Sign out of a configured server: delete its tokens
    Logout(LogoutArgs),
    /// Print the audit log of a gateway: who called what, and what was decided
    Audit(AuditArgs),
    /// Find out why a server does not work, step by step
    #[command(after_help = DOCTOR_EXIT_CODES)]
    Doctor(DoctorArgs),
    /// Show or rotate the keys that encrypt session ids, cursors and pending elicitations
    #[command(subcommand, disable_help_subcommand = true)]
    Keys(KeysCommand),
    /// Print the JSON Schema of spile.toml, for editors
    Schema,
    #[command(flatten)]
    Client(client::Command),
    /// Print a shell completion script (bash, zsh, fish, …)
    Completions { shell: Shell },
}

/// The commands as `spile --help` groups them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Create and serve", &["new", "init", "import", "check", "access", "dev", "test", "serve"]),
    ("Release", &["compile", "diff", "pack"]),
    ("Connect clients", &["install", "uninstall"]),
    (
        "Call a server",
        &[
            "tools",
            "call",
            "resources",
            "read",
            "prompts",
            "prompt",
            "skills",
            "skill",
            "complete",
            "ping",
            "trace",
        ],
    ),
    ("Backups", &["history", "restore"]),
    ("Other servers", &["mcp", "config", "login", "logout", "doctor", "gateway", "audit"]),
    ("Other", &["keys", "schema", "completions", "help"]),
];

const EXAMPLES: &str = "Examples:
  spile check customers.csv
  spile install claude-desktop customers.csv
  spile serve customers.csv --http
  spile call get_customers email=dana@acme.test --from customers.csv";

const SERVE_EXIT_CODES: &str = "Exit codes:
  0    stopped by Ctrl-C, by a signal, or by the end of stdin
  1    cannot start: invalid data, manifest, address or certificate
  2    invalid usage
  130  stopped at once by a second Ctrl-C (143: by a second SIGTERM)";

const CHECK_EXIT_CODES: &str = "Exit codes:
  0  can be served, whatever the warnings and notes say
  1  cannot be served; --strict: a source cannot be used; --locked: differs from spile.lock
  2  invalid usage";

const TEST_EXIT_CODES: &str = "Exit codes:
  0  all tests passed, or were updated
  1  a test failed
  2  the tests cannot be run: no tests, an invalid test file, a project that cannot be served, or invalid usage";

const DOCTOR_EXIT_CODES: &str = "Exit codes:
  0  all is well, whatever the warnings say
  1  a step failed, or a settings file has a problem
  2  invalid usage";

const COMPILE_EXIT_CODES: &str = "Exit codes:
  0  spile.lock is up to date
  1  cannot be compiled, or spile.lock cannot be read or written
  2  invalid usage";

const DIFF_EXIT_CODES: &str = "Exit codes:
  0  compared, whatever changed
  1  --fail-on: there is such a change
  2  cannot be compared, or invalid usage";

/// The command line, with its commands in groups.
fn command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    let mut list = String::new();
    for (heading, names) in GROUPS {
        list += &format!("{heading}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(|one| one.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            list += &format!("  {name:<11}  {about}\n");
        }
        list += "\n";
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}\n\n{EXAMPLES}\n"
    );
    Cli::command().help_template(template)
}

fn main() -> ExitCode {
    // Must come first: the supervisor of a child process and the worker of scripts run nothing else of this program.
    upstream::process::run_supervisor_if_requested();
    script::run_script_worker_if_requested();
    if let Some(result) = pack::run_if_packed() {
        return exit_code(result);
    }
    let cli = match command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error),
    };
    let result = match cli.command {
        Command::Serve { paths, args } => run_serve(&paths, &args),
        Command::Init { path, force } => init(&path, force),
        Command::Import(command) => import(command),
        Command::Check(args) => check(&args),
        Command::Dev { path, args } => dev(&path, args),
        Command::Test(args) => Ok(test(&args)),
        Command::New(args) => new(&args),
        Command::Compile { path } => compile(&path),
        Command::Diff(args) => Ok(diff(&args)),
        Command::Access(args) => access::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Install(args) => install::run(&args),
        Command::Uninstall(args) => install::uninstall(&args),
        Command::History(args) => history(&args),
        Command::Restore(args) => restore(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Mcp(command) => mcp::run(&command),
        Command::Config(command) => mcp::run_config(&command),
        Command::Login(args) => mcp::login(&args),
        Command::Logout(args) => mcp::logout(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Doctor(args) => doctor(&args),
        Command::Keys(command) => keys::run(&command),
        Command::Schema => print_text(&contract::manifest::schema()),
        Command::Client(command) => Ok(client::run(command)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut command(), "spile", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    };
    exit_code(result)
}

fn exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        print_diagnostics(&[Diagnostic::error(spile::error_text(&error))]);
        ExitCode::FAILURE
    })
}

fn run_serve(paths: &[PathBuf], args: &ServeArgs) -> anyhow::Result<ExitCode> {
    start_logging(args);
    let mut services: Vec<Service> = Vec::with_capacity(paths.len());
    let mut diagnostics = Vec::new();
    let state = args.state()?;
    let mut failed = Vec::new();
    args.check_server_count(paths.len())?;
    for path in paths {
        let (service, found) = match Service::from_path_with(path, args.source_failures(), &state) {
            Ok(opened) => opened,
            // Of several servers, the others are served.
            Err(error) if paths.len() > 1 => (None, vec![Diagnostic::error(format!("{error:#}"))]),
            Err(error) => return Err(error),
        };
        let Some(service) = service else {
            if args.strict || paths.len() == 1 {
                print_diagnostics(&found);
                return Ok(ExitCode::FAILURE);
            }
            failed.push((path, found));
            continue;
        };
        diagnostics.extend(found);
        if services.iter().any(|other| other.name == service.name) {
            bail!(
                "two servers have the name `{}`; give one another name in its {MANIFEST}: [server] name = \"…\"",
                service.name
            );
        }
        services.push(service);
    }
    if services.is_empty() {
        let all: Vec<Diagnostic> = failed.into_iter().flat_map(|(_, found)| found).collect();
        print_diagnostics(&all);
        return Ok(ExitCode::FAILURE);
    }
    let failed: Vec<FailedServer> =
        failed.iter().map(|(path, found)| FailedServer::new(path, found)).collect();
    diagnostics.splice(0..0, failed.iter().map(FailedServer::warning));
    serve_rest(services, failed, &diagnostics, args)?;
    Ok(ExitCode::SUCCESS)
}

fn print_text(text: &str) -> anyhow::Result<ExitCode> {
    spile::print(text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::{CommandFactory, GROUPS};

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let mut command = super::Cli::command();
        command.build();
        let mut names: Vec<&str> = command.get_subcommands().map(|one| one.get_name()).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        names.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, names);
    }
}
