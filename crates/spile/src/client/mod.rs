//! The MCP client on the command line: connects to one server, sends requests and prints the results.
//!
//! ```text
//! flags → ServerArgs → Endpoint → Connection    which server, and over which transport
//! words → Step → ClientSession::run                  the request; the tool's input schema types the arguments
//!                → render, CommandError         the output, and the exit code
//! ```

mod arguments;
mod error;
mod form;
mod in_process;
mod interrupt;
pub(crate) mod output_style;
mod record;
mod render;
mod schema;
mod server_args;
mod skills;
mod steps;
pub(crate) mod terminal;
mod trace;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use tokio::sync::OnceCell;
use upstream::TraceSink;

use arguments::Validation;
use error::{CommandError, EXIT_CODES, Exit};
use interrupt::Interrupt;
pub(crate) use server_args::parse_version;
use server_args::{Endpoint, NamedServer, ServerArgs};
use skills::SkillArgs;
use steps::{
    CallArgs, ClientSession, CompleteArgs, NoArgs, PromptArgs, ReadArgs, ResultDisplay, Step, ToolsArgs,
};
use terminal::Terminal;
use trace::TraceArgs;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List a server's tools, or describe one tool in full
    #[command(after_help = EXIT_CODES)]
    Tools(ClientArgs<ToolsArgs>),
    /// Call a tool and print its result
    #[command(after_help = EXIT_CODES)]
    Call(ClientArgs<CallArgs>),
    /// List a server's resources and resource templates
    #[command(after_help = EXIT_CODES)]
    Resources(ClientArgs<NoArgs>),
    /// Read a resource
    #[command(after_help = EXIT_CODES)]
    Read(ClientArgs<ReadArgs>),
    /// List a server's prompts
    #[command(after_help = EXIT_CODES)]
    Prompts(ClientArgs<NoArgs>),
    /// Get a prompt with its arguments filled in
    #[command(after_help = EXIT_CODES)]
    Prompt(ClientArgs<PromptArgs>),
    /// List a server's skills
    #[command(after_help = EXIT_CODES)]
    Skills(ClientArgs<NoArgs>),
    /// Read a skill, if it is what the server listed
    #[command(after_help = EXIT_CODES)]
    Skill(ClientArgs<SkillArgs>),
    /// Ask a server to complete an argument of a prompt or resource template
    #[command(after_help = EXIT_CODES)]
    Complete(ClientArgs<CompleteArgs>),
    /// Check that a server responds: print its name, its version and the round-trip time
    #[command(after_help = EXIT_CODES)]
    Ping(ClientArgs<NoArgs>),
    /// Show every message exchanged with a server, and how the connection begins and ends
    #[command(after_help = EXIT_CODES)]
    Trace(Box<TraceArgs>),
}

