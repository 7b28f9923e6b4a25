//! A child without a supervisor, for systems without unix processes: only the program itself is ended, not the
//! processes that it started.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::{self, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::command::{Command, ProcessOptions};
use super::environment;
use super::error::StartError;
use super::exit::{Exit, ExitCause};
use super::stderr::StderrTail;

pub type Stdin = ChildStdin;
pub type Stdout = ChildStdout;

/// Processes that the program started may hold the pipe open for longer.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A running program. Dropping it kills the program.
pub struct Child {
    /// Closing it asks the server to exit.
    pub stdin: Option<Stdin>,
    pub stdout: Option<Stdout>,
    stderr: StderrTail,
    stderr_task: Option<JoinHandle<()>>,
    process: process::Child,
    command: String,
    exit_grace: Duration,
}

impl Command {
    /// The program as it was given: the system looks it up when it starts.
    pub fn locate(&self) -> Result<std::path::PathBuf, StartError> {
        Ok(std::path::PathBuf::from(&self.program))
    }

    /// Returns when the program runs, before its first output. Panics outside a runtime with I/O and time.
    pub async fn start(&self, options: &ProcessOptions) -> Result<Child, StartError> {
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
        let pipe = process.stderr.take().expect("stderr is piped");
        let stderr_task = tokio::spawn(stderr.clone().read_from(pipe, options.on_stderr_line.clone()));
        Ok(Child {
            stdin: process.stdin.take(),
            stdout: process.stdout.take(),
            stderr,
            stderr_task: Some(stderr_task),
            process,
            command: program(),
            exit_grace: Duration::from_millis(options.exit_grace_ms),
        })
    }
}

impl Child {
    /// The program's process id, for people.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// The last lines of stderr.
    pub fn stderr_tail(&self) -> String {
        self.stderr.tail(usize::MAX)
    }

    /// The last lines of stderr, also after the child is gone.
    pub fn stderr(&self) -> StderrTail {
        self.stderr.clone()
    }

    /// Waits until the program has ended by itself. Cancel safe.
    pub async fn wait(&mut self) -> Exit {
        let code = self.process.wait().await.ok().and_then(|status| status.code());
        if let Some(task) = &mut self.stderr_task {
            if timeout(STDERR_DRAIN_TIMEOUT, &mut *task).await.is_err() {
                task.abort();
            }
            self.stderr_task = None;
        }
        Exit { cause: code.map_or(ExitCause::Unknown, ExitCause::Code), processes_left: 0 }
    }

    /// Closes stdin, waits for the program to exit, then kills it.
    pub async fn stop(mut self) -> Exit {
        drop(self.stdin.take());
        let grace = self.exit_grace;
        if let Ok(exit) = timeout(grace, self.wait()).await {
            return exit;
        }
        let _ = self.process.start_kill();
        self.wait().await
    }

    /// A sentence about the exit, with the last lines of stderr.
    pub fn describe_exit(&self, exit: &Exit) -> String {
        super::exit::describe_exit(&self.command, exit, &self.stderr)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(task) = &self.stderr_task {
            task.abort();
        }
    }
}
