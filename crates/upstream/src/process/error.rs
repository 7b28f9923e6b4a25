//! Why a program did not start, and what to do about it.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    // The command is wrong.
    #[error("`{program}` was not found in PATH; install it, or give its full path")]
    NotFound { program: String, path: String },
    #[error("program `{}` not found", path.display())]
    Missing { path: PathBuf },
    #[error("`{}` is a folder, not a program", path.display())]
    IsDirectory { path: PathBuf },
    #[error("`{0}` is not executable; run `chmod +x {0}`", path.display())]
    NotExecutable { path: PathBuf },
    #[error("`{}` is neither a program for this machine nor a script that begins with `#!`", path.display())]
    NotAProgram { path: PathBuf },
    #[error("`{}` needs the interpreter `{interpreter}`, which does not exist; install it, or change the script's first line", path.display())]
    NoInterpreter { path: PathBuf, interpreter: String },
    #[error("the working folder `{}` {reason}", path.display())]
    InvalidCwd { path: PathBuf, reason: &'static str },
    #[error(
        "the environment variable `{name}` is invalid: a name must not contain `=`, and neither name nor value a NUL byte"
    )]
    InvalidVariable { name: String },
    #[error("an argument of `{program}` contains a NUL byte")]
    NulByte { program: String },

    // The system refused.
    #[error("cannot start `{program}`: {cause}")]
    SpawnFailed { program: String, cause: io::Error },
    #[error("cannot prepare to start `{program}`: {cause}")]
    SetupFailed { program: String, cause: io::Error },

    // A bug in the calling program.
    #[error(
        "`{binary}` cannot run as a supervisor: its `main` must call `run_supervisor_if_requested` first"
    )]
    NoSupervisor { binary: String },
}