/// A request, and the server that receives it.
#[derive(Debug, Args)]
pub struct ClientArgs<A: Args> {
    #[command(flatten)]
    request: A,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs one client command and prints its error, if there is one.
pub fn run(command: Command) -> ExitCode {
    let (server, step) = match command {
        Command::Tools(ClientArgs { server, request }) => (server, Step::Tools(request)),
        Command::Call(ClientArgs { server, request }) => (server, Step::Call(request)),
        Command::Resources(ClientArgs { server, request }) => (server, Step::Resources(request)),
        Command::Read(ClientArgs { server, request }) => (server, Step::Read(request)),
        Command::Prompts(ClientArgs { server, request }) => (server, Step::Prompts(request)),
        Command::Prompt(ClientArgs { server, request }) => (server, Step::Prompt(request)),
        Command::Skills(ClientArgs { server, request }) => (server, Step::Skills(request)),
        Command::Skill(ClientArgs { server, request }) => (server, Step::Skill(request)),
        Command::Complete(ClientArgs { server, request }) => (server, Step::Complete(request)),
        Command::Ping(ClientArgs { server, request }) => (server, Step::Ping(request)),
        Command::Trace(args) => return trace::run(&args),
    };
    let display = ResultDisplay::Print(server.output_format());
    let result = choose_server(server, step).and_then(|(server, step)| {
        let endpoint = server.endpoint()?;
        run_session(endpoint, &server, &[step], display, None)
    });
    exit_code(result)
}

/// The server that the flags name, that a word names (`spile tools customers.csv`), or that a public name belongs to.
fn choose_server(server: ServerArgs, step: Step) -> Result<(ServerArgs, Step), CommandError> {
    if server.is_explicit() {
        if step.has_server_word() {
            return Err(CommandError::usage("the server is named twice").help("omit the word, or the flag"));
        }
        return Ok((server, step));
    }
    if let Some(public_name) = step.tool_name().filter(|name| servers::names::server_part_of(name).is_some())
    {
        return Ok((server.with_server_of(public_name)?, step));
    }
    // A tool may have the name of a folder, if there is something to serve here that has tools.
    let is_servable = || crate::project::Project::find(std::path::Path::new(".")).is_ok();
    let is_path = |word: &str| {
        std::path::Path::new(word).exists() && (word.contains(['/', '\\', '.']) || !is_servable())
    };
    let (step, named) = step.take_server(|word| match () {
        () if word.contains("://") => Some(NamedServer::Url(word.to_owned())),
        () if is_path(word) => Some(NamedServer::Path(word.into())),
        () => None,
    })?;
    Ok((named.into_iter().fold(server, ServerArgs::with_named_server), step))
}

/// `a file` or `a folder`
fn path_kind(path: &str) -> &'static str {
    if std::path::Path::new(path).is_dir() { "a folder" } else { "a file" }
}

fn exit_code(result: Result<Exit, CommandError>) -> ExitCode {
    result
        .unwrap_or_else(|error| {
            error.print();
            error.exit
        })
        .into()
}

/// Connects to a server, runs the steps in order, and closes the connection. The last step decides the exit code.
fn run_session(
    mut endpoint: Endpoint,
    server: &ServerArgs,
    steps: &[Step],
    display: ResultDisplay,
    trace: Option<Arc<dyn TraceSink>>,
) -> Result<Exit, CommandError> {
    let validation = if trace.is_some() { Validation::Off } else { Validation::Strict };
    crate::serve::start_client_logging(server.verbose);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        CommandError::new(Exit::Failed, format!("cannot start the async runtime: {error}"))
    })?;
    let result = runtime.block_on(async {
        let interrupt = Interrupt::listen();
        let terminal = Terminal::new(server.verbose, std::mem::take(&mut endpoint.answers));
        let (label, timeouts) = (endpoint.label.clone(), endpoint.timeouts);
        let server_name = endpoint.server_name.clone();
        let offered_tools = std::mem::take(&mut endpoint.offered_tools);
        let connection = tokio::select! {
            opened = endpoint.open(&terminal, trace) => opened?,
            () = interrupt.wait() => return Err(CommandError::silent(Exit::Interrupted)),
        };
        terminal.set_server_name(&connection.server_info().name);
        if server.verbose > 0 {
            connection.set_log_level(spile_core::LogLevel::Debug);
        }
        let session = ClientSession {
            connection,
            label,
            server_name,
            offered_tools,
            timeouts,
            terminal,
            display,
            validation,
            tools: OnceCell::new(),
        };
        let result = tokio::select! {
            result = run_steps(&session, steps) => result,
            // Dropping the request in flight sends the server `notifications/cancelled`.
            () = interrupt.wait() => Err(CommandError::silent(Exit::Interrupted)),
        };
        session.terminal.clear_progress();
        let end = session.connection.close().await;
        result.map_err(|error| error.with_process_end(end))
    });
    // A thread may still be blocked on stdin, and nothing can end that read.
    runtime.shutdown_background();
    result
}

async fn run_steps(session: &ClientSession, steps: &[Step]) -> Result<Exit, CommandError> {
    let mut last: Result<Exit, CommandError> = Ok(Exit::Success);
    for step in steps {
        match std::mem::replace(&mut last, Ok(Exit::Success)) {
            Err(error) if error.is_connection_lost => return Err(error),
            Err(error) => error.print(),
            Ok(_) => {}
        }
        last = session.run(step).await;
    }
    last
}
