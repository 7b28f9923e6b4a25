//! The client on the command line: one server, one question, an answer to read or to pipe on.
//!
//! ```text
//! flags → To → Place → Connection      which server, and how it is spoken to
//! words → Step → Session::run          what to ask; arguments are read by the tool's own schema
//!               → show, trouble        what a person reads, and what the shell is told
//! ```

mod arguments;
mod error;
mod form;
mod in_process;
pub(crate) mod output_style;
mod render;
mod schema;
mod server_args;
mod steps;
mod table;
mod terminal;
mod trace;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use tokio::sync::OnceCell;
use upstream::TraceSink;

use error::{CommandError, EXIT_CODES, Exit};
use server_args::{Endpoint, ServerArgs};
use steps::{CallArgs, CompleteArgs, NoArgs, PromptArgs, ReadArgs, ResultDisplay, Session, Step, ToolsArgs};
use terminal::Terminal;
use trace::TraceArgs;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the tools of a server, or show one in full
    #[command(after_help = EXIT_CODES)]
    Tools(ClientArgs<ToolsArgs>),
    /// Call a tool
    #[command(after_help = EXIT_CODES)]
    Call(ClientArgs<CallArgs>),
    /// List the resources of a server, and the patterns of their addresses
    #[command(after_help = EXIT_CODES)]
    Resources(ClientArgs<NoArgs>),
    /// Read a resource
    #[command(after_help = EXIT_CODES)]
    Read(ClientArgs<ReadArgs>),
    /// List the prompts of a server
    #[command(after_help = EXIT_CODES)]
    Prompts(ClientArgs<NoArgs>),
    /// Get a prompt, filled in
    #[command(after_help = EXIT_CODES)]
    Prompt(ClientArgs<PromptArgs>),
    /// Ask how an argument of a prompt or of a resource's address could go on
    #[command(after_help = EXIT_CODES)]
    Complete(ClientArgs<CompleteArgs>),
    /// Ask whether a server is there, who it is, and how long it takes to say so
    #[command(after_help = EXIT_CODES)]
    Ping(ClientArgs<NoArgs>),
    /// Show every message that passes between us and a server, and how the connection begins and ends
    #[command(after_help = EXIT_CODES)]
    Trace(Box<TraceArgs>),
}

/// Something to ask, and whom.
#[derive(Debug, Args)]
pub struct ClientArgs<A: Args> {
    #[command(flatten)]
    request: A,
    #[command(flatten)]
    server: ServerArgs,
}

/// Does it, tells what went wrong, and says how it ended.
pub fn run(command: Command) -> ExitCode {
    let (to, step) = match command {
        Command::Tools(ClientArgs { server: to, request: what }) => (to, Step::Tools(what)),
        Command::Call(ClientArgs { server: to, request: what }) => (to, Step::Call(what)),
        Command::Resources(ClientArgs { server: to, request: what }) => (to, Step::Resources(what)),
        Command::Read(ClientArgs { server: to, request: what }) => (to, Step::Read(what)),
        Command::Prompts(ClientArgs { server: to, request: what }) => (to, Step::Prompts(what)),
        Command::Prompt(ClientArgs { server: to, request: what }) => (to, Step::Prompt(what)),
        Command::Complete(ClientArgs { server: to, request: what }) => (to, Step::Complete(what)),
        Command::Ping(ClientArgs { server: to, request: what }) => (to, Step::Ping(what)),
        Command::Trace(args) => return trace::run(&args),
    };
    let showing = ResultDisplay::Print(to.output);
    let understood = if to.is_explicit() { Ok(()) } else { check_misplaced_server(&step) };
    exit_code(
        understood
            .and_then(|()| to.endpoint())
            .and_then(|place| run_session(place, &to, &[step], showing, None)),
    )
}

/// A server that was named where something else belongs, by somebody who named none.
fn check_misplaced_server(step: &Step) -> Result<(), CommandError> {
    let is_path = |word: &str| word.contains(['/', '\\', '.']) && std::path::Path::new(word).exists();
    for word in step.positional_words() {
        let (what, option) = match () {
            () if word.contains("://") => ("an address", "--url"),
            () if is_path(word) => ("a file or a folder", "--from"),
            () => continue,
        };
        let trouble =
            CommandError::usage(format!("`{word}` is {what}, and was taken for a word to the server"));
        return Err(trouble.help(format!("say {option} {word} to name the server")));
    }
    Ok(())
}

fn exit_code(done: Result<Exit, CommandError>) -> ExitCode {
    done.unwrap_or_else(|trouble| {
        trouble.print();
        trouble.exit
    })
    .into()
}

/// Opens a server, asks one thing after the other, and closes it again. The last answer counts.
fn run_session(
    place: Endpoint,
    to: &ServerArgs,
    steps: &[Step],
    showing: ResultDisplay,
    tap: Option<Arc<dyn TraceSink>>,
) -> Result<Exit, CommandError> {
    crate::serve::start_client_logging(to.verbose);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| CommandError::new(Exit::Failed, format!("the runtime cannot start: {error}")))?;
    let done = runtime.block_on(async {
        let desk = Terminal::new(to.verbose, place.roots.clone());
        let (named, timeout_ms) = (place.label.clone(), place.timeout_ms);
        let connection = tokio::select! {
            opened = place.open(&desk, tap) => opened?,
            () = wait_for_ctrl_c() => return Err(CommandError::silent(Exit::Interrupted)),
        };
        desk.set_server_name(&connection.server_info().name);
        if to.verbose > 0 {
            connection.set_log_level(spile_core::LogLevel::Debug);
        }
        let session = Session {
            connection,
            label: named,
            timeout_ms,
            terminal: desk,
            display: showing,
            tools: OnceCell::new(),
        };
        let asking = async {
            let mut last: Result<Exit, CommandError> = Ok(Exit::Success);
            for step in steps {
                match std::mem::replace(&mut last, Ok(Exit::Success)) {
                    Err(trouble) if trouble.is_connection_lost => return Err(trouble),
                    Err(trouble) => trouble.print(),
                    Ok(_) => {}
                }
                last = session.run(step).await;
            }
            last
        };
        let done = tokio::select! {
            done = asking => done,
            // What is under way is given up, which tells the server.
            () = wait_for_ctrl_c() => Err(CommandError::silent(Exit::Interrupted)),
        };
        session.terminal.clear_progress();
        let end = tokio::select! {
            end = session.connection.close() => end,
            // Twice: now.
            () = wait_for_ctrl_c() => None,
        };
        done.map_err(|trouble| trouble.with_process_end(end))
    });
    // Somebody may still be waited for at the terminal.
    runtime.shutdown_background();
    done
}

async fn wait_for_ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
