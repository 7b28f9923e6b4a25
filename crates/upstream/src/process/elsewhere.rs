//! A child without a supervisor, for systems that have no such thing: the program itself is ended, what it
//! started is not looked for.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::{self, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::command::{Command, Options};
use super::environment;
use super::error::StartError;
use super::exit::{Exit, ExitCause};
use super::stderr::StderrTail;

pub type Stdin = ChildStdin;
pub type Stdout = ChildStdout;

/// What the program started itself may hold the pipe open for longer.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A running program. Dropping it kills the program.
pub struct Child {
    /// Taken by whoever writes. Closing it asks a server to leave.
    pub stdin: Option<Stdin>,
    pub stdout: Option<Stdout>,
    stderr: StderrTail,
    stderr_task: Option<JoinHandle<()>>,
    process: process::Child,
    command: String,
    exit_grace: Duration,
}

impl Command {
    /// Returns when the program runs, which is before it has said anything. Must be called on a runtime with
    /// I/O and time.
    pub async fn start(&self, options: &Options) -> Result<Child, StartError> {
        let program = || self.program.to_string_lossy().into_owned();
        let env = environment::for_child(std::env::vars_os(), &self.env)?;
        let path = env.iter().find(|(name, _)| name.eq_ignore_ascii_case("PATH"));
        let path = path.map(|(_, path)| path.to_string_lossy().into_owned()).unwrap_or_default();
        let mut command = process::Command::new(&self.program);
        command.args(&self.args).env_clear().envs(env).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(cwd) = &self.cwd {
            if !cwd.is_dir() {
                return Err(StartError::InvalidCwd { path: cwd.clone(), reason: "is not a folder" });
            }
            command.current_dir(cwd);
        }
        let mut process = command.spawn().map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound => StartError::NotFound { program: program(), path },
            _ => StartError::SpawnFailed { program: program(), cause },
        })?;
        let stderr = StderrTail::new(options);
        let pipe = process.stderr.take().expect("it was asked for");
        let reading = stderr.clone().read_from(pipe, options.on_stderr_line.clone());
        Ok(Child {
            stdin: process.stdin.take(),
            stdout: process.stdout.take(),
            stderr,
            reading: Some(tokio::spawn(reading)),
            process,
            command: program(),
            exit_grace: Duration::from_millis(options.exit_grace_ms),
        })
    }
}

impl Child {
    /// The program's process id, for people to look for.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// What the program wrote to stderr last.
    pub fn stderr_tail(&self) -> String {
        self.stderr.tail(usize::MAX)
    }

    /// The same, for whoever wants to ask after the child is gone.
    pub fn stderr(&self) -> Stderr {
        self.stderr.clone()
    }

    /// Waits until the program has ended by itself. May be given up and called again.
    pub async fn wait(&mut self) -> Exit {
        let code = self.process.wait().await.ok().and_then(|status| status.code());
        if let Some(reading) = &mut self.reading {
            if timeout(LAST_WORDS, &mut *reading).await.is_err() {
                reading.abort();
            }
            self.reading = None;
        }
        Exit { cause: code.map_or(ExitCause::Unknown, ExitCause::Code), processes_left: 0 }
    }

    /// Ends the program: its stdin is closed, and it may leave by itself; then it is killed.
    pub async fn stop(mut self) -> Exit {
        drop(self.stdin.take());
        let grace = self.exit_grace;
        if let Ok(exit) = timeout(grace, self.wait()).await {
            return exit;
        }
        let _ = self.process.start_kill();
        self.wait().await
    }

    /// A sentence about the end: how, and what the program said last.
    pub fn describe_exit(&self, exit: &Exit) -> String {
        super::exit::obituary(&self.command, exit, &self.stderr)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}
