//! The client on the command line: one server, one question, an answer to read or to pipe on.
//!
//! ```text
//! flags → To → Place → Connection      which server, and how it is spoken to
//! words → Step → Session::run          what to ask; arguments are read by the tool's own schema
//!               → show, trouble        what a person reads, and what the shell is told
//! ```

mod arguments;
mod desk;
mod form;
mod inside;
mod schema;
mod screen;
mod show;
mod steps;
mod table;
mod to;
mod trace;
mod trouble;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use tokio::sync::OnceCell;
use upstream::Tap;

use desk::Desk;
use steps::{CallArgs, CompleteArgs, NoArgs, PromptArgs, ReadArgs, Session, Showing, Step, ToolsArgs};
use to::{Place, To};
use trace::TraceArgs;
use trouble::{EXIT_CODES, Exit, Trouble};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the tools of a server, or show one in full
    #[command(after_help = EXIT_CODES)]
    Tools(At<ToolsArgs>),
    /// Call a tool
    #[command(after_help = EXIT_CODES)]
    Call(At<CallArgs>),
    /// List the resources of a server, and the patterns of their addresses
    #[command(after_help = EXIT_CODES)]
    Resources(At<NoArgs>),
    /// Read a resource
    #[command(after_help = EXIT_CODES)]
    Read(At<ReadArgs>),
    /// List the prompts of a server
    #[command(after_help = EXIT_CODES)]
    Prompts(At<NoArgs>),
    /// Get a prompt, filled in
    #[command(after_help = EXIT_CODES)]
    Prompt(At<PromptArgs>),
    /// Ask how an argument of a prompt or of a resource's address could go on
    #[command(after_help = EXIT_CODES)]
    Complete(At<CompleteArgs>),
    /// Ask whether a server is there, who it is, and how long it takes to say so
    #[command(after_help = EXIT_CODES)]
    Ping(At<NoArgs>),
    /// Show every message that passes between us and a server, and how the connection begins and ends
    #[command(after_help = EXIT_CODES)]
    Trace(Box<TraceArgs>),
}

/// Something to ask, and whom.
#[derive(Debug, Args)]
pub struct At<A: Args> {
    #[command(flatten)]
    what: A,
    #[command(flatten)]
    to: To,
}

/// Does it, tells what went wrong, and says how it ended.
pub fn run(command: Command) -> ExitCode {
    let (to, step) = match command {
        Command::Tools(At { to, what }) => (to, Step::Tools(what)),
        Command::Call(At { to, what }) => (to, Step::Call(what)),
        Command::Resources(At { to, what }) => (to, Step::Resources(what)),
        Command::Read(At { to, what }) => (to, Step::Read(what)),
        Command::Prompts(At { to, what }) => (to, Step::Prompts(what)),
        Command::Prompt(At { to, what }) => (to, Step::Prompt(what)),
        Command::Complete(At { to, what }) => (to, Step::Complete(what)),
        Command::Ping(At { to, what }) => (to, Step::Ping(what)),
        Command::Trace(args) => return trace::run(&args),
    };
    let showing = Showing::Printed(to.output);
    let understood = if to.is_said() { Ok(()) } else { misplaced(&step) };
    ended(understood.and_then(|()| to.place()).and_then(|place| converse(place, &to, &[step], showing, None)))
}

/// A server that was named where something else belongs, by somebody who named none.
fn misplaced(step: &Step) -> Result<(), Trouble> {
    let is_path = |word: &str| word.contains(['/', '\\', '.']) && std::path::Path::new(word).exists();
    for word in step.words() {
        let (what, option) = match () {
            () if word.contains("://") => ("an address", "--url"),
            () if is_path(word) => ("a file or a folder", "--from"),
            () => continue,
        };
        let trouble = Trouble::usage(format!("`{word}` is {what}, and was taken for a word to the server"));
        return Err(trouble.help(format!("say {option} {word} to name the server")));
    }
    Ok(())
}

fn ended(done: Result<Exit, Trouble>) -> ExitCode {
    done.unwrap_or_else(|trouble| {
        trouble.tell();
        trouble.exit
    })
    .into()
}

/// Opens a server, asks one thing after the other, and closes it again. The last answer counts.
fn converse(
    place: Place,
    to: &To,
    steps: &[Step],
    showing: Showing,
    tap: Option<Arc<dyn Tap>>,
) -> Result<Exit, Trouble> {
    crate::serve::start_client_logging(to.verbose);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Trouble::new(Exit::Told, format!("the runtime cannot start: {error}")))?;
    let done = runtime.block_on(async {
        let desk = Desk::new(to.verbose, place.roots.clone());
        let (named, timeout_ms) = (place.named.clone(), place.timeout_ms);
        let connection = tokio::select! {
            opened = place.open(&desk, tap) => opened?,
            () = interrupted() => return Err(Trouble::silent(Exit::Interrupted)),
        };
        desk.greeted(&connection.greeting().name);
        if to.verbose > 0 {
            connection.set_level(call::Level::Debug);
        }
        let session = Session { connection, named, timeout_ms, desk, showing, tools: OnceCell::new() };
        let asking = async {
            let mut last: Result<Exit, Trouble> = Ok(Exit::Fine);
            for step in steps {
                match std::mem::replace(&mut last, Ok(Exit::Fine)) {
                    Err(trouble) if trouble.is_lost => return Err(trouble),
                    Err(trouble) => trouble.tell(),
                    Ok(_) => {}
                }
                last = session.run(step).await;
            }
            last
        };
        let done = tokio::select! {
            done = asking => done,
            // What is under way is given up, which tells the server.
            () = interrupted() => Err(Trouble::silent(Exit::Interrupted)),
        };
        session.desk.clear();
        let end = tokio::select! {
            end = session.connection.close() => end,
            // Twice: now.
            () = interrupted() => None,
        };
        done.map_err(|trouble| trouble.explained(end))
    });
    // Somebody may still be waited for at the terminal.
    runtime.shutdown_background();
    done
}

async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
