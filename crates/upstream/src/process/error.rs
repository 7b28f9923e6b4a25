//! Why a program did not start: whose fault, where, and the way out.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    // What was asked for.
    #[error("`{program}` is in no folder of PATH ({path}); install it, or give its full path")]
    NotFound { program: String, path: String },
    #[error("`{}` does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("`{}` is a folder, not a program", path.display())]
    IsDirectory { path: PathBuf },
    #[error("`{0}` may not be executed; `chmod +x {0}` allows it", path.display())]
    NotExecutable { path: PathBuf },
    #[error("`{}` is neither a program for this machine nor a script that begins with `#!`", path.display())]
    NotAProgram { path: PathBuf },
    #[error("`{}` wants to be run by `{interpreter}`, which does not exist; install it, or change the script's first line", path.display())]
    NoInterpreter { path: PathBuf, interpreter: String },
    #[error("the folder to run in, `{}`, {reason}", path.display())]
    InvalidCwd { path: PathBuf, reason: &'static str },
    #[error(
        "the environment variable `{name}` cannot be passed on: a name has no `=`, and neither it nor its value a zero byte"
    )]
    InvalidVariable { name: String },
    #[error("an argument of `{program}` has a zero byte, which no program can be given")]
    NulByte { program: String },

    // The system.
    #[error("`{program}` could not be started: {cause}")]
    SpawnFailed { program: String, cause: io::Error },
    #[error("nothing could be made ready to start `{program}`: {cause}")]
    SetupFailed { program: String, cause: io::Error },

    // Us.
    #[error(
        "`{binary}` was started as a supervisor and is none: its `main` has to begin with `supervise_if_asked`"
    )]
    NoSupervisor { binary: String },
}
