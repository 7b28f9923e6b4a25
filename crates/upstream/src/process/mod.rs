//! Servers that are programs: started, fed, and ended together with everything they started themselves.
//!
//! A [`Command`] is what to run, as typed; [`Command::start`] finds the program, gives it an environment that
//! holds none of our secrets, and returns a [`Child`]: stdin, stdout, the last lines of stderr, an end.
//!
//! On Unix a child is not ours directly. Our own binary is started again as its *supervisor* (see
//! [`supervise_if_asked`]), which starts the program on our pipes, copies no byte, and owns whatever the
//! program forks. It ends all of it when we ask, when the program ends, and when we are gone, however we went.
//! On Linux that holds for every descendant, daemons included; on other Unix systems for those that stayed in
//! the program's process group. Elsewhere only the program itself is ended.
//!
//! Knows neither messages nor framing, and starts nothing again: that is for whoever holds the connection.

mod command;
mod command_line;
mod environment;
mod error;
mod exit;
mod stderr;

#[cfg(unix)]
#[path = "unix.rs"]
mod child;
#[cfg(unix)]
mod program_lookup;
#[cfg(unix)]
mod reaper;
#[cfg(unix)]
mod supervisor;

#[cfg(not(unix))]
#[path = "elsewhere.rs"]
mod child;

pub use child::{Child, Stdin, Stdout};
pub use command::{Command, Options, StderrLineCallback};
pub use command_line::{CommandParseError, split_words};
pub use error::StartError;
pub use exit::{Exit, ExitCause};
pub(crate) use exit::{exit_sentence, stderr_tail};
pub use stderr::StderrTail;

/// Turns this process into a supervisor if it was started as one, and then never returns. Otherwise it does
/// nothing.
///
/// Belongs before everything else in `main` of every binary that starts children: a supervisor reads no
/// settings, logs nothing and has no runtime.
pub fn run_supervisor_if_requested() {
    #[cfg(unix)]
    supervisor::run_if_requested();
}
