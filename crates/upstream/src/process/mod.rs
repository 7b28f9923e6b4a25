//! Server processes: starts them and stops them together with everything they started.
//!
//! A [`Command`] is the program and its arguments; [`Command::start`] finds the program, gives it an environment
//! without our secrets, and returns a [`Child`]: stdin, stdout, the last lines of stderr, the exit status.
//!
//! On Unix the program is not our direct child. Our own binary runs again as its *supervisor* (see
//! [`run_supervisor_if_requested`]), which starts the program on our pipes, copies no byte, and owns every process
//! that the program forks. It ends the whole tree when we ask, when the program ends, and when our process is gone
//! for any reason. On Linux that covers every descendant, including daemons; on other Unix systems those that stayed
//! in the program's process group. Elsewhere only the program itself is ended.
//!
//! This module knows neither messages nor framing, and restarts nothing.

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
#[path = "without_supervisor.rs"]
mod child;

pub use child::{Child, Stdin, Stdout};
pub use command::{Command, ProcessOptions, StderrLineCallback};
pub use command_line::{CommandParseError, split_words};
pub use error::StartError;
pub use exit::{Exit, ExitCause};
pub(crate) use exit::{exit_sentence, stderr_tail};
pub use stderr::StderrTail;

/// Runs this process as a supervisor if it was started as one, and then never returns. Otherwise does nothing.
///
/// Every binary that starts children must call this first in `main`: a supervisor reads no settings, logs nothing
/// and has no runtime.
pub fn run_supervisor_if_requested() {
    #[cfg(unix)]
    supervisor::run_if_requested();
}
